/* gpu_tiles.h: products of small matrices that lie in shared memory, one warp each: c[16][8 N], in registers, is added to.
 * 16-bit floats are multiplied by tensor cores (mma.m16n8k16, sm_80 and newer), f32 by ordinary products. Sums are f32.
 *
 * Lane l has of block n of 8 columns the elements
 *     c[n][e] = row l / 4 + 8 (e / 2), column 8 n + 2 (l % 4) + e % 2
 * but what pd_tile_nn makes of f32 has columns of its own: pd_f32s::column. Matrices in shared memory have rows of COLS +
 * PAD elements, so that the eight rows that a read touches lie in different banks. */
#ifndef GPU_TILES_H
#define GPU_TILES_H

#include "gpu.h"

#if defined __CUDACC__
#define PD_ROLLED _Pragma("unroll 1")
#else
#define PD_ROLLED
#endif

struct alignas(16) pd_16 {
	uint32_t w[4];
}; /* 16 bytes at once */

#if defined __CUDA_ARCH__ && __CUDA_ARCH__ < 800
#define PD_NEEDS_SM80(K) static_assert(!K::HALF, "attention in 16 bits is for sm_80 and newer")
#else
#define PD_NEEDS_SM80(K)
#endif

/* Where there are no tensor cores, what stands in for the device defines PD_MMA and PD_MATRICES. */
#if !defined PD_MMA
/* r: of four 8 x 8 matrices the elements 2 (l % 4), + 1 of row l / 4, or, TRANSPOSED, of column l / 4. Lane l tells where row l % 8
 * of matrix l / 8 is. */
template <int TRANSPOSED> static __device__ __forceinline__ void pd_matrices(uint32_t (&r)[4], const uint16_t *row)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
	const unsigned at = (unsigned)__cvta_generic_to_shared(row);

	if (TRANSPOSED)
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
			: "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
			: "r"(at)
			: "memory");
	else
		asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
			: "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
			: "r"(at)
			: "memory");
#else
	(void)r, (void)row;
#endif
}
#define PD_MATRICES(transposed, r, row) pd_matrices<transposed>(r, row)
#define PD_MMA(KIND, c, a, b0, b1) KIND::multiply(c, a, b0, b1)
#endif

/* x C in three multiplications with nothing to be added up behind them, where the compiler would make more. */
template <uint64_t C> static __device__ __forceinline__ uint64_t pd_times(uint64_t x)
{
#if defined __CUDA_ARCH__
	uint32_t low, high;

	asm("{\n\t.reg .u32 l, h;\n\t.reg .u64 w;\n\t"
	    "mov.b64 {l, h}, %2;\n\tmul.wide.u32 w, l, %3;\n\tmov.b64 {%0, %1}, w;\n\t"
	    "mad.lo.u32 %1, l, %4, %1;\n\tmad.lo.u32 %1, h, %3, %1;\n\t}"
		: "=r"(low), "=r"(high)
		: "l"(x), "n"((uint32_t)C), "n"((uint32_t)(C >> 32)));
	return (uint64_t)high << 32 | low;
#else
	return x * C;
#endif
}

/* Of the two numbers of 15 bits in the halves of w (bit 15 is not theirs): ones in the halves of those that are LEAST or more; a, of the lower,
 * and b as they are or, where it is less, 0. As 16-bit floats they have the same order, but for NaNs, which come last as integers: they compare
 * so with `geu`. */
template <uint32_t LEAST> static __device__ __forceinline__ uint32_t pd_least_two(uint32_t w)
{
	static_assert(LEAST <= 0x7c00, "a limit that is a number, as a float too");
#if defined __CUDA_ARCH__
	uint32_t ones;

	asm("{\n\t.reg .b32 n;\n\tabs.f16x2 n, %1;\n\tset.geu.u32.f16x2 %0, n, %2;\n\t}"
		: "=r"(ones)
		: "r"(w), "r"(LEAST * 0x10001u));
	return ones;
#else
	return ((w & 0x7fff) >= LEAST ? 0xffffu : 0) | ((w >> 16 & 0x7fff) >= LEAST ? 0xffff0000u : 0);
#endif
}

