/* mlp.c: a two-layer network written by hand in the manner of an emitted program, as one device,
 * two stages, two replicas or two of both: `mlp STAGES REPLICAS [options of pd_main]`. The rank
 * says which device this is. With MLP_REPRODUCIBLE=1 gradients are tree sums, and every shape
 * must give the same bits. MLP_BATCH=1: a file's batch. */
#include "test.h"

enum { B = 4, IN = 20, HID = 33, OUT = 5, M = 8 }; /* microbatch, layers, microbatches per step */

typedef struct params1 {
	float w[IN * HID], b[HID];
} params1;
typedef struct params2 {
	float w[HID * OUT], b[OUT];
} params2;
typedef struct all {
	params1 p1, g1;
	params2 p2, g2;
	float x[M][B * IN], h[M][B * HID], dh[M][B * HID], logits[B * OUT], d[B * OUT];
	int64_t labels[B];
	float trees[1 << 16];
} all;

static pd_program program;
static all *A;
static pd_tree *tree1, *tree2;
static pd_group peers;
static int stages, replicas, mine[M], nmine, ranks[M];
static bool first, last;

static void init(char *arena)
{
	A = (all *)(void *)arena;
	char *at = (char *)A->trees;

	at += (64 - (uintptr_t)at % 64) % 64;
	tree1 = pd_tree_new(M, sizeof A->g1 / 4, mine, nmine, at);
	tree2 = pd_tree_new(M, sizeof A->g2 / 4, mine, nmine, at + pd_tree_bytes(M, sizeof A->g1 / 4, mine, nmine));
}

/* Linked with --wrap: calls of the runtime and of this file, not those of MPI and oneDNN. */
static long allocations;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t m);
void *__wrap_realloc(void *p, size_t n);

void *__wrap_malloc(size_t n)
{
	allocations++;
	return __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t m)
{
	allocations++;
	return __real_calloc(n, m);
}

void *__wrap_realloc(void *p, size_t n)
{
	allocations++;
	return __real_realloc(p, n);
}

static int other_stage(void) { return first ? program.rank + replicas : program.rank - replicas; }

static void forward(int i)
{
	const int mb = mine[i];

	if (first) {
		pd_input(0, mb, A->x[i]);
		for (int r = 0; r < B; r++)
			memcpy(A->h[i] + r * HID, A->p1.b, sizeof A->p1.b);
		pd_gemm(0, 0, B, HID, IN, A->x[i], IN, A->p1.w, HID, 1, A->h[i], HID);
		for (int e = 0; e < B * HID; e++)
			A->h[i][e] = A->h[i][e] > 0 ? A->h[i][e] : 0;
		if (!last)
			pd_isend(0, i, other_stage(), mb, A->h[i], sizeof A->h[i]);
	} else {
		pd_irecv(0, i, other_stage(), mb, A->h[i], sizeof A->h[i]);
		pd_wait_recv(0, i);
	}
}

/* Loss, and its gradient with respect to the logits, summed over the microbatch. */
static void loss(int i)
{
	double sum = 0;

	for (int r = 0; r < B; r++)
		memcpy(A->logits + r * OUT, A->p2.b, sizeof A->p2.b);
	pd_gemm(0, 0, B, OUT, HID, A->h[i], HID, A->p2.w, OUT, 1, A->logits, OUT);
	pd_input(first ? 1 : 0, mine[i], A->labels);
	for (int r = 0; r < B; r++) {
		const float *z = A->logits + r * OUT;
		float total = 0;

		for (int c = 0; c < OUT; c++)
			total += expf(z[c]);
		for (int c = 0; c < OUT; c++)
			A->d[r * OUT + c] = expf(z[c]) / total - (c == A->labels[r] ? 1.0f : 0.0f);
		sum += (double)(logf(total) - z[A->labels[r]]);
	}
	pd_report(mine[i], sum, B);
}

static void column_sums(const float *d, int n, float *to)
{
	for (int r = 0; r < B; r++)
		for (int c = 0; c < n; c++)
			to[c] += d[r * n + c];
}

static void backward(int i)
{
	const bool trees = program.reproducible;

	if (last) {
		params2 *g = trees ? (params2 *)(void *)pd_tree_leaf(tree2, mine[i]) : &A->g2;

		loss(i);
		pd_gemm(1, 0, HID, OUT, B, A->h[i], HID, A->d, OUT, 1, g->w, OUT);
		column_sums(A->d, OUT, g->b);
		pd_gemm(0, 1, B, HID, OUT, A->d, OUT, A->p2.w, OUT, 0, A->dh[i], HID);
		if (trees)
			pd_tree_done(tree2, mine[i]);
		if (!first)
			pd_isend(1, i, other_stage(), mine[i], A->dh[i], sizeof A->dh[i]);
	}
	if (first) {
		if (!last) {
			pd_irecv(1, i, other_stage(), mine[i], A->dh[i], sizeof A->dh[i]);
			pd_wait_recv(1, i);
		}
		params1 *g = trees ? (params1 *)(void *)pd_tree_leaf(tree1, mine[i]) : &A->g1;

		for (int e = 0; e < B * HID; e++)
			A->dh[i][e] *= A->h[i][e] > 0 ? 1.0f : 0.0f;
		pd_gemm(1, 0, IN, HID, B, A->x[i], IN, A->dh[i], HID, 1, g->w, HID);
		column_sums(A->dh[i], HID, g->b);
		if (trees)
			pd_tree_done(tree1, mine[i]);
	}
}

