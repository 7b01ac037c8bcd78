/* lstm, stage 0 of 1: forward, backward and update, the same on all of its devices. Written by pdcc 0.1,
 * edits are lost. Comments name the value as in ir/, its type and the node of the model. */
#include "stage0.h"
#include "kernels.h"

enum { STAGE = 0, REPLICAS = 1, MICROBATCHES = 2, SLOTS = 1 };

/* weights and running statistics */
static struct params {
	_Alignas(64) float W[1 * 8 * 3];                         /* f32[1,8,3] */
	_Alignas(64) float R_2[1 * 8 * 2];                       /* f32[1,8,2] */
	_Alignas(64) float B[1 * 16];                            /* f32[1,16] */
	_Alignas(64) float w2[2 * 3];                            /* f32[2,3] */
} *P;
_Static_assert(sizeof(struct params) == 320, "as planned");

/* gradients, summed over the microbatches of a step */
static struct grads {
	_Alignas(64) float W[1 * 8 * 3];                         /* f32[1,8,3] */
	_Alignas(64) float R_2[1 * 8 * 2];                       /* f32[1,8,2] */
	_Alignas(64) float B[1 * 16];                            /* f32[1,16] */
	_Alignas(64) float w2[2 * 3];                            /* f32[2,3] */
} *G;
_Static_assert(sizeof(struct grads) == 320, "as planned");

/* what lives from a forward to its backward, what backwards receive and forwards send: one per microbatch in
 * flight */
static struct kept {
	_Alignas(64) float steps[4 * 2 * 3];                     /* f32[4,2,3] */
	_Alignas(64) float Slice[8];                             /* f32[8] */
	_Alignas(64) float Recurrent[4 * 2 * 2];                 /* f32[4,2,2] */
	_Alignas(64) float y_h[2 * 2];                           /* f32[2,2] */
	_Alignas(64) float Recurrent_2[1120];                    /* f32[1120] */
	_Alignas(64) float logits[2 * 3];                        /* f32[2,3] */
} *K;
_Static_assert(sizeof(struct kept) == 4864, "as planned");

static char *L;                                                  /* gradients of a microbatch, until they are added to G */
static char *tmp;                                                /* all other values, packed by lifetime */
static char *scratch;                                            /* of library calls, 5120 bytes */
static pd_recurrent op_Recurrent;
static pd_product op_logits;
static pd_product op_d_last;
static pd_product op_d_w2;
static pd_recurrent op_RecurrentGradData;
static pd_recurrent op_d_Reshape_1;

static const float *c_1;
static const float c_1_on_host[] = { 1.0f };

const pd_param stage_params[] = {
	{ .name = "W", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 3, .dim = { 1, 8, 3 },
		.offset = 0 + offsetof(struct params, W), .trained = true, .owner = 0 },
	{ .name = "R", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 3, .dim = { 1, 8, 2 },
		.offset = 0 + offsetof(struct params, R_2), .trained = true, .owner = 0 },
	{ .name = "B", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 1, 16 },
		.offset = 0 + offsetof(struct params, B), .trained = true, .owner = 0 },
	{ .name = "w2", .kind = PD_WEIGHT, .dtype = PD_F32, .rank = 2, .dim = { 2, 3 },
		.offset = 0 + offsetof(struct params, w2), .trained = true, .owner = 0 },
};

const pd_input_desc stage_inputs[] = {
	{
		.name = "x", .dtype = PD_F32, .rank = 3, .dim = { 2, 4, 3 },
		.batch_axis = 0, .range = 0, .kind = "synthetic", .path = "",
		.is_label = false, .ignore_index = INT64_MIN,
	},
	{
		.name = "labels", .dtype = PD_I64, .rank = 1, .dim = { 2 },
		.batch_axis = 0, .range = 3, .kind = "synthetic", .path = "",
		.is_label = true, .ignore_index = INT64_MIN,
	},
};

