/* gpu_host.c: the host's functions called with tensors that lie on the device. Messages and sums are staged through pinned
 * memory, on streams of their own (gpu_streams.c): a send is posted when its copy is there, what was received is waited for by the
 * stream that computes, not by the host; a sum begins when the copy of its last gradient is there, and is on its way back to the device
 * as soon as it is made, whatever others do. Between stages of one device tensors are copied there. All of that memory is made before
 * step 0, from what the program says of its messages (pd_link), sums (pd_sum_open) and calls (pd_call_open). */
#include "gpu_rt.h"
#include <stdlib.h>

/* ---- the host's side, by the names of gpu_names.h ---- */
void host_irecv(int channel, int slot, int peer, int mb, void *buf, size_t bytes);
void host_isend(int channel, int slot, int peer, int mb, const void *buf, size_t bytes);
void host_wait_recv(int channel, int slot);
void host_wait_send(int channel, int slot);
void host_allreduce(const pd_group *g, float *buf, size_t count);
void host_allreduce_as(const pd_group *g, float *buf, size_t count, const pd_sum *how);
void host_allreduce_start(const pd_group *g, float *buf, size_t count, const pd_sum *how);
void host_allreduce_wait(void);
void host_tag_write(pd_tag *tag, int mb, int64_t version);
int64_t host_tag_read(const pd_tag *tag, int mb);
void host_count_join(const pd_group *g, bool later);
void host_sums_wait(void);
void host_allgather(const pd_group *g, const void *in, void *out, size_t bytes);
void host_broadcast(const pd_group *g, int from, void *buf, size_t bytes);
size_t host_tree_bytes(int grains, size_t count, const int *mine, int nmine);
pd_tree *host_tree_new(int grains, size_t count, const int *mine, int nmine, void *mem);
float *host_tree_leaf(pd_tree *t, int mb);
void host_tree_done(pd_tree *t, int mb);
float *host_tree_root(pd_tree *t, const pd_group *g);
float *host_tree_join(pd_tree *t, const pd_group *g, size_t count);
void host_gradient(int i, const void *sum);
void host_gradient_rows(int i, const int32_t *ids, const void *rows, int64_t n, int64_t width, int add);
void host_check(const char *what, pd_dtype t, const void *v, int64_t n);

/* ---- staging ---- */

typedef struct stage {
	void *host, *tensor;
	size_t bytes, room;
	bool open, queued;         /* received, not copied; sent, not posted */
	cudaEvent_t ready, copied; /* the tensor may be read or written; the copy is there */
	int channel, slot, peer, mb;
	bool direct, local; /* from GPU to GPU: flight; to another stage of this device */
	rt_flight flight;
} stage;

static void make_room(stage *s, size_t bytes)
{
	if (bytes <= s->room)
		return;
	s->host = rt_pinned(s->host, bytes);
	s->room = bytes;
}

/* What the host works on in place of a tensor of one call; `read`: with what it holds. */
static stage whole, second;

static void *begin(stage *s, const void *tensor, size_t bytes, bool read)
{
	make_room(s, bytes);
	rt_gpu_wait(); /* an earlier copy from there */
	if (!read)
		return s->host;
	rt_copy_on(RT_COMPUTE, s->host, tensor, bytes, true);
	rt_gpu_wait();
	return s->host;
}

static struct {
	size_t whole, second;
} calls[PD_CALLS];

void pd_call_open(pd_call of, size_t bytes, size_t more)
{
	calls[of].whole = bytes > calls[of].whole ? bytes : calls[of].whole;
	calls[of].second = more > calls[of].second ? more : calls[of].second;
}

static void call_rooms(bool direct)
{
	size_t most = 0;

	for (int i = 0; i < rt_program->nparams; i++)
		if (rt_program->params[i].trained && rt_gpu_bytes(&rt_program->params[i]) > most)
			most = rt_gpu_bytes(&rt_program->params[i]);
	pd_call_open(PD_CALL_GRADIENT, most, 0);
	for (int k = 0; k < PD_CALLS; k++) {
		const bool shares = !direct || rt_program->tensor_of; /* groups of unlike members do by the host */

		if ((k == PD_CALL_GROUP && !shares) || (k == PD_CALL_GRADIENT && !rt_keeps_gradients()))
			continue;
		make_room(&whole, calls[k].whole);
		make_room(&second, calls[k].second);
	}
}

