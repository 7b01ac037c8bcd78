/* The contract of a model (contract.h): read, held against the graph, obeyed. */
#include <stdlib.h>
#include <string.h>
#include "ir/base/buf.h"
#include "contract.h"
#include "torch_calls.h"

typedef struct Reading {
	Arena *a;
	Contract *c;
	const OnnxGraph *g;
	const char *key;
	Loc loc;
	Diag *d;
	Map initializer; /* name -> OnnxTensor */
	Map made;        /* what inputs and nodes define -> the OnnxNode; inputs: themselves */
} Reading;

static bool refuse(Reading *r, const char *says, const char *graph)
{
	return diag_error(r->d, r->loc, 214, "the contract (%s) says %s; %s", r->key, says, graph);
}

/* ---- one line of each key: name, and what stands behind the tab ("" where nothing does) ---- */

static const char *const role_name[] = { "nothing", "a parameter", "a frozen parameter", "a buffer",
	"a running statistic" };

static bool put_role(Reading *r, const char *name, Role role)
{
	const OnnxTensor *t = map_get(&r->initializer, name);
	const Role had = (Role)(intptr_t)map_get(&r->c->role, name);
	const char *says = arena_printf(r->a, "that '%s' is %s", name, role_name[role]);

	if (had)
		return refuse(r, says, arena_printf(r->a, "it also says that it is %s", role_name[had]));
	if (!t)
		return refuse(r, says, "the graph has no initializer of that name");
	if (role != ROLE_BUFFER && !dtype_float(dtype_from_onnx(t->data_type)))
		return refuse(r, says,
			arena_printf(
				r->a, "in the graph its elements are %s", dtype_name(dtype_from_onnx(t->data_type))));
	map_put(&r->c->role, name, (void *)(intptr_t)role);
	return true;
}

static bool l_parameter(Reading *r, const char *name, const char *more)
{
	(void)more;
	return put_role(r, name, ROLE_PARAMETER);
}
static bool l_frozen(Reading *r, const char *name, const char *more)
{
	(void)more;
	return put_role(r, name, ROLE_FROZEN);
}
static bool l_buffer(Reading *r, const char *name, const char *more)
{
	(void)more;
	return put_role(r, name, ROLE_BUFFER);
}
static bool l_statistic(Reading *r, const char *name, const char *more)
{
	(void)more;
	return put_role(r, name, ROLE_STATISTIC);
}

/* The number behind the tab, below `most`. */
static bool number(Reading *r, const char *name, const char *more, int64_t most, const char *what, int64_t *to)
{
	char *end;

	*to = strtoll(more, &end, 10);
	if (end == more || *end || *to < 0)
		return refuse(
			r, arena_printf(r->a, "'%s' of '%s'", more, name), "it must be a number that is not negative");
	return *to < most || refuse(r, arena_printf(r->a, "%s %lld of '%s'", what, (long long)*to, name),
				     arena_printf(r->a, "in the graph there are %lld", (long long)most));
}

static void add(Arena *a, Binding **list, int *n, Binding x)
{
	Binding *v = NEWN(a, Binding, *n + 1);

	if (*n)
		memcpy(v, *list, sizeof x * (size_t)*n);
	v[(*n)++] = x;
	*list = v;
}

static bool l_padding(Reading *r, const char *name, const char *more)
{
	const OnnxTensor *t = map_get(&r->initializer, name);
	int64_t row;

	if (!t)
		return refuse(r, arena_printf(r->a, "that '%s' has a row of padding", name),
			"the graph has no initializer of that name");
	if (!number(r, name, more, t->n_dims ? t->dims[0] : 0, "row", &row))
		return false;
	add(r->a, &r->c->padding, &r->c->npadding, (Binding){ arena_str(r->a, name), 0, row });
	return true;
}

