/* What a loss of the model's own is where a step has several microbatches.
 *
 * The mean of the microbatches' losses is trained. That is the loss of the whole batch where it is a mean over
 * samples. Where it grows with the batch (a sum over samples: degree 1; divided by a count of them: 0), each
 * microbatch's is multiplied by step / microbatch to that power, and the mean is the whole one's again; of a sum of
 * terms, each by its own. What is made of a sum or mean over the batch in another way (a root, a quotient, the
 * greatest) is that of a microbatch's own samples: the node that makes it is told, for a warning; so is one along
 * whose axis of samples each meets the others (a Softmax or CumSum over them, their order turned), in losses that
 * pdcc adds too.
 *
 * An axis follows the batch if it is longer in the same graph at another batch. */
#include <math.h>
#include <string.h>
#include "batch_terms.h"
#include "ir/ops/common/common.h"

typedef enum Kind {
	FIXED,  /* of no sample, though it may count them */
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
	Map term;     /* Value -> Term, where it is not FIXED of degree 0 */
	double ratio; /* samples of a step to those of a microbatch */
	Map *uneven;  /* labels_uneven; or NULL */
	bool lenient; /* what couples samples has to be seen: one cut out (a loop over samples, written out) is not */
} Walk;

static Term term_of(const Walk *w, const Value *v)
{
	const Term *t = v ? map_get(&w->term, v) : NULL;

	return t ? *t : (Term){ FIXED, 0 };
}

static void give(Walk *w, const Value *v, Term t)
{
	if (t.kind != FIXED || t.degree)
		map_put(&w->term, v, arena_dup(w->term.arena, &t, sizeof t));
}

/* The same value of the other module. Values that had no name in the file are told apart by what makes them, too. */
static const Value *twin(const Walk *w, const Value *v)
{
	const Value *u = map_get(&w->there, v->name);
	const OpKind made = v->kind == VAL_NODE ? v->def->op : OP_NONE;

	return u && u->type.rank == v->type.rank && (u->kind == VAL_NODE ? u->def->op : OP_NONE) == made ? u : NULL;
}

static bool longer(const Type *t, const Type *u) { return t->rank == u->rank && !shape_eq(t, u); }

static bool grows(const Walk *w, const Value *v)
{
	const Value *u = twin(w, v);

	return u && longer(&v->type, &u->type);
}

/* Its first element, if it is a constant of floats. */
static double first(const Value *v)
{
	if (!v || v->kind != VAL_CONST || !v->data || !type_numel(&v->type))
		return NAN;
	return v->type.dtype == DT_f32   ? (double)*(const float *)v->data
	       : v->type.dtype == DT_f64 ? *(const double *)v->data
	                                 : NAN;
}

/* A constant may count samples (degree 1), be one over that (-1), or differ from batch to batch in another way. */
static Term of_const(const Walk *w, const Value *v, const Value *u)
{
	const double more = (double)w->other->batch / (double)w->b->m->batch, here = first(v), there = first(u);
	const Kind k = u && longer(&v->type, &u->type) ? SAMPLE : FIXED;

	if (isnan(here) || isnan(there) || here == there)
		return (Term){ k, 0 };
	if (fabs(there / here - more) < 1e-6 * more)
		return (Term){ k, 1 };
	return fabs(here / there - more) < 1e-6 * more ? (Term){ k, -1 } : (Term){ COUPLED, 0 };
}

static Term operand(const Walk *w, const Node *n, int i)
{
	const Value *u = twin(w, n->out[0]);

	if (!n->in[i] || n->in[i]->kind != VAL_CONST)
		return term_of(w, n->in[i]);
	return of_const(w, n->in[i], u && u->kind == VAL_NODE && u->def->nin == n->nin ? u->def->in[i] : NULL);
}

/* A sum keeps the degree that its terms have in common; parameters alone have degree 0. */
static Term added(const Walk *w, const Node *n)
{
	Term t = operand(w, n, 0);
	bool alike = true;

	for (int i = 1; i < n->nin; i++) {
		const Term x = operand(w, n, i);

		alike &= x.degree == t.degree;
		t.kind = x.kind > t.kind ? x.kind : t.kind;
	}
	if (t.kind == COUPLED || alike)
		return t;
	return (Term){ t.kind < BATCH ? COUPLED : MIXED, 0 };
}