template <uint32_t LEAST> static __device__ __forceinline__ void pd_least_two(uint32_t w, float &a, float &b)
{
#if defined __CUDA_ARCH__
	asm("{\n\t.reg .pred p, q;\n\t.reg .b32 n;\n\tabs.f16x2 n, %2;\n\tsetp.geu.f16x2 p|q, n, %3;\n\t"
	    "selp.f32 %0, %0, 0f00000000, p;\n\tselp.f32 %1, %1, 0f00000000, q;\n\t}"
		: "+f"(a), "+f"(b)
		: "r"(w), "r"(LEAST * 0x10001u));
#else
	const uint32_t stays = pd_least_two<LEAST>(w);

	a = stays & 0xffffu ? a : 0;
	b = stays & 0xffff0000u ? b : 0;
#endif
}

/* ---- kinds of elements ---- */

/* Multiplication of 16 x 16 by 16 x 8 by tensor cores, and two f32 rounded into one register, the first below. */
#define PD_TENSOR_CORES(TYPE) \
	static __device__ __forceinline__ void multiply(float(&c)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1) \
	{ \
		asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 " \
			     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
			: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
			: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
	} \
	static __device__ __forceinline__ uint32_t pair(float low, float high) \
	{ \
		uint32_t two; \
		asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(two) : "f"(high), "f"(low)); \
		return two; \
	}
#define PD_NO_TENSOR_CORES(NARROW) \
	static __device__ void multiply(float(&)[4], const uint32_t(&)[4], uint32_t, uint32_t) {} \
	static __device__ uint32_t pair(float low, float high) { return (uint32_t)NARROW(high) << 16 | NARROW(low); }

struct pd_halves {
	typedef uint16_t T;
	enum { HALF = 1, PAD = 8, BYTES = 2 };
	static __device__ float exp(float x) { return pd_exp2(x * 1.44269504f); }
	static __device__ int column(int n, int e) { return 8 * n + 2 * (int)(threadIdx.x % 4) + e % 2; }
};
struct pd_bf16s : pd_halves {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
	PD_TENSOR_CORES("bf16")
#else
	PD_NO_TENSOR_CORES(pd_to_bf16)
#endif
	static __device__ float load(uint16_t x) { return pd_from_bf16(x); }
	static __device__ uint16_t store(float x) { return pd_to_bf16(x); }
};
struct pd_f16s : pd_halves {
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
	PD_TENSOR_CORES("f16")
#else
	PD_NO_TENSOR_CORES(pd_to_f16)
#endif
	static __device__ float load(uint16_t x) { return pd_from_f16(x); }
	static __device__ uint16_t store(float x) { return pd_to_f16(x); }
};
struct pd_f32s {
	typedef float T;
	enum { HALF = 0, PAD = 4, BYTES = 4 };
	static __device__ float exp(float x) { return expf(x); }
	static __device__ int column(int n, int e)
	{
		return 16 * (n / 2) + 4 * (int)(threadIdx.x % 4) + 2 * (n % 2) + e % 2;
	}
	static __device__ float load(float x) { return x; }
	static __device__ float store(float x) { return x; }
};

/* ---- into shared memory ---- */

/* 16 bytes on their way to shared memory, zeros where there are none; they are there behind pd_tiles_there. No register waits for them,
 * so that all that a thread brings is under way at once. */
static __device__ __forceinline__ void pd_bring(void *to, const void *from, bool there)
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
		:
		: "r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0)
		: "memory");
#else
	*(pd_16 *)to = there ? *(const pd_16 *)from : pd_16{};
#endif
}

/* The block's barrier, behind which what pd_tile_load brings is there for all. */
static __device__ __forceinline__ void pd_tiles_there()
{
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 800
	asm volatile("cp.async.wait_all;" : : : "memory");
#endif
	__syncthreads();
}

/* to[ROWS][COLS] = from; what is beyond `rows` and `cols` is 0. Element (r, c) is from[r across + c down]. VECTORS: rows are
 * of multiples of 16 bytes, begin at such, and down is 1. All THREADS of the block. */
template <class K, int ROWS, int COLS, int VECTORS, int THREADS>
static __device__ __forceinline__ void pd_tile_load(
	typename K::T *to, const typename K::T *from, int64_t across, int64_t down, int rows, int cols)
{
	if constexpr (VECTORS) {
		enum { EACH = 16 / sizeof(typename K::T), WIDTH = COLS / EACH };

		PD_UNROLL
		for (int n = 0; n < ROWS * WIDTH; n += THREADS) {
			const int e = n + (int)threadIdx.x, r = e / WIDTH, c = e % WIDTH * EACH;

			if (e < ROWS * WIDTH)
				pd_bring(to + r * (COLS + K::PAD) + c, from + r * across + c, r < rows && c < cols);
		}
	} else {
		for (int e = (int)threadIdx.x; e < ROWS * COLS; e += THREADS) {
			const int r = down == 1 ? e / COLS : e % ROWS, c = down == 1 ? e % COLS : e / ROWS;

			to[r * (COLS + K::PAD) + c] =
				r < rows && c < cols ? from[r * across + c * down] : (typename K::T)0;
		}
	}
}

