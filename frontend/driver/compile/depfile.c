/* -MD: a make rule of what a build folder was made from, for make, ninja and CMake (DEPFILE): the model and its external data,
 * cluster file, train.yaml, plan, profile, schedule, files of flags, data. */
#include "compile.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "ir/text/profile.h"
#include "passes/common/plan.h"
#include "frontend/onnx/onnx.h"
#include "passes/schedule/placement.h"

typedef struct Rule {
	Buf b;
	Map seen;
} Rule;

/* A name as make reads it. */
static void name(Rule *r, const char *path)
{
	for (; *path; path++) {
		if (*path == ' ' || *path == '#' || *path == '\\')
			buf_putc(&r->b, '\\');
		if (*path == '$')
			buf_putc(&r->b, '$');
		buf_putc(&r->b, *path);
	}
}

/* What is a file, and each once. */
static void depends(Rule *r, const char *path)
{
	struct stat st;

	if (!path || map_has(&r->seen, path) || stat(path, &st) || !S_ISREG(st.st_mode))
		return;
	map_put(&r->seen, path, r);
	buf_puts(&r->b, " \\\n ");
	name(r, path);
}

/* Names of data are relative to the build folder by now. */
static void data(Rule *r, Arena *a, const char *dir, const DataInput *list, int n)
{
	for (int i = 0; i < n; i++)
		if (list[i].kind != DATA_SYNTHETIC)
			depends(r, *list[i].path == '/' ? list[i].path : arena_printf(a, "%s/%s", dir, list[i].path));
}

static void flags(Rule *r, const Compile *c)
{
	for (int i = 1; i < c->argc; i++) {
		const char *w = c->argv[i];
		if (*w == '@')
			depends(r, w + 1);
		else if (strncmp(w, "--config=", 9) == 0)
			depends(r, w + 9);
		else if (strcmp(w, "--config") == 0 && i + 1 < c->argc)
			depends(r, c->argv[i + 1]);
	}
}

bool depfile_write(Compile *c, const char *dir)
{
	const Options *o = c->o;
	const char *file = o->depfile ? o->depfile : arena_printf(c->a, "%s/inputs.d", dir), **beside;
	Rule r = { 0 };
	const int n = onnx_external_files(c->a, c->model, &beside, c->d);

	map_init(&r.seen, c->a, true);
	name(&r, arena_printf(c->a, "%s/manifest.json", dir));
	buf_putc(&r.b, ':');
	depends(&r, c->model);
	for (int i = 0; i < n; i++)
		depends(&r, beside[i]);
	depends(&r, c->cluster.file);
	depends(&r, o->t.file);
	depends(&r, o->t.plan.given ? o->t.plan.given->file : NULL);
	depends(&r, c->profile ? c->profile->file : NULL);
	depends(&r, o->t.plan.schedule.file);
	depends(&r, o->start_from);
	flags(&r, c);
	data(&r, c->a, dir, o->t.data.input, o->t.data.ninput);
	data(&r, c->a, dir, o->t.data.eval.data, o->t.data.eval.ndata);
	buf_putc(&r.b, '\n');
	const bool ok = file_write(file, r.b.s, r.b.n) ||
	                diag_error(c->d, NOLOC, 8, "cannot write %s: %s", file, strerror(errno));
	buf_free(&r.b);
	return ok;
}
