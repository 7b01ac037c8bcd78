/* Who moves through which port, and how fast. A port gives everyone that uses it the same part of what he asks for: a message
 * asks for all of it, a sum for the share of its time in which it would send there if it were alone. Who is asked of more
 * than there is at any of his ports goes slower by the worst of them. Times change only when somebody begins or ends, so a
 * flow keeps what is left of it, and tells of a new end. Much begins and ends at one moment: ports are marked, and who uses
 * them is looked at once before time goes on. */
#include "simulate_ports.h"

static int rank_of(const Schedule *s, int stage, int mb) { return s->device[stage][s->replica_of[stage][mb]]; }
int ports_sender(const SimModel *m, int id) { return rank_of(m->s, m->msg[id / m->s->nmicro].from, id % m->s->nmicro); }
int ports_receiver(const SimModel *m, int id) { return rank_of(m->s, m->msg[id / m->s->nmicro].to, id % m->s->nmicro); }
int ports_line(const SimModel *m, int from, int to) { return cluster_link_line(m->c, m->device[from], m->device[to]); }

/* Ports of devices come first, then those of hosts, by link. */
int ports_between(const SimModel *m, int from, int to, int way)
{
	const Cluster *c = m->c;
	const int dev = m->device[way == OUT ? from : to];

	if (c->device[m->device[from]].host == c->device[m->device[to]].host)
		return 2 * dev + way;
	return 2 * (c->ndevice + ports_line(m, from, to) * c->nhost + c->device[dev].host) + way;
}

int ports_of(const SimModel *m, int id, int way)
{
	return ports_between(m, ports_sender(m, id), ports_receiver(m, id), way);
}

/* Behind those of links one for each rank: what an asynchronous server does. */
static int server_port(const SimModel *m, int rank)
{
	return 2 * (m->c->ndevice + (m->c->nlink + 2) * m->c->nhost) + rank;
}
static int nport(const SimModel *m) { return server_port(m, m->each ? m->s->ndevice : 0); }

void ports_init(Ports *p, Arena *a, const SimModel *m)
{
	*p = (Ports){ .a = a, .m = m, .nmsg = m->nmsg * m->s->nmicro };
	p->port = NEWN(a, Port, nport(m));
	for (int i = 0; i < nport(m); i++)
		p->port[i] = (Port){ .first = NONE, .last = NONE };
	p->flow = NEWN(a, Flow, p->nmsg + m->njoin);
	p->need = NEWN(a, Need *, m->njoin);
	p->nneed = NEWN(a, int, m->njoin);
	p->alone = NEWN(a, double, m->njoin);
	if (m->njoin)
		p->load = (Load){ NEWN(a, double, nport(m)), NEWN(a, double, nport(m)), NEWN(a, int, nport(m)), 0, 0 };
}

double *ports_busy(const Ports *p)
{
	double *busy = NEWN(p->a, double, p->m->c->nlink + 2);

	for (int i = 0; i < nport(p->m); i++)
		if (p->port[i].busy > busy[p->port[i].line])
			busy[p->port[i].line] = p->port[i].busy;
	return busy;
}

/* ---- what sums need ---- */

/* So many seconds of a port. */
void ports_load(Ports *p, int port, double t)
{
	Load *x = &p->load;

	if (t > 0 && !(x->now[port] > 0) && !(x->all[port] > 0))
		x->touched[x->n++] = port;
	x->now[port] += t;
}

/* Bytes from one rank to another; `of` leaves out the port of the other (NONE: both count). */
static void load_one(Ports *p, int from, int to, double bytes, int of)
{
	const Link l = cluster_link_of(p->m->c, ports_line(p->m, from, to));

	p->load.latency = l.latency > p->load.latency ? l.latency : p->load.latency;
	for (int way = OUT; way <= IN; way++)
		if (of == NONE || of == (way == OUT ? from : to))
			ports_load(p, ports_between(p->m, from, to, way), sim_link_seconds(&l, bytes));
}

static void load(Ports *p, int from, int to, double bytes) { load_one(p, from, to, bytes, NONE); }

