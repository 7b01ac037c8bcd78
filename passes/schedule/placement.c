/* Which stages lie on which devices. Most schedules give every stage devices of its own; a schedule of chunks lets a
 * device run several stages, which it is said to have chunks of the model:
 *     interleaved:V   stage s on group s mod S, S = stages / V (Megatron-LM: Narayanan et al. 2021, section 2.2)
 *     zbv             two chunks, down the devices and up again: stage s on group s, then 2S - 1 - s (Qi et al. 2023,
 *                     zero bubble, section 6)
 *     csv:FILE        what the file says
 * A group is R devices, replica by replica; ranks are group-major. All stages of a group have the same R. */
#include <stdlib.h>
#include <string.h>
#include "csv.h"

int schedule_chunks(const char *name)
{
	if (name && !strncmp(name, "interleaved:", 12))
		return atoi(name + 12);
	return name && !strcmp(name, "zbv") ? 2 : 1;
}

const char *schedule_file(const char *name)
{
	return name && !strncmp(name, "csv:", 4) ? name + 4 : NULL;
}

bool schedule_splits(Arena *a, const char *name, bool *splits, Diag *d)
{
	Csv x;

	*splits = name && (!strcmp(name, "zb-h1") || !strcmp(name, "zbv"));
	if (!schedule_file(name))
		return true;
	if (!csv_read(a, schedule_file(name), &x, d))
		return false;
	*splits = x.split;
	return true;
}

/* Fills ranks from groups. */
static bool give_ranks(Arena *a, const char *name, int nstage, const int *replicas, Placement *p, Diag *d)
{
	int *of = NEWN(a, int, p->ngroup), *first = NEWN(a, int, p->ngroup);

	for (int s = 0; s < nstage; s++) {
		const int was = of[p->group[s]];
		if (was && was != replicas[s])
			return diag_error(d, NOLOC, 511, "schedule %s: stage %d has %d replicas, but an earlier stage of the same "
				"devices has %d; give all stages of a device the same number", name, s, replicas[s], was);
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

static bool place_file(Arena *a, const char *name, int nstage, const int *replicas, Placement *p, Diag *d)
{
	Csv x;

	if (!csv_read(a, schedule_file(name), &x, d))
		return false;
	if (x.nstage != nstage)
		return diag_error(d, FILELOC(x.file), 515, "the schedule has %d stages, the plan %d; leave --plan away or make it fit",
			x.nstage, nstage);
	for (int t = 0; t < nstage; t++)
		if (x.replicas[t] != replicas[t])
			return diag_error(d, FILELOC(x.file), 515, "%d lines run stage %d, the plan has %d replicas of it; leave --plan away or "
				"make it fit", x.replicas[t], t, replicas[t]);
	*p = (Placement){ .ngroup = x.ngroup, .group = x.group, .rank = NEWN(a, int, nstage) };
	return give_ranks(a, name, nstage, replicas, p, d);
}

bool plan_place(Arena *a, const char *name, int nstage, const int *replicas, Placement *p, Diag *d)
{
	const int v = schedule_chunks(name), groups = nstage / v;

	if (schedule_file(name))
		return place_file(a, name, nstage, replicas, p, d);
	*p = (Placement){ .ngroup = groups, .group = NEWN(a, int, nstage), .rank = NEWN(a, int, nstage) };
	if (nstage % v)
		return diag_error(d, NOLOC, 510, "schedule %s: %d stages do not divide into %d chunks per device; make it %d or "
			"%d stages (--plan)", name, nstage, v, nstage < v ? v : nstage / v * v, (nstage / v + (nstage < v ? 2 : 1)) * v);
	for (int s = 0; s < nstage; s++)
		p->group[s] = v == 1 ? s : !strcmp(name, "zbv") && s >= groups ? nstage - 1 - s : s % groups;
	return give_ranks(a, name, nstage, replicas, p, d);
}
