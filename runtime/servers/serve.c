/* serve.c: a server of parameters. In a step it answers pulls with what the update before left, and takes sums of gradients,
 * until every device that pushes to it has said that nothing more comes. Each sum is of a subtree of the fixed tree over the
 * grains (tree.c; without --reproducible each device is one leaf) and counts exactly once: one that is there already, of
 * another step, or that makes no whole tree with the others is a fault of the program (R121 to R123). Sums are added when
 * all are there, in the order of the tree, so the order of arrival has no part in the result. Rows that a sum lacks are
 * zero. Answers leave and sums come in for several devices at a time: what a device is sent, or sends, is waited for when it speaks
 * again.
 *
 * Asynchronous (pd_serve_each): what a device pushes is applied once all parts of that gradient are there, for itself, and a
 * pull is answered with the newest; so each device's gradient counts exactly once, and the order of arrival is the order
 * of updates. --arrivals writes it down. */
#include "rt.h"
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct inbox {    /* of a part of a gradient, for one step */
	rt_sums *s;       /* asynchronous: one for each member */
	int32_t *written; /* rows of the result that are not zero */
	int64_t nwritten;
	bool begun;
} inbox;

static const pd_share *shares;
static inbox *boxes; /* `widest` parts each */
static int nshares, widest;
static char *memory;   /* the arena */
static rt_head *heads; /* by client */
static int *clients, *open, nclients;
static int32_t *asked;   /* row numbers of a pull */
static int32_t *touched; /* asynchronous: rows of a gradient, and their sums */
static float *touched_sum;
static uint16_t **thin;   /* by share that is pulled whole: it as 16-bit floats */
static bool *thin_is_new; /* by share: since its last update */
enum { ANSWERS = 4 };     /* rows that leave at one time */
static struct {
	float *rows;
	int to;
} answer[ANSWERS]; /* to: whom, -1: nobody yet */
/* By rank, a sum that comes: row numbers, and floats of its values. s NULL: none does. */
static struct {
	const pd_share *s;
	const int32_t *ids;
	float *values;
	int64_t n, floats;
} *coming;
static int32_t now = 1;
static FILE *arrivals;
static int64_t **updates; /* asynchronous, by share and member: how often its gradient has counted; behind the last
	                         * member all of them together */
static int32_t *done_of;  /* by rank: steps since the start that it has ended */
static int32_t
	*slack_of; /* by rank that waits to be told to go on: steps it may be ahead, and 1; 0: it does not wait */
static int nopen, member; /* clients that may say something; whose gradient is collected */

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
	const int64_t width = s->whole ? s->part[part] : s->width;
	const bool each = rt_program->flow > 0;

	b->s = rt_alloc((size_t)(each ? s->members : 1) * sizeof *b->s);
	if (!each)
		rt_sums_open(b->s, s->pushers * s->sums, s->pushers * s->room, width, s->whole);
	for (int r = 0; r < s->members && each; r++)
		rt_sums_open(&b->s[r], s->sums, s->room, width, s->whole);
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
	done_of = rt_alloc((size_t)rt_program->world * sizeof *done_of);
	slack_of = rt_alloc((size_t)rt_program->world * sizeof *slack_of);
	updates = rt_alloc((size_t)n * sizeof *updates);
	thin = rt_alloc((size_t)n * sizeof *thin);
	thin_is_new = rt_alloc((size_t)n * sizeof *thin_is_new);
	for (int k = 0; k < n; k++) {
		thin[k] = s[k].whole && s[k].pull.narrow ? rt_alloc((size_t)s[k].ncut * sizeof **thin) : NULL;
		know_clients(&s[k]);
		updates[k] = rt_alloc((size_t)(s[k].members + 1) * sizeof **updates);
		for (int part = 0; part < s[k].parts; part++)
			open_box(&s[k], part, &boxes[k * widest + part]);
		if (!s[k].whole) {
			most = s[k].room > most ? s[k].room : most;
			wide = s[k].room * s[k].width > wide ? s[k].room * s[k].width : wide;
		}
	}
	asked = rt_alloc((size_t)most * sizeof *asked + 1);
	coming = rt_alloc((size_t)rt_program->world * sizeof *coming);
	for (int i = 0; i < ANSWERS; i++) {
		answer[i].rows = i < nclients && wide ? rt_alloc((size_t)wide * sizeof(float)) : NULL;
		answer[i].to = -1;
	}
	if (rt_program->flow) {
		touched = rt_alloc((size_t)(most * widest) * sizeof *touched + 1);
		touched_sum = rt_alloc((size_t)(wide * widest) * sizeof *touched_sum + 1);
	}
}

