/* cpu_norm.c: batch normalization in own loops: oneDNN's is several times slower on plain
 * activations, and sums in f32 throughout. */
#include "cpu.h"

/* ---- batch normalization ----
 *
 * Sums are taken in f32 over short runs and in f64 over the runs, so that statistics of many
 * elements are as exact as f32 inputs allow; runs and their order depend on shapes alone, so the
 * bits are the same for any number of threads. */

enum { CHUNKS = 16, RUN = 32 }; /* channels-last: parts of the rows, rows of one f32 sum */

typedef struct bn {
	int n, c, nhwc;
	size_t area;
	float eps;
	pd_dtype type;
} bn;

static bn bn_of(const pd_bn_desc *d)
{
	bn b = { .n = d->n, .c = d->c, .nhwc = d->nhwc, .area = 1, .eps = d->eps, .type = d->type };

	for (int i = 0; i < d->nd; i++)
		b.area *= (size_t)d->sp[i];
	return b;
}

/* Two sums in f64 and two runs in f32, per chunk and channel. */
size_t pd_bn_scratch(const pd_bn_desc *d)
{
	return d->nhwc ? cpu_round((size_t)CHUNKS * (size_t)d->c * 2 * (sizeof(double) + sizeof(float))) : 0;
}

void pd_bn_init(pd_bn *o, const pd_bn_desc *d)
{
	bn *b = o->impl = cpu_alloc(sizeof *b);

	*b = bn_of(d);
}

static bool worth_threads(const bn *b) { return (size_t)b->n * (size_t)b->c * b->area > 32768; }

/* Elements of 16 bits are widened where they are read and rounded where they are written: each loop over elements is a function whose
 * last argument is their type, with one copy of it per type. */
#define BY_TYPE(b, f, ...) \
	((b)->type == PD_BF16         ? f(__VA_ARGS__, PD_BF16) \
		: (b)->type == PD_F16 ? f(__VA_ARGS__, PD_F16) \
				      : f(__VA_ARGS__, PD_F32))
#define COPIED static inline __attribute__((always_inline))

COPIED float at(const void *x, size_t i, pd_dtype t)
{
	return t == PD_BF16  ? pd_from_bf16(((const uint16_t *)x)[i])
	       : t == PD_F16 ? pd_from_f16(((const uint16_t *)x)[i])
	                     : ((const float *)x)[i];
}

COPIED void put(void *y, size_t i, float v, pd_dtype t)
{
	if (t == PD_F32)
		((float *)y)[i] = v;
	else
		((uint16_t *)y)[i] = t == PD_BF16 ? pd_to_bf16(v) : pd_to_f16(v);
}

/* ---- plain: one channel is rows of `area` elements, one per sample, `step` apart ---- */

COPIED void forward_channel(
	const bn *b, int c, void *y, float *mean, float *var, const void *x, float scale, float bias, pd_dtype type)
{
	const size_t step = (size_t)b->c * b->area, first = (size_t)c * b->area, area = b->area;
	const double count = (double)b->n * (double)area;
	double sum = 0, squares = 0;

	for (int i = 0; i < b->n; i++) {
		const size_t row = first + (size_t)i * step;
		float s = 0;

#pragma omp simd reduction(+ : s)
		for (size_t p = 0; p < area; p++)
			s += at(x, row + p, type);
		sum += (double)s;
	}
	const float m = (float)(sum / count);

	for (int i = 0; i < b->n; i++) {
		const size_t row = first + (size_t)i * step;
		float s = 0;

#pragma omp simd reduction(+ : s)
		for (size_t p = 0; p < area; p++) {
			const float off = at(x, row + p, type) - m;
			s += off * off;
		}
		squares += (double)s;
	}
	*mean = m;
	*var = (float)(squares / count);
	const float a = scale * (float)(1 / sqrt(squares / count + (double)b->eps)), k = bias - m * a;

	for (int i = 0; i < b->n; i++) {
		const size_t row = first + (size_t)i * step;

#pragma omp simd
		for (size_t p = 0; p < area; p++)
			put(y, row + p, at(x, row + p, type) * a + k, type);
	}
}

