/* Einsum in canonical ops. The equation is parsed to labels; then, operand by operand from the left: repeated labels
 * become diagonals, labels that nothing needs any more are summed, and two operands are joined by one batched MatMul, or
 * by Mul where nothing is contracted. Of all ways to lay a product out the one that copies least is taken.
 *
 * Axes under an ellipsis are labels of their own, counted from the right, as numpy broadcasts: an axis of 1 that meets a
 * larger one is dropped first, so that from there on a label has one size and an operand has it or does not. */
#include <ctype.h>
#include <string.h>
#include "../ir/buf.h"
#include "canon.h"

enum { LETTERS = 52, LABELS = LETTERS + MAXRANK };

/* A value and the label of each of its axes. */
typedef struct Term {
	Value *v;
	int    n, label[LABELS];
} Term;

typedef struct Ein {
	Import     *im;
	const char *eq;             /* without spaces */
	int64_t     dim[LABELS];
	int         owner[LABELS];  /* the operand that gave the size; -1: none has the label */
	int         count[LABELS];  /* how often the labels of the operands name it */
	int         ell;            /* axes under the ellipsis, at most */
	int         nin;
	Term       *in, out;
	const char *text[2 * MAXIN];  /* the terms as they stand in the equation */
	int         len[2 * MAXIN];
} Ein;

/* ---- labels ---- */

static int letter(char c)
{
	return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}

static const char *label_name(const Ein *e, int l)
{
	if (l >= LETTERS)
		return arena_printf(e->im->a, "axis %d of the ellipsis", l - LETTERS - (MAXRANK - e->ell));
	return arena_printf(e->im->a, "label '%c'", l < 26 ? 'A' + l : 'a' + l - 26);
}

static int find_label(const Term *t, int l)
{
	for (int i = 0; i < t->n; i++)
		if (t->label[i] == l)
			return i;
	return -1;
}

static bool refuse(const Ein *e, const char *what)
{
	return diag_error(e->im->d, e->im->b.loc, 302, "equation '%s': %s", e->eq, what);
}

/* ---- the equation ---- */

/* Letters and at most one ellipsis, which stands for `ell` axes; -1: it is not known yet, and not written out. */
static bool parse_term(Ein *e, const char *s, int len, int ell, Term *t, int *letters, bool *has_ell)
{
	*letters = 0;
	*has_ell = false;
	for (int i = 0; i < len; i++) {
		int l = letter(s[i]);

		if (l >= 0) {
			++*letters;
			if (ell >= 0 && t->n < LABELS)
				t->label[t->n++] = l;
		} else if (s[i] == '.' && i + 2 < len && s[i + 1] == '.' && s[i + 2] == '.' && !*has_ell) {
			*has_ell = true;
			i += 2;
			for (int k = 0; k < ell && t->n < LABELS; k++)
				t->label[t->n++] = LETTERS + MAXRANK - ell + k;
		} else {
			return refuse(e, arena_printf(e->im->a, isprint((unsigned char)s[i]) ? "'%c' is no label: letters, one '...' "
				"in a term, ',' and '->' are read" : "byte 0x%02x is no label: letters, one '...' in a term, ',' and "
				"'->' are read", (unsigned char)s[i]));
		}
		if (*letters > LABELS)
			return refuse(e, arena_printf(e->im->a, "a term of more than %d labels", LABELS));
	}
	return true;
}

/* Sizes of the labels of operand i, which must agree with those of the operands before it. */
static bool take_sizes(Ein *e, int i)
{
	const Term *t = &e->in[i];

	for (int k = 0; k < t->n; k++) {
		int l = t->label[k];
		int64_t d = t->v->type.dim[k];

		if (e->owner[l] < 0 || (l >= LETTERS && e->dim[l] == 1)) {
			e->dim[l] = d;
			e->owner[l] = i;
		} else if (e->dim[l] != d && (l < LETTERS || d != 1)) {
			return refuse(e, arena_printf(e->im->a, "%s is %lld in operand %d and %lld in operand %d", label_name(e, l),
				(long long)e->dim[l], e->owner[l], (long long)d, i));
		}
		e->count[l]++;
	}
	return true;
}

