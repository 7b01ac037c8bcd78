/* onednn.c: the wrappers of cpu*.c against loops: convolution in three directions, batch normalization,
 * products; plain and channels-last, 1 to 3 axes, groups, dilation, uneven pads; in f32 and in floats of 16 bits. */
#include "test.h"
#include "cpu.h"

enum { MOST = 1 << 17 };

static void *scratch;
static size_t scratch_size;

static float *floats(size_t n) { return aligned_alloc(64, (n * sizeof(float) + 127) / 64 * 64); }

static float *filled(size_t n, int seed)
{
	float *a = floats(n);

	for (size_t i = 0; i < n; i++)
		a[i] = number(seed, (int)i);
	return a;
}

static void *room(size_t n)
{
	CHECK(n != SIZE_MAX, "oneDNN has no such operation");
	if (n > scratch_size && n != SIZE_MAX) {
		free(scratch);
		scratch_size = n;
		scratch = aligned_alloc(64, (n + 63) / 64 * 64);
	}
	return scratch;
}

enum { ZONE = 64 };

/* Scratch of its own, filled, and behind it what must stay. */
static void *fenced(size_t n)
{
	CHECK(n != SIZE_MAX, "oneDNN has no such operation");
	char *p = aligned_alloc(64, (n + ZONE + 63) / 64 * 64);

	memset(p, 0xFF, n + ZONE);
	return p;
}

static void fence_stands(const char *what, void *in, size_t n)
{
	const unsigned char *behind = (unsigned char *)in + n;
	bool whole = true;

	for (int i = 0; i < ZONE; i++)
		whole &= behind[i] == 0xFF;
	CHECK(whole, "%s: writes behind its scratch", what);
	free(in);
}

/* What one rounding to t moves a number by, at most. */
static double rounds_by(pd_dtype t) { return t == PD_BF16 ? 0x1p-8 : t == PD_F16 ? 0x1p-11 : 0; }

static void compare_as(pd_dtype t, const char *what, const float *got, const double *want, size_t n)
{
	double worst = 0, most = 1e-3;

	for (size_t i = 0; i < n; i++) {
		worst = fmax(worst, fabs((double)got[i] - want[i]) - rounds_by(t) * fabs(want[i]));
		most = fmax(most, fabs(want[i]));
		if (!isfinite(got[i]))
			worst = INFINITY;
	}
	CHECK(worst <= 2e-5 * most, "%s: off by %g of %g", what, worst, most);
}

static void compare(const char *what, const float *got, const double *want, size_t n)
{
	compare_as(PD_F32, what, got, want, n);
}

/* The numbers of a as those of type t, and a as they are: rounded. */
static void *as_type(pd_dtype t, float *a, size_t n)
{
	uint16_t *h = aligned_alloc(64, (n * sizeof *h + 127) / 64 * 64);

	if (t == PD_F32) {
		free(h);
		return a;
	}
	pd_narrow(t, h, a, n);
	memcpy(a, pd_widen(0, t, h, n), n * sizeof *a);
	return h;
}

/* Of type t, in f32. */
static const float *in_f32(pd_dtype t, const void *a, size_t n) { return t == PD_F32 ? a : pd_widen(0, t, a, n); }

static size_t product(const int *a, int n)
{
	size_t p = 1;

	for (int i = 0; i < n; i++)
		p *= (size_t)a[i];
	return p;
}

/* Place of (n, c, position) in an activation. */
static size_t at(int n, int c, size_t pos, int channels, size_t area, int nhwc)
{
	return nhwc ? ((size_t)n * area + pos) * (size_t)channels + (size_t)c
	            : ((size_t)n * (size_t)channels + (size_t)c) * area + pos;
}

/* Input position of kernel element k at output position o; false: in the padding. */
static bool place(int nd, const int *in, const int *out, const int *kernel, const int *stride, const int *pad,
	const int *dilation, size_t o, size_t k, size_t *pos)
{
	size_t unit = 1;

	*pos = 0;
	for (int i = nd - 1; i >= 0; i--) {
		const int oi = (int)(o % (size_t)out[i]), ki = (int)(k % (size_t)kernel[i]);
		const int x = oi * stride[i] - pad[i] + ki * dilation[i];

		o /= (size_t)out[i];
		k /= (size_t)kernel[i];
		if (x < 0 || x >= in[i])
			return false;
		*pos += (size_t)x * unit;
		unit *= (size_t)in[i];
	}
	return true;
}

