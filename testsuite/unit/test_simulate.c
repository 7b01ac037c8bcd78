/* The simulator against schedules worked out by hand. A row of a picture is a device, a column a unit of time: digits
 * are forwards (1F1B's unit: forward 1, backward 2), letters backwards of the same microbatches, '.' is idle. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>
#include "passes/schedule/sched.h"
#include "passes/simulate/simulate.h"

enum { PICTURE = 64 };

typedef struct Case {
	Arena *a;
	Sched sched;
	Cluster cluster;
	SimModel model;
	Sim sim;
} Case;

/* A chain of stages; every device has its microbatches in one block. */
static void chain(Case *c, int nstage, const int *replicas, int micro)
{
	Arena *a = c->a = arena_new();
	Schedule *s = NEW(a, Schedule);
	int rank = 0;

	*s = (Schedule){ .name = "test",
		.nstage = nstage,
		.nmicro = micro,
		.replicas = arena_dup(a, replicas, sizeof *replicas * (size_t)nstage),
		.device = NEWN(a, int *, nstage),
		.replica_of = NEWN(a, int *, nstage),
		.inflight = NEWN(a, int, nstage),
		.entries = NEWN(a, int, nstage) };
	for (int t = 0; t < nstage; t++)
		s->ndevice += replicas[t];
	s->dev = NEWN(a, DeviceSchedule, s->ndevice);
	c->sched = (Sched){ .a = a,
		.s = s,
		.edge = NEWN(a, StageEdge, nstage),
		.nedge = nstage - 1,
		.stage = NEWN(a, int, s->ndevice),
		.grain = NEWN(a, int *, s->ndevice),
		.ngrain = NEWN(a, int, s->ndevice),
		.chunk = NEWN(a, int *, s->ndevice),
		.nchunk = NEWN(a, int, s->ndevice) };
	for (int t = 0; t < nstage; t++) {
		c->sched.edge[t] = (StageEdge){ t, t + 1, true, true };
		s->device[t] = NEWN(a, int, replicas[t]);
		s->replica_of[t] = NEWN(a, int, micro);
		for (int r = 0; r < replicas[t]; r++, rank++) {
			s->device[t][r] = rank;
			c->sched.stage[rank] = t;
			c->sched.chunk[rank] = &c->sched.stage[rank];
			c->sched.nchunk[rank] = 1;
			c->sched.grain[rank] = NEWN(a, int, micro / replicas[t] + 1);
		}
		for (int g = 0; g < micro; g++) {
			const int r =
				s->device[t][s->replica_of[t][g] = plan_replica_of(g, replicas[t], micro, 0, false)];
			c->sched.grain[r][c->sched.ngrain[r]++] = g;
		}
	}
}

/* Devices on hosts of so many each; one link within hosts, one between. */
static void on_cluster(Case *c, int per_host, Link within, Link between)
{
	const int n = c->sched.s->ndevice;
	int *device = NEWN(c->a, int, n);

	c->cluster = (Cluster){ .device = NEWN(c->a, Device, n),
		.ndevice = n,
		.nhost = (n + per_host - 1) / per_host,
		.link = NEWN(c->a, Link, 2),
		.nlink = 2 };
	c->cluster.host = NEWN(c->a, Host, c->cluster.nhost);
	c->cluster.link[0] = within;
	c->cluster.link[0].scope = LINK_WITHIN;
	c->cluster.link[1] = between;
	c->cluster.link[1].scope = LINK_DEFAULT;
	for (int i = 0; i < n; i++) {
		c->cluster.device[i].host = i / per_host;
		device[i] = i;
	}
	c->model = (SimModel){ .s = c->sched.s,
		.c = &c->cluster,
		.device = device,
		.time = NEWN(c->a, SimTimes, n * c->sched.s->nstage),
		.msg = NEWN(c->a, SimMessage, 2 * n) };
}

/* Stage times, the same on all replicas; messages of so many bytes between neighbours, both ways. */
static void times(Case *c, const double *f, const double *b, int64_t bytes)
{
	const Schedule *s = c->sched.s;

	for (int r = 0; r < s->ndevice; r++) {
		c->model.time[r * s->nstage + c->sched.stage[r]][ACT_F] = f[c->sched.stage[r]];
		c->model.time[r * s->nstage + c->sched.stage[r]][ACT_B] = b[c->sched.stage[r]];
	}
	for (int t = 0; t + 1 < s->nstage; t++) {
		c->model.msg[c->model.nmsg++] = (SimMessage){ t, t + 1, bytes, true };
		c->model.msg[c->model.nmsg++] = (SimMessage){ t + 1, t, bytes, false };
	}
}

