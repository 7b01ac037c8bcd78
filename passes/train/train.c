/* train: what is minimised. What is trained: trained.h.
 *
 * Reads Training.model (loss, freeze, trainable, padding, dropout); writes Module.loss and .count, a Report node, and
 * Param.frozen. The unit is the microbatch: the graph's loss becomes a SUM over counted labels, `count` says over how
 * many, and only the update divides, once, by the count of the whole global batch. So microbatches and replicas with
 * different numbers of ignored labels weigh right. A loss of another kind (already a mean, or user made) has count 1
 * per microbatch: the update then takes the mean over microbatches.
 *
 * Several weighted terms share one count when all are cross-entropies over the same labels; else each term keeps its
 * mean over the microbatch and the count is 1. */
#include <string.h>
#include "batch_terms.h"
#include "evaluate.h"
#include "passes/common/plan.h"
#include "train.h"
#include "trained.h"

typedef struct Term {
	Value *v; /* scalar */
	Node *ce; /* the cross-entropy node it comes from, or NULL */
	double weight;
	double mean;  /* added mse: v is a sum over this many elements; else 0 */
	Value *there; /* added mse: samples that are there; NULL: all */
} Term;

static bool is_scalar(const Value *v)
{
	return dtype_float(v->type.dtype) && type_numel(&v->type) == 1 && v->type.rank <= 1;
}

static bool is_ce(OpKind op) { return op == OP_SoftmaxCrossEntropyLoss || op == OP_NegativeLogLikelihoodLoss; }

/* Through what changes only the shape. */
static Value *view_root(Value *v)
{
	while (v->def && (optab[v->def->op]->flags & OP_VIEW))
		v = v->def->in[0];
	return v;
}

static bool is_mean_ce(const Value *v)
{
	return v->def && is_ce(v->def->op) && !strcmp(attr_str(v->def, "reduction"), "mean");
}

bool loss_of_its_own(const Module *m, const Training *t)
{
	bool own = !t->model.nloss;

	for (int i = 0; i < t->model.nloss; i++)
		own |= t->model.loss[i].kind == LOSS_OUTPUT;
	for (int i = 0; own && i < m->graph->nout; i++)
		if (is_scalar(m->graph->out[i]) && !is_mean_ce(view_root(m->graph->out[i])))
			return true;
	return false;
}

static const char *output_names(const Graph *g, Arena *a)
{
	const char *all = "";

	for (int i = 0; i < g->nout && i < 8; i++)
		all = arena_printf(a, "%s%s%s", all, i ? ", " : "", g->out[i]->name);
	return g->nout > 8 ? arena_printf(a, "%s ...", all) : all;
}

/* Those that stand by themselves: `output` is how train.yaml says that an output's name follows. */
static const char *loss_words(Arena *a)
{
	const SettingWords w = setting_words(SET_OF_LossKind);
	const char *s = "";

	for (int i = 0; i < w.n; i++)
		if (setting_value(SET_OF_LossKind, w.word[i]) != LOSS_OUTPUT)
			s = arena_printf(a, "%s%s%s", s, *s ? ", " : "", w.word[i]);
	return s;
}

static Value *find_output(Graph *g, const char *name, PassCx *cx)
{
	const char *words[64];
	int n = 0;

	for (int i = 0; i < g->nout; i++) {
		if (!strcmp(g->out[i]->name, name))
			return g->out[i];
		if (n < 64)
			words[n++] = g->out[i]->name;
	}
	const SettingWords kinds = setting_words(SET_OF_LossKind);
	const char *near = diag_nearest(name, words, n), *all = output_names(g, cx->scratch),
		   *kind = diag_nearest(name, kinds.word, kinds.n);
	if (!near && kind && strcmp(kind, name)) /* `output` is how train.yaml says that an output's name follows */
		diag_error(cx->d, FILELOC(g->module->file), 310,
			"there is no loss '%s', nor an output of this name; did you mean '%s'?", name, kind);
	else if (near)
		diag_error(cx->d, FILELOC(g->module->file), 310,
			"the model has no output called '%s'; did you mean '%s'?", name, near);
	else
		diag_error(cx->d, FILELOC(g->module->file), 310,
			"there is no loss '%s' (there are %s), nor an output of this name; the model has %s", name,
			loss_words(cx->scratch), all);
	return NULL;
}

