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

enum { RUN = 64 };                                 /* rows of one sum in f32, a multiple of AT_ONCE */
enum { SETTLE_THREADS = 512, SETTLE_AT_ONCE = 4 }; /* threads of a block that joins chunks, and its channels */

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

/* The end of the run of rows that begins at r. */
static __device__ __forceinline__ int64_t run_of(int64_t r, int64_t end, int tall)
{
	const int64_t stop = r + (int64_t)RUN * tall;

	return stop < end ? stop : end;
}

static __device__ __forceinline__ double rows_of(const columns &m, int64_t chunk)
{
	const int64_t rest = m.rows - chunk * m.per;

	return (double)(rest < m.per ? rest : m.per);
}

/* part [chunks, 2, c]: a chunk's mean of each channel, and its sum of squares of the distances from it. They are added up as distances
 * from the chunk's first row: however far from 0 the mean is, no more cancels than that one row is away from it. */
template <class F, int V>
static __global__ void __launch_bounds__(COLUMN_THREADS, 4)
	statistics(double *part, const typename F::T *restrict x, const columns m)
{
	__shared__ column_sums<double, 2, V> sums;
	const strip at(m, V);
	float from[V] = { 0 };

	sums.clear();
	if (at.inside)
		vector<F, V>::load(from, x + at.top * m.c + at.column);
	for (int64_t r = at.first, stop; r < at.end; r += (int64_t)RUN * m.tall) {
		float s[V] = { 0 }, q[V] = { 0 };

		stop = run_of(r, at.end, m.tall);
		each_row<AT_ONCE>(
			r, stop, m.tall, [&](int64_t row) { return pd_read_now<V>(x + row * m.c + at.column); },
			[&](int64_t, const pd_vec<typename F::T, V> &in) {
				float v[V];

				vector<F, V>::open(v, in);
				PD_UNROLL
				for (int i = 0; i < V; i++) {
					const float d = v[i] - from[i];

					s[i] += d;
					q[i] += d * d;
				}
			});
		sums.add(0, s);
		sums.add(1, q);
	}
	sums.join(m, [&](int c, const double *all) {
		const double n = rows_of(m, at.chunk), own = all[0] / n;
		double *to = part + (int64_t)at.chunk * 2 * m.c + c;

		to[0] = (double)F::load(x + at.top * m.c + c) + own;
		to[m.c] = all[1] - own * all[0];
	});
}

/* Adds up what `part` has of the chunks for SETTLE_AT_ONCE channels a block; the first thread of a channel gets both sums. use(chunk,
 * numbers of the two) is what a chunk adds to them. Four chunks are read at once: there are few blocks. */
template <class Use>
static __device__ __forceinline__ void settle(double *a, double *b, const double *part, const columns &m, Use use)
{
	__shared__ double sum[2][SETTLE_THREADS];
	const int t = (int)threadIdx.x, c = (int)blockIdx.x * SETTLE_AT_ONCE + t % SETTLE_AT_ONCE;

	for (int k = t / SETTLE_AT_ONCE; c < m.c && k < m.chunks; k += 4 * (SETTLE_THREADS / SETTLE_AT_ONCE)) {
		double in[4][2];

		PD_UNROLL
		for (int u = 0; u < 4; u++) {
			const int chunk = k + u * (SETTLE_THREADS / SETTLE_AT_ONCE);
			const double *from = part + (int64_t)(chunk < m.chunks ? chunk : k) * 2 * m.c + c;

			in[u][0] = from[0];
			in[u][1] = from[m.c];
		}
		PD_UNROLL
		for (int u = 0; u < 4; u++)
			if (k + u * (SETTLE_THREADS / SETTLE_AT_ONCE) < m.chunks)
				use(k + u * (SETTLE_THREADS / SETTLE_AT_ONCE), in[u]);
	}
	sum[0][t] = *a;
	sum[1][t] = *b;
	for (int k = SETTLE_THREADS / 2; k >= SETTLE_AT_ONCE; k /= 2) {
		__syncthreads();
		if (t < k) {
			sum[0][t] += sum[0][t + k];
			sum[1][t] += sum[1][t + k];
		}
	}
	*a = sum[0][t];
	*b = sum[1][t];
}

