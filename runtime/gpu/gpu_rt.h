/* gpu_rt.h: what the host's files of a GPU program share about the device. */
#ifndef GPU_RT_H
#define GPU_RT_H

#include "rt.h"
#include <cuda_runtime_api.h>

/* Ends the program: R521 (77) for memory that the device lacks, R520 else, with the device's name. */
void rt_gpu_check(cudaError_t e, const char *what);
void rt_gpu_get(void *host, const void *tensor, size_t bytes); /* once the device has made it */
/* From memory that is not pinned, which the host may use again at once; from pinned memory rt_copy_on. */
void rt_gpu_put(void *tensor, const void *host, size_t bytes);
const char *rt_gpu_uuid(void); /* 16 bytes */
int rt_gpu_major(void);        /* of its architecture */
void rt_gpu_library(
	void); /* gpu_library.c: cuBLAS is opened, where pd_gemm_open was called: later it would wait for messages */
void rt_gpu_here(void); /* a thread's calls are for this device */

/* gpu_memory.c. Device memory, or R521 (77). */
void *rt_device_memory(size_t bytes, const char *what);
/* R521: the device's name, `what` the memory is not there for, all that the program needs, part by part, and what was found. */
_Noreturn void rt_gpu_lacks(const char *what);
size_t rt_gpu_told(char *text, size_t room); /* those parts; their sum */
int rt_gpu_arch(void);                       /* 90: of compute capability 9.0 */

/* Device memory for one call at a time, as large as the largest wants. Before step 0 of a program that gathers, what is wanted is made by
 * rt_gpu_make, `at` is NULL until then. Else at once: what was there before is given back while there are no graphs that may keep its
 * address; not inside a capture, which is refused then (false). */
typedef struct rt_piece {
	void *at;
	size_t bytes;
} rt_piece;
bool rt_want(rt_piece *piece, size_t bytes, const char *what);
bool rt_gathers(void);             /* gpu_graph.c: this program comes to rt_gpu_make */
void rt_gpu_make(size_t messages); /* what was wanted; so many bytes are NCCL's */
/* Gives it back; where GPUs exchange messages themselves it is kept to the end, and so is what rt_unpinned and rt_pinned get: the driver
 * would wait for kernels that wait for other ranks. */
void rt_device_release(void *p);
void *rt_pinned(
	void *before, size_t bytes); /* host memory that the device copies fast, in place of `before` (may be NULL) */
void rt_unpinned(void *p);
size_t rt_gpu_bytes_of(pd_dtype t, int rank, const int64_t *dim);
size_t rt_gpu_bytes(const pd_param *p);

/* Before step 0 each form of a call of a library is run once, on zeros in memory that is given back: what the library refuses is known
 * before others have kept anything for it, and what it loads or makes at its first run waits for all that the device was told, later also
 * for messages by NCCL. `of` is run with that many bytes. */
void rt_first_run(void (*run)(void *of, char *scrap), void *of, size_t bytes);
void rt_first_runs(void);
bool rt_first_running(void); /* what is run is no step */
static inline size_t rt_part_bytes(size_t bytes) { return (bytes + 255) / 256 * 256; }
static inline void *rt_part(char **scrap, size_t bytes)
{
	char *p = *scrap;
	*scrap += rt_part_bytes(bytes);
	return p;
}
void rt_refusal_taken(
	void); /* a library refused, and that is lived with: what it left is no error of the next kernel */

/* gpu_products.c, for gpu_timed.c. A way to make a product of some form: an algorithm of the library's, as the bytes that it tells;
 * apart: of the bare product, behind which kernels of ours do the rest. */
