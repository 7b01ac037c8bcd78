/* Loop of a number of iterations that is known when the model is read: written out, the body once per iteration under names
 * of its own. What goes from one to the next are values, sequences among them; what each gives besides is stacked. */
#include <string.h>
#include "frontend/canon/canon.h"
#include "inline.h"

enum { MAXTRIPS = 4096, MAXUNROLLED = 1 << 16 }; /* iterations of a Loop; nodes that the Loops of a model become */

typedef struct Loop {
	const OnnxNode *n;
	const OnnxGraph *body;
	size_t ncarried, nscan;
	int64_t most; /* iterations that the count allows; -1: any number */
	Loc loc;
	Scope scope;     /* of the body's own initializers */
	OnnxGraph plain; /* the body without them */
	Value ***scan;   /* [output][iteration] */
} Loop;

static bool body_of(Import *im, const OnnxNode *n, Loop *l)
{
	const OnnxAttr *x = onnx_attr(n, "body");

	*l = (Loop){ .n = n, .body = x ? x->g : NULL, .most = -1, .loc = im->b.loc };
	if (!l->body)
		return diag_error(im->d, l->loc, 302, "attribute body is missing");
	l->ncarried = n->n_input > 2 ? n->n_input - 2 : 0;
	if (l->body->n_input != l->ncarried + 2)
		return diag_error(im->d, l->loc, 302,
			"the body has %zu inputs; with %zu values that go round it needs %zu", l->body->n_input,
			l->ncarried, l->ncarried + 2);
	if (l->body->n_output != n->n_output + 1 || n->n_output < l->ncarried)
		return diag_error(im->d, l->loc, 302,
			"the body gives %zu values, the node has %zu outputs and %zu values that go round: a condition and "
			"one per output are wanted",
			l->body->n_output, n->n_output, l->ncarried);
	if (l->body->n_sparse_initializer)
		return diag_error(im->d, l->loc, 302, "the body has sparse initializers");
	l->nscan = n->n_output - l->ncarried;
	l->scan = NEWN(im->a, Value **, l->nscan + 1);
	for (size_t i = 0; i < l->nscan; i++)
		l->scan[i] = NEWN(im->a, Value *, MAXTRIPS);
	return true;
}

static bool not_constant(Import *im, const Loop *l, const char *what, const char *name)
{
	diag_error(im->d, l->loc, 302, "%s '%s' of the Loop is not constant: it is written out when the model is read",
		what, name);
	diag_note(im->d, l->loc,
		"make the number of iterations follow from shapes and constants (nn.EmbeddingBag: bags of a 2-D input, or "
		"offsets that are no input; else nn.Embedding, and a sum over each bag under a mask)");
	return false;
}

/* The most iterations, from the operand that counts them. */
static bool count_of(Import *im, Loop *l)
{
	const char *name = l->n->n_input ? l->n->input[0] : "";
	Ints most;

	if (!*name)
		return true;
	if (!onnx_const_ints(im, l->n, 0, &most))
		return not_constant(im, l, "the count", name);
	if (most.n != 1)
		return diag_error(im->d, l->loc, 302, "the count '%s' has %d elements, one is wanted", name, most.n);
	l->most = most.v[0] < 0 ? 0 : most.v[0];
	return true;
}

/* Does it go on? A condition that is absent is true. */
static bool goes_on(Import *im, const Loop *l, const Value *c, const char *name, bool *yes)
{
	*yes = true;
	if (!c && !*name)
		return true;
	if (!c || c->type.dtype != DT_bool || type_numel(&c->type) != 1)
		return diag_error(im->d, l->loc, 302, "the condition '%s' is %s, one bool is wanted", name,
			c ? str_type(im->d->scratch, &c->type) : "a sequence");
	if (c->kind != VAL_CONST || !c->data)
		return not_constant(im, l, "the condition", name);
	*yes = *(const unsigned char *)c->data != 0;
	return true;
}

static int64_t nodes_of(const OnnxGraph *g)
{
	int64_t n = (int64_t)g->n_node;

	for (size_t i = 0; i < g->n_node; i++)
		for (size_t k = 0; k < g->node[i]->n_attribute; k++)
			if (g->node[i]->attribute[k]->g)
				n += nodes_of(g->node[i]->attribute[k]->g);
	return n;
}

/* One more iteration, the i-th, has its place. */
static bool has_room(Import *im, const Loop *l, int64_t i)
{
	const int64_t nodes = nodes_of(l->body);

	im->unrolled += nodes;
	if (i < MAXTRIPS && im->unrolled <= MAXUNROLLED && (l->most < 0 || l->most <= MAXTRIPS))
		return true;
	if (l->most > MAXTRIPS || (l->most < 0 && i >= MAXTRIPS))
		diag_error(im->d, l->loc, 302,
			l->most < 0 ? "the Loop goes on after %lld iterations, the most is %d"
				    : "the Loop has %lld iterations, the most is %d",
			(long long)(l->most < 0 ? i : l->most), MAXTRIPS);
	else
		diag_error(im->d, l->loc, 302,
			"%lld iterations of %lld nodes each: the Loops of the model become more than %d nodes",
			(long long)(l->most < 0 ? i + 1 : l->most), (long long)nodes, MAXUNROLLED);
	diag_note(im->d, l->loc,
		"write what an iteration does as one operator over all of them (a batched product, a "
		"reduction, nn.Embedding and a sum in the place of nn.EmbeddingBag)");
	return false;
}

