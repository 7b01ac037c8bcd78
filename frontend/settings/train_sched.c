/* The schedule and what goes with it, in train.yaml and as flags: the words that both take. */
#include <string.h>
#include "train.h"
#include "train_opt.h"

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

static const char *const policies[] = { "A", "B", "auto" };
static const char *const splits[] = { "round-robin", "slice", "auto" };
static const char *const stashes[] = { "auto", "on", "none" };
static const char *const syncs[] = { "sync", "async" };
static const char *const recomputes[] = { "none", "stage", "auto" };

#define WORDS(w) { w, COUNT(w) }
const TrainWords train_words[TRAIN_WORDS] = {
	[WORDS_WARMUP_POLICY] = WORDS(policies), [WORDS_REPLICA_SPLIT] = WORDS(splits),
	[WORDS_STASH] = WORDS(stashes), [WORDS_RECOMPUTE] = WORDS(recomputes),
	[WORDS_SYNC] = WORDS(syncs),
};

bool training_schedule(Training *t, const char *v, const char **lacks)
{
	ScheduleSpec s;

	if (!schedule_parse(v, &s, lacks))
		return false;
	t->schedule = s;
	t->choose_schedule = s.kind == SCHEDULE_AUTO;
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

#define WORD(f, field, list) \
	static void f(Yaml *y, const YNode *v, void *to) \
	{ \
		((Training *)to)->field = list[yaml_choice(y, v, "schedule." #field, list, COUNT(list))]; \
	}
WORD(s_policy, warmup_policy, policies)
WORD(s_split, replica_split, splits)
WORD(s_stash, stash, stashes)
WORD(s_recompute, recompute, recomputes)
WORD(s_sync, sync, syncs)

static void s_vertical(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->vertical_sync = yaml_bool(y, v, "schedule.vertical_sync");
}
static void s_pipe_sgd(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->pipe_sgd = yaml_int(y, v, "schedule.pipe_sgd", 1, 1024);
}
static void s_staleness(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->staleness = yaml_int(y, v, "schedule.staleness", 0, 1 << 20);
}
static void s_warmup_steps(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->warmup_steps = yaml_int(y, v, "schedule.warmup_steps", 0, INT64_MAX);
}
static void s_warmup_epochs(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->warmup_epochs = yaml_int(y, v, "schedule.warmup_epochs", 0, (int64_t)1 << 30);
}

static const YKey keys[] = {
	{ "kind", s_kind }, { "warmup_policy", s_policy }, { "replica_split", s_split }, { "stash", s_stash },
	{ "recompute", s_recompute }, { "vertical_sync", s_vertical }, { "pipe_sgd", s_pipe_sgd }, { "warmup_steps", s_warmup_steps },
	{ "warmup_epochs", s_warmup_epochs }, { "sync", s_sync }, { "staleness", s_staleness },
};

void train_schedule(Yaml *y, const YNode *v, void *to)
{
	if (v->type == YAML_SCALAR_NODE)
		s_kind(y, v, to);
	else
		yaml_map(y, v, "schedule", keys, COUNT(keys), to);
}
