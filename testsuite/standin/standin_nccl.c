/* standin_nccl.c: the part of NCCL that emitted programs use, between processes of one machine. A communicator is a folder: what one
 * process has for another is a file there, numbered, written at the operation's turn on its stream and taken away by who reads it.
 * So an operation is done on a stream when all that it needs has come, and a send when it was taken. Operations of a group begin
 * together. As NCCL it refuses two ranks on one device.
 *
 * STANDIN_NCCL_FAIL=RANK:N:HOW plants a fault in the N-th operation of the process with that rank of its job: `error` is an
 * asynchronous ncclSystemError, `hang` is an operation that is never done, `call` fails at once, `die` ends the process. `behind`, for all ranks where RANK is -1: the device
 * is then 4 seconds behind what the host has told it. */
#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "standin.h"

enum { MOST = 64, OPERATIONS = 2048 };

struct ncclComm {
	char folder[128];
	int n, rank;
	int pid[MOST];
	unsigned sent[MOST], got[MOST];
	ncclResult_t error;
};

typedef enum kind { SEND, RECEIVE, SUM, SCATTER, REDUCE, GATHER, BROADCAST } kind;
typedef struct op {
	kind what;
	ncclComm_t c;
	const void *from;
	void *to;
	size_t count, bytes; /* of what one rank gives to one */
	ncclDataType_t type;
	int peer; /* root of a reduction, of a broadcast */
	int begun, hangs;
	unsigned first_sent[MOST], first_got[MOST];
} op;
typedef struct group {
	int n;
	op v[];
} group;

static const char *const names[] = { "ncclSend", "ncclRecv", "ncclAllReduce", "ncclReduceScatter", "ncclReduce",
	"ncclAllGather", "ncclBroadcast" };

static char last_error[200];

static size_t size_of(ncclDataType_t t)
{
	static const size_t bytes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2 };

	return bytes[t];
}

/* ---- what lies in the folder ---- */

static void path_of(const struct ncclComm *c, int from, int to, unsigned k, const char *end, char path[200])
{
	snprintf(path, 200, "%s/%d-%d-%u%s", c->folder, from, to, k, end);
}

static void give(struct ncclComm *c, int to, unsigned k, const void *data, size_t bytes)
{
	char path[200], part[200];

	path_of(c, c->rank, to, k, "", path);
	path_of(c, c->rank, to, k, ".part", part);
	FILE *f = fopen(part, "wb");
	if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) || rename(part, path)) {
		perror(path);
		abort();
	}
}

/* What has come, or NULL. */
static void *taken(struct ncclComm *c, int from, unsigned k, size_t bytes)
{
	char path[200];
	struct stat st;

	path_of(c, from, c->rank, k, "", path);
	FILE *f = fopen(path, "rb");
	if (!f)
		return NULL;
	void *data = malloc(bytes ? bytes : 1);
	if (!data || fstat(fileno(f), &st) || (size_t)st.st_size != bytes || fread(data, 1, bytes, f) != bytes) {
		fprintf(stderr, "stand-in: rank %d of %d gives %zu bytes where rank %d wants %zu\n", from, c->n,
			(size_t)st.st_size, c->rank, bytes);
		abort();
	}
	fclose(f);
	return data;
}

static int is_there(struct ncclComm *c, int from, int to, unsigned k)
{
	char path[200];

	path_of(c, from, to, k, "", path);
	return access(path, F_OK) == 0;
}

static void take_away(struct ncclComm *c, int from, unsigned k)
{
	char path[200];

	path_of(c, from, c->rank, k, "", path);
	unlink(path);
}

/* ---- one operation ---- */

/* Whether rank r gets something from this one by it; the part of it in bytes from the start. */
static int gives(const op *o, int r, size_t *at)
{
	*at = o->what == SCATTER ? (size_t)r * o->bytes : 0;
	return o->what == SEND      ? r == o->peer
	       : o->what == RECEIVE ? 0
	       : o->what == REDUCE  ? r != o->c->rank && r == o->peer
	                            : r != o->c->rank && (o->what != BROADCAST || o->c->rank == o->peer);
}

