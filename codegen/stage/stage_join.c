/* Between the microbatches and the update: what replicas and the holders of tied weights join. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include "stage.h"

static const char *sum_name(DType t) { return t == DT_f64 ? "pd_allreduce_f64" : "pd_allreduce"; }

static void write_rows(StageCx *x, Cw *w, const Node *n)
{
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];
		const int64_t row = type_numel(&v->type) / schedule_grains(x->b->m->schedule, x->s->id);
		x->clears = true;
		cw_line(w, "clear_rows(%s, %" PRId64 ");", value_text(x, v), row);
		cw_line(w, "%s(%s, %s, %" PRId64 ");", sum_name(v->type.dtype), group_text(x), value_text(x, v),
			type_numel(&v->type));
	}
}

static void write_broadcast(StageCx *x, Cw *w, const Node *n)
{
	const Ints ranks = attr_ints(n, "ranks");

	cw_stmt(w, comment_of(x, n), "pd_broadcast(&(pd_group){ %d, (const int[]){ %s } }, %" PRId64 ", %s, %s);",
		ranks.n, ranks_text(x->b->a, ranks), attr_int(n, "root"), value_text(x, n->out[0]),
		bytes_text(x->b->a, n->out[0]));
}

/* Rows of microbatches that other replicas did are zero, so that the sum over the replicas joins all rows. */
static void write_clear_rows(StageCx *x, Cw *w, DType t)
{
	cw_blank(w);
	cw_func(w, "static void clear_rows(%s *rows, size_t n)", dtype_c(t));
	cw_line(w, "for (int mb = 0; mb < MICROBATCHES; mb++)");
	cw_line(w, "\tif (%s != %d + replica)", peer_text(x, x->s->id), x->b->first_rank[x->s->id]);
	cw_line(w, "\t\t%s(rows + (size_t)mb * n, 0, n * sizeof *rows);", fill_name(x));
	cw_end(w);
}

/* In capitals: names of the runtime's constants. */
static const char *upper(Arena *a, const char *s)
{
	char *out = arena_str(a, s);

	for (char *c = out; *c; c++)
		*c = (char)toupper((unsigned char)*c);
	return out;
}

static const Value *residual_of(StageCx *x, const Value *gradient)
{
	const char *name = residual_name(x->b->a, gradient);

	for (int i = 0; i < x->s->nparam; i++)
		if (!strcmp(x->s->param[i]->name, name))
			return x->s->param[i];
	bug("gradient %s has no residual", gradient->name);
}

/* Where the residuals of a sum begin, which lie as its gradients do. */
static const char *residual_text(StageCx *x, const Node *n)
{
	const Value *first = residual_of(x, n->in[0]);
	const int at = param_index(x->s, first);

	for (int i = 1; i < n->nin; i++)
		if (x->s->param_at[param_index(x->s, residual_of(x, n->in[i]))] - x->s->param_at[at] !=
			n->in[i]->offset - n->in[0]->offset)
			bug("the residual of %s does not lie as the gradient does", n->in[i]->name);
	return value_text(x, first);
}

/* What pd_allreduce_start is told of a sum. */
static const char *how_text(StageCx *x, const Node *n)
{
	const char *codec = attr_str(n, "codec"), *by = attr_str(n, "by");

	if (strcmp(codec, "none"))
		return arena_printf(x->b->a, "&(pd_sum){ .by = PD_SUM_%s, .codec = PD_CODEC_%s, .block = %d%s%s }",
			upper(x->b->a, by), upper(x->b->a, codec), (int)attr_int(n, "block"),
			attr_int(n, "feedback") ? arena_printf(x->b->a, ", .residual = %s", residual_text(x, n)) : "",
			attr_int(n, "guard") ? ", .guard = true" : "");
	if (!strcmp(by, "hosts"))
		return "&(pd_sum){ .by = PD_SUM_HOSTS, .host = hosts }";
	return strcmp(by, "auto") ? arena_printf(x->b->a, "&(pd_sum){ .by = PD_SUM_%s }", upper(x->b->a, by)) : "NULL";
}

/* The host of each replica, as a number. */
const char *hosts_text(const StageCx *x)
{
	const char *list = "";

	for (int r = 0; r < x->s->replicas; r++)
		list = arena_printf(x->b->a, "%s%s%d", list, r ? ", " : "", x->b->c->device[x->s->device[r]].host);
	return list;
}

bool sums_by(const StageCx *x, const char *by)
{
	for (const Node *n = x->s->update->first; n; n = n->next)
		if (n->op == OP_AllReduce && !reproducible(x) && !strcmp(attr_str(n, "by"), by))
			return true;
	return false;
}

bool has_buckets(const StageCx *x)
{
	for (const Node *n = x->s->update->first; n; n = n->next)
		if (n->op == OP_AllReduce && attr_int(n, "bucket") >= 0)
			return true;
	return false;
}

