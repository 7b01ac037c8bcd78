/* channels.c: messages of a plan between two and more ranks; faults by name: silent, late, size,
 * plan, slot. */
#include "test.h"
#include <unistd.h>

enum { CHANNELS = 4, SLOTS = 3, M = 7, BIG = 300000 };

static pd_program program = { .abi = PD_ABI,
	.model = "test",
	.plan = "test",
	.schedule = "none",
	.hash = "one plan",
	.stages = 1,
	.threads = 1,
	.micro = 1,
	.microbatches = M,
	.channels = CHANNELS,
	.slots = SLOTS };
static int received[SLOTS][BIG], sent[SLOTS][BIG];

/* Everyone sends to the next and receives from the one before. The receiver posts in another
 * order than the sender sends: microbatches are matched by number. */
static void ring_of_messages(void)
{
	const int next = (program.rank + 1) % program.world,
		  before = (program.rank + program.world - 1) % program.world;
	static const int order[M] = { 2, 0, 1, 5, 4, 3, 6 };

	for (rt_step = 0; rt_step < 4; rt_step++)
		for (int k = 0; k < M; k += SLOTS) {
			const int n = M - k < SLOTS ? M - k : SLOTS;

			for (int j = 0; j < n; j++)
				pd_irecv(1, j, before, order[k + j], received[j], sizeof received[j]);
			for (int j = 0; j < n; j++) {
				pd_wait_send(2, j);
				for (int i = 0; i < BIG; i++)
					sent[j][i] = program.rank * 1000 + k + j + i + (int)rt_step;
				pd_isend(1, j, next, k + j, sent[j], sizeof sent[j]);
			}
			for (int j = 0; j < n; j++) {
				int bad = -1;

				pd_wait_recv(1, j);
				for (int i = 0; i < BIG && bad < 0; i++)
					if (received[j][i] != before * 1000 + order[k + j] + i + (int)rt_step)
						bad = i;
				CHECK(bad < 0, "microbatch %d: element %d is %d", order[k + j], bad,
					received[j][bad < 0 ? 0 : bad]);
			}
			for (int j = 0; j < n; j++)
				pd_wait_send(1, j);
		}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int token = 0;

	place_me(&program);
	program.stage = program.rank;
	rt_program = &program;
	if (!strcmp(mode, "plan") && program.rank == 1)
		program.hash = "another plan";
	rt_join(&program, 1.0);
	rt_step = 812;
	if (program.rank == 0) {
		if (!strcmp(mode, "silent") || !strcmp(mode, "longer"))
			pd_irecv(3, 2, 1, 5, &token, sizeof token), pd_wait_recv(3, 2);
		if (!strcmp(mode, "size"))
			pd_irecv(3, 2, 1, 5, &token, sizeof token), pd_wait_recv(3, 2);
		if (!strcmp(mode, "slot"))
			pd_irecv(3, SLOTS, 1, 5, &token, sizeof token);
		if (!strcmp(mode, "busy"))
			pd_irecv(3, 0, 1, 5, &token, sizeof token), pd_irecv(3, 0, 1, 6, &token, sizeof token);
		if (!strcmp(mode, "sum")) {
			static const int ranks[] = { 0, 1 };
			float x = 1;

			pd_allreduce(&(pd_group){ 2, ranks }, &x, 1);
		}
	} else {
		if (!strcmp(mode, "size"))
			pd_isend(3, 0, 0, 5, &token, 2);
		if (!strcmp(mode, "longer"))
			pd_isend(3, 0, 0, 5, sent, 1000);
		if (*mode && strcmp(mode, "late"))
			sleep(20);
	}
	if (!strcmp(mode, "late")) { /* slower than a poll, faster than the timeout */
		if (program.rank == 1)
			usleep(500000), pd_isend(0, 0, 0, 0, &token, 4), pd_wait_send(0, 0);
		else
			pd_irecv(0, 0, 1, 0, &token, 4), pd_wait_recv(0, 0);
	}
	ring_of_messages();
	rt_leave();
	return failures ? 1 : 0;
}