static int gets(const op *o, int r)
{
	return o->what == RECEIVE  ? r == o->peer
	       : o->what == SEND   ? 0
	       : o->what == REDUCE ? r != o->c->rank && o->c->rank == o->peer
	                           : r != o->c->rank && (o->what != BROADCAST || r == o->peer);
}

static void begin(op *o)
{
	struct ncclComm *c = o->c;
	size_t at;

	o->begun = 1;
	for (int r = 0; r < c->n; r++) {
		o->first_sent[r] = c->sent[r];
		o->first_got[r] = c->got[r];
		c->got[r] += (unsigned)gets(o, r);
		if (!gives(o, r, &at))
			continue;
		standin_device(1);
		standin_touch(names[o->what], ORDER_READS, (const char *)o->from + at, o->bytes);
		give(c, r, c->sent[r]++, (const char *)o->from + at, o->bytes);
		standin_device(0);
	}
}

static int alive(int pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

static int waits_for(const op *o, int r)
{
	return (gets(o, r) && !is_there(o->c, r, o->c->rank, o->first_got[r])) ||
	       (o->what == SEND && r == o->peer && is_there(o->c, o->c->rank, r, o->first_sent[r]));
}

/* All that it needs has come, and all that it sends was taken. -1: a rank is gone, and has not done its part before. */
static int ready(const op *o)
{
	for (int r = 0; r < o->c->n; r++)
		if (waits_for(o, r))
			return alive(o->c->pid[r]) || !waits_for(o, r) ? 0 : -1;
	return 1;
}

static void add(void *to, const void *x, size_t n, ncclDataType_t t)
{
	for (size_t i = 0; i < n; i++)
		if (t == ncclFloat32)
			((float *)to)[i] += ((const float *)x)[i];
		else
			((double *)to)[i] += ((const double *)x)[i];
}

/* In the order of the ranks. */
static void sum_up(const op *o)
{
	struct ncclComm *c = o->c;
	const char *mine = (const char *)o->from + (o->what == SCATTER ? (size_t)c->rank * o->bytes : 0);
	char *sum = calloc(1, o->bytes ? o->bytes : 1);

	if (!sum)
		abort();
	for (int r = 0; r < c->n; r++) {
		void *x = r == c->rank ? NULL : taken(c, r, o->first_got[r], o->bytes);

		if (r == 0)
			memcpy(sum, x ? x : mine, o->bytes);
		else
			add(sum, x ? x : mine, o->count, o->type);
		free(x);
	}
	memcpy(o->to, sum, o->bytes);
	free(sum);
}

static void finish(const op *o)
{
	struct ncclComm *c = o->c;

	standin_device(1);
	const int nothing = o->what == SEND || (o->what == REDUCE && c->rank != o->peer);
	if (!nothing)
		standin_touch(names[o->what], ORDER_WRITES, o->to, o->bytes * (o->what == GATHER ? (size_t)c->n : 1));
	if (o->what == SUM || o->what == SCATTER || (o->what == REDUCE && !nothing))
		sum_up(o);
	else if (o->what == GATHER)
		memmove((char *)o->to + (size_t)c->rank * o->bytes, o->from, o->bytes);
	else if (o->what == BROADCAST && c->rank == o->peer)
		memmove(o->to, o->from, o->bytes);
	for (int r = 0; r < c->n; r++) {
		if (!gets(o, r))
			continue;
		if (o->what == RECEIVE || o->what == GATHER || o->what == BROADCAST) {
			void *x = taken(c, r, o->first_got[r], o->bytes);

			memcpy((char *)o->to + (o->what == GATHER ? (size_t)r * o->bytes : 0), x, o->bytes);
			free(x);
		}
		take_away(c, r, o->first_got[r]);
	}
	standin_device(0);
}

static standin_end run_group(void *what)
{
	group *g = what;
	int wait = 0;

	for (int i = 0; i < g->n; i++)
		if (!g->v[i].begun) {
			begin(&g->v[i]);
			wait = 1;
		}
	if (wait)
		return STANDIN_WAITS;
	for (int i = 0; i < g->n; i++) {
		const int is = g->v[i].hangs || g->v[i].c->error ? -1 : ready(&g->v[i]);

		if (is < 0 && !g->v[i].hangs && !g->v[i].c->error)
			g->v[i].c->error = ncclRemoteError;
		if (is < 0)
			return STANDIN_LOST;
		if (is == 0)
			return STANDIN_WAITS;
	}
	for (int i = 0; i < g->n; i++)
		finish(&g->v[i]);
	free(g);
	return STANDIN_DONE;
}

/* ---- groups ---- */

static op waiting[OPERATIONS];
static cudaStream_t on[OPERATIONS];
static int nwaiting, depth;

static ncclResult_t failed(ncclResult_t r, const char *why)
{
	snprintf(last_error, sizeof last_error, "%s", why);
	return r;
}

API ncclResult_t ncclGroupStart(void)
{
	depth++;
	return ncclSuccess;
}

/* A group for each stream, in the order in which they were named. */
API ncclResult_t ncclGroupEnd(void)
{
	if (depth == 0)
		return failed(ncclInvalidUsage, "ncclGroupEnd: not in a group call");
	if (--depth)
		return ncclSuccess;
	while (nwaiting) {
		const cudaStream_t s = on[0];
		group *g = calloc(1, sizeof *g + (size_t)nwaiting * sizeof *g->v);
		int left = 0;

		if (!g)
			abort();
		for (int i = 0; i < nwaiting; i++)
			if (on[i] == s) {
				g->v[g->n++] = waiting[i];
			} else {
				waiting[left] = waiting[i];
				on[left++] = on[i];
			}
		nwaiting = left;
		standin_meet(s, run_group, g);
	}
	return ncclSuccess;
}

static ncclResult_t planted(op *o)
{
	static int nth;
	const char *plan = getenv("STANDIN_NCCL_FAIL"), *rank = getenv("OMPI_COMM_WORLD_RANK");
	char how[16] = "";
	int of, n;

	nth++;
	if (!plan || sscanf(plan, "%d:%d:%15s", &of, &n, how) != 3 || (of != -1 && of != atoi(rank ? rank : "0")) ||
		n != nth)
		return ncclSuccess;
	if (!strcmp(how, "die"))
		_exit(9);
	if (!strcmp(how, "call"))
		return failed(ncclSystemError, "planted: no socket could be opened");
	if (!strcmp(how, "error")) {
		o->c->error = ncclSystemError;
		failed(ncclSystemError, "planted: the network broke");
	}
	if (!strcmp(how, "behind"))
		standin_behind(4);
	else
		o->hangs = 1;
	return ncclSuccess;
}

static ncclResult_t put(op o, cudaStream_t s)
{
	const ncclResult_t r = planted(&o);

	if (r != ncclSuccess)
		return r;
	if (o.c->error)
		return o.c->error;
	if (nwaiting == OPERATIONS || !s)
		return failed(ncclInvalidUsage, "too many operations of a group, or no stream");
	o.bytes = o.count * size_of(o.type);
	waiting[nwaiting] = o;
	on[nwaiting++] = s;
	if (depth)
		return ncclSuccess;
	depth = 1;
	return ncclGroupEnd();
}

API ncclResult_t ncclSend(const void *buf, size_t count, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s)
{
	return put((op){ .what = SEND, .c = c, .from = buf, .count = count, .type = t, .peer = peer }, s);
}

API ncclResult_t ncclRecv(void *buf, size_t count, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s)
{
	return put((op){ .what = RECEIVE, .c = c, .to = buf, .count = count, .type = t, .peer = peer }, s);
}

static ncclResult_t added(kind what, int root, const void *from, void *to, size_t count, ncclDataType_t t,
	ncclRedOp_t by, ncclComm_t c, cudaStream_t s)
{
	if (by != ncclSum || (t != ncclFloat32 && t != ncclFloat64))
		return failed(ncclInvalidArgument, "the stand-in adds f32 and f64");
	return put((op){ .what = what, .c = c, .from = from, .to = to, .count = count, .type = t, .peer = root }, s);
}

API ncclResult_t ncclAllReduce(
	const void *from, void *to, size_t count, ncclDataType_t t, ncclRedOp_t by, ncclComm_t c, cudaStream_t s)
{
	return added(SUM, 0, from, to, count, t, by, c, s);
}

API ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t t, ncclRedOp_t by, int root,
	ncclComm_t c, cudaStream_t s)
{
	return added(REDUCE, root, from, to, count, t, by, c, s);
}