static bool parse_operand(Ein *e, int i)
{
	Term *t = &e->in[i];
	const Type *x = &t->v->type;
	int letters;
	bool dots;

	if (!parse_term(e, e->text[i], e->len[i], -1, t, &letters, &dots))
		return false;
	if (dots ? letters > x->rank : letters != x->rank)
		return refuse(e, arena_printf(e->im->a, "term %d '%.*s' has %d label%s%s, operand %d is %s of rank %d", i, e->len[i],
			e->text[i], letters, letters == 1 ? "" : "s", dots ? " and an ellipsis" : "", i,
			str_type(e->im->d->scratch, x), x->rank));
	if (dots && x->rank - letters > e->ell)
		e->ell = x->rank - letters;
	return parse_term(e, e->text[i], e->len[i], x->rank - letters, t, &letters, &dots) && take_sizes(e, i);
}

/* Without '->' the output has the ellipsis, then what is named once, in alphabetical order. */
static void implicit_output(Ein *e)
{
	for (int k = 0; k < e->ell; k++)
		e->out.label[e->out.n++] = LABELS - e->ell + k;
	for (int l = 0; l < LETTERS; l++)
		if (e->count[l] == 1)
			e->out.label[e->out.n++] = l;
}

static bool parse_output(Ein *e, const char *s)
{
	int letters;
	bool dots;

	if (!s)
		implicit_output(e);
	else if (!parse_term(e, s, (int)strlen(s), e->ell, &e->out, &letters, &dots))
		return false;
	for (int i = 0; i < e->out.n; i++) {
		int l = e->out.label[i];

		if (e->owner[l] < 0)
			return refuse(e, arena_printf(e->im->a, "output %s is in no operand", label_name(e, l)));
		if (find_label(&e->out, l) < i)
			return refuse(e, arena_printf(e->im->a, "the output has %s twice", label_name(e, l)));
	}
	if (e->out.n > MAXRANK)
		return refuse(e, arena_printf(e->im->a, "the output has rank %d, the most is %d", e->out.n, MAXRANK));
	return true;
}

static bool parse(Ein *e, const OnnxNode *n)
{
	const char *given = onnx_str(e->im->a, n, "equation", NULL), *arrow;
	Buf b = { 0 };
	int terms = 0;

	if (!given)
		return canon_refuse(e->im, "attribute equation is missing");
	for (const char *s = given; *s; s++)
		if (*s != ' ')
			buf_printf(&b, "%c", *s);
	e->eq = arena_str(e->im->a, buf_str(&b));
	buf_free(&b);
	arrow = strstr(e->eq, "->");
	for (const char *s = e->eq, *end = arrow ? arrow : e->eq + strlen(e->eq);; s++) {
		const char *stop = s;

		while (stop < end && *stop != ',')
			stop++;
		if (terms < 2 * MAXIN) {
			e->text[terms] = s;
			e->len[terms] = (int)(stop - s);
		}
		terms++;
		if (stop == end)
			break;
		s = stop;
	}
	if (terms != e->nin)
		return refuse(e, arena_printf(e->im->a, "%d term%s, the node has %d operand%s", terms, terms == 1 ? "" : "s", e->nin,
			e->nin == 1 ? "" : "s"));
	for (int i = 0; i < e->nin; i++)
		if (!parse_operand(e, i))
			return false;
	return parse_output(e, arrow ? arrow + 2 : NULL);
}

/* ---- one operand ---- */

/* x with these dimensions; x itself where it has them. */
static Value *reshaped(Ein *e, Value *x, int rank, const int64_t *dim)
{
	if (e->im->b.failed || (x->type.rank == rank && memcmp(x->type.dim, dim, sizeof *dim * (size_t)rank) == 0))
		return x;
	return canon_reshape_to(e->im, x, rank, dim, NULL);
}

/* The term with its axes in the order of `order` (labels that it has not are passed over); nothing is copied where only
 * axes of 1 move. */
static bool moves(const Ein *e, const Term *t, const Term *order)
{
	int last = -1;

	for (int i = 0; i < order->n; i++) {
		int k = find_label(t, order->label[i]);

		if (k < 0 || e->dim[order->label[i]] == 1)
			continue;
		if (k < last)
			return true;
		last = k;
	}
	return false;
}

