/* The reproducer of an internal error (repro.h). Nothing is kept for it while all goes well: the command runs again, up to the
 * pass that failed. After a signal the process may be in any state, so its handler asks nothing of it: it replaces
 * the process by a fresh one of the same command, which finds the signal and the pass in its environment and writes. */
#define _XOPEN_SOURCE 700 /* sigaltstack */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ir/base/buf.h"
#include "ir/base/diag.h"
#include "repro.h"

#define AGAIN "PDCC_REPRO" /* in the environment of a command that runs for a reproducer */
#define CRASH "PDCC_CRASH" /* in that of one that has been replaced: SIGNAL:PASS */
enum { WORDS = 4096, STACK = 64 << 10 };

static struct {
	int argc;
	char **argv, *env[WORDS + 2], crash[64];
	char stack[STACK]; /* the handler's: the fault may be that there is no more of the other */
} repro;

/* The same command once more, this time with the IR before the failing pass on its standard output, which goes to path. */
static void command_again(const char *path)
{
	const int n = repro.argc;
	char **argv = calloc((size_t)n + 3, sizeof *argv), option[64], force[] = "--force";

	fflush(NULL);
	const pid_t child = argv ? fork() : -1;

	if (child == 0) {
		snprintf(option, sizeof option, "--print-ir-before=%s", bug_context);
		memcpy(argv, repro.argv, (size_t)n * sizeof *argv);
		argv[n] = option;
		argv[n + 1] = force; /* into the folder that the first one has begun */
		if (setenv(AGAIN, "1", 1) == 0 && freopen(path, "w", stdout) && freopen("/dev/null", "w", stderr))
			execv("/proc/self/exe", argv);
		_exit(127);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
	free(argv);
}

/* DIR/before-PASS.pdir and DIR/command.txt; nothing outside of passes. */
static void write_repro(void)
{
	const char *dir = "pdcc-repro", *pass = bug_context;
	Buf path = { 0 }, line = { 0 }, mark = { 0 };
	size_t n;

	if (!pass || getenv(AGAIN) || (mkdir(dir, 0777) && errno != EEXIST))
		return;
	for (int i = 0; i < repro.argc; i++)
		buf_printf(&line, "%s%s", i ? " " : "", repro.argv[i]);
	buf_printf(&line, "\npdcc-opt before-%s.pdir --passes=%s\n", pass, pass);
	buf_printf(&path, "%s/command.txt", dir);
	file_write(buf_str(&path), line.s, line.n);
	buf_clear(&path);
	buf_printf(&path, "%s/before-%s.pdir", dir, pass);
	buf_printf(&mark, "# before %s\n", pass);
	command_again(buf_str(&path));
	char *text = file_read(buf_str(&path), &n), *at = text, *last = NULL;

	for (; at && (at = strstr(at, buf_str(&mark))); at += mark.n)
		last = at + mark.n;
	if (last)
		file_write(buf_str(&path), last, strlen(last));
	else
		remove(buf_str(&path));
	fprintf(stderr, "pdcc: a reproducer is in %s/\n", dir);
}

/* ---- signals ---- */

static const int fatal[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT };
enum { FATAL = sizeof fatal / sizeof *fatal };

/* Calls nothing that a signal may not. */
static void crashed(int sig)
{
	extern char **environ;
	char *to = repro.crash + sizeof CRASH;
	int n = 0;
	sigset_t none;

	*to++ = (char)('0' + sig / 10);
	*to++ = (char)('0' + sig % 10);
	*to++ = ':';
	for (const char *s = bug_context; s && *s && to < repro.crash + sizeof repro.crash - 1; s++)
		*to++ = *s;
	*to = 0;
	repro.env[n++] = repro.crash;
	for (char **e = environ; *e && n <= WORDS; e++)
		repro.env[n++] = *e;
	repro.env[n] = NULL;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve("/proc/self/exe", repro.argv, repro.env);
	_exit(70);
}

/* Those that nobody watches yet: a sanitizer says more of them. */
static void watch_signals(void)
{
	const stack_t stack = { .ss_sp = repro.stack, .ss_size = STACK };
	struct sigaction own = { .sa_handler = crashed, .sa_flags = SA_ONSTACK }, old;

	memcpy(repro.crash, CRASH "=", sizeof CRASH);
	if (sigaltstack(&stack, NULL))
		return;
	for (int i = 0; i < FATAL; i++)
		if (sigaction(fatal[i], NULL, &old) == 0 && !(old.sa_flags & SA_SIGINFO) && old.sa_handler == SIG_DFL)
			sigaction(fatal[i], &own, NULL);
}

void repro_watch(int argc, char **argv)
{
	char *crash = getenv(CRASH), *pass = crash ? strchr(crash, ':') : NULL;

	repro.argc = argc;
	repro.argv = argv;
	bug_hook = write_repro;
	if (!crash && !getenv(AGAIN))
		watch_signals();
	if (!pass)
		return;
	crash = strdup(crash);
	unsetenv(CRASH);
	pass = strchr(crash, ':') + 1;
	bug_context = *pass ? pass : NULL;
	if (atoi(crash) == SIGBUS) { /* models and external data are mapped, nothing else is */
		fprintf(stderr,
			"pdcc: error: the model, or a file beside it that it names, has become shorter while it was "
			"read, or can be read no more [E0201]\n");
		exit(1);
	}
	fprintf(stderr, "pdcc: internal error%s%s: %s\n", *pass ? " in " : "", pass, strsignal(atoi(crash)));
	write_repro();
	exit(70);
}
