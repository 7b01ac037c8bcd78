/* checkpoint.c: writing checkpoints while training goes on, and going on after one.
 *
 * Every rank writes the tensors that it owns (pd_param.owner) and asks nobody: between two steps they are copied
 * into a buffer that was made before step 0, and a thread writes the copy and its manifest under temporary names and
 * gives them their names. A checkpoint counts when all parts have manifests (ckptdir.h), so a kill at any moment
 * leaves the one before. That says nothing of the disk, which takes long: a second thread has it take one
 * in every stride of them, and the last ones of a run; its manifest then says on_disk. The stride is the least power
 * of two that lets --ckpt-settle seconds pass, and the n-th checkpoint is settled when it divides n: ranks whose
 * clocks differ settle the same ones, or some of them every other.
 *
 * A rank removes its part of an old one when `keep` newer ones count, but what it has settled only when `keep` newer
 * ones are on the disk with all their parts: a loss of power leaves those. What was newer may be cut short then,
 * which its size and hash show, and resume.c passes over it.
 *
 * At most FLIGHT parts wait for the disk: one that stalls for a moment stops nobody, one that is slower than the
 * training is slows it down. The threads give way to those that compute.
 *
 * A part says nothing of stages: whoever resumes looks for its tensors by name in all parts. */
#include "parts.h"
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

enum { FLIGHT = 4, GIVE_WAY = 10, LOOK_NS = 250000000 }; /* nice, which on Linux is of a thread */

typedef struct old { /* a checkpoint */
	int64_t step;
	int world;         /* 0: damaged */
	bool asked;        /* the disk takes my part, or has it */
	bool counts, safe; /* seen: all parts are there; the disk has them all */
} old;

