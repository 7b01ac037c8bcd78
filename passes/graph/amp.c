/* amp: mixed precision. Matrix products, convolutions and attention take and give 16-bit floats (--amp bf16, fp16, fp8), sums,
 * statistics and updates stay in f32, and what lies between follows its operands. Weights keep their f32 values (the master
 * copies, which the optimizer updates); products read a rounded copy.
 *
 * One walk in program order, forward and backward alike. Three lists say what a node is:
 *     LOW      operands become 16-bit floats, and so does the result; products whose result is only wanted in f32, such as
 *              weights' gradients, give it in f32 directly: they add in f32 anyway
 *     FOLLOW   16 bits where all data are; where some operand is f32, all are. Parameters and constants take the type of
 *              the data; a scalar constant is a literal of the kernel and stays as exact as it is. Batch normalisation and
 *              pooling too: they read and write images in 16 bits and compute in f32, with scale, bias and statistics in f32
 *     F32      all others: losses, softmax, other normalisations, reductions, recurrent layers, Accumulate, the update. So what
 *              travels between replicas is f32
 * Where a value is wanted in another type a Cast is put before the first node that wants it and shared by later ones: the
 * backward of a product reads the copies that its forward made. A copy of a weight belongs to the forward node that reads it,
 * so it is made on the stage of that node and never sent.
 *
 * The copies of weights are made at each use, and once per microbatch, where nothing is flushed or servers hold them: what
 * a microbatch meets is then known at its forward alone. Otherwise pass_copies, when all nodes have their stages, makes one
 * copy of each weight for the stage, which the update makes again (Cast {once}) and which lies with the optimizer's
 * state, in place of one for each use, kept for every microbatch in flight; of filters of GPUs in the order that convolutions want
 * (Cast.layout, passes/graph/layout.c).
 *
 * fp8 is bf16, and tells of each product which operands are gradients (ProductF8): when all nodes have their stages and
 * their sizes, passes/gpu/f8.c has those of GPUs that can read 8 bits.
 *
 * Overflow of fp16: autodiff begins with LossScale() in place of 1, and the update divides by it (ops/training/clip.c).
 * Reads and writes Type.dtype; adds Cast nodes. Not in f64 (checking mode). */
#include <string.h>
#include "passes/common/plan.h"
#include "amp.h"
#include "ir/analysis.h"

typedef enum Way { F32, LOW, FOLLOW } Way;

typedef struct Amp {
	Module *m;
	PassCx *cx;
	DType low;
	Map made; /* key -> value: "p32 name.group" */
} Amp;

static Way way_of(const Node *n)
{
	switch (n->op) {
	case OP_Gemm:
	case OP_MatMul:
	case OP_Attention:
	case OP_AttentionGrad:
	case OP_Conv:
	case OP_ConvGradData:
	case OP_ConvGradWeights: return LOW;
	case OP_Exp:
	case OP_Log:
	case OP_Pow:
	case OP_Reciprocal:
	case OP_Sqrt:
	case OP_Softplus:
	case OP_Cast: return F32; /* small differences, or large results */
	case OP_Identity:
	case OP_Reshape:
	case OP_Transpose:
	case OP_Slice:
	case OP_Concat:
	case OP_Split:
	case OP_Expand:
	case OP_Reorder:
	case OP_BatchNorm:
	case OP_BatchNormGrad:
	case OP_MaxPool:
	case OP_MaxPoolGrad:
	case OP_AveragePool:
	case OP_AveragePoolGrad:
	case OP_GlobalAveragePool: return FOLLOW;
	case OP_SliceGrad: /* of a weight: its gradient is f32, and may go to a server slice by slice (opsw) */
		return n->fwd && n->fwd->in[0]->kind == VAL_PARAM ? F32 : FOLLOW;
	default: return n->phase != PHASE_UPDATE && (optab[n->op]->flags & OP_EW) ? FOLLOW : F32;
	}
}

/* Operands that are data of the node's element type: no conditions, indices, labels; scores' bias stays f32, and so do numbers
 * per channel. */
static bool typed(const Node *n, int i)
{
	if (!n->in[i] || !dtype_float(n->in[i]->type.dtype))
		return false;
	if (n->op == OP_Attention)
		return i < 3;
	if (n->op == OP_AttentionGrad)
		return i < 5;
	if (n->op == OP_BatchNorm || n->op == OP_BatchNormGrad)
		return i <= (n->op == OP_BatchNormGrad);
	return !(n->op == OP_Gemm && i == 2);
}

static bool is_data(const Value *v) { return v->kind == VAL_NODE || v->kind == VAL_INPUT; }

static bool literal(const Node *n, int i) { return (optab[n->op]->flags & OP_EW) && ew_literal(n, i); }

/* The forward node that n belongs to. */
static const Node *group_of(const Node *n) { return n->fwd ? n->fwd : n; }

