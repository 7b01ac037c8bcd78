/* host_memory.c: parts of AllReduce between ranks of one host, through memory that both have.
 *
 * Each rank has a lane to every other rank of its host: a ring of bytes that it alone writes and the other alone reads. Who
 * posts a message of a sum to such a rank has it copied into the lane, piece by piece as there is room; who awaits one has it
 * copied from there, or added to what it has, in the order in which the messages were posted. That order is the same on both
 * sides, since all members make their sums in one order. Messages are the same as over MPI, so the sums have the same bits.
 *
 *     lane: [put: bytes written since the start][got: bytes read][SPAN bytes]
 *     a message: its length in a unit of UNIT bytes, then its bytes, filled up to whole units
 *
 * It advances when the requests of MPI do, by whoever polls, with the lock held: nobody waits in here.
 *
 * A rank's lanes are one memory file without a name. It tells the others its process and the file's number before step 0; they
 * open it through /proc and find a random word in it that the rank told too. A pair of ranks uses its lanes if both have opened
 * the other's; all others use MPI, as all do where PD_SHARED=0 is in the environment. */
#include "rt.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { UNIT = 64, PIECE = 32 * 1024, SPAN = 512 * 1024, PAGE = 64 * 1024 }; /* PAGE: no system has larger ones */

typedef struct lane {
	_Alignas(UNIT) _Atomic uint64_t put;
	_Alignas(UNIT) _Atomic uint64_t got;
	_Alignas(UNIT) char fill[PAGE - 2 * UNIT]; /* so that each begins with a page of the file */
	char bytes[SPAN];
} lane;

typedef struct offer { /* what a rank tells the others */
	int64_t pid;
	int file; /* -1: none */
	uint64_t word;
} offer;

typedef struct message {
	int peer;
	bool recv, add, busy;
	char *at;
	size_t bytes, done; /* done: of size() */
} message;

static offer mine, *offers;
static unsigned char *seen; /* of each rank what it could open, by rank */
static lane **out, **in;    /* by rank; NULL: MPI */
static message posted[RT_COLL];
static int order[RT_COLL], npending; /* those that are under way, as they were posted */

_Static_assert(sizeof(lane) % PAGE == 0, "lanes are mapped by themselves");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "lanes count without locks");

static size_t size(size_t bytes) { return UNIT + (bytes + UNIT - 1) / UNIT * UNIT; }

/* The file: a page with the word, then a lane to each rank. Only what is written takes memory. */
static size_t lane_at(int rank) { return PAGE + (size_t)rank * sizeof(lane); }

static bool open_mine(int world)
{
	const char *said = getenv("PD_SHARED");

	if ((said && !strcmp(said, "0")) || getrandom(&mine.word, sizeof mine.word, 0) != (ssize_t)sizeof mine.word)
		return false;
	mine.file = memfd_create("pdcc sums", MFD_CLOEXEC);
	return mine.file >= 0 && !ftruncate(mine.file, (off_t)lane_at(world)) &&
	       pwrite(mine.file, &mine.word, sizeof mine.word, 0) == (ssize_t)sizeof mine.word;
}

static lane *map(int file, int rank)
{
	void *at = mmap(NULL, sizeof(lane), PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)lane_at(rank));

	return at == MAP_FAILED ? NULL : at;
}

/* The lane that another rank of this host has made for this one; NULL: it cannot be reached. */
static lane *reach(const offer *o, int world)
{
	char path[64];
	uint64_t word = 0;
	struct stat st;
	lane *got = NULL;

	snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)o->pid, o->file);
	const int file = o->file < 0 ? -1 : open(path, O_RDWR | O_CLOEXEC);

	if (file < 0)
		return NULL;
	if (!fstat(file, &st) && S_ISREG(st.st_mode) && st.st_size == (off_t)lane_at(world) &&
		pread(file, &word, sizeof word, 0) == (ssize_t)sizeof word && word == o->word)
		got = map(file, rt_program->rank);
	close(file);
	return got;
}

size_t rt_shared_offer(int world, void **told, void **all)
{
	mine = (offer){ .pid = getpid(), .file = -1 };
	if (!open_mine(world) && mine.file >= 0) {
		close(mine.file);
		mine.file = -1;
	}
	offers = rt_alloc((size_t)world * sizeof *offers);
	out = rt_alloc((size_t)world * sizeof *out);
	in = rt_alloc((size_t)world * sizeof *in);
	*told = &mine;
	*all = offers;
	return sizeof mine;
}

unsigned char *rt_shared_see(int world, void **all)
{
	const int self = rt_program->rank;
	const char *host = rt_process_of(rt_task_of(self))->host;

	seen = rt_alloc((size_t)world * (size_t)(world + 1));
	unsigned char *sees = seen + (size_t)world * (size_t)world;

	for (int r = 0; mine.file >= 0 && r < world; r++)
		if (r != self && rt_group_of(r) == rt_group() && !strcmp(rt_process_of(rt_task_of(r))->host, host)) {
			in[r] = reach(&offers[r], world);
			out[r] = in[r] ? map(mine.file, r) : NULL;
			sees[r] = out[r] != NULL;
		}
	*all = seen;
	return sees;
}

