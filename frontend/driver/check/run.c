/* pdcc run DIR [options]: builds what is in the build folder and trains, under its pdrun. The programs start where the user
 * stands, so that files that options name lie there; results lie in the build folder. */
#include "run.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "frontend/driver/compile/compile.h"
#include "frontend/driver/compile/tools.h"

enum { MOST = 256 };

/* make -s -C dir; its exit status. */
static int make_all(const char *dir)
{
	const pid_t child = fork();
	int status = -1;

	if (child == 0) {
		execlp("make", "make", "-s", "-C", dir, (char *)NULL);
		_exit(127);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* What pdrun is started with: its own options stand in front of the folder, those of the programs behind `--`. */
static bool arguments(char **to, char **args, int n, Diag *d)
{
	static const char restarts[] = "--max-restarts", logs[] = "--log-dir";
	static char dashes[] = "--";
	char *programs[MOST];
	int np = 0, nt = 1;
	const char *dir = args[0];

	for (int i = 1; i < n; i++) {
		const bool own = !strncmp(args[i], restarts, strlen(restarts)) || !strncmp(args[i], logs, strlen(logs));

		if (nt + np + 4 >= MOST)
			return diag_error(d, NOLOC, 1, "pdcc run: more than %d words", MOST - 4);
		if (strcmp(args[i], "--") == 0)
			continue;
		if (!own) {
			programs[np++] = args[i];
			continue;
		}
		to[nt++] = args[i];
		if (!strchr(args[i], '=') && i + 1 < n)
			to[nt++] = args[++i];
	}
	to[nt++] = (char *)(uintptr_t)dir;
	to[nt++] = dashes;
	memcpy(to + nt, programs, (size_t)np * sizeof *to);
	to[nt + np] = NULL;
	return true;
}

int run_main(int argc, char **argv, Diag *d)
{
	char *words[2 * MOST], *path;

	if (argc == 0 || argv[0][0] == '-')
		return diag_error(d, NOLOC, 1, "pdcc run: name the build folder first; pdcc help run shows how"),
		       EXIT_USAGE;
	const char *dir = argv[0];
	if (access(arena_printf(d->scratch, "%s/device0.c", dir), R_OK) ||
		access(arena_printf(d->scratch, "%s/Makefile", dir), R_OK)) {
		const size_t n = strlen(dir);

		diag_error(d, NOLOC, 1,
			n > 5 && !strcmp(dir + n - 5, ".onnx")
				? "%s is a model; pdcc %s --cluster local:4 -o out writes a program, which pdcc run out trains"
				: "%s is no build folder; pdcc MODEL.onnx --cluster FILE -o %s makes one",
			dir, dir);
		return EXIT_USAGE;
	}
	if (!tool_needed(d, "make") || !tool_needed(d, "mpicc") || !tool_needed(d, "mpirun"))
		return EXIT_NO_TOOL;
	if (!arguments(words, argv, argc, d))
		return EXIT_USAGE;
	const int status = make_all(dir);
	if (status)
		return diag_error(d, NOLOC, 802, "make -s -C %s failed (%d)", dir, status), EXIT_INPUT;
	words[0] = path = arena_printf(d->scratch, "%s/bin/pdrun", dir);
	fflush(stdout);
	execv(path, words);
	return diag_error(d, NOLOC, 802, "%s: %s", path, strerror(errno)), EXIT_INPUT;
}
