/* store.c: parameters from and to safetensors files.
 *
 * Every rank reads what it needs from a mapped file. Writing needs no shared disk: the owner of
 * each tensor sends it to rank 0, which lays the file out (safetensors.h says how: a function of
 * names, types and shapes alone, so a model file can point into it before it exists) and writes
 * it under a temporary name, then renames it. */
#include "parts.h"
#include "rt.h"
#include "safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BLOCK = 4 << 20 }; /* bytes copied from a mapped file before its memory is given back */

static char *gradients; /* copies of the sums, one after another in the order of params */
static size_t *gradient_at;
static bool *gradient_told;

static size_t elements(const pd_param *p)
{
	size_t n = 1;

	for (int i = 0; i < p->rank; i++)
		n *= (size_t)p->dim[i];
	return n;
}

pd_param rt_param_whole(const pd_param *p)
{
	pd_param w = *p;

	if (p->blocks)
		w.dim[p->axis] *= rt_group();
	if (p->pad)
		w.dim[p->axis] -= p->pad;
	w.blocks = w.pad = 0;
	w.part = 0;
	return w;
}

pd_param rt_param_local(const pd_param *p)
{
	pd_param w = *p;

	w.part = 0;
	return w;
}

/* Elements that lie in the arena. */
static size_t held(const pd_param *p) { return p->part ? (size_t)p->part : elements(p); }

size_t rt_param_bytes(const pd_param *p) { return held(p) * st_size(st_dtype((int)p->dtype)); }

/* ---- loading ---- */

static void fill(const pd_param *p, char *to)
{
	const size_t n = held(p);

	if (p->dtype == PD_F32)
		for (size_t i = 0; i < n; i++)
			((float *)(void *)to)[i] = (float)p->fill;
	else if (p->dtype == PD_F64)
		for (size_t i = 0; i < n; i++)
			((double *)(void *)to)[i] = p->fill;
	else if (p->dtype == PD_I64)
		for (size_t i = 0; i < n; i++)
			((int64_t *)(void *)to)[i] = (int64_t)p->fill;
	else
		memset(to, 0, rt_param_bytes(p));
}

/* n elements of t, from element `at` on, in the type that p has. */
static void convert(const char *path, const pd_param *p, const st_tensor *t, size_t at, char *to, size_t n)
{
	const char *want = st_dtype((int)p->dtype), *from = t->data + at * st_size(t->dtype);
	const size_t bytes = n * st_size(t->dtype);

	if (!strcmp(t->dtype, want)) {
		for (size_t done = 0, k; done < bytes; done += k) { /* never twice in memory */
			k = bytes - done < BLOCK ? bytes - done : BLOCK;
			memcpy(to + done, from + done, k);
			st_release(from + done, k);
		}
	} else if (!strcmp(t->dtype, "F32") && p->dtype == PD_F64) {
		for (size_t i = 0; i < n; i++) {
			float x;

			memcpy(&x, from + i * sizeof x, sizeof x);
			((double *)(void *)to)[i] = (double)x;
		}
	} else if (!strcmp(t->dtype, "F64") && p->dtype == PD_F32) {
		for (size_t i = 0; i < n; i++) {
			double x;

			memcpy(&x, from + i * sizeof x, sizeof x);
			((float *)(void *)to)[i] = (float)x;
		}
	} else {
		rt_fail(RT_ERROR, "R403", "%s: tensor '%s' is %s, the model has %s", path, p->name, t->dtype, want);
	}
}

/* What each replica had for itself: replica r of R adds up those of replicas r, r + R, ... of the file, so that nothing is lost
 * when there are fewer now; where there are more, they begin with nothing. */
static void load_own(const pd_program *p, const pd_param *q, const st_file *f, int n, const char *path, char *to)
{
	const size_t base = (size_t)(strrchr(q->name, '@') - q->name), count = elements(q);
	char name[4096];
	float *sum = (float *)(void *)to;

	memset(to, 0, rt_param_bytes(q));
	for (int r = p->replica;; r += p->replicas) {
		const st_tensor *t = NULL;

		snprintf(name, sizeof name, "%.*s@%d", (int)base, q->name, r);
		for (int k = 0; k < n && !t; k++)
			t = st_find(&f[k], name);
		if (!t)
			return;
		if (t->bytes != count * sizeof *sum)
			rt_fail(RT_ERROR, "R403", "%s: tensor '%s' has %zu bytes, %zu are expected", path, name,
				t->bytes, count * sizeof *sum);
		for (size_t i = 0; i < count; i++) {
			float x;

			memcpy(&x, t->data + i * sizeof x, sizeof x);
			sum[i] += x;
		}
	}
}

