/* skip, stage 0 of 1: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage0.h"
#include "kernels.h"

enum { STAGE = 0, REPLICAS = 1, MICROBATCHES = 3, SLOTS = 1 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float w1[4 * 4];                            /* f32[4,4] */
	_Alignas(64) float w2[4 * 4];                            /* f32[4,4] */
	_Alignas(64) float w3[4 * 4];                            /* f32[4,4] */
} *P;
_Static_assert(sizeof(struct params) == 192, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float w1[4 * 4];                            /* f32[4,4] */
	_Alignas(64) float w2[4 * 4];                            /* f32[4,4] */
	_Alignas(64) float w3[4 * 4];                            /* f32[4,4] */
} *G;
_Static_assert(sizeof(struct grads) == 192, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) float x[2 * 4];                             /* f32[2,4] */
	_Alignas(64) int64_t labels[2];                          /* i64[2] */
	_Alignas(64) float h[2 * 4];                             /* f32[2,4] */
	_Alignas(64) float m[2 * 4];                             /* f32[2,4] */
	_Alignas(64) float s[2 * 4];                             /* f32[2,4] */
	_Alignas(64) float n_2[2 * 4];                           /* f32[2,4] */
	_Alignas(64) float loss_log_probs[2 * 4];                /* f32[2,4] */
} *K;
_Static_assert(sizeof(struct kept) == 448, "as planned");

static char *tmp;                                                /* all other values, packed by lifetime */
static char *scratch;                                            /* of library calls, 1024 bytes */
static pd_tree *tree;                                            /* sums of gradients in a fixed order */
static const int ranks[] = { 0 };
static const pd_group replicas = { 1, ranks };
static pd_product op_h;
static pd_product op_m;
static pd_product op_n;
static pd_product op_d_s;
static pd_product op_d_w3;
static pd_product op_d_h_1;
static pd_product op_d_w2;
static pd_product op_d_w1;

static const float *c_1;
static const float c_1_on_host[] = { 1.0f };

const pd_param stage_params[] = {
	{ .name = "w1", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 4, 4 },
		.offset = 0 + offsetof(struct params, w1), .trained = true, .owner = 0 },
	{ .name = "w2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 4, 4 },
		.offset = 0 + offsetof(struct params, w2), .trained = true, .owner = 0 },
	{ .name = "w3", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 4, 4 },
		.offset = 0 + offsetof(struct params, w3), .trained = true, .owner = 0 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "x", .dtype = PD_F32, .rank = 2, .dim = { 2, 4 },
		.batch_axis = 0, .range = 0, .kind = "synthetic", .path = "",
		.is_label = false, .ignore_index = INT64_MIN,
	},
	{
		.name = "labels", .dtype = PD_I64, .rank = 1, .dim = { 2 },
		.batch_axis = 0, .range = 4, .kind = "synthetic", .path = "",
		.is_label = true, .ignore_index = INT64_MIN,
	},
};

void forward(int slot, int mb)
{
	struct kept *k = &K[slot];
	float *logits = (void *)(tmp + 448);                     /* f32[2,4] */
	float *loss = (void *)(tmp + 512);                       /* f32[] */
	float *count = (void *)(tmp + 448);                      /* f32[] */

	pd_input(0, mb, k->x);                                   /* %x f32[2,4] */
	pd_input(1, mb, k->labels);                              /* %labels i64[2] */
	pd_product_run(&op_h, k->h, NULL, k->x, P->w1, NULL, NULL, scratch); /* %h f32[2,4]  h */
	pd_product_run(&op_m, k->m, NULL, k->h, P->w2, NULL, NULL, scratch); /* %m f32[2,4]  m */
	fused_tanh_add_8_9f383262(k->m, k->s, k->m, k->h);       /* %t %s f32[2,4]  s */
	pd_product_run(&op_n, k->n_2, NULL, k->s, P->w3, NULL, NULL, scratch); /* %n f32[2,4]  n */
	mul_8(logits, k->n_2, k->h);                             /* %logits f32[2,4]  logits */
	cross_entropy_2x4_sum(loss, k->loss_log_probs, logits, k->labels); /* %loss %loss.log_probs f32[]  loss */
	count_labels_2(count, k->labels);                        /* %count f32[] */
	pd_report_from(mb, loss, count);
}