static void play(Case *c)
{
	Diag d;

	diag_init(&d, stderr, c->a);
	assert_true(schedule_verify(c->sched.s, c->sched.edge, c->sched.nedge, &d));
	assert_true(simulate(c->a, &c->model, &c->sim, &d));
}

static void near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-12 * (fabs(want) + 1)))
		fail_msg("got %.17g, wanted %.17g", got, want);
}

static void picture(const Case *c, int rank, const char *want)
{
	char row[PICTURE + 1];

	memset(row, '.', sizeof row);
	for (int i = 0; i < c->sim.nspan; i++) {
		const SimSpan *s = &c->sim.span[i];
		if (s->rank != rank || (s->kind != ACT_F && s->kind != ACT_B))
			continue;
		near(s->begin, floor(s->begin));
		assert_true(s->end <= PICTURE);
		for (int t = (int)s->begin; t < (int)s->end; t++)
			row[t] = (char)((s->kind == ACT_F ? '0' : 'a') + s->mb);
	}
	row[(int)c->sim.step] = 0;
	assert_string_equal(row, want);
}

static const Link FREE = { .bandwidth = INFINITY };
static const int one_each[] = { 1, 1, 1, 1, 1, 1, 1, 1 };
static const double ones[] = { 1, 1, 1, 1, 1, 1, 1, 1 }, twos[] = { 2, 2, 2, 2, 2, 2, 2, 2 };

static void test_gpipe(void **state)
{
	Case c = { 0 };

	(void)state;
	chain(&c, 3, one_each, 4);
	on_cluster(&c, 3, FREE, FREE);
	times(&c, ones, twos, 100);
	schedule_gpipe(&c.sched, NULL);
	play(&c);
	near(c.sim.step, 18);
	picture(&c, 0, "0123......aabbccdd");
	picture(&c, 1, ".0123...aabbccdd..");
	picture(&c, 2, "..0123aabbccdd....");
	near(c.sim.bubble, 2.0 / 6);
	for (int r = 0; r < 3; r++) {
		near(c.sim.busy[r], 12);
		assert_int_equal(c.sim.peak[r], 4);
	}
	assert_int_equal(c.sim.nload, 1);
	assert_int_equal(c.sim.load[0].messages, 2 * 2 * 4 * 100);
	arena_free(c.a);
}

static void test_1f1b(void **state)
{
	Case c = { 0 };

	(void)state;
	chain(&c, 3, one_each, 4);
	on_cluster(&c, 3, FREE, FREE);
	times(&c, ones, twos, 100);
	schedule_1f1b(&c.sched, NULL);
	play(&c);
	near(c.sim.step, 18);
	picture(&c, 0, "012....aa3bb.cc.dd");
	picture(&c, 1, ".01..aa2bb3cc.dd..");
	picture(&c, 2, "..0aa1bb2cc3dd....");
	near(c.sim.bubble, 2.0 / 6);
	for (int r = 0; r < 3; r++)
		assert_int_equal(c.sim.peak[r], 3 - r);
	arena_free(c.a);
}

/* (S-1) / (M+S-1), whatever the order, for equal stages and free messages. */
static void test_bubble(void **state)
{
	(void)state;
	for (int stages = 1; stages <= 8; stages++)
		for (int micro = 1; micro <= 20; micro += 3)
			for (int family = 0; family < 2; family++) {
				Case c = { 0 };

				chain(&c, stages, one_each, micro);
				on_cluster(&c, 4, FREE, FREE);
				times(&c, ones, twos, 8);
				(family ? schedule_1f1b : schedule_gpipe)(&c.sched, NULL);
				play(&c);
				near(c.sim.step, 3.0 * (micro + stages - 1));
				near(c.sim.bubble, (double)(stages - 1) / (micro + stages - 1));
				arena_free(c.a);
			}
}

