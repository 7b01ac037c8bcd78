/* The search for a plan whose stages are divided unlike, the best first: of all plans that were looked at, the best that has a neighbour
 * left (unlike.c) has the next one looked at, until trials are used up. So it goes uphill from neighbour to neighbour, and from a summit
 * to those next to it: first to those of as many stages, then with more trials to those of one more or less too. A plan is better if it
 * is faster by a thousandth; behind all that fit come those that lack memory, in the order in which they were met. What comes of a plan
 * the caller says, who compiles it and has it played by the simulator. */
#include "unlike.h"

static const double STEP = 1 - 1e-3; /* of what the other takes */

static bool fits(const StagedTrial *t) { return t->over <= 1; }

static bool better(const StagedTrial *x, const StagedTrial *y)
{
	if (!y || fits(x) != fits(y))
		return !y || fits(x);
	return fits(x) && x->each < STEP * y->each;
}

static void look(StagedSearch *q, const Staged *x)
{
	const char *key = staged_key(q->a, x);

	if (map_has(&q->seen, key))
		return;
	StagedTrial *t = NEW(q->a, StagedTrial);
	*t = q->look(q->of, x);
	t->asked = arena_dup(q->a, x, sizeof *x);
	q->tried++;
	map_put(&q->seen, key, t);
	if (!t->as)
		return;
	map_put(&q->seen, staged_key(q->a, t->as), t); /* with the cuts that it has got */
	PUSH(q->a, q->plan, q->n, q->cap) = t;
	if (better(t, q->best))
		q->best = t;
}

/* The best plan that has neighbours left by the first so many moves; NULL: there is none. */
static StagedTrial *next_from(const StagedSearch *q, int moves)
{
	StagedTrial *best = NULL;

	for (int i = 0; i < q->n; i++) {
		StagedTrial *t = q->plan[i];
		if (t->moves < moves * t->as->n && better(t, best))
			best = t;
	}
	return best;
}

/* By the first so many moves, until so many plans were looked at. */
static void climb(StagedSearch *q, int moves, int most)
{
	StagedTrial *t;
	Staged x;

	while (q->tried < most && (t = next_from(q, moves))) {
		const int move = t->moves++;
		if (staged_move(q->a, &q->room, t->as, (StagedMove)(move / t->as->n), move % t->as->n, &x))
			look(q, &x);
	}
}

void staged_search(StagedSearch *q, StagedTrial *from, int nfrom, int zero, int64_t micro)
{
	Staged *own = NULL;

	map_init(&q->seen, q->a, true);
	for (int i = 0; i < nfrom; i++) {
		map_put(&q->seen, staged_key(q->a, from[i].as), q);
		PUSH(q->a, q->plan, q->n, q->cap) = &from[i];
	}
	const int nown = q->room.shapes ? staged_starts(q->a, q->room.c, zero, micro, &own) : 0;
	for (int i = 0; i < nown && q->tried < q->most; i++)
		look(q, &own[i]);
	climb(q, MOVE_SPLIT, q->most);
	climb(q, STAGED_MOVES, q->most + q->more);
}
