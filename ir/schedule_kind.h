/* Which schedule: the table of schedules.def, and a schedule as it is asked for. */
#ifndef PDCC_IR_SCHEDULE_KIND_H
#define PDCC_IR_SCHEDULE_KIND_H

#include <stdbool.h>
#include "ir/base/arena.h"

typedef enum ScheduleKind {
	SCHEDULE_AUTO, /* nothing was said, or `auto`: SCHEDULE_PLAIN, unless another is chosen with the plan */
#define SCHEDULE(kind, ...) SCHEDULE_##kind,
#include "schedules.def"
#undef SCHEDULE
	SCHEDULES,
	SCHEDULE_PLAIN = SCHEDULE_AUTO + 1
} ScheduleKind;

typedef enum ScheduleParam {
	PARAM_NONE,
	PARAM_COUNT,
	PARAM_OPTIONAL,
	PARAM_FILE,
	PARAM_POLICY,
	PARAM_FLAG
} ScheduleParam;
typedef enum SchedulePlacement { PLACED_OWN, PLACED_CYCLE, PLACED_VEE, PLACED_LISTED } SchedulePlacement;
typedef enum ScheduleBackward { BACKWARD_WHOLE, BACKWARD_PARTS, BACKWARD_LISTED } ScheduleBackward;

enum {
	FLOW_FLUSHED = 0,
	FLOW_ASYNC = 1,      /* nothing is flushed */
	FLOW_EACH = 2,       /* every microbatch is a step of its own, with its update */
	FLOW_ONE_UPDATE = 4, /* all stages make one update of each step, the same whatever the plan */
	FLOW_VERSIONS = 8,   /* stages keep versions of their weights; --stash, --vertical-sync choose from them */
	FLOW_BESIDE =
		16, /* sums of a step go on beside the steps behind it, whose weights lack them: one version is kept */
};

/* Microbatches in flight at stage s of n; R_s: its replicas; m: microbatches of a device (passes/schedule/schedule_depth.c). */
typedef enum ScheduleFlight {
	FLIGHT_NOAM,   /* ceil((R_s + R_s+1 + ...) / R_s), PipeDream's */
	FLIGHT_WARMUP, /* K_s of DAPPLE's policies; falls to what memory holds */
	FLIGHT_ALL,    /* m */
	FLIGHT_PLAYED, /* n - s, or what memory holds, m at most: what is played decides */
	FLIGHT_STAGES, /* n */
	FLIGHT_LATER,  /* n - s */
	FLIGHT_GROUPS, /* interleaved groups of microbatches */
	FLIGHT_ONE,
	FLIGHT_BOUND,  /* the parameter; NOAM of the first stage where it is not said */
	FLIGHT_LISTED, /* as the file's lists have it */
} ScheduleFlight;

typedef struct ScheduleRow {
	const char *name, *word; /* word: as a list of choices shows it, "interleaved:V" */
	ScheduleParam param;
	const char *letter, *lacks; /* lacks: what is missing where somebody says the letter for the parameter */
	int chunks;
	SchedulePlacement place;
	ScheduleBackward backward;
	int flow;
	ScheduleFlight flight;
	int first, last;
	const char *help, *paper;
} ScheduleRow;

extern const ScheduleRow schedule_table[SCHEDULES]; /* from SCHEDULE_PLAIN on */
extern const char schedule_help[];                  /* what --help says of --schedule */

/* The words of --schedule and train.yaml: auto, then those of the table. */
extern const char *const schedule_choices[];
extern const int schedule_nchoice;

struct Csv;
typedef struct ScheduleSpec {
	ScheduleKind kind;
	int n;                 /* the parameter: V, N (0: not said), K; a policy 'A' or 'B' (0: not chosen) */
	const char *file;      /* of PARAM_FILE */
	const struct Csv *csv; /* what stands in it, once it was read (passes/schedule/csv.h) */
} ScheduleSpec;

static inline const ScheduleRow *schedule_row(ScheduleSpec s)
{
	return &schedule_table[s.kind == SCHEDULE_AUTO ? SCHEDULE_PLAIN : s.kind];
}
static inline const char *schedule_name(ScheduleKind k) { return schedule_table[k].name; }
static inline bool schedule_is_async(ScheduleSpec s) { return schedule_row(s)->flow & FLOW_ASYNC; }

/* From a word; its file is not read. False: it is none, or lacks what *lacks says (else NULL). Keeps pointers into word. */
bool schedule_parse(const char *word, ScheduleSpec *to, const char **lacks);
/* The same, from Schedule.name: a file's path does not stand there. */
bool schedule_parse_name(const char *name, ScheduleSpec *to);
const char *schedule_str(Arena *a, ScheduleSpec s); /* "interleaved:2", "auto" */
/* "1f1b, gpipe or dapple": the words of all that fit. */
const char *schedule_list(Arena *a, bool (*fits)(const ScheduleRow *));
/* Stages of a device. A plan of one stage has nothing to place, whatever the schedule: it is one chunk. */
int schedule_chunks(ScheduleSpec s);
int schedule_chunks_of(ScheduleSpec s, int nstage);

#endif