COPIED void backward_channel(const bn *b, int c, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	float m, float var, float scale, pd_dtype type)
{
	const size_t step = (size_t)b->c * b->area, first = (size_t)c * b->area, area = b->area;
	const double count = (double)b->n * (double)area, r = 1 / sqrt((double)var + (double)b->eps);
	double along = 0, sum = 0;

	for (int i = 0; i < b->n; i++) {
		const size_t row = first + (size_t)i * step;
		float s = 0, t = 0;

#pragma omp simd reduction(+ : s, t)
		for (size_t p = 0; p < area; p++) {
			const float d = at(dy, row + p, type);
			s += d * (at(x, row + p, type) - m);
			t += d;
		}
		along += (double)s;
		sum += (double)t;
	}
	*dscale = (float)(along * r);
	*dbias = (float)sum;
	const float a = (float)((double)scale * r), k = (float)(along * r * r / count), t = (float)(sum / count);

	for (int i = 0; i < b->n; i++) {
		const size_t row = first + (size_t)i * step;

#pragma omp simd
		for (size_t p = 0; p < area; p++)
			put(dx, row + p, a * (at(dy, row + p, type) - t - (at(x, row + p, type) - m) * k), type);
	}
}

/* ---- channels-last: a row holds all channels ---- */

typedef struct rows {
	size_t first, end;
	double *s, *t;
	float *u, *v;
} rows;

static rows rows_of(const bn *b, int chunk, void *scratch)
{
	const size_t all = (size_t)b->n * b->area, c = (size_t)b->c;
	double *d = (double *)scratch + (size_t)chunk * 2 * c;
	float *f = (float *)((double *)scratch + (size_t)CHUNKS * 2 * c) + (size_t)chunk * 2 * c;

	return (rows){ all * (size_t)chunk / CHUNKS, all * ((size_t)chunk + 1) / CHUNKS, d, d + c, f, f + c };
}

/* s: sum of x, or of (x - mean)^2 where mean is given */
COPIED void sum_rows(const bn *b, rows r, const void *x, const float *mean, pd_dtype type)
{
	const size_t c = (size_t)b->c;

	memset(r.s, 0, c * sizeof *r.s);
	for (size_t i = r.first; i < r.end; i += RUN) {
		memset(r.u, 0, c * sizeof *r.u);
		for (size_t k = i; k < r.end && k < i + RUN; k++) {
			const size_t row = k * c;
			float *u = r.u;

			if (mean) {
#pragma omp simd
				for (size_t j = 0; j < c; j++) {
					const float off = at(x, row + j, type) - mean[j];
					u[j] += off * off;
				}
			} else {
#pragma omp simd
				for (size_t j = 0; j < c; j++)
					u[j] += at(x, row + j, type);
			}
		}
		for (size_t j = 0; j < c; j++)
			r.s[j] += (double)r.u[j];
	}
}

/* The chunks' sums of channel j, in order. */
static double total(const bn *b, const void *scratch, size_t j, int second)
{
	const size_t c = (size_t)b->c;
	const double *d = (const double *)scratch + (second ? c : 0) + j;
	double s = 0;

	for (size_t k = 0; k < CHUNKS; k++)
		s += d[k * 2 * c];
	return s;
}

COPIED void scale_rows(const bn *b, rows r, void *y, const void *x, const float *a, const float *t, pd_dtype type)
{
	const size_t c = (size_t)b->c;

	for (size_t i = r.first * c; i < r.end * c; i += c) {
#pragma omp simd
		for (size_t j = 0; j < c; j++)
			put(y, i + j, at(x, i + j, type) * a[j] + t[j], type);
	}
}

static void forward_rows(const bn *b, void *y, float *mean, float *var, const void *x, const float *scale,
	const float *bias, void *scratch)
{
	const size_t c = (size_t)b->c;
	const double count = (double)b->n * (double)b->area;
	float *a = rows_of(b, 0, scratch).u, *t = rows_of(b, 1, scratch).u;

#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int k = 0; k < CHUNKS; k++)
		BY_TYPE(b, sum_rows, b, rows_of(b, k, scratch), x, NULL);
	for (size_t j = 0; j < c; j++)
		mean[j] = (float)(total(b, scratch, j, 0) / count);
#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int k = 0; k < CHUNKS; k++)
		BY_TYPE(b, sum_rows, b, rows_of(b, k, scratch), x, mean);
	for (size_t j = 0; j < c; j++) {
		const double v = total(b, scratch, j, 0) / count;

		var[j] = (float)v;
		a[j] = scale[j] * (float)(1 / sqrt(v + (double)b->eps));
		t[j] = bias[j] - mean[j] * a[j];
	}
#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int k = 0; k < CHUNKS; k++)
		BY_TYPE(b, scale_rows, b, rows_of(b, k, scratch), y, x, a, t);
}

