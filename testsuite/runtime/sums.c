/* sums.c: AllReduce, gathering and tree sums against serial sums, for any number of processes. Rank 0 says which bits the sums
 * had, for shared.py: they are the same whatever way the parts of a sum take. */
#include "test.h"

static pd_program program = { .abi = PD_ABI,
	.model = "test",
	.plan = "test",
	.schedule = "none",
	.hash = "sums",
	.stages = 1,
	.threads = 1,
	.micro = 1,
	.microbatches = 1,
	.compressed = true,
	.channels = 5,
	.slots = 2 };
static int everyone[64];
static pd_group all;
static uint64_t bits = 14695981039346656037u; /* FNV-1a, by words */

static void seen(const float *a, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint32_t x;

		memcpy(&x, a + i, sizeof x);
		bits = (bits ^ x) * 1099511628211u;
	}
}

static void fill(float *a, size_t n, int rank)
{
	for (size_t i = 0; i < n; i++)
		a[i] = number(rank, (int)(i % 10007));
}

/* Sums of whole numbers are exact in any order: every element is compared with ==. */
static void allreduce(size_t n)
{
	float *a = calloc(n + 1, sizeof *a);
	double worst = 0;

	for (size_t i = 0; i < n; i++)
		a[i] = (float)((program.rank + 1) * (int)(i % 1000));
	a[n] = 12345;
	pd_allreduce(&all, a, n);
	for (size_t i = 0; i < n; i++)
		worst = fmax(worst, fabs((double)a[i] - (double)(i % 1000) * program.world * (program.world + 1) / 2));
	CHECK(worst == 0 && a[n] == 12345, "allreduce of %zu floats over %d: off by %g", n, all.n, worst);
	free(a);
}

/* In f64: numbers that f32 has not, more of them than are sent at once. */
static void allreduce_f64(size_t n)
{
	double *a = calloc(n + 1, sizeof *a), worst = 0;

	for (size_t i = 0; i < n; i++)
		a[i] = (program.rank + 1) * (1e9 + (double)i);
	a[n] = 12345;
	pd_allreduce_f64(&all, a, n);
	for (size_t i = 0; i < n; i++)
		worst = fmax(worst, fabs(a[i] - (1e9 + (double)i) * program.world * (program.world + 1) / 2));
	CHECK(worst == 0 && a[n] == 12345, "allreduce of %zu doubles over %d: off by %g", n, all.n, worst);
	free(a);
}

/* All members must end with the same bits, whatever the rounding was. */
static void same_bits(size_t n)
{
	float *a = calloc(n, sizeof *a), *b = calloc(n * (size_t)all.n, sizeof *b);

	fill(a, n, program.rank);
	pd_allreduce(&all, a, n);
	seen(a, n);
	pd_allgather(&all, a, b, n * sizeof *a);
	for (int r = 0; r < all.n; r++)
		CHECK(!memcmp(a, b + (size_t)r * n, n * sizeof *a), "allreduce of %zu: rank %d has other bits", n, r);
	free(a);
	free(b);
}

/* By every algorithm: whole numbers exactly, others with the same bits everywhere. */
static void algorithm(pd_algorithm by, size_t n, int per_host)
{
	int host[64];
	const pd_sum how = { .by = by, .host = per_host ? host : NULL };
	float *a = calloc(n + 1, sizeof *a), *b = calloc(n * (size_t)all.n + 1, sizeof *b);
	double worst = 0;

	for (size_t i = 0; i < n; i++)
		a[i] = (float)((program.rank + 1) * (int)(i % 1000));
	a[n] = 12345;
	for (int i = 0; i < 64; i++)
		host[i] = per_host ? i / per_host : 0;
	pd_allreduce_as(&all, a, n, &how);
	for (size_t i = 0; i < n; i++)
		worst = fmax(worst, fabs((double)a[i] - (double)(i % 1000) * program.world * (program.world + 1) / 2));
	CHECK(worst == 0 && a[n] == 12345, "algorithm %d: %zu floats over %d: off by %g", by, n, all.n, worst);
	fill(a, n, program.rank);
	pd_allreduce_as(&all, a, n, &how);
	if (by != PD_SUM_VENDOR)
		seen(a, n);
	pd_allgather(&all, a, b, n * sizeof *a);
	for (int r = 0; r < all.n; r++)
		CHECK(!memcmp(a, b + (size_t)r * n, n * sizeof *a), "algorithm %d of %zu: rank %d has other bits", by,
			n, r);
	free(a);
	free(b);
}

