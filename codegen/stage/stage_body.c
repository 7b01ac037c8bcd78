/* The functions of a stage's file. A statement per node, from the op's own pattern; around them what moves data:
 *
 *     recv_forward   posts the receives of what a forward reads          send_forward   starts its sends
 *     forward        waits for what it reads, computes, keeps in slot    (and so for the backward)
 *     sync           joins the gradients of all microbatches and replicas
 *     update         optimizer, running statistics
 *
 * Gradients of a microbatch, g, come to their sum, G, in one of three ways: there is only one microbatch, so g is G;
 * the first microbatch of a step writes G, and each gradient of later ones lies in L until it is added; reproducible
 * programs write leaves of a tree whose shape depends on the microbatches alone, and G is its root. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include "ir/analysis.h"
#include "stage.h"

enum { PARALLEL = 32768 }; /* elements from which on threads pay */

bool needs_replica(const StageCx *x)
{
	return x->clears || (round_robin(x) && x->s->replicas > 1) || stage_has(x->s->update, OP_AllGather) ||
	       gathers_weights(x->s);
}

static const char *micro_head(const StageCx *x, const char *name)
{
	return arena_printf(x->b->a, "void %s(%s)", stage_name(x->b, x->s->id, name), micro_args(x));
}

/* The copy that a message uses. */
static const char *copy_of(StageCx *x, const Value *v)
{
	return use(x, v->region == REGION_ENTRY ? NAME_ENTRY : NAME_SLOT);
}

/* ---- nodes ---- */

/* Where the row of this microbatch lies in a Stack. */
static const char *stack_row(StageCx *x, const Node *stack)
{
	return arena_printf(x->b->a, "%s + %s * %" PRId64, value_text(x, stack->out[0]), row_text(x),
		type_numel(&stack->in[0]->type));
}

/* Of a forward on a GPU all rows go there at its end, in one launch, or a few. */
static bool stacked_at_end(const StageCx *x, const Node *stack)
{
	const Value *v = stack->in[0];

	return stack->op == OP_Stack && v->def && v->def->graph == x->s->forward && on_gpu(x) && !x->clocks &&
	       value_bytes(v) % 4 == 0;
}

static void write_stacks(StageCx *x, Cw *w)
{
	bool any = false;

	for (const Node *n = x->s->update->first; n; n = n->next) {
		if (!stacked_at_end(x, n))
			continue;
		if (!any) {
			cw_brace(w);
			cw_open(w, "const pd_many rows[] =");
		}
		any = true;
		cw_line(w, "{ .n = %" PRId64 ", .at = { %s, %s } },", value_bytes(n->in[0]) / 4, stack_row(x, n),
			value_text(x, n->in[0]));
	}
	if (!any)
		return;
	cw_close(w, ";");
	cw_blank(w);
	cw_line(w, "pd_copy_many(rows, (int)(sizeof rows / sizeof *rows));");
	cw_end(w);
}

/* Rows of a Stack that some value of the forward goes to. */
static void write_stack_rows(StageCx *x, Cw *w, const Value *v)
{
	for (int i = 0; i < v->nuses; i++) {
		const Node *u = v->uses[i].node;
		if (u->op == OP_Stack && u->graph == x->s->update && !stacked_at_end(x, u))
			cw_line(w, "%s(%s, %s, %s);", copy_name(x), stack_row(x, u), value_text(x, v),
				bytes_text(x->b->a, v));
	}
}

