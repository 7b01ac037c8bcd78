/* The optimizer and the learning rate over the steps, in train.yaml and as flags. */
#include "train_opt.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "train.h"

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

void train_globs(Yaml *y, const YNode *v, const char *what, const char ***list, int *count)
{
	int n;
	const YNode **item = yaml_items(y, v, what, &n);

	for (int i = 0; item && i < n; i++) {
		const char *s = yaml_text(y, item[i], what);

		if (s)
			training_glob(y->a, list, count, s);
	}
}
/* ---- flags: kind:name=value,name=value ---- */

typedef bool PutSetting(void *to, const char *name, double v);

static bool each_setting(char *rest, const char *what, PutSetting *put, void *to, Diag *d)
{
	while (rest && *rest) {
		char *comma = strchr(rest, ','), *eq = strchr(rest, '='), *end;

		if (comma)
			*comma = 0;
		if (!eq || (comma && eq > comma))
			return diag_error(d, NOLOC, 5, "%s setting '%s' has no value; write %s=0.1", what, rest, rest);
		*eq = 0;
		double v = strtod(eq + 1, &end);
		if (end == eq + 1 || *end || !isfinite(v))
			return diag_error(d, NOLOC, 5, "%s setting %s is '%s', not a number", what, rest, eq + 1);
		if (v < 0)
			return diag_error(
				d, NOLOC, 5, "%s setting %s is %s; it must not be negative", what, rest, eq + 1);
		if (v > 1 &&
			(strncmp(rest, "beta", 4) == 0 || strcmp(rest, "momentum") == 0 || strcmp(rest, "alpha") == 0))
			return diag_error(d, NOLOC, 5, "%s setting %s is %s; it must be at most 1", what, rest, eq + 1);
		if (v >= 1 && strcmp(rest, "ema") == 0)
			return diag_error(d, NOLOC, 5, "%s setting ema is %s; it must be below 1", what, eq + 1);
		if (!put(to, rest, v)) {
			const bool rate = strcmp(what, "optimizer") != 0;
			const char *near = diag_nearest(
				rest, rate ? rate_set_name : opt_set_name, rate ? RATE_SETTINGS : OPT_SETTINGS);

			return diag_error(d, NOLOC, 5, "%s has no setting '%s'%s%s%s", what, rest,
				near   ? "; did you mean '"
				: rate ? "; there are warmup_steps, steps, every, gamma, min"
				       : "; there are lr, momentum, beta1, beta2, alpha, eps, weight_decay ...",
				near ? near : "", near ? "'?" : "");
		}
		rest = comma ? comma + 1 : NULL;
	}
	return true;
}

static bool put_setting(void *to, const char *name, double v)
{
	const int set = opt_find_setting(name);

	if (set >= 0)
		opt_put(to, (OptSet)set, v, NOLOC);
	return set >= 0;
}

/* The enumerator of a word; -1 after E0005. */
static int kind_called(Arena *a, const char *what, const char *s, SettingSet set, Diag *d)
{
	const SettingWords w = setting_words(set);
	const int k = setting_value(set, s);
	const char *near = k < 0 ? diag_nearest(s, w.word, w.n) : NULL;

	const size_t n = strcspn(s, ",( =");

	if (k < 0 && s[n] && n && setting_value(set, arena_strn(a, s, n)) >= 0)
		diag_error(d, NOLOC, 5,
			"no %s is called '%s'; settings stand behind a colon, as %.*s:name=value,name=value", what, s,
			(int)n, s);
	else if (near)
		diag_error(d, NOLOC, 5, "no %s is called '%s'; did you mean '%s'?", what, s, near);
	else if (k < 0)
		diag_error(d, NOLOC, 5, "no %s is called '%s'; there are %s", what, s, setting_list(a, set, ", "));
	return k;
}

bool training_optimizer(Arena *a, Training *t, const char *spec, Diag *d)
{
	char *s = arena_str(a, spec), *rest = strchr(s, ':');

	if (rest)
		*rest++ = 0;
	const int k = kind_called(a, "optimizer", s, SET_OF_OptKind, d);
	if (k < 0)
		return false;
	t->model.opt.kind = (OptKind)k;
	t->model.opt.chosen = true;
	return each_setting(rest, "optimizer", put_setting, &t->model.opt, d);
}

/* ---- train.yaml ---- */

static void o_kind(Yaml *y, const YNode *v, void *to)
{
	((Optimizer *)to)->kind = (OptKind)yaml_setting(y, v, "optimizer.kind", SET_OF_OptKind);
}

#define SETTING(f, set, most) \
	static void f(Yaml *y, const YNode *v, void *to) \
	{ \
		opt_put(to, set, yaml_real(y, v, arena_printf(y->a, "optimizer.%s", opt_set_name[set]), 0, most), \
			yaml_loc(y, v)); \
	}
SETTING(o_lr, OPT_LR, 1e9)
SETTING(o_mu, OPT_MU, 1)
SETTING(o_dampening, OPT_DAMPENING, 1)
SETTING(o_beta1, OPT_BETA1, 1)
SETTING(o_beta2, OPT_BETA2, 1)
SETTING(o_alpha, OPT_ALPHA, 1)
SETTING(o_eps, OPT_EPS, 1)
SETTING(o_wd, OPT_DECAY, 1e9)
SETTING(o_lr_decay, OPT_LR_DECAY, 1e9)
SETTING(o_ema, OPT_EMA, 1 - 1e-12)

