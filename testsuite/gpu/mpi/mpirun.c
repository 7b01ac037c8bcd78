/* mpirun.c: mpirun [-np 1] PROGRAM ARGUMENTS : [-np 1] PROGRAM ARGUMENTS ...: starts one process per part, the k-th as rank
 * k (mpi.c). When one ends with a fault the others have five seconds to say why; its exit status is that of the run. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pipes.h"

enum { MOST = 256 };

static pid_t child[MOST];
static char  file[64];
static int   n;

static void end_all(int sig)
{
	for (int i = 0; i < n; i++)
		if (child[i] > 0)
			kill(child[i], sig == SIGALRM ? SIGKILL : SIGTERM);
}

static void start(int rank, char **argv)
{
	char number[16], size[16];

	child[rank] = fork();
	if (child[rank])
		return;
	snprintf(number, sizeof number, "%d", rank);
	snprintf(size, sizeof size, "%d", n);
	setenv("PDMPI_RANK", number, 1);
	setenv("MPI_LOCALRANKID", number, 1);
	setenv("PDMPI_SIZE", size, 1);
	setenv("PDMPI_FILE", file, 1);
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
		while (i < argc && !strcmp(argv[i], "-np"))
			i += 2;
		if (i >= argc || argv[i][0] == '-' || n == MOST) {
			fprintf(stderr, "mpirun: parts are [-np 1] PROGRAM ARGUMENTS, with : between them\n");
			return 2;
		}
		part[n++] = &argv[i];
		while (i < argc && strcmp(argv[i], ":"))
			i++;
		argv[i] = NULL;
	}
	snprintf(file, sizeof file, "/dev/shm/pdmpi-XXXXXX");
	const int fd = mkstemp(file);

	if (fd < 0 || ftruncate(fd, (off_t)((size_t)(n * n) * sizeof(struct pipe)))) {
		perror(file);
		return 71;
	}
	close(fd);
	signal(SIGALRM, end_all);
	signal(SIGTERM, end_all);
	signal(SIGINT, end_all);
	for (int r = 0; r < n; r++)
		start(r, part[r]);
	const int code = wait_all();

	unlink(file);
	return code;
}
