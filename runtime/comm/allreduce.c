/* allreduce.c: sums over the replicas of a stage, in place; gathering and spreading.
 *
 * The ring. The buffer is cut into n chunks, one per member, and each chunk into S segments. A
 * member sends to the next one and receives from the previous one, n-1 rounds of reduction and
 * n-1 rounds of distribution:
 *
 *     transfer k = round * S + segment: member r sends chunk r - round and
 *                                       receives chunk r - round - 1
 *     rounds 0 .. n-2:     what arrives is added to the own chunk
 *     rounds n-1 .. 2n-3:  what arrives is a finished sum and lands in place
 *
 * Transfer k may be sent once transfer k - S has arrived, so segments of later rounds flow while
 * earlier ones are still being added: the links are busy as long as there are WINDOW segments in
 * flight. The volume per member is 2 (n-1)/n of the buffer, the least there is. A chunk is
 * summed along the ring by one chain of additions and then copied, so all members end with the
 * same bits.
 *
 * Compressed sums (compress.c) send each part encoded: what arrives is decoded and added, or decoded
 * in place; the owner of a finished chunk takes its own decoded one. Chunks begin at whole blocks. Up to there a member
 * encodes each chunk once: with error feedback, what that takes away is its residual of the chunk.
 *
 * Small buffers of small groups go to everyone at once instead (one latency in place of 2(n-1)),
 * and are added in group order.
 *
 * Other algorithms (rounds.c) go round by round over slices of the buffer; MPI's own is in vendor.c.
 *
 * Of parts (parts.c) each member has its own: in a ReduceScatter it sends every other one that one's part and adds what they
 * send, in an AllGather it sends its own. Block by block, from the next member round to the one before.
 *
 * It all advances from rt_ring_advance(), which whoever polls calls with the lock held;
 * pd_allreduce_start only queues. Members of several groups must start them in one order
 * everywhere. */
#include "parts.h"
#include "rounds.h"
#include "rt.h"
#include <stdlib.h>

enum {
	WINDOW = RT_COLL / 2,
	SEGMENT = 32 * 1024, /* floats */
	SMALL = 4096,        /* floats */
	QUEUE = 256
};

typedef struct job {
	const pd_group *group;
	float *buf;
	size_t count;
	rt_codec codec;
	pd_algorithm by;
	const int *host; /* of each member, for PD_SUM_HOSTS */
	float *residual; /* of packed sums; NULL: without error feedback */
	float scale;     /* of the gradients */
	rt_guard *guard; /* of sums that are packed, or might be */
	int round;       /* of the guard */
	double began;
	bool bad;       /* the result is no number */
	rt_parts parts; /* n 0: none */
} job;

static job queue[QUEUE];
static int head, queued; /* queue[head] is running when running is set */
static int64_t over;     /* since the start */
static bool running, small;
static int round_at; /* of rounds.c, in the slice that begins at slice_at */
static size_t slice_at;
static rounds_hosts hosts; /* of the running job, for PD_SUM_HOSTS */
static int *host_space;
static float (*incoming)[SEGMENT]; /* WINDOW of them */
static float (*outgoing)[SEGMENT]; /* the same, of encoded parts */
static int self;                   /* place in the running job's group */
static int64_t segments, total;    /* per chunk; transfers each way */
static int64_t sent, send_done, received, receive_done;

/* Open MPI over TCP asks before it sends what is longer than 64 KiB, and question and answer wait behind whatever is under way
 * both ways: a ring of two then takes twice its time, and so do the parts that rounds exchange and what servers are told. These
 * shall go without asking; who sets the limits himself, as OMPI_MCA_... or by mpirun --mca, is obeyed. */
static void send_unasked(void)
{
	char limit[16];

	snprintf(limit, sizeof limit, "%zu", (size_t)WINDOW / 2 * SEGMENT * sizeof(float) + 1024);
	setenv("OMPI_MCA_btl_tcp_eager_limit", limit, 0);
	setenv("OMPI_MCA_btl_tcp_rndv_eager_limit", limit, 0);
}

