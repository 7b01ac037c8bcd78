/* Many small graphs in one program, for tests: a function per graph, some fifty functions per file, a table and a main
 * that feeds them from a file. Nothing is planned: every value has its own place in one block of memory.
 *
 * Inputs of a case are the graph's inputs and then the module's parameters that some node reads; its outputs are the
 * graph's outputs. Nodes of the update phase are left out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "codegen/write/build.h"
#include "emit.h"

enum { PER_FILE = 50, MOST = 64 };

typedef struct Case {
	const Module *m;
	const char *name, *function;
	const char *skip; /* why there is no code; NULL */
	const Value *in[MOST], *out[MOST];
	int nin, nout;
	int64_t memory;
} Case;

typedef struct CaseFile {
	Build b;
	Kernels kernels;
	bool gpu;
	/* of the case being written */
	Names names;
	Case *c;
	Map at;   /* Value -> 1 + offset in memory */
	Map root; /* view -> what it views */
	const Value **used;
	int nused, capused;
	bool scratch, any_scratch; /* its statements name the scratchpad; those of some case of the file do */
} CaseFile;

static int64_t bytes_of(const Value *v) { return type_numel(&v->type) * dtype_bytes(v->type.dtype); }

static const Value *root_of(CaseFile *f, const Value *v)
{
	for (const Value *r; (r = map_get(&f->root, v));)
		v = r;
	return v;
}

static bool is_input(const Case *c, const Value *v)
{
	for (int i = 0; i < c->nin; i++)
		if (c->in[i] == v)
			return true;
	return false;
}

static const char *case_value(void *cx, const Value *v)
{
	CaseFile *f = cx;
	const Value *r = root_of(f, v);
	bool known = false;

	for (int i = 0; i < f->nused; i++)
		known |= f->used[i] == r;
	if (!known)
		PUSH(f->b.a, f->used, f->nused, f->capused) = r;
	return names_get(&f->names, r, r->name);
}

static const char *case_object(void *cx, const Node *n)
{
	CaseFile *f = cx;

	return names_get(&f->names, n, arena_printf(f->b.a, "op_%s", optab[n->op]->name));
}

static bool runs(const Node *n) { return n->phase != PHASE_UPDATE && n->op != OP_Report && n->op != OP_ReportHits; }

/* ---- what a case consists of ---- */

static void add_input(Case *c, const Value *v)
{
	if (c->nin < MOST)
		c->in[c->nin++] = v;
	else
		c->skip = "too many inputs";
}

static void gather(CaseFile *f, Case *c)
{
	const Graph *g = c->m->graph;

	for (int i = 0; i < g->nin; i++)
		add_input(c, g->in[i]);
	for (int i = 0; i < c->m->nparam; i++) {
		bool used = false;
		for (int k = 0; k < c->m->param[i]->nuses; k++)
			used |= runs(c->m->param[i]->uses[k].node);
		for (int k = 0; k < g->nout; k++)
			used |= g->out[k] == c->m->param[i];
		if (used)
			add_input(c, c->m->param[i]);
	}
	for (int i = 0; i < g->nout && c->nout < MOST; i++)
		c->out[c->nout++] = g->out[i];
	for (const Node *n = g->first; n; n = n->next)
		for (int i = 0; runs(n) && i < n->nout; i++) {
			if (!n->out[i])
				continue;
			if (i == 0 && (optab[n->op]->flags & OP_VIEW)) {
				map_put(&f->root, n->out[0], n->in[0]);
				continue;
			}
			map_put(&f->at, n->out[i], (void *)(uintptr_t)(1 + c->memory));
			c->memory += (bytes_of(n->out[i]) + ALIGN) / ALIGN * ALIGN;
		}
}

/* Fills the templates of all nodes; the first fault is why the case is left out. */
static void take_kernels(CaseFile *f, Case *c)
{
	char *text = NULL;
	size_t n;
	FILE *mem = open_memstream(&text, &n);
	Diag d, *before = f->kernels.d;

	if (!mem)
		bug("no memory for messages");
	diag_init(&d, mem, f->b.a);
	f->kernels.d = &d;
	for (const Node *k = c->m->graph->first; k && !d.errors; k = k->next)
		if (runs(k) && !(optab[k->op]->flags & (OP_VIEW | OP_COMM)))
			kernel_of(&f->kernels, k);
	f->kernels.d = before;
	fclose(mem);
	if (d.errors) {
		text[strcspn(text, "\n")] = 0;
		c->skip = arena_str(f->b.a, text);
	}
	free(text);
	for (size_t i = 0; i < f->kernels.used.n; i++)
		names_reserve(&f->names, f->kernels.used.slot[i].key);
}

