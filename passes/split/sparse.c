/* sparse: tables of which a step touches few rows are updated by those rows.
 *
 * Reads the stages' graphs and Plan; rewrites, for a table w that is looked up (Parallax section 3: a parameter is sparse
 * when its gradient comes through Gather only),
 *     %d.w = GatherGrad(%dy, %ids)           %k, %r = GatherRows(%dy, %ids)        per microbatch
 *     %g.w = Accumulate(%d.w)                %g.k = Stack(%k)   %g.r = Stack(%r)
 *     @w <- SGD(@w, %g.w, %n)                @w <- SGDRows(@w, %g.k, %g.r, %n)
 * A table that is also used otherwise (a tied output layer, say) is mixed: its dense parts keep their sum and their SGD,
 * and the looked-up parts are split off. That is done where it costs less: dense, a part clears, adds and updates all rows
 * of the table; sparse, it copies the touched ones twice.
 *
 * Only for plain SGD without weight decay, which leaves untouched rows alone (states of the others move every row at every
 * step). Of several replicas rows travel as rows (comm: AllGatherv), and where they are joined each id is left once, summed by
 * the tree of --reproducible: with the bits of a dense gradient, if it has that one part. */
#include <fnmatch.h>
#include <string.h>
#include "passes/common/plan.h"
#include "ir/analysis.h"
#include "passes/schedule/schedule.h"

/* The parts of a gradient: Accumulates below Add or Sum. False: something else is among them. */
static bool parts_of(Value *v, Node **part, int *n, int most)
{
	if (v->kind != VAL_NODE || v->nuses != 1 || *n == most)
		return false;
	if (v->def->op == OP_Accumulate) {
		part[(*n)++] = v->def;
		return true;
	}
	if (v->def->op != OP_Add && v->def->op != OP_Sum)
		return false;
	for (int i = 0; i < v->def->nin; i++)
		if (!parts_of(v->def->in[i], part, n, most))
			return false;
	return true;
}

/* The lookup behind a part, when its rows cost less than the whole table. */
static Node *lookup(const Module *m, const Node *part)
{
	Value *d = part->in[0];
	Node *g = d->kind == VAL_NODE ? d->def : NULL;

	if (!g || g->op != OP_GatherGrad || d->nuses != 1 || attr_int(g, "axis") != 0 || attr_int(g, "parts") > 1)
		return NULL;
	const double touched = (double)type_numel(&g->in[0]->type) * (double)m->microbatches,
		     all = (double)type_numel(&d->type);
	return d->type.dim[0] <= INT32_MAX && 4 * touched < 3 * all ? g : NULL;
}

static void split_off(Module *m, Stage *s, Node *sgd, Node *part, Node *gather, PassCx *cx)
{
	Builder b = { .m = m,
		.g = gather->graph,
		.before = gather,
		.loc = gather->loc,
		.phase = PHASE_BWD,
		.stage = s->id,
		.d = cx->d };
	const char *name = sgd->in[0]->name;

	Node *rows = build(&b, OP_GatherRows, NULL, 2, gather->in, NULL);
	attr_set_int(rows, "dim0", attr_int(gather, "dim0"));
	attr_set_int(rows, "padding", attr_int(gather, "padding"));
	if (!optab[OP_GatherRows]->shape(rows, cx->d))
		bug("the rows of a lookup do not fit");
	rows->fwd = gather->fwd;
	value_rename(b.g, rows->out[0], arena_printf(cx->scratch, "d.%s.ids", name));
	value_rename(b.g, rows->out[1], arena_printf(cx->scratch, "d.%s.rows", name));
	b.g = s->update;
	b.phase = PHASE_UPDATE;
	b.before = part;
	Value *in[4] = { sgd->in[0], mk(&b, OP_Stack, NULL, arena_printf(cx->scratch, "ids.%s", name), 1, rows->out[0]),
		mk(&b, OP_Stack, NULL, arena_printf(cx->scratch, "rows.%s", name), 1, rows->out[1]), sgd->in[2] };
	b.before = sgd->next;
	b.loc = sgd->loc;
	Node *u = build(&b, OP_SGDRows, NULL, 4, in, NULL);
	attr_set_float(u, "lr", attr_float(sgd, "lr"));
	attr_set_int(u, "scheduled", attr_int(sgd, "scheduled"));
}