static void write_node(StageCx *x, Cw *w, const Node *n)
{
	switch (n->op) {
	case OP_Send:
	case OP_Accumulate:
	case OP_Stack:
	case OP_AllReduce:
	case OP_AllGatherv:
	case OP_Broadcast:
	case OP_Push:
	case OP_Collect: return;
	case OP_AllGather: write_gather(x, w, n); return;
	case OP_GatherWeight: write_weights(x, w, n); return;
	case OP_Give:
	case OP_Fetch:
	case OP_Return:
	case OP_Take: write_way(x, w, n); return;
	case OP_Pull: write_pull(x, w, n); return;
	case OP_Recv:
		cw_stmt(w, comment_of(x, n), "pd_wait_recv(%" PRId64 ", %s);", attr_int(n, "channel"),
			copy_of(x, n->out[0]));
		if (schedule_tagged(x->b->m))
			cw_line(w, "pd_tag_read(&%s, %s);", tag_text(x, n->out[0]), use(x, NAME_MB));
		write_told(x, w, n);
		write_stack_rows(x, w, n->out[0]);
		return;
	default:
		if ((optab[n->op]->flags & OP_VIEW) && n->out[0]->alias)
			break;
		const bool block = owned_update(x, w, n);
		write_kernel_node(x, w, n);
		if (block)
			cw_end(w);
		if (x->b->t->loop.check_numerics)
			write_checks(x, w, n);
	}
	write_told(x, w, n);
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			write_stack_rows(x, w, n->out[i]);
}

/* ---- functions ---- */

/* What the gradient of a microbatch that lies at v is added to; NULL: replicas add its parts. */
static const Value *sum_of(const StageCx *x, const Value *v)
{
	for (const Node *n = x->s->update->first; n; n = n->next)
		if (n->op == OP_Accumulate && (n->in[0] == v || n->in[0]->alias == v))
			return attr_int(n, "part") ? NULL : n->out[0];
	bug("%s is added to nothing", v->name);
}

void write_small_adds(StageCx *x, Cw *w)
{
	if (!x->nadding)
		return;
	cw_open(w, "if (done)");
	cw_open(w, "const pd_many rows[] =");
	for (int i = 0; i < x->nadding; i++) {
		const Node *n = x->adding[i];
		cw_line(w, "{ .n = %" PRId64 ", .at = { %s, %s } },", type_numel(&n->out[0]->type),
			value_text(x, n->out[0]), value_text(x, n->in[0]));
	}
	cw_close(w, ";");
	cw_blank(w);
	cw_line(w, "pd_add_many(rows, (int)(sizeof rows / sizeof *rows));");
	cw_end(w);
	x->nadding = 0;
}

/* Behind the node that makes a gradient: the first microbatch of a step has written the sum itself. */
static void write_adds(StageCx *x, Cw *w, const Node *n)
{
	for (int o = 0; o < n->nout; o++)
		for (int i = 0; n->out[o] && i < n->out[o]->nuses; i++) {
			const Node *u = n->out[o]->uses[i].node;
			if (u->op != OP_Accumulate || u->graph != x->s->update || attr_int(u, "part") || lies_in_sum(u))
				continue;
			if (!x->clocks && added_at_end(x->b->t, value_bytes(n->out[o]))) {
				PUSH(x->b->a, x->adding, x->nadding, x->capadding) = u;
				continue;
			}
			if (on_gpu(x))
				cw_line(w, "if (done)");
			cw_line(w, "%s(%s, %s, %" PRId64 ");", on_gpu(x) ? "\tpd_add" : "add_gradient",
				value_text(x, u->out[0]), value_text(x, n->out[o]), type_numel(&n->out[o]->type));
		}
}

/* The nodes up to `end`; in the program with clocks each is timed, with the addition of its gradients. */
static void write_nodes(StageCx *x, Cw *w, const Node *n, const Node *end)
{
	for (; n != end; n = n->next) {
		if (cast_once(n))
			continue;
		if (update_alone(x, n)) {
			n = write_updates(x, w, n, end);
			continue;
		}
		clock_node(x, w, n);
		await_weights(x, w, n);
		write_node(x, w, n);
		if (n->phase == PHASE_BWD && leaf_added(x))
			write_adds(x, w, n);
		clock_end(x, w);
		if (n->phase == PHASE_BWD)
			write_buckets(x, w, n);
		if (n->phase == PHASE_BWD)
			push_owned(x, w, n);
	}
	clock_stop(x, w);
}

void write_some_nodes(StageCx *x, Cw *w, const Graph *g, const bool *wanted)
{
	int i = 0;

	for (const Node *n = g->first; n; n = n->next, i++)
		if (wanted[i])
			write_nodes(x, w, n, n->next);
}

