/* What a loss of the model's own is where a step has several microbatches.
 *
 * The mean of the microbatches' losses is trained. That is the loss of the whole batch where it is a mean over samples. Where it
 * grows with the batch (a sum over samples: degree 1; divided by a count of them: 0), each microbatch's is multiplied by
 * step / microbatch to that power, and the mean is the whole one's again; of a sum of terms, each by its own. What is made
 * of a sum or mean over the batch in another way (a root, a quotient, the greatest) is that of a microbatch's own samples:
 * the node that makes it is told, for a warning.
 *
 * An axis follows the batch if it is longer in the same graph at another batch. */
#include <math.h>
#include <string.h>
#include "batch_terms.h"

typedef enum Kind {
	FIXED,  /* of no sample */
	SAMPLE, /* something of each sample, its own */
	BATCH,  /* of all samples, of a degree */
	MIXED,  /* a sum of those of several degrees */
	COUPLED /* of all samples, in another way */
} Kind;

typedef struct Term {
	Kind kind;
	int degree;
} Term;

typedef struct Walk {
	Builder *b;
	const Module *other;
	Map there;    /* values of `other` by name */
	Map term;     /* Value -> Term, where its kind is not FIXED */
	double ratio; /* samples of a step to those of a microbatch */
} Walk;

static Term term_of(const Walk *w, const Value *v)
{
	const Term *t = v ? map_get(&w->term, v) : NULL;

	return t ? *t : (Term){ FIXED, 0 };
}

static void give(Walk *w, const Value *v, Term t)
{
	if (t.kind != FIXED)
		map_put(&w->term, v, arena_dup(w->term.arena, &t, sizeof t));
}

static bool grows(const Walk *w, const Value *v)
{
	const Value *u = map_get(&w->there, v->name);

	for (int i = 0; u && u->type.rank == v->type.rank && i < v->type.rank; i++)
		if (v->type.dim[i] != u->type.dim[i])
			return true;
	return false;
}

static double number(const Value *v)
{
	if (!v || v->kind != VAL_CONST || !v->data || type_numel(&v->type) != 1)
		return NAN;
	return v->type.dtype == DT_f32   ? (double)*(const float *)v->data
	       : v->type.dtype == DT_f64 ? *(const double *)v->data
	                                 : NAN;
}

/* Operand i of n is a number that counts samples: 1; one over that: -1; else 0. */
static int counts(const Walk *w, const Node *n, int i)
{
	const Value *u = map_get(&w->there, n->out[0]->name);
	const Node *m = u && u->kind == VAL_NODE && u->def->op == n->op && u->def->nin == n->nin ? u->def : NULL;
	const double here = number(n->in[i]), there = m ? number(m->in[i]) : NAN;
	const double longer = (double)w->other->batch / (double)w->b->m->batch;

	if (fabs(there / here - longer) < 1e-6 * longer)
		return 1;
	return fabs(here / there - longer) < 1e-6 * longer ? -1 : 0;
}

/* The greatest kind among the operands. */
static Kind most(const Walk *w, const Node *n)
{
	Kind k = FIXED;

	for (int i = 0; i < n->nin; i++) {
		const Kind x = n->in[i] && n->in[i]->kind == VAL_CONST && grows(w, n->in[i])
		                       ? SAMPLE
		                       : term_of(w, n->in[i]).kind;

		k = x > k ? x : k;
	}
	return k;
}

/* A sum keeps the degree that its terms have in common; parameters alone have degree 0. */
static Term added(const Walk *w, const Node *n)
{
	Term t = { FIXED, 0 };

	for (int i = 0; i < n->nin; i++) {
		const Term x = term_of(w, n->in[i]);

		if (x.kind == COUPLED || x.kind == SAMPLE)
			return (Term){ COUPLED, 0 };
		t.kind = x.kind == MIXED || (i && x.degree != t.degree) ? MIXED : x.kind > t.kind ? x.kind : t.kind;
		t.degree = x.degree;
	}
	return t;
}

static Term scaled(const Walk *w, const Node *n)
{
	const Term x = term_of(w, n->in[0]), y = term_of(w, n->in[1]);
	const int at = x.kind == FIXED ? 0 : 1, power = counts(w, n, at);
	const Term t = at ? x : y;

	if ((at ? y : x).kind != FIXED || (n->op == OP_Div && !at) || (t.kind == MIXED && power))
		return (Term){ COUPLED, 0 };
	return (Term){ t.kind, t.degree + (n->op == OP_Div ? -power : power) };
}

