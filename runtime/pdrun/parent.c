/* parent.c: what lives on when a rank dies.
 *
 * MPI's launcher ends all ranks as soon as one dies. So every rank has a parent: it writes how its program ended to
 * FR/rankN.exit, and ends when all ranks have; those who are left have time to write their verdicts and flight recorders,
 * and the launcher has taken what they said: it ends all as soon as one parent fails, and forgets what it has not read yet.
 * One that does not end by itself is killed: when all others have ended and it stands still, or has slept for three seconds since
 * without noticing (time that it spends waiting for a core or a disk does not count), or when it could have noticed by its timeout
 * that another one failed. It is killed too when the launcher is gone. */
#include "pdrun.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- how ranks ended ---- */

end read_end(const char *fr, int rank)
{
	char path[PATH + 32], word[16] = "";
	end e = { 0 };
	int n = 0;

	snprintf(path, sizeof path, "%s/rank%d.exit", fr, rank);
	FILE *f = fopen(path, "r");

	if (!f)
		return e;
	if (fscanf(f, "%15s %d %lf", word, &n, &e.time) == 3) {
		e.known = true;
		e.ended = strcmp(word, "ended") == 0;
		e.signal = strcmp(word, "exit") ? n : 0;
		e.code = e.signal ? 128 + n : n;
		e.failed = e.code != 0;
	}
	fclose(f);
	return e;
}

static void write_file(const char *fr, int rank, const char *kind, const char *word, int n)
{
	char path[PATH + 32], part[PATH + 40];

	snprintf(path, sizeof path, "%s/rank%d.%s", fr, rank, kind);
	snprintf(part, sizeof part, "%s.new", path);
	FILE *f = fopen(part, "w");

	if (!f)
		return;
	fprintf(f, "%s %d %.6f\n", word, n, now(CLOCK_REALTIME));
	if (fclose(f) == 0)
		rename(part, path);
}

void write_end(const char *fr, int rank, const char *word, int n) { write_file(fr, rank, "exit", word, n); }

bool has_begun(const char *fr, int rank)
{
	char path[PATH + 32];

	snprintf(path, sizeof path, "%s/rank%d.began", fr, rank);
	return access(path, F_OK) == 0;
}

void stop_write(const char *fr, int signal)
{
	char path[PATH + 8], part[PATH + 16];

	snprintf(path, sizeof path, "%s/stop", fr);
	snprintf(part, sizeof part, "%s.new", path);
	FILE *f = fopen(part, "w");

	if (f && fprintf(f, "%d\n", signal) > 0 && fclose(f) == 0)
		rename(part, path);
	else
		kill(child, signal); /* a full disk: the launcher has to do */
}

/* The signal that pdrun was told; 0: none. */
static int stop_read(const char *fr)
{
	char path[PATH + 8];
	int n = 0;

	snprintf(path, sizeof path, "%s/stop", fr);
	FILE *f = fopen(path, "r");

	if (f && fscanf(f, "%d", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

/* ---- waiting ---- */

enum { LOOK = 50 }; /* ms from look to look */

typedef struct family {
	const char *fr;
	int rank, world;
	double most;
	pid_t launcher;
	int stop; /* the signal that all were told by file */
} family;

/* How many of the other ranks have ended, and whether any has failed. */
static int others(const family *f, bool *failed)
{
	int n = 0;

	for (int r = 0; r < f->world; r++) {
		const end e = r == f->rank ? (end){ 0 } : read_end(f->fr, r);

		n += e.known;
		*failed |= e.failed;
	}
	return n;
}

static void put_down(int *status)
{
	kill(child, SIGKILL);
	waitpid(child, status, 0);
}

/* State letter of the program; 0: not known. */
static char state_of_child(void)
{
	char path[64], text[512] = "", state = 0, *at;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)child);
	FILE *f = fopen(path, "r");

	if (f && fgets(text, sizeof text, f) && (at = strrchr(text, ')')))
		sscanf(at + 1, " %c", &state);
	if (f)
		fclose(f);
	return state;
}

/* Since all others had ended, one with a fault: for how long the program has stood still or slept. */
typedef struct still {
	int stopped, asleep;
} still;

static bool hopeless(still *s)
{
	const char c = state_of_child();

	s->stopped = c == 'T' || c == 't' ? s->stopped + 1 : 0;
	s->asleep += c == 'S';
	return s->stopped > 4 || s->asleep > 3000 / LOOK;
}

/* Until the program has ended; true: it had to be killed. */
static bool wait_for(family *f, int *status)
{
	double some = 0;
	bool last = false;
	still s = { 0 };

	for (int k = 0; waitpid(child, status, WNOHANG) == 0; k++) {
		bool failed = false;

		logs_wait(LOOK);
		if (getppid() != f->launcher) {
			put_down(status);
			_exit(LOST); /* whoever started pdrun knows why */
		}
		if (!f->stop && (f->stop = stop_read(f->fr)))
			kill(child, f->stop);
		if (k % 4 == 0) {
			last = others(f, &failed) == f->world - 1 && failed;
			some = !failed ? 0 : some == 0 ? now(CLOCK_MONOTONIC) : some;
		}
		if (f->world > 1 &&
			((last && hopeless(&s)) || (some > 0 && now(CLOCK_MONOTONIC) - some > f->most + 1))) {
			put_down(status);
			return true;
		}
	}
	return false;
}

/* Until the launcher has read what the program said, two seconds at most. */
static void be_heard(void)
{
	int left = 0;

	for (int k = 0; k < 100 && ioctl(STDERR_FILENO, FIONREAD, &left) == 0 && left > 0; k++)
		nap(20);
}

int exec_main(int argc, char **argv)
{
	const char *fr = getenv("PD_FR"), *w = getenv("PD_WORLD"), *t = getenv("PD_WAIT"), *logs = getenv("PD_LOGS");
	const double most = t && atof(t) > 0 ? atof(t) : 60;
	family f = { fr, argc > 1 ? atoi(argv[0]) : -1, w ? atoi(w) : 0, most, getppid(), 0 };
	int status = 0;
	bool failed = false;

	if (!fr || f.rank < 0 || f.rank >= f.world) {
		fprintf(stderr, "pdrun: --exec is for run.sh, under pdrun DIR\n");
		return USAGE;
	}
	if (logs && *logs && !logs_open(logs, f.rank, argv[1])) {
		write_end(fr, f.rank, "exit", 1);
		return 1;
	}
	catch_signals(false);
	write_file(fr, f.rank, "began", "process", (int)getpid());
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setpgid(0,
			0); /* what the launcher sends to our group is passed on once, not twice: the second ends it at once */
		logs_child();
		execv(argv[1], argv + 1);
		fprintf(stderr, "pdrun: %s: %s\n", argv[1], strerror(errno));
		_exit(USAGE);
	}
	if (told)
		kill(child, told);
	logs_parent();
	const bool ended = wait_for(&f, &status);

	logs_close();
	be_heard();
	if (WIFSIGNALED(status))
		write_end(fr, f.rank, ended ? "ended" : "signal", WTERMSIG(status));
	else
		write_end(fr, f.rank, "exit", WEXITSTATUS(status));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	f.stop = f.stop ? f.stop : stop_read(fr);
	/* the launcher kills who is left when one fails: those that were told to stop may have long to write */
	for (const double from = now(CLOCK_MONOTONIC); (f.stop || now(CLOCK_MONOTONIC) - from < most + 3) && !told;
		nap(50))
		if (others(&f, &failed) == f.world - 1 || getppid() != f.launcher)
			break;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