/* What a tensor, which begins with row `first`, has of p from row `row` on: gives the row behind it. */
static int64_t copy(const char *path, const pd_param *p, const st_tensor *t, int64_t first, int64_t row, char *arena)
{
	const size_t all = elements(p), width = p->rank && p->dim[0] ? all / (size_t)p->dim[0] : all;
	const int64_t whole = p->of ? p->of : p->rank ? p->dim[0] : 1, has = t->rank ? t->dim[0] : 1;
	const int64_t last = p->row + (p->rank ? p->dim[0] : 1), end = first + has < last ? first + has : last;
	bool same = t->rank == p->rank && (strcmp(t->name, p->name) || has == whole);

	for (int i = 1; same && i < p->rank; i++)
		same = t->dim[i] == p->dim[i];
	if (!same)
		rt_fail(RT_ERROR, "R403",
			"%s: tensor '%s' has another shape than the model: %zu bytes of %s, %zu elements expected",
			path, t->name, t->bytes, t->dtype, p->of ? (size_t)p->of * width : all);
	convert(path, p, t, (size_t)(row - first) * width,
		arena + p->offset + (size_t)(row - p->row) * width * st_size(st_dtype((int)p->dtype)),
		(size_t)(end - row) * width);
	return end;
}

/* The rows of q that the files have under its name: gives the row behind them. */
static int64_t copy_rows(const char *path, const pd_param *q, const st_file *f, int n, char *arena)
{
	const int64_t end = q->row + (q->rank ? q->dim[0] : 1);
	const st_tensor *t;
	int64_t row = q->row, first;

	while (row < end && (t = st_find_rows(f, n, q->name, row, &first)))
		row = copy(path, q, t, first, row, arena);
	return row;
}

/* A member's part of a tensor as a checkpoint has it: of each line of the whole, which has `line` elements, the `run` from
 * member x run on, or what is left there; what is behind it is padding. */
typedef struct slice {
	int axis, member, of;
	int64_t blocks, pad, run, line;
} slice;

/* Reads what stands behind a tensor's name (ST_PART), of q's whole: its length; 0: it is none. */
static int part_of(const char *path, const pd_param *q, const char *tail, slice *x)
{
	int end = 0, more = 0;

	*x = (slice){ .of = 1, .blocks = 1 };
	if (sscanf(tail, ST_PART "%n", &x->axis, &x->blocks, &x->member, &x->of, &end) != 4 || !end)
		return 0;
	if (sscanf(tail + end, ST_PAD "%n", &x->pad, &more) == 1)
		end += more;
	if (tail[end++] != ']')
		return 0;
	if (x->axis < 0 || x->axis >= q->rank || x->blocks < 1 || x->blocks > q->dim[x->axis] || x->of < 1 ||
		x->of > RT_MEMBERS || x->member < 0 || x->member >= x->of || x->pad < 0 ||
		x->pad > q->dim[x->axis] * x->of || (x->pad && x->blocks > 1) ||
		(q->dim[x->axis] + x->pad) % (x->blocks * x->of))
		rt_fail(RT_ERROR, "R403", "%s: '%s%s' is no part of the model's", path, q->name, tail);
	x->run = (q->dim[x->axis] + x->pad) / (x->blocks * x->of);
	x->line = q->dim[x->axis] / x->blocks;
	for (int d = x->axis + 1; d < q->rank; d++) {
		x->run *= q->dim[d];
		x->line *= q->dim[d];
	}
	return end;
}

/* Copies elements from..to of the part, which t has from its element `at` on; gives how many of the whole those are. */
static size_t put_part(
	const char *path, const pd_param *q, const st_tensor *t, const slice *x, int64_t from, int64_t to, char *arena)
{
	const size_t size = st_size(st_dtype((int)q->dtype));
	size_t found = 0;

	for (int64_t e = from, next; e < to; e = next) {
		const int64_t at = x->member * x->run + e % x->run, left = x->line - at;

		next = (e / x->run + 1) * x->run < to ? (e / x->run + 1) * x->run : to;
		const int64_t n = next - e < left ? next - e : left;
		if (n > 0) {
			convert(path, q, t, (size_t)(e - from),
				arena + q->offset + (size_t)(e / x->run * x->line + at) * size, (size_t)n);
			found += (size_t)n;
		}
	}
	return found;
}