/* ---- a case's function ---- */

static const char *case_scratch(void *cx)
{
	CaseFile *f = cx;

	f->scratch = f->any_scratch = true;
	return "scratch";
}

static const char *case_microbatch(void *cx)
{
	(void)cx;
	return "0";
}

static void write_body(CaseFile *f, Cw *w, Cw *objects)
{
	const Case *c = f->c;
	const Place place = { f, case_value, case_object, case_scratch, case_microbatch };

	for (const Node *n = c->m->graph->first; n; n = n->next) {
		if (!runs(n) || (optab[n->op]->flags & (OP_VIEW | OP_COMM)))
			continue;
		const NodeKernel *nk = kernel_of(&f->kernels, n);
		if (nk->object) {
			cw_line(objects, "%s %s;", nk->object, case_object(f, n));
			cw_stmts(w, NULL, statement(&f->kernels, nk, n, nk->k->init, &place));
		}
		const char *comment = arena_printf(f->b.a, "%%%s", n->nout && n->out[0] ? n->out[0]->name : "");
		write_call(&f->kernels, w, 1, &n, &comment, &place);
	}
	for (int i = 0; i < c->nout; i++)
		if (bytes_of(c->out[i]))
			cw_line(w, "%s(out[%d], %s, %" PRId64 ");", f->gpu ? "from_device" : "memcpy", i,
				case_value(f, c->out[i]), bytes_of(c->out[i]));
}

static void declare(CaseFile *f, Cw *w)
{
	const Case *c = f->c;

	for (int i = 0; i < f->nused; i++) {
		const Value *v = f->used[i];
		const char *name = names_get(&f->names, v, v->name), *type = dtype_c(v->type.dtype);
		const uintptr_t at = (uintptr_t)map_get(&f->at, v);
		if (is_input(c, v)) {
			int k = 0;
			while (c->in[k] != v)
				k++;
			cw_line(w, "const %s *%s = in[%d];", type, name, k);
		} else if (v->kind == VAL_CONST) {
			const_write(w, v, name, f->gpu);
		} else if (at) {
			cw_line(w, "%s *%s = tensor(memory + %" PRIuPTR ", %" PRId64 ");", type, name, at - 1,
				bytes_of(v));
		} else {
			bug("case %s: %s comes from nowhere", c->name, v->name);
		}
	}
}

static void fill_constant(CaseFile *f, Cw *w, const Value *v)
{
	if (v->kind != VAL_CONST)
		return;
	const char *name = names_get(&f->names, v, v->name);
	if (f->gpu)
		cw_open(w, "if (!%s)", name);
	const_fill(w, v, name, f->gpu);
	if (f->gpu)
		cw_end(w);
}

static void write_case(CaseFile *f, Cw *w)
{
	Buf body = { 0 }, objects = { 0 };
	Cw in = { .out = &body, .indent = 1 }, decl = { .out = &objects, .indent = 1 };

	write_body(f, &in, &decl);
	cw_blank(w);
	cw_comment(w, "%s", f->c->name);
	cw_func(w, "void %s(const void *const *in, void *const *out)", f->c->function);
	if (f->c->memory)
		cw_line(w, "char *memory = case_memory(%" PRId64 ");", f->c->memory);
	if (f->gpu && f->scratch)
		cw_line(w, "char *scratch = tensor(case_scratch(%d), %d);", CASES_SCRATCH, CASES_SCRATCH);
	declare(f, w);
	buf_puts(w->out, buf_str(&objects));
	for (int i = 0; i < f->nused; i++)
		fill_constant(f, w, f->used[i]);
	if (f->c->memory)
		cw_line(w, "(void)memory;");
	cw_line(w, "(void)in;");
	cw_line(w, "(void)out;");
	buf_puts(w->out, buf_str(&body));
	cw_end(w);
	buf_free(&body);
	buf_free(&objects);
}

