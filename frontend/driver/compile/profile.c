/* pdcc profile: the model's statements timed on this machine.
 *
 * The model is compiled for one device (or as --plan says), its programs with clocks are built in a folder of their own,
 * and each stage runs alone; where the cluster has several CPU devices on this machine, in as many copies at once (if there
 * are cores for them): they share caches and memory as they will in training. What was measured before, the same kind of
 * node on as many threads of the same device in as many copies, comes from the folder of kept times; when all of it does,
 * nothing is built. */
#include "profile.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ir/base/human.h"
#include "runtime/pd.h"
#include "frontend/settings/profile_file.h"
#include "global_batch.h"
#include "tools.h"

enum { MICROBATCHES = 4 }; /* of a step, where nobody says: gradients are added up as they are in training */

typedef struct Job {
	Compile *c;        /* of the program that is measured */
	Profile *p;        /* what will be known */
	const Node **node; /* by record; NULL: an input */
	TimeCache cache;
	int hits;
} Job;

/* How many devices of the first one's host compute at once; 1 for GPUs. */
static int copies_of(const Compile *c)
{
	const Cluster *k = &c->cluster;
	const int room = pd_cores("") / (c->o->t.target.threads > 0 ? c->o->t.target.threads : 1);
	int n = 0;

	for (int i = 0; i < k->ndevice; i++)
		n += !k->device[i].cuda && k->device[i].host == k->device[0].host;
	n = n < room ? n : room;
	return k->device[0].cuda || n < 1 ? 1 : n;
}

/* Programs of asynchronous plans cannot run alone; those of synchronous ones have the same nodes. */
static void flush(Training *t)
{
	if (schedule_is_async(t->plan.schedule))
		t->plan.schedule = (ScheduleSpec){ .kind = SCHEDULE_AUTO };
	t->plan.pipe_sgd = 0;
	t->plan.choose_pipe_sgd = t->plan.vertical_sync = false;
	t->plan.stash = STASH_AUTO;
	t->plan.warmup_steps = t->plan.warmup_epochs = 0;
	if (served_async(t))
		t->comm.sync = t->comm.by_sync = SERVERS_SYNC;
}

/* Another compilation of the same model with the same settings: by default one device, all else equal. */
static bool plan_for_clocks(Job *j, const Compile *of)
{
	Compile *c = j->c;
	Options *o = NEW(of->a, Options);

	*o = *of->o;
	o->profile = NULL;
	o->t.target.each = true;
	o->quiet = true;
	o->explain = false;
	if (!o->cluster)
		o->cluster = "local";
	*c = (Compile){ .a = of->a,
		.scratch = of->scratch,
		.d = of->d,
		.o = o,
		.model = of->model,
		.argc = of->argc,
		.argv = of->argv };
	if (o->t.loop.micro && !o->t.loop.global && !o->t.loop.microbatches) /* as many of them make no step here */
		o->t.loop.microbatches = MICROBATCHES;
	if (!compile_read(c) || !batch_settle(c))
		return false;
	c->micro_open = false; /* what is timed has the size that is compiled first */
	if (!o->t.plan.replicas || !of->command_profile) {
		o->t.plan.replicas = "1";
		o->t.plan.schedule = (ScheduleSpec){ .kind = SCHEDULE_AUTO };
		o->t.loop.global = 0;
	}
	flush(&o->t);
	if (!o->t.loop.global && !o->t.loop.microbatches)
		o->t.loop.microbatches = MICROBATCHES;
	c->plan = (Plan){ 0 };
	return compile_plan(c, NULL);
}

static const char *kind_of(const Job *j, int i)
{
	return j->node[i] ? node_kind_text(j->c->a, j->node[i]) : arena_printf(j->c->a, "Input %s", j->p->node[i].type);
}

static void take_times(ProfileNode *to, const ProfileNode *from)
{
	to->mean = from->mean;
	to->typical = from->typical;
	to->p50 = from->p50;
	to->p99 = from->p99;
	to->cov = from->cov;
	to->n = from->n;
}

/* What the times are kept under: the processor, or the GPU, which only its driver knows. */
static const char *device_name(const Job *j)
{
	const Training *t = &j->c->o->t;
	const char *gpu;

	if (!target_cuda(t))
		return arena_str(j->c->a, pd_device_name());
	gpu = first_line(j->c->a, "nvidia-smi --query-gpu=name --format=csv,noheader");
	return gpu && *gpu ? gpu : arena_printf(j->c->a, "GPU of %s", t->target.arch);
}

static void look_up(Job *j)
{
	Profile *p = j->p;
	const char *slash = strrchr(j->c->model, '/');

	p->model = slash ? slash + 1 : j->c->model;
	p->threads = j->c->o->t.target.threads;
	p->copies = copies_of(j->c);
	p->device = device_name(j);
	for (int i = 0; i < p->nnode; i++) {
		ProfileNode *r = &p->node[i];
		const ProfileNode *k = cache_get(&j->cache, kind_of(j, i), p);
		r->threads = p->threads;
		r->device = p->device;
		r->n = -1;
		if (k)
			take_times(r, k);
		j->hits += k != NULL;
	}
}

/* ---- measuring ---- */

