/* mlp, stage 0 of 1: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage0.h"
#include "kernels.h"

enum { STAGE = 0, REPLICAS = 1, MICROBATCHES = 3, SLOTS = 1 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float w1[6 * 5];                            /* f32[6,5] */
	_Alignas(64) float b1[5];                                /* f32[5] */
	_Alignas(64) float w2[5 * 3];                            /* f32[5,3] */
	_Alignas(64) float b2[3];                                /* f32[3] */
} *P;
_Static_assert(sizeof(struct params) == 320, "as planned");

/* what the optimizer remembers */
static struct state {
	_Alignas(64) float w1_mom[6 * 5];                        /* f32[6,5] */
	_Alignas(64) float b1_mom[5];                            /* f32[5] */
	_Alignas(64) float w2_mom[5 * 3];                        /* f32[5,3] */
	_Alignas(64) float b2_mom[3];                            /* f32[3] */
} *S;
_Static_assert(sizeof(struct state) == 320, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float w1[6 * 5];                            /* f32[6,5] */
	_Alignas(64) float b1[5];                                /* f32[5] */
	_Alignas(64) float w2[5 * 3];                            /* f32[5,3] */
	_Alignas(64) float b2[3];                                /* f32[3] */
} *G;
_Static_assert(sizeof(struct grads) == 320, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) float x[4 * 6];                             /* f32[4,6] */
	_Alignas(64) int64_t labels[4];                          /* i64[4] */
	_Alignas(64) float h[4 * 5];                             /* f32[4,5] */
	_Alignas(64) float loss_log_probs[4 * 3];                /* f32[4,3] */
} *K;
_Static_assert(sizeof(struct kept) == 384, "as planned");

static char *L;                                                  /* gradients of a microbatch, until they are added to G */
static char *tmp;                                                /* all other values, packed by lifetime */

static const float c_1[] = { 1.0f };

const pd_param stage_params[] = {
	{ .name = "w1", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 6, 5 },
		.offset = 0 + offsetof(struct params, w1), .trained = true, .owner = 0 },
	{ .name = "b1", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 1, .dim = { 5 },
		.offset = 0 + offsetof(struct params, b1), .trained = true, .owner = 0 },
	{ .name = "w2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 5, 3 },
		.offset = 0 + offsetof(struct params, w2), .trained = true, .owner = 0 },
	{ .name = "b2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 0 + offsetof(struct params, b2), .trained = true, .owner = 0 },
	{ .name = "w1:mom", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 6, 5 },
		.offset = 320 + offsetof(struct state, w1_mom), .trained = false, .owner = 0 },
	{ .name = "b1:mom", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 5 },
		.offset = 320 + offsetof(struct state, b1_mom), .trained = false, .owner = 0 },
	{ .name = "w2:mom", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 5, 3 },
		.offset = 320 + offsetof(struct state, w2_mom), .trained = false, .owner = 0 },
	{ .name = "b2:mom", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 320 + offsetof(struct state, b2_mom), .trained = false, .owner = 0 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "x", .dtype = PD_F32, .rank = 2, .dim = { 4, 6 },
		.batch_axis = 0, .range = 0, .kind = "synthetic", .path = "",
		.is_label = false, .ignore_index = INT64_MIN,
	},
	{
		.name = "labels", .dtype = PD_I64, .rank = 1, .dim = { 4 },
		.batch_axis = 0, .range = 3, .kind = "synthetic", .path = "",
		.is_label = true, .ignore_index = INT64_MIN,
	},
};

void forward(int slot, int mb)
{
	struct kept *k = &K[slot];
	float *logits = (void *)(tmp + 384);                     /* f32[4,3] */
	float *loss = (void *)(tmp + 448);                       /* f32[] */
	float *count = (void *)(tmp + 384);                      /* f32[] */

	pd_input(0, mb, k->x);                                   /* %x f32[4,6] */
	pd_input(1, mb, k->labels);                              /* %labels i64[4] */
	pd_gemm_bias(0, 0, 4, 5, 6, k->x, 6, P->w1, 5, P->b1, k->h); /* %h f32[4,5]  h */
	relu_20(k->h, k->h);                                     /* %a f32[4,5]  a */
	pd_gemm_bias(0, 0, 4, 3, 5, k->h, 5, P->w2, 3, P->b2, logits); /* %logits f32[4,3]  logits */
	cross_entropy_4x3_sum(loss, k->loss_log_probs, logits, k->labels); /* %loss %loss.log_probs f32[]  loss */
	count_labels_4(count, k->labels);                        /* %count f32[] */
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
	float *d_logits = (void *)(tmp + 448);                   /* f32[4,3] */
	float *d_a = (void *)(tmp + 320);                        /* f32[4,5] */
	float *d_b2 = done ? (void *)(L + 0) : G->b2;            /* f32[3] */
	float *d_b1 = done ? (void *)(L + 0) : G->b1;            /* f32[5] */

	(void)mb;
	cross_entropy_grad_4x3_sum(d_logits, c_1, k->loss_log_probs, k->labels); /* %d.logits f32[4,3]  loss */
	pd_gemm(0, 1, 4, 5, 3, d_logits, 3, P->w2, 3, 0, d_a, 5); /* %d.a f32[4,5]  logits */
	pd_gemm(1, 0, 5, 3, 4, k->h, 5, d_logits, 3, done > 0, G->w2, 3); /* %d.w2 f32[5,3]  logits */
	reduce_sum_4x3_axes0(d_b2, d_logits);                    /* %d.b2 f32[3]  logits */
	add_gradient(G->b2, d_b2, 3);
	relugrad_20(d_a, d_a, k->h);                             /* %d.h f32[4,5]  a */
	pd_gemm(1, 0, 6, 5, 4, k->x, 6, d_a, 5, done > 0, G->w1, 5); /* %d.w1 f32[6,5]  h */
	reduce_sum_4x5_axes0(d_b1, d_a);                         /* %d.b1 f32[5]  h */
	add_gradient(G->b1, d_b1, 5);
	done++;
}

void sync(void)
{
	done = 0;
}

void update(void)
{
	float *n_2 = (void *)(tmp + 0);                          /* f32[] */

	n_2[0] = (float)pd_total_count();                        /* %n f32[] */
	pd_gradient(0, G->w1);
	momentum(P->w1, S->w1_mom, G->w1, n_2, 30);              /* @w1 */
	pd_gradient(1, G->b1);
	momentum(P->b1, S->b1_mom, G->b1, n_2, 5);               /* @b1 */
	pd_gradient(2, G->w2);
	momentum(P->w2, S->w2_mom, G->w2, n_2, 15);              /* @w2 */
	pd_gradient(3, G->b2);
	momentum(P->b2, S->b2_mom, G->b2, n_2, 3);               /* @b2 */
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	S = (void *)(arena + 320);
	K = (void *)(arena + 1024);
	G = (void *)(arena + 640);
	L = arena + 960;
	tmp = arena + 1024;
	(void)which;
	(void)mine;
	(void)nmine;
}
