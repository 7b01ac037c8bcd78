/* gpu_servers.c: parameter servers and row-sparse gradients of programs whose tensors lie on GPUs. Messages come from and go
 * to a copy of the parameters in the host's memory; what was pulled is copied on to the device before it is read, what
 * servers hold is copied from it before they answer. Of what is looked up, only rows that are there cross the bus on their
 * way in; sums cross it whole. */
#include "gpu_rt.h"
#include <stdlib.h>

/* ---- the host's side, by the names of gpu_names.h ---- */
void host_held_open(const pd_held *h, int n, char *arena, int member, const int *chief, int members);
void host_pull(int k);
void host_pull_rows(int k, const void *ids, int64_t n, int bytes);
void host_push(int k, int part, const float *sum);
void host_push_tree(int k, int part, pd_tree *t, size_t at);
void host_shares_open(const pd_share *s, int n, char *arena);
void host_serve(void);
void host_collect(int k, int part, float *to);
int64_t host_collect_rows(int k, const int32_t **rows, const float **sum);
void host_give(const pd_way *w, const float *sum);
void host_fetch(const pd_way *w, float *sum);
void host_return(const pd_way *w, const float *made);
void host_take(const pd_way *w, float *made);
pd_gatherv *host_gatherv_new(int grains, int64_t n, int64_t width, const int *mine, int nmine, int members);
void host_gatherv_join(pd_gatherv *r, const pd_group *g, int32_t *ids, float *rows);

static char *tensors, *copy; /* the arena on the device, and the host's copy of the parameters in it, which is pinned */

static void *zeroed(size_t bytes) { return memset(rt_pinned(NULL, bytes), 0, bytes); }

/* Pinned memory for one call; as large as the largest needs before step 0. */
typedef struct buffer {
	void *at;
	size_t bytes;
} buffer;
static buffer first, second;

static void *room(buffer *b, size_t bytes)
{
	if (bytes > b->bytes) {
		b->at = rt_pinned(b->at, bytes);
		b->bytes = bytes;
	}
	return b->at;
}

static void *got(buffer *b, const void *tensor, size_t bytes)
{
	rt_gpu_get(room(b, bytes), tensor, bytes);
	return b->at;
}

/* Copies on; the buffer may be used again at once. */
static void put_tensor(void *tensor, const void *host, size_t bytes)
{
	rt_gpu_put(tensor, host, bytes);
	rt_gpu_wait();
}

/* ---- a device that trains ---- */

static const pd_held *held;
static rt_piece pulled; /* rows, on the device */

void pd_held_open(const pd_held *h, int n, char *arena, int member, const int *chief, int members)
{
	size_t end = 1;

	for (int k = 0; k < n; k++)
		if (h[k].at + (size_t)(h[k].rows * h[k].width) * sizeof(float) > end)
			end = h[k].at + (size_t)(h[k].rows * h[k].width) * sizeof(float);
	for (int k = 0; k < n; k++) {
		const size_t all = (size_t)(h[k].rows * h[k].width) * sizeof(float),
			     row = (size_t)h[k].width * sizeof(float);

		room(&first, all > (size_t)h[k].lookup * sizeof(int64_t) ? all : (size_t)h[k].lookup * sizeof(int64_t));
		room(&second, (size_t)h[k].lookup * row);
		rt_want(&pulled, (size_t)h[k].lookup * row, "rows that are pulled");
	}
	held = h;
	tensors = arena;
	copy = zeroed(end);
	host_held_open(h, n, copy, member, chief, members);
}

void pd_pull(int k)
{
	const pd_held *h = &held[k];
	const size_t at = h->at + (size_t)h->cut * sizeof(float);

	if (rt_alone)
		return;
	host_pull(k);
	put_tensor(tensors + at, copy + at, (size_t)h->ncut * sizeof(float));
}

void pd_pull_rows(int k, const void *ids, int64_t n, int bytes)
{
	const pd_held *h = &held[k];
	const size_t row = (size_t)h->width * sizeof(float);

	if (rt_alone)
		return;
	const char *wanted = got(&first, ids, (size_t)(n * bytes));
	char *packed = room(&second, (size_t)n * row);

	host_pull_rows(k, wanted, n, bytes);
	for (int64_t i = 0; i < n; i++) {
		const int64_t id = bytes == 8 ? ((const int64_t *)(const void *)wanted)[i]
		                              : ((const int32_t *)(const void *)wanted)[i];

		memcpy(packed + (size_t)i * row, copy + h->at + (size_t)(id < 0 ? id + h->rows : id) * row, row);
	}
	rt_want(&pulled, (size_t)n * row, "rows that are pulled");
	put_tensor(pulled.at, packed, (size_t)n * row);
	pd_place_rows((float *)(void *)(tensors + h->at), h->rows, ids, bytes, pulled.at, n, h->width);
}