static bool part_shape(const pd_param *q, const slice *x, const st_tensor *t)
{
	bool same = t->rank == q->rank;

	for (int d = 0; same && d < t->rank; d++)
		same = d == x->axis ? t->dim[d] * x->of == q->dim[d] + x->pad : t->dim[d] == q->dim[d];
	return same;
}

/* A checkpoint's parts of a tensor, of members (ST_PART) and of replicas (ST_SPAN), put together; false: not all of it is there. */
static bool copy_parts(const char *path, const pd_param *q, const st_file *f, int n, char *arena)
{
	const size_t length = strlen(q->name), count = elements(q);
	size_t found = 0;

	for (int k = 0; k < n; k++)
		for (int i = 0; i < f[k].n; i++) {
			const st_tensor *t = &f[k].tensor[i];
			const char *tail = t->name + length;
			int64_t from = 0, to = 0;
			int more = 0;
			slice x;

			if (strncmp(t->name, q->name, length) || *tail != '[')
				continue;
			const int end = part_of(path, q, tail, &x);
			if (!end)
				x.run = x.line = (int64_t)count;
			const int64_t has = x.line ? (int64_t)count / x.line * x.run : 0;
			const bool span =
				sscanf(tail + end, ST_SPAN "%n", &from, &to, &more) == 2 && more && !tail[end + more];
			if (!span && (!end || tail[end]))
				continue;
			if (span ? from < 0 || to <= from || to > has || t->rank != 1 || t->dim[0] != to - from
				 : !part_shape(q, &x, t))
				rt_fail(RT_ERROR, "R403", "%s: tensor '%s' has another shape than the model", path,
					t->name);
			found += put_part(path, q, t, &x, from, span ? to : has, arena);
		}
	return found && found == count;
}

/* Of the whole what this member has, and of that what this replica has. */
static void take_part(const pd_param *q, const char *whole, char *to)
{
	const pd_param w = rt_param_local(q);
	const size_t size = st_size(st_dtype((int)q->dtype));
	const int64_t count = (int64_t)elements(q);
	char *local = q->part && q->blocks ? rt_alloc(rt_param_bytes(&w) + 1) : to;
	char *wide = q->pad ? rt_padded(q, whole) : NULL;
	int64_t blocks = q->blocks;

	whole = wide ? wide : whole;
	for (int i = 0; i < q->axis && q->blocks; i++)
		blocks *= q->dim[i];
	if (q->blocks)
		pd_tensor_shard(local, whole, blocks, (int64_t)rt_param_bytes(&w) / blocks);
	if (q->part)
		memcpy(to, (q->blocks ? local : whole) + size * pd_part_at(rt_program->replica, q->part, count),
			size * pd_part_of(rt_program->replica, q->part, count));
	if (!q->blocks && !q->part)
		memcpy(to, whole, rt_param_bytes(q));
	if (local != to)
		free(local);
	free(wide);
}

/* What the files have of q: gives the row behind it. Of a part, the whole is looked for. */
static int64_t read_param(const char *path, const pd_param *q, const st_file *f, int n, char *arena)
{
	pd_param w = rt_param_whole(q);
	char *whole = arena;
	const int64_t end = q->row + (q->rank ? w.dim[0] : 1);
	const bool apart = q->blocks || q->part || q->pad;

	if (apart) {
		whole = rt_alloc(rt_param_bytes(&w) + 1);
		w.offset = 0;
	}
	int64_t row = copy_rows(path, &w, f, n, whole);

	if (row == q->row && !q->of && copy_parts(path, &w, f, n, whole))
		row = end;
	if (!apart)
		return row;
	if (row == end)
		take_part(q, whole, arena + q->offset);
	free(whole);
	return row == end ? q->row + (q->rank ? q->dim[0] : 1) : row;
}

/* A moving average that no file has begins as its weight does. */
static bool begin_average(const char *path, const pd_param *q, const st_file *f, int n, char *arena)
{
	static const char suffix[] = ":ema";
	char name[4096];
	const size_t length = strlen(q->name), more = sizeof suffix - 1;
	pd_param w = *q;

	if (q->kind != PD_STATE || length <= more || length >= sizeof name || strcmp(q->name + length - more, suffix))
		return false;
	snprintf(name, sizeof name, "%.*s", (int)(length - more), q->name);
	w.name = name;
	return read_param(path, &w, f, n, arena) == q->row + (q->rank ? q->dim[0] : 1);
}

