/* gpu_norm.cu: batch normalization in training mode over images in plain order, a block per channel. The sums are added in
 * f64 and always in one order. */
#include "gpu.h"
#include <cstdlib>

namespace device {

static __global__ void forward(float *y, float *mean, float *var, const float *x, const float *scale, const float *bias, int n,
                               int c, int inner, float eps)
{
	const int k = blockIdx.x;
	const double count = (double)n * inner;
	double s = 0, p = 0;

	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x)
		s += (double)x[(i / inner * c + k) * inner + i % inner];
	const double m = pd_block_sum(s) / count;
	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x) {
		const double d = (double)x[(i / inner * c + k) * inner + i % inner] - m;
		p += d * d;
	}
	const double v = pd_block_sum(p) / count;
	const float by = scale[k] / sqrtf((float)v + eps);

	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x) {
		const int64_t at = (i / inner * c + k) * inner + i % inner;
		y[at] = (x[at] - (float)m) * by + bias[k];
	}
	if (threadIdx.x == 0) {
		mean[k] = (float)m;
		var[k] = (float)v;
	}
}

static __global__ void evaluate(float *y, const float *x, const float *scale, const float *bias, const float *mean,
                                const float *var, int n, int c, int inner, float eps)
{
	const int k = blockIdx.x;
	const float by = scale[k] / sqrtf(var[k] + eps);

	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x) {
		const int64_t at = (i / inner * c + k) * inner + i % inner;
		y[at] = (x[at] - mean[k]) * by + bias[k];
	}
}

static __global__ void backward(float *dx, float *dscale, float *dbias, const float *dy, const float *x, const float *mean,
                                const float *var, const float *scale, int n, int c, int inner, float eps)
{
	const int k = blockIdx.x;
	const float inv = 1 / sqrtf(var[k] + eps), m = mean[k];
	const double count = (double)n * inner;
	double s = 0, p = 0;

	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x) {
		const int64_t at = (i / inner * c + k) * inner + i % inner;
		s += (double)dy[at];
		p += (double)(dy[at] * (x[at] - m) * inv);
	}
	s = pd_block_sum(s);
	p = pd_block_sum(p);
	const float ms = (float)(s / count), mp = (float)(p / count);

	for (int64_t i = threadIdx.x; i < (int64_t)n * inner; i += blockDim.x) {
		const int64_t at = (i / inner * c + k) * inner + i % inner;
		dx[at] = scale[k] * inv * (dy[at] - ms - (x[at] - m) * inv * mp);
	}
	if (threadIdx.x == 0) {
		dscale[k] = (float)p;
		dbias[k] = (float)s;
	}
}

}

PD_HOST size_t pd_bn_scratch(const pd_bn_desc *)
{
	return 0;
}

PD_HOST void pd_bn_init(pd_bn *o, const pd_bn_desc *d)
{
	o->impl = malloc(sizeof *d);
	if (!o->impl)
		abort();
	memcpy(o->impl, d, sizeof *d);
}

static int inner_of(const pd_bn_desc *d)
{
	return d->sp[0] * d->sp[1] * d->sp[2];
}

PD_HOST void pd_bn_forward(const pd_bn *o, float *y, float *mean, float *var, const float *x, const float *scale,
                           const float *bias, void *)
{
	const pd_bn_desc *d = (const pd_bn_desc *)o->impl;

	PD_LAUNCH(device::forward, (unsigned)d->c, 512, 0, y, mean, var, x, scale, bias, d->n, d->c, inner_of(d), d->eps);
}

PD_HOST void pd_bn_evaluate(const pd_bn *o, float *y, const float *x, const float *scale, const float *bias, const float *mean,
                            const float *var)
{
	const pd_bn_desc *d = (const pd_bn_desc *)o->impl;

	PD_LAUNCH(device::evaluate, (unsigned)d->c, 512, 0, y, x, scale, bias, mean, var, d->n, d->c, inner_of(d), d->eps);
}

PD_HOST void pd_bn_backward(const pd_bn *o, float *dx, float *dscale, float *dbias, const float *dy, const float *x,
                            const float *mean, const float *var, const float *scale, void *)
{
	const pd_bn_desc *d = (const pd_bn_desc *)o->impl;

	PD_LAUNCH(device::backward, (unsigned)d->c, 512, 0, dx, dscale, dbias, dy, x, mean, var, scale, d->n, d->c, inner_of(d),
	          d->eps);
}
