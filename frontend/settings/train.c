/* train.yaml: batch, loss and the rest; train_data.c has the data, train_opt.c the optimizer, train_sched.c the schedule. */
#include "train.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "train_opt.h"

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

void training_defaults(Training *t)
{
	*t = (Training){ .plan.zero = -1,
		.plan.warmup_policy = WARMUP_AUTO,
		.plan.replica_split = SPLIT_AUTO,
		.target.found = TARGET_AUTO,
		.target.arch = "sm_90",
		.comm.staleness = -1,
		.loop.seed = 1,
		.loop.ckpt_keep = CKPT_KEEP,
		.model.opt = { .kind = OPT_SGD } };
}

/* ---- what flags and file share ---- */

void training_glob(Arena *a, const char ***list, int *n, const char *glob)
{
	const char **v = NEWN(a, const char *, *n + 1);

	for (int i = 0; i < *n; i++)
		v[i] = (*list)[i];
	v[(*n)++] = arena_str(a, glob);
	*list = v;
}

bool training_loss(Arena *a, Training *t, const char *spec, Diag *d)
{
	LossTerm *l = NEW(a, LossTerm);

	(void)d;
	*l = (LossTerm){ .weight = 1, .ignore_index = INT64_MIN };
	if (strcmp(spec, "auto") == 0) {
		t->model.nloss = 0;
		return true;
	}
	const int kind = setting_value(SET_OF_LossKind, spec);
	if (kind > LOSS_OUTPUT)
		l->kind = (LossKind)kind;
	else
		l->output = arena_str(a, spec);
	t->model.loss = l;
	t->model.nloss = 1;
	return true;
}

bool training_bind(Arena *a, Training *t, const char *spec, Diag *d)
{
	char *s = arena_str(a, spec), *eq = strrchr(s, '='), *colon, *end;
	Binding b = { .axis = -1 };

	if (!eq || eq == s)
		return diag_error(d, NOLOC, 6, "--dim '%s': write NAME=N for a symbolic axis or INPUT:AXIS=N", spec);
	*eq = 0;
	b.value = strtoll(eq + 1, &end, 10);
	if (end == eq + 1 || *end || b.value < 1 || b.value > (int64_t)1 << 32)
		return diag_error(d, NOLOC, 6, "--dim %s: '%s' is not a positive number", s, eq + 1);
	colon = strrchr(s, ':');
	if (colon && colon[1]) {
		long axis = strtol(colon + 1, &end, 10);

		if (!*end && axis >= 0 && axis < MAXRANK) {
			*colon = 0;
			b.axis = (int)axis;
		}
	}
	b.name = s;
	Binding *v = NEWN(a, Binding, t->data.nbind + 1);
	if (t->data.nbind)
		memcpy(v, t->data.bind, sizeof *v * (size_t)t->data.nbind);
	v[t->data.nbind++] = b;
	t->data.bind = v;
	return true;
}

static void a_text(Yaml *y, const YNode *v, const char *what, const char **to)
{
	const char *s = yaml_text(y, v, what);

	if (s)
		*to = s;
}

/* The same for a file or a folder, which is not called true. */
static void a_path(Yaml *y, const YNode *v, const char *what, const char **to)
{
	const bool plain = v->type == YAML_SCALAR_NODE && v->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	const char *s = yaml_text(y, v, what), *dot = strrchr(what, '.');

	if (s && plain && (yaml_is(v, "true") || yaml_is(v, "yes") || yaml_is(v, "on")))
		yaml_error(y, v, "%s wants the name of a file or folder, not '%s'; write %s: run1", what, s,
			dot ? dot + 1 : what);
	else if (s)
		*to = s;
}

/* ---- batch ---- */

static void b_global(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->loop.global = yaml_int(y, v, "batch.global", 1, (int64_t)1 << 32);
}
static void b_micro(Yaml *y, const YNode *v, void *to)
{
	Training *t = to;

	t->loop.choose_micro = yaml_is(v, "auto");
	t->loop.micro = t->loop.choose_micro ? 0 : yaml_int(y, v, "batch.micro", 1, (int64_t)1 << 32);
}
static const YKey batch_keys[] = { { "global", b_global }, { "micro", b_micro } };
static void batch(Yaml *y, const YNode *v, void *to) { yaml_map(y, v, "batch", batch_keys, COUNT(batch_keys), to); }

static void bind(Yaml *y, const YNode *v, void *to)
{
	const char **name;
	const YNode **value;
	int n = yaml_pairs(y, v, "bind", &name, &value);

	for (int i = 0; i < n; i++) {
		int64_t k = yaml_int(y, value[i], name[i], 1, (int64_t)1 << 32);

		if (!training_bind(y->a, to, arena_printf(y->a, "%s=%lld", name[i], (long long)k), y->d))
			y->ok = false;
	}
}

static void batch_axis(Yaml *y, const YNode *v, void *to)
{
	Training *t = to;
	const char **name;
	const YNode **value;
	int n = yaml_pairs(y, v, "batch_axis", &name, &value);

	t->data.batch_axis = NEWN(y->a, Binding, n);
	t->data.nbatch_axis = n;
	for (int i = 0; i < n; i++)
		t->data.batch_axis[i] = (Binding){ name[i], (int)yaml_int(y, value[i], name[i], 0, MAXRANK - 1), 0 };
}

