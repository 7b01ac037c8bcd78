/* Which stages lie on which devices, by the placement of the schedule's row (ir/schedules.def). Most schedules give every
 * stage devices of its own; a schedule of chunks lets a device run several stages, which it is said to have chunks of the
 * model, V of them:
 *     PLACED_CYCLE    stage s on group s mod S, S = stages / V (Megatron-LM: Narayanan et al. 2021, section 2.2)
 *     PLACED_VEE      down the devices and up again: stage s on group s, then 2S - 1 - s (Qi et al. 2023, zero bubble,
 *                     section 6)
 *     PLACED_LISTED   what the file says
 * A plan of one stage has nothing to place: whatever the schedule, it is one chunk on devices of its own.
 * A group is R devices, replica by replica; ranks are group-major. All stages of a group have the same R. */
#include "csv.h"
#include "placement.h"

bool schedule_splits(ScheduleSpec s)
{
	switch (schedule_row(s)->backward) {
	case BACKWARD_WHOLE: return false;
	case BACKWARD_PARTS: return true;
	case BACKWARD_LISTED: return csv_of(s)->split;
	}
	return false;
}

/* Stages on the same devices that have unlike numbers of replicas; rule: which ones a schedule puts there. */
static bool unlike(const char *name, const char *rule, int s, const int *replicas, const Placement *p, Diag *d)
{
	int t = 0;

	while (p->group[t] != p->group[s])
		t++;
	return diag_error(d, NOLOC, 511,
		"schedule %s puts stages %d and %d on the same devices%s: stage %d has %d replica%s, stage %d has %d; "
		"give both the same number",
		name, t, s, rule, t, replicas[t], replicas[t] == 1 ? "" : "s", s, replicas[s]);
}

/* Fills ranks from groups. */
static bool give_ranks(
	Arena *a, const char *name, const char *rule, int nstage, const int *replicas, Placement *p, Diag *d)
{
	int *of = NEWN(a, int, p->ngroup), *first = NEWN(a, int, p->ngroup);

	for (int s = 0; s < nstage; s++) {
		const int was = of[p->group[s]];
		if (was && was != replicas[s])
			return unlike(name, rule, s, replicas, p, d);
		of[p->group[s]] = replicas[s];
	}
	for (int g = 0; g < p->ngroup; g++) {
		first[g] = p->ndevice;
		p->ndevice += of[g];
	}
	for (int s = 0; s < nstage; s++)
		p->rank[s] = first[p->group[s]];
	return true;
}

static bool place_listed(
	Arena *a, const char *name, const Csv *x, int nstage, const int *replicas, Placement *p, Diag *d)
{
	if (x->nstage != nstage)
		return diag_error(d, FILELOC(x->file), 515,
			"the schedule has %d stages, the plan %d; leave --plan away or make it fit", x->nstage, nstage);
	for (int t = 0; t < nstage; t++)
		if (x->replicas[t] != replicas[t])
			return diag_error(d, FILELOC(x->file), 515,
				"%d lines run stage %d, the plan has %d replicas of it; leave --plan away or "
				"make it fit",
				x->replicas[t], t, replicas[t]);
	*p = (Placement){ .ngroup = x->ngroup, .group = x->group, .rank = NEWN(a, int, nstage) };
	return give_ranks(a, name, "", nstage, replicas, p, d);
}

/* Which stages share devices, of n on so many groups. */
static const char *rule_of(Arena *a, SchedulePlacement place, int groups, int n)
{
	return place == PLACED_VEE     ? arena_printf(a, " (s and %d - s)", n - 1)
	       : place == PLACED_CYCLE ? arena_printf(a, " (s and s + %d)", groups)
	                               : "";
}

static int group_of(SchedulePlacement place, int s, int groups, int nstage)
{
	switch (place) {
	case PLACED_OWN: return s;
	case PLACED_VEE: return s < groups ? s : nstage - 1 - s;
	case PLACED_CYCLE: return s % groups;
	case PLACED_LISTED: break;
	}
	bug("the groups of a file are what it lists");
}

bool plan_place(Arena *a, ScheduleSpec schedule, int nstage, const int *replicas, Placement *p, Diag *d)
{
	const SchedulePlacement place = schedule_row(schedule)->place;
	const char *name = schedule_str(a, schedule);
	const int v = schedule_chunks_of(schedule, nstage), groups = nstage / v;

	if (place == PLACED_LISTED)
		return place_listed(a, name, csv_of(schedule), nstage, replicas, p, d);
	*p = (Placement){ .ngroup = groups, .group = NEWN(a, int, nstage), .rank = NEWN(a, int, nstage) };
	if (nstage % v)
		return diag_error(d, NOLOC, 510,
			"schedule %s: %d stages do not divide into %d chunks per device; make it %d or "
			"%d stages (--plan)",
			name, nstage, v, nstage < v ? v : nstage / v * v, (nstage / v + (nstage < v ? 2 : 1)) * v);
	for (int s = 0; s < nstage; s++)
		p->group[s] = group_of(place, s, groups, nstage);
	return give_ranks(a, name, rule_of(a, place, groups, nstage), nstage, replicas, p, d);
}
