/* checkpoint.c: writing checkpoints while training goes on, and going on after one.
 *
 * Every rank writes the tensors that it owns (pd_param.owner) and asks nobody: between two steps they are copied into
 * a buffer that was made before step 0, and a thread writes the copy: the part under a temporary name, rename; then its
 * manifest in the same way. A checkpoint counts when all parts have manifests (ckptdir.h), so a kill at any moment leaves
 * the one before. Then the copy is free for the next one, and the thread has the disk take the files (fsync), unless the next
 * one is waiting. It removes its own parts of older checkpoints once enough newer ones count and lie on the disk: after a
 * loss of power the hashes tell which of those that are left is whole.
 *
 * A part says nothing of stages: whoever resumes looks for its tensors by name in all parts. */
#include "rt.h"
#include "ckptdir.h"
#include "safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct old { int64_t step; int world; bool safe; } old;  /* a checkpoint in the folder; safe: on the disk */

static struct {
	const pd_program *p;
	const char       *dir, *arena;
	st_tensor        *tensor;   /* mine, in the order of the file */
	int               n;
	char             *copy, *head, *step_at;   /* the file's data; its beginning; where that says the step */
	size_t            bytes, head_bytes;
	ck_manifest       m;
	int64_t           keep;
	old              *old;
	int               nold, room;
	int               journal;  /* file with the losses, which goes to the disk with the checkpoint; -1: none */
	int64_t           written;  /* the step of the last one; -1: none */
	pthread_t         thread;
	pthread_mutex_t   lock;
	pthread_cond_t    changed;
	bool              on, busy, quit, broken;   /* busy: the copy is in use; broken: error says why */
	char              error[CK_PATH + 200];
} ck = { .journal = -1, .written = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* ---- the thread ---- */

static bool failed(const char *path)
{
	snprintf(ck.error, sizeof ck.error, "%s: %s", path, strerror(errno));
	return false;
}

static bool put(int fd, const char *data, size_t n)
{
	while (n) {
		const ssize_t k = write(fd, data, n < (size_t)1 << 24 ? n : (size_t)1 << 24);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		data += k;
		n -= (size_t)k;
	}
	return true;
}

/* Has the disk take a file or a folder. */
static bool sync_path(const char *path)
{
	const int fd = open(path, O_RDONLY);
	const int rc = fd < 0 ? -1 : fsync(fd);

	if (rc && errno != EINVAL)
		failed(path);
	if (fd >= 0)
		close(fd);
	return !*ck.error;
}

/* A file of two pieces under its name, or not at all. */
static bool publish(const char *path, const char *a, size_t na, const char *b, size_t nb)
{
	char temporary[CK_PATH + 8];

	snprintf(temporary, sizeof temporary, "%s.new", path);
	const int  fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	bool       ok = fd >= 0 && put(fd, a, na);

	rt_point_ckpt(ck.m.step);
	ok = ok && put(fd, b, nb);
	rt_point_ckpt(ck.m.step);
	if (!ok)
		failed(path);
	if (fd >= 0 && close(fd) && ok)
		ok = failed(path);
	if (ok && rename(temporary, path))
		ok = failed(path);
	if (!ok)
		unlink(temporary);
	rt_point_ckpt(ck.m.step);
	return ok;
}

static bool write_part(void)
{
	char    path[CK_PATH], folder[CK_PATH], text[CK_TEXT];
	ck_hash h;

	ck_folder(folder, ck.dir, ck.m.step);
	if (mkdir(folder, 0777) && errno != EEXIST)
		return failed(folder);
	ck_hash_begin(&h);
	ck_hash_add(&h, ck.head, ck.head_bytes);
	ck_hash_add(&h, ck.copy, ck.bytes);
	ck.m.hash = ck_hash_end(&h);
	ck.m.bytes = (int64_t)(ck.head_bytes + ck.bytes);
	ck_part(path, ck.dir, ck.m.step, ck.m.rank, ck.m.world, ".safetensors");
	rt_point_ckpt(ck.m.step);
	if (!publish(path, ck.head, ck.head_bytes, ck.copy, ck.bytes))
		return false;
	ck_part(path, ck.dir, ck.m.step, ck.m.rank, ck.m.world, ".json");
	return publish(path, text, ck_print(text, &ck.m), NULL, 0);
}

static bool is_busy(void)
{
	pthread_mutex_lock(&ck.lock);
	const bool busy = ck.busy;

	pthread_mutex_unlock(&ck.lock);
	return busy;
}

/* This rank's part of a checkpoint and the losses before it; false: not yet, another one waits, or an error. */
static bool make_safe(const old *o)
{
	char path[CK_PATH];

	if (is_busy())
		return false;
	if (ck.journal >= 0 && fsync(ck.journal) && errno != EINVAL)
		return failed("losses.txt");
	ck_part(path, ck.dir, o->step, ck.m.rank, ck.m.world, ".safetensors");
	if (!sync_path(path) || is_busy())
		return false;
	ck_part(path, ck.dir, o->step, ck.m.rank, ck.m.world, ".json");
	if (!sync_path(path) || is_busy())
		return false;
	ck_folder(path, ck.dir, o->step);
	return sync_path(path) && sync_path(ck.dir);
}

static bool counts(const old *o)
{
	char path[CK_PATH];

	for (int r = 0; r < o->world; r++) {
		ck_part(path, ck.dir, o->step, r, o->world, ".json");
		if (access(path, F_OK))
			return false;
	}
	return true;
}

/* Parts of another plan are removed by rank 0, those of this one by their writers. */
static void forget(const old *o)
{
	char path[CK_PATH];

	if (o->world != ck.m.world) {
		if (ck.m.rank == 0)
			ck_remove(ck.dir, o->step);
		return;
	}
	ck_part(path, ck.dir, o->step, ck.m.rank, o->world, ".json");
	unlink(path);
	ck_part(path, ck.dir, o->step, ck.m.rank, o->world, ".safetensors");
	unlink(path);
	ck_folder(path, ck.dir, o->step);
	rmdir(path); /* the last one of the ranks can */
}

/* Removes what is older than the `keep` newest that count and are safe. The list is in the order of steps. */
static void prune(void)
{
	int64_t good = 0;
	int     first = ck.nold;

	if (ck.keep <= 0)
		return;
	while (first > 0 && good < ck.keep)
		first--, good += ck.old[first].safe && counts(&ck.old[first]);
	if (good < ck.keep)
		return;
	for (int i = 0; i < first; i++)
		forget(&ck.old[i]);
	memmove(ck.old, ck.old + first, (size_t)(ck.nold - first) * sizeof *ck.old);
	ck.nold -= first;
}

static void remember(int64_t step, int world, bool safe)
{
	if (ck.nold == ck.room) /* never: as many do not count, and are the oldest */
		memmove(ck.old, ck.old + 1, (size_t)(--ck.nold) * sizeof *ck.old);
	ck.old[ck.nold++] = (old){ step, world, safe };
}

/* Writes the copy, frees it, then sees to what is not safe yet. */
static bool write_one(void)
{
	const bool ok = write_part();

	if (ok)
		remember(ck.m.step, ck.m.world, false);
	pthread_mutex_lock(&ck.lock);
	ck.written = ck.m.step;
	ck.broken = !ok;
	ck.busy = false;
	pthread_cond_signal(&ck.changed);
	pthread_mutex_unlock(&ck.lock);
	for (int i = 0; ok && i < ck.nold; i++)
		if (!ck.old[i].safe && !(ck.old[i].safe = make_safe(&ck.old[i])))
			break;
	if (ok && !*ck.error)
		prune();
	return !*ck.error;
}

static void *writer(void *unused)
{
	(void)unused;
	pthread_mutex_lock(&ck.lock);
	while (!ck.quit || ck.busy) {
		if (!ck.busy) {
			pthread_cond_wait(&ck.changed, &ck.lock);
			continue;
		}
		pthread_mutex_unlock(&ck.lock);
		const bool ok = write_one();

		pthread_mutex_lock(&ck.lock);
		if (!ok) {
			ck.broken = true;
			ck.busy = false;
			pthread_cond_signal(&ck.changed);
			break;
		}
	}
	pthread_mutex_unlock(&ck.lock);
	return NULL;
}

/* ---- from the main thread ---- */

static void describe(const pd_program *p, const rt_options *o)
{
	ck.m = (ck_manifest){ .rank = p->rank, .world = p->world, .seed = p->seed, .samples = o->samples,
		.samples_per_step = p->micro * p->microbatches, .shuffle = o->shuffle };
	snprintf(ck.m.model, sizeof ck.m.model, "%s", p->model);
	snprintf(ck.m.model_hash, sizeof ck.m.model_hash, "%s", p->model_hash ? p->model_hash : "");
	snprintf(ck.m.plan, sizeof ck.m.plan, "%s", p->plan);
	snprintf(ck.m.plan_hash, sizeof ck.m.plan_hash, "%s", p->hash);
	snprintf(ck.m.optimizer, sizeof ck.m.optimizer, "%s", p->optimizer ? p->optimizer : "");
}

static void make_tables(const pd_program *p)
{
	ck.tensor = rt_alloc((size_t)p->nparams * sizeof *ck.tensor + 1);
	for (int i = 0; i < p->nparams; i++) {
		const pd_param *q = &p->params[i];
		st_tensor      *t = &ck.tensor[ck.n];

		if (q->owner != p->rank)
			continue;
		*t = (st_tensor){ .name = (char *)(uintptr_t)q->name, .rank = q->rank, .data = ck.arena + q->offset };
		memcpy(t->dim, q->dim, sizeof t->dim);
		snprintf(t->dtype, sizeof t->dtype, "%s", st_dtype((int)q->dtype));
		ck.n++;
	}
	ck.head = st_layout(ck.tensor, ck.n, 0, &ck.head_bytes);
	ck.step_at = ck.head ? strstr(ck.head + 8, "\"step\":\"") : NULL;
	if (!ck.step_at)
		rt_fail(RT_MEMORY, "R405", "no memory for the table of a checkpoint");
	ck.step_at += 8;
	for (int i = 0; i < ck.n; i++)
		ck.bytes += ck.tensor[i].bytes;
	ck.copy = rt_alloc(ck.bytes);
	memset(ck.copy, 1, ck.bytes); /* so that the memory is there */
}

/* Rank 0, while nobody writes: what does not count goes; what counts and is newer than this run's beginning stays,
 * and the run does not begin. */
static void tidy(int64_t step)
{
	int         n;
	char        why[CK_PATH + 200];
	ck_manifest m;
	int64_t    *s = ck_steps(ck.dir, &n);

	ck.room = (n > 0 ? n : 0) + (int)(ck.keep < 1 << 20 ? ck.keep : 0) + 64;
	ck.old = rt_alloc((size_t)ck.room * sizeof *ck.old);
	for (int i = 0; i < n && s[i] > step && rt_program->rank == 0; i++)
		if (ck_look(ck.dir, s[i], false, &m, why, sizeof why) == CK_COMPLETE)
			rt_fail(RT_ERROR, "R414",
			        "%s has a checkpoint of step %" PRId64 ", and this run begins at step %" PRId64
			        ": say --resume, or another --ckpt folder", ck.dir, s[i], step);
	for (int i = n - 1; i >= 0; i--) { /* oldest first */
		const ck_state state = ck_look(ck.dir, s[i], false, &m, why, sizeof why);

		if (state == CK_PARTIAL || (state == CK_DAMAGED && s[i] > step)) {
			if (rt_program->rank == 0)
				ck_remove(ck.dir, s[i]);
		} else if (s[i] <= step) {
			remember(s[i], m.world, true);
		}
	}
	free(s);
}

void rt_checkpoint_open(const pd_program *p, const rt_options *o, const char *arena)
{
	char path[CK_PATH];

	if (!o->ckpt || !*o->ckpt)
		return;
	ck.p = p;
	ck.dir = o->ckpt;
	ck.arena = arena;
	ck.keep = o->ckpt_keep;
	describe(p, o);
	if (mkdir(ck.dir, 0777) && errno != EEXIST)
		rt_fail(RT_ERROR, "R406", "%s: %s", ck.dir, strerror(errno));
	snprintf(path, sizeof path, "%s/.", ck.dir);
	if (access(path, W_OK | X_OK))
		rt_fail(RT_ERROR, "R406", "%s: %s", ck.dir, strerror(errno));
	make_tables(p);
	rt_barrier(); /* nobody looks while another one still resumes or tidies */
	tidy(rt_step);
	rt_barrier();
	if (pthread_create(&ck.thread, NULL, writer, NULL))
		rt_fail(RT_MEMORY, "R110", "no thread for checkpoints: %s", strerror(errno));
	ck.on = true;
}

void rt_checkpoint_journal(int fd)
{
	ck.journal = fd;
}

/* An error of the thread ends the run here, in the main thread. */
static void wait_written(void)
{
	pthread_mutex_lock(&ck.lock);
	while (ck.busy)
		pthread_cond_wait(&ck.changed, &ck.lock);
	const bool broken = ck.broken;

	pthread_mutex_unlock(&ck.lock);
	if (broken)
		rt_fail(RT_ERROR, "R406", "checkpoint: %s", ck.error);
}

void rt_checkpoint(int64_t step)
{
	size_t at = 0;
	char   digits[24];

	if (!ck.on)
		return;
	wait_written();
	if (ck.written == step)
		return; /* it is there */
	for (int i = 0; i < ck.n; at += ck.tensor[i++].bytes)
		memcpy(ck.copy + at, ck.tensor[i].data, ck.tensor[i].bytes);
	snprintf(digits, sizeof digits, "%010" PRId64, step);
	memcpy(ck.step_at, digits, 10);
	pthread_mutex_lock(&ck.lock);
	ck.m.step = step;
	ck.m.loss_ema = rt_watch_average();
	ck.busy = true;
	pthread_cond_signal(&ck.changed);
	pthread_mutex_unlock(&ck.lock);
}

void rt_checkpoint_poll(void)
{
	if (ck.on && !is_busy())
		wait_written();
}

void rt_checkpoint_close(void)
{
	if (!ck.on)
		return;
	wait_written();
	pthread_mutex_lock(&ck.lock);
	ck.quit = true;
	pthread_cond_signal(&ck.changed);
	pthread_mutex_unlock(&ck.lock);
	pthread_join(ck.thread, NULL);
	wait_written();         /* what went wrong since */
	rt_barrier();   /* all parts of the last one are there */
	prune();
	ck.on = false;
}
