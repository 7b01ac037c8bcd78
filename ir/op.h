/* One place per op: what the rest of the compiler may ask of it. An op tells facts and rules; it prints nothing. */
#ifndef PDCC_IR_OP_H
#define PDCC_IR_OP_H

#include <stddef.h>
#include "ir.h"

enum { MAXIN = 16 }; /* table columns; Concat and friends are variadic: maxin -1, rules of column 0 */

enum OpFlags {
	OP_PURE = 1,     /* output depends on operands and attributes only: may be folded, merged, dropped */
	OP_VIEW = 2,     /* out[0] is in[0] seen with another shape: no code, shares memory */
	OP_EW = 4,       /* elementwise with numpy broadcasting: may be fused into loops (see elementwise.def) */
	OP_HEAVY = 8,    /* a vendor library call: a good place to cut a pipeline after */
	OP_COMM = 16,    /* Send, Recv, AllReduce ... */
	OP_UPDATE = 32,  /* writes params in place (writes says which operands); has no outputs */
	OP_INPLACE = 64, /* out[0] may take the memory of in[0] when that dies here and types agree */
	OP_RANDOM = 128, /* draws counter-based random numbers by global sample index */
	OP_NHWC = 256    /* kernels also take channels-last: operands of rank >= 3 all in one layout */
};

typedef enum AttrKind { A_END, A_INT, A_FLOAT, A_STR, A_INTS, A_FLOATS } AttrKind;
typedef struct AttrDef {
	const char *name;
	AttrKind kind;
	size_t offset;    /* in the op's struct: int64_t, double, const char *, Ints, Floats */
	double def;       /* default of A_INT and A_FLOAT; the others default to empty / NULL */
	const char *sdef; /* default of A_STR */
} AttrDef;
#define AT_INT(S, f, d) { #f, A_INT, offsetof(S, f), d, NULL }
#define AT_FLOAT(S, f, d) { #f, A_FLOAT, offsetof(S, f), d, NULL }
#define AT_STR(S, f, d) { #f, A_STR, offsetof(S, f), 0, d }
#define AT_INTS(S, f) { #f, A_INTS, offsetof(S, f), 0, NULL }
#define AT_FLOATS(S, f) { #f, A_FLOATS, offsetof(S, f), 0, NULL }
#define AT_END { NULL, A_END, 0, 0, NULL }

typedef enum GradKind { NOGRAD, DENSE, ROWS } GradKind;

typedef struct Cost {
	double flops, bytes;
} Cost;

