/* mlp, stage 1 of 2: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage1.h"
#include "kernels.h"

enum { STAGE = 1, REPLICAS = 1, MICROBATCHES = 2, SLOTS = 1 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float w2[5 * 3];                            /* f32[5,3] */
	_Alignas(64) float b2[3];                                /* f32[3] */
} *P;
_Static_assert(sizeof(struct params) == 128, "as planned");

/* what the optimizer remembers */
static struct state {
	_Alignas(64) float w2_m[5 * 3];                          /* f32[5,3] */
	_Alignas(64) float w2_v[5 * 3];                          /* f32[5,3] */
	_Alignas(64) float b2_m[3];                              /* f32[3] */
	_Alignas(64) float b2_v[3];                              /* f32[3] */
} *S;
_Static_assert(sizeof(struct state) == 256, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float w2[5 * 3];                            /* f32[5,3] */
	_Alignas(64) float b2[3];                                /* f32[3] */
} *G;
_Static_assert(sizeof(struct grads) == 128, "as planned");

/* what forwards receive and backwards send: one per microbatch in flight and per receive ahead of those */
static struct entry {
	_Alignas(64) float a[4 * 5];                             /* f32[4,5] */
	_Alignas(64) float d_a[4 * 5];                           /* f32[4,5] */
} *E;
_Static_assert(sizeof(struct entry) == 256, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) float logits[4 * 3];                        /* f32[4,3] */
} *K;
_Static_assert(sizeof(struct kept) == 64, "as planned");

static char *L;                                                  /* gradients of a microbatch, until they are added to G */
static char *tmp;                                                /* all other values, packed by lifetime */
static char *scratch;                                            /* of library calls, 1280 bytes */
static pd_product op_logits;
static pd_product op_d_a;
static pd_product op_d_w2;

static const float *c_1;
static const float c_1_on_host[] = { 1.0f };

const pd_param stage_params[] = {
	{ .name = "w2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 5, 3 },
		.offset = 0 + offsetof(struct params, w2), .trained = true, .owner = 1 },
	{ .name = "b2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 0 + offsetof(struct params, b2), .trained = true, .owner = 1 },
	{ .name = "w2:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 5, 3 },
		.offset = 128 + offsetof(struct state, w2_m), .trained = false, .owner = 1 },
	{ .name = "w2:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 5, 3 },
		.offset = 128 + offsetof(struct state, w2_v), .trained = false, .owner = 1 },
	{ .name = "b2:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 128 + offsetof(struct state, b2_m), .trained = false, .owner = 1 },
	{ .name = "b2:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 128 + offsetof(struct state, b2_v), .trained = false, .owner = 1 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "labels", .dtype = PD_I64, .rank = 1, .dim = { 4 },
		.batch_axis = 0, .range = 3, .kind = "synthetic", .path = "",
		.is_label = true, .ignore_index = INT64_MIN,
	},
};

void recv_forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_irecv(0, entry, 0, mb, e->a, 20 * sizeof(float));     /* %a f32[4,5]  a */
}

void forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];
	int64_t *labels = (void *)(tmp + 64);                    /* i64[4] */
	float *loss = (void *)(tmp + 128);                       /* f32[] */
	float *count = (void *)(tmp + 192);                      /* f32[] */

	pd_input(0, mb, labels);                                 /* %labels i64[4] */
	pd_wait_recv(0, entry);                                  /* %a f32[4,5]  a */
	pd_product_run(&op_logits, k->logits, NULL, e->a, P->w2, P->b2, NULL, scratch); /* %logits f32[4,3]  logits */
	loss_and_grad_4x3(k->logits, loss, k->logits, c_1, labels); /* %d.logits %loss f32[4,3]  loss */
	count_labels_4(count, labels);                           /* %count f32[] */
	pd_report_from(mb, loss, count);
}

static int done;                                                 /* microbatches of this step that are in G */

void backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];
	float *d_b2 = done ? (void *)(L + 0) : G->b2;            /* f32[3] */

	(void)mb;
	pd_wait_send(1, entry);
	pd_product_run(&op_d_a, e->d_a, NULL, k->logits, P->w2, NULL, NULL, scratch); /* %d.a f32[4,5]  logits */
	pd_product_run(&op_d_w2, G->w2, d_b2, e->a, k->logits, NULL, NULL, scratch); /* %d.w2 %d.b2 f32[5,3]  logits */
	if (done) {
		const pd_many rows[] = {
			{ .n = 3, .at = { G->b2, d_b2 } },
		};

		pd_add_many(rows, (int)(sizeof rows / sizeof *rows));
	}
	done++;
}

void send_backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_isend(1, entry, 0, mb, e->d_a, 20 * sizeof(float));   /* %d.a */
}

void sync(void)
{
	done = 0;
}

void update(void)
{
	float *n_1 = (void *)(tmp + 0);                          /* f32[] */

	pd_set_count(n_1);                                       /* %n.1 f32[] */
	pd_gradient(0, G->w2);
	pd_gradient(1, G->b2);
	{
		const pd_many rows[] = {
			{ .n = 15, .at = { P->w2, S->w2_m, S->w2_v, G->w2 } }, /* @w2 */
			{ .n = 3, .at = { P->b2, S->b2_m, S->b2_v, G->b2 } }, /* @b2 */
		};

		adam(rows, (int)(sizeof rows / sizeof *rows), n_1);
	}
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	S = (void *)(arena + 128);
	E = (void *)(arena + 576);
	K = (void *)(arena + 1088);
	G = (void *)(arena + 384);
	L = arena + 512;
	tmp = arena + 1088;
	scratch = arena + 1344;
	pd_counted(&done);
	c_1 = pd_constant(c_1_on_host, sizeof c_1_on_host);
	pd_room_open(16);
	/* %logits f32[4,3] logits */
	pd_product_init(&op_logits, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 0,
		.m = 4, .n = 3, .k = 5, .end = PD_AS_IT_IS, .bias = 1, .scratch = 768 });
	/* %d.a f32[4,5] logits */
	pd_product_init(&op_d_a, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 1,
		.m = 4, .n = 5, .k = 3, .end = PD_AS_IT_IS, .scratch = 1280 });
	/* %d.w2 %d.b2 f32[5,3] logits */
	pd_product_init(&op_d_w2, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 1, .transb = 0,
		.m = 5, .n = 3, .k = 4, .end = PD_AS_IT_IS, .sum = 2, .adds = &done, .scratch = 960 });
	(void)which;
	(void)mine;
	(void)nmine;
}
