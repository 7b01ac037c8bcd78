/* Fused: several elementwise nodes as one loop whose intermediate values live in registers. Its program is text, so it
 * prints and parses like any attribute:
 *
 *     %y = Fused(%x, %g, %c) {code="Mul 0 1; Tanh 3; Cast:11 4; Add 5 2", outs=[6]}
 *
 * Operands are numbered first, then the result of each step; outs says which numbers are results of the node. The
 * number behind the colon is the one attribute an elementwise op may have (Cast's to, Mod's fmod); behind a second one stands
 * Cast's layout. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "ew.h"

enum { MAXSTEPS = 64 };

/* The program spread out as nodes and values that are in no graph, so that the rules of elementwise.c hold for them. */
typedef struct Prog {
	int nin, n; /* values 0..nin-1 are operands, nin + k is the result of step[k] */
	Node *step;
	Value **val;
} Prog;

static int count(const char *s, size_t len, char of)
{
	int n = 0;

	for (size_t i = 0; i < len; i++)
		n += s[i] == of;
	return n;
}

static bool parse_step(Arena *a, Prog *p, const Node *f, const char *s, size_t len, Diag *d)
{
	char *text = arena_strn(a, s, len), *at = text + strcspn(text, ": ");
	struct ew_attr *attr = NEW(a, struct ew_attr);
	Node *n = &p->step[p->n];
	const bool colon = *at == ':';
	const int blanks = count(s, len, ' '), room = blanks < MAXIN ? blanks : MAXIN; /* one before every operand */

	if (*at)
		*at++ = 0;
	n->op = op_find(text);
	if (!ew_row(n->op))
		return diag_error(d, f->loc, 310, "Fused: '%s' is not an elementwise op", text);
	if (colon)
		attr->to = attr->fmod = strtoll(at, &at, 10);
	if (colon && *at == ':') {
		const size_t name = strcspn(++at, " ");
		attr->layout = arena_strn(a, at, name);
		at += name;
	}
	n->graph = f->graph;
	n->loc = f->loc;
	n->attr = attr;
	n->in = NEWN(a, Value *, room);
	while (*(at += strspn(at, " "))) {
		char *end;
		const long v = strtol(at, &end, 10);
		if (end == at || v < 0 || v >= p->nin + p->n || n->nin == room)
			return diag_error(d, f->loc, 310, "Fused: bad operand '%s' in step %d (%s)", at, p->n, text);
		n->in[n->nin++] = p->val[v];
		at = end;
	}
	if (n->nin < optab[n->op]->minin || (optab[n->op]->maxin >= 0 && n->nin > optab[n->op]->maxin))
		return diag_error(d, f->loc, 310, "Fused: step %d (%s) has %d operands", p->n, text, n->nin);
	n->out = NEW(a, Value *);
	n->out[0] = NEW(a, Value);
	n->out[0]->name = arena_printf(a, "v%d", p->nin + p->n);
	n->nout = 1;
	p->val[p->nin + p->n++] = n->out[0];
	return optab[n->op]->shape(n, d);
}

static Prog *parse_code(Arena *a, const Node *f, Diag *d)
{
	const struct fused_attr *at = f->attr;
	Prog *p = NEW(a, Prog);
	const char *s = at->code ? at->code : "";
	const int pieces = count(s, strlen(s), ';') + 1, steps = pieces < MAXSTEPS ? pieces : MAXSTEPS;

	if (f->nin > MAXIN) {
		diag_error(d, f->loc, 310, "Fused: %d operands, at most %d", f->nin, MAXIN);
		return NULL;
	}
	p->nin = f->nin;
	p->step = NEWN(a, Node, steps);
	p->val = NEWN(a, Value *, f->nin + steps);
	memcpy(p->val, f->in, (size_t)f->nin * sizeof *f->in);
	while (*(s += strspn(s, "; "))) {
		const size_t len = strcspn(s, ";");
		if (p->n == MAXSTEPS) {
			diag_error(d, f->loc, 310, "Fused: more than %d steps", MAXSTEPS);
			return NULL;
		}
		if (!parse_step(a, p, f, s, len, d))
			return NULL;
		s += len;
	}
	return p;
}

static bool shape(Node *n, Diag *d)
{
	const struct fused_attr *at = n->attr;

	for (int i = 0; i < n->nin; i++)
		if (!n->in[i])
			return diag_error(d, n->loc, 301, "Fused: operand %d is missing", i);
	const Prog *p = parse_code(d->scratch, n, d);
	if (!p)
		return false;
	if (!p->n || !at->outs.n || at->outs.n > n->nout)
		return diag_error(d, n->loc, 310, "Fused: %d steps, %d results named in outs, %d results", p->n,
			at->outs.n, n->nout);
	trim_outs(n, at->outs.n);
	const Type *loop = &p->val[p->nin + p->n - 1]->type;
	for (int i = 0; i < n->nout; i++) {
		const int64_t v = at->outs.v[i];
		if (v < p->nin || v >= p->nin + p->n)
			return diag_error(d, n->loc, 310, "Fused: outs names %lld, which is no step", (long long)v);
		const Type *t = &p->val[v]->type;
		if (!shape_eq(t, loop) || t->layout != loop->layout)
			return diag_error(d, n->loc, 310, "Fused: result %d is %s, the loop is %s", i,
				str_type(d->scratch, t), str_type(d->scratch, loop));
		set_out(n, i, *t);
	}
	return true;
}

