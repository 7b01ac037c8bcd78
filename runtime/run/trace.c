/* trace.c: what a device did when, for pdcc trace, Perfetto and Chrome. --trace DIR turns
 * it on: at the end of the run every device writes DIR/rankN.json, the last EVENTS things it did,
 * one event a line, in an asynchronous pipeline with the version of the weights. An action lasts until the next one or the end of the step; an evaluation is one event, of no step; waits for other
 * devices, and gradients packed for the wire or unpacked, are events within it. Times are microseconds since all devices had joined. Memory is
 * taken before the first step; off, it costs one test per action. --trace-steps A:B: only of steps A to B; --trace-rank R: only
 * device R. */
#include "rt.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { EVENTS = 1 << 16, NAME = 12 };

typedef struct event {
	double begin, end;
	int64_t step, version; /* version -1: there is only one */
	int mb;                /* -1: none */
	char name[NAME];
} event;

static event *events; /* NULL: off */
static int64_t count;
static int64_t now = -1; /* the action under way; -1: none */
static double zero, waiting;
static const char *folder;
static int64_t from, to = INT64_MAX; /* steps that are recorded */
static bool only;                    /* this rank is the only one */

/* A step, or A:B; an end that is not said is that of the run. */
static void read_steps(const char *s)
{
	char *end = NULL;

	from = *s == ':' ? 0 : strtoll(s, &end, 10);
	const bool begun = *s == ':' || end > s;
	const char *more = *s == ':' ? s + 1 : *end == ':' ? end + 1 : NULL;

	to = !more ? from : *more ? strtoll(more, &end, 10) : INT64_MAX;
	if (!begun || from < 0 || to < from || (more && *more ? end == more || *end : !more && *end))
		rt_fail(RT_USAGE, "R001", "--trace-steps wants a step, or A:B for steps A to B, from 0, not '%s'", s);
}

void rt_trace_open(const rt_options *o)
{
	folder = o->trace;
	if (o->trace_steps)
		read_steps(o->trace_steps);
	if (o->trace_rank >= rt_program->world)
		rt_fail(RT_USAGE, "R001", "--trace-rank %lld: the ranks are 0 to %d", (long long)o->trace_rank,
			rt_program->world - 1);
	if (!folder || !*folder)
		return;
	if (mkdir(folder, 0777) && errno != EEXIST)
		rt_fail(RT_ERROR, "R406", "%s: %s", folder, strerror(errno));
	only = o->trace_rank >= 0;
	if (rt_member || (only && o->trace_rank != rt_program->rank)) /* members of a tensor group do the same */
		return;
	events = calloc(EVENTS, sizeof *events);
	if (!events)
		rt_fail(RT_MEMORY, "R501", "no memory for a trace of %d events", EVENTS);
	zero = rt_now();
}

/* An evaluation is no step: rt_trace_evaluation() tells it whole. */
static bool wanted(int64_t step) { return events && !pd_evaluating() && step >= from && step <= to; }

static int64_t put_event(const char *name, int64_t step, int mb, double begin, double end)
{
	event *e = &events[count % EVENTS];

	*e = (event){ begin, end, step, -1, mb, "" };
	for (size_t i = 0; i + 1 < sizeof e->name && name[i]; i++)
		e->name[i] = name[i];
	return count++;
}

void rt_trace_action(const char *name, int64_t step, int mb)
{
	if (!events)
		return;
	const double t = rt_now();

	if (now >= 0 && count - now <= EVENTS)
		events[now % EVENTS].end = t;
	now = name && wanted(step) ? put_event(name, step, mb, t, t) : -1;
}

void pd_version(int64_t version)
{
	rt_first_version(version);
	if (events && now >= 0 && count - now <= EVENTS)
		events[now % EVENTS].version = version;
}

void rt_trace_wait(bool begins)
{
	rt_spent_wait(begins);
	if (begins)
		waiting = events ? rt_now() : 0;
	else if (wanted(rt_step))
		put_event("wait", rt_step, -1, waiting, rt_now());
}

void rt_trace_packed(double since)
{
	if (wanted(rt_step))
		put_event("pack", rt_step, -1, since, rt_now());
}

void rt_trace_evaluation(double since)
{
	if (wanted(rt_step - 1))
		put_event("evaluation", rt_step, -1, since, rt_now());
}

void rt_trace_close(const pd_program *p)
{
	char path[4096];

	if (!events)
		return;
	rt_trace_action(NULL, 0, -1);
	snprintf(path, sizeof path, "%s/rank%d.json", folder, p->rank);
	FILE *f = fopen(path, "w");

	if (!f)
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
	fprintf(f,
		"{\"displayTimeUnit\": \"ms\",\n\"otherData\": {\"rank\": %d, \"devices\": %d, %s\"lost\": %lld},\n"
		"\"traceEvents\": [\n",
		p->rank, p->world, only ? "\"only\": true, " : "", count > EVENTS ? (long long)(count - EVENTS) : 0LL);
	fprintf(f, "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": {\"name\": \"device %d\"}}",
		p->rank, p->rank);
	for (int64_t i = count > EVENTS ? count - EVENTS : 0; i < count; i++) {
		const event *e = &events[i % EVENTS];

		fprintf(f,
			",\n{\"name\": \"%s\", \"ph\": \"X\", \"pid\": %d, \"tid\": 0, \"ts\": %.3f, \"dur\": %.3f, "
			"\"args\": {",
			e->name, p->rank, 1e6 * (e->begin - zero), 1e6 * (e->end - e->begin));
		if (strcmp(e->name, "evaluation") == 0)
			fprintf(f, "\"steps_done\": %lld", (long long)e->step);
		else
			fprintf(f, "\"step\": %lld, \"microbatch\": %d", (long long)e->step, e->mb);
		if (e->version >= 0)
			fprintf(f, ", \"version\": %lld", (long long)e->version);
		fputs("}}", f);
	}
	fprintf(f, "\n]}\n");
	if (fclose(f))
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
	free(events);
	events = NULL;
}