/* Compressed: all ranks have the same bits, and each hop loses at most its share of the largest partial sum. */
static void compressed(pd_codec codec, int block, double loss, size_t n)
{
	float *a = calloc(n + 1, sizeof *a), *b = calloc(n * (size_t)all.n, sizeof *b);
	double worst = 0;

	a[n] = 12345;
	fill(a, n, program.rank);
	pd_allreduce_as(&all, a, n, &(pd_sum){ .codec = codec, .block = block });
	seen(a, n);
	pd_allgather(&all, a, b, n * sizeof *a);
	for (int r = 0; r < all.n; r++)
		CHECK(!memcmp(a, b + (size_t)r * n, n * sizeof *a), "codec %d of %zu: rank %d has other bits", codec, n,
			r);
	for (size_t i = 0; i < n; i++) {
		double want = 0;

		for (int r = 0; r < all.n; r++)
			want += (double)number(r, (int)(i % 10007));
		worst = fmax(worst, fabs((double)a[i] - want));
	}
	CHECK(worst <= loss * all.n * all.n && (all.n == 1 || worst > 0 || n <= 4096) && a[n] == 12345,
		"codec %d of %zu over %d: off by %g", codec, n, all.n, worst);
	free(a);
	free(b);
}

/* Error feedback: what the sums of several rounds lack is what the members' residuals hold, so the mean comes as near as one likes. */
static void feedback(pd_codec codec, int block, double loss, size_t n)
{
	enum { ROUNDS = 20 };
	float *a = calloc(n, sizeof *a), *own = calloc(n, sizeof *own),
	      *all_of = calloc(n * (size_t)all.n, sizeof *all_of);
	double *total = calloc(n, sizeof *total), worst = 0, off = 0;

	for (int k = 0; k < ROUNDS; k++) {
		fill(a, n, program.rank);
		pd_allreduce_as(
			&all, a, n, &(pd_sum){ .by = PD_SUM_RING, .codec = codec, .block = block, .residual = own });
		for (size_t i = 0; i < n; i++)
			total[i] += (double)a[i];
	}
	pd_allgather(&all, own, all_of, n * sizeof *own);
	for (size_t i = 0; i < n; i++) {
		double want = 0, held = 0;

		for (int r = 0; r < all.n; r++) {
			want += ROUNDS * (double)number(r, (int)(i % 10007));
			held += (double)all_of[(size_t)r * n + i];
		}
		worst = fmax(worst, fabs(total[i] + held - want));
		off = fmax(off, fabs(total[i] - want) / ROUNDS);
	}
	CHECK(worst < 1e-4 * ROUNDS * all.n, "feedback of codec %d, %zu over %d: %g is lost", codec, n, all.n, worst);
	CHECK(off <= 2 * loss * all.n * all.n / ROUNDS, "feedback of codec %d, %zu over %d: the mean is off by %g",
		codec, n, all.n, off);
	free(a);
	free(own);
	free(all_of);
	free(total);
}

/* Several in the background while the main thread gathers over the same links. */
static void background(void)
{
	enum { JOBS = 5, N = 100003 };
	static float a[JOBS][N];
	int mine[3] = { program.rank, 10 * program.rank, 7 }, got[64][3];

	for (int j = 0; j < JOBS; j++)
		for (int i = 0; i < N; i++)
			a[j][i] = (float)(j + i % 17);
	for (int j = 0; j < JOBS; j++)
		pd_allreduce_start(&all, a[j], N, NULL);
	for (int k = 0; k < 20; k++) {
		pd_allgather(&all, mine, got, sizeof mine);
		for (int r = 0; r < all.n; r++)
			CHECK(got[r][0] == r && got[r][1] == 10 * r && got[r][2] == 7,
				"allgather: rank %d's part is wrong", r);
	}
	pd_allreduce_wait();
	for (int j = 0; j < JOBS; j++)
		for (int i = 0; i < N; i++)
			if (a[j][i] != (float)(program.world * (j + i % 17))) {
				CHECK(false, "background job %d, element %d: %g", j, i, (double)a[j][i]);
				break;
			}
}

/* A sum goes on beside what the program computes, which asks nothing of it until it waits. */
static void beside(void)
{
	enum { N = 1000003 };
	static float a[N];
	const double begin = rt_now();
	bool done = false;

	for (int i = 0; i < N; i++)
		a[i] = (float)(i % 17);
	pd_allreduce_start(&all, a, N, NULL);
	while (!done && rt_now() - begin < 20) {
		rt_nap(1000);
		rt_lock();
		done = rt_ring_idle();
		rt_unlock();
	}
	CHECK(done && a[N - 1] == (float)(program.world * ((N - 1) % 17)), "a sum that nobody waits for does not end");
	pd_allreduce_wait();
}

/* Disjoint groups at one time, and groups of one. */
static void subgroups(void)
{
	int pair[2] = { program.rank & ~1, program.rank | 1 };
	const pd_group two = { 2, pair }, one = { 1, &program.rank };
	float a[3] = { 1, 2, 3 };

	pd_allreduce(&one, a, 3);
	CHECK(a[2] == 3, "a group of one changes nothing");
	if (pair[1] < program.world) {
		pd_allreduce(&two, a, 3);
		CHECK(a[0] == 2 && a[2] == 6, "pairs: %g %g", (double)a[0], (double)a[2]);
	}
}

