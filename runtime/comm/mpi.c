/* mpi.c: messages between the devices of a plan, over MPI.
 *
 * All requests lie in one table that is made at start, so that a step allocates nothing:
 *     [ channel receives | channel sends | ring | two per rank for collectives of the main thread |
 *       one for losses of asynchronous pipelines | four per rank between devices and servers |
 *       one per owned gradient and replica ]
 * One lock guards MPI and the table (MPI_THREAD_SERIALIZED is enough). Whoever waits polls;
 * while the main thread computes, a progress thread polls for it, because MPI moves large
 * messages only inside its own calls. Nobody spins: a poll that found nothing is followed by a
 * short sleep, so four ranks on two cores leave the cores to the computing. Every wait ends
 * after the timeout with a verdict that names what did not come. */
#include "rt.h"
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct label {         /* what a request is for, in words of the plan */
	int peer, channel, mb; /* channel -1: a collective */
	int64_t step;
	size_t bytes;
	bool recv, add; /* add: to what is there */
} label;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER;
static pthread_t thread;
static bool started, stopping, main_waits;
static MPI_Comm data, collective; /* own tag spaces for channels and for collectives */
static MPI_Request *request;
static MPI_Status *status;
static int *ready;
static label *labels;
static int nrequests, ntold, nactive, ring0, peer0, gather0, between0, owned0, sends0;
static double timeout_s = 60, moved_at;     /* when anything last completed */
static label last_done = { .channel = -1 }; /* of the channels */

static void check(int rc, const char *call)
{
	if (rc != MPI_SUCCESS) {
		char text[MPI_MAX_ERROR_STRING];
		int n;

		MPI_Error_string(rc, text, &n);
		rt_fail(RT_LOST, "R103", "%s: %s", call, text);
	}
}

_Noreturn void rt_abort(int code)
{
	int on = 0, off = 0;

	fflush(NULL);
	MPI_Initialized(&on);
	MPI_Finalized(&off);
	if (on && !off && !rt_launched())
		MPI_Abort(MPI_COMM_WORLD, code);
	_Exit(code);
}

/* ---- the table ---- */

static void awaited(char *to, size_t room, const label *l)
{
	char text[300];

	const ptrdiff_t at = (l - labels) % nrequests;

	rt_channel_text(text, sizeof text, l->channel);
	if (l->channel >= 0)
		snprintf(to, room, "microbatch %d of step %lld on channel %d%s", l->mb, (long long)l->step, l->channel,
			text);
	else
		snprintf(to, room, "%s in step %lld",
			between0 <= at && at < owned0 ? "a message of the parameter servers"
			: at == gather0               ? "what all ranks tell each other"
						      : "a part of an AllReduce",
			(long long)l->step);
}

/* Nothing came of request i for the timeout. */
static _Noreturn void verdict(int i)
{
	const label *l = &labels[i], *d = &last_done;
	char what[400], last[96] = "nothing yet", doing[64], why[1200];

	if (d->channel >= 0)
		snprintf(last, sizeof last, "%s microbatch %d of step %lld on channel %d",
			d->recv ? "received" : "sent", d->mb, (long long)d->step, d->channel);
	awaited(what, sizeof what, l);
	rt_doing(doing, sizeof doing);
	const int task = rt_missing(rt_task_of(l->peer), why, sizeof why);

	rt_fail(RT_LOST, "R102",
		l->recv ? "%s did not come from %s within %g s (in %s; last message done: %s); missing: %s %s"
			: "%s was not taken by %s within %g s (in %s; last message done: %s); missing: %s %s",
		what, rt_name(l->peer), timeout_s, doing, last, rt_task_name(task), why);
}

/* The process of another task has ended while request i was waited for; -1: none in particular. */
static _Noreturn void gone(int i, int task, char *why, size_t room)
{
	char what[400] = "", doing[64];
	int known;

	if (rt_verdict_known(&known, why, room))
		task = known;
	else
		rt_verdict(task, why);
	if (i >= 0)
		awaited(what, sizeof what, &labels[i]);
	rt_doing(doing, sizeof doing);
	rt_fail(RT_LOST, "R115", "%s %s; this rank was in %s%s%s%s%s", rt_task_name(task), why, doing,
		i < 0            ? ""
		: labels[i].recv ? ", waiting for "
				 : ", sending ",
		what,
		i < 0            ? ""
		: labels[i].recv ? " from "
				 : " to ",
		i < 0 ? "" : rt_name(labels[i].peer));
}

