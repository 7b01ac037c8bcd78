/* How many devices share a replica, and what replicas divide among them, decided with the plan (--tensor auto, --zero auto).
 *
 * The members of a group talk several times in each layer, so they are devices of one host: degrees are the divisors of the number
 * of devices of the largest host. Each, with --zero 0 and 1 where that is open too, is a compilation of which nothing is written:
 * hosts in groups, the graph divided, cuts, replicas, recomputing and the size of a microbatch searched as ever, memory laid out to
 * the byte, and the step played by the simulator. So what is said of a degree is what asking for it by hand gives.
 *
 * Of those that fit the shortest step per sample is taken; a larger degree, or state in parts, must be shorter by a thousandth.
 * Where none fits, gradients in parts are looked at (--zero 2), and then weights (3), which are sent for by the microbatch. Where
 * none of them does the one that lacks least is taken, and its compilation says what lacks.
 *
 * Behind that plans are looked for whose stages are divided unlike (passes/plan/unlike_search.c): with --tensor auto of unlike groups, some
 * along the sequence; with --zero auto with numbers of their own. Their trials are compilations as well. One is taken where it is
 * shorter than the best degree by more than a hundredth, or fits where none does: so no step is longer than without that search, and
 * where nothing is to be won all stays as it was. */
#include <math.h>
#include <string.h>
#include "ir/base/buf.h"
#include "ir/base/human.h"
#include "frontend/settings/cluster.h"
#include "passes/common/plan.h"
#include "passes/comm/comm.h"
#include "passes/plan/unlike.h"
#include "passes/schedule/schedule.h"
#include "passes/simulate/simulate.h"
#include "global_batch.h"
#include "plan_fits.h"
#include "planfile.h"
#include "probe.h"

static const double WORTH = 1e-3, UNLIKE = 1e-2; /* parts of a step */

static bool open_options(const Compile *c) { return c->o->t.plan.choose_tensor || c->o->t.plan.choose_zero; }

/* Of a machine without groups: the device that this one, or its first member, is; -1: none. */
static int device_of(const Cluster *machine, const Device *x)
{
	for (int i = 0; i < machine->ndevice; i++) {
		const Device *y = &machine->device[i];
		if (y->host == x->host && y->index == x->index && y->cuda == x->cuda)
			return i;
	}
	return -1;
}

/* The plan stage by stage, on devices of a machine without groups; NULL: several stages are on one device. */
static Staged *staged_of(const Compile *s, const Cluster *machine, Arena *to)
{
	const PlanSettings *p = &s->o->t.plan;
	const int n = module_stages(s->m);
	Staged *x = NEW(to, Staged);

	*x = (Staged){ .n = n,
		.replicas = NEWN(to, int, n),
		.members = NEWN(to, int, n),
		.zero = NEWN(to, int, n),
		.along = NEWN(to, int, n),
		.device = NEWN(to, int, machine->ndevice),
		.until = NEWN(to, const char *, n),
		.place = NEWN(to, const char *, s->plan.nplace),
		.nplace = s->plan.nplace,
		.order = s->plan.order,
		.micro = s->o->t.loop.micro };
	for (int i = 0; i < s->plan.nplace; i++)
		x->place[i] = arena_str(to, s->plan.place[i]);
	for (int t = 0; t < n; t++) {
		const Stage *y = s->m->stage[t];
		x->replicas[t] = y->replicas;
		x->members[t] = stage_tensor(s->m, t);
		x->zero[t] = stage_zero(p, t);
		x->along[t] = p->sequence_of ? p->sequence_of[t] : SEQUENCE_OFF;
		x->until[t] = t + 1 < n ? arena_str(to, s->plan.stage[t].until) : NULL;
		for (int r = 0; r < y->replicas; r++) {
			const int first = device_of(machine, &s->cluster.device[y->device[r]]);
			if (first < 0 || x->ndevice + x->members[t] > machine->ndevice)
				return NULL;
			for (int k = 0; k < x->members[t]; k++)
				x->device[x->ndevice++] = first + k;
		}
	}
	return x;
}

