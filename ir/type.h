/* Element types and tensor types. Shapes are static: every dimension is known after import. */
#ifndef PDCC_IR_TYPE_H
#define PDCC_IR_TYPE_H

#include <stdbool.h>
#include <stdint.h>
#include "ir/base/arena.h"

/*      name  C type     bytes  ONNX TensorProto.DataType */
/* clang-format off */
#define DTYPES(X) \
	X(f32,  float,    4,  1) X(f64,  double,   8, 11) X(f16,  uint16_t, 2, 10) X(bf16, uint16_t, 2, 16) \
	X(i8,   int8_t,   1,  3) X(i16,  int16_t,  2,  5) X(i32,  int32_t,  4,  6) X(i64,  int64_t,  8,  7) \
	X(u8,   uint8_t,  1,  2) X(u16,  uint16_t, 2,  4) X(u32,  uint32_t, 4, 12) X(u64,  uint64_t, 8, 13) \
	X(bool, uint8_t,  1,  9) X(f8e4m3, uint8_t, 1, 17) X(f8e5m2, uint8_t, 1, 19)
/* clang-format on */

typedef enum DType {
	DT_NONE,
#define X(name, ctype, bytes, onnx) DT_##name,
	DTYPES(X)
#undef X
		DT_COUNT
} DType;

enum { MAXRANK = 8 };
#define TENSOR_MOST ((int64_t)1 << 46) /* bytes of a tensor; what files and shape rules ask for is checked */

/* Physical order of the elements; dim[] is always the logical (ONNX) order. */
typedef enum Layout {
	LAYOUT_PLAIN, /* row-major */
	LAYOUT_NHWC,  /* rank >= 3: channels (axis 1) last */
	LAYOUT_COUNT
} Layout;

typedef struct Type {
	DType dtype;
	int rank;
	int64_t dim[MAXRANK]; /* always known */
	int64_t rows;         /* 0: dense.  n: row-sparse, at most n rows of dim[0] present */
	Layout layout;
} Type;

const char *dtype_name(DType t); /* "f32" */
const char *dtype_c(DType t);    /* "float" */
int dtype_bytes(DType t);
DType dtype_from_name(const char *s); /* DT_NONE if unknown */
DType dtype_from_onnx(int onnx);      /* of what a model may have; DT_NONE if unknown */
int dtype_onnx(DType t);
bool dtype_float(DType t);
bool dtype_signed(DType t);
bool dtype_half(DType t); /* f16, bf16: kernels load and store them, and compute in f32 */
bool dtype_f8(
	DType t); /* f8e4m3, f8e5m2: a number of 8 bits times a scale that a parameter has; products alone read them */
DType dtype_math(DType t); /* what values of t are computed in: f32 for those, else t */

bool layout_from_name(const char *s, Layout *l); /* "plain", "nhwc" */

Type type_make(DType t, int rank, const int64_t *dim);
Type type_scalar(DType t);
bool type_eq(const Type *a, const Type *b); /* layout and rows included */
bool shape_eq(const Type *a, const Type *b);
int64_t type_numel(const Type *t);                 /* product of dim */
int64_t type_bytes(const Type *t);                 /* dense: numel * size; row-sparse: rows * (row bytes + 8) */
void type_strides(const Type *t, int64_t *stride); /* in elements, by logical axis, layout respected */
/* Rows along the first axis that a sum over all elements adds together, so that there are at most 256 such blocks. A table is
 * cut between them alone (passes/comm/tables.c): its pieces have the sums of the whole. 0: it has no two rows. */
int64_t type_block_rows(const Type *t);
const char *str_type(
	Arena *a, const Type *t); /* "f32[32,784]", "i64[]", "f32[50000,64] rows<=32", "f32[8,3,4,4]nhwc" */
const char *str_shape(Arena *a, const Type *t); /* "[32,784]" */

/* numpy broadcasting of two shapes; false when they do not fit. */
bool shape_broadcast(const Type *a, const Type *b, Type *out);

#endif