/* What is not used on both sides is given back. */
void rt_shared_agree(int world)
{
	const size_t self = (size_t)rt_program->rank, n = (size_t)world;
	int pairs = 0;

	for (size_t r = 0; r < n; r++) {
		if (seen[self * n + r] && seen[r * n + self]) {
			pairs++;
			continue;
		}
		if (in[r])
			munmap(in[r], sizeof(lane));
		if (out[r])
			munmap(out[r], sizeof(lane));
		in[r] = out[r] = NULL;
	}
	if (mine.file >= 0)
		close(mine.file);
	free(offers);
	free(seen);
	if (rt_log >= RT_LOG_DEBUG)
		fprintf(stderr, "%s: sums with %d of %d other ranks go through memory\n", rt_name((int)self), pairs,
			world - 1);
}

bool rt_shared(int peer) { return out && peer < rt_program->world && out[peer]; }

void rt_shared_post(int k, int peer, bool recv, bool add, void *buf, size_t bytes)
{
	posted[k] = (message){ .peer = peer, .recv = recv, .add = add, .busy = true, .at = buf, .bytes = bytes };
	order[npending++] = k;
}

bool rt_shared_busy(int k) { return posted[k].busy; }

/* Bytes of the next piece of a message whose head is done: whole units, in one go in the lane. */
static size_t piece(const message *m, uint64_t lane_at_byte, uint64_t room)
{
	const size_t left = size(m->bytes) - m->done, row = SPAN - (size_t)(lane_at_byte % SPAN);
	size_t n = left < row ? left : row;

	n = n < room ? n : (size_t)room;
	return n < PIECE ? n : PIECE;
}

/* Of these bytes, those that are no filling. */
static size_t real(const message *m, size_t n)
{
	const size_t left = m->bytes - (m->done - UNIT);

	return n < left ? n : left;
}

static bool write_some(message *m)
{
	lane *l = out[m->peer];
	uint64_t put = atomic_load_explicit(&l->put, memory_order_relaxed);
	const uint64_t from = put;
	uint64_t got = atomic_load_explicit(&l->got, memory_order_acquire);

	while (m->done < size(m->bytes) && put - got < SPAN) {
		char *to = l->bytes + put % SPAN;
		size_t n = UNIT;

		if (m->done)
			memcpy(to, m->at + (m->done - UNIT), real(m, n = piece(m, put, SPAN - (put - got))));
		else
			memcpy(to, &(uint64_t){ m->bytes }, sizeof(uint64_t));
		m->done += n;
		put += n;
		atomic_store_explicit(&l->put, put, memory_order_release);
		got = atomic_load_explicit(&l->got, memory_order_acquire);
	}
	return put != from;
}

static void take(const message *m, const char *from, size_t n)
{
	char *to = m->at + (m->done - UNIT);

	if (!m->add) {
		memcpy(to, from, n);
		return;
	}
	float *restrict a = (float *)(void *)to;
	const float *restrict b = (const float *)(const void *)from;

	for (size_t i = 0; i < n / sizeof *a; i++)
		a[i] += b[i];
}

static bool read_some(message *m)
{
	lane *l = in[m->peer];
	uint64_t got = atomic_load_explicit(&l->got, memory_order_relaxed);
	const uint64_t from = got;
	uint64_t put = atomic_load_explicit(&l->put, memory_order_acquire), told;

	while (m->done < size(m->bytes) && put != got) {
		const char *at = l->bytes + got % SPAN;
		size_t n = UNIT;

		if (m->done) {
			n = piece(m, got, put - got);
			take(m, at, real(m, n));
		} else {
			memcpy(&told, at, sizeof told);
			if (told != m->bytes)
				rt_fail(RT_LOST, "R104",
					"a part of %zu bytes of an AllReduce was due from %s, %llu bytes came",
					m->bytes, rt_name(m->peer), (unsigned long long)told);
		}
		m->done += n;
		got += n;
		atomic_store_explicit(&l->got, got, memory_order_release);
		put = atomic_load_explicit(&l->put, memory_order_acquire);
	}
	return got != from;
}

/* An earlier message of the same lane is under way. */
static bool behind(int i)
{
	const message *m = &posted[order[i]];

	while (--i >= 0) {
		const message *e = &posted[order[i]];

		if (e->busy && e->peer == m->peer && e->recv == m->recv)
			return true;
	}
	return false;
}

bool rt_shared_advance(void)
{
	bool moved = false;
	int left = 0;

	for (int i = 0; i < npending; i++) {
		message *m = &posted[order[i]];

		if (!behind(i)) {
			moved |= m->recv ? read_some(m) : write_some(m);
			m->busy = m->done < size(m->bytes);
		}
	}
	for (int i = 0; i < npending; i++)
		if (posted[order[i]].busy)
			order[left++] = order[i];
	npending = left;
	return moved;
}
