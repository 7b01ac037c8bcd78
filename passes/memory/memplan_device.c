/* What memplan's stages make together: the arena of a device that runs several of them, and whether it fits. */
#include <string.h>
#include "again.h"
#include "memory.h"
#include "ir/base/human.h"

int64_t memory_of(const Stage *s, const Cluster *c)
{
	int64_t least = 0;

	for (int r = 0; c && r < s->replicas; r++) {
		const int64_t m = s->device[r] >= 0 && s->device[r] < c->ndevice ? c->device[s->device[r]].memory : 0;
		if (m > 0 && (!least || m < least))
			least = m;
	}
	return least;
}

static void move_region(Stage *s, Region r, int64_t by)
{
	s->at[r] += by;
	for (int i = 0; (r == REGION_PARAMS || r == REGION_STATE) && i < s->nparam; i++)
		if ((s->param[i]->param->kind == PARAM_STATE) == (r == REGION_STATE))
			s->param_at[i] += by;
}

/* Whether an update has something to wait for all stages of its device with (what it received of tied parameters, squares
 * for the norm): then its temporaries must last. */
static bool interrupted(const Stage *s)
{
	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_ClipNorm || n->op == OP_Broadcast)
			return true;
	return false;
}

/* The stages of a device lie behind one another in its arena; then come temporaries and scratchpads, of which one stage
 * at a time needs any. Where temporaries lie over the only slot they stay there. The arena is the device's in all of them. */
static void share_device(const Module *m, Stage *first)
{
	int64_t top = 0, tmp = 0, scratch = 0;
	int n = 0;

	for (int i = 0; i < m->nstage; i++)
		n += m->stage[i]->rank == first->rank && i <= first->id ? 1 : 0;
	if (n > 1)
		return; /* done with the first stage of the device */
	for (int i = first->id; i < m->nstage; i++) {
		Stage *s = m->stage[i];
		if (s->rank != first->rank)
			continue;
		const bool apart = !tmp_over_slot(s) && !interrupted(s);
		for (int r = REGION_PARAMS; r < REGION_TMP + !apart; r++)
			move_region(s, (Region)r, top);
		top += s->arena - s->bytes[REGION_SCRATCH] - (apart ? s->bytes[REGION_TMP] : 0);
		tmp = apart && s->bytes[REGION_TMP] > tmp ? s->bytes[REGION_TMP] : tmp;
		scratch = s->bytes[REGION_SCRATCH] > scratch ? s->bytes[REGION_SCRATCH] : scratch;
	}
	for (int i = first->id; i < m->nstage; i++) {
		Stage *s = m->stage[i];
		if (s->rank != first->rank)
			continue;
		if (!tmp_over_slot(s) && !interrupted(s))
			s->at[REGION_TMP] = top;
		s->at[REGION_SCRATCH] = top + tmp;
		s->arena = top + tmp + scratch;
	}
}

int64_t memplan_device(Module *m, PassCx *cx, const Stage *of)
{
	int64_t top = 0, tmp = 0, scratch = 0;

	for (int i = 0; i < m->nstage; i++) {
		Stage *s = m->stage[i];
		if (s->rank != of->rank)
			continue;
		const int64_t arena = memplan_stage(m, cx, s);
		const bool apart = s->inflight > 1 && !interrupted(s);
		top += arena - s->bytes[REGION_SCRATCH] - (apart ? s->bytes[REGION_TMP] : 0);
		tmp = apart && s->bytes[REGION_TMP] > tmp ? s->bytes[REGION_TMP] : tmp;
		scratch = s->bytes[REGION_SCRATCH] > scratch ? s->bytes[REGION_SCRATCH] : scratch;
	}
	return top + tmp + scratch;
}

/* Where nothing is computed again yet: would it fit then? */
static void hint(Module *m, PassCx *cx, const Stage *s, int64_t memory)
{
	double time, more;

	if (cx->memory_scale > 0 && !(cx->plan && cx->plan->forced)) /* another plan will be tried */
		return;
	if (cx->train && cx->train->plan.recompute != RECOMPUTE_NONE)
		return;
	const int64_t bytes = recompute_need(m, cx, s, &time, &more);
	if (bytes <= memory && time > 0)
		diag_note(cx->d, NOLOC,
			"--recompute stage needs %s there (+%.0f %% of its time), --recompute auto as little time "
			"as fits",
			str_bytes(cx->scratch, bytes), 100 * more / time);
}

static bool fits(Module *m, PassCx *cx, const Stage *of)
{
	const Cluster *c = cx->cluster;
	const Stage was = *of, *s = &was; /* a hint plans anew */
	const char *also = "";
	Arena *a = cx->scratch;
	bool ok = true;

	for (int i = 0; i < m->nstage; i++) {
		if (m->stage[i]->rank == s->rank && i < s->id)
			return true; /* its device was checked with its first stage */
		if (m->stage[i]->rank == s->rank && i > s->id)
			also = arena_printf(a, "%s and %d", also, i);
	}

	for (int r = 0; c && r < s->replicas; r++) {
		if (s->device[r] < 0 || s->device[r] >= c->ndevice)
			continue;
		const Device *d = &c->device[s->device[r]];
		if (d->memory <= 0 || s->arena <= d->memory)
			continue;
		if (*also) {
			ok = diag_error(cx->d, FILELOC(c->file), 601,
				"stages %d%s together need %s (%lld bytes), device %s has %s", s->id, also,
				str_bytes(a, s->arena), (long long)s->arena, d->name, str_bytes(a, d->memory));
			hint(m, cx, s, d->memory);
			continue;
		}
		ok = diag_error(cx->d, FILELOC(c->file), 601,
			"stage %d needs %s (%lld bytes), device %s has %s: parameters %s, optimizer %s, gradients %s, "
			"%d x %s between forward and backward%s, temporaries %s, scratch %s",
			s->id, str_bytes(a, s->arena), (long long)s->arena, d->name, str_bytes(a, d->memory),
			str_bytes(a, s->bytes_params), str_bytes(a, s->bytes_state), str_bytes(a, s->bytes_grads),
			s->inflight, str_bytes(a, s->slot_bytes),
			stage_enters(s) ? arena_printf(a, ", %d x %s received and sent back", s->entries,
						  str_bytes(a, s->entry_bytes))
					: "",
			str_bytes(a, s->bytes_tmp), str_bytes(a, s->bytes_scratch));
		hint(m, cx, s, d->memory);
	}
	return ok;
}

bool share_devices(Module *m, PassCx *cx)
{
	bool ok = true;

	for (int i = 0; i < m->nstage; i++)
		share_device(m, m->stage[i]);
	for (int i = 0; i < m->nstage; i++)
		ok &= fits(m, cx, m->stage[i]);
	return ok;
}
