/* cpu_winograd.c: convolutions of 3x3 by the minimal filtering algorithms F(2x2, 3x3) and, for the weights' gradient,
 * F(3x3, 2x2) (Winograd, "Arithmetic complexity of computations", 1980; Lavin and Gray, arXiv:1509.09308, section 4): 16
 * multiplications where the sum has 36. Products are oneDNN's. F(4x4, 3x3) would save more, but its rounding would be seen; here it is
 * that of oneDNN's direct sums in blocks, a fifth to a third more, half of its sums in turn (testsuite/runtime/onednn.c).
 *
 * A tile is 2x2 of Y and the 4x4 of X behind it. With d the tile of X, g a filter and e the tile of Y's gradient, each for
 * one channel:
 *
 *     V = B' d B      U = G g G'      D = H e H'
 *     Y = A' (sum of U V over channels) A      dX likewise from dY and turned filters      dW = C' (sum of D V over tiles) C
 *
 * so of each of the 16 places of a tile there is one product of matrices: tiles x channels by channels x filters. A block is as many tiles
 * as make such products fast; a wave is a block for each thread. One thread makes and uses filters of few tiles a strip of rows at a time,
 * which a cache holds; with several that costs more at barriers than it gains. Which numbers are added in turn depends on shapes alone,
 * so the bits are the same for any number of threads. */
#include "cpu.h"

#define OUTSIDE SIZE_MAX

enum { PLACES = 16, LINE = 16, PART = 64 };                 /* of a tile; floats; channels at a time */
enum { BLOCK = 128, STRIP = 128, FEW_STRIPS = 64 };         /* tiles; rows of filters; tiles that strips pay for */
enum { NARROW = 32, FEW_TILES = 16, MOST_TILES = 1 << 26 }; /* channels, tiles: what is taken */

int omp_get_max_threads(void);

/* Rows are channels-last: x, u x v places of `from` channels, becomes y, of `to` channels. Backward directions of data turn about: x is
 * dY. */
typedef struct winograd {
	int n, from, to;
	int in[2], out[2], pad[2], tile[2]; /* tile: how many along each axis */
	int tiles, block, wave;             /* in all, of a block, blocks of a wave */
	int sum;                            /* channels whose products are added in turn, before the sums of such are */
	int rows, strip; /* of filters, by channels of x, of dY in their gradients; in scratch at a time */
	bool turned, bias;
} winograd;

static winograd plan(const pd_conv_desc *d)
{
	const bool back = d->what == PD_BACKWARD_DATA;
	winograd w = { .n = d->n,
		.from = back ? d->oc : d->c,
		.to = back ? d->c : d->oc,
		.turned = back,
		.sum = back ? STRIP : STRIP / 4,
		.rows = d->what == PD_FORWARD ? d->c : d->oc,
		.bias = d->bias && !back };

	for (int i = 0; i < 2; i++) {
		w.in[i] = back ? d->out[i] : d->in[i];
		w.out[i] = back ? d->in[i] : d->out[i];
		w.pad[i] = back ? 2 - d->pad_begin[i] : d->pad_begin[i];
		w.tile[i] = (w.out[i] + 1) / 2;
	}
	w.tiles = w.n * w.tile[0] * w.tile[1];
	w.block = w.tiles < BLOCK ? w.tiles : BLOCK;
	w.wave = omp_get_max_threads();
	if (w.wave > (w.tiles + w.block - 1) / w.block)
		w.wave = (w.tiles + w.block - 1) / w.block;
	w.strip = w.tiles <= FEW_STRIPS && w.rows > STRIP && omp_get_max_threads() == 1 ? STRIP : w.rows;
	return w;
}

/* Measured beside oneDNN's direct convolutions: of fewer channels, of fewer tiles, or where much of the tiles lies outside, there is
 * next to nothing to gain. */
