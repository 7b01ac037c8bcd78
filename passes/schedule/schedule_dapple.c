/* DAPPLE's early backward (section 3, Fig. 3b; section 5.3): a device of stage i of S begins with K_i forwards, then does
 * strictly one backward and one forward in turn, so that it never holds more than K_i microbatches however many a step has:
 *     policy A    K_i = min(S - i, D)             B    K_i = min(2 (S - i) - 1, D)
 * with i from 0, and D microbatches that the device's memory holds. B covers messages that take as long as the work; the
 * last stage holds one with either. Where stages have different numbers of replicas, S - i becomes the devices from the
 * stage on divided by its own: each of them has work. No stage may want more than the one before it lets through, or both
 * wait for each other: where D makes an earlier K smaller, later ones follow.
 *
 * The lists are played before they are written. Where uneven shares make the strict order wait for itself, a backward that
 * can run goes first. `auto` takes the policy whose simulated step is shorter, A when B gains less than a hundredth. */
#include "ir/base/human.h"
#include "sched.h"
#include "passes/simulate/simulate.h"
#include "ir/analysis.h"
#include "passes/memory/memory.h"

int dapple_depth(char policy, int stage, int stages, int most)
{
	const int k = policy == 'B' ? 2 * (stages - stage) - 1 : stages - stage;

	return k < most ? k : most;
}

/* ---- the lists ---- */

typedef struct Play {
	Sched *c;
	int *nf, *nb;  /* by rank: forwards and backwards done */
	bool **f, **b; /* [stage][microbatch]: done */
} Play;

static bool ready(const Play *p, int stage, int g, bool forward)
{
	for (int i = 0; i < p->c->nedge; i++) {
		const StageEdge *e = &p->c->edge[i];
		if (forward ? e->forward && e->to == stage && !p->f[e->from][g]
			    : e->backward && e->from == stage && !p->b[e->to][g])
			return false;
	}
	return true;
}

/* The next action of a rank, if what it reads is there. early: any backward may go first. */
static bool advance(Play *p, int rank, bool early)
{
	Sched *c = p->c;
	const int s = c->stage[rank], kf = p->nf[rank], kb = p->nb[rank], n = c->ngrain[rank];
	const bool forward = kf < n && kf - kb < c->s->inflight[s];

	if (kb < kf && (!forward || early) && ready(p, s, c->grain[rank][kb], false)) {
		sched_backward(c, rank, p->nb[rank]++);
		return p->b[s][c->grain[rank][kb]] = true;
	}
	if (forward && ready(p, s, c->grain[rank][kf], true)) {
		sched_forward(c, rank, p->nf[rank]++);
		return p->f[s][c->grain[rank][kf]] = true;
	}
	return false;
}

static void depths(Sched *c, char policy)
{
	const Schedule *s = c->s;
	int *n = NEWN(c->a, int, s->nstage), before = s->nmicro; /* microbatches that the stage before holds in all */

	for (int r = 0; r < s->ndevice; r++)
		n[c->stage[r]] = c->ngrain[r] > n[c->stage[r]] ? c->ngrain[r] : n[c->stage[r]];
	for (int t = 0, left = s->ndevice; t < s->nstage; left -= s->replicas[t++]) {
		const int r = s->replicas[t], d = c->most && c->most[t] > 0 ? c->most[t] : s->nmicro,
			  lets = (before + r - 1) / r;
		int k = dapple_depth(policy, 0, (left + r - 1) / r, d);
		k = k < lets ? k : lets;
		k = k < n[t] ? k : n[t];
		s->inflight[t] = k > 1 ? k : 1;
		before = s->inflight[t] * r < before ? s->inflight[t] * r : before;
	}
}