/* Looks at the other processes and for a verdict of theirs from time to time; the launcher has a moment to end this one first where it does so. */
static void look_around(int pending, double *looked, double *missed)
{
	char why[1200];
	const double now = rt_now();

	if (now - *looked < 0.25)
		return;
	*looked = now;
	int task = rt_lost(false, why, sizeof why);

	if (task < 0 && !rt_verdict_known(&task, why, sizeof why))
		*missed = 0;
	else if (*missed == 0 && !rt_launched())
		*missed = now;
	else if (rt_launched() || now - *missed > 3)
		gone(pending, task, why, sizeof why);
}

void rt_look(void)
{
	static double missed;
	double looked = 0;

	if (started)
		look_around(-1, &looked, &missed);
}

static void completed(int i, const MPI_Status *st)
{
	label *l = &labels[i];

	nactive--;
	if (l->recv) {
		int n;

		MPI_Get_count(st, MPI_BYTE, &n);
		if ((size_t)n != l->bytes)
			rt_fail(RT_LOST, "R104", "a message of %zu bytes was due from %s on channel %d, %d bytes came",
				l->bytes, rt_name(l->peer), l->channel, n);
	}
	if (l->channel >= 0)
		last_done = *l;
}

/* MPI_Testsome found errors: says which request has which. */
static _Noreturn void broken(int n)
{
	int code = MPI_ERR_OTHER, i = ready[0];

	for (int k = n - 1; k >= 0; k--)
		if (status[k].MPI_ERROR != MPI_SUCCESS && status[k].MPI_ERROR != MPI_ERR_PENDING) {
			code = status[k].MPI_ERROR;
			i = ready[k];
		}
	const label *l = &labels[i];

	MPI_Error_class(code, &code);
	if (code == MPI_ERR_TRUNCATE)
		rt_fail(RT_LOST, "R104", "a message of %zu bytes was due from %s on channel %d, a longer one came",
			l->bytes, rt_name(l->peer), l->channel);
	check(code, l->recv ? "receiving" : "sending");
	rt_fail(RT_LOST, "R103", "MPI_Testsome failed");
}

/* Completes what can be completed. Lock held. True: something moved. */
static bool poll_all(void)
{
	bool moved = false;

	if (nactive > 0) {
		int n = 0;

		const int rc = MPI_Testsome(ntold, request, &n, ready, status);

		if (rc == MPI_ERR_IN_STATUS)
			broken(n);
		check(rc, "MPI_Testsome");
		for (int k = 0; k < n; k++)
			completed(ready[k], &status[k]);
		moved = n > 0;
	}
	moved |= rt_shared_advance();
	moved |= rt_ring_advance();
	if (moved)
		moved_at = rt_now();
	return moved;
}

static bool shared_at(int i) { return i >= ring0 && i < ring0 + RT_COLL && rt_shared_busy(i - ring0); }

bool rt_idle(int i)
{
	for (int k = i; k < ntold; k += nrequests)
		if (request[k] != MPI_REQUEST_NULL)
			return false;
	return !shared_at(i);
}

int rt_ring(int k) { return ring0 + k; }

int rt_peer(int k) { return peer0 + 2 * k; }

int rt_between(int rank, int j) { return between0 + 4 * rank + j; }

int rt_owned(int k, int member) { return owned0 + k * rt_program->replicas + member; }

/* Parts of sums go through memory where the peer is on this host. */
static bool by_memory(int peer, int tag) { return (tag == RT_TAG_RING || tag == RT_TAG_SMALL) && rt_shared(peer); }