/* A product, whose degrees add up, or a quotient. Of the batch there is one factor, and what it is divided by is of none. */
static Term multiplied(const Walk *w, const Node *n)
{
	const Term x = operand(w, n, 0), y = operand(w, n, 1);
	const bool quotient = n->op == OP_Div, swapped = y.kind > x.kind;
	const Term most = swapped ? y : x, least = swapped ? x : y;

	if (most.kind >= BATCH && (least.kind != FIXED || (quotient && swapped) || n->op == OP_MatMul ||
					  n->op == OP_Gemm || (most.kind == MIXED && least.degree)))
		return (Term){ COUPLED, 0 };
	return (Term){ most.kind, x.degree + (quotient ? -y.degree : y.degree) };
}

/* What is linear in operand 0 keeps its degree; of others anything that is of the batch, or counts samples, couples. */
static Term otherwise(const Walk *w, const Node *n, bool linear)
{
	Term t = linear ? operand(w, n, 0) : (Term){ FIXED, 0 };

	for (int i = linear; i < n->nin; i++) {
		const Term x = operand(w, n, i);

		if (x.kind >= BATCH || x.degree)
			return (Term){ COUPLED, 0 };
		t.kind = x.kind > t.kind ? x.kind : t.kind;
	}
	return t;
}

static Term combined(const Walk *w, const Node *n)
{
	switch (n->op) {
	case OP_Add:
	case OP_Sub:
	case OP_Sum: return added(w, n);
	case OP_Mul:
	case OP_Div:
	case OP_MatMul: return multiplied(w, n);
	case OP_Gemm: return n->nin == 2 ? multiplied(w, n) : otherwise(w, n, false);
	case OP_Neg:
	case OP_Cast:
	case OP_Identity:
	case OP_Reshape:
	case OP_Transpose:
	case OP_Expand:
	case OP_Gather:
	case OP_Slice:
	case OP_ReduceSum:
	case OP_ReduceMean: return otherwise(w, n, true);
	default: return otherwise(w, n, false);
	}
}

void labels_uneven(Map *uneven, const Value *labels, int64_t value)
{
	const Value *v = labels;

	while (v->kind == VAL_NODE && (optab[v->def->op]->flags & OP_VIEW || v->def->op == OP_Cast ||
					      v->def->op == OP_Slice || v->def->op == OP_Transpose))
		v = v->def->in[0];
	if (uneven && v->kind == VAL_INPUT)
		map_put(uneven, v->name, arena_dup(uneven->arena, &value, sizeof value));
}

/* Of samples: a value that does not follow the batch is a sum (degree 1) or a mean over it, or couples them. */
static Term over_samples(const Walk *w, const Node *n)
{
	switch (n->op) {
	case OP_ReduceSum:
	case OP_MatMul: return (Term){ BATCH, 1 };
	case OP_ReduceMean: return (Term){ BATCH, 0 };
	case OP_Gemm: return (Term){ n->nin == 2 ? BATCH : COUPLED, 1 };
	case OP_SoftmaxCrossEntropyLoss:
	case OP_NegativeLogLikelihoodLoss:
		if (!strcmp(attr_str(n, "reduction"), "sum"))
			return (Term){ BATCH, 1 };
		if (attr_int(n, "has_ignore"))
			labels_uneven(w->uneven, n->in[1], attr_int(n, "ignore_index"));
		/* where classes have weights it is divided by what a microbatch has of them */
		return (Term){ n->nin > 2 && n->in[2] ? COUPLED : BATCH, 0 };
	default: return (Term){ COUPLED, 0 };
	}
}

/* The sum over labels != ignored: how many count, as a cross-entropy that is a mean counts them. Where none is ignored that is their
 * number; where some are, microbatches have unlike numbers, as those of a cross-entropy beside other terms have. */
static bool counts_labels(const Walk *w, const Node *n)
{
	static const OpKind below[] = { OP_Cast, OP_Not, OP_Equal };

	if (n->op != OP_ReduceSum)
		return false;
	for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
		if (n->in[0]->kind != VAL_NODE || n->in[0]->def->op != below[i])
			return false;
		n = n->in[0]->def;
	}
	if (dtype_float(n->in[0]->type.dtype) || n->in[1]->kind != VAL_CONST)
		return false;
	const Tensor t = const_tensor(n->in[1]);
	if (t.data && type_numel(&n->in[1]->type) == 1)
		labels_uneven(w->uneven, n->in[0], elem_i(&t, 0));
	return true;
}

/* The axis of v that is longer at the other batch; -1: none. */
static int samples_axis(const Walk *w, const Value *v)
{
	const Value *u = v ? twin(w, v) : NULL;

	for (int i = 0; u && i < v->type.rank; i++)
		if (v->type.dim[i] != u->type.dim[i])
			return i;
	return -1;
}

/* A Slice of the samples that is neither all of them nor whole views of each (those of SimCLR, one behind the
 * other), nor one in so many, in their order. */