void pd_push(int k, int part, const float *sum)
{
	const pd_held *h = &held[k];
	const int64_t n = h->whole ? h->part[part] : h->rows * h->width;

	if (!rt_alone)
		host_push(k, part, got(&first, sum, (size_t)n * sizeof *sum));
}

void pd_push_tree(int k, int part, pd_tree *t, size_t at) { host_push_tree(k, part, rt_gpu_tree(t), at); }

/* ---- a server ---- */

static const pd_share *shares;
static int nshares;
static float **sums; /* by share and part: pd_collect knows what it wrote there before */
static int parts;

static size_t share_bytes(const pd_share *s) { return (size_t)(s->rows * s->width) * sizeof(float); }

/* Of asynchronous updates by rows, on the device: rows that are updated, sums of their gradient, their numbers. */
static rt_piece of_rows[3];
static int64_t nrows;

static int64_t most_rows(const pd_share *s) { return s->room * s->parts < s->rows ? s->room * s->parts : s->rows; }

static void rows_rooms(const pd_share *s)
{
	const size_t most = (size_t)most_rows(s), row = (size_t)s->width * sizeof(float);

	for (int i = 0; i < 3; i++)
		rt_want(&of_rows[i], most * (i < 2 ? row : sizeof(int32_t)), "rows that are pushed");
	room(&first, most * row);
	room(&second, most * row);
}

void pd_shares_open(const pd_share *s, int n, char *arena)
{
	size_t end = 1;

	for (int k = 0; k < n; k++) {
		parts = s[k].parts > parts ? s[k].parts : parts;
		if (s[k].at + share_bytes(&s[k]) > end)
			end = s[k].at + share_bytes(&s[k]);
	}
	shares = s;
	nshares = n;
	tensors = arena;
	copy = zeroed(end);
	sums = rt_alloc((size_t)(n * parts + 1) * sizeof *sums);
	for (int k = 0; k < n; k++) {
		for (int p = 0; p < s[k].parts && !s[k].by_rows; p++)
			sums[k * parts + p] =
				zeroed(s[k].whole ? (size_t)s[k].part[p] * sizeof(float) : share_bytes(&s[k]));
		if (s[k].by_rows)
			rows_rooms(&s[k]);
		if (rt_program->squares)
			room(&first, share_bytes(&s[k]));
	}
	host_shares_open(s, n, copy);
}

/* What answers are made from. */
static void get_share(int k) { rt_gpu_get(copy + shares[k].at, tensors + shares[k].at, share_bytes(&shares[k])); }

void pd_serve(void)
{
	for (int k = 0; k < nshares; k++)
		get_share(k);
	host_serve();
}

void pd_collect(int k, int part, float *to)
{
	const pd_share *s = &shares[k];

	if (rt_alone)
		return;
	host_collect(k, part, sums[k * parts + part]);
	put_tensor(to, sums[k * parts + part], s->whole ? (size_t)s->part[part] * sizeof *to : share_bytes(s));
}

/* ---- a server that is asynchronous ---- */

static void (*const *emitted)(void);
static bool by_rows; /* this update has brought what it changed to the copy */

static void update_share(int k)
{
	by_rows = false;
	emitted[k]();
	if (!by_rows)
		get_share(k);
}

void pd_serve_each(void (*const update[])(void))
{
	for (int k = 0; k < nshares && pd_flow() == 0; k++)
		get_share(k);
	emitted = update;
	rt_serve_each(update_share);
}

static bool by_rows_cleared; /* what is behind the rows of an update is updated too, and shall be numbers */

static void *to_device(int i, const void *host, size_t bytes)
{
	put_tensor(of_rows[i].at, host, bytes);
	return of_rows[i].at;
}

