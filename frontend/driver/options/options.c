/* Flags from the words of a command, by the table of options_table.c. */
#include "options_table.h"
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "frontend/settings/train.h"
#include "command_words.h"
#include "commands.h"

bool options_flag(int i, Flag *f)
{
	for (int k = 0; k < nopt; k++)
		if (opt_table[k].group && i-- == 0) {
			*f = (Flag){ opt_table[k].group, opt_table[k].name, opt_table[k].arg, opt_table[k].help,
				opt_table[k].optional };
			return true;
		}
	return false;
}

static bool store(Cx *x, const Opt *t, const char *value)
{
	char *at = (char *)x->o + t->offset, *end;

	switch (t->kind) {
	case FLAG: *(bool *)at = true; return true;
	case TEXT: *(const char **)at = value; return true;
	case CALL: return t->call(x, value);
	case REAL: return true;
	case INT: break;
	}
	errno = 0;
	long long v = strtoll(value, &end, 10);
	if (end == value || *end || errno || v < t->lo || v > t->hi)
		return diag_error(x->d, NOLOC, 7, "--%s wants a whole number from %lld to %lld, not '%s'", t->name,
			(long long)t->lo, (long long)t->hi, value);
	*(int64_t *)at = v;
	return true;
}

static const Opt *find(const char *name, size_t n)
{
	for (int i = 0; i < nopt; i++)
		if (strlen(opt_table[i].name) == n && strncmp(opt_table[i].name, name, n) == 0)
			return &opt_table[i];
	return NULL;
}

/* Options that only the programs have. */
static const char *const of_runs[] = { "resume", "metrics", "csv", "jsonl", "tensorboard", "trace", "stop" };

static bool unknown(Cx *x, const char *name)
{
	for (size_t i = 0; i < sizeof of_runs / sizeof *of_runs; i++)
		if (strcmp(name, of_runs[i]) == 0)
			return diag_error(
				x->d, NOLOC, 1, "--%s is an option of the run: pdcc run DIR --%s ...", name, name);
	const char **names = NEWN(x->a, const char *, nopt);

	for (int i = 0; i < nopt; i++)
		names[i] = opt_table[i].name;
	const char *near = diag_nearest(name, names, nopt);
	CommandText c;
	for (int i = 0; command_text(i, &c); i++)
		if (strcmp(c.name, name) == 0)
			return diag_error(x->d, NOLOC, 1, "unknown option '--%s'; it is a command: pdcc %s %s", name,
				name, c.args);
	if (near && strcmp(near, "o") == 0)
		return diag_error(x->d, NOLOC, 1, "unknown option '--%s'; did you mean '-o'?", name);
	return diag_error(x->d, NOLOC, 1, "unknown option '--%s'%s%s%s", name,
		near ? "; did you mean '--" : "; pdcc help all lists them", near ? near : "", near ? "'?" : "");
}

/* Letters that mean something to other programs. */
static bool unknown_letter(Cx *x, const char *s)
{
	static const char *const meant[][2] = { { "-n", "--cluster local:N" }, { "-np", "--cluster local:N" },
		{ "-V", "--version" }, { "-c", "--cluster" }, { "-b", "--global-batch" }, { "-e", "--epochs" } };

	for (size_t i = 0; i < sizeof meant / sizeof *meant; i++)
		if (strcmp(s, meant[i][0]) == 0)
			return diag_error(x->d, NOLOC, 1, "unknown option '%s'; did you mean '%s'?", s, meant[i][1]);
	return diag_error(x->d, NOLOC, 1, "unknown option '%s'; pdcc help all lists them", s);
}

/* One option at argv[i]; gives how many words it took, 0 after a diagnostic. */
static int long_option(Cx *x, int argc, const char **argv, int i)
{
	const char *name = argv[i] + 2, *eq = strchr(name, '=');
	size_t n = eq ? (size_t)(eq - name) : strlen(name);
	const Opt *t = find(name, n);

	if (!t && strncmp(name, "no-", 3) == 0 && !eq) {
		t = find(name + 3, n - 3);
		if (t && t->kind == FLAG) {
			*((bool *)((char *)x->o + t->offset)) = false;
			return 1;
		}
		t = NULL;
	}
	if (!t)
		return unknown(x, arena_strn(x->a, name, n)), 0;
	if (eq && !t->arg)
		return diag_error(x->d, NOLOC, 1, "--%s takes no value", t->name), 0;
	if (!t->arg || (t->optional && !eq))
		return store(x, t, NULL);
	if (!eq && i + 1 >= argc)
		return diag_error(x->d, NOLOC, 1, "--%s wants a value: %s", t->name, t->arg), 0;
	if (!store(x, t, eq ? eq + 1 : argv[i + 1]))
		return 0;
	return eq ? 1 : 2;
}

