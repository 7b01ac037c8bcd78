/* vendor.c: sums by MPI's own AllReduce (PD_SUM_VENDOR), in the background like all others. Whatever algorithm MPI takes,
 * its bytes are not counted. A group's communicator is made before step 0, because making one waits for all members. */
#include "rt.h"
#include <limits.h>
#include <stdlib.h>
#include <mpi.h>

enum { GROUPS = 256 };

static struct {
	const pd_group *group;
	MPI_Comm comm;
} opened[GROUPS];
static int nopened;

static void check(int rc, const char *call)
{
	if (rc != MPI_SUCCESS)
		rt_fail(RT_LOST, "R103", "%s gives %d", call, rc);
}

void pd_group_open(const pd_group *g)
{
	MPI_Group world, members;

	if (g->n == 1 || rt_alone)
		return;
	if (nopened == GROUPS)
		rt_fail(RT_ERROR, "R111", "more than %d groups of MPI's own AllReduce", GROUPS);
	rt_lock();
	check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
	int *task = rt_alloc((size_t)g->n * sizeof *task);

	for (int i = 0; i < g->n; i++)
		task[i] = rt_task_of(g->rank[i]);
	check(MPI_Group_incl(world, g->n, task, &members), "MPI_Group_incl");
	free(task);
	check(MPI_Comm_create_group(MPI_COMM_WORLD, members, nopened, &opened[nopened].comm), "MPI_Comm_create_group");
	opened[nopened++].group = g;
	MPI_Group_free(&members);
	MPI_Group_free(&world);
	rt_unlock();
}

void rt_vendor_sum(const pd_group *g, float *buf, size_t count, int request, int peer)
{
	for (int i = 0; i < nopened; i++)
		if (opened[i].group == g) {
			if (count > INT_MAX)
				rt_fail(RT_ERROR, "R105", "an AllReduce of %zu elements is over what MPI takes at once",
					count);
			check(MPI_Iallreduce(MPI_IN_PLACE, buf, (int)count, MPI_FLOAT, MPI_SUM, opened[i].comm,
				      rt_request(request)),
				"MPI_Iallreduce");
			rt_requested(request, peer, count * sizeof *buf);
			return;
		}
	rt_fail(RT_ERROR, "R111", "rank %d calls AllReduce over a group of %d that was not opened", rt_program->rank,
		g->n);
}