/* The same of 16-bit floats as VECTORS, where each thread has pieces of one column. WHOLE: the tile has all its rows. */
template <class K, int ROWS, int COLS, bool WHOLE, int THREADS>
static __device__ __forceinline__ void pd_tile_bring(
	uint16_t *to, const uint16_t *from, int64_t across, int rows, int cols)
{
	enum { WIDTH = COLS / 8, STEP = THREADS / WIDTH };
	const int r = (int)(threadIdx.x / WIDTH), c = (int)(threadIdx.x % WIDTH) * 8;
	const bool there = COLS % 64 == 0 && WHOLE ? true : c < cols;

	to += r * (COLS + K::PAD) + c;
	from += r * across + c;
	PD_UNROLL
	for (int n = 0; n < ROWS; n += STEP)
		if ((THREADS % WIDTH == 0 || r < STEP) && (ROWS % STEP == 0 || n + r < ROWS))
			pd_bring(to + n * (COLS + K::PAD), from + n * across, there && (WHOLE || n + r < rows));
}

/* ---- products ---- */

/* c[16][8 N] += a[16][COLS] b[8 N][COLS]' */
template <class K, int N, int COLS>
static __device__ __forceinline__ void pd_tile_nt(float (&c)[N][4], const typename K::T *a, const typename K::T *b)
{
	const int lane = threadIdx.x % 32, pitch = COLS + K::PAD;

	PD_NEEDS_SM80(K);
	if constexpr (K::HALF) {
		PD_UNROLL
		for (int k = 0; k < COLS; k += 16) {
			uint32_t ra[4], rb[4];

			PD_MATRICES(0, ra, a + lane % 16 * pitch + k + lane / 16 * 8);
			PD_UNROLL
			for (int n = 0; n < N; n += 2) {
				PD_MATRICES(
					0, rb, b + (8 * n + lane % 8 + lane / 16 * 8) * pitch + k + lane / 8 % 2 * 8);
				PD_MMA(K, c[n], ra, rb[0], rb[1]);
				PD_MMA(K, c[n + 1], ra, rb[2], rb[3]);
			}
		}
	} else {
		struct alignas(16) four {
			float v[4];
		};

		for (int k = 0; k < COLS; k += 4) {
			const four above = *(const four *)(const void *)(a + lane / 4 * pitch + k);
			const four below = *(const four *)(const void *)(a + (lane / 4 + 8) * pitch + k);

			PD_UNROLL
			for (int n = 0; n < 2 * N; n++) {
				const four x = *(
					const four *)(const void *)(b + (n / 2 * 8 + lane % 4 * 2 + n % 2) * pitch + k);

				PD_UNROLL
				for (int m = 0; m < 4; m++) {
					c[n / 2][n % 2] += above.v[m] * x.v[m];
					c[n / 2][n % 2 + 2] += below.v[m] * x.v[m];
				}
			}
		}
	}
}

