/* standin_graph.c: cuDNN's graphs of operations, as far as attention's forward needs them. Descriptors take only attributes that
 * they have, of the right type, before they are finished; a finished one has all that it needs and sizes that fit. The heuristic
 * has an engine for one graph alone: product, scale, [causal mask,] softmax with statistics, product, of 16-bit floats. The
 * engine does one operation after the other. STANDIN_ATTENTION=0: no heuristic has any; `late`: the run is refused; `last`: heuristic
 * A has none, B one that refuses, and of the last one's five the fifth is it, others refuse or need more workspace than there is. */
#include <cudnn.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pd.h"
#include "standin_dnn.h"

enum { ATTRS = 8, OPS = 16, TENSORS = 40, WORKSPACE = 1024, NONE = -2, ANY = -1, REFUSES = 1, GREEDY = 2 };

typedef struct desc desc;
typedef struct attr {
	int name;
	int64_t n;
	union {
		int64_t i[OPS];
		const void *p[OPS];
		desc *d[OPS];
		bool b[OPS];
		int e[OPS];
	} u;
} attr;
struct desc {
	int type, nattr, fault;
	bool finished;
	attr a[ATTRS];
}; /* fault of a configuration: REFUSES, GREEDY */

/* short names for the table */
enum {
	PRODUCT = CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
	EACH = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
	REDUCE = CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
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

static cudnnStatus_t refused(const char *why)
{
	last_error = why;
	return CUDNN_STATUS_NOT_SUPPORTED;
}

static const attr *attr_of(const desc *d, int name)
{
	for (int i = 0; i < d->nattr; i++)
		if (d->a[i].name == name)
			return &d->a[i];
	return NULL;
}

static desc *part(const desc *d, int name)
{
	const attr *a = attr_of(d, name);
	return a ? a->u.d[0] : NULL;
}
static int choice(const desc *d, int name) { return attr_of(d, name)->u.e[0]; }
static bool on(const desc *d, int name)
{
	const attr *a = attr_of(d, name);
	return a && a->u.b[0];
}
static const int64_t *dims(const desc *t) { return attr_of(t, CUDNN_ATTR_TENSOR_DIMENSIONS)->u.i; }
static const int64_t *strides(const desc *t) { return attr_of(t, CUDNN_ATTR_TENSOR_STRIDES)->u.i; }
static int64_t uid_of(const desc *t) { return attr_of(t, CUDNN_ATTR_TENSOR_UNIQUE_ID)->u.i[0]; }
static int type_of(const desc *t) { return choice(t, CUDNN_ATTR_TENSOR_DATA_TYPE); }
static bool hidden(const desc *t) { return on(t, CUDNN_ATTR_TENSOR_IS_VIRTUAL); }
static bool told(const desc *t) { return on(t, CUDNN_ATTR_TENSOR_IS_BY_VALUE); }

static cudnnStatus_t bad(const char *what, int name)
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
		return bad("a descriptor has no such attribute", (int)name);
	if (d->finished || attr_of(d, (int)name) || known[i].type != (int)type || n < known[i].least ||
		n > known[i].most || !from)
		return bad("attribute: finished, set twice, of another type or count", (int)name);
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
			return bad("attribute: a descriptor of another kind, or not finished", (int)name);
	return CUDNN_STATUS_SUCCESS;
}

/* ---- what is finished ---- */

/* x's sizes are y's, or 1 */
static bool broadcasts(const desc *x, const desc *y)
{
	for (int i = 0; i < 4; i++)
		if (dims(x)[i] != dims(y)[i] && dims(x)[i] != 1)
			return false;
	return true;
}

static bool good_tensor(const desc *t)
{
	for (int i = 0; i < 4; i++)
		if (dims(t)[i] < 1 || strides(t)[i] < 1)
			return false;
	return !(hidden(t) && told(t)) && attr_of(t, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)->u.i[0] % 16 == 0;
}