void rt_ring_setup(int world)
{
	if (world > 1) {
		send_unasked();
		incoming = rt_alloc(WINDOW * sizeof *incoming);
	}
	if (world > 1)
		host_space = rt_alloc((ROUNDS_SPACE * (size_t)world + 1) * sizeof *host_space);
	if (world > 1 && rt_program->compressed)
		outgoing = rt_alloc(WINDOW * sizeof *outgoing);
}

static int place(const pd_group *g)
{
	for (int i = 0; i < g->n; i++)
		if (g->rank[i] == rt_program->rank)
			return i;
	rt_fail(RT_ERROR, "R111", "rank %d calls AllReduce over a group of %d that it is not in", rt_program->rank,
		g->n);
}

static void add(float *restrict a, const float *restrict b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		a[i] += b[i];
}

/* The part of the buffer that transfer k moves, for the member that sends it in that round. */
static float *part(int64_t k, int sender, size_t *n)
{
	const job *j = &queue[head];
	const int members = j->group->n, round = (int)(k / segments);
	const size_t chunk = (size_t)(((sender - round) % members + members) % members);
	const size_t grain = rt_codec_grain(&j->codec), grains = (j->count + grain - 1) / grain;
	const size_t lo = grains * chunk / (size_t)members * grain;
	const size_t end = grains * (chunk + 1) / (size_t)members * grain, hi = end < j->count ? end : j->count;
	const size_t at = lo + (size_t)(k % segments) * SEGMENT;

	*n = at >= hi ? 0 : hi - at < SEGMENT ? hi - at : SEGMENT;
	return j->buf + (*n ? at : lo);
}

static void begin(void)
{
	job *j = &queue[head];
	const int n = j->group->n;

	j->began = rt_now();
	self = place(j->group);
	small = j->by == PD_SUM_AUTO && j->count <= SMALL && n - 1 <= WINDOW;
	running = true;
	if (j->by == PD_SUM_VENDOR) {
		rt_vendor_sum(j->group, j->buf, j->count, rt_ring(0), j->group->rank[(self + 1) % n]);
		return;
	}
	if (j->by > PD_SUM_RING) {
		slice_at = 0;
		round_at = -1;
		if (j->by == PD_SUM_HOSTS)
			rounds_number(n, j->host, host_space, &hosts);
		return;
	}
	sent = send_done = received = receive_done = 0;
	if (j->parts.n) {
		small = false;
		segments = rt_parts_blocks(&j->parts, sizeof *incoming / 2);
		total = segments * (n - 1);
		return;
	}
	if (!small) {
		const size_t grain = rt_codec_grain(&j->codec), grains = (j->count + grain - 1) / grain;
		const size_t chunk = (grains + (size_t)n - 1) / (size_t)n * grain;

		segments = (int64_t)((chunk + SEGMENT - 1) / SEGMENT);
		total = 2 * (int64_t)(n - 1) * segments;
		return;
	}
	for (int i = 0, k = 0; i < n; i++)
		if (i != self) {
			rt_post_recv(rt_ring(WINDOW + k), j->group->rank[i], RT_TAG_SMALL, incoming[k],
				j->count * sizeof(float));
			rt_post_send(rt_ring(k++), j->group->rank[i], RT_TAG_SMALL, j->buf, j->count * sizeof(float));
		}
}

static void end(void)
{
	const job *j = &queue[head];

	rt_guard_end(j->guard, j->round, rt_now() - j->began, j->bad);
	running = false;
	head = (head + 1) % QUEUE;
	queued--;
	over++;
}

