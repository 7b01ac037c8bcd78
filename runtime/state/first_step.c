/* first_step.c: what a program tells of its first step, for pdcc verify: the values that the plan lists, losses, sums of
 * gradients, the norm, parameters behind the update. */
#include "parts.h"
#include "rt.h"
#include "first_step.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *file;

void rt_first_open(const pd_program *p, const char *dir)
{
	char path[4096];

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
}

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
	char *images = file && channels ? plain(v, t == PD_F64 ? 8 : 4, n, channels, pixels) : NULL;

	if (file)
		tell((first_record){ .kind = received ? FIRST_RECEIVED : FIRST_VALUE,
			     .mb = mb,
			     .size = t == PD_F64 ? 8 : 4,
			     .n = n },
			name, images ? images : v);
	free(images);
}

void rt_first_loss(int mb, double loss, double count)
{
	const double both[] = { loss, count };

	if (file)
		tell((first_record){ .kind = FIRST_LOSS, .mb = mb, .size = 8, .n = 2 }, "loss", both);
}

void rt_first_norm(double norm)
{
	if (file)
		tell((first_record){ .kind = FIRST_NORM, .mb = -1, .size = 8, .n = 1 }, "norm", &norm);
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
			     .mb = -1,
			     .size = size,
			     .n = n,
			     .at = q->of ? n / q->dim[0] * q->row : 0 },
			q->name, joined ? joined : v);
	free(joined);
}

/* What a rank neither owns nor updates may be older. */
void rt_first_end(const pd_program *p, const char *arena)
{
	if (!file)
		return;
	for (int i = 0; i < p->nparams; i++) {
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
