/* cpu_conv.c: convolution in three directions. Weights lie plain (ONNX order) in the arena; where oneDNN is faster with
 * another order, they are reordered into scratch for the call, weight gradients out of it. */
#include "cpu.h"

typedef struct conv {
	cpu_prim p, reorder;        /* reorder.pd NULL: weights are taken as they lie */
	size_t   blocked;           /* bytes of the reordered weights, at the start of scratch */
	size_t   pad;               /* where the scratchpads begin */
	int      bias;
} conv;

static void weights(dnnl_memory_desc_t *md, const pd_conv_desc *d, bool any)
{
	dnnl_dims_t dim = { 0 }, stride = { 0 };
	int         n = 0;

	if (d->groups > 1)
		dim[n++] = d->groups;
	dim[n++] = d->oc / d->groups;
	dim[n++] = d->c / d->groups;
	for (int i = 0; i < d->nd; i++)
		dim[n++] = d->kernel[i];
	stride[n - 1] = 1;
	for (int i = n - 2; i >= 0; i--)
		stride[i] = stride[i + 1] * dim[i + 1];
	if (any)
		dnnl_memory_desc_init_by_tag(md, n, dim, dnnl_f32, dnnl_format_tag_any);
	else
		dnnl_memory_desc_init_by_strides(md, n, dim, dnnl_f32, stride);
}

static bool ask(cpu_prim *p, const pd_conv_desc *d, int what, const_dnnl_primitive_desc_t hint)
{
	dnnl_memory_desc_t       x, w, b, y, *bias = d->bias && what != PD_BACKWARD_DATA ? &b : NULL;
	dnnl_convolution_desc_t  op;
	dnnl_dims_t              stride = { 0 }, dilation = { 0 }, lo = { 0 }, hi = { 0 };
	const dnnl_alg_kind_t    alg = dnnl_convolution_direct;
	dnnl_status_t            s;

	for (int i = 0; i < d->nd; i++) {
		stride[i] = d->stride[i];
		dilation[i] = d->dilation[i] - 1;
		lo[i] = d->pad_begin[i];
		hi[i] = d->pad_end[i];
	}
	cpu_activation(&x, d->n, d->c, d->nd, d->in, d->nhwc);
	cpu_activation(&y, d->n, d->oc, d->nd, d->out, d->nhwc);
	weights(&w, d, true);
	dnnl_memory_desc_init_by_tag(&b, 1, (dnnl_dims_t){ d->oc }, dnnl_f32, dnnl_a);
	if (what == PD_FORWARD)
		s = dnnl_dilated_convolution_forward_desc_init(&op, dnnl_forward_training, alg, &x, &w, bias, &y, stride, dilation, lo, hi);
	else if (what == PD_BACKWARD_DATA)
		s = dnnl_dilated_convolution_backward_data_desc_init(&op, alg, &x, &w, &y, stride, dilation, lo, hi);
	else
		s = dnnl_dilated_convolution_backward_weights_desc_init(&op, alg, &x, &w, bias, &y, stride, dilation, lo, hi);
	memset(p, 0, sizeof *p);
	return s == dnnl_success && cpu_ask(p, &op, hint);
}

static bool build(conv *c, const pd_conv_desc *d)
{
	cpu_prim           forward;
	dnnl_memory_desc_t plain;
	const int          arg = d->what == PD_BACKWARD_WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS;

	memset(c, 0, sizeof *c);
	c->bias = d->bias;
	if (d->what == PD_FORWARD) {
		if (!ask(&c->p, d, PD_FORWARD, NULL))
			return false;
	} else {
		if (!ask(&forward, d, PD_FORWARD, NULL))
			return false;
		const bool ok = ask(&c->p, d, d->what, forward.pd);

		cpu_drop(&forward);
		if (!ok)
			return false;
	}
	const dnnl_memory_desc_t *chosen = cpu_md(&c->p, arg);

	weights(&plain, d, false);
	if (!dnnl_memory_desc_equal(chosen, &plain)) {
		const bool ok = d->what == PD_BACKWARD_WEIGHTS ? cpu_ask_reorder(&c->reorder, chosen, &plain)
		                                               : cpu_ask_reorder(&c->reorder, &plain, chosen);

		if (!ok) {
			cpu_drop(&c->p);
			return false;
		}
		c->blocked = cpu_round(dnnl_memory_desc_get_size(chosen));
	}
	c->pad = c->blocked;
	return true;
}

/* The primitive and its reorder run one after the other: they share the scratchpad. */
static size_t scratch_of(const conv *c)
{
	const size_t a = cpu_scratch(&c->p), b = cpu_scratch(&c->reorder);

	return c->pad + (a > b ? a : b);
}

size_t pd_conv_scratch(const pd_conv_desc *d)
{
	conv c;

	if (!build(&c, d))
		return SIZE_MAX;
	const size_t n = scratch_of(&c);

	cpu_drop(&c.p);
	cpu_drop(&c.reorder);
	return n;
}

void pd_conv_init(pd_conv *o, const pd_conv_desc *d)
{
	conv *c = o->impl = cpu_alloc(sizeof *c);

	if (!build(c, d))
		cpu_fail(1, "R504: oneDNN has no convolution %d x %d -> %d in %d dimensions, direction %d", d->n, d->c, d->oc, d->nd, d->what);
	if (d->what == PD_FORWARD)
		cpu_make(&c->p, (const int[]){ DNNL_ARG_DST, DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, d->bias ? DNNL_ARG_BIAS : 0, 0 });
	else if (d->what == PD_BACKWARD_DATA)
		cpu_make(&c->p, (const int[]){ DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, 0 });
	else
		cpu_make(&c->p, (const int[]){ DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS,
		                               d->bias ? DNNL_ARG_DIFF_BIAS : 0, 0 });
	if (c->reorder.pd)
		cpu_make(&c->reorder, (const int[]){ DNNL_ARG_FROM, DNNL_ARG_TO, 0 });
}

static void *plain(const void *p)
{
	return (void *)(uintptr_t)p;
}

/* The weights in the order of the primitive. */
static void *taken(const conv *c, const float *w, char *scratch)
{
	if (!c->reorder.pd)
		return plain(w);
	cpu_run(&c->reorder, (void *[]){ plain(w), scratch, scratch + c->pad });
	return scratch;
}

void pd_conv_forward(const pd_conv *o, float *y, const float *x, const float *w, const float *b, void *scratch)
{
	const conv *c = o->impl;
	char       *pad = (char *)scratch + c->pad;
	void       *order = taken(c, w, scratch);

	if (c->bias)
		cpu_run(&c->p, (void *[]){ y, plain(x), order, plain(b), pad });
	else
		cpu_run(&c->p, (void *[]){ y, plain(x), order, pad });
}

void pd_conv_backward_data(const pd_conv *o, float *dx, const float *dy, const float *w, void *scratch)
{
	const conv *c = o->impl;
	void       *order = taken(c, w, scratch);

	cpu_run(&c->p, (void *[]){ dx, plain(dy), order, (char *)scratch + c->pad });
}

void pd_conv_backward_weights(const pd_conv *o, float *dw, float *db, const float *x, const float *dy, void *scratch)
{
	const conv *c = o->impl;
	char       *pad = (char *)scratch + c->pad;
	void       *to = c->reorder.pd ? scratch : dw;

	if (c->bias)
		cpu_run(&c->p, (void *[]){ plain(x), plain(dy), to, db, pad });
	else
		cpu_run(&c->p, (void *[]){ plain(x), plain(dy), to, pad });
	if (c->reorder.pd)
		cpu_run(&c->reorder, (void *[]){ scratch, dw, pad });
}
