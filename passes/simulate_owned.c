/* PipeDream's server of a replicated stage (passes/owners.c, runtime/owned.c), simulated: one sum of the stage for all that its
 * replicas tell each other in a round,
 *     every replica's gradients to their owners, each as soon as the last backward in front of SYNC has made it;
 *     what the owners made of the parameters to all others,
 * all of either at one time through the ports. Gradients travel while the backward goes on: a port moves those from k on not
 * before k is made, so that the last is through no sooner than
 *     end = max over k ( made(k) + seconds of all from k on )
 * and the sum begins so long before that as the pushes take with nothing between them. */
#include "servers.h"
#include "simulate_ports.h"

enum { POINTS = 16 };       /* gradients at which that is looked at */

/* When the backward has made each gradient, in seconds; of all of it. */
static double made_at(const SimModel *x, const Stage *s, const Node *sums, double *made)
{
	const Speed first = device_speed(x->c, 0), on = device_speed(x->c, s->device[0]);
	double t = 0;

	for (const Node *n = s->backward->first; n; n = n->next) {
		t += node_seconds(n, &first, &on);
		for (int i = 0; i < sums->nin; i++)
			if (sums->in[i]->def->in[0]->def == n)
				made[i] = t;
	}
	return t;
}

/* The parameter that a gradient's owner sends: once, however many parts the gradient has. */
static bool first_part(const Node *sums, int i)
{
	for (int k = 0; k < i; k++)
		if (gradient_of(sums->in[k]) == gradient_of(sums->in[i]))
			return false;
	return true;
}

/* Seconds of the pushes of what is made at `from` or later. */
static double pushing(const SimModel *x, const Stage *s, const Node *sums, const double *made, double from, int64_t *push)
{
	const Ints owner = attr_ints(sums, "owner");
	const SimJoin j = { .kind = SIM_OWNED, .n = s->replicas, .push = push };

	for (int r = 0; r < s->replicas; r++)
		push[r] = 0;
	for (int i = 0; i < sums->nin; i++)
		push[owner.v[i]] += made[i] >= from ? value_bytes(sums->in[i]) : 0;
	return ports_alone(x->c, s->device, j);
}

void sim_add_owned(Arena *a, SimModel *x, const Stage *s, const Node *sums, int *cap)
{
	const Ints owner = attr_ints(sums, "owner");
	int64_t *push = NEWN(a, int64_t, s->replicas), *newest = NEWN(a, int64_t, s->replicas);
	double *made = NEWN(a, double, sums->nin), end = 0;
	SimJoin j = { .kind = SIM_OWNED, .n = s->replicas, .rank = x->s->device[s->id], .push = push, .newest = newest, .bucket = true,
		.stage = s->id, .when = ACT_B };

	const double all = made_at(x, s, sums, made);
	for (int i = 0; i < sums->nin; i += (sums->nin + POINTS - 1) / POINTS) {
		const double t = made[i] + pushing(x, s, sums, made, made[i], push);
		end = t > end ? t : end;
	}
	end -= pushing(x, s, sums, made, 0, push);
	j.ready = all > 0 && end < all ? end / all : 1;
	for (int i = 0; i < sums->nin; i++) {
		const Value *w = gradient_of(sums->in[i]);
		newest[owner.v[i]] += w && first_part(sums, i) ? value_bytes(w) : 0;
		j.bytes += value_bytes(sums->in[i]);
	}
	PUSH(a, x->join, x->njoin, *cap) = j;
}
