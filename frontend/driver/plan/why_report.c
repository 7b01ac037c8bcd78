/* Why a plan is what it is: stages, the bottleneck, memory by class, bytes against data parallelism, what came next
 * and what it lost by. Times are those of the simulator over the compiled module; plans that were not chosen have
 * times of the planning model, which come within a few percent of it. */
#include "why_report.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "passes/cost/sumcost.h"
#include "passes/simulate/timeline.h"
#include "frontend/driver/compile/planfile.h"
#include "frontend/driver/compile/probe.h"
#include "ir/analysis.h"
#include "ir/base/human.h"
#include "passes/plan/cuts.h"

enum { STAGES = 64 };

/* ---- names ---- */

/* Where names are HOST[INDEX], neighbours of one host are one word. */
const char *devices_text(const Compile *c, const Stage *s, size_t most)
{
	const Cluster *k = &c->cluster;
	Buf b = { 0 };

	for (int i = 0; i < s->replicas;) {
		const Device *first = &k->device[s->device[i]];
		const bool indexed = first->name && strchr(first->name, '[');
		int n = 1;
		while (indexed && i + n < s->replicas && k->device[s->device[i + n]].host == first->host &&
			k->device[s->device[i + n]].index == first->index + n)
			n++;
		if (b.n > most) {
			buf_printf(&b, " and %d more", s->replicas - i);
			break;
		}
		const char *host = k->nhost ? k->host[first->host].name : "device";
		if (!indexed)
			buf_printf(&b, "%s%s", i ? " " : "", first->name ? first->name : host);
		else
			buf_printf(&b, n > 1 ? "%s%s[%d-%d]" : "%s%s[%d]", i ? " " : "", host, first->index,
				first->index + n - 1);
		i += n;
	}
	const char *text = arena_str(c->a, buf_str(&b));
	buf_free(&b);
	return text;
}

/* ---- where the time goes ---- */

/* As the planner's terms (ir/plan.h), of what was compiled. */
Where plan_where(const Sim *s)
{
	const Schedule *p = s->model->s;
	double most = -1;
	Where w = { .stage = 0 };

	for (int t = 0; t < p->nstage; t++)
		for (int k = 0; k < p->replicas[t]; k++) {
			const double *x = s->spent[p->device[t][k]];
			const double work = x[ACT_F] + x[ACT_B] + x[ACT_W];
			if (work <= most * (1 + 1e-9))
				continue;
			most = work;
			w.stage = t;
			w.t = (PlanTerms){ work / s->steps, x[ACT_SYNC] / s->steps, x[ACT_UPDATE] / s->steps, 0 };
		}
	w.t.sum = fmin(w.t.sum, sim_rest(s->each, w.t.work + w.t.update)); /* beside what computes, in Pipe-SGD */
	w.t.wait = sim_rest(s->each, w.t.work + w.t.sum + w.t.update);
	return w;
}

/* Expected before nodes were fused, and what the stages' nodes are now, some of which are computed twice: one device need not. */
double plan_one_device(const Compile *c, const Sim *s) { return fmin(c->plan.one_time, s->model->alone); }

const char *const plan_term_name[] = { "work", "AllReduce", "update", "idle" };

/* The largest of four, or of the differences to four others. */
int plan_largest_term(const PlanTerms *x, const PlanTerms *less)
{
	const double v[] = { x->work, x->sum, x->update, x->wait };
	const double u[] = { less ? less->work : 0, less ? less->sum : 0, less ? less->update : 0,
		less ? less->wait : 0 };
	int k = 0;

	for (int i = 1; i < 4; i++)
		if (v[i] - u[i] > v[k] - u[k])
			k = i;
	return k;
}

static const SimLoad *busiest(const Sim *s)
{
	const SimLoad *x = NULL;

	for (int i = 0; i < s->nload; i++)
		if (s->load[i].busy > 0 && (!x || s->load[i].busy > x->busy))
			x = &s->load[i];
	return x;
}