/* ---- convolution ---- */

static void conv_loops(const pd_conv_desc *d, const float *x, const float *w, const float *b, const float *dy,
	double *y, double *dx, double *dw, double *db)
{
	const size_t ia = product(d->in, d->nd), oa = product(d->out, d->nd), ka = product(d->kernel, d->nd);
	const int og = d->oc / d->groups, cg = d->c / d->groups;

	for (int n = 0; n < d->n; n++)
		for (int oc = 0; oc < d->oc; oc++)
			for (size_t o = 0; o < oa; o++) {
				const size_t yo = at(n, oc, o, d->oc, oa, d->nhwc);

				y[yo] += d->bias ? (double)b[oc] : 0;
				db[oc] += (double)dy[yo];
				for (int c = 0; c < cg; c++)
					for (size_t k = 0, pos; k < ka; k++) {
						if (!place(d->nd, d->in, d->out, d->kernel, d->stride, d->pad_begin,
							    d->dilation, o, k, &pos))
							continue;
						const size_t xo = at(n, oc / og * cg + c, pos, d->c, ia, d->nhwc);
						const size_t wo = ((size_t)oc * (size_t)cg + (size_t)c) * ka + k;

						y[yo] += (double)x[xo] * (double)w[wo];
						dx[xo] += (double)dy[yo] * (double)w[wo];
						dw[wo] += (double)dy[yo] * (double)x[xo];
					}
			}
}

static void conv_as(pd_dtype t, pd_conv_desc d, const char *name)
{
	static double y[MOST], dx[MOST], dw[MOST], db[4096];
	char text[128];

	for (int i = 0; i < d.nd; i++)
		d.out[i] = (d.in[i] + d.pad_begin[i] + d.pad_end[i] - d.dilation[i] * (d.kernel[i] - 1) - 1) /
		                   d.stride[i] +
		           1;
	const size_t nx = (size_t)d.n * (size_t)d.c * product(d.in, d.nd),
		     ny = (size_t)d.n * (size_t)d.oc * product(d.out, d.nd);
	const size_t nw = (size_t)d.oc * (size_t)(d.c / d.groups) * product(d.kernel, d.nd);
	float *x = filled(nx, 1), *w = filled(nw, 2), *b = filled((size_t)d.oc, 3), *dy = filled(ny, 4);
	float *gy = floats(ny), *gx = floats(nx), *gw = floats(nw), *gb = floats((size_t)d.oc);
	void *tx = as_type(t, x, nx), *tw = as_type(t, w, nw), *tb = as_type(t, b, (size_t)d.oc),
	     *tdy = as_type(t, dy, ny), *at[3];
	size_t need[3];
	pd_conv o[3];

	d.type = t;
	for (int nhwc = 0; nhwc < 2; nhwc++) {
		d.nhwc = nhwc;
		memset(y, 0, ny * sizeof *y);
		memset(dx, 0, nx * sizeof *dx);
		memset(dw, 0, nw * sizeof *dw);
		memset(db, 0, (size_t)d.oc * sizeof *db);
		conv_loops(&d, x, w, b, dy, y, dx, dw, db);
		for (d.what = 0; d.what < 3; d.what++) {
			need[d.what] = pd_conv_scratch(&d);
			at[d.what] = fenced(need[d.what]);
			pd_conv_init(&o[d.what], &d);
		}
		for (int twice = 0; twice < 2; twice++) { /* what one call leaves in scratch must not matter */
			pd_conv_forward(&o[0], gy, tx, tw, tb, at[0]);
			pd_conv_backward_data(&o[1], gx, tdy, tw, at[1]);
			pd_conv_backward_weights(&o[2], gw, gb, tx, tdy, at[2]);
		}
		snprintf(text, sizeof text, "conv %s nhwc %d type %d", name, nhwc, (int)t);
		for (int i = 0; i < 3; i++)
			fence_stands(text, at[i], need[i]);
		compare_as(t, text, in_f32(t, gy, ny), y, ny);
		compare_as(t, text, in_f32(t, gx, nx), dx, nx);
		compare_as(t, text, in_f32(t, gw, nw), dw, nw);
		if (d.bias)
			compare_as(t, text, in_f32(t, gb, (size_t)d.oc), db, (size_t)d.oc);
	}
	if (t != PD_F32)
		free(tx), free(tw), free(tb), free(tdy);
	free(x), free(w), free(b), free(dy), free(gy), free(gx), free(gw), free(gb);
}

