/* gpu_attention.c: attention of 16-bit floats by cuDNN's fused forward: one graph of operations, as its documentation spells
 * attention out (product, scale, mask, softmax with statistics, product), of which its engines make one kernel. The plan is
 * the first that can be made of what its heuristics name (A, B, then those that only have to work), once per form before step 0.
 * Where there is none, or the first run is refused, the program's own kernels do it, and one line says so, with the library's
 * first reason; and with --reproducible, as what the library chooses depends on the batch. Its backward is not asked for: GPT-2's heads
 * have dropout, whose draws have to be ours, its sums have no fixed order, and what it saves (five products where ours make seven) is
 * not known before it was timed.
 *
 * The statistics are natural logarithms, [b, h, tq] in f32 without gaps: engines before 9.26 write them so whatever strides are told.
 * Hidden keys are those behind the query (from the upper left corner), by the lowest number, which engines know as leaving them out. */
#include "gpu_dnn.h"
#include <float.h>

enum { NODES = 16, CONFIGS = 64, WORKSPACE = 512 << 20 };
enum { Q = 1, K, V, Y, LSE, SCALE, HIDDEN, MADE }; /* numbers of tensors; from MADE on those that are never in memory */

typedef struct form form;
struct form {
	form *next;
	pd_attention_desc d;
	cudnnBackendDescriptor_t plan;
	bool off, ran;
};

/* What is being built: nothing more happens after the first fault. */
typedef struct graph {
	const pd_attention_desc *d;
	cudnnStatus_t s;
	cudnnBackendDescriptor_t op[NODES];
	int n;
	int64_t uid;
	char why[256]; /* the library's words for it; "": there was none */
} graph;

typedef cudnnBackendDescriptor_t Desc;
static form *forms;
static rt_piece workspace;

static void fault(graph *g, cudnnStatus_t s)
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

static Desc make(graph *g, cudnnBackendDescriptorType_t t)
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

static void set(
	graph *g, Desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n, const void *to)
{
	if (g->s == CUDNN_STATUS_SUCCESS)
		fault(g, cudnnBackendSetAttribute(d, name, type, n, to));
}

/* n: how many there are, of which up to `most` go to `to` */
static void get(graph *g, Desc d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
	int64_t *n, void *to)
{
	if (g->s == CUDNN_STATUS_SUCCESS)
		fault(g, cudnnBackendGetAttribute(d, name, type, most, n, to));
}

static void finish(graph *g, Desc d)
{
	if (g->s == CUDNN_STATUS_SUCCESS)
		fault(g, cudnnBackendFinalize(d));
}

static void set_desc(graph *g, Desc d, cudnnBackendAttributeName_t name, Desc to)
{
	set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &to);
}

static void set_type(graph *g, Desc d, cudnnBackendAttributeName_t name, cudnnDataType_t to)
{
	set(g, d, name, CUDNN_TYPE_DATA_TYPE, 1, &to);
}

/* ---- tensors ---- */

static Desc tensor(graph *g, int64_t uid, cudnnDataType_t type, const int64_t *dim, const int64_t *stride)
{
	const Desc d = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
	const int64_t align = 16;
	const bool made = uid >= MADE, told = uid == SCALE || uid == HIDDEN;

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
	graph *g, int64_t uid, int64_t rows, int64_t columns, const int64_t *stride, int64_t row, int64_t column)
{
	return tensor(g, uid, dnn_type(g->d->type), (const int64_t[]){ g->d->b, g->d->h, rows, columns },
		(const int64_t[]){ stride[0], stride[1], row, column });
}

/* [b, h, tq, columns] without gaps */
static Desc plain(graph *g, int64_t uid, cudnnDataType_t type, int64_t columns)
{
	const pd_attention_desc *d = g->d;

	return tensor(g, uid, type, (const int64_t[]){ d->b, d->h, d->tq, columns },
		(const int64_t[]){ d->h * d->tq * columns, d->tq * columns, columns, 1 });
}

static Desc number(graph *g, int64_t uid)
{
	return tensor(g, uid, CUDNN_DATA_FLOAT, (const int64_t[]){ 1, 1, 1, 1 }, (const int64_t[]){ 1, 1, 1, 1 });
}

/* What the next operation makes. */
static Desc scores(graph *g, cudnnDataType_t type) { return plain(g, g->uid++, type, g->d->tk); }
static Desc column(graph *g) { return plain(g, g->uid++, CUDNN_DATA_FLOAT, 1); }

