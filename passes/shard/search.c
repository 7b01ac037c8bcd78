/* The search for a division: a beam over the candidates (candidates.c).
 *
 * Nodes are taken in program order, forward, backward and update together; a state says how every value made so
 * far lies, and a node may be computed in every way that some candidate of its operands or results allows, or whole, on
 * every device alike. A state's price: the node's time (divided by the degree where it works on parts), the bytes that
 * conversions send, and the memory of weights and results. The BEAM cheapest states go on; of states that differ in
 * nothing a later node could see, the cheapest. That is Alpa's problem inside a mesh (Zheng 2022, section 4) over one
 * axis of devices, for graphs that are nearly chains. With --sequence on the rows of normalisations are seeds too, sums
 * are scattered where parts are wanted (Korthikanti 2022, section 4.2.2), and what a forward has gathered is gathered
 * anew in the backward. */
#include <string.h>
#include "shard.h"

enum { BEAM = 24, WAYS = 24, WHOLE = 0 };

/* Seconds that a byte of memory counts as: of a weight, with its gradient and the optimizer's state; of a result; with
 * --sequence on of both, of a result where a backward reads it. */
static const double WEIGHT_PRICE = 1e-10, RESULT_PRICE = 1e-12, SEQUENCE_WEIGHT = 4e-8, SEQUENCE_PRICE = 1e-8;

/* ---- ways ---- */

bool shard_scatters(const ShardSearch *s, const Value *y, int form)
{
	const Shard f = s->forms[shard_index(y)].form[form];

	return f.kind == SHARD_AXIS && f.axis < y->type.rank - 1;
}

typedef struct Way {
	ShardChoice c;
	double price; /* its arithmetic and the memory of its results */
	double sum;   /* bytes that are summed at once, for a bias behind them */
} Way;

typedef struct Ways {
	int n;
	Way way[WAYS];
} Ways;

static bool same_choice(const Node *n, const ShardChoice *a, const ShardChoice *b)
{
	return !memcmp(a->in, b->in, sizeof *a->in * (size_t)n->nin) &&
	       !memcmp(a->out, b->out, sizeof *a->out * (size_t)n->nout);
}

static double bytes_of(const Value *v) { return (double)type_bytes(&v->type); }

/* Kept for the backward. */
static bool stashed(const Value *v)
{
	for (int k = 0; k < v->nuses && v->def->phase == PHASE_FWD; k++)
		if (v->uses[k].node->phase == PHASE_BWD)
			return true;
	return false;
}

static void price_way(ShardSearch *s, const Node *n, const Speed *speed, Way *w)
{
	const int degree = shard_degree(s, n);
	bool parts = false;

	for (int i = 0; i < n->nin; i++)
		parts |= n->in[i] && s->forms[shard_index(n->in[i])].form[w->c.in[i]].kind == SHARD_AXIS;
	for (int i = 0; i < n->nout; i++) {
		const bool cut = n->out[i] && s->forms[shard_index(n->out[i])].form[w->c.out[i]].kind == SHARD_AXIS;

		parts |= cut;
		if (n->out[i])
			w->price += (shard_samples(s, n->stage) && stashed(n->out[i]) ? SEQUENCE_PRICE : RESULT_PRICE) *
			            bytes_of(n->out[i]) / (cut ? degree : 1);
	}
	const double work = node_time(n, speed) - speed->launch; /* below 0: of a view */

	w->price += (work > 0 ? work : 0) / (parts ? degree : 1);
	if (parts && (n->op == OP_SoftmaxCrossEntropyLoss || n->op == OP_CountHits))
		w->price += s->latency + (degree - 1) * bytes_of(n->in[1]) / s->link_rate;
}

/* scattered: where a bias is added behind the sum, the form of that. */
static void add_way(ShardSearch *s, Ways *ways, const Node *n, const ShardWay *w, int scattered, const Speed *speed)
{
	Way *to = &ways->way[ways->n];
	bool known = ways->n == WAYS;

	if (known || !shard_at_home(s, n, w))
		return;
	*to = (Way){ .c = { NEWN(s->arena, int, n->nin), NEWN(s->arena, int, n->nout), w->bias_last } };
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && (to->c.in[i] = shard_form(s, n->in[i], w->in[i])) < 0)
			return;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && !w->bias_last && (to->c.out[i] = shard_form(s, n->out[i], w->out[i])) < 0)
			return;
	if (w->bias_last) {
		to->sum = bytes_of(n->out[0]);
		to->c.out[0] = scattered;
	}
	for (int i = 0; i < ways->n && !known; i++)
		known = same_choice(n, &ways->way[i].c, &to->c);
	if (known)
		return;
	price_way(s, n, speed, to);
	ways->n++;
}

