/* MaxPoolIndices: where the winners of a MaxPool lie in its operand, as ONNX counts them: in the whole tensor, row by
 * row or, with storage_order 1, the spatial axes column by column.
 *     %i = MaxPoolIndices(%at) {window, dims=shape of x}      at: which element of the window won, from MaxPool */
#include "../common/common.h"

struct indices {
	Ints kernel_shape, strides, dilations, pads, dims;
	int64_t storage_order;
};

static int64_t get(Ints v, int i, int64_t otherwise) { return i < v.n ? v.v[i] : otherwise; }

static bool shape(Node *n, Diag *d)
{
	const struct indices *at = n->attr;
	const Type *place = &n->in[0]->type;
	Type x, y = *place;

	if (!need_type(n, d, "dims", at->dims, DT_f32, &x))
		return false;
	if (x.rank < 3 || x.rank > 5 || place->rank != x.rank || place->dim[0] != x.dim[0] ||
		place->dim[1] != x.dim[1] || (place->dtype != DT_u8 && place->dtype != DT_i32))
		return diag_error(d, n->loc, 304, "MaxPoolIndices: %s is %s, dims are %s", n->in[0]->name,
			str_type(d->scratch, place), str_shape(d->scratch, &x));
	if (at->kernel_shape.n != x.rank - 2)
		return diag_error(d, n->loc, 304, "MaxPoolIndices: kernel_shape has %d entries, dims are %s",
			at->kernel_shape.n, str_shape(d->scratch, &x));
	if (!need_window(n, d, &x, at->kernel_shape, at->strides, at->dilations, at->pads))
		return false;
	y.dtype = DT_i64;
	y.layout = LAYOUT_PLAIN;
	y.rows = 0;
	set_out(n, 0, y);
	return true;
}

static void holes(const Node *n, Holes *h)
{
	static const char axis[] = "DHW";
	const struct indices *at = n->attr;
	const Type *y = &n->out[0]->type;
	const int skip = 5 - y->rank; /* missing axes lead, with extent 1 */

	for (int i = 0; i < 3; i++) {
		const int k = i - skip;
		hole_int(h, arena_printf(h->arena, "I%c", axis[i]), k < 0 ? 1 : at->dims.v[2 + k]);
		hole_int(h, arena_printf(h->arena, "O%c", axis[i]), k < 0 ? 1 : y->dim[2 + k]);
		hole_int(h, arena_printf(h->arena, "K%c", axis[i]), k < 0 ? 1 : at->kernel_shape.v[k]);
		hole_int(h, arena_printf(h->arena, "S%c", axis[i]), k < 0 ? 1 : get(at->strides, k, 1));
		hole_int(h, arena_printf(h->arena, "P%c", axis[i]), k < 0 ? 0 : get(at->pads, k, 0));
		hole_int(h, arena_printf(h->arena, "L%c", axis[i]), k < 0 ? 1 : get(at->dilations, k, 1));
	}
	hole_text(h, "TI", "%s", dtype_c(n->in[0]->type.dtype));
	hole_int(h, "OUTER", y->dim[0] * y->dim[1]);
	hole_int(h, "COLUMNS", at->storage_order == 1);
	hole_int(h, "PAR", type_numel(y) >= 16384);
	hole_name(h, "maxpool_indices_%s", dims_name(h->arena, y));
}

static const AttrDef attrs[] = { AT_INTS(struct indices, kernel_shape), AT_INTS(struct indices, strides),
	AT_INTS(struct indices, dilations), AT_INTS(struct indices, pads), AT_INTS(struct indices, dims),
	AT_INT(struct indices, storage_order, 0), AT_END };

const OpDef op_MaxPoolIndices = {
	.name = "MaxPoolIndices",
	.minin = 1,
	.maxin = 1,
	.nout = 1,
	.flags = OP_PURE,
	.attrs = attrs,
	.attrsize = sizeof(struct indices),
	.shape = shape,
	.holes = holes,
	.cpu = { .file = "indices.cpu.c", .call = "$k($=, $0);" },
	.cuda = { .file = "indices.cuda.cu", .call = "$k($=, $0);" },
};
