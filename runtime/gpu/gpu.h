/* gpu.h: what the kernels of a GPU program need. A kernel file compiles with nvcc, parses in libclang, and runs on the
 * CPU where PD_LAUNCH is defined by what stands in for the device. */
#ifndef GPU_H
#define GPU_H

#include "pd.h"

#define restrict __restrict__ /* C++ has no such word */

#if !defined PD_LAUNCH
#include <cuda_runtime.h>
/* A grid of `blocks` blocks of `threads` threads, `shared` bytes of shared memory a block; arguments of the kernel. Nothing
 * where there are no blocks: CUDA refuses that. */
#define PD_LAUNCH(kernel, blocks, threads, shared, ...) \
	do { \
		const unsigned pd_grid = (unsigned)(blocks); \
		if (pd_grid) { \
			kernel<<<pd_grid, (threads), (shared), pd_stream()>>>(__VA_ARGS__); \
			pd_launched(#kernel); \
		} \
	} while (0)
#endif
#if !defined PD_DYN_SHARED
#define PD_DYN_SHARED(type, name) extern __shared__ type name[]
#endif

#if defined __CUDACC__
#define PD_UNROLL _Pragma("unroll")
#else
#define PD_UNROLL
#endif

/* What the host calls. */
#define PD_HOST extern "C"

extern "C" cudaStream_t pd_stream(void);
extern "C" void pd_launched(const char *kernel); /* ends the program (R522) when it could not be started */
/* Device memory for n numbers that a launch leaves for the host, and the first of them once all is done. */
extern "C" double *pd_numbers(int n);
extern "C" double pd_number(const double *number);

/* y[q] = op(a[q]) op(b[q]) for `batch` matrices, row-major and without gaps; a matrix of a and the next are astep elements
 * apart, 0 for one and the same. y is [batch, m, n]; f32 is added up in f32. */
extern "C" void pd_gemm_batch(pd_dtype in, pd_dtype out, int transa, int transb, int m, int n, int k, const void *a,
	int lda, int64_t astep, const void *b, int ldb, int64_t bstep, void *y, int batch);

/* Nothing was updated yet since the program began. */
extern "C" bool pd_first_step(void);

/* Device memory that one call may use; the next call's is the same. */
extern "C" void *pd_room(size_t bytes);

/* N elements that lie side by side, read and written by instructions of 16 bytes; they begin at a multiple of their bytes, or of 16. */
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) pd_vec {
	T v[N];
};

template <int N, class T> static __device__ __forceinline__ pd_vec<T, N> pd_read(const T *from)
{
	return *(const pd_vec<T, N> *)(const void *)from;
}

/* Whether dropout keeps elements j to j + N - 1 of a row (pd_random_four), j a multiple of N and N 1, 4 or 8. */
template <int N>
static __device__ __forceinline__ pd_vec<uint8_t, N> pd_kept(
	uint64_t stream, uint64_t row, uint64_t width, uint64_t j, uint32_t dropped)
{
	const uint64_t place = pd_random_place(stream, pd_random_group(row, width, j));
	const int half = (int)(j % 16 / 8 * 2);
	pd_vec<uint8_t, N> kept;

	PD_UNROLL
	for (int u = 0; u < N; u += 2) {
		const uint64_t drawn = pd_mix(place + (uint64_t)(u / 2) * PD_RANDOM_STEP);

		kept.v[u] = pd_random_piece(drawn, half + (N == 1 ? (int)(j % 2) : 0)) >= dropped;
		if (u + 1 < N)
			kept.v[u + 1] = pd_random_piece(drawn, half + 1) >= dropped;
	}
	return kept;
}

/* pd_read where it stands: the compiler moves no such read behind another, nor to where its value is wanted. */
template <int N, class T> static __device__ __forceinline__ pd_vec<T, N> pd_read_now(const T *from)
{
#if defined __CUDA_ARCH__
	if constexpr (sizeof(pd_vec<T, N>) == 16) {
		uint32_t w[4];
		pd_vec<T, N> x;

		asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
			: "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
			: "l"(__cvta_generic_to_global(from)));
		memcpy(&x, w, sizeof x);
		return x;
	}
#endif
	return pd_read<N>(from);
}

/* 16 bytes as elements, as if they were new: what the compiler made of them before it makes again, and does not keep in more registers
 * than they have themselves. */
template <class T> static __device__ __forceinline__ pd_vec<T, 16 / sizeof(T)> pd_again(pd_vec<uint32_t, 4> words)
{
	pd_vec<T, 16 / sizeof(T)> x;

#if defined __CUDA_ARCH__
	PD_UNROLL
	for (int k = 0; k < 4; k++)
		asm volatile("" : "+r"(words.v[k]));
	memcpy(&x, &words, sizeof x);
#else
	__builtin_memcpy(&x, &words, sizeof x);
#endif
	return x;
}