static Value *find_input(Graph *g, const char *name)
{
	for (int i = 0; i < g->nin; i++)
		if (!strcmp(g->in[i]->name, name))
			return g->in[i];
	return NULL;
}

/* The input `name` of type t: one that the graph has, or a new one. NULL after a diagnostic. */
static Value *target_input(Graph *g, const char *name, Type t, PassCx *cx)
{
	Value *v = find_input(g, name);

	if (v && !shape_eq(&v->type, &t)) {
		diag_error(cx->d, FILELOC(g->module->file), 310, "input '%s' is %s, but the loss needs %s", name,
			str_type(cx->scratch, &v->type), str_type(cx->scratch, &t));
		return NULL;
	}
	if (!v) {
		v = graph_input(g, name, t);
		v->batch_axis = -1;
	}
	v->is_label = true;
	v->ignore_index = INT64_MIN;
	return v;
}

static bool batch_of_an_input(const Graph *g, int axis)
{
	for (int i = 0; i < g->nin; i++)
		if (g->in[i]->batch_axis == axis)
			return true;
	return false;
}

/* The batch axis of a target like `out` (below `rank`): the output's own, else the first of the batch's size; one sample is as
 * long as any axis of 1, so an input must have its batch there too. Else samples and what each has of rows may be one axis, as
 * Reshape(-1, classes) leaves them: the first, where inputs have their batch. */
static int batch_axis(const Graph *g, const Value *out, int rank)
{
	const int64_t batch = g->module->batch, *dim = out->type.dim;

	if (out->batch_axis >= 0)
		return out->batch_axis < rank ? out->batch_axis : -1;
	for (int i = 0; i < rank; i++)
		if (batch >= 1 && dim[i] == batch && (batch > 1 || batch_of_an_input(g, i)))
			return i;
	return rank > 0 && batch >= 1 && dim[0] > batch && dim[0] % batch == 0 && batch_of_an_input(g, 0) ? 0 : -1;
}

/* Behind a first axis that may be samples and their rows, one as long as the batch that no input has its batch on: either may be it. */
static bool axis_unclear(const Graph *g, const Value *out, int axis)
{
	const int64_t batch = g->module->batch, first = out->type.dim[0];

	return axis > 0 && out->batch_axis < 0 && first > batch && first % batch == 0 && batch_of_an_input(g, 0) &&
	       !batch_of_an_input(g, axis);
}

/* Gives the target its batch axis; without one all microbatches would be held against the first samples'. */
static bool target_batch(Builder *b, Value *target, const Value *out, PassCx *cx)
{
	bool batched = false;

	if (target->batch_axis < 0) {
		const int axis = batch_axis(b->g, out, target->type.rank);
		if (axis_unclear(b->g, out, axis))
			return diag_error(cx->d, FILELOC(b->m->file), 310,
				"output '%s', %s: with %lld samples in a microbatch axis 0 may be samples and their rows, and axis %d "
				"may be the samples; with another --micro-batch it is clear",
				out->name, str_type(cx->scratch, &out->type), (long long)b->m->batch, axis);
		target->batch_axis = axis;
	}
	for (int i = 0; i < MAXRANK; i++)
		batched |= batch_of_an_input(b->g, i);
	if (target->batch_axis >= 0 || !batched)
		return true;
	return diag_error(cx->d, FILELOC(b->m->file), 310,
		"no axis of output '%s', %s, follows the batch of %lld samples, so it is not known whose '%s' is whose; an output "
		"[batch, ...] or [batch * rows, ...] is wanted",
		out->name, str_type(cx->scratch, &out->type), (long long)b->m->batch, target->name);
}

