/* long_run.h: failures come at random, one after another, and find a run at its steps, at a checkpoint or at a restart. */
#include "long_run.h"
#include <math.h>

int64_t long_run_young(const LongRun *r)
{
	const double t = sqrt(2 * r->save * r->mtbf);

	return t > r->step ? (int64_t)(t / r->step + 0.5) : 1;
}

int64_t long_run_daly(const LongRun *r)
{
	const double x = r->save / (2 * r->mtbf);
	const double t =
		r->save < 2 * r->mtbf ? sqrt(2 * r->save * r->mtbf) * (1 + sqrt(x) / 3 + x / 9) - r->save : r->mtbf;

	return t > r->step ? (int64_t)(t / r->step + 0.5) : 1;
}

double long_run_share(const LongRun *r, int64_t every)
{
	const double t = (double)every * r->step;

	return t / (r->mtbf * exp(r->restart / r->mtbf) * expm1((t + r->save) / r->mtbf));
}

/* ---- played ---- */

typedef struct Clock {
	const LongRun *r;
	uint64_t drawn;
	double now, next; /* next: failure */
} Clock;

/* splitmix64 (Steele, Lea and Flood 2014) of a counter: uniform in (0, 1]. */
static double uniform(uint64_t n)
{
	uint64_t z = n * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	z ^= z >> 31;
	return (double)((z >> 11) + 1) * 0x1p-53;
}

static void next_failure(Clock *c) { c->next = c->now - c->r->mtbf * log(uniform(++c->drawn)); }

/* So many seconds pass, or a failure or the end cuts them short; true: all of them. spent: what passed. */
static bool passes(Clock *c, double seconds, double *spent)
{
	const double until = fmin(c->next, c->r->length), end = fmin(c->now + seconds, until);

	*spent = end - c->now;
	c->now = end;
	return *spent >= seconds || end < until;
}

static void start_again(Clock *c, LongPlayed *p)
{
	double spent;
	bool up = false;

	while (!up && c->now < c->r->length) {
		p->failures++;
		next_failure(c);
		up = passes(c, c->r->restart, &spent);
		p->restarting += spent;
	}
}

static void play_one(Clock *c, int64_t every, LongPlayed *p)
{
	const LongRun *r = c->r;
	const double segment = (double)every * r->step + r->save;
	double steps, saving;

	c->now = 0;
	next_failure(c);
	while (c->now < r->length) {
		const double calm = floor((fmin(c->next, r->length) - c->now) / segment); /* before anything happens */
		c->now += calm * segment;
		p->steps += calm * (double)every;
		p->saving += calm * r->save;
		bool whole = passes(c, (double)every * r->step, &steps);
		saving = 0;
		whole = whole && passes(c, r->save, &saving);
		p->saving += saving;
		if (whole) {
			p->steps += (double)every;
		} else if (c->now >= r->length) { /* the run ends: what was made is saved then */
			p->steps += floor(steps / r->step);
		} else {
			p->lost += steps;
			start_again(c, p);
		}
	}
}

LongPlayed long_run_play(const LongRun *r, int64_t every, int64_t failures)
{
	enum { RUNS = 1000000 };
	LongRun part = *r;
	Clock c = { .r = &part };
	LongPlayed p = { 0 };
	int runs = 0;

	part.length = fmin(r->length, 4 * (double)failures * r->mtbf); /* of more a part is played */
	do {
		c.drawn = (uint64_t)runs++ << 32;
		play_one(&c, every, &p);
	} while (p.failures < (double)failures && runs < RUNS);
	const double scale = r->length / part.length / runs;
	p.steps *= scale;
	p.failures *= scale;
	p.lost *= scale;
	p.saving *= scale;
	p.restarting *= scale;
	return p;
}

int64_t long_run_best(const LongRun *r, int64_t failures, LongPlayed *played)
{
	const int64_t middle = long_run_daly(r);
	int64_t best = 0;

	for (int i = -20; i <= 20; i++) { /* from a quarter of it to four times it */
		const int64_t every = (int64_t)fmax(1, (double)middle * pow(4, i / 20.0) + 0.5);
		const LongPlayed p = long_run_play(r, every, failures);
		if (!best || p.steps > played->steps) {
			best = every;
			*played = p;
		}
	}
	return best;
}
