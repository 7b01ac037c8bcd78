/* replay.c: a program of one device that plays what another made asynchronously, one minibatch after another (--replay FILE, which
 * pdcc verify writes from the rule of the plan's schedule, or from what servers recorded). A line is a step of this program: the
 * weights that its forward and its backward read, by how many updates are behind them; then which parameters are updated, and with
 * whose gradients. So versions, delays and rounds are those of the file alone, and have nothing of the schedule's code.
 *
 *     PARAMETERS GROUPS JOBS LINES SHARES
 *     GROUP NAME                       a line for each trained parameter
 *     JOB AGAIN STEP INDEX RATE N job ... f ... b ... u ...
 *
 * SHARES: so many steps of this program have the samples of one of the run. A job is a step's gradient; AGAIN 1: it was computed by an earlier line, which updates others. INDEX: updates of the parameters
 * before this one; RATE: the step whose learning rate it has. N jobs are added as pd_tree adds, over all of their labels. f, b, u, by
 * group: the version of the forward's weights and of the backward's; is it updated? */
#include "parts.h"
#include "rt.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct line {
	int64_t job, again, step, index, rate, njobs;
	int64_t *jobs, *forward, *backward, *updates;
} line;

typedef struct versions { /* of a trained parameter */
	int64_t group, n; /* group -1: it is not trained */
	char **of;        /* by version; NULL: nobody will read it */
	char **gradient;  /* by job, likewise */
} versions;

static struct {
	int64_t groups, jobs, lines, shares;
	line *line, *now; /* now: the one that is played */
	int64_t *read;    /* by group and version: behind the last line that reads it */
	int64_t *added;   /* by job: behind the last line that adds its gradient */
	double *count;    /* by job: its labels */
	double counted;   /* by the last update */
	versions *of;     /* by parameter */
	char **was;       /* by parameter: what it was before an update, where that is no weight */
	char *arena;
	const int64_t *loaded; /* a line's forward or backward: which weights are in the arena; NULL: the newest */
	bool stale;            /* an update wrote there: none of these */
} r;

bool rt_replays(void) { return r.line != NULL; }

int64_t rt_replay_shares(void) { return r.line ? r.shares : 1; }

/* ---- the file ---- */

static int64_t number(FILE *f, const char *path, int64_t least, int64_t most)
{
	long long v;

	if (fscanf(f, "%lld", &v) != 1 || v < least || v > most)
		rt_fail(RT_USAGE, "R001", "--replay %s: a number from %lld to %lld is wanted", path, (long long)least,
			(long long)most);
	return v;
}

static int64_t *numbers(FILE *f, const char *path, int64_t n, int64_t most)
{
	int64_t *v = rt_alloc((size_t)n * sizeof *v);

	for (int64_t i = 0; i < n; i++)
		v[i] = number(f, path, 0, most);
	return v;
}

static void read_parameter(const pd_program *p, FILE *f, const char *path)
{
	const int64_t group = number(f, path, 0, r.groups - 1);
	char name[4096];

	if (fscanf(f, " %4095[^\n]", name) != 1)
		rt_fail(RT_USAGE, "R001", "--replay %s: a parameter has no name", path);
	for (int i = 0; i < p->nparams; i++)
		if (!strcmp(p->params[i].name, name)) {
			r.of[i].group = group;
			return;
		}
	rt_fail(RT_USAGE, "R001", "--replay %s: there is no parameter '%s'", path, name);
}

static void read_line(line *l, FILE *f, const char *path)
{
	l->job = number(f, path, 0, r.jobs - 1);
	l->again = number(f, path, 0, 1);
	l->step = number(f, path, 0, INT32_MAX);
	l->index = number(f, path, 0, INT32_MAX);
	l->rate = number(f, path, 0, INT32_MAX);
	l->njobs = number(f, path, 0, r.jobs);
	l->jobs = numbers(f, path, l->njobs, r.jobs - 1);
	l->forward = numbers(f, path, r.groups, r.lines);
	l->backward = numbers(f, path, r.groups, r.lines);
	l->updates = numbers(f, path, r.groups, 1);
	for (int64_t i = 0; i < l->njobs; i++)
		r.added[l->jobs[i]] = l - r.line + 1;
	for (int64_t g = 0; g < r.groups; g++) {
		r.read[g * (r.lines + 1) + l->forward[g]] = l - r.line + 1;
		r.read[g * (r.lines + 1) + l->backward[g]] = l - r.line + 1;
	}
}

