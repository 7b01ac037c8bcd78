/* start.c: the life of a device's program: arguments, joining the others, memory, weights, the
 * loop, the results. */
#include "rt.h"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const pd_program *rt_program;
int64_t rt_step;
static int64_t last_step; /* the run ends before it */
static int64_t flushed;   /* asynchronous: steps of the epochs that are drained one by one */

static struct { /* of this process, from pd_init to pd_finalize */
	rt_options o;
	char *arena;
	int64_t first; /* the step it began with */
	double begin;
	bool training, dumped, stop, signalled;
	bool whole; /* pd_main runs it: nobody looks at what a step came to before the next one */
} run;

double rt_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

_Noreturn void rt_fail(int status, const char *code, const char *fmt, ...)
{
	char text[2048], said[2200];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	rt_progress_end();
	fflush(stdout);
	snprintf(said, sizeof said, "%s%s%s: %s\n", code, rt_program ? " " : "",
		rt_program ? rt_name(rt_program->rank) : "", text);
	(void)!write(
		STDERR_FILENO, said, strlen(said)); /* at once: stdio may cut it, and another rank's come between */
	if (rt_program) {
		snprintf(said, sizeof said, "ended with %s: %s", code, text);
		rt_verdict(rt_task_of(rt_program->rank), said); /* unless this rank only repeats one */
		snprintf(said, sizeof said, "%s: %s", code, text);
		rt_dump(said);
	}
	rt_abort(status);
}

void *rt_alloc(size_t bytes)
{
	void *p = calloc(1, bytes ? bytes : 1);

	if (!p)
		rt_fail(RT_MEMORY, "R501", "no memory for %zu bytes", bytes);
	return p;
}

int64_t pd_step_index(void)
{
	rt_section_spoil("a kernel is told the step");
	return rt_update < 0 ? rt_step : rt_update;
}

int64_t pd_update_index(void) { return pd_step_index() - rt_skipped(); }

bool rt_last_step(void) { return rt_step + 1 >= last_step; }

int64_t pd_sample(int mb)
{
	rt_section_spoil("a kernel is told the number of a sample");
	return (rt_step * rt_program->microbatches + mb) * rt_program->micro;
}

int64_t pd_sample_of_step(int mb) { return mb * rt_program->micro; }

/* ---- memory ---- */

/* All of the device's memory: at a multiple of 2 MiB, of huge pages where the system gives them,
 * every page touched here, so that a lack of memory shows before step 0. */
static char *make_arena(size_t bytes)
{
	const size_t huge = (size_t)2 << 20, room = bytes + huge;
	char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	if (p == MAP_FAILED || (pages > 0 && bytes > (size_t)pages * (size_t)page))
		rt_fail(RT_MEMORY, "R501", "the plan needs %zu bytes of memory for this device, this machine has %zu",
			bytes, (size_t)pages * (size_t)page);
	p += (huge - (uintptr_t)p % huge) % huge;
	madvise(p, bytes, MADV_HUGEPAGE);
	memset(p, 0, bytes);
	return p;
}

/* ---- the loop ---- */

/* Of every device: where and what it is. */
static void introduce(const pd_program *p, double timeout)
{
	char host[256] = "";

	gethostname(host, sizeof host - 1);
	printf("debug: %s is process %ld on %s: %d thread%s, arena of %llu bytes, waits %g s for others\n",
		rt_name(p->rank), (long)getpid(), host, p->threads, p->threads == 1 ? "" : "s",
		(unsigned long long)p->arena, timeout);
	fflush(stdout);
}

static void announce(const pd_program *p, const rt_options *o)
{
	const char *note = p->notes && *p->notes ? p->notes : rt_input_synthetic() ? "synthetic data" : "";

	if (rt_log >= RT_LOG_DEBUG)
		introduce(p, o->timeout);
	if (rt_log < RT_LOG_NOTE || !rt_leads(p))
		return;
	printf("%s: %d stage%s on %d device%s (%s), %s\n%d microbatch%s of %lld a step%s%s\n", p->model, p->stages,
		p->stages == 1 ? "" : "s", p->world, p->world == 1 ? "" : "s", p->plan, p->schedule, p->microbatches,
		p->microbatches == 1 ? "" : "es", (long long)p->micro, *note ? "; " : "", note);
	rt_gpu_announce();
	fflush(stdout);
}

