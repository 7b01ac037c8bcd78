/* gpu_nccl_calls.c: what crosses between GPUs by NCCL (gpu_nccl.c): messages, sums, what a tensor group tells each other, rows, and parts
 * of tensors. */
#include "gpu_parts.h"

#if !defined RT_NCCL

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

bool rt_nccl_members(rt_flight *f, rt_told what, void *to, const void *from, size_t n)
{
	(void)f;
	(void)what;
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

bool rt_nccl_parts(rt_flight *f, const rt_moved *m)
{
	(void)f;
	(void)m;
	return false;
}

#else

#include "gpu_nccl.h"

static const rt_joint *group_of(const pd_group *g)
{
	for (int i = 0; i < rt_joints.n && rt_joints.on; i++)
		if (rt_joints.v[i].lane == RT_SUMS_JOINT && rt_joints.v[i].of.n == g->n &&
			!memcmp(rt_joints.v[i].of.rank, g->rank, (size_t)g->n * sizeof *g->rank))
			return &rt_joints.v[i];
	return NULL;
}

static const rt_joint *lane_of(int from, int to, int lane)
{
	for (int i = 0; i < rt_joints.n; i++)
		if (rt_joints.v[i].lane == lane && rt_joints.v[i].of.rank[0] == from && rt_joints.v[i].of.rank[1] == to)
			return &rt_joints.v[i];
	return NULL;
}

bool rt_nccl_message(rt_flight *f, int channel, int mb, int peer, void *buf, size_t bytes, bool sends)
{
	const int me = rt_program->rank;
	const rt_joint *j = NULL;

	for (int i = 0; i < rt_program->nlinks && rt_joints.on; i++) {
		const pd_link *l = &rt_program->links[i];

		if (l->channel == channel && l->peer == peer && l->sends == sends && l->lane >= 0)
			j = lane_of(sends ? me : peer, sends ? peer : me, l->lane);
	}
	if (!j)
		return false;
	rt_flight_begin(f, j);
	rt_joint_check(j,
		sends ? ncclSend(buf, bytes, ncclUint8, 1, j->comm, j->stream)
		      : ncclRecv(buf, bytes, ncclUint8, 0, j->comm, j->stream),
		sends ? "ncclSend" : "ncclRecv");
	f->channel = channel;
	f->mb = mb;
	f->peer = peer;
	f->sends = sends;
	rt_flight_begun(f, j);
	return true;
}

bool rt_nccl_sum(rt_flight *f, const pd_group *g, float *buf, size_t count)
{
	const rt_joint *j = group_of(g);

	if (!j)
		return false;
	rt_flight_begin(f, j);
	rt_joint_check(j, ncclAllReduce(buf, buf, count, ncclFloat32, ncclSum, j->comm, j->stream), "ncclAllReduce");
	rt_flight_of_group(f, j);
	return true;
}

static const rt_joint *members_joint(void)
{
	for (int i = 0; i < rt_joints.n && rt_joints.on; i++)
		if (rt_joints.v[i].lane == RT_MEMBERS_JOINT)
			return &rt_joints.v[i];
	return NULL;
}

bool rt_nccl_members(rt_flight *f, rt_told what, void *to, const void *from, size_t n)
{
	const rt_joint *j = members_joint();

	if (!j)
		return false;
	rt_flight_begin(f, j);
	if (what == RT_TOLD_ALL)
		rt_joint_check(j, ncclAllGather(from, to, n, ncclUint8, j->comm, j->stream), "ncclAllGather");
	else if (what == RT_TOLD_PART)
		rt_joint_check(j, ncclReduceScatter(from, to, n, ncclFloat32, ncclSum, j->comm, j->stream),
			"ncclReduceScatter");
	else
		rt_joint_check(
			j, ncclAllReduce(from, to, n, ncclFloat32, ncclSum, j->comm, j->stream), "ncclAllReduce");
	rt_flight_of_group(f, j);
	return true;
}

bool rt_nccl_broadcast(rt_flight *f, const pd_group *g, int from, void *buf, size_t bytes)
{
	const rt_joint *j = group_of(g);

	if (!j)
		return false;
	rt_flight_begin(f, j);
	rt_joint_check(j, ncclBroadcast(buf, buf, bytes, ncclUint8, from, j->comm, j->stream), "ncclBroadcast");
	rt_flight_of_group(f, j);
	return true;
}

bool rt_nccl_rows(rt_flight *f, const pd_group *g, int grains, int32_t *ids, float *rows, int64_t n, int64_t width)
{
	const rt_joint *j = group_of(g);
	const int period = rt_program->grains ? rt_program->grains : grains;

	if (!j)
		return false;
	rt_flight_begin(f, j);
	rt_joint_check(j, ncclGroupStart(), "ncclGroupStart");
	for (int k = 0; k < grains; k++) {
		const int owner = rt_program->in_turn ? k % g->n : (int)((int64_t)(k % period) * g->n / period);
		int32_t *id = ids + k * n;
		float *row = rows + k * n * width;

		rt_joint_check(
			j, ncclBroadcast(id, id, (size_t)n, ncclInt32, owner, j->comm, j->stream), "ncclBroadcast");
		rt_joint_check(j, ncclBroadcast(row, row, (size_t)(n * width), ncclFloat32, owner, j->comm, j->stream),
			"ncclBroadcast");
	}
	rt_joint_check(j, ncclGroupEnd(), "ncclGroupEnd");
	rt_flight_of_group(f, j);
	return true;
}

/* Of one tensor. Where all parts are as large that is one call, else each part has one. */
static void scatter(const rt_joint *j, char *at, const pd_part *p)
{
	if (p->n == p->part * j->of.n) {
		rt_joint_check(j,
			ncclReduceScatter(at, at + sizeof(float) * (size_t)(p->part * j->self), (size_t)p->part,
				ncclFloat32, ncclSum, j->comm, j->stream),
			"ncclReduceScatter");
		return;
	}
	for (int r = 0; r < j->of.n; r++) {
		char *of = at + sizeof(float) * pd_part_at(r, p->part, p->n);
		const size_t n = pd_part_of(r, p->part, p->n);

		if (n)
			rt_joint_check(
				j, ncclReduce(of, of, n, ncclFloat32, ncclSum, r, j->comm, j->stream), "ncclReduce");
	}
}

static void gather(const rt_joint *j, char *at, const char *own, const pd_part *p, size_t size)
{
	if (p->n == p->part * j->of.n) {
		rt_joint_check(j, ncclAllGather(own, at, size * (size_t)p->part, ncclUint8, j->comm, j->stream),
			"ncclAllGather");
		return;
	}
	for (int r = 0; r < j->of.n; r++) {
		char *to = at + size * pd_part_at(r, p->part, p->n);
		const size_t n = size * pd_part_of(r, p->part, p->n);

		if (n)
			rt_joint_check(j,
				ncclBroadcast(r == j->self ? own : to, to, n, ncclUint8, r, j->comm, j->stream),
				"ncclBroadcast");
	}
}

bool rt_nccl_parts(rt_flight *f, const rt_moved *m)
{
	const rt_joint *j = group_of(m->group);

	if (!j)
		return false;
	rt_flight_begin(f, j);
	rt_joint_check(j, ncclGroupStart(), "ncclGroupStart");
	for (int i = 0; i < m->n; i++) {
		const pd_part *p = &m->part[i];
		char *at = (char *)m->buf + m->size * (size_t)p->at;
		const char *own = m->own ? (const char *)m->own + m->size * (size_t)p->own
		                         : at + m->size * pd_part_at(j->self, p->part, p->n);

		if (m->gathers)
			gather(j, at, own, p, m->size);
		else
			scatter(j, at, p);
	}
	rt_joint_check(j, ncclGroupEnd(), "ncclGroupEnd");
	rt_flight_of_group(f, j);
	return true;
}

#endif
