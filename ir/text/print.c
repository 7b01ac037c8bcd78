/* The text form (.pdir), outwards. parse.c reads it; what it prints and parses again gives the same bytes.
 *
 *     module mlp {batch=16, microbatches=4, ...}
 *     const @c : i64[2] = [1, 2]
 *     param @w : f32[784,256] weight {frozen=1, ...}
 *     graph @mlp (%x : f32[16,784] {batch=0}) -> %loss {
 *     	%h = Gemm(%x, @w) {transA=1} : f32[16,256] !3 "fc1" Gemm {stage=0}
 *     	@w <- SGD(@w, %g) {lr=0.1}
 *     }
 *
 * The last braces of a node hold what passes have found out: phase, stage, time, scratch, where its outputs lie. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/buf.h"
#include "ir/op.h"
#include "ir/schedule.h"
#include "text.h"

const char *const region_name[REGION_COUNT] = { "none", "params", "state", "grads", "leaf", "stack", "entry", "slot",
	"tmp", "scratch" };
const char *const memory_name[3] = { "slot", "entry", "arena" };
const char *const versions_name[3] = { "count", "bytes", "at" };
const char *const param_kind_name[3] = { "weight", "buffer", "state" };
const char *const sync_name[SYNC_KINDS] = { "none", "allreduce", "ps", "allgatherv" };
const char *const action_name[ACT_COUNT] = { "RECV_F", "F", "SEND_F", "RECV_B", "B", "SEND_B", "W", "SYNC", "UPDATE" };
const char *const version_rule_name[VERSION_RULES] = { "flush", "stash", "newest", "vertical", "previous" };

/* ---- words ---- */

bool text_bare(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_./:-$", c));
}

void text_quoted(Buf *b, const char *s)
{
	buf_putc(b, '"');
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			buf_printf(b, "\\%c", c);
		else if (c < ' ' || c == 0x7f)
			buf_printf(b, "\\x%02x", c);
		else
			buf_putc(b, (char)c);
	}
	buf_putc(b, '"');
}

static void word(Buf *b, const char *s)
{
	const char *p = s;

	while (text_bare((unsigned char)*p))
		p++;
	if (*p || p == s)
		text_quoted(b, s);
	else
		buf_puts(b, s);
}

static void value_name(Buf *b, const Value *v)
{
	if (!v) {
		buf_putc(b, '_');
		return;
	}
	buf_putc(b, v->kind == VAL_PARAM || v->kind == VAL_CONST ? '@' : '%');
	word(b, v->name);
}

/* The fewest digits that read back as x. */
void text_real(Buf *b, double x)
{
	char s[40];

	if (isnan(x)) {
		buf_puts(b, "nan");
		return;
	}
	for (int digits = 6; digits <= 17; digits++) {
		snprintf(s, sizeof s, "%.*g", digits, x);
		if (strtod(s, NULL) == x)
			break;
	}
	buf_puts(b, s);
}

static void type(Buf *b, const Type *t)
{
	buf_printf(b, "%s[", dtype_name(t->dtype));
	for (int i = 0; i < t->rank; i++)
		buf_printf(b, "%s%" PRId64, i ? "," : "", t->dim[i]);
	buf_putc(b, ']');
	if (t->layout == LAYOUT_NHWC)
		buf_puts(b, "nhwc");
	if (t->rows)
		buf_printf(b, " rows<=%" PRId64, t->rows);
}

/* ---- {key=value, ...}: `first` tells whether the brace is open already ---- */

static void key(Buf *b, bool *first, const char *name)
{
	buf_printf(b, "%s%s=", *first ? " {" : ", ", name);
	*first = false;
}

static void key_int(Buf *b, bool *first, const char *name, int64_t v)
{
	key(b, first, name);
	buf_printf(b, "%" PRId64, v);
}

static void key_real(Buf *b, bool *first, const char *name, double v)
{
	key(b, first, name);
	text_real(b, v);
}

static void key_word(Buf *b, bool *first, const char *name, const char *v)
{
	key(b, first, name);
	text_quoted(b, v);
}

static void close_keys(Buf *b, bool first)
{
	if (!first)
		buf_putc(b, '}');
}

