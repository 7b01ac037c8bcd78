/* The global order of a step's microbatches: devices do theirs in this order. Where they are dealt in turn it is that of
 * their numbers. Where replicas have blocks, it is the one in which, at any point, every replica of every stage has had its
 * share of what came so far: so none of them waits while others of its stage are served. It is made by goal chasing (Monden
 * 1983, "Toyota production system", for mixed-model lines): the next microbatch is one whose replicas lag behind most. */
#include "sched.h"

/* Microbatches from `next` to `end` that have the same replica of every stage. */
typedef struct Run {
	int next, end;
	int *lag; /* by kind of stage: index into Goal.lag of its replica there */
} Run;

typedef struct Goal {
	int nkind;     /* of stages: those of equally many replicas have the same blocks */
	int *kind;     /* by kind: a stage */
	int64_t *size; /* by replica of a kind: its microbatches */
	int64_t *lag;  /* what it should have had of the first k, less what it had; times the block */
	int nreplica;
	Run *run;
	int nrun;
} Goal;

static void find_kinds(Sched *c, Goal *g)
{
	g->kind = NEWN(c->a, int, c->s->nstage);
	for (int t = 0; t < c->s->nstage; t++) {
		int k = 0;
		while (k < g->nkind && c->s->replicas[g->kind[k]] != c->s->replicas[t])
			k++;
		g->kind[k] = t;
		g->nkind += k == g->nkind;
	}
}

static void find_runs(Sched *c, Goal *g, int block)
{
	const Schedule *s = c->s;
	int *base = NEWN(c->a, int, g->nkind), cap = 0;

	for (int k = 0; k < g->nkind; k++) {
		base[k] = g->nreplica;
		g->nreplica += s->replicas[g->kind[k]];
	}
	g->size = NEWN(c->a, int64_t, g->nreplica);
	g->lag = NEWN(c->a, int64_t, g->nreplica);
	for (int mb = 0; mb < block; mb++) {
		bool same = mb > 0;
		for (int k = 0; k < g->nkind; k++) {
			const int *of = s->replica_of[g->kind[k]];
			g->size[base[k] + of[mb]]++;
			same = same && of[mb] == of[mb - 1];
		}
		if (!same) {
			Run *r = &PUSH(c->a, g->run, g->nrun, cap);
			*r = (Run){ .next = mb, .lag = NEWN(c->a, int, g->nkind) };
			for (int k = 0; k < g->nkind; k++)
				r->lag[k] = base[k] + s->replica_of[g->kind[k]][mb];
		}
		g->run[g->nrun - 1].end = mb + 1;
	}
}

/* The run whose replicas lag behind most; of equal ones the first. */
static Run *behind_most(Goal *g)
{
	Run *best = NULL;
	int64_t most = 0;

	for (int i = 0; i < g->nrun; i++) {
		Run *r = &g->run[i];
		int64_t lag = 0;
		if (r->next == r->end)
			continue;
		for (int k = 0; k < g->nkind; k++)
			lag += g->lag[r->lag[k]];
		if (!best || lag > most) {
			best = r;
			most = lag;
		}
	}
	return best;
}

static void chase(Goal *g, int block, int *order)
{
	for (int i = 0; i < block; i++) {
		for (int r = 0; r < g->nreplica; r++)
			g->lag[r] += g->size[r];
		Run *run = behind_most(g);
		for (int k = 0; k < g->nkind; k++)
			g->lag[run->lag[k]] -= block;
		order[i] = run->next++;
	}
}

/* Of one kind there is nothing to weigh: the first of every block, then the second of every block. */
static void take_turns(const Goal *g, int *order)
{
	int at = 0;

	for (bool more = true; more;) {
		more = false;
		for (int i = 0; i < g->nrun; i++)
			if (g->run[i].next < g->run[i].end) {
				order[at++] = g->run[i].next++;
				more = true;
			}
	}
}

const int *deal_order(Sched *c, int micro, bool in_turn)
{
	const int block = c->grains ? c->grains : micro;
	int *order = NEWN(c->a, int, micro);
	Goal g = { 0 };

	for (int i = 0; i < micro; i++)
		order[i] = i;
	if (in_turn)
		return order;
	find_kinds(c, &g);
	find_runs(c, &g, block);
	if (g.nkind == 1)
		take_turns(&g, order);
	else
		chase(&g, block, order);
	for (int i = block; i < micro; i++)
		order[i] = order[i - block] + block;
	return order;
}

void deal_out(Sched *c, int stage, const int *order, int micro)
{
	const int *of = c->s->replica_of[stage], *rank = c->s->device[stage];
	int *count = NEWN(c->a, int, c->s->replicas[stage]);

	for (int g = 0; g < micro; g++)
		count[of[g]]++;
	for (int r = 0; r < c->s->replicas[stage]; r++)
		c->grain[rank[r]] = NEWN(c->a, int, count[r]);
	for (int i = 0; i < micro; i++) {
		const int r = rank[of[order[i]]];
		c->grain[r][c->ngrain[r]++] = order[i];
	}
}