/* Holes of a kernel template and of its statements. */
typedef struct Hole {
	const char *name;
	bool is_int;
	int64_t i;
	const char *s;
} Hole;
enum { MAXHOLES = 96 };
typedef struct Holes {
	Arena *arena;
	const char *name; /* kernel function name, legal C; same name must mean same text */
	Hole h[MAXHOLES];
	int n;
} Holes;
void hole_int(Holes *h, const char *name, int64_t v);
void hole_text(Holes *h, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void hole_name(Holes *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* How a node becomes C. `file` is a template beside the op (NULL: none, the call is to pd.h).
 * Statement patterns: $k kernel name, $= or $=0 $=1 .. outputs, $0 $1 .. inputs, $o the node's library object,
 * $scratch its scratchpad, $name a hole. An absent optional operand prints as NULL.
 * A text hole named CALL, where the op binds one, takes the place of `call`: operands that the kernel holds as
 * literals (ew_literal) are left out there, and variadic ops list theirs. So only constants that some statement
 * names need memory. CUDA_CALL is the same for GPUs alone; DIRECT_CALL for CPUs alone, and no template is filled.
 * CUDA_FILE, for GPUs, takes the place of `file`. MANY, a pattern too, says that nodes may go into one launch: each is a row of
 * a table of pd_many, `$rows` in the statement, and those whose statements are the same otherwise go together. $copy,
 * in a row of an update, is the copy of its weight in 16 bits (ir/analysis.h: copy_beside).
 * SHARED_NAME is what a kernel for CPUs is called that does for all sizes, MANY_NAME one of rows. A node has an object where its statement
 * names $o. */
typedef struct Kernel {
	const char *file;   /* "softmax.cpu.c" */
	const char *call;   /* "$k($=, $0);" */
	const char *object; /* type of a library object made once before step 0, e.g. "pd_conv"; NULL: none */
	const char *init;   /* "pd_conv_init(&$o, ...);" run before step 0 */
	bool products;      /* GPU: its template calls pd_gemm or its like, which init opens */
} Kernel;

/* What a node asks of the vendor library, in plain numbers (pd.h: pd_conv_desc, pd_bn_desc); the library pass asks for
 * the scratchpad, and the node's statements name the same numbers. */
typedef enum LibKind { LIB_NONE, LIB_CONV, LIB_BN, LIB_PRODUCT, LIB_RECURRENT, LIB_ROOM } LibKind;
typedef struct Lib {
	LibKind kind;
	DType type; /* LIB_CONV: of the operands */
	int what;   /* 0 forward, 1 backward by data, 2 backward by weights */
	int nd, n, c, oc, groups, nhwc, krsc, bias;
	int in[3], out[3], kernel[3], stride[3], pad_begin[3], pad_end[3], dilation[3];
	float eps;
	int64_t bytes; /* LIB_PRODUCT, LIB_RECURRENT, LIB_ROOM: of scratch, whatever the library says; LIB_ROOM is for CPUs alone */
} Lib;

/* A compile-time tensor: what eval takes and gives. */
typedef struct Tensor {
	Type type;
	void *data;
} Tensor;

typedef struct OpDef {
	const char *name;              /* as ONNX names it, where ONNX has it */
	int minin, maxin, nout, flags; /* nout: the most outputs; shape rule may leave optional ones NULL */
	int (*outs)(const void *attr); /* where attributes say how many outputs there are, in place of nout */
	const char *const *outputs;    /* what they are called behind the first; NULL: 1, 2 ... */
	const AttrDef *attrs;
	size_t attrsize;
	unsigned writes; /* OP_UPDATE: bit i: operand i (a param) is written; of a node: node_writes */
	/* Checks the operands, sets out[i]->type for all outputs that exist. On a fault: return diag_error(...). */
	bool (*shape)(Node *n, Diag *d);
	/* How n may be computed by parts on several devices: shard_way (shard.h). NULL: elementwise ops by their broadcasting, others
	 * not at all. */
	bool (*shard)(const Node *n, bool out, int at, ShardWay *w);
	/* Gradients: dy[i] is the gradient of out[i] (NULL: none reaches it); set dx[i] for the operands that have one. */
	void (*grad)(Builder *b, const Node *n, Value *const *dy, Value **dx);
	GradKind dgrad[MAXIN];
	Cost (*cost)(const Node *n); /* NULL: no flops, bytes of operands and outputs */
	void (*holes)(const Node *n, Holes *h);
	/* Constant folding: all operands are constants (or the op reads only their types: Shape, Size).
	 * Allocates out[i].data in the arena. NULL: never folded, unless OP_EW gives a rule. */
	bool (*eval)(const Node *n, const Tensor *in, Tensor *out, Arena *a);
	void (*lib)(const Node *n, Lib *l); /* NULL: no library object */
	Kernel cpu;                         /* what training uses (f32) */
	Kernel ref;                         /* plain loops, any float type; used when cpu is empty, and for f64 */
	Kernel cuda;
	Kernel vendor; /* GPUs: in place of cuda where by_vendor says that the library does it; `call` wins over the hole CALL */
	bool (*by_vendor)(const Node *n);
} OpDef;

extern const OpDef *const optab[OP_COUNT];
OpKind op_find(const char *name); /* OP_NONE if unknown */
const AttrDef *op_attr(OpKind op, const char *name);
void *attr_new(Arena *a, OpKind op); /* the op's struct with all defaults (ops/common/build.c) */
int op_dgrad(const Node *n, int i);  /* GradKind of operand i, variadic ops included */

/* How many outputs a node of these attributes has at the most. */
int op_outs(OpKind op, const void *attr);

/* ---- helpers that gradients are made of (ops/common/build.c) ---- */
Value *reduce_to(Builder *b, Value *dy, const Type *t); /* undo broadcasting: sums over the broadcast axes */
Value *mk_binary(Builder *b, OpKind op, Value *x, Value *y);
Value *mk_unary(Builder *b, OpKind op, Value *x);
Value *mk_reshape(Builder *b, Value *x, const Type *t); /* x itself when the shapes agree */
Value *mk_transpose(Builder *b, Value *x, const int64_t *perm);
Value *mk_gemm(Builder *b, Value *x, Value *y, Value *bias, int transA, int transB);
Value *mk_scalar(Builder *b, DType t, double x);

/* ---- products of matrices (ops/matmul/product.c): what a Product is made of; end as there ---- */
typedef struct ProductForm {
	Value *in[6]; /* a, b, bias, what the forward kept, scales of a and b; the last four may be NULL */
	bool transa, transb, keep;
	int to, sum, wide, f8;
	int64_t columns;
	const char *end;
} ProductForm;
ProductForm product_form(const Node *n); /* of a Gemm, MatMul or Product */
Node *product_make(Builder *b, const ProductForm *f);
/* ops/loss: the ScoreLoss, ScoreLossGrad or ScoreLossAndGrad (op) that gives t, of what a loss over softmax, or its gradient, does. */
Node *score_loss_make(Builder *b, OpKind op, const Node *of, int nin, Value *const *in, int64_t classes, DType t);
/* ops/norm: rows from axis on stay in registers of a GPU, so that what lies round a normalisation can be part of it. */
bool norm_in_registers(const Type *x, int64_t axis);
/* Elements that lie in a row of what Dropout takes, of which some share a draw; rows: its attribute. */
int64_t dropout_width(const Type *t, int64_t rows);
int64_t product_rows(const Node *n); /* of a Product's result as one matrix; 0: it is several */
/* A Gemm, MatMul or Product that can add to what lies where its (first) result goes: one f32 matrix as it is. */
bool product_adds(const Node *n);
bool product_even(const Node *n); /* a Gemm or MatMul: its matrices lie at even distances, or are one */
/* What a Gemm, MatMul or Product may take in 8 bits (--amp fp8; passes/graph/amp.c says it): nothing; both operands, of which the
 * forward made both, or the gradient is a, or b. */
typedef enum ProductF8 { F8_NONE, F8_FORWARD, F8_GRADIENT_A, F8_GRADIENT_B } ProductF8;
/* What a tensor of 8 bits has beside it, f32[F8_STATE] (ops/matmul/quantize.c): what its numbers are times, the largest of this step,
 * and that of each step before. */
enum { F8_STEPS = 16, F8_STATE = 2 + F8_STEPS };
enum { F8_PLAIN = 1, F8_ACROSS = 2 }; /* as x lies, rows and columns exchanged, or both */
/* A Quantize of x, seen as rows of `columns` numbers, to DT_f8e4m3 or DT_f8e5m2, and the Rescale of its state. */
Node *quantize_make(Builder *b, Value *x, Value *state, DType to, int lies, int64_t columns, const char *name);
Node *rescale_make(Builder *b, Value *state, DType to);

/* A node of a recurrent layer as cuDNN takes it (ops/recurrent/layer.c), of a node that does the layer's steps; bias: how many it has. */
Node *recurrent_make(Builder *b, OpKind op, const Node *of, int bias, int nin, Value *const *in);

/* A rounded copy of a weight, in 16 bits or in 8, that is made once per step, behind its update (passes/graph/amp.c); it lies with the
 * optimizer's state. */
static inline bool cast_once(const Node *n)
{
	return (n->op == OP_Cast || n->op == OP_Quantize) && attr_int(n, "once");
}

/* Can be made so: of a weight that no server has. */
static inline bool rounds_weight(const Node *n)
{
	const Value *w = (n->op == OP_Cast || n->op == OP_Quantize) && n->nin ? n->in[0] : NULL;

	return w && w->kind == VAL_PARAM && w->param->kind == PARAM_WEIGHT && w->param->sync != SYNC_PS &&
	       w->type.dtype == DT_f32 && (n->op == OP_Quantize || dtype_half(n->out[0]->type.dtype));
}

/* ---- elementwise nodes as C (ops/elementwise/): see elementwise.def and fused.c ---- */
/* The C expression of an OP_EW node over operands $0 $1 ..., e.g. "$0 < 0 ? 0 : $0"; the node's type fills in
 * expf or exp. NULL: the node is not elementwise. */
const char *ew_expr(Arena *a, const Node *n);
bool ew_literal(const Node *n, int i); /* operand i is a constant that stands in the kernel as a literal */
/* Builds one Fused node that does what the n nodes do (all OP_EW, in program order, outputs of one shape and layout).
 * Operands: what they read from outside; outputs: what is used outside (or is a graph output), named as before with
 * uses moved over; the n nodes are removed. b->before: a place behind all operands and before all uses. NULL:
 * does not fit (too many operands, shapes differ); nothing changed. */
Node *ew_fuse(Builder *b, Node *const *node, int n);

#endif
