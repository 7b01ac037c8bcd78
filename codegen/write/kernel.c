/* Kernels and statements; see kernel.h. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "fold.h"
#include "kernel.h"
#include "ir/analysis.h"

void kernels_init(Kernels *k, Arena *a, Diag *d, bool cuda)
{
	memset(k, 0, sizeof *k);
	k->a = a;
	k->d = d;
	k->cuda = cuda;
	map_init(&k->name_of, a, true);
	map_init(&k->used, a, true);
	map_init(&k->of, a, false);
	map_init(&k->heads, a, true);
}

static bool has_f64(const Node *n)
{
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && n->in[i]->type.dtype == DT_f64)
			return true;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && n->out[i]->type.dtype == DT_f64)
			return true;
	return false;
}

/* Holes that every template may use where the op binds none: the element type and its functions of math.h. */
static const Holes *standard_holes(Kernels *k, bool f64)
{
	static const char *const math[] = {
		"exp",
		"tanh",
		"log",
		"log1p",
		"expm1",
		"sqrt",
		"erf",
		"pow",
		"fabs",
		"fmax",
		"fmin",
		"fmod",
		"cos",
		"sin",
		"tan",
		"floor",
		"ceil",
		"round",
		"rint",
	};
	Holes *h = k->standard[f64];
	Arena *a = k->a;

	if (h)
		return h;
	h = k->standard[f64] = NEW(a, Holes);
	h->arena = a;
	hole_text(h, "T", f64 ? "double" : "float");
	for (size_t i = 0; i < sizeof math / sizeof *math; i++) {
		char *upper = arena_str(a, math[i]);
		for (char *p = upper; *p; p++)
			*p = (char)toupper((unsigned char)*p);
		hole_text(h, upper, "%s%s", math[i], f64 ? "" : "f");
	}
	hole_int(h, "PAR", 0);
	return h;
}

static const char *hole_string(const Holes *h, const char *name, size_t n)
{
	for (int i = 0; i < h->n; i++)
		if (!strncmp(h->h[i].name, name, n) && !h->h[i].name[n])
			return h->h[i].is_int ? arena_printf(h->arena, "%lld", (long long)h->h[i].i) : h->h[i].s;
	return NULL;
}

/* GPU: what a kernel is launched with, the names in PARAMS. */
static void bind_args(Holes *h)
{
	const char *params = hole_string(h, "PARAMS", 6), *args = "";

	if (!params || hole_string(h, "ARGS", 4))
		return;
	for (const char *s = params; *s;) {
		const char *end = s + strcspn(s, ","), *word = end;
		while (word > s && (isalnum((unsigned char)word[-1]) || word[-1] == '_'))
			word--;
		args = arena_printf(h->arena, "%s%s%.*s", args, *args ? ", " : "", (int)(end - word), word);
		s = *end ? end + 1 : end;
	}
	hole_text(h, "ARGS", "%s", args);
}

/* GPU: the head of the function that the host calls, as a declaration. */
static void declare(Kernels *k, Buf *host)
{
	if (!host->n)
		bug("a GPU template without PD_HOST");
	for (size_t i = 0; i < host->n - 1; i++) { /* on one line, without the last line's end */
		const char c = host->s[i], next = i + 2 < host->n ? host->s[i + 1] : 0;
		if (isspace((unsigned char)c) && (isspace((unsigned char)next) || next == ',' || next == ')'))
			continue;
		buf_putc(&k->heads_of, isspace((unsigned char)c) ? ' ' : c);
	}
	buf_puts(&k->heads_of, ";\n");
	buf_free(host);
}

/* The comments of a template's head that hold for these holes, each once in a file. */
static void add_comments(Kernels *k, Buf *out, const char *file, const char *head, const Holes *h, const Holes *more)
{
	Buf b = { 0 };

	tmpl_fill(&b, NULL, file, head, h, more, k->d);
	for (const char *s = buf_str(&b); *s;) {
		const char *comment = arena_strn(h->arena, s, tmpl_head(s));
		if (!*comment)
			bug("the head of %s has more than comments", file);
		if (!map_has(&k->heads, comment))
			buf_puts(out, comment);
		map_put(&k->heads, comment, k);
		s += strlen(comment);
	}
	buf_free(&b);
}

