/* layout: activations round convolutions lie channels-last, which is what the library computes on.
 *
 * One walk in program order. A convolution (or one of its gradients) asks for its activations in NHWC; ops that can
 * compute in either order (OP_NHWC) follow when one of their operands is NHWC; all others get plain operands. Where a
 * value lies in the wrong order a Reorder is put before the first node that minds, and shared by all later ones. Every
 * node is typed anew on the way, so layouts spread by the ops' own shape rules.
 *
 * On CPUs weights stay plain. On GPUs convolutions of 16-bit floats over one or two axes ask, since units for products of
 * matrices read channels-last (f32 stays plain, which the library computes on as fast), and they want filters in that order
 * too: the Cast that rounds a weight (passes/graph/amp.c), or an image that comes in, gives it so, and the Cast that widens a
 * weight's gradient gives it back plain. So f32 values of weights, sums and updates are plain, on either.
 *
 * Graphs without such convolutions stay as they are, and so does everything in f64 (checking mode: plain loops). Inputs and
 * parameters are plain. Reads and writes Type.layout; adds Reorder nodes, writes Cast.layout and ConvGradWeights.layout. */
#include <string.h>
#include "passes/common/plan.h"

typedef struct Layouts {
	Module *m;
	PassCx *cx;
	bool gpu;
	Map other; /* value -> the same in the other layout */
} Layouts;

static bool is_conv(OpKind op) { return op == OP_Conv || op == OP_ConvGradData || op == OP_ConvGradWeights; }

/* Asks for NHWC by itself. The gradient of an average is larger than what it is made from: turn the small one; GPUs: where its
 * neighbours lie so, as what was averaged does. The library has filters of two axes in that order, not of three. */
static bool asks(const Layouts *l, const Node *n)
{
	if (l->gpu && n->nin && n->in[0]->type.rank > 4)
		return false;
	if (n->op == OP_AveragePoolGrad && l->gpu)
		return n->fwd && node_input(n->fwd, 0) && n->fwd->in[0]->type.layout == LAYOUT_NHWC;
	return n->op == OP_AveragePoolGrad || (is_conv(n->op) && (!l->gpu || dtype_half(n->in[0]->type.dtype)));
}

static bool is_filter(const Node *n, int i) { return (n->op == OP_Conv || n->op == OP_ConvGradData) && i == 1; }

/* Operand i is an image with channels on axis 1, or lies as one. What is the same in every microbatch stays plain where
 * nodes read any order; a Concat with zeros, or a pooled parameter, needs it in the order of the others. */
static bool is_image(const Layouts *l, const Node *n, int i)
{
	const Value *v = n->in[i];

	if (!v || v->type.rank < 3 || ((optab[n->op]->flags & OP_EW) && (v->kind == VAL_PARAM || v->kind == VAL_CONST)))
		return false;
	return l->gpu || !is_filter(n, i);
}

static bool wants_nhwc(const Layouts *l, const Node *n)
{
	if (asks(l, n) || is_conv(n->op))
		return asks(l, n);
	for (int i = 0; i < n->nin; i++)
		if ((optab[n->op]->flags & OP_NHWC) && is_image(l, n, i) && n->in[i]->type.layout == LAYOUT_NHWC)
			return true;
	return false;
}

/* An elementwise node takes operands in any order, but reads those of full size best in its own. */
static bool minds(const Node *n, int i)
{
	const Value *v = n->in[i];

	if (!(optab[n->op]->flags & OP_EW))
		return true;
	for (int k = 0; k < n->nin; k++)
		if (n->in[k] && type_numel(&n->in[k]->type) > type_numel(&v->type))
			return false;
	return true;
}

static Value *in_layout(Layouts *l, Node *n, Value *v, Layout layout)
{
	Value *o = map_get(&l->other, v);

	if (v->type.layout == layout)
		return v;
	if (o)
		return o;
	Node *before = n;
	while (n->phase == PHASE_UPDATE && before->prev && before->prev->phase == PHASE_UPDATE)
		before = before->prev;
	Builder b = { .m = l->m,
		.g = n->graph,
		.before = before,
		.loc = n->loc,
		.stage = -1,
		.d = l->cx->d,
		.phase = n->phase == PHASE_UPDATE ? PHASE_BWD : n->phase };
	Node *r = build(&b, OP_Reorder, NULL, 1, &v, v->name);
	r->fwd = n->fwd;
	attr_set_str(r, "layout", layout == LAYOUT_NHWC ? "nhwc" : "plain");
	optab[OP_Reorder]->shape(r, l->cx->d);
	map_put(&l->other, v, r->out[0]);
	map_put(&l->other, r->out[0], v);
	return r->out[0];
}

/* ---- GPUs ---- */

/* How a reader of a Cast's result wants it, if it has a wish. */
static bool wish(const Layouts *l, const Node *n, Layout *layout)
{
	*layout = asks(l, n) ? LAYOUT_NHWC : LAYOUT_PLAIN;
	return *layout == LAYOUT_NHWC || is_conv(n->op) || !(optab[n->op]->flags & OP_NHWC);
}

/* A Cast whose result all readers want in the order that its operand has not gives it so: no Reorder behind it. */
static void turn_in_cast(const Layouts *l, Node *n)
{
	const Value *y = n->out[0];
	Layout want, other;

	if (y->type.rank < 3 || !y->nuses || value_is_output(y) || !wish(l, y->uses[0].node, &want))
		return;
	for (int i = 1; i < y->nuses; i++)
		if (!wish(l, y->uses[i].node, &other) || other != want)
			return;
	if (want != n->in[0]->type.layout)
		attr_set_str(n, "layout", want == LAYOUT_NHWC ? "nhwc" : "plain");
}

static bool visit(Layouts *l, Node *n)
{
	const bool nhwc = wants_nhwc(l, n);

	if (n->op == OP_Reorder)
		return true;
	if (l->gpu && n->op == OP_Cast)
		turn_in_cast(l, n);
	if (l->gpu && nhwc && n->op == OP_ConvGradWeights)
		attr_set_str(n, "layout", "nhwc");
	for (int i = 0; i < n->nin; i++) {
		Value *v = n->in[i];
		if (!v || v->type.rank < 3)
			continue;
		if (nhwc && is_image(l, n, i) && minds(n, i))
			node_set_input(n, i, in_layout(l, n, v, LAYOUT_NHWC));
		else if (!nhwc && v->type.layout != LAYOUT_PLAIN)
			node_set_input(n, i, in_layout(l, n, v, LAYOUT_PLAIN));
	}
	return !optab[n->op]->shape || optab[n->op]->shape(n, l->cx->d);
}

bool pass_layout(Module *m, PassCx *cx)
{
	Layouts l = { .m = m, .cx = cx, .gpu = target_cuda(cx->train) };
	bool any = false, ok = true;

	if (!m->graph)
		return diag_error(
			cx->d, FILELOC(m->file), 410, "layout runs before split; this module has stages already");
	for (const Node *n = m->graph->first; n; n = n->next)
		any |= is_conv(n->op) && asks(&l, n);
	if (!any || (cx->train && cx->train->target.f64))
		return true;
	map_init(&l.other, cx->scratch, false);
	for (Node *n = m->graph->first; ok && n; n = n->next)
		ok = visit(&l, n);
	return ok;
}
