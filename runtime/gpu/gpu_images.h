/* gpu_images.h: what kernels of the runtime need to read images: elements of a tensor's type, and channels-last images as
 * columns. For .cu files. */
#ifndef GPU_IMAGES_H
#define GPU_IMAGES_H

#include "gpu.h"

namespace device
{

/* How an element lies in memory, and to and from the f32 that is computed in. */
struct f32 {
	typedef float T;
	static __device__ float load(const T *x) { return *x; }
	static __device__ void store(T *x, float v) { *x = v; }
};
struct bf16 {
	typedef uint16_t T;
	static __device__ float load(const T *x) { return pd_from_bf16(*x); }
	static __device__ void store(T *x, float v) { *x = pd_to_bf16(v); }
};
struct f16 {
	typedef uint16_t T;
	static __device__ float load(const T *x) { return pd_from_f16(*x); }
	static __device__ void store(T *x, float v) { *x = pd_to_f16(v); }
};

/* V elements at once, which lie at a multiple of their size. */
template <class F, int V> struct vector {
	typedef typename F::T T;
	struct alignas(V * sizeof(T)) bits {
		T of[V];
	};

	static __device__ void load(float *to, const T *from)
	{
		const bits b = *(const bits *)from;

		for (int i = 0; i < V; i++)
			to[i] = F::load(&b.of[i]);
	}

	static __device__ void store(T *to, const float *from)
	{
		bits b;

		for (int i = 0; i < V; i++)
			F::store(&b.of[i], from[i]);
		*(bits *)to = b;
	}
};

/* Channels-last images as a matrix of `rows` points and c columns. A block of 256 threads has up to `wide` vectors of columns beside
 * each other and `tall` rows at a time, of one of the chunks of `per` rows; `groups` such blocks beside each other have all columns.
 * All of it depends on the shape alone, and so does the order of sums. */
struct columns {
	int64_t rows, per;
	int c, vectors, wide, tall, groups, chunks;
};

/* What a thread has of them: its first column, its rows from `first` on, every tall-th, before `end`. */
struct strip {
	int column, beside; /* beside: its vector within the block */
	int below;          /* its row within the block */
	int64_t first, end;
	bool inside;

	__device__ strip(const columns &m, int v)
	{
		const int chunk = (int)(blockIdx.x / m.groups),
			  vector = (int)(blockIdx.x % m.groups) * m.wide + (int)threadIdx.x % m.wide;

		beside = (int)threadIdx.x % m.wide;
		below = (int)threadIdx.x / m.wide;
		column = vector * v;
		inside = vector < m.vectors;
		first = chunk * m.per + below;
		end = (chunk + 1) * m.per < m.rows ? (chunk + 1) * m.per : m.rows;
	}
};

} // namespace device

enum { PD_COLUMN_THREADS = 256 };

/* v: columns of a vector, of which c is a multiple. */
static inline device::columns pd_columns(int64_t rows, int c, int v)
{
	device::columns m;

	m.rows = rows;
	m.c = c;
	m.vectors = c / v;
	for (m.wide = 1; m.wide < m.vectors && m.wide < 64; m.wide *= 2)
		;
	m.tall = PD_COLUMN_THREADS / m.wide;
	m.groups = (m.vectors + m.wide - 1) / m.wide;
	const int64_t most = m.groups < 1024 ? 1024 / m.groups : 1, some = rows / (16 * m.tall);
	const int64_t chunks = some < 1 ? 1 : some < most ? some : most;
	m.per = (rows + chunks - 1) / chunks;
	m.chunks = (int)(m.per ? (rows + m.per - 1) / m.per : 0);
	return m;
}

/* f.template run<F, V>() for images of type t whose c channels are read in vectors of V, 16 bytes where c allows it. */
template <class G> static void pd_for_type(pd_dtype t, int c, G f)
{
	if (t == PD_BF16)
		c % 8 ? f.template run<device::bf16, 1>() : f.template run<device::bf16, 8>();
	else if (t == PD_F16)
		c % 8 ? f.template run<device::f16, 1>() : f.template run<device::f16, 8>();
	else
		c % 4 ? f.template run<device::f32, 1>() : f.template run<device::f32, 4>();
}

#endif
