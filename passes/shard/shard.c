/* shard: --tensor N. The graph of forward, backward and update becomes what one of N devices does with its part of the
 * weights: types are those of the parts, and TensorAllReduce, TensorAllGather and TensorShard stand where a value is needed
 * in another form than it is made in. All N devices run the result; what they send between stages and replicas goes from
 * the k-th to the k-th. Megatron's pairs of products (columns, then rows, one sum behind them; Shoeybi 2019) are what the
 * search finds in a transformer; nothing here knows of one.
 *
 * Reads the graph behind autodiff; writes types, shapes in attributes, Param.shard, Module.tensor. */
#include <string.h>
#include "passes/common/plan.h"
#include "shard.h"

typedef struct Rewrite {
	Module *m;
	ShardSearch s;
	Value *(*made)[SHARD_FORMS]; /* by value and form: the value that lies so */
	const char **name;           /* by value: in the graph as it was, and of what is whole in the new one */
	int *made_in;                /* by value: the form in which its node makes it */
	bool again;                  /* --sequence on, behind the forward: what is gathered has been gathered before */
	Diag *d;
} Rewrite;

static Shard *form(Rewrite *r, int value, int k) { return &r->s.forms[value].form[k]; }

static Value *told(Rewrite *r, Builder *b, OpKind op, Value *x, Shard s, int degree, const char *name)
{
	void *attr = attr_new(r->m->arena, op);

	if (op == OP_TensorAllReduce)
		return build(b, op, NULL, 1, &x, name)->out[0];
	*(int64_t *)((char *)attr + op_attr(op, "axis")->offset) = s.axis;
	*(int64_t *)((char *)attr + op_attr(op, "outer")->offset) = s.outer;
	*(int64_t *)((char *)attr + op_attr(op, "degree")->offset) = degree;
	const Node *n = build(b, op, attr, 1, &x, name);
	if (b->failed)
		bug("shard: %s of %s", optab[op]->name, x->name);
	return n->out[0];
}

/* Where another stage reads it the value is made whole behind its maker. */
static Value *tensor_node(Rewrite *r, Node *before, OpKind op, Value *x, Shard s, int degree, const char *name)
{
	const bool border = before->op == OP_Accumulate ||
	                    before->op == OP_Stack || /* it reads what a microbatch makes */
	                    (r->s.tensor_of && x->def && x->def->stage != before->stage);
	Builder b = { r->m, r->m->graph, border ? x->def->next : before, before->loc,
		border ? x->def->phase : before->phase, border ? x->def->stage : before->stage, r->d, false };
	if (border && r->s.tensor_of)
		b.loc = x->def->loc;

	return told(r, &b, op, x, s, degree, name);
}

/* Weights, and sums of gradients, are called the same in parts; of all else the name is that of the whole. */
static bool keeps_name(const Value *v) { return v->kind != VAL_NODE || v->def->phase == PHASE_UPDATE; }

static bool of_forward(const Value *v) { return v->kind == VAL_NODE && v->def->phase == PHASE_FWD; }

/* A form of that kind in which value number i is there; 0: none. */
static int lies(Rewrite *r, int i, ShardKind kind)
{
	for (int k = 1; k < r->s.forms[i].n; k++)
		if (r->made[i][k] && form(r, i, k)->kind == kind)
			return k;
	return 0;
}

/* Value number i in form k, for a node that stands behind `before`. */
static Value *in_form(Rewrite *r, int i, int k, Node *before)
{
	Value **made = r->made[i];
	const char *name = r->name[i];
	const int degree = shard_members(&r->s, r->s.value[i]);
	const bool again = r->again && of_forward(r->s.value[i]) && shard_samples_of(&r->s, i);

	if (made[k])
		return made[k];
	const int parts = lies(r, i, SHARD_AXIS), summands = lies(r, i, SHARD_PARTIAL), from = parts ? parts : summands;
	if (k && !made[0] && !parts && shard_scatters(&r->s, r->s.value[i], k))
		return made[k] = tensor_node(r, before, OP_TensorReduceScatter, made[summands], *form(r, i, k), degree,
			       arena_printf(r->d->scratch, "%s.mine", name));
	if (!made[0])
		made[0] = tensor_node(r, before, parts ? OP_TensorAllGather : OP_TensorAllReduce, made[from],
			*form(r, i, from), degree,
			again                       ? arena_printf(r->d->scratch, "%s.again", name)
			: keeps_name(r->s.value[i]) ? arena_printf(r->d->scratch, "%s.whole", name)
						    : name);
	if (k)
		made[k] = tensor_node(r, before, OP_TensorShard, made[0], *form(r, i, k), degree,
			arena_printf(r->d->scratch, again ? "%s.part.again" : "%s.part", name));
	return made[k];
}