/* ---- what devices say ---- */

/* Requests of a client: 0 its head, 1 row numbers and 2 values that come, 3 what it is sent. */
static void comes(int rank, int i, int tag, void *buf, size_t bytes)
{
	rt_lock();
	rt_post_recv(rt_between(rank, i), rank, tag, buf, bytes);
	rt_unlock();
}

static void goes(int rank, int tag, const void *buf, size_t bytes)
{
	rt_lock();
	rt_post_send(rt_between(rank, 3), rank, tag, buf, bytes);
	rt_unlock();
}

/* Several parts of a parameter's rows may lie here. */
static int share_of(const rt_head *h, int rank)
{
	for (int k = 0; k < nshares; k++)
		if (shares[k].key == h->key && shares[k].row == h->row)
			return k;
	rt_fail(RT_ERROR, "R124", "%s asks for rows from %lld on of parameter %d, which this server does not hold",
		rt_name(rank), (long long)h->row, h->key);
}

static void check_rows(const pd_share *s, const int32_t *ids, int64_t n, int rank)
{
	for (int64_t i = 0; i < n; i++)
		if (ids[i] < s->row || ids[i] >= s->row + s->rows || (i > 0 && ids[i] <= ids[i - 1]))
			rt_fail(RT_ERROR, "R124", "%s names row %d of '%s'; here are %lld to %lld, in ascending order",
				rt_name(rank), ids[i], s->name, (long long)s->row, (long long)(s->row + s->rows - 1));
}

/* All that this client was sent, or sends, is through. */
static void settle(int rank)
{
	rt_wait(rt_between(rank, 1), 3);
	const pd_share *s = coming[rank].s;

	if (s && !s->whole)
		check_rows(s, coming[rank].ids, coming[rank].n, rank);
	if (s)
		rt_wire_unpack(s->push, coming[rank].values, coming[rank].floats);
	coming[rank].s = NULL;
}

/* A buffer for rows that leave for this client. */
static float *room_for(int rank)
{
	static int turn;
	const int i = turn = (turn + 1) % (nclients < ANSWERS ? nclients : ANSWERS);

	if (answer[i].to >= 0)
		rt_wait(rt_between(answer[i].to, 3), 1);
	answer[i].to = rank;
	return answer[i].rows;
}

/* A line of --arrivals: what, of which parameter, which rank, its step, updates so far; the rows of a pull. */
static void note(const char *what, const pd_share *s, int rank, int64_t rows)
{
	if (!arrivals || pd_evaluating())
		return;
	fprintf(arrivals, "%s %s %d %lld %lld", what, s->name, rank, (long long)(rt_step + heads[rank].round - now),
		(long long)updates[s - shares][s->members]);
	for (int64_t i = 0; i < rows; i++)
		fprintf(arrivals, " %d", asked[i]);
	fprintf(arrivals, "\n");
}

/* The cast is made once for all that pull between two updates. */
static void answer_whole(const pd_share *s, int rank)
{
	const int k = (int)(s - shares);
	const float *w = (const float *)(const void *)(memory + s->at) + s->cut;
	const void *out = thin_is_new[k] ? thin[k] : rt_wire_pack(s->pull, w, thin[k], s->ncut);

	thin_is_new[k] = thin[k] != NULL;
	goes(rank, RT_TAG_VALUES, out, rt_wire_bytes(s->pull, s->ncut));
}

