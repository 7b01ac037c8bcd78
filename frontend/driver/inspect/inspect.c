/* pdcc inspect: what a model is made of and what training it would take, without writing code.
 *
 * The model is trained on paper: the passes that compile runs, on one device, up to the memory plan. Where that cannot
 * be (no loss to be found, an operator without gradient on its way, an inference export) the forward graph alone is
 * looked at, and what is missing is said. Times are those of the cost model. */
#define _XOPEN_SOURCE 700 /* open_memstream */
#include <stdlib.h>
#include <string.h>
#include "passes/common/plan.h"
#include "inspect.h"
#include "ir/analysis.h"
#include "passes/cost/cost.h"
#include "passes/plan/cuts.h"

/* ---- parameters: who reads them ---- */

typedef struct Readers {
	Arena *a;
	Map seen, names;
	int rows, others;
	const char *text;
	const Node *first;
} Readers;

/* The node of the model that n stems from, and its module. */
static const char *label(const Node *n)
{
	if (!(n->loc.name && *n->loc.name) && n->fwd)
		n = n->fwd;
	if (n->loc.name && *n->loc.name)
		return n->loc.module ? arena_printf(n->graph->module->arena, "%s (%s)", n->loc.name, n->loc.module)
		                     : n->loc.name;
	return n->nout && n->out[0] ? n->out[0]->name : optab[n->op]->name;
}

/* The same in a sentence. */
static const char *quoted(Arena *a, const Node *n)
{
	const char *text = str_shown(a, label(n)), *module = strstr(text, " (");

	return module ? arena_printf(a, "'%.*s'%s", (int)(module - text), text, module) : arena_printf(a, "'%s'", text);
}

/* n only lays out parameters and constants anew: exports cut weights into gates, turn them and put them together. */
static bool lays_out(const Node *n)
{
	bool yes = optab[n->op]->flags & OP_VIEW || n->op == OP_Transpose || n->op == OP_Slice || n->op == OP_Split ||
	           n->op == OP_Concat;

	for (int i = 0; yes && i < n->nin; i++)
		if (n->in[i] && n->in[i]->kind != VAL_PARAM && n->in[i]->kind != VAL_CONST)
			yes = n->in[i]->def && lays_out(n->in[i]->def);
	return yes;
}

/* Nodes of the model that read v or what it becomes by layout alone, each once. direct: v is the parameter itself. */
static void readers(Readers *r, const Value *v, bool direct)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *n = v->uses[i].node;

		if (n->phase != PHASE_FWD || map_has(&r->seen, n))
			continue;
		map_put(&r->seen, n, (void *)(uintptr_t)n);
		if (lays_out(n)) {
			for (int k = 0; k < n->nout; k++)
				if (n->out[k])
					readers(r, n->out[k], false);
			continue;
		}
		if (map_has(&r->names, label(n)))
			continue;
		map_put(&r->names, label(n), (void *)(uintptr_t)n);
		if (direct && v->uses[i].index == 0 && n->op == OP_Gather && attr_int(n, "axis") == 0)
			r->rows++;
		else
			r->others++;
		r->first = r->first ? r->first : n;
		if (r->rows + r->others <= 3)
			r->text = arena_printf(
				r->a, "%s%s%s %s", r->text, *r->text ? ", " : "", optab[n->op]->name, quoted(r->a, n));
		else if (r->rows + r->others == 4)
			r->text = arena_printf(r->a, "%s ...", r->text);
	}
}

static void look_at_params(Look *l)
{
	Arena *a = l->c->a;

	for (int i = 0; i < l->m->nparam; i++) {
		const Value *v = l->m->param[i];
		Readers r = { .a = a, .text = "" };

		if (v->param->kind == PARAM_STATE)
			continue;
		map_init(&r.seen, a, false);
		map_init(&r.names, a, true);
		readers(&r, v, true);
		PUSH(a, l->param, l->nparam, l->capparam) = (ParamRow){ .name = v->name,
			.shape = str_type(a, &v->type),
			.readers = r.text,
			.home = r.first ? label(r.first) : NULL,
			.elements = type_numel(&v->type),
			.bytes = value_bytes(v),
			.kind = v->param->kind == PARAM_BUFFER ? "buffer"
			        : !r.first                     ? "unused"
			        : v->param->frozen             ? "frozen"
			        : r.rows && r.others           ? "mixed"
			        : r.rows                       ? "row-sparse"
			        : r.others > 1                 ? "tied"
			                                       : "dense" };
	}
}

