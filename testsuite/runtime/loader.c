/* loader.c: samples over workers and epochs. Usage: loader DIR [throughput [MiB]]
 *
 * 1 to 8 workers, 3 epochs, in order and shuffled, all three ends of an epoch, sizes that divide and sizes that
 * do not: what the workers read is disjoint; together it is the data set (less what is dropped, and with samples
 * of the next epoch where steps wrap); a microbatch has the same samples whatever the workers and however often
 * it is asked. Windows of token files. throughput: how fast pd_input gives samples from the page cache, by kind
 * of file; fails below 2 GB/s. */
#include "test.h"

enum { MICRO = 3, M = 8, BATCH = MICRO * M, MOST = 200 };

static pd_program program = { .abi = PD_ABI,
	.model = "test",
	.plan = "test",
	.schedule = "none",
	.hash = "loader",
	.world = 1,
	.stages = 1,
	.threads = 1,
	.micro = MICRO,
	.microbatches = M,
	.seed = 9,
	.slots = 1 };
static const char *dir;
static char path[4096];

static FILE *create(const char *name)
{
	snprintf(path, sizeof path, "%s/%s", dir, name);
	remove(path); /* a file that is mapped keeps what it has */
	FILE *f = fopen(path, "wb");

	if (!f)
		exit(2);
	return f;
}

static void write_ids(int64_t n)
{
	FILE *f = create("id.bin");

	for (int64_t i = 0; i < n; i++)
		if (fwrite(&i, sizeof i, 1, f) != 1)
			exit(2);
	if (fclose(f))
		exit(2);
}

static void use(const pd_input_desc *d, int n, bool shuffle)
{
	program.inputs = d;
	program.ninputs = n;
	rt_input_open(&program, &(rt_input_options){ .dir = dir, .root = ".", .shuffle = shuffle });
}

/* The samples of microbatch mb of a step, -1 for places without one. */
static void samples_of(int64_t step, int mb, int64_t *to)
{
	float there[MICRO];
	int64_t label[MICRO], id[MICRO];

	rt_step = step;
	pd_input(0, mb, id);
	pd_input(1, mb, there);
	pd_input(2, mb, label);
	for (int b = 0; b < MICRO; b++) {
		CHECK(label[b] == (there[b] != 0 ? id[b] : -100), "sample %d: label %d", (int)id[b], (int)label[b]);
		to[b] = there[b] != 0 ? id[b] : -1;
	}
}

static void one_set(int64_t n, bool shuffle, pd_last last)
{
	static const pd_input_desc d[] = {
		{ .name = "id", .dtype = PD_I64, .rank = 1, .dim = { MICRO }, .kind = "raw", .path = "id.bin" },
		{ .name = "there", .dtype = PD_F32, .rank = 1, .dim = { MICRO }, .kind = "presence" },
		{ .name = "label",
			.dtype = PD_I64,
			.rank = 1,
			.dim = { MICRO },
			.kind = "raw",
			.path = "id.bin",
			.is_label = true,
			.masked = true,
			.ignore_index = -100 },
	};
	const int64_t steps = 3 * (last == PD_LAST_DROP ? n / BATCH : (n + BATCH - 1) / BATCH);
	static int64_t first[64 * M][MICRO], now[MICRO];

	program.last = last;
	for (int workers = 1; workers <= 8; workers++) {
		int64_t seen[MOST] = { 0 }, places = 0;

		use(d, 3, shuffle);
		for (int w = workers - 1; w >= 0; w--) /* a worker alone sees what it would see among others */
			for (int64_t s = 0; s < steps; s++)
				for (int mb = 0; mb < M; mb++) {
					if (mb * workers / M != w)
						continue;
					samples_of(s, mb, now);
					if (workers == 1)
						memcpy(first[s * M + mb], now, sizeof now);
					CHECK(!memcmp(first[s * M + mb], now, sizeof now),
						"%d workers: step %d, microbatch %d", workers, (int)s, mb);
					for (int b = 0; b < MICRO; b++)
						if (now[b] >= 0) {
							CHECK(now[b] < n, "sample %d of %d", (int)now[b], (int)n);
							seen[now[b]]++;
							places++;
						}
				}
		const int64_t want = last == PD_LAST_KEEP ? 3 * n : steps * BATCH;
		int64_t least = INT64_MAX, most = 0, distinct = 0;

		for (int64_t i = 0; i < n; i++) {
			least = seen[i] < least ? seen[i] : least;
			most = seen[i] > most ? seen[i] : most;
			distinct += seen[i] > 0;
		}
		CHECK(places == want, "%d of %d places", (int)places, (int)want);
		if (last == PD_LAST_KEEP)
			CHECK(least == 3 && most == 3, "in 3 epochs a sample comes %d to %d times", (int)least,
				(int)most);
		if (last == PD_LAST_WRAP)
			CHECK(least == want / n && most <= want / n + 1, "a sample comes %d to %d times", (int)least,
				(int)most);
		if (last == PD_LAST_DROP)
			CHECK(most <= 3 && (shuffle || distinct == n / BATCH * BATCH),
				"a sample comes %d times; %d are used", (int)most, (int)distinct);
	}
}

