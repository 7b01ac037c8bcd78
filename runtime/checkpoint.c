/* checkpoint.c: writing checkpoints while training goes on, and going on after one.
 *
 * Every rank writes the tensors that it owns (pd_param.owner) and asks nobody: between two steps they are copied into
 * a buffer that was made before step 0. A thread writes the copy and its manifest under temporary names, which frees the
 * copy for the next one. A second thread has the disk take both (fsync), in the order of steps, and gives them their names: a
 * part that has a manifest lies on the disk. A checkpoint counts when all parts have manifests (ckptdir.h), so a kill or
 * a loss of power at any moment leaves the one before: a rank removes its parts of older ones only when enough newer ones
 * count and their folder lies on the disk.
 *
 * At most FLIGHT parts wait for the disk: one that stalls for a moment stops nobody, one that is slower than the training
 * is slows it down. The threads give way to those that compute.
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
#include <time.h>
#include <unistd.h>

enum { FLIGHT = 4, GIVE_WAY = 10, LOOK_NS = 250000000 };        /* nice, which on Linux is of a thread */

typedef struct old { int64_t step; int world; bool safe; } old;  /* a checkpoint; safe: it counts and lies on the disk */
typedef struct part { ck_manifest m; int data, manifest; } part; /* files under temporary names */

