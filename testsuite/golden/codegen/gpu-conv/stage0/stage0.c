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
	_Alignas(64) float w1_mom[2 * 1 * 3 * 3];                /* f32[2,1,3,3] */
	_Alignas(64) float scale_mom[2];                         /* f32[2] */
	_Alignas(64) float bias_mom[2];                          /* f32[2] */
	_Alignas(64) float w2_mom[8 * 3];                        /* f32[8,3] */
	_Alignas(64) float b2_mom[3];                            /* f32[3] */
} *S;
_Static_assert(sizeof(struct state) == 448, "as planned");

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
	_Alignas(64) float x[2 * 1 * 4 * 4];                     /* f32[2,1,4,4] */
	_Alignas(64) float c[2 * 2 * 4 * 4];                     /* f32[2,2,4,4] */
	_Alignas(64) float b[2 * 2 * 4 * 4];                     /* f32[2,2,4,4] */
	_Alignas(64) float b_1[2];                               /* f32[2] */
	_Alignas(64) float b_2[2];                               /* f32[2] */
	_Alignas(64) float p[2 * 2 * 2 * 2];                     /* f32[2,2,2,2] */
	_Alignas(64) float logits[2 * 3];                        /* f32[2,3] */
} *K;
_Static_assert(sizeof(struct kept) == 896, "as planned");

static char *L;                                                  /* gradients of a microbatch, until they are added to G */
static char *tmp;                                                /* all other values, packed by lifetime */
static char *scratch;                                            /* of library calls, 1536 bytes */
static int replica;                                              /* which of the stage's replicas this is */
static const int ranks[] = { 0, 1 };
static const pd_group replicas = { 2, ranks };
static pd_conv op_c;
static pd_bn op_b;
static pd_pool op_p;
static pd_product op_logits;
static pd_product op_d_f;
static pd_product op_d_w2;
static pd_pool op_d_r;
static pd_bn op_d_c;
static pd_conv op_d_w1;

static const float *c_1;
static const float c_1_on_host[] = { 1.0f };

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
	{ .name = "w1:mom", .kind = PD_STATE, .dtype = PD_F32, .rank = 4, .dim = { 2, 1, 3, 3 },
		.offset = 576 + offsetof(struct state, w1_mom), .trained = false, .owner = 0 },
	{ .name = "scale:mom", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 2 },
		.offset = 576 + offsetof(struct state, scale_mom), .trained = false, .owner = 0 },
	{ .name = "bias:mom", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 2 },
		.offset = 576 + offsetof(struct state, bias_mom), .trained = false, .owner = 0 },
	{ .name = "w2:mom", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 8, 3 },
		.offset = 576 + offsetof(struct state, w2_mom), .trained = false, .owner = 0 },
	{ .name = "b2:mom", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 576 + offsetof(struct state, b2_mom), .trained = false, .owner = 0 },
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
	int64_t *labels = (void *)(tmp + 896);                   /* i64[2] */
	float *loss = (void *)(tmp + 960);                       /* f32[] */
	float *count = (void *)(tmp + 1024);                     /* f32[] */

	pd_input(0, mb, k->x);                                   /* %x f32[2,1,4,4] */
	pd_input(1, mb, labels);                                 /* %labels i64[2] */
	pd_conv_forward(&op_c, k->c, k->x, P->w1, NULL, scratch); /* %c f32[2,2,4,4]  c */
	pd_bn_forward(&op_b, k->b, k->b_1, k->b_2, k->c, P->scale, P->bias, scratch); /* %b %b.1 %b.2 f32[2,2,4,4]  b */
	relu_64(k->b, k->b);                                     /* %r f32[2,2,4,4]  r */
	pd_pool_forward(&op_p, k->p, k->b);                      /* %p f32[2,2,2,2]  p */
	pd_product_run(&op_logits, k->logits, NULL, k->p, P->w2, P->b2, NULL, scratch); /* %logits f32[2,3]  logits */
	loss_and_grad_2x3(k->logits, loss, k->logits, c_1, labels); /* %d.logits %loss f32[2,3]  loss */
	count_labels_2(count, labels);                           /* %count f32[] */
	pd_report_from(mb, loss, count);
	{
		const pd_many rows[] = {
			{ .n = 2, .at = { R->mean_rows + mb * 2, k->b_1 } },
			{ .n = 2, .at = { R->var_rows + mb * 2, k->b_2 } },
		};

		pd_copy_many(rows, (int)(sizeof rows / sizeof *rows));
	}
}

static int done;                                                 /* microbatches of this step that are in G */

