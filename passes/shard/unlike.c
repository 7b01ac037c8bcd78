/* Stages that are divided unlike: groups of several sizes (--plan 2x4-1x8), some along the sequence. A node is divided by the group of its stage, so that stages have to be
 * known first. They are cut as ever, by partition, of the whole graph, on devices as fast and as large as their groups; partition
 * then finds them as they are when it comes to the divided graph. */
#include "passes/common/plan.h"
#include "shard.h"

/* Each group as one device that does its work in no more time than its members together. */
static Cluster as_devices(const PassCx *cx)
{
	Cluster c = *cx->cluster;

	c.device = arena_dup(cx->scratch, c.device, sizeof *c.device * (size_t)c.ndevice);
	for (int i = 0; i < c.ndevice; i++) {
		const Speed speed = device_speed(cx->cluster, i);
		Device *d = &c.device[i];
		const int members = d->members > 1 ? d->members : 1;

		d->flops = speed.flops * members;
		d->half_flops = speed.half * members;
		d->mem_bandwidth = speed.bandwidth * members;
		d->memory *= members;
	}
	return c;
}

bool shard_stages(Module *m, PassCx *cx)
{
	const PlanSettings *p = &cx->train->plan;
	const Cluster groups = as_devices(cx);
	PassCx first = *cx;

	first.cluster = &groups;
	first.explain = NULL;
	first.measured = first.estimated = NULL;
	if (!pass_cost(m, &first) || !pass_partition(m, &first))
		return false;
	cx->plan = first.plan;
	m->tensor_of = arena_dup(m->arena, p->tensor_of, sizeof *p->tensor_of * (size_t)p->ntensor_of);
	m->ntensor_of = p->ntensor_of;
	return true;
}
