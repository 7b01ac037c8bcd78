/* What asynchronous servers did, from their records (--arrivals), as lines that a program of one device plays (runtime/state/replay.c).
 *
 *     pull PARAMETER RANK STEP VERSION [ROWS ...]     the device reads what VERSION updates made, all of it or these rows
 *     push PARAMETER RANK STEP VERSION                its gradient of that step is update VERSION of the parameter
 *
 * What trains by itself is a replica: replica r of R has the devices whose rank is r mod R. Its step is a job: the forward and the
 * backward of its microbatches with the weights that it pulled, and a gradient that is an update of its own of every parameter. A record
 * in which one is none, or two, or a pull has not what was there, is a fault of the servers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "frontend/driver/check/verify.h"

typedef struct Arrivals {
	int64_t replicas, jobs;
	int n; /* trained parameters */
	const Value **param;
	int64_t *pulled;  /* by job and parameter: updates behind what was read; -1: nobody pulled it */
	int64_t *pusher;  /* by parameter and update: the job whose gradient it is */
	int64_t *updates; /* by parameter: how many there were */
	int64_t *made;    /* by parameter: those of the lines so far */
	bool *done;       /* by job: its line is written */
} Arrivals;

static const char *name_of(const Value *v) { return v->param->onnx_name ? v->param->onnx_name : v->name; }

static int param_named(const Arrivals *a, const char *name)
{
	for (int i = 0; i < a->n; i++)
		if (strcmp(name_of(a->param[i]), name) == 0)
			return i;
	return -1;
}

static Arrivals *arrivals_new(Compile *c, const Rule *r, int64_t steps)
{
	Arrivals *a = NEW(c->a, Arrivals);

	a->replicas = r->replicas[0];
	a->jobs = steps * a->replicas;
	a->param = NEWN(c->a, const Value *, c->m->nparam);
	for (int i = 0; i < c->m->nparam; i++)
		if (verify_trained(c->m->param[i]))
			a->param[a->n++] = c->m->param[i];
	a->pulled = NEWN(c->a, int64_t, a->jobs * a->n);
	a->pusher = NEWN(c->a, int64_t, a->jobs * a->n);
	a->updates = NEWN(c->a, int64_t, a->n);
	a->made = NEWN(c->a, int64_t, a->n);
	a->done = NEWN(c->a, bool, a->jobs);
	for (int64_t i = 0; i < a->jobs * a->n; i++)
		a->pulled[i] = -1;
	return a;
}

/* ---- the records ---- */

typedef struct Line {
	char what[8], name[512];
	int rank;
	long long step, version;
} Line;

static bool wrong(Compile *c, const Line *l, const char *rule)
{
	return diag_error(c->d, NOLOC, 805, "step %lld: %s of '%s' by device %d, version %lld: %s", l->step, l->what,
		l->name, first_task(c->m, l->rank), l->version, rule);
}

static bool take_push(Compile *c, Arrivals *a, const Line *l, int p, int64_t job)
{
	for (int64_t k = 0; k < a->updates[p]; k++)
		if (a->pusher[p * a->jobs + k] == job)
			return wrong(c, l, arena_printf(c->a, "its gradient is update %lld already", (long long)k + 1));
	if (a->updates[p] == a->jobs || l->version != a->updates[p] + 1)
		return wrong(c, l, arena_printf(c->a, "it is update %lld of it", (long long)a->updates[p] + 1));
	a->pusher[p * a->jobs + a->updates[p]++] = job;
	return true;
}

static bool take_line(Compile *c, Arrivals *a, const Line *l)
{
	const int p = param_named(a, l->name);
	const int64_t job = l->step * a->replicas + l->rank % a->replicas;

	if (p < 0 || job < 0 || job >= a->jobs)
		return wrong(c, l, "there is no such parameter or step");
	if (strcmp(l->what, "push") == 0)
		return take_push(c, a, l, p, job);
	if (l->version != a->updates[p])
		return wrong(c, l, arena_printf(c->a, "%lld updates were before", (long long)a->updates[p]));
	int64_t *was = &a->pulled[job * a->n + p];
	if (*was >= 0 && *was != l->version)
		return diag_error(c->d, NOLOC, 520,
			"--sync async: pdcc verify plays a step with one version of each parameter, and in step %lld device %d read "
			"rows of '%s' behind %lld updates and behind %lld",
			l->step, first_task(c->m, l->rank), l->name, (long long)*was, l->version);
	*was = l->version;
	return true;
}

