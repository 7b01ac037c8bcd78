/* What travels between the devices that train and the servers that hold parameters (Parallax section 3). passes/comm/servers.c
 * makes these nodes.
 *
 *     Pull(@w, %ids) {key}        forward: the rows of @w that %ids name, from their servers, before they are read; a row
 *                                 travels once per step. Without %ids: all of @w, once per step; with {cut, ncut} so many
 *                                 elements of it from there on (opsw.c)
 *                                 {cast}: values become 16-bit floats of that type where they arrive; {wire}: where they leave,
 *                                 so that 16 bits travel (opsw.c). What computes with them has them as f32 again
 *     Push(%g) {key, part}        update: the sum of this device's gradients to the servers; of rows, those that were pulled. {wire}
 *     %g = Collect() {key, part, from} : type
 *                                 update of a server: the sum of what all replicas of stage `from` pushed. {cast}: of each push
 *     Give(%g) {key, from}        update of a server: the summed gradient to all replicas of stage `from`, where the operations
 *     %g = Fetch(@w) {key}        behind the sum stand in their update graph; rows that are zero stay where they are
 *     Return(%c) {key}            what they made of it, from the first replica
 *     %c = Take(@w) {key, from}   update of the server. opau.c removes these four where it can
 * key: the same number on both sides for one parameter; part: which of its gradients, where it is used several times. row: of a
 * table that is partitioned by rows (passes/comm/tables.c) the first row of the piece that this server has. */
#include "../common/common.h"

struct held {
	int64_t key, part, from, cut, ncut, row;
	const char *cast, *wire;
};

static const AttrDef pull_attrs[] = { AT_INT(struct held, key, 0), AT_INT(struct held, cut, 0),
	AT_INT(struct held, ncut, 0), AT_STR(struct held, cast, ""), AT_STR(struct held, wire, ""), AT_END };
static const AttrDef way_attrs[] = { AT_INT(struct held, key, 0), AT_END };
static const AttrDef push_attrs[] = { AT_INT(struct held, key, 0), AT_INT(struct held, part, 0),
	AT_STR(struct held, wire, ""), AT_END };
static const AttrDef collect_attrs[] = { AT_INT(struct held, key, 0), AT_INT(struct held, part, 0),
	AT_INT(struct held, from, 0), AT_INT(struct held, row, 0), AT_STR(struct held, cast, ""), AT_END };

static bool pull_shape(Node *n, Diag *d)
{
	const Type *ids = n->nin > 1 ? &n->in[1]->type : NULL;

	if (n->in[0]->kind != VAL_PARAM)
		return diag_error(d, n->loc, 302, "Pull: %s is no parameter", n->in[0]->name);
	if (ids && ids->dtype != DT_i64 && ids->dtype != DT_i32)
		return diag_error(d, n->loc, 302, "Pull: indices are %s", str_type(d->scratch, ids));
	return true;
}

const OpDef op_Pull = {
	.name = "Pull",
	.minin = 1,
	.maxin = 2,
	.flags = OP_COMM,
	.attrs = pull_attrs,
	.attrsize = sizeof(struct held),
	.shape = pull_shape,
};

const OpDef op_Push = {
	.name = "Push",
	.minin = 1,
	.maxin = 1,
	.flags = OP_COMM,
	.attrs = push_attrs,
	.attrsize = sizeof(struct held),
};

const OpDef op_Give = {
	.name = "Give",
	.minin = 1,
	.maxin = 1,
	.flags = OP_COMM,
	.attrs = collect_attrs,
	.attrsize = sizeof(struct held),
};

static bool like_param(Node *n, Diag *d)
{
	if (n->in[0]->kind != VAL_PARAM)
		return diag_error(d, n->loc, 302, "%s: %s is no parameter", optab[n->op]->name, n->in[0]->name);
	set_out(n, 0, n->in[0]->type);
	return true;
}

const OpDef op_Fetch = {
	.name = "Fetch",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_COMM,
	.attrs = way_attrs,
	.attrsize = sizeof(struct held),
	.shape = like_param,
};

const OpDef op_Return = {
	.name = "Return",
	.minin = 1,
	.maxin = 1,
	.flags = OP_COMM,
	.attrs = way_attrs,
	.attrsize = sizeof(struct held),
};

const OpDef op_Take = {
	.name = "Take",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_COMM,
	.attrs = collect_attrs,
	.attrsize = sizeof(struct held),
	.shape = like_param,
};

const OpDef op_Collect = {
	/* no shape rule: the type comes from the one who builds the node, or from the text */
	.name = "Collect",
	.nout = 1,
	.flags = OP_COMM,
	.attrs = collect_attrs,
	.attrsize = sizeof(struct held),
};