/* DAPPLE's efficiency of a pipeline, 1 / (1 + (1 + a) (S-1) / M), a: messages per boundary over work per stage. */
static void test_efficiency(void **state)
{
	const double f = 1, b = 2, message = 0.75, a = 2 * message / (f + b);

	(void)state;
	for (int stages = 1; stages <= 6; stages++)
		for (int micro = 1; micro <= 16; micro += 5) {
			Case c = { 0 };

			chain(&c, stages, one_each, micro);
			on_cluster(&c, 1, FREE, (Link){ .bandwidth = 4, .latency = message - 2 / 4.0 });
			times(&c, ones, twos, 2);
			schedule_gpipe(&c.sched, NULL);
			play(&c);
			near(1 - c.sim.bubble, 1 / (1 + (1 + a) * (stages - 1) / micro));
			arena_free(c.a);
		}
}

static void test_unequal(void **state)
{
	Case c = { 0 };

	(void)state;
	chain(&c, 2, one_each, 3);
	on_cluster(&c, 2, FREE, FREE);
	times(&c, (double[]){ 2, 1 }, (double[]){ 4, 2 }, 1);
	schedule_gpipe(&c.sched, NULL);
	play(&c);
	near(c.sim.step, 21);
	picture(&c, 0, "001122...aaaabbbbcccc");
	picture(&c, 1, "..0.1.2aabbcc........");
	arena_free(c.a);
	c = (Case){ 0 };
	chain(&c, 2, one_each, 3);
	on_cluster(&c, 2, FREE, FREE);
	times(&c, (double[]){ 1, 2 }, (double[]){ 2, 4 }, 1);
	schedule_1f1b(&c.sched, NULL);
	play(&c);
	near(c.sim.step, 21);
	picture(&c, 0, "01.....aa2...bb....cc");
	picture(&c, 1, ".00aaaa11bbbb22cccc..");
	near(c.sim.bubble, 1 - 27.0 / 42);
	arena_free(c.a);
}

/* A message takes one unit on the link and is there one later. */
static void test_messages(void **state)
{
	const Link slow = { .bandwidth = 1, .latency = 1 };
	Case c = { 0 };

	(void)state;
	chain(&c, 2, one_each, 2);
	on_cluster(&c, 1, FREE, slow);
	times(&c, ones, twos, 1);
	schedule_gpipe(&c.sched, NULL);
	play(&c);
	near(c.sim.step, 13);
	picture(&c, 0, "01.......aabb");
	picture(&c, 1, "...01aabb....");
	assert_int_equal(c.sim.load[0].messages, 4);
	near(c.sim.load[0].busy, 2);
	arena_free(c.a);
	/* 1F1B's last stage has one slot: its next message moves when the slot is free, or before where a receive is ahead */
	for (int ahead = 0; ahead < 2; ahead++) {
		c = (Case){ 0 };
		chain(&c, 2, one_each, 2);
		c.sched.ahead = (int[]){ ahead, ahead };
		on_cluster(&c, 1, FREE, slow);
		times(&c, ones, twos, 1);
		schedule_1f1b(&c.sched, NULL);
		play(&c);
		near(c.sim.step, ahead ? 13 : 15);
		picture(&c, 0, ahead ? "01......aa.bb" : "01......aa...bb");
		picture(&c, 1, ahead ? "...0aa1bb...." : "...0aa..1bb....");
		arena_free(c.a);
	}
}

/* Gradients take five units to leave the last stage; its next backward may not write there before, or has another place. */
static void test_entry_sent(void **state)
{
	Case c;

	(void)state;
	for (int ahead = 0; ahead < 2; ahead++) {
		c = (Case){ 0 };
		chain(&c, 2, one_each, 2);
		c.sched.ahead = (int[]){ ahead, ahead };
		on_cluster(&c, 1, FREE, (Link){ .bandwidth = 1 });
		times(&c, ones, ones, 0);
		c.model.msg[1].bytes = 5;
		schedule_1f1b(&c.sched, NULL);
		play(&c);
		near(c.sim.step, ahead ? 14 : 15);
		picture(&c, 0, ahead ? "01......a....b" : "01......a.....b");
		picture(&c, 1, ahead ? ".0a1b........." : ".0a1....b......");
		arena_free(c.a);
	}
}