static void answer_pull(const rt_head *h, int rank)
{
	const pd_share *s = &shares[share_of(h, rank)];

	if ((h->rows < 0) != s->whole || h->rows > s->room)
		rt_fail(RT_ERROR, "R124", "%s asks for %lld rows of '%s', of which it may ask for %lld", rt_name(rank),
			(long long)h->rows, s->name, (long long)s->room);
	if (h->rows < 0) {
		note("pull", s, rank, 0);
		answer_whole(s, rank);
		return;
	}
	comes(rank, 1, RT_TAG_IDS, asked, (size_t)h->rows * sizeof *asked);
	rt_wait(rt_between(rank, 1), 1);
	const float *w = (const float *)(const void *)(memory + s->at);
	float *to = room_for(rank);

	check_rows(s, asked, h->rows, rank);
	note("pull", s, rank, h->rows);
	for (int64_t i = 0; i < h->rows; i++)
		memcpy(to + i * s->width, w + (asked[i] - s->row) * s->width, (size_t)s->width * sizeof *w);
	rt_wire_pack(s->pull, to, to, h->rows * s->width);
	goes(rank, RT_TAG_VALUES, to, rt_wire_bytes(s->pull, h->rows * s->width));
}

static void take_push(const rt_head *h, int rank)
{
	const pd_share *s = &shares[share_of(h, rank)];
	const int64_t n = h->rows < 0 ? 1 : h->rows;

	if (h->part < 0 || h->part >= s->parts || h->lo < 0 || h->leaves < 1 || h->lo + h->leaves > s->leaves)
		rt_fail(RT_ERROR, "R123", "%s pushes leaves %d to %d of part %d of '%s'; it has %d leaves and %d parts",
			rt_name(rank), h->lo, h->lo + h->leaves - 1, h->part, s->name, s->leaves, s->parts);
	rt_sums *b = &boxes[(s - shares) * widest + h->part].s[rt_program->flow ? rank - s->first : 0];
	const rt_pushed *was = rt_sums_twice(b, h->lo, h->leaves);

	if (was)
		rt_fail(RT_ERROR, "R121", "%s pushes leaves %d to %d of '%s' in step %lld; %d to %d are there already",
			rt_name(rank), h->lo, h->lo + h->leaves - 1, s->name, (long long)rt_step, was->lo,
			was->lo + was->leaves - 1);
	rt_pushed *x = rt_sums_put(b, h->lo, h->leaves, n);

	if (!x)
		rt_fail(RT_ERROR, "R123", "%s pushes %lld rows of '%s'; there is room for %lld in all", rt_name(rank),
			(long long)n, s->name, (long long)b->room);
	coming[rank].s = s;
	coming[rank].ids = x->ids;
	coming[rank].values = x->values;
	coming[rank].n = n;
	coming[rank].floats = n * b->width;
	if (!s->whole && n)
		comes(rank, 1, RT_TAG_IDS, x->ids, (size_t)n * sizeof *x->ids);
	if (n)
		comes(rank, 2, RT_TAG_VALUES, rt_wire_place(s->push, x->values, n * b->width),
			rt_wire_bytes(s->push, n * b->width));
}

/* A head has come from a client that is open: which, in `came`. */
static int came;

