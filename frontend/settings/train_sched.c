/* The schedule and what goes with it, in train.yaml and as flags: the words that both take. */
#include <string.h>
#include "train.h"
#include "train_opt.h"

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

bool training_schedule(Training *t, const char *v, const char **lacks)
{
	ScheduleSpec s;

	if (!schedule_parse(v, &s, lacks))
		return false;
	t->plan.schedule = s;
	t->plan.choose_schedule = s.kind == SCHEDULE_AUTO;
	return true;
}

/* ---- train.yaml ---- */

static void s_kind(Yaml *y, const YNode *v, void *to)
{
	const char *s = yaml_text(y, v, "schedule.kind"), *lacks;

	if (!s || training_schedule(to, s, &lacks))
		return;
	if (lacks)
		yaml_error(y, v, "schedule %s", lacks);
	else
		yaml_choice(y, v, "schedule.kind", schedule_choices, schedule_nchoice);
}

#define SETTING(f, part, field, type) \
	static void f(Yaml *y, const YNode *v, void *to) \
	{ \
		((Training *)to)->part.field = (type)yaml_setting(y, v, "schedule." #field, SET_OF_##type); \
	}
SETTING(s_policy, plan, warmup_policy, WarmupPolicy)
SETTING(s_split, plan, replica_split, ReplicaSplit)
SETTING(s_stash, plan, stash, Stash)
SETTING(s_recompute, plan, recompute, Recompute)
SETTING(s_sync, comm, sync, ServerSync)

static void s_vertical(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->plan.vertical_sync = yaml_bool(y, v, "schedule.vertical_sync");
}
static void s_pipe_sgd(Yaml *y, const YNode *v, void *to)
{
	PlanSettings *p = &((Training *)to)->plan;

	p->choose_pipe_sgd = yaml_is(v, "auto");
	p->pipe_sgd = p->choose_pipe_sgd ? 0 : yaml_int(y, v, "schedule.pipe_sgd", 1, PIPE_SGD_MOST);
}
static void s_staleness(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->comm.staleness = yaml_int(y, v, "schedule.staleness", 0, 1 << 20);
}
static void s_warmup_steps(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->plan.warmup_steps = yaml_int(y, v, "schedule.warmup_steps", 0, INT64_MAX);
}
static void s_warmup_epochs(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->plan.warmup_epochs = yaml_int(y, v, "schedule.warmup_epochs", 0, (int64_t)1 << 30);
}

static const YKey keys[] = {
	{ "kind", s_kind },
	{ "warmup_policy", s_policy },
	{ "replica_split", s_split },
	{ "stash", s_stash },
	{ "recompute", s_recompute },
	{ "vertical_sync", s_vertical },
	{ "pipe_sgd", s_pipe_sgd },
	{ "warmup_steps", s_warmup_steps },
	{ "warmup_epochs", s_warmup_epochs },
	{ "sync", s_sync },
	{ "staleness", s_staleness },
};

void train_schedule(Yaml *y, const YNode *v, void *to)
{
	if (v->type == YAML_SCALAR_NODE)
		s_kind(y, v, to);
	else
		yaml_map(y, v, "schedule", keys, COUNT(keys), to);
}
