/* cost: seconds per node by the roofline of the device: the slower of its arithmetic and its memory traffic, plus
 * what a call costs. Reads OpDef.cost and the cluster's numbers; writes Node.time. Views cost nothing.
 * Update nodes get their time per step. Predictions rank plans; they are not measurements. */
#include "plan.h"

/* Where the cluster file is silent: one modest CPU core, a mid-range GPU (f32). */
static const double CPU_FLOPS_PER_CORE = 40e9, CPU_BANDWIDTH = 12e9, CPU_LAUNCH = 1e-6;
static const double GPU_FLOPS = 12e12, GPU_BANDWIDTH = 500e9, GPU_LAUNCH = 6e-6;

Speed device_speed(const Cluster *c, int device)
{
	Speed s = { CPU_FLOPS_PER_CORE, CPU_BANDWIDTH, CPU_LAUNCH };

	if (!c || device >= c->ndevice)
		return s;
	const Device *dev = &c->device[device];
	if (dev->cuda)
		s = (Speed){ GPU_FLOPS, GPU_BANDWIDTH, GPU_LAUNCH };
	else if (dev->cores > 1)
		s.flops *= dev->cores;
	if (dev->flops > 0)
		s.flops = dev->flops;
	if (dev->mem_bandwidth > 0)
		s.bandwidth = dev->mem_bandwidth;
	return s;
}

int64_t value_bytes(const Value *v)
{
	Type t = v->type;

	t.rows = 0;
	return type_bytes(&t);
}

static Cost node_cost(const Node *n)
{
	Cost c = { 0, 0 };

	if (optab[n->op]->cost)
		return optab[n->op]->cost(n);
	for (int i = 0; i < n->nin; i++)
		if (n->in[i])
			c.bytes += (double)value_bytes(n->in[i]);
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			c.bytes += (double)value_bytes(n->out[i]);
	return c;
}

double node_time(const Node *n, const Speed *s)
{
	if (optab[n->op]->flags & OP_VIEW)
		return 0;
	const Cost c = node_cost(n);
	const double arith = c.flops / s->flops, mem = c.bytes / s->bandwidth;
	return (arith > mem ? arith : mem) + s->launch;
}

bool pass_cost(Module *m, PassCx *cx)
{
	const Speed s = device_speed(cx->cluster, 0);

	if (!m->graph)
		return diag_error(cx->d, FILELOC(m->file), 410, "cost runs before split; this module has stages already");
	for (Node *n = m->graph->first; n; n = n->next)
		n->time = node_time(n, &s);
	return true;
}