/* ---- loss ---- */

static void lo_kind(Yaml *y, const YNode *v, void *to)
{
	((LossTerm *)to)->kind = (LossKind)yaml_setting(y, v, "loss.kind", SET_OF_LossKind);
}
static void lo_output(Yaml *y, const YNode *v, void *to) { a_text(y, v, "loss.output", &((LossTerm *)to)->output); }
static void lo_labels(Yaml *y, const YNode *v, void *to) { a_text(y, v, "loss.labels", &((LossTerm *)to)->labels); }
static void lo_weight(Yaml *y, const YNode *v, void *to)
{
	((LossTerm *)to)->weight = yaml_real(y, v, "loss.weight", 0, 1e9);
}
static void lo_ignore(Yaml *y, const YNode *v, void *to)
{
	((LossTerm *)to)->ignore_index = yaml_int(y, v, "loss.ignore_index", -((int64_t)1 << 40), (int64_t)1 << 40);
}
static void lo_axis(Yaml *y, const YNode *v, void *to)
{
	((LossTerm *)to)->axis = (int)yaml_int(y, v, "loss.axis", 1, MAXRANK - 1);
}
static const YKey loss_keys[] = {
	{ "kind", lo_kind },
	{ "type", lo_kind },
	{ "output", lo_output },
	{ "logits", lo_output },
	{ "label", lo_labels },
	{ "labels", lo_labels },
	{ "weight", lo_weight },
	{ "ignore_index", lo_ignore },
	{ "axis", lo_axis },
};

static void loss(Yaml *y, const YNode *v, void *to)
{
	Training *t = to;
	int n = 1;
	const YNode **item = v->type == YAML_SEQUENCE_NODE ? yaml_items(y, v, "loss", &n) : &v;

	t->model.loss = NEWN(y->a, LossTerm, n);
	t->model.nloss = n;
	for (int i = 0; item && i < n; i++) {
		t->model.loss[i] = (LossTerm){ .weight = 1, .ignore_index = INT64_MIN };
		if (item[i]->type == YAML_SCALAR_NODE) {
			Training one = { 0 };

			training_loss(y->a, &one, (const char *)item[i]->data.scalar.value, y->d);
			if (one.model.nloss)
				t->model.loss[i] = one.model.loss[0];
			else
				t->model.nloss = 0;
		} else {
			yaml_map(y, item[i], "loss", loss_keys, COUNT(loss_keys), &t->model.loss[i]);
		}
	}
}

/* ---- checkpoints ---- */

static void ck_dir(Yaml *y, const YNode *v, void *to)
{
	a_path(y, v, "checkpoint.dir", &((Training *)to)->loop.ckpt_dir);
}
static void ck_every(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->loop.ckpt_every = yaml_int(y, v, "checkpoint.every_steps", 1, (int64_t)1 << 40);
}
static void ck_keep(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->loop.ckpt_keep = yaml_int(y, v, "checkpoint.keep", 0, (int64_t)1 << 30);
}
static const YKey ckpt_keys[] = { { "dir", ck_dir }, { "every_steps", ck_every }, { "keep", ck_keep } };

static void checkpoint(Yaml *y, const YNode *v, void *to)
{
	Training *t = to;

	if (!t->loop.ckpt_dir)
		t->loop.ckpt_dir = "ckpt";
	yaml_map(y, v, "checkpoint", ckpt_keys, COUNT(ckpt_keys), to);
}

/* ---- metrics, early stop ---- */

static void me_every(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->loop.metrics_every = yaml_int(y, v, "metrics.every", 1, (int64_t)1 << 40);
}
static void me_jsonl(Yaml *y, const YNode *v, void *to)
{
	a_path(y, v, "metrics.jsonl", &((Training *)to)->loop.jsonl);
}
static void me_csv(Yaml *y, const YNode *v, void *to) { a_path(y, v, "metrics.csv", &((Training *)to)->loop.csv); }
static void me_tensorboard(Yaml *y, const YNode *v, void *to)
{
	a_path(y, v, "metrics.tensorboard", &((Training *)to)->loop.tensorboard);
}
static void me_gnorm(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->loop.gnorm = yaml_bool(y, v, "metrics.gnorm");
}
static const YKey metrics_keys[] = {
	{ "every", me_every },
	{ "jsonl", me_jsonl },
	{ "csv", me_csv },
	{ "tensorboard", me_tensorboard },
	{ "gnorm", me_gnorm },
};
static void metrics(Yaml *y, const YNode *v, void *to)
{
	yaml_map(y, v, "metrics", metrics_keys, COUNT(metrics_keys), to);
}

typedef struct Stop {
	const char *metric;
	double reach;
} Stop;

