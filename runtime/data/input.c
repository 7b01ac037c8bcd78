/* input.c: the samples of a step, from files or made up; those that are trained on, and those of the evaluation
 * set.
 *
 * Files are sample-major: sample i lies contiguous, whatever axis of the graph's input is the batch. Microbatch
 * mb of a step reads the places (step * microbatches + mb) * micro and on (samples.c): replicas need no shards
 * of their own, a plan with other replicas reads the same samples for the same microbatch. Files are mapped, not
 * read; the samples of the next step are brought into memory meanwhile (prefetch.c).
 *
 * Where an epoch ends with a short step (PD_LAST_KEEP, evaluation sets), the places that are left over get some
 * sample's data, labels that do not count, and 0 in inputs of kind "presence". */
#include "input.h"
#include "safetensors.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { TRAIN, EVAL };

static struct set {
	source *s;
	int n;
	int64_t samples; /* of an epoch, on all ranks; 0: not known */
	rt_order order;
	bool synthetic, made; /* some input is made up; all are, and their number of samples with them */
} sets[2];
static bool evaluating; /* rt_step counts steps of the evaluation set */
/* The first value that was read and lies out of its input's range; s NULL: none. */
static struct {
	const source *s;
	int64_t sample, value;
	size_t element;
} outside;

/* ---- opening ---- */

static bool exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* A named file: below the folder that was asked for under its whole name or its last part; else as named, from here or
 * the build folder. */
static void find_file(source *s, const char *path, const char *in, const rt_input_options *o)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	const char *dir[3] = { in, in, NULL }, *name[3] = { path, base, path };

	if (!in) {
		dir[0] = NULL;
		dir[1] = o->root;
		name[1] = path;
	}
	for (int i = 0; i < 3; i++) {
		if (i == 2 && in)
			break;
		snprintf(s->path, sizeof s->path, "%s%s%s", dir[i] ? dir[i] : "", dir[i] ? "/" : "", name[i]);
		if (exists(s->path))
			return;
	}
	rt_fail(RT_ERROR, "R201", "input '%s': no file '%s' %s%s", s->d->name, path,
		in ? "in " : "here or in the build folder; ",
		in        ? in
		: s->eval ? "say --eval-data DIR"
			  : "say --data DIR");
}

/* In a folder, inputs that have no file in the plan are read from DIR/NAME.npy, .idx or .bin; a .bin is of the kind that the plan
 * says, if it says one of numbers without a head. */
static const char *find_by_name(source *s, const char *in, const char *kind)
{
	static const char *const kinds[] = { "npy", "idx", "raw" }, *const ends[] = { "npy", "idx", "bin" };

	for (int i = 0; i < 3; i++) {
		snprintf(s->path, sizeof s->path, "%s/%s.%s", in, s->d->name, ends[i]);
		if (exists(s->path))
			return i == 2 && !strncmp(kind, "tokens", 6) ? kind : kinds[i];
	}
	rt_fail(RT_ERROR, "R201", "input '%s': no file %s.npy, .idx or .bin in %s", s->d->name, s->d->name, in);
}

static void geometry(source *s, int64_t micro)
{
	const pd_input_desc *d = s->d;

	s->before = s->each = s->after = 1;
	for (int i = 0; i < d->rank; i++)
		if (d->batch_axis < 0 || i > d->batch_axis)
			s->after *= d->dim[i];
		else if (i < d->batch_axis)
			s->before *= d->dim[i];
		else
			s->each = d->dim[i] / micro;
	if (d->batch_axis >= 0 && (s->each < 1 || d->dim[d->batch_axis] % micro))
		rt_fail(RT_ERROR, "R204",
			"input '%s': axis %d has %lld elements, which is no multiple of the microbatch of %lld",
			d->name, d->batch_axis, (long long)d->dim[d->batch_axis], (long long)micro);
	s->elements = (size_t)(s->before * s->each * s->after);
	s->key = 14695981039346656037u;
	for (const char *c = d->name; *c; c++)
		s->key = (s->key ^ (unsigned char)*c) * 1099511628211u;
}