static bool read_records(Compile *c, Arrivals *a, const char *dir)
{
	for (int i = 0; i < c->m->nstage; i++) {
		const Stage *s = c->m->stage[i];
		FILE *f = s->server ? fopen(arena_printf(c->a, "%s/run/arrivals/rank%d.txt", dir, s->rank), "r") : NULL;
		bool ok = true;
		Line l;

		if (s->server && !f)
			return diag_error(c->d, NOLOC, 803, "what arrived at server %d is missing", s->id);
		while (f && ok &&
			fscanf(f, "%7s %511s %d %lld %lld", l.what, l.name, &l.rank, &l.step, &l.version) == 5) {
			ok = take_line(c, a, &l);
			(void)!fscanf(f, "%*[^\n]"); /* its rows: no other is read */
		}
		if (f)
			fclose(f);
		if (!ok)
			return false;
	}
	return true;
}

/* Is every gradient an update? */
static bool whole(Compile *c, const Arrivals *a)
{
	for (int p = 0; p < a->n; p++) {
		if (a->updates[p] != a->jobs)
			return diag_error(c->d, NOLOC, 805,
				"'%s' was updated %lld times: %lld replicas have %lld gradients of it",
				name_of(a->param[p]), (long long)a->updates[p], (long long)a->replicas,
				(long long)a->jobs);
		for (int64_t j = 0; j < a->jobs; j++)
			if (a->pulled[j * a->n + p] < 0)
				return diag_error(c->d, NOLOC, 805, "step %lld: replica %lld did not pull '%s'",
					(long long)(j / a->replicas), (long long)(j % a->replicas),
					name_of(a->param[p]));
	}
	return true;
}

/* ---- the lines ---- */

static int64_t next_pusher(const Arrivals *a, int p)
{
	return a->made[p] < a->updates[p] ? a->pusher[p * a->jobs + a->made[p]] : -1;
}

/* The job's next line updates what has as many updates behind it as the first that is due. */
static void put_line(FILE *f, Arrivals *a, int64_t job, bool again)
{
	int64_t index = -1;

	for (int p = 0; p < a->n && index < 0; p++)
		index = next_pusher(a, p) == job ? a->made[p] : -1;
	fprintf(f, "%lld %d %lld %lld %lld %d", (long long)job, again, (long long)job,
		(long long)(index < 0 ? 0 : index), (long long)(job / a->replicas), index >= 0);
	if (index >= 0)
		fprintf(f, " %lld", (long long)job);
	for (int b = 0; b < 2; b++)
		for (int p = 0; p < a->n; p++)
			fprintf(f, " %lld", (long long)a->pulled[job * a->n + p]);
	for (int p = 0; p < a->n; p++) {
		const bool due = index >= 0 && a->made[p] == index && next_pusher(a, p) == job;

		fprintf(f, " %d", due);
		a->made[p] += due;
	}
	fprintf(f, "\n");
}

static bool ready(const Arrivals *a, int64_t job)
{
	for (int p = 0; p < a->n; p++)
		if (a->pulled[job * a->n + p] > a->made[p])
			return false;
	return !a->done[job];
}

/* A job that was computed, and of which a gradient is the next update of some parameter; -1: none. */
static int64_t owed(const Arrivals *a)
{
	for (int p = 0; p < a->n; p++) {
		const int64_t job = next_pusher(a, p);
		if (job >= 0 && a->done[job])
			return job;
	}
	return -1;
}

/* Every job as soon as its weights are there, and behind it what is due. Gives how many lines; -1: records of several servers have no
 * common order. */
static int64_t put_lines(FILE *f, Arrivals *a)
{
	int64_t lines = 0, left = a->jobs, job;

	for (bool moved = true; left && moved;) {
		moved = false;
		for (int64_t j = 0; j < a->jobs; j++) {
			if (!ready(a, j))
				continue;
			put_line(f, a, j, false);
			a->done[j] = moved = true;
			left--;
			for (lines++; (job = owed(a)) >= 0; lines++)
				put_line(f, a, job, true);
		}
	}
	return left ? -1 : lines;
}

bool verify_arrivals(Compile *c, const Rule *r, const char *many, const char *path, int64_t steps)
{
	Arrivals *a = arrivals_new(c, r, steps);
	char *text = NULL;
	size_t size;

	if (!read_records(c, a, many) || !whole(c, a))
		return false;
	FILE *body = open_memstream(&text, &size), *f = fopen(path, "w");
	if (!body || !f)
		return diag_error(c->d, NOLOC, 8, "%s: %s", path, strerror(errno));
	const int64_t lines = put_lines(body, a);

	fclose(body);
	fprintf(f, "%d %d %lld %lld %lld\n", a->n, a->n, (long long)a->jobs, (long long)lines, (long long)a->replicas);
	for (int p = 0; p < a->n; p++)
		fprintf(f, "%d %s\n", p, name_of(a->param[p]));
	fwrite(text, 1, size, f);
	free(text);
	if (fclose(f))
		return diag_error(c->d, NOLOC, 8, "%s: %s", path, strerror(errno));
	return lines >= 0 || diag_error(c->d, NOLOC, 805, "what the servers recorded has no common order");
}
