/* pdcc inspect of what pdcc and its programs write: build folders, checkpoints, traces, weights. What a file is, is seen from
 * what is in it; plan.json and its like: inspect_json.c; the text form of the IR: inspect_ir.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "runtime/state/ckptdir.h"
#include "runtime/state/safetensors.h"
#include "inspect.h"
#include "trace.h"
#include "ir/base/human.h"

enum { TENSORS = 40, STEPS = 20, E_CKPT = 806 };

static bool ends(const char *s, const char *end)
{
	const size_t n = strlen(s), k = strlen(end);

	return n >= k && strcmp(s + n - k, end) == 0;
}

static bool has(Arena *a, const char *dir, const char *file)
{
	struct stat st;

	return stat(arena_printf(a, "%s/%s", dir, file), &st) == 0;
}

/* ---- tensors ---- */

static const char *shape(Arena *a, const st_tensor *t)
{
	const char *s = "";

	for (int i = 0; i < t->rank; i++)
		s = arena_printf(a, "%s%s%" PRId64, s, i ? "," : "", t->dim[i]);
	return arena_printf(a, "%s[%s]", t->dtype, s);
}

/* part -1: there is one file. */
static void print_tensor(Arena *a, const st_tensor *t, int part)
{
	const char *name = inspect_name(a, t->name, 54);

	printf("  %-54s %-20s %12zu", name, shape(a, t), t->bytes);
	printf(part < 0 ? "\n" : "  part %d\n", part);
}

static int inspect_weights(Compile *c)
{
	st_file f;
	const char *why;
	size_t bytes = 0, most = 0;

	if (!st_open(&f, c->model, &why))
		return diag_error(c->d, FILELOC(c->model), 201, "not a safetensors file: %s", why), EXIT_INPUT;
	for (int i = 0; i < f.n; i++) {
		bytes += f.tensor[i].bytes;
		most += f.tensor[i].bytes / (st_size(f.tensor[i].dtype) ? st_size(f.tensor[i].dtype) : 1);
	}
	printf("%s: %d tensors, %zu elements, %s", c->model, f.n, most, str_bytes(c->a, (int64_t)bytes));
	printf(f.step >= 0 ? ", after step %lld\n\n" : "\n\n", f.step);
	printf("  %-54s %-20s %12s\n", "tensor", "type", "bytes");
	for (int i = 0; i < f.n && (i < TENSORS || c->o->verbose); i++)
		print_tensor(c->a, &f.tensor[i], -1);
	if (f.n > TENSORS && !c->o->verbose)
		printf("  ... and %d more (-v lists all)\n", f.n - TENSORS);
	st_close(&f);
	return 0;
}

/* ---- checkpoints ---- */

/* A line per checkpoint; gives whether it is whole. */
static bool print_step(Compile *c, const char *dir, int64_t step, ck_manifest *m)
{
	char why[CK_PATH + 300] = "", path[CK_PATH];
	const ck_state s = ck_look(dir, step, true, m, why, sizeof why);
	int64_t bytes = 0;

	if (s != CK_COMPLETE) {
		printf("  %-10" PRId64 " %s\n", step,
			s == CK_DAMAGED ? str_shown(c->a, why) : "not whole: parts are missing");
		return false;
	}
	for (int r = 0; r < m->world; r++) {
		struct stat st;
		ck_part(path, dir, step, r, m->world, ".safetensors");
		bytes += stat(path, &st) ? 0 : st.st_size;
	}
	printf("  %-10" PRId64 " %5d %12s %14" PRId64 " %10.4g  %s\n", step, m->world, str_bytes(c->a, bytes),
		step * m->samples_per_step, m->loss_ema, str_shown(c->a, m->plan));
	return true;
}

static bool print_parts(Compile *c, const char *dir, int64_t step, const ck_manifest *m)
{
	int n = 0;

	printf("\ntensors of step %" PRId64 "\n  %-54s %-20s %12s\n", step, "tensor", "type", "bytes");
	for (int r = 0; r < m->world; r++) {
		char path[CK_PATH];
		const char *why;
		st_file f;

		ck_part(path, dir, step, r, m->world, ".safetensors");
		if (!st_open(&f, path, &why))
			return diag_error(c->d, FILELOC(arena_str(c->a, path)), E_CKPT, "%s", why);
		for (int i = 0; i < f.n; i++, n++)
			if (n < TENSORS || c->o->verbose)
				print_tensor(c->a, &f.tensor[i], r);
		st_close(&f);
	}
	if (n > TENSORS && !c->o->verbose)
		printf("  ... and %d more (-v lists all)\n", n - TENSORS);
	return true;
}