static __global__ void __launch_bounds__(SETTLE_THREADS)
	settle_statistics(float *mean, float *var, const double *restrict part, const columns m)
{
	const int c = (int)blockIdx.x * SETTLE_AT_ONCE + (int)threadIdx.x % SETTLE_AT_ONCE;
	const double from = c < m.c ? part[c] : 0; /* all are added up as distances from the first chunk's mean */
	const double whole = rows_of(m, 0), last = rows_of(m, m.chunks - 1);
	double s = 0, q = 0;

	settle(&s, &q, part, m, [&](int chunk, const double *in) {
		const double n = chunk < m.chunks - 1 ? whole : last, d = in[0] - from;

		s += n * d;
		q += in[1] + n * d * d;
	});
	if (c < m.c && threadIdx.x < SETTLE_AT_ONCE) {
		const double own = s / (double)m.rows, v = q / (double)m.rows - own * own;

		mean[c] = (float)(from + own);
		var[c] = v < 0 ? 0 : (float)v;
	}
}

/* Two values of a row: x and what is added to it, or dy and x. */
template <class F, int V> struct pair {
	pd_vec<typename F::T, V> a, b;
};

/* What is behind the normalization: nothing, a Relu, or a sum and a Relu. */
enum { PLAIN, RELU, SUM_RELU };

template <class F, int V, int END>
static __global__ void __launch_bounds__(COLUMN_THREADS)
	apply(typename F::T *restrict y, const typename F::T *restrict x, const typename F::T *restrict more,
		const float *scale, const float *bias, const float *mean, const float *var, const columns m, float eps)
{
	__shared__ column_numbers<3, V> numbers;
	const strip at(m, V, true);
	float by[V], from[V], plus[V];

	numbers.make(m, [&](int c, float *own) {
		const float by = scale[c], v = var[c];

		own[1] = mean[c];
		own[2] = bias[c];
		own[0] = by / sqrtf(v + eps);
	});
	numbers.load(by, m, 0);
	numbers.load(from, m, 1);
	numbers.load(plus, m, 2);
	each_row<END == SUM_RELU ? AT_ONCE / 2 : AT_ONCE>(
		at.first, at.end, m.tall,
		[&](int64_t row) {
			const int64_t i = row * m.c + at.column;

			return pair<F, V>{ pd_read_now<V>(x + i),
				END == SUM_RELU ? pd_read_now<V>(more + i) : pd_vec<typename F::T, V>{} };
		},
		[&](int64_t row, const pair<F, V> &in) {
			float v[V], w[V] = { 0 };

			vector<F, V>::open(v, in.a);
			if (END == SUM_RELU)
				vector<F, V>::open(w, in.b);
			PD_UNROLL
			for (int i = 0; i < V; i++) {
				v[i] = (v[i] - from[i]) * by[i] + plus[i];
				if (END == SUM_RELU)
					v[i] += w[i];
				if (END != PLAIN)
					v[i] = v[i] < 0 ? 0 : v[i];
			}
			vector<F, V>::store(y + row * m.c + at.column, v);
		});
}

/* part [chunks, 2, c]: a chunk's sums of dy (x - mean) / deviation, and of dy. Behind a Relu dy is 0 where that let nothing through,
 * which x says as it did in the forward. */
