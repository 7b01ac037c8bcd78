/* The search for a plan over a planning model (plan_model.h): proposals of the published planners, all plans where
 * there are few, local search; each finalist is played by the simulator. */
#ifndef PDCC_PASSES_PLANSEARCH_H
#define PDCC_PASSES_PLANSEARCH_H

#include "plan_model.h"
#include "ir/settings.h"

typedef struct PlanSearch {
	Arena *a;
	const PlanModel *p;
	Map seen; /* stages, replicas and devices as text -> Trial */
	Trial **trial;
	int n, cap;                  /* all that were looked at, in that order */
	Trial *best;                 /* NULL: none yet */
	double work, budget;         /* of the simulator: actions */
	double beside;               /* of the published planners, in the same unit, but not of the budget */
	double cut_work, cut_budget; /* of the search for cuts: pairs of states */
	bool no_exhaustive;          /* local search also where all plans could be tried */
	bool later;                  /* plans are judged, and played by search_play: the least bound first */
	bool quick;                  /* a first look: a tenth of the budget, fewer proposals */
	long played;
} PlanSearch;

/* The plan of one planner, or of all and local search behind them. Fills s->best and s->trial; s->best may need more
 * memory than there is (over > 1), it is then the plan that lacks least. False: the planner has none (E04xx said).
 * Ties (within 1e-9 of the score): the fewest devices, the fewest stages, the least peak of memory, the earliest
 * cuts, the most replicas in front, the devices in the order of the cluster file. */
bool plan_search(PlanSearch *s, PlannerKind kind, DpCost cost, Diag *d);

/* Why there is no plan of equal replicas: too few places to cut; plan_allowed leaves out what might be one; or the schedule cannot be
 * made for any, which is said. */
typedef enum NoPlan { NO_PLACES, NO_LEAVE, NO_SCHEDULE } NoPlan;
/* The best plan of equal replicas for a schedule, which is PlanModel.schedule and played (plan_chunks.c); those that take `least` seconds
 * per microbatch or more are not looked for. NULL: there is none. */
const Trial *equal_plan(PlanSearch *s, ScheduleSpec schedule, double least, NoPlan *why, Diag *d);
/* --schedule auto (plan_auto.c). base: the plan for SCHEDULE_PLAIN; asked: it is the user's. explain: what each schedule comes to, NULL:
 * nobody asks. Sets p->schedule and *chosen. */
const Trial *choose_schedule(
	PlanSearch *s, PlanModel *p, const Trial *base, bool asked, Buf *explain, ScheduleSpec *chosen);

/* ---- parts of it ---- */
void search_start(PlanSearch *s, Arena *a, const PlanModel *p);
/* For a first look: a tenth of the budget, fewer proposals. */
void search_lightly(PlanSearch *s);
Trial *trial_copy(Arena *a, const Trial *t); /* without what it came to */
/* Looks at a plan (a copy is kept): judges, plays it unless its bound says that it cannot be best. */
Trial *search_try(PlanSearch *s, const Trial *t);
/* Plays what was judged before. */
void search_play(PlanSearch *s);
/* What --max-stages, --no-pipeline and --no-dp leave, and asynchronous servers. */
bool plan_allowed(const PlanModel *p, int n, const int *replicas);
double search_effort(const PlanModel *p, const Trial *t); /* of playing it, as PlanSearch.work counts */
bool trial_better(const Trial *x, const Trial *y);
/* The cuts with the least slowest stage for given replicas and devices, by dynamic programming over the states:
 *     f(s, j) = min over k of  max( f(s-1, k),  transfer over the cut k,  time of (k, j] on its slowest device / R_s
 * ) A stage without a parameter, or one that does not fit into memory, costs a fortune. Fills t->end; the answer is
 * f without fortunes, INFINITY where there are fewer states than stages. */
double cut_best(PlanSearch *s, Trial *t);
/* The same time of given cuts. */
double slowest_stage(const PlanModel *p, const Trial *t);
/* Devices for the ranks of a trial. */
typedef enum PlacePolicy {
	PLACE_ORDER,
	PLACE_FRESH,
	PLACE_APPEND,
	PLACE_SCATTER,
	PLACE_FAST,
	PLACE_SLOW,
	PLACE_COUNT
} PlacePolicy;
void place_trial(const PlanModel *p, Trial *t, PlacePolicy policy);
/* What the cluster file asks (plan_pins.c): whether a plan has parameters where they are pinned, E0474 unless d is NULL; whether it
 * lets stages be given devices so. */
bool plan_keeps_pins(const PlanModel *p, const Trial *t, Diag *d);
bool policy_allowed(const Cluster *c, int policy);

void propose_pipedream(PlanSearch *s, DpCost cost, Diag *d);
void propose_dapple(PlanSearch *s, bool thorough, Diag *d);
void propose_blocks(PlanSearch *s, int parts);
void propose_equal(PlanSearch *s);
void propose_divisions(PlanSearch *s);        /* of few devices, each with its best cuts; of many none */
bool propose_all(PlanSearch *s, double most); /* every plan; false: more than `most` of them */
void search_locally(PlanSearch *s);
void search_cuts(
	PlanSearch *s, const Trial *t); /* the same replicas on the same devices: every cut where there are few */

/* ---- what is done with the answer (plan_write.c) ---- */
/* Stages of all nodes, PassCx.plan, Module.microbatches. False after a diagnostic. */
bool plan_write(Segments *g, const PlanSearch *s, const Trial *t, bool forced);
/* Seconds that a step of so many microbatches takes at least, whatever the plan: all work divided over all devices by their speed,
 * or, where steps do not overlap, the longest chain of layers. */
double plan_least(const PlanModel *p, int64_t micro);
/* A segment's name; of several of one name NAME#2 is the second. */
const char *until_name(const Segments *g, int at);

#endif
