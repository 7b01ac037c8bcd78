/* gpu_recurrent.c: recurrent layers by cuDNN (cudnnRNNForward and its two gradients).
 *
 * Weights lie in ONNX's order of gates; every call has a kernel copy them to a weight space as the library lays it out, and the
 * gradients back. That space and what is turned round lie in the plan's scratch; the workspace, which only the library knows, beside the
 * arena: a call allocates nothing, waits for nothing, and a graph may be captured of it.
 *
 * The library takes lengths of sequences from the host, where they are not known without waiting for the device. So it is
 * told that all have all steps: what lies behind an end is zero in x and in the gradient of y, and cut off y, which leaves states
 * and gradients as they were at the end. A layer from the last step to the first is one of sequences that were turned round.
 *
 * The reserve lies where memory was planned for it. Only the library knows how large it is: where it wants more, there is
 * one of our own for every microbatch in flight, found by the address of the planned one. */
#include "gpu_dnn.h"

typedef struct spare spare;
typedef struct layer {
	pd_recurrent_desc d;
	cudnnRNNDescriptor_t rnn;
	cudnnRNNDataDescriptor_t x, y;
	cudnnTensorDescriptor_t state;
	size_t weights, work, reserve; /* bytes */
	int gates;
	bool found;
	size_t at[4][4]; /* where W, R, b and rb of each of ONNX's gates lie in the weight space */
} layer;

struct spare {
	spare *next;
	const layer *of;
	const void *key; /* the planned reserve; NULL: nobody's yet */
	rt_piece piece;
	int64_t made; /* which forward it is of */
};

/* What a call works on beside its operands: weights as the library has them, x, y and the gradient of y turned round. */
typedef struct places {
	char *weights;
	float *x, *y, *dy;
} places;

static rt_piece beside, workspace;
static spare *spares;
static int64_t forwards;

static size_t rows(const layer *o) { return sizeof(float) * (size_t)o->d.steps * (size_t)o->d.batch; }

static bool turned(const layer *o) { return o->d.reverse || o->d.lens; }

/* Where each of them begins, behind the weights; `end`: bytes of all. */
typedef struct offsets {
	size_t x, y, dy, end;
} offsets;

static offsets lay_out(const layer *o)
{
	const size_t in = rt_part_bytes(turned(o) ? rows(o) * (size_t)o->d.input : 0);
	const size_t out = rt_part_bytes(turned(o) ? rows(o) * (size_t)o->d.hidden : 0);
	offsets at = { .x = rt_part_bytes(o->weights) };

	at.y = at.x + in;
	at.dy = at.y + out;
	at.end = at.dy + rt_part_bytes(o->d.what == PD_BACKWARD_DATA ? rows(o) * (size_t)o->d.hidden : 0);
	return at;
}

/* The plan has room for it, from the first multiple of 256 bytes of the call's scratch on; where that is too little, all layers share a
 * piece beside the arena. */
static bool planned(const layer *o) { return lay_out(o).end + rt_part_bytes(1) <= o->d.scratch; }

static places places_of(const layer *o, void *scratch)
{
	const offsets at = lay_out(o);
	char *base = planned(o) ? (char *)scratch + (256 - (uintptr_t)scratch % 256) % 256 : beside.at;

	return (places){ base, (float *)(void *)(base + at.x), (float *)(void *)(base + at.y),
		(float *)(void *)(base + at.dy) };
}

/* ---- before step 0 ---- */

static cudnnRNNDataDescriptor_t sequences(const layer *o, int width)
{
	cudnnRNNDataDescriptor_t s;
	int *n = rt_alloc((size_t)o->d.batch * sizeof *n);
	float none = 0;

	for (int i = 0; i < o->d.batch; i++)
		n[i] = o->d.steps;
	dnn_check(cudnnCreateRNNDataDescriptor(&s), "sequences");
	dnn_check(cudnnSetRNNDataDescriptor(s, CUDNN_DATA_FLOAT, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED, o->d.steps,
			  o->d.batch, width, n, &none),
		"sequences");
	return s;
}

