/* Discrete events: simulate.h has the rules. State lies in arrays by rank, by port, and by message (message kind x
 * microbatch); a heap holds what will happen, at most one event per device, per message under way and per sum. */
#include "simulate_play.h"
#include "stragglers.h"
#include <limits.h>

static int of_mb(const Player *p, int stage, int mb) { return stage * p->s->nmicro + mb; }
static bool is_forward(ActKind k) { return k == ACT_RECV_F || k == ACT_F || k == ACT_SEND_F; }

/* ---- the heap: time, then device, then action, then kind and number ---- */

static bool sooner(const Event *x, const Event *y)
{
	if (x->time < y->time || x->time > y->time)
		return x->time < y->time;
	if (x->rank != y->rank)
		return x->rank < y->rank;
	if (x->action != y->action)
		return x->action < y->action;
	return x->kind != y->kind ? x->kind < y->kind : x->id < y->id;
}

/* The end of what flows (simulate_ports.h) may change until it is there: its place in the heap is kept. */
static int flow_of(const Player *p, const Event *e)
{
	return e->kind == EV_LEFT ? e->id : e->kind == EV_JOINED && e->id < p->m->njoin ? p->ports.nmsg + e->id : NONE;
}

static void put_event(Player *p, int i, const Event *e)
{
	const int flow = flow_of(p, e);

	p->heap[i] = *e;
	if (flow != NONE)
		p->ends[flow] = i + 1;
}

/* To where it belongs, from place i, which is free. */
static void sift(Player *p, int i, const Event *e)
{
	for (; i && sooner(e, &p->heap[(i - 1) / 2]); i = (i - 1) / 2)
		put_event(p, i, &p->heap[(i - 1) / 2]);
	for (int k; (k = 2 * i + 1) < p->nheap; i = k) {
		if (k + 1 < p->nheap && sooner(&p->heap[k + 1], &p->heap[k]))
			k++;
		if (!sooner(&p->heap[k], e))
			break;
		put_event(p, i, &p->heap[k]);
	}
	put_event(p, i, e);
}

void sim_push(Player *p, Event e)
{
	const int flow = flow_of(p, &e);

	if (flow != NONE && p->ends[flow]) {
		sift(p, p->ends[flow] - 1, &e);
		return;
	}
	PUSH(p->a, p->heap, p->nheap, p->capheap) = e;
	sift(p, p->nheap - 1, &e);
}

static Event pop(Player *p)
{
	const Event top = p->heap[0], e = p->heap[--p->nheap];
	const int flow = flow_of(p, &top);

	if (p->nheap)
		sift(p, 0, &e);
	if (flow != NONE)
		p->ends[flow] = 0;
	return top;
}

SimSpan *sim_span(Player *p, int rank, double end)
{
	const Action *x = &p->s->dev[rank].act[p->at[rank]];
	SimSpan *s = &PUSH(p->a, p->out->span, p->out->nspan, p->capspan);

	*s = (SimSpan){ p->now, end, rank, p->at[rank], x->kind, x->stage, x->mb, NONE, 0 };
	return s;
}

/* ---- messages ---- */

static void queue(Player *p, int port, int id, int way)
{
	Port *q = &p->ports.port[port];

	p->prev[id][way] = q->last;
	p->next[id][way] = NONE;
	if (q->last != NONE)
		p->next[q->last][way] = id;
	else
		q->first = id;
	q->last = id;
}

static void unqueue(Player *p, int port, int id, int way)
{
	Port *q = &p->ports.port[port];
	const int before = p->prev[id][way], after = p->next[id][way];

	if (before != NONE)
		p->next[before][way] = after;
	else
		q->first = after;
	if (after != NONE)
		p->prev[after][way] = before;
	else
		q->last = before;
}

/* The end of a message's time at its ports, or of a sum, as things stand. */
static void timed(void *player, int flow, double end)
{
	Player *p = player;
	const int join = flow - p->ports.nmsg;

	if (join < 0)
		sim_push(p, (Event){ end, ports_sender(p->m, flow), p->of_action[flow], EV_LEFT, flow });
	else
		sim_push(p, (Event){ end, p->last[join], p->at[p->last[join]], EV_JOINED, join });
}