static void post(int i, MPI_Comm comm, int tag, void *buf, label l)
{
	if (l.bytes > INT_MAX)
		rt_fail(RT_ERROR, "R105", "a message of %zu bytes is over the 2 GiB that one message may have",
			l.bytes);
	if (!rt_idle(i))
		rt_fail(RT_ERROR, "R106",
			"request of channel %d, microbatch %d was posted before microbatch %d was waited for",
			l.channel, l.mb, labels[i].mb);
	labels[i] = l;
	const int takers = tag == RT_TAG_LEAD && comm == collective ? 1 : rt_takers(l.peer);
	if (!l.recv)
		rt_traffic(l.peer < rt_program->world ? l.peer : rt_program->world, tag, l.channel >= 0, l.bytes);
	if (comm == collective && by_memory(l.peer, tag)) {
		rt_shared_post(i - ring0, l.peer, l.recv, l.add, buf, l.bytes);
		return;
	}
	const int before = nactive;

	if (l.recv)
		check(MPI_Irecv(buf, (int)l.bytes, MPI_BYTE, rt_task_of(l.peer), tag, comm, &request[i]), "MPI_Irecv");
	for (int k = 0; !l.recv && k < takers; k++) {
		labels[i + k * nrequests] = l;
		check(MPI_Isend(buf, (int)l.bytes, MPI_BYTE, rt_task_of(l.peer) + k * rt_group(), tag, comm,
			      &request[i + k * nrequests]),
			"MPI_Isend");
	}
	nactive += l.recv ? 1 : takers;
	if (!before && nactive)
		rt_wake();
}

void rt_post_send(int i, int peer, int tag, const void *buf, size_t bytes)
{
	post(i, collective, tag, (void *)(uintptr_t)buf,
		(label){ .peer = peer, .channel = -1, .step = rt_step, .bytes = bytes });
}

void rt_post_recv(int i, int peer, int tag, void *buf, size_t bytes)
{
	post(i, collective, tag, buf,
		(label){ .peer = peer, .channel = -1, .step = rt_step, .bytes = bytes, .recv = true });
}

void rt_post_sum(int i, int peer, int tag, float *sum, size_t n)
{
	post(i, collective, tag, sum,
		(label){ .peer = peer,
			.channel = -1,
			.step = rt_step,
			.bytes = n * sizeof *sum,
			.recv = true,
			.add = true });
}

void rt_lock(void) { pthread_mutex_lock(&lock); }

void rt_unlock(void) { pthread_mutex_unlock(&lock); }

void rt_wake(void) { pthread_cond_signal(&work); }

/* ---- waiting ---- */

static bool range_idle(int first, int n, int *pending)
{
	for (int i = first; i < first + n; i++)
		if (!rt_idle(i)) {
			*pending = i;
			return false;
		}
	return true;
}

static bool ring_done(int first, int n, int *pending)
{
	if (rt_ring_idle())
		return true;
	*pending = -1;
	for (int i = first; i < first + n && *pending < 0; i++)
		if (!rt_idle(i) && labels[i].recv)
			*pending = i;
	if (*pending < 0)
		range_idle(first, n, pending);
	return false;
}

void rt_wait_until(bool (*done)(int, int, int *), int first, int n)
{
	const double from = rt_now();
	double looked = from, missed = 0;
	int idle = 0, pending = -1;

	rt_lock();
	main_waits = true;
	while (!done(first, n, &pending)) {
		if (poll_all()) {
			idle = 0;
			continue;
		}
		if (pending >= 0 && rt_now() - (moved_at > from ? moved_at : from) > timeout_s)
			verdict(pending);
		rt_unlock();
		rt_gpu_advance();
		rt_rest(++idle);
		if (idle > 120)
			look_around(pending, &looked, &missed);
		rt_lock();
	}
	main_waits = false;
	rt_unlock();
}

void rt_wait(int first, int n)
{
	rt_trace_wait(true);
	rt_wait_until(range_idle, first, n);
	rt_trace_wait(false);
}

void rt_wait_ring(void)
{
	rt_trace_wait(true);
	rt_wait_until(ring_done, ring0, RT_COLL);
	rt_trace_wait(false);
}

static int64_t sum_wanted;

static bool sum_done(int first, int n, int *pending) { return rt_ring_has(sum_wanted) || ring_done(first, n, pending); }

void rt_wait_sum(int64_t n)
{
	sum_wanted = n;
	rt_trace_wait(true);
	rt_wait_until(sum_done, ring0, RT_COLL);
	rt_trace_wait(false);
}

