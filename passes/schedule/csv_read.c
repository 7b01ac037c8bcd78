/* The reader of schedule files: csv.h. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "csv.h"
#include "placement.h"

enum { MOST = 1 << 16 }; /* stages, microbatches */

static const struct {
	const char *word;
	ActKind kind;
} words[] = {
	{ "F", ACT_F },
	{ "B", ACT_B },
	{ "I", ACT_B },
	{ "W", ACT_W },
	{ "SEND_F", ACT_SEND_F },
	{ "RECV_F", ACT_RECV_F },
	{ "SEND_B", ACT_SEND_B },
	{ "RECV_B", ACT_RECV_B },
	{ "SYNC", ACT_SYNC },
	{ "UPDATE", ACT_UPDATE },
};

static const char *word_of(ActKind k)
{
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (words[i].kind == k)
			return words[i].word;
	return "?";
}

/* ---- cells ---- */

static int number(const char **p)
{
	int n = 0;

	while (isdigit((unsigned char)**p) && n < MOST)
		n = 10 * n + (*(*p)++ - '0');
	return n;
}

/* One cell without blanks round it. True: an action. flow: with versions. */
static bool parse_cell(const char *cell, bool flow, CsvAction *x)
{
	const char *p = cell;
	size_t n = 0, i = 0;

	if (!isdigit((unsigned char)*p))
		return false;
	x->stage = number(&p);
	while (isupper((unsigned char)p[n]) || p[n] == '_')
		n++;
	while (i < sizeof words / sizeof *words && (strlen(words[i].word) != n || strncmp(words[i].word, p, n) != 0))
		i++;
	if (i == sizeof words / sizeof *words)
		return false;
	x->kind = words[i].kind;
	x->part = !strcmp(words[i].word, "I");
	p += n;
	if (!flow && (x->kind == ACT_SYNC || x->kind == ACT_UPDATE)) {
		x->mb = -1;
		return !*p;
	}
	if (!isdigit((unsigned char)*p))
		return false;
	x->mb = number(&p);
	if (flow && *p == 'v') {
		p++;
		x->version = number(&p);
	}
	return !*p && x->mb < MOST && x->stage < MOST;
}

static bool parse_line(Arena *a, Csv *x, CsvLine *l, const char *text, size_t n, Diag *d)
{
	for (size_t at = 0; at < n;) {
		size_t end = at, from;
		while (end < n && text[end] != ',')
			end++;
		const size_t next = end + 1;
		for (from = at; from < end && isspace((unsigned char)text[from]);)
			from++;
		while (end > from && isspace((unsigned char)text[end - 1]))
			end--;
		at = next;
		if (from == end)
			continue;
		CsvAction act = { .col = (int)from + 1 };
		const char *cell = arena_strn(a, text + from, end - from);
		if (!parse_cell(cell, x->flow, &act))
			return diag_error(d, TEXTLOC(x->file, l->number, act.col), 514,
				"'%.40s' is no action; write stage, kind and "
				"microbatch, as 0F3, with one of F B I W SEND_F RECV_F SEND_B RECV_B",
				cell);
		x->split |= act.kind == ACT_W || act.part;
		x->messages |= act.kind == ACT_SEND_F || act.kind == ACT_RECV_F || act.kind == ACT_SEND_B ||
		               act.kind == ACT_RECV_B;
		x->nstage = act.stage >= x->nstage ? act.stage + 1 : x->nstage;
		x->nmicro = act.mb >= x->nmicro ? act.mb + 1 : x->nmicro;
		PUSH(a, l->act, l->n, l->cap) = act;
	}
	return true;
}

/* ---- which line runs which stage ---- */

static int count(const CsvLine *l, int stage)
{
	int n = 0;

	for (int i = 0; i < l->n; i++)
		n += l->act[i].stage == stage;
	return n;
}

static const CsvAction *first_of(const CsvLine *l, int stage)
{
	for (int i = 0; i < l->n; i++)
		if (l->act[i].stage == stage)
			return &l->act[i];
	return NULL;
}

static bool same_stages(const Csv *x, const CsvLine *p, const CsvLine *q)
{
	for (int t = 0; t < x->nstage; t++)
		if (!count(p, t) != !count(q, t))
			return false;
	return true;
}

static const char *str_cell(Arena *a, const CsvAction *x)
{
	return x->mb < 0 ? arena_printf(a, "%d%s", x->stage, word_of(x->kind))
	                 : arena_printf(a, "%d%s%d", x->stage, word_of(x->kind), x->mb);
}

