/* --report FILE.html: a compilation as one page that loads nothing else: the step in numbers, stages, the simulated timeline,
 * memory of every device by what it is for, bytes between devices, parameters and how their gradients travel, the nodes
 * that take most time, other plans, and what every pass changed. Figures are those of plan --explain and simulate. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "passes/common/page.h"
#include "passes/report/changes.h"
#include "passes/simulate/timeline.h"
#include "why_report.h"
#include "ir/base/human.h"

enum { NODES = 30, PARAMS = 500, PAIRS = 200, CLASSES = 7 };

static const char style[] = ".facts td:first-child { white-space: nowrap }\n"
			    ".bar { display: flex; height: 16px; width: min(300px, 60vw); background: var(--soft) } "
			    ".bar i { display: block; height: 100% }\n"
			    ".key i { display: inline-block; width: 11px; height: 11px; margin: 0 4px 0 12px }\n";

typedef struct Page {
	Compile *c;
	const Sim *s;
	Buf *b;
} Page;

/* A cell; class "v" for numbers. */
static void cell(Page *p, const char *class, const char *text)
{
	buf_printf(p->b, class ? "<td class=\"%s\">" : "<td>", class);
	buf_xml(p->b, text);
	buf_puts(p->b, "</td>");
}

static void head(Page *p, const char *title, const char *const *column, int n)
{
	if (title)
		buf_printf(p->b, "<h2>%s</h2>\n", title);
	page_wide(p->b, title ? title : "table");
	buf_puts(p->b, "<table class=\"t\">\n<tr>");
	for (int i = 0; i < n; i++)
		buf_printf(p->b, "<th%s>%s</th>", *column[i] == '>' ? " class=\"v\"" : "",
			column[i] + (*column[i] == '>'));
	buf_puts(p->b, "</tr>\n");
}

#define HEAD(p, title, ...) \
	head(p, title, (const char *const[]){ __VA_ARGS__ }, \
		(int)(sizeof(const char *const[]){ __VA_ARGS__ } / sizeof(char *)))

static const char *bytes(const Page *p, int64_t n) { return str_bytes(p->c->a, n); }

static void table_end(Page *p)
{
	buf_puts(p->b, "</table>\n");
	page_wide_end(p->b);
}

/* ---- the step ---- */

static void fact(Page *p, const char *what, const char *text)
{
	buf_puts(p->b, "<tr>");
	cell(p, NULL, what);
	cell(p, NULL, text);
	buf_puts(p->b, "</tr>\n");
}

static void facts(Page *p)
{
	const Compile *c = p->c;
	const Module *m = c->m;
	const Sim *s = p->s;
	const Where w = plan_where(s);
	const double samples = (double)(m->batch * m->microbatches);
	const char *line = "";

	for (int i = 0; i < c->argc; i++)
		line = arena_printf(c->a, "%s%s%s", line, i ? " " : "", c->argv[i]);
	buf_puts(p->b, "<table class=\"t facts\">\n");
	fact(p, "plan",
		arena_printf(c->a, "%s%s%s%s", plan_name(c), c->plan.by ? " (" : "", c->plan.by ? c->plan.by : "",
			c->plan.by ? ")" : ""));
	fact(p, "schedule",
		arena_printf(c->a, "%s, %" PRId64 " microbatches of %" PRId64 " samples", m->schedule->name,
			m->microbatches, m->batch));
	fact(p, "step",
		arena_printf(c->a, "%s, %.*f samples/s (%s)", time_text(c->a, s->each),
			s->each > 0 && samples / s->each < 100, s->each > 0 ? samples / s->each : 0, compile_times(c)));
	if (c->plan.one_time > 0 && s->each > 0)
		fact(p, arena_printf(c->a, "one %s", one_of(m)),
			arena_printf(c->a, "%s, %.2f times as long", time_text(c->a, plan_one_device(c, s)),
				plan_one_device(c, s) / s->each));
	fact(p, "bubble", arena_printf(c->a, "%.1f %%", 100 * s->bubble));
	fact(p, "bottleneck", plan_bottleneck(c, s, &w));
	fact(p, "where it goes",
		arena_printf(c->a, "work %s, AllReduce %s, update %s, idle %s (stage %d)", time_text(c->a, w.t.work),
			time_text(c->a, w.t.sum), time_text(c->a, w.t.update), time_text(c->a, w.t.wait), w.stage));
	fact(p, "optimizer", setting_word(SET_OF_OptKind, opt_kind(&c->o->t.model.opt)));
	buf_puts(p->b, "<tr><td>command</td><td><code>");
	buf_xml(p->b, line);
	buf_puts(p->b, "</code></td></tr>\n</table>\n");
}

