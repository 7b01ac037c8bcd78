/* gpu_norm.cu: batch normalization in training mode over images in plain order, a block per channel, where cuDNN does not do it
 * (gpu_bn.c). The sums are added in f64 and always in one order. And what lies between the library's statistics and ours. */
#include "gpu.h"

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

static __global__ void variance(float *v, int c, float eps)
{
	const int k = blockIdx.x * blockDim.x + threadIdx.x;

	if (k < c) {
		const double is = 1 / ((double)v[k] * (double)v[k]) - (double)eps;
		v[k] = is > 0 ? (float)is : 0;
	}
}

static __global__ void inverse(float *to, const float *v, int c, float eps)
{
	const int k = blockIdx.x * blockDim.x + threadIdx.x;

	if (k < c)
		to[k] = (float)(1 / sqrt((double)v[k] + (double)eps));
}

}

static int inner_of(const pd_bn_desc *d)
{
	return d->sp[0] * d->sp[1] * d->sp[2];
}

PD_HOST void pd_norm_forward(const pd_bn_desc *d, float *y, float *mean, float *var, const float *x, const float *scale,
                             const float *bias)
{
	PD_LAUNCH(device::forward, (unsigned)d->c, 512, 0, y, mean, var, x, scale, bias, d->n, d->c, inner_of(d), d->eps);
}

PD_HOST void pd_norm_evaluate(const pd_bn_desc *d, float *y, const float *x, const float *scale, const float *bias, const float *mean,
                              const float *var)
{
	PD_LAUNCH(device::evaluate, (unsigned)d->c, 512, 0, y, x, scale, bias, mean, var, d->n, d->c, inner_of(d), d->eps);
}

PD_HOST void pd_norm_backward(const pd_bn_desc *d, float *dx, float *dscale, float *dbias, const float *dy, const float *x,
                              const float *mean, const float *var, const float *scale)
{
	PD_LAUNCH(device::backward, (unsigned)d->c, 512, 0, dx, dscale, dbias, dy, x, mean, var, scale, d->n, d->c, inner_of(d),
	          d->eps);
}

PD_HOST void pd_norm_variance(float *v, int c, float eps)
{
	PD_LAUNCH(device::variance, pd_blocks(c, 256), 256, 0, v, c, eps);
}

PD_HOST void pd_norm_inverse(float *to, const float *var, int c, float eps)
{
	PD_LAUNCH(device::inverse, pd_blocks(c, 256), 256, 0, to, var, c, eps);
}
