/* ReduceProdGrad of x and the gradient g of ReduceProd's result, whose reduced axes are kept as 1: the derivative by an element
 * is the product of all the others. That is what stands before it times what stands behind it, never the whole product
 * divided by the element: with one factor of zero its own derivative is the product of the others, all others are zero. */
#include <string.h>
#include "../common/common.h"

struct prod_grad {
	Ints axes;
};

static bool shape(Node *n, Diag *d)
{
	const struct prod_grad *at = n->attr;
	bool gone[MAXRANK];

	if (!same_dtype(n, 0, d) || !norm_axes(n, d, "axes", at->axes, n->in[0]->type.rank, gone))
		return false;
	Type t = n->in[0]->type, kept = t;
	if (!dtype_float(t.dtype))
		return diag_error(d, n->loc, 302, "ReduceProdGrad does not compute on %s, which is %s", n->in[0]->name,
			str_type(d->scratch, &t));
	for (int i = 0; i < t.rank; i++)
		kept.dim[i] = gone[i] ? 1 : t.dim[i];
	if (!need_same_shape(n, d, n->in[1], &kept))
		return false;
	t.rows = 0;
	set_out(n, 0, t);
	return true;
}

static Cost cost(const Node *n) { return cost_bytes(n, 4.0 * (double)type_numel(&n->in[0]->type)); }

/* Op 0 is the result, op 1 x, op 2 g with strides of 0 along the reduced axes. */
static Nest nest_of(const Node *n)
{
	Nest s;

	nest_begin(&s, node_arena(n), n->in[0]->type.rank, n->in[0]->type.dim);
	nest_add_type(&s, "y", &n->out[0]->type);
	nest_add_type(&s, "x", &n->in[0]->type);
	nest_add_type(&s, "g", &n->in[1]->type);
	nest_finish(&s);
	return s;
}

static void holes(const Node *n, Holes *h)
{
	const Type *x = &n->in[0]->type;
	const Nest s = nest_of(n);
	const struct prod_grad *at = n->attr;
	const char *axes = "";
	int64_t kept_count = 1, gone_count = 1;
	unsigned kept = 0;

	for (int d = 0; d < s.rank; d++) {
		kept |= s.op[2].stride[d] ? 1u << d : 0;
		*(s.op[2].stride[d] ? &kept_count : &gone_count) *= s.dim[d];
	}
	for (int i = 0; i < at->axes.n; i++)
		axes = arena_printf(h->arena, "%s%lld", axes, (long long)at->axes.v[i]);
	hole_text(h, "T", "%s", dtype_c(x->dtype));
	hole_text(h, "IX", "%s", type_numel(x) < INT32_MAX ? "int" : "int64_t");
	hole_int(h, "KEPT_COUNT", kept_count);
	hole_int(h, "GONE_COUNT", gone_count);
	hole_text(h, "KEPT_INDEX", "%s", nest_index(h->arena, &s, "o", kept));
	hole_text(h, "GONE_INDEX", "%s", nest_index(h->arena, &s, "r", ~kept));
	hole_text(h, "TO", "%s", nest_ref(h->arena, &s, 0));
	hole_text(h, "FROM", "%s", nest_ref(h->arena, &s, 1));
	hole_text(h, "GRADIENT", "%s", nest_ref(h->arena, &s, 2));
	hole_int(h, "PAR", type_numel(x) >= 32768 && kept_count > 1);
	hole_name(h, "reduce_prod_grad_%s_axes%s%s", dims_name(h->arena, x), axes, dtype_suffix(x->dtype));
}

/* The element of g that element i of x, in row-major order, is multiplied into. */
static int64_t place_in(const Type *g, const Type *x, int64_t i)
{
	int64_t o = 0, step = 1;

	for (int k = x->rank - 1; k >= 0; i /= x->dim[k--]) {
		o += g->dim[k] == 1 ? 0 : i % x->dim[k] * step;
		step *= g->dim[k];
	}
	return o;
}

static bool eval(const Node *n, const Tensor *in, Tensor *out, Arena *a)
{
	const Type *x = &in[0].type, *g = &in[1].type;
	const int64_t count = type_numel(x), groups = type_numel(g);
	double *before = NEWN(a, double, groups), *behind = NEWN(a, double, groups);

	tensor_alloc(&out[0], &n->out[0]->type, a);
	for (int64_t o = 0; o < groups; o++) {
		before[o] = elem_f(&in[1], o);
		behind[o] = 1;
	}
	for (int64_t i = 0; i < count; i++) {
		double *p = &before[place_in(g, x, i)];
		elem_set_f(&out[0], i, *p);
		*p *= elem_f(&in[0], i);
	}
	for (int64_t i = count - 1; i >= 0; i--) {
		double *p = &behind[place_in(g, x, i)];
		elem_set_f(&out[0], i, elem_f(&out[0], i) * *p);
		*p *= elem_f(&in[0], i);
	}
	return true;
}

static const AttrDef attrs[] = { AT_INTS(struct prod_grad, axes), AT_END };

const OpDef op_ReduceProdGrad = {
	.name = "ReduceProdGrad",
	.minin = 2,
	.maxin = 2,
	.nout = 1,
	.flags = OP_PURE | OP_NHWC,
	.attrs = attrs,
	.attrsize = sizeof(struct prod_grad),
	.shape = shape,
	.cost = cost,
	.holes = holes,
	.eval = eval,
	.cpu = { .file = "prod_grad.cpu.c", .call = "$k($=, $0, $1);" },
	.ref = { .file = "prod_grad.cpu.c", .call = "$k($=, $0, $1);" },
	.cuda = { .file = "prod_grad.cuda.cu", .call = "$k($=, $0, $1);" },
};