void forward(int slot, int mb)
{
	struct kept *k = &K[slot];
	float *x = (void *)(tmp + 128);                          /* f32[2,4,3] */
	int64_t *labels = (void *)(tmp + 4864);                  /* i64[2] */
	float *Slice_1 = (void *)(tmp + 192);                    /* f32[8] */
	float *Recurrent_3 = (void *)(tmp + 4800);               /* f32[2,2] */
	float *loss = (void *)(tmp + 4928);                      /* f32[] */
	float *count = (void *)(tmp + 4992);                     /* f32[] */

	pd_input(0, mb, x);                                      /* %x f32[2,4,3] */
	pd_input(1, mb, labels);                                 /* %labels i64[2] */
	transpose_2x4x3_to_1_0_2(k->steps, x);                   /* %steps f32[4,2,3]  steps */
	slice_16_to_8_at_0(k->Slice, P->B);                      /* %Slice f32[8]  y */
	slice_16_to_8_at_8(Slice_1, P->B);                       /* %Slice.1 f32[8]  y */
	add_8(k->Slice, k->Slice, Slice_1);                      /* %Add f32[8]  y */
	/* %Recurrent %y.h %Recurrent.2 %Recurrent.3 f32[4,2,2] y */
	pd_recurrent_forward(&op_Recurrent, k->Recurrent, k->y_h, Recurrent_3, k->Recurrent_2, k->steps, P->W,
		P->R_2, k->Slice, NULL, NULL, NULL, NULL, scratch);
	pd_product_run(&op_logits, k->logits, NULL, k->y_h, P->w2, NULL, NULL, scratch); /* %logits f32[2,3]  logits */
	loss_and_grad_2x3(k->logits, loss, k->logits, c_1, labels); /* %d.logits %loss f32[2,3]  loss */
	count_labels_2(count, labels);                           /* %count f32[] */
	pd_report_from(mb, loss, count);
}

static int done;                                                 /* microbatches of this step that are in G */

