/* first_step.c: what a program tells of its first step, for pdcc verify: the values that the plan lists, losses, sums of
 * gradients, the norm, parameters behind the update. --each-step, where nothing is flushed: of every step and every update, and
 * which weights an action reads. */
#include "parts.h"
#include "rt.h"
#include "first_step.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_UPDATES = 1 << 30 }; /* bytes of later updates; beyond, they are not told */

static FILE *file;
static bool each, muted, over;  /* over: the step was counted */
static const char *memory;      /* the arena */
static bool *fresh, some_fresh; /* by parameter: its gradient was told since the last settling */
static const void **updated;    /* by parameter: where its newest version lies; NULL: at its place in the arena */
static int64_t told;            /* bytes of updates */

void rt_first_open(const pd_program *p, const char *dir, const char *arena, bool of_each)
{
	char path[4096];

	each = of_each;
	memory = arena;
	fresh = rt_alloc((size_t)p->nparams * sizeof *fresh);
	updated = rt_alloc((size_t)p->nparams * sizeof *updated);

	snprintf(path, sizeof path, rt_member ? "%s/rank%d.%d" : "%s/rank%d", dir, p->rank, rt_member);
	file = fopen(path, "wb");
	if (!file)
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
}

static void tell(first_record r, const char *name, const void *v)
{
	r.name = (int32_t)strlen(name);
	snprintf(r.action, sizeof r.action, "%s", rt_action());
	if (fwrite(&r, sizeof r, 1, file) != 1 || fwrite(name, 1, (size_t)r.name, file) != (size_t)r.name ||
		fwrite(v, (size_t)r.size, (size_t)r.n, file) != (size_t)r.n)
		rt_fail(RT_ERROR, "R406", "--first-step: %s", strerror(errno));
	told += r.kind == FIRST_GRADIENT || r.kind == FIRST_UPDATED ? r.n * r.size : 0;
}

void rt_first_mute(bool on) { muted = on; }

/* The microbatch, which a device may count from a later step. */
static first_record of_micro(first_kind kind, int mb)
{
	const int64_t n = rt_program->microbatches, at = rt_step * n + mb;

	return (first_record){ .kind = kind, .step = at / n, .mb = (int32_t)(at % n) };
}

static int64_t update_now(void) { return rt_update < 0 ? rt_step - over : rt_update; }

/* Images that lie channels-last, as a model has them. */
static char *plain(const char *v, size_t size, int64_t n, int64_t channels, int64_t pixels)
{
	char *to = rt_alloc((size_t)n * size + 1);

	for (int64_t i = 0; i < n; i += channels * pixels)
		for (int64_t c = 0; c < channels; c++)
			for (int64_t p = 0; p < pixels; p++)
				memcpy(to + (size_t)(i + c * pixels + p) * size,
					v + (size_t)(i + p * channels + c) * size, size);
	return to;
}

void pd_value(
	const char *name, bool received, int mb, pd_dtype t, const void *v, int64_t n, int64_t channels, int64_t pixels)
{
	first_record r = of_micro(received ? FIRST_RECEIVED : FIRST_VALUE, mb);

	if (!file || muted)
		return;
	char *images = channels ? plain(v, t == PD_F64 ? 8 : 4, n, channels, pixels) : NULL;

	r.size = t == PD_F64 ? 8 : 4;
	r.n = n;
	tell(r, name, images ? images : v);
	free(images);
}

void rt_first_loss(int mb, double loss, double count)
{
	const double both[] = { loss, count };

	first_record r = of_micro(FIRST_LOSS, mb);

	r.size = 8;
	r.n = 2;
	if (file && !muted)
		tell(r, "loss", both);
}

void rt_first_version(int64_t version)
{
	const double v = (double)version;
	const char *what = rt_action();
	int mb;
	const int64_t step = rt_action_step(&mb);

	if (file && each && !muted && (!strcmp(what, "F") || !strcmp(what, "B")))
		tell((first_record){ .kind = FIRST_VERSION, .step = step, .mb = mb, .size = 8, .n = 1 }, what, &v);
}

void rt_first_norm(double norm)
{
	if (file)
		tell((first_record){ .kind = FIRST_NORM, .step = update_now(), .mb = -1, .size = 8, .n = 1 }, "norm",
			&norm);
}

/* The first of a tensor group tells the whole of what its members have parts of, the first replica that of what those have; gradients of
 * the latter are whole. */
static void tell_param(const pd_param *part, first_kind kind, const void *v)
{
	const bool parts = part->part && kind == FIRST_UPDATED;
	const pd_param local = rt_param_local(part);
	char *joined = rt_joined(parts ? part : &local, v);
	const pd_param whole = rt_param_whole(part), *q = &whole;
	const int size = q->dtype == PD_F32 ? 4 : q->dtype == PD_F64 ? 8 : 0;
	const int64_t n = size ? (int64_t)rt_param_bytes(q) / size : 0;

	if (n > 0 && !rt_member && (joined || !parts))
		tell((first_record){ .kind = kind,
			     .step = update_now(),
			     .mb = -1,
			     .size = size,
			     .n = n,
			     .at = q->of ? n / q->dim[0] * q->row : 0 },
			q->name, joined ? joined : v);
	free(joined);
}

void rt_first_gradient(int i)
{
	if (file && each)
		some_fresh = fresh[i] = true;
}

void pd_updated(int i, const void *v)
{
	if (file)
		updated[i] = v;
}

/* Is q of the state of a weight whose gradient was told? */
static bool state_of_fresh(const pd_program *p, const pd_param *q)
{
	for (int i = 0; i < p->nparams; i++) {
		const size_t n = strlen(p->params[i].name);

		if (fresh[i] && !strncmp(q->name, p->params[i].name, n) && q->name[n] == ':')
			return true;
	}
	return false;
}

void rt_first_settle(void)
{
	const pd_program *p = rt_program;

	if (!some_fresh)
		return;
	for (int i = 0; i < p->nparams && (told < MOST_UPDATES || !update_now()); i++) {
		const pd_param *q = &p->params[i];
		const void *now = updated[i] ? updated[i] : memory + q->offset;

		if (fresh[i])
			tell_param(q, FIRST_GRADIENT, rt_gradient(i));
		if (fresh[i] || (q->kind == PD_BUFFER && q->owner == p->rank) ||
			(q->kind == PD_STATE && state_of_fresh(p, q)))
			tell_param(q, FIRST_UPDATED, now);
	}
	memset(fresh, 0, (size_t)p->nparams * sizeof *fresh);
	some_fresh = false;
}

/* What a rank neither owns nor updates may be older. */
void rt_first_end(const pd_program *p, const char *arena)
{
	if (!file)
		return;
	over = true;
	rt_first_settle();
	for (int i = 0; i < p->nparams && !each; i++) {
		const void *sum = rt_gradient(i);

		if (sum)
			tell_param(&p->params[i], FIRST_GRADIENT, sum);
		if (sum || p->params[i].owner == p->rank || (p->params[i].part && rt_parts_mine(&p->params[i])))
			tell_param(&p->params[i], FIRST_UPDATED, arena + p->params[i].offset);
	}
	if (fclose(file))
		rt_fail(RT_ERROR, "R406", "--first-step: %s", strerror(errno));
	file = NULL;
}
