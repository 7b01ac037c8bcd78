/* The simulator against the papers' timelines, drawn by hand: testsuite/data/schedules/NAME.txt. Lines `# text`,
 * `schedule NAME`, `replicas N N ..` (one per stage), `microbatches N`, `forward T T ..`, `backward T T ..` (units of time
 * per stage), `message T T ..` (per pair of neighbours, each way), `bubble X` (share of idle time that a formula gives);
 * then a row per device, a column per unit: digits are forwards, letters backwards of the same microbatches, '.' is idle.
 * A row `>` or `<` shows messages behind the devices: on the way to the next stage, or back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "passes/schedule/sched.h"
#include "passes/simulate/simulate.h"
#include "spec.h"

enum { STAGES = 8, WIDE = 128, LINES = 16 };

static const char *root = ".";

typedef struct Figure {
	char schedule[32], row[LINES][WIDE];
	int nstage, micro, nrow, replicas[STAGES];
	double forward[STAGES], backward[STAGES], message[STAGES], bubble;
} Figure;

static int numbers(const char *s, double *to)
{
	int n = 0;
	char *end;

	for (; n < STAGES; s = end) {
		const double v = strtod(s, &end);
		if (end == s)
			break;
		to[n++] = v;
	}
	return n;
}

static void read_line(Figure *f, const char *line)
{
	double v[STAGES];

	if (*line == '#' || !*line)
		return;
	if (sscanf(line, "schedule %31s", f->schedule) == 1 || sscanf(line, "microbatches %d", &f->micro) == 1 ||
		sscanf(line, "bubble %lf", &f->bubble) == 1)
		return;
	if (strncmp(line, "replicas", 8) == 0) {
		f->nstage = numbers(line + 8, v);
		for (int i = 0; i < f->nstage; i++)
			f->replicas[i] = (int)v[i];
	} else if (strncmp(line, "forward", 7) == 0) {
		assert_int_equal(numbers(line + 7, f->forward), f->nstage);
	} else if (strncmp(line, "backward", 8) == 0) {
		assert_int_equal(numbers(line + 8, f->backward), f->nstage);
	} else if (strncmp(line, "message", 7) == 0) {
		assert_int_equal(numbers(line + 7, f->message), f->nstage - 1);
	} else {
		assert_true(f->nrow < LINES && strlen(line) < WIDE);
		strcpy(f->row[f->nrow++], line);
	}
}

static Figure read_figure(const char *name)
{
	char path[4096], line[512];
	Figure f = { .bubble = -1 };

	snprintf(path, sizeof path, "%s/testsuite/data/schedules/%s.txt", root, name);
	FILE *in = fopen(path, "r");
	assert_non_null(in);
	while (fgets(line, sizeof line, in)) {
		line[strcspn(line, "\n")] = 0;
		read_line(&f, line);
	}
	fclose(in);
	return f;
}

/* Devices of one host without anything between them but the time a message takes: one byte per unit of the link. */
static SimModel *model_of(Arena *a, const Figure *f, const Schedule *s, Cluster *c)
{
	SimModel *m = NEW(a, SimModel);
	int *device = NEWN(a, int, s->ndevice);

	*c = (Cluster){ .device = NEWN(a, Device, s->ndevice),
		.ndevice = s->ndevice,
		.nhost = 1,
		.host = NEWN(a, Host, 1),
		.link = NEWN(a, Link, 1),
		.nlink = 1 };
	c->link[0] = (Link){ .bandwidth = 1, .scope = LINK_WITHIN };
	for (int i = 0; i < s->ndevice; i++)
		device[i] = i;
	*m = (SimModel){ .s = s,
		.c = c,
		.device = device,
		.time = NEWN(a, SimTimes, s->ndevice * s->nstage),
		.msg = NEWN(a, SimMessage, 2 * f->nstage) };
	for (int t = 0; t < s->nstage; t++) {
		for (int r = 0; r < s->replicas[t]; r++) {
			m->time[s->device[t][r] * s->nstage + t][ACT_F] = f->forward[t];
			m->time[s->device[t][r] * s->nstage + t][ACT_B] = f->backward[t];
		}
		if (t + 1 < s->nstage) {
			m->msg[m->nmsg++] = (SimMessage){ t, t + 1, (int64_t)f->message[t], true };
			m->msg[m->nmsg++] = (SimMessage){ t + 1, t, (int64_t)f->message[t], false };
		}
	}
	return m;
}

static void draw(char *row, const SimSpan *s, char letter)
{
	assert_true(s->end < WIDE);
	for (int t = (int)s->begin; t < (int)s->end; t++)
		row[t] = letter;
}