/* ---- what goes in and out, and where the graph may be cut ---- */

static void look_at_values(Look *l)
{
	const Graph *g = l->m->graph;

	for (int i = 0; i < g->nin + g->nout; i++) {
		const Value *v = i < g->nin ? g->in[i] : g->out[i - g->nin];

		PUSH(l->c->a, l->io, l->nio, l->capio) =
			(struct IoRow){ v->name, str_type(l->c->a, &v->type), v->batch_axis, v->is_label, i >= g->nin };
	}
}

static void look_at_cuts(Look *l, PassCx *cx)
{
	Cut *cut;

	l->ncut = list_cuts(l->m, cx, &cut);
	l->cut = NEWN(l->c->a, struct CutRow, l->ncut + 1);
	for (int i = 0; i < l->ncut; i++)
		l->cut[i] = (struct CutRow){ label(cut[i].node), cut[i].node->op, cut[i].before, cut[i].bytes };
}

/* ---- nodes ---- */

static Item *item_of(Look *l, const char *name)
{
	size_t k = (size_t)(uintptr_t)map_get(&l->places, name);

	if (!k) {
		PUSH(l->c->a, l->item, l->nitem, l->capitem) = (Item){ .name = name };
		k = (size_t)l->nitem;
		map_put(&l->places, name, (void *)(uintptr_t)k);
	}
	return &l->item[k - 1];
}

/* The graph with Node.time, before it is taken apart into stages. */
static void look_at_nodes(Look *l)
{
	for (const Node *n = l->m->graph->first; n; n = n->next) {
		Item *x = item_of(l, label(n));
		const double flops = optab[n->op]->cost ? optab[n->op]->cost(n).flops : 0;

		l->flops[n->phase] += flops;
		l->time[n->phase] += n->time;
		x->time[n->phase] += n->time;
		if (n->phase != PHASE_FWD)
			continue;
		l->count[n->op]++;
		l->op_flops[n->op] += flops;
		x->flops += flops;
		if (!x->op || n->time > x->most) {
			x->op = n->op;
			x->most = n->time;
		}
	}
}

/* ---- memory, once it is planned ---- */

static const Value *root(const Value *v) { return v->alias ? v->alias : v; }

static void look_at_memory(Look *l)
{
	const Stage *s = l->stage = l->m->stage[0];
	Map seen;

	map_init(&seen, l->c->a, false);
	for (int i = 0; i < s->nkeep; i++) {
		const Value *v = root(s->keep[i]);

		if (v->region != REGION_SLOT || map_has(&seen, v))
			continue;
		map_put(&seen, v, (void *)(uintptr_t)v);
		item_of(l, v->def ? label(v->def) : v->name)->kept += value_bytes(v) * s->inflight;
	}
	for (int i = 0; i < s->nparam; i++) {
		const Value *v = s->param[i], *of = v->param->of ? v->param->of : v;

		for (int k = 0; k < l->nparam; k++)
			if (strcmp(l->param[k].name, of->name) == 0 && l->param[k].home)
				item_of(l, l->param[k].home)->weights += value_bytes(v);
	}
	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_Accumulate && n->out[0]->region == REGION_GRADS && n->in[0]->def)
			item_of(l, label(n->in[0]->def))->weights +=
				value_bytes(n->out[0]) * ((s->bytes[REGION_GRADS] > 0) + (s->bytes[REGION_LEAF] > 0));
}

/* ---- the passes ---- */

/* One device that everything fits on. */
static PassCx context(Compile *c)
{
	Cluster *one = NEW(c->a, Cluster);
	Training *t = NEW(c->a, Training);

	*one = c->cluster;
	one->device = arena_dup(c->a, c->cluster.device, sizeof *one->device);
	one->device->memory = 0;
	one->ndevice = 1;
	*t = c->o->t;
	t->plan.replicas = "1";
	return (PassCx){ .scratch = c->scratch, .d = c->d, .cluster = one, .train = t, .plan = &c->plan };
}

