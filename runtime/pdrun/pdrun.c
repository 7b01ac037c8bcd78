/* pdrun: starts the programs of a build folder, waits for all of them, says who failed first, and starts again.
 *
 *     pdrun [--max-restarts N] [--log-dir LOGS] DIR [-- ARGS]
 *     pdrun --exec N PROGRAM ARGS...      what run.sh starts in place of PROGRAM, rank N (parent.c)
 *
 * FR, the folder of flight recorders and of what parents write, is OUT/fr of the run (folder.c). */
#include "pdrun.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

volatile sig_atomic_t told;
pid_t child;

static bool by_file; /* the first signal reaches the ranks by stop_write: the launcher would kill them a second later */

static void pass_on(int n)
{
	const bool first = told == 0;

	told = n;
	if (child > 0 && !(first && by_file))
		kill(child, n);
}

void catch_signals(bool file)
{
	const struct sigaction s = { .sa_handler = pass_on };
	struct sigaction was;

	by_file = file;
	sigaction(SIGINT, &s, NULL);
	sigaction(SIGTERM, &s, NULL);
	if (sigaction(SIGHUP, NULL, &was) == 0 && was.sa_handler != SIG_IGN) /* nohup */
		sigaction(SIGHUP, &s, NULL);
}

double now(clockid_t c)
{
	struct timespec t;

	clock_gettime(c, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void nap(int ms) { nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000L }, NULL); }

/* ---- the folder ---- */

static const char help[] = "usage: pdrun [--max-restarts N] [--log-dir LOGS] DIR [-- ARGS]\n"
			   "Starts the programs of the build folder DIR with the options ARGS\n"
			   "(DIR/bin/d0 --help) and says who failed first.\n"
			   "  --max-restarts N   a run that lost a rank, or its launcher, is started again\n"
			   "                     from the newest checkpoint of --ckpt that all ranks have;\n"
			   "                     where DIR has plans for one host less\n"
			   "                     (placement.tolerate) and a host is gone, without it\n"
			   "  --log-dir LOGS     what each rank prints goes to LOGS/rankN.log on its host\n"
			   "                     too, and every line here begins with the rank's name\n"
			   "Exit status: that of the rank that failed first, 128 + the signal when it was\n"
			   "killed. Results are in DIR/run/NAME: NAME is that of --name NAME behind --,\n"
			   "else run-1, run-2 ...; DIR/run/latest is the newest.\n"
			   "example: pdrun --max-restarts 2 DIR -- --steps 100 --ckpt ck\n";

static _Noreturn void usage(void)
{
	fputs(help, stderr);
	exit(USAGE);
}

/* The number of programs: DIR/device0.c ... */
static int count_programs(const char *dir)
{
	char path[PATH + 32];
	int n = 0;

	for (; n < MOST; n++) {
		snprintf(path, sizeof path, "%s/device%d.c", dir, n);
		if (access(path, R_OK))
			break;
	}
	return n;
}