const char *plan_bottleneck(const Compile *c, const Sim *s, const Where *w)
{
	const double step = s->each > 0 ? s->each : 1,
		     busy = busiest(s) && s->step > 0 ? busiest(s)->busy / s->step : 0;
	const SimLoad *l = busiest(s);

	switch (plan_largest_term(&w->t, NULL)) {
	case 0:
		return arena_printf(
			c->a, "stage %d computes for %.0f %% of the step", w->stage, 100 * w->t.work / step);
	case 1:
		return arena_printf(c->a, "stage %d spends %.0f %% of the step on AllReduce over its replicas",
			w->stage, 100 * w->t.sum / step);
	case 2:
		return arena_printf(c->a, "stage %d updates its weights for %.0f %% of the step", w->stage,
			100 * w->t.update / step);
	default: break;
	}
	if (busy > 0.6) {
		const Link k = cluster_link_of(&c->cluster, l->line);
		return arena_printf(
			c->a, "messages keep %s busy for %.0f %% of the step", link_name(c, &k), 100 * busy);
	}
	return arena_printf(c->a, "stage %d waits for others for %.0f %% of the step: the pipeline fills and drains",
		w->stage, 100 * w->t.wait / step);
}

/* ---- text ---- */

/* At most n characters of a name, the end of it. */
static const char *tail(Arena *a, const char *name, size_t n)
{
	const size_t has = name ? strlen(name) : 1;

	return !name ? "-" : has <= n ? name : arena_printf(a, "..%s", name + has - (n - 2));
}

const double *stage_seconds(const Sim *s, int t)
{
	const Schedule *p = s->model->s;

	return s->model->time[p->device[t][0] * p->nstage + t];
}

static void print_stages(const Compile *c, const Sim *s, FILE *f)
{
	fprintf(f, "  stage  replicas   forward  backward    update  in flight  devices; the last call\n");
	for (int t = 0; t < module_stages(c->m) && t < STAGES; t++) {
		const PlanStage *p = &c->plan.stage[t];
		const double *x = stage_seconds(s, t);
		const char *devices = devices_text(c, c->m->stage[t], 8);
		const size_t left = strlen(devices) < 22 ? 40 - strlen(devices) : 18;

		fprintf(f, "  %-5d  %8d  %8s  %8s  %8s  %9d  %s; %s\n", t, p->replicas, time_text(c->a, x[ACT_F]),
			time_text(c->a, x[ACT_B]), time_text(c->a, x[ACT_UPDATE]), c->m->stage[t]->inflight, devices,
			tail(c->a, p->last, left));
	}
	if (module_stages(c->m) > STAGES)
		fprintf(f, "  ... and %d more stages\n", module_stages(c->m) - STAGES);
}

Classes stage_classes(const Stage *s)
{
	const int64_t stash = s->versions > 1 ? (s->versions - 1) * s->version_bytes : 0;
	Classes k = { .weights = s->bytes[REGION_PARAMS] - stash,
		.stash = stash,
		.optimizer = s->bytes[REGION_STATE],
		.gradients = s->bytes_grads,
		.comm = s->bytes_comm,
		.activations = s->bytes_kept };

	k.other = s->arena - k.weights - k.stash - k.optimizer - k.gradients - k.comm - k.activations;
	return k;
}

/* "1.21G": three digits and a unit. */
static const char *brief(Arena *a, int64_t bytes)
{
	static const char unit[] = " KMGT";
	double x = (double)bytes;
	int k = 0;

	while (x >= 999.5 && k < 4) {
		x /= 1024;
		k++;
	}
	return k ? arena_printf(a, "%.*f%c", x < 9.995 ? 2 : x < 99.95, x, unit[k]) : arena_printf(a, "%.0f", x);
}

static void print_memory(const Compile *c, FILE *f)
{
	fprintf(f,
		"  bytes  weights   stash  activations  gradients  optimizer  messages  temporary  together       of\n");
	for (int t = 0; t < c->m->nstage && t < STAGES; t++) {
		const Stage *s = c->m->stage[t];
		const Classes k = stage_classes(s);
		int64_t limit = 0;

		for (int r = 0; r < s->replicas; r++) {
			const int64_t has = c->cluster.device[s->device[r]].memory;
			limit = has > 0 && (!limit || has < limit) ? has : limit;
		}
		fprintf(f, "  %-5d  %7s %7s %12s %10s %10s %9s %10s %9s %8s\n", t, brief(c->a, k.weights),
			brief(c->a, k.stash), brief(c->a, k.activations), brief(c->a, k.gradients),
			brief(c->a, k.optimizer), brief(c->a, k.comm), brief(c->a, k.other), brief(c->a, s->arena),
			limit > 0 ? brief(c->a, limit) : "-");
	}
}

