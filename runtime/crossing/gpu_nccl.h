/* gpu_nccl.h: what the files about NCCL share (gpu_nccl.c, gpu_nccl_open.c, gpu_nccl_calls.c) in a program that is built with it. */
#ifndef GPU_NCCL_H
#define GPU_NCCL_H

#include "gpu_rt.h"
#include <nccl.h>

enum { RT_SUMS_JOINT = -1, RT_MEMBERS_JOINT = -2 };
typedef struct rt_joint { /* a communicator */
	pd_group of;      /* of a lane: from, to */
	int lane, self;   /* lane: or of sums over replicas, of a tensor group; self: the place of this rank */
	ncclComm_t comm;
	cudaStream_t stream;
} rt_joint;
extern struct rt_joints {
	rt_joint *v;
	int n;
	bool on;
	double timeout;
} rt_joints;

/* Ends the run where a call failed. */
void rt_joint_check(const rt_joint *j, ncclResult_t r, const char *what);
void rt_joint_names(const rt_joint *j, char *text, size_t room); /* its ranks */
/* Something of this communicator begins behind what the device was told so far, on its stream; and it is told: of a message; of a
 * group. What ended is forgotten. */
void rt_flight_begin(rt_flight *f, const rt_joint *j);
void rt_flight_begun(rt_flight *f, const rt_joint *j);
void rt_flight_of_group(rt_flight *f, const rt_joint *j);
void rt_flights_land(void);

#endif
