/* gpu_conv.c: convolutions by cuDNN, the same ones once: descriptors, algorithm and workspace are settled before step 0. The
 * algorithm is the first that the library's estimate names and WORKSPACE bytes suffice for; it is not measured, since every rank
 * has to take the same. The workspace is one piece of device memory for all calls; so are the images of convolutions that pad
 * an axis with more on one side than on the other, which cuDNN does not: they are padded here. Bias and Relu go into the
 * forward's call; where the library refuses that, they are calls of their own. */
#include "gpu_dnn.h"

enum { MANY = 24, WORKSPACE = 512 << 20 };

typedef struct conv conv;
struct conv {
	conv                        *next;
	pd_conv_desc                 d;
	cudnnTensorDescriptor_t      x, y, bias;
	cudnnFilterDescriptor_t      w;
	cudnnConvolutionDescriptor_t conv;
	cudnnActivationDescriptor_t  end;
	int                          algorithm;
	size_t                       bytes;     /* of workspace */
	bool                         uneven;    /* x is padded before the call */
	bool                         joined;    /* the forward's call adds the bias, and applies the end */
	bool                         own_bias, own_relu;        /* calls of their own are refused for this type: kernels of ours */
	bool                         ran;
};

static conv     *forms;
static rt_piece workspace, padded;

static size_t size_of(pd_dtype t)
{
	return t == PD_BF16 || t == PD_F16 ? 2 : 4;
}

static void math(conv *o, cudnnMathType_t type)
{
	dnn_check(cudnnSetConvolutionMathType(o->conv, type), "math type");
}

static void describe(conv *o)
{
	const pd_conv_desc *d = &o->d;
	const int           nd = d->nd < 2 ? 2 : d->nd, lead = nd - d->nd;
	int                 w[5] = { d->oc, d->c / d->groups, 1, 1, 1 }, pad[3] = { 0 }, stride[3] = { 1, 1, 1 },
		dilation[3] = { 1, 1, 1 }, extent[3] = { 1, 1, 1 };

	for (int i = 0; i < d->nd; i++) {
		w[2 + lead + i] = d->kernel[i];
		pad[lead + i] = o->uneven ? 0 : d->pad_begin[i];
		extent[i] = d->in[i] + d->pad_begin[i] + d->pad_end[i];
		stride[lead + i] = d->stride[i];
		dilation[lead + i] = d->dilation[i];
	}
	o->x = dnn_tensor(d->type, d->n, d->c, d->nd, o->uneven ? extent : d->in);
	o->y = dnn_tensor(d->type, d->n, d->oc, d->nd, d->out);
	o->bias = dnn_tensor(d->type, 1, d->oc, d->nd, (const int[]){ 1, 1, 1 });
	dnn_check(cudnnCreateFilterDescriptor(&o->w), "filter");
	dnn_check(cudnnSetFilterNdDescriptor(o->w, dnn_type(d->type), CUDNN_TENSOR_NCHW, 2 + nd, w), "filter");
	dnn_check(cudnnCreateConvolutionDescriptor(&o->conv), "convolution");
	dnn_check(cudnnSetConvolutionNdDescriptor(o->conv, nd, pad, stride, dilation, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT),
	          "convolution");
	dnn_check(cudnnSetConvolutionGroupCount(o->conv, d->groups), "groups");
	math(o, size_of(d->type) == 2 ? CUDNN_TENSOR_OP_MATH : CUDNN_FMA_MATH);
	dnn_check(cudnnCreateActivationDescriptor(&o->end), "activation");
	dnn_check(cudnnSetActivationDescriptor(o->end, d->relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY,
	                                       CUDNN_NOT_PROPAGATE_NAN, 0), "activation");
}

/* ---- the algorithm ---- */

typedef struct candidate { int algorithm; cudnnMathType_t math; } candidate;