static void one_step(const pd_program *p, bool update)
{
	rt_totals_begin(update);
	p->step(update);
	if (update)
		pd_norm_end();
	if (!rt_totals_done())
		pd_totals();
	rt_graphs_between();
}

/* The last TIMES step times of rank 0, for the summary. */
enum { TIMES = 4096 };
static double times[TIMES];

static int by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* summary.json: what a run did, for scripts. */
static void write_summary(const pd_program *p, const rt_options *o, int64_t steps, double seconds)
{
	char path[4096];
	const int n = steps < TIMES ? (int)steps : TIMES;

	if (n == 0)
		return;
	if (p->rank != 0) {
		rt_traffic_write(NULL);
		return;
	}
	qsort(times, (size_t)n, sizeof *times, by_size);
	snprintf(path, sizeof path, rt_leads(p) ? "%s/summary.json" : "/dev/null", o->out);
	FILE *f = fopen(path, "w");

	if (!f)
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
	fprintf(f,
		"{\"steps\": %lld, \"seconds\": %.6f, \"samples_per_step\": %lld, \"threads\": %d,\n"
		" \"median_step_ms\": %.6f, \"p90_step_ms\": %.6f, \"least_step_ms\": %.6f, \"last_loss\": %.9g,\n",
		(long long)steps, seconds, (long long)p->micro * p->microbatches, p->threads, 1e3 * times[n / 2],
		1e3 * times[n * 9 / 10], 1e3 * times[0], rt_loss());
	if (p->peak > 0)
		fprintf(f, " \"mfu\": %.6g,\n", p->flops / (times[n / 2] * p->peak));
	rt_inputs_write(f);
	rt_spent_write(f);
	rt_guard_write(f);
	rt_traffic_write(f);
	fprintf(f, "}\n");
	if (fclose(f))
		rt_fail(RT_ERROR, "R406", "%s: %s", path, strerror(errno));
}

/* What came of a step; rt_loss() has its loss. */
static void tell(int64_t step, void *to)
{
	(void)to;
	if (rt_program->flow)
		times[(step - run.first) % TIMES] = rt_flow_seconds();
	rt_watch(step);
}

void rt_tell_rest(void)
{
	if (rt_tasks() == 1 && rt_totals_rest())
		tell(rt_totals_of(), NULL);
}

/* A step, or all that an asynchronous pipeline does until it is drained: at a checkpoint, at the end. */
static void advance(const pd_program *p, const rt_options *o, int64_t first)
{
	const double now = rt_now();
	const int64_t from = rt_step, every = o->ckpt_every;
	int64_t n = last_step - from, due = rt_evaluate_next(from);

	if (rt_replays()) {
		rt_replay_run(one_step, tell);
		rt_step = last_step;
	} else if (p->flow) {
		n = every && every - from % every < n ? every - from % every : n;
		n = due - from < n ? due - from : n;
		if (from < p->sync_steps || from < flushed || (o->first_step && !run.dumped))
			n = 1;
		rt_flow_run(p, n, every || due == from + n ? RT_FLOW_WHOLE : RT_FLOW_TRAIN, tell, NULL);
	} else {
		one_step(p, true);
		if (rt_totals_of() >= 0)
			tell(rt_totals_of(), NULL);
		rt_record_end();
		rt_step++;
	}
	for (int64_t k = from; k < rt_step && !p->flow; k++)
		times[(k - first) % TIMES] = (rt_now() - now) / (double)(rt_step - from);
}

static void nothing(int64_t step, void *to)
{
	(void)step;
	(void)to;
}

/* The loss of the step that would come now. */
static void loss_only(const pd_program *p)
{
	const int64_t at = rt_step;

	if (p->flow)
		rt_flow_run(p, 1, RT_FLOW_FORWARD, nothing, NULL);
	else
		one_step(p, false);
	rt_step = at;
}

