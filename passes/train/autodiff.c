/* autodiff: appends the gradient of the loss, the sums over microbatches and the optimizer.
 *
 * One walk over the forward nodes from the last to the first. Each value collects the contributions of its uses, in
 * the order of the walk; when the walk reaches the node that made it they are added (Add of two, Sum of more) and the
 * node's OpDef.grad gives the contributions to its operands. Nothing is built for operands without a trained
 * parameter behind them; what grad built in vain dies in cleanup.
 *
 * A trained parameter's contributions are its parts, one per use. They stay apart until the update: each is
 * accumulated over the microbatches on its own, and the totals are added in one fixed order. So a tied weight whose
 * uses lie in several pipeline stages gets the same bits as on one device.
 *
 *     %g.w = Accumulate(%d.w)            update phase, per part
 *     %g.w.all = Add(%g.w, %g.w.1)       only when there are several
 *     %n = Total()                       what the loss is divided by
 *     @w <- SGD(@w, %g.w, %n) {lr=0.1}
 *
 * The update of BatchNormalization's running statistics (Stack, RunningStat) is in the graph since import. */
#include <fnmatch.h>
#include <string.h>
#include "passes/common/plan.h"
#include "ir/analysis.h"
#include "passes/schedule/schedule.h"
#include "train.h"

/* ops with a float result whose derivative is zero wherever it exists */
static bool flat(OpKind op)
{
	return op == OP_Sign || op == OP_Floor || op == OP_Ceil || op == OP_Round || op == OP_ConstantOfShape ||
	       op == OP_Range;
}

bool grad_flows(const Node *n, int i)
{
	bool to_float = false;

	if (!n->in[i] || !dtype_float(n->in[i]->type.dtype) || (n->op == OP_Identity && attr_int(n, "detached")))
		return false;
	for (int k = 0; k < n->nout; k++)
		to_float |= n->out[k] && dtype_float(n->out[k]->type.dtype);
	if (!to_float)
		return false;
	return optab[n->op]->grad ? op_dgrad(n, i) != NOGRAD : !flat(n->op);
}

typedef struct Contribs {
	Value **v;
	int n, cap;
} Contribs;

typedef struct Ad {
	Module *m;
	PassCx *cx;
	Builder b;
} Ad;

static Contribs *contribs(Ad *ad, Value *v)
{
	if (!v->aux)
		v->aux = NEW(ad->cx->scratch, Contribs);
	return v->aux;
}

static void contribute(Ad *ad, Value *to, Value *dx)
{
	Contribs *c = contribs(ad, to);

	if (!shape_eq(&to->type, &dx->type))
		bug("gradient of %s is %s, the value is %s", to->name, str_type(ad->cx->scratch, &dx->type),
			str_type(ad->cx->scratch, &to->type));
	PUSH(ad->cx->scratch, c->v, c->n, c->cap) = dx;
}

static Value *add_up(Builder *b, Value **v, int n)
{
	if (n == 1)
		return v[0];
	return n == 2 ? mk_binary(b, OP_Add, v[0], v[1]) : build(b, OP_Sum, NULL, n, v, NULL)->out[0];
}

/* Gradient values are called d.NAME; one that has such a name already (it serves two values) keeps it. */
static void name_gradient(Ad *ad, Value *dx, const Value *of)
{
	if (dx->kind == VAL_NODE && dx->def->phase == PHASE_BWD && strncmp(dx->name, "d.", 2) != 0)
		value_rename(ad->m->graph, dx, arena_printf(ad->cx->scratch, "d.%s", of->name));
}

/* The first trained parameter behind operand v, for the message. */
static const Value *param_behind(const Value *v)
{
	while (v->kind == VAL_NODE) {
		const Node *n = v->def;
		int i = 0;
		while (i < n->nin && !(grad_flows(n, i) && n->in[i]->mark))
			i++;
		if (i == n->nin)
			break;
		v = n->in[i];
	}
	return v;
}

