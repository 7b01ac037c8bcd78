/* serve.c: a server of parameters. In a step it answers pulls with what the update before left, and takes sums of gradients,
 * until every device that pushes to it has said that nothing more comes. Each sum is of a subtree of the fixed tree over the
 * grains (tree.c; without --reproducible each device is one leaf) and counts exactly once: one that is there already, of
 * another step, or that makes no whole tree with the others is a fault of the program (R121 to R123). Sums are added when
 * all are there, in the order of the tree, so the order of arrival has no part in the result. Rows that a sum lacks are
 * zero. */
#include "rt.h"

typedef struct inbox {          /* of a part of a gradient, for one step */
	rt_sums  s;
	int32_t *written;       /* rows of the result that are not zero */
	int64_t  nwritten;
	bool     begun;
} inbox;

static const pd_share *shares;
static inbox   *boxes;          /* `widest` parts each */
static int      nshares, widest;
static char    *memory;         /* the arena */
static rt_head *heads;          /* by client */
static int     *clients, *open, nclients;
static int32_t *asked;          /* row numbers of a pull */
static float   *answer;
static int32_t  now = 1;

static void know_clients(const pd_share *s)
{
	for (int r = s->first; r < s->first + s->members; r++) {
		int i = 0;

		while (i < nclients && clients[i] != r)
			i++;
		clients[i] = r;
		nclients += i == nclients;
	}
}

static void open_box(const pd_share *s, int part, inbox *b)
{
	rt_sums_open(&b->s, s->pushers * s->sums, s->pushers * s->room, s->whole ? s->part[part] : s->width, s->whole);
	if (!s->whole)
		b->written = rt_alloc((size_t)s->rows * sizeof *b->written);
}

void pd_shares_open(const pd_share *s, int n, char *arena)
{
	int64_t most = 0, wide = 0;

	shares = s;
	nshares = n;
	memory = arena;
	for (int k = 0; k < n; k++)
		widest = s[k].parts > widest ? s[k].parts : widest;
	boxes = rt_alloc((size_t)(n * widest) * sizeof *boxes);
	clients = rt_alloc((size_t)rt_program->world * sizeof *clients);
	open = rt_alloc((size_t)rt_program->world * sizeof *open);
	heads = rt_alloc((size_t)rt_program->world * sizeof *heads);
	for (int k = 0; k < n; k++) {
		know_clients(&s[k]);
		for (int part = 0; part < s[k].parts; part++)
			open_box(&s[k], part, &boxes[k * widest + part]);
		if (!s[k].whole) {
			most = s[k].room > most ? s[k].room : most;
			wide = s[k].room * s[k].width > wide ? s[k].room * s[k].width : wide;
		}
	}
	asked = rt_alloc((size_t)most * sizeof *asked + 1);
	answer = rt_alloc((size_t)wide * sizeof *answer + 1);
}

/* ---- what devices say ---- */

static void message(int rank, int tag, void *buf, size_t bytes, bool recv)
{
	const int i = rt_between(rank, recv ? 1 : 3);

	rt_lock();
	if (recv)
		rt_post_recv(i, rank, tag, buf, bytes);
	else
		rt_post_send(i, rank, tag, buf, bytes);
	rt_unlock();
	rt_wait(i, 1);
}

/* Several parts of a parameter's rows may lie here. */
static int share_of(const rt_head *h, int rank)
{
	for (int k = 0; k < nshares; k++)
		if (shares[k].key == h->key && shares[k].row == h->row)
			return k;
	rt_fail(RT_ERROR, "R124", "%s asks for rows from %lld on of parameter %d, which this server does not hold", rt_name(rank),
	        (long long)h->row, h->key);
}

static void check_rows(const pd_share *s, const int32_t *ids, int64_t n, int rank)
{
	for (int64_t i = 0; i < n; i++)
		if (ids[i] < s->row || ids[i] >= s->row + s->rows || (i > 0 && ids[i] <= ids[i - 1]))
			rt_fail(RT_ERROR, "R124", "%s names row %d of '%s'; here are %lld to %lld, in ascending order", rt_name(rank),
			        ids[i], s->name, (long long)s->row, (long long)(s->row + s->rows - 1));
}

static void answer_pull(const rt_head *h, int rank)
{
	const pd_share *s = &shares[share_of(h, rank)];

	if ((h->rows < 0) != s->whole || h->rows > s->room)
		rt_fail(RT_ERROR, "R124", "%s asks for %lld rows of '%s', of which it may ask for %lld", rt_name(rank),
		        (long long)h->rows, s->name, (long long)s->room);
	if (h->rows < 0) {
		message(rank, RT_TAG_VALUES, memory + s->at + (size_t)s->cut * sizeof(float), (size_t)s->ncut * sizeof(float), false);
		return;
	}
	message(rank, RT_TAG_IDS, asked, (size_t)h->rows * sizeof *asked, true);
	const float *w = (const float *)(const void *)(memory + s->at);

	check_rows(s, asked, h->rows, rank);
	for (int64_t i = 0; i < h->rows; i++)
		memcpy(answer + i * s->width, w + (asked[i] - s->row) * s->width, (size_t)s->width * sizeof *w);
	message(rank, RT_TAG_VALUES, answer, (size_t)(h->rows * s->width) * sizeof *answer, false);
}