static bool whole(pd_dtype t) { return t != PD_F32 && t != PD_F64; }

static void check_file(source *s, const char *kind)
{
	const pd_input_desc *d = s->d;
	const bool windows = !strncmp(kind, "tokens", 6);
	int64_t total = 1;

	for (int i = 0; i < s->a.rank; i++)
		total *= s->a.dim[i];
	if (whole(d->dtype) && !whole(s->a.dtype))
		rt_fail(RT_ERROR, "R204", "%s holds real numbers; input '%s' wants whole ones", s->path, d->name);
	if (windows) { /* one more token than the windows hold: that which follows the last */
		s->samples = s->elements ? (total - 1) / (int64_t)s->elements : 0;
		s->shift = d->is_label;
		if (s->a.rank != 1 || s->samples < 1)
			rt_fail(RT_ERROR, "R204",
				"%s: %lld tokens; input '%s' wants windows of %zu and one token behind them", s->path,
				(long long)total, d->name, s->elements);
		return;
	}
	s->samples = s->elements ? total / (int64_t)s->elements : 0;
	if (s->samples == 0 || total % (int64_t)s->elements ||
		(s->each == 1 && s->a.rank > 0 && d->batch_axis >= 0 && strcmp(kind, "raw") &&
			s->a.dim[0] != s->samples))
		rt_fail(RT_ERROR, "R204", "%s: %lld samples of %lld elements; input '%s' wants %zu elements per sample",
			s->path, (long long)(s->a.rank ? s->a.dim[0] : 1),
			(long long)(s->a.rank && s->a.dim[0] ? total / s->a.dim[0] : total), d->name, s->elements);
}

static void make_up(source *s, const pd_program *p)
{
	const int64_t batch = p->micro * p->microbatches * rt_replay_shares();

	s->synthetic = true;
	s->samples = s->d->batch_axis < 0 ? 1 : s->eval ? 2 * batch - p->micro / 2 : 4 * batch;
	s->first = s->eval && s->d->batch_axis >= 0 ? 4 * batch : 0;
	s->a.dtype = s->d->dtype;
	input_make_all(s);
}

static void open_source(source *s, const pd_program *p, const rt_input_options *o)
{
	const pd_input_desc *d = s->d;
	const bool other = s->eval && d->eval_kind;
	const char *kind = other ? d->eval_kind : d->kind ? d->kind : "synthetic", *why;
	const char *path = other ? d->eval_path : d->path, *in = s->eval && o->eval ? o->eval : o->dir;

	geometry(s, p->micro);
	s->presence = !strcmp(kind, "presence");
	if (s->presence)
		return;
	if (path && *path) {
		find_file(s, path, in, o);
	} else if (in && !(s->eval && !o->eval)) {
		kind = find_by_name(s, in, kind);
	} else if (strcmp(kind, "synthetic")) {
		const char *flag = s->eval ? "eval" : "data";

		rt_fail(RT_ERROR, "R201",
			"input '%s': no file is named; say --%s DIR, or give one to pdcc: --%s %s=FILE", d->name,
			s->eval ? "eval-data" : flag, flag, d->name);
	} else {
		make_up(s, p);
		return;
	}
	if (!file_open(&s->a, s->path, kind, d->dtype, d->name, &why))
		rt_fail(RT_ERROR, "R202", "%s: %s", s->path, why);
	s->kind = kind;
	check_file(s, kind);
	s->ahead = rt_prefetch_file(s->a.map, s->a.size);
}

/* ---- values ---- */

static void check_outside(void)
{
	const source *s = outside.s;

	if (s)
		rt_fail(RT_ERROR, "R203", "%s: sample %lld, element %zu is %lld; input '%s' takes 0 to %lld",
			s->synthetic ? "data" : s->path, (long long)outside.sample, outside.element,
			(long long)outside.value, s->d->name, (long long)s->d->range - 1);
}

static bool has_range(const source *s) { return s->d->range > 0 && (s->d->dtype == PD_I64 || s->d->dtype == PD_I32); }

