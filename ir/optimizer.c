/* The table of optimizer settings: which kind has which, and its default. Defaults are torch.optim's. */
#include "optimizer.h"
#include <string.h>

const char *const opt_set_name[OPT_SETTINGS] = {
	"lr",
	"momentum",
	"dampening",
	"nesterov",
	"beta1",
	"beta2",
	"alpha",
	"eps",
	"weight_decay",
	"weight_decay_post",
	"lr_decay",
	"onnx",
	"t0",
	"ema",
};

const char *const rate_set_name[RATE_SETTINGS] = { "warmup_steps", "steps", "every", "gamma", "min" };

bool rate_varies(const Rate *r) { return r->kind != RATE_CONSTANT || r->warmup > 0; }

#define KIND(k) (1U << OPT_##k)
static const unsigned kinds[OPT_SETTINGS] = {
	[OPT_LR] = ~0U,
	[OPT_MU] = KIND(MOMENTUM) | KIND(RMSPROP),
	[OPT_DAMPENING] = KIND(MOMENTUM),
	[OPT_NESTEROV] = KIND(MOMENTUM),
	[OPT_BETA1] = KIND(ADAM) | KIND(ADAMW),
	[OPT_BETA2] = KIND(ADAM) | KIND(ADAMW),
	[OPT_ALPHA] = KIND(RMSPROP),
	[OPT_EPS] = KIND(ADAM) | KIND(ADAMW) | KIND(RMSPROP) | KIND(ADAGRAD),
	[OPT_DECAY] = ~0U,
	[OPT_EMA] = ~0U,
	[OPT_DECAY_POST] = KIND(ADAM),
	[OPT_LR_DECAY] = KIND(ADAGRAD),
	[OPT_ONNX] = KIND(ADAM),
	[OPT_T0] = KIND(MOMENTUM) | KIND(ADAM) | KIND(ADAGRAD),
};

OptKind opt_kind(const Optimizer *o)
{
	return o->kind == OPT_SGD && o->given[OPT_MU] && o->value[OPT_MU] != 0 ? OPT_MOMENTUM : o->kind;
}

bool opt_has(OptKind kind, OptSet s) { return kinds[s] >> kind & 1; }

double opt_get(const Optimizer *o, OptSet s)
{
	const OptKind k = opt_kind(o);

	if (o->given[s])
		return o->value[s];
	switch (s) {
	case OPT_LR: return 0.01;
	case OPT_MU: return k == OPT_MOMENTUM ? 0.9 : 0;
	case OPT_BETA1: return 0.9;
	case OPT_BETA2: return 0.999;
	case OPT_ALPHA: return 0.99;
	case OPT_DECAY: return k == OPT_ADAMW ? 0.01 : 0;
	case OPT_EPS: return k == OPT_ADAGRAD ? 1e-10 : 1e-8;
	default: return 0;
	}
}

void opt_put(Optimizer *o, OptSet s, double v, Loc at)
{
	o->given[s] = true;
	o->value[s] = v;
	o->at[s] = at;
}

int opt_find_setting(const char *name)
{
	for (int i = 0; i < OPT_SETTINGS; i++)
		if (strcmp(opt_set_name[i], name) == 0)
			return i;
	return -1;
}

int opt_stray(const Optimizer *o)
{
	for (int i = 0; i < OPT_SETTINGS; i++)
		if (o->given[i] && o->value[i] != 0 && !opt_has(opt_kind(o), (OptSet)i))
			return i;
	return -1;
}
