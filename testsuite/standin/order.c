/* order.c: accesses of streams, of the host and of messages held against each other (order.h): two to the same memory, at least one of
 * them a write, neither of which ended before the other began, are told with both deeds, and the program ends with a failure.
 *
 * An operation on a stream begins behind all that the stream was told before, the events it was told to wait for, and what the host had
 * done when it told it. The host is behind an operation when it has asked an event or the stream and heard that it passed, or waited for
 * one; a thread of the host behind another by locks, semaphores, atomic operations, pthread_create and join; a message of MPI is behind
 * what was done before its call, and over when its request is.
 *
 * Of four bytes the last write and the last read are kept (of reads that know nothing of each other several). The stand-in does things
 * in an order that agrees with all of this, whatever else it could have been: so what is found depends on what is told to wait for what,
 * not on what came first. Bytes of one such cell count as one. Pageable memory of the host is not looked at: a copy from or to there is
 * over, for the host, when the call returns. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "order.h"
#include "standin.h"
#include "watch.h"

enum { LINES = 200, CELL = 4, PAGE = 4096, CELLS = PAGE / CELL, TOLD = 64, PIECES = 4096 };
typedef uint32_t moment; /* line << 24 | deed; 0: none */
typedef struct clock {
	uint32_t of[LINES];
} clock;
struct order_point {
	clock seen;
	int line;
	order_point *next;
};

typedef enum kind { STREAM, THREAD, MESSAGE } kind;
typedef struct deed {
	const char *name;
	const void *code;
} deed; /* code: of the host, where it was */
/* told: others know of its present deed, and what it does next is another one; request: of a message under way */
static struct line {
	kind kind;
	int number;
	bool told;
	const void *request;
	clock seen;
	deed *deeds;
	size_t room;
} lines[LINES];
static int nlines = 1, nkind[3];

static uint32_t deed_of(moment m) { return m & 0xffffff; }
static unsigned line_of(moment m) { return m >> 24; }

/* ---- one at a time: threads of the host come here too ---- */

static char inside;

static void enter(void)
{
	while (__atomic_test_and_set(&inside, __ATOMIC_ACQUIRE))
		usleep(0);
}

static void leave(void) { __atomic_clear(&inside, __ATOMIC_RELEASE); }

static void *got(void *p)
{
	if (!p)
		abort();
	return p;
}

/* ---- lines ---- */

static void join(clock *to, const clock *from)
{
	for (int i = 0; i < nlines; i++)
		to->of[i] = from->of[i] > to->of[i] ? from->of[i] : to->of[i];
}

static int new_line(kind k)
{
	if (nlines == LINES) {
		fprintf(stderr, "stand-in: more than %d streams, threads and messages at once\n", LINES);
		abort();
	}
	lines[nlines].kind = k;
	lines[nlines].number = nkind[k]++;
	return nlines++;
}

static void next_deed(int line)
{
	struct line *l = &lines[line];
	const uint32_t n = ++l->seen.of[line];

	if (n >> 24)
		abort();
	if (n >= l->room) {
		l->deeds = got(realloc(l->deeds, (2 * (size_t)n + 64) * sizeof *l->deeds));
		memset(l->deeds + l->room, 0, (2 * (size_t)n + 64 - l->room) * sizeof *l->deeds);
		l->room = 2 * (size_t)n + 64;
	}
	l->told = false;
}

static _Thread_local int self __attribute__((tls_model("initial-exec")));

/* The line of this thread. */
static struct line *me(void)
{
	if (!self) {
		self = new_line(THREAD);
		next_deed(self);
	}
	return &lines[self];
}

int order_stream(void)
{
	enter();
	const int l = new_line(STREAM);
	leave();
	return l;
}

/* ---- operations and events ---- */

static order_point *unused;
static _Thread_local order_point *doing __attribute__((tls_model("initial-exec")));

static order_point *point(int line)
{
	order_point *p = unused;

	if (p)
		unused = p->next;
	else
		p = got(malloc(sizeof *p));
	p->line = line;
	p->seen = lines[line].seen;
	return p;
}

order_point *order_told(int line)
{
	enter();
	struct line *l = &lines[line], *host = me();

	next_deed(line);
	join(&l->seen, &host->seen);
	host->told = true;
	order_point *p = point(line);
	leave();
	return p;
}

void order_begins(order_point *deed) { doing = deed; }

