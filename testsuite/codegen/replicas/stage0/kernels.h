/* conv, stage 0 of 1: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "pd.h"

/* glibc has vector versions of these functions, which gcc uses in simd loops once they are declared so. Their error is
 * at most 4 ulp; infinities and NaN keep their meaning. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && defined __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 35)
#define PD_VECTOR __attribute__((simd("notinbranch")))
PD_VECTOR extern float  expf(float);
PD_VECTOR extern float  logf(float);
PD_VECTOR extern float  powf(float, float);
PD_VECTOR extern float  sinf(float);
PD_VECTOR extern float  cosf(float);
PD_VECTOR extern float  tanhf(float);
PD_VECTOR extern float  erff(float);
PD_VECTOR extern float  log1pf(float);
PD_VECTOR extern float  expm1f(float);
#endif
#endif

/* A loop nest over every element: elementwise ops, fused chains, and ops that move elements. Loops of one turn are
 * gone and neighbours are joined (nest.c); the innermost loop is the one along which y lies in memory. y may be the
 * same memory as an operand that is read at the same index, so nothing is restrict; omp simd says that turns are
 * independent. TILE: loop j is the one along which a lies in memory, so both go in blocks that
 * stay in the first cache. FILL: y is larger than the nest and gets VALUE where the nest does not write. */
static void reorder_2x1x4x4_to_nhwc(float *y, const float *a)
{
#pragma omp simd
	for (int i = 0; i < 32; i++) {
		y[i] = a[i];
	}
}

static void relu_64(float *y, const float *a)
{
#pragma omp simd
	for (int i = 0; i < 64; i++) {
		y[i] = a[i] < 0 ? 0 : a[i];
	}
}

/* Pooling of x [OUTER, ID, IH, IW, CH] to y [OUTER, OD, OH, OW, CH]; BACK: x is the gradient that is made from that of
 * y. MAX: `place` says which element of the window won, the first of equals. Else the average over the window's
 * elements that lie inside, PADDED: or in the padding. */
static void maxpool_2x2x4x4nhwc(
	float *restrict y,
	uint8_t *restrict place,
	const float *restrict x
	)
{
	for (int o = 0; o < 2; o++) {
		for (int d = 0; d < 1; d++)
			for (int h = 0; h < 2; h++)
				for (int w = 0; w < 2; w++) {
					const int64_t at = ((((int64_t)o * 1 + d) * 2 + h) * 2 + w) * 2;
					const int d0 = d * 1 - 0, h0 = h * 2 - 0, w0 = w * 2 - 0;
					for (int c = 0; c < 2; c++) {
						y[at + c] = -INFINITY;
						place[at + c] = 0;
					}
					for (int i = 0; i < 1; i++)
						for (int j = 0; j < 2; j++)
							for (int k = 0; k < 2; k++) {
								const int p = d0 + i * 1, q = h0 + j * 1, r = w0 + k * 1;

								if (p < 0 || p >= 1 || q < 0 || q >= 4 || r < 0 || r >= 4)
									continue;
								const int64_t from = ((((int64_t)o * 1 + p) * 4 + q) * 4 + r) * 2;
								const uint8_t here = (uint8_t)((i * 2 + j) * 2 + k);
#pragma omp simd
								for (int c = 0; c < 2; c++) {
									const int more = x[from + c] > y[at + c];
									y[at + c] = more ? x[from + c] : y[at + c];
									place[at + c] = more ? here : place[at + c];
								}
							}
				}
	}
}

static void reorder_2x2x2x2nhwc_to_plain(float *y, const float *a)
{
	for (int k = 0; k < 2; k++)
	for (int j = 0; j < 2; j++)
	for (int i = 0; i < 4; i++) {
		y[k * 8 + j * 4 + i] = a[k * 8 + j + i * 2];
	}
}

/* y = op(a) op(b) + c for BATCH matrices, by the library's product of two. */
static void gemm_2x3x8_bias(float *restrict y, const float *restrict a, const float *restrict b
	, const float *restrict c
	)
{
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 3; j++)
			y[i * 3 + j] = c[i * 0 + j * 1];
	pd_gemm(0, 0, 2, 3, 8, a, 8, b, 3, 1, y, 3);
}