static struct {
	const pd_program *p;
	const char       *dir, *arena;
	st_tensor        *tensor;   /* mine, in the order of the file */
	int               n;
	char             *copy, *head, *step_at;   /* the file's data; its beginning; where that says the step */
	size_t            bytes, head_bytes;
	ck_manifest       m;        /* of the copy */
	int64_t           keep;
	old              *old;      /* in the order of steps */
	int               nold, room;
	int               journal;  /* file with the losses, which goes to the disk with the checkpoint; -1: none */
	int64_t           taken;    /* the step of the last copy; -1: none */
	pthread_t         writer, settler;
	pthread_mutex_t   lock;
	pthread_cond_t    changed;
	part              flight[FLIGHT];   /* written, in a ring */
	int               oldest, flying;
	bool              on, busy, quit, broken;   /* busy: the copy is in use; broken: error says why */
	char              error[CK_PATH + 200];
} ck = { .journal = -1, .taken = -1, .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

/* ---- writing ---- */

/* The first error counts. */
static bool failed(const char *path)
{
	const int e = errno;

	pthread_mutex_lock(&ck.lock);
	if (!ck.broken)
		snprintf(ck.error, sizeof ck.error, "%s: %s", path, strerror(e));
	ck.broken = true;
	pthread_cond_broadcast(&ck.changed);
	pthread_mutex_unlock(&ck.lock);
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

static void temporary(char to[CK_PATH], const ck_manifest *m, const char *end)
{
	char name[32];

	snprintf(name, sizeof name, "%s.new", end);
	ck_part(to, ck.dir, m->step, m->rank, m->world, name);
}

/* A file of two pieces under its temporary name, on its way to the disk; -1: an error. */
static int begin_file(const ck_manifest *m, const char *end, const char *a, size_t na, const char *b, size_t nb)
{
	char path[CK_PATH];

	temporary(path, m, end);
	const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	bool      ok = fd >= 0 && put(fd, a, na);

	rt_point_ckpt(m->step);
	ok = ok && put(fd, b, nb);
	rt_point_ckpt(m->step);
	if (!ok) {
		failed(path);
		unlink(path);
		if (fd >= 0)
			close(fd);
		return -1;
	}
	sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);       /* both files' places on the disk go there at once */
	return fd;
}

static bool write_part(part *to)
{
	char    folder[CK_PATH], text[CK_TEXT];
	ck_hash h;

	to->m = ck.m;
	ck_folder(folder, ck.dir, ck.m.step);
	if (mkdir(folder, 0777) && errno != EEXIST)
		return failed(folder);
	ck_hash_begin(&h);
	ck_hash_add(&h, ck.head, ck.head_bytes);
	ck_hash_add(&h, ck.copy, ck.bytes);
	to->m.hash = ck_hash_end(&h);
	to->m.bytes = (int64_t)(ck.head_bytes + ck.bytes);
	to->data = begin_file(&to->m, ".safetensors", ck.head, ck.head_bytes, ck.copy, ck.bytes);
	if (to->data < 0)
		return false;
	to->manifest = begin_file(&to->m, ".json", text, ck_print(text, &to->m), NULL, 0);
	if (to->manifest < 0)
		close(to->data);
	return to->manifest >= 0;
}

static void *write_copies(void *unused)
{
	part p;

	(void)unused;
	nice(GIVE_WAY);
	pthread_mutex_lock(&ck.lock);
	for (;;) {
		while (!ck.broken && (ck.busy ? ck.flying == FLIGHT : !ck.quit))
			pthread_cond_wait(&ck.changed, &ck.lock);
		if (ck.broken || !ck.busy)
			break;
		pthread_mutex_unlock(&ck.lock);
		const bool ok = write_part(&p);

		pthread_mutex_lock(&ck.lock);
		if (ok)
			ck.flight[(ck.oldest + ck.flying++) % FLIGHT] = p;
		ck.busy = false;
		pthread_cond_broadcast(&ck.changed);
	}
	pthread_mutex_unlock(&ck.lock);
	return NULL;
}

/* ---- on the disk ---- */

/* Has the disk take a file; what is none (EINVAL) cannot be asked. */
static bool settled(int fd)
{
	return fdatasync(fd) == 0 || errno == EINVAL;
}

static bool settle_path(const char *path)
{
	const int  fd = open(path, O_RDONLY);
	const bool ok = fd >= 0 && settled(fd);

	if (!ok)
		failed(path);
	if (fd >= 0)
		close(fd);
	return ok;
}

/* The file has its name once the disk has it. */
static bool settle_file(const ck_manifest *m, const char *end, int fd)
{
	char path[CK_PATH], new[CK_PATH];
	bool ok = settled(fd);

	temporary(new, m, end);
	ck_part(path, ck.dir, m->step, m->rank, m->world, end);
	ok = (close(fd) == 0 && ok) || failed(path);
	rt_point_ckpt(m->step);
	return ok && (rename(new, path) == 0 || failed(path));
}

/* All parts are there, and the disk has the folder that says so. */
static bool counts(old *o)
{
	char path[CK_PATH];

	for (int r = 0; !o->safe && r < o->world; r++) {
		ck_part(path, ck.dir, o->step, r, o->world, ".json");
		if (access(path, F_OK))
			return false;
	}
	ck_folder(path, ck.dir, o->step);
	if (!o->safe)
		o->safe = settle_path(path) && settle_path(ck.dir);
	return o->safe;
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

/* Removes what is older than the `keep` newest that count; 0 keeps all. */
static void prune(void)
{
	int64_t good = 0;
	int     first = ck.nold;

	while (first > 0 && (ck.keep <= 0 || good < ck.keep))
		good += counts(&ck.old[--first]);
	if (ck.keep <= 0 || good < ck.keep)
		return;
	for (int i = 0; i < first; i++)
		forget(&ck.old[i]);
	memmove(ck.old, ck.old + first, (size_t)(ck.nold - first) * sizeof *ck.old);
	ck.nold -= first;
}

static void remember(int64_t step, int world, bool safe)
{
	if (ck.nold == ck.room) /* --ckpt-keep 0: what is as old as that is on the disk, and stays */
		memmove(ck.old, ck.old + 1, (size_t)(--ck.nold) * sizeof *ck.old);
	ck.old[ck.nold++] = (old){ step, world, safe };
}

static bool settle(const part *p)
{
	if (ck.journal >= 0 && !settled(ck.journal))
		return failed("losses.txt");
	if (!settle_file(&p->m, ".safetensors", p->data)) {
		close(p->manifest);
		return false;
	}
	if (!settle_file(&p->m, ".json", p->manifest))
		return false;
	rt_point_ckpt(p->m.step);
	remember(p->m.step, p->m.world, false);
	prune();
	return true;
}

static void *settle_parts(void *unused)
{
	(void)unused;
	nice(GIVE_WAY);
	pthread_mutex_lock(&ck.lock);
	for (;;) {
		while (!ck.broken && !ck.flying && (ck.busy || !ck.quit))
			pthread_cond_wait(&ck.changed, &ck.lock);
		if (ck.broken || !ck.flying)
			break;
		const part p = ck.flight[ck.oldest];

		pthread_mutex_unlock(&ck.lock);
		const bool ok = settle(&p);

		pthread_mutex_lock(&ck.lock);
		if (!ok)
			break;
		ck.oldest = (ck.oldest + 1) % FLIGHT;
		ck.flying--;
		pthread_cond_broadcast(&ck.changed);
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
	if (pthread_create(&ck.writer, NULL, write_copies, NULL) || pthread_create(&ck.settler, NULL, settle_parts, NULL))
		rt_fail(RT_MEMORY, "R110", "no threads for checkpoints: %s", strerror(errno));
	ck.on = true;
}

void rt_checkpoint_journal(int fd)
{
	ck.journal = fd;
}

/* Until the copy is free and no more than `flying` parts are under way. An error of the threads ends the run here, in the main
 * thread. */
static void wait_written(int flying)
{
	pthread_mutex_lock(&ck.lock);
	while (!ck.broken && (ck.busy || ck.flying > flying)) {
		struct timespec t;

		clock_gettime(CLOCK_REALTIME, &t);
		t.tv_nsec += LOOK_NS;
		t.tv_sec += t.tv_nsec / 1000000000;
		t.tv_nsec %= 1000000000;
		if (pthread_cond_timedwait(&ck.changed, &ck.lock, &t) != ETIMEDOUT)
			continue;
		pthread_mutex_unlock(&ck.lock);
		rt_look();      /* a rank may be gone meanwhile: a disk can stall for longer than its parent waits */
		pthread_mutex_lock(&ck.lock);
	}
	const bool broken = ck.broken;

	pthread_mutex_unlock(&ck.lock);
	if (broken)
		rt_fail(RT_ERROR, "R406", "checkpoint: %s", ck.error);
}

void rt_checkpoint(int64_t step)
{
	size_t at = 0;
	char   digits[24];

	if (!ck.on || ck.taken == step)
		return;
	wait_written(FLIGHT);
	for (int i = 0; i < ck.n; at += ck.tensor[i++].bytes)
		memcpy(ck.copy + at, ck.tensor[i].data, ck.tensor[i].bytes);
	snprintf(digits, sizeof digits, "%010" PRId64, step);
	memcpy(ck.step_at, digits, 10);
	pthread_mutex_lock(&ck.lock);
	ck.taken = ck.m.step = step;
	ck.m.loss_ema = rt_watch_average();
	rt_scale_get(&ck.m.loss_scale, &ck.m.scale_good);
	ck.busy = true;
	pthread_cond_broadcast(&ck.changed);
	pthread_mutex_unlock(&ck.lock);
}

void rt_checkpoint_poll(void)
{
	pthread_mutex_lock(&ck.lock);
	const bool broken = ck.broken;

	pthread_mutex_unlock(&ck.lock);
	if (broken)
		wait_written(FLIGHT);
}

void rt_checkpoint_close(void)
{
	if (!ck.on)
		return;
	wait_written(0);
	pthread_mutex_lock(&ck.lock);
	ck.quit = true;
	pthread_cond_broadcast(&ck.changed);
	pthread_mutex_unlock(&ck.lock);
	pthread_join(ck.writer, NULL);
	pthread_join(ck.settler, NULL);
	rt_barrier();   /* all parts of the last one are there */
	prune();
	wait_written(0);
	ck.on = false;
}
