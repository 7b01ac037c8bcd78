/* Two operands of an Einsum become one: by Mul where nothing is contracted, else by a batched MatMul. There are many ways
 * to lay [batch, m, k] x [batch, k, n] out; the one that copies least is taken. */
#include <string.h>
#include "einsum.h"

static void push(Term *t, int label)
{
	if (ein_find(t, label) < 0)
		t->label[t->n++] = label;
}

static int64_t numel(const Ein *e, const Term *t)
{
	int64_t k = 1;

	for (int i = 0; i < t->n; i++)
		k *= e->dim[t->label[i]];
	return k;
}

static double copied(const Ein *e, const Term *t, const Term *order)
{
	return ein_moves(e, t, order) ? (double)numel(e, t) : 0;
}

/* x and y multiplied elementwise over all their labels; what `keep` does not have is summed. */
static bool by_mul(Ein *e, Term *x, const Term *y, const Term *want, const bool *keep)
{
	Term order[3] = { *x, *y, *want }, in[2] = { *x, *y };
	bool gone[LABELS];
	int best = 0;
	double least = -1;

	for (int k = 0; k < 3; k++) { /* in the order of x, of y, or of what is wanted */
		const Term *rest[2] = { k == 1 ? y : x, k == 1 ? x : y };
		double cost;

		for (int r = 0; r < 2; r++)
			for (int i = 0; i < rest[r]->n; i++)
				push(&order[k], rest[r]->label[i]);
		cost = copied(e, x, &order[k]) + copied(e, y, &order[k]) + copied(e, &order[k], want);
		if (least < 0 || cost < least) {
			least = cost;
			best = k;
		}
	}
	Term all = { 0 };
	for (int i = 0; i < order[best].n; i++)
		if (ein_find(x, order[best].label[i]) >= 0 || ein_find(y, order[best].label[i]) >= 0)
			push(&all, order[best].label[i]);
	if (all.n > MAXRANK)
		return ein_refuse(e, arena_printf(e->im->a, "a product of %d axes, the most is %d", all.n, MAXRANK));
	for (int k = 0; k < 2; k++) {
		int64_t dim[MAXRANK];

		ein_permute(e, &in[k], &all);
		for (int i = 0; i < all.n; i++)
			dim[i] = ein_find(&in[k], all.label[i]) >= 0 ? e->dim[all.label[i]] : 1;
		int lead = in[k].n ? ein_find(&all, in[k].label[0]) : all.n; /* numpy adds axes on the left */
		in[k].v = ein_reshape(e, in[k].v, all.n - lead, dim + lead);
	}
	if (e->im->b.failed)
		return false;
	all.v = canon_emit1(e->im, OP_Mul, NULL, in[0].v, in[1].v, NULL);
	for (int l = 0; l < LABELS; l++)
		gone[l] = !keep[l];
	ein_sum(e, &all, gone);
	*x = all;
	return !e->im->b.failed;
}

/* One way to see a product as [batch, m, k] x [batch, k, n]. */
typedef struct Plan {
	const Term *x, *y;
	Term b, m, n, k; /* labels of each group, in order */
	Term lx, ly, lz; /* axes of the operands and of the result */
	bool tx, ty;     /* the operand lies as [k, m], [n, k] */
	bool spread;     /* a batch label is in one operand only: the other is broadcast */
	double cost;
} Plan;

static void append(Term *t, const Term *more)
{
	for (int i = 0; i < more->n; i++)
		push(t, more->label[i]);
}

static void concat(Term *t, const Term *a, const Term *b, const Term *c)
{
	t->n = 0;
	append(t, a);
	append(t, b);
	append(t, c);
}

/* [b, rows, cols], or [b, cols, rows] where that copies less. */
static double lay(
	const Ein *e, const Term *x, const Term *b, const Term *rows, const Term *cols, Term *out, bool *turned)
{
	Term other;

	concat(out, b, rows, cols);
	concat(&other, b, cols, rows);
	*turned = copied(e, x, &other) < copied(e, x, out);
	if (*turned)
		*out = other;
	return copied(e, x, out);
}

/* A label that only x has, that is kept, and stands before all that x contracts: it can be a batch axis. */
static bool leads(const Term *x, const Term *y, const bool *keep, int l)
{
	int at = ein_find(x, l);

	for (int i = 0; i < x->n && i < at; i++)
		if (!keep[x->label[i]])
			return false;
	return at >= 0 && ein_find(y, l) < 0;
}

