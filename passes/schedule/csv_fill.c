/* From the actions of a schedule file to a schedule: csv.h. */
#include <string.h>
#include "csv.h"

typedef struct Fill {
	Sched *c;
	const Csv *x;
	Diag *d;
	DeviceSchedule *list; /* by rank, with messages */
} Fill;

/* All partners of the stage in that message are on the same device. */
static bool within_device(const Fill *f, int stage, ActKind k)
{
	const bool forward = k == ACT_RECV_F || k == ACT_SEND_F, recv = k == ACT_RECV_F || k == ACT_RECV_B;

	for (int i = 0; i < f->c->nedge; i++) {
		const StageEdge *e = &f->c->edge[i];
		const int to = forward ? e->to : e->from, from = forward ? e->from : e->to;
		if ((forward ? e->forward : e->backward) && (recv ? to : from) == stage &&
			f->x->group[recv ? from : to] != f->x->group[stage])
			return false;
	}
	return true;
}

static void add_action(Fill *f, int rank, ActKind k, int stage, int mb)
{
	PUSH(f->c->a, f->list[rank].act, f->list[rank].n, f->list[rank].cap) =
		(Action){ .kind = k, .stage = stage, .mb = mb };
}

static int find(const CsvLine *l, ActKind k, int stage, int mb)
{
	for (int i = 0; i < l->n; i++)
		if (l->act[i].kind == k && l->act[i].stage == stage && l->act[i].mb == mb)
			return i;
	return -1;
}

/* The receive in front of a computation, the send behind it. False: a line is missing. */
static bool message(Fill *f, int rank, int at, ActKind k)
{
	const CsvLine *l = &f->x->line[rank];
	const CsvAction *x = &l->act[at];
	const bool recv = k == ACT_RECV_F || k == ACT_RECV_B;
	const char *name = k == ACT_RECV_F   ? "RECV_F"
	                   : k == ACT_RECV_B ? "RECV_B"
	                   : k == ACT_SEND_F ? "SEND_F"
	                                     : "SEND_B";
	const char *what = x->kind == ACT_F ? "F" : f->x->split ? "I" : "B";
	const int there = find(l, k, x->stage, x->mb);

	if (!sched_exchanges(f->c, x->stage, k) || (there >= 0 && (recv ? there < at : there > at)))
		return true;
	if (there < 0 && within_device(f, x->stage, k)) {
		add_action(f, rank, k, x->stage, x->mb);
		return true;
	}
	if (recv)
		return diag_error(f->d, TEXTLOC(f->x->file, l->number, x->col), 517,
			"%d%s%d reads what other devices send, but no "
			"%d%s%d stands in front of it; put it there",
			x->stage, what, x->mb, x->stage, name, x->mb);
	return diag_error(f->d, TEXTLOC(f->x->file, l->number, x->col), 517,
		"other devices read what %d%s%d makes, but no %d%s%d "
		"stands behind it; put it there",
		x->stage, what, x->mb, x->stage, name, x->mb);
}

static bool fill_list(Fill *f, int rank)
{
	const CsvLine *l = &f->x->line[rank];

	for (int i = 0; i < l->n; i++) {
		const CsvAction *x = &l->act[i];
		if (x->mb < 0)
			continue;
		if ((x->kind == ACT_F && !message(f, rank, i, ACT_RECV_F)) ||
			(x->kind == ACT_B && !message(f, rank, i, ACT_RECV_B)))
			return false;
		if (sched_exchanges(f->c, x->stage, x->kind))
			add_action(f, rank, x->kind, x->stage, x->mb);
		if ((x->kind == ACT_F && !message(f, rank, i, ACT_SEND_F)) ||
			(x->kind == ACT_B && !message(f, rank, i, ACT_SEND_B)))
			return false;
	}
	return true;
}

static bool is_last(const DeviceSchedule *l, int at)
{
	for (int i = at + 1; i < l->n; i++)
		if (l->act[i].stage == l->act[at].stage && l->act[i].mb == l->act[at].mb)
			return false;
	return true;
}

/* Places of one kind, by stage: free ones wait in line. */
typedef struct Places {
	int micro, *idle, *head, *tail, *used, *of;
} Places;