static bool cuts_samples(const Walk *w, const Node *n, int axis)
{
	const Value *u = twin(w, n->in[0]), *cut = twin(w, n->out[0]);
	const Ints axes = attr_ints(n, "axes"), steps = attr_ints(n, "steps");
	const int64_t from = n->in[0]->type.dim[axis], to = n->out[0]->type.dim[axis];
	int64_t step = 0;

	for (int i = 0; i < (axes.n ? axes.n : n->in[0]->type.rank); i++)
		if ((axes.n ? axes.v[i] : i) == axis)
			step = i < steps.n ? steps.v[i] : 1;
	if (!step || !u || !cut)
		return false;
	const int64_t other_from = u->type.dim[axis], other_to = cut->type.dim[axis];
	if (step < 0)
		return true;
	if (to % w->b->m->batch == 0 && other_to % w->other->batch == 0)
		return false;
	return to != (from + step - 1) / step || other_to != (other_from + step - 1) / step;
}

/* n computes along the axis of its samples, so that each meets others. */
static bool mixes_samples(const Walk *w, const Node *n)
{
	const int axis = samples_axis(w, n->in[0]);

	if (axis < 0 || term_of(w, n->in[0]).kind != SAMPLE)
		return false;
	const int64_t rank = n->in[0]->type.rank;
	switch (n->op) {
	case OP_Softmax:
	case OP_LogSoftmax:
	case OP_CumSum:
	case OP_TopK: return (attr_int(n, "axis") + rank) % rank == axis;
	case OP_LayerNormalization:
	case OP_RMSNormalization: return (attr_int(n, "axis") + rank) % rank <= axis;
	case OP_LSTM:
	case OP_GRU:
	case OP_RNN: return axis == 0; /* the sequence */
	case OP_Slice: return cuts_samples(w, n, axis);
	default: return false;
	}
}

static bool reduces_samples(const Walk *w, const Node *n)
{
	switch (n->op) {
	case OP_ReduceSum:
	case OP_ReduceMean:
	case OP_ReduceMax:
	case OP_ReduceMin:
	case OP_ReduceProd:
	case OP_ReduceL2:
	case OP_MatMul:
	case OP_Gemm: return samples_axis(w, n->in[0]) >= 0;
	default: return false;
	}
}

static Term of_node(const Walk *w, const Node *n, const Value *v)
{
	const Term t = combined(w, n);

	if (t.kind == SAMPLE && !grows(w, v) && counts_labels(w, n))
		return (Term){ FIXED, 1 };
	if (grows(w, v))
		return (Term){ t.kind < BATCH && !mixes_samples(w, n) ? SAMPLE : COUPLED, t.degree };
	if (t.kind != SAMPLE)
		return t;
	if (w->lenient && !twin(w, v))
		return t;
	if (w->lenient && !reduces_samples(w, n))
		return (Term){ FIXED, 0 };
	const Term over = over_samples(w, n);
	return (Term){ over.kind, over.degree + t.degree };
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
		if (n->in[i] && n->in[i]->kind == VAL_NODE && term_of(w, n->in[i]).kind == COUPLED)
			return culprit(w, n->in[i]);
	return n;
}

static Walk walked(Builder *b, const Module *other, Arena *a, Map *uneven, bool lenient)
{
	Walk w = { .b = b, .other = other, .uneven = uneven, .lenient = lenient, .ratio = 1 };

	map_init(&w.there, a, true);
	map_init(&w.term, a, false);
	name_all(&w.there, other->graph);
	for (int i = 0; i < b->g->nin; i++)
		if (grows(&w, b->g->in[i]))
			give(&w, b->g->in[i], (Term){ SAMPLE, 0 });
	for (const Node *n = b->g->first; n; n = n->next)
		for (int i = 0; i < n->nout; i++)
			if (n->out[i])
				give(&w, n->out[i], of_node(&w, n, n->out[i]));
	return w;
}

static void tell(const Walk *w, const Value *v, const Node **coupled)
{
	if (coupled && term_of(w, v).kind == COUPLED && !*coupled)
		*coupled = culprit(w, v);
}

Value *batch_terms(Builder *b, Value *v, const Module *other, double ratio, Arena *a, const Node **coupled, Map *uneven)
{
	Walk w = walked(b, other, a, uneven, false);

	w.ratio = ratio;
	tell(&w, v, coupled);
	return ratio != 1 ? spread(&w, v) : v;
}

void samples_meet(Builder *b, const Value *v, const Module *other, Arena *a, const Node **coupled)
{
	const Walk w = walked(b, other, a, NULL, true);

	tell(&w, v, coupled);
}