static void conv(pd_conv_desc d, const char *name)
{
	conv_as(PD_F32, d, name);
	conv_as(PD_BF16, d, name);
	conv_as(PD_F16, d, name);
}

static void convolutions(void)
{
	conv((pd_conv_desc){ .nd = 2,
		     .n = 2,
		     .c = 3,
		     .oc = 8,
		     .groups = 1,
		     .in = { 9, 8 },
		     .kernel = { 3, 3 },
		     .stride = { 1, 1 },
		     .pad_begin = { 1, 1 },
		     .pad_end = { 1, 1 },
		     .dilation = { 1, 1 },
		     .bias = 1 },
		"3x3");
	conv((pd_conv_desc){ .nd = 2,
		     .n = 2,
		     .c = 1,
		     .oc = 6,
		     .groups = 1,
		     .in = { 28, 28 },
		     .kernel = { 5, 5 },
		     .stride = { 1, 1 },
		     .dilation = { 1, 1 },
		     .bias = 1 },
		"one channel");
	conv((pd_conv_desc){ .nd = 2,
		     .n = 3,
		     .c = 17,
		     .oc = 33,
		     .groups = 1,
		     .in = { 7, 7 },
		     .kernel = { 1, 1 },
		     .stride = { 2, 2 },
		     .dilation = { 1, 1 } },
		"1x1 stride 2, odd channels");
	conv((pd_conv_desc){ .nd = 2,
		     .n = 2,
		     .c = 16,
		     .oc = 32,
		     .groups = 4,
		     .in = { 11, 10 },
		     .kernel = { 3, 2 },
		     .stride = { 2, 1 },
		     .pad_begin = { 1, 0 },
		     .pad_end = { 2, 1 },
		     .dilation = { 2, 3 },
		     .bias = 1 },
		"groups, dilation, uneven pads");
	conv((pd_conv_desc){ .nd = 2,
		     .n = 2,
		     .c = 16,
		     .oc = 16,
		     .groups = 16,
		     .in = { 9, 9 },
		     .kernel = { 3, 3 },
		     .stride = { 1, 1 },
		     .pad_begin = { 1, 1 },
		     .pad_end = { 1, 1 },
		     .dilation = { 1, 1 } },
		"depthwise");
	conv((pd_conv_desc){ .nd = 2,
		     .n = 1,
		     .c = 16,
		     .oc = 16,
		     .groups = 1,
		     .in = { 10, 9 },
		     .kernel = { 1, 7 },
		     .stride = { 1, 1 },
		     .pad_begin = { 0, 3 },
		     .pad_end = { 0, 3 },
		     .dilation = { 1, 1 } },
		"1x7");
	conv((pd_conv_desc){ .nd = 1,
		     .n = 2,
		     .c = 5,
		     .oc = 7,
		     .groups = 1,
		     .in = { 19 },
		     .kernel = { 4 },
		     .stride = { 3 },
		     .pad_begin = { 2 },
		     .pad_end = { 0 },
		     .dilation = { 1 },
		     .bias = 1 },
		"1 axis");
	conv((pd_conv_desc){ .nd = 3,
		     .n = 2,
		     .c = 3,
		     .oc = 4,
		     .groups = 1,
		     .in = { 5, 6, 7 },
		     .kernel = { 2, 3, 3 },
		     .stride = { 1, 2, 1 },
		     .pad_begin = { 0, 1, 1 },
		     .pad_end = { 1, 1, 0 },
		     .dilation = { 1, 1, 1 },
		     .bias = 1 },
		"3 axes");
}

/* Those that cpu_winograd.c takes, and some at the edge of what it takes: odd extents, pads of 0 to 2, more tiles than a wave has, a block that
 * is not full, channels that fill no vector. */
