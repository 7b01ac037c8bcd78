/* Bytes from device to device in a step, as the runtime counts them: the volumes of runtime/comm/mpi.c, allreduce.c, step_loss.c
 * and norm.c, from the plan alone. */
#include <stdlib.h>
#include "simulate.h"
#include "passes/cost/sumcost.h"

enum {
	SMALL = 4096,
	WINDOW = 8,
	FLOAT = 4,
	TREE = 16 * 1024, /* as in tree.c: elements of a slice */
	SLICE = WINDOW * 32768
}; /* as in runtime/comm/allreduce.c: elements, members */
enum { TOLD = 40, NORM = 8 }; /* bytes that device 0 tells everyone: step_loss.c, norm.c */

typedef struct Pairs {
	Arena *a;
	SimPair *pair;
	size_t n, cap;
	size_t *place;
	size_t places;
} Pairs;

static size_t probe(const Pairs *p, int from, int to)
{
	size_t i = ((size_t)from * 0x9E3779B97F4A7C15u ^ (size_t)to * 0xC2B2AE3D27D4EB4Fu) >> 20 & (p->places - 1);

	while (p->place[i] && (p->pair[p->place[i] - 1].from != from || p->pair[p->place[i] - 1].to != to))
		i = (i + 1) & (p->places - 1);
	return i;
}

static SimPair *pair(Pairs *p, int from, int to)
{
	if (2 * (p->n + 1) > p->places) {
		p->places = p->places ? 2 * p->places : 64;
		p->place = NEWN(p->a, size_t, p->places);
		for (size_t i = 0; i < p->n; i++)
			p->place[probe(p, p->pair[i].from, p->pair[i].to)] = i + 1;
	}
	const size_t i = probe(p, from, to);
	if (!p->place[i]) {
		PUSH(p->a, p->pair, p->n, p->cap) = (SimPair){ .from = from, .to = to };
		p->place[i] = p->n;
	}
	return &p->pair[p->place[i] - 1];
}

bool sim_small_sum(const SimJoin *j)
{
	return !j->codec && j->bytes <= SMALL * FLOAT && j->n - 1 <= WINDOW && !j->always;
}

/* Of the ring's n chunks the i-th, on the wire (runtime/comm/allreduce.c). */
static int64_t chunk(const SimJoin *j, int i)
{
	const int64_t floats = j->codec ? j->floats : j->bytes / FLOAT, grain = j->codec && j->block > 0 ? j->block : 1;
	const int64_t grains = (floats + grain - 1) / grain, end = grains * (i + 1) / j->n * grain;
	const int64_t n = (end < floats ? end : floats) - grains * i / j->n * grain;

	return j->codec ? sum_wire(j->codec, j->block, FLOAT * n) : FLOAT * n;
}

/* Bytes of what member i adds in a tree: its slice of each block (runtime/comm/tree.c). */
static int64_t slices(const SimJoin *j, int i)
{
	const int64_t floats = j->bytes / FLOAT, block = (int64_t)j->n * TREE,
		      rest = floats % block - (int64_t)i * TREE;

	return FLOAT * (floats / block * TREE + (rest < 0 ? 0 : rest < TREE ? rest : TREE));
}

/* A ring sends all chunks twice but for the two that would come next; of a tree each one gets its slice of all subtrees, and tells
 * everyone its slice of the sum. */
int64_t sim_ring_sent(const SimJoin *j, int from, int to)
{
	if (j->subtrees)
		return j->subtrees[from] * slices(j, to) + slices(j, from);
	if (sim_small_sum(j))
		return j->bytes;
	return 2 * (j->codec ? j->bytes : j->bytes / FLOAT * FLOAT) - chunk(j, (from + 1) % j->n) -
	       chunk(j, (from + 2) % j->n);
}

int sim_ring_reach(const SimJoin *j) { return j->n < 2 || j->subtrees || sim_small_sum(j) ? j->n - 1 : 1; }

/* How often a device sums and updates in what is shown. */
static int updates_of(const SimModel *m, int rank)
{
	const DeviceSchedule *d = &m->s->dev[rank];
	int n = 0;

	for (int i = 0; i < d->n && m->s->async; i++)
		n += d->act[i].kind == ACT_SYNC;
	return m->s->async ? n : 1;
}

