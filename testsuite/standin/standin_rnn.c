/* standin_rnn.c: recurrent layers of cuDNN: one layer, one direction, f32, sequences of one length, as emitted programs ask for them.
 * What the library leaves open is laid out unlike one would guess: recurrent matrices lie in front of those of the input, with
 * gaps. The reserve says how far it got: gradients by data need a forward, those by weights the gradients by data, once.
 * STANDIN_RESERVE: the reserve is so many times as large as it need be. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pd.h"
#include "standin_dnn.h"

enum { LINE = 16 }; /* floats of a cache line */

struct cudnnDropoutStruct {
	int set;
};
struct cudnnRNNStruct {
	int set, cell, bias, inputs, hidden, gates;
};
struct cudnnRNNDataStruct {
	int steps, batch, width;
};

typedef struct cudnnRNNStruct rnn;

API cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t *d)
{
	return standin_dnn_made(*d = calloc(1, sizeof **d));
}
API cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *r)
{
	return standin_dnn_made(*r = calloc(1, sizeof **r));
}
API cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *s)
{
	return standin_dnn_made(*s = calloc(1, sizeof **s));
}

API cudnnStatus_t cudnnSetDropoutDescriptor(
	cudnnDropoutDescriptor_t d, cudnnHandle_t h, float p, void *states, size_t bytes, unsigned long long seed)
{
	(void)h;
	(void)states;
	(void)bytes;
	(void)seed;
	d->set = 1;
	return p == 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

API cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t r, cudnnRNNAlgo_t algo, cudnnRNNMode_t cell,
	cudnnRNNBiasMode_t bias, cudnnDirectionMode_t direction, cudnnRNNInputMode_t input, cudnnDataType_t type,
	cudnnDataType_t math, cudnnMathType_t how, int32_t inputs, int32_t hidden, int32_t projected, int32_t layers,
	cudnnDropoutDescriptor_t dropout, uint32_t flags)
{
	if (!dropout || !dropout->set || inputs < 1 || hidden < 1 || projected < 1 || projected > hidden ||
		layers < 1 || (projected != hidden && cell != CUDNN_LSTM))
		return CUDNN_STATUS_BAD_PARAM;
	if (algo != CUDNN_RNN_ALGO_STANDARD || direction != CUDNN_UNIDIRECTIONAL || input != CUDNN_LINEAR_INPUT ||
		layers > 1 || type != CUDNN_DATA_FLOAT || math != CUDNN_DATA_FLOAT || how != CUDNN_FMA_MATH ||
		projected != hidden || flags || bias == CUDNN_RNN_SINGLE_REC_BIAS)
		return CUDNN_STATUS_NOT_SUPPORTED;
	*r = (rnn){ 1, (int)cell, (int)bias, inputs, hidden, cell == CUDNN_LSTM ? 4 : cell == CUDNN_GRU ? 3 : 1 };
	return CUDNN_STATUS_SUCCESS;
}

/* Packed sequences come longest first; here all are as long as the longest. */
API cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t s, cudnnDataType_t type,
	cudnnRNNDataLayout_t layout, int steps, int batch, int width, const int lengths[], void *fill)
{
	(void)fill;
	if (steps < 1 || batch < 1 || width < 1 || !lengths)
		return CUDNN_STATUS_BAD_PARAM;
	for (int i = 0; i < batch; i++)
		if (lengths[i] < 1 || lengths[i] > steps || (i && lengths[i] > lengths[i - 1]))
			return CUDNN_STATUS_BAD_PARAM;
	if (type != CUDNN_DATA_FLOAT || layout != CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED || lengths[batch - 1] != steps)
		return CUDNN_STATUS_NOT_SUPPORTED;
	*s = (struct cudnnRNNDataStruct){ steps, batch, width };
	return CUDNN_STATUS_SUCCESS;
}

/* ---- the weight space: recurrent matrices, those of the input, biases of the input, recurrent biases ---- */

