/* names, stage 0 of 2: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage0.h"
#include "kernels.h"

enum { STAGE = 0, REPLICAS = 1, MICROBATCHES = 2, SLOTS = 2 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float mb_2[4 * 4];                          /* f32[4,4] */
	_Alignas(64) float params_2[4];                          /* f32[4] */
} *P;
_Static_assert(sizeof(struct params) == 128, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float mb_2[4 * 4];                          /* f32[4,4] */
	_Alignas(64) float params_2[4];                          /* f32[4] */
} *G;
_Static_assert(sizeof(struct grads) == 128, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) float slot_2[4 * 4];                        /* f32[4,4] */
	_Alignas(64) float k_2[4 * 4];                           /* f32[4,4] */
	_Alignas(64) float d_g[4 * 4];                           /* f32[4,4] */
} *K;
_Static_assert(sizeof(struct kept) == 192, "as planned");

static char *L;                                                  /* gradients of a microbatch, until they are added to G */
static char *tmp;                                                /* all other values, packed by lifetime */

const pd_param stage_params[] = {
	{ .name = "mb", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 4, 4 },
		.offset = 0 + offsetof(struct params, mb_2), .trained = true, .owner = 0 },
	{ .name = "params", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 1, .dim = { 4 },
		.offset = 0 + offsetof(struct params, params_2), .trained = true, .owner = 0 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "slot", .dtype = PD_F32, .rank = 2, .dim = { 4, 4 },
		.batch_axis = 0, .range = 0, .kind = "synthetic", .path = "",
		.is_label = false, .ignore_index = INT64_MIN,
	},
};

void forward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_wait_send(0, slot);
	pd_input(0, mb, k->slot_2);                              /* %slot f32[4,4] */
	pd_gemm_bias(0, 0, 4, 4, 4, k->slot_2, 4, P->mb_2, 4, P->params_2, k->k_2); /* %k f32[4,4]  while */
	relu_16(k->k_2, k->k_2);                                 /* %g f32[4,4]  g */
}

void send_forward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_isend(0, slot, 1, mb, k->k_2, 16 * sizeof(float));    /* %g */
}

void recv_backward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_irecv(1, slot, 1, mb, k->d_g, 16 * sizeof(float));    /* %d.g f32[4,4]  +/ end +* */
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
	float *d_k = (void *)(tmp + 0);                          /* f32[4,4] */
	float *d_params = done ? (void *)(L + 0) : G->params_2;  /* f32[4] */

	(void)mb;
	pd_wait_recv(1, slot);                                   /* %d.g f32[4,4]  +/ end +* */
	relugrad_16(d_k, k->d_g, k->k_2);                        /* %d.k f32[4,4]  g */
	pd_gemm(1, 0, 4, 4, 4, k->slot_2, 4, d_k, 4, done > 0, G->mb_2, 4); /* %d.mb f32[4,4]  while */
	reduce_sum_4x4_axes0(d_params, d_k);                     /* %d.params f32[4]  while */
	add_gradient(G->params_2, d_params, 4);
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
	pd_gradient(0, G->mb_2);
	sgd(P->mb_2, G->mb_2, n_2, 16);                          /* @mb */
	pd_gradient(1, G->params_2);
	sgd(P->params_2, G->params_2, n_2, 4);                   /* @params */
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	K = (void *)(arena + 320);
	G = (void *)(arena + 128);
	L = arena + 256;
	tmp = arena + 704;
	(void)which;
	(void)mine;
	(void)nmine;
}
