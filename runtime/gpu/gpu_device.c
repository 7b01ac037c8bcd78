/* gpu_device.c: a GPU program's device, the stream that computes, small copies, losses. With --virtual nothing is computed: no GPU is
 * asked for, and tensors lie in the host's memory. */
#include "gpu_rt.h"
#include <stdlib.h>

#ifndef PD_ARCH
#define PD_ARCH "native" /* make says it (gpu_rules.mk) */
#endif

static struct {
	cudaStream_t stream;
	char name[300], uuid[16];
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
	snprintf(gpu.name, sizeof gpu.name, "%.255s (device %d of %d)", p.name, d, n);
	check_architecture();
	rt_gpu_check(cudaStreamCreateWithFlags(&gpu.stream, cudaStreamNonBlocking), "cudaStreamCreate");
}

const char *rt_gpu_uuid(void)
{
	pd_stream();
	return gpu.uuid;
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

static void numbers_room(int n) { rt_want(&gpu.numbers, (size_t)n * sizeof(double), "numbers for the host"); }

double *pd_numbers(int n)
{
	numbers_room(n);
	return gpu.numbers.at;
}

double pd_number(const double *number)
{
	double v;

	rt_gpu_get(&v, number, sizeof v);
	return v;
}

/* ---- losses: copied in the order of the stream, read when the step's totals are wanted ---- */

typedef struct noted {
	int mb;
	bool hits;
} noted;
static struct {
	noted *v;
	float *numbers;
	int n, room;
} notes;

int rt_gpu_notes(void) { return notes.n; }

void rt_gpu_noted(int mb, bool hits) { notes.v[notes.n++] = (noted){ mb, hits }; }

void rt_gpu_unnote(int n) { notes.n = n; }

/* Room for a loss and a number of hits of every microbatch, and for the numbers of a kernel. */
void rt_notes_room(void)
{
	numbers_room(NUMBERS);
	notes.room = 2 * (rt_program->microbatches > 32 ? rt_program->microbatches : 32);
	notes.v = rt_alloc((size_t)notes.room * sizeof *notes.v);
	notes.numbers = rt_pinned(NULL, (size_t)notes.room * 2 * sizeof(float));
}

static void note(int mb, bool hits, const float *first, const float *second)
{
	if (!notes.room)
		rt_notes_room();
	if (notes.n == notes.room)
		rt_gpu_reports();
	rt_copy_on(RT_COMPUTE, &notes.numbers[2 * notes.n], first, sizeof *first, true);
	rt_copy_on(RT_COMPUTE, &notes.numbers[2 * notes.n + 1], second, sizeof *second, true);
	rt_gpu_noted(mb, hits);
	rt_section_note(mb, hits);
	if (rt_program->flow)
		rt_gpu_reports();
}

void rt_gpu_reports(void)
{
	if (!notes.n)
		return;
	rt_gpu_wait();
	for (int i = 0; i < notes.n; i++) {
		const float *x = &notes.numbers[2 * i];

		if (notes.v[i].hits)
			pd_hits(notes.v[i].mb, (double)x[0], (double)x[1]);
		else
			pd_report(notes.v[i].mb, (double)x[0], (double)x[1]);
	}
	notes.n = 0;
}

void pd_report_from(int mb, const float *loss, const float *count) { note(mb, false, loss, count); }

void pd_hits_from(int mb, const float *hits) { note(mb, true, hits, hits + 1); }
