/* What op families share: elements of compile-time tensors, attributes made by name, checks of shape rules, and the
 * loop nest that elementwise and data-moving kernels are (nest.cpu.c). */
#ifndef PDCC_IR_OPS_COMMON_H
#define PDCC_IR_OPS_COMMON_H

#include <stdio.h>
#include "../../op.h"

/* ---- compile-time tensors (tensor.c): row-major, any dtype ---- */
double elem_f(const Tensor *t, int64_t i);
int64_t elem_i(const Tensor *t, int64_t i);      /* floats are cut towards zero */
void elem_set_f(Tensor *t, int64_t i, double x); /* rounded to the dtype; integers: cut; bool: x != 0 */
void elem_set_i(Tensor *t, int64_t i, int64_t x);
void tensor_alloc(Tensor *t, const Type *type, Arena *a); /* zeroed */
/* The data of a constant as a tensor; data is NULL when v is no constant or its data was elided. */
Tensor const_tensor(const Value *v);
/* A literal of C: 0.125f, -1, INFINITY; negative ones in parentheses. */
const char *c_literal(Arena *a, DType t, double f, int64_t i);
/* What a literal is called in a kernel's name: 0.125f -> 0p125, (-1) -> m1. */
const char *name_of_literal(Arena *a, const char *literal);

/* ---- attributes (build.c) ---- */
void attr_put_int(OpKind op, void *attr, const char *name, int64_t v);
void attr_put_float(OpKind op, void *attr, const char *name, double v);
void attr_put_str(Arena *a, OpKind op, void *attr, const char *name, const char *v);
void attr_put_ints(Arena *a, OpKind op, void *attr, const char *name, int n, const int64_t *v);
Ints ints_dup(Arena *a, int n, const int64_t *v);

/* ---- graphs that gradients are made of (build.c); see also op.h ---- */
Value *mk_reduce(Builder *b, OpKind op, Value *x, Ints axes, int keepdims);
Value *mk_expand(Builder *b, Value *x, const Type *t); /* x itself when the shapes agree */
Value *mk_cast(Builder *b, Value *x, DType t);         /* x itself when it is of that type */

/* ---- shape rules (build.c) ---- */
Arena *node_arena(const Node *n);
/* All nin operands from `from` on exist and are of one dtype. */
bool same_dtype(const Node *n, int from, Diag *d);
/* ax in [-rank, rank) made non-negative in *out. `what` names the attribute in the message. */
bool norm_axis(const Node *n, Diag *d, const char *what, int64_t ax, int rank, int *out);
/* The same for a list, which may not name an axis twice; seen[] (MAXRANK bools) says which are named. */
bool norm_axes(const Node *n, Diag *d, const char *what, Ints axes, int rank, bool *seen);
void set_out(Node *n, int i, Type t); /* type of out[i], when that exists */
void trim_outs(Node *n, int count);   /* a node that was made with more outputs has only these */
/* GPUs: what a row of pd_many says of a weight x whose rounded copy y may lie channels last; NULL: it lies otherwise. */
const char *copy_order(Arena *a, const Type *x, const Type *y);
Cost cost_bytes(const Node *n, double flops); /* flops, and the bytes of all operands and outputs */

/* ---- rules of division (shard.c; as OpDef.shard) ---- */
/* Numpy broadcasting: the axis is the same for all, counted from the end. */
bool shard_elementwise(const Node *n, bool out, int at, ShardWay *w);
/* All operands and results of more than one element have one shape and are divided alike. */
bool shard_same_shapes(const Node *n, bool out, int at, ShardWay *w);
/* Element i of the operand is element i of the result, whatever their shapes. */
bool shard_reshape(const Node *n, bool out, int at, ShardWay *w);
/* Along the channels alone: `axis` of what has several axes, the only axis of what has one. */
bool shard_channels(const Node *n, bool out, int at, int axis, ShardWay *w);
/* Whether the seed (operand or result `at`) is divided along an axis; gives that shard and the type it is of. */
bool shard_seed(const Node *n, bool out, int at, const ShardWay *w, Shard *s, const Type **of);

/* ---- bounds of what attributes ask for (limits.c); E0305 with the attribute and its value ---- */
enum { STEP_MOST = 1 << 20, EXTENT_MOST = 1 << 30 }; /* strides, dilations, pads of a window; extents, kernels */
/* A list is empty, or has `count` entries in lo..hi. */
bool need_ints(const Node *n, Diag *d, const char *what, Ints v, int count, int64_t lo, int64_t hi);
/* The attributes of a window over the spatial axes of x (any may be empty), and the extents of x: what is computed of
 * them fits an int64_t, and where the window fits x, an int. */