/* Starts a message that waits, when both of its ports are free. */
static bool depart(Player *p, int id)
{
	const int from = ports_sender(p->m, id), to = ports_receiver(p->m, id), line = ports_line(p->m, from, to);
	const int port[2] = { ports_of(p->m, id, OUT), ports_of(p->m, id, IN) };

	if (p->ports.port[port[OUT]].taken || p->ports.port[port[IN]].taken)
		return false;
	const Link l = cluster_link_of(p->m->c, line);
	const double took = sim_link_seconds(&l, (double)p->m->msg[id / p->s->nmicro].bytes);
	for (int way = OUT; way <= IN; way++) {
		unqueue(p, port[way], id, way);
		p->ports.port[port[way]].taken = true;
		p->ports.port[port[way]].busy += took;
		p->ports.port[port[way]].line = line;
	}
	const Action *x = &p->s->dev[from].act[p->of_action[id]];
	p->span_of[id] = p->out->nspan;
	PUSH(p->a, p->out->span, p->out->nspan, p->capspan) = (SimSpan){ p->now, p->now, from, p->of_action[id],
		x->kind, x->stage, x->mb, to, p->m->msg[id / p->s->nmicro].bytes };
	ports_begin(&p->ports, id, took, p->now);
	return true;
}

static void ready(Player *p, int id, char what)
{
	p->state[id] |= what;
	if (p->state[id] != (POSTED | SENT))
		return;
	if (ports_sender(p->m, id) == ports_receiver(p->m, id)) { /* copied */
		const SimMessage *g = &p->m->msg[id / p->s->nmicro];
		p->left[g->forward][of_mb(p, g->from, id % p->s->nmicro)]++;
		p->here[g->forward][of_mb(p, g->to, id % p->s->nmicro)]++;
		return;
	}
	queue(p, ports_of(p->m, id, OUT), id, OUT);
	queue(p, ports_of(p->m, id, IN), id, IN);
	depart(p, id);
}

/* A port is free: the first that can go, goes. */
static void serve(Player *p, int port, int way)
{
	for (int id = p->ports.port[port].first; id != NONE && !p->ports.port[port].taken; id = p->next[id][way])
		if (depart(p, id))
			return;
}

/* All messages of a microbatch that a stage sends, or that it posts receives for. */
static void messages(Player *p, const Action *x, int at, bool send)
{
	const bool fwd = is_forward(x->kind);
	const int n = (send ? p->gives : p->want)[fwd][x->stage], *list = (send ? p->sends : p->reads)[fwd][x->stage];

	for (int i = 0; i < n; i++) {
		const int id = list[i] * p->s->nmicro + x->mb;

		if (send)
			p->of_action[id] = at;
		ready(p, id, send ? SENT : POSTED);
	}
}

/* ---- devices ---- */

static void use(Player *p, int rank, int stage, int change)
{
	p->slots[rank] += change;
	p->held[rank] += change * (p->m->fixed ? p->m->slot[stage] : 1);
	if (p->slots[rank] > p->out->peak[rank])
		p->out->peak[rank] = p->slots[rank];
	if (p->held[rank] > p->out->most[rank])
		p->out->most[rank] = p->held[rank];
	p->out->use[p->out->nuse++] = (SimUse){ p->now, rank, p->slots[rank], p->held[rank] };
}

/* What was last sent from where this action's microbatch puts what it sends. */
static int *sent_at(const Player *p, int rank, const Action *x, bool fwd)
{
	return &(fwd ? p->sent_f : p->sent_b)[rank][(x->stage - p->base[rank]) * p->depth + (fwd ? x->slot : x->entry)];
}