static void test_replicas(void **state)
{
	const Link link = { .bandwidth = 2, .latency = 0.5 };
	static const int two[] = { 2 }, both[] = { 0, 1 };
	SimJoin ring = { .kind = SIM_RING, .bytes = 4, .n = 2, .rank = both };
	SimJoin copy = { .kind = SIM_COPY, .bytes = 4, .n = 2, .rank = both, .root = 1 };
	Case c = { 0 };

	(void)state;
	chain(&c, 1, two, 2);
	on_cluster(&c, 2, link, FREE);
	times(&c, ones, twos, 0);
	for (int r = 0; r < 2; r++)
		c.model.time[r * c.sched.s->nstage + c.sched.stage[r]][ACT_UPDATE] = 1;
	c.model.join = &ring;
	c.model.njoin = 1;
	c.model.weights = 4;
	schedule_1f1b(&c.sched, NULL);
	play(&c);
	near(c.sim.step, 3 + (0.5 + 4 / 2.0) + 1); /* small: to everyone at once */
	assert_int_equal(c.sim.load[0].joins, 8);
	assert_int_equal(c.sim.load[0].parallel, 8);
	near(c.sim.bubble, 0);
	ring.bytes = 1 << 20;
	play(&c);
	near(c.sim.step, 3 + 2 * 1 * (0.5 + (1 << 20) / 2 / 2.0) + 1);
	ring.bytes = 4;
	/* a slower device: the sum begins when it is there; the losses go to device 0 and back */
	c.model.time[1 * c.sched.s->nstage + c.sched.stage[1]][ACT_F] = 2;
	c.model.totals = 2;
	play(&c);
	near(c.sim.step, 4 + 2.5 + (2 * 0.5 + 2 / 2.0) + 1);
	near(c.sim.spent[0][ACT_SYNC], 3.5);
	near(c.sim.spent[1][ACT_SYNC], 2.5);
	near(c.sim.busy[1], 5);
	/* two buckets that are ready after a quarter and at the end of the backward (of 2): 2 from 3.5, 1 and 1 on */
	SimJoin buckets[] = { ring, ring };
	for (int i = 0; i < 2; i++) {
		buckets[i].bytes = 2;
		buckets[i].bucket = true;
		buckets[i].when = ACT_B;
		buckets[i].ready = i ? 1 : 0.25;
	}
	c.model.join = buckets;
	c.model.njoin = 2;
	play(&c);
	near(c.sim.step, 2 + 0.25 * 2 + 2 * (0.5 + 2 / 2.0) + (2 * 0.5 + 2 / 2.0) + 1);
	near(c.sim.spent[1][ACT_SYNC], 2.5 + 3 - 4);
	c.model.njoin = 1;
	/* copying 4 bytes to one other */
	c.model.join = &copy;
	play(&c);
	near(c.sim.step, 4 + (0.5 + 4 / 2.0) + 2 + 1);
	assert_int_equal(c.sim.load[0].joins, 4);
	arena_free(c.a);
}

/* Two replicas that are not flushed: forward 1, backward 2, update 1. What an update takes in the steady state, and all steps shown. */
static void flowing(ScheduleSpec spec, int micro, int sums, int64_t bytes, double each, double step)
{
	static const int two[] = { 2 }, both[] = { 0, 1 };
	SimJoin join[2];
	Case c = { 0 };

	for (int i = 0; i < sums; i++)
		join[i] = (SimJoin){ .kind = SIM_RING,
			.bytes = bytes,
			.n = 2,
			.rank = both,
			.bucket = sums > 1,
			.when = ACT_B,
			.ready = i ? 1 : 0.25 };
	chain(&c, 1, two, micro);
	on_cluster(&c, 2, (Link){ .bandwidth = 2, .latency = 0.5 }, FREE);
	times(&c, ones, twos, 0);
	c.model.time[0][ACT_UPDATE] = c.model.time[1][ACT_UPDATE] = 1;
	c.model.join = join;
	c.model.njoin = sums;
	c.sched.spec = spec;
	(spec.kind == SCHEDULE_PIPE_SGD ? schedule_pipe_sgd : schedule_pipedream)(&c.sched, NULL);
	play(&c);
	near(c.sim.each, each);
	if (step > 0)
		near(c.sim.step, step);
	near(c.sim.busy[0], c.sim.busy[1]);
	arena_free(c.a);
}

