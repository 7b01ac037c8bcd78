/* folder.c: the folder of results of a run: DIR/run/NAME, by --name or numbered (run-1, run-2 ...), or what --out says.
 *
 * A number is taken by making its folder, so that two runs that begin at once have two. A name that has results is refused
 * unless the run goes on behind them (--resume). DIR/run/latest is set by rank 0 when it opens its first file. */
#include "pdrun.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_flag(const char *arg, const char *flag)
{
	const size_t n = strlen(flag);

	return !strncmp(arg, flag, n) && (!arg[n] || arg[n] == '=');
}

const char *told_of(const job *j, const char *flag, const char *env, const char *otherwise)
{
	const char *e = getenv(env);

	otherwise = e && *e ? e : otherwise;
	for (int i = 0; i < j->nargs; i++)
		if (is_flag(j->args[i], flag)) {
			const char *value = strchr(j->args[i], '=');

			if (value)
				otherwise = value + 1;
			else if (i + 1 < j->nargs)
				otherwise = j->args[i + 1];
		}
	return otherwise;
}

static bool is_told(const job *j, const char *flag, const char *env)
{
	const char *e = getenv(env);

	for (int i = 0; i < j->nargs; i++)
		if (is_flag(j->args[i], flag))
			return true;
	return e && *e;
}

_Noreturn void no_folder(const char *path)
{
	fprintf(stderr, "pdrun: %s: %s\n", path, strerror(errno));
	exit(1);
}

static void make(const char *path)
{
	if (mkdir(path, 0777) && errno != EEXIST)
		no_folder(path);
}

/* The first number that no run has had, and its folder. */
static void take_number(job *j, const char *runs)
{
	char path[PATH + 64], name[32];
	int most = 0, n, length;
	DIR *d = opendir(runs);

	if (!d)
		no_folder(runs);
	for (struct dirent *e; (e = readdir(d));)
		if (sscanf(e->d_name, "run-%9d%n", &n, &length) == 1 && !e->d_name[length] && n > most)
			most = n;
	closedir(d);
	do {
		snprintf(name, sizeof name, "run-%d", ++most);
		snprintf(path, sizeof path, "%s/%s", runs, name);
	} while (mkdir(path, 0777) && errno == EEXIST);
	if (!realpath(path, j->out))
		no_folder(path);
	setenv("PD_NAME", name, 1);
	j->numbered = true;
}

static bool proper_name(const char *name)
{
	if (*name && *name != '.' && !strchr(name, '/') && strcmp(name, "latest") && strcmp(name, "fr") &&
		strlen(name) < 200)
		return true;
	fprintf(stderr,
		"pdrun: --name wants the name of a folder in run/ (no '/', not latest or fr, no dot in front), not '%s'\n",
		name);
	return false;
}

/* Two runs with one folder of results would take each other's records for their own: the second one says who is there. The
 * folder is locked until this process ends; the programs do not inherit it. */
static bool lock(const job *j)
{
	char path[PATH + 16], who[300] = "", host[128] = "";
	const int folder = open(j->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const bool taken =
		flock(folder, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK; /* some file systems have no locks */

	snprintf(path, sizeof path, "%s/holder.txt", j->fr);
	FILE *f = fopen(path, taken ? "r" : "w");

	if (taken) {
		if (!f || !fgets(who, sizeof who, f))
			strcpy(who, "another pdrun");
		fprintf(stderr,
			"pdrun: error: a run is going on in %s: %s; without --out and --name this one gets a folder of its own\n",
			j->out, who);
	} else if (f) {
		gethostname(host, sizeof host - 1);
		fprintf(f, "process %d on %s", (int)getpid(), host);
	}
	if (f)
		fclose(f);
	return !taken;
}

/* A folder of --name that an earlier run has written to. */
static bool has_results(const job *j, const char *typed)
{
	static const char *const file[] = { "losses.txt", "trained.safetensors", "state.safetensors" };
	char path[PATH + 32];

	for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
		snprintf(path, sizeof path, "%s/%s", j->out, file[i]);
		if (access(path, F_OK))
			continue;
		fprintf(stderr,
			"pdrun: error: %s has results of an earlier run (%s): give another --name, or --resume to go on there\n",
			typed, file[i]);
		return true;
	}
	return false;
}

int folder_take(job *j)
{
	char path[2 * PATH], fr[PATH + 8], runs[PATH + 8];
	const char *out = told_of(j, "--out", "PD_OUT", NULL), *name = told_of(j, "--name", "PD_NAME", NULL);

	if (!realpath(j->dir, j->base))
		no_folder(j->dir);
	if (out && name) {
		fprintf(stderr, "pdrun: --out %s and --name %s are two folders of results; name one\n", out, name);
		return USAGE;
	}
	if (name && !proper_name(name))
		return USAGE;
	snprintf(runs, sizeof runs, "%.*s/run", PATH - 1, j->dir);
	snprintf(path, sizeof path, "%.*s%s%s", PATH, out ? out : runs, name ? "/" : "", name ? name : "");
	if (!out)
		make(runs);
	if (out || name) {
		make(path);
		if (!realpath(path, j->out))
			no_folder(path);
	} else {
		take_number(j, runs);
	}
	snprintf(fr, sizeof fr, "%.*s/fr", PATH - 1, j->out);
	if ((mkdir(fr, 0777) && errno != EEXIST) || !realpath(fr, j->fr) || access(j->fr, W_OK | X_OK))
		no_folder(fr);
	if (!lock(j))
		return 1;
	if (!name || is_told(j, "--resume", "PD_RESUME") || !has_results(j, path))
		return 0;
	folder_leave(j);
	return USAGE;
}

void folder_leave(const job *j)
{
	char path[PATH + 16];

	clean_records(j);
	snprintf(path, sizeof path, "%s/holder.txt", j->fr);
	unlink(path);
	rmdir(j->fr);
	if (j->numbered)
		rmdir(j->out); /* --check writes nothing */
}
