/* gather: --zero 3, weights in parts (ZeRO, stage 3; FSDP). Of a weight that one stage alone reads and updates in parts each of R
 * replicas has its part and no more; the copy in 16 bits that --amp makes once per step is one of that part. The graphs that read
 * it have it whole for as long as they need it:
 *     %w2.whole = GatherWeight(@w2) {bucket=1, parts=R}      it begins here
 *     %h2 = Gemm(%a1, %w2.whole, %b2.whole)                  the first that reads of a bucket waits for its end
 * Buckets are closed at --bucket bytes (auto: an eighth of the stage's, 16 MiB at most), in the order in which a graph reads; a weight that is read
 * again when its bucket was left is gathered again. The gather of the next bucket begins in front of the first reader of the one
 * before, so that it goes on while that one's readers compute, and two buckets at most lie in memory but for what is read longer.
 *
 * Replicas gather together: the n-th forwards and backwards of a stage's replicas meet (Schedule.gathers). Where a schedule would
 * stand still so, or replicas have unlike numbers of microbatches, weights stay whole.
 * Reads the stage's graphs and the schedule; writes Param.part of weights, adds GatherWeight nodes. */
#include "passes/common/plan.h"
#include "passes/schedule/schedule.h"
#include "comm.h"
#include "ir/analysis.h"

bool gather_meets(const Module *m, const Stage *s, PassCx *cx)
{
	Schedule *x = m->schedule;

	if (!x->gathers)
		x->gathers = NEWN(m->arena, bool, m->nstage);
	x->gathers[s->id] = true;
	x->gathers[s->id] = schedule_meets(m);
	if (!x->gathers[s->id])
		diag_note(cx->d, FILELOC(m->file), "stage %d: weights stay whole (--zero 2 there): %s", s->id,
			m->microbatches % s->replicas
				? "its replicas have unlike numbers of microbatches"
				: "this schedule stands still if replicas wait for each other in every action");
	return x->gathers[s->id];
}

/* What is read of v lies where v does, and for no longer than its graph runs: no view of it is kept, sent or a gradient. */
static bool stays_inside(const Value *v)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *n = v->uses[i].node;
		if (!(optab[n->op]->flags & OP_VIEW) || v->uses[i].index)
			continue;
		const Value *view = n->out[0];
		for (int k = 0; k < view->nuses; k++)
			if (view->uses[k].node->graph != n->graph || view->uses[k].node->op == OP_Send)
				return false;
		if (value_is_output(view) || !stays_inside(view))
			return false;
	}
	return true;
}

/* A use that parts are enough for, or that a gathered whole can stand in for. */
static bool divisible_use(const Node *n, const Stage *s)
{
	if (n->graph->stage != s || n->op == OP_Send)
		return false;
	if (n->graph == s->update)
		return n->op == OP_SquareSum || ((optab[n->op]->flags & OP_UPDATE) && op_attr(n->op, "part"));
	return !cast_once(n) || (!*attr_str(n, "layout") && stays_inside(n->out[0]));
}

bool gather_divides(const Value *w, const Stage *s)
{
	const Param *p = w->param;

	if (p->kind != PARAM_WEIGHT || p->frozen || p->whole ||
		part_of(type_numel(&w->type), s->replicas) == type_numel(&w->type))
		return false;
	for (int i = 0; i < w->nuses; i++)
		if (!divisible_use(w->uses[i].node, s))
			return false;
	return stays_inside(w);
}

/* What each replica has a part of: a weight, or its copy in 16 bits. */
static bool in_parts(const Value *v)
{
	return v && held_count(v) < type_numel(&v->type) && (v->kind != VAL_PARAM || v->param->kind == PARAM_WEIGHT);
}

typedef struct Gatherer {
	Module *m;
	Stage *s;
	PassCx *cx;
	Map whole;             /* of the bucket at hand: what is gathered -> the whole of it */
	Node *before, *reader; /* where its gathers stand; the first that reads of it */
	double bytes, limit;
	int bucket; /* -1: none yet */
} Gatherer;

static void open_bucket(Gatherer *x, Node *reader)
{
	x->before = x->bucket < 0 ? reader : x->reader;
	x->reader = reader;
	x->bytes = 0;
	x->bucket++;
	map_init(&x->whole, x->cx->scratch, false);
}

static Value *gather(Gatherer *x, Value *v, Node *reader)
{
	const double bytes = (double)value_bytes(v);
	Value *whole = x->bucket < 0 ? NULL : map_get(&x->whole, v);
	const Node *last = x->bucket < 0 ? NULL : x->before->prev;

	if (whole)
		return whole;
	const bool full = x->bytes + bytes > x->limit && x->reader != reader; /* what one node reads arrives together */
	if (!last || full || last->out[0]->type.dtype != v->type.dtype)
		open_bucket(x, reader);
	Builder b = { .m = x->m,
		.g = reader->graph,
		.before = x->before,
		.loc = reader->loc,
		.phase = reader->phase,
		.stage = x->s->id,
		.d = x->cx->d };
	whole = mk(&b, OP_GatherWeight, NULL, arena_printf(x->cx->scratch, "%s.whole", v->name), 1, v);
	attr_set_int(whole->def, "bucket", x->bucket);
	attr_set_int(whole->def, "parts", x->s->replicas);
	map_put(&x->whole, v, whole);
	x->bytes += bytes;
	return whole;
}

static int gather_graph(Module *m, Stage *s, Graph *g, double limit, PassCx *cx)
{
	Gatherer x = { .m = m, .s = s, .cx = cx, .limit = limit, .bucket = -1 };

	for (Node *n = g->first; n; n = n->next)
		for (int i = 0; i < n->nin && !cast_once(n) && n->op != OP_GatherWeight; i++)
			if (in_parts(n->in[i]))
				node_set_input(n, i, gather(&x, n->in[i], n));
	return x.bucket + 1;
}

void gather_weights(Module *m, Stage *s, PassCx *cx)
{
	double all = 0;
	int64_t less = 0;
	Graph *g[4];
	const int ngraph = stage_graphs(s, g);

	for (int i = 0; i < s->nparam; i++)
		if (in_parts(s->param[i])) {
			all += (double)value_bytes(s->param[i]);
			less += value_bytes(s->param[i]) - held_bytes(s->param[i]);
		}
	for (int k = 0; k < ngraph - 1; k++) {
		const int n = gather_graph(m, s, g[k], zero_bucket(cx->train, all), cx);
		if (cx->explain)
			buf_printf(cx->explain, "stage %d: %s gathers weights in %d buckets\n", s->id, g[k]->name, n);
	}
	if (cx->explain)
		buf_printf(cx->explain, "stage %d: weights in %d parts: %lld bytes less on each device\n", s->id,
			s->replicas, (long long)less);
}
