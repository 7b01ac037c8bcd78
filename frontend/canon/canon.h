/* Private to canon*.c: building nodes while an ONNX node is translated, and the translators of the table. */
#ifndef PDCC_FRONTEND_CANON_H
#define PDCC_FRONTEND_CANON_H

#include "frontend/onnx/onnx_file.h"

/* An op's attributes: a struct of defaults, or with what n says by name; one of them set. */
void *canon_attr_of(Import *im, OpKind op);
void canon_put_int(OpKind op, void *attr, const char *name, int64_t v);
void canon_put_float(OpKind op, void *attr, const char *name, double v);
void canon_put_str(OpKind op, void *attr, const char *name, const char *v);
void canon_put_ints(OpKind op, void *attr, const char *name, Ints v);
int64_t canon_get_int(OpKind op, const void *attr, const char *name);
Ints canon_get_ints(OpKind op, const void *attr, const char *name);
void *canon_attrs_by_name(Import *im, const OnnxNode *n, OpKind op);

/* A node with these operands; gives its outputs, which are constants where all it reads is constant. emit1: one or two
 * operands, the first output. emit_bind: the outputs become those of n. */
void canon_emit(Import *im, OpKind op, const void *attr, int nin, Value *const *in, const char *name, Value **out);
Value *canon_emit1(Import *im, OpKind op, const void *attr, Value *x, Value *y, const char *name);
bool canon_emit_bind(Import *im, const OnnxNode *n, OpKind op, const void *attr, int nin, Value *const *in);

/* Operands of n (absent ones NULL, count without trailing ones), a check that the first k are there, constants. */
bool canon_refuse(Import *im, const char *what);
const char *canon_out_name(const OnnxNode *n);
Value **canon_operands(Import *im, const OnnxNode *n, int *count);
bool canon_need(Import *im, const OnnxNode *n, size_t k);
Value *canon_scalar(Import *im, DType t, double x);

/* canon_make.c. cast_to and slice_axis give x itself where there is nothing to do. Slices: from..to of an axis, every
 * step-th; swap exchanges two axes; join lays y behind x along an axis. */
Value *canon_binary(Import *im, OpKind op, Value *x, Value *y);
Value *canon_cast_to(Import *im, Value *x, DType t);
Value *canon_slice_axis(Import *im, Value *x, int axis, int64_t from, int64_t to, int64_t step);
Value *canon_join(Import *im, Value *x, Value *y, int axis, const char *name);
Value *canon_swap(Import *im, Value *x, int a, int b);

/* stack.c: n values side by side along `axis`, along a fresh one of their own if so asked. NULL after a diagnostic. */
Value *canon_stack(Import *im, int n, Value *const *part, int64_t axis, bool fresh, const char *name);
Value *canon_reshape_to(Import *im, Value *x, int rank, const int64_t *dim, const char *name);
/* axes from operand `operand` (opset 13) or the attribute; *given says whether there were any. */
bool canon_axes_of(Import *im, const OnnxNode *n, size_t operand, Ints *axes, bool *given);

/* Fills kernel_shape, strides, dilations and pads of a window op for all spatial axes of x; resolves auto_pad.
 * `kernel`: the extents where the node does not give them, NULL where it must. */
bool canon_window(Import *im, const OnnxNode *n, OpKind op, void *at, const Type *x, const int64_t *kernel);

