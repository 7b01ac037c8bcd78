/* gpu_norm.cu: batch normalization in training mode where cuDNN does not do it (gpu_bn.c): images of any type, plain or
 * channels-last; scale, bias and statistics are f32. Sums are always added in one order, which depends on the shape alone. And what
 * lies between the library's statistics and ours.
 *
 * Plain: a block per channel, sums in f64. Channels-last: a matrix of points and channels (gpu_images.h), of which every block adds
 * up a chunk of rows: means and squares of distances from them in f32 over runs of rows, in f64 over the runs; then the chunks'
 * sums become those of the channels, and one more pass makes the result. */
#include "gpu_images.h"

namespace device
{

enum { RUN = 32 }; /* rows of one sum in f32 */

template <class F>
static __global__ void forward(typename F::T *y, float *mean, float *var, const typename F::T *x, const float *scale,
	const float *bias, int n, int c, int inner, float eps)
{
	const int k = blockIdx.x;
	const double count = (double)n * inner;
	double s = 0, p = 0;

	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x)
		s += (double)F::load(x + (i / inner * c + k) * inner + i % inner);
	const double m = pd_block_sum(s) / count;
	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x) {
		const double d = (double)F::load(x + (i / inner * c + k) * inner + i % inner) - m;
		p += d * d;
	}
	const double v = pd_block_sum(p) / count;
	const float by = scale[k] / sqrtf((float)v + eps);

	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x) {
		const int64_t at = (i / inner * c + k) * inner + i % inner;
		F::store(y + at, (F::load(x + at) - (float)m) * by + bias[k]);
	}
	if (threadIdx.x == 0) {
		mean[k] = (float)m;
		var[k] = (float)v;
	}
}

template <class F>
static __global__ void evaluate(typename F::T *y, const typename F::T *x, const float *scale, const float *bias,
	const float *mean, const float *var, int n, int c, int inner, float eps)
{
	const int k = blockIdx.x;
	const float by = scale[k] / sqrtf(var[k] + eps);

	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x) {
		const int64_t at = (i / inner * c + k) * inner + i % inner;
		F::store(y + at, (F::load(x + at) - mean[k]) * by + bias[k]);
	}
}

template <class F>
static __global__ void backward(typename F::T *dx, float *dscale, float *dbias, const typename F::T *dy,
	const typename F::T *x, const float *mean, const float *var, const float *scale, int n, int c, int inner,
	float eps)
{
	const int k = blockIdx.x;
	const float inv = 1 / sqrtf(var[k] + eps), m = mean[k];
	const double count = (double)n * inner;
	double s = 0, p = 0;

	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x) {
		const int64_t at = (i / inner * c + k) * inner + i % inner;
		s += (double)F::load(dy + at);
		p += (double)(F::load(dy + at) * (F::load(x + at) - m) * inv);
	}
	s = pd_block_sum(s);
	p = pd_block_sum(p);
	const float ms = (float)(s / count), mp = (float)(p / count);

	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x) {
		const int64_t at = (i / inner * c + k) * inner + i % inner;
		F::store(dx + at, scale[k] * inv * (F::load(dy + at) - ms - (F::load(x + at) - m) * inv * mp));
	}
	if (threadIdx.x == 0) {
		dscale[k] = (float)p;
		dbias[k] = (float)s;
	}
}

/* ---- channels-last ---- */

/* Rows of [first, end) that are every tall-th. */
static __device__ int64_t count_of(int64_t first, int64_t end, int tall)
{
	return first < end ? (end - first + tall - 1) / tall : 0;
}

/* The run that begins at a row: how many rows it has, and where the next one begins. */
static __device__ int64_t run_of(int64_t first, int64_t end, int tall, int64_t *stop)
{
	const int64_t rest = count_of(first, end, tall), n = rest < RUN ? rest : (int64_t)RUN;

	*stop = first + n * tall;
	return n;
}