void rt_weights_from(const pd_program *p, char *arena, const st_file *f, int n, const char *path, rt_need need)
{
	for (int i = 0; i < p->nparams; i++) {
		const pd_param *q = &p->params[i];

		if (q->offset > p->arena || rt_param_bytes(q) > p->arena - q->offset)
			rt_fail(RT_ERROR, "R404", "parameter '%s' lies outside the arena of %zu bytes", q->name,
				p->arena);
		if (q->kind == PD_OWN) {
			load_own(p, q, f, n, path, arena + q->offset);
			continue;
		}
		const int64_t row = read_param(path, q, f, n, arena);

		if (row == q->row + (q->rank ? q->dim[0] : 1))
			continue;
		if (row > q->row || need == RT_NEED_ALL || (need == RT_NEED_WEIGHTS && q->kind != PD_STATE))
			rt_fail(RT_ERROR, "R402", "%s: no tensor '%s'%s, which the model needs", path, q->name,
				row > q->row ? " with all of its rows" : "");
		if (!begin_average(path, q, f, n, arena))
			fill(q, arena + q->offset);
	}
}

void rt_weights_load(const pd_program *p, char *arena, const char *path, rt_need need)
{
	st_file f = { .step = -1 };
	const char *why;

	if (path && *path && rt_is_folder(path))
		rt_fail(RT_ERROR, "R401",
			"%s is a folder; of a checkpoint: pdcc export %s --model MODEL.onnx -o w.safetensors", path,
			path);
	if (path && *path && !st_open(&f, path, &why))
		rt_fail(RT_ERROR, "R401", "%s: %s", path, why);
	rt_weights_from(p, arena, &f, 1, path, need);
	st_close(&f);
}

int64_t rt_weights_step(const char *path)
{
	st_file f;
	const char *why;

	if (!st_open(&f, path, &why))
		rt_fail(RT_ERROR, "R401", "%s: %s", path, why);
	const int64_t step = f.step < 0 ? 0 : (int64_t)f.step;

	st_close(&f);
	return step;
}

/* ---- gradients, kept for a dump ---- */

/* As the gradient is kept: whole, also of a weight in parts, and of a tensor group this member's. */
static size_t gradient_bytes(const pd_param *q)
{
	const pd_param w = rt_param_local(q);

	return rt_param_bytes(&w);
}

void rt_gradients_keep(const pd_program *p)
{
	size_t n = 0;

	gradient_at = rt_alloc((size_t)p->nparams * sizeof *gradient_at + 1);
	for (int i = 0; i < p->nparams; i++) {
		gradient_at[i] = n;
		n += p->params[i].trained ? (gradient_bytes(&p->params[i]) + 7) / 8 * 8 : 0;
	}
	gradients = rt_alloc(n + 1);
	gradient_told = rt_alloc((size_t)p->nparams * sizeof *gradient_told + 1);
}

bool rt_keeps_gradients(void) { return gradients != NULL; }

static double scaled = 1; /* gradients of 16 bits are those of the loss times so much */

void pd_gradient(int i, const void *sum)
{
	if (!gradients || (rt_replays() && !rt_replay_gradient(i, (void *)(uintptr_t)sum)))
		return;
	rt_first_gradient(i);
	scaled = rt_scale_of_step();
	gradient_told[i] = true;
	memcpy(gradients + gradient_at[i], sum, gradient_bytes(&rt_program->params[i]));
}

void pd_gradient_part(const pd_group *g, int i, const void *part, int64_t n)
{
	if (!gradients)
		return;
	const pd_param *q = &rt_program->params[i];
	const int64_t count = (int64_t)elements(q);
	char *whole = rt_alloc(gradient_bytes(q));

	memcpy(whole + sizeof(float) * pd_part_at(rt_program->replica, n, count), part,
		sizeof(float) * pd_part_of(rt_program->replica, n, count));
	pd_gather_parts(g, whole, &(pd_part){ .n = count, .part = n }, 1, sizeof(float));
	pd_gradient(i, whole);
	free(whole);
}