/* All programs are there; else it says what to do. */
static bool built(const char *dir, int world)
{
	const char *p = getenv("PD_PROGRAM");
	char path[PATH + 64];

	for (int r = 0; r < world; r++) {
		snprintf(path, sizeof path, "%s/bin/%s%d", dir, p && *p ? p : "d", r);
		if (access(path, X_OK)) {
			fprintf(stderr, "pdrun: %s: %s; make -C %s builds it\n", path, strerror(errno), dir);
			return false;
		}
	}
	return true;
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

/* ---- what came of it ---- */

/* The rank that failed first: whom the verdict names, else the first one that ended with a fault of its own. */
static int root_cause(const job *j, char *why, size_t room)
{
	char path[PATH + 32];
	int rank = -1;
	double first = 0;
	bool own = false;

	*why = 0;
	snprintf(path, sizeof path, "%s/verdict.txt", j->fr);
	FILE *f = fopen(path, "r");

	if (f && fscanf(f, "%d ", &rank) == 1 && fgets(why, (int)room, f))
		why[strcspn(why, "\n")] = 0;
	if (f)
		fclose(f);
	if (rank >= 0 && rank < j->world)
		return rank;
	rank = -1;
	for (int r = 0; r < j->world; r++) {
		const end e = read_end(j->fr, r);
		const bool its = e.failed && e.code != LOST && !e.ended;

		if (e.failed && (rank < 0 || its > own || (its == own && e.time < first))) {
			rank = r;
			first = e.time;
			own = its;
		}
	}
	return rank;
}

static int report_launcher(const job *j, const launch *l)
{
	int missing = 0, which = -1;

	said_launcher();
	for (int r = j->world; r-- > 0;)
		if (!has_begun(j->fr, r)) {
			missing++;
			which = r;
		}
	if (l->signal)
		fprintf(stderr,
			"pdrun: the launcher (process %d) was killed by signal %d (%s); the ranks that it had started were ended\n",
			(int)l->pid, l->signal, strsignal(l->signal));
	else if (l->late)
		fprintf(stderr,
			"pdrun: %d of %d ranks, first rank %d, did not begin within %g s; the launcher was ended\n",
			missing, j->world, which, j->timeout + 10);
	else if (missing)
		fprintf(stderr, "pdrun: the launcher ended with exit status %d before rank %d had begun\n", l->code,
			which);
	return l->late ? LOST : l->code;
}

/* Behind the rank that failed first: `; it is gone`, or the code alone of a fault that stands above. */
static void say_why(const char *why)
{
	char code[8];
	int text = -1;

	if (sscanf(why, "ended with %7[R0-9]: %n", code, &text) == 1 && text > 0 && said_fault(code, why + text))
		fprintf(stderr, " (%s)\n", code);
	else
		fprintf(stderr, "%s%s\n", *why ? "; it " : "", why);
}

static bool recorded(const job *j)
{
	char path[PATH + 32];
	bool any = false;

	for (int r = 0; r < j->world && !any; r++) {
		snprintf(path, sizeof path, "%s/rank%d.txt", j->fr, r);
		any = access(path, R_OK) == 0;
	}
	return any;
}

static bool is_stop(int code) { return code == 128 + SIGHUP || code == 128 + SIGINT || code == 128 + SIGTERM; }

/* Exit status; *rank: who failed first, -1: none of them. */
static int report(const job *j, const launch *l, int *rank)
{
	char why[1400];

	*rank = l->signal || l->late ? -1 : root_cause(j, why, sizeof why);
	if (*rank < 0)
		return report_launcher(j, l);
	const end e = read_end(j->fr, *rank);

	if (is_stop(e.code)) {
		const int code = told ? 128 + told : e.code; /* ranks that others told know no signal */

		fprintf(stderr, "pdrun: stopped by signal %d\n", code - 128);
		return code;
	}
	if (e.ended || !e.known)
		fprintf(stderr, "pdrun: rank %d failed first: it %s; %s\n", *rank, *why ? why : "did not end",
			e.known ? "it was ended" : "nothing is known of its end");
	else if (e.signal)
		fprintf(stderr, "pdrun: rank %d failed first: killed by signal %d (%s)", *rank, e.signal,
			strsignal(e.signal));
	else
		fprintf(stderr, "pdrun: rank %d failed first: exit status %d", *rank, e.code);
	if (!e.ended && e.known)
		say_why(why);
	if (*j->logs)
		logs_tail(j->logs, *rank, 5);
	if (recorded(j))
		fprintf(stderr, "pdrun: flight recorders of the ranks that were left: %s/rankN.txt\n", j->fr);
	return e.ended || !e.known || e.code == 0 ? LOST : e.code;
}

/* A lost rank may come back; a fault of the data or the command line would not go away. */
static bool worth_it(int code) { return code == LOST || (code > 128 && !is_stop(code)); }

/* Starts until it has ended well or starting again would not help. */
static int run(job *j)
{
	int last = -1, lost = -1;

	for (int attempt = 0;; attempt++) {
		if (!built(j->plan, j->world))
			return USAGE;
		const launch l = launcher_run(j, attempt);
		const int code = l.code || l.late ? report(j, &l, &lost) : 0;
		const bool nobody = code && lost < 0 && !l.signal; /* nobody began: a host may be gone */

		if (code == 0 || told || attempt >= j->restarts || (!worth_it(code) && !nobody))
			return code;
		if (smaller_plan(j, lost, last >= 0 && lost >= 0 && same_host(j, lost, last)))
			j->world = count_programs(j->plan), lost = -1;
		else if (!worth_it(code))
			return code;
		if (told) { /* while the hosts were asked */
			fprintf(stderr, "pdrun: stopped by signal %d\n", (int)told);
			return 128 + told;
		}
		last = lost;
		fprintf(stderr, "pdrun: starting again, %d of %d\n", attempt + 1, j->restarts);
	}
}

/* The value of --NAME in argv[*i], as --NAME=V or --NAME V; NULL: another option. */
static const char *value_of(const char *name, int *i, int argc, char **argv)
{
	const size_t n = strlen(name);

	if (strncmp(argv[*i], name, n) || (argv[*i][n] && argv[*i][n] != '='))
		return NULL;
	return argv[*i][n] ? argv[*i] + n + 1 : *i + 1 < argc ? argv[++*i] : "";
}

static void read_option(job *j, int *i, int argc, char **argv)
{
	char *last;
	const char *v;

	if (!strcmp(argv[*i], "--help") || !strcmp(argv[*i], "-h")) {
		fputs(help, stdout);
		exit(0);
	}
	if ((v = value_of("--max-restarts", i, argc, argv))) {
		const long n = strtol(v, &last, 10);

		if (last == v || *last || n < 0 || n > 1 << 20) {
			fprintf(stderr, "pdrun: --max-restarts wants a number, not '%s'\n", v);
			usage();
		}
		j->restarts = (int)n;
	} else if ((v = value_of("--log-dir", i, argc, argv))) {
		if (!*v) {
			fprintf(stderr, "pdrun: --log-dir wants a folder\n");
			usage();
		}
		if ((mkdir(v, 0777) && errno != EEXIST) || !realpath(v, j->logs) || access(j->logs, W_OK | X_OK))
			no_folder(v);
	} else {
		fprintf(stderr, "pdrun: unknown option '%s'; options of the programs come behind --\n", argv[*i]);
		usage();
	}
}

static void read_args(job *j, int argc, char **argv)
{
	int i = 1;

	for (; i < argc && argv[i][0] == '-' && strcmp(argv[i], "--"); i++)
		read_option(j, &i, argc, argv);
	if (i >= argc || !strcmp(argv[i], "--"))
		usage();
	j->dir = argv[i++];
	if (i < argc && strcmp(argv[i], "--")) {
		fprintf(stderr, "pdrun: '%s': one build folder at a time; options of the programs come behind --\n",
			argv[i]);
		usage();
	}
	j->args = argv + i + (i < argc);
	j->nargs = argc > i ? argc - i - 1 : 0;
	if (j->nargs >= MOST)
		usage();
}

/* Progress is drawn in place on a terminal as wide as PD_COLUMNS; not where every line begins with a rank's name. */
static void say_terminal(const job *j)
{
	struct winsize size;
	char columns[16];

	unsetenv("PD_COLUMNS");
	if (*j->logs || !isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
		return;
	snprintf(columns, sizeof columns, "%d", size.ws_col ? size.ws_col : 80);
	setenv("PD_COLUMNS", columns, 1);
}

int main(int argc, char **argv)
{
	static job j;

	if (argc > 2 && !strcmp(argv[1], "--exec"))
		return exec_main(argc - 2, argv + 2);
	char planned[32];

	read_args(&j, argc, argv);
	snprintf(j.plan, sizeof j.plan, "%s", j.dir);
	j.world = count_programs(j.dir);
	if (j.world == 0) {
		fprintf(stderr, "pdrun: %s is no build folder: there is no device0.c\n", j.dir);
		return USAGE;
	}
	if (!built(j.dir, j.world))
		return USAGE;
	find_self(&j);
	const int refused = folder_take(&j);

	if (refused)
		return refused;
	snprintf(planned, sizeof planned, "%.17g", plan_timeout(j.dir));
	const char *wait = told_of(&j, "--timeout", "PD_TIMEOUT", planned);

	j.timeout = atof(wait) > 0 ? atof(wait) : 60;
	setenv("PD_FR", j.fr, 1);
	setenv("PD_WAIT", wait, 1);
	setenv("PD_WRAP", j.self, 1);
	setenv("PD_LOGS", j.logs, 1);
	say_terminal(&j);
	catch_signals(true);
	const int code = run(&j);

	if (code == 0 || (code == USAGE && !recorded(&j)))
		folder_leave(&j);
	return code;
}
