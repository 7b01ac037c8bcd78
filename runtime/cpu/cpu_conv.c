/* cpu_conv.c: convolution in three directions. Weights lie plain (ONNX order) in the arena,
 * activations plain or channels-last. oneDNN computes on channels-last activations and weights
 * in an order of its own, which is two to three times as fast as on plain ones; what lies
 * otherwise is reordered into scratch before, or out of it after. Most of 3x3 in f32 take less than half the multiplications in
 * cpu_winograd.c. Floats of 16 bits are convolved as they are where the processor multiplies such floats, and widened to f32
 * elsewhere. */
#include "cpu.h"

enum { X, W, Y, BIAS }; /* the operands, or their gradients */

typedef struct conv {
	cpu_prim p;
	cpu_prim reorder[3];   /* pd NULL: the operand is taken as it lies */
	size_t at[3];          /* of the reordered operand in scratch */
	size_t pad;            /* where the scratchpad begins; reorders and the primitive share it */
	pd_conv_desc winograd; /* what: -1, or by cpu_winograd.c */
	int what, bias;
	pd_dtype type, as; /* of the operands; what oneDNN is given */
	size_t size[4];    /* elements of X, W, Y and the bias, where they are widened */
} conv;

static cpu_layout *weights(const pd_conv_desc *d, pd_dtype t, bool any)
{
	dnnl_dims_t dim = { 0 }, stride = { 0 };
	int n = 0;

	if (d->groups > 1)
		dim[n++] = d->groups;
	dim[n++] = d->oc / d->groups;
	dim[n++] = d->c / d->groups;
	for (int i = 0; i < d->nd; i++)
		dim[n++] = d->kernel[i];
	stride[n - 1] = 1;
	for (int i = n - 2; i >= 0; i--)
		stride[i] = stride[i + 1] * dim[i + 1];
	return cpu_layout_make(t, n, dim, any ? NULL : stride);
}

/* Activations as the direction's kernels read them: channels-last, or in blocks as oneDNN likes them. */
static cpu_layout *images(const pd_conv_desc *d, pd_dtype t, int c, const int *sp, bool blocks)
{
	dnnl_dims_t dim = { d->n, c };

	if (!blocks)
		return cpu_activation(t, d->n, c, d->nd, sp, 1);
	for (int i = 0; i < d->nd; i++)
		dim[2 + i] = sp[i];
	return cpu_layout_make(t, d->nd + 2, dim, NULL);
}

/* oneDNN's channels-last kernels add all products of an output, one after another, into one f32; those on blocks do so
 * for BLOCK channels and add up the blocks. Without blocks the rounding of a long sum is two to five times as large, and
 * as much more often a sum near 0 gets the wrong sign: the Relu behind it then cuts off the wrong gradient. In the
 * backward directions rounding decides nothing; short sums are as exact either way; of few channels the
 * reorders cost more than 3 % of a step; other numbers of channels would be padded; kernels for processors without
 * AVX-512 go on with the sum from block to block; and beside the rounding of 16-bit floats that of sums is nothing. */
enum { BLOCK = 16, FEW = 64, LONG = 256 };

static bool in_blocks(const pd_conv_desc *d, pd_dtype t)
{
	const bool wide = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
	int sum = d->c / d->groups;

	if (!wide || t != PD_F32 || d->what != PD_FORWARD || sum < FEW || sum % BLOCK || d->oc / d->groups % BLOCK)
		return false;
	for (int i = 0; i < d->nd; i++)
		sum *= d->kernel[i];
	return sum >= LONG;
}

static bool ask(cpu_prim *p, const pd_conv_desc *d, pd_dtype t, int what, const_dnnl_primitive_desc_t hint)
{
	const bool blocks = in_blocks(d, t);
	cpu_convolution c = {
		.what = what,
		.x = images(d, t, d->c, d->in, blocks),
		.w = weights(d, t, true),
		.b = d->bias && what != PD_BACKWARD_DATA
		             ? cpu_layout_make(t, 1, (dnnl_dims_t){ d->oc }, (dnnl_dims_t){ 1 })
		             : NULL,
		.y = images(d, t, d->oc, d->out, blocks),
	};

	for (int i = 0; i < d->nd; i++) {
		c.stride[i] = d->stride[i];
		c.dilation[i] = d->dilation[i] - 1;
		c.lo[i] = d->pad_begin[i];
		c.hi[i] = d->pad_end[i];
	}
	const bool found = cpu_ask(p, &c, hint);

	cpu_layout_drop(c.x);
	cpu_layout_drop(c.w);
	cpu_layout_drop(c.b);
	cpu_layout_drop(c.y);
	return found;
}