void print_attributes(Buf *b, const Node *n)
{
	bool first = true;

	for (const AttrDef *d = optab[n->op]->attrs; d && d->name; d++) {
		const void *p = (const char *)n->attr + d->offset;
		const char *s;
		const Ints *x = p;
		const Floats *f = p;

		switch (d->kind) {
		case A_INT:
			if (*(const int64_t *)p != (int64_t)d->def)
				key_int(b, &first, d->name, *(const int64_t *)p);
			break;
		case A_FLOAT:
			if (*(const double *)p != d->def)
				key_real(b, &first, d->name, *(const double *)p);
			break;
		case A_STR:
			s = *(const char *const *)p;
			if (s && strcmp(s, d->sdef ? d->sdef : ""))
				key_word(b, &first, d->name, s);
			break;
		case A_INTS:
			if (!x->n)
				break;
			key(b, &first, d->name);
			for (int i = 0; i < x->n; i++)
				buf_printf(b, "%s%" PRId64, i ? "," : "[", x->v[i]);
			buf_putc(b, ']');
			break;
		case A_FLOATS:
			if (!f->n)
				break;
			key(b, &first, d->name);
			for (int i = 0; i < f->n; i++) {
				buf_puts(b, i ? "," : "[");
				text_real(b, f->v[i]);
			}
			buf_putc(b, ']');
			break;
		case A_END: break;
		}
	}
	close_keys(b, first);
}

/* ---- nodes ---- */

static void location(Buf *b, const Loc *l)
{
	if (l->node < 0 && !l->name && !l->op)
		return;
	buf_printf(b, " !%d", l->node);
	if (l->name) {
		buf_putc(b, ' ');
		text_quoted(b, l->name);
	}
	if (l->op) {
		buf_putc(b, ' ');
		word(b, l->op);
	}
}

/* Where an output lies: slot+64, or =%x when it shares x's memory. */
static void place(Buf *b, bool *first, const Value *v, int i)
{
	char name[24];

	if (!v || (!v->region && !v->alias))
		return;
	snprintf(name, sizeof name, "mem%d", i);
	key(b, first, name);
	buf_printf(b, "%s+%" PRId64, region_name[v->region], v->offset);
	if (v->alias) {
		buf_putc(b, '=');
		value_name(b, v->alias);
	}
}

static void found_out(Buf *b, const Node *n, bool phases)
{
	bool first = true;

	if (phases && n->phase != PHASE_FWD)
		key_word(b, &first, "phase", phase_name[n->phase]);
	if (n->stage >= 0)
		key_int(b, &first, "stage", n->stage);
	if (n->time > 0)
		key_real(b, &first, "time", n->time);
	if (n->scratch)
		key_int(b, &first, "scratch", n->scratch);
	if (n->loc.module)
		key_word(b, &first, "module", n->loc.module);
	for (int i = 0; i < n->nout; i++)
		place(b, &first, n->out[i], i);
	close_keys(b, first);
}

static void node(Buf *b, const Node *n, const char *indent, bool phases)
{
	const OpDef *d = optab[n->op];
	int outs = n->nout;

	buf_puts(b, indent);
	while (outs && !n->out[outs - 1])
		outs--;
	for (int i = 0; i < outs; i++) {
		buf_puts(b, i ? ", " : "");
		value_name(b, n->out[i]);
	}
	if (outs)
		buf_puts(b, " = ");
	if (d->writes) {
		bool first = true;

		for (int i = 0; i < n->nin && i < 32; i++)
			if (node_writes(n) >> i & 1) {
				buf_puts(b, first ? "" : ", ");
				value_name(b, n->in[i]);
				first = false;
			}
		buf_puts(b, " <- ");
	}
	buf_printf(b, "%s(", d->name);
	for (int i = 0; i < n->nin; i++) {
		buf_puts(b, i ? ", " : "");
		value_name(b, n->in[i]);
	}
	buf_putc(b, ')');
	print_attributes(b, n);
	for (int i = 0; i < outs; i++) {
		buf_puts(b, i ? ", " : " : ");
		if (n->out[i])
			type(b, &n->out[i]->type);
		else
			buf_putc(b, '_');
	}
	location(b, &n->loc);
	buf_puts(b, " ;");
	found_out(b, n, phases);
	buf_putc(b, '\n');
}