/* A long plan by its stages and devices. */
static const char *plan_short(Arena *a, const char *plan)
{
	int stages = 1, devices = atoi(plan);

	for (const char *s = plan; *s; s++)
		if (*s == '-') {
			stages++;
			devices += atoi(s + 1);
		}
	return strlen(plan) <= 18 ? plan : arena_printf(a, "%d stages on %d", stages, devices);
}

static void print_others(const Compile *c, FILE *f)
{
	const Plan *p = &c->plan;

	if (p->nother)
		fprintf(f,
			"  next best                step      more  lost by   planner (%ld plans tried, %ld simulated)\n",
			p->tried, p->played);
	for (int i = 0; i < p->nother; i++) {
		const PlanOther *o = &p->other[i];

		fprintf(f, "    %-18s %9s  %+6.1f %%  %-8s  %s%s\n", plan_short(c->a, o->plan),
			time_text(c->a, o->step), p->step_time > 0 ? 100 * (o->step / p->step_time - 1) : 0,
			plan_term_name[plan_largest_term(&o->terms, &p->terms)], o->by,
			o->over > 1 ? "; needs more memory than there is" : "");
	}
}

/* Steps of sizes are those of the search; told, they are longer or shorter by as much as the chosen plan's was when simulated. */
static double size_moved(const Compile *c) { return c->plan.estimate > 0 ? c->plan.step_time / c->plan.estimate : 1; }

/* Sizes of a microbatch that were looked at, with the plan of each. */
static void print_sizes(const Compile *c, FILE *f)
{
	const int64_t grains = c->m->grains ? c->m->grains : 1;
	const double moved = size_moved(c);

	if (c->nmicro)
		fprintf(f, "  other microbatches         step      more  plan (microbatch auto)\n");
	for (int i = 0; i < c->nmicro; i++) {
		const MicroChoice *x = &c->micro[i];
		if (x->micro != c->m->batch * grains)
			fprintf(f, "    %6" PRId64 " of %-6" PRId64 "   %9s  %+6.1f %%  %s%s\n",
				c->o->t.loop.global / x->micro, x->micro, time_text(c->a, moved * x->step),
				c->plan.step_time > 0 ? 100 * (moved * x->step / c->plan.step_time - 1) : 0,
				plan_short(c->a, x->plan), x->over > 1 ? "; needs more memory than there is" : "");
	}
}

static void print_edges(const Compile *c, const Sim *s, FILE *f)
{
	int64_t ours = 0, parallel = 0;

	for (int i = 0; i < s->nload; i++) {
		ours += s->load[i].messages + s->load[i].joins;
		parallel += s->load[i].parallel;
	}
	if (s->nload)
		fprintf(f, "  %s a step between devices; data parallelism over as many would move %s\n",
			str_bytes(c->a, ours / s->steps), str_bytes(c->a, parallel / s->steps));
	print_loads(c, s, f);
}

/* Of all sums over the replicas of a stage, one after the other. */
static double sums_alone(const SumModel *m, const Stage *x)
{
	double t = 0;

	for (const Node *n = x->update->first; n; n = n->next) {
		if (n->op != OP_AllReduce || strcmp(attr_str(n, "over"), "replicas"))
			continue;
		const char *codec = attr_str(n, "codec");
		int64_t bytes = 0;
		for (int i = 0; i < n->nin; i++)
			bytes += value_bytes(n->in[i]);
		const double b = (double)bytes, wire = (double)sum_wire(codec, attr_int(n, "block"), bytes);
		const SumBy by = sum_named(attr_str(n, "by"));
		t += strcmp(codec, "none") ? sum_packed_seconds(m, b, wire)
		                           : sum_seconds(m, by == SUM_KINDS ? sum_best(m, b) : by, b);
	}
	return t;
}

/* The timing model of sums over replicas (Pipe-SGD, section 3.1), and equation 7: how much of a step's computing is left when
 * sums go on beside it. */
