/* Asynchronous servers (--sync async; PipeDream section 4, ASP; Parallax section 5): what a device pushes is one update, made
 * when it comes, and what it pulls is the newest. What trains by itself is a replica of the model: one device, or one of each stage,
 * which send each other microbatches and flush the step as a synchronous pipeline does. Replicas never wait for each other but
 * for --staleness. So nothing may be left that joins them: every trained parameter is at a server, updates read nothing but
 * their own gradient, and replica r of a stage sends to replica r of the others. The loss' labels are counted in the last stage;
 * the others hear of them with the gradients (schedule_tagged). The program's side: runtime/servers/serve.c, pd_serve_each. */
#include <string.h>
#include "servers.h"
#include "passes/schedule/schedule.h"

static bool refuse(const PassCx *cx, const char *why) { return diag_error(cx->d, NOLOC, 520, "--sync async: %s", why); }

/* Are replicas of the stages such of the whole model? */
static bool pairs(const Module *m, const PassCx *cx)
{
	for (int k = 1; k < m->nstage; k++)
		if (m->stage[k]->replicas != m->stage[0]->replicas)
			return diag_error(cx->d, NOLOC, 520,
				"--sync async: replica r of every stage trains with replica r of the others, and stage 0 has "
				"%d replica%s, stage %d has %d; give all stages as many (--plan)",
				m->stage[0]->replicas, m->stage[0]->replicas == 1 ? "" : "s", k, m->stage[k]->replicas);
	if (m->nstage > 1 && !m->stage[m->nstage - 1]->backward->first)
		return diag_error(cx->d, NOLOC, 520,
			"--sync async: of the plan's %d stages the last computes nothing but the value of the loss, and "
			"tells the others with no gradient how many labels count; use fewer stages (--plan)",
			m->nstage);
	return true;
}

/* Servers want every stage on devices of its own, and steps that end. */
static bool served(const ScheduleRow *r) { return r->place == PLACED_OWN && !(r->flow & FLOW_ASYNC); }

bool async_servers(const Module *m, const PassCx *cx, const Travel *t, int n)
{
	const Training *o = cx->train;

	if (schedule_async(o))
		return diag_error(cx->d, NOLOC, 520,
			"--sync async: schedule %s delays updates by a rule of its own; choose %s",
			m->schedule ? m->schedule->name : schedule_str(cx->scratch, o->plan.schedule),
			schedule_list(cx->scratch, served));
	if (o->loop.reproducible)
		return refuse(cx,
			"updates have the order in which gradients arrive, and --reproducible promises the bits of one device");
	if (!pairs(m, cx))
		return false;
	if (o->comm.sum_dense || o->comm.sum_sparse)
		return diag_error(cx->d, NOLOC, 520,
			"--sync async: --average-%s 0 adds the means of all workers, whose gradients never meet: each "
			"is an update of its own, with the mean over its samples",
			o->comm.sum_dense ? "dense" : "sparse");
	if (o->loop.gnorm && !(o->model.opt.clip_norm > 0))
		return refuse(cx,
			"--gnorm tells the norm over all parameters, whose gradients arrive one after another at several servers");
	if (cx->train->model.opt.clip_norm > 0)
		return refuse(cx,
			"--clip-norm limits the norm over all parameters, whose gradients arrive one after another at several servers");
	if (o->target.amp.kind == AMP_FP16)
		return refuse(cx,
			"--amp fp16 leaves out a step in which any gradient overflows, and no step is common to all devices; choose bf16");
	if (o->target.amp.kind == AMP_FP8)
		return refuse(cx,
			"--amp fp8 scales numbers of 8 bits anew at the end of a step, which microbatches in flight have no common one of; choose bf16");
	if (o->data.last == LAST_KEEP)
		return refuse(cx,
			"data.last: keep trains on a short step, in which some devices have no sample; say drop or wrap");
	for (int i = 0; i < n; i++)
		if (t[i].w->param->sync != SYNC_PS)
			return diag_error(cx->d, NOLOC, 520,
				"--sync async: '%s' would go by AllReduce, in which devices meet (--comm %s)%s%s; %s",
				t[i].w->name, setting_word(SET_OF_Comm, (int)o->comm.by), t[i].why ? ": " : "",
				t[i].why ? t[i].why : "",
				!t[i].why   ? "--comm ps gives all parameters to servers"
				: t[i].many ? "choose a plan that keeps it in one stage"
					    : "choose a synchronous schedule (--sync)");
	return true;
}

bool async_moved(const Module *m, const PassCx *cx)
{
	for (int k = 0; k < m->nstage; k++)
		for (const Node *n = m->stage[k]->update->first; n; n = n->next) {
			const bool own = n->op == OP_Accumulate || n->op == OP_Push || n->op == OP_Total;
			if (!m->stage[k]->server && n->op == OP_Stack)
				return diag_error(cx->d, n->loc, 520,
					"--sync async: the running statistics of BatchNormalization are of all devices' "
					"samples, and devices do not meet; say --batchnorm frozen");
			if (m->stage[k]->server ? n->op == OP_Give || n->op == OP_Take : !own)
				return diag_error(cx->d, n->loc, 520,
					"--sync async: %s is done with gradients of all devices, which never meet",
					optab[n->op]->name);
		}
	return true;
}
