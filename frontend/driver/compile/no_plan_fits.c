/* E0401: what is said where no plan fits into memory (plan_fits.c). The smallest limit that would do is checked: plans are looked for
 * once more under a limit a KiB below it, and that is repeated with what is found. Then what would help at what cost, the
 * cheapest first: computing forwards again, smaller microbatches, more devices; two of these together where none does
 * alone, and all three where no two do. A cost is the simulated step beside the best one without limits. Of ways only those
 * are compiled that the planner's estimate does not rule out. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "global_batch.h"
#include "plan_fits.h"
#include "probe.h"
#include "ir/base/human.h"

enum { SIZES = 24, DEVICES = 128, AGAIN = 1, SMALLER = 2, LONGER = 4 };

/* A way that does. */
typedef struct Found {
	const char *what;
	int64_t need;
	double step;
} Found;

typedef struct Help {
	const Compile *c;
	Way as_is;
	int64_t size[SIZES]; /* of microbatches: as it is, then halves */
	int nsize, nfactor;  /* numbers of devices: 1, 2, 4, ... times as many */
	Probe *probe[SIZES]; /* by size; NULL: not opened yet */
	bool no[SIZES];      /* the model cannot have the size */
	double step;         /* seconds of the best step without limits */
	Found *found;
	int nfound, cap;
	double least; /* bytes of the way that is expected to need least; 0: none was tried */
	Way way;
} Help;