Cw function_body(StageCx *x, Buf *body)
{
	memset(x->used, 0, sizeof x->used);
	x->nlocal = 0;
	x->gathering = NULL;
	return (Cw){ .out = body, .indent = 1 };
}

/* The struct of rows that the function works on. */
static const char *rows_text(const StageCx *x, bool micro)
{
	if (!micro)
		return "copy";
	return round_robin(x) ? "slot"
	                      : arena_printf(x->b->a, "(pd_flow() * MICROBATCHES + mb) / MICROBATCHES %% %" PRId64,
					x->s->row_copies);
}

/* The pointers to structs that the body uses; true: there are some. */
static bool write_structs(StageCx *x, Cw *w, FunctionKind kind, const bool *used)
{
	const bool micro = kind >= FUNCTION_MICRO, v = micro && used[NAME_V], r = used[NAME_R];

	if (v)
		cw_line(w, "struct weights *v = &V[%s %% VERSIONS];",
			kind == FUNCTION_FORWARD ? meet_text(x) : "met[slot]");
	if (used[NAME_E])
		cw_line(w, "struct entry *e = &E[entry];");
	if (used[NAME_K])
		cw_line(w, "struct kept *k = &K[slot];");
	if (r)
		cw_line(w, "struct rows *r = &R[%s];", rows_text(x, micro));
	if (used[NAME_G] && reproducible(x))
		cw_line(w, "struct grads *g = (void *)pd_tree_leaf(tree, %s);", row_text(x));
	else if (used[NAME_G])
		cw_line(w, "struct grads *g = G;");
	return v || r || used[NAME_E] || used[NAME_K] || used[NAME_G];
}

static void write_locals(StageCx *x, Cw *w)
{
	for (int i = 0; i < x->nlocal; i++) {
		const Value *v = x->local[i];
		const bool leaf = v->region == REGION_LEAF;
		const char *at = arena_printf(x->b->a, "(void *)(%s + %" PRId64 ")", leaf ? "L" : "tmp", v->offset);
		if (leaf && sum_of(x, v))
			at = arena_printf(x->b->a, "done ? %s : %s", at, value_text(x, sum_of(x, v)));
		cw_stmt(w, str_type(x->b->a, &v->type), "%s *%s = %s;", dtype_c(v->type.dtype),
			names_get(&x->names, v, value_wish(x->b->a, v)), at);
	}
}

/* Parameters that the body does not use. */
static void write_unused(const StageCx *x, Cw *w, FunctionKind kind, const bool *used)
{
	const bool micro = kind >= FUNCTION_MICRO;

	if (micro && !used[NAME_SLOT] && !used[NAME_K])
		cw_line(w, "(void)slot;");
	if (micro && stage_enters(x->s) && !used[NAME_ENTRY] && !used[NAME_E])
		cw_line(w, "(void)entry;");
	if (kind == FUNCTION_COPY && flows(x) && !used[NAME_COPY] && !used[NAME_R])
		cw_line(w, "(void)copy;");
	if (micro && !used[NAME_MB] && !(used[NAME_G] && reproducible(x) && !round_robin(x)))
		cw_line(w, "(void)mb;");
}

/* A function whose body was written already: the declarations of what it uses come first. */
void write_function(StageCx *x, Cw *w, const char *head, Buf *body, FunctionKind kind)
{
	bool used[NAMES];

	memcpy(used, x->used, sizeof used); /* declarations have names too */
	cw_blank(w);
	cw_func(w, "%s", head);
	if (kind == FUNCTION_BACKWARD)
		write_copy(x, w, arena_printf(x->b->a, "pd_flow() %% %d", late(x) + 1));
	const bool structs = write_structs(x, w, kind, used);
	write_locals(x, w);
	if (structs || x->nlocal)
		cw_blank(w);
	write_unused(x, w, kind, used);
	if (w->pending && body->n)
		buf_putc(w->out, '\n');
	w->pending = 0;
	buf_puts(w->out, buf_str(body));
	cw_end(w);
	buf_free(body);
}