/* The compilation itself; s has an arena of its own. */
static void play(Compile *s, Mesh *x, const Cluster *machine, Arena *to)
{
	Fit fit = { 0 };
	Sim sim;

	s->look = &fit;
	s->d->last_code = 0;
	x->unread = !compile_read(s);
	x->nodes = x->unread ? 0 : s->m->graph->nnodes;
	const bool ok = !x->unread && compile_plan(s, NULL) && s->m->nstage && s->m->schedule &&
	                simulate(s->a, simulate_model(s->a, s->m, &s->cluster, &s->o->t), &sim, s->d);
	x->over = fit.over;
	x->limit = fit.limit;
	x->peak = fit.need;
	if (!x->unread && s->m && s->m->nstage && s->plan.nstage == module_stages(s->m))
		x->as = staged_of(s, machine, to);
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

static void look_with(const Compile *c, const Options *with, const Cluster *machine, Mesh *x)
{
	Diag mute = *c->d;
	Options o = *with;
	Compile s = *c;

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
	o.explain = o.time_passes = o.print_after_all = o.print_after_change = false;
	o.print_before = o.print_after = o.stop_after = NULL;
	play(&s, x, machine, c->a);
	arena_free(s.scratch);
	arena_free(s.a);
}

static void look(const Compile *c, const Cluster *machine, Mesh *x)
{
	Options o = *c->o;
	const char *why = x->zero > 0 ? zero_refused(&o.t, schedule_async(&o.t)) : NULL;

	if (why) {
		x->refused = arena_printf(c->a, "refused: --zero %d does not go with %s", (int)x->zero, why);
		return;
	}
	o.t.plan.tensor = x->tensor;
	o.t.plan.zero = x->zero;
	look_with(c, &o, machine, x);
}

/* Is x, which was looked at later, to be taken in the place of y? gain: by so much of y's step at least. */
static bool better(const Mesh *x, const Mesh *y, double gain)
{
	if (x->fits != y->fits)
		return x->fits;
	if (x->fits)
		return x->step / (double)x->samples < (1 - gain) * (y->step / (double)y->samples);
	return x->over > 1 && (y->over <= 1 || x->over < (1 - gain) * y->over);
}

/* Without groups; false: there is none to read. */
static bool read_machine(const Compile *c, Cluster *to)
{
	Diag mute = *c->d;
	Compile s = *c;
	Options o = *c->o;

	mute.limit = 0;
	mute.errors = 1;
	mute.quiet = true;
	s.d = &mute;
	s.o = &o;
	o.t.plan.choose_tensor = false;
	o.t.plan.tensor = 0;
	o.t.plan.replicas = NULL;
	o.t.plan.tensor_of = NULL;
	const bool ok = compile_machine(&s);
	*to = s.cluster;
	return ok;
}

/* The divisors of the number of devices of the largest host; of no cluster: 1. */
static int degrees(const Cluster *k, int64_t *to)
{
	int most = 1, n = 0;

	for (int i = 0; i < k->ndevice; i++) {
		int same = 0;
		for (int j = 0; j < k->ndevice; j++)
			same += k->device[j].host == k->device[i].host;
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

/* ---- stages that are divided unlike (passes/plan/unlike.h) ---- */

static double each(const Mesh *m) { return m->step / (double)m->samples; }

static StagedTrial trial_of(Mesh *m)
{
	return (StagedTrial){ .as = m->fits || m->over > 1 ? m->as : NULL,
		.each = m->fits ? each(m) : INFINITY,
		.over = m->fits ? 0 : m->over,
		.of = m };
}

/* What a search needs to look at a plan. */
typedef struct Looker {
	const Compile *c;
	const StagedRoom *room;
} Looker;

static StagedTrial look_unlike(void *of, const Staged *x)
{
	const Looker *l = of;
	Mesh *m = NEW(l->c->a, Mesh);
	Options o = *l->c->o;

	staged_settings(l->c->a, l->room, x, &o.t.plan);
	o.t.loop.micro = x->micro;
	look_with(l->c, &o, l->room->c, m);
	return trial_of(m);
}

/* Seconds per sample that a plan of any degree takes at least; INFINITY: not known. */
static double least_of(const Compile *c)
{
	double least = INFINITY;

	for (int i = 0; i < c->nmesh; i++)
		if (c->mesh[i].fits && c->mesh[i].least > 0)
			least = fmin(least, c->mesh[i].least / (double)c->mesh[i].samples);
	return least;
}

/* Why nothing is looked for; NULL: something is. */
static const char *nothing_unlike(const Compile *c, double least)
{
	const Mesh *like = &c->mesh[c->mesh_taken];

	if (like->fits && isfinite(least) && (1 - UNLIKE) * each(like) <= least)
		return "no plan could be faster by a hundredth";
	if (!c->o->t.plan.choose_tensor && like->as && like->as->n < 2)
		return "the plan has one stage";
	return unlike_refused(&c->o->t);
}

/* So many trials: of hosts and devices alike, of others; and as many nodes as they come to in all. */
static int most_trials(const Compile *c, const Cluster *machine)
{
	enum { ALIKE = 12, MOST = 48, FEWEST = 6, NODES = 12000 };
	const Mesh *like = &c->mesh[c->mesh_taken];
	const int most = cluster_unlike(machine) || !like->fits ? MOST : ALIKE;
	const int n = NODES / (c->mesh[0].nodes > 0 ? c->mesh[0].nodes : 1);

	return n > most ? most : n < FEWEST ? FEWEST : n;
}

static const char *told_unlike(const Compile *c, const UnlikeFound *f)
{
	const Mesh *like = &c->mesh[c->mesh_taken];
	const char *how = "alone fits";

	if (!f->tried)
		return "  unlike stages: none to try beside plans of one stage\n";
	if (!f->best)
		return arena_printf(c->a, "  unlike stages: %d tried, none has a plan that fits\n", f->tried);
	if (like->fits)
		how = arena_printf(c->a, "%.1f %% %s", 100 * fabs(1 - each(f->best) / each(like)),
			each(f->best) > each(like) ? "more" : "less");
	return arena_printf(c->a, "  unlike stages: %d tried, the best %s: step %s a microbatch of %lld, %s%s\n",
		f->tried, f->name, time_short(c->a, f->best->step), (long long)f->micro, how,
		f->taken ? "  taken" : ": not taken");
}

static void found_unlike(Compile *c, const StagedSearch *q)
{
	UnlikeFound *f = c->unlike;

	f->tried = q->tried;
	if (q->best && q->best->over <= 1) {
		f->best = q->best->of;
		f->name = staged_text(c->a, f->best->as);
		f->settings = c->o->t.plan;
		f->micro = q->best->asked->micro;
		staged_settings(c->a, &q->room, q->best->asked, &f->settings); /* so that the cuts are found again */
		f->taken = better(f->best, &c->mesh[c->mesh_taken], UNLIKE);
	}
	f->told = told_unlike(c, f);
}

/* Behind the search for a degree. */
static void choose_unlike(Compile *c, const Cluster *machine)
{
	const PlanSettings *p = &c->o->t.plan;
	const Mesh *like = &c->mesh[c->mesh_taken];
	const bool said = p->replicas && strcmp(p->replicas, "auto") != 0;
	const char *why = nothing_unlike(c, least_of(c));
	Looker l = { .c = c };
	StagedSearch q = { .a = c->a,
		.most = most_trials(c, machine),
		.look = look_unlike,
		.of = &l,
		.room = { .c = machine,
			.samples = like->samples,
			.shapes = p->choose_tensor && !said,
			.zero = p->choose_zero,
			.sequence = p->choose_tensor && p->sequence == SEQUENCE_UNSAID,
			.micro = !c->o->t.loop.micro && !said } };
	StagedTrial *from = NEWN(c->a, StagedTrial, c->nmesh);
	int n = 0;

	q.more = cluster_unlike(machine) || !like->fits ? q.most / 2 : 0;
	c->unlike = NEW(c->a, UnlikeFound);
	if (why) {
		c->unlike->told = arena_printf(c->a, "  unlike stages: none tried: %s\n", why);
		return;
	}
	for (int i = 0; i < c->nmesh; i++)
		if (c->mesh[i].as && c->mesh[i].as->n > 1 && trial_of(&c->mesh[i]).as)
			from[n++] = trial_of(&c->mesh[i]);
	l.room = &q.room;
	staged_search(
		&q, from, n, like->zero > 0 ? (int)like->zero : 0, like->as ? like->as->micro : c->o->t.loop.micro);
	found_unlike(c, &q);
}

/* One line for each, and how far the step is from the least there could be. */
static const char *told(const Compile *c)
{
	const bool own = c->unlike && c->unlike->taken;
	const Mesh *best = &c->mesh[c->mesh_taken], *taken = own ? c->unlike->best : best;
	const double least = least_of(c);
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
		buf_printf(&b, "%s%s%s\n", x->plan ? "  plan " : "", x->plan ? x->plan : "",
			x == best && !own ? "  taken" : "");
	}
	buf_puts(&b, c->unlike ? c->unlike->told : "");
	if (taken->fits && isfinite(least))
		buf_printf(&b,
			"  a step is at most %.1f %% above the least: all work divided over all devices, or its longest chain\n",
			100 * fmax(0, each(taken) / least - 1));
	const char *text = arena_str(c->a, buf_str(&b));
	buf_free(&b);
	return text;
}

static void take(Compile *c, int i)
{
	PlanSettings *p = &c->o->t.plan;

	if (c->unlike && c->unlike->taken) {
		*p = c->unlike->settings;
		c->o->t.loop.micro = c->unlike->micro;
		return;
	}
	p->tensor = p->choose_tensor ? c->mesh[i].tensor : p->tensor;
	p->zero = p->choose_zero ? c->mesh[i].zero : p->zero;
	p->choose_tensor = p->choose_zero = false;
}

/* Looks at each degree with each --zero from `least` to `most`; the best of these and of what was looked at before. */
static int look_at(
	Compile *c, const Cluster *machine, const int64_t *degree, int n, int64_t least, int64_t most, int best)
{
	const int from = c->nmesh;
	int cap = from;

	for (int i = 0; i < n; i++)
		for (int64_t z = least; z <= most; z++)
			PUSH(c->a, c->mesh, c->nmesh, cap) = (Mesh){ .tensor = degree[i], .zero = z };
	for (int i = from; i < c->nmesh && c->nmesh > 1; i++) {
		look(c, machine, &c->mesh[i]);
		best = better(&c->mesh[i], &c->mesh[best], WORTH) ? i : best;
		if (c->mesh[0].unread) /* so it is at every degree, and it will be said */
			break;
	}
	return best;
}

bool mesh_choose(Compile *c)
{
	PlanSettings *p = &c->o->t.plan;
	int64_t degree[GROUP_MOST];
	Cluster machine;
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
	if (!read_machine(c, &machine)) /* what is wrong with it will be said */
		machine.ndevice = 0;
	if (p->choose_tensor)
		n = degrees(&machine, degree);
	best = p->choose_zero ? look_at(c, &machine, degree, n, 0, 1, 0)
	                      : look_at(c, &machine, degree, n, p->zero, p->zero, 0);
	for (int64_t z = 2; z <= 3 && p->choose_zero && !c->mesh[0].unread && !c->mesh[best].fits; z++)
		best = look_at(c, &machine, degree, n, z, z, best);
	c->mesh_taken = best;
	if (c->nmesh > 1 && !c->mesh[0].unread)
		choose_unlike(c, &machine);
	c->mesh_told = c->nmesh > 1 ? told(c) : NULL;
	take(c, best);
	return true;
}
