/* gpu_way.c: which way messages go, from GPU to GPU or through the host, as all ranks find alike; and what is made for it before step 0. */
#include "gpu_rt.h"
#include <stdlib.h>

static char how[440] = "staged through the host"; /* for the line at the start */

typedef struct found {
	char uuid[16];
	bool trains, built;
} found;

/* Why NCCL cannot be taken; NULL: it can. */
static const char *against(const found *all)
{
	static char why[400];

	for (int t = 0; t < rt_tasks(); t++) {
		if (!all[t].trains)
			continue;
		if (!all[t].built)
			return "the program was built without NCCL";
		for (int q = 0; q < t; q++)
			if (all[q].trains && !memcmp(all[q].uuid, all[t].uuid, sizeof all->uuid)) {
				snprintf(why, sizeof why, "%s and %s share a GPU", rt_task_name(q), rt_task_name(t));
				return why;
			}
	}
	return NULL;
}

/* Whether messages go by NCCL, as all ranks find alike. */
static bool by_nccl(const pd_program *p, const rt_options *o)
{
	const bool off = o->nccl && !strcmp(o->nccl, "off"), must = o->nccl && !strcmp(o->nccl, "on");
	found mine = { .trains = !p->server, .built = rt_nccl_built() };
	const int tasks = rt_tasks();
	const char *why;

	if (o->nccl && !off && !must && strcmp(o->nccl, "auto"))
		rt_fail(RT_USAGE, "R001", "--nccl wants auto, on or off, not '%s'", o->nccl);
	if (tasks == 1 || rt_alone || rt_virtual)
		return false;
	memcpy(mine.uuid, rt_gpu_uuid(), sizeof mine.uuid);
	found *all = rt_alloc((size_t)tasks * sizeof *all);

	rt_gather_tasks(&mine, all, sizeof mine);

	why = off ? "--nccl off" : against(all);
	if (must && why)
		rt_fail(RT_USAGE, "R525", "--nccl on: %s (%s)", why, pd_device_name());
	free(all);
	if (why) {
		snprintf(how, sizeof how, "staged through the host: %s", why);
		return false;
	}
	snprintf(how, sizeof how, "by NCCL, each of the %d ranks has a GPU of its own", tasks);
	return true;
}

/* Counted labels can stay on the devices: one knows them all, or NCCL adds them up. */
static bool counts_stay(const pd_program *p, bool direct)
{
	for (int r = 0; r < p->world; r++)
		if (rt_serves(r))
			return false;
	return p->world == 1 || (direct && !p->tensor_of);
}

const pd_group *rt_world(void)
{
	static pd_group all;

	if (!all.n) {
		int *rank = rt_alloc((size_t)rt_program->world * sizeof *rank);

		for (int r = 0; r < rt_program->world; r++)
			rank[r] = r;
		all = (pd_group){ rt_program->world, rank };
	}
	return &all;
}

void rt_join_counts(float *all, const float *mine, size_t n)
{
	static rt_flight f;

	pd_copy(all, mine, n * sizeof *all);
	if (!rt_nccl_sum(&f, rt_world(), all, n))
		rt_fail(RT_ERROR, "R525", "NCCL on %s does not join all %d ranks", pd_device_name(), rt_program->world);
	rt_wait_on(RT_COMPUTE, f.done);
}

void rt_gpu_connect(const pd_program *p, const rt_options *o)
{
	const bool direct = by_nccl(p, o);

	rt_late = rt_late && counts_stay(p, direct);
	const size_t buffers = direct ? rt_nccl_find(p, o->timeout) : 0;

	if (rt_alone || rt_virtual) { /* what is run is a part of it, or nothing */
		rt_gpu_make(0);
		return;
	}
	rt_late_room();
	rt_numbers_room();
	rt_notes_room();
	rt_tensor_rooms(direct);
	rt_gpu_make(buffers);
	rt_host_rooms(direct);
	rt_streams_open();
	rt_gpu_library();
	if (!o->dry_run) { /* --check makes the libraries' objects, and runs nothing */
		rt_products_time(o);
		rt_first_runs();
	}
	if (direct)
		rt_nccl_open();
}

void rt_gpu_announce(void)
{
	char parts[1200] = "";
	const size_t all = rt_gpu_told(parts, sizeof parts);

	if (rt_tasks() > 1)
		printf("messages between GPUs: %s\n", how);
	if (*rt_products_told())
		printf("products: %s\n", rt_products_told());
	if (rt_virtual) /* there is no GPU */
		return;
	printf("memory of %s: %zu bytes (%s)\n", pd_device_name(), all, parts);
}