static void threes(void)
{
	static const struct {
		int n, c, oc, in[2], begin[2], end[2], takes;
	} of[] = {
		{ 2, 32, 32, { 8, 8 }, { 1, 1 }, { 1, 1 }, 1 },
		{ 1, 33, 70, { 9, 11 }, { 1, 1 }, { 1, 1 }, 1 },
		{ 3, 40, 32, { 7, 10 }, { 0, 0 }, { 0, 0 }, 1 },
		{ 2, 32, 65, { 6, 7 }, { 2, 0 }, { 1, 2 }, 1 },
		{ 3, 32, 32, { 24, 22 }, { 1, 1 }, { 1, 1 }, 1 },
		{ 1, 48, 32, { 32, 18 }, { 2, 2 }, { 2, 2 }, 1 },
		{ 16, 32, 64, { 2, 2 }, { 1, 1 }, { 1, 1 }, 1 },
		{ 1, 136, 100, { 8, 8 }, { 1, 1 }, { 1, 1 }, 1 }, /* filters in strips, by one thread */
		{ 1, 96, 150, { 7, 9 }, { 1, 1 }, { 1, 1 }, 1 },
		{ 9, 32, 32, { 3, 3 }, { 1, 1 }, { 1, 1 }, 0 },
		{ 2, 31, 32, { 8, 8 }, { 1, 1 }, { 1, 1 }, 0 },
		{ 1, 32, 32, { 6, 6 }, { 1, 1 }, { 1, 1 }, 0 },
	};

	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		pd_conv_desc d = { .nd = 2,
			.n = of[i].n,
			.c = of[i].c,
			.oc = of[i].oc,
			.groups = 1,
			.kernel = { 3, 3 },
			.stride = { 1, 1 },
			.dilation = { 1, 1 },
			.bias = i % 2 == 0,
			.nhwc = 1 };
		char name[32];

		snprintf(name, sizeof name, "3x3, case %d", (int)i);
		for (int k = 0; k < 2; k++) {
			d.in[k] = of[i].in[k];
			d.pad_begin[k] = of[i].begin[k];
			d.pad_end[k] = of[i].end[k];
			d.out[k] = d.in[k] + d.pad_begin[k] + d.pad_end[k] - 2;
		}
		for (d.what = 0; d.what < 3; d.what++)
			CHECK(cpu_winograd_takes(&d) == of[i].takes, "%s, direction %d", name, d.what);
		d.what = PD_FORWARD;
		d.n *= of[i].takes ? 64 : 1; /* of few tiles it is the filters that take time */
		const double share = pd_conv_work(&d) / (2.0 * 9 * d.n * d.c * d.oc * d.out[0] * d.out[1]);
		CHECK(of[i].takes ? share > 0.5 && share < 1.1 : share > 0.999, "%s: %g of the work", name, share);
		d.type = PD_BF16;
		CHECK(pd_conv_work(&d) / (2.0 * 9 * d.n * d.c * d.oc * d.out[0] * d.out[1]) > 0.999,
			"%s: work of 16 bits", name);
		d.type = PD_F32;
		d.n = of[i].n;
		conv(d, name);
	}
}

/* The same bits for any number of threads. */
static void threads_alike(int n, int c, int oc)
{
	pd_conv_desc d = { .nd = 2,
		.n = n,
		.c = c,
		.oc = oc,
		.groups = 1,
		.in = { 15, 14 },
		.out = { 15, 14 },
		.kernel = { 3, 3 },
		.stride = { 1, 1 },
		.pad_begin = { 1, 1 },
		.pad_end = { 1, 1 },
		.dilation = { 1, 1 },
		.bias = 1,
		.nhwc = 1 };
	const size_t nx = (size_t)(n * 15 * 14 * c), ny = (size_t)(n * 15 * 14 * oc), nw = (size_t)(oc * c * 9);
	float *x = filled(nx, 1), *w = filled(nw, 2), *b = filled((size_t)oc, 3), *dy = filled(ny, 4), *got[4][3];
	const size_t size[4] = { ny, nx, nw, (size_t)oc };

	for (int t = 0; t < 3; t++) {
		pd_conv o;

		pd_threads(1 + t);
		for (int i = 0; i < 4; i++)
			got[i][t] = floats(size[i]);
		for (d.what = 0; d.what < 3; d.what++) {
			void *in = room(pd_conv_scratch(&d));

			pd_conv_init(&o, &d);
			if (d.what == PD_FORWARD)
				pd_conv_forward(&o, got[0][t], x, w, b, in);
			else if (d.what == PD_BACKWARD_DATA)
				pd_conv_backward_data(&o, got[1][t], dy, w, in);
			else
				pd_conv_backward_weights(&o, got[2][t], got[3][t], x, dy, in);
		}
	}
	for (int i = 0; i < 4; i++)
		for (int t = 2; t >= 0; t--) {
			CHECK(!memcmp(got[i][0], got[i][t], size[i] * sizeof(float)), "3x3: %d threads, result %d",
				1 + t, i);
			free(got[i][t]);
		}
	free(x), free(w), free(b), free(dy);
}

