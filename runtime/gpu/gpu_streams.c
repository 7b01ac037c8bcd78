/* gpu_streams.c: the streams of a GPU program and what crosses between them. Kernels run on one stream in the order of the
 * program; copies for sends, receives, sums on their way to the host and back have one each, so that they run beside kernels. Events order
 * them: a copy to the host begins when what it reads was made, a kernel when what it reads has come. The host itself waits for none of
 * this: what it has to do after a copy (post a message, begin a sum) stands in a queue, which it looks at before each action and all the
 * time that it waits for something. */
#include "gpu_rt.h"

static cudaStream_t streams[RT_STREAMS];

cudaStream_t rt_stream(rt_stream_kind k)
{
	if (k == RT_COMPUTE)
		return pd_stream();
	if (!streams[k]) {
		pd_stream(); /* the device is chosen */
		rt_gpu_check(cudaStreamCreateWithFlags(&streams[k], cudaStreamNonBlocking), "cudaStreamCreate");
	}
	return streams[k];
}

void rt_streams_open(void)
{
	for (int k = 0; k < RT_STREAMS; k++)
		rt_stream((rt_stream_kind)k);
}

void rt_record_at(cudaEvent_t *e, cudaStream_t s)
{
	if (rt_virtual)
		return;
	if (!*e)
		rt_gpu_check(cudaEventCreateWithFlags(e, cudaEventDisableTiming), "cudaEventCreate");
	rt_gpu_check(cudaEventRecord(*e, s), "cudaEventRecord");
}

void rt_record_on(cudaEvent_t *e, rt_stream_kind k)
{
	if (!rt_virtual)
		rt_record_at(e, rt_stream(k));
}

void rt_wait_on(rt_stream_kind k, cudaEvent_t e)
{
	if (!rt_virtual && e)
		rt_gpu_check(cudaStreamWaitEvent(rt_stream(k), e, 0), "cudaStreamWaitEvent");
}

bool rt_not_yet(cudaError_t e)
{
	if (e != cudaErrorNotReady)
		return false;
	(void)cudaGetLastError(); /* an answer, which pd_launched would take for an error of a kernel */
	return true;
}

/* The host waits for an event or a stream. It asks, and does not sleep in the driver: others wait for what it has to post meanwhile, and
 * a message between GPUs that never comes must not hold it for ever. */
static void wait_for(cudaEvent_t e, cudaStream_t s)
{
	cudaError_t r;

	for (int idle = 0; rt_not_yet(r = e ? cudaEventQuery(e) : cudaStreamQuery(s));) {
		rt_gpu_advance();
		rt_rest(++idle);
	}
	rt_gpu_check(r, "a kernel or copy before");
}

void rt_until(cudaEvent_t e)
{
	if (!rt_virtual && e)
		wait_for(e, NULL);
}

void rt_finish(cudaStream_t s) { wait_for(NULL, s); }

void rt_copy_on(rt_stream_kind k, void *to, const void *from, size_t bytes, bool to_host)
{
	if (rt_virtual)
		memcpy(to, from, bytes);
	else
		rt_gpu_check(cudaMemcpyAsync(to, from, bytes, to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
				     rt_stream(k)),
			"a copy between host and device");
}

/* ---- what the host does once a copy is there ---- */

enum { QUEUE = 4096 }; /* at most as many as there are slots of all channels, and sums of a step */

static struct {
	cudaEvent_t after;
	void (*run)(void *what);
	void *what;
} queue[QUEUE];
static unsigned first, past;

static void run_first(void)
{
	const unsigned i = first++ % QUEUE;

	queue[i].run(queue[i].what);
}

void rt_then(cudaEvent_t after, void (*run)(void *what), void *what)
{
	if (past - first == QUEUE) {
		rt_until(queue[first % QUEUE].after);
		run_first();
	}
	queue[past % QUEUE].after = after;
	queue[past % QUEUE].run = run;
	queue[past++ % QUEUE].what = what;
	rt_gpu_advance();
}

void rt_gpu_advance(void)
{
	static bool inside; /* what runs may wait, and come here */

	rt_nccl_look();
	if (inside)
		return;
	inside = true;
	while (first != past) {
		const cudaError_t e = rt_virtual ? cudaSuccess : cudaEventQuery(queue[first % QUEUE].after);

		if (rt_not_yet(e))
			break;
		rt_gpu_check(e, "a kernel or copy before");
		run_first();
	}
	rt_sums_return();
	inside = false;
}

void rt_gpu_drain(void)
{
	while (first != past) {
		rt_until(queue[first % QUEUE].after);
		rt_gpu_advance();
	}
}