static char *copy_of(const pd_param *q)
{
	char *to = rt_alloc(rt_param_bytes(q));

	memcpy(to, r.arena + q->offset, rt_param_bytes(q));
	return to;
}

void rt_replay_open(const pd_program *p, const char *path, char *arena)
{
	FILE *f = fopen(path, "r");

	if (!f)
		rt_fail(RT_USAGE, "R001", "--replay %s: %s", path, strerror(errno));
	const int64_t n = number(f, path, 0, p->nparams);

	r.groups = number(f, path, 1, INT32_MAX);
	r.jobs = number(f, path, 1, INT32_MAX);
	r.lines = number(f, path, 1, INT32_MAX);
	r.shares = number(f, path, 1, INT32_MAX);
	r.arena = arena;
	r.counted = 1;
	r.of = rt_alloc((size_t)p->nparams * sizeof *r.of);
	r.was = rt_alloc((size_t)p->nparams * sizeof *r.was);
	r.read = rt_alloc((size_t)(r.groups * (r.lines + 1)) * sizeof *r.read);
	r.added = rt_alloc((size_t)r.jobs * sizeof *r.added);
	r.count = rt_alloc((size_t)r.jobs * sizeof *r.count);
	r.line = rt_alloc((size_t)r.lines * sizeof *r.line);
	for (int i = 0; i < p->nparams; i++) {
		r.of[i] = (versions){ .group = -1 };
		if (p->params[i].kind != PD_WEIGHT)
			r.was[i] = copy_of(&p->params[i]);
	}
	for (int64_t i = 0; i < n; i++)
		read_parameter(p, f, path);
	for (int64_t i = 0; i < r.lines; i++)
		read_line(&r.line[i], f, path);
	fclose(f);
	for (int i = 0; i < p->nparams; i++) {
		if (r.of[i].group < 0)
			continue;
		r.of[i].gradient = rt_alloc((size_t)r.jobs * sizeof *r.of[i].gradient);
		r.of[i].of = rt_alloc((size_t)(r.lines + 1) * sizeof *r.of[i].of);
		r.of[i].of[0] = copy_of(&p->params[i]);
	}
}

/* ---- a line ---- */

/* Of every parameter the version that v says by group; NULL: the newest. */
static void load(const int64_t *v)
{
	const pd_program *p = rt_program;

	for (int i = 0; i < p->nparams && (r.stale || v != r.loaded); i++) {
		const versions *x = &r.of[i];
		const int64_t want = v && x->group >= 0 ? v[x->group] : x->n;

		if (x->group < 0)
			continue;
		if (want > x->n)
			rt_fail(RT_ERROR, "R113", "line %lld reads '%s' behind %lld updates; %lld were made",
				(long long)(r.now - r.line), p->params[i].name, (long long)want, (long long)x->n);
		memcpy(r.arena + p->params[i].offset, x->of[want], rt_param_bytes(&p->params[i]));
	}
	r.loaded = v;
	r.stale = false;
}

void rt_replay_action(const char *what)
{
	const pd_program *p = rt_program;

	if (!r.now)
		return;
	if (!strcmp(what, "F"))
		load(r.now->forward);
	if (!strcmp(what, "B"))
		load(r.now->backward);
	if (strcmp(what, "UPDATE") != 0)
		return;
	load(NULL);
	for (int i = 0; i < p->nparams; i++)
		if (r.was[i])
			memcpy(r.was[i], r.arena + p->params[i].offset, rt_param_bytes(&p->params[i]));
}

