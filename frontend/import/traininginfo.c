/* ModelProto.training_info (ONNX IR 7 and on): the nodes behind the model's graph that make the loss are imported with it;
 * Gradient and the optimizer (ai.onnx.preview.training 1: Momentum, Adam, Adagrad) are read for what they say: what is
 * minimised, which parameters are trained, and with which settings. pdcc derives gradient and update itself, so both must
 * be of the plain form: every trained X is an initializer, its gradient comes straight from Gradient, T counts by one from
 * its initial value, states begin with zeros. */
#include <math.h>
#include <string.h>
#include "frontend/canon/canon.h"
#include "frontend/onnx/torch.h"

typedef Onnx__TrainingInfoProto OnnxInfo;

static const char domain[] = "ai.onnx.preview.training";

static bool is_training_op(const OnnxNode *n) { return n->domain && strcmp(n->domain, domain) == 0; }

static bool is_optimizer(const OnnxNode *n)
{
	return is_training_op(n) && (strcmp(n->op_type, "Momentum") == 0 || strcmp(n->op_type, "Adam") == 0 ||
					    strcmp(n->op_type, "Adagrad") == 0);
}

static int maker(const OnnxGraph *g, const char *value)
{
	for (size_t i = 0; i < g->n_node; i++)
		for (size_t k = 0; k < g->node[i]->n_output; k++)
			if (strcmp(g->node[i]->output[k], value) == 0)
				return (int)i;
	return -1;
}

static const OnnxTensor *initializer(const OnnxGraph *g, const char *name)
{
	for (size_t i = 0; i < g->n_initializer; i++)
		if (g->initializer[i]->name && strcmp(g->initializer[i]->name, name) == 0)
			return g->initializer[i];
	return NULL;
}

static const char *bound_to(const OnnxInfo *t, const char *key)
{
	for (size_t i = 0; i < t->n_update_binding; i++)
		if (t->update_binding[i]->key && strcmp(t->update_binding[i]->key, key) == 0)
			return t->update_binding[i]->value;
	return NULL;
}