static bool measure(Job *j, const char *dir)
{
	Compile *c = j->c;
	const char *seconds = c->o->profile_seconds > 0
	                              ? arena_printf(c->a, " --profile-seconds %lld", (long long)c->o->profile_seconds)
	                              : "";

	if (!data_known(c) || !compile_write(c, dir) ||
		!tool_run(c->d, "measuring",
			arena_printf(c->a,
				"make -s -C '%s' profile ARGS='--profile-copies %d%s' >'%s/make.log' 2>&1 || { tail -n 20 '%s/make.log' >&2; exit 1; }",
				dir, j->p->copies, seconds, dir, dir)))
		return false;
	const Profile *m = profile_load(c->a, arena_printf(c->a, "%s/profile.json", dir), c->d);
	if (!m)
		return false;
	for (int i = 0; i < j->p->nnode; i++) {
		ProfileNode *r = &j->p->node[i];
		const ProfileNode *k = profile_find(m, r->phase, r->op, r->value);
		if (!k)
			return diag_error(c->d, NOLOC, 803, "the program measured no %s '%s'", r->op, r->value);
		if (r->n >= 0)
			continue;
		take_times(r, k);
		cache_put(&j->cache, kind_of(j, i), j->p, r);
	}
	return true;
}

static bool measure_somewhere(Job *j)
{
	const char *tmp = getenv("TMPDIR");
	char *dir = arena_printf(j->c->a, "%s/pdcc-profile-XXXXXX", tmp && *tmp ? tmp : "/tmp");

	if (!tool_needed(j->c->d, "make") || !tool_needed(j->c->d, "mpicc"))
		return false;
	if (!mkdtemp(dir))
		return diag_error(j->c->d, NOLOC, 8, "cannot make a temporary folder: %s", strerror(errno));
	const bool ok = measure(j, dir);
	if (!j->c->o->keep)
		tool_run(j->c->d, "cleaning", arena_printf(j->c->a, "rm -rf '%s'", dir));
	else
		diag_note(j->c->d, FILELOC(dir), "the programs with clocks");
	return ok;
}

/* NULL after a diagnostic. Says on out what was measured. */
static Profile *make_profile(const Compile *of)
{
	Compile *c = NEW(of->a, Compile);
	Job j = { .c = c };
	double sum[3] = { 0 }, noisy = 0;

	if (!plan_for_clocks(&j, of))
		return NULL;
	j.p = profile_expected(c->a, c->m, &j.node);
	cache_open(&j.cache, c->a, c->o->profile_cache);
	look_up(&j);
	if (j.hits < j.p->nnode && !measure_somewhere(&j))
		return NULL;
	cache_close(&j.cache, c->d);
	for (int i = 0; i < j.p->nnode; i++) {
		sum[j.p->node[i].phase] += j.p->node[i].typical;
		noisy += j.p->node[i].cov > 0.1 ? j.p->node[i].typical : 0;
	}
	profile_index(c->a, j.p);
	if (of->o->quiet)
		return j.p;
	fprintf(of->d->out,
		"profile: cache hit %d/%d; %d thread%s of %s%s: forward %s, backward %s a microbatch of %lld, "
		"update %s a step\n",
		j.hits, j.p->nnode, j.p->threads, j.p->threads > 1 ? "s" : "", j.p->device,
		j.p->copies > 1 ? arena_printf(c->a, " (%d at once)", j.p->copies) : "", time_short(c->a, sum[0]),
		time_short(c->a, sum[1]), (long long)j.p->micro, time_short(c->a, sum[2]));
	if (noisy > 0.1 * (sum[0] + sum[1] + sum[2]))
		diag_warn(of->d, NOLOC, "profile-noise",
			"nodes that take %.0f %% of the time vary by more than 10 %% from step to step; is "
			"the machine busy with other things?",
			100 * noisy / (sum[0] + sum[1] + sum[2]));
	return j.p;
}

int profile_main(Compile *c)
{
	const char *out = c->o->out ? c->o->out : "profile.json";
	Buf b = { 0 };

	c->command_profile = true;
	const Profile *p = make_profile(c);
	if (!p)
		return c->d->last_code == 801 ? EXIT_NO_TOOL : compile_status(c);
	profile_print(&b, p);
	const bool ok = file_write(out, buf_str(&b), b.n) ||
	                diag_error(c->d, NOLOC, 8, "cannot write %s: %s", out, strerror(errno));
	buf_free(&b);
	if (ok && !c->o->quiet)
		fprintf(c->d->out, "wrote %s: %d records\n", out, p->nnode);
	return ok ? 0 : EXIT_USAGE;
}

bool profile_choose(Compile *c)
{
	const char *s = c->o->profile;

	if (!s || !strcmp(s, "estimate"))
		return true;
	c->profile = strcmp(s, "run") ? profile_load(c->a, s, c->d) : make_profile(c);
	if (c->profile && c->profile->threads != c->o->t.target.threads)
		diag_warn(c->d, FILELOC(s), "profile-threads",
			"measured with %d thread%s, the devices of this plan have %d: nothing of it "
			"counts",
			c->profile->threads, c->profile->threads > 1 ? "s" : "", c->o->t.target.threads);
	return c->profile != NULL;
}