/* ---- the terms ---- */

/* The logits with their classes last; NULL after a diagnostic. What is an image's shape is told: elsewhere classes are its axis 1. */
static Value *classes_last(Builder *b, const LossTerm *lt, Value *logits, PassCx *cx)
{
	const int rank = logits->type.rank, axis = lt->axis;
	int64_t perm[MAXRANK];

	if (!axis && rank > 3)
		diag_warn(cx->d, FILELOC(b->m->file), "class-axis",
			"softmax_ce takes the last axis of '%s', %s, for the classes; PyTorch's cross entropy takes axis 1: say which in "
			"train.yaml, loss: {type: softmax_ce, axis: 1} or {..., axis: %d}",
			logits->name, str_type(cx->scratch, &logits->type), rank - 1);
	if (axis >= rank) {
		diag_error(cx->d, FILELOC(b->m->file), 310, "loss.axis is %d; output '%s' is %s", axis, logits->name,
			str_type(cx->scratch, &logits->type));
		return NULL;
	}
	if (!axis || axis == rank - 1)
		return logits;
	for (int i = 0; i < rank; i++)
		perm[i] = i == rank - 1 ? axis : i < axis ? i : i + 1;
	return mk_transpose(b, logits, perm);
}

/* Softmax cross-entropy over the axis of classes: logits to [rows, C], labels to [rows]. */
static bool add_softmax_ce(Builder *b, const LossTerm *lt, Value *given, Term *out, PassCx *cx)
{
	Value *logits = classes_last(b, lt, given, cx);

	if (!logits)
		return false;
	const Type *t = &logits->type;

	if (!dtype_float(t->dtype) || t->rank < 2)
		return diag_error(cx->d, FILELOC(b->m->file), 310,
			"softmax_ce needs logits of at least two axes, class axis last; output '%s' is %s",
			logits->name, str_type(cx->scratch, t));
	const int64_t classes = t->dim[t->rank - 1], rows = type_numel(t) / classes;
	const Type lab_t = type_make(DT_i64, t->rank - 1, t->dim);
	Value *lab = target_input(b->g, lt->labels ? lt->labels : "labels", lab_t, cx);
	if (!lab)
		return false;
	if (!target_batch(b, lab, logits, cx))
		return false;
	lab->index_range = classes;
	const Type flat = type_make(t->dtype, 2, (int64_t[]){ rows, classes });
	const Type flat_lab = type_make(lab->type.dtype, 1, &rows);
	Value *in[2] = { mk_reshape(b, logits, &flat), mk_reshape(b, lab, &flat_lab) };
	Node *n = build(b, OP_SoftmaxCrossEntropyLoss, NULL, 2, in, "loss");
	attr_set_str(n, "reduction", "mean");
	if (lt->ignore_index != INT64_MIN) {
		attr_set_int(n, "ignore_index", lt->ignore_index);
		attr_set_int(n, "has_ignore", 1);
	}
	lab->ignore_index = lt->ignore_index;
	*out = (Term){ n->out[0], n, lt->weight, 0, NULL };
	return !b->failed;
}

static bool add_mse(Builder *b, const LossTerm *lt, Value *y, Term *out, PassCx *cx)
{
	Value *t = target_input(b->g, lt->labels ? lt->labels : "labels", y->type, cx);

	if (!t || !target_batch(b, t, y, cx))
		return false;
	Value *d = mk_binary(b, OP_Sub, y, t);
	Value *sq = mk_binary(b, OP_Mul, d, d), *there = NULL;
	if (samples_may_lack(cx->train)) {
		there = presence(b, y, t->batch_axis);
		sq = mk_binary(b, OP_Mul, sq, there);
	}
	const Type scalar = type_scalar(y->type.dtype);
	*out = (Term){ reduce_to(b, sq, &scalar), NULL, lt->weight, (double)type_numel(&y->type), there };
	return !b->failed;
}

