/* The table of flags: names, defaults, help, what each stores or does. */
#include "options_table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/buf.h"
#include "choices.h"
#include "frontend/settings/train.h"
#include "frontend/settings/yaml.h"

/* ---- flags that do more than store ---- */

static bool o_dim(Cx *x, const char *v) { return training_bind(x->a, &x->o->t, v, x->d); }
static bool o_loss(Cx *x, const char *v) { return training_loss(x->a, &x->o->t, v, x->d); }
static bool o_optimizer(Cx *x, const char *v) { return training_optimizer(x->a, &x->o->t, v, x->d); }
static bool o_lr_schedule(Cx *x, const char *v) { return training_lr_schedule(x->a, &x->o->t, v, x->d); }
static bool o_data(Cx *x, const char *v) { return training_data(x->a, &x->o->t, v, x->d); }
static bool o_eval(Cx *x, const char *v) { return training_eval(x->a, &x->o->t, v, x->d); }
static bool o_last(Cx *x, const char *v) { return training_last(&x->o->t, v, x->d); }
static bool o_freeze(Cx *x, const char *v) { training_glob(x->a, &x->o->t.model.freeze, &x->o->t.model.nfreeze, v); return true; }
static bool o_parameters(Cx *x, const char *v) { training_glob(x->a, &x->o->t.model.parameters, &x->o->t.model.nparameters, v); return true; }
static bool o_trainable(Cx *x, const char *v) { training_glob(x->a, &x->o->t.model.trainable, &x->o->t.model.ntrainable, v); return true; }

static bool o_lr(Cx *x, const char *v)
{
	char *end;
	double lr = strtod(v, &end);

	if (end == v || *end || !isfinite(lr) || lr < 0)
		return diag_error(x->d, NOLOC, 7, "--lr wants a number that is not negative, not '%s'", v);
	opt_put(&x->o->t.model.opt, OPT_LR, lr, NOLOC);
	x->o->t.model.opt.chosen = true;
	return true;
}

static bool o_ema(Cx *x, const char *v)
{
	char *end;
	const double ema = strtod(v, &end);

	if (end == v || *end || !(ema >= 0 && ema < 1))
		return diag_error(x->d, NOLOC, 7, "--ema wants a number from 0 to below 1, not '%s'", v);
	opt_put(&x->o->t.model.opt, OPT_EMA, ema, NOLOC);
	return true;
}

static bool o_clip_norm(Cx *x, const char *v)
{
	char *end;
	double most = strtod(v, &end);

	if (end == v || *end || !isfinite(most) || most <= 0)
		return diag_error(x->d, NOLOC, 7, "--clip-norm wants a number above 0, not '%s'", v);
	x->o->t.model.opt.clip_norm = most;
	return true;
}

static bool o_compress(Cx *x, const char *v) { return training_compress(x->a, &x->o->t, v, x->d); }
static bool o_partitions(Cx *x, const char *v) { return training_partitions(x->a, &x->o->t, v, x->d); }

static bool average(Cx *x, const char *flag, const char *v, bool *sum)
{
	*sum = strcmp(v, "0") == 0;
	return *sum || strcmp(v, "1") == 0 || diag_error(x->d, NOLOC, 7, "%s wants 1 (mean) or 0 (sum), not '%s'", flag, v);
}

static bool o_average_dense(Cx *x, const char *v) { return average(x, "--average-dense", v, &x->o->t.comm.sum_dense); }
static bool o_average_sparse(Cx *x, const char *v) { return average(x, "--average-sparse", v, &x->o->t.comm.sum_sparse); }

static bool o_amp(Cx *x, const char *v)
{
	return training_amp(&x->o->t, v, NOLOC, x->d);
}

static bool o_labels(Cx *x, const char *v)
{
	Training *t = &x->o->t;

	if (!t->model.nloss && !training_loss(x->a, t, "softmax_ce", x->d))
		return false;
	for (int i = 0; i < t->model.nloss; i++)
		t->model.loss[i].labels = v;
	return true;
}

static bool o_init(Cx *x, const char *v)
{
	int seed = 0;
	char rest;

	if (strcmp(v, "file") && (sscanf(v, "random:%d%c", &seed, &rest) != 1 || seed < 1))
		return diag_error(x->d, NOLOC, 7,
			"--init wants file (what the model holds) or random:SEED (SEED from 1), not '%s'; a run reads other "
			"weights by --weights",
			v);
	x->o->t.model.init_random = seed;
	return true;
}

