/* gpu_tensor.c: what the members of a tensor group tell each other (comm/tensor.c), where tensors lie on the device. Kernels behind it need
 * the result at once, so that nothing runs beside it: by NCCL it has a stream of its own between two events; else the host waits for the
 * copy of the operand, tells the other members, and what it got is on its way back before the next kernel. Between two graphs it is the
 * host's either way (gpu_graph.c). Memory is made before step 0, from what the program says of its largest tensors (pd_tensor_open). */
#include "gpu_rt.h"

void host_tensor_sum(void *y, const void *x, int64_t count, pd_dtype t);
void host_tensor_gather(void *y, const void *x, int64_t blocks, int64_t run);
void host_tensor_scatter(void *y, const void *x, int64_t blocks, int64_t run, pd_dtype t);

static struct {
	size_t sum, part;
} largest;
static void *whole, *part; /* pinned: a result, and the operand of what is gathered */
static rt_piece gathered;  /* on the device: the parts one behind the other, gathered or to be scattered */
static cudaEvent_t copied; /* the operand is in the host's memory */
static rt_flight under_way;

void pd_tensor_open(size_t sum, size_t of_part)
{
	largest.sum = sum > largest.sum ? sum : largest.sum;
	largest.part = of_part > largest.part ? of_part : largest.part;
}

void rt_tensor_rooms(bool direct)
{
	const size_t all = largest.part * (size_t)rt_group(), most = largest.sum > all ? largest.sum : all;

	if (direct && all)
		rt_want(&gathered, all, "what a tensor group gathers");
	if (!direct && most)
		whole = rt_pinned(NULL, most);
	if (!direct && largest.part)
		part = rt_pinned(NULL, largest.part);
}

/* The host has the tensor. */
static void to_host(void *host, const void *tensor, size_t bytes)
{
	rt_copy_on(RT_COMPUTE, host, tensor, bytes, true);
	rt_record_on(&copied, RT_COMPUTE);
	rt_until(copied);
}

static void sum_between(const rt_cut *b) { pd_tensor_sum(b->to, b->from, b->count, PD_F32); }

void pd_tensor_sum(void *y, const void *x, int64_t count, pd_dtype t)
{
	const size_t bytes = (size_t)count * sizeof(float); /* no program for GPUs is in f64 */

	if (rt_section_cut(&(rt_cut){ .begin = sum_between, .from = x, .to = y, .count = count }))
		return;
	if (rt_alone) {
		if (y != x)
			pd_copy(y, x, bytes);
		return;
	}
	if (rt_nccl_members(&under_way, RT_TOLD_SUM, y, x, (size_t)count)) {
		rt_pause();
		rt_record("tensor sum", -1, -1, -1);
		rt_wait_on(RT_COMPUTE, under_way.done);
		return;
	}
	to_host(whole, x, bytes);
	host_tensor_sum(whole, whole, count, t);
	rt_copy_on(RT_COMPUTE, y, whole, bytes, false);
}

static void gather_between(const rt_cut *b) { pd_tensor_gather(b->to, b->from, b->count, b->run); }

void pd_tensor_gather(void *y, const void *x, int64_t blocks, int64_t run)
{
	const int n = rt_group();
	const int64_t bytes = blocks * run;

	if (rt_section_cut(&(rt_cut){ .begin = gather_between, .from = x, .to = y, .count = blocks, .run = run }))
		return;
	if (rt_alone) {
		pd_copy_rows((char *)y + rt_member * run, n * run, x, run, run, blocks, 1);
		return;
	}
	if (rt_nccl_members(&under_way, RT_TOLD_ALL, blocks > 1 ? gathered.at : y, x, (size_t)bytes)) {
		rt_pause();
		rt_record("tensor gather", -1, -1, -1);
		rt_wait_on(RT_COMPUTE, under_way.done);
		for (int k = 0; k < n && blocks > 1; k++)
			pd_copy_rows(
				(char *)y + k * run, n * run, (char *)gathered.at + k * bytes, run, run, blocks, 1);
		return;
	}
	to_host(part, x, (size_t)bytes);
	host_tensor_gather(whole, part, blocks, run);
	rt_copy_on(RT_COMPUTE, y, whole, (size_t)(n * bytes), false);
}

void pd_tensor_shard(void *y, const void *x, int64_t blocks, int64_t run)
{
	pd_copy_rows(y, run, (const char *)x + rt_member * run, rt_group() * run, run, blocks, 1);
}

static void scatter_between(const rt_cut *b) { pd_tensor_scatter(b->to, b->from, b->count, b->run, PD_F32); }

void pd_tensor_scatter(void *y, const void *x, int64_t blocks, int64_t run, pd_dtype t)
{
	const int n = rt_group();
	const int64_t bytes = blocks * run;
	const bool packs = blocks > 1 && gathered.at;

	if (rt_section_cut(&(rt_cut){ .begin = scatter_between, .from = x, .to = y, .count = blocks, .run = run }))
		return;
	if (rt_alone) {
		pd_tensor_shard(y, x, blocks, run);
		return;
	}
	for (int k = 0; k < n && packs; k++)
		pd_copy_rows((char *)gathered.at + k * bytes, run, (const char *)x + k * run, n * run, run, blocks, 1);
	if (rt_nccl_members(&under_way, RT_TOLD_PART, y, packs ? gathered.at : x, (size_t)bytes / sizeof(float))) {
		rt_pause();
		rt_record("tensor scatter", -1, -1, -1);
		rt_wait_on(RT_COMPUTE, under_way.done);
		return;
	}
	to_host(whole, x, (size_t)(n * bytes));
	host_tensor_scatter(part, whole, blocks, run, t);
	rt_copy_on(RT_COMPUTE, y, part, (size_t)bytes, false);
}