bool schedule_dapple(Sched *c, Diag *d)
{
	const Schedule *s = c->s;
	Play p = { .c = c,
		.nf = NEWN(c->a, int, s->ndevice),
		.nb = NEWN(c->a, int, s->ndevice),
		.f = NEWN(c->a, bool *, s->nstage),
		.b = NEWN(c->a, bool *, s->nstage) };
	int left = 0;

	(void)d;
	depths(c, c->spec.n ? (char)c->spec.n : 'A');
	sched_entries(c);
	for (int t = 0; t < s->nstage; t++) {
		p.f[t] = NEWN(c->a, bool, s->nmicro);
		p.b[t] = NEWN(c->a, bool, s->nmicro);
	}
	for (int r = 0; r < s->ndevice; r++) {
		left += 2 * c->ngrain[r];
		sched_begin(c, r);
	}
	for (bool early = false; left;) {
		int did = 0;
		for (int r = 0; r < s->ndevice && !(early && did); r++)
			did += advance(&p, r, early);
		left -= did;
		if (!did && early)
			bug("DAPPLE's schedule comes to a halt");
		early = !did;
	}
	for (int r = 0; r < s->ndevice; r++)
		sched_end(c, r);
	return true;
}

/* ---- what a module allows ---- */

/* Microbatches that a device of the stage can hold, by the memory plan; 0: as many as one likes. */
static int most_of(Module *m, PassCx *cx, Stage *s)
{
	const int64_t memory = memory_of(s, cx->cluster);

	if (!memory)
		return 0;
	s->inflight = s->entries = 2;
	const int64_t two = memplan_stage(m, cx, s);
	if (two > memory)
		return 1;
	const int64_t each = s->slot_bytes + s->entry_bytes;
	return each > 0 ? (int)(2 + (memory - two) / each < INT32_MAX ? 2 + (memory - two) / each : INT32_MAX) : 0;
}

int *dapple_memory(Module *m, PassCx *cx)
{
	int *most = NEWN(cx->scratch, int, m->nstage);
	bool limited = false;

	for (int t = 0; t < m->nstage; t++)
		limited |= memory_of(m->stage[t], cx->cluster) > 0;
	if (!limited)
		return most;
	if (!pass_library(m, cx))
		return NULL;
	for (int t = 0; t < m->nstage; t++)
		most[t] = most_of(m, cx, m->stage[t]);
	return most;
}

double schedule_seconds(Module *m, PassCx *cx, Schedule *s)
{
	Schedule *was = m->schedule;
	Sim sim;

	m->schedule = s;
	const bool ok = simulate(cx->scratch, simulate_model(cx->scratch, m, cx->cluster, cx->train), &sim, cx->d);
	m->schedule = was;
	return ok ? sim.step : -1;
}

/* Seconds of the messages between neighbours t and t + 1, both ways, against the mean of the work of the two. */
static double activation_ratio(const Module *m, const PassCx *cx, int t)
{
	double bytes = 0, work = 0;
	int n = 0;

	for (int k = t; k < t + 2; k++) {
		const Graph *g[2] = { m->stage[k]->forward, m->stage[k]->backward };
		for (int i = 0; i < 2; i++)
			for (const Node *x = g[i]->first; x; x = x->next) {
				work += x->time / (2 * m->stage[k]->replicas);
				if (x->op == OP_Send && (i ? k == t + 1 && attr_int(x, "to") <= t : k == t)) {
					bytes += (double)value_bytes(x->in[0]);
					n++;
				}
			}
	}
	const Link l = cluster_link(cx->cluster, m->stage[t]->device[0], m->stage[t + 1]->device[0]);
	return work > 0 && l.bandwidth > 0 ? (bytes / l.bandwidth + n * l.latency) / work : 0;
}

void dapple_explain(const Module *m, PassCx *cx, const Schedule *s, const int *most, double a, double b)
{
	buf_printf(cx->explain, "schedule %s", s->name);
	if (a > 0)
		buf_printf(cx->explain, ": simulated step %s with policy A, %s with B", time_text(cx->scratch, a),
			time_text(cx->scratch, b));
	buf_puts(cx->explain, "\n");
	for (int t = 0; t < s->nstage; t++) {
		buf_printf(cx->explain, "  stage %d: K = %d", t, s->inflight[t]);
		if (most && most[t])
			buf_printf(cx->explain, ", memory holds %d", most[t]);
		if (t + 1 < s->nstage && cx->cluster)
			buf_printf(cx->explain, ", messages to the next take %.3g of the work",
				activation_ratio(m, cx, t));
		buf_puts(cx->explain, "\n");
	}
}
