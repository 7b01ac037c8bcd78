/* Interleaved 1F1B (Narayanan et al. 2021, "Efficient large-scale language model training", section 2.2): a device runs V
 * chunks, stage s on group s mod S. Microbatches go in groups of S: the S of a group through a device's first chunk, the
 * same S through its second, ... ; backwards likewise from the last chunk to the first. With i the index of a forward in
 * this order on a device, chunk (i / S) mod V, microbatch (i / (S V)) S + i mod S.
 *
 * Device p does 2 (S - p - 1) + (V - 1) S forwards, then one forward and one backward in turn, then the backwards that are
 * left. Where there are S microbatches it does all forwards first. The bubble is 1/V of that of 1F1B. */
#include "passes/common/plan.h"
#include "sched.h"
#include "placement.h"

bool schedule_interleaved(Sched *c, Diag *d)
{
	const int v = schedule_chunks_of(c->spec, c->s->nstage), groups = c->s->nstage / v;
	DeviceSchedule *work = NEWN(c->a, DeviceSchedule, c->s->ndevice);

	for (int r = 0; r < c->s->ndevice; r++) {
		const int p = c->stage[r], n = c->ngrain[r], all = n * v;
		if (n % groups)
			return diag_error(d, NOLOC, 512,
				"schedule %s: %d microbatches per device do not divide into groups of %d, "
				"the number of devices in the pipeline; make it %d or %d microbatches",
				c->s->name, n, groups, n / groups ? n / groups * groups : groups,
				(n / groups + (n / groups ? 1 : 2)) * groups);
		int warm = 2 * (groups - p - 1) + (v - 1) * groups;
		if (n == groups || warm > all)
			warm = all;
		for (int f = 0, b = 0; b < all;) {
			const bool forward = f < all && f < b + warm + 1;
			const int i = forward ? f++ : b++, chunk = i / groups % v,
				  mb = i / (groups * v) * groups + i % groups;
			PUSH(c->a, work[r].act, work[r].n, work[r].cap) = (Action){ .kind = forward ? ACT_F : ACT_B,
				.stage = c->chunk[r][forward ? chunk : v - 1 - chunk],
				.mb = c->grain[r][mb] };
		}
	}
	sched_from_work(c, work);
	return true;
}
