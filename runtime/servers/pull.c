/* pull.c: a device's side of parameter servers. It pulls what the step reads before it is read, and pushes sums of
 * gradients. Messages go to all servers of a parameter at once: a head, row numbers in ascending order, values. Whole
 * parameters travel between where they lie on both sides; rows are gathered into a buffer on their way.
 *
 * Of the replicas of a stage on one host the first, the chief, pushes for all (Parallax, local aggregation): the others give
 * it their sums, and it adds those that make larger subtrees. A row that several of them touched leaves the host once. */
#include "rt.h"
#include <stdlib.h>

typedef struct held {
	const pd_held *h;
	float *at;
	int32_t *round; /* by row: the round it was pulled in, from 1; of a whole parameter: [0] */
	int32_t *ids;   /* rows of this round, ascending */
	int32_t *fresh; /* those that are pulled now */
	int64_t n;
	rt_sums *box;     /* chief of others: their sums of the part that is pushed now */
	int32_t *ids_out; /* rows that were added, on their way */
	float *out;
} held;

static held *all;
static int nheld;
static int team, place;    /* which team of one host this is; place in it; 0: the chief */
static int *mates, nmates; /* ranks of the team, the chief first */
static float *rows;        /* on their way */
static uint16_t *thin;     /* pushed as 16-bit floats, on their way */
static rt_head *heads;     /* by rank */
static int *servers, nservers;
static int32_t *goes;   /* by rank: a server's step when it let this device go on */
static int32_t now = 1; /* the round */

static void know_server(int rank)
{
	int i = 0;

	while (i < nservers && servers[i] != rank)
		i++;
	servers[i] = rank;
	nservers += i == nservers;
}

static void know_team(int member, const int *chief, int members)
{
	const int first = rt_program->rank - member;

	mates = rt_alloc((size_t)members * sizeof *mates);
	for (int r = 0; r < members; r++) {
		team += chief[r] == r && r < chief[member];
		place += chief[r] == chief[member] && r < member;
		if (chief[r] == chief[member])
			mates[nmates++] = first + r;
	}
}

static void open_box(held *x)
{
	const pd_held *h = x->h;
	const int64_t room = nmates * h->room, most = h->whole || room < h->rows ? room : h->rows;

	x->box = rt_alloc(sizeof *x->box);
	rt_sums_open(x->box, nmates * h->sums, room, h->width, h->whole);
	if (h->whole)
		return;
	x->ids_out = rt_alloc((size_t)most * sizeof *x->ids_out);
	x->out = rt_alloc((size_t)(most * h->width) * sizeof *x->out);
}

/* Floats that leave together at most: of a part, or of the rows of all sums of a chief. */
static size_t most_pushed(const held *x)
{
	const pd_held *h = x->h;
	int64_t most = h->whole ? 0 : h->most * h->width;

	for (int p = 0; p < h->parts && h->whole; p++)
		most = h->part[p] > most ? h->part[p] : most;
	if (!h->whole && x->box)
		most = h->rows * h->width;
	return h->push.narrow ? (size_t)most : 0;
}

void pd_held_open(const pd_held *h, int n, char *arena, int member, const int *chief, int members)
{
	size_t most = 0, pushed = 0;

	nheld = n;
	know_team(member, chief, members);
	all = rt_alloc((size_t)n * sizeof *all);
	heads = rt_alloc((size_t)rt_program->world * sizeof *heads);
	servers = rt_alloc((size_t)rt_program->world * sizeof *servers);
	goes = rt_alloc((size_t)rt_program->world * sizeof *goes);
	for (int k = 0; k < n; k++) {
		all[k] = (held){ .h = &h[k], .at = (float *)(void *)(arena + h[k].at) };
		all[k].round = rt_alloc((size_t)(h[k].whole ? 1 : h[k].rows) * sizeof(int32_t));
		if (!h[k].whole) {
			all[k].ids = rt_alloc((size_t)h[k].most * sizeof(int32_t));
			all[k].fresh = rt_alloc((size_t)h[k].most * sizeof(int32_t));
			if ((size_t)(h[k].most * h[k].width) > most)
				most = (size_t)(h[k].most * h[k].width);
		}
		if (nmates > 1 && place == 0)
			open_box(&all[k]);
		pushed = most_pushed(&all[k]) > pushed ? most_pushed(&all[k]) : pushed;
		for (int i = 0; i < h[k].npieces; i++)
			know_server(h[k].piece[i].server);
	}
	rows = rt_alloc(most * sizeof *rows + 1);
	thin = rt_alloc(pushed * sizeof *thin + 1);
}

/* Floats of a row of this part. */
static int64_t part_width(const pd_held *h, int part) { return h->whole ? h->part[part] : h->width; }

