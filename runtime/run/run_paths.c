/* run_paths.c: where a run's files lie.
 *
 * What the plan names (data, initial weights, the folder of results, checkpoints, metrics) lies in the build folder, wherever
 * the programs are started from; what an option names lies where they were started. PD_BASE=DIR puts what a run writes into
 * another build folder: a plan that stands in for a larger one goes on there. */
#include "rt.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The program is BUILD/bin/dN; without a folder in its name it was found in the PATH or stands where we are. */
void rt_find_root(rt_options *o, const char *argv0)
{
	snprintf(o->root, sizeof o->root - 4, "%s", argv0);
	char *slash = strrchr(o->root, '/');
	const size_t n = slash ? (size_t)(slash - o->root) : 0;

	o->root[n] = 0;
	if (n > 4 && !strcmp(o->root + n - 4, "/bin"))
		o->root[n - 4] = 0;
	else if (!strcmp(o->root, "bin"))
		strcpy(o->root, ".");
	else
		strcpy(o->root + n, n ? "/.." : "..");
}

const char *rt_in_root(const rt_options *o, const char *path)
{
	static char at[8192];

	if (!path || !*path || *path == '/')
		return path;
	snprintf(at, sizeof at, "%s/%s", o->root, path);
	return at;
}

static bool here(const char *dir)
{
	char a[PATH_MAX], b[PATH_MAX];

	return realpath(dir, a) && realpath(".", b) && !strcmp(a, b);
}

const char *rt_result(const rt_options *o, const char *path)
{
	const char *base = getenv("PD_BASE");

	base = base && *base ? base : o->root;
	if (!path || !*path || *path == '/' || here(base))
		return path;
	const size_t room = strlen(base) + strlen(path) + 2;
	char *at = rt_alloc(room);

	snprintf(at, room, "%s/%s", base, path);
	return at;
}
