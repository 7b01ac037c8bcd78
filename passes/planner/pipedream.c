/* PipeDream's planner on one level (planner.h): the costs of a stage, and the table of best plans. */
#include <math.h>
#include <string.h>
#include "pipedream.h"

double span_time(const Level *l, int i, int j)
{
	if (l->time)
		return l->time[(size_t)i * (size_t)l->st->n + (size_t)j];
	return i ? l->st->s[j].time - l->st->s[i - 1].time : l->st->s[j].time;
}

double span_parameters(const Level *l, int i, int j)
{
	return i ? l->st->s[j].parameters - l->st->s[i - 1].parameters : l->st->s[j].parameters;
}

bool span_fits(const Level *l, int i, int j, int replicas, int behind)
{
	if (l->o->memory <= 0)
		return true;
	const double act = i ? l->st->s[j].activation - l->st->s[i - 1].activation : l->st->s[j].activation;
	const double w = span_parameters(l, i, j), versions = ceil((double)behind / replicas);

	if (l->o->cost == PD_OLD)
		return versions * act + w <= l->o->memory;
	return (versions + (l->o->cost == PD_ONCE)) * (act + w) <= l->o->memory;
}

double stage_cost(const PdOpt *o, double t, double w, double bandwidth, int inner, int r)
{
	const double sync = 4 * (r - 1) * w / (bandwidth * r);

	switch (o->cost) {
	case PD_SOSP: return sosp_cost(t, w, bandwidth, inner, r);
	case PD_TEXT: return fmax(t, 2 * (r - 1) * w / bandwidth) / r;
	case PD_RING: return t / r + 2 * (r - 1) * (o->latency + w / (bandwidth * r)) / fmax(o->micro, 1);
	case PD_PAPER:
	case PD_OLD:
	case PD_ONCE: break;
	}
	return (t > sync ? t : sync) / r;
}

double single_cost(const Level *l, int i, int j, int m)
{
	return stage_cost(l->o, span_time(l, i, j), span_parameters(l, i, j), l->B, l->inner, m);
}

double transfer(const Level *l, int k, int j)
{
	const States *st = l->st;
	const bool last = j == st->n - 1;

	switch (l->o->cost) {
	case PD_SOSP:
		if (l->o->compression <= 0)
			return 0;
		return 2 * fmax(st->s[k].cut, last ? 0 : st->s[j].cut) / (l->B * l->o->compression);
	case PD_OLD: {
		const double out = j > 1 ? st->s[j - 1].activation - st->s[j - 2].activation : st->s[0].activation;
		const double in = k ? st->s[k].activation - st->s[k - 1].activation : st->s[0].activation;
		return 2 * fmax(in, last ? 0 : out) / l->B;
	}
	case PD_PAPER:
	case PD_TEXT: return 2 * st->s[k].cut / l->B;
	case PD_ONCE:
	case PD_RING: break;
	}
	return 2 * (states_input(st, k, j) / l->B + l->o->latency);
}

double *transfers(Arena *a, const Level *l)
{
	const int n = l->st->n;

	if (n > 4096)
		return NULL;
	double *x = NEWN(a, double, (size_t)n *(size_t)n);
	for (int k = 0; k < n; k++)
		for (int j = k + 1; j < n; j++)
			x[(size_t)k * (size_t)n + (size_t)j] = state_before(l->st, k, j) ? transfer(l, k, j) : 0;
	return x;
}

/* Replicas share the transfers in both published programs. */
static double cost_of(const PdOpt *o, double t, double w, double x, double bandwidth, int r)
{
	const double s = stage_cost(o, t, w, bandwidth, 1, r);
	const double y = o->cost == PD_SOSP || o->cost == PD_OLD || o->cost == PD_RING ? x / r : x;

	return s > y ? s : y;
}

double last_cost(const Level *l, int k, int j, int r, double x)
{
	return cost_of(l->o, span_time(l, k + 1, j), span_parameters(l, k + 1, j), x, l->B, r);
}

void last_costs(const Level *l, int k, int j, int most, double *c)
{
	const double t = span_time(l, k + 1, j), w = span_parameters(l, k + 1, j), x = transfer(l, k, j);

	for (int r = 1; r <= most; r++)
		c[r] = cost_of(l->o, t, w, x, l->B, r);
}

/* Tries the stages (k, j] behind all plans a that end with k; best is replaced by what is strictly better. */
static void try_split(
	const Level *l, int k, int j, const double *c, const double *a, double *best, From *from, double *worst)
{
	const int most = l->o->straight ? 1 : l->M - 1;

	worst[l->M + 1] = 0; /* the largest entry from m on: what c must be below to help */
	for (int m = l->M; m > 1; m--)
		worst[m] = fmax(best[m], worst[m + 1]);
	for (int r = 1, hi = l->M; r <= most; r++) {
		const double s = c[r];

		while (hi < l->M && worst[hi + 1] > s)
			hi++;
		while (hi > r && worst[hi] <= s)
			hi--;
		for (int m = r + 1; m <= hi; m++) {
			const double t = a[m - r] > s ? a[m - r] : s;

			if (t < best[m] && (l->o->memory <= 0 || span_fits(l, k + 1, j, r, l->M - m))) {
				best[m] = t;
				from[m] = (From){ k, r, m - r };
			}
		}
	}
}

void solve_row(const Level *l, int i, int end, double *best, From *from)
{
	const int n = l->st->n, M = l->M;
	const size_t row = (size_t)M + 1;
	double c[M + 2], worst[M + 2];

	for (int j = i; j < end; j++) {
		double *b = best + (size_t)j * row;
		From *f = from + (size_t)j * row;

		b[0] = INFINITY;
		for (int m = 1; m <= M; m++) {
			const bool fits = (m == 1 || !l->o->straight) && span_fits(l, i, j, m, M - m);

			b[m] = fits ? single_cost(l, i, j, m) : INFINITY;
			f[m] = (From){ -1, m, 0 };
		}
		double one[M + 1];
		memcpy(one, b, sizeof one);
		for (int k = j - 1; k >= i; k--) { /* the tie rule: the latest cut, the fewest replicas */
			if (!state_before(l->st, k, j) || (i && state_before(l->st, k, i - 1)) ||
				isinf(span_time(l, k + 1, j)))
				continue;
			if (l->o->cost == PD_ONCE && i && !state_before(l->st, i - 1, k))
				continue;
			if (!l->costs)
				last_costs(l, k, j, l->o->straight ? 1 : M - 1, c);
			try_split(l, k, j, l->costs ? l->costs + ((size_t)j * (size_t)n + (size_t)k) * (size_t)M : c,
				best + (size_t)k * row, b, f, worst);
		}
		for (int m = 2; l->o->fewer && m <= M;
			m++) /* as the published code: fewer before splits, singles first */
			if (b[m - 1] < one[m] && b[m - 1] <= b[m]) {
				b[m] = b[m - 1];
				f[m] = f[m - 1];
			}
	}
}
