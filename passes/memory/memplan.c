/* memplan: where every value lies. The regions are described with enum Region in ir.h.
 *
 * First values that share memory are joined into classes: views with what they view, an OP_INPLACE output with the
 * operand that dies there. A class is placed by what its members are: a gradient that is accumulated, something kept
 * from forward to backward, something sent or received, else temporary. Temporaries are packed by lifetime (position
 * in their graph): the largest first, each at the lowest offset that is free while it lives. The three graphs of a
 * stage never run at once and share the bytes. Gradients of a microbatch that are added to sums are packed likewise.
 * Where one slot is enough, temporaries also lie over kept values, while those are not made yet or not read any more.
 *
 * Reads the stages and the schedule; writes Value.region, .offset, .alias and Stage.at, .bytes, .param_at ... Refuses
 * what does not fit a device (memplan_device.c). */
#include <limits.h>
#include "passes/common/plan.h"
#include "passes/simulate/simulate.h"
#include "ir/analysis.h"
#include "memory.h"

enum { ALIGN = 64 };

/* What is known of a class, while it is planned; found through its root's aux. */
typedef struct Class {
	Value *root;
	Graph *graph; /* where it is made */
	int64_t bytes, offset;
	int born, dies;         /* positions in graph */
	int read;               /* kept: position of its last reader in the backward */
	bool slot, leaf, fixed; /* fixed: no other value may be computed into it */
	bool wire;              /* sent or received */
	bool brief; /* a leaf that is temporary: the sum of its parts is waited for before the function ends */
	bool sum;   /* a leaf that is added to its sum by what makes it, and lies there */
	bool entry; /* by a forward received, or by a backward sent that made it */
} Class;

typedef struct Planner {
	Module *m;
	PassCx *cx;
	Stage *s;
	Class **all;
	int nall, capall; /* in order of birth */
	bool brief; /* leaves that are summed in parts are: what comes next gathers weights behind those sums anyway */
} Planner;

static int64_t round_up(int64_t n) { return (n + ALIGN - 1) / ALIGN * ALIGN; }

static Value *root_of(Value *v) { return v->alias ? v->alias : v; }

static Class *class_of(Value *v) { return root_of(v)->aux; }

/* ---- classes ---- */

static void new_class(Planner *p, Value *v, Graph *g, int at)
{
	Class *c = NEW(p->cx->scratch, Class);

	*c = (Class){ .root = v, .graph = g, .bytes = round_up(value_bytes(v)), .born = at, .dies = at };
	v->aux = c;
	v->alias = NULL;
	v->offset = 0;
	v->region = REGION_NONE;
	PUSH(p->cx->scratch, p->all, p->nall, p->capall) = c;
}

/* The last position of a use of v in its class's graph; uses in other graphs are handled by keep and Accumulate. */
static int last_use(const Value *v, const Graph *g)
{
	int last = -1;

	for (int i = 0; i < v->nuses; i++)
		if (v->uses[i].node->graph == g && v->uses[i].node->mark > last)
			last = v->uses[i].node->mark;
	return last;
}

static void extend(Class *c, const Value *v)
{
	const int last = last_use(v, c->graph);

	c->dies = last > c->dies ? last : c->dies;
}

/* The class of in[0] ends at n, nobody needs its value later, and nothing else of n reads it in another shape. */
static bool may_overwrite(const Node *n, int at)
{
	Value *x = n->in[0], *y = n->out[0];
	const Class *c = x ? class_of(x) : NULL;

	if (!(optab[n->op]->flags & OP_INPLACE) || !c || !y || c->graph != n->graph)
		return false;
	if (c->slot || c->leaf || c->fixed || c->dies > at || value_bytes(x) != value_bytes(y) ||
		x->type.dtype != y->type.dtype || x->type.layout != y->type.layout)
		return false;
	for (int i = 1; i < n->nin; i++)
		if (n->in[i] && n->in[i] != x && class_of(n->in[i]) == c)
			return false;
	return true;
}