static stage *slots, *slots_sent;

static stage *slot_of(stage **table, int channel, int slot)
{
	if (!*table)
		*table = rt_alloc((size_t)rt_program->channels * (size_t)rt_program->slots * sizeof **table);
	return &(*table)[channel * rt_program->slots + slot];
}

static void message_rooms(bool direct)
{
	for (int i = 0; i < rt_program->nlinks; i++) {
		const pd_link *l = &rt_program->links[i];

		for (int k = 0; k < l->slots && (!direct || l->lane < 0); k++)
			make_room(slot_of(l->sends ? &slots_sent : &slots, l->channel, k), l->bytes);
	}
}

void pd_irecv(int channel, int slot, int peer, int mb, void *buf, size_t bytes)
{
	stage *s = slot_of(&slots, channel, slot);

	s->direct = rt_nccl_message(&s->flight, channel, mb, peer, buf, bytes, false);
	if (s->direct) {
		rt_record("receive", mb, channel, peer);
		return;
	}
	if (peer == rt_program->rank) {
		host_irecv(channel, slot, peer, mb, buf, bytes);
		return;
	}
	rt_until(s->copied); /* what came here before */
	make_room(s, bytes);
	s->tensor = buf;
	s->bytes = bytes;
	s->open = true;
	rt_record_on(&s->ready, RT_COMPUTE);
	host_irecv(channel, slot, peer, mb, s->host, bytes);
}

void pd_wait_recv(int channel, int slot)
{
	stage *s = slot_of(&slots, channel, slot);

	if (rt_section_before(RT_TODO_RECEIVED, channel, slot, NULL))
		return;
	if (s->direct) {
		rt_pause();
		rt_record("await", s->flight.mb, channel, s->flight.peer);
		rt_wait_on(RT_COMPUTE, s->flight.done);
		return;
	}
	host_wait_recv(channel, slot);
	if (!s->open)
		return;
	rt_wait_on(RT_RECEIVES, s->ready);
	rt_copy_on(RT_RECEIVES, s->tensor, s->host, s->bytes, false);
	rt_record_on(&s->copied, RT_RECEIVES);
	rt_wait_on(RT_COMPUTE, s->copied);
	s->open = false;
}

void rt_local_copy(void *to, const void *from, size_t bytes)
{
	if (rt_virtual)
		memcpy(to, from, bytes);
	else
		pd_copy(to, from, bytes);
}

/* What was sent from there before is gone, and its place in the host's memory free. */
static void settle(const stage *s)
{
	while (s->queued) {
		rt_until(s->copied);
		rt_gpu_advance();
	}
	if (s->host)
		host_wait_send(s->channel, s->slot);
}

static void post(void *what)
{
	stage *s = what;

	s->queued = false;
	host_isend(s->channel, s->slot, s->peer, s->mb, s->host, s->bytes);
}

void pd_isend(int channel, int slot, int peer, int mb, const void *buf, size_t bytes)
{
	stage *s = slot_of(&slots_sent, channel, slot);

	s->direct = rt_nccl_message(&s->flight, channel, mb, peer, (void *)(uintptr_t)buf, bytes, true);
	if (s->direct) {
		rt_lock();
		rt_traffic(peer, 0, true, bytes);
		rt_unlock();
		rt_record("send", mb, channel, peer);
		return;
	}
	s->local = peer == rt_program->rank;
	if (s->local) {
		host_isend(channel, slot, peer, mb, buf, bytes);
		return;
	}
	settle(s);
	make_room(s, bytes);
	s->bytes = bytes;
	s->channel = channel;
	s->slot = slot;
	s->peer = peer;
	s->mb = mb;
	rt_record_on(&s->ready, RT_COMPUTE);
	rt_wait_on(RT_SENDS, s->ready);
	rt_copy_on(RT_SENDS, s->host, buf, bytes, true);
	rt_record_on(&s->copied, RT_SENDS);
	s->queued = true;
	rt_then(s->copied, post, s);
}

