/* Small pieces of text that all writers of a stage's file use, and what they ask of it. They call none of the others. */
#include <inttypes.h>
#include "ir/analysis.h"
#include "stage.h"

bool leaf_brief(const StageCx *x) { return sums_each(x->s) && gathers_weights(x->s); }

bool lies_in_sum(const Node *n) { return n->in[0]->region == REGION_GRADS; }

bool leaf_apart(const StageCx *x)
{
	bool apart = x->s->bytes[REGION_LEAF] > 0 || leaf_brief(x);

	for (const Node *n = x->s->update->first; n && !apart; n = n->next)
		apart = n->op == OP_Accumulate && lies_in_sum(n);
	return x->layout[REGION_GRADS].n && apart;
}

bool reproducible(const StageCx *x)
{
	return x->b->t && x->b->t->loop.reproducible &&
	       !x->s->server; /* a server adds what it is given in one way only */
}

bool on_gpu(const StageCx *x) { return x->b->gpu; }

const char *copy_name(const StageCx *x) { return on_gpu(x) ? "pd_copy" : "memcpy"; }

const char *fill_name(const StageCx *x) { return on_gpu(x) ? "pd_fill" : "memset"; }

bool leaf_added(const StageCx *x) { return leaf_apart(x) && !reproducible(x); }

const char *function_head(const StageCx *x, const char *head, const char *name)
{
	return arena_printf(x->b->a, head, stage_name(x->b, x->s->id, name));
}

const char *micro_args(const StageCx *x)
{
	return stage_enters(x->s) ? "int slot, int entry, int mb" : "int slot, int mb";
}

const char *use(StageCx *x, Name n)
{
	static const char *const name[NAMES] = { "slot", "entry", "mb", "copy", "arena", "which", "mine", "nmine", "v",
		"e", "k", "r", "g" };

	x->used[n] = true;
	return name[n];
}

const char *group_text(StageCx *x)
{
	x->group = true;
	return "&replicas";
}

const char *bytes_text(Arena *a, const Value *v)
{
	return arena_printf(a, "%" PRId64 " * sizeof(%s)", type_numel(&v->type), dtype_c(v->type.dtype));
}

/* "%h f32[32,10]  fc1": the value, its type, the node of the model it stems from. */
const char *comment_of(const StageCx *x, const Node *n)
{
	Arena *a = x->b->a;
	const Value *v = NULL;
	const char *what = "";

	for (int i = 0; i < n->nout; i++)
		if (n->out[i]) {
			v = v ? v : n->out[i];
			what = arena_printf(a, "%s%s%%%s", what, *what ? " " : "", n->out[i]->name);
		}
	if (v)
		what = arena_printf(a, "%s %s", what, str_type(a, &v->type));
	else if (n->nin && n->in[0] && n->in[0]->kind == VAL_PARAM)
		what = arena_printf(a, "@%s", n->in[0]->name);
	const char *module = loc_module(a, &n->loc), *from = module ? module : n->loc.name;

	if (from && *from)
		return arena_printf(a, "%s  %s", what, from);
	if (n->loc.node >= 0)
		return arena_printf(a, "%s  node %d", what, n->loc.node);
	return what;
}

const char *peer_text(StageCx *x, int64_t t)
{
	const Build *b = x->b;

	if (b->m->stage[t]->replicas == 1)
		return arena_printf(b->a, "%d", b->first_rank[t]);
	x->asked[t] = true;
	return arena_printf(b->a, "stage%d(%s)", (int)t, use(x, NAME_MB));
}

const char *scratch_text(void *stage_cx)
{
	const StageCx *x = stage_cx;

	return x->s->bytes[REGION_SCRATCH] ? "scratch" : "NULL";
}

const char *no_microbatch(void *stage_cx)
{
	(void)stage_cx;
	return "0";
}

bool rounds(const Stage *s)
{
	const Node *n = s->forward ? s->forward->first : NULL;

	while (n && !cast_once(n))
		n = n->next;
	return n != NULL;
}