/* Of values of the batch: what is linear in them keeps their degree. */
static Term of_batch(const Walk *w, const Node *n)
{
	switch (n->op) {
	case OP_Add:
	case OP_Sub:
	case OP_Sum: return added(w, n);
	case OP_Mul:
	case OP_Div: return scaled(w, n);
	case OP_Neg:
	case OP_Cast:
	case OP_Identity:
	case OP_Reshape:
	case OP_Transpose:
	case OP_Expand:
	case OP_Gather:
	case OP_Slice:
	case OP_ReduceSum:
	case OP_ReduceMean: return term_of(w, n->in[0]);
	default: return (Term){ COUPLED, 0 };
	}
}

/* Of samples: a value that does not follow the batch is a sum or a mean over it, or couples them. */
static Term over_samples(const Node *n)
{
	switch (n->op) {
	case OP_ReduceSum: return (Term){ BATCH, 1 };
	case OP_ReduceMean: return (Term){ BATCH, 0 };
	case OP_MatMul: return (Term){ BATCH, 1 };
	case OP_Gemm: return (Term){ n->nin == 2 ? BATCH : COUPLED, 1 };
	case OP_SoftmaxCrossEntropyLoss:
	case OP_NegativeLogLikelihoodLoss:
		if (strcmp(attr_str(n, "reduction"), "sum") !=
			0) /* of classes with weights: divided by what a microbatch has of them */
			return (Term){ n->nin > 2 && n->in[2] ? COUPLED : BATCH, 0 };
		return (Term){ BATCH, 1 };
	default: return (Term){ COUPLED, 0 };
	}
}

static Term of_node(const Walk *w, const Node *n, const Value *v)
{
	const Kind k = most(w, n);

	if (k >= BATCH)
		return grows(w, v) ? (Term){ COUPLED, 0 } : of_batch(w, n);
	if (grows(w, v))
		return (Term){ SAMPLE, 0 };
	return k == SAMPLE ? over_samples(n) : (Term){ FIXED, 0 };
}

static void name_all(Map *there, const Graph *g)
{
	for (int i = 0; i < g->nin; i++)
		map_put(there, g->in[i]->name, g->in[i]);
	for (const Node *n = g->first; n; n = n->next)
		for (int i = 0; i < n->nout; i++)
			if (n->out[i])
				map_put(there, n->out[i]->name, n->out[i]);
}

/* v, and what it adds up from, each multiplied by the ratio to the power of its degree. */
static Value *spread(Walk *w, Value *v)
{
	const Term t = term_of(w, v);

	if (t.kind == BATCH && t.degree)
		return mk_binary(w->b, OP_Mul, v, mk_scalar(w->b, v->type.dtype, pow(w->ratio, t.degree)));
	if (t.kind != MIXED)
		return v;
	Value **in = NEWN(w->term.arena, Value *, v->def->nin);
	for (int i = 0; i < v->def->nin; i++)
		in[i] = spread(w, v->def->in[i]);
	return build(w->b, v->def->op, v->def->attr, v->def->nin, in, NULL)->out[0];
}

/* The first node that couples samples on the way to v. */
static const Node *culprit(const Walk *w, const Value *v)
{
	const Node *n = v->def;

	for (int i = 0; i < n->nin; i++)
		if (term_of(w, n->in[i]).kind == COUPLED)
			return culprit(w, n->in[i]);
	return n;
}

Value *batch_terms(Builder *b, Value *v, const Module *other, double ratio, Arena *a, const Node **coupled)
{
	Walk w = {
		.b = b, .other = other, .there = { .arena = a, .by_name = true }, .term = { .arena = a }, .ratio = ratio
	};

	name_all(&w.there, other->graph);
	for (int i = 0; i < b->g->nin; i++)
		if (grows(&w, b->g->in[i]))
			give(&w, b->g->in[i], (Term){ SAMPLE, 0 });
	for (const Node *n = b->g->first; n; n = n->next)
		for (int i = 0; i < n->nout; i++)
			if (n->out[i])
				give(&w, n->out[i], of_node(&w, n, n->out[i]));
	if (coupled && term_of(&w, v).kind == COUPLED && !*coupled)
		*coupled = culprit(&w, v);
	return ratio != 1 ? spread(&w, v) : v;
}
