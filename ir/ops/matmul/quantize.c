/* Numbers of 8 bits for products (--amp fp8), after Micikevicius et al., "FP8 formats for deep learning" (2022): a matrix of rows of
 * `columns` numbers becomes one of small numbers times a scale that all of it has, the one that the steps before ask for (delayed
 * scaling), and once more with rows and columns exchanged, as products want rows of both operands along k:
 *     %y[, %across] = Quantize(%x, @state) {to, lies, columns, once}
 *                                    to: "f8e4m3" (4 bits of exponent, 3 of fraction, up to 448; forward) or "f8e5m2" (up to 57344;
 *                                    gradients); lies=1: y[r][c] = x[r][c]; 2: y[c][r]; 3: both, the second is %across. What is too
 *                                    large becomes the largest. The largest |x| goes into @state. once: as Cast has it
 *     Rescale(@state) {to}           at the end of a step: the scale of the next one
 * @state is f32[F8_STATE]: what the numbers are times (0: nothing was seen yet), the largest |x| of this step so far, that of each
 * of the F8_STEPS steps before, the last one first. The scale is the power of two by which the largest of all these steps comes to lie
 * in [128, 256) for f8e4m3, [2^14, 2^15) for f8e5m2: nothing is rounded for it, and what is 1.75 times as large as all that was seen
 * still fits. In the first step the scale is that of the first microbatch's own numbers: gradients would vanish with scale 1. What is
 * infinite or no number is not remembered. */
#include <string.h>
#include "matmul.h"

struct quantize {
	const char *to;
	int64_t lies, columns, once;
};

static bool is_state(const Value *v)
{
	return v && v->type.dtype == DT_f32 && v->type.rank == 1 && v->type.dim[0] == F8_STATE;
}

static bool known(const struct quantize *at) { return dtype_f8(dtype_from_name(at->to)); }

static int outs(const void *attr) { return ((const struct quantize *)attr)->lies == (F8_PLAIN | F8_ACROSS) ? 2 : 1; }

static bool quantize_shape(Node *n, Diag *d)
{
	const struct quantize *at = n->attr;
	const Type *x = &n->in[0]->type;
	const int64_t rows = at->columns > 0 ? type_numel(x) / at->columns : 0;
	const int64_t plain[] = { rows, at->columns }, across[] = { at->columns, rows };

	if (!known(at) || at->lies < F8_PLAIN || at->lies > (F8_PLAIN | F8_ACROSS))
		return diag_error(
			d, n->loc, 302, "Quantize: to '%s', lies %lld has no meaning", at->to, (long long)at->lies);
	if ((x->dtype != DT_bf16 && x->dtype != DT_f32) || x->layout != LAYOUT_PLAIN || !is_state(n->in[1]) || !rows ||
		rows * at->columns != type_numel(x) || rows % 16 || at->columns % 16)
		return diag_error(d, n->loc, 304, "Quantize: %s in rows of %lld, multiples of 16 with f32[%d]",
			str_type(d->scratch, x), (long long)at->columns, F8_STATE);
	set_out(n, 0, type_make(dtype_from_name(at->to), 2, at->lies & F8_PLAIN ? plain : across));
	if (at->lies == (F8_PLAIN | F8_ACROSS))
		set_out(n, 1, type_make(dtype_from_name(at->to), 2, across));
	return true;
}

static void quantize_holes(const Node *n, Holes *h)
{
	const struct quantize *at = n->attr;
	const Type *x = &n->in[0]->type;
	const int64_t rows = type_numel(x) / at->columns;

	hole_text(h, "TX", "%s", dtype_c(x->dtype));
	hole_text(h, "LOAD", "%s", dtype_half(x->dtype) ? "pd_from_bf16" : "");
	hole_text(h, "STORE", "pd_to_%s", at->to);
	hole_text(h, "FORMAT", "%s", !strcmp(at->to, "f8e4m3") ? "PD_F8E4M3" : "PD_F8E5M2");
	hole_int(h, "ROWS", rows);
	hole_int(h, "COLUMNS", at->columns);
	hole_text(h, "CALL",
		at->lies == F8_PLAIN    ? "$k($=, NULL, $0, $1);"
		: at->lies == F8_ACROSS ? "$k(NULL, $=, $0, $1);"
					: "$k($=, $=1, $0, $1);");
	hole_name(
		h, "quantize_%lldx%lld_%s%s", (long long)rows, (long long)at->columns, at->to, dtype_suffix(x->dtype));
}

static bool rescale_shape(Node *n, Diag *d)
{
	return (is_state(n->in[0]) && known(n->attr)) ||
	       diag_error(d, n->loc, 304, "Rescale: %s, to '%s'", str_type(d->scratch, &n->in[0]->type),
		       ((const struct quantize *)n->attr)->to);
}

static void rescale_holes(const Node *n, Holes *h)
{
	const struct quantize *at = n->attr;

	hole_text(h, "MANY", "{ .n = %d, .at = { $0 }, .of = { %s } }", F8_STATE,
		!strcmp(at->to, "f8e4m3") ? "PD_F8E4M3" : "PD_F8E5M2");
	hole_text(h, "MANY_NAME", "rescale");
	hole_int(h, "STATE", F8_STATE);
	hole_name(h, "rescale");
}

/* ---- making them ---- */

Node *quantize_make(Builder *b, Value *x, Value *state, DType to, int lies, int64_t columns, const char *name)
{
	struct quantize *at = attr_new(b->m->arena, OP_Quantize);

	*at = (struct quantize){ dtype_name(to), lies, columns, 0 };
	return build(b, OP_Quantize, at, 2, (Value *[]){ x, state }, name);
}

Node *rescale_make(Builder *b, Value *state, DType to)
{
	struct quantize *at = attr_new(b->m->arena, OP_Rescale);

	*at = (struct quantize){ .to = dtype_name(to) };
	return build(b, OP_Rescale, at, 1, &state, NULL);
}

static const AttrDef quantize_attrs[] = { AT_STR(struct quantize, to, "f8e4m3"),
	AT_INT(struct quantize, lies, F8_PLAIN), AT_INT(struct quantize, columns, 0), AT_INT(struct quantize, once, 0),
	AT_END };
static const AttrDef rescale_attrs[] = { AT_STR(struct quantize, to, "f8e4m3"), AT_END };

const OpDef op_Quantize = {
	.name = "Quantize",
	.minin = 2,
	.maxin = 2,
	.nout = 2,
	.outs = outs,
	.attrs = quantize_attrs,
	.attrsize = sizeof(struct quantize),
	.shape = quantize_shape,
	.holes = quantize_holes,
	.cuda = { .file = "quantize.cuda.cu" },
};

const OpDef op_Rescale = {
	.name = "Rescale",
	.minin = 1,
	.maxin = 1,
	.flags = OP_UPDATE,
	.attrs = rescale_attrs,
	.attrsize = sizeof(struct quantize),
	.writes = 1,
	.shape = rescale_shape,
	.holes = rescale_holes,
	.cuda = { .file = "rescale.cuda.cu", .call = "$k($rows);" },
};
