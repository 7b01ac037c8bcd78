/* conv, stage 0 of 1: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage0.h"
#include "kernels.h"

enum { STAGE = 0, REPLICAS = 2, MICROBATCHES = 4, SLOTS = 1 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float w1[2 * 1 * 3 * 3];                    /* f32[2,1,3,3] */
	_Alignas(64) float scale[2];                             /* f32[2] */
	_Alignas(64) float bias[2];                              /* f32[2] */
	_Alignas(64) float mean[2];                              /* f32[2] */
	_Alignas(64) float var[2];                               /* f32[2] */
	_Alignas(64) float w2[8 * 3];                            /* f32[8,3] */
	_Alignas(64) float b2[3];                                /* f32[3] */
} *P;
_Static_assert(sizeof(struct params) == 576, "as planned");

/* what the optimizer remembers */
static struct state {
	_Alignas(64) float w1_m[2 * 1 * 3 * 3];                  /* f32[2,1,3,3] */
	_Alignas(64) float w1_v[2 * 1 * 3 * 3];                  /* f32[2,1,3,3] */
	_Alignas(64) float scale_m[2];                           /* f32[2] */
	_Alignas(64) float scale_v[2];                           /* f32[2] */
	_Alignas(64) float bias_m[2];                            /* f32[2] */
	_Alignas(64) float bias_v[2];                            /* f32[2] */
	_Alignas(64) float w2_m[8 * 3];                          /* f32[8,3] */
	_Alignas(64) float w2_v[8 * 3];                          /* f32[8,3] */
	_Alignas(64) float b2_m[3];                              /* f32[3] */
	_Alignas(64) float b2_v[3];                              /* f32[3] */
} *S;
_Static_assert(sizeof(struct state) == 896, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float w1[2 * 1 * 3 * 3];                    /* f32[2,1,3,3] */
	_Alignas(64) float scale[2];                             /* f32[2] */
	_Alignas(64) float bias[2];                              /* f32[2] */
	_Alignas(64) float w2[8 * 3];                            /* f32[8,3] */
	_Alignas(64) float b2[3];                                /* f32[3] */
} *G;
_Static_assert(sizeof(struct grads) == 448, "as planned");

/* what each microbatch of the step leaves: batch statistics, touched rows */
static struct rows {
	_Alignas(64) float mean_rows[4 * 2];                     /* f32[4,2] */
	_Alignas(64) float var_rows[4 * 2];                      /* f32[4,2] */
} *R;
_Static_assert(sizeof(struct rows) == 128, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) int64_t labels[2];                          /* i64[2] */
	_Alignas(64) float x_1[2 * 1 * 4 * 4];                   /* f32[2,1,4,4]nhwc */
	_Alignas(64) float c[2 * 2 * 4 * 4];                     /* f32[2,2,4,4]nhwc */
	_Alignas(64) float b[2 * 2 * 4 * 4];                     /* f32[2,2,4,4]nhwc */
	_Alignas(64) float b_1[2];                               /* f32[2] */
	_Alignas(64) float b_2[2];                               /* f32[2] */
	_Alignas(64) float p_1[2 * 2 * 2 * 2];                   /* f32[2,2,2,2] */
	_Alignas(64) float loss_log_probs[2 * 3];                /* f32[2,3] */
} *K;
_Static_assert(sizeof(struct kept) == 960, "as planned");

static char *L;                                                  /* gradients of a microbatch, until they are added to G */
static char *tmp;                                                /* all other values, packed by lifetime */
static char *scratch;                                            /* of library calls, ... bytes */
static int replica;                                              /* which of the stage's replicas this is */
static const int ranks[] = { 0, 1 };
static const pd_group replicas = { 2, ranks };
static pd_conv op_c;
static pd_bn op_b;
static pd_bn op_d_c;
static pd_conv op_d_w1;

static const float c_1[] = { 1.0f };

/* the rank that does microbatch mb of stage 0 */
static int stage0(int mb)
{
	return 0 + mb * 2 / MICROBATCHES;
}

