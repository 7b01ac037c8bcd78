/* names, stage 1 of 2: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage1.h"
#include "kernels.h"

enum { STAGE = 1, REPLICAS = 1, MICROBATCHES = 2, SLOTS = 1 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float tmp_2[4 * 4];                         /* f32[4,4] */
	_Alignas(64) float channel[4];                           /* f32[4] */
} *P;
_Static_assert(sizeof(struct params) == 128, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float tmp_2[4 * 4];                         /* f32[4,4] */
	_Alignas(64) float channel[4];                           /* f32[4] */
} *G;
_Static_assert(sizeof(struct grads) == 128, "as planned");

/* what forwards receive and backwards send: one per microbatch in flight and per receive ahead of those */
static struct entry {
	_Alignas(64) float g_2[4 * 4];                           /* f32[4,4] */
	_Alignas(64) float d_g[4 * 4];                           /* f32[4,4] */
} *E;
_Static_assert(sizeof(struct entry) == 128, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) int64_t while_2[4];                         /* i64[4] */
	_Alignas(64) float expf[4 * 4];                          /* f32[4,4] */
	_Alignas(64) float loss_log_probs[4 * 4];                /* f32[4,4] */
} *K;
_Static_assert(sizeof(struct kept) == 192, "as planned");

static char *L;                                                  /* gradients of a microbatch, until they are added to G */
static char *tmp;                                                /* all other values, packed by lifetime */

static const float c_1[] = { 1.0f };

const pd_param stage_params[] = {
	{ .name = "tmp", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 4, 4 },
		.offset = 0 + offsetof(struct params, tmp_2), .trained = true, .owner = 1 },
	{ .name = "channel", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 1, .dim = { 4 },
		.offset = 0 + offsetof(struct params, channel), .trained = true, .owner = 1 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "while", .dtype = PD_I64, .rank = 1, .dim = { 4 },
		.batch_axis = 0, .range = 4, .kind = "synthetic", .path = "",
		.is_label = true, .ignore_index = INT64_MIN,
	},
};

void recv_forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_irecv(0, entry, 0, mb, e->g_2, 16 * sizeof(float));   /* %g f32[4,4]  g */
}

void forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];
	float *loss = (void *)(tmp + 192);                       /* f32[] */
	float *count = (void *)(tmp + 256);                      /* f32[] */

	pd_input(0, mb, k->while_2);                             /* %while i64[4] */
	pd_wait_recv(0, entry);                                  /* %g f32[4,4]  g */
	pd_gemm_bias(0, 0, 4, 4, 4, e->g_2, 4, P->tmp_2, 4, P->channel, k->expf); /* %expf f32[4,4]  +/ end +* */
	tanh_16(k->expf, k->expf);                               /* %P f32[4,4]  a"b */
	cross_entropy_4x4_sum(loss, k->loss_log_probs, k->expf, k->while_2); /* %loss %loss.log_probs f32[]  two lines */
	count_labels_4(count, k->while_2);                       /* %count f32[] */
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
	float *d_P = (void *)(tmp + 192);                        /* f32[4,4] */
	float *d_channel = done ? (void *)(L + 0) : G->channel;  /* f32[4] */

	(void)mb;
	pd_wait_send(1, entry);
	cross_entropy_grad_4x4_sum(d_P, c_1, k->loss_log_probs, k->while_2); /* %d.P f32[4,4]  two lines */
	tanhgrad_16(d_P, d_P, k->expf);                          /* %d.expf f32[4,4]  a"b */
	pd_gemm(0, 1, 4, 4, 4, d_P, 4, P->tmp_2, 4, 0, e->d_g, 4); /* %d.g f32[4,4]  +/ end +* */
	pd_gemm(1, 0, 4, 4, 4, e->g_2, 4, d_P, 4, done > 0, G->tmp_2, 4); /* %d.tmp f32[4,4]  +/ end +* */
	reduce_sum_4x4_axes0(d_channel, d_P);                    /* %d.channel f32[4]  +/ end +* */
	add_gradient(G->channel, d_channel, 4);
	done++;
}

void send_backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_isend(1, entry, 0, mb, e->d_g, 16 * sizeof(float));   /* %d.g */
}

void sync(void)
{
	done = 0;
}

void update(void)
{
	float *n_1 = (void *)(tmp + 0);                          /* f32[] */

	n_1[0] = (float)pd_total_count();                        /* %n.1 f32[] */
	pd_gradient(0, G->tmp_2);
	sgd(P->tmp_2, G->tmp_2, n_1, 16);                        /* @tmp */
	pd_gradient(1, G->channel);
	sgd(P->channel, G->channel, n_1, 4);                     /* @channel */
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	E = (void *)(arena + 320);
	K = (void *)(arena + 576);
	G = (void *)(arena + 128);
	L = arena + 256;
	tmp = arena + 576;
	(void)which;
	(void)mine;
	(void)nmine;
}
