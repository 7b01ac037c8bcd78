/* pdcc --list-ops: the canonical ops, and --list-ops=onnx: the operators of ONNX with what is known of each. Nothing is
 * said twice: element types are found by asking the op's own shape rule about small operands of every type, gradients,
 * kernels and libraries stand in the op table, opsets and what an operator becomes in onnx_ops.def. */
#include "listops.h"
#include <stdlib.h>
#include <string.h>
#include "ir/base/buf.h"
#include "frontend/onnx/onnx.h"

void list_ops(FILE *f)
{
	for (int i = 1; i < OP_COUNT; i++)
		fprintf(f, "%-28s %s\n", optab[i]->name, optab[i]->grad ? "gradient" : "-");
}

/* ---- element types: the shape rule is asked ---- */

/* Operands and attributes that a shape rule takes: `T:2,2` an operand of the type in question, `i64:2` of that one,
 * `#T:2` constant zeros; then attributes. Ops that are not listed take as many operands T:2,2 as they must have. */
static const struct Probe {
	OpKind op;
	const char *operands, *attrs;
} probes[] = {
	{ OP_Where, "bool:2,2 T:2,2 T:2,2", "" },
	{ OP_Cast, "T:2,2", "to=1" },
	{ OP_Mod, "T:2 T:2", "fmod=1" },
	{ OP_Reshape, "T:2,2", "shape=4" },
	{ OP_Transpose, "T:2,2", "perm=1,0" },
	{ OP_Slice, "T:4", "starts=0 ends=2 axes=0 steps=1" },
	{ OP_Split, "T:4", "axis=0 split=2,2" },
	{ OP_Pad, "T:4", "pads=1,1" },
	{ OP_Expand, "T:1,2", "shape=2,2" },
	{ OP_Tile, "T:2", "repeats=2" },
	{ OP_Gather, "T:2,2 i64:2", "axis=0" },
	{ OP_GatherElements, "T:2,2 i64:2,2", "axis=0" },
	{ OP_GatherND, "T:2,2 i64:2,1", "" },
	{ OP_ScatterElements, "T:2,2 i64:2,2 T:2,2", "axis=0" },
	{ OP_ScatterND, "T:2,2 i64:2,1 T:2,2", "" },
	{ OP_TopK, "T:2,2", "k=1 axis=1" },
	{ OP_OneHot, "i64:2 T:2", "depth=2" },
	{ OP_ReverseSequence, "T:2,2 i64:2", "" },
	{ OP_ConstantOfShape, "", "shape=2 dtype=1" },
	{ OP_Conv, "T:1,2,4,4 T:2,2,3,3", "kernel_shape=3,3 strides=1,1 dilations=1,1 pads=0,0,0,0" },
	{ OP_ConvGradData, "T:1,2,2,2 T:2,2,3,3",
		"kernel_shape=3,3 strides=1,1 dilations=1,1 pads=0,0,0,0 dims=1,2,4,4" },
	{ OP_MaxPool, "T:1,2,4,4", "kernel_shape=2,2 strides=1,1 dilations=1,1 pads=0,0,0,0" },
	{ OP_AveragePool, "T:1,2,4,4", "kernel_shape=2,2 strides=1,1 dilations=1,1 pads=0,0,0,0" },
	{ OP_ResizeAxis, "T:2 #i32:2,1 #T:2,1", "axis=0" },
	{ OP_GlobalAveragePool, "T:1,2,4,4", "" },
	{ OP_BatchNorm, "T:1,2,4,4 T:2 T:2", "" },
	{ OP_LayerNormalization, "T:2,2 T:2 T:2", "" },
	{ OP_RMSNormalization, "T:2,2 T:2", "" },
	{ OP_LRN, "T:1,2,4,4", "size=3" },
	{ OP_SoftmaxCrossEntropyLoss, "T:2,2 i64:2", "" },
	{ OP_NegativeLogLikelihoodLoss, "T:2,2 i64:2", "" },
	{ OP_LSTM, "T:2,2,8 T:8,2", "" },
	{ OP_GRU, "T:2,2,6 T:6,2", "" },
	{ OP_RNN, "T:2,2,2 T:2,2", "" },
};

static const struct Probe *probe_of(OpKind op)
{
	for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
		if (probes[i].op == op)
			return &probes[i];
	return NULL;
}

/* "T:2,2 ": the operand at s; *end stands behind it. */
static Value *operand(Graph *g, const char *s, DType t, char **end)
{
	Type type = { .dtype = t };
	const bool konst = *s == '#';
	const size_t n = strcspn(s += konst, ":");
	char name[8] = "";

	memcpy(name, s, n < sizeof name - 1 ? n : sizeof name - 1);
	if (strcmp(name, "T"))
		type.dtype = dtype_from_name(name);
	for (*end = (char *)(uintptr_t)s + n; **end == ':' || **end == ',';) {
		if ((*end)[1] == ' ' || !(*end)[1]) {
			++*end;
			break;
		}
		type.dim[type.rank++] = strtol(*end + 1, end, 10);
	}
	if (konst)
		return module_const(g->module, NULL, type, NEWN(g->module->arena, char, type_bytes(&type)));
	return graph_input(g, unique_name(g, "x"), type);
}