/* c[16][8 N] += p[16][8 M] b[8 M][8 N], p in registers as the product of two others left it. */
template <class K, int N, int M>
static __device__ __forceinline__ void pd_tile_nn(float (&c)[N][4], const float (&p)[M][4], const typename K::T *b)
{
	const int lane = threadIdx.x % 32, pitch = 8 * N + K::PAD;

	if constexpr (K::HALF) {
		PD_UNROLL
		for (int k = 0; k < M; k += 2) {
			const uint32_t ra[4] = { K::pair(p[k][0], p[k][1]), K::pair(p[k][2], p[k][3]),
				K::pair(p[k + 1][0], p[k + 1][1]), K::pair(p[k + 1][2], p[k + 1][3]) };
			uint32_t rb[4];

			PD_UNROLL
			for (int n = 0; n < N; n += 2) {
				PD_MATRICES(1, rb, b + (8 * k + lane % 16) * pitch + 8 * n + lane / 16 * 8);
				PD_MMA(K, c[n], ra, rb[0], rb[1]);
				PD_MMA(K, c[n + 1], ra, rb[2], rb[3]);
			}
		}
	} else {
		struct alignas(16) four {
			float v[4];
		};

		PD_UNROLL
		for (int k = 0; k < 8 * M; k++) {
			const int from = lane / 4 * 4 + k % 8 / 2;
			const float above = __shfl_sync(0xffffffffu, p[k / 8][k % 2], from);
			const float below = __shfl_sync(0xffffffffu, p[k / 8][k % 2 + 2], from);

			PD_UNROLL
			for (int n = 0; n < N; n += 2) {
				const four x = *(const four *)(const void *)(b + k * pitch + 8 * n + lane % 4 * 4);

				PD_UNROLL
				for (int m = 0; m < 4; m++) {
					c[n + m / 2][m % 2] += above * x.v[m];
					c[n + m / 2][m % 2 + 2] += below * x.v[m];
				}
			}
		}
	}
}

/* 16-bit floats: a[16][COLS], held in registers, */
template <class K, int COLS>
static __device__ __forceinline__ void pd_tile_hold(uint32_t (&r)[COLS / 16][4], const uint16_t *a)
{
	const int lane = threadIdx.x % 32;

	PD_UNROLL
	for (int k = 0; k < COLS / 16; k++)
		PD_MATRICES(0, r[k], a + lane % 16 * (COLS + K::PAD) + 16 * k + lane / 16 * 8);
}

/* and c[M][16][8 N] += a[M][16][COLS] b[8 N][COLS]' with M of them */
template <class K, int M, int N, int COLS>
static __device__ __forceinline__ void pd_tiles_nt(
	float (&c)[M][N][4], const uint32_t (&a)[M][COLS / 16][4], const uint16_t *b)
{
	const int lane = threadIdx.x % 32, pitch = COLS + K::PAD;

	PD_NEEDS_SM80(K);
	b += (lane % 8 + lane / 16 * 8) * pitch + lane / 8 % 2 * 8;
	PD_UNROLL
	for (int k = 0; k < COLS / 16; k++)
		PD_UNROLL
	for (int n = 0; n < N; n += 2) {
		uint32_t r[4];

		PD_MATRICES(0, r, b + 8 * n * pitch + 16 * k);
		PD_UNROLL
		for (int m = 0; m < M; m++) {
			PD_MMA(K, c[m][n], a[m][k], r[0], r[1]);
			PD_MMA(K, c[m][n + 1], a[m][k], r[2], r[3]);
		}
	}
}

/* c[M][16][8 N] += p[M][16][8 L] b[8 L][8 N], p in registers as pd_tiles_nt leaves it */
template <class K, int M, int N, int L>
static __device__ __forceinline__ void pd_tiles_nn(float (&c)[M][N][4], const float (&p)[M][L][4], const uint16_t *b)
{
	const int lane = threadIdx.x % 32, pitch = 8 * N + K::PAD;

	b += lane % 16 * pitch + lane / 16 * 8;
	PD_UNROLL
	for (int k = 0; k < L; k += 2) {
		uint32_t a[M][4];

		PD_UNROLL
		for (int e = 0; e < 4 * M; e++) {
			const float *two = &p[e / 4][k + e % 4 / 2][e % 2 * 2];

			a[e / 4][e % 4] = K::pair(two[0], two[1]);
		}
		PD_UNROLL
		for (int n = 0; n < N; n += 2) {
			uint32_t r[4];

			PD_MATRICES(1, r, b + 8 * k * pitch + 8 * n);
			PD_UNROLL
			for (int m = 0; m < M; m++) {
				PD_MMA(K, c[m][n], a[m], r[0], r[1]);
				PD_MMA(K, c[m][n + 1], a[m], r[2], r[3]);
			}
		}
	}
}

/* Two elements that lie side by side. */
template <class K> static __device__ __forceinline__ void pd_store_two(uint16_t *to, float low, float high)
{
	*(uint32_t *)(void *)to = K::pair(low, high);
}

/* Over the four lanes that have a row. */
static __device__ __forceinline__ float pd_row_sum(float v)
{
	v += __shfl_xor_sync(0xffffffffu, v, 1);
	return v + __shfl_xor_sync(0xffffffffu, v, 2);
}

static __device__ __forceinline__ float pd_row_max(float v)
{
	v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
	return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

#endif