static void take_push(const rt_head *h, int rank)
{
	const pd_share *s = &shares[share_of(h, rank)];
	const int64_t   n = h->rows < 0 ? 1 : h->rows;

	if (h->part < 0 || h->part >= s->parts || h->lo < 0 || h->leaves < 1 || h->lo + h->leaves > s->leaves)
		rt_fail(RT_ERROR, "R123", "%s pushes leaves %d to %d of part %d of '%s'; it has %d leaves and %d parts",
		        rt_name(rank), h->lo, h->lo + h->leaves - 1, h->part, s->name, s->leaves, s->parts);
	inbox           *b = &boxes[(s - shares) * widest + h->part];
	const rt_pushed *was = rt_sums_twice(&b->s, h->lo, h->leaves);

	if (was)
		rt_fail(RT_ERROR, "R121", "%s pushes leaves %d to %d of '%s' in step %lld; %d to %d are there already",
		        rt_name(rank), h->lo, h->lo + h->leaves - 1, s->name, (long long)rt_step, was->lo,
		        was->lo + was->leaves - 1);
	rt_pushed *x = rt_sums_put(&b->s, h->lo, h->leaves, n);

	if (!x)
		rt_fail(RT_ERROR, "R123", "%s pushes %lld rows of '%s'; there is room for %lld in all", rt_name(rank), (long long)n,
		        s->name, (long long)b->s.room);
	if (!s->whole && n) {
		message(rank, RT_TAG_IDS, x->ids, (size_t)n * sizeof *x->ids, true);
		check_rows(s, x->ids, n, rank);
	}
	if (n)
		message(rank, RT_TAG_VALUES, x->values, (size_t)(n * b->s.width) * sizeof(float), true);
}

/* A head has come from a client that is open: which, in `came`. */
static int came;

static bool some_head(int first, int n, int *pending)
{
	for (int i = first; i < n; i++)
		if (rt_idle(rt_between(open[i], 0))) {
			came = i;
			return true;
		}
	*pending = rt_between(open[first], 0);
	return false;
}

static void expect(int rank)
{
	rt_lock();
	rt_post_recv(rt_between(rank, 0), rank, RT_TAG_HEAD, &heads[rank], sizeof *heads);
	rt_unlock();
}

void pd_serve(void)
{
	int n = nclients;

	if (rt_alone)
		return;
	rt_pause();
	for (int k = 0; k < nshares * widest; k++)
		rt_sums_clear(&boxes[k].s);
	for (int i = 0; i < n; i++) {
		open[i] = clients[i];
		expect(clients[i]);
	}
	while (n) {
		rt_trace_wait(true);
		rt_wait_until(some_head, 0, n);
		rt_trace_wait(false);

		const int      i = came, rank = open[i];
		const rt_head *h = &heads[rank];

		rt_record(h->kind == RT_PULL ? "answer" : h->kind == RT_PUSH ? "take" : "end", -1, -1, rank);
		if (h->round != now)
			rt_fail(RT_ERROR, "R122", "a message of step %d of this run came from %s in step %d", h->round - 1, rt_name(rank),
			        now - 1);
		if (h->kind == RT_PULL)
			answer_pull(h, rank);
		if (h->kind == RT_PUSH)
			take_push(h, rank);
		if (h->kind == RT_END)
			open[i] = open[--n];
		else
			expect(rank);
	}
	now++;
}

/* ---- adding ---- */

static void clear(const pd_share *s, inbox *b, float *to)
{
	if (!b->begun)
		memset(to, 0, (size_t)(s->rows * s->width) * sizeof *to);
	for (int64_t i = 0; i < b->nwritten; i++)
		memset(to + b->written[i] * s->width, 0, (size_t)s->width * sizeof *to);
	b->nwritten = 0;
	b->begun = true;
}

void pd_collect(int k, int part, float *to)
{
	const pd_share *s = &shares[k];
	inbox          *b = &boxes[k * widest + part];
	const size_t    row_bytes = (size_t)b->s.width * sizeof *to;
	int32_t         row;

	if (rt_alone)
		return;
	if (!rt_sums_begin(&b->s, 0, s->leaves))
		rt_fail(RT_ERROR, "R123", "the gradient of '%s' in step %lld is not whole: %d sums came, they lack some of %d leaves",
		        s->name, (long long)rt_step, b->s.n, s->leaves);
	if (s->whole) {
		memcpy(to, rt_sums_next(&b->s, &row), row_bytes);
		return;
	}
	clear(s, b, to);
	for (const float *from; (from = rt_sums_next(&b->s, &row));) {
		memcpy(to + (row - s->row) * s->width, from, row_bytes);
		b->written[b->nwritten++] = row - (int32_t)s->row;
	}
}
