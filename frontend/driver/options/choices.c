/* The words that flags take: options_table.c reads by this table, completion shows it (manual.c). Those of settings stand in
 * ir/settings.def. */
#include "choices.h"
#include <string.h>
#include "ir/text/forms.h"
#include "frontend/settings/train.h"

typedef struct Row {
	const char *name, *more, *word[8];
} Row;

static const Row rows[] = {
	{ "color", NULL, { "auto", "always", "never" } },
	{ "diagnostics", NULL, { "text", "json", "sarif" } },
	/* values of other forms too, which their own parsers read */
	{ "plan", "auto", { NULL } },
	{ "micro-batch", "auto", { NULL } },
	{ "bucket", "auto none", { NULL } },
	{ "partitions", "auto", { NULL } },
	{ "compress", "none trunc16 bf16 q8 q8,ef auto:trunc16 auto:bf16 auto:q8 auto:q8,ef", { NULL } },
	{ "profile", "estimate run", { NULL } },
	{ "loss", "auto softmax_ce mse", { NULL } },
	{ "optimizer", "sgd momentum adam adamw rmsprop adagrad", { NULL } },
	{ "lr-schedule", "step exponential linear cosine", { NULL } },
};

static const struct {
	const char *name;
	SettingSet set;
} settings[] = {
	{ "target", SET_OF_Target },
	{ "opt-level", SET_OF_OptLevel },
	{ "planner", SET_OF_PlannerKind },
	{ "dp-cost", SET_OF_DpCost },
	{ "comm", SET_OF_CommFlag },
	{ "grad-comm", SET_OF_GradComm },
	{ "allreduce", SET_OF_AllReduceBy },
	{ "dropout", SET_OF_Dropout },
	{ "batchnorm", SET_OF_BatchNormBy },
	{ "warmup-policy", SET_OF_WarmupPolicy },
	{ "replica-split", SET_OF_ReplicaSplit },
	{ "stash", SET_OF_Stash },
	{ "recompute", SET_OF_Recompute },
	{ "sync", SET_OF_ServerSync },
	{ "last", SET_OF_LastSamples },
	{ "amp", SET_OF_AmpKind },
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
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		if (!strcmp(name, settings[i].name)) {
			const SettingWords w = setting_words(settings[i].set);
			*c = (Choices){ w.word, w.n, NULL };
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
