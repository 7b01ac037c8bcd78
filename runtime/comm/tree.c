/* tree.c: reproducible sums. The gradients of the grains (microbatches) 0 .. n-1 of a step are
 * added by one fixed binary tree,
 *
 *     tree(lo, n) = tree(lo, p) + tree(lo + p, n - p),    p the largest power of two below n,
 *
 * whoever computed them. A device keeps the sums of the largest subtrees whose grains it has all
 * done. At the end the members of the group each take a slice of the vector, receive that slice
 * of every subtree that others hold, add them in tree order and hand the sum to all. No sum is
 * ever formed that is not a node of the tree. */
#include "rt.h"

typedef struct node {
	int lo, n, slot;
} node; /* a finished subtree; its sum is in slot */

struct pd_tree {
	int grains, nmine, slots, nlive;
	int open;             /* slot of the leaf that is being filled; -1: none */
	int64_t step;         /* of the sums; sums of an earlier step that nobody joined are forgotten */
	size_t count, stride; /* floats; stride: of a slot */
	float *sums;
	node *live; /* by ascending lo */
	char *used; /* slots */
};

enum { BLOCK = 16 * 1024 }; /* floats of a slice that are exchanged at once */

static float *incoming; /* BLOCK floats of every grain's subtree that others may hold */
static int room;        /* in grains */

static int left_size(int n)
{
	int p = 1;

	while (2 * p < n)
		p *= 2;
	return p;
}

/* The parent of the node (lo, n): its first grain, its size. */
static node parent_of(int grains, int lo, int n)
{
	node at = { 0, grains, -1 };

	while (at.n > 1) {
		const int p = left_size(at.n);
		node down = lo < at.lo + p ? (node){ at.lo, p, -1 } : (node){ at.lo + p, at.n - p, -1 };

		if (down.lo == lo && down.n == n)
			return at;
		at = down;
	}
	return (node){ 0, 0, -1 };
}

/* Inserts a node into the list and merges siblings as long as there are. join() adds sums; NULL:
 * only counts. */
static int insert(node *live, int nlive, int grains, node x, void (*join)(pd_tree *, int, int), pd_tree *t)
{
	int i = nlive;

	for (; i > 0 && live[i - 1].lo > x.lo; i--)
		live[i] = live[i - 1];
	live[i] = x;
	nlive++;
	for (;;) {
		const node up = parent_of(grains, live[i].lo, live[i].n);
		const int a = live[i].lo == up.lo ? i : i - 1;

		if (up.n == 0 || a < 0 || a + 1 >= nlive || live[a].lo != up.lo || live[a].n + live[a + 1].n != up.n ||
			live[a].n != left_size(up.n) || live[a + 1].lo != up.lo + live[a].n)
			return nlive;
		if (join)
			join(t, live[a].slot, live[a + 1].slot);
		live[a].n = up.n;
		for (int k = a + 1; k + 1 < nlive; k++)
			live[k] = live[k + 1];
		nlive--;
		i = a;
	}
}

static size_t round64(size_t n) { return (n + 63) / 64 * 64; }

/* How many sums are there at most at one time when grains come in the order of mine. */
static int slots_needed(int grains, const int *mine, int nmine, node *live)
{
	int most = 1, nlive = 0;

	for (int i = 0; i < nmine; i++) {
		if (nlive + 1 > most)
			most = nlive + 1;
		nlive = insert(live, nlive, grains, (node){ mine[i], 1, -1 }, NULL, NULL);
	}
	return most;
}

static size_t head_bytes(int nmine)
{
	return round64(sizeof(pd_tree)) + round64((size_t)(nmine + 1) * sizeof(node)) + round64((size_t)nmine + 1);
}

size_t pd_tree_bytes(int grains, size_t count, const int *mine, int nmine)
{
	node few[256], *live = nmine < 256 ? few : rt_alloc((size_t)(nmine + 1) * sizeof *live);
	size_t slots = (size_t)slots_needed(grains, mine, nmine, live);

	return head_bytes(nmine) + slots * round64(count * sizeof(float));
}

