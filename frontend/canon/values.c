/* Values by the names that the model gives them, and nodes by their place in the file. */
#include <string.h>
#include "canon.h"

Value *onnx_in(Import *im, const OnnxNode *n, size_t i)
{
	return i < n->n_input && *n->input[i] ? map_get(&im->env, n->input[i]) : NULL;
}

void onnx_bind(Import *im, const OnnxNode *n, size_t i, Value *v)
{
	if (i < n->n_output && *n->output[i])
		map_put(&im->env, n->output[i], v);
}

bool onnx_const_ints(Import *im, const OnnxNode *n, size_t i, Ints *out)
{
	Value *v = onnx_in(im, n, i);

	*out = (Ints){ 0, NULL };
	if (!v)
		return true;
	if (v->kind != VAL_CONST || !v->data || v->type.rank > 1 ||
		(v->type.dtype != DT_i64 && v->type.dtype != DT_i32))
		return false;
	int64_t k = type_numel(&v->type), *p = NEWN(im->a, int64_t, k);
	for (int64_t j = 0; j < k; j++)
		p[j] = v->type.dtype == DT_i64 ? ((const int64_t *)v->data)[j] : ((const int32_t *)v->data)[j];
	*out = (Ints){ (int)k, p };
	return true;
}

int onnx_index(const Import *im, const OnnxNode *n, size_t i)
{
	const OnnxOrigin *o = im->origin ? map_get(im->origin, n) : NULL;

	return o ? o->index : (int)i;
}

int onnx_opset(const Import *im, const OnnxNode *n, int outer)
{
	const OnnxOrigin *o = im->origin ? map_get(im->origin, n) : NULL;

	return o && o->opset ? o->opset : outer;
}
