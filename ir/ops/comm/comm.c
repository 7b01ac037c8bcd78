/* Send, Recv, AllReduce: what crosses from device to device. Codegen writes their statements, since peers and groups
 * are facts of the plan; here are only their attributes. split and comm make these nodes.
 *
 *     Send(%x) {to=STAGE, channel=N}          %x = Recv() {from=STAGE, channel=N} : type
 *     AllReduce(%a, %b, ...) {over=replicas}  sums over the stage's replicas, in place
 *     AllReduce(%a, ...) {over=rows}          the same, where foreign rows are zero
 *     AllGather(@a, @b, ...) {parts}          of each parameter every replica has updated its part (part_of); now all have all
 *     %w = GatherWeight(@w) {bucket, parts}   the whole of a weight of which each replica has a part; those of one bucket travel together,
 *                                             from where they stand to the first node that reads one of them
 *     AllGatherv(%ids, %rows)                 rows of all replicas (from Stack), each id once: the sum over the microbatches
 * by: the algorithm, auto, ring, doubling, halving, pairwise, hosts (runtime/comm/rounds.c) or vendor.
 * bucket: the sum begins in the last backward in front of a SYNC, behind the node that makes its last operand, as the how manieth of
 * the stage; -1: in SYNC.
 * owner: which replica has the sum of each operand, updates with it and sends the parameter to the others (passes/comm/owners.c).
 * parts: the sum is a ReduceScatter over so many replicas: each has the sum of its part of every operand, and of the others nothing
 * that means anything; 0: all have all. each: it is one behind every backward, and what is summed over the microbatches is the part
 * (Accumulate {part}); without, one of what was summed over them.
 * codec: how the messages of a sum are packed: none, trunc16, bf16, q8 with a step per `block` elements. feedback: what packing
 * takes away from %g.w stays in the parameter w:residual of each replica and is added to its gradient of the next step. guard: the first
 * steps show whether packing pays. */
#include "../common/common.h"

struct send {
	int64_t to, channel;
};
struct recv {
	int64_t from, channel;
};
struct allreduce {
	const char *over, *codec, *by;
	int64_t block, bucket, feedback, guard, parts, each;
	Ints owner;
};
struct gather {
	int64_t parts, bucket;
};

static bool whole_shape(Node *n, Diag *d)
{
	(void)d;
	set_out(n, 0, n->in[0]->type);
	return true;
}

static const AttrDef send_attrs[] = { AT_INT(struct send, to, 0), AT_INT(struct send, channel, 0), AT_END };
static const AttrDef recv_attrs[] = { AT_INT(struct recv, from, 0), AT_INT(struct recv, channel, 0), AT_END };
static const AttrDef allreduce_attrs[] = { AT_STR(struct allreduce, over, "replicas"),
	AT_STR(struct allreduce, codec, "none"), AT_STR(struct allreduce, by, "auto"),
	AT_INT(struct allreduce, block, 0), AT_INT(struct allreduce, bucket, -1), AT_INT(struct allreduce, feedback, 0),
	AT_INT(struct allreduce, guard, 0), AT_INT(struct allreduce, parts, 0), AT_INT(struct allreduce, each, 0),
	AT_INTS(struct allreduce, owner), AT_END };
static const AttrDef gather_attrs[] = { AT_INT(struct gather, parts, 2), AT_END };
static const AttrDef whole_attrs[] = { AT_INT(struct gather, bucket, 0), AT_INT(struct gather, parts, 2), AT_END };

const OpDef op_Send = {
	.name = "Send",
	.minin = 1,
	.maxin = 1,
	.flags = OP_COMM | OP_NHWC,
	.attrs = send_attrs,
	.attrsize = sizeof(struct send),
};

const OpDef op_Recv = {
	/* no shape rule: the type comes from the one who builds the node, or from the text */
	.name = "Recv",
	.nout = 1,
	.flags = OP_COMM | OP_NHWC,
	.attrs = recv_attrs,
	.attrsize = sizeof(struct recv),
};

const OpDef op_AllGatherv = {
	.name = "AllGatherv",
	.minin = 2,
	.maxin = 2,
	.flags = OP_COMM,
};

const OpDef op_AllGather = {
	.name = "AllGather",
	.minin = 1,
	.maxin = -1,
	.flags = OP_COMM,
	.attrs = gather_attrs,
	.attrsize = sizeof(struct gather),
};

const OpDef op_GatherWeight = {
	.name = "GatherWeight",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_COMM,
	.attrs = whole_attrs,
	.attrsize = sizeof(struct gather),
	.shape = whole_shape,
};

const OpDef op_AllReduce = {
	.name = "AllReduce",
	.minin = 1,
	.maxin = -1,
	.flags = OP_COMM,
	.attrs = allreduce_attrs,
	.attrsize = sizeof(struct allreduce),
};
