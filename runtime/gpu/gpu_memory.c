/* gpu_memory.c: the memory of a GPU program, on the device and pinned on the host, and what is said where it does not suffice.
 *
 * Whoever needs device memory beside the arena (libraries' workspaces, what kernels keep between launches) asks for a piece before step 0.
 * Nothing is made then: rt_gpu_make knows all pieces, holds their sum against what is free, and makes them, before other ranks are waited
 * for. The driver may wait for kernels where memory is asked for or given back, and kernels wait for messages, so that afterwards nothing is
 * asked for any more. What was asked for is kept as a list, which R521 tells. */
#include "gpu_rt.h"
#include <stdlib.h>

enum {
	PARTS = 32,
	LOADED = 64 << 20
}; /* LOADED: what the driver loads of libraries' kernels and makes of graphs; an allowance */

typedef struct wish wish;
struct wish {
	wish *next;
	rt_piece *piece;
	const char *what;
};

static struct {
	size_t unused, total; /* when the device was opened */
	struct {
		const char *what;
		size_t bytes;
	} part[PARTS];
	int parts;
	wish *wishes;
	bool made;
	char *arena;
} memory;

/* ---- what is needed, and what is told of it ---- */

static void note(const char *what, size_t bytes)
{
	int i = 0;

	while (i < memory.parts && strcmp(memory.part[i].what, what))
		i++;
	if (i == PARTS) {
		i--;
		what = "other pieces";
	}
	memory.parts = i == memory.parts ? i + 1 : memory.parts;
	memory.part[i].what = what;
	memory.part[i].bytes += bytes;
}

static size_t parts_text(char *text, size_t room)
{
	size_t all = 0, n = 0;

	for (int i = 0; i < memory.parts; i++) {
		all += memory.part[i].bytes;
		if (n < room)
			n += (size_t)snprintf(text + n, room - n, "%s%s %zu", i ? ", " : "", memory.part[i].what,
				memory.part[i].bytes);
	}
	return all;
}

_Noreturn void rt_gpu_lacks(const char *what)
{
	char text[1200] = "";
	size_t unused = 0, total = 0;
	const size_t all = parts_text(text, sizeof text);

	rt_refusal_taken();
	(void)cudaMemGetInfo(&unused, &total);
	rt_fail(RT_MEMORY, "R521",
		"%s has too little memory for %s: this program needs %zu bytes (%s); of %zu bytes %zu were free at the start, "
		"%zu are now",
		pd_device_name(), what, all, text, total, memory.unused, unused);
}

size_t rt_gpu_told(char *text, size_t room) { return parts_text(text, room); }

/* The arena, before anything else is done; what is beside it is known to rt_gpu_make. */
void rt_gpu_fits(const pd_program *p)
{
	if (rt_virtual)
		return;
	pd_stream(); /* the device is chosen */
	rt_gpu_check(cudaMemGetInfo(&memory.unused, &memory.total), "cudaMemGetInfo");
	note("the plan's arena", p->arena);
	if (p->arena > memory.unused)
		rt_gpu_lacks("the plan's arena");
	memory.parts = 0; /* it is noted where it is made */
}

/* ---- device memory ---- */

static void *make(size_t bytes, const char *what)
{
	void *p = NULL;

	if (rt_virtual)
		return rt_alloc(bytes);
	pd_stream();
	rt_gpu_check(cudaMalloc(&p, bytes), what);
	return p;
}

void *rt_device_memory(size_t bytes, const char *what)
{
	note(what, bytes);
	return make(bytes, what);
}

void rt_device_release(void *p)
{
	if (p && !rt_nccl_on())
		rt_gpu_check(cudaFree(p), "cudaFree");
}

bool rt_want(rt_piece *piece, size_t bytes, const char *what)
{
	if (bytes <= piece->bytes)
		return true;
	if (rt_gathers() && !memory.made) {
		if (!piece->bytes) {
			wish *w = rt_alloc(sizeof *w);

			*w = (wish){ memory.wishes, piece, what };
			memory.wishes = w;
		}
		piece->bytes = bytes;
		return true;
	}
	if (rt_capturing()) {
		if (!rt_capture_refused(what, "more memory is asked for"))
			rt_fail(RT_ERROR, "R520", "%s: %s: more memory is asked for while a graph is captured",
				pd_device_name(), what);
		return false;
	}
	if (!rt_graphs_made())
		rt_device_release(piece->at);
	piece->at = rt_device_memory(bytes, what); /* or the program ends */
	piece->bytes = bytes;
	return true;
}

