/* standin_images.c: cuDNN's activations, batch normalization and pooling, as its documentation says what they give. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "standin_dnn.h"

static bool same(const struct cudnnTensorStruct *a, const struct cudnnTensorStruct *b)
{
	return a->rank == b->rank && a->type == b->type && (a->last == b->last || a->either || b->either) &&
	       !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim);
}

static size_t bytes_of(const struct cudnnTensorStruct *t)
{
	return (size_t)t->dim[0] * (size_t)t->dim[1] * (size_t)standin_dnn_points(t) *
	       (t->type == CUDNN_DATA_FLOAT ? 4 : 2);
}

/* ---- activations ---- */

API cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *a)
{
	return standin_dnn_made(*a = calloc(1, sizeof **a));
}

API cudnnStatus_t cudnnSetActivationDescriptor(
	cudnnActivationDescriptor_t a, cudnnActivationMode_t mode, cudnnNanPropagation_t nan, double coef)
{
	if (coef != 0)
		return CUDNN_STATUS_NOT_SUPPORTED;
	*a = (struct cudnnActivationStruct){ mode, nan };
	return CUDNN_STATUS_SUCCESS;
}

typedef struct activation {
	struct cudnnTensorStruct t;
	const void *x;
	void *y;
} activation;

static standin_end relu(void *what)
{
	const activation *a = what;
	const int64_t n = (int64_t)a->t.dim[0] * a->t.dim[1] * standin_dnn_points(&a->t);

	standin_device(1);
	standin_touch("cuDNN's activation", ORDER_READS, a->x, bytes_of(&a->t));
	standin_touch("cuDNN's activation", ORDER_WRITES, a->y, bytes_of(&a->t));
	for (int64_t i = 0; i < n; i++) {
		const float v = standin_dnn_get(&a->t, a->x, i);
		standin_dnn_put(&a->t, a->y, i, v > 0 ? v : 0);
	}
	standin_device(0);
	return STANDIN_DONE;
}

