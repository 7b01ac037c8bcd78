/* compress.c: codecs against oracles of their own, on one process. `compress bench` prints their speed. */
#include "test.h"
#include "runtime/rt.h"
#include <time.h>

enum { N = 70001 };
static const rt_codec trunc16 = { PD_CODEC_TRUNC16, 0 }, bf16 = { PD_CODEC_BF16, 0 };
static float x[N], y[N], z[N];
static unsigned char wire[8 * N], again[8 * N];
static uint64_t state = 7;

static uint32_t bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof u);
	return u;
}

/* Any bits at all: NaN, infinities and denormals are among them. */
static void any_bits(void)
{
	for (int i = 0; i < N; i++) {
		const uint32_t u = pd_random_bits(state, 1, 2, (uint64_t)i);

		memcpy(&x[i], &u, sizeof u);
	}
	state++;
}

static void numbers(float range)
{
	for (int i = 0; i < N; i++)
		x[i] = range * (2 * pd_random_unit(state, 3, 4, (uint64_t)i) - 1);
	state++;
}

static void truncation(void)
{
	int bad = 0;

	any_bits();
	rt_encode(&trunc16, x, N, wire);
	rt_decode(&trunc16, wire, N, y, false);
	for (int i = 0; i < N; i++)
		bad += bits(y[i]) != (bits(x[i]) & 0xFFFF0000);
	CHECK(bad == 0, "trunc16: %d elements are not the mask's", bad);
	CHECK(rt_encoded(&trunc16, N) == 2 * N, "trunc16: two bytes each");
}

/* The nearer of the two neighbours, the even one of equals; in f64. */
static void rounding(void)
{
	int bad = 0, nan = 0;

	any_bits();
	rt_encode(&bf16, x, N, wire);
	rt_decode(&bf16, wire, N, y, false);
	for (int i = 0; i < N; i++) {
		const uint32_t lo = bits(x[i]) & 0xFFFF0000, hi = lo + 0x10000;
		float a, b;

		memcpy(&a, &lo, sizeof a);
		memcpy(&b, &hi, sizeof b);
		if (isnan(x[i])) {
			nan += !isnan(y[i]);
			continue;
		}
		if (!isfinite(x[i]) || !isfinite(b))
			continue; /* at the end of the range: Inf is right from halfway on */
		const double down = fabs((double)x[i] - (double)a), up = fabs((double)b - (double)x[i]);
		const uint32_t want = down < up || (down == up && !(lo & 0x10000)) ? lo : hi;
		bad += bits(y[i]) != want;
	}
	CHECK(bad == 0 && nan == 0, "bf16: %d elements are not the nearest, %d NaN are lost", bad, nan);
}

static void quantised(int block, float range)
{
	const rt_codec q8 = { PD_CODEC_Q8, block };
	const size_t bytes = rt_encoded(&q8, N);
	double worst = 0;

	numbers(range);
	rt_encode(&q8, x, N, wire);
	rt_decode(&q8, wire, N, y, false);
	for (int at = 0; at < N; at += block) {
		const int end = at + block < N ? at + block : N;
		double most = 0;

		for (int i = at; i < end; i++)
			most = fmax(most, fabs((double)x[i]));
		for (int i = at; i < end && most > 0; i++)
			worst = fmax(worst, fabs((double)x[i] - (double)y[i]) / most);
	}
	CHECK(worst <= (1 + 0x1p-15) / 254, "q8 of %d: off by %g of the largest, 1/254 is allowed", block, worst);
	CHECK(bytes == N + 4 * (size_t)((N + block - 1) / block), "q8 of %d: %zu bytes", block, bytes);
	rt_encode(&q8, y, N, again);
	CHECK(!memcmp(wire, again, bytes), "q8 of %d: encoding what was decoded gives other bytes", block);
	memcpy(z, x, sizeof z);
	rt_decode(&q8, wire, N, z, true);
	int bad = 0;
	for (int i = 0; i < N; i++)
		bad += z[i] != x[i] + y[i];
	CHECK(bad == 0, "q8 of %d: %d sums differ from decoding and adding", block, bad);
}

