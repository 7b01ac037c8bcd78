/* One meaning per op from here on. Every ONNX operator has a row in onnx_ops.def: most go over as they are,
 * attributes by name; the others are written in canonical ops (canon_move.c, canon_nn.c): constant operands become
 * attributes, old opsets the newest meaning. */
#include <string.h>
#include "frontend/canon/canon.h"

/* ---- building ---- */

static bool same(Import *im, const OnnxNode *n)
{
	OpKind op = op_find(n->op_type);
	int nin;
	Value **in = canon_operands(im, n, &nin);

	if (optab[op]->maxin >= 0 && nin > optab[op]->maxin)
		return diag_error(im->d, im->b.loc, 302, "%d operands, the most is %d", nin, optab[op]->maxin);
	if (nin < optab[op]->minin)
		return diag_error(im->d, im->b.loc, 302, "%d operands, the least is %d", nin, optab[op]->minin);
	return canon_need(im, n, (size_t)optab[op]->minin) &&
	       canon_emit_bind(im, n, op, canon_attrs_by_name(im, n, op), nin, in);
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

/* Div and Mod: integers by a constant zero have no result. One that comes in with the data is 0 (ir/ops/elementwise/text.c). */
static bool division(Import *im, const OnnxNode *n)
{
	const Value *by = canon_need(im, n, 2) ? onnx_in(im, n, 1) : NULL;

	if (!by)
		return false;
	const int size = dtype_bytes(by->type.dtype);
	if (by->kind == VAL_CONST && by->data && !dtype_float(by->type.dtype))
		for (int64_t i = 0; i < type_numel(&by->type); i++)
			if (!memcmp((const char *)by->data + i * size, &(int64_t){ 0 }, (size_t)size))
				return diag_error(im->d, im->b.loc, 306,
					"%s of integers by zero: element %lld of %s, %s", n->op_type, (long long)i,
					by->name, str_type(im->d->scratch, &by->type));
	return strcmp(n->op_type, "Mod") == 0 ? same(im, n) : arithmetic(im, n);
}

static bool identity(Import *im, const OnnxNode *n)
{
	if (!canon_need(im, n, 1))
		return false;
	onnx_bind(im, n, 0, onnx_in(im, n, 0));
	return true;
}

/* ---- the table ---- */

static const struct row {
	bool (*run)(Import *, const OnnxNode *);
	CanonFact fact;
} table[] = {
#define ONNX(op, run, since, until, becomes) { run, { #op, since, until, becomes } },
#include "onnx_ops.def"
#undef ONNX
};

const CanonFact *canon_fact(int i) { return i >= 0 && i < (int)(sizeof table / sizeof *table) ? &table[i].fact : NULL; }

static const struct row *find(const char *op, const char *domain)
{
	if (*domain && strcmp(domain, "ai.onnx"))
		return NULL;
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (strcmp(table[i].fact.name, op) == 0)
			return &table[i];
	return NULL;
}

bool canon_supported(const char *op, const char *domain) { return find(op, domain) != NULL; }

/* The opset that counts for n, the model's or that of the function whose body n stands in, has the operator. */
static bool check_opset(Import *im, const CanonFact *f)
{
	const char *whose = im->opset == im->m->opset ? "model" : "function";

	if (im->opset < f->since)
		return diag_error(im->d, im->b.loc, 308, "%s is an operator of opset %d and later; the %s has opset %d",
			f->name, f->since, whose, im->opset);
	if (f->until && im->opset > f->until)
		return diag_error(im->d, im->b.loc, 308, "%s is an operator of opsets up to %d; the %s has opset %d",
			f->name, f->until, whose, im->opset);
	return true;
}

bool canon_node(Import *im, const OnnxNode *n)
{
	const struct row *r = find(n->op_type, n->domain ? n->domain : "");

	return onnx_check_attributes(n, im->b.loc, im->d) && check_opset(im, &r->fact) && r->run(im, n);
}
