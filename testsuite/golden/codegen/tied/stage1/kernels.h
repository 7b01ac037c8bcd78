/* tied, stage 1 of 2: the kernels of its functions, one per op and shape. Written by pdcc 0.1, edits are
 * lost. Comments name the value as in ir/, its type and the node of the model. */
#include "pd.h"

/* -w[label] log p[label] over the axis of classes. */
/* x holds scores, and their log-softmax goes to logp. */
/* The sum of the losses, in the order of labels. */
static void cross_entropy_4x7_sum(float *restrict loss, float *restrict logp, const float *restrict x,
	const int64_t *restrict labels)
{
	const float *score = logp;
	float sum = 0;
	for (int64_t o = 0; o < 4; o++) {
		const float *restrict from = x + o * 7;
		float *restrict to = logp + o * 7;
		float top = -INFINITY, s = 0;

#pragma omp simd reduction(max : top)
		for (int c = 0; c < 7; c++)
			top = top < from[c] ? from[c] : top;
#pragma omp simd reduction(+ : s)
		for (int c = 0; c < 7; c++)
			s += expf(from[c] - top);
		top += logf(s);
		for (int c = 0; c < 7; c++)
			to[c] = from[c] - top;
	}
	for (int64_t o = 0; o < 4; o++) {
		const int64_t label = labels[o];
		float w = 1;

		if (w != 0)
			sum -= w * score[(o * 7 + label)];
	}
	loss[0] = sum;
}

/* How many labels count, or the sum of their class weights. */
static void count_labels_4(float *restrict y, const int64_t *restrict labels)
{
	float sum = 0;

	(void)labels;
	for (int64_t i = 0; i < 4; i++) {
		sum++;
	}
	y[0] = sum;
}

/* The gradient of loss.cpu.c. */
/* dx = w (softmax - one at the label) dy. */
static void cross_entropy_grad_4x7_sum(float *restrict dx, const float *restrict dy, const float *restrict logp,
	const int64_t *restrict labels)
{
	for (int64_t o = 0; o < 4; o++) {
		const int64_t label = labels[o];
		float *restrict to = dx + o * 7;
		float w = dy[0];
		bool counts = true;

		if (!counts)
			w = 0;
		const float *restrict from = logp + o * 7;
#pragma omp simd
		for (int c = 0; c < 7; c++)
			to[c] = w * expf(from[c]);
		if (counts)
			to[label] -= w;
	}
}

/* A loop nest over every element: elementwise ops, fused chains, and ops that move elements. The innermost loop is the
 * one along which y lies in memory. y may be the same memory as an operand that is read at the same index, so nothing
 * is restrict; omp simd says that turns are independent. */
static void add_28(float *y, const float *a, const float *b)
{
#pragma omp simd
	for (int i = 0; i < 28; i++) {
		y[i] = a[i] + b[i];
	}
}

/* One step over `count` elements. g is a sum over the global batch, n[0] what it is divided by. */
static void sgd(float *restrict w, const float *restrict g, const float *restrict n, int count)
{
	const float scale = 1 / n[0];
	const double lr = 0.5;
#pragma omp simd
	for (int i = 0; i < count; i++) {
		const float d = g[i] * scale;
		w[i] -= (float)lr * d;
	}
}