/* Everything loaded since the last round moves at once, so many times; its slowest latency is added to each. */
static double load_round(Load *x, int times)
{
	double worst = 0;

	for (int i = 0; i < x->n; i++) {
		const int p = x->touched[i];
		worst = x->now[p] > worst ? x->now[p] : worst;
		x->all[p] += times * x->now[p];
		x->now[p] = 0;
	}
	worst += x->latency;
	x->latency = 0;
	return times * worst;
}

static double load_rounds(Ports *p, const SimJoin *j)
{
	double all = 0;
	bool going = true;

	for (int k = 0; going; k++) {
		for (int i = 0; i < j->n; i++) {
			rounds_step s;

			going = rounds_step_of(sim_rounds(j->kind), j->n, j->hosts, i, k, (size_t)j->bytes / 4, &s);
			if (going && s.to >= 0)
				load(p, j->rank[i], j->rank[s.to], 4 * (double)s.send_n);
		}
		all += load_round(&p->load, 1);
	}
	return all;
}

/* How long it takes is played; what the ports have to do for it is what moves through them. */
static double load_serve(Ports *p)
{
	const double all = exchange_seconds(p), busiest = load_round(&p->load, 1);

	return p->m->quick ? busiest : all;
}

/* One device and one server: pulls, or pushes and their updates, in which nobody else has the server. */
static double load_exchange(Ports *p, const SimJoin *j)
{
	const SimModel *m = p->m;
	const SimServe *x = &m->serve[j->serve];
	const bool pull = j->kind == SIM_PULL,
		   near = m->c->device[m->device[x->worker]].host == m->c->device[m->device[x->server]].host;
	const int from = pull ? x->server : x->worker, to = pull ? x->worker : x->server,
		  port = server_port(m, x->server);
	const Link l = cluster_link_of(m->c, ports_line(m, from, to));
	const double latency = (pull ? 2 * x->pulls : 1) * l.latency,
		     served = sim_link_seconds(&l, (double)j->bytes) + (pull ? 0 : x->update);

	load_one(p, from, to, (double)j->bytes, near ? x->worker : NONE);
	load_round(&p->load, 1);
	if (served > 0)
		p->load.touched[p->load.n++] = port;
	p->load.all[port] = served;
	return latency + served;
}

/* Gradients to their owners, then what these made of the parameters to all. */
static double load_owned(Ports *p, const SimJoin *j)
{
	double all = 0;

	for (int back = 0; back < 2; back++) {
		if (back && !j->newest)
			break;
		for (int i = 0; i < j->n * j->n; i++)
			if (i / j->n != i % j->n && (back ? j->newest[i / j->n] : j->push[i % j->n]) > 0)
				load(p, j->rank[i / j->n], j->rank[i % j->n],
					(double)(back ? j->newest[i / j->n] : j->push[i % j->n]));
		all += load_round(&p->load, 1);
	}
	return all;
}

static double load_sum(Ports *p, const SimJoin *j)
{
	const bool small = j->kind == SIM_GATHER || (j->kind == SIM_RING && sim_small_sum(j));

	if (j->kind == SIM_PULL || j->kind == SIM_PUSH)
		return load_exchange(p, j);
	if (j->n < 2)
		return 0;
	if (j->kind == SIM_SERVE)
		return load_serve(p);
	if (j->kind == SIM_OWNED || j->kind == SIM_PARTS)
		return load_owned(p, j);
	if (j->kind >= SIM_ROUNDS)
		return load_rounds(p, j);
	for (int i = 0; i < j->n; i++) {
		if (j->kind == SIM_COPY && i != j->root)
			load(p, j->rank[j->root], j->rank[i], (double)j->bytes);
		else if (j->kind == SIM_RING && !small)
			load(p, j->rank[i], j->rank[(i + 1) % j->n], (double)j->bytes / j->n);
		for (int k = 0; small && k < j->n; k++)
			if (k != i)
				load(p, j->rank[i], j->rank[k], (double)j->bytes);
	}
	return load_round(&p->load, j->kind == SIM_COPY || small ? 1 : 2 * (j->n - 1));
}

