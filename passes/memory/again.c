/* Computing forward values again in the backward: what is changed in a stage for it, and undone where it is only tried.
 *
 * A value that is not kept is made again by copies of the forward nodes that lead to it, down to what lies in the slot
 * anyway: inputs, what was received, what was sent. A copy stands as late as it may, in front of the first backward node
 * that reads it; those that the first backward node wants stand in front of the receives, so that the stage computes
 * while the gradient is on its way. Random numbers are counted by sample and node, so a copied Dropout draws the same
 * mask; running statistics are those of the forward alone, since no Stack reads a copy. */
#include <string.h>
#include "again.h"
#include "ir/analysis.h"
#include "memory.h"

static bool sent(const Value *v)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (u->phase == PHASE_FWD && (u->op == OP_Send || ((optab[u->op]->flags & OP_VIEW) &&
									  v->uses[i].index == 0 && sent(u->out[0]))))
			return true;
	}
	return false;
}

bool again_free(const Stage *s, Value *root)
{
	return root->kind != VAL_NODE || root->def->graph != s->forward || root->def->op == OP_Recv || sent(root);
}

bool again_has(const Again *x, Value *v)
{
	Value *root = value_root(v);

	return again_free(x->s, root) || map_get(&x->kept, root);
}

static int number(Again *x, Graph *g)
{
	int n = 0;

	for (Node *k = g->first; k; k = k->next) {
		AgainNode *a = k->aux = NEW(x->cx->scratch, AgainNode);
		*a = (AgainNode){ .at = n++ };
	}
	return n;
}

void again_begin(Again *x, Module *m, Stage *s, PassCx *cx)
{
	*x = (Again){ .m = m, .s = s, .cx = cx };
	number(x, s->forward);
	x->bwd = NEWN(cx->scratch, Node *, number(x, s->backward));
	for (Node *k = s->backward->first; k; k = k->next)
		x->bwd[x->nbwd++] = k;
	map_init(&x->kept, cx->scratch, false);
	for (int i = 0; i < s->nkeep; i++) {
		Value *root = value_root(s->keep[i]);
		map_put(&x->kept, root, root);
	}
}

void again_end(Again *x)
{
	Graph *g[2] = { x->s->forward, x->s->backward };

	for (int i = 0; i < 2; i++)
		for (Node *k = g[i]->first; k; k = k->next)
			k->aux = NULL;
}

/* ---- what is run again ---- */

/* Sees whether some backward node, or a forward node that is run again, reads an output of n that is not kept, and where
 * the first of them stands. */
static void find_need(const Again *x, const Node *n, AgainNode *a)
{
	a->need = false;
	a->where = x->nbwd;
	for (int o = 0; o < n->nout; o++) {
		Value *v = n->out[o];
		if (!v || again_has(x, v))
			continue;
		for (int i = 0; i < v->nuses; i++) {
			const Node *u = v->uses[i].node;
			const AgainNode *w = u->aux;
			if (!w || (u->phase == PHASE_FWD && !w->need))
				continue;
			const int at = u->phase == PHASE_FWD ? w->where : w->at;
			a->need = true;
			a->where = at < a->where ? at : a->where;
		}
	}
}

double again_need(Again *x)
{
	double time = 0;

	for (Node *n = x->s->forward->last; n; n = n->prev) {
		AgainNode *a = n->aux;
		find_need(x, n, a);
		time += a->need ? n->time : 0;
	}
	return time;
}

/* ---- copies ---- */

static Value *copy_of(const Again *x, Value *v)
{
	if (!v || again_has(x, v) || v->kind != VAL_NODE || v->def->graph != x->s->forward)
		return v;
	return ((AgainNode *)v->def->aux)->copy->out[v->index];
}

static void copy_node(Again *x, Node *n, Node *before)
{
	Value **in = NEWN(x->cx->scratch, Value *, n->nin);
	Builder b = { .m = x->m,
		.g = x->s->backward,
		.before = before,
		.loc = n->loc,
		.phase = PHASE_BWD,
		.stage = x->s->id,
		.d = x->cx->d };

	for (int i = 0; i < n->nin; i++)
		in[i] = copy_of(x, n->in[i]);
	Node *c = build(&b, n->op, n->attr, n->nin, in, NULL);
	c->time = n->time;
	c->scratch = n->scratch;
	c->fwd = n;
	for (int i = 0; i < n->nout; i++) {
		if (!n->out[i] || !c->out[i])
			bug("a copy of %s has other results", optab[n->op]->name);
		c->out[i]->type = n->out[i]->type;
		value_rename(b.g, c->out[i], arena_printf(x->cx->scratch, "re.%s", n->out[i]->name));
	}
	((AgainNode *)n->aux)->copy = c;
	PUSH(x->cx->scratch, x->copy, x->ncopy, x->capcopy) = c;
}

/* Where copies go that the backward node of this place is the first to want: the first that computes lets them stand in
 * front of the receives. */
static Node *place(const Again *x, int where)
{
	int first = 0;

	while (first < x->nbwd && x->bwd[first]->op == OP_Recv)
		first++;
	return where >= x->nbwd ? NULL : where == first ? x->bwd[0] : x->bwd[where];
}

void again_apply(Again *x)
{
	again_need(x);
	for (Node *n = x->s->forward->first; n; n = n->next) {
		const AgainNode *a = n->aux;
		if (a->need)
			copy_node(x, n, place(x, a->where));
	}
	for (int k = 0; k < x->nbwd; k++)
		for (int i = 0; i < x->bwd[k]->nin; i++) {
			Value *old = x->bwd[k]->in[i], *v = copy_of(x, old);
			if (v == old)
				continue;
			PUSH(x->cx->scratch, x->moved, x->nmoved, x->capmoved) = (struct Moved){ x->bwd[k], i, old };
			node_set_input(x->bwd[k], i, v);
		}
	list_kept(x->m, x->s);
}

void again_undo(Again *x)
{
	for (int i = x->nmoved - 1; i >= 0; i--)
		node_set_input(x->moved[i].node, x->moved[i].index, x->moved[i].old);
	for (int i = x->ncopy - 1; i >= 0; i--)
		node_remove(x->copy[i]);
	x->nmoved = x->ncopy = 0;
	list_kept(x->m, x->s);
}

/* ---- the pass ---- */

void again_forget_all(Again *x)
{
	for (size_t i = 0; i < x->kept.n; i++)
		x->kept.slot[i].val = NULL;
}

int64_t recompute_need(Module *m, PassCx *cx, const Stage *of, double *time, double *more)
{
	Again *x = NEWN(cx->scratch, Again, m->nstage);

	*time = *more = 0;
	for (int t = 0; t < m->nstage; t++) {
		Stage *s = m->stage[t];
		if (s->rank != of->rank)
			continue;
		for (int k = 0; k < 2; k++)
			for (const Node *n = (k ? s->backward : s->forward)->first; n; n = n->next)
				*time += n->time;
		again_begin(&x[t], m, s, cx);
		again_forget_all(&x[t]);
		*more += again_need(&x[t]);
		again_apply(&x[t]);
	}
	const int64_t bytes = memplan_device(m, cx, of);
	for (int t = 0; t < m->nstage; t++)
		if (m->stage[t]->rank == of->rank) {
			again_undo(&x[t]);
			again_end(&x[t]);
		}
	return bytes;
}