static bool node_gradient(Ad *ad, Node *n)
{
	Builder *b = &ad->b;
	const OpDef *op = optab[n->op];
	const int most = op_outs(n->op, n->attr);
	Value **dy = NEWN(ad->cx->scratch, Value *, most > n->nout ? most : n->nout);
	Value **dx = NEWN(ad->cx->scratch, Value *, n->nin);
	int reached = 0, wanted = -1;

	for (int i = n->nin - 1; i >= 0; i--)
		if (grad_flows(n, i) && n->in[i]->mark)
			wanted = i;
	for (int i = 0; i < n->nout; i++)
		reached += n->out[i] && n->out[i]->aux;
	if (!reached || wanted < 0)
		return true;
	if (!op->grad)
		return diag_error(ad->cx->d, n->loc, 312,
			"%s has no gradient; it lies between parameter '%s' and the loss", op->name,
			param_behind(n->in[wanted])->name);
	if (!node_complete(n, ad->cx->d))
		return false;
	b->loc = n->loc;
	Node *last = ad->m->graph->last;
	for (int i = 0; i < n->nout; i++) {
		Contribs *c = n->out[i] ? n->out[i]->aux : NULL;
		if (!c)
			continue;
		dy[i] = add_up(b, c->v, c->n);
		name_gradient(ad, dy[i], n->out[i]);
	}
	op->grad(b, n, dy, dx);
	for (int i = 0; i < n->nin; i++) {
		if (!dx[i] || !grad_flows(n, i) || !n->in[i]->mark)
			continue;
		for (int j = i + 1; j < n->nin; j++) /* one use of x is all that a node makes of it: Mul(x, x) */
			if (n->in[j] == n->in[i] && dx[j] && grad_flows(n, j)) {
				dx[i] = mk_binary(b, OP_Add, dx[i], dx[j]);
				dx[j] = NULL;
			}
		contribute(ad, n->in[i], dx[i]);
		name_gradient(ad, dx[i], n->in[i]);
	}
	for (Node *k = last->next; k; k = k->next)
		k->fwd = n;
	return !b->failed;
}

/* mark: a trained parameter lies behind the value. */
static void mark_needed(Ad *ad)
{
	Module *m = ad->m;

	for (int i = 0; i < m->nparam; i++)
		m->param[i]->mark = m->param[i]->param->kind == PARAM_WEIGHT && !m->param[i]->param->frozen;
	for (Node *n = m->graph->first; n; n = n->next) {
		bool need = false;
		for (int i = 0; i < n->nin; i++)
			need |= grad_flows(n, i) && n->in[i]->mark;
		for (int i = 0; i < n->nout; i++)
			if (n->out[i])
				n->out[i]->mark = need;
	}
}

static void clear(Module *m)
{
	for (int i = 0; i < m->nparam; i++) {
		m->param[i]->mark = 0;
		m->param[i]->aux = NULL;
	}
	for (Node *n = m->graph->first; n; n = n->next)
		for (int i = 0; i < n->nout; i++)
			if (n->out[i]) {
				n->out[i]->mark = 0;
				n->out[i]->aux = NULL;
			}
}

/* ---- the update ---- */

typedef struct Rule {
	OpKind op;
	int nstate;
	const char *state[2];
} Rule;

static const Rule rules[] = {
	[OPT_SGD] = { OP_SGD, 0, { NULL, NULL } },
	[OPT_MOMENTUM] = { OP_Momentum, 1, { "mom", NULL } },
	[OPT_ADAM] = { OP_Adam, 2, { "m", "v" } },
	[OPT_ADAMW] = { OP_AdamW, 2, { "m", "v" } },
	[OPT_RMSPROP] = { OP_RMSProp, 1, { "v", NULL } },
	[OPT_ADAGRAD] = { OP_Adagrad, 1, { "sum", NULL } },
};
static const Rule rmsprop_momentum = { OP_RMSPropMomentum, 2, { "v", "mom" } };