static void describe(layer *o)
{
	static const cudnnRNNMode_t mode[] = { CUDNN_LSTM, CUDNN_GRU, CUDNN_RNN_TANH, CUDNN_RNN_RELU };
	static const cudnnRNNBiasMode_t bias[] = { CUDNN_RNN_NO_BIAS, CUDNN_RNN_SINGLE_INP_BIAS,
		CUDNN_RNN_DOUBLE_BIAS };
	const int dim[3] = { 1, o->d.batch, o->d.hidden }, stride[3] = { o->d.batch * o->d.hidden, o->d.hidden, 1 };
	cudnnDropoutDescriptor_t none;

	dnn_check(cudnnCreateDropoutDescriptor(&none), "dropout");
	dnn_check(cudnnSetDropoutDescriptor(none, dnn_handle(), 0, NULL, 0, 0), "dropout");
	dnn_check(cudnnCreateRNNDescriptor(&o->rnn), "recurrent layer");
	/* of f32 the default takes products of 10-bit mantissas on newer GPUs */
	dnn_check(cudnnSetRNNDescriptor_v8(o->rnn, CUDNN_RNN_ALGO_STANDARD, mode[o->d.cell], bias[o->d.bias],
			  CUDNN_UNIDIRECTIONAL, CUDNN_LINEAR_INPUT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH,
			  o->d.input, o->d.hidden, o->d.hidden, 1, none, CUDNN_RNN_PADDED_IO_DISABLED),
		"recurrent layer");
	o->x = sequences(o, o->d.input);
	o->y = sequences(o, o->d.hidden);
	dnn_check(cudnnCreateTensorDescriptor(&o->state), "states");
	dnn_check(cudnnSetTensorNdDescriptor(o->state, CUDNN_DATA_FLOAT, 3, dim, stride), "states");
	dnn_check(cudnnGetRNNWeightSpaceSize(dnn_handle(), o->rnn, &o->weights), "cudnnGetRNNWeightSpaceSize");
	dnn_check(cudnnGetRNNTempSpaceSizes(dnn_handle(), o->rnn, CUDNN_FWD_MODE_TRAINING, o->x, &o->work, &o->reserve),
		"cudnnGetRNNTempSpaceSizes");
}

/* The library's gate that ONNX has at this place: i f c o of an LSTM's i o f c, r z n of a GRU's z r n. */
static int gate(const layer *o, int k)
{
	static const int lstm[] = { 0, 3, 1, 2 }, gru[] = { 1, 0, 2 };

	return o->gates == 4 ? lstm[k] : o->gates == 3 ? gru[k] : 0;
}

static int64_t numbers(cudnnTensorDescriptor_t t)
{
	cudnnDataType_t type;
	int rank = 0, dim[3] = { 0 }, stride[3];

	dnn_check(cudnnGetTensorNdDescriptor(t, 3, &type, &rank, dim, stride), "shape of a weight");
	return rank == 3 ? (int64_t)dim[0] * dim[1] * dim[2] : 0;
}

/* Where the library has matrix and bias number `id`; the bias may be none. */
static void locate(
	const layer *o, char *base, int id, int64_t width, cudnnTensorDescriptor_t t[2], size_t *matrix, size_t *bias)
{
	void *m = NULL, *b = NULL;

	dnn_check(cudnnGetRNNWeightParams(dnn_handle(), o->rnn, 0, o->weights, base, id, t[0], &m, t[1], &b),
		"cudnnGetRNNWeightParams");
	if (!m || numbers(t[0]) != width * o->d.hidden || (bias && (!b || numbers(t[1]) != o->d.hidden)))
		rt_fail(RT_ERROR, "R523",
			"cuDNN: weight %d of a recurrent layer of %d by %d is not as large as expected", id, o->d.input,
			o->d.hidden);
	*matrix = (size_t)((char *)m - base);
	if (bias)
		*bias = (size_t)((char *)b - base);
}

/* Asked in the first call, which has a weight space; later ones have them in the same places of it. */
static void find_weights(layer *o, char *base)
{
	cudnnTensorDescriptor_t t[2];

	for (int i = 0; i < 2; i++)
		dnn_check(cudnnCreateTensorDescriptor(&t[i]), "weights");
	for (int k = 0; k < o->gates; k++) {
		locate(o, base, gate(o, k), o->d.input, t, &o->at[0][k], o->d.bias ? &o->at[2][k] : NULL);
		locate(o, base, gate(o, k) + o->gates, o->d.hidden, t, &o->at[1][k],
			o->d.bias > 1 ? &o->at[3][k] : NULL);
	}
	for (int i = 0; i < 2; i++)
		dnn_check(cudnnDestroyTensorDescriptor(t[i]), "weights");
	o->found = true;
}

/* Room for reserves that are larger than planned. */
static void add_spares(const layer *o)
{
	for (int i = 0; i < o->d.slots; i++) {
		spare *s = rt_alloc(sizeof *s);

		s->of = o;
		rt_want(&s->piece, o->reserve, "what cuDNN keeps of recurrent layers");
		s->next = spares;
		spares = s;
	}
}

