/* The plan for people (plan.txt), for programs (plan.json), and the schedule as CSV in PyTorch's notation. */
#include <inttypes.h>
#include <string.h>
#include "build.h"

static const char *const region_name[REGION_COUNT] = {
	NULL, "params", "state", "grads", "leaf", "stack", "slots", "tmp", "scratch"
};

const char *plan_text(const Build *b)
{
	const char *s = "";

	for (int t = 0; t < b->m->nstage; t++)
		s = arena_printf(b->a, "%s%s%d", s, t ? "-" : "", b->m->stage[t]->replicas);
	return s;
}

static const char *device_name(const Build *b, int t, int replica)
{
	const int d = b->m->stage[t]->device[replica];

	return b->c && d >= 0 && d < b->c->ndevice && b->c->device[d].name ? b->c->device[d].name : "any";
}

static const char *bytes_text(Arena *a, int64_t n)
{
	if (n < 10 * 1024)
		return arena_printf(a, "%" PRId64 " B", n);
	if (n < 10 * 1024 * 1024)
		return arena_printf(a, "%.1f KiB", (double)n / 1024);
	return arena_printf(a, "%.1f MiB", (double)n / (1024 * 1024));
}

/* First and last node of the model that a stage runs. */
static const char *span(const Build *b, const Stage *s)
{
	const char *first = NULL, *last = NULL;

	for (const Node *n = s->forward->first; n; n = n->next)
		if (n->loc.name && *n->loc.name && (optab[n->op]->flags & OP_HEAVY)) {
			first = first ? first : n->loc.name;
			last = n->loc.name;
		}
	if (!first)
		return "";
	return strcmp(first, last) == 0 ? first : arena_printf(b->a, "%s ... %s", first, last);
}

static double seconds(const Graph *g)
{
	double t = 0;

	for (const Node *n = g->first; n; n = n->next)
		t += n->time;
	return t;
}

/* What the cost pass makes of the stage's nodes; nothing where it did not run. */
static const char *predicted(const Build *b, const Stage *s)
{
	const double f = seconds(s->forward), r = seconds(s->backward), u = seconds(s->update);

	return f + r + u > 0 ? arena_printf(b->a, "    predicted  forward %.3g ms, backward %.3g ms a microbatch, update %.3g ms a "
		"step\n", f * 1e3, r * 1e3, u * 1e3) : "";
}

static bool write_text(Build *b)
{
	const Module *m = b->m;
	Arena *a = b->a;
	Buf out = { 0 };

	buf_printf(&out, "%s: plan %s, schedule %s, %" PRId64 " microbatches of %" PRId64 " samples a step\n\n", m->name,
		plan_text(b), m->schedule->name, m->microbatches, m->batch);
	for (int t = 0; t < m->nstage; t++) {
		const Stage *s = m->stage[t];
		buf_printf(&out, "stage %d  %s\n    devices    ", t, span(b, s));
		for (int r = 0; r < s->replicas; r++)
			buf_printf(&out, "%s%d (%s)", r ? ", " : "", b->first_rank[t] + r, device_name(b, t, r));
		buf_printf(&out, "\n%s    in flight  %d\n    memory     %s =", predicted(b, s), s->inflight, bytes_text(a, s->arena));
		for (int r = REGION_PARAMS, any = 0; r < REGION_COUNT; r++)
			if (s->bytes[r])
				buf_printf(&out, "%s %s %s", any++ ? " +" : "", region_name[r], bytes_text(a, s->bytes[r]));
		buf_puts(&out, "\n");
		for (int pass = 0; pass < 2; pass++)
			for (const Node *n = (pass ? s->backward : s->forward)->first; n; n = n->next)
				if (n->op == OP_Send)
					buf_printf(&out, "    sends      %%%s %s to stage %" PRId64 ", %s a microbatch (channel %" PRId64 ")\n",
						n->in[0]->name, str_type(a, &n->in[0]->type), attr_int(n, "to"),
						bytes_text(a, type_bytes(&n->in[0]->type)), attr_int(n, "channel"));
	}
	buf_puts(&out, "\nschedule, time x device\n");
	schedule_print_grid(&out, m->schedule);
	return build_text(b, "plan.txt", &out);
}