static struct {
	const pd_program *p;
	const char *dir, *arena;
	st_tensor *tensor; /* mine, in the order of the file */
	int n;
	char *copy, *head, *step_at; /* the file's data; its beginning; where that says the step */
	size_t bytes, head_bytes;
	ck_manifest m; /* of the copy */
	bool ask;      /* the disk shall have it */
	int64_t keep;
	old *old; /* in the order of steps */
	int nold, room;
	int journal;             /* file with the losses, which goes to the disk with the checkpoint; -1: none */
	int64_t taken, count;    /* the step of the last copy, -1: none; how many there were */
	double apart, gap, last; /* --ckpt-settle; seconds between two, an average; when the last was taken */
	pthread_t writer, settler;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int64_t flight[FLIGHT]; /* steps whose parts wait for the disk, in a ring */
	int oldest, flying;
	bool on, busy, quit, broken; /* busy: the copy is in use; broken: error says why */
	char error[CK_PATH + 200];
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

static bool write_whole(int fd, const char *data, size_t n)
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

/* A file of two pieces, which has its name when it is whole. */
static bool write_file(const ck_manifest *m, const char *end, const char *a, size_t na, const char *b, size_t nb)
{
	char path[CK_PATH], new[CK_PATH + 4];

	ck_part(path, ck.dir, m->step, m->rank, m->world, end);
	snprintf(new, sizeof new, "%s.new", path);
	const int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	bool ok = fd >= 0 && write_whole(fd, a, na);

	rt_point_ckpt(m->step);
	ok = ok && write_whole(fd, b, nb);
	if (fd >= 0)
		ok = close(fd) == 0 && ok;
	rt_point_ckpt(m->step);
	if (ok && rename(new, path) == 0)
		return true;
	failed(new);
	unlink(new);
	return false;
}

static bool write_part(ck_manifest *m)
{
	char folder[CK_PATH], text[CK_TEXT];
	ck_hash h;

	ck_folder(folder, ck.dir, m->step);
	if (mkdir(folder, 0777) && errno != EEXIST)
		return failed(folder);
	ck_hash_begin(&h);
	ck_hash_add(&h, ck.head, ck.head_bytes);
	ck_hash_add(&h, ck.copy, ck.bytes);
	m->hash = ck_hash_end(&h);
	m->bytes = (int64_t)(ck.head_bytes + ck.bytes);
	return write_file(m, ".safetensors", ck.head, ck.head_bytes, ck.copy, ck.bytes) &&
	       write_file(m, ".json", text, ck_print(text, m), NULL, 0);
}

/* ---- which stay ---- */

static void remember(int64_t step, int world, bool asked, bool safe)
{
	if (ck.nold == ck.room) /* --ckpt-keep 0: all stay */
		memmove(ck.old, ck.old + 1, (size_t)(--ck.nold) * sizeof *ck.old);
	ck.old[ck.nold++] = (old){ .step = step, .world = world, .asked = asked, .counts = safe, .safe = safe };
}

static bool counts(old *o)
{
	o->counts = o->counts || (o->world && ck_counts(ck.dir, o->step, o->world, false));
	return o->counts;
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

/* The `keep` newest that count stay, and so do the `keep` newest that are on the disk, or will be for all this rank
 * knows; with `look` it learns what the others' manifests say by now. keep 0: all stay. */
static void prune(bool look)
{
	int64_t good = 0, safe = 0;
	int left = ck.nold;

	for (int i = ck.nold - 1; i >= 0 && ck.keep > 0; i--) {
		old *o = &ck.old[i];

		if (good >= ck.keep && (!o->asked || safe >= ck.keep)) {
			forget(o);
			continue;
		}
		if (look && o->asked && !o->safe)
			o->safe = ck_counts(ck.dir, o->step, o->world, true);
		safe += o->safe;
		good += good < ck.keep && counts(o);
		ck.old[--left] = *o;
	}
	if (ck.keep > 0) {
		memmove(ck.old, ck.old + left, (size_t)(ck.nold - left) * sizeof *ck.old);
		ck.nold -= left;
	}
}

/* ---- the threads ---- */

/* Has the disk take my part of a step, when it is its turn. */
static void ask_disk(int64_t step)
{
	pthread_mutex_lock(&ck.lock);
	while (!ck.broken && ck.flying == FLIGHT)
		pthread_cond_wait(&ck.changed, &ck.lock);
	if (!ck.broken)
		ck.flight[(ck.oldest + ck.flying++) % FLIGHT] = step;
	pthread_cond_broadcast(&ck.changed);
	pthread_mutex_unlock(&ck.lock);
}

static void *write_copies(void *unused)
{
	(void)unused;
	if (nice(GIVE_WAY) == -1) /* then it is as urgent as the program */
		errno = 0;
	pthread_mutex_lock(&ck.lock);
	for (;;) {
		while (!ck.broken && !ck.busy && !ck.quit)
			pthread_cond_wait(&ck.changed, &ck.lock);
		if (ck.broken || !ck.busy)
			break;
		pthread_mutex_unlock(&ck.lock);
		if (write_part(&ck.m)) {
			rt_point_ckpt(ck.m.step);
			if (ck.ask)
				ask_disk(ck.m.step);
			remember(ck.m.step, ck.m.world, ck.ask, false);
			prune(ck.ask);
		}
		pthread_mutex_lock(&ck.lock);
		ck.busy = false;
		pthread_cond_broadcast(&ck.changed);
	}
	pthread_mutex_unlock(&ck.lock);
	return NULL;
}

/* The losses first: a run that goes on after this checkpoint has those of all steps before. */
static bool settle(int64_t step)
{
	char folder[CK_PATH];

	ck_folder(folder, ck.dir, step);
	if (ck.journal >= 0 && fdatasync(ck.journal) && errno != EINVAL)
		return failed("losses.txt");
	rt_point_ckpt(step);
	if (!ck_settle(ck.dir, step, ck.m.rank, ck.m.world))
		return failed(folder);
	rt_point_ckpt(step);
	return true;
}

static void *settle_parts(void *unused)
{
	(void)unused;
	if (nice(GIVE_WAY) == -1) /* then it is as urgent as the program */
		errno = 0;
	pthread_mutex_lock(&ck.lock);
	for (;;) {
		while (!ck.broken && !ck.flying && !ck.quit)
			pthread_cond_wait(&ck.changed, &ck.lock);
		if (ck.broken || !ck.flying)
			break;
		const int64_t step = ck.flight[ck.oldest];

		pthread_mutex_unlock(&ck.lock);
		settle(step);
		pthread_mutex_lock(&ck.lock);
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
	ck.m = (ck_manifest){ .rank = rt_task_of(p->rank),
		.world = rt_tasks(),
		.seed = p->seed,
		.samples = o->samples,
		.rate_end = rt_rate_end(),
		.samples_per_step = p->micro * p->microbatches,
		.shuffle = o->shuffle };
	snprintf(ck.m.model, sizeof ck.m.model, "%s", p->model);
	snprintf(ck.m.model_hash, sizeof ck.m.model_hash, "%s", p->model_hash ? p->model_hash : "");
	snprintf(ck.m.plan, sizeof ck.m.plan, "%s", p->plan);
	snprintf(ck.m.plan_hash, sizeof ck.m.plan_hash, "%s", p->hash);
	snprintf(ck.m.optimizer, sizeof ck.m.optimizer, "%s", p->optimizer ? p->optimizer : "");
}

static char *piece_name(const pd_param *q)
{
	const size_t room = strlen(q->name) + 48;
	char *name = rt_alloc(room);

	snprintf(name, room, "%s" ST_PIECE, q->name, q->row, q->row + q->dim[0]);
	return name;
}

static char *part_name(const pd_param *q)
{
	const size_t room = strlen(q->name) + 96;
	char *name = rt_alloc(room);

	int n = snprintf(name, room, "%s" ST_PART, q->name, q->axis, q->blocks ? q->blocks : 1,
		q->blocks ? rt_member : 0, q->blocks ? rt_group() : 1);
	if (q->pad)
		n += snprintf(name + n, room - (size_t)n, ST_PAD, q->pad);
	snprintf(name + n, room - (size_t)n, "]");
	return name;
}

/* The elements of a state that this replica has, as a tensor of its own; false: none. */
static bool span(const pd_program *p, const pd_param *q, st_tensor *t)
{
	const size_t room = strlen(t->name) + 64;
	const pd_param w = rt_param_local(q);
	const int64_t n = (int64_t)(rt_param_bytes(&w) / (rt_param_bytes(q) / (size_t)q->part));
	const int64_t at = (int64_t)pd_part_at(p->replica, q->part, n);

	t->rank = 1;
	t->dim[0] = (int64_t)pd_part_of(p->replica, q->part, n);
	char *name = rt_alloc(room);

	snprintf(name, room, "%s" ST_SPAN, t->name, at, at + t->dim[0]);
	t->name = name;
	return t->dim[0] > 0;
}

static void make_tables(const pd_program *p)
{
	ck.tensor = rt_alloc((size_t)p->nparams * sizeof *ck.tensor + 1);
	for (int i = 0; i < p->nparams; i++) {
		const pd_param *q = &p->params[i];
		st_tensor *t = &ck.tensor[ck.n];

		if (q->part ? !rt_parts_mine(q) : q->owner != p->rank)
			continue;
		if (rt_member && !q->blocks) /* what is whole is the same for all members */
			continue;
		*t = (st_tensor){ .name = (char *)(uintptr_t)q->name, .rank = q->rank, .data = ck.arena + q->offset };
		memcpy(t->dim, q->dim, sizeof t->dim);
		if (q->of)
			t->name = piece_name(q);
		if (q->blocks || q->pad)
			t->name = part_name(q);
		if (q->part && !span(p, q, t))
			continue;
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
 * and the run does not begin. The newest that count are on the disk from here on; a run that was killed may have left
 * some that are not. */
static void tidy(const int64_t *s, int n, int64_t step)
{
	char why[CK_PATH + 200];
	ck_manifest m;
	int64_t left = ck.keep > 0 ? ck.keep : FLIGHT; /* to be settled: the others wait meanwhile */

	for (int i = 0; i < n && s[i] > step; i++)
		if (ck_look(ck.dir, s[i], false, &m, why, sizeof why) == CK_COMPLETE)
			rt_fail(RT_ERROR, "R414",
				"%s has a checkpoint of step %" PRId64 ", and this run begins at step %" PRId64
				": say --resume, or another --ckpt folder",
				ck.dir, s[i], step);
	for (int i = 0; i < n; i++) {
		const ck_state state = ck_look(ck.dir, s[i], false, &m, why, sizeof why);

		if (state == CK_PARTIAL || (state == CK_DAMAGED && s[i] > step))
			ck_remove(ck.dir, s[i]);
		if (state != CK_COMPLETE || left-- <= 0 || ck_counts(ck.dir, s[i], m.world, true) ||
			ck_look(ck.dir, s[i], true, &m, why, sizeof why) != CK_COMPLETE)
			continue;
		for (int r = 0; r < m.world; r++)
			if (!ck_settle(ck.dir, s[i], r, m.world))
				rt_fail(RT_ERROR, "R406", "%s: step %" PRId64 ": %s", ck.dir, s[i], strerror(errno));
	}
}

/* What there is when the run begins. */
static void find_old(void)
{
	int n;
	char why[CK_PATH + 200];
	ck_manifest m;
	int64_t *s = NULL;

	if (rt_leads(rt_program)) {
		s = ck_steps(ck.dir, &n);
		tidy(s, n, rt_step);
		free(s);
	}
	rt_barrier();
	s = ck_steps(ck.dir, &n);
	ck.room = (n > 0 ? n : 0) + 4 * (int)(ck.keep < 1 << 20 ? ck.keep : 0) + 64;
	ck.old = rt_alloc((size_t)ck.room * sizeof *ck.old);
	for (int i = n - 1; i >= 0; i--) { /* oldest first */
		const bool whole = ck_look(ck.dir, s[i], false, &m, why, sizeof why) == CK_COMPLETE;
		const bool safe = whole && ck_counts(ck.dir, s[i], m.world, true);

		remember(s[i], safe ? m.world : 0, safe, safe);
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
	ck.apart = o->ckpt_settle;
	describe(p, o);
	if (mkdir(ck.dir, 0777) && errno != EEXIST)
		rt_fail(RT_ERROR, "R406", "%s: %s", ck.dir, strerror(errno));
	snprintf(path, sizeof path, "%s/.", ck.dir);
	if (access(path, W_OK | X_OK))
		rt_fail(RT_ERROR, "R406", "%s: %s", ck.dir, strerror(errno));
	make_tables(p);
	rt_barrier(); /* nobody looks while another one still resumes or tidies */
	find_old();
	rt_barrier();
	if (pthread_create(&ck.writer, NULL, write_copies, NULL) ||
		pthread_create(&ck.settler, NULL, settle_parts, NULL))
		rt_fail(RT_MEMORY, "R110", "no threads for checkpoints: %s", strerror(errno));
	ck.last = rt_now();
	ck.on = true;
}

void rt_checkpoint_journal(int fd) { ck.journal = fd; }

/* Until the copy is free and no more than `flying` parts wait for the disk. An error of the threads ends the run
 * here, in the main thread. */
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
		rt_look(); /* a rank may be gone meanwhile: a disk can stall for longer than its parent waits */
		pthread_mutex_lock(&ck.lock);
	}
	const bool broken = ck.broken;

	pthread_mutex_unlock(&ck.lock);
	if (broken)
		rt_fail(RT_ERROR, "R406", "checkpoint: %s", ck.error);
}

/* Whether the disk shall have the one that is taken now. */
static bool due(void)
{
	const double now = rt_now();
	int64_t stride = 1;

	ck.gap = ck.count++ ? (ck.gap + now - ck.last) / 2 : now - ck.last;
	ck.last = now;
	while ((double)stride * ck.gap < ck.apart && stride < 1 << 30)
		stride *= 2;
	return ck.count % stride == 0;
}

void rt_checkpoint(int64_t step)
{
	size_t at = 0;
	char digits[24];

	if (!ck.on || ck.taken == step)
		return;
	const bool ask = due();

	wait_written(FLIGHT);
	for (int i = 0; i < ck.n; at += ck.tensor[i++].bytes)
		memcpy(ck.copy + at, ck.tensor[i].data, ck.tensor[i].bytes);
	snprintf(digits, sizeof digits, "%010" PRId64, step);
	memcpy(ck.step_at, digits, 10);
	pthread_mutex_lock(&ck.lock);
	ck.taken = ck.m.step = step;
	ck.ask = ask;
	ck.m.loss_ema = rt_watch_average();
	rt_scale_get(&ck.m.loss_scale, &ck.m.scale_good, &ck.m.skipped);
	ck.m.packing = rt_guard_get();
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

/* Those that stay go to the disk. */
void rt_checkpoint_close(void)
{
	if (!ck.on)
		return;
	wait_written(0);
	rt_barrier(); /* all parts of the last one are there */
	for (int64_t i = ck.nold - 1, good = 0; i >= 0 && good < (ck.keep > 0 ? ck.keep : INT64_MAX); i--) {
		if (!counts(&ck.old[i]))
			continue;
		good++;
		wait_written(FLIGHT - 1);
		if (!ck.old[i].asked)
			ask_disk(ck.old[i].step);
		ck.old[i].asked = true;
	}
	wait_written(0);
	pthread_mutex_lock(&ck.lock);
	ck.quit = true;
	pthread_cond_broadcast(&ck.changed);
	pthread_mutex_unlock(&ck.lock);
	pthread_join(ck.writer, NULL);
	pthread_join(ck.settler, NULL);
	rt_barrier(); /* and on the disk */
	prune(true);
	ck.on = false;
}
