/* zbv-timed: ZBV's two stages on every device, in an order that is played (Qi et al. 2023, section 3, "automatic pipeline
 * scheduling").
 *
 * With the seconds that forwards, both parts of backwards and messages are expected to take, a device that is free begins the
 * first of these that it can: a backward, of its second stage or of its first; a forward, of its second stage or of its first;
 * gradients of weights, of the stage first that takes longer over them, so that their sums over replicas go on beside the others.
 * So the pipeline fills as early as messages allow, W fills what would be idle, and what is left of W ends the step. Messages of a
 * device go one after the other.
 *
 * A stage that holds as many microbatches as there is room for begins no forward; its W, which lets go of one, comes before
 * forwards, or before backwards too: both ways are played where that is ever so, and the one that ends sooner is kept.
 *
 * What was played ends, and so does every run of these lists: in each an action stands behind those that it waits for. */
#include <math.h>
#include "sched.h"

enum { CHUNKS = 2 };

typedef struct Event {
	double at;
	int group;
} Event;

typedef struct Group {
	double free, port;               /* when it has nothing to do; when its messages are gone */
	double *come[ACT_B + 1][CHUNKS]; /* F and B: when what they read is here, in the order of microbatches */
	int ncome[ACT_B + 1][CHUNKS];    /* so many of these are known */
	int n[ACT_W + 1][CHUNKS];        /* done */
	DeviceSchedule done;             /* Action.stage: the chunk, .mb: the n-th microbatch of a replica */
} Group;

typedef struct Play {
	Arena *a;
	const ScheduleTimes *times;
	const int *most; /* by stage: what there is room for; 0, NULL: all */
	Group *group;
	int stages, groups, micro;
	Event *heap;
	int n, cap;
	bool weights_first; /* of a full stage: before backwards too */
	bool filled;        /* some stage was full when it could have begun a forward */
	double end;
} Play;

static bool earlier(const Event *x, const Event *y) { return x->at != y->at ? x->at < y->at : x->group < y->group; }

static void swap(Event *x, Event *y)
{
	const Event t = *x;

	*x = *y;
	*y = t;
}

static void wake(Play *p, int group, double at)
{
	int i = p->n;

	PUSH(p->a, p->heap, p->n, p->cap) = (Event){ at, group };
	for (; i && earlier(&p->heap[i], &p->heap[(i - 1) / 2]); i = (i - 1) / 2)
		swap(&p->heap[i], &p->heap[(i - 1) / 2]);
}

static Event next(Play *p)
{
	const Event first = p->heap[0];

	p->heap[0] = p->heap[--p->n];
	for (int i = 0, k; (k = 2 * i + 1) < p->n; i = k) {
		k += k + 1 < p->n && earlier(&p->heap[k + 1], &p->heap[k]);
		if (!earlier(&p->heap[k], &p->heap[i]))
			break;
		swap(&p->heap[k], &p->heap[i]);
	}
	return first;
}

static int stage_of(const Play *p, int group, int chunk) { return chunk ? p->stages - 1 - group : group; }

static double seconds(const Play *p, int group, ActKind kind, int chunk)
{
	const ScheduleTimes *t = p->times;
	const int stage = stage_of(p, group, chunk);

	return !t ? 1 : kind == ACT_F ? t->forward[stage] : kind == ACT_B ? t->backward[stage] : t->weights[stage];
}

/* What an action of stage `to` reads is there at `end`, or once the message that brings it is through. */
static void give(Play *p, int group, int to, ActKind kind, double end)
{
	const int chunk = to >= p->groups, other = chunk ? p->stages - 1 - to : to;
	Group *of = &p->group[other], *g = &p->group[group];

	if (other != group) { /* stages beside each other: the message between them is known by the first */
		g->port = fmax(g->port, end) + (p->times ? p->times->message[kind == ACT_F ? to - 1 : to] : 0.5);
		end = g->port;
	}
	of->come[kind][chunk][of->ncome[kind][chunk]++] = end;
	wake(p, other, end);
}

/* Forwards go up the stages; the last one's are backwards at once; those go down. */
static void pass_on(Play *p, int group, ActKind kind, int chunk, double end)
{
	const int stage = stage_of(p, group, chunk), last = p->stages - 1;

	if (kind == ACT_F)
		give(p, group, stage < last ? stage + 1 : last, stage < last ? ACT_F : ACT_B, end);
	else if (kind == ACT_B && stage)
		give(p, group, stage - 1, ACT_B, end);
}

static int most(const Play *p, int group, int chunk)
{
	const int n = p->most ? p->most[stage_of(p, group, chunk)] : 0;

	return n && n < p->micro ? n : p->micro;
}

