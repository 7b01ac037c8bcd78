/* planted.cu: kernels with races, and such without that look like it; testsuite/gpu/races holds against the comments what is found. The two
 * accesses of a race have its name behind them. */
#include <cstdio>
#include <cstring>

extern "C" cudaStream_t pd_stream(void) { return nullptr; }
extern "C" void pd_launched(const char *) {}

enum { N = 256, BLOCKS = 4 };

/* ---- races ---- */

/* A sum without the barrier between its rounds. */
static __global__ void sum_without_barrier(float *y, const float *x)
{
	__shared__ float part[N];

	part[threadIdx.x] = x[threadIdx.x];
	__syncthreads();
	for (int half = N / 2; half > 0; half /= 2)
		if ((int)threadIdx.x < half) {
			const float v = part[threadIdx.x + half]; // sum_without_barrier
			part[threadIdx.x] += v;                   // sum_without_barrier
		}
	if (threadIdx.x == 0)
		*y = part[0];
}

/* The first barrier orders what is written against what is read, none what is read against what is written next. */
static __global__ void buffer_filled_too_early(float *y, const float *x)
{
	PD_DYN_SHARED(float, tile);
	float s = 0;

	for (int i = 0; i < 2; i++) {
		tile[threadIdx.x] = x[i * N + threadIdx.x]; // buffer_filled_too_early
		__syncthreads();
		s += tile[N - 1 - threadIdx.x]; // buffer_filled_too_early
	}
	y[threadIdx.x] = s;
}

static __global__ void blocks_write_one_word(float *y, const float *x)
{
	if (threadIdx.x == 0)
		*y = x[blockIdx.x]; // blocks_write_one_word
}

/* Halves of one word are no race, and are found beside it. */
static __global__ void blocks_overlap_by_two_bytes(uint16_t *y, const float *)
{
	uint16_t *mine = y + 3 * blockIdx.x;

	if (threadIdx.x < 4)
		mine[threadIdx.x] = 1; // blocks_overlap_by_two_bytes
}

static __global__ void block_reads_its_neighbour(float *y, const float *)
{
	const float before = blockIdx.x ? y[(blockIdx.x - 1) * N + threadIdx.x] : 0; // block_reads_its_neighbour

	y[blockIdx.x * N + threadIdx.x] = before + 1; // block_reads_its_neighbour
}

/* The last block counts itself last, but what the others wrote may not have arrived. */
static __global__ void last_block_without_fence(float *y, const float *x)
{
	__shared__ bool last;

	if (threadIdx.x == 0) {
		y[1 + blockIdx.x] = x[blockIdx.x]; // last_block_without_fence
		last = atomicAdd((unsigned *)y, 1u) == BLOCKS - 1;
	}
	__syncthreads();
	if (last && threadIdx.x < BLOCKS)
		y[1 + BLOCKS + threadIdx.x] = y[1 + threadIdx.x]; // last_block_without_fence
}

static __global__ void counter_also_written(unsigned *y, const float *)
{
	if (threadIdx.x == 0 && blockIdx.x == 0)
		*y = 0; // counter_also_written
	if (threadIdx.x == 0 && blockIdx.x == 1)
		atomicAdd(y, 1u); // counter_also_written
}

static __global__ void without_syncwarp(float *y, const float *x)
{
	__shared__ float part[32];

	part[threadIdx.x] = x[threadIdx.x];      // without_syncwarp
	y[threadIdx.x] = part[31 - threadIdx.x]; // without_syncwarp
}

/* Shuffles order no memory. */
static __global__ void shuffle_for_syncwarp(float *y, const float *x)
{
	__shared__ float part[32];

	part[threadIdx.x] = x[threadIdx.x]; // shuffle_for_syncwarp
	const float v = __shfl_xor_sync(0xffffffffu, x[threadIdx.x], 1);
	y[threadIdx.x] = v + part[31 - threadIdx.x]; // shuffle_for_syncwarp
}

static __global__ void syncwarp_for_two_warps(float *y, const float *x)
{
	__shared__ float part[64];

	part[threadIdx.x] = x[threadIdx.x]; // syncwarp_for_two_warps
	__syncwarp();
	y[threadIdx.x] = part[63 - threadIdx.x]; // syncwarp_for_two_warps
}

static __global__ void matrix_without_syncwarp(uint32_t *y, const float *x)
{
	alignas(16) __shared__ uint16_t tile[32][8];
	uint32_t r[4];

	for (int i = 0; i < 8; i++)
		tile[threadIdx.x][i] = (uint16_t)x[i]; // matrix_without_syncwarp
	PD_MATRICES(0, r, tile[threadIdx.x]);          // matrix_without_syncwarp
	y[threadIdx.x] = r[0] + r[1] + r[2] + r[3];
}

/* ---- none ---- */

static __global__ void sum_with_barriers(float *y, const float *x)
{
	__shared__ float part[N];

	part[threadIdx.x] = x[blockIdx.x * N + threadIdx.x];
	for (int half = N / 2; half > 0; half /= 2) {
		__syncthreads();
		if ((int)threadIdx.x < half)
			part[threadIdx.x] += part[threadIdx.x + half];
	}
	if (threadIdx.x == 0)
		y[blockIdx.x] = part[0];
}

/* Every block has its shared memory. */
static __global__ void shared_memory_of_each_block(float *y, const float *x)
{
	__shared__ float all;

	if (threadIdx.x == blockIdx.x)
		all = x[blockIdx.x];
	__syncthreads();
	y[blockIdx.x * N + threadIdx.x] = all;
}