static int short_option(Cx *x, int argc, const char **argv, int i)
{
	const char *s = argv[i];

	if (strcmp(s, "-o") == 0) {
		if (i + 1 >= argc)
			return diag_error(x->d, NOLOC, 1, "-o wants a folder"), 0;
		x->o->out = argv[i + 1];
		return 2;
	}
	if (strcmp(s, "-MD") == 0)
		return x->o->deps = true;
	if (strcmp(s, "-h") == 0)
		return x->o->help = true;
	if (strcmp(s, "-g") == 0)
		return x->o->t.target.debug = true;
	if (strcmp(s, "-O") == 0)
		return diag_error(x->d, NOLOC, 1, "-O wants a level behind it, as -O2; the build folder is -o DIR"), 0;
	if (strncmp(s, "-O", 2) == 0)
		return store(x, find("opt-level", 9), s + 2);
	if (strcmp(s, "-q") == 0)
		return x->o->quiet = true;
	if (strcmp(s, "-v") == 0 || strcmp(s, "-vv") == 0)
		return x->o->verbose = true;
	if (strncmp(s, "-Wno-", 5) == 0 && x->o->nwno < 16) {
		x->o->wno[x->o->nwno++] = s + 5;
		return 1;
	}
	if (strcmp(s, "-Werror") == 0)
		return x->o->werror = true;
	if (strcmp(s, "-Wall") == 0 || strcmp(s, "-Wextra") == 0)
		return 1;
	return unknown_letter(x, s), 0;
}

/* --train comes first: its file is read before any flag is. */
static bool read_train(Cx *x, const Words *w)
{
	const char *path = NULL;

	for (int i = 0; i < w->n && strcmp(w->w[i], "--"); i++) {
		if (strcmp(w->w[i], "--train") == 0 && i + 1 < w->n)
			path = w->w[i + 1];
		else if (strncmp(w->w[i], "--train=", 8) == 0)
			path = w->w[i] + 8;
	}
	return !path || train_read(x->a, path, &x->o->t, x->d);
}

/* A word, or those of the file that @FILE or --config FILE names. */
static bool add_words(Arena *a, Words *w, int argc, char **argv, int *i, Diag *d)
{
	const char *s = argv[*i];

	if (strncmp(s, "--config=", 9) == 0)
		s = arena_printf(a, "@%s", s + 9);
	else if (strcmp(s, "--config") == 0 && *i + 1 < argc)
		s = arena_printf(a, "@%s", argv[++*i]);
	return words_add(a, w, s, d);
}

/* Of two settings that exclude each other, the length of a run and the size of a step, what a flag says overrides both of train.yaml. */
typedef struct Either {
	int64_t *one, *other, file[2];
} Either;

static Either either(int64_t *one, int64_t *other)
{
	const Either e = { one, other, { *one, *other } };

	*one = *other = 0;
	return e;
}

static void neither_said(const Either *e)
{
	if (*e->one || *e->other)
		return;
	*e->one = e->file[0];
	*e->other = e->file[1];
}

bool options_read(Arena *a, Options *o, int argc, char **argv, int first, Diag *d, bool *input_error)
{
	Cx x = { a, o, d };
	Words w = { 0 };
	const char *env = getenv("PDCC_FLAGS");
	bool ok = true;

	*o = (Options){ .check = true, .elide = 16, .ckpt_seconds = -1, .restart_seconds = -1 };
	training_defaults(&o->t);
	*input_error = false;
	if (env)
		words_split(a, &w, env);
	for (int i = first; i < argc; i++)
		ok &= add_words(a, &w, argc, argv, &i, d);
	if (ok && !read_train(&x, &w)) {
		*input_error = true;
		return false;
	}
	const Either length = either(&o->t.loop.steps, &o->t.loop.epochs),
		     size = either(&o->t.loop.global, &o->t.loop.microbatches);
	bool words = false;
	for (int i = 0, took; ok && i < w.n; i += took) {
		const char *s = w.w[i];

		took = 1;
		if (!words && strcmp(s, "--") == 0)
			words = true;
		else if (!words && s[0] == '-' && s[1] == '-')
			took = long_option(&x, w.n, w.w, i);
		else if (!words && s[0] == '-' && s[1])
			took = short_option(&x, w.n, w.w, i);
		else if (o->nargs == 16)
			took = diag_error(d, NOLOC, 1, "too many words: '%s'", s);
		else
			o->args[o->nargs++] = s;
		ok = took > 0;
	}
	neither_said(&length);
	neither_said(&size);
	d->quiet |= o->quiet;
	d->werror |= o->werror;
	d->color = o->no_color ? false : o->color ? true : d->color;
	for (int i = 0; i < o->nwno; i++)
		d->disabled[d->ndisabled++] = o->wno[i];
	ok = ok && training_complete(&o->t, d);
	return ok && (!o->save_config || words_save(&w, o->save_config, d));
}