pd_tree *pd_tree_new(int grains, size_t count, const int *mine, int nmine, void *mem)
{
	pd_tree *t = mem;
	char *at = mem;

	memset(mem, 0, head_bytes(nmine));
	t->grains = grains;
	t->nmine = nmine;
	t->count = count;
	t->stride = round64(count * sizeof(float)) / sizeof(float);
	at += round64(sizeof *t);
	t->live = (node *)(void *)at;
	at += round64((size_t)(nmine + 1) * sizeof(node));
	t->used = at;
	at += round64((size_t)nmine + 1);
	t->sums = (float *)(void *)at;
	t->slots = slots_needed(grains, mine, nmine, t->live);
	t->open = -1;
	if (rt_program->world > 1 && grains > room) {
		incoming = rt_alloc((size_t)grains * BLOCK * sizeof(float));
		room = grains;
	}
	return t;
}

static float *slot_of(const pd_tree *t, int slot) { return t->sums + (size_t)slot * t->stride; }

float *pd_tree_leaf(pd_tree *t, int mb)
{
	int s = 0;

	if (t->step != rt_step && rt_update < 0) {
		memset(t->used, 0, (size_t)t->slots);
		t->nlive = 0;
		t->step = rt_step;
	}
	while (s < t->slots && t->used[s])
		s++;
	if (s == t->slots || t->open >= 0)
		rt_fail(RT_ERROR, "R112", "gradient of microbatch %d: %d sums are open, the plan has room for %d", mb,
			t->nlive + 1, t->slots);
	t->used[s] = 1;
	t->open = s;
	memset(slot_of(t, s), 0, t->count * sizeof(float));
	return slot_of(t, s);
}

static void join(pd_tree *t, int into, int from)
{
	float *restrict a = slot_of(t, into);
	const float *restrict b = slot_of(t, from);

	for (size_t i = 0; i < t->count; i++)
		a[i] += b[i];
	t->used[from] = 0;
}

void pd_tree_done(pd_tree *t, int mb)
{
	t->nlive = insert(t->live, t->nlive, t->grains, (node){ mb, 1, t->open }, join, t);
	t->open = -1;
}

/* ---- joining the members of a group ---- */

typedef struct exchange {
	pd_tree *t;
	const pd_group *g;
	int self;     /* place in the group */
	size_t count; /* floats that are joined */
	size_t at, n; /* the floats of this member's slice in the block at hand */
} exchange;

/* Grains that are dealt to the members in blocks, over and over. */
static int dealt(const exchange *x) { return rt_program->grains > 0 ? rt_program->grains : x->t->grains; }

static int owner(const exchange *x, int grain)
{
	const int d = dealt(x);

	return (int)((int64_t)(grain % d) * x->g->n / d);
}

/* Does one member hold the whole subtree? Members come in order within one deal. */
static bool alone(const exchange *x, node at)
{
	const int last = at.lo + at.n - 1;

	return x->g->n == 1 || (at.lo / dealt(x) == last / dealt(x) && owner(x, at.lo) == owner(x, last));
}

/* The k-th largest subtree that member m holds alone, below `at`; n 0 when there is none. */
static node held(const exchange *x, node at, int m, int *k)
{
	if (alone(x, at))
		return owner(x, at.lo) == m && (*k)-- == 0 ? at : (node){ 0, 0, -1 };
	const int p = left_size(at.n);
	const node left = held(x, (node){ at.lo, p, -1 }, m, k);

	return left.n ? left : held(x, (node){ at.lo + p, at.n - p, -1 }, m, k);
}

static node nth(const exchange *x, int m, int k) { return held(x, (node){ 0, x->t->grains, -1 }, m, &k); }

/* The sum of the subtree over this member's slice; subtrees of others lie in incoming at their
 * first grain. */
static float *evaluate(const exchange *x, node at)
{
	if (alone(x, at)) {
		if (owner(x, at.lo) != x->self)
			return incoming + (size_t)at.lo * BLOCK;
		for (int i = 0; i < x->t->nlive; i++)
			if (x->t->live[i].lo == at.lo)
				return slot_of(x->t, x->t->live[i].slot) + x->at;
	}
	const int p = left_size(at.n);
	float *a = evaluate(x, (node){ at.lo, p, -1 });
	const float *b = evaluate(x, (node){ at.lo + p, at.n - p, -1 });

	for (size_t i = 0; i < x->n; i++)
		a[i] += b[i];
	return a;
}