/* Why a computation cannot begin; NULL: it can. */
static const char *blocked(const Player *p, int rank, const Action *x)
{
	const bool fwd = x->kind == ACT_F;

	if (x->kind != ACT_F && x->kind != ACT_B)
		return NULL;
	if (p->here[fwd][of_mb(p, x->stage, x->mb)] < p->want[fwd][x->stage])
		return "a message";
	const int sent = *sent_at(p, rank, x, fwd);
	if (sent && p->left[fwd][of_mb(p, x->stage, sent - 1)] < p->gives[fwd][x->stage])
		return "what it made before to be sent";
	return NULL;
}

/* How many times as long this computation takes as planned. */
static double slower(const Player *p, int rank, const Action *x)
{
	const int step = p->s->per_step > 0 && x->mb > 0 ? x->mb / p->s->per_step : 0;

	return p->m->stragglers ? straggler_factor(p->m->stragglers, rank, step) : 1;
}

static void compute(Player *p, int rank, const Action *x)
{
	const double t = p->m->time[rank * p->s->nstage + x->stage][x->kind] * slower(p, rank, x);

	if (x->kind == ACT_F)
		use(p, rank, x->stage, 1);
	p->running[rank] = true;
	sim_span(p, rank, p->now + t);
	sim_buckets(p, rank, x, t);
	p->out->busy[rank] += t;
	p->out->spent[rank][x->kind] += t;
	if (x->kind != ACT_UPDATE && p->now + t > p->out->pipeline)
		p->out->pipeline = p->now + t;
	sim_push(p, (Event){ p->now + t, rank, p->at[rank], EV_DONE, 0 });
}

static void finish(Player *p, int rank)
{
	const Action *x = &p->s->dev[rank].act[p->at[rank]];

	if (p->frees[rank][p->at[rank]])
		use(p, rank, x->stage, -1);
	if (x->kind == ACT_SYNC)
		p->out->spent[rank][ACT_SYNC] += p->now - p->since[rank];
	if (!p->each)
		sim_sums_done(p, rank, x->kind);
	p->at[rank]++;
	p->since[rank] = -1;
}

void sim_advance(Player *p, int rank)
{
	while (!p->running[rank] && p->at[rank] < p->s->dev[rank].n) {
		const Action *x = &p->s->dev[rank].act[p->at[rank]];

		if (p->each ? sim_waits_for_server(p, rank, x) : sim_waits_for_sum(p, rank, x->kind))
			return;
		switch (x->kind) {
		case ACT_RECV_F:
		case ACT_RECV_B: messages(p, x, p->at[rank], false); break;
		case ACT_SEND_F:
		case ACT_SEND_B:
			*sent_at(p, rank, x, x->kind == ACT_SEND_F) = x->mb + 1;
			messages(p, x, p->at[rank], true);
			break;
		case ACT_SYNC: break;
		default:
			if (!blocked(p, rank, x))
				compute(p, rank, x);
			return;
		}
		finish(p, rank);
	}
}

static void message_left(Player *p, const Event *e)
{
	const SimMessage *g = &p->m->msg[e->id / p->s->nmicro];
	const int out = ports_of(p->m, e->id, OUT), in = ports_of(p->m, e->id, IN), to = ports_receiver(p->m, e->id);
	const double here = p->now + cluster_link_of(p->m->c, ports_line(p->m, e->rank, to)).latency;

	p->ports.port[out].taken = p->ports.port[in].taken = false;
	p->out->span[p->span_of[e->id]].end = here;
	p->left[g->forward][of_mb(p, g->from, e->id % p->s->nmicro)]++;
	sim_push(p, (Event){ here, to, e->action, EV_HERE, e->id });
	ports_end(&p->ports, e->id);
	serve(p, out, OUT);
	serve(p, in, IN);
	sim_advance(p, e->rank);
}

static void happen(Player *p, const Event *e)
{
	const int mb = e->id % p->s->nmicro;

	p->now = e->time;
	switch (e->kind) {
	case EV_DONE:
		p->running[e->rank] = false;
		finish(p, e->rank);
		sim_advance(p, e->rank);
		break;
	case EV_LEFT: message_left(p, e); break;
	case EV_HERE:
		p->here[p->m->msg[e->id / p->s->nmicro].forward][of_mb(p, p->m->msg[e->id / p->s->nmicro].to, mb)]++;
		sim_advance(p, e->rank);
		break;
	case EV_JOINED: (p->each ? sim_served : sim_joined)(p, e); break;
	case EV_READY: sim_join_ready(p, e); break;
	}
}

