/* Which way every node of a graph is computed on the devices of a tensor group, and how every value lies then. */
#ifndef PDCC_PASSES_SHARD_H
#define PDCC_PASSES_SHARD_H

#include "ir/shard.h"
#include "passes/common/pass.h"
#include "passes/cost/cost.h"

/* How a value may lie; the first is whole. */
enum { SHARD_FORMS = 14 };
typedef struct Forms {
	int n;
	Shard form[SHARD_FORMS];
} Forms;

/* What was chosen of a node: forms, by operand and result, as indices into Forms of these values. */
typedef struct ShardChoice {
	int *in, *out;
	bool bias_last;
} ShardChoice;

typedef struct ShardSearch {
	Arena *arena;
	int degree;           /* the largest */
	const int *tensor_of; /* by stage, where they are unlike; a node's is Node.stage. NULL: all have `degree` */
	int64_t samples;      /* of a microbatch, with --sequence on; 0: off */
	const int *along;     /* by stage: AlongSequence, where they are unlike; NULL: as samples says */
	int nvalue, nnode;
	Value **value; /* value[v->mark - 1] is v */
	Forms *forms;  /* by value */
	int *home; /* by value: the stage whose nodes have it in parts; -1: nodes of several read it, and have it whole */
	int *owner;           /* by value: number of the weight whose gradient it is; -1: none */
	Node **node;          /* node[n->mark - 1] is n */
	ShardChoice **choice; /* by node */
	double memory_rate, link_rate,
		latency; /* bytes per second: of memory, to the other members; seconds of a collective */
} ShardSearch;

/* candidates.c: the forms that values may take (Forms), by what the ops allow. */
void shard_candidates(ShardSearch *s);
int shard_form(ShardSearch *s, const Value *v, Shard shard); /* its number among v's; -1: v never lies so */
ShardWay shard_new_way(ShardSearch *s, const Node *n);       /* all of it whole */
/* As shard_way, and it may be done here. */
bool shard_way_of(ShardSearch *s, const Node *n, bool out, int at, ShardWay *w);
bool shard_at_home(const ShardSearch *s, const Node *n, const ShardWay *w); /* what crosses stages is whole */
bool shard_looked_up(const Value *table);                                   /* its rows, and a product reads it too */

/* --sequence on. What of a forward's value is kept for the backward, of the forms that it is `had` in (bits), made in form
 * `made`: the parts, where there are some; wholes that were gathered are gathered anew. */
int shard_kept(const Forms *f, unsigned had, int made);
/* Is a Gather's table, or the gradient of a GatherGrad, divided by the rows that are looked up? */
bool shard_by_rows(const Node *n, const ShardSearch *s, const ShardChoice *c);
/* A sum of y may be scattered into parts of that form: those of whole rows. */
bool shard_scatters(const ShardSearch *s, const Value *y, int form);
static inline int shard_index(const Value *v) { return v->mark - 1; }
/* Devices of the group that computes n, and of that which has v in parts. */
static inline int shard_degree(const ShardSearch *s, const Node *n)
{
	return s->tensor_of ? s->tensor_of[n->stage] : s->degree;
}
int shard_members(const ShardSearch *s, const Value *v);
/* samples, of a node's stage, and of a value's home. */
int64_t shard_samples(const ShardSearch *s, int stage);
int64_t shard_samples_of(const ShardSearch *s, int value);
/* Another group makes v than computes n, which has it whole then. */
static inline bool shard_foreign(const ShardSearch *s, const Node *n, const Value *v)
{
	return s->tensor_of && s->home[shard_index(v)] != n->stage;
}

/* Fills in what is behind `degree`. Marks of values and nodes are numbers until shard_unmark. */
void shard_search(ShardSearch *s, Graph *g, const Speed *speed, const Link *link);
void shard_unmark(ShardSearch *s);

#endif