void backward(int slot, int mb)
{
	struct kept *k = &K[slot];
	float *d_last = (void *)(tmp + 4928);                    /* f32[2,2] */
	float *RecurrentGradData = (void *)(tmp + 4800);         /* f32[8,3] */
	float *RecurrentGradData_1 = (void *)(tmp + 256);        /* f32[2,2] */
	float *RecurrentGradData_2 = (void *)(tmp + 4992);       /* f32[2,2] */
	float *d_Reshape_1 = done ? (void *)(L + 0) : G->W;      /* f32[8,3] */
	float *d_Reshape_4 = done ? (void *)(L + 128) : G->R_2;  /* f32[8,2] */
	float *d_Add = (void *)(tmp + 128);                      /* f32[8] */
	float *d_Reshape_2 = done ? (void *)(L + 192) : G->B;    /* f32[16] */
	float *d_Reshape_2_1 = (void *)(tmp + 0);                /* f32[16] */

	(void)mb;
	pd_product_run(&op_d_last, d_last, NULL, k->logits, P->w2, NULL, NULL, scratch); /* %d.last f32[2,2]  logits */
	pd_product_run(&op_d_w2, G->w2, NULL, k->y_h, k->logits, NULL, NULL, scratch); /* %d.w2 f32[2,3]  logits */
	/* %RecurrentGradData %RecurrentGradData.1 %RecurrentGradData.2 f32[8,3] y */
	pd_recurrent_backward_data(&op_RecurrentGradData, RecurrentGradData, RecurrentGradData_1,
		RecurrentGradData_2, k->Recurrent_2, k->Recurrent, P->W, P->R_2, k->Slice, NULL, NULL, d_last,
		NULL, NULL, NULL, NULL, scratch);
	/* %d.Reshape.1 %d.Reshape.4 %d.Add f32[8,3] y */
	pd_recurrent_backward_weights(&op_d_Reshape_1, d_Reshape_1, d_Reshape_4, d_Add, NULL, k->Recurrent_2,
		k->steps, k->Recurrent, NULL, NULL, scratch);
	slice_grad_8_to_16_at_8(d_Reshape_2, d_Add);             /* %d.Reshape.2 f32[16]  y */
	slice_grad_8_to_16_at_0(d_Reshape_2_1, d_Add);           /* %d.Reshape.2.1 f32[16]  y */
	add_16(d_Reshape_2, d_Reshape_2, d_Reshape_2_1);         /* %d.Reshape.2.2 f32[16]  y */
	if (done) {
		const pd_many rows[] = {
			{ .n = 16, .at = { G->R_2, d_Reshape_4 } },
			{ .n = 16, .at = { G->B, d_Reshape_2 } },
			{ .n = 24, .at = { G->W, d_Reshape_1 } },
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
	pd_gradient(0, G->W);
	pd_gradient(1, G->R_2);
	pd_gradient(2, G->B);
	pd_gradient(3, G->w2);
	{
		const pd_many rows[] = {
			{ .n = 24, .at = { P->W, G->W } },       /* @W */
			{ .n = 16, .at = { P->R_2, G->R_2 } },   /* @R */
			{ .n = 16, .at = { P->B, G->B } },       /* @B */
			{ .n = 6, .at = { P->w2, G->w2 } },      /* @w2 */
		};

		sgd(rows, (int)(sizeof rows / sizeof *rows), n_2);
	}
}

void init(char *arena, int which, const int *mine, int nmine)
{
	P = (void *)(arena + 0);
	K = (void *)(arena + 896);
	G = (void *)(arena + 320);
	L = arena + 640;
	tmp = arena + 896;
	scratch = arena + 5952;
	pd_counted(&done);
	c_1 = pd_constant(c_1_on_host, sizeof c_1_on_host);
	pd_room_open(8);
	/* %Recurrent %y.h %Recurrent.2 %Recurrent.3 f32[4,2,2] y */
	pd_recurrent_init(&op_Recurrent, &(pd_recurrent_desc){ .what = PD_FORWARD, .cell = PD_LSTM, .steps = 4,
		.batch = 2, .input = 3, .hidden = 2, .reverse = 1, .lens = 0, .bias = 1, .reserve = 4480,
		.slots = 1, .scratch = 4864 });
	/* %logits f32[2,3] logits */
	pd_product_init(&op_logits, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 0,
		.m = 2, .n = 3, .k = 2, .end = PD_AS_IT_IS, .scratch = 384 });
	/* %d.last f32[2,2] logits */
	pd_product_init(&op_d_last, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 0, .transb = 1,
		.m = 2, .n = 2, .k = 3, .end = PD_AS_IT_IS, .scratch = 256 });
	/* %d.w2 f32[2,3] logits */
	pd_product_init(&op_d_w2, &(pd_product_desc){ .in = PD_F32, .out = PD_F32, .transa = 1, .transb = 0,
		.m = 2, .n = 3, .k = 2, .end = PD_AS_IT_IS, .adds = &done, .scratch = 384 });
	/* %RecurrentGradData %RecurrentGradData.1 %RecurrentGradData.2 f32[8,3] y */
	pd_recurrent_init(&op_RecurrentGradData, &(pd_recurrent_desc){ .what = PD_BACKWARD_DATA,
		.cell = PD_LSTM, .steps = 4, .batch = 2, .input = 3, .hidden = 2, .reverse = 1, .lens = 0,
		.bias = 1, .reserve = 4480, .slots = 1, .scratch = 5120 });
	/* %d.Reshape.1 %d.Reshape.4 %d.Add f32[8,3] y */
	pd_recurrent_init(&op_d_Reshape_1, &(pd_recurrent_desc){ .what = PD_BACKWARD_WEIGHTS, .cell = PD_LSTM,
		.steps = 4, .batch = 2, .input = 3, .hidden = 2, .reverse = 1, .lens = 0, .bias = 1,
		.reserve = 4480, .slots = 1, .scratch = 4864 });
	(void)which;
	(void)mine;
	(void)nmine;
}