enum { RT_FORM = 208 };
typedef struct rt_way {
	uint64_t algorithm[8];
	bool apart;
} rt_way;
typedef struct product rt_product;
uint64_t rt_product_version(void);                             /* the library's */
rt_product *rt_product_next(const rt_product *o);              /* forms of this program, from NULL on to NULL */
void rt_product_form(const rt_product *o, char text[RT_FORM]); /* all that is asked of it, without a blank */
pd_dtype rt_product_type(const rt_product *o);                 /* of what is multiplied */
int rt_product_bits(const rt_product *o);                      /* so many calls keep bits of a Relu, or read them */
size_t rt_product_scrap(const rt_product *o);                  /* bytes of memory that a run needs */
rt_way rt_product_now(const rt_product *o);                    /* as it would be made now */
int rt_product_ways(
	rt_product *o, bool apart, rt_way *of, int most); /* what the heuristic names, best first; 0: none */
/* It is made so from now on. false: the library refuses this, or wants more workspace than the plan has: nothing has changed. */
bool rt_product_try(rt_product *o, const rt_way *w);
bool rt_product_once(rt_product *o, char *scrap); /* a run; false: it is refused */
/* rt_product_try, for good; of all forms that keep or read a Relu's bits alike. false: the first choice of the heuristic is left, bare
 * where w is. */
bool rt_product_take(rt_product *o, const rt_way *w);
const char *rt_gpu_kind(void); /* gpu_device.c: the device's name, without its number */

/* gpu_timed.c: all ranks together, before the first runs. What was chosen, for the lines at the start; "": nothing. */
void rt_products_time(const rt_options *o);
const char *rt_products_told(void);
/* gpu_timed_file.c: what one run has timed and the next ones take. */
typedef struct rt_timed {
	char device[256], form[RT_FORM];
	uint64_t version; /* of the library */
	int64_t ns;       /* of a run; 0: not timed, the first choice */
	rt_way way;
} rt_timed;
/* So many lines of the file, NULL: none; `why`: one line where there is a file that is none of ours, else "". */
int rt_timed_read(const char *path, rt_timed **all, char *why, size_t room);
/* In one piece or not at all, those first that come first. false: errno says why. */
bool rt_timed_write(const char *path, const rt_timed *all, int n);

/* gpu_nccl.c: what crosses between GPUs without the host. It is started behind what the stream that computes was told so far and runs
 * on a stream of its own; `done` passes when it is over. false: it does not go that way, and nothing was begun. */
typedef struct rt_flight {
	cudaEvent_t ready, done;
	int channel, mb, peer; /* channel -1: a sum; peer: any of its group */
	int64_t step;
	bool under_way, sends;
} rt_flight;
bool rt_nccl_on(void);
bool rt_nccl_may(void); /* there are other ranks, and the program was built with it */
bool rt_nccl_built(void);
/* Before step 0: the communicators that this rank takes part in, as the bytes to allow for their buffers; makes them. */
size_t rt_nccl_find(const pd_program *p, double timeout);
void rt_nccl_open(void);
bool rt_nccl_message(rt_flight *f, int channel, int mb, int peer, void *buf, size_t bytes, bool sends);
bool rt_nccl_sum(rt_flight *f, const pd_group *g, float *buf, size_t count);
/* What the members of a tensor group tell each other: the sum of n floats; the n bytes of each, one behind the other; of n floats for each
 * member the sum of this one's. */
typedef enum rt_told { RT_TOLD_SUM, RT_TOLD_ALL, RT_TOLD_PART } rt_told;
bool rt_nccl_members(rt_flight *f, rt_told what, void *to, const void *from, size_t n);
bool rt_nccl_broadcast(rt_flight *f, const pd_group *g, int from, void *buf, size_t bytes);
/* Rows of all grains: each member gives those of its own. */
bool rt_nccl_rows(rt_flight *f, const pd_group *g, int grains, int32_t *ids, float *rows, int64_t n, int64_t width);
void rt_nccl_settle(void); /* waits for all that was begun, between steps: the others began their part too */
void rt_nccl_look(void);   /* whoever waits calls it: ends the run when something went wrong */