static void put_settings(Node *n, const Optimizer *o, bool decay)
{
	for (int i = 0; i < OPT_SETTINGS; i++) {
		const AttrDef *at = op_attr(n->op, opt_set_name[i]);
		const double v = (i == OPT_DECAY || i == OPT_DECAY_POST) && !decay ? 0 : opt_get(o, (OptSet)i);

		if (at && at->kind == A_INT)
			attr_set_int(n, opt_set_name[i], (int64_t)v);
		else if (at)
			attr_set_float(n, opt_set_name[i], v);
	}
}

static bool no_decay(const Optimizer *o, const Value *p)
{
	for (int i = 0; i < o->nno_decay; i++)
		if (!fnmatch(o->no_decay[i], p->name, 0) ||
			(p->param->onnx_name && !fnmatch(o->no_decay[i], p->param->onnx_name, 0)))
			return true;
	return false;
}

/* The gradient of p, summed over the microbatches: one sum per use that contributes, and their sum. */
static Value *gradient_sum(Ad *ad, Value *p)
{
	const Contribs *parts = p->aux;
	Arena *s = ad->cx->scratch;
	Value **g = NEWN(s, Value *, parts->n);

	p->param->rows = true;
	p->param->mixed = false;
	for (int i = 0; i < parts->n; i++) {
		p->param->rows &= parts->v[i]->type.rows > 0;
		p->param->mixed |= parts->v[i]->type.rows > 0;
		g[i] = mk(&ad->b, OP_Accumulate, NULL, arena_printf(s, "g.%s", p->name), 1, parts->v[i]);
	}
	Value *sum = add_up(&ad->b, g, parts->n);
	if (parts->n > 1)
		value_rename(ad->m->graph, sum, arena_printf(s, "g.%s.all", p->name));
	return sum;
}

static bool update_param(Ad *ad, Value *p, Value *sum, const Optimizer *o, const Rule *rule, Value *total)
{
	Value *in[6];
	int nin = 0;
	const bool average = opt_get(o, OPT_EMA) > 0;

	in[nin++] = p;
	for (int i = 0; i < rule->nstate + average; i++) {
		const char *name = i < rule->nstate ? rule->state[i] : "ema";
		Value *st = module_param(
			ad->m, arena_printf(ad->cx->scratch, "%s:%s", p->name, name), p->type, PARAM_STATE);
		st->param->of = p;
		st->param->pad = p->param->pad;
		st->param->pad_axis = p->param->pad_axis;
		if (i == rule->nstate && p->param->onnx_name && strcmp(p->param->onnx_name, p->name))
			st->param->onnx_name = arena_printf(ad->m->arena, "%s:ema", p->param->onnx_name);
		in[nin++] = st;
	}
	in[nin++] = sum;
	in[nin++] = total;
	Node *n = build(&ad->b, rule->op, NULL, nin, in, NULL);
	put_settings(n, o, !no_decay(o, p));
	attr_set_int(n, "scheduled", rate_varies(&o->rate));
	return !ad->b.failed;
}

/* What the gradient of the loss begins with: 1; for fp16 a power of two that keeps small gradients above the least number. */
static Value *seed(Ad *ad)
{
	if (!amp_scaled(ad->cx->train))
		return const_scalar(ad->m, ad->m->loss->type.dtype, 1);
	Value *v = mk(&ad->b, OP_LossScale, NULL, "loss.scale", 0);
	v->def->fwd = ad->m->loss->def;
	return v;
}

/* What gradients are divided by when their norm over all parameters is limited; sum[i]: the gradient of param i. */
static Value *clipped_total(Ad *ad, Value *total, Value **sum, int nparam, double most)
{
	int trained = 0;

	for (int i = 0; i < nparam; i++) {
		Value *p = ad->m->param[i];

		if (p->param->kind != PARAM_WEIGHT || p->param->frozen || !p->aux)
			continue;
		sum[i] = gradient_sum(ad, p);
		attr_set_int(build(&ad->b, OP_SquareSum, NULL, 2, (Value *[]){ p, sum[i] }, NULL), "index", trained++);
	}
	Node *clip = build(&ad->b, OP_ClipNorm, NULL, 1, &total, "n.clip");
	attr_set_float(clip, "max", most);
	attr_set_int(clip, "scaled", amp_scaled(ad->cx->train));
	attr_set_int(clip, "of", trained);
	return clip->out[0];
}

