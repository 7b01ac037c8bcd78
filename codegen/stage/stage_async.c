/* What a stage's file has more where nothing is flushed: versions of the weights, the tags of messages, which
 * microbatches make an update. See runtime/pd.h, "asynchronous pipelines". */
#include <inttypes.h>
#include <string.h>
#include "stage.h"

bool flows(const StageCx *x) { return x->b->m->schedule && x->b->m->schedule->async; }

/* A minibatch a step, spread over the replicas in turn. */
bool round_robin(const StageCx *x) { return flows(x) && x->b->m->schedule->robin; }

const char *row_text(StageCx *x)
{
	if (!flows(x))
		return use(x, NAME_MB);
	if (round_robin(x))
		return x->s->replicas > 1 ? "replica" : "0";
	x->row = true;
	return arena_printf(x->b->a, "row(%s)", use(x, NAME_MB));
}

void declare_flow(const StageCx *x, Cw *w)
{
	if (round_robin(x) && x->s->replicas > 1)
		cw_stmt(w, "in place of a microbatch, where a round has none for this replica",
			"void absent(int copy);");
	cw_stmt(w, "when the pipeline is drained", "void settle(void);");
}

/* ---- messages ---- */

static const Value *root_of(const Value *v) { return v->alias ? v->alias : v; }

static bool message(const Node *n, const Value *root)
{
	return (n->op == OP_Send && root_of(n->in[0]) == root) || (n->op == OP_Recv && root_of(n->out[0]) == root);
}

bool has_tag(const StageCx *x, const Value *root)
{
	const Graph *g[2] = { x->s->forward, x->s->backward };

	for (int k = 0; k < 2 && schedule_tagged(x->b->m); k++)
		for (const Node *n = g[k]->first; n; n = n->next)
			if (message(n, root))
				return true;
	return false;
}

const char *tag_text(StageCx *x, const Value *v) { return arena_printf(x->b->a, "%s_tag", value_text(x, v)); }

const char *message_text(const StageCx *x, const Value *v)
{
	const DType t = v->type.dtype;

	if (!schedule_tagged(x->b->m))
		return arena_printf(x->b->a, "%" PRId64 " * sizeof(%s)", type_numel(&v->type), dtype_c(t));
	return arena_printf(x->b->a, "%" PRId64 " + sizeof(pd_tag)", message_bytes(x->b, v) - TAG_BYTES);
}

static const char *met_text(StageCx *x) { return arena_printf(x->b->a, "met[%s]", use(x, NAME_SLOT)); }

/* Before the sends of a graph: every tensor's tag, once. */
void write_tags(StageCx *x, Cw *w, const Graph *g)
{
	for (const Node *n = g->first; n && schedule_tagged(x->b->m); n = n->next) {
		bool again = n->op != OP_Send;
		for (const Node *k = g->first; k != n; k = k->next)
			again |= k->op == OP_Send && n->op == OP_Send && root_of(k->in[0]) == root_of(n->in[0]);
		if (!again)
			cw_line(w, "pd_tag_write(&%s, %s, %s);", tag_text(x, n->in[0]), use(x, NAME_MB),
				flows(x) ? met_text(x) : "0");
	}
}

/* ---- versions ---- */

bool is_versioned(const Stage *s, const Value *v) { return s->versions && s->versioned[param_index(s, v)]; }

/* The message that tells a forward which version to read; NULL: the stage knows. */
static const Node *told_version(const StageCx *x)
{
	const Node *n = x->s->forward->first;

	while (n && n->op != OP_Recv)
		n = n->next;
	return x->b->m->schedule->rule == VERSION_VERTICAL ? n : NULL;
}

const char *meet_text(StageCx *x)
{
	const char *slot = use(x, NAME_SLOT);

	return told_version(x) ? arena_printf(x->b->a, "meet(%s, %s, %s)", slot, use(x, NAME_ENTRY), use(x, NAME_MB))
	                       : arena_printf(x->b->a, "meet(%s)", slot);
}

/* The version that a microbatch meets: at its forward, or at once with what it reads of its message. */
void write_meet(StageCx *x, Cw *w)
{
	const char *version = "newest";

	if (!flows(x))
		return;
	cw_blank(w);
	cw_stmt(w, "versions since the flow began; that of each microbatch", "static int64_t newest, met[SLOTS];");
	cw_blank(w);
	const Node *n = told_version(x);
	cw_func(w, "static int64_t meet(%s)", n ? micro_args(x) : "int slot");
	if (n) {
		cw_line(w, "pd_wait_recv(%" PRId64 ", entry);", attr_int(n, "channel"));
		version = arena_printf(x->b->a, "pd_tag_read(&E[entry].%s_tag, mb)", member_text(x, n->out[0]));
	}
	if (x->b->m->schedule->rule == VERSION_PREVIOUS)
		version = "pd_flow() ? pd_flow() - 1 : 0";
	cw_line(w, "return met[slot] = %s;", version);
	cw_end(w);
}

/* A struct of the arena as another is: "*v = V[newest % VERSIONS];" */
void write_struct_copy(const StageCx *x, Cw *w, const char *to, const char *from)
{
	if (on_gpu(x))
		cw_line(w, "pd_copy(%s, %s, sizeof *%s);", to, from, to);
	else if (*from == '&')
		cw_line(w, "*%s = %s;", to, from + 1);
	else
		cw_line(w, "*%s = *%s;", to, from);
}

/* What the running action reads, or makes, for traces; NULL: what the slot's microbatch met. */
void write_version(StageCx *x, Cw *w, const char *version)
{
	if (flows(x))
		cw_line(w, "pd_version(%s);", version ? version : x->s->versions ? met_text(x) : "newest");
}

/* Before an update: the new version, which begins as a copy of the newest. */
void write_next(StageCx *x, Cw *w)
{
	if (!flows(x))
		return;
	if (x->s->versions) {
		cw_line(w, "struct weights *v = &V[(newest + 1) %% VERSIONS];");
		cw_blank(w);
		write_struct_copy(x, w, "v", "&V[newest % VERSIONS]");
	}
	cw_line(w, "newest++;");
	write_version(x, w, "newest");
}

void write_settle(StageCx *x, Cw *w)
{
	if (!flows(x))
		return;
	cw_blank(w);
	cw_func(w, "void settle(void)");
	if (x->s->versions) {
		cw_line(w, "if (newest %% VERSIONS)");
		w->indent++;
		write_struct_copy(x, w, "V", "&V[newest % VERSIONS]");
		w->indent--;
	}
	cw_line(w, "newest = 0;");
	cw_end(w);
}

/* ---- Pipe-SGD: gradients of several steps ---- */

int late(const StageCx *x) { return flows(x) ? x->b->m->schedule->late : 0; }

bool has_copies(const StageCx *x) { return late(x) && x->layout[REGION_GRADS].n; }

/* Which of the gradients' copies is meant; step: of the flow. */
void write_copy(const StageCx *x, Cw *w, const char *step)
{
	if (has_copies(x))
		cw_line(w, "G = sums + %s;", step);
}

/* Where a step has several microbatches, and something asks which of them one is. */
void write_row(const StageCx *x, Cw *w)
{
	bool asked = x->row;

	for (int t = 0; t < x->b->m->nstage && !round_robin(x); t++)
		asked |= x->asked[t];
	if (!flows(x) || !asked)
		return;
	cw_blank(w);
	cw_comment(w, "the place of microbatch mb in its step");
	cw_func(w, "static int row(int mb)");
	cw_line(w, "return (mb %% MICROBATCHES + MICROBATCHES) %% MICROBATCHES;");
	cw_end(w);
}
