/* skip, stage 1 of 3: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage1.h"
#include "kernels.h"

enum { STAGE = 1, REPLICAS = 1, MICROBATCHES = 3, SLOTS = 3 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float w2[4 * 4];                            /* f32[4,4] */
} *P;
_Static_assert(sizeof(struct params) == 64, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float w2[4 * 4];                            /* f32[4,4] */
} *G;
_Static_assert(sizeof(struct grads) == 64, "as planned");

/* what forwards receive and backwards send: one per microbatch in flight and per receive ahead of those */
static struct entry {
	_Alignas(64) float h[2 * 4];                             /* f32[2,4] */
	_Alignas(64) float d_h_2[2 * 4];                         /* f32[2,4] */
} *E;
_Static_assert(sizeof(struct entry) == 128, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) float m[2 * 4];                             /* f32[2,4] */
	_Alignas(64) float s[2 * 4];                             /* f32[2,4] */
	_Alignas(64) float d_h[2 * 4];                           /* f32[2,4] */
	_Alignas(64) float d_s[2 * 4];                           /* f32[2,4] */
} *K;
_Static_assert(sizeof(struct kept) == 256, "as planned");

static char *tmp;                                                /* all other values, packed by lifetime */

const pd_param stage_params[] = {
	{ .name = "w2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 4, 4 },
		.offset = 0 + offsetof(struct params, w2), .trained = true, .owner = 1 },
};

const pd_input_desc stage_inputs[] = {
	{ .name = NULL },
};

void recv_forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_irecv(0, entry, 0, mb, e->h, 8 * sizeof(float));      /* %h f32[2,4]  h */
}

void forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];

	(void)mb;
	pd_wait_send(2, slot);
	pd_wait_recv(0, entry);                                  /* %h f32[2,4]  h */
	pd_gemm(0, 0, 2, 4, 4, e->h, 4, P->w2, 4, 0, k->m, 4);   /* %m f32[2,4]  m */
	fused_tanh_add_8_9f383262(k->m, k->s, k->m, e->h);       /* %t %s f32[2,4]  s */
}

void send_forward(int slot, int entry, int mb)
{
	struct kept *k = &K[slot];

	(void)entry;
	pd_isend(2, slot, 2, mb, k->s, 8 * sizeof(float));       /* %s */
}

void recv_backward(int slot, int entry, int mb)
{
	struct kept *k = &K[slot];

	(void)entry;
	pd_irecv(4, slot, 2, mb, k->d_h, 8 * sizeof(float));     /* %d.h f32[2,4]  logits */
	pd_irecv(5, slot, 2, mb, k->d_s, 8 * sizeof(float));     /* %d.s f32[2,4]  n */
}

static int done;                                                 /* microbatches of this step that are in G */

void backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];
	float *d_m = (void *)(tmp + 0);                          /* f32[2,4] */
	float *d_h_1 = (void *)(tmp + 64);                       /* f32[2,4] */

	(void)mb;
	pd_wait_send(3, entry);
	pd_wait_recv(4, slot);                                   /* %d.h f32[2,4]  logits */
	pd_wait_recv(5, slot);                                   /* %d.s f32[2,4]  n */
	tanhgrad_8(d_m, k->d_s, k->m);                           /* %d.m f32[2,4]  t */
	pd_gemm(0, 1, 2, 4, 4, d_m, 4, P->w2, 4, 0, d_h_1, 4);   /* %d.h.1 f32[2,4]  m */
	pd_gemm(1, 0, 4, 4, 2, e->h, 4, d_m, 4, done > 0, G->w2, 4); /* %d.w2 f32[4,4]  m */
	sum_8_of3(e->d_h_2, k->d_h, k->d_s, d_h_1);              /* %d.h.2 f32[2,4]  h */
	done++;
}

void send_backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_isend(3, entry, 0, mb, e->d_h_2, 8 * sizeof(float));  /* %d.h.2 */
}

void sync(void)
{
	done = 0;
}

void update(void)
{
	float *n_1_1 = (void *)(tmp + 0);                        /* f32[] */

	n_1_1[0] = (float)pd_total_count();                      /* %n.1.1 f32[] */
	pd_gradient(0, G->w2);
	sgd(P->w2, G->w2, n_1_1, 16);                            /* @w2 */
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	E = (void *)(arena + 128);
	K = (void *)(arena + 512);
	G = (void *)(arena + 64);
	tmp = arena + 1280;
	(void)which;
	(void)mine;
	(void)nmine;
}