bool cpu_winograd_takes(const pd_conv_desc *d)
{
	if (d->nd != 2 || d->groups != 1 || !d->nhwc || d->c < NARROW || d->oc < NARROW)
		return false;
	for (int i = 0; i < 2; i++)
		if (d->kernel[i] != 3 || d->stride[i] != 1 || d->dilation[i] != 1 || d->pad_begin[i] > 2 ||
			d->pad_end[i] > 2)
			return false;
	const int64_t area = (int64_t)d->out[0] * d->out[1],
		      tiles = (int64_t)((d->out[0] + 1) / 2) * ((d->out[1] + 1) / 2);

	return tiles * d->n >= FEW_TILES && tiles * d->n <= MOST_TILES && area * 5 >= tiles * 4 * 3;
}

/* Measured, beside products at 245 GFLOP/s: 2 ns a tile and channel, and 4 ns a channel of a filter for their transformations. */
double cpu_winograd_work(const pd_conv_desc *d)
{
	const winograd w = plan(d);
	const double tiles = w.tiles, from = w.from, to = w.to;

	return tiles * (2 * PLACES * from * to + 500 * (from + to)) + 900 * from * to;
}

/* ---- what lies where in scratch ---- */

/* From place to place, of filters and of rows: a line more than there is, so that what is written of 16 places at a time does not
 * meet in one set of a cache. */
static size_t of_filters(const winograd *w) { return (size_t)w->strip * (size_t)(w->from + w->to - w->rows) + LINE; }

static size_t of_rows(const winograd *w, int channels) { return (size_t)w->block * (size_t)channels + LINE; }

static size_t of_block(const winograd *w, int channels) { return PLACES * of_rows(w, channels); }

/* Zeros for places outside, the filters, and V and M (or D) of a wave. */
size_t cpu_winograd_scratch(const pd_conv_desc *d)
{
	const winograd w = plan(d);

	return cpu_round(((size_t)(w.from > w.to ? w.from : w.to) + PLACES * of_filters(&w) +
				 (size_t)w.wave * (of_block(&w, w.from) + of_block(&w, w.to))) *
			 sizeof(float));
}

/* ---- the four transformations ---- */

/* U of a strip of filters: of each place, channels of what is read by channels of what is written. A turned filter has the places of its
 * first and last row and column exchanged. */
static void to_filters(const winograd *w, int first, int rows, float *restrict u, const float *restrict g)
{
	const size_t step = of_filters(w), n = (size_t)w->to;
	const size_t down = w->turned ? n * 9 : 9, along = w->turned ? 9 : (size_t)w->from * 9;

#pragma omp for
	for (int row = 0; row < rows; row++) {
		const float *restrict f = g + (size_t)(first + row) * down;
		float *restrict to = u + (size_t)row * n;

#pragma omp simd
		for (size_t k = 0; k < n; k++) {
			float t[4][3];

			for (int j = 0; j < 3; j++) {
				const float a = f[k * along + (size_t)j], b = f[k * along + 3 + (size_t)j],
					    c = f[k * along + 6 + (size_t)j];

				t[0][j] = a;
				t[1][j] = 0.5f * (a + c + b);
				t[2][j] = 0.5f * (a + c - b);
				t[3][j] = c;
			}
			for (size_t i = 0; i < 4; i++) {
				to[(i * 4 + 0) * step + k] = t[i][0];
				to[(i * 4 + 1) * step + k] = 0.5f * (t[i][0] + t[i][2] + t[i][1]);
				to[(i * 4 + 2) * step + k] = 0.5f * (t[i][0] + t[i][2] - t[i][1]);
				to[(i * 4 + 3) * step + k] = t[i][2];
			}
		}
	}
}

/* A tile's sample, row and column; the last two of what is written. */
typedef struct corner {
	int n, y, x;
} corner;

static corner corner_of(const winograd *w, int t)
{
	const int x = t % w->tile[1], rest = t / w->tile[1];

	return (corner){ rest / w->tile[0], rest % w->tile[0] * 2, x * 2 };
}

