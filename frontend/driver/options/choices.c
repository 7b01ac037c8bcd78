/* The words that flags take: options_table.c reads by this table, completion shows it (manual.c). Words that train.yaml has too
 * stand in train_sched.c. */
#include "choices.h"
#include <string.h>
#include "ir/text/forms.h"
#include "frontend/settings/train.h"

typedef struct Row { const char *name, *more, *word[8]; } Row;

static const Row rows[] = {
	{ "target", NULL, { "c", "cuda", "auto" } },
	{ "opt-level", NULL, { "0", "1", "2", "3" } },
	{ "planner", NULL, { "auto", "pipedream", "dapple", "blocks", "exhaustive" } },
	{ "dp-cost", NULL, { "measured", "seed", "sosp", "code" } },
	{ "comm", NULL, { "allreduce", "ps", "hybrid", "auto", "ps-sync", "async" } },
	{ "grad-comm", NULL, { "auto", "sequential", "pipelined" } },
	{ "allreduce", NULL, { "auto", "ring", "doubling", "halving", "pairwise", "hosts", "vendor" } },
	{ "dropout", NULL, { "as_exported", "off" } },
	{ "batchnorm", NULL, { "micro", "frozen" } },
	{ "color", NULL, { "auto", "always", "never" } },
	{ "diagnostics", NULL, { "text", "json", "sarif" } },
	/* values of other forms too, which their own parsers read */
	{ "plan", "auto", { NULL } },
	{ "micro-batch", "auto", { NULL } },
	{ "bucket", "auto none", { NULL } },
	{ "partitions", "auto", { NULL } },
	{ "compress", "none trunc16 bf16 q8 q8,ef auto:trunc16 auto:bf16 auto:q8 auto:q8,ef", { NULL } },
	{ "amp", "off bf16 fp16", { NULL } },
	{ "profile", "estimate run", { NULL } },
	{ "loss", "auto softmax_ce mse", { NULL } },
	{ "optimizer", "sgd momentum adam adamw rmsprop adagrad", { NULL } },
	{ "lr-schedule", "step exponential linear cosine", { NULL } },
	{ "last", "wrap keep drop", { NULL } },
};

static const struct { const char *name; int which; } shared[] = {
	{ "warmup-policy", WORDS_WARMUP_POLICY }, { "replica-split", WORDS_REPLICA_SPLIT },
	{ "stash", WORDS_STASH }, { "recompute", WORDS_RECOMPUTE }, { "sync", WORDS_SYNC },
};

bool choices_of(const char *name, Choices *c)
{
	if (!strcmp(name, "ir-format")) {
		*c = (Choices){ ir_form_name, FORMS, NULL };
		return true;
	}
	if (!strcmp(name, "schedule")) {
		*c = (Choices){ schedule_choices, schedule_nchoice, NULL };
		return true;
	}
	for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
		if (!strcmp(name, shared[i].name)) {
			*c = (Choices){ train_words[shared[i].which].word, train_words[shared[i].which].n, NULL };
			return true;
		}
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (!strcmp(name, rows[i].name)) {
			*c = (Choices){ rows[i].word, 0, rows[i].more };
			while (c->n < (int)(sizeof rows->word / sizeof *rows->word) && rows[i].word[c->n])
				c->n++;
			return true;
		}
	return false;
}