/* part [chunks, 2, c]: a chunk's mean of each channel, and its sum of squares of the distances from it. */
template <class F, int V> static __global__ void statistics(double *part, const typename F::T *x, const columns m)
{
	__shared__ double means[PD_COLUMN_THREADS * V], squares[PD_COLUMN_THREADS * V];
	const strip at(m, V);
	double mean[V] = { 0 }, square[V] = { 0 }, n = 0;

	for (int64_t r = at.first, stop; at.inside && r < at.end; r = stop) {
		float from[V], s[V] = { 0 }, q[V] = { 0 }, v[V];
		const double k = (double)run_of(r, at.end, m.tall, &stop);

		vector<F, V>::load(from, x + r * m.c + at.column);
		for (; r < stop; r += m.tall) {
			vector<F, V>::load(v, x + r * m.c + at.column);
			for (int i = 0; i < V; i++) {
				const float d = v[i] - from[i];
				s[i] += d;
				q[i] += d * d;
			}
		}
		for (int i = 0; i < V; i++) { /* two sets of numbers become one */
			const double own = (double)s[i] / k, d = (double)from[i] + own - mean[i];
			mean[i] += d * k / (n + k);
			square[i] += (double)q[i] - own * (double)s[i] + d * d * n * k / (n + k);
		}
		n += k;
	}
	for (int i = 0; i < V; i++) {
		means[threadIdx.x * V + i] = mean[i];
		squares[threadIdx.x * V + i] = square[i];
	}
	__syncthreads();
	if (at.below || !at.inside)
		return;
	const int64_t all = at.end - at.first;
	double *to = part + (int64_t)(blockIdx.x / m.groups) * 2 * m.c + at.column;

	for (int i = 0; i < V; i++) {
		double sum = 0, square_sum = 0;

		for (int k = 0; k < m.tall; k++)
			sum += means[(k * m.wide + at.beside) * V + i] * (double)count_of(at.first + k, at.end, m.tall);
		const double whole = sum / (double)all;
		for (int k = 0; k < m.tall; k++) {
			const double d = means[(k * m.wide + at.beside) * V + i] - whole;
			square_sum += squares[(k * m.wide + at.beside) * V + i] +
			              d * d * (double)count_of(at.first + k, at.end, m.tall);
		}
		to[i] = whole;
		to[m.c + i] = square_sum;
	}
}

/* The sum of what 8 threads of a channel have, 32 channels of a block; all get it. */
static __device__ double sum_of_eight(double v)
{
	__shared__ double part[256];
	double s = 0;

	__syncthreads();
	part[threadIdx.x] = v;
	__syncthreads();
	for (int i = 0; i < 8; i++)
		s += part[i * 32 + threadIdx.x % 32];
	return s;
}

static __global__ void settle_statistics(float *mean, float *var, const double *part, const columns m)
{
	const int c = (int)blockIdx.x * 32 + (int)threadIdx.x % 32, from = (int)threadIdx.x / 32;
	double s = 0, q = 0;

	for (int64_t k = from; c < m.c && k < m.chunks; k += 8) {
		const int64_t n = (k + 1) * m.per < m.rows ? m.per : m.rows - k * m.per;
		s += part[k * 2 * m.c + c] * (double)n;
	}
	const double whole = sum_of_eight(s) / (double)m.rows;
	for (int64_t k = from; c < m.c && k < m.chunks; k += 8) {
		const int64_t n = (k + 1) * m.per < m.rows ? m.per : m.rows - k * m.per;
		const double d = part[k * 2 * m.c + c] - whole;
		q += part[(k * 2 + 1) * m.c + c] + d * d * (double)n;
	}
	q = sum_of_eight(q) / (double)m.rows;
	if (c < m.c && !from) {
		mean[c] = (float)whole;
		var[c] = (float)q;
	}
}

template <class F, int V>
static __global__ void apply(typename F::T *restrict y, const typename F::T *restrict x, const float *scale,
	const float *bias, const float *mean, const float *var, const columns m, float eps)
{
	const strip at(m, V);
	float by[V], from[V], plus[V], v[V];

	if (!at.inside)
		return;
	for (int i = 0; i < V; i++) {
		by[i] = scale[at.column + i] / sqrtf(var[at.column + i] + eps);
		from[i] = mean[at.column + i];
		plus[i] = bias[at.column + i];
	}
	for (int64_t r = at.first; r < at.end; r += m.tall) {
		vector<F, V>::load(v, x + r * m.c + at.column);
		for (int i = 0; i < V; i++)
			v[i] = (v[i] - from[i]) * by[i] + plus[i];
		vector<F, V>::store(y + r * m.c + at.column, v);
	}
}

