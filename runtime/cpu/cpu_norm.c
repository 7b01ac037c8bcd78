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

/* ---- plain: one channel is rows of `area` elements, one per sample, `step` apart ---- */

static void forward_channel(
	const bn *b, int c, float *y, float *mean, float *var, const float *x, float scale, float bias)
{
	const size_t step = (size_t)b->c * b->area, at = (size_t)c * b->area, area = b->area;
	const double count = (double)b->n * (double)area;
	double sum = 0, squares = 0;

	for (int i = 0; i < b->n; i++) {
		const float *row = x + at + (size_t)i * step;
		float s = 0;

#pragma omp simd reduction(+ : s)
		for (size_t p = 0; p < area; p++)
			s += row[p];
		sum += (double)s;
	}
	const float m = (float)(sum / count);

	for (int i = 0; i < b->n; i++) {
		const float *row = x + at + (size_t)i * step;
		float s = 0;

#pragma omp simd reduction(+ : s)
		for (size_t p = 0; p < area; p++)
			s += (row[p] - m) * (row[p] - m);
		squares += (double)s;
	}
	*mean = m;
	*var = (float)(squares / count);
	const float a = scale * (float)(1 / sqrt(squares / count + (double)b->eps)), k = bias - m * a;

	for (int i = 0; i < b->n; i++) {
		const float *row = x + at + (size_t)i * step;
		float *to = y + at + (size_t)i * step;

#pragma omp simd
		for (size_t p = 0; p < area; p++)
			to[p] = row[p] * a + k;
	}
}

