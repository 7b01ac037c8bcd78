/* said.c: what the launcher and its ranks write on stderr, on its way to ours.
 *
 * A fault that several ranks see is told once: lines `CODE NAME (rank N): TEXT` are held for a moment, and of those with the
 * same code and text the first is printed, with the other ranks named behind it; what only repeats another rank's fault is not:
 *
 *     R205 stage0.r0 (rank 0): 'x' has 40 samples, input 'labels' has 39 (and 3 other ranks: 1, 2, 3)
 *
 * What each rank was doing then ("; this rank was ...") may differ, as may the numbers in a fault of data or numbers
 * (R2.., R3..): sample and microbatch are others on each. Open MPI's own lines about a rank that failed are held until it is known whether pdrun can
 * name that rank itself. All else goes on as it comes. */
#include "pdrun.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 8192, KINDS = 32, HELD = 1 << 14, SHOWN = 8 }; /* SHOWN: ranks that are named */
static const double WAIT = 0.5;                              /* seconds that a fault is held for the others */

typedef struct fault {
	char code[8], key[LINE], line[LINE];
	int first, n, rank[SHOWN]; /* n: others than the first */
	double since;
	bool printed;
} fault;

static struct {
	int from, to;
	char line[LINE], block[HELD],
		held[HELD]; /* block: what stands between two lines of dashes; held: not printed yet */
	size_t n, nblock, nheld;
	bool in_block;
	fault *kind;
	int kinds;
} said = { .from = -1, .to = -1 };

/* ---- faults ---- */

/* What the texts of one fault have in common. */
static void key_of(char *to, const char *code, const char *text)
{
	const char *own = strstr(text, "; this rank was ");
	const size_t n = own ? (size_t)(own - text) : strlen(text);
	const bool numbers = code[1] == '2' || code[1] == '3';
	size_t k = 0;

	for (size_t i = 0; i < n && k + 1 < LINE; i++) {
		const bool digit = numbers && isdigit((unsigned char)text[i]);
		if (!digit || i == 0 || !isdigit((unsigned char)text[i - 1]))
			to[k++] = digit ? '0' : text[i];
	}
	to[k] = 0;
}

bool said_fault(const char *code, const char *text)
{
	char key[LINE];

	key_of(key, code, text);
	for (int i = 0; i < said.kinds; i++)
		if (!strcmp(said.kind[i].code, code) && !strcmp(said.kind[i].key, key))
			return true;
	return false;
}

