/* The runner: checks what a pass needs, runs it, verifies, dumps, times. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "passes/report/changes.h"
#include "passes/report/diff.h"
#include "passes/common/pass.h"

const Pass pass_table[] = {
#define PASS(name, needs, gives, help) { #name, needs, gives, help, pass_##name },
#include "passes/common/passes.def"
#undef PASS
};
const int npasses = (int)(sizeof pass_table / sizeof *pass_table);

static int pass_index(const char *name)
{
	for (int i = 0; i < npasses; i++)
		if (strcmp(pass_table[i].name, name) == 0)
			return i;
	return -1;
}

static bool known(const char *name, Diag *d)
{
	const char *names[64];

	if (!name || pass_index(name) >= 0 || strcmp(name, "import") == 0)
		return true;
	for (int i = 0; i < npasses; i++)
		names[i] = pass_table[i].name;
	const char *near = diag_nearest(name, names, npasses);
	return diag_error(d, NOLOC, 3, "no pass is called '%s'%s%s%s", name, near ? "; did you mean '" : "",
		near ? near : "", near ? "'?" : "; --list-passes shows them");
}

static const char *text_of(const Module *m, Buf *b, const PassOpt *po)
{
	PrintOpt o = { .elide = po->elide };

	buf_clear(b);
	module_print(b, m, &o);
	return buf_str(b);
}

static bool dump_as(const char *dir, int number, const char *name, const char *end, const char *text, Diag *d)
{
	Buf path = { 0 };

	buf_printf(&path, "%s/%02d-%s.%s", dir, number, name, end);
	const bool ok = file_write(buf_str(&path), text, strlen(text)) ||
	                diag_error(d, NOLOC, 8, "cannot write %s: %s", buf_str(&path), strerror(errno));
	buf_free(&path);
	return ok;
}

static void form_of(Buf *b, const Module *m, IrForm form) { (form == FORM_JSON ? module_json : module_dot)(b, m); }

static bool dump(const PassOpt *o, int number, const char *name, const Module *m, const char *text, Diag *d)
{
	Buf other = { 0 };

	if (o->form)
		form_of(&other, m, o->form);
	const bool ok = dump_as(o->dump_dir, number, name, "pdir", text, d) &&
	                (!o->form || dump_as(o->dump_dir, number, name, ir_form_name[o->form], buf_str(&other), d));
	buf_free(&other);
	return ok;
}

/* Text and drawings are headed by a comment; JSON has none. */
static void print_form(const char *when, const char *pass, const Module *m, const char *text, IrForm form)
{
	Buf b = { 0 };

	if (form)
		form_of(&b, m, form);
	if (form != FORM_JSON)
		printf("%s %s %s\n", form ? "//" : "#", when, pass);
	fputs(form ? buf_str(&b) : text, stdout);
	fflush(stdout); /* the pass may end us */
	buf_free(&b);
}

static void print_change(FILE *out, const char *name, const char *before, const char *after)
{
	Arena *a = arena_new();
	const Diff d = diff_texts(a, before, after);
	Buf b = { 0 };

	diff_unified(&b, &d);
	fprintf(out, "--- before %s\n+++ after %s\n%s", name, name, buf_str(&b));
	buf_free(&b);
	arena_free(a);
}

/* DIR/index.html: what every pass changed, to look at in a browser. */
static bool write_index(const char *dir, const Changes *c, const Module *m, Diag *d)
{
	Buf path = { 0 }, title = { 0 }, page = { 0 };

	buf_printf(&path, "%s/index.html", dir);
	buf_printf(&title, "%s: what every pass changed", m->name);
	changes_page(&page, c, buf_str(&title));
	const bool ok = file_write(buf_str(&path), page.s, page.n) ||
	                diag_error(d, NOLOC, 8, "cannot write %s: %s", buf_str(&path), strerror(errno));
	buf_free(&path);
	buf_free(&title);
	buf_free(&page);
	return ok;
}

/* ---- running ---- */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool ready(const Module *m, const Pass *p, Diag *d)
{
	unsigned lacks = p->needs & ~m->has;

	for (int i = 0; lacks && i < npasses; i++)
		if (pass_table[i].gives & lacks)
			return diag_error(
				d, NOLOC, 4, "pass '%s' needs '%s' to have run before", p->name, pass_table[i].name);
	return true;
}

