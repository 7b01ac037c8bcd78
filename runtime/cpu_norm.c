/* cpu_norm.c: pooling and batch normalization. Channels-last goes to oneDNN; on plain
 * activations its normalization is several times slower than the loops below, which give the
 * same bits for any number of threads. */
#include "cpu.h"

/* ---- pooling ---- */

static bool ask_pool(cpu_prim *p, const pd_pool_desc *d, int what, const_dnnl_primitive_desc_t hint)
{
	const dnnl_alg_kind_t  alg = d->max           ? dnnl_pooling_max
	                             : d->include_pad ? dnnl_pooling_avg_include_padding
	                                              : dnnl_pooling_avg_exclude_padding;
	dnnl_memory_desc_t     x, y;
	dnnl_pooling_v2_desc_t op;
	dnnl_dims_t   stride = { 0 }, kernel = { 0 }, dilation = { 0 }, lo = { 0 }, hi = { 0 };
	dnnl_status_t s;

	for (int i = 0; i < d->nd; i++) {
		const int reach =
			(d->out[i] - 1) * d->stride[i] + (d->kernel[i] - 1) * d->dilation[i] + 1;

		stride[i] = d->stride[i];
		kernel[i] = d->kernel[i];
		dilation[i] = d->dilation[i] - 1;
		lo[i] = d->pad_begin[i];
		hi[i] = d->pad_end[i];
		if (reach - d->in[i] - lo[i] >
		    hi[i]) /* ceil_mode: the last window reaches further */
			hi[i] = reach - d->in[i] - lo[i];
	}
	cpu_activation(&x, d->n, d->c, d->nd, d->in, d->nhwc);
	cpu_activation(&y, d->n, d->c, d->nd, d->out, d->nhwc);
	if (what == PD_FORWARD)
		s = dnnl_pooling_v2_forward_desc_init(&op, dnnl_forward_training, alg, &x, &y,
		                                      stride, kernel, dilation, lo, hi);
	else
		s = dnnl_pooling_v2_backward_desc_init(&op, alg, &x, &y, stride, kernel, dilation,
		                                       lo, hi);
	memset(p, 0, sizeof *p);
	return s == dnnl_success && cpu_ask(p, &op, hint);
}

static bool build_pool(cpu_prim *p, const pd_pool_desc *d)
{
	cpu_prim forward;

	if (d->what == PD_FORWARD)
		return ask_pool(p, d, PD_FORWARD, NULL);
	if (!ask_pool(&forward, d, PD_FORWARD, NULL))
		return false;
	const bool ok = ask_pool(p, d, PD_BACKWARD_DATA, forward.pd);

	cpu_drop(&forward);
	return ok;
}

size_t pd_pool_scratch(const pd_pool_desc *d)
{
	cpu_prim p;

	if (!build_pool(&p, d))
		return SIZE_MAX;
	const size_t n = cpu_scratch(&p);

	cpu_drop(&p);
	return n;
}

size_t pd_pool_workspace(const pd_pool_desc *d)
{
	cpu_prim p;

	if (!d->max)
		return 0;
	if (!ask_pool(&p, d, PD_FORWARD, NULL))
		return SIZE_MAX;
	const size_t n = dnnl_memory_desc_get_size(cpu_md(&p, DNNL_ARG_WORKSPACE));

	cpu_drop(&p);
	return n;
}

void pd_pool_init(pd_pool *o, const pd_pool_desc *d)
{
	cpu_prim *p = o->impl = cpu_alloc(sizeof *p);

	if (!build_pool(p, d))
		cpu_fail(1, "R504: oneDNN has no pooling over %d axes of %d x %d", d->nd, d->n,
		         d->c);
	if (d->what == PD_FORWARD)
		cpu_make(p, (const int[]){ DNNL_ARG_DST, DNNL_ARG_SRC,
		                           d->max ? DNNL_ARG_WORKSPACE : 0, 0 });
	else
		cpu_make(p, (const int[]){ DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST,
		                           d->max ? DNNL_ARG_WORKSPACE : 0, 0 });
}

