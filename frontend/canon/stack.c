/* Values side by side, as sequences and unrolled Loops make them. Where they are one computation on the equal parts of a
 * tensor, as the bags of nn.EmbeddingBag are, it is made once, over all parts: rows [n * len, ...] as [n, len, ...]. */
#include <string.h>
#include "canon.h"

/* What a part is made of, from the result back to the Slice. */
enum { MAXCHAIN = 8 };

static bool is_reduction(OpKind op)
{
	return op == OP_ReduceSum || op == OP_ReduceMean || op == OP_ReduceMax || op == OP_ReduceMin;
}

/* The operand of a node of a chain that differs from part to part; -1: such a node is in no chain. */
static int varying(const Node *n)
{
	return n->op == OP_Gather && attr_int(n, "axis") == 0 ? 1 : is_reduction(n->op) || n->op == OP_Slice ? 0 : -1;
}

static bool ints_equal(Ints a, Ints b) { return a.n == b.n && (!a.n || !memcmp(a.v, b.v, sizeof *a.v * (size_t)a.n)); }

/* Part i of n of x's first axis, all of them equal, is what s cuts out. */
static bool is_part(const Node *s, int i, int n)
{
	const Ints starts = attr_ints(s, "starts"), axes = attr_ints(s, "axes"), steps = attr_ints(s, "steps");
	const int64_t rows = s->in[0]->type.rank ? s->in[0]->type.dim[0] : 0, len = rows / n;

	return starts.n == 1 && (!axes.n || axes.v[0] == 0) && (!steps.n || steps.v[0] == 1) && len > 0 &&
	       len * n == rows && starts.v[0] == i * len && s->out[0]->type.dim[0] == len;
}

/* a, of part i, is a node as b, of part 0. */
static bool same_step(const Node *a, const Node *b, int i, int n)
{
	if (a->op != b->op || a->nin != b->nin || varying(a) < 0)
		return false;
	if (a->op == OP_Slice)
		return a->in[0] == b->in[0] && is_part(a, i, n);
	if (a->op == OP_Gather)
		return a->in[0] == b->in[0] && attr_int(a, "axis") == 0 &&
		       attr_int(a, "padding") == attr_int(b, "padding");
	return ints_equal(attr_ints(a, "axes"), attr_ints(b, "axes")) &&
	       attr_int(a, "keepdims") == attr_int(b, "keepdims") &&
	       attr_int(a, "noop_with_empty_axes") == attr_int(b, "noop_with_empty_axes");
}

/* The chain of every part is that of part 0, which is written to `chain`, the Slice last. 0: it is not. */
static int chains(int n, Value *const *part, const Node **chain)
{
	int len = 0;

	for (int i = 0; i < n; i++) {
		const Value *v = part[i];

		for (int k = 0;; k++) {
			const Node *s = v->kind == VAL_NODE && v == v->def->out[0] ? v->def : NULL;

			if (!s || k == MAXCHAIN || (i && k >= len))
				return 0;
			chain[k] = i ? chain[k] : s;
			if (!same_step(s, chain[k], i, n))
				return 0;
			if (s->op == OP_Slice) {
				if (i && k + 1 != len)
					return 0;
				len = k + 1;
				break;
			}
			v = s->in[varying(s)];
		}
	}
	return len;
}

/* The axes of a reduction of one part, in the tensor of all. */
static void *shifted(Import *im, const Node *s)
{
	const Ints axes = attr_ints(s, "axes");
	const int rank = s->in[0]->type.rank, all = !axes.n && !attr_int(s, "noop_with_empty_axes") ? rank : 0;
	int64_t *v = NEWN(im->a, int64_t, axes.n + all + 1);
	void *at = canon_attr_of(im, s->op);

	for (int i = 0; i < axes.n; i++)
		v[i] = axes.v[i] + (axes.v[i] < 0 ? rank : 0) + 1;
	for (int i = 0; i < all; i++)
		v[i] = i + 1;
	canon_put_ints(s->op, at, "axes", (Ints){ axes.n + all, v });
	canon_put_int(s->op, at, "keepdims", attr_int(s, "keepdims"));
	canon_put_int(s->op, at, "noop_with_empty_axes", attr_int(s, "noop_with_empty_axes"));
	return at;
}

/* All parts in one, [n, what a part is]; NULL: they are not of one form. */
static Value *at_once(Import *im, int n, Value *const *part)
{
	const Node *chain[MAXCHAIN];
	const int len = n > 1 ? chains(n, part, chain) : 0;
	int64_t dim[MAXRANK + 1] = { n };

	for (int k = 0; k < len; k++)
		if (chain[k]->out[0]->type.rank >= MAXRANK || (k + 1 < len && chain[k]->in[0]->type.rank >= MAXRANK))
			return NULL;
	if (len < 2) /* Slices side by side are no more work than Reshape */
		return NULL;
	const Type *t = &chain[len - 1]->out[0]->type;
	memcpy(dim + 1, t->dim, sizeof *dim * (size_t)t->rank);
	Value *v = canon_reshape_to(im, chain[len - 1]->in[0], t->rank + 1, dim, NULL);
	for (int k = len - 2; k >= 0; k--)
		v = chain[k]->op == OP_Gather ? canon_emit1(im, OP_Gather, chain[k]->attr, chain[k]->in[0], v, NULL)
		                              : canon_emit1(im, chain[k]->op, shifted(im, chain[k]), v, NULL, NULL);
	return v;
}

Value *canon_stack(Import *im, int n, Value *const *part, int64_t axis, bool fresh, const char *name)
{
	Value **in = NEWN(im->a, Value *, n), *all = NULL, *out[1];
	int64_t dim[MAXRANK + 1];

	if (axis == 0 && (fresh || part[0]->type.rank))
		all = at_once(im, n, part);
	if (all) {
		const Type *t = &part[0]->type;

		dim[0] = fresh ? n : n * t->dim[0];
		for (int k = !fresh; k < t->rank; k++)
			dim[k + fresh] = t->dim[k];
		all = canon_reshape_to(im, all, t->rank + fresh, dim, NULL);
		value_rename(im->b.g, all, name);
		return all;
	}
	for (int i = 0; i < n; i++) {
		const Type *t = &part[i]->type;
		int rank = t->rank + fresh;
		int64_t ax = axis + (axis < 0 ? rank : 0);

		if (ax < 0 || ax >= rank || rank > MAXRANK) {
			diag_error(
				im->d, im->b.loc, 302, "axis %lld of %s", (long long)axis, str_type(im->d->scratch, t));
			return NULL;
		}
		for (int k = 0; k < rank; k++)
			dim[k] = !fresh || k < ax ? t->dim[k] : k == ax ? 1 : t->dim[k - 1];
		in[i] = fresh ? canon_reshape_to(im, part[i], rank, dim, NULL) : part[i];
	}
	void *at = canon_attr_of(im, OP_Concat);
	canon_put_int(OP_Concat, at, "axis", axis);
	canon_emit(im, OP_Concat, at, n, in, name, out);
	return im->b.failed ? NULL : out[0];
}
