/* conv, device 1 of 2 (d1): replica 1 of 2 of stage 0. Written by pdcc 0.1, edits are lost. */
#include "stage0/stage0.h"

/* its microbatches of a step, in the order in which they are done */
static const int mine[] = {
	2, 3,
};

/* A step: what is done, in which slot, with which microbatch. Forwards come first in the list of kinds: they
 * alone are done where nothing is trained. */
enum { F, B, SYNC, UPDATE };
static const char *const names[] = {
	[F] = "F", [B] = "B", [SYNC] = "SYNC", [UPDATE] = "UPDATE",
};
static const struct action { short kind, slot; int mb; } actions[] = {
	{ F, 0, 2 }, { B, 0, 2 }, { F, 0, 3 }, { B, 0, 3 }, { SYNC, 0, -1 }, { UPDATE, 0, -1 },
};

static void step(bool train)
{
	const struct action *end = actions + sizeof actions / sizeof *actions;

	for (const struct action *a = actions; a < end; a++) {
		if (!train && a->kind >= B)
			continue;
		pd_action(names[a->kind], a->mb);
		switch (a->kind) {
		case F:
			if (pd_section(train, (int)(a - actions), (int)(end - actions), a->mb)) {
				do
					forward(a->slot, a->mb);
				while (pd_section_end());
			}
			break;
		case B:
			if (pd_section(train, (int)(a - actions), (int)(end - actions), a->mb)) {
				do
					backward(a->slot, a->mb);
				while (pd_section_end());
			}
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
	init(arena, 1, mine, 2);
}

static const pd_program program = {
	.abi = PD_ABI, .model = "conv.onnx", .plan = "2", .schedule = "1f1b",
	.hash = "d798a703c6e46d0b", .model_hash = "75d63aefc68297f2", .optimizer = "momentum",
	.rank = 1, .world = 2, .stage = 0, .stages = 1, .replica = 1, .replicas = 2,
	.threads = 1, .reproducible = false, .shuffle = false, .seed = 1,
	.micro = 2, .microbatches = 4, .channels = 0, .slots = 1, .arena = 4544,
	.nparams = PARAMS, .params = stage_params, .ninputs = INPUTS, .inputs = stage_inputs,
	.ngroups = 1, .groups = (const pd_group[]){ { 2, (const int[]){ 0, 1 } } },
	.lr = 0.01,
	.predicted = 0.000268,
	.weights = "weights/stage0.safetensors", .steps = 10, .timeout = 60,
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
