/* norm.c: the norm of the gradient over all parameters of all stages.
 *
 * Each trained parameter has a number in the whole model, and a device tells the sum of squares of
 * those it updates. One rank (the first, or the first server) gathers them, adds them in the order of the numbers and
 * tells everyone the norm, so that every plan clips with the same bits. Where nothing is flushed, all devices still
 * make one update of each step (2BW, Pipe-SGD, one minibatch in flight), and meet there: what a
 * device does before that update needs nothing that another does behind it. */
#include "rt.h"

typedef struct square {
	double sum, seen;
} square;

static square *squares, *theirs;
static int     n;
static double  norm;
static int64_t joined = -1;     /* the step that norm is of */

/* The step whose gradient is under way. */
static int64_t this_step(void)
{
	return rt_update < 0 ? rt_step : rt_update_step;
}

void rt_norm_setup(int count)
{
	n = count;
	if (!n)
		return;
	squares = rt_alloc((size_t)n * sizeof *squares);
	theirs = rt_alloc((size_t)n * sizeof *theirs);
}

void pd_square(int index, double sum)
{
	if (index < 0 || index >= n)
		rt_fail(RT_ERROR, "R305", "the square of parameter %d of %d is told", index, n);
	squares[index] = (square){ sum, 1 };
}

static double add_up(void)
{
	double all = 0;

	for (int i = 0; i < n; i++) {
		if (squares[i].seen == 0 && !rt_alone && !rt_virtual)
			rt_fail(RT_ERROR, "R305", "nobody told the square of parameter %d of %d in step %lld", i, n,
			        (long long)this_step());
		all += squares[i].sum;
	}
	if (!isfinite(all))
		rt_fail(RT_NUMERIC, "R306", "the norm of the gradient is %s in step %lld", isnan(all) ? "NaN" : "infinite",
		        (long long)this_step());
	return sqrt(all);
}

static void join(void)
{
	const size_t bytes = (size_t)n * sizeof *squares;
	const int    at = rt_program->squares_at;

	if (rt_program->rank == at) {
		for (int r = 0; r < rt_program->world; r++) {
			if (r == at)
				continue;
			rt_recv(r, RT_TAG_GATHER, theirs, bytes);
			for (int i = 0; i < n; i++)
				if (theirs[i].seen != 0)
					squares[i] = theirs[i];
		}
		norm = add_up();
		for (int r = 0; r < rt_program->world; r++)
			if (r != at)
				rt_send(r, RT_TAG_GATHER, &norm, sizeof norm);
	} else {
		rt_send(at, RT_TAG_GATHER, squares, bytes);
		rt_recv(at, RT_TAG_GATHER, &norm, sizeof norm);
	}
	memset(squares, 0, bytes);
	joined = this_step();
}

void pd_norm_end(void)
{
	if (n && joined != this_step())
		join();
}

double pd_clip(double count, double most)
{
	if (joined != this_step())
		join();
	return norm > count * most ? norm / most : count;
}

double rt_norm(int64_t step)
{
	return n && joined == step ? norm : -1;
}