/* part [chunks, 2, c]: a chunk's sums of dy (x - mean) / deviation, and of dy. */
template <class F, int V>
static __global__ void gradients(double *part, const typename F::T *dy, const typename F::T *x, const float *mean,
	const float *var, const columns m, float eps)
{
	__shared__ double products[PD_COLUMN_THREADS * V], sums[PD_COLUMN_THREADS * V];
	const strip at(m, V);
	double product[V] = { 0 }, sum[V] = { 0 };
	float from[V], inverse[V];

	for (int i = 0; at.inside && i < V; i++) {
		from[i] = mean[at.column + i];
		inverse[i] = 1 / sqrtf(var[at.column + i] + eps);
	}
	for (int64_t r = at.first, stop; at.inside && r < at.end; r = stop) {
		float p[V] = { 0 }, s[V] = { 0 }, g[V], v[V];

		run_of(r, at.end, m.tall, &stop);
		for (; r < stop; r += m.tall) {
			vector<F, V>::load(g, dy + r * m.c + at.column);
			vector<F, V>::load(v, x + r * m.c + at.column);
			for (int i = 0; i < V; i++) {
				p[i] += g[i] * (v[i] - from[i]) * inverse[i];
				s[i] += g[i];
			}
		}
		for (int i = 0; i < V; i++) {
			product[i] += (double)p[i];
			sum[i] += (double)s[i];
		}
	}
	for (int i = 0; i < V; i++) {
		products[threadIdx.x * V + i] = product[i];
		sums[threadIdx.x * V + i] = sum[i];
	}
	__syncthreads();
	if (at.below || !at.inside)
		return;
	double *to = part + (int64_t)(blockIdx.x / m.groups) * 2 * m.c + at.column;

	for (int i = 0; i < V; i++) {
		double p = 0, s = 0;

		for (int k = 0; k < m.tall; k++) {
			p += products[(k * m.wide + at.beside) * V + i];
			s += sums[(k * m.wide + at.beside) * V + i];
		}
		to[i] = p;
		to[m.c + i] = s;
	}
}

static __global__ void settle_gradients(float *dscale, float *dbias, const double *part, const columns m)
{
	const int c = (int)blockIdx.x * 32 + (int)threadIdx.x % 32, from = (int)threadIdx.x / 32;
	double p = 0, s = 0;

	for (int64_t k = from; c < m.c && k < m.chunks; k += 8) {
		p += part[k * 2 * m.c + c];
		s += part[(k * 2 + 1) * m.c + c];
	}
	p = sum_of_eight(p);
	s = sum_of_eight(s);
	if (c < m.c && !from) {
		dscale[c] = (float)p;
		dbias[c] = (float)s;
	}
}

template <class F, int V>
static __global__ void data_gradient(typename F::T *restrict dx, const float *dscale, const float *dbias,
	const typename F::T *restrict dy, const typename F::T *restrict x, const float *mean, const float *var,
	const float *scale, const columns m, float eps)
{
	const strip at(m, V);
	float from[V], by[V], slope[V], shift[V], g[V], v[V];

	if (!at.inside)
		return;
	for (int i = 0; i < V; i++) {
		const float inverse = 1 / sqrtf(var[at.column + i] + eps);

		from[i] = mean[at.column + i];
		by[i] = scale[at.column + i] * inverse;
		slope[i] = inverse * (float)((double)dscale[at.column + i] / (double)m.rows);
		shift[i] = (float)((double)dbias[at.column + i] / (double)m.rows);
	}
	for (int64_t r = at.first; r < at.end; r += m.tall) {
		vector<F, V>::load(g, dy + r * m.c + at.column);
		vector<F, V>::load(v, x + r * m.c + at.column);
		for (int i = 0; i < V; i++)
			g[i] = by[i] * (g[i] - shift[i] - (v[i] - from[i]) * slope[i]);
		vector<F, V>::store(dx + r * m.c + at.column, g);
	}
}

static __global__ void variance(float *v, int c, float eps)
{
	const int k = blockIdx.x * blockDim.x + threadIdx.x;

	if (k < c) {
		const double is = 1 / ((double)v[k] * (double)v[k]) - (double)eps;
		v[k] = is > 0 ? (float)is : 0;
	}
}

static __global__ void inverse(float *to, const float *v, int c, float eps)
{
	const int k = blockIdx.x * blockDim.x + threadIdx.x;

	if (k < c)
		to[k] = (float)(1 / sqrt((double)v[k] + (double)eps));
}

/* What the host starts, with the operands of one call: of the type and vectors that pd_for_type found. */
struct norm {
	const pd_bn_desc *d;
	void *to; /* y, dx */
	const void *x, *dy;
	const float *scale, *bias;
	float *mean, *var; /* of a backward: read */
	float *dscale, *dbias;
	double *part;

	int inner() const { return d->sp[0] * d->sp[1] * d->sp[2]; }

	columns matrix(int v) const { return pd_columns((int64_t)d->n * inner(), d->c, v); }
};

