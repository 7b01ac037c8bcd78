/* How stale the gradients of data parallelism are, and how they travel (--pipe-sgd auto).
 *
 * Each K, with each codec and with one AllReduce or several, is planned and played. Equation 4 of Pipe-SGD says what to expect:
 * with K = 2 a step takes the longer of computing and AllReduce, with K = 1 both, but for what buckets hide (equation 6); more than
 * 2 helps where times vary. Gradients that are older, or rounded on their way, train a little worse: such a choice must be shorter
 * by a twentieth than one that comes before it in the list. What flags say of codec and buckets stays. */
#include <string.h>
#include "ir/base/human.h"
#include "passes/schedule/schedule.h"
#include "frontend/settings/train.h"
#include "probe.h"

enum { LATEST = 3 };
static const double WORTH = 0.95;

typedef struct Choice {
	int64_t k, bucket;
	const char *codec;    /* as --compress has it */
	const char *replicas; /* as --plan has them; NULL: as it says */
	Plan plan;
} Choice;

static Training with(const Compile *c, const Choice *x)
{
	Training t = c->o->t;

	t.plan.pipe_sgd = x->k;
	t.comm.bucket = x->bucket;
	t.plan.replicas = x->replicas ? x->replicas : t.plan.replicas;
	if (x->codec)
		training_compress(c->a, &t, x->codec, c->d);
	return t;
}

/* As it is played, and whether it can be at all. */
static bool play(const Compile *c, Probe *p, Choice *x)
{
	const Training t = with(c, x);

	return probe_plan(p, &t, &c->cluster, false, &x->plan) && x->plan.nstage == 1 && x->plan.over <= 1;
}

/* Codecs to look at: what is said, else none and those that only pack where that pays; exact sums cannot be packed. */
static int codecs(const Training *t, const char **name)
{
	const bool ring = t->comm.allreduce == ALLREDUCE_AUTO || t->comm.allreduce == ALLREDUCE_RING;

	name[0] = NULL;
	if (t->comm.compress.said || !ring || t->loop.reproducible || t->target.f64)
		return 1;
	name[1] = "auto:trunc16";
	name[2] = "auto:q8";
	return 3;
}

static const char *codec_of(const Training *t)
{
	return t->comm.compress.codec ? setting_word(SET_OF_Codec, (int)t->comm.compress.codec) : "no compression";
}

/* What the same devices take where nothing goes on beside computing stands beside it. */
static void say(Compile *c, Probe *p, const Choice *x)
{
	const Training t = with(c, x);
	Choice alone = { 1, INT64_MAX, x->codec, arena_str(c->a, plan_str(c->a, &x->plan)), { 0 } }, fresh = alone;

	fresh.bucket = c->o->t.comm.bucket;
	if (!play(c, p, &alone) || !play(c, p, &fresh))
		return;
	const double computing = alone.plan.terms.work + alone.plan.terms.update;
	const char *older =
		x->k > 1 ? arena_printf(c->a, " (%s with K = 1)", time_text(c->a, fresh.plan.step_time)) : "";
	c->pipe_sgd = arena_printf(c->a, "K = %lld, %s, %%s: %s a step%s; computing takes %s, AllReduce %s",
		(long long)x->k, codec_of(&t), time_text(c->a, x->plan.step_time), older, time_text(c->a, computing),
		time_text(c->a, alone.plan.terms.sum));
}

bool pipe_sgd_choose(Compile *c)
{
	Training *t = &c->o->t;
	const int64_t bucket = t->comm.bucket;
	const char *codec[3];
	Choice best = { 0 };
	Probe p;

	if (t->comm.by > COMM_ALLREDUCE)
		return diag_error(c->d, NOLOC, 520,
			"--pipe-sgd auto sums gradients by AllReduce; --comm %s may give them to servers",
			setting_word(SET_OF_Comm, (int)t->comm.by));
	if ((t->plan.schedule.kind != SCHEDULE_AUTO && t->plan.schedule.kind != SCHEDULE_PLAIN) ||
		!probe_open(&p, c, c->m->batch))
		return true; /* the passes will say what is wrong */
	const int n = codecs(t, codec);
	for (int i = 0; i < n; i++)
		for (int64_t k = 1; k <= LATEST; k++)
			for (int cut = 0; cut < (k > 1 || bucket ? 1 : 2); cut++) {
				Choice x = { k, k > 1 || bucket || cut ? bucket : INT64_MAX, codec[i], NULL, { 0 } };

				const bool same = best.k == k && best.codec == x.codec; /* but for buckets */
				if (play(c, &p, &x) &&
					(!best.k || x.plan.step_time < (same ? 1 : WORTH) * best.plan.step_time))
					best = x;
			}
	if (best.k) {
		say(c, &p, &best);
		*t = with(c, &best);
		t->plan.choose_pipe_sgd = false;
	}
	probe_close(&p);
	return true;
}

void pipe_sgd_said(const Compile *c)
{
	int n = 1;

	if (!c->pipe_sgd || c->o->quiet || c->m->nstage != 1)
		return;
	for (const Node *k = c->m->stage[0]->update->first; k; k = k->next)
		if (k->op == OP_AllReduce && attr_int(k, "bucket") >= n)
			n = (int)attr_int(k, "bucket") + 1;
	const char *sums = n > 1 ? arena_printf(c->a, "%d AllReduces", n) : "one AllReduce";
	const char *at = strstr(c->pipe_sgd, "%s");
	diag_note(c->d, NOLOC, "--pipe-sgd auto: %.*s%s%s", (int)(at - c->pipe_sgd), c->pipe_sgd, sums, at + 2);
}
