/* One stage: stageN/stageN.c with its data and functions, stageN.h for the devices that run it, kernels.h. */
#include <inttypes.h>
#include <string.h>
#include "stage.h"

static void head(const StageCx *x, Cw *w, const char *what)
{
	const Build *b = x->b;

	if (x->s->server)
		cw_comment(w,
			"%s, server %d: the parameters that it holds, and their updates. Written by pdcc %s, edits are lost.",
			b->m->name, x->s->id, PDCC_VERSION);
	else
		cw_comment(w,
			"%s, stage %d of %d: %s Written by pdcc %s, edits are lost. Comments name the value as in ir/, its type "
			"and the node of the model.",
			b->m->name, x->s->id, module_stages(b->m), what, PDCC_VERSION);
}

/* Where a stage has several replicas, a function says which of them does a microbatch. */
static void write_ranks(StageCx *x, Cw *w)
{
	const Build *b = x->b;

	for (int t = 0; t < b->m->nstage; t++) {
		const int r = b->m->stage[t]->replicas;
		if (!x->asked[t])
			continue;
		cw_blank(w);
		cw_comment(w, "the rank that does microbatch mb of stage %d", t);
		cw_func(w, "static int stage%d(int mb)", t);
		if (round_robin(x))
			cw_line(w, "return %d + (int)((pd_flow() + mb) %% %d);", b->first_rank[t], r);
		else if (schedule_in_turn(b->m->schedule, t))
			cw_line(w, "return %d + %s %% %d;", b->first_rank[t], row_text(x), r);
		else if (b->m->grains)
			cw_line(w, "return %d + %s %% %" PRId64 " * %d / %" PRId64 ";", b->first_rank[t], row_text(x),
				b->m->grains, r, b->m->grains);
		else
			cw_line(w, "return %d + %s * %d / MICROBATCHES;", b->first_rank[t], row_text(x), r);
		cw_end(w);
	}
}

static void write_globals(StageCx *x, Cw *w)
{
	static const Region order[] = { REGION_PARAMS, REGION_STATE, REGION_GRADS, REGION_STACK, REGION_ENTRY,
		REGION_SLOT };
	const Stage *s = x->s;
	Arena *a = x->b->a;

	for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
		write_layout(x, w, order[i]);
		if (order[i] == REGION_PARAMS)
			write_layout(x, w, LAYOUT_VERSIONS);
	}
	cw_blank(w);
	if (late(x) && x->layout[REGION_GRADS].n)
		cw_stmt(w, arena_printf(a, "of %d steps", late(x) + 1), "static struct grads *sums;");
	if (leaf_added(x) && s->bytes[REGION_LEAF])
		cw_stmt(w, "gradients of a microbatch, until they are added to G", "static char *L;");
	if (s->bytes[REGION_TMP])
		cw_stmt(w, "all other values, packed by lifetime", "static char *tmp;");
	if (s->bytes[REGION_SCRATCH])
		cw_stmt(w, arena_printf(a, "of library calls, %" PRId64 " bytes", s->bytes[REGION_SCRATCH]),
			"static char *scratch;");
	if (x->layout[REGION_GRADS].n && reproducible(x))
		cw_stmt(w, "sums of gradients in a fixed order", "static pd_tree *tree;");
	declare_rows(x, w);
	if (needs_replica(x))
		cw_stmt(w, "which of the stage's replicas this is", "static int replica;");
	if (x->group) {
		const char *list = "";
		for (int r = 0; r < s->replicas; r++)
			list = arena_printf(a, "%s%s%d", list, r ? ", " : "", x->b->first_rank[s->id] + r);
		cw_line(w, "static const int ranks[] = { %s };", list);
		cw_line(w, "static const pd_group replicas = { %d, ranks };", s->replicas);
		if (sums_by(x, "hosts"))
			cw_stmt(w, "of each", "static const int hosts[] = { %s };", hosts_text(x));
	}
	for (int i = 0; i < x->nobject; i++)
		cw_line(w, "static %s %s;", kernel_of(&x->kernels, x->object[i])->object, object_text(x, x->object[i]));
}

static void declare(StageCx *x, Cw *w, const char *name)
{
	cw_line(w, "void %s(%s);", stage_name(x->b, x->s->id, name), micro_args(x));
}

static void declare_shares(StageCx *x, Cw *w)
{
	for (const Node *n = x->s->update->first; n && x->b->chunks; n = n->next)
		if (n->op == OP_Broadcast)
			cw_line(w, "%s;", share_head(x->b, x->s, n));
}

