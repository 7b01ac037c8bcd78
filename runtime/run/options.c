/* options.c: the options of a device's program, from the command line and the environment. README.md says what they
 * do; the command line wins over the environment. */
#include "rt.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] = "usage: %s [options]\n"
			    "  --steps N, --epochs N, --stop METRIC=X              how long\n"
			    "  --data DIR, --samples N, --shuffle                  of what\n"
			    "  --eval-data DIR, --eval-every N, --eval-samples N   the evaluation set\n"
			    "  --weights FILE, --resume[=DIR|FILE]                 what it begins with\n"
			    "  --name NAME | --out DIR                             where results go\n"
			    "  --ckpt DIR, --ckpt-every N, --ckpt-seconds S, --ckpt-keep K, --ckpt-settle S,\n"
			    "  --state                                             checkpoints\n"
			    "  --log-every N, --log-seconds S, --log-level L, --quiet\n"
			    "  --jsonl|--metrics FILE, --csv FILE, --tensorboard DIR, --metrics-every N\n"
			    "  --trace DIR, --trace-steps A:B, --trace-rank R, --arrivals DIR\n"
			    "  --then-loss, --dump-grads FILE, --first-step DIR,\n"
			    "  --each-step DIR, --replay FILE                      for comparison\n"
			    "  --timeout S, --check, --help\n"
			    "  make profile: --profile FILE, --profile-steps N, --profile-seconds S,\n"
			    "                --profile-bound X, --profile-copies N\n"
			    "  make virtual: --virtual\n"
#if defined RT_GPU
			    "  GPUs: --nccl auto|on|off, --cuda-graphs auto|on|off, --time-products S\n"
#endif
			    "Each may also come as an environment variable PD_STEPS, PD_DATA ...;\n"
			    "runtime/README.md says what they do. All ranks get the same from pdcc run.\n"
			    "example: pdcc run DIR --steps 100 --ckpt ck\n";

int rt_log = RT_LOG_NOTE;

/* OPTIONAL: --x, --x VALUE and --x=VALUE; without a value it is "". QUIET: a flag, LEVEL: a word, for rt_log. */
typedef enum kind { FLAG, QUIET, LEVEL, COUNT, SECONDS, TEXT, OPTIONAL } kind;

static int level(const char *value)
{
	static const char *const word[] = { "error", "warning", "note", "debug" };

	for (int i = 0; i <= RT_LOG_DEBUG; i++)
		if (!strcmp(word[i], value))
			return i;
	rt_fail(RT_USAGE, "R001", "--log-level wants one of error, warning, note, debug, not '%s'", value);
}

static void set(kind k, void *to, const char *name, const char *value)
{
	char *end = NULL;

	errno = 0;
	switch (k) {
	case FLAG: *(bool *)to = !value || strcmp(value, "0") != 0; return;
	case QUIET: rt_log = !value || strcmp(value, "0") ? RT_LOG_WARNING : RT_LOG_NOTE; return;
	case LEVEL: rt_log = level(value); return;
	case TEXT:
	case OPTIONAL: *(const char **)to = value ? value : ""; return;
	case COUNT:
		*(int64_t *)to = strtoll(value, &end, 10);
		if (errno || end == value || *end || *(int64_t *)to < 0)
			rt_fail(RT_USAGE, "R001", "--%s wants a whole number that is not negative, not '%s'", name,
				value);
		return;
	case SECONDS:
		*(double *)to = strtod(value, &end);
		if (errno || end == value || *end || !(*(double *)to > 0))
			rt_fail(RT_USAGE, "R001", "--%s wants seconds above 0, not '%s'", name, value);
		return;
	}
}

static void from_environment(kind k, void *to, const char *name)
{
	char key[32] = "PD_";
	size_t n = 3;
	const char *s = name;

	for (; *s && n + 1 < sizeof key; s++)
		key[n++] = *s == '-' ? '_' : (char)(*s >= 'a' && *s <= 'z' ? *s - 'a' + 'A' : *s);
	const char *value = getenv(key);

	if (value && *value)
		set(k, to, name, value);
}

typedef struct option {
	const char *name;
	kind kind;
	void *to;
} option;

/* What is decided when pdcc compiles: those who look for it here are told so. */
static bool of_pdcc(const char *name, size_t n)
{
	static const char *const word[] = { "batch-size", "global-batch", "micro-batch", "lr", "learning-rate",
		"optimizer", "plan", "schedule", "seed", "loss", "amp", "threads", "cluster", "train" };

	for (size_t i = 0; i < sizeof word / sizeof *word; i++)
		if (strlen(word[i]) == n && !strncmp(word[i], name, n))
			return true;
	return false;
}

/* Letters that two words have in common at both ends. */
static size_t in_common(const char *a, const char *b, size_t n)
{
	const size_t m = strlen(b);
	size_t k = 0, e = 0;

	while (k < n && k < m && a[k] == b[k])
		k++;
	while (e < n - k && e < m - k && a[n - 1 - e] == b[m - 1 - e])
		e++;
	return k + e;
}

static _Noreturn void unknown(const option *table, int n, const char *arg, const char *name, size_t length)
{
	const char *near = NULL;
	size_t most = 2 * length / 3;

	if (of_pdcc(name, length))
		rt_fail(RT_USAGE, "R001", "unknown option '%s': it is settled when pdcc compiles the model", arg);
	for (int i = 0; i < n; i++) {
		const size_t k = in_common(name, table[i].name, length);

		if (k > most && strlen(table[i].name) <= length + 2) {
			most = k;
			near = table[i].name;
		}
	}
	rt_fail(RT_USAGE, "R001", "unknown option '%s'; %s%s%s", arg, near ? "did you mean '--" : "--help lists them",
		near ? near : "", near ? "'?" : "");
}