static bool some_head(int first, int n, int *pending)
{
	static int turn; /* no client waits for one that is quicker */

	for (int i = first; i < n; i++)
		if (rt_idle(rt_between(open[(i + turn) % n], 0))) {
			came = (i + turn) % n;
			turn = came + 1;
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

static void begin(void)
{
	nopen = nclients;
	for (int k = 0; k < nclients; k++) {
		open[k] = clients[k];
		expect(clients[k]);
	}
}

/* What some client says; its place among those that are open. */
static int hear(void)
{
	rt_trace_wait(true);
	rt_wait_until(some_head, 0, nopen);
	rt_trace_wait(false);

	const int rank = open[came];
	const rt_head *h = &heads[rank];

	rt_record(h->kind == RT_PULL ? "answer" : h->kind == RT_PUSH ? "take" : "end", -1, -1, rank);
	return came;
}

void pd_serve(void)
{
	if (rt_alone)
		return;
	rt_pause();
	for (int k = 0; k < nshares * widest; k++)
		if (boxes[k].s)
			rt_sums_clear(boxes[k].s);
	memset(thin_is_new, 0, (size_t)nshares * sizeof *thin_is_new);
	begin();
	while (nopen) {
		const int i = hear(), rank = open[i];
		const rt_head *h = &heads[rank];

		settle(rank);
		if (h->round != now)
			rt_fail(RT_ERROR, "R122", "a message of step %d of this run came from %s in step %d",
				h->round - 1, rt_name(rank), now - 1);
		if (h->kind == RT_PULL)
			answer_pull(h, rank);
		if (h->kind == RT_PUSH)
			take_push(h, rank);
		if (h->kind == RT_END)
			open[i] = open[--nopen];
		else
			expect(rank);
	}
	now++;
}

/* ---- asynchronous ---- */

/* A run that goes on keeps the lines of steps that lie in its checkpoint; those of later ones were not lost with the run before. */
static void keep_lines(FILE *f)
{
	char line[256];
	long long step;
	long end = 0;
	bool kept = true, whole = true; /* a line of rows may be longer: in pieces */

	while (kept && fgets(line, sizeof line, f)) {
		if (whole)
			kept = sscanf(line, "%*s %*s %*d %lld", &step) == 1 && step < rt_step;
		whole = strchr(line, '\n') != NULL;
		end = kept && whole ? ftell(f) : end;
	}
	if (fflush(f) || ftruncate(fileno(f), end) || fseek(f, end, SEEK_SET))
		rt_fail(RT_ERROR, "R406", "the record of arrivals: %s", strerror(errno));
}

void rt_arrivals_open(const char *dir)
{
	char path[4096];

	if (!dir || !rt_program->server)
		return;
	snprintf(path, sizeof path, "%s/rank%d.txt", dir, rt_program->rank);
	if (mkdir(dir, 0777) == 0 || errno == EEXIST)
		arrivals = fopen(path, rt_step && !access(path, F_OK) ? "r+" : "w");
	if (!arrivals)
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
	if (rt_step)
		keep_lines(arrivals);
}

/* A push has come: the update, if it was the last part of this device's gradient. */
static void apply(const pd_share *s, int rank, void (*update)(int k))
{
	const rt_head *h = &heads[rank];
	inbox *b = &boxes[(s - shares) * widest];
	int64_t *of = updates[s - shares];

	member = rank - s->first;
	for (int part = 0; part < s->parts; part++)
		if (!b[part].s[member].n)
			return;
	if (of[member] >= h->round)
		rt_fail(RT_ERROR, "R121", "%s pushes the gradient of '%s' in step %lld a second time", rt_name(rank),
			s->name, (long long)(rt_step + h->round - now));
	if (!(h->count > 0))
		rt_fail(RT_NUMERIC, "R304", "no label counts in step %lld of %s: all of them are the ignored index",
			(long long)(rt_step + h->round - now), rt_name(rank));
	of[member] = h->round;
	rt_flow_update((double)h->count, of[s->members]++, rt_step + h->round - now);
	update((int)(s - shares));
	rt_first_settle();
	thin_is_new[s - shares] = false;
	for (int part = 0; part < s->parts; part++)
		rt_sums_clear(&b[part].s[member]);
	note("push", s, rank, 0);
}

static int32_t slowest(void)
{
	int32_t least = INT32_MAX;

	for (int i = 0; i < nclients; i++)
		least = done_of[clients[i]] < least ? done_of[clients[i]] : least;
	return least;
}

static void end_of(int i, const rt_head *h)
{
	const int rank = open[i];

	done_of[rank] = h->round;
	slack_of[rank] = h->more > 0 ? h->more : 0;
	if (h->more < 0)
		open[i] = open[--nopen];
	else
		expect(rank);
	for (int k = 0; k < nclients; k++) {
		const int r = clients[k];

		if (!slack_of[r] || done_of[r] - slowest() > slack_of[r] - 1)
			continue;
		slack_of[r] = 0;
		goes(r, RT_TAG_HEAD, &now, sizeof now);
		settle(r);
	}
}

void rt_serve_each(void (*update)(int k))
{
	if (rt_alone)
		return;
	rt_pause();
	if (pd_flow() == 0) {
		begin();
		memset(thin_is_new, 0, (size_t)nshares * sizeof *thin_is_new);
		for (int k = 0; k < nshares; k++) /* drained: each device has pushed all steps before */
			updates[k][shares[k].members] =
				pd_evaluating() ? updates[k][shares[k].members] : rt_step * shares[k].members;
	}
	while (slowest() < now) {
		const int i = hear(), rank = open[i];
		const rt_head *h = &heads[rank];

		if (h->round != done_of[rank] + 1)
			rt_fail(RT_ERROR, "R122", "a message of step %d of this run came from %s, whose step %d it is",
				h->round - 1, rt_name(rank), done_of[rank]);
		if (h->kind == RT_PULL) {
			answer_pull(h, rank);
			settle(rank);
		}
		if (h->kind == RT_PUSH) {
			take_push(h, rank);
			settle(rank);
			apply(&shares[share_of(h, rank)], rank, update);
		}
		if (h->kind == RT_END)
			end_of(i, h);
		else
			expect(rank);
	}
	now++;
	if (arrivals && fflush(arrivals))
		rt_fail(RT_ERROR, "R406", "the record of arrivals: %s", strerror(errno));
}

static void (*const *emitted)(void);

static void update_share(int k) { emitted[k](); }

void pd_serve_each(void (*const update[])(void))
{
	emitted = update;
	rt_serve_each(update_share);
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
	inbox *b = &boxes[k * widest + part];
	rt_sums *from = &b->s[rt_program->flow ? member : 0];
	const size_t row_bytes = (size_t)from->width * sizeof *to;
	int32_t row;

	if (rt_alone)
		return;
	if (!rt_sums_begin(from, rt_program->flow ? member : 0, rt_program->flow ? 1 : s->leaves))
		rt_fail(RT_ERROR, "R123",
			"the gradient of '%s' in step %lld is not whole: %d sums came, they lack some of %d leaves",
			s->name, (long long)rt_step, from->n, s->leaves);
	if (s->whole) {
		memcpy(to, rt_sums_next(from, &row), row_bytes);
		return;
	}
	clear(s, b, to);
	for (const float *x; (x = rt_sums_next(from, &row));) {
		memcpy(to + (row - s->row) * s->width, x, row_bytes);
		b->written[b->nwritten++] = row - (int32_t)s->row;
	}
}

/* Parts are added in their order, as the update of a whole table would; one that lacks a row has zeros there. */
int64_t pd_collect_rows(int k, const int32_t **rows, const float **sum)
{
	enum { PARTS = 64 };
	const pd_share *s = &shares[k];
	const float *x[PARTS];
	int32_t row[PARTS];
	int64_t n = 0;

	*rows = touched;
	*sum = touched_sum;
	if (rt_alone)
		return 0;
	if (s->parts > PARTS)
		rt_fail(RT_ERROR, "R123", "the gradient of '%s' has %d parts; %d are most", s->name, s->parts, PARTS);
	for (int part = 0; part < s->parts; part++) {
		rt_sums *b = &boxes[k * widest + part].s[member];

		if (!rt_sums_begin(b, member, 1))
			rt_fail(RT_ERROR, "R123", "the gradient of '%s' in step %lld is not whole", s->name,
				(long long)rt_step);
		x[part] = rt_sums_next(b, &row[part]);
	}
	for (int32_t at;; n++) {
		float *to = touched_sum + n * s->width;

		at = INT32_MAX;
		for (int part = 0; part < s->parts; part++)
			at = x[part] && row[part] < at ? row[part] : at;
		if (at == INT32_MAX)
			return n;
		touched[n] = at - (int32_t)s->row;
		for (int part = 0; part < s->parts; part++) {
			const bool here = x[part] && row[part] == at;

			for (int64_t i = 0; i < s->width; i++) {
				const float v = here ? x[part][i] : 0;

				to[i] = part ? to[i] + v : v;
			}
			if (here)
				x[part] = rt_sums_next(&boxes[k * widest + part].s[member], &row[part]);
		}
	}
}
