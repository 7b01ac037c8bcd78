/* input.c: which samples a microbatch gets and where they lie in it. Usage: input DIR (to write
 * in). */
#include "test.h"
#include "safetensors.h"

enum { MICRO = 3, M = 2 };

static pd_program program = { .abi = PD_ABI,
	.model = "test",
	.plan = "test",
	.schedule = "none",
	.hash = "input",
	.world = 1,
	.stages = 1,
	.threads = 1,
	.micro = MICRO,
	.microbatches = M,
	.seed = 5,
	.slots = 1 };
static const char *dir;

static void put(const char *name, const void *data, size_t n)
{
	char path[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "wb");
	if (!f || fwrite(data, 1, n, f) != n || fclose(f))
		exit(2);
}

static void use(const pd_input_desc *d, int n, const char *from, int64_t samples, bool shuffle)
{
	program.inputs = d;
	program.ninputs = n;
	rt_input_open(
		&program, &(rt_input_options){ .dir = from, .root = ".", .samples = samples, .shuffle = shuffle });
}

/* Sample s of the file holds s * 100 + its element; seven samples, so that a step of six wraps
 * around. */
static void from_files(void)
{
	static float x[7][8];
	static int64_t t[7][4];
	float got[MICRO * 8];
	int64_t tokens[MICRO * 4];

	for (int s = 0; s < 7; s++)
		for (int e = 0; e < 8; e++) {
			x[s][e] = (float)(s * 100 + e);
			t[s][e / 2] = s * 100 + e / 2;
		}
	put("x.bin", x, sizeof x);
	put("t.bin", t, sizeof t);

	/* the batch in front, in the middle, several rows per sample, and no batch at all */
	static const pd_input_desc d[] = {
		{ .name = "x", .dtype = PD_F32, .rank = 2, .dim = { MICRO, 8 }, .kind = "raw", .path = "x.bin" },
		{ .name = "x",
			.dtype = PD_F32,
			.rank = 3,
			.dim = { 4, MICRO, 2 },
			.batch_axis = 1,
			.kind = "raw",
			.path = "some/where/x.bin" },
		{ .name = "x", .dtype = PD_F32, .rank = 2, .dim = { MICRO * 2, 4 }, .kind = "raw", .path = "x.bin" },
		{ .name = "t", .dtype = PD_I64, .rank = 1, .dim = { MICRO * 4 }, .kind = "raw", .path = "t.bin" },
		{ .name = "x",
			.dtype = PD_F32,
			.rank = 1,
			.dim = { 56 },
			.batch_axis = -1,
			.kind = "raw",
			.path = "x.bin" },
	};

	use(d, 4, dir, 0, false);
	for (rt_step = 0; rt_step < 5; rt_step++)
		for (int mb = 0; mb < M; mb++)
			for (int b = 0; b < MICRO; b++) {
				const int s = (((int)rt_step * M + mb) * MICRO + b) % 7;

				for (int i = 0; i < 4; i++) {
					if (i == 3)
						pd_input(i, mb, tokens);
					else
						pd_input(i, mb, got);
					for (int e = 0; e < (i == 3 ? 4 : 8); e++) {
						const int at = i == 1 ? (e / 2 * MICRO + b) * 2 + e % 2
						                      : b * (i == 3 ? 4 : 8) + e;
						const int v = i == 3 ? (int)tokens[at] : (int)got[at];

						CHECK(v == s * 100 + e,
							"input %d, step %d, mb %d, sample %d, element %d: %d", i,
							(int)rt_step, mb, s, e, v);
					}
				}
			}
	CHECK(!rt_input_synthetic(), "files are files");
	static float all[56];

	use(&d[4], 1, dir, 0, false);
	rt_step = 3;
	pd_input(0, 1, all);
	CHECK(all[55] == 607, "an input without a batch is the same every time");
}

/* In every epoch every sample comes once, in another order. */
static void shuffled(void)
{
	float same = 0, of = 0;

	for (int n = 1; n <= 40; n++) {
		static float x[40];
		pd_input_desc d = {
			.name = "x", .dtype = PD_F32, .rank = 1, .dim = { MICRO }, .kind = "raw", .path = "n.bin"
		};
		int seen[40] = { 0 }, order[2][40];

		for (int i = 0; i < 40; i++)
			x[i] = (float)i;
		put("n.bin", x, sizeof x);
		use(&d, 1, dir, n, true);
		for (int k = 0; k < 2 * n; k++) { /* counter k: step k / 6, microbatch k / 3 % 2 */
			float got[MICRO];

			rt_step = k / (M * MICRO);
			pd_input(0, k / MICRO % M, got);
			const int s = (int)got[k % MICRO];

			CHECK(s >= 0 && s < n, "sample %d of %d", s, n);
			seen[s]++;
			order[k / n][k % n] = s;
		}
		for (int i = 0; i < n; i++) {
			CHECK(seen[i] == 2, "of %d samples, number %d comes %d times in two epochs", n, i, seen[i]);
			same += order[0][i] == order[1][i];
			of++;
		}
	}
	CHECK(same < of / 4, "epochs have one order");
}

/* Made-up data: the same in any order of asking, kept or made on the fly, whatever the batch
 * axis. */
static void synthetic(void)
{
	enum { WIDE = 6000000 }; /* 4 * 6 samples of them are over what is kept */
	static float big[MICRO * WIDE];
	float a[MICRO * 4], b[MICRO * 4];
	int64_t y[MICRO], seen = 0;
	pd_input_desc d[] = {
		{ .name = "x", .dtype = PD_F32, .rank = 2, .dim = { MICRO, 4 }, .kind = "synthetic" },
		{ .name = "x", .dtype = PD_F32, .rank = 2, .dim = { 4, MICRO }, .batch_axis = 1, .kind = "synthetic" },
		{ .name = "x", .dtype = PD_F32, .rank = 2, .dim = { MICRO, WIDE }, .kind = "synthetic" },
		{ .name = "y",
			.dtype = PD_I64,
			.rank = 1,
			.dim = { MICRO },
			.range = 7,
			.is_label = true,
			.kind = "synthetic" },
		{ .name = "x",
			.dtype = PD_F32,
			.rank = 2,
			.dim = { WIDE, MICRO },
			.batch_axis = 1,
			.kind = "synthetic" },
	};

	use(d, 5, NULL, 0, false);
	CHECK(rt_input_synthetic(), "made up");
	for (rt_step = 4; rt_step >= 0; rt_step--) {
		pd_input(0, 1, a);
		pd_input(1, 1, b);
		pd_input(2, 1, big);
		pd_input(3, 1, y);
		for (int i = 0; i < MICRO; i++) {
			CHECK(y[i] >= 0 && y[i] < 7, "label %d", (int)y[i]);
			seen |= 1 << y[i];
			for (int e = 0; e < 4; e++)
				CHECK(a[i * 4 + e] == b[e * MICRO + i] &&
						a[i * 4 + e] == big[(size_t)i * WIDE + (size_t)e],
					"element %d of %d", e, i);
		}
		pd_input(4, 1, big);
		CHECK(big[1] == a[4] && big[MICRO + 2] == a[9], "made on the fly, batch behind");
	}
	CHECK(seen & (seen - 1), "labels differ");
	rt_step = 0;
	pd_input(0, 1, a);
	rt_step = 4;
	pd_input(0, 1, b);
	CHECK(!memcmp(a, b, sizeof a), "the data of step 0 come again in step 4");
}

int main(int argc, char **argv)
{
	dir = argc > 1 ? argv[1] : ".";
	rt_program = &program;
	from_files();
	shuffled();
	synthetic();
	return failures ? 1 : 0;
}
