/* The search for a plan whose stages are divided unlike. It goes from a plan to the first neighbour (unlike.c) that is faster, by a
 * thousandth at least, or lacks less memory where nothing fits, until none is; from the best of the plans to begin with, then from the next best, as long as trials are left and
 * it is not far behind what is known.
 * What comes of a plan the caller says, who compiles it and has it played by the simulator. Nothing is looked at twice. */
#include <math.h>
#include <stdlib.h>
#include "unlike.h"

static const double STEP = 1 - 1e-3, FAR = 1.5; /* of the known step: from what is slower nothing is gone */

static bool fits(const StagedTrial *t) { return t->over <= 1; }

/* What does not fit is the better the less it lacks. */
static bool better(const StagedTrial *x, const StagedTrial *y, double step)
{
	if (!y || fits(x) != fits(y))
		return !y || fits(x);
	return fits(x) ? x->each < step * y->each : x->over < step * y->over;
}

/* NULL: it was looked at before, or trials are used up, or it has no plan. */
static const StagedTrial *look(StagedSearch *q, const Staged *x)
{
	const char *key = staged_key(q->a, x);

	if (q->tried >= q->most || map_has(&q->seen, key))
		return NULL;
	StagedTrial *t = NEW(q->a, StagedTrial);
	*t = q->look(q->of, x);
	q->tried++;
	map_put(&q->seen, key, t);
	if (!t->as)
		return NULL;
	map_put(&q->seen, staged_key(q->a, t->as), t); /* with the cuts that it has got */
	if (better(t, q->best, 1))
		q->best = t;
	return t;
}

/* The first neighbour that is better; NULL: none is. */
static const StagedTrial *step_from(StagedSearch *q, const StagedTrial *at)
{
	for (int move = 0; move < STAGED_MOVES; move++)
		for (int s = 0; s < at->as->n; s++) {
			Staged x;
			if (!staged_move(q->a, &q->room, at->as, (StagedMove)move, s, &x))
				continue;
			const StagedTrial *t = look(q, &x);
			if (t && better(t, at, STEP))
				return t;
		}
	return NULL;
}

static int by_each(const void *x, const void *y)
{
	const StagedTrial *a = *(const StagedTrial *const *)x, *b = *(const StagedTrial *const *)y;

	return better(a, b, 1) ? -1 : better(b, a, 1) ? 1 : a->as->n - b->as->n;
}

/* Is it worth to go on from there? */
static bool near(const StagedSearch *q, const StagedTrial *at)
{
	return fits(at) ? at->each < FAR * q->known : !isfinite(q->known);
}

void staged_search(StagedSearch *q, const StagedTrial *from, int nfrom, int zero, int64_t micro)
{
	const StagedTrial **start = NULL;
	Staged *own = NULL;
	int n = 0, cap = 0;

	map_init(&q->seen, q->a, true);
	for (int i = 0; i < nfrom; i++) {
		map_put(&q->seen, staged_key(q->a, from[i].as), q);
		PUSH(q->a, start, n, cap) = &from[i];
	}
	const int nown = q->room.shapes ? staged_starts(q->a, q->room.c, zero, micro, &own) : 0;
	for (int i = 0; i < nown; i++) {
		const StagedTrial *t = look(q, &own[i]);
		if (t)
			PUSH(q->a, start, n, cap) = t;
	}
	if (n)
		qsort(start, (size_t)n, sizeof *start, by_each);
	for (int i = 0; i < n; i++)
		for (const StagedTrial *at = start[i]; at && near(q, at);)
			at = step_from(q, at);
}
