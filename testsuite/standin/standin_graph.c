/* standin_graph.c: descriptors of cuDNN's graphs of operations, as far as attention and its gradients need them. They take only
 * attributes that they have, of the right type, before they are finished; a finished one has all that it needs and sizes that fit. */
#include <cudnn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "standin_dnn.h"
#include "standin_graph.h"

enum { NONE = -2, ANY = -1 };

/* short names for the table */
enum {
	PRODUCT = CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
	EACH = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
	REDUCE = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
	RESHAPE = CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
	TENSOR = CUDNN_BACKEND_TENSOR_DESCRIPTOR,
	PART = CUDNN_TYPE_BACKEND_DESCRIPTOR
};

/* What descriptors have: attribute, its type, how many at least and at most (0 at least: it may be missing), of which descriptors */
static const struct {
	int desc, name, type, least, most, of;
} known[] = {
	{ TENSOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, NONE },
	{ TENSOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, 4, NONE },
	{ TENSOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, 4, NONE },
	{ TENSOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1, NONE },
	{ TENSOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1, NONE },
	{ TENSOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 0, 1, NONE },
	{ TENSOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 0, 1, NONE },
	{ CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, NONE },
	{ PRODUCT, CUDNN_ATTR_OPERATION_MATMUL_ADESC, PART, 1, 1, TENSOR },
	{ PRODUCT, CUDNN_ATTR_OPERATION_MATMUL_BDESC, PART, 1, 1, TENSOR },
	{ PRODUCT, CUDNN_ATTR_OPERATION_MATMUL_CDESC, PART, 1, 1, TENSOR },
	{ PRODUCT, CUDNN_ATTR_OPERATION_MATMUL_DESC, PART, 1, 1, CUDNN_BACKEND_MATMUL_DESCRIPTOR },
	{ CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, 1, NONE },
	{ CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, 1, NONE },
	{ CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 0, 1, NONE },
	{ EACH, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, PART, 1, 1, CUDNN_BACKEND_POINTWISE_DESCRIPTOR },
	{ EACH, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, PART, 1, 1, TENSOR },
	{ EACH, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, PART, 0, 1, TENSOR },
	{ EACH, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, PART, 0, 1, TENSOR },
	{ EACH, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, PART, 1, 1, TENSOR },
	{ CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, 1,
		NONE },
	{ CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1, NONE },
	{ REDUCE, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, PART, 1, 1, TENSOR },
	{ REDUCE, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, PART, 1, 1, TENSOR },
	{ REDUCE, CUDNN_ATTR_OPERATION_REDUCTION_DESC, PART, 1, 1, CUDNN_BACKEND_REDUCTION_DESCRIPTOR },
	{ RESHAPE, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, PART, 1, 1, TENSOR },
	{ RESHAPE, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, PART, 1, 1, TENSOR },
	{ CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, NONE },
	{ CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, PART, 1, OPS, ANY },
	{ CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, PART, 1, 1,
		CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR },
	{ CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1, NONE },
	{ CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, 1, NONE },
	{ CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, PART, 1, 1,
		CUDNN_BACKEND_ENGINECFG_DESCRIPTOR },
	{ CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1, OPS, NONE },
	{ CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 1, OPS,
		NONE },
	{ CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, 1, NONE },
};
enum { KNOWN = sizeof known / sizeof *known };

API size_t cudnnGetVersion(void) { return 91900; }

static const char *last_error = "";

API void cudnnGetLastErrorString(char *message, size_t most)
{
	snprintf(message, most, "%s", last_error);
	last_error = "";
}

cudnnStatus_t graph_refused(const char *why)
{
	last_error = why;
	return CUDNN_STATUS_NOT_SUPPORTED;
}

const attr *graph_attr(const desc *d, int name)
{
	for (int i = 0; i < d->nattr; i++)
		if (d->a[i].name == name)
			return &d->a[i];
	return NULL;
}