/* Forward and both gradients, whichever of them this one is for. */
static void run_once(void *of, char *scrap)
{
	const layer *o = of;
	const size_t in = rows(o) * (size_t)o->d.input, out = rows(o) * (size_t)o->d.hidden;
	float *x = rt_part(&scrap, in), *dx = rt_part(&scrap, in), *y = rt_part(&scrap, out),
	      *dy = rt_part(&scrap, out);
	void *reserve = rt_part(&scrap, o->reserve), *weights = scrap, *work = workspace.at;

	pd_fill(weights, 0, o->weights);
	dnn_check(cudnnRNNForward(dnn_handle(), o->rnn, CUDNN_FWD_MODE_TRAINING, NULL, o->x, x, o->y, y, o->state, NULL,
			  NULL, o->state, NULL, NULL, o->weights, weights, o->work, work, o->reserve, reserve),
		"cudnnRNNForward");
	if (o->d.what == PD_FORWARD)
		return;
	dnn_check(cudnnRNNBackwardData_v8(dnn_handle(), o->rnn, NULL, o->y, y, dy, o->x, dx, o->state, NULL, NULL, NULL,
			  o->state, NULL, NULL, NULL, o->weights, weights, o->work, work, o->reserve, reserve),
		"cudnnRNNBackwardData_v8");
	dnn_check(cudnnRNNBackwardWeights_v8(dnn_handle(), o->rnn, CUDNN_WGRAD_MODE_ADD, NULL, o->x, x, o->state, NULL,
			  o->y, y, o->weights, weights, o->work, work, o->reserve, reserve),
		"cudnnRNNBackwardWeights_v8");
}

void pd_recurrent_init(pd_recurrent *p, const pd_recurrent_desc *d)
{
	layer *o = rt_alloc(sizeof *o);

	if (rt_virtual)
		return;
	o->d = *d;
	o->gates = d->cell == PD_LSTM ? 4 : d->cell == PD_GRU ? 3 : 1;
	describe(o);
	rt_want(&workspace, o->work, "cuDNN's workspace of recurrent layers");
	if (!planned(o))
		rt_want(&beside, lay_out(o).end, "weights and turned sequences of recurrent layers");
	if (d->what == PD_FORWARD && o->reserve > d->reserve)
		add_spares(o);
	rt_first_run(run_once, o,
		2 * rt_part_bytes(rows(o) * (size_t)d->input) + 2 * rt_part_bytes(rows(o) * (size_t)d->hidden) +
			rt_part_bytes(o->reserve) + rt_part_bytes(o->weights));
	p->impl = o;
}

/* ---- around the calls ---- */

/* The reserve that belongs to the planned one. A forward takes one that is its own: the same place may be planned for several
 * layers, one after the other; gradients that of the last forward. */
static void *reserve_of(const layer *o, const void *key)
{
	const bool forward = o->d.what == PD_FORWARD;
	spare *found = NULL;

	if (o->reserve <= o->d.reserve)
		return (void *)(uintptr_t)key;
	for (spare *s = spares; s; s = s->next)
		if (forward ? s->of == o && (s->key == key || (!s->key && !found))
			    : s->key == key && (!found || found->made < s->made))
			found = s;
	if (!found)
		rt_fail(RT_ERROR, "R523", "cuDNN's reserve of a recurrent layer: more than %d microbatches in flight",
			o->d.slots);
	if (forward) {
		found->key = key;
		found->made = ++forwards;
	}
	return found->piece.at;
}

/* The pieces of the weight space, there or back; what is absent is zero there: of the second biases all but that of n. */
typedef struct weights {
	float *w, *r, *b, *rb;
} weights;

static void copy_weights(layer *o, char *space, weights t, bool there)
{
	const int64_t h = o->d.hidden, width[4] = { o->d.input, h, 1, 1 };
	float *const of[4] = { t.w, t.r, t.b, t.rb };
	const float *from[RT_PIECES];
	float *to[RT_PIECES];
	int64_t n[RT_PIECES];
	int count = 0;

	if (!o->found)
		find_weights(o, space);
	for (int what = 0; what < 2 + o->d.bias; what++)
		for (int k = 0; k < o->gates; k++) {
			float *lib = (float *)(void *)(space + o->at[what][k]);
			float *own = !of[what] || (what == 3 && k != 2) ? NULL
			             : what == 3                        ? of[what]
			                                                : of[what] + k * h * width[what];

			if (!there && !own)
				continue;
			from[count] = there ? own : lib;
			to[count] = there ? lib : own;
			n[count++] = h * width[what];
		}
	rt_copy_pieces(count, to, from, n);
}

