/* gpu_nccl.c: messages and sums from GPU to GPU, by NCCL, where every rank that trains has a GPU of its own; where two share one, which
 * NCCL refuses, or it was not there when the program was built, they are staged through the host (gpu_host.c).
 *
 * A group of replicas has a communicator, and so have a tensor group (of peers world + k, comm/tensor.c) and each lane of messages from one
 * rank to another: lanes are such that both sides
 * come to their messages in one order, which is how NCCL tells them apart. Each lane has its stream, and so has the tensor group, sums over
 * replicas have theirs; an event of the
 * stream that computes goes before, one behind is what it waits for. The host waits for none of this, so the end of a rank shows
 * elsewhere: whoever waits for the device looks at the communicators and at the other processes meanwhile.
 *
 * Communicators are made before step 0 in one order that is the same everywhere, so that nobody waits in a circle, and used once each:
 * messages connect at the first use. Sums would connect when an algorithm is first chosen (NCCL 2.22 and later), in the middle of a
 * step; NCCL_RUNTIME_CONNECT=0 has all connected when the communicator is made. */
#include "gpu_rt.h"
#include <stdlib.h>

static struct {
	bool on;
	double timeout;
} way;

bool rt_nccl_on(void) { return way.on; }

bool rt_nccl_may(void)
{
#if defined RT_NCCL
	return rt_program && rt_tasks() > 1 && !rt_alone;
#else
	return false;
#endif
}

#if !defined RT_NCCL

void rt_nccl_look(void) {}
void rt_nccl_settle(void) {}
void rt_gpu_leave(void) {}
bool rt_nccl_built(void) { return false; }
void rt_nccl_open(void) {}

size_t rt_nccl_find(const pd_program *p, double timeout)
{
	(void)p;
	(void)timeout;
	return 0;
}

bool rt_nccl_message(rt_flight *f, int channel, int mb, int peer, void *buf, size_t bytes, bool sends)
{
	(void)f;
	(void)channel;
	(void)mb;
	(void)peer;
	(void)buf;
	(void)bytes;
	(void)sends;
	return false;
}

bool rt_nccl_sum(rt_flight *f, const pd_group *g, float *buf, size_t count)
{
	(void)f;
	(void)g;
	(void)buf;
	(void)count;
	return false;
}

bool rt_nccl_members(rt_flight *f, bool gathers, void *to, const void *from, size_t n)
{
	(void)f;
	(void)gathers;
	(void)to;
	(void)from;
	(void)n;
	return false;
}

bool rt_nccl_broadcast(rt_flight *f, const pd_group *g, int from, void *buf, size_t bytes)
{
	(void)f;
	(void)g;
	(void)from;
	(void)buf;
	(void)bytes;
	return false;
}

bool rt_nccl_rows(rt_flight *f, const pd_group *g, int grains, int32_t *ids, float *rows, int64_t n, int64_t width)
{
	(void)f;
	(void)g;
	(void)grains;
	(void)ids;
	(void)rows;
	(void)n;
	(void)width;
	return false;
}

#else

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>

void host_broadcast(const pd_group *g, int from, void *buf, size_t bytes);

enum { MEMBERS = -2 };
typedef struct joint {  /* a communicator */
	pd_group of;    /* of a lane: from, to */
	int lane, self; /* lane -1: sums, MEMBERS: of a tensor group; self: the place of this rank */
	ncclComm_t comm;
	cudaStream_t stream;
} joint;

static joint *joints;
static int njoints, nlanes;

bool rt_nccl_built(void) { return true; }

/* ---- what goes wrong ---- */

static void members(const joint *j, char *text, size_t room)
{
	size_t n = 0;

	for (int i = 0; i < j->of.n && n < room; i++)
		n += (size_t)snprintf(text + n, room - n, "%s%s",
			i == 0            ? ""
			: i + 1 < j->of.n ? ", "
			: j->lane < 0     ? " and "
					  : " to ",
			rt_name(j->of.rank[i]));
}

/* A rank that is gone is the better reason: it may take a moment until that shows. Nothing is aborted before: that may wait for kernels
 * of other communicators, and the process ends here. */
