/* What pdcc says of a compilation: the model, the plan, the memory of each device. */
#include "compile.h"
#include <unistd.h>
#include "global_batch.h"
#include "ir/text/profile.h"
#include "ir/base/buf.h"
#include "ir/base/human.h"
#include "ir/analysis.h"

const char *compile_times(const Compile *c)
{
	if (!c->profile)
		return "static estimate";
	const char *grown = c->profile->micro > 0 && c->m && c->m->batch != c->profile->micro && c->measured
	                            ? arena_printf(c->a, " at microbatch %lld, scaled by the cost model",
					      (long long)c->profile->micro)
	                            : "";
	return arena_printf(c->a, "%d of %d nodes measured%s%s", c->measured, c->measured + c->estimated, grown,
		c->estimated ? ", the others estimated" : "");
}

static void summary_model(const Compile *c)
{
	const Module *m = c->m;
	int64_t elements = 0;
	int weights = 0, frozen = 0, rows = 0, mixed = 0;

	for (int i = 0; i < m->nparam; i++) {
		const Param *p = m->param[i]->param;

		if (p->kind != PARAM_WEIGHT || p->whole)
			continue;
		weights++;
		frozen += p->frozen;
		rows += p->rows;
		mixed += p->mixed && !p->rows;
		const Type whole = shard_stored(m->param[i]);

		elements += type_numel(&whole);
	}
	fprintf(c->d->out, "pdcc %s  %s: %d parameters (%lld), %d frozen, %d with row-sparse gradients, opset %d\n",
		PDCC_VERSION, str_shown(c->a, m->name), weights, (long long)elements, frozen, rows, m->opset);
	for (int i = 0; mixed && i < m->nparam; i++)
		if (m->param[i]->param->mixed && !m->param[i]->param->rows)
			fprintf(c->d->out,
				"  mixed: %s is looked up and used whole; its gradient is part rows, part dense\n",
				str_shown(c->a, m->param[i]->name));
	fprintf(c->d->out, "  trained:");
	int shown = 0;
	for (int i = 0; i < m->nparam; i++) {
		const Param *p = m->param[i]->param;

		if (p->kind != PARAM_WEIGHT || p->frozen || p->whole)
			continue;
		if (++shown <= 12 || c->o->verbose)
			fprintf(c->d->out, " %s", str_shown(c->a, m->param[i]->name));
	}
	fprintf(c->d->out, shown > 12 && !c->o->verbose ? " ... and %d more (-v lists all)\n" : "\n", shown - 12);
	for (int i = 0; i < m->nstage; i++)
		for (int k = 0; k < m->stage[i]->forward->nin; k++) {
			const Value *v = m->stage[i]->forward->in[k];

			fprintf(c->d->out, "  input %s %s, batch axis %d, read by stage %d\n", str_shown(c->a, v->name),
				str_type(c->a, &v->type), v->batch_axis, i);
		}
	const char *sliced =
		m->grains ? arena_printf(c->a, " in %lld grains, sliced over replicas", (long long)m->grains) : "";
	const int64_t grains = m->grains ? m->grains : 1;
	fprintf(c->d->out, "  microbatch %lld%s, %lld microbatches per step, global batch %lld%s; data: %s%s\n",
		(long long)(m->batch * grains), sliced, (long long)(m->microbatches / grains),
		(long long)(m->batch * m->microbatches), batch_origin(c), data_said(c),
		c->o->t.data.eval.on ? ", and an evaluation set" : "");
}

/* What --epochs comes to, as rt_order and steps_of of the runtime count it; of a module that has its schedule. */
static void summary_epochs(const Compile *c)
{
	const int64_t epochs = c->o->t.loop.epochs, batch = c->m->batch * c->m->microbatches, n = c->samples,
		      left = n % batch;
	const LastSamples last = c->o->t.data.last;
	const int64_t each = last == LAST_KEEP && left ? n - left + batch : last == LAST_DROP ? n - left : n;

	if (!epochs)
		return;
	fprintf(c->d->out, "  %lld epoch%s of ", (long long)epochs, epochs > 1 ? "s" : "");
	if (n)
		fprintf(c->d->out, "%lld samples: %lld steps of %lld\n", (long long)n,
			(long long)((epochs * each + batch - 1) / batch), (long long)batch);
	else
		fprintf(c->d->out, "the samples there are where it runs, in steps of %lld\n", (long long)batch);
}

const char *plan_name(const Compile *c)
{
	const char *s = "";

	for (int t = 0; t < module_stages(c->m); t++)
		s = arena_printf(c->a, c->m->tensor > 1 ? "%s%s%dx%d" : "%s%s%d", s, t ? "-" : "",
			c->m->stage[t]->replicas, stage_tensor(c->m, t));
	return s;
}

/* What a member of a tensor group has of the weights, and tells the others. */
static void summary_tensor(const Compile *c)
{
	const Module *m = c->m;
	int64_t whole = 0, part = 0, sent = 0;

	for (int i = 0; i < m->nparam; i++) {
		const Value *v = m->param[i];
		const Type all = shard_stored(v);

		if (v->param->kind != PARAM_WEIGHT || v->param->whole)
			continue;
		whole += type_bytes(&all);
		part += type_bytes(&v->type);
	}
	for (int i = 0; i < m->nstage; i++) {
		Graph *g[4];
		const int n = stage_graphs(m->stage[i], g);

		for (int k = 0; k < n; k++)
			for (const Node *x = g[k]->first; x && g[k] != m->stage[i]->update; x = x->next)
				sent += shard_sent(x, stage_tensor(m, i));
	}
	fprintf(c->d->out,
		"  tensor %d  each device has %s of %s of weights; a microbatch sends %s within its groups\n",
		m->tensor, str_bytes(c->a, part), str_bytes(c->a, whole), str_bytes(c->a, sent));
}