/* Whether some value is outside of [0, range), by one pass that branches nowhere. */
static bool some_outside(pd_dtype t, const char *values, int64_t n, int64_t range)
{
	const int64_t *l = (const int64_t *)(const void *)values;
	const int32_t *w = (const int32_t *)(const void *)values;
	int bad = 0;

	if (t == PD_I64) {
#pragma omp simd reduction(| : bad)
		for (int64_t i = 0; i < n; i++)
			bad |= (l[i] < 0) | (l[i] >= range);
	} else {
#pragma omp simd reduction(| : bad)
		for (int64_t i = 0; i < n; i++)
			bad |= (w[i] < 0) | (w[i] >= range);
	}
	return bad;
}

static void note_outside(const source *s, int64_t sample, size_t first, const char *values, int64_t n)
{
	const pd_input_desc *d = s->d;

	if (outside.s || !some_outside(d->dtype, values, n, d->range))
		return;
	for (int64_t i = 0; i < n && !outside.s; i++) {
		const int64_t v = d->dtype == PD_I64 ? ((const int64_t *)(const void *)values)[i]
		                                     : ((const int32_t *)(const void *)values)[i];

		if ((v < 0 || v >= d->range) && (v != d->ignore_index || v == INT64_MIN)) {
			outside.s = s;
			outside.sample = sample;
			outside.element = first + (size_t)i;
			outside.value = v;
		}
	}
}

/* n elements of a sample from its element `first` on. */
static void read_part(const source *s, int64_t sample, size_t first, int64_t n, char *to)
{
	file_values(&s->a, (size_t)sample * s->elements + first + s->shift, (size_t)n, s->d->dtype, to);
	if (has_range(s))
		note_outside(s, sample, first, to, n);
}

/* Before step 0: labels and indices of small files are all looked at; those of larger ones as they are read. */
static void check_all(const source *s, int64_t samples)
{
	enum { BLOCK = 1024 };
	static int64_t part[BLOCK];

	if (!has_range(s) || s->synthetic || s->a.size > (size_t)64 << 20)
		return;
	for (int64_t i = 0; i < samples; i++)
		for (size_t e = 0; e < s->elements; e += BLOCK)
			read_part(s, i, e, s->elements - e < BLOCK ? (int64_t)(s->elements - e) : BLOCK, (char *)part);
	check_outside();
}

/* ---- the sets ---- */

static void check_limit(const struct set *t, int64_t limit, bool eval)
{
	if (limit > t->samples)
		rt_fail(RT_ERROR, "R206", "--%ssamples %lld: there are only %lld", eval ? "eval-" : "",
			(long long)limit, (long long)t->samples);
}

static void open_set(struct set *t, const pd_program *p, const rt_input_options *o, bool eval)
{
	const int64_t limit = eval ? o->eval_samples : o->samples;
	const source *first = NULL;

	memset(t, 0, sizeof *t);
	t->n = p->ninputs;
	t->s = rt_alloc((size_t)t->n * sizeof *t->s + 1);
	for (int i = 0; i < t->n; i++) {
		source *s = &t->s[i];

		s->d = &p->inputs[i];
		s->eval = eval;
		open_source(s, p, o);
		t->synthetic |= s->synthetic;
		if (s->d->batch_axis < 0 || s->presence)
			continue;
		if (s->synthetic && first)
			continue;
		if (first && !first->synthetic && s->samples != first->samples)
			rt_fail(RT_ERROR, "R205", "input '%s' has %lld samples, input '%s' has %lld", first->d->name,
				(long long)first->samples, s->d->name, (long long)s->samples);
		first = s;
	}
	t->samples = first ? first->samples : 0;
	t->made = first && first->synthetic;
	if (first && !t->made)
		check_limit(t, limit, eval);
	for (int i = 0; i < t->n; i++)
		check_all(&t->s[i], t->s[i].d->batch_axis < 0 ? 1 : limit ? limit : t->samples);
}