/* Rounding of a forward convolution, as a part of its results, is that of sums in blocks: 1.0e-7 to 1.7e-7 of oneDNN's here, with holes, 1.9e-7
 * to 2.3e-7 of ours, and 2.9e-7 to 7e-7 where one f32 takes all products in turn, at which more inputs of Relu get the wrong sign.
 * Without AVX-512 oneDNN has no kernels that sum in blocks. */
static void rounding(int n, int c, int side, int dilation)
{
	static double y[MOST], dx[MOST], dw[MOST * 32], db[4096];
	pd_conv_desc d = { .what = PD_FORWARD,
		.nd = 2,
		.n = n,
		.c = c,
		.oc = 64,
		.groups = 1,
		.in = { side, side },
		.out = { side, side },
		.kernel = { 3, 3 },
		.stride = { 1, 1 },
		.pad_begin = { dilation, dilation },
		.pad_end = { dilation, dilation },
		.dilation = { dilation, dilation },
		.nhwc = 1 };
	const size_t nx = (size_t)(n * c * side * side), ny = (size_t)(n * d.oc * side * side);
	float *x = filled(nx, 1), *w = filled((size_t)(d.oc * c * 9), 2), *dy = filled(ny, 3), *got = floats(ny);
	const double most = dilation == 1 ? 2.4e-7 : 2e-7;
	double off = 0, all = 0;
	pd_conv o;

	if (dilation > 1 && (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) != dnnl_cpu_isa_avx512_core) {
		printf("conv of %d channels: rounding is not looked at, the processor has no AVX-512\n", c);
		free(x), free(w), free(dy), free(got);
		return;
	}
	for (size_t i = 0; i < nx; i++)
		x[i] = fmaxf(x[i], 0); /* as behind a Relu */
	memset(y, 0, sizeof y);
	conv_loops(&d, x, w, NULL, dy, y, dx, dw, db);
	room(pd_conv_scratch(&d));
	pd_conv_init(&o, &d);
	pd_conv_forward(&o, got, x, w, NULL, scratch);
	for (size_t i = 0; i < ny; i++)
		off += pow((double)got[i] - y[i], 2), all += y[i] * y[i];
	CHECK(off <= all * most * most,
		"conv of %d channels, dilation %d: rounding is %.2g of the results, %.2g allowed", c, dilation,
		sqrt(off / all), most);
	free(x), free(w), free(dy), free(got);
}

/* ---- batch normalization ---- */

