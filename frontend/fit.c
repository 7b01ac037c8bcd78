/* A plan that fits. Planners estimate memory (planmodel.h), memplan lays it out to the byte and refuses what does
 * not fit: then the planner is asked again with its estimate corrected, at last for the plan that needs least; where the
 * size of a microbatch is open, the next size is tried. Where nothing fits, the error says how much would do, and what would
 * help at what cost: computing forwards again, smaller microbatches, more devices. Of those only what the planner's
 * estimate does not rule out is compiled. */
#define _POSIX_C_SOURCE 200809L        /* open_memstream */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../passes/timeline.h"
#include "probe.h"

enum { ROUNDS = 5 };
static const double LEAST = 1e9;        /* no plan fits an estimate so much larger: the one that lacks least is taken */
static const double HOPE = 1.25;        /* what is estimated to need so much of the memory may fit all the same */

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

/* The model as it was before the passes; what was noted of it was read. */
static bool again(Compile *c, int64_t micro)
{
	const bool quiet = c->d->quiet;

	c->d->quiet = true;
	c->m = compile_import(c, micro);
	c->d->quiet = quiet;
	c->plan = (Plan){ 0 };
	buf_clear(&c->explain);
	return c->m;
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
		if (scale >= LEAST || c->plan.over > 1)     /* the plan that lacks least was compiled */
			return false;
		const double more = c->plan.over > 0 ? f->over / c->plan.over : LEAST;
		scale = round + 2 >= ROUNDS ? LEAST : scale * fmax(1.02, 1.001 * more);
		if (!again(c, c->m->batch)) {
			*refused = false;
			return false;
		}
	}
}

/* ---- what would help ---- */

/* Another setting. */
typedef struct Way { Options o; Cluster cluster; int64_t micro; const char *what; } Way;

/* What was tried, in words; of what did not do, that which the planner expects to need least. */
typedef struct Help {
	const Compile *c;
	Probe   probe;              /* the model at the microbatch of the last question */
	int64_t open;               /* that size; 0: none */
	Buf     said;
	double  step;               /* seconds of the best step without limits */
	double  least;              /* bytes; 0: nothing was tried */
	Way     way;
} Help;

/* What the planner makes of it at a first look. */
static bool estimate(Help *h, const Way *w, Plan *plan)
{
	if (h->open != w->micro) {
		if (h->open)
			probe_close(&h->probe);
		h->open = w->micro;
		if (!probe_open(&h->probe, h->c, w->micro)) {
			probe_close(&h->probe);
			h->open = 0;
			return false;
		}
	}
	return probe_plan(&h->probe, &w->o.t, &w->cluster, true, plan);
}

/* Does a plan fit then? */
static bool fits_with(const Compile *c, const Way *w, Fit *f)
{
	Diag mute = *c->d;
	Compile s = *c;
	Options own = w->o;
	bool refused;

	*f = (Fit){ 0 };

	mute.limit = 0;
	mute.errors = 1;
	mute.quiet = true;
	own.explain = own.time_report = own.print_after_all = own.print_after_change = false;
	own.print_before = own.print_after = NULL;
	s.d = &mute;
	s.o = &own;
	s.cluster = w->cluster;
	s.explain = (Buf){ 0 };
	s.plan = (Plan){ 0 };
	s.quick = true;
	s.changes = NULL;
	return (s.m = compile_import(&s, w->micro)) && find_fit(&s, NULL, f, &refused);
}

/* Says what it needs, and how much longer a step takes than the best one without limits. */
static bool helps(Help *h, const Way *w)
{
	Plan plan;
	Fit f;

	if (!estimate(h, w, &plan))
		return false;
	if (plan.over <= HOPE && fits_with(h->c, w, &f)) {
		buf_printf(&h->said, "; %s needs %s", w->what, str_bytes(h->c->a, f.need));
		if (h->step > 0 && f.step > 0 && isfinite(f.step))
			buf_printf(&h->said, " (%+.0f %% time)", 100 * (f.step / h->step - 1));
		return true;
	}
	if (!h->least || plan.peak < h->least * (1 - 1e-9)) {
		h->least = plan.peak;
		h->way = *w;
	}
	return false;
}