/* only >= 0: that step alone. */
static int inspect_checkpoints(Compile *c, const char *dir, int64_t only)
{
	int n = 0;
	int64_t *step = ck_steps(dir, &n), newest = -1;
	ck_manifest m, of = { 0 };

	if (n < 0)
		return diag_error(c->d, FILELOC(dir), E_CKPT, "no folder of checkpoints: %s", strerror(errno)),
		       EXIT_INPUT;
	printf("%s: %d checkpoint%s, newest first\n\n  %-10s %5s %12s %14s %10s  %s\n", dir, n, n == 1 ? "" : "s",
		"step", "parts", "bytes", "samples seen", "loss", "plan");
	for (int i = 0; i < n && (only >= 0 || newest < 0 || i < STEPS); i++)
		if ((only < 0 || step[i] == only) && print_step(c, dir, step[i], &m) && newest < 0) {
			newest = step[i];
			of = m;
		}
	if (n > STEPS && only < 0)
		printf("  ... and %d more\n", n - STEPS);
	free(step);
	if (newest < 0)
		return diag_error(c->d, FILELOC(dir), E_CKPT, "there is no whole checkpoint%s",
			       only < 0 ? " in this folder" : ""),
		       EXIT_INPUT;
	printf("\nmodel %s (%s), plan %s (%s), optimizer %s, seed %" PRIu64 "%s\n", str_shown(c->a, of.model),
		str_shown(c->a, of.model_hash), str_shown(c->a, of.plan), str_shown(c->a, of.plan_hash),
		str_shown(c->a, of.optimizer), of.seed, of.shuffle ? ", samples shuffled" : "");
	return print_parts(c, dir, newest, &of) ? 0 : EXIT_INPUT;
}

/* ---- folders ---- */

static int inspect_build(Compile *c, const char *dir)
{
	c->model = arena_printf(c->a, "%s/plan.json", dir);
	const int status = inspect_json(c);

	if (!status && has(c->a, dir, "run/latest/summary.json"))
		printf("\nit has run: %s/run/latest holds the newest results\n", dir);
	else if (!status && has(c->a, dir, "run/summary.json"))
		printf("\nit has run: %s/run holds its results\n", dir);
	return status;
}

static int inspect_folder(Compile *c)
{
	char *dir = arena_str(c->a, c->model);
	int64_t step;
	int n = 0, at = 0;

	while (strlen(dir) > 1 && dir[strlen(dir) - 1] == '/')
		dir[strlen(dir) - 1] = 0;
	char *slash = strrchr(dir, '/'), *base = slash ? slash + 1 : dir;
	if (sscanf(base, "step-%" SCNd64 "%n", &step, &at) == 1 && at >= 15 && !base[at]) {
		if (slash)
			*slash = 0;
		return inspect_checkpoints(c, slash ? dir : ".", step);
	}
	if (has(c->a, dir, "manifest.json"))
		return inspect_build(c, dir);
	if (has(c->a, dir, "rank0.json"))
		return trace_main(1, &dir);
	free(ck_steps(dir, &n));
	if (n > 0)
		return inspect_checkpoints(c, dir, -1);
	diag_error(c->d, FILELOC(c->model), 201,
		"the folder is no build (manifest.json), no trace (rank0.json) and holds no checkpoint "
		"(step-N)");
	return EXIT_INPUT;
}

int inspect_file(Compile *c)
{
	struct stat st;

	if (stat(c->model, &st))
		return -1;
	if (S_ISDIR(st.st_mode))
		return inspect_folder(c);
	if (ends(c->model, ".safetensors"))
		return inspect_weights(c);
	if (ends(c->model, ".pdir"))
		return inspect_ir(c);
	return ends(c->model, ".json") ? inspect_json(c) : -1;
}