static _Noreturn void broken(const joint *j, ncclResult_t r, const char *what)
{
	const bool other = r == ncclSystemError || r == ncclRemoteError;
	char who[600], last[600];

	snprintf(last, sizeof last, "%s", ncclGetLastError(j->comm));
	if (r == ncclUnhandledCudaError && strstr(last, "out of memory"))
		rt_gpu_lacks("NCCL");
	for (int i = 0; i < 30 && other; i++) {
		rt_look();
		rt_nap(50000);
	}
	members(j, who, sizeof who);
	rt_fail(other ? RT_LOST : RT_ERROR, "R525", "NCCL on %s, %s %s: %s in step %lld: %s: %s", pd_device_name(),
		j->lane < 0 ? "AllReduce of" : "messages from", who, what, (long long)rt_step, ncclGetErrorString(r),
		last);
}

static void check(const joint *j, ncclResult_t r, const char *what)
{
	if (r != ncclSuccess)
		broken(j, r, what);
}

enum { FLIGHTS = 4096 };
/* What is under way. One that begins before the last of its place has ended leaves that one its events, and gets others. */
static struct {
	rt_flight f, *of;
} flights[FLIGHTS]; /* of: NULL where its place has another by now */
static struct {
	cudaEvent_t ready, done;
} spare[FLIGHTS];
static int nflights, nspare;
static double moved; /* when one of them last came to its end */

static void land(void)
{
	int n = 0;

	for (int i = 0; i < nflights; i++)
		if (rt_not_yet(cudaEventQuery(flights[i].f.done))) {
			flights[n++] = flights[i];
		} else if (flights[i].of) {
			flights[i].of->under_way = false;
		} else if (nspare < FLIGHTS) {
			spare[nspare].ready = flights[i].f.ready;
			spare[nspare++].done = flights[i].f.done;
		}
	if (n < nflights || n == 0)
		moved = rt_now();
	nflights = n;
}

/* The device has come as far as to begin one: before, what is slow is its own computing, and nobody else is waited for. */
static bool any_ready(void)
{
	for (int i = 0; i < nflights; i++)
		if (!rt_not_yet(cudaEventQuery(flights[i].f.ready)))
			return true;
	return false;
}

/* Nothing has come to its end for the timeout. */
static _Noreturn void overdue(void)
{
	const rt_flight *f = &flights[0].f;
	char doing[64], why[1200], what[400], text[300];

	for (int i = nflights - 1; i >= 0; i--) /* what this rank lacks, rather than what others have not taken */
		f = flights[i].f.sends ? f : &flights[i].f;
	rt_channel_text(text, sizeof text, f->channel);
	if (f->channel >= 0)
		snprintf(what, sizeof what, "microbatch %d of step %lld on channel %d%s", f->mb, (long long)f->step,
			f->channel, text);
	else
		snprintf(what, sizeof what, "%s in step %lld",
			f->peer < rt_program->world ? "an AllReduce" : "what a tensor group tells each other",
			(long long)f->step);
	rt_doing(doing, sizeof doing);
	const int task = rt_missing(rt_task_of(f->peer), why, sizeof why);

	rt_fail(RT_LOST, "R102", "%s %s %s by NCCL within %g s (%s, in %s); missing: %s %s", what,
		f->channel < 0 ? "did not come to its end with"
		: f->sends     ? "was not taken by"
			       : "did not come from",
		rt_name(f->peer), way.timeout, pd_device_name(), doing, rt_task_name(task), why);
}

void rt_nccl_look(void)
{
	static double asked, looked;
	const double now = rt_now();

	if (!way.on || now - asked < 1e-3 || rt_capturing())
		return;
	if (now - asked > 1) /* nobody looked meanwhile */
		moved += now - asked;
	asked = now;
	land();
	for (int i = 0; i < njoints; i++) {
		ncclResult_t r = ncclSuccess;

		if (!joints[i].comm || ncclCommGetAsyncError(joints[i].comm, &r) != ncclSuccess || r == ncclSuccess ||
			r == ncclInProgress)
			continue;
		broken(&joints[i], r, "it failed");
	}
	if (now - looked < 0.25)
		return;
	looked = now;
	rt_look();
	if (!any_ready())
		moved = now;
	if (nflights &&
		now - moved > 0.9 * way.timeout) /* before those who wait for the host's messages, and know less */
		overdue();
}

