/* input.c: the samples of a step, from files or made up.
 *
 * Files are sample-major: sample i lies contiguous, whatever axis of the graph's input is the
 * batch. Microbatch mb of a step reads samples (step * microbatches + mb) * micro and on, and
 * begins anew at the end: replicas need no shards of their own, a plan with other replicas reads
 * the same samples for the same microbatch. Files are mapped, not read.
 *
 * Made-up data are a function of seed, input name and sample number. There are 16 kinds of
 * sample: an input is its kind's pattern with noise, a label is a function of the kind, so that
 * a model can learn something. There are as many samples as four steps use. */
#include "rt.h"
#include "safetensors.h"
#include "files.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

typedef struct source {
	const pd_input_desc *d;
	file_array           a; /* data NULL: made up on the fly */
	int64_t              samples;
	int64_t              before, each,
		after;     /* dimensions: in front of the batch axis, per sample on it, behind it */
	size_t   elements; /* per sample */
	uint64_t key;      /* of the name */
	bool     synthetic;
	char     path[4096];
} source;

static source *sources;
static int     nsources;
static int64_t nsamples;
static bool    shuffled, any_synthetic;

/* ---- which sample comes when ---- */

/* A permutation of [0, n) per epoch without a table: a Feistel network over the next even power
 * of two, walked until it lands inside. */
static int64_t permuted(int64_t n, int64_t epoch, int64_t i)
{
	int bits = 2;

	while (((int64_t)1 << bits) < n)
		bits += 2;
	const int      half = bits / 2;
	const uint64_t mask = ((uint64_t)1 << half) - 1;
	uint64_t       x = (uint64_t)i;

	do {
		for (int round = 0; round < 4; round++) {
			const uint64_t l = x >> half, r = x & mask;

			x = r << half | ((l ^ pd_random_bits(rt_program->seed, (uint64_t)epoch,
			                                     (uint64_t)round, r)) &
			                 mask);
		}
	} while (x >= (uint64_t)n);
	return (int64_t)x;
}

static int64_t sample_at(int64_t counter)
{
	const int64_t i = counter % nsamples;

	return shuffled ? permuted(nsamples, counter / nsamples, i) : i;
}

/* ---- made-up values ---- */

static double real_value(const source *s, uint64_t sample, uint64_t cluster, uint64_t e)
{
	const uint64_t seed = rt_program->seed;

	return 3.0 * (double)pd_random_unit(seed, s->key, cluster, e) +
	       1.5 * (double)pd_random_unit(seed, s->key + 1, sample, e) - 2.25;
}

static int64_t whole_value(const source *s, uint64_t sample, uint64_t cluster, uint64_t e)
{
	const uint64_t seed = rt_program->seed,
		       range = (uint64_t)(s->d->range > 0 ? s->d->range : 2);

	if (!s->d->is_label && pd_random_bits(seed, s->key + 1, sample, e) % 4 == 0)
		return (int64_t)(pd_random_bits(seed, s->key + 2, sample, e) % range);
	return (int64_t)(pd_random_bits(seed, s->key, cluster, e) % range);
}

static void make_sample(const source *s, int64_t sample, char *to)
{
	const uint64_t cluster =
		s->d->batch_axis < 0
			? 0
			: pd_random_bits(rt_program->seed, 1, (uint64_t)sample, 0) % 16;

	for (size_t e = 0; e < s->elements; e++)
		if (s->d->dtype == PD_F32 || s->d->dtype == PD_F64)
			file_put_real(to, s->d->dtype, e,
			              real_value(s, (uint64_t)sample, cluster, e));
		else
			file_put_whole(to, s->d->dtype, e,
			               whole_value(s, (uint64_t)sample, cluster, e));
}

/* Small data sets are made once, at start. */
static void make_all(source *s, size_t size)
{
	if (s->elements * size > ((size_t)64 << 20) / (size_t)s->samples)
		return;
	char *all = rt_alloc(s->elements * size * (size_t)s->samples);

	for (int64_t i = 0; i < s->samples; i++)
		make_sample(s, i, all + (size_t)i * s->elements * size);
	s->a.data = all;
}