desc *graph_part(const desc *d, int name)
{
	const attr *a = graph_attr(d, name);
	return a ? a->u.d[0] : NULL;
}
int graph_choice(const desc *d, int name) { return graph_attr(d, name)->u.e[0]; }
static bool on(const desc *d, int name)
{
	const attr *a = graph_attr(d, name);
	return a && a->u.b[0];
}
const int64_t *graph_dims(const desc *t) { return graph_attr(t, CUDNN_ATTR_TENSOR_DIMENSIONS)->u.i; }
const int64_t *graph_strides(const desc *t) { return graph_attr(t, CUDNN_ATTR_TENSOR_STRIDES)->u.i; }
int64_t graph_uid(const desc *t) { return graph_attr(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)->u.i[0]; }
int graph_type(const desc *t) { return graph_choice(t, CUDNN_ATTR_TENSOR_DATA_TYPE); }
bool graph_hidden(const desc *t) { return on(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL); }
bool graph_told(const desc *t) { return on(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE); }

cudnnStatus_t graph_bad(const char *what, int name)
{
	fprintf(stderr, "stand-in for cuDNN: %s (%d)\n", what, name);
	return CUDNN_STATUS_BAD_PARAM;
}

API cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *d)
{
	desc *made = calloc(1, sizeof *made);

	made->type = type;
	*d = made;
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
	free(d);
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t n, const void *from)
{
	desc *d = to;
	int i = 0;

	while (i < KNOWN && (known[i].desc != d->type || known[i].name != (int)name))
		i++;
	if (i == KNOWN)
		return graph_bad("a descriptor has no such attribute", (int)name);
	if (d->finished || graph_attr(d, (int)name) || known[i].type != (int)type || n < known[i].least ||
		n > known[i].most || !from)
		return graph_bad("attribute: finished, set twice, of another type or count", (int)name);
	attr *a = &d->a[d->nattr++];
	const size_t each = type == CUDNN_TYPE_BOOLEAN ? sizeof(bool)
	                    : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_HANDLE || type == CUDNN_TYPE_VOID_PTR ||
	                                    type == CUDNN_TYPE_BACKEND_DESCRIPTOR
	                            ? 8
	                            : sizeof(int);

	a->name = (int)name;
	a->n = n;
	memcpy(&a->u, from, (size_t)n * each);
	for (int64_t k = 0; known[i].of != NONE && k < n; k++)
		if (!a->u.d[k] || !a->u.d[k]->finished || (known[i].of != ANY && a->u.d[k]->type != known[i].of))
			return graph_bad("attribute: a descriptor of another kind, or not finished", (int)name);
	return CUDNN_STATUS_SUCCESS;
}

/* ---- what is finished ---- */

/* x's sizes are y's, or 1 */
static bool broadcasts(const desc *x, const desc *y)
{
	for (int i = 0; i < 4; i++)
		if (graph_dims(x)[i] != graph_dims(y)[i] && graph_dims(x)[i] != 1)
			return false;
	return true;
}

static bool good_tensor(const desc *t)
{
	for (int i = 0; i < 4; i++)
		if (graph_dims(t)[i] < 1 || graph_strides(t)[i] < 1)
			return false;
	return !(graph_hidden(t) && graph_told(t)) && graph_attr(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)->u.i[0] % 16 == 0;
}

