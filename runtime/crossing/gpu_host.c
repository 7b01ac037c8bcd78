/* gpu_host.c: the host's functions called with tensors that lie on the device. Messages are staged through pinned
 * memory, on streams of their own (gpu_streams.c): a send is posted when its copy is there, what was received is waited for by the
 * stream that computes, not by the host. Between stages of one device tensors are copied there. All of that memory is made before
 * step 0, from what the program says of its messages (pd_link) and calls (pd_call_open); sums: gpu_sums.c. */
#include "gpu_rt.h"
#include <stdlib.h>

/* ---- the host's side, by the names of gpu_names.h ---- */
void host_irecv(int channel, int slot, int peer, int mb, void *buf, size_t bytes);
void host_isend(int channel, int slot, int peer, int mb, const void *buf, size_t bytes);
void host_wait_recv(int channel, int slot);
void host_wait_send(int channel, int slot);
void host_allreduce(const pd_group *g, float *buf, size_t count);
void host_tag_write(pd_tag *tag, int mb, int64_t version);
int64_t host_tag_read(const pd_tag *tag, int mb);
void host_allgather(const pd_group *g, const void *in, void *out, size_t bytes);
void host_broadcast(const pd_group *g, int from, void *buf, size_t bytes);
size_t host_tree_bytes(int grains, size_t count, const int *mine, int nmine);
pd_tree *host_tree_new(int grains, size_t count, const int *mine, int nmine, void *mem);
float *host_tree_leaf(pd_tree *t, int mb);
void host_tree_done(pd_tree *t, int mb);
float *host_tree_root(pd_tree *t, const pd_group *g);
float *host_tree_join(pd_tree *t, const pd_group *g, size_t count);
void host_gradient(int i, const void *sum);
void host_gradient_part(const pd_group *g, int i, const void *part, int64_t n);
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

/* Of a gradient of parameter i, none of whose replicas has a part alone. */
static size_t whole_bytes(int i)
{
	const pd_param *p = &rt_program->params[i];

	return rt_gpu_bytes_of(p->dtype, p->rank, p->dim);
}

static void call_rooms(bool direct)
{
	size_t most = 0;

	for (int i = 0; i < rt_program->nparams; i++)
		if (rt_program->params[i].trained && whole_bytes(i) > most)
			most = whole_bytes(i);
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
		host_gradient(i, begin(&whole, sum, whole_bytes(i), true));
}

void pd_gradient_part(const pd_group *g, int i, const void *part, int64_t n)
{
	if (rt_keeps_gradients())
		host_gradient_part(g, i, begin(&whole, part, (size_t)n * sizeof(float), true), n);
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
	rt_sum_rooms(direct);
	call_rooms(direct);
	rt_input_rooms();
}
