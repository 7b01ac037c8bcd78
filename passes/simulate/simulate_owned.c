/* PipeDream's server of a replicated stage (passes/comm/owners.c, runtime/servers/owned.c), simulated: one sum of the stage for all that its
 * replicas tell each other in a round,
 *     every replica's gradients to their owners, each as soon as the last backward in front of SYNC has made it;
 *     what the owners made of the parameters to all others,
 * all of either at one time through the ports. Gradients travel while the backward goes on: a port moves those from k on not
 * before k is made, so that the last is through no sooner than
 *     end = max over k ( made(k) + seconds of all from k on )
 * and the sum begins so long before that as the pushes take with nothing between them. */
#include <stdlib.h>
#include "simulate_ports.h"
#include "ir/analysis.h"
#include "passes/cost/cost.h"

enum {
	POINTS = 16
}; /* gradients at which that is looked at, of which the first is one: the sum begins no sooner than that */

/* Bytes of a gradient, who owns its parameter (-1: each a part, so many bytes), when the backward has made it, in seconds. */
typedef struct Pushed {
	double made;
	int64_t bytes, part;
	int owner, number;
} Pushed;

static int by_time(const void *x, const void *y)
{
	const Pushed *a = x, *b = y;

	return a->made != b->made ? (a->made > b->made) - (a->made < b->made) : a->number - b->number;
}

static int64_t part_bytes(const Value *sum) { return part_of_sum(sum) * dtype_bytes(sum->type.dtype); }

/* What each of n replicas owns of so many bytes. */
static void add_owned(int64_t *of, int n, int64_t bytes, int64_t part, int owner)
{
	for (int r = 0; r < n; r++)
		of[r] += owner < 0 ? part_held(bytes, part, r) : r == owner ? bytes : 0;
}

/* All gradients, in the order in which they are made; *all: seconds of the backward. */
static Pushed *pushed(Arena *a, const SimModel *x, const Stage *s, const Node *sums, double *all)
{
	const Speed first = device_speed(x->c, 0), on = device_speed(x->c, s->device[0]);
	const Ints owner = attr_ints(sums, "owner");
	Pushed *g = NEWN(a, Pushed, sums->nin + 1);
	double *at = NEWN(a, double, sums->nin + 1);
	Map made;

	map_init(&made, a, false);
	for (int i = 0; i < sums->nin; i++)
		map_put(&made, sums->in[i]->def->in[0]->def, &at[i]);
	*all = 0;
	for (const Node *n = s->backward->first; n; n = n->next) {
		double *t = map_get(&made, n);
		*all += node_seconds(n, &first, &on);
		if (t)
			*t = *all;
	}
	for (int i = 0; i < sums->nin; i++) {
		const double *t = map_get(&made, sums->in[i]->def->in[0]->def);
		g[i] = (Pushed){ *t, value_bytes(sums->in[i]), part_bytes(sums->in[i]), (int)owner.v[i], i };
	}
	qsort(g, (size_t)sums->nin, sizeof *g, by_time);
	return g;
}

/* What the owners send of the parameters: each once, however many parts its gradient has. */
static int64_t *newest(Arena *a, const Stage *s, const Node *sums)
{
	const Ints owner = attr_ints(sums, "owner");
	int64_t *bytes = NEWN(a, int64_t, s->replicas);
	Map sent;

	map_init(&sent, a, false);
	for (int i = 0; i < sums->nin; i++) {
		const Value *w = gradient_of(sums->in[i]);
		if (!w || map_get(&sent, w))
			continue;
		map_put(&sent, w, bytes);
		add_owned(bytes, s->replicas, value_bytes(w), part_bytes(sums->in[i]), (int)owner.v[i]);
	}
	return bytes;
}

void sim_add_owned(Arena *a, SimModel *x, const Stage *s, const Node *sums, int *cap)
{
	int64_t *push = NEWN(a, int64_t, s->replicas);
	SimJoin j = { .kind = SIM_OWNED,
		.n = s->replicas,
		.rank = x->s->device[s->id],
		.push = push,
		.bucket = true,
		.stage = s->id,
		.when = ACT_B };
	double all, end = 0, seconds = 0;
	const Pushed *g = pushed(a, x, s, sums, &all);

	for (int i = sums->nin - 1; i >= 0; i--) {
		add_owned(push, s->replicas, g[i].bytes, g[i].part, g[i].owner);
		j.bytes += g[i].bytes;
		if (i % ((sums->nin + POINTS - 1) / POINTS))
			continue;
		seconds = ports_alone(x->c, s->device, j); /* of all from here on */
		end = g[i].made + seconds > end ? g[i].made + seconds : end;
	}
	end -= seconds;
	j.ready = all > 0 && end < all ? end / all : 1;
	j.newest = newest(a, s, sums);
	PUSH(a, x->join, x->njoin, *cap) = j;
}