/* The function under the name the op gave it; another when that means something else here already. */
static const char *add_function(Kernels *k, const char *file, const char *text, Holes *h, bool f64)
{
	const Holes *more = standard_holes(k, f64);
	const char *shared = k->cuda ? hole_string(h, "MANY_NAME", 9) : hole_string(h, "SHARED_NAME", 11), *name;
	const char *wish = shared ? shared : h->name ? names_legal(h->arena, h->name) : "kernel";
	const size_t head = tmpl_head(text);
	Buf b = { 0 }, host = { 0 };

	if (k->cuda)
		bind_args(h);
	if (k->cuda && k->suffix)
		wish = arena_printf(h->arena, "%s%s", wish, k->suffix);
	name = wish;
	h->name = "NAME"; /* the same text whatever the name: that is what is compared */
	if (!tmpl_fill(&b, NULL, file, text, h, more, k->d))
		return buf_free(&b), NULL;
	const char *known = map_get(&k->name_of, buf_str(&b));

	if (!known) {
		for (int i = 2; map_has(&k->used, name); i++)
			name = arena_printf(h->arena, "%s_%d", wish, i);
		map_put(&k->used, name, k);
		known = arena_str(k->a, name);
		map_put(&k->name_of, buf_str(&b), (void *)(uintptr_t)known);
		buf_clear(&b);
		h->name = known;
		buf_puts(&b, "\n");
		add_comments(k, &b, file, arena_strn(h->arena, text, head), h, more);
		buf_puts(&k->out, buf_str(&b));
		buf_clear(&b);
		tmpl_fill(&b, &host, file, text + head, h, more, k->d);
		fold_constants(&b);
		buf_puts(&k->out, buf_str(&b));
		if (k->cuda)
			declare(k, &host);
		buf_free(&host);
	}
	h->name = known;
	buf_free(&b);
	return known;
}

/* Does the pattern name the hole, as $name? */
static bool names_hole(const char *pattern, const char *name)
{
	const size_t n = strlen(name);

	for (const char *s = pattern ? pattern : ""; (s = strchr(s, '$')); s++)
		if (!strncmp(s + 1, name, n) && !isalnum((unsigned char)s[1 + n]) && s[1 + n] != '_')
			return true;
	return false;
}

/* What statements read later goes into the kernels' arena; the texts of bodies do not. */
static void keep_holes(Kernels *k, NodeKernel *nk, const Holes *h)
{
	int cap = 0;

	nk->call = arena_str(k->a, nk->call);
	nk->row = nk->row ? arena_str(k->a, nk->row) : NULL;
	for (int i = 0; i < h->n; i++) {
		Hole x = h->h[i];

		if (!names_hole(nk->call, x.name) && !names_hole(nk->row, x.name) && !names_hole(nk->k->init, x.name) &&
			strcmp(x.name, "ROOM") != 0)
			continue;
		x.name = arena_str(k->a, x.name);
		x.s = x.is_int ? arena_printf(k->a, "%lld", (long long)x.i) : arena_str(k->a, x.s);
		PUSH(k->a, nk->hole, nk->nhole, cap) = x;
	}
}

static const Kernel *kind_of_kernel(const Kernels *k, const OpDef *op, bool f64, bool vendor)
{
	if (k->cuda)
		return vendor ? &op->vendor : &op->cuda;
	return (f64 && (op->ref.file || op->ref.call)) || !(op->cpu.file || op->cpu.call) ? &op->ref : &op->cpu;
}

/* h: empty, of an arena that ends with this kernel. */
static NodeKernel *make_kernel(Kernels *k, const Node *n, Holes *h)
{
	const OpDef *op = optab[n->op];
	const bool f64 = has_f64(n), vendor = k->cuda && op->by_vendor && op->by_vendor(n);
	NodeKernel *nk = NEW(k->a, NodeKernel);

	nk->k = kind_of_kernel(k, op, f64, vendor);
	if (k->cuda && (f64 || (!nk->k->file && !nk->k->call))) {
		diag_error(k->d, n->loc, 702, "%s has no kernel for GPUs%s", op->name, f64 ? " in f64" : "");
		return NULL;
	}
	if (op->holes)
		op->holes(n, h);
	const char *direct = nk->k == &op->cpu ? hole_string(h, "DIRECT_CALL", 11) : NULL;
	nk->call = k->cuda ? hole_string(h, "CUDA_CALL", 9) : direct;
	if (!nk->call && !vendor)
		nk->call = hole_string(h, "CALL", 4);
	if (!nk->call)
		nk->call = nk->k->call;
	if (!nk->call) {
		diag_error(k->d, n->loc, 702, "%s has no kernel%s", op->name, f64 ? " for f64" : "");
		return NULL;
	}
	nk->object = nk->k->object && strstr(nk->call, "$o") ? nk->k->object : NULL;
	const char *other = k->cuda && !vendor ? hole_string(h, "CUDA_FILE", 9) : NULL,
		   *file = other ? other : nk->k->file;
	nk->row = k->cuda && !vendor ? hole_string(h, "MANY", 4) : NULL;
	if (file && !direct) {
		const char *text = tmpl_text(h->arena, file);
		if (!text) {
			diag_error(k->d, n->loc, 702, "%s: there is no template '%s'", op->name, file);
			return NULL;
		}
		nk->name = add_function(k, file, text, h, f64);
		if (!nk->name)
			return NULL;
		k->products |= nk->k->products;
	}
	keep_holes(k, nk, h);
	return nk;
}