/* What a cross-entropy or squared error is of: each sample's own, or cx->coupled is told. */
static void of_its_own(Builder *b, const Value *v, PassCx *cx)
{
	if (cx->rebatched)
		samples_meet(b, v, cx->rebatched, cx->scratch, cx->coupled);
}

static bool add_term(Builder *b, const LossTerm *lt, Term *out, PassCx *cx)
{
	Value *v = find_output(b->g, lt->output, cx);

	if (!v)
		return false;
	if (lt->kind == LOSS_SOFTMAX_CE || lt->kind == LOSS_MSE)
		of_its_own(b, v, cx);
	if (lt->kind == LOSS_SOFTMAX_CE)
		return add_softmax_ce(b, lt, v, out, cx);
	if (lt->kind == LOSS_MSE)
		return add_mse(b, lt, v, out, cx);
	if (!is_scalar(v))
		return diag_error(cx->d, FILELOC(b->m->file), 310,
			"output '%s' is %s; a loss is one float (to train on logits, say --loss softmax_ce)", v->name,
			str_type(cx->scratch, &v->type));
	Value *root = view_root(v);
	const int64_t step = cx->train ? cx->train->loop.global : 0;
	*out = (Term){ v, root->def && is_ce(root->def->op) ? root->def : NULL, lt->weight, 0, NULL };
	if (is_mean_ce(root))
		of_its_own(b, root->def->in[0], cx);
	else if (cx->rebatched)
		out->v = batch_terms(b, v, cx->rebatched, step ? (double)step / (double)b->m->batch : 1, cx->scratch,
			cx->coupled, cx->uneven);
	return !b->failed;
}

/* With nothing said: the output called loss, the only scalar output, or softmax_ce on the only output. */
static bool default_term(const Graph *g, LossTerm *lt, PassCx *cx)
{
	const Value *only = NULL;
	int n = 0;

	*lt = (LossTerm){ .weight = 1, .ignore_index = INT64_MIN };
	for (int i = 0; i < g->nout; i++) {
		if (!is_scalar(g->out[i]))
			continue;
		n++;
		only = g->out[i];
		if (!strcmp(only->name, "loss")) {
			n = 1;
			break;
		}
	}
	if (n > 1)
		return diag_error(cx->d, FILELOC(g->module->file), 310,
			"%d outputs are scalars and none is called 'loss'; name one with --loss", n);
	if (n == 1) {
		lt->output = only->name;
		return true;
	}
	if (g->nout != 1)
		return diag_error(cx->d, FILELOC(g->module->file), 310,
			"no output is a scalar loss and there are %d outputs (%s); name the logits in train.yaml: "
			"loss: {type: softmax_ce, logits: NAME}",
			g->nout, output_names(g, cx->scratch));
	lt->output = g->out[0]->name;
	lt->kind = LOSS_SOFTMAX_CE;
	return true;
}

/* ---- joining the terms ---- */

static bool mean_reduced(const Node *ce) { return !strcmp(attr_str(ce, "reduction"), "mean"); }

static int64_t ignored(const Node *ce) { return attr_int(ce, "has_ignore") ? attr_int(ce, "ignore_index") : INT64_MIN; }

static bool same_count(const Node *x, const Node *y)
{
	return view_root(x->in[1]) == view_root(y->in[1]) && ignored(x) == ignored(y) &&
	       (x->nin > 2 ? x->in[2] : NULL) == (y->nin > 2 ? y->in[2] : NULL);
}

static bool sums_share_count(const Term *t, int n)
{
	if (n == 1)
		return t->mean > 0 || (t->ce && mean_reduced(t->ce));
	for (int i = 0; i < n; i++)
		if (!t[i].ce || !mean_reduced(t[i].ce) || !same_count(t[i].ce, t[0].ce))
			return false;
	return true;
}

