/* mlp, stage 0 of 2: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage0.h"
#include "kernels.h"

enum { STAGE = 0, REPLICAS = 1, MICROBATCHES = 2, SLOTS = 2 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float w1[6 * 5];                            /* f32[6,5] */
	_Alignas(64) float b1[5];                                /* f32[5] */
} *P;
_Static_assert(sizeof(struct params) == 192, "as planned");

/* what the optimizer remembers */
static struct state {
	_Alignas(64) float w1_m[6 * 5];                          /* f32[6,5] */
	_Alignas(64) float w1_v[6 * 5];                          /* f32[6,5] */
	_Alignas(64) float b1_m[5];                              /* f32[5] */
	_Alignas(64) float b1_v[5];                              /* f32[5] */
} *S;
_Static_assert(sizeof(struct state) == 384, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float w1[6 * 5];                            /* f32[6,5] */
	_Alignas(64) float b1[5];                                /* f32[5] */
} *G;
_Static_assert(sizeof(struct grads) == 192, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) float x[4 * 6];                             /* f32[4,6] */
	_Alignas(64) float a[4 * 5];                             /* f32[4,5] */
	_Alignas(64) float d_a[4 * 5];                           /* f32[4,5] */
} *K;
_Static_assert(sizeof(struct kept) == 384, "as planned");

static char *L;                                                  /* gradients of a microbatch, until they are added to G */
static char *tmp;                                                /* all other values, packed by lifetime */
static char *scratch;                                            /* of library calls, 1920 bytes */
static pd_product op_a;
static pd_product op_d_w1;

const pd_param stage_params[] = {
	{ .name = "w1", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 6, 5 },
		.offset = 0 + offsetof(struct params, w1), .trained = true, .owner = 0 },
	{ .name = "b1", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 1, .dim = { 5 },
		.offset = 0 + offsetof(struct params, b1), .trained = true, .owner = 0 },
	{ .name = "w1:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 6, 5 },
		.offset = 192 + offsetof(struct state, w1_m), .trained = false, .owner = 0 },
	{ .name = "w1:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 6, 5 },
		.offset = 192 + offsetof(struct state, w1_v), .trained = false, .owner = 0 },
	{ .name = "b1:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 5 },
		.offset = 192 + offsetof(struct state, b1_m), .trained = false, .owner = 0 },
	{ .name = "b1:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 5 },
		.offset = 192 + offsetof(struct state, b1_v), .trained = false, .owner = 0 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "x", .dtype = PD_F32, .rank = 2, .dim = { 4, 6 },
		.batch_axis = 0, .range = 0, .kind = "synthetic", .path = "",
		.is_label = false, .ignore_index = INT64_MIN,
	},
};

void forward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_wait_send(0, slot);
	pd_input(0, mb, k->x);                                   /* %x f32[4,6] */
	pd_product_run(&op_a, k->a, NULL, k->x, P->w1, P->b1, NULL, scratch); /* %a f32[4,5]  h */
}

void send_forward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_isend(0, slot, 1, mb, k->a, 20 * sizeof(float));      /* %a */
}

void recv_backward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_irecv(1, slot, 1, mb, k->d_a, 20 * sizeof(float));    /* %d.a f32[4,5]  logits */
}

static int done;                                                 /* microbatches of this step that are in G */

void backward(int slot, int mb)
{
	struct kept *k = &K[slot];
	float *d_h = (void *)(tmp + 0);                          /* f32[4,5] */
	float *d_b1 = done ? (void *)(L + 0) : G->b1;            /* f32[5] */

	(void)mb;
	pd_wait_recv(1, slot);                                   /* %d.a f32[4,5]  logits */
	relugrad_20(d_h, k->d_a, k->a);                          /* %d.h f32[4,5]  a */
	pd_product_run(&op_d_w1, G->w1, d_b1, k->x, d_h, NULL, NULL, scratch); /* %d.w1 %d.b1 f32[6,5]  h */
	if (done) {
		const pd_many rows[] = {
			{ .n = 5, .at = { G->b1, d_b1 } },
		};

		pd_add_many(rows, (int)(sizeof rows / sizeof *rows));
	}
	done++;
}

void sync(void)
{
	done = 0;
}

void update(void)
{
	float *n_2 = (void *)(tmp + 0);                          /* f32[] */

	pd_set_count(n_2);                                       /* %n f32[] */
	pd_gradient(0, G->w1);
	pd_gradient(1, G->b1);
	{
		const pd_many rows[] = {
			{ .n = 30, .at = { P->w1, S->w1_m, S->w1_v, G->w1 } }, /* @w1 */
			{ .n = 5, .at = { P->b1, S->b1_m, S->b1_v, G->b1 } }, /* @b1 */
		};

		adam(rows, (int)(sizeof rows / sizeof *rows), n_2);
	}
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	S = (void *)(arena + 192);
	K = (void *)(arena + 832);
	G = (void *)(arena + 576);
	L = arena + 768;
	tmp = arena + 1600;
	scratch = arena + 1728;
	pd_counted(&done);
	/* %a f32[4,5] h */
	pd_product_init(&op_a, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 0,
		.m = 4, .n = 5, .k = 6, .end = PD_RELU, .bias = 1, .scratch = 1280 });
	/* %d.w1 %d.b1 f32[6,5] h */
	pd_product_init(&op_d_w1, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 1, .transb = 0,
		.m = 6, .n = 5, .k = 4, .end = PD_AS_IT_IS, .sum = 2, .adds = &done, .scratch = 1920 });
	(void)which;
	(void)mine;
	(void)nmine;
}