/* The operand that direction `what` writes: forward Y, backward X or W. */
static int written(int what) { return what == PD_FORWARD ? Y : what == PD_BACKWARD_DATA ? X : W; }

static int argument(int what, int operand)
{
	static const int arg[3][3] = {
		{ DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST },
		{ DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST },
		{ DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST },
	};

	return arg[what][operand];
}

static void drop(conv *c)
{
	cpu_drop(&c->p);
	for (int i = 0; i < 3; i++)
		cpu_drop(&c->reorder[i]);
}

/* Decides whether operand i, which lies as given, is reordered; lays it out in scratch then. */
static bool arrange_one(conv *c, int i, const cpu_layout *given)
{
	const cpu_layout *chosen = cpu_md(&c->p, argument(c->what, i));
	const bool out = i == written(c->what);

	if (dnnl_memory_desc_equal(chosen, given))
		return true;
	if (!cpu_ask_reorder(&c->reorder[i], out ? chosen : given, out ? given : chosen))
		return false;
	c->at[i] = c->pad;
	c->pad += cpu_round(dnnl_memory_desc_get_size(chosen));
	return true;
}

static bool arrange(conv *c, const pd_conv_desc *d)
{
	cpu_layout *given[3] = {
		[X] = cpu_activation(c->as, d->n, d->c, d->nd, d->in, d->nhwc),
		[W] = weights(d, c->as, false),
		[Y] = cpu_activation(c->as, d->n, d->oc, d->nd, d->out, d->nhwc),
	};
	bool ok = true;

	for (int i = 0; i < 3; i++) {
		ok = ok && arrange_one(c, i, given[i]);
		cpu_layout_drop(given[i]);
	}
	return ok;
}

static bool build_as(conv *c, const pd_conv_desc *d, pd_dtype t)
{
	cpu_prim forward = { 0 };
	bool ok;

	memset(c, 0, sizeof *c);
	c->what = d->what;
	c->type = d->type == PD_BF16 || d->type == PD_F16 ? d->type : PD_F32;
	c->as = t;
	c->bias = d->bias && d->what != PD_BACKWARD_DATA;
	c->winograd.what = -1;
	if (t == PD_F32 && cpu_winograd_takes(d)) {
		c->winograd = *d;
		c->pad = cpu_winograd_scratch(d);
		return true;
	}
	if (d->what == PD_FORWARD) {
		ok = ask(&c->p, d, t, PD_FORWARD, NULL);
	} else {
		ok = ask(&forward, d, t, PD_FORWARD, NULL) && ask(&c->p, d, t, d->what, forward.pd);
		cpu_drop(&forward);
	}
	ok = ok && (t == PD_F32 || !cpu_is_loops(&c->p)) && arrange(c, d);
	if (!ok)
		drop(c);
	return ok;
}

static bool build(conv *c, const pd_conv_desc *d)
{
	return (cpu_multiplies(d->type) && build_as(c, d, d->type)) || build_as(c, d, PD_F32);
}

static size_t scratch_of(const conv *c)
{
	size_t most = cpu_scratch(&c->p);

	for (int i = 0; i < 3; i++)
		if (cpu_scratch(&c->reorder[i]) > most)
			most = cpu_scratch(&c->reorder[i]);
	return c->pad + most;
}

/* A program runs on processors with and without 16-bit products: the larger of both. */
size_t pd_conv_scratch(const pd_conv_desc *d)
{
	conv c;

	if (!build_as(&c, d, PD_F32))
		return SIZE_MAX;
	size_t n = scratch_of(&c);

	drop(&c);
	if (cpu_multiplies(d->type) && build_as(&c, d, d->type)) {
		n = scratch_of(&c) > n ? scratch_of(&c) : n;
		drop(&c);
	}
	return n;
}

double pd_conv_work(const pd_conv_desc *d)
{
	double flops = 2.0 * (double)d->n * (double)d->oc * (double)(d->c / d->groups);

	if (d->type != PD_BF16 && d->type != PD_F16 && cpu_winograd_takes(d))
		return cpu_winograd_work(d);
	for (int i = 0; i < d->nd; i++)
		flops *= (double)d->out[i] * (double)d->kernel[i];
	return flops;
}

