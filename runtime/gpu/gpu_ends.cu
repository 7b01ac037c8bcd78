/* gpu_ends.cu: what pd_product_run does behind a product for which the library has no epilogue: bias, activation or the
 * derivative of one, in place; sums of rows. The same of images, by channels, where cuDNN does not take their type. */
#include "gpu_images.h"

namespace device
{

/* x s(u) and its derivative, s the sigmoid, u = x (k + m x x): 0.5 x (1 + tanh(u / 2)) */
static __device__ float gelu(float x, float *slope)
{
	const float k = 1.5957691216057308f, m = 0.07135481627260025f;
	const float s = 1 / (1 + expf(-x * (k + m * x * x)));

	*slope = s + x * s * (1 - s) * (k + 3 * m * x * x);
	return x * s;
}

/* Eight elements of a row: one byte of the bits that are kept. */
template <class F>
static __global__ void end_of(
	typename F::T *y, void *also, const typename F::T *bias, const void *kept, int m, int n, int what, int keep)
{
	const int wide = (n + 127) / 128 * 16, all = keep && what == PD_RELU ? wide : (n + 7) / 8;
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	const int64_t row = e / all;
	const int byte = (int)(e % all);
	unsigned bits = what == PD_RELU_GRAD && row < m ? ((const uint8_t *)kept)[row * wide + byte] : 0;

	if (row >= m)
		return;
	for (int i = 0; i < 8 && byte * 8 + i < n; i++) {
		const int j = byte * 8 + i;
		const int64_t at = row * n + j;
		float v = F::load(y + at) + (bias ? F::load(bias + j) : 0), slope;

		if (what == PD_RELU_GRAD)
			v = bits >> i & 1 ? v : 0;
		if (what == PD_GELU_GRAD) {
			gelu(F::load((const typename F::T *)kept + at), &slope);
			v *= slope;
		}
		if (what == PD_RELU) {
			bits |= (unsigned)(v > 0) << i;
			v = v > 0 ? v : 0;
		}
		if (what == PD_GELU) {
			if (keep)
				F::store((typename F::T *)also + at, v);
			v = gelu(v, &slope);
		}
		F::store(y + at, v);
	}
	if (keep && what == PD_RELU)
		((uint8_t *)also)[row * wide + byte] = (uint8_t)bits;
}

/* Sums of k rows of n, a block per 32 columns and share of the rows, which its warps share in turn. */
template <class F, class G>
static __global__ void sum_rows(typename G::T *sum, const typename F::T *x, int k, int n, int shares)
{
	__shared__ float part[32][32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, share = blockIdx.x % shares,
		  j = blockIdx.x / shares * 32 + lane;
	float s = 0;

	for (int64_t i = 32 * share + warp; j < n && i < k; i += 32 * shares)
		s += F::load(x + i * n + j);
	part[warp][lane] = s;
	__syncthreads();
	if (warp != 0 || j >= n)
		return;
	for (int w = 1; w < 32; w++)
		s += part[w][lane];
	G::store(sum + (int64_t)share * n + j, s);
}

template <class G> static __global__ void join_rows(typename G::T *sum, const float *part, int n, int shares)
{
	const int j = blockIdx.x * blockDim.x + threadIdx.x;
	float s = 0;

	for (int k = 0; j < n && k < shares; k++)
		s += part[(int64_t)k * n + j];
	if (j < n)
		G::store(sum + j, s);
}

/* A block per 1024 points of a channel of an image. */
template <class F>
static __global__ void end_of_images(typename F::T *y, const typename F::T *bias, int relu, int c, int64_t points)
{
	const int64_t plane = (int64_t)blockIdx.x / ((points + 1023) / 1024),
		      first = (int64_t)blockIdx.x % ((points + 1023) / 1024) * 1024;
	const float b = bias ? F::load(bias + plane % c) : 0;

	for (int64_t i = first + threadIdx.x; i < points && i < first + 1024; i += blockDim.x) {
		const float v = F::load(y + plane * points + i) + b;

		F::store(y + plane * points + i, relu && !(v > 0) ? 0 : v);
	}
}

/* A block per channel. */
template <class F>
static __global__ void sum_images(typename F::T *sum, const typename F::T *y, int64_t n, int c, int64_t points)
{
	float s = 0;

	for (int64_t i = threadIdx.x; i < n * points; i += blockDim.x)
		s += F::load(y + (i / points * c + blockIdx.x) * points + i % points);
	s = pd_block_sum(s);
	if (threadIdx.x == 0)
		F::store(sum + blockIdx.x, s);
}

template <class F, int V>
static __global__ void __launch_bounds__(COLUMN_THREADS)
	end_of_points(typename F::T *y, const typename F::T *bias, int relu, const columns m)
{
	const strip at(m, V, true);
	float b[V] = { 0 };

	if (!at.inside)
		return;
	for (int i = 0; bias && i < V; i++)
		b[i] = F::load(bias + at.column + i);
	each_row<AT_ONCE>(
		at.first, at.end, m.tall, [&](int64_t row) { return pd_read_now<V>(y + row * m.c + at.column); },
		[&](int64_t row, const pd_vec<typename F::T, V> &in) {
			float v[V];

			vector<F, V>::open(v, in);
			PD_UNROLL
			for (int i = 0; i < V; i++)
				v[i] = relu && !(v[i] + b[i] > 0) ? 0 : v[i] + b[i];
			vector<F, V>::store(y + row * m.c + at.column, v);
		});
}

/* part [chunks, c] */
template <class F, int V>
static __global__ void __launch_bounds__(COLUMN_THREADS)
	sum_points(float *part, const typename F::T *restrict y, const columns m)
{
	__shared__ column_sums<float, 1, V> sums;
	const strip at(m, V);
	float s[V] = { 0 };

	each_row<AT_ONCE>(
		at.first, at.end, m.tall, [&](int64_t row) { return pd_read_now<V>(y + row * m.c + at.column); },
		[&](int64_t, const pd_vec<typename F::T, V> &in) {
			float v[V];

			vector<F, V>::open(v, in);
			PD_UNROLL
			for (int i = 0; i < V; i++)
				s[i] += v[i];
		});
	sums.clear();
	sums.add(0, s);
	sums.join(m, [&](int c, const float *all) { part[(int64_t)at.chunk * m.c + c] = all[0]; });
}

/* A warp per channel. */
template <class F> static __global__ void sum_chunks(typename F::T *sum, const float *part, int chunks, int c)
{
	const int k = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
	float s = 0;

	for (int i = (int)threadIdx.x % 32; k < c && i < chunks; i += 32)
		s += part[(int64_t)i * c + k];
	s = pd_warp_sum(s);
	if (k < c && threadIdx.x % 32 == 0)
		F::store(sum + k, s);
}

/* What the host starts of channels-last images. */
struct points_end {
	void *y;
	const void *bias;
	int relu, c;
	int64_t rows;

	template <class F, int V> void run()
	{
		typedef typename F::T T;
		const columns m = pd_columns(rows, c, V);

		PD_LAUNCH((device::end_of_points<F, V>), m.groups * m.chunks, COLUMN_THREADS, 0, (T *)y,
			(const T *)bias, relu, m);
	}
};

struct points_sum {
	void *sum;
	const void *y;
	float *part;
	size_t *room; /* not NULL: only that is asked for */
	int c;
	int64_t rows;

	template <class F, int V> void run()
	{
		typedef typename F::T T;
		const columns m = pd_columns(rows, c, V);

		if (room) {
			*room = (size_t)m.chunks * (size_t)c * sizeof(float);
			return;
		}
		PD_LAUNCH((device::sum_points<F, V>), m.groups * m.chunks, COLUMN_THREADS, 0, part, (const T *)y, m);
		PD_LAUNCH(device::sum_chunks<F>, pd_blocks(c, 8), 256, 0, (T *)sum, part, m.chunks, c);
	}
};

} // namespace device

template <class F> static void start_images(void *y, const void *bias, int relu, int64_t n, int c, int64_t points)
{
	typedef typename F::T T;

	PD_LAUNCH(device::end_of_images<F>, pd_blocks(n * c * ((points + 1023) / 1024), 1), 256, 0, (T *)y,
		(const T *)bias, relu, c, points);
}

PD_HOST void pd_end_of_images(
	pd_dtype t, void *y, const void *bias, int relu, int64_t n, int c, int64_t points, bool nhwc)
{
	if (nhwc)
		pd_for_type(t, c, device::points_end{ y, bias, relu, c, n * points });
	else if (t == PD_BF16)
		start_images<device::bf16>(y, bias, relu, n, c, points);
	else if (t == PD_F16)
		start_images<device::f16>(y, bias, relu, n, c, points);
	else
		start_images<device::f32>(y, bias, relu, n, c, points);
}

template <class F> static void start_sum_images(void *sum, const void *y, int64_t n, int c, int64_t points)
{
	typedef typename F::T T;

	PD_LAUNCH(device::sum_images<F>, (unsigned)c, 256, 0, (T *)sum, (const T *)y, n, c, points);
}

PD_HOST size_t pd_sum_images_room(pd_dtype t, int64_t n, int c, int64_t points, bool nhwc)
{
	size_t bytes = 0;

	if (nhwc)
		pd_for_type(t, c, device::points_sum{ nullptr, nullptr, nullptr, &bytes, c, n * points });
	return bytes;
}

PD_HOST void pd_sum_images(
	pd_dtype t, void *sum, const void *y, int64_t n, int c, int64_t points, bool nhwc, float *room)
{
	if (nhwc)
		pd_for_type(t, c, device::points_sum{ sum, y, room, nullptr, c, n * points });
	else if (t == PD_BF16)
		start_sum_images<device::bf16>(sum, y, n, c, points);
	else if (t == PD_F16)
		start_sum_images<device::f16>(sum, y, n, c, points);
	else
		start_sum_images<device::f32>(sum, y, n, c, points);
}

template <class F>
static void start_end(const pd_product_desc *d, void *y, void *also, const void *bias, const void *kept)
{
	typedef typename F::T T;
	const int64_t all = d->keep && d->end == PD_RELU ? (d->n + 127) / 128 * 16 : (d->n + 7) / 8;

	PD_LAUNCH(device::end_of<F>, pd_blocks(d->m * all, 256), 256, 0, (T *)y, also, (const T *)bias, kept, d->m,
		d->n, (int)d->end, d->keep);
}

PD_HOST void pd_end_of(const pd_product_desc *d, void *y, void *also, const void *bias, const void *kept)
{
	if (d->out == PD_BF16)
		start_end<device::bf16>(d, y, also, bias, kept);
	else if (d->out == PD_F16)
		start_end<device::f16>(d, y, also, bias, kept);
	else
		start_end<device::f32>(d, y, also, bias, kept);
}

/* Where columns are few for 132 multiprocessors, which have two such blocks each, of at least 256 rows. */
static int shares_of(int k, int n)
{
	const int across = (n + 31) / 32, most = k / 256, shares = across ? 264 / across : 1;

	return shares < 2 || most < 2 ? 1 : shares < most ? shares : most;
}

PD_HOST size_t pd_sum_rows_room(int k, int n)
{
	const int shares = shares_of(k, n);

	return shares > 1 ? (size_t)shares * (size_t)n * sizeof(float) : 0;
}

template <class F, class G> static void start_sum(void *sum, const void *x, int k, int n)
{
	const int shares = shares_of(k, n);
	const typename F::T *from = (const typename F::T *)x;

	if (shares == 1) {
		PD_LAUNCH((device::sum_rows<F, G>), pd_blocks(n, 32), 1024, 0, (typename G::T *)sum, from, k, n, 1);
		return;
	}
	float *part = (float *)pd_room(pd_sum_rows_room(k, n));

	PD_LAUNCH((device::sum_rows<F, device::f32>), pd_blocks(n, 32) * shares, 1024, 0, part, from, k, n, shares);
	PD_LAUNCH(device::join_rows<G>, pd_blocks(n, 64), 64, 0, (typename G::T *)sum, (const float *)part, n, shares);
}

PD_HOST void pd_sum_rows(pd_dtype in, pd_dtype out, void *sum, const void *x, int k, int n)
{
	if (out == PD_BF16)
		start_sum<device::bf16, device::bf16>(sum, x, k, n);
	else if (out == PD_F16)
		start_sum<device::f16, device::f16>(sum, x, k, n);
	else if (in == PD_BF16)
		start_sum<device::bf16, device::f32>(sum, x, k, n);
	else if (in == PD_F16)
		start_sum<device::f16, device::f32>(sum, x, k, n);
	else
		start_sum<device::f32, device::f32>(sum, x, k, n);
}