/* Against the plan, and who waited for whom, in lines that fit a terminal. After write_summary, which sorts the times. */
static void tell_times(const pd_program *p, int64_t steps, double seconds)
{
	const double ms = 1e3 * times[(steps < TIMES ? steps : TIMES) / 2];
	int busiest;
	const double waited = rt_totals_waited(&busiest);

	char text[32];

	rt_progress_end();
	printf("a step took %s (median)", rt_seconds(text, ms / 1e3));
	if (p->predicted > 0)
		printf(", the plan predicted %s (%+.0f %%)", rt_seconds(text, p->predicted),
			100 * (ms / (1e3 * p->predicted) - 1));
	printf("\n");
	if (p->peak > 0)
		printf("that is %.1f %% of the devices' FLOP/s\n", 100 * p->flops / (1e-3 * ms * p->peak));
	if (p->world > 1 && !p->flow && busiest >= 0)
		printf("devices waited %.0f %% of the time, %s least: %.0f %%\n", 100 * waited / seconds,
			rt_name(busiest), 100 * rt_totals_waited_of(busiest) / seconds);
	if (run.o.name)
		printf("results are in %s\n", run.o.out);
	if (run.o.ckpt)
		printf("the last checkpoint is %s/step-%010lld\n", run.o.ckpt, (long long)rt_step);
}

static void farewell(const pd_program *p, const rt_options *o, bool signalled)
{
	const double s = rt_now() - run.begin;
	char text[32];

	if (!rt_leads(p) || rt_log < RT_LOG_NOTE || rt_step == run.first)
		return;
	printf("%lld steps in %.*f s, %s samples/s", (long long)(rt_step - run.first), s < 100 ? 3 : 0, s,
		rt_speed(text, (double)(rt_step - run.first) * (double)p->micro * p->microbatches / s));
	if (o->then_loss && !signalled)
		printf(", loss now %.6g", rt_loss());
	printf("%s\n", signalled ? "; stopped by a signal" : "");
	tell_times(p, rt_step - run.first, s);
	fflush(stdout);
}

/* The evaluation that is due after the steps done, if it is. */
static void evaluate(bool last)
{
	if (run.signalled || !rt_evaluate_due(rt_step, last))
		return;
	rt_evaluate(rt_program, run.arena, one_step);
	run.signalled = rt_stop();
	run.stop = run.signalled || rt_watch_reached();
}

/* --ckpt-seconds: rank 0's clock says when. */
static void ask_again(void)
{
	if (run.o.ckpt_seconds > 0)
		rt_totals_ask(rt_now() + run.o.ckpt_seconds);
}

static void checkpoint(void)
{
	rt_watch_flush();
	rt_from_gpu(rt_program, run.arena);
	rt_checkpoint(rt_step);
	ask_again();
	if (run.o.ckpt && rt_log >= RT_LOG_DEBUG)
		printf("debug: %s has given its part of step %lld to %s\n", rt_name(rt_program->rank),
			(long long)rt_step, run.o.ckpt);
}

bool pd_step(void)
{
	const rt_options *o = &run.o;

	if (!run.training || run.stop || rt_step >= last_step)
		return false;
	if (rt_step == run.first && rt_step > 0)
		evaluate(false); /* a signal may have ended the run before it */
	if (run.stop)
		return false;
	advance(rt_program, o, run.first);
	if ((o->first_step && !run.dumped) || (o->each_step && rt_step == last_step)) {
		rt_from_gpu(rt_program, run.arena);
		rt_first_end(rt_program, run.arena);
	}
	if (o->dump_grads && !run.dumped)
		rt_weights_save(rt_program, run.arena, o->dump_grads, RT_GRADIENTS);
	run.dumped = true;
	const bool due = rt_totals_asked() || rt_step == last_step || (o->ckpt_every && rt_step % o->ckpt_every == 0);

	run.signalled = rt_stop();
	if ((due || run.signalled || rt_evaluate_due(rt_step, false)) && rt_totals_rest()) {
		tell(rt_totals_of(), NULL);
		run.signalled |= rt_stop();
	}
	run.stop = run.signalled || rt_watch_reached();
	evaluate(run.stop || rt_step == last_step);
	if (run.stop || due)
		checkpoint();
	rt_checkpoint_poll();
	return !run.stop && rt_step < last_step;
}

/* The model file whose weights lie in trained.safetensors beside it, where the build folder has
 * one. */
static void copy_model(const rt_options *o)
{
	char from[8192], to[8192], block[1 << 14];
	size_t n;

	snprintf(from, sizeof from, "%s/weights/model.onnx", o->root);
	snprintf(to, sizeof to, "%s/model.onnx", o->out);
	FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;

	while (out && (n = fread(block, 1, sizeof block, in)) > 0)
		if (fwrite(block, 1, n, out) != n)
			rt_fail(RT_ERROR, "R406", "%s: %s", to, strerror(errno));
	if (in)
		fclose(in);
	if (out && fclose(out))
		rt_fail(RT_ERROR, "R406", "%s: %s", to, strerror(errno));
}

