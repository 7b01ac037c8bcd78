/* gpu_nccl_open.c: communicators of NCCL (gpu_nccl.c), made before step 0 and given back at the end. They are made in one order that is the same
 * everywhere, so that nobody waits in a circle, and used once each: messages connect at the first use. Sums would connect when an
 * algorithm is first chosen (NCCL 2.22 and later), in the middle of a step; NCCL_RUNTIME_CONNECT=0 has all connected when the
 * communicator is made. */
#include "gpu_parts.h"
#include <stdlib.h>

#if !defined RT_NCCL

void rt_nccl_settle(void) {}
void rt_gpu_leave(void) {}
void rt_nccl_open(void) {}

size_t rt_nccl_find(const pd_program *p, double timeout)
{
	(void)p;
	(void)timeout;
	return 0;
}

#else

#include "gpu_nccl.h"
#include <pthread.h>
#include <stdatomic.h>

void host_broadcast(const pd_group *g, int from, void *buf, size_t bytes);

static int nlanes;

static int by_members(const void *a, const void *b)
{
	const rt_joint *x = a, *y = b;

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
	rt_joint j = { .of = { n, ranks }, .lane = lane, .self = -1 };

	memcpy(ranks, rank, (size_t)n * sizeof *rank);
	for (int i = 0; i < n; i++)
		j.self = rank[i] == (lane == RT_MEMBERS_JOINT ? rt_program->world + rt_member : rt_program->rank)
		                 ? i
		                 : j.self;
	for (int i = 0; i < rt_joints.n; i++)
		if (!by_members(&rt_joints.v[i], &j))
			return;
	rt_joints.v[rt_joints.n++] = j;
}

static void want_members(const pd_program *p)
{
	int peer[RT_MEMBERS];

	for (int k = 0; k < rt_group(); k++)
		peer[k] = p->world + k;
	if (rt_group() > 1)
		want(peer, rt_group(), RT_MEMBERS_JOINT);
}

/* Receives that wait hold their part of the GPU: of its 132 multiprocessors and more 32 for all lanes. */
static int lane_blocks(void) { return 32 / nlanes < 2 ? 2 : 32 / nlanes > 16 ? 16 : 32 / nlanes; }

