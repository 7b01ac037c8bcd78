/* layout: activations round convolutions lie channels-last, which is what the library computes on; weights stay plain.
 *
 * One walk in program order. A convolution (or one of its gradients) asks for its activations in NHWC; ops that can
 * compute in either order (OP_NHWC) follow when one of their operands is NHWC; all others get plain operands. Where a
 * value lies in the wrong order a Reorder is put before the first node that minds, and shared by all later ones. Every
 * node is typed anew on the way, so layouts spread by the ops' own shape rules.
 *
 * Graphs without convolutions stay as they are, and so does everything in f64 (checking mode: plain loops) and on GPUs. Inputs and
 * parameters are plain. Reads and writes Type.layout; adds Reorder nodes. */
#include <string.h>
#include "plan.h"

typedef struct Layouts {
	Module *m;
	PassCx *cx;
	Map     other;              /* value -> the same in the other layout */
} Layouts;

static bool is_conv(OpKind op)
{
	return op == OP_Conv || op == OP_ConvGradData || op == OP_ConvGradWeights;
}

/* Asks for NHWC by itself. The gradient of an average is larger than what it is made from: turn the small one. */
static bool asks(OpKind op)
{
	return is_conv(op) || op == OP_AveragePoolGrad;
}

/* Operand i is an image with channels on axis 1, not a weight. What is the same in every microbatch stays plain where
 * nodes read any order; a Concat with zeros, or a pooled parameter, needs it in the order of the others. */
static bool is_image(const Node *n, int i)
{
	const Value *v = n->in[i];

	if (!v || v->type.rank < 3 || ((optab[n->op]->flags & OP_EW) && (v->kind == VAL_PARAM || v->kind == VAL_CONST)))
		return false;
	return !((n->op == OP_Conv || n->op == OP_ConvGradData) && i == 1);
}

static bool wants_nhwc(const Node *n)
{
	if (asks(n->op))
		return true;
	for (int i = 0; i < n->nin; i++)
		if ((optab[n->op]->flags & OP_NHWC) && is_image(n, i) && n->in[i]->type.layout == LAYOUT_NHWC)
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
	Builder b = { .m = l->m, .g = n->graph, .before = before, .loc = n->loc, .stage = n->stage, .d = l->cx->d,
		.phase = n->phase == PHASE_UPDATE ? PHASE_BWD : n->phase };
	Node *r = build(&b, OP_Reorder, NULL, 1, &v, v->name);
	r->fwd = n->fwd;
	attr_set_str(r, "layout", layout == LAYOUT_NHWC ? "nhwc" : "plain");
	optab[OP_Reorder]->shape(r, l->cx->d);
	map_put(&l->other, v, r->out[0]);
	map_put(&l->other, r->out[0], v);
	return r->out[0];
}

static bool visit(Layouts *l, Node *n)
{
	const bool nhwc = wants_nhwc(n);

	if (n->op == OP_Reorder)
		return true;
	for (int i = 0; i < n->nin; i++) {
		Value *v = n->in[i];
		if (!v || v->type.rank < 3)
			continue;
		if (nhwc && is_image(n, i) && minds(n, i))
			node_set_input(n, i, in_layout(l, n, v, LAYOUT_NHWC));
		else if (!nhwc && v->type.layout != LAYOUT_PLAIN)
			node_set_input(n, i, in_layout(l, n, v, LAYOUT_PLAIN));
	}
	return !optab[n->op]->shape || optab[n->op]->shape(n, l->cx->d);
}

bool pass_layout(Module *m, PassCx *cx)
{
	Layouts l = { .m = m, .cx = cx };
	bool any = false, ok = true;

	if (!m->graph)
		return diag_error(cx->d, FILELOC(m->file), 410, "layout runs before split; this module has stages already");
	for (const Node *n = m->graph->first; n; n = n->next)
		any |= is_conv(n->op);
	if (!any || ((cx->train && cx->train->f64) || target_cuda(cx->train)))
		return true;
	map_init(&l.other, cx->scratch, false);
	for (Node *n = m->graph->first; ok && n; n = n->next)
		ok = visit(&l, n);
	return ok;
}