/* Every epoch has each sample at most once, and its own order. */
static void epochs(int64_t n)
{
	static const pd_input_desc d = {
		.name = "id", .dtype = PD_I64, .rank = 1, .dim = { MICRO }, .kind = "raw", .path = "id.bin"
	};
	int64_t order[2][MOST], now[MICRO], same = 0;
	const int64_t each = n / BATCH;

	program.last = PD_LAST_DROP;
	use(&d, 1, true);
	for (int64_t e = 0; e < 2; e++) {
		bool seen[MOST] = { false };

		for (int64_t k = 0; k < each * M; k++) {
			rt_step = e * each + k / M;
			pd_input(0, (int)(k % M), now);
			for (int b = 0; b < MICRO; b++) {
				CHECK(!seen[now[b]], "sample %d twice in epoch %d", (int)now[b], (int)e);
				seen[now[b]] = true;
				order[e][k * MICRO + b] = now[b];
			}
		}
	}
	for (int64_t i = 0; i < each * BATCH; i++)
		same += order[0][i] == order[1][i];
	CHECK(same < each * BATCH / 4, "%d of %d places have the same sample in both epochs", (int)same,
		(int)(each * BATCH));
}

static void tokens(void)
{
	enum { T = 5, TOKENS = 500 };
	static pd_input_desc d[] = {
		{ .name = "x", .dtype = PD_I64, .rank = 2, .dim = { MICRO, T }, .path = "t.bin", .range = 70000 },
		{ .name = "y",
			.dtype = PD_I32,
			.rank = 2,
			.dim = { MICRO, T },
			.path = "t.bin",
			.range = 70000,
			.is_label = true,
			.ignore_index = INT64_MIN },
	};
	int64_t x[MICRO * T];
	int32_t y[MICRO * T];

	program.last = PD_LAST_WRAP;
	for (int wide = 0; wide < 2; wide++) {
		FILE *f = create("t.bin");

		for (uint32_t i = 0; i < TOKENS; i++) {
			const uint32_t v = wide ? 65530 + i : i * 7;
			const uint16_t w = (uint16_t)v;
			if (fwrite(wide ? (const void *)&v : (const void *)&w, wide ? 4 : 2, 1, f) != 1)
				exit(2);
		}
		if (fclose(f))
			exit(2);
		d[0].kind = d[1].kind = wide ? "tokens32" : "tokens";
		use(d, 2, false);
		CHECK(rt_input_samples() == (TOKENS - 1) / T, "%d windows", (int)rt_input_samples());
		for (rt_step = 0; rt_step < 4; rt_step++) {
			pd_input(0, 1, x);
			pd_input(1, 1, y);
			for (int i = 0; i < MICRO * T; i++) {
				const int64_t at = ((rt_step * M + 1) * MICRO + i / T) % ((TOKENS - 1) / T) * T + i % T;

				CHECK(x[i] == (wide ? 65530 + at : at * 7) && y[i] == (wide ? 65531 + at : at * 7 + 7),
					"token %d: %d %d", (int)at, (int)x[i], (int)y[i]);
			}
		}
	}
}

