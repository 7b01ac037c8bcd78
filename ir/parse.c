/* The text form (.pdir), inwards: a recursive descent over the grammar in print.c. Any text gives a module or a message
 * with line and column; nothing here trusts a number of the file. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include "op.h"
#include "schedule.h"
#include "text.h"

enum { MOST_ITEMS = 1 << 20, MOST_DEVICES = 1 << 16 };

typedef struct Parser {
	Arena      *a;
	Diag       *d;
	const char *file, *p, *line_start;
	int         line;
	Module     *m;
	jmp_buf     fail;           /* one fault ends the parse: what follows would be noise */
} Parser;

static Loc here(const Parser *s)
{
	return TEXTLOC(s->file, s->line, (int)(s->p - s->line_start) + 1);
}

#define fault(s, ...) (diag_error((s)->d, here(s), 220, __VA_ARGS__), longjmp((s)->fail, 1))

/* ---- words ---- */

static void blanks(Parser *s)
{
	for (;; s->p++) {
		if (*s->p == '\n') {
			s->line++;
			s->line_start = s->p + 1;
		} else if (*s->p == '#') {
			while (s->p[1] && s->p[1] != '\n')
				s->p++;
		} else if (*s->p != ' ' && *s->p != '\t' && *s->p != '\r') {
			return;
		}
	}
}

static bool at(Parser *s, const char *word)
{
	blanks(s);
	return strncmp(s->p, word, strlen(word)) == 0;
}

static bool eat(Parser *s, const char *word)
{
	if (!at(s, word))
		return false;
	s->p += strlen(word);
	return true;
}

static void want(Parser *s, const char *word)
{
	if (!eat(s, word))
		fault(s, "'%s' is expected here", word);
}

static const char *quoted(Parser *s)
{
	Buf b = { 0 };

	for (s->p++; *s->p != '"'; s->p++) {
		if (!*s->p || *s->p == '\n') {
			buf_free(&b);
			fault(s, "the quote is not closed on this line");
		}
		if (*s->p != '\\') {
			buf_putc(&b, *s->p);
		} else if (s->p[1] == 'x' && s->p[2] && s->p[3]) {
			char hex[3] = { s->p[2], s->p[3], 0 };
			long c = strtol(hex, NULL, 16);

			if (c > 0)
				buf_putc(&b, (char)c);
			s->p += 3;
		} else if (s->p[1]) {
			buf_putc(&b, *++s->p);
		}
	}
	s->p++;
	const char *w = arena_str(s->a, buf_str(&b));
	buf_free(&b);
	return w;
}

/* A bare or quoted word; never empty when bare. */
static const char *word(Parser *s)
{
	blanks(s);
	if (*s->p == '"')
		return quoted(s);
	const char *e = s->p;
	while (text_bare((unsigned char)*e))
		e++;
	if (e == s->p)
		fault(s, "a name is expected here");
	const char *w = arena_strn(s->a, s->p, (size_t)(e - s->p));
	s->p = e;
	return w;
}

static int64_t integer(Parser *s, int64_t lo, int64_t hi)
{
	char *end;

	blanks(s);
	errno = 0;
	long long v = strtoll(s->p, &end, 10);
	if (end == s->p)
		fault(s, "a number is expected here");
	if (errno || v < lo || v > hi)
		fault(s, "the number must lie in %lld..%lld", (long long)lo, (long long)hi);
	s->p = end;
	return v;
}

static double real(Parser *s)
{
	char *end;

	blanks(s);
	double v = strtod(s->p, &end);
	if (end == s->p)
		fault(s, "a number is expected here");
	s->p = end;
	return v;
}