/* The graph whose functions write what a node sends, and whether its receives do. */
static const Graph *writer_of(const StageCx *x, const Node *send, bool *receives)
{
	const Value *v = send->in[0]->alias ? send->in[0]->alias : send->in[0];

	*receives = v->def && v->def->op == OP_Recv;
	return v->def ? v->def->graph : v->kind == VAL_INPUT ? x->s->forward : send->graph;
}

/* Buffers are about to be written again: what was sent from them must be gone. */
static void write_send_waits(StageCx *x, Cw *w, const Graph *g, bool receives)
{
	const Graph *of[] = { x->s->forward, x->s->backward };
	bool received;

	for (int k = 0; k < 2; k++)
		for (const Node *n = of[k]->first; n; n = n->next)
			if (n->op == OP_Send && writer_of(x, n, &received) == g && received == receives)
				cw_line(w, "pd_wait_send(%" PRId64 ", %s);", attr_int(n, "channel"),
					copy_of(x, n->in[0]));
}

/* Of the functions that do something for a microbatch of graph g. */
static FunctionKind kind_of(const StageCx *x, const Graph *g)
{
	return g == x->s->backward ? FUNCTION_BACKWARD : FUNCTION_MICRO;
}

void write_receives(StageCx *x, Cw *w, const Graph *g, const char *name)
{
	Buf body = { 0 };
	Cw in = function_body(x, &body);

	if (!stage_has(g, OP_Recv))
		return;
	write_send_waits(x, &in, g, true);
	for (const Node *n = g->first; n; n = n->next)
		if (n->op == OP_Recv)
			cw_stmt(&in, comment_of(x, n), "pd_irecv(%" PRId64 ", %s, %s, %s, %s, %s);",
				attr_int(n, "channel"), copy_of(x, n->out[0]), peer_text(x, attr_int(n, "from")),
				use(x, NAME_MB), value_text(x, n->out[0]), message_text(x, n->out[0]));
	write_function(x, w, micro_head(x, arena_printf(x->b->a, "recv_%s", name)), &body, kind_of(x, g));
}

void write_sends(StageCx *x, Cw *w, const Graph *g, const char *name)
{
	Buf body = { 0 };
	Cw in = function_body(x, &body);

	if (!stage_has(g, OP_Send))
		return;
	write_tags(x, &in, g);
	for (const Node *n = g->first; n; n = n->next)
		if (n->op == OP_Send)
			cw_stmt(&in, arena_printf(x->b->a, "%%%s", n->in[0]->name),
				"pd_isend(%" PRId64 ", %s, %s, %s, %s, %s);", attr_int(n, "channel"),
				copy_of(x, n->in[0]), peer_text(x, attr_int(n, "to")), use(x, NAME_MB),
				value_text(x, n->in[0]), message_text(x, n->in[0]));
	write_function(x, w, micro_head(x, arena_printf(x->b->a, "send_%s", name)), &body, kind_of(x, g));
}

void write_forward(StageCx *x, Cw *w)
{
	const Graph *g = x->s->forward;
	Buf body = { 0 };

	write_rounding(x, w);
	Cw in = function_body(x, &body);
	if (rounds(x->s)) {
		cw_line(&in, "if (!rounded)");
		cw_line(&in, "\tround_weights();");
	}
	write_send_waits(x, &in, g, false);
	for (int i = 0; i < g->nin; i++) {
		clock_input(x, &in, g->in[i]);
		cw_stmt(&in, arena_printf(x->b->a, "%%%s %s", g->in[i]->name, str_type(x->b->a, &g->in[i]->type)),
			"pd_input(%d, %s, %s);", table_base(x->b, x->s->id, false) + i, use(x, NAME_MB),
			value_text(x, g->in[i]));
		clock_end(x, &in);
	}
	write_nodes(x, &in, g->first, NULL);
	write_stacks(x, &in);
	if (flows(x) && !x->used[NAME_V])
		cw_line(&in, "%s;", meet_text(x));
	write_version(x, &in, NULL);
	write_function(x, w, micro_head(x, "forward"), &body, FUNCTION_FORWARD);
}

/* The type of a stage's gradients: that of its weights. */
DType gradient_type(const StageCx *x)
{
	for (const Node *n = x->s->update->first; n; n = n->next)
		if (n->op == OP_Accumulate)
			return n->out[0]->type.dtype;
	return DT_f32;
}

