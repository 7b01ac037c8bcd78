/* cores.c: how many cores pd_cores sees: of made-up control groups, of both versions, and under an affinity of its own.
 * Usage: cores DIR (to write in). */
#include "test.h"
#include <sched.h>
#include <sys/stat.h>

static char root[4000];

/* A file below the made-up root, with the folders on its way. */
static void put(const char *name, const char *text)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/%s", root, name);
	for (char *p = path + strlen(root) + 1; (p = strchr(p, '/')); *p++ = '/') {
		*p = 0;
		mkdir(path, 0777);
	}
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f))
		exit(2);
}

/* Another empty root, whose /proc/self/cgroup says `groups`. */
static void machine(const char *dir, const char *name, const char *groups)
{
	snprintf(root, sizeof root, "%s/cores-%s", dir, name);
	mkdir(root, 0777);
	if (groups)
		put("proc/self/cgroup", groups);
}

static void sees(int want, const char *of)
{
	const int n = pd_cores(root);

	CHECK(n == want, "%s: %d cores, not %d", of, n, want);
}

static void version_2(const char *dir)
{
	machine(dir, "v2", "0::/user.slice/job\n");
	put("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
	sees(2, "a group without a limit");
	put("sys/fs/cgroup/user.slice/job/cpu.max", "100000 100000\n");
	sees(1, "one core's time");
	put("sys/fs/cgroup/user.slice/job/cpu.max", "100001 100000\n");
	sees(2, "a little more than one core's time is rounded up");
	put("sys/fs/cgroup/user.slice/job/cpu.max", "800000 100000\n");
	sees(2, "more time than the process has cores");
	machine(dir, "v2-around", "0::/user.slice/job\n");
	put("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
	put("sys/fs/cgroup/user.slice/cpu.max", "50000 100000\n");
	sees(1, "half a core of a group around it");
	machine(dir, "v2-inside", "0::/not/seen/here\n");
	put("sys/fs/cgroup/cpu.max", "60000 100000\n");
	sees(1, "a container, whose folder is the mount itself");
}

static void version_1(const char *dir)
{
	machine(dir, "v1", "5:cpuset:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n");
	put("sys/fs/cgroup/cpuset/job/cpu.cfs_quota_us", "1000\n");
	put("sys/fs/cgroup/cpuset/job/cpu.cfs_period_us", "100000\n");
	put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
	put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
	sees(2, "version 1 without a limit; cpuset is not cpu");
	put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "30000\n");
	sees(1, "version 1, a third of a core");
	machine(dir, "v1-broken", "4:cpu:/job\n");
	put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "30000\n");
	sees(2, "a quota without a period is none");
}

int main(int argc, char **argv)
{
	cpu_set_t all, some;
	int n = 0;

	if (argc < 2)
		return 2;
	unsetenv("PDCC_CORES");
	machine(argv[1], "none", NULL);
	if (sched_getaffinity(0, sizeof all, &all))
		return 2;
	CPU_ZERO(&some);
	for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
		if (CPU_ISSET(i, &all)) {
			CPU_SET(i, &some);
			sched_setaffinity(0, sizeof some, &some);
			sees(++n, "an affinity of as many");
		}
	if (n == 2) { /* with one core no limit is tighter */
		version_2(argv[1]);
		version_1(argv[1]);
	}
	setenv("PDCC_CORES", "64", 1);
	sees(64, "PDCC_CORES");
	setenv("PDCC_CORES", "0", 1);
	sees(n, "PDCC_CORES=0 is no number of cores");
	return failures > 0;
}
