/* handshake.c: who the ranks are. Each tells all others, before step 0, which plan and runtime it was built from, what it does and
 * which process it is; names of ranks in messages come from there.
 *
 * The launcher gives its ranks a secret (PD_SECRET). Each shows that it has it without telling it: a keyed hash of its rank. What
 * was not started by this run's launcher is named and refused. */
#include "rt.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hello {
	unsigned abi;
	int rank, world, stage, replica, member, members;
	bool server;
	char hash[72], model[64];
	uint64_t proof; /* 0: no secret */
	rt_process process;
} hello;

static hello me, *told, *hellos; /* hellos: told, once all have been heard and agree */

const char *rt_task_name(int task)
{
	static char name[4][64];
	static int next;
	char *s = name[next++ & 3], member[16] = "";
	const hello *h = hellos ? &hellos[task] : NULL;

	if (h ? h->members > 1 : rt_group() > 1)
		snprintf(member, sizeof member, ".t%d", h ? h->member : rt_member);
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

/* ---- the secret ---- */

static uint64_t turn(uint64_t x, int by) { return x << by | x >> (64 - by); }

static void stir(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = turn(v[1], 13) ^ v[0];
	v[3] = turn(v[3], 16) ^ v[2];
	v[0] = turn(v[0], 32) + v[3];
	v[2] += v[1];
	v[1] = turn(v[1], 17) ^ v[2];
	v[3] = turn(v[3], 21) ^ v[0];
	v[2] = turn(v[2], 32);
}

/* SipHash-2-4 of n words (Aumasson and Bernstein 2012): who has not the key cannot make it. */
static uint64_t keyed(const uint64_t key[2], const uint64_t *word, size_t n)
{
	uint64_t v[4] = { key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du, key[0] ^ 0x6c7967656e657261u,
		key[1] ^ 0x7465646279746573u };

	for (size_t i = 0; i <= n; i++) {
		const uint64_t w = i < n ? word[i] : (uint64_t)n << 59; /* the last holds the length in bytes */

		v[3] ^= w;
		stir(v);
		stir(v);
		v[0] ^= w;
	}
	v[2] ^= 0xff;
	for (int i = 0; i < 4; i++)
		stir(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* What a task that has the launcher's secret shows; 0 where there is none, as under an MPI launcher of the user's own. */
static uint64_t proof(int task)
{
	const char *secret = getenv("PD_SECRET");
	uint64_t key[2];
	const uint64_t word = (uint64_t)task;

	if (!secret || strlen(secret) != 32)
		return 0;
	for (int i = 0; i < 2; i++) {
		char half[17] = "";

		memcpy(half, secret + (ptrdiff_t)16 * i, 16);
		key[i] = strtoull(half, NULL, 16);
	}
	return keyed(key, &word, 1) | 1;
}

size_t rt_hello(const pd_program *p, void **mine, void **all)
{
	me = (hello){ .abi = PD_ABI,
		.rank = p->rank,
		.world = p->world,
		.stage = p->stage,
		.replica = p->replica,
		.member = rt_member,
		.members = rt_group(),
		.server = p->server,
		.process = rt_process_here() };
	me.proof = proof(rt_task_of(p->rank));
	snprintf(me.hash, sizeof me.hash, "%s", p->hash);
	snprintf(me.model, sizeof me.model, "%s", p->model);
	told = rt_alloc((size_t)rt_tasks() * sizeof *told);
	*mine = &me;
	*all = told;
	return sizeof me;
}

void rt_met(const pd_program *p)
{
	const int tasks = rt_tasks();

	for (int r = 0; r < tasks; r++)
		if (told[r].proof != (me.proof ? proof(r) : 0))
			rt_fail(RT_MISMATCH, "R116",
				"rank %d (process %lld on %s) %s: it was not started by this run's launcher", r,
				(long long)told[r].process.pid, told[r].process.host,
				me.proof ? "does not know the secret of this run"
					 : "has a secret that this process was not told");
	for (int r = 0; r < tasks; r++) {
		if (strcmp(told[r].hash, me.hash))
			rt_fail(RT_MISMATCH, "R101",
				"ranks are of different plans: %s (%s) here, %s (%s) on rank %d; run make again",
				me.hash, me.model, told[r].hash, told[r].model, r);
		if (told[r].abi != me.abi || told[r].world != me.world || told[r].rank < 0 ||
			told[r].rank >= me.world || rt_first_task(told[r].rank) + told[r].member != r)
			rt_fail(RT_MISMATCH, "R101",
				"rank %d of %d, runtime %u here; rank %d says it is rank %d of %d, runtime %u", me.rank,
				me.world, me.abi, r, told[r].rank, told[r].world, told[r].abi);
	}
	hellos = told;
	rt_crowd(p);
}