static bool good_product(const desc *o)
{
	const int64_t *a = graph_dims(graph_part(o, CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
		      *b = graph_dims(graph_part(o, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
	const int64_t *c = graph_dims(graph_part(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC));

	return a[0] == b[0] && a[1] == b[1] && c[0] == a[0] && c[1] == a[1] && a[3] == b[2] && c[2] == a[2] &&
	       c[3] == b[3] &&
	       graph_choice(graph_part(o, CUDNN_ATTR_OPERATION_MATMUL_DESC), CUDNN_ATTR_MATMUL_COMP_TYPE) ==
	               CUDNN_DATA_FLOAT;
}

int graph_mode(const desc *o)
{
	return graph_choice(graph_part(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_ATTR_POINTWISE_MODE);
}

static bool good_pointwise(const desc *o)
{
	const desc *x = graph_part(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
		   *b = graph_part(o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
	const desc *t = graph_part(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
		   *y = graph_part(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
	const desc *how = graph_part(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
	const int mode = graph_mode(o), y_type = graph_type(y);
	const bool alone = mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG ||
	                   mode == CUDNN_POINTWISE_GEN_INDEX || mode == CUDNN_POINTWISE_IDENTITY;

	if (!broadcasts(x, y) || (b && !broadcasts(b, y)) || (t && !broadcasts(t, y)) || alone != !b ||
		(mode == CUDNN_POINTWISE_BINARY_SELECT) != (t != NULL) || (t && graph_type(t) != CUDNN_DATA_BOOLEAN) ||
		(mode == CUDNN_POINTWISE_GEN_INDEX) != (graph_attr(how, CUDNN_ATTR_POINTWISE_AXIS) != NULL))
		return false;
	return mode == CUDNN_POINTWISE_GEN_INDEX ? y_type == CUDNN_DATA_INT32
	       : mode == CUDNN_POINTWISE_CMP_GE
	               ? y_type == CUDNN_DATA_BOOLEAN &&
	                         graph_choice(how, CUDNN_ATTR_POINTWISE_MATH_PREC) == CUDNN_DATA_BOOLEAN
	               : graph_choice(how, CUDNN_ATTR_POINTWISE_MATH_PREC) == CUDNN_DATA_FLOAT &&
	                         y_type != CUDNN_DATA_INT32;
}

/* y is x with its last two axes turned, which engines read where x is. */
static bool good_reshape(const desc *o)
{
	const desc *x = graph_part(o, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
		   *y = graph_part(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);

	for (int i = 0; i < 4; i++) {
		const int from = i < 2 ? i : 5 - i;
		if (graph_dims(y)[i] != graph_dims(x)[from] || graph_strides(y)[i] != graph_strides(x)[from])
			return false;
	}
	return graph_hidden(y);
}

desc *graph_result(const desc *o)
{
	switch (o->type) {
	case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return graph_part(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
	case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return graph_part(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
	case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return graph_part(o, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
	default: return graph_part(o, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
	}
}

int graph_operands(const desc *o, desc **in)
{
	static const int names[] = { CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
		CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
		CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
		CUDNN_ATTR_OPERATION_RESHAPE_XDESC };
	int n = 0;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (graph_part(o, names[i]))
			in[n++] = graph_part(o, names[i]);
	return n;
}

/* What is never in memory was made by an operation in front; one number, one tensor. */
static bool good_graph(const desc *g)
{
	const attr *ops = graph_attr(g, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	const desc *seen[TENSORS];
	int n = 0;

	for (int64_t i = 0; i < ops->n; i++) {
		desc *in[3], *y = graph_result(ops->u.d[i]);
		for (int k = graph_operands(ops->u.d[i], in) - 1; k >= 0; k--) {
			int m = 0;
			while (m < n && graph_uid(seen[m]) != graph_uid(in[k]))
				m++;
			if (m < n ? seen[m] != in[k] : graph_hidden(in[k]))
				return false;
			if (m == n)
				seen[n++] = in[k];
		}
		for (int m = 0; m < n; m++)
			if (graph_uid(seen[m]) == graph_uid(y))
				return false;
		seen[n++] = y;
	}
	return true;
}

API cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t of)
{
	desc *d = of;
	bool good = !d->finished;

	for (int i = 0; i < KNOWN; i++)
		if (known[i].desc == d->type && known[i].least && !graph_attr(d, known[i].name))
			return graph_bad("an attribute is missing", known[i].name);
	switch (d->type) {
	case CUDNN_BACKEND_TENSOR_DESCRIPTOR: good = good && good_tensor(d); break;
	case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: good = good && good_product(d); break;
	case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: good = good && good_pointwise(d); break;
	case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
		good = good && broadcasts(graph_result(d), graph_part(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
		break;
	case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: good = good && good_reshape(d); break;
	case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: good = good && good_graph(d); break;
	case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
		good = good && graph_attr(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->n ==
		                       graph_attr(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->n;
		break;
	default: break;
	}
	if (good && d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
		graph_part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->fault == REFUSES)
		return graph_refused("the stand-in's engine refuses:\nits configuration");
	if (!good)
		return graph_bad("a descriptor is finished twice, or its parts do not fit", d->type);
	d->finished = true;
	return CUDNN_STATUS_SUCCESS;
}
