/* hybrid: how the gradient of every parameter travels (Parallax section 3.1, Table 3). A device moves in a step
 *
 *     AllReduce                     2 (N - 1) b / N      b bytes of the parameter, N replicas of its stage
 *     parameter server, whole       2 b                  pulled and pushed
 *     parameter server, rows        2 alpha b            alpha: share of the rows that a device touches in a step, or that
 *                                                        slices read (opsw.c). With --amp 16 bits travel each way: half of it
 *
 * --comm hybrid gives every parameter the cheaper way; auto does where hosts have several devices, whose server answers all of
 * them through one port (travel_hosts); ps sends all to servers, allreduce none. alpha of a
 * looked-up table is measured on the data (frontend/driver/compile/sparsity.c), else what evenly drawn ids would touch; --explain says which. Reads Stage.replicas, the lookups; writes Param.sync.
 *
 * What a server cannot have (it lies in several stages, is no f32 ...) stays with AllReduce. */
#include <string.h>
#include "servers.h"
#include "passes/schedule/schedule.h"

bool travel_served(const Training *train, const Cluster *c, const Travel *t)
{
	const Comm comm = train ? train->comm.by : COMM_UNSAID;

	if (t->why || comm == COMM_UNSAID || comm == COMM_ALLREDUCE)
		return false;
	if (comm == COMM_AUTO) {
		double ps, allreduce;
		travel_hosts(t, c, train, &ps, &allreduce);
		return t->s->replicas > 1 && ps < allreduce;
	}
	return comm == COMM_PS || travel_ps(t) < travel_allreduce(t);
}

/* A table that is summed whole because the user said so. */
static bool forced(const PassCx *cx, const Travel *t)
{
	return cx->train && cx->train->comm.by == COMM_ALLREDUCE && t->rows && !t->why &&
	       travel_ps(t) < travel_allreduce(t);
}

static void explain(const PassCx *cx, const Travel *t, bool server)
{
	if (!cx->explain)
		return;
	buf_printf(cx->explain,
		"  %-24s %12lld B  touches %5.1f %%%-12s  server %7.0f B, AllReduce over %d: %7.0f B  -> %s",
		t->w->name, (long long)t->bytes, 100 * t->alpha,
		!t->rows             ? ""
		: t->w->param->touch ? " (data)"
				     : " (even ids)",
		travel_ps(t), t->s->replicas, travel_allreduce(t),
		server               ? t->rows ? "rows at a server" : "at a server"
		: t->s->replicas > 1 ? "AllReduce"
				     : "its device");
	buf_printf(cx->explain, t->why && cx->train && cx->train->comm.by ? ": %s\n" : "\n", t->why);
}

/* Of a parameter that several stages hold: was it before i? */
static bool told(const Travel *t, int i)
{
	for (int k = 0; k < i; k++)
		if (t[k].w == t[i].w)
			return true;
	return false;
}

bool pass_hybrid(Module *m, PassCx *cx)
{
	int n;
	Travel *t = travel_list(m, cx, &n);
	const bool owned = stage_servers(m, cx->train); /* by replicas of the stage: owners.c */
	bool any = false;

	if (cx->explain && cx->train && cx->train->comm.by)
		buf_printf(cx->explain, "how gradients travel, bytes of a device and step:\n");
	for (int i = 0; i < n; i++) {
		const bool server = travel_served(cx->train, cx->cluster, &t[i]) && !owned;
		any |= server;
		if (server)
			t[i].w->param->sync = SYNC_PS;
		else if (cx->train && cx->train->comm.by == COMM_PS && !owned && !told(t, i))
			diag_warn(cx->d, NOLOC, "comm",
				"--comm ps: '%s' goes by AllReduce (%.0f bytes of a device and step): %s", t[i].w->name,
				travel_allreduce(&t[i]), t[i].why);
		if (cx->train && cx->train->comm.by)
			explain(cx, &t[i], server);
		if (forced(cx, &t[i]))
			diag_warn(cx->d, NOLOC, "comm",
				"--comm allreduce: '%s' is only looked up, %.3g %% of it in a step; summed whole it is %.0f "
				"bytes of a device and step, at a server %.0f",
				t[i].w->name, 100 * t[i].alpha, travel_allreduce(&t[i]), travel_ps(&t[i]));
	}
	if (served_async(cx->train) && !async_servers(m, cx, t, n))
		return false;
	if (owned && cx->train->loop.reproducible)
		return diag_error(cx->d, NOLOC, 430,
			"--comm ps: replicas of %s add the gradients that they own in one order, and "
			"--reproducible adds all of them by a tree at each; say --comm allreduce",
			m->schedule->name);
	if (owned && target_cuda(cx->train))
		return diag_error(cx->d, NOLOC, 430,
			"--comm ps: replicas of %s own parameters in programs for CPUs; say --comm allreduce",
			m->schedule->name);
	if (any && schedule_async(cx->train))
		return diag_error(cx->d, NOLOC, 430,
			"--comm %s: servers answer synchronous schedules; %s is asynchronous",
			setting_word(SET_OF_Comm, (int)cx->train->comm.by),
			m->schedule ? m->schedule->name : "this one");
	for (int k = 0; any && k < m->nstage; k++)
		for (int j = 0; j < k; j++)
			if (m->stage[k]->rank == m->stage[j]->rank)
				return diag_error(cx->d, NOLOC, 430,
					"--comm %s: schedule %s puts stages %d and %d on one device; with servers "
					"every stage has its own",
					setting_word(SET_OF_Comm, (int)cx->train->comm.by), m->schedule->name, j, k);
	return true;
}