static size_t lines(size_t n) { return (n + LINE - 1) / LINE * LINE + LINE; }

/* Where matrix `id` begins, the input's first as the library counts them; 2 * gates: all of them. In floats. */
static size_t matrix_at(const rnn *r, int id)
{
	const size_t h = (size_t)r->hidden, recurrent = lines(h * h), input = lines(h * (size_t)r->inputs);
	const int g = r->gates;

	return id < g       ? (size_t)g * recurrent + (size_t)id * input
	       : id < 2 * g ? (size_t)(id - g) * recurrent
	                    : (size_t)g * (recurrent + input);
}

static size_t bias_at(const rnn *r, int id)
{
	return matrix_at(r, 2 * r->gates) + (size_t)id * lines((size_t)r->hidden);
}

static size_t weight_bytes(const rnn *r) { return sizeof(float) * bias_at(r, r->bias * r->gates); }

API cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t h, cudnnRNNDescriptor_t r, size_t *bytes)
{
	if (!h || !r->set)
		return CUDNN_STATUS_BAD_PARAM;
	*bytes = weight_bytes(r);
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t h, cudnnRNNDescriptor_t r, int32_t layer, size_t bytes,
	const void *space, int32_t id, cudnnTensorDescriptor_t matrix, void **at, cudnnTensorDescriptor_t bias,
	void **b)
{
	const int columns = id < r->gates ? r->inputs : r->hidden;

	if (!h || !r->set || layer || bytes != weight_bytes(r) || id < 0 || id >= 2 * r->gates || !space)
		return CUDNN_STATUS_BAD_PARAM;
	*matrix = (struct cudnnTensorStruct){ .rank = 3, .dim = { 1, r->hidden, columns }, .type = CUDNN_DATA_FLOAT };
	*at = (float *)(uintptr_t)space + matrix_at(r, id);
	*b = NULL;
	*bias = (struct cudnnTensorStruct){ 0 };
	if (id < r->bias * r->gates) {
		*bias = (struct cudnnTensorStruct){ .rank = 3, .dim = { 1, r->hidden, 1 }, .type = CUDNN_DATA_FLOAT };
		*b = (float *)(uintptr_t)space + bias_at(r, id);
	}
	return CUDNN_STATUS_SUCCESS;
}

/* ---- the reserve: what it is of, then the gates and one more of every step ---- */

typedef struct stamp {
	char what[16];
	rnn of;
	int steps, batch;
} stamp;
enum { STAMP = 32 }; /* floats */

static size_t block(const rnn *r, int batch) { return (size_t)batch * (size_t)r->hidden; }

static size_t reserve_bytes(const rnn *r, int steps, int batch)
{
	const char *times = getenv("STANDIN_RESERVE");

	return sizeof(float) * (STAMP + (size_t)steps * (size_t)(r->gates + 1) * block(r, batch)) *
	       (size_t)(times ? atoi(times) : 1);
}

static size_t work_bytes(const rnn *r, int batch)
{
	return sizeof(float) * (size_t)(2 * r->gates + 2) * block(r, batch);
}

API cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t h, cudnnRNNDescriptor_t r, cudnnForwardMode_t mode,
	cudnnRNNDataDescriptor_t x, size_t *work, size_t *reserve)
{
	if (!h || !r->set || !x->steps || x->width != r->inputs)
		return CUDNN_STATUS_BAD_PARAM;
	*work = work_bytes(r, x->batch);
	*reserve = mode == CUDNN_FWD_MODE_TRAINING ? reserve_bytes(r, x->steps, x->batch) : 0;
	return CUDNN_STATUS_SUCCESS;
}

typedef struct call {
	rnn r;
	int steps, batch;
	const float *x, *y, *dy, *hx, *cx, *dhy, *dcy, *w;
	float *to_y, *hy, *cy, *dx, *dhx, *dcx, *dw, *work, *reserve;
} call;