/* Stage t stands on a line that is no replica of the line where most of it is. */
static bool check_stage(const Csv *x, int t, Diag *d)
{
	const CsvLine *most = &x->line[0];

	for (int i = 1; i < x->nline; i++)
		if (count(&x->line[i], t) > count(most, t))
			most = &x->line[i];
	if (!count(most, t))
		return diag_error(d, TEXTLOC(x->file, 1, 1), 515,
			"no line runs stage %d of the %d stages; stages are numbered from 0 "
			"without gaps",
			t, x->nstage);
	for (int i = 0; i < x->nline; i++) {
		const CsvLine *l = &x->line[i];
		if (!count(l, t) || same_stages(x, l, most))
			continue;
		const CsvAction *act = first_of(l, t);
		return diag_error(d, TEXTLOC(x->file, l->number, act->col), 515,
			"%s: stage %d is run by line %d, which has %d of its "
			"actions; move this there",
			str_cell(d->scratch, act), t, most->number, count(most, t));
	}
	return true;
}

static bool give_groups(Arena *a, Csv *x, Diag *d)
{
	x->group = NEWN(a, int, x->nstage);
	x->replicas = NEWN(a, int, x->nstage);
	for (int t = 0; t < x->nstage; t++)
		if (!check_stage(x, t, d))
			return false;
	for (int i = 0; i < x->nline; i++) {
		CsvLine *l = &x->line[i];
		if (i && !same_stages(x, l, l - 1))
			x->ngroup++;
		l->group = x->ngroup;
		for (int k = 0; k + 1 < i; k++)
			if (x->line[k].group != l->group && same_stages(x, &x->line[k], l))
				return diag_error(d, TEXTLOC(x->file, l->number, 1), 515,
					"this line runs the stages of line %d; replicas of a "
					"device stand on lines one behind the other",
					x->line[k].number);
		for (int t = 0; t < x->nstage; t++)
			if (count(l, t)) {
				x->group[t] = l->group;
				x->replicas[t]++;
			}
	}
	x->ngroup++;
	return true;
}

/* ---- every computation once, on the line of its replica ---- */

static int replica_of(const Csv *x, int stage, int mb)
{
	return plan_replica_of(mb, x->replicas[stage], x->nmicro, 0, x->in_turn);
}

/* Of the lines of its group, which one. */
static int own_of(const Csv *x, const CsvLine *l)
{
	int own = 0;

	for (int i = 0; i < x->nline && &x->line[i] != l; i++)
		own += x->line[i].group == l->group;
	return own;
}

/* How many computations stand where they belong when microbatches are dealt so. */
static int well_dealt(Csv *x, bool in_turn)
{
	int n = 0;

	x->in_turn = in_turn;
	for (int i = 0; i < x->nline; i++) {
		const int own = own_of(x, &x->line[i]);
		for (int k = 0; k < x->line[i].n; k++) {
			const CsvAction *act = &x->line[i].act[k];
			n += act->mb >= 0 && replica_of(x, act->stage, act->mb) == own;
		}
	}
	return n;
}

/* Where both are possible the file says by what it has how microbatches are dealt. */
static void find_deal(Csv *x)
{
	x->in_turn = plan_in_turn(x->replicas, x->nstage) && well_dealt(x, true) >= well_dealt(x, false);
}

static bool check_action(const Csv *x, const CsvLine *l, const CsvAction *act, int *seen, Diag *d)
{
	const int replica = replica_of(x, act->stage, act->mb);
	int *s = &seen[((int)act->kind * x->nstage + act->stage) * x->nmicro + act->mb];
	const int own = own_of(x, l);

	if (own != replica)
		return diag_error(d, TEXTLOC(x->file, l->number, act->col), 515,
			"%s: microbatch %d of %d belongs to replica %d of the %d of "
			"stage %d; move it to line %d",
			str_cell(d->scratch, act), act->mb, x->nmicro, replica, x->replicas[act->stage], act->stage,
			l->number + replica - own);
	if (*s)
		return diag_error(d, TEXTLOC(x->file, l->number, act->col), 516,
			"%s stands here a second time; take one of them out", str_cell(d->scratch, act));
	*s = 1;
	return true;
}

