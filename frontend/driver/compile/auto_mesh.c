/* How many devices share a replica, and what replicas divide among them, decided with the plan (--tensor auto, --zero auto).
 *
 * The members of a group talk several times in each layer, so they are devices of one host: degrees are the divisors of the number
 * of devices of the largest host. Each, with --zero 0 and 1 where that is open too, is a compilation of which nothing is written:
 * hosts in groups, the graph divided, cuts, replicas, recomputing and the size of a microbatch searched as ever, memory laid out to
 * the byte, and the step played by the simulator. So what is said of a degree is what asking for it by hand gives.
 *
 * Of those that fit the shortest step per sample is taken; a larger degree, or state in parts, must be shorter by a thousandth.
 * Where none fits, gradients in parts are looked at (--zero 2), and then weights (3), which are sent for by the microbatch. Where
 * none of them does the one that lacks least is taken, and its compilation says what lacks. */
#include <math.h>
#include <string.h>
#include "ir/base/buf.h"
#include "ir/base/human.h"
#include "frontend/settings/cluster.h"
#include "passes/comm/comm.h"
#include "passes/schedule/schedule.h"
#include "passes/simulate/simulate.h"
#include "global_batch.h"
#include "plan_fits.h"
#include "planfile.h"
#include "probe.h"

static const double WORTH = 1 - 1e-3;

static bool open_options(const Compile *c) { return c->o->t.plan.choose_tensor || c->o->t.plan.choose_zero; }

/* The compilation itself; s has an arena of its own. */
static void play(Compile *s, Mesh *x, Arena *to)
{
	Fit fit = { 0 };
	Sim sim;

	s->look = &fit;
	s->d->last_code = 0;
	x->unread = !compile_read(s);
	const bool ok = !x->unread && compile_plan(s, NULL) && s->m->nstage && s->m->schedule &&
	                simulate(s->a, simulate_model(s->a, s->m, &s->cluster, &s->o->t), &sim, s->d);
	x->over = fit.over;
	x->limit = fit.limit;
	x->peak = fit.need;
	if (!ok) {
		const bool memory = s->d->last_code == 601 || s->d->last_code == 401 || fit.over > 1;
		x->refused = memory ? "does not fit into memory"
		                    : arena_printf(to, "refused: %s",
					      s->d->last_text ? s->d->last_text : "no plan is found");
		return;
	}
	for (int i = 0; i < s->m->nstage; i++)
		x->peak = s->m->stage[i]->arena > x->peak ? s->m->stage[i]->arena : x->peak;
	x->fits = true;
	x->step = sim.each;
	x->samples = s->m->batch * s->m->microbatches;
	x->least = s->plan.least;
	x->plan = arena_str(to, plan_name(s));
}

static void look(const Compile *c, Mesh *x)
{
	Diag mute = *c->d;
	Options o = *c->o;
	Compile s = *c;
	const char *why = x->zero > 0 ? zero_refused(&o.t, schedule_async(&o.t)) : NULL;

	if (why) {
		x->refused = arena_printf(c->a, "refused: --zero %d does not go with %s", (int)x->zero, why);
		return;
	}
	s.a = arena_new();
	s.scratch = mute.scratch = arena_new();
	mute.limit = 0;
	mute.errors = 1;
	mute.quiet = true;
	mute.last_text = NULL;
	s.d = &mute;
	s.o = &o;
	s.explain = (Buf){ 0 };
	s.changes = NULL;
	o.t.plan.choose_tensor = o.t.plan.choose_zero = false;
	o.t.plan.tensor = x->tensor;
	o.t.plan.zero = x->zero;
	o.explain = o.time_passes = o.print_after_all = o.print_after_change = false;
	o.print_before = o.print_after = o.stop_after = NULL;
	play(&s, x, c->a);
	arena_free(s.scratch);
	arena_free(s.a);
}

/* Is x, which was looked at later, to be taken in the place of y? */
static bool better(const Mesh *x, const Mesh *y)
{
	if (x->fits != y->fits)
		return x->fits;
	if (x->fits)
		return x->step / (double)x->samples < WORTH * (y->step / (double)y->samples);
	return x->over > 1 && (y->over <= 1 || x->over < WORTH * y->over);
}

/* The divisors of the number of devices of the largest host; 0: there is no cluster to read. */
static int degrees(const Compile *c, int64_t *to)
{
	Diag mute = *c->d;
	Compile s = *c;
	Options o = *c->o;
	int most = 0, n = 0;

	mute.limit = 0;
	mute.errors = 1;
	mute.quiet = true;
	s.d = &mute;
	s.o = &o;
	o.t.plan.choose_tensor = false;
	o.t.plan.tensor = 0;
	if (!compile_machine(&s))
		return 0;
	for (int i = 0; i < s.cluster.ndevice; i++) {
		int same = 0;
		for (int k = 0; k < s.cluster.ndevice; k++)
			same += s.cluster.device[k].host == s.cluster.device[i].host;
		most = same > most ? same : most;
	}
	for (int d = 1; d <= most && d <= GROUP_MOST; d++)
		if (most % d == 0)
			to[n++] = d;
	return n;
}

