/* gpu_device.c: a GPU program's device, the stream that computes, small copies, losses. With --virtual nothing is computed: no GPU is
 * asked for, and tensors lie in the host's memory. */
#include "gpu_rt.h"
#include <stdlib.h>

#ifndef PD_ARCH
#define PD_ARCH "native" /* make says it (gpu_rules.mk) */
#endif

static struct {
	cudaStream_t stream;
	char name[300], kind[256], uuid[16];
	int number, arch;
	rt_piece numbers, room; /* on the device */
} gpu;

void rt_gpu_check(cudaError_t e, const char *what)
{
	if (e == cudaSuccess || rt_capture_refused(what, cudaGetErrorString(e)))
		return;
	if (e == cudaErrorMemoryAllocation)
		rt_gpu_lacks(what);
	rt_fail(RT_ERROR, "R520", "%s: %s: %s", gpu.name[0] ? gpu.name : "GPU", what, cudaGetErrorString(e));
}

/* ---- the device ---- */

/* The place of this task among those of its host: devices that train first, then servers. All ranks have told where they are (handshake.c), so
 * that no launcher is asked, whose variables may be another's: those of a batch job around it. */
static int local_rank(void)
{
	const int task = rt_program ? rt_task_of(rt_program->rank) : 0;
	const rt_process *me = rt_program ? rt_process_of(task) : NULL;
	int before = 0;

	for (int r = 0; me && r < rt_program->world; r++)
		for (int t = rt_first_task(r); t < rt_first_task(r + 1); t++)
			if (t != task && !strcmp(rt_process_of(t)->host, me->host))
				before += rt_serves(r) != rt_program->server ? rt_program->server : t < task;
	return me ? before : task;
}

/* Kernels are there for the architecture that make was told, PD_ARCH: sm_90 runs on 9.0 and what came later, as the driver
 * translates them anew, sm_90a on 9.0 alone, sm_100f on 10.x. */
static void check_architecture(void)
{
	int kind = 0, have = gpu.arch;
	char last = 0;

	if (sscanf(PD_ARCH, "sm_%d%c", &kind, &last) < 1)
		return; /* "native", "all": nvcc's own words */
	if (last == 'a' ? have == kind : last == 'f' ? have >= kind && have / 10 == kind / 10 : have >= kind)
		return;
	rt_fail(RT_USAGE, "R524",
		"%s is of architecture sm_%d; the kernels of this program are compiled for " PD_ARCH
		"; make ARCH=sm_%d compiles them for it",
		gpu.name, have, have);
}

int rt_gpu_arch(void) { return gpu.arch; }

void rt_gpu_settings(void)
{
	if (rt_nccl_may())
		setenv("CUDA_MODULE_LOADING", "EAGER",
			0);                             /* a kernel loaded later would wait for a message under way */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* streams of messages wait behind no other one */
}

static void open_device(void)
{
	struct cudaDeviceProp p;
	int n = 0;

	if (gpu.stream)
		return;
	const cudaError_t e = cudaGetDeviceCount(&n);

	if (e != cudaSuccess || n < 1)
		rt_fail(RT_USAGE, "R520",
			"no GPU: %s; this program was written for --target cuda, and pdcc --target c writes one that "
			"needs none",
			e == cudaSuccess ? "none is there" : cudaGetErrorString(e));
	const int d = local_rank() % n;

	rt_gpu_check(cudaSetDevice(d), "cudaSetDevice");
	rt_gpu_check(cudaGetDeviceProperties(&p, d), "cudaGetDeviceProperties");
	gpu.number = d;
	gpu.arch = 10 * p.major + p.minor;
	memcpy(gpu.uuid, &p.uuid, sizeof gpu.uuid);
	snprintf(gpu.kind, sizeof gpu.kind, "%.255s", p.name);
	snprintf(gpu.name, sizeof gpu.name, "%.255s (device %d of %d)", p.name, d, n);
	check_architecture();
	rt_gpu_check(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking), "cudaStreamCreate");
}

const char *rt_gpu_uuid(void)
{
	pd_stream();
	return gpu.uuid;
}

const char *rt_gpu_kind(void)
{
	pd_stream();
	return gpu.kind;
}

int rt_gpu_major(void)
{
	pd_stream();
	return gpu.arch / 10;
}

void rt_gpu_here(void) { rt_gpu_check(cudaSetDevice(gpu.number), "cudaSetDevice"); }

