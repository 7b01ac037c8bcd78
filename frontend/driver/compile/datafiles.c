/* The files that --data and --eval name: are they there, and does the model have such inputs;
 * does each input have data. */
#define _XOPEN_SOURCE 700 /* realpath */
#include "compile.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Programs that run on this machine find the data of an input. */
static bool data_there(Compile *c, const DataInput *x)
{
	struct stat st;
	const int err = access(x->path, R_OK) || stat(x->path, &st) ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;

	if (err || !S_ISREG(st.st_mode) || st.st_size == 0)
		return diag_error(c->d, FILELOC(x->path), 212, "cannot read the data of input '%s': %s", x->input,
			err                   ? strerror(err)
			: S_ISREG(st.st_mode) ? "the file is empty"
					      : "it is no file");
	return true;
}

/* No stage reads input `name`: a warning where the model has it all the same, else an error. */
static bool unread_data(Compile *c, const char *name, const char **names, int n)
{
	const char *near = diag_nearest(name, names, n);
	Buf b = { 0 };

	for (int i = 0; i < c->ninput; i++)
		if (!strcmp(c->input[i], name)) {
			diag_warn(c->d, NOLOC, "data-unread", "data for '%s': the loss does not depend on this input",
				name);
			return true;
		}
	for (int i = 0; i < n; i++)
		buf_printf(&b, "%s%s", i ? ", " : "", names[i]);
	if (near)
		diag_error(c->d, NOLOC, 211, "data for '%s': no input is called so; did you mean '%s'?", name, near);
	else
		diag_error(c->d, NOLOC, 211, "data for '%s': no input is called so; there are %s", name, buf_str(&b));
	buf_free(&b);
	return false;
}

static const DataInput *data_of(const DataInput *data, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(data[i].input, name))
			return &data[i];
	return NULL;
}

/* Where some input is read from a file none may be made up but by its name; nor where all are of a kind that is said, unless
 * nothing is said of any, and a run names the folder. */
static bool all_named(
	Compile *c, const Value **in, int n, const DataInput *data, int ndata, DataKind common, const char *flag)
{
	const char *why = NULL;
	bool ok = true;

	if (ndata && common > DATA_SYNTHETIC)
		why = arena_printf(c->a, "the data is said to be %s", setting_word(SET_OF_DataKind, (int)common));
	for (int i = 0; i < ndata; i++)
		if (data[i].kind != DATA_SYNTHETIC)
			why = arena_printf(c->a, "'%s' is read from %s", data[i].input, data[i].path);
	for (int i = 0; why && i < n; i++)
		if (!in[i]->presence && !data_of(data, ndata, in[i]->name))
			ok = diag_error(c->d, NOLOC, 218,
				"input '%s' has no data, and %s; say %s %s=FILE, or %s %s=synthetic for made-up numbers",
				in[i]->name, why, flag, in[i]->name, flag, in[i]->name);
	return ok;
}

/* Every --data must name an input; of those that some stage reads the file must be there and fit, on this machine's own
 * devices; elsewhere at least its kind must be known. */
static bool check_data(
	Compile *c, const DataInput *data, int ndata, DataKind common, const char *flag, int64_t *samples)
{
	const Value **in = NULL;
	const char **names = NULL;
	DataCount of = { 0 };
	int n = 0, cap = 0, ncap = 0, nn = 0;
	bool ok = true;

	for (int i = 0; i < c->m->nstage; i++)
		for (int k = 0; k < c->m->stage[i]->forward->nin; k++) {
			PUSH(c->a, in, n, cap) = c->m->stage[i]->forward->in[k];
			PUSH(c->a, names, nn, ncap) = in[n - 1]->name;
		}
	for (int i = 0; i < ndata; i++) {
		const DataInput *x = &data[i];
		int k = 0;

		while (k < n && strcmp(names[k], x->input))
			k++;
		if (k == n)
			ok &= unread_data(c, x->input, names, n);
		else if (x->kind == DATA_SYNTHETIC)
			continue;
		else if (c->cluster.local)
			ok &= data_there(c, x) && data_fits(c, x, in[k], &of);
		else if (x->kind == DATA_UNSAID)
			ok = diag_error(c->d, FILELOC(x->path), 217,
				"the data of input '%s': the file is not here to tell what it is; say --data %s=%s:npy, :idx, "
				":safetensors, :raw, :tokens or :tokens32",
				x->input, x->input, x->path);
	}
	*samples = of.n;
	return ok && all_named(c, in, n, data, ndata, common, flag);
}

/* Data files that are named relative to this directory are named relative to the build folder from here on: that is
 * where the programs run. */
static void rebase_data(Compile *c, const char *dir, DataInput *data, int ndata)
{
	char *from = realpath(dir, NULL);

	for (int i = 0; from && i < ndata; i++) {
		char *to = data[i].kind == DATA_SYNTHETIC || *data[i].path == '/' ? NULL : realpath(data[i].path, NULL);
		size_t same = 0;
		Buf b = { 0 };

		if (!to)
			continue;
		for (size_t k = 0; from[k] == to[k] && to[k]; k++)
			if (to[k] == '/')
				same = k;
		size_t common = strlen(from);
		if (strncmp(from, to, common) == 0 && to[common] == '/')
			same = common;
		for (const char *p = from + same; *p; p++)
			if (*p == '/' && p[1])
				buf_puts(&b, "../");
		buf_puts(&b, to + same + 1);
		data[i].path = arena_str(c->a, buf_str(&b));
		buf_free(&b);
		free(to);
	}
	free(from);
}

bool compile_data(Compile *c, const char *dir)
{
	Training *t = &c->o->t;
	int64_t other;

	if (!check_data(c, t->data.input, t->data.ninput, t->data.kind, "--data", &c->samples) ||
		!check_data(c, t->data.eval.data, t->data.eval.ndata, t->data.eval.kind, "--eval", &other))
		return false;
	rebase_data(c, dir, t->data.input, t->data.ninput);
	rebase_data(c, dir, t->data.eval.data, t->data.eval.ndata);
	return true;
}

/* Where the numbers come from, input by input where they come from both. */
const char *data_said(const Compile *c)
{
	const Training *t = &c->o->t;
	const char *made = "";
	bool files = false;

	for (int i = 0; i < t->data.ninput; i++)
		if (t->data.input[i].kind != DATA_SYNTHETIC)
			files = true;
		else
			made = arena_printf(c->a, "%s%s%s", made, *made ? ", " : "", t->data.input[i].input);
	if (!t->data.ninput && t->data.kind > DATA_SYNTHETIC)
		return arena_printf(c->a, "%s, from the folder that a run names with --data",
			setting_word(SET_OF_DataKind, (int)t->data.kind));
	if (!t->data.ninput)
		return "synthetic (no --data)";
	if (!files)
		return "synthetic (as asked)";
	return *made ? arena_printf(c->a, "from files, but synthetic for %s", made) : "from files";
}
