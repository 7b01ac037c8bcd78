/* guard.c: what lives on when pdrun dies (kill -9, out of memory).
 *
 * Told to stop itself, MPI's launcher gives the ranks a second and kills them. So a small process of its own session waits for
 * the end of a pipe that pdrun holds open: if it ends without a word, the ranks are told by the file that their parents look
 * for, finish their step and write what they have, for as long as it takes. What they say goes on to stderr, and the folder of
 * results stays locked, until the last of them has ended. */
#include "pdrun.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int ours = -1, theirs = -1; /* ends of the pipe: pdrun's and the launcher's, the guard's */
static pid_t guard = -1;

/* The number of the launcher's process comes first, from itself; then a byte when pdrun has seen its end. True: pdrun has not. */
static bool is_alone(void)
{
	int32_t number = 0;
	char byte;
	ssize_t k;

	while ((k = read(theirs, &number, sizeof number)) < 0 && errno == EINTR)
		;
	if (k != (ssize_t)sizeof number)
		return false;
	child = (pid_t)number;
	while ((k = read(theirs, &byte, 1)) < 0 && errno == EINTR)
		;
	return k == 0;
}

static _Noreturn void stand_by(const job *j, pid_t whose)
{
	const struct sigaction none = { .sa_handler = SIG_IGN };

	for (const int *s = (const int[]){ SIGINT, SIGTERM, SIGHUP, SIGPIPE, 0 }; *s; s++)
		sigaction(*s, &none, NULL); /* of a terminal that is gone */
	setsid();
	if (!is_alone())
		_exit(0);
	fprintf(stderr,
		"pdrun: process %d, pdrun itself, is gone; the ranks finish their step and write what they have\n",
		(int)whose);
	stop_write(j->fr, SIGTERM);
	for (const double from = now(CLOCK_MONOTONIC); said_wait(50) && kill(child, 0) == 0;)
		if (now(CLOCK_MONOTONIC) - from > 5 && !all_begun(j))
			kill(child, SIGTERM);
	said_close();
	_exit(0);
}

void guard_open(const job *j)
{
	const pid_t me = getpid();
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return;
	theirs = ends[0];
	ours = ends[1];
	guard = fork();
	if (guard == 0) {
		close(ours);
		said_parent();
		stand_by(j, me);
	}
	close(theirs);
	if (guard < 0)
		close(ours), ours = -1;
}

bool guard_knows(void)
{
	const int32_t number = (int32_t)getpid();

	return ours >= 0 && write(ours, &number, sizeof number) == (ssize_t)sizeof number;
}

void guard_close(void)
{
	if (ours < 0)
		return;
	(void)!write(ours, "", 1);
	close(ours);
	ours = -1;
	while (waitpid(guard, NULL, 0) < 0 && errno == EINTR)
		;
}
