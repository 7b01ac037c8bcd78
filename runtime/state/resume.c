/* resume.c: going on after a checkpoint, whatever plan wrote it: every rank looks for its tensors by name in all parts.
 * Rank 0 chooses the checkpoint and tells the others, so that all take the same. */
#include "rt.h"
#include "ckptdir.h"
#include "safetensors.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

typedef struct choice {
	int64_t step; /* -1: none */
	int world;
	double loss_ema, loss_scale;
	int64_t scale_good, skipped, rate_end;
	char dir[CK_PATH];
} choice;

#define WEIGHTS_ALONE \
	"; its weights alone: pdcc export %s --model MODEL.onnx -o w.safetensors, then --weights w.safetensors"

/* The two values that a checkpoint and this run must have in common. */
static void same_text(const char *folder, const char *what, const char *there, const char *here)
{
	if (*there && *here && strcmp(there, here))
		rt_fail(RT_ERROR, "R413", "%s was written with %s %s, this run has %s" WEIGHTS_ALONE, folder, what,
			there, here, folder);
}

static void same_number(const char *folder, const char *what, int64_t there, int64_t here)
{
	if (there != here)
		rt_fail(RT_ERROR, "R413", "%s was written with %s %" PRId64 ", this run has %" PRId64 WEIGHTS_ALONE,
			folder, what, there, here, folder);
}

static void compare(const pd_program *p, const rt_options *o, const char *dir, const ck_manifest *m)
{
	char folder[CK_PATH];

	ck_folder(folder, dir, m->step);
	if (p->model_hash && strcmp(m->model_hash, p->model_hash))
		rt_fail(RT_ERROR, "R413", "%s is of another model: %s (%s), this run trains %s (%s)", folder, m->model,
			m->model_hash, p->model, p->model_hash);
	same_text(folder, "the optimizer", m->optimizer, p->optimizer ? p->optimizer : "");
	same_number(folder, "samples per step:", m->samples_per_step, p->micro * p->microbatches);
	same_number(folder, "seed", (int64_t)m->seed, (int64_t)p->seed);
	same_number(folder, "--samples", m->samples, o->samples);
	same_number(folder, "shuffling", m->shuffle, o->shuffle);
}

/* Out of the way of the one that this run will write, but not lost. */
static void set_aside(const char *dir, int64_t step)
{
	char from[CK_PATH], to[CK_PATH + 32];

	ck_folder(from, dir, step);
	snprintf(to, sizeof to, "%s.damaged", from);
	if (rename(from, to))
		ck_remove(dir, step);
}

/* The newest checkpoint of dir that is whole; what is damaged is said and passed over. */
static int64_t newest(const char *dir, ck_manifest *m)
{
	int n;
	int64_t *step = ck_steps(dir, &n), found = -1;
	char why[CK_PATH + 300];

	for (int i = 0; i < n && found < 0; i++) {
		const ck_state s = ck_look(dir, step[i], true, m, why, sizeof why);

		if (s == CK_COMPLETE)
			found = step[i];
		if (s != CK_DAMAGED)
			continue;
		if (rt_log >= RT_LOG_WARNING)
			fprintf(stderr, "R412: %s; passed over, set aside as .damaged\n", why);
		set_aside(dir, step[i]);
	}
	free(step);
	return found;
}

