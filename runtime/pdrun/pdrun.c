/* pdrun: starts the programs of a build folder, waits for all of them, says who failed first, and starts again.
 *
 *     pdrun [--max-restarts N] DIR [-- ARGS]
 *     pdrun --exec N PROGRAM ARGS...      what run.sh starts in place of PROGRAM, rank N
 *
 * MPI's launcher ends all ranks as soon as one dies. So every rank has a parent that lives on: `pdrun --exec` writes how
 * its program ended to FR/rankN.exit, and ends when all ranks have; those who are left have time to write their verdicts
 * and flight recorders. One that does not end by itself when all others have (it is stopped) is killed. FR is OUT/fr of
 * the run. POSIX and /proc alone; nothing of the runtime. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LOST = 75, USAGE = 2, MOST = 4096, PATH = PATH_MAX };

typedef struct end { bool known, failed; int signal, code; double time; bool ended; } end;   /* ended: by its parent */

static volatile sig_atomic_t told;      /* a signal for all */
static pid_t                 child;

static void pass_on(int n)
{
	told = n;
	if (child > 0)
		kill(child, n);
}

static void catch_signals(void)
{
	const struct sigaction s = { .sa_handler = pass_on };

	sigaction(SIGINT, &s, NULL);
	sigaction(SIGTERM, &s, NULL);
}