/* ---- what crosses ---- */

static const joint *group_of(const pd_group *g)
{
	for (int i = 0; i < njoints && way.on; i++)
		if (joints[i].lane == -1 && joints[i].of.n == g->n &&
			!memcmp(joints[i].of.rank, g->rank, (size_t)g->n * sizeof *g->rank))
			return &joints[i];
	return NULL;
}

static const joint *lane_of(int from, int to, int lane)
{
	for (int i = 0; i < njoints; i++)
		if (joints[i].lane == lane && joints[i].of.rank[0] == from && joints[i].of.rank[1] == to)
			return &joints[i];
	return NULL;
}

static void begin(rt_flight *f, const joint *j)
{
	if (f->under_way) {
		for (int i = 0; i < nflights; i++)
			flights[i].of = flights[i].of == f ? NULL : flights[i].of;
		f->ready = nspare ? spare[nspare - 1].ready : NULL;
		f->done = nspare ? spare[--nspare].done : NULL;
		f->under_way = false;
	}
	rt_record_on(&f->ready, RT_COMPUTE);
	rt_gpu_check(cudaStreamWaitEvent(j->stream, f->ready, 0), "cudaStreamWaitEvent");
}

static void begun(rt_flight *f, const joint *j)
{
	rt_record_at(&f->done, j->stream);
	f->step = rt_step;
	if (nflights == FLIGHTS && !rt_capturing())
		land();
	if (nflights == 0)
		moved = rt_now();
	if (nflights < FLIGHTS) {
		f->under_way = true;
		flights[nflights].of = f;
		flights[nflights++].f = *f;
	}
}

bool rt_nccl_message(rt_flight *f, int channel, int mb, int peer, void *buf, size_t bytes, bool sends)
{
	const int me = rt_program->rank;
	const joint *j = NULL;

	for (int i = 0; i < rt_program->nlinks && way.on; i++) {
		const pd_link *l = &rt_program->links[i];

		if (l->channel == channel && l->peer == peer && l->sends == sends && l->lane >= 0)
			j = lane_of(sends ? me : peer, sends ? peer : me, l->lane);
	}
	if (!j)
		return false;
	begin(f, j);
	check(j,
		sends ? ncclSend(buf, bytes, ncclUint8, 1, j->comm, j->stream)
		      : ncclRecv(buf, bytes, ncclUint8, 0, j->comm, j->stream),
		sends ? "ncclSend" : "ncclRecv");
	f->channel = channel;
	f->mb = mb;
	f->peer = peer;
	f->sends = sends;
	begun(f, j);
	return true;
}

static void of_group(rt_flight *f, const joint *j)
{
	f->channel = -1;
	f->peer = j->of.rank[(j->self + 1) % j->of.n];
	f->sends = false;
	begun(f, j);
}

bool rt_nccl_sum(rt_flight *f, const pd_group *g, float *buf, size_t count)
{
	const joint *j = group_of(g);

	if (!j)
		return false;
	begin(f, j);
	check(j, ncclAllReduce(buf, buf, count, ncclFloat32, ncclSum, j->comm, j->stream), "ncclAllReduce");
	of_group(f, j);
	return true;
}

static const joint *members_joint(void)
{
	for (int i = 0; i < njoints && way.on; i++)
		if (joints[i].lane == MEMBERS)
			return &joints[i];
	return NULL;
}

bool rt_nccl_members(rt_flight *f, bool gathers, void *to, const void *from, size_t n)
{
	const joint *j = members_joint();

	if (!j)
		return false;
	begin(f, j);
	if (gathers)
		check(j, ncclAllGather(from, to, n, ncclUint8, j->comm, j->stream), "ncclAllGather");
	else
		check(j, ncclAllReduce(from, to, n, ncclFloat32, ncclSum, j->comm, j->stream), "ncclAllReduce");
	of_group(f, j);
	return true;
}