static void stamp_is(const call *c, const char *before, const char *after)
{
	stamp *s = (stamp *)c->reserve;

	_Static_assert(sizeof(stamp) <= STAMP * sizeof(float), "room for it");
	if (before && (strncmp(s->what, before, sizeof s->what) || memcmp(&s->of, &c->r, sizeof c->r) ||
			      s->steps != c->steps || s->batch != c->batch)) {
		fprintf(stderr, "standin: the reserve of a recurrent layer is '%.15s', not '%s' of this one\n", s->what,
			before);
		abort();
	}
	memset(s, 0, sizeof *s);
	strcpy(s->what, after);
	s->of = c->r;
	s->steps = c->steps;
	s->batch = c->batch;
}

static float *kept(const call *c, int t, int which)
{
	return c->reserve + STAMP + ((size_t)t * (size_t)(c->r.gates + 1) + (size_t)which) * block(&c->r, c->batch);
}

/* What a call is given belongs to the program (standin_touch). */
static void touch(const call *c)
{
	const size_t n = block(&c->r, c->batch) * sizeof(float), steps = (size_t)c->steps;
	const size_t x = steps * (size_t)c->batch * (size_t)c->r.inputs * sizeof(float);
	const char *who = c->to_y ? "cuDNN's recurrent layer" : "cuDNN's gradient of a recurrent layer";
	const void *const reads[] = { c->hx, c->cx, c->dhy, c->dcy }, *const writes[] = { c->hy, c->cy, c->dhx,
		c->dcx };

	for (int i = 0; i < 4; i++) {
		standin_touch(who, ORDER_READS, reads[i], n);
		standin_touch(who, ORDER_WRITES, writes[i], n);
	}
	standin_touch(who, ORDER_READS, c->x, x);
	standin_touch(who, ORDER_WRITES, c->dx, x);
	standin_touch(who, ORDER_READS, c->y, n * steps);
	standin_touch(who, ORDER_WRITES, c->to_y, n * steps);
	standin_touch(who, ORDER_READS, c->dy, n * steps);
	standin_touch(who, ORDER_READS, c->w, weight_bytes(&c->r));
	standin_touch(who, ORDER_WRITES, c->dw, weight_bytes(&c->r));
	standin_touch(who, ORDER_WRITES, c->reserve, reserve_bytes(&c->r, c->steps, c->batch));
	standin_touch(who, ORDER_WRITES, c->work, work_bytes(&c->r, c->batch));
}

/* to (+)= a op(matrix id): a [batch, rows or columns of the matrix]. */
static void times(const call *c, float *to, const float *a, int id, bool turned, bool adds)
{
	const int h = c->r.hidden, k = id < c->r.gates ? c->r.inputs : h;
	const float *w = c->w + matrix_at(&c->r, id);

	if (turned)
		pd_gemm(0, 1, c->batch, h, k, a, k, w, k, adds, to, h);
	else
		pd_gemm(0, 0, c->batch, k, h, a, h, w, k, adds, to, k);
}

static void add_bias(const call *c, float *to, int id)
{
	const float *b = c->w + bias_at(&c->r, id);

	for (size_t e = 0; id < c->r.bias * c->r.gates && e < block(&c->r, c->batch); e++)
		to[e] += b[e % (size_t)c->r.hidden];
}

static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

/* One element: v[g] is the input's part of a gate, r[g] the recurrent part; gives h, and leaves in v what the gradient wants. */
static float cell(const call *c, float *const *v, float *const *r, size_t e, float *state, float h)
{
	switch (c->r.cell) {
	case CUDNN_LSTM:
		for (int g = 0; g < 4; g++)
			v[g][e] = g == 2 ? tanhf(v[g][e] + r[g][e]) : sigmoid(v[g][e] + r[g][e]);
		state[e] = v[1][e] * state[e] + v[0][e] * v[2][e];
		v[4][e] = state[e];
		return v[3][e] * tanhf(state[e]);
	case CUDNN_GRU:
		v[0][e] = sigmoid(v[0][e] + r[0][e]);
		v[1][e] = sigmoid(v[1][e] + r[1][e]);
		v[2][e] = tanhf(v[2][e] + v[0][e] * r[2][e]);
		v[3][e] = r[2][e];
		return (1 - v[1][e]) * v[2][e] + v[1][e] * h;
	case CUDNN_RNN_RELU: return fmaxf(v[0][e] + r[0][e], 0);
	default: return tanhf(v[0][e] + r[0][e]);
	}
}