void pd_gradient_rows(int i, const int32_t *ids, const void *rows, int64_t n, int64_t width, int add)
{
	if (!gradients)
		return;
	char *to = gradients + gradient_at[i];

	rt_first_gradient(i);
	gradient_told[i] = true;
	if (!add)
		memset(to, 0, rt_param_bytes(&rt_program->params[i]));
	for (int64_t e = 0; e < n * width; e++) {
		const int64_t at = ids[e / width] * width + e % width;

		if (at < 0)
			continue;
		if (rt_program->params[i].dtype == PD_F64)
			((double *)(void *)to)[at] += ((const double *)rows)[e];
		else
			((float *)(void *)to)[at] += ((const float *)rows)[e];
	}
}

const void *rt_gradient(int i) { return gradients && gradient_told[i] ? gradients + gradient_at[i] : NULL; }

/* The means: kept sums over the count of the step. In place; called once. */
static void divide(const pd_program *p)
{
	const double count = pd_total_count() * scaled;

	for (int i = 0; i < p->nparams; i++) {
		const size_t n = p->params[i].trained ? elements(&p->params[i]) : 0;
		char *g = gradients + gradient_at[i];

		for (size_t e = 0; e < n; e++)
			if (p->params[i].dtype == PD_F64)
				((double *)(void *)g)[e] /= count;
			else
				((float *)(void *)g)[e] = (float)(((float *)(void *)g)[e] / count);
	}
}

/* ---- saving ---- */

typedef struct record {
	int64_t name, rank, dim[PD_MAXRANK], row, of; /* as in pd_param; name: its length */
	char dtype[8];
} record;

static bool wanted(const pd_program *p, const pd_param *q, rt_what what)
{
	return q->owner == p->rank &&
	       (what == RT_STATE || (what == RT_TRAINED && q->kind < PD_STATE) || (what == RT_GRADIENTS && q->trained));
}

static char **wholes; /* by parameter: put together from the members of a tensor group; NULL: it is whole already */

static const char *value(const pd_program *p, const char *arena, int i, rt_what what)
{
	if (wholes[i])
		return wholes[i];
	return what == RT_GRADIENTS ? gradients + gradient_at[i] : arena + p->params[i].offset;
}

static void send_all(const pd_program *p, const char *arena, rt_what what)
{
	int64_t n = 0;

	for (int i = 0; i < p->nparams; i++)
		n += wanted(p, &p->params[i], what);
	rt_send(0, RT_TAG_LEAD, &n, sizeof n);
	for (int i = 0; i < p->nparams; i++) {
		const pd_param *q = &p->params[i], w = rt_param_whole(q);
		record r = { .name = (int64_t)strlen(q->name), .rank = q->rank, .row = q->row, .of = q->of };

		if (!wanted(p, q, what))
			continue;
		memcpy(r.dim, w.dim, sizeof r.dim);
		snprintf(r.dtype, sizeof r.dtype, "%s", st_dtype((int)q->dtype));
		rt_send(0, RT_TAG_LEAD, &r, sizeof r);
		rt_send(0, RT_TAG_LEAD, q->name, (size_t)r.name);
	}
	for (int i = 0; i < p->nparams; i++) {
		const pd_param w = rt_param_whole(&p->params[i]);

		if (wanted(p, &p->params[i], what))
			rt_send(0, RT_TAG_LEAD, value(p, arena, i, what), rt_param_bytes(&w));
	}
}

/* What rank 0 knows of a tensor. The layout sorts the tensors; `from` finds them again by name: whole, or rows of it, in the
 * order in which the ranks send. */
typedef struct list {
	st_tensor *tensor;
	int n, nfrom;
	struct from {
		char *name;
		int rank, index;
		int64_t row, rows; /* 0 rows: all of it */
	} *from;
} list;

static void push(list *l, const char *name, size_t length, const record *r, int rank, int index)
{
	char *copied = malloc(length + 1);
	bool known = false;

	l->tensor = realloc(l->tensor, (size_t)(l->n + 1) * sizeof *l->tensor);
	l->from = realloc(l->from, (size_t)(l->nfrom + 1) * sizeof *l->from);
	if (!copied || !l->tensor || !l->from)
		rt_fail(RT_MEMORY, "R405", "no memory for the table of a weight file");
	memcpy(copied, name, length);
	copied[length] = 0;
	l->from[l->nfrom++] = (struct from){ copied, rank, index, r->row, r->of ? r->dim[0] : 0 };
	for (int i = 0; i < l->n && r->of; i++)
		known |= !strcmp(l->tensor[i].name, copied);
	if (known)
		return;

	st_tensor *t = &l->tensor[l->n++];

	memset(t, 0, sizeof *t);
	t->name = copied;
	t->rank = (int)r->rank;
	memcpy(t->dim, r->dim, sizeof t->dim);
	if (r->of)
		t->dim[0] = r->of;
	memcpy(t->dtype, r->dtype, sizeof t->dtype);
}