typedef struct birth {
	rt_joint *j;
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
static void connect(rt_joint *j)
{
	static birth b;
	pthread_t thread;
	const double from = rt_now();

	b.j = j;
	if (j->self == 0)
		rt_joint_check(j, ncclGetUniqueId(&b.id), "ncclGetUniqueId");
	if (j->lane == RT_MEMBERS_JOINT)
		rt_tensor_tell(&b.id, sizeof b.id);
	else
		host_broadcast(&j->of, 0, &b.id, sizeof b.id);
	atomic_store(&b.over, false);
	if (pthread_create(&thread, NULL, make, &b))
		rt_fail(RT_MEMORY, "R110", "no thread for NCCL");
	while (!atomic_load(&b.over)) {
		rt_look();
		rt_nap(1000);
		if (rt_now() - from > rt_joints.timeout) {
			char who[600];

			rt_joint_names(j, who, sizeof who);
			rt_fail(RT_LOST, "R525", "NCCL on %s does not connect %s within %g s", pd_device_name(), who,
				rt_joints.timeout);
		}
	}
	pthread_join(thread, NULL);
	rt_joint_check(j, b.r, "ncclCommInitRankConfig");
}

/* Of what crosses in a group, each kind of call. scrap: a number for each member. */
static void first_calls(const rt_joint *j, float *scrap)
{
	const bool members = j->lane == RT_MEMBERS_JOINT, parts = !members && rt_moves_parts(&j->of);

	rt_joint_check(
		j, ncclAllReduce(scrap, scrap, 1, ncclFloat32, ncclSum, j->comm, j->stream), "the first AllReduce");
	if (members || parts)
		rt_joint_check(j, ncclAllGather(scrap + j->self, scrap, 1, ncclFloat32, j->comm, j->stream),
			"the first AllGather");
	if (j->lane != RT_MEMBERS_JOINT)
		rt_joint_check(
			j, ncclBroadcast(scrap, scrap, 1, ncclFloat32, 0, j->comm, j->stream), "the first broadcast");
	if (!parts)
		return;
	rt_joint_check(j, ncclReduceScatter(scrap, scrap + j->self, 1, ncclFloat32, ncclSum, j->comm, j->stream),
		"the first ReduceScatter");
	rt_joint_check(j, ncclReduce(scrap, scrap, 1, ncclFloat32, ncclSum, 0, j->comm, j->stream), "the first Reduce");
}

static void first_use(const rt_joint *j, float *scrap)
{
	static rt_flight f;

	rt_flight_begin(&f, j);
	if (j->lane >= 0)
		rt_joint_check(j,
			j->self == 0 ? ncclSend(scrap, 1, ncclFloat32, 1, j->comm, j->stream)
				     : ncclRecv(scrap, 1, ncclFloat32, 0, j->comm, j->stream),
			"the first message");
	else
		first_calls(j, scrap);
	rt_flight_of_group(&f, j);
	rt_until(f.done);
	rt_flights_land();
}

/* The communicators that this rank takes part in. Gives what to allow for their buffers, which NCCL alone knows: one there and one back for
 * each block that works on messages, for sums of up to 32 of them. */
size_t rt_nccl_find(const pd_program *p, double timeout)
{
	const char *said = getenv("NCCL_BUFFSIZE");
	const size_t buffer = said ? (size_t)strtoull(said, NULL, 10) : (size_t)4 << 20;

	rt_joints.timeout = timeout;
	rt_joints.v = rt_alloc((size_t)(p->nlinks + p->ngroups + 3) * sizeof *rt_joints.v);
	for (int i = 0; i < p->nlinks; i++) {
		const pd_link *l = &p->links[i];

		if (l->lane >= 0)
			want((const int[]){ l->sends ? p->rank : l->peer, l->sends ? l->peer : p->rank }, 2, l->lane);
	}
	for (int i = 0; i < p->ngroups; i++)
		want(p->groups[i].rank, p->groups[i].n, RT_SUMS_JOINT);
	if (rt_late && p->world > 1)
		want(rt_world()->rank, p->world, RT_SUMS_JOINT);
	want_members(p);
	for (int i = 0; i < rt_joints.n; i++)
		nlanes += rt_joints.v[i].lane >= 0;
	qsort(rt_joints.v, (size_t)rt_joints.n, sizeof *rt_joints.v, by_members);
	return 2 * buffer *
	       (nlanes ? (size_t)(nlanes * lane_blocks() + 32 * (rt_joints.n - nlanes)) : (size_t)(32 * rt_joints.n));
}

/* From the first connection on nothing may ask for memory. */
void rt_nccl_open(void)
{
	size_t bytes = sizeof(float);

	for (int i = 0; i < rt_joints.n; i++)
		if (bytes < (size_t)rt_joints.v[i].of.n * sizeof(float))
			bytes = (size_t)rt_joints.v[i].of.n * sizeof(float);
	float *scrap = rt_device_memory(bytes, "a number for NCCL's first use");

	setenv("NCCL_RUNTIME_CONNECT", "0", 0);
	pd_fill(scrap, 0, bytes);
	for (int i = 0; i < rt_joints.n; i++) {
		if (rt_joints.v[i].lane == RT_SUMS_JOINT)
			rt_joints.v[i].stream = rt_stream(RT_SUMS);
		else
			rt_gpu_check(cudaStreamCreateWithFlags(&rt_joints.v[i].stream, cudaStreamNonBlocking),
				"cudaStreamCreate");
	}
	rt_joints.on = true;
	for (int i = 0; i < rt_joints.n; i++) {
		connect(&rt_joints.v[i]);
		first_use(&rt_joints.v[i], scrap);
	}
}

void rt_nccl_settle(void)
{
	for (int i = 0; i < rt_joints.n && rt_joints.on; i++)
		rt_finish(rt_joints.v[i].stream);
}

void rt_gpu_leave(void)
{
	if (!rt_joints.on)
		return;
	rt_nccl_settle();
	rt_joints.on = false;
	for (int i = 0; i < rt_joints.n; i++)
		ncclCommDestroy(rt_joints.v[i].comm);
}

#endif
