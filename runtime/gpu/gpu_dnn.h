/* gpu_dnn.h: what the files that call cuDNN share (gpu_dnn.c). */
#ifndef GPU_DNN_H
#define GPU_DNN_H

#include "gpu_rt.h"
#include <cudnn.h>

cudnnHandle_t dnn_handle(void);
void dnn_check(cudnnStatus_t s, const char *what); /* R523; R521 where it lacks memory */
bool dnn_refused(cudnnStatus_t s);                 /* the library has no such operation */
cudnnDataType_t dnn_type(pd_dtype t);
/* [n, c, sp ...], plain or channels-last */
cudnnTensorDescriptor_t dnn_tensor(pd_dtype type, int n, int c, int nd, const int *sp, bool nhwc);
bool dnn_takes(int n, int c, int nd, const int *sp); /* no more numbers than it counts */

/* ---- attention: graphs of operations and their plans (gpu_attention_graph.c, gpu_attention.c) ---- */

/* Numbers of tensors; from ATTN_MADE on those that are never in memory. ACCUM and SUMS: what the backward keeps between its kernels. */
enum {
	ATTN_Q = 1,
	ATTN_K,
	ATTN_V,
	ATTN_Y,
	ATTN_LSE,
	ATTN_SCALE,
	ATTN_HIDDEN,
	ATTN_ONE,
	ATTN_DQ,
	ATTN_DK,
	ATTN_DV,
	ATTN_DY,
	ATTN_ACCUM,
	ATTN_SUMS,
	ATTN_MADE
};
enum { ATTN_NODES = 24, ATTN_WORKSPACE = 512 << 20 };

/* What is being built: nothing more happens after the first fault. */
typedef struct attn_graph {
	const pd_attention_desc *d;
	cudnnStatus_t s;
	cudnnBackendDescriptor_t op[ATTN_NODES];
	int n;
	int64_t uid;
	char why[256]; /* the library's words for it; "": there was none */
} attn_graph;

/* The first plan that can be made of what its heuristics name, and the workspace it needs; NULL: there is none. */
cudnnBackendDescriptor_t attn_plan(attn_graph *g, size_t *bytes);
/* Starts a plan with those tensors; g->s and g->why say how it went. */
void attn_start(attn_graph *g, cudnnBackendDescriptor_t plan, int n, const int64_t *uid, const void *const *at,
	void *workspace);

#endif
