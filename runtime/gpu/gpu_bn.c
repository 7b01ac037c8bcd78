/* gpu_bn.c: batch normalization, per channel. cuDNN does it for f32 images in plain order (CUDNN_BATCHNORM_SPATIAL). Running
 * statistics are no matter of the library: it is given none, and pdcc updates them once per step from the means and variances of all
 * microbatches (RunningStat). It keeps 1 / sqrt(variance + epsilon) for its backward where pdcc keeps the variance: small kernels stand
 * between. Kernels of ours (gpu_norm.cu) do images of 16-bit floats and channels-last ones, for which the library's fast form wants
 * fp16, and memory that lives from a forward to its backward; programs of --reproducible, whose order of sums is to be in our hands; and
 * an epsilon or a number of images that the library does not take. */
#include "gpu_dnn.h"

enum { MOST_IMAGES = 65535 }; /* a dimension of a CUDA grid */

typedef struct norm {
	pd_bn_desc d;
	cudnnTensorDescriptor_t x, row; /* NULL: kernels of ours */
} norm;

static rt_piece inverse; /* of the channels, for one backward at a time */
static rt_piece sums;    /* of kernels of ours, for one call at a time */

size_t pd_bn_scratch(const pd_bn_desc *d)
{
	(void)d;
	return 0;
}

static bool by_library(const pd_bn_desc *d)
{
	return d->type != PD_BF16 && d->type != PD_F16 && !d->nhwc && !d->relu && !rt_program->reproducible &&
	       (double)d->eps >= CUDNN_BN_MIN_EPSILON && d->n <= MOST_IMAGES && dnn_takes(d->n, d->c, d->nd, d->sp);
}

static size_t numbers(const norm *o)
{
	size_t n = sizeof(float) * (size_t)o->d.n * (size_t)o->d.c;

	for (int i = 0; i < o->d.nd; i++)
		n *= (size_t)o->d.sp[i];
	return n;
}

static void run_once(void *of, char *scrap)
{
	norm *o = of;
	const pd_bn p = { o };
	const size_t row = sizeof(float) * (size_t)o->d.c;
	float *x = rt_part(&scrap, numbers(o)), *y = rt_part(&scrap, numbers(o)), *dy = rt_part(&scrap, numbers(o));
	float *scale = rt_part(&scrap, row), *bias = rt_part(&scrap, row), *mean = rt_part(&scrap, row),
	      *var = rt_part(&scrap, row);

	if (o->d.what == PD_BACKWARD_DATA) {
		pd_bn_backward(&p, y, scale, bias, dy, x, mean, var, (float *)(void *)scrap, NULL);
		return;
	}
	pd_bn_forward(&p, y, mean, var, x, scale, bias, NULL);
	pd_bn_evaluate(&p, y, x, scale, bias, mean, var);
}

void pd_bn_init(pd_bn *p, const pd_bn_desc *d)
{
	norm *o = rt_alloc(sizeof *o);

	p->impl = o;
	o->d = *d;
	if (rt_virtual)
		return;
	if (!by_library(d)) {
		o->d.nhwc |= d->sp[0] * d->sp[1] * d->sp[2] == 1; /* both orders at once: read as the faster one */
		rt_want(&sums, pd_norm_room(&o->d), "batch normalization");
		return;
	}
	o->x = dnn_tensor(PD_F32, d->n, d->c, d->nd, d->sp, false);
	o->row = dnn_tensor(PD_F32, 1, d->c, d->nd, (const int[]){ 1, 1, 1 }, false);
	if (d->what == PD_BACKWARD_DATA)
		rt_want(&inverse, (size_t)d->c * sizeof(float), "batch normalization");
	rt_first_run(run_once, o, 3 * rt_part_bytes(numbers(o)) + 5 * rt_part_bytes(sizeof(float) * (size_t)d->c));
}

void pd_bn_forward(const pd_bn *p, void *y, float *mean, float *var, const void *x, const float *scale,
	const float *bias, void *scratch)
{
	const norm *o = p->impl;
	const float one = 1, none = 0;

	(void)scratch;
	if (!o->x) {
		pd_norm_forward(&o->d, y, mean, var, x, scale, bias, NULL, sums.at);
		return;
	}
	dnn_check(cudnnBatchNormalizationForwardTraining(dnn_handle(), CUDNN_BATCHNORM_SPATIAL, &one, &none, o->x, x,
			  o->x, y, o->row, scale, bias, 0, NULL, NULL, (double)o->d.eps, mean, var),
		"cudnnBatchNormalizationForwardTraining");
	pd_norm_variance(var, o->d.c, o->d.eps);
}

void pd_bn_evaluate(const pd_bn *p, void *y, const void *x, const float *scale, const float *bias, const float *mean,
	const float *var)
{
	const norm *o = p->impl;
	const float one = 1, none = 0;

	if (!o->x)
		pd_norm_evaluate(&o->d, y, x, scale, bias, mean, var, NULL);
	else
		dnn_check(cudnnBatchNormalizationForwardInference(dnn_handle(), CUDNN_BATCHNORM_SPATIAL, &one, &none,
				  o->x, x, o->x, y, o->row, scale, bias, mean, var, (double)o->d.eps),
			"cudnnBatchNormalizationForwardInference");
}

void pd_bn_backward(const pd_bn *p, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	const float *mean, const float *var, const float *scale, void *scratch)
{
	const norm *o = p->impl;
	const float one = 1, none = 0;

	(void)scratch;
	if (!o->x) {
		pd_norm_backward(&o->d, dx, dscale, dbias, dy, x, mean, var, scale, NULL, sums.at);
		return;
	}
	pd_norm_inverse(inverse.at, var, o->d.c, o->d.eps);
	dnn_check(cudnnBatchNormalizationBackward(dnn_handle(), CUDNN_BATCHNORM_SPATIAL, &one, &none, &one, &none, o->x,
			  x, o->x, dy, o->x, dx, o->row, scale, dscale, dbias, (double)o->d.eps, mean, inverse.at),
		"cudnnBatchNormalizationBackward");
}

void pd_bn_relu_forward(const pd_bn *p, void *y, float *mean, float *var, const void *x, const float *scale,
	const float *bias, const void *more)
{
	const norm *o = p->impl;

	pd_norm_forward(&o->d, y, mean, var, x, scale, bias, more, sums.at);
}

void pd_bn_relu_evaluate(const pd_bn *p, void *y, const void *x, const float *scale, const float *bias,
	const float *mean, const float *var, const void *more)
{
	const norm *o = p->impl;

	pd_norm_evaluate(&o->d, y, x, scale, bias, mean, var, more);
}

void pd_bn_relu_backward(const pd_bn *p, void *dx, float *dscale, float *dbias, const void *dy, const void *x,
	const float *mean, const float *var, const float *scale, const float *bias)
{
	const norm *o = p->impl;

	pd_norm_backward(&o->d, dx, dscale, dbias, dy, x, mean, var, scale, bias, sums.at);
}