/* How far values that are defined later in the class (views of views) reach: all uses of all members. */
static void reach(Class *c, const Value *v, int depth)
{
	extend(c, v);
	for (int i = 0; depth < 64 && i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (u->graph == c->graph && v->uses[i].index == 0 && (optab[u->op]->flags & OP_VIEW))
			reach(c, u->out[0], depth + 1);
	}
}

static void join_class(Class *c, Value *v)
{
	v->alias = c->root;
	reach(c, v, 0);
}

static bool in_list(Value *const *list, int n, const Value *v)
{
	for (int i = 0; i < n; i++)
		if (list[i] == v)
			return true;
	return false;
}

/* Marks on the class what its member v demands. */
static void demand(const Planner *p, Class *c, const Value *v)
{
	c->slot |= in_list(p->s->keep, p->s->nkeep, v);
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (u->op == OP_Send && u->graph->stage == p->s) {
			c->slot = c->wire = true;
			c->entry |= u->graph == p->s->backward && c->graph == u->graph;
		}
		if (u->op == OP_Accumulate && u->graph->stage == p->s)
			c->leaf = true;
		if (u->op == OP_Stack) /* copied when the forward ends */
			c->fixed = true;
	}
}

/* Everything that views of v demand, before anything is placed over it. */
static void demand_views(const Planner *p, Class *c, const Value *v)
{
	demand(p, c, v);
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (u->graph == c->graph && v->uses[i].index == 0 && (optab[u->op]->flags & OP_VIEW))
			demand_views(p, c, u->out[0]);
	}
}

static bool place_special(Planner *p, Node *n, int at)
{
	Value *v = n->nout ? n->out[0] : NULL;

	if (n->op == OP_Recv) {
		new_class(p, v, n->graph, at);
		class_of(v)->slot = class_of(v)->wire = class_of(v)->fixed = true;
		class_of(v)->entry = n->graph == p->s->forward;
	} else if (n->op == OP_Accumulate) {
		const Class *leaf = class_of(n->in[0]);
		if (!leaf || !leaf->leaf)
			bug("%s has no place among the gradients", n->in[0]->name);
		v->aux = NULL;
		v->alias = NULL;
		v->region = REGION_GRADS;
		v->offset = attr_int(n, "part") ? v->offset : leaf->offset;
	} else if (n->op == OP_Broadcast && n->nin) {
		v->alias = root_of(n->in[0]);
		v->region = n->in[0]->region;
		v->offset = n->in[0]->offset;
	} else if (cast_once(n)) {
		for (int i = 0; i < n->nout; i++) {
			v = n->out[i];
			v->aux = NULL;
			v->alias = NULL;
			v->region = REGION_STATE;
			v->offset = p->s->bytes[REGION_STATE];
			p->s->bytes[REGION_STATE] += round_up(held_bytes(v));
		}
	} else if (n->op == OP_Collect) {
		v->aux = NULL;
		v->alias = NULL;
		v->region = REGION_GRADS;
		v->offset = p->s->bytes[REGION_GRADS];
		p->s->bytes[REGION_GRADS] += round_up(value_bytes(v));
	} else if (n->op == OP_Stack) {
		v->aux = NULL;
		v->alias = NULL;
		v->region = REGION_STACK;
		v->offset = p->s->bytes[REGION_STACK];
		p->s->bytes[REGION_STACK] += round_up(value_bytes(v));
	} else {
		return false;
	}
	return true;
}

static void classify(Planner *p, Graph *g)
{
	int at = 0;

	for (Node *n = g->first; n; n = n->next)
		n->mark = ++at;
	for (int i = 0; i < g->nin; i++)
		new_class(p, g->in[i], g, 0);
	for (int i = 0; i < g->nin; i++) {
		reach(class_of(g->in[i]), g->in[i], 0);
		demand_views(p, class_of(g->in[i]), g->in[i]);
	}
	for (Node *n = g->first; n; n = n->next) {
		if (place_special(p, n, n->mark)) {
			if (n->op == OP_Recv)
				demand_views(p, class_of(n->out[0]), n->out[0]);
			continue;
		}
		for (int i = 0; i < n->nout; i++) {
			Value *v = n->out[i];
			if (!v)
				continue;
			if (i == 0 && (optab[n->op]->flags & OP_VIEW)) {
				v->alias = root_of(n->in[0]);
			} else if (i == 0 && may_overwrite(n, n->mark)) {
				Class *c = class_of(n->in[0]);
				join_class(c, v);
				demand_views(p, c, v);
			} else {
				new_class(p, v, g, n->mark);
				class_of(v)->fixed =
					n->op == OP_GatherWeight; /* it is written from elsewhere, into TMP */
				reach(class_of(v), v, 0);
				demand_views(p, class_of(v), v);
			}
		}
	}
}

