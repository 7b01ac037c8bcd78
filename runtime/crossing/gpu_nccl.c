/* gpu_nccl.c: messages and sums from GPU to GPU, by NCCL, where every rank that trains has a GPU of its own; where two share one, which
 * NCCL refuses, or it was not there when the program was built, they are staged through the host (gpu_host.c).
 *
 * A group of replicas has a communicator, and so have a tensor group (of peers world + k, comm/tensor.c) and each lane of messages from one
 * rank to another: lanes are such that both sides
 * come to their messages in one order, which is how NCCL tells them apart. Each lane has its stream, and so has the tensor group, sums over
 * replicas have theirs; an event of the
 * stream that computes goes before, one behind is what it waits for. The host waits for none of this, so the end of a rank shows
 * elsewhere: whoever waits for the device looks at the communicators and at the other processes meanwhile. Here what goes wrong, and what
 * is under way; gpu_nccl_open.c makes communicators, gpu_nccl_calls.c tells the device what crosses. */
#include "gpu_rt.h"

bool rt_nccl_may(void)
{
#if defined RT_NCCL
	return rt_program && rt_tasks() > 1 && !rt_alone;
#else
	return false;
#endif
}

#if !defined RT_NCCL

bool rt_nccl_on(void) { return false; }
void rt_nccl_look(void) {}
bool rt_nccl_built(void) { return false; }

#else

#include "gpu_nccl.h"

struct rt_joints rt_joints;

bool rt_nccl_on(void) { return rt_joints.on; }

bool rt_nccl_built(void) { return true; }

/* ---- what goes wrong ---- */

void rt_joint_names(const rt_joint *j, char *text, size_t room)
{
	size_t n = 0;

	for (int i = 0; i < j->of.n && n < room; i++)
		n += (size_t)snprintf(text + n, room - n, "%s%s",
			i == 0            ? ""
			: i + 1 < j->of.n ? ", "
			: j->lane < 0     ? " and "
					  : " to ",
			rt_name(j->of.rank[i]));
}

/* A rank that is gone is the better reason: it may take a moment until that shows. Nothing is aborted before: that may wait for kernels
 * of other communicators, and the process ends here. */
static _Noreturn void broken(const rt_joint *j, ncclResult_t r, const char *what)
{
	const bool other = r == ncclSystemError || r == ncclRemoteError;
	char who[600], last[600];

	snprintf(last, sizeof last, "%s", ncclGetLastError(j->comm));
	if (r == ncclUnhandledCudaError && strstr(last, "out of memory"))
		rt_gpu_lacks("NCCL");
	for (int i = 0; i < 30 && other; i++) {
		rt_look();
		rt_nap(50000);
	}
	rt_joint_names(j, who, sizeof who);
	rt_fail(other ? RT_LOST : RT_ERROR, "R525", "NCCL on %s, %s %s: %s in step %lld: %s: %s", pd_device_name(),
		j->lane < 0 ? "AllReduce of" : "messages from", who, what, (long long)rt_step, ncclGetErrorString(r),
		last);
}

void rt_joint_check(const rt_joint *j, ncclResult_t r, const char *what)
{
	if (r != ncclSuccess)
		broken(j, r, what);
}

enum { FLIGHTS = 4096 };
/* What is under way. One that begins before the last of its place has ended leaves that one its events, and gets others. */
static struct {
	rt_flight f, *of;
} flights[FLIGHTS]; /* of: NULL where its place has another by now */
static struct {
	cudaEvent_t ready, done;
} spare[FLIGHTS];
static int nflights, nspare;
static double moved; /* when one of them last came to its end */

void rt_flights_land(void)
{
	int n = 0;

	for (int i = 0; i < nflights; i++)
		if (rt_not_yet(cudaEventQuery(flights[i].f.done))) {
			flights[n++] = flights[i];
		} else if (flights[i].of) {
			flights[i].of->under_way = false;
		} else if (nspare < FLIGHTS) {
			spare[nspare].ready = flights[i].f.ready;
			spare[nspare++].done = flights[i].f.done;
		}
	if (n < nflights || n == 0)
		moved = rt_now();
	nflights = n;
}