template <class T, int N> static __device__ __forceinline__ void pd_write(T *to, const pd_vec<T, N> &x)
{
#if defined __CUDA_ARCH__
	if constexpr (sizeof x % 16 == 0) { /* of a struct the compiler may make a store for each element */
		PD_UNROLL
		for (unsigned k = 0; k < sizeof x / 16; k++) {
			uint32_t w[4];

			memcpy(w, (const char *)&x + 16 * k, sizeof w);
			asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
				:
				: "l"(__cvta_generic_to_global((char *)to + 16 * k)), "r"(w[0]), "r"(w[1]), "r"(w[2]),
				"r"(w[3])
				: "memory");
		}
		return;
	}
#endif
	*(pd_vec<T, N> *)(void *)to = x;
}

/* As many rows of pd_many as fit into the arguments of one launch (4 KB), of A operands each. A block has EACH elements of one of
 * them. */
template <int A> struct pd_pack {
	enum { MOST = 3840 / (8 * A + 20), EACH = 1024 };
	void *at[MOST][A];
	int64_t n[MOST];
	int of[MOST][2];
	unsigned first[MOST]; /* block of each */
	int rows;
};

/* Packs from `row` on, and tells the blocks of that launch; the rest begins at the result. */
template <int A>
static const pd_many *pd_pack_rows(pd_pack<A> *to, const pd_many *row, const pd_many *end, int64_t *blocks)
{
	*blocks = 0;
	to->rows = 0;
	for (; row < end && to->rows < pd_pack<A>::MOST; row++) {
		const int i = to->rows;

		if (row->n == 0)
			continue;
		memcpy(to->at[i], row->at, sizeof to->at[i]);
		memcpy(to->of[i], row->of, sizeof to->of[i]);
		to->n[i] = row->n;
		to->first[i] = (unsigned)*blocks;
		*blocks += (row->n + pd_pack<A>::EACH - 1) / pd_pack<A>::EACH;
		to->rows++;
	}
	return row;
}

/* The row of this block. */
template <int A> static __device__ __forceinline__ int pd_pack_row(const pd_pack<A> &p)
{
	int low = 0, high = p.rows - 1;

	while (low < high) {
		const int middle = (low + high + 1) / 2;

		if (p.first[middle] <= blockIdx.x)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* Launches a kernel until all of a table has been worked on; what it is started with names the pack of each time pd_part. */
#define PD_LAUNCH_ROWS(kernel, pack, table, count, ...) \
	for (const pd_many *pd_row = (table), *const pd_end = pd_row + (count); pd_row < pd_end;) { \
		pack pd_part; \
		int64_t pd_all; \
\
		pd_row = pd_pack_rows(&pd_part, pd_row, pd_end, &pd_all); \
		PD_LAUNCH(kernel, pd_all, 256, 0, __VA_ARGS__); \
	}

/* 2^x to 22 bits, and 0 below 2^-126. */
static __device__ __forceinline__ float pd_exp2(float x)
{
#if defined __CUDA_ARCH__
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#else
	return exp2f(x);
#endif
}

/* The power of two that numbers of 8 bits are times, of which the largest is `most` > 0: it comes to lie in [128, 256) or [2^14, 2^15). */
static __device__ __forceinline__ float pd_f8_scale(float most, pd_dtype to)
{
	const int exponent = (int)(pd_bits_of(most) >> 23) - (to == PD_F8E4M3 ? 7 : 14);

	return pd_float_of((uint32_t)(exponent > 1 ? exponent : 1) << 23);
}

static inline unsigned pd_blocks(int64_t n, int64_t per) { return (unsigned)((n + per - 1) / per); }

/* Sums and maxima over a block of up to 1024 threads, the same order every time; all threads get them. */
template <class T> static __device__ T pd_warp_sum(T v)
{
	for (int d = 16; d > 0; d /= 2)
		v += __shfl_xor_sync(0xffffffffu, v, d);
	return v;
}

template <class T> static __device__ T pd_warp_max(T v)
{
	for (int d = 16; d > 0; d /= 2) {
		const T w = __shfl_xor_sync(0xffffffffu, v, d);
		v = v < w ? w : v;
	}
	return v;
}

template <class T> static __device__ T pd_block_sum(T v)
{
	__shared__ T part[32];
	const int warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;

	v = pd_warp_sum(v);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		part[warp] = v;
	__syncthreads();
	v = 0;
	for (int i = 0; i < warps; i++)
		v += part[i];
	return v;
}

template <class T> static __device__ T pd_block_max(T v)
{
	__shared__ T part[32];
	const int warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;

	v = pd_warp_max(v);
	__syncthreads();
	if (threadIdx.x % 32 == 0)
		part[warp] = v;
	__syncthreads();
	v = part[0];
	for (int i = 1; i < warps; i++)
		v = v < part[i] ? part[i] : v;
	return v;
}

#endif
