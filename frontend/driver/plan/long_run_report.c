/* pdcc simulate --days N --mtbf H: the planned step, done for days on hosts that fail. What a checkpoint takes follows from the
 * plan's memory: every device writes its weights and what the optimizer keeps of them. */
#include "ir/base/human.h"
#include "passes/simulate/long_run.h"
#include "passes/simulate/spend.h"
#include "passes/simulate/stragglers.h"
#include "passes/simulate/timeline.h"
#include "why_report.h"

enum { FAILURES = 4000 };
static const double DISK = 1e9, RESTART = 120; /* bytes per second of a device; seconds */

typedef struct Told {
	LongRun run;
	SimSpend spend;
	int64_t bytes; /* that the fullest device writes */
	int64_t every[4];
	LongPlayed played[4];
} Told;
static const char *const rule[] = { "played", "Daly", "Young", "as asked" };

/* Bytes that the fullest device writes into a checkpoint. */
static int64_t saved_bytes(const Compile *c)
{
	int64_t most = 0;

	for (int i = 0; i < c->m->nstage; i++) {
		const Stage *x = c->m->stage[i];
		const int64_t bytes = x->bytes[REGION_PARAMS] + x->bytes[REGION_STATE];
		most = bytes > most ? bytes : most;
	}
	return most;
}

double usual_step(const Compile *c, const Sim *s)
{
	const Options *o = c->o;
	const int group = c->m->tensor > 1 ? c->m->tensor : 1;

	return o->slow_share > 0 ? straggling_step(s, o->slow_share, o->slow_times, group, c->d) : s->each;
}

LongRun long_run_of(const Compile *c, double step, const Sim *s)
{
	const Options *o = c->o;

	return (LongRun){ .step = step,
		.save = o->ckpt_seconds >= 0 ? o->ckpt_seconds : (double)saved_bytes(c) / DISK,
		.restart = o->restart_seconds >= 0 ? o->restart_seconds : RESTART,
		.mtbf = o->mtbf * 3600 / sim_spend(c->a, s).hosts,
		.length = o->days * 86400 };
}

static Told play(const Compile *c, double step, const Sim *s)
{
	const Options *o = c->o;
	Told t = { .spend = sim_spend(c->a, s), .bytes = saved_bytes(c), .run = long_run_of(c, step, s) };

	t.every[0] = long_run_best(&t.run, FAILURES, &t.played[0]);
	t.every[1] = long_run_daly(&t.run);
	t.every[2] = long_run_young(&t.run);
	t.every[3] = o->t.loop.ckpt_every;
	for (int i = 1; i < 4; i++)
		if (t.every[i] > 0)
			t.played[i] = long_run_play(&t.run, t.every[i], FAILURES);
	return t;
}

void print_long_run(const Compile *c, double step, const Sim *s)
{
	const Told t = play(c, step, s);
	const LongPlayed *p = &t.played[0];
	const double samples = (double)(c->m->batch * c->m->microbatches);

	printf("  %s days, a failure every %s (%d host%s, each every %s), restart %s, checkpoint %s%s\n",
		number_text(c->a, c->o->days, 4), duration_text(c->a, t.run.mtbf), t.spend.hosts,
		t.spend.hosts == 1 ? "" : "s", duration_text(c->a, c->o->mtbf * 3600),
		duration_text(c->a, t.run.restart), duration_text(c->a, t.run.save),
		c->o->ckpt_seconds >= 0 ? "" : arena_printf(c->a, " (%s at 1 GB/s)", str_bytes(c->a, t.bytes)));
	printf("  checkpoint every                      goodput  failures  lost       saving     restarting\n");
	for (int i = 0; i < 4; i++)
		if (t.every[i] > 0)
			printf("  %-9s %10lld steps, %-9s %7.2f %%  %8.1f  %-9s  %-9s  %s\n", rule[i],
				(long long)t.every[i], duration_text(c->a, (double)t.every[i] * t.run.step),
				100 * t.played[i].steps * t.run.step / t.run.length, t.played[i].failures,
				duration_text(c->a, t.played[i].lost), duration_text(c->a, t.played[i].saving),
				duration_text(c->a, t.played[i].restarting));
	printf("  %.0f steps last, %.0f samples: as much as %s without failures and checkpoints; --ckpt-every %lld\n",
		p->steps, p->steps * samples, duration_text(c->a, p->steps * t.run.step), (long long)t.every[0]);
	if (t.spend.price >= 0)
		printf("  price %s, %s of a million samples that last\n",
			number_text(c->a, t.spend.price * t.run.length / 3600, 5),
			number_text(c->a, t.spend.price * t.run.length / 3600 / (p->steps * samples) * 1e6, 5));
	if (t.spend.watts >= 0)
		printf("  %s kWh, %s of a million samples that last\n",
			number_text(c->a, t.spend.watts * t.run.length / 3.6e6, 5),
			number_text(c->a, t.spend.watts * t.run.length / 3.6e6 / (p->steps * samples) * 1e6, 5));
}

void print_long_run_json(const Compile *c, double step, const Sim *s)
{
	const Told t = play(c, step, s);

	printf(",\n \"long_run\": {\"step_s\": %.9g, \"save_s\": %.9g, \"restart_s\": %.9g, \"mtbf_s\": %.9g, \"length_s\": %.9g, "
	       "\"hosts\": %d",
		t.run.step, t.run.save, t.run.restart, t.run.mtbf, t.run.length, t.spend.hosts);
	if (t.spend.price >= 0)
		printf(", \"price\": %.9g", t.spend.price * t.run.length / 3600);
	if (t.spend.watts >= 0)
		printf(", \"kwh\": %.9g", t.spend.watts * t.run.length / 3.6e6);
	for (int i = 0; i < 4; i++)
		if (t.every[i] > 0)
			printf(",\n  \"%s\": {\"every\": %lld, \"steps\": %.9g, \"goodput\": %.9g, \"model\": %.9g, \"failures\": %.9g, "
			       "\"lost_s\": %.9g, \"saving_s\": %.9g, \"restarting_s\": %.9g}",
				rule[i], (long long)t.every[i], t.played[i].steps,
				t.played[i].steps * t.run.step / t.run.length, long_run_share(&t.run, t.every[i]),
				t.played[i].failures, t.played[i].lost, t.played[i].saving, t.played[i].restarting);
	printf("}");
}
