/* Plans stage by stage, whose stages may be divided unlike, and what is next to each (unlike.c). */
#ifndef PDCC_PASSES_PLAN_UNLIKE_H
#define PDCC_PASSES_PLAN_UNLIKE_H

#include "ir/plan.h"
#include "ir/cluster.h"

/* Devices are those of a cluster without groups: each one of its own. */
typedef struct Staged {
	int n;                   /* stages */
	int *replicas, *members; /* by stage; members: devices of each replica */
	int *zero, *along;       /* by stage: what replicas divide (stage_zero); AlongSequence */
	int ndevice, *device;    /* by stage, replica and member: index into Cluster.device */
	const char **until;      /* by stage: where it is cut, as in GivenPlan; NULL: that is to be found */
	const char **place;      /* Plan.place */
	int nplace, order;       /* order: GivenPlan.order */
	int64_t micro;           /* samples of a microbatch, as --micro-batch says; 0: as the model has them */
} Staged;

/* What may be moved. */
typedef struct StagedRoom {
	const Cluster *c;
	int64_t samples; /* of a step */
	bool shapes, zero, sequence, micro;
} StagedRoom;

typedef enum StagedMove {
	MOVE_WIDER,     /* twice as many devices a replica, half the replicas */
	MOVE_NARROWER,  /* the other way */
	MOVE_GIVE,      /* devices of the end of the stage become the next one's */
	MOVE_TAKE,      /* devices of the next one's front become the stage's */
	MOVE_GROW,      /* twice as many devices a replica, with as many of the next one's front */
	MOVE_GROW_BACK, /* with as many of the end of the one before */
	MOVE_EARLIER,   /* it ends one place earlier */
	MOVE_LATER,
	MOVE_ZERO_LESS, /* replicas divide less, more */
	MOVE_ZERO_MORE,
	MOVE_SEQUENCE, /* along the sequence or not */
	MOVE_SMALLER,  /* microbatches of half the samples, of all stages */
	MOVE_LARGER,
	MOVE_SPLIT, /* half its replicas become a stage behind it; of one replica, half the devices */
	MOVE_JOIN,  /* it and the next one become one stage, of replicas like its own */
	STAGED_MOVES
} StagedMove;

/* x moved so at a stage; false: it cannot be. */
bool staged_move(Arena *a, const StagedRoom *room, const Staged *x, StagedMove move, int stage, Staged *to);
/* Plans to begin with: a stage for each host, of one host two halves; each of whole groups and of single devices, hosts in either order.
 * zero: of all stages. Returns how many. */
int staged_starts(Arena *a, const Cluster *c, int zero, int64_t micro, Staged **to);
/* What came of a plan. */
typedef struct StagedTrial {
	const Staged *asked; /* as it was looked at */
	const Staged *as;    /* with the cuts that it got; NULL: it has no plan */
	double each;         /* seconds per sample */
	double over; /* above 1 where it does not fit into memory: bytes that are needed, in relation to the limit */
	void *of;    /* the caller's */
	int moves;   /* that were looked at */
} StagedTrial;

/* A search (unlike_search.c). look: what comes of a plan, `of` in it; most, more: so many are looked at, the latter by all moves. */
typedef struct StagedSearch {
	Arena *a;
	StagedRoom room;
	StagedTrial (*look)(void *of, const Staged *x);
	void *of;
	int most, more, tried;
	Map seen; /* by staged_key */
	StagedTrial **plan;
	int n, cap;              /* those that have a plan */
	const StagedTrial *best; /* of those that were looked at; NULL: none has a plan */
} StagedSearch;

/* From the plans `from`, which were looked at before, and from those of staged_starts for `zero` and `micro`. */
void staged_search(StagedSearch *q, StagedTrial *from, int nfrom, int zero, int64_t micro);
bool staged_alike(const Staged *x); /* could --tensor N say it? */
/* Settings for it; the strings of x stay. room: what of x is said, and not as it was. */
void staged_settings(Arena *a, const StagedRoom *room, const Staged *x, PlanSettings *p);
const char *staged_text(Arena *a, const Staged *x); /* "1x4-1x2, zero 1-0": as people read it */
const char *staged_key(Arena *a, const Staged *x);  /* alike where all is */
/* Are there hosts of unlike size, or devices of unlike speed or memory? */
bool cluster_unlike(const Cluster *c);

#endif
