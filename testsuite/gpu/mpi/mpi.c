/* mpi.c: messages between the processes of one machine, in place of an MPI that is not there (run.sh). mpirun.c makes memory
 * that all of them map; in it every ordered pair of ranks has a pipe of ROOM bytes, which one side fills and the other
 * empties. A message is a header and its bytes; what nobody asked for yet waits in memory. Nothing moves outside of calls,
 * and nobody calls from two threads at once. Sums are taken in the order of the ranks. */
#include "mpi.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "pipes.h"

struct pdmpi_comm {
	int id, n, me, turn;
	int *rank;
}; /* id: of its messages; id + 1: of its collectives' */
struct pdmpi_group {
	int n;
	int rank[];
};

typedef struct head {
	int comm, tag;
	uint64_t bytes;
} head;

struct pdmpi_request {
	head h;
	int peer, error;
	char *buf;
	uint64_t moved; /* a send: of header and bytes; a receive: of bytes */
	bool done, recv;
	int left; /* a collective: messages that are to come */
	MPI_Request parent, next;
	float *sum;
	char *parts;
	int n, members; /* a sum, and what all members gave */
};

static struct pdmpi_comm world;
MPI_Comm pdmpi_world = &world;
static struct {
	char *map;
	int me, n;
	bool on, off;
} here;
static struct side {
	MPI_Request first, *last; /* sends that are under way to this rank */
	head h;                   /* what comes from it */
	uint64_t got;             /* of the header, then of header and bytes */
	MPI_Request into;
} *sides;
static MPI_Request expected, *expected_end = &expected; /* receives, in the order of their posting */
static MPI_Request strays, *strays_end = &strays;       /* messages that came before their receives */

static void *room(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p) {
		fprintf(stderr, "messages: no memory for %zu bytes\n", bytes);
		exit(71);
	}
	return p;
}

static struct pipe *pipe_of(int from, int to)
{
	return (struct pipe *)(void *)(here.map + (size_t)(from * here.n + to) * sizeof(struct pipe));
}

/* ---- bytes through a pipe: how many went ---- */

static uint64_t fill(struct pipe *p, const void *from, uint64_t n)
{
	const uint64_t put = atomic_load_explicit(&p->written, memory_order_relaxed),
		       left = ROOM - (put - atomic_load_explicit(&p->read, memory_order_acquire)), at = put % ROOM;

	n = n < left ? n : left;
	const uint64_t one = n < ROOM - at ? n : ROOM - at;

	memcpy(p->bytes + at, from, one);
	memcpy(p->bytes, (const char *)from + one, n - one);
	atomic_store_explicit(&p->written, put + n, memory_order_release);
	return n;
}

static uint64_t drain(struct pipe *p, void *to, uint64_t n)
{
	const uint64_t tail = atomic_load_explicit(&p->read, memory_order_relaxed),
		       there = atomic_load_explicit(&p->written, memory_order_acquire) - tail, at = tail % ROOM;

	n = n < there ? n : there;
	const uint64_t one = n < ROOM - at ? n : ROOM - at;

	memcpy(to, p->bytes + at, one);
	memcpy((char *)to + one, p->bytes, n - one);
	atomic_store_explicit(&p->read, tail + n, memory_order_release);
	return n;
}

/* ---- requests ---- */

static void finish(MPI_Request r)
{
	MPI_Request up = r->parent;

	r->done = true;
	if (!up)
		return;
	up->error = r->error ? r->error : up->error;
	free(r);
	if (--up->left)
		return;
	for (int i = 0; up->sum && i < up->n; i++) {
		up->sum[i] = 0;
		for (int k = 0; k < up->members; k++)
			up->sum[i] += ((const float *)(const void *)up->parts)[k * up->n + i];
	}
	free(up->parts);
	up->done = true;
}

static MPI_Request take(MPI_Request *first, MPI_Request **end, int peer, const head *h)
{
	for (MPI_Request *p = first; *p; p = &(*p)->next) {
		MPI_Request r = *p;

		if (r->peer != peer || r->h.comm != h->comm || r->h.tag != h->tag)
			continue;
		*p = r->next;
		if (!*p)
			*end = p;
		r->next = NULL;
		return r;
	}
	return NULL;
}