/* One of the words of choices.c. */
static bool word_of(Cx *x, const char *flag, const char *v, const char **to)
{
	Choices c;
	Buf b = { 0 };

	if (!choices_of(flag, &c))
		bug("--%s has no words", flag);
	for (int i = 0; i < c.n; i++)
		if (strcmp(c.word[i], v) == 0) {
			*to = c.word[i];
			return true;
		}
	for (int i = 0; i < c.n; i++)
		buf_printf(&b, "%s%s", i ? ", " : "", c.word[i]);
	const char *near = diag_nearest(v, c.word, c.n);
	if (near && strncmp(near, v, strcspn(v, ":") + 1)) /* else it is the number behind the word */
		diag_error(x->d, NOLOC, 7, "--%s: '%s' is none of its words; did you mean '%s'?", flag, v, near);
	else
		diag_error(x->d, NOLOC, 7, "--%s wants one of %s, not '%s'", flag, buf_str(&b), v);
	buf_free(&b);
	return false;
}

static bool o_bucket(Cx *x, const char *v)
{
	int64_t *n = &x->o->t.comm.bucket;

	if (strcmp(v, "auto") == 0 || strcmp(v, "none") == 0) {
		*n = *v == 'a' ? 0 : INT64_MAX;
		return true;
	}
	if (parse_bytes(v, n) && *n > 0)
		return true;
	return diag_error(x->d, NOLOC, 7, "--bucket wants auto, none or bytes as 1MiB, not '%s'", v);
}

static bool o_schedule(Cx *x, const char *v)
{
	const char *lacks, *none;

	if (training_schedule(&x->o->t, v, &lacks))
		return true;
	return lacks ? diag_error(x->d, NOLOC, 7, "--schedule %s", lacks) : word_of(x, "schedule", v, &none);
}