/* ---- regions ---- */

static void place_class(Class *c, Region r, int64_t *top)
{
	c->root->region = r;
	c->root->offset = c->offset = *top;
	*top += c->bytes;
}

static void place_leaf(Planner *p, const Node *n)
{
	Class *c = class_of(n->in[0]);

	if (!c || c->slot)
		bug("gradient %s lies elsewhere", n->in[0]->name);
	if (attr_int(n, "part")) { /* only its part has a place among the sums */
		c->root->region = REGION_LEAF;
		c->brief = p->brief;
		n->out[0]->offset = p->s->bytes[REGION_GRADS];
		p->s->bytes[REGION_GRADS] += round_up(value_bytes(n->out[0]));
		return;
	}
	c->sum = summed_where_made(p->cx, p->m, p->s, n, c->root);
	place_class(c, c->sum ? REGION_GRADS : REGION_LEAF, &p->s->bytes[REGION_GRADS]);
}

/* Gradients that are summed behind every backward are read until the next such sum begins; those of the last in front of the next
 * backward. */
static void lengthen_summed(Planner *p)
{
	const Graph *g = p->s->weight ? p->s->weight : p->s->backward;
	Node *before = NULL;

	for (Node *n = p->s->update->first; n; n = n->next) {
		if (n->op != OP_AllReduce || !attr_int(n, "each"))
			continue;
		for (int i = 0; before && i < before->nin; i++) {
			Class *c = class_of(before->in[i]->def->in[0]);
			const int ends = bucket_node(p->s, n)->mark;
			c->dies = ends > c->dies ? ends : c->dies;
		}
		before = n;
	}
	for (int i = 0; before && i < before->nin; i++)
		class_of(before->in[i]->def->in[0])->dies = g->nnodes + 1;
}

/* Small gradients of programs for GPUs are added to their sums when the graph ends that makes them, or a bucket with one of them begins. */
static void lengthen_small(Planner *p)
{
	for (int i = 0; i < p->nall && !sums_each(p->s); i++)
		if (p->all[i]->leaf && !p->all[i]->sum && !p->all[i]->brief &&
			added_at_end(p->cx->train, value_bytes(p->all[i]->root)))
			p->all[i]->dies = p->all[i]->graph->nnodes + 1;
}

/* Gradients bucket by bucket, each in one piece for the ring; without buckets in the order of the update graph's Accumulates:
 * the order of parameters. */
static void place_leaves(Planner *p)
{
	for (const Node *n = p->s->update->first; n; n = n->next)
		for (int i = 0; n->op == OP_AllReduce && attr_int(n, "bucket") >= 0 && i < n->nin; i++)
			place_leaf(p, n->in[i]->def);
	for (const Node *n = p->s->update->first; n; n = n->next) /* in no bucket: those that servers add */
		if (n->op == OP_Accumulate && (!class_of(n->in[0]) || class_of(n->in[0])->root->region == REGION_NONE))
			place_leaf(p, n);
}

static void place_slots(Planner *p)
{
	for (int i = 0; i < p->nall; i++) {
		Class *c = p->all[i];
		if (!c->slot)
			continue;
		if (!c->bytes) /* no elements; it is a member of its own all the same */
			c->bytes = ALIGN;
		if (c->wire && schedule_tagged(p->m)) /* a tag goes with it */
			c->bytes += ALIGN;
		place_class(
			c, c->entry ? REGION_ENTRY : REGION_SLOT, c->entry ? &p->s->entry_bytes : &p->s->slot_bytes);
		*(c->wire ? &p->s->bytes_comm : &p->s->bytes_kept) +=
			c->bytes * (c->entry ? p->s->entries : p->s->inflight);
	}
	p->s->bytes[REGION_ENTRY] = p->s->entry_bytes * p->s->entries;
	p->s->bytes[REGION_SLOT] = p->s->slot_bytes * p->s->inflight;
}