static void garbage(const call *c)
{
	for (size_t i = 0; i < work_bytes(&c->r, c->batch) / sizeof(float); i++)
		c->work[i] = NAN;
}

static void zero_or(float *to, const float *from, size_t n)
{
	if (from)
		memcpy(to, from, n * sizeof *to);
	else
		memset(to, 0, n * sizeof *to);
}

static standin_end forward(void *what)
{
	const call *c = what;
	const int g = c->r.gates;
	const size_t n = block(&c->r, c->batch);
	float *state = c->work, *h = c->work + n, *r[4], *v[5];

	standin_device(1);
	touch(c);
	garbage(c);
	stamp_is(c, NULL, "forward");
	zero_or(state, c->cx, n);
	zero_or(h, c->hx, n);
	for (int t = 0; t < c->steps; t++) {
		for (int k = 0; k <= g; k++)
			v[k] = kept(c, t, k);
		for (int k = 0; k < g; k++) {
			r[k] = c->work + (size_t)(2 + k) * n;
			times(c, v[k], c->x + (size_t)t * (size_t)c->batch * (size_t)c->r.inputs, k, true, false);
			times(c, r[k], h, g + k, true, false);
			add_bias(c, v[k], k);
			add_bias(c, r[k], g + k);
		}
		for (size_t e = 0; e < n; e++)
			c->to_y[(size_t)t * n + e] = h[e] = cell(c, v, r, e, state, h[e]);
	}
	if (c->hy)
		memcpy(c->hy, h, n * sizeof *h);
	if (c->cy)
		memcpy(c->cy, state, n * sizeof *h);
	garbage(c);
	standin_device(0);
	return STANDIN_DONE;
}

/* One element of a step back: v as the forward left it becomes the gradients before the gates, the last of a GRU that of the
 * recurrent part of n. d: the gradient of h. Gives what of it goes straight to the h before. */
static float cell_back(
	const call *c, float *const *v, size_t e, float d, float y, float before, float state, float *dstate)
{
	switch (c->r.cell) {
	case CUDNN_LSTM: {
		const float i = v[0][e], f = v[1][e], a = v[2][e], o = v[3][e], tc = tanhf(v[4][e]),
			    ds = dstate[e] + d * o * (1 - tc * tc);

		v[0][e] = ds * a * i * (1 - i);
		v[1][e] = ds * state * f * (1 - f);
		v[2][e] = ds * i * (1 - a * a);
		v[3][e] = d * tc * o * (1 - o);
		dstate[e] = ds * f;
		return 0;
	}
	case CUDNN_GRU: {
		const float r = v[0][e], z = v[1][e], a = v[2][e], q = v[3][e], da = d * (1 - z) * (1 - a * a);

		v[0][e] = da * q * r * (1 - r);
		v[1][e] = d * (before - a) * z * (1 - z);
		v[2][e] = da;
		v[3][e] = da * r;
		return d * z;
	}
	case CUDNN_RNN_RELU: v[0][e] = y > 0 ? d : 0; return 0;
	default: v[0][e] = d * (1 - y * y); return 0;
	}
}

/* The gradient before gate k as the recurrent product has it. */
static int recurrent_part(const call *c, int k) { return c->r.cell == CUDNN_GRU && k == 2 ? 3 : k; }

static const float *before(const call *c, int t) { return t ? c->y + (size_t)(t - 1) * block(&c->r, c->batch) : c->hx; }

