/* cpu.h: what the cpu*.c files share: building oneDNN primitives and running them without
 * allocating. */
#ifndef CPU_H
#define CPU_H

#include "pd.h"
#include <oneapi/dnnl/dnnl.h>

/* How an operand lies in memory; made and dropped by the two calls below, else the same of both versions. */
#if DNNL_VERSION_MAJOR == 2
typedef dnnl_memory_desc_t cpu_layout;
#elif DNNL_VERSION_MAJOR == 3
typedef struct dnnl_memory_desc cpu_layout;
#else
#error "oneDNN 2 or 3 is needed (Debian 12 and 13: libdnnl-dev)"
#endif

enum { CPU_ARGS = 8 };

/* A primitive with its memory objects. Descriptors are `made` by the callers; size queries need
 * no more than `pd`. */
typedef struct cpu_prim {
	dnnl_primitive_desc_t pd;
	dnnl_primitive_t prim;
	int n;
	dnnl_exec_arg_t arg[CPU_ARGS];
} cpu_prim;

dnnl_engine_t cpu_engine(void);
void cpu_check(dnnl_status_t s, const char *what); /* ends the program where oneDNN failed */

/* A convolution in direction `what`; x, w, b and y are gradients where it writes them. b NULL: no bias. */
typedef struct cpu_convolution {
	int what;
	cpu_layout *x, *w, *b, *y;
	dnnl_dims_t stride, dilation, lo, hi; /* dilation 0: none */
} cpu_convolution;

/* ---- cpu_onednn2.c and cpu_onednn3.c: the calls that the versions do not share ---- */

/* stride NULL: as oneDNN likes it. */
cpu_layout *cpu_layout_make(pd_dtype t, int n, const dnnl_dims_t dim, const dnnl_dims_t stride);
void cpu_layout_drop(cpu_layout *md);
dnnl_status_t cpu_conv_ask(dnnl_primitive_desc_t *pd, const cpu_convolution *c, const_dnnl_primitive_desc_t hint,
	const_dnnl_primitive_attr_t attr);
/* y = x w, or y + x w where `adds`. */
dnnl_status_t cpu_product_ask(dnnl_primitive_desc_t *pd, const cpu_layout *x, const cpu_layout *w, const cpu_layout *y,
	bool adds, dnnl_primitive_attr_t attr);

/* ---- cpu.c ---- */

dnnl_data_type_t cpu_type(pd_dtype t);
/* The processor multiplies floats of 16 bits itself; decided once, when the program runs. */
bool cpu_multiplies(pd_dtype t);
bool cpu_multiplies_fp16(void); /* cpu_onednn*.c */

/* Asks oneDNN for an implementation that takes its scratchpad from the caller. false: there is
 * none. */
bool cpu_ask(cpu_prim *p, const cpu_convolution *c, const_dnnl_primitive_desc_t hint);
bool cpu_ask_product(cpu_prim *p, const cpu_layout *x, const cpu_layout *w, const cpu_layout *y, bool adds);
bool cpu_ask_reorder(cpu_prim *p, const cpu_layout *from, const cpu_layout *to);
bool cpu_is_loops(const cpu_prim *p);  /* oneDNN has them for lack of better ones, and slow */
size_t cpu_scratch(const cpu_prim *p); /* rounded to 64 */
/* Creates the primitive and memory objects for the given DNNL_ARG_* (ended by 0); the scratchpad
 * comes last. */
void cpu_make(cpu_prim *p, const int *args);
/* Runs with one pointer per argument, in the order of cpu_make, the scratchpad last. */
void cpu_run(const cpu_prim *p, void *const *data);
void cpu_drop(cpu_prim *p);
const cpu_layout *cpu_md(const cpu_prim *p, int arg);

static inline size_t cpu_round(size_t n) { return (n + 63) / 64 * 64; }

/* Activations n x c x nd spatial axes, plain or channels-last. */
cpu_layout *cpu_activation(pd_dtype t, int n, int c, int nd, const int *sp, int nhwc);
_Noreturn void cpu_fail(int status, const char *fmt, ...);
void *cpu_alloc(size_t n);

/* ---- cpu_winograd.c: convolutions of channels-last f32 ---- */

bool cpu_winograd_takes(const pd_conv_desc *d);     /* it can, and gains by it */
double cpu_winograd_work(const pd_conv_desc *d);    /* as pd_conv_work */
size_t cpu_winograd_scratch(const pd_conv_desc *d); /* bytes, for as many threads as OpenMP has now */
/* Forward, y from x; backward by the data, dX in place of y from dY in place of x. g: the filters, bias: NULL where there is none. */
void cpu_winograd_data(
	const pd_conv_desc *d, float *y, const float *x, const float *g, const float *bias, void *scratch);
/* db: NULL where no bias is asked for. */
void cpu_winograd_weights(const pd_conv_desc *d, float *dw, float *db, const float *x, const float *dy, void *scratch);

/* ---- cpu_product.c ---- */

/* pd_gemm_half by a primitive; room: for what it works in. false: there is none, also of a column of numbers that lie apart;
 * nothing was done. */
bool cpu_product(int room, pd_dtype in, pd_dtype out, int transa, int transb, int m, int n, int k, const uint16_t *a,
	int lda, const uint16_t *b, int ldb, float beta, void *c, int ldc);

#endif