static void *progress(void *arg)
{
	int idle = 0;

	(void)arg;
	rt_lock();
	while (!stopping) {
		if (nactive == 0 && rt_ring_idle()) {
			pthread_cond_wait(&work, &lock);
			idle = 0;
			continue;
		}
		const bool away = main_waits;

		idle = !away && poll_all() ? 0 : idle + 1;
		rt_unlock();
		rt_nap(away ? 1000 : idle < 20 ? 50 : 300);
		rt_lock();
	}
	rt_unlock();
	return NULL;
}

/* ---- channels ---- */

static int slot_of(int channel, int slot)
{
	if (!started || channel < 0 || channel >= rt_program->channels || slot < 0 || slot >= rt_program->slots)
		rt_fail(RT_ERROR, "R107",
			"channel %d, slot %d is outside the %d channels of %d slots of this plan of %d devices",
			channel, slot, rt_program->channels, rt_program->slots, rt_program->world);
	return channel * rt_program->slots + slot;
}

static int tag_of(int channel, int mb)
{
	const int n = rt_program->microbatches, k = mb % n; /* of another step: n apart */

	return channel * n + (k < 0 ? k + n : k);
}

void pd_irecv(int channel, int slot, int peer, int mb, void *buf, size_t bytes)
{
	if (peer == rt_program->rank) {
		rt_local(channel, slot, mb, buf, bytes, false);
		return;
	}
	if (rt_alone)
		return;
	const int i = slot_of(channel, slot);

	rt_lock();
	post(i, data, tag_of(channel, mb), buf,
		(label){ .peer = peer, .channel = channel, .mb = mb, .step = rt_step, .bytes = bytes, .recv = true });
	rt_unlock();
	rt_record("receive", mb, channel, peer);
}

void pd_isend(int channel, int slot, int peer, int mb, const void *buf, size_t bytes)
{
	if (peer == rt_program->rank) {
		rt_local(channel, slot, mb, (void *)(uintptr_t)buf, bytes, true);
		return;
	}
	if (rt_alone)
		return;
	const int i = sends0 + slot_of(channel, slot);

	rt_lock();
	post(i, data, tag_of(channel, mb), (void *)(uintptr_t)buf,
		(label){ .peer = peer, .channel = channel, .mb = mb, .step = rt_step, .bytes = bytes });
	rt_unlock();
	rt_record("send", mb, channel, peer);
}

void pd_wait_recv(int channel, int slot)
{
	rt_pause();
	rt_local_wait(channel, slot, false);
	if (!started)
		return;
	const int i = slot_of(channel, slot);

	rt_record("await", labels[i].mb, channel, labels[i].peer);
	rt_wait(i, 1);
}

void pd_wait_send(int channel, int slot)
{
	rt_pause();
	rt_local_wait(channel, slot, true);
	if (started)
		rt_wait(sends0 + slot_of(channel, slot), 1);
}

/* ---- gathering in the background ---- */

void *rt_request(int i) { return &request[i]; }

void rt_requested(int i, int peer, size_t bytes)
{
	labels[i] = (label){ .peer = peer, .channel = -1, .step = rt_step, .bytes = bytes };
	if (nactive++ == 0)
		rt_wake();
}

/* What all tasks tell, on its way to what ranks do. */
static struct told {
	char *all, *tasks; /* by rank; by task, NULL: that is the same */
	size_t bytes;
} told;

/* Of each rank what the member of it has that this one hears. */
static void of_ranks(struct told *t)
{
	for (int r = 0; t->tasks && r < rt_program->world; r++)
		memcpy(t->all + (size_t)r * t->bytes, t->tasks + (size_t)rt_task_of(r) * t->bytes, t->bytes);
	free(t->tasks);
	t->tasks = NULL;
}

static void gather(const void *mine, void *all, size_t bytes)
{
	rt_lock();
	check(MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &request[gather0]),
		"MPI_Iallgather");
	rt_requested(gather0, 0, bytes);
	rt_unlock();
}

void rt_gather_tasks(const void *mine, void *all, size_t bytes)
{
	if (!started) {
		memcpy(all, mine, bytes);
		return;
	}
	gather(mine, all, bytes);
	rt_wait(gather0, 1);
}

void rt_gather_start(const void *mine, void *all, size_t bytes)
{
	if (!started) {
		memcpy(all, mine, bytes);
		return;
	}
	told = (struct told){ all, rt_tasks() > rt_program->world ? rt_alloc((size_t)rt_tasks() * bytes) : NULL,
		bytes };
	gather(mine, told.tasks ? told.tasks : all, bytes);
}