/* Lock held. The head goes with a request of its own; the one before was waited for. */
static void send_head(int server, rt_head x)
{
	x.round = now;
	heads[server] = x;
	rt_post_send(rt_between(server, 0), server, RT_TAG_HEAD, &heads[server], sizeof x);
}

static void wait_pieces(const pd_held *h)
{
	for (int i = 0; i < h->npieces; i++)
		rt_wait(rt_between(h->piece[i].server, 0), 4);
}

/* Of n ascending row numbers, those that a piece holds: from the first, how many. */
static int64_t range_of(const int32_t *ids, int64_t n, const pd_rows *piece, int64_t *first)
{
	int64_t from = 0, to;

	while (from < n && ids[from] < piece->row)
		from++;
	for (to = from; to < n && ids[to] < piece->row + piece->rows;)
		to++;
	*first = from;
	return to - from;
}

/* ---- pulling ---- */

void pd_pull(int k)
{
	const held *x = &all[k];
	const pd_held *h = x->h;

	if (rt_alone || x->round[0] == now)
		return;
	rt_pause();
	rt_record("pull", -1, -1, h->piece[0].server);
	for (int i = 0; i < h->npieces; i++) { /* two pieces may lie at one server */
		const pd_rows *p = &h->piece[i];

		rt_wait(rt_between(p->server, 0), 4);
		rt_lock();
		send_head(p->server, (rt_head){ .kind = RT_PULL, .key = h->key, .row = p->row, .rows = -1 });
		rt_post_recv(rt_between(p->server, 3), p->server, RT_TAG_VALUES,
			rt_wire_place(h->pull, x->at + h->cut, h->ncut), rt_wire_bytes(h->pull, h->ncut));
		rt_unlock();
	}
	wait_pieces(h);
	rt_wire_unpack(h->pull, x->at + h->cut, h->ncut);
	x->round[0] = now;
}

static int by_number(const void *a, const void *b)
{
	const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return (x > y) - (x < y);
}

/* Rows that this round has not pulled yet, each once, ascending. */
static int64_t fresh_rows(held *x, const void *ids, int64_t n, int bytes)
{
	int64_t m = 0;

	for (int64_t i = 0; i < n; i++) {
		int64_t id = bytes == 8 ? ((const int64_t *)ids)[i] : (int64_t)((const int32_t *)ids)[i];

		id += id < 0 ? x->h->rows : 0;
		if (id < 0 || id >= x->h->rows)
			rt_fail(RT_ERROR, "R124", "row %lld of '%s' is looked up; it has %lld", (long long)id,
				x->h->name, (long long)x->h->rows);
		if (x->round[id] == now)
			continue;
		x->round[id] = now;
		x->fresh[m++] = (int32_t)id;
	}
	qsort(x->fresh, (size_t)m, sizeof *x->fresh, by_number);
	return m;
}

static void merge_fresh(held *x, int64_t m)
{
	int64_t a = x->n - 1, b = m - 1;

	for (int64_t to = x->n + m - 1; b >= 0; to--)
		x->ids[to] = a >= 0 && x->ids[a] > x->fresh[b] ? x->ids[a--] : x->fresh[b--];
	x->n += m;
}

void pd_pull_rows(int k, const void *ids, int64_t n, int bytes)
{
	held *x = &all[k];
	const pd_held *h = x->h;
	const size_t row = (size_t)h->width * sizeof(float);

	if (rt_alone)
		return;
	const int64_t m = fresh_rows(x, ids, n, bytes);

	if (!m)
		return;
	rt_pause();
	rt_record("pull", -1, -1, h->piece[0].server);
	for (int i = 0; i < h->npieces; i++) {
		const pd_rows *p = &h->piece[i];
		int64_t first;
		const int64_t some = range_of(x->fresh, m, p, &first);

		if (!some)
			continue;
		rt_wait(rt_between(p->server, 0), 4);
		rt_lock();
		send_head(p->server, (rt_head){ .kind = RT_PULL, .key = h->key, .row = p->row, .rows = some });
		rt_post_send(rt_between(p->server, 1), p->server, RT_TAG_IDS, x->fresh + first,
			(size_t)some * sizeof(int32_t));
		rt_post_recv(rt_between(p->server, 3), p->server, RT_TAG_VALUES,
			rt_wire_place(h->pull, rows + first * h->width, some * h->width),
			rt_wire_bytes(h->pull, some * h->width));
		rt_unlock();
	}
	wait_pieces(h);
	for (int i = 0; i < h->npieces; i++) {
		int64_t first;
		const int64_t some = range_of(x->fresh, m, &h->piece[i], &first);

		rt_wire_unpack(h->pull, rows + first * h->width, some * h->width);
	}
	for (int64_t i = 0; i < m; i++)
		memcpy(x->at + x->fresh[i] * h->width, rows + i * h->width, row);
	merge_fresh(x, m);
}

