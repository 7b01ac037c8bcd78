/* What travels between the devices that share one replica of a stage (tensor parallelism; ir/shard.h). passes/shard makes
 * these nodes; all devices of a group meet them in one order, for they run one program.
 *     %y = TensorAllReduce(%x)                  the sum of all devices' x
 *     %y = TensorAllGather(%x) {axis, outer}    the whole, of which each device has a part of that axis
 *     %y = TensorShard(%x) {axis, outer}        this device's part of the whole, which all have; nothing travels
 *     %y = TensorReduceScatter(%x) {axis, outer} this device's part of the sum of all devices' x (CPUs; a sum and a part elsewhere) */
#include "../common/common.h"
#include "ir/analysis.h"

struct tensor {
	int64_t axis, outer, degree;
};

static bool sum_shape(Node *n, Diag *d)
{
	(void)d;
	set_out(n, 0, n->in[0]->type);
	return true;
}

static bool part_shape(Node *n, Diag *d)
{
	const struct tensor *at = n->attr;
	const Shard s = { SHARD_AXIS, (int)at->axis, at->outer };
	const Type *x = &n->in[0]->type;
	const bool gather = n->op == OP_TensorAllGather;

	if (at->degree < 2 || at->axis < 0 || at->axis >= x->rank || at->outer < 1 ||
		!shard_fits(x, s, gather ? 1 : (int)at->degree))
		return diag_error(d, n->loc, 305, "%s: axis %lld of %s in %lld blocks over %lld devices",
			optab[n->op]->name, (long long)at->axis, str_type(d->scratch, x), (long long)at->outer,
			(long long)at->degree);
	set_out(n, 0, gather ? shard_whole(x, s, (int)at->degree) : shard_type(x, s, (int)at->degree));
	return true;
}

int64_t shard_sent(const Node *n, int degree)
{
	enum { SMALL = 4096 }; /* sums of so few bytes are exchanged whole */
	const int64_t bytes = n->op == OP_TensorAllReduce       ? value_bytes(n->out[0])
	                      : n->op == OP_TensorAllGather     ? value_bytes(n->in[0])
	                      : n->op == OP_TensorReduceScatter ? value_bytes(n->out[0])
	                      : n->op == OP_SquareSum           ? (attr_int(n, "parts") ? 8 : 0)
	                                                        : loss_told(n);

	if (n->op != OP_TensorAllReduce || bytes <= SMALL)
		return (degree - 1) * bytes;
	const int64_t size = dtype_bytes(n->out[0]->type.dtype), part = bytes / size / degree * size;

	return bytes + (degree - 2) * part;
}

static void sum_holes(const Node *n, Holes *h)
{
	hole_int(h, "N", type_numel(&n->out[0]->type));
	hole_text(h, "DT", "%s", n->out[0]->type.dtype == DT_f64 ? "PD_F64" : "PD_F32");
}

/* Blocks, and the bytes of a device's part of one. */
static void part_holes(const Node *n, Holes *h)
{
	const struct tensor *at = n->attr;
	const Type *part = n->op == OP_TensorAllGather ? &n->in[0]->type : &n->out[0]->type;
	int64_t blocks = at->outer;

	for (int i = 0; i < at->axis; i++)
		blocks *= part->dim[i];
	hole_int(h, "BLOCKS", blocks);
	hole_int(h, "RUN", blocks ? type_numel(part) / blocks * dtype_bytes(part->dtype) : 0);
	hole_text(h, "DT", "%s", part->dtype == DT_f64 ? "PD_F64" : "PD_F32");
}

static const AttrDef attrs[] = { AT_INT(struct tensor, axis, 0), AT_INT(struct tensor, outer, 1),
	AT_INT(struct tensor, degree, 0), AT_END };

#define PART(op, call_) \
	const OpDef op_##op = { .name = #op, \
		.minin = 1, \
		.maxin = 1, \
		.nout = 1, \
		.flags = OP_PURE, \
		.attrs = attrs, \
		.attrsize = sizeof(struct tensor), \
		.shape = part_shape, \
		.holes = part_holes, \
		.cpu = { .call = call_ }, \
		.ref = { .call = call_ }, \
		.cuda = { .call = call_ } }

const OpDef op_TensorAllReduce = {
	.name = "TensorAllReduce",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE | OP_INPLACE,
	.shape = sum_shape,
	.holes = sum_holes,
	.cpu = { .call = "pd_tensor_sum($=, $0, $N, $DT);" },
	.ref = { .call = "pd_tensor_sum($=, $0, $N, $DT);" },
	.cuda = { .call = "pd_tensor_sum($=, $0, $N, $DT);" },
};

#define GATHER "pd_tensor_gather($=, $0, $BLOCKS, $RUN);"
#define SCATTER "pd_tensor_scatter($=, $0, $BLOCKS, $RUN, $DT);"
#define SHARD "pd_tensor_shard($=, $0, $BLOCKS, $RUN);"

PART(TensorAllGather, GATHER);
PART(TensorReduceScatter, SCATTER);
PART(TensorShard, SHARD);