/* Where the channels of row y and column x of sample n begin. */
static size_t place(const int *extent, int channels, int n, int y, int x)
{
	if (y < 0 || y >= extent[0] || x < 0 || x >= extent[1])
		return OUTSIDE;
	return (((size_t)n * (size_t)extent[0] + (size_t)y) * (size_t)extent[1] + (size_t)x) * (size_t)channels;
}

/* V of a tile: 4x4 places of x, those outside 0. */
static void to_places(const winograd *w, corner at, float *restrict v, size_t step, const float *restrict x,
	const float *restrict zeros)
{
	const float *d[4][4];
	const size_t c = (size_t)w->from;

	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++) {
			const size_t p = place(w->in, w->from, at.n, at.y + i - w->pad[0], at.x + j - w->pad[1]);

			d[i][j] = p == OUTSIDE ? zeros : x + p;
		}
#pragma omp simd
	for (size_t k = 0; k < c; k++) {
		float t[4][4];

		for (int j = 0; j < 4; j++) {
			t[0][j] = d[0][j][k] - d[2][j][k];
			t[1][j] = d[1][j][k] + d[2][j][k];
			t[2][j] = d[2][j][k] - d[1][j][k];
			t[3][j] = d[1][j][k] - d[3][j][k];
		}
		for (int i = 0; i < 4; i++) {
			v[(size_t)(i * 4 + 0) * step + k] = t[i][0] - t[i][2];
			v[(size_t)(i * 4 + 1) * step + k] = t[i][1] + t[i][2];
			v[(size_t)(i * 4 + 2) * step + k] = t[i][2] - t[i][1];
			v[(size_t)(i * 4 + 3) * step + k] = t[i][1] - t[i][3];
		}
	}
}

/* D of a tile: 2x2 places of dy, those outside 0. */
static void to_gradients(const winograd *w, corner at, float *restrict to, size_t step, const float *restrict dy,
	const float *restrict zeros)
{
	const float *e[2][2];
	const size_t k = (size_t)w->to;

	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 2; j++) {
			const size_t p = place(w->out, w->to, at.n, at.y + i, at.x + j);

			e[i][j] = p == OUTSIDE ? zeros : dy + p;
		}
#pragma omp simd
	for (size_t c = 0; c < k; c++) {
		const float a = e[0][0][c], b = e[0][1][c], f = e[1][0][c], g = e[1][1][c];
		const float t[4][2] = { { a, b }, { 0.5f * (a + f), 0.5f * (b + g) },
			{ 0.5f * (a - f), 0.5f * (b - g) }, { f, g } };

		for (int i = 0; i < 4; i++) {
			to[(size_t)(i * 4 + 0) * step + c] = t[i][0];
			to[(size_t)(i * 4 + 1) * step + c] = 0.5f * (t[i][0] + t[i][1]);
			to[(size_t)(i * 4 + 2) * step + c] = 0.5f * (t[i][0] - t[i][1]);
			to[(size_t)(i * 4 + 3) * step + c] = t[i][1];
		}
	}
}

