/* skip, stage 0 of 3: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage0.h"
#include "kernels.h"

enum { STAGE = 0, REPLICAS = 1, MICROBATCHES = 3, SLOTS = 3 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float w1[4 * 4];                            /* f32[4,4] */
} *P;
_Static_assert(sizeof(struct params) == 64, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float w1[4 * 4];                            /* f32[4,4] */
} *G;
_Static_assert(sizeof(struct grads) == 64, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) float x[2 * 4];                             /* f32[2,4] */
	_Alignas(64) float h[2 * 4];                             /* f32[2,4] */
	_Alignas(64) float d_h_2[2 * 4];                         /* f32[2,4] */
} *K;
_Static_assert(sizeof(struct kept) == 192, "as planned");

static char *tmp;                                                /* all other values, packed by lifetime */

const pd_param stage_params[] = {
	{ .name = "w1", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 4, 4 },
		.offset = 0 + offsetof(struct params, w1), .trained = true, .owner = 0 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "x", .dtype = PD_F32, .rank = 2, .dim = { 2, 4 },
		.batch_axis = 0, .range = 0, .kind = "synthetic", .path = "",
		.is_label = false, .ignore_index = INT64_MIN,
	},
};

void forward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_wait_send(0, slot);
	pd_wait_send(1, slot);
	pd_input(0, mb, k->x);                                   /* %x f32[2,4] */
	pd_gemm(0, 0, 2, 4, 4, k->x, 4, P->w1, 4, 0, k->h, 4);   /* %h f32[2,4]  h */
}

void send_forward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_isend(0, slot, 1, mb, k->h, 8 * sizeof(float));       /* %h */
	pd_isend(1, slot, 2, mb, k->h, 8 * sizeof(float));       /* %h */
}

void recv_backward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_irecv(3, slot, 1, mb, k->d_h_2, 8 * sizeof(float));   /* %d.h.2 f32[2,4]  h */
}

static int done;                                                 /* microbatches of this step that are in G */

void backward(int slot, int mb)
{
	struct kept *k = &K[slot];

	(void)mb;
	pd_wait_recv(3, slot);                                   /* %d.h.2 f32[2,4]  h */
	pd_gemm(1, 0, 4, 4, 2, k->x, 4, k->d_h_2, 4, done > 0, G->w1, 4); /* %d.w1 f32[4,4]  h */
	done++;
}

void sync(void)
{
	done = 0;
}

void update(void)
{
	float *n_1 = (void *)(tmp + 0);                          /* f32[] */

	n_1[0] = (float)pd_total_count();                        /* %n.1 f32[] */
	pd_gradient(0, G->w1);
	sgd(P->w1, G->w1, n_1, 16);                              /* @w1 */
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	K = (void *)(arena + 128);
	G = (void *)(arena + 64);
	tmp = arena + 704;
	(void)which;
	(void)mine;
	(void)nmine;
}
