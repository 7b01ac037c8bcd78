/* gpu_attention_graph.c: attention and its gradients as graphs of cuDNN's operations, as its documentation spells them out, of which
 * its engines make one kernel, and the plan of such a graph: the first that can be made of what its heuristics name (A, B, then
 * those that only have to work).
 *
 * The statistics are natural logarithms, [b, h, tq] in f32 without gaps: engines before 9.26 write them so whatever strides are told.
 * Hidden keys are those behind the query (from the upper left corner), by the lowest number, which engines know as leaving them out. */
#include "gpu_dnn.h"

enum { CONFIGS = 64 };

typedef cudnnBackendDescriptor_t Desc;

static void fault(attn_graph *g, cudnnStatus_t s)
{
	char more[160] = "";

	g->s = s;
	if (s == CUDNN_STATUS_SUCCESS || *g->why)
		return;
	cudnnGetLastErrorString(more, sizeof more);
	for (char *c = more; *c; c++)
		*c = *c == '\n' ? ' ' : *c;
	snprintf(g->why, sizeof g->why, "%s%s%s", cudnnGetErrorString(s), *more ? ": " : "", more);
}

static Desc make(attn_graph *g, cudnnBackendDescriptorType_t t)
{
	Desc d = NULL;

	if (g->s == CUDNN_STATUS_SUCCESS)
		fault(g, cudnnBackendCreateDescriptor(t, &d));
	return d;
}

static void destroy(Desc d)
{
	if (d)
		cudnnBackendDestroyDescriptor(d);
}

static void set(attn_graph *g, Desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
	const void *to)
{
	if (g->s == CUDNN_STATUS_SUCCESS)
		fault(g, cudnnBackendSetAttribute(d, name, type, n, to));
}

/* n: how many there are, of which up to `most` go to `to` */
static void get(attn_graph *g, Desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
	int64_t *n, void *to)
{
	if (g->s == CUDNN_STATUS_SUCCESS)
		fault(g, cudnnBackendGetAttribute(d, name, type, most, n, to));
}

static void finish(attn_graph *g, Desc d)
{
	if (g->s == CUDNN_STATUS_SUCCESS)
		fault(g, cudnnBackendFinalize(d));
}

static void set_desc(attn_graph *g, Desc d, cudnnBackendAttributeName_t name, Desc to)
{
	set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
}

static void set_type(attn_graph *g, Desc d, cudnnBackendAttributeName_t name, cudnnDataType_t to)
{
	set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &to);
}

/* ---- tensors ---- */

static Desc tensor(attn_graph *g, int64_t uid, cudnnDataType_t type, const int64_t *dim, const int64_t *stride)
{
	const Desc d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	const int64_t align = 16;
	const bool made = uid >= ATTN_MADE, told = uid == ATTN_SCALE || uid == ATTN_HIDDEN || uid == ATTN_ONE;

	set_type(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, type);
	set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
	set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
	set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
	set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align);
	set(g, d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &made);
	set(g, d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &told);
	finish(g, d);
	return d;
}

static Desc operand(
	attn_graph *g, int64_t uid, int64_t rows, int64_t columns, const int64_t *stride, int64_t row, int64_t column)
{
	return tensor(g, uid, dnn_type(g->d->type), (const int64_t[]){ g->d->b, g->d->h, rows, columns },
		(const int64_t[]){ stride[0], stride[1], row, column });
}

/* [b, h, tq, columns] without gaps */
static Desc plain(attn_graph *g, int64_t uid, cudnnDataType_t type, int64_t columns)
{
	const pd_attention_desc *d = g->d;

	return tensor(g, uid, type, (const int64_t[]){ d->b, d->h, d->tq, columns },
		(const int64_t[]){ d->h * d->tq * columns, d->tq * columns, columns, 1 });
}

static Desc number(attn_graph *g, int64_t uid)
{
	return tensor(g, uid, CUDNN_DATA_FLOAT, (const int64_t[]){ 1, 1, 1, 1 }, (const int64_t[]){ 1, 1, 1, 1 });
}

/* What the next operation makes. */
static Desc scores(attn_graph *g, cudnnDataType_t type) { return plain(g, g->uid++, type, g->d->tk); }
static Desc column(attn_graph *g) { return plain(g, g->uid++, CUDNN_DATA_FLOAT, 1); }

/* ---- operations ---- */

static Desc done(attn_graph *g, Desc op, Desc y)
{
	finish(g, op);
	if (g->s == CUDNN_STATUS_SUCCESS)
		g->op[g->n++] = op;
	return y;
}