/* Of a device that has not room for all. The oldest microbatch under way finds room in every stage: those that were there before it are
 * through, or at W. So what is played ends. */
static bool full(const Play *p, int group, int chunk)
{
	const Group *g = &p->group[group];

	return (most(p, group, 0) < p->micro || most(p, group, 1) < p->micro) &&
	       g->n[ACT_F][chunk] - g->n[ACT_W][chunk] >= most(p, group, chunk);
}

static bool can(const Group *g, ActKind kind, int chunk, double now)
{
	const int i = g->n[kind][chunk];

	if (kind == ACT_W)
		return g->n[ACT_B][chunk] > i;
	return i < g->ncome[kind][chunk] && g->come[kind][chunk][i] <= now;
}

static void start(Play *p, int group, ActKind kind, int chunk, double now)
{
	Group *g = &p->group[group];

	PUSH(p->a, g->done.act, g->done.n, g->done.cap) =
		(Action){ .kind = kind, .stage = chunk, .mb = g->n[kind][chunk]++ };
	g->free = now + seconds(p, group, kind, chunk);
	p->end = fmax(p->end, g->free);
	pass_on(p, group, kind, chunk, g->free);
	wake(p, group, g->free);
}

/* Begins the first action that can be begun at `now`. */
static void begin(Play *p, int group, double now)
{
	static const struct {
		ActKind kind;
		int chunk;
	} row[2][6] = {
		{ { ACT_B, 1 }, { ACT_B, 0 }, { ACT_W, 1 }, { ACT_W, 0 }, { ACT_F, 1 }, { ACT_F, 0 } },
		{ { ACT_W, 1 }, { ACT_W, 0 }, { ACT_B, 1 }, { ACT_B, 0 }, { ACT_F, 1 }, { ACT_F, 0 } },
	}; /* W: of a full stage */
	const Group *g = &p->group[group];

	for (int i = 0; i < 6; i++) {
		const ActKind kind = row[p->weights_first][i].kind;
		const int chunk = row[p->weights_first][i].chunk;
		const bool is_full = full(p, group, chunk);
		if (!can(g, kind, chunk, now) || (kind == ACT_W && !is_full))
			continue;
		if (kind != ACT_F || !is_full) {
			start(p, group, kind, chunk, now);
			return;
		}
		p->filled = true;
	}
	const int more = seconds(p, group, ACT_W, 0) > seconds(p, group, ACT_W, 1) ? 0 : 1;
	for (int i = 0; i < 2; i++) {
		if (can(g, ACT_W, i ? !more : more, now)) {
			start(p, group, ACT_W, i ? !more : more, now);
			return;
		}
	}
}

static void play(Play *p)
{
	p->group = NEWN(p->a, Group, p->groups);
	for (int g = 0; g < p->groups; g++) {
		for (int kind = ACT_F; kind <= ACT_B; kind++)
			for (int c = 0; c < CHUNKS; c++)
				p->group[g].come[kind][c] = NEWN(p->a, double, p->micro);
		wake(p, g, 0);
	}
	p->group[0].ncome[ACT_F][0] = p->micro;
	while (p->n) {
		const Event e = next(p);
		if (p->group[e.group].free <= e.at)
			begin(p, e.group, e.at);
	}
}

/* Replicas do as their group does, as far as they have microbatches. */
bool schedule_timed(Sched *c, Diag *d)
{
	DeviceSchedule *work = NEWN(c->a, DeviceSchedule, c->s->ndevice);
	Arena *a = arena_new();
	Play p = { .a = a, .times = c->times, .most = c->most, .stages = c->s->nstage };

	(void)d;
	p.groups = p.stages / schedule_chunks_of(c->spec, p.stages);
	for (int r = 0; r < c->s->ndevice; r++)
		p.micro = c->ngrain[r] > p.micro ? c->ngrain[r] : p.micro;
	Play late = p;
	play(&p);
	late.weights_first = true;
	if (p.filled)
		play(&late);
	p = p.filled && late.end < p.end ? late : p;
	for (int r = 0; r < c->s->ndevice; r++) {
		const DeviceSchedule *done = &p.group[c->stage[r]].done;
		for (int i = 0; i < done->n; i++) {
			const Action *x = &done->act[i];
			if (x->mb < c->ngrain[r])
				PUSH(c->a, work[r].act, work[r].n, work[r].cap) = (Action){
					.kind = x->kind, .stage = c->chunk[r][x->stage], .mb = c->grain[r][x->mb]
				};
		}
	}
	arena_free(a);
	sched_from_work(c, work);
	return true;
}