static void save(const pd_program *p, const rt_options *o, const char *arena)
{
	char path[4096];

	snprintf(path, sizeof path, "%s/trained.safetensors", o->out);
	rt_weights_save(p, arena, path, RT_TRAINED);
	if (o->state || rt_stop()) {
		snprintf(path, sizeof path, "%s/state.safetensors", o->out);
		rt_weights_save(p, arena, path, RT_STATE);
	}
	if (rt_leads(p))
		copy_model(o);
}

/* After a restart the newest checkpoint counts, whatever the first start began from. */
static bool go_on(const pd_program *p, rt_options *o, char *arena)
{
	const char *asked = o->resume;

	if (o->attempt > 0 && o->ckpt && *o->ckpt) {
		o->resume = "";
		if (rt_resume(p, o, arena))
			return true;
		o->resume = asked;
	}
	return o->resume && rt_resume(p, o, arena);
}

static void defaults(const pd_program *p, rt_options *o, const char *argv0)
{
	*o = (rt_options){ .steps = -1,
		.timeout = p->timeout > 0 ? p->timeout : 60,
		.ckpt = p->ckpt.dir,
		.ckpt_every = p->ckpt.every,
		.ckpt_keep = p->ckpt.dir ? p->ckpt.keep : 3,
		.ckpt_settle = 0.5,
		.time_products = 10,
		.trace_rank = -1,
		.metrics_every = p->metrics.every,
		.jsonl = p->metrics.jsonl,
		.csv = p->metrics.csv,
		.tensorboard = p->metrics.tensorboard,
		.eval_every = p->eval.every,
		.eval_samples = p->eval.samples,
		.stop = p->stop,
		.shuffle = p->shuffle,
		.profile = { .steps = 1000, .seconds = 10, .bound = 0.02 } };
	rt_find_root(o, argv0);
}

/* As many steps as pass over all samples so often. */
static int64_t steps_of(const pd_program *p, int64_t epochs)
{
	const int64_t each = p->micro * p->microbatches;

	return (epochs * rt_input_span() + each - 1) / each;
}

/* Of a GPU program: no norm is joined on the host, no loss ends the run, no gradient is written down. */
static bool may_be_late(const pd_program *p, const rt_options *o)
{
#if defined RT_GPU
	return !p->flow && !p->squares && !o->stop && !o->first_step && !o->dump_grads && !rt_alone && !rt_virtual;
#else
	(void)p;
	(void)o;
	return false;
#endif
}

/* Memory, weights, data, the stage's objects. */
static void prepare(const pd_program *p, rt_options *o)
{
	rt_gpu_fits(p);
	run.arena = make_arena(rt_host_arena(p));
	if (!go_on(p, o, run.arena))
		rt_weights_load(p, run.arena, o->weights ? o->weights : rt_in_root(o, p->weights),
			o->weights ? RT_NEED_WEIGHTS : RT_NEED_NOTHING);
	if (o->replay)
		rt_replay_open(p, o->replay, run.arena);
	rt_totals_setup(p->microbatches);
	rt_norm_setup(p);
	rt_input_open(p, &(rt_input_options){ .dir = o->data,
				 .root = o->root,
				 .samples = o->samples,
				 .shuffle = o->shuffle,
				 .eval = o->eval_data,
				 .eval_samples = o->eval_samples });
	rt_evaluate_open(o->eval_every);
	rt_arrivals_open(o->arrivals);
	if (o->dump_grads || o->first_step || o->each_step)
		rt_gradients_keep(p);
	if (o->first_step || o->each_step)
		rt_first_open(p, o->each_step ? o->each_step : o->first_step, run.arena, o->each_step != NULL);
	if (p->init)
		p->init(rt_to_gpu(p, run.arena));
	rt_graphs_open(o);
	rt_late = run.whole && may_be_late(p, o);
	rt_gpu_connect(p, o);
	if (rt_alone || rt_virtual) {
		rt_profile_check(p);
		o->ckpt = NULL;
	}
	if (o->epochs)
		o->steps = steps_of(p, o->epochs);
	last_step = o->steps;
	rt_rate_fix(p, last_step);
	flushed = steps_of(p, p->sync_epochs);
	if (!(o->log_seconds > 0))
		o->log_seconds = 10;
	if (o->log_every == 0)
		o->log_every = o->steps <= 20 || rt_log >= RT_LOG_DEBUG ? 1 : (o->steps + 19) / 20;
	if (o->metrics_every == 0)
		o->metrics_every = o->log_every;
}