/* The gradient without its looked-up parts; NULL: nothing is left. */
static Value *dense_rest(Module *m, Stage *s, Node *sgd, Node **part, Node **gather, int n, PassCx *cx)
{
	Value **v = NEWN(cx->scratch, Value *, n);
	int k = 0;

	for (int i = 0; i < n; i++)
		if (!gather[i])
			v[k++] = part[i]->out[0];
	Builder b = { .m = m,
		.g = s->update,
		.before = sgd,
		.loc = sgd->loc,
		.phase = PHASE_UPDATE,
		.stage = s->id,
		.d = cx->d };
	return k == 0   ? NULL
	       : k == 1 ? v[0]
	       : k == 2 ? mk_binary(&b, OP_Add, v[0], v[1])
	                : build(&b, OP_Sum, NULL, k, v, NULL)->out[0];
}

/* What nothing reads any more, of the parts. */
static void drop(Value *v, PassCx *cx)
{
	Node *n = v->kind == VAL_NODE && value_dead(v) ? v->def : NULL;

	if (!n || (n->op != OP_Add && n->op != OP_Sum && n->op != OP_Accumulate && n->op != OP_GatherGrad))
		return;
	const int nin = n->nin;
	Value **in = NEWN(cx->scratch, Value *, nin);
	for (int i = 0; i < nin; i++)
		in[i] = n->in[i];
	node_remove(n);
	for (int i = 0; i < nin; i++)
		drop(in[i], cx);
}

/* --dense: what that costs on the wire, per device and step. */
static void warn_dense(const Module *m, const Stage *s, const Value *w, Node **gather, int n, PassCx *cx)
{
	const double r = s->replicas, table = (double)value_bytes(w);
	double rows = 0;

	if (s->replicas < 2) /* nothing travels */
		return;
	for (int i = 0; i < n; i++)
		if (gather[i])
			rows += (double)(value_bytes(gather[i]->in[0]) + 4 * type_numel(&gather[i]->in[1]->type));
	diag_warn(cx->d, FILELOC(m->file), "dense",
		"gradient of '%s' travels whole by --dense: %.0f bytes a device and step over %d "
		"replicas; its rows are %.0f bytes at most",
		w->name, 2 * (r - 1) / r * table, s->replicas, (r - 1) / r * rows * (double)m->microbatches);
}

static void rewrite(Module *m, Stage *s, Node *sgd, PassCx *cx)
{
	enum { MOST = 32 };
	Node *part[MOST], *gather[MOST] = { NULL };
	Value *old = sgd->in[1];
	int n = 0, sparse = 0;

	if (attr_float(sgd, "weight_decay") != 0 || !parts_of(old, part, &n, MOST))
		return;
	for (int i = 0; i < n; i++) {
		gather[i] = lookup(m, part[i]);
		sparse += gather[i] != NULL;
	}
	if (!sparse || (cx->train && cx->train->loop.reproducible && n > 1))
		return;
	if (cx->train && cx->train->comm.dense && fnmatch(cx->train->comm.dense, sgd->in[0]->name, 0) == 0) {
		warn_dense(m, s, sgd->in[0], gather, n, cx);
		return;
	}
	for (int i = n - 1; i >= 0; i--)
		if (gather[i])
			split_off(m, s, sgd, part[i], gather[i], cx);
	Value *rest = dense_rest(m, s, sgd, part, gather, n, cx);
	if (rest)
		node_set_input(sgd, 1, rest);
	else
		node_remove(sgd);
	drop(old, cx);
}

bool pass_sparse(Module *m, PassCx *cx)
{
	const Training *t = cx->train;

	if (t && t->comm.by == COMM_PS) /* all tables, those of one replica too */
		return true;
	for (int i = 0; i < m->nstage; i++) {
		Stage *s = m->stage[i];
		const bool joined = s->replicas > 1 || (t && t->loop.reproducible);

		if (joined && t &&
			(schedule_async(t) || t->target.f64 ||
				(t->comm.by != COMM_UNSAID &&
					t->comm.by != COMM_ALLREDUCE))) /* servers have rows of their own */
			continue;
		for (Node *n = s->update->first, *next; n; n = next) {
			next = n->next;
			if (n->op == OP_SGD && n->nin == optab[OP_SGD]->minin) /* a moving average is of all rows */
				rewrite(m, s, n, cx);
		}
	}
	return true;
}