bool rt_is_folder(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* DIR/step-0000000120: that one and no other. */
static bool one_step(const char *path, choice *c, ck_manifest *m)
{
	char why[CK_PATH + 300];
	int end = 0;

	snprintf(c->dir, sizeof c->dir, "%s", path);
	for (char *e = c->dir + strlen(c->dir); e > c->dir && e[-1] == '/';)
		*--e = 0;
	char *slash = strrchr(c->dir, '/'), *base = slash ? slash + 1 : c->dir;

	if (sscanf(base, "step-%" SCNd64 "%n", &c->step, &end) != 1 || end < 15 || base[end])
		return false;
	if (slash)
		*slash = 0;
	else
		strcpy(c->dir, ".");
	if (ck_look(c->dir, c->step, true, m, why, sizeof why) != CK_COMPLETE)
		rt_fail(RT_ERROR, "R412", "%s", why);
	return true;
}

static void choose(const pd_program *p, const rt_options *o, choice *c)
{
	const char *path = *o->resume ? o->resume : o->ckpt;
	ck_manifest m;

	if (!one_step(path, c, &m)) {
		snprintf(c->dir, sizeof c->dir, "%s", path);
		c->step = newest(path, &m);
	}
	if (c->step < 0 && *o->resume)
		rt_fail(RT_ERROR, "R411", "%s: %s", path,
			rt_is_folder(path) ? "there is no whole checkpoint in this folder" : strerror(errno));
	if (c->step < 0)
		return;
	compare(p, o, c->dir, &m);
	c->world = m.world;
	c->loss_ema = m.loss_ema;
	c->loss_scale = m.loss_scale;
	c->scale_good = m.scale_good;
	c->skipped = m.skipped;
	c->rate_end = m.rate_end;
}

static void load(const pd_program *p, char *arena, const choice *c)
{
	st_file *f = rt_alloc((size_t)c->world * sizeof *f);
	char path[CK_PATH];
	const char *why;

	for (int r = 0; r < c->world; r++) {
		ck_part(path, c->dir, c->step, r, c->world, ".safetensors");
		if (!st_open(&f[r], path, &why))
			rt_fail(RT_ERROR, "R401", "%s: %s", path, why);
		if (f[r].step != c->step)
			rt_fail(RT_ERROR, "R412", "%s: the file is of step %lld, its name of step %" PRId64, path,
				f[r].step, c->step);
	}
	ck_folder(path, c->dir, c->step);
	rt_weights_from(p, arena, f, c->world, path, RT_NEED_ALL);
	for (int r = 0; r < c->world; r++)
		st_close(&f[r]);
	free(f);
}

/* Of the same plan, what this rank's sums had come to. */
static void load_packing(const pd_program *p, const choice *c)
{
	ck_manifest m;
	char path[CK_PATH];
	const char *why;

	ck_part(path, c->dir, c->step, rt_task_of(p->rank), c->world, ".json");
	if (ck_read(&m, path, &why) && !strcmp(m.plan_hash, p->hash))
		rt_guard_put(m.packing);
}

bool rt_resume(const pd_program *p, const rt_options *o, char *arena)
{
	static choice c;

	c.step = -1;
	if (!*o->resume && (!o->ckpt || !*o->ckpt))
		rt_fail(RT_USAGE, "R001",
			"--resume without a folder or file takes the newest of --ckpt, which is not said");
	if (*o->resume && !rt_is_folder(o->resume)) {
		rt_step = rt_weights_step(o->resume);
		if (rt_step > INT64_MAX / 4 / (p->micro * p->microbatches)) /* samples are counted in 64 bits */
			rt_fail(RT_ERROR, "R401", "%s: after step %" PRId64 ", which no run comes to", o->resume,
				rt_step);
		rt_weights_load(p, arena, o->resume, RT_NEED_WEIGHTS);
		return true;
	}
	if (rt_leads(p))
		choose(p, o, &c);
	if (p->rank == 0)
		rt_tensor_tell(&c, sizeof c);
	for (int r = 1; r < p->world; r++) {
		if (p->rank == 0)
			rt_send(r, RT_TAG_FILE, &c, sizeof c);
		else if (r == p->rank)
			rt_recv(0, RT_TAG_FILE, &c, sizeof c);
	}
	if (c.step < 0)
		return false;
	load(p, arena, &c);
	rt_step = c.step;
	rt_watch_resume(c.loss_ema);
	rt_rate_resume(c.rate_end);
	rt_scale_put(c.loss_scale, c.scale_good, c.skipped);
	if (c.world == rt_tasks())
		load_packing(p, &c);
	if (rt_leads(p) && rt_log >= RT_LOG_NOTE)
		printf("resumed after step %" PRId64 " from %s\n", c.step, c.dir);
	return true;
}