/* A value that Stack reads is copied when the forward ends (in the backward, at once); demand() keeps others from being
 * computed into it. */
static void lengthen_stacked(Planner *p)
{
	for (const Node *n = p->s->update->first; n; n = n->next)
		if (n->op == OP_Stack && class_of(n->in[0]) && class_of(n->in[0])->graph == p->s->forward)
			class_of(n->in[0])->dies = p->s->forward->nnodes + 1;
}

/* ---- temporaries ---- */

static bool before(const Class *x, const Class *y)
{
	return x->bytes != y->bytes ? x->bytes > y->bytes : x->born < y->born;
}

static void merge_sort(Class **v, Class **tmp, int n)
{
	if (n < 2)
		return;
	const int h = n / 2;
	merge_sort(v, tmp, h);
	merge_sort(v + h, tmp, n - h);
	for (int i = 0, a = 0, b = h; i < n; i++)
		tmp[i] = b >= n || (a < h && !before(v[b], v[a])) ? v[a++] : v[b++];
	for (int i = 0; i < n; i++)
		v[i] = tmp[i];
}

/* Positions in the backward at which kept values are read last. */
static void find_readers(const Planner *p)
{
	for (const Node *n = p->s->backward->first; n; n = n->next)
		for (int i = 0; i < n->nin; i++) {
			Class *c = n->in[i] ? class_of(n->in[i]) : NULL;
			if (c && c->slot && c->graph == p->s->forward)
				c->read = n->mark;
		}
}

/* Where there is one slot, temporaries lie over what is dead of it: before it is made, or behind its last reader. Gives
 * the slot's members by offset, with the positions in g at which they live. What is sent or received lives always. */
static int slot_members(Planner *p, const Graph *g, Class **placed)
{
	int n = 0;

	for (int i = 0; i < p->nall && tmp_over_slot(p->s); i++) {
		const Class *c = p->all[i];
		if (!c->slot || c->entry || (g == p->s->update && !c->wire))
			continue;
		placed[n] = NEW(p->cx->scratch, Class);
		*placed[n] = *c;
		if (c->wire || g != p->s->forward)
			placed[n]->born = 0;
		placed[n++]->dies = c->wire || g == p->s->forward ? INT_MAX : c->read;
	}
	return n;
}

/* Packs the temporaries of one graph, or the gradients of a microbatch (LEAF); gives the bytes that it needs. */
static int64_t pack(Planner *p, const Graph *g, Region r)
{
	Class **v = NEWN(p->cx->scratch, Class *, p->nall), **placed = NEWN(p->cx->scratch, Class *, p->nall);
	int n = 0, np = 0;
	int64_t top = 0;

	for (int i = 0; i < p->nall; i++)
		if (p->all[i]->graph == g && !p->all[i]->slot && !p->all[i]->sum &&
			(p->all[i]->leaf && !p->all[i]->brief) == (r == REGION_LEAF))
			v[n++] = p->all[i];
	merge_sort(v, placed, n);
	if (r == REGION_TMP)
		np = slot_members(p, g, placed);
	for (int i = 0; i < n; i++) {
		Class *c = v[i];
		int64_t at = 0;
		int k = 0;
		for (; k < np; k++) { /* by ascending offset */
			const Class *o = placed[k];
			if (o->dies < c->born || c->dies < o->born)
				continue;
			if (o->offset >= at + c->bytes)
				break;
			if (o->offset + o->bytes > at)
				at = o->offset + o->bytes;
		}
		c->root->region = r;
		c->root->offset = c->offset = at;
		for (k = np++; k > 0 && placed[k - 1]->offset > at; k--)
			placed[k] = placed[k - 1];
		placed[k] = c;
		top = at + c->bytes > top ? at + c->bytes : top;
	}
	return top;
}

