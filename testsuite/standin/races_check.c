/* races_check.c: races.c beside the definition. Random launches of a few threads, on a few bytes; here every access is kept, with the
 * clock of its thread, and held against all that came before. Both must find the first race at the same access, or none.
 * races_check SEED LAUNCHES; its last line says how many had a race. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "watch.h"

enum { BLOCKS = 3, ACTORS = 4, EVENTS = 40, BYTES = 16 };
static const unsigned thread_of[ACTORS] = { 0, 1, 32, 33 }; /* two of each of two warps */

/* Of every thread, how many of its events came before. */
typedef struct clock {
	unsigned at[BLOCKS * ACTORS];
} clock;
typedef struct event {
	unsigned block, actor, number;
	size_t from, bytes;
	watch_how how;
} event;

void watch_say(const char *format, ...) { (void)format; }

void watch_where(int n, const void *const *code, char (*where)[WATCH_WHERE])
{
	(void)code;
	for (int i = 0; i < n; i++)
		where[i][0] = 0;
}

void watch_memory(const void *p, char *s, size_t bytes)
{
	(void)p;
	(void)bytes;
	s[0] = 0;
}

static unsigned long long state;

static unsigned draw(unsigned n)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(state >> 33) % n;
}

static void join(clock *to, const clock *from)
{
	for (int i = 0; i < BLOCKS * ACTORS; i++)
		to->at[i] = to->at[i] < from->at[i] ? from->at[i] : to->at[i];
}

static clock now[BLOCKS * ACTORS], fence[BLOCKS * ACTORS],
	word; /* word: what came before the fences in front of its atomics */
static int fenced[BLOCKS * ACTORS];
static int counted[BLOCKS * ACTORS]; /* a thread knows of an operation of its block on the word */
static event seen[BLOCKS * EVENTS];
static size_t nseen;

/* An atomic operation on the word at byte 0: the others' are ordered before what comes behind, and what they told. */
static void meet_word(unsigned block, unsigned me)
{
	for (unsigned i = 0; i < BLOCKS * ACTORS; i++)
		if (i / ACTORS != block && now[me].at[i] < word.at[i])
			now[me].at[i] = word.at[i];
	if (fenced[me])
		join(&word, &fence[me]);
}

static int conflict(const event *e, const event *x, int shared)
{
	const unsigned other = e->block * ACTORS + e->actor, me = x->block * ACTORS + x->actor;

	if (other == me || e->from >= x->from + x->bytes || x->from >= e->from + e->bytes ||
		(shared && e->block != x->block))
		return 0;
	if ((e->how == WATCH_READS && x->how == WATCH_READS) || (e->how == WATCH_ATOMIC && x->how == WATCH_ATOMIC))
		return 0;
	if (e->how == WATCH_ATOMIC && e->block != x->block && counted[me]) /* all there are, are on one word */
		return 0;
	return now[me].at[other] < e->number;
}

static void barrier(unsigned block, unsigned first, unsigned n)
{
	clock all = { { 0 } };
	int any = 0;

	for (unsigned a = first; a < first + n; a++) {
		join(&all, &now[block * ACTORS + a]);
		any |= counted[block * ACTORS + a];
	}
	for (unsigned a = first; a < first + n; a++) {
		now[block * ACTORS + a] = all;
		counted[block * ACTORS + a] = any;
	}
	races_barrier(n == ACTORS ? 0 : thread_of[first], n == ACTORS ? 64 : 32);
}

/* One thread does something; true: a race, by the definition. */
static int act(unsigned block, unsigned actor, unsigned writes, int shared, const char *memory)
{
	const unsigned what = draw(12), me = block * ACTORS + actor;
	event x = { block, actor, 0, 0, 4, WATCH_ATOMIC };
	int bad = 0;

	races_thread(thread_of[actor]);
	if (what == 0) {
		now[me].at[me]++;
		fence[me] = now[me];
		fenced[me] = 1;
		races_fence();
		return 0;
	}
	if (what > 2) {
		x.bytes = 1u << draw(4);
		x.from = draw(BYTES / (unsigned)x.bytes) * x.bytes;
		x.how = draw(writes) ? WATCH_READS : WATCH_WRITES;
	} else if (!shared) {
		meet_word(block, me);
		counted[me] = 1;
	}
	x.number = ++now[me].at[me];
	for (size_t i = 0; i < nseen; i++)
		bad |= conflict(&seen[i], &x, shared);
	seen[nseen++] = x;
	races_access(memory + x.from, x.bytes, x.how, shared, memory + nseen); /* every one in a line of its own */
	return bad;
}

/* 1: a race, 0: none, -1: one of the two is wrong. */
static int launch(const char *memory)
{
	const int shared = draw(2) == 0;
	const unsigned calm = 2 + draw(8),
		       writes = 3 + draw(40); /* one event in so many is a barrier of the block; one access a write */
	int bad = 0, wrong = 0;

	memset(now, 0, sizeof now);
	memset(fenced, 0, sizeof fenced);
	memset(&word, 0, sizeof word);
	memset(counted, 0, sizeof counted);
	nseen = 0;
	races_begin(memory, 64);
	for (unsigned b = 0; b < BLOCKS && !bad && !wrong; b++) {
		races_block(b);
		for (unsigned i = draw(EVENTS); i > 0 && !bad && !wrong; i--) {
			const unsigned kind = draw(calm);

			if (kind == 0)
				barrier(b, 0, ACTORS);
			else if (kind == 1)
				barrier(b, 2 * draw(2), 2);
			else
				bad = act(b, draw(ACTORS), writes, shared, memory);
			wrong = bad != (races_found() > 0);
		}
	}
	races_end();
	return wrong ? -1 : bad;
}

int main(int argc, char **argv)
{
	static _Alignas(64) char memory[BLOCKS * EVENTS];
	const int n = argc > 2 ? atoi(argv[2]) : 0;
	int races = 0;

	state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
	for (int i = 0; i < n; i++) {
		const int r = launch(memory);

		if (r < 0) {
			printf("launch %d: by the definition the last access of %zu is %s\n", i, nseen,
				races_found() ? "no race" : "one");
			return 1;
		}
		races += r;
	}
	printf("%d launches, %d with a race\n", n, races);
	return 0;
}