void order_ends(order_point *deed, bool over)
{
	doing = NULL;
	if (!over)
		return;
	enter();
	deed->next = unused;
	unused = deed;
	leave();
}

void order_recorded(order_point **event, int line)
{
	enter();
	if (!*event)
		*event = point(line);
	(*event)->seen = lines[line].seen;
	join(&(*event)->seen, &me()->seen);
	me()->told = true;
	leave();
}

void order_waits(int line, const order_point *event)
{
	enter();
	if (event)
		join(&lines[line].seen, &event->seen);
	leave();
}

void order_passed(const order_point *event)
{
	enter();
	if (event)
		join(&me()->seen, &event->seen);
	leave();
}

void order_idle(int line)
{
	enter();
	join(&me()->seen, &lines[line].seen);
	leave();
}

/* ---- memory ---- */

typedef struct cell {
	moment write, read;
} cell; /* read: line 255: place of several in crowds */
typedef struct page {
	cell cells[CELLS];
} page;
enum { CROWD = 8, MID = 1 << 18, TOP = 1 << 17 };
typedef struct crowd {
	moment of[CROWD];
} crowd;

static page **pages[TOP]; /* by bits 30 and 12 of the address; (page *)1: looked at, not yet touched */
static page *const UNTOUCHED = (page *)1;
static crowd *crowds;
static uint32_t ncrowds, crowds_room, *free_crowds, nfree;
static struct piece {
	const char *at;
	size_t bytes;
	bool pinned;
} pieces[PIECES];
static int npieces;

static page **page_at(uintptr_t p, bool make)
{
	if (p >> 47)
		return NULL;
	page ***mid = &pages[p >> 30];
	if (!*mid && make)
		*mid = got(calloc(MID, sizeof **mid));
	return *mid ? &(*mid)[p >> 12 & (MID - 1)] : NULL;
}

static struct piece *piece_of(const void *p)
{
	for (int i = npieces - 1; i >= 0; i--)
		if (pieces[i].at && (uintptr_t)p - (uintptr_t)pieces[i].at < pieces[i].bytes)
			return &pieces[i];
	return NULL;
}

static void piece(const void *p, size_t bytes, bool pinned)
{
	enter();
	if (npieces == PIECES)
		abort();
	pieces[npieces++] = (struct piece){ p, bytes, pinned };
	for (size_t i = 0; i < bytes; i += PAGE)
		*page_at((uintptr_t)p + i, true) = UNTOUCHED;
	leave();
}

void order_piece(const void *p, size_t bytes) { piece(p, bytes, false); }

/* In pages of its own. */
void *order_pinned(size_t bytes)
{
	void *p = aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE);

	if (p)
		piece(p, bytes, true);
	return p;
}

void order_piece_gone(const void *p)
{
	enter();
	struct piece *q = p ? piece_of(p) : NULL;

	for (size_t i = 0; q && i < q->bytes; i += PAGE) {
		page **g = page_at((uintptr_t)p + i, true);

		if (*g != UNTOUCHED)
			free(*g);
		*g = NULL;
	}
	if (q)
		q->at = NULL;
	leave();
}

/* ---- what is found ---- */

static bool found;

static void describe(moment m, char *s, size_t room)
{
	const struct line *l = &lines[line_of(m)];
	const deed *d = &l->deeds[deed_of(m)];
	const char *name = d->name ? d->name : "an operation";
	char where[1][WATCH_WHERE] = { "" };

	if (l->kind == STREAM) {
		const char *first = NULL;

		for (uint32_t i = 1; i < l->room && !first; i++)
			first = l->deeds[i].name;
		snprintf(s, room, "%s (operation %u of stream %d, %s)", name, deed_of(m), l->number,
			l->number == 0 ? "which computes" : first);
	} else if (l->kind == THREAD) {
		if (d->code)
			watch_where(1, &d->code, where);
		snprintf(s, room, "thread %d of the host (%s)", l->number, where[0]);
	} else {
		snprintf(s, room, "%s", name);
	}
}

static void place(const void *p, size_t bytes, char *s, size_t room)
{
	const struct piece *q = piece_of(p);
	int n = 0;

	for (const struct piece *i = pieces; i < q; i++)
		n += i->pinned == q->pinned;
	snprintf(s, room, "bytes %td to %td of piece %d of %s memory, of %zu", (const char *)p - q->at,
		(const char *)p - q->at + (ptrdiff_t)bytes - 1, n, q->pinned ? "pinned" : "device", q->bytes);
}

