/* What hosts cost and draw while a planned step is done on them. */
#ifndef PDCC_PASSES_SPEND_H
#define PDCC_PASSES_SPEND_H

#include "simulate.h"

/* Of the hosts with a device of the plan: a host is paid whole, however few of its devices are used. */
typedef struct SimSpend {
	int hosts;
	double price; /* of an hour, in the cluster file's own unit; below 0: of some host it is not said */
	double watts; /* mean over a step; below 0: likewise */
} SimSpend;

/* A host draws its idle power, and of what is between that and its power the share of its devices' time in which they compute:
 * Sim.busy over devices x step. */
SimSpend sim_spend(Arena *a, const Sim *s);

#endif