/* All ranks know how many samples there are, also those that read none; whoever reads some has as many. */
static void agree(const pd_program *p)
{
	int64_t mine[2] = { sets[TRAIN].made ? -sets[TRAIN].samples : sets[TRAIN].samples,
		sets[EVAL].made ? -sets[EVAL].samples : sets[EVAL].samples };
	int64_t all[2] = { 0, 0 };
	int64_t *of = rt_alloc((size_t)p->world * sizeof mine);
	int from[2] = { 0, 0 };

	if (rt_alone) {
		memcpy(of, mine, sizeof mine);
	} else {
		rt_gather_start(mine, of, sizeof mine);
		rt_gather_wait();
	}
	for (int k = 0; k < 2; k++) /* made-up samples, which are negative here, are as many as those of files */
		for (int r = p->world - 1; r >= 0; r--)
			if (of[2 * r + k] > 0 || all[k] <= 0) {
				all[k] = of[2 * r + k] ? of[2 * r + k] : all[k];
				from[k] = r;
			}
	for (int k = 0; k < 2; k++)
		for (int r = 0; r < p->world; r++)
			if (of[2 * r + k] > 0 && of[2 * r + k] != all[k])
				rt_fail(RT_ERROR, "R205", "the inputs of %s have %lld samples, those of %s have %lld%s",
					rt_name(from[k]), (long long)all[k], rt_name(r), (long long)of[2 * r + k],
					k ? " (evaluation)" : "");
	for (int k = 0; k < 2; k++)
		sets[k].samples = all[k] < 0 ? -all[k] : all[k];
	free(of);
}

static void set_order(struct set *t, const pd_program *p, const rt_input_options *o, bool eval)
{
	const int64_t batch = p->micro * p->microbatches * rt_replay_shares(),
		      limit = eval ? o->eval_samples : o->samples;
	const pd_last last = eval ? PD_LAST_KEEP : p->last;
	bool whole = false; /* no microbatch may be short */

	if (t->samples)
		check_limit(t, limit, eval);
	t->samples = limit ? limit : t->samples ? t->samples : 1;
	if (last == PD_LAST_DROP && t->samples < batch)
		rt_fail(RT_ERROR, "R206", "a step takes %lld samples, there are only %lld: every step would be dropped",
			(long long)batch, (long long)t->samples);
	for (int i = 0; i < t->n; i++)
		whole |= t->s[i].presence && t->s[i].d->batch_axis < 0;
	if (last == PD_LAST_KEEP && whole && t->samples % p->micro)
		rt_fail(RT_ERROR, "R207",
			"%lld samples %s microbatches of %lld: the model computes its loss as a mean over the microbatch, so none may "
			"be short; %s",
			(long long)t->samples, eval ? "for evaluation are no whole" : "are no whole",
			(long long)p->micro, eval ? "say --eval-samples" : "say --samples, or data.last: drop");
	t->order = rt_order_of(t->samples, batch, last, !eval && o->shuffle, p->seed);
}

void rt_input_open(const pd_program *p, const rt_input_options *o)
{
	evaluating = false;
	open_set(&sets[TRAIN], p, o, false);
	memset(&sets[EVAL], 0, sizeof *sets);
	if (p->eval.on)
		open_set(&sets[EVAL], p, o, true);
	agree(p);
	set_order(&sets[TRAIN], p, o, false);
	if (p->eval.on)
		set_order(&sets[EVAL], p, o, true);
	input_tell(p, (const source *const[]){ sets[TRAIN].s, sets[EVAL].s },
		(const int[]){ sets[TRAIN].n, sets[EVAL].n });
}

int64_t rt_input_samples(void) { return sets[TRAIN].samples; }

int64_t rt_input_span(void) { return sets[TRAIN].order.span; }

int64_t rt_input_eval_samples(void) { return sets[EVAL].samples; }

int64_t rt_input_eval_steps(void) { return sets[EVAL].order.span / (rt_program->micro * rt_program->microbatches); }

bool rt_input_synthetic(void) { return sets[TRAIN].synthetic; }

/* ---- reading ---- */

void rt_input_evaluate(bool on) { evaluating = on; }