static bool wants_text(const PassOpt *o, const Pass *p)
{
	return o->dump_dir || o->changes || o->print_after_all || o->print_after_change ||
	       (o->print_after && strcmp(o->print_after, p->name) == 0);
}

/* spent: seconds of passes, without what checks and shows their results. */
static bool run_one(
	Module *m, PassCx *cx, const PassOpt *o, int index, Buf *before, Buf *after, Changes *log, double *spent)
{
	const Pass *p = &pass_table[index];

	if (!ready(m, p, cx->d))
		return false;
	if (o->print_before && strcmp(o->print_before, p->name) == 0)
		print_form("before", p->name, m, text_of(m, before, o), o->form);
	if (o->print_after_change)
		text_of(m, before, o);
	bug_context = p->name;
	const char *ours = getenv("PDCC_BUG_IN"); /* tests fail here: PASS or PASS:SIGNAL */
	const size_t n = ours ? strcspn(ours, ":") : 0;
	double start = now();
	if (n && strlen(p->name) == n && strncmp(ours, p->name, n) == 0) {
		if (ours[n])
			raise(atoi(ours + n + 1));
		bug("PDCC_BUG_IN asks for it");
	}
	bool ok = p->run(m, cx);
	double seconds = now() - start;
	*spent += seconds;
	if (!ok && !cx->d->errors)
		bug("the pass failed without saying why");
	m->has |= ok ? p->gives : 0;
	module_sweep(m);
	if (ok && !module_verify(m, cx->d))
		bug("the module is not valid after the pass");
	if (ok && wants_text(o, p)) {
		text_of(m, after, o);
		if (o->print_after_all || (o->print_after && strcmp(o->print_after, p->name) == 0))
			print_form("after", p->name, m, buf_str(after), o->form);
		if (o->print_after_change)
			print_change(stdout, p->name, buf_str(before), buf_str(after));
		if (o->dump_dir)
			ok = dump(o, index + 1, p->name, m, buf_str(after), cx->d);
		if (log)
			changes_add(log, index + 1, p->name, p->help, m, buf_str(after), o->dump_dir != NULL);
	}
	if (o->time_passes)
		fprintf(cx->d->out, "  %-10s %9.3f ms\n", p->name, seconds * 1e3);
	arena_reset(cx->scratch);
	bug_context = NULL;
	return ok;
}

bool run_passes(Module *m, PassCx *cx, const PassOpt *o, const char *const *names, int n)
{
	Buf before = { 0 }, after = { 0 };
	Changes own = { 0 }, *log = o->changes ? o->changes : o->dump_dir ? &own : NULL;
	bool ok = known(o->stop_after, cx->d) && known(o->print_after, cx->d) && known(o->print_before, cx->d);

	for (int i = 0; names && i < n; i++)
		ok &= known(names[i], cx->d);
	if (ok && o->dump_dir && mkdir(o->dump_dir, 0777) && errno != EEXIST)
		ok = diag_error(cx->d, FILELOC(o->dump_dir), 8, "cannot make the folder: %s", strerror(errno));
	if (ok && o->dump_dir && !names)
		ok = dump(o, 0, "import", m, text_of(m, &after, o), cx->d);
	if (ok && log)
		changes_begin(log, m, text_of(m, &after, o));
	if (o->time_passes)
		fprintf(cx->d->out, "time per pass\n");
	int last = names ? n : npasses;
	double spent = 0;
	const double start = now();
	for (int i = 0; ok && i < last; i++) {
		int k = names ? pass_index(names[i]) : i;

		if (o->stop_after && strcmp(o->stop_after, "import") == 0)
			break;
		ok = k < 0 || run_one(m, cx, o, k, &before, &after, log, &spent);
		if (k >= 0 && o->stop_after && strcmp(o->stop_after, pass_table[k].name) == 0)
			break;
	}
	if (ok && o->dump_dir)
		ok = write_index(o->dump_dir, log, m, cx->d);
	if (o->time_passes)
		fprintf(cx->d->out, "%-12s %9.3f ms\n", "checks,dumps", (now() - start - spent) * 1e3);
	changes_free(&own);
	buf_free(&before);
	buf_free(&after);
	return ok;
}