/* What the library names, best first by its own estimate; of --reproducible programs what always adds in one order. */
#define NAMED(PERF, GET, ...) \
	PERF found[MANY]; \
	int  n = 0, kept = 0; \
	dnn_check(GET(dnn_handle(), __VA_ARGS__, MANY, &n, found), "choice of an algorithm"); \
	for (int i = 0; i < n; i++) \
		if (found[i].status == CUDNN_STATUS_SUCCESS && \
		    (!rt_program->reproducible || found[i].determinism == CUDNN_DETERMINISTIC)) \
			of[kept++] = (candidate){ (int)found[i].algo, found[i].mathType }; \
	return kept

static int candidates(const conv *o, candidate *of)
{
	if (o->d.what == PD_FORWARD) {
		NAMED(cudnnConvolutionFwdAlgoPerf_t, cudnnGetConvolutionForwardAlgorithm_v7, o->x, o->w, o->conv, o->y);
	} else if (o->d.what == PD_BACKWARD_DATA) {
		NAMED(cudnnConvolutionBwdDataAlgoPerf_t, cudnnGetConvolutionBackwardDataAlgorithm_v7, o->w, o->y, o->conv, o->x);
	} else {
		NAMED(cudnnConvolutionBwdFilterAlgoPerf_t, cudnnGetConvolutionBackwardFilterAlgorithm_v7, o->x, o->y, o->conv, o->w);
	}
}

static cudnnStatus_t needs(const conv *o, int algorithm, size_t *bytes)
{
	return o->d.what == PD_FORWARD ? cudnnGetConvolutionForwardWorkspaceSize(dnn_handle(), o->x, o->w, o->conv, o->y,
	                                                                         (cudnnConvolutionFwdAlgo_t)algorithm, bytes) :
		o->d.what == PD_BACKWARD_DATA ? cudnnGetConvolutionBackwardDataWorkspaceSize(dnn_handle(), o->w, o->y, o->conv, o->x,
			(cudnnConvolutionBwdDataAlgo_t)algorithm, bytes) :
		cudnnGetConvolutionBackwardFilterWorkspaceSize(dnn_handle(), o->x, o->y, o->conv, o->w,
			(cudnnConvolutionBwdFilterAlgo_t)algorithm, bytes);
}

/* f32 is multiplied as f32 whatever the estimate was made for: on newer GPUs the library would take 10 bits of mantissas (TF32). */
static cudnnMathType_t math_of(const conv *o, const candidate *c)
{
	return size_of(o->d.type) == 2 ? c->math : CUDNN_FMA_MATH;
}