void backward(int slot, int mb)
{
	struct kept *k = &K[slot];
	float *d_f = (void *)(tmp + 1024);                       /* f32[2,8] */
	float *d_b2 = done ? (void *)(L + 128) : G->b2;          /* f32[3] */
	float *d_r = (void *)(tmp + 768);                        /* f32[2,2,4,4] */
	float *d_c = (void *)(tmp + 384);                        /* f32[2,2,4,4] */
	float *d_scale = done ? (void *)(L + 192) : G->scale;    /* f32[2] */
	float *d_bias = done ? (void *)(L + 256) : G->bias;      /* f32[2] */
	float *d_w1 = done ? (void *)(L + 0) : G->w1;            /* f32[2,1,3,3] */

	(void)mb;
	pd_product_run(&op_d_f, d_f, NULL, k->logits, P->w2, NULL, NULL, scratch); /* %d.f f32[2,8]  logits */
	pd_product_run(&op_d_w2, G->w2, d_b2, k->p, k->logits, NULL, NULL, scratch); /* %d.w2 %d.b2 f32[8,3]  logits */
	pd_pool_backward(&op_d_r, d_r, d_f);                     /* %d.r f32[2,2,4,4]  p */
	relugrad_64(d_r, d_r, k->b);                             /* %d.b f32[2,2,4,4]  r */
	/* %d.c %d.scale %d.bias f32[2,2,4,4] b */
	pd_bn_backward(&op_d_c, d_c, d_scale, d_bias, d_r, k->c, k->b_1, k->b_2, P->scale, scratch);
	pd_conv_backward_weights(&op_d_w1, d_w1, NULL, k->x, d_c, scratch); /* %d.w1 f32[2,1,3,3]  c */
	if (done) {
		const pd_many rows[] = {
			{ .n = 3, .at = { G->b2, d_b2 } },
			{ .n = 2, .at = { G->scale, d_scale } },
			{ .n = 2, .at = { G->bias, d_bias } },
			{ .n = 18, .at = { G->w1, d_w1 } },
		};

		pd_add_many(rows, (int)(sizeof rows / sizeof *rows));
	}
	done++;
}