/* -w[label] log p[label] over axis C of x [OUTER, C, INNER]; CE: x holds scores, and their log-softmax goes to logp.
 * EACH: a loss per label; else their sum, in the order of labels; MEAN: divided by the weight of what counts. */
static void cross_entropy_2x3_sum(float *restrict loss,
	float *restrict logp,
	const float *restrict x, const int64_t *restrict labels
	)
{
	const float *score = logp;
	float sum = 0;
	for (int o = 0; o < 2; o++)
		for (int i = 0; i < 1; i++) {
			const float *restrict from = x + (int64_t)o * 3 * 1 + i;
			float *restrict to = logp + (int64_t)o * 3 * 1 + i;
			float top = from[0], s = 0;

			for (int c = 1; c < 3; c++)
				top = fmaxf(top, from[c * 1]);
#pragma omp simd reduction(+ : s)
			for (int c = 0; c < 3; c++)
				s += expf(from[c * 1] - top);
			top += logf(s);
			for (int c = 0; c < 3; c++)
				to[c * 1] = from[c * 1] - top;
		}
	for (int o = 0; o < 2; o++)
		for (int i = 0; i < 1; i++) {
			const int64_t label = labels[o * 1 + i];
			float w = 1;

			if (w != 0)
				sum -= w * score[((int64_t)o * 3 + label) * 1 + i];
		}
	loss[0] = sum;
}

/* How many labels count, or the sum of their class weights. */
static void count_labels_2(float *restrict y, const int64_t *restrict labels
	)
{
	float sum = 0;

	(void)labels;
	for (int i = 0; i < 2; i++) {
		sum++;
	}
	y[0] = sum;
}

/* The gradient of loss.cpu.c. CE: dx = w (softmax - one at the label) dy; else dx = -w dy at the label. */
static void cross_entropy_grad_2x3_sum(float *restrict dx, const float *restrict dy,
	const float *restrict logp,
	const int64_t *restrict labels
	)
{
	for (int o = 0; o < 2; o++)
		for (int i = 0; i < 1; i++) {
			const int64_t label = labels[o * 1 + i];
			float *restrict to = dx + (int64_t)o * 3 * 1 + i;
			float w = dy[0];
			bool counts = true;

			if (!counts)
				w = 0;
			const float *restrict from = logp + (int64_t)o * 3 * 1 + i;
#pragma omp simd
			for (int c = 0; c < 3; c++)
				to[c * 1] = w * expf(from[c * 1]);
			if (counts)
				to[label * 1] -= w;
		}
}

static void gemm_2x8x3_tb(float *restrict y, const float *restrict a, const float *restrict b
	)
{
	pd_gemm(0, 1, 2, 8, 3, a, 3, b, 3, 0, y, 8);
}

static void gemm_8x3x2_ta(float *restrict y, const float *restrict a, const float *restrict b
	)
{
	pd_gemm(1, 0, 8, 3, 2, a, 8, b, 3, 0, y, 3);
}

/* y = a with some axes reduced. KEPT_LOOPS walk what stays, GONE_LOOPS what goes, the innermost loop is here. COLS: it
 * is a kept one, and BLOCK columns are summed at a time. */
static void reduce_sum_2x3_axes0(float *restrict y, const float *restrict a)
{
	{
		const int block = 0, end = 3;
		float sum[3];

		for (int i = block; i < end; i++)
			sum[i - block] = 0;
		for (int j = 0; j < 2; j++)
#pragma omp simd
			for (int i = block; i < end; i++) {
				const float s = sum[i - block], v = a[j * 3 + i];
				sum[i - block] = s + v;
			}
		for (int i = block; i < end; i++) {
			const float s = sum[i - block];
			y[i] = s;
		}
	}
}

