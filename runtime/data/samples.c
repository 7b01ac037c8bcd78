/* samples.c: which sample stands where in a run.
 *
 * Places are counted from 0 through the whole run: step, microbatch, place in it. An epoch is a run of `span`
 * places; within it the samples come in their order, or in one that depends on seed and epoch alone. Nothing is
 * kept: any place of any epoch is computed, so that every plan, every number of replicas and every resumed run
 * sees the same samples. */
#include "rt.h"

/* A permutation of [0, n) per epoch without a table: a Feistel network over the next even power
 * of two, walked until it lands inside. */
static int64_t permuted(rt_order *o, int64_t epoch, int64_t i)
{
	const int64_t n = o->samples;
	int bits = 2;

	while (((int64_t)1 << bits) < n)
		bits += 2;
	const int half = bits / 2;
	const uint64_t mask = ((uint64_t)1 << half) - 1;
	uint64_t x = (uint64_t)i;

	if (o->epoch != epoch)
		for (int round = 0; round < 4; round++)
			o->key[round] = pd_random_stream(o->seed, (uint64_t)epoch, (uint64_t)round);
	o->epoch = epoch;

	do {
		for (int round = 0; round < 4; round++) {
			const uint64_t l = x >> half, r = x & mask;

			x = r << half | ((l ^ pd_random_of(o->key[round], r)) & mask);
		}
	} while (x >= (uint64_t)n);
	return (int64_t)x;
}

rt_order rt_order_of(int64_t samples, int64_t batch, pd_last last, bool shuffle, uint64_t seed)
{
	const int64_t left = batch > 0 ? samples % batch : 0;

	return (rt_order){ .samples = samples,
		.shuffle = shuffle,
		.seed = seed,
		.epoch = -1,
		.span = last == PD_LAST_KEEP && left   ? samples - left + batch
		        : last == PD_LAST_DROP && left ? samples - left
		                                       : samples };
}

int64_t rt_order_at(rt_order *o, int64_t place, bool *absent)
{
	int64_t i = place % o->span;

	*absent = i >= o->samples;
	if (*absent)
		i %= o->samples;
	return o->shuffle ? permuted(o, place / o->span, i) : i;
}
