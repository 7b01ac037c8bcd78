/* The proof that a schedule runs: every device runs its list; F and B wait for what others send. */
#include "schedule.h"
#include <stdio.h>
#include <string.h>
#include "ir/base/buf.h"

typedef struct Proof {
	const Schedule *s;
	const StageEdge *edge;
	int nedge;
	Diag *d;
	Arena *a;
	int *synced;   /* async, by rank: sums of gradients it came to */
	int *begun;    /* by rank and stage: actions that meet those of other replicas (meets) */
	char *done;    /* [kind][stage][mb] */
	int *holds[2]; /* [rank][stage][slot], [rank][stage][entry] -> mb + 1 that owns it */
	int most;      /* slots or entries of a stage */
	int *last;     /* [stage][mb] -> the last place in its device's list that is about it */
} Proof;

static char *done_at(const Proof *p, ActKind k, int stage, int mb)
{
	return &p->done[((size_t)k * (size_t)p->s->nstage + (size_t)stage) * (size_t)p->s->nmicro + (size_t)mb];
}

/* Whether stage exchanges anything in that direction with another; recv: as the receiver. */
static bool exchanges(const Proof *p, int stage, bool forward, bool recv)
{
	for (int i = 0; i < p->nedge; i++) {
		const StageEdge *e = &p->edge[i];

		if (!(forward ? e->forward : e->backward))
			continue;
		int receiver = forward ? e->to : e->from, sender = forward ? e->from : e->to;
		if ((recv ? receiver : sender) == stage)
			return true;
	}
	return false;
}

/* All senders of what (stage, mb) waits for have started their sends. */
static bool arrived(const Proof *p, int stage, int mb, bool forward)
{
	for (int i = 0; i < p->nedge; i++) {
		const StageEdge *e = &p->edge[i];

		if (forward ? e->forward && e->to == stage && !*done_at(p, ACT_SEND_F, e->from, mb)
			    : e->backward && e->from == stage && !*done_at(p, ACT_SEND_B, e->to, mb))
			return false;
	}
	return true;
}

/* Of the action, or of the computation that it belongs to; nowhere where the schedule is no file's. */
static Loc place_of(const Schedule *s, const Action *x)
{
	const ActionPlace *best = NULL;

	for (int i = 0; i < s->nplace; i++) {
		const ActionPlace *p = &s->place[i];
		if (p->stage != x->stage || p->mb != x->mb)
			continue;
		if (p->kind == x->kind)
			return TEXTLOC(s->file, p->line, p->col);
		if (p->kind == (x->kind == ACT_RECV_F || x->kind == ACT_SEND_F ? ACT_F : ACT_B))
			best = p;
	}
	return best ? TEXTLOC(s->file, best->line, best->col) : NOLOC;
}

static bool fault(const Proof *p, int rank, const Action *x, const char *why)
{
	return diag_error(p->d, place_of(p->s, x), 501, "schedule %s: device %d, action %s: %s", p->s->name, rank,
		str_action(p->a, x), why);
}

/* What must have come before x on the same device. */
static bool in_order(const Proof *p, int rank, const Action *x)
{
	static const struct {
		ActKind kind, before;
		bool only_if_forward, recv;
		const char *why;
	} rule[] = {
		{ ACT_F, ACT_RECV_F, true, true, "its receive was not posted before" },
		{ ACT_B, ACT_F, false, false, "there was no forward before" },
		{ ACT_SEND_F, ACT_F, false, false, "nothing was computed yet" },
		{ ACT_SEND_B, ACT_B, false, false, "nothing was computed yet" },
		{ ACT_W, ACT_B, false, false, "there was no backward before" },
	};

	for (size_t i = 0; i < sizeof rule / sizeof *rule; i++)
		if (x->kind == rule[i].kind && !*done_at(p, rule[i].before, x->stage, x->mb) &&
			(!rule[i].only_if_forward || exchanges(p, x->stage, true, true)))
			return fault(p, rank, x, rule[i].why);
	if (x->kind == ACT_B && exchanges(p, x->stage, false, true) && !*done_at(p, ACT_RECV_B, x->stage, x->mb))
		return fault(p, rank, x, "its receive was not posted before");
	return true;
}

enum { SLOT, ENTRY };

static int *owner_at(const Proof *p, int rank, const Action *x, int of)
{
	const size_t at = ((size_t)rank * (size_t)p->s->nstage + (size_t)x->stage) * (size_t)p->most;

	return &p->holds[of][at + (size_t)(of == SLOT ? x->slot : x->entry)];
}