static void put_weights(layer *o, char *space, const float *w, const float *r, const float *b, const float *rb)
{
	copy_weights(o, space,
		(weights){
			(float *)(uintptr_t)w, (float *)(uintptr_t)r, (float *)(uintptr_t)b, (float *)(uintptr_t)rb },
		true);
}

/* A sequence as the library is to have it; `room` where it is turned. */
static const float *seen(const layer *o, float *room, const float *x, int width, const int32_t *lens)
{
	if (!turned(o))
		return x;
	rt_turn(room, x, o->d.steps, o->d.batch, width, lens, o->d.reverse);
	return room;
}

/* From where the library put one to its place. */
static void give(const layer *o, const float *room, float *x, int width, const int32_t *lens)
{
	if (turned(o))
		rt_turn(x, room, o->d.steps, o->d.batch, width, lens, o->d.reverse);
}

/* ---- the calls ---- */

void pd_recurrent_forward(const pd_recurrent *p, float *y, float *h, float *c, float *reserve, const float *x,
	const float *w, const float *r, const float *b, const float *rb, const float *h0, const float *c0,
	const int32_t *lens, void *scratch)
{
	layer *o = p->impl;
	const places t = places_of(o, scratch);
	const float *xs = seen(o, t.x, x, o->d.input, lens);
	float *ys = turned(o) ? t.y : y;

	put_weights(o, t.weights, w, r, b, rb);
	dnn_check(cudnnRNNForward(dnn_handle(), o->rnn, CUDNN_FWD_MODE_TRAINING, NULL, o->x, xs, o->y, ys, o->state, h0,
			  lens ? NULL : h, o->state, c0, c, o->weights, t.weights, o->work, workspace.at, o->reserve,
			  reserve_of(o, reserve)),
		"cudnnRNNForward");
	give(o, t.y, y, o->d.hidden, lens);
	if (lens)
		rt_last(h, ys, h0, o->d.batch, o->d.hidden, lens);
}

void pd_recurrent_backward_data(const pd_recurrent *p, float *dx, float *dh0, float *dc0, float *reserve,
	const float *y, const float *w, const float *r, const float *b, const float *rb, const float *dy,
	const float *dh, const float *dc, const float *h0, const float *c0, const int32_t *lens, void *scratch)
{
	layer *o = p->impl;
	const places t = places_of(o, scratch);
	const float *ys = seen(o, t.y, y, o->d.hidden, lens);
	const float *dys = dy ? seen(o, t.dy, dy, o->d.hidden, lens) : t.dy;
	float *dxs = turned(o) ? t.x : dx;

	if (!dy)
		pd_fill(t.dy, 0, rows(o) * (size_t)o->d.hidden);
	if (lens && dh)
		rt_last_back(t.dy, dh, o->d.batch, o->d.hidden, lens);
	put_weights(o, t.weights, w, r, b, rb);
	dnn_check(cudnnRNNBackwardData_v8(dnn_handle(), o->rnn, NULL, o->y, ys, dys, o->x, dxs, o->state, h0,
			  lens ? NULL : dh, dh0, o->state, c0, dc, dc0, o->weights, t.weights, o->work, workspace.at,
			  o->reserve, reserve_of(o, reserve)),
		"cudnnRNNBackwardData_v8");
	give(o, t.x, dx, o->d.input, lens);
	if (lens && dh)
		rt_empty_back(dh0, dh, o->d.batch, o->d.hidden, lens);
}

void pd_recurrent_backward_weights(const pd_recurrent *p, float *dw, float *dr, float *db, float *drb, float *reserve,
	const float *x, const float *y, const float *h0, const int32_t *lens, void *scratch)
{
	layer *o = p->impl;
	const places t = places_of(o, scratch);
	const float *xs = seen(o, t.x, x, o->d.input, lens), *ys = seen(o, t.y, y, o->d.hidden, lens);

	pd_fill(t.weights, 0, o->weights); /* the library adds */
	dnn_check(cudnnRNNBackwardWeights_v8(dnn_handle(), o->rnn, CUDNN_WGRAD_MODE_ADD, NULL, o->x, xs, o->state, h0,
			  o->y, ys, o->weights, t.weights, o->work, workspace.at, o->reserve, reserve_of(o, reserve)),
		"cudnnRNNBackwardWeights_v8");
	copy_weights(o, t.weights, (weights){ dw, dr, db, drb }, false);
}