/* The first that the workspace suffices for, or what needs the least. */
static void choose(conv *o)
{
	candidate of[MANY];
	const int n = candidates(o, of);
	int       best = -1;
	size_t    bytes;

	for (int i = 0; i < n && (best < 0 || o->bytes > WORKSPACE); i++) {
		math(o, math_of(o, &of[i]));
		rt_refusal_taken();     /* what one before left that has no such form */
		if (needs(o, of[i].algorithm, &bytes) == CUDNN_STATUS_SUCCESS && (best < 0 || bytes < o->bytes)) {
			best = i;
			o->bytes = bytes;
		}
	}
	if (best < 0)
		rt_fail(RT_ERROR, "R523", "%s: cuDNN has no algorithm for a convolution of %d images", pd_device_name(), o->d.n);
	math(o, math_of(o, &of[best]));
	o->algorithm = of[best].algorithm;
	/* the library adds a bias alone in the call of one of its algorithms */
	o->joined = o->d.what == PD_FORWARD && o->d.bias &&
		(o->d.relu || o->algorithm == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
}

/* ---- what cuDNN does not pad ---- */

static bool uneven(const pd_conv_desc *d)
{
	for (int i = 0; i < d->nd; i++)
		if (d->out[i] != (d->in[i] + 2 * d->pad_begin[i] - d->dilation[i] * (d->kernel[i] - 1) - 1) / d->stride[i] + 1)
			return true;
	return false;
}

/* The image's extents, what is padded in front, and the padded ones, as three axes. Bytes of all padded images. */
static size_t extents(const pd_conv_desc *d, int *in, int *front, int *out)
{
	size_t n = (size_t)d->n * (size_t)d->c;

	for (int i = 0; i < 3; i++) {
		const int k = i - (3 - d->nd);
		in[i] = k < 0 ? 1 : d->in[k];
		front[i] = k < 0 ? 0 : d->pad_begin[k];
		out[i] = k < 0 ? 1 : in[i] + d->pad_begin[k] + d->pad_end[k];
		n *= (size_t)out[i];
	}
	return n * size_of(d->type);
}

static const void *pad(const conv *o, const void *x)
{
	int in[3], front[3], out[3];

	if (!o->uneven)
		return x;
	pd_fill(padded.at, 0, extents(&o->d, in, front, out));
	pd_window(padded.at, x, size_of(o->d.type), (int64_t)o->d.n * o->d.c, in, front, out, 1);
	return padded.at;
}

size_t pd_conv_scratch(const pd_conv_desc *d)
{
	(void)d;
	return 0;
}

/* Bytes of one of a form's tensors, as a part of memory for its first run. */
typedef enum part { X, Y, W, BIAS } part;

static size_t bytes_of(const conv *o, part which)
{
	const pd_conv_desc *d = &o->d;
	size_t              n = size_of(d->type) * (size_t)(which == X ? (int64_t)d->n * d->c : which == Y ? (int64_t)d->n * d->oc :
	                                                    which == W ? (int64_t)d->oc * d->c / d->groups : d->oc);

	for (int i = 0; i < d->nd && which != BIAS; i++)
		n *= (size_t)(which == X ? d->in[i] : which == Y ? d->out[i] : d->kernel[i]);
	return rt_part_bytes(n);
}

static void run_once(void *of, char *scrap)
{
	conv         *o = of;
	const pd_conv p = { o };
	void         *x = rt_part(&scrap, bytes_of(o, X)), *y = rt_part(&scrap, bytes_of(o, Y)), *w = rt_part(&scrap, bytes_of(o, W));

	if (o->d.what == PD_FORWARD)
		pd_conv_forward(&p, y, x, w, scrap, NULL);
	else if (o->d.what == PD_BACKWARD_DATA)
		pd_conv_backward_data(&p, x, y, w, NULL);
	else
		pd_conv_backward_weights(&p, w, scrap, x, y, NULL);
}

static conv *made(const pd_conv_desc *d)
{
	conv *o = rt_alloc(sizeof *o);
	int   in[3], front[3], out[3];

	o->d = *d;
	o->uneven = uneven(d);
	if (o->uneven)
		rt_want(&padded, extents(d, in, front, out), "padded images");
	describe(o);
	choose(o);
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
	while (o && memcmp(&o->d, d, sizeof *d))        /* numbers without gaps */
		o = o->next;
	p->impl = o ? o : made(d);
}

/* y itself stands where one more operand could: times 0, it is not read. */
static cudnnStatus_t joined(const conv *o, void *y, const void *x, const void *w, const void *b)
{
	const float one = 1, none = 0;

	return cudnnConvolutionBiasActivationForward(dnn_handle(), &one, o->x, x, o->w, w, o->conv,
	                                             (cudnnConvolutionFwdAlgo_t)o->algorithm, workspace.at, o->bytes, &none, o->y, y,
	                                             o->bias, b, o->end, o->y, y);
}

static int64_t points(const conv *o)
{
	int64_t n = 1;

	for (int i = 0; i < o->d.nd; i++)
		n *= o->d.out[i];
	return n;
}

/* false: the form's first run is refused. */
static bool done(const conv *o, cudnnStatus_t s, const char *what)
{
	if (o->ran || !dnn_refused(s)) {
		dnn_check(s, what);
		return true;
	}
	if (rt_log >= RT_LOG_DEBUG)
		printf("debug: cuDNN refuses %s of %d channels (%s): kernels of the runtime do it\n", what, o->d.oc, cudnnGetErrorString(s));
	rt_refusal_taken();
	return false;
}

static void apart(conv *o, void *y, const void *x, const void *w, const void *b)
{
	const float one = 1, none = 0;

	dnn_check(cudnnConvolutionForward(dnn_handle(), &one, o->x, x, o->w, w, o->conv, (cudnnConvolutionFwdAlgo_t)o->algorithm,
	                                  workspace.at, o->bytes, &none, o->y, y), "cudnnConvolutionForward");
	if (o->d.bias && !o->own_bias)
		o->own_bias = !done(o, cudnnAddTensor(dnn_handle(), &one, o->bias, b, &one, o->y, y), "cudnnAddTensor");
	if (o->d.bias && o->own_bias)
		pd_end_of_images(o->d.type, y, b, 0, o->d.n, o->d.oc, points(o));
	if (o->d.relu && !o->own_relu)
		o->own_relu = !done(o, cudnnActivationForward(dnn_handle(), o->end, &one, o->y, y, &none, o->y, y), "cudnnActivationForward");
	if (o->d.relu && o->own_relu)
		pd_end_of_images(o->d.type, y, NULL, 1, o->d.n, o->d.oc, points(o));
}

void pd_conv_forward(const pd_conv *p, void *y, const void *x, const void *w, const void *b, void *scratch)
{
	conv       *o = p->impl;
	const void *images = pad(o, x);

	(void)scratch;
	if (o->joined) {
		const cudnnStatus_t s = joined(o, y, images, w, b);

		if (o->ran || !dnn_refused(s)) {
			dnn_check(s, "cudnnConvolutionBiasActivationForward");
			if (!o->ran && rt_log >= RT_LOG_DEBUG)
				printf("debug: cuDNN joins a convolution of %d x %d channels with its bias\n", o->d.c, o->d.oc);
		} else {
			o->joined = false;
			rt_refusal_taken();
			if (rt_log >= RT_LOG_DEBUG)
				printf("debug: cuDNN does not join a convolution of %d x %d channels with its bias%s: calls of their own do it\n",
				       o->d.c, o->d.oc, o->d.relu ? " and Relu" : "");
		}
	}
	if (!o->joined)
		apart(o, y, images, w, b);
	o->ran = true;
}

void pd_conv_backward_data(const pd_conv *p, void *dx, const void *dy, const void *w, void *scratch)
{
	const conv *o = p->impl;
	const float one = 1, none = 0;

	(void)scratch;
	dnn_check(cudnnConvolutionBackwardData(dnn_handle(), &one, o->w, w, o->y, dy, o->conv,
	                                       (cudnnConvolutionBwdDataAlgo_t)o->algorithm, workspace.at, o->bytes, &none, o->x,
	                                       o->uneven ? padded.at : dx), "cudnnConvolutionBackwardData");
	if (o->uneven) {
		int in[3], front[3], out[3];

		extents(&o->d, in, front, out);
		pd_window(padded.at, dx, size_of(o->d.type), (int64_t)o->d.n * o->d.c, in, front, out, 0);
	}
}

void pd_conv_backward_weights(const pd_conv *p, void *dw, void *db, const void *x, const void *dy, void *scratch)
{
	conv       *o = p->impl;
	const float one = 1, none = 0;

	(void)scratch;
	dnn_check(cudnnConvolutionBackwardFilter(dnn_handle(), &one, o->x, pad(o, x), o->y, dy, o->conv,
	                                         (cudnnConvolutionBwdFilterAlgo_t)o->algorithm, workspace.at, o->bytes, &none,
	                                         o->w, dw), "cudnnConvolutionBackwardFilter");
	if (o->d.bias && !o->own_bias)
		o->own_bias = !done(o, cudnnConvolutionBackwardBias(dnn_handle(), &one, o->y, dy, &none, o->bias, db), "cudnnConvolutionBackwardBias");
	if (o->d.bias && o->own_bias)
		pd_sum_images(o->d.type, db, dy, o->d.n, o->d.oc, points(o));
	o->ran = true;
}