static Value *count_value(Builder *b, const Term *t)
{
	if (t->there) { /* each of them counts for as many elements */
		const Type scalar = type_scalar(t->v->type.dtype);
		return mk_binary(b, OP_Mul, reduce_to(b, t->there, &scalar),
			mk_scalar(b, scalar.dtype, t->mean / (double)type_numel(&t->there->type)));
	}
	if (!t->ce)
		return mk_scalar(b, t->v->type.dtype, t->mean);
	Value *in[2] = { t->ce->in[1], t->ce->nin > 2 ? t->ce->in[2] : NULL };
	Node *n = build(b, OP_CountLabels, NULL, in[1] ? 2 : 1, in, "count");
	attr_set_int(n, "ignore_index", attr_int(t->ce, "ignore_index"));
	attr_set_int(n, "has_ignore", attr_int(t->ce, "has_ignore"));
	return n->out[0];
}

/* What the labels may hold: fills in the input that a cross-entropy reads, when it is a graph input. */
static void mark_labels(const Term *t)
{
	if (!t->ce)
		return;
	Value *lab = view_root(t->ce->in[1]);
	if (lab->kind != VAL_INPUT)
		return;
	lab->is_label = true;
	lab->ignore_index = ignored(t->ce);
	if (!lab->index_range && t->ce->in[0]->type.rank > 1)
		lab->index_range = t->ce->in[0]->type.dim[1];
}

/* Samples that lack: their labels are ignored, or they are left out already; else microbatches count as a whole. */
static bool lack_is_masked(const Term *t, int n, bool sums)
{
	bool masked = sums;

	for (int i = 0; i < n; i++)
		masked = masked && (t[i].there || (t[i].ce && mask_labels(t[i].ce)));
	return masked;
}

/* The loss, and of the first cross-entropy how many labels were found. */
static void report(Builder *b, const Term *t, int n, bool hits)
{
	Value *in[2] = { b->m->loss, b->m->count };

	build(b, OP_Report, NULL, 2, in, NULL);
	for (int i = 0; i < n && hits; i++)
		if (t[i].ce) {
			in[0] = count_hits(b, t[i].ce);
			build(b, OP_ReportHits, NULL, 1, in, NULL);
			hits = false;
		}
}

/* Each term keeps its mean over a microbatch: those of labels that do not count, or of class weights, are told. */
static void each_its_mean(const Term *t, int n, PassCx *cx)
{
	for (int i = 0; i < n; i++) {
		if (!t[i].ce || !mean_reduced(t[i].ce))
			continue;
		if (ignored(t[i].ce) != INT64_MIN && cx->uneven)
			labels_uneven(cx->uneven, t[i].ce->in[1], ignored(t[i].ce));
		if (t[i].ce->nin > 2 && t[i].ce->in[2] && cx->coupled && !*cx->coupled)
			*cx->coupled = t[i].ce;
	}
}

static void join_terms(Builder *b, Term *t, int n, PassCx *cx)
{
	const Training *train = cx->train;
	const bool sums = sums_share_count(t, n), masked = !samples_may_lack(train) || lack_is_masked(t, n, sums);
	const Type scalar = type_scalar(t->v->type.dtype);
	Value *loss = NULL;

	for (int i = 0; i < n; i++) {
		double w = t[i].weight;
		if (sums && t[i].ce)
			attr_set_str(t[i].ce, "reduction", "sum");
		if (!sums && t[i].mean > 0)
			w /= t[i].mean;
		Value *v = mk_reshape(b, t[i].v, &scalar);
		if (w != 1)
			v = mk_binary(b, OP_Mul, v, mk_scalar(b, scalar.dtype, w));
		loss = loss ? mk_binary(b, OP_Add, loss, v) : v;
		mark_labels(&t[i]);
	}
	if (!sums)
		each_its_mean(t, n, cx);
	b->m->count = sums ? count_value(b, &t[0]) : mk_scalar(b, scalar.dtype, 1);
	if (!masked) {
		Value *there = presence(b, loss, -1);
		loss = mk_binary(b, OP_Mul, loss, there);
		b->m->count = mk_binary(b, OP_Mul, b->m->count, there);
	}
	b->m->loss = loss;
	report(b, t, n, train && train->data.eval.on);
	b->g->nout = 0; /* what is trained has one output; what only fed the others dies in simplify */
	graph_output(b->g, loss);
}