static void ways_of(ShardSearch *s, const Node *n, const Speed *speed, Ways *ways)
{
	const ShardWay whole = shard_new_way(s, n);

	ways->n = 0;
	add_way(s, ways, n, &whole, WHOLE, speed);
	for (int i = 0; i < n->nin + n->nout; i++) {
		const bool out = i >= n->nin;
		const int at = out ? i - n->nin : i;
		const Value *v = out ? n->out[at] : n->in[at];

		for (int k = 1; v && k < s->forms[shard_index(v)].n; k++) {
			ShardWay w = shard_new_way(s, n);

			*(out ? &w.out[at] : &w.in[at]) = s->forms[shard_index(v)].form[k];
			if (!shard_way_of(s, n, out, at, &w))
				continue;
			add_way(s, ways, n, &w, WHOLE, speed);
			for (int f = 1; w.bias_last && f < s->forms[shard_index(n->out[0])].n; f++)
				if (shard_scatters(s, n->out[0], f))
					add_way(s, ways, n, &w, f, speed);
		}
	}
}

/* ---- the beam ---- */

typedef struct State {
	double price;
	uint16_t *have; /* by value: bit k: it lies in form k; 0: not made yet, or a weight that nobody has asked for */
	uint8_t *home;  /* by value: the form in which a weight lies for good; with samples also what a node made */
	uint8_t *way;   /* by node */
} State;

static bool has(const Forms *f, unsigned had, ShardKind kind)
{
	for (int k = 0; k < f->n; k++)
		if (had & 1u << k && f->form[k].kind == kind)
			return true;
	return false;
}

/* A table whose rows could be divided takes another form: half of what summing its products later costs, known here so
 * that the rows' state, which pays more for its lookups, is not gone until then. */
static double ahead(const ShardSearch *s, const Value *v, int want)
{
	const Forms *f = &s->forms[shard_index(v)];
	double bytes = 0;
	bool rows = false;

	for (int k = 1; k < f->n; k++)
		rows |= f->form[k].kind == SHARD_AXIS && f->form[k].axis == 0;
	for (int i = 0; i < v->nuses && rows && f->form[want].axis && f->form[want].kind == SHARD_AXIS; i++) {
		const Node *n = v->uses[i].node;

		if (n->phase == PHASE_FWD && (n->op == OP_Gemm || n->op == OP_MatMul) && v->type.rank == 2)
			bytes += bytes_of(n->out[0]);
	}
	const double d = shard_members(s, v);

	return shard_looked_up(v) ? (d - 1) * bytes / d / s->link_rate : 0;
}

/* v is asked for in form `want`: what that costs, and what there is then. Less than 0: that cannot be. */
static double convert(ShardSearch *s, State *t, const Value *v, int want, bool in_place)
{
	const Forms *f = &s->forms[shard_index(v)];
	uint16_t *have = &t->have[shard_index(v)];
	const double bytes = bytes_of(v), d = shard_members(s, v);

	if (*have & 1 << want)
		return in_place && t->home[shard_index(v)] != want ? -1 : 0;
	if (!*have && v->kind == VAL_PARAM) {
		*have = (uint16_t)(1 << want);
		t->home[shard_index(v)] = (uint8_t)want;
		return (shard_samples_of(s, shard_index(v)) ? SEQUENCE_WEIGHT : WEIGHT_PRICE) * bytes /
		               (want == WHOLE ? 1 : d) +
		       ahead(s, v, want);
	}
	if (in_place || f->form[want].kind == SHARD_PARTIAL)
		return -1;
	if (shard_scatters(s, v, want) && !(*have & 1 << WHOLE) && !has(f, *have, SHARD_AXIS)) {
		*have |= (uint16_t)(1 << want);
		return s->latency + (d - 1) / d * bytes / s->link_rate;
	}
	const bool gathered = has(f, *have, SHARD_AXIS);
	*have |= (uint16_t)(1 << want | 1 << WHOLE);
	double price = want == WHOLE ? 0 : bytes / d / s->memory_rate;

	return has(f, *have, SHARD_PARTIAL) && !gathered ? price + s->latency + 2 * (d - 1) / d * bytes / s->link_rate
	                                                 : price;
}

static double convert_all(ShardSearch *s, State *t, const Value *v, int want, bool in_place)
{
	const uint16_t had = t->have[shard_index(v)];
	const double price = convert(s, t, v, want, in_place), d = shard_members(s, v);
	const Forms *f = &s->forms[shard_index(v)];

	if (price < 0 || !had || had & 1 << want || had & 1 << WHOLE || !has(f, had, SHARD_AXIS))
		return price;
	return price + s->latency + (d - 1) / d * bytes_of(v) / s->link_rate + /* gathered */
	       (shard_samples_of(s, shard_index(v)) && v->kind == VAL_PARAM ? SEQUENCE_WEIGHT * bytes_of(v) : 0);
}