/* The program of a node that has passed its shape rule. */
static Prog *program(Arena *a, const Node *n)
{
	Diag d;

	diag_init(&d, stderr, a);
	Prog *p = parse_code(a, n, &d);
	if (!p)
		bug("Fused: bad program");
	return p;
}

static Cost cost(const Node *n)
{
	Arena *a = arena_new();
	const Prog *p = program(a, n);
	double flops = 0;

	for (int i = 0; i < p->n; i++)
		flops += ew_cost(&p->step[i]).flops;
	arena_free(a);
	return cost_bytes(n, flops);
}

/* The first number of a value. */
static int first_number(const Prog *p, const Value *x)
{
	int v = 0;

	while (p->val[v] != x && v < p->nin + p->n - 1)
		v++;
	return v;
}

/* Constants that are literals are read in place, everything else has a local of its number. */
static const char *step_text(Arena *a, const Prog *p, const Node *step)
{
	const char *operand[MAXIN];

	for (int i = 0; i < step->nin; i++)
		operand[i] = ew_literal(step, i) ? ew_literal_text(a, step, i)
		                                 : arena_printf(a, "v%d", first_number(p, step->in[i]));
	return ew_text(a, step, operand);
}

static const char *body(
	const Node *n, Arena *a, const Nest *s, const Prog *p, const char *(*ref_of)(Arena *a, const Nest *s, int op))
{
	const struct fused_attr *at = n->attr;
	const char *text = "";
	int op = n->nout;

	for (int i = 0; i < p->nin; i++)
		if (ew_passed(n, i))
			text = arena_printf(a, "%sconst %s v%d = %s;\n\t\t", text,
				dtype_c(dtype_math(n->in[i]->type.dtype)), i,
				ew_load(a, n->in[i]->type.dtype, ref_of(a, s, op++)));
	for (int k = 0; k < p->n; k++) { /* rounded as it would be in memory: the same bits however nodes are fused */
		const DType t = p->step[k].out[0]->type.dtype;
		text = arena_printf(a, "%sconst %s v%d = %s;\n\t\t", text, dtype_c(dtype_math(t)), p->nin + k,
			ew_load(a, t, ew_store(a, t, step_text(a, p, &p->step[k]))));
	}
	for (int i = 0; i < n->nout; i++)
		text = arena_printf(a, "%s%s = %s;%s", text, ref_of(a, s, i),
			ew_store(a, n->out[i]->type.dtype, arena_printf(a, "v%lld", (long long)at->outs.v[i])),
			i + 1 < n->nout ? "\n\t\t" : "");
	return text;
}

/* FNV-1a: the short mark that tells kernels of equal steps and different details apart. */
static unsigned hash(const char *s)
{
	unsigned h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	return h;
}

static void holes(const Node *n, Holes *h)
{
	Arena *a = h->arena;
	const Prog *p = program(a, n);
	const char **var = NEWN(a, const char *, n->nin + n->nout), *name = "fused", *text;
	const Type *t = &n->out[0]->type;
	DType *types = NEWN(a, DType, n->nin + n->nout);
	int count = 0;
	Nest s;

	nest_begin(&s, a, t->rank, t->dim);
	for (int i = 0; i < n->nout; i++) {
		types[count++] = n->out[i]->type.dtype;
		nest_add_type(&s, var[i] = n->nout > 1 ? arena_printf(a, "y%d", i) : "y", &n->out[i]->type);
	}
	for (int i = 0; i < n->nin; i++) {
		var[n->nout + i] = arena_printf(a, "x%d", i);
		if (!ew_passed(n, i))
			continue;
		nest_add_type(&s, var[n->nout + i], &n->in[i]->type);
		types[count++] = n->in[i]->type.dtype;
	}
	nest_finish(&s);
	nest_holes(&s, h);
	ew_signature(n, h, var);
	text = body(n, a, &s, p, nest_ref);
	hole_text(h, "BODY", "%s", text);
	if (ew_vector_holes(&s, h, types, n->nout))
		hole_text(h, "VECTOR_BODY", "%s", body(n, a, &s, p, ew_vector_ref));
	for (int k = 0; k < p->n && k < 3; k++)
		name = arena_printf(a, "%s_%s", name, optab[p->step[k].op]->name);
	char *low = arena_str(a, name);
	for (char *q = low; *q; q++)
		*q = (char)tolower((unsigned char)*q);
	hole_name(h, "%s_%s_%08x", low, nest_dims(a, &s), hash(text));
}

