/* DAPPLE's planner: every plan there is, for small cases (dapple.h). */
#include <math.h>
#include <string.h>
#include "dapple_job.h"

typedef struct Every {
	Job j;
	bool published;
	int copies, most; /* of the pipeline; replicas of a stage */
	DappleSet all;
	DapplePlan best;
} Every;

static void leaf(Every *e, DappleStage *stage, int n)
{
	const Job *j = &e->j;

	if (!e->published) {
		job_keep(&e->j, &e->best, stage, n, job_latency(j, stage, n, NULL));
		return;
	}
	DapplePlan plan = { .n = n, .copies = e->copies, .stage = stage };
	plan.block = dapple_block(j->p, j->c, j->o, &plan, 2);
	dapple_score(j->p, j->c, j->o, &plan);
	if (plan.latency < e->best.latency) {
		memcpy(e->best.stage, stage, sizeof *stage * (size_t)n);
		plan.stage = e->best.stage;
		e->best = plan;
	}
}

/* Devices of a server are alike: of every server the lowest free ones, any count. */
static void choose(Every *e, DappleStage *stage, int n, int k, DappleSet used, int server, DappleSet now);

static void stages(Every *e, DappleStage *stage, int n, int k, DappleSet used)
{
	if (k == e->j.p->n - 1) {
		if (used == e->all)
			leaf(e, stage, n);
	} else if (used != e->all) {
		choose(e, stage, n, k, used, 0, 0);
	}
}

static void choose(Every *e, DappleStage *stage, int n, int k, DappleSet used, int server, DappleSet now)
{
	const DappleCluster *c = e->j.c;

	if (server < c->servers) {
		DappleSet given = 0;
		for (int i = server ? c->end[server - 1] : 0;; i++) {
			choose(e, stage, n, k, used, server + 1, now | given);
			while (i < c->end[server] && used >> i & 1)
				i++;
			if (i >= c->end[server])
				return;
			given |= (DappleSet)1 << i;
		}
	}
	if (!now || __builtin_popcountll(now) % e->copies || (!e->published && __builtin_popcountll(now) > e->most))
		return;
	for (int j = k + 1; j < e->j.p->n; j++) {
		if (!dapple_before(e->j.p, k, j))
			continue;
		stage[n] = job_stage(&e->j, k + 1, j + 1, now);
		stage[n].replicas = e->published ? stage[n].replicas / e->copies : stage[n].replicas;
		if (n)
			job_link(&e->j, &stage[n - 1], &stage[n]);
		stages(e, stage, n + 1, j, used | now);
	}
}

DapplePlan *dapple_exhaustive(
	Arena *a, const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, bool published, Diag *d)
{
	int m[DAPPLE_DEVICES + 1];
	DappleStage stage[MOST + 1], kept[MOST + 1];
	Every e = { .j = { .p = p, .c = c, .o = o, .needed = INFINITY }, .published = published, .copies = 1 };

	if (!job_usable(p, c, o, d))
		return NULL;
	const int n = dapple_devices(c), nm = job_counts(c, o, m);
	if (p->n > 12 || n > 8) {
		diag_error(d, NOLOC, 441,
			"%d states on %d devices: every plan is tried for at most 12 states and 8 devices", p->n, n);
		return NULL;
	}
	e.all = ((DappleSet)1 << n) - 1;
	e.best = (DapplePlan){ .latency = INFINITY, .stage = kept };
	for (int i = 0; i < (published ? n : nm); i++) {
		if (published && (n % (i + 1) || i + 1 == n))
			continue;
		e.copies = published ? i + 1 : 1;
		job_set(&e.j, published ? 1 : m[i]);
		e.most = (int)(o->batch / e.j.m / o->least);
		stages(&e, stage, 0, -1, 0);
	}
	DapplePlan *plan = NULL;
	if (published && isfinite(e.best.latency)) {
		plan = arena_dup(a, &e.best, sizeof e.best);
		plan->stage = arena_dup(a, plan->stage, sizeof *plan->stage * (size_t)plan->n);
	} else {
		plan = job_result(a, &e.j, &e.best, d);
	}
	return plan;
}
