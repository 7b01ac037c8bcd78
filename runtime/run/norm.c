/* norm.c: the norm of the gradient over all parameters of all stages.
 *
 * Each trained parameter has a number in the whole model, and a device tells the sum of squares of
 * those it updates; a server that has a piece of a table tells those of its blocks of rows. One rank (the first, or the first server) gathers them, adds them in the order of the numbers and
 * tells everyone the norm, so that every plan clips with the same bits. Where nothing is flushed, all devices still
 * make one update of each step (2BW, Pipe-SGD, one minibatch in flight), and meet there: what a
 * device does before that update needs nothing that another does behind it. */
#include "rt.h"

typedef struct square {
	double sum, seen;
} square;

static square *squares, *theirs;
static int n;
static double norm;
static int64_t joined = -1; /* the step that norm is of */
static double
	*told; /* norms, in a ring by step: where nothing is flushed they are asked for two blocks of steps later */
static int64_t ntold;
static double scale, used; /* of the loss: of the next step; of the step that norm is of */
static int64_t good;       /* steps without overflow since the scale changed */
static int64_t skipped;    /* steps without an update, for their gradients overflowed */
static bool overflow;

/* The step whose gradient is under way. */
static int64_t this_step(void) { return rt_update < 0 ? rt_step : rt_update_step; }

/* Behind the parameters are the blocks of those that lie at several servers in pieces. */
void rt_norm_setup(const pd_program *p)
{
	n = p->squares;
	for (int k = 0; k < p->nparted; k++)
		n += p->parted[k].blocks;
	if (!n)
		return;
	if (scale <= 0) /* not resumed */
		scale = rt_program->loss_scale;
	squares = rt_alloc((size_t)n * sizeof *squares);
	theirs = rt_alloc((size_t)n * sizeof *theirs);
	ntold = p->flow ? 3 * rt_flow_block(p) + 1 : 1;
	told = rt_alloc((size_t)ntold * sizeof *told);
	for (int64_t i = 0; i < ntold; i++)
		told[i] = -1;
}

void pd_square(int index, double sum)
{
	if (index < 0 || index >= n)
		rt_fail(RT_ERROR, "R305", "the square of parameter %d of %d is told", index, n);
	squares[index] = (square){ sum, 1 };
}

/* Blocks of a parameter in pieces, added as they would be in one. */
static void add_blocks(const pd_parted *p)
{
	square all = { 0, 1 };

	for (int b = p->at; b < p->at + p->blocks; b++) {
		all.sum += squares[b].sum;
		all.seen *= squares[b].seen;
	}
	squares[p->index] = all;
}

static double add_up(void)
{
	double all = 0;

	for (int k = 0; k < rt_program->nparted; k++)
		add_blocks(&rt_program->parted[k]);
	for (int i = 0; i < rt_program->squares; i++) {
		if (squares[i].seen == 0 && !rt_alone && !rt_virtual)
			rt_fail(RT_ERROR, "R305", "nobody told the square of parameter %d of %d in step %lld", i,
				rt_program->squares, (long long)this_step());
		all += squares[i].sum;
	}
	if (!isfinite(all) && scale > 0)
		return INFINITY;
	if (!isfinite(all))
		rt_fail(RT_NUMERIC, "R306", "the norm of the gradient is %s in step %lld",
			isnan(all) ? "NaN" : "infinite", (long long)this_step());
	return sqrt(all);
}

/* Every rank has the same norm, so all come to the same scale. */
static void next_scale(void)
{
	used = scale;
	overflow = !isfinite(norm);
	good = overflow ? 0 : good + 1;
	skipped += overflow;
	if (overflow) {
		scale /= 2;
	} else if (good >= rt_program->scale_every && scale < 0x1p60) {
		scale *= 2;
		good = 0;
	}
	if (scale < 0x1p-24)
		rt_fail(RT_NUMERIC, "R308", "gradients overflow in step %lld though the loss is scaled by %.15g",
			(long long)this_step(), used);
}

static void join(void)
{
	const size_t bytes = (size_t)n * sizeof *squares;
	const int at = rt_program->squares_at;

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
	rt_first_norm(norm);
	memset(squares, 0, bytes);
	joined = this_step();
	if (scale > 0)
		next_scale();
	told[joined % ntold] = scale > 0 ? norm / used : norm;
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
	return most > 0 && norm > count * most ? norm / most : count;
}

double rt_norm(int64_t step) { return n && joined >= step && joined < step + ntold ? told[step % ntold] : -1; }

double pd_loss_scale(void)
{
	rt_section_spoil("a kernel is told the scale of the loss");
	return rt_scale_of_step();
}

bool pd_overflow(void) { return overflow; }

double rt_clip_scaled(double count, double most)
{
	if (joined != this_step())
		join();
	count *= used;
	return most > 0 && isfinite(norm) && norm > count * most ? norm / most : count;
}

#if !defined RT_GPU
void pd_clip_scaled(float *to, const float *count, double most) { *to = (float)rt_clip_scaled((double)*count, most); }
#endif

double rt_scale_of_step(void) { return scale <= 0 ? 1 : joined == this_step() ? used : scale; }

int64_t rt_skipped(void) { return skipped; }

void rt_scale_get(double *now, int64_t *steps, int64_t *left_out)
{
	*now = scale;
	*steps = good;
	*left_out = skipped;
}

void rt_scale_put(double now, int64_t steps, int64_t left_out)
{
	skipped = left_out;
	if (rt_program->loss_scale > 0 && now > 0) {
		scale = now;
		good = steps;
	}
}