/* ---- operations ---- */

static Desc done(graph *g, Desc op, Desc y)
{
	finish(g, op);
	if (g->s == CUDNN_STATUS_SUCCESS)
		g->op[g->n++] = op;
	return y;
}

static Desc product(graph *g, Desc a, Desc b, Desc y)
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
static Desc each(graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t in, int64_t axis, Desc x, Desc b, Desc t, Desc y)
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

static Desc math(graph *g, cudnnPointwiseMode_t mode, Desc x, Desc b, Desc y)
{
	return each(g, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y);
}

static Desc reduce(graph *g, cudnnReduceTensorOp_t what, Desc x, Desc y)
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

/* x where the key does not come behind the query, else a number that no score outweighs */
static Desc causal(graph *g, Desc x)
{
	const Desc row =
		each(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2, x, NULL, NULL, scores(g, CUDNN_DATA_INT32));
	const Desc key =
		each(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3, x, NULL, NULL, scores(g, CUDNN_DATA_INT32));
	const Desc seen =
		each(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, key, NULL, scores(g, CUDNN_DATA_BOOLEAN));

	return each(g, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, x, number(g, HIDDEN), seen,
		scores(g, CUDNN_DATA_FLOAT));
}

static void attention(graph *g)
{
	const pd_attention_desc *d = g->d;
	const cudnnDataType_t low = dnn_type(d->type);
	const Desc q = operand(g, Q, d->tq, d->d, d->q, d->q[2], 1), k = operand(g, K, d->d, d->tk, d->k, 1, d->k[2]);
	const Desc v = operand(g, V, d->tk, d->dv, d->v, d->v[2], 1), y = operand(g, Y, d->tq, d->dv, d->y, d->y[2], 1);
	Desc s = product(g, q, k, scores(g, CUDNN_DATA_FLOAT));

	s = math(g, CUDNN_POINTWISE_MUL, s, number(g, SCALE), scores(g, CUDNN_DATA_FLOAT));
	if (d->causal)
		s = causal(g, s);
	const Desc top = reduce(g, CUDNN_REDUCE_TENSOR_MAX, s, column(g));
	const Desc below = math(g, CUDNN_POINTWISE_SUB, s, top, scores(g, CUDNN_DATA_FLOAT));
	const Desc weight = math(g, CUDNN_POINTWISE_EXP, below, NULL, scores(g, CUDNN_DATA_FLOAT));
	const Desc sum = reduce(g, CUDNN_REDUCE_TENSOR_ADD, weight, column(g));
	const Desc log = math(g, CUDNN_POINTWISE_LOG, sum, NULL, column(g));

	math(g, CUDNN_POINTWISE_ADD, top, log, plain(g, LSE, CUDNN_DATA_FLOAT, 1));
	product(g, math(g, CUDNN_POINTWISE_DIV, weight, sum, scores(g, low)), v, y);
}

/* ---- the plan ---- */

