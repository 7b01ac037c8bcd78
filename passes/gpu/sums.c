/* sums: for GPUs. What is added and dropped round a normalisation is part of it, so that it is read once less:
 *     %s, %mask = Dropout(%x, %more)                    %y, %mean, %rstd, %s = LayerNormalization(%x, .., %more) {id ..}
 *     %y, %mean, %rstd = LayerNormalization(%s, ..)
 *     %s = Add(%x, %more), LayerNormalization(%s, ..)   likewise
 *     %dx, .. = LayerNormGrad(..)                       %dx, .., %dd = LayerNormGrad(..) {id ..}
 *     %dd = DropoutGrad(%dx, %mask)
 *     %dx, .. = LayerNormGrad(..), %half = Cast(%dx)    %dx, .., %half = LayerNormGrad(..) {to}
 * No mask is kept: what a sample's element draws is known wherever it is asked for (ir/ops/dropout). A Dropout whose mask something
 * else reads stays. */
#include "products.h"

/* What v is a view of. */
static Value *seen_through(Value *v)
{
	while (v->kind == VAL_NODE && prod_view(v->def))
		v = v->def->in[0];
	return v;
}

/* v before it was widened to f32, or v. */
static Value *narrow(Value *v)
{
	const Node *n = v->kind == VAL_NODE ? v->def : NULL;

	return n && n->op == OP_Cast && dtype_half(n->in[0]->type.dtype) && n->in[0]->type.layout == v->type.layout
	               ? n->in[0]
	               : v;
}

static int64_t sample_of(const Node *drop)
{
	const Type *t = &drop->in[0]->type;

	return t->rank && t->dim[0] ? type_numel(t) / (t->dim[0] / attr_int(drop, "rows")) : type_numel(t);
}

/* Rows of x that are normalised stay in registers, and are those of what is dropped. */
static bool by_rows(const Node *norm, const Value *x, const Value *scale, const Node *drop)
{
	return norm_in_registers(&x->type, attr_int(norm, "axis")) &&
	       (!drop ||
		       (drop->in[0]->type.layout == LAYOUT_PLAIN && attr_int(drop, "degree") == 1 &&
			       dropout_width(&drop->in[0]->type, attr_int(drop, "rows")) == type_numel(&scale->type)));
}

static void draw_as(Node *norm, const Node *drop)
{
	attr_set_float(norm, "ratio", attr_float(drop, "ratio"));
	attr_set_int(norm, "each", sample_of(drop));
	attr_set_int(norm, "id", attr_int(drop, "id"));
	attr_set_int(norm, "seed", attr_int(drop, "seed"));
	attr_set_int(norm, "evaluates", attr_int(drop, "evaluates"));
}

void prod_instead_of(Products *p, Node *n, Node *made)
{
	const int count = n->nout;
	const char **name = NEWN(p->cx->scratch, const char *, count);

	made->fwd = n->fwd;
	made->time = n->time;
	for (int i = 0; i < count; i++)
		name[i] = n->out[i]->name;
	for (int i = count - 1; i >= 0; i--)
		if (!value_dead(n->out[i]))
			prod_becomes(p, n->out[i], made->out[i]);
	if (n->in[0])
		node_drop(n);
	for (int i = 0; i < count; i++)
		prod_named(made->out[i], name[i]);
}

void prod_norm_past(Products *p, Node *n)
{
	const Value *dx = seen_through(n->in[0]), *mask = seen_through(n->in[1]);
	Node *norm = dx->kind == VAL_NODE ? dx->def : NULL, *drop = mask->kind == VAL_NODE ? mask->def : NULL;

	if (!norm || norm->graph != n->graph || (norm->op != OP_LayerNormGrad && norm->op != OP_RMSNormGrad) ||
		norm->out[0] != dx || attr_int(norm, "each") || !drop || drop->op != OP_Dropout || drop->out[1] != mask)
		return;
	const Value *scale = node_input(norm, norm->op == OP_LayerNormGrad ? 4 : 3);
	if (!scale || !by_rows(norm, norm->in[1], scale, drop))
		return;
	draw_as(norm, drop);
	attr_set_int(norm, "to", dtype_onnx(n->out[0]->type.dtype));
	Builder b = prod_at(p, norm);
	Node *made = build(&b, norm->op, norm->attr, norm->nin, norm->in, NULL);
	prod_becomes(p, n->out[0], made->out[made->nout - 1]);
	prod_instead_of(p, norm, made);
}

void prod_norm_rounded(Products *p, Node *n)
{
	Value *dx = seen_through(n->in[0]);
	Node *norm = dx->kind == VAL_NODE ? dx->def : NULL;

	if (!norm || norm->graph != n->graph || (norm->op != OP_LayerNormGrad && norm->op != OP_RMSNormGrad) ||
		norm->out[0] != dx || attr_int(norm, "to") || !dtype_half(n->out[0]->type.dtype) ||
		n->out[0]->type.layout != LAYOUT_PLAIN)
		return;
	const Value *scale = node_input(norm, norm->op == OP_LayerNormGrad ? 4 : 3);
	if (!scale || !by_rows(norm, norm->in[1], scale, NULL))
		return;
	attr_set_int(norm, "to", dtype_onnx(n->out[0]->type.dtype));
	Builder b = prod_at(p, norm);
	Node *made = build(&b, norm->op, norm->attr, norm->nin, norm->in, NULL);
	prod_becomes(p, n->out[0], made->out[made->nout - 1]);
	prod_instead_of(p, norm, made);
}

/* Two operands of as many elements, in f32 and plain order. */
static bool adds_all(const Node *n)
{
	const int64_t count = type_numel(&n->out[0]->type);

	for (int i = 0; i < 2; i++)
		if (type_numel(&n->in[i]->type) != count || n->in[i]->type.dtype != DT_f32 ||
			n->in[i]->type.layout != LAYOUT_PLAIN)
			return false;
	return true;
}

void prod_norm_sum(Products *p, Node *n)
{
	const int full = n->op == OP_LayerNormalization ? 3 : 2;
	Value *sum = seen_through(n->in[0]), *in[4];
	Node *made = sum->kind == VAL_NODE ? sum->def : NULL, *drop = made && made->op == OP_Dropout ? made : NULL;

	if (!made || made->graph != n->graph || n->nin != full || sum->index ||
		!(drop ? value_dead(drop->out[1]) : made->op == OP_Add && adds_all(made)) ||
		!by_rows(n, n->in[0], n->in[1], drop))
		return;
	for (int i = 1; i < full; i++) {
		in[i] = n->in[i];
		if (in[i]->kind == VAL_NODE)
			return; /* it may be made behind the sum */
	}
	const bool first = drop || narrow(made->in[0]) != made->in[0]; /* which may be of 16 bits */
	Value *part[2] = { narrow(made->in[!first]), first ? node_input(made, 1) : made->in[0] };
	Builder b = prod_at(p, made);
	Type t = n->in[0]->type;
	b.loc = n->loc;
	if (part[1])
		in[full] = mk_reshape(&b, part[1], &t);
	t.dtype = part[0]->type.dtype;
	in[0] = mk_reshape(&b, part[0], &t);
	if (drop)
		draw_as(n, drop);
	Node *whole = build(&b, n->op, n->attr, full + (part[1] != NULL), in, NULL);
	prod_becomes(p, sum, whole->out[whole->nout - 1]);
	prod_instead_of(p, n, whole);
}
