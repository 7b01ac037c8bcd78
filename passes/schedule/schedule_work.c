/* A whole schedule from the order of computations: sched_from_work. What a device computes decides everything else.
 *
 * A microbatch holds a slot of its stage from its forward to the last computation that reads what the forward left (B, or
 * W where backwards are split). The depth of a stage is the most that any of its devices holds at once. Slots, and buffers
 * at the entry, go to microbatches in the order of their forwards, each to the one that became free first; so the receive
 * of a forward can be posted as soon as its buffer is free. */
#include "sched.h"

/* One stage on one device. */
typedef struct Chunk {
	int stage;
	int *forward, nforward; /* microbatches in the order of their forwards */
	int posted;             /* how many of those have a buffer at the entry */
	int *slot, *entry;      /* by microbatch */
	int *idle, head, tail;  /* slots that are free */
} Chunk;

/* By action: whether it is the last of its stage and microbatch here. seen: by stage and microbatch, what was said of r devices. */
static void find_last(const Sched *c, const DeviceSchedule *w, int *seen, int r, bool *last)
{
	for (int i = w->n - 1; i >= 0; i--) {
		int *at = &seen[w->act[i].stage * c->s->nmicro + w->act[i].mb];
		last[i] = *at != r + 1;
		*at = r + 1;
	}
}

static void count_depth(Sched *c, Arena *a, const DeviceSchedule *w, const bool *last)
{
	int *live = NEWN(a, int, c->s->nstage);

	for (int i = 0; i < w->n; i++) {
		const int t = w->act[i].stage;
		if (w->act[i].kind == ACT_F && ++live[t] > c->s->inflight[t])
			c->s->inflight[t] = live[t];
		if (last[i])
			live[t]--;
	}
}

static void push(Sched *c, int rank, const Chunk *k, ActKind kind, int mb)
{
	if (sched_exchanges(c, k->stage, kind))
		schedule_push(c->a, c->s, rank,
			(Action){ .kind = kind,
				.stage = k->stage,
				.mb = mb,
				.slot = k->slot[mb],
				.entry = k->entry[mb] });
}

/* The next microbatch gets a buffer at the entry. */
static void take_entry(Sched *c, int rank, Chunk *k, int entry)
{
	if (k->posted == k->nforward)
		return;
	const int mb = k->forward[k->posted++];
	k->entry[mb] = entry;
	push(c, rank, k, ACT_RECV_F, mb);
}

static void begin_chunk(Sched *c, Arena *a, Chunk *k, int stage)
{
	k->stage = stage;
	k->slot = NEWN(a, int, c->s->nmicro);
	k->entry = NEWN(a, int, c->s->nmicro);
	k->forward = NEWN(a, int, c->s->nmicro);
	k->idle = NEWN(a, int, c->s->nmicro + c->s->inflight[stage]);
	while (k->tail < c->s->inflight[stage]) {
		k->idle[k->tail] = k->tail;
		k->tail++;
	}
}

static void fill_device(Sched *c, Arena *a, int rank, const DeviceSchedule *w, const bool *last)
{
	Chunk *of = NEWN(a, Chunk, c->s->nstage);

	for (int i = 0; i < w->n; i++) {
		Chunk *k = &of[w->act[i].stage];
		if (!k->slot)
			begin_chunk(c, a, k, w->act[i].stage);
		if (w->act[i].kind == ACT_F)
			k->forward[k->nforward++] = w->act[i].mb;
	}
	for (int t = 0; t < c->s->nstage; t++)
		for (int i = 0; of[t].slot && i < c->s->entries[t]; i++)
			take_entry(c, rank, &of[t], i);
	for (int i = 0; i < w->n; i++) {
		const Action *x = &w->act[i];
		Chunk *k = &of[x->stage];
		if (x->kind == ACT_F)
			k->slot[x->mb] = k->idle[k->head++];
		push(c, rank, k, x->kind, x->mb);
		if (x->kind == ACT_F) {
			push(c, rank, k, ACT_SEND_F, x->mb);
			push(c, rank, k, ACT_RECV_B, x->mb);
		} else if (x->kind == ACT_B) {
			push(c, rank, k, ACT_SEND_B, x->mb);
		}
		if (!last[i])
			continue;
		k->idle[k->tail++] = k->slot[x->mb];
		take_entry(c, rank, k, k->entry[x->mb]);
	}
	sched_end(c, rank);
}

void sched_from_work(Sched *c, const DeviceSchedule *work)
{
	Arena *all = arena_new(), *own = arena_new(); /* own: of the device at hand */
	bool **last = NEWN(all, bool *, c->s->ndevice);
	int *seen = NEWN(all, int, c->s->nstage * c->s->nmicro);

	for (int r = 0; r < c->s->ndevice; r++) {
		last[r] = NEWN(all, bool, work[r].n);
		find_last(c, &work[r], seen, r, last[r]);
		arena_reset(own);
		count_depth(c, own, &work[r], last[r]);
	}
	for (int t = 0; t < c->s->nstage; t++)
		if (c->s->inflight[t] < 1)
			c->s->inflight[t] = 1;
	sched_entries(c);
	for (int r = 0; r < c->s->ndevice; r++) {
		arena_reset(own);
		fill_device(c, own, r, &work[r], last[r]);
	}
	arena_free(own);
	arena_free(all);
}
