/* Noise by counted random numbers: y is normal around `at` with deviation `by`, or uniform in [at, at + by). Numbers are
 * counted by node (id), global sample and element, as Dropout's are, so they are the same for every plan. The batch is
 * `samples` of axis `axis`, whose extent is a multiple of it; with samples 0 all microbatches of a step share the noise.
 * seeded: the model says the seed. */
#include "../common/common.h"

struct noise {
	Ints shape;
	int64_t dtype, normal, axis, samples, id, seed, seeded;
	double at, by;
};

static bool shape(Node *n, Diag *d)
{
	const struct noise *at = n->attr;
	const DType t = dtype_from_onnx((int)at->dtype);

	if (t != DT_f32 && t != DT_f64)
		return diag_error(d, n->loc, 302, "noise is f32 or f64, type %lld is asked for", (long long)at->dtype);
	if (at->shape.n > MAXRANK)
		return diag_error(d, n->loc, 305, "noise of rank %d, the most is %d", at->shape.n, MAXRANK);
	for (int i = 0; i < at->shape.n; i++)
		if (at->shape.v[i] < 0)
			return diag_error(d, n->loc, 305, "noise: dimension %d is %lld", i, (long long)at->shape.v[i]);
	if (at->samples < 0 ||
		(at->samples && (at->axis < 0 || at->axis >= at->shape.n || at->shape.v[at->axis] % at->samples)))
		return diag_error(d, n->loc, 305, "noise: axis %lld does not hold %lld samples", (long long)at->axis,
			(long long)at->samples);
	if (!(at->by >= 0))
		return diag_error(d, n->loc, 302, "noise: its %s is %g", at->normal ? "scale" : "range", at->by);
	set_out(n, 0, type_make(t, at->shape.n, at->shape.v));
	return true;
}

static void holes(const Node *n, Holes *h)
{
	const struct noise *at = n->attr;
	const Type *y = &n->out[0]->type;
	const int64_t count = type_numel(y), batch = at->samples ? at->samples : 1;
	int64_t inner = at->samples ? y->dim[at->axis] / batch : count;

	for (int i = (int)at->axis + 1; at->samples && i < y->rank; i++)
		inner *= y->dim[i];
	inner = inner ? inner : 1;
	hole_text(h, "T", "%s", dtype_c(y->dtype));
	hole_int(h, "N", count);
	hole_int(h, "BATCH", batch);
	hole_int(h, "INNER", inner);
	hole_int(h, "NORMAL", at->normal != 0);
	hole_text(h, "AT", "%.17g", at->at);
	hole_text(h, "BY", "%.17g", at->by);
	hole_text(h, "SEED", "%lldu", (long long)at->seed);
	hole_text(h, "ID", "%lldu", (long long)at->id);
	hole_int(h, "PAR", count >= 4096);
	if (!at->samples) {
		hole_text(h, "CALL", "$k($=, pd_sample(0));");
		hole_text(h, "CUDA_CALL", "$k($=, 0);");
	} else {
		hole_text(h, "CUDA_CALL", "$k($=, pd_sample_of_step($mb));");
	}
	hole_name(h, "%s_%lld_%lld%s", at->normal ? "normal" : "uniform", (long long)count, (long long)at->id,
		dtype_suffix(y->dtype));
}

static Cost cost(const Node *n) { return cost_bytes(n, 60.0 * (double)type_numel(&n->out[0]->type)); }

static const AttrDef attrs[] = { AT_INTS(struct noise, shape), AT_INT(struct noise, dtype, 1),
	AT_INT(struct noise, normal, 0), AT_INT(struct noise, axis, 0), AT_INT(struct noise, samples, 0),
	AT_INT(struct noise, id, 0), AT_INT(struct noise, seed, 1), AT_INT(struct noise, seeded, 0),
	AT_FLOAT(struct noise, at, 0), AT_FLOAT(struct noise, by, 1), AT_END };

const OpDef op_Noise = {
	.name = "Noise",
	.minin = 0,
	.maxin = 0,
	.nout = 1,
	.flags = OP_PURE | OP_RANDOM,
	.attrs = attrs,
	.attrsize = sizeof(struct noise),
	.shape = shape,
	.cost = cost,
	.holes = holes,
	.cpu = { .file = "random.cpu.c", .call = "$k($=, pd_sample($mb));" },
	.ref = { .file = "random.cpu.c", .call = "$k($=, pd_sample($mb));" },
	.cuda = { .file = "random.cuda.cu" },
};