static void permute(Ein *e, Term *t, const Term *order)
{
	Term y = { .v = t->v };
	int64_t perm[MAXRANK], dim[MAXRANK];

	for (int i = 0; i < order->n; i++) {
		int k = find_label(t, order->label[i]);

		if (k < 0)
			continue;
		dim[y.n] = t->v->type.dim[k];
		perm[y.n] = k;
		y.label[y.n++] = order->label[i];
	}
	if (moves(e, t, order)) {
		void *at = canon_attr_of(e->im, OP_Transpose);

		canon_put_ints(OP_Transpose, at, "perm", (Ints){ y.n, arena_dup(e->im->a, perm, sizeof perm) });
		y.v = canon_emit1(e->im, OP_Transpose, at, t->v, NULL, NULL);
	} else {
		y.v = reshaped(e, t->v, y.n, dim);
	}
	*t = y;
}

/* Sums over the labels for which gone is set. */
static void sum_out(Ein *e, Term *t, const bool *gone)
{
	void *at = canon_attr_of(e->im, OP_ReduceSum);
	int64_t axes[MAXRANK];
	int n = 0, left = 0;

	for (int i = 0; i < t->n; i++) {
		if (gone[t->label[i]])
			axes[n++] = i;
		else
			t->label[left++] = t->label[i];
	}
	t->n = left;
	if (!n || e->im->b.failed)
		return;
	canon_put_ints(OP_ReduceSum, at, "axes", (Ints){ n, arena_dup(e->im->a, axes, sizeof axes) });
	canon_put_int(OP_ReduceSum, at, "keepdims", 0);
	t->v = canon_emit1(e->im, OP_ReduceSum, at, t->v, NULL, NULL);
}

/* Axes i < j of one label become their diagonal: they are laid side by side, seen as one, and every (size + 1)th taken. */
static void diagonal(Ein *e, Term *t, int i, int j)
{
	int64_t d = t->v->type.dim[i], perm[MAXRANK], dim[MAXRANK];
	int n = 0;
	Value *x = t->v;

	for (int k = 0; k < t->n; k++) {
		if (k != j)
			perm[n++] = k;
		if (k == i)
			perm[n++] = j;
	}
	if (j != i + 1 && d != 1) {
		void *at = canon_attr_of(e->im, OP_Transpose);

		canon_put_ints(OP_Transpose, at, "perm", (Ints){ n, arena_dup(e->im->a, perm, sizeof perm) });
		x = canon_emit1(e->im, OP_Transpose, at, x, NULL, NULL);
	}
	n = 0;
	for (int k = 0; k < t->n; k++) {
		if (k == j)
			continue;
		t->label[n] = t->label[k];
		dim[n++] = k == i ? d * d : t->v->type.dim[k];
	}
	t->n = n;
	t->v = reshaped(e, x, n, dim);
	if (d == 1 || e->im->b.failed)
		return;
	int64_t *at = NEWN(e->im->a, int64_t, d);
	for (int64_t k = 0; k < d; k++)
		at[k] = k * (d + 1);
	void *attr = canon_attr_of(e->im, OP_Gather);
	canon_put_int(OP_Gather, attr, "axis", i);
	t->v = canon_emit1(e->im, OP_Gather, attr, t->v, module_const(e->im->m, NULL, type_make(DT_i64, 1, &d), at), NULL);
}

/* Drops axes of 1 that meet larger ones of the ellipsis, takes diagonals. */
static void prepare(Ein *e, Term *t)
{
	int64_t dim[MAXRANK];
	int n = 0;

	for (int k = 0; k < t->n; k++) {
		if (e->dim[t->label[k]] != t->v->type.dim[k])
			continue;
		dim[n] = t->v->type.dim[k];
		t->label[n++] = t->label[k];
	}
	t->n = n;
	t->v = reshaped(e, t->v, n, dim);
	for (int j = 1; j < t->n; j++) {
		int i = find_label(t, t->label[j]);

		if (i < j && !e->im->b.failed) {
			diagonal(e, t, i, j);
			j = 0;
		}
	}
}

/* ---- two operands ---- */