static void write_header(StageCx *x, Cw *w)
{
	const Stage *s = x->s;

	head(x, w, "what its devices call.");
	const Build *b = x->b;
	const char *in_caps = b->chunks ? arena_printf(b->a, "STAGE%d", s->id) : "STAGE";
	const char *caps = b->chunks ? arena_printf(b->a, "%s_", in_caps) : "";
	cw_line(w, "#ifndef %s_H", in_caps);
	cw_line(w, "#define %s_H", in_caps);
	cw_blank(w);
	cw_line(w, "#include \"pd.h\"");
	cw_blank(w);
	cw_line(w, "enum { %sPARAMS = %d, %sINPUTS = %d };", caps, s->nparam, caps, s->forward->nin);
	cw_line(w, "extern const pd_param %s[];", table_name(b, s, "params"));
	cw_line(w, "extern const pd_input_desc %s[];", table_name(b, s, "inputs"));
	cw_blank(w);
	cw_comment(w,
		"Arena of %" PRId64 " bytes, aligned to 64; which replica of the stage; its microbatches in order.",
		s->arena);
	cw_line(w, "void %s(char *arena, int which, const int *mine, int nmine);", stage_name(b, s->id, "init"));
	if (s->server) {
		cw_line(w, "void %s(%s);", stage_name(b, s->id, "serve"), served_async(b->t) ? "void" : "bool train");
		if (!served_async(b->t))
			cw_line(w, "void %s(void);", stage_name(b, s->id, "update"));
		cw_blank(w);
		cw_line(w, "#endif");
		return;
	}
	if (stage_has(s->forward, OP_Recv))
		declare(x, w, "recv_forward");
	declare(x, w, "forward");
	if (stage_has(s->forward, OP_Send))
		declare(x, w, "send_forward");
	if (stage_has(s->backward, OP_Recv))
		declare(x, w, "recv_backward");
	declare(x, w, "backward");
	if (stage_has(s->backward, OP_Send))
		declare(x, w, "send_backward");
	if (s->weight)
		declare(x, w, "weight_gradients");
	cw_line(w, flows(x) ? "void %s(int copy);" : "void %s(void);", stage_name(b, s->id, "sync"));
	declare_shares(x, w);
	if (b->chunks && stage_has(s->update, OP_ClipNorm))
		cw_line(w, "void %s(void);", stage_name(b, s->id, "squares"));
	cw_line(w, flows(x) ? "void %s(int copy);" : "void %s(void);", stage_name(b, s->id, "update"));
	if (flows(x))
		declare_flow(x, w);
	cw_blank(w);
	cw_line(w, "#endif");
}

/* All kernels first, so that no value takes a kernel's name. */
static void collect_kernels(StageCx *x)
{
	Graph *g[4];
	const int ngraph = stage_graphs(x->s, g);

	for (int k = 0; k < ngraph; k++)
		for (const Node *n = g[k]->first; n; n = n->next)
			if (!(optab[n->op]->flags & (OP_COMM | OP_VIEW)) && n->op != OP_Accumulate &&
				n->op != OP_Stack &&
				!(of_rows(x, n) ? n->op != OP_SGD || row_kernel(x, n)
						: kernel_of(&x->kernels, n) != NULL))
				x->failed = true;
	for (size_t i = 0; i < x->kernels.used.n; i++)
		names_reserve(&x->names, x->kernels.used.slot[i].key);
}

static void write_functions(StageCx *x, Cw *w)
{
	const Stage *s = x->s;

	if (s->server) {
		write_serving(x, w);
		if (!served_async(x->b->t))
			write_update(x, w);
		write_init(x, w);
		return;
	}
	write_meet(x, w);
	write_receives(x, w, s->forward, "forward");
	write_forward(x, w);
	write_sends(x, w, s->forward, "forward");
	write_receives(x, w, s->backward, "backward");
	write_backward(x, w);
	write_sends(x, w, s->backward, "backward");
	write_weight_part(x, w);
	write_absent(x, w);
	write_sync(x, w);
	write_shares(x, w);
	write_update(x, w);
	write_settle(x, w);
	write_init(x, w);
}

/* Names of the stage's own functions and tables, where they have its number. */
static void reserve_functions(StageCx *x)
{
	static const char *const name[] = { "forward", "backward", "recv_forward", "recv_backward", "send_forward",
		"send_backward", "weight_gradients", "init", "sync", "update", "squares", "params", "inputs" };

	for (size_t i = 0; x->b->chunks && i < sizeof name / sizeof *name; i++)
		names_reserve(&x->names, stage_name(x->b, x->s->id, name[i]));
	for (const Node *n = x->s->update->first; n && x->b->chunks; n = n->next)
		if (n->op == OP_Broadcast)
			names_reserve(&x->names, share_name(x->b, x->s, n));
}

