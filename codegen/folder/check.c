/* libclang reads what was emitted. For every stageN.c and deviceN.c of a build folder:
 *
 *     no diagnostics under -std=c11 -Wall -Wextra
 *     calls go to functions of pd.h, to functions that the emitted files define, to math.h, and to memcpy and memset
 *     a stage's structs have the sizes of the plan
 *     a stage's pd_isend and pd_irecv have the channels and sizes of the plan, each once
 *     a device's table of actions is its line of the schedule
 *     kernels for GPUs are CUDA without diagnostics
 *
 * What differs is reported as E0710. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "codegen/write/build.h"
#include "emit.h"

#ifndef HAVE_LIBCLANG

bool check_emitted(const Module *m, const char *dir, Diag *d)
{
	(void)m;
	diag_note(d, FILELOC(dir), "emitted code was not checked: pdcc was built without libclang");
	return true;
}

#else
#include <dlfcn.h>
#include "clang.h"

static Clang clang; /* filled once; the rules are callbacks of libclang */

/* NULL, or why libclang cannot be used. It is looked for by its name (LIBCLANG_NAME), then where the build found it. */
static const char *clang_load(void)
{
	void *lib = dlopen(LIBCLANG_NAME, RTLD_NOW | RTLD_LOCAL);

	if (!lib)
		lib = dlopen(LIBCLANG_PATH, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return dlerror();
#define X(name) \
	*(void **)&clang.name = dlsym(lib, "clang_" #name); \
	if (!clang.name) \
		return dlerror();
	CLANG_FUNCTIONS(X)
#undef X
	return NULL;
}

typedef struct Message {
	int channel, stage, to;
	int64_t bytes;
	int sent, received;
} Message;
typedef struct PlanStageSizes {
	int64_t bytes[REGION_COUNT], weights;
	int inflight, entries, versions, copies, late;
} PlanStageSizes;

typedef struct Check {
	Diag *d;
	Arena *a;
	const char *dir, *file; /* file: the one being read, relative to dir */
	int stage;              /* that it belongs to */
	Message *msg;
	int nmsg, capmsg;
	PlanStageSizes *size;
	int nstage, capstage;
	int world;
	const char *csv; /* the line of this device; NULL for a stage */
	bool flows;      /* asynchronous: turns, which no line of schedule.csv lists */
	bool staged;     /* rows of actions name a stage */
	Buf actions;     /* what the device's table says, as CSV */
	bool ok;
} Check;

static void wrong(Check *c, CXCursor at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void wrong(Check *c, CXCursor at, const char *fmt, ...)
{
	unsigned line = 0, col = 0;
	va_list ap;

	if (!clang.Cursor_isNull(at))
		clang.getExpansionLocation(clang.getCursorLocation(at), NULL, &line, &col, NULL);
	va_start(ap, fmt);
	const char *text = arena_vprintf(c->a, fmt, ap);
	va_end(ap);
	diag_error(c->d, TEXTLOC(arena_printf(c->a, "%s/%s", c->dir, c->file), (int)line, (int)col), 710, "%s", text);
	c->ok = false;
}

static const char *take(Check *c, CXString s)
{
	const char *text = clang.getCString(s), *copy = arena_str(c->a, text ? text : "");

	clang.disposeString(s);
	return copy;
}

/* ---- the plan ---- */

static PlanStageSizes sizes_of(const Module *m, const Stage *s)
{
	PlanStageSizes z = { .inflight = s->inflight, .entries = s->entries };

	memcpy(z.bytes, s->bytes, sizeof z.bytes);
	if (m->schedule->async) {
		z.versions = s->versions;
		z.weights = s->version_bytes;
		z.copies = (int)s->row_copies;
		z.late = m->schedule->late;
	}
	return z;
}

static void read_plan(Check *c, const Module *m)
{
	const Build b = { .m = m };

	c->world = m->schedule->ndevice;
	c->flows = m->schedule->async;
	for (int t = 0; t < m->nstage; t++) {
		const Graph *g[2] = { m->stage[t]->forward, m->stage[t]->backward };

		PUSH(c->a, c->size, c->nstage, c->capstage) = sizes_of(m, m->stage[t]);
		for (int k = 0; k < 2; k++)
			for (const Node *n = g[k]->first; n; n = n->next)
				if (n->op == OP_Send)
					PUSH(c->a, c->msg, c->nmsg, c->capmsg) = (Message){ (int)attr_int(n, "channel"),
						t, (int)attr_int(n, "to"), message_bytes(&b, n->in[0]), 0, 0 };
	}
}

/* ---- rules on the tree ---- */

static bool literal(CXCursor at, int64_t *v)
{
	CXEvalResult r = clang.Cursor_Evaluate(at);
	const bool ok = r && clang.EvalResult_getKind(r) == CXEval_Int;

	if (ok)
		*v = clang.EvalResult_getAsLongLong(r);
	if (r)
		clang.EvalResult_dispose(r);
	return ok;
}

static const char *file_of(Check *c, CXCursor at)
{
	CXFile f;

	clang.getExpansionLocation(clang.getCursorLocation(at), &f, NULL, NULL, NULL);
	return f ? take(c, clang.getFileName(f)) : "";
}

/* Name without the f of float functions. */
static bool is_math(const char *name)
{
	static const char *const list[] = {
		"exp",
		"log",
		"log1p",
		"expm1",
		"sqrt",
		"pow",
		"erf",
		"tanh",
		"sin",
		"cos",
		"tan",
		"asin",
		"acos",
		"atan",
		"sinh",
		"cosh",
		"asinh",
		"acosh",
		"atanh",
		"floor",
		"ceil",
		"round",
		"rint",
		"nearbyint",
		"trunc",
		"fabs",
		"fmax",
		"fmin",
		"fmod",
		"isnan",
		"isinf",
		"copysign",
		"memcpy",
		"memset",
		"memmove",
		"abs",
		"llabs",
		"labs",
	};

	for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
		const size_t n = strlen(list[i]);
		if (!strncmp(name, list[i], n) && (!name[n] || (name[n] == 'f' && !name[n + 1])))
			return true;
	}
	return !strncmp(name, "__builtin_", 10);
}

static bool emitted(const Check *c, const char *file)
{
	const size_t n = strlen(c->dir);

	return !strncmp(file, c->dir, n) && file[n] == '/' && strncmp(file + n, "/runtime/", 9) != 0;
}

static void check_message(Check *c, CXCursor call, bool send)
{
	int64_t channel = -1, bytes = -1;

	if (!literal(clang.Cursor_getArgument(call, 0), &channel) ||
		!literal(clang.Cursor_getArgument(call, 5), &bytes)) {
		wrong(c, call, "channel and size of a message must be constants");
		return;
	}
	for (int i = 0; i < c->nmsg; i++) {
		Message *m = &c->msg[i];
		if (m->channel != channel || (send ? m->stage : m->to) != c->stage)
			continue;
		if (m->bytes != bytes)
			wrong(c, call, "channel %" PRId64 " carries %" PRId64 " bytes here, %" PRId64 " in the plan",
				channel, bytes, m->bytes);
		++*(send ? &m->sent : &m->received);
		return;
	}
	wrong(c, call, "stage %d has no channel %" PRId64 " to %s in the plan", c->stage, channel,
		send ? "send on" : "receive from");
}

static void check_call(Check *c, CXCursor call)
{
	const CXCursor to = clang.getCursorReferenced(call);
	const char *name = take(c, clang.getCursorSpelling(call));

	if (!strcmp(name, "pd_isend") || !strcmp(name, "pd_irecv"))
		check_message(c, call, !strcmp(name, "pd_isend"));
	if (clang.Cursor_isNull(to) || is_math(name))
		return;
	if (clang.getCursorKind(to) == CXCursor_FieldDecl) {
		wrong(c, call, "a call through the pointer '%s'", name);
		return;
	}
	const char *file = file_of(c, to), *base = strrchr(file, '/');
	if (!emitted(c, file) && strcmp(base ? base + 1 : file, "pd.h") != 0)
		wrong(c, call, "a call to '%s', which neither pd.h nor this program has", name);
}

static void check_struct(Check *c, CXCursor at)
{
	static const struct {
		Region r;
		const char *tag;
	} tags[] = {
		{ REGION_PARAMS, "params" },
		{ REGION_STATE, "state" },
		{ REGION_STACK, "rows" },
		{ REGION_SLOT, "kept" },
		{ REGION_ENTRY, "entry" },
		{ REGION_GRADS, "grads" },
	};
	const char *tag = take(c, clang.getCursorSpelling(at));
	const int64_t size = clang.Type_getSizeOf(clang.getCursorType(at));

	for (size_t i = 0; c->stage < c->nstage && i < sizeof tags / sizeof *tags; i++) {
		const PlanStageSizes *s = &c->size[c->stage];
		int64_t want = s->bytes[tags[i].r] / (tags[i].r == REGION_SLOT           ? s->inflight
							     : tags[i].r == REGION_ENTRY ? s->entries
											 : 1);
		want = tags[i].r == REGION_PARAMS ? want - s->versions * s->weights : want;
		want = tags[i].r == REGION_GRADS && s->late ? want / (s->late + 1) : want;
		want = tags[i].r == REGION_STACK && s->copies ? want / s->copies : want;
		if (strcmp(tag, tags[i].tag) != 0 || (tags[i].r == REGION_GRADS && !want))
			continue;
		if (size != want)
			wrong(c, at, "struct %s has %" PRId64 " bytes, %" PRId64 " in the plan", tag, size, want);
	}
}

/* A row { KIND, slot, mb } of the table of actions, as schedule.csv writes it; a stage may come before the slot, a buffer at
 * the entry behind it. */
static void add_action(Check *c, CXCursor row)
{
	const CXTranslationUnit tu = clang.Cursor_getTranslationUnit(row);
	const char *kind = "", *mb = "";
	int literals = 0, stage = c->stage;
	CXToken *token;
	unsigned n;

	clang.tokenize(tu, clang.getCursorExtent(row), &token, &n);
	for (unsigned i = 0; i < n; i++) {
		if (clang.getTokenKind(token[i]) == CXToken_Identifier)
			kind = take(c, clang.getTokenSpelling(tu, token[i]));
		if (clang.getTokenKind(token[i]) == CXToken_Literal) {
			stage = literals++ ? stage : atoi(take(c, clang.getTokenSpelling(tu, token[i])));
			mb = take(c, clang.getTokenSpelling(tu, token[i]));
		}
	}
	clang.disposeTokens(tu, token, n);
	const bool once = !strcmp(kind, "SYNC") || !strcmp(kind, "UPDATE");
	buf_printf(
		&c->actions, "%s%d%s%s", c->actions.n ? "," : "", c->staged ? stage : c->stage, kind, once ? "" : mb);
}

static enum CXChildVisitResult visit_actions(CXCursor at, CXCursor parent, CXClientData data)
{
	if (clang.getCursorKind(at) != CXCursor_InitListExpr)
		return CXChildVisit_Continue;
	if (clang.getCursorKind(parent) != CXCursor_InitListExpr)
		return CXChildVisit_Recurse;
	add_action(data, at);
	return CXChildVisit_Continue;
}

static enum CXChildVisitResult visit(CXCursor at, CXCursor parent, CXClientData data)
{
	Check *c = data;

	if (clang.getCursorKind(parent) == CXCursor_TranslationUnit && !emitted(c, file_of(c, at)))
		return CXChildVisit_Continue;
	switch (clang.getCursorKind(at)) {
	case CXCursor_CallExpr: check_call(c, at); break;
	case CXCursor_StructDecl: check_struct(c, at); break;
	case CXCursor_FieldDecl:
		c->staged |= !strcmp(take(c, clang.getCursorSpelling(at)), "stage") &&
		             !strcmp(take(c, clang.getCursorSpelling(parent)), "action");
		break;
	case CXCursor_VarDecl:
		if (c->csv && !strcmp(take(c, clang.getCursorSpelling(at)), "actions"))
			clang.visitChildren(at, visit_actions, c);
		break;
	default: break;
	}
	return CXChildVisit_Recurse;
}

/* ---- files ---- */

/* Reads a file; what the compiler says of it is wrong, then comes the tree. */
static void read_file(Check *c, CXIndex index, const char *file, const char *const *args, int nargs,
	struct CXUnsavedFile *more, CXCursorVisitor rules)
{
	CXTranslationUnit tu = NULL;

	c->file = file;
	c->staged = false;
	if (clang.parseTranslationUnit2(index, arena_printf(c->a, "%s/%s", c->dir, file), args, nargs, more,
		    more != NULL, CXTranslationUnit_None, &tu) != CXError_Success) {
		wrong(c, clang.getNullCursor(), "libclang cannot read this file");
		return;
	}
	for (unsigned i = 0; i < clang.getNumDiagnostics(tu) && i < 10; i++) {
		CXDiagnostic diag = clang.getDiagnostic(tu, i);
		if (clang.getDiagnosticSeverity(diag) >= CXDiagnostic_Warning)
			wrong(c, clang.getNullCursor(), "%s",
				take(c, clang.formatDiagnostic(diag, clang.defaultDiagnosticDisplayOptions())));
		clang.disposeDiagnostic(diag);
	}
	if (rules)
		clang.visitChildren(clang.getTranslationUnitCursor(tu), rules, c);
	clang.disposeTranslationUnit(tu);
}

static void check_file(Check *c, CXIndex index, const char *file)
{
	const char *const args[] = { "-std=c11", "-Wall", "-Wextra", "-fopenmp", "-D_POSIX_C_SOURCE=200809L",
		arena_printf(c->a, "-I%s", c->dir), arena_printf(c->a, "-I%s/runtime", c->dir) };

	read_file(c, index, file, args, (int)(sizeof args / sizeof *args), NULL, visit);
}

/* A stage's kernels for GPUs, where it has them: no diagnostics, but that not every variant of a kernel uses all it is
 * given. CUDA's own headers are not needed. The C++ library behind math.h may declare functions of any number of arguments
 * (libstdc++ 14 does), which device code has no other use for. */
static void check_kernels(Check *c, CXIndex index, const char *file)
{
	const char *text = embedded_text("codegen/frames/gpu_prelude.h.in");
	char *dir = realpath(c->dir, NULL); /* a file that is only in memory is found by its whole path */
	const char *include = arena_printf(c->a, "-I%s/runtime", dir ? dir : c->dir);
	const char *prelude = arena_printf(c->a, "%s/cuda_runtime.h", include + 2);
	const char *const args[] = { "-x", "cuda", "--cuda-host-only", "--cuda-gpu-arch=sm_90", "-nocudainc",
		"-nocudalib", "-Wno-unknown-cuda-version", "-std=c++17", "-Wall", "-Wextra", "-Wno-unused-parameter",
		"-Xclang", "-fcuda-allow-variadic-functions", "-include", prelude, include };
	struct CXUnsavedFile more = { prelude, text, strlen(text) };
	char *there = file_read(arena_printf(c->a, "%s/%s", c->dir, file), NULL);

	if (there)
		read_file(c, index, file, args, (int)(sizeof args / sizeof *args), &more, NULL);
	free(there);
	free(dir);
}

static void check_channels(Check *c)
{
	for (int i = 0; i < c->nmsg; i++) {
		const Message *m = &c->msg[i];
		c->file = arena_printf(c->a, "stage%d/stage%d.c", m->stage, m->stage);
		if (m->sent != 1 || m->received != 1)
			wrong(c, clang.getNullCursor(),
				"channel %d from stage %d to stage %d: %d pd_isend, %d pd_irecv", m->channel, m->stage,
				m->to, m->sent, m->received);
	}
}

/* The first stage that a device runs. */
static int stage_of_device(const Module *m, int rank)
{
	int t = 0;

	while (rank < m->stage[t]->rank || rank >= m->stage[t]->rank + m->stage[t]->replicas)
		t++;
	return t;
}

static void check_devices(Check *c, const Module *m, CXIndex index)
{
	Buf csv = { 0 };

	schedule_print_csv(&csv, m->schedule);
	char *line = arena_str(c->a, buf_str(&csv));
	for (int r = 0; r < c->world; r++) {
		char *end = strchr(line, '\n');
		if (end)
			*end = 0;
		c->csv = line;
		c->stage = stage_of_device(m, r);
		for (int k = first_task(m, r); k < first_task(m, r + 1); k++) {
			check_file(c, index, arena_printf(c->a, "device%d.c", k));
			if (!c->flows && strcmp(buf_str(&c->actions), line) != 0)
				wrong(c, clang.getNullCursor(),
					"its table of actions differs from line %d of the schedule (schedule.csv)",
					r + 1);
			buf_clear(&c->actions);
		}
		line = end ? end + 1 : line + strlen(line);
	}
	buf_free(&csv);
}

bool check_emitted(const Module *m, const char *dir, Diag *d)
{
	const char *why = clang.visitChildren ? NULL : clang_load();

	if (why) {
		diag_note(d, FILELOC(dir),
			"emitted code was not checked: libclang cannot be loaded (Debian: libclang1-19): %s", why);
		return true;
	}
	Check c = { .d = d, .a = arena_new(), .dir = dir, .ok = true };
	CXIndex index = clang.createIndex(0, 0);

	read_plan(&c, m);
	for (c.stage = 0; c.stage < c.nstage; c.stage++) {
		check_file(&c, index, arena_printf(c.a, "stage%d/stage%d.c", c.stage, c.stage));
		check_kernels(&c, index, arena_printf(c.a, "stage%d/kernels.cu", c.stage));
	}
	check_channels(&c);
	check_devices(&c, m, index);
	clang.disposeIndex(index);
	buf_free(&c.actions);
	arena_free(c.a);
	return c.ok;
}
#endif