static void o_nesterov(Yaml *y, const YNode *v, void *to)
{
	opt_put(to, OPT_NESTEROV, yaml_bool(y, v, "optimizer.nesterov"), yaml_loc(y, v));
}

static void o_betas(Yaml *y, const YNode *v, void *to)
{
	int n;
	const YNode **item = yaml_items(y, v, "optimizer.betas", &n);

	if (n != 2) {
		yaml_error(y, v, "optimizer.betas has %d entries; it needs 2", n);
		return;
	}
	o_beta1(y, item[0], to);
	o_beta2(y, item[1], to);
}

static void o_nodecay(Yaml *y, const YNode *v, void *to)
{
	train_globs(y, v, "optimizer.no_decay", &((Optimizer *)to)->no_decay, &((Optimizer *)to)->nno_decay);
}

static const YKey opt_keys[] = {
	{ "kind", o_kind },
	{ "type", o_kind },
	{ "lr", o_lr },
	{ "momentum", o_mu },
	{ "dampening", o_dampening },
	{ "nesterov", o_nesterov },
	{ "betas", o_betas },
	{ "beta1", o_beta1 },
	{ "beta2", o_beta2 },
	{ "alpha", o_alpha },
	{ "eps", o_eps },
	{ "weight_decay", o_wd },
	{ "lr_decay", o_lr_decay },
	{ "no_decay", o_nodecay },
	{ "ema", o_ema },
};
void train_optimizer(Yaml *y, const YNode *v, void *to)
{
	((Training *)to)->model.opt.chosen = true;
	yaml_map(y, v, "optimizer", opt_keys, COUNT(opt_keys), &((Training *)to)->model.opt);
}

/* ---- the learning rate over the steps ---- */

static bool put_rate(void *to, const char *name, double v)
{
	Rate *r = to;
	int64_t *const whole[] = { &r->warmup, &r->steps, &r->every };

	for (int i = 0; i < 3; i++)
		if (strcmp(name, rate_set_name[i]) == 0)
			return *whole[i] = v < 0 || v > 1e15 ? -1 : (int64_t)v, true;
	if (strcmp(name, "gamma") == 0)
		r->gamma = v;
	else if (strcmp(name, "min") == 0)
		r->min = v;
	else
		return false;
	return true;
}

/* NULL: it is whole. */
static const char *rate_lacks(const Rate *r)
{
	if (r->warmup < 0 || r->steps < 0 || r->every < 1 || r->gamma < 0 || r->min < 0)
		return "counts and factors that are not negative, and every at least 1";
	if ((r->kind == RATE_STEP || r->kind == RATE_EXPONENTIAL) && r->gamma == 1)
		return "gamma, the factor per `every` steps";
	return NULL;
}

bool training_lr_schedule(Arena *a, Training *t, const char *spec, Diag *d)
{
	char *s = arena_str(a, spec), *rest = strchr(s, ':');
	Rate *r = &t->model.opt.rate;

	if (rest)
		*rest++ = 0;
	const int k = kind_called(a, "learning-rate schedule", s, SET_OF_RateKind, d);
	if (k < 0)
		return false;
	*r = (Rate){ .kind = (RateKind)k, .every = 1, .gamma = 1 };
	if (!each_setting(rest, "lr-schedule", put_rate, r, d))
		return false;
	const char *lacks = rate_lacks(r);
	return !lacks || diag_error(d, NOLOC, 5, "lr-schedule %s needs %s", setting_word(SET_OF_RateKind, k), lacks);
}

static void s_kind(Yaml *y, const YNode *v, void *to)
{
	((Rate *)to)->kind = (RateKind)yaml_setting(y, v, "lr_schedule.kind", SET_OF_RateKind);
}

#define COUNTED(f, field, least) \
	static void f(Yaml *y, const YNode *v, void *to) \
	{ \
		((Rate *)to)->field = yaml_int(y, v, "lr_schedule." #field, least, INT32_MAX); \
	}
COUNTED(s_warmup, warmup, 0)
COUNTED(s_steps, steps, 1)
COUNTED(s_every, every, 1)

static void s_gamma(Yaml *y, const YNode *v, void *to)
{
	((Rate *)to)->gamma = yaml_real(y, v, "lr_schedule.gamma", 0, 1e6);
}
static void s_min(Yaml *y, const YNode *v, void *to) { ((Rate *)to)->min = yaml_real(y, v, "lr_schedule.min", 0, 1e9); }

static const YKey rate_keys[] = {
	{ "kind", s_kind },
	{ "type", s_kind },
	{ "warmup_steps", s_warmup },
	{ "steps", s_steps },
	{ "every", s_every },
	{ "gamma", s_gamma },
	{ "min", s_min },
};

void train_lr_schedule(Yaml *y, const YNode *v, void *to)
{
	Rate *r = &((Training *)to)->model.opt.rate;

	*r = (Rate){ .every = 1, .gamma = 1 };
	yaml_map(y, v, "lr_schedule", rate_keys, COUNT(rate_keys), r);
	if (y->ok && rate_lacks(r))
		yaml_error(y, v, "lr_schedule %s needs %s", setting_word(SET_OF_RateKind, r->kind), rate_lacks(r));
}
