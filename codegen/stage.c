/* One stage: stageN/stageN.c with its data and functions, stageN.h for the devices that run it, kernels.h. */
#include <inttypes.h>
#include <string.h>
#include "stage.h"

static void head(const StageCx *x, Cw *w, const char *what)
{
	const Build *b = x->b;

	cw_comment(w, "%s, stage %d of %d: %s Written by pdcc %s, edits are lost. Comments name the value as in ir/, its type "
		"and the node of the model.", b->m->name, x->s->id, b->m->nstage, what, PDCC_VERSION);
}

/* Where a stage has several replicas, a function says which of them does a microbatch. */
static void write_ranks(const StageCx *x, Cw *w, const char *body)
{
	const Build *b = x->b;

	for (int t = 0; t < b->m->nstage; t++) {
		const int r = b->m->stage[t]->replicas;
		if (r == 1 || !strstr(body, arena_printf(b->a, "stage%d(mb)", t)))
			continue;
		cw_blank(w);
		cw_comment(w, "the rank that does microbatch mb of stage %d", t);
		cw_func(w, "static int stage%d(int mb)", t);
		cw_line(w, "return %d + mb * %d / MICROBATCHES;", b->first_rank[t], r);
		cw_end(w);
	}
}

static void write_globals(StageCx *x, Cw *w, const char *body)
{
	static const Region order[] = { REGION_PARAMS, REGION_STATE, REGION_GRADS, REGION_STACK, REGION_SLOT };
	const Stage *s = x->s;
	Arena *a = x->b->a;

	for (size_t i = 0; i < sizeof order / sizeof *order; i++)
		write_layout(x, w, order[i]);
	cw_blank(w);
	if (leaf_added(x))
		cw_stmt(w, "gradients of a microbatch, until they are added to G", "static char *L;");
	if (s->bytes[REGION_TMP])
		cw_stmt(w, "all other values, packed by lifetime", "static char *tmp;");
	if (s->bytes[REGION_SCRATCH])
		cw_stmt(w, arena_printf(a, "of library calls, %" PRId64 " bytes", s->bytes[REGION_SCRATCH]),
			"static char *scratch;");
	if (strstr(body, "pd_tree"))
		cw_stmt(w, "sums of gradients in a fixed order", "static pd_tree *tree;");
	if (strstr(body, "clear_rows"))
		cw_stmt(w, "which of the stage's replicas this is", "static int replica;");
	if (strstr(body, "&replicas")) {
		const char *list = "";
		for (int r = 0; r < s->replicas; r++)
			list = arena_printf(a, "%s%s%d", list, r ? ", " : "", x->b->first_rank[s->id] + r);
		cw_line(w, "static const int ranks[] = { %s };", list);
		cw_line(w, "static const pd_group replicas = { %d, ranks };", s->replicas);
	}
	for (int i = 0; i < x->nobject; i++)
		cw_line(w, "static %s %s;", kernel_of(&x->kernels, x->object[i])->k->object, object_text(x, x->object[i]));
}

static void write_header(StageCx *x, Cw *w)
{
	const Stage *s = x->s;

	head(x, w, "what its devices call.");
	cw_line(w, "#ifndef STAGE_H");
	cw_line(w, "#define STAGE_H");
	cw_blank(w);
	cw_line(w, "#include \"pd.h\"");
	cw_blank(w);
	cw_line(w, "enum { PARAMS = %d, INPUTS = %d };", s->nparam, s->forward->nin);
	cw_line(w, "extern const pd_param stage_params[];");
	cw_line(w, "extern const pd_input_desc stage_inputs[];");
	cw_blank(w);
	cw_comment(w, "Arena of %" PRId64 " bytes, aligned to 64; which replica of the stage; its microbatches in order.",
		s->arena);
	cw_line(w, "void init(char *arena, int which, const int *mine, int nmine);");
	if (stage_has(s->forward, OP_Recv))
		cw_line(w, "void recv_forward(int slot, int mb);");
	cw_line(w, "void forward(int slot, int mb);");
	if (stage_has(s->forward, OP_Send))
		cw_line(w, "void send_forward(int slot, int mb);");
	if (stage_has(s->backward, OP_Recv))
		cw_line(w, "void recv_backward(int slot, int mb);");
	cw_line(w, "void backward(int slot, int mb);");
	if (stage_has(s->backward, OP_Send))
		cw_line(w, "void send_backward(int slot, int mb);");
	cw_line(w, "void sync(void);");
	cw_line(w, "void update(void);");
	cw_blank(w);
	cw_line(w, "#endif");
}