const NodeKernel *kernel_of(Kernels *k, const Node *n)
{
	NodeKernel *nk = map_get(&k->of, n);

	if (nk)
		return nk;
	Arena *a = arena_new();
	Holes *h = NEW(a, Holes);
	h->arena = a;
	nk = make_kernel(k, n, h);
	if (nk)
		map_put(&k->of, n, nk);
	arena_free(a);
	return nk;
}

static const char *kept_hole(const NodeKernel *nk, const char *name, size_t n)
{
	for (int i = 0; i < nk->nhole; i++)
		if (!strncmp(nk->hole[i].name, name, n) && !nk->hole[i].name[n])
			return nk->hole[i].s;
	return NULL;
}

int64_t kernel_room(const Kernels *k, const Node *n)
{
	const NodeKernel *nk = map_get(&k->of, n);
	const char *room = nk ? kept_hole(nk, "ROOM", 4) : NULL;

	return room ? strtoll(room, NULL, 10) : 0;
}

/* A vector version may round otherwise than the scalar one that does the rest of a loop, and how nodes are fused into loops
 * depends on the plan. */
void kernels_head(const Kernels *k, Buf *out, bool reproducible)
{
	if (k->cuda) {
		buf_puts(out, "#include \"gpu.h\"\n");
		return;
	}
	buf_puts(out, "#include \"pd.h\"\n");
	if (!reproducible)
		buf_puts(out, "#include \"cpu_math.h\"\n");
}

/* ---- statements ---- */

static const char *operand(const Place *p, const Value *v) { return v ? p->value(p->cx, v) : "NULL"; }

/* One $ name at s (behind the $); *used gets its length. */
static const char *dollar(const NodeKernel *nk, const Node *n, const char *s, const Place *p, size_t *used)
{
	size_t len = 0;
	long i = 0;

	if (*s == '=' || isdigit((unsigned char)*s)) {
		const bool out = *s == '=';
		char *end = (char *)(uintptr_t)(s + out);
		if (isdigit((unsigned char)*end))
			i = strtol(end, &end, 10);
		*used = (size_t)(end - s);
		if (out)
			return operand(p, i < n->nout ? n->out[i] : NULL);
		return operand(p, i < n->nin ? n->in[i] : NULL);
	}
	while (isalnum((unsigned char)s[len]) || s[len] == '_')
		len++;
	*used = len;
	if (len == 1 && *s == 'k')
		return nk->name;
	if (len == 4 && !strncmp(s, "rows", len))
		return "rows, (int)(sizeof rows / sizeof *rows)";
	if (len == 4 && !strncmp(s, "copy", len))
		return operand(p, copy_beside(n));
	if (len == 1 && *s == 'o')
		return p->object(p->cx, n);
	if (len == 7 && !strncmp(s, "scratch", len))
		return p->scratch(p->cx);
	if (len == 2 && !strncmp(s, "mb", len))
		return p->microbatch(p->cx);
	return kept_hole(nk, s, len);
}

const char *statement(Kernels *k, const NodeKernel *nk, const Node *n, const char *pattern, const Place *p)
{
	Buf b = { 0 };

	for (const char *s = pattern; *s; s++) {
		size_t used;
		if (*s != '$') {
			buf_putc(&b, *s);
			continue;
		}
		const char *text = dollar(nk, n, s + 1, p, &used);
		if (!text)
			bug("%s: no meaning for '%.*s' in '%s'", optab[n->op]->name, (int)used + 1, s, pattern);
		buf_puts(&b, text);
		s += used;
	}
	const char *text = arena_str(k->a, buf_str(&b));
	buf_free(&b);
	return text;
}

bool same_call(Kernels *k, const Node *a, const Node *b, const Place *p)
{
	const NodeKernel *x = kernel_of(k, a), *y = kernel_of(k, b);

	return x && y && x->row && y->row && x->name == y->name &&
	       !strcmp(statement(k, x, a, x->call, p), statement(k, y, b, y->call, p));
}

bool writes_copy(Kernels *k, const Node *update)
{
	const NodeKernel *nk = kernel_of(k, update);

	return nk && names_hole(nk->row, "copy");
}

void write_call(Kernels *k, Cw *w, int n, const Node *const *node, const char *const *comment, const Place *p)
{
	const NodeKernel *nk = kernel_of(k, node[0]);
	const char *call = statement(k, nk, node[0], nk->call, p);

	if (!nk->row) {
		cw_stmts(w, comment[0], call);
		return;
	}
	cw_brace(w);
	cw_open(w, "const pd_many rows[] =");
	for (int i = 0; i < n; i++) {
		const NodeKernel *one = kernel_of(k, node[i]);
		cw_stmt(w, comment[i], "%s,", statement(k, one, node[i], one->row, p));
	}
	cw_close(w, ";");
	cw_blank(w);
	cw_line(w, "%s", call);
	cw_end(w);
}