/* `to` stands for what `from` stands for. */
static void alias(Import *im, const char *to, const char *from)
{
	if (!*to)
		return;
	if (map_has(&im->seq, from))
		map_put(&im->seq, to, map_get(&im->seq, from));
	else
		map_put(&im->env, to, map_get(&im->env, from));
	if (map_has(&im->measured, from))
		map_put(&im->measured, to, im);
}

/* At another batch than the export's: iteration i was there as well. */
static bool was_there(Import *im, const Loop *l, const OnnxGraph *g, int64_t i)
{
	if (!im->shapes || map_has(im->shapes, g->input[0]->name) || map_has(im->shapes, g->input[1]->name))
		return true;
	im->b.loc = l->loc;
	return rebind_refuse(im,
		arena_printf(im->a, "the Loop has an iteration %lld at batch %lld, and none at the export's batch %lld",
			(long long)i, (long long)im->to, (long long)im->from));
}

/* What goes in: the number of the iteration, the condition, what goes round under the names that it has so far. */
static void bind_inputs(Import *im, const Loop *l, const OnnxGraph *g, int64_t i, const char *const *round)
{
	if (*g->input[0]->name)
		map_put(&im->env, g->input[0]->name, const_scalar(im->m, DT_i64, (double)i));
	if (*g->input[1]->name)
		map_put(&im->env, g->input[1]->name, const_scalar(im->m, DT_bool, 1));
	for (size_t k = 0; k < l->ncarried; k++)
		alias(im, g->input[k + 2]->name, round[k]);
}

static bool check_outputs(Import *im, const Loop *l, const OnnxGraph *g)
{
	im->b.loc = l->loc;
	for (size_t k = 0; k < g->n_output; k++) {
		const char *name = g->output[k]->name, *own = l->body->output[k]->name;

		if (!map_has(&im->env, name) && !map_has(&im->seq, name))
			return diag_error(
				im->d, l->loc, 204, "output %zu of body, '%s', is defined nowhere", k, own ? own : "");
		if (k > l->ncarried && !map_has(&im->env, name))
			return diag_error(im->d, l->loc, 302,
				"output %zu of body, '%s', is a sequence: it cannot be stacked", k, own);
	}
	return true;
}

/* Iteration i: its nodes, then what goes round and what is stacked. */
static bool iteration(Import *im, Loop *l, int64_t i, const char **round, bool *more)
{
	Scope s;

	scope_open(&s, &l->scope, arena_printf(im->a, "%s/%lld", inline_prefix(l->n), (long long)i));
	s.node = l->n;
	const OnnxGraph *g = scope_graph(&s, &l->plain);
	if (!has_room(im, l, i) || !was_there(im, l, g, i))
		return false;
	bind_inputs(im, l, g, i, round);
	im->unrolling++;
	const bool ok = inline_nodes(im, g);
	im->unrolling--;
	if (!ok || !check_outputs(im, l, g))
		return false;
	for (size_t k = 0; k < l->ncarried; k++)
		round[k] = g->output[k + 1]->name;
	for (size_t k = 0; k < l->nscan; k++)
		l->scan[k][i] = map_get(&im->env, g->output[k + 1 + l->ncarried]->name);
	return goes_on(im, l, map_get(&im->env, g->output[0]->name), l->body->output[0]->name, more);
}

/* What the last iteration gives is what the Loop gives, by name too. */
static bool give_carried(Import *im, const Loop *l, const char *const *round)
{
	for (size_t k = 0; k < l->ncarried; k++) {
		Value *v = map_get(&im->env, round[k]);

		if (v && v->kind == VAL_NODE && *l->n->output[k] && strcmp(v->name, round[k]) == 0 &&
			strcmp(round[k], l->n->input[k + 2]) != 0)
			value_rename(im->b.g, v, l->n->output[k]);
		alias(im, l->n->output[k], round[k]);
	}
	return true;
}

static bool give_stacked(Import *im, const Loop *l, int64_t trips)
{
	for (size_t k = 0; k < l->nscan; k++) {
		const char *name = l->n->output[l->ncarried + k];

		if (!*name)
			continue;
		if (!trips)
			return diag_error(im->d, l->loc, 302,
				"the Loop has no iteration: what is stacked in '%s' has no shape", name);
		Value *v = canon_stack(im, (int)trips, l->scan[k], 0, true, name);
		if (!v)
			return false;
		map_put(&im->env, name, v);
	}
	return true;
}

bool inline_loop(Import *im, const OnnxNode *n)
{
	Loop l;
	int64_t i = 0;
	bool more;

	if (!body_of(im, n, &l) || !count_of(im, &l))
		return false;
	const char **round = NEWN(im->a, const char *, l.ncarried + 1), *first = n->n_input > 1 ? n->input[1] : "";
	for (size_t k = 0; k < l.ncarried; k++) {
		round[k] = n->input[k + 2];
		if (!*round[k])
			return diag_error(im->d, l.loc, 302, "operand %zu is missing", k + 2);
	}
	if (!goes_on(im, &l, *first ? map_get(&im->env, first) : NULL, first, &more) || !onnx_operators(im, l.body))
		return false;
	inline_root(im, &l.scope, n);
	if (!inline_initializers(im, &l.scope, l.body))
		return false;
	l.plain = *l.body;
	l.plain.n_initializer = 0;
	for (; more && (l.most < 0 || i < l.most); i++)
		if (!iteration(im, &l, i, round, &more))
			return false;
	return give_carried(im, &l, round) && give_stacked(im, &l, i);
}