static void sgd(float *w, float *g, size_t n, int index, size_t nweights, pd_tree *t)
{
	const float step = 0.2f / (float)pd_total_count();

	if (program.reproducible)
		g = pd_tree_root(t, &peers);
	else
		pd_allreduce(&peers, g, n);
	pd_gradient(index, g);
	pd_gradient(index + 1, g + nweights);
	for (size_t i = 0; i < n; i++)
		w[i] -= step * g[i];
}

static void step(bool update)
{
	static long before = -1;

	CHECK(before < 0 || getenv("MLP_DUMPS") || allocations == before, "%ld allocations before step %d",
		allocations - before, (int)rt_step);
	before = allocations;
	memset(&A->g1, 0, sizeof A->g1);
	memset(&A->g2, 0, sizeof A->g2);
	for (int i = 0; i < nmine; i++)
		forward(i);
	for (int i = 0; i < nmine; i++)
		backward(i);
	for (int i = 0; stages > 1 && i < nmine; i++)
		pd_wait_send(first ? 0 : 1, i);
	pd_totals();
	if (getenv("MLP_NAN") && rt_step == 3 && last)
		A->p2.b[0] = NAN;
	if (!update)
		return;
	if (first)
		sgd(A->p1.w, A->g1.w, sizeof A->p1 / 4, 0, IN * HID, tree1);
	if (last)
		sgd(A->p2.w, A->g2.w, sizeof A->p2 / 4, first ? 2 : 0, HID * OUT, tree2);
	CHECK(allocations == before, "%ld allocations in step %d", allocations - before, (int)rt_step);
}

/* The emitted program would have weights in a file; this one makes the same ones everywhere. */
static void init_with_weights(char *arena)
{
	init(arena);
	if (getenv("MLP_KEEP"))
		return;
	for (int i = 0; i < IN * HID; i++)
		A->p1.w[i] = 0.3f * number(1, i);
	for (int i = 0; i < HID * OUT; i++)
		A->p2.w[i] = 0.3f * number(2, i);
}

int main(int argc, char **argv)
{
	static const pd_input_desc inputs[2] = {
		{ .name = "x", .dtype = PD_F32, .rank = 2, .dim = { B, IN }, .kind = "synthetic" },
		{ .name = "labels",
			.dtype = PD_I64,
			.rank = 1,
			.dim = { B },
			.range = OUT,
			.kind = "synthetic",
			.is_label = true,
			.ignore_index = INT64_MIN },
	};
	pd_param params[4];

	stages = argc > 1 ? atoi(argv[1]) : 1;
	replicas = argc > 2 ? atoi(argv[2]) : 1;
	place_me(&program);
	const int stage = program.rank / replicas, replica = program.rank % replicas;

	first = stage == 0;
	last = stage == stages - 1;
	for (int g = 0; g < M; g++)
		if (g * replicas / M == replica)
			mine[nmine++] = g;
	for (int r = 0; r < replicas; r++)
		ranks[r] = stage * replicas + r;
	peers = (pd_group){ replicas, ranks };
	params[0] = (pd_param){ "fc1.w", PD_WEIGHT, PD_F32, 2, { IN, HID }, offsetof(all, p1.w), 0, true, 0, 0, 0, 0, 0,
		0, 0 };
	params[1] =
		(pd_param){ "fc1.b", PD_WEIGHT, PD_F32, 1, { HID }, offsetof(all, p1.b), 0, true, 0, 0, 0, 0, 0, 0, 0 };
	params[2] = (pd_param){ "fc2.w", PD_WEIGHT, PD_F32, 2, { HID, OUT }, offsetof(all, p2.w), 0, true,
		(stages - 1) * replicas, 0, 0, 0, 0, 0, 0 };
	params[3] = (pd_param){ "fc2.b", PD_WEIGHT, PD_F32, 1, { OUT }, offsetof(all, p2.b), 0, true,
		(stages - 1) * replicas, 0, 0, 0, 0, 0, 0 };
	program = (pd_program){ .abi = PD_ABI,
		.model = "mlp.onnx",
		.plan = stages == 2 ? "1-1" : "1",
		.schedule = "GPipe",
		.hash = "mlp",
		.rank = program.rank,
		.world = stages * replicas,
		.stage = stage,
		.stages = stages,
		.replica = replica,
		.replicas = replicas,
		.threads = 1,
		.reproducible = getenv("MLP_REPRODUCIBLE") != NULL,
		.seed = 1,
		.micro = B,
		.microbatches = M,
		.channels = 2,
		.slots = M,
		.arena = sizeof(all),
		.nparams = stages == 2 ? 2 : 4,
		.params = params + (first ? 0 : 2),
		.ninputs = stages == 2 ? 1 : 2,
		.inputs = inputs + (first ? 0 : 1),
		.steps = 10,
		.timeout = getenv("MLP_TIMEOUT") ? atof(getenv("MLP_TIMEOUT")) : 20,
		.init = init_with_weights,
		.step = step,
		.notes = "" };
	argv[2 < argc ? 2 : 0] = argv[0];
	const int status = argc > 2 ? pd_main(&program, argc - 2, argv + 2) : pd_main(&program, 1, argv);

	return status ? status : failures > 0;
}
