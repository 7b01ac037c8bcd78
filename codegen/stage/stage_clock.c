/* profile/stageN.c: the stage's functions once more, each statement behind `if (pd_timed(K))`, and the table that says
 * what K is. make profile runs it alone and measures; make virtual sleeps for the planned times instead of computing.
 * Not timed: messages and waits, the report of the loss, what only moves rows between microbatches. */
#include <inttypes.h>
#include "ir/text/profile.h"
#include "stage.h"

static void open_clock(StageCx *x, Cw *w, const Node *n, const Value *input)
{
	PUSH(x->b->a, x->clock, x->nclock, x->capclock) = n;
	PUSH(x->b->a, x->clock_in, x->nclock_in, x->capclock_in) = input;
	cw_open(w, "if (pd_timed(clock0 + %d))", x->nclock - 1);
	x->clock_open = true;
}

void clock_node(StageCx *x, Cw *w, const Node *n)
{
	if (x->clocks && node_is_timed(n))
		open_clock(x, w, n, NULL);
	else if (x->clocks && (n->op == OP_Report || n->op == OP_ReportHits))
		clock_stop(x, w);
}

void clock_input(StageCx *x, Cw *w, const Value *v)
{
	if (x->clocks)
		open_clock(x, w, NULL, v);
}

void clock_end(StageCx *x, Cw *w)
{
	if (x->clock_open)
		cw_end(w);
	x->clock_open = false;
}

void clock_stop(StageCx *x, Cw *w)
{
	if (x->clocks)
		cw_line(w, "pd_timed(-1);");
}

/* ---- the table ---- */

void write_records(StageCx *x, Cw *w)
{
	if (!x->clocks)
		return;
	cw_blank(w);
	cw_comment(w,
		"what is timed: phase, op, value, node of the model, type, bytes of results and of weights, planned seconds");
	cw_open(w, "static const pd_record records[] =");
	for (int i = 0; i < x->nclock; i++) {
		const Node *n = x->clock[i];
		const ProfileNode r = profile_record(x->b->a, n, x->clock_in[i]);
		cw_line(w, "{ \"%s\", \"%s\", %s, %s, \"%s\", %" PRId64 ", %" PRId64 ", %.9g },",
			profile_phase[r.phase], r.op, quoted(x->b->a, r.value), quoted(x->b->a, r.node), r.type,
			r.activation, r.weight, n ? n->time : 0.0);
	}
	if (!x->nclock)
		cw_line(w, "{ 0 },");
	cw_close(w, ";");
	if (x->s->pace) {
		cw_comment(w, "by replica: how much longer forward, backward and update take on its device");
		cw_open(w, "static const double pace[][3] =");
		for (int r = 0; r < x->s->replicas; r++)
			cw_line(w, "{ %.9g, %.9g, %.9g },", x->s->pace[r][0], x->s->pace[r][1], x->s->pace[r][2]);
		cw_close(w, ";");
	}
	cw_stmt(w, "the first of them among all of the program", "static int clock0;");
}