int64_t pd_collect_rows(int k, const int32_t **ids, const float **sum)
{
	const pd_share *s = &shares[k];
	const size_t row = (size_t)s->width * sizeof(float);
	const int64_t n = nrows = host_collect_rows(k, ids, sum);
	char *packed = room(&first, (size_t)n * row), *added = room(&second, (size_t)n * row);

	for (int i = 0; i < 3 && !by_rows_cleared; i++)
		pd_fill(of_rows[i].at, 0, of_rows[i].bytes);
	by_rows_cleared = true;

	for (int64_t i = 0; i < n; i++)
		memcpy(packed + (size_t)i * row, copy + s->at + (size_t)(*ids)[i] * row, row);
	memcpy(added, *sum, (size_t)n * row);
	to_device(0, packed, (size_t)n * row);
	*sum = to_device(1, added, (size_t)n * row);
	*ids = to_device(2, *ids, (size_t)n * sizeof **ids);
	return n;
}

float *pd_collected(void) { return of_rows[0].at; }

void pd_put_collected(int k)
{
	const pd_share *s = &shares[k];
	const size_t row = (size_t)s->width * sizeof(float);
	const char *made = got(&first, of_rows[0].at, (size_t)nrows * row);
	const int32_t *ids = got(&second, of_rows[2].at, (size_t)nrows * sizeof *ids);

	pd_place_rows((float *)(void *)(tensors + s->at), s->rows, of_rows[2].at, sizeof *ids, of_rows[0].at, nrows,
		s->width);
	for (int64_t i = 0; i < nrows; i++)
		memcpy(copy + s->at + (size_t)ids[i] * row, made + (size_t)i * row, row);
	by_rows = true;
}

/* ---- between a sum and its update ---- */

static size_t way_bytes(const pd_way *w) { return (size_t)(w->rows * w->width) * sizeof(float); }

void pd_give(const pd_way *w, const float *sum) { host_give(w, got(&first, sum, way_bytes(w))); }

void pd_fetch(const pd_way *w, float *sum)
{
	if (rt_alone)
		return;
	host_fetch(w, room(&first, way_bytes(w)));
	put_tensor(sum, first.at, way_bytes(w));
}

void pd_return(const pd_way *w, const float *made) { host_return(w, got(&first, made, way_bytes(w))); }

void pd_take(const pd_way *w, float *made)
{
	if (rt_alone)
		return;
	host_take(w, room(&first, way_bytes(w)));
	put_tensor(made, first.at, way_bytes(w));
}

/* ---- row-sparse gradients ---- */

struct gpu_rows {
	pd_gatherv *host, *all; /* all: as if this device had done all grains */
	int grains;
	int64_t n, width;
	size_t ids, rows; /* bytes of all grains */
};

pd_gatherv *pd_gatherv_new(int grains, int64_t n, int64_t width, const int *mine, int nmine, int members)
{
	struct gpu_rows *r = rt_alloc(sizeof *r);

	r->host = host_gatherv_new(grains, n, width, mine, nmine, members);
	r->grains = grains;
	r->n = n;
	r->width = width;
	r->ids = (size_t)(grains * n) * sizeof(int32_t);
	r->rows = (size_t)(grains * n * width) * sizeof(float);
	room(&first, r->ids);
	room(&second, r->rows);
	return (pd_gatherv *)(void *)r;
}

static pd_gatherv *all_grains(struct gpu_rows *r)
{
	if (!r->all) {
		int *mine = rt_alloc((size_t)r->grains * sizeof *mine);

		for (int g = 0; g < r->grains; g++)
			mine[g] = g;
		r->all = host_gatherv_new(r->grains, r->n, r->width, mine, r->grains, 1);
		free(mine);
	}
	return r->all;
}

void pd_gatherv_join(pd_gatherv *rows_of, const pd_group *g, int32_t *ids, float *rows)
{
	static rt_flight f;
	struct gpu_rows *r = (struct gpu_rows *)(void *)rows_of;
	const bool direct = g && rt_nccl_rows(&f, g, r->grains, ids, rows, r->n, r->width);

	if (direct)
		rt_wait_on(RT_COMPUTE, f.done);
	int32_t *i = got(&first, ids, r->ids);
	float *v = got(&second, rows, r->rows);

	if (direct)
		host_gatherv_join(all_grains(r), NULL, i, v);
	else
		host_gatherv_join(r->host, g, i, v);
	rt_gpu_put(ids, i, r->ids);
	put_tensor(rows, v, r->rows);
}
