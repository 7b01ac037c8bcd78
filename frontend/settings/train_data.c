/* train.yaml's data, and the flags that say the same: files of samples, those of the evaluation set, the end of an epoch. */
#include <string.h>
#include "train.h"
#include "train_opt.h"

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

static void put_data(Arena *a, DataInput **list, int *count, const char *input, const char *path, DataKind kind)
{
	DataInput *v = NEWN(a, DataInput, *count + 1);
	int n = 0;

	for (int i = 0; i < *count; i++)
		if (strcmp((*list)[i].input, input))
			v[n++] = (*list)[i];
	v[n++] = (DataInput){ input, path, kind };
	*list = v;
	*count = n;
}

/* What is said behind a colon ("corpus.bin:tokens", cut off here), or what name or extension tell; "synthetic" is no file.
 * Once the file is read its content decides (driver/compile/data_content.c). */
static DataKind kind_of(char *path)
{
	char *colon = strrchr(path, ':');

	if (!strcmp(path, setting_word(SET_OF_DataKind, DATA_SYNTHETIC))) {
		*path = 0;
		return DATA_SYNTHETIC;
	}
	const int said = colon ? setting_value(SET_OF_DataKind, colon + 1) : -1;

	if (said > DATA_SYNTHETIC) {
		*colon = 0;
		return (DataKind)said;
	}
	const char *dot = strrchr(path, '.'), *base = strrchr(path, '/');

	base = base ? base + 1 : path;
	if (dot && strcmp(dot, ".npy") == 0)
		return DATA_NPY;
	if (strstr(base, "idx1") || strstr(base, "idx3") || (dot && strcmp(dot, ".idx") == 0))
		return DATA_IDX;
	if (dot && strcmp(dot, ".tokens") == 0)
		return DATA_TOKENS;
	if (dot && strcmp(dot, ".safetensors") == 0)
		return DATA_SAFETENSORS;
	return dot && (strcmp(dot, ".bin") == 0 || strcmp(dot, ".raw") == 0) ? DATA_RAW : DATA_UNSAID;
}

static bool from_flag(Arena *a, DataInput **list, int *n, const char *flag, const char *spec, Diag *d)
{
	char *s = arena_str(a, spec), *eq = strchr(s, '=');

	if (!eq || eq == s || !eq[1])
		return diag_error(d, NOLOC, 6, "%s '%s': write INPUT=FILE", flag, spec);
	*eq = 0;
	const DataKind kind = kind_of(eq + 1);
	put_data(a, list, n, s, eq + 1, kind);
	return true;
}

bool training_data(Arena *a, Training *t, const char *spec, Diag *d)
{
	return from_flag(a, &t->data.input, &t->data.ninput, "--data", spec, d);
}

bool training_eval(Arena *a, Training *t, const char *spec, Diag *d)
{
	t->data.eval.on = true;
	return from_flag(a, &t->data.eval.data, &t->data.eval.ndata, "--eval", spec, d);
}

bool training_last(Training *t, const char *word, Diag *d)
{
	const int last = setting_value(SET_OF_LastSamples, word);

	t->data.last = last < 0 ? LAST_WRAP : (LastSamples)last;
	return last >= 0 || diag_error(d, NOLOC, 7, "--last '%s': there are wrap, keep and drop", word);
}

/* Pipe-SGD's two ways to sum gradients (section 3.1), as sizes of buckets. */
static bool take_grad_comm(Training *t, Diag *d)
{
	const bool one = t->comm.bucket == INT64_MAX, sequential = t->comm.grad == GRAD_COMM_SEQUENTIAL;

	if (sequential && t->comm.bucket && !one)
		return diag_error(d, NOLOC, 9,
			"--grad-comm sequential is one AllReduce of all gradients, and --bucket %lld the size of one that begins "
			"during the backward",
			(long long)t->comm.bucket);
	if (t->comm.grad == GRAD_COMM_PIPELINED) {
		if (one)
			return diag_error(d, NOLOC, 9,
				"--grad-comm pipelined begins AllReduce during the backward, and --bucket none is one behind it");
		t->comm.bucket = t->comm.bucket ? t->comm.bucket : 1 << 20;
	}
	t->comm.bucket = sequential ? INT64_MAX : t->comm.bucket;
	return true;
}

/* ps-sync and async are the names of the papers' baselines. */
static bool check_comm(const Training *t, Diag *d)
{
	const bool sync = t->comm.by_sync == SERVERS_SYNC;

	if (t->comm.by_sync == SERVERS_UNSAID || t->comm.sync == SERVERS_UNSAID || t->comm.sync == t->comm.by_sync)
		return true;
	return diag_error(d, NOLOC, 9, "--comm %s has servers that are %s, and --sync says %s",
		setting_word(SET_OF_CommFlag, sync ? COMM_FLAG_PS_SYNC : COMM_FLAG_ASYNC),
		sync ? "synchronous" : "asynchronous", setting_word(SET_OF_ServerSync, (int)t->comm.sync));
}