bool late_buckets(const StageCx *x)
{
	for (const Node *n = x->s->update->first; n; n = n->next)
		if (n->op == OP_AllReduce && attr_int(n, "bucket") >= 0 && !attr_int(n, "each"))
			return true;
	return false;
}

/* Of a bucket, the gaps between its gradients too. */
static int64_t bucket_floats(const Node *sum)
{
	const Value *first = sum->in[0], *last = sum->in[sum->nin - 1];
	const int64_t end = last->offset + (4 * type_numel(&last->type) + 63) / 64 * 64;

	return (end - first->offset) / 4;
}

static const char *sum_text(StageCx *x, const Node *k)
{
	return attr_int(k, "parts")
	               ? arena_printf(x->b->a, "pd_scatter_start(%s, (float *)G, %s);", group_text(x), parts_args(x, k))
	               : arena_printf(x->b->a, "pd_allreduce_start(%s, (float *)G + %" PRId64 ", %" PRId64 ", %s);",
				 group_text(x), k->in[0]->offset / 4, bucket_floats(k), how_text(x, k));
}

/* Sums of buckets whose last gradient node n makes begin behind the last backward's n; NULL: all, where there is none. */
void write_buckets(StageCx *x, Cw *w, const Node *n)
{
	if (!x->behind.arena) {
		map_init(&x->behind, x->b->a, false);
		for (const Node *k = x->s->update->first; k; k = k->next)
			if (k->op == OP_AllReduce)
				map_put(&x->behind, k, bucket_node(x->s, k));
	}
	for (size_t i = 0; i < x->behind.n; i++) {
		const Node *k = x->behind.slot[i].key;
		if (attr_int(k, "bucket") < 0 || (n && x->behind.slot[i].val != n))
			continue;
		const Value *first = k->in[0], *last = k->in[k->nin - 1];
		write_small_adds(x, w);
		cw_comment(w, "bucket %" PRId64 ": %%%s%s%s", attr_int(k, "bucket"), first->name,
			first == last ? "" : " to %", first == last ? "" : last->name);
		if (attr_int(k, "each")) {
			if (attr_int(k, "bucket") > 0)
				cw_line(w, "pd_allreduce_wait();");
			cw_line(w, "pd_scatter_add(%s, (float *)G, (float *)(void *)%s, %s, done > 0);", group_text(x),
				leaf_brief(x) ? "tmp" : "L", parts_args(x, k));
			continue;
		}
		if (leaf_added(x))
			cw_line(w, "if (done + 1 == of_step)");
		cw_line(w, "%s%s", leaf_added(x) ? "\t" : "", sum_text(x, k));
	}
}

/* Is this sum begun, and waited for later? Else a call makes it. */
static bool starts(const StageCx *x, const char *how)
{
	return gradient_type(x) != DT_f64 && (late(x) || strcmp(how, "NULL"));
}

/* Of all that is summed at once. */
static const char *sum_floats(StageCx *x)
{
	const char *kept = kept_floats(x);

	return kept ? kept : arena_printf(x->b->a, "sizeof *G / sizeof(%s)", dtype_c(gradient_type(x)));
}

/* Sums that a later update takes begin here. */
static void write_sum(StageCx *x, Cw *w, const Node *n)
{
	const DType t = gradient_type(x);
	const char *how = how_text(x, n), *count = sum_floats(x);

	if (starts(x, how))
		cw_line(w, "pd_allreduce_start(%s, (float *)G, %s, %s);", group_text(x), count, how);
	else
		cw_line(w, "%s(%s, (%s *)G, %s);", sum_name(t), group_text(x), dtype_c(t), count);
	if (t != DT_f64 && !late(x) && strcmp(how, "NULL"))
		cw_line(w, "pd_allreduce_wait();");
}

/* The parameter whose rows an AllGatherv joins. */
static const Value *table_of(const Node *n)
{
	for (int i = 0; i < n->in[1]->nuses; i++)
		if (n->in[1]->uses[i].node->op == OP_SGDRows)
			return n->in[1]->uses[i].node->in[0];
	bug("rows of no table");
}

const char *rows_name(const StageCx *x, const Node *n)
{
	int i = 0;

	for (const Node *k = x->s->update->first; k != n; k = k->next)
		i += k->op == OP_AllGatherv;
	return arena_printf(x->b->a, "lookup%d", i);
}

void declare_rows(StageCx *x, Cw *w)
{
	for (const Node *n = x->s->update->first; n; n = n->next)
		if (n->op == OP_AllGatherv)
			cw_stmt(w, arena_printf(x->b->a, "of @%s", table_of(n)->name), "static pd_gatherv *%s;",
				rows_name(x, n));
}

