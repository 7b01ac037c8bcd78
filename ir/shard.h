/* How a tensor lies on the devices that share one replica of a stage (tensor parallelism), and what an op allows.
 *
 * A divided axis of length L is seen as [outer, degree, part]: device k has part k of each of the `outer` blocks, so that
 * the columns of a fused projection [q k v] are divided by heads with outer = 3. In memory that is
 * [axes before, outer, degree, part, axes behind] for the whole, without `degree` for what one device has. */
#ifndef PDCC_IR_SHARD_H
#define PDCC_IR_SHARD_H

#include "type.h"

typedef struct Node Node;
typedef struct Value Value;

typedef enum ShardKind {
	SHARD_WHOLE,  /* every device has all of it, bit for bit */
	SHARD_AXIS,   /* each has its part of one axis */
	SHARD_PARTIAL /* each has a summand: the tensor is their sum */
} ShardKind;

typedef struct Shard {
	ShardKind kind;
	int axis;
	int64_t outer;
} Shard;

/* A way to compute a node on `degree` devices, each with its shards of the operands, without a word between them. */
typedef struct ShardWay {
	int degree;
	Shard *in, *out; /* by operand and by result; whole where nothing else is said */
	bool bias_last;  /* the last operand is left out, and added behind the sum of the results */
} ShardWay;

static inline bool shard_same(Shard a, Shard b)
{
	return a.kind == b.kind && (a.kind != SHARD_AXIS || (a.axis == b.axis && a.outer == b.outer));
}

/* t has that axis, and it can be divided so. */
bool shard_fits(const Type *t, Shard s, int degree);
/* What one device has of t, and the inverse. */
Type shard_type(const Type *t, Shard s, int degree);
Type shard_whole(const Type *part, Shard s, int degree);
/* What files have of a parameter: the whole, without what was added to it (Param.pad). */
Type shard_stored(const Value *param);
/* Bytes that member 0 of a group sends for a TensorAllReduce or TensorAllGather (runtime/comm/tensor.c), or a SquareSum of parts; other
 * nodes: 0. */
int64_t shard_sent(const Node *n, int degree);
/* Bytes that each member tells each other within a SoftmaxCrossEntropyLoss, or CountHits, whose classes are divided; else 0. */
int64_t loss_told(const Node *n);
/* A Dropout whose operand became this part. */
void dropout_part(Node *n, Shard s, int degree);
/* Operand `at` (out: result `at`) of n lies as w says: fills in how all others do then. False: this node cannot be computed so,
 * or its op has no rule, and must have whole operands. */
bool shard_way(const Node *n, bool out, int at, ShardWay *w);

#endif