static bool check_computations(Arena *a, const Csv *x, Diag *d)
{
	static const ActKind kinds[] = { ACT_F, ACT_B, ACT_W };
	int *seen = NEWN(a, int, ACT_COUNT * x->nstage * x->nmicro);

	for (int i = 0; i < x->nline; i++)
		for (int k = 0; k < x->line[i].n; k++) {
			const CsvAction *act = &x->line[i].act[k];
			if (act->mb >= 0 && !check_action(x, &x->line[i], act, seen, d))
				return false;
			if (act->mb >= 0 && k && x->line[i].act[k - 1].mb < 0)
				return diag_error(d, TEXTLOC(x->file, x->line[i].number, act->col), 516,
					"%s stands behind %s; SYNC and UPDATE "
					"end a line",
					str_cell(d->scratch, act), str_cell(d->scratch, act - 1));
		}
	for (int t = 0; t < x->nstage; t++)
		for (int g = 0; g < x->nmicro; g++)
			for (int k = 0; k < 2 + x->split; k++) {
				if (seen[((int)kinds[k] * x->nstage + t) * x->nmicro + g])
					continue;
				int line = 0;
				while (x->line[line].group != x->group[t])
					line++;
				line += replica_of(x, t, g);
				const CsvLine *l = &x->line[line];
				return diag_error(d, TEXTLOC(x->file, l->number, l->n ? l->act[l->n - 1].col : 1), 516,
					"stage %d has no %s of "
					"microbatch %d of %d; add %d%s%d to this line",
					t, k == 1 && x->split ? "I" : word_of(kinds[k]), g, x->nmicro, t,
					k == 1 && x->split ? "I" : word_of(kinds[k]), g);
			}
	return true;
}

/* A whole backward among split ones is both of its parts, one behind the other. */
static void part_backwards(Arena *a, Csv *x)
{
	for (int i = 0; i < x->nline && x->split; i++) {
		CsvLine *l = &x->line[i], old = *l;
		l->act = NULL;
		l->n = l->cap = 0;
		for (int k = 0; k < old.n; k++) {
			CsvAction act = old.act[k];
			bool w = act.kind != ACT_B || act.part;
			PUSH(a, l->act, l->n, l->cap) = act;
			for (int j = 0; !w && j < old.n; j++)
				w = old.act[j].kind == ACT_W && old.act[j].stage == act.stage &&
				    old.act[j].mb == act.mb;
			act.kind = ACT_W;
			if (!w)
				PUSH(a, l->act, l->n, l->cap) = act;
		}
	}
}

/* Some microbatch has a version behind it. */
static bool has_versions(const char *text)
{
	for (const char *p = strchr(text, 'v'); p; p = strchr(p + 1, 'v'))
		if (p > text && isdigit((unsigned char)p[-1]) && isdigit((unsigned char)p[1]))
			return true;
	return false;
}

bool csv_read(Arena *a, const char *file, Csv *x, Diag *d)
{
	char *text = file_read(file, NULL);
	bool ok = true;
	int line = 0;

	*x = (Csv){ .file = arena_str(a, file) };
	if (!text)
		return diag_error(d, FILELOC(x->file), 513, "cannot read the schedule: %s", strerror(errno));
	if (has_versions(text)) {
		x->flow = NEW(a, CsvFlow);
		x->flow->text = arena_str(a, text);
	}
	for (const char *p = text; ok && *p;) {
		const size_t n = strcspn(p, "\n");
		CsvLine l = { .number = ++line };
		ok = parse_line(a, x, &l, p, n, d);
		if (l.n)
			PUSH(a, x->line, x->nline, x->capline) = l;
		p += n + (p[n] == '\n');
	}
	free(text);
	if (ok && (!x->nline || !x->nmicro))
		ok = diag_error(
			d, FILELOC(x->file), 513, "the schedule has no computations; a line per device, as 0F0,0B0");
	if (!ok)
		return false;
	part_backwards(a, x);
	if (!give_groups(a, x, d))
		return false;
	if (x->flow)
		return csv_flow(a, x, d);
	find_deal(x);
	return check_computations(a, x, d);
}

/* The settings that ask for what the file lists. */
static void ask_for(Arena *a, PlanSettings *p, const Csv *x)
{
	const CsvFlow *f = x->flow;
	const char *replicas = "";

	p->schedule = f->spec.kind == SCHEDULE_PIPE_SGD ? (ScheduleSpec){ 0 } : f->spec;
	p->schedule.csv = x;
	p->pipe_sgd = f->spec.kind == SCHEDULE_PIPE_SGD ? f->spec.n : 0;
	p->vertical_sync = f->rule == VERSION_VERTICAL;
	p->stash = f->rule == VERSION_NEWEST ? STASH_NONE : p->stash;
	for (int t = 0; t < x->nstage; t++)
		replicas = arena_printf(a, "%s%s%d", replicas, t ? "-" : "", x->replicas[t]);
	p->replicas = p->replicas ? p->replicas : replicas;
}

bool schedule_read(Arena *a, PlanSettings *p, Diag *d)
{
	ScheduleSpec *s = &p->schedule;

	if (schedule_row(*s)->param != PARAM_FILE || s->csv)
		return true;
	Csv *x = NEW(a, Csv);
	if (!csv_read(a, s->file, x, d))
		return false;
	if (x->flow)
		ask_for(a, p, x);
	else
		s->csv = x;
	return true;
}

const Csv *csv_of(ScheduleSpec s)
{
	if (!s.csv)
		bug("the schedule's file %s was not read", s.file ? s.file : "");
	return s.csv;
}