/* gpu_streams.c. An event is made when it is first recorded. */
typedef enum rt_stream_kind { RT_COMPUTE, RT_SENDS, RT_RECEIVES, RT_SUMS, RT_RETURNS, RT_STREAMS } rt_stream_kind;
cudaStream_t rt_stream(rt_stream_kind k);
void rt_streams_open(void); /* all of them: one that is made later may wait for messages */
void rt_record_on(cudaEvent_t *e, rt_stream_kind k);
void rt_record_at(cudaEvent_t *e, cudaStream_t s);
void rt_wait_on(rt_stream_kind k, cudaEvent_t e); /* what is started there from now on waits for e */
bool rt_not_yet(cudaError_t e);                   /* of a query: what was asked for has not passed */
void rt_until(cudaEvent_t e);                     /* the host waits */
void rt_finish(cudaStream_t s);
void rt_copy_on(rt_stream_kind k, void *to, const void *from, size_t bytes, bool to_host);
void rt_then(cudaEvent_t after, void (*run)(void *what), void *what); /* the host runs it once `after` has passed */
void rt_gpu_drain(void);                                              /* waits for all of them */
void rt_sums_return(void); /* gpu_sums.c: those that are made begin their way back to the device */

/* gpu_graph.c: what a function has the host do before its kernels; true: it was done. A loss that it reports, which is to be noted. */
typedef enum rt_todo { RT_TODO_INPUT, RT_TODO_RECEIVED, RT_TODO_SENT } rt_todo;
bool rt_section_before(rt_todo what, int a, int b, void *to);
void rt_section_note(int mb, bool hits);
/* What the host begins between two graphs of a function, by `begin`: a sum over replicas, what they have parts of, a wait for
 * these, or what a tensor group tells each other. */
typedef struct rt_cut {
	void (*begin)(const struct rt_cut *b);
	const pd_group *group;
	const void *from;
	void *to;
	int64_t count, run;
	bool plain;
	pd_sum how;          /* of a sum that is not plain */
	const pd_part *part; /* `count` of them */
} rt_cut;
bool rt_section_cut(const rt_cut *b); /* true: it begins there */
/* A call failed. true: in what is being captured, which will be called once more; the caller goes on. false: it is the caller's to tell. */
bool rt_capture_refused(const char *what, const char *why);
bool rt_capturing(void);   /* what is started now goes into a graph: the host may ask the device nothing */
bool rt_graphs_made(void); /* there are graphs, which keep addresses */
/* Memory that a step needs, before messages may be waited for. gpu_host.c: for what crosses through the host (direct: NCCL takes the rest). */
void rt_host_rooms(bool direct);
void rt_sum_rooms(bool by_nccl);      /* gpu_sums.c */
void rt_tensor_rooms(bool direct);    /* gpu_tensor.c: of a tensor group */
void rt_input_rooms(void);            /* gpu_input.c: two places for each input; once */
void rt_late_room(void);              /* numbers of the step */
void rt_numbers_room(void);           /* gpu_device.c: of kernels for the host */
void rt_notes_room(void);             /* gpu_device.c: losses */
int rt_gpu_notes(void);               /* losses noted in this step */
void rt_gpu_noted(int mb, bool hits); /* one more, whose place a kernel fills */
void rt_gpu_unnote(int n);            /* only the first n were */
void rt_gpu_fetch(int first); /* their places are filled from `first` on, by what was started: they go to the host */
void rt_gpu_set_count(float *to); /* of the step, which only the device knows yet */
const pd_group *rt_world(void);   /* gpu_way.c: all ranks */
void rt_join_counts(float *all, const float *mine,
	size_t n); /* of all ranks, by NCCL: n numbers of the device, which one rank has and others 0 */
/* gpu_kernels.cu: a number of the device as f32; two in one place, the second one in `count` too (may be NULL); a sum in that order. */
void rt_set_late(float *to, const double *from);
void rt_note(float *place, float *count, const float *first, const float *second);
void rt_set_sum(float *to, const float *counts, int n);

pd_tree *rt_gpu_tree(pd_tree *t); /* the host's tree behind that of a GPU program */

/* gpu_kernels.cu: rows[i] becomes row ids[i] of a table of so many rows; ids have so many bytes each, negative ones count from
 * the end, equal ones have equal rows. */
