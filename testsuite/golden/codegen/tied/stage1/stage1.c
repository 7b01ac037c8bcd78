/* tied, stage 1 of 2: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage1.h"
#include "kernels.h"

enum { STAGE = 1, REPLICAS = 1, MICROBATCHES = 4, SLOTS = 1 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float table[7 * 4];                         /* f32[7,4] */
} *P;
_Static_assert(sizeof(struct params) == 128, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float table[7 * 4];                         /* f32[7,4] */
} *G;
_Static_assert(sizeof(struct grads) == 128, "as planned");

/* what forwards receive and backwards send: one per microbatch in flight and per receive ahead of those */
static struct entry {
	_Alignas(64) float t[4 * 4];                             /* f32[4,4] */
	_Alignas(64) float d_t[4 * 4];                           /* f32[4,4] */
} *E;
_Static_assert(sizeof(struct entry) == 128, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) int64_t labels[4];                          /* i64[4] */
	_Alignas(64) float loss_log_probs[4 * 7];                /* f32[4,7] */
} *K;
_Static_assert(sizeof(struct kept) == 192, "as planned");

static char *tmp;                                                /* all other values, packed by lifetime */
static pd_tree *tree;                                            /* sums of gradients in a fixed order */
static const int ranks[] = { 1 };
static const pd_group replicas = { 1, ranks };

static const float c_1[] = { 1.0f };

const pd_param stage_params[] = {
	{ .name = "table", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 7, 4 },
		.offset = 0 + offsetof(struct params, table), .trained = true, .owner = 0 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "labels", .dtype = PD_I64, .rank = 1, .dim = { 4 },
		.batch_axis = 0, .range = 7, .kind = "synthetic", .path = "",
		.is_label = true, .ignore_index = INT64_MIN,
	},
};

void recv_forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_irecv(0, entry, 0, mb, e->t, 16 * sizeof(float));     /* %t f32[4,4]  t */
}

void forward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];
	float *logits = (void *)(tmp + 192);                     /* f32[4,7] */
	float *loss = (void *)(tmp + 320);                       /* f32[] */
	float *count = (void *)(tmp + 192);                      /* f32[] */

	pd_input(0, mb, k->labels);                              /* %labels i64[4] */
	pd_wait_recv(0, entry);                                  /* %t f32[4,4]  t */
	pd_gemm(0, 1, 4, 7, 4, e->t, 4, P->table, 4, 0, logits, 7); /* %logits f32[4,7]  logits */
	cross_entropy_4x7_sum(loss, k->loss_log_probs, logits, k->labels); /* %loss %loss.log_probs f32[]  loss */
	count_labels_4(count, k->labels);                        /* %count f32[] */
	pd_report(mb, loss[0], count[0]);
}

void backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];
	struct kept *k = &K[slot];
	struct grads *g = (void *)pd_tree_leaf(tree, mb);
	float *d_logits = (void *)(tmp + 192);                   /* f32[4,7] */

	pd_wait_send(1, entry);
	cross_entropy_grad_4x7_sum(d_logits, c_1, k->loss_log_probs, k->labels); /* %d.logits f32[4,7]  loss */
	pd_gemm(0, 0, 4, 4, 7, d_logits, 7, P->table, 4, 0, e->d_t, 4); /* %d.t f32[4,4]  logits */
	pd_gemm(1, 0, 7, 4, 4, d_logits, 7, e->t, 4, 0, g->table, 4); /* %d.table f32[7,4]  logits */
	pd_tree_done(tree, mb);
}

void send_backward(int slot, int entry, int mb)
{
	struct entry *e = &E[entry];

	(void)slot;
	pd_isend(1, entry, 0, mb, e->d_t, 16 * sizeof(float));   /* %d.t */
}

void sync(void)
{
	float *g_table_1_1 = (void *)(tmp + 0);                  /* f32[7,4] */

	G = (void *)pd_tree_root(tree, &replicas);
	pd_broadcast(&(pd_group){ 2, (const int[]){ 0, 1 } }, 1, G->table, 28 * sizeof(float)); /* %g.table.1 f32[7,4] */
	pd_broadcast(&(pd_group){ 2, (const int[]){ 0, 1 } }, 0, g_table_1_1, 28 * sizeof(float)); /* %g.table.1.1 f32[7,4] */
}

void update(void)
{
	float *n_1 = (void *)(tmp + 256);                        /* f32[] */
	float *g_table_all_1 = (void *)(tmp + 128);              /* f32[7,4] */
	float *g_table_1_1 = (void *)(tmp + 0);                  /* f32[7,4] */

	n_1[0] = (float)pd_total_count();                        /* %n.1 f32[] */
	add_28(g_table_all_1, G->table, g_table_1_1);            /* %g.table.all.1 f32[7,4] */
	pd_gradient(0, g_table_all_1);
	sgd(P->table, g_table_all_1, n_1, 28);                   /* @table */
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	E = (void *)(arena + 1664);
	K = (void *)(arena + 1920);
	tmp = arena + 1920;
	pd_check_scratch("the tree of gradients", pd_tree_bytes(MICROBATCHES, 32, mine, nmine), 1536);
	tree = pd_tree_new(MICROBATCHES, 32, mine, nmine, arena + 128);
	(void)which;
}