double ports_sum(Ports *p, int join)
{
	Load *x = &p->load;

	if (p->need[join])
		return p->alone[join];
	x->n = 0;
	const double alone = p->alone[join] = load_sum(p, &p->m->join[join]);
	p->need[join] = NEWN(p->a, Need, x->n + 1);
	p->nneed[join] = x->n;
	for (int i = 0; i < x->n; i++) {
		const int port = x->touched[i];
		p->need[join][i] = (Need){ port, x->all[port] < alone ? x->all[port] / alone : 1 };
		x->all[port] = 0;
	}
	return alone;
}

double ports_alone(const Cluster *c, const int *device, SimJoin j)
{
	Arena *a = arena_new();
	int *rank = NEWN(a, int, j.n);
	Ports p;

	for (int i = 0; i < j.n; i++)
		rank[i] = i;
	j.rank = rank;
	ports_init(&p, a,
		&(SimModel){ .s = &(Schedule){ .nmicro = 0 }, .c = c, .device = device, .join = &j, .njoin = 1 });
	const double alone = ports_sum(&p, 0);
	arena_free(a);
	return alone;
}

/* ---- rates ---- */

/* The k-th port that a flow uses; false: there is none. */
static bool need(const Ports *p, int flow, int k, Need *x)
{
	if (flow < p->nmsg) {
		*x = (Need){ k <= IN ? ports_of(p->m, flow, k) : NONE, 1 };
		return k <= IN;
	}
	const int j = flow - p->nmsg;

	if (k < p->nneed[j])
		*x = p->need[j][k];
	return k < p->nneed[j];
}

static void rate(Ports *p, int flow, double now)
{
	Flow *f = &p->flow[flow];
	double most = 1;
	Need x;

	for (int k = 0; need(p, flow, k, &x); k++)
		most = p->port[x.port].asked > most ? p->port[x.port].asked : most;
	if (!(1 / most < f->rate || 1 / most > f->rate))
		return;
	f->left -= (now - f->now) * f->rate;
	f->now = now;
	f->rate = 1 / most;
	p->timed(p->to, flow, f->left > 0 ? now + f->left * most : now);
}

/* What is asked of a port, in the order in which its users came: rounding leaves nothing behind. */
static void ask(Port *q)
{
	q->asked = 0;
	for (int i = 0; i < q->nuser; i++)
		q->asked += q->user[i].share;
}

static void mark(Ports *p, int port)
{
	if (p->port[port].marked)
		return;
	p->port[port].marked = true;
	PUSH(p->a, p->marked, p->nmarked, p->capmarked) = port;
}

void ports_begin(Ports *p, int flow, double alone, double now)
{
	Need x;

	p->flow[flow] = (Flow){ .left = alone, .now = now };
	for (int k = 0; need(p, flow, k, &x); k++) {
		Port *q = &p->port[x.port];
		PUSH(p->a, q->user, q->nuser, q->cap) = (User){ flow, x.share };
		mark(p, x.port);
	}
	PUSH(p->a, p->begun, p->nbegun, p->capbegun) = flow;
}

void ports_end(Ports *p, int flow)
{
	Need x;

	for (int k = 0; need(p, flow, k, &x); k++) {
		Port *q = &p->port[x.port];
		int to = 0;
		for (int i = 0; i < q->nuser; i++)
			if (q->user[i].flow != flow)
				q->user[to++] = q->user[i];
		q->nuser = to;
		mark(p, x.port);
	}
}

/* Of a port that had, and has, enough for all nobody else gets slower or faster. */
void ports_settle(Ports *p, double now)
{
	const int n = p->nmarked;

	p->seen++;
	for (int i = 0; i < n; i++) {
		Port *q = &p->port[p->marked[i]];
		const double was = q->asked;
		ask(q);
		q->full = was > 1 || q->asked > 1;
	}
	for (int i = 0; i < n; i++) {
		Port *q = &p->port[p->marked[i]];
		q->marked = false;
		for (int k = 0; q->full && k < q->nuser; k++) {
			Flow *f = &p->flow[q->user[k].flow];
			if (f->seen != p->seen)
				rate(p, q->user[k].flow, now);
			f->seen = p->seen;
		}
	}
	for (int i = 0; i < p->nbegun; i++)
		rate(p, p->begun[i], now);
	p->nmarked = p->nbegun = 0;
}