static void clear_rows(float *rows, size_t n)
{
	for (int mb = 0; mb < MICROBATCHES; mb++)
		if (stage0(mb) != 0 + replica)
			pd_fill(rows + (size_t)mb * n, 0, n * sizeof *rows);
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

	pd_set_count(n_2);                                       /* %n f32[] */
	{
		const pd_many rows[] = {
			{ .n = 2, .at = { P->mean, R->mean_rows } }, /* @mean  b */
			{ .n = 2, .at = { P->var, R->var_rows } }, /* @var  b */
		};

		running(rows, (int)(sizeof rows / sizeof *rows));
	}
	pd_gradient(0, G->w1);
	pd_gradient(1, G->scale);
	pd_gradient(2, G->bias);
	pd_gradient(5, G->w2);
	pd_gradient(6, G->b2);
	{
		const pd_many rows[] = {
			{ .n = 18, .at = { P->w1, S->w1_mom, G->w1 } }, /* @w1 */
			{ .n = 2, .at = { P->scale, S->scale_mom, G->scale } }, /* @scale */
			{ .n = 2, .at = { P->bias, S->bias_mom, G->bias } }, /* @bias */
			{ .n = 24, .at = { P->w2, S->w2_mom, G->w2 } }, /* @w2 */
			{ .n = 3, .at = { P->b2, S->b2_mom, G->b2 } }, /* @b2 */
		};

		momentum(rows, (int)(sizeof rows / sizeof *rows), n_2);
	}
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	S = (void *)(arena + 576);
	R = (void *)(arena + 1792);
	K = (void *)(arena + 1920);
	G = (void *)(arena + 1024);
	L = arena + 1472;
	tmp = arena + 1920;
	scratch = arena + 3008;
	replica = which;
	pd_counted(&done);
	c_1 = pd_constant(c_1_on_host, sizeof c_1_on_host);
	pd_room_open(8);
	pd_call_open(PD_CALL_GROUP, 448, 0);
	/* %c f32[2,2,4,4] c */
	pd_check_scratch("conv of 2x1x4x4", pd_conv_scratch(&(pd_conv_desc){ .what = PD_FORWARD, .nd = 2,
		.n = 2, .c = 1, .oc = 2, .groups = 1, .in = { 4, 4 }, .out = { 4, 4 }, .kernel = { 3, 3 },
		.stride = { 1, 1 }, .pad_begin = { 1, 1 }, .pad_end = { 1, 1 }, .dilation = { 1, 1 }, .nhwc = 0,
		.bias = 0 }), 0);
	pd_conv_init(&op_c, &(pd_conv_desc){ .what = PD_FORWARD, .nd = 2, .n = 2, .c = 1, .oc = 2, .groups = 1,
		.in = { 4, 4 }, .out = { 4, 4 }, .kernel = { 3, 3 }, .stride = { 1, 1 }, .pad_begin = { 1, 1 },
		.pad_end = { 1, 1 }, .dilation = { 1, 1 }, .nhwc = 0, .bias = 0 });
	/* %b %b.1 %b.2 f32[2,2,4,4] b */
	pd_check_scratch("batchnorm of 2x2x4x4", pd_bn_scratch(&(pd_bn_desc){ .what = PD_FORWARD, .n = 2,
		.c = 2, .nd = 2, .sp = { 4, 4, 1 }, .nhwc = 0, .eps = 9.999999747e-06f }), 0);
	pd_bn_init(&op_b, &(pd_bn_desc){ .what = PD_FORWARD, .n = 2, .c = 2, .nd = 2, .sp = { 4, 4, 1 },
		.nhwc = 0, .eps = 9.999999747e-06f });
	/* %p f32[2,2,2,2] p */
	pd_pool_init(&op_p, &(pd_pool_desc){ .kind = PD_AVERAGE, .nd = 2, .n = 2, .c = 2, .in = { 4, 4 },
		.out = { 2, 2 }, .kernel = { 2, 2 }, .stride = { 2, 2 }, .pad = { 0, 0 } });
	/* %logits f32[2,3] logits */
	pd_product_init(&op_logits, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 0,
		.m = 2, .n = 3, .k = 8, .end = PD_AS_IT_IS, .bias = 1, .scratch = 384 });
	/* %d.f f32[2,8] logits */
	pd_product_init(&op_d_f, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 1,
		.m = 2, .n = 8, .k = 3, .end = PD_AS_IT_IS, .scratch = 1024 });
	/* %d.w2 %d.b2 f32[8,3] logits */
	pd_product_init(&op_d_w2, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 1, .transb = 0,
		.m = 8, .n = 3, .k = 2, .end = PD_AS_IT_IS, .sum = 2, .adds = &done, .scratch = 1536 });
	/* %d.r f32[2,2,4,4] p */
	pd_pool_init(&op_d_r, &(pd_pool_desc){ .kind = PD_AVERAGE, .nd = 2, .n = 2, .c = 2, .in = { 4, 4 },
		.out = { 2, 2 }, .kernel = { 2, 2 }, .stride = { 2, 2 }, .pad = { 0, 0 } });
	/* %d.c %d.scale %d.bias f32[2,2,4,4] b */
	pd_check_scratch("batchnorm_grad of 2x2x4x4", pd_bn_scratch(&(pd_bn_desc){ .what = PD_BACKWARD_DATA,
		.n = 2, .c = 2, .nd = 2, .sp = { 4, 4, 1 }, .nhwc = 0, .eps = 9.999999747e-06f }), 0);
	pd_bn_init(&op_d_c, &(pd_bn_desc){ .what = PD_BACKWARD_DATA, .n = 2, .c = 2, .nd = 2, .sp = { 4, 4, 1 },
		.nhwc = 0, .eps = 9.999999747e-06f });
	/* %d.w1 f32[2,1,3,3] c */
	pd_check_scratch("conv_grad_weights of 2x1x4x4",
		pd_conv_scratch(&(pd_conv_desc){ .what = PD_BACKWARD_WEIGHTS, .nd = 2, .n = 2, .c = 1, .oc = 2,
		.groups = 1, .in = { 4, 4 }, .out = { 4, 4 }, .kernel = { 3, 3 }, .stride = { 1, 1 },
		.pad_begin = { 1, 1 }, .pad_end = { 1, 1 }, .dilation = { 1, 1 }, .nhwc = 0, .bias = 0 }), 0);
	pd_conv_init(&op_d_w1, &(pd_conv_desc){ .what = PD_BACKWARD_WEIGHTS, .nd = 2, .n = 2, .c = 1, .oc = 2,
		.groups = 1, .in = { 4, 4 }, .out = { 4, 4 }, .kernel = { 3, 3 }, .stride = { 1, 1 },
		.pad_begin = { 1, 1 }, .pad_end = { 1, 1 }, .dilation = { 1, 1 }, .nhwc = 0, .bias = 0 });
	(void)mine;
	(void)nmine;
}
