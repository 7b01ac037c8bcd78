/* 1F1B with a flush: one forward, one backward in turn, and the pipeline drained before the update (PipeDream's order,
 * section 3.2, made synchronous). A device of stage s holds at most
 *     ceil( (R_s + R_s+1 + ...) / R_s )
 * microbatches, PipeDream's NOAM, which keeps all later stages busy.
 *
 * The lists are what devices would do that obey two rules, a backward as soon as one can run and else a forward while
 * a slot is free, played in unit time (forward 1, backward 2). A list that was played cannot deadlock, whatever the
 * replica counts: the oldest unfinished microbatch never waits for a younger one. */
#include "sched.h"

typedef struct Play {
	Sched *c;
	int *nf, *nb;         /* by rank: forwards and backwards started */
	int *busy;            /* by rank: until when */
	int **f_end, **b_end; /* [stage][microbatch]: when it is done; 0: not yet */
} Play;

static bool arrived(const Play *p, int stage, int g, bool forward, int now)
{
	for (int i = 0; i < p->c->nedge; i++) {
		const StageEdge *e = &p->c->edge[i];
		if (forward && e->forward && e->to == stage && (!p->f_end[e->from][g] || p->f_end[e->from][g] > now))
			return false;
		if (!forward && e->backward && e->from == stage && (!p->b_end[e->to][g] || p->b_end[e->to][g] > now))
			return false;
	}
	return true;
}

/* What an idle rank starts at time `now`; false: nothing. */
static bool start_one(Play *p, int rank, int now)
{
	Sched *c = p->c;
	const int s = c->stage[rank], kf = p->nf[rank], kb = p->nb[rank];

	if (kb < kf && arrived(p, s, c->grain[rank][kb], false, now)) {
		sched_backward(c, rank, p->nb[rank]++);
		p->busy[rank] = p->b_end[s][c->grain[rank][kb]] = now + 2;
		return true;
	}
	if (kf < c->ngrain[rank] && kf - kb < c->s->inflight[s] && arrived(p, s, c->grain[rank][kf], true, now)) {
		sched_forward(c, rank, p->nf[rank]++);
		p->busy[rank] = p->f_end[s][c->grain[rank][kf]] = now + 1;
		return true;
	}
	return false;
}

static void slots(Sched *c)
{
	const Schedule *s = c->s;
	int later = 0;

	for (int t = s->nstage - 1; t >= 0; t--) {
		later += s->replicas[t];
		s->inflight[t] = (later + s->replicas[t] - 1) / s->replicas[t];
	}
	for (int t = 0; t < s->nstage; t++) {
		int most = 1;
		for (int r = 0; r < s->ndevice; r++)
			if (c->stage[r] == t && c->ngrain[r] > most)
				most = c->ngrain[r];
		if (s->inflight[t] > most)
			s->inflight[t] = most;
	}
}

bool schedule_1f1b(Sched *c, Diag *d)
{
	const int ndev = c->s->ndevice;
	Play p = { .c = c,
		.nf = NEWN(c->a, int, ndev),
		.nb = NEWN(c->a, int, ndev),
		.busy = NEWN(c->a, int, ndev),
		.f_end = NEWN(c->a, int *, c->s->nstage),
		.b_end = NEWN(c->a, int *, c->s->nstage) };
	int left = 0;

	(void)d;
	slots(c);
	sched_entries(c);
	for (int t = 0; t < c->s->nstage; t++) {
		p.f_end[t] = NEWN(c->a, int, c->s->nmicro);
		p.b_end[t] = NEWN(c->a, int, c->s->nmicro);
	}
	for (int r = 0; r < ndev; r++) {
		left += 2 * c->ngrain[r];
		sched_begin(c, r);
	}
	for (int now = 0; left; now++)
		for (int r = 0; r < ndev; r++)
			if (p.busy[r] <= now)
				left -= start_one(&p, r, now);
	for (int r = 0; r < ndev; r++)
		sched_end(c, r);
	return true;
}