/* The module of a node as PyTorch calls it: that of a weight which it reads where it lies inside (functional calls and
 * exporters that give nodes the name of the whole model). "": the model does not tell. */
static const char *module_at(Arena *a, const Node *n, bool *reads)
{
	const char *own = loc_module(a, &n->loc), *name = own ? own : "";

	*reads = false;
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];
		const char *dot = v ? strrchr(v->name, '.') : NULL;

		if (!v || v->kind != VAL_PARAM || v->param->kind != PARAM_WEIGHT)
			continue;
		*reads = true;
		const size_t k = strlen(name);
		if (dot && v->name + k < dot && !strncmp(v->name, name, k) && (!k || v->name[k] == '.'))
			name = arena_strn(a, v->name, (size_t)(dot - v->name));
	}
	return name;
}

/* What a stage holds: from which module to which, those with weights before others; else the nodes' own names. */
static const char *holds(const Compile *c, int t)
{
	static const PlanStage none;
	const PlanStage *x = c->plan.stage ? &c->plan.stage[t] : &none;
	const char *first[2] = { "", "" }, *last[2] = { "", "" }; /* of all nodes, of those with weights */

	for (const Node *n = c->m->stage[t]->forward->first; n; n = n->next) {
		bool reads;

		if (!n->nout) /* weights are pulled in an order of their own */
			continue;
		const char *module = module_at(c->a, n, &reads);

		for (int k = 0; k <= reads && *module; k++) {
			first[k] = *first[k] ? first[k] : module;
			last[k] = module;
		}
	}
	const int k = *first[1] != 0;
	const char *from = *first[k] || !x->first ? first[k] : x->first;
	const char *to = *first[k] || !x->last ? last[k] : x->last;
	return strcmp(from, to) ? arena_printf(c->a, "%s \xE2\x80\xA6 %s", from, to) : from;
}

static void stages(Page *p)
{
	const Compile *c = p->c;

	HEAD(p, "Stages", ">stage", "modules", "devices", ">replicas", ">nodes", ">forward", ">backward", ">update",
		">microbatches in flight", ">sends per microbatch");
	for (int t = 0; t < module_stages(c->m); t++) {
		const PlanStage none = { .nodes = c->m->stage[t]->forward->nnodes },
				*x = c->plan.stage ? &c->plan.stage[t] : &none;
		const double *time = stage_seconds(p->s, t);

		buf_puts(p->b, "<tr>");
		cell(p, "v", arena_printf(c->a, "%d", t));
		cell(p, NULL, holds(c, t));
		cell(p, NULL, devices_text(c, c->m->stage[t], 60));
		cell(p, "v", arena_printf(c->a, "%d", c->m->stage[t]->replicas));
		cell(p, "v", arena_printf(c->a, "%d", x->nodes));
		cell(p, "v", time_text(c->a, time[ACT_F]));
		cell(p, "v", time_text(c->a, time[ACT_B] + time[ACT_W]));
		cell(p, "v", time_text(c->a, time[ACT_UPDATE]));
		cell(p, "v", arena_printf(c->a, "%d", c->m->stage[t]->inflight));
		cell(p, "v", x->out_bytes ? bytes(p, x->out_bytes) : "");
		buf_puts(p->b, "</tr>\n");
	}
	table_end(p);
}