static void test_flowing(void **state)
{
	const ScheduleSpec two_late = { .kind = SCHEDULE_PIPE_SGD, .n = 2 },
			   three_late = { .kind = SCHEDULE_PIPE_SGD, .n = 3 };
	const ScheduleSpec pipedream = { .kind = SCHEDULE_PIPEDREAM };

	(void)state;
	/* a round is two minibatches; its sum of 2.5 behind the backward, or two of 1.5 from 0.5 of the backward on */
	flowing(pipedream, 1, 1, 4, (3 + 2.5 + 1) / 2, 0);
	flowing(pipedream, 1, 2, 2, (3 + 1.5 + 1) / 2, 0);
	flowing(pipedream, 1, 2, 8, (1.5 + 2 * 4.5 + 1) / 2, 0);
	/* Pipe-SGD: the longer of both, where a sum begins the links are free; behind the last step what is left of its sums */
	flowing(two_late, 2, 1, 4, 4, 3 + 3 + 1 + 3 + 1 + 3 + 2.5 + 1);
	flowing(two_late, 2, 2, 2, 4, 3 + 3 + 1 + 3 + 1 + 3 + 1.5 + 1);
	flowing(two_late, 2, 1, 16, 8.5, 0);
	flowing(two_late, 2, 2, 8, 9, 0);
	flowing(three_late, 2, 1, 16, 8.5, 0);
}

/* Two devices of a host send to two of another: one after the other over the network, at once within a host. */
static void test_contention(void **state)
{
	static const int twice[] = { 2, 2 };
	const Link slow = { .bandwidth = 1 };

	(void)state;
	for (int hosts = 1; hosts <= 2; hosts++) {
		Case c = { 0 };

		chain(&c, 2, twice, 2);
		on_cluster(&c, 4 / hosts, slow, slow);
		times(&c, ones, ones, 2);
		schedule_1f1b(&c.sched, NULL);
		play(&c);
		near(c.sim.step, hosts == 1 ? 8 : 10);
		picture(&c, 0, hosts == 1 ? "0......a" : "0......a..");
		picture(&c, 2, hosts == 1 ? "...0a..." : "...0a.....");
		picture(&c, 1, hosts == 1 ? "1......b" : "1........b");
		picture(&c, 3, hosts == 1 ? "...1b..." : ".....1b...");
		near(c.sim.load[0].busy, hosts == 1 ? 2 : 4);
		arena_free(c.a);
	}
}

/* Two stages of two replicas, on the same two hosts: their sums share the link between these. */
static void test_sums_share(void **state)
{
	static const int two[] = { 2, 2 }, member[2][2] = { { 0, 1 }, { 2, 3 } }, device[] = { 0, 2, 1, 3 };
	const double bytes = 1 << 20;
	SimJoin ring[2] = { { .kind = SIM_RING, .bytes = 1 << 20, .n = 2, .rank = member[0] },
		{ .kind = SIM_RING, .bytes = 1 << 20, .n = 2, .rank = member[1] } };
	Case c = { 0 };

	(void)state;
	chain(&c, 2, two, 2);
	on_cluster(&c, 2, FREE, (Link){ .bandwidth = bytes / 2 });
	times(&c, ones, ones, 0);
	c.model.device = device;
	c.model.join = ring;
	c.model.njoin = 2;
	schedule_1f1b(&c.sched, NULL);
	play(&c);
	/* the last stage's begins at 3 and has 1 of its 2 s when the other begins; both at half from 4 to 6 */
	near(c.sim.step, 7);
	near(c.sim.spent[2][ACT_SYNC], 3);
	near(c.sim.spent[0][ACT_SYNC], 3);
	arena_free(c.a);
}

/* A ring over two hosts of two devices each: every second neighbour, or every one, is on the other host. */
static void test_ring_order(void **state)
{
	static const int four[] = { 4 }, near_by[] = { 0, 1, 2, 3 }, across[] = { 0, 2, 1, 3 };

	(void)state;
	for (int k = 0; k < 2; k++) {
		SimJoin ring = { .kind = SIM_RING, .bytes = 4 << 20, .n = 4, .rank = k ? across : near_by };
		Case c = { 0 };

		chain(&c, 1, four, 4);
		on_cluster(&c, 2, FREE, (Link){ .bandwidth = 1 << 20, .latency = 0.5 });
		times(&c, ones, ones, 0);
		c.model.join = &ring;
		c.model.njoin = 1;
		schedule_1f1b(&c.sched, NULL);
		play(&c);
		near(c.sim.step, 2 + 2 * 3 * (0.5 + 1 + k));
		arena_free(c.a);
	}
}