/* bits of `how`: 1 operands exchanged, 2 the contracted labels as y has them, 4 and 8 leading labels of x, of y are batch. */
static bool make_plan(const Ein *e, const Term *x, const Term *y, const Term *want, const bool *keep, int how, Plan *p)
{
	Term order = *want;
	double wide = 0;

	*p = (Plan){ .x = how & 1 ? y : x, .y = how & 1 ? x : y };
	append(&order, p->x);
	append(&order, p->y);
	for (int i = 0; i < order.n; i++) {
		int l = order.label[i];
		bool inx = ein_find(p->x, l) >= 0, iny = ein_find(p->y, l) >= 0;

		if (!keep[l] || (!inx && !iny))
			continue;
		if (inx && iny) {
			push(&p->b, l);
		} else if ((how & 4 && leads(p->x, p->y, keep, l)) || (how & 8 && leads(p->y, p->x, keep, l))) {
			push(&p->b, l);
			p->spread = true;
			wide += (double)e->dim[l] * (double)numel(e, inx ? p->y : p->x);
		} else {
			push(inx ? &p->m : &p->n, l);
		}
	}
	const Term *k = how & 2 ? p->y : p->x;
	for (int i = 0; i < k->n; i++)
		if (!keep[k->label[i]])
			push(&p->k, k->label[i]);
	if (p->spread && (!p->m.n || !p->n.n || p->b.n + 2 > MAXRANK))
		return false;
	p->cost = wide + lay(e, p->x, &p->b, &p->m, &p->k, &p->lx, &p->tx) +
	          lay(e, p->y, &p->b, &p->k, &p->n, &p->ly, &p->ty);
	concat(&p->lz, &p->b, &p->m, &p->n);
	p->cost += copied(e, &p->lz, want);
	return true;
}

/* An operand as the matrix stack that the plan sees: groups of labels become one axis each. */
static Value *stack(
	Ein *e, const Plan *p, const Term *x, const Term *layout, const Term *rows, const Term *cols, bool turned)
{
	Term t = *x;
	int64_t dim[MAXRANK];
	int n = 0;

	ein_permute(e, &t, layout);
	if (p->b.n + 2 > MAXRANK)
		dim[n++] = numel(e, &p->b);
	else
		for (int i = 0; i < p->b.n; i++)
			dim[n++] = ein_find(x, p->b.label[i]) >= 0 ? e->dim[p->b.label[i]] : 1;
	dim[n++] = numel(e, turned ? cols : rows);
	dim[n++] = numel(e, turned ? rows : cols);
	return ein_reshape(e, t.v, n, dim);
}

static bool by_matmul(Ein *e, Term *x, const Term *y, const Term *want, const bool *keep)
{
	void *at = canon_attr_of(e->im, OP_MatMul);
	int64_t dim[MAXRANK];
	Plan best = { 0 }, p;
	bool any = false;

	for (int how = 0; how < 16; how++) {
		if (!make_plan(e, x, y, want, keep, how, &p) || (any && p.cost >= best.cost))
			continue;
		best = p;
		any = true;
	}
	if (best.lz.n > MAXRANK)
		return ein_refuse(
			e, arena_printf(e->im->a, "a product of %d axes, the most is %d", best.lz.n, MAXRANK));
	Value *a = stack(e, &best, best.x, &best.lx, &best.m, &best.k, best.tx);
	Value *b = stack(e, &best, best.y, &best.ly, &best.k, &best.n, best.ty);
	if (e->im->b.failed)
		return false;
	canon_put_int(OP_MatMul, at, "transA", best.tx);
	canon_put_int(OP_MatMul, at, "transB", best.ty);
	best.lz.v = canon_emit1(e->im, OP_MatMul, at, a, b, NULL);
	for (int i = 0; i < best.lz.n; i++)
		dim[i] = e->dim[best.lz.label[i]];
	best.lz.v = ein_reshape(e, best.lz.v, best.lz.n, dim);
	*x = best.lz;
	return !e->im->b.failed;
}

/* Joins y to x; `keep`: labels that the output or a later operand has. */
bool ein_join(Ein *e, Term *x, Term *y, const bool *keep)
{
	bool gone[LABELS], m = false, n = false, k = false;
	Term want = { 0 };

	for (int l = 0; l < LABELS; l++)
		gone[l] = !keep[l] && ein_find(y, l) < 0;
	ein_sum(e, x, gone);
	for (int l = 0; l < LABELS; l++)
		gone[l] = !keep[l] && ein_find(x, l) < 0;
	ein_sum(e, y, gone);
	for (int i = 0; i < e->out.n; i++)
		if (ein_find(x, e->out.label[i]) >= 0 || ein_find(y, e->out.label[i]) >= 0)
			push(&want, e->out.label[i]);
	for (int l = 0; l < LABELS; l++) {
		bool inx = ein_find(x, l) >= 0, iny = ein_find(y, l) >= 0;

		k |= inx && iny && !keep[l];
		m |= inx && !iny;
		n |= iny && !inx;
	}
	bool fixed = x->v->kind == VAL_CONST && y->v->kind == VAL_CONST && /* products fold, matrix products do not */
	             (double)numel(e, x) * (double)numel(e, y) < 1 << 24;
	if (e->im->b.failed)
		return false;
	return !k || !(m || n) || fixed || !dtype_float(x->v->type.dtype) ? by_mul(e, x, y, &want, keep)
	                                                                  : by_matmul(e, x, y, &want, keep);
}
