/* CumSum along an axis: y[k] is the sum of x[0] .. x[k]; exclusive leaves x[k] out, reverse sums from the end. */
#include "index.h"

struct cumsum {
	int64_t axis, exclusive, reverse;
};

static bool shape(Node *n, Diag *d)
{
	const struct cumsum *at = n->attr;
	int axis;

	if (!need_operands(n, d))
		return false;
	Type t = n->in[0]->type;
	if (t.dtype == DT_bool || ((t.dtype == DT_f16 || t.dtype == DT_bf16) && n->in[0]->kind != VAL_CONST))
		return diag_error(d, n->loc, 302, "CumSum does not compute on %s, which is %s", n->in[0]->name,
			str_type(d->scratch, &t));
	if (!norm_axis(n, d, "axis", at->axis, t.rank, &axis))
		return false;
	t.rows = 0;
	t.layout = LAYOUT_PLAIN;
	set_out(n, 0, t);
	return true;
}

/* x[k] is in all sums from k on: the same sum in the other direction. */
static void grad(Builder *b, const Node *n, Value *const *dy, Value **dx)
{
	const struct cumsum *at = n->attr;
	struct cumsum *back = attr_new(b->m->arena, OP_CumSum);

	*back = *at;
	back->reverse = !at->reverse;
	dx[0] = mk(b, OP_CumSum, back, NULL, 1, dy[0]);
}

static Cost cost(const Node *n) { return cost_bytes(n, (double)type_numel(&n->out[0]->type)); }

static void holes(const Node *n, Holes *h)
{
	const struct cumsum *at = n->attr;
	const Type *x = &n->in[0]->type;
	const Blocks s = blocks_of(x, axis_from(at->axis, x->rank));

	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_int(h, "OUTER", s.outer);
	hole_int(h, "N", s.dim);
	hole_int(h, "INNER", s.inner);
	hole_int(h, "BLOCK", s.inner < 64 ? s.inner ? s.inner : 1 : 64);
	hole_int(h, "EXCLUSIVE", at->exclusive != 0);
	hole_int(h, "REVERSE", at->reverse != 0);
	hole_int(h, "PAR", type_numel(x) >= 32768 && s.outer * (s.inner / 64 + 1) > 1);
	hole_name(h, "cumsum_%lldx%lldx%lld%s%s%s", (long long)s.outer, (long long)s.dim, (long long)s.inner,
		at->exclusive ? "_exclusive" : "", at->reverse ? "_reverse" : "", dtype_suffix(x->dtype));
}

static bool eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const struct cumsum *at = n->attr;
	const Blocks s = blocks_of(&in[0].type, axis_from(at->axis, in[0].type.rank));

	tensor_alloc(&out[0], &n->out[0]->type, a);
	for (int64_t r = 0; r < s.outer * s.inner; r++) {
		double sum = 0;
		uint64_t whole = 0;
		for (int64_t k = 0; k < s.dim; k++) {
			const int64_t i =
				(r / s.inner * s.dim + (at->reverse ? s.dim - 1 - k : k)) * s.inner + r % s.inner;
			const double before = sum;
			const uint64_t whole_before = whole;
			if (dtype_float(in[0].type.dtype)) {
				sum += elem_f(&in[0], i);
				elem_set_f(&out[0], i, at->exclusive ? before : sum);
			} else {
				whole += (uint64_t)elem_i(&in[0], i);
				elem_set_i(&out[0], i, (int64_t)(at->exclusive ? whole_before : whole));
			}
		}
	}
	return true;
}

static const AttrDef attrs[] = { AT_INT(struct cumsum, axis, 0), AT_INT(struct cumsum, exclusive, 0),
	AT_INT(struct cumsum, reverse, 0), AT_END };

const OpDef op_CumSum = {
	.name = "CumSum",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = attrs,
	.attrsize = sizeof(struct cumsum),
	.shape = shape,
	.grad = grad,
	.dgrad = { DENSE },
	.cost = cost,
	.holes = holes,
	.eval = eval,
	.cpu = { .file = "cumsum.cpu.c", .call = "$k($=, $0);" },
	.ref = { .file = "cumsum.cpu.c", .call = "$k($=, $0);" },
	.cuda = { .file = "cumsum.cuda.cu", .call = "$k($=, $0);" },
};
