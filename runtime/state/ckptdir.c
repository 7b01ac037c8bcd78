/* ckptdir.c: folders of checkpoints: names, manifests, what is complete (ckptdir.h). */
#if !defined _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include "ckptdir.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

void ck_folder(char to[CK_PATH], const char *dir, int64_t step)
{
	snprintf(to, CK_PATH, "%s/step-%010" PRId64, dir, step);
}

void ck_part(char to[CK_PATH], const char *dir, int64_t step, int rank, int world, const char *end)
{
	snprintf(to, CK_PATH, "%s/step-%010" PRId64 "/part-%d-of-%d%s", dir, step, rank, world, end);
}

/* ---- manifests ---- */

/* The beginning of a manifest, before a digit that is changed in its place. */
static const char kind[] = "{\"kind\": \"pdcc checkpoint\", \"on_disk\": ";

/* Text between quotes; what JSON does not take as it is becomes '_'. */
static const char *plain(char to[128], const char *s)
{
	size_t n = 0;

	for (; *s && n < 127; s++)
		to[n++] = (unsigned char)*s < ' ' || *s == '"' || *s == '\\' ? '_' : *s;
	to[n] = 0;
	return to;
}

size_t ck_print(char to[CK_TEXT], const ck_manifest *m)
{
	char a[128], b[128], c[128];
	const int n = snprintf(to, CK_TEXT,
		"%s0, \"step\": %" PRId64 ", \"rank\": %d, \"world\": %d,\n"
		" \"bytes\": %" PRId64 ", \"hash\": \"%016" PRIx64 "\",\n"
		" \"model\": \"%s\", \"model_hash\": \"%s\", \"plan\": \"%s\", \"plan_hash\": \"%s\",\n"
		" \"optimizer\": \"%s\", \"seed\": %" PRIu64 ", \"samples_per_step\": %" PRId64
		", \"samples\": %" PRId64
		", \"shuffle\": %s, \"loss_ema\": %.17g, \"loss_scale\": %.17g, \"scale_good\": %" PRId64
		", \"skipped\": %" PRId64 ", \"rate_end\": %" PRId64 ", \"packing\": %" PRId64 "}\n",
		kind, m->step, m->rank, m->world, m->bytes, m->hash, plain(a, m->model), m->model_hash,
		plain(b, m->plan), m->plan_hash, plain(c, m->optimizer), m->seed, m->samples_per_step, m->samples,
		m->shuffle ? "true" : "false", m->loss_ema, m->loss_scale, m->scale_good, m->skipped, m->rate_end,
		m->packing);

	return n < CK_TEXT ? (size_t)n : CK_TEXT - 1;
}

/* Behind `"key": `; NULL: no such key. */
static const char *after(const char *text, const char *key)
{
	char word[32];

	snprintf(word, sizeof word, "\"%s\": ", key);
	const char *s = strstr(text, word);

	return s ? s + strlen(word) : NULL;
}

static bool whole(const char *text, const char *key, int64_t least, int64_t *to)
{
	const char *s = after(text, key);
	char *end;

	if (!s)
		return false;
	errno = 0;
	*to = strtoll(s, &end, 10);
	return end != s && !errno && *to >= least;
}

static bool word(const char *text, const char *key, char *to, size_t room)
{
	const char *s = after(text, key), *end = s && *s == '"' ? strchr(s + 1, '"') : NULL;
	const size_t n = end ? (size_t)(end - s - 1) : 0;

	if (!end || n >= room)
		return false;
	memcpy(to, s + 1, n);
	to[n] = 0;
	return true;
}