/* "axis=0 pads=1,1" as attributes of op. */
static void *attributes(Arena *a, OpKind op, const char *s)
{
	void *attr = attr_new(a, op);

	while (*s) {
		const size_t n = strcspn(s, "=");
		const AttrDef *x = op_attr(op, arena_strn(a, s, n));
		int64_t *v = NEWN(a, int64_t, MAXRANK);
		int k = 0;
		char *end = (char *)(uintptr_t)s + n;

		while (*end == '=' || *end == ',')
			v[k++] = strtol(end + 1, &end, 10);
		for (s = end; *s == ' '; s++)
			;
		if (!x || (x->kind != A_INT && x->kind != A_INTS))
			bug("%s: the probe of its types names an attribute that it does not have", optab[op]->name);
		if (x->kind == A_INT)
			*(int64_t *)(void *)((char *)attr + x->offset) = *v;
		else
			*(Ints *)(void *)((char *)attr + x->offset) = (Ints){ k, v };
	}
	return attr;
}

/* Does the shape rule of op take the type? Messages go nowhere. */
static bool takes(Arena *a, OpKind op, DType t)
{
	const struct Probe *p = probe_of(op);
	Module *m = module_new(a, "probe");
	Diag d;
	Value *in[MAXIN];
	int nin = 0;
	char *said = NULL;
	size_t len = 0;

	m->graph = graph_new(m, "probe");
	diag_init(&d, open_memstream(&said, &len), a);
	if (!p)
		while (nin < optab[op]->minin)
			in[nin++] = operand(m->graph, "T:2,2", t, &(char *){ NULL });
	for (const char *s = p ? p->operands : ""; *s; s += *s == ' ') {
		char *end;

		in[nin++] = operand(m->graph, s, t, &end);
		s = end;
	}
	Builder b = { .m = m, .g = m->graph, .loc = NOLOC, .stage = -1, .d = &d };
	build(&b, op, p ? attributes(a, op, p->attrs) : NULL, nin, in, NULL);
	fclose(d.out);
	free(said);
	return !b.failed;
}

/* ---- what an operator becomes ---- */

enum { MOSTOPS = 24 };
typedef struct Becomes {
	OpKind op[MOSTOPS];
	int n, main;       /* the first `main` are those that the data goes through */
	const char *takes; /* "floats", "numbers", "f32,i8"; NULL: what the ops take */
	bool passes;       /* no op, but operands go on as they are */
} Becomes;

static Becomes becomes_of(Arena *a, const CanonFact *f)
{
	Becomes b = { .main = -1 };
	const char *s = *f->becomes ? f->becomes : f->name;

	b.passes = strcmp(s, "=") == 0;
	if (strcmp(s, "-") == 0 || b.passes)
		s = "";
	while (*s) {
		const size_t n = strcspn(s, " ;:");
		const char *word = arena_strn(a, s, n);

		if (s[n] == ':') {
			b.takes = word;
		} else {
			if (b.n == MOSTOPS || !(b.op[b.n] = op_find(word)))
				bug("onnx_ops.def: %s becomes '%s', which is no op", f->name, word);
			b.n++;
			if (s[n] == ';')
				b.main = b.n;
		}
		for (s += n; *s && strchr(" ;:", *s); s++)
			;
	}
	b.main = b.main < 0 ? b.n : b.main;
	return b;
}

/* Is t in a list like "floats,i8,u8"? */
static bool listed(Arena *a, const char *list, DType t)
{
	while (*list) {
		const size_t n = strcspn(list, ",");
		const char *word = arena_strn(a, list, n);

		if (strcmp(word, dtype_name(t)) == 0 || (strcmp(word, "floats") == 0 && dtype_float(t)) ||
			(strcmp(word, "numbers") == 0 && t != DT_bool))
			return true;
		list += n + (list[n] == ',');
	}
	return false;
}

