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
	{ "tensor", "auto", { NULL } },
	{ "zero", "auto", { NULL } },
	{ "pipe-sgd", "auto", { NULL } },
	{ "bucket", "auto none", { NULL } },
	{ "partitions", "auto", { NULL } },
	{ "profile", "estimate run", { NULL } },
	{ "loss", "auto softmax_ce mse", { NULL } },
};

static const struct {
	const char *name;
	SettingSet set;
	const char *more;
} settings[] = {
	{ "target", SET_OF_Target, NULL },
	{ "opt-level", SET_OF_OptLevel, NULL },
	{ "planner", SET_OF_PlannerKind, NULL },
	{ "dp-cost", SET_OF_DpCost, NULL },
	{ "comm", SET_OF_CommFlag, NULL },
	{ "grad-comm", SET_OF_GradComm, NULL },
	{ "allreduce", SET_OF_AllReduceBy, NULL },
	{ "dropout", SET_OF_Dropout, NULL },
	{ "batchnorm", SET_OF_BatchNormBy, NULL },
	{ "warmup-policy", SET_OF_WarmupPolicy, NULL },
	{ "replica-split", SET_OF_ReplicaSplit, NULL },
	{ "stash", SET_OF_Stash, NULL },
	{ "recompute", SET_OF_Recompute, NULL },
	{ "sync", SET_OF_ServerSync, NULL },
	{ "sequence", SET_OF_AlongSequence, NULL },
	{ "last", SET_OF_LastSamples, NULL },
	{ "amp", SET_OF_AmpKind, NULL },
	{ "compress", SET_OF_Codec, "q8,ef auto:trunc16 auto:bf16 auto:q8 auto:q8,ef" },
	{ "optimizer", SET_OF_OptKind, NULL },
	{ "lr-schedule", SET_OF_RateKind, NULL },
};

bool choices_of(const char *name, Choices *c)
{
	if (!strcmp(name, "ir-format")) {
		*c = (Choices){ ir_form_name, FORMS, NULL, NULL };
		return true;
	}
	if (!strcmp(name, "schedule")) {
		*c = (Choices){ schedule_choices, schedule_nchoice, NULL, NULL };
		return true;
	}
	for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
		if (!strcmp(name, settings[i].name)) {
			const SettingWords w = setting_words(settings[i].set);
			*c = (Choices){ w.word, w.n, settings[i].more, w.help };
			return true;
		}
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (!strcmp(name, rows[i].name)) {
			*c = (Choices){ rows[i].word, 0, rows[i].more, NULL };
			while (c->n < (int)(sizeof rows->word / sizeof *rows->word) && rows[i].word[c->n])
				c->n++;
			return true;
		}
	return false;
}

const char *choices_help(Buf *b, const char *name, const char *text)
{
	const char *at = strchr(text, '@'), *between = ", ";
	Choices c;

	if (!at || !choices_of(name, &c))
		return text;
	for (int i = 0; c.help && i < c.n; i++)
		if (*c.help[i])
			between = "; ";
	buf_clear(b);
	buf_printf(b, "%.*s", (int)(at - text), text);
	for (int i = 0; i < c.n; i++)
		buf_printf(b, "%s%s%s%s", i ? between : "", c.word[i], c.help && *c.help[i] ? ": " : "",
			c.help ? c.help[i] : "");
	buf_puts(b, at + 1);
	return buf_str(b);
}