static void reorder_2x2x2x2_to_nhwc(float *y, const float *a)
{
	for (int k = 0; k < 2; k++)
	for (int j = 0; j < 4; j++)
	for (int i = 0; i < 2; i++) {
		y[k * 8 + j * 2 + i] = a[k * 8 + j + i * 4];
	}
}

static void maxpool_grad_2x2x4x4nhwc(
	float *restrict x, const float *restrict y
	, const uint8_t *restrict place
	)
{
	for (int o = 0; o < 2; o++) {
		memset(x + (int64_t)o * 1 * 4 * 4 * 2, 0, sizeof *x * 1 * 4 * 4 * 2);
		for (int d = 0; d < 1; d++)
			for (int h = 0; h < 2; h++)
				for (int w = 0; w < 2; w++) {
					const int64_t at = ((((int64_t)o * 1 + d) * 2 + h) * 2 + w) * 2;
					const int d0 = d * 1 - 0, h0 = h * 2 - 0, w0 = w * 2 - 0;
					for (int i = 0; i < 1; i++)
						for (int j = 0; j < 2; j++)
							for (int k = 0; k < 2; k++) {
								const int p = d0 + i * 1, q = h0 + j * 1, r = w0 + k * 1;

								if (p < 0 || p >= 1 || q < 0 || q >= 4 || r < 0 || r >= 4)
									continue;
								const int64_t from = ((((int64_t)o * 1 + p) * 4 + q) * 4 + r) * 2;
								const uint8_t here = (uint8_t)((i * 2 + j) * 2 + k);
#pragma omp simd
								for (int c = 0; c < 2; c++) {
									x[from + c] += place[at + c] == here ? y[at + c] : 0;
								}
							}
				}
	}
}

static void relugrad_64(float *y, const float *a, const float *b)
{
#pragma omp simd
	for (int i = 0; i < 64; i++) {
		y[i] = b[i] > 0 ? a[i] : 0;
	}
}

/* Running statistics: the rows of all microbatches, in their order. */
static void running_4x2(float *restrict r, const float *restrict rows)
{
	for (int mb = 0; mb < 4; mb++)
		for (int i = 0; i < 2; i++)
			r[i] = (float)0.75 * r[i] + (float)(1 - 0.75) * rows[mb * 2 + i];
}

/* One step over N elements. g is a sum over the global batch, n[0] what it is divided by. */
static void adam_18(float *restrict w,
	float *restrict m, float *restrict v,
	const float *restrict g, const float *restrict n)
{
	const float scale = 1 / n[0];
	const double t = (double)pd_step_index() + 1;
	const float rate = (float)(0.01 / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));
#pragma omp simd
	for (int i = 0; i < 18; i++) {
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}

static void adam_2(float *restrict w,
	float *restrict m, float *restrict v,
	const float *restrict g, const float *restrict n)
{
	const float scale = 1 / n[0];
	const double t = (double)pd_step_index() + 1;
	const float rate = (float)(0.01 / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));
#pragma omp simd
	for (int i = 0; i < 2; i++) {
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}

static void adam_24(float *restrict w,
	float *restrict m, float *restrict v,
	const float *restrict g, const float *restrict n)
{
	const float scale = 1 / n[0];
	const double t = (double)pd_step_index() + 1;
	const float rate = (float)(0.01 / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));
#pragma omp simd
	for (int i = 0; i < 24; i++) {
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}

static void adam_3(float *restrict w,
	float *restrict m, float *restrict v,
	const float *restrict g, const float *restrict n)
{
	const float scale = 1 / n[0];
	const double t = (double)pd_step_index() + 1;
	const float rate = (float)(0.01 / (1 - pow(0.90000000000000002, t))), root = (float)(1 / sqrt(1 - pow(0.999, t)));
#pragma omp simd
	for (int i = 0; i < 3; i++) {
		const float d = g[i] * scale;
		m[i] = (float)0.90000000000000002 * m[i] + (float)(1 - 0.90000000000000002) * d;
		v[i] = (float)0.999 * v[i] + (float)(1 - 0.999) * d * d;
		w[i] -= rate * m[i] / (sqrtf(v[i]) * root + (float)1e-08);
	}
}