static void st_metric(Yaml *y, const YNode *v, void *to)
{
	((Stop *)to)->metric = setting_word(SET_OF_StopMetric, yaml_setting(y, v, "stop.metric", SET_OF_StopMetric));
}
static void st_reach(Yaml *y, const YNode *v, void *to)
{
	((Stop *)to)->reach = yaml_real(y, v, "stop.reach", 0, 1e30);
}
static const YKey stop_keys[] = { { "metric", st_metric }, { "reach", st_reach } };
static void stop(Yaml *y, const YNode *v, void *to)
{
	Stop s = { "loss", -1 };

	yaml_map(y, v, "stop", stop_keys, COUNT(stop_keys), &s);
	if (s.reach < 0)
		yaml_error(y, v, "stop lacks `reach: VALUE`");
	else if (s.metric && !strcmp(s.metric, "accuracy") && s.reach > 1)
		yaml_error(y, v, "an accuracy is a share from 0 to 1, and never comes to %.15g", s.reach);
	else
		((Training *)to)->loop.stop = arena_printf(y->a, "%s=%.17g", s.metric, s.reach);
}

/* ---- the rest ---- */

static void freeze(Yaml *y, const YNode *v, void *to)
{
	train_globs(y, v, "freeze", &((Training *)to)->model.freeze, &((Training *)to)->model.nfreeze);
}
static void padding_idx(Yaml *y, const YNode *v, void *to)
{
	Training *t = to;
	const char **name;
	const YNode **value;

	t->model.npadding = yaml_pairs(y, v, "padding_idx", &name, &value);
	t->model.padding = NEWN(y->a, Binding, t->model.npadding);
	for (int i = 0; i < t->model.npadding; i++) {
		const bool none = yaml_is(value[i], "none");

		t->model.padding[i] = (Binding){ name[i], 0, none ? -1 : yaml_int(y, value[i], name[i], 0, INT32_MAX) };
	}
}
static void parameters(Yaml *y, const YNode *v, void *to)
{
	train_globs(y, v, "parameters", &((Training *)to)->model.parameters, &((Training *)to)->model.nparameters);
}
static void trainable(Yaml *y, const YNode *v, void *to)
{
	train_globs(y, v, "trainable", &((Training *)to)->model.trainable, &((Training *)to)->model.ntrainable);
}
static void steps(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->loop.steps = yaml_int(y, v, "steps", 0, (int64_t)1 << 40);
}
static void epochs(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->loop.epochs = yaml_int(y, v, "epochs", 1, (int64_t)1 << 30);
}
static void clip_norm(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->model.opt.clip_norm = yaml_real(y, v, "clip_norm", 1e-30, 1e30);
}

static void amp(Yaml *y, const YNode *v, void *to)
{
	const char *s = yaml_text(y, v, "amp");

	if (s)
		y->ok &= training_amp(to, s, yaml_loc(y, v), y->d);
}

static void zero(Yaml *y, const YNode *v, void *to)
{
	PlanSettings *p = &((Training *)to)->plan;

	p->choose_zero = yaml_is(v, "auto");
	p->zero = p->choose_zero ? -1 : yaml_int(y, v, "zero", 0, 3);
}

static void sequence(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->plan.sequence = (AlongSequence)yaml_setting(y, v, "sequence", SET_OF_AlongSequence);
}

static void seed(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->loop.seed = (uint64_t)yaml_int(y, v, "seed", 0, INT64_MAX);
}

static void dropout(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->model.dropout = (Dropout)yaml_setting(y, v, "dropout", SET_OF_Dropout);
}

static void batchnorm(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->model.batchnorm = (BatchNormBy)yaml_setting(y, v, "batchnorm", SET_OF_BatchNormBy);
}

static void init(Yaml *y, const YNode *v, void *to)
{
	const char *s = yaml_text(y, v, "init");
	int k = 0;

	if (s && strcmp(s, "file") && sscanf(s, "random:%d", &k) != 1)
		yaml_error(y, v, "init is '%s'; write file or random:SEED", s);
	((Training *)to)->model.init_random = k;
}

static const YKey top_keys[] = {
	{ "data", train_data },
	{ "batch", batch },
	{ "bind", bind },
	{ "batch_axis", batch_axis },
	{ "loss", loss },
	{ "schedule", train_schedule },
	{ "optimizer", train_optimizer },
	{ "lr_schedule", train_lr_schedule },
	{ "clip_norm", clip_norm },
	{ "amp", amp },
	{ "zero", zero },
	{ "sequence", sequence },
	{ "freeze", freeze },
	{ "parameters", parameters },
	{ "trainable", trainable },
	{ "padding_idx", padding_idx },
	{ "steps", steps },
	{ "epochs", epochs },
	{ "seed", seed },
	{ "dropout", dropout },
	{ "batchnorm", batchnorm },
	{ "init", init },
	{ "checkpoint", checkpoint },
	{ "metrics", metrics },
	{ "stop", stop },
};

bool train_read(Arena *a, const char *path, Training *t, Diag *d)
{
	Yaml y;

	if (!yaml_open(&y, a, path, d))
		return false;
	t->file = y.file;
	yaml_map(&y, yaml_document_get_root_node(&y.doc), "the training file", top_keys, COUNT(top_keys), t);
	yaml_close(&y);
	return y.ok;
}
