/* watch.h: what is known of every access to memory. Programs that are compiled with -fsanitize=thread call a hook in front of each; in
 * a watched stand-in (build.sh with STANDIN_WATCH=1) these are watch.c's in place of libtsan's. Kernels tell through device.h which
 * thread runs and what orders it; races.c holds their accesses against each other, and watch_access gets what may concern others. */
#ifndef STANDIN_WATCH_H
#define STANDIN_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#if defined __cplusplus
extern "C" {
#endif

#if defined STANDIN_WATCH
/* ---- for what looks at order between streams ---- */

/* An access outside of shared memory and fibers' stacks, in front of it: by the kernel that runs (watch_kernel), else by host code of
 * the program: also where it calls memcpy, memmove and memset, or libraries of the host do. Any thread of the process. */
void watch_access(const void *p, size_t bytes, bool write, bool atomic);

const char *watch_kernel(void);          /* what runs in this thread; NULL: the host */
bool watch_of_program(const void *code); /* no library's */
const void *watch_caller(void);          /* in watch_access: behind the instruction */

/* Where code addresses are in the source, innermost first: "gpu.h:70 in softmax.cu:12"; as many as fit. One call of addr2line. */
enum { WATCH_WHERE = 160 };
void watch_where(int n, const void *const *code, char (*where)[WATCH_WHERE]);

/* Where in memory p is: "byte 16 of piece 3 of device memory, of 4096". */
void watch_memory(const void *p, char *s, size_t bytes);

/* A line for the log: the file $STANDIN_WATCH_LOG.PID, else stderr. */
void watch_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- between watch.c and races.c ---- */

typedef enum watch_how { WATCH_READS, WATCH_WRITES, WATCH_ATOMIC } watch_how;

#if defined STANDIN_ORDER
#define races_begin(kernel, threads) ((void)(kernel), (void)(threads))
#define races_block(block) ((void)(block))
#define races_thread(t) ((void)(t))
#define races_barrier(first, n) ((void)(first), (void)(n))
#define races_fence() ((void)0)
#define races_access(p, bytes, how, shared, code) ((void)0)
#define races_end() ((void)0)
#else
void races_begin(const char *kernel, unsigned threads);
void races_block(unsigned block);
void races_thread(unsigned t);
void races_barrier(unsigned first, unsigned n);
void races_fence(void);
void races_access(const void *p, size_t bytes, watch_how how, bool shared, const void *code);
size_t races_found(void); /* pairs of places, in this launch */
void races_end(void);
#endif
#endif

/* ---- what device.h tells ---- */

#if defined __SANITIZE_THREAD__ || defined STANDIN_WATCH
#define WATCH_API __attribute__((visibility("default")))
WATCH_API void watch_begin(const char *kernel, unsigned threads, const void *shared, size_t bytes);
WATCH_API void watch_block(unsigned block);
WATCH_API void watch_thread(unsigned t, const void *stack, size_t bytes); /* t runs, on its stack */
WATCH_API void watch_leaves(void);                                        /* none does */
/* All n threads from `first` on came to a barrier: the block or a warp of it. Shuffles order no memory and are none. */
WATCH_API void watch_barrier(unsigned first, unsigned n);
WATCH_API void watch_fence(void); /* __threadfence of the thread that runs */
WATCH_API void watch_reads(
	const void *p, size_t bytes, const void *code); /* by device.h for it, which `code` has called */
WATCH_API void watch_atomic(const void *p, size_t bytes, const void *code);
WATCH_API void watch_end(void);
#else
#define watch_begin(kernel, threads, shared, bytes) ((void)0)
#define watch_block(block) ((void)0)
#define watch_thread(t, stack, bytes) ((void)0)
#define watch_leaves() ((void)0)
#define watch_barrier(first, n) ((void)0)
#define watch_fence() ((void)0)
#define watch_reads(p, bytes, code) ((void)0)
#define watch_atomic(p, bytes, code) ((void)0)
#define watch_end() ((void)0)
#endif

#if defined __cplusplus
}
#endif

#endif