static bool l_batch(Reading *r, const char *name, const char *more)
{
	int64_t axis;

	for (size_t i = 0; i < r->g->n_input; i++) {
		const Onnx__ValueInfoProto *v = r->g->input[i];
		const bool tensor = v->type && v->type->value_case == ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE &&
		                    v->type->tensor_type->shape;

		if (!v->name || strcmp(v->name, name))
			continue;
		if (!number(r, name, more, tensor ? (int64_t)v->type->tensor_type->shape->n_dim : 0, "axis", &axis))
			return false;
		add(r->a, &r->c->batch, &r->c->nbatch, (Binding){ v->name, (int)axis, 0 });
		return true;
	}
	return refuse(r, arena_printf(r->a, "that axis %s of input '%s' is the batch", more, name),
		"the graph has no input of that name");
}

static bool l_stop(Reading *r, const char *name, const char *more)
{
	(void)more;
	if (!map_has(&r->made, name))
		return refuse(
			r, arena_printf(r->a, "that gradients stop at '%s'", name), "no node of the graph makes it");
	map_put(&r->c->stop, name, r->c);
	return true;
}

static bool l_tie(Reading *r, const char *other, const char *name)
{
	const char *says = arena_printf(r->a, "that '%s' is '%s'", other, name);

	if (!map_has(&r->initializer, name))
		return refuse(r, says, arena_printf(r->a, "the graph has no initializer '%s'", name));
	return !map_has(&r->initializer, other) || refuse(r, says, "the graph has an initializer for each");
}

static bool l_mode(Reading *r, const char *module, const char *mode)
{
	if (strcmp(mode, "train") && strcmp(mode, "eval"))
		return refuse(
			r, arena_printf(r->a, "that '%s' is in mode '%s'", module, mode), "there are train and eval");
	map_put(&r->c->mode, module, arena_str(r->a, mode));
	return true;
}

static bool l_version(Reading *r, const char *version, const char *more)
{
	(void)more;
	return strcmp(version, "1") == 0 ||
	       refuse(r, arena_printf(r->a, "version %s", version), "this pdcc reads version 1");
}

static const struct {
	const char *key;
	bool (*line)(Reading *, const char *, const char *);
} keys[] = {
	{ "pdcc.version", l_version },
	{ "pdcc.parameters", l_parameter },
	{ "pdcc.frozen", l_frozen },
	{ "pdcc.buffers", l_buffer },
	{ "pdcc.statistics", l_statistic },
	{ "pdcc.padding", l_padding },
	{ "pdcc.stops", l_stop },
	{ "pdcc.ties", l_tie },
	{ "pdcc.modes", l_mode },
	{ "pdcc.batch", l_batch },
};

/* ---- the whole ---- */

static bool read_key(Reading *r, const char *key, const char *value)
{
	bool ok = true;

	r->key = key;
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		if (strcmp(key, keys[i].key))
			continue;
		r->c->says_batch |= keys[i].line == l_batch;
		for (const char *p = value, *end; *p; p = *end ? end + 1 : end) {
			end = p + strcspn(p, "\n");
			char *line = arena_strn(r->a, p, (size_t)(end - p)), *tab = strchr(line, '\t');

			if (tab)
				*tab = 0;
			if (*line)
				ok &= keys[i].line(r, line, tab ? tab + 1 : "");
		}
		return ok;
	}
	return refuse(r, "something", "this pdcc knows no such key");
}

/* What BatchNormalization reads as its running mean and variance is told to be that or a buffer; nothing else is told to be one. */
static bool check_statistics(Reading *r)
{
	Map read;
	bool ok = true;

	map_init(&read, r->a, true);
	for (size_t i = 0; i < r->g->n_node; i++) {
		const OnnxNode *n = r->g->node[i];

		for (size_t k = 3; k < 5 && k < n->n_input && !strcmp(n->op_type, "BatchNormalization"); k++) {
			const Role role = contract_role(r->c, n->input[k]);

			map_put(&read, n->input[k], r);
			r->key = "pdcc.parameters";
			if (role == ROLE_PARAMETER || role == ROLE_FROZEN)
				ok = refuse(r, arena_printf(r->a, "that '%s' is %s", n->input[k], role_name[role]),
					arena_printf(r->a,
						"node '%s' (BatchNormalization) reads it as a running statistic",
						n->name ? n->name : ""));
		}
	}
	r->key = "pdcc.statistics";
	for (size_t i = 0; i < r->c->role.n; i++) {
		const char *name = r->c->role.slot[i].key;

		if (contract_role(r->c, name) == ROLE_STATISTIC && !map_has(&read, name))
			ok = refuse(r, arena_printf(r->a, "that '%s' is a running statistic", name),
				"no BatchNormalization reads it as one");
	}
	return ok;
}