static void print_sums(const Compile *c, const Sim *s, FILE *f)
{
	for (int t = 0; t < module_stages(c->m); t++) {
		const Stage *x = c->m->stage[t];
		const double *spent = s->spent[s->model->s->device[t][0]];
		const SumModel m = sum_model(c->a, &c->cluster, x->device, x->replicas);
		const double work = (spent[ACT_F] + spent[ACT_B] + spent[ACT_W] + spent[ACT_UPDATE]) / s->steps,
			     sums = sums_alone(&m, x);
		const SumWay *way = m.between.beta > 0 ? &m.between : &m.within;

		if (x->replicas > 1 && sums > 0)
			fprintf(f,
				"  AllReduce of stage %d: %s beside %s of computing, efficiency at best %.2f (alpha %s, beta %s ns/B, gamma %s ns/B, S %s)\n",
				t, time_text(c->a, sums), time_text(c->a, work), work / (work > sums ? work : sums),
				time_text(c->a, way->alpha), number_text(c->a, 1e9 * way->beta, 3),
				number_text(c->a, 1e9 * m.gamma, 3), time_text(c->a, m.sync));
	}
}

void plan_report(const Compile *c, const Sim *s, FILE *f)
{
	const Where w = plan_where(s);
	const double samples = (double)(c->m->batch * c->m->microbatches);

	fprintf(f, "plan %s%s%s%s, %s, %" PRId64 " microbatch%s of %" PRId64 ", on %s\n", plan_name(c),
		c->plan.by ? " (" : "", c->plan.by ? c->plan.by : "", c->plan.by ? ")" : "", c->m->schedule->name,
		c->m->microbatches, c->m->microbatches == 1 ? "" : "es", c->m->batch, cluster_name(c));
	print_stages(c, s, f);
	fprintf(f, "  step %s (%.*f samples/s): work %s, AllReduce %s, update %s, idle %s; bubble %.1f %%\n",
		time_text(c->a, s->each), s->each > 0 && samples / s->each < 100, s->each > 0 ? samples / s->each : 0,
		time_text(c->a, w.t.work), time_text(c->a, w.t.sum), time_text(c->a, w.t.update),
		time_text(c->a, w.t.wait), 100 * s->bubble);
	fprintf(f, "  one %s: %s, %.2f times as long\n", one_of(c->m), time_text(c->a, plan_one_device(c, s)),
		s->each > 0 ? plan_one_device(c, s) / s->each : 1);
	if (c->plan.order && c->plan.file_order > 0)
		fprintf(f, "  cut in the order %s; in the file's order a step is expected to take %.4g times as long\n",
			order_name[c->plan.order], c->plan.file_order / c->plan.step_time);
	else if (c->plan.order)
		fprintf(f, "  cut in the order %s\n", order_name[c->plan.order]);
	fprintf(f, "  bottleneck: %s\n", plan_bottleneck(c, s, &w));
	print_others(c, f);
	print_sizes(c, f);
	print_edges(c, s, f);
	print_sums(c, s, f);
	print_memory(c, f);
}

/* ---- JSON ---- */

static void quote(FILE *f, const char *s)
{
	char c[8];

	fputc('"', f);
	while (s && *s) {
		s += json_char(s, c);
		fputs(c, f);
	}
	fputc('"', f);
}

static void json_terms(FILE *f, const PlanTerms *t)
{
	fprintf(f, "{\"work_s\": %.9g, \"sums_s\": %.9g, \"update_s\": %.9g, \"waiting_s\": %.9g}", t->work, t->sum,
		t->update, t->wait);
}

static void json_memory(const Compile *c, const Stage *x, FILE *f)
{
	const Classes k = stage_classes(x);

	fprintf(f,
		"\"memory\": {\"weights\": %" PRId64 ", \"stash\": %" PRId64 ", \"activations\": %" PRId64
		", \"gradients\": %" PRId64 ", \"optimizer\": %" PRId64 ", \"communication\": %" PRId64
		", \"temporary\": %" PRId64 ", \"together\": %" PRId64 ", \"limit\": %" PRId64 "}}",
		k.weights, k.stash, k.activations, k.gradients, k.optimizer, k.comm, k.other, x->arena,
		c->cluster.device[x->device[0]].memory);
}

