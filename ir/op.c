/* The op table, attributes by name, and the holes of kernel templates. */
#include "op.h"
#include <string.h>

#define OP(name) extern const OpDef op_##name;
#include "ops.def"
#undef OP

const OpDef *const optab[OP_COUNT] = {
#define OP(name) [OP_##name] = &op_##name,
#include "ops.def"
#undef OP
};

OpKind op_find(const char *name)
{
	for (int i = 1; i < OP_COUNT; i++)
		if (strcmp(optab[i]->name, name) == 0)
			return (OpKind)i;
	return OP_NONE;
}

const AttrDef *op_attr(OpKind op, const char *name)
{
	for (const AttrDef *d = optab[op]->attrs; d && d->name; d++)
		if (strcmp(d->name, name) == 0)
			return d;
	return NULL;
}

int op_dgrad(const Node *n, int i)
{
	const OpDef *d = optab[n->op];

	return d->dgrad[d->maxin < 0 || i >= MAXIN ? 0 : i];
}

int op_outs(OpKind op, const void *attr) { return optab[op]->outs ? optab[op]->outs(attr) : optab[op]->nout; }

/* ---- attributes ---- */

static void *field(const Node *n, const char *name, AttrKind kind)
{
	const AttrDef *d = op_attr(n->op, name);

	if (!d || d->kind != kind)
		bug("%s has no attribute %s of that kind", optab[n->op]->name, name);
	return (char *)n->attr + d->offset;
}

int64_t attr_int(const Node *n, const char *name) { return *(int64_t *)field(n, name, A_INT); }
double attr_float(const Node *n, const char *name) { return *(double *)field(n, name, A_FLOAT); }
DType attr_dtype(const Node *n, const char *name)
{
	const char *s = attr_str(n, name);

	return s && *s ? dtype_from_name(s) : DT_f32;
}
const char *attr_str(const Node *n, const char *name) { return *(const char **)field(n, name, A_STR); }
Ints attr_ints(const Node *n, const char *name) { return *(Ints *)field(n, name, A_INTS); }

void attr_set_int(Node *n, const char *name, int64_t v) { *(int64_t *)field(n, name, A_INT) = v; }

void attr_set_float(Node *n, const char *name, double v) { *(double *)field(n, name, A_FLOAT) = v; }

void attr_set_str(Node *n, const char *name, const char *v)
{
	*(const char **)field(n, name, A_STR) = v ? arena_str(n->graph->module->arena, v) : NULL;
}

void attr_set_ints(Node *n, const char *name, int k, const int64_t *v)
{
	*(Ints *)field(n, name, A_INTS) = (Ints){ k, arena_dup(n->graph->module->arena, v, sizeof *v * (size_t)k) };
}

/* ---- holes ---- */

static Hole *hole(Holes *h, const char *name)
{
	for (int i = 0; i < h->n; i++)
		if (strcmp(h->h[i].name, name) == 0)
			return &h->h[i];
	if (h->n == MAXHOLES)
		bug("more than %d holes", MAXHOLES);
	h->h[h->n].name = arena_str(h->arena, name);
	return &h->h[h->n++];
}

void hole_int(Holes *h, const char *name, int64_t v)
{
	Hole *x = hole(h, name);

	x->is_int = true;
	x->i = v;
	x->s = NULL;
}

void hole_text(Holes *h, const char *name, const char *fmt, ...)
{
	Hole *x = hole(h, name);
	va_list ap;

	va_start(ap, fmt);
	x->s = arena_vprintf(h->arena, fmt, ap);
	va_end(ap);
	x->is_int = false;
}

void hole_name(Holes *h, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	h->name = arena_vprintf(h->arena, fmt, ap);
	va_end(ap);
}

/* An operand more than the least is the moving average, behind the optimizer's other state. */
unsigned node_writes(const Node *n)
{
	const OpDef *d = optab[n->op];

	return d->writes && n->nin > d->minin ? d->writes << 1 | 1 : d->writes;
}