void pd_threads(int n) { (void)n; /* the host computes nothing */ }

const char *pd_device_name(void) { return gpu.name; }

void pd_check_scratch(const char *what, size_t asked, size_t planned)
{
	(void)what;
	(void)asked;
	(void)planned; /* the library's workspace is not of the arena (gpu_conv.c) */
}

cudaStream_t pd_stream(void)
{
	if (!gpu.stream)
		open_device();
	return gpu.stream;
}

void pd_launched(const char *kernel)
{
	const cudaError_t e = cudaGetLastError();

	if (e == cudaErrorNoKernelImageForDevice)
		rt_fail(RT_USAGE, "R524",
			"%s is of architecture sm_%d; kernel %s is compiled for " PD_ARCH
			" and not for it; make ARCH=sm_%d "
			"compiles all of them for it",
			gpu.name, gpu.arch, kernel, gpu.arch);
	if (e == cudaSuccess || rt_capture_refused(kernel, cudaGetErrorString(e)))
		return;
	if (e == cudaErrorMemoryAllocation)
		rt_gpu_lacks(kernel);
	rt_fail(RT_ERROR, "R522", "%s: kernel %s: %s", gpu.name, kernel, cudaGetErrorString(e));
}

void rt_gpu_wait(void)
{
	if (rt_virtual)
		return;
	rt_section_spoil("the host waits for the device");
	rt_finish(pd_stream());
}

void rt_gpu_get(void *host, const void *tensor, size_t bytes)
{
	if (rt_virtual) {
		memcpy(host, tensor, bytes);
		return;
	}
	rt_gpu_wait(); /* a copy from there to memory that is not pinned waits inside the driver, and looks at nobody */
	rt_gpu_check(cudaMemcpyAsync(host, tensor, bytes, cudaMemcpyDeviceToHost, pd_stream()), "copy to the host");
	rt_gpu_wait();
}

void rt_gpu_put(void *tensor, const void *host, size_t bytes)
{
	if (rt_virtual) {
		memcpy(tensor, host, bytes);
		return;
	}
	rt_gpu_wait();
	rt_gpu_check(cudaMemcpyAsync(tensor, host, bytes, cudaMemcpyHostToDevice, pd_stream()), "copy to the device");
}

/* ---- small things ---- */

const void *pd_constant(const void *on_host, size_t bytes)
{
	void *p = rt_device_memory(bytes, "constants"), *host = rt_pinned(NULL, bytes);

	memcpy(host, on_host, bytes);
	rt_gpu_put(p, host, bytes);
	rt_gpu_wait();
	rt_unpinned(host);
	return p;
}

void pd_copy(void *to, const void *from, size_t bytes)
{
	if (rt_virtual)
		return;
	rt_gpu_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, pd_stream()), "copy on the device");
}

void pd_copy_rows(void *to, int64_t to_row, const void *from, int64_t from_row, int64_t n, int64_t rows, size_t size)
{
	if (rt_virtual)
		return;
	const size_t most = INT32_MAX; /* the largest distance of rows that the driver takes */

	if ((size_t)to_row * size > most || (size_t)from_row * size > most) {
		for (int64_t i = 0; i < rows; i++)
			pd_copy((char *)to + (size_t)(i * to_row) * size,
				(const char *)from + (size_t)(i * from_row) * size, (size_t)n * size);
		return;
	}
	rt_gpu_check(cudaMemcpy2DAsync(to, (size_t)to_row * size, from, (size_t)from_row * size, (size_t)n * size,
			     (size_t)rows, cudaMemcpyDeviceToDevice, pd_stream()),
		"copy on the device");
}

void pd_fill(void *to, int byte, size_t bytes)
{
	if (rt_virtual) {
		memset(to, byte, bytes);
		return;
	}
	rt_gpu_check(cudaMemsetAsync(to, byte, bytes, pd_stream()), "cudaMemset");
}

double pd_get(const float *from)
{
	float v;

	rt_gpu_get(&v, from, sizeof v);
	return (double)v;
}

void pd_room_open(size_t bytes) { rt_want(&gpu.room, bytes, "what kernels keep between launches"); }

void *pd_room(size_t bytes)
{
	pd_room_open(bytes);
	return gpu.room.at;
}

enum { NUMBERS = 128 }; /* of one kernel */

