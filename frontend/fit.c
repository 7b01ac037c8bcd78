/* A plan that fits. Planners estimate memory (planmodel.h), memplan lays it out to the byte and refuses what does
 * not fit: then the planner is asked again with its estimate corrected, at last for the plan that needs least. Where
 * even that does not fit, the error says how much would do, and what would help at what cost: computing forwards
 * again, smaller microbatches, more devices. */
#define _POSIX_C_SOURCE 200809L        /* open_memstream */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../passes/timeline.h"
#include "compile.h"

enum { ROUNDS = 5 };
static const double LEAST = 1e9;        /* no plan fits an estimate so much larger: the one that lacks least is taken */

/* The device that lacks most, or is fullest, of what was compiled last. */
typedef struct Fit {
	double  over;               /* bytes needed, in relation to what there is */
	int64_t need, limit;
	int     device;
	double  step;               /* seconds */
} Fit;

static Fit fit_of(const Compile *c)
{
	Fit f = { .device = -1, .step = c->plan.step_time };

	for (int t = 0; t < c->m->nstage; t++)
		for (int r = 0; r < c->m->stage[t]->replicas; r++) {
			const Stage *s = c->m->stage[t];
			const int64_t limit = c->cluster.device[s->device[r]].memory;
			if (limit > 0 && (double)s->arena / (double)limit > f.over)
				f = (Fit){ (double)s->arena / (double)limit, s->arena, limit, s->device[r], f.step };
		}
	return f;
}

/* May a plan be looked for again? */
static bool searched(const Compile *c)
{
	const Training *t = &c->o->t;
	bool limited = false;

	for (int i = 0; i < c->cluster.ndevice; i++)
		limited |= c->cluster.device[i].memory > 0;
	return limited && !t->given && (!t->plan || !strcmp(t->plan, "auto")) && !c->o->start_from && !c->o->stop_after;
}

/* Passes, with what they say held back where memory is all that is wrong. True when they are through; *refused:
 * memory. */
static bool quietly(Compile *c, const char *dump, bool *refused)
{
	FILE *out = c->d->out;
	const int errors = c->d->errors;
	char *text = NULL;
	size_t n = 0;

	c->d->out = open_memstream(&text, &n);
	const bool ok = compile_passes(c, dump);
	fclose(c->d->out);
	c->d->out = out;
	*refused = !ok && c->d->last_code == 601;
	if (*refused)
		c->d->errors = errors;
	else
		fwrite(text, 1, n, out);
	free(text);
	return ok;
}

/* True when a plan fits; else *refused and what the plan that lacks least needs, or another fault that was said. */
static bool find_fit(Compile *c, const char *dump, Fit *f, bool *refused)
{
	double scale = 1;

	for (int round = 0;; round++) {
		c->memory_scale = scale;
		if (quietly(c, dump, refused) || !*refused) {
			*f = fit_of(c);
			return !*refused && c->m->nstage;
		}
		*f = fit_of(c);
		if (scale >= LEAST)
			return false;
		const double more = c->plan.over > 0 ? f->over / c->plan.over : LEAST;
		scale = c->plan.over > 1 || round + 2 >= ROUNDS ? LEAST : scale * fmax(1.02, 1.001 * more);
		const bool quiet = c->d->quiet;
		c->d->quiet = true;     /* the notes were read */
		c->m = compile_import(c, c->m->batch);
		c->d->quiet = quiet;
		if (!c->m) {
			*refused = false;
			return false;
		}
		c->plan = (Plan){ 0 };
		buf_clear(&c->explain);
	}
}

/* ---- what would help ---- */

/* What was tried, in words; what the best of it needs that did not do. */
typedef struct Help { Buf said; double step; int64_t least; const char *what; } Help;