void rt_gather_wait(void)
{
	if (!started)
		return;
	rt_wait(gather0, 1);
	of_ranks(&told);
}

/* ---- joining and leaving ---- */

static void make_table(const pd_program *p)
{
	const int slots = p->channels * p->slots;

	sends0 = slots;
	ring0 = 2 * slots;
	peer0 = ring0 + RT_COLL;
	gather0 = peer0 + 2 * (p->world + rt_group());
	between0 = gather0 + 1;
	owned0 = between0 + 4 * p->world;
	nrequests = owned0 + p->owned * p->replicas;
	int copies = 1; /* of what a larger group is told, one for each of several members */
	for (int r = 0; r < p->world; r++)
		copies = rt_takers(r) > copies ? rt_takers(r) : copies;
	ntold = copies * nrequests;
	request = rt_alloc((size_t)ntold * sizeof *request);
	status = rt_alloc((size_t)ntold * sizeof *status);
	ready = rt_alloc((size_t)ntold * sizeof *ready);
	labels = rt_alloc((size_t)ntold * sizeof *labels);
	for (int i = 0; i < ntold; i++)
		request[i] = MPI_REQUEST_NULL;
}

/* What every rank says of itself, to all. */
static void meet(const pd_program *p)
{
	void *mine, *all;
	const int n = (int)rt_hello(p, &mine, &all);

	check(MPI_Allgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, MPI_COMM_WORLD), "MPI_Allgather");
	rt_met(p);
}

static void tell_ranks(const void *mine, void *all, int n)
{
	struct told t = { all, rt_alloc((size_t)rt_tasks() * (size_t)n), (size_t)n };

	check(MPI_Allgather(mine, n, MPI_BYTE, t.tasks, n, MPI_BYTE, MPI_COMM_WORLD), "MPI_Allgather");
	of_ranks(&t);
}

/* Which ranks of this host have memory with this one. */
static void share(const pd_program *p)
{
	void *mine, *all;
	const int n = (int)rt_shared_offer(p->world, &mine, &all);

	tell_ranks(mine, all, n);
	mine = rt_shared_see(p->world, &all);
	tell_ranks(mine, all, p->world);
	rt_shared_agree(p->world);
}

void rt_join(const pd_program *p, double timeout)
{
	int provided, task, tasks, flag, *bound;

	timeout_s = timeout;
	rt_ring_setup(p->world);
	rt_local_setup(p);
	if (rt_tasks() == 1 || rt_alone)
		return;
	check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
	if (provided < MPI_THREAD_SERIALIZED)
		rt_fail(RT_USAGE, "R108", "this MPI has no MPI_THREAD_SERIALIZED");
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_rank(MPI_COMM_WORLD, &task);
	MPI_Comm_size(MPI_COMM_WORLD, &tasks);
	if (tasks != rt_tasks() || task != rt_task_of(p->rank))
		rt_fail(RT_MISMATCH, "R101",
			"this program is rank %d of %d of its plan, but was started as rank %d of %d; start all "
			"programs with one mpirun (make run)",
			rt_task_of(p->rank), rt_tasks(), task, tasks);
	check(MPI_Comm_dup(MPI_COMM_WORLD, &data), "MPI_Comm_dup");
	check(MPI_Comm_dup(MPI_COMM_WORLD, &collective), "MPI_Comm_dup");
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &flag);
	if (flag && (double)p->channels * p->microbatches > *bound)
		rt_fail(RT_USAGE, "R109",
			"%d channels of %d microbatches need more message tags than the %d of this MPI", p->channels,
			p->microbatches, *bound);
	meet(p);
	share(p);
	rt_traffic_setup(p->world + 1);
	make_table(p);
	if (pthread_create(&thread, NULL, progress, NULL))
		rt_fail(RT_MEMORY, "R110", "no thread for messages: %s", strerror(errno));
	started = true;
}

void rt_leave(void)
{
	if (!started)
		return;
	rt_barrier();
	rt_lock();
	stopping = true;
	rt_wake();
	rt_unlock();
	pthread_join(thread, NULL);
	started = false;
	MPI_Finalize();
}