static float tree_f32(const versions *x, int64_t lo, int64_t n, size_t e)
{
	int64_t p = 1;

	if (n == 1)
		return ((const float *)(const void *)x->gradient[r.now->jobs[lo]])[e];
	while (2 * p < n)
		p *= 2;
	return tree_f32(x, lo, p, e) + tree_f32(x, lo + p, n - p, e);
}

static double tree_f64(const versions *x, int64_t lo, int64_t n, size_t e)
{
	int64_t p = 1;

	if (n == 1)
		return ((const double *)(const void *)x->gradient[r.now->jobs[lo]])[e];
	while (2 * p < n)
		p *= 2;
	return tree_f64(x, lo, p, e) + tree_f64(x, lo + p, n - p, e);
}

bool rt_replay_gradient(int i, void *sum)
{
	const pd_param *q = &rt_program->params[i];
	versions *x = &r.of[i];
	const size_t bytes = rt_param_bytes(q);

	if (!r.now || x->group < 0)
		return true;
	if (!r.now->again && r.added[r.now->job] > r.now - r.line) {
		x->gradient[r.now->job] = rt_alloc(bytes);
		memcpy(x->gradient[r.now->job], sum, bytes);
	}
	for (size_t e = 0; r.now->updates[x->group] && e < bytes / (q->dtype == PD_F64 ? 8 : 4); e++)
		if (q->dtype == PD_F64)
			((double *)sum)[e] = tree_f64(x, 0, r.now->njobs, e);
		else
			((float *)sum)[e] = tree_f32(x, 0, r.now->njobs, e);
	return r.now->updates[x->group];
}

double rt_replay_count(void)
{
	double n = 0;

	if (r.now && !r.now->again)
		r.count[r.now->job] = rt_count();
	for (int64_t i = 0; r.now && i < r.now->njobs; i++)
		n += r.count[r.now->jobs[i]];
	return r.counted = n > 0 ? n : r.counted;
}

/* What no later line wants goes. */
static void forget(versions *x)
{
	const int64_t at = r.now - r.line + 1;

	for (int64_t v = 0; v < x->n; v++)
		if (r.read[x->group * (r.lines + 1) + v] <= at) {
			free(x->of[v]);
			x->of[v] = NULL;
		}
	for (int64_t j = 0; j < r.jobs; j++)
		if (r.added[j] <= at) {
			free(x->gradient[j]);
			x->gradient[j] = NULL;
		}
}

/* Is q of the state of a parameter that this line updates? */
static bool of_updated(const pd_param *q)
{
	for (int i = 0; i < rt_program->nparams; i++) {
		const char *name = rt_program->params[i].name;
		const size_t n = strlen(name);

		if (r.of[i].group >= 0 && !strncmp(q->name, name, n) && q->name[n] == ':')
			return r.now->updates[r.of[i].group];
	}
	return !r.now->again;
}

/* What was updated and should not be is as it was; the others have a version more. */
static void keep(void)
{
	const pd_program *p = rt_program;

	r.stale = true;
	for (int i = 0; i < p->nparams; i++) {
		const pd_param *q = &p->params[i];
		versions *x = &r.of[i];

		if (r.was[i] && !(q->kind == PD_STATE ? of_updated(q) : !r.now->again))
			memcpy(r.arena + q->offset, r.was[i], rt_param_bytes(q));
		if (x->group < 0)
			continue;
		if (r.now->updates[x->group])
			x->of[++x->n] = copy_of(q);
		forget(x);
	}
}

void rt_replay_run(void (*step)(const pd_program *, bool), void (*result)(int64_t, void *))
{
	for (r.now = r.line; r.now < r.line + r.lines; r.now++) {
		rt_step = r.now->step;
		rt_update = r.now->index;
		rt_update_step = r.now->rate;
		rt_first_mute(r.now->again);
		step(rt_program, true);
		rt_first_settle();
		keep();
		if (!r.now->again)
			result(rt_step, NULL);
	}
	r.now = NULL;
	load(NULL);
}
