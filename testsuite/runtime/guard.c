/* guard.c: packed sums that pay go on, others do not, and nothing is lost by the change.
 *
 *     guard slow      messages take as long as their bytes: packing pays
 *     guard packed    packed messages take long: packing does not pay
 *     guard nan       one gradient is NaN in one step, which ends packing
 *     guard uneven    to one member packing looks dear, to the others that it pays: all take what is less in the sum
 *     guard resumed   as slow, after a checkpoint of `packed`: what was decided stays
 *
 * This program stands before MPI_Isend. A step is one sum; --timeout and options as any program. */
#include "test.h"
#include <mpi.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { N = 80000, STEPS = 16 };

static pd_program program = { .abi = PD_ABI,
	.model = "test",
	.plan = "test",
	.schedule = "none",
	.hash = "guard",
	.stages = 1,
	.threads = 1,
	.micro = 1,
	.microbatches = 1,
	.compressed = true,
	.channels = 1,
	.slots = 1,
	.steps = STEPS };
static int everyone[64];
static pd_group all;
static const char *mode = "";
static float a[N], residual[N], held[64 * N];
static double total[N];
static int exact[STEPS], last;

/* Milliseconds that this member's clock is ahead: of the messages of its packed sums, or of the others. */
static atomic_long ahead;

int clock_gettime(clockid_t id, struct timespec *t)
{
	const int got = (int)syscall(SYS_clock_gettime, id, t);

	if (id == CLOCK_MONOTONIC) {
		const long ns = t->tv_nsec + ahead % 1000 * 1000000;

		t->tv_sec += ahead / 1000 + ns / 1000000000;
		t->tv_nsec = ns % 1000000000;
	}
	return got;
}

int MPI_Isend(const void *buf, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r)
{
	const long us = n < 4096                                            ? 0
	                : !strcmp(mode, "slow") || !strcmp(mode, "resumed") ? n / 2
	                : !strcmp(mode, "packed") && n <= 40000             ? 20000
	                                                                    : 0;

	if (!strcmp(mode, "uneven") && n >= 4096)
		ahead += program.rank == 0 ? (n <= 40000 ? 100 : 0) : (n > 40000 ? 10 : 0);
	if (us)
		nanosleep(&(struct timespec){ 0, 1000 * us }, NULL);
	return PMPI_Isend(buf, n, t, to, tag, c, r);
}

static double want(int i)
{
	double s = 0;

	for (int r = 0; r < all.n; r++)
		s += (double)number(r, i);
	return s;
}

static void step(bool update)
{
	const int k = (int)pd_step_index();
	double worst = 0;

	(void)update;
	for (int i = 0; i < N; i++)
		a[i] = number(program.rank, i);
	if (!strcmp(mode, "nan") && k == 4 && program.rank == program.world - 1)
		a[5] = NAN;
	pd_allreduce_as(&all, a, N,
		&(pd_sum){
			.codec = PD_CODEC_Q8, .block = 128, .residual = residual, .guard = strcmp(mode, "nan") != 0 });
	for (int i = 0; i < N; i++) {
		worst = fmax(worst, fabs((double)a[i] - want(i)));
		total[i] += isnan(a[i]) ? want(i) : (double)a[i];
	}
	exact[last = k] = worst < 1e-5;
	pd_report(0, 1, 1);
	pd_totals();
}

/* By what it sends and keeps: what is packed is off, a residual that was added makes a sum of its own. */
static void judge(void)
{
	double off = 0;
	float kept = 0;

	CHECK(exact[last] == (strcmp(mode, "slow") != 0), "%s: the last sum is %s", mode,
		exact[last] ? "exact" : "packed");
	if (!strcmp(mode, "resumed"))
		return;
	for (int i = 0; i < N; i++)
		kept = fmaxf(kept, fabsf(residual[i]));
	CHECK(!strcmp(mode, "slow") || !(kept > 0), "%s: %g of a gradient is held back though packing has ended", mode,
		(double)kept);
	pd_allgather(&all, residual, held, sizeof residual);
	for (int i = 128; i < N; i++) { /* the first block was NaN once */
		double left = 0;

		for (int r = 0; r < all.n; r++)
			left += (double)held[(size_t)r * N + (size_t)i];
		off = fmax(off, fabs(total[i] + left - (last + 1) * want(i)));
	}
	CHECK(off < 1e-3, "%s: %g of the gradients is lost", mode, off);
	CHECK(!exact[0] && !exact[1] && !exact[3], "%s: the first step and every second one are packed", mode);
	CHECK(strcmp(mode, "nan") || exact[6], "nan: a sum two steps later is packed");
}

int main(int argc, char **argv)
{
	mode = argc > 1 ? argv[1] : "";
	setenv("PD_SHARED", "0", 1); /* what does not go through MPI_Isend has no times of ours */
	place_me(&program);
	all = (pd_group){ program.world, everyone };
	for (int i = 0; i < 64; i++)
		everyone[i] = i;
	program.replicas = program.world;
	program.replica = program.rank;
	program.step = step;
	argv[1] = argv[0];
	if (pd_init(&program, argc - 1, argv + 1))
		while (pd_step())
			;
	judge();
	return pd_finalize() || failures;
}