void rt_gpu_make(size_t messages)
{
	size_t unused = 0, total = 0, rest = messages + LOADED;

	for (const wish *w = memory.wishes; w; w = w->next) {
		note(w->what, w->piece->bytes);
		rest += w->piece->bytes;
	}
	note("what libraries load (allowance)", LOADED);
	if (messages)
		note("NCCL's buffers (allowance)", messages);
	if (!rt_virtual) {
		rt_gpu_check(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
		if (rest > unused)
			rt_gpu_lacks("what lies beside the arena");
	}
	memory.made = true;
	for (const wish *w = memory.wishes; w; w = w->next)
		w->piece->at = make(w->piece->bytes, w->what);
}

/* ---- pinned memory ---- */

void rt_unpinned(void *p)
{
	if (rt_virtual)
		free(p);
	else if (p && !rt_nccl_on())
		rt_gpu_check(cudaFreeHost(p), "cudaFreeHost");
}

void *rt_pinned(void *before, size_t bytes)
{
	void *p = NULL;

	rt_unpinned(before);
	if (rt_virtual)
		return rt_alloc(bytes);
	pd_stream();
	const cudaError_t e = cudaMallocHost(&p, bytes);

	if (e == cudaErrorMemoryAllocation)
		rt_fail(RT_MEMORY, "R521", "%s: the host lacks %zu bytes of memory that the device can copy from: %s",
			pd_device_name(), bytes, cudaGetErrorString(e));
	rt_gpu_check(e, "pinned memory");
	return p;
}

/* ---- the arena ---- */

size_t rt_gpu_bytes_of(pd_dtype t, int rank, const int64_t *dim)
{
	static const int8_t size[] = { [PD_F32] = 4,
		[PD_U8] = 1,
		[PD_I8] = 1,
		[PD_U16] = 2,
		[PD_I16] = 2,
		[PD_I32] = 4,
		[PD_I64] = 8,
		[PD_BOOL] = 1,
		[PD_F16] = 2,
		[PD_F64] = 8,
		[PD_U32] = 4,
		[PD_U64] = 8,
		[PD_BF16] = 2,
		[PD_F8E4M3] = 1,
		[PD_F8E5M2] = 1 };
	size_t n = (size_t)size[t];

	for (int i = 0; i < rank; i++)
		n *= (size_t)dim[i];
	return n;
}

size_t rt_gpu_bytes(const pd_param *p)
{
	return p->part ? rt_gpu_bytes_of(p->dtype, 1, &p->part) : rt_gpu_bytes_of(p->dtype, p->rank, p->dim);
}

size_t rt_host_arena(const pd_program *p)
{
	size_t end = 1;

	for (int i = 0; i < p->nparams; i++)
		if (p->params[i].offset + rt_gpu_bytes(&p->params[i]) > end)
			end = p->params[i].offset + rt_gpu_bytes(&p->params[i]);
	return end;
}

/* The host's arena is pinned where the system lets it be: parameters come from there, and go back for every checkpoint. */
char *rt_to_gpu(const pd_program *p, char *arena)
{
	if (!rt_virtual && cudaHostRegister(arena, rt_host_arena(p), 0) != cudaSuccess)
		rt_refusal_taken();
	memory.arena = rt_device_memory(p->arena, "the plan's arena");
	pd_fill(memory.arena, 0, p->arena);
	rt_gpu_put(memory.arena, arena, rt_host_arena(p));
	rt_gpu_wait();
	return memory.arena;
}

void rt_from_gpu(const pd_program *p, char *arena)
{
	for (int i = 0; i < p->nparams; i++) {
		const pd_param *q = &p->params[i];

		rt_gpu_get(arena + q->offset, memory.arena + q->offset, rt_gpu_bytes(q));
	}
}

/* ---- first runs ---- */

typedef struct first_run first_run;
struct first_run {
	first_run *next;
	void (*run)(void *of, char *scrap);
	void *of;
	size_t bytes;
};
static first_run *first_runs;
static bool first_running;

void rt_first_run(void (*run)(void *of, char *scrap), void *of, size_t bytes)
{
	first_run *r = rt_alloc(sizeof *r);

	*r = (first_run){ first_runs, run, of, bytes };
	first_runs = r;
}

/* Those that find no room have their first run in step 0. */
void rt_first_runs(void)
{
	size_t unused = 0, total = 0, most = 0;
	void *scrap = NULL;

	if (!first_runs)
		return;
	rt_gpu_check(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
	for (const first_run *r = first_runs; r; r = r->next)
		most = r->bytes > most && r->bytes <= unused / 8 * 7 ? r->bytes : most;
	if (most && cudaMalloc(&scrap, most) != cudaSuccess) {
		rt_refusal_taken();
		return;
	}
	first_running = true;
	for (const first_run *r = first_runs; r; r = r->next)
		if (scrap && r->bytes <= most) {
			pd_fill(scrap, 0, r->bytes);
			r->run(r->of, scrap);
		}
	rt_gpu_wait();
	first_running = false;
	rt_device_release(scrap);
}

bool rt_first_running(void) { return first_running; }

void rt_refusal_taken(void) { (void)cudaGetLastError(); }
