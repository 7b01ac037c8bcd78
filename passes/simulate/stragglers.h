/* Devices that are slow for a step now and then: what a step of a plan takes beside them. */
#ifndef PDCC_PASSES_STRAGGLERS_H
#define PDCC_PASSES_STRAGGLERS_H

#include "passes/simulate/simulate.h"

/* In each step each device computes, with probability `share` and whatever the others do, `times` as long. Links are not slower. */
struct Stragglers {
	double share, times;
	int group;     /* devices of a rank: a tensor group is as slow as its slowest */
	uint64_t draw; /* which of the plays this is */
};

/* What the rank computes in that step takes so many times as long: drawn from a counter, so the same wherever it is asked. */
double straggler_factor(const Stragglers *g, int rank, int step);
/* Seconds of a step, the mean of up to 10,000 plays of it, of large plans fewer, at least 20; of an asynchronous schedule in its
 * steady state. Below 0: E0503 was said. */
double straggling_step(const Sim *s, double share, double times, int group, Diag *d);

#endif
