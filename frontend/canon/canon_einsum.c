/* Einsum in canonical ops. The equation is parsed to labels; then, operand by operand from the left: repeated labels
 * become diagonals, labels that nothing needs any more are summed, and two operands are joined by one batched MatMul, or
 * by Mul where nothing is contracted. Of all ways to lay a product out the one that copies least is taken.
 *
 * Axes under an ellipsis are labels of their own, counted from the right, as numpy broadcasts: an axis of 1 that meets a
 * larger one is dropped first, so that from there on a label has one size and an operand has it or does not. */
#include <ctype.h>
#include <string.h>
#include "ir/base/buf.h"
#include "einsum.h"

/* ---- labels ---- */

static int letter(char c) { return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1; }

static const char *label_name(const Ein *e, int l)
{
	if (l >= LETTERS)
		return arena_printf(e->im->a, "axis %d of the ellipsis", l - LETTERS - (MAXRANK - e->ell));
	return arena_printf(e->im->a, "label '%c'", l < 26 ? 'A' + l : 'a' + l - 26);
}

int ein_find(const Term *t, int l)
{
	for (int i = 0; i < t->n; i++)
		if (t->label[i] == l)
			return i;
	return -1;
}

bool ein_refuse(const Ein *e, const char *what)
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
			const char *what = arena_printf(
				e->im->a, isprint((unsigned char)s[i]) ? "'%c'" : "byte 0x%02x", (unsigned char)s[i]);

			return ein_refuse(e, arena_printf(e->im->a,
						     "%s is no label: letters, one '...' in a term, ',' and '->' "
						     "are read",
						     what));
		}
		if (*letters > LABELS)
			return ein_refuse(e, arena_printf(e->im->a, "a term of more than %d labels", LABELS));
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
			return ein_refuse(
				e, arena_printf(e->im->a, "%s is %lld in operand %d and %lld in operand %d",
					   label_name(e, l), (long long)e->dim[l], e->owner[l], (long long)d, i));
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
		return ein_refuse(
			e, arena_printf(e->im->a, "term %d '%.*s' has %d label%s%s, operand %d is %s of rank %d", i,
				   e->len[i], e->text[i], letters, letters == 1 ? "" : "s",
				   dots ? " and an ellipsis" : "", i, str_type(e->im->d->scratch, x), x->rank));
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
			return ein_refuse(e, arena_printf(e->im->a, "output %s is in no operand", label_name(e, l)));
		if (ein_find(&e->out, l) < i)
			return ein_refuse(e, arena_printf(e->im->a, "the output has %s twice", label_name(e, l)));
	}
	if (e->out.n > MAXRANK)
		return ein_refuse(
			e, arena_printf(e->im->a, "the output has rank %d, the most is %d", e->out.n, MAXRANK));
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
		return ein_refuse(e, arena_printf(e->im->a, "%d term%s, the node has %d operand%s", terms,
					     terms == 1 ? "" : "s", e->nin, e->nin == 1 ? "" : "s"));
	for (int i = 0; i < e->nin; i++)
		if (!parse_operand(e, i))
			return false;
	return parse_output(e, arrow ? arrow + 2 : NULL);
}

/* ---- one operand ---- */

Value *ein_reshape(Ein *e, Value *x, int rank, const int64_t *dim)
{
	if (e->im->b.failed || (x->type.rank == rank && memcmp(x->type.dim, dim, sizeof *dim * (size_t)rank) == 0))
		return x;
	return canon_reshape_to(e->im, x, rank, dim, NULL);
}

bool ein_moves(const Ein *e, const Term *t, const Term *order)
{
	int last = -1;

	for (int i = 0; i < order->n; i++) {
		int k = ein_find(t, order->label[i]);

		if (k < 0 || e->dim[order->label[i]] == 1)
			continue;
		if (k < last)
			return true;
		last = k;
	}
	return false;
}

void ein_permute(Ein *e, Term *t, const Term *order)
{
	Term y = { .v = t->v };
	int64_t perm[MAXRANK], dim[MAXRANK];

	for (int i = 0; i < order->n; i++) {
		int k = ein_find(t, order->label[i]);

		if (k < 0)
			continue;
		dim[y.n] = t->v->type.dim[k];
		perm[y.n] = k;
		y.label[y.n++] = order->label[i];
	}
	if (ein_moves(e, t, order)) {
		void *at = canon_attr_of(e->im, OP_Transpose);

		canon_put_ints(OP_Transpose, at, "perm", (Ints){ y.n, arena_dup(e->im->a, perm, sizeof perm) });
		y.v = canon_emit1(e->im, OP_Transpose, at, t->v, NULL, NULL);
	} else {
		y.v = ein_reshape(e, t->v, y.n, dim);
	}
	*t = y;
}

void ein_sum(Ein *e, Term *t, const bool *gone)
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
	t->v = ein_reshape(e, x, n, dim);
	if (d == 1 || e->im->b.failed)
		return;
	int64_t *at = NEWN(e->im->a, int64_t, d);
	for (int64_t k = 0; k < d; k++)
		at[k] = k * (d + 1);
	void *attr = canon_attr_of(e->im, OP_Gather);
	canon_put_int(OP_Gather, attr, "axis", i);
	t->v = canon_emit1(
		e->im, OP_Gather, attr, t->v, module_const(e->im->m, NULL, type_make(DT_i64, 1, &d), at), NULL);
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
	t->v = ein_reshape(e, t->v, n, dim);
	for (int j = 1; j < t->n; j++) {
		int i = ein_find(t, t->label[j]);

		if (i < j && !e->im->b.failed) {
			diagonal(e, t, i, j);
			j = 0;
		}
	}
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
		rebind_state(im, n, (size_t)i, &e.in[i].v);
		if (t->dtype == DT_bool || t->dtype != t0->dtype)
			return diag_error(im->d, im->b.loc, 302,
				"takes numbers of one type: operand 0 is %s, operand %d is %s",
				str_type(im->d->scratch, t0), i, str_type(im->d->scratch, t));
	}
	if (!parse(&e, n))
		return false;
	for (int i = 0; i < e.nin; i++)
		prepare(&e, &e.in[i]);
	Term acc = e.in[0];
	for (int i = 0; i < e.nin; i++) {
		for (int l = 0; l < LABELS; l++) {
			keep[l] = ein_find(&e.out, l) >= 0;
			for (int k = i + 1; k < e.nin; k++)
				keep[l] |= ein_find(&e.in[k], l) >= 0;
		}
		if (i && !ein_join(&e, &acc, &e.in[i], keep))
			return false;
	}
	bool gone[LABELS];
	for (int l = 0; l < LABELS; l++)
		gone[l] = !keep[l];
	ein_sum(&e, &acc, gone);
	ein_permute(&e, &acc, &e.out);
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