void init_rows(StageCx *x, Cw *w)
{
	const int grains = schedule_grains(x->b->m->schedule, x->s->id);

	for (const Node *n = x->s->update->first; n; n = n->next) {
		if (n->op != OP_AllGatherv)
			continue;
		const int64_t rows = type_numel(&n->in[0]->type), all = type_numel(&n->in[1]->type);
		cw_line(w, "%s = pd_gatherv_new(MICROBATCHES, %" PRId64 ", %" PRId64 ", %s, %s, REPLICAS);",
			rows_name(x, n), rows / grains, rows ? all / rows : 0, use(x, NAME_MINE), use(x, NAME_NMINE));
	}
}

void write_sync(StageCx *x, Cw *w)
{
	Buf body = { 0 };
	Cw in = function_body(x, &body);
	DType rows = DT_NONE;

	if (has_copies(x))
		write_copy(x, &in, use(x, NAME_COPY));
	write_pushes(x, &in);
	if (has_buckets(x) && !late(x))
		cw_line(&in, "pd_allreduce_wait();");
	if (x->layout[REGION_GRADS].n && reproducible(x) && pulls(x->s))
		cw_line(&in, "G = (void *)pd_tree_join(tree, %s, %s);", group_text(x), kept_floats(x));
	else if (x->layout[REGION_GRADS].n && reproducible(x))
		late(x) ? write_struct_copy(x, &in, "G",
				  arena_printf(x->b->a, "(struct grads *)pd_tree_root(tree, %s)", group_text(x)))
			: cw_line(&in, "G = (void *)pd_tree_root(tree, %s);", group_text(x));
	for (const Node *n = x->s->update->first; n; n = n->next) {
		const bool sums = n->op == OP_AllReduce && !strcmp(attr_str(n, "over"), "replicas");
		if (n->op == OP_AllReduce && !sums) {
			rows = n->in[0]->type.dtype;
			write_rows(x, &in, n);
		} else if (n == owned_sums(x->s)) {
			sum_owned(x, &in);
		} else if (sums && attr_int(n, "each")) {
			continue;
		} else if (sums && attr_int(n, "parts")) {
			if (attr_int(n, "bucket") < 0) {
				cw_line(&in, "pd_scatter_start(%s, (float *)G, %s);", group_text(x), parts_args(x, n));
				cw_line(&in, "pd_allreduce_wait();");
			}
			cw_line(&in, "pd_gradients_whole(%s, G, %s);", group_text(x), parts_args(x, n));
		} else if (sums && !reproducible(x) && attr_int(n, "bucket") < 0) {
			write_sum(x, &in, n);
		} else if (n->op == OP_AllGatherv) {
			cw_stmt(&in, arena_printf(x->b->a, "@%s", table_of(n)->name),
				"pd_gatherv_join(%s, %s, (int32_t *)%s, (float *)%s);", rows_name(x, n),
				x->s->replicas > 1 ? group_text(x) : "NULL", value_text(x, n->in[0]),
				value_text(x, n->in[1]));
		} else if (n->op == OP_Broadcast && !x->b->chunks) {
			write_broadcast(x, &in, n);
		}
	}
	if (leaf_added(x))
		cw_line(&in, "done = 0;");
	if (rows != DT_NONE)
		write_clear_rows(x, w, rows);
	if (flows(x))
		cw_line(&in, "pd_count_join(%s, %s);", x->s->replicas > 1 ? group_text(x) : "NULL",
			late(x) ? "true" : "false");
	write_function(
		x, w, function_head(x, flows(x) ? "void %s(int copy)" : "void %s(void)", "sync"), &body, FUNCTION_COPY);
}

/* The flow ended within a round: this replica has no microbatch in it, so gradients and rows of zero. */
void write_absent(StageCx *x, Cw *w)
{
	const Graph *g = x->s->update;

	if (!round_robin(x) || x->s->replicas == 1)
		return;
	cw_blank(w);
	cw_func(w, "void absent(int copy)");
	cw_line(w, "(void)copy;");
	if (x->layout[REGION_GRADS].n && x->b->t->loop.reproducible) {
		cw_line(w, "pd_tree_leaf(tree, replica);");
		cw_line(w, "pd_tree_done(tree, replica);");
	} else if (x->layout[REGION_GRADS].n) {
		cw_line(w, "%s(G, 0, sizeof *G);", fill_name(x));
	}
	write_buckets(x, w, NULL);
	begin_owned(x, w);
	push_owned(x, w, NULL);
	for (const Node *n = g->first; n; n = n->next)
		if (n->op == OP_Stack)
			cw_line(w, "%s(R[copy].%s, 0, sizeof R[copy].%s);", fill_name(x), member_text(x, n->out[0]),
				member_text(x, n->out[0]));
	cw_end(w);
}

const char *share_head(const Build *b, const Stage *s, const Node *n)
{
	return arena_printf(b->a, "const void *%s(const void *from)", share_name(b, s, n));
}