/* The tensor may be written again once its copy is there; that the message has left is for the next one to wait for. */
void pd_wait_send(int channel, int slot)
{
	const stage *s = slot_of(&slots_sent, channel, slot);

	if (rt_section_before(RT_TODO_SENT, channel, slot, NULL))
		return;
	if (s->direct) {
		rt_pause();
		rt_wait_on(RT_COMPUTE, s->flight.done);
		return;
	}
	rt_pause();
	if (s->local)
		host_wait_send(channel, slot);
	else
		rt_wait_on(RT_COMPUTE, s->copied);
}

/* Sums that run in the background, in the order in which a step begins them: those of the GPUs themselves are waited for by the last. */
static rt_flight direct;

/* Where a later update takes them: an event behind those of the step. */
static cudaEvent_t *behind_step(int64_t step)
{
	static cudaEvent_t *event;
	const int64_t n = rt_program->flow + 1;

	if (!event)
		event = rt_alloc((size_t)n * sizeof *event);
	return &event[step % n];
}

/* Sums that are staged, in the order in which they were begun: n of a step so far, of which `begun` are the host's to make and `back`
 * on their way back. */
typedef struct sum_of {
	stage sum, residual;
	const pd_group *group;
	pd_sum how;
	bool plain;
	int64_t number;
} sum_of;
static struct {
	sum_of **v;
	int n, begun, back, room;
} sums;

/* What a step will begin, each with the rooms that it needs; which of them is which shows in the first step. */
static void more_sums(void)
{
	const int n = sums.room ? 2 * sums.room : 64;

	sums.v = realloc(sums.v, (size_t)n * sizeof *sums.v);
	if (!sums.v)
		rt_fail(RT_MEMORY, "R501", "no memory for %d sums", n);
	while (sums.room < n)
		sums.v[sums.room++] = rt_alloc(sizeof **sums.v);
}

static struct opened {
	size_t bytes;
	bool exact, residual;
} *opened;
static int nopened;

void pd_sum_open(size_t count, const pd_sum *how)
{
	opened = realloc(opened, (size_t)(nopened + 1) * sizeof *opened);
	if (!opened)
		rt_fail(RT_MEMORY, "R501", "no memory for %d sums", nopened + 1);
	opened[nopened++] =
		(struct opened){ count * sizeof(float), !how || how->codec == PD_CODEC_EXACT, how && how->residual };
}

static void sum_rooms(bool direct)
{
	for (int i = 0, n = 0; i < nopened; i++) {
		if (direct && opened[i].exact)
			continue;
		if (n == sums.room)
			more_sums();
		make_room(&sums.v[n]->sum, opened[i].bytes);
		make_room(&sums.v[n++]->residual, opened[i].residual ? opened[i].bytes : 0);
	}
}

/* A place for the next sum of the step, the smallest that suffices; it stays the place of this sum of a step. */
static sum_of *next_sum(size_t bytes, bool residual)
{
	int found = sums.n;

	if (sums.n == sums.room)
		more_sums();
	for (int k = sums.n; k < sums.room; k++) {
		const sum_of *s = sums.v[k], *best = sums.v[found];

		if (s->sum.room >= bytes && (!residual || s->residual.room >= bytes) &&
			(best->sum.room < bytes || (residual && best->residual.room < bytes) ||
				s->sum.room < best->sum.room))
			found = k;
	}
	sum_of *s = sums.v[found];

	sums.v[found] = sums.v[sums.n];
	return sums.v[sums.n++] = s;
}

static void to_host(stage *s, void *tensor, size_t bytes)
{
	rt_until(s->copied);
	make_room(s, bytes);
	s->tensor = tensor;
	s->bytes = bytes;
	rt_record_on(&s->ready, RT_COMPUTE);
	rt_wait_on(RT_SUMS, s->ready);
	rt_copy_on(RT_SUMS, s->host, tensor, bytes, true);
	rt_record_on(&s->copied, RT_SUMS);
}

static void to_device(stage *s)
{
	rt_copy_on(RT_RETURNS, s->tensor, s->host, s->bytes, false);
	rt_record_on(&s->copied, RT_RETURNS);
}

static void begin_sum(void *what)
{
	sum_of *s = what;

	host_allreduce_start(s->group, s->sum.host, s->sum.bytes / sizeof(float), s->plain ? NULL : &s->how);
	s->number = rt_ring_begun();
	sums.begun++;
}

