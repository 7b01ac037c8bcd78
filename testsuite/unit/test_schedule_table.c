/* The table of schedules (ir/schedules.def): each formula of what is in flight against the schedule that is made; words go
 * in and out; a plan of one stage, whatever the schedule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "passes/schedule/csv.h"
#include "spec.h"
#include "passes/schedule/placement.h"

enum { MOST = 12, PARAMETERS = 3 };

/* NULL: this schedule is none of such sizes. */
static Schedule *make(Arena *a, ScheduleSpec spec, int n, const int *replicas, int micro)
{
	static const Cluster none = { 0 };
	StageEdge *edge = NEWN(a, StageEdge, n);
	ScheduleTimes *times = schedule_times(a, &none, n);
	Diag d = { .out = stderr, .errors = 1, .scratch = a }; /* beyond the limit of 0: nothing is printed */

	for (int t = 0; t < n; t++)
		edge[t] = (StageEdge){ t, t + 1, true, true };
	for (int t = 0; t < n && schedule_row(spec)->flight == FLIGHT_PLAYED;
		t++) { /* the least room that planners count with */
		schedule_time_stage(times, t, 1, 2);
		times->message[t] = 0.5;
		times->most[t] = schedule_depth(spec, replicas, n, t, (micro + replicas[t] - 1) / replicas[t]);
	}
	Schedule *s = schedule_make(a, spec, n, replicas, micro, false, edge, n - 1,
		schedule_row(spec)->flight == FLIGHT_PLAYED ? times : NULL, &d);
	if (s && !schedule_verify(s, edge, n - 1, &d))
		fail_msg("%s, %d stages, %d microbatches: not proved", s->name, n, micro);
	return s;
}

static bool has_count(const ScheduleRow *r)
{
	return r->param == PARAM_COUNT || r->param == PARAM_OPTIONAL || r->param == PARAM_FLAG;
}

/* The formula of every row on equal replicas; micro: of a device. Gives how many were made. */
static int formula(ScheduleSpec spec, int n, int replicas, int micro)
{
	Arena *a = arena_new();
	const bool each = schedule_row(spec)->flow & FLOW_EACH;
	int r[MOST], made = 0;

	for (int t = 0; t < n; t++)
		r[t] = replicas;
	const Schedule *s = make(a, spec, n, r, each ? 1 : micro * replicas);
	if (s && s->nmicro != s->per_step * schedule_steps(spec, r, n) && s->async)
		fail_msg("%s, %d stages of %d: %d steps are shown", s->name, n, replicas, s->nmicro / s->per_step);
	for (int t = 0; s && t < n; t++) {
		const int got = schedule_depth(spec, r, n, t, each ? MOST * MOST : micro);
		if (schedule_row(spec)->flight == FLIGHT_PLAYED ? got < s->inflight[t] : got != s->inflight[t])
			fail_msg(
				"%s, %d stages of %d, %d microbatches, stage %d: the formula says %d in flight, the schedule has %d",
				s->name, n, replicas, micro, t, got, s->inflight[t]);
		const int versions = schedule_versions(spec, VERSION_STASH, r, n, t),
			  kept = s->async ? s->versions[t] : 1;
		if (versions != kept)
			fail_msg("%s, %d stages of %d, stage %d: the formula says %d versions, the schedule has %d",
				s->name, n, replicas, t, versions, kept);
		made++;
	}
	arena_free(a);
	return made;
}

static void test_in_flight(void **state)
{
	(void)state;
	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++) {
		const ScheduleRow *row = &schedule_table[k];
		const int most = has_count(row) ? PARAMETERS : 0;
		int made = 0;
		if (row->param == PARAM_FILE)
			continue;
		for (int p = most ? 2 : 0; p <= most; p++)
			for (int n = 1; n <= (row->param == PARAM_FLAG ? 1 : MOST); n++)
				for (int r = 1; r <= 2; r++)
					for (int m = 1; m <= MOST; m++)
						made += formula((ScheduleSpec){ .kind = k, .n = p }, n, r, m);
		if (!made)
			fail_msg("%s was never made", row->name);
	}
}

/* Any replicas: what later stages keep busy needs no more than the formula. */
static void test_unequal(void **state)
{
	(void)state;
	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++)
		for (int i = 0;
			i < 81 && schedule_table[k].flight == FLIGHT_NOAM && !(schedule_table[k].flow & FLOW_ASYNC);
			i++) {
			Arena *a = arena_new();
			const int r[] = { 1 + i % 3, 1 + i / 3 % 3, 1 + i / 9 % 3, 1 + i / 27 };
			const Schedule *s = make(a, (ScheduleSpec){ .kind = k }, 4, r, 12);
			for (int t = 0; t < 4; t++)
				assert_int_equal(s->inflight[t],
					schedule_depth((ScheduleSpec){ .kind = k }, r, 4, t, (12 + r[t] - 1) / r[t]));
			arena_free(a);
		}
}

/* A schedule that is a file holds what its lists hold. */
static void test_listed(void **state)
{
	static const char text[] = "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1B0,1F1,1F2,1B1,1B2,1F3,1B3\n";
	const char *file = "schedule_table.csv";
	Arena *a = arena_new();
	PlanSettings plan = { .schedule = { .kind = SCHEDULE_CSV, .file = file } };
	const int r[] = { 1, 1 };
	Diag d;

	(void)state;
	diag_init(&d, stderr, a);
	FILE *f = fopen(file, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	assert_true(schedule_read(a, &plan, &d));
	const ScheduleSpec spec = plan.schedule;
	const Csv *first = spec.csv;
	remove(file);
	assert_true(schedule_read(a, &plan, &d) && plan.schedule.csv == first); /* it is not opened again */
	const Schedule *s = make(a, spec, 2, r, 4);
	assert_non_null(s);
	for (int t = 0; t < 2; t++)
		assert_int_equal(s->inflight[t], schedule_depth(spec, r, 2, t, 4));
	assert_int_equal(s->inflight[0], 3);
	assert_int_equal(s->inflight[1], 2);
	arena_free(a);
}

static void test_words(void **state)
{
	Arena *a = arena_new();
	ScheduleSpec s;
	const char *lacks;

	(void)state;
	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++) {
		const ScheduleRow *r = &schedule_table[k];
		const ScheduleSpec was = {
			.kind = k, .n = has_count(r) ? 7 : 0, .file = r->param == PARAM_FILE ? "a.csv" : NULL
		};
		const bool flag = r->param == PARAM_FLAG;
		assert_true(schedule_parse(schedule_str(a, was), &s, &lacks) != flag);
		assert_true(flag || (s.kind == k && s.n == was.n && !s.file == !was.file));
		assert_true(schedule_parse_name(flag || s.file ? r->name : schedule_str(a, was), &s) && s.kind == k);
		if (r->lacks)
			assert_true(!schedule_parse(arena_printf(a, "%s:%s", r->name, r->letter), &s, &lacks) &&
				    lacks == r->lacks);
		assert_true(!schedule_parse(arena_printf(a, "%s~", r->name), &s, &lacks));
		assert_true(*r->help && *r->paper);
	}
	for (const char *p = schedule_table[SCHEDULE_DAPPLE].letter; *p; p++)
		assert_true(schedule_parse(arena_printf(a, "%s-%c", schedule_name(SCHEDULE_DAPPLE), *p), &s, &lacks) &&
			    s.n == *p);
	arena_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_in_flight), cmocka_unit_test(test_unequal),
		cmocka_unit_test(test_listed), cmocka_unit_test(test_words) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