/* Y of a tile, 2x2 places; those outside go nowhere. */
static void from_places(const winograd *w, corner at, float *restrict y, const float *restrict m, size_t step,
	const float *restrict bias)
{
	const size_t width = (size_t)w->to;
	size_t to[2][2];
	float beside[PART];

	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 2; j++)
			to[i][j] = place(w->out, w->to, at.n, at.y + i, at.x + j);
	for (size_t from = 0; from < width; from += PART) {
		const size_t n = width - from < PART ? width - from : PART;
		const float *restrict p = m + from, *restrict b = bias + from;
		float *to00 = y + to[0][0] + from, *to01 = to[0][1] == OUTSIDE ? beside : y + to[0][1] + from,
		      *to10 = to[1][0] == OUTSIDE ? beside : y + to[1][0] + from,
		      *to11 = to[1][1] == OUTSIDE ? beside : y + to[1][1] + from;

#pragma omp simd
		for (size_t c = 0; c < n; c++) {
			const float add = b[c];
			float t[2][4];

			for (int j = 0; j < 4; j++) {
				const float m0 = p[(size_t)j * step + c], m1 = p[(size_t)(4 + j) * step + c],
					    m2 = p[(size_t)(8 + j) * step + c], m3 = p[(size_t)(12 + j) * step + c];

				t[0][j] = m0 + (m1 + m2);
				t[1][j] = (m1 - m2) - m3;
			}
			to00[c] = t[0][0] + (t[0][1] + t[0][2]) + add;
			to01[c] = (t[0][1] - t[0][2]) - t[0][3] + add;
			to10[c] = t[1][0] + (t[1][1] + t[1][2]) + add;
			to11[c] = (t[1][1] - t[1][2]) - t[1][3] + add;
		}
	}
}

/* dW of a strip of filters from sums S of D V, laid out as U. */
static void from_filters(const winograd *w, int first, int rows, float *restrict dw, const float *restrict s)
{
	const size_t step = of_filters(w);

#pragma omp for
	for (int row = 0; row < rows; row++) {
		const float *restrict from = s + (size_t)row * (size_t)w->from;
		float *restrict to = dw + (size_t)(first + row) * (size_t)w->from * 9;

#pragma omp simd
		for (int c = 0; c < w->from; c++) {
			float t[3][4];

			for (int j = 0; j < 4; j++) {
				const float s0 = from[(size_t)j * step + (size_t)c],
					    s1 = from[(size_t)(4 + j) * step + (size_t)c],
					    s2 = from[(size_t)(8 + j) * step + (size_t)c],
					    s3 = from[(size_t)(12 + j) * step + (size_t)c];

				t[0][j] = s0 + (s1 + s2);
				t[1][j] = s1 - s2;
				t[2][j] = (s1 + s2) - s3;
			}
			for (int i = 0; i < 3; i++) {
				to[c * 9 + i * 3 + 0] = t[i][0] + (t[i][1] + t[i][2]);
				to[c * 9 + i * 3 + 1] = t[i][1] - t[i][2];
				to[c * 9 + i * 3 + 2] = (t[i][1] + t[i][2]) - t[i][3];
			}
		}
	}
}

/* ---- the three directions ---- */

static int least(int a, int b) { return a < b ? a : b; }

/* Where tile t of a wave lies among rows of `channels`. */
static size_t row(const winograd *w, int t, int channels)
{
	return (size_t)(t / w->block) * of_block(w, channels) + (size_t)(t % w->block) * (size_t)channels;
}

/* M of n tiles, or what is added to it, from channels `from` on by a strip of filters. */
static void multiply(const winograd *w, int n, int from, int rows, float *m, const float *v, const float *u)
{
	static const int turned[] = { 3, 1, 2, 0 };
	const size_t in = of_rows(w, w->from), out = of_rows(w, w->to);

#pragma omp for
	for (int i = 0; i < (n + w->block - 1) / w->block * PLACES; i++) {
		const int p = i % PLACES, tiles = least(w->block, n - i / PLACES * w->block);
		const float *f = u + (size_t)(w->turned ? turned[p / 4] * 4 + turned[p % 4] : p) * of_filters(w);

		for (int c = 0; c < rows; c += w->sum)
			pd_gemm(0, 0, tiles, w->to, least(w->sum, rows - c), v + (size_t)i * in + from + c, w->from,
				f + (size_t)c * (size_t)w->to, w->to, from + c > 0, m + (size_t)i * out, w->to);
	}
}

