/* What a stage does before step 0: pointers into its regions, constants, initial weights. */
#include <inttypes.h>
#include <string.h>
#include "stage.h"

static void write_pointers(StageCx *x, Cw *w)
{
	const Stage *s = x->s;
	static const Region order[] = { REGION_PARAMS, REGION_STATE, REGION_STACK, REGION_ENTRY, REGION_SLOT };

	for (size_t i = 0; i < sizeof order / sizeof *order; i++)
		if (x->layout[order[i]].n)
			cw_line(w, "%s = (void *)(%s + %" PRId64 ");", x->layout[order[i]].pointer, use(x, NAME_ARENA),
				s->at[order[i]]);
	if (s->versions)
		cw_line(w, "V = (void *)(%s + %" PRId64 ");", use(x, NAME_ARENA),
			s->at[REGION_PARAMS] + s->versions_at);
	if (x->layout[REGION_GRADS].n && late(x))
		cw_line(w, "sums = (void *)(%s + %" PRId64 ");", use(x, NAME_ARENA), s->at[REGION_GRADS]);
	if (x->layout[REGION_GRADS].n && !reproducible(x)) {
		cw_line(w, "G = (void *)(%s + %" PRId64 ");", use(x, NAME_ARENA), s->at[REGION_GRADS]);
		if (s->bytes[REGION_LEAF])
			cw_line(w, "L = %s + %" PRId64 ";", use(x, NAME_ARENA), s->at[REGION_LEAF]);
	}
	if (s->bytes[REGION_TMP])
		cw_line(w, "tmp = %s + %" PRId64 ";", use(x, NAME_ARENA), s->at[REGION_TMP]);
	if (s->bytes[REGION_SCRATCH])
		cw_line(w, "scratch = %s + %" PRId64 ";", use(x, NAME_ARENA), s->at[REGION_SCRATCH]);
}

void write_init(StageCx *x, Cw *w)
{
	const Stage *s = x->s;
	const bool tree = x->layout[REGION_GRADS].n && reproducible(x);
	const int64_t floats = x->layout[REGION_GRADS].bytes / 4;
	Buf body = { 0 };
	Cw in = function_body(x, &body);

	write_pointers(x, &in);
	if (tree) {
		cw_line(&in,
			"pd_check_scratch(\"the tree of gradients\", pd_tree_bytes(MICROBATCHES, %" PRId64
			", %s, %s), %" PRId64 ");",
			floats, use(x, NAME_MINE), use(x, NAME_NMINE), s->bytes[REGION_LEAF]);
		cw_line(&in, "tree = pd_tree_new(MICROBATCHES, %" PRId64 ", mine, nmine, %s + %" PRId64 ");", floats,
			use(x, NAME_ARENA), s->at[REGION_LEAF]);
	}
	if (needs_replica(x))
		cw_line(&in, "replica = %s;", use(x, NAME_WHICH));
	if (late_buckets(x) && leaf_added(x))
		cw_line(&in, "of_step = %s;", use(x, NAME_NMINE));
	if (leaf_added(x) && on_gpu(x) && !flows(x) && !served_async(x->b->t))
		cw_line(&in, "pd_counted(&done);");
	open_servers(x, &in);
	open_owned(x, &in);
	if (sums_by(x, "vendor"))
		cw_line(&in, "pd_group_open(%s);", group_text(x));
	init_rows(x, &in);
	fill_consts(x, &in);
	if (x->clocks)
		cw_line(&in, "clock0 = pd_records(records, %d);", x->nclock);
	if (x->clocks && s->pace)
		cw_line(&in, "pd_pace(clock0, pace[%s]);", use(x, NAME_WHICH));
	open_memory(x, &in);
	for (int i = 0; i < x->nobject; i++) {
		const NodeKernel *nk = kernel_of(&x->kernels, x->object[i]);
		const Place place = { x, value_text, object_text, scratch_text, no_microbatch };
		cw_stmts(&in, comment_of(x, x->object[i]),
			statement(&x->kernels, nk, x->object[i], nk->k->init, &place));
	}
	static const Name parameter[] = { NAME_ARENA, NAME_WHICH, NAME_MINE, NAME_NMINE };
	for (size_t i = 0; i < sizeof parameter / sizeof *parameter; i++)
		if (!x->used[parameter[i]])
			cw_line(&in, "(void)%s;", use(x, parameter[i]));
	write_function(x, w, function_head(x, "void %s(char *arena, int which, const int *mine, int nmine)", "init"),
		&body, FUNCTION_PLAIN);
}