API ncclResult_t ncclReduceScatter(
	const void *from, void *to, size_t count, ncclDataType_t t, ncclRedOp_t by, ncclComm_t c, cudaStream_t s)
{
	return added(SCATTER, 0, from, to, count, t, by, c, s);
}

API ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t t, ncclComm_t c, cudaStream_t s)
{
	return put((op){ .what = GATHER, .c = c, .from = from, .to = to, .count = count, .type = t }, s);
}

API ncclResult_t ncclBroadcast(
	const void *from, void *to, size_t count, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s)
{
	return put(
		(op){ .what = BROADCAST, .c = c, .from = from, .to = to, .count = count, .type = t, .peer = root }, s);
}

/* ---- communicators ---- */

/* A new folder: what a killed run left has signatures of processes that are gone, and numbers of processes come again. */
API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	const char *folder = getenv("TMPDIR");

	memset(id, 0, sizeof *id);
	snprintf(id->internal, sizeof id->internal, "%s/standin-nccl-XXXXXX",
		folder                     ? folder
		: access("/dev/shm", W_OK) ? "/tmp"
					   : "/dev/shm");
	return mkdtemp(id->internal) ? ncclSuccess : failed(ncclSystemError, "no folder for a communicator");
}

/* Who is rank r, and on which device; 0: not known yet. */
static int look_for(const struct ncclComm *c, int r, char uuid[16], int *pid)
{
	char path[200];

	snprintf(path, sizeof path, "%s/rank%d", c->folder, r);
	FILE *f = fopen(path, "rb");
	const int ok = f && fread(pid, sizeof *pid, 1, f) == 1 && fread(uuid, 16, 1, f) == 1;

	if (f)
		fclose(f);
	return ok;
}

