/* The elementwise family among itself: rows of elementwise.def, C text of one node, kernels made of several. */
#ifndef PDCC_IR_OPS_EW_H
#define PDCC_IR_OPS_EW_H

#include "../common/common.h"

typedef enum EwTypes { EW_NUM, EW_SIGNED, EW_FLOAT, EW_INT, EW_UINT, EW_BOOL, EW_ANY } EwTypes;
typedef enum EwResult { EW_R_SAME, EW_R_BOOL, EW_R_OTHER } EwResult;

typedef struct EwRow {
	int nin;
	EwTypes types;
	EwResult result;
	double flops;
	const char *expr;
	double (*f)(double a, double b, double c); /* NULL: of integers only */
	int64_t (*i)(int64_t a, int64_t b, int64_t c);
} EwRow;

/* Of Cast: ONNX number of the dtype; of Mod; of Cast: passes/graph/amp.c; of Cast: the result's order in memory, "": the operand's. */
struct ew_attr {
	int64_t to, fmod, once;
	const char *layout;
};
struct fused_attr {
	const char *code;
	Ints outs;
};

const EwRow *ew_row(OpKind op); /* NULL: not elementwise */
bool ew_shape(Node *n, Diag *d);
bool ew_eval(const Node *n, const Tensor *in, Tensor *out, Arena *a);
void ew_holes(const Node *n, Holes *h);
Cost ew_cost(const Node *n);

/* The node's expression with the given text for each operand. */
const char *ew_text(Arena *a, const Node *n, const char *const *operand);
/* An element of type t read into a register (dtype_math), and written from one. */
const char *ew_load(Arena *a, DType t, const char *ref);
const char *ew_store(Arena *a, DType t, const char *e);
/* Operand i is an argument of the kernel: no literal, and of operands of Fused that are one value only the first. */
bool ew_passed(const Node *n, int i);
/* Literal of operand i; only where ew_literal says so. */
const char *ew_literal_text(Arena *a, const Node *n, int i);
/* Declares the kernel's operands (PARAMS) and its statement (CALL): outputs, then the operands that are no literals.
 * var[k] names pointer k, outputs first. */
void ew_signature(const Node *n, Holes *h, const char *const *var);

/* GPUs: of a nest whose operand k is of type t[k], the first nout of them results: so many elements that lie side by side a thread does, with
 * instructions of 16 bytes where they lie so in memory; 0: one, wherever it lies. Binds VECTORS, READS and WRITES; the loop over them,
 * VECTOR_BODY, has ew_vector_ref where the body for one has nest_ref. */
int ew_vector_holes(const Nest *s, Holes *h, const DType *t, int nout);
const char *ew_vector_ref(Arena *a, const Nest *s, int op);

/* clang-format off */
#define GRAD(f) void f(Builder *b, const Node *n, Value *const *dy, Value **dx);
GRAD(g_relu) GRAD(g_sigmoid) GRAD(g_tanh) GRAD(g_erf) GRAD(g_exp) GRAD(g_log) GRAD(g_sqrt) GRAD(g_neg) GRAD(g_abs)
GRAD(g_zero) GRAD(g_recip) GRAD(g_sin) GRAD(g_cos) GRAD(g_add) GRAD(g_sub) GRAD(g_mul) GRAD(g_div) GRAD(g_pow)
GRAD(g_max) GRAD(g_mod) GRAD(g_sum) GRAD(g_where) GRAD(g_cast)
GRAD(g_prelu) GRAD(g_elu) GRAD(g_softplus) GRAD(g_gelu) GRAD(g_gelu_tanh) GRAD(g_mish)
GRAD(g_selu) GRAD(g_celu) GRAD(g_swish) GRAD(g_hsigm) GRAD(g_hswish) GRAD(g_softsign) GRAD(g_clip)
GRAD(g_tan) GRAD(g_asin) GRAD(g_atan) GRAD(g_sinh) GRAD(g_cosh) GRAD(g_asinh) GRAD(g_acosh) GRAD(g_atanh)
/* clang-format on */
#undef GRAD

#endif