static void special(void)
{
	const rt_codec q8 = { PD_CODEC_Q8, 128 };

	memset(x, 0, sizeof x);
	x[200] = 1e30f;
	x[201] = 1;
	x[300] = NAN;
	x[500] = INFINITY;
	x[700] = 1e-40f;
	rt_encode(&q8, x, 1000, wire);
	rt_decode(&q8, wire, 1000, y, false);
	CHECK(y[0] == 0 && y[127] == 0, "a block of zeros stays");
	CHECK(fabsf(y[200] - 1e30f) < 1e26f && y[201] == 0, "one large value: %g %g", (double)y[200], (double)y[201]);
	CHECK(isnan(y[300]) && isnan(y[256]) && isnan(y[500]), "NaN and infinity spoil their blocks");
	CHECK(y[700] == 0 && y[768] == 0, "the smallest numbers are 0");
}

/* What is sent and what stays are what came and what was there; a block that is no number leaves its residual. */
static void with_feedback(const rt_codec *c, float scale)
{
	static float before[N], residual[N], v[N];
	int bad = 0, kept = 0;

	numbers(1);
	memcpy(before, x, sizeof x);
	numbers(0.01f);
	memcpy(residual, x, sizeof x);
	memcpy(y, x, sizeof x);
	memcpy(v, before, sizeof v);
	v[300] = NAN;
	v[1000] = INFINITY;
	rt_encode_feedback(c, v, residual, scale, N, wire);
	rt_decode(c, wire, N, z, false);
	for (int i = 0; i < N; i++) {
		const bool number = isfinite(z[i]);

		kept += !number && residual[i] == y[i];
		bad += number && fabsf(z[i] + scale * residual[i] - (before[i] + scale * y[i])) > 2e-7f;
		bad += !number && residual[i] != y[i];
	}
	CHECK(bad == 0 && kept >= 1, "feedback of codec %d: %d of what was sent and stayed are wrong, %d kept", c->kind,
		bad, kept);
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void bench(const char *name, const rt_codec *c)
{
	double encode = 1e9, decode = 1e9, feedback = 1e9;

	numbers(1);
	for (int k = 0; k < 200; k++) {
		double t = now();

		rt_encode(c, x, N, wire);
		encode = fmin(encode, now() - t);
		t = now();
		rt_decode(c, wire, N, y, true);
		decode = fmin(decode, now() - t);
	}
	for (int k = 0; k < 200; k++) {
		const double t = now();

		rt_encode_feedback(c, y, z, 1, N, wire);
		feedback = fmin(feedback, now() - t);
	}
	printf("%-8s encode %6.2f GB/s, with feedback %6.2f GB/s, decode and add %6.2f GB/s (of f32, one core)\n", name,
		4e-9 * N / encode, 4e-9 * N / feedback, 4e-9 * N / decode);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "bench")) {
		bench("trunc16", &trunc16);
		bench("bf16", &bf16);
		bench("q8:128", &(rt_codec){ PD_CODEC_Q8, 128 });
		bench("q8:32768", &(rt_codec){ PD_CODEC_Q8, 32768 });
		return 0;
	}
	for (int k = 0; k < 5; k++) {
		truncation();
		rounding();
	}
	for (int block = 16; block <= 32768; block *= 2)
		for (int e = -30; e <= 30; e += 6)
			quantised(block, ldexpf(1, e));
	special();
	for (float scale = 1; scale < 2000; scale *= 64) {
		with_feedback(&trunc16, scale);
		with_feedback(&bf16, scale);
		with_feedback(&(rt_codec){ PD_CODEC_Q8, 128 }, scale);
	}
	return failures ? 1 : 0;
}