static void backward_channel(const bn *b, int c, float *dx, float *dscale, float *dbias, const float *dy,
	const float *x, float m, float var, float scale)
{
	const size_t step = (size_t)b->c * b->area, at = (size_t)c * b->area, area = b->area;
	const double count = (double)b->n * (double)area, r = 1 / sqrt((double)var + (double)b->eps);
	double along = 0, sum = 0;

	for (int i = 0; i < b->n; i++) {
		const float *row = x + at + (size_t)i * step, *d = dy + at + (size_t)i * step;
		float s = 0, t = 0;

#pragma omp simd reduction(+ : s, t)
		for (size_t p = 0; p < area; p++) {
			s += d[p] * (row[p] - m);
			t += d[p];
		}
		along += (double)s;
		sum += (double)t;
	}
	*dscale = (float)(along * r);
	*dbias = (float)sum;
	const float a = (float)((double)scale * r), k = (float)(along * r * r / count), t = (float)(sum / count);

	for (int i = 0; i < b->n; i++) {
		const float *row = x + at + (size_t)i * step, *d = dy + at + (size_t)i * step;
		float *to = dx + at + (size_t)i * step;

#pragma omp simd
		for (size_t p = 0; p < area; p++)
			to[p] = a * (d[p] - t - (row[p] - m) * k);
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
static void sum_rows(const bn *b, rows r, const float *x, const float *mean)
{
	const size_t c = (size_t)b->c;

	memset(r.s, 0, c * sizeof *r.s);
	for (size_t i = r.first; i < r.end; i += RUN) {
		memset(r.u, 0, c * sizeof *r.u);
		for (size_t k = i; k < r.end && k < i + RUN; k++) {
			const float *row = x + k * c;
			float *u = r.u;

			if (mean) {
#pragma omp simd
				for (size_t j = 0; j < c; j++)
					u[j] += (row[j] - mean[j]) * (row[j] - mean[j]);
			} else {
#pragma omp simd
				for (size_t j = 0; j < c; j++)
					u[j] += row[j];
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

static void forward_rows(const bn *b, float *y, float *mean, float *var, const float *x, const float *scale,
	const float *bias, void *scratch)
{
	const size_t c = (size_t)b->c;
	const double count = (double)b->n * (double)b->area;
	float *a = rows_of(b, 0, scratch).u, *t = rows_of(b, 1, scratch).u;

#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int k = 0; k < CHUNKS; k++)
		sum_rows(b, rows_of(b, k, scratch), x, NULL);
	for (size_t j = 0; j < c; j++)
		mean[j] = (float)(total(b, scratch, j, 0) / count);
#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int k = 0; k < CHUNKS; k++)
		sum_rows(b, rows_of(b, k, scratch), x, mean);
	for (size_t j = 0; j < c; j++) {
		const double v = total(b, scratch, j, 0) / count;

		var[j] = (float)v;
		a[j] = scale[j] * (float)(1 / sqrt(v + (double)b->eps));
		t[j] = bias[j] - mean[j] * a[j];
	}
#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int k = 0; k < CHUNKS; k++) {
		const rows r = rows_of(b, k, scratch);

		for (size_t i = r.first * c; i < r.end * c; i += c) {
#pragma omp simd
			for (size_t j = 0; j < c; j++)
				y[i + j] = x[i + j] * a[j] + t[j];
		}
	}
}

/* s: sum of dy (x - mean); t: sum of dy */
static void sum_gradients(const bn *b, rows r, const float *dy, const float *x, const float *mean)
{
	const size_t c = (size_t)b->c;

	memset(r.s, 0, 2 * c * sizeof *r.s);
	for (size_t i = r.first; i < r.end; i += RUN) {
		float *u = r.u, *v = r.v;

		memset(u, 0, 2 * c * sizeof *u);
		for (size_t k = i; k < r.end && k < i + RUN; k++) {
			const float *row = x + k * c, *d = dy + k * c;

#pragma omp simd
			for (size_t j = 0; j < c; j++) {
				u[j] += d[j] * (row[j] - mean[j]);
				v[j] += d[j];
			}
		}
		for (size_t j = 0; j < 2 * c; j++)
			r.s[j] += (double)u[j];
	}
}

static void backward_rows(const bn *b, float *dx, float *dscale, float *dbias, const float *dy, const float *x,
	const float *mean, const float *var, const float *scale, void *scratch)
{
	const size_t c = (size_t)b->c;
	const double count = (double)b->n * (double)b->area;
	float *a = rows_of(b, 0, scratch).u, *q = rows_of(b, 1, scratch).u, *t = rows_of(b, 2, scratch).u;

#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int k = 0; k < CHUNKS; k++)
		sum_gradients(b, rows_of(b, k, scratch), dy, x, mean);
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
	for (int k = 0; k < CHUNKS; k++) {
		const rows r = rows_of(b, k, scratch);

		for (size_t i = r.first * c; i < r.end * c; i += c) {
#pragma omp simd
			for (size_t j = 0; j < c; j++)
				dx[i + j] = a[j] * (dy[i + j] - t[j] - (x[i + j] - mean[j]) * q[j]);
		}
	}
}

static void forward(const bn *b, float *y, float *mean, float *var, const float *x, const float *scale,
	const float *bias, void *scratch)
{
	if (b->nhwc) {
		forward_rows(b, y, mean, var, x, scale, bias, scratch);
		return;
	}
#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int c = 0; c < b->c; c++)
		forward_channel(b, c, y, &mean[c], &var[c], x, scale[c], bias[c]);
}

static void evaluate(const bn *b, float *y, const float *x, const float *scale, const float *bias, const float *mean,
	const float *var)
{
	const size_t c = (size_t)b->c, all = (size_t)b->n * (b->nhwc ? b->area : c), run = b->nhwc ? c : b->area;

#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (size_t r = 0; r < all; r++) {
		const float *from = x + r * run;
		float *to = y + r * run;

		if (b->nhwc) {
#pragma omp simd
			for (size_t i = 0; i < c; i++)
				to[i] = (from[i] - mean[i]) * (scale[i] / sqrtf(var[i] + b->eps)) + bias[i];
			continue;
		}
		const size_t k = r % c;
		const float a = scale[k] / sqrtf(var[k] + b->eps);

#pragma omp simd
		for (size_t i = 0; i < run; i++)
			to[i] = (from[i] - mean[k]) * a + bias[k];
	}
}

static void backward(const bn *b, float *dx, float *dscale, float *dbias, const float *dy, const float *x,
	const float *mean, const float *var, const float *scale, void *scratch)
{
	if (b->nhwc) {
		backward_rows(b, dx, dscale, dbias, dy, x, mean, var, scale, scratch);
		return;
	}
#pragma omp parallel for schedule(static) if (worth_threads(b))
	for (int c = 0; c < b->c; c++)
		backward_channel(b, c, dx, &dscale[c], &dbias[c], dy, x, mean[c], var[c], scale[c]);
}

/* ---- images of 16-bit floats are computed on in f32 ---- */

static bool narrow(const bn *b) { return b->type == PD_BF16 || b->type == PD_F16; }

static size_t elements(const bn *b) { return (size_t)b->n * (size_t)b->c * b->area; }

static const float *wide(const bn *b, int which, const void *x)
{
	return narrow(b) ? pd_widen(which, b->type, x, elements(b)) : x;
}

static float *room(const bn *b, void *y) { return narrow(b) ? pd_room_f32(0, elements(b)) : y; }

static void give(const bn *b, void *y, const float *from)
{
	if (narrow(b))
		pd_narrow(b->type, y, from, elements(b));
}

void pd_bn_forward(const pd_bn *o, void *y, float *mean, float *var, const void *x, const float *scale,
	const float *bias, void *scratch)
{
	const bn *b = o->impl;
	float *to = room(b, y);

	forward(b, to, mean, var, wide(b, 1, x), scale, bias, scratch);
	give(b, y, to);
}

void pd_bn_evaluate(const pd_bn *o, void *y, const void *x, const float *scale, const float *bias, const float *mean,
	const float *var)
{
	const bn *b = o->impl;
	float *to = room(b, y);

	evaluate(b, to, wide(b, 1, x), scale, bias, mean, var);
	give(b, y, to);
}

void pd_bn_backward(const pd_bn *o, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	const float *mean, const float *var, const float *scale, void *scratch)
{
	const bn *b = o->impl;
	float *to = room(b, dx);

	backward(b, to, dscale, dbias, wide(b, 1, dy), wide(b, 2, x), mean, var, scale, scratch);
	give(b, dx, to);
}
