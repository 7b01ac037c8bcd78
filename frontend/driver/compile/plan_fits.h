/* Plans within memory: what finding one (plan_fits.c) and saying what would help (no_plan_fits.c) share. */
#ifndef PDCC_FRONTEND_FIT_H
#define PDCC_FRONTEND_FIT_H

#include "compile.h"

/* The device that lacks most, or is fullest, of what was compiled. */
typedef struct Fit {
	double over; /* bytes needed, in relation to what there is */
	int64_t need, limit;
	int device;
	double step; /* seconds */
} Fit;

/* Another setting. micro: samples in what is compiled. */
typedef struct Way {
	Options o;
	Cluster cluster;
	int64_t micro;
	const char *what;
} Way;

/* What is estimated to need so much of the memory may fit all the same. */
static const double HOPE = 1.25;

/* Does a plan fit then? Compiles quietly, apart from c. whole: all that compile_fit does, sizes of microbatches included; else
 * a first look. *f: of the plan that fits, or lacks least; need 0: there is none. */
bool fit_with(const Compile *c, const Way *w, bool whole, Fit *f);
/* E0401: how much would do, and what would help. f: of the plan that lacks least. False. */
bool no_fit(Compile *c, const Fit *f);

#endif
