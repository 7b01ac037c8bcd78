/* standin_engine.c: what stands in for cuDNN's heuristics and engines of graphs (standin_graph.c). The heuristic has an engine for two
 * graphs alone: product, scale, [causal mask,] softmax with statistics, product, of 16-bit floats, and its gradients. The engine
 * does one operation after the other. STANDIN_ATTENTION=0: no heuristic has any; `forward`: none has one for gradients; `late`: the
 * run is refused; `last`: heuristic A has none, B one that refuses, and of the last one's five the fifth is it, others refuse or
 * need more workspace than there is. */
#include <cudnn.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "pd.h"
#include "standin_dnn.h"
#include "standin_graph.h"

enum { WORKSPACE = 1024 };

/* Letters of the operations: what the engine takes. */
static char letter(const desc *o)
{
	if (o->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
		return 'P';
	if (o->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
		return 'r';
	if (o->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
		return graph_choice(graph_part(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
			       CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX
		               ? 'm'
		       : graph_choice(graph_part(o, CUDNN_ATTR_OPERATION_REDUCTION_DESC),
				 CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_ADD
		               ? 's'
		               : '?';
	switch (graph_mode(o)) {
	case CUDNN_POINTWISE_ADD: return '+';
	case CUDNN_POINTWISE_SUB: return '-';
	case CUDNN_POINTWISE_MUL: return '*';
	case CUDNN_POINTWISE_DIV: return '/';
	case CUDNN_POINTWISE_EXP: return 'e';
	case CUDNN_POINTWISE_LOG: return 'l';
	case CUDNN_POINTWISE_IDENTITY: return '=';
	case CUDNN_POINTWISE_GEN_INDEX: return 'i';
	case CUDNN_POINTWISE_CMP_GE: return '>';
	case CUDNN_POINTWISE_BINARY_SELECT: return '?';
	default: return ' ';
	}
}

/* 16 bits, rows of which each begins at 16 bytes; along `run` without gaps */
static bool good_operand(const desc *t, int run)
{
	const int type = graph_type(t);

	return !graph_hidden(t) && !graph_told(t) && (type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16) &&
	       graph_strides(t)[run] == 1 && graph_dims(t)[run] % 8 == 0 && graph_dims(t)[run] <= 128 &&
	       graph_strides(t)[5 - run] % 8 == 0;
}

static bool mode_is(const char *what)
{
	const char *s = getenv("STANDIN_ATTENTION");

	return s && !strcmp(s, what);
}

/* f32 in memory, a number of each query */
static bool good_column(const desc *t)
{
	return !graph_hidden(t) && graph_type(t) == CUDNN_DATA_FLOAT && graph_strides(t)[2] == 1 &&
	       graph_strides(t)[1] == graph_dims(t)[2] && graph_strides(t)[0] == graph_dims(t)[1] * graph_dims(t)[2];
}

/* Of operation i, or from the last one back: what it reads, and last what it makes. */
static void tensors_of(const desc *g, int64_t i, desc *t[4])
{
	const attr *ops = graph_attr(g, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	const desc *o = ops->u.d[i < 0 ? ops->n + i : i];

	memset(t, 0, 4 * sizeof *t);
	graph_operands(o, t);
	t[3] = graph_result(o);
}

static bool good_forward(const desc *g)
{
	desc *first[4], *last[4], *sum[4];

	tensors_of(g, 0, first);
	tensors_of(g, -1, last);
	tensors_of(g, -3, sum);
	return good_operand(first[0], 3) && good_operand(first[1], 2) && good_operand(last[1], 3) &&
	       good_operand(last[3], 3) && graph_type(last[0]) == graph_type(first[0]) && graph_hidden(last[0]) &&
	       good_column(sum[3]);
}

static bool good_backward(const desc *g)
{
	desc *part[4], *sum[4], *score[4], *lse[4], *weight[4], *dv[4], *values[4], *dk[4], *accum[4], *dq[4];

	tensors_of(g, 0, part);
	tensors_of(g, 2, sum);
	tensors_of(g, 3, score);
	tensors_of(g, 5, lse);
	tensors_of(g, -11, weight);
	tensors_of(g, -10, dv);
	tensors_of(g, -9, values);
	tensors_of(g, -4, dk);
	tensors_of(g, -2, accum);
	tensors_of(g, -1, dq);
	return good_operand(part[0], 3) && good_operand(part[1], 3) && good_column(sum[3]) &&
	       good_operand(score[0], 3) && good_operand(score[1], 2) && good_column(lse[1]) &&
	       graph_type(weight[3]) == graph_type(score[0]) && good_operand(dv[3], 3) && good_operand(values[1], 2) &&
	       good_operand(dk[3], 3) && graph_type(dk[0]) == graph_type(score[0]) && graph_hidden(accum[0]) &&
	       graph_type(accum[0]) == CUDNN_DATA_FLOAT && !graph_hidden(accum[3]) &&
	       graph_type(accum[3]) == CUDNN_DATA_FLOAT && good_operand(dq[3], 3) && dq[0] == accum[3];
}

static bool supported(const desc *g)
{
	const attr *ops = graph_attr(g, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	char all[OPS + 1] = "";

	for (int64_t i = 0; i < ops->n; i++)
		all[i] = letter(ops->u.d[i]);
	if (mode_is("0"))
		return false;
	if (!strcmp(all, "P*m-esl+/P") || !strcmp(all, "P*ii>?m-esl+/P"))
		return good_forward(g);
	return (!strcmp(all, "*s*P*-erPP-**rPrP=") || !strcmp(all, "*s*P*-ii>?erPP-**rPrP=")) && !mode_is("forward") &&
	       good_backward(g);
}

/* How many configurations a heuristic names for a graph, and what is wrong with each. */
static int named(const desc *heuristic, const int **faults)
{
	static const int good[] = { 0 }, one[] = { REFUSES }, many[] = { REFUSES, GREEDY, REFUSES, GREEDY, 0 };
	const int mode = graph_choice(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE);

	*faults = good;
	if (!supported(graph_part(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)))
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
		return graph_bad("asked of what is not finished", (int)name);
	if (d->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
		type == CUDNN_TYPE_INT64 && asked == 1) {
		*n = 1;
		*(int64_t *)to = graph_part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->fault == GREEDY
		                         ? (int64_t)1 << 40
		                         : WORKSPACE;
		return CUDNN_STATUS_SUCCESS;
	}
	if (d->type != CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR || name != CUDNN_ATTR_ENGINEHEUR_RESULTS ||
		type != CUDNN_TYPE_BACKEND_DESCRIPTOR)
		return graph_bad("asked for what there is not", (int)name);
	*n = named(d, &faults);
	for (int64_t i = 0; i < *n && i < asked; i++) {
		desc *config = ((desc **)to)[i];
		if (config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
			return graph_bad("results go to configurations of engines", config->type);
		config->finished = true;
		config->nattr = 1;
		config->fault = faults[i];
		config->a[0] = (attr){ .n = 1, .u.d = { graph_part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH) } };
	}
	return *n ? CUDNN_STATUS_SUCCESS : graph_refused("the stand-in has no engine for this graph");
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
		at += graph_dims(t)[k] == 1 ? 0 : i[k] * graph_strides(t)[k];
	return at;
}

/* Elements from the first to the last. */
static int64_t extent(const desc *t)
{
	int64_t n = 1;

	for (int k = 0; k < 4; k++)
		n += (graph_dims(t)[k] - 1) * graph_strides(t)[k];
	return n;
}

/* One element; of a tensor that is hidden memory is the library's own. */
static void touch(const place *p, order_use use, int64_t at)
{
	const size_t wide = graph_type(p->t) == CUDNN_DATA_FLOAT ? 4 : 2;

	if (!graph_hidden(p->t))
		standin_touch("cuDNN's graph", use, (const char *)p->at + at * (int64_t)wide, wide);
}

static float get(job *j, const desc *t, const int64_t *i)
{
	const place *p = place_of(j, t);
	const int64_t at = offset(t, i);

	if (graph_told(t))
		return p->value;
	touch(p, ORDER_READS, at);
	return graph_hidden(t) || graph_type(t) == CUDNN_DATA_FLOAT ? ((const float *)p->at)[at]
	       : graph_type(t) == CUDNN_DATA_HALF                   ? pd_from_f16(((const uint16_t *)p->at)[at])
	                                                            : pd_from_bf16(((const uint16_t *)p->at)[at]);
}

static void put(job *j, const desc *t, const int64_t *i, float v)
{
	const place *p = place_of(j, t);
	const int64_t at = offset(t, i);
	const int type = graph_type(t);
	const bool low = type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16;
	const uint16_t bits = type == CUDNN_DATA_HALF ? pd_to_f16(v) : pd_to_bf16(v);

	touch(p, ORDER_WRITES, at);
	if (!graph_hidden(t) && low)
		((uint16_t *)p->at)[at] = bits;
	else
		((float *)p->at)[at] = !low ? v : type == CUDNN_DATA_HALF ? pd_from_f16(bits) : pd_from_bf16(bits);
}

static float along(job *j, desc **in, const int64_t *i, char what)
{
	int64_t at[4], other[4];
	float v = what == 'm' ? -INFINITY : 0;

	memcpy(at, i, sizeof at);
	memcpy(other, i, sizeof other);
	for (int64_t k = 0; k < graph_dims(in[0])[3]; k++) {
		at[3] = other[2] = k;
		const float x = get(j, in[0], at);
		v = what == 'm' ? fmaxf(v, x) : what == 's' ? v + x : v + x * get(j, in[1], other);
	}
	return v;
}

static float value(job *j, const desc *o, desc **in, const int64_t *i)
{
	const char c = letter(o);

	if (c == 'P' || c == 'm' || c == 's')
		return along(j, in, i, c);
	if (c == 'i')
		return (float)i[graph_attr(
			graph_part(o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), CUDNN_ATTR_POINTWISE_AXIS)
				->u.i[0]];
	if (c == 'r')
		return get(j, in[0], (const int64_t[]){ i[0], i[1], i[3], i[2] });
	const float x = get(j, in[0], i), y = c == 'e' || c == 'l' || c == '=' ? 0 : get(j, in[1], i);
	switch (c) {
	case '+': return x + y;
	case '-': return x - y;
	case '*': return x * y;
	case '/': return x / y;
	case '=': return x;
	case 'e': return expf(x);
	case 'l': return logf(x);
	case '>': return x >= y;
	default: return get(j, in[2], i) != 0 ? x : y;
	}
}

static standin_end run_graph(void *what)
{
	job *j = what;
	const attr *ops = graph_attr(j->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	const int known_before = j->n;

	standin_device(1);
	for (int64_t k = 0; k < ops->n; k++) {
		desc *in[3], *y = graph_result(ops->u.d[k]);
		const int64_t *n = graph_dims(y);
		int64_t i[4];

		graph_operands(ops->u.d[k], in);
		if (graph_hidden(y))
			j->p[j->n++] = (place){ y, malloc((size_t)extent(y) * sizeof(float)), 0 };
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
	const attr *uid = graph_attr(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS),
		   *at = graph_attr(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);

	if (graph_hidden(t) || place_of(j, t))
		return true;
	for (int64_t i = 0; i < uid->n; i++)
		if (uid->u.i[i] == graph_uid(t) && at->u.p[i] && (graph_told(t) || (uintptr_t)at->u.p[i] % 16 == 0)) {
			j->p[j->n++] = (place){ t, (void *)(uintptr_t)at->u.p[i],
				graph_told(t) ? *(const float *)at->u.p[i] : 0 };
			return true;
		}
	return false;
}

/* An engine may make tensors of f32 before it has read all others. */
static bool apart(const job *j)
{
	for (int i = 0; i < j->n; i++)
		for (int k = 0; k < j->n; k++) {
			const desc *a = j->p[i].t, *b = j->p[k].t;
			const char *from = j->p[i].at, *to = from + extent(a) * (int64_t)sizeof(float),
				   *at = j->p[k].at;
			const int64_t bytes = extent(b) * (graph_type(b) == CUDNN_DATA_FLOAT ? 4 : 2);

			if (i != k && graph_type(a) == CUDNN_DATA_FLOAT && !graph_told(a) && !graph_told(b) &&
				at < to && at + bytes > from)
				return false;
		}
	return true;
}

API cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, cudnnBackendDescriptor_t of, cudnnBackendDescriptor_t with)
{
	const desc *plan = of, *pack = with;
	job j = { 0 };

	if (!h || !plan->finished || plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR || !pack->finished ||
		pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR ||
		!graph_attr(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)->u.p[0])
		return graph_bad("a run without a finished plan, a pack or a workspace", plan->type);
	if (mode_is("late"))
		return graph_refused("the stand-in's engine refuses its run");
	j.graph = graph_part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->a[0].u.d[0];
	const attr *ops = graph_attr(j.graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	for (int64_t i = 0; i < ops->n; i++) {
		desc *in[3];
		bool there = find(&j, pack, graph_result(ops->u.d[i]));

		for (int k = graph_operands(ops->u.d[i], in) - 1; k >= 0; k--)
			there = there && find(&j, pack, in[k]);
		if (!there)
			return graph_bad("the pack lacks a tensor, or it does not lie as told", (int)i);
	}
	if (!apart(&j))
		return graph_bad("what the engine keeps in f32 lies over another tensor", 0);
	standin_do(standin_stream(h->stream), run_graph, &j, sizeof j);
	return CUDNN_STATUS_SUCCESS;
}
