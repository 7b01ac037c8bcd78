/* gpu_conv.c: convolutions by cuDNN, the same ones once: descriptors, algorithm and workspace are settled before step 0. The
 * algorithm is the first that the library's estimate names and WORKSPACE bytes suffice for; it is not measured, since every rank
 * has to take the same. The workspace is one piece of device memory for all calls; so are the images of convolutions that pad
 * an axis with more on one side than on the other, which cuDNN does not: they are padded here. Bias and Relu go into the
 * forward's call; where the library refuses that, they are calls of their own. Channels-last forms have filters in that order too; of
 * those that the library has no algorithm for, plain copies are made round its call. */
#include "gpu_dnn.h"

enum { MANY = 24, WORKSPACE = 512 << 20 };

typedef struct conv conv;
struct conv {
	conv *next;
	pd_conv_desc d;
	cudnnTensorDescriptor_t x, y, bias;
	cudnnFilterDescriptor_t w;
	cudnnConvolutionDescriptor_t conv;
	cudnnActivationDescriptor_t end;
	int algorithm;
	size_t bytes;            /* of workspace */
	bool last;               /* the library sees images and filters channels-last */
	bool turned;             /* it does not, though they lie so */
	bool uneven;             /* x is padded before the call */
	bool joined;             /* the forward's call adds the bias, and applies the end */
	bool own_bias, own_relu; /* calls of their own are refused for this type: kernels of ours */
	bool ran;
};

typedef enum part { X, Y, W, BIAS } part; /* a form's tensors */

static conv *forms;
static rt_piece workspace, padded, plain[BIAS], sums;

static size_t size_of(pd_dtype t) { return t == PD_BF16 || t == PD_F16 ? 2 : 4; }

static void math(conv *o, cudnnMathType_t type) { dnn_check(cudnnSetConvolutionMathType(o->conv, type), "math type"); }