static bool look_at_training(Look *l)
{
	static const char *const before[] = { "shapes", "train", "simplify", "patterns" };
	static const char *const gradients[] = { "autodiff", "cleanup", "layout", "cost" };
	PassCx cx = context(l->c);
	const PassOpt po = { 0 };
	int from = 0;

	if (!run_passes(l->m, &cx, &po, before, 4))
		return false;
	look_at_values(l);
	look_at_params(l);
	if (!run_passes(l->m, &cx, &po, gradients, 4))
		return false;
	look_at_nodes(l);
	look_at_cuts(l, &cx);
	while (strcmp(pass_table[from].name, "partition"))
		from++;
	for (; from < npasses; from++)
		if (!run_passes(l->m, &cx, &po, &pass_table[from].name, 1))
			return false;
	look_at_memory(l);
	return true;
}

static bool look_at_forward(Look *l)
{
	static const char *const names[] = { "shapes", "simplify", "patterns" };
	PassCx cx = context(l->c);
	const PassOpt po = { 0 };
	const Speed s = device_speed(cx.cluster, 0);

	if (!run_passes(l->m, &cx, &po, names, 3))
		return false;
	look_at_values(l);
	look_at_params(l);
	for (Node *n = l->m->graph->first; n; n = n->next)
		n->time = node_time(n, &s);
	look_at_nodes(l);
	look_at_cuts(l, &cx);
	return true;
}

/* ---- one attempt: what is said on the way is kept back ---- */

/* "x.onnx: error: the reason [E0310]": the reason; NULL: there is none. */
static const char *first_error(Arena *a, const char *said)
{
	const char *s = strstr(said, "error: ");

	return s ? arena_strn(a, s + 7, strcspn(s + 7, "\n")) : NULL;
}

enum { TRAINED, FORWARD, EVAL, INFERENCE_EXPORT = 208 };

/* how: EVAL reads inference exports too. *said: messages. */
static bool attempt(Look *l, int how, char **said)
{
	Diag *d = l->c->d;
	FILE *out = d->out;
	size_t n = 0;

	*l = (Look){ .c = l->c };
	l->c->m = NULL;
	map_init(&l->places, l->c->a, true);
	l->c->eval = how == EVAL;
	d->out = open_memstream(said, &n);
	d->errors = 0;
	bool ok = compile_read(l->c);
	l->m = l->c->m;
	if (ok && how == EVAL && l->m->graph->nin && l->m->graph->in[0]->batch_axis >= 0) /* the file's, when fixed */
		l->m->batch = l->m->graph->in[0]->type.dim[l->m->graph->in[0]->batch_axis];
	ok = ok && (how == TRAINED ? look_at_training(l) : look_at_forward(l));
	fclose(d->out);
	d->out = out;
	return ok;
}

int inspect_main(Compile *c)
{
	Look l = { .c = c };
	char *said, *again = NULL;

	if (inspects_cluster(c->model))
		return inspect_is_plan(c) ? inspect_json(c) : inspect_cluster(c);
	const int status = inspect_file(c);
	if (status >= 0)
		return status;
	if (!attempt(&l, TRAINED, &said)) {
		const int errors = c->d->errors, code = c->d->last_code;
		const char *why = first_error(c->a, said);
		const bool ok = (l.m || code == INFERENCE_EXPORT) && attempt(&l, l.m ? FORWARD : EVAL, &again);

		free(again);
		if (!ok) {
			fputs(said, c->d->out);
			free(said);
			c->d->errors = errors;
			c->d->last_code = code;
			return compile_status(c);
		}
		l.missing = why ? why : "training it is refused";
		if (c->eval)
			l.missing = arena_printf(
				c->a, "%s; symbolic axes that --dim does not bind are taken as 1", l.missing);
	} else {
		fputs(said, c->d->out);
	}
	free(said);
	inspect_print(&l);
	return 0;
}