/* What the planner makes of it at a first look. */
static bool estimate(Help *h, const Way *w, int size, Plan *plan)
{
	if (!h->probe[size] && !h->no[size]) {
		h->probe[size] = NEW(h->c->a, Probe);
		h->no[size] = !probe_open(h->probe[size], h->c, w->micro);
	}
	return !h->no[size] && probe_plan(h->probe[size], &w->o.t, &w->cluster, true, plan);
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

/* The way with forwards again or not, the size and the number of devices. */
static Way way_of(const Help *h, bool again, int size, int factor)
{
	Way w = h->as_is;
	const char *with = "";

	w.what = "";
	if (again) {
		w.o.t.plan.recompute = RECOMPUTE_STAGE;
		w.what = "--recompute=stage";
		with = " with ";
	}
	if (size) {
		w.micro = h->size[size];
		w.what = arena_printf(h->c->a, "%s%s--micro-batch=%lld", w.what, with, (long long)w.micro);
		with = " with ";
	}
	if (factor) {
		w.cluster = times(h->c->a, &h->as_is.cluster, 1 << factor);
		const int tensor = (int)h->c->m->tensor;
		w.what = arena_printf(h->c->a,
			tensor > 1 ? "%s%sa pipeline over %d groups of %d such devices"
				   : "%s%sa pipeline over %d such devices",
			w.what, with, w.cluster.ndevice, tensor);
	}
	return w;
}

static bool helps(Help *h, bool again, int size, int factor)
{
	Way w = way_of(h, again, size, factor);
	Plan plan;
	Fit f;

	if (!estimate(h, &w, size, &plan))
		return false;
	if (plan.over <= HOPE && fit_with(h->c, &w, false, &f)) {
		PUSH(h->c->a, h->found, h->nfound, h->cap) = (Found){ w.what, f.need, f.step };
		return true;
	}
	if (!h->least || plan.peak < h->least * (1 - 1e-9)) {
		h->least = plan.peak;
		h->way = w;
	}
	return false;
}

/* Of the ways of this kind the first that does: the fewest devices, then the largest microbatch. */
static bool kind_helps(Help *h, int kind)
{
	const bool again = kind & AGAIN;
	const int first = kind & SMALLER ? 1 : 0, last = kind & SMALLER ? h->nsize - 1 : 0;
	const int most = kind & LONGER ? h->nfactor : 0;

	if ((again && h->as_is.o.t.plan.recompute != RECOMPUTE_NONE) || first > last)
		return false;
	for (int factor = kind & LONGER ? 1 : 0; factor <= most; factor++) {
		const Way smallest = way_of(h, again, last, factor);
		Plan plan;
		const bool hope = estimate(h, &smallest, last, &plan) && plan.over <= HOPE;
		for (int size = hope ? first : last; size <= last; size++)
			if (helps(h, again, size, factor))
				return true;
	}
	return false;
}

/* Kinds of one measure, then of two, then of three. */
static void find_ways(Help *h)
{
	for (int n = 1; n <= 3 && !h->nfound; n++)
		for (int kind = AGAIN; kind <= (AGAIN | SMALLER | LONGER); kind++)
			if ((kind & 1) + (kind >> 1 & 1) + (kind >> 2) == n)
				kind_helps(h, kind);
}

static int cheaper(const void *x, const void *y)
{
	const Found *a = x, *b = y;

	if (a->step != b->step)
		return (a->step > b->step) - (a->step < b->step);
	return strcmp(a->what, b->what);
}

/* Seconds of the best step where memory has no limit. */
static double free_step(Help *h)
{
	Way w = h->as_is;
	Plan plan;

	w.cluster = times(h->c->a, &w.cluster, 1);
	for (int i = 0; i < w.cluster.ndevice; i++)
		w.cluster.device[i].memory = 0;
	return estimate(h, &w, 0, &plan) ? plan.step_time : 0;
}

/* The same way on devices that have `bytes` where that of f has its limit. */
static Way limited(Arena *a, const Way *as_is, const Fit *f, int64_t bytes)
{
	Way w = *as_is;
	const double share = (double)bytes / (double)f->limit;

	w.cluster = times(a, &w.cluster, 1);
	for (int i = 0; i < w.cluster.ndevice; i++) {
		Device *d = &w.cluster.device[i];
		d->memory = d->memory == f->limit ? bytes
		            : d->memory > 0       ? (int64_t)ceil((double)d->memory * share)
		                                  : 0;
	}
	return w;
}

/* The search for plans depends on limits, so a plan that needs less may be found under a smaller one. */
static Fit smallest(const Compile *c, const Way *as_is, Fit f)
{
	enum { TIMES = 4 };
	Fit less, same;

	for (int i = 0; i < TIMES && f.need > 1024; i++) {
		const Way below = limited(c->a, as_is, &f, f.need - 1024);
		if (!fit_with(c, &below, true, &less) || less.need >= f.need)
			break;
		const Way there = limited(c->a, as_is, &f, less.need);
		if (!fit_with(c, &there, true, &same))
			break;
		f.device = same.device;
		f.need = same.need;
	}
	return f;
}

static void list_sizes(Help *h)
{
	const int64_t whole = h->as_is.micro;

	h->size[h->nsize++] = whole;
	for (int64_t m = whole; m % 2 == 0 && !h->c->nmicro && h->nsize < SIZES; m /= 2)
		h->size[h->nsize++] = m / 2;
	while (h->nfactor < 3 && h->as_is.cluster.ndevice << (h->nfactor + 1) <= DEVICES)
		h->nfactor++;
}

bool no_fit(Compile *c, const Fit *lacks)
{
	Help h = { .c = c, .as_is = { *c->o, c->cluster, c->nmicro ? c->micro[0].micro : c->m->batch, "" } };
	Buf said = { 0 };
	Fit least;

	const Fit f = smallest(c, &h.as_is, *lacks);
	h.as_is.o.t.loop.global = batch_of_step(c);
	list_sizes(&h);
	h.step = free_step(&h);
	find_ways(&h);
	if (h.nfound)
		qsort(h.found, (size_t)h.nfound, sizeof *h.found, cheaper);
	for (int i = 0; i < h.nfound; i++) {
		buf_printf(&said, "; %s needs %s", h.found[i].what, str_bytes(c->a, h.found[i].need));
		if (h.step > 0 && h.found[i].step > 0 && isfinite(h.found[i].step))
			buf_printf(&said, " (%+.0f %% time)", 100 * (h.found[i].step / h.step - 1));
	}
	if (!h.nfound && h.least > 0 && (fit_with(c, &h.way, false, &least) || least.need))
		buf_printf(&said, "; even %s needs %s", h.way.what, str_bytes(c->a, least.need));
	diag_error(c->d, FILELOC(c->cluster.file), 401,
		"no plan fits: smallest peak is %s (%lld bytes) on %s, limit %s%s", str_bytes(c->a, f.need),
		(long long)f.need, c->cluster.device[f.device].name, str_bytes(c->a, f.limit), buf_str(&said));
	buf_free(&said);
	for (int i = 0; i < h.nsize; i++)
		if (h.probe[i])
			probe_close(h.probe[i]);
	return false;
}
