/* The text form (.pdir), inwards: a recursive descent over the grammar in print.c. Any text gives a module or a message
 * with line and column. Here: nodes, graphs, constants, params, the whole; lex.c has the words, parse_stage.c the stages. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "parse.h"

/* ---- values ---- */

static Value *lookup(Parser *s, Graph *g)
{
	lex_blanks(s);
	if (lex_eat(s, "_"))
		return NULL;
	bool global = *s->p == '@';
	if (!global && *s->p != '%')
		fault(s, "%%value or @param is expected here");
	const char *start = s->p++;
	const char *name = lex_word(s);
	Value *v = global ? map_get(&s->m->names, name) : g ? map_get(g->names, name) : NULL;
	if (!v) {
		s->p = start;
		fault(s, "%c%s is defined nowhere before", global ? '@' : '%', name);
	}
	return v;
}

Value *parse_value(Parser *s, Graph *g)
{
	Value *v = lookup(s, g);

	if (!v)
		fault(s, "a value is expected here, not _");
	return v;
}

/* ---- attributes ---- */

static void attributes(Parser *s, OpKind op, char *attr)
{
	bool first = true;

	if (!lex_eat(s, "{"))
		return;
	for (const char *k; (k = lex_key(s, &first));) {
		const AttrDef *x = op_attr(op, k);
		void *to = x ? attr + x->offset : NULL;

		if (!x)
			fault(s, "%s has no attribute '%s'", optab[op]->name, k);
		if (x->kind == A_INT) {
			*(int64_t *)to = lex_int(s, INT64_MIN, INT64_MAX);
		} else if (x->kind == A_FLOAT) {
			*(double *)to = lex_real(s);
		} else if (x->kind == A_STR) {
			*(const char **)to = lex_word(s);
		} else if (x->kind == A_INTS) {
			int64_t *v = NULL;
			int n = 0, cap = 0;

			lex_want(s, "[");
			while (!lex_eat(s, "]")) {
				if (n == MOST_ITEMS)
					fault(s, "the list is too long");
				PUSH(s->a, v, n, cap) = lex_int(s, INT64_MIN, INT64_MAX);
				if (!lex_at(s, "]"))
					lex_want(s, ",");
			}
			*(Ints *)to = (Ints){ n, v };
		} else {
			double *v = NULL;
			int n = 0, cap = 0;

			lex_want(s, "[");
			while (!lex_eat(s, "]")) {
				if (n == MOST_ITEMS)
					fault(s, "the list is too long");
				PUSH(s->a, v, n, cap) = lex_real(s);
				if (!lex_at(s, "]"))
					lex_want(s, ",");
			}
			*(Floats *)to = (Floats){ n, v };
		}
	}
}

/* slot+64 or slot+64=%x */
static void place(Parser *s, Graph *g, Value *v)
{
	const char *e;

	lex_blanks(s);
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
	lex_want(s, "+");
	v->offset = lex_int(s, 0, INT64_MAX);
	if (lex_eat(s, "="))
		v->alias = parse_value(s, g);
}

/* ---- nodes ---- */

typedef struct Outs {
	const char *name[MAXIN * 4];
	int n;
} Outs;

static void location(Parser *s, Loc *l)
{
	*l = NOLOC;
	l->file = s->m->file;
	if (!lex_eat(s, "!"))
		return;
	l->node = (int)lex_int(s, -1, INT32_MAX);
	if (lex_at(s, "\""))
		l->name = lex_word(s);
	if (!lex_at(s, ";"))
		l->op = lex_word(s);
}

