/* tied, stage 0 of 2: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage0.h"
#include "kernels.h"

enum { STAGE = 0, REPLICAS = 1, MICROBATCHES = 4, SLOTS = 2 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float table[7 * 4];                         /* f32[7,4] */
	_Alignas(64) float w1[4 * 4];                            /* f32[4,4] */
} *P;
_Static_assert(sizeof(struct params) == 192, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float table_1[7 * 4];                       /* f32[7,4] */
	_Alignas(64) float w1[4 * 4];                            /* f32[4,4] */
} *G;
_Static_assert(sizeof(struct grads) == 192, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) int64_t ids[4];                             /* i64[4] */
	_Alignas(64) float e_2[4 * 4];                           /* f32[4,4] */
	_Alignas(64) float h[4 * 4];                             /* f32[4,4] */
	_Alignas(64) float d_t[4 * 4];                           /* f32[4,4] */
} *K;
_Static_assert(sizeof(struct kept) == 256, "as planned");

static char *tmp;                                                /* all other values, packed by lifetime */
static pd_tree *tree;                                            /* sums of gradients in a fixed order */
static const int ranks[] = { 0 };
static const pd_group replicas = { 1, ranks };

const pd_param stage_params[] = {
	{ .name = "table", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 7, 4 },
		.offset = 0 + offsetof(struct params, table), .trained = true, .owner = 0 },
	{ .name = "w1", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 4, 4 },
		.offset = 0 + offsetof(struct params, w1), .trained = true, .owner = 0 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "ids", .dtype = PD_I64, .rank = 1, .dim = { 4 },
		.batch_axis = 0, .range = 7, .kind = "synthetic", .path = "",
		.is_label = false, .ignore_index = INT64_MIN,
	},
};

void forward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_wait_send(0, slot);
	pd_input(0, mb, k->ids);                                 /* %ids i64[4] */
	gather_1x7x4_by_4(k->e_2, P->table, k->ids);             /* %e f32[4,4]  e */
	pd_gemm(0, 0, 4, 4, 4, k->e_2, 4, P->w1, 4, 0, k->h, 4); /* %h f32[4,4]  h */
	tanh_16(k->h, k->h);                                     /* %t f32[4,4]  t */
}

void send_forward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_isend(0, slot, 1, mb, k->h, 16 * sizeof(float));      /* %t */
}

void recv_backward(int slot, int mb)
{
	struct kept *k = &K[slot];

	pd_irecv(1, slot, 1, mb, k->d_t, 16 * sizeof(float));    /* %d.t f32[4,4]  logits */
}

void backward(int slot, int mb)
{
	struct kept *k = &K[slot];
	struct grads *g = (void *)pd_tree_leaf(tree, mb);
	float *d_h = (void *)(tmp + 0);                          /* f32[4,4] */
	float *d_e = (void *)(tmp + 64);                         /* f32[4,4] */

	pd_wait_recv(1, slot);                                   /* %d.t f32[4,4]  logits */
	tanhgrad_16(d_h, k->d_t, k->h);                          /* %d.h f32[4,4]  t */
	pd_gemm(0, 1, 4, 4, 4, d_h, 4, P->w1, 4, 0, d_e, 4);     /* %d.e f32[4,4]  h */
	pd_gemm(1, 0, 4, 4, 4, k->e_2, 4, d_h, 4, 0, g->w1, 4);  /* %d.w1 f32[4,4]  h */
	gather_grad_1x7x4_by_4(g->table_1, d_e, k->ids);         /* %d.table.1 f32[7,4] rows<=4  e */
	pd_tree_done(tree, mb);
}

void sync(void)
{
	float *g_table = (void *)(tmp + 0);                      /* f32[7,4] */

	G = (void *)pd_tree_root(tree, &replicas);
	pd_broadcast(&(pd_group){ 2, (const int[]){ 0, 1 } }, 1, g_table, 28 * sizeof(float)); /* %g.table f32[7,4] */
	pd_broadcast(&(pd_group){ 2, (const int[]){ 0, 1 } }, 0, G->table_1, 28 * sizeof(float)); /* %g.table.1.1 f32[7,4] */
}

void update(void)
{
	float *n_2 = (void *)(tmp + 128);                        /* f32[] */
	float *g_table = (void *)(tmp + 0);                      /* f32[7,4] */

	n_2[0] = (float)pd_total_count();                        /* %n f32[] */
	add_28(g_table, g_table, G->table_1);                    /* %g.table.all f32[7,4] */
	pd_gradient(0, g_table);
	sgd(P->table, g_table, n_2, 28);                         /* @table */
	pd_gradient(1, G->w1);
	sgd(P->w1, G->w1, n_2, 16);                              /* @w1 */
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	K = (void *)(arena + 1920);
	tmp = arena + 2432;
	pd_check_scratch("the tree of gradients", pd_tree_bytes(MICROBATCHES, 48, mine, nmine), 1728);
	tree = pd_tree_new(MICROBATCHES, 48, mine, nmine, arena + 192);
	(void)which;
}
