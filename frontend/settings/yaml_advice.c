/* What is said of a key that is unknown or a word where a mapping belongs: what people meant, as other programs call it. */
#include <string.h>
#include "yaml.h"
#include "ir/base/buf.h"

const char *yaml_as_mapping(Yaml *y, const char *what, const char *word)
{
	static const char *const of[][2] = {
		{ "optimizer", "kind" },
		{ "lr_schedule", "kind" },
		{ "network", "bandwidth" },
		{ "batch", "global" },
		{ "checkpoint", "dir" },
		{ "metrics", "jsonl" },
	};

	if (strcmp(what, "nodes") == 0)
		return arena_printf(y->a,
			word[strspn(word, "0123456789")] ? "; write {host: %s, devices: 1}"
							 : "; for one machine write devices: %s",
			word);
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		if (strcmp(of[i][0], what) == 0)
			return arena_printf(y->a, "; write {%s: %s}", of[i][1], word);
	return "";
}

/* What people look for at the top and what stands one level below; NULL: nothing of this name, or not below these keys. */
static const char *one_below(const char *word, const char *const *names, int n)
{
	static const char *const below[][3] = {
		{ "learning_rate", "optimizer", "optimizer: {lr: ...}" },
		{ "lr", "optimizer", "optimizer: {lr: ...}" },
		{ "momentum", "optimizer", "optimizer: {kind: momentum, momentum: ...}" },
		{ "weight_decay", "optimizer", "optimizer: {weight_decay: ...}" },
		{ "betas", "optimizer", "optimizer: {betas: ...}" },
		{ "scheduler", "lr_schedule", "lr_schedule: {kind: ...}" },
		{ "micro_batch", "batch", "batch: {micro: ...}" },
		{ "global_batch", "batch", "batch: {global: ...}" },
		{ "batch_size", "batch", "batch: {global: ...}" },
		{ "save_every", "checkpoint", "checkpoint: {every_steps: ...}" },
		{ "shuffle", "data", "data: {shuffle: true}" },
		{ "nesterov", "optimizer", "optimizer: {kind: momentum, nesterov: true}" },
		{ "tensorboard", "metrics", "metrics: {tensorboard: DIR}" },
		{ "lr_schedule", "weight_decay", "it beside optimizer, as lr_schedule: {kind: ...}" },
		{ "scheduler", "weight_decay", "it beside optimizer, as lr_schedule: {kind: ...}" },
		{ "clip_norm", "weight_decay", "it beside optimizer, as clip_norm: ..." },
		{ "type", "idle_power", "devices: {count: N, type: ...}, a type of device_types" },
		{ "plan", "optimizer", "--plan 2-2 on the command line" },
		{ "stages", "optimizer", "--plan 1-1 on the command line: replicas of each stage" },
		{ "cluster", "optimizer", "--cluster FILE on the command line" },
		{ "bandwidth", "network", "network: {bandwidth: ...}" },
		{ "memory", "device_types", "device_types: {NAME: {memory: ...}}" },
	};

	for (size_t k = 0; k < sizeof below / sizeof *below; k++)
		for (int i = 0; i < n && strcmp(below[k][0], word) == 0; i++)
			if (strcmp(below[k][1], names[i]) == 0)
				return below[k][2];
	return NULL;
}

void yaml_unknown_key(Yaml *y, const YNode *k, const char *what, const YKey *keys, int nkeys)
{
	const char *names[64], *name = (const char *)k->data.scalar.value;

	for (int i = 0; i < nkeys && i < 64; i++)
		names[i] = keys[i].name;
	const char *near = diag_nearest(name, names, nkeys < 64 ? nkeys : 64);
	const char *below = one_below(name, names, nkeys < 64 ? nkeys : 64);
	if (below)
		yaml_error(y, k, "unknown key '%s' in %s; write %s", name, what, below);
	else if (near)
		yaml_error(y, k, "unknown key '%s' in %s; did you mean '%s'?", name, what, near);
	else {
		Buf b = { 0 };

		for (int i = 0; i < nkeys; i++)
			buf_printf(&b, "%s%s", i ? ", " : "", keys[i].name);
		yaml_error(y, k, "unknown key '%s' in %s; known are %s%s", name, what, buf_str(&b),
			strcmp(what, "data") ? "" : "; files of samples are inputs: {NAME: FILE}");
		buf_free(&b);
	}
}
