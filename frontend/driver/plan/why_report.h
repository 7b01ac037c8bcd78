/* What pdcc plan --explain and --json say of a plan (why_report.c). */
#ifndef PDCC_FRONTEND_PLANREPORT_H
#define PDCC_FRONTEND_PLANREPORT_H

#include <stdio.h>
#include "passes/simulate/simulate.h"
#include "frontend/driver/compile/compile.h"

/* pdcc plan: the summary; --explain, --json; --save-plan. Exit status. */
int plan_main(Compile *c);

void plan_report(const Compile *c, const Sim *s, FILE *f);
void plan_json(const Compile *c, const Sim *s, FILE *f);

/* "gpu01[0-3] gpu02[0]": the devices of a stage by their names in the cluster file. */
const char *devices_text(const Compile *c, const Stage *s, size_t most);

/* ---- parts, for --report too ---- */
typedef struct Where {
	PlanTerms t;
	int stage;
} Where; /* stage: of the device that computes most */
Where plan_where(const Sim *s);
extern const char *const plan_term_name[4];
/* The largest of four, or of the differences to four others. */
int plan_largest_term(const PlanTerms *x, const PlanTerms *less);
const char *plan_bottleneck(const Compile *c, const Sim *s, const Where *w); /* a sentence */
double plan_one_device(const Compile *c, const Sim *s);                      /* seconds of a step of one device */
const double *stage_seconds(const Sim *s, int stage);                        /* by ActKind, a microbatch or an update */

/* Bytes of a device by what they are for. */
typedef struct Classes {
	int64_t weights, stash, activations, optimizer, gradients, comm, other;
} Classes;
Classes stage_classes(const Stage *s);

/* ---- html_report.c ---- */
/* --report FILE: the compilation as one page for a browser. False after a diagnostic. */
bool report_write(Compile *c, const char *file);

/* ---- html_graph.c ---- */
void graph_picture(const Compile *c, Buf *b); /* modules of the model by stage, and what goes from one to the other */

/* ---- simulate.c ---- */
const char *simulate_title(const Compile *c); /* "NAME: plan 2-1, 1f1b, 8 microbatches of 4 samples, on lab" */
const char *cluster_name(const Compile *c);
const char *link_name(const Compile *c, const Link *l);
void print_loads(const Compile *c, const Sim *s, FILE *f);

/* ---- fleet.c: pdcc plan --deadline, --budget ---- */
int fleet_main(Compile *c); /* exit status */

/* ---- long_run_report.c: of pdcc simulate --days ---- */
/* Seconds of a step, beside stragglers where --stragglers names any; below 0: E0503 was said. */
double usual_step(const Compile *c, const Sim *s);
/* What a failure costs, by the flags and the plan's memory. */
struct LongRun long_run_of(const Compile *c, double step, const Sim *s);
void print_long_run(const Compile *c, double step, const Sim *s);
void print_long_run_json(const Compile *c, double step, const Sim *s); /* a member of the object at hand */

#endif