/* A Cast of v goes before n; the update has none. It is of the stage of what made v, where the backward did and v is the wider. */
static Node *cast_for(Amp *a, Node *n, Value *v, DType t)
{
	Node *before = n;

	while (n->phase == PHASE_UPDATE && before->prev && before->prev->phase == PHASE_UPDATE)
		before = before->prev;
	Builder b = { .m = a->m,
		.g = n->graph,
		.before = before,
		.loc = n->loc,
		.stage = -1,
		.d = a->cx->d,
		.phase = n->phase == PHASE_UPDATE ? PHASE_BWD : n->phase };
	Node *c = build(&b, OP_Cast, NULL, 1, &v, arena_printf(a->cx->scratch, "%s.%s", v->name, dtype_name(t)));

	attr_set_int(c, "to", dtype_onnx(t));
	optab[OP_Cast]->shape(c, a->cx->d);
	if (c->phase == PHASE_BWD) {
		const bool made_there = v->def && v->def->phase == PHASE_BWD, wider = dtype_half(v->type.dtype);
		c->fwd = made_there && !wider ? v->def->fwd : n->fwd; /* stages send each other the narrower */
	}
	return c;
}

static Value *constant_as(Amp *a, Node *n, Value *v, DType t)
{
	Node *c = cast_for(a, n, v, t);
	const Tensor in = { v->type, (void *)(uintptr_t)v->data };
	Tensor out = { .data = NULL };

	if (!v->data || !optab[OP_Cast]->eval(c, &in, &out, a->m->arena))
		return c->out[0];
	Value *k = module_const(a->m, NULL, out.type, out.data);
	node_remove(c);
	return k;
}

/* v in type t, for n. */
static Value *as(Amp *a, Node *n, Value *v, DType t)
{
	const bool shared = v->kind == VAL_CONST || (v->def && v->def->phase == PHASE_BWD);

	if (v->type.dtype == t)
		return v;
	if (v->def && v->def->op == OP_Cast && v->def->in[0]->type.dtype == t && dtype_half(v->type.dtype) == 0)
		return v->def->in[0]; /* the f32 of what was t before */
	/* of what the backward made, and of activations in the forward, one copy serves all */
	const bool one = shared || (is_data(v) && n->phase == PHASE_FWD);
	const char *all = arena_printf(a->cx->scratch, "%s %s", v->name, dtype_name(t));
	const char *own = arena_printf(a->cx->scratch, "%s %p", all, (const void *)group_of(n));
	Value *known = map_get(&a->made, own);

	if (!known && (shared || is_data(v)))
		known = map_get(&a->made, all);
	if (known)
		return known;
	known = v->kind == VAL_CONST ? constant_as(a, n, v, t) : cast_for(a, n, v, t)->out[0];
	map_put(&a->made, one ? all : own, known);
	return known;
}

/* The gradients of batch normalisations and of pooling are of the type of the forward, whose images are as large as theirs. */
static bool as_forward(const Node *n)
{
	return n->fwd && (n->op == OP_BatchNormGrad || n->op == OP_MaxPoolGrad || n->op == OP_AveragePoolGrad);
}

/* FOLLOW: the type that the data have. */
static DType common_type(const Amp *a, const Node *n)
{
	bool low = false;

	if (as_forward(n))
		return n->fwd->out[0]->type.dtype;
	for (int i = 0; i < n->nin; i++) {
		if (!typed(n, i) || !is_data(n->in[i]))
			continue;
		if (!dtype_half(n->in[i]->type.dtype))
			return DT_f32;
		low = true;
	}
	return low ? a->low : DT_f32;
}

/* Made in the backward, and no copy of what the forward made. */
static bool is_gradient(const Value *v)
{
	while (v->kind == VAL_NODE && v->def->phase == PHASE_BWD && v->def->nin &&
		((optab[v->def->op]->flags & (OP_VIEW | OP_COMM)) || v->def->op == OP_Cast ||
			v->def->op == OP_Transpose || v->def->op == OP_Slice || v->def->op == OP_Concat ||
			v->def->op == OP_Expand))
		v = v->def->in[0];
	return v->kind == VAL_NODE && v->def->phase == PHASE_BWD;
}

static void mark_f8(Node *n)
{
	const bool a = is_gradient(n->in[0]), b = is_gradient(n->in[1]);

	attr_set_int(n, "f8", a && b ? F8_NONE : a ? F8_GRADIENT_A : b ? F8_GRADIENT_B : F8_FORWARD);
}

static bool visit(Amp *a, Node *n)
{
	const Way way = way_of(n);
	const DType t = way == LOW ? a->low : way == FOLLOW ? common_type(a, n) : DT_f32;

	for (int i = 0; i < n->nin; i++)
		if (typed(n, i) && !(way == FOLLOW && literal(n, i)) && n->in[i]->type.dtype != DT_f64)
			node_set_input(n, i, as(a, n, n->in[i], t));
	if ((n->op == OP_Gemm || n->op == OP_MatMul) && a->cx->train->target.amp.kind == AMP_FP8)
		mark_f8(n);
	return !optab[n->op]->shape || optab[n->op]->shape(n, a->cx->d);
}