static void push(Term *t, int label)
{
	if (find_label(t, label) < 0)
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
	return moves(e, t, order) ? (double)numel(e, t) : 0;
}

/* x and y multiplied elementwise over all their labels; what `keep` does not have is summed. */
static bool by_mul(Ein *e, Term *x, const Term *y, const Term *want, const bool *keep)
{
	Term order[3] = { *x, *y, *want }, in[2] = { *x, *y };
	bool gone[LABELS];
	int best = 0;
	double least = -1;

	for (int k = 0; k < 3; k++) {   /* in the order of x, of y, or of what is wanted */
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
		if (find_label(x, order[best].label[i]) >= 0 || find_label(y, order[best].label[i]) >= 0)
			push(&all, order[best].label[i]);
	if (all.n > MAXRANK)
		return refuse(e, arena_printf(e->im->a, "a product of %d axes, the most is %d", all.n, MAXRANK));
	for (int k = 0; k < 2; k++) {
		int64_t dim[MAXRANK];

		permute(e, &in[k], &all);
		for (int i = 0; i < all.n; i++)
			dim[i] = find_label(&in[k], all.label[i]) >= 0 ? e->dim[all.label[i]] : 1;
		int lead = in[k].n ? find_label(&all, in[k].label[0]) : all.n;  /* numpy adds axes on the left */
		in[k].v = reshaped(e, in[k].v, all.n - lead, dim + lead);
	}
	if (e->im->b.failed)
		return false;
	all.v = canon_emit1(e->im, OP_Mul, NULL, in[0].v, in[1].v, NULL);
	for (int l = 0; l < LABELS; l++)
		gone[l] = !keep[l];
	sum_out(e, &all, gone);
	*x = all;
	return !e->im->b.failed;
}

/* One way to see a product as [batch, m, k] x [batch, k, n]. */
typedef struct Plan {
	const Term *x, *y;
	Term        b, m, n, k;     /* labels of each group, in order */
	Term        lx, ly, lz;     /* axes of the operands and of the result */
	bool        tx, ty;         /* the operand lies as [k, m], [n, k] */
	bool        spread;         /* a batch label is in one operand only: the other is broadcast */
	double      cost;
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
static double lay(const Ein *e, const Term *x, const Term *b, const Term *rows, const Term *cols, Term *out, bool *turned)
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
	int at = find_label(x, l);

	for (int i = 0; i < x->n && i < at; i++)
		if (!keep[x->label[i]])
			return false;
	return at >= 0 && find_label(y, l) < 0;
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
		bool inx = find_label(p->x, l) >= 0, iny = find_label(p->y, l) >= 0;

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
	p->cost = wide + lay(e, p->x, &p->b, &p->m, &p->k, &p->lx, &p->tx) + lay(e, p->y, &p->b, &p->k, &p->n, &p->ly, &p->ty);
	concat(&p->lz, &p->b, &p->m, &p->n);
	p->cost += copied(e, &p->lz, want);
	return true;
}

/* An operand as the matrix stack that the plan sees: groups of labels become one axis each. */
static Value *stack(Ein *e, const Plan *p, const Term *x, const Term *layout, const Term *rows, const Term *cols, bool turned)
{
	Term t = *x;
	int64_t dim[MAXRANK];
	int n = 0;

	permute(e, &t, layout);
	if (p->b.n + 2 > MAXRANK)
		dim[n++] = numel(e, &p->b);
	else
		for (int i = 0; i < p->b.n; i++)
			dim[n++] = find_label(x, p->b.label[i]) >= 0 ? e->dim[p->b.label[i]] : 1;
	dim[n++] = numel(e, turned ? cols : rows);
	dim[n++] = numel(e, turned ? rows : cols);
	return reshaped(e, t.v, n, dim);
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
		return refuse(e, arena_printf(e->im->a, "a product of %d axes, the most is %d", best.lz.n, MAXRANK));
	Value *a = stack(e, &best, best.x, &best.lx, &best.m, &best.k, best.tx);
	Value *b = stack(e, &best, best.y, &best.ly, &best.k, &best.n, best.ty);
	if (e->im->b.failed)
		return false;
	canon_put_int(OP_MatMul, at, "transA", best.tx);
	canon_put_int(OP_MatMul, at, "transB", best.ty);
	best.lz.v = canon_emit1(e->im, OP_MatMul, at, a, b, NULL);
	for (int i = 0; i < best.lz.n; i++)
		dim[i] = e->dim[best.lz.label[i]];
	best.lz.v = reshaped(e, best.lz.v, best.lz.n, dim);
	*x = best.lz;
	return !e->im->b.failed;
}

/* Joins y to x; `keep`: labels that the output or a later operand has. */
static bool join(Ein *e, Term *x, Term *y, const bool *keep)
{
	bool gone[LABELS], m = false, n = false, k = false;
	Term want = { 0 };

	for (int l = 0; l < LABELS; l++)
		gone[l] = !keep[l] && find_label(y, l) < 0;
	sum_out(e, x, gone);
	for (int l = 0; l < LABELS; l++)
		gone[l] = !keep[l] && find_label(x, l) < 0;
	sum_out(e, y, gone);
	for (int i = 0; i < e->out.n; i++)
		if (find_label(x, e->out.label[i]) >= 0 || find_label(y, e->out.label[i]) >= 0)
			push(&want, e->out.label[i]);
	for (int l = 0; l < LABELS; l++) {
		bool inx = find_label(x, l) >= 0, iny = find_label(y, l) >= 0;

		k |= inx && iny && !keep[l];
		m |= inx && !iny;
		n |= iny && !inx;
	}
	bool fixed = x->v->kind == VAL_CONST && y->v->kind == VAL_CONST &&      /* products fold, matrix products do not */
		(double)numel(e, x) * (double)numel(e, y) < 1 << 24;
	if (e->im->b.failed)
		return false;
	return !k || !(m || n) || fixed || !dtype_float(x->v->type.dtype) ? by_mul(e, x, y, &want, keep) :
		by_matmul(e, x, y, &want, keep);
}

bool canon_einsum(Import *im, const OnnxNode *n)
{
	Ein e = { .im = im, .nin = (int)n->n_input };
	bool keep[LABELS];

	if (n->n_input < 1 || n->n_input > 2 * MAXIN)
		return diag_error(im->d, im->b.loc, 302, "%zu operands, 1 to %d are read", n->n_input, 2 * MAXIN);
	if (!canon_need(im, n, n->n_input))
		return false;
	e.in = NEWN(im->a, Term, e.nin);
	for (int l = 0; l < LABELS; l++)
		e.owner[l] = -1;
	for (int i = 0; i < e.nin; i++) {
		const Type *t0 = &onnx_in(im, n, 0)->type, *t = &onnx_in(im, n, (size_t)i)->type;

		e.in[i].v = onnx_in(im, n, (size_t)i);
		if (t->dtype == DT_bool || t->dtype != t0->dtype)
			return diag_error(im->d, im->b.loc, 302, "takes numbers of one type: operand 0 is %s, operand %d is %s",
				str_type(im->d->scratch, t0), i, str_type(im->d->scratch, t));
	}
	if (!parse(&e, n))
		return false;
	for (int i = 0; i < e.nin; i++)
		prepare(&e, &e.in[i]);
	Term acc = e.in[0];
	for (int i = 0; i < e.nin; i++) {
		for (int l = 0; l < LABELS; l++) {
			keep[l] = find_label(&e.out, l) >= 0;
			for (int k = i + 1; k < e.nin; k++)
				keep[l] |= find_label(&e.in[k], l) >= 0;
		}
		if (i && !join(&e, &acc, &e.in[i], keep))
			return false;
	}
	bool gone[LABELS];
	for (int l = 0; l < LABELS; l++)
		gone[l] = !keep[l];
	sum_out(&e, &acc, gone);
	permute(&e, &acc, &e.out);
	if (im->b.failed)
		return false;
	bool operand = acc.v->kind != VAL_NODE;
	for (size_t i = 0; i < n->n_input; i++)
		operand |= acc.v == onnx_in(im, n, i);
	if (!operand)
		value_rename(im->b.g, acc.v, canon_out_name(n));
	onnx_bind(im, n, 0, acc.v);
	return true;
}
