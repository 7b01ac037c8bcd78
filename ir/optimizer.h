/* The optimizers and their settings, one table for files, flags, the IR and the manifest. Formulas: ops/training. */
#ifndef PDCC_IR_OPTIMIZER_H
#define PDCC_IR_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "ir/base/diag.h"
#include "ir/settings.h"

typedef enum OptSet {
	OPT_LR,
	OPT_MU,
	OPT_DAMPENING,
	OPT_NESTEROV,
	OPT_BETA1,
	OPT_BETA2,
	OPT_ALPHA,
	OPT_EPS,
	OPT_DECAY,
	OPT_DECAY_POST,
	OPT_LR_DECAY,
	OPT_ONNX,
	OPT_T0,
	OPT_EMA,
	OPT_SETTINGS
} OptSet;

/* The learning rate over the steps t = 0, 1, ...: lr times a factor. The first `warmup` steps rise in a line to 1; with
 * s = t - warmup the factor then is
 *     STEP          gamma ^ floor(s / every)
 *     EXPONENTIAL   gamma ^ (s / every)
 *     LINEAR        1 + (last - 1) p              p = min(1, s / steps), last = min / lr
 *     COSINE        last + (1 - last) (1 + cos(pi p)) / 2
 *     INVERSE_SQRT  (1 + s / every) ^ -1/2        'Attention is all you need'; every is then the steps of its warm-up
 *     INVERSE       (1 + s / every) ^ -1
 * steps 0: what is left of the run's steps. */
typedef struct Rate {
	RateKind kind;
	int64_t warmup, every, steps;
	double gamma, min; /* min: the last learning rate */
} Rate;
enum { RATE_SETTINGS = 5 };
extern const char *const rate_set_name[RATE_SETTINGS];
bool rate_varies(const Rate *r);

typedef struct Optimizer {
	OptKind kind;
	bool chosen; /* by the user; else the model may bring its own */
	bool given[OPT_SETTINGS];
	double value[OPT_SETTINGS]; /* where given */
	Loc at[OPT_SETTINGS];       /* where given in a file */
	const char **no_decay;
	int nno_decay; /* globs */
	Rate rate;
	double clip_norm; /* largest norm of the mean gradient over all parameters; 0: any */
} Optimizer;

extern const char *const opt_set_name[OPT_SETTINGS]; /* as in train.yaml, and as the op's attribute */

bool opt_has(OptKind kind, OptSet s);
double opt_get(const Optimizer *o, OptSet s); /* what was given, else the default of the kind */
void opt_put(Optimizer *o, OptSet s, double v, Loc at);
int opt_find_setting(const char *name); /* -1: there is none */
/* SGD with a momentum is Momentum, as in torch. */
OptKind opt_kind(const Optimizer *o);
/* A setting that was given (and is not 0) though the kind has none such; -1: none. */
int opt_stray(const Optimizer *o);

#endif
