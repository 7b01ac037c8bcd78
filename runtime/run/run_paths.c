/* run_paths.c: where a run's files lie.
 *
 * What the plan names (data, initial weights, checkpoints) lies in the build folder, wherever the programs are started from;
 * what an option names lies where they were started, under the path as it was typed. Results and metrics that the plan names
 * lie in run/NAME of the build folder. Where nobody names it, pdrun numbers it, and rank 0 does where there is no pdrun.
 * PD_BASE=DIR puts what a run writes into another build folder: a plan that stands in for a larger one goes on there. */
#include "rt.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

static const char *joined(const char *dir, const char *path)
{
	const size_t room = strlen(dir) + strlen(path) + 2;
	char *at = rt_alloc(room);

	snprintf(at, room, "%s/%s", dir, path);
	return at;
}

/* A file that the plan names and the run writes. */
static const char *result(const rt_options *o, const char *path)
{
	const char *base = getenv("PD_BASE");

	base = base && *base ? base : o->root;
	return !path || !*path || *path == '/' || here(base) ? path : joined(base, path);
}

/* What an option names is another pointer than the plan's; that stays as it is. */
static void in_folder(const rt_options *o, const char **path, const char *planned)
{
	if (*path && *path == planned && **path != '/')
		*path = joined(o->out, *path);
}

static void metrics_in_folder(const pd_program *p, rt_options *o)
{
	in_folder(o, &o->jsonl, p->metrics.jsonl);
	in_folder(o, &o->csv, p->metrics.csv);
	in_folder(o, &o->tensorboard, p->metrics.tensorboard);
}

static bool unnamed; /* rank 0 numbers the folder */

void rt_results_find(const pd_program *p, rt_options *o)
{
	if (o->name && (!*o->name || *o->name == '.' || strchr(o->name, '/') || !strcmp(o->name, "latest")))
		rt_fail(RT_USAGE, "R001", "--name wants the name of a folder in run/, not '%s'", o->name);
	if (o->name && o->out)
		rt_fail(RT_USAGE, "R001", "--out %s and --name %s are two folders of results; name one", o->out,
			o->name);
	unnamed = !o->out && !o->name;
	if (!o->out)
		o->out = result(o, o->name ? joined("run", o->name) : "run");
	if (o->ckpt == p->ckpt.dir)
		o->ckpt = result(o, o->ckpt);
	if (!unnamed)
		metrics_in_folder(p, o);
}

/* Behind the largest number that a run has had. */
static int next_number(const char *runs)
{
	int most = 0, n, length;
	DIR *d = opendir(runs);

	for (struct dirent *e; d && (e = readdir(d));)
		if (sscanf(e->d_name, "run-%9d%n", &n, &length) == 1 && !e->d_name[length] && n > most)
			most = n;
	if (d)
		closedir(d);
	return most + 1;
}

void rt_results_take(const pd_program *p, rt_options *o)
{
	static char name[32];
	const char *runs = o->out;

	if (!unnamed)
		return;
	mkdir(runs, 0777); /* what is wrong with it, the next one says */
	for (int n = next_number(runs);; n++) {
		snprintf(name, sizeof name, "run-%d", n);
		o->out = joined(runs, name);
		if (mkdir(o->out, 0777) == 0)
			break;
		if (errno != EEXIST) /* two that begin at once have two */
			rt_fail(RT_ERROR, "R406", "%s: %s", o->out, strerror(errno));
	}
	o->name = name;
	metrics_in_folder(p, o);
}

/* run/latest, a relative link beside the folder. Where there can be no link nobody is told: it is for those who look. */
static void point_latest(const rt_options *o)
{
	char latest[PATH_MAX], made[PATH_MAX];
	const int n = (int)(strlen(o->out) - strlen(o->name));

	snprintf(latest, sizeof latest, "%.*slatest", n, o->out);
	snprintf(made, sizeof made, "%.*s.latest-%ld", n, o->out, (long)getpid());
	unlink(made);
	if (symlink(o->name, made) || rename(made, latest))
		unlink(made);
}

/* Files of the newest run have links in run/ itself, where they were before runs had names: scripts go on to find them. */
static void link_files(const char *run)
{
	static const char *const name[] = { "losses.txt", "eval.txt", "summary.json", "trained.safetensors",
		"state.safetensors", "model.onnx" };

	for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
		char path[PATH_MAX + 64], to[64];
		struct stat st;
		snprintf(path, sizeof path, "%s/%s", run, name[i]);
		snprintf(to, sizeof to, "latest/%s", name[i]);
		if (lstat(path, &st) && symlink(to, path))
			return; /* no links there */
	}
}

void rt_results_open(const rt_options *o)
{
	char path[PATH_MAX], run[PATH_MAX];

	snprintf(run, sizeof run, "%.*s", (int)(strlen(o->out) - (o->name ? strlen(o->name) + 1 : 0)), o->out);
	if (o->name)
		mkdir(run, 0777); /* what is wrong with it, the next one says */
	if (mkdir(o->out, 0777) && errno != EEXIST)
		rt_fail(RT_ERROR, "R406", "%s: %s", o->out, strerror(errno));
	snprintf(path, sizeof path, "%s/losses.txt", o->out);
	if (o->name && !rt_launched() && !o->resume && access(path, F_OK) == 0)
		rt_fail(RT_USAGE, "R001",
			"%s has results of an earlier run: give another --name, or --resume to go on there", o->out);
	if (!o->name)
		return;
	point_latest(o);
	link_files(run);
}
