/* The timing models of sums over a group: sumcost.h. */
#include "sumcost.h"
#include <math.h>
#include <string.h>

/* As in runtime/comm/allreduce.c: bytes, members, bytes of a segment and of a slice; here: buckets at most, hosts that are told apart, members for whom
 * algorithms of as many rounds as members are tried. */
enum { SMALL = 4096 * 4, WINDOW = 8, SEGMENT = 128 << 10, SLICE = 1 << 20, MOST = 64, HOSTS = 64, ROUNDS = 64 };

/* What the runtime adds to a link: a poll of its progress thread per message, a pass over memory per byte that is added,
 * and the wake of that thread per sum. */
static const SumModel software = {
	.within = { .alpha = 15e-6 }, .between = { .alpha = 15e-6 }, .gamma = 0.15e-9, .sync = 60e-6
};

/* Of GPUs: what is added is read twice and written once, at the speed of their memory. */
static const double GPU_MEMORY = 900e9;

static const double PACKED = 2.5e9; /* bytes of f32 that a core packs and unpacks in a second, at least */

static const char *const name[] = { [SUM_RING] = "ring",
	[SUM_DOUBLING] = "doubling",
	[SUM_HALVING] = "halving",
	[SUM_PAIRWISE] = "pairwise",
	[SUM_HOSTS] = "hosts",
	[SUM_EVERYONE] = "auto" };

static void slower(SumWay *w, Link l)
{
	const double beta = l.bandwidth > 0 ? 1 / l.bandwidth : 0;

	w->alpha = l.latency > w->alpha ? l.latency : w->alpha;
	w->beta = beta > w->beta ? beta : w->beta;
}

/* What the file says of the back end, else the constants above. */
static SumModel costs_of(const Cluster *c, const Device *d)
{
	const SumCost *x = &c->sums[d->cuda];
	SumModel m = software;

	if (x->said) {
		m.within.alpha = m.between.alpha = x->message;
		m.gamma = 1 / x->add;
		m.sync = x->start;
	} else if (d->cuda) {
		m.gamma = 3 / (d->mem_bandwidth > 0 ? d->mem_bandwidth : GPU_MEMORY);
	}
	return m;
}

SumModel sum_model(Arena *a, const Cluster *c, const int *device, int n)
{
	SumModel m = costs_of(c, &c->device[device[0]]);
	SumWay slow[2] = { { 0, 0 }, { 0, 0 } };
	int *host = NEWN(a, int, n), *seen = NEWN(a, int, n), nseen = 0;

	for (int i = 0; i < n; i++) {
		bool first = true;

		host[i] = c->device[device[i]].host;
		for (int k = 0; k < nseen; k++) { /* links are alike between hosts, and within one */
			if (host[i] == host[seen[k]])
				first = false;
			slower(&slow[host[i] == host[seen[k]]], cluster_link(c, device[seen[k]], device[i]));
		}
		if (first)
			seen[nseen++] = i;
	}
	m.between.alpha += slow[0].alpha;
	m.between.beta = slow[0].beta;
	m.within.alpha += slow[1].alpha;
	m.within.beta = slow[1].beta;
	m.n = n;
	m.host = host;
	rounds_number(n, host, NEWN(a, int, ROUNDS_SPACE *n + 1), &m.hosts);
	m.line = (double(*)[2])NEWN(a, double, 2 * SUM_KINDS);
	return m;
}

const char *sum_name(SumBy by) { return by < SUM_KINDS ? name[by] : "auto"; }

SumBy sum_named(const char *by)
{
	for (int i = 0; i < SUM_EVERYONE; i++)
		if (by && strcmp(by, name[i]) == 0)
			return (SumBy)i;
	return by && !strcmp(by, "vendor") ? SUM_RING : SUM_KINDS;
}

SumBy sum_asked(AllReduceBy by)
{
	return by == ALLREDUCE_AUTO ? SUM_KINDS : sum_named(setting_word(SET_OF_AllReduceBy, (int)by));
}

/* ---- what moves at one time ---- */

typedef struct Moves {
	double out[HOSTS], in[HOSTS], near, added;
	bool far, some;
} Moves;

static int host_of(const SumModel *m, int i) { return (m->host ? m->host[i] : i) % HOSTS; }

static void move(const SumModel *m, Moves *x, int from, int to, double bytes)
{
	const int a = host_of(m, from), b = host_of(m, to);

	x->some = true;
	if (a == b) {
		x->near = bytes > x->near ? bytes : x->near;
		return;
	}
	x->far = true;
	x->out[a] += bytes;
	x->in[b] += bytes;
}