/* ---- translators: false after a diagnostic ---- */
bool canon_constant_node(Import *im, const OnnxNode *n);
bool canon_constant_of_shape(Import *im, const OnnxNode *n);
bool canon_reshape(Import *im, const OnnxNode *n);
bool canon_flatten(Import *im, const OnnxNode *n);
bool canon_squeeze(Import *im, const OnnxNode *n);
bool canon_unsqueeze(Import *im, const OnnxNode *n);
bool canon_expand(Import *im, const OnnxNode *n);
bool canon_tile(Import *im, const OnnxNode *n);
bool canon_slice(Import *im, const OnnxNode *n);
bool canon_split(Import *im, const OnnxNode *n);
bool canon_pad(Import *im, const OnnxNode *n);
bool canon_trilu(Import *im, const OnnxNode *n);
bool canon_reduce(Import *im, const OnnxNode *n);
bool canon_mean(Import *im, const OnnxNode *n);
bool canon_gemm(Import *im, const OnnxNode *n);
bool canon_conv(Import *im, const OnnxNode *n);
bool canon_conv_transpose(Import *im, const OnnxNode *n);
bool canon_col2im(Import *im, const OnnxNode *n);
bool canon_dft(Import *im, const OnnxNode *n);
bool canon_stft(Import *im, const OnnxNode *n);
bool canon_rotary(Import *im, const OnnxNode *n);
bool canon_max_pool_indices(Import *im, const OnnxNode *n, const void *pool, const Type *x, Value *place);
/* *size, of an axis of operand 0, which is x: at the batch that is wanted. */
bool canon_rebound(Import *im, const OnnxNode *n, const Type *x, int axis, int64_t *size);
bool canon_max_unpool(Import *im, const OnnxNode *n);
bool canon_resize(Import *im, const OnnxNode *n);
bool canon_pool(Import *im, const OnnxNode *n);
bool canon_global_max_pool(Import *im, const OnnxNode *n);
bool canon_batch_norm(Import *im, const OnnxNode *n);
bool canon_layer_norm(Import *im, const OnnxNode *n);
bool canon_instance_norm(Import *im, const OnnxNode *n);
bool canon_group_norm(Import *im, const OnnxNode *n);
bool canon_lrn(Import *im, const OnnxNode *n);
bool canon_mvn(Import *im, const OnnxNode *n);
bool canon_lp_norm(Import *im, const OnnxNode *n);
bool canon_lp_pool(Import *im, const OnnxNode *n);
bool canon_global_lp_pool(Import *im, const OnnxNode *n);
bool canon_softmax(Import *im, const OnnxNode *n);
bool canon_loss(Import *im, const OnnxNode *n);
bool canon_dropout(Import *im, const OnnxNode *n);
bool canon_random(Import *im, const OnnxNode *n);
bool canon_bernoulli(Import *im, const OnnxNode *n);
bool canon_clip(Import *im, const OnnxNode *n);
bool canon_cast(Import *im, const OnnxNode *n);
bool canon_attention(Import *im, const OnnxNode *n);
bool canon_sequence_construct(Import *im, const OnnxNode *n);
bool canon_sequence_empty(Import *im, const OnnxNode *n);
bool canon_sequence_insert(Import *im, const OnnxNode *n);
bool canon_sequence_erase(Import *im, const OnnxNode *n);
bool canon_sequence_at(Import *im, const OnnxNode *n);
bool canon_sequence_length(Import *im, const OnnxNode *n);
bool canon_split_to_sequence(Import *im, const OnnxNode *n);
bool canon_concat_from_sequence(Import *im, const OnnxNode *n);
bool canon_gather_elements(Import *im, const OnnxNode *n);
bool canon_scatter(Import *im, const OnnxNode *n);
bool canon_top_k(Import *im, const OnnxNode *n);
bool canon_cumsum(Import *im, const OnnxNode *n);
bool canon_one_hot(Import *im, const OnnxNode *n);
bool canon_nonzero(Import *im, const OnnxNode *n);
bool canon_compress(Import *im, const OnnxNode *n);
bool canon_eye_like(Import *im, const OnnxNode *n);
bool canon_depth_to_space(Import *im, const OnnxNode *n);
bool canon_recurrent(Import *im, const OnnxNode *n);
bool canon_leaky_relu(Import *im, const OnnxNode *n);
bool canon_prelu(Import *im, const OnnxNode *n);
bool canon_elu(Import *im, const OnnxNode *n);
bool canon_selu(Import *im, const OnnxNode *n);
bool canon_celu(Import *im, const OnnxNode *n);
bool canon_thresholded_relu(Import *im, const OnnxNode *n);
bool canon_shrink(Import *im, const OnnxNode *n);
bool canon_hard_sigmoid(Import *im, const OnnxNode *n);
bool canon_swish(Import *im, const OnnxNode *n);
bool canon_gelu(Import *im, const OnnxNode *n);
bool canon_where(Import *im, const OnnxNode *n);
bool canon_hardmax(Import *im, const OnnxNode *n);
bool canon_is_inf(Import *im, const OnnxNode *n);
bool canon_bit_shift(Import *im, const OnnxNode *n);
bool canon_cast_like(Import *im, const OnnxNode *n);
bool canon_sign(Import *im, const OnnxNode *n);
bool canon_extreme(Import *im, const OnnxNode *n);
bool canon_einsum(Import *im, const OnnxNode *n);

/* v is a constant, and all of it is x. */
bool canon_all_of(const Value *v, double x);

#endif