void cpu_winograd_data(
	const pd_conv_desc *d, float *y, const float *x, const float *g, const float *bias, void *scratch)
{
	const winograd w = plan(d);
	const int widest = w.from > w.to ? w.from : w.to, all = w.wave * w.block;
	const size_t in = of_rows(&w, w.from), out = of_rows(&w, w.to);
	float *zeros = scratch, *u = zeros + widest, *v = u + PLACES * of_filters(&w),
	      *m = v + (size_t)w.wave * of_block(&w, w.from);

	memset(zeros, 0, (size_t)widest * sizeof *zeros);
#pragma omp parallel
	for (int first = 0; first < w.tiles; first += all) {
		const int n = least(all, w.tiles - first);

#pragma omp for
		for (int t = 0; t < n; t++)
			to_places(&w, corner_of(&w, first + t), v + row(&w, t, w.from), in, x, zeros);
		for (int c = 0; c < w.from; c += w.strip) {
			const int rows = least(w.strip, w.from - c);

			if (first == 0 || w.strip < w.from)
				to_filters(&w, c, rows, u, g);
			multiply(&w, n, c, rows, m, v, u);
		}
#pragma omp for
		for (int t = 0; t < n; t++)
			from_places(&w, corner_of(&w, first + t), y, m + row(&w, t, w.to), out, w.bias ? bias : zeros);
	}
}

/* The gradient of a bias is four times the sum of a place of D, each a quarter of its tile's sum. */
static void add_bias(const winograd *w, float *db, const float *dy, int tiles)
{
	const float *place = dy + 5 * of_rows(w, w->to);

#pragma omp for
	for (int k = 0; k < w->to; k += PART)
		for (int t = 0; t < tiles; t++)
#pragma omp simd
			for (int c = k; c < least(k + PART, w->to); c++)
				db[c] += 4 * place[row(w, t, w->to) + (size_t)c];
}

/* S of a strip of filters, from row `from` on, of n tiles, or what is added to it. */
static void add_products(
	const winograd *w, int n, bool adds, int from, int rows, float *s, const float *e, const float *v)
{
	const size_t in = of_rows(w, w->from), out = of_rows(w, w->to);

#pragma omp for
	for (int p = 0; p < PLACES; p++)
		for (int r = 0; r < rows; r += STRIP)
			for (int b = 0; b * w->block < n; b++)
				pd_gemm(1, 0, least(STRIP, rows - r), w->from, least(w->block, n - b * w->block),
					e + (size_t)(b * PLACES + p) * out + from + r, w->to,
					v + (size_t)(b * PLACES + p) * in, w->from, adds || b > 0,
					s + (size_t)p * of_filters(w) + (size_t)r * (size_t)w->from, w->from);
}

void cpu_winograd_weights(const pd_conv_desc *d, float *dw, float *db, const float *x, const float *dy, void *scratch)
{
	const winograd w = plan(d);
	const int widest = w.from > w.to ? w.from : w.to, all = w.wave * w.block;
	const size_t in = of_rows(&w, w.from), out = of_rows(&w, w.to);
	float *zeros = scratch, *s = zeros + widest, *v = s + PLACES * of_filters(&w),
	      *e = v + (size_t)w.wave * of_block(&w, w.from);

	memset(zeros, 0, (size_t)widest * sizeof *zeros);
	if (w.bias)
		memset(db, 0, (size_t)w.to * sizeof *db);
#pragma omp parallel
	for (int first = 0; first < w.tiles; first += all) {
		const int n = least(all, w.tiles - first);

#pragma omp for
		for (int t = 0; t < n; t++) {
			const corner at = corner_of(&w, first + t);

			to_places(&w, at, v + row(&w, t, w.from), in, x, zeros);
			to_gradients(&w, at, e + row(&w, t, w.to), out, dy, zeros);
		}
		for (int k = 0; k < w.to; k += w.strip) {
			const int rows = least(w.strip, w.to - k);

			add_products(&w, n, first > 0, k, rows, s, e, v);
			if (first + all >= w.tiles)
				from_filters(&w, k, rows, dw, s);
		}
		if (w.bias)
			add_bias(&w, db, e, n);
	}
}
