/* How many microbatches a device keeps of a stage under a schedule that is not made yet, by the formula of its row: planners
 * take memory by it. Exact where stages have equally many replicas (testsuite/unit/test_schedule_table.c holds every row
 * against the schedule that is made); where they have not, an estimate. A formula that is missing is a missing case here:
 * there is no other schedule's to fall back to. */
#include <limits.h>
#include "csv.h"
#include "sched.h"
#include "placement.h"

/* PipeDream's NOAM at a stage: what keeps the later ones busy. */
static int noam(const int *replicas, int nstage, int stage)
{
	int later = 0;

	for (int t = stage; t < nstage; t++)
		later += replicas[t];
	return (later + replicas[stage] - 1) / replicas[stage];
}

/* Of the first i computations of a device in interleaved order, how many are of the chunk that comes `chunk`-th. */
static int of_chunk(int i, int chunk, int v, int groups)
{
	const int rest = i % (groups * v) - chunk * groups;

	return i / (groups * v) * groups + (rest < 0 ? 0 : rest < groups ? rest : groups);
}

/* What schedule_interleaved.c's order comes to: before its b-th backward a device has done min(all, b + warm + 1) forwards; forwards
 * go through the chunks upwards, backwards downwards. */
static int interleaved(int v, int nstage, int stage, int grains)
{
	const int groups = nstage / v, p = stage % groups, chunk = stage / groups, all = grains * v;
	const int ahead = 2 * (groups - p - 1) + (v - 1) * groups, warm = grains == groups || ahead > all ? all : ahead;
	int most = 1;

	for (int b = 0; b < all && b < 2 * groups * v; b++) {
		const int f = b + warm + 1 < all ? b + warm + 1 : all;
		const int live = of_chunk(f, chunk, v, groups) - of_chunk(b, v - 1 - chunk, v, groups);
		most = live > most ? live : most;
	}
	return most;
}

/* What the lines of a file have between forwards and the last that reads what they left. */
static int listed(const Csv *x, int stage)
{
	int most = 1;

	for (int i = 0; i < x->nline; i++) {
		int live = 0;
		for (int k = 0; k < x->line[i].n; k++) {
			const CsvAction *act = &x->line[i].act[k];
			bool last = act->kind == ACT_B || act->kind == ACT_W;
			if (act->stage != stage)
				continue;
			live += act->kind == ACT_F;
			most = live > most ? live : most;
			for (int j = k + 1; j < x->line[i].n && last; j++) {
				const CsvAction *next = &x->line[i].act[j];
				last = next->stage != stage || next->mb != act->mb ||
				       (next->kind != ACT_B && next->kind != ACT_W);
			}
			live -= last;
		}
	}
	return most;
}

int schedule_depth(ScheduleSpec s, const int *replicas, int nstage, int stage, int grains)
{
	const int v = schedule_chunks_of(s, nstage);
	int most = 0;

	switch (schedule_row(s)->flight) {
	case FLIGHT_NOAM: most = noam(replicas, nstage, stage); break;
	case FLIGHT_WARMUP: most = dapple_depth(s.n ? (char)s.n : 'A', stage, nstage, grains); break;
	case FLIGHT_ALL: most = grains; break;
	case FLIGHT_STAGES: most = nstage; break;
	case FLIGHT_PLAYED: /* where nothing is said of room */
	case FLIGHT_LATER: most = nstage - stage; break;
	case FLIGHT_GROUPS: most = interleaved(v, nstage, stage, grains); break;
	case FLIGHT_ONE: most = 1; break;
	case FLIGHT_BOUND: return s.n ? s.n : noam(replicas, nstage, 0);
	case FLIGHT_LISTED: most = listed(csv_of(s), stage); break;
	}
	if (most < 1)
		bug("schedule %s has no formula for what is in flight", schedule_row(s)->name);
	return most < grains ? most : grains;
}

int schedule_versions(ScheduleSpec s, VersionRule rule, const int *replicas, int nstage, int stage)
{
	const int flow = schedule_row(s)->flow;

	if (!(flow & FLOW_ASYNC))
		return 1;
	if (!(flow & FLOW_EACH)) /* a step's own, and the one that the step before makes meanwhile */
		return flow & FLOW_BESIDE ? 1 : 2;
	if (!(flow & FLOW_VERSIONS))
		rule = VERSION_STASH;
	return rule == VERSION_NEWEST
	               ? 1
	               : schedule_depth(s, replicas, nstage, rule == VERSION_VERTICAL ? 0 : stage, INT_MAX);
}
