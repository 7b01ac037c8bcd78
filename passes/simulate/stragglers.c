/* stragglers.h */
#include "passes/simulate/stragglers.h"

/* Plays, and what they may cost: actions of all of them together. Of an asynchronous schedule so many times as many steps as are
 * shown: of a few, the slowest device is one that was slow by chance. */
enum { LEAST = 20, MOST = 10000, ACTIONS = 4000000, LONGER = 32 };

/* splitmix64 (Steele, Lea and Flood 2014) of a counter: uniform in [0, 1). */
static double uniform(uint64_t n)
{
	uint64_t z = n * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	z ^= z >> 31;
	return (double)(z >> 11) * 0x1p-53;
}

double straggler_factor(const Stragglers *g, int rank, int step)
{
	for (int i = 0; i < g->group; i++)
		if (uniform((g->draw << 42 | (uint64_t)step << 24 | (uint64_t)rank) * 64 + (uint64_t)i + 1) < g->share)
			return g->times;
	return 1;
}

double straggling_step(const Sim *s, double share, double times, int group, Diag *d)
{
	Stragglers g = { .share = share, .times = times, .group = group };
	SimModel m = *s->model;
	double sum = 0;
	int64_t actions = 1;
	Arena *all = arena_new();

	if (m.s->async && !m.each) {
		m.s = schedule_longer(all, m.s, LONGER);
		m.longer = true;
	}
	for (int r = 0; r < m.s->ndevice; r++)
		actions += m.s->dev[r].n;
	const int64_t fit = ACTIONS / actions;
	const int plays = fit < LEAST ? LEAST : fit > MOST ? MOST : (int)fit;
	m.stragglers = &g;
	for (int i = 0; i < plays; i++) {
		Arena *own = arena_new();
		Sim play;

		g.draw = (uint64_t)i;
		const bool ok = simulate(own, &m, &play, d);
		sum += ok ? play.each : 0;
		arena_free(own);
		if (!ok) {
			sum = -plays;
			break;
		}
	}
	arena_free(all);
	return sum / plays;
}
