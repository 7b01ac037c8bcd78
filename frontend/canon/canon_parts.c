/* What every operator's reading is made of: refusing, attributes by name, emitting nodes, binding their results. */
#include <string.h>
#include "canon.h"

bool canon_refuse(Import *im, const char *what) { return diag_error(im->d, im->b.loc, 302, "%s", what); }

/* Replaces n's outputs by constants where all it reads is constant. */
static void fold(Import *im, Node *n, Value **out)
{
	const OpDef *d = optab[n->op];
	Tensor in[MAXIN] = { 0 }, res[MAXIN] = { 0 };
	bool types_only = n->op == OP_Shape || n->op == OP_Size;

	for (int i = 0; i < n->nout; i++)
		out[i] = n->out[i];
	if (!d->eval || im->b.failed || n->nin > MAXIN || n->nout > MAXIN)
		return;
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];

		if (!v)
			continue;
		if (!types_only && (v->kind != VAL_CONST || !v->data))
			return;
		in[i] = (Tensor){ v->type, (void *)(uintptr_t)v->data };
	}
	if (!module_may_fold(im->m, n) || !d->eval(n, in, res, im->a))
		return;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			out[i] = module_const(im->m, n->out[i]->name, n->out[i]->type, res[i].data);
	node_remove(n);
}

void *canon_attr_of(Import *im, OpKind op) { return attr_new(im->a, op); }

static void *slot(OpKind op, void *attr, const char *name)
{
	const AttrDef *x = op_attr(op, name);

	if (!x)
		bug("%s has no attribute %s", optab[op]->name, name);
	return (char *)attr + x->offset;
}

void canon_put_int(OpKind op, void *attr, const char *name, int64_t v) { *(int64_t *)slot(op, attr, name) = v; }
void canon_put_float(OpKind op, void *attr, const char *name, double v) { *(double *)slot(op, attr, name) = v; }
void canon_put_str(OpKind op, void *attr, const char *name, const char *v) { *(const char **)slot(op, attr, name) = v; }
void canon_put_ints(OpKind op, void *attr, const char *name, Ints v) { *(Ints *)slot(op, attr, name) = v; }
int64_t canon_get_int(OpKind op, const void *attr, const char *name)
{
	return *(const int64_t *)slot(op, (void *)(uintptr_t)attr, name);
}

Ints canon_get_ints(OpKind op, const void *attr, const char *name)
{
	return *(const Ints *)slot(op, (void *)(uintptr_t)attr, name);
}

void *canon_attrs_by_name(Import *im, const OnnxNode *n, OpKind op)
{
	void *attr = canon_attr_of(im, op);

	for (const AttrDef *x = optab[op]->attrs; x && x->name; x++) {
		const OnnxAttr *o = onnx_attr(n, x->name);
		Ints v;

		if (!o)
			continue;
		if (x->kind == A_INT)
			canon_put_int(op, attr, x->name, o->i);
		else if (x->kind == A_FLOAT)
			canon_put_float(op, attr, x->name, onnx_float(n, x->name, 0));
		else if (x->kind == A_STR)
			canon_put_str(op, attr, x->name, onnx_str(im->a, n, x->name, NULL));
		else if (x->kind == A_INTS && onnx_ints(im->a, n, x->name, &v))
			canon_put_ints(op, attr, x->name, v);
	}
	return attr;
}

/* A node with these operands; gives its outputs, folded where possible. */
void canon_emit(Import *im, OpKind op, const void *attr, int nin, Value *const *in, const char *name, Value **out)
{
	fold(im, build(&im->b, op, attr, nin, in, name), out);
}

Value *canon_emit1(Import *im, OpKind op, const void *attr, Value *x, Value *y, const char *name)
{
	Value *in[2] = { x, y }, *out[MAXIN];

	canon_emit(im, op, attr, y ? 2 : 1, in, name, out);
	return out[0];
}

const char *canon_out_name(const OnnxNode *n) { return n->n_output && *n->output[0] ? n->output[0] : n->op_type; }

bool canon_emit_bind(Import *im, const OnnxNode *n, OpKind op, const void *attr, int nin, Value *const *in)
{
	Node *x;

	if (nin > 4096)
		return canon_refuse(im, "more than 4096 operands");
	if (im->shapes && nin > 1) {
		Value **followed = NEWN(im->a, Value *, nin);

		for (int i = 0; i < nin; i++)
			followed[i] = in[i];
		if (!rebind_operands(im, n, op, nin, followed))
			return false;
		in = followed;
	}
	x = build(&im->b, op, attr, nin, in, canon_out_name(n));
	if (im->b.failed)
		return false;
	int nout = x->nout;
	Value **out = NEWN(im->a, Value *, nout); /* a Split has as many as its attribute says */
	fold(im, x, out);
	for (int i = 0; i < nout && i < (int)n->n_output; i++) {
		if (!out[i])
			continue;
		if (i && *n->output[i] && out[i]->kind == VAL_NODE)
			value_rename(im->b.g, out[i], n->output[i]);
		onnx_bind(im, n, (size_t)i, out[i]);
	}
	return true;
}

Value **canon_operands(Import *im, const OnnxNode *n, int *count)
{
	Value **in = NEWN(im->a, Value *, n->n_input);

	for (size_t i = 0; i < n->n_input; i++)
		in[i] = onnx_in(im, n, i);
	*count = (int)n->n_input;
	while (*count && !in[*count - 1])
		--*count;
	return in;
}

bool canon_need(Import *im, const OnnxNode *n, size_t k)
{
	for (size_t i = 0; i < k; i++)
		if (!onnx_in(im, n, i))
			return diag_error(im->d, im->b.loc, 302, "operand %zu is missing", i);
	return true;
}

Value *canon_scalar(Import *im, DType t, double x) { return const_scalar(im->m, t, x); }

/* ---- as it is ---- */
