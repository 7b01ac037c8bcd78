/* mlp, stage 1 of 2: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage1.h"
#include "kernels.h"

enum { STAGE = 1, REPLICAS = 2, MICROBATCHES = 4, SLOTS = 1 };

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
	_Alignas(64) int64_t labels[4];                          /* i64[4] */
	_Alignas(64) float loss_log_probs[4 * 3];                /* f32[4,3] */
} *K;
_Static_assert(sizeof(struct kept) == 128, "as planned");

static char *L;                                                  /* gradients of a microbatch, until they are added to G */
static char *tmp;                                                /* all other values, packed by lifetime */
static const int ranks[] = { 2, 3 };
static const pd_group replicas = { 2, ranks };

static const float c_1[] = { 1.0f };

/* the rank that does microbatch mb of stage 0 */
static int stage0(int mb)
{
	return 0 + mb * 2 / MICROBATCHES;
}

const pd_param stage_params[] = {
	{ .name = "w2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 5, 3 },
		.offset = 0 + offsetof(struct params, w2), .trained = true, .owner = 2 },
	{ .name = "b2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 0 + offsetof(struct params, b2), .trained = true, .owner = 2 },
	{ .name = "w2:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 5, 3 },
		.offset = 128 + offsetof(struct state, w2_m), .trained = false, .owner = 2 },
	{ .name = "w2:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 2, .dim = { 5, 3 },
		.offset = 128 + offsetof(struct state, w2_v), .trained = false, .owner = 2 },
	{ .name = "b2:m", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 128 + offsetof(struct state, b2_m), .trained = false, .owner = 2 },
	{ .name = "b2:v", .kind = PD_STATE, .dtype = PD_F32, .rank = 1, .dim = { 3 },
		.offset = 128 + offsetof(struct state, b2_v), .trained = false, .owner = 2 },
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
	pd_irecv(0, entry, stage0(mb), mb, e->a, 20 * sizeof(float)); /* %a f32[4,5]  a */
}

void forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];
	float *logits = (void *)(tmp + 128);                     /* f32[4,3] */
	float *loss = (void *)(tmp + 192);                       /* f32[] */
	float *count = (void *)(tmp + 128);                      /* f32[] */

	pd_input(0, mb, k->labels);                              /* %labels i64[4] */
	pd_wait_recv(0, entry);                                  /* %a f32[4,5]  a */
	pd_gemm_bias(0, 0, 4, 3, 5, e->a, 5, P->w2, 3, P->b2, logits); /* %logits f32[4,3]  logits */
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

void backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];
	float *d_logits = (void *)(tmp + 128);                   /* f32[4,3] */
	float *d_b2 = done ? (void *)(L + 0) : G->b2;            /* f32[3] */

	(void)mb;
	pd_wait_send(1, entry);
	cross_entropy_grad_4x3_sum(d_logits, c_1, k->loss_log_probs, k->labels); /* %d.logits f32[4,3]  loss */
	pd_gemm(0, 1, 4, 5, 3, d_logits, 3, P->w2, 3, 0, e->d_a, 5); /* %d.a f32[4,5]  logits */
	pd_gemm(1, 0, 5, 3, 4, e->a, 5, d_logits, 3, done > 0, G->w2, 3); /* %d.w2 f32[5,3]  logits */
	reduce_sum_4x3_axes0(d_b2, d_logits);                    /* %d.b2 f32[3]  logits */
	add_gradient(G->b2, d_b2, 3);
	done++;
}

void send_backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_isend(1, entry, stage0(mb), mb, e->d_a, 20 * sizeof(float)); /* %d.a */
}

void sync(void)
{
	pd_allreduce(&replicas, (float *)G, sizeof *G / sizeof(float));
	done = 0;
}

void update(void)
{
	float *n_1 = (void *)(tmp + 0);                          /* f32[] */

	n_1[0] = (float)pd_total_count();                        /* %n.1 f32[] */
	pd_gradient(0, G->w2);
	adamw_decay(P->w2, S->w2_m, S->w2_v, G->w2, n_1, 15);    /* @w2 */
	pd_gradient(1, G->b2);
	adamw_decay(P->b2, S->b2_m, S->b2_v, G->b2, n_1, 3);     /* @b2 */
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
	(void)which;
	(void)mine;
	(void)nmine;
}