static void input_facts(Buf *b, const Value *v)
{
	bool first = true;

	if (v->batch_axis >= 0)
		key_int(b, &first, "batch", v->batch_axis);
	if (v->index_range)
		key_int(b, &first, "range", v->index_range);
	if (v->is_label)
		key_int(b, &first, "label", 1);
	if (v->ignore_index != INT64_MIN)
		key_int(b, &first, "ignore", v->ignore_index);
	if (v->masked)
		key_int(b, &first, "masked", 1);
	if (v->presence)
		key_int(b, &first, "presence", 1);
	place(b, &first, v, 0);
	close_keys(b, first);
}

static void graph(Buf *b, const Graph *g, const char *indent, bool phases)
{
	for (int i = 0; i < g->nin; i++) {
		buf_puts(b, i ? ", " : "(");
		value_name(b, g->in[i]);
		buf_puts(b, " : ");
		type(b, &g->in[i]->type);
		input_facts(b, g->in[i]);
	}
	buf_puts(b, g->nin ? ")" : "()");
	for (int i = 0; i < g->nout; i++) {
		buf_puts(b, i ? ", " : " -> ");
		value_name(b, g->out[i]);
	}
	buf_puts(b, " {\n");
	for (const Node *n = g->first; n; n = n->next)
		node(b, n, indent, phases);
	buf_printf(b, "%.*s}\n", (int)strlen(indent) - 1, indent);
}

/* ---- constants and params ---- */

static uint64_t hash_bytes(const void *p, size_t n)
{
	const unsigned char *s = p;
	uint64_t h = 0xcbf29ce484222325u;

	for (size_t i = 0; i < n; i++)
		h = (h ^ s[i]) * 0x100000001b3u;
	return h;
}

static void element(Buf *b, DType t, const void *data, int64_t i)
{
	switch (t) {
	case DT_f32: text_real(b, (double)((const float *)data)[i]); break;
	case DT_f64: text_real(b, ((const double *)data)[i]); break;
	case DT_i8: buf_printf(b, "%d", ((const int8_t *)data)[i]); break;
	case DT_i16: buf_printf(b, "%d", ((const int16_t *)data)[i]); break;
	case DT_i32: buf_printf(b, "%" PRId32, ((const int32_t *)data)[i]); break;
	case DT_i64: buf_printf(b, "%" PRId64, ((const int64_t *)data)[i]); break;
	case DT_u8:
	case DT_f8e4m3:
	case DT_f8e5m2:
	case DT_bool: buf_printf(b, "%u", ((const uint8_t *)data)[i]); break;
	case DT_u16:
	case DT_f16:
	case DT_bf16: buf_printf(b, "%u", ((const uint16_t *)data)[i]); break;
	case DT_u32: buf_printf(b, "%" PRIu32, ((const uint32_t *)data)[i]); break;
	case DT_u64: buf_printf(b, "%" PRIu64, ((const uint64_t *)data)[i]); break;
	case DT_NONE:
	case DT_COUNT: break;
	}
}

static void constant(Buf *b, const Value *v, const PrintOpt *o)
{
	int64_t n = type_numel(&v->type);

	buf_puts(b, "const ");
	value_name(b, v);
	buf_puts(b, " : ");
	type(b, &v->type);
	buf_puts(b, " = ");
	if (!v->data || n > (o ? o->elide : 16)) {
		buf_printf(b, "elided %016" PRIx64 "\n",
			v->data ? hash_bytes(v->data, (size_t)type_bytes(&v->type)) : v->hash);
		return;
	}
	buf_putc(b, '[');
	for (int64_t i = 0; i < n; i++) {
		buf_puts(b, i ? ", " : "");
		element(b, v->type.dtype, v->data, i);
	}
	buf_puts(b, "]\n");
}