/* Seconds of the best step where memory has no limit. */
static double free_step(Help *h, const Way *as_is)
{
	Way w = *as_is;
	Plan plan;

	w.cluster.device = arena_dup(h->c->a, w.cluster.device, sizeof *w.cluster.device * (size_t)w.cluster.ndevice);
	for (int i = 0; i < w.cluster.ndevice; i++)
		w.cluster.device[i].memory = 0;
	return estimate(h, &w, &plan) ? plan.step_time : 0;
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

/* Halves of the microbatch, where a sample at a time is worth a try. */
static bool smaller_helps(Help *h, const Way *as_is)
{
	Way w = *as_is;
	Plan plan;
	int64_t least = as_is->micro;

	while (least % 2 == 0)
		least /= 2;
	w.micro = least;
	if (h->c->nmicro || least == as_is->micro)
		return false;
	const bool hope = estimate(h, &w, &plan) && plan.over <= HOPE;
	for (w.micro = hope ? as_is->micro / 2 : least; w.micro >= least; w.micro /= 2) {
		w.what = arena_printf(h->c->a, "--micro-batch=%lld", (long long)w.micro);
		if (helps(h, &w))
			return true;
	}
	return false;
}

static bool longer_helps(Help *h, const Way *as_is)
{
	Way w = *as_is;

	for (int factor = 2; factor <= 8 && as_is->cluster.ndevice * factor <= 128; factor *= 2) {
		w.cluster = times(h->c->a, &as_is->cluster, factor);
		w.what = arena_printf(h->c->a, "a pipeline over %d such devices", w.cluster.ndevice);
		if (helps(h, &w))
			return true;
	}
	return false;
}

static bool no_plan(Compile *c, const Fit *f)
{
	Help h = { .c = c };
	Way as_is = { *c->o, c->cluster, c->m->batch, "the cluster" };
	bool any = false;
	Fit least;

	if (!as_is.o.t.global)
		as_is.o.t.global = as_is.micro * c->m->microbatches;
	h.step = free_step(&h, &as_is);
	if (!as_is.o.t.recompute || !strcmp(as_is.o.t.recompute, "none")) {
		Way again_way = as_is;
		again_way.o.t.recompute = "stage";
		again_way.what = "--recompute=stage";
		any |= helps(&h, &again_way);
	}
	any |= smaller_helps(&h, &as_is);
	any |= longer_helps(&h, &as_is);
	if (!any && h.least > 0 && (fits_with(c, &h.way, &least) || least.need))
		buf_printf(&h.said, "; even %s needs %s", h.way.what, str_bytes(c->a, least.need));
	diag_error(c->d, FILELOC(c->cluster.file), 401, "no plan fits: smallest peak is %s (%lld bytes) on %s, limit %s%s",
		str_bytes(c->a, f->need), (long long)f->need, c->cluster.device[f->device].name, str_bytes(c->a, f->limit),
		buf_str(&h.said));
	buf_free(&h.said);
	if (h.open)
		probe_close(&h.probe);
	return false;
}

/* The sizes of a microbatch that are left, best first, as long as there is hope. */
bool compile_fit(Compile *c, const char *dump)
{
	Fit f, least = { 0 };
	bool refused;

	if (!searched(c))
		return compile_passes(c, dump);
	for (int i = 0;; i++) {
		if (find_fit(c, dump, &f, &refused))
			return true;
		if (!refused)
			return false;
		if (!least.need || f.over < least.over)
			least = f;
		if (i + 1 >= c->nmicro || c->micro[i + 1].over > HOPE)
			return no_plan(c, &least);
		c->o->t.micro = c->micro[i + 1].micro;
		if (!again(c, c->o->t.micro))
			return false;
	}
}
