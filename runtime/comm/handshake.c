/* handshake.c: who the ranks are. Each tells all others, before step 0, which plan and runtime it was built from, what it does and
 * which process it is; names of ranks in messages come from there. */
#include "rt.h"
#include <stdio.h>
#include <string.h>

typedef struct hello {
	unsigned abi;
	int rank, world, stage, replica, member;
	bool server;
	char hash[72], model[64];
	rt_process process;
} hello;

static hello me, *told, *hellos; /* hellos: told, once all have been heard and agree */

const char *rt_task_name(int task)
{
	static char name[4][64];
	static int next;
	char *s = name[next++ & 3], member[16] = "";
	const hello *h = hellos ? &hellos[task] : NULL;

	if (rt_group() > 1)
		snprintf(member, sizeof member, ".t%d", task % rt_group());
	if (h || rt_program)
		snprintf(s, sizeof name[0],
			(h ? h->server : rt_program->server) ? "server%d.r%d%s (rank %d)" : "stage%d.r%d%s (rank %d)",
			h ? h->stage : rt_program->stage, h ? h->replica : rt_program->replica, member, task);
	else
		snprintf(s, sizeof name[0], "rank %d", task);
	return s;
}

const char *rt_name(int rank) { return rt_task_name(rt_program ? rt_task_of(rank) : rank); }

const rt_process *rt_process_of(int task) { return hellos ? &hellos[task].process : NULL; }

bool rt_serves(int rank) { return hellos && hellos[rt_task_of(rank)].server; }

size_t rt_hello(const pd_program *p, void **mine, void **all)
{
	me = (hello){ .abi = PD_ABI,
		.rank = p->rank,
		.world = p->world,
		.stage = p->stage,
		.replica = p->replica,
		.member = rt_member,
		.server = p->server,
		.process = rt_process_here() };
	snprintf(me.hash, sizeof me.hash, "%s", p->hash);
	snprintf(me.model, sizeof me.model, "%s", p->model);
	told = rt_alloc((size_t)(p->world * rt_group()) * sizeof *told);
	*mine = &me;
	*all = told;
	return sizeof me;
}

void rt_met(const pd_program *p)
{
	for (int r = 0; r < p->world * rt_group(); r++) {
		if (strcmp(told[r].hash, me.hash))
			rt_fail(RT_MISMATCH, "R101",
				"ranks are of different plans: %s (%s) here, %s (%s) on rank %d; run make again",
				me.hash, me.model, told[r].hash, told[r].model, r);
		if (told[r].abi != me.abi || told[r].world != me.world ||
			told[r].rank * rt_group() + told[r].member != r)
			rt_fail(RT_MISMATCH, "R101",
				"rank %d of %d, runtime %u here; rank %d says it is rank %d of %d, runtime %u", me.rank,
				me.world, me.abi, r, told[r].rank, told[r].world, told[r].abi);
	}
	hellos = told;
	rt_crowd(p);
}