/* false: the library has no filters in this order. */
static bool describe(conv *o)
{
	const pd_conv_desc *d = &o->d;
	const int nd = d->nd < 2 ? 2 : d->nd, lead = nd - d->nd;
	int w[5] = { d->oc, d->c / d->groups, 1, 1, 1 }, pad[3] = { 0 }, stride[3] = { 1, 1, 1 },
	    dilation[3] = { 1, 1, 1 }, extent[3] = { 1, 1, 1 };

	for (int i = 0; i < d->nd; i++) {
		w[2 + lead + i] = d->kernel[i];
		pad[lead + i] = o->uneven ? 0 : d->pad_begin[i];
		extent[i] = d->in[i] + d->pad_begin[i] + d->pad_end[i];
		stride[lead + i] = d->stride[i];
		dilation[lead + i] = d->dilation[i];
	}
	o->x = dnn_tensor(d->type, d->n, d->c, d->nd, o->uneven ? extent : d->in, o->last);
	o->y = dnn_tensor(d->type, d->n, d->oc, d->nd, d->out, o->last);
	o->bias = dnn_tensor(d->type, 1, d->oc, d->nd, (const int[]){ 1, 1, 1 }, false);
	dnn_check(cudnnCreateFilterDescriptor(&o->w), "filter");
	const cudnnStatus_t s = cudnnSetFilterNdDescriptor(
		o->w, dnn_type(d->type), o->last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW, 2 + nd, w);
	if (o->last && dnn_refused(s))
		return false;
	dnn_check(s, "filter");
	dnn_check(cudnnCreateConvolutionDescriptor(&o->conv), "convolution");
	dnn_check(cudnnSetConvolutionNdDescriptor(
			  o->conv, nd, pad, stride, dilation, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
		"convolution");
	dnn_check(cudnnSetConvolutionGroupCount(o->conv, d->groups), "groups");
	math(o, size_of(d->type) == 2 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH);
	dnn_check(cudnnCreateActivationDescriptor(&o->end), "activation");
	dnn_check(cudnnSetActivationDescriptor(o->end, d->relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,
			  CUDNN_NOT_PROPAGATE_NAN, 0),
		"activation");
	return true;
}

/* ---- the algorithm ---- */

typedef struct candidate {
	int algorithm;
	cudnnMathType_t math;
} candidate;

/* Calls have to give the same bits each time: of --reproducible programs, and of the members of a tensor group, who compute alike what is
 * whole. */
static bool same_bits(void) { return rt_program->reproducible || rt_group() > 1; }

/* What the library names, best first by its own estimate; for the same bits what always adds in one order. */
#define NAMED(PERF, GET, ...) \
	PERF found[MANY]; \
	int n = 0, kept = 0; \
	const cudnnStatus_t s = GET(dnn_handle(), __VA_ARGS__, MANY, &n, found); \
	if (dnn_refused(s)) \
		return 0; \
	dnn_check(s, "choice of an algorithm"); \
	for (int i = 0; i < n; i++) \
		if (found[i].status == CUDNN_STATUS_SUCCESS && \
			(!same_bits() || found[i].determinism == CUDNN_DETERMINISTIC)) \
			of[kept++] = (candidate){ (int)found[i].algo, found[i].mathType }; \
	return kept

static int candidates(const conv *o, candidate *of)
{
	if (o->d.what == PD_FORWARD) {
		NAMED(cudnnConvolutionFwdAlgoPerf_t, cudnnGetConvolutionForwardAlgorithm_v7, o->x, o->w, o->conv, o->y);
	} else if (o->d.what == PD_BACKWARD_DATA) {
		NAMED(cudnnConvolutionBwdDataAlgoPerf_t, cudnnGetConvolutionBackwardDataAlgorithm_v7, o->w, o->y,
			o->conv, o->x);
	} else {
		NAMED(cudnnConvolutionBwdFilterAlgoPerf_t, cudnnGetConvolutionBackwardFilterAlgorithm_v7, o->x, o->y,
			o->conv, o->w);
	}
}

static cudnnStatus_t needs(const conv *o, int algorithm, size_t *bytes)
{
	return o->d.what == PD_FORWARD ? cudnnGetConvolutionForwardWorkspaceSize(dnn_handle(), o->x, o->w, o->conv,
						 o->y, (cudnnConvolutionFwdAlgo_t)algorithm, bytes)
	       : o->d.what == PD_BACKWARD_DATA
	               ? cudnnGetConvolutionBackwardDataWorkspaceSize(dnn_handle(), o->w, o->y, o->conv, o->x,
				 (cudnnConvolutionBwdDataAlgo_t)algorithm, bytes)
	               : cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn_handle(), o->x, o->y, o->conv, o->w,
				 (cudnnConvolutionBwdFilterAlgo_t)algorithm, bytes);
}

/* f32 is multiplied as f32 whatever the estimate was made for: on newer GPUs the library would take 10 bits of mantissas (TF32). */
static cudnnMathType_t math_of(const conv *o, const candidate *c)
{
	return size_of(o->d.type) == 2 ? c->math : CUDNN_FMA_MATH;
}