static void param(Buf *b, const Module *m, const Value *v)
{
	const Param *p = v->param;
	bool first = true;

	buf_puts(b, "param ");
	value_name(b, v);
	buf_puts(b, " : ");
	type(b, &v->type);
	buf_printf(b, " %s", param_kind_name[p->kind]);
	if (p->sync)
		key_word(b, &first, "sync", sync_name[p->sync]);
	if (p->frozen)
		key_int(b, &first, "frozen", 1);
	if (p->rows)
		key_int(b, &first, "rows", 1);
	if (p->own)
		key_int(b, &first, "own", 1);
	if (p->is_mean)
		key_int(b, &first, "mean", 1);
	if (p->is_var)
		key_int(b, &first, "var", 1);
	if (p->fill != 0)
		key_real(b, &first, "fill", p->fill);
	if (p->random)
		key_int(b, &first, "random", p->random);
	if (p->onnx_name && strcmp(p->onnx_name, v->name))
		key_word(b, &first, "onnx", p->onnx_name);
	if (p->of) {
		key(b, &first, "of");
		value_name(b, p->of);
	}
	if (p->shard.kind == SHARD_AXIS) {
		key_int(b, &first, "shard", p->shard.axis);
		if (p->shard.outer > 1)
			key_int(b, &first, "blocks", p->shard.outer);
		if (m->tensor_of)
			key_int(b, &first, "members", p->members);
	}
	if (p->pad) {
		key_int(b, &first, "pad", p->pad);
		key_int(b, &first, "padded", p->pad_axis);
	}
	if (p->part)
		key_int(b, &first, "part", p->part);
	if (p->pieces)
		key_int(b, &first, "pieces", p->pieces);
	if (p->whole) {
		key(b, &first, "whole");
		value_name(b, p->whole);
		key_int(b, &first, "row", p->row);
	}
	close_keys(b, first);
	buf_putc(b, '\n');
}

/* ---- stages and the schedule ---- */

static void int_list(Buf *b, const char *name, int n, const int *v)
{
	buf_printf(b, "\t%s", name);
	for (int i = 0; i < n; i++)
		buf_printf(b, "%s%d", i ? ", " : " ", v[i]);
	buf_putc(b, '\n');
}

static void long_list(Buf *b, const char *name, int n, const int64_t *v)
{
	buf_printf(b, "\t%s", name);
	for (int i = 0; i < n; i++)
		buf_printf(b, "%s%" PRId64, i ? ", " : " ", v[i]);
	buf_putc(b, '\n');
}

/* "params=0 grads=64"; all: those that are 0 too. */
static void labelled(Buf *b, const char *what, int n, const char *const *name, const int64_t *v, bool all)
{
	buf_printf(b, "\t%s", what);
	for (int i = 0; i < n; i++)
		if (all || v[i])
			buf_printf(b, " %s=%" PRId64, name[i], v[i]);
	buf_putc(b, '\n');
}

static void value_list(Buf *b, const char *name, int n, Value *const *v)
{
	if (!n)
		return;
	buf_printf(b, "\t%s ", name);
	for (int i = 0; i < n; i++) {
		buf_puts(b, i ? ", " : "");
		value_name(b, v[i]);
	}
	buf_putc(b, '\n');
}

/* rank: that of its replica 0 where every stage has devices of its own. */
static void stage(Buf *b, const Stage *s, int rank)
{
	buf_printf(b, "stage %d on", s->id);
	for (int i = 0; i < s->replicas; i++)
		buf_printf(b, "%s %d", i ? "," : "", s->device ? s->device[i] : i);
	if (s->server)
		buf_puts(b, " server");
	if (s->rank != rank)
		buf_printf(b, " rank %d", s->rank);
	buf_printf(b, " inflight %d", s->inflight);
	if (s->entries > s->inflight)
		buf_printf(b, " entries %d", s->entries);
	buf_puts(b, " {\n");
	value_list(b, "params", s->nparam, s->param);
	if (s->param_at) {
		long_list(b, "params_at", s->nparam, s->param_at);
		labelled(b, "regions_at", REGION_COUNT - 1, region_name + 1, s->at + 1, true);
		labelled(b, "regions_bytes", REGION_COUNT, region_name, s->bytes, false);
		labelled(b, "memory", 3, memory_name, (int64_t[]){ s->slot_bytes, s->entry_bytes, s->arena }, true);
		if (s->versions)
			labelled(b, "versions", 3, versions_name,
				(int64_t[]){ s->versions, s->version_bytes, s->versions_at }, true);
	}
	Graph *g[4];
	const int n = stage_graphs(s, g);
	for (int i = 0; i < n; i++) {
		buf_printf(b, "\t%s ", g[i]->name);
		graph(b, g[i], "\t\t", false);
	}
	value_list(b, "keep", s->nkeep, s->keep);
	buf_puts(b, "}\n");
}

static void turns(Buf *b, const DeviceSchedule *d)
{
	buf_puts(b, "\tturn");
	for (int i = 0; i < d->nturn; i++) {
		const Turn *t = &d->turn[i];

		buf_printf(b, " %s%d", action_name[t->kind], t->mb);
		if (t->nth)
			buf_printf(b, "@%d", t->nth);
		if (t->lag)
			buf_printf(b, "~%d", t->lag);
		if (t->once)
			buf_putc(b, '!');
	}
	buf_putc(b, '\n');
}