static void json_stage(const Compile *c, const Sim *s, int t, FILE *f)
{
	const Stage *x = c->m->stage[t];
	const PlanStage *p = &c->plan.stage[t];
	const double *time = stage_seconds(s, t);

	fprintf(f, "%s\n    {\"stage\": %d, \"replicas\": %d, \"tensor\": %d, \"zero\": %d, \"devices\": [",
		t ? "," : "", t, x->replicas, stage_tensor(c->m, t), stage_zero(&c->o->t.plan, t));
	for (int r = 0; r < x->replicas; r++) {
		fputs(r ? ", " : "", f);
		quote(f, c->cluster.device[x->device[r]].name);
	}
	fprintf(f,
		"],\n     \"forward_s\": %.9g, \"backward_s\": %.9g, \"update_s\": %.9g, \"in_flight\": %d, \"nodes\": %d, "
		"\"first\": ",
		time[ACT_F], time[ACT_B], time[ACT_UPDATE], x->inflight, p->nodes);
	quote(f, p->first);
	fputs(", \"last\": ", f);
	quote(f, p->last);
	fprintf(f, ", \"sends_bytes\": %" PRId64 ",\n     ", p->out_bytes);
	json_memory(c, x, f);
}

/* A server: its number among stages, the device at its host, what it holds. */
static void json_server(const Compile *c, const Sim *s, int t, FILE *f)
{
	const Stage *x = c->m->stage[t];

	fprintf(f, "%s\n    {\"server\": %d, \"device\": ", t > module_stages(c->m) ? "," : "", t);
	quote(f, c->cluster.device[x->device[0]].name);
	fprintf(f, ", \"update_s\": %.9g, \"holds\": {", stage_seconds(s, t)[ACT_UPDATE]);
	for (int i = 0, n = 0; i < x->nparam; i++) {
		if (x->param[i]->param->kind != PARAM_WEIGHT)
			continue;
		fputs(n++ ? ", " : "", f);
		quote(f, x->param[i]->name);
		fprintf(f, ": %" PRId64, type_bytes(&x->param[i]->type));
	}
	fputs("},\n     ", f);
	json_memory(c, x, f);
}

static void json_loads(const Compile *c, const Sim *s, FILE *f)
{
	for (int i = 0; i < s->nload; i++) {
		const SimLoad *x = &s->load[i];
		const Link l = cluster_link_of(&c->cluster, x->line);

		fprintf(f, "%s\n    {\"link\": ", i ? "," : "");
		quote(f, link_name(c, &l));
		fprintf(f,
			", \"messages_bytes\": %" PRId64 ", \"sums_bytes\": %" PRId64
			", \"data_parallel_bytes\": %" PRId64 ", \"busiest_port\": %.6g}",
			x->messages / s->steps, x->joins / s->steps, x->parallel / s->steps,
			s->step > 0 ? x->busy / s->step : 0);
	}
}

static void json_others(const Plan *p, FILE *f)
{
	for (int i = 0; i < p->nother; i++) {
		const PlanOther *o = &p->other[i];

		fprintf(f, "%s\n    {\"plan\": \"%s\", \"planner\": ", i ? "," : "", o->plan);
		quote(f, o->by);
		fprintf(f, ", \"step_s\": %.9g, \"lost_by\": \"%s\", \"fits\": %s, \"terms\": ", o->step,
			plan_term_name[plan_largest_term(&o->terms, &p->terms)], o->over > 1 ? "false" : "true");
		json_terms(f, &o->terms);
		fputc('}', f);
	}
}

static void json_meshes(const Compile *c, FILE *f)
{
	fputs("],\n \"meshes\": [", f);
	for (int i = 0; i < c->nmesh; i++) {
		const Mesh *x = &c->mesh[i];
		fprintf(f, "%s{\"tensor\": %" PRId64 ", \"zero\": %" PRId64 ", \"taken\": %s, ", i ? ", " : "",
			x->tensor > 1 ? x->tensor : 1, x->zero > 0 ? x->zero : 0,
			i == c->mesh_taken && !(c->unlike && c->unlike->taken) ? "true" : "false");
		if (!x->fits) {
			fputs("\"refused\": ", f);
			quote(f, x->refused ? x->refused : "");
			fprintf(f, ", \"over\": %.6g}", x->over);
			continue;
		}
		fprintf(f,
			"\"plan\": \"%s\", \"step_s\": %.9g, \"least_s\": %.9g, \"samples\": %" PRId64
			", \"peak_bytes\": %" PRId64 "}",
			x->plan, x->step, x->least, x->samples, x->peak);
	}
}