/* ---- pushing ---- */

static bool is_zero(const float *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		if (v[i] != 0 || signbit(v[i]))
			return false;
	return true;
}

/* The touched rows of a sum into the buffer, their numbers into fresh. some: those that are not zero, where the sum is not of
 * all lookups. */
static int64_t gather(held *x, const float *sum, bool some)
{
	const int64_t width = x->h->width;
	int64_t m = 0;

	for (int64_t i = 0; i < x->n; i++) {
		const float *from = sum + x->ids[i] * width;

		if (some && is_zero(from, width))
			continue;
		memcpy(rows + m * width, from, (size_t)width * sizeof *from);
		x->fresh[m++] = x->ids[i];
	}
	return m;
}

/* m rows, or the whole parameter, to the servers that hold them. */
static void push_out(const pd_held *h, rt_head head, const int32_t *ids, const float *values, int64_t m)
{
	const int64_t width = part_width(h, head.part);
	const char *out = rt_wire_pack(h->push, values, thin, (h->whole ? 1 : m) * width);

	rt_record("push", -1, -1, h->piece[0].server);
	for (int i = 0; i < h->npieces; i++) {
		const pd_rows *p = &h->piece[i];
		int64_t first = p->row;
		const int64_t n = h->whole ? p->rows : range_of(ids, m, p, &first);

		rt_wait(rt_between(p->server, 0), 4);
		rt_lock();
		head.row = p->row;
		head.rows = h->whole ? -1 : n;
		send_head(p->server, head);
		if (!h->whole && n)
			rt_post_send(rt_between(p->server, 1), p->server, RT_TAG_IDS, ids + first,
				(size_t)n * sizeof(int32_t));
		if (n)
			rt_post_send(rt_between(p->server, 2), p->server, RT_TAG_VALUES,
				out + rt_wire_bytes(h->push, first * width), rt_wire_bytes(h->push, n * width));
		rt_unlock();
	}
	wait_pieces(h);
}

/* ---- within a host ---- */

static void give_chief(const pd_held *h, rt_head head, const int32_t *ids, const float *values, int64_t m)
{
	const int chief = mates[0];
	const int64_t n = m * part_width(h, head.part);
	const void *out = rt_wire_pack(h->push, values, thin, n);

	rt_record("give", -1, -1, chief);
	rt_lock();
	head.rows = h->whole ? -1 : m;
	send_head(chief, head);
	if (!h->whole && m)
		rt_post_send(rt_between(chief, 1), chief, RT_TAG_IDS, ids, (size_t)m * sizeof *ids);
	if (m)
		rt_post_send(rt_between(chief, 2), chief, RT_TAG_VALUES, out, rt_wire_bytes(h->push, n));
	rt_unlock();
	rt_wait(rt_between(chief, 0), 4);
}

static rt_pushed *room_for(const held *x, const rt_head *head, int64_t m, int rank)
{
	rt_pushed *to =
		rt_sums_twice(x->box, head->lo, head->leaves) ? NULL : rt_sums_put(x->box, head->lo, head->leaves, m);

	if (!to || head->round != now || head->key != x->h->key)
		rt_fail(RT_ERROR, "R123",
			"%s gives leaves %d to %d of '%s' in step %d of this run, which is step %d here: they are there "
			"already, or there is no room",
			rt_name(rank), head->lo, head->lo + head->leaves - 1, x->h->name, head->round - 1, now - 1);
	return to;
}

static void receive(int rank, int j, int tag, void *to, size_t bytes)
{
	rt_lock();
	rt_post_recv(rt_between(rank, j), rank, tag, to, bytes);
	rt_unlock();
	rt_wait(rt_between(rank, j), 1);
}

/* What another one of the host has of this gradient. */
static void take_from(held *x, int part, int rank)
{
	rt_head head;

	do {
		receive(rank, 0, RT_TAG_HEAD, &head, sizeof head);
		if (head.part != part || (x->h->whole ? head.rows != -1 : head.rows < 0 || head.rows > x->h->rows))
			rt_fail(RT_ERROR, "R123",
				"%s gives %lld rows of part %d of '%s', which has %lld; its turn is part %d",
				rt_name(rank), (long long)head.rows, head.part, x->h->name, (long long)x->h->rows,
				part);
		const int64_t m = head.rows < 0 ? 1 : head.rows, n = m * part_width(x->h, part);
		rt_pushed *to = room_for(x, &head, m, rank);

		if (!x->h->whole && m)
			receive(rank, 1, RT_TAG_IDS, to->ids, (size_t)m * sizeof *to->ids);
		if (m)
			receive(rank, 2, RT_TAG_VALUES, rt_wire_place(x->h->push, to->values, n),
				rt_wire_bytes(x->h->push, n));
		rt_wire_unpack(x->h->push, to->values, n);
	} while (head.more > 0);
}