static __global__ void neighbouring_halves(uint16_t *y, const float *x)
{
	y[blockIdx.x * 3 + threadIdx.x] = (uint16_t)x[threadIdx.x];
}

static __global__ void through_global_memory(float *y, const float *x)
{
	y[blockIdx.x * N + threadIdx.x] = x[threadIdx.x];
	__syncthreads();
	const float v = y[blockIdx.x * N + N - 1 - threadIdx.x];
	__syncthreads();
	y[blockIdx.x * N + threadIdx.x] = v;
}

static __global__ void last_block_sums(float *y, const float *x)
{
	__shared__ bool last;

	y[1 + blockIdx.x * N + threadIdx.x] = x[threadIdx.x];
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		last = atomicAdd((unsigned *)y, 1u) == BLOCKS - 1;
	}
	__syncthreads();
	if (!last)
		return;
	float s = 0;
	for (int b = 0; b < BLOCKS; b++)
		s += y[1 + b * N + threadIdx.x];
	y[1 + threadIdx.x] = s;
	if (threadIdx.x == 0)
		*(unsigned *)y = 0;
}

static __global__ void all_count(unsigned *y, const float *) { atomicAdd(y, 1u); }

static __global__ void with_syncwarp(float *y, const float *x)
{
	__shared__ float part[64];

	part[threadIdx.x] = x[threadIdx.x];
	__syncwarp();
	const float v = part[threadIdx.x ^ 31];
	__syncwarp();
	part[threadIdx.x ^ 31] = v;
	__syncwarp();
	y[threadIdx.x] = part[threadIdx.x];
}

static __global__ void matrix_with_syncwarp(uint32_t *y, const float *x)
{
	alignas(16) __shared__ uint16_t tile[32][8];
	uint32_t r[4];

	for (int i = 0; i < 8; i++)
		tile[threadIdx.x][i] = (uint16_t)x[i];
	__syncwarp();
	PD_MATRICES(0, r, tile[threadIdx.x]);
	y[threadIdx.x] = r[0] + r[1] + r[2] + r[3];
}

/* An array of a thread's own, by address. */
static __device__ void fill(volatile float *own, float v)
{
	for (int i = 0; i < 16; i++)
		own[i] = v;
}

static __global__ void arrays_of_threads(float *y, const float *x)
{
	float own[16];

	fill(own, x[threadIdx.x]);
	__syncthreads();
	y[blockIdx.x * N + threadIdx.x] = own[threadIdx.x % 16];
}

/* Word by word into one that is read as 16 bytes, behind a barrier. */
static __global__ void words_and_vectors(float *y, const float *x)
{
	struct alignas(16) four {
		float v[4];
	};
	alignas(16) __shared__ float tile[N];

	tile[threadIdx.x] = x[threadIdx.x];
	__syncthreads();
	if (threadIdx.x < N / 4)
		*(four *)(void *)(y + blockIdx.x * N + 4 * threadIdx.x) =
			*(const four *)(const void *)(tile + 4 * threadIdx.x);
}

static __global__ void mask_of_half_a_warp(float *y, const float *x)
{
	y[threadIdx.x] = __shfl_xor_sync(0xffffu, x[threadIdx.x], 1);
}

/* ---- all of them ---- */

static void *y, *x;

/* clang-format off */
#define KERNELS(K) \
	K(sum_without_barrier, 1, N, 0) K(buffer_filled_too_early, 1, N, N * 4) K(blocks_write_one_word, BLOCKS, N, 0) \
	K(blocks_overlap_by_two_bytes, 2, 32, 0) K(block_reads_its_neighbour, 2, N, 0) K(last_block_without_fence, BLOCKS, N, 0) \
	K(counter_also_written, 2, 32, 0) K(without_syncwarp, 1, 32, 0) K(shuffle_for_syncwarp, 1, 32, 0) \
	K(syncwarp_for_two_warps, 1, 64, 0) K(matrix_without_syncwarp, 1, 32, 0) K(sum_with_barriers, BLOCKS, N, 0) \
	K(shared_memory_of_each_block, BLOCKS, N, 0) K(neighbouring_halves, BLOCKS, 3, 0) K(through_global_memory, BLOCKS, N, 0) \
	K(last_block_sums, BLOCKS, N, 0) K(all_count, BLOCKS, N, 0) K(with_syncwarp, 1, 64, 0) K(matrix_with_syncwarp, 1, 32, 0) \
	K(arrays_of_threads, BLOCKS, N, 0) K(words_and_vectors, BLOCKS, N, 0) K(mask_of_half_a_warp, 1, 32, 0)
/* clang-format on */

template <class Y> static void fresh(void (*)(Y *, const float *), Y **to)
{
	cudaMemsetAsync(y, 0, 64 << 10, nullptr);
	cudaMemsetAsync(x, 0, 64 << 10, nullptr);
	*to = (Y *)y;
}

#define LAUNCH(name, blocks, threads, bytes) \
	if (!strcmp(argv[1], #name)) { \
		decltype(first(name)) to; \
		fresh(name, &to); \
		PD_LAUNCH(name, blocks, threads, bytes, to, (const float *)x); \
	}
template <class Y> static Y *first(void (*)(Y *, const float *));
#define NAME(name, ...) puts(#name);

/* planted NAME: starts that kernel; planted: says the names. */
int main(int argc, char **argv)
{
	if (argc < 2) {
		KERNELS(NAME)
		return 0;
	}
	if (cudaMalloc(&y, 64 << 10) || cudaMalloc(&x, 64 << 10))
		return 1;
	KERNELS(LAUNCH)
	return 0;
}