static standin_end back_data(void *what)
{
	const call *c = what;
	const int g = c->r.gates;
	const size_t n = block(&c->r, c->batch);
	float *dh = c->work, *dc = c->work + n, *older = c->work + 2 * n, *v[5];

	standin_device(1);
	touch(c);
	garbage(c);
	stamp_is(c, "forward", "data");
	zero_or(dh, c->dhy, n);
	zero_or(dc, c->dcy, n);
	for (int t = c->steps - 1; t >= 0; t--) {
		const float *hp = before(c, t);

		for (int k = 0; k <= g; k++)
			v[k] = kept(c, t, k);
		zero_or(older, c->r.cell != CUDNN_LSTM ? NULL : t ? kept(c, t - 1, 4) : c->cx, n);
		for (size_t e = 0; e < n; e++)
			dh[e] = cell_back(c, v, e, dh[e] + c->dy[(size_t)t * n + e], c->y[(size_t)t * n + e],
				hp ? hp[e] : 0, older[e], dc);
		for (int k = 0; k < g; k++) {
			times(c, c->dx + (size_t)t * (size_t)c->batch * (size_t)c->r.inputs, v[k], k, false, k > 0);
			times(c, dh, v[recurrent_part(c, k)], g + k, false, true);
		}
	}
	if (c->dhx)
		memcpy(c->dhx, dh, n * sizeof *dh);
	if (c->dcx)
		memcpy(c->dcx, dc, n * sizeof *dc);
	garbage(c);
	standin_device(0);
	return STANDIN_DONE;
}

static void sum_rows(const call *c, int id, const float *d)
{
	float *b = c->dw + bias_at(&c->r, id);

	for (size_t e = 0; id < c->r.bias * c->r.gates && e < block(&c->r, c->batch); e++)
		b[e % (size_t)c->r.hidden] += d[e];
}

static standin_end back_weights(void *what)
{
	const call *c = what;
	const int g = c->r.gates, h = c->r.hidden, in = c->r.inputs;

	standin_device(1);
	touch(c);
	garbage(c);
	stamp_is(c, "data", "weights");
	for (int t = 0; t < c->steps; t++)
		for (int k = 0; k < g; k++) {
			const float *d = kept(c, t, k), *dr = kept(c, t, recurrent_part(c, k)), *hp = before(c, t);

			pd_gemm(1, 0, h, in, c->batch, d, h, c->x + (size_t)t * (size_t)c->batch * (size_t)in, in, 1,
				c->dw + matrix_at(&c->r, k), in);
			if (hp)
				pd_gemm(1, 0, h, h, c->batch, dr, h, hp, h, 1, c->dw + matrix_at(&c->r, g + k), h);
			sum_rows(c, k, d);
			sum_rows(c, g + k, dr);
		}
	standin_device(0);
	return STANDIN_DONE;
}

/* ---- what is checked of every call ---- */

static bool states(const rnn *r, cudnnTensorDescriptor_t d, int batch)
{
	return d && d->rank == 3 && d->dim[0] == 1 && d->dim[1] == batch && d->dim[2] == r->hidden &&
	       d->type == CUDNN_DATA_FLOAT;
}

static bool fits(const rnn *r, cudnnRNNDataDescriptor_t x, cudnnRNNDataDescriptor_t y, cudnnTensorDescriptor_t hd,
	const void *weights, size_t weighs, const void *work, size_t work_has, const void *reserve, size_t reserve_has)
{
	return r->set && x->steps && x->steps == y->steps && x->batch == y->batch && x->width == r->inputs &&
	       y->width == r->hidden && states(r, hd, x->batch) && weights && weighs == weight_bytes(r) && work &&
	       work_has >= work_bytes(r, x->batch) && reserve && reserve_has >= reserve_bytes(r, x->steps, x->batch);
}