static int by_number(const void *a, const void *b)
{
	const int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

/* `stage1.r0 (rank 2) ended with R301: text`, of which text has been said by that rank. */
static bool repeats(const fault *f)
{
	const char *s = strstr(f->key, " ended with R");
	char code[8];
	int text = -1;

	return s && sscanf(s, " ended with %7[R0-9]: %n", code, &text) == 1 && text > 0 && said_fault(code, s + text);
}

static void print(fault *f)
{
	f->printed = true;
	if (repeats(f))
		return;
	qsort(f->rank, (size_t)(f->n < SHOWN ? f->n : SHOWN), sizeof *f->rank, by_number);
	fprintf(stderr, "%s", f->line);
	if (f->n == 1)
		fprintf(stderr, " (and rank %d)", f->rank[0]);
	else if (f->n > 1) {
		fprintf(stderr, " (and %d other ranks: ", f->n);
		for (int i = 0; i < f->n && i < SHOWN; i++)
			fprintf(stderr, "%s%d", i ? ", " : "", f->rank[i]);
		fprintf(stderr, "%s)", f->n > SHOWN ? ", ..." : "");
	}
	fputc('\n', stderr);
}

static void print_due(bool all)
{
	for (int i = 0; i < said.kinds; i++)
		if (!said.kind[i].printed && (all || now(CLOCK_MONOTONIC) - said.kind[i].since > WAIT))
			print(&said.kind[i]);
}

/* `[NAME@HOST] R205 stage0.r0 (rank 0): text`, the part in brackets with --log-dir alone: its code, rank and text. */
static const char *parse(const char *line, char code[8], int *rank)
{
	const char *s = *line == '[' && strstr(line, "] ") ? strstr(line, "] ") + 2 : line;
	char name[64];
	int at = -1;

	if (sscanf(s, "%7[R0-9] %63s (rank %d): %n", code, name, rank, &at) < 3 || at < 0 || code[0] != 'R' ||
		strlen(code) != 4)
		return NULL;
	return s + at;
}

/* True: the line is a fault of a rank, and will be told. */
static bool take_fault(const char *line)
{
	char code[8], key[LINE];
	int rank;
	const char *text = parse(line, code, &rank);

	if (!text)
		return false;
	key_of(key, code, text);
	for (int i = 0; i < said.kinds; i++) {
		fault *f = &said.kind[i];
		if (strcmp(f->code, code) || strcmp(f->key, key) || f->first == rank)
			continue;
		if (f->printed && !repeats(f)) /* too late to be named with the others */
			fprintf(stderr, "%s rank %d: as rank %d\n", code, rank, f->first);
		else if (!f->printed && f->n++ < SHOWN)
			f->rank[f->n - 1] = rank;
		return true;
	}
	fault *more = said.kinds < KINDS ? realloc(said.kind, sizeof *more * (size_t)(said.kinds + 1)) : NULL;
	if (!more)
		return false;
	said.kind = more;
	fault *f = &said.kind[said.kinds++];
	*f = (fault){ .first = rank, .since = now(CLOCK_MONOTONIC) };
	memcpy(f->code, code, sizeof code);
	memcpy(f->key, key, sizeof key);
	snprintf(f->line, sizeof f->line, "%s", line);
	return true;
}

/* ---- Open MPI's blocks between lines of dashes ---- */

static bool dashes(const char *line) { return strlen(line) > 60 && line[strspn(line, "-")] == 0; }

/* A block that tells that a rank failed is held: who failed first, and why, pdrun knows better. */
static void end_block(void)
{
	static const char *const of_rank[] = { "processes exited with non-zero status", "terminated normally, but",
		"MPI_ABORT was invoked", "process that caused that situation", "exited on signal" };
	bool hold = false;

	for (size_t i = 0; i < sizeof of_rank / sizeof *of_rank; i++)
		hold |= strstr(said.block, of_rank[i]) != NULL;
	if (hold && said.nheld + said.nblock < HELD) {
		memcpy(said.held + said.nheld, said.block, said.nblock);
		said.nheld += said.nblock;
	} else
		fwrite(said.block, 1, said.nblock, stderr);
	said.nblock = 0;
	said.in_block = false;
}

static void block_add(const char *line)
{
	const size_t n = strlen(line);

	if (said.nblock + n + 2 > HELD)
		end_block();
	memcpy(said.block + said.nblock, line, n);
	memcpy(said.block + said.nblock + n, "\n", 2);
	said.nblock += n + 1;
}

void said_launcher(void)
{
	fwrite(said.held, 1, said.nheld, stderr);
	said.nheld = 0;
}

/* ---- lines ---- */

static void take_line(const char *line)
{
	const bool was = said.in_block;

	if (take_fault(line))
		return;
	if (dashes(line) || was) {
		said.in_block = true;
		block_add(line);
		if (was && dashes(line))
			end_block();
		return;
	}
	fprintf(stderr, "%s\n", line);
}

/* What has come; false: nothing, or its end. */
static bool take(void)
{
	char *nl;
	const size_t have = said.n < LINE - 1 ? said.n : 0; /* always less: said to the compiler */
	const ssize_t k = read(said.from, said.line + have, LINE - 1 - have);

	if (k <= 0) {
		if (k == 0 || (errno != EAGAIN && errno != EINTR)) {
			close(said.from);
			said.from = -1;
		}
		return false;
	}
	said.n += (size_t)k;
	while ((nl = memchr(said.line, '\n', said.n)) || said.n == LINE - 1) {
		const size_t n = nl ? (size_t)(nl - said.line) : said.n;

		said.line[n] = 0;
		take_line(said.line);
		said.n -= nl ? n + 1 : n;
		memmove(said.line, said.line + n + (nl ? 1 : 0), said.n);
	}
	return true;
}

void said_open(void)
{
	int ends[2];

	said.kinds = 0;
	said.n = said.nblock = said.nheld = 0;
	said.in_block = false;
	if (pipe2(ends, O_CLOEXEC))
		return; /* all goes to our stderr as it is */
	said.from = ends[0];
	said.to = ends[1];
	fcntl(said.from, F_SETFL, O_NONBLOCK);
}

void said_child(void)
{
	if (said.to >= 0)
		dup2(said.to, STDERR_FILENO);
}

void said_parent(void)
{
	if (said.to >= 0)
		close(said.to);
	said.to = -1;
}

bool said_wait(int ms)
{
	struct pollfd p = { said.from, POLLIN, 0 };

	if (said.from < 0)
		nap(ms);
	else if (poll(&p, 1, ms) > 0)
		while (take())
			;
	print_due(false);
	return said.from >= 0;
}

void said_close(void)
{
	while (said.from >= 0 && take())
		;
	if (said.from >= 0)
		close(said.from);
	said.from = -1;
	if (said.n > 0) {
		said.line[said.n] = 0;
		take_line(said.line);
	}
	if (said.nblock > 0)
		end_block();
	print_due(true);
}
