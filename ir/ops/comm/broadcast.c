/* Broadcast: the operand as the rank at place `root` of `ranks` has it, on every rank of `ranks`. Split puts it into
 * update graphs, where the stages that hold a tied parameter share the parts of its gradient. Stages other than the
 * root's have no operand; their type comes from the one who builds the node, or from the text. All nodes of one number are
 * one broadcast; every device does its broadcasts in the order of their numbers. */
#include "../common/common.h"

struct broadcast {
	int64_t root, number;
	Ints ranks;
};

static bool shape(Node *n, Diag *d)
{
	(void)d;
	if (n->nin)
		set_out(n, 0, n->in[0]->type);
	return true;
}

static const AttrDef attrs[] = { AT_INT(struct broadcast, root, 0), AT_INT(struct broadcast, number, 0),
	AT_INTS(struct broadcast, ranks), AT_END };

const OpDef op_Broadcast = {
	.name = "Broadcast",
	.minin = 0,
	.maxin = 1,
	.nout = 1,
	.flags = OP_COMM,
	.attrs = attrs,
	.attrsize = sizeof(struct broadcast),
	.shape = shape,
};