const pd_param stage_params[] = {
	{ .name = "w1", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 4, .dim = { 2, 1, 3, 3 },
		.offset = 0 + offsetof(struct params, w1), .trained = true, .owner = 0 },
	{ .name = "scale", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 1, .dim = { 2 },
		.offset = 0 + offsetof(struct params, scale), .trained = true, .owner = 0 },
	{ .name = "bias", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 1, .dim = { 2 },
		.offset = 0 + offsetof(struct params, bias), .trained = true, .owner = 0 },
	{ .name = "mean", .kind = PD_BUFFER, .dtype = PD_F32, .rank = 1, .dim = { 2 },
		.offset = 0 + offsetof(struct params, mean), .trained = false, .owner = 0 },
	{ .name = "var", .kind = PD_BUFFER, .dtype = PD_F32, .rank = 1, .dim = { 2 },
		.offset = 0 + offsetof(struct params, var), .trained = false, .owner = 0 },
	{ .name = "w2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 8, 3 },
		.offset = 0 + offsetof(struct params, w2), .trained = true, .owner = 0 },
	{ .name = "b2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 0 + offsetof(struct params, b2), .trained = true, .owner = 0 },
	{ .name = "w1:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 4, .dim = { 2, 1, 3, 3 },
		.offset = 576 + offsetof(struct state, w1_m), .trained = false, .owner = 0 },
	{ .name = "w1:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 4, .dim = { 2, 1, 3, 3 },
		.offset = 576 + offsetof(struct state, w1_v), .trained = false, .owner = 0 },
	{ .name = "scale:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 2 },
		.offset = 576 + offsetof(struct state, scale_m), .trained = false, .owner = 0 },
	{ .name = "scale:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 2 },
		.offset = 576 + offsetof(struct state, scale_v), .trained = false, .owner = 0 },
	{ .name = "bias:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 2 },
		.offset = 576 + offsetof(struct state, bias_m), .trained = false, .owner = 0 },
	{ .name = "bias:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 2 },
		.offset = 576 + offsetof(struct state, bias_v), .trained = false, .owner = 0 },
	{ .name = "w2:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 8, 3 },
		.offset = 576 + offsetof(struct state, w2_m), .trained = false, .owner = 0 },
	{ .name = "w2:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 8, 3 },
		.offset = 576 + offsetof(struct state, w2_v), .trained = false, .owner = 0 },
	{ .name = "b2:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 576 + offsetof(struct state, b2_m), .trained = false, .owner = 0 },
	{ .name = "b2:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 576 + offsetof(struct state, b2_v), .trained = false, .owner = 0 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "x", .dtype = PD_F32, .rank = 4, .dim = { 2, 1, 4, 4 },
		.batch_axis = 0, .range = 0, .kind = "synthetic", .path = "",
		.is_label = false, .ignore_index = INT64_MIN,
	},
	{
		.name = "labels", .dtype = PD_I64, .rank = 1, .dim = { 2 },
		.batch_axis = 0, .range = 3, .kind = "synthetic", .path = "",
		.is_label = true, .ignore_index = INT64_MIN,
	},
};

void forward(int slot, int mb)
{
	struct kept *k = &K[slot];
	float *x = (void *)(tmp + 192);                          /* f32[2,1,4,4] */
	float *p = (void *)(tmp + 896);                          /* f32[2,2,2,2]nhwc */
	float *logits = (void *)(tmp + 960);                     /* f32[2,3] */
	float *loss = (void *)(tmp + 1024);                      /* f32[] */
	float *count = (void *)(tmp + 960);                      /* f32[] */

	pd_input(0, mb, x);                                      /* %x f32[2,1,4,4] */
	pd_input(1, mb, k->labels);                              /* %labels i64[2] */
	reorder_2x1x4x4_to_nhwc(k->x_1, x);                      /* %x.1 f32[2,1,4,4]nhwc  c */
	pd_conv_forward(&op_c, k->c, k->x_1, P->w1, NULL, scratch); /* %c f32[2,2,4,4]nhwc  c */
	pd_bn_forward(&op_b, k->b, k->b_1, k->b_2, k->c, P->scale, P->bias, scratch); /* %b %b.1 %b.2 f32[2,2,4,4]nhwc  b */
	memcpy(R->mean_rows + mb * 2, k->b_1, 2 * sizeof(float));
	memcpy(R->var_rows + mb * 2, k->b_2, 2 * sizeof(float));
	relu_64(k->b, k->b);                                     /* %r f32[2,2,4,4]nhwc  r */
	averagepool_2x2x4x4nhwc(p, k->b);                        /* %p f32[2,2,2,2]nhwc  p */
	reorder_2x2x2x2nhwc_to_plain(k->p_1, p);                 /* %p.1 f32[2,2,2,2]  f */
	pd_gemm_bias(0, 0, 2, 3, 8, k->p_1, 8, P->w2, 3, P->b2, logits); /* %logits f32[2,3]  logits */
	cross_entropy_2x3_sum(loss, k->loss_log_probs, logits, k->labels); /* %loss %loss.log_probs f32[]  loss */
	count_labels_2(count, k->labels);                        /* %count f32[] */
	pd_report(mb, loss[0], count[0]);
}

static int done;                                                 /* microbatches of this step that are in G */

/* the first microbatch of a step has written the sum itself */
static void add_gradient(float *sum, const float *one, int64_t n)
{
	if (!done)
		return;
#pragma omp parallel for simd if (parallel : n >= 32768)
	for (int64_t i = 0; i < n; i++)
		sum[i] += one[i];
}

void backward(int slot, int mb)
{
	struct kept *k = &K[slot];
	float *d_logits = (void *)(tmp + 960);                   /* f32[2,3] */
	float *d_f = (void *)(tmp + 0);                          /* f32[2,8] */
	float *d_b2 = done ? (void *)(L + 0) : G->b2;            /* f32[3] */
	float *d_p_1 = (void *)(tmp + 1088);                     /* f32[2,2,2,2]nhwc */
	float *d_r = (void *)(tmp + 832);                        /* f32[2,2,4,4]nhwc */
	float *d_c = (void *)(tmp + 448);                        /* f32[2,2,4,4]nhwc */
	float *d_scale = done ? (void *)(L + 0) : G->scale;      /* f32[2] */
	float *d_bias = done ? (void *)(L + 64) : G->bias;       /* f32[2] */
	float *d_w1 = done ? (void *)(L + 0) : G->w1;            /* f32[2,1,3,3] */

	(void)mb;
	cross_entropy_grad_2x3_sum(d_logits, c_1, k->loss_log_probs, k->labels); /* %d.logits f32[2,3]  loss */
	pd_gemm(0, 1, 2, 8, 3, d_logits, 3, P->w2, 3, 0, d_f, 8); /* %d.f f32[2,8]  logits */
	pd_gemm(1, 0, 8, 3, 2, k->p_1, 8, d_logits, 3, done > 0, G->w2, 3); /* %d.w2 f32[8,3]  logits */
	reduce_sum_2x3_axes0(d_b2, d_logits);                    /* %d.b2 f32[3]  logits */
	add_gradient(G->b2, d_b2, 3);
	reorder_2x2x2x2_to_nhwc(d_p_1, d_f);                     /* %d.p.1 f32[2,2,2,2]nhwc  p */
	averagepool_grad_2x2x4x4nhwc(d_r, d_p_1);                /* %d.r f32[2,2,4,4]nhwc  p */
	relugrad_64(d_r, d_r, k->b);                             /* %d.b f32[2,2,4,4]nhwc  r */
	/* %d.c %d.scale %d.bias f32[2,2,4,4]nhwc b */
	pd_bn_backward(&op_d_c, d_c, d_scale, d_bias, d_r, k->c, k->b_1, k->b_2, P->scale, scratch);
	add_gradient(G->scale, d_scale, 2);
	add_gradient(G->bias, d_bias, 2);
	pd_conv_backward_weights(&op_d_w1, d_w1, NULL, k->x_1, d_c, scratch); /* %d.w1 f32[2,1,3,3]  c */
	add_gradient(G->w1, d_w1, 18);
	done++;
}

static void clear_rows(float *rows, size_t n)
{
	for (int mb = 0; mb < MICROBATCHES; mb++)
		if (stage0(mb) != 0 + replica)
			memset(rows + (size_t)mb * n, 0, n * sizeof *rows);
}

void sync(void)
{
	pd_allreduce(&replicas, (float *)G, sizeof *G / sizeof(float));
	clear_rows(R->mean_rows, 2);
	pd_allreduce(&replicas, R->mean_rows, 8);
	clear_rows(R->var_rows, 2);
	pd_allreduce(&replicas, R->var_rows, 8);
	done = 0;
}

void update(void)
{
	float *n_2 = (void *)(tmp + 0);                          /* f32[] */

	n_2[0] = (float)pd_total_count();                        /* %n f32[] */
	running_4x2(P->mean, R->mean_rows);                      /* @mean  b */
	running_4x2(P->var, R->var_rows);                        /* @var  b */
	pd_gradient(0, G->w1);
	adam(P->w1, S->w1_m, S->w1_v, G->w1, n_2, 18);           /* @w1 */
	pd_gradient(1, G->scale);
	adam(P->scale, S->scale_m, S->scale_v, G->scale, n_2, 2); /* @scale */
	pd_gradient(2, G->bias);
	adam(P->bias, S->bias_m, S->bias_v, G->bias, n_2, 2);    /* @bias */
	pd_gradient(5, G->w2);
	adam(P->w2, S->w2_m, S->w2_v, G->w2, n_2, 24);           /* @w2 */
	pd_gradient(6, G->b2);
	adam(P->b2, S->b2_m, S->b2_v, G->b2, n_2, 3);            /* @b2 */
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	S = (void *)(arena + 576);
	R = (void *)(arena + 2048);
	K = (void *)(arena + 2176);
	G = (void *)(arena + 1472);
	L = arena + 1920;
	tmp = arena + 2176;
	scratch = arena + 3328;
	replica = which;
	/* %c f32[2,2,4,4]nhwc c */
	pd_check_scratch("conv of 2x1x4x4nhwc", pd_conv_scratch(&(pd_conv_desc){ .what = PD_FORWARD, .nd = 2,
		.n = 2, .c = 1, .oc = 2, .groups = 1, .in = { 4, 4 }, .out = { 4, 4 }, .kernel = { 3, 3 },
		.stride = { 1, 1 }, .pad_begin = { 1, 1 }, .pad_end = { 1, 1 }, .dilation = { 1, 1 }, .nhwc = 1,
		.bias = 0 }), ...);
	pd_conv_init(&op_c, &(pd_conv_desc){ .what = PD_FORWARD, .nd = 2, .n = 2, .c = 1, .oc = 2, .groups = 1,
		.in = { 4, 4 }, .out = { 4, 4 }, .kernel = { 3, 3 }, .stride = { 1, 1 }, .pad_begin = { 1, 1 },
		.pad_end = { 1, 1 }, .dilation = { 1, 1 }, .nhwc = 1, .bias = 0 });
	/* %b %b.1 %b.2 f32[2,2,4,4]nhwc b */
	pd_check_scratch("batchnorm of 2x2x4x4nhwc", pd_bn_scratch(&(pd_bn_desc){ .what = PD_FORWARD, .n = 2,
		.c = 2, .nd = 2, .sp = { 4, 4, 1 }, .nhwc = 1, .eps = 9.999999747e-06f }), ...);
	pd_bn_init(&op_b, &(pd_bn_desc){ .what = PD_FORWARD, .n = 2, .c = 2, .nd = 2, .sp = { 4, 4, 1 },
		.nhwc = 1, .eps = 9.999999747e-06f });
	/* %d.c %d.scale %d.bias f32[2,2,4,4]nhwc b */
	pd_check_scratch("batchnorm_grad of 2x2x4x4nhwc", pd_bn_scratch(&(pd_bn_desc){ .what = PD_BACKWARD_DATA,
		.n = 2, .c = 2, .nd = 2, .sp = { 4, 4, 1 }, .nhwc = 1, .eps = 9.999999747e-06f }), ...);
	pd_bn_init(&op_d_c, &(pd_bn_desc){ .what = PD_BACKWARD_DATA, .n = 2, .c = 2, .nd = 2, .sp = { 4, 4, 1 },
		.nhwc = 1, .eps = 9.999999747e-06f });
	/* %d.w1 f32[2,1,3,3] c */
	pd_check_scratch("conv_grad_weights of 2x1x4x4nhwc",
		pd_conv_scratch(&(pd_conv_desc){ .what = PD_BACKWARD_WEIGHTS, .nd = 2, .n = 2, .c = 1, .oc = 2,
		.groups = 1, .in = { 4, 4 }, .out = { 4, 4 }, .kernel = { 3, 3 }, .stride = { 1, 1 },
		.pad_begin = { 1, 1 }, .pad_end = { 1, 1 }, .dilation = { 1, 1 }, .nhwc = 1, .bias = 0 }), ...);
	pd_conv_init(&op_d_w1, &(pd_conv_desc){ .what = PD_BACKWARD_WEIGHTS, .nd = 2, .n = 2, .c = 1, .oc = 2,
		.groups = 1, .in = { 4, 4 }, .out = { 4, 4 }, .kernel = { 3, 3 }, .stride = { 1, 1 },
		.pad_begin = { 1, 1 }, .pad_end = { 1, 1 }, .dilation = { 1, 1 }, .nhwc = 1, .bias = 0 });
	(void)mine;
	(void)nmine;
}
