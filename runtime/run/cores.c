/* cores.c: the cores that a process may use. Not those of the machine: affinity (taskset, Slurm, cpusets of a container)
 * takes cores away, a limit of its control groups takes time away. Uses nothing else of the runtime: pdcc asks it too. */
#if !defined _GNU_SOURCE
#define _GNU_SOURCE 1 /* sched_getaffinity */
#endif

#include "pd.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_CORES = 1 << 16, PATH_ROOM = 4096 };

static int affine(void)
{
	/* The kernel refuses a set that is smaller than its own. */
	for (int room = 1024; room <= MOST_CORES; room *= 2) {
		cpu_set_t *set = CPU_ALLOC((size_t)room);
		const size_t bytes = CPU_ALLOC_SIZE((size_t)room);
		const int n = set && sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;

		CPU_FREE(set);
		if (n > 0)
			return n;
	}
	return 1; /* nothing says of more */
}

/* The first line of a file; false: there is none. */
static bool line_of(const char *path, char *line, int room)
{
	FILE *f = fopen(path, "r");
	const bool ok = f && fgets(line, room, f);

	if (f)
		fclose(f);
	return ok;
}

/* `cpu.max` of version 2: "QUOTA PERIOD" or "max PERIOD"; of version 1 two files, the quota -1 where there is none.
 * Gives the cores that the quota is worth, rounded up; 0: no limit. */
static int worth(const char *folder, bool second)
{
	char path[PATH_ROOM + 32], line[128];
	long long quota = 0, period = 0;

	snprintf(path, sizeof path, "%s/%s", folder, second ? "cpu.max" : "cpu.cfs_quota_us");
	if (!line_of(path, line, sizeof line) || sscanf(line, "%lld %lld", &quota, &period) < 1)
		return 0;
	if (!second) {
		snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
		if (!line_of(path, line, sizeof line) || sscanf(line, "%lld", &period) < 1)
			return 0;
	}
	if (quota <= 0 || period <= 0)
		return 0;
	const long long n = quota / period + (quota % period != 0);

	return n < MOST_CORES ? (int)n : MOST_CORES;
}

/* The tightest limit of a group and those around it. Inside a container the group's own name may not be there: what is
 * there is the container's folder, which stands where the outermost group does. */
static int limit_of(const char *mount, char *group, bool second, int cores)
{
	char folder[PATH_ROOM];

	for (;;) {
		if (snprintf(folder, sizeof folder, "%s%s", mount, group) < (int)sizeof folder) {
			const int n = worth(folder, second);
			cores = n > 0 && n < cores ? n : cores;
		}
		char *slash = strrchr(group, '/');

		if (!slash)
			return cores;
		*slash = 0;
	}
}

/* Is `cpu` among the controllers, as in "cpu,cpuacct"? */
static bool has_cpu(const char *list, size_t n)
{
	for (size_t i = 0, word; i < n; i += word + 1) {
		word = strcspn(list + i, ",:");
		if (word == 3 && !strncmp(list + i, "cpu", 3))
			return true;
	}
	return false;
}

/* /proc/self/cgroup has lines ID:CONTROLLERS:GROUP, of version 2 with no controllers. */
static int limited(const char *root, int cores)
{
	char path[PATH_ROOM], line[PATH_ROOM], mount[PATH_ROOM];

	snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
	FILE *f = fopen(path, "r");

	while (f && fgets(line, sizeof line, f)) {
		char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;

		if (!group)
			continue;
		group[1 + strcspn(group + 1, "\n")] = 0;
		const int n = (int)(group - ++list);

		if (n && !has_cpu(list, (size_t)n))
			continue;
		if (snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%.*s", root, n ? "/" : "", n, list) <
			(int)sizeof mount)
			cores = limit_of(mount, group + 1, !n, cores);
	}
	if (f)
		fclose(f);
	return cores;
}

int pd_cores(const char *root)
{
	const char *said = getenv("PDCC_CORES");
	const long n = said ? strtol(said, NULL, 10) : 0;

	if (n > 0 && n <= MOST_CORES)
		return (int)n;
	return limited(root, affine());
}
