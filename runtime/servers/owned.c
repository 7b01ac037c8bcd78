/* owned.c: the parameter server of a replicated stage (PipeDream section 4): each replica owns some of the parameters. A gradient
 * goes to its owner in the background as soon as the backward has made it; the owner adds those of all replicas, in the order
 * of the tree over them (sums.c), when the round's are there. What it makes of the parameter is broadcast. One request for each
 * gradient and member: the owner receives by it, the others send by their own. */
#include "rt.h"

static const pd_owned *owned;
static const pd_group *group;
static rt_sums *boxes; /* of what this replica owns */
static int nowned, self;

static bool mine(int k) { return owned[k].owner == self; }

void pd_owned_open(const pd_group *g, int replica, const pd_owned *o, int n)
{
	owned = o;
	nowned = n;
	group = g;
	self = replica;
	boxes = rt_alloc((size_t)n * sizeof *boxes);
	for (int k = 0; k < n; k++)
		if (mine(k))
			rt_sums_open(&boxes[k], g->n, g->n, o[k].n, true);
}

void pd_owned_begin(void)
{
	if (rt_alone)
		return;
	rt_lock();
	for (int k = 0; k < nowned; k++) {
		if (!mine(k))
			continue;
		rt_sums_clear(&boxes[k]);
		for (int r = 0; r < group->n; r++) {
			rt_pushed *x = rt_sums_put(&boxes[k], r, 1, 1);

			if (r != self)
				rt_post_recv(rt_owned(k, r), group->rank[r], RT_TAG_OWNED + k, x->values,
					(size_t)owned[k].n * sizeof(float));
		}
	}
	rt_unlock();
}

void pd_owned_push(int k, const float *gradient)
{
	const int to = owned[k].owner;

	if (rt_alone)
		return;
	rt_record("push", -1, -1, group->rank[to]);
	if (mine(k)) {
		memcpy(boxes[k].sum[self].values, gradient, (size_t)owned[k].n * sizeof *gradient);
		return;
	}
	rt_lock();
	rt_post_send(
		rt_owned(k, self), group->rank[to], RT_TAG_OWNED + k, gradient, (size_t)owned[k].n * sizeof *gradient);
	rt_unlock();
}

void pd_owned_sum(int k, float *sum)
{
	int32_t row;

	if (rt_alone)
		return;
	rt_pause();
	rt_wait(rt_owned(k, 0), group->n);
	if (!mine(k))
		return;
	if (!rt_sums_begin(&boxes[k], 0, group->n))
		rt_fail(RT_ERROR, "R123", "the gradient of '%s' in step %lld is not whole", owned[k].name,
			(long long)rt_step);
	memcpy(sum, rt_sums_next(&boxes[k], &row), (size_t)owned[k].n * sizeof *sum);
}
