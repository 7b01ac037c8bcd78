/* One meaning per op from here on. Every ONNX operator has a row in onnx_ops.def: most go over as they are,
 * attributes by name; the others are written in canonical ops (canon_move.c, canon_nn.c): constant operands become
 * attributes, old opsets the newest meaning. */
#include <string.h>
#include "canon.h"

/* ---- building ---- */

bool canon_refuse(Import *im, const char *what)
{
	return diag_error(im->d, im->b.loc, 302, "%s", what);
}

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
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && type_bytes(&n->out[i]->type) > (int64_t)1 << 30)
			return;
	if (!d->eval(n, in, res, im->a))
		return;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			out[i] = module_const(im->m, n->out[i]->name, n->out[i]->type, res[i].data);
	node_remove(n);
}

void *canon_attr_of(Import *im, OpKind op)
{
	return attr_new(im->a, op);
}

static void *slot(OpKind op, void *attr, const char *name)
{
	const AttrDef *x = op_attr(op, name);

	if (!x)
		bug("%s has no attribute %s", optab[op]->name, name);
	return (char *)attr + x->offset;
}

void canon_put_int(OpKind op, void *attr, const char *name, int64_t v)    { *(int64_t *)slot(op, attr, name) = v; }
void canon_put_float(OpKind op, void *attr, const char *name, double v)   { *(double *)slot(op, attr, name) = v; }
void canon_put_str(OpKind op, void *attr, const char *name, const char *v){ *(const char **)slot(op, attr, name) = v; }
void canon_put_ints(OpKind op, void *attr, const char *name, Ints v)      { *(Ints *)slot(op, attr, name) = v; }
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

const char *canon_out_name(const OnnxNode *n)
{
	return n->n_output && *n->output[0] ? n->output[0] : n->op_type;
}

bool canon_emit_bind(Import *im, const OnnxNode *n, OpKind op, const void *attr, int nin, Value *const *in)
{
	Value *out[MAXIN] = { 0 };
	Node *x;

	if (nin > 4096)
		return canon_refuse(im, "more than 4096 operands");
	if (im->shapes && nin > 1 && (optab[op]->flags & OP_EW) && (size_t)nin <= n->n_input) {
		Value **followed = NEWN(im->a, Value *, nin);

		for (int i = 0; i < nin; i++)
			followed[i] = in[i];
		if (!rebind_broadcast(im, n, nin, followed))
			return false;
		in = followed;
	}
	x = build(&im->b, op, attr, nin, in, canon_out_name(n));
	if (im->b.failed)
		return false;
	int nout = x->nout;
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

Value *canon_scalar(Import *im, DType t, double x)
{
	return const_scalar(im->m, t, x);
}

/* ---- as it is ---- */

static bool same(Import *im, const OnnxNode *n)
{
	OpKind op = op_find(n->op_type);
	int nin;
	Value **in = canon_operands(im, n, &nin);

	if (optab[op]->maxin >= 0 && nin > optab[op]->maxin)
		return diag_error(im->d, im->b.loc, 302, "%d operands, the most is %d", nin, optab[op]->maxin);
	if (nin < optab[op]->minin)
		return diag_error(im->d, im->b.loc, 302, "%d operands, the least is %d", nin, optab[op]->minin);
	return canon_emit_bind(im, n, op, canon_attrs_by_name(im, n, op), nin, in);
}

/* Before opset 7 the second operand of arithmetic is placed by attributes broadcast and axis. */
static bool arithmetic(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 2))
		return false;
	Value *in[2] = { onnx_in(im, n, 0), onnx_in(im, n, 1) };
	OpKind op = op_find(n->op_type);
	if (im->opset < 7 && onnx_attr(n, "axis")) {
		int64_t axis = onnx_int(n, "axis", 0);
		Type t = in[1]->type;
		int rank = in[0]->type.rank;

		axis += axis < 0 ? rank : 0;
		for (int i = t.rank; axis + t.rank < rank && i < rank - axis && t.rank < MAXRANK; i++)
			t.dim[t.rank++] = 1;
		void *at = canon_attr_of(im, OP_Reshape);
		canon_put_ints(OP_Reshape, at, "shape", (Ints){ t.rank, arena_dup(im->a, t.dim, sizeof t.dim) });
		in[1] = canon_emit1(im, OP_Reshape, at, in[1], NULL, NULL);
	}
	return canon_emit_bind(im, n, op, canon_attrs_by_name(im, n, op), 2, in);
}

static bool identity(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 1))
		return false;
	onnx_bind(im, n, 0, onnx_in(im, n, 0));
	return true;
}

/* ---- the table ---- */

static const struct row { bool (*run)(Import *, const OnnxNode *); CanonFact fact; } table[] = {
#define ONNX(op, run, since, until, becomes) { run, { #op, since, until, becomes } },
#include "onnx_ops.def"
#undef ONNX
};

const CanonFact *canon_fact(int i)
{
	return i >= 0 && i < (int)(sizeof table / sizeof *table) ? &table[i].fact : NULL;
}

static const struct row *find(const char *op, const char *domain)
{
	if (*domain && strcmp(domain, "ai.onnx"))
		return NULL;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (strcmp(table[i].fact.name, op) == 0)
			return &table[i];
	return NULL;
}

bool canon_supported(const char *op, const char *domain)
{
	return find(op, domain) != NULL;
}

/* The opset that counts for n, the model's or that of the function whose body n stands in, has the operator. */
static bool check_opset(Import *im, const CanonFact *f)
{
	const char *whose = im->opset == im->m->opset ? "model" : "function";

	if (im->opset < f->since)
		return diag_error(im->d, im->b.loc, 308, "%s is an operator of opset %d and later; the %s has opset %d", f->name, f->since,
			whose, im->opset);
	if (f->until && im->opset > f->until)
		return diag_error(im->d, im->b.loc, 308, "%s is an operator of opsets up to %d; the %s has opset %d", f->name, f->until,
			whose, im->opset);
	return true;
}

bool canon_node(Import *im, const OnnxNode *n)
{
	const struct row *r = find(n->op_type, n->domain ? n->domain : "");

	return onnx_check_attributes(n, im->b.loc, im->d) && check_opset(im, &r->fact) && r->run(im, n);
}