static void run_pool(const cpu_prim *p, void *to, const void *from, const void *workspace,
                     void *scratch)
{
	if (p->n == 4)
		cpu_run(p, (void *[]){ to, (void *)(uintptr_t)from, (void *)(uintptr_t)workspace,
		                       scratch });
	else
		cpu_run(p, (void *[]){ to, (void *)(uintptr_t)from, scratch });
}

void pd_pool_forward(const pd_pool *o, float *y, void *workspace, const float *x, void *scratch)
{
	run_pool(o->impl, y, x, workspace, scratch);
}

void pd_pool_backward(const pd_pool *o, float *dx, const float *dy, const void *workspace,
                      void *scratch)
{
	run_pool(o->impl, dx, dy, workspace, scratch);
}

/* ---- batch normalization ---- */

/* Channels-last: scratch holds scale and shift (and their gradients), then the scratchpad.
 * Plain: p is empty. */
typedef struct bn {
	cpu_prim p;
	int      n, c, nhwc;
	size_t   area, pad;
	float    eps;
} bn;

static bool ask_bn(cpu_prim *p, const pd_bn_desc *d, int what, const_dnnl_primitive_desc_t hint)
{
	dnnl_memory_desc_t              x;
	dnnl_batch_normalization_desc_t op;
	dnnl_status_t                   s;

	cpu_activation(&x, d->n, d->c, d->nd, d->sp, d->nhwc);
	if (what == PD_FORWARD)
		s = dnnl_batch_normalization_forward_desc_init(&op, dnnl_forward_training, &x,
		                                               d->eps, dnnl_use_scaleshift);
	else
		s = dnnl_batch_normalization_backward_desc_init(&op, dnnl_backward, &x, &x, d->eps,
		                                                dnnl_use_scaleshift);
	memset(p, 0, sizeof *p);
	return s == dnnl_success && cpu_ask(p, &op, hint);
}

static bool build_bn(bn *b, const pd_bn_desc *d)
{
	cpu_prim forward;
	bool     ok;

	*b = (bn){ .n = d->n, .c = d->c, .nhwc = d->nhwc, .area = 1, .eps = d->eps };
	for (int i = 0; i < d->nd; i++)
		b->area *= (size_t)d->sp[i];
	if (!d->nhwc)
		return true;
	b->pad = cpu_round(2 * (size_t)d->c * sizeof(float)) * (d->what == PD_FORWARD ? 1 : 2);
	if (d->what == PD_FORWARD)
		return ask_bn(&b->p, d, PD_FORWARD, NULL);
	ok = ask_bn(&forward, d, PD_FORWARD, NULL);
	if (ok) {
		ok = ask_bn(&b->p, d, PD_BACKWARD_DATA, forward.pd);
		cpu_drop(&forward);
	}
	return ok;
}

size_t pd_bn_scratch(const pd_bn_desc *d)
{
	bn b;

	if (!build_bn(&b, d))
		return SIZE_MAX;
	const size_t n = b.pad + cpu_scratch(&b.p);

	cpu_drop(&b.p);
	return n;
}

void pd_bn_init(pd_bn *o, const pd_bn_desc *d)
{
	bn *b = o->impl = cpu_alloc(sizeof *b);

	if (!build_bn(b, d))
		cpu_fail(1, "R504: oneDNN has no batch normalization of %d x %d", d->n, d->c);
	if (!d->nhwc)
		return;
	if (d->what == PD_FORWARD)
		cpu_make(&b->p, (const int[]){ DNNL_ARG_DST, DNNL_ARG_MEAN, DNNL_ARG_VARIANCE,
		                               DNNL_ARG_SRC, DNNL_ARG_SCALE_SHIFT, 0 });
	else
		cpu_make(&b->p, (const int[]){ DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_SCALE_SHIFT,
		                               DNNL_ARG_DIFF_DST, DNNL_ARG_SRC, DNNL_ARG_MEAN,
		                               DNNL_ARG_VARIANCE, DNNL_ARG_SCALE_SHIFT, 0 });
}

