/* products of 8 bits (--amp fp8; passes/gpu/products.c calls it last, and never with --reproducible): a Product that amp marked (f8) takes
 * its operands so where it is one matrix by one, all extents are multiples of 16, its result is of 16 bits, or of f32 without a bias, and
 * adds up no rows on the way:
 *
 *     %x.f8[, %x.f8.across] = Quantize(%x, @x:scale)     behind %x, of a weight in front of its first product; pass_copies has that made
 *                                                      once per step
 *     Product(%x.f8, %w.f8, ...) {transB}              rows of both along k: across where it read the other way
 *     Rescale(@x:scale)                                   at the end of the update
 *
 * What is quantised is the value itself, whatever views lie between, of a weight the f32 that its copy in 16 bits is made of. Each is
 * quantised once for all products that read it, and kept so for the backward. @x:scale is each replica's own. */
#include <string.h>
#include "products.h"
#include "ir/analysis.h"

enum { EACH = 16 };

typedef struct Operand {
	Value *x, *state, *out[2]; /* of 8 bits as it lies, and across */
	int64_t columns;
	DType to;
	bool wanted[2];
	Node *first; /* of the products that read it */
} Operand;

typedef struct Fit { /* a product, and what it reads */
	Node *n;
	Operand *of[2];
} Fit;

typedef struct Eight {
	Products *p;
	Stage *s;
	Map known;
	Operand **all;
	Fit *fit;
	int n, cap, nfit, capfit;
} Eight;

static bool even(int64_t rows, int64_t columns) { return rows > 0 && rows % EACH == 0 && columns % EACH == 0; }

/* Of operand i: rows and columns as they lie in memory, if it is one matrix of 16-bit numbers. */
static bool matrix(const Node *n, int i, int64_t *rows, int64_t *columns)
{
	const Type *t = &n->in[i]->type;

	*columns = t->dim[t->rank - 1];
	*rows = *columns ? type_numel(t) / *columns : 0;
	return t->dtype == DT_bf16 && t->layout == LAYOUT_PLAIN && even(*rows, *columns);
}

bool prod_f8(const Node *n)
{
	int64_t rows[2], columns[2];

	if (n->op != OP_Product || attr_int(n, "f8") == F8_NONE || attr_int(n, "wide") || attr_int(n, "sum") ||
		!product_rows(n) || !matrix(n, 0, &rows[0], &columns[0]) || !matrix(n, 1, &rows[1], &columns[1]))
		return false;
	const bool ta = attr_int(n, "transA") != 0, tb = attr_int(n, "transB") != 0;
	const Type *y = &n->out[0]->type;
	const int64_t m = ta ? columns[0] : rows[0], k = ta ? rows[0] : columns[0];

	return m == product_rows(n) && (tb ? columns[1] : rows[1]) == k &&
	       (tb ? rows[1] : columns[1]) == prod_width(n->out[0]) &&
	       (y->dtype == DT_bf16 || (y->dtype == DT_f32 && !node_input(n, 2)));
}

/* What operand i is a copy or a view of. */
static Value *origin(const Node *n, int i)
{
	Value *v = value_root(n->in[i]);
	const Node *def = v->kind == VAL_NODE ? v->def : NULL;
	Value *of = def && def->op == OP_Cast ? def->in[0] : NULL;

	return of && of->kind == VAL_PARAM && of->type.dtype == DT_f32 && of->type.layout == v->type.layout ? of : v;
}

static Operand *operand_of(Eight *e, Node *n, int i)
{
	const bool gradient = attr_int(n, "f8") == (i ? F8_GRADIENT_B : F8_GRADIENT_A);
	const DType to = gradient ? DT_f8e5m2 : DT_f8e4m3;
	Value *x = origin(n, i);
	int64_t rows, columns;

	matrix(n, i, &rows, &columns);
	const char *key = arena_printf(e->p->cx->scratch, "%p %lld %s", (void *)x, (long long)columns, dtype_name(to));
	Operand *o = map_get(&e->known, key);
	if (!o) {
		o = NEW(e->p->cx->scratch, Operand);
		*o = (Operand){ .x = x, .columns = columns, .to = to, .first = n };
		map_put(&e->known, key, o);
		PUSH(e->p->cx->scratch, e->all, e->n, e->cap) = o;
	}
	return o;
}