static Desc product(attn_graph *g, Desc a, Desc b, Desc y)
{
	const Desc how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR),
		   op = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);

	set_type(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
	finish(g, how);
	set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
	set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
	set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
	set_desc(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
	return done(g, op, y);
}

/* b, t: NULL where the operation has none. axis: of GEN_INDEX, else -1 */
static Desc each(
	attn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t in, int64_t axis, Desc x, Desc b, Desc t, Desc y)
{
	const Desc how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
		   op = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);

	set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
	set_type(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, in);
	if (axis >= 0)
		set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
	finish(g, how);
	set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
	set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
	if (b)
		set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
	if (t)
		set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
	set_desc(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
	return done(g, op, y);
}

static Desc math(attn_graph *g, cudnnPointwiseMode_t mode, Desc x, Desc b, Desc y)
{
	return each(g, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y);
}

static Desc reduce(attn_graph *g, cudnnReduceTensorOp_t what, Desc x, Desc y)
{
	const Desc how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR),
		   op = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);

	set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &what);
	set_type(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
	finish(g, how);
	set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
	set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
	set_desc(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
	return done(g, op, y);
}

/* y is x where it lies, by other sizes and strides. */
static Desc seen_as(attn_graph *g, Desc x, Desc y)
{
	const Desc op = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

	set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
	set_desc(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
	return done(g, op, y);
}

/* x where the key does not come behind the query, else a number that no score outweighs */
static Desc causal(attn_graph *g, Desc x)
{
	const Desc row =
		each(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2, x, NULL, NULL, scores(g, CUDNN_DATA_INT32));
	const Desc key =
		each(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3, x, NULL, NULL, scores(g, CUDNN_DATA_INT32));
	const Desc seen =
		each(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, key, NULL, scores(g, CUDNN_DATA_BOOLEAN));

	return each(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x, number(g, ATTN_HIDDEN), seen,
		scores(g, CUDNN_DATA_FLOAT));
}

/* k and v as columns: [b, h, d, tk] */
static Desc turned_keys(attn_graph *g) { return operand(g, ATTN_K, g->d->d, g->d->tk, g->d->k, 1, g->d->k[2]); }

static void forward(attn_graph *g)
{
	const pd_attention_desc *d = g->d;
	const cudnnDataType_t low = dnn_type(d->type);
	const Desc q = operand(g, ATTN_Q, d->tq, d->d, d->q, d->q[2], 1), k = turned_keys(g);
	const Desc v = operand(g, ATTN_V, d->tk, d->dv, d->v, d->v[2], 1),
		   y = operand(g, ATTN_Y, d->tq, d->dv, d->y, d->y[2], 1);
	Desc s = product(g, q, k, scores(g, CUDNN_DATA_FLOAT));

	s = math(g, CUDNN_POINTWISE_MUL, s, number(g, ATTN_SCALE), scores(g, CUDNN_DATA_FLOAT));
	if (d->causal)
		s = causal(g, s);
	const Desc top = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, column(g));
	const Desc below = math(g, CUDNN_POINTWISE_SUB, s, top, scores(g, CUDNN_DATA_FLOAT));
	const Desc weight = math(g, CUDNN_POINTWISE_EXP, below, NULL, scores(g, CUDNN_DATA_FLOAT));
	const Desc sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, weight, column(g));
	const Desc log = math(g, CUDNN_POINTWISE_LOG, sum, NULL, column(g));

	math(g, CUDNN_POINTWISE_ADD, top, log, plain(g, ATTN_LSE, CUDNN_DATA_FLOAT, 1));
	product(g, math(g, CUDNN_POINTWISE_DIV, weight, sum, scores(g, low)), v, y);
}

/* Scores of f32 [b, h, tq, tk], rounded, as [b, h, tk, tq]. */
static Desc turned(attn_graph *g, Desc x)
{
	const pd_attention_desc *d = g->d;

	return seen_as(g, x,
		tensor(g, g->uid++, dnn_type(d->type), (const int64_t[]){ d->b, d->h, d->tk, d->tq },
			(const int64_t[]){ d->h * d->tq * d->tk, d->tq * d->tk, 1, d->tk }));
}

