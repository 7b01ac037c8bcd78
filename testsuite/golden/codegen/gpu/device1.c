/* mlp, device 1 of 2 (d1): replica 0 of 1 of stage 1. Written by pdcc 0.1, edits are lost. */
#include "stage1/stage1.h"

/* its microbatches of a step, in the order in which they are done */
static const int mine[] = {
	0, 1,
};

/* A step: what is done, in which slot, with which buffer at the entry, with which microbatch. Forwards come
 * first in the list of kinds: they alone are done where nothing is trained. */
enum { RECV_F, F, B, SEND_B, SYNC, UPDATE };
static const char *const names[] = {
	[RECV_F] = "RECV_F", [F] = "F", [B] = "B", [SEND_B] = "SEND_B", [SYNC] = "SYNC", [UPDATE] = "UPDATE",
};
static const struct action { short kind, slot, entry; int mb; } actions[] = {
	{ RECV_F, 0, 0, 0 }, { RECV_F, 0, 1, 1 }, { F, 0, 0, 0 }, { B, 0, 0, 0 }, { SEND_B, 0, 0, 0 },
	{ F, 0, 1, 1 }, { B, 0, 1, 1 }, { SEND_B, 0, 1, 1 }, { SYNC, 0, 0, -1 }, { UPDATE, 0, 0, -1 },
};

static void step(bool train)
{
	const struct action *end = actions + sizeof actions / sizeof *actions;

	for (const struct action *a = actions; a < end; a++) {
		if (!train && a->kind >= B)
			continue;
		pd_action(names[a->kind], a->mb);
		switch (a->kind) {
		case RECV_F:
			recv_forward(a->slot, a->entry, a->mb);
			break;
		case F:
			if (pd_section(train, (int)(a - actions), (int)(end - actions), a->mb)) {
				do
					forward(a->slot, a->entry, a->mb);
				while (pd_section_end());
			}
			break;
		case B:
			if (pd_section(train, (int)(a - actions), (int)(end - actions), a->mb)) {
				do
					backward(a->slot, a->entry, a->mb);
				while (pd_section_end());
			}
			break;
		case SEND_B:
			send_backward(a->slot, a->entry, a->mb);
			break;
		case SYNC:
			sync();
			break;
		case UPDATE:
			pd_totals();
			if (pd_section(train, (int)(a - actions), (int)(end - actions), a->mb)) {
				do
					update();
				while (pd_section_end());
			}
			break;
		}
	}
}

static void start(char *arena)
{
	init(arena, 0, mine, 2);
}

/* what each channel carries, for messages */
static const char *const channels[] = {
	"a, node #0 'h' Gemm", "d.a, node #2 'logits' Gemm",
};

/* what it sends (true) and receives: channel, the other device, lane, slots, bytes; both sides come to the
 * messages of a lane in one order */
static const pd_link links[] = {
	{ 0, 0, 0, false, 2, 80 }, { 1, 0, 0, true, 2, 80 },
};

static const pd_program program = {
	.abi = PD_ABI, .model = "mlp.onnx", .plan = "1-1", .schedule = "1f1b",
	.hash = "db3ef19b56e76c4e", .model_hash = "47540b4c30294e1c", .optimizer = "adam",
	.rank = 1, .world = 2, .stage = 1, .stages = 2, .replica = 0, .replicas = 1,
	.threads = 1, .reproducible = false, .shuffle = false, .seed = 1,
	.micro = 4, .microbatches = 2, .channels = 2, .slots = 2, .arena = 2624,
	.nparams = PARAMS, .params = stage_params, .ninputs = INPUTS, .inputs = stage_inputs,
	.channel = channels,
	.nlinks = sizeof links / sizeof *links, .links = links,
	.lr = 0.01,
	.predicted = 0.000128,
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
