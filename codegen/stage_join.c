/* Between the microbatches and the update: what replicas and the holders of tied weights join. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>
#include "stage.h"

static const char *ranks_text(Arena *a, Ints v)
{
	const char *text = "";

	for (int i = 0; i < v.n; i++)
		text = arena_printf(a, "%s%s%" PRId64, text, i ? ", " : "", v.v[i]);
	return text;
}

static const char *sum_name(DType t)
{
	return t == DT_f64 ? "pd_allreduce_f64" : "pd_allreduce";
}

static void write_rows(StageCx *x, Cw *w, const Node *n)
{
	for (int i = 0; i < n->nin; i++) {
		const Value *v = n->in[i];
		const int64_t row = type_numel(&v->type) / schedule_grains(x->b->m->schedule, x->s->id);
		cw_line(w, "clear_rows(%s, %" PRId64 ");", value_text(x, v), row);
		cw_line(w, "%s(&replicas, %s, %" PRId64 ");", sum_name(v->type.dtype), value_text(x, v), type_numel(&v->type));
	}
}

static void write_broadcast(StageCx *x, Cw *w, const Node *n)
{
	const Ints ranks = attr_ints(n, "ranks");

	cw_stmt(w, comment_of(x, n), "pd_broadcast(&(pd_group){ %d, (const int[]){ %s } }, %" PRId64 ", %s, %s);", ranks.n,
		ranks_text(x->b->a, ranks), attr_int(n, "root"), value_text(x, n->out[0]), bytes_text(x->b->a, n->out[0]));
}

/* Rows of microbatches that other replicas did are zero, so that the sum over the replicas joins all rows. */
static void write_clear_rows(const StageCx *x, Cw *w, DType t)
{
	cw_blank(w);
	cw_func(w, "static void clear_rows(%s *rows, size_t n)", dtype_c(t));
	cw_line(w, "for (int mb = 0; mb < MICROBATCHES; mb++)");
	cw_line(w, "\tif (stage%d(mb) != %d + replica)", x->s->id, x->b->first_rank[x->s->id]);
	cw_line(w, "\t\t%s(rows + (size_t)mb * n, 0, n * sizeof *rows);", on_gpu(x) ? "pd_fill" : "memset");
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

/* Sums that a later update takes begin, where the background can: plain ones. */
static void write_sum(StageCx *x, Cw *w, const Node *n)
{
	const DType t = gradient_type(x);
	const char *codec = attr_str(n, "codec"), *by = attr_str(n, "by");

	if (t == DT_f64 || (!strcmp(codec, "none") && (!strcmp(by, "auto") || late(x))))
		cw_line(w, "%s%s(&replicas, (%s *)G, sizeof *G / sizeof(%s));", sum_name(t), late(x) && t != DT_f64 ? "_start" : "",
			dtype_c(t), dtype_c(t));
	else if (!strcmp(codec, "none"))
		cw_line(w, "pd_allreduce_as(&replicas, (float *)G, sizeof *G / sizeof(float), &(pd_sum){ .by = PD_SUM_%s });",
			upper(x->b->a, by));
	else
		cw_line(w, "pd_allreduce_as(&replicas, (float *)G, sizeof *G / sizeof(float), &(pd_sum){ PD_SUM_%s, PD_CODEC_%s, %d });",
			upper(x->b->a, by), upper(x->b->a, codec), (int)attr_int(n, "block"));
}

void write_sync(StageCx *x, Cw *w)
{
	Buf body = { 0 };
	Cw in = { .out = &body, .indent = 1 };
	DType rows = DT_NONE;

	write_copy(x, &in, "copy");
	if (x->layout[REGION_GRADS].n && reproducible(x))
		cw_line(&in, late(x) ? "*G = *(struct grads *)pd_tree_root(tree, &replicas);" : "G = (void *)pd_tree_root(tree, &replicas);");
	for (const Node *n = x->s->update->first; n; n = n->next) {
		const bool sums = n->op == OP_AllReduce && !strcmp(attr_str(n, "over"), "replicas");
		if (n->op == OP_AllReduce && !sums) {
			rows = n->in[0]->type.dtype;
			write_rows(x, &in, n);
		} else if (sums && !reproducible(x)) {
			write_sum(x, &in, n);
		} else if (n->op == OP_Broadcast && !x->b->chunks) {
			write_broadcast(x, &in, n);
		}
	}
	if (leaf_added(x))
		cw_line(&in, "done = 0;");
	if (rows != DT_NONE)
		write_clear_rows(x, w, rows);
	if (flows(x))
		cw_line(&in, "pd_count_join(%s, %s);", x->s->replicas > 1 ? "&replicas" : "NULL", late(x) ? "true" : "false");
	write_function(x, w, function_head(x, flows(x) ? "void %s(int copy)" : "void %s(void)", "sync"), &body, false);
}

const char *share_name(const Build *b, const Stage *s, const Node *broadcast)
{
	return stage_name(b, s->id, arena_printf(b->a, "share%" PRId64, attr_int(broadcast, "number")));
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
		Cw in = { .out = &body, .indent = 1 };

		if (n->op != OP_Broadcast)
			continue;
		const char *at = value_text(x, n->out[0]);
		cw_line(&in, "if (from)");
		cw_line(&in, "\t%s(%s, from, %s);", on_gpu(x) ? "pd_copy" : "memcpy", at, bytes_text(x->b->a, n->out[0]));
		if (attr_ints(n, "ranks").n > 1) {
			cw_line(&in, "else");
			in.indent++;
			write_broadcast(x, &in, n);
			in.indent--;
		}
		cw_line(&in, "return %s;", at);
		write_function(x, w, share_head(x->b, x->s, n), &body, false);
	}
}
