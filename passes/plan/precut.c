/* precut: where stages are divided unlike: groups of several sizes (--plan 2x4-1x8), some along the sequence. A node is then divided
 * by the group of its stage, so that stages have to be known before the graph is divided (shard). They are cut as ever, by
 * partition, of the whole graph, on devices as fast and as large as their groups; partition then finds them as they are when it
 * comes to the divided graph. Writes Node.stage, Module.tensor_of, the plan. */
#include "passes/common/plan.h"
#include "passes/cost/cost.h"

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

bool pass_precut(Module *m, PassCx *cx)
{
	const PlanSettings *p = cx->train ? &cx->train->plan : NULL;

	if (!p || !p->tensor_of || m->tensor_of) /* a text from behind it has its stages */
		return true;
	if (!tensor_allowed(m, cx))
		return false;
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