void rt_sums_return(void)
{
	while (sums.back < sums.begun && rt_ring_over() >= sums.v[sums.back]->number) {
		sum_of *s = sums.v[sums.back++];

		to_device(&s->sum);
		if (s->how.residual)
			to_device(&s->residual);
	}
}

static void start_between(const rt_cut *b)
{
	pd_allreduce_start(b->group, b->to, (size_t)b->count, b->plain ? NULL : &b->how);
}

void pd_allreduce_start(const pd_group *g, float *buf, size_t count, const pd_sum *how)
{
	static int64_t step = -1;

	if (rt_section_cut(&(rt_cut){ .begin = start_between,
		    .group = g,
		    .to = buf,
		    .count = (int64_t)count,
		    .plain = !how,
		    .how = how ? *how : (pd_sum){ 0 } }))
		return;
	if ((!how || how->codec == PD_CODEC_EXACT) && rt_nccl_sum(&direct, g, buf, count))
		return;
	if (how && how->residual && step != rt_step) {
		pd_allreduce_wait(); /* sums of earlier steps have left what their residuals are */
		step = rt_step;
	}
	sum_of *s = next_sum(count * sizeof *buf, how && how->residual);

	s->group = g;
	s->plain = !how;
	s->how = how ? *how : (pd_sum){ 0 };
	if (s->how.residual) {
		to_host(&s->residual, s->how.residual, count * sizeof *buf);
		s->how.residual = s->residual.host;
	}
	to_host(&s->sum, buf, count * sizeof *buf);
	rt_then(s->sum.copied, begin_sum, s);
}

/* What is started next has the first n sums; the host waits for those that it makes itself, in their order. Their places are free. */
static void have_sums(int n)
{
	for (rt_sums_return(); sums.back < n; rt_sums_return())
		rt_wait_sum(sums.v[sums.back]->number);
	for (int i = 0; i < n; i++) {
		sum_of *s = sums.v[0];

		rt_wait_on(RT_COMPUTE, s->sum.copied);
		if (s->how.residual)
			rt_wait_on(RT_COMPUTE, s->residual.copied);
		memmove(sums.v, sums.v + 1, (size_t)--sums.n * sizeof *sums.v);
		sums.v[sums.n] = s;
	}
	sums.begun -= n;
	sums.back -= n;
}

void pd_allreduce_wait(void)
{
	rt_wait_on(RT_COMPUTE, direct.done);
	rt_gpu_drain();
	have_sums(sums.n);
	host_allreduce_wait(); /* what the host sums for itself */
}

void pd_allreduce(const pd_group *g, float *buf, size_t count)
{
	static rt_flight f;

	if (rt_nccl_sum(&f, g, buf, count)) {
		rt_wait_on(RT_COMPUTE, f.done);
		return;
	}
	float *host = begin(&whole, buf, count * sizeof *buf, true);

	host_allreduce(g, host, count);
	rt_copy_on(RT_COMPUTE, buf, host, count * sizeof *buf, false);
}

void pd_allreduce_as(const pd_group *g, float *buf, size_t count, const pd_sum *how)
{
	pd_allreduce_start(g, buf, count, how);
	pd_allreduce_wait();
}

/* Sums begin in one order on every rank, and the count's begins at once. */
void pd_count_join(const pd_group *g, bool later)
{
	rt_gpu_drain();
	host_count_join(g, later);
	if (later)
		rt_record_on(behind_step(rt_step), RT_SUMS);
}

void pd_sums_wait(void)
{
	const int64_t last = rt_flow_sums();
	int n = 0;

	rt_wait_on(RT_COMPUTE, *behind_step(rt_update_step));
	while (n < sums.begun && sums.v[n]->number <= last)
		n++;
	have_sums(n);
	host_sums_wait(); /* how many labels count */
}

void pd_tag_write(pd_tag *tag, int mb, int64_t version)
{
	pd_tag t;

	host_tag_write(&t, mb, version);
	rt_gpu_put(tag, &t, sizeof t);
	rt_gpu_wait();
}

int64_t pd_tag_read(const pd_tag *tag, int mb)
{
	pd_tag t;

	rt_gpu_get(&t, tag, sizeof t);
	return host_tag_read(&t, mb);
}