/* Members of a class lie where its root does; never a chain. */
static void settle(Graph *g)
{
	for (Node *n = g->first; n; n = n->next)
		for (int i = 0; i < n->nout; i++) {
			Value *v = n->out[i];
			if (!v || !v->alias)
				continue;
			while (v->alias->alias)
				v->alias = v->alias->alias;
			v->region = v->alias->region;
			v->offset = v->alias->offset;
		}
}

/* ---- the arena ---- */

static int64_t tree_bytes(const Planner *p, int rank, int64_t grads)
{
	const Schedule *s = p->m->schedule;
	const int grains = schedule_grains(s, p->s->id);
	int *grain = NEWN(p->cx->scratch, int, grains), most;
	const int mine = schedule_mine(s, rank, p->s->id, grain);

	schedule_subtrees(p->cx->scratch, grains, grain, mine, &most);
	return most * grads + round_up(1024 + 32 * (int64_t)mine); /* and the tree's own lists */
}

/* A microbatch's gradients: each lives until it was added to its sum, right behind the node that makes it. Where they
 * are leaves of a tree all are kept, in the order of the sums. */
static void size_leaves(Planner *p)
{
	Stage *s = p->s;
	const Schedule *sched = p->m->schedule;
	const int64_t grads = s->bytes[REGION_GRADS];

	if (s->server)
		return;
	if (!p->cx->train || !p->cx->train->loop.reproducible || !grads) {
		if (p->m->microbatches > s->replicas || sums_each(s))
			s->bytes[REGION_LEAF] = pack(p, s->weight ? s->weight : s->backward, REGION_LEAF);
		s->bytes[REGION_GRADS] *= sched->late + 1; /* Pipe-SGD: sums of earlier steps are under way */
		return;
	}
	for (int r = 0; r < s->replicas; r++) {
		const int64_t b = tree_bytes(p, sched->device[s->id][r], grads);
		s->bytes[REGION_LEAF] = b > s->bytes[REGION_LEAF] ? b : s->bytes[REGION_LEAF];
	}
	s->bytes[REGION_GRADS] = sched->late ? grads * (sched->late + 1) : 0;
}

/* Several versions of a weight are wanted where a backward reads what its forward read, and where a forward reads
 * another than the newest. */
static bool has_versions(const Planner *p, const Value *v)
{
	const Schedule *s = p->m->schedule;
	const bool older = s->rule == VERSION_PREVIOUS || (s->rule == VERSION_VERTICAL && p->s->id > 0);

	if (!s->async || s->versions[p->s->id] < 2 || v->param->kind != PARAM_WEIGHT || v->param->frozen)
		return false;
	for (int i = 0; i < v->nuses; i++)
		if (v->uses[i].node->graph == p->s->backward || (older && v->uses[i].node->graph == p->s->forward))
			return true;
	return false;
}

static void place_params(Planner *p)
{
	Stage *s = p->s;

	s->param_at = NEWN(p->m->arena, int64_t, s->nparam);
	s->versioned = NEWN(p->m->arena, bool, s->nparam);
	s->versions = 0;
	s->version_bytes = 0;
	for (int i = 0; i < s->nparam; i++) {
		const Region r = s->param[i]->param->kind == PARAM_STATE ? REGION_STATE : REGION_PARAMS;
		int64_t *to = (s->versioned[i] = has_versions(p, s->param[i])) ? &s->version_bytes : &s->bytes[r];
		s->param_at[i] = *to;
		*to += round_up(held_bytes(s->param[i]));
	}
	s->versions_at = s->bytes[REGION_PARAMS];
	if (s->version_bytes)
		s->versions = p->m->schedule->versions[s->id];
	s->bytes[REGION_PARAMS] += s->versions * s->version_bytes;
	for (int i = 0; i < s->nparam; i++)
		s->param_at[i] += s->versioned[i] ? s->versions_at : 0;
}