/* ---- plan.json ---- */

static void json_messages(Build *b, Cw *w, const Stage *s)
{
	const char *comma = "";

	cw_line(w, "\"messages\": [");
	w->indent++;
	for (int pass = 0; pass < 2; pass++)
		for (const Node *n = (pass ? s->backward : s->forward)->first; n; n = n->next) {
			if (n->op != OP_Send)
				continue;
			cw_line(w, "%s{ \"channel\": %" PRId64 ", \"value\": %s, \"to\": %" PRId64 ", \"bytes\": %" PRId64 " }", comma,
				attr_int(n, "channel"), quoted(b->a, n->in[0]->name), attr_int(n, "to"), type_numel(&n->in[0]->type) *
				dtype_bytes(n->in[0]->type.dtype));
			comma = ", ";
		}
	w->indent--;
	cw_line(w, "]");
}

static void json_stage(Build *b, Cw *w, int t)
{
	const Stage *s = b->m->stage[t];
	const char *comma = "";

	cw_line(w, "\"stage\": %d, \"replicas\": %d, \"inflight\": %d, \"arena\": %" PRId64 ",", t, s->replicas, s->inflight,
		s->arena);
	cw_line(w, "\"devices\": [");
	w->indent++;
	for (int r = 0; r < s->replicas; r++)
		cw_line(w, "{ \"rank\": %d, \"device\": %s }%s", b->first_rank[t] + r, quoted(b->a, device_name(b, t, r)),
			r + 1 < s->replicas ? "," : "");
	w->indent--;
	cw_line(w, "],");
	cw_open(w, "\"regions\":");
	for (int r = REGION_PARAMS; r < REGION_COUNT; r++)
		cw_line(w, "\"%s\": { \"offset\": %" PRId64 ", \"bytes\": %" PRId64 " }%s", region_name[r], s->at[r], s->bytes[r],
			r + 1 < REGION_COUNT ? "," : "");
	cw_close(w, ",");
	cw_open(w, "\"params\":");
	for (int i = 0; i < s->nparam; i++, comma = ", ")
		cw_line(w, "%s%s: { \"offset\": %" PRId64 ", \"type\": %s, \"owner\": %d }", comma,
			quoted(b->a, s->param[i]->name), s->param_at[i], quoted(b->a, str_type(b->a, &s->param[i]->type)),
			owner_of(b, s->param[i]));
	cw_close(w, ",");
	json_messages(b, w, s);
}

static bool write_json(Build *b)
{
	const Module *m = b->m;
	Buf out = { 0 };
	Cw w = { .out = &out, .whole = true };

	cw_brace(&w);
	cw_line(&w, "\"model\": %s, \"plan\": \"%s\", \"schedule\": \"%s\", \"hash\": \"%s\",", quoted(b->a, m->name),
		plan_text(b), m->schedule->name, b->hash);
	cw_line(&w, "\"micro\": %" PRId64 ", \"microbatches\": %" PRId64 ", \"world\": %d, \"channels\": %d,", m->batch,
		m->microbatches, m->schedule->ndevice, b->channels);
	cw_line(&w, "\"stages\": [");
	w.indent++;
	for (int t = 0; t < m->nstage; t++) {
		cw_brace(&w);
		json_stage(b, &w, t);
		cw_close(&w, "%s", t + 1 < m->nstage ? "," : "");
	}
	w.indent--;
	cw_line(&w, "]");
	cw_end(&w);
	return build_text(b, "plan.json", &out);
}

bool emit_plan(Build *b)
{
	Buf csv = { 0 };

	schedule_print_csv(&csv, b->m->schedule);
	return build_text(b, "schedule.csv", &csv) && write_text(b) && write_json(b);
}