/* GB/s of what pd_input writes, the best of ten readings of the whole file. */
static double rate(const pd_input_desc *d, size_t file, bool shuffle, size_t written)
{
	char *to = aligned_alloc(64, written);
	FILE *f = create("big.bin");
	static char block[1 << 20];

	for (size_t at = 0; at < file; at += sizeof block) {
		const size_t n = file - at < sizeof block ? file - at : sizeof block;
		if (fwrite(block, 1, n, f) != n)
			exit(2);
	}
	if (fclose(f) || !to)
		exit(2);
	program.last = PD_LAST_DROP;
	use(d, 1, shuffle);
	const int64_t steps = rt_input_samples() / BATCH;
	double best = 0;

	for (int round = 0; round < 10; round++) {
		const double begin = rt_now();

		for (rt_step = 0; rt_step < steps; rt_step++)
			for (int mb = 0; mb < M; mb++)
				pd_input(0, mb, to);
		const double gb = (double)written * (double)steps * M / (rt_now() - begin) / 1e9;
		best = gb > best ? gb : best;
	}
	free(to);
	return best;
}

static int throughput(size_t mib)
{
	static const struct {
		const char *what;
		pd_input_desc d;
		size_t size;
		bool shuffle;
	} kind[] = {
		{ "f32 images, 600 KB each, in order",
			{ .name = "x",
				.dtype = PD_F32,
				.rank = 4,
				.dim = { MICRO, 3, 224, 224 },
				.kind = "raw",
				.path = "big.bin" },
			4, false },
		{ "f32 images, shuffled",
			{ .name = "x",
				.dtype = PD_F32,
				.rank = 4,
				.dim = { MICRO, 3, 224, 224 },
				.kind = "raw",
				.path = "big.bin" },
			4, true },
		{ "f32 rows of 3 KB, shuffled",
			{ .name = "x",
				.dtype = PD_F32,
				.rank = 2,
				.dim = { MICRO, 784 },
				.kind = "raw",
				.path = "big.bin" },
			4, true },
		{ "i64 windows of 1024 from 16-bit tokens",
			{ .name = "x",
				.dtype = PD_I64,
				.rank = 2,
				.dim = { MICRO, 1024 },
				.kind = "tokens",
				.path = "big.bin",
				.range = 50257 },
			8, true },
	};
	double least = 1e9;

	printf("%s, %zu MiB from the page cache, one thread\n", pd_device_name(), mib);
	for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
		size_t n = kind[i].size;

		for (int k = 0; k < kind[i].d.rank; k++)
			n *= (size_t)kind[i].d.dim[k];
		const double gb = rate(&kind[i].d, (mib << 20) / n * n, kind[i].shuffle, n);
		least = gb < least ? gb : least;
		printf("  %5.1f GB/s  %s\n", gb, kind[i].what);
	}
	remove(path);
	printf("least: %.1f GB/s, wanted: 2\n", least);
	return least < 2;
}

int main(int argc, char **argv)
{
	dir = argc > 1 ? argv[1] : ".";
	rt_program = &program;
	if (argc > 2)
		return throughput(argc > 3 ? (size_t)atoi(argv[3]) : 512);
	static const int64_t size[] = { BATCH, BATCH + 1, 2 * BATCH - 1, 3 * BATCH, 3 * BATCH + 7, MOST };

	for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
		write_ids(size[i]);
		for (int shuffle = 0; shuffle < 2; shuffle++)
			for (int last = 0; last < 3; last++)
				one_set(size[i], shuffle, (pd_last)last);
	}
	epochs(MOST);
	tokens();
	return failures ? 1 : 0;
}
