/* gpu_host.c: a GPU program's device, its memory and its stream, and the host's functions called with tensors that lie on
 * the device. Messages and sums are staged through pinned memory: a send waits until the device has made what is sent, a
 * receive is copied in the order of the stream. Everything is allocated before step 0 or in its first use. */
#include "rt.h"
#include <cuda_runtime_api.h>
#include <stdlib.h>

/* ---- the host's side, by the names of gpu_names.h ---- */
void   host_irecv(int channel, int slot, int peer, int mb, void *buf, size_t bytes);
void   host_isend(int channel, int slot, int peer, int mb, const void *buf, size_t bytes);
void   host_wait_recv(int channel, int slot);
void   host_wait_send(int channel, int slot);
void   host_input(int i, int mb, void *dst);
void   host_allreduce(const pd_group *g, float *buf, size_t count);
void   host_allreduce_as(const pd_group *g, float *buf, size_t count, const pd_sum *how);
void   host_allreduce_start(const pd_group *g, float *buf, size_t count, const pd_sum *how);
void   host_allreduce_wait(void);
void   host_tag_write(pd_tag *tag, int mb, int64_t version);
int64_t host_tag_read(const pd_tag *tag, int mb);
void   host_allgather(const pd_group *g, const void *in, void *out, size_t bytes);
void   host_broadcast(const pd_group *g, int from, void *buf, size_t bytes);
size_t host_tree_bytes(int grains, size_t count, const int *mine, int nmine);
pd_tree *host_tree_new(int grains, size_t count, const int *mine, int nmine, void *mem);
float *host_tree_leaf(pd_tree *t, int mb);
void   host_tree_done(pd_tree *t, int mb);
float *host_tree_root(pd_tree *t, const pd_group *g);
void   host_gradient(int i, const void *sum);
void   host_gradient_rows(int i, const int32_t *ids, const void *rows, int64_t n, int64_t width, int add);
void   host_check(const char *what, pd_dtype t, const void *v, int64_t n);

static struct {
	cudaStream_t stream;
	char        *arena;
	char         name[300];
	double      *numbers;           /* on the device */
	int          nnumbers;
	void        *room;
	size_t       room_bytes;
} gpu;

static void check(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return;
	if (e == cudaErrorMemoryAllocation)
		rt_fail(RT_MEMORY, "R521", "%s: %s", gpu.name, cudaGetErrorString(e));
	rt_fail(RT_ERROR, "R520", "%s: %s: %s", gpu.name[0] ? gpu.name : "GPU", what, cudaGetErrorString(e));
}

/* ---- the device ---- */

/* The place of this rank among those of its host: as the launcher says. */
static int local_rank(void)
{
	static const char *const from[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID" };

	for (int i = 0; i < 3; i++)
		if (getenv(from[i]))
			return atoi(getenv(from[i]));
	return rt_program ? rt_program->rank : 0;
}

static void open_device(void)
{
	struct cudaDeviceProp p;
	int                   n = 0;
	const cudaError_t     e = cudaGetDeviceCount(&n);

	if (gpu.stream)
		return;
	if (e != cudaSuccess || n < 1)
		rt_fail(RT_ERROR, "R520", "no GPU: %s; this program was written for --target cuda",
		        e == cudaSuccess ? "none is there" : cudaGetErrorString(e));
	const int d = local_rank() % n;

	check(cudaSetDevice(d), "cudaSetDevice");
	check(cudaGetDeviceProperties(&p, d), "cudaGetDeviceProperties");
	snprintf(gpu.name, sizeof gpu.name, "%.255s (device %d of %d)", p.name, d, n);
	check(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking), "cudaStreamCreate");
}

void pd_threads(int n)
{
	(void)n; /* the host computes nothing */
}

const char *pd_device_name(void)
{
	return gpu.name;
}

void pd_check_scratch(const char *what, size_t asked, size_t planned)
{
	(void)what;
	(void)asked;
	(void)planned; /* the library's workspace is not of the arena (gpu_library.c) */
}

cudaStream_t pd_stream(void);

cudaStream_t pd_stream(void)
{
	if (!gpu.stream)
		open_device();
	return gpu.stream;
}

void pd_launched(const char *kernel);

void pd_launched(const char *kernel)
{
	const cudaError_t e = cudaGetLastError();

	if (e != cudaSuccess)
		rt_fail(RT_ERROR, "R522", "%s: kernel %s: %s", gpu.name, kernel, cudaGetErrorString(e));
}

static void wait_for_device(void)
{
	check(cudaStreamSynchronize(pd_stream()), "a kernel or copy before");
}

static void get(void *host, const void *tensor, size_t bytes)
{
	check(cudaMemcpyAsync(host, tensor, bytes, cudaMemcpyDeviceToHost, pd_stream()), "copy to the host");
	wait_for_device();
}

static void put(void *tensor, const void *host, size_t bytes)
{
	check(cudaMemcpyAsync(tensor, host, bytes, cudaMemcpyHostToDevice, pd_stream()), "copy to the device");
}

/* ---- the arena ---- */

