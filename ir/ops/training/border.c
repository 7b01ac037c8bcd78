/* Between microbatches and the update: Accumulate, Stack, Report, ReportHits, Total. */
#include "../../schedule.h"
#include "../common/common.h"

struct total {
	int64_t dtype;
};

struct accumulate {
	int64_t part;
};

struct stack {
	int64_t joined;
};

/* The sum over the microbatches of a step; dense whatever the operand is. part: of the replica's part alone (passes/comm/zero.c). */
static bool accumulate_shape(Node *n, Diag *d)
{
	const struct accumulate *at = n->attr;
	Type t = n->in[0]->type;

	(void)d;
	t.rows = 0;
	set_out(n, 0, at->part ? type_make(t.dtype, 1, &at->part) : t);
	return true;
}

static const AttrDef accumulate_attrs[] = { AT_INT(struct accumulate, part, 0), AT_END };

/* One row per microbatch of the step, over all replicas; joined: one behind another along the first axis, with no axis of their own. */
static bool stack_shape(Node *n, Diag *d)
{
	const Type *x = &n->in[0]->type;
	const Schedule *s = n->graph->module->schedule;
	const bool round = s && s->robin && n->graph->stage; /* those that make an update of the stage */
	const int64_t m = round ? s->replicas[n->graph->stage->id] : n->graph->module->microbatches;
	int64_t dim[MAXRANK] = { m > 0 ? m : 1 };
	Type t = *x;

	if (((const struct stack *)n->attr)->joined) {
		if (x->rank < 1)
			return diag_error(d, n->loc, 303, "Stack: %s has no axis to be joined along", n->in[0]->name);
		t.dim[0] *= dim[0];
		t.rows = 0;
		set_out(n, 0, t);
		return true;
	}
	if (x->rank + 1 > MAXRANK)
		return diag_error(d, n->loc, 303, "Stack: %s has rank %d already", n->in[0]->name, x->rank);
	for (int i = 0; i < x->rank; i++)
		dim[i + 1] = x->dim[i];
	set_out(n, 0, type_make(x->dtype, x->rank + 1, dim));
	return true;
}

static bool total_shape(Node *n, Diag *d)
{
	const struct total *at = n->attr;
	const DType t = dtype_from_onnx((int)at->dtype);

	if (!dtype_float(t))
		return diag_error(d, n->loc, 302, "Total: element type %lld is no float", (long long)at->dtype);
	set_out(n, 0, type_scalar(t));
	return true;
}

static void total_holes(const Node *n, Holes *h) { hole_text(h, "T", "%s", dtype_c(n->out[0]->type.dtype)); }

static const AttrDef total_attrs[] = { AT_INT(struct total, dtype, 1), AT_END };

/* The rows of what is stacked. */
static bool stack_shard(const Node *n, bool out, int at, ShardWay *w)
{
	const int ahead = ((const struct stack *)n->attr)->joined ? 0 : 1; /* an axis of the rows */
	Shard s;
	const Type *of;

	if (!shard_seed(n, out, at, w, &s, &of) || s.axis < (out || !ahead ? 1 : 0))
		return false;
	s.axis -= out ? ahead : 0;
	w->in[0] = s;
	s.axis += ahead;
	w->out[0] = s;
	return true;
}

const OpDef op_Accumulate = {
	.name = "Accumulate",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.attrs = accumulate_attrs,
	.attrsize = sizeof(struct accumulate),
	.shape = accumulate_shape,
	.shard = shard_same_shapes,
};

static const AttrDef stack_attrs[] = { AT_INT(struct stack, joined, 0), AT_END };

const OpDef op_Stack = {
	.name = "Stack",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.attrs = stack_attrs,
	.attrsize = sizeof(struct stack),
	.shape = stack_shape,
	.shard = stack_shard,
};

const OpDef op_Report = {
	/* the loss of a microbatch, as a sum, and what it will be divided by */
	.name = "Report",
	.minin = 2,
	.maxin = 2,
	.cpu = { .call = "pd_report($mb, $0[0], $1[0]);" },
	.cuda = { .call = "pd_report_from($mb, $0, $1);" },
};

const OpDef op_ReportHits = {
	/* a CountHits */
	.name = "ReportHits",
	.minin = 1,
	.maxin = 1,
	.cpu = { .call = "pd_hits($mb, $0[0], $0[1]);" },
	.cuda = { .call = "pd_hits_from($mb, $0);" },
};

const OpDef op_Total = {
	/* what the losses of all microbatches are divided by; never 0 */
	.name = "Total",
	.nout = 1,
	.attrs = total_attrs,
	.attrsize = sizeof(struct total),
	.shape = total_shape,
	.holes = total_holes,
	.cpu = { .call = "$=[0] = ($T)pd_total_count();" },
	.cuda = { .call = "pd_set_count($=);" },
};