static bool eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct fused_attr *at = n->attr;
	Prog *p = program(a, n);
	Tensor val[MAXIN + MAXSTEPS], arg[MAXIN];

	memcpy(val, in, (size_t)n->nin * sizeof *in);
	for (int k = 0; k < p->n; k++) {
		for (int i = 0; i < p->step[k].nin; i++)
			for (int v = 0; v < p->nin + k; v++)
				if (p->val[v] == p->step[k].in[i])
					arg[i] = val[v];
		if (!ew_eval(&p->step[k], arg, &val[p->nin + k], a))
			return false;
	}
	for (int i = 0; i < n->nout; i++)
		out[i] = val[at->outs.v[i]];
	return true;
}

/* ---- building one ---- */

static bool is_inside(const Node *n, Node *const *node, int k)
{
	for (int i = 0; i < k; i++)
		if (node[i] == n)
			return true;
	return false;
}

static bool used_outside(const Graph *g, const Value *v, Node *const *node, int n)
{
	for (int i = 0; i < g->nout; i++)
		if (g->out[i] == v)
			return true;
	for (int i = 0; i < v->nuses; i++)
		if (!is_inside(v->uses[i].node, node, n))
			return true;
	return false;
}

static int number_of(Value *const *list, int n, const Value *v)
{
	for (int i = 0; i < n; i++)
		if (list[i] == v)
			return i;
	return -1;
}

/* Gathers operands and results; false when the nodes do not fit one kernel. */
static bool gather(Node *const *node, int n, Value **in, int *nin, Value **res, int64_t *outs, int *nout)
{
	const Type *loop = &node[n - 1]->out[0]->type;

	*nin = *nout = 0;
	if (n > MAXSTEPS)
		return false;
	for (int k = 0; k < n; k++) {
		Value *y = node[k]->out[0];
		if (!ew_row(node[k]->op) || !shape_eq(&y->type, loop) || y->type.layout != loop->layout)
			return false;
		for (int i = 0; i < node[k]->nin; i++) {
			Value *v = node[k]->in[i];
			if ((v->def && is_inside(v->def, node, n)) || number_of(in, *nin, v) >= 0)
				continue;
			if (*nin == MAXIN)
				return false;
			in[(*nin)++] = v;
		}
		if (used_outside(node[k]->graph, y, node, n)) {
			if (*nout == MAXIN)
				return false;
			outs[*nout] = k;
			res[(*nout)++] = y;
		}
	}
	return *nout > 0;
}

static const char *step_code(Arena *a, const Node *n, Value *const *val, int nval)
{
	const struct ew_attr *at = n->attr;
	const char *s = optab[n->op]->name;

	if (n->op == OP_Cast || n->op == OP_Mod)
		s = arena_printf(a, "%s:%lld", s, (long long)(n->op == OP_Cast ? at->to : at->fmod));
	if (n->op == OP_Cast && *attr_str(n, "layout"))
		s = arena_printf(a, "%s:%s", s, attr_str(n, "layout"));
	for (int i = 0; i < n->nin; i++)
		s = arena_printf(a, "%s %d", s, number_of(val, nval, n->in[i]));
	return s;
}

Node *ew_fuse(Builder *b, Node *const *node, int n)
{
	Arena *a = b->m->arena;
	Value *val[MAXIN + MAXSTEPS], *res[MAXIN];
	int64_t outs[MAXIN];
	struct fused_attr at = { "", { 0, NULL } };
	int nin, nout;

	if (!gather(node, n, val, &nin, res, outs, &nout))
		return NULL;
	for (int k = 0; k < n; k++) {
		at.code = arena_printf(a, "%s%s%s", at.code, k ? "; " : "", step_code(a, node[k], val, nin + k));
		val[nin + k] = node[k]->out[0];
	}
	for (int i = 0; i < nout; i++)
		outs[i] += nin;
	at.outs = ints_dup(a, nout, outs);
	Node *f = build(b, OP_Fused, &at, nin, val, NULL);
	for (int i = 0; i < nout; i++)
		value_replace(res[i], f->out[i]);
	for (int k = n - 1; k >= 0; k--)
		node_remove(node[k]);
	for (int i = 0; i < nout; i++)
		value_rename(b->g, f->out[i], res[i]->name);
	return f;
}

static const AttrDef attrs[] = { AT_STR(struct fused_attr, code, NULL), AT_INTS(struct fused_attr, outs), AT_END };

const OpDef op_Fused = {
	.name = "Fused",
	.minin = 0,
	.maxin = MAXIN,
	.nout = MAXIN,
	.flags = OP_PURE | OP_INPLACE | OP_NHWC,
	.attrs = attrs,
	.attrsize = sizeof(struct fused_attr),
	.shape = shape,
	.cost = cost,
	.holes = holes,
	.eval = eval,
	.cpu = { .file = "nest.cpu.c" },
	.ref = { .file = "nest.cpu.c" },
	.cuda = { .file = "nest.cuda.cu" },
};