bool ck_read(ck_manifest *m, const char *path, const char **why)
{
	char text[CK_TEXT + 1], hash[32];
	int64_t rank, world;
	FILE *f = fopen(path, "rb");

	*why = "its manifest is missing";
	if (!f)
		return false;
	text[fread(text, 1, CK_TEXT, f)] = 0;
	fclose(f);
	*m = (ck_manifest){ 0 };
	*why = "its manifest is broken";
	if (!strchr(text, '}') || !whole(text, "step", 0, &m->step) || !whole(text, "rank", 0, &rank) ||
		!whole(text, "world", 1, &world) || rank >= world || world > 1 << 20 ||
		!whole(text, "bytes", 0, &m->bytes) || !word(text, "hash", hash, sizeof hash) ||
		!word(text, "model", m->model, sizeof m->model) ||
		!word(text, "model_hash", m->model_hash, sizeof m->model_hash) ||
		!word(text, "plan", m->plan, sizeof m->plan) ||
		!word(text, "plan_hash", m->plan_hash, sizeof m->plan_hash) ||
		!word(text, "optimizer", m->optimizer, sizeof m->optimizer) || !after(text, "seed") ||
		!whole(text, "samples_per_step", 0, &m->samples_per_step) || !whole(text, "samples", 0, &m->samples) ||
		!after(text, "shuffle"))
		return false;
	if (m->samples_per_step && m->step > INT64_MAX / 4 / m->samples_per_step) { /* samples are counted in 64 bits */
		*why = "its manifest says a step that no run comes to";
		return false;
	}
	m->rank = (int)rank;
	m->world = (int)world;
	m->on_disk = !after(text, "on_disk") ||
	             *after(text, "on_disk") == '1'; /* runtimes that did not say it settled all */
	m->hash = strtoull(hash, NULL, 16);
	m->seed = strtoull(after(text, "seed"), NULL, 10);
	m->loss_ema = after(text, "loss_ema") ? strtod(after(text, "loss_ema"), NULL) : 0;
	m->loss_scale = after(text, "loss_scale") ? strtod(after(text, "loss_scale"), NULL) : 0;
	if (!whole(text, "scale_good", 0, &m->scale_good))
		m->scale_good = 0;
	if (!whole(text, "skipped", 0, &m->skipped))
		m->skipped = 0;
	if (!whole(text, "rate_end", 0, &m->rate_end))
		m->rate_end = 0;
	if (!whole(text, "packing", 0, &m->packing))
		m->packing = 0;
	m->shuffle = !strncmp(after(text, "shuffle"), "true", 4);
	return true;
}

/* ---- hashes ---- */

static const uint64_t odd = 0x9E3779B97F4A7C15u;

void ck_hash_begin(ck_hash *h) { *h = (ck_hash){ { 1 * odd, 2 * odd, 3 * odd, 4 * odd }, 0 }; }

static uint64_t stir(uint64_t x, uint64_t w)
{
	x = (x ^ w) * 0xBF58476D1CE4E5B9u;
	return x ^ (x >> 29);
}

void ck_hash_add(ck_hash *h, const void *data, size_t n)
{
	const char *p = data;
	uint64_t w[4];

	h->length += n;
	for (; n >= sizeof w; p += sizeof w, n -= sizeof w) {
		memcpy(w, p, sizeof w);
		for (int i = 0; i < 4; i++)
			h->lane[i] = stir(h->lane[i], w[i]);
	}
	if (n) {
		memset(w, 0, sizeof w);
		memcpy(w, p, n);
		for (int i = 0; i < 4; i++)
			h->lane[i] = stir(h->lane[i], w[i]);
	}
}

uint64_t ck_hash_end(const ck_hash *h)
{
	uint64_t x = h->length * odd;

	for (int i = 0; i < 4; i++)
		x = stir(x * odd, h->lane[i]);
	return x ^ (x >> 32);
}

/* The hash of a whole file. false: it cannot be read. */
static bool file_hash(const char *path, int64_t bytes, uint64_t *to)
{
	ck_hash h;
	const int fd = open(path, O_RDONLY);

	if (fd < 0)
		return false;
	char *map = bytes ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;

	close(fd);
	if (map == MAP_FAILED)
		return false;
	ck_hash_begin(&h);
	ck_hash_add(&h, map, (size_t)bytes);
	if (map)
		munmap(map, (size_t)bytes);
	*to = ck_hash_end(&h);
	return true;
}

/* ---- folders ---- */

static int newest_first(const void *a, const void *b)
{
	const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x < y) - (x > y);
}

int64_t *ck_steps(const char *dir, int *n)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int64_t *step = NULL;

	*n = d ? 0 : -1;
	while (d && (e = readdir(d))) {
		int64_t s;
		int end = 0;

		if (sscanf(e->d_name, "step-%" SCNd64 "%n", &s, &end) != 1 || end < 15 || e->d_name[end] || s < 0)
			continue;
		int64_t *more = realloc(step, (size_t)(*n + 1) * sizeof *step);

		if (!more)
			break;
		step = more;
		step[(*n)++] = s;
	}
	if (d)
		closedir(d);
	if (step)
		qsort(step, (size_t)*n, sizeof *step, newest_first);
	return step;
}

/* For how many parts the folder has a part 0 with a manifest; 0: for none. */
static int world_of(const char *folder)
{
	DIR *d = opendir(folder);
	struct dirent *e;
	int world = 0, w, end;

	while (d && (e = readdir(d))) {
		end = 0;
		if (sscanf(e->d_name, "part-0-of-%d.json%n", &w, &end) == 1 && end && !e->d_name[end] && w > world)
			world = w;
	}
	if (d)
		closedir(d);
	return world;
}

