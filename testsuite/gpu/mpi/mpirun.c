/* mpirun.c: mpirun [-np N] PROGRAM ARGUMENTS : [-np N] PROGRAM ARGUMENTS ...: starts N processes (1) per part, the k-th as rank
 * k (mpi.c). When one ends with a fault the others have five seconds to say why; its exit status is that of the run. What they
 * share is memory without a name that all inherit, so that nothing is left when they are killed. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pipes.h"

enum { MOST = 256 };

static pid_t child[MOST];
static int n, shared;

static void end_all(int sig)
{
	for (int i = 0; i < n; i++)
		if (child[i] > 0)
			kill(child[i], sig == SIGALRM ? SIGKILL : SIGTERM);
	if (sig != SIGALRM)
		alarm(2);
}

/* A file descriptor of so many bytes that are there: a page that is missing later would be a signal. */
static int room(off_t bytes)
{
	const char *dir = getenv("TMPDIR");
	char file[4096];
	int fd = memfd_create("pdmpi", 0), fault = fd < 0 ? errno : posix_fallocate(fd, 0, bytes);

	if (!fault)
		return fd;
	if (fd >= 0)
		close(fd);
	snprintf(file, sizeof file, "%s/pdmpi-XXXXXX", dir && *dir ? dir : "/tmp");
	fd = mkstemp(file);
	if (fd >= 0)
		unlink(file);
	fault = fd < 0 ? errno : posix_fallocate(fd, 0, bytes);
	if (!fault)
		return fd;
	fprintf(stderr, "mpirun: %s: %lld bytes: %s\n", file, (long long)bytes, strerror(fault));
	exit(71);
}

static void start(int rank, char **argv)
{
	const pid_t me = getpid();
	char number[16];

	child[rank] = fork();
	if (child[rank])
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != me)
		_exit(71);
	snprintf(number, sizeof number, "%d", rank);
	setenv("PDMPI_RANK", number, 1);
	setenv("PMI_RANK", number, 1);
	snprintf(number, sizeof number, "%d", n);
	setenv("PDMPI_SIZE", number, 1);
	setenv("PMI_SIZE", number, 1);
	snprintf(number, sizeof number, "%d", shared);
	setenv("PDMPI_SHARED", number, 1);
	execvp(argv[0], argv);
	fprintf(stderr, "mpirun: %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static int wait_all(void)
{
	int worst = 0, status;

	for (int left = n; left > 0;) {
		const pid_t p = wait(&status);

		if (p < 0 && errno == EINTR)
			continue;
		if (p < 0)
			break;
		left--;
		for (int i = 0; i < n; i++)
			child[i] = child[i] == p ? 0 : child[i];
		const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

		if (code && !worst) {
			worst = code;
			alarm(5);
		}
	}
	return worst;
}

int main(int argc, char **argv)
{
	char **part[MOST] = { 0 };

	for (int i = 1; i < argc; i++) {
		int copies = 1;

		for (; i + 1 < argc && !strcmp(argv[i], "-np"); i += 2)
			copies = atoi(argv[i + 1]);
		if (i >= argc || argv[i][0] == '-' || copies < 1 || n + copies > MOST) {
			fprintf(stderr, "mpirun: parts are [-np N] PROGRAM ARGUMENTS, with : between them\n");
			return 2;
		}
		while (copies--)
			part[n++] = &argv[i];
		while (i < argc && strcmp(argv[i], ":"))
			i++;
		argv[i] = NULL;
	}
	shared = room((off_t)((size_t)(n * n) * sizeof(struct pipe)));
	signal(SIGALRM, end_all);
	signal(SIGTERM, end_all);
	signal(SIGINT, end_all);
	for (int r = 0; r < n; r++)
		start(r, part[r]);
	return wait_all();
}
