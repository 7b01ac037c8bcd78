/* A file with versions of weights (0F3v1) lists what an asynchronous schedule does at first. What a program repeats does not stand
 * there, so such a file is not filled in: the schedule is found that lists just this (csv.h). */
#include <string.h>
#include "csv.h"
#include "placement.h"
#include "schedule.h"
#include "ir/base/buf.h"

/* Files that are compared: the actions of a schedule, and those of the file. */
typedef struct Nearest {
	const char *name;
	int same, line, col; /* computations that are alike; where the first that is not stands */
	const Action *is;    /* there; NULL: nothing */
} Nearest;

typedef struct Search {
	Arena *a;
	const Csv *x;
	Diag *mute;
	Nearest near;
} Search;

static bool versioned(ActKind k) { return k == ACT_F || k == ACT_B || k == ACT_UPDATE; }

static int next_of(const CsvLine *l, int i)
{
	while (i < l->n && !versioned(l->act[i].kind))
		i++;
	return i;
}

static int next_action(const DeviceSchedule *l, int i)
{
	while (i < l->n && !versioned(l->act[i].kind))
		i++;
	return i;
}

/* The computations of a device are those of its line; else n has where the first other one stands. */
static bool line_alike(const CsvLine *l, const DeviceSchedule *d, Nearest *n)
{
	int i = next_of(l, 0), k = next_action(d, 0);

	for (; i < l->n && k < d->n; i = next_of(l, i + 1), k = next_action(d, k + 1), n->same++) {
		const CsvAction *x = &l->act[i];
		const Action *y = &d->act[k];

		if (x->kind != y->kind || x->stage != y->stage || x->mb != y->mb || x->version != y->version)
			break;
	}
	n->line = l->number;
	n->col = l->act[i < l->n ? i : l->n - 1].col;
	n->is = k < d->n ? &d->act[k] : NULL;
	return i >= l->n && k >= d->n;
}

/* The computations of the file are those of the schedule; else how near it is. Messages are left out: who sends is not known yet. */
static bool alike(Search *f, const Schedule *s)
{
	Nearest n = { .name = s->name };
	bool same = s->ndevice == f->x->nline;

	for (int r = 0; same && r < s->ndevice; r++)
		same = line_alike(&f->x->line[r], &s->dev[r], &n);
	if (!f->near.name || n.same > f->near.same)
		f->near = n;
	return same;
}

static bool tried(Search *f, ScheduleSpec spec, VersionRule rule, int micro)
{
	const Csv *x = f->x;
	Training t = { .plan = { .schedule = spec,
			       .vertical_sync = rule == VERSION_VERTICAL,
			       .stash = rule == VERSION_NEWEST ? STASH_NONE : STASH_AUTO,
			       .pipe_sgd = spec.kind == SCHEDULE_PIPE_SGD ? spec.n : 0 } };

	if (schedule_refuses(f->a, &t, spec, x->nstage, x->replicas))
		return false;
	const Schedule *s = schedule_make_by(f->a, spec, rule, x->nstage, x->replicas, micro, false, NULL, 0, f->mute);
	return s && alike(f, s);
}

/* With one of its parameters the row lists this. Only those are tried that show as many steps. */
static bool found(Search *f, ScheduleKind kind, CsvFlow *flow)
{
	const ScheduleRow *row = &schedule_table[kind];
	const Csv *x = f->x;
	const int rules = row->flow & FLOW_VERSIONS ? VERSION_VERTICAL : VERSION_STASH;
	const int first = row->param == PARAM_FLAG ? 2 : 0,
		  last = row->param == PARAM_FLAG || row->param == PARAM_OPTIONAL ? x->nmicro : 0;

	for (int n = first; n <= last; n++) {
		flow->spec = (ScheduleSpec){ .kind = kind, .n = n };
		const int steps = schedule_steps(flow->spec, x->replicas, x->nstage);
		const int micro = steps > 0 && steps <= x->nmicro ? x->nmicro / steps : 0;

		if (!micro || micro * steps != x->nmicro || (row->flow & FLOW_EACH && micro != 1))
			continue;
		for (int rule = VERSION_STASH; rule <= rules; rule++) {
			flow->rule = (VersionRule)rule;
			if (tried(f, flow->spec, flow->rule, micro))
				return true;
		}
	}
	return false;
}

bool csv_flow(Arena *a, Csv *x, Diag *d)
{
	Diag mute = *d;
	Search f = { .a = a, .x = x, .mute = &mute };
	long long forwards = 0;

	for (int i = 0; i < x->nline; i++)
		for (int k = 0; k < x->line[i].n; k++)
			forwards += x->line[i].act[k].kind == ACT_F;
	if (forwards != (long long)x->nmicro * x->nstage) /* what is compared is never larger than the file */
		return diag_error(d, FILELOC(x->file), 519,
			"the file has versions of weights and %lld forwards; %d microbatches of %d stages have %lld",
			forwards, x->nmicro, x->nstage, (long long)x->nmicro * x->nstage);

	mute.errors = mute.limit + 1; /* nothing is said */
	mute.quiet = true;
	for (int k = SCHEDULE_PLAIN; k < SCHEDULES; k++)
		if (schedule_table[k].flow & FLOW_ASYNC && found(&f, (ScheduleKind)k, x->flow))
			return true;
	if (!f.near.name || !f.near.line)
		return diag_error(d, FILELOC(x->file), 519,
			"the file has versions of weights, and no asynchronous schedule lists %d microbatches of %d stages",
			x->nmicro, x->nstage);
	return diag_error(d, TEXTLOC(x->file, f.near.line, f.near.col), 519,
		"the file has versions of weights, so it is what an asynchronous schedule lists; the nearest, %s, has %s here",
		f.near.name,
		f.near.is ? arena_printf(a, "%sv%d", str_action(a, f.near.is), f.near.is->version) : "nothing");
}

bool csv_flow_same(const Csv *x, const Schedule *s, Diag *d)
{
	const char *listed = x->flow->text;
	int line = 1, cell = 0, i = 0;
	Buf b = { 0 };

	schedule_print_csv(&b, s);
	for (const char *is = buf_str(&b); is[i] && is[i] == listed[i]; i++)
		if (is[i] == ',' || is[i] == '\n') {
			line += is[i] == '\n';
			cell = is[i] == '\n' ? 0 : cell + 1;
		}
	const bool same = !buf_str(&b)[i] && !listed[i];
	buf_free(&b);
	return same ||
	       diag_error(d, TEXTLOC(x->file, line, 1), 519,
		       "the file lists schedule %s, but not word for word: action %d of this line is another one (SEND, RECV and SYNC count); take it unchanged, with the flags that it was written with",
		       s->name, cell + 1);
}
