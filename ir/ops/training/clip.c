/* Clipping by the global norm (Parallax section 3, PX-12): after aggregation, over all parameters of all stages.
 *     SquareSum(@w, %g) {index}      tells the runtime the sum of squares of the gradient of trained parameter `index`
 *                                    with {at, block}: of a piece of a table that lies at several servers, block by block
 *                                    from number `at` on
 *                                    with {parts}: of what this device of a tensor group has; the sum goes over all of them
 *                                    with {at, part}: of the replica's part of so many elements (--zero), as number `at` + replica; with
 *                                    {parts} of its part of what this device has
 *     %m = ClipNorm(%n) {max, of, at}    joins those of all `of` parameters over all devices, at stage `at`:
 *                                    m = n max(1, |g| / n / max), so that g / m is the clipped mean gradient; max 0: m is n, the
 *                                    norm is only told (--gnorm)
 * Loss scaling (fp16): gradients are those of the loss times LossScale(), so with `scaled` m is n times that; a norm that is
 * no number is no fault then, but this step's update is left out on all devices.
 * Squares are added in f64, in blocks (of whole rows, where there are some) whose bounds depend on the shape alone, parameters in the module's order: every plan has
 * the same bits. SquareSum counts as an update of its parameter and writes nothing: each holder of a tied one has its own,
 * and all of them tell the same. */
#include "../common/common.h"

struct clip {
	double max;
	int64_t index, of, at, scaled, block, parts, part;
};

static bool square_shape(Node *n, Diag *d)
{
	const Type *w = &n->in[0]->type, *g = &n->in[1]->type;
	const struct clip *at = n->attr;

	if ((!shape_eq(w, g) && !(at->part && type_numel(g) == at->part)) || w->dtype != g->dtype)
		return diag_error(d, n->loc, 304, "SquareSum: %s is %s, %s is %s", n->in[0]->name,
			str_type(d->scratch, w), n->in[1]->name, str_type(d->scratch, g));
	if (at->index < 0)
		return diag_error(
			d, n->loc, 302, "SquareSum: index is %lld; it must not be negative", (long long)at->index);
	return true;
}

static void square_holes(const Node *n, Holes *h)
{
	const struct clip *at = n->attr;
	const Type *t = &n->in[1]->type;
	const int64_t count = at->part ? at->part : type_numel(t), rows = at->part ? 0 : type_block_rows(t);
	const int64_t block = at->block ? at->block : rows ? rows * (count / t->dim[0]) : (count + 255) / 256;

	hole_text(h, "T", "%s", dtype_c(t->dtype));
	hole_int(h, "N", count);
	hole_int(h, "BLOCK", block ? block : 1);
	hole_int(h, "PAR", count >= 32768);
	hole_int(h, "PIECE", at->block > 0);
	hole_int(h, "PART", at->part > 0);
	hole_int(h, "INDEX", at->index);
	hole_int(h, "AT", at->at);
	hole_name(h, "square_sum_%lld_%lld%s%s", (long long)count, (long long)block,
		at->block  ? "_piece"
		: at->part ? "_part"
			   : "",
		dtype_suffix(t->dtype));
	if (at->parts)
		hole_text(h, "CALL", "pd_square($INDEX, pd_tensor_total($k($1)));");
	if (at->block)
		hole_text(h, "CALL", "$k($AT, $1);");
	if (at->part)
		hole_text(h, "CALL", "pd_square($AT + replica, %s$k($1%s, pd_part_of(replica, $N, %lld))%s);",
			at->parts ? "pd_tensor_total(" : "",
			type_numel(t) == at->part
				? ""
				: arena_printf(h->arena, " + pd_part_at(replica, $N, %lld)", (long long)type_numel(t)),
			(long long)type_numel(&n->in[0]->type), at->parts ? ")" : "");
}

int64_t square_blocks(const Node *n)
{
	const struct clip *at = n->attr;

	if (at->part)
		return n->graph->stage ? n->graph->stage->replicas : 1;
	return at->block ? (type_numel(&n->in[1]->type) + at->block - 1) / at->block : 0;
}

static bool clip_shape(Node *n, Diag *d)
{
	const struct clip *at = n->attr;

	if (type_numel(&n->in[0]->type) != 1 || !dtype_float(n->in[0]->type.dtype))
		return diag_error(d, n->loc, 304, "ClipNorm: %s is %s, not one float", n->in[0]->name,
			str_type(d->scratch, &n->in[0]->type));
	if (!(at->max >= 0) || at->of < 1)
		return diag_error(d, n->loc, 302,
			"ClipNorm: max is %g over %lld parameters; it must be 0 or more, over 1 or more", at->max,
			(long long)at->of);
	set_out(n, 0, n->in[0]->type);
	return true;
}

static void clip_holes(const Node *n, Holes *h)
{
	const struct clip *at = n->attr;

	hole_text(h, "T", "%s", dtype_c(n->out[0]->type.dtype));
	hole_text(h, "MAX", "%.17g", at->max);
	if (at->scaled)
		hole_text(h, "CALL", "pd_clip_scaled($=, $0, $MAX); if (pd_overflow()) return;");
}

static const AttrDef square_attrs[] = { AT_INT(struct clip, index, 0), AT_INT(struct clip, at, 0),
	AT_INT(struct clip, block, 0), AT_INT(struct clip, parts, 0), AT_INT(struct clip, part, 0), AT_END };
static const AttrDef clip_attrs[] = { AT_FLOAT(struct clip, max, 1), AT_INT(struct clip, of, 1),
	AT_INT(struct clip, at, 0), AT_INT(struct clip, scaled, 0), AT_END };
static const AttrDef no_attrs[] = { AT_END };

static bool scale_shape(Node *n, Diag *d)
{
	(void)d;
	set_out(n, 0, type_scalar(DT_f32));
	return true;
}

const OpDef op_SquareSum = {
	.name = "SquareSum",
	.minin = 2,
	.maxin = 2,
	.flags = OP_UPDATE,
	.attrs = square_attrs,
	.attrsize = sizeof(struct clip),
	.shape = square_shape,
	.shard = shard_same_shapes,
	.holes = square_holes,
	.cpu = { .file = "square_sum.cpu.c", .call = "pd_square($INDEX, $k($1));" },
	.cuda = { .file = "square_sum.cuda.cu", .call = "pd_square($INDEX, $k($1));" },
};

const OpDef op_ClipNorm = {
	.name = "ClipNorm",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.attrs = clip_attrs,
	.attrsize = sizeof(struct clip),
	.shape = clip_shape,
	.holes = clip_holes,
	.cpu = { .call = "$=[0] = ($T)pd_clip($0[0], $MAX);" },
	.cuda = { .call = "pd_set($=, pd_clip(pd_get($0), $MAX));" },
};

const OpDef op_LossScale = {
	.name = "LossScale",
	.nout = 1,
	.attrs = no_attrs,
	.attrsize = 1,
	.shape = scale_shape,
	.cpu = { .call = "$=[0] = (float)pd_loss_scale();" },
	.cuda = { .call = "pd_set($=, pd_loss_scale());" },
};
