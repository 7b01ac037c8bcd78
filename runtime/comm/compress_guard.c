/* compress_guard.c: whether packed sums stay packed (Pipe-SGD section 3.2: packing has to cost less than it saves). Of each group:
 *
 *     steps 2 to 7 of a run     packed and as they are in turn, timed where this is asked for (pd_sum.guard)
 *     step 9 (+ pd_program.flow)     the members add up the least times of both
 *     step 11 (+ 2 pd_program.flow)  all of them see the same sum: packing goes on where it is less
 *
 * A sum whose result is no number ends packing too, for with q8 one such number spoils a block: all members see that of the
 * same sum, since all decode the same bytes. Gradients that are scaled (16-bit floats) may overflow; that changes nothing here.
 * A step here is one in which the group adds up; decisions lie in checkpoints and hold for the same plan. */
#include <math.h>
#include "rt.h"

enum { GROUPS = 16, TIMED = 6, ASKED = TIMED + 2, DECIDED = ASKED + 2 };
enum { OPEN, ON, OFF };

struct rt_guard {
	const pd_group *g;
	int64_t step;
	int round, bad; /* steps so far; in which a result was no number, -1: in none */
	int state;
	double took[TIMED + 1]; /* seconds of the sums of a step */
	float least[2];         /* packed, as they are; then summed over the members */
};

static rt_guard guard[GROUPS];
static int nguard;
static int64_t before; /* of a checkpoint */

static rt_guard *of_group(const pd_group *g)
{
	for (int i = 0; i < nguard; i++)
		if (guard[i].g == g)
			return &guard[i];
	if (nguard == GROUPS)
		return NULL;
	guard[nguard] =
		(rt_guard){ .g = g, .step = -1, .round = -1, .bad = -1, .state = (int)(before >> 2 * nguard & 3) };
	return &guard[nguard++];
}

static void tell(const rt_guard *x, const char *why)
{
	if (x->g->rank[0] == rt_program->rank && rt_log >= RT_LOG_WARNING)
		printf("AllReduce over %d replicas %s from step %lld on: %s\n", x->g->n,
			x->state == OFF ? "travels uncompressed" : "stays compressed", (long long)rt_step + 1, why);
	fflush(stdout);
}

static void decide(rt_guard *x)
{
	char why[120];

	x->state = x->least[0] < x->least[1] ? ON : OFF;
	snprintf(why, sizeof why, "%.3g ms a step compressed, %.3g ms as they are", 1e3 * (double)x->least[0] / x->g->n,
		1e3 * (double)x->least[1] / x->g->n);
	tell(x, why);
}

/* The sums of the steps before are done, but for those of the last pd_program.flow. */
static void begin_round(rt_guard *x, bool timed, float **vote)
{
	x->step = rt_step;
	x->round++;
	if (x->state != OFF && x->bad >= 0 && x->round > x->bad + rt_program->flow) {
		x->state = OFF;
		tell(x, "a gradient is infinite or NaN");
	}
	if (!timed || x->state != OPEN)
		return;
	if (x->round == ASKED + rt_program->flow) {
		x->least[0] = x->least[1] = INFINITY;
		for (int k = 1; k <= TIMED; k++)
			x->least[k % 2 == 0] = fminf(x->least[k % 2 == 0], (float)x->took[k]);
		*vote = x->least;
	}
	if (x->round >= DECIDED + 2 * rt_program->flow)
		decide(x);
}

rt_guard *rt_guard_start(const pd_group *g, bool timed, bool *packs, float **vote)
{
	rt_lock();
	rt_guard *x = of_group(g);

	*vote = NULL;
	*packs = true;
	if (x) {
		if (x->step != rt_step)
			begin_round(x, timed, vote);
		*packs = x->state == OPEN ? !timed || x->round > TIMED || x->round < 1 || x->round % 2 : x->state == ON;
	}
	rt_unlock();
	return x;
}

int rt_guard_round(const rt_guard *x) { return x ? x->round : 0; }

void rt_guard_end(rt_guard *x, int round, double seconds, bool bad)
{
	if (!x)
		return;
	if (round <= TIMED)
		x->took[round] += seconds;
	if (bad && rt_program->loss_scale <= 0 && x->bad < 0)
		x->bad = round;
}

int64_t rt_guard_get(void)
{
	int64_t s = 0;

	for (int i = 0; i < nguard; i++)
		s |= (int64_t)guard[i].state << 2 * i;
	return s;
}

void rt_guard_put(int64_t states) { before = states; }

void rt_guard_write(FILE *f)
{
	static const char *const word[] = { "not decided", "on", "off" };

	for (int i = 0; i < nguard; i++)
		fprintf(f, "%s{\"replicas\": %d, \"state\": \"%s\"}%s", i ? ", " : " \"compression\": [", guard[i].g->n,
			word[guard[i].state], i + 1 == nguard ? "],\n" : "");
}