bool pd_evaluating(void) { return evaluating; }

static void put_presence(const source *s, bool absent, int64_t b, char *to)
{
	for (int64_t k = 0; k < s->each; k++)
		file_put_real(to, s->d->dtype, (size_t)(b * s->each + k), absent ? 0 : 1);
}

static void put_absent(const source *s, int64_t b, int64_t micro, char *to)
{
	const int64_t run = s->each * s->after;

	for (int64_t k = 0; k < s->before; k++)
		for (int64_t e = 0; e < run; e++)
			file_put_whole(to, s->d->dtype, (size_t)((k * micro + b) * run + e), s->d->ignore_index);
}

static void read_sample(const source *s, int64_t sample, int64_t b, char *to)
{
	const size_t size = st_size(st_dtype((int)s->d->dtype));
	const int64_t micro = rt_program->micro, run = s->each * s->after;

	for (int64_t k = 0; k < s->before; k++)
		read_part(s, sample, (size_t)(k * run), run, to + (size_t)((k * micro + b) * run) * size);
}

static void read_place(const source *s, int64_t sample, bool absent, int64_t b, char *to)
{
	const int64_t micro = rt_program->micro;

	if (s->presence)
		put_presence(s, absent, b, to);
	else if (absent && s->d->masked)
		put_absent(s, b, micro, to);
	else if (!s->a.data)
		input_make_into(s, sample, b, micro, to);
	else if (s->synthetic) /* there are fewer of them than of the files beside them */
		read_sample(s, sample % s->samples, b, to);
	else
		read_sample(s, sample, b, to);
}

/* A sample that is read next: its first lines come from memory while the one before is copied. */
static void soon(const source *s, int64_t sample)
{
	const size_t size = s->a.map ? st_size(st_dtype((int)s->a.dtype)) : 0, bytes = s->elements * size;
	const char *at = s->a.data + (size_t)sample * bytes;

	for (size_t i = 0; i < bytes && i < 4096; i += 64)
		__builtin_prefetch(at + i);
}

/* The samples that this microbatch has in the next step. */
static void ask_ahead(struct set *t, const source *s, int64_t place)
{
	const size_t bytes = s->elements * st_size(st_dtype((int)s->a.dtype));
	bool absent;

	for (int64_t b = 0; b < rt_program->micro; b++) {
		const int64_t next =
			rt_order_at(&t->order, place + rt_program->micro * rt_program->microbatches + b, &absent);

		if (!absent)
			rt_prefetch(s->a.data + (size_t)next * bytes, bytes);
	}
	rt_prefetch_go();
}

static void read_input(int i, int64_t place, void *dst)
{
	struct set *t = &sets[evaluating ? EVAL : TRAIN];
	const source *s = &t->s[i];
	bool absent;

	if (s->d->batch_axis < 0) {
		if (s->presence) { /* of the microbatch */
			rt_order_at(&t->order, place, &absent);
			file_put_real(dst, s->d->dtype, 0, absent ? 0 : 1);
		} else if (s->a.data)
			read_part(s, 0, 0, (int64_t)s->elements, dst);
		else
			input_make(s, 0, dst);
		return;
	}
	int64_t sample = rt_order_at(&t->order, place, &absent);

	for (int64_t b = 0; b < rt_program->micro; b++) {
		bool next_absent = false;
		const int64_t next =
			b + 1 < rt_program->micro ? rt_order_at(&t->order, place + b + 1, &next_absent) : sample;

		soon(s, next);
		read_place(s, sample, absent, b, dst);
		sample = next;
		absent = next_absent;
	}
	if (s->ahead)
		ask_ahead(t, s, place);
}

void pd_input(int i, int mb, void *dst)
{
	read_input(i, pd_sample(mb), dst);
	check_outside();
}

bool rt_input_read(int i, int64_t step, int mb, void *dst)
{
	read_input(i, (step * rt_program->microbatches + mb) * rt_program->micro, dst);
	const bool good = !outside.s;

	outside.s = NULL;
	return good;
}