/* The device has come as far as to begin one: before, what is slow is its own computing, and nobody else is waited for. */
static bool any_ready(void)
{
	for (int i = 0; i < nflights; i++)
		if (!rt_not_yet(cudaEventQuery(flights[i].f.ready)))
			return true;
	return false;
}

/* Nothing has come to its end for the timeout. */
static _Noreturn void overdue(void)
{
	const rt_flight *f = &flights[0].f;
	char doing[64], why[1200], what[400], text[300];

	for (int i = nflights - 1; i >= 0; i--) /* what this rank lacks, rather than what others have not taken */
		f = flights[i].f.sends ? f : &flights[i].f;
	rt_channel_text(text, sizeof text, f->channel);
	if (f->channel >= 0)
		snprintf(what, sizeof what, "microbatch %d of step %lld on channel %d%s", f->mb, (long long)f->step,
			f->channel, text);
	else
		snprintf(what, sizeof what, "%s in step %lld",
			f->peer < rt_program->world ? "an AllReduce" : "what a tensor group tells each other",
			(long long)f->step);
	rt_doing(doing, sizeof doing);
	const int task = rt_missing(rt_task_of(f->peer), why, sizeof why);

	rt_fail(RT_LOST, "R102", "%s %s %s by NCCL within %g s (%s, in %s); missing: %s %s", what,
		f->channel < 0 ? "did not come to its end with"
		: f->sends     ? "was not taken by"
			       : "did not come from",
		rt_name(f->peer), rt_joints.timeout, pd_device_name(), doing, rt_task_name(task), why);
}

void rt_nccl_look(void)
{
	static double asked, looked;
	const double now = rt_now();

	if (!rt_joints.on || now - asked < 1e-3 || rt_capturing())
		return;
	if (now - asked > 1) /* nobody looked meanwhile */
		moved += now - asked;
	asked = now;
	rt_flights_land();
	for (int i = 0; i < rt_joints.n; i++) {
		ncclResult_t r = ncclSuccess;

		if (!rt_joints.v[i].comm || ncclCommGetAsyncError(rt_joints.v[i].comm, &r) != ncclSuccess ||
			r == ncclSuccess || r == ncclInProgress)
			continue;
		broken(&rt_joints.v[i], r, "it failed");
	}
	if (now - looked < 0.25)
		return;
	looked = now;
	rt_look();
	if (!any_ready())
		moved = now;
	if (nflights &&
		now - moved >
			0.9 * rt_joints.timeout) /* before those who wait for the host's messages, and know less */
		overdue();
}

/* ---- what is begun ---- */

void rt_flight_begin(rt_flight *f, const rt_joint *j)
{
	if (f->under_way) {
		for (int i = 0; i < nflights; i++)
			flights[i].of = flights[i].of == f ? NULL : flights[i].of;
		f->ready = nspare ? spare[nspare - 1].ready : NULL;
		f->done = nspare ? spare[--nspare].done : NULL;
		f->under_way = false;
	}
	rt_record_on(&f->ready, RT_COMPUTE);
	rt_gpu_check(cudaStreamWaitEvent(j->stream, f->ready, 0), "cudaStreamWaitEvent");
}

void rt_flight_begun(rt_flight *f, const rt_joint *j)
{
	rt_record_at(&f->done, j->stream);
	f->step = rt_step;
	if (nflights == FLIGHTS && !rt_capturing())
		rt_flights_land();
	if (nflights == 0)
		moved = rt_now();
	if (nflights < FLIGHTS) {
		f->under_way = true;
		flights[nflights].of = f;
		flights[nflights++].f = *f;
	}
}
void rt_flight_of_group(rt_flight *f, const rt_joint *j)
{
	f->channel = -1;
	f->peer = j->of.rank[(j->self + 1) % j->of.n];
	f->sends = false;
	rt_flight_begun(f, j);
}

#endif