static void bn(pd_bn_desc d)
{
	static double y[MOST], dx[MOST], dscale[256], dbias[256], mean[256], var[256];
	const size_t area = product(d.sp, d.nd), n = (size_t)d.n * (size_t)d.c * area, nc = (size_t)d.c;
	const double count = (double)d.n * (double)area;
	float *x = filled(n, 1), *dy = filled(n, 2), *scale = filled(nc, 3), *bias = filled(nc, 4), *gy = floats(n),
	      *gx = floats(n);
	float *gm = floats(nc), *gv = floats(nc), *gs = floats(nc), *gb = floats(nc);

	for (int nhwc = 0; nhwc < 2; nhwc++) {
		pd_bn f, b;

		d.nhwc = nhwc;
#define EACH \
	for (int i = 0; i < d.n; i++) \
		for (size_t p = 0, e; p < area && (e = at(i, c, p, d.c, area, nhwc), 1); p++)
		for (int c = 0; c < d.c; c++) {
			double m = 0, v = 0, s = 0, t = 0;

			EACH m += (double)x[e] / count;
			EACH v += ((double)x[e] - m) * ((double)x[e] - m) / count;
			const double r = 1 / sqrt(v + (double)d.eps);

			EACH y[e] = ((double)x[e] - m) * r * (double)scale[c] + (double)bias[c];
			EACH s += (double)dy[e] * ((double)x[e] - m) * r, t += (double)dy[e];
			EACH dx[e] =
				(double)scale[c] * r * ((double)dy[e] - t / count - ((double)x[e] - m) * r * s / count);
			mean[c] = m, var[c] = v, dscale[c] = s, dbias[c] = t;
		}
#undef EACH
		d.what = PD_FORWARD;
		room(pd_bn_scratch(&d));
		pd_bn_init(&f, &d);
		d.what = PD_BACKWARD_DATA;
		room(pd_bn_scratch(&d));
		pd_bn_init(&b, &d);
		pd_bn_forward(&f, gy, gm, gv, x, scale, bias, scratch);
		memset(scratch, 0xFF, scratch_size);
		pd_bn_backward(&b, gx, gs, gb, dy, x, gm, gv, scale, scratch);
		compare("bn y", gy, y, n);
		compare("bn mean", gm, mean, nc);
		compare("bn var", gv, var, nc);
		compare("bn dx", gx, dx, n);
		compare("bn dscale", gs, dscale, nc);
		compare("bn dbias", gb, dbias, nc);
	}
	free(x), free(dy), free(scale), free(bias), free(gy), free(gx), free(gm), free(gv), free(gs), free(gb);
}

/* ---- products ---- */

static void product_of(int m, int n, int k, int ta, int tb)
{
	static double want[MOST];
	const size_t nc = (size_t)(m * n);
	float *a = filled((size_t)(m * k), 1), *b = filled((size_t)(k * n), 2), *c = floats(nc);

	for (int r = 0; r < m; r++)
		for (int s = 0; s < n; s++) {
			double sum = 0;

			for (int t = 0; t < k; t++)
				sum += (double)a[ta ? t * m + r : r * k + t] * (double)b[tb ? s * k + t : t * n + s];
			want[r * n + s] = sum;
		}
	pd_gemm(ta, tb, m, n, k, a, ta ? m : k, b, tb ? k : n, 0, c, n);
	compare("gemm", c, want, nc);
	pd_gemm(ta, tb, m, n, k, a, ta ? m : k, b, tb ? k : n, 1, c, n);
	for (size_t i = 0; i < nc; i++)
		want[i] *= 2;
	compare("gemm, beta 1", c, want, nc);
	free(a), free(b), free(c);
}

/* Rows of a, b and c as far apart as they like; a primitive where the processor has one. */
static void product_half(pd_dtype in, pd_dtype out, int m, int n, int k, int ta, int tb, int apart)
{
	static double want[MOST];
	const int rows[3] = { ta ? k : m, tb ? n : k, m }, cols[3] = { ta ? m : k, tb ? k : n, n };
	const int lda = cols[0] + apart, ldb = cols[1] + 2 * apart, ldc = n + 3 * apart;
	const size_t na = (size_t)(rows[0] * lda), nb = (size_t)(rows[1] * ldb), nc = (size_t)(m * ldc);
	float *a = filled(na, m), *b = filled(nb, n), *c = filled(nc, k);
	uint16_t *ha = as_type(in, a, na), *hb = as_type(in, b, nb);
	void *hc = as_type(out, c, nc);
	char text[128];

	snprintf(text, sizeof text, "product %d x %d x %d of type %d to %d, transposed %d %d, apart %d", m, n, k,
		(int)in, (int)out, ta, tb, apart);
	for (int adds = 1; adds >= 0; adds--) { /* what lay there, then in its place */
		for (int r = 0; r < m; r++)
			for (int s = 0; s < ldc; s++) {
				double sum = s >= n || adds ? (double)c[r * ldc + s] : 0;

				for (int t = 0; s < n && t < k; t++)
					sum += (double)a[ta ? t * lda + r : r * lda + t] *
					       (double)b[tb ? s * ldb + t : t * ldb + s];
				want[r * ldc + s] = sum;
			}
		pd_gemm_half(in, out, ta, tb, m, n, k, ha, lda, hb, ldb, (float)adds, hc, ldc);
		compare_as(out, text, in_f32(out, hc, nc), want, nc);
	}
	const bool column = apart && (cols[0] == 1 || cols[1] == 1 || n == 1);

	CHECK(cpu_product(0, in, out, ta, tb, m, n, k, ha, lda, hb, ldb, 0, hc, ldc) == (cpu_multiplies(in) && !column),
		"%s: the processor %s such floats, the library does not", text,
		cpu_multiplies(in) ? "multiplies" : "widens");
	free(a), free(b), free(ha), free(hb);
	if (out == PD_F32)
		free(c);
	else
		free(c), free(hc);
}