#define SETTING(f, flag, field, type) \
	static bool f(Cx *x, const char *v) \
	{ \
		const char *word; \
		if (!word_of(x, flag, v, &word)) \
			return false; \
		x->o->t.field = (type)setting_value(SET_OF_##type, word); \
		return true; \
	}
SETTING(o_warmup_policy, "warmup-policy", plan.warmup_policy, WarmupPolicy)
SETTING(o_replica_split, "replica-split", plan.replica_split, ReplicaSplit)
SETTING(o_stash, "stash", plan.stash, Stash)
SETTING(o_recompute, "recompute", plan.recompute, Recompute)
SETTING(o_sync, "sync", comm.sync, ServerSync)
SETTING(o_sequence, "sequence", plan.sequence, AlongSequence)
SETTING(o_grad_comm, "grad-comm", comm.grad, GradComm)
SETTING(o_allreduce, "allreduce", comm.allreduce, AllReduceBy)
SETTING(o_dp_cost, "dp-cost", plan.dp_cost, DpCost)
SETTING(o_planner, "planner", plan.planner, PlannerKind)
SETTING(o_batchnorm, "batchnorm", model.batchnorm, BatchNormBy)
SETTING(o_dropout, "dropout", model.dropout, Dropout)
SETTING(o_opt_level, "opt-level", target.optimize, OptLevel)
SETTING(o_target, "target", target.kind, Target)

static bool o_comm(Cx *x, const char *v)
{
	const char *word;

	if (!word_of(x, "comm", v, &word))
		return false;
	training_comm(&x->o->t, (CommFlag)setting_value(SET_OF_CommFlag, word));
	return true;
}

/* What a Makefile says as it stands, also between single quotes in its shell. */
static bool command_word(Cx *x, const char *flag, const char *v, const char **to)
{
	bool ok = *v && *v != ' ';

	for (const char *p = v; *p; p++)
		ok &= (unsigned char)*p >= ' ' && *p != 0x7f && !strchr("'\"#\\`", *p);
	if (!ok)
		return diag_error(x->d, NOLOC, 7, "%s wants a command without quotes, # and \\, not '%s'", flag, v);
	*to = v;
	return true;
}

static bool o_cc(Cx *x, const char *v) { return command_word(x, "--cc", v, &x->o->t.target.cc); }
static bool o_nvcc(Cx *x, const char *v) { return command_word(x, "--nvcc", v, &x->o->t.target.nvcc); }

static bool o_emit_only(Cx *x, const char *v)
{
	(void)v;
	x->o->check = false;
	return x->o->emit_only = true;
}

static bool o_ir_format(Cx *x, const char *v)
{
	const char *w = NULL;

	if (!word_of(x, "ir-format", v, &w))
		return false;
	x->o->ir_form = *w == 't' ? FORM_TEXT : *w == 'j' ? FORM_JSON : FORM_DOT;
	return true;
}

static bool o_micro_batch(Cx *x, const char *v)
{
	char *end;
	const long long n = strtoll(v, &end, 10);

	x->o->t.loop.choose_micro = !strcmp(v, "auto");
	if (!x->o->t.loop.choose_micro && (end == v || *end || n < 1 || n > (1LL << 32)))
		return diag_error(x->d, NOLOC, 7, "--micro-batch wants auto or a whole number from 1 to %lld, not '%s'", 1LL << 32, v);
	x->o->t.loop.micro = x->o->t.loop.choose_micro ? 0 : n;
	return true;
}

/* auto, or a whole number from `least` to `most`. */
static bool auto_or(Cx *x, const char *flag, const char *v, int64_t least, int64_t most, bool *choose, int64_t *to)
{
	char *end;
	const long long n = strtoll(v, &end, 10);

	*choose = !strcmp(v, "auto");
	if (!*choose && (end == v || *end || n < least || n > most))
		return diag_error(x->d, NOLOC, 7, "--%s wants auto or a whole number from %lld to %lld, not '%s'", flag, (long long)least,
			(long long)most, v);
	*to = *choose ? least - 1 : n; /* not said */
	return true;
}

static bool o_tensor(Cx *x, const char *v)
{
	return auto_or(x, "tensor", v, 1, GROUP_MOST, &x->o->t.plan.choose_tensor, &x->o->t.plan.tensor);
}

static bool o_zero(Cx *x, const char *v)
{
	return auto_or(x, "zero", v, 0, 3, &x->o->t.plan.choose_zero, &x->o->t.plan.zero);
}

static bool o_pipe_sgd(Cx *x, const char *v)
{
	PlanSettings *p = &x->o->t.plan;
	char *end;
	const long long k = strtoll(v, &end, 10);

	p->choose_pipe_sgd = !strcmp(v, "auto");
	if (!p->choose_pipe_sgd && (end == v || *end || k < 1 || k > PIPE_SGD_MOST))
		return diag_error(x->d, NOLOC, 7, "--pipe-sgd wants auto or a whole number from 1 to %d, not '%s'", PIPE_SGD_MOST, v);
	p->pipe_sgd = p->choose_pipe_sgd ? 0 : k;
	return true;
}

static bool o_threads(Cx *x, const char *v)
{
	char *end;
	long n = strtol(v, &end, 10);

	if (end == v || *end || n < 1 || n > 1024)
		return diag_error(x->d, NOLOC, 7, "--threads wants 1 to 1024, not '%s'", v);
	x->o->t.target.threads = (int)n;
	return true;
}

static bool o_memory(Cx *x, const char *v)
{
	if (!parse_bytes(v, &x->o->memory_limit))
		return diag_error(x->d, NOLOC, 7, "--memory-limit wants a size with a unit, for example 14GiB, not '%s'", v);
	return true;
}

/* The name's end says what is written. */
static bool o_timeline(Cx *x, const char *v)
{
	static const char *const ends[] = { ".svg", ".html", ".json" };
	const size_t n = strlen(v);

	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		if (n > strlen(ends[i]) && strcmp(v + n - strlen(ends[i]), ends[i]) == 0) {
			if (x->o->ntimeline == (int)(sizeof x->o->timeline / sizeof *x->o->timeline))
				return diag_error(x->d, NOLOC, 7, "--timeline: %d files at most, '%s' is one more", x->o->ntimeline, v);
			x->o->timeline[x->o->ntimeline++] = v;
			return true;
		}
	return diag_error(x->d, NOLOC, 7, "--timeline wants a file named .svg, .html or .json, not '%s'", v);
}

static bool long_run(Cx *x, const char *flag, const char *v, double *to, bool zero)
{
	char *end;

	*to = strtod(v, &end);
	if (end == v || *end || !isfinite(*to) || *to > 1e9 || !(zero ? *to >= 0 : *to > 0))
		return diag_error(x->d, NOLOC, 7, "--%s wants a number %s, not '%s'", flag,
			zero ? "that is not negative" : "above 0", v);
	return true;
}

static bool o_deadline(Cx *x, const char *v)
{
	if (!parse_seconds(v, &x->o->deadline) || !(x->o->deadline > 0))
		return diag_error(x->d, NOLOC, 7, "--deadline wants a time with its unit (s, min, h, d), as in 3d, not '%s'", v);
	return true;
}

static bool o_budget(Cx *x, const char *v) { return long_run(x, "budget", v, &x->o->budget, false); }
static bool o_days(Cx *x, const char *v) { return long_run(x, "days", v, &x->o->days, false); }
static bool o_mtbf(Cx *x, const char *v) { return long_run(x, "mtbf", v, &x->o->mtbf, false); }
static bool o_ckpt_seconds(Cx *x, const char *v) { return long_run(x, "ckpt-seconds", v, &x->o->ckpt_seconds, true); }
static bool o_restart(Cx *x, const char *v) { return long_run(x, "restart-seconds", v, &x->o->restart_seconds, true); }

static bool o_stragglers(Cx *x, const char *v)
{
	Options *o = x->o;
	char *colon, *end = NULL;

	o->slow_share = strtod(v, &colon);
	if (colon != v && *colon == ':')
		o->slow_times = strtod(colon + 1, &end);
	if (!end || end == colon + 1 || *end || !(o->slow_share > 0 && o->slow_share <= 1) || !(o->slow_times >= 1 && o->slow_times <= 1e6))
		return diag_error(x->d, NOLOC, 7,
			"--stragglers wants SHARE:TIMES, a share of a device's steps above 0 and at most 1, and how many times "
			"as long they take, at least 1, as in 0.01:2, not '%s'",
			v);
	return true;
}

static bool o_dump(Cx *x, const char *v)
{
	x->o->dump = true;
	x->o->dump_ir = v;
	return true;
}

static bool o_depfile(Cx *x, const char *v)
{
	x->o->deps = true;
	x->o->depfile = v;
	return true;
}

/* Those of the command line were replaced by the words of FILE before. */
static bool o_config(Cx *x, const char *v)
{
	return diag_error(x->d, NOLOC, 1, "--config %s: a file of flags cannot name another one", v);
}

static bool o_list_ops(Cx *x, const char *v)
{
	if (v && strcmp(v, "onnx"))
		return diag_error(x->d, NOLOC, 7, "--list-ops wants nothing or onnx, not '%s'", v);
	x->o->list_ops = !v;
	x->o->list_onnx = v != NULL;
	return true;
}

static bool o_help(Cx *x, const char *v)
{
	x->o->help = true;
	x->o->help_group = v;
	return true;
}

static bool o_diagnostics(Cx *x, const char *v)
{
	const char *w = NULL;

	if (!word_of(x, "diagnostics", v, &w))
		return false;
	x->d->format = *w == 'j' ? DIAG_JSON : *w == 's' ? DIAG_SARIF : DIAG_TEXT;
	return true;
}

static bool o_error_limit(Cx *x, const char *v)
{
	char *end;
	const long n = strtol(v, &end, 10);

	if (end == v || *end || n < 1 || n > 1000000)
		return diag_error(x->d, NOLOC, 7, "--error-limit wants a whole number from 1 to 1000000, not '%s'", v);
	x->d->limit = (int)n;
	return true;
}

static bool o_color(Cx *x, const char *v)
{
	const char *w = NULL;

	if (!word_of(x, "color", v, &w))
		return false;
	x->o->color = strcmp(w, "always") == 0;
	x->o->no_color = strcmp(w, "never") == 0;
	return true;
}

#define AT(f) offsetof(Options, f)
#define TR(f) (offsetof(Options, t) + offsetof(Training, f))

const Opt opt_table[] = {
	{ "Input", "dim", "NAME=N", "bind a symbolic axis, or INPUT:AXIS=N", CALL, 0, o_dim, 0, 0, 0 },
	{ "Input", "loss", "L", "auto, softmax_ce, mse, or a scalar output of the graph", CALL, 0, o_loss, 0, 0, 0 },
	{ "Input", "labels", "NAME", "name of the labels input that is added", CALL, 0, o_labels, 0, 0, 0 },
	{ "Input", "freeze", "GLOB", "parameters that are not trained", CALL, 0, o_freeze, 0, 0, 0 },
	{ "Input", "parameters", "GLOB", "initializers that are parameters though they look like constants", CALL, 0, o_parameters, 0, 0, 0 },
	{ "Input", "trainable", "GLOB", "train only these parameters", CALL, 0, o_trainable, 0, 0, 0 },
	{ "Input", "init", "I", "initial weights: file, or random:SEED", CALL, 0, o_init, 0, 0, 0 },
	{ "Input", "data", "INPUT=FILE", "a .npy, IDX, safetensors or raw file of samples; FILE:tokens (16 bits), FILE:tokens32: windows of a row of "
		"tokens; synthetic: made-up numbers", CALL, 0, o_data, 0, 0, 0 },
	{ "Input", "eval", "INPUT=FILE", "the same for the evaluation set", CALL, 0, o_eval, 0, 0, 0 },
	{ "Input", "eval-every", "N", "evaluate every N steps; at the end always", INT, TR(data.eval.every), 0, 0, 1, (int64_t)1 << 40 },
	{ "Input", "eval-epochs", "N", "evaluate every N epochs", INT, TR(data.eval.epochs), 0, 0, 1, 1 << 30 },
	{ "Input", "eval-samples", "N", "only the first N samples of it", INT, TR(data.eval.samples), 0, 0, 1, (int64_t)1 << 40 },
	{ "Input", "eval-averages", NULL, "evaluate the moving averages of the weights (--ema) in their place", FLAG, TR(data.eval.averages), 0, 0, 0, 0 },
	{ "Input", "last", "W", "samples that fill no step at the end of an epoch; @", CALL, 0, o_last, 0, 0, 0 },
	{ "Target", "target", "T", "@", CALL, 0, o_target, 0, 0, 0 },
	{ "Target", "arch", "SM", "GPUs that kernels are compiled for, as nvcc names them; sm_90 when not said", TEXT, TR(target.arch), 0, 0, 0, 0 },
	{ "Target", "cc", "CMD", "C compiler of the written Makefile, gcc when not said; make CC=CMD says another one", CALL, 0, o_cc, 0, 0, 0 },
	{ "Target", "nvcc", "CMD", "compiler of kernels there, that of the CUDA toolkit when not said; make NVCC=CMD", CALL, 0, o_nvcc, 0, 0, 0 },
	{ "Target", "opt-level", "N", "@, as -O0 to -O3: how the Makefile compiles; 3 when not said", CALL, 0, o_opt_level, 0, 0, 0 },
	{ "Target", "debug", NULL, "the Makefile compiles with -g (-g)", FLAG, TR(target.debug), 0, 0, 0, 0 },
	{ "Target", "emit-only", NULL, "write the program; nothing is compiled, measured or read with libclang", CALL, 0, o_emit_only, 0, 0, 0 },
	{ "Target", "threads", "N", "threads per device; default: cores divided by the devices of the host", CALL, 0, o_threads, 0, 0, 0 },
	{ "Plan", "cluster", "FILE", "what machines there are; local:N for N devices here", TEXT, AT(cluster), 0, 0, 0, 0 },
	{ "Plan", "plan", "P", "auto, replicas of each stage as 2-1-1 (2x4-1x8: each of 4, of 8 devices), or a file that --save-plan wrote", TEXT, TR(plan.replicas), 0, 0, 0, 0 },
	{ "Plan", "save-plan", "FILE", "write the plan, .yaml or .json; --plan FILE takes it", TEXT, AT(save_plan), 0, 0, 0, 0 },
	{ "Plan", "planner", "P", "@", CALL, 0,
		o_planner, 0, 0, 0 },
	{ "Plan", "tensor", "N", "N devices share each replica of a stage: its products are divided among them; auto: a divisor of the devices of a host, "
		"decided with the plan", CALL, 0, o_tensor, 0, 0, 0 },
	{ "Plan", "sequence", "W", "@; with --tensor: normalisations, dropout and sums between products are divided along the sequence; less memory, "
		"more calls; off when not said", CALL, 0, o_sequence, 0, 0, 0 },
	{ "Plan", "zero", "N", "the replicas of a stage divide among them (ZeRO) 1: the optimizer's state, 2: gradients too, 3: weights too; 0, the default: nothing; auto: "
		"1 where memory asks for it or a step is shorter, 2 or 3 where nothing else fits", CALL, 0, o_zero, 0, 0, 0 },
	{ "Plan", "max-stages", "N", "plans that are looked for have at most N stages", INT, TR(plan.max_stages), 0, 0, 1, 1 << 20 },
	{ "Plan", "no-pipeline", NULL, "they have one stage: data parallelism alone", FLAG, TR(plan.no_pipeline), 0, 0, 0, 0 },
	{ "Plan", "no-dp", NULL, "their stages have no replicas: a pipeline alone", FLAG, TR(plan.no_dp), 0, 0, 0, 0 },
	{ "Plan", "dp-cost", "C", "of PipeDream's planner; @", CALL, 0,
		o_dp_cost, 0, 0, 0 },
	{ "Plan", "global-batch", "N", "samples per step, over all devices; default: 64, whatever the plan", INT, TR(loop.global), 0, 0, 1, (int64_t)1 << 32 },
	{ "Plan", "micro-batch", "N", "samples per microbatch; auto: a divisor of --global-batch, decided with the plan; so also where "
		"nothing is said and the plan is looked for", CALL, 0, o_micro_batch, 0, 0, 0 },
	{ "Plan", "microbatches", "N", "microbatches per step and replica; with it the global batch follows from the plan", INT, TR(loop.microbatches), 0, 0, 1, 1 << 20 },
	{ "Plan", "memory-limit", "SIZE", "memory of each device, for example 14GiB", CALL, 0, o_memory, 0, 0, 0 },
	{ "Plan", "profile", "P", "times of nodes: a profile.json, estimate, or run to measure now", TEXT, AT(profile), 0, 0, 0, 0 },
	{ "Plan", "profile-cache", "DIR", "where measured times are kept; none: nowhere. Default: ~/.cache/pdcc", TEXT, AT(profile_cache), 0, 0, 0, 0 },
	{ "Plan", "profile-seconds", "N", "at most so long for every stage, 10 when not said", INT, AT(profile_seconds), 0, 0, 1, 86400 },
	{ "Plan", "deadline", "TIME", "pdcc plan: how many of the cluster's devices end --steps or --epochs within 3d, 12h or 30min, and which of these are cheapest (nodes[].price)", CALL, 0, o_deadline, 0, 0, 0 },
	{ "Plan", "budget", "PRICE", "pdcc plan: how many devices are fastest for this price, with --deadline cheapest within both", CALL, 0, o_budget, 0, 0, 0 },
	{ "Schedule", "schedule", "S", schedule_help, CALL, 0, o_schedule, 0, 0, 0 },
	{ "Schedule", "warmup-policy", "P", "of early backwards; @", CALL, 0,
		o_warmup_policy, 0, 0, 0 },
	{ "Schedule", "replica-split", "S", "@", CALL, 0,
		o_replica_split, 0, 0, 0 },
	{ "Schedule", "stash", "S", "where stages keep versions of their weights; @", CALL, 0, o_stash, 0, 0, 0 },
	{ "Schedule", "pipe-sgd", "K", "data parallelism: an update has the gradients of K - 1 steps before, which are summed meanwhile; auto: K, compression and "
		"buckets as the simulator finds a step shortest", CALL, 0, o_pipe_sgd, 0, 0, 0 },
	{ "Schedule", "warmup-steps", "N", "asynchronous: the first N steps are flushed", INT, TR(plan.warmup_steps), 0, 0, 0, INT64_MAX },
	{ "Schedule", "warmup-epochs", "N", "the same of the steps that begin in the first N epochs", INT, TR(plan.warmup_epochs), 0, 0, 0, 1 << 30 },
	{ "Schedule", "vertical-sync", NULL, "there too: all stages use the weights that were the first stage's newest", FLAG,
		TR(plan.vertical_sync), 0, 0, 0, 0 },
	{ "Schedule", "recompute", "R", "@", CALL, 0,
		o_recompute, 0, 0, 0 },
	{ "Communication", "comm", "C", "gradients between replicas; @", CALL, 0, o_comm, 0, 0, 0 },
	{ "Communication", "servers", "N", "processes that hold parameters, for ps, hybrid and auto; one per host when not said", INT, TR(comm.servers), 0, 0, 1, 4096 },
	{ "Communication", "sync", "S", "@", CALL, 0, o_sync, 0, 0, 0 },
	{ "Communication", "staleness", "N", "of --sync async: a device is at most N steps ahead of the slowest; 0: a step begins when all have done the one before",
		INT, TR(comm.staleness), 0, 0, 0, 1 << 20 },
	{ "Communication", "partitions", "P", "tables that servers hold are partitioned by rows into so many pieces: N, auto (by cost), or "
		"PATTERN=N, PATTERN=auto for some; 1 when not said", CALL, 0, o_partitions, 0, 0, 0 },
	{ "Communication", "average-dense", "0|1", "gradients of parameters that are used whole: 1, when not said: the mean over all workers' samples, as one "
		"device has it; 0: the sum of the workers' means", CALL, 0, o_average_dense, 0, 0, 0 },
	{ "Communication", "average-sparse", "0|1", "the same for tables that are only looked up", CALL, 0, o_average_sparse, 0, 0, 0 },
	{ "Communication", "no-local-agg", NULL, "devices of a host do not add their gradients before they go to a server", FLAG,
		TR(comm.no_local_agg), 0, 0, 0, 0 },
	{ "Communication", "no-opsw", NULL, "slices of parameters at servers and of their gradients stay with the devices, casts of --amp where values arrive: all of them travels, in 32 bits",
		FLAG, TR(comm.no_opsw), 0, 0, 0, 0 },
	{ "Communication", "no-opau", NULL, "norms and clipping of what servers sum stay with the devices, who have the sums sent and give them back",
		FLAG, TR(comm.no_opau), 0, 0, 0, 0 },
	{ "Communication", "allreduce", "A", "AllReduce over replicas; @", CALL, 0, o_allreduce, 0, 0, 0 },
	{ "Communication", "dense", "PATTERN", "tables whose gradients are summed whole, though a step touches few of their rows", TEXT, TR(comm.dense), 0, 0, 0, 0 },
	{ "Communication", "bucket", "BYTES", "AllReduce of gradients begins during the backward, in buckets of so many bytes (1MiB); auto; none: one AllReduce behind it, as auto with --pipe-sgd", CALL, 0,
		o_bucket, 0, 0, 0 },
	{ "Communication", "grad-comm", "G", "@", CALL, 0, o_grad_comm, 0, 0, 0 },
	{ "Communication", "compress", "C", "gradients between replicas: @; q8:block=128; auto:q8: only where that is predicted, and measured in the first steps, to be faster; q8,ef: with error feedback", CALL, 0, o_compress, 0, 0, 0 },
	{ "Train", "train", "FILE", "train.yaml; flags override it", TEXT, AT(train), 0, 0, 0, 0 },
	{ "Train", "optimizer", "O", "@; settings as adam:lr=1e-3,eps=1e-8", CALL, 0, o_optimizer, 0, 0, 0 },
	{ "Train", "lr", "X", "learning rate", CALL, 0, o_lr, 0, 0, 0 },
	{ "Train", "lr-schedule", "S", "@; settings as cosine:warmup_steps=100,steps=1000,min=1e-5", CALL, 0,
		o_lr_schedule, 0, 0, 0 },
	{ "Train", "ema", "X", "moving averages of the weights, X of the average and 1 - X of the newest weights in each step; checkpoints have them", CALL, 0,
		o_ema, 0, 0, 0 },
	{ "Train", "clip-norm", "X", "largest norm of the gradient over all parameters", CALL, 0, o_clip_norm, 0, 0, 0 },
	{ "Train", "gnorm", NULL, "the norm of the gradient over all parameters, in progress lines and metrics; told with --clip-norm too", FLAG,
		TR(loop.gnorm), 0, 0, 0, 0 },
	{ "Train", "steps", "N", "default number of steps of the run; pdcc verify compares as many, 3 when not said, of asynchronous plans enough to read older weights", INT, TR(loop.steps), 0, 0, 1, (int64_t)1 << 40 },
	{ "Train", "epochs", "N", "the run passes over its samples so often, in place of --steps", INT, TR(loop.epochs), 0, 0, 1, 1 << 30 },
	{ "Train", "seed", "N", "of random numbers and shuffling", INT, TR(loop.seed), 0, 0, 0, INT64_MAX },
	{ "Train", "shuffle", NULL, "a new order of the samples in every epoch", FLAG, TR(data.shuffle), 0, 0, 0, 0 },
	{ "Train", "ckpt", "DIR", "the run writes checkpoints there; the programs' own --ckpt options win", TEXT, TR(loop.ckpt_dir), 0, 0, 0, 0 },
	{ "Train", "ckpt-every", "N", "every N steps; at the end always", INT, TR(loop.ckpt_every), 0, 0, 1, (int64_t)1 << 40 },
	{ "Train", "ckpt-keep", "K", "how many stay; 0: all, 3 when not said", INT, TR(loop.ckpt_keep), 0, 0, 0, 1 << 30 },
	{ "Train", "amp", "A", "mixed precision: @; bf16, fp16: products in 16-bit floats, weights and sums in f32; fp8: as bf16, with products of 8 bits where a GPU has them; fp16:scale=65536,every=2000 scales the loss, twice as much after so many steps without overflow", CALL, 0, o_amp, 0, 0, 0 },
	{ "Train", "check-numerics", NULL, "the programs look for NaN and infinities in every tensor that they make, and name it", FLAG, TR(loop.check_numerics), 0, 0, 0, 0 },
	{ "Train", "dropout", "D", "@", CALL, 0, o_dropout, 0, 0, 0 },
	{ "Train", "batchnorm", "B", "@", CALL, 0, o_batchnorm, 0, 0, 0 },
	{ "Train", "reproducible", NULL, "the bits of one device with the same microbatches, whatever the plan", FLAG, TR(loop.reproducible), 0, 0, 0, 0 },
	{ "Output", "o", "DIR", "the build folder", TEXT, AT(out), 0, 0, 0, 0 },
	{ "Output", "save-config", "FILE", "write every flag in force; @FILE gives them back", TEXT, AT(save_config), 0, 0, 0, 0 },
	{ "Output", "config", "FILE", "the flags in FILE, as --save-config wrote them; so does @FILE", CALL, 0, o_config, 0, 0, 0 },
	{ "Output", "depfile", "FILE", "a make rule of all files that were read; -MD: into inputs.d of the build folder", CALL, 0, o_depfile, 0, 0, 0 },
	{ "Output", "report", "FILE.html", "one page for a browser: plan, timeline, memory, bytes, parameters, what every pass changed; of pdcc "
		"plan and simulate too", TEXT, AT(report), 0, 0, 0, 0 },
	{ "Output", "force", NULL, "write into a folder that holds other things", FLAG, AT(force), 0, 0, 0, 0 },
	{ "Output", "check", NULL, "read the emitted files with libclang (on where it was found)", FLAG, AT(check), 0, 0, 0, 0 },
	{ "Output", "templates", "DIR", "kernel templates from this source tree instead of the built-in ones", TEXT, AT(templates), 0, 0, 0, 0 },
	{ "Inspect", "dump-ir", "DIR", "the IR after every pass; DIR: other place than DIR/ir of the build folder", CALL, 0, o_dump, 1, 0, 0 },
	{ "Inspect", "print-ir-before", "P", "print the IR before a pass", TEXT, AT(print_before), 0, 0, 0, 0 },
	{ "Inspect", "print-ir-after", "P", "print the IR after a pass", TEXT, AT(print_after), 0, 0, 0, 0 },
	{ "Inspect", "print-ir-after-all", NULL, "print the IR after every pass", FLAG, AT(print_after_all), 0, 0, 0, 0 },
	{ "Inspect", "print-ir-after-change", NULL, "print what each pass changed", FLAG, AT(print_after_change), 0, 0, 0, 0 },
	{ "Inspect", "ir-format", "F", "@; json, dot: printed in place of the text, and dumped beside it", CALL, 0, o_ir_format, 0, 0, 0 },
	{ "Inspect", "elide", "N", "the IR shows constants of at most N elements, 16 when not said; others by their hash", INT, AT(elide), 0, 0, 0, 1 << 30 },
	{ "Inspect", "list-passes", NULL, "the passes, in order", FLAG, AT(list_passes), 0, 0, 0, 0 },
	{ "Inspect", "list-ops", "onnx", "the operators after import, or those of ONNX: types, gradients, kernels", CALL, 0, o_list_ops, 1, 0, 0 },
	{ "Inspect", "list-schedules", NULL, "the schedules: steps, stages of a device, microbatches in flight, papers", FLAG, AT(list_schedules), 0, 0, 0, 0 },
	{ "Inspect", "passes", "A,B", "run just these (pdcc-opt)", TEXT, AT(passes), 0, 0, 0, 0 },
	{ "Inspect", "stop-after", "P", "stop after a pass; no code is written", TEXT, AT(stop_after), 0, 0, 0, 0 },
	{ "Inspect", "start-from", "FILE", "go on from a .pdir file; weights come from the model", TEXT, AT(start_from), 0, 0, 0, 0 },
	{ "Inspect", "explain", NULL, "say why the plan was chosen", FLAG, AT(explain), 0, 0, 0, 0 },
	{ "Inspect", "json", NULL, "pdcc plan: all of --explain as one JSON object; pdcc simulate: step, bytes between devices, memory", FLAG, AT(json), 0, 0, 0, 0 },
	{ "Inspect", "time-passes", NULL, "time of reading the model, of every pass, of writing the programs", FLAG, AT(time_passes), 0, 0, 0, 0 },
	{ "Simulate", "timeline", "FILE", "pdcc simulate draws the step: .svg, .html, or .json for Perfetto", CALL, 0, o_timeline, 0, 0, 0 },
	{ "Simulate", "days", "N", "with --mtbf: so many days of steps, checkpoints and failures: how much lasts, and how often to write a checkpoint", CALL, 0, o_days, 0, 0, 0 },
	{ "Simulate", "mtbf", "HOURS", "mean time between failures of a host, for --days and --deadline", CALL, 0, o_mtbf, 0, 0, 0 },
	{ "Simulate", "ckpt-seconds", "S", "of --days: what a checkpoint takes; else the fullest device's weights and optimizer state at 1 GB/s", CALL, 0, o_ckpt_seconds, 0, 0, 0 },
	{ "Simulate", "restart-seconds", "S", "of --days: from a failure to the next step; 120 when not said", CALL, 0, o_restart, 0, 0, 0 },
	{ "Simulate", "stragglers", "P:F", "in each step each device computes, with probability P, F times as long: the mean step, also of --days and --deadline", CALL, 0, o_stragglers, 0, 0, 0 },
	{ "Export", "averages", NULL, "pdcc export: moving averages (--ema) in place of the weights that have one", FLAG, AT(averages), 0, 0, 0, 0 },
	{ "Export", "model", "MODEL.onnx", "pdcc export: the model that the checkpoint is of", TEXT, AT(model), 0, 0, 0, 0 },
	{ "Verify", "keep", NULL, "keep the folders that pdcc verify made", FLAG, AT(keep), 0, 0, 0, 0 },
	{ "Doctor", "measure", NULL, "pdcc doctor measures latency and bandwidth of every kind of link", FLAG, AT(measure), 0, 0, 0, 0 },
	{ "Messages", "verbose", NULL, "say more (-v)", FLAG, AT(verbose), 0, 0, 0, 0 },
	{ "Messages", "strict", NULL, "a guess of what is a parameter that nothing supports is an error", FLAG, AT(strict), 0, 0, 0, 0 },
	{ "Messages", "quiet", NULL, "errors only (-q)", FLAG, AT(quiet), 0, 0, 0, 0 },
	{ "Messages", "color", "C", "@", CALL, 0, o_color, 0, 0, 0 },
	{ "Messages", "error-limit", "N", "so many errors are shown, 20 when not said", CALL, 0, o_error_limit, 0, 0, 0 },
	{ "Messages", "diagnostics", "F", "@; json: an object per line", CALL, 0, o_diagnostics, 0, 0, 0 },
	{ "Messages", "help", "GROUP", "the commands, or those of a command (-h); of a GROUP or all: the flags", CALL, 0, o_help, 1, 0, 0 },
	{ "Messages", "version", NULL, "the version", FLAG, AT(version), 0, 0, 0, 0 },
	{ NULL, "f64", NULL, "every float as f64, plain loops: for checking", FLAG, TR(target.f64), 0, 0, 0, 0 },
};

const int nopt = (int)(sizeof opt_table / sizeof *opt_table);