/* What stands in front of the cases of a file. GPU: kernels are in a file of their own. */
static bool write_top(CaseFile *f, Cw *w, int number)
{
	Build *b = &f->b;
	const char *file = arena_printf(b->a, "cases_%d", number), *kernels = buf_str(&f->kernels.out);
	Buf code = { 0 };

	cw_comment(w, "Small graphs, a function each. Written by pdcc %s.", PDCC_VERSION);
	kernels_head(&f->kernels, f->gpu ? &code : w->out, false);
	if (f->gpu)
		cw_line(w, "#include \"pd.h\"");
	cw_line(w, "#include \"cases.h\"");
	cw_blank(w);
	if (!f->gpu && f->any_scratch)
		cw_line(w, "static _Alignas(64) char scratch[%d];", CASES_SCRATCH);
	if (!f->gpu) {
		buf_puts(w->out, kernels);
		return true;
	}
	buf_puts(w->out, buf_str(&f->kernels.heads_of));
	buf_puts(&code, kernels);
	buf_free(&f->kernels.heads_of);
	return build_text(b, arena_printf(b->a, "%s.cu", file), &code);
}

static bool write_file(Build *b, Case *c, int n, int number)
{
	CaseFile f = { .b = *b, .gpu = b->gpu };
	Buf body = { 0 }, top = { 0 };
	Cw w = { .out = &body }, wt = { .out = &top };

	kernels_init(&f.kernels, b->a, b->d, b->gpu);
	f.kernels.suffix = arena_printf(b->a, "_f%d", number);
	for (int i = 0; i < n; i++) {
		f.c = &c[i];
		f.nused = 0;
		f.scratch = false;
		names_init(&f.names, b->a);
		for (const char *const *r = (const char *const[]){ "memory", "case_memory", "case_scratch", "tensor",
			     "from_device", NULL };
			*r; r++)
			names_reserve(&f.names, *r);
		map_init(&f.at, b->a, false);
		map_init(&f.root, b->a, false);
		gather(&f, &c[i]);
		take_kernels(&f, &c[i]);
		if (c[i].skip)
			continue;
		write_case(&f, &w);
	}
	const bool ok = write_top(&f, &wt, number);
	buf_puts(&top, buf_str(&body));
	buf_free(&f.kernels.out);
	buf_free(&body);
	return build_text(b, arena_printf(b->a, "cases_%d.c", number), &top) && ok;
}

/* ---- the table ---- */

static void describe(Buf *list, const char *what, const Value *v)
{
	buf_printf(list, "  %s %s %s", what, v->name, dtype_name(v->type.dtype));
	for (int i = 0; i < v->type.rank; i++)
		buf_printf(list, " %" PRId64, v->type.dim[i]);
	buf_puts(list, "\n");
}

/* "case NUMBER NAME" or "skip NUMBER NAME: why", then a line per input and output: name, type, dimensions. */
static bool write_table(Build *b, const Case *c, int n)
{
	Buf head = { 0 }, list = { 0 }, table = { 0 };
	Cw w = { .out = &head }, wt = { .out = &table };

	cw_line(&w, "#ifndef CASES_H");
	cw_line(&w, "#define CASES_H");
	cw_line(&w, "#include \"pd.h\"");
	cw_open(&w, "struct graph_case");
	cw_line(&w, "const char *name;");
	cw_line(&w, "void (*run)(const void *const *in, void *const *out);");
	cw_line(&w, "int nin, nout;");
	cw_line(&w, "const size_t *bytes;");
	cw_close(&w, ";");
	cw_line(&w, "extern const struct graph_case cases[];");
	cw_line(&w, "extern const int ncases;");
	cw_line(&w, "char *case_memory(size_t bytes);");
	cw_line(&w, "void *tensor(char *at, size_t bytes);");
	if (b->gpu) {
		cw_line(&w, "char *case_scratch(size_t bytes);");
		cw_line(&w, "void from_device(void *to, const void *tensor, size_t bytes);");
	}
	cw_line(&wt, "#include \"cases.h\"");
	cw_open(&wt, "const struct graph_case cases[] =");
	for (int i = 0; i < n; i++) {
		const char *bytes = "";
		buf_printf(&list, "%s %d %s%s%s\n", c[i].skip ? "skip" : "case", i, c[i].name, c[i].skip ? ": " : "",
			c[i].skip ? c[i].skip : "");
		for (int k = 0; !c[i].skip && k < c[i].nin; k++) {
			describe(&list, "in", c[i].in[k]);
			bytes = arena_printf(b->a, "%s%" PRId64 ", ", bytes, bytes_of(c[i].in[k]));
		}
		for (int k = 0; !c[i].skip && k < c[i].nout; k++) {
			describe(&list, "out", c[i].out[k]);
			bytes = arena_printf(b->a, "%s%" PRId64 ", ", bytes, bytes_of(c[i].out[k]));
		}
		if (!c[i].skip)
			cw_line(&w, "void %s(const void *const *in, void *const *out);", c[i].function);
		cw_line(&wt, "{ %s, %s, %d, %d, (const size_t[]){ %s0 } },", quoted(b->a, c[i].name),
			c[i].skip ? "NULL" : c[i].function, c[i].nin, c[i].nout, bytes);
	}
	cw_line(&w, "#endif");
	cw_close(&wt, ";");
	cw_line(&wt, "const int ncases = %d;", n);
	const bool ok = build_text(b, "cases.h", &head);
	return build_text(b, "cases.txt", &list) && build_text(b, "table.c", &table) && ok;
}