static void products_half(void)
{
	const pd_dtype kind[] = { PD_BF16, PD_F16 };

	for (int i = 0; i < 16; i++) { /* rows and columns of one element, apart and not */
		const int one = i >> 2 & 3;

		product_half(
			PD_BF16, PD_F32, one == 0 ? 1 : 5, one == 1 ? 1 : 6, one == 2 ? 1 : 7, i & 1, i >> 1 & 1, 0);
		product_half(
			PD_BF16, PD_F32, one == 0 ? 1 : 5, one == 1 ? 1 : 6, one == 2 ? 1 : 7, i & 1, i >> 1 & 1, 1);
	}
	for (int i = 0; i < 64; i++) {
		const pd_dtype in = kind[i & 1];
		const int most = i < 48 ? 40 : 200;
		int d[3];

		for (int j = 0; j < 3; j++)
			d[j] = 1 + (int)(pd_random_unit(11, (uint64_t)i, (uint64_t)j, 5) * (float)most);
		product_half(in, i & 2 ? PD_F32 : in, d[0], d[1], d[2], i >> 2 & 1, i >> 3 & 1, i >> 4 & 1);
	}
#pragma omp parallel for
	for (int i = 0; i < 8; i++) { /* a batch: each thread has its own */
		uint16_t one[64 * 64];
		float sum[64 * 64];

		for (int j = 0; j < 64 * 64; j++)
			one[j] = pd_to_bf16(1);
		pd_gemm_half(PD_BF16, PD_F32, 0, i & 1, 64, 64, 64, one, 64, one, 64, 0, sum, 64);
		for (int j = 0; j < 64 * 64; j++)
			if (sum[j] != 64)
#pragma omp atomic
				failures++;
	}
}

int main(void)
{
	for (int threads = 1; threads <= 2; threads++) {
		pd_threads(threads);
		room(64);
		convolutions();
		threes();
		rounding(4, 64, 16, 1);
		rounding(4, 64, 16, 2);
		rounding(4, 128, 8, 1);
		rounding(4, 128, 8, 2);
		rounding(4, 512, 4, 1);
		rounding(4, 512, 4, 2);
		bn((pd_bn_desc){ .n = 3, .c = 5, .nd = 2, .sp = { 4, 6 }, .eps = 1e-5f });
		bn((pd_bn_desc){ .n = 4, .c = 64, .nd = 2, .sp = { 3, 3 }, .eps = 1e-3f });
		bn((pd_bn_desc){ .n = 9, .c = 7, .nd = 0, .eps = 1e-5f });
		bn((pd_bn_desc){ .n = 2, .c = 7, .nd = 1, .sp = { 11 }, .eps = 1e-5f });
		for (int t = 0; t < 4; t++) {
			product_of(7, 9, 11, t & 1, t >> 1);
			product_of(64, 48, 33, t & 1, t >> 1);
		}
		product_of(1, 1, 1, 0, 0);
		products_half();
	}
	threads_alike(5, 32, 48);
	threads_alike(1, 160, 144);
	printf("16-bit primitives: bf16 %s, fp16 %s\n", cpu_multiplies(PD_BF16) ? "yes" : "no",
		cpu_multiplies(PD_F16) ? "yes" : "no");
	return failures ? 1 : 0;
}