static size_t bytes_of_dims(pd_dtype t, int rank, const int64_t *dim)
{
	static const int8_t size[] = { [PD_F32] = 4, [PD_U8] = 1, [PD_I8] = 1, [PD_U16] = 2, [PD_I16] = 2, [PD_I32] = 4,
		[PD_I64] = 8, [PD_BOOL] = 1, [PD_F16] = 2, [PD_F64] = 8, [PD_U32] = 4, [PD_U64] = 8, [PD_BF16] = 2 };
	size_t n = (size_t)size[t];

	for (int i = 0; i < rank; i++)
		n *= (size_t)dim[i];
	return n;
}

static size_t bytes_of(const pd_param *p)
{
	return bytes_of_dims(p->dtype, p->rank, p->dim);
}

size_t rt_host_arena(const pd_program *p)
{
	size_t end = 1;

	for (int i = 0; i < p->nparams; i++)
		if (p->params[i].offset + bytes_of(&p->params[i]) > end)
			end = p->params[i].offset + bytes_of(&p->params[i]);
	return end;
}

void *rt_device_memory(size_t bytes, const char *what)
{
	void             *p = NULL;
	size_t            unused = 0, total = 0;
	const cudaError_t e = cudaMalloc(&p, bytes);

	cudaMemGetInfo(&unused, &total);
	if (e == cudaErrorMemoryAllocation)
		rt_fail(RT_MEMORY, "R521", "%s: %s needs %zu bytes, %zu of %zu are free", gpu.name, what, bytes, unused, total);
	check(e, what);
	return p;
}

char *rt_to_gpu(const pd_program *p, char *arena)
{
	open_device();
	gpu.arena = rt_device_memory(p->arena, "the arena of this device");
	check(cudaMemsetAsync(gpu.arena, 0, p->arena, gpu.stream), "cudaMemset");
	put(gpu.arena, arena, rt_host_arena(p));
	wait_for_device();
	return gpu.arena;
}

void rt_from_gpu(const pd_program *p, char *arena)
{
	for (int i = 0; i < p->nparams; i++) {
		const pd_param *q = &p->params[i];

		check(cudaMemcpyAsync(arena + q->offset, gpu.arena + q->offset, bytes_of(q), cudaMemcpyDeviceToHost, gpu.stream),
		      "copy of a parameter");
	}
	wait_for_device();
}

/* ---- small things ---- */

const void *pd_constant(const void *on_host, size_t bytes)
{
	void *p = rt_device_memory(bytes, "a constant");

	put(p, on_host, bytes);
	wait_for_device();
	return p;
}

void pd_copy(void *to, const void *from, size_t bytes)
{
	check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, pd_stream()), "copy on the device");
}

void pd_copy_rows(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n, int64_t rows, size_t size)
{
	check(cudaMemcpy2DAsync(to, (size_t)to_row * size, from, (size_t)from_row * size, (size_t)n * size, (size_t)rows,
	                        cudaMemcpyDeviceToDevice, pd_stream()), "copy on the device");
}

void pd_fill(void *to, int byte, size_t bytes)
{
	check(cudaMemsetAsync(to, byte, bytes, pd_stream()), "cudaMemset");
}

double pd_get(const float *from)
{
	float v;

	get(&v, from, sizeof v);
	return (double)v;
}

void *pd_room(size_t bytes);

void *pd_room(size_t bytes)
{
	if (bytes > gpu.room_bytes) {
		wait_for_device();
		if (gpu.room)
			check(cudaFree(gpu.room), "cudaFree");
		gpu.room = rt_device_memory(bytes, "room for a kernel");
		gpu.room_bytes = bytes;
	}
	return gpu.room;
}

double *pd_numbers(int n);

double *pd_numbers(int n)
{
	if (n > gpu.nnumbers) {
		gpu.numbers = rt_device_memory((size_t)n * sizeof *gpu.numbers, "numbers for the host");
		gpu.nnumbers = n;
	}
	return gpu.numbers;
}

double pd_number(const double *number);

double pd_number(const double *number)
{
	double v;

	get(&v, number, sizeof v);
	return v;
}

void pd_report_from(int mb, const float *loss, const float *count)
{
	const double l = pd_get(loss);

	pd_report(mb, l, pd_get(count));
}

void pd_hits_from(int mb, const float *hits)
{
	const double n = pd_get(hits);

	pd_hits(mb, n, pd_get(hits + 1));
}

/* ---- staging ---- */

typedef struct stage {
	void  *host, *tensor;
	size_t bytes, room;
	bool   open;
} stage;

static void make_room(stage *s, size_t bytes)
{
	if (bytes <= s->room)
		return;
	if (s->host)
		check(cudaFreeHost(s->host), "cudaFreeHost");
	check(cudaMallocHost(&s->host, bytes), "pinned memory");
	s->room = bytes;
}

/* What the host works on in place of a tensor of one call; `read`: with what it holds. */
static stage whole, second;

static void *begin(stage *s, const void *tensor, size_t bytes, bool read)
{
	make_room(s, bytes);
	wait_for_device(); /* an earlier copy from there */
	if (read)
		get(s->host, tensor, bytes);
	return s->host;
}