static void collect(list *l, const pd_program *p, rt_what what)
{
	for (int i = 0; i < p->nparams; i++) {
		const pd_param *q = &p->params[i], w = rt_param_whole(q);
		record r = { .rank = q->rank, .row = q->row, .of = q->of };

		if (!wanted(p, q, what))
			continue;
		memcpy(r.dim, w.dim, sizeof r.dim);
		snprintf(r.dtype, sizeof r.dtype, "%s", st_dtype((int)q->dtype));
		push(l, q->name, strlen(q->name), &r, 0, i);
	}
	for (int rank = 1; rank < p->world; rank++) {
		int64_t n;

		rt_recv(rank, RT_TAG_LEAD, &n, sizeof n);
		while (n-- > 0) {
			record r;

			rt_recv(rank, RT_TAG_LEAD, &r, sizeof r);
			char *name = malloc((size_t)r.name + 1);

			if (!name)
				rt_fail(RT_MEMORY, "R405", "no memory for the table of a weight file");
			rt_recv(rank, RT_TAG_LEAD, name, (size_t)r.name);
			push(l, name, (size_t)r.name, &r, rank, -1);
			free(name);
		}
	}
}

static void write_at(int fd, const char *path, const char *data, size_t n, size_t at)
{
	while (n) {
		const ssize_t k = pwrite(fd, data, n, (off_t)at);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
		data += k;
		at += (size_t)k;
		n -= (size_t)k;
	}
}

static void write_file(const pd_program *p, const char *arena, const char *path, rt_what what)
{
	list l = { 0 };
	char temporary[4096], *incoming = NULL;
	size_t head, most = 0;

	collect(&l, p, what);
	char *text = st_layout(l.tensor, l.n, what == RT_STATE ? (long long)rt_step : -1, &head);
	const int fd = snprintf(temporary, sizeof temporary, "%s.new", path) < (int)sizeof temporary
	                       ? open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0666)
	                       : -1;

	if (!text || fd < 0)
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
	write_at(fd, path, text, head, 0);
	for (int i = 0; i < l.n; i++)
		most = l.tensor[i].bytes > most ? l.tensor[i].bytes : most;
	if (p->world > 1)
		incoming = rt_alloc(most + 1);
	const st_file laid = { .n = l.n, .tensor = l.tensor };

	for (int i = 0; i < l.nfrom; i++) {
		const struct from *x = &l.from[i];
		const st_tensor *t = st_find(&laid, x->name);
		const size_t row = x->rows ? t->bytes / (size_t)t->dim[0] : 0,
			     n = x->rows ? (size_t)x->rows * row : t->bytes;
		const char *from = incoming;

		if (x->rank == 0)
			from = value(p, arena, x->index, what);
		else
			rt_recv(x->rank, RT_TAG_LEAD, incoming, n);
		write_at(fd, path, from, n, head + t->offset + (size_t)x->row * row);
	}
	if (close(fd) || rename(temporary, path))
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
	for (int i = 0; i < l.nfrom; i++)
		free(l.from[i].name);
	free(l.tensor);
	free(l.from);
	free(incoming);
	free(text);
}

void rt_weights_save(const pd_program *p, const char *arena, const char *path, rt_what what)
{
	if (what == RT_GRADIENTS)
		divide(p);
	wholes = rt_alloc((size_t)p->nparams * sizeof *wholes + 1);
	for (int i = 0; i < p->nparams; i++) {
		const pd_param *q = &p->params[i], local = rt_param_local(q);
		const bool parts = q->part && (what == RT_STATE || (what == RT_TRAINED && q->kind < PD_STATE));

		if (parts ? rt_parts_mine(q) : wanted(p, q, what))
			wholes[i] = rt_joined(parts ? q : &local, value(p, arena, i, what));
	}
	if (rt_leads(p))
		write_file(p, arena, path, what);
	else if (!rt_member)
		send_all(p, arena, what);
	for (int i = 0; i < p->nparams; i++)
		free(wholes[i]);
	free(wholes);
}