/* A broadcast reaches a device once: its first stage takes part, the others are given what that one has. */
void write_shares(StageCx *x, Cw *w)
{
	for (const Node *n = x->s->update->first; n && x->b->chunks; n = n->next) {
		Buf body = { 0 };
		Cw in = function_body(x, &body);

		if (n->op != OP_Broadcast)
			continue;
		const char *at = value_text(x, n->out[0]);
		cw_line(&in, "if (from)");
		cw_line(&in, "\t%s(%s, from, %s);", copy_name(x), at, bytes_text(x->b->a, n->out[0]));
		if (attr_ints(n, "ranks").n > 1) {
			cw_line(&in, "else");
			in.indent++;
			write_broadcast(x, &in, n);
			in.indent--;
		}
		cw_line(&in, "return %s;", at);
		write_function(x, w, share_head(x->b, x->s, n), &body, FUNCTION_PLAIN);
	}
}

/* ---- memory that a GPU program needs beside the arena, before step 0 ---- */

/* The largest tensors of a call of each kind. */
typedef struct Calls {
	int64_t group, check, rows, ids;
	int64_t sum, part; /* of a tensor group: a sum, a part of what is gathered */
} Calls;

static int64_t most(int64_t a, const Value *v)
{
	const int64_t bytes = type_numel(&v->type) * dtype_bytes(v->type.dtype);

	return a > bytes ? a : bytes;
}

static void open_sum(StageCx *x, Cw *w, const Node *n, Calls *c)
{
	const bool sums = !strcmp(attr_str(n, "over"), "replicas");

	if (!sums)
		for (int i = 0; i < n->nin; i++)
			c->group = most(c->group, n->in[i]);
	if (!sums || reproducible(x) || n == owned_sums(x->s) || moves_parts(n))
		return;
	const char *how = how_text(x, n);
	const bool bucket = attr_int(n, "bucket") >= 0;
	for (int i = 0; i <= late(x) && (bucket || starts(x, how)); i++) /* of so many steps are under way */
		cw_line(w, "pd_sum_open(%s, %s);",
			bucket ? arena_printf(x->b->a, "%" PRId64, bucket_floats(n)) : sum_floats(x), how);
	if (!bucket && !starts(x, how) && x->layout[REGION_GRADS].bytes > c->group)
		c->group = x->layout[REGION_GRADS].bytes;
}

static void open_calls(Cw *w, const Calls *c)
{
	if (c->group)
		cw_line(w, "pd_call_open(PD_CALL_GROUP, %" PRId64 ", 0);", c->group);
	if (c->check)
		cw_line(w, "pd_call_open(PD_CALL_CHECK, %" PRId64 ", 0);", c->check);
	if (c->rows)
		cw_line(w, "pd_call_open(PD_CALL_GRADIENT, %" PRId64 ", %" PRId64 ");", c->rows, c->ids);
	if (c->sum || c->part)
		cw_line(w, "pd_tensor_open(%" PRId64 ", %" PRId64 ");", c->sum, c->part);
}

void open_memory(StageCx *x, Cw *w)
{
	Graph *g[4];
	const int ngraph = stage_graphs(x->s, g);
	Calls c = { 0 };
	int64_t room = 0;
	bool owner = false;

	for (int k = 0; k < ngraph && on_gpu(x); k++)
		for (const Node *n = g[k]->first; n; n = n->next) {
			if (n->op == OP_AllReduce)
				open_sum(x, w, n, &c);
			if (n->op == OP_Broadcast)
				c.group = most(c.group, n->out[0]);
			if (n->op == OP_TensorAllReduce)
				c.sum = most(c.sum, n->out[0]);
			if (n->op == OP_TensorAllGather)
				c.part = most(c.part, n->in[0]);
			if (n->op == OP_TensorReduceScatter)
				c.part = most(c.part, n->out[0]);
			c.part = loss_told(n) > c.part ? loss_told(n) : c.part;
			owner |= n == owned_sums(x->s);
			if (n->op == OP_SGDRows) {
				c.ids = most(c.ids, n->in[1]);
				c.rows = most(c.rows, n->in[2]);
			}
			for (int i = 0; i < n->nout && x->b->t->loop.check_numerics; i++)
				c.check = n->out[i] ? most(c.check, n->out[i]) : c.check;
			const int64_t more = kernel_room(&x->kernels, n);
			room = more > room ? more : room;
		}
	for (int i = 0; i < x->s->nparam && owner; i++)
		c.group = most(c.group, x->s->param[i]);
	if (on_gpu(x))
		open_parts(x, w);
	if (room)
		cw_line(w, "pd_room_open(%" PRId64 ");", room);
	if (on_gpu(x) && x->kernels.products)
		cw_line(w, "pd_gemm_open();");
	open_calls(w, &c);
}