/* Element types that all main ops take; floats of 16 and 8 bits are no types of arithmetic and left out. */
static void types(Buf *out, Arena *a, const Becomes *b)
{
	bool ok[DT_COUNT] = { false }, all = true;
	const char *sep = "";

	for (int t = DT_NONE + 1; t < DT_COUNT; t++) {
		const DType x = (DType)t;

		if (dtype_half(x) || dtype_f8(x))
			continue;
		ok[t] = !b->takes || listed(a, b->takes, x);
		for (int i = 0; i < b->main && !b->takes && ok[t]; i++)
			ok[t] = takes(a, b->op[i], x);
		all &= ok[t];
	}
	if (all) {
		buf_puts(out, "any");
		return;
	}
	static const struct {
		DType first, last;
		const char *name;
	} run[] = { { DT_f32, DT_f64, "f32 f64" }, { DT_i8, DT_i64, "i8..i64" }, { DT_u8, DT_u64, "u8..u64" },
		{ DT_bool, DT_bool, "bool" } };
	for (size_t r = 0; r < sizeof run / sizeof *run; r++) {
		bool whole = true;

		for (int t = run[r].first; t <= (int)run[r].last; t++)
			whole &= ok[t];
		for (int t = run[r].first; t <= (int)run[r].last; t++)
			if (ok[t] && (!whole || t == (int)run[r].first)) {
				buf_printf(out, "%s%s", sep, whole ? run[r].name : dtype_name((DType)t));
				sep = " ";
			}
	}
	if (!*sep)
		bug("%s: no element type is taken; say in probes[] what its shape rule wants", optab[b->op[0]]->name);
}

/* ---- gradients and code ---- */

/* "yes", "no", or which operands of the op of the same name have one; elementwise ones have settings as operands. */
static void gradient(Buf *out, const Becomes *b, const char *name)
{
	const OpDef *d = b->main == 1 && b->op[0] == op_find(name) ? optab[b->op[0]] : NULL;
	bool yes = b->main > 0 || b->passes, every = true;
	const char *sep = "of ";

	for (int i = 0; i < b->main; i++)
		yes &= optab[b->op[i]]->grad != NULL;
	if (!yes || !d || d->maxin < 0 || (d->flags & OP_EW && d->dgrad[0])) {
		buf_puts(out, yes ? "yes" : "no");
		return;
	}
	for (int i = 0; i < d->maxin; i++)
		every &= d->dgrad[i] == DENSE;
	if (every) {
		buf_puts(out, "yes");
		return;
	}
	for (int i = 0; i < d->maxin; i++)
		if (d->dgrad[i] != NOGRAD) {
			buf_printf(out, "%s%d%s", sep, i, d->dgrad[i] == ROWS ? " (rows)" : "");
			sep = ", ";
		}
}

static bool kernel(const Kernel *k) { return k->file || k->call || k->object; }

/* How the ops become code, each way once, the most telling first. */
static void code(Buf *out, const Becomes *b, bool cuda)
{
	static const char *const way[] = { "library call", "own kernel", "fused loop", "no code", "folds away" };
	bool seen[5] = { false };
	const char *sep = "";

	for (int i = 0; i < b->main; i++) {
		const OpDef *d = optab[b->op[i]];

		const bool any = kernel(&d->cpu) || kernel(&d->ref);

		if (cuda && any && !kernel(&d->cuda)) {
			buf_puts(out, "not yet");
			return;
		}
		seen[d->flags & OP_HEAVY || d->lib ? 0
			: d->flags & OP_EW         ? 2
			: d->flags & OP_VIEW       ? 3
			: any                      ? 1
						   : 4] = true;
	}
	seen[3] |= b->passes;
	seen[4] |= b->main == 0 && !b->passes;
	seen[3] &= !(seen[0] || seen[1] || seen[2]);
	for (int i = 0; i < 5; i++)
		if (seen[i]) {
			buf_printf(out, "%s%s", sep, way[i]);
			sep = ", ";
		}
}

static void canonical(Buf *out, const Becomes *b)
{
	for (int i = 0; i < b->n; i++)
		buf_printf(out, "%s%s", !i ? "" : i == b->main ? "; " : " ", optab[b->op[i]]->name);
	if (!b->n)
		buf_puts(out, b->passes ? "=" : "-");
}

void list_onnx(FILE *f)
{
	static const int width[] = { 26, 7, 28, 20, 26, 8 };
	static const char *const head[] = { "operator", "opsets", "types", "gradient", "CPU", "CUDA" };
	Arena *a = arena_new();
	const CanonFact *x;

	for (int k = 0; k < 6; k++)
		fprintf(f, "%-*s  ", width[k], head[k]);
	fprintf(f, "becomes\n");
	for (int i = 0; (x = canon_fact(i)); i++) {
		const Becomes b = becomes_of(a, x);
		Buf col[7] = { 0 };

		buf_puts(&col[0], x->name);
		if (x->until)
			buf_printf(&col[1], "%d-%d", x->since, x->until);
		else
			buf_printf(&col[1], "%d+", x->since);
		types(&col[2], a, &b);
		gradient(&col[3], &b, x->name);
		code(&col[4], &b, false);
		code(&col[5], &b, true);
		canonical(&col[6], &b);
		for (int k = 0; k < 6; k++)
			fprintf(f, "%-*s  ", width[k], buf_str(&col[k]));
		fprintf(f, "%s\n", buf_str(&col[6]));
		for (int k = 0; k < 7; k++)
			buf_free(&col[k]);
	}
	arena_free(a);
}