bool need_window(const Node *n, Diag *d, const Type *x, Ints kernel, Ints strides, Ints dilations, Ints pads);
/* dims are those of a tensor of at most TENSOR_MOST bytes, which *out becomes. */
bool need_type(const Node *n, Diag *d, const char *what, Ints dims, DType t, Type *out);
/* An extent grows, by a factor or by what comes behind it, to at most TENSOR_MOST; neither number is below 0. */
bool dim_times(const Node *n, Diag *d, int axis, int64_t by, int64_t *dim);
bool dim_plus(const Node *n, Diag *d, int axis, int64_t by, int64_t *dim);
/* So many rows or columns of x are no more than libraries, and loops round them, count; E0304. */
bool need_count(const Node *n, Diag *d, const Type *x, int64_t count);
/* v has the shape of `want`; E0304. */
bool need_same_shape(const Node *n, Diag *d, const Value *v, const Type *want);

/* Binds what kernels of 16-bit floats need: HALF, TS (how an element of t lies in memory), LOAD and STORE (from there to
 * f32 and back; empty for other types). */
void half_holes(Holes *h, DType t);
/* Where random numbers drop elements: SEED, and DROPPED, 16 bits below which one is dropped (pd_random_four): of the ratio within 1 / 131072. */
void drop_holes(Holes *h, double ratio, int64_t seed);

/* ---- names of kernels ---- */
const char *dims_name(Arena *a, const Type *t); /* "32x784", "8x3x4x4nhwc", "1" */
const char *dtype_suffix(DType t);              /* "" for f32, else "_i64" */

/* ---- loop nests (nest.c) ---- */
enum { NEST_DIMS = 2 * MAXRANK, NEST_LOOPS = 8 };

/* Element (i0, i1, ..) of the iteration space is at offset + sum of i_k * stride[k] of an operand. */
typedef struct NestOp {
	const char *var; /* name of the pointer in the kernel */
	int64_t offset;
	int64_t stride[NEST_DIMS];
} NestOp;

typedef struct Nest {
	int rank;
	int64_t dim[NEST_DIMS]; /* outermost first */
	Arena *arena;
	NestOp *op; /* op[0] is what is written */
	int nop, capop;
} Nest;

void nest_begin(Nest *s, Arena *a, int rank, const int64_t *dim);
NestOp *nest_add(Nest *s, const char *var, int64_t offset, const int64_t *stride);
/* An operand of type t, broadcast to the iteration space (aligned at the last axis), in t's layout. */
NestOp *nest_add_type(Nest *s, const char *var, const Type *t);
/* Drops loops of one turn, puts loops in the order in which op[0] lies in memory, joins neighbours where every operand
 * allows it. Call once, after the last nest_add. */
void nest_finish(Nest *s);
/* A copy (op[0] = op[1]) that turns the fast axis: puts the loop along which op[1] lies in memory next to the innermost
 * and says true when the two are worth walking in tiles. After nest_finish. */
bool nest_tiled(Nest *s);
const char *nest_ref(Arena *a, const Nest *s, int op); /* "a[3 + j * 4 + i]" */
/* How the strides of operand `op` differ from an operand that lies like the whole space: "" when they do not, "10" when
 * it is broadcast over the inner of two loops, else the strides. Together with dims it fixes the text. */
/* GPU: declarations of the loops' variables for element number `flat` of the nest of just those loops whose bit is set
 * (bit d: dimension d), the last one fastest: "const IX i = e % 32;" ... */
const char *nest_index(Arena *a, const Nest *s, const char *flat, unsigned loops);
const char *nest_tag(Arena *a, const Nest *s, int op);
const char *nest_dims(Arena *a, const Nest *s); /* "32x784", "1" */
/* Binds RANK D0.. (innermost first) PAR IX OUTER, no TILE, VECTORS and no FILL (bind FILL, NUMEL and VALUE anew for one). */
void nest_holes(const Nest *s, Holes *h);
/* PARALLEL, what stands behind #pragma omp: over so many perfectly nested loops, or one that is also simd. */
void parallel_hole(Holes *h, bool simd, int loops);
/* Runs y[..] = a[..] (op[0], op[1]) at compile time on elements of `size` bytes. */
void nest_copy(const Nest *s, void *y, const void *a, int size);

#endif
