/* place: devices for every stage. Ranks are those of the plan (placement.c), and
 * rank r runs on the device that partition chose, else on the r-th of the cluster file: neighbours in the pipeline are
 * neighbours in the file. Reads the plan; writes Plan.device. */
#include "passes/common/plan.h"

bool pass_place(Module *m, PassCx *cx)
{
	Plan *p = cx->plan;

	if (!p)
		return diag_error(cx->d, FILELOC(m->file), 410, "place needs a plan; run partition first");
	if (cx->cluster && p->ndevice > cluster_workers(cx->cluster))
		return diag_error(cx->d, FILELOC(cx->cluster->file), 403,
			"plan %s needs %d devices; the cluster has %d%s", plan_str(cx->scratch, p), p->ndevice,
			cluster_workers(cx->cluster),
			cluster_workers(cx->cluster) < cx->cluster->ndevice ? " with the role worker" : "");
	if (p->device)
		return true;
	p->device = NEWN(m->arena, int, p->ndevice);
	for (int r = 0; r < p->ndevice; r++)
		p->device[r] = r;
	return true;
}