/* E0314: and which optimizers have it. */
static bool no_setting(Ad *ad, const Optimizer *o, OptSet stray)
{
	const SettingWords w = setting_words(SET_OF_OptKind);
	const char *who = "";

	for (int i = 0; i < w.n; i++)
		if (opt_has((OptKind)setting_value(SET_OF_OptKind, w.word[i]), stray))
			who = arena_printf(ad->cx->scratch, "%s%s%s", who, *who ? ", " : "", w.word[i]);
	return diag_error(ad->cx->d, o->at[stray], 314, "optimizer %s has no setting %s; these have it: %s",
		setting_word(SET_OF_OptKind, opt_kind(o)), opt_set_name[stray], who);
}

static bool append_updates(Ad *ad)
{
	static const Optimizer sgd = { .kind = OPT_SGD };
	const Optimizer *o = ad->cx->train ? &ad->cx->train->model.opt : &sgd;
	const int nparam = ad->m->nparam; /* states are appended behind these */
	const OptKind kind = opt_kind(o);
	const Rule rule = kind == OPT_RMSPROP && opt_get(o, OPT_MU) != 0 ? rmsprop_momentum : rules[kind];
	const int stray = opt_stray(o);
	Value **sum = NEWN(ad->cx->scratch, Value *, nparam);

	if (stray >= 0)
		return no_setting(ad, o, (OptSet)stray);
	if (ad->cx->train && ad->cx->train->data.eval.averages &&
		(schedule_async(ad->cx->train) || target_cuda(ad->cx->train)))
		return diag_error(ad->cx->d, NOLOC, 520,
			"--eval-averages changes weights and averages between two steps, where %s",
			target_cuda(ad->cx->train) ? "programs for GPUs keep both on the device; evaluate an export"
						   : "nothing is flushed");
	ad->b.phase = PHASE_UPDATE;
	ad->b.loc = FILELOC(ad->m->file);
	Node *n = build(&ad->b, OP_Total, NULL, 0, NULL, "n");
	attr_set_int(n, "dtype", dtype_onnx(ad->m->loss->type.dtype));
	optab[OP_Total]->shape(n, ad->cx->d);
	const bool norm = o->clip_norm > 0 || amp_scaled(ad->cx->train) || (ad->cx->train && ad->cx->train->loop.gnorm);
	Value *total = norm ? clipped_total(ad, n->out[0], sum, nparam, o->clip_norm) : n->out[0];
	for (int i = 0; i < nparam; i++) {
		Value *p = ad->m->param[i];
		if (p->param->kind != PARAM_WEIGHT || p->param->frozen)
			continue;
		if (!p->aux)
			p->param->frozen = true; /* an op on its only path gives no gradient to it after all */
		else if (!update_param(ad, p, sum[i] ? sum[i] : gradient_sum(ad, p), o, &rule, total))
			return false;
	}
	return !ad->b.failed;
}

bool pass_autodiff(Module *m, PassCx *cx)
{
	Ad ad = { .m = m, .cx = cx };
	bool ok = true;

	if (m->graph)
		find_loss(m, m->graph);
	if (!m->graph || !m->loss)
		return diag_error(
			cx->d, FILELOC(m->file), 410, "autodiff needs one graph with a loss; run train first");
	ad.b = (Builder){ .m = m, .g = m->graph, .loc = NOLOC, .phase = PHASE_BWD, .stage = -1, .d = cx->d };
	Node *last = m->graph->last;
	mark_needed(&ad);
	if (!m->loss->mark)
		return diag_error(cx->d, FILELOC(m->file), 313, "no trained parameter has a path to the loss");
	contribute(&ad, m->loss, seed(&ad));
	for (Node *n = last; n; n = n->prev)
		ok &= n->phase != PHASE_FWD || node_gradient(&ad, n);
	ok = ok && append_updates(&ad);
	clear(m);
	return ok;
}