static void append(MPI_Request **end, MPI_Request r)
{
	r->next = NULL;
	**end = r;
	*end = &r->next;
}

static bool push(int to)
{
	struct side *s = &sides[to];
	bool moved = false;

	while (s->first) {
		MPI_Request r = s->first;
		struct pipe *p = pipe_of(here.me, to);
		const uint64_t before = r->moved;

		if (r->moved < sizeof r->h)
			r->moved += fill(p, (const char *)&r->h + r->moved, sizeof r->h - r->moved);
		if (r->moved >= sizeof r->h)
			r->moved += fill(p, r->buf + (r->moved - sizeof r->h), r->h.bytes + sizeof r->h - r->moved);
		moved |= r->moved > before;
		if (r->moved < r->h.bytes + sizeof r->h)
			break;
		s->first = r->next;
		if (!s->first)
			s->last = &s->first;
		finish(r);
	}
	return moved;
}

/* Where the message whose header came goes: a receive that waits for it, or memory of its own. */
static MPI_Request target(int from, const head *h)
{
	MPI_Request r = take(&expected, &expected_end, from, h);

	if (r && r->h.bytes >= h->bytes) {
		r->h.bytes = h->bytes;
		return r;
	}
	if (r) { /* longer than what was asked for: the bytes go nowhere */
		r->error = MPI_ERR_TRUNCATE;
		r->buf = room(h->bytes);
		r->h.bytes = h->bytes;
		return r;
	}
	r = room(sizeof *r);
	r->h = *h;
	r->peer = from;
	r->buf = room(h->bytes);
	append(&strays_end, r);
	return r;
}

static bool pull(int from)
{
	struct side *s = &sides[from];
	struct pipe *p = pipe_of(from, here.me);
	bool moved = false;

	for (;;) {
		const uint64_t before = s->got;

		if (s->got < sizeof s->h) {
			s->got += drain(p, (char *)&s->h + s->got, sizeof s->h - s->got);
			if (s->got == sizeof s->h)
				s->into = target(from, &s->h);
		}
		if (s->got >= sizeof s->h)
			s->got += drain(p, s->into->buf + (s->got - sizeof s->h), s->h.bytes + sizeof s->h - s->got);
		moved |= s->got > before;
		if (s->got < sizeof s->h || s->got < s->h.bytes + sizeof s->h)
			return moved;
		s->got = 0;
		if (s->into->recv)
			finish(s->into);
		else
			s->into->done = true;
	}
}

static bool progress(void)
{
	bool moved = false;

	for (int r = 0; r < here.n; r++) {
		moved |= push(r);
		moved |= pull(r);
	}
	return moved;
}

static MPI_Request send(const void *buf, uint64_t bytes, int peer, int comm, int tag)
{
	MPI_Request r = room(sizeof *r);

	r->h = (head){ comm, tag, bytes };
	r->peer = peer;
	r->buf = (char *)(uintptr_t)buf;
	append(&sides[peer].last, r);
	return r;
}

static MPI_Request receive(void *buf, uint64_t bytes, int peer, int comm, int tag, MPI_Request parent)
{
	const head h = { comm, tag, bytes };
	MPI_Request r = room(sizeof *r), stray = NULL;

	r->h = h;
	r->peer = peer;
	r->buf = buf;
	r->recv = true;
	r->parent = parent;
	for (MPI_Request q = strays; q && !stray; q = q->next)
		stray = q->peer == peer && q->h.comm == comm && q->h.tag == tag ? q : NULL;
	if (!stray) {
		append(&expected_end, r);
		return r;
	}
	while (!stray->done)
		if (!progress())
			sched_yield();
	take(&strays, &strays_end, peer, &h);
	if (stray->h.bytes > bytes)
		r->error = MPI_ERR_TRUNCATE;
	r->h.bytes = stray->h.bytes;
	memcpy(buf, stray->buf, stray->h.bytes < bytes ? stray->h.bytes : bytes);
	free(stray->buf);
	free(stray);
	finish(r);
	return r;
}