/* ---- memory ---- */

static const struct {
	const char *name, *colour;
} class_of[CLASSES] = {
	{ "weights", "#3b75b5" },
	{ "versions", "#008b8b" },
	{ "activations", "#2e8b57" },
	{ "gradients", "#d1495b" },
	{ "optimizer", "#a07400" },
	{ "messages", "#c46a1a" },
	{ "temporary", "#7a7f87" },
};

static void memory(Page *p)
{
	const Compile *c = p->c;
	int64_t most = 1;

	for (int t = 0; t < c->m->nstage; t++)
		most = c->m->stage[t]->arena > most ? c->m->stage[t]->arena : most;
	HEAD(p, "Memory of a device", ">stage", "modules", "picture", ">weights", ">versions", ">activations",
		">gradients", ">optimizer", ">messages", ">temporary", ">together", ">limit");
	for (int t = 0; t < c->m->nstage; t++) {
		const Stage *s = c->m->stage[t];
		const Classes k = stage_classes(s);
		const int64_t n[CLASSES] = { k.weights, k.stash, k.activations, k.gradients, k.optimizer, k.comm,
			k.other };
		const int64_t limit = c->cluster.device[s->device[0]].memory;

		buf_puts(p->b, "<tr>");
		cell(p, "v", arena_printf(c->a, s->server ? "server %d" : "%d", t));
		cell(p, NULL, s->server ? "" : holds(c, t));
		buf_puts(p->b, "<td><div class=\"bar\">");
		for (int i = 0; i < CLASSES; i++)
			if (n[i] > 0)
				buf_printf(p->b, "<i style=\"width:%.2f%%;background:%s\" title=\"%s %s\"></i>",
					100 * (double)n[i] / (double)most, class_of[i].colour, class_of[i].name,
					bytes(p, n[i]));
		buf_puts(p->b, "</div></td>");
		for (int i = 0; i < CLASSES; i++)
			cell(p, "v", bytes(p, n[i]));
		cell(p, "v", bytes(p, s->arena));
		cell(p, "v", limit > 0 ? bytes(p, limit) : "none");
		buf_puts(p->b, "</tr>\n");
	}
	table_end(p);
	buf_puts(p->b, "<p class=\"key\">");
	for (int i = 0; i < CLASSES; i++)
		buf_printf(p->b, "<i style=\"background:%s\"></i>%s", class_of[i].colour, class_of[i].name);
	buf_puts(p->b, "</p>\n");
}

/* ---- bytes ---- */

static void links(Page *p)
{
	const Compile *c = p->c;
	int n;
	const SimPair *pair = sim_pairs(c->a, p->s->model, &n);

	if (!p->s->nload)
		return;
	HEAD(p,
		p->s->steps > 1 ? "Bytes between devices, of all steps that are shown"
				: "Bytes between devices in a step",
		"link", ">messages", ">AllReduce", ">together", ">data parallelism", ">busiest port");
	for (int i = 0; i < p->s->nload; i++) {
		const SimLoad *x = &p->s->load[i];
		const Link l = cluster_link_of(&c->cluster, x->line);

		buf_puts(p->b, "<tr>");
		cell(p, NULL, link_name(c, &l));
		cell(p, "v", bytes(p, x->messages));
		cell(p, "v", bytes(p, x->joins));
		cell(p, "v", bytes(p, x->messages + x->joins));
		cell(p, "v", bytes(p, x->parallel));
		cell(p, "v", arena_printf(c->a, "%.1f %%", p->s->step > 0 ? 100 * x->busy / p->s->step : 0));
		buf_puts(p->b, "</tr>\n");
	}
	table_end(p);
	buf_printf(p->b, "<details><summary>between every two devices (%d)</summary>\n", n);
	HEAD(p, NULL, "from", "to", ">messages, bytes", ">AllReduce, bytes", ">losses and counts, bytes");
	for (int i = 0; i < n && i < PAIRS; i++) {
		buf_puts(p->b, "<tr>");
		cell(p, NULL, arena_printf(c->a, "%d %s", pair[i].from, device_text(p->s, pair[i].from)));
		cell(p, NULL, arena_printf(c->a, "%d %s", pair[i].to, device_text(p->s, pair[i].to)));
		cell(p, "v", arena_printf(c->a, "%" PRId64, pair[i].messages));
		cell(p, "v", arena_printf(c->a, "%" PRId64, pair[i].joins));
		cell(p, "v", arena_printf(c->a, "%" PRId64, pair[i].totals));
		buf_puts(p->b, "</tr>\n");
	}
	table_end(p);
	if (n > PAIRS)
		buf_printf(p->b, "<p>and %d more</p>", n - PAIRS);
	buf_puts(p->b, "</details>\n");
}