void pd_allgather(const pd_group *g, const void *in, void *out, size_t bytes)
{
	void *from = begin(&second, in, bytes, true), *to = begin(&whole, out, bytes * (size_t)g->n, false);

	host_allgather(g, from, to, bytes);
	rt_copy_on(RT_COMPUTE, out, to, bytes * (size_t)g->n, false);
}

void pd_broadcast(const pd_group *g, int from, void *buf, size_t bytes)
{
	static rt_flight f;

	if (rt_nccl_broadcast(&f, g, from, buf, bytes)) {
		rt_wait_on(RT_COMPUTE, f.done);
		return;
	}
	void *host = begin(&whole, buf, bytes, true);

	host_broadcast(g, from, host, bytes);
	rt_copy_on(RT_COMPUTE, buf, host, bytes, false);
}

void pd_gradient(int i, const void *sum)
{
	if (rt_keeps_gradients())
		host_gradient(i, begin(&whole, sum, rt_gpu_bytes(&rt_program->params[i]), true));
}

void pd_gradient_rows(int i, const int32_t *ids, const void *rows, int64_t n, int64_t width, int add)
{
	if (!rt_keeps_gradients())
		return;
	const void *r = begin(&whole, rows, (size_t)(n * width) * sizeof(float), true);

	host_gradient_rows(i, begin(&second, ids, (size_t)n * sizeof *ids, true), r, n, width, add);
}

void pd_check(const char *what, pd_dtype t, const void *v, int64_t n)
{
	host_check(what, t, begin(&whole, v, (size_t)n * (t == PD_F64 ? 8 : 4), true), n);
}

/* ---- reproducible sums: the tree is the host's, a leaf lies on the device while it is filled ---- */

struct gpu_tree {
	pd_tree *host;
	float *leaf, *on_host;
	size_t bytes;
};

size_t pd_tree_bytes(int grains, size_t count, const int *mine, int nmine)
{
	(void)grains;
	(void)mine;
	(void)nmine;
	return count * sizeof(float);
}

pd_tree *pd_tree_new(int grains, size_t count, const int *mine, int nmine, void *mem)
{
	struct gpu_tree *t = rt_alloc(sizeof *t);

	const size_t bytes = host_tree_bytes(grains, count, mine, nmine);
	void *host = rt_pinned(NULL, bytes);

	memset(host, 0, bytes);
	t->host = host_tree_new(grains, count, mine, nmine, host);
	t->leaf = mem;
	t->bytes = count * sizeof(float);
	return (pd_tree *)(void *)t;
}

float *pd_tree_leaf(pd_tree *tree, int mb)
{
	struct gpu_tree *t = (struct gpu_tree *)(void *)tree;

	t->on_host = host_tree_leaf(t->host, mb);
	pd_fill(t->leaf, 0, t->bytes);
	return t->leaf;
}

void pd_tree_done(pd_tree *tree, int mb)
{
	struct gpu_tree *t = (struct gpu_tree *)(void *)tree;

	rt_gpu_get(t->on_host, t->leaf, t->bytes);
	host_tree_done(t->host, mb);
}

float *pd_tree_root(pd_tree *tree, const pd_group *g)
{
	struct gpu_tree *t = (struct gpu_tree *)(void *)tree;

	rt_gpu_put(t->leaf, host_tree_root(t->host, g), t->bytes);
	rt_gpu_wait();
	return t->leaf;
}

float *pd_tree_join(pd_tree *tree, const pd_group *g, size_t count)
{
	struct gpu_tree *t = (struct gpu_tree *)(void *)tree;

	rt_gpu_put(t->leaf, host_tree_join(t->host, g, count), count * sizeof(float));
	rt_gpu_wait();
	return t->leaf;
}

pd_tree *rt_gpu_tree(pd_tree *tree) { return ((struct gpu_tree *)(void *)tree)->host; }

void pd_clip_scaled(float *to, const float *count, double most) { pd_set(to, rt_clip_scaled(pd_get(count), most)); }

void rt_host_rooms(bool direct)
{
	message_rooms(direct);
	sum_rooms(direct);
	call_rooms(direct);
	rt_input_rooms();
}