static void sign(const struct ncclComm *c, const char uuid[16])
{
	const int pid = (int)getpid();
	char path[200], part[200];

	snprintf(path, sizeof path, "%s/rank%d", c->folder, c->rank);
	snprintf(part, sizeof part, "%s/part%d", c->folder, c->rank);
	FILE *f = fopen(part, "wb");
	if (!f || fwrite(&pid, sizeof pid, 1, f) != 1 || fwrite(uuid, 16, 1, f) != 1 || fclose(f) ||
		rename(part, path)) {
		perror(path);
		abort();
	}
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n, ncclUniqueId id, int rank, ncclConfig_t *config)
{
	struct ncclComm *c = calloc(1, sizeof *c);
	char mine[16], other[16];

	if (standin_full("nccl"))
		return failed(ncclUnhandledCudaError, "Cuda failure 2 'out of memory'");
	if (!c || n > MOST || rank < 0 || rank >= n || config->size != sizeof *config)
		return failed(ncclInvalidArgument, "ncclCommInitRankConfig");
	snprintf(c->folder, sizeof c->folder, "%.*s", (int)sizeof c->folder - 1, id.internal);
	c->n = n;
	c->rank = rank;
	mkdir(c->folder, 0777);
	standin_uuid(mine);
	sign(c, mine);
	for (int r = 0; r < n; r++) {
		while (!look_for(c, r, other, &c->pid[r]))
			nanosleep(&(struct timespec){ 0, 200000 }, NULL);
		if (r != rank && !memcmp(mine, other, 16))
			return failed(ncclInvalidUsage, "Duplicate GPU detected");
	}
	*comm = c;
	standin_joined(1);
	return ncclSuccess;
}

API ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	char path[200];

	snprintf(path, sizeof path, "%s/rank%d", c->folder, c->rank);
	unlink(path);
	rmdir(c->folder); /* by the last one */
	standin_joined(-1);
	free(c);
	return ncclSuccess;
}

API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error)
{
	standin_progress();
	*error = c->error;
	return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t r)
{
	static const char *const text[] = { "no error", "unhandled cuda error", "unhandled system error",
		"internal error", "invalid argument", "invalid usage",
		"remote process exited or there was a network error", "operation in progress" };

	return text[r];
}

API const char *ncclGetLastError(ncclComm_t c)
{
	(void)c;
	return last_error;
}
