/* Zero bubble (Qi et al. 2023, "Zero bubble pipeline parallelism"): backwards in two parts, B for the gradients that earlier
 * stages wait for and W for those of weights, which fill what would be idle.
 *
 *     zb-h1   1F1B's order of forwards and backwards; device i puts W off by i microbatches, so that it holds S
 *             microbatches where 1F1B holds S - i: the same peak on all devices. Bubble (S-1)(F + B - W). The paper has one
 *             device per stage, and equal replicas are as good. With unequal ones the forwards and backwards are those of
 *             1F1B as it is played for them (schedule_1f1b.c), which ends; a W waits for no other device, so this ends too.
 *     zbv     two chunks per device, down the devices and up again (placement.c): device i does 2(S-i)-1 forwards of its
 *             first chunk, i of both in turn, then S-i of the second with their backwards at once; then one forward and
 *             backward of either chunk in turn. At the end, device i puts off W for i microbatches. With F = B = W a
 *             device is idle only before its first forward and behind its last W: S-1 in all, with the peak of 1F1B. */
#include "sched.h"

typedef struct Counts {
	int f, b, w;
} Counts;

typedef struct Zb {
	Sched *c;
	DeviceSchedule *to;
	int rank;
} Zb;

/* Microbatches past the last are left out: zbv's pattern is made for 2S - 1 of them at least. */
static void add_action(const Zb *z, ActKind k, int chunk, int i)
{
	if (i < z->c->ngrain[z->rank])
		PUSH(z->c->a, z->to->act, z->to->n, z->to->cap) =
			(Action){ .kind = k, .stage = z->c->chunk[z->rank][chunk], .mb = z->c->grain[z->rank][i] };
}

/* groups: devices in the pipeline; p: which of them this is. */
static void h1(const Zb *z, int groups, int p)
{
	const int m = z->c->ngrain[z->rank], warm = m < groups - p - 1 ? m : groups - p - 1;
	Counts n = { 0, 0, 0 };

	while (n.f < warm)
		add_action(z, ACT_F, 0, n.f++);
	while (n.b < m) {
		if (n.f < m)
			add_action(z, ACT_F, 0, n.f++);
		add_action(z, ACT_B, 0, n.b++);
		if (n.b > p)
			add_action(z, ACT_W, 0, n.w++);
	}
	while (n.w < m)
		add_action(z, ACT_W, 0, n.w++);
}

static bool unequal(const Schedule *s)
{
	for (int t = 1; t < s->nstage; t++)
		if (s->replicas[t] != s->replicas[0])
			return true;
	return false;
}

/* zb-h1 from what 1F1B has played for rank z->rank. */
static void h1_played(const Zb *z, const DeviceSchedule *played, int p)
{
	Counts n = { 0, 0, 0 };

	for (int i = 0; i < played->n; i++) {
		if (played->act[i].kind == ACT_F)
			add_action(z, ACT_F, 0, n.f++);
		if (played->act[i].kind == ACT_B) {
			add_action(z, ACT_B, 0, n.b++);
			if (n.b > p)
				add_action(z, ACT_W, 0, n.w++);
		}
	}
	while (n.w < n.b)
		add_action(z, ACT_W, 0, n.w++);
}

/* 1F1B's lists; c->s is as if there had been none. */
static DeviceSchedule *play(Sched *c, Diag *d)
{
	schedule_1f1b(c, d);
	DeviceSchedule *played = c->s->dev;
	c->s->dev = NEWN(c->a, DeviceSchedule, c->s->ndevice);
	for (int t = 0; t < c->s->nstage; t++)
		c->s->inflight[t] = 0;
	return played;
}

static void both_parts(const Zb *z, int chunk, Counts *n)
{
	add_action(z, ACT_B, chunk, n->b++);
	add_action(z, ACT_W, chunk, n->w++);
}

static void vee(const Zb *z, int groups, int p)
{
	const int m = z->c->ngrain[z->rank], all = m > 2 * groups - 1 ? m : 2 * groups - 1;
	Counts x = { 0, 0, 0 }, y = { 0, 0, 0 }; /* first and second chunk */

	while (x.f < 2 * (groups - p) - 1)
		add_action(z, ACT_F, 0, x.f++);
	while (y.f < p) {
		add_action(z, ACT_F, 1, y.f++);
		add_action(z, ACT_F, 0, x.f++);
	}
	for (int i = p; i < groups; i++) {
		add_action(z, ACT_F, 1, y.f++);
		both_parts(z, 1, &y);
	}
	while (y.f < all) {
		if (x.f < all)
			add_action(z, ACT_F, 0, x.f++);
		both_parts(z, 0, &x);
		add_action(z, ACT_F, 1, y.f++);
		both_parts(z, 1, &y);
	}
	for (int i = 0; i < p; i++) {
		add_action(z, ACT_B, 0, x.b++);
		add_action(z, ACT_B, 1, y.b++);
	}
	while (x.b < all) {
		add_action(z, ACT_B, 0, x.b++);
		add_action(z, ACT_W, 0, x.w++);
	}
	while (y.w < y.b)
		add_action(z, ACT_W, 1, y.w++);
	while (x.w < x.b)
		add_action(z, ACT_W, 0, x.w++);
}

bool schedule_zb(Sched *c, Diag *d)
{
	const bool v = schedule_chunks_of(c->spec, c->s->nstage) == 2;
	DeviceSchedule *work = NEWN(c->a, DeviceSchedule, c->s->ndevice);
	const DeviceSchedule *played = !v && unequal(c->s) ? play(c, d) : NULL;
	const int groups = v ? c->s->nstage / 2 : c->s->nstage;

	for (int r = 0; r < c->s->ndevice; r++) {
		const Zb z = { c, &work[r], r };
		if (played)
			h1_played(&z, &played[r], c->stage[r]);
		else
			(v ? vee : h1)(&z, groups, c->stage[r]);
	}
	sched_from_work(c, work);
	return true;
}