static bool small_advance(void)
{
	const job *j = &queue[head];
	const int n = j->group->n;

	for (int k = 0; k < n - 1; k++)
		if (!rt_idle(rt_ring(k)) || !rt_idle(rt_ring(WINDOW + k)))
			return false;
	/* incoming skips self: what the others sent, in group order */
	for (size_t e = 0; e < j->count; e++) {
		float s = self == 0 ? j->buf[e] : incoming[0][e];

		for (int i = 1; i < n; i++)
			s += i == self ? j->buf[e] : incoming[i < self ? i : i - 1][e];
		j->buf[e] = s;
	}
	end();
	return true;
}

/* Transfer k is added to the own part as it arrives, without being staged. */
static bool adds(int64_t k)
{
	const job *j = &queue[head];
	const int n = j->group->n;

	return k < total / 2 && j->codec.kind == PD_CODEC_EXACT && rt_shared(j->group->rank[(self + n - 1) % n]);
}

/* What arrived with transfer k: added to the own part, or, of a finished sum, put in its place. */
static void take(int64_t k)
{
	job *j = &queue[head];
	const int n = j->group->n;
	const bool sum = k < total / 2;
	size_t count;
	float *at = part(k, (self + n - 1) % n, &count);

	if (j->codec.kind != PD_CODEC_EXACT) {
		const double from = rt_now();
		rt_decode(&j->codec, incoming[k % WINDOW], count, at, sum);
		j->bad |= !sum && rt_encoded_bad(&j->codec, incoming[k % WINDOW], count);
		rt_spent_packed(from);
	} else if (sum && !adds(k))
		add(at, incoming[k % WINDOW], count);
}

/* What transfer k sends. A chunk whose sum is finished here is rounded here as everywhere else. */
static const void *packed(int64_t k, size_t *bytes)
{
	job *j = &queue[head];
	size_t n;
	float *at = part(k, self, &n);

	*bytes = rt_encoded(&j->codec, n);
	if (j->codec.kind == PD_CODEC_EXACT)
		return at;
	const double from = rt_now();
	if (j->residual && k < total / 2 + segments)
		rt_encode_feedback(&j->codec, at, j->residual + (at - j->buf), j->scale, n, outgoing[k % WINDOW]);
	else
		rt_encode(&j->codec, at, n, outgoing[k % WINDOW]);
	if (k >= total / 2 && k < total / 2 + segments) {
		rt_decode(&j->codec, outgoing[k % WINDOW], n, at, false);
		j->bad |= rt_encoded_bad(&j->codec, outgoing[k % WINDOW], n);
	}
	rt_spent_packed(from);
	return outgoing[k % WINDOW];
}

static void post_ready(bool *moved)
{
	const job *j = &queue[head];
	const pd_group *g = j->group;
	const bool exact = j->codec.kind == PD_CODEC_EXACT;
	const int before = (self + g->n - 1) % g->n, after = (self + 1) % g->n;
	size_t n;

	/* A finished sum may land on a chunk only after what was sent from there has left. */
	while (received < total && received - receive_done < WINDOW &&
		(received < total / 2 || send_done > received - total / 2)) {
		float *at = part(received, before, &n);

		if (adds(received))
			rt_post_sum(rt_ring(WINDOW + (int)(received % WINDOW)), g->rank[before], RT_TAG_RING, at, n);
		else
			rt_post_recv(rt_ring(WINDOW + (int)(received % WINDOW)), g->rank[before], RT_TAG_RING,
				!exact || received < total / 2 ? incoming[received % WINDOW] : at,
				rt_encoded(&j->codec, n));
		received++;
		*moved = true;
	}
	while (sent < total && sent - send_done < WINDOW && (sent < segments || receive_done > sent - segments)) {
		const void *what = packed(sent, &n);

		rt_post_send(rt_ring((int)(sent % WINDOW)), g->rank[after], RT_TAG_RING, what, n);
		sent++;
		*moved = true;
	}
}

