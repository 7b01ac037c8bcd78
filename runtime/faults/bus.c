/* bus.c: a page of a mapped file that cannot be had: samples or weights whose file was cut off, memory shared through a file
 * system that is full. The signal comes in the middle of anything: nothing here allocates or takes a lock. */
#if !defined _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include "rt.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A line of /proc/self/maps: 7f00-7f10 r--p 0000 08:01 123   /path */
static bool is_of(char *line, uintptr_t at, bool *shared, const char **path)
{
	char *end;
	const uintptr_t from = strtoull(line, &end, 16), to = *end == '-' ? strtoull(end + 1, &end, 16) : 0;

	*path = strchr(line, '/');
	*shared = *end == ' ' && strlen(end) > 4 && end[4] == 's';
	return at >= from && at < to && *path;
}

/* The file that is mapped there. */
static bool mapped(uintptr_t at, char *line, size_t room, bool *shared, const char **path)
{
	char block[4096];
	size_t n = 0;
	bool found = false;
	const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

	for (ssize_t have; !found && fd >= 0 && (have = read(fd, block, sizeof block)) > 0;)
		for (ssize_t i = 0; i < have && !found; i++)
			if (block[i] == '\n') {
				line[n] = 0;
				n = 0;
				found = is_of(line, at, shared, path);
			} else if (n + 1 < room) {
				line[n++] = block[i];
			}
	if (fd >= 0)
		close(fd);
	return found;
}

static void on_bus(int n, siginfo_t *info, void *context)
{
	static char line[8192], said[8500];
	const char *path;
	bool shared;

	(void)context;
	signal(n, SIG_DFL); /* what cannot be told ends the process as it would have */
	if (!mapped((uintptr_t)info->si_addr, line, sizeof line, &shared, &path))
		return;
	snprintf(said, sizeof said, "%s %s: %s: %s\n", shared ? "R501" : "R202", rt_name(rt_program->rank), path,
		shared ? "there is no room for what is shared there: its file system is full"
		       : "it has become shorter while it was read, or can be read no more");
	(void)!write(STDERR_FILENO, said, strlen(said));
	snprintf(said, sizeof said, "ended with %s: %s: its pages cannot be had", shared ? "R501" : "R202", path);
	rt_verdict(rt_task_of(rt_program->rank), said);
	_exit(shared ? RT_MEMORY : RT_ERROR);
}

void rt_bus_open(void)
{
	struct sigaction s = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO };

	sigaction(SIGBUS, &s, NULL);
}