template <class F, int V, int END>
static __global__ void __launch_bounds__(COLUMN_THREADS, 3)
	gradients(double *part, const typename F::T *restrict dy, const typename F::T *restrict x, const float *mean,
		const float *var, const float *scale, const float *bias, const columns m, float eps)
{
	__shared__ column_sums<double, 2, V> sums;
	const strip at(m, V);
	float from[V], by[V], plus[V];

	sums.clear();
	PD_UNROLL
	for (int i = 0; i < V; i++) {
		from[i] = at.inside ? mean[at.column + i] : 0;
		by[i] = END == RELU && at.inside ? scale[at.column + i] / sqrtf(var[at.column + i] + eps) : 0;
		plus[i] = END == RELU && at.inside ? bias[at.column + i] : 0;
	}
	for (int64_t r = at.first, stop; r < at.end; r += (int64_t)RUN * m.tall) {
		float p[V] = { 0 }, s[V] = { 0 };

		stop = run_of(r, at.end, m.tall);
		each_row<AT_ONCE / 2>(
			r, stop, m.tall,
			[&](int64_t row) {
				const int64_t i = row * m.c + at.column;

				return pair<F, V>{ pd_read_now<V>(dy + i), pd_read_now<V>(x + i) };
			},
			[&](int64_t, const pair<F, V> &in) {
				float g[V], v[V];

				vector<F, V>::open(g, in.a);
				vector<F, V>::open(v, in.b);
				PD_UNROLL
				for (int i = 0; i < V; i++) {
					if (END == RELU && !((v[i] - from[i]) * by[i] + plus[i] > 0))
						g[i] = 0;
					p[i] += g[i] * (v[i] - from[i]);
					s[i] += g[i];
				}
			});
		sums.add(0, p);
		sums.add(1, s);
	}
	sums.join(m, [&](int c, const double *all) {
		double *to = part + (int64_t)at.chunk * 2 * m.c + c;

		to[0] = all[0] * (double)(1 / sqrtf(var[c] + eps));
		to[m.c] = all[1];
	});
}

static __global__ void __launch_bounds__(SETTLE_THREADS)
	settle_gradients(float *dscale, float *dbias, const double *restrict part, const columns m)
{
	const int c = (int)blockIdx.x * SETTLE_AT_ONCE + (int)threadIdx.x % SETTLE_AT_ONCE;
	double p = 0, s = 0;

	settle(&p, &s, part, m, [&](int, const double *in) {
		p += in[0];
		s += in[1];
	});
	if (c < m.c && threadIdx.x < SETTLE_AT_ONCE) {
		dscale[c] = (float)p;
		dbias[c] = (float)s;
	}
}

template <class F, int V, int END>
static __global__ void __launch_bounds__(COLUMN_THREADS, 3) data_gradient(typename F::T *restrict dx,
	const float *dscale, const float *dbias, const typename F::T *restrict dy, const typename F::T *restrict x,
	const float *mean, const float *var, const float *scale, const float *bias, const columns m, float eps)
{
	__shared__ column_numbers<5, V> numbers;
	const strip at(m, V, true);
	const float share = 1 / (float)m.rows;
	float from[V], by[V], slope[V], shift[V], plus[V];

	numbers.make(m, [&](int c, float *own) {
		const float by = scale[c], p = dscale[c] * share, s = dbias[c] * share, deviation = sqrtf(var[c] + eps);

		own[0] = mean[c];
		own[1] = by / deviation; /* as in the forward, to the bit */
		own[2] = p / deviation;
		own[3] = s;
		own[4] = END == RELU ? bias[c] : 0;
	});
	numbers.load(from, m, 0);
	numbers.load(by, m, 1);
	numbers.load(slope, m, 2);
	numbers.load(shift, m, 3);
	numbers.load(plus, m, 4);
	each_row<AT_ONCE / 2>(
		at.first, at.end, m.tall,
		[&](int64_t row) {
			const int64_t i = row * m.c + at.column;

			return pair<F, V>{ pd_read_now<V>(dy + i), pd_read_now<V>(x + i) };
		},
		[&](int64_t row, const pair<F, V> &in) {
			float g[V], v[V];

			vector<F, V>::open(g, in.a);
			vector<F, V>::open(v, in.b);
			PD_UNROLL
			for (int i = 0; i < V; i++) {
				if (END == RELU && !((v[i] - from[i]) * by[i] + plus[i] > 0))
					g[i] = 0;
				g[i] = by[i] * (g[i] - shift[i] - (v[i] - from[i]) * slope[i]);
			}
			vector<F, V>::store(dx + row * m.c + at.column, g);
		});
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
	const void *x, *dy, *more;
	const float *scale, *bias;
	float *mean, *var; /* of a backward: read */
	float *dscale, *dbias;
	double *part;

	int inner() const { return d->sp[0] * d->sp[1] * d->sp[2]; }

	columns matrix(int v) const { return pd_columns((int64_t)d->n * inner(), d->c, v); }

	template <class F, int V, int END> void applied(const columns &m) const
	{
		typedef typename F::T T;

		PD_LAUNCH((device::apply<F, V, END>), m.groups * m.chunks, COLUMN_THREADS, 0, (T *)to, (const T *)x,
			(const T *)more, scale, bias, mean, var, m, d->eps);
	}

	template <class F, int V> void ended(const columns &m) const
	{
		if (more)
			applied<F, V, SUM_RELU>(m);
		else if (d->relu)
			applied<F, V, RELU>(m);
		else
			applied<F, V, PLAIN>(m);
	}
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
		PD_LAUNCH((device::statistics<F, V>), m.groups * m.chunks, COLUMN_THREADS, 0, part, (const T *)x, m);
		PD_LAUNCH(device::settle_statistics, pd_blocks(m.c, SETTLE_AT_ONCE), SETTLE_THREADS, 0, mean, var, part,
			m);
		ended<F, V>(m);
	}
};

