/* device.h: runs the kernels of an emitted .cu on the CPU. The file is compiled as C++ with this in front; a block's threads
 * are fibers, so that barriers and shuffles mean what they mean on a GPU. Blocks run one after the other.
 *
 * A thread that reaches no barrier runs to its end at once. Where all threads of a warp (of the block) wait, they go on;
 * where threads wait for one that has ended, or for different things, the program ends with a message: on a GPU it would
 * hang or be undefined. */
#ifndef STANDIN_DEVICE_H
#define STANDIN_DEVICE_H

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include "cuda_runtime_api.h"
#include "watch.h"

#if !defined __x86_64__
#error "the stand-in for a GPU switches stacks of x86-64 only"
#endif

/* AddressSanitizer is told of every stack: testsuite/gpu/sanitize. Where accesses are watched (testsuite/gpu/races) those of this file are not. */
#if defined __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define STANDIN_LEAVES(keep, to, bytes) __sanitizer_start_switch_fiber(keep, to, bytes)
#define STANDIN_ARRIVES(kept, from, bytes) __sanitizer_finish_switch_fiber(kept, from, bytes)
#define STANDIN_STACK (256 << 10) /* of a thread; frames are larger then */
#else
#define STANDIN_LEAVES(keep, to, bytes) ((void)(keep))
#define STANDIN_ARRIVES(kept, from, bytes) ((void)(kept))
#if defined __SANITIZE_THREAD__
#define STANDIN_STACK (256 << 10)
#else
#define STANDIN_STACK (64 << 10)
#endif
#endif
#if defined __SANITIZE_THREAD__
#define STANDIN_UNSEEN __attribute__((no_sanitize("thread"), noinline))
#else
#define STANDIN_UNSEEN
#endif

#define __global__
#define __device__
#define __host__
#define __shared__ static /* one block at a time */
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __restrict__ __restrict

extern "C" void standin_device(int enters); /* standin.c: device memory is open while a kernel runs */
enum standin_end { STANDIN_WAITS, STANDIN_DONE, STANDIN_LOST };
extern "C" void standin_do(
	cudaStream_t s, standin_end (*run)(void *what), const void *what, size_t bytes); /* standin_stream.c */

extern "C" int standin_image(void); /* the device can run kernels of this program */

struct standin_index {
	unsigned x, y, z;
};
inline standin_index threadIdx, blockIdx, blockDim, gridDim;