bool contract_read(Arena *a, const OnnxModel *p, const char *path, const Contract **out, Diag *d)
{
	Reading r = { .a = a, .c = NEW(a, Contract), .g = p->graph, .loc = FILELOC(path), .d = d };
	bool found = false, ok = true;

	*out = NULL;
	for (size_t i = 0; i < p->n_metadata_props; i++)
		found |= p->metadata_props[i]->key && strncmp(p->metadata_props[i]->key, "pdcc.", 5) == 0;
	if (!found)
		return true;
	map_init(&r.c->role, a, true);
	map_init(&r.c->stop, a, true);
	map_init(&r.c->mode, a, true);
	map_init(&r.initializer, a, true);
	map_init(&r.made, a, true);
	for (size_t i = 0; i < r.g->n_initializer; i++)
		if (r.g->initializer[i]->name)
			map_put(&r.initializer, r.g->initializer[i]->name, r.g->initializer[i]);
	for (size_t i = 0; i < r.g->n_node; i++)
		for (size_t k = 0; k < r.g->node[i]->n_output; k++)
			map_put(&r.made, r.g->node[i]->output[k], r.g->node[i]);
	for (size_t i = 0; i < p->n_metadata_props; i++) {
		const Onnx__StringStringEntryProto *e = p->metadata_props[i];

		if (e->key && strncmp(e->key, "pdcc.", 5) == 0)
			ok &= read_key(&r, e->key, e->value ? e->value : "");
	}
	*out = r.c;
	return ok && check_statistics(&r);
}

Role contract_role(const Contract *c, const char *name) { return (Role)(intptr_t)map_get(&c->role, name); }

const char *contract_mode(Arena *a, const Contract *c, const OnnxNode *n)
{
	const char *stat = c && n->n_input > 3 ? n->input[3] : "", *dot = strrchr(stat, '.');

	return dot ? map_get(&c->mode, arena_strn(a, stat, (size_t)(dot - stat))) : NULL;
}

void contract_stop(Import *im, const OnnxNode *n)
{
	const bool detached = torch_detached(im->a, n);

	for (size_t k = 0; (im->contract || detached) && k < n->n_output; k++) {
		const bool stops = detached || map_has(&im->contract->stop, n->output[k]);
		Value *v = stops ? map_get(&im->env, n->output[k]) : NULL;

		if (!v || v->kind == VAL_CONST || !dtype_float(v->type.dtype))
			continue;
		Node *stop = build(&im->b, OP_Identity, NULL, 1, &v, n->output[k]);
		attr_set_int(stop, "detached", 1);
		map_put(&im->env, n->output[k], stop->out[0]);
	}
}

bool contract_padding(Import *im)
{
	bool ok = true;

	for (int i = 0; im->contract && i < im->contract->npadding; i++) {
		const Binding *b = &im->contract->padding[i];
		const Value *table = map_get(&im->env, b->name);
		int hits = 0;

		for (int k = 0; table && k < table->nuses; k++) {
			Node *n = table->uses[k].node;

			if (n->op != OP_Gather || table->uses[k].index)
				continue;
			attr_set_int(n, "padding", b->value);
			hits++;
		}
		if (!hits)
			ok = diag_error(im->d, FILELOC(im->path), 214,
				"the contract (pdcc.padding) says that row %lld of '%s' is padding; no Gather "
				"reads that initializer",
				(long long)b->value, b->name);
	}
	return ok;
}
