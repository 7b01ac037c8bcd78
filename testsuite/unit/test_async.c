/* Asynchronous schedules by themselves. None deadlocks, whatever the replicas; with F = 1 and B = 2 on S equal devices a
 * minibatch takes, in the steady state,
 *     pipedream 3     mp 3S     always-forward:N 3S, for every N     always-backward (6S - 3) / S
 * and stage s of S holds S - s minibatches, 1, N, S - s: what PipeDream's section 3.2 says against both policies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "ir/base/diag.h"
#include "passes/schedule/placement.h"
#include "passes/schedule/sched.h"
#include "passes/simulate/simulate.h"
#include "spec.h"

enum { MOST = 8 };

/* Stages in a row, each with so many replicas; NULL: it is not made, or does not pass the proof. */
static Schedule *make(Arena *a, const char *name, int n, const int *replicas, int micro, FILE *out)
{
	StageEdge *edge = NEWN(a, StageEdge, n);
	Diag d;

	diag_init(&d, out, a);
	for (int t = 0; t < n; t++)
		edge[t] = (StageEdge){ t, t + 1, true, true };
	Schedule *s = schedule_make(a, spec_of(name), n, replicas, micro, false, edge, n - 1, NULL, &d);
	return s && schedule_verify(s, edge, n - 1, &d) ? s : NULL;
}

static void proved(const char *name, int n, const int *replicas, int micro)
{
	Arena *a = arena_new();

	if (!make(a, name, n, replicas, micro, stderr)) {
		fprintf(stderr, "%s, %d microbatches, replicas", name, micro);
		for (int t = 0; t < n; t++)
			fprintf(stderr, " %d", replicas[t]);
		fail_msg(" is not proved");
	}
	arena_free(a);
}

/* All schedules that have a meaning for these replicas. */
static void all_proved(int n, const int *r)
{
	int sum = 0;
	bool equal = true, dealt = true, filled;

	for (int t = 0; t < n; t++) {
		sum += r[t];
		equal &= r[t] == r[0];
	}
	const int round = (sum + r[0] - 1) / r[0] * r[0];
	for (int t = 0; t < n; t++)
		dealt &= round % r[t] == 0;
	proved("pipedream", n, r, 1);
	if (equal) {
		proved("always-forward", n, r, 1);
		proved("always-forward:2", n, r, 1);
		proved("always-forward:7", n, r, 1);
	}
	if (dealt)
		proved("always-backward", n, r, 1);
	for (int micro = 1; micro <= 40; micro++) {
		int later = 0;
		filled = true;
		for (int t = n - 1; t >= 0; t--) {
			later += r[t];
			filled &= micro % r[t] == 0 && micro / r[t] >= (later + r[t] - 1) / r[t];
		}
		if (filled)
			proved("2bw", n, r, micro);
	}
}

static void test_replicas(void **state)
{
	uint64_t draw = 7;
	int r[MOST];

	(void)state;
	for (int n = 1; n <= 4; n++)
		for (int k = 0, all = 1 << 2 * n; k < all; k++) {
			for (int t = 0; t < n; t++)
				r[t] = 1 + (k >> 2 * t & 3);
			all_proved(n, r);
		}
	for (int k = 0; k < 900; k++) {
		const int n = 2 + k % 6;
		for (int t = 0; t < n; t++) {
			draw = draw * 6364136223846793005u + 1442695040888963407u;
			r[t] = 1 + (int)(draw >> 33) % 7;
		}
		all_proved(n, r);
	}
}

/* Seconds of a minibatch in the steady state: a second forward, some back. */
static double played(Arena *a, Schedule *s, double back)
{
	Cluster *k = NEW(a, Cluster);
	SimModel *m = NEW(a, SimModel);
	int *device = NEWN(a, int, s->ndevice);
	Sim out;
	Diag d;

	diag_init(&d, stderr, a);
	*k = (Cluster){ .device = NEWN(a, Device, s->ndevice),
		.ndevice = s->ndevice,
		.host = NEW(a, Host),
		.nhost = 1,
		.link = NEW(a, Link),
		.nlink = 1 };
	k->link->scope = LINK_WITHIN;
	*m = (SimModel){ .s = s,
		.c = k,
		.device = device,
		.time = NEWN(a, SimTimes, s->ndevice * s->nstage),
		.msg = NEWN(a, SimMessage, 2 * s->nstage) };
	for (int r = 0; r < s->ndevice; r++)
		device[r] = r;
	for (int i = 0; i < s->ndevice * s->nstage; i++) {
		m->time[i][ACT_F] = 1;
		m->time[i][ACT_B] = back;
	}
	for (int t = 0; t + 1 < s->nstage; t++) {
		m->msg[m->nmsg++] = (SimMessage){ t, t + 1, 8, true };
		m->msg[m->nmsg++] = (SimMessage){ t + 1, t, 8, false };
	}
	assert_true(simulate(a, m, &out, &d));
	return out.each;
}

static void takes(const char *name, int n, double back, double each, int bound)
{
	const int ones[MOST] = { 1, 1, 1, 1, 1, 1, 1, 1 };
	Arena *a = arena_new();
	Schedule *s = make(a, name, n, ones, 1, stderr);

	assert_non_null(s);
	const double got = played(a, s, back);
	if (got < each - 1e-9 || got > each + 1e-9)
		fail_msg("%s, %d stages, %g s back: %g a minibatch, not %g", name, n, back, got, each);
	for (int t = 0; t < n; t++) {
		assert_int_equal(s->depth[t], bound ? bound : n - t);
		assert_int_equal(s->versions[t], s->depth[t]);
		assert_int_equal(s->inflight[t], s->depth[t]);
		assert_int_equal(s->entries[t], s->depth[t] + (t > 0 && bound != 1));
	}
	arena_free(a);
}

static void test_figures(void **state)
{
	char name[32];

	(void)state;
	for (int n = 2; n <= MOST; n++) {
		takes("always-backward", n, 2, (6. * n - 3) / n, 0);
		for (double back = 1; back <= 3; back += 0.5) {
			takes("pipedream", n, back, 1 + back,
				0); /* balanced stages never wait, however long backwards are */
			takes("mp", n, back, (1 + back) * n, 1);
			takes("always-forward", n, back, (1 + back) * n, n);
		}
		for (int bound = 2; bound <= 12; bound += 5) {
			snprintf(name, sizeof name, "always-forward:%d", bound);
			takes(name, n, 2, 3. * n, bound);
		}
	}
}

/* As many steps are shown as the deepest stage has in flight, then as many again, or two rounds of all replicas. */
static void test_shown(void **state)
{
	static const int replicas[][3] = { { 1, 1, 1 }, { 2, 2, 2 }, { 4, 2, 1 }, { 4, 6, 3 }, { 5, 7, 2 } },
			 round[] = { 1, 2, 4, 12, 70 };
	const ScheduleSpec spec = { .kind = SCHEDULE_PIPEDREAM };

	(void)state;
	for (int i = 0; i < 5; i++) {
		int most = 0;
		for (int t = 0; t < 3; t++) {
			const int flight = schedule_depth(spec, replicas[i], 3, t, 1000) * replicas[i][t];
			most = flight > most ? flight : most;
		}
		assert_int_equal(
			schedule_steps(spec, replicas[i], 3), most + (2 * round[i] > most ? 2 * round[i] : most));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_replicas), cmocka_unit_test(test_figures),
		cmocka_unit_test(test_shown) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