/* "2x4-1x4" says the degree. */
static bool said_by_plan(Compile *c)
{
	PlanSettings *p = &c->o->t.plan;

	if (!p->replicas || !strchr(p->replicas, 'x') || plan_is_file(p->replicas))
		return true;
	p->choose_tensor = false;
	return plan_tensor(c->a, p, c->d);
}

/* One line for each, and how far the step is from the least there could be. */
static const char *told(const Compile *c)
{
	const Mesh *best = &c->mesh[c->mesh_taken];
	double least = INFINITY;
	Buf b = { 0 };

	for (int i = 0; i < c->nmesh; i++) {
		const Mesh *x = &c->mesh[i];
		buf_printf(&b, "  tensor %lld%s  ", (long long)(x->tensor > 1 ? x->tensor : 1),
			x->zero > 0                      ? arena_printf(c->a, ", zero %d", (int)x->zero)
			: c->mesh[c->nmesh - 1].zero > 0 ? "        "
							 : "");
		buf_puts(&b, x->fits      ? arena_printf(c->a, "step %s", time_short(c->a, x->step))
			     : x->refused ? x->refused
					  : "");
		if (x->peak)
			buf_printf(&b, "  memory %s", str_bytes(c->a, x->peak));
		if (x->limit)
			buf_printf(&b, " of %s", str_bytes(c->a, x->limit));
		buf_printf(
			&b, "%s%s%s\n", x->plan ? "  plan " : "", x->plan ? x->plan : "", x == best ? "  taken" : "");
		if (x->fits && x->least > 0)
			least = fmin(least, x->least / (double)x->samples);
	}
	if (best->fits && isfinite(least))
		buf_printf(&b,
			"  a step is at most %.1f %% above the least: all work divided over all devices, or its longest chain\n",
			100 * fmax(0, best->step / (double)best->samples / least - 1));
	const char *text = arena_str(c->a, buf_str(&b));
	buf_free(&b);
	return text;
}

static void take(Compile *c, int i)
{
	PlanSettings *p = &c->o->t.plan;

	c->mesh_taken = i;
	p->tensor = p->choose_tensor ? c->mesh[i].tensor : p->tensor;
	p->zero = p->choose_zero ? c->mesh[i].zero : p->zero;
	p->choose_tensor = p->choose_zero = false;
}

/* Looks at each degree with each --zero from `least` to `most`; the best of these and of what was looked at before. */
static int look_at(Compile *c, const int64_t *degree, int n, int64_t least, int64_t most, int best)
{
	const int from = c->nmesh;
	int cap = from;

	for (int i = 0; i < n; i++)
		for (int64_t z = least; z <= most; z++)
			PUSH(c->a, c->mesh, c->nmesh, cap) = (Mesh){ .tensor = degree[i], .zero = z };
	for (int i = from; i < c->nmesh && c->nmesh > 1; i++) {
		look(c, &c->mesh[i]);
		best = better(&c->mesh[i], &c->mesh[best]) ? i : best;
		if (c->mesh[0].unread) /* so it is at every degree, and it will be said */
			break;
	}
	return best;
}

bool mesh_choose(Compile *c)
{
	PlanSettings *p = &c->o->t.plan;
	int64_t degree[GROUP_MOST];
	int n = 1, best;

	if (!open_options(c))
		return true;
	if (c->o->start_from)
		return diag_error(c->d, NOLOC, 1,
			"--tensor auto and --zero auto compile each; they do not go with --start-from, whose graph is divided already");
	if (plan_is_file(p->replicas)) { /* it says both */
		p->choose_tensor = p->choose_zero = false;
		return true;
	}
	if (!said_by_plan(c))
		return false;
	degree[0] = p->tensor;
	if (p->choose_tensor && !(n = degrees(c, degree)))
		degree[n++] = 1; /* what is wrong with the cluster will be said */
	best = p->choose_zero ? look_at(c, degree, n, 0, 1, 0) : look_at(c, degree, n, p->zero, p->zero, 0);
	for (int64_t z = 2; z <= 3 && p->choose_zero && !c->mesh[0].unread && !c->mesh[best].fits; z++)
		best = look_at(c, degree, n, z, z, best);
	take(c, best);
	c->mesh_told = c->nmesh > 1 ? told(c) : NULL;
	return true;
}