static bool fault(Import *im, const OnnxNode *n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool fault(Import *im, const OnnxNode *n, const char *fmt, ...)
{
	va_list ap;
	const char *text;
	Loc loc = { im->path, 0, 0, -1, n && n->name && *n->name ? n->name : NULL, n ? n->op_type : NULL,
		n ? torch_module(im->a, n) : NULL };

	va_start(ap, fmt);
	text = arena_vprintf(im->d->scratch, fmt, ap);
	va_end(ap);
	diag_error(im->d, n ? loc : FILELOC(im->path), 211, "training_info: %s", text);
	diag_note(im->d, FILELOC(im->path), "give --loss and --optimizer to train without what training_info says");
	return false;
}

/* ---- the loss ---- */

/* Marks the nodes that value depends on. */
static void mark(const OnnxGraph *g, const char *value, bool *need)
{
	const int i = maker(g, value);

	if (i < 0 || need[i])
		return;
	need[i] = true;
	for (size_t k = 0; k < g->node[i]->n_input; k++)
		mark(g, g->node[i]->input[k], need);
}

static bool import_loss(Import *im, const OnnxGraph *g, const OnnxNode *gradient, const char *y)
{
	bool *need = NEWN(im->a, bool, g->n_node);

	mark(g, y, need);
	for (size_t i = 0; i < g->n_input; i++)
		if (!initializer(g, g->input[i]->name) && !onnx_input(im, g->input[i]))
			return false;
	for (size_t i = 0; i < g->n_node; i++)
		for (size_t k = 0; need[i] && k < g->node[i]->n_input; k++) {
			const OnnxTensor *t = initializer(g, g->node[i]->input[k]);

			if (is_training_op(g->node[i]))
				return fault(im, g->node[i], "the loss '%s' depends on this node", y);
			if (t && !map_has(&im->env, t->name) && !onnx_initializer(im, g, t))
				return false;
		}
	for (size_t i = 0; i < g->n_node; i++)
		if (need[i] && !onnx_node(im, g->node[i], i))
			return false;
	Value *v = map_get(&im->env, y);
	if (!v || v->kind != VAL_NODE)
		return fault(im, gradient, "y is '%s', which no node makes", y);
	bool out = false;
	for (int i = 0; i < im->m->graph->nout; i++)
		out |= im->m->graph->out[i] == v;
	if (!out)
		graph_output(im->m->graph, v);
	im->o->told->loss = v->name;
	return true;
}

/* ---- the optimizer ---- */

/* A scalar initializer; NAN when there is none. */
static double scalar(Import *im, const OnnxInfo *t, const OnnxGraph *main, const char *name)
{
	const OnnxTensor *x = initializer(t->algorithm, name);
	Tensor v;

	x = x ? x : initializer(main, name);
	if (!x || !onnx_tensor(im->a, im->path, x, false, &v, FILELOC(im->path), im->d) || type_numel(&v.type) != 1)
		return NAN;
	return v.type.dtype == DT_f32   ? (double)*(const float *)v.data
	       : v.type.dtype == DT_f64 ? *(const double *)v.data
	       : v.type.dtype == DT_i64 ? (double)*(const int64_t *)v.data
	                                : NAN;
}

static bool begins_with_zeros(Import *im, const OnnxInfo *t, const OnnxGraph *main, const char *name)
{
	const OnnxTensor *x = initializer(t->algorithm, name);
	Tensor v;

	x = x ? x : initializer(main, name);
	if (!x || !onnx_tensor(im->a, im->path, x, false, &v, FILELOC(im->path), im->d) || v.type.dtype != DT_f32)
		return false;
	for (int64_t i = 0; i < type_numel(&v.type); i++)
		if (((const float *)v.data)[i] != 0)
			return false;
	return true;
}

static bool settings(Import *im, const OnnxNode *n, double rate, double t0, Optimizer *o)
{
	const char *mode = onnx_str(im->a, n, "mode", "standard");

	*o = (Optimizer){ .kind = OPT_MOMENTUM, .chosen = true };
	opt_put(o, OPT_LR, rate, NOLOC);
	opt_put(o, OPT_T0, t0, NOLOC);
	opt_put(o, OPT_DECAY, onnx_float(n, "norm_coefficient", 0), NOLOC);
	if (strcmp(n->op_type, "Momentum") == 0) {
		if (strcmp(mode, "standard") && strcmp(mode, "nesterov"))
			return fault(im, n, "mode is '%s'; it may be standard or nesterov", mode);
		opt_put(o, OPT_MU, onnx_float(n, "alpha", 0), NOLOC);
		opt_put(o, OPT_DAMPENING, 1 - onnx_float(n, "beta", 1), NOLOC);
		opt_put(o, OPT_NESTEROV, *mode == 'n', NOLOC);
		return true;
	}
	opt_put(o, OPT_EPS, onnx_float(n, "epsilon", 1e-6), NOLOC);
	if (strcmp(n->op_type, "Adagrad") == 0) {
		o->kind = OPT_ADAGRAD;
		opt_put(o, OPT_LR_DECAY, onnx_float(n, "decay_factor", 0), NOLOC);
		return true;
	}
	o->kind = OPT_ADAM;
	opt_put(o, OPT_ONNX, 1, NOLOC);
	opt_put(o, OPT_BETA1, onnx_float(n, "alpha", 0.9F), NOLOC);
	opt_put(o, OPT_BETA2, onnx_float(n, "beta", 0.999F), NOLOC);
	opt_put(o, OPT_DECAY_POST, onnx_float(n, "norm_coefficient_post", 0), NOLOC);
	return true;
}

/* R, T, then X of all, G of all, one or two states of all; the outputs are the new X and states in that order. */
static bool read_optimizer(
	Import *im, const OnnxInfo *t, const OnnxGraph *main, const OnnxNode *n, const OnnxNode *gradient, Optimizer *o)
{
	const size_t states = strcmp(n->op_type, "Adam") == 0 ? 2 : 1, per = 2 + states, k = (n->n_input - 2) / per;
	const OnnxAttr *xs = onnx_attr(gradient, "xs");

	if (n->n_input < 2 + per || (n->n_input - 2) % per || n->n_output != k * (1 + states))
		return fault(im, n, "%zu operands and %zu results; R, T and %zu operands per parameter are needed",
			n->n_input, n->n_output, per);
	const double rate = scalar(im, t, main, n->input[0]), t0 = scalar(im, t, main, n->input[1]);
	if (!isfinite(rate) || !isfinite(t0) || t0 < 0)
		return fault(im, n, "the learning rate '%s' and the count '%s' must be scalar initializers",
			n->input[0], n->input[1]);
	const char *next = bound_to(t, n->input[1]);
	const int add = next ? maker(t->algorithm, next) : -1;
	if (add < 0 || strcmp(t->algorithm->node[add]->op_type, "Add"))
		return fault(im, n, "the count '%s' must be bound to itself plus one", n->input[1]);
	for (size_t i = 0; i < k; i++) {
		const char *x = n->input[2 + i], *g = n->input[2 + k + i];
		size_t j = 0;

		while (j < gradient->n_output && strcmp(gradient->output[j], g))
			j++;
		if (!xs || j >= xs->n_strings || xs->strings[j].len != strlen(x) ||
			memcmp(xs->strings[j].data, x, strlen(x)))
			return fault(
				im, n, "the gradient of '%s' must come straight from Gradient, '%s' does not", x, g);
		for (size_t s = 0; s <= states; s++) {
			const char *was = s ? n->input[2 + (1 + s) * k + i] : x, *is = bound_to(t, was);

			if (!is || strcmp(is, n->output[s * k + i]))
				return fault(im, n, "'%s' must be bound to the result '%s'", was, n->output[s * k + i]);
			if (s && !begins_with_zeros(im, t, main, was))
				return fault(im, n, "state '%s' must begin with zeros (f32)", was);
		}
		const Value *v = map_get(&im->env, x);
		if (!v || v->kind != VAL_PARAM)
			return fault(im, n, "'%s' is no float initializer of the model", x);
		im->o->told->trained[im->o->told->ntrained++] = v->name;
	}
	return settings(im, n, rate, t0, o);
}

bool onnx_training_info(Import *im, const OnnxModel *p)
{
	const OnnxNode *gradient = NULL;
	const OnnxInfo *t = p->training_info[0];
	const OnnxGraph *g = t->algorithm;
	size_t most = 0, found = 0;
	Optimizer o;

	if (p->n_training_info > 1)
		return fault(im, NULL, "%zu training steps are described; one is supported", p->n_training_info);
	if (!g)
		return fault(im, NULL, "it has no algorithm");
	for (size_t i = 0; i < g->n_node; i++) {
		most += g->node[i]->n_input;
		if (!is_training_op(g->node[i]) || strcmp(g->node[i]->op_type, "Gradient"))
			continue;
		if (gradient)
			return fault(im, g->node[i], "more than one Gradient");
		gradient = g->node[i];
	}
	if (!gradient || !onnx_str(im->a, gradient, "y", NULL))
		return fault(im, gradient, "the algorithm has no Gradient of a loss y");
	*im->o->told = (TrainingTold){ .trained = NEWN(im->a, const char *, most) };
	if (!import_loss(im, g, gradient, onnx_str(im->a, gradient, "y", "")))
		return false;
	for (size_t i = 0; i < g->n_node; i++) {
		if (!is_optimizer(g->node[i]))
			continue;
		if (!read_optimizer(im, t, p->graph, g->node[i], gradient, &o))
			return false;
		if (found++ &&
			(o.kind != im->o->told->opt.kind || memcmp(o.value, im->o->told->opt.value, sizeof o.value)))
			return fault(im, g->node[i], "optimizers with different settings");
		im->o->told->opt = o;
	}
	if (!found)
		return fault(im, NULL, "the algorithm has no Momentum, Adam or Adagrad");
	return im->o->told->present = true;
}