static double seconds(const SumModel *m, const Moves *x)
{
	double far = 0, t = x->near * m->within.beta;

	for (int h = 0; h < HOSTS; h++) {
		far = x->out[h] > far ? x->out[h] : far;
		far = x->in[h] > far ? x->in[h] : far;
	}
	t = far * m->between.beta > t ? far * m->between.beta : t;
	return t + x->added * m->gamma + (x->far ? m->between.alpha : x->some ? m->within.alpha : 0);
}

static double slice_seconds(const SumModel *m, rounds_kind kind, double bytes)
{
	double all = 0;
	bool going = true;

	for (int k = 0; going; k++) {
		Moves at = { .near = 0 };
		for (int i = 0; i < m->n; i++) {
			rounds_step x;

			going = rounds_step_of(kind, m->n, &m->hosts, i, k, (size_t)(bytes / 4), &x);
			if (going && x.to >= 0)
				move(m, &at, i, x.to, 4 * (double)x.send_n);
			if (going && x.from >= 0 && x.add)
				at.added = 4 * (double)x.recv_n > at.added ? 4 * (double)x.recv_n : at.added;
		}
		all += seconds(m, &at);
	}
	return all;
}

/* A round of a ring, of so many bytes from each member to the next; all are alike. */
static double round_seconds(const SumModel *m, double bytes)
{
	Moves at = { .near = 0 };

	for (int i = 0; i < m->n; i++)
		move(m, &at, i, (i + 1) % m->n, bytes);
	return seconds(m, &at);
}

static double everyone_seconds(const SumModel *m, double bytes)
{
	Moves at = { .added = (m->n - 1) * bytes };

	for (int i = 0; i < m->n * m->n; i++)
		if (i / m->n != i % m->n)
			move(m, &at, i / m->n, i % m->n, bytes);
	at.near *= m->n - 1;
	return seconds(m, &at);
}

/* Of a sum, of a round of a ring, or of a slice of a sum in rounds; without what begins it. */
static double counted_out(const SumModel *m, SumBy by, double bytes)
{
	static const rounds_kind kind[] = { [SUM_DOUBLING] = ROUNDS_DOUBLING,
		[SUM_HALVING] = ROUNDS_HALVING,
		[SUM_PAIRWISE] = ROUNDS_PAIRWISE,
		[SUM_HOSTS] = ROUNDS_HOSTS };

	return by == SUM_RING       ? round_seconds(m, bytes)
	       : by == SUM_EVERYONE ? everyone_seconds(m, bytes)
	                            : slice_seconds(m, kind[by], bytes);
}

/* Parts have the same shares of a sum whatever its size, so the time of a round is its latency and what goes with the bytes:
 * each algorithm is counted out at two sizes. */
static double by_line(const SumModel *m, SumBy by, double bytes)
{
	double *line = m->line ? m->line[by] : NULL;

	if (!line)
		return counted_out(m, by, bytes);
	if (!(line[0] > 0 || line[1] > 0)) { /* without a latency the first is 0 */
		const double half = counted_out(m, by, SLICE / 2.0), whole = counted_out(m, by, SLICE);
		line[1] = (whole - half) / (SLICE / 2.0);
		line[0] = whole - line[1] * SLICE;
	}
	return line[0] + line[1] * bytes;
}

/* A chunk goes on with its first segment, once that has come, so that a round takes as long as its chunk or its first segment, and
 * the last one ends a latency later. Where a chunk is one segment it is equation 5. wire: bytes that go for those. */
static double ring_seconds(const SumModel *m, double bytes, double wire)
{
	const double chunk = wire / m->n, segment = SEGMENT * wire / bytes;
	const double latency = by_line(m, SUM_RING, 0), whole = by_line(m, SUM_RING, chunk);
	const double first = chunk > segment ? by_line(m, SUM_RING, segment) : whole;

	return (2 * m->n - 3) * fmax(whole - latency, first) + whole + (m->n - 1) * chunk * m->gamma;
}

double sum_seconds(const SumModel *m, SumBy by, double bytes)
{
	if (m->n < 2)
		return 0;
	by = by == SUM_KINDS ? sum_best(m, bytes) : by;
	if (by == SUM_RING)
		return (bytes > 0 ? ring_seconds(m, bytes, bytes) : 0) + m->sync;
	if (by == SUM_EVERYONE)
		return by_line(m, by, bytes) + m->sync;
	const double whole = bytes >= SLICE ? (double)(int64_t)(bytes / SLICE) : 0, rest = bytes - whole * SLICE;
	return (whole > 0 ? whole * by_line(m, by, SLICE) : 0) + (rest >= 4 ? by_line(m, by, rest) : 0) + m->sync;
}

