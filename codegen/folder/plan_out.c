/* The plan for people (plan.txt), for programs (plan.json), and the schedule as CSV in PyTorch's notation. */
#include <inttypes.h>
#include <string.h>
#include "ir/base/human.h"
#include "codegen/write/build.h"

const char *const region_word[REGION_COUNT] = { "none", "params", "state", "grads", "leaf", "stack", "entries", "slots",
	"tmp", "scratch" };

static const char *device_name(const Build *b, int t, int replica)
{
	const int d = b->m->stage[t]->device[replica];

	return b->c && d >= 0 && d < b->c->ndevice && b->c->device[d].name ? b->c->device[d].name : "any";
}

/* First and last node of the model that a stage runs. */
static const char *span(const Build *b, const Stage *s)
{
	const char *first = NULL, *last = NULL;

	for (const Node *n = s->forward->first; n; n = n->next)
		if (n->loc.name && *n->loc.name && (optab[n->op]->flags & OP_HEAVY)) {
			last = n->loc.module ? n->loc.module : n->loc.name;
			first = first ? first : last;
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
	const double f = seconds(s->forward), r = seconds(s->backward) + (s->weight ? seconds(s->weight) : 0),
		     u = seconds(s->update);

	return f + r + u > 0 ? arena_printf(b->a,
				       "    predicted  forward %s, backward %s a microbatch, update %s a "
				       "step\n",
				       time_short(b->a, f), time_short(b->a, r), time_short(b->a, u))
	                     : "";
}

/* ---- what an asynchronous plan means ---- */

static const char *stash_word(VersionRule r)
{
	static const char *const word[VERSION_RULES] = { [VERSION_FLUSH] = "flush",
		[VERSION_STASH] = "stash",
		[VERSION_NEWEST] = "none",
		[VERSION_VERTICAL] = "vertical" };

	return r == VERSION_PREVIOUS ? schedule_name(SCHEDULE_2BW) : word[r];
}

/* Asynchronous servers: what a device, or one of each stage, does, whatever the others do. */
static void served_rule(const Build *b, Buf *out)
{
	const int stages = module_stages(b->m);

	buf_printf(out,
		"This plan is ASYNCHRONOUS: every %s trains by itself, on its microbatches of a step. A parameter's server\n"
		"updates it with each gradient that arrives, in the order of arrival:\n",
		stages > 1 ? "replica" : "device");
	if (stages == 1) {
		buf_puts(out,
			"    w(u+1) = w(u) - rate * gradient_r / n_r     device r's sum over its n_r labels, at what it had pulled\n");
	} else {
		buf_puts(out, "    w(u+1) = w(u) - rate * gradient_r(");
		for (int t = 0; t < stages; t++)
			buf_printf(out, "%sw_%d,r", t ? ", " : "", t);
		buf_puts(out,
			") / n_r     replica r's sum over its n_r labels\n"
			"w_s,r is what device r of stage s pulled in that step: each parameter once (of tables each row), for all forwards and\n"
			"backwards of the step, behind its own push of the step before. Parameters may be of different versions u. The\n"
			"replica's pipeline is flushed in every step; other replicas push meanwhile.\n");
	}
	buf_puts(
		out, "A pull gives what is there then. No two runs need be alike; --arrivals DIR records the order.\n");
	if (b->t->comm.staleness >= 0)
		buf_printf(out, "No device is more than %" PRId64 " step%s ahead of the slowest.\n",
			b->t->comm.staleness, b->t->comm.staleness == 1 ? "" : "s");
	buf_puts(out, "\n");
}

/* The update formula (PipeDream section 3.4, PipeDream-2BW section 3.1), with this plan's numbers. */
static void async_rule(const Build *b, Buf *out)
{
	const Schedule *s = b->m->schedule;

	if (served_async(b->t))
		served_rule(b, out);
	if (!s->async)
		return;
	buf_puts(out,
		"This plan is ASYNCHRONOUS: no step waits for the update of the one before. Stage s, with w_s(t) for its\n"
		"weights after t updates, is updated by\n");
	if (s->late)
		buf_printf(out,
			"    w(t+1) = w(t) - rate * gradient of step t-%d, at w(t-%d)     Pipe-SGD, K = %d; 0 for steps before the first\n",
			s->late, s->late, s->late + 1);
	else if (s->rule == VERSION_PREVIOUS)
		buf_puts(out,
			"    w_s(t+1) = w_s(t) - rate * gradient(w_0(t-1), w_1(t-1), ...)     2BW: all stages one step late\n");
	else if (s->rule == VERSION_NEWEST)
		buf_puts(out,
			"    no gradient of the loss at any weights: a backward reads newer ones than its forward (--stash none)\n");
	else {
		buf_puts(out, "    w_s(t+1) = w_s(t) - rate * gradient(");
		for (int t = 0; t < s->nstage; t++) {
			const int late = s->depth[s->rule == VERSION_VERTICAL ? 0 : t] - 1;
			if (s->round && late)
				buf_printf(out, "%sw_%d(t-min(%d, t mod %d))", t ? ", " : "", t, late, s->round[t]);
			else
				buf_printf(out, late ? "%sw_%d(t-%d)" : "%sw_%d(t)", t ? ", " : "", t, late);
		}
		buf_printf(out, ")\n    weights of t < 0 are the first ones; %s\n",
			s->rule == VERSION_VERTICAL
				? "vertical sync: one version of all stages for a minibatch"
				: "weight stashing: forward and backward of a minibatch read one version");
	}
	for (int t = 0; t < s->nstage; t++)
		if (s->replicas[t] > 1 && s->robin) {
			buf_puts(out,
				"Minibatch i is done by replica i mod R of a stage with R replicas. They add the gradients of a round of R\n"
				"minibatches and update once: there t counts rounds.\n");
			break;
		}
	buf_puts(out, "\n");
}

static void async_stage(const Build *b, Buf *out, const Stage *s)
{
	if (!b->m->schedule->async)
		return;
	if (!s->versions) {
		buf_puts(out, "    versions   1: every weight is updated in place\n");
		return;
	}
	buf_printf(out, "    versions   %d x %s of", s->versions, size_text(b->a, s->version_bytes));
	for (int i = 0; i < s->nparam; i++)
		if (s->versioned[i])
			buf_printf(out, " %s", s->param[i]->name);
	buf_puts(out, "; other weights are updated in place\n");
}

static void holds(const Build *b, Buf *out, const Stage *s)
{
	buf_puts(out, "\n    holds     ");
	for (int i = 0; i < s->nparam; i++) {
		const Value *v = s->param[i];
		if (v->param->kind != PARAM_WEIGHT)
			continue;
		buf_printf(out, " %s (", v->param->whole ? v->param->whole->name : v->name);
		if (v->param->whole)
			buf_printf(out, "rows %" PRId64 " to %" PRId64 ", ", v->param->row,
				v->param->row + v->type.dim[0] - 1);
		buf_printf(out, "%s)", size_text(b->a, type_bytes(&v->type)));
	}
	buf_puts(out, "\n");
}

static bool write_text(Build *b)
{
	const Module *m = b->m;
	Arena *a = b->a;
	Buf out = { 0 };

	buf_printf(&out, "%s: plan %s, schedule %s, %" PRId64 " microbatches of %" PRId64 " samples a step\n\n",
		m->name, plan_text(b), m->schedule->name, m->microbatches, m->batch);
	async_rule(b, &out);
	for (int t = 0; t < m->nstage; t++) {
		const Stage *s = m->stage[t];
		buf_printf(&out, s->server ? "server %d%s\n    device     " : "stage %d  %s\n    devices    ", t,
			span(b, s));
		for (int r = 0; r < s->replicas; r++)
			buf_printf(&out, "%s%d (%s)", r ? ", " : "", b->first_rank[t] + r, device_name(b, t, r));
		if (s->server)
			holds(b, &out, s);
		else
			buf_printf(&out, "\n%s    in flight  %d\n", predicted(b, s),
				m->schedule->async ? m->schedule->depth[t] : s->inflight);
		async_stage(b, &out, s);
		plan_ways(b, &out, s);
		buf_printf(&out, "    memory     %s =", size_text(a, s->arena));
		for (int r = REGION_PARAMS, any = 0; r < REGION_COUNT; r++)
			if (s->bytes[r])
				buf_printf(
					&out, "%s %s %s", any++ ? " +" : "", region_word[r], size_text(a, s->bytes[r]));
		buf_puts(&out, "\n");
		for (int pass = 0; pass < 2; pass++)
			for (const Node *n = (pass ? s->backward : s->forward)->first; n; n = n->next)
				if (n->op == OP_Send)
					buf_printf(&out,
						"    sends      %%%s %s to stage %" PRId64
						", %s a microbatch (channel %" PRId64 ")\n",
						n->in[0]->name, str_type(a, &n->in[0]->type), attr_int(n, "to"),
						size_text(a, type_bytes(&n->in[0]->type)), attr_int(n, "channel"));
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
			cw_line(w,
				"%s{ \"channel\": %" PRId64 ", \"value\": %s, \"to\": %" PRId64 ", \"bytes\": %" PRId64
				" }",
				comma, attr_int(n, "channel"), quoted_json(b->a, n->in[0]->name), attr_int(n, "to"),
				message_bytes(b, n->in[0]));
			comma = ", ";
		}
	w->indent--;
	cw_line(w, "]");
}

/* What the first member of a tensor group sends the others, per microbatch and per step. */
static void json_tensor(const Build *b, Cw *w, const Stage *s)
{
	Graph *g[4];
	const int n = stage_graphs(s, g);
	int64_t each = 0, step = 0;

	for (int i = 0; i < n; i++)
		for (const Node *x = g[i]->first; x; x = x->next)
			*(g[i] == s->update ? &step : &each) += shard_sent(x, stage_tensor(b->m, s->id));
	cw_line(w, "\"tensor_bytes\": { \"microbatch\": %" PRId64 ", \"step\": %" PRId64 " },", each, step);
}

static void json_stage(Build *b, Cw *w, int t)
{
	const Stage *s = b->m->stage[t];
	const char *comma = "";
	const int zero = s->server ? 0 : stage_zero(&b->t->plan, t);

	cw_line(w, "\"stage\": %d,%s \"replicas\": %d,%s%s \"inflight\": %d, \"entries\": %d, \"arena\": %" PRId64 ",",
		t, s->server ? " \"server\": true," : "", s->replicas,
		b->m->tensor_of ? arena_printf(b->a, " \"tensor\": %d,", stage_tensor(b->m, t)) : "",
		zero ? arena_printf(b->a, " \"zero\": %d,", zero) : "", s->inflight, s->entries, s->arena);
	if (b->m->schedule->async)
		cw_line(w,
			"\"depth\": %d, \"versions\": %d, \"version_bytes\": %" PRId64 ", \"row_copies\": %" PRId64
			", \"late\": %d,",
			b->m->schedule->depth[t], s->versions, s->version_bytes, s->row_copies, b->m->schedule->late);
	if (b->m->tensor > 1)
		json_tensor(b, w, s);
	cw_line(w, "\"devices\": [");
	w->indent++;
	for (int r = 0; r < s->replicas; r++)
		cw_line(w, "{ \"rank\": %d, \"device\": %s }%s", b->first_rank[t] + r,
			quoted_json(b->a, device_name(b, t, r)), r + 1 < s->replicas ? "," : "");
	w->indent--;
	cw_line(w, "],");
	cw_open(w, "\"regions\":");
	for (int r = REGION_PARAMS; r < REGION_COUNT; r++)
		cw_line(w, "\"%s\": { \"offset\": %" PRId64 ", \"bytes\": %" PRId64 " }%s", region_word[r], s->at[r],
			s->bytes[r], r + 1 < REGION_COUNT ? "," : "");
	cw_close(w, ",");
	cw_open(w, "\"params\":");
	for (int i = 0; i < s->nparam; i++, comma = ", ")
		cw_line(w, "%s%s: { \"offset\": %" PRId64 ", \"type\": %s, \"owner\": %d%s }", comma,
			quoted_json(b->a, s->param[i]->name), s->param_at[i],
			quoted_json(b->a, str_type(b->a, &s->param[i]->type)), owner_of(b, s->param[i]),
			owned_part(s, s->param[i])
				? arena_printf(b->a, ", \"part\": %" PRId64, owned_part(s, s->param[i]))
				: "");
	cw_close(w, ",");
	json_messages(b, w, s);
}

static bool write_json(Build *b)
{
	const Module *m = b->m;
	Buf out = { 0 };
	Cw w = { .out = &out, .whole = true };

	cw_brace(&w);
	cw_line(&w, "\"model\": %s, \"plan\": \"%s\", \"schedule\": \"%s\", \"hash\": \"%s\",",
		quoted_json(b->a, m->name), plan_text(b), m->schedule->name, b->hash);
	cw_line(&w,
		"\"micro\": %" PRId64 ", \"microbatches\": %" PRId64
		", \"world\": %d,%s \"channels\": %d, \"timeout\": %.17g,%s",
		m->batch, m->microbatches, m->schedule->ndevice,
		m->tensor > 1 && !m->tensor_of ? arena_printf(b->a, " \"tensor\": %d,", m->tensor) : "", b->channels,
		timeout_of(b),
		m->schedule->async ? arena_printf(b->a, " \"flow\": %d, \"stash\": \"%s\",", m->schedule->lag + 1,
					     stash_word(m->schedule->rule))
				   : "");
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