static int choice(Parser *s, const char *const *words, int n)
{
	const char *w = word(s);

	for (int i = 0; i < n; i++)
		if (words[i] && strcmp(words[i], w) == 0)
			return i;
	const char *near = diag_nearest(w, words, n);
	fault(s, "'%s' is not known here%s%s%s", w, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
	return 0;
}

static Type type(Parser *s)
{
	const char *e;
	Type t = { 0 };

	blanks(s);
	e = s->p;
	while ((*e >= 'a' && *e <= 'z') || (*e >= '0' && *e <= '9'))
		e++;
	t.dtype = dtype_from_name(arena_strn(s->a, s->p, (size_t)(e - s->p)));
	if (!t.dtype)
		fault(s, "an element type is expected here");
	s->p = e;
	want(s, "[");
	int64_t n = dtype_bytes(t.dtype);
	while (!eat(s, "]")) {
		if (t.rank == MAXRANK)
			fault(s, "the rank is above %d", MAXRANK);
		t.dim[t.rank] = integer(s, 0, TENSOR_MOST);
		if (__builtin_mul_overflow(n, t.dim[t.rank], &n) || n > TENSOR_MOST)
			fault(s, "the tensor is too large");
		t.rank++;
		if (!at(s, "]"))
			want(s, ",");
	}
	if (strncmp(s->p, "nhwc", 4) == 0) {
		s->p += 4;
		t.layout = LAYOUT_NHWC;
	}
	if (eat(s, "rows<="))
		t.rows = integer(s, 1, (int64_t)1 << 40);
	return t;
}

/* ---- values ---- */

static Value *lookup(Parser *s, Graph *g)
{
	blanks(s);
	if (eat(s, "_"))
		return NULL;
	bool global = *s->p == '@';
	if (!global && *s->p != '%')
		fault(s, "%%value or @param is expected here");
	const char *start = s->p++;
	const char *name = word(s);
	Value *v = global ? map_get(&s->m->names, name) : g ? map_get(g->names, name) : NULL;
	if (!v) {
		s->p = start;
		fault(s, "%c%s is defined nowhere before", global ? '@' : '%', name);
	}
	return v;
}

static Value *one_value(Parser *s, Graph *g)
{
	Value *v = lookup(s, g);

	if (!v)
		fault(s, "a value is expected here, not _");
	return v;
}

/* ---- {key=value, ...} ---- */

/* The next key of a brace list; NULL at its end. */
static const char *next_key(Parser *s, bool *first)
{
	if (eat(s, "}"))
		return NULL;
	if (!*first)
		want(s, ",");
	*first = false;
	const char *k = word(s);
	want(s, "=");
	return k;
}

static void unknown_key(Parser *s, const char *k)
{
	fault(s, "unknown key '%s'", k);
}

static void attributes(Parser *s, OpKind op, char *attr)
{
	bool first = true;

	if (!eat(s, "{"))
		return;
	for (const char *k; (k = next_key(s, &first));) {
		const AttrDef *x = op_attr(op, k);
		void *to = x ? attr + x->offset : NULL;

		if (!x)
			fault(s, "%s has no attribute '%s'", optab[op]->name, k);
		if (x->kind == A_INT) {
			*(int64_t *)to = integer(s, INT64_MIN, INT64_MAX);
		} else if (x->kind == A_FLOAT) {
			*(double *)to = real(s);
		} else if (x->kind == A_STR) {
			*(const char **)to = word(s);
		} else if (x->kind == A_INTS) {
			int64_t *v = NULL;
			int n = 0, cap = 0;

			want(s, "[");
			while (!eat(s, "]")) {
				if (n == MOST_ITEMS)
					fault(s, "the list is too long");
				PUSH(s->a, v, n, cap) = integer(s, INT64_MIN, INT64_MAX);
				if (!at(s, "]"))
					want(s, ",");
			}
			*(Ints *)to = (Ints){ n, v };
		} else {
			double *v = NULL;
			int n = 0, cap = 0;

			want(s, "[");
			while (!eat(s, "]")) {
				if (n == MOST_ITEMS)
					fault(s, "the list is too long");
				PUSH(s->a, v, n, cap) = real(s);
				if (!at(s, "]"))
					want(s, ",");
			}
			*(Floats *)to = (Floats){ n, v };
		}
	}
}

/* slot+64 or slot+64=%x */
static void place(Parser *s, Graph *g, Value *v)
{
	const char *e;

	blanks(s);
	e = s->p;
	while (*e >= 'a' && *e <= 'z')
		e++;
	const char *w = arena_strn(s->a, s->p, (size_t)(e - s->p));
	s->p = e;
	v->region = -1;
	for (int i = 0; i < REGION_COUNT; i++)
		if (strcmp(region_name[i], w) == 0)
			v->region = i;
	if (v->region < 0) {
		v->region = 0;
		fault(s, "no region is called '%s'", w);
	}
	want(s, "+");
	v->offset = integer(s, 0, INT64_MAX);
	if (eat(s, "="))
		v->alias = one_value(s, g);
}

/* ---- nodes ---- */

typedef struct Outs { const char *name[MAXIN * 4]; int n; } Outs;

static void location(Parser *s, Loc *l)
{
	*l = NOLOC;
	l->file = s->m->file;
	if (!eat(s, "!"))
		return;
	l->node = (int)integer(s, -1, INT32_MAX);
	if (at(s, "\""))
		l->name = word(s);
	if (!at(s, ";"))
		l->op = word(s);
}

static void found_out(Parser *s, Graph *g, Node *n)
{
	bool first = true;

	if (!eat(s, "{"))
		return;
	for (const char *k; (k = next_key(s, &first));) {
		if (strcmp(k, "phase") == 0)
			n->phase = (Phase)choice(s, phase_name, 3);
		else if (strcmp(k, "stage") == 0)
			n->stage = (int)integer(s, -1, MOST_DEVICES);
		else if (strcmp(k, "time") == 0)
			n->time = real(s);
		else if (strcmp(k, "scratch") == 0)
			n->scratch = integer(s, 0, INT64_MAX);
		else if (strncmp(k, "mem", 3) == 0 && k[3] >= '0' && k[3] <= '9' && atoi(k + 3) < n->nout && n->out[atoi(k + 3)])
			place(s, g, n->out[atoi(k + 3)]);
		else
			unknown_key(s, k);
	}
}

static Value *output(Parser *s, Graph *g, Node *n, int i, const char *name)
{
	Value *v = NEW(s->a, Value);

	v->kind = VAL_NODE;
	v->def = n;
	v->index = i;
	v->batch_axis = -1;
	v->ignore_index = INT64_MIN;
	v->name = name;
	map_put(g->names, name, v);
	return v;
}

/* The names on the left: %a, _, %b = ; or the params before <- , which say nothing that the operands do not. */
static void left_side(Parser *s, Graph *g, Outs *o)
{
	o->n = 0;
	while (at(s, "%") || at(s, "_ ") || at(s, "_,") || at(s, "@")) {
		if (o->n == (int)(sizeof o->name / sizeof *o->name))
			fault(s, "too many outputs");
		if (eat(s, "@")) {
			word(s);
			if (eat(s, ","))
				continue;
			want(s, "<-");
			o->n = 0;
			return;
		}
		if (eat(s, "_")) {
			o->name[o->n++] = NULL;
		} else {
			want(s, "%");
			const char *name = word(s);

			if (map_get(g->names, name))
				fault(s, "%%%s is defined twice", name);
			o->name[o->n++] = name;
		}
		if (eat(s, ","))
			continue;
		want(s, "=");
		return;
	}
}

static void operands(Parser *s, Graph *g, Node *n)
{
	Value **in = NULL;
	int count = 0, cap = 0;

	want(s, "(");
	while (!eat(s, ")")) {
		if (count == MOST_ITEMS)
			fault(s, "too many operands");
		PUSH(s->a, in, count, cap) = lookup(s, g);
		if (!at(s, ")"))
			want(s, ",");
	}
	const OpDef *d = optab[n->op];
	if (count < d->minin || (d->maxin >= 0 && count > d->maxin))
		fault(s, "%s takes %d to %d operands, not %d", d->name, d->minin, d->maxin < 0 ? MOST_ITEMS : d->maxin, count);
	for (int i = 0; i < count && i < d->minin; i++)
		if (!in[i])
			fault(s, "operand %d of %s is missing", i, d->name);
	for (int i = 0; i < count && i < 32; i++)
		if (d->writes >> i & 1 && (!in[i] || in[i]->kind != VAL_PARAM))
			fault(s, "operand %d of %s must be a param", i, d->name);
	n->nin = count;
	n->in = NEWN(s->a, Value *, count);
	for (int i = 0; i < count; i++)
		node_set_input(n, i, in[i]);
}

static void link_last(Graph *g, Node *n)
{
	n->graph = g;
	n->prev = g->last;
	*(g->last ? &g->last->next : &g->first) = n;
	g->last = n;
	g->nnodes++;
}

static void node(Parser *s, Graph *g, Phase phase)
{
	Outs o;
	Node *n = NEW(s->a, Node);

	left_side(s, g, &o);
	const char *name = word(s);
	n->op = op_find(name);
	if (!n->op)
		fault(s, "no operator is called '%s'", name);
	n->phase = phase;
	n->stage = g->stage ? g->stage->id : -1;
	n->attr = attr_new(s->a, n->op);
	n->graph = g;
	operands(s, g, n);
	if (o.n > optab[n->op]->nout)
		fault(s, "%s has %d outputs at the most, not %d", name, optab[n->op]->nout, o.n);
	attributes(s, n->op, n->attr);
	n->nout = o.n;
	n->out = NEWN(s->a, Value *, o.n);
	for (int i = 0; i < o.n; i++) {
		want(s, i ? "," : ":");
		if (o.name[i]) {
			if (map_get(g->names, o.name[i]))
				fault(s, "%%%s is defined twice", o.name[i]);
			n->out[i] = output(s, g, n, i, o.name[i]);
			n->out[i]->type = type(s);
		} else {
			want(s, "_");
		}
	}
	location(s, &n->loc);
	want(s, ";");
	found_out(s, g, n);
	link_last(g, n);
}

/* ---- graphs ---- */

static void input(Parser *s, Graph *g)
{
	bool first = true;

	want(s, "%");
	const char *name = word(s);
	if (map_get(g->names, name))
		fault(s, "%%%s is defined twice", name);
	want(s, ":");
	Value *v = graph_input(g, name, type(s));
	if (!eat(s, "{"))
		return;
	for (const char *k; (k = next_key(s, &first));) {
		if (strcmp(k, "batch") == 0)
			v->batch_axis = (int)integer(s, 0, v->type.rank - 1);
		else if (strcmp(k, "range") == 0)
			v->index_range = integer(s, 1, INT64_MAX);
		else if (strcmp(k, "label") == 0)
			v->is_label = integer(s, 0, 1) != 0;
		else if (strcmp(k, "ignore") == 0)
			v->ignore_index = integer(s, INT64_MIN, INT64_MAX);
		else if (strcmp(k, "mem0") == 0)
			place(s, g, v);
		else
			unknown_key(s, k);
	}
}

/* Outputs are named before they are defined; they are looked up at the end. */
static void graph(Parser *s, Graph *g, Phase phase)
{
	const char **out = NULL;
	bool *global = NULL;
	int n = 0, cap = 0, ng = 0, capg = 0;

	want(s, "(");
	while (!eat(s, ")")) {
		input(s, g);
		if (!at(s, ")"))
			want(s, ",");
	}
	if (eat(s, "->"))
		do {
			bool param = at(s, "@");

			want(s, param ? "@" : "%");
			PUSH(s->a, global, ng, capg) = param;
			PUSH(s->a, out, n, cap) = word(s);
			if (n > 4096)
				fault(s, "too many outputs");
		} while (eat(s, ","));
	want(s, "{");
	while (!eat(s, "}")) {
		if (!*s->p)
			fault(s, "the graph is not closed");
		node(s, g, phase);
	}
	for (int i = 0; i < n; i++) {
		Value *v = map_get(global[i] ? &s->m->names : g->names, out[i]);

		if (!v)
			fault(s, "output %s is defined nowhere", out[i]);
		graph_output(g, v);
	}
}

/* ---- constants, params ---- */

static void element(Parser *s, DType t, char *to)
{
	double f;
	float g;
	int64_t i;

	if (t == DT_f32 || t == DT_f64) {
		f = real(s);
		g = (float)f;
		memcpy(to, t == DT_f32 ? (void *)&g : (void *)&f, (size_t)dtype_bytes(t));
		return;
	}
	if (t == DT_u64) {
		char *end;

		blanks(s);
		i = (int64_t)strtoull(s->p, &end, 10);
		if (end == s->p)
			fault(s, "a number is expected here");
		s->p = end;
	} else {
		int bits = 8 * dtype_bytes(t);

		i = t == DT_i64 ? integer(s, INT64_MIN, INT64_MAX) : dtype_signed(t) && !dtype_float(t) ?
			integer(s, -((int64_t)1 << (bits - 1)), ((int64_t)1 << (bits - 1)) - 1) :
			integer(s, 0, t == DT_bool ? 1 : ((int64_t)1 << bits) - 1);
	}
	memcpy(to, &i, (size_t)dtype_bytes(t));
}

static const char *new_global(Parser *s)
{
	want(s, "@");
	const char *name = word(s);
	if (map_get(&s->m->names, name))
		fault(s, "@%s is defined twice", name);
	return name;
}

static void constant(Parser *s)
{
	const char *name = new_global(s);

	want(s, ":");
	Type t = type(s);
	want(s, "=");
	if (eat(s, "elided")) {
		char *end;
		Value *v = module_const(s->m, name, t, NULL);

		blanks(s);
		v->hash = strtoull(s->p, &end, 16);
		if (end == s->p)
			fault(s, "a hash is expected here");
		s->p = end;
		return;
	}
	int64_t n = type_numel(&t);
	int size = dtype_bytes(t.dtype);
	if (n > MOST_ITEMS)
		fault(s, "a constant of %" PRId64 " elements cannot stand here", n);
	char *data = arena_alloc(s->a, (size_t)(n * size));
	want(s, "[");
	for (int64_t i = 0; i < n; i++) {
		if (i)
			want(s, ",");
		element(s, t.dtype, data + i * size);
	}
	want(s, "]");
	module_const(s->m, name, t, data);
}

static void param(Parser *s)
{
	const char *name = new_global(s);
	bool first = true;

	want(s, ":");
	Type t = type(s);
	Value *v = module_param(s->m, name, t, (ParamKind)choice(s, param_kind_name, 3));
	Param *p = v->param;
	if (p->kind != PARAM_STATE)
		p->onnx_name = v->name;
	if (!eat(s, "{"))
		return;
	for (const char *k; (k = next_key(s, &first));) {
		if (strcmp(k, "sync") == 0)
			p->sync = (SyncKind)choice(s, sync_name, 3);
		else if (strcmp(k, "versions") == 0)
			p->versions = (int)integer(s, 1, 1 << 20);
		else if (strcmp(k, "frozen") == 0)
			p->frozen = integer(s, 0, 1) != 0;
		else if (strcmp(k, "rows") == 0)
			p->rows = integer(s, 0, 1) != 0;
		else if (strcmp(k, "mean") == 0)
			p->is_mean = integer(s, 0, 1) != 0;
		else if (strcmp(k, "var") == 0)
			p->is_var = integer(s, 0, 1) != 0;
		else if (strcmp(k, "fill") == 0)
			p->fill = real(s);
		else if (strcmp(k, "random") == 0)
			p->random = (int)integer(s, INT32_MIN, INT32_MAX);
		else if (strcmp(k, "onnx") == 0)
			p->onnx_name = word(s);
		else if (strcmp(k, "of") == 0)
			p->of = one_value(s, NULL);
		else
			unknown_key(s, k);
	}
}

/* ---- stages ---- */

static void long_list(Parser *s, int n, int64_t *to)
{
	for (int i = 0; i < n; i++) {
		if (i)
			want(s, ",");
		to[i] = integer(s, INT64_MIN, INT64_MAX);
	}
}

static void stage(Parser *s)
{
	Stage *st = NEW(s->a, Stage);
	int cap = 0;

	st->id = (int)integer(s, 0, MOST_DEVICES);
	if (st->id != s->m->nstage)
		fault(s, "stage %d is expected here", s->m->nstage);
	want(s, "on");
	do
		PUSH(s->a, st->device, st->replicas, cap) = (int)integer(s, 0, MOST_DEVICES);
	while (eat(s, ","));
	want(s, "inflight");
	st->inflight = (int)integer(s, 0, 1 << 20);
	Stage **all = NEWN(s->a, Stage *, s->m->nstage + 1);
	for (int i = 0; i < s->m->nstage; i++)
		all[i] = s->m->stage[i];
	all[s->m->nstage++] = st;
	s->m->stage = all;
	want(s, "{");
	while (!eat(s, "}")) {
		if (eat(s, "params_at")) {
			st->param_at = NEWN(s->a, int64_t, st->nparam);
			long_list(s, st->nparam, st->param_at);
		} else if (eat(s, "params")) {
			do
				PUSH(s->a, st->param, st->nparam, st->capparam) = one_value(s, NULL);
			while (eat(s, ","));
		} else if (eat(s, "regions_at")) {
			long_list(s, REGION_COUNT, st->at);
		} else if (eat(s, "regions_bytes")) {
			long_list(s, REGION_COUNT, st->bytes);
		} else if (eat(s, "memory")) {
			int64_t v[2];

			long_list(s, 2, v);
			st->slot_bytes = v[0];
			st->arena = v[1];
		} else if (eat(s, "forward")) {
			if (st->forward)
				fault(s, "a second forward");
			st->forward = stage_graph_new(s->m, st, "forward");
			graph(s, st->forward, PHASE_FWD);
		} else if (eat(s, "backward")) {
			if (st->backward)
				fault(s, "a second backward");
			st->backward = stage_graph_new(s->m, st, "backward");
			graph(s, st->backward, PHASE_BWD);
		} else if (eat(s, "update")) {
			if (st->update)
				fault(s, "a second update");
			st->update = stage_graph_new(s->m, st, "update");
			graph(s, st->update, PHASE_UPDATE);
		} else if (eat(s, "keep")) {
			Graph *g = st->forward ? st->forward : st->backward;

			do
				PUSH(s->a, st->keep, st->nkeep, st->capkeep) = one_value(s, g);
			while (eat(s, ","));
		} else {
			fault(s, "params, forward, backward, update, keep or } is expected here");
		}
	}
}

/* ---- the schedule ---- */

static int *int_list(Parser *s, const char *name, int n, int hi)
{
	int *v = NEWN(s->a, int, n);

	want(s, name);
	for (int i = 0; i < n; i++) {
		if (i)
			want(s, ",");
		v[i] = (int)integer(s, 0, hi);
	}
	return v;
}

/* 0SEND_F3@1~2 */
static Action action(Parser *s)
{
	Action x = { .mb = -1 };

	x.stage = (int)integer(s, 0, MOST_DEVICES);
	int best = -1;
	for (int i = 0; i < ACT_COUNT; i++)
		if (strncmp(s->p, action_name[i], strlen(action_name[i])) == 0 &&
		    (best < 0 || strlen(action_name[i]) > strlen(action_name[best])))
			best = i;
	if (best < 0)
		fault(s, "an action is expected here");
	x.kind = (ActKind)best;
	s->p += strlen(action_name[best]);
	if (*s->p >= '0' && *s->p <= '9')
		x.mb = (int)integer(s, 0, 1 << 24);
	if (*s->p == '@') {
		s->p++;
		x.slot = (int)integer(s, 0, 1 << 20);
	}
	if (*s->p == '~') {
		s->p++;
		x.version = (int)integer(s, 0, 1 << 20);
	}
	return x;
}

static void schedule(Parser *s)
{
	Schedule *x = NEW(s->a, Schedule);

	x->name = word(s);
	want(s, "stages");
	x->nstage = (int)integer(s, 1, 4096);
	want(s, "microbatches");
	x->nmicro = (int)integer(s, 1, 1 << 16);
	want(s, "devices");
	x->ndevice = (int)integer(s, 1, MOST_DEVICES);
	want(s, "{");
	x->replicas = int_list(s, "replicas", x->nstage, MOST_DEVICES);
	x->inflight = int_list(s, "inflight", x->nstage, 1 << 20);
	x->device = NEWN(s->a, int *, x->nstage);
	x->replica_of = NEWN(s->a, int *, x->nstage);
	for (int i = 0; i < x->nstage; i++)
		x->device[i] = int_list(s, "ranks", x->replicas[i], x->ndevice - 1);
	for (int i = 0; i < x->nstage; i++) {
		x->replica_of[i] = int_list(s, "replica_of", x->nmicro, MOST_DEVICES);
		for (int k = 0; k < x->nmicro; k++)
			if (x->replica_of[i][k] >= x->replicas[i])
				fault(s, "microbatch %d of stage %d belongs to replica %d of %d", k, i, x->replica_of[i][k], x->replicas[i]);
	}
	x->dev = NEWN(s->a, DeviceSchedule, x->ndevice);
	for (int r = 0; r < x->ndevice; r++) {
		want(s, "device");
		while (blanks(s), *s->p >= '0' && *s->p <= '9')
			schedule_push(s->a, x, r, action(s));
	}
	want(s, "}");
	s->m->schedule = x;
}

/* ---- the whole ---- */

static void header(Parser *s)
{
	bool first = true;

	want(s, "module");
	const char *name = word(s);
	s->m = module_new(s->a, name);
	s->m->file = NULL;
	if (!eat(s, "{"))
		return;
	for (const char *k; (k = next_key(s, &first));) {
		if (strcmp(k, "file") == 0)
			s->m->file = word(s);
		else if (strcmp(k, "opset") == 0)
			s->m->opset = (int)integer(s, 0, 1000);
		else if (strcmp(k, "batch") == 0)
			s->m->batch = integer(s, 1, (int64_t)1 << 40);
		else if (strcmp(k, "export_batch") == 0)
			s->m->export_batch = integer(s, 1, (int64_t)1 << 40);
		else if (strcmp(k, "microbatches") == 0)
			s->m->microbatches = integer(s, 1, 1 << 16);
		else if (strcmp(k, "has") == 0)
			s->m->has = (unsigned)integer(s, 0, UINT32_MAX);
		else
			unknown_key(s, k);
	}
}

static void loss(Parser *s)
{
	s->m->loss = one_value(s, s->m->graph);
	if (eat(s, "count"))
		s->m->count = one_value(s, s->m->graph);
}

Module *module_parse(Arena *a, const char *file, const char *text, Diag *d)
{
	Parser s = { .a = a, .d = d, .file = arena_str(a, file), .p = text, .line_start = text, .line = 1 };

	if (setjmp(s.fail))
		return NULL;
	header(&s);
	for (blanks(&s); *s.p; blanks(&s)) {
		if (eat(&s, "const")) {
			constant(&s);
		} else if (eat(&s, "param")) {
			param(&s);
		} else if (eat(&s, "graph")) {
			if (s.m->graph || s.m->nstage)
				fault(&s, "a second graph");
			want(&s, "@");
			s.m->graph = graph_new(s.m, word(&s));
			graph(&s, s.m->graph, PHASE_FWD);
		} else if (eat(&s, "stage")) {
			stage(&s);
		} else if (eat(&s, "loss")) {
			loss(&s);
		} else if (eat(&s, "schedule")) {
			schedule(&s);
		} else {
			fault(&s, "const, param, graph, stage, loss or schedule is expected here");
		}
	}
	return s.m;
}