/* The first that the workspace suffices for, or what needs the least. false: there is none. */
static bool choose(conv *o)
{
	candidate of[MANY];
	const int n = candidates(o, of);
	int best = -1;
	size_t bytes;

	for (int i = 0; i < n && (best < 0 || o->bytes > WORKSPACE); i++) {
		math(o, math_of(o, &of[i]));
		rt_refusal_taken(); /* what one before left that has no such form */
		if (needs(o, of[i].algorithm, &bytes) == CUDNN_STATUS_SUCCESS && (best < 0 || bytes < o->bytes)) {
			best = i;
			o->bytes = bytes;
		}
	}
	if (best < 0)
		return false;
	math(o, math_of(o, &of[best]));
	o->algorithm = of[best].algorithm;
	/* the library adds a bias alone in the call of one of its algorithms */
	o->joined = o->d.what == PD_FORWARD && o->d.bias &&
	            (o->d.relu || o->algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
	return true;
}

/* ---- what cuDNN does not pad ---- */

static bool uneven(const pd_conv_desc *d)
{
	for (int i = 0; i < d->nd; i++)
		if (d->out[i] !=
			(d->in[i] + 2 * d->pad_begin[i] - d->dilation[i] * (d->kernel[i] - 1) - 1) / d->stride[i] + 1)
			return true;
	return false;
}

/* The image's extents, what is padded in front, and the padded ones, as three axes of which channels-last images have the channels in
 * the last. Bytes of all padded images; images of one channel in *planes, or of all. */
static size_t extents(const conv *o, int *in, int *front, int *out, int64_t *planes)
{
	const pd_conv_desc *d = &o->d;
	size_t n;

	for (int i = 0; i < 3; i++) {
		const int k = i - (3 - d->nd);
		in[i] = k < 0 ? 1 : d->in[k];
		front[i] = k < 0 ? 0 : d->pad_begin[k];
		out[i] = k < 0 ? 1 : in[i] + d->pad_begin[k] + d->pad_end[k];
	}
	in[2] *= o->last ? d->c : 1;
	front[2] *= o->last ? d->c : 1;
	out[2] *= o->last ? d->c : 1;
	*planes = o->last ? d->n : (int64_t)d->n * d->c;
	n = (size_t)*planes * size_of(d->type);
	for (int i = 0; i < 3; i++)
		n *= (size_t)out[i];
	return n;
}

static const void *pad(const conv *o, const void *x)
{
	int in[3], front[3], out[3];
	int64_t planes;

	if (!o->uneven)
		return x;
	pd_fill(padded.at, 0, extents(o, in, front, out, &planes));
	pd_window(padded.at, x, size_of(o->d.type), planes, in, front, out, 1);
	return padded.at;
}

size_t pd_conv_scratch(const pd_conv_desc *d)
{
	(void)d;
	return 0;
}

static int64_t points_of(const conv *o, part which)
{
	const pd_conv_desc *d = &o->d;
	int64_t n = 1;

	for (int i = 0; i < d->nd && which != BIAS; i++)
		n *= which == X ? d->in[i] : which == Y ? d->out[i] : d->kernel[i];
	return n;
}

/* Bytes of a tensor, as a part of memory for the form's first run. */
static size_t bytes_of(const conv *o, part which)
{
	const pd_conv_desc *d = &o->d;
	const size_t n = size_of(d->type) * (size_t)(which == X   ? (int64_t)d->n * d->c
						     : which == Y ? (int64_t)d->n * d->oc
						     : which == W ? (int64_t)d->oc * d->c / d->groups
								  : d->oc);

	return rt_part_bytes(n * (size_t)points_of(o, which));
}

/* ---- channels-last tensors that the library sees plain ---- */

static void turn(const conv *o, part which, void *to, const void *from, bool to_plain)
{
	const pd_conv_desc *d = &o->d;

	pd_turn_images(to, from, size_of(d->type), which == W ? d->oc : d->n,
		which == W   ? d->c / d->groups
		: which == X ? d->c
			     : d->oc,
		points_of(o, which), to_plain);
}

/* What a call reads, and where it writes. */
static const void *taken(const conv *o, part which, const void *given)
{
	if (!o->turned)
		return given;
	turn(o, which, plain[which].at, given, true);
	return plain[which].at;
}

static void *place(const conv *o, part which, void *wanted) { return o->turned ? plain[which].at : wanted; }

static void give(const conv *o, part which, void *to)
{
	if (o->turned)
		turn(o, which, to, plain[which].at, false);
}

/* ---- a form ---- */

static void run_once(void *of, char *scrap)
{
	conv *o = of;
	const pd_conv p = { o };
	void *x = rt_part(&scrap, bytes_of(o, X)), *y = rt_part(&scrap, bytes_of(o, Y)),
	     *w = rt_part(&scrap, bytes_of(o, W));

	if (o->d.what == PD_FORWARD)
		pd_conv_forward(&p, y, x, w, scrap, NULL);
	else if (o->d.what == PD_BACKWARD_DATA)
		pd_conv_backward_data(&p, x, y, w, NULL);
	else
		pd_conv_backward_weights(&p, w, scrap, x, y, NULL);
}

/* Descriptors and an algorithm. */
static void settle(conv *o)
{
	o->last = o->d.nhwc;
	if (describe(o) && choose(o))
		return;
	o->turned = o->last;
	o->last = false;
	rt_refusal_taken();
	if (!o->turned || !describe(o) || !choose(o))
		rt_fail(RT_ERROR, "R523", "%s: cuDNN has no algorithm for a convolution of %d images", pd_device_name(),
			o->d.n);
	if (rt_log >= RT_LOG_DEBUG)
		printf("debug: cuDNN has no channels-last convolution of %d x %d channels in %d groups: it gets plain copies\n",
			o->d.c, o->d.oc, o->d.groups);
	for (part p = X; p < BIAS; p++)
		rt_want(&plain[p], bytes_of(o, p), "plain images");
}

static conv *made(const pd_conv_desc *d)
{
	conv *o = rt_alloc(sizeof *o);
	int in[3], front[3], out[3];
	int64_t planes;

	o->d = *d;
	o->uneven = uneven(d);
	settle(o);
	if (o->uneven)
		rt_want(&padded, extents(o, in, front, out, &planes), "padded images");
	if (d->bias && d->what == PD_BACKWARD_WEIGHTS)
		rt_want(&sums, pd_sum_images_room(d->type, d->n, d->oc, points_of(o, Y), o->last), "sums of images");
	rt_want(&workspace, o->bytes, "cuDNN's workspace of convolutions");
	rt_refusal_taken();
	rt_first_run(run_once, o, bytes_of(o, X) + bytes_of(o, Y) + bytes_of(o, W) + bytes_of(o, BIAS));
	o->next = forms;
	return forms = o;
}

void pd_conv_init(pd_conv *p, const pd_conv_desc *d)
{
	conv *o = forms;

	if (rt_virtual)
		return;
	while (o && memcmp(&o->d, d, sizeof *d)) /* numbers without gaps */
		o = o->next;
	p->impl = o ? o : made(d);
}

/* y itself stands where one more operand could: times 0, it is not read. */
static cudnnStatus_t joined(const conv *o, void *y, const void *x, const void *w, const void *b)
{
	const float one = 1, none = 0;

	return cudnnConvolutionBiasActivationForward(dnn_handle(), &one, o->x, x, o->w, w, o->conv,
		(cudnnConvolutionFwdAlgo_t)o->algorithm, workspace.at, o->bytes, &none, o->y, y, o->bias, b, o->end,
		o->y, y);
}

/* false: the form's first run is refused. */
static bool done(const conv *o, cudnnStatus_t s, const char *what)
{
	if (o->ran || !dnn_refused(s)) {
		dnn_check(s, what);
		return true;
	}
	if (rt_log >= RT_LOG_DEBUG)
		printf("debug: cuDNN refuses %s of %d channels (%s): kernels of the runtime do it\n", what, o->d.oc,
			cudnnGetErrorString(s));
	rt_refusal_taken();
	return false;
}

static void apart(conv *o, void *y, const void *x, const void *w, const void *b)
{
	const float one = 1, none = 0;

	dnn_check(cudnnConvolutionForward(dnn_handle(), &one, o->x, x, o->w, w, o->conv,
			  (cudnnConvolutionFwdAlgo_t)o->algorithm, workspace.at, o->bytes, &none, o->y, y),
		"cudnnConvolutionForward");
	if (o->d.bias && !o->own_bias)
		o->own_bias = !done(o, cudnnAddTensor(dnn_handle(), &one, o->bias, b, &one, o->y, y), "cudnnAddTensor");
	if (o->d.bias && o->own_bias)
		pd_end_of_images(o->d.type, y, b, 0, o->d.n, o->d.oc, points_of(o, Y), o->last);
	if (o->d.relu && !o->own_relu)
		o->own_relu = !done(o, cudnnActivationForward(dnn_handle(), o->end, &one, o->y, y, &none, o->y, y),
			"cudnnActivationForward");
	if (o->d.relu && o->own_relu)
		pd_end_of_images(o->d.type, y, NULL, 1, o->d.n, o->d.oc, points_of(o, Y), o->last);
}

void pd_conv_forward(const pd_conv *p, void *y, const void *x, const void *w, const void *b, void *scratch)
{
	conv *o = p->impl;
	const void *images = pad(o, taken(o, X, x)), *filters = taken(o, W, w);
	void *to = place(o, Y, y);

	(void)scratch;
	if (o->joined) {
		const cudnnStatus_t s = joined(o, to, images, filters, b);

		if (o->ran || !dnn_refused(s)) {
			dnn_check(s, "cudnnConvolutionBiasActivationForward");
			if (!o->ran && rt_log >= RT_LOG_DEBUG)
				printf("debug: cuDNN joins a convolution of %d x %d channels with its bias\n", o->d.c,
					o->d.oc);
		} else {
			o->joined = false;
			rt_refusal_taken();
			if (rt_log >= RT_LOG_DEBUG)
				printf("debug: cuDNN does not join a convolution of %d x %d channels with its bias%s: calls of their own do it\n",
					o->d.c, o->d.oc, o->d.relu ? " and Relu" : "");
		}
	}
	if (!o->joined)
		apart(o, to, images, filters, b);
	give(o, Y, y);
	o->ran = true;
}

void pd_conv_backward_data(const pd_conv *p, void *dx, const void *dy, const void *w, void *scratch)
{
	const conv *o = p->impl;
	const float one = 1, none = 0;
	void *to = place(o, X, dx);

	(void)scratch;
	dnn_check(cudnnConvolutionBackwardData(dnn_handle(), &one, o->w, taken(o, W, w), o->y, taken(o, Y, dy), o->conv,
			  (cudnnConvolutionBwdDataAlgo_t)o->algorithm, workspace.at, o->bytes, &none, o->x,
			  o->uneven ? padded.at : to),
		"cudnnConvolutionBackwardData");
	if (o->uneven) {
		int in[3], front[3], out[3];
		int64_t planes;

		extents(o, in, front, out, &planes);
		pd_window(padded.at, to, size_of(o->d.type), planes, in, front, out, 0);
	}
	give(o, X, dx);
}

void pd_conv_backward_weights(const pd_conv *p, void *dw, void *db, const void *x, const void *dy, void *scratch)
{
	conv *o = p->impl;
	const float one = 1, none = 0;
	const void *images = pad(o, taken(o, X, x)), *from = taken(o, Y, dy);

	(void)scratch;
	dnn_check(cudnnConvolutionBackwardFilter(dnn_handle(), &one, o->x, images, o->y, from, o->conv,
			  (cudnnConvolutionBwdFilterAlgo_t)o->algorithm, workspace.at, o->bytes, &none, o->w,
			  place(o, W, dw)),
		"cudnnConvolutionBackwardFilter");
	give(o, W, dw);
	if (o->d.bias && !o->own_bias)
		o->own_bias = !done(o, cudnnConvolutionBackwardBias(dnn_handle(), &one, o->y, from, &none, o->bias, db),
			"cudnnConvolutionBackwardBias");
	if (o->d.bias && o->own_bias)
		pd_sum_images(o->d.type, db, from, o->d.n, o->d.oc, points_of(o, Y), o->last, sums.at);
	o->ran = true;
}