static stage *slots, *slots_sent;

static stage *slot_of(stage **table, int channel, int slot)
{
	if (!*table)
		*table = rt_alloc((size_t)rt_program->channels * (size_t)rt_program->slots * sizeof **table);
	return &(*table)[channel * rt_program->slots + slot];
}

void pd_irecv(int channel, int slot, int peer, int mb, void *buf, size_t bytes)
{
	stage *s = slot_of(&slots, channel, slot);

	make_room(s, bytes);
	s->tensor = buf;
	s->bytes = bytes;
	s->open = true;
	host_irecv(channel, slot, peer, mb, s->host, bytes);
}

void pd_wait_recv(int channel, int slot)
{
	stage *s = slot_of(&slots, channel, slot);

	host_wait_recv(channel, slot);
	if (!s->open)
		return;
	put(s->tensor, s->host, s->bytes);
	wait_for_device(); /* the next receive goes to the same memory */
	s->open = false;
}

void pd_isend(int channel, int slot, int peer, int mb, const void *buf, size_t bytes)
{
	stage *s = slot_of(&slots_sent, channel, slot);

	make_room(s, bytes);
	get(s->host, buf, bytes);
	host_isend(channel, slot, peer, mb, s->host, bytes);
}

void pd_wait_send(int channel, int slot)
{
	host_wait_send(channel, slot);
}

void pd_input(int i, int mb, void *dst)
{
	const pd_input_desc *d = &rt_program->inputs[i];
	const size_t         bytes = bytes_of_dims(d->dtype, d->rank, d->dim);
	void                *host = begin(&whole, dst, bytes, false);

	host_input(i, mb, host);
	put(dst, host, bytes);
}

void pd_allreduce(const pd_group *g, float *buf, size_t count)
{
	float *host = begin(&whole, buf, count * sizeof *buf, true);

	host_allreduce(g, host, count);
	put(buf, host, count * sizeof *buf);
}

void pd_allreduce_as(const pd_group *g, float *buf, size_t count, const pd_sum *how)
{
	float *host = begin(&whole, buf, count * sizeof *buf, true);

	host_allreduce_as(g, host, count, how);
	put(buf, host, count * sizeof *buf);
}

/* Sums that run in the background, in the order in which a step begins them. */
static struct {
	stage *v;
	int    n, room;
} sums;

void pd_allreduce_start(const pd_group *g, float *buf, size_t count, const pd_sum *how)
{
	if (sums.n == sums.room) {
		sums.room = sums.room ? 2 * sums.room : 64;
		sums.v = realloc(sums.v, (size_t)sums.room * sizeof *sums.v);
		if (!sums.v)
			rt_fail(RT_MEMORY, "R501", "no memory for %d sums", sums.room);
		memset(sums.v + sums.n, 0, (size_t)(sums.room - sums.n) * sizeof *sums.v);
	}
	stage *s = &sums.v[sums.n++];

	s->tensor = buf;
	s->bytes = count * sizeof *buf;
	host_allreduce_start(g, begin(s, buf, s->bytes, true), count, how);
}

void pd_allreduce_wait(void)
{
	host_allreduce_wait();
	while (sums.n > 0) {
		const stage *s = &sums.v[--sums.n];

		put(s->tensor, s->host, s->bytes);
	}
	wait_for_device();
}

void pd_tag_write(pd_tag *tag, int mb, int64_t version)
{
	pd_tag t;

	host_tag_write(&t, mb, version);
	put(tag, &t, sizeof t);
	wait_for_device();
}

int64_t pd_tag_read(const pd_tag *tag, int mb)
{
	pd_tag t;

	get(&t, tag, sizeof t);
	return host_tag_read(&t, mb);
}

void pd_allgather(const pd_group *g, const void *in, void *out, size_t bytes)
{
	void *from = begin(&second, in, bytes, true), *to = begin(&whole, out, bytes * (size_t)g->n, false);

	host_allgather(g, from, to, bytes);
	put(out, to, bytes * (size_t)g->n);
}

void pd_broadcast(const pd_group *g, int from, void *buf, size_t bytes)
{
	void *host = begin(&whole, buf, bytes, true);

	host_broadcast(g, from, host, bytes);
	put(buf, host, bytes);
}

void pd_gradient(int i, const void *sum)
{
	if (rt_keeps_gradients())
		host_gradient(i, begin(&whole, sum, bytes_of(&rt_program->params[i]), true));
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

struct gpu_tree { pd_tree *host; float *leaf, *on_host; size_t bytes; };

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

	t->host = host_tree_new(grains, count, mine, nmine, rt_alloc(host_tree_bytes(grains, count, mine, nmine)));
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

	get(t->on_host, t->leaf, t->bytes);
	host_tree_done(t->host, mb);
}

float *pd_tree_root(pd_tree *tree, const pd_group *g)
{
	struct gpu_tree *t = (struct gpu_tree *)(void *)tree;

	put(t->leaf, host_tree_root(t->host, g), t->bytes);
	wait_for_device();
	return t->leaf;
}
