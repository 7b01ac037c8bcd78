/* State in parts (passes/comm/zero.c, owners.c): tables of what a ReduceScatter or an AllGather moves, and the gather behind the updates. */
#include <inttypes.h>
#include "ir/analysis.h"
#include "stage.h"

/* Of which each replica has a part: all operands, or those without an owner (owners.c). */
static bool in_parts(const Node *n, int i)
{
	const Ints owner = n->op == OP_AllReduce ? attr_ints(n, "owner") : (Ints){ 0, NULL };

	return owner.n ? owner.v[i] < 0 : n->op == OP_AllGather || (n->op == OP_AllReduce && attr_int(n, "parts"));
}

static int count_parts(const Node *n)
{
	int k = 0;

	for (int i = 0; i < n->nin; i++)
		k += in_parts(n, i);
	return k;
}

bool moves_parts(const Node *n) { return count_parts(n) > 0; }

static const char *table(const StageCx *x, const Node *n)
{
	int i = 0;

	if (n->op == OP_AllGather)
		return "weight_parts";
	for (const Node *k = x->s->update->first; k != n; k = k->next)
		i += k->op == OP_AllReduce && moves_parts(k);
	return arena_printf(x->b->a, "gradient_parts%d", i);
}

const char *parts_args(const StageCx *x, const Node *n)
{
	return arena_printf(x->b->a, "%s, %d", table(x, n), count_parts(n));
}

/* Of a table: bytes from the beginning of its struct to v. */
static int64_t place(const StageCx *x, const Value *v)
{
	return v->kind == VAL_PARAM ? x->s->param_at[param_index(x->s, v)] - x->s->at[REGION_PARAMS] : v->offset;
}

/* ---- weights in parts (passes/comm/gather.c) ---- */

static bool same_bucket(const Node *n, const Node *first)
{
	return n && n->op == OP_GatherWeight && n->graph == first->graph &&
	       attr_int(n, "bucket") == attr_int(first, "bucket");
}

static const char *bucket_table(const StageCx *x, const Node *n)
{
	return arena_printf(x->b->a, "%s_weights%" PRId64, n->graph->name, attr_int(n, "bucket"));
}

/* Bytes from P to the part that a device has of a weight, or of its copy in 16 bits. */
static int64_t place_held(const StageCx *x, const Value *v)
{
	return v->kind == VAL_PARAM ? place(x, v) : x->s->at[REGION_STATE] + v->offset - x->s->at[REGION_PARAMS];
}

static void write_bucket_table(StageCx *x, Cw *w, const Node *first)
{
	cw_blank(w);
	cw_comment(w,
		"weights that a %s gathers: where they lie then, elements, how many of them a replica has, where those lie from P on",
		first->graph->name);
	cw_open(w, "static const pd_part %s[] =", bucket_table(x, first));
	for (const Node *n = first; same_bucket(n, first); n = n->next) {
		const Value *v = n->in[0];
		if (n->out[0]->region != REGION_TMP)
			bug("%s is gathered, but is no temporary", v->name);
		const int64_t size = dtype_bytes(v->type.dtype);
		cw_stmt(w, arena_printf(x->b->a, "%s%s", v->kind == VAL_PARAM ? "@" : "%", v->name),
			"{ %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 " },", n->out[0]->offset / size,
			type_numel(&v->type), held_count(v), place_held(x, v) / size);
	}
	cw_close(w, ";");
}

static void write_bucket_tables(StageCx *x, Cw *w)
{
	Graph *g[4];
	const int ngraph = stage_graphs(x->s, g);

	for (int k = 0; k < ngraph; k++)
		for (const Node *n = g[k]->first; n; n = n->next)
			if (n->op == OP_GatherWeight && !same_bucket(n->prev, n))
				write_bucket_table(x, w, n);
}

/* The table of a bucket, its length, and how large an element is. */
static const char *bucket_args(const StageCx *x, const Node *first)
{
	int count = 0;

	for (const Node *k = first; same_bucket(k, first); k = k->next)
		count++;
	return arena_printf(
		x->b->a, "%s, %d, sizeof(%s)", bucket_table(x, first), count, dtype_c(first->in[0]->type.dtype));
}