bool training_complete(Training *t, Diag *d)
{
	const Loc at = t->file ? FILELOC(t->file) : NOLOC;

	if (!check_comm(t, d) || !take_grad_comm(t, d))
		return false;
	if (t->loop.steps && t->loop.epochs)
		return diag_error(d, at, 9, "steps %lld and epochs %lld are two lengths of one run; say one of them",
			(long long)t->loop.steps, (long long)t->loop.epochs);
	if (t->loop.microbatches && t->loop.global)
		return diag_error(d, at, 9,
			"%lld microbatches per step and replica make a global batch of their own, and %lld is another; say one of them",
			(long long)t->loop.microbatches, (long long)t->loop.global);
	if (t->comm.staleness >= 0 && !served_async(t))
		return diag_error(d, at, 520,
			"staleness %lld bounds how far devices of asynchronous servers are apart; say --sync async too",
			(long long)t->comm.staleness);
	if (served_async(t) && t->comm.by == COMM_UNSAID)
		t->comm.by = COMM_PS;
	if (t->data.eval.averages && !(opt_get(&t->model.opt, OPT_EMA) > 0))
		return diag_error(d, at, 9,
			"--eval-averages: the optimizer keeps no moving averages; say --ema or optimizer.ema");
	if (!t->data.eval.on &&
		(t->data.eval.every || t->data.eval.epochs || t->data.eval.samples || t->data.eval.averages))
		return diag_error(d, at, 9,
			"there is no evaluation set; name its files with --eval INPUT=FILE or data.eval.inputs");
	if (!t->loop.ckpt_dir && (t->loop.ckpt_every || t->loop.ckpt_keep != CKPT_KEEP))
		return diag_error(d, at, 9, "no folder for checkpoints is named; say --ckpt DIR beside --ckpt-%s",
			t->loop.ckpt_every ? "every" : "keep");
	for (int i = 0; t->data.eval.on && i < t->data.ninput; i++) {
		bool there = false;
		for (int k = 0; k < t->data.eval.ndata; k++)
			there |= !strcmp(t->data.input[i].input, t->data.eval.data[k].input);
		if (!there && t->data.input[i].kind != DATA_SYNTHETIC)
			return diag_error(d, at, 9,
				"input '%s' has a file to train on (%s) and none for the evaluation; say --eval %s=FILE",
				t->data.input[i].input, t->data.input[i].path, t->data.input[i].input);
	}
	if (t->loop.stop && strncmp(t->loop.stop, "loss=", 5) && !t->data.eval.on)
		return diag_error(d, at, 9, "stop: '%.*s' is a metric of the evaluation set, and there is none",
			(int)strcspn(t->loop.stop, "="), t->loop.stop);
	return true;
}

/* ---- train.yaml ---- */

static void inputs(Yaml *y, const YNode *v, const char *what, DataInput **list, int *count)
{
	const char **name;
	const YNode **value;
	int n = yaml_pairs(y, v, what, &name, &value);

	for (int i = 0; i < n; i++) {
		const char *text = yaml_text(y, value[i], name[i]);

		if (text) {
			char *path = arena_str(y->a, text);
			const DataKind kind = kind_of(path);
			put_data(y->a, list, count, name[i], path, kind);
		}
	}
}

/* Rows of tokens have no name of their own: what is said of all files says it of each. */
static void all_tokens(DataKind kind, DataInput *list, int n)
{
	for (int i = 0; (kind == DATA_TOKENS || kind == DATA_TOKENS32) && i < n; i++)
		if (list[i].kind == DATA_UNSAID || list[i].kind == DATA_RAW)
			list[i].kind = kind;
}

static void ev_kind(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->data.eval.kind = (DataKind)yaml_setting(y, v, "data.eval.kind", SET_OF_DataKind);
}
static void ev_inputs(Yaml *y, const YNode *v, void *to)
{
	inputs(y, v, "data.eval.inputs", &((Training *)to)->data.eval.data, &((Training *)to)->data.eval.ndata);
}
static void ev_every(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->data.eval.every = yaml_int(y, v, "data.eval.every_steps", 1, (int64_t)1 << 40);
}
static void ev_epochs(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->data.eval.epochs = yaml_int(y, v, "data.eval.every_epochs", 1, (int64_t)1 << 30);
}
static void ev_samples(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->data.eval.samples = yaml_int(y, v, "data.eval.samples", 1, (int64_t)1 << 40);
}
static void ev_averages(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->data.eval.averages = yaml_bool(y, v, "data.eval.averages");
}
static const YKey eval_keys[] = { { "kind", ev_kind }, { "inputs", ev_inputs }, { "every_steps", ev_every },
	{ "every_epochs", ev_epochs }, { "samples", ev_samples }, { "averages", ev_averages } };

static void da_eval(Yaml *y, const YNode *v, void *to)
{
	Training *t = to;

	t->data.eval.on = true;
	yaml_map(y, v, "data.eval", eval_keys, COUNT(eval_keys), to);
}

static void da_kind(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->data.kind = (DataKind)yaml_setting(y, v, "data.kind", SET_OF_DataKind);
}
static void da_inputs(Yaml *y, const YNode *v, void *to)
{
	inputs(y, v, "data.inputs", &((Training *)to)->data.input, &((Training *)to)->data.ninput);
}
static void da_shuffle(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->data.shuffle = yaml_bool(y, v, "data.shuffle");
}
static void da_last(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->data.last = (LastSamples)yaml_setting(y, v, "data.last", SET_OF_LastSamples);
}

static const YKey data_keys[] = { { "kind", da_kind }, { "inputs", da_inputs }, { "shuffle", da_shuffle },
	{ "last", da_last }, { "eval", da_eval } };

void train_data(Yaml *y, const YNode *v, void *to)
{
	Training *t = to;

	yaml_map(y, v, "data", data_keys, COUNT(data_keys), to);
	all_tokens(t->data.kind, t->data.input, t->data.ninput);
	all_tokens(t->data.eval.kind != DATA_UNSAID ? t->data.eval.kind : t->data.kind, t->data.eval.data,
		t->data.eval.ndata);
}