/* Another setting, another cluster: does a plan fit then? */
static bool fits_with(const Compile *c, const Options *o, const Cluster *cluster, int64_t micro, Fit *f)
{
	Diag mute = *c->d;
	Compile s = *c;
	Options own = *o;
	bool refused;

	*f = (Fit){ 0 };

	mute.limit = 0;
	mute.errors = 1;
	mute.quiet = true;
	own.explain = own.time_report = own.print_after_all = own.print_after_change = false;
	own.print_before = own.print_after = NULL;
	s.d = &mute;
	s.o = &own;
	s.cluster = *cluster;
	s.explain = (Buf){ 0 };
	s.plan = (Plan){ 0 };
	return (s.m = compile_import(&s, micro)) && find_fit(&s, NULL, f, &refused);
}

/* Says what it needs, and how much longer a step takes than the best one without limits. */
static bool helps(const Compile *c, const Options *o, const Cluster *cluster, int64_t micro, const char *what, Help *h)
{
	Fit f;

	if (fits_with(c, o, cluster, micro, &f)) {
		buf_printf(&h->said, "; %s needs %s", what, str_bytes(c->a, f.need));
		if (h->step > 0 && f.step > 0 && isfinite(f.step))
			buf_printf(&h->said, " (%+.0f %% time)", 100 * (f.step / h->step - 1));
		return true;
	}
	if (f.need > 0 && (!h->least || f.need < h->least)) {
		h->least = f.need;
		h->what = what;
	}
	return false;
}

/* Seconds of the best step where memory has no limit. */
static double free_step(const Compile *c, const Options *o)
{
	Cluster k = c->cluster;
	Fit f;

	k.device = arena_dup(c->a, k.device, sizeof *k.device * (size_t)k.ndevice);
	for (int i = 0; i < k.ndevice; i++)
		k.device[i].memory = 0;
	return fits_with(c, o, &k, c->m->batch, &f) ? f.step : 0;
}

static Cluster times(Arena *a, const Cluster *c, int factor)
{
	Cluster more = *c;

	more.ndevice = c->ndevice * factor;
	more.device = NEWN(a, Device, more.ndevice);
	for (int i = 0; i < more.ndevice; i++)
		more.device[i] = c->device[i / factor];
	return more;
}

static bool no_plan(Compile *c, const Fit *f)
{
	const int64_t micro = c->m->batch;
	Options o = *c->o;
	Help h = { .least = 0 };
	bool any = false;

	if (!o.t.global)
		o.t.global = micro * c->m->microbatches;
	h.step = free_step(c, &o);
	if (!o.t.recompute || !strcmp(o.t.recompute, "none")) {
		o.t.recompute = "stage";
		any |= helps(c, &o, &c->cluster, micro, "--recompute=stage", &h);
		o.t.recompute = c->o->t.recompute;
	}
	for (int64_t k = micro / 2; k >= 1 && micro % k == 0; k /= 2)
		if (helps(c, &o, &c->cluster, k, arena_printf(c->a, "--micro-batch=%lld", (long long)k), &h)) {
			any = true;
			break;
		}
	for (int factor = 2; factor <= 8 && c->cluster.ndevice * factor <= 128; factor *= 2) {
		const Cluster more = times(c->a, &c->cluster, factor);
		if (helps(c, &o, &more, micro, arena_printf(c->a, "a pipeline over %d such devices", more.ndevice), &h)) {
			any = true;
			break;
		}
	}
	if (!any && h.what)
		buf_printf(&h.said, "; even %s needs %s", h.what, str_bytes(c->a, h.least));
	diag_error(c->d, FILELOC(c->cluster.file), 401, "no plan fits: smallest peak is %s (%lld bytes) on %s, limit %s%s",
		str_bytes(c->a, f->need), (long long)f->need, c->cluster.device[f->device].name, str_bytes(c->a, f->limit),
		buf_str(&h.said));
	buf_free(&h.said);
	return false;
}

bool compile_fit(Compile *c, const char *dump)
{
	Fit f;
	bool refused;

	if (!searched(c))
		return compile_passes(c, dump);
	return find_fit(c, dump, &f, &refused) || (refused && no_plan(c, &f));
}