/* Device rows, and behind each the messages that it sends on and back where the figure has such rows. */
static void compare_rows(const Figure *f, const Sim *sim)
{
	int rank = -1, wrong = 0;

	for (int i = 0; i < f->nrow; i++) {
		const char sign = *f->row[i];
		const bool moves = sign == '>' || sign == '<';
		char row[WIDE];

		rank += !moves;
		memset(row, '.', sizeof row);
		for (int k = 0; k < sim->nspan; k++) {
			const SimSpan *s = &sim->span[k];
			if (s->rank != rank || s->mb < 0)
				continue;
			if (!moves && s->peer < 0 && (s->kind == ACT_F || s->kind == ACT_B))
				draw(row, s, (char)((s->kind == ACT_F ? '1' : 'a') + s->mb));
			if (moves && s->peer >= 0 && (s->peer > rank) == (sign == '>'))
				draw(row, s, (char)((sign == '>' ? '1' : 'a') + s->mb));
		}
		row[(int)sim->pipeline] = 0;
		if (strcmp(row, f->row[i] + moves)) {
			print_message("device %d: %s\n  wanted: %s\n", rank, row, f->row[i] + moves);
			wrong++;
		}
	}
	assert_int_equal(wrong, 0);
}

static double play(const char *name)
{
	const Figure f = read_figure(name);
	Arena *a = arena_new();
	StageEdge edge[STAGES];
	Cluster c;
	Sim sim;
	Diag d;

	diag_init(&d, stderr, a);
	for (int t = 0; t + 1 < f.nstage; t++)
		edge[t] = (StageEdge){ t, t + 1, true, true };
	Schedule *s = schedule_make(
		a, spec_of(f.schedule), f.nstage, f.replicas, f.micro, false, edge, f.nstage - 1, NULL, &d);
	assert_non_null(s);
	assert_true(schedule_verify(s, edge, f.nstage - 1, &d));
	assert_true(simulate(a, model_of(a, &f, s, &c), &sim, &d));
	compare_rows(&f, &sim);
	if (f.bubble >= 0 && fabs(sim.bubble - f.bubble) > 1e-12)
		fail_msg("%s: bubble %.17g, wanted %.17g", name, sim.bubble, f.bubble);
	const double end = sim.pipeline;
	arena_free(a);
	return end;
}

#define FIGURE(name) \
	static void test_##name(void **state) \
	{ \
		(void)state; \
		play(#name); \
	}
FIGURE(pipedream_fig3)
FIGURE(pipedream_fig4)
FIGURE(pipedream_fig8)
FIGURE(dapple_fig4)

/* The same bubbles as GPipe, early backwards or not. */
static void test_dapple_fig3(void **state)
{
	(void)state;
	assert_true(play("dapple_fig3a") == play("dapple_fig3b"));
}

/* The even cut is not the fastest one: what crosses it counts. */
static void test_dapple_fig7(void **state)
{
	(void)state;
	assert_true(play("dapple_fig7_uneven") < play("dapple_fig7_even"));
}

/* Slices of a microbatch on both devices end before whole microbatches in turn do: the tail. */
static void test_dapple_fig8(void **state)
{
	(void)state;
	assert_true(play("dapple_fig8a") < play("dapple_fig8b"));
}

/* Efficiency 1 / (1 + P), P = (1 + alpha)(S - 1) / M, alpha the time of messages as a share of that of stages: DAPPLE,
 * section III; equal stages, messages of both ways as stages of their own. */
static void test_efficiency(void **state)
{
	static const char *const name[] = { "gpipe", "1f1b" };
	Arena *a = arena_new();
	Diag d;

	(void)state;
	diag_init(&d, stderr, a);
	for (int i = 0; i < 2; i++)
		for (int S = 1; S <= 6; S++)
			for (int M = 1; M <= 24; M += 1 + M / 3)
				for (int transfer = 0; transfer <= (i ? 0 : 2); transfer++) {
					Figure f = { .nstage = S, .micro = M };
					StageEdge edge[STAGES];
					Cluster c;
					Sim sim;

					for (int t = 0; t < S; t++) {
						f.replicas[t] = 1;
						f.forward[t] = 2;
						f.backward[t] = 4;
						f.message[t] = transfer;
						edge[t] = (StageEdge){ t, t + 1, true, true };
					}
					Schedule *s = schedule_make(
						a, spec_of(name[i]), S, f.replicas, M, false, edge, S - 1, NULL, &d);
					assert_true(s && simulate(a, model_of(a, &f, s, &c), &sim, &d));
					const double alpha = 2 * transfer / 6.0, P = (1 + alpha) * (S - 1) / M;
					const double got = 1 - sim.bubble, want = 1 / (1 + P);
					if (fabs(got - want) > 1e-12)
						fail_msg(
							"%s, %d stages, %d microbatches, messages %d: efficiency %.17g, wanted %.17g",
							name[i], S, M, transfer, got, want);
				}
	arena_free(a);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pipedream_fig3),
		cmocka_unit_test(test_pipedream_fig4),
		cmocka_unit_test(test_pipedream_fig8),
		cmocka_unit_test(test_dapple_fig3),
		cmocka_unit_test(test_dapple_fig4),
		cmocka_unit_test(test_dapple_fig7),
		cmocka_unit_test(test_dapple_fig8),
		cmocka_unit_test(test_efficiency),
	};

	if (argc > 1)
		root = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