/* What every replica has for itself gets its name and its owner. */
static const pd_program *with_own(const pd_program *p)
{
	static pd_program own;
	pd_param *table = rt_alloc((size_t)p->nparams * sizeof *table + 1);

	memcpy(table, p->params, (size_t)p->nparams * sizeof *table);
	for (int i = 0; i < p->nparams; i++) {
		if (table[i].kind != PD_OWN)
			continue;
		const size_t room = strlen(table[i].name) + 16;
		char *name = rt_alloc(room);

		snprintf(name, room, "%s@%d", table[i].name, p->replica);
		table[i].name = name;
		table[i].owner = p->rank;
	}
	own = *p;
	own.params = table;
	return &own;
}

bool pd_init(const pd_program *p, int argc, char **argv)
{
	rt_options *o = &run.o;

	setvbuf(stderr, NULL, _IOLBF,
		4096); /* a line at once: unbuffered, stdio cuts it, and another rank's come between */
	p = rt_program = with_own(p);
	rt_member = p->member;
	defaults(p, o, argv[0]);
	rt_options_read(o, argc, argv);
	rt_results_find(p, o);
	if (p->abi != PD_ABI)
		rt_fail(RT_MISMATCH, "R101",
			"this program was written for runtime %u, this is runtime %u; compile the model again", p->abi,
			(unsigned)PD_ABI);
	if (o->profile.file)
		rt_profile_copies(&o->profile);
	rt_faults_open(p, o);
	rt_bus_open();
	pd_threads(p->threads);
	rt_alone = o->profile.file != NULL;
	rt_gpu_settings();
	rt_signals_open(); /* before others begin threads */
	rt_join(p, o->timeout);
	prepare(p, o);
	rt_signals_take();
	rt_checkpoint_open(p, o, run.arena);
	rt_barrier(); /* nobody's clock runs before all are ready */
	rt_trace_open(o);
	if (rt_alone) {
		rt_profile_run(p, &o->profile, one_step);
		return false;
	}
	announce(p, o);
	if (o->dry_run)
		return false;
	if (rt_step > 0 && rt_step >= last_step && rt_leads(p) && rt_log >= RT_LOG_NOTE)
		printf("nothing is left to do: %" PRId64 " steps are done, %" PRId64 " asked (--steps)\n", rt_step,
			last_step);
	if (rt_leads(p))
		rt_results_take(p, o);
	rt_watch_open(p, o, last_step);
	run.first = rt_step;
	run.begin = rt_now();
	ask_again();
	rt_spent_begin();
	run.training = true;
	return rt_step < last_step;
}

int pd_finalize(void)
{
	const pd_program *p = rt_program;
	const rt_options *o = &run.o;

	if (rt_alone)
		return RT_OK;
	if (run.training) {
		rt_trace_close(p);
		write_summary(p, o, rt_step - run.first, rt_now() - run.begin);
		if (!run.stop && rt_step < last_step)
			checkpoint(); /* a caller's loop ended early */
		rt_from_gpu(p, run.arena);
		if (!run.signalled && rt_evaluate_due(rt_step, true))
			rt_evaluate(p, run.arena, one_step);
		if (o->then_loss && !run.signalled) {
			loss_only(p);
			rt_watch_then();
		}
		rt_checkpoint_close();
		rt_watch_close();
		farewell(p, o, run.signalled);
		if (!rt_virtual)
			save(p, o, run.arena);
	}
	rt_graphs_end();
	rt_inputs_end();
	rt_totals_end();
	rt_gpu_leave();
	rt_leave();
	return run.signalled ? 128 + (rt_signal ? rt_signal : SIGTERM) : RT_OK;
}

int pd_main(const pd_program *p, int argc, char **argv)
{
	run.whole = true;
	if (pd_init(p, argc, argv))
		while (pd_step())
			;
	return pd_finalize();
}