/* ---- parameters ---- */

static const char *travels(const Page *p, const Value *v)
{
	static const char *const how[SYNC_KINDS] = { "stays", "AllReduce", "parameter server", "AllGatherv" };
	const Param *x = v->param;

	if (x->frozen)
		return "frozen";
	return arena_printf(p->c->a, "%s%s", how[x->sync], x->rows ? ", touched rows" : x->mixed ? ", part rows" : "");
}

static void parameters(Page *p)
{
	const Compile *c = p->c;
	int n = 0;

	for (int i = 0; i < c->m->nparam; i++)
		n += c->m->param[i]->param->kind == PARAM_WEIGHT;
	buf_printf(p->b, "<h2>Parameters</h2>\n<details%s><summary>%d</summary>\n", n <= 40 ? " open=\"open\"" : "", n);
	HEAD(p, NULL, "parameter", "type", ">bytes", "stages", "gradient between replicas");
	for (int i = 0, shown = 0; i < c->m->nparam && shown < PARAMS; i++) {
		const Value *v = c->m->param[i];
		const char *at = "";

		if (v->param->kind != PARAM_WEIGHT)
			continue;
		for (int t = 0; t < c->m->nstage; t++)
			for (int k = 0; k < c->m->stage[t]->nparam; k++)
				if (c->m->stage[t]->param[k] == v)
					at = arena_printf(c->a, "%s%s%d", at, *at ? ", " : "", t);
		buf_puts(p->b, "<tr>");
		cell(p, NULL, v->name);
		cell(p, NULL, str_type(c->a, &v->type));
		cell(p, "v", arena_printf(c->a, "%" PRId64, type_bytes(&v->type)));
		cell(p, NULL, at);
		cell(p, NULL, travels(p, v));
		buf_puts(p->b, "</tr>\n");
		shown++;
	}
	table_end(p);
	buf_puts(p->b, "</details>\n");
}

/* ---- nodes ---- */

typedef struct Row {
	const Node *n; /* that takes most */
	double fwd, bwd;
	int stage;
} Row;

static int by_time(const void *a, const void *b)
{
	const Row *x = a, *y = b;
	const double d = y->fwd + y->bwd - x->fwd - x->bwd;

	return d > 0 ? 1 : d < 0 ? -1 : x->stage != y->stage ? x->stage - y->stage : x->n->loc.node - y->n->loc.node;
}