/* ---- what stands still for ever ---- */

static const char *reason(const Player *p, int rank, const Action *x)
{
	const char *why = blocked(p, rank, x);

	return why                     ? why
	       : x->kind == ACT_SYNC   ? "its group's AllReduce"
	       : x->kind == ACT_UPDATE ? "the losses of all"
	                               : "its turn";
}

static bool all_done(const Player *p)
{
	Buf b = { 0 };
	int waiting = 0;

	for (int r = 0; r < p->s->ndevice; r++) {
		if (p->at[r] >= p->s->dev[r].n)
			continue;
		const Action *x = &p->s->dev[r].act[p->at[r]];
		if (++waiting > 8)
			continue;
		buf_printf(&b, "%s device %d at %s waits for %s", waiting > 1 ? ";" : "", r, str_action(p->a, x),
			reason(p, r, x));
	}
	if (waiting > 8)
		buf_printf(&b, "; and %d more", waiting - 8);
	if (waiting)
		diag_error(p->d, NOLOC, 503, "schedule %s: deadlock after %.6g s:%s", p->s->name, p->now, buf_str(&b));
	buf_free(&b);
	return !waiting;
}

/* ---- arrays ---- */

static void prepare_ranks(Player *p)
{
	const Schedule *s = p->s;
	int *stamp = NEWN(p->a, int, s->nstage * s->nmicro), uses = 0;

	p->at = NEWN(p->a, int, s->ndevice);
	p->running = NEWN(p->a, bool, s->ndevice);
	p->since = NEWN(p->a, double, s->ndevice);
	p->slots = NEWN(p->a, int, s->ndevice);
	p->held = NEWN(p->a, int64_t, s->ndevice);
	p->base = NEWN(p->a, int, s->ndevice);
	int *last = NEWN(p->a, int, s->ndevice);
	p->sent_f = NEWN(p->a, int *, s->ndevice);
	p->sent_b = NEWN(p->a, int *, s->ndevice);
	p->frees = NEWN(p->a, bool *, s->ndevice);
	for (int r = 0; r < s->ndevice; r++) {
		const DeviceSchedule *d = &s->dev[r];

		p->since[r] = last[r] = -1;
		p->base[r] = s->nstage;
		p->frees[r] = NEWN(p->a, bool, d->n);
		for (int i = d->n - 1; i >= 0; i--) {
			const Action *x = &d->act[i];
			if (!act_of_micro(x))
				continue;
			p->base[r] = x->stage < p->base[r] ? x->stage : p->base[r];
			last[r] = x->stage > last[r] ? x->stage : last[r];
			p->depth = x->slot >= p->depth ? x->slot + 1 : p->depth;
			p->depth = x->entry >= p->depth ? x->entry + 1 : p->depth;
			p->frees[r][i] = stamp[of_mb(p, x->stage, x->mb)] != r + 1;
			stamp[of_mb(p, x->stage, x->mb)] = r + 1;
			uses += (x->kind == ACT_F) + p->frees[r][i];
			p->capspan += x->kind == ACT_F || x->kind == ACT_B || x->kind == ACT_W;
		}
	}
	for (int r = 0; r < 2 * s->ndevice; r++)
		(r & 1 ? p->sent_f : p->sent_b)[r / 2] =
			NEWN(p->a, int, last[r / 2] < 0 ? 0 : (last[r / 2] - p->base[r / 2] + 1) * p->depth);
	p->out->busy = NEWN(p->a, double, s->ndevice);
	p->out->spent = NEWN(p->a, SimTimes, s->ndevice);
	p->out->peak = NEWN(p->a, int, s->ndevice);
	p->out->most = NEWN(p->a, int64_t, s->ndevice);
	p->out->use = NEWN(p->a, SimUse, uses);
}