/* takes: this action is the first that uses it. */
static bool owns(const Proof *p, int rank, const Action *x, int of, bool takes)
{
	static const char *const name[] = { "slot", "entry buffer" };
	const int i = of == SLOT ? x->slot : x->entry;

	if (i < 0 || i >= (of == SLOT ? p->s->inflight : p->s->entries)[x->stage])
		return fault(p, rank, x, arena_printf(p->a, "its %s is outside the depth of the stage", name[of]));
	int *owner = owner_at(p, rank, x, of);
	if (takes && *owner)
		return fault(p, rank, x,
			arena_printf(p->a, "%s %d still belongs to microbatch %d", name[of], i, *owner - 1));
	if (takes)
		*owner = x->mb + 1;
	return *owner == x->mb + 1 || fault(p, rank, x, arena_printf(p->a, "%s %d does not belong to it", name[of], i));
}

/* A slot is a microbatch's from its forward on, a buffer at the entry from its receive on. */
static bool slot_rules(const Proof *p, int rank, const Action *x)
{
	const bool receives = exchanges(p, x->stage, true, true);

	return owns(p, rank, x, ENTRY, x->kind == (receives ? ACT_RECV_F : ACT_F)) &&
	       (x->kind == ACT_RECV_F || owns(p, rank, x, SLOT, x->kind == ACT_F));
}

static void release(const Proof *p, int rank, const Action *x)
{
	*owner_at(p, rank, x, SLOT) = *owner_at(p, rank, x, ENTRY) = 0;
}

static void find_last(const Proof *p)
{
	const Schedule *s = p->s;

	for (int r = 0; r < s->ndevice; r++)
		for (int i = 0; i < s->dev[r].n; i++) {
			const Action *x = &s->dev[r].act[i];
			const bool known =
				act_of_micro(x) && x->stage >= 0 && x->stage < s->nstage && x->mb < s->nmicro;
			if (known && s->device[x->stage][s->replica_of[x->stage][x->mb]] == r)
				p->last[x->stage * s->nmicro + x->mb] = i;
		}
}

/* Replicas sum their gradients together: none goes on before all have come to the same sum. */
static bool all_synced(const Proof *p, int rank, int at)
{
	const Schedule *s = p->s;
	const int stage = s->dev[rank].act[at].stage;
	int k = 0;

	for (int i = 0; i <= at; i++)
		k += s->dev[rank].act[i].kind == ACT_SYNC;
	p->synced[rank] = k;
	for (int r = 0; r < s->replicas[stage]; r++)
		if (p->synced[s->device[stage][r]] < k)
			return false;
	return true;
}

/* Do the actions of this kind of the stage's replicas meet (Schedule.together, gathers)? */
static bool meets(const Schedule *s, const Action *x)
{
	const bool sums = s->together && s->together[x->stage] && x->kind == (schedule_has(s, ACT_W) ? ACT_W : ACT_B);

	return sums ||
	       (s->gathers && s->gathers[x->stage] && (x->kind == ACT_F || x->kind == ACT_B || x->kind == ACT_W));
}

/* The k-th such action of a stage on a device, from 1 on; NULL: it has fewer. */
static const Action *meeting(const Schedule *s, int rank, int stage, int k)
{
	const DeviceSchedule *d = &s->dev[rank];

	for (int i = 0; i < d->n; i++)
		if (d->act[i].stage == stage && meets(s, &d->act[i]) && --k == 0)
			return &d->act[i];
	return NULL;
}

/* Where it meets others, the action at hand has begun, and so has that of the other replicas in its turn, which is of its kind. */
static bool all_begun(const Proof *p, int rank, int at)
{
	const Schedule *s = p->s;
	const Action *x = &s->dev[rank].act[at];
	int *begun = &p->begun[x->stage], k = 0;

	if (!meets(s, x))
		return true;
	for (int i = 0; i <= at; i++)
		k += s->dev[rank].act[i].stage == x->stage && meets(s, &s->dev[rank].act[i]);
	begun[rank * s->nstage] = k;
	for (int r = 0; r < s->replicas[x->stage]; r++) {
		const int other = s->device[x->stage][r];
		const Action *its = meeting(s, other, x->stage, k);
		if (begun[other * s->nstage] < k || !its || its->kind != x->kind)
			return false;
	}
	return true;
}