/* Between forward and backward, as the search saw it (shard_kept). */
static void forget(Rewrite *r)
{
	for (int i = 0; i < r->s.nvalue; i++) {
		const Forms *f = &r->s.forms[i];
		unsigned had = 0;

		for (int k = 0; k < f->n; k++)
			had |= r->made[i][k] ? 1u << k : 0;
		const int kept = shard_kept(f, had, r->made_in[i]);
		for (int k = 0; k < f->n && had && of_forward(r->s.value[i]); k++)
			r->made[i][k] = k == kept || !shard_samples_of(&r->s, i) ? r->made[i][k] : NULL;
	}
	r->again = true;
}

/* ---- one node ---- */

static void set_dims(Node *n, const char *name, const Type *t)
{
	const AttrDef *at = op_attr(n->op, name);

	if (at && at->kind == A_INTS && attr_ints(n, name).n == t->rank)
		attr_set_ints(n, name, t->rank, t->dim);
}

/* What attributes say of sizes becomes what the parts have. */
static void localise(Rewrite *r, Node *n, const ShardChoice *c)
{
	const int degree = shard_degree(&r->s, n);

	if (n->nout && n->out[0]) {
		set_dims(n, "dims", &n->out[0]->type);
		if (n->op == OP_Reshape || n->op == OP_Expand) {
			attr_set_ints(n, "shape", n->out[0]->type.rank, n->out[0]->type.dim);
		} else {
			set_dims(n, "shape", &n->out[0]->type);
		}
	}
	if (n->op == OP_Reshape)
		attr_set_int(n, "allowzero", 1);
	if (n->op == OP_Split) {
		int64_t *size = NEWN(r->d->scratch, int64_t, n->nout);
		const Ints whole = attr_ints(n, "split");
		const int64_t axis = attr_int(n, "axis"), at = axis < 0 ? axis + n->in[0]->type.rank : axis;
		int64_t sum = 0;

		for (int i = 0; i < whole.n; i++)
			sum += whole.v[i];
		for (int i = 0; i < whole.n; i++)
			size[i] = whole.v[i] * n->in[0]->type.dim[at] / sum;
		attr_set_ints(n, "split", whole.n, size);
	}
	if ((n->op == OP_Gather || n->op == OP_GatherGrad) && shard_by_rows(n, &r->s, c)) {
		attr_set_int(n, "parts", degree);
		if (n->op == OP_GatherGrad)
			attr_set_int(n, "dim0", n->out[0]->type.dim[0]);
	}
	if (n->op == OP_SoftmaxCrossEntropyLoss || n->op == OP_SoftmaxCrossEntropyLossGrad || n->op == OP_CountHits)
		attr_set_int(n, "parts", degree);
	if (n->op == OP_Dropout)
		dropout_part(n, *form(r, shard_index(n->out[0]), c->out[0]), degree);
	if ((n->op == OP_Attention || n->op == OP_AttentionGrad) && attr_float(n, "ratio") > 0)
		attr_set_int(n, "parts", degree);
	if ((n->op == OP_Attention || n->op == OP_AttentionGrad) && attr_int(n, "heads"))
		attr_set_int(n, "heads", attr_int(n, "heads") / degree);
}

static bool divided(Rewrite *r, const Node *n, const ShardChoice *c)
{
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && form(r, shard_index(n->in[i]), c->in[i])->kind == SHARD_AXIS)
			return true;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && form(r, shard_index(n->out[i]), c->out[i])->kind == SHARD_AXIS)
			return true;
	return false;
}

/* A parameter, and what belongs to it, that is first read in form k lies so for good. */
static void divide_param(Rewrite *r, Value *v, int k)
{
	const int i = shard_index(v);

	for (int f = 0; f < r->s.forms[i].n; f++)
		if (r->made[i][f])
			return;
	r->made[i][k] = v;
	v->param->shard = *form(r, i, k);
	v->param->members = shard_members(&r->s, v);
	v->type = shard_type(&v->type, v->param->shard, v->param->members);
}