/* ---- MPI's calls ---- */

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided)
{
	const char *rank = getenv("PDMPI_RANK"), *size = getenv("PDMPI_SIZE"), *shared = getenv("PDMPI_SHARED");

	(void)argc;
	(void)argv;
	(void)wanted;
	here.n = size ? atoi(size) : 1;
	here.me = rank ? atoi(rank) : 0;
	const size_t bytes = (size_t)(here.n * here.n) * sizeof(struct pipe);
	const int fd = shared ? atoi(shared) : -1;

	here.map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
	if (here.map == MAP_FAILED)
		return MPI_ERR_OTHER;
	sides = room((size_t)here.n * sizeof *sides);
	world = (struct pdmpi_comm){ .n = here.n, .me = here.me, .rank = room((size_t)here.n * sizeof(int)) };
	for (int i = 0; i < here.n; i++) {
		world.rank[i] = i;
		sides[i].last = &sides[i].first;
	}
	*provided = MPI_THREAD_SERIALIZED;
	here.on = true;
	return MPI_SUCCESS;
}

int MPI_Initialized(int *flag)
{
	*flag = here.on;
	return MPI_SUCCESS;
}

int MPI_Finalized(int *flag)
{
	*flag = here.off;
	return MPI_SUCCESS;
}

int MPI_Finalize(void)
{
	char *all = room((size_t)here.n), me = 0;

	MPI_Allgather(&me, 1, MPI_BYTE, all, 1, MPI_BYTE, pdmpi_world);
	free(all);
	here.off = true;
	return MPI_SUCCESS;
}

int MPI_Abort(MPI_Comm c, int code)
{
	(void)c;
	_exit(code);
}

int MPI_Error_string(int code, char *text, int *n)
{
	*n = snprintf(text, MPI_MAX_ERROR_STRING, "error %d", code);
	return MPI_SUCCESS;
}

int MPI_Error_class(int code, int *class)
{
	*class = code;
	return MPI_SUCCESS;
}

int MPI_Comm_set_errhandler(MPI_Comm c, MPI_Errhandler h)
{
	(void)c;
	(void)h;
	return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm c, int *rank)
{
	*rank = c->me;
	return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm c, int *size)
{
	*size = c->n;
	return MPI_SUCCESS;
}

/* Everyone makes the same ones in the same order. */
static int new_id(void)
{
	static int made;

	return 2 * ++made;
}

int MPI_Comm_dup(MPI_Comm c, MPI_Comm *copy)
{
	*copy = room(sizeof **copy);
	**copy = *c;
	(*copy)->id = new_id();
	return MPI_SUCCESS;
}

/* Those of one color, in the order of key and then of rank. */
int MPI_Comm_split(MPI_Comm c, int color, int key, MPI_Comm *part)
{
	struct asked {
		int color, key;
	} mine = { color, key }, *all = room((size_t)c->n * sizeof *all);
	MPI_Comm p = *part = room(sizeof *p);

	MPI_Allgather(&mine, (int)sizeof mine, MPI_BYTE, all, (int)sizeof mine, MPI_BYTE, c);
	*p = (struct pdmpi_comm){ .id = new_id(), .rank = room((size_t)c->n * sizeof(int)) };
	for (int i = 0; i < c->n; i++) {
		int at = 0;

		if (all[i].color != color)
			continue;
		for (int k = 0; k < c->n; k++)
			at += all[k].color == color && (all[k].key < all[i].key || (all[k].key == all[i].key && k < i));
		p->rank[at] = c->rank[i];
		p->n++;
		if (i == c->me)
			p->me = at;
	}
	free(all);
	return MPI_SUCCESS;
}

int MPI_Comm_get_attr(MPI_Comm c, int key, void *value, int *flag)
{
	static int most = INT32_MAX;

	(void)c;
	*flag = key == MPI_TAG_UB;
	*(int **)value = &most;
	return MPI_SUCCESS;
}

int MPI_Comm_group(MPI_Comm c, MPI_Group *g)
{
	*g = room(sizeof **g + (size_t)c->n * sizeof(int));
	(*g)->n = c->n;
	memcpy((*g)->rank, c->rank, (size_t)c->n * sizeof(int));
	return MPI_SUCCESS;
}

