/* gpu_kernels.cu: the few kernels that the runtime itself starts. */
#include "gpu.h"

namespace device
{

static __global__ void add(float *sum, const float *one, int64_t n)
{
	const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		sum[i] += one[i];
}

typedef pd_pack<2> pairs;

static __global__ void copy(const pairs p)
{
	const int row = pd_pack_row(p);
	uint32_t *to = (uint32_t *)p.at[row][0];
	const uint32_t *from = (const uint32_t *)p.at[row][1];
	const int64_t first = (int64_t)(blockIdx.x - p.first[row]) * pairs::EACH, end = p.n[row];

	for (int64_t i = first + threadIdx.x; i < end && i < first + pairs::EACH; i += blockDim.x)
		to[i] = from[i];
}

static __global__ void add_pairs(const pairs p)
{
	const int row = pd_pack_row(p);
	float *to = (float *)p.at[row][0];
	const float *from = (const float *)p.at[row][1];
	const int64_t first = (int64_t)(blockIdx.x - p.first[row]) * pairs::EACH, end = p.n[row];

	for (int64_t i = first + threadIdx.x; i < end && i < first + pairs::EACH; i += blockDim.x)
		to[i] += from[i];
}

struct box {
	int d, h, w;
};

/* Of `planes` images [in], with their places in larger ones [out] from `front` on: there, or back. */
template <class T>
static __global__ void window(T *large, T *small, int64_t planes, box in, box front, box out, int there)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, size = (int64_t)in.d * in.h * in.w;

	if (e >= planes * size)
		return;
	const int64_t w = e % in.w, h = e / in.w % in.h, d = e / in.w / in.h % in.d;
	const int64_t to = ((e / size * out.d + d + front.d) * out.h + h + front.h) * out.w + w + front.w;

	if (there)
		large[to] = small[e];
	else
		small[e] = large[to];
}

template <class T> static __global__ void turn(T *to, const T *from, int64_t n, int c, int64_t points, int plain)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, size = c * points, i = e % size;

	if (e < n * size)
		to[e] = from[e - i + (plain ? i % points * c + i / points : i % c * points + i / c)];
}

template <class I>
static __global__ void place_rows(
	float *table, int64_t height, const I *ids, const float *rows, int64_t n, int64_t width)
{
	const int64_t e = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;

	if (e < n * width)
		table[(ids[e / width] < 0 ? ids[e / width] + height : (int64_t)ids[e / width]) * width + e % width] =
			rows[e];
}

static __global__ void set(float *to, float v) { *to = v; }

static __global__ void set_late(float *to, const double *from) { *to = (float)*from; }

static __global__ void note(float *place, float *count, const float *first, const float *second)
{
	place[0] = *first;
	place[1] = *second;
	if (count)
		*count = *second;
}

static __global__ void set_sum(float *to, const float *counts, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += (double)counts[i];
	*to = (float)sum;
}

} // namespace device

PD_HOST void pd_add(float *sum, const float *one, int64_t n)
{
	PD_LAUNCH(device::add, pd_blocks(n, 256), 256, 0, sum, one, n);
}

PD_HOST void pd_copy_many(const pd_many *row, int rows)
{
	PD_LAUNCH_ROWS(device::copy, device::pairs, row, rows, pd_part);
}

PD_HOST void pd_add_many(const pd_many *row, int rows)
{
	PD_LAUNCH_ROWS(device::add_pairs, device::pairs, row, rows, pd_part);
}

PD_HOST void pd_set(float *to, double v) { PD_LAUNCH(device::set, 1, 1, 0, to, (float)v); }

PD_HOST void rt_set_late(float *to, const double *from) { PD_LAUNCH(device::set_late, 1, 1, 0, to, from); }

PD_HOST void rt_note(float *place, float *count, const float *first, const float *second)
{
	PD_LAUNCH(device::note, 1, 1, 0, place, count, first, second);
}

PD_HOST void rt_set_sum(float *to, const float *counts, int n) { PD_LAUNCH(device::set_sum, 1, 1, 0, to, counts, n); }

/* The images that lie in larger ones from `front` on are copied there, or back. Extents of three axes, elements of
 * `size` bytes, 2 or 4. */
PD_HOST void pd_window(void *large, const void *small, size_t size, int64_t planes, const int *in, const int *front,
	const int *out, int there)
{
	const int64_t n = planes * in[0] * in[1] * in[2];
	const device::box i{ in[0], in[1], in[2] }, f{ front[0], front[1], front[2] }, o{ out[0], out[1], out[2] };

	if (size == 2)
		PD_LAUNCH(device::window<uint16_t>, pd_blocks(n, 256), 256, 0, (uint16_t *)large, (uint16_t *)small,
			planes, i, f, o, there);
	else
		PD_LAUNCH(device::window<float>, pd_blocks(n, 256), 256, 0, (float *)large, (float *)small, planes, i,
			f, o, there);
}

PD_HOST void pd_turn_images(void *to, const void *from, size_t size, int64_t n, int c, int64_t points, bool plain)
{
	const unsigned blocks = pd_blocks(n * c * points, 256);

	if (size == 2)
		PD_LAUNCH(device::turn<uint16_t>, blocks, 256, 0, (uint16_t *)to, (const uint16_t *)from, n, c, points,
			plain);
	else
		PD_LAUNCH(device::turn<float>, blocks, 256, 0, (float *)to, (const float *)from, n, c, points, plain);
}

/* gpu_servers.c: rows[i] becomes row ids[i] of the table. */
PD_HOST void pd_place_rows(
	float *table, int64_t height, const void *ids, int bytes, const float *rows, int64_t n, int64_t width)
{
	if (bytes == 8)
		PD_LAUNCH(device::place_rows, pd_blocks(n * width, 256), 256, 0, table, height, (const int64_t *)ids,
			rows, n, width);
	else
		PD_LAUNCH(device::place_rows, pd_blocks(n * width, 256), 256, 0, table, height, (const int32_t *)ids,
			rows, n, width);
}