namespace standin
{

enum state { RUNS, AT_SHUFFLE, AT_WARP, AT_BLOCK, DONE };
struct fiber {
	void *sp;
	char *stack;
	state s;
	uint64_t box[2][3];
	unsigned turn;
	int vote;
};

enum { MOST = 1024, STACK = STANDIN_STACK };
inline fiber fibers[MOST];
inline void *main_sp;
inline const void *main_stack; /* where it is, for AddressSanitizer */
inline size_t main_bytes;
inline unsigned current, threads;
inline const char *kernel;
inline char *shared; /* PD_DYN_SHARED */
inline void (*body)(void *);
inline void *argument;

extern "C" void standin_switch(void **from, void *to);
asm(R"(
	.text
	.weak standin_switch
	.type standin_switch, @function
standin_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
)");

[[noreturn]] inline void die(const char *why)
{
	fprintf(stderr, "kernel %s, block %u, thread %u: %s\n", kernel, blockIdx.x, current, why);
	abort();
}

/* These three never return where a thread has ended: their frames are no business of AddressSanitizer's. */
__attribute__((no_sanitize_address, noinline)) STANDIN_UNSEEN inline void leave(state s)
{
	void *keep = nullptr;

	fibers[current].s = s;
	watch_leaves();
	STANDIN_LEAVES(s == DONE ? nullptr : &keep, main_stack, main_bytes);
	standin_switch(&fibers[current].sp, main_sp);
	STANDIN_ARRIVES(keep, &main_stack, &main_bytes);
}

__attribute__((no_sanitize_address, noinline)) STANDIN_UNSEEN inline void entry()
{
	STANDIN_ARRIVES(nullptr, &main_stack, &main_bytes);
	body(argument);
	leave(DONE);
	abort();
}

__attribute__((no_sanitize_address, noinline)) STANDIN_UNSEEN inline void enter(unsigned t)
{
	void *keep = nullptr;

	current = t;
	threadIdx = { t, 0, 0 };
	watch_thread(t, fibers[t].stack, STACK);
	STANDIN_LEAVES(&keep, fibers[t].stack, STACK);
	standin_switch(&main_sp, fibers[t].sp);
	STANDIN_ARRIVES(keep, nullptr, nullptr);
}

STANDIN_UNSEEN inline void prepare(unsigned t)
{
	fiber *f = &fibers[t];

	if (!f->stack)
		f->stack = (char *)malloc(STACK);
	void **sp = (void **)(((uintptr_t)f->stack + STACK) & ~(uintptr_t)63);
	*--sp = nullptr;
	*--sp = (void *)entry;
	for (int i = 0; i < 6; i++)
		*--sp = nullptr;
	f->sp = sp;
	f->s = RUNS;
	f->turn = 0;
}

/* All threads from `first` on, n of them, that have not ended wait at `what`: they go on. */
STANDIN_UNSEEN inline bool release(unsigned first, unsigned n, state what)
{
	unsigned waiting = 0, done = 0;

	for (unsigned t = first; t < first + n; t++) {
		waiting += fibers[t].s == what;
		done += fibers[t].s == DONE;
	}
	if (!waiting || waiting + done < n)
		return false;
	if (done)
		die("waits for a thread that has ended");
	for (unsigned t = first; t < first + n; t++)
		fibers[t].s = RUNS;
	if (what != AT_SHUFFLE)
		watch_barrier(first, n);
	return true;
}

STANDIN_UNSEEN inline void run_block()
{
	unsigned left = threads;

	for (unsigned t = 0; t < threads; t++)
		prepare(t);
	while (left) {
		bool moved = false;
		left = 0;
		for (unsigned t = 0; t < threads; t++)
			if (fibers[t].s == RUNS) {
				enter(t);
				moved = true;
			}
		for (unsigned t = 0; t < threads; t += 32) {
			const unsigned warp = threads - t < 32 ? threads - t : 32;

			moved |= release(t, warp, AT_SHUFFLE) || release(t, warp, AT_WARP);
		}
		moved |= release(0, threads, AT_BLOCK);
		for (unsigned t = 0; t < threads; t++)
			left += fibers[t].s != DONE;
		if (left && !moved)
			die("threads wait for different things");
	}
}

/* What a launch starts: a kernel with its arguments as they were then, for a graph does it again. */
template <class K> struct grid {
	const char *name;
	unsigned blocks, threads;
	size_t bytes;
	K k;
};

template <class K> standin_end run_grid(void *what)
{
	grid<K> &g = *(grid<K> *)what;

	kernel = g.name;
	threads = g.threads;
	blockDim = { g.threads, 1, 1 };
	gridDim = { g.blocks, 1, 1 };
	body = [](void *p) { (*(K *)p)(); };
	argument = &g.k;
	standin_device(1);
	void *room = nullptr;
	if (g.bytes && posix_memalign(&room, 64, g.bytes))
		abort();
	shared = (char *)room;
	watch_begin(g.name, g.threads, shared, g.bytes);
	for (unsigned b = 0; b < g.blocks; b++) {
		blockIdx = { b, 0, 0 };
		if (g.bytes)
			memset(shared, 0xff, g.bytes);
		watch_block(b);
		run_block();
	}
	watch_end();
	free(shared);
	standin_device(0);
	argument = nullptr;
	return STANDIN_DONE;
}

template <class K> void launch(const char *name, unsigned blocks, unsigned n, size_t bytes, K k)
{
	if (n < 1 || n > MOST) {
		fprintf(stderr, "kernel %s: %u threads a block\n", name, n);
		abort();
	}
	if (bytes > 48 << 10) { /* what a launch may have without asking for more */
		fprintf(stderr, "kernel %s: %zu bytes of shared memory\n", name, bytes);
		abort();
	}
	const grid<K> g = { name, blocks, n, bytes, k };

	static_assert(std::is_trivially_copyable<K>::value, "arguments of kernels are plain");
	if (standin_image())
		standin_do(nullptr, run_grid<K>, &g, sizeof g);
}

template <class F, class... A> void start(const char *name, unsigned blocks, unsigned n, size_t bytes, F f, A... a)
{
	launch(name, blocks, n, bytes, [=] { f(a...); });
}

/* What this thread tells its warp; returns where to read what the others told. */
STANDIN_UNSEEN inline unsigned tell(const void *what, size_t bytes)
{
	fiber *me = &fibers[current];
	const unsigned turn = me->turn++ & 1;

	memcpy(me->box[turn], what, bytes);
	leave(AT_SHUFFLE);
	return turn;
}

STANDIN_UNSEEN inline const void *told(unsigned turn, unsigned lane)
{
	const unsigned mate = current / 32 * 32 + lane % 32;

	return fibers[mate < threads ? mate : current].box[turn];
}

/* Whole warps alone: a mask names all threads that there are. */
template <class T> STANDIN_UNSEEN T exchange(unsigned mask, T v, unsigned from)
{
	static_assert(sizeof v <= 8, "shuffles move 8 bytes");
	const unsigned left = threads - current / 32 * 32;
	T got;

	if (~mask & (left < 32 ? (1u << left) - 1 : ~0u))
		die("a mask leaves out threads of the warp");
	memcpy(&got, told(tell(&v, sizeof v), from), sizeof got);
	return got;
}

/* ldmatrix .x4: four 8 x 8 matrices of 16 bits; lane l tells where row l % 8 of matrix l / 8 is. */
STANDIN_UNSEEN inline void matrices(bool transposed, uint32_t (&r)[4], const uint16_t *row)
{
	if ((uintptr_t)row % 16)
		die("a row of a matrix does not begin at 16 bytes");
	const unsigned turn = tell(&row, sizeof row), lane = current % 32;

	for (unsigned m = 0; m < 4; m++)
		for (unsigned e = 0; e < 2; e++) {
			const unsigned across = transposed ? lane % 4 * 2 + e : lane / 4,
				       down = transposed ? lane / 4 : lane % 4 * 2 + e;
			const uint16_t *from;

			memcpy(&from, told(turn, 8 * m + across), sizeof from);
			watch_reads(from + down, sizeof *from, __builtin_return_address(0));
			r[m] = e ? r[m] | (uint32_t)from[down] << 16 : from[down];
		}
}

/* mma .m16n8k16: c += a b. Lane l has rows l / 4 and + 8, columns 2 (l % 4) and + 1 of c, of a columns 2 (l % 4) and + 1, and
 * those 8 further, of b as many rows of column l / 4. */
template <class K> STANDIN_UNSEEN void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
	const uint32_t mine[6] = { a[0], a[1], a[2], a[3], b0, b1 };
	const unsigned turn = tell(mine, sizeof mine), lane = current % 32;
	float x[2][16], y[2][16];