void pd_place_rows(
	float *table, int64_t height, const void *ids, int bytes, const float *rows, int64_t n, int64_t width);
/* gpu_kernels.cu: images [planes, in] have their places in larger ones [planes, out] from `front` on; copied there, or back. */
void pd_window(void *large, const void *small, size_t size, int64_t planes, const int *in, const int *front,
	const int *out, int there);
/* gpu_kernels.cu: images [n, c, points] from channels-last to plain order, or back. Elements of `size` bytes, 2 or 4. */
void pd_turn_images(void *to, const void *from, size_t size, int64_t n, int c, int64_t points, bool plain);

/* gpu_turns.cu, of recurrent layers: pieces of memory copied, all by one kernel; from NULL: zeros. */
enum { RT_PIECES = 12 }; /* at most */
void rt_copy_pieces(int count, float *const *to, const float *const *from, const int64_t *n);
/* to [steps, batch, k]: every sequence of `from` up to its length (NULL: steps), back to front where reverse; zeros behind. */
void rt_turn(float *to, const float *from, int steps, int batch, int k, const int32_t *lens, int reverse);
/* h [batch, k] is y at the last step of each sequence; of an empty one h0 (NULL: 0). */
void rt_last(float *h, const float *y, const float *h0, int batch, int k, const int32_t *lens);
/* The gradient of rt_last: dh is added to dy there, and of empty sequences to dh0. */
void rt_last_back(float *dy, const float *dh, int batch, int k, const int32_t *lens);
void rt_empty_back(float *dh0, const float *dh, int batch, int k, const int32_t *lens);

/* gpu_norm.cu: batch normalization by kernels of ours; and 1 / sqrt(variance + eps), one per channel, from or into variances.
 * more, bias of a backward: NULL, or of a normalization with a Relu (pd_bn_relu_forward, pd_bn_relu_backward). */
size_t pd_norm_room(const pd_bn_desc *d); /* bytes of `room` */
void pd_norm_forward(const pd_bn_desc *d, void *y, float *mean, float *var, const void *x, const float *scale,
	const float *bias, const void *more, double *room);
void pd_norm_evaluate(const pd_bn_desc *d, void *y, const void *x, const float *scale, const float *bias,
	const float *mean, const float *var, const void *more);
void pd_norm_backward(const pd_bn_desc *d, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	const float *mean, const float *var, const float *scale, const float *bias, double *room);
void pd_norm_variance(float *v, int c, float eps); /* in place */
void pd_norm_inverse(float *to, const float *var, int c, float eps);

/* gpu_ends.cu: what pd_product_run does behind a product that the library made bare: bias, end and what is kept, in place; the
 * sum of k rows of n. */
void pd_end_of(const pd_product_desc *d, void *y, void *also, const void *bias, const void *kept);
/* Images [n, c, points], or nhwc [n, points, c]: + bias [c] (NULL: none), then Relu; and the sum of each channel, for which there is
 * `room`, so many bytes. */
void pd_end_of_images(pd_dtype t, void *y, const void *bias, int relu, int64_t n, int c, int64_t points, bool nhwc);
size_t pd_sum_images_room(pd_dtype t, int64_t n, int c, int64_t points, bool nhwc);
void pd_sum_images(pd_dtype t, void *sum, const void *y, int64_t n, int c, int64_t points, bool nhwc, float *room);
size_t pd_sum_rows_room(int k, int n); /* bytes of pd_room for it */
void pd_sum_rows(pd_dtype in, pd_dtype out, void *sum, const void *x, int k, int n);

/* What kernels call: gpu.h. */
void pd_gemm_batch(pd_dtype in, pd_dtype out, int transa, int transb, int m, int n, int k, const void *a, int lda,
	int64_t astep, const void *b, int ldb, int64_t bstep, void *y, int batch);
cudaStream_t pd_stream(void);
void pd_launched(const char *kernel);
void *pd_room(size_t bytes);
bool pd_first_step(void);
double *pd_numbers(int n);
double pd_number(const double *number);

#endif
