/* gpu_parts.h: tensors of which each replica has a part (pd.h: pd_part) that lie on the device. */
#ifndef GPU_PARTS_H
#define GPU_PARTS_H

#include "gpu_rt.h"

/* What one call moves: a ReduceScatter of floats, or an AllGather of elements of `size` bytes. */
typedef struct rt_moved {
	const pd_group *group;
	void *buf;       /* wholes, from part[i].at on */
	const void *own; /* gathered: this member's parts, from part[i].own on; NULL: they lie in buf */
	const pd_part *part;
	int n;
	size_t size;
	bool gathers;
	/* staged: wholes one behind the other in the host's memory, and where; room: of `packed` */
	char *host;
	pd_part *packed;
	int room;
} rt_moved;

bool rt_moves_parts(const pd_group *g);                      /* these replicas do: pd_parts_open was called with them */
size_t rt_moved_bytes(const pd_part *p, int n, size_t size); /* of the wholes */
/* gpu_sums.c: begins it behind what the device was told so far; pd_allreduce_wait waits for it. */
void rt_moved_start(const rt_moved *m);
/* Staged: what this member gives is copied to the host, on RT_SUMS; the host's call begins; what it got is copied back, on RT_RETURNS. */
void rt_moved_there(rt_moved *m);
void rt_moved_begin(const rt_moved *m);
void rt_moved_back(const rt_moved *m);
void rt_moved_alone(const rt_moved *m); /* where no other replica runs: its own parts are where they belong */
/* What pd_scatter_add has summed is added: behind a wait. */
void rt_moved_add(void);
/* gpu_nccl_calls.c. A tensor whose parts are all as large crosses by one call, another by one of each part. */
bool rt_nccl_parts(rt_flight *f, const rt_moved *m);

#endif