static bool ring_advance(void)
{
	bool moved = false;

	while (receive_done < received && rt_idle(rt_ring(WINDOW + (int)(receive_done % WINDOW)))) {
		take(receive_done++);
		moved = true;
	}
	while (send_done < sent && rt_idle(rt_ring((int)(send_done % WINDOW)))) {
		send_done++;
		moved = true;
	}
	post_ready(&moved);
	if (send_done == total && receive_done == total) {
		end();
		moved = true;
	}
	return moved;
}

/* ---- parts ---- */

/* Transfer k is of block k / (n-1), to a member so much behind this one, from one so much before it. What arrives lies in the
 * first half of its slot, what is sent in the other. */
static bool parts_advance(void)
{
	const job *j = &queue[head];
	const pd_group *g = j->group;
	bool moved = false;

	for (; receive_done < received && rt_idle(rt_ring(WINDOW + (int)(receive_done % WINDOW)));
		receive_done++, moved = true) {
		const int from = (self + g->n - 1 - (int)(receive_done % (g->n - 1))) % g->n;

		rt_parts_put(&j->parts, j->parts.add ? self : from, receive_done / (g->n - 1),
			incoming[receive_done % WINDOW], sizeof *incoming / 2);
	}
	for (; send_done < sent && rt_idle(rt_ring((int)(send_done % WINDOW))); moved = true)
		send_done++;
	for (; received < total && received - receive_done < WINDOW; received++, moved = true) {
		const int from = (self + g->n - 1 - (int)(received % (g->n - 1))) % g->n;
		const size_t bytes = rt_parts_bytes(
			&j->parts, j->parts.add ? self : from, received / (g->n - 1), sizeof *incoming / 2);

		if (bytes)
			rt_post_recv(rt_ring(WINDOW + (int)(received % WINDOW)), g->rank[from], RT_TAG_RING,
				incoming[received % WINDOW], bytes);
	}
	for (; sent < total && sent - send_done < WINDOW; sent++, moved = true) {
		const int to = (self + 1 + (int)(sent % (g->n - 1))) % g->n;
		float *packed = incoming[sent % WINDOW] + SEGMENT / 2;
		const size_t bytes = rt_parts_take(
			&j->parts, j->parts.add ? to : self, sent / (g->n - 1), packed, sizeof *incoming / 2);

		if (bytes)
			rt_post_send(rt_ring((int)(sent % WINDOW)), g->rank[to], RT_TAG_RING, packed, bytes);
	}
	if (send_done < total || receive_done < total)
		return moved;
	end();
	return true;
}

/* ---- round by round ---- */

static bool round_of(int k, rounds_step *x)
{
	static const rounds_kind kind[] = { [PD_SUM_DOUBLING] = ROUNDS_DOUBLING,
		[PD_SUM_HALVING] = ROUNDS_HALVING,
		[PD_SUM_PAIRWISE] = ROUNDS_PAIRWISE,
		[PD_SUM_HOSTS] = ROUNDS_HOSTS };
	const job *j = &queue[head];
	const size_t left = j->count - slice_at, most = (size_t)WINDOW * SEGMENT;

	return rounds_step_of(kind[j->by], j->group->n, &hosts, self, k, left < most ? left : most, x);
}

/* Takes what the round brought and begins the next one. A part that arrives where one leaves from
 * never overlaps it, but for doubling, whose parts are staged. */
static bool rounds_advance(void)
{
	const job *j = &queue[head];
	float *at = j->buf + slice_at, *staged = incoming[0];
	rounds_step x;

	if (!rt_idle(rt_ring(0)) || !rt_idle(rt_ring(WINDOW)))
		return false;
	if (round_at >= 0 && round_of(round_at, &x) && x.from >= 0 && x.add)
		add(at + x.recv_at, staged, x.recv_n);
	if (!round_of(++round_at, &x)) {
		slice_at += (size_t)WINDOW * SEGMENT;
		round_at = -1;
		if (slice_at >= j->count)
			end();
		return true;
	}
	if (x.from >= 0)
		rt_post_recv(rt_ring(WINDOW), j->group->rank[x.from], RT_TAG_RING, x.add ? staged : at + x.recv_at,
			x.recv_n * sizeof(float));
	if (x.to >= 0)
		rt_post_send(rt_ring(0), j->group->rank[x.to], RT_TAG_RING, at + x.send_at, x.send_n * sizeof(float));
	return true;
}

