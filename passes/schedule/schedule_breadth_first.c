/* Breadth-first (Lamy-Poirier 2023, "Breadth-first pipeline parallelism", section 4): interleaved's placement, but all microbatches
 * of a step go through a device's first chunk before any goes through its second, and backwards likewise from the last chunk to
 * the first. The bubble is interleaved's, 1/V of 1F1B's; every microbatch stays in flight, as with GPipe, and any number of them
 * will do. The gradients of a chunk are whole after a run of backwards of that chunk alone, so that its sum over the replicas
 * goes on while the chunks before it compute. */
#include "sched.h"

bool schedule_breadth_first(Sched *c, Diag *d)
{
	DeviceSchedule *work = NEWN(c->a, DeviceSchedule, c->s->ndevice);

	(void)d;
	for (int r = 0; r < c->s->ndevice; r++) {
		const int n = c->ngrain[r], all = n * c->nchunk[r];
		for (int i = 0; i < 2 * all; i++) {
			const int chunk = i < all ? i / n : c->nchunk[r] - 1 - (i - all) / n;
			PUSH(c->a, work[r].act, work[r].n, work[r].cap) = (Action){
				.kind = i < all ? ACT_F : ACT_B, .stage = c->chunk[r][chunk], .mb = c->grain[r][i % n]
			};
		}
	}
	sched_from_work(c, work);
	return true;
}