/* The products of the parts are summed, then the bias is added, once: the sum lies in form k. */
static void add_bias(Rewrite *r, Node *n, Value *bias, int k)
{
	Builder b = { r->m, r->m->graph, n->next, n->loc, n->phase, n->stage, r->d, false };
	Value *y = n->out[0];
	const int i = shard_index(y);
	Value *sum = told(r, &b, k ? OP_TensorReduceScatter : OP_TensorAllReduce, y, *form(r, i, k),
		shard_degree(&r->s, n), arena_printf(r->d->scratch, "%s.sum", r->name[i]));

	r->made[i][k] = build(&b, OP_Add, NULL, 2, (Value *[]){ sum, bias },
		k ? arena_printf(r->d->scratch, "%s.mine", r->name[i]) : r->name[i])
	                        ->out[0];
}

static void rewrite_node(Rewrite *r, Node *n, const ShardChoice *c)
{
	const bool parts = divided(r, n, c);
	Value *bias = NULL;

	for (int i = 0; i < n->nin; i++) {
		Value *v = n->in[i];

		if (!v)
			continue;
		const int at = shard_index(v);

		if (v->kind == VAL_PARAM)
			divide_param(r, v, c->in[i]);
		v = in_form(r, at, c->in[i], n);
		if (v != n->in[i])
			node_set_input(n, i, v);
	}
	if (c->bias_last) {
		bias = n->in[n->nin - 1];
		node_set_input(n, n->nin - 1, NULL);
		n->nin--;
	}
	for (int i = 0; i < n->nout; i++) {
		Value *v = n->out[i];

		if (!v)
			continue;
		const Shard s = bias ? (Shard){ SHARD_PARTIAL, 0, 0 } : *form(r, shard_index(v), c->out[i]);

		v->type = shard_type(&v->type, s, shard_degree(&r->s, n));
		r->made[shard_index(v)][c->out[i]] = v;
		r->made_in[shard_index(v)] = c->out[i];
		if (s.kind != SHARD_WHOLE && !keeps_name(v))
			value_rename(r->m->graph, v,
				arena_printf(r->d->scratch, s.kind == SHARD_AXIS ? "%s.mine" : "%s.summand", v->name));
	}
	if (n->op == OP_SquareSum && parts)
		attr_set_int(n, "parts", 1);
	if (parts) {
		Type want[MAXIN] = { 0 };

		localise(r, n, c);
		for (int i = 0; i < n->nout && i < MAXIN; i++)
			want[i] = n->out[i] ? n->out[i]->type : want[i];
		if (optab[n->op]->shape && !node_infer(n, r->d))
			bug("shard: the parts of %s do not fit", optab[n->op]->name);
		for (int i = 0; i < n->nout && i < MAXIN; i++)
			if (n->out[i] && !shape_eq(&want[i], &n->out[i]->type))
				bug("shard: a part of %s is %s, not %s", n->out[i]->name,
					str_type(r->d->scratch, &n->out[i]->type), str_type(r->d->scratch, &want[i]));
	}
	if (bias)
		add_bias(r, n, bias, c->out[0]);
}

/* ---- what is told ---- */

static bool divides(const Module *m)
{
	for (int i = 0; i < m->nparam; i++)
		if (m->param[i]->param->shard.kind == SHARD_AXIS)
			return true;
	return false;
}

/* --explain: the nodes that all members do alike, by what their ops allow; views and what is small are not told. */
static void explain(const Rewrite *r, const PassCx *cx, const bool *whole)
{
	const Speed speed = device_speed(cx->cluster, 0);
	double all = 0, alike = 0;

	for (int i = 0; i < r->s.nnode; i++) {
		const double t = node_time(r->s.node[i], &speed);

		all += t;
		alike += whole[i] ? t : 0;
	}
	buf_printf(cx->explain,
		"  tensor %d: %.0f %% of a microbatch's work is done in parts; whole, on every member:\n", r->s.degree,
		all > 0 ? 100 * (1 - alike / all) : 0);
	for (int i = 0; i < r->s.nnode; i++) {
		const Node *n = r->s.node[i];

		if (whole[i] && node_time(n, &speed) > 0.01 * all)
			buf_printf(cx->explain, "    %s %s%s\n", optab[n->op]->name,
				n->loc.name            ? n->loc.name
				: n->nout && n->out[0] ? n->out[0]->name
						       : "",
				optab[n->op]->shard || optab[n->op]->flags & OP_EW
					? ""
					: ", whose op has no rule of division");
	}
}

