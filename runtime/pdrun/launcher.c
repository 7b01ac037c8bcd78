/* launcher.c: run.sh, which becomes MPI's launcher, as a child of pdrun.
 *
 * The launcher may die, hang because a host does not answer any more, or leave processes behind. So pdrun is the one whom
 * orphans of its children fall to (PR_SET_CHILD_SUBREAPER), has a limit of time for the start and one for the end, and ends
 * whoever is left: nobody of an earlier attempt may write while the next one runs. If pdrun itself dies, its guard tells the
 * ranks to stop (guard.c), which lets them finish their step and write a checkpoint. */
#include "pdrun.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

/* Until pdrun has no children any more, which are those of its children that outlived them; after `grace` seconds they are
 * killed. True: some had to be. */
static bool end_orphans(double grace)
{
	const double from = now(CLOCK_MONOTONIC);
	bool killed = false;

	for (;;) {
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
			return killed;
		nap(20);
		const double t = now(CLOCK_MONOTONIC) - from;

		if (t > grace + 5)
			return killed;
		if (t < grace)
			continue;
		DIR *d = opendir("/proc");

		for (struct dirent *e; d && (e = readdir(d));) {
			char path[300], text[512] = "", *s;
			const int pid = atoi(e->d_name);
			int parent = 0;
			FILE *f = NULL;

			snprintf(path, sizeof path, "/proc/%d/stat", pid);
			if (pid > 1 && (f = fopen(path, "r")) && fgets(text, sizeof text, f) &&
				(s = strrchr(text, ')')) && sscanf(s + 1, " %*c %d", &parent) == 1 &&
				parent == (int)getpid()) {
				kill(pid, SIGKILL);
				killed = true;
			}
			if (f)
				fclose(f);
		}
		if (d)
			closedir(d);
	}
}

void clean_records(const job *j)
{
	DIR *d = opendir(j->fr);
	char path[PATH + 300];

	for (struct dirent *e; d && (e = readdir(d));)
		if (!strncmp(e->d_name, "rank", 4) || !strncmp(e->d_name, "verdict.txt", 11) ||
			!strcmp(e->d_name, "stop")) {
			snprintf(path, sizeof path, "%s/%s", j->fr, e->d_name);
			unlink(path);
		}
	if (d)
		closedir(d);
}

/* Every attempt has its own: whoever is left of an earlier one is refused (comm/handshake.c). Not of the command line, which
 * all users can read. */
static void make_secret(void)
{
	unsigned char bits[16];
	char text[2 * sizeof bits + 1];

	if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
		return;
	for (size_t i = 0; i < sizeof bits; i++)
		snprintf(text + 2 * i, 3, "%02x", bits[i]);
	setenv("PD_SECRET", text, 1);
}

static void begin(const job *j, int attempt)
{
	char script[PATH + 8], number[16];
	char *argv[MOST + 3] = { (char *)(uintptr_t)"sh", script };
	const pid_t me = getpid();

	snprintf(script, sizeof script, "%s/run.sh", j->plan);
	for (int i = 0; i < j->nargs; i++)
		argv[2 + i] = j->args[i];
	snprintf(number, sizeof number, "%d", attempt);
	setenv("PD_ATTEMPT", number, 1);
	make_secret();
	snprintf(number, sizeof number, "%d", j->world);
	setenv("PD_WORLD", number, 1);
	said_open();
	guard_open(j);
	child = fork();
	if (child) {
		said_parent();
		return;
	}
	if (!guard_knows())
		prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != me)
		_exit(LOST);
	setpgid(0, 0); /* Ctrl-C goes to all of our group, and what is passed on would be a second one */
	const int nothing = open("/dev/null", O_RDONLY); /* another group may not read from the terminal */
	if (nothing >= 0)
		dup2(nothing, STDIN_FILENO);
	said_child();
	execvp("sh", argv);
	_exit(127);
}

/* Not all ranks have begun when they should have, or it is time that the launcher ends: some rank failed, or all have
 * ended. failed: since when. */
static bool overdue(const job *j, double from, double failed[2], launch *l)
{
	const double t = now(CLOCK_MONOTONIC);
	bool begun = true, any = false, all = true;

	for (int r = 0; r < j->world; r++) {
		const end e = read_end(j->fr, r);

		begun &= has_begun(j->fr, r);
		any |= e.failed;
		all &= e.known;
	}
	l->well = all && !any;
	failed[0] = any && failed[0] == 0 ? t : failed[0];
	failed[1] = all && failed[1] == 0 ? t : failed[1];
	const bool over = failed[1] > 0 && t - failed[1] > 4;

	l->late = !told && !begun && t - from > j->timeout + 10;
	l->hung = over || (!told && failed[0] > 0 && t - failed[0] > j->timeout + 6);
	return l->late || l->hung;
}

bool all_begun(const job *j)
{
	for (int r = 0; r < j->world; r++)
		if (!has_begun(j->fr, r))
			return false;
	return true;
}

/* The first signal: ranks finish their step and write what they have, for as long as it takes. Those that have not begun
 * after a while are not waited for. */
static void stop_all(const job *j, double *since)
{
	if (!told)
		return;
	if (*since == 0) {
		*since = now(CLOCK_MONOTONIC);
		stop_write(j->fr, told);
	} else if (now(CLOCK_MONOTONIC) - *since > 5 && !all_begun(j)) {
		kill(child, SIGTERM);
	}
}

launch launcher_run(const job *j, int attempt)
{
	const double from = now(CLOCK_MONOTONIC);
	double failed[2] = { 0, 0 }, stopped = 0;
	int status = 0;
	launch l = { 0 };

	prctl(PR_SET_CHILD_SUBREAPER, 1);
	clean_records(j);
	begin(j, attempt);
	l.pid = child;
	for (int k = 0; waitpid(child, &status, WNOHANG) == 0; k++) {
		said_wait(k < 20 ? 10 : 50);
		stop_all(j, &stopped);
		if (k % 10 == 0 && overdue(j, from, failed, &l)) {
			kill(child, SIGKILL); /* told to stop it would wait for hosts that do not answer */
			waitpid(child, &status, 0);
			break;
		}
	}
	child = 0;
	guard_close();
	end_orphans(WIFEXITED(status) && !l.hung && !l.late ? 3 : 1);
	said_close();
	l.signal = WIFSIGNALED(status) && !l.late && !l.hung ? WTERMSIG(status) : 0;
	l.code = l.hung && l.well ? 0 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return l;
}