static void found_out(Parser *s, Graph *g, Node *n)
{
	bool first = true;

	if (!lex_eat(s, "{"))
		return;
	for (const char *k; (k = lex_key(s, &first));) {
		if (strcmp(k, "phase") == 0)
			n->phase = (Phase)lex_choice(s, phase_name, 3);
		else if (strcmp(k, "stage") == 0)
			n->stage = (int)lex_int(s, -1, MOST_DEVICES);
		else if (strcmp(k, "time") == 0)
			n->time = lex_real(s);
		else if (strcmp(k, "scratch") == 0)
			n->scratch = lex_int(s, 0, INT64_MAX);
		else if (strcmp(k, "module") == 0)
			n->loc.module = lex_word(s);
		else if (strncmp(k, "mem", 3) == 0 && k[3] >= '0' && k[3] <= '9' && atoi(k + 3) < n->nout &&
			 n->out[atoi(k + 3)])
			place(s, g, n->out[atoi(k + 3)]);
		else
			lex_unknown_key(s, k);
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
	while (lex_at(s, "%") || lex_at(s, "_ ") || lex_at(s, "_,") || lex_at(s, "@")) {
		if (o->n == (int)(sizeof o->name / sizeof *o->name))
			fault(s, "too many outputs");
		if (lex_eat(s, "@")) {
			lex_word(s);
			if (lex_eat(s, ","))
				continue;
			lex_want(s, "<-");
			o->n = 0;
			return;
		}
		if (lex_eat(s, "_")) {
			o->name[o->n++] = NULL;
		} else {
			lex_want(s, "%");
			const char *name = lex_word(s);

			if (map_get(g->names, name))
				fault(s, "%%%s is defined twice", name);
			o->name[o->n++] = name;
		}
		if (lex_eat(s, ","))
			continue;
		lex_want(s, "=");
		return;
	}
}

static void operands(Parser *s, Graph *g, Node *n)
{
	Value **in = NULL;
	int count = 0, cap = 0;

	lex_want(s, "(");
	while (!lex_eat(s, ")")) {
		if (count == MOST_ITEMS)
			fault(s, "too many operands");
		PUSH(s->a, in, count, cap) = lookup(s, g);
		if (!lex_at(s, ")"))
			lex_want(s, ",");
	}
	const OpDef *d = optab[n->op];
	if (count < d->minin || (d->maxin >= 0 && count > d->maxin))
		fault(s, "%s takes %d to %d operands, not %d", d->name, d->minin, d->maxin < 0 ? MOST_ITEMS : d->maxin,
			count);
	for (int i = 0; i < count && i < d->minin; i++)
		if (!in[i])
			fault(s, "operand %d of %s is missing", i, d->name);
	n->nin = count;
	for (int i = 0; i < count && i < 32; i++)
		if (node_writes(n) >> i & 1 && (!in[i] || in[i]->kind != VAL_PARAM))
			fault(s, "operand %d of %s must be a param", i, d->name);
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
	const char *name = lex_word(s);
	n->op = op_find(name);
	if (!n->op)
		fault(s, "no operator is called '%s'", name);
	n->phase = phase;
	n->stage = g->stage ? g->stage->id : -1;
	n->attr = attr_new(s->a, n->op);
	n->graph = g;
	operands(s, g, n);
	attributes(s, n->op, n->attr);
	if (o.n > op_outs(n->op, n->attr))
		fault(s, "%s has %d outputs at the most, not %d", name, op_outs(n->op, n->attr), o.n);
	n->nout = o.n;
	n->out = NEWN(s->a, Value *, o.n);
	for (int i = 0; i < o.n; i++) {
		lex_want(s, i ? "," : ":");
		if (o.name[i]) {
			if (map_get(g->names, o.name[i]))
				fault(s, "%%%s is defined twice", o.name[i]);
			n->out[i] = output(s, g, n, i, o.name[i]);
			n->out[i]->type = lex_type(s);
		} else {
			lex_want(s, "_");
		}
	}
	location(s, &n->loc);
	lex_want(s, ";");
	found_out(s, g, n);
	link_last(g, n);
}

/* ---- graphs ---- */

static void input(Parser *s, Graph *g)
{
	bool first = true;

	lex_want(s, "%");
	const char *name = lex_word(s);
	if (map_get(g->names, name))
		fault(s, "%%%s is defined twice", name);
	lex_want(s, ":");
	Value *v = graph_input(g, name, lex_type(s));
	if (!lex_eat(s, "{"))
		return;
	for (const char *k; (k = lex_key(s, &first));) {
		if (strcmp(k, "batch") == 0)
			v->batch_axis = (int)lex_int(s, 0, v->type.rank - 1);
		else if (strcmp(k, "range") == 0)
			v->index_range = lex_int(s, 1, INT64_MAX);
		else if (strcmp(k, "label") == 0)
			v->is_label = lex_int(s, 0, 1) != 0;
		else if (strcmp(k, "ignore") == 0)
			v->ignore_index = lex_int(s, INT64_MIN, INT64_MAX);
		else if (strcmp(k, "masked") == 0)
			v->masked = lex_int(s, 0, 1) != 0;
		else if (strcmp(k, "presence") == 0)
			v->presence = lex_int(s, 0, 1) != 0;
		else if (strcmp(k, "mem0") == 0)
			place(s, g, v);
		else
			lex_unknown_key(s, k);
	}
}

/* Outputs are named before they are defined; they are looked up at the end. */
void parse_graph(Parser *s, Graph *g, Phase phase)
{
	const char **out = NULL;
	bool *global = NULL;
	int n = 0, cap = 0, ng = 0, capg = 0;

	lex_want(s, "(");
	while (!lex_eat(s, ")")) {
		input(s, g);
		if (!lex_at(s, ")"))
			lex_want(s, ",");
	}
	if (lex_eat(s, "->"))
		do {
			bool param = lex_at(s, "@");

			lex_want(s, param ? "@" : "%");
			PUSH(s->a, global, ng, capg) = param;
			PUSH(s->a, out, n, cap) = lex_word(s);
			if (n > 4096)
				fault(s, "too many outputs");
		} while (lex_eat(s, ","));
	lex_want(s, "{");
	while (!lex_eat(s, "}")) {
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
		f = lex_real(s);
		g = (float)f;
		memcpy(to, t == DT_f32 ? (void *)&g : (void *)&f, (size_t)dtype_bytes(t));
		return;
	}
	if (t == DT_u64) {
		char *end;

		lex_blanks(s);
		i = (int64_t)strtoull(s->p, &end, 10);
		if (end == s->p)
			fault(s, "a number is expected here");
		s->p = end;
	} else {
		int bits = 8 * dtype_bytes(t);

		i = t == DT_i64 ? lex_int(s, INT64_MIN, INT64_MAX)
		    : dtype_signed(t) && !dtype_float(t)
		            ? lex_int(s, -((int64_t)1 << (bits - 1)), ((int64_t)1 << (bits - 1)) - 1)
		            : lex_int(s, 0, t == DT_bool ? 1 : ((int64_t)1 << bits) - 1);
	}
	memcpy(to, &i, (size_t)dtype_bytes(t));
}

static const char *new_global(Parser *s)
{
	lex_want(s, "@");
	const char *name = lex_word(s);
	if (map_get(&s->m->names, name))
		fault(s, "@%s is defined twice", name);
	return name;
}

static void constant(Parser *s)
{
	const char *name = new_global(s);

	lex_want(s, ":");
	Type t = lex_type(s);
	lex_want(s, "=");
	if (lex_eat(s, "elided")) {
		char *end;
		Value *v = module_const(s->m, name, t, NULL);

		lex_blanks(s);
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
	lex_want(s, "[");
	for (int64_t i = 0; i < n; i++) {
		if (i)
			lex_want(s, ",");
		element(s, t.dtype, data + i * size);
	}
	lex_want(s, "]");
	module_const(s->m, name, t, data);
}

/* A parameter that is said to be rows of another has to be. */
static void piece(Parser *s, const Value *v)
{
	const Param *p = v->param;
	const Type *t = &v->type, *all = p->whole ? &p->whole->type : NULL;
	bool fits = all && p->whole->kind == VAL_PARAM && all->rank >= 1 && all->rank == t->rank &&
	            all->dtype == t->dtype && p->row <= all->dim[0] - t->dim[0];

	for (int i = 1; fits && i < t->rank; i++)
		fits = t->dim[i] == all->dim[i];
	if (all && !fits)
		fault(s, "'%s' is not of rows %" PRId64 " on of '%s'", v->name, p->row, p->whole->name);
}

/* What is divided, or padded, is an axis of the parameter; state in parts has those of its weight. */
static void axes(Parser *s, const Value *v)
{
	const Param *p = v->param;
	const Type *t = p->part && p->of ? &p->of->type : &v->type;
	const int64_t members = p->members > 1 ? p->members : 1;

	if (p->shard.kind == SHARD_AXIS && p->shard.axis >= t->rank)
		fault(s, "'%s' has no axis %d", v->name, p->shard.axis);
	if (p->pad && (p->pad_axis >= t->rank || p->pad >= t->dim[p->pad_axis] * members))
		fault(s, "'%s' has no axis %d of more than %" PRId64, v->name, p->pad_axis, p->pad);
}

static void param(Parser *s)
{
	const char *name = new_global(s);
	bool first = true;

	lex_want(s, ":");
	Type t = lex_type(s);
	if (!type_numel(&t))
		fault(s, "parameter '%s' has no elements", name);
	Value *v = module_param(s->m, name, t, (ParamKind)lex_choice(s, param_kind_name, 3));
	Param *p = v->param;
	if (p->kind != PARAM_STATE)
		p->onnx_name = v->name;
	if (!lex_eat(s, "{"))
		return;
	for (const char *k; (k = lex_key(s, &first));) {
		if (strcmp(k, "sync") == 0)
			p->sync = (SyncKind)lex_choice(s, sync_name, SYNC_KINDS);
		else if (strcmp(k, "frozen") == 0)
			p->frozen = lex_int(s, 0, 1) != 0;
		else if (strcmp(k, "rows") == 0)
			p->rows = lex_int(s, 0, 1) != 0;
		else if (strcmp(k, "own") == 0)
			p->own = lex_int(s, 0, 1) != 0;
		else if (strcmp(k, "mean") == 0)
			p->is_mean = lex_int(s, 0, 1) != 0;
		else if (strcmp(k, "var") == 0)
			p->is_var = lex_int(s, 0, 1) != 0;
		else if (strcmp(k, "fill") == 0)
			p->fill = lex_real(s);
		else if (strcmp(k, "random") == 0)
			p->random = (int)lex_int(s, INT32_MIN, INT32_MAX);
		else if (strcmp(k, "onnx") == 0)
			p->onnx_name = lex_word(s);
		else if (strcmp(k, "of") == 0)
			p->of = parse_value(s, NULL);
		else if (strcmp(k, "shard") == 0)
			p->shard = (Shard){ SHARD_AXIS, (int)lex_int(s, 0, MAXRANK - 1),
				p->shard.outer ? p->shard.outer : 1 };
		else if (strcmp(k, "blocks") == 0)
			p->shard.outer = lex_int(s, 1, (int64_t)1 << 40);
		else if (strcmp(k, "members") == 0)
			p->members = (int)lex_int(s, 2, 1 << 16);
		else if (strcmp(k, "pad") == 0)
			p->pad = lex_int(s, 1, (int64_t)1 << 40);
		else if (strcmp(k, "padded") == 0)
			p->pad_axis = (int)lex_int(s, 0, MAXRANK - 1);
		else if (strcmp(k, "part") == 0)
			p->part = lex_int(s, 1, INT64_MAX);
		else if (strcmp(k, "pieces") == 0)
			p->pieces = (int)lex_int(s, 2, 1 << 20);
		else if (strcmp(k, "whole") == 0)
			p->whole = parse_value(s, NULL);
		else if (strcmp(k, "row") == 0)
			p->row = lex_int(s, 0, INT64_MAX);
		else
			lex_unknown_key(s, k);
	}
	if (p->shard.kind == SHARD_AXIS && !p->members)
		p->members = s->m->tensor > 1 ? s->m->tensor : 1;
	piece(s, v);
	axes(s, v);
}

/* ---- the whole ---- */

static double seconds(Parser *s)
{
	const double v = lex_real(s);

	if (!(v >= 0 && v < 1e9))
		fault(s, "seconds must lie in 0..1e9");
	return v;
}

/* "4-8": devices of a replica, by stage. */
static void groups(Parser *s, const char *text)
{
	int cap = 0, read = 0;

	s->m->ntensor_of = 0;
	for (int n; sscanf(text, "%5d%n", &n, &read) == 1; text += *text == '-') {
		if (n < 1 || n > 1 << 16)
			break;
		PUSH(s->m->arena, s->m->tensor_of, s->m->ntensor_of, cap) = n;
		text += read;
	}
	if (*text || !s->m->ntensor_of)
		fault(s, "the devices of each stage's replicas are expected here, as \"4-8\"");
}

static void header(Parser *s)
{
	bool first = true;

	lex_want(s, "module");
	const char *name = lex_word(s);
	s->m = module_new(s->a, name);
	s->m->file = NULL;
	if (!lex_eat(s, "{"))
		return;
	for (const char *k; (k = lex_key(s, &first));) {
		if (strcmp(k, "file") == 0)
			s->m->file = lex_word(s);
		else if (strcmp(k, "opset") == 0)
			s->m->opset = (int)lex_int(s, 0, 1000);
		else if (strcmp(k, "batch") == 0)
			s->m->batch = lex_int(s, 1, (int64_t)1 << 40);
		else if (strcmp(k, "tensor") == 0)
			s->m->tensor = (int)lex_int(s, 2, 1 << 16);
		else if (strcmp(k, "tensors") == 0)
			groups(s, lex_word(s));
		else if (strcmp(k, "export_batch") == 0)
			s->m->export_batch = lex_int(s, 1, (int64_t)1 << 40);
		else if (strcmp(k, "microbatches") == 0)
			s->m->microbatches = lex_int(s, 1, 1 << 16);
		else if (strcmp(k, "grains") == 0)
			s->m->grains = lex_int(s, 1, 1 << 16);
		else if (strcmp(k, "step_time") == 0)
			s->m->step_time = seconds(s);
		else if (strcmp(k, "has") == 0)
			s->m->has = lex_facts(s);
		else
			lex_unknown_key(s, k);
	}
}

static void loss(Parser *s)
{
	s->m->loss = parse_value(s, s->m->graph);
	if (lex_eat(s, "count"))
		s->m->count = parse_value(s, s->m->graph);
}

Module *module_parse(Arena *a, const char *file, const char *text, Diag *d)
{
	Parser s = { .a = a, .d = d, .file = arena_str(a, file), .p = text, .line_start = text, .line = 1 };

	if (setjmp(s.fail))
		return NULL;
	header(&s);
	for (lex_blanks(&s); *s.p; lex_blanks(&s)) {
		if (lex_eat(&s, "const")) {
			constant(&s);
		} else if (lex_eat(&s, "param")) {
			param(&s);
		} else if (lex_eat(&s, "graph")) {
			if (s.m->graph || s.m->nstage)
				fault(&s, "a second graph");
			lex_want(&s, "@");
			s.m->graph = graph_new(s.m, lex_word(&s));
			parse_graph(&s, s.m->graph, PHASE_FWD);
		} else if (lex_eat(&s, "stage")) {
			parse_stage(&s);
		} else if (lex_eat(&s, "loss")) {
			loss(&s);
		} else if (lex_eat(&s, "schedule")) {
			parse_schedule(&s);
		} else {
			fault(&s, "const, param, graph, stage, loss or schedule is expected here");
		}
	}
	return s.m;
}