/* Bytes of the gradients that replicas sum, those of parts as parts, and as whole. */
static void summed_bytes(const Module *m, int64_t *has, int64_t *whole)
{
	*has = *whole = 0;
	for (int t = 0; t < m->nstage; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_Accumulate) {
				*has += type_bytes(&n->out[0]->type);
				*whole += type_bytes(&n->in[0]->type);
			}
}

/* "1", or where stages differ "1-3". */
static const char *zero_name(const Compile *c)
{
	const PlanSettings *p = &c->o->t.plan;
	const int stages = module_stages(c->m);
	const char *s = arena_printf(c->a, "%d", stage_zero(p, 0));

	for (int t = 1; t < stages && zero_differs(p, stages); t++)
		s = arena_printf(c->a, "%s-%d", s, stage_zero(p, t));
	return s;
}

/* What one replica of every stage has of the optimizer's state, of gradients and of weights, and would have without --zero. */
static void summary_zero(const Compile *c)
{
	int64_t has = 0, whole = 0, weights = 0, held = 0, sums, all;

	for (int t = 0; t < c->m->nstage; t++)
		for (int i = 0; i < c->m->stage[t]->nparam; i++) {
			const Value *v = c->m->stage[t]->param[i];
			if (v->param->kind == PARAM_WEIGHT) {
				weights += type_bytes(&v->type);
				held += held_bytes(v);
			}
			if (v->param->kind != PARAM_STATE)
				continue;
			has += type_bytes(&v->type);
			whole += type_bytes(v->param->part ? &v->param->of->type : &v->type);
		}
	summed_bytes(c->m, &sums, &all);
	fprintf(c->d->out, "  zero %s  one replica of every stage has %s of %s of optimizer state%s%s\n", zero_name(c),
		str_bytes(c->a, has), str_bytes(c->a, whole),
		sums < all ? arena_printf(c->a, ", gradients %s of %s", str_bytes(c->a, sums), str_bytes(c->a, all))
			   : "",
		held < weights ? arena_printf(c->a, "\n          weights %s of %s", str_bytes(c->a, held),
					 str_bytes(c->a, weights))
			       : "");
}

void compile_summary(const Compile *c, const char *dir)
{
	const Module *m = c->m;

	if (c->o->quiet)
		return;
	summary_model(c);
	if (!m->schedule)
		return;
	summary_epochs(c);
	const char *again = c->o->t.plan.recompute == RECOMPUTE_NONE
	                            ? NULL
	                            : setting_word(SET_OF_Recompute, (int)c->o->t.plan.recompute);
	fprintf(c->d->out, "plan %s, schedule %s%s%s, %d thread%s per device\n", plan_name(c), m->schedule->name,
		again ? ", recompute " : "", again ? again : "", c->o->t.target.threads,
		c->o->t.target.threads > 1 ? "s" : "");
	for (int i = 0; i < m->nstage && i < 12; i++) {
		const Stage *s = m->stage[i];
		const PlanStage *p = i < c->plan.nstage ? &c->plan.stage[i] : NULL;

		fprintf(c->d->out, m->tensor > 1 ? "  %s %d  x%dx%d" : "  %s %d  x%d", s->server ? "server" : "stage",
			i, s->replicas, stage_tensor(m, i));
		if (p)
			fprintf(c->d->out, "  fwd %s bwd %s  %s..%s", time_short(c->a, p->fwd),
				time_short(c->a, p->bwd), p->first ? str_shown(c->a, p->first) : "",
				p->last ? str_shown(c->a, p->last) : "");
		fprintf(c->d->out, "  weights %s  in flight %d  memory %s\n", str_bytes(c->a, s->bytes[REGION_PARAMS]),
			s->inflight, str_bytes(c->a, s->arena));
	}
	if (m->tensor > 1)
		summary_tensor(c);
	if (most_zero(&c->o->t.plan, module_stages(m)))
		summary_zero(c);
	if (c->plan.step_time > 0)
		fprintf(c->d->out, "  predicted step %s (one %s %s; %s)\n", time_short(c->a, c->plan.step_time),
			one_of(m), time_short(c->a, c->plan.one_time), compile_times(c));
	if (c->o->explain) {
		fputs(c->mesh_told ? c->mesh_told : "", c->d->out);
		fputs(buf_str(&c->explain), c->d->out);
	}
	const int programs = first_task(m, m->schedule->ndevice);

	if (dir && target_cuda(&c->o->t) && c->cluster.local && access("/dev/nvidiactl", F_OK))
		fprintf(c->d->out, "no GPU is here: the programs want one of %s, and make nvcc\n", c->o->t.target.arch);
	if (dir)
		fprintf(c->d->out, "wrote %s: %d stage%s, %d program%s  ->  make -C %s && make -C %s run\n", dir,
			module_stages(m), module_stages(m) > 1 ? "s" : "", programs, programs > 1 ? "s" : "", dir, dir);
}