/* One channel: rows of `area` elements, one per sample, `step` apart. */
static void forward_channel(const bn *b, int c, float *y, float *mean, float *var, const float *x,
                            float scale, float bias)
{
	const size_t step = (size_t)b->c * b->area, at = (size_t)c * b->area, area = b->area;
	const double count = (double)b->n * (double)area;
	double       sum = 0, squares = 0;

	for (int i = 0; i < b->n; i++) {
		const float *row = x + at + (size_t)i * step;
		float        s = 0;

#pragma omp simd reduction(+ : s)
		for (size_t p = 0; p < area; p++)
			s += row[p];
		sum += (double)s;
	}
	const float m = (float)(sum / count);

	for (int i = 0; i < b->n; i++) {
		const float *row = x + at + (size_t)i * step;
		float        s = 0;

#pragma omp simd reduction(+ : s)
		for (size_t p = 0; p < area; p++)
			s += (row[p] - m) * (row[p] - m);
		squares += (double)s;
	}
	*mean = m;
	*var = (float)(squares / count);
	const float a = scale / sqrtf(*var + b->eps);

	for (int i = 0; i < b->n; i++) {
		const float *row = x + at + (size_t)i * step;
		float       *to = y + at + (size_t)i * step;

#pragma omp simd
		for (size_t p = 0; p < area; p++)
			to[p] = (row[p] - m) * a + bias;
	}
}

static void backward_channel(const bn *b, int c, float *dx, float *dscale, float *dbias,
                             const float *dy, const float *x, float m, float var, float scale)
{
	const size_t step = (size_t)b->c * b->area, at = (size_t)c * b->area, area = b->area;
	const double count = (double)b->n * (double)area,
		     r = 1 / sqrt((double)var + (double)b->eps);
	double along = 0, sum = 0;

	for (int i = 0; i < b->n; i++) {
		const float *row = x + at + (size_t)i * step, *d = dy + at + (size_t)i * step;
		float        s = 0, t = 0;

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
	const float a = (float)((double)scale * r), k = (float)(along * r * r / count),
		    t = (float)(sum / count);

	for (int i = 0; i < b->n; i++) {
		const float *row = x + at + (size_t)i * step, *d = dy + at + (size_t)i * step;
		float       *to = dx + at + (size_t)i * step;

#pragma omp simd
		for (size_t p = 0; p < area; p++)
			to[p] = a * (d[p] - t - (row[p] - m) * k);
	}
}

static bool worth_threads(const bn *b)
{
	return (size_t)b->n * (size_t)b->c * b->area > 32768;
}

void pd_bn_forward(const pd_bn *o, float *y, float *mean, float *var, const float *x,
                   const float *scale, const float *bias, void *scratch)
{
	const bn    *b = o->impl;
	const size_t n = (size_t)b->c;
	float       *both = scratch;

	if (!b->nhwc) {
#pragma omp parallel for schedule(static) if (worth_threads(b))
		for (int c = 0; c < b->c; c++)
			forward_channel(b, c, y, &mean[c], &var[c], x, scale[c], bias[c]);
		return;
	}
	memcpy(both, scale, n * sizeof *both);
	memcpy(both + n, bias, n * sizeof *both);
	cpu_run(&b->p,
	        (void *[]){ y, mean, var, (void *)(uintptr_t)x, both, (char *)scratch + b->pad });
}

void pd_bn_backward(const pd_bn *o, float *dx, float *dscale, float *dbias, const float *dy,
                    const float *x, const float *mean, const float *var, const float *scale,
                    void *scratch)
{
	const bn    *b = o->impl;
	const size_t n = (size_t)b->c;
	float       *both = scratch, *d = (float *)(void *)((char *)scratch + b->pad / 2);

	if (!b->nhwc) {
#pragma omp parallel for schedule(static) if (worth_threads(b))
		for (int c = 0; c < b->c; c++)
			backward_channel(b, c, dx, &dscale[c], &dbias[c], dy, x, mean[c], var[c],
			                 scale[c]);
		return;
	}
	memcpy(both, scale, n * sizeof *both);
	memset(both + n, 0, n * sizeof *both);
	cpu_run(&b->p, (void *[]){ dx, d, (void *)(uintptr_t)dy, (void *)(uintptr_t)x,
	                           (void *)(uintptr_t)mean, (void *)(uintptr_t)var, both,
	                           (char *)scratch + b->pad });
	memcpy(dscale, d, n * sizeof *d);
	memcpy(dbias, d + n, n * sizeof *d);
}
