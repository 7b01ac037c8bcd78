/* signals.c: a program that tells itself to stop: `signals early|once|twice [options of pd_main]`. Early: before it has
 * joined the others, which ends it at once; in a step, which is the last one then; twice, which ends it in the step. No
 * thread that computes may take such a signal: in oneDNN's products its stack pointer is in memory of malloc. */
#include "test.h"
#include <signal.h>
#include <unistd.h>

enum { LAST = 2 };

static const char *mode;
static int64_t last;

static bool blocked(int n)
{
	sigset_t now;

	pthread_sigmask(SIG_BLOCK, NULL, &now);
	return sigismember(&now, n) == 1;
}

static void tell(void)
{
	kill(getpid(), SIGTERM);
	for (int k = 0; k < 100 && !rt_signal; k++)
		usleep(100000);
	CHECK(rt_signal == SIGTERM, "%d is heard of SIGTERM", rt_signal);
}

static void step(bool update)
{
	int open = 0;

	(void)update;
	last = pd_step_index();
#pragma omp parallel num_threads(3) reduction(+ : open)
	open += !blocked(SIGINT) + !blocked(SIGTERM) + !blocked(SIGHUP);
	CHECK(open == 0, "%d times a signal may interrupt one of 3 threads that compute", open);
	if (last == LAST)
		tell();
	if (last == LAST && !strcmp(mode, "twice")) {
		printf("told once\n");
		fflush(stdout);
		kill(getpid(), SIGTERM);
		sleep(10);
		CHECK(false, "the second signal ends nothing");
	}
	pd_report(0, 1, 1);
	pd_totals();
}

static const pd_program program = { .abi = PD_ABI,
	.model = "signals",
	.plan = "1",
	.schedule = "none",
	.hash = "signals",
	.world = 1,
	.stages = 1,
	.replicas = 1,
	.threads = 3,
	.micro = 1,
	.microbatches = 1,
	.channels = 1,
	.slots = 1,
	.step = step };

int main(int argc, char **argv)
{
	mode = argc > 1 ? argv[1] : "";
	if (!strcmp(mode, "early")) {
		printf("before the first step\n");
		fflush(stdout);
		rt_signals_open();
		kill(getpid(), SIGTERM);
		sleep(10);
		return 1;
	}
	argv[1] = argv[0];
	if (pd_init(&program, argc - 1, argv + 1))
		while (pd_step())
			;
	CHECK(last == LAST, "the run went on until step %d, not %d", (int)last, LAST);
	const int code = pd_finalize();

	if (failures)
		return 1;
	printf("the step was finished\n");
	return code;
}