void backward(int slot, int mb)
{
	struct kept *k = &K[slot];
	struct grads *g = (void *)pd_tree_leaf(tree, mb);
	float *d_logits = (void *)(tmp + 448);                   /* f32[2,4] */
	float *d_n = (void *)(tmp + 64);                         /* f32[2,4] */
	float *d_s = (void *)(tmp + 384);                        /* f32[2,4] */
	float *d_m = (void *)(tmp + 64);                         /* f32[2,4] */
	float *d_h_1 = (void *)(tmp + 192);                      /* f32[2,4] */

	cross_entropy_grad_2x4_sum(d_logits, c_1, k->loss_log_probs, k->labels); /* %d.logits f32[2,4]  loss */
	mul_8(d_n, d_logits, k->h);                              /* %d.n f32[2,4]  logits */
	pd_product_run(&op_d_s, d_s, NULL, d_n, P->w3, NULL, NULL, scratch); /* %d.s f32[2,4]  n */
	pd_product_run(&op_d_w3, g->w3, NULL, k->s, d_n, NULL, NULL, scratch); /* %d.w3 f32[4,4]  n */
	tanhgrad_8(d_m, d_s, k->m);                              /* %d.m f32[2,4]  t */
	pd_product_run(&op_d_h_1, d_h_1, NULL, d_m, P->w2, NULL, NULL, scratch); /* %d.h.1 f32[2,4]  m */
	pd_product_run(&op_d_w2, g->w2, NULL, k->h, d_m, NULL, NULL, scratch); /* %d.w2 f32[4,4]  m */
	fused_mul_sum_8_4bbd5c7f(d_logits, d_logits, k->n_2, d_s, d_h_1); /* %d.h.2 f32[2,4]  h */
	pd_product_run(&op_d_w1, g->w1, NULL, k->x, d_logits, NULL, NULL, scratch); /* %d.w1 f32[4,4]  h */
	pd_tree_done(tree, mb);
}

void sync(void)
{
	G = (void *)pd_tree_root(tree, &replicas);
}

void update(void)
{
	float *n_1 = (void *)(tmp + 0);                          /* f32[] */

	pd_set_count(n_1);                                       /* %n.1 f32[] */
	pd_gradient(0, G->w1);
	pd_gradient(1, G->w2);
	pd_gradient(2, G->w3);
	{
		const pd_many rows[] = {
			{ .n = 16, .at = { P->w1, G->w1 } },     /* @w1 */
			{ .n = 16, .at = { P->w2, G->w2 } },     /* @w2 */
			{ .n = 16, .at = { P->w3, G->w3 } },     /* @w3 */
		};

		sgd(rows, (int)(sizeof rows / sizeof *rows), n_1);
	}
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	K = (void *)(arena + 1728);
	tmp = arena + 1728;
	scratch = arena + 2304;
	pd_check_scratch("the tree of gradients", pd_tree_bytes(MICROBATCHES, 48, mine, nmine), 1536);
	tree = pd_tree_new(MICROBATCHES, 48, mine, nmine, arena + 192);
	c_1 = pd_constant(c_1_on_host, sizeof c_1_on_host);
	/* %h f32[2,4] h */
	pd_product_init(&op_h, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 0,
		.m = 2, .n = 4, .k = 4, .end = PD_AS_IT_IS, .scratch = 512 });
	/* %m f32[2,4] m */
	pd_product_init(&op_m, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 0,
		.m = 2, .n = 4, .k = 4, .end = PD_AS_IT_IS, .scratch = 512 });
	/* %n f32[2,4] n */
	pd_product_init(&op_n, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 0,
		.m = 2, .n = 4, .k = 4, .end = PD_AS_IT_IS, .scratch = 512 });
	/* %d.s f32[2,4] n */
	pd_product_init(&op_d_s, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 1,
		.m = 2, .n = 4, .k = 4, .end = PD_AS_IT_IS, .scratch = 512 });
	/* %d.w3 f32[4,4] n */
	pd_product_init(&op_d_w3, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 1, .transb = 0,
		.m = 4, .n = 4, .k = 2, .end = PD_AS_IT_IS, .scratch = 1024 });
	/* %d.h.1 f32[2,4] m */
	pd_product_init(&op_d_h_1, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 1,
		.m = 2, .n = 4, .k = 4, .end = PD_AS_IT_IS, .scratch = 512 });
	/* %d.w2 f32[4,4] m */
	pd_product_init(&op_d_w2, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 1, .transb = 0,
		.m = 4, .n = 4, .k = 2, .end = PD_AS_IT_IS, .scratch = 1024 });
	/* %d.w1 f32[4,4] h */
	pd_product_init(&op_d_w1, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 1, .transb = 0,
		.m = 4, .n = 4, .k = 2, .end = PD_AS_IT_IS, .scratch = 1024 });
	(void)which;
}