/* s: sum of dy (x - mean); t: sum of dy */
COPIED void sum_gradients(const bn *b, rows r, const void *dy, const void *x, const float *mean, pd_dtype type)
{
	const size_t c = (size_t)b->c;

	memset(r.s, 0, 2 * c * sizeof *r.s);
	for (size_t i = r.first; i < r.end; i += RUN) {
		float *u = r.u, *v = r.v;

		memset(u, 0, 2 * c * sizeof *u);
		for (size_t k = i; k < r.end && k < i + RUN; k++) {
			const size_t row = k * c;

#pragma omp simd
			for (size_t j = 0; j < c; j++) {
				const float d = at(dy, row + j, type);
				u[j] += d * (at(x, row + j, type) - mean[j]);
				v[j] += d;
			}
		}
		for (size_t j = 0; j < 2 * c; j++)
			r.s[j] += (double)u[j];
	}
}

/* dx = a (dy - t - (x - mean) q) */
COPIED void gradient_rows(const bn *b, rows r, void *dx, const void *dy, const void *x, const float *mean,
	const float *a, const float *q, const float *t, pd_dtype type)
{
	const size_t c = (size_t)b->c;

	for (size_t i = r.first * c; i < r.end * c; i += c) {
#pragma omp simd
		for (size_t j = 0; j < c; j++)
			put(dx, i + j, a[j] * (at(dy, i + j, type) - t[j] - (at(x, i + j, type) - mean[j]) * q[j]),
				type);
	}
}

static void backward_rows(const bn *b, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	const float *mean, const float *var, const float *scale, void *scratch)
{
	const size_t c = (size_t)b->c;
	const double count = (double)b->n * (double)b->area;
	float *a = rows_of(b, 0, scratch).u, *q = rows_of(b, 1, scratch).u, *t = rows_of(b, 2, scratch).u;

#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int k = 0; k < CHUNKS; k++)
		BY_TYPE(b, sum_gradients, b, rows_of(b, k, scratch), dy, x, mean);
	for (size_t j = 0; j < c; j++) {
		const double r = 1 / sqrt((double)var[j] + (double)b->eps), along = total(b, scratch, j, 0),
			     sum = total(b, scratch, j, 1);

		dscale[j] = (float)(along * r);
		dbias[j] = (float)sum;
		a[j] = (float)((double)scale[j] * r);
		q[j] = (float)(along * r * r / count);
		t[j] = (float)(sum / count);
	}
#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int k = 0; k < CHUNKS; k++)
		BY_TYPE(b, gradient_rows, b, rows_of(b, k, scratch), dx, dy, x, mean, a, q, t);
}

/* ---- what programs call ---- */

void pd_bn_forward(const pd_bn *o, void *y, float *mean, float *var, const void *x, const float *scale,
	const float *bias, void *scratch)
{
	const bn *b = o->impl;

	if (b->nhwc) {
		forward_rows(b, y, mean, var, x, scale, bias, scratch);
		return;
	}
#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int c = 0; c < b->c; c++)
		BY_TYPE(b, forward_channel, b, c, y, &mean[c], &var[c], x, scale[c], bias[c]);
}

/* Row r: all channels of a position, or the positions of a sample's channel r mod c. */
COPIED void evaluate_row(const bn *b, size_t r, void *y, const void *x, const float *scale, const float *bias,
	const float *mean, const float *var, pd_dtype type)
{
	const size_t c = (size_t)b->c, run = b->nhwc ? c : b->area, first = r * run;

	if (b->nhwc) {
#pragma omp simd
		for (size_t i = 0; i < c; i++)
			put(y, first + i,
				(at(x, first + i, type) - mean[i]) * (scale[i] / sqrtf(var[i] + b->eps)) + bias[i],
				type);
		return;
	}
	const size_t k = r % c;
	const float a = scale[k] / sqrtf(var[k] + b->eps);

#pragma omp simd
	for (size_t i = 0; i < run; i++)
		put(y, first + i, (at(x, first + i, type) - mean[k]) * a + bias[k], type);
}

void pd_bn_evaluate(const pd_bn *o, void *y, const void *x, const float *scale, const float *bias, const float *mean,
	const float *var)
{
	const bn *b = o->impl;
	const size_t all = (size_t)b->n * (b->nhwc ? b->area : (size_t)b->c);

#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (size_t r = 0; r < all; r++)
		BY_TYPE(b, evaluate_row, b, r, y, x, scale, bias, mean, var);
}

void pd_bn_backward(const pd_bn *o, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	const float *mean, const float *var, const float *scale, void *scratch)
{
	const bn *b = o->impl;

	if (b->nhwc) {
		backward_rows(b, dx, dscale, dbias, dy, x, mean, var, scale, scratch);
		return;
	}
#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int c = 0; c < b->c; c++)
		BY_TYPE(b, backward_channel, b, c, dx, &dscale[c], &dbias[c], dy, x, mean[c], var[c], scale[c]);
}