/* Hosts of two; what is asked of the servers, played behind a forward and a backward. */
static double served(const SimServe *serve, int n)
{
	static const int four[] = { 4 }, all[] = { 0, 1, 2, 3 };
	SimJoin join = { .kind = SIM_SERVE, .n = 4, .rank = all };
	Case c = { 0 };

	chain(&c, 1, four, 4);
	on_cluster(&c, 2, FREE, (Link){ .bandwidth = 1, .latency = 0.25 });
	times(&c, ones, ones, 0);
	c.model.join = &join;
	c.model.njoin = 1;
	c.model.serve = arena_dup(c.a, serve, sizeof *serve * (size_t)n);
	c.model.nserve = n;
	schedule_1f1b(&c.sched, NULL);
	play(&c);
	arena_free(c.a);
	return c.sim.step - 2;
}

static void test_servers(void **state)
{
	/* devices 0 and 2 pull from 1, then from 3: each has one of them on its own host, and both move at one time */
	const SimServe pull[] = { { 0, 1, 0, SERVE_PULL, .down = 1 }, { 2, 1, 0, SERVE_PULL, .down = 1 },
		{ 0, 3, 1, SERVE_PULL, .down = 1 }, { 2, 3, 1, SERVE_PULL, .down = 1 } };
	/* 1 gives 0 its sum, 0 pushes both to 3; 3 gives what it has to both, 0 returns it */
	const SimServe push[] = { { 1, 0, 5, SERVE_GIVE, .up = 1 }, { 0, 3, 5, SERVE_PUSH, .up = 1 },
		{ 0, 3, 0, SERVE_END, .up = 0 }, { 1, 3, 0, SERVE_END, .up = 0 }, { 0, 3, 0, SERVE_FETCH, .down = 1 },
		{ 1, 3, 0, SERVE_FETCH, .down = 1 }, { 0, 3, 9, SERVE_RETURN, .up = 1 } };
	/* 1 pulls for 2 s before it gives */
	const SimServe late[] = { { 1, 3, 0, SERVE_PULL, .down = 2 }, { 1, 0, 5, SERVE_GIVE, .up = 1 },
		{ 0, 3, 5, SERVE_PUSH, .up = 1 } };

	(void)state;
	near(served(pull, 4), 1 + 2 * 0.25);
	near(served(push, 7), (1 + 0.25) + 0.25 + (2 + 0.25) + (1 + 0.25));
	near(served(late, 3), 2 + 2 * 0.25 + 1 + 0.25);
}

/* A device sends gradients to the stage before it while its own are summed: both at half speed. */
static void test_sum_beside_message(void **state)
{
	static const int two[] = { 2, 2 }, last[] = { 2, 3 };
	SimJoin ring = { .kind = SIM_RING, .bytes = 2 << 20, .n = 2, .rank = last };
	Case c = { 0 };

	(void)state;
	chain(&c, 2, two, 2);
	on_cluster(&c, 1, FREE, (Link){ .bandwidth = 1 << 20 });
	times(&c, ones, ones, 2 << 20);
	c.model.join = &ring;
	c.model.njoin = 1;
	schedule_1f1b(&c.sched, NULL);
	play(&c);
	/* forwards 0-1 and 3-4, a backward 4-5; what begins at 5 would take 2 s each, alone */
	near(c.sim.spent[2][ACT_SYNC], 4);
	near(c.sim.step, 10);
	arena_free(c.a);
}