static const char *name_of(moment m)
{
	const deed *d = &lines[line_of(m)].deeds[deed_of(m)];

	return d->name ? d->name : "";
}

/* Two deeds of the same names on the same lines are told once. */
static void tell(moment a, bool a_writes, moment b, bool b_writes, const void *p, size_t bytes)
{
	static struct {
		unsigned a, b;
		const char *a_name, *b_name;
	} told[TOLD];
	static int ntold;
	char text[2][300], where[120];

	found = true;
	for (int i = 0; i < ntold; i++)
		if (told[i].a == line_of(a) && told[i].b == line_of(b) && !strcmp(told[i].a_name, name_of(a)) &&
			!strcmp(told[i].b_name, name_of(b)))
			return;
	if (ntold == TOLD)
		return;
	told[ntold].a = line_of(a);
	told[ntold].b = line_of(b);
	told[ntold].a_name = name_of(a);
	told[ntold++].b_name = name_of(b);
	describe(a, text[0], sizeof text[0]);
	describe(b, text[1], sizeof text[1]);
	place(p, bytes, where, sizeof where);
	watch_say("not ordered, %s: %s %s, %s %s\n", where, text[0], a_writes ? "writes" : "reads", text[1],
		b_writes ? "writes" : "reads");
}

/* What was found ends the program with a failure: not before its end, for there may be more. */
__attribute__((destructor)) static void fail(void)
{
	if (!found)
		return;
	fflush(NULL);
	_exit(1);
}

/* ---- accesses ---- */

static bool before(moment m, const clock *seen) { return deed_of(m) <= seen->of[line_of(m)]; }

enum { SEVERAL = 255 };

static uint32_t new_crowd(void)
{
	if (!nfree) {
		const uint32_t more = crowds_room ? crowds_room : 1024;

		crowds = got(realloc(crowds, (crowds_room + more) * sizeof *crowds));
		free_crowds = got(realloc(free_crowds, (crowds_room + more) * sizeof *free_crowds));
		crowds_room += more;
		while (ncrowds < crowds_room)
			free_crowds[nfree++] = ncrowds++;
	}
	return free_crowds[--nfree];
}

/* A read that is not ordered behind c.read joins it; of more than a crowd the last is left out. */
static void together(cell *c, moment now, const clock *seen)
{
	crowd k = { { 0 } };
	int n = 0;

	if (line_of(c->read) == SEVERAL) {
		const crowd *old = &crowds[deed_of(c->read)];

		for (int i = 0; i < CROWD; i++)
			if (old->of[i] && line_of(old->of[i]) != line_of(now) && !before(old->of[i], seen))
				k.of[n++] = old->of[i];
	} else {
		k.of[n++] = c->read;
		c->read = (moment)SEVERAL << 24 | new_crowd();
	}
	k.of[n < CROWD ? n : CROWD - 1] = now;
	crowds[deed_of(c->read)] = k;
}

/* The read of c that the deed is not behind; 0: there is none. */
static moment reader(const cell *c, const clock *seen)
{
	if (line_of(c->read) != SEVERAL)
		return before(c->read, seen) ? 0 : c->read;
	for (int i = 0; i < CROWD; i++)
		if (!before(crowds[deed_of(c->read)].of[i], seen))
			return crowds[deed_of(c->read)].of[i];
	return 0;
}

/* What of the cell the deed is not behind; *writes: that it was a write. */
static moment against(const cell *c, bool write, const clock *seen, bool *writes)
{
	*writes = !before(c->write, seen);
	return *writes ? c->write : write ? reader(c, seen) : 0;
}

static void note(cell *c, bool write, moment now, const clock *seen)
{
	if (!write && (c->read == 0 || line_of(c->read) == line_of(now) ||
			      (line_of(c->read) != SEVERAL && before(c->read, seen)))) {
		c->read = now;
	} else if (!write) {
		together(c, now, seen);
	} else {
		if (line_of(c->read) == SEVERAL)
			free_crowds[nfree++] = deed_of(c->read);
		*c = (cell){ .write = now };
	}
}

static cell *cell_at(uintptr_t at)
{
	page **g = page_at(at, false);

	if (!g || !*g)
		return NULL;
	if (*g == UNTOUCHED)
		*g = got(calloc(1, sizeof **g));
	return &(*g)->cells[at % PAGE / CELL];
}

