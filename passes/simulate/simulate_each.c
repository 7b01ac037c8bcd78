/* Asynchronous servers (--sync async), played. There is no step that devices have in common: every device repeats its actions, here
 * EACH_STEPS times, one copy of the schedule behind the other.
 *     before the first F of a step    the device pulls from all of its servers at once; each parameter is a round trip
 *     SYNC                            it pushes to all of them, and goes on when they have updated; with --staleness S only when the
 *                                     slowest of the devices that share a server with it has done the step S before the one it did
 * A server does one thing at a time: what devices want of it shares a port of its own, next to those of the links, in which an
 * update takes its seconds (simulate_ports.c). */
#include <string.h>
#include "simulate_play.h"
#include "passes/cost/cost.h"

/* ---- the schedule, repeated ---- */

static void repeat_device(Arena *a, Schedule *s, const DeviceSchedule *d, int rank, int nmicro)
{
	for (int k = 0; k < EACH_STEPS; k++)
		for (int i = 0; i < d->n; i++) {
			Action x = d->act[i];
			x.mb += x.mb >= 0 ? k * nmicro : 0;
			schedule_push(a, s, rank, x);
		}
}

/* Devices without a server: their lists stand still while a server is asked. */
Schedule *sim_repeated(Arena *a, const Module *m)
{
	const Schedule *was = m->schedule;
	Schedule *s = NEW(a, Schedule);

	*s = *was;
	s->nmicro = was->nmicro * EACH_STEPS;
	s->per_step = was->nmicro;
	s->dev = NEWN(a, DeviceSchedule, s->ndevice);
	s->replica_of = NEWN(a, int *, s->nstage);
	for (int t = 0; t < s->nstage; t++) {
		s->replica_of[t] = NEWN(a, int, s->nmicro);
		for (int k = 0; k < EACH_STEPS; k++)
			memcpy(s->replica_of[t] + k * was->nmicro, was->replica_of[t],
				sizeof **s->replica_of * (size_t)was->nmicro);
		for (int r = 0; r < s->replicas[t] && !m->stage[t]->server; r++)
			repeat_device(a, s, &was->dev[s->device[t][r]], s->device[t][r], was->nmicro);
	}
	return s;
}

/* ---- what a server does of a device's gradients ---- */

/* The stage whose gradient a node of a server's update is made of; -1: none. */
static int stage_of(const Node *n)
{
	int t = n->op == OP_Collect ? (int)attr_int(n, "from") : -1;

	for (int i = 0; i < n->nin && t < 0; i++)
		if (n->in[i] && n->in[i]->kind == VAL_NODE)
			t = stage_of(n->in[i]->def);
	return t;
}

double sim_update_seconds(const Cluster *c, const Stage *server, int stage, int device)
{
	const Speed first = device_speed(c, 0), on = device_speed(c, device);
	double t = 0;

	for (const Node *n = server->update->first; n; n = n->next)
		if (stage_of(n) == stage)
			t += node_seconds(n, &first, &on);
	return t;
}

/* ---- played ---- */

/* The slowest of the devices that some server of this one hears of, in steps. */
static int slowest_near(const Player *p, int rank)
{
	int least = p->each[rank].done;

	for (const SimHears *x = p->hears[rank]; x; x = x->also)
		for (const SimHears *y = p->heard[x->server]; y; y = y->next)
			least = p->each[y->worker].done < least ? p->each[y->worker].done : least;
	return least;
}

static bool too_far(const Player *p, int rank)
{
	const SimEach *e = &p->each[rank];

	return p->m->staleness >= 0 && e->done < EACH_STEPS && e->done - slowest_near(p, rank) > p->m->staleness;
}

/* Begins all exchanges of a kind. False: there are none. */
static bool exchange(Player *p, int rank, SimJoinKind kind)
{
	SimEach *e = &p->each[rank];
	double bytes = 0;

	for (int i = 0; i < p->njoin_of[rank]; i++) {
		const int j = p->join_of[rank][i];
		if (p->m->join[j].kind != kind)
			continue;
		p->last[j] = rank;
		ports_begin(&p->ports, p->ports.nmsg + j, ports_sum(&p->ports, j), p->now);
		bytes += (double)p->m->join[j].bytes;
		e->left++;
	}
	if (!e->left)
		return false;
	p->running[rank] = true;
	e->since = p->now;
	e->span = p->out->nspan;
	SimSpan *s = sim_span(p, rank, p->now);
	s->kind = ACT_SYNC;
	s->bytes = (int64_t)bytes;
	return true;
}

static void step_done(Player *p, int rank)
{
	p->each[rank].done++;
	if (p->now > p->ended[p->each[rank].done - 1])
		p->ended[p->each[rank].done - 1] = p->now;
	for (int r = 0; r < p->s->ndevice; r++)
		if (p->each[r].waits) {
			p->each[r].waits = false;
			sim_advance(p, r);
		}
}

bool sim_waits_for_server(Player *p, int rank, const Action *x)
{
	SimEach *e = &p->each[rank];

	if (x->kind == ACT_F && !e->pulled)
		return (e->pulled = true) && exchange(p, rank, SIM_PULL);
	if (x->kind != ACT_SYNC)
		return false;
	if (p->since[rank] < 0)
		p->since[rank] = p->now;
	if (!e->pushed) {
		e->pushed = true;
		if (exchange(p, rank, SIM_PUSH))
			return true;
		step_done(p, rank);
	}
	if (too_far(p, rank))
		return e->waits = true;
	e->pulled = e->pushed = false;
	return false;
}

void sim_served(Player *p, const Event *ev)
{
	const SimJoin *j = &p->m->join[ev->id];
	const SimServe *x = &p->m->serve[j->serve];
	SimEach *e = &p->each[x->worker];

	ports_end(&p->ports, p->ports.nmsg + ev->id);
	p->out->sums[j->kind] += p->now - e->since;
	if (j->kind == SIM_PUSH) {
		p->out->busy[x->server] += x->update;
		p->out->spent[x->server][ACT_UPDATE] += x->update;
	}
	if (--e->left)
		return;
	p->out->span[e->span].end = p->now;
	p->running[x->worker] = false;
	if (j->kind == SIM_PUSH)
		step_done(p, x->worker);
	else
		p->out->spent[x->worker][ACT_SYNC] += p->now - e->since;
	sim_advance(p, x->worker);
}

void sim_each_steps(const Player *p, Sim *out)
{
	const int from = EACH_STEPS / 2 - 1, to = EACH_STEPS - 1;

	out->steps = EACH_STEPS;
	out->each = (p->ended[to] - p->ended[from]) / (to - from);
}

void sim_prepare_each(Player *p)
{
	p->each = NEWN(p->a, SimEach, p->s->ndevice);
	p->ended = NEWN(p->a, double, EACH_STEPS);
	p->hears = NEWN(p->a, SimHears *, p->s->ndevice);
	p->heard = NEWN(p->a, SimHears *, p->s->ndevice);
	for (int i = 0; i < p->m->nserve; i++) {
		const SimServe *s = &p->m->serve[i];
		SimHears *x = NEW(p->a, SimHears);
		*x = (SimHears){ s->worker, s->server, p->heard[s->server], p->hears[s->worker] };
		p->heard[s->server] = p->hears[s->worker] = x;
	}
}