static void broadcast(size_t n)
{
	int *a = calloc(n + 1, sizeof *a);

	for (int from = 0; from < program.world; from++) {
		int bad = 0;

		for (size_t i = 0; i < n; i++)
			a[i] = program.rank == from ? from * 1000 + (int)i : -1;
		pd_broadcast(&all, from, a, n * sizeof *a);
		for (size_t i = 0; i < n; i++)
			bad += a[i] != from * 1000 + (int)i;
		CHECK(bad == 0, "broadcast of %zu from %d: %d are wrong", n, from, bad);
	}
	free(a);
}

/* ---- trees ---- */

static void serial_tree(int lo, int n, size_t count, float *out)
{
	if (n == 1) {
		fill(out, count, 100 + lo);
		return;
	}
	int p = 1;

	while (2 * p < n)
		p *= 2;
	float *b = malloc(count * sizeof *b + 1);

	serial_tree(lo, p, count, out);
	serial_tree(lo + p, n - p, count, b);
	for (size_t i = 0; i < count; i++)
		out[i] = out[i] + b[i];
	free(b);
}

static void tree(int grains, size_t count, bool backwards)
{
	int mine[64], n = 0;

	for (int g = 0; g < grains; g++)
		if (g * program.world / grains == program.rank)
			mine[n++] = g;
	for (int i = 0; backwards && i < n / 2; i++) {
		const int swap = mine[i];

		mine[i] = mine[n - 1 - i];
		mine[n - 1 - i] = swap;
	}
	const size_t bytes = pd_tree_bytes(grains, count, mine, n);
	char *mem = aligned_alloc(64, bytes + 64);
	float *want = malloc(count * sizeof *want + 1);
	pd_tree *t;

	memset(mem + bytes, 77, 64);
	t = pd_tree_new(grains, count, mine, n, mem);
	serial_tree(0, grains, count, want);
	for (int step = 0; step < 2; step++) {
		for (int i = 0; i < n; i++) {
			float *leaf = pd_tree_leaf(t, mine[i]);

			for (size_t e = 0; e < count; e++)
				leaf[e] += number(100 + mine[i], (int)(e % 10007));
			pd_tree_done(t, mine[i]);
		}
		const float *root = pd_tree_root(t, &all);

		CHECK(!memcmp(root, want, count * sizeof *want),
			"tree of %d grains, %zu floats, over %d: other bits, first %.9g for %.9g", grains, count, all.n,
			(double)root[0], (double)want[0]);
	}
	for (int i = 0; i < 64; i++)
		CHECK(mem[bytes + (size_t)i] == 77, "tree of %d grains writes behind its memory", grains);
	free(mem);
	free(want);
}

int main(void)
{
	static const size_t sizes[] = { 0, 1, 2, 3, 4, 5, 7, 100, 4096, 4097, 5000, 32768 * 5, 32768 * 5 + 3, 1000003 };

	rt_log = RT_LOG_DEBUG;
	place_me(&program);
	rt_program = &program;
	program.replica = program.rank;
	rt_join(&program, 30);
	for (int r = 0; r < program.world; r++)
		everyone[r] = r;
	all = (pd_group){ program.world, everyone };
	pd_group_open(&all);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		allreduce(sizes[i]);
	allreduce_f64(3);
	allreduce_f64(1000003);
	same_bits(1000);
	same_bits(200001);
	for (pd_algorithm by = PD_SUM_RING; by <= PD_SUM_VENDOR; by++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
			algorithm(by, sizes[i], 0);
	for (int per_host = 1; per_host < 4; per_host++)
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i += 3)
			algorithm(PD_SUM_HOSTS, sizes[i], per_host);
	for (size_t n = 4000; n < 2000000; n = n * 7 + 1) {
		compressed(PD_CODEC_TRUNC16, 0, 0x1p-7, n);
		compressed(PD_CODEC_BF16, 0, 0x1p-8, n);
		compressed(PD_CODEC_Q8, 128, 1 / 254.0, n);
		compressed(PD_CODEC_Q8, 32768, 1 / 254.0, n);
		feedback(PD_CODEC_TRUNC16, 0, 0x1p-7, n);
		feedback(PD_CODEC_BF16, 0, 0x1p-8, n);
		feedback(PD_CODEC_Q8, 128, 1 / 254.0, n);
	}
	background();
	beside();
	subgroups();
	broadcast(0);
	broadcast(3);
	broadcast(100000);
	for (int grains = program.world; grains <= 13; grains++) {
		tree(grains, 1, false);
		tree(grains, 1003, true);
	}
	tree(8 > program.world ? 8 : program.world, 300007, false);
	rt_barrier();
	rt_leave();
	if (program.rank == 0)
		printf("bits %016llx\n", (unsigned long long)bits);
	return failures ? 1 : 0;
}