API cudnnStatus_t cudnnActivationForward(cudnnHandle_t h, cudnnActivationDescriptor_t a, const void *alpha,
	cudnnTensorDescriptor_t xd, const void *x, const void *beta, cudnnTensorDescriptor_t yd, void *y)
{
	if (!same(xd, yd))
		return CUDNN_STATUS_BAD_PARAM;
	if (standin_dnn_lacks_ends() || a->mode != CUDNN_ACTIVATION_RELU || a->nan != CUDNN_NOT_PROPAGATE_NAN ||
		!standin_dnn_plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(standin_stream(h->stream), relu, &(activation){ *xd, x, y }, sizeof(activation));
	return CUDNN_STATUS_SUCCESS;
}

/* ---- batch normalization: statistics of a channel in f64 ---- */

typedef struct norm {
	struct cudnnTensorStruct t;
	const float *x, *dy, *scale, *bias, *mean, *inverse; /* in; of evaluation: the running mean and variance */
	float *to, *first, *second;                          /* y, mean, inverse; dx, dscale, dbias */
	float *running_mean, *running_var;
	double factor, epsilon;
} norm;

/* f of all elements of channel c, added up. */
static double sum(const norm *o, int c, double (*f)(const norm *o, int64_t at, double m, double inverse), double m,
	double inverse)
{
	const int64_t sp = standin_dnn_points(&o->t);
	double s = 0;

	for (int n = 0; n < o->t.dim[0]; n++)
		for (int64_t i = 0; i < sp; i++)
			s += f(o, ((int64_t)n * o->t.dim[1] + c) * sp + i, m, inverse);
	return s;
}

static void touch(const norm *o)
{
	const char *who = o->dy ? "cuDNN's gradient of normalization" : "cuDNN's normalization";
	const void *const row[] = { o->scale, o->bias, o->mean, o->inverse, o->first, o->second, o->running_mean,
		o->running_var };

	standin_device(1);
	standin_touch(who, ORDER_READS, o->x, bytes_of(&o->t));
	standin_touch(who, ORDER_WRITES, o->to, bytes_of(&o->t));
	if (o->dy)
		standin_touch(who, ORDER_READS, o->dy, bytes_of(&o->t));
	for (int i = 0; i < 8; i++)
		if (row[i])
			standin_touch(
				who, i < 4 ? ORDER_READS : ORDER_WRITES, row[i], (size_t)o->t.dim[1] * sizeof(float));
}

static double count(const norm *o) { return (double)o->t.dim[0] * (double)standin_dnn_points(&o->t); }

static double value(const norm *o, int64_t at, double m, double inverse)
{
	(void)inverse;
	return (double)o->x[at] - m;
}

static double square(const norm *o, int64_t at, double m, double inverse)
{
	return value(o, at, m, inverse) * value(o, at, m, inverse);
}

static double slope(const norm *o, int64_t at, double m, double inverse)
{
	(void)m;
	(void)inverse;
	return (double)o->dy[at];
}

static double product(const norm *o, int64_t at, double m, double inverse)
{
	return (double)o->dy[at] * value(o, at, m, 0) * inverse;
}

static void write(const norm *o, int c, double m, double by, double plus)
{
	const int64_t sp = standin_dnn_points(&o->t);

	for (int n = 0; n < o->t.dim[0]; n++)
		for (int64_t i = 0; i < sp; i++) {
			const int64_t at = ((int64_t)n * o->t.dim[1] + c) * sp + i;
			o->to[at] = (float)(((double)o->x[at] - m) * by + plus);
		}
}

/* Running variances are of the sample, not of the population. */
static standin_end train(void *what)
{
	const norm *o = what;
	const double n = count(o);

	touch(o);
	for (int c = 0; c < o->t.dim[1]; c++) {
		const double m = sum(o, c, value, 0, 0) / n, v = sum(o, c, square, m, 0) / n,
			     inverse = 1 / sqrt(v + o->epsilon);

		write(o, c, m, inverse * (double)o->scale[c], (double)o->bias[c]);
		if (o->first) {
			o->first[c] = (float)m;
			o->second[c] = (float)inverse;
		}
		if (o->running_mean) {
			o->running_mean[c] = (float)(m * o->factor + (double)o->running_mean[c] * (1 - o->factor));
			o->running_var[c] =
				(float)(v * n / (n - 1) * o->factor + (double)o->running_var[c] * (1 - o->factor));
		}
	}
	standin_device(0);
	return STANDIN_DONE;
}

static standin_end evaluate(void *what)
{
	const norm *o = what;

	touch(o);
	for (int c = 0; c < o->t.dim[1]; c++)
		write(o, c, (double)o->mean[c], (double)o->scale[c] / sqrt((double)o->inverse[c] + o->epsilon),
			(double)o->bias[c]);
	standin_device(0);
	return STANDIN_DONE;
}

static standin_end back(void *what)
{
	const norm *o = what;
	const int64_t sp = standin_dnn_points(&o->t);
	const double all = count(o);

	touch(o);
	for (int c = 0; c < o->t.dim[1]; c++) {
		const double m = (double)o->mean[c], inverse = (double)o->inverse[c];
		const double s = sum(o, c, slope, 0, 0), p = sum(o, c, product, m, inverse);

		for (int n = 0; n < o->t.dim[0]; n++)
			for (int64_t i = 0; i < sp; i++) {
				const int64_t at = ((int64_t)n * o->t.dim[1] + c) * sp + i;
				o->to[at] = (float)((double)o->scale[c] * inverse *
						    ((double)o->dy[at] - s / all -
							    ((double)o->x[at] - m) * inverse * p / all));
			}
		o->first[c] = (float)p;
		o->second[c] = (float)s;
	}
	standin_device(0);
	return STANDIN_DONE;
}

/* [1, C, 1, 1] of f32; images are f32 in plain order here, and per activation is asked for nowhere. */
static cudnnStatus_t fits(cudnnBatchNormMode_t mode, const struct cudnnTensorStruct *x,
	const struct cudnnTensorStruct *y, const struct cudnnTensorStruct *row, double epsilon)
{
	if (!same(x, y) || row->type != CUDNN_DATA_FLOAT || row->rank != x->rank || row->dim[0] != 1 ||
		row->dim[1] != x->dim[1] || standin_dnn_points(row) != 1 || epsilon < CUDNN_BN_MIN_EPSILON)
		return CUDNN_STATUS_BAD_PARAM;
	return mode == CUDNN_BATCHNORM_PER_ACTIVATION || x->type != CUDNN_DATA_FLOAT || x->last
	               ? CUDNN_STATUS_NOT_SUPPORTED
	               : CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnBatchNormalizationForwardTraining(cudnnHandle_t h, cudnnBatchNormMode_t mode, const void *alpha,
	const void *beta, cudnnTensorDescriptor_t xd, const void *x, cudnnTensorDescriptor_t yd, void *y,
	cudnnTensorDescriptor_t row, const void *scale, const void *bias, double factor, void *running_mean,
	void *running_var, double epsilon, void *mean, void *inverse)
{
	const cudnnStatus_t s = fits(mode, xd, yd, row, epsilon);

	if (s != CUDNN_STATUS_SUCCESS)
		return s;
	if (!x || !y || !scale || !bias || !running_mean != !running_var || !mean != !inverse)
		return CUDNN_STATUS_BAD_PARAM;
	if (!standin_dnn_plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(standin_stream(h->stream), train,
		&(norm){ .t = *xd,
			.x = x,
			.scale = scale,
			.bias = bias,
			.to = y,
			.first = mean,
			.second = inverse,
			.running_mean = running_mean,
			.running_var = running_var,
			.factor = factor,
			.epsilon = epsilon },
		sizeof(norm));
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnBatchNormalizationForwardInference(cudnnHandle_t h, cudnnBatchNormMode_t mode, const void *alpha,
	const void *beta, cudnnTensorDescriptor_t xd, const void *x, cudnnTensorDescriptor_t yd, void *y,
	cudnnTensorDescriptor_t row, const void *scale, const void *bias, const void *mean, const void *var,
	double epsilon)
{
	const cudnnStatus_t s = fits(mode, xd, yd, row, epsilon);

	if (s != CUDNN_STATUS_SUCCESS)
		return s;
	if (!x || !y || !scale || !bias || !mean || !var)
		return CUDNN_STATUS_BAD_PARAM;
	if (!standin_dnn_plain(alpha, beta))
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(standin_stream(h->stream), evaluate,
		&(norm){ .t = *xd,
			.x = x,
			.scale = scale,
			.bias = bias,
			.mean = mean,
			.inverse = var,
			.to = y,
			.epsilon = epsilon },
		sizeof(norm));
	return CUDNN_STATUS_SUCCESS;
}

/* Without what the forward saved it would be computed again, which is asked for nowhere. */
API cudnnStatus_t cudnnBatchNormalizationBackward(cudnnHandle_t h, cudnnBatchNormMode_t mode, const void *alpha_data,
	const void *beta_data, const void *alpha_param, const void *beta_param, cudnnTensorDescriptor_t xd,
	const void *x, cudnnTensorDescriptor_t dyd, const void *dy, cudnnTensorDescriptor_t dxd, void *dx,
	cudnnTensorDescriptor_t row, const void *scale, void *dscale, void *dbias, double epsilon, const void *mean,
	const void *inverse)
{
	const cudnnStatus_t s = fits(mode, xd, dyd, row, epsilon);

	if (s != CUDNN_STATUS_SUCCESS)
		return s;
	if (!same(xd, dxd) || !x || !dy || !dx || !scale || !dscale || !dbias || !mean != !inverse)
		return CUDNN_STATUS_BAD_PARAM;
	if (!standin_dnn_plain(alpha_data, beta_data) || !standin_dnn_plain(alpha_param, beta_param) || !mean)
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(standin_stream(h->stream), back,
		&(norm){ .t = *xd,
			.x = x,
			.dy = dy,
			.scale = scale,
			.mean = mean,
			.inverse = inverse,
			.to = dx,
			.first = dscale,
			.second = dbias },
		sizeof(norm));
	return CUDNN_STATUS_SUCCESS;
}
