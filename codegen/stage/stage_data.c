/* The data of a stage's file: structs that lay out the arena, tables of parameters and inputs, constants. */
#include <inttypes.h>
#include <string.h>
#include "ir/analysis.h"
#include "stage.h"

static const Value *root_of(const Value *v) { return v->alias ? v->alias : v; }

/* ---- members ---- */

/* The first member that does not lie before the offset. */
static int place_of(const Struct *l, int64_t offset)
{
	int lo = 0, hi = l->n;

	while (lo < hi) {
		const int mid = lo + (hi - lo) / 2;
		if (l->m[mid].offset < offset)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static Member *member_at(Struct *l, int64_t offset)
{
	const int i = place_of(l, offset);

	return i < l->n && l->m[i].offset == offset ? &l->m[i] : NULL;
}

/* Members are listed by offset; one that lies where another does is the same. */
static void add_member(StageCx *x, Struct *l, const Value *v, const char *wish, int64_t offset, int64_t count)
{
	const int at = place_of(l, offset);

	if (at < l->n && l->m[at].offset == offset)
		return;
	PUSH(x->b->a, l->m, l->n, l->cap) = (Member){ 0 };
	memmove(&l->m[at + 1], &l->m[at], sizeof *l->m * (size_t)(l->n - 1 - at));
	l->m[at] = (Member){ v, names_get(&l->names, v, wish), offset, count, false };
}

static void add_slot(StageCx *x, const Value *v)
{
	if (!v || v->alias || (v->region != REGION_SLOT && v->region != REGION_ENTRY))
		return;
	const int64_t count = type_numel(&v->type);
	add_member(x, &x->layout[v->region], v, value_wish(x->b->a, v), v->offset,
		count ? count : 1); /* one without elements has a place too */
	if (has_tag(x, v))
		member_at(&x->layout[v->region], v->offset)->tag = true;
}

static void add_slots(StageCx *x, const Graph *g)
{
	for (int i = 0; i < g->nin; i++)
		add_slot(x, g->in[i]);
	for (const Node *n = g->first; n; n = n->next)
		for (int i = 0; i < n->nout; i++)
			add_slot(x, n->out[i]);
}

static void add_gradients(StageCx *x)
{
	for (const Node *n = x->s->update->first; n; n = n->next) {
		const Value *v = n->nout ? n->out[0] : NULL;
		if (n->op == OP_Collect)
			add_member(x, &x->layout[REGION_GRADS], v, !strncmp(v->name, "g.", 2) ? v->name + 2 : v->name,
				v->offset, type_numel(&v->type));
		if (n->op == OP_Accumulate)
			add_member(x, &x->layout[REGION_GRADS], v, !strncmp(v->name, "g.", 2) ? v->name + 2 : v->name,
				v->offset, type_numel(&v->type));
		if (n->op == OP_Stack)
			add_member(x, &x->layout[REGION_STACK], v, v->name, v->offset, type_numel(&v->type));
	}
}

static void layout_begin(StageCx *x, int r, const char *tag, const char *pointer, int64_t bytes, const char *what)
{
	x->layout[r] = (Struct){ .tag = tag, .pointer = pointer, .bytes = bytes, .what = what };
	names_init(&x->layout[r].names, x->b->a);
}

void layout_stage(StageCx *x)
{
	const Stage *s = x->s;
	int64_t grads = 0;

	layout_begin(x, REGION_PARAMS, "params", "P", s->bytes[REGION_PARAMS] - s->versions * s->version_bytes,
		"weights and running statistics");
	layout_begin(x, LAYOUT_VERSIONS, "weights", "V", s->version_bytes,
		"weights of which VERSIONS versions are kept: "
		"what a microbatch met is there until its backward");
	layout_begin(x, REGION_STATE, "state", "S", s->bytes[REGION_STATE],
		x->s->forward && rounds(x->s) ? "what the optimizer remembers, and "
						"copies of weights in 16 bits"
					      : "what the optimizer remembers");
	layout_begin(x, REGION_ENTRY, "entry", "E", s->entry_bytes,
		"what forwards receive and backwards send: one per microbatch "
		"in flight and per receive ahead of those");
	layout_begin(x, REGION_SLOT, "kept", "K", s->slot_bytes,
		"what lives from a forward to its backward, what backwards receive "
		"and forwards send: one per microbatch in flight");
	layout_begin(x, REGION_STACK, "rows", "R",
		s->row_copies ? s->bytes[REGION_STACK] / s->row_copies : s->bytes[REGION_STACK],
		"what each microbatch of the step leaves: batch statistics, touched rows");
	for (int i = 0; i < s->nparam; i++) {
		const Region r = s->param[i]->param->kind == PARAM_STATE ? REGION_STATE : REGION_PARAMS;
		const bool several = is_versioned(s, s->param[i]);
		add_member(x, &x->layout[several ? LAYOUT_VERSIONS : (int)r], s->param[i], s->param[i]->name,
			s->param_at[i] - s->at[r] - (several ? s->versions_at : 0), held_count(s->param[i]));
	}
	for (const Node *n = s->forward->first; n; n = n->next)
		for (int i = 0; cast_once(n) && i < n->nout; i++)
			add_member(x, &x->layout[REGION_STATE], n->out[i], n->out[i]->name, n->out[i]->offset,
				held_count(n->out[i]));
	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_Accumulate || n->op == OP_Collect)
			grads += (type_numel(&n->out[0]->type) * dtype_bytes(n->out[0]->type.dtype) + ALIGN - 1) /
			         ALIGN * ALIGN;
	layout_begin(x, REGION_GRADS, "grads", "G", grads, "gradients, summed over the microbatches of a step");
	add_slots(x, s->forward);
	add_slots(x, s->backward);
	if (s->weight)
		add_slots(x, s->weight);
	add_gradients(x);
}

static const char *dims_text(Arena *a, const Member *m)
{
	const Type *t = &m->v->type;
	const char *text = "";

	if (t->rank == 0 || type_numel(t) != m->count)
		return arena_printf(a, "%" PRId64, m->count);
	for (int i = 0; i < t->rank; i++)
		text = arena_printf(a, "%s%s%" PRId64, text,
			i                      ? " * "
			: m->count > INT32_MAX ? "(int64_t)"
					       : "",
			t->dim[i]);
	return text;
}

void write_layout(StageCx *x, Cw *w, int r)
{
	Struct *l = &x->layout[r];
	Arena *a = x->b->a;
	int64_t top = 0;

	if (!l->n)
		return;
	cw_blank(w);
	cw_comment(w, "%s", l->what);
	cw_open(w, "static struct %s", l->tag);
	for (int i = 0; i < l->n; i++) {
		const Member *m = &l->m[i];
		const DType t = m->v->type.dtype;
		if (m->offset != top)
			bug("struct %s: %s lies at %" PRId64 ", the struct puts it at %" PRId64, l->tag, m->name,
				m->offset, top);
		cw_stmt(w, str_type(a, &m->v->type), "_Alignas(%d) %s %s[%s];", ALIGN, dtype_c(t), m->name,
			dims_text(a, m));
		top += (m->count * dtype_bytes(t) + ALIGN - 1) / ALIGN * ALIGN;
		if (m->tag)
			cw_line(w, "_Alignas(%d) pd_tag %s_tag;", ALIGN, m->name);
		top += m->tag ? ALIGN : 0;
	}
	cw_close(w, " *%s;", l->pointer);
	cw_line(w, "_Static_assert(sizeof(struct %s) == %" PRId64 ", \"as planned\");", l->tag, l->bytes);
}

/* ---- tables ---- */

int param_index(const Stage *s, const Value *v)
{
	for (int i = 0; i < s->nparam; i++)
		if (s->param[i] == v)
			return i;
	bug("%s is no parameter of stage %d", v->name, s->id);
}

const char *table_name(const Build *b, const Stage *s, const char *what)
{
	return stage_name(b, s->id, b->chunks ? what : arena_printf(b->a, "stage_%s", what));
}

/* The rank that writes the parameter to files; none (-1) where an earlier stage of the same device has it too, and where
 * servers have pieces of it. */
static int writer_of(const Build *b, const Stage *s, const Value *v)
{
	for (int t = 0; t < s->id; t++)
		for (int i = 0; i < b->m->stage[t]->nparam && b->first_rank[t] == b->first_rank[s->id]; i++)
			if (b->m->stage[t]->param[i] == v)
				return -1;
	return v->param->pieces ? -1 : owner_of(b, v);
}

static const char *dtype_pd(Arena *a, DType t)
{
	char *s = arena_printf(a, "PD_%s", dtype_name(t));

	for (char *p = s; *p; p++)
		*p = (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p);
	return s;
}

static const char *dims_list(Arena *a, const Type *t)
{
	const char *text = "";

	for (int i = 0; i < t->rank; i++)
		text = arena_printf(a, "%s%s%" PRId64, text, i ? ", " : "", t->dim[i]);
	return t->rank ? text : "1";
}

static const char *const kind_name[] = { "PD_WEIGHT", "PD_BUFFER", "PD_STATE" };

/* Of a member of a tensor group; of a replica. */
static const char *shard_text(Arena *a, const Param *p)
{
	const char *pad = p->pad ? arena_printf(a, ", .pad = %" PRId64, p->pad) : "";

	if (p->shard.kind == SHARD_AXIS)
		return arena_printf(a, ", .axis = %d, .blocks = %" PRId64 "%s", p->shard.axis, p->shard.outer, pad);
	return p->pad ? arena_printf(a, ", .axis = %d%s", p->pad_axis, pad) : "";
}

static const char *part_text(Arena *a, const Param *p)
{
	return p->part ? arena_printf(a, ", .part = %" PRId64, p->part) : "";
}

void write_params(StageCx *x, Cw *w)
{
	const Stage *s = x->s;
	Arena *a = x->b->a;

	cw_blank(w);
	cw_open(w, "const pd_param %s[] =", table_name(x->b, s, "params"));
	for (int i = 0; i < s->nparam; i++) {
		const Value *v = s->param[i];
		const bool state = v->param->kind == PARAM_STATE;
		const bool several = is_versioned(s, v);
		const Struct *l = &x->layout[state ? REGION_STATE : several ? LAYOUT_VERSIONS : (int)REGION_PARAMS];
		const Names *names = &l->names;
		const Type *all = state && v->param->part ? &v->param->of->type : &v->type;
		const char *fill = v->param->random || v->param->fill == 0
		                           ? ""
		                           : arena_printf(a, " .fill = %.17g,", v->param->fill);
		cw_line(w,
			"{ .name = %s, .kind = %s, .dtype = %s, .rank = %d, .dim = { %s }, .offset = %" PRId64
			" + offsetof(struct %s, %s),%s .trained = %s, .owner = %d%s },",
			quoted(a, v->param->onnx_name ? v->param->onnx_name : v->name),
			v->param->own ? "PD_OWN" : kind_name[v->param->kind], dtype_pd(a, all->dtype), all->rank,
			dims_list(a, all), s->at[state ? REGION_STATE : REGION_PARAMS] + (several ? s->versions_at : 0),
			l->tag, (const char *)map_get(&names->of, v), fill,
			v->param->kind == PARAM_WEIGHT && !v->param->frozen ? "true" : "false", writer_of(x->b, s, v),
			v->param->part || v->param->pad || v->param->shard.kind == SHARD_AXIS
				? arena_printf(a, "%s%s", shard_text(a, v->param), part_text(a, v->param))
			: v->param->whole ? arena_printf(a, ", .row = %" PRId64 ", .of = %" PRId64, v->param->row,
						    v->param->whole->type.dim[0])
					  : "");
	}
	if (!s->nparam)
		cw_line(w, "{ .name = NULL },");
	cw_close(w, ";");
}

/* The file of an input among n, and its kind; false: it has none. */
static bool input_source(const DataInput *data, int n, const char *name, DataKind *kind, const char **path)
{
	for (int i = 0; i < n; i++)
		if (!strcmp(data[i].input, name)) {
			if (data[i].kind == DATA_UNSAID)
				bug("the data of input %s: nobody knows what %s is", name, data[i].path);
			*path = data[i].path;
			*kind = data[i].kind;
			return true;
		}
	return false;
}

static void write_source(const StageCx *x, Cw *w, const Value *v)
{
	const Training *t = x->b->t;
	Arena *a = x->b->a;
	DataKind kind = t && t->data.kind != DATA_UNSAID ? t->data.kind : DATA_SYNTHETIC;
	DataKind eval = t && t->data.eval.kind != DATA_UNSAID ? t->data.eval.kind : kind;
	const char *path = "";

	if (t && !v->presence)
		input_source(t->data.input, t->data.ninput, v->name, &kind, &path);
	cw_line(w, ".batch_axis = %d, .range = %" PRId64 ", .kind = %s, .path = %s,", v->batch_axis, v->index_range,
		quoted(a, v->presence ? "presence" : setting_word(SET_OF_DataKind, (int)kind)), quoted(a, path));
	if (t && t->data.eval.on && input_source(t->data.eval.data, t->data.eval.ndata, v->name, &eval, &path))
		cw_line(w, ".eval_kind = %s, .eval_path = %s,", quoted(a, setting_word(SET_OF_DataKind, (int)eval)),
			quoted(a, path));
}

void write_inputs(StageCx *x, Cw *w)
{
	const Graph *g = x->s->forward;
	Arena *a = x->b->a;

	cw_blank(w);
	cw_open(w, "const pd_input_desc %s[] =", table_name(x->b, x->s, "inputs"));
	for (int i = 0; i < g->nin; i++) {
		const Value *v = g->in[i];
		cw_brace(w);
		cw_line(w, ".name = %s, .dtype = %s, .rank = %d, .dim = { %s },", quoted(a, v->name),
			dtype_pd(a, v->type.dtype), v->type.rank, dims_list(a, &v->type));
		write_source(x, w, v);
		if (v->masked)
			cw_line(w, ".masked = true,");
		if ((v->is_label || v->masked) && v->ignore_index != INT64_MIN)
			cw_line(w, ".is_label = %s, .ignore_index = %" PRId64 ",", v->is_label ? "true" : "false",
				v->ignore_index);
		else
			cw_line(w, ".is_label = %s, .ignore_index = INT64_MIN,", v->is_label ? "true" : "false");
		cw_close(w, ",");
	}
	if (!g->nin)
		cw_line(w, "{ .name = NULL },");
	cw_close(w, ";");
}

/* ---- constants ---- */

void write_consts(StageCx *x, Cw *w)
{
	if (x->nkonst)
		cw_blank(w);
	for (int i = 0; i < x->nkonst; i++)
		const_write(w, x->konst[i], names_get(&x->names, x->konst[i], x->konst[i]->name), on_gpu(x));
}

/* Part of init: constants of one value. */
void fill_consts(StageCx *x, Cw *w)
{
	for (int i = 0; i < x->nkonst; i++)
		const_fill(w, x->konst[i], names_get(&x->names, x->konst[i], x->konst[i]->name), on_gpu(x));
}

/* ---- values in statements ---- */

static bool listed(const Value **list, int n, const Value *v)
{
	for (int i = 0; i < n; i++)
		if (list[i] == v)
			return true;
	return false;
}

const char *member_text(StageCx *x, const Value *v)
{
	v = root_of(v);
	const Member *m = member_at(&x->layout[v->region == REGION_LEAF ? REGION_GRADS : v->region], v->offset);

	if (!m)
		bug("%s has no member in region %d of stage %d", v->name, v->region, x->s->id);
	return m->name;
}

static const char *in_struct(StageCx *x, const char *pointer, const Value *v)
{
	return arena_printf(x->b->a, "%s->%s", pointer, member_text(x, v));
}

const char *value_text(void *stage_cx, const Value *v)
{
	StageCx *x = stage_cx;
	Arena *a = x->b->a;

	v = root_of(v);
	if (v->kind == VAL_PARAM) {
		const Struct *l = &x->layout[v->param->kind == PARAM_STATE ? REGION_STATE
					     : is_versioned(x->s, v)       ? LAYOUT_VERSIONS
									   : (int)REGION_PARAMS];
		const char *name = map_get(&l->names.of, v);
		if (!name)
			bug("parameter %s is not of stage %d", v->name, x->s->id);
		return arena_printf(a, "%s->%s", is_versioned(x->s, v) ? use(x, NAME_V) : l->pointer, name);
	}
	if (v->kind == VAL_CONST) {
		if (!listed(x->konst, x->nkonst, v))
			PUSH(a, x->konst, x->nkonst, x->capkonst) = v;
		return names_get(&x->names, v, strncmp(v->name, "c.", 2) ? arena_printf(a, "c_%s", v->name) : v->name);
	}
	switch ((Region)v->region) {
	case REGION_GRADS: return in_struct(x, "G", v);
	case REGION_STATE: return in_struct(x, "S", v);
	case REGION_STACK: return in_struct(x, flows(x) ? use(x, NAME_R) : "R", v);
	case REGION_ENTRY: return in_struct(x, use(x, NAME_E), v);
	case REGION_SLOT: return in_struct(x, use(x, NAME_K), v);
	case REGION_LEAF:
	case REGION_TMP:
		if (v->region == REGION_LEAF && !leaf_added(x))
			return in_struct(x, use(x, NAME_G), v);
		if (!listed(x->local, x->nlocal, v))
			PUSH(a, x->local, x->nlocal, x->caplocal) = v;
		return names_get(&x->names, v, value_wish(a, v));
	default: bug("%s of stage %d has no place in memory", v->name, x->s->id);
	}
}

const char *object_text(void *stage_cx, const Node *n)
{
	StageCx *x = stage_cx;
	const char *wish = n->nout && n->out[0] ? n->out[0]->name : optab[n->op]->name;

	return names_get(&x->names, n, arena_printf(x->b->a, "op_%s", wish));
}