bool sum_is_small(const SumModel *m, double bytes) { return bytes <= SMALL && m->n - 1 <= WINDOW; }

double sum_packed_seconds(const SumModel *m, double bytes, double wire)
{
	const double packing = 2 * (m->n - 1) * (bytes / m->n / PACKED + m->within.alpha);

	return m->n < 2 || bytes <= 0 ? 0 : fmax(packing, ring_seconds(m, bytes, wire)) + m->sync;
}

int64_t sum_wire(const char *codec, int64_t block, int64_t bytes)
{
	const int64_t n = bytes / 4;

	if (!strcmp(codec, "trunc16") || !strcmp(codec, "bf16"))
		return 2 * n;
	return strcmp(codec, "q8") || block < 1 ? bytes : n + 4 * ((n + block - 1) / block);
}

SumBy sum_best(const SumModel *m, double bytes)
{
	SumBy best = sum_is_small(m, bytes) ? SUM_EVERYONE : SUM_RING;
	double least = 0.9 * sum_seconds(m, best, bytes);

	for (SumBy by = SUM_RING; by < SUM_EVERYONE && m->n > 1; by++) {
		if ((by == SUM_PAIRWISE || by == SUM_HOSTS) && m->n > ROUNDS)
			continue;
		const double t = sum_seconds(m, by, bytes);
		if (t < least) {
			best = by;
			least = t;
		}
	}
	return best;
}

double sum_end(const SumModel *m, SumBy by, const SumReady *g, int count, double limit)
{
	double end = 0, bytes = 0;

	for (int i = 0; i < count; i++) {
		bytes += g[i].bytes;
		if (bytes < limit && i < count - 1)
			continue;
		end = (g[i].ready > end ? g[i].ready : end) + sum_seconds(m, by, bytes);
		bytes = 0;
	}
	return end;
}

int sum_buckets(const SumModel *m, SumBy by, const SumReady *g, int count, double *end)
{
	double all = 0;
	int best = 1;

	for (int i = 0; i < count; i++)
		all += g[i].bytes;
	*end = sum_end(m, by, g, count, all);
	for (int k = 2; k <= count && k <= MOST; k++) {
		const double t = sum_end(m, by, g, count, all / k);

		if (t < *end) {
			*end = t;
			best = k;
		}
	}
	return best;
}

double sum_limit(const SumModel *m, const SumRule *r, const SumReady *g, int count, bool beside)
{
	double end, all = 0;

	if (r->bucket > 0)
		return r->bucket;
	for (int i = 0; i < count; i++)
		all += g[i].bytes;
	const int k = m && count > 1 ? sum_buckets(m, r->by, g, count, &end) : 1;
	return k > 1 || beside ? all / k : 0;
}

SumRule sum_rule(const Training *t)
{
	if (!t)
		return (SumRule){ .by = SUM_KINDS, .early = true };
	/* Pipe-SGD's sums have whole steps: several are made no sooner than one (equations 5 and 6), so they are asked for. */
	const bool beside = t->plan.pipe_sgd > 1;
	return (SumRule){ .by = sum_asked(t->comm.allreduce),
		.plain = t->loop.reproducible || t->target.f64,
		.bucket = (double)t->comm.bucket,
		.early = !t->loop.reproducible && !t->target.f64 && (!beside || t->comm.bucket > 0),
		.codec = t->comm.compress.codec ? setting_word(SET_OF_Codec, (int)t->comm.compress.codec) : NULL,
		.block = t->comm.compress.block,
		.packed_if = t->comm.compress.if_faster };
}

SumBy sum_choice(const SumModel *m, const SumRule *r, double bytes, double *wire)
{
	*wire = bytes;
	if (r->codec && m && r->by == SUM_KINDS && sum_is_small(m, bytes))
		return SUM_EVERYONE;
	if (r->codec) {
		*wire = (double)sum_wire(r->codec, r->block, (int64_t)bytes);
		if (!m || !r->packed_if || sum_packed_seconds(m, bytes, *wire) < sum_seconds(m, r->by, bytes))
			return SUM_RING;
		*wire = bytes;
	}
	if (r->by != SUM_KINDS)
		return r->by;
	return r->plain || !m ? m && sum_is_small(m, bytes) ? SUM_EVERYONE : SUM_RING : sum_best(m, bytes);
}