void write_weights(StageCx *x, Cw *w, const Node *n)
{
	if (same_bucket(n->prev, n))
		return;
	cw_stmt(w, arena_printf(x->b->a, "bucket %" PRId64, attr_int(n, "bucket")), "pd_gather_start(%s, tmp, P, %s);",
		group_text(x), bucket_args(x, n));
	x->gathering = n;
}

void await_weights(StageCx *x, Cw *w, const Node *n)
{
	const Node *of = x->gathering;
	bool reads = of && n->op == OP_GatherWeight && !same_bucket(n, of);

	for (int i = 0; of && i < n->nin; i++) {
		const Value *v = n->in[i] ? value_root(n->in[i]) : NULL;
		reads |= v && v->kind == VAL_NODE && same_bucket(v->def, of);
	}
	if (!reads)
		return;
	cw_line(w, "pd_allreduce_wait();");
	x->gathering = NULL;
}

void write_part_tables(StageCx *x, Cw *w)
{
	write_bucket_tables(x, w);
	for (const Node *n = x->s->update->first; n; n = n->next) {
		if (!moves_parts(n))
			continue;
		cw_blank(w);
		cw_comment(w, "%s: where they lie, elements, how many of them a replica has%s",
			n->op == OP_AllGather ? "weights that are updated in parts"
					      : "gradients that are summed in parts",
			n->op == OP_AllReduce && attr_int(n, "each") ? ", where those lie in G" : "");
		cw_open(w, "static const pd_part %s[] =", table(x, n));
		for (int i = 0; i < n->nin; i++) {
			if (!in_parts(n, i))
				continue;
			const bool each = n->op == OP_AllReduce && attr_int(n, "each");
			const Value *v = n->in[i], *whole = each ? v->def->in[0] : v;
			const int64_t count = type_numel(&whole->type), size = dtype_bytes(v->type.dtype);
			cw_stmt(w, arena_printf(x->b->a, "%s%s", v->kind == VAL_PARAM ? "@" : "%", v->name),
				"{ %" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 " },",
				place(x, value_root(whole)) / size, count,
				owned_sums(x->s) ? part_of_sum(v) : part_of(count, x->s->replicas),
				each ? place(x, v) / size : 0);
		}
		cw_close(w, ";");
	}
}

void write_gather(StageCx *x, Cw *w, const Node *n)
{
	cw_line(w, "pd_gather_parts(%s, P, %s, sizeof(%s));", group_text(x), parts_args(x, n),
		dtype_c(n->in[0]->type.dtype));
}

/* ---- memory of the host, before step 0 ---- */

typedef struct Largest {
	int64_t bytes;
	const char *args;
} Largest;

static void larger(Largest *most, int64_t bytes, const char *args)
{
	if (bytes > most->bytes)
		*most = (Largest){ bytes, args };
}

static const char *table_args(const StageCx *x, const Node *n)
{
	return arena_printf(x->b->a, "%s, sizeof(%s)", parts_args(x, n), dtype_c(n->in[0]->type.dtype));
}

/* Sums of a step may all be under way at one time; of a microbatch's there is one, and two gathers. */
void open_parts(StageCx *x, Cw *w)
{
	Largest each = { 0 }, gathered = { 0 };
	Graph *g[4];
	const int ngraph = stage_graphs(x->s, g);

	for (int k = 0; k < ngraph; k++)
		for (const Node *n = g[k]->first; n; n = n->next) {
			int64_t bytes = 0;
			if (n->op == OP_GatherWeight && !same_bucket(n->prev, n)) {
				for (const Node *i = n; same_bucket(i, n); i = i->next)
					bytes += value_bytes(i->out[0]);
				larger(&gathered, bytes, bucket_args(x, n));
			}
			if (g[k] != x->s->update || !moves_parts(n) || n == owned_sums(x->s))
				continue;
			for (int i = 0; i < n->nin && n->op == OP_AllReduce && attr_int(n, "each"); i++)
				bytes += value_bytes(n->in[i]->def->in[0]);
			if (bytes)
				larger(&each, bytes, table_args(x, n));
			else
				cw_line(w, "pd_parts_open(%s, %s);", group_text(x), table_args(x, n));
		}
	if (each.args)
		cw_line(w, "pd_parts_open(%s, %s);", group_text(x), each.args);
	for (int i = 0; i < 2 && gathered.args; i++)
		cw_line(w, "pd_parts_open(%s, %s);", group_text(x), gathered.args);
}