/* A gradient that is made in another form than its weight lies in: what the update will have to pay for that, known here so
 * that no state looks cheap until then. */
static double astray(const ShardSearch *s, const State *t, const Value *v, int form)
{
	const int owner = s->owner[shard_index(v)];

	if (owner < 0 || !t->have[owner] ||
		shard_same(s->forms[owner].form[t->home[owner]], s->forms[shard_index(v)].form[form]))
		return 0;
	return s->latency + bytes_of(v) / s->link_rate;
}

/* The state behind n computed so; price < 0: it cannot be. */
static State *go(ShardSearch *s, const State *from, const Node *n, const Way *w, int number, Arena *a)
{
	State *t = NEW(a, State);
	const unsigned writes =
		optab[n->op]->flags & OP_UPDATE ? node_writes(n) | 1 : 0; /* operand 0 is the weight itself */

	t->have = arena_dup(a, from->have, sizeof *t->have * (size_t)s->nvalue);
	t->home = arena_dup(a, from->home, (size_t)s->nvalue);
	t->way = arena_dup(a, from->way, (size_t)s->nnode);
	t->way[n->mark - 1] = (uint8_t)number;
	const double d = shard_degree(s, n);

	t->price = from->price + w->price + (w->sum > 0 ? s->latency : 0) +
	           (w->sum > 0 && w->c.out[0] ? 1 : 2) * (d - 1) * w->sum / d / s->link_rate;
	for (int i = 0; i < n->nin; i++) {
		const double c = n->in[i] ? convert_all(s, t, n->in[i], w->c.in[i], writes >> i & 1) : 0;

		if (c < 0)
			return NULL;
		t->price += c;
	}
	for (int i = 0; i < n->nout; i++)
		if (n->out[i]) {
			t->have[shard_index(n->out[i])] = (uint16_t)(1 << w->c.out[i]);
			if (s->samples)
				t->home[shard_index(n->out[i])] = (uint8_t)w->c.out[i];
			t->price += astray(s, t, n->out[i], w->c.out[i]);
		}
	return t;
}

static bool same_live(const ShardSearch *s, const State *a, const State *b, const int *last, int at)
{
	for (int i = 0; i < s->nvalue; i++)
		if (last[i] > at && (a->have[i] != b->have[i] || a->home[i] != b->home[i]))
			return false;
	return true;
}

/* Keeps t among the cheapest. */
static void keep(const ShardSearch *s, State **beam, int *n, State *t, const int *last, int at)
{
	int i = 0;

	for (int k = 0; k < *n; k++)
		if (same_live(s, beam[k], t, last, at)) {
			if (beam[k]->price <= t->price)
				return;
			memmove(beam + k, beam + k + 1, sizeof *beam * (size_t)(--*n - k));
			break;
		}
	while (i < *n && beam[i]->price <= t->price)
		i++;
	if (i == BEAM)
		return;
	if (*n < BEAM)
		++*n;
	memmove(beam + i + 1, beam + i, sizeof *beam * (size_t)(*n - 1 - i));
	beam[i] = t;
}

/* The last node that reads each value; optimizer state and weights are read to the end. */
static int *last_uses(ShardSearch *s)
{
	int *last = NEWN(s->arena, int, s->nvalue);

	for (int i = 0; i < s->nvalue; i++)
		for (int k = 0; k < s->value[i]->nuses; k++)
			if (s->value[i]->uses[k].node->mark - 1 > last[i])
				last[i] = s->value[i]->uses[k].node->mark - 1;
	return last;
}

/* By value: the weight whose gradient it is, which an Accumulate adds up; -1: none. */
static void find_owners(ShardSearch *s)
{
	s->owner = NEWN(s->arena, int, s->nvalue);
	for (int i = 0; i < s->nvalue; i++)
		s->owner[i] = -1;
	for (int k = s->nnode - 1; k >= 0; k--) {
		const Node *n = s->node[k];

		if (optab[n->op]->flags & OP_UPDATE && n->nin >= 3)
			for (int i = 1; i < n->nin; i++)
				if (n->in[i] && shape_eq(&n->in[i]->type, &n->in[0]->type))
					s->owner[shard_index(n->in[i])] = shard_index(n->in[0]);
		if (n->phase == PHASE_UPDATE && n->nout == 1 && n->out[0])
			for (int i = 0; i < n->nin; i++)
				if (n->in[i] && shape_eq(&n->in[i]->type, &n->out[0]->type))
					s->owner[shard_index(n->in[i])] = s->owner[shard_index(n->out[0])];
	}
}