API cudnnStatus_t cudnnRNNForward(cudnnHandle_t h, cudnnRNNDescriptor_t r, cudnnForwardMode_t mode,
	const int32_t lengths[], cudnnRNNDataDescriptor_t xd, const void *x, cudnnRNNDataDescriptor_t yd, void *y,
	cudnnTensorDescriptor_t hd, const void *hx, void *hy, cudnnTensorDescriptor_t cd, const void *cx, void *cy,
	size_t weighs, const void *weights, size_t work_has, void *work, size_t reserve_has, void *reserve)
{
	if (!h || !x || !y || !fits(r, xd, yd, hd, weights, weighs, work, work_has, reserve, reserve_has) ||
		(r->cell == CUDNN_LSTM && !states(r, cd, xd->batch)))
		return CUDNN_STATUS_BAD_PARAM;
	if (mode != CUDNN_FWD_MODE_TRAINING || lengths)
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(standin_stream(h->stream), forward,
		&(call){ .r = *r,
			.steps = xd->steps,
			.batch = xd->batch,
			.x = x,
			.hx = hx,
			.cx = cx,
			.w = weights,
			.to_y = y,
			.hy = hy,
			.cy = r->cell == CUDNN_LSTM ? cy : NULL,
			.work = work,
			.reserve = reserve },
		sizeof(call));
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnRNNBackwardData_v8(cudnnHandle_t h, cudnnRNNDescriptor_t r, const int32_t lengths[],
	cudnnRNNDataDescriptor_t yd, const void *y, const void *dy, cudnnRNNDataDescriptor_t xd, void *dx,
	cudnnTensorDescriptor_t hd, const void *hx, const void *dhy, void *dhx, cudnnTensorDescriptor_t cd,
	const void *cx, const void *dcy, void *dcx, size_t weighs, const void *weights, size_t work_has, void *work,
	size_t reserve_has, void *reserve)
{
	if (!h || !y || !dy || !dx || !fits(r, xd, yd, hd, weights, weighs, work, work_has, reserve, reserve_has) ||
		(r->cell == CUDNN_LSTM && !states(r, cd, xd->batch)))
		return CUDNN_STATUS_BAD_PARAM;
	if (lengths)
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(standin_stream(h->stream), back_data,
		&(call){ .r = *r,
			.steps = xd->steps,
			.batch = xd->batch,
			.y = y,
			.dy = dy,
			.hx = hx,
			.cx = cx,
			.dhy = dhy,
			.dcy = r->cell == CUDNN_LSTM ? dcy : NULL,
			.w = weights,
			.dx = dx,
			.dhx = dhx,
			.dcx = r->cell == CUDNN_LSTM ? dcx : NULL,
			.work = work,
			.reserve = reserve },
		sizeof(call));
	return CUDNN_STATUS_SUCCESS;
}

API cudnnStatus_t cudnnRNNBackwardWeights_v8(cudnnHandle_t h, cudnnRNNDescriptor_t r, cudnnWgradMode_t add,
	const int32_t lengths[], cudnnRNNDataDescriptor_t xd, const void *x, cudnnTensorDescriptor_t hd, const void *hx,
	cudnnRNNDataDescriptor_t yd, const void *y, size_t weighs, void *dweights, size_t work_has, void *work,
	size_t reserve_has, void *reserve)
{
	if (!h || !x || !y || !fits(r, xd, yd, hd, dweights, weighs, work, work_has, reserve, reserve_has))
		return CUDNN_STATUS_BAD_PARAM;
	if (add != CUDNN_WGRAD_MODE_ADD || lengths) /* as the library: it only adds */
		return CUDNN_STATUS_NOT_SUPPORTED;
	standin_do(standin_stream(h->stream), back_weights,
		&(call){ .r = *r,
			.steps = xd->steps,
			.batch = xd->batch,
			.x = x,
			.y = y,
			.hx = hx,
			.dw = dweights,
			.work = work,
			.reserve = reserve },
		sizeof(call));
	return CUDNN_STATUS_SUCCESS;
}
