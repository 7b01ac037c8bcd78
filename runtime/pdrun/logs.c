/* logs.c: `--log-dir DIR`: what each rank prints goes to DIR/rankN.log, and on with the rank's name before every line:
 *
 *     [stage1.r0@node2] R203 stage1.r0 (rank 2): ...
 *
 * The parent of a rank reads both of its streams (parent.c). A start after a failure goes on in the same files. */
#include "pdrun.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STREAMS = 2, LINE = 8192 }; /* longer lines are cut in two */

static struct {
	int file, from[STREAMS], to[STREAMS];
	char line[STREAMS][LINE], name[160];
	size_t n[STREAMS];
} logs = { .file = -1 };

/* stage1.r0@host, as plan.json has it; where it has no such rank: rank2@host. */
static void find_name(const char *program, int rank)
{
	char dir[PATH], host[64] = "", name[64], *at;

	gethostname(host, sizeof host - 1);
	snprintf(dir, sizeof dir, "%s", program);
	for (int up = 0; up < 2; up++) /* DIR/bin/dN */
		if ((at = strrchr(dir, '/')))
			*at = 0;
	if (!plan_name(dir, rank, name, sizeof name))
		snprintf(name, sizeof name, "rank%d", rank);
	snprintf(logs.name, sizeof logs.name, "%s@%s", name, host);
}

static void write_whole(int fd, const char *s, size_t n)
{
	while (n > 0) {
		const ssize_t k = write(fd, s, n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return; /* a full disk ends no run that could go on */
		s += k;
		n -= (size_t)k;
	}
}

/* The first n bytes of a stream's buffer, as one write each, so that lines of several ranks do not mix. */
static void put_line(int s, size_t n)
{
	char out[LINE + sizeof logs.name + 8];
	const int head = snprintf(out, sizeof out, "[%s] ", logs.name);

	write_whole(logs.file, logs.line[s], n);
	memcpy(out + head, logs.line[s], n);
	if (logs.line[s][n - 1] != '\n')
		out[head + (int)n++] = '\n';
	write_whole(s + 1, out, (size_t)head + n);
}

/* What has come on a stream; false: nothing has. */
static bool take(int s)
{
	char *nl;
	const ssize_t k = read(logs.from[s], logs.line[s] + logs.n[s], LINE - logs.n[s]);

	if (k < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (k <= 0) {
		close(logs.from[s]);
		logs.from[s] = -1;
		if (logs.n[s])
			put_line(s, logs.n[s]);
		return true;
	}
	logs.n[s] += (size_t)k;
	while ((nl = memchr(logs.line[s], '\n', logs.n[s])) || logs.n[s] == LINE) {
		const size_t n = nl ? (size_t)(nl - logs.line[s]) + 1 : LINE, left = logs.n[s] - n;

		put_line(s, n);
		memmove(logs.line[s], logs.line[s] + n, left);
		logs.n[s] = left;
	}
	return true;
}

/* A pipe for each of the rank's streams; false: none is left open. */
static bool open_pipes(void)
{
	for (int s = 0; s < STREAMS; s++) {
		int ends[2];

		if (pipe2(ends, O_CLOEXEC) == 0) {
			logs.from[s] = ends[0];
			logs.to[s] = ends[1];
			continue;
		}
		const int why = errno;

		while (s-- > 0) {
			close(logs.from[s]);
			close(logs.to[s]);
		}
		errno = why;
		return false;
	}
	return true;
}

bool logs_open(const char *dir, int rank, const char *program)
{
	char path[PATH + 32];

	snprintf(path, sizeof path, "%s/rank%d.log", dir, rank);
	if (mkdir(dir, 0777) && errno != EEXIST) {
		fprintf(stderr, "pdrun: %s: %s\n", dir, strerror(errno));
		return false;
	}
	logs.file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (logs.file < 0) {
		fprintf(stderr, "pdrun: %s: %s\n", path, strerror(errno));
		return false;
	}
	if (!open_pipes()) {
		fprintf(stderr, "pdrun: a pipe for what rank %d prints: %s\n", rank, strerror(errno));
		close(logs.file);
		logs.file = -1;
		return false;
	}
	find_name(program, rank);
	return true;
}

void logs_child(void)
{
	for (int s = 0; logs.file >= 0 && s < STREAMS; s++)
		dup2(logs.to[s], s + 1);
}

void logs_parent(void)
{
	if (logs.file >= 0)
		signal(SIGPIPE, SIG_IGN); /* the launcher may be gone */
	for (int s = 0; logs.file >= 0 && s < STREAMS; s++) {
		close(logs.to[s]);
		fcntl(logs.from[s], F_SETFL, O_NONBLOCK);
	}
}

void logs_wait(int ms)
{
	const double until = now(CLOCK_MONOTONIC) + 1e-3 * ms;

	if (logs.file < 0 || (logs.from[0] < 0 && logs.from[1] < 0)) {
		nap(ms);
		return;
	}
	for (double left = ms; left >= 0; left = 1e3 * (until - now(CLOCK_MONOTONIC))) {
		struct pollfd p[STREAMS] = { { logs.from[0], POLLIN, 0 }, { logs.from[1], POLLIN, 0 } };

		if (poll(p, STREAMS, (int)left) <= 0)
			return;
		for (int s = 0; s < STREAMS; s++)
			if (p[s].fd >= 0 && p[s].revents)
				take(s);
		if (logs.from[0] < 0 && logs.from[1] < 0)
			return;
	}
}

void logs_close(void)
{
	for (int s = 0; logs.file >= 0 && s < STREAMS; s++)
		while (logs.from[s] >= 0 && take(s))
			;
}

void logs_tail(const char *dir, int rank, int lines)
{
	char path[PATH + 32], text[4096];
	FILE *f;

	snprintf(path, sizeof path, "%s/rank%d.log", dir, rank);
	if (!(f = fopen(path, "r")))
		return; /* on another host */
	if (fseek(f, -(long)sizeof text, SEEK_END))
		rewind(f);
	const size_t n = fread(text, 1, sizeof text, f);
	size_t from = n > 0 ? n - 1 : 0;

	fclose(f);
	while (from > 0 && (text[from - 1] != '\n' || --lines > 0))
		from--;
	if (n > 0)
		fprintf(stderr, "pdrun: the last lines of %s:\n%.*s", path, (int)(n - from), text + from);
}