bool rt_ring_idle(void) { return queued == 0; }

int64_t rt_ring_begun(void)
{
	rt_lock();
	const int64_t n = over + queued;
	rt_unlock();
	return n;
}

bool rt_ring_has(int64_t n) { return over >= n; }

int64_t rt_ring_over(void)
{
	rt_lock();
	const int64_t n = over;
	rt_unlock();
	return n;
}

bool rt_ring_advance(void)
{
	if (!queued)
		return false;
	if (!running) {
		begin();
		return true;
	}
	if (queue[head].parts.n)
		return parts_advance();
	if (queue[head].by == PD_SUM_VENDOR) {
		if (!rt_idle(rt_ring(0)))
			return false;
		end();
		return true;
	}
	return queue[head].by > PD_SUM_RING ? rounds_advance() : small ? small_advance() : ring_advance();
}

static void enqueue(const job *j)
{
	if (j->group->n == 1 || j->count == 0 || rt_alone)
		return;
	if (rt_virtual)
		rt_pause(); /* what is summed is there when the statements before it have taken their time */
	rt_lock();
	while (queued == QUEUE) {
		rt_unlock();
		rt_wait_ring();
		rt_lock();
	}
	queue[(head + queued++) % QUEUE] = *j;
	rt_ring_advance();
	rt_wake();
	rt_unlock();
}

/* A sum that would be packed: whether it is, as the members have agreed. */
static void ask_guard(job *j, bool timed)
{
	static int64_t step = -1;
	bool packs;
	float *vote;

	j->guard = rt_guard_start(j->group, timed, &packs, &vote);
	j->round = rt_guard_round(j->guard);
	if (vote)
		enqueue(&(job){ .group = j->group, .buf = vote, .count = 2 });
	if (packs)
		return;
	if (j->residual && step != rt_step)
		pd_allreduce_wait(); /* sums of earlier steps have left what their residuals are */
	step = rt_step;
	if (j->residual)
		rt_feedback_flush(j->buf, j->residual, j->scale, j->count);
	j->residual = NULL;
	j->codec = (rt_codec){ PD_CODEC_EXACT, 0 };
}

void pd_allreduce_start(const pd_group *g, float *buf, size_t count, const pd_sum *how)
{
	job j = { .group = g, .buf = buf, .count = count };

	if (how) {
		j.codec = (rt_codec){ how->codec, how->block };
		j.by = how->by;
		j.host = how->host;
		j.residual = how->residual;
		j.scale = how->residual ? (float)rt_scale_of_step() : 1;
	}
	rt_codec_check(&j.codec, SEGMENT);
	if (j.codec.kind != PD_CODEC_EXACT && g->n > 1 && count && !rt_alone)
		ask_guard(&j, how->guard);
	enqueue(&j);
}

void pd_scatter_start(const pd_group *g, float *buf, const pd_part *p, int n)
{
	enqueue(&(job){ .group = g, .count = 1, .parts = { buf, p, n, sizeof *buf, true } });
}

static void put_own(float *restrict sum, const float *restrict one, size_t n, bool add)
{
	if (!add)
		memcpy(sum, one, n * sizeof *sum);
	for (size_t i = 0; i < n && add; i++)
		sum[i] += one[i];
}

void pd_scatter_add(const pd_group *g, float *sum, const float *one, const pd_part *p, int n, int add)
{
	const int me = place(g);

	for (int i = 0; i < n; i++)
		put_own(sum + p[i].own, one + p[i].at + pd_part_at(me, p[i].part, p[i].n),
			pd_part_of(me, p[i].part, p[i].n), add);
	enqueue(&(job){
		.group = g, .count = 1, .parts = { (void *)(uintptr_t)one, p, n, sizeof *one, true, sum, me } });
}