/* A product whose result is read in f32 alone gives it so. */
static bool give_f32(Amp *a, Node *n)
{
	Value *y = n->out[0];

	if ((n->op != OP_Gemm && n->op != OP_MatMul) || !dtype_half(y->type.dtype) || !y->nuses)
		return true;
	for (int i = 0; i < y->nuses; i++)
		if (y->uses[i].node->op != OP_Cast || y->uses[i].node->out[0]->type.dtype != DT_f32)
			return true;
	for (int i = 0; i < n->graph->nout; i++)
		if (n->graph->out[i] == y)
			return true;
	attr_set_int(n, "to", dtype_onnx(DT_f32));
	if (!optab[n->op]->shape(n, a->cx->d))
		return false;
	for (int k = y->nuses; k > 0; k--) { /* whoever read a Cast comes behind the Casts */
		Node *c = y->uses[0].node;
		value_replace(c->out[0], y);
		node_remove(c);
	}
	return true;
}

DType amp_dtype(const Training *t)
{
	if (!t || t->target.amp.kind == AMP_OFF || t->target.f64)
		return DT_f32;
	return amp_scaled(t) ? DT_f16 : DT_bf16;
}

static bool fits_f8(const Training *t, Diag *d)
{
	if (t->target.amp.kind != AMP_FP8)
		return true;
	if (!target_cuda(t))
		return diag_error(d, NOLOC, 520,
			"--amp fp8 is for GPUs of sm_89 and newer (--target cuda): this program is for CPUs, which have no products of "
			"8 bits; choose bf16");
	return !t->loop.reproducible ||
	       diag_error(d, NOLOC, 520,
		       "--reproducible with --amp fp8: a device scales its numbers by the largest that it met, and with another plan "
		       "meets others; choose bf16");
}

bool pass_amp(Module *m, PassCx *cx)
{
	Amp a = { .m = m, .cx = cx, .low = amp_dtype(cx->train) };
	bool ok = true;

	if (!m->graph)
		return diag_error(
			cx->d, FILELOC(m->file), 410, "amp runs before split; this module has stages already");
	if (a.low == DT_f32)
		return true;
	if (!fits_f8(cx->train, cx->d))
		return false;
	map_init(&a.made, cx->scratch, true);
	for (Node *n = m->graph->first; ok && n; n = n->next)
		ok = visit(&a, n);
	for (Node *n = m->graph->first; ok && n; n = n->next)
		ok = give_f32(&a, n);
	return ok;
}

/* ---- copies of weights, once per step ---- */

typedef struct Copies {
	Module *m;
	PassCx *cx;
	Stage *s;
	Map made; /* "type layout name" -> value */
} Copies;

/* passes/gpu/f8.c makes one of each weight, with all that its stage reads. */
static void quantize_once(Copies *c, Node *n)
{
	attr_set_int(n, "once", 1);
	n->phase = PHASE_FWD;
	node_move(n, c->s->forward, c->s->forward->first);
}

static void copy_once(Copies *c, Node *n)
{
	Value *w = n->in[0];
	const DType t = n->out[0]->type.dtype;
	const char *layout = attr_str(n, "layout"), *name = n->out[0]->name;
	const char *key = arena_printf(c->cx->scratch, "%s %s %s", dtype_name(t), layout, w->name);
	Value *copy = map_get(&c->made, key);

	if (!copy) {
		Builder b = { .m = c->m,
			.g = c->s->forward,
			.before = c->s->forward->first,
			.loc = n->loc,
			.stage = n->stage,
			.d = c->cx->d,
			.phase = PHASE_FWD };
		Node *k = build(&b, OP_Cast, NULL, 1, &w, name);
		attr_set_int(k, "to", dtype_onnx(t));
		attr_set_int(k, "once", 1);
		attr_set_str(k, "layout", layout);
		optab[OP_Cast]->shape(k, c->cx->d);
		k->time = n->time / (double)(c->m->microbatches > 0 ? c->m->microbatches : 1);
		copy = k->out[0];
		map_put(&c->made, key, copy);
	}
	value_replace(n->out[0], copy);
	node_remove(n);
	if (copy->name != name && !map_get(copy->def->graph->names, name))
		value_rename(copy->def->graph, copy, name);
}

bool pass_copies(Module *m, PassCx *cx)
{
	if (!cx->train || !copies_weights(cx->train) || !m->schedule || m->schedule->async)
		return true;
	for (int i = 0; i < m->nstage; i++) {
		Copies c = { .m = m, .cx = cx, .s = m->stage[i] };
		Graph *g[4];
		const int ngraph = stage_graphs(c.s, g);
		bool copied = false;
		map_init(&c.made, cx->scratch, true);
		for (int k = 0; !c.s->server && k < ngraph; k++)
			for (Node *n = g[k]->first, *next; n; n = next) {
				next = n->next;
				if (g[k] == c.s->update || !rounds_weight(n) || cast_once(n))
					continue;
				if (n->op == OP_Quantize)
					quantize_once(&c, n);
				else
					copy_once(&c, n);
				copied = true;
			}
		if (copied)
			list_kept(m, c.s);
	}
	return true;
}