static double now(clockid_t c)
{
	struct timespec t;

	clock_gettime(c, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(void)
{
	nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
}

/* ---- how ranks ended ---- */

static end read_end(const char *fr, int rank)
{
	char path[PATH + 32], word[16] = "";
	end  e = { 0 };
	int  n = 0;

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

static void write_end(const char *fr, int rank, const char *word, int n)
{
	char path[PATH + 32], part[PATH + 40];

	snprintf(path, sizeof path, "%s/rank%d.exit", fr, rank);
	snprintf(part, sizeof part, "%s.new", path);
	FILE *f = fopen(part, "w");

	if (!f)
		return;
	fprintf(f, "%s %d %.6f\n", word, n, now(CLOCK_REALTIME));
	if (fclose(f) == 0)
		rename(part, path);
}

/* ---- pdrun --exec: the parent of one rank ---- */

/* How many of the other ranks have ended, and whether any has failed. */
static int others(const char *fr, int rank, int world, bool *failed)
{
	int n = 0;

	for (int r = 0; r < world; r++) {
		const end e = r == rank ? (end){ 0 } : read_end(fr, r);

		n += e.known;
		*failed |= e.failed;
	}
	return n;
}

/* Until the program has ended; true: it had to be killed, because all others have ended and one of them failed. */
static bool wait_for(const char *fr, int rank, int world, int *status)
{
	double since = 0;

	while (waitpid(child, status, WNOHANG) == 0) {
		bool failed = false;

		nap();
		if (others(fr, rank, world, &failed) < world - 1 || !failed || world == 1) {
			since = 0;
			continue;
		}
		if (since == 0)
			since = now(CLOCK_MONOTONIC);
		if (now(CLOCK_MONOTONIC) - since < 2)
			continue;
		kill(child, SIGKILL);
		waitpid(child, status, 0);
		return true;
	}
	return false;
}

static int exec_main(int argc, char **argv)
{
	const char  *fr = getenv("PD_FR"), *w = getenv("PD_WORLD"), *t = getenv("PD_WAIT");
	const int    rank = argc > 1 ? atoi(argv[0]) : -1, world = w ? atoi(w) : 0;
	const double most = (t && atof(t) > 0 ? atof(t) : 60) + 5;
	int          status = 0;
	bool         failed = false;

	if (!fr || rank < 0 || rank >= world) {
		fprintf(stderr, "pdrun: --exec is for run.sh, under pdrun DIR\n");
		return USAGE;
	}
	catch_signals();
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(argv[1], argv + 1);
		fprintf(stderr, "pdrun: %s: %s\n", argv[1], strerror(errno));
		_exit(USAGE);
	}
	const bool ended = wait_for(fr, rank, world, &status);

	if (WIFSIGNALED(status))
		write_end(fr, rank, ended ? "ended" : "signal", WTERMSIG(status));
	else
		write_end(fr, rank, "exit", WEXITSTATUS(status));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	for (const double from = now(CLOCK_MONOTONIC); now(CLOCK_MONOTONIC) - from < most && !told; nap())
		if (others(fr, rank, world, &failed) == world - 1)
			break;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- pdrun DIR ---- */

typedef struct job {
	const char *dir, *out;
	char      **args;
	int         nargs, world, restarts;
	char        fr[PATH], self[PATH];
} job;

static _Noreturn void usage(void)
{
	fprintf(stderr, "usage: pdrun [--max-restarts N] DIR [-- ARGS]\n"
	                "Starts the programs of the build folder DIR with the options ARGS (runtime/README.md). A run that lost a\n"
	                "rank is started again up to N times, from the newest checkpoint of --ckpt that all ranks have.\n");
	exit(USAGE);
}

/* The number of programs, from run.sh: DIR/bin/d0 ... */
static int count_programs(const char *dir)
{
	char path[PATH + 32];
	int  n = 0;

	for (; n < MOST; n++) {
		snprintf(path, sizeof path, "%s/device%d.c", dir, n);
		if (access(path, R_OK))
			break;
	}
	return n;
}

/* The timeout that the plan has; in static memory. */
static const char *timeout_of(const char *dir)
{
	static char text[256];
	char        path[PATH + 32], *at = NULL;

	snprintf(path, sizeof path, "%s/device0.c", dir);
	FILE *f = fopen(path, "r");

	while (f && !at && fgets(text, sizeof text, f))
		at = strstr(text, ".timeout = ");
	if (f)
		fclose(f);
	return at ? at + 11 : "60";
}

/* What runs as the parent of each rank: the build folder's pdrun, which is on every host, else this one. */
static void find_self(job *j)
{
	char path[PATH + 32];

	snprintf(path, sizeof path, "%s/bin/pdrun", j->dir);
	if (realpath(path, j->self))
		return;
	const ssize_t n = readlink("/proc/self/exe", j->self, sizeof j->self - 1);

	j->self[n > 0 ? n : 0] = 0;
}

/* What the run was told with --NAME, else PD_NAME, else otherwise. */
static const char *told_of(const job *j, const char *flag, const char *env, const char *otherwise)
{
	const size_t n = strlen(flag);
	const char  *e = getenv(env);

	otherwise = e && *e ? e : otherwise;
	for (int i = 0; i < j->nargs; i++)
		if (!strncmp(j->args[i], flag, n)) {
			if (j->args[i][n] == '=')
				otherwise = j->args[i] + n + 1;
			else if (!j->args[i][n] && i + 1 < j->nargs)
				otherwise = j->args[i + 1];
		}
	return otherwise;
}

static void make_fr(job *j)
{
	char path[PATH];

	if (mkdir(j->out, 0777) && errno != EEXIST) {
		fprintf(stderr, "pdrun: %s: %s\n", j->out, strerror(errno));
		exit(1);
	}
	snprintf(path, sizeof path, "%s/fr", j->out);
	if ((mkdir(path, 0777) && errno != EEXIST) || !realpath(path, j->fr)) {
		fprintf(stderr, "pdrun: %s: %s\n", path, strerror(errno));
		exit(1);
	}
}

/* What an earlier start left there. */
static void clean_fr(const job *j)
{
	static const char *const ends[] = { "exit", "ring", "txt" };
	char path[PATH + 32];

	for (int r = 0; r < j->world; r++)
		for (int k = 0; k < 3; k++) {
			snprintf(path, sizeof path, "%s/rank%d.%s", j->fr, r, ends[k]);
			unlink(path);
		}
	snprintf(path, sizeof path, "%s/verdict.txt", j->fr);
	unlink(path);
}

static int start(const job *j, int attempt)
{
	char  script[PATH + 8], number[16];
	char *argv[MOST + 3] = { (char *)(uintptr_t) "sh", script };
	int   status;

	clean_fr(j);
	snprintf(script, sizeof script, "%s/run.sh", j->dir);
	for (int i = 0; i < j->nargs; i++)
		argv[2 + i] = j->args[i];
	snprintf(number, sizeof number, "%d", attempt);
	setenv("PD_ATTEMPT", number, 1);
	child = fork();
	if (child == 0) {
		execvp("sh", argv);
		_exit(127);
	}
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	child = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The rank that failed first: whom the verdict names, else the first one that ended with a fault of its own. */
static int root_cause(const job *j, char *why, size_t room)
{
	char   path[PATH + 32];
	int    rank = -1;
	double first = 0;
	bool   own = false;

	*why = 0;
	snprintf(path, sizeof path, "%s/verdict.txt", j->fr);
	FILE *f = fopen(path, "r");

	if (f && fscanf(f, "%d ", &rank) == 1 && fgets(why, (int)room, f))
		why[strcspn(why, "\n")] = 0;
	if (f)
		fclose(f);
	if (rank >= 0 && rank < j->world && read_end(j->fr, rank).known)
		return rank;
	rank = -1;
	for (int r = 0; r < j->world; r++) {
		const end  e = read_end(j->fr, r);
		const bool its = e.failed && e.code != LOST && !e.ended;

		if (e.failed && (rank < 0 || its > own || (its == own && e.time < first))) {
			rank = r;
			first = e.time;
			own = its;
		}
	}
	return rank;
}

static int report(const job *j, int status)
{
	char      why[1400];
	const int rank = root_cause(j, why, sizeof why);

	if (rank < 0)
		return status;
	const end e = read_end(j->fr, rank);

	if (e.ended)
		fprintf(stderr, "pdrun: rank %d failed first: it %s; it was ended\n", rank, *why ? why : "did not end");
	else if (e.signal)
		fprintf(stderr, "pdrun: rank %d failed first: killed by signal %d (%s)%s%s\n", rank, e.signal, strsignal(e.signal),
		        *why ? "; it " : "", why);
	else
		fprintf(stderr, "pdrun: rank %d failed first: exit status %d%s%s\n", rank, e.code, *why ? "; it " : "", why);
	fprintf(stderr, "pdrun: flight recorders of the ranks that were left: %s/rankN.txt\n", j->fr);
	return e.ended ? LOST : e.code;
}

/* A lost rank may come back; a fault of the data or the command line would not go away. */
static bool worth_it(int code)
{
	return code == LOST || (code > 128 && code != 130 && code != 143);
}

static void read_args(job *j, int argc, char **argv)
{
	int i = 1;

	for (; i < argc && argv[i][0] == '-' && strcmp(argv[i], "--"); i++) {
		const bool eq = !strncmp(argv[i], "--max-restarts=", 15);
		char      *last;

		if (!eq && (strcmp(argv[i], "--max-restarts") || i + 1 >= argc))
			usage();
		const char *v = eq ? argv[i] + 15 : argv[++i];

		j->restarts = (int)strtol(v, &last, 10);
		if (last == v || *last || j->restarts < 0)
			usage();
	}
	if (i >= argc || !strcmp(argv[i], "--"))
		usage();
	j->dir = argv[i++];
	if (i < argc && strcmp(argv[i++], "--"))
		usage();
	j->args = argv + i;
	j->nargs = argc > i ? argc - i : 0;
	if (j->nargs >= MOST)
		usage();
}

int main(int argc, char **argv)
{
	static job j;
	char       world[16];
	int        code;

	if (argc > 2 && !strcmp(argv[1], "--exec"))
		return exec_main(argc - 2, argv + 2);
	read_args(&j, argc, argv);
	j.world = count_programs(j.dir);
	if (j.world == 0) {
		fprintf(stderr, "pdrun: %s is no build folder: there is no device0.c\n", j.dir);
		return USAGE;
	}
	find_self(&j);
	j.out = told_of(&j, "--out", "PD_OUT", "run");
	make_fr(&j);
	snprintf(world, sizeof world, "%d", j.world);
	setenv("PD_FR", j.fr, 1);
	setenv("PD_WORLD", world, 1);
	setenv("PD_WAIT", told_of(&j, "--timeout", "PD_TIMEOUT", timeout_of(j.dir)), 1);
	setenv("PD_WRAP", j.self, 1);
	catch_signals();
	for (int attempt = 0;; attempt++) {
		code = start(&j, attempt);
		code = code ? report(&j, code) : 0;
		if (!worth_it(code) || attempt >= j.restarts || told)
			break;
		fprintf(stderr, "pdrun: starting again, %d of %d\n", attempt + 1, j.restarts);
	}
	if (code == 0) {
		clean_fr(&j);
		rmdir(j.fr);
	}
	return code;
}