/* Rows are wanted along k: operand a lies so where it is not transposed, b where it is. */
static int lies_across(const Node *n, int i) { return i ? attr_int(n, "transB") == 0 : attr_int(n, "transA") != 0; }

/* A name that does not depend on the plan, for checkpoints: of a weight, or of the model's node that reads it first, "in" or "gradient". */
static const char *state_name(Eight *e, const Operand *o)
{
	const char *node = o->first->loc.name;

	if (o->x->kind == VAL_PARAM || !node || !*node)
		return arena_printf(e->p->m->arena, "%s:scale", o->x->name);
	return arena_printf(e->p->m->arena, "%s:%s.scale", node, o->to == DT_f8e5m2 ? "gradient" : "in");
}

static void quantize(Eight *e, Operand *o)
{
	Module *m = e->p->m;
	Node *made = o->x->kind == VAL_NODE ? o->x->def : NULL;
	const char *name = arena_printf(e->p->cx->scratch, "%s.%s", o->x->name, dtype_name(o->to));
	const int64_t state = F8_STATE;
	Builder b = prod_at(e->p, made ? made : o->first);

	b.g = made ? made->graph : o->first->graph;
	b.before = made ? made->next : o->first;
	o->state = module_param(m, state_name(e, o), type_make(DT_f32, 1, &state), PARAM_STATE);
	o->state->param->own = true;
	PUSH(m->arena, e->s->param, e->s->nparam, e->s->capparam) = o->state;
	Node *q = quantize_make(&b, o->x, o->state, o->to,
		(o->wanted[0] ? F8_PLAIN : 0) | (o->wanted[1] ? F8_ACROSS : 0), o->columns, name);
	q->fwd = made ? made->fwd : NULL;
	o->out[0] = o->wanted[0] ? q->out[0] : NULL;
	o->out[1] = o->wanted[1] ? q->out[o->wanted[0]] : NULL;
}

static void find(Eight *e, Node *n)
{
	Fit f = { .n = n };

	for (int i = 0; i < 2; i++) {
		f.of[i] = operand_of(e, n, i);
		f.of[i]->wanted[lies_across(n, i)] = true;
	}
	PUSH(e->p->cx->scratch, e->fit, e->nfit, e->capfit) = f;
}

static void multiply(Eight *e, const Fit *fit)
{
	Node *n = fit->n;
	ProductForm f = product_form(n);

	for (int i = 0; i < 2; i++) {
		f.in[i] = fit->of[i]->out[lies_across(n, i)];
		f.in[4 + i] = fit->of[i]->state;
	}
	f.transa = false;
	f.transb = true;
	f.to = dtype_onnx(n->out[0]->type.dtype);
	prod_instead_of(e->p, n, prod_make(e->p, &f, n, n));
}

static void rescale(Eight *e, const Operand *o)
{
	Builder b = { .m = e->p->m,
		.g = e->s->update,
		.loc = o->first->loc,
		.phase = PHASE_UPDATE,
		.stage = e->s->id,
		.d = e->p->cx->d };

	rescale_make(&b, o->state, o->to);
}

void prod_in_8_bits(Products *p, Stage *s)
{
	Eight e = { .p = p, .s = s };
	Graph *g[4];
	const int ngraph = stage_graphs(s, g);

	map_init(&e.known, p->cx->scratch, true);
	for (int k = 0; k < ngraph; k++)
		for (Node *x = g[k]->first; x; x = x->next)
			if (prod_f8(x))
				find(&e, x);
	for (int i = 0; i < e.n; i++)
		quantize(&e, e.all[i]);
	for (int i = 0; i < e.nfit; i++)
		multiply(&e, &e.fit[i]);
	for (int i = 0; i < e.n; i++)
		rescale(&e, e.all[i]);
}