/* As if the stage had its device for itself. */
static void lay_out(Planner *p)
{
	Stage *s = p->s;
	int64_t at = 0;

	for (int r = REGION_PARAMS; r < REGION_COUNT; r++) {
		s->at[r] = at;
		at += s->bytes[r];
	}
	if (tmp_over_slot(s))
		s->at[REGION_TMP] = s->at[REGION_SLOT];
	if (!s->bytes[REGION_LEAF])
		s->at[REGION_LEAF] = s->at[REGION_GRADS];
	if (!s->bytes[REGION_GRADS])
		s->at[REGION_GRADS] = s->at[REGION_LEAF];
	s->arena = at;
	for (int i = 0; i < s->nparam; i++)
		s->param_at[i] += s->at[s->param[i]->param->kind == PARAM_STATE ? REGION_STATE : REGION_PARAMS];
	s->bytes_params = s->bytes[REGION_PARAMS];
	s->bytes_state = s->bytes[REGION_STATE];
	s->bytes_grads = s->bytes[REGION_GRADS] + s->bytes[REGION_LEAF];
	s->bytes_kept += s->bytes[REGION_STACK];
	s->bytes_tmp = s->bytes[REGION_TMP];
	s->bytes_scratch = s->bytes[REGION_SCRATCH];
}

static void clear(const Planner *p, Graph *const *g, int n)
{
	for (int i = 0; i < p->nall; i++)
		p->all[i]->root->aux = NULL;
	for (int k = 0; k < n; k++)
		for (Node *x = g[k]->first; x; x = x->next)
			x->mark = 0;
}

static void plan_stage(Planner *p)
{
	Stage *s = p->s;
	Graph *g[4];
	const int ngraph = stage_graphs(s, g);

	for (int r = 0; r < REGION_COUNT; r++)
		s->at[r] = s->bytes[r] = 0;
	s->slot_bytes = s->entry_bytes = s->bytes_kept = s->bytes_comm = 0;
	p->brief = gathers_weights(s);
	for (int k = 0; k < ngraph - 1; k++)
		classify(p, g[k]);
	place_leaves(p);
	classify(p, s->update);
	place_slots(p);
	lengthen_stacked(p);
	lengthen_summed(p);
	lengthen_small(p);
	find_readers(p);
	for (int k = 0; k < ngraph; k++) {
		const int64_t n = pack(p, g[k], REGION_TMP), over = n && tmp_over_slot(s) ? s->slot_bytes : 0;
		const int64_t more = n - over > ALIGN || !n ? n - over : ALIGN; /* a region that is used is not empty */
		s->bytes[REGION_TMP] = more > s->bytes[REGION_TMP] ? more : s->bytes[REGION_TMP];
		for (const Node *x = g[k]->first; x; x = x->next)
			if (x->scratch > s->bytes[REGION_SCRATCH])
				s->bytes[REGION_SCRATCH] = round_up(x->scratch);
	}
	size_leaves(p);
	s->row_copies = !p->m->schedule->async                     ? 1
	                : p->m->schedule->rule == VERSION_PREVIOUS ? 2
	                : p->m->schedule->late                     ? p->m->schedule->late + 1
	                                                           : s->inflight;
	s->bytes[REGION_STACK] *= s->row_copies;
	for (int k = 0; k < ngraph; k++)
		settle(g[k]);
	clear(p, g, ngraph);
	place_params(p);
	lay_out(p);
}

int64_t memplan_stage(Module *m, PassCx *cx, Stage *s)
{
	Planner p = { .m = m, .cx = cx, .s = s };

	plan_stage(&p);
	return s->arena;
}

bool pass_memplan(Module *m, PassCx *cx)
{
	if (!m->schedule)
		return diag_error(cx->d, FILELOC(m->file), 410, "memplan needs a schedule; run schedule first");
	for (int i = 0; i < m->nstage; i++) {
		Planner p = { .m = m, .cx = cx, .s = m->stage[i] };
		plan_stage(&p);
	}
	if (!share_devices(m, cx))
		return false;
	predict_step(m, cx); /* whose slots are known now */
	return true;
}
