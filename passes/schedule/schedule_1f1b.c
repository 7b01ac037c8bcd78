/* 1F1B with a flush: one forward, one backward in turn, and the pipeline drained before the update (PipeDream's order,
 * section 3.2, made synchronous). A device of stage s holds at most
 *     ceil( (R_s + R_s+1 + ...) / R_s )
 * microbatches, PipeDream's NOAM, which keeps all later stages busy.
 *
 * Two rules make such lists. Strict 1F1B: as many forwards as there are slots, then a backward and a forward in turn. Eager: a
 * backward as soon as one can run, else a forward while a slot is free. Both are played as if the plan were balanced (a stage of
 * R replicas takes R for a forward and 2 R for a backward, so that all stages do as many in a time); the one that ends
 * first is taken, eager lists where both do. A list that was played to its end cannot deadlock, whatever the
 * replica counts. */
#include "sched.h"

/* Ranks that may have something to start at a time. */
typedef struct Wake {
	int *rank, n, cap;
} Wake;

typedef struct Play {
	Sched *c;
	bool strict;
	char **list;              /* by rank: 'F', 'B' in the order in which they were started */
	int *nf, *nb;             /* by rank: forwards and backwards started */
	int64_t *busy;            /* by rank: until when */
	int64_t **f_end, **b_end; /* [stage][microbatch]: when it is done; 0: not yet */
	int *unit;                /* by stage: what a forward takes; a backward takes two of it */
	Wake *wake;               /* by time modulo span */
	int span, sleepers;       /* sleepers: of all wakes */
} Play;

static void wake(Play *p, int rank, int64_t when)
{
	Wake *w = &p->wake[when % p->span];

	PUSH(p->c->a, w->rank, w->n, w->cap) = rank;
	p->sleepers++;
}

/* Those that wait for what a stage has made of a microbatch. */
static void wake_readers(Play *p, int stage, int g, bool forward, int64_t when)
{
	for (int i = 0; i < p->c->nedge; i++) {
		const StageEdge *e = &p->c->edge[i];
		const int to = forward && e->forward && e->from == stage   ? e->to
		               : !forward && e->backward && e->to == stage ? e->from
		                                                           : -1;
		if (to >= 0)
			wake(p, p->c->s->device[to][p->c->s->replica_of[to][g]], when);
	}
}

static bool arrived(const Play *p, int stage, int g, bool forward, int64_t now)
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
static bool start_one(Play *p, int rank, int64_t now)
{
	const Sched *c = p->c;
	const int s = c->stage[rank], kf = p->nf[rank], kb = p->nb[rank];
	const bool room = kf < c->ngrain[rank] && kf - kb < c->s->inflight[s];
	const bool back = kb < kf && !(p->strict && room) && arrived(p, s, c->grain[rank][kb], false, now);
	const bool on = !back && room && arrived(p, s, c->grain[rank][kf], true, now);

	if (!back && !on)
		return false;
	const int g = c->grain[rank][back ? kb : kf];
	const int64_t end = p->busy[rank] = now + p->unit[s] * (back ? 2 : 1);
	p->list[rank][kf + kb] = back ? 'B' : 'F';
	++*(back ? &p->nb[rank] : &p->nf[rank]);
	(back ? p->b_end : p->f_end)[s][g] = end;
	wake(p, rank, end);
	wake_readers(p, s, g, on, end);
	return true;
}

static int divisor(int x, int y) { return y ? divisor(y, x % y) : x; }

static Play play_new(Sched *c, bool strict)
{
	const int ndev = c->s->ndevice, nstage = c->s->nstage;
	Play p = { .c = c,
		.strict = strict,
		.list = NEWN(c->a, char *, ndev),
		.nf = NEWN(c->a, int, ndev),
		.nb = NEWN(c->a, int, ndev),
		.busy = NEWN(c->a, int64_t, ndev),
		.f_end = NEWN(c->a, int64_t *, nstage),
		.b_end = NEWN(c->a, int64_t *, nstage),
		.unit = NEWN(c->a, int, nstage) };
	int common = 0;

	for (int t = 0; t < nstage; t++)
		common = divisor(c->s->replicas[t], common);
	for (int t = 0; t < nstage; t++) {
		p.f_end[t] = NEWN(c->a, int64_t, c->s->nmicro);
		p.b_end[t] = NEWN(c->a, int64_t, c->s->nmicro);
		p.unit[t] = c->s->replicas[t] / common;
		p.span = p.span > 2 * p.unit[t] ? p.span : 2 * p.unit[t] + 1;
	}
	p.wake = NEWN(c->a, Wake, p.span);
	for (int r = 0; r < ndev; r++) {
		p.list[r] = NEWN(c->a, char, 2 * c->ngrain[r]);
		wake(&p, r, 0);
	}
	return p;
}

/* Gives when the last computation ends; INT64_MAX where devices wait for one another. */
static int64_t play(Play *p)
{
	const Sched *c = p->c;
	int64_t left = 0, end = 0;

	for (int r = 0; r < c->s->ndevice; r++)
		left += 2 * c->ngrain[r];
	for (int64_t now = 0; left && p->sleepers; now++) {
		Wake *w = &p->wake[now % p->span];
		for (int i = 0; i < w->n; i++)
			if (p->busy[w->rank[i]] <= now && start_one(p, w->rank[i], now)) {
				left--;
				end = p->busy[w->rank[i]] > end ? p->busy[w->rank[i]] : end;
			}
		p->sleepers -= w->n;
		w->n = 0;
	}
	return left ? INT64_MAX : end;
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
	slots(c);
	sched_entries(c);
	Play eager = play_new(c, false), strict = play_new(c, true);
	const int64_t end = play(&eager);
	const Play *best = play(&strict) < end ? &strict : &eager;

	(void)d;
	for (int r = 0; r < c->s->ndevice; r++) {
		int f = 0, b = 0;
		sched_begin(c, r);
		for (int i = 0; i < 2 * c->ngrain[r]; i++)
			if (best->list[r][i] == 'F')
				sched_forward(c, r, f++);
			else
				sched_backward(c, r, b++);
		sched_end(c, r);
	}
	return true;
}
