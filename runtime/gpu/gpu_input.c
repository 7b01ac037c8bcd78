/* gpu_input.c: samples and labels, from the host to tensors of the device. Each input has two places in pinned memory: one is filled
 * while the other is copied. What a step reads first is brought into the other one while the device works on the step before. */
#include "gpu_rt.h"
#include <stdio.h>

void host_input(int i, int mb, void *dst); /* the host's side (gpu_names.h) */

typedef struct place {
	void *host;
	size_t bytes;
	cudaEvent_t copied;
} place;

static struct {
	place place[2];
	int turn;  /* the place that was read last */
	int first; /* the microbatch that was read first in `step` */
	int64_t step;
	int64_t ahead; /* the step whose first microbatch is in the other place; -1: none */
} *inputs;
static int64_t read_ahead;

void rt_input_rooms(void)
{
	if (inputs)
		return;
	inputs = rt_alloc((size_t)rt_program->ninputs * sizeof *inputs + 1);
	for (int i = 0; i < rt_program->ninputs; i++) {
		const pd_input_desc *d = &rt_program->inputs[i];

		inputs[i].step = inputs[i].ahead = -1;
		for (int k = 0; k < 2; k++) {
			place *p = &inputs[i].place[k];

			p->bytes = rt_gpu_bytes_of(d->dtype, d->rank, d->dim);
			if (p->bytes)
				p->host = rt_pinned(NULL, p->bytes);
		}
	}
}

void rt_inputs_ahead(void)
{
	if (!inputs || rt_alone || rt_virtual || rt_program->flow || pd_evaluating() || rt_last_step())
		return;
	for (int i = 0; i < rt_program->ninputs; i++) {
		place *p = &inputs[i].place[inputs[i].turn ^ 1];

		if (inputs[i].step != rt_step)
			continue;
		rt_until(p->copied);
		if (rt_input_read(i, rt_step + 1, inputs[i].first,
			    p->host)) /* else that step reads it, and says what is wrong */
			inputs[i].ahead = rt_step + 1;
	}
}

void rt_inputs_end(void)
{
	if (inputs && rt_log >= RT_LOG_DEBUG)
		printf("debug: %s read %lld inputs ahead\n", rt_name(rt_program->rank), (long long)read_ahead);
}

void pd_input(int i, int mb, void *dst)
{
	if (rt_section_before(RT_TODO_INPUT, i, mb, dst))
		return;
	rt_input_rooms();
	place *p = &inputs[i].place[inputs[i].turn ^= 1];
	const bool there = inputs[i].ahead == rt_step && inputs[i].first == mb && !pd_evaluating();

	if (there) {
		read_ahead++;
	} else {
		rt_until(p->copied);
		if (rt_late && !rt_input_read(i, rt_step, mb, p->host))
			rt_tell_rest(); /* before what is wrong with the sample */
		host_input(i, mb, p->host);
	}
	inputs[i].ahead = -1;
	if (inputs[i].step != rt_step) {
		inputs[i].step = rt_step;
		inputs[i].first = mb;
	}
	rt_copy_on(RT_COMPUTE, dst, p->host, p->bytes, false);
	rt_record_on(&p->copied, RT_COMPUTE);
}