static Places places_new(const Sched *c)
{
	const int m = c->s->nmicro, n = c->s->nstage;

	return (Places){ m, NEWN(c->a, int, n *m), NEWN(c->a, int, n), NEWN(c->a, int, n), NEWN(c->a, int, n),
		NEWN(c->a, int, n *m) };
}

/* The place of the action's microbatch: the one that has been free for longest, or a new one, when it has none yet. */
static int place_of(Places *p, const Action *x)
{
	int *of = &p->of[x->stage * p->micro + x->mb], t = x->stage;

	if (!*of)
		*of = 1 + (p->head[t] < p->tail[t] ? p->idle[t * p->micro + p->head[t]++] : p->used[t]++);
	return *of - 1;
}

static void leave(Places *p, int stage, int place) { p->idle[stage * p->micro + p->tail[stage]++] = place; }

/* A microbatch has a slot from its forward on, a buffer at the entry from the first of its actions. */
static void give_slots(Fill *f, int rank)
{
	Sched *c = f->c;
	DeviceSchedule *l = &f->list[rank];
	Places slots = places_new(c), entries = places_new(c);

	for (int i = 0; i < l->n; i++) {
		Action *x = &l->act[i];

		x->entry = place_of(&entries, x);
		x->slot = x->kind == ACT_RECV_F ? 0 : place_of(&slots, x);
		if (is_last(l, i)) {
			leave(&slots, x->stage, x->slot);
			leave(&entries, x->stage, x->entry);
		}
		schedule_push(c->a, c->s, rank, *x);
	}
	for (int t = 0; t < c->s->nstage; t++) {
		c->s->inflight[t] = slots.used[t] > c->s->inflight[t] ? slots.used[t] : c->s->inflight[t];
		c->s->entries[t] = entries.used[t] > c->s->entries[t] ? entries.used[t] : c->s->entries[t];
	}
	sched_end(c, rank);
}

static void computations(Fill *f, int rank)
{
	const CsvLine *l = &f->x->line[rank];

	for (int i = 0; i < l->n; i++)
		if (l->act[i].mb >= 0)
			add_action(f, rank, l->act[i].kind, l->act[i].stage, l->act[i].mb);
}

/* Where actions stand, for what the proof finds. */
static void give_places(Fill *f)
{
	Schedule *s = f->c->s;
	int n = 0, cap = 0;

	s->file = f->x->file;
	for (int r = 0; r < f->x->nline; r++)
		for (int i = 0; i < f->x->line[r].n; i++) {
			const CsvAction *x = &f->x->line[r].act[i];
			PUSH(f->c->a, s->place, n, cap) =
				(ActionPlace){ x->kind, x->stage, x->mb, f->x->line[r].number, x->col };
		}
	s->nplace = n;
}

bool schedule_csv(Sched *c, Diag *d)
{
	const Csv *x = csv_of(c->spec);
	Fill f = { c, x, d, NEWN(c->a, DeviceSchedule, c->s->ndevice) };

	if (x->nmicro != c->s->nmicro)
		return diag_error(d, FILELOC(x->file), 518,
			"the schedule has %d microbatches, a step has %d; change --global-batch or "
			"--microbatches",
			x->nmicro, c->s->nmicro);
	if (x->in_turn && c->blocks)
		return diag_error(d, FILELOC(x->file), 515,
			"the file deals microbatches to replicas in turn (0, 1, ... of stage 0), and --reproducible needs blocks, "
			"whose gradients it adds up as a tree; write a schedule with --reproducible and begin with that");
	for (int r = 0; r < c->s->ndevice; r++) {
		if (!x->messages)
			computations(&f, r);
		else if (!fill_list(&f, r))
			return false;
	}
	if (!x->messages)
		sched_from_work(c, f.list);
	for (int r = 0; r < c->s->ndevice && x->messages; r++)
		give_slots(&f, r);
	for (int t = 0; t < c->s->nstage; t++) {
		c->s->inflight[t] = c->s->inflight[t] > 0 ? c->s->inflight[t] : 1;
		c->s->entries[t] = c->s->entries[t] > c->s->inflight[t] ? c->s->entries[t] : c->s->inflight[t];
	}
	give_places(&f);
	return true;
}