void rt_numbers_room(void) { pd_numbers(NUMBERS); }

double *pd_numbers(int n)
{
	rt_want(&gpu.numbers, (size_t)n * sizeof(double), "numbers for the host");
	return gpu.numbers.at;
}

double pd_number(const double *number)
{
	double v;

	rt_gpu_get(&v, number, sizeof v);
	return v;
}

/* ---- losses, hits and counted labels, which kernels leave on the device ----
 *
 * In the order in which a step tells them each has a place there; a copy to pinned memory follows on the stream that computes, and the
 * host waits for the event behind the last one: that is of a forward, while the backward behind it goes on.
 *
 * Where nothing depends on them (rt_late) the host has those of a step in the next one, when that is all on its way: the device is never
 * without work. What an update divides by, the labels that count, stays on the device then; of several ranks NCCL adds it up. */

typedef struct noted {
	int mb;
	bool hits;
} noted;
static struct {
	noted *v;
	float *numbers; /* two of each */
	int n;
	cudaEvent_t there;
} notes[2];              /* of the running step, and of the one before */
static int now, most;    /* notes[now] is that of the running step */
static float *places;    /* of the running step, on the device */
static float *counts[2]; /* by microbatch, on the device: of this rank; of all */

int rt_gpu_notes(void) { return notes[now].n; }

void rt_gpu_noted(int mb, bool hits) { notes[now].v[notes[now].n++] = (noted){ mb, hits }; }

void rt_gpu_unnote(int n) { notes[now].n = n; }

/* Room for a loss and a number of hits of every microbatch. */
void rt_notes_room(void)
{
	const size_t micro = (size_t)(rt_program->microbatches > 32 ? rt_program->microbatches : 32);

	most = 2 * (int)micro;
	places = rt_device_memory((2 * (size_t)most + 2 * micro) * sizeof *places, "losses");
	counts[0] = places + 2 * most;
	counts[1] = counts[0] + micro;
	pd_fill(counts[0], 0, micro * sizeof **counts); /* those of others stay 0 */
	for (int k = 0; k < 2; k++) {
		notes[k].v = rt_alloc((size_t)most * sizeof *notes->v);
		notes[k].numbers = rt_pinned(NULL, 2 * (size_t)most * sizeof *notes->numbers);
	}
}

void rt_gpu_fetch(int first)
{
	const int n = notes[now].n - first;

	if (n <= 0)
		return;
	rt_copy_on(
		RT_COMPUTE, &notes[now].numbers[2 * first], &places[2 * first], 2 * (size_t)n * sizeof *places, true);
	rt_record_on(&notes[now].there, RT_COMPUTE);
}

static void note(int mb, bool hits, const float *first, const float *second)
{
	if (!most)
		rt_notes_room();
	if (notes[now].n == most)
		rt_gpu_reports();
	const int n = notes[now].n;

	if (!rt_virtual)
		rt_note(&places[2 * n], rt_late && !hits ? &counts[0][mb] : NULL, first, second);
	rt_gpu_noted(mb, hits);
	rt_section_note(mb, hits);
	if (!rt_capturing())
		rt_gpu_fetch(n);
	if (rt_program->flow)
		rt_gpu_reports();
}

void pd_report_from(int mb, const float *loss, const float *count) { note(mb, false, loss, count); }

void pd_hits_from(int mb, const float *hits) { note(mb, true, hits, hits + 1); }

static void report(int of)
{
	if (!notes[of].n)
		return;
	rt_section_spoil("the host waits for the device");
	rt_until(notes[of].there);
	for (int i = 0; i < notes[of].n; i++) {
		const float *x = &notes[of].numbers[2 * i];

		if (notes[of].v[i].hits)
			pd_hits(notes[of].v[i].mb, (double)x[0], (double)x[1]);
		else
			pd_report(notes[of].v[i].mb, (double)x[0], (double)x[1]);
	}
	notes[of].n = 0;
}

void rt_gpu_reports(void) { report(now); }

void rt_gpu_reports_before(void) { report(!now); }

void rt_gpu_reports_later(void)
{
	now = !now;
	if (rt_program->world > 1)
		rt_join_counts(counts[1], counts[0], (size_t)rt_program->microbatches);
}

void rt_gpu_set_count(float *to) { rt_set_sum(to, counts[rt_program->world > 1], rt_program->microbatches); }
