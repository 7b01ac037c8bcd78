/* skip, stage 2 of 3: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage2.h"
#include "kernels.h"

enum { STAGE = 2, REPLICAS = 1, MICROBATCHES = 3, SLOTS = 3 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float w3[4 * 4];                            /* f32[4,4] */
} *P;
_Static_assert(sizeof(struct params) == 64, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float w3[4 * 4];                            /* f32[4,4] */
} *G;
_Static_assert(sizeof(struct grads) == 64, "as planned");

/* what forwards receive and backwards send: one per microbatch in flight and per receive ahead of those */
static struct entry {
	_Alignas(64) float h[2 * 4];                             /* f32[2,4] */
	_Alignas(64) float s[2 * 4];                             /* f32[2,4] */
	_Alignas(64) float d_logits[2 * 4];                      /* f32[2,4] */
	_Alignas(64) float d_s[2 * 4];                           /* f32[2,4] */
} *E;
_Static_assert(sizeof(struct entry) == 256, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) int64_t labels[2];                          /* i64[2] */
	_Alignas(64) float n_2[2 * 4];                           /* f32[2,4] */
	_Alignas(64) float loss_log_probs[2 * 4];                /* f32[2,4] */
} *K;
_Static_assert(sizeof(struct kept) == 192, "as planned");

static char *tmp;                                                /* all other values, packed by lifetime */

static const float c_1[] = { 1.0f };

const pd_param stage_params[] = {
	{ .name = "w3", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 4, 4 },
		.offset = 0 + offsetof(struct params, w3), .trained = true, .owner = 2 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "labels", .dtype = PD_I64, .rank = 1, .dim = { 2 },
		.batch_axis = 0, .range = 4, .kind = "synthetic", .path = "",
		.is_label = true, .ignore_index = INT64_MIN,
	},
};

void recv_forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_irecv(1, entry, 0, mb, e->h, 8 * sizeof(float));      /* %h f32[2,4]  h */
	pd_irecv(2, entry, 1, mb, e->s, 8 * sizeof(float));      /* %s f32[2,4]  s */
}

void forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];
	float *logits = (void *)(tmp + 0);                       /* f32[2,4] */
	float *loss = (void *)(tmp + 64);                        /* f32[] */
	float *count = (void *)(tmp + 0);                        /* f32[] */

	pd_input(0, mb, k->labels);                              /* %labels i64[2] */
	pd_wait_recv(1, entry);                                  /* %h f32[2,4]  h */
	pd_wait_recv(2, entry);                                  /* %s f32[2,4]  s */
	pd_gemm(0, 0, 2, 4, 4, e->s, 4, P->w3, 4, 0, k->n_2, 4); /* %n f32[2,4]  n */
	mul_8(logits, k->n_2, e->h);                             /* %logits f32[2,4]  logits */
	cross_entropy_2x4_sum(loss, k->loss_log_probs, logits, k->labels); /* %loss %loss.log_probs f32[]  loss */
	count_labels_2(count, k->labels);                        /* %count f32[] */
	pd_report(mb, loss[0], count[0]);
}

static int done;                                                 /* microbatches of this step that are in G */

void backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];
	float *d_n = (void *)(tmp + 0);                          /* f32[2,4] */

	(void)mb;
	pd_wait_send(4, entry);
	pd_wait_send(5, entry);
	cross_entropy_grad_2x4_sum(e->d_logits, c_1, k->loss_log_probs, k->labels); /* %d.logits f32[2,4]  loss */
	mul_8(d_n, e->d_logits, e->h);                           /* %d.n f32[2,4]  logits */
	mul_8(e->d_logits, e->d_logits, k->n_2);                 /* %d.h f32[2,4]  logits */
	pd_gemm(0, 1, 2, 4, 4, d_n, 4, P->w3, 4, 0, e->d_s, 4);  /* %d.s f32[2,4]  n */
	pd_gemm(1, 0, 4, 4, 2, e->s, 4, d_n, 4, done > 0, G->w3, 4); /* %d.w3 f32[4,4]  n */
	done++;
}

void send_backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_isend(4, entry, 1, mb, e->d_logits, 8 * sizeof(float)); /* %d.h */
	pd_isend(5, entry, 1, mb, e->d_s, 8 * sizeof(float));    /* %d.s */
}

void sync(void)
{
	done = 0;
}

void update(void)
{
	float *n_1_2 = (void *)(tmp + 0);                        /* f32[] */

	n_1_2[0] = (float)pd_total_count();                      /* %n.1.2 f32[] */
	pd_gradient(0, G->w3);
	sgd(P->w3, G->w3, n_1_2, 16);                            /* @w3 */
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	E = (void *)(arena + 128);
	K = (void *)(arena + 896);
	G = (void *)(arena + 64);
	tmp = arena + 1472;
	(void)which;
	(void)mine;
	(void)nmine;
}
