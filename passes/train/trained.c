/* What is trained: globs of the settings, paths of the gradient, rows of padding. */
#include "trained.h"
#include <fnmatch.h>
#include "train.h"

static bool glob_matches(const char *glob, const Value *p)
{
	return !fnmatch(glob, p->name, 0) || (p->param->onnx_name && !fnmatch(glob, p->param->onnx_name, 0));
}

static bool any_matches(const char *const *globs, int n, const Value *p)
{
	for (int i = 0; i < n; i++)
		if (glob_matches(globs[i], p))
			return true;
	return false;
}

static bool globs_match_something(const Module *m, const char *key, const char *const *globs, int n, PassCx *cx)
{
	bool ok = true;

	for (int i = 0; i < n; i++) {
		int hits = 0;
		for (int j = 0; j < m->nparam; j++)
			hits += glob_matches(globs[i], m->param[j]);
		if (!hits)
			ok = diag_error(cx->d, FILELOC(m->file), 313,
				"%s: no parameter matches '%s'; there are %s%s (pdcc inspect lists them)", key,
				globs[i], m->nparam ? m->param[0]->name : "none", m->nparam > 1 ? " ..." : "");
	}
	return ok;
}

/* Sets mark on every value through which the gradient of the loss runs. */
static void mark_paths(Module *m)
{
	m->loss->mark = 1;
	for (Node *n = m->graph->last; n; n = n->prev) {
		bool hit = false;
		for (int i = 0; i < n->nout; i++)
			hit |= n->out[i] && n->out[i]->mark;
		for (int i = 0; hit && i < n->nin; i++)
			if (n->in[i] && grad_flows(n, i))
				n->in[i]->mark = 1;
	}
}

static void clear_marks(Module *m)
{
	for (Node *n = m->graph->first; n; n = n->next) {
		for (int i = 0; i < n->nin; i++)
			if (n->in[i])
				n->in[i]->mark = 0;
		for (int i = 0; i < n->nout; i++)
			if (n->out[i])
				n->out[i]->mark = 0;
	}
	m->loss->mark = 0;
}

bool choose_trained(Module *m, PassCx *cx)
{
	const Training *t = cx->train;
	int trained = 0;

	if (t && (!globs_match_something(m, "freeze", t->model.freeze, t->model.nfreeze, cx) ||
			 !globs_match_something(m, "trainable", t->model.trainable, t->model.ntrainable, cx)))
		return false;
	mark_paths(m);
	for (int i = 0; i < m->nparam; i++) {
		Value *v = m->param[i];
		Param *p = v->param;
		p->frozen |= p->kind != PARAM_WEIGHT || !dtype_float(v->type.dtype) || !v->mark;
		if (t && any_matches(t->model.freeze, t->model.nfreeze, v))
			p->frozen = true;
		if (t && t->model.ntrainable && !any_matches(t->model.trainable, t->model.ntrainable, v))
			p->frozen = true;
		trained += !p->frozen;
	}
	clear_marks(m);
	if (!trained)
		return diag_error(cx->d, FILELOC(m->file), 313,
			"nothing to train: no float parameter has a differentiable path to the loss and is not frozen");
	return true;
}

/* What torch's Embedding(padding_idx) does and no ONNX file tells: looking up that row gives it no gradient. */
bool set_padding(Module *m, const Training *t, PassCx *cx)
{
	for (int i = 0; t && i < t->model.npadding; i++) {
		int hits = 0;
		for (Node *n = m->graph->first; n; n = n->next) {
			if (n->op != OP_Gather || n->in[0]->kind != VAL_PARAM ||
				!glob_matches(t->model.padding[i].name, n->in[0]))
				continue;
			attr_set_int(n, "padding", t->model.padding[i].value);
			if (!optab[OP_Gather]->shape(n, cx->d))
				return false;
			hits++;
		}
		if (!hits)
			return diag_error(cx->d, FILELOC(m->file), 313,
				"padding_idx: no Gather reads a parameter that matches '%s'", t->model.padding[i].name);
	}
	return true;
}