struct norm_forward : norm {
	template <class F, int V> void run()
	{
		typedef typename F::T T;
		const columns m = matrix(V);

		if (!d->nhwc) {
			PD_LAUNCH(device::forward<F>, (unsigned)d->c, 512, 0, (T *)to, mean, var, (const T *)x, scale,
				bias, d->n, d->c, inner(), d->eps);
			return;
		}
		PD_LAUNCH((device::statistics<F, V>), m.groups * m.chunks, PD_COLUMN_THREADS, 0, part, (const T *)x, m);
		PD_LAUNCH(device::settle_statistics, pd_blocks(m.c, 32), 256, 0, mean, var, part, m);
		PD_LAUNCH((device::apply<F, V>), m.groups * m.chunks, PD_COLUMN_THREADS, 0, (T *)to, (const T *)x,
			scale, bias, mean, var, m, d->eps);
	}
};

struct norm_evaluate : norm {
	template <class F, int V> void run()
	{
		typedef typename F::T T;
		const columns m = matrix(V);

		if (d->nhwc)
			PD_LAUNCH((device::apply<F, V>), m.groups * m.chunks, PD_COLUMN_THREADS, 0, (T *)to,
				(const T *)x, scale, bias, mean, var, m, d->eps);
		else
			PD_LAUNCH(device::evaluate<F>, (unsigned)d->c, 512, 0, (T *)to, (const T *)x, scale, bias, mean,
				var, d->n, d->c, inner(), d->eps);
	}
};

struct norm_backward : norm {
	template <class F, int V> void run()
	{
		typedef typename F::T T;
		const columns m = matrix(V);

		if (!d->nhwc) {
			PD_LAUNCH(device::backward<F>, (unsigned)d->c, 512, 0, (T *)to, dscale, dbias, (const T *)dy,
				(const T *)x, mean, var, scale, d->n, d->c, inner(), d->eps);
			return;
		}
		PD_LAUNCH((device::gradients<F, V>), m.groups * m.chunks, PD_COLUMN_THREADS, 0, part, (const T *)dy,
			(const T *)x, mean, var, m, d->eps);
		PD_LAUNCH(device::settle_gradients, pd_blocks(m.c, 32), 256, 0, dscale, dbias, part, m);
		PD_LAUNCH((device::data_gradient<F, V>), m.groups * m.chunks, PD_COLUMN_THREADS, 0, (T *)to, dscale,
			dbias, (const T *)dy, (const T *)x, mean, var, scale, m, d->eps);
	}
};

struct norm_room : norm {
	size_t *bytes;

	template <class F, int V> void run()
	{
		const columns m = matrix(V);

		*bytes = d->nhwc ? (size_t)m.chunks * 2 * (size_t)m.c * sizeof(double) : 0;
	}
};

} // namespace device

PD_HOST size_t pd_norm_room(const pd_bn_desc *d)
{
	size_t bytes = 0;
	device::norm_room o;

	o.d = d;
	o.bytes = &bytes;
	pd_for_type(d->type, d->c, o);
	return bytes;
}

PD_HOST void pd_norm_forward(const pd_bn_desc *d, void *y, float *mean, float *var, const void *x, const float *scale,
	const float *bias, double *room)
{
	device::norm_forward o;

	o.d = d, o.to = y, o.x = x, o.scale = scale, o.bias = bias, o.mean = mean, o.var = var, o.part = room;
	pd_for_type(d->type, d->c, o);
}

PD_HOST void pd_norm_evaluate(const pd_bn_desc *d, void *y, const void *x, const float *scale, const float *bias,
	const float *mean, const float *var)
{
	device::norm_evaluate o;

	o.d = d, o.to = y, o.x = x, o.scale = scale, o.bias = bias, o.mean = (float *)mean, o.var = (float *)var;
	pd_for_type(d->type, d->c, o);
}

PD_HOST void pd_norm_backward(const pd_bn_desc *d, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	const float *mean, const float *var, const float *scale, double *room)
{
	device::norm_backward o;

	o.d = d, o.to = dx, o.dscale = dscale, o.dbias = dbias, o.dy = dy, o.x = x, o.mean = (float *)mean,
	o.var = (float *)var;
	o.scale = scale, o.part = room;
	pd_for_type(d->type, d->c, o);
}

PD_HOST void pd_norm_variance(float *v, int c, float eps)
{
	PD_LAUNCH(device::variance, pd_blocks(c, 256), 256, 0, v, c, eps);
}

PD_HOST void pd_norm_inverse(float *to, const float *var, int c, float eps)
{
	PD_LAUNCH(device::inverse, pd_blocks(c, 256), 256, 0, to, var, c, eps);
}