/* The weights again, from the statistics; dv of them, then the gradient of scores, of which dk, and dq, which is added up in f32. */
static void backward(attn_graph *g)
{
	const pd_attention_desc *d = g->d;
	const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
	const Desc q = operand(g, ATTN_Q, d->tq, d->d, d->q, d->q[2], 1), k = turned_keys(g);
	const Desc v = operand(g, ATTN_V, d->dv, d->tk, d->v, 1, d->v[2]), scale = number(g, ATTN_SCALE);
	const Desc y = operand(g, ATTN_Y, d->tq, d->dv, d->y, d->y[2], 1),
		   dy = operand(g, ATTN_DY, d->tq, d->dv, d->y, d->y[2], 1);
	const Desc part = math(g, CUDNN_POINTWISE_MUL, dy, y, plain(g, g->uid++, f32, d->dv));
	const Desc sum = math(g, CUDNN_POINTWISE_MUL, reduce(g, CUDNN_REDUCE_TENSOR_ADD, part, column(g)),
		number(g, ATTN_ONE), plain(g, ATTN_SUMS, f32, 1));
	Desc s = product(g, q, k, scores(g, f32));

	s = math(g, CUDNN_POINTWISE_MUL, s, scale, scores(g, f32));
	s = math(g, CUDNN_POINTWISE_SUB, s, plain(g, ATTN_LSE, f32, 1), scores(g, f32));
	if (d->causal)
		s = causal(g, s);
	const Desc weight = math(g, CUDNN_POINTWISE_EXP, s, NULL, scores(g, f32));
	product(g, turned(g, weight), dy, operand(g, ATTN_DV, d->tk, d->dv, d->v, d->v[2], 1));
	Desc ds = product(g, dy, v, scores(g, f32));
	ds = math(g, CUDNN_POINTWISE_SUB, ds, sum, scores(g, f32));
	ds = math(g, CUDNN_POINTWISE_MUL, ds, weight, scores(g, f32));
	ds = math(g, CUDNN_POINTWISE_MUL, ds, scale, scores(g, f32));
	product(g, turned(g, ds), q, operand(g, ATTN_DK, d->tk, d->d, d->k, d->k[2], 1));
	const Desc rows = seen_as(g, k, operand(g, g->uid++, d->tk, d->d, d->k, d->k[2], 1));
	const Desc accum = product(g, ds, rows, plain(g, ATTN_ACCUM, f32, d->d));
	math(g, CUDNN_POINTWISE_IDENTITY, accum, NULL, operand(g, ATTN_DQ, d->tq, d->d, d->q, d->q[2], 1));
}

/* ---- the plan ---- */

/* The plan of a configuration; NULL: it refuses, or needs more workspace than there is. */
static Desc planned(attn_graph *g, Desc config, size_t *bytes)
{
	cudnnHandle_t h = dnn_handle();
	const Desc plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	int64_t size = 0, got = 0;

	set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
	set_desc(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
	finish(g, plan);
	get(g, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got, &size);
	if (size > ATTN_WORKSPACE) {
		g->s = CUDNN_STATUS_NOT_SUPPORTED;
		if (!*g->why)
			snprintf(g->why, sizeof g->why, "it needs %lld bytes of workspace", (long long)size);
	}
	*bytes = (size_t)size;
	if (g->s == CUDNN_STATUS_SUCCESS)
		return plan;
	destroy(plan);
	return NULL;
}

/* The first of what the heuristic names, best first, that a plan can be made of; NULL: of none. */
static Desc first_plan(attn_graph *g, Desc all, cudnnBackendHeurMode_t mode, size_t *bytes)
{
	const Desc heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	Desc config[CONFIGS] = { NULL }, plan = NULL;
	int64_t n = 0;

	set_desc(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
	set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	finish(g, heuristic);
	get(g, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &n, NULL);
	n = n < CONFIGS ? n : CONFIGS;
	for (int64_t i = 0; i < n; i++)
		config[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	if (n > 0)
		get(g, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, n, &n, config);
	for (int64_t i = 0; i < CONFIGS; i++) {
		if (i < n && !plan) {
			g->s = CUDNN_STATUS_SUCCESS;
			if ((plan = planned(g, config[i], bytes)))
				continue; /* the plan keeps its configuration */
		}
		destroy(config[i]);
	}
	destroy(heuristic);
	return plan;
}

Desc attn_plan(attn_graph *g, size_t *bytes)
{
	static const cudnnBackendHeurMode_t modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
		CUDNN_HEUR_MODE_FALLBACK };
	cudnnHandle_t h = dnn_handle();
	Desc plan = NULL;

	g->uid = ATTN_MADE;
	if (g->d->backward)
		backward(g);
	else
		forward(g);
	const Desc all = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
	set(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->n, g->op);
	set(g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
	finish(g, all);
	if (g->s != CUDNN_STATUS_SUCCESS)
		return NULL;
	for (size_t i = 0; i < sizeof modes / sizeof *modes && !plan; i++) {
		g->s = CUDNN_STATUS_SUCCESS;
		plan = first_plan(g, all, modes[i], bytes);
	}
	return plan;
}

void attn_start(attn_graph *g, Desc plan, int n, const int64_t *uid, const void *const *at, void *workspace)
{
	const Desc pack = make(g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);

	set(g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid);
	set(g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
	set(g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
	finish(g, pack);
	if (g->s == CUDNN_STATUS_SUCCESS)
		fault(g, cudnnBackendExecute(dnn_handle(), plan, pack));
	destroy(pack);
}
