/* Measured times: names of nodes, lookup, the file's text. See profile.h. */
#include <inttypes.h>
#include "ir/base/buf.h"
#include "ir/op.h"
#include "profile.h"

const char *const profile_phase[3] = { "forward", "backward", "update" };

const Value *node_known_by(const Node *n)
{
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			return n->out[i];
	return n->nin ? n->in[0] : NULL;
}

bool node_is_timed(const Node *n)
{
	if (n->op == OP_Accumulate || n->op == OP_Stack || n->op == OP_Report || n->op == OP_ReportHits ||
		cast_once(n) || (optab[n->op]->flags & OP_COMM))
		return false;
	return !((optab[n->op]->flags & OP_VIEW) && n->out[0]->alias);
}

static int64_t dense_bytes(const Value *v)
{
	Type t = v->type;

	t.rows = 0;
	return type_bytes(&t);
}

ProfileNode profile_record(Arena *a, const Node *n, const Value *input)
{
	const Value *v = input ? input : node_known_by(n);
	ProfileNode r = { .phase = n ? n->phase : PHASE_FWD,
		.op = n ? optab[n->op]->name : "Input",
		.value = v ? v->name : "",
		.node = n && n->loc.name ? n->loc.name : "",
		.type = v ? str_type(a, &v->type) : "",
		.activation = input ? dense_bytes(input) : 0 };

	for (int i = 0; n && i < n->nout; i++)
		r.activation += n->out[i] ? dense_bytes(n->out[i]) : 0;
	for (int i = 0; n && i < n->nin; i++)
		if (n->in[i] && n->in[i]->kind == VAL_PARAM && n->in[i]->param->kind == PARAM_WEIGHT)
			r.weight += dense_bytes(n->in[i]);
	return r;
}

Profile *profile_expected(Arena *a, const Module *m, const Node ***node)
{
	Profile *p = NEW(a, Profile);
	int cap = 0, n = 0;

	*p = (Profile){ .micro = m->batch };
	*node = NULL;
	for (int t = 0; t < m->nstage; t++) {
		const Graph *g[3] = { m->stage[t]->forward, m->stage[t]->backward, m->stage[t]->update };
		for (int i = 0; i < g[0]->nin; i++) {
			PUSH(a, *node, n, cap) = NULL;
			PUSH(a, p->node, p->nnode, p->capnode) = profile_record(a, NULL, g[0]->in[i]);
		}
		for (int k = 0; k < 3; k++)
			for (const Node *x = g[k]->first; x; x = x->next)
				if (node_is_timed(x)) {
					PUSH(a, *node, n, cap) = x;
					PUSH(a, p->node, p->nnode, p->capnode) = profile_record(a, x, NULL);
				}
	}
	return p;
}

const char *node_kind_text(Arena *a, const Node *n)
{
	Buf b = { 0 };

	buf_puts(&b, optab[n->op]->name);
	print_attributes(&b, n);
	for (int i = 0; i < n->nin; i++)
		buf_printf(&b, "%s%s", i ? "," : "(", n->in[i] ? str_type(a, &n->in[i]->type) : "-");
	buf_puts(&b, n->nin ? ")" : "()");
	for (int i = 0; i < n->nout; i++)
		buf_printf(&b, ",%s", n->out[i] ? str_type(a, &n->out[i]->type) : "-");
	const char *s = arena_str(a, buf_str(&b));
	buf_free(&b);
	return s;
}

static const char *record_key(Arena *a, Phase phase, const char *op, const char *value)
{
	return arena_printf(a, "%s %s %s", profile_phase[phase], op, value);
}

void profile_index(Arena *a, Profile *p)
{
	map_init(&p->of, a, true);
	for (int i = 0; i < p->nnode; i++) {
		const ProfileNode *r = &p->node[i];
		const char *key = record_key(a, r->phase, r->op, r->value);
		if (!map_get(&p->of, key))
			map_put(&p->of, key, (void *)(uintptr_t)r);
	}
}

const ProfileNode *profile_find(const Profile *p, Phase phase, const char *op, const char *value)
{
	Buf b = { 0 };

	buf_printf(&b, "%s %s %s", profile_phase[phase], op, value);
	const ProfileNode *r = map_get(&p->of, buf_str(&b));
	buf_free(&b);
	return r;
}

static void word(Buf *b, const char *key, const char *s)
{
	buf_printf(b, "\"%s\": ", key);
	buf_json(b, s ? s : "");
	buf_puts(b, ", ");
}

void profile_print(Buf *b, const Profile *p)
{
	buf_puts(b, "{\n");
	word(b, "kind", "pdcc profile");
	word(b, "model", p->model);
	buf_printf(b, "\"micro\": %" PRId64 ", \"threads\": %d, \"copies\": %d, ", p->micro, p->threads,
		p->copies > 1 ? p->copies : 1);
	buf_puts(b, "\"device\": ");
	buf_json(b, p->device ? p->device : "");
	buf_puts(b, ",\n\"nodes\": [");
	for (int i = 0; i < p->nnode; i++) {
		const ProfileNode *r = &p->node[i];
		buf_puts(b, i ? ",\n{ " : "\n{ ");
		word(b, "phase", profile_phase[r->phase]);
		word(b, "op", r->op);
		word(b, "value", r->value);
		word(b, "node", r->node);
		word(b, "type", r->type);
		buf_printf(b, "\"threads\": %d, ", r->threads);
		word(b, "device", r->device);
		buf_printf(b, "\"activation\": %" PRId64 ", \"weight\": %" PRId64 ", ", r->activation, r->weight);
		buf_printf(b,
			"\"mean\": %.9g, \"typical\": %.9g, \"p50\": %.9g, \"p99\": %.9g, \"cov\": %.6g, \"n\": %" PRId64
			" }",
			r->mean, r->typical, r->p50, r->p99, r->cov, r->n);
	}
	buf_puts(b, "\n]\n}\n");
}