int shard_kept(const Forms *f, unsigned had, int made)
{
	for (int k = 0; k < f->n && f->form[made].kind != SHARD_AXIS; k++)
		if (had & 1u << k && f->form[k].kind == SHARD_AXIS)
			return k;
	return f->form[made].kind == SHARD_PARTIAL && had & 1 << WHOLE ? WHOLE : made;
}

/* Between forward and backward. */
static void forget(const ShardSearch *s, State *t)
{
	for (int i = 0; i < s->nvalue; i++)
		if (s->value[i]->kind == VAL_NODE && t->have[i] && shard_samples_of(s, i))
			t->have[i] = (uint16_t)(1 << shard_kept(&s->forms[i], t->have[i], t->home[i]));
}

static void choose(ShardSearch *s, const Speed *speed)
{
	const int *last = last_uses(s);
	State *beam[BEAM], *next[BEAM];
	Ways *ways = NEWN(s->arena, Ways, s->nnode);
	int n = 1;
	bool backward = false;
	Arena *a = arena_new(), *b = arena_new();

	beam[0] = NEW(a, State);
	beam[0]->have = NEWN(a, uint16_t, s->nvalue);
	beam[0]->home = NEWN(a, uint8_t, s->nvalue);
	beam[0]->way = NEWN(a, uint8_t, s->nnode);
	for (int i = 0; i < s->nvalue; i++)
		beam[0]->have[i] = s->value[i]->kind == VAL_INPUT || s->value[i]->kind == VAL_CONST;
	for (int i = 0; i < s->nnode; i++) {
		int m = 0;

		ways_of(s, s->node[i], speed, &ways[i]);
		for (int k = 0; k < n && s->samples && !backward && s->node[i]->phase == PHASE_BWD; k++)
			forget(s, beam[k]);
		backward |= s->node[i]->phase == PHASE_BWD;
		for (int k = 0; k < n; k++)
			for (int w = 0; w < ways[i].n; w++) {
				State *t = go(s, beam[k], s->node[i], &ways[i].way[w], w, b);

				if (t)
					keep(s, next, &m, t, last, i);
			}
		if (!m)
			bug("shard: no way to compute %s", optab[s->node[i]->op]->name);
		arena_reset(a);
		for (int k = 0; k < m; k++) { /* the survivors alone stay in memory */
			beam[k] = arena_dup(a, next[k], sizeof *next[k]);
			beam[k]->have = arena_dup(a, next[k]->have, sizeof *next[k]->have * (size_t)s->nvalue);
			beam[k]->home = arena_dup(a, next[k]->home, (size_t)s->nvalue);
			beam[k]->way = arena_dup(a, next[k]->way, (size_t)s->nnode);
		}
		arena_reset(b);
		n = m;
	}
	for (int i = 0; i < s->nnode; i++)
		s->choice[i] = &ways[i].way[beam[0]->way[i]].c;
	arena_free(a);
	arena_free(b);
}

/* ---- numbers of values and nodes ---- */

static void count(ShardSearch *s, Value *v, int *cap)
{
	if (!v || v->mark)
		return;
	PUSH(s->arena, s->value, s->nvalue, *cap) = v;
	v->mark = s->nvalue;
}

/* A value's home is the stage of what makes it; of what no node makes the stage of all that read it. */
static void find_homes(ShardSearch *s)
{
	s->home = NEWN(s->arena, int, s->nvalue);
	for (int i = 0; i < s->nvalue && s->tensor_of; i++) {
		const Value *v = s->value[i];

		s->home[i] = v->def ? v->def->stage : v->nuses ? v->uses[0].node->stage : -1;
		for (int k = 1; k < v->nuses && !v->def; k++)
			if (v->uses[k].node->stage != s->home[i])
				s->home[i] = -1;
	}
}

void shard_search(ShardSearch *s, Graph *g, const Speed *speed, const Link *link)
{
	int cap = 0, nodes = 0;

	s->memory_rate = speed->bandwidth;
	s->link_rate = link->bandwidth;
	s->latency = link->latency;
	for (Node *n = g->first; n; n = n->next) {
		PUSH(s->arena, s->node, s->nnode, nodes) = n;
		n->mark = s->nnode;
		for (int i = 0; i < n->nin; i++)
			count(s, n->in[i], &cap);
		for (int i = 0; i < n->nout; i++)
			count(s, n->out[i], &cap);
	}
	s->forms = NEWN(s->arena, Forms, s->nvalue);
	find_homes(s);
	s->choice = NEWN(s->arena, ShardChoice *, s->nnode);
	find_owners(s);
	shard_candidates(s);
	choose(s, speed);
}

void shard_unmark(ShardSearch *s)
{
	for (int i = 0; i < s->nvalue; i++)
		s->value[i]->mark = 0;
	for (int i = 0; i < s->nnode; i++)
		s->node[i]->mark = 0;
}
