/* cpu.h: what the cpu*.c files share: building oneDNN primitives and running them without
 * allocating. */
#ifndef CPU_H
#define CPU_H

#include "pd.h"
#include <oneapi/dnnl/dnnl.h>

#if DNNL_VERSION_MAJOR != 2
#error "oneDNN 2 is needed (Debian 12: libdnnl-dev); version 3 has other descriptor calls"
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
/* Asks oneDNN for an implementation that takes its scratchpad from the caller. false: there is
 * none. */
bool cpu_ask(cpu_prim *p, const void *op_desc, const_dnnl_primitive_desc_t hint);
bool cpu_ask_reorder(cpu_prim *p, const dnnl_memory_desc_t *from, const dnnl_memory_desc_t *to);
size_t cpu_scratch(const cpu_prim *p); /* rounded to 64 */
/* Creates the primitive and memory objects for the given DNNL_ARG_* (ended by 0); the scratchpad
 * comes last. */
void cpu_make(cpu_prim *p, const int *args);
/* Runs with one pointer per argument, in the order of cpu_make, the scratchpad last. */
void cpu_run(const cpu_prim *p, void *const *data);
void cpu_drop(cpu_prim *p);
const dnnl_memory_desc_t *cpu_md(const cpu_prim *p, int arg);

static inline size_t cpu_round(size_t n) { return (n + 63) / 64 * 64; }

/* Activations n x c x nd spatial axes, plain or channels-last. */
void cpu_activation(dnnl_memory_desc_t *md, int n, int c, int nd, const int *sp, int nhwc);
_Noreturn void cpu_fail(int status, const char *fmt, ...);
void *cpu_alloc(size_t n);

#endif