/* ---- opening ---- */

static bool exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* A named file: below --data under its whole name or its last part; else as named, from here or
 * the build folder. */
static void find_file(source *s, const rt_input_options *o)
{
	const char *path = s->d->path ? s->d->path : "", *slash = strrchr(path, '/'),
		   *base = slash ? slash + 1 : path;
	const char *dir[3] = { o->dir, o->dir, NULL }, *name[3] = { path, base, path };

	if (!o->dir) {
		dir[0] = NULL;
		dir[1] = o->root;
		name[1] = path;
	}
	for (int i = 0; i < 3; i++) {
		if (i == 2 && o->dir)
			break;
		snprintf(s->path, sizeof s->path, "%s%s%s", dir[i] ? dir[i] : "", dir[i] ? "/" : "",
		         name[i]);
		if (exists(s->path))
			return;
	}
	rt_fail(RT_ERROR, "R201", "input '%s': no file '%s' %s%s", s->d->name, path,
	        o->dir ? "in " : "here or in the build folder; ",
	        o->dir ? o->dir : "say --data DIR");
}

/* With --data, inputs that have no file in the plan are read from DIR/NAME.npy, .idx or .bin. */
static const char *find_by_name(source *s, const rt_input_options *o)
{
	static const char *const kinds[] = { "npy", "idx", "raw" }, *const ends[] = { "npy", "idx",
		                                                                      "bin" };

	for (int i = 0; i < 3; i++) {
		snprintf(s->path, sizeof s->path, "%s/%s.%s", o->dir, s->d->name, ends[i]);
		if (exists(s->path))
			return kinds[i];
	}
	rt_fail(RT_ERROR, "R201", "input '%s': no file %s.npy, .idx or .bin in %s", s->d->name,
	        s->d->name, o->dir);
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

static void check_file(source *s)
{
	const pd_input_desc *d = s->d;
	const bool           real = d->dtype == PD_F32 || d->dtype == PD_F64;
	int64_t              total = 1;

	for (int i = 0; i < s->a.rank; i++)
		total *= s->a.dim[i];
	s->samples = s->elements ? total / (int64_t)s->elements : 0;
	if (s->samples == 0 || total % (int64_t)s->elements ||
	    (s->each == 1 && s->a.rank > 0 && d->batch_axis >= 0 && strcmp(d->kind, "raw") &&
	     s->a.dim[0] != s->samples))
		rt_fail(RT_ERROR, "R204",
		        "%s: %lld samples of %lld elements; input '%s' wants %zu elements per sample",
		        s->path, (long long)(s->a.rank ? s->a.dim[0] : 1),
		        (long long)(s->a.rank && s->a.dim[0] ? total / s->a.dim[0] : total),
		        d->name, s->elements);
	if (!real && (s->a.dtype == PD_F32 || s->a.dtype == PD_F64))
		rt_fail(RT_ERROR, "R204", "%s holds real numbers; input '%s' wants whole ones",
		        s->path, d->name);
}

static void open_source(source *s, const pd_program *p, const rt_input_options *o)
{
	const char  *kind = s->d->kind ? s->d->kind : "synthetic", *why;
	const size_t size = st_size(st_dtype((int)s->d->dtype));

	geometry(s, p->micro);
	if (!strcmp(kind, "synthetic")) {
		if (o->dir) {
			kind = find_by_name(s, o);
		} else {
			s->synthetic = any_synthetic = true;
			s->samples = s->d->batch_axis < 0 ? 1 : 4 * p->micro * p->microbatches;
			s->a.dtype = s->d->dtype;
			make_all(s, size);
			return;
		}
	} else {
		find_file(s, o);
	}
	if (!file_open(&s->a, s->path, kind, s->d->dtype, &why))
		rt_fail(RT_ERROR, "R202", "%s: %s", s->path, why);
	check_file(s);
}

void rt_input_open(const pd_program *p, const rt_input_options *o)
{
	const source *first = NULL;

	nsources = p->ninputs;
	sources = rt_alloc((size_t)nsources * sizeof *sources + 1);
	shuffled = o->shuffle;
	for (int i = 0; i < nsources; i++) {
		source *s = &sources[i];

		s->d = &p->inputs[i];
		open_source(s, p, o);
		if (s->d->batch_axis < 0)
			continue;
		if (first && s->samples != first->samples)
			rt_fail(RT_ERROR, "R205",
			        "input '%s' has %lld samples, input '%s' has %lld", first->d->name,
			        (long long)first->samples, s->d->name, (long long)s->samples);
		first = s;
	}
	nsamples = first ? first->samples : 1;
	if (o->samples > nsamples)
		rt_fail(RT_ERROR, "R206", "--samples %lld: there are only %lld",
		        (long long)o->samples, (long long)nsamples);
	if (o->samples > 0)
		nsamples = o->samples;
}

int64_t rt_input_samples(void)
{
	return nsources ? nsamples : 0;
}

bool rt_input_synthetic(void)
{
	return any_synthetic;
}

/* ---- reading ---- */

static _Noreturn void out_of_range(const source *s, int64_t sample, size_t e, int64_t v)
{
	rt_fail(RT_ERROR, "R203",
	        "%s: sample %lld, element %zu is %lld; input '%s' takes 0 to %lld",
	        s->synthetic ? "data" : s->path, (long long)sample, e, (long long)v, s->d->name,
	        (long long)s->d->range - 1);
}

static void check_range(const source *s, int64_t sample, size_t first, const char *values,
                        int64_t n)
{
	const pd_input_desc *d = s->d;

	if (d->range <= 0 || (d->dtype != PD_I64 && d->dtype != PD_I32))
		return;
	for (int64_t i = 0; i < n; i++) {
		const int64_t v = d->dtype == PD_I64 ? ((const int64_t *)(const void *)values)[i]
		                                     : ((const int32_t *)(const void *)values)[i];

		if ((v < 0 || v >= d->range) && v != d->ignore_index)
			out_of_range(s, sample, first + (size_t)i, v);
	}
}

/* n elements of a sample from its element `first` on. */
static void read_part(const source *s, int64_t sample, size_t first, int64_t n, char *to)
{
	file_read(&s->a, (size_t)sample * s->elements + first, (size_t)n, s->d->dtype, to);
	check_range(s, sample, first, to, n);
}

/* Data too large to keep: made one by one. A batch axis that is not the first needs the sample
 * whole. */
static void make_into(const source *s, int64_t sample, int64_t b, int64_t micro, char *to)
{
	const size_t  size = st_size(st_dtype((int)s->d->dtype));
	const int64_t run = s->each * s->after;

	if (s->before == 1) {
		make_sample(s, sample, to + (size_t)(b * run) * size);
		return;
	}
	const uint64_t cluster = pd_random_bits(rt_program->seed, 1, (uint64_t)sample, 0) % 16;

	for (size_t e = 0; e < s->elements; e++) {
		const size_t at =
			((size_t)(e / (size_t)run) * (size_t)micro + (size_t)b) * (size_t)run +
			e % (size_t)run;

		if (s->d->dtype == PD_F32 || s->d->dtype == PD_F64)
			file_put_real(to, s->d->dtype, at,
			              real_value(s, (uint64_t)sample, cluster, e));
		else
			file_put_whole(to, s->d->dtype, at,
			               whole_value(s, (uint64_t)sample, cluster, e));
	}
}

void pd_input(int i, int mb, void *dst)
{
	const source *s = &sources[i];
	const size_t  size = st_size(st_dtype((int)s->d->dtype));
	const int64_t micro = rt_program->micro, run = s->each * s->after;

	if (s->d->batch_axis < 0) {
		if (s->a.data)
			read_part(s, 0, 0, (int64_t)s->elements, dst);
		else
			make_sample(s, 0, dst);
		return;
	}
	for (int64_t b = 0; b < micro; b++) {
		const int64_t sample = sample_at(pd_sample(mb) + b);

		if (!s->a.data) {
			make_into(s, sample, b, micro, dst);
			continue;
		}
		for (int64_t k = 0; k < s->before; k++)
			read_part(s, sample, (size_t)(k * run), run,
			          (char *)dst + (size_t)((k * micro + b) * run) * size);
	}
}