bool rt_nccl_broadcast(rt_flight *f, const pd_group *g, int from, void *buf, size_t bytes)
{
	const joint *j = group_of(g);

	if (!j)
		return false;
	begin(f, j);
	check(j, ncclBroadcast(buf, buf, bytes, ncclUint8, from, j->comm, j->stream), "ncclBroadcast");
	of_group(f, j);
	return true;
}

bool rt_nccl_rows(rt_flight *f, const pd_group *g, int grains, int32_t *ids, float *rows, int64_t n, int64_t width)
{
	const joint *j = group_of(g);
	const int period = rt_program->grains ? rt_program->grains : grains;

	if (!j)
		return false;
	begin(f, j);
	check(j, ncclGroupStart(), "ncclGroupStart");
	for (int k = 0; k < grains; k++) {
		const int owner = rt_program->in_turn ? k % g->n : (int)((int64_t)(k % period) * g->n / period);
		int32_t *id = ids + k * n;
		float *row = rows + k * n * width;

		check(j, ncclBroadcast(id, id, (size_t)n, ncclInt32, owner, j->comm, j->stream), "ncclBroadcast");
		check(j, ncclBroadcast(row, row, (size_t)(n * width), ncclFloat32, owner, j->comm, j->stream),
			"ncclBroadcast");
	}
	check(j, ncclGroupEnd(), "ncclGroupEnd");
	of_group(f, j);
	return true;
}

/* ---- before step 0 ---- */

static int by_members(const void *a, const void *b)
{
	const joint *x = a, *y = b;

	if (x->of.n != y->of.n)
		return x->of.n < y->of.n ? -1 : 1;
	for (int i = 0; i < x->of.n; i++)
		if (x->of.rank[i] != y->of.rank[i])
			return x->of.rank[i] < y->of.rank[i] ? -1 : 1;
	return (x->lane > y->lane) - (x->lane < y->lane);
}

static void want(const int *rank, int n, int lane)
{
	int *ranks = rt_alloc((size_t)n * sizeof *ranks);
	joint j = { .of = { n, ranks }, .lane = lane, .self = -1 };

	memcpy(ranks, rank, (size_t)n * sizeof *rank);
	for (int i = 0; i < n; i++)
		j.self = rank[i] == (lane == MEMBERS ? rt_program->world + rt_member : rt_program->rank) ? i : j.self;
	for (int i = 0; i < njoints; i++)
		if (!by_members(&joints[i], &j))
			return;
	joints[njoints++] = j;
}

static void want_members(const pd_program *p)
{
	int peer[RT_MEMBERS];

	for (int k = 0; k < rt_group(); k++)
		peer[k] = p->world + k;
	if (rt_group() > 1)
		want(peer, rt_group(), MEMBERS);
}

/* Receives that wait hold their part of the GPU: of its 132 multiprocessors and more 32 for all lanes. */
static int lane_blocks(void) { return 32 / nlanes < 2 ? 2 : 32 / nlanes > 16 ? 16 : 32 / nlanes; }

typedef struct birth {
	joint *j;
	ncclUniqueId id;
	ncclResult_t r;
	atomic_bool over;
} birth;

static void *make(void *what)
{
	birth *b = what;
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

	rt_gpu_here();
	config.blocking = 1;
	if (b->j->lane >= 0)
		config.maxCTAs = lane_blocks();
	b->r = ncclCommInitRankConfig(&b->j->comm, b->j->of.n, b->id, b->j->self, &config);
	atomic_store(&b->over, true);
	return NULL;
}

/* All members come here; a call of NCCL's waits for them without end, so that it has a thread of its own. */
static void connect(joint *j)
{
	static birth b;
	pthread_t thread;
	const double from = rt_now();

	b.j = j;
	if (j->self == 0)
		check(j, ncclGetUniqueId(&b.id), "ncclGetUniqueId");
	if (j->lane == MEMBERS)
		rt_tensor_tell(&b.id, sizeof b.id);
	else
		host_broadcast(&j->of, 0, &b.id, sizeof b.id);
	atomic_store(&b.over, false);
	if (pthread_create(&thread, NULL, make, &b))
		rt_fail(RT_MEMORY, "R110", "no thread for NCCL");
	while (!atomic_load(&b.over)) {
		rt_look();
		rt_nap(1000);
		if (rt_now() - from > way.timeout) {
			char who[600];

			members(j, who, sizeof who);
			rt_fail(RT_LOST, "R525", "NCCL on %s does not connect %s within %g s", pd_device_name(), who,
				way.timeout);
		}
	}
	pthread_join(thread, NULL);
	check(j, b.r, "ncclCommInitRankConfig");
}