/* Of a line's present deed; what is not ordered is told as the range in which it is against one other deed. */
static void meet(int line, const clock *seen, const void *p, size_t bytes, bool write)
{
	const moment now = (moment)line << 24 | seen->of[line];
	moment other = 0, was;
	uintptr_t from = 0, end = (uintptr_t)p + bytes, at;
	bool writes = false, did = false;

	for (at = (uintptr_t)p / CELL * CELL; at < end; at += CELL) {
		cell *c = cell_at(at);

		if (!c || (write ? c->write == now && !c->read : c->read == now || c->write == now))
			continue;
		was = against(c, write, seen, &writes);
		if (was != other) {
			if (other)
				tell(other, did, now, write, (const void *)from, at - from);
			from = at;
			other = was;
			did = writes;
		}
		note(c, write, now, seen);
	}
	if (other)
		tell(other, did, now, write, (const void *)from, at - from);
}

void order_touch(const char *who, order_use use, const void *p, size_t bytes)
{
	if (!doing || !p || !bytes)
		return;
	enter();
	deed *d = &lines[doing->line].deeds[doing->seen.of[doing->line]];

	d->name = d->name ? d->name : who;
	meet(doing->line, &doing->seen, p, bytes, use == ORDER_WRITES);
	leave();
}

/* Of the host only what the program itself does with pinned memory counts: MPI's copies belong to messages, and the device's memory is
 * closed to it. */
void watch_access(const void *p, size_t bytes, bool write, bool atomic)
{
	const char *kernel = watch_kernel();
	page **g = page_at((uintptr_t)p, false);

	if (kernel && doing) {
		if (g && *g)
			order_touch(kernel, write || atomic ? ORDER_WRITES : ORDER_READS, p, bytes);
		return;
	}
	if (atomic && !kernel) {
		order_hears(p);
		order_tells(p);
	}
	if (!g || !*g || doing || !watch_of_program(watch_caller()))
		return;
	enter();
	struct line *l = me();
	const struct piece *q = piece_of(p);

	if (q && q->pinned) {
		if (l->told)
			next_deed(self);
		deed *d = &l->deeds[l->seen.of[self]];
		d->code = d->code ? d->code : watch_caller();
		meet(self, &l->seen, p, bytes, write);
	}
	leave();
}

/* ---- threads of the host ---- */

typedef struct known known;
struct known {
	const void *lock;
	clock seen;
	known *next;
};

static clock *known_of(const void *lock)
{
	static known *table[4096];
	known **k = &table[(uintptr_t)lock * UINT64_C(0x9e3779b97f4a7c15) >> 52];

	while (*k && (*k)->lock != lock)
		k = &(*k)->next;
	if (!*k) {
		*k = got(calloc(1, sizeof **k));
		(*k)->lock = lock;
	}
	return &(*k)->seen;
}

void order_tells(const void *lock)
{
	enter();
	join(known_of(lock), &me()->seen);
	me()->told = true;
	leave();
}

void order_hears(const void *lock)
{
	enter();
	join(&me()->seen, known_of(lock));
	leave();
}

void *order_leaves(void)
{
	enter();
	clock *c = got(malloc(sizeof *c));

	*c = me()->seen;
	me()->told = true;
	leave();
	return c;
}

void order_takes(void *left)
{
	enter();
	join(&me()->seen, left);
	leave();
	free(left);
}

/* ---- messages ---- */

void order_message(const void *request, const char *call, const void *from, size_t bytes, void *to, size_t room)
{
	enter();
	int l = 1;

	if (piece_of(from) || piece_of(to)) {
		while (l < nlines && (lines[l].kind != MESSAGE || lines[l].request))
			l++;
		if (l == nlines)
			new_line(MESSAGE);
		lines[l].request = request;
		next_deed(l);
		join(&lines[l].seen, &me()->seen);
		me()->told = true;
		lines[l].deeds[lines[l].seen.of[l]].name = call;
		meet(l, &lines[l].seen, from, bytes, false);
		meet(l, &lines[l].seen, to, room, true);
	}
	leave();
}

void order_message_over(const void *request)
{
	enter();
	for (int l = 1; l < nlines; l++)
		if (lines[l].kind == MESSAGE && lines[l].request == request) {
			join(&me()->seen, &lines[l].seen);
			lines[l].request = NULL;
		}
	leave();
}
