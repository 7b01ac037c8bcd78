/* synthetic.c: samples where there are no files.
 *
 * They are a function of seed, input name and sample number. There are 16 kinds of sample: an input is its
 * kind's pattern with noise, a label is a function of the kind, so that a model can learn something. */
#include "input.h"
#include "safetensors.h"

static double real_value(const source *s, uint64_t sample, uint64_t cluster, uint64_t e)
{
	const uint64_t seed = rt_program->seed;

	return 3.0 * (double)pd_random_unit(seed, s->key, cluster, e) +
	       1.5 * (double)pd_random_unit(seed, s->key + 1, sample, e) - 2.25;
}

static int64_t whole_value(const source *s, uint64_t sample, uint64_t cluster, uint64_t e)
{
	const uint64_t seed = rt_program->seed, range = (uint64_t)(s->d->range > 0 ? s->d->range : 2);

	if (!s->d->is_label && pd_random_bits(seed, s->key + 1, sample, e) % 4 == 0)
		return (int64_t)(pd_random_bits(seed, s->key + 2, sample, e) % range);
	return (int64_t)(pd_random_bits(seed, s->key, cluster, e) % range);
}

static void put_element(const source *s, uint64_t sample, uint64_t cluster, size_t e, char *to, size_t at)
{
	if (s->d->dtype == PD_F32 || s->d->dtype == PD_F64)
		file_put_real(to, s->d->dtype, at, real_value(s, sample, cluster, e));
	else
		file_put_whole(to, s->d->dtype, at, whole_value(s, sample, cluster, e));
}

static uint64_t cluster_of(const source *s, uint64_t sample)
{
	return s->d->batch_axis < 0 ? 0 : pd_random_bits(rt_program->seed, 1, sample, 0) % 16;
}

void input_make(const source *s, int64_t sample, char *to)
{
	const uint64_t n = (uint64_t)(sample + s->first), cluster = cluster_of(s, n);

	for (size_t e = 0; e < s->elements; e++)
		put_element(s, n, cluster, e, to, e);
}

void input_make_all(source *s)
{
	const size_t size = st_size(st_dtype((int)s->d->dtype));

	if (s->elements * size > ((size_t)64 << 20) / (size_t)s->samples)
		return;
	char *all = rt_alloc(s->elements * size * (size_t)s->samples);

	for (int64_t i = 0; i < s->samples; i++)
		input_make(s, i, all + (size_t)i * s->elements * size);
	s->a.data = all;
}

/* A batch axis that is not the first needs the sample whole. */
void input_make_into(const source *s, int64_t sample, int64_t b, int64_t micro, char *to)
{
	const size_t size = st_size(st_dtype((int)s->d->dtype)), run = (size_t)(s->each * s->after);
	const uint64_t n = (uint64_t)(sample + s->first), cluster = cluster_of(s, n);

	if (s->before == 1) {
		input_make(s, sample, to + (size_t)b * run * size);
		return;
	}
	for (size_t e = 0; e < s->elements; e++)
		put_element(s, n, cluster, e, to, (e / run * (size_t)micro + (size_t)b) * run + e % run);
}