	for (unsigned k = 0; k < 16; k++)
		for (unsigned i = 0; i < 2; i++) {
			const uint32_t *rows = (const uint32_t *)told(turn, lane / 4 * 4 + k % 8 / 2);
			const uint32_t *columns = (const uint32_t *)told(turn, (lane % 4 * 2 + i) * 4 + k % 8 / 2);

			x[i][k] = K::load((uint16_t)(rows[k / 8 * 2 + i] >> k % 2 * 16));
			y[i][k] = K::load((uint16_t)(columns[4 + k / 8] >> k % 2 * 16));
		}
	for (unsigned e = 0; e < 4; e++)
		for (unsigned k = 0; k < 16; k++)
			c[e] += x[e / 2][k] * y[e % 2][k];
}

} // namespace standin

inline void __syncthreads() { standin::leave(standin::AT_BLOCK); }
STANDIN_UNSEEN inline int __syncthreads_or(int v)
{
	int any = 0;

	standin::fibers[standin::current].vote = v;
	__syncthreads();
	for (unsigned t = 0; t < standin::threads; t++)
		any |= standin::fibers[t].vote;
	__syncthreads(); /* all have seen them before the next one is asked */
	return any != 0;
}
inline void __syncwarp(unsigned = ~0u) { standin::leave(standin::AT_WARP); }
inline void __threadfence() { watch_fence(); }
template <class T> STANDIN_UNSEEN T __shfl_xor_sync(unsigned who, T v, int mask, int = 32)
{
	return standin::exchange(who, v, standin::current % 32 ^ (unsigned)mask);
}
template <class T> STANDIN_UNSEEN T __shfl_down_sync(unsigned who, T v, unsigned d, int = 32)
{
	const unsigned lane = standin::current % 32;

	return standin::exchange(who, v, lane + d > 31 ? lane : lane + d);
}
template <class T> T __shfl_sync(unsigned who, T v, int lane, int = 32)
{
	return standin::exchange(who, v, (unsigned)lane);
}
template <class T> STANDIN_UNSEEN T atomicAdd(T *p, T v)
{
	const T before = *p;

	watch_atomic(p, sizeof *p, __builtin_return_address(0));
	*p = before + v;
	return before;
}
template <class T> STANDIN_UNSEEN T atomicMax(T *p, T v)
{
	const T before = *p;

	watch_atomic(p, sizeof *p, __builtin_return_address(0));
	*p = before < v ? v : before;
	return before;
}
inline int __ffs(int bits) { return __builtin_ffs(bits); }

inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }

#define PD_MMA(kind, c, a, b0, b1) standin::multiply<kind>(c, a, b0, b1)
#define PD_MATRICES(transposed, r, row) standin::matrices(transposed, r, row)
#define PD_DYN_SHARED(type, name) type *name = (type *)(void *)standin::shared
#define PD_LAUNCH(k, blocks, n, dynamic, ...) \
	do { \
		standin::start( \
			#k, (unsigned)(blocks), (unsigned)(n), (size_t)(dynamic), [](auto... a) { k(a...); }, \
			__VA_ARGS__); \
		pd_launched(#k); \
	} while (0)

#endif