void rt_gather_begin(const pd_group *g, void *buf, const pd_part *p, int n, size_t size)
{
	enqueue(&(job){ .group = g, .count = 1, .parts = { buf, p, n, size, false } });
}

void pd_gather_parts(const pd_group *g, void *buf, const pd_part *p, int n, size_t size)
{
	rt_gather_begin(g, buf, p, n, size);
	pd_allreduce_wait();
}

void pd_gather_start(const pd_group *g, void *buf, const void *own, const pd_part *p, int n, size_t size)
{
	const int me = place(g);

	for (int i = 0; i < n; i++)
		memcpy((char *)buf + size * ((size_t)p[i].at + pd_part_at(me, p[i].part, p[i].n)),
			(const char *)own + size * (size_t)p[i].own, size * pd_part_of(me, p[i].part, p[i].n));
	enqueue(&(job){ .group = g, .count = 1, .parts = { buf, p, n, size, false, (void *)(uintptr_t)own, me } });
}

void pd_gradients_whole(const pd_group *g, void *buf, const pd_part *p, int n)
{
	if (rt_keeps_gradients())
		pd_gather_parts(g, buf, p, n, sizeof(float));
}

void pd_allreduce_wait(void)
{
	if (rt_program->world > 1 && !rt_alone)
		rt_wait_ring();
}

void pd_allreduce(const pd_group *g, float *buf, size_t count)
{
	pd_allreduce_start(g, buf, count, NULL);
	pd_allreduce_wait();
}

void pd_allreduce_as(const pd_group *g, float *buf, size_t count, const pd_sum *how)
{
	pd_allreduce_start(g, buf, count, how);
	pd_allreduce_wait();
}

/* Block by block to everyone, added in group order. */
void pd_allreduce_f64(const pd_group *g, double *buf, size_t count)
{
	if (g->n == 1)
		return;
	pd_allreduce_wait(); /* its memory is free then */
	double *all = (double *)(void *)incoming;
	const size_t room = WINDOW * sizeof *incoming / sizeof *all / (size_t)g->n;

	for (size_t at = 0, n; at < count; at += n) {
		n = count - at < room ? count - at : room;
		pd_allgather(g, buf + at, all, n * sizeof *all);
		memcpy(buf + at, all, n * sizeof *all);
		for (size_t i = n; i < n * (size_t)g->n; i++)
			buf[at + i % n] += all[i];
	}
}

void pd_allgather(const pd_group *g, const void *in, void *out, size_t bytes)
{
	const int me = place(g);

	memmove((char *)out + (size_t)me * bytes, in, bytes);
	if (g->n == 1 || bytes == 0 || rt_alone)
		return;
	rt_lock();
	for (int i = 0; i < g->n; i++)
		if (i != me) {
			rt_post_recv(rt_peer(i), g->rank[i], RT_TAG_GATHER, (char *)out + (size_t)i * bytes, bytes);
			rt_post_send(
				rt_peer(i) + 1, g->rank[i], RT_TAG_GATHER, (char *)out + (size_t)me * bytes, bytes);
		}
	rt_unlock();
	rt_wait(rt_peer(0), 2 * g->n);
}

void pd_broadcast(const pd_group *g, int from, void *buf, size_t bytes)
{
	if (g->n == 1 || bytes == 0 || rt_alone)
		return;
	if (place(g) != from) {
		rt_recv(g->rank[from], RT_TAG_BROADCAST, buf, bytes);
		return;
	}
	rt_lock();
	for (int i = 0; i < g->n; i++)
		if (i != from)
			rt_post_send(rt_peer(i), g->rank[i], RT_TAG_BROADCAST, buf, bytes);
	rt_unlock();
	rt_wait(rt_peer(0), 2 * g->n);
}
