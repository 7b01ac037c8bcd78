/* The pipeline: what a pass is, what it may use, and the runner. passes.def is the list, in order. */
#ifndef PDCC_PASSES_PASS_H
#define PDCC_PASSES_PASS_H

#include "ir/base/buf.h"
#include "ir/cluster.h"
#include "ir/training.h"
#include "ir/text/forms.h"
#include "ir/ir.h"
#include "ir/op.h"
#include "ir/schedule.h"

/* What estimates of a schedule are multiplied with, since what was made of a plan came to more; 0: 1. */
typedef struct Corrected {
	double memory, time;
} Corrected;

typedef struct PassCx {
	Arena *scratch; /* reset after every pass */
	Diag *d;
	const Cluster *cluster;
	const Training *train;
	Buf *explain;                  /* NULL unless --explain */
	struct Plan *plan;             /* filled by partition; plan.h */
	const struct Profile *profile; /* measured times (ir/text/profile.h); NULL: all are estimated */
	int *measured, *estimated;     /* nodes by where their time comes from; NULL: nobody asks */
	double memory_scale;           /* of the planner's estimates of memory; 0: 1 */
	const Corrected *corrected;    /* by ScheduleKind, of what --schedule auto tries; NULL: nothing is */
	bool quick;                    /* partition takes a first look: whether a setting is worth more */
	const Module *
		rebatched; /* the model as it is read at another batch, for losses of its own (train); NULL: not looked at */
	const Node **coupled; /* there: what makes a loss that of a microbatch's own samples */
	Map *uneven;          /* labels_uneven (train): names of inputs -> int64_t of those that do not count */
	const Map *sized;     /* where the profile is of another size of microbatch: cost_sizes (plan.h); else NULL */
} PassCx;

typedef struct Pass {
	const char *name;
	unsigned needs, gives;
	const char *help;
	bool (*run)(Module *m, PassCx *cx); /* false after a diagnostic */
} Pass;

extern const Pass pass_table[];
extern const int npasses;

typedef struct PassOpt {
	const char *dump_dir; /* --dump-ir: DIR/NN-pass.pdir after each pass, DIR/index.html */
	const char *print_before, *print_after;
	bool print_after_all, print_after_change;
	const char *stop_after;
	bool time_passes;
	int elide;               /* constants of more elements are elided from what is printed and dumped */
	IrForm form;             /* of what is printed; dumps are text, with another form beside it */
	struct Changes *changes; /* what every pass changes is kept there for a report (changes.h); NULL: nowhere */
} PassOpt;

/* Runs the named passes (NULL: all of the table) on m: checks needs, runs, verifies, dumps, times. */
bool run_passes(Module *m, PassCx *cx, const PassOpt *o, const char *const *names, int n);

#define PASS(name, needs, gives, help) bool pass_##name(Module *m, PassCx *cx);
#include "passes.def"
#undef PASS

#endif
