/* Products, convolution, pooling, normalisation, softmax, losses, dropout and training ops: shape rules and the exact
 * messages for operands that do not fit. What their kernels and gradients give is checked by whole programs (grad,
 * onnx-backend, oracle). */
#include "shapes.h"

#define I64(...) operand(DT_i64, DIMS(__VA_ARGS__))
static Value *scalar(void) { return operand(DT_f32, 0, NULL); }

/* Attributes of the next node. */
static void *attr;
static void with(OpKind op) { attr = attr_new(arena, op); }
static void with_int(OpKind op, const char *name, int64_t v)
{
	with(op);
	attr_put_int(op, attr, name, v);
}

static Node *make(OpKind op, int nin, Value *const *in)
{
	Node *n = build(&at, op, attr, nin, in, "y");

	attr = NULL;
	return n;
}

#define MAKE(op, ...) \
	make(OP_##op, (int)(sizeof(Value *[]){ __VA_ARGS__ } / sizeof(Value *)), (Value *[]){ __VA_ARGS__ })

/* ---- products ---- */

static void test_gemm(void **state)
{
	(void)state;
	gives(MAKE(Gemm, F32(32, 784), F32(784, 10), F32(10)), 0, "f32[32,10]");
	with_int(OP_Gemm, "transB", 1);
	gives(MAKE(Gemm, F32(32, 784), F32(10, 784), F32(32, 1)), 0, "f32[32,10]");
	with_int(OP_Gemm, "transA", 1);
	gives(MAKE(Gemm, F32(784, 32), F32(784, 10), scalar()), 0, "f32[32,10]");
	MAKE(Gemm, F32(32, 256), F32(128, 10));
	refused("inner sizes differ: A is f32[32,256], B is f32[128,10]");
	MAKE(Gemm, F32(2, 32, 256), F32(256, 10));
	refused("Gemm takes matrices: A is f32[2,32,256], B is f32[256,10]");
	MAKE(Gemm, F32(32, 256), F32(256, 10), F32(32));
	refused("C is f32[32], which does not broadcast to f32[32,10]");
	MAKE(Gemm, I64(32, 256), I64(256, 10));
	refused("Gemm takes floats");
}

static void test_matmul(void **state)
{
	(void)state;
	gives(MAKE(MatMul, F32(3), F32(3)), 0, "f32[]");
	gives(MAKE(MatMul, F32(3), F32(5, 3, 4)), 0, "f32[5,4]");
	gives(MAKE(MatMul, F32(2, 4, 3), F32(3)), 0, "f32[2,4]");
	gives(MAKE(MatMul, F32(2, 1, 4, 3), F32(5, 3, 6)), 0, "f32[2,5,4,6]");
	with_int(OP_MatMul, "transB", 1);
	gives(MAKE(MatMul, F32(2, 4, 3), F32(2, 6, 3)), 0, "f32[2,4,6]");
	MAKE(MatMul, F32(2, 4, 3), F32(3, 3, 6));
	refused("inner sizes differ: A is f32[2,4,3], B is f32[3,3,6]");
	MAKE(MatMul, F32(4, 3), I64(3, 6));
	refused("operands differ in element type");
}

/* ---- windows ---- */

static const int64_t two[] = { 2, 2 }, three[] = { 3, 3 }, one_each[] = { 1, 1, 1, 1 };

static void window(OpKind op, const int64_t *kernel, const int64_t *stride, const int64_t *pads)
{
	with(op);
	if (kernel)
		attr_put_ints(arena, op, attr, "kernel_shape", 2, kernel);
	if (stride)
		attr_put_ints(arena, op, attr, "strides", 2, stride);
	if (pads)
		attr_put_ints(arena, op, attr, "pads", 4, pads);
}

static void test_conv(void **state)
{
	(void)state;
	window(OP_Conv, NULL, two, one_each);
	gives(MAKE(Conv, F32(8, 3, 32, 32), F32(16, 3, 3, 3), F32(16)), 0, "f32[8,16,16,16]");
	with_int(OP_Conv, "group", 3);
	gives(MAKE(Conv, F32(8, 3, 9), F32(6, 1, 3)), 0, "f32[8,6,7]");
	MAKE(Conv, F32(8, 3, 32, 32), F32(16, 4, 3, 3));
	refused("Conv: X has 3 channels, W is f32[16,4,3,3], group is 1");
	MAKE(Conv, F32(8, 3, 2, 32), F32(16, 3, 3, 3));
	refused("Conv: the kernel does not fit along spatial axis 0: X is f32[8,3,2,32], W is f32[16,3,3,3]");
	MAKE(Conv, F32(8, 3, 32, 32), F32(16, 3, 3, 3), F32(3));
	refused("Conv: bias is f32[3], W has 16 filters");
	MAKE(Conv, F32(8, 3), F32(16, 3));
	refused("Conv takes one to three spatial axes: X is f32[8,3], W is f32[16,3]");
}

/* Numbers that would overflow what is computed of them. */
static const int64_t far[] = { 0, INT64_MAX, 0, INT64_MIN };

static void test_conv_bounds(void **state)
{
	(void)state;
	window(OP_Conv, NULL, NULL, far);
	MAKE(Conv, F32(8, 3, 32, 32), F32(16, 3, 3, 3));
	refused("Conv: pads[1] is 9223372036854775807, outside of -1048576..1048576 [E0305]");
	window(OP_Conv, NULL, far + 1, NULL);
	MAKE(Conv, F32(8, 3, 32, 32), F32(16, 3, 3, 3));
	refused("Conv: strides[0] is 9223372036854775807, outside of 1..1048576");
	window(OP_Conv, NULL, NULL, NULL);
	attr_put_ints(arena, OP_Conv, attr, "dilations", 2, far + 1);
	MAKE(Conv, F32(8, 3, 32, 32), F32(16, 3, 3, 3));
	refused("Conv: dilations[0] is 9223372036854775807, outside of 1..1048576");
	window(OP_Conv, two, NULL, NULL);
	MAKE(Conv, F32(8, 3, 32, 32), F32(16, 3, 3, 3));
	refused("Conv: kernel_shape[0] is 2, W is f32[16,3,3,3]");
	with_int(OP_Conv, "group", INT64_MAX);
	MAKE(Conv, F32(8, 4, 9), F32(16, 4, 3));
	refused("Conv: X has 4 channels, W is f32[16,4,3], group is 9223372036854775807");
	window(OP_ConvGradData, NULL, NULL, NULL);
	attr_put_ints(arena, OP_ConvGradData, attr, "dims", 4, (const int64_t[]){ 8, 3, 32, INT64_MAX });
	MAKE(ConvGradData, F32(8, 16, 30, 30), F32(16, 3, 3, 3));
	refused("ConvGradData: dims[3] is 9223372036854775807: the tensor would have more than 2^46 bytes");
	window(OP_ConvGradWeights, NULL, two, NULL);
	attr_put_ints(arena, OP_ConvGradWeights, attr, "dims", 4, (const int64_t[]){ 16, 3, 3, 3 });
	MAKE(ConvGradWeights, F32(8, 3, 32, 32), F32(8, 16, 30, 30));
	refused("is [8,16,30,30], it must be [8,16,15,15]");
}

static void test_pool(void **state)
{
	Node *n;

	(void)state;
	window(OP_MaxPool, three, two, one_each);
	n = MAKE(MaxPool, F32(8, 16, 32, 31));
	gives(n, 0, "f32[8,16,16,16]");
	gives(n, 1, "u8[8,16,16,16]");
	window(OP_MaxPool, two, two, NULL);
	attr_put_int(OP_MaxPool, attr, "ceil_mode", 1);
	gives(MAKE(MaxPool, F32(8, 16, 5, 4)), 0, "f32[8,16,3,2]");
	gives(MAKE(GlobalAveragePool, F32(8, 16, 5, 4)), 0, "f32[8,16,1,1]");
	window(OP_MaxPool, (const int64_t[]){ 5, 5 }, three, (const int64_t[]){ 0, 0, 1, 1 });
	n = MAKE(MaxPool, F32(8, 16, 5, 5));
	gives(n, 0, "f32[8,16,1,1]");
	assert_true(optab[OP_MaxPool]->by_vendor(n));
	window(OP_MaxPool, (const int64_t[]){ 5, 5 }, three, (const int64_t[]){ 0, 0, 2, 2 });
	n = MAKE(MaxPool, F32(8, 16, 3, 3)); /* a whole window only with what is behind */
	gives(n, 0, "f32[8,16,1,1]");
	assert_false(optab[OP_MaxPool]->by_vendor(n));
	window(OP_AveragePool, three, NULL, NULL);
	MAKE(AveragePool, F32(8, 16, 5, 2));
	refused("AveragePool: the window does not fit along spatial axis 1 of f32[8,16,5,2]");
	window(OP_AveragePool, three, NULL, NULL);
	MAKE(AveragePool, F32(8, 16, 5));
	refused("AveragePool: kernel_shape has 2 entries, X is f32[8,16,5]");
}

static void test_pool_bounds(void **state)
{
	(void)state;
	window(OP_MaxPool, three, NULL, far);
	MAKE(MaxPool, F32(8, 16, 5, 5));
	refused("MaxPool: pads[1] is 9223372036854775807, outside of -1048576..1048576 [E0305]");
	window(OP_AveragePool, three, far, NULL);
	MAKE(AveragePool, F32(8, 16, 5, 5));
	refused("AveragePool: strides[0] is 0, outside of 1..1048576");
	window(OP_AveragePool, far + 1, NULL, NULL);
	MAKE(AveragePool, F32(8, 16, 5, 5));
	refused("AveragePool: kernel_shape[0] is 9223372036854775807, outside of 1..1073741824");
	window(OP_MaxPool, three, NULL, NULL);
	attr_put_ints(arena, OP_MaxPool, attr, "dilations", 2, far);
	MAKE(MaxPool, F32(8, 16, 5, 5));
	refused("MaxPool: dilations[0] is 0, outside of 1..1048576");
	window(OP_AveragePoolGrad, three, NULL, NULL);
	attr_put_ints(arena, OP_AveragePoolGrad, attr, "dims", 4, (const int64_t[]){ 8, 16, 5, 5 });
	MAKE(AveragePoolGrad, F32(8, 16, 5, 5));
	refused("is [8,16,5,5], it must be [8,16,3,3] [E0304]");
	window(OP_MaxPoolGrad, three, NULL, NULL);
	attr_put_ints(arena, OP_MaxPoolGrad, attr, "dims", 4, (const int64_t[]){ 8, 16, 5, 5 });
	MAKE(MaxPoolGrad, F32(8, 16, 3, 3), operand(DT_i32, DIMS(8, 16, 3, 3)));
	refused("is i32, places in this window are u8");
}

/* ---- normalisation, softmax ---- */

static void test_norm(void **state)
{
	Node *n;

	(void)state;
	n = MAKE(BatchNorm, F32(8, 16, 4, 4), F32(16), F32(16));
	gives(n, 0, "f32[8,16,4,4]");
	gives(n, 2, "f32[16]");
	n = MAKE(LayerNormalization, F32(8, 5, 64), F32(64), F32(64));
	gives(n, 1, "f32[8,5,1]");
	MAKE(BatchNorm, F32(8, 16, 4, 4), F32(16), F32(4));
	refused("is f32[4], X is f32[8,16,4,4]: one value per channel is needed");
	MAKE(LayerNormalization, F32(8, 5, 64), F32(5), F32(5));
	refused("LayerNormalization: scale is [5], the normalised axes are [64]");
	MAKE(LayerNormalization, F32(8, 64), F32(64), F32(1, 64));
	refused("LayerNormalization: scale is [64], bias is [1,64]");
}

static void test_softmax(void **state)
{
	(void)state;
	gives(MAKE(Softmax, F32(8, 5)), 0, "f32[8,5]");
	with_int(OP_LogSoftmax, "axis", 2);
	MAKE(LogSoftmax, F32(8, 5));
	refused("LogSoftmax: axis 2 is outside of [-2, 2) for rank 2");
	MAKE(Softmax, I64(8, 5));
	refused("Softmax takes floats");
}

/* ---- losses, dropout ---- */

static void test_loss(void **state)
{
	Node *n;

	(void)state;
	n = MAKE(SoftmaxCrossEntropyLoss, F32(8, 10, 4), I64(8, 4), F32(10));
	gives(n, 0, "f32[]");
	gives(n, 1, "f32[8,10,4]");
	with(OP_NegativeLogLikelihoodLoss);
	attr_put_str(arena, OP_NegativeLogLikelihoodLoss, attr, "reduction", "none");
	gives(MAKE(NegativeLogLikelihoodLoss, F32(8, 10, 4), I64(8, 4)), 0, "f32[8,4]");
	MAKE(SoftmaxCrossEntropyLoss, F32(8, 10), I64(4));
	refused("scores are [8,10], so labels must be [8]");
	MAKE(SoftmaxCrossEntropyLoss, F32(8, 10), F32(8));
	refused("are f32, not i64 or i32");
	MAKE(SoftmaxCrossEntropyLoss, F32(8, 10), I64(8), F32(9));
	refused("weights are f32[9], there are 10 classes");
	MAKE(SoftmaxCrossEntropyLoss, F32(8), I64(8));
	refused("scores are f32[8], they need two axes");
	gives(MAKE(CountLabels, I64(8)), 0, "f32[]");
	MAKE(SoftmaxCrossEntropyLossGrad, F32(8), F32(8, 10), I64(8));
	refused("is [8], it must be [] [E0304]");
	with_int(OP_NegativeLogLikelihoodLossGrad, "classes", INT64_MAX);
	MAKE(NegativeLogLikelihoodLossGrad, scalar(), I64(8));
	refused("the tensor would have more than 2^46 bytes");
	with_int(OP_NegativeLogLikelihoodLossGrad, "classes", 10);
	attr_put_str(arena, OP_NegativeLogLikelihoodLossGrad, attr, "reduction", "none");
	MAKE(NegativeLogLikelihoodLossGrad, scalar(), I64(8));
	refused("is [], it must be [8]");
}

static void test_dropout(void **state)
{
	(void)state;
	gives(MAKE(Dropout, F32(8, 10)), 1, "bool[8,10]");
	with(OP_Dropout);
	attr_put_float(OP_Dropout, attr, "ratio", 1);
	MAKE(Dropout, F32(8, 10));
	refused("ratio 1 is outside [0, 1)");
}

/* ---- training ---- */

static void test_training(void **state)
{
	(void)state;
	mod->microbatches = 6;
	gives(MAKE(Stack, F32(16)), 0, "f32[6,16]");
	gives(MAKE(Accumulate, F32(16)), 0, "f32[16]");
	MAKE(Adam, F32(16), F32(16), F32(16), F32(16), scalar());
	assert_false(at.failed);
	MAKE(Momentum, F32(4), F32(4), F32(5), scalar());
	refused("is f32[5]");
	MAKE(SGD, F32(4), F32(4), F32(2));
	refused("is f32[2], not one f32");
	MAKE(RunningStat, F32(16), F32(6, 8));
	refused("is f32[16], its rows are f32[6,8]");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_gemm, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_matmul, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_conv, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_conv_bounds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pool, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_pool_bounds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_norm, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_softmax, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_loss, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_dropout, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_training, set_up, tear_down),
	};

	return cmocka_run_group_tests_name("ops: shape rules", tests, NULL, NULL);
}
