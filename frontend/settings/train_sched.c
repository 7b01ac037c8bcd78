/* The schedule and what goes with it, in train.yaml and as flags: the words that both take. */
#include <stdlib.h>
#include <string.h>
#include "train.h"
#include "train_opt.h"

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

static const char *const policies[] = { "A", "B", "auto" };
static const char *const splits[] = { "round-robin", "slice", "auto" };
static const char *const stashes[] = { "auto", "on", "none" };
static const char *const syncs[] = { "sync", "async" };
static const char *const recomputes[] = { "none", "stage", "auto" };
static const char *const schedules[] = { "auto", "1f1b", "gpipe", "dapple", "pipedream", "mp", "2bw", "zb-h1", "zbv", "interleaved:V",
	"csv:FILE", "always-forward", "always-forward:N", "always-backward" };

#define WORDS(w) { w, COUNT(w) }
const TrainWords train_words[TRAIN_WORDS] = {
	[WORDS_SCHEDULE] = WORDS(schedules), [WORDS_WARMUP_POLICY] = WORDS(policies), [WORDS_REPLICA_SPLIT] = WORDS(splits),
	[WORDS_STASH] = WORDS(stashes), [WORDS_RECOMPUTE] = WORDS(recomputes),
	[WORDS_SYNC] = WORDS(syncs),
};

/* PREFIXn, 1 <= n <= 1024 */
static bool counted(const char *v, const char *prefix)
{
	const size_t n = strlen(prefix);
	char *end;

	if (strncmp(v, prefix, n) || v[n] < '1' || v[n] > '9')
		return false;
	return strtol(v + n, &end, 10) <= 1024 && !*end;
}

bool training_schedule(Training *t, const char *v, const char **lacks)
{
	*lacks = !strcmp(v, "interleaved:V") ? "interleaved:V wants the number of stages per device for V: interleaved:2" :
		!strcmp(v, "always-forward:N") ? "always-forward:N wants the number of minibatches in flight for N: always-forward:4" :
		!strcmp(v, "csv:FILE") || !strcmp(v, "csv:") ? "csv:FILE wants the name of a file for FILE: csv:schedule.csv" : NULL;
	if (*lacks)
		return false;
	bool known = !strncmp(v, "csv:", 4) || counted(v, "interleaved:") ||
		counted(v, "always-forward:");
	for (int i = 0; i < COUNT(schedules); i++)
		known |= !strcmp(v, schedules[i]);
	if (known) {
		t->schedule = v;
		t->choose_schedule = !strcmp(v, "auto");
	}
	return known;
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
		yaml_choice(y, v, "schedule.kind", schedules, COUNT(schedules));
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
