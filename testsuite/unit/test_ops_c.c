/* Shape rules of normalisations, resizing and the indices of pools, and the exact messages for operands that do not fit.
 * What their kernels and gradients give is checked by whole programs (grad, spatial, onnx-backend, oracle). */
#include "shapes.h"

static Node *make(OpKind op, const void *attr, int nin, Value *const *in) { return build(&at, op, attr, nin, in, "y"); }

#define MAKE(op, attr, ...) \
	make(OP_##op, attr, (int)(sizeof(Value *[]){ __VA_ARGS__ } / sizeof(Value *)), (Value *[]){ __VA_ARGS__ })

static void *with_int(OpKind op, const char *name, int64_t v)
{
	void *attr = attr_new(arena, op);

	attr_put_int(op, attr, name, v);
	return attr;
}

/* ---- normalisations ---- */

static void test_plain_norm(void **state)
{
	Node *n;

	(void)state;
	n = MAKE(LayerNormalization, NULL, F32(8, 5, 64));
	gives(n, 0, "f32[8,5,64]");
	gives(n, 2, "f32[8,5,1]");
	n = MAKE(LayerNormGrad, NULL, F32(8, 64), F32(8, 64), F32(8, 1), F32(8, 1));
	gives(n, 0, "f32[8,64]");
	assert_int_equal(n->nout, 1);
	n = MAKE(RMSNormalization, with_int(OP_RMSNormalization, "axis", 1), F32(8, 5, 64), F32(5, 64));
	gives(n, 1, "f32[8,1,1]");
	n = MAKE(RMSNormGrad, NULL, F32(8, 64), F32(8, 64), F32(8, 1), F32(64));
	gives(n, 1, "f32[64]");
	MAKE(LayerNormGrad, NULL, F32(8, 64), F32(8, 64), F32(8, 1), F32(8));
	refused("is [8], it must be [8,1] [E0304]");
	MAKE(RMSNormalization, NULL, F32(8, 64), F32(8));
	refused("RMSNormalization: scale is [8], the normalised axes are [64] [E0304]");
}

static void test_lrn(void **state)
{
	(void)state;
	gives(MAKE(LRN, with_int(OP_LRN, "size", INT64_MAX), F32(2, 3, 4, 4)), 1, "f32[2,3,4,4]");
	MAKE(LRN, NULL, F32(2, 3, 4, 4));
	refused("LRN: size is 0; it must be at least 1");
	MAKE(LRN, with_int(OP_LRN, "size", 3), F32(7));
	refused("LRN: X is f32[7]; it takes floats with a channel axis");
	MAKE(LRN, with_int(OP_LRN, "size", 3), operand(DT_i64, DIMS(2, 3)));
	refused("LRN: X is i64[2,3]");
	MAKE(LRNGrad, with_int(OP_LRNGrad, "size", 3), F32(2, 3, 4), F32(2, 3, 5), F32(2, 3, 5));
	refused("is [2,3,4], it must be [2,3,5]");
}

/* ---- resizing ---- */

static Value *table(int64_t out, int64_t k, const int32_t *v)
{
	return module_const(mod, NULL, type_make(DT_i32, 2, (const int64_t[]){ out, k }), v);
}

static void test_resize(void **state)
{
	static const int32_t ids[] = { 0, 1, 1, 2 }, far[] = { 0, 7 };
	static const float w[] = { 0.5F, 0.5F, 0.25F, 0.75F };
	Value *half = module_const(mod, NULL, type_make(DT_f32, 2, (const int64_t[]){ 2, 2 }), w);
	void *back = with_int(OP_ResizeAxisGrad, "dim", 3);

	(void)state;
	gives(MAKE(ResizeAxis, with_int(OP_ResizeAxis, "axis", -1), F32(5, 3), table(2, 2, ids), half), 0, "f32[5,2]");
	gives(MAKE(ResizeAxis, NULL, F32(3, 6), table(4, 1, ids)), 0, "f32[4,6]");
	gives(MAKE(ResizeAxisGrad, back, F32(2, 6), table(2, 2, ids), half), 0, "f32[3,6]");
	MAKE(ResizeAxis, NULL, F32(3, 6), table(2, 1, far));
	refused("ResizeAxis: index 7 of");
	MAKE(ResizeAxis, with_int(OP_ResizeAxis, "axis", INT64_MIN), F32(3, 6), table(2, 1, ids));
	refused("ResizeAxis: axis -9223372036854775808 is outside of [-2, 2) for rank 2");
	MAKE(ResizeAxis, NULL, F32(3, 6), table(4, 1, ids), half);
	refused("is f32[2,2]; a constant like");
	MAKE(ResizeAxis, NULL, F32(3, 6), operand(DT_i32, DIMS(2, 1)));
	refused("is i32[2,1]; a constant i32[2,K] is needed");
	MAKE(ResizeAxisGrad, with_int(OP_ResizeAxisGrad, "dim", INT64_MAX), F32(2, 6), table(2, 2, ids));
	refused("ResizeAxisGrad: dim is 9223372036854775807, outside of 1..1073741824");
	MAKE(ResizeAxisGrad, back, F32(5, 6), table(2, 2, ids));
	refused("is i32[2,2]; a constant i32[5,K] is needed");
}

/* ---- indices of pools ---- */

static void *pool(int64_t kernel, int64_t stride, int nd, const int64_t *dims)
{
	void *attr = attr_new(arena, OP_MaxPoolIndices);
	const int64_t k[] = { kernel, kernel }, s[] = { stride, stride };

	attr_put_ints(arena, OP_MaxPoolIndices, attr, "kernel_shape", 2, k);
	attr_put_ints(arena, OP_MaxPoolIndices, attr, "strides", 2, s);
	attr_put_ints(arena, OP_MaxPoolIndices, attr, "dims", nd, dims);
	return attr;
}

static void test_indices(void **state)
{
	(void)state;
	gives(MAKE(MaxPoolIndices, pool(2, 2, DIMS(1, 3, 8, 8)), operand(DT_u8, DIMS(1, 3, 4, 4))), 0, "i64[1,3,4,4]");
	MAKE(MaxPoolIndices, pool(2, 2, DIMS(1, 3, 8, 8)), F32(1, 3, 4, 4));
	refused("is f32[1,3,4,4], dims are [1,3,8,8]");
	MAKE(MaxPoolIndices, pool(2, 2, DIMS(1, 3, 8)), operand(DT_u8, DIMS(1, 3, 4)));
	refused("kernel_shape has 2 entries, dims are [1,3,8]");
	MAKE(MaxPoolIndices, pool(2, INT64_MAX, DIMS(1, 3, 8, 8)), operand(DT_u8, DIMS(1, 3, 4, 4)));
	refused("strides[0] is 9223372036854775807, outside of 1..1048576");
	MAKE(MaxPoolIndices, pool(2, 2, DIMS(1, 3, INT64_MAX, 8)), operand(DT_u8, DIMS(1, 3, 4, 4)));
	refused("dims[2] is 9223372036854775807: the tensor would have more than 2^46 bytes");
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = { TEST(test_plain_norm), TEST(test_lrn), TEST(test_resize),
		TEST(test_indices) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