int sim_times(const SimModel *m, const SimJoin *j) { return j->each ? j->each : updates_of(m, j->rank[0]); }

static void add_ring(Pairs *p, const SimJoin *x, int64_t times)
{
	for (int r = 0; r < x->n; r++)
		for (int o = 1; o <= sim_ring_reach(x); o++) {
			const int to = (r + o) % x->n;

			pair(p, x->rank[r], x->rank[to])->joins += times * sim_ring_sent(x, r, to);
		}
}

/* Slice by slice. */
static void add_rounds(Pairs *p, const SimJoin *j, int64_t times)
{
	const int64_t count = j->bytes / FLOAT;

	for (int64_t at = 0; at < count; at += SLICE) {
		const size_t n = (size_t)(count - at < SLICE ? count - at : SLICE);
		bool going = true;
		for (int k = 0; going; k++)
			for (int i = 0; i < j->n; i++) {
				rounds_step x;
				going = rounds_step_of(sim_rounds(j->kind), j->n, j->hosts, i, k, n, &x);
				if (going && x.to >= 0)
					pair(p, j->rank[i], j->rank[x.to])->joins += times * FLOAT * (int64_t)x.send_n;
			}
	}
}

static int by_ranks(const void *x, const void *y)
{
	const SimPair *a = x, *b = y;

	return a->from != b->from ? (a->from > b->from) - (a->from < b->from) : (a->to > b->to) - (a->to < b->to);
}

static void add_join(Pairs *p, const SimModel *m, const SimJoin *x)
{
	const int64_t times = sim_times(m, x);

	if (x->kind == SIM_RING && !x->vendor)
		add_ring(p, x, times);
	if (x->kind >= SIM_ROUNDS)
		add_rounds(p, x, times);
	for (int i = 0; i < x->n * x->n && sim_tells(x); i++)
		if (sim_told(x, i / x->n, i % x->n))
			pair(p, x->rank[i / x->n], x->rank[i % x->n])->joins += times * sim_told(x, i / x->n, i % x->n);
}

SimPair *sim_pairs(Arena *a, const SimModel *m, int *n)
{
	const Schedule *s = m->s;
	Pairs p = { .a = a };

	for (int i = 0; i < m->nmsg; i++)
		for (int mb = 0; mb < s->nmicro; mb++) {
			const SimMessage *x = &m->msg[i];
			const int from = s->device[x->from][s->replica_of[x->from][mb]],
				  to = s->device[x->to][s->replica_of[x->to][mb]];
			if (from != to)
				pair(&p, from, to)->messages += x->bytes;
		}
	for (int j = 0; j < m->njoin; j++)
		add_join(&p, m, &m->join[j]);
	for (int j = 0; j < m->ngather; j++)
		add_join(&p, m, &m->gather[j]);
	for (int i = 0; i < m->nserve; i++) {
		const SimServe *x = &m->serve[i];
		const int64_t times = m->each ? EACH_STEPS : 1;
		SimPair *up = pair(&p, x->worker, x->server);
		up->values += times * (int64_t)(x->up + 0.5);
		up->ids += times * (int64_t)(x->ids + 0.5);
		up->heads += times * (int64_t)(x->heads + 0.5);
		SimPair *down = pair(&p, x->server, x->worker);
		down->values += times * (int64_t)(x->down + 0.5);
		down->ids += times * (int64_t)(x->back_ids + 0.5);
		down->heads += times * (int64_t)(x->back_heads + 0.5);
	}
	for (int r = 1; r < s->ndevice && m->totals; r++) {
		pair(&p, r, 0)->totals += m->totals - TOLD;
		pair(&p, 0, r)->totals += TOLD;
	}
	for (int r = 0; r < s->ndevice && (m->totals || s->async) && m->norm; r++)
		if (r != m->norm_at) {
			pair(&p, r, m->norm_at)->totals += updates_of(m, r) * m->norm;
			pair(&p, m->norm_at, r)->totals += updates_of(m, r) * NORM;
		}
	if (p.n)
		qsort(p.pair, p.n, sizeof *p.pair, by_ranks);
	*n = (int)p.n;
	return p.pair;
}