/* SYNC of a stage stands behind all that the device does of it, UPDATE behind SYNC. */
static bool ends_step(const Proof *p, int rank, int at)
{
	const DeviceSchedule *d = &p->s->dev[rank];
	const Action *x = &d->act[at];
	bool synced = x->kind != ACT_UPDATE;

	for (int i = 0; i < d->n; i++) {
		synced |= i < at && d->act[i].stage == x->stage && d->act[i].kind == ACT_SYNC;
		if (i > at && d->act[i].stage == x->stage && act_of_micro(&d->act[i]))
			return fault(
				p, rank, x, arena_printf(p->a, "%s comes behind it", str_action(p->a, &d->act[i])));
	}
	return synced || fault(p, rank, x, "its gradients were not summed before");
}

typedef enum Step { STEP_FAULT, STEP_WAIT, STEP_DONE } Step;

static Step step(const Proof *p, int rank, int at)
{
	const Schedule *s = p->s;
	const Action *x = &s->dev[rank].act[at];

	if (x->stage < 0 || x->stage >= s->nstage || x->mb >= s->nmicro)
		return fault(p, rank, x, "there is no such stage or microbatch"), STEP_FAULT;
	if (s->async && x->kind == ACT_SYNC)
		return all_synced(p, rank, at) ? STEP_DONE : STEP_WAIT;
	if (!act_of_micro(x))
		return s->async || ends_step(p, rank, at) ? STEP_DONE : STEP_FAULT;
	if (s->device[x->stage][s->replica_of[x->stage][x->mb]] != rank)
		return fault(p, rank, x, "the microbatch belongs to another device"), STEP_FAULT;
	if (*done_at(p, x->kind, x->stage, x->mb))
		return fault(p, rank, x, "it is done twice"), STEP_FAULT;
	if (!in_order(p, rank, x))
		return STEP_FAULT;
	if ((x->kind == ACT_F && !arrived(p, x->stage, x->mb, true)) ||
		(x->kind == ACT_B && !arrived(p, x->stage, x->mb, false)) || !all_begun(p, rank, at))
		return STEP_WAIT;
	if (!slot_rules(p, rank, x))
		return STEP_FAULT;
	*done_at(p, x->kind, x->stage, x->mb) = 1;
	if (p->last[x->stage * s->nmicro + x->mb] == at) /* what it holds is free */
		release(p, rank, x);
	return STEP_DONE;
}

/* What a computation that stands still for ever waits for, and what its maker is held up by. */
static const char *why_waits(const Proof *p, const Action *x, const int *at)
{
	const Schedule *s = p->s;

	for (int i = 0; i < p->nedge && act_of_micro(x); i++) {
		const StageEdge *e = &p->edge[i];
		const bool forward = x->kind == ACT_F;
		const int from = forward ? e->from : e->to;
		if (!(forward ? e->forward : e->backward) || (forward ? e->to : e->from) != x->stage ||
			*done_at(p, forward ? ACT_SEND_F : ACT_SEND_B, from, x->mb))
			continue;
		const int rank = s->device[from][s->replica_of[from][x->mb]];
		const Action want = { .kind = forward ? ACT_SEND_F : ACT_SEND_B, .stage = from, .mb = x->mb };
		return arena_printf(p->a,
			"waits for ever, a deadlock: device %d has %s behind %s, where it waits itself; one of the two "
			"must come earlier",
			rank, str_action(p->a, &want),
			at[rank] < s->dev[rank].n ? str_action(p->a, &s->dev[rank].act[at[rank]]) : "its end");
	}
	return "waits for ever: deadlock";
}

static bool run_all(const Proof *p)
{
	const Schedule *s = p->s;
	int *at = NEWN(p->a, int, s->ndevice);

	for (bool moved = true; moved;) {
		moved = false;
		for (int r = 0; r < s->ndevice; r++)
			while (at[r] < s->dev[r].n) {
				Step k = step(p, r, at[r]);

				if (k == STEP_FAULT)
					return false;
				if (k == STEP_WAIT)
					break;
				at[r]++;
				moved = true;
			}
	}
	bool ok = true;
	for (int r = 0; r < s->ndevice; r++)
		if (at[r] < s->dev[r].n)
			ok = fault(p, r, &s->dev[r].act[at[r]], why_waits(p, &s->dev[r].act[at[r]], at));
	return ok;
}