static void first_use(const joint *j, float *scrap)
{
	static rt_flight f;

	begin(&f, j);
	if (j->lane >= 0) {
		check(j,
			j->self == 0 ? ncclSend(scrap, 1, ncclFloat32, 1, j->comm, j->stream)
				     : ncclRecv(scrap, 1, ncclFloat32, 0, j->comm, j->stream),
			"the first message");
	} else {
		check(j, ncclAllReduce(scrap, scrap, 1, ncclFloat32, ncclSum, j->comm, j->stream),
			"the first AllReduce");
		if (j->lane == MEMBERS)
			check(j, ncclAllGather(scrap + j->self, scrap, 1, ncclFloat32, j->comm, j->stream),
				"the first AllGather");
		else
			check(j, ncclBroadcast(scrap, scrap, 1, ncclFloat32, 0, j->comm, j->stream),
				"the first broadcast");
	}
	of_group(&f, j);
	rt_until(f.done);
	land();
}

/* The communicators that this rank takes part in. Gives what to allow for their buffers, which NCCL alone knows: one there and one back for
 * each block that works on messages, for sums of up to 32 of them. */
size_t rt_nccl_find(const pd_program *p, double timeout)
{
	const char *said = getenv("NCCL_BUFFSIZE");
	const size_t buffer = said ? (size_t)strtoull(said, NULL, 10) : (size_t)4 << 20;

	way.timeout = timeout;
	joints = rt_alloc((size_t)(p->nlinks + p->ngroups + 3) * sizeof *joints);
	for (int i = 0; i < p->nlinks; i++) {
		const pd_link *l = &p->links[i];

		if (l->lane >= 0)
			want((const int[]){ l->sends ? p->rank : l->peer, l->sends ? l->peer : p->rank }, 2, l->lane);
	}
	for (int i = 0; i < p->ngroups; i++)
		want(p->groups[i].rank, p->groups[i].n, -1);
	if (rt_late && p->world > 1)
		want(rt_world()->rank, p->world, -1);
	want_members(p);
	for (int i = 0; i < njoints; i++)
		nlanes += joints[i].lane >= 0;
	qsort(joints, (size_t)njoints, sizeof *joints, by_members);
	return 2 * buffer *
	       (nlanes ? (size_t)(nlanes * lane_blocks() + 32 * (njoints - nlanes)) : (size_t)(32 * njoints));
}

/* From the first connection on nothing may ask for memory. */
void rt_nccl_open(void)
{
	const size_t bytes = (size_t)rt_group() * sizeof(float);
	float *scrap = rt_device_memory(bytes, "a number for NCCL's first use");

	setenv("NCCL_RUNTIME_CONNECT", "0", 0);
	pd_fill(scrap, 0, bytes);
	for (int i = 0; i < njoints; i++) {
		if (joints[i].lane == -1)
			joints[i].stream = rt_stream(RT_SUMS);
		else
			rt_gpu_check(cudaStreamCreateWithFlags(&joints[i].stream, cudaStreamNonBlocking),
				"cudaStreamCreate");
	}
	way.on = true;
	for (int i = 0; i < njoints; i++) {
		connect(&joints[i]);
		first_use(&joints[i], scrap);
	}
}

void rt_nccl_settle(void)
{
	for (int i = 0; i < njoints && way.on; i++)
		rt_finish(joints[i].stream);
}

void rt_gpu_leave(void)
{
	if (!way.on)
		return;
	rt_nccl_settle();
	way.on = false;
	for (int i = 0; i < njoints; i++)
		ncclCommDestroy(joints[i].comm);
}

#endif