/* Does a normalisation work on parts of its rows? */
static bool along_sequence(const Rewrite *r, const bool *whole)
{
	for (int i = 0; i < r->s.nnode; i++) {
		const Node *n = r->s.node[i];

		if ((n->op == OP_LayerNormalization || n->op == OP_RMSNormalization) && !whole[i])
			return true;
	}
	return false;
}

static void tell(Rewrite *r, PassCx *cx, const bool *whole)
{
	if (!divides(r->m))
		diag_warn(cx->d, FILELOC(r->m->file), "tensor",
			"--tensor %d divides nothing of this model: no axis of its weights is a multiple of it, or sending the parts would take longer than it saves",
			r->s.degree);
	if (r->s.samples && !along_sequence(r, whole))
		diag_warn(cx->d, FILELOC(r->m->file), "tensor",
			"--sequence on divides nothing of this model: no normalisation of rows whose number in a sample is a multiple of %d",
			r->s.degree);
	if (cx->explain)
		explain(r, cx, whole);
}

/* What users see is whole. */
static void whole_outputs(Rewrite *r)
{
	Graph *g = r->m->graph;
	Node *behind = g->first;

	while (behind && behind->phase == PHASE_FWD)
		behind = behind->next;
	for (int i = 0; i < g->nout; i++)
		if (g->out[i]->mark)
			g->out[i] = in_form(r, shard_index(g->out[i]), 0, behind);
}

/* What a plan file says of stages, where nothing is said of all. */
static const int *sequence_of(const PlanSettings *p) { return p->sequence == SEQUENCE_UNSAID ? p->sequence_of : NULL; }

bool pass_shard(Module *m, PassCx *cx)
{
	const int64_t degree = cx->train ? cx->train->plan.tensor : 0;
	Rewrite r = { .m = m, .d = cx->d, .s = { .arena = cx->scratch, .degree = (int)degree } };
	const Speed speed = device_speed(cx->cluster, 0);
	static const Link memory = { .bandwidth = 8e9, .latency = 2e-6 };
	const Link link = cx->cluster && cx->cluster->ndevice ? cluster_link(cx->cluster, 0, 0) : memory;

	if (degree < 2 && cx->train && cx->train->plan.sequence == SEQUENCE_ON)
		diag_warn(cx->d, FILELOC(m->file), "tensor",
			"--sequence on divides nothing: no devices share a replica; say --tensor 2, or --plan 1x2");
	if (degree < 2)
		return true;
	if (!tensor_allowed(m, cx))
		return false;
	if (m->tensor > 1) /* a text from behind it is divided */
		return m->tensor == degree ||
		       diag_error(cx->d, FILELOC(m->file), 410,
			       "the graph is divided for groups of %d devices, the plan has %lld", m->tensor,
			       (long long)degree);
	m->tensor = (int)degree;
	r.s.tensor_of = m->tensor_of;
	r.s.along = sequence_of(&cx->train->plan);
	r.s.samples = r.s.along || cx->train->plan.sequence == SEQUENCE_ON ? m->batch : 0;
	shard_search(&r.s, m->graph, &speed, &link);
	r.made = arena_alloc(cx->scratch, sizeof *r.made * (size_t)r.s.nvalue);
	bool *whole = NEWN(cx->scratch, bool, r.s.nnode);

	r.made_in = NEWN(cx->scratch, int, r.s.nvalue);
	r.name = NEWN(cx->scratch, const char *, r.s.nvalue);
	for (int i = 0; i < r.s.nvalue; i++)
		r.name[i] = r.s.value[i]->name;
	for (int i = 0; i < r.s.nvalue; i++)
		if (r.s.value[i]->kind == VAL_INPUT || r.s.value[i]->kind == VAL_CONST)
			r.made[i][0] = r.s.value[i];
	for (int i = 0; i < r.s.nnode; i++)
		whole[i] = !divided(&r, r.s.node[i], r.s.choice[i]);
	for (int i = 0; i < r.s.nnode; i++) {
		if (r.s.samples && !r.again && r.s.node[i]->phase == PHASE_BWD) {
			whole_outputs(&r);
			forget(&r);
		}
		rewrite_node(&r, r.s.node[i], r.s.choice[i]);
	}
	if (!r.again)
		whole_outputs(&r);
	shard_unmark(&r.s);
	tell(&r, cx, whole);
	return true;
}