/* Every microbatch went through every stage, and every message found its receive. */
static bool complete(const Proof *p)
{
	const bool split = schedule_has(p->s, ACT_W);

	for (int st = 0; st < p->s->nstage; st++)
		for (int mb = 0; mb < p->s->nmicro; mb++) {
			static const struct {
				ActKind kind;
				bool always, forward, recv;
			} want[] = {
				{ ACT_F, true, true, false },
				{ ACT_B, true, false, false },
				{ ACT_SEND_F, false, true, false },
				{ ACT_RECV_F, false, true, true },
				{ ACT_SEND_B, false, false, false },
				{ ACT_RECV_B, false, false, true },
			};

			if (split && !*done_at(p, ACT_W, st, mb))
				return diag_error(
					p->d, NOLOC, 502, "schedule %s: %dW%d is missing", p->s->name, st, mb);
			for (size_t i = 0; i < sizeof want / sizeof *want; i++)
				if ((want[i].always || exchanges(p, st, want[i].forward, want[i].recv)) &&
					!*done_at(p, want[i].kind, st, mb))
					return diag_error(p->d, NOLOC, 502, "schedule %s: %s is missing", p->s->name,
						str_action(p->a,
							&(Action){ .kind = want[i].kind, .stage = st, .mb = mb }));
		}
	return true;
}

/* Versions lie in a ring: version v in place v mod n, where v - n was. Updates make one after another; what is read
 * must be there still, and a backward reads what its forward read, unless nothing is stashed. */
static bool versions_of(const Proof *p, int rank, int *met)
{
	const Schedule *s = p->s;
	int newest = 0;

	for (int i = 0; i < s->dev[rank].n; i++) {
		const Action *x = &s->dev[rank].act[i];
		const int n = s->versions[x->stage];
		int *m = &met[x->stage * s->nmicro + (x->mb < 0 ? 0 : x->mb)];

		if (x->kind == ACT_UPDATE && x->version != ++newest)
			return fault(p, rank, x,
				arena_printf(p->a, "it makes version %d, version %d is due", x->version, newest));
		if (x->kind != ACT_F && x->kind != ACT_B)
			continue;
		if (x->version > newest)
			return fault(p, rank, x,
				arena_printf(p->a, "it reads version %d, the newest is %d", x->version, newest));
		if (x->version <= newest - n)
			return fault(p, rank, x,
				arena_printf(p->a, "it reads version %d, whose place version %d has taken (%d kept)",
					x->version, x->version + n, n));
		if (x->kind == ACT_B && s->rule != VERSION_NEWEST && x->version != *m)
			return fault(p, rank, x,
				arena_printf(p->a, "it reads version %d, its forward read %d", x->version, *m));
		if (x->kind == ACT_F && s->rule >= VERSION_VERTICAL && x->stage > 0 && x->version != met[x->mb])
			return fault(p, rank, x,
				arena_printf(p->a, "it reads version %d, the first stage %d", x->version, met[x->mb]));
		*m = x->version;
	}
	return true;
}

static bool versions_hold(const Proof *p)
{
	int *met = NEWN(p->a, int, p->s->nstage * p->s->nmicro);
	bool ok = true;

	for (int r = 0; r < p->s->ndevice && p->s->async; r++)
		ok = ok && versions_of(p, r, met);
	return ok;
}

/* Microbatches between forward and backward, on one device. */
static bool depth_holds(const Proof *p)
{
	const Schedule *s = p->s;

	for (int r = 0; r < s->ndevice && s->async; r++)
		for (int i = 0, live = 0; i < s->dev[r].n; i++) {
			const Action *x = &s->dev[r].act[i];
			live += (x->kind == ACT_F) - (x->kind == ACT_B);
			if (live > s->depth[x->stage])
				return fault(p, r, x,
					arena_printf(p->a, "%d microbatches are in flight, the depth is %d", live,
						s->depth[x->stage]));
		}
	return true;
}

bool schedule_verify(const Schedule *s, const StageEdge *edge, int nedge, Diag *d)
{
	Arena *a = arena_new();
	int most = 1;

	for (int i = 0; i < s->nstage; i++) {
		most = s->inflight[i] > most ? s->inflight[i] : most;
		most = s->entries[i] > most ? s->entries[i] : most;
	}
	Proof p = { .s = s,
		.edge = edge,
		.nedge = nedge,
		.d = d,
		.a = a,
		.most = most,
		.done = NEWN(a, char, ACT_COUNT * s->nstage * s->nmicro) };
	for (int i = SLOT; i <= ENTRY; i++)
		p.holds[i] = NEWN(a, int, s->ndevice * s->nstage * most);
	p.synced = NEWN(a, int, s->ndevice);
	p.begun = NEWN(a, int, s->ndevice * s->nstage);
	p.last = NEWN(a, int, s->nstage * s->nmicro);
	find_last(&p);
	bool ok = run_all(&p) && complete(&p) && versions_hold(&p) && depth_holds(&p);
	arena_free(a);
	return ok;
}