/* Which messages a stage reads and sends, by direction. */
static void list_messages(Player *p)
{
	for (int pass = 0; pass < 2; pass++) {
		for (int f = 0; f < 2; f++)
			for (int t = 0; t < p->s->nstage && pass; t++) {
				p->reads[f][t] = NEWN(p->a, int, p->want[f][t]);
				p->sends[f][t] = NEWN(p->a, int, p->gives[f][t]);
				p->want[f][t] = p->gives[f][t] = 0;
			}
		for (int i = 0; i < p->m->nmsg; i++) {
			const SimMessage *g = &p->m->msg[i];
			const int read = p->want[g->forward][g->to]++, sent = p->gives[g->forward][g->from]++;
			if (pass) {
				p->reads[g->forward][g->to][read] = i;
				p->sends[g->forward][g->from][sent] = i;
			}
		}
	}
}

static void prepare_messages(Player *p)
{
	const SimModel *m = p->m;
	const int n = m->nmsg * p->s->nmicro;

	p->capspan += n + m->njoin + 2 * p->s->ndevice; /* more, where there are more, as they come */
	p->out->span = arena_raw(p->a, (size_t)p->capspan * sizeof *p->out->span);
	p->state = NEWN(p->a, char, n);
	p->of_action = NEWN(p->a, int, n);
	p->next = arena_alloc(p->a, sizeof *p->next * (size_t)(n + 1));
	p->prev = arena_alloc(p->a, sizeof *p->prev * (size_t)(n + 1));
	for (int i = 0; i < 2; i++) {
		p->here[i] = NEWN(p->a, int, p->s->nstage * p->s->nmicro);
		p->left[i] = NEWN(p->a, int, p->s->nstage * p->s->nmicro);
		p->want[i] = NEWN(p->a, int, p->s->nstage);
		p->gives[i] = NEWN(p->a, int, p->s->nstage);
		p->reads[i] = NEWN(p->a, int *, p->s->nstage);
		p->sends[i] = NEWN(p->a, int *, p->s->nstage);
	}
	list_messages(p);
	ports_init(&p->ports, p->a, m);
	p->ports.timed = timed;
	p->ports.to = p;
	p->span_of = NEWN(p->a, int, n + m->njoin);
	p->ends = NEWN(p->a, int, n + m->njoin);
}

/* Something happens still: before time goes on, all that begins or ends now has. */
static bool comes(Player *p)
{
	if (!p->nheap || p->heap[0].time > p->now)
		ports_settle(&p->ports, p->now);
	return p->nheap > 0;
}

bool simulate(Arena *a, const SimModel *m, Sim *out, Diag *d)
{
	Player p = { .a = a, .m = m, .s = m->s, .out = out, .d = d, .depth = 1 };
	double worked = 0;

	*out = (Sim){ .model = m };
	if (m->nmsg && m->s->nmicro > INT_MAX / 2 / m->nmsg)
		return diag_error(d, NOLOC, 503,
			"schedule %s: %d messages of each of %d microbatches are more than can be simulated",
			m->s->name, m->nmsg, m->s->nmicro);
	prepare_ranks(&p);
	sim_prepare_joins(&p);
	if (m->each)
		sim_prepare_each(&p);
	prepare_messages(&p);
	for (int r = 0; r < m->s->ndevice; r++)
		sim_advance(&p, r);
	while (comes(&p)) {
		const Event e = pop(&p);
		happen(&p, &e);
	}
	if (!all_done(&p))
		return false;
	out->step = p.now;
	for (int r = 0; r < m->s->ndevice; r++)
		worked += out->spent[r][ACT_F] + out->spent[r][ACT_B] + out->spent[r][ACT_W];
	if (out->pipeline > 0)
		out->bubble = sim_rest(1, worked / (m->s->ndevice * out->pipeline));
	if (m->each)
		sim_each_steps(&p, out);
	else if (!sim_steady(a, out, d))
		return false;
	sim_count_bytes(a, out, ports_busy(&p.ports));
	return true;
}