/* What device 1 never sends, device 0 waits for; both are named. */
static void test_deadlock(void **state)
{
	Case c = { 0 };
	Diag d;
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	(void)state;
	chain(&c, 2, one_each, 1);
	on_cluster(&c, 2, FREE, FREE);
	times(&c, ones, twos, 1);
	static const ActKind first[] = { ACT_F, ACT_SEND_F, ACT_RECV_B, ACT_B, ACT_UPDATE };
	static const ActKind second[] = { ACT_RECV_F, ACT_F, ACT_B, ACT_UPDATE };
	for (int i = 0; i < 5; i++)
		schedule_push(c.a, c.sched.s, 0, (Action){ .kind = first[i], .mb = first[i] == ACT_UPDATE ? -1 : 0 });
	for (int i = 0; i < 4; i++)
		schedule_push(c.a, c.sched.s, 1,
			(Action){ .kind = second[i], .stage = 1, .mb = second[i] == ACT_UPDATE ? -1 : 0 });
	c.model.totals = 1;
	diag_init(&d, f, c.a);
	assert_false(simulate(c.a, &c.model, &c.sim, &d));
	fclose(f);
	assert_int_equal(d.last_code, 503);
	assert_non_null(strstr(text, "deadlock after 4 s: device 0 at 0B0 waits for a message; "
				     "device 1 at 1UPDATE waits for the losses of all"));
	free(text);
	arena_free(c.a);
}

static void test_same_twice(void **state)
{
	static const int replicas[] = { 3, 2, 1 };
	Case c[2] = { 0 };

	(void)state;
	for (int i = 0; i < 2; i++) {
		chain(&c[i], 3, replicas, 12);
		on_cluster(
			&c[i], 2, (Link){ .bandwidth = 7, .latency = 0.1 }, (Link){ .bandwidth = 3, .latency = 0.3 });
		times(&c[i], (double[]){ 3, 2, 1 }, (double[]){ 5, 4, 3 }, 5);
		schedule_1f1b(&c[i].sched, NULL);
		play(&c[i]);
	}
	assert_int_equal(c[0].sim.nspan, c[1].sim.nspan);
	for (int i = 0; i < c[0].sim.nspan; i++) {
		const SimSpan *x = &c[0].sim.span[i], *y = &c[1].sim.span[i];
		assert_true(x->begin <= y->begin && x->begin >= y->begin && x->end <= y->end && x->end >= y->end);
		assert_int_equal(x->rank, y->rank);
		assert_int_equal(x->action, y->action);
		assert_true(!i || x->begin >= c[0].sim.span[i - 1].begin);
	}
	arena_free(c[0].a);
	arena_free(c[1].a);
}

/* 64 stages of 64 replicas on 512 hosts. */
static void test_4096(void **state)
{
	enum { SIDE = 64, ROUNDS = 128 };
	int replicas[SIDE];
	double f[SIDE], b[SIDE];
	Case c = { 0 };
	Diag d;

	(void)state;
	for (int i = 0; i < SIDE; i++) {
		replicas[i] = SIDE;
		f[i] = 1e-3;
		b[i] = 2e-3;
	}
	chain(&c, SIDE, replicas, SIDE * ROUNDS);
	on_cluster(
		&c, 8, (Link){ .bandwidth = 100e9, .latency = 2e-6 }, (Link){ .bandwidth = 12.5e9, .latency = 5e-6 });
	times(&c, f, b, 1 << 20);
	schedule_gpipe(&c.sched, NULL);
	diag_init(&d, stderr, c.a);
	const clock_t start = clock();
	assert_true(simulate(c.a, &c.model, &c.sim, &d));
	const double took = (double)(clock() - start) / CLOCKS_PER_SEC;
	print_message("4096 devices, %d intervals: %.2f s\n", c.sim.nspan, took);
	/* a slow processor beside other work takes 6; looking at all devices for each event would take minutes */
	if (took >= 15)
		fail_msg("4096 devices took %.2f s", took);
	assert_true(c.sim.step > 3e-3 * (ROUNDS + SIDE - 1));
	arena_free(c.a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpipe),
		cmocka_unit_test(test_1f1b),
		cmocka_unit_test(test_bubble),
		cmocka_unit_test(test_efficiency),
		cmocka_unit_test(test_unequal),
		cmocka_unit_test(test_messages),
		cmocka_unit_test(test_entry_sent),
		cmocka_unit_test(test_replicas),
		cmocka_unit_test(test_flowing),
		cmocka_unit_test(test_contention),
		cmocka_unit_test(test_deadlock),
		cmocka_unit_test(test_sums_share),
		cmocka_unit_test(test_servers),
		cmocka_unit_test(test_ring_order),
		cmocka_unit_test(test_sum_beside_message),
		cmocka_unit_test(test_same_twice),
		cmocka_unit_test(test_4096),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
