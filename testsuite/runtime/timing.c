/* timing.c: how long sums over all processes take, for testsuite/comm/timing:
 *
 *     timing ROUNDS CASE...      a CASE: BYTES:L:MICROSECONDS   L sums of BYTES / L each, begun at once (L 0: by MPI's own),
 *                                                               while this thread sleeps so long
 * Rank 0 prints `BYTES L MICROSECONDS MEDIAN` in seconds, over ROUNDS rounds through all cases in turn, from when all are there until
 * the last has the sum (processes share a clock), then `add SECONDS` per byte of a sum's additions and `pack NAME BYTES_PER_SECOND` of the codecs. */
#include "test.h"
#include <time.h>

static pd_program program = { .abi = PD_ABI,
	.model = "timing",
	.plan = "timing",
	.schedule = "none",
	.hash = "timing",
	.stages = 1,
	.threads = 1,
	.micro = 1,
	.microbatches = 1,
	.channels = 1,
	.slots = 1 };
static int everyone[64];
static pd_group all;
static float *buf;

enum { ROUNDS = 64, CASES = 64, SMALL = 1 << 18, ROW = 1 << 16, OFTEN = 5 };

typedef struct timed {
	size_t bytes;
	int cut;
	double us, s[ROUNDS * OFTEN];
	int n;
} timed;

typedef struct span {
	double from, to;
	int n;
} span;

/* The same for all processes of a machine. */
static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Small ones: many in a row, behind some that use up what a shaped link lets through for free after a pause. */
static span row(size_t count)
{
	span x = { .n = (1 << 16) / (int)(count * sizeof *buf) + 1 };

	rt_barrier();
	for (int i = -x.n / 2; i < x.n; i++) {
		x.from = i == 0 ? now() : x.from;
		pd_allreduce(&all, buf, count);
	}
	x.to = now();
	return x;
}

static span once(const timed *c)
{
	if (c->bytes < ROW && c->cut == 1 && c->us <= 0)
		return row(c->bytes / sizeof *buf);
	const size_t count = c->bytes / sizeof *buf;
	const pd_sum vendor = { .by = PD_SUM_VENDOR };

	rt_barrier();
	const double from = now();

	for (int i = 0; i < (c->cut ? c->cut : 1); i++) {
		const size_t n = (size_t)(c->cut ? c->cut : 1), lo = count * (size_t)i / n,
			     hi = count * ((size_t)i + 1) / n;

		pd_allreduce_start(&all, buf + lo, hi - lo, c->cut ? NULL : &vendor);
	}
	if (c->us > 0)
		nanosleep(&(struct timespec){ (time_t)(c->us * 1e-6), (long)(c->us * 1e3) % 1000000000 }, NULL);
	pd_allreduce_wait();
	return (span){ from, now(), 1 };
}

static int rising(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* A sum begins when all are there: the last that came, and the last that has it, count. */
static double slowest(span mine)
{
	span of[64], all_of = mine;

	pd_allgather(&all, &mine, of, sizeof mine);
	for (int r = 0; r < all.n; r++) {
		all_of.from = of[r].from > all_of.from ? of[r].from : all_of.from;
		all_of.to = of[r].to > all_of.to ? of[r].to : all_of.to;
	}
	return (all_of.to - all_of.from) / all_of.n;
}

static double best_of(void (*what)(const void *), const void *arg)
{
	double best = 1e9;

	for (int i = 0; i < 15; i++) {
		const double from = rt_now();
		what(arg);
		best = rt_now() - from < best ? rt_now() - from : best;
	}
	return best;
}

enum { N = 1 << 16 }; /* floats: they stay in the cache, as segments do */
static float in[N], out[N], copy[N], residual[N];
static char packed[N * 4 + 4096];

static void add(const void *none)
{
	(void)none;
	for (size_t i = 0; i < N; i++)
		out[i] += in[i];
}

static void repack(const void *codec) { rt_encode_feedback(codec, copy, residual, 1, N, packed); }
static void pack(const void *codec) { rt_encode(codec, in, N, packed); }
static void unpack(const void *codec) { rt_decode(codec, packed, N, out, true); }

static void alone(void)
{
	static const struct {
		const char *name;
		rt_codec c;
	} codec[] = { { "trunc16", { PD_CODEC_TRUNC16, 0 } }, { "bf16", { PD_CODEC_BF16, 0 } },
		{ "q8", { PD_CODEC_Q8, 128 } }, { "q8:block=4096", { PD_CODEC_Q8, 4096 } } };

	for (size_t i = 0; i < N; i++)
		in[i] = number(1, (int)(i % 10007));
	printf("add %g\n", best_of(add, NULL) / sizeof in);
	for (size_t i = 0; i < sizeof codec / sizeof *codec; i++) {
		printf("pack %s %g\n", codec[i].name, sizeof in / best_of(pack, &codec[i].c));
		memcpy(copy, in, sizeof copy);
		printf("repack %s,ef %g\n", codec[i].name, sizeof in / best_of(repack, &codec[i].c));
		printf("unpack %s %g\n", codec[i].name, sizeof in / best_of(unpack, &codec[i].c));
	}
}

int main(int argc, char **argv)
{
	static timed c[CASES];
	const int rounds = argc > 1 ? atoi(argv[1]) : 0;
	size_t most = 4;
	int n = 0;

	for (int i = 2; i < argc && n < CASES; i++, n++) {
		if (sscanf(argv[i], "%zu:%d:%lf", &c[n].bytes, &c[n].cut, &c[n].us) != 3)
			return 2;
		most = c[n].bytes > most ? c[n].bytes : most;
	}
	place_me(&program);
	rt_program = &program;
	program.replica = program.rank;
	rt_join(&program, 120);
	for (int r = 0; r < program.world; r++)
		everyone[r] = r;
	all = (pd_group){ program.world, everyone };
	pd_group_open(&all);
	buf = calloc(most, 1);
	for (int round = -1; round < rounds && round < ROUNDS; round++)
		for (int i = 0; i < n; i++)
			for (int k = 0; k < (c[i].bytes <= SMALL ? OFTEN : 1); k++) {
				const double s = slowest(once(&c[i]));

				if (round >= 0)
					c[i].s[c[i].n++] = s;
			}
	for (int i = 0; i < n && program.rank == 0 && rounds; i++) {
		qsort(c[i].s, (size_t)c[i].n, sizeof *c[i].s, rising);
		printf("%zu %d %g %.9g\n", c[i].bytes, c[i].cut, c[i].us, c[i].s[c[i].n / 2]);
	}
	rt_barrier();
	rt_leave();
	if (program.rank == 0 && !n)
		alone();
	free(buf);
	return 0;
}