static ck_state look_part(const char *dir, int64_t step, int rank, int world, bool read, const ck_manifest *first,
	ck_manifest *m, char *why, size_t room)
{
	char path[CK_PATH];
	const char *what;
	struct stat st;
	uint64_t hash = 0;

	ck_part(path, dir, step, rank, world, ".json");
	if (access(path, F_OK))
		return snprintf(why, room, "part %d of %d is missing", rank, world), CK_PARTIAL;
	if (!ck_read(m, path, &what))
		return snprintf(why, room, "%s: %s", path, what), CK_DAMAGED;
	if (m->step != step || m->rank != rank || m->world != world)
		return snprintf(why, room, "%s says part %d of %d of step %" PRId64, path, m->rank, m->world, m->step),
		       CK_DAMAGED;
	if (rank && strcmp(m->plan_hash, first->plan_hash))
		return snprintf(why, room, "%s is of plan %s, part 0 of plan %s", path, m->plan_hash, first->plan_hash),
		       CK_DAMAGED;
	ck_part(path, dir, step, rank, world, ".safetensors");
	if (stat(path, &st))
		return snprintf(why, room, "%s: %s", path, strerror(errno)), CK_DAMAGED;
	if (st.st_size != m->bytes)
		return snprintf(why, room, "%s has %" PRId64 " bytes, its manifest says %" PRId64 " (truncated?)", path,
			       (int64_t)st.st_size, m->bytes),
		       CK_DAMAGED;
	if (read && (!file_hash(path, m->bytes, &hash) || hash != m->hash))
		return snprintf(why, room, "%s: its bytes have the hash %016" PRIx64 ", its manifest says %016" PRIx64,
			       path, hash, m->hash),
		       CK_DAMAGED;
	return CK_COMPLETE;
}

ck_state ck_look(const char *dir, int64_t step, bool read, ck_manifest *m, char *why, size_t room)
{
	char folder[CK_PATH];

	ck_folder(folder, dir, step);
	const int world = world_of(folder);

	snprintf(why, room, "%s has no manifest of part 0", folder);
	if (world == 0)
		return CK_PARTIAL;
	for (int r = 0; r < world; r++) {
		ck_manifest other;
		const ck_state s = look_part(dir, step, r, world, read, m, r ? &other : m, why, room);

		if (s != CK_COMPLETE)
			return s;
	}
	return CK_COMPLETE;
}

/* ---- on the disk ---- */

/* Has the disk take a file or a folder; what is none (EINVAL) cannot be asked. */
static bool settle_path(const char *path)
{
	const int fd = open(path, O_RDONLY);
	const bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
	const int e = errno;

	if (fd >= 0)
		close(fd);
	errno = e;
	return ok;
}

bool ck_settle(const char *dir, int64_t step, int rank, int world)
{
	char path[CK_PATH], text[sizeof kind] = "";

	ck_part(path, dir, step, rank, world, ".safetensors");
	if (!settle_path(path))
		return false;
	ck_folder(path, dir, step);
	if (!settle_path(path) || !settle_path(dir))
		return false;
	ck_part(path, dir, step, rank, world, ".json");
	if (!settle_path(path))
		return false;
	const int fd = open(path, O_RDWR);
	const ssize_t n = sizeof kind - 1;
	const bool ok = fd >= 0 && pread(fd, text, sizeof kind, 0) == n + 1 &&
	                (memcmp(text, kind, (size_t)n) || text[n] != '0' || pwrite(fd, "1", 1, n) == 1);

	if (fd >= 0)
		close(fd);
	return ok;
}

bool ck_counts(const char *dir, int64_t step, int world, bool disk)
{
	char path[CK_PATH];
	const char *why;
	ck_manifest m;

	for (int r = 0; r < world; r++) {
		ck_part(path, dir, step, r, world, ".json");
		if (disk ? !ck_read(&m, path, &why) || !m.on_disk : access(path, F_OK) != 0)
			return false;
	}
	return true;
}

void ck_remove(const char *dir, int64_t step)
{
	char folder[CK_PATH], path[CK_PATH + 300];
	struct dirent *e;

	ck_folder(folder, dir, step);
	for (int pass = 0; pass < 2; pass++) { /* manifests first: it stops counting before it loses a part */
		DIR *d = opendir(folder);

		while (d && (e = readdir(d))) {
			const char *dot = strrchr(e->d_name, '.');

			if (strncmp(e->d_name, "part-", 5) || !dot || (pass == 0) != !strcmp(dot, ".json"))
				continue;
			snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
			unlink(path);
		}
		if (d)
			closedir(d);
	}
	rmdir(folder);
}