/* The file of functions, into top; false after a diagnostic. */
static bool stage_text(StageCx *x, Buf *top, const char *what, const char *dir)
{
	const Build *b = x->b;
	const Stage *s = x->s;
	Buf body = { 0 };
	Cw w = { .out = top }, wb = { .out = &body };

	x->asked = NEWN(b->a, bool, b->m->nstage);
	names_init(&x->names, b->a);
	for (int t = 0; t < b->m->nstage; t++)
		names_reserve(&x->names, arena_printf(b->a, "stage%d", t));
	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_AllGatherv)
			names_reserve(&x->names, rows_name(x, n));
	reserve_functions(x);
	kernels_init(&x->kernels, b->a, b->d, on_gpu(x));
	if (b->chunks)
		x->kernels.suffix = arena_printf(b->a, "_s%d", s->id);
	collect_kernels(x);
	if (x->failed)
		return false;
	layout_stage(x);
	write_functions(x, &wb);
	head(x, &w, what);
	cw_line(&w, "#include \"%sstage%d.h\"", dir, s->id);
	cw_line(&w, "#include \"%skernels.h\"", dir);
	cw_blank(&w);
	cw_line(&w, "enum { STAGE = %d, REPLICAS = %d, MICROBATCHES = %d, SLOTS = %d%s };", s->id, s->replicas,
		schedule_grains(b->m->schedule, s->id), s->inflight,
		s->versions ? arena_printf(b->a, ", VERSIONS = %d", s->versions) : "");
	write_globals(x, &w);
	write_consts(x, &w);
	write_row(x, &w);
	write_ranks(x, &w);
	write_held(x, &w);
	write_owned_table(x, &w);
	write_part_tables(x, &w);
	write_shares_table(x, &w);
	write_params(x, &w);
	write_inputs(x, &w);
	write_records(x, &w);
	buf_putc(top, '\n');
	buf_puts(top, buf_str(&body));
	buf_free(&body);
	return !x->failed;
}

/* GPU: what the functions call of kernels.cu. */
static bool write_declarations(StageCx *x, const char *dir)
{
	Buf out = { 0 };
	Cw w = { .out = &out };

	head(x, &w, "what kernels.cu has: each starts a kernel on the device's stream.");
	cw_line(&w, "#include \"pd.h\"");
	cw_blank(&w);
	cw_blank(&w);
	buf_putc(&out, '\n');
	buf_puts(&out, buf_str(&x->kernels.heads_of));
	buf_free(&x->kernels.heads_of);
	return build_text(x->b, arena_printf(x->b->a, "%s/kernels.h", dir), &out);
}

bool emit_stage(Build *b, const Stage *s)
{
	StageCx x = { .b = b, .s = s };
	Buf top = { 0 }, header = { 0 }, kernels = { 0 };
	Cw wh = { .out = &header }, wk = { .out = &kernels };
	const char *dir = arena_printf(b->a, "stage%d", s->id);
	bool ok = stage_text(&x, &top, "forward, backward and update, the same on all of its devices.", "");

	write_header(&x, &wh);
	head(&x, &wk, "the kernels of its functions, one per op and shape.");
	kernels_head(&x.kernels, &kernels, b->t && b->t->loop.reproducible);
	buf_puts(&kernels, buf_str(&x.kernels.out));
	buf_free(&x.kernels.out);
	if (ok)
		return build_text(b, arena_printf(b->a, "%s/%s.c", dir, dir), &top) &&
		       build_text(b, arena_printf(b->a, "%s/%s.h", dir, dir), &header) &&
		       build_text(b, arena_printf(b->a, "%s/kernels.%s", dir, on_gpu(&x) ? "cu" : "h"), &kernels) &&
		       (!on_gpu(&x) || write_declarations(&x, dir));
	buf_free(&top);
	buf_free(&header);
	buf_free(&kernels);
	return false;
}

bool emit_profile(Build *b, const Stage *s)
{
	StageCx x = { .b = b, .s = s, .clocks = true };
	Buf top = { 0 };
	const bool ok = stage_text(&x, &top, "the same functions with a clock round every statement, for make profile.",
		arena_printf(b->a, "stage%d/", s->id));

	buf_free(&x.kernels.out);
	if (ok)
		return build_text(b, arena_printf(b->a, "profile/stage%d.c", s->id), &top);
	buf_free(&top);
	return false;
}