/* Time by node of the model: what stems from it, forward and backward. */
static void nodes(Page *p)
{
	const Compile *c = p->c;
	Row *row = NULL;
	Map at;
	int n = 0, cap = 0;
	double all = 0;

	map_init(&at, c->a, true);
	for (int t = 0; t < module_stages(c->m); t++) {
		Graph *g[4];
		const int k = stage_graphs(c->m->stage[t], g);

		for (int j = 0; j < k; j++)
			for (const Node *x = g[j]->first; x && g[j] != c->m->stage[t]->update; x = x->next) {
				const char *key = arena_printf(c->a, "%d %d %s", t, x->loc.node,
					x->loc.name ? x->loc.name : optab[x->op]->name);

				if (!map_has(&at, key)) {
					PUSH(c->a, row, n, cap) = (Row){ x, 0, 0, t };
					map_put(&at, key, (void *)(uintptr_t)n);
				}
				Row *r = &row[(uintptr_t)map_get(&at, key) - 1];
				r->n = g[j] == c->m->stage[t]->forward && x->time > r->n->time ? x : r->n;
				*(g[j] == c->m->stage[t]->forward ? &r->fwd : &r->bwd) += x->time;
				all += x->time;
			}
	}
	if (!n)
		return;
	qsort(row, (size_t)n, sizeof *row, by_time);
	HEAD(p, "Nodes that take most time, per microbatch", "module", "node", "operator", ">stage", ">forward",
		">backward", ">share");
	for (int i = 0; i < n && i < NODES && row[i].fwd + row[i].bwd > 0; i++) {
		const Loc *l = &row[i].n->loc;
		const char *module = loc_module(c->a, l);

		buf_puts(p->b, "<tr>");
		cell(p, NULL, module ? module : "");
		cell(p, NULL, l->name && *l->name ? l->name : "-");
		cell(p, NULL, optab[row[i].n->op]->name);
		cell(p, "v", arena_printf(c->a, "%d", row[i].stage));
		cell(p, "v", time_text(c->a, row[i].fwd));
		cell(p, "v", time_text(c->a, row[i].bwd));
		cell(p, "v", arena_printf(c->a, "%.1f %%", 100 * (row[i].fwd + row[i].bwd) / all));
		buf_puts(p->b, "</tr>\n");
	}
	table_end(p);
}

/* ---- other plans ---- */

static void others(Page *p)
{
	const Plan *x = &p->c->plan;

	if (!x->nother)
		return;
	HEAD(p, "Other plans", "plan", ">step", ">more", "lost by", "proposed by");
	for (int i = 0; i < x->nother; i++) {
		const PlanOther *o = &x->other[i];

		buf_puts(p->b, "<tr>");
		cell(p, NULL, o->plan);
		cell(p, "v", time_text(p->c->a, o->step));
		cell(p, "v",
			arena_printf(p->c->a, "%+.1f %%", x->step_time > 0 ? 100 * (o->step / x->step_time - 1) : 0));
		cell(p, NULL, o->over > 1 ? "memory" : plan_term_name[plan_largest_term(&o->terms, &x->terms)]);
		cell(p, NULL, o->by ? o->by : "");
		buf_puts(p->b, "</tr>\n");
	}
	table_end(p);
	buf_printf(p->b, "<p>%ld plans tried, %ld simulated</p>\n", x->tried, x->played);
}

/* ---- the page ---- */

static void page(Page *p)
{
	Buf *b = p->b;
	const char *title = simulate_title(p->c);

	page_begin(b, title, arena_printf(p->c->a, "%s%s", style, changes_style));
	facts(p);
	stages(p);
	buf_puts(b, "<h2>Timeline of a step, simulated</h2>\n");
	timeline_part(b, p->s, p->c->m->name);
	buf_puts(b, "<h2>The graph by stages</h2>\n");
	graph_picture(p->c, b);
	memory(p);
	links(p);
	nodes(p);
	parameters(p);
	others(p);
	if (p->c->changes->table.n) {
		buf_puts(b, "<h2>What every pass changed</h2>\n");
		changes_body(b, p->c->changes);
	}
	page_end(b);
}

bool report_write(Compile *c, const char *file)
{
	Sim s;
	Buf b = { 0 };

	if (!simulate(c->a, simulate_model(c->a, c->m, &c->cluster, &c->o->t), &s, c->d))
		return false;
	page(&(Page){ c, &s, &b });
	const bool ok =
		file_write(file, b.s, b.n) || diag_error(c->d, NOLOC, 8, "cannot write %s: %s", file, strerror(errno));
	if (ok && !c->o->quiet)
		fprintf(c->d->out, "wrote %s\n", file);
	buf_free(&b);
	return ok;
}