/* Slice of member m in the block that begins at base. */
static size_t slice(size_t count, size_t base, int m, size_t *n)
{
	const size_t at = base + (size_t)m * BLOCK;

	*n = at >= count ? 0 : count - at < BLOCK ? count - at : BLOCK;
	return *n ? at : 0;
}

/* Everyone sends everyone the slices of the subtrees it holds: one of each member's subtrees per
 * round. */
static void scatter(const exchange *x, size_t base)
{
	bool more = true;

	for (int k = 0; more; k++) {
		more = false;
		rt_lock();
		for (int m = 0; m < x->g->n; m++) {
			const node theirs = nth(x, m, k);
			size_t n, at = slice(x->count, base, m, &n);

			more |= theirs.n > 0;
			if (m == x->self)
				continue;
			if (theirs.n > 0 && x->n > 0)
				rt_post_recv(rt_peer(m), x->g->rank[m], RT_TAG_PART,
					incoming + (size_t)theirs.lo * BLOCK, x->n * sizeof(float));
			if (k < x->t->nlive && n > 0)
				rt_post_send(rt_peer(m) + 1, x->g->rank[m], RT_TAG_PART,
					slot_of(x->t, x->t->live[k].slot) + at, n * sizeof(float));
		}
		rt_unlock();
		rt_wait(rt_peer(0), 2 * x->g->n);
	}
}

static void spread(const exchange *x, size_t base, float *root)
{
	rt_lock();
	for (int m = 0; m < x->g->n; m++) {
		size_t n, at = slice(x->count, base, m, &n);

		if (m == x->self)
			continue;
		if (n > 0)
			rt_post_recv(rt_peer(m), x->g->rank[m], RT_TAG_SLICE, root + at, n * sizeof(float));
		if (x->n > 0)
			rt_post_send(rt_peer(m) + 1, x->g->rank[m], RT_TAG_SLICE, root + x->at, x->n * sizeof(float));
	}
	rt_unlock();
	rt_wait(rt_peer(0), 2 * x->g->n);
}

int rt_tree_sums(const pd_tree *t) { return t->nlive; }

int rt_tree_leaves(const pd_tree *t) { return t->grains; }

float *rt_tree_sum(const pd_tree *t, int k, int *lo, int *n)
{
	*lo = t->live[k].lo;
	*n = t->live[k].n;
	return slot_of(t, t->live[k].slot);
}

float *pd_tree_root(pd_tree *t, const pd_group *g) { return pd_tree_join(t, g, t->count); }

float *pd_tree_join(pd_tree *t, const pd_group *g, size_t count)
{
	exchange x = { .t = t, .g = g, .count = count };
	int have = 0;

	while (x.self < g->n && g->rank[x.self] != rt_program->rank)
		x.self++;
	while (have < t->nlive && nth(&x, x.self, have).lo == t->live[have].lo &&
		nth(&x, x.self, have).n == t->live[have].n)
		have++;
	if (x.self == g->n || t->open >= 0 || have < t->nlive || nth(&x, x.self, have).n)
		rt_fail(RT_ERROR, "R113",
			"member %d of a group of %d: its %d grains are not those of %d that the plan gives it", x.self,
			g->n, t->nmine, t->grains);
	float *root = slot_of(t, t->nlive ? t->live[0].slot : 0);

	for (size_t base = 0; g->n > 1 && !rt_alone && base < count; base += (size_t)g->n * BLOCK) {
		x.at = slice(x.count, base, x.self, &x.n);
		scatter(&x, base);
		if (x.n > 0) {
			const float *sum = evaluate(&x, (node){ 0, t->grains, -1 });

			if (sum != root + x.at)
				memcpy(root + x.at, sum, x.n * sizeof(float));
		}
		spread(&x, base, root);
	}
	memset(t->used, 0, (size_t)t->slots);
	t->nlive = 0;
	return root;
}