/* The plan of a configuration; NULL: it refuses, or needs more workspace than there is. */
static Desc planned(graph *g, Desc config, size_t *bytes)
{
	cudnnHandle_t h = dnn_handle();
	const Desc plan = make(g, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	int64_t size = 0, got = 0;

	set(g, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &h);
	set_desc(g, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
	finish(g, plan);
	get(g, plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &got, &size);
	if (size > WORKSPACE) {
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
static Desc first_plan(graph *g, Desc all, cudnnBackendHeurMode_t mode, size_t *bytes)
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

static Desc choose(graph *g, size_t *bytes)
{
	static const cudnnBackendHeurMode_t modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
		CUDNN_HEUR_MODE_FALLBACK };
	cudnnHandle_t h = dnn_handle();
	Desc plan = NULL;

	attention(g);
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

static void give_up(form *o, const char *why)
{
	const pd_attention_desc *d = &o->d;

	o->off = true;
	rt_refusal_taken();
	if (rt_log >= RT_LOG_NOTE)
		printf("attention of %lld x %lld heads, %lld queries, %lld keys of %lld: not by cuDNN (%s), by kernels of the program\n",
			(long long)d->b, (long long)d->h, (long long)d->tq, (long long)d->tk, (long long)d->d, why);
}

static bool same(const pd_attention_desc *a, const pd_attention_desc *b)
{
	return a->type == b->type && a->causal == b->causal && a->scale == b->scale && a->b == b->b && a->h == b->h &&
	       a->tq == b->tq && a->tk == b->tk && a->d == b->d && a->dv == b->dv && !memcmp(a->q, b->q, sizeof a->q) &&
	       !memcmp(a->k, b->k, sizeof a->k) && !memcmp(a->v, b->v, sizeof a->v) && !memcmp(a->y, b->y, sizeof a->y);
}

enum { PARTS = 6 };

/* Bytes of y, lse, rest, q, k, v. */
static size_t workspace_parts(const form *o, size_t bytes[PARTS])
{
	const pd_attention_desc *d = &o->d;
	const int64_t *const of[PARTS] = { d->y, NULL, NULL, d->q, d->k, d->v };
	const int64_t t[PARTS] = { d->tq, 0, 0, d->tq, d->tk, d->tk }, wide[PARTS] = { d->dv, 0, 0, d->d, d->d, d->dv };
	size_t all = 0;

	for (int i = 0; i < PARTS; i++) {
		bytes[i] = of[i] ? 2 * (size_t)((d->b - 1) * of[i][0] + (d->h - 1) * of[i][1] + (t[i] - 1) * of[i][2] +
						wide[i])
		                 : sizeof(float) * (size_t)(d->b * d->h * d->tq);
		all += rt_part_bytes(bytes[i]);
	}
	return all;
}

static void run_once(void *of, char *scrap)
{
	const pd_attention p = { of };
	size_t bytes[PARTS];
	void *at[PARTS];

	workspace_parts(of, bytes);
	for (int i = 0; i < PARTS; i++)
		at[i] = rt_part(&scrap, bytes[i]);
	(void)pd_attention_run(&p, at[0], at[1], at[2], at[3], at[4], at[5]);
}

static form *made(const pd_attention_desc *d)
{
	form *o = rt_alloc(sizeof *o);
	graph g = { .d = &o->d, .uid = MADE };
	const size_t version = cudnnGetVersion();
	size_t bytes = 0;

	o->d = *d;
	o->next = forms;
	forms = o;
	if (rt_program->reproducible)
		o->off = true;
	else if (version == 91000 || version == 91001) /* its notes tell of wrong results */
		give_up(o, "9.10.0 and 9.10.1 have faults there");
	else if (!(o->plan = choose(&g, &bytes)))
		give_up(o, *g.why ? g.why : "its heuristics name no engine");
	else
		rt_want(&workspace, bytes, "cuDNN's workspace of attention");
	rt_refusal_taken();
	if (!o->off)
		rt_first_run(run_once, o, workspace_parts(o, (size_t[PARTS]){ 0 }));
	return o;
}

void pd_attention_init(pd_attention *p, const pd_attention_desc *d)
{
	if (rt_virtual)
		return;
	for (form *o = forms; o && !p->impl; o = o->next)
		if (same(&o->d, d))
			p->impl = o;
	if (!p->impl)
		p->impl = made(d);
}

int pd_attention_run(
	const pd_attention *p, void *y, float *lse, float *rest, const void *q, const void *k, const void *v)
{
	form *o = p->impl;
	graph g = { .d = &o->d };
	float scale = o->d.scale, hidden = -FLT_MAX;
	const int64_t uid[] = { Q, K, V, Y, LSE, SCALE, HIDDEN };
	const void *at[] = { q, k, v, y, lse, &scale, &hidden };
	const int n = o->d.causal ? 7 : 6;

	if (o->off)
		return 0;
	const Desc pack = make(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
	set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, uid);
	set(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, at);
	set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace.at);
	finish(&g, pack);
	if (g.s == CUDNN_STATUS_SUCCESS)
		fault(&g, cudnnBackendExecute(dnn_handle(), o->plan, pack));
	destroy(pack);
	if (o->ran)
		dnn_check(g.s, "attention");
	else if (g.s != CUDNN_STATUS_SUCCESS)
		give_up(o, g.why);
	else if (rt_log >= RT_LOG_DEBUG)
		printf("debug: attention of %lld queries, %lld keys: by cuDNN\n", (long long)o->d.tq,
			(long long)o->d.tk);
	o->ran = true;
	if (g.s != CUDNN_STATUS_SUCCESS)
		return 0;
	pd_fill(rest, 0, sizeof(float) * (size_t)(o->d.b * o->d.h * o->d.tq));
	return 1;
}
