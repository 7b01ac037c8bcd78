/* The notation of plans: replicas per stage joined by '-', as in the PipeDream paper: "7-1", "2-1-1". */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "plan.h"

enum { MAXREPLICAS = 4096 };

bool plan_parse(Arena *a, const char *text, int **replicas, int *n, Diag *d)
{
	int cap = 0;

	*replicas = NULL;
	*n = 0;
	if (!text || !strcmp(text, "auto"))
		return true;
	for (const char *s = text;; s++) {
		int r = 0;
		if (!isdigit((unsigned char)*s))
			return diag_error(d, NOLOC, 402,
				"plan '%s': expected the number of replicas of stage %d, as in 2-1-1", text, *n);
		while (isdigit((unsigned char)*s) && r <= MAXREPLICAS)
			r = 10 * r + (*s++ - '0');
		if (r < 1 || r > MAXREPLICAS)
			return diag_error(
				d, NOLOC, 402, "plan '%s': stage %d needs 1 to %d replicas", text, *n, MAXREPLICAS);
		PUSH(a, *replicas, *n, cap) = r;
		if (!*s)
			return true;
		if (*s != '-')
			return diag_error(d, NOLOC, 402, "plan '%s': unexpected '%c' after stage %d; write 2-1-1", text,
				*s, *n - 1);
	}
}

void plan_degrees(PlanSettings *p, int *degree, int n)
{
	bool alike = true;

	p->tensor = 0;
	for (int i = 0; i < n; i++) {
		alike &= degree[i] == degree[0];
		p->tensor = degree[i] > p->tensor ? degree[i] : p->tensor;
	}
	p->tensor_of = alike ? NULL : degree;
	p->ntensor_of = alike ? 0 : n;
}

/* "2x4", or "2" of one device each. */
static bool one_stage(const char **s, int *replicas, int *members)
{
	int read = 0;

	*members = 1;
	if (sscanf(*s, "%4dx%4d%n", replicas, members, &read) != 2 && sscanf(*s, "%5d%n", replicas, &read) != 1)
		return false;
	*s += read;
	return true;
}

bool plan_tensor(Arena *a, PlanSettings *p, Diag *d)
{
	const char *text = p->replicas, *out = "", *s = text;
	const int64_t said = p->tensor;
	int *degree = NULL, n = 0, cap = 0;

	if (!s || !isdigit((unsigned char)*s) || !strchr(s, 'x'))
		return true;
	for (;; s++) {
		int r = 0, t = 1;

		if (!one_stage(&s, &r, &t) || t < 1 || t > GROUP_MOST)
			return diag_error(d, NOLOC, 402,
				"plan '%s': stage %d is replicas x devices of each, as in 2x4-1x8", text, n);
		PUSH(a, degree, n, cap) = t;
		out = arena_printf(a, "%s%s%d", out, n > 1 ? "-" : "", r);
		if (*s != '-')
			break;
	}
	if (*s)
		return diag_error(d, NOLOC, 402, "plan '%s': unexpected '%c'; write 2x4-1x8", text, *s);
	for (int i = 0; i < n; i++)
		if (said && degree[i] != said)
			return diag_error(d, NOLOC, 402,
				"plan '%s' has %d devices a replica of stage %d, --tensor %lld asks for others", text,
				degree[i], i, (long long)said);
	p->replicas = out;
	plan_degrees(p, degree, n);
	return true;
}

const char *plan_str(Arena *a, const Plan *p)
{
	const char *s = "";

	for (int i = 0; i < p->nstage; i++)
		s = arena_printf(a, "%s%s%d", s, i ? "-" : "", p->stage[i].replicas);
	return s;
}

/* What has no meaning yet where stages are divided unlike. */
static const char *own_groups_refused(ScheduleSpec schedule, const Training *t)
{
	if (schedule_chunks(schedule) > 1 || schedule_row(schedule)->place == PLACED_LISTED)
		return "a schedule of several stages on a device, which is of one group";
	if (t->plan.choose_schedule)
		return "--schedule auto, which may choose one of several stages on a device; name a schedule";
	return NULL;
}

/* What has no meaning yet where groups share the work. */
static const char *groups_refused(ScheduleSpec schedule, const Training *t)
{
	if (schedule_is_async(schedule))
		return "an asynchronous schedule: it keeps versions of weights, which are not divided; take a synchronous one";
	if (t->comm.by != COMM_UNSAID && t->comm.by != COMM_ALLREDUCE)
		return "servers of parameters: they hold whole ones; take --comm allreduce";
	if (t->loop.reproducible)
		return "--reproducible: a sum over the parts of a product has another order than one device's";
	return NULL;
}

const char *unlike_refused(const Training *t)
{
	const char *why = groups_refused(t->plan.schedule, t);

	if (!why && (t->plan.pipe_sgd > 1 || t->plan.choose_pipe_sgd))
		return "Pipe-SGD, whose plans are of one stage";
	return why ? why : own_groups_refused(t->plan.schedule, t);
}

bool tensor_allowed(const Module *m, const PassCx *cx)
{
	const ScheduleSpec schedule = schedule_asked(m, cx);
	const Training *t = cx->train;
	const char *why = groups_refused(schedule, t);

	if (!why && t->plan.tensor_of) {
		why = own_groups_refused(schedule, t);
		return !why || diag_error(cx->d, NOLOC, 520,
				       "stages that are divided unlike (tensor, sequence) do not go with %s", why);
	}
	return !why || diag_error(cx->d, NOLOC, 520, "--tensor %d does not go with %s", (int)t->plan.tensor, why);
}
