/* skip, device 1 of 3 (d1): replica 0 of 1 of stage 1. Written by pdcc 0.1, edits are lost. */
#include "stage1/stage1.h"

/* its microbatches of a step, in the order in which they are done */
static const int mine[] = {
	0, 1, 2,
};

/* A step: what is done, in which slot, with which buffer at the entry, with which microbatch. Forwards come
 * first in the list of kinds: they alone are done where nothing is trained. */
enum { RECV_F, F, SEND_F, RECV_B, B, SEND_B, SYNC, UPDATE };
static const char *const names[] = {
	[RECV_F] = "RECV_F", [F] = "F", [SEND_F] = "SEND_F", [RECV_B] = "RECV_B", [B] = "B",
	[SEND_B] = "SEND_B", [SYNC] = "SYNC", [UPDATE] = "UPDATE",
};
static const struct action { short kind, slot, entry; int mb; } actions[] = {
	{ RECV_F, 0, 0, 0 }, { RECV_F, 0, 1, 1 }, { RECV_F, 0, 2, 2 }, { F, 0, 0, 0 }, { SEND_F, 0, 0, 0 },
	{ RECV_B, 0, 0, 0 }, { F, 1, 1, 1 }, { SEND_F, 1, 1, 1 }, { RECV_B, 1, 1, 1 }, { F, 2, 2, 2 },
	{ SEND_F, 2, 2, 2 }, { RECV_B, 2, 2, 2 }, { B, 0, 0, 0 }, { SEND_B, 0, 0, 0 }, { B, 1, 1, 1 },
	{ SEND_B, 1, 1, 1 }, { B, 2, 2, 2 }, { SEND_B, 2, 2, 2 }, { SYNC, 0, 0, -1 }, { UPDATE, 0, 0, -1 },
};

static void step(bool train)
{
	const struct action *end = actions + sizeof actions / sizeof *actions;

	for (const struct action *a = actions; a < end; a++) {
		if (!train && a->kind >= RECV_B)
			continue;
		pd_action(names[a->kind], a->mb);
		switch (a->kind) {
		case RECV_F:
			recv_forward(a->slot, a->entry, a->mb);
			break;
		case F:
			forward(a->slot, a->entry, a->mb);
			break;
		case SEND_F:
			send_forward(a->slot, a->entry, a->mb);
			break;
		case RECV_B:
			recv_backward(a->slot, a->entry, a->mb);
			break;
		case B:
			backward(a->slot, a->entry, a->mb);
			break;
		case SEND_B:
			send_backward(a->slot, a->entry, a->mb);
			break;
		case SYNC:
			sync();
			break;
		case UPDATE:
			pd_totals();
			update();
			break;
		}
	}
}

static void start(char *arena)
{
	init(arena, 0, mine, 3);
}

/* what each channel carries, for messages */
static const char *const channels[] = {
	"h, node #0 'h' Gemm", "h, node #0 'h' Gemm", "s, node #3 's' Add", "d.h.2, node #0 'h' Gemm",
	"d.h, node #5 'logits' Mul", "d.s, node #4 'n' Gemm",
};

static const pd_program program = {
	.abi = PD_ABI, .model = "skip.onnx", .plan = "1-1-1", .schedule = "gpipe",
	.hash = "149791bb7e72c593", .model_hash = "aa8f81ad0226877c", .optimizer = "sgd",
	.rank = 1, .world = 3, .stage = 1, .stages = 3, .replica = 0, .replicas = 1,
	.threads = 1, .reproducible = false, .shuffle = false, .seed = 1,
	.micro = 2, .microbatches = 3, .channels = 6, .slots = 3, .arena = 1408,
	.nparams = PARAMS, .params = stage_params, .ninputs = INPUTS, .inputs = stage_inputs,
	.channel = channels,
	.lr = 0.5,
	.predicted = 5.34e-05,
	.weights = "weights/stage1.safetensors", .steps = 10, .timeout = 60,
	.init = start, .step = step, .notes = "",
};

const pd_program *pd_device(void)
{
	return &program;
}

#if !defined PD_LOOP        /* make LOOP=FILE.c: main is there */
int main(int argc, char **argv)
{
	return pd_main(pd_device(), argc, argv);
}
#endif