struct norm_evaluate : norm {
	template <class F, int V> void run()
	{
		typedef typename F::T T;
		const columns m = matrix(V);

		if (d->nhwc)
			ended<F, V>(m);
		else
			PD_LAUNCH(device::evaluate<F>, (unsigned)d->c, 512, 0, (T *)to, (const T *)x, scale, bias, mean,
				var, d->n, d->c, inner(), d->eps);
	}
};

struct norm_backward : norm {
	template <class F, int V, int END> void columns_of(const columns &m)
	{
		typedef typename F::T T;

		PD_LAUNCH((device::gradients<F, V, END>), m.groups * m.chunks, COLUMN_THREADS, 0, part, (const T *)dy,
			(const T *)x, mean, var, scale, bias, m, d->eps);
		PD_LAUNCH(device::settle_gradients, pd_blocks(m.c, SETTLE_AT_ONCE), SETTLE_THREADS, 0, dscale, dbias,
			part, m);
		PD_LAUNCH((device::data_gradient<F, V, END>), m.groups * m.chunks, COLUMN_THREADS, 0, (T *)to, dscale,
			dbias, (const T *)dy, (const T *)x, mean, var, scale, bias, m, d->eps);
	}

	template <class F, int V> void run()
	{
		typedef typename F::T T;
		const columns m = matrix(V);

		if (!d->nhwc) {
			PD_LAUNCH(device::backward<F>, (unsigned)d->c, 512, 0, (T *)to, dscale, dbias, (const T *)dy,
				(const T *)x, mean, var, scale, d->n, d->c, inner(), d->eps);
			return;
		}
		if (bias)
			columns_of<F, V, RELU>(m);
		else
			columns_of<F, V, PLAIN>(m);
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
	const float *bias, const void *more, double *room)
{
	device::norm_forward o;

	o.d = d, o.to = y, o.x = x, o.more = more, o.scale = scale, o.bias = bias, o.mean = mean, o.var = var,
	o.part = room;
	pd_for_type(d->type, d->c, o);
}

PD_HOST void pd_norm_evaluate(const pd_bn_desc *d, void *y, const void *x, const float *scale, const float *bias,
	const float *mean, const float *var, const void *more)
{
	device::norm_evaluate o;

	o.d = d, o.to = y, o.x = x, o.more = more, o.scale = scale, o.bias = bias, o.mean = (float *)mean,
	o.var = (float *)var;
	pd_for_type(d->type, d->c, o);
}

PD_HOST void pd_norm_backward(const pd_bn_desc *d, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	const float *mean, const float *var, const float *scale, const float *bias, double *room)
{
	device::norm_backward o;

	o.d = d, o.to = dx, o.dscale = dscale, o.dbias = dbias, o.dy = dy, o.x = x, o.mean = (float *)mean,
	o.var = (float *)var;
	o.scale = scale, o.bias = bias, o.part = room;
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