static void schedule(Buf *b, const Schedule *s)
{
	buf_printf(
		b, "schedule %s stages %d microbatches %d devices %d {\n", s->name, s->nstage, s->nmicro, s->ndevice);
	int_list(b, "replicas", s->nstage, s->replicas);
	int_list(b, "inflight", s->nstage, s->inflight);
	int_list(b, "entries", s->nstage, s->entries);
	if (s->async) {
		buf_printf(b, "\tasync %s%s per_step %d late %d lag %d\n", version_rule_name[s->rule],
			s->robin ? " robin" : "", s->per_step, s->late, s->lag);
		int_list(b, "depth", s->nstage, s->depth);
		int_list(b, "versions", s->nstage, s->versions);
	}
	for (int i = 0; i < s->nstage; i++)
		int_list(b, "ranks", s->replicas[i], s->device[i]);
	for (int i = 0; i < s->nstage; i++)
		int_list(b, "replica_of", s->nmicro, s->replica_of[i]);
	for (int r = 0; r < s->ndevice; r++) {
		buf_puts(b, "\tdevice");
		for (int i = 0; i < s->dev[r].n; i++) {
			const Action *x = &s->dev[r].act[i];

			buf_printf(b, " %d%s", x->stage, action_name[x->kind]);
			if (x->mb >= 0)
				buf_printf(b, "%d", x->mb);
			if (x->slot)
				buf_printf(b, "@%d", x->slot);
			if (x->entry)
				buf_printf(b, "+%d", x->entry);
			if (x->version)
				buf_printf(b, "~%d", x->version);
		}
		buf_putc(b, '\n');
		if (s->async)
			turns(b, &s->dev[r]);
	}
	buf_puts(b, "}\n");
}

/* "4-8": by stage. */
static const char *groups(const Module *m)
{
	const char *s = "";

	for (int t = 0; t < m->ntensor_of; t++)
		s = arena_printf(m->arena, "%s%s%d", s, t ? "-" : "", m->tensor_of[t]);
	return s;
}

void module_print(Buf *b, const Module *m, const PrintOpt *o)
{
	bool first = true;

	buf_puts(b, "module ");
	word(b, m->name);
	if (m->file) /* without its folder: the text is the same wherever the model lies */
		key_word(b, &first, "file", strrchr(m->file, '/') ? strrchr(m->file, '/') + 1 : m->file);
	if (m->opset)
		key_int(b, &first, "opset", m->opset);
	if (m->batch)
		key_int(b, &first, "batch", m->batch);
	if (m->export_batch)
		key_int(b, &first, "export_batch", m->export_batch);
	if (m->microbatches)
		key_int(b, &first, "microbatches", m->microbatches);
	if (m->tensor > 1)
		key_int(b, &first, "tensor", m->tensor);
	if (m->tensor_of)
		key_word(b, &first, "tensors", groups(m));
	if (m->grains)
		key_int(b, &first, "grains", m->grains);
	if (m->step_time > 0) { /* an estimate: as many digits as the programs print */
		key(b, &first, "step_time");
		buf_printf(b, "%.3g", m->step_time);
	}
	if (m->has)
		key_word(b, &first, "has", text_facts(m->arena, m->has));
	close_keys(b, first);
	buf_putc(b, '\n');
	for (int i = 0; i < m->nkonst; i++)
		if (m->konst[i]->nuses)
			constant(b, m->konst[i], o);
	for (int i = 0; i < m->nparam; i++)
		param(b, m, m->param[i]);
	if (m->graph) {
		buf_puts(b, "graph @");
		word(b, m->graph->name);
		buf_putc(b, ' ');
		graph(b, m->graph, "\t", true);
	}
	for (int i = 0, rank = 0; i < m->nstage; rank += m->stage[i++]->replicas)
		stage(b, m->stage[i], rank);
	if (m->loss && m->graph) {
		buf_puts(b, "loss ");
		value_name(b, m->loss);
		if (m->count) {
			buf_puts(b, " count ");
			value_name(b, m->count);
		}
		buf_putc(b, '\n');
	}
	if (m->schedule)
		schedule(b, m->schedule);
}