/* Is the embedded file one of the runtime's that cases need? */
static bool case_file(const char *name, bool gpu)
{
	static const char *const device[] = { "gpu.h", "gpu_tiles.h", "gpu_images.h", "gpu_rt.h", "gpu_alone.h", "rt.h",
		"gpu_device.c", "gpu_memory.c", "gpu_streams.c", "gpu_library.c", "gpu_products.c", "gpu_dnn.h",
		"gpu_dnn.c", "gpu_conv.c", "gpu_bn.c", "gpu_recurrent.c", "gpu_attention.c", "gpu_attention_graph.c",
		"gpu_kernels.cu", "gpu_ends.cu", "gpu_norm.cu", "gpu_turns.cu" };

	if (strncmp(name, "runtime/", 8))
		return false;
	name += 8;
	if (!strcmp(name, "pd.h"))
		return true;
	for (size_t i = 0; gpu && i < sizeof device / sizeof *device; i++)
		if (!strcmp(name, device[i]))
			return true;
	return !gpu && !strncmp(name, "cpu", 3);
}

static bool write_frame(Build *b, int n)
{
	Buf main = { 0 }, make = { 0 }, flags = { 0 }, rules = { 0 };

	if (b->gpu) {
		build_frame(&flags, "gpu_flags.mk.in",
			(const char *const[]){ "ARCH", b->t->target.arch, "NVCC", "$(CUDA)/bin/nvcc", "CONTRACT", "",
				"LEVEL", "3", "DEBUG", "", NULL });
		buf_puts(&flags, "FLAGS += -DRT_GPU\n");
		build_frame(&rules, "gpu_rules.mk.in", (const char *const[]){ "ARCHIVE", "", NULL });
	}
	const char *const pair[] = { "COUNT", arena_printf(b->a, "%d", n), "VERSION", PDCC_VERSION, "SETTINGS",
		buf_str(&flags), "RULES", buf_str(&rules), "KERNELS",
		b->gpu ? "$(patsubst %.cu,obj/%.cu.o,$(wildcard *.cu runtime/*.cu))" : "", "LIBRARIES",
		b->gpu ? build_gpu_libraries : "-fopenmp -ldnnl -lm -lpthread", NULL };

	build_frame(&main, "cases_main.c.in", pair);
	build_frame(&make, "cases.mk.in", pair);
	buf_free(&flags);
	buf_free(&rules);
	for (int i = 0; i < nembedded; i++) {
		const char *name = embedded[i].name;
		if (case_file(name, b->gpu) && !build_write(b, name, embedded[i].text, strlen(embedded[i].text)))
			return buf_free(&main), buf_free(&make), false;
	}
	const bool ok = build_text(b, "main.c", &main);
	return build_text(b, "Makefile", &make) && ok;
}

bool codegen_cases(Module *const *m, const char *const *name, int n, const Training *t, const char *dir, Diag *d)
{
	const Training plain = { .model.opt = { .kind = OPT_SGD },
		.target.kind = t->target.kind,
		.target.found = t->target.found,
		.target.arch = t->target.arch };
	Build b = { .t = &plain, .a = arena_new(), .d = d, .dir = dir, .gpu = target_cuda(t) };
	Case *c = NEWN(b.a, Case, n);
	Names functions;
	bool ok = true;

	names_init(&functions, b.a);
	for (int i = 0; i < n; i++) {
		c[i].m = m[i];
		c[i].name = name[i];
		c[i].function = names_get(&functions, m[i], arena_printf(b.a, "case_%s", name[i]));
	}
	for (int i = 0; ok && i < n; i += PER_FILE)
		ok = write_file(&b, c + i, n - i < PER_FILE ? n - i : PER_FILE, i / PER_FILE);
	for (int i = 0; i < n; i++)
		if (c[i].skip)
			diag_note(d, FILELOC(c[i].name), "left out: %s", c[i].skip);
	ok = ok && write_table(&b, c, n) && write_frame(&b, n);
	arena_free(b.a);
	return ok;
}
