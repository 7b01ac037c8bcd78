/* Row-sparse gradients of a table that is looked up, of parts that are neither added up nor spread out:
 *     %ids, %rows = GatherRows(%dy, %ids) {dim0, padding}     i32[n], [n,D]: the rows in the order of the lookup, one row
 *                                                             as often as it was looked up; id -1: none (padding)
 *     @w <- SGDRows(@w, %ids, %rows, %n) {lr}                 of all microbatches ([M,n] and [M,n,D], from Stack): plain
 *                                                             SGD, w[id] -= lr row / n; rows that nobody touched stay */
#include "../common/common.h"

struct rows {
	int64_t dim0, padding, scheduled;
	double lr;
};

static bool gather_shape(Node *n, Diag *d)
{
	const struct rows *at = n->attr;
	const Type *dy = &n->in[0]->type, *ids = &n->in[1]->type;
	const int64_t count = type_numel(ids);

	if ((ids->dtype != DT_i64 && ids->dtype != DT_i32) || !dtype_float(dy->dtype) || dy->rank < ids->rank)
		return diag_error(d, n->loc, 302, "GatherRows: the gradient is %s, indices are %s",
			str_type(d->scratch, dy), str_type(d->scratch, ids));
	for (int i = 0; i < ids->rank; i++)
		if (dy->dim[i] != ids->dim[i])
			return diag_error(d, n->loc, 305, "GatherRows: the gradient is %s, indices are %s",
				str_type(d->scratch, dy), str_type(d->scratch, ids));
	if (at->dim0 < 0 || at->dim0 > INT32_MAX)
		return diag_error(d, n->loc, 303, "GatherRows: dim0 %lld is outside of [0, 2^31)", (long long)at->dim0);
	set_out(n, 0, type_make(DT_i32, 1, &count));
	set_out(n, 1, type_make(dy->dtype, 2, (int64_t[]){ count, count ? type_numel(dy) / count : 0 }));
	return true;
}

static void gather_holes(const Node *n, Holes *h)
{
	const struct rows *at = n->attr;
	const Type *ids = &n->in[1]->type, *rows = &n->out[1]->type;

	hole_text(h, "T", "%s", dtype_c(rows->dtype));
	hole_text(h, "TI", "%s", dtype_c(ids->dtype));
	hole_int(h, "N", rows->dim[0]);
	hole_int(h, "D", rows->dim[1]);
	hole_int(h, "DIM", at->dim0);
	hole_int(h, "PADDED", at->padding >= 0);
	hole_int(h, "PADDING", at->padding);
	hole_name(h, "gather_rows_%lldx%lld_of_%lld%s%s%s", (long long)rows->dim[0], (long long)rows->dim[1],
		(long long)at->dim0, ids->dtype == DT_i32 ? "_i32" : "",
		at->padding >= 0 ? arena_printf(h->arena, "_pad%lld", (long long)at->padding) : "",
		dtype_suffix(rows->dtype));
}

static bool sgd_shape(Node *n, Diag *d)
{
	const Type *w = &n->in[0]->type, *ids = &n->in[1]->type, *rows = &n->in[2]->type;

	if (ids->dtype != DT_i32 || rows->dtype != w->dtype || w->rank < 1 || !w->dim[0] ||
		type_numel(rows) * w->dim[0] != type_numel(ids) * type_numel(w) || type_numel(&n->in[3]->type) != 1)
		return diag_error(d, n->loc, 304, "SGDRows: %s is %s, its rows are %s by %s", n->in[0]->name,
			str_type(d->scratch, w), str_type(d->scratch, rows), str_type(d->scratch, ids));
	return true;
}

static void sgd_holes(const Node *n, Holes *h)
{
	const struct rows *at = n->attr;
	const Type *w = &n->in[0]->type;
	const int64_t count = type_numel(&n->in[1]->type), inner = type_numel(w) / w->dim[0];

	hole_text(h, "T", "%s", dtype_c(w->dtype));
	hole_int(h, "N", count);
	hole_int(h, "D", inner);
	hole_text(h, "TI", "int32_t");
	hole_int(h, "IDS", count);
	hole_int(h, "INNER", inner);
	hole_int(h, "DIM", w->dim[0]);
	if (inner >= 32)
		hole_int(h, "ROOM", w->dim[0] * (int64_t)sizeof(int));
	hole_text(h, "LR", at->scheduled ? "(%.17g * pd_rate())" : "%.17g", at->lr);
	hole_int(h, "PAR", count * inner >= 65536 && inner >= 128);
	hole_name(h, "sgd_rows_%lldx%lld_of_%lld%s", (long long)count, (long long)inner, (long long)w->dim[0],
		dtype_suffix(w->dtype));
}

static const AttrDef gather_attrs[] = { AT_INT(struct rows, dim0, 0), AT_INT(struct rows, padding, -1), AT_END };
static const AttrDef sgd_attrs[] = { AT_FLOAT(struct rows, lr, 0.01), AT_INT(struct rows, scheduled, 0), AT_END };

const OpDef op_GatherRows = {
	.name = "GatherRows",
	.minin = 2,
	.maxin = 2,
	.nout = 2,
	.flags = OP_PURE,
	.attrs = gather_attrs,
	.attrsize = sizeof(struct rows),
	.shape = gather_shape,
	.holes = gather_holes,
	.cpu = { .file = "gather_rows.cpu.c", .call = "$k($=0, $=1, $0, $1);" },
	.cuda = { .file = "gather_rows.cuda.cu", .call = "$k($=0, $=1, $0, $1);" },
};

const OpDef op_SGDRows = {
	.name = "SGDRows",
	.minin = 4,
	.maxin = 4,
	.flags = OP_UPDATE,
	.attrs = sgd_attrs,
	.attrsize = sizeof(struct rows),
	.writes = 1,
	.shape = sgd_shape,
	.holes = sgd_holes,
	.cpu = { .file = "sgd_rows.cpu.c", .call = "$k($0, $1, $2, $3);" },
	.cuda = { .file = "sgd_rows.cuda.cu", .call = "$k($0, $1, $2, $3);" },
};