/* Stages that are divided unlike. */
static void json_unlike(const UnlikeFound *u, FILE *f)
{
	fprintf(f, ",\n \"unlike\": {\"tried\": %d, \"taken\": %s", u->tried, u->taken ? "true" : "false");
	if (u->best)
		fprintf(f, ", \"plan\": \"%s\", \"step_s\": %.9g, \"samples\": %" PRId64 ", \"peak_bytes\": %" PRId64,
			u->name, u->best->step, u->best->samples, u->best->peak);
	fputc('}', f);
}

void plan_json(const Compile *c, const Sim *s, FILE *f)
{
	const Where w = plan_where(s);

	fputs("{\"model\": ", f);
	quote(f, c->m->name);
	fputs(", \"cluster\": ", f);
	quote(f, cluster_name(c));
	fprintf(f, ",\n \"model_hash\": \"%s\", \"cluster_hash\": \"%s\",\n \"plan\": \"%s\", \"planner\": ",
		model_hash(c), cluster_hash(c), plan_name(c));
	quote(f, c->plan.by);
	fprintf(f,
		", \"schedule\": \"%s\", \"microbatches\": %" PRId64 ", \"microbatch\": %" PRId64
		",\n \"step_s\": %.9g, "
		"\"estimate_s\": %.9g, \"estimate_peak_bytes\": %.0f, \"one_device_s\": %.9g, \"bubble\": %.6g, "
		"\"terms\": ",
		c->m->schedule->name, c->m->microbatches, c->m->batch, s->each, c->plan.estimate, c->plan.peak,
		plan_one_device(c, s), s->bubble);
	json_terms(f, &w.t);
	if (c->plan.order)
		fprintf(f, ", \"order\": \"%s\", \"file_order_s\": %.9g", order_name[c->plan.order],
			c->plan.file_order);
	fputs(", \"bottleneck\": ", f);
	quote(f, plan_bottleneck(c, s, &w));
	fputs(",\n \"stages\": [", f);
	for (int t = 0; t < module_stages(c->m); t++)
		json_stage(c, s, t, f);
	fputs("],\n \"servers\": [", f);
	for (int t = module_stages(c->m); t < c->m->nstage; t++)
		json_server(c, s, t, f);
	fputs("],\n \"links\": [", f);
	json_loads(c, s, f);
	fprintf(f, "],\n \"tried\": %ld, \"simulated\": %ld, \"others\": [", c->plan.tried, c->plan.played);
	json_others(&c->plan, f);
	fputs("],\n \"sizes\": [", f);
	for (int i = 0; i < c->nmicro; i++)
		fprintf(f, "%s{\"microbatch\": %" PRId64 ", \"plan\": \"%s\", \"step_s\": %.9g, \"over\": %.6g}",
			i ? ", " : "", c->micro[i].micro, c->micro[i].plan, size_moved(c) * c->micro[i].step,
			c->micro[i].over);
	if (c->nmesh > 1)
		json_meshes(c, f);
	fputs("]", f);
	if (c->unlike)
		json_unlike(c->unlike, f);
	fputs("}\n", f);
}

int plan_main(Compile *c)
{
	Sim s;

	if (c->o->deadline > 0 || c->o->budget > 0)
		return fleet_main(c);
	if (!compile_read(c) || !compile_plan(c, NULL))
		return compile_status(c);
	if (!c->m->schedule) {
		compile_summary(c, NULL);
		return 0;
	}
	if (!simulate(c->a, simulate_model(c->a, c->m, &c->cluster, &c->o->t), &s, c->d))
		return EXIT_INPUT;
	const char *save = c->o->save_plan ? c->o->save_plan : c->o->out;
	if (save && !plan_save(c, save))
		return EXIT_USAGE;
	if (c->o->json) {
		plan_json(c, &s, stdout);
		return 0;
	}
	compile_summary(c, NULL);
	if (c->o->explain)
		plan_report(c, &s, stdout);
	return 0;
}