/* Elements of the operands, the bias last. */
static void count(conv *c, const pd_conv_desc *d)
{
	c->size[X] = (size_t)d->n * (size_t)d->c;
	c->size[Y] = (size_t)d->n * (size_t)d->oc;
	c->size[W] = (size_t)d->oc * (size_t)(d->c / d->groups);
	c->size[BIAS] = c->bias ? (size_t)d->oc : 0;
	for (int i = 0; i < d->nd; i++) {
		c->size[X] *= (size_t)d->in[i];
		c->size[Y] *= (size_t)d->out[i];
		c->size[W] *= (size_t)d->kernel[i];
	}
}

void pd_conv_init(pd_conv *o, const pd_conv_desc *d)
{
	conv *c = o->impl = cpu_alloc(sizeof *c);

	if (!build(c, d))
		cpu_fail(1, "R504: oneDNN has no convolution %d x %d -> %d in %d dimensions, direction %d", d->n, d->c,
			d->oc, d->nd, d->what);
	count(c, d);
	if (c->winograd.what >= 0)
		return;
	const int bias = d->what == PD_FORWARD ? DNNL_ARG_BIAS : DNNL_ARG_DIFF_BIAS;

	cpu_make(&c->p, (const int[]){ argument(d->what, X), argument(d->what, W), argument(d->what, Y),
				c->bias ? bias : 0, 0 });
	for (int i = 0; i < 3; i++)
		if (c->reorder[i].pd)
			cpu_make(&c->reorder[i], (const int[]){ DNNL_ARG_FROM, DNNL_ARG_TO, 0 });
}

static void run_as_is(const conv *c, void *const *operand, void *bias, char *scratch)
{
	if (c->winograd.what == PD_BACKWARD_WEIGHTS) {
		cpu_winograd_weights(&c->winograd, operand[W], bias, operand[X], operand[Y], scratch);
		return;
	}
	if (c->winograd.what >= 0) {
		const int from = c->what == PD_FORWARD ? X : Y;

		cpu_winograd_data(&c->winograd, operand[X + Y - from], operand[from], operand[W], bias, scratch);
		return;
	}
	void *pad = scratch + c->pad, *taken[3];
	const int out = written(c->what);

	for (int i = 0; i < 3; i++) {
		taken[i] = c->reorder[i].pd ? scratch + c->at[i] : operand[i];
		if (c->reorder[i].pd && i != out)
			cpu_run(&c->reorder[i], (void *[]){ operand[i], taken[i], pad });
	}
	if (c->bias)
		cpu_run(&c->p, (void *[]){ taken[X], taken[W], taken[Y], bias, pad });
	else
		cpu_run(&c->p, (void *[]){ taken[X], taken[W], taken[Y], pad });
	if (c->reorder[out].pd)
		cpu_run(&c->reorder[out], (void *[]){ taken[out], operand[out], pad });
}

/* 16-bit floats that the processor does not multiply are computed on in f32. */
static void run(const conv *c, void *const *operand, void *bias, char *scratch)
{
	const int out = written(c->what);
	const bool whole = c->what != PD_FORWARD; /* the bias is written */
	void *given[4] = { operand[X], operand[W], operand[Y], bias }, *wide[4];

	if (c->as == c->type) {
		run_as_is(c, operand, bias, scratch);
		return;
	}
	for (int i = 0; i < 4; i++)
		wide[i] = i == out || (i == BIAS && whole) ? pd_room_f32(i, c->size[i])
		                                           : pd_widen(i, c->type, given[i], c->size[i]);
	run_as_is(c, wide, wide[BIAS], scratch);
	pd_narrow(c->type, given[out], wide[out], c->size[out]);
	if (whole)
		pd_narrow(c->type, bias, wide[BIAS], c->size[BIAS]);
}

static void *read_only(const void *p) { return (void *)(uintptr_t)p; }

void pd_conv_forward(const pd_conv *o, void *y, const void *x, const void *w, const void *b, void *scratch)
{
	run(o->impl, (void *[]){ read_only(x), read_only(w), y }, read_only(b), scratch);
}

void pd_conv_backward_data(const pd_conv *o, void *dx, const void *dy, const void *w, void *scratch)
{
	run(o->impl, (void *[]){ dx, read_only(w), read_only(dy) }, NULL, scratch);
}

void pd_conv_backward_weights(const pd_conv *o, void *dw, void *db, const void *x, const void *dy, void *scratch)
{
	run(o->impl, (void *[]){ read_only(x), dw, read_only(dy) }, db, scratch);
}