/* All kernels first, so that no value takes a kernel's name. */
static void collect_kernels(StageCx *x)
{
	const Graph *g[3] = { x->s->forward, x->s->backward, x->s->update };

	for (int k = 0; k < 3; k++)
		for (const Node *n = g[k]->first; n; n = n->next)
			if (!(optab[n->op]->flags & (OP_COMM | OP_VIEW)) && n->op != OP_Accumulate && n->op != OP_Stack &&
			    !kernel_of(&x->kernels, n))
				x->failed = true;
	for (size_t i = 0; i < x->kernels.used.n; i++)
		names_reserve(&x->names, x->kernels.used.slot[i].key);
}

static void write_functions(StageCx *x, Cw *w)
{
	const Stage *s = x->s;

	write_receives(x, w, s->forward, "forward");
	write_forward(x, w);
	write_sends(x, w, s->forward, "forward");
	write_receives(x, w, s->backward, "backward");
	write_backward(x, w);
	write_sends(x, w, s->backward, "backward");
	write_sync(x, w);
	write_update(x, w);
	write_init(x, w);
}

bool emit_stage(Build *b, const Stage *s)
{
	StageCx x = { .b = b, .s = s };
	Buf top = { 0 }, body = { 0 }, header = { 0 }, kernels = { 0 };
	Cw w = { .out = &top }, wb = { .out = &body }, wh = { .out = &header }, wk = { .out = &kernels };
	const char *dir = arena_printf(b->a, "stage%d", s->id);

	names_init(&x.names, b->a);
	for (int t = 0; t < b->m->nstage; t++)
		names_reserve(&x.names, arena_printf(b->a, "stage%d", t));
	kernels_init(&x.kernels, b->a, b->d);
	collect_kernels(&x);
	if (x.failed)
		return buf_free(&x.kernels.out), false;
	layout_stage(&x);
	write_functions(&x, &wb);
	head(&x, &w, "forward, backward and update, the same on all of its devices.");
	cw_line(&w, "#include \"stage%d.h\"", s->id);
	cw_line(&w, "#include \"kernels.h\"");
	cw_blank(&w);
	cw_line(&w, "enum { STAGE = %d, REPLICAS = %d, MICROBATCHES = %" PRId64 ", SLOTS = %d };", s->id, s->replicas,
		b->m->microbatches, s->inflight);
	write_globals(&x, &w, buf_str(&body));
	write_consts(&x, &w);
	write_ranks(&x, &w, buf_str(&body));
	write_params(&x, &w);
	write_inputs(&x, &w);
	buf_putc(&top, '\n');
	buf_puts(&top, buf_str(&body));
	buf_free(&body);
	write_header(&x, &wh);
	head(&x, &wk, "the kernels of its functions, one per op and shape.");
	kernels_head(&kernels, b->t && b->t->reproducible);
	buf_puts(&kernels, buf_str(&x.kernels.out));
	buf_free(&x.kernels.out);
	const bool ok = build_text(b, arena_printf(b->a, "%s/stage%d.c", dir, s->id), &top);
	return build_text(b, arena_printf(b->a, "%s/stage%d.h", dir, s->id), &header) &&
		build_text(b, arena_printf(b->a, "%s/kernels.h", dir), &kernels) && ok && !x.failed;
}