/* Pushes the largest subtrees that the host has whole; lone: as the one leaf of this team. */
static void push_subtrees(held *x, rt_head head, int lo, int leaves, bool lone)
{
	int32_t row;
	int64_t m = 0;
	const float *sum;
	int p = 1;

	if (rt_sums_begin(x->box, lo, leaves)) {
		if (x->h->whole) {
			sum = rt_sums_next(x->box, &row);
		} else {
			for (; (sum = rt_sums_next(x->box, &row)); x->ids_out[m++] = row)
				memcpy(x->out + m * x->h->width, sum, (size_t)x->h->width * sizeof *sum);
			sum = x->out;
		}
		head.lo = lone ? team : lo;
		head.leaves = lone ? 1 : leaves;
		push_out(x->h, head, x->ids_out, sum, m);
		return;
	}
	while (2 * p < leaves)
		p *= 2;
	if (leaves > 1) {
		push_subtrees(x, head, lo, p, lone);
		push_subtrees(x, head, lo + p, leaves - p, lone);
	}
}

/* A sum of this device, over `leaves` leaves from lo on: to the servers, to the chief, or kept until the others' are there. */
static void push(held *x, rt_head head, const float *sum, bool some)
{
	const pd_held *h = x->h;
	const int64_t m = h->whole ? 1 : gather(x, sum, some);
	const float *values = h->whole ? sum : rows;

	head.key = h->key;
	head.round = now;
	head.count = (float)rt_flow_labels();
	if (x->box)
		x->box->width = part_width(h, head.part);
	if (nmates == 1) {
		push_out(h, head, x->fresh, values, m);
	} else if (place) {
		give_chief(h, head, x->fresh, values, m);
	} else {
		rt_pushed *to = room_for(x, &head, m, rt_program->rank);

		memcpy(to->values, values, (size_t)(m * part_width(h, head.part)) * sizeof *values);
		if (!h->whole)
			memcpy(to->ids, x->fresh, (size_t)m * sizeof *to->ids);
	}
}

/* The chief: all sums of this gradient on the host. */
static void push_team(held *x, int part, int leaves, bool lone)
{
	if (nmates == 1 || place)
		return;
	for (int i = 1; i < nmates; i++)
		take_from(x, part, mates[i]);
	push_subtrees(x, (rt_head){ .kind = RT_PUSH, .key = x->h->key, .part = part }, 0, leaves, lone);
	rt_sums_clear(x->box);
}

void pd_push(int k, int part, const float *sum)
{
	held *x = &all[k];

	if (rt_alone)
		return;
	rt_pause();
	push(x, (rt_head){ .kind = RT_PUSH, .part = part, .lo = nmates > 1 ? place : team, .leaves = 1 }, sum,
		x->h->parts > 1);
	push_team(x, part, nmates, true);
}

void pd_push_tree(int k, int part, pd_tree *t, size_t at)
{
	held *x = &all[k];
	const int n = rt_tree_sums(t);

	if (rt_alone)
		return;
	rt_pause();
	for (int i = 0; i < n; i++) {
		rt_head head = { .kind = RT_PUSH, .part = part, .more = n - 1 - i };
		int lo, leaves;
		const float *sum = rt_tree_sum(t, i, &lo, &leaves) + at;

		head.lo = lo;
		head.leaves = leaves;
		push(x, head, sum, n > 1 || x->h->parts > 1);
	}
	push_team(x, part, rt_tree_leaves(t), false);
}

/* Asynchronous: where staleness is bounded the next step begins once every server has said that the slowest device is near
 * enough, so all that it pushed up to then has been applied. */
void pd_push_end(void)
{
	const int64_t most = rt_program->staleness;
	const bool last = !rt_program->flow || !pd_flows(pd_flow() + 1), ask = !last && most >= 0;

	if (rt_alone)
		return;
	for (int i = 0; i < nservers; i++) {
		rt_lock();
		send_head(servers[i], (rt_head){ .kind = RT_END, .more = last ? -1 : ask ? (int32_t)most + 1 : 0 });
		if (ask)
			rt_post_recv(
				rt_between(servers[i], 3), servers[i], RT_TAG_HEAD, &goes[servers[i]], sizeof *goes);
		rt_unlock();
	}
	for (int i = 0; i < nservers; i++)
		rt_wait(rt_between(servers[i], 0), 4);
	rt_flow_next();
	for (int k = 0; k < nheld; k++)
		all[k].n = 0;
	now++;
}
