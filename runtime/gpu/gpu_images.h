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
	typedef pd_vec<T, V> bits;

	static __device__ __forceinline__ void open(float *to, const bits &b)
	{
		PD_UNROLL
		for (int i = 0; i < V; i++)
			to[i] = F::load(&b.v[i]);
	}

	static __device__ __forceinline__ void load(float *to, const T *from) { open(to, pd_read<V>(from)); }

	static __device__ __forceinline__ void store(T *to, const float *from)
	{
		bits b;

		PD_UNROLL
		for (int i = 0; i < V; i++)
			F::store(&b.v[i], from[i]);
		pd_write(to, b);
	}
};

/* Channels-last images as a matrix of `rows` points and c columns. A block of 256 threads has up to `wide` vectors of columns beside
 * each other and `tall` rows at a time, of one of the chunks of `per` rows; `groups` such blocks beside each other have all columns.
 * All of it depends on the shape alone, and so does the order of sums. */
struct columns {
	int64_t rows, per;
	int c, vectors, wide, tall, groups, chunks;
};

enum {
	COLUMN_THREADS = 256,
	AT_ONCE = 4,
	BESIDE = 16,
	BESIDE_ALONE = 64
}; /* the most vectors of a block, and those of one column */

/* What a thread has of them: its first column, its rows from `first` on, every tall-th, before `end`. */
struct strip {
	int column, chunk;
	int64_t top, first, end; /* top: first row of the chunk */
	bool inside;

	/* back: the last chunk is the first block's. What reads again what has just been read from front to back still finds the end of it
	 * in the cache, and what comes after this finds the front. */
	__device__ strip(const columns &m, int v, bool back = false)
	{
		const int turn = (int)(blockIdx.x / m.groups),
			  vector = (int)(blockIdx.x % m.groups) * m.wide + (int)threadIdx.x % m.wide;

		chunk = back ? m.chunks - 1 - turn : turn;
		column = vector * v;
		inside = vector < m.vectors;
		top = chunk * m.per;
		first = top + (int)threadIdx.x / m.wide;
		end = top + m.per < m.rows ? top + m.per : m.rows;
		if (!inside)
			end = first;
	}
};

/* S numbers of each column of a block: a thread makes those of a column, and each reads those of its own. */
template <int S, int V> struct column_numbers {
	float of[S][V > 1 ? BESIDE *V : BESIDE_ALONE];

	template <class Make> __device__ __forceinline__ void make(const columns &m, Make make)
	{
		const int t = (int)threadIdx.x, c = (int)(blockIdx.x % m.groups) * m.wide * V + t;

		if (t < m.wide * V && c < m.c) {
			float own[S];

			make(c, own);
			for (int s = 0; s < S; s++)
				of[s][t] = own[s];
		}
		__syncthreads();
	}

	__device__ __forceinline__ void load(float *to, const columns &m, int s) const
	{
		PD_UNROLL
		for (int i = 0; i < V; i++)
			to[i] = of[s][(int)threadIdx.x % m.wide * V + i];
	}
};

/* use(row, read(row)) for every tall-th row of [r, end), in that order; reads of N rows are under way at once: memory is far, and there
 * are few rows for a thread. */
template <int N, class Read, class Use>
static __device__ __forceinline__ void each_row(int64_t r, int64_t end, int tall, Read read, Use use)
{
	for (; r + (N - 1) * tall < end; r += N * tall) {
		decltype(read(r)) in[N];

		PD_UNROLL
		for (int k = 0; k < N; k++)
			in[k] = read(r + k * tall);
		PD_UNROLL
		for (int k = 0; k < N; k++)
			use(r + k * tall, in[k]);
	}
	for (; r < end; r += tall)
		use(r, read(r));
}

/* Sums over the rows of a block, S for each column: its threads add to those that they have, then `each` gets the column and its sums.
 * What a thread has lies V apart in turns of all threads: those beside each other meet in no bank. */
template <class T, int S, int V> struct column_sums {
	T of[S][V][COLUMN_THREADS];

	__device__ __forceinline__ void clear()
	{
		for (int s = 0; s < S; s++)
			for (int i = 0; i < V; i++)
				of[s][i][threadIdx.x] = 0;
	}

	__device__ __forceinline__ void add(int s, const float *more)
	{
		PD_UNROLL
		for (int i = 0; i < V; i++) {
			volatile T *own = &of[s][i][threadIdx.x]; /* else the compiler keeps them all in registers */

			*own = *own + (T)more[i];
		}
	}

	template <class Each> __device__ __forceinline__ void join(const columns &m, Each each)
	{
		__syncthreads();
		for (int j = threadIdx.x; j < m.wide * V; j += COLUMN_THREADS) {
			const int i = j / m.wide, beside = j % m.wide;
			const int vector = (int)(blockIdx.x % m.groups) * m.wide + beside;
			T all[S] = { 0 };

			for (int k = 0; vector < m.vectors && k < COLUMN_THREADS; k += m.wide)
				for (int s = 0; s < S; s++)
					all[s] += of[s][i][k + beside];
			if (vector < m.vectors)
				each(vector * V + i, all);
		}
	}
};

} // namespace device

/* v: columns of a vector, of which c is a multiple. A block reads 256 bytes of a row where c has as many: the more rows it has the fewer
 * sums of chunks there are to be added up. A chunk has at least 8 rows for a thread and 128 in all, and a multiple of those that a
 * thread reads at once. */
static inline device::columns pd_columns(int64_t rows, int c, int v)
{
	const int most_beside = v > 1 ? device::BESIDE : device::BESIDE_ALONE;
	device::columns m;

	m.rows = rows;
	m.c = c;
	m.vectors = c / v;
	for (m.wide = 1; m.wide < m.vectors && m.wide < most_beside; m.wide *= 2)
		;
	m.tall = device::COLUMN_THREADS / m.wide;
	m.groups = (m.vectors + m.wide - 1) / m.wide;
	const int64_t most = m.groups < 1024 ? 1024 / m.groups : 1, least = m.tall < 16 ? 128 : 8 * m.tall;
	const int64_t chunks = rows < least ? 1 : rows / least < most ? rows / least : most;
	const int64_t turn = device::AT_ONCE * m.tall;
	m.per = ((rows + chunks - 1) / chunks + turn - 1) / turn * turn;
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
