/* What DAPPLE's planner needs of a profile: sums over each state and all that it depends on. */
#include "dapple.h"

static DappleProfile *empty(Arena *a, int n)
{
	DappleProfile *p = NEW(a, DappleProfile);

	p->n = n;
	p->words = (n + 63) / 64;
	p->fwd = NEWN(a, double, n);
	p->time = NEWN(a, double, n);
	p->act = NEWN(a, double, n);
	p->params = NEWN(a, double, n);
	p->cut = NEWN(a, double, n);
	p->before = NEWN(a, uint64_t, (size_t)n *(size_t)p->words);
	return p;
}

DappleProfile *dapple_profile(Arena *a, const States *st)
{
	DappleProfile *p = empty(a, st->n);

	for (int j = 0; j < p->n; j++) {
		const uint64_t *under = st->under + (size_t)j * (size_t)st->layer_words;
		p->time[j] = st->s[j].time;
		p->act[j] = st->s[j].activation;
		p->params[j] = st->s[j].parameters;
		p->cut[j] = st->s[j].cut;
		for (int i = 0; i < st->p->n; i++)
			if (under[i / 64] >> (i % 64) & 1)
				p->fwd[j] += st->p->layer[i].forward;
		for (int k = 0; k < j; k++)
			if (state_before(st, k, j))
				p->before[(size_t)j * (size_t)p->words + (size_t)k / 64] |= (uint64_t)1 << (k % 64);
	}
	return p;
}

DappleProfile *dapple_chain(
	Arena *a, int n, const double *fwd, const double *bwd, const double *act, const double *params)
{
	DappleProfile *p = empty(a, n);

	for (int j = 0; j < n; j++) {
		p->fwd[j] = fwd[j] + (j ? p->fwd[j - 1] : 0);
		p->time[j] = fwd[j] + bwd[j] + (j ? p->time[j - 1] : 0);
		p->act[j] = act[j] + (j ? p->act[j - 1] : 0);
		p->params[j] = params[j] + (j ? p->params[j - 1] : 0);
		p->cut[j] = act[j];
		for (int k = 0; k < j; k++)
			p->before[(size_t)j * (size_t)p->words + (size_t)k / 64] |= (uint64_t)1 << (k % 64);
	}
	return p;
}
