/* rows.c: row-sparse gradients over any number of processes: the bits of the dense tree's sum, each id once, and exactly the
 * bytes of the rows that are there. Some members have no rows at all, some ids come often. */
#include "test.h"

enum { GRAINS = 12, N = 40, WIDTH = 5, TABLE = 30 };

static pd_program program = { .abi = PD_ABI,
	.model = "test",
	.plan = "test",
	.schedule = "none",
	.hash = "rows",
	.stages = 1,
	.threads = 1,
	.micro = 1,
	.microbatches = GRAINS,
	.channels = 1,
	.slots = 1 };
static int everyone[64];
static pd_group all;

/* Lookup k of grain g in a round; every third grain of some rounds has none. */
static int32_t id_of(int round, int g, int k)
{
	const float x = number(1000 * round + g, k);

	return (round & 1 && g % 3 == 0) || x > 0.7f ? -1 : (int32_t)((x + 1) / 2 * TABLE);
}

static int distinct(int round, int g)
{
	bool seen[TABLE] = { false };
	int n = 0;

	for (int k = 0; k < N; k++)
		if (id_of(round, g, k) >= 0 && !seen[id_of(round, g, k)]) {
			seen[id_of(round, g, k)] = true;
			n++;
		}
	return n;
}

static void one_round(int round, pd_gatherv *r, pd_tree *t, const int *mine, int nmine)
{
	static int32_t ids[GRAINS * N];
	static float rows[GRAINS * N][WIDTH];
	bool seen[TABLE] = { false };
	const float nothing[WIDTH] = { 0 };

	for (int i = 0; i < GRAINS * N; i++)
		ids[i] = 77;
	for (int i = 0; i < nmine; i++) {
		float *leaf = pd_tree_leaf(t, mine[i]);

		memset(leaf, 0, TABLE * WIDTH * sizeof *leaf);
		for (int k = 0; k < N; k++) {
			ids[mine[i] * N + k] = id_of(round, mine[i], k);
			for (int c = 0; c < WIDTH; c++) {
				rows[mine[i] * N + k][c] = number(round * 31 + mine[i] + 7, k * WIDTH + c);
				if (id_of(round, mine[i], k) >= 0)
					leaf[id_of(round, mine[i], k) * WIDTH + c] += rows[mine[i] * N + k][c];
			}
		}
		pd_tree_done(t, mine[i]);
	}
	const float *dense = pd_tree_root(t, &all);

	pd_gatherv_join(r, &all, ids, rows[0]);
	for (int i = 0; i < GRAINS * N; i++) {
		if (ids[i] < 0)
			continue;
		CHECK(ids[i] < TABLE && !seen[ids[i]], "round %d: id %d at %d: not in the table, or twice", round,
			ids[i], i);
		if (ids[i] >= TABLE)
			continue;
		seen[ids[i]] = true;
		CHECK(!memcmp(dense + ids[i] * WIDTH, rows[i], sizeof rows[i]),
			"round %d: row %d has not the bits of the dense sum", round, ids[i]);
	}
	for (int i = 0; i < TABLE; i++)
		CHECK(seen[i] || !memcmp(dense + i * WIDTH, nothing, sizeof nothing), "round %d: row %d is lost", round,
			i);
}

/* What rank 0 told the last rank, as it counted it. */
static void count_bytes(int rounds, const int *mine, int nmine)
{
	char *text = NULL, want[160];
	size_t n;
	FILE *f = open_memstream(&text, &n);
	long long rows = 0;

	for (int round = 0; round < rounds; round++)
		for (int i = 0; i < nmine; i++)
			rows += distinct(round, mine[i]);
	rt_traffic_write(f);
	fclose(f);
	snprintf(want, sizeof want, "\"values\": %lld, \"ids\": %lld, \"heads\": %lld", 4 * WIDTH * rows, 4 * rows,
		4LL * GRAINS * rounds);
	CHECK(program.rank || program.world == 1 || strstr(text, want), "bytes: %s; not %s", text, want);
	free(text);
}

int main(void)
{
	enum { ROUNDS = 6 };
	int mine[GRAINS], nmine = 0;

	place_me(&program);
	rt_program = &program;
	rt_join(&program, 30);
	for (int i = 0; i < program.world; i++)
		everyone[i] = i;
	all = (pd_group){ program.world, everyone };
	for (int g = 0; g < GRAINS; g++)
		if (g * program.world / GRAINS == program.rank)
			mine[nmine++] = g;
	pd_gatherv *r = pd_gatherv_new(GRAINS, N, WIDTH, mine, nmine, program.world);
	const size_t bytes = pd_tree_bytes(GRAINS, TABLE * WIDTH, mine, nmine);
	pd_tree *t = pd_tree_new(GRAINS, TABLE * WIDTH, mine, nmine, aligned_alloc(64, (bytes + 63) / 64 * 64));

	for (int i = 0; i < ROUNDS; i++)
		one_round(i, r, t, mine, nmine);
	if (program.world > 1)
		count_bytes(ROUNDS, mine, nmine);
	rt_leave();
	return failures > 0;
}