/* Some gradient of a microbatch is added to a whole sum by a pass of its own. */
static bool adds_gradients(const StageCx *x)
{
	for (const Node *n = x->s->update->first; n; n = n->next)
		if (n->op == OP_Accumulate && !attr_int(n, "part") && !lies_in_sum(n))
			return true;
	return false;
}

static void write_adding(StageCx *x, Cw *w)
{
	const char *t = dtype_c(gradient_type(x));

	if (!leaf_added(x))
		return;
	cw_blank(w);
	cw_stmt(w, "microbatches of this step that are in G", "static int done;");
	if (late_buckets(x))
		cw_stmt(w, "of those that this device does", "static int of_step;");
	if (on_gpu(x) || !adds_gradients(x))
		return;
	cw_blank(w);
	cw_comment(w, "the first microbatch of a step has written the sum itself");
	cw_func(w, "static void add_gradient(%s *sum, const %s *one, int64_t n)", t, t);
	cw_line(w, "if (!done)");
	cw_line(w, "\treturn;");
	cw_line(w, "#pragma omp parallel for simd if (parallel : n >= %d)", PARALLEL);
	cw_line(w, "for (int64_t i = 0; i < n; i++)");
	cw_line(w, "\tsum[i] += one[i];");
	cw_end(w);
}

/* Nodes of the graph that makes a microbatch's gradients. */
static void write_gradients(StageCx *x, Cw *in, const Graph *g)
{
	if (sums_each(x->s) && !leaf_brief(x))
		cw_stmt(in, "of the microbatch before, whose gradients lie in L", "pd_allreduce_wait();");
	write_nodes(x, in, g->first, NULL);
	if (leaf_brief(x))
		cw_stmt(in, "of gradients that lie in tmp", "pd_allreduce_wait();");
	write_small_adds(x, in);
	if (leaf_added(x))
		cw_line(in, "done++;");
	else if (leaf_apart(x))
		cw_line(in, "pd_tree_done(tree, %s);", row_text(x));
}

void write_backward(StageCx *x, Cw *w)
{
	const Graph *g = x->s->backward;
	Buf body = { 0 };
	Cw in = function_body(x, &body);

	write_send_waits(x, &in, g, false);
	if (x->s->weight) {
		write_nodes(x, &in, g->first, NULL);
	} else {
		write_adding(x, w);
		begin_owned(x, &in);
		write_gradients(x, &in, g);
	}
	write_version(x, &in, NULL);
	write_function(x, w, micro_head(x, "backward"), &body, FUNCTION_BACKWARD);
}

void write_weight_part(StageCx *x, Cw *w)
{
	Buf body = { 0 };
	Cw in = function_body(x, &body);

	if (!x->s->weight)
		return;
	write_adding(x, w);
	write_gradients(x, &in, x->s->weight);
	write_function(x, w, micro_head(x, "weight_gradients"), &body, FUNCTION_MICRO);
}

void write_update(StageCx *x, Cw *w)
{
	Buf body = { 0 };
	Cw in = function_body(x, &body);

	write_next(x, &in);
	if (late(x) && x->s->replicas > 1)
		cw_line(&in, "pd_sums_wait();");
	if (has_copies(x))
		write_copy(x, &in, use(x, NAME_COPY));
	const Node *n = x->s->update->first;

	if (x->b->chunks && stage_has(x->s->update, OP_ClipNorm)) { /* its share of the norm, before any stage clips */
		const Node *clip = n;
		while (clip->op != OP_ClipNorm)
			clip = clip->next;
		write_nodes(x, &in, n, clip);
		n = clip;
		write_function(x, w, function_head(x, "void %s(void)", "squares"), &body, FUNCTION_PLAIN);
		in = function_body(x, &body);
	}
	write_nodes(x, &in, n, NULL);
	write_copies_left(x, &in);
	send_owned(x, &in);
	write_function(x, w, function_head(x, flows(x) ? "void %s(int copy)" : "void %s(void)", "update"), &body,
		FUNCTION_COPY);
}