static bool good_product(const desc *o)
{
	const int64_t *a = dims(part(o, CUDNN_ATTR_OPERATION_MATMUL_ADESC)),
		      *b = dims(part(o, CUDNN_ATTR_OPERATION_MATMUL_BDESC));
	const int64_t *c = dims(part(o, CUDNN_ATTR_OPERATION_MATMUL_CDESC));

	return a[0] == b[0] && a[1] == b[1] && c[0] == a[0] && c[1] == a[1] && a[3] == b[2] && c[2] == a[2] &&
	       c[3] == b[3] &&
	       choice(part(o, CUDNN_ATTR_OPERATION_MATMUL_DESC), CUDNN_ATTR_MATMUL_COMP_TYPE) == CUDNN_DATA_FLOAT;
}

static int mode_of(const desc *o)
{
	return choice(part(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_ATTR_POINTWISE_MODE);
}

static bool good_pointwise(const desc *o)
{
	const desc *x = part(o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
		   *b = part(o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
	const desc *t = part(o, CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
		   *y = part(o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
	const desc *how = part(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
	const int mode = mode_of(o), y_type = type_of(y);
	const bool alone =
		mode == CUDNN_POINTWISE_EXP || mode == CUDNN_POINTWISE_LOG || mode == CUDNN_POINTWISE_GEN_INDEX;

	if (!broadcasts(x, y) || (b && !broadcasts(b, y)) || (t && !broadcasts(t, y)) || alone != !b ||
		(mode == CUDNN_POINTWISE_BINARY_SELECT) != (t != NULL) || (t && type_of(t) != CUDNN_DATA_BOOLEAN) ||
		(mode == CUDNN_POINTWISE_GEN_INDEX) != (attr_of(how, CUDNN_ATTR_POINTWISE_AXIS) != NULL))
		return false;
	return mode == CUDNN_POINTWISE_GEN_INDEX ? y_type == CUDNN_DATA_INT32
	       : mode == CUDNN_POINTWISE_CMP_GE
	               ? y_type == CUDNN_DATA_BOOLEAN &&
	                         choice(how, CUDNN_ATTR_POINTWISE_MATH_PREC) == CUDNN_DATA_BOOLEAN
	               : choice(how, CUDNN_ATTR_POINTWISE_MATH_PREC) == CUDNN_DATA_FLOAT && y_type != CUDNN_DATA_INT32;
}

static desc *result(const desc *o)
{
	return part(o, o->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR ? CUDNN_ATTR_OPERATION_MATMUL_CDESC
		       : o->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
			       ? CUDNN_ATTR_OPERATION_POINTWISE_YDESC
			       : CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
}

static int operands(const desc *o, desc **in)
{
	static const int names[] = { CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
		CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
		CUDNN_ATTR_OPERATION_POINTWISE_TDESC, CUDNN_ATTR_OPERATION_REDUCTION_XDESC };
	int n = 0;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (part(o, names[i]))
			in[n++] = part(o, names[i]);
	return n;
}

/* What is never in memory was made by an operation in front; one number, one tensor. */
static bool good_graph(const desc *g)
{
	const attr *ops = attr_of(g, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	const desc *seen[TENSORS];
	int n = 0;

	for (int64_t i = 0; i < ops->n; i++) {
		desc *in[3], *y = result(ops->u.d[i]);
		for (int k = operands(ops->u.d[i], in) - 1; k >= 0; k--) {
			int m = 0;
			while (m < n && uid_of(seen[m]) != uid_of(in[k]))
				m++;
			if (m < n ? seen[m] != in[k] : hidden(in[k]))
				return false;
			if (m == n)
				seen[n++] = in[k];
		}
		for (int m = 0; m < n; m++)
			if (uid_of(seen[m]) == uid_of(y))
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
		if (known[i].desc == d->type && known[i].least && !attr_of(d, known[i].name))
			return bad("an attribute is missing", known[i].name);
	switch (d->type) {
	case CUDNN_BACKEND_TENSOR_DESCRIPTOR: good = good && good_tensor(d); break;
	case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: good = good && good_product(d); break;
	case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: good = good && good_pointwise(d); break;
	case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
		good = good && broadcasts(result(d), part(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
		break;
	case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: good = good && good_graph(d); break;
	case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
		good = good && attr_of(d, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->n ==
		                       attr_of(d, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->n;
		break;
	default: break;
	}
	if (good && d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
		part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->fault == REFUSES)
		return refused("the stand-in's engine refuses:\nits configuration");
	if (!good)
		return bad("a descriptor is finished twice, or its parts do not fit", d->type);
	d->finished = true;
	return CUDNN_STATUS_SUCCESS;
}

/* ---- the engine ---- */

/* Letters of the operations: what the engine takes. */
static char letter(const desc *o)
{
	if (o->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
		return 'P';
	if (o->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
		return choice(part(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR) ==
		                       CUDNN_REDUCE_TENSOR_MAX
		               ? 'm'
		       : choice(part(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_OPERATOR) ==
		                       CUDNN_REDUCE_TENSOR_ADD
		               ? 's'
		               : '?';
	switch (mode_of(o)) {
	case CUDNN_POINTWISE_ADD: return '+';
	case CUDNN_POINTWISE_SUB: return '-';
	case CUDNN_POINTWISE_MUL: return '*';
	case CUDNN_POINTWISE_DIV: return '/';
	case CUDNN_POINTWISE_EXP: return 'e';
	case CUDNN_POINTWISE_LOG: return 'l';
	case CUDNN_POINTWISE_GEN_INDEX: return 'i';
	case CUDNN_POINTWISE_CMP_GE: return '>';
	case CUDNN_POINTWISE_BINARY_SELECT: return '?';
	default: return ' ';
	}
}

/* 16 bits, rows of which each begins at 16 bytes; along `run` without gaps */
static bool good_operand(const desc *t, int run)
{
	const int type = type_of(t);

	return !hidden(t) && !told(t) && (type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16) &&
	       strides(t)[run] == 1 && dims(t)[run] % 8 == 0 && dims(t)[run] <= 128 && strides(t)[5 - run] % 8 == 0;
}

static bool mode_is(const char *what)
{
	const char *s = getenv("STANDIN_ATTENTION");

	return s && !strcmp(s, what);
}

static bool supported(const desc *g)
{
	const attr *ops = attr_of(g, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	char all[OPS + 1] = "";

	for (int64_t i = 0; i < ops->n; i++)
		all[i] = letter(ops->u.d[i]);
	if (mode_is("0") || (strcmp(all, "P*m-esl+/P") && strcmp(all, "P*ii>?m-esl+/P")))
		return false;
	desc *first[3], *last[3], *sum = result(ops->u.d[ops->n - 3]);
	operands(ops->u.d[0], first);
	operands(ops->u.d[ops->n - 1], last);
	return good_operand(first[0], 3) && good_operand(first[1], 2) && good_operand(last[1], 3) &&
	       good_operand(result(ops->u.d[ops->n - 1]), 3) && type_of(last[0]) == type_of(first[0]) &&
	       hidden(last[0]) && !hidden(sum) && type_of(sum) == CUDNN_DATA_FLOAT && strides(sum)[2] == 1 &&
	       strides(sum)[1] == dims(sum)[2];
}

/* How many configurations a heuristic names for a graph, and what is wrong with each. */
static int named(const desc *heuristic, const int **faults)
{
	static const int good[] = { 0 }, one[] = { REFUSES }, many[] = { REFUSES, GREEDY, REFUSES, GREEDY, 0 };
	const int mode = choice(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE);

	*faults = good;
	if (!supported(part(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)))
		return 0;
	if (!mode_is("last"))
		return mode == CUDNN_HEUR_MODE_A;
	*faults = mode == CUDNN_HEUR_MODE_B ? one : many;
	return mode == CUDNN_HEUR_MODE_A ? 0 : mode == CUDNN_HEUR_MODE_B ? 1 : 5;
}

API cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const of, cudnnBackendAttributeName_t name,
	cudnnBackendAttributeType_t type, int64_t asked, int64_t *n, void *to)
{
	const desc *d = of;
	const int *faults;

	if (!d->finished || asked < 0)
		return bad("asked of what is not finished", (int)name);
	if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
		type == CUDNN_TYPE_INT64 && asked == 1) {
		*n = 1;
		*(int64_t *)to = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->fault == GREEDY ? (int64_t)1 << 40
		                                                                                   : WORKSPACE;
		return CUDNN_STATUS_SUCCESS;
	}
	if (d->type != CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR || name != CUDNN_ATTR_ENGINEHEUR_RESULTS ||
		type != CUDNN_TYPE_BACKEND_DESCRIPTOR)
		return bad("asked for what there is not", (int)name);
	*n = named(d, &faults);
	for (int64_t i = 0; i < *n && i < asked; i++) {
		desc *config = ((desc **)to)[i];
		if (config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
			return bad("results go to configurations of engines", config->type);
		config->finished = true;
		config->nattr = 1;
		config->fault = faults[i];
		config->a[0] = (attr){ .n = 1, .u.d = { part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) } };
	}
	return *n ? CUDNN_STATUS_SUCCESS : refused("the stand-in has no engine for this graph");
}

/* A tensor while the graph runs: where it is, or the number that it is; those that are hidden have f32 here. */
typedef struct place {
	const desc *t;
	void *at;
	float value;
} place;
typedef struct job {
	const desc *graph;
	int n;
	place p[TENSORS];
} job;

static place *place_of(job *j, const desc *t)
{
	for (int i = 0; i < j->n; i++)
		if (j->p[i].t == t)
			return &j->p[i];
	return NULL;
}

static int64_t offset(const desc *t, const int64_t *i)
{
	int64_t at = 0;

	for (int k = 0; k < 4; k++)
		at += dims(t)[k] == 1 ? 0 : i[k] * strides(t)[k];
	return at;
}

/* One element; of a tensor that is hidden memory is the library's own. */
static void touch(const place *p, order_use use, int64_t at)
{
	const size_t wide = type_of(p->t) == CUDNN_DATA_FLOAT ? 4 : 2;

	if (!hidden(p->t))
		standin_touch("cuDNN's graph", use, (const char *)p->at + at * (int64_t)wide, wide);
}

static float get(job *j, const desc *t, const int64_t *i)
{
	const place *p = place_of(j, t);
	const int64_t at = offset(t, i);

	if (told(t))
		return p->value;
	touch(p, ORDER_READS, at);
	return hidden(t) || type_of(t) == CUDNN_DATA_FLOAT ? ((const float *)p->at)[at]
	       : type_of(t) == CUDNN_DATA_HALF             ? pd_from_f16(((const uint16_t *)p->at)[at])
	                                                   : pd_from_bf16(((const uint16_t *)p->at)[at]);
}

static void put(job *j, const desc *t, const int64_t *i, float v)
{
	const place *p = place_of(j, t);
	const int64_t at = offset(t, i);
	const int type = type_of(t);
	const bool low = type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
	const uint16_t bits = type == CUDNN_DATA_HALF ? pd_to_f16(v) : pd_to_bf16(v);

	touch(p, ORDER_WRITES, at);
	if (!hidden(t) && low)
		((uint16_t *)p->at)[at] = bits;
	else
		((float *)p->at)[at] = !low ? v : type == CUDNN_DATA_HALF ? pd_from_f16(bits) : pd_from_bf16(bits);
}

static float along(job *j, const desc *o, desc **in, const int64_t *i, char what)
{
	int64_t at[4], other[4];
	float v = what == 'm' ? -INFINITY : 0;

	memcpy(at, i, sizeof at);
	memcpy(other, i, sizeof other);
	for (int64_t k = 0; k < dims(in[0])[3]; k++) {
		at[3] = other[2] = k;
		const float x = get(j, in[0], at);
		v = what == 'm' ? fmaxf(v, x) : what == 's' ? v + x : v + x * get(j, in[1], other);
	}
	(void)o;
	return v;
}

static float value(job *j, const desc *o, desc **in, const int64_t *i)
{
	const char c = letter(o);

	if (c == 'P' || c == 'm' || c == 's')
		return along(j, o, in, i, c);
	if (c == 'i')
		return (float)
			i[attr_of(part(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_ATTR_POINTWISE_AXIS)
					->u.i[0]];
	const float x = get(j, in[0], i), y = c == 'e' || c == 'l' ? 0 : get(j, in[1], i);
	switch (c) {
	case '+': return x + y;
	case '-': return x - y;
	case '*': return x * y;
	case '/': return x / y;
	case 'e': return expf(x);
	case 'l': return logf(x);
	case '>': return x >= y;
	default: return get(j, in[2], i) != 0 ? x : y;
	}
}

static standin_end run_graph(void *what)
{
	job *j = what;
	const attr *ops = attr_of(j->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	const int known_before = j->n;

	standin_device(1);
	for (int64_t k = 0; k < ops->n; k++) {
		desc *in[3], *y = result(ops->u.d[k]);
		const int64_t *n = dims(y);
		int64_t i[4];

		operands(ops->u.d[k], in);
		if (hidden(y))
			j->p[j->n++] = (place){ y, malloc((size_t)(n[0] * n[1] * n[2] * n[3]) * sizeof(float)), 0 };
		for (i[0] = 0; i[0] < n[0]; i[0]++)
			for (i[1] = 0; i[1] < n[1]; i[1]++)
				for (i[2] = 0; i[2] < n[2]; i[2]++)
					for (i[3] = 0; i[3] < n[3]; i[3]++)
						put(j, y, i, value(j, ops->u.d[k], in, i));
	}
	standin_device(0);
	while (j->n > known_before)
		free(j->p[--j->n].at);
	return STANDIN_DONE;
}

/* The pack's pointer for a tensor that is not hidden. */
static bool find(job *j, const desc *pack, const desc *t)
{
	const attr *uid = attr_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
		   *at = attr_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);

	if (hidden(t) || place_of(j, t))
		return true;
	for (int64_t i = 0; i < uid->n; i++)
		if (uid->u.i[i] == uid_of(t) && at->u.p[i] && (told(t) || (uintptr_t)at->u.p[i] % 16 == 0)) {
			j->p[j->n++] =
				(place){ t, (void *)(uintptr_t)at->u.p[i], told(t) ? *(const float *)at->u.p[i] : 0 };
			return true;
		}
	return false;
}

API cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t of, cudnnBackendDescriptor_t with)
{
	const desc *plan = of, *pack = with;
	job j = { 0 };

	if (!h || !plan->finished || plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !pack->finished ||
		pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR ||
		!attr_of(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->u.p[0])
		return bad("a run without a finished plan, a pack or a workspace", plan->type);
	if (mode_is("late"))
		return refused("the stand-in's engine refuses its run");
	j.graph = part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->a[0].u.d[0];
	const attr *ops = attr_of(j.graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	for (int64_t i = 0; i < ops->n; i++) {
		desc *in[3];
		bool there = find(&j, pack, result(ops->u.d[i]));

		for (int k = operands(ops->u.d[i], in) - 1; k >= 0; k--)
			there = there && find(&j, pack, in[k]);
		if (!there)
			return bad("the pack lacks a tensor, or it does not lie as told", (int)i);
	}
	standin_do(standin_stream(h->stream), run_graph, &j, sizeof j);
	return CUDNN_STATUS_SUCCESS;
}
