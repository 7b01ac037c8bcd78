/* GPipe (Huang et al., section 2.3): all forwards of the step, then all backwards. Every microbatch of a device is in
 * flight at once, so each has its own slot. Backwards run in the order of the forwards. */
#include "sched.h"

bool schedule_gpipe(Sched *c, Diag *d)
{
	(void)d;
	for (int r = 0; r < c->s->ndevice; r++)
		if (c->s->inflight[c->stage[r]] < c->ngrain[r])
			c->s->inflight[c->stage[r]] = c->ngrain[r];
	sched_entries(c);
	for (int r = 0; r < c->s->ndevice; r++) {
		sched_begin(c, r);
		for (int k = 0; k < c->ngrain[r]; k++)
			sched_forward(c, r, k);
		for (int k = 0; k < c->ngrain[r]; k++)
			sched_backward(c, r, k);
		sched_end(c, r);
	}
	return true;
}