int MPI_Group_incl(MPI_Group g, int n, const int *ranks, MPI_Group *part)
{
	*part = room(sizeof **part + (size_t)n * sizeof(int));
	(*part)->n = n;
	for (int i = 0; i < n; i++)
		(*part)->rank[i] = g->rank[ranks[i]];
	return MPI_SUCCESS;
}

int MPI_Group_free(MPI_Group *g)
{
	free(*g);
	*g = NULL;
	return MPI_SUCCESS;
}

int MPI_Comm_create_group(MPI_Comm c, MPI_Group g, int tag, MPI_Comm *made)
{
	(void)c;
	*made = room(sizeof **made);
	**made = (struct pdmpi_comm){
		.id = (1 << 20) + 2 * tag, .n = g->n, .me = -1, .rank = room((size_t)g->n * sizeof(int))
	};
	for (int i = 0; i < g->n; i++) {
		(*made)->rank[i] = g->rank[i];
		if (g->rank[i] == here.me)
			(*made)->me = i;
	}
	return MPI_SUCCESS;
}

int MPI_Isend(const void *buf, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Request *r)
{
	*r = send(buf, (uint64_t)n * t, c->rank[peer], c->id, tag);
	progress();
	return MPI_SUCCESS;
}

int MPI_Irecv(void *buf, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Request *r)
{
	*r = receive(buf, (uint64_t)n * t, c->rank[peer], c->id, tag, NULL);
	return MPI_SUCCESS;
}

int MPI_Testsome(int n, MPI_Request *r, int *done, int *index, MPI_Status *status)
{
	int rc = MPI_SUCCESS;

	*done = 0;
	progress();
	for (int i = 0; i < n; i++) {
		if (!r[i] || !r[i]->done)
			continue;
		if (r[i]->error)
			rc = MPI_ERR_IN_STATUS;
		status[*done] = (MPI_Status){ r[i]->peer, r[i]->h.tag, r[i]->error, (int)r[i]->h.bytes };
		index[(*done)++] = i;
		free(r[i]);
		r[i] = MPI_REQUEST_NULL;
	}
	return rc;
}

int MPI_Get_count(const MPI_Status *s, MPI_Datatype t, int *n)
{
	*n = s->count / (int)t;
	return MPI_SUCCESS;
}

/* Everyone to everyone. */
static MPI_Request gather(const void *mine, size_t bytes, char *all, MPI_Comm c)
{
	MPI_Request up = room(sizeof *up);
	const int tag = c->turn++;

	memcpy(all + (size_t)c->me * bytes, mine, bytes);
	up->left = 2 * c->n - 1;
	for (int i = 0; i < c->n; i++)
		if (i != c->me) {
			send(all + (size_t)c->me * bytes, bytes, c->rank[i], c->id + 1, tag)->parent = up;
			receive(all + (size_t)i * bytes, bytes, c->rank[i], c->id + 1, tag, up);
		}
	return up;
}

/* Its own part, once nothing can finish before the caller is ready. */
static void begun(MPI_Request up)
{
	MPI_Request own = room(sizeof *own);

	own->parent = up;
	finish(own);
	progress();
}

int MPI_Iallgather(
	const void *mine, int n, MPI_Datatype t, void *all, int nall, MPI_Datatype tall, MPI_Comm c, MPI_Request *r)
{
	(void)nall;
	(void)tall;
	*r = gather(mine, (size_t)n * t, all, c);
	begun(*r);
	return MPI_SUCCESS;
}

int MPI_Allgather(const void *mine, int n, MPI_Datatype t, void *all, int nall, MPI_Datatype tall, MPI_Comm c)
{
	MPI_Request r;

	MPI_Iallgather(mine, n, t, all, nall, tall, c, &r);
	while (!r->done)
		if (!progress())
			sched_yield();
	free(r);
	return MPI_SUCCESS;
}

int MPI_Iallreduce(const void *in, void *out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request *r)
{
	char *parts = room((size_t)c->n * (size_t)n * t);

	(void)op;
	*r = gather(in == MPI_IN_PLACE ? out : in, (size_t)n * t, parts, c);
	(*r)->sum = out;
	(*r)->parts = parts;
	(*r)->n = n;
	(*r)->members = c->n;
	begun(*r);
	return MPI_SUCCESS;
}