static void from_words(const option *table, int n, int argc, char **argv)
{
	for (int a = 1; a < argc; a++) {
		const char *arg = argv[a];
		const char *name = strncmp(arg, "--", 2) ? "" : arg + 2, *value = strchr(name, '=');
		const size_t length = value ? (size_t)(value++ - name) : strlen(name);
		int i = 0;

		if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
			printf(usage, argv[0]);
			exit(0);
		}
		while (i < n && (strlen(table[i].name) != length || strncmp(table[i].name, name, length)))
			i++;
		if (i == n)
			unknown(table, n, arg, name, length);
		if (!value && table[i].kind == OPTIONAL && a + 1 < argc && argv[a + 1][0] != '-')
			value = argv[++a];
		if (!value && table[i].kind != FLAG && table[i].kind != QUIET && table[i].kind != OPTIONAL &&
			!(value = ++a < argc ? argv[a] : NULL))
			rt_fail(RT_USAGE, "R001", "--%s wants a value", table[i].name);
		set(table[i].kind, table[i].to, table[i].name, value);
	}
}

void rt_options_read(rt_options *o, int argc, char **argv)
{
	const option table[] = {
		{ "steps", COUNT, &o->steps },
		{ "epochs", COUNT, &o->epochs },
		{ "data", TEXT, &o->data },
		{ "samples", COUNT, &o->samples },
		{ "eval-data", TEXT, &o->eval_data },
		{ "eval-every", COUNT, &o->eval_every },
		{ "eval-samples", COUNT, &o->eval_samples },
		{ "shuffle", FLAG, &o->shuffle },
		{ "out", TEXT, &o->out },
		{ "name", TEXT, &o->name },
		{ "weights", TEXT, &o->weights },
		{ "resume", OPTIONAL, &o->resume },
		{ "ckpt", TEXT, &o->ckpt },
		{ "ckpt-every", COUNT, &o->ckpt_every },
		{ "ckpt-seconds", SECONDS, &o->ckpt_seconds },
		{ "ckpt-keep", COUNT, &o->ckpt_keep },
		{ "ckpt-settle", SECONDS, &o->ckpt_settle },
		{ "jsonl", TEXT, &o->jsonl },
		{ "metrics", TEXT, &o->jsonl },
		{ "csv", TEXT, &o->csv },
		{ "tensorboard", TEXT, &o->tensorboard },
		{ "metrics-every", COUNT, &o->metrics_every },
		{ "trace", TEXT, &o->trace },
		{ "trace-steps", TEXT, &o->trace_steps },
		{ "trace-rank", COUNT, &o->trace_rank },
		{ "arrivals", TEXT, &o->arrivals },
		{ "stop", TEXT, &o->stop },
		{ "state", FLAG, &o->state },
		{ "then-loss", FLAG, &o->then_loss },
		{ "final-loss", FLAG, &o->then_loss },
		{ "dump-grads", TEXT, &o->dump_grads },
		{ "first-step", TEXT, &o->first_step },
		{ "each-step", TEXT, &o->each_step },
		{ "replay", TEXT, &o->replay },
		{ "log-every", COUNT, &o->log_every },
		{ "log-seconds", SECONDS, &o->log_seconds },
		{ "timeout", SECONDS, &o->timeout },
		{ "profile", TEXT, &o->profile.file },
		{ "profile-steps", COUNT, &o->profile.steps },
		{ "profile-seconds", SECONDS, &o->profile.seconds },
		{ "profile-bound", SECONDS, &o->profile.bound },
		{ "profile-copies", COUNT, &o->profile.copies },
		{ "virtual", FLAG, &rt_virtual },
		{ "attempt", COUNT, &o->attempt },
#if defined RT_GPU
		{ "nccl", TEXT, &o->nccl },
		{ "cuda-graphs", TEXT, &o->graphs },
		{ "time-products", COUNT, &o->time_products },
#endif
		{ "check", FLAG, &o->dry_run },
		{ "quiet", QUIET, NULL },
		{ "log-level", LEVEL, NULL },
	};
	enum { N = sizeof table / sizeof *table };

	for (int i = 0; i < N; i++)
		from_environment(table[i].kind, table[i].to, table[i].name);
	from_words(table, N, argc, argv);
	if (o->steps >= 0 && o->epochs)
		rt_fail(RT_USAGE, "R001", "--steps %lld and --epochs %lld are two lengths of one run; say one",
			(long long)o->steps, (long long)o->epochs);
	if (o->steps < 0 && !o->epochs) {
		o->steps = rt_program->steps;
		o->epochs = rt_program->epochs;
	}
	rt_watch_check(o->stop);
	if ((o->ckpt_every || o->ckpt_seconds > 0) && !o->ckpt)
		rt_fail(RT_USAGE, "R001", "--ckpt-%s: no folder for checkpoints is named; say --ckpt DIR",
			o->ckpt_every ? "every" : "seconds");
	if (!o->trace && (o->trace_steps || o->trace_rank >= 0))
		rt_fail(RT_USAGE, "R001", "--trace-%s: no folder for traces is named; say --trace DIR",
			o->trace_steps ? "steps" : "rank");
	if (o->ckpt_seconds > 0 && rt_program->flow)
		rt_fail(RT_USAGE, "R001",
			"--ckpt-seconds: an asynchronous plan is drained for a checkpoint, at steps that all know before; "
			"say --ckpt-every N");
	if (!rt_program->eval.on && (o->eval_data || o->eval_every || o->eval_samples))
		rt_fail(RT_USAGE, "R001",
			"--eval-%s: this program has no evaluation set; give pdcc one (--eval, data.eval)",
			o->eval_data    ? "data"
			: o->eval_every ? "every"
					: "samples");
}