/* A loss of an output that is not said, where there are several. */
static bool loss_open(const Graph *g, LossKind kind, PassCx *cx)
{
	const char *word = setting_word(SET_OF_LossKind, (int)kind), *all = "";
	const bool ce = kind == LOSS_SOFTMAX_CE;

	for (int i = 0; i < g->nout; i++)
		all = arena_printf(cx->scratch, "%s%s%s", all, i ? ", " : "", g->out[i]->name);
	return diag_error(cx->d, FILELOC(g->module->file), 310,
		"loss %s: the model has %d outputs (%s); say which one in train.yaml, loss: [{type: %s, %s: %s, %s: NAME}]; more than "
		"one entry is a sum",
		word, g->nout, all, word, ce ? "logits" : "output", g->nout ? g->out[0]->name : "NAME", "labels");
}

static bool attach_loss(Module *m, PassCx *cx)
{
	const Training *t = cx->train;
	Builder b = { .m = m, .g = m->graph, .loc = FILELOC(m->file), .phase = PHASE_FWD, .stage = -1, .d = cx->d };
	LossTerm made;
	const LossTerm *lt = t ? t->model.loss : NULL;
	int n = t ? t->model.nloss : 0;

	if (!n) {
		if (!default_term(m->graph, &made, cx))
			return false;
		lt = &made;
		n = 1;
	}
	Term *term = NEWN(cx->scratch, Term, n);
	for (int i = 0; i < n; i++) {
		LossTerm one = lt[i];
		if (!one.output) { /* softmax_ce or mse on the only output */
			if (m->graph->nout != 1)
				return loss_open(m->graph, one.kind, cx);
			one.output = m->graph->out[0]->name;
		}
		if (!add_term(&b, &one, &term[i], cx))
			return false;
	}
	join_terms(&b, term, n, cx);
	return !b.failed;
}

/* ---- switches of the forward graph ---- */

static void dropout_off(Graph *g)
{
	for (Node *n = g->first, *next; n; n = next) {
		next = n->next;
		if (n->op != OP_Dropout || (n->nout > 1 && n->out[1] && !value_dead(n->out[1])))
			continue;
		value_replace(n->out[0], n->in[0]);
		node_remove(n);
	}
}

/* Which numbers a plan's microbatches draw: those of the run's seed, a sample's own where it has several rows. */
static void seed_random(Graph *g, uint64_t seed, int64_t batch)
{
	for (Node *n = g->first; n; n = n->next)
		if (n->op == OP_Dropout || (n->op == OP_Noise && !attr_int(n, "seeded")))
			attr_set_int(n, "seed", (int64_t)seed);
	for (Node *n = g->first; n; n = n->next) {
		const Type *t = n->op == OP_Dropout ? &n->in[0]->type : NULL;

		if (t && t->rank && batch > 0 && t->dim[0] > batch && t->dim[0] % batch == 0)
			attr_set_int(n, "rows", t->dim[0] / batch);
	}
}

bool pass_train(Module *m, PassCx *cx)
{
	if (!m->graph)
		return diag_error(
			cx->d, FILELOC(m->file), 410, "train runs before split; this module has stages already");
	for (const Node *n = m->graph->first; n; n = n->next)
		if (n->op == OP_Report)
			return diag_error(cx->d, n->loc, 310, "the graph reports a loss already");
	if (cx->train && cx->train->model.dropout == DROPOUT_OFF)
		dropout_off(m->graph);
	if (cx->train)
		seed_random(m->graph, cx->train->loop.seed, m->batch);
	return set_padding(m, cx->train, cx) && attach_loss(m, cx) && evaluation_modes(m, cx) && choose_trained(m, cx);
}
