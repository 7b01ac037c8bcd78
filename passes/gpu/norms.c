/* norms: for GPUs. A Relu behind a batch normalization that kernels of ours do (channels-last images of 16-bit floats) is part of it,
 * forward and backward, and so is what is added before the Relu (the shortcut of a residual block):
 *     %y, .. = BatchNorm(%x, ..)   %z = Relu(%y)                       %z, .. = BatchNorm(%x, ..) {relu}
 *     %dy = ReluGrad(%dz, %z)      %dx, .. = BatchNormGrad(%dy, ..)    %dx, .. = BatchNormGrad(%dz, .., %bias) {relu}
 *     %y, .. = BatchNorm(%x, ..)   %z = Relu(Add(%y, %more))           %z, .. = BatchNorm(%x, .., %more) {relu}
 * so that %y is not written and read once more, nor %dy. What a Relu let through is known from x again, where nothing was added. */
#include "products.h"

static bool by_our_kernels(const Value *x) { return dtype_half(x->type.dtype) && x->type.layout == LAYOUT_NHWC; }

/* What n adds to v, a result of `norm`, where it is made before that; NULL: it does not. */
static Value *added(const Node *n, const Value *v, const Node *norm)
{
	if (n->op != OP_Add || n->graph != norm->graph || (n->in[0] != v && n->in[1] != v))
		return NULL;
	Value *more = n->in[0] == v ? n->in[1] : n->in[0];
	const bool there = more->kind != VAL_NODE || more->def->graph != norm->graph || prod_precedes(more->def, norm);

	return more != v && there && shape_eq(&more->type, &v->type) && more->type.layout == v->type.layout &&
	                       more->type.dtype == v->type.dtype
	               ? more
	               : NULL;
}

static void relu_of_sum(Products *p, Node *n, Value *more, Node *act)
{
	Builder b = prod_at(p, n);
	Value *in[6];

	for (int i = 0; i < n->nin; i++)
		in[i] = n->in[i];
	in[n->nin] = more;
	attr_set_int(n, "relu", 1);
	Node *made = build(&b, OP_BatchNorm, n->attr, n->nin + 1, in, NULL);
	prod_becomes(p, act->out[0], made->out[0]);
	prod_instead_of(p, n, made);
}

void prod_batchnorm_relu(Products *p, Node *n)
{
	Value *y = n->out[0];
	Node *act = by_our_kernels(n->in[0]) ? prod_user(y) : NULL;
	Value *more = act ? added(act, y, n) : NULL;

	if (more) {
		y = act->out[0];
		act = prod_user(y);
	}
	if (!act || act->op != OP_Relu || act->in[0] != y || act->graph != n->graph)
		return;
	if (more) {
		relu_of_sum(p, n, more, act);
		return;
	}
	attr_set_int(n, "relu", 1);
	prod_becomes(p, act->out[0], y);
}

void prod_batchnorm_relu_gradient(Products *p, Node *n)
{
	Node *grad = prod_user(n->out[0]);
	const Value *z = value_root(n->in[1]);
	const Node *norm = z->kind == VAL_NODE ? z->def : NULL;

	if (!grad || grad->op != OP_BatchNormGrad || grad->graph != n->graph || grad->in[0] != n->out[0] || !norm ||
		norm->op != OP_BatchNorm || z->index || !attr_int(norm, "relu") || norm->nin % 2 == 0 ||
		value_root(norm->in[0]) != value_root(grad->in[1]))
		return;
	Builder b = prod_at(p, grad);
	Value *in[6] = { n->in[0], grad->in[1], grad->in[2], grad->in[3], grad->in[4], norm->in[2] };

	attr_set_int(grad, "relu", 1);
	prod_instead_of(p, grad, build(&b, OP_BatchNormGrad, grad->attr, 6, in, NULL)); /* and n goes with it */
}
