/* Rules of division that families of ops share, and what divided types are (ir/shard.h). */
#include "common.h"

bool shard_fits(const Type *t, Shard s, int degree)
{
	return s.kind != SHARD_AXIS || (s.axis >= 0 && s.axis < t->rank && s.outer > 0 && t->dim[s.axis] > 0 &&
					       t->dim[s.axis] % (s.outer * degree) == 0);
}

Type shard_type(const Type *t, Shard s, int degree)
{
	Type part = *t;

	if (s.kind == SHARD_AXIS)
		part.dim[s.axis] /= degree;
	return part;
}

Type shard_whole(const Type *part, Shard s, int degree)
{
	Type t = *part;

	if (s.kind == SHARD_AXIS)
		t.dim[s.axis] *= degree;
	return t;
}

Type shard_stored(const Value *param)
{
	const Param *p = param->param;
	Type t = shard_whole(&param->type, p->shard, p->members);

	if (p->pad)
		t.dim[p->pad_axis] -= p->pad;
	return t;
}

bool shard_way(const Node *n, bool out, int at, ShardWay *w)
{
	const OpDef *op = optab[n->op];

	if (op->shard ? !op->shard(n, out, at, w) : !(op->flags & OP_EW) || !shard_elementwise(n, out, at, w))
		return false;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && !shard_fits(&n->in[i]->type, w->in[i], w->degree))
			return false;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && !shard_fits(&n->out[i]->type, w->out[i], w->degree))
			return false;
	return true;
}

bool shard_seed(const Node *n, bool out, int at, const ShardWay *w, Shard *s, const Type **of)
{
	*s = out ? w->out[at] : w->in[at];
	*of = out ? &n->out[at]->type : &n->in[at]->type;
	return s->kind == SHARD_AXIS;
}

static Shard along(int axis, int64_t outer) { return (Shard){ SHARD_AXIS, axis, outer }; }

/* The axis `back` from the end of t, where t has it and does not broadcast it; else whole. */
static Shard from_end(const Type *t, int back, int64_t outer)
{
	const int axis = t->rank - back;

	return axis < 0 || t->dim[axis] == 1 ? (Shard){ SHARD_WHOLE, 0, 0 } : along(axis, outer);
}

/* A sum of summands is a summand; so is one that is multiplied with what all have. */
static bool linear(const Node *n, bool out, int at, ShardWay *w)
{
	const Shard partial = { SHARD_PARTIAL, 0, 0 };

	switch (n->op) {
	case OP_Add:
	case OP_Sub:
	case OP_Sum:
	case OP_Neg:
	case OP_Identity:
		for (int i = 0; i < n->nin; i++)
			w->in[i] = partial;
		break;
	case OP_Mul:
	case OP_Div:
		if (out || (n->op == OP_Div && at) || n->in[0] == n->in[1])
			return false;
		break;
	default: return false;
	}
	w->out[0] = partial;
	return true;
}

bool shard_elementwise(const Node *n, bool out, int at, ShardWay *w)
{
	const Shard s = out ? w->out[at] : w->in[at];
	const Type *of = out ? &n->out[at]->type : &n->in[at]->type;
	const int back = of->rank - s.axis;

	if (s.kind == SHARD_PARTIAL)
		return linear(n, out, at, w);
	for (int i = 0; i < n->nin; i++)
		if (n->in[i])
			w->in[i] = from_end(&n->in[i]->type, back, s.outer);
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			w->out[i] = from_end(&n->out[i]->type, back, s.outer);
	return true;
}

bool shard_same_shapes(const Node *n, bool out, int at, ShardWay *w)
{
	const Shard s = out ? w->out[at] : w->in[at];
	const Type *of = out ? &n->out[at]->type : &n->in[at]->type;

	if (s.kind != SHARD_AXIS)
		return false;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && shape_eq(&n->in[i]->type, of))
			w->in[i] = s;
		else if (n->in[i] && type_numel(&n->in[i]->type) > 1)
			return false;
	for (int i = 0; i < n->nout; i++)
		if (n->out[i])
			w->out[i] = s;
	return true;
}

/* Which digit of the flat index is divided: its place value is `stride` elements. An axis has it when the place value is a
 * multiple of the axis' own, and the digits of all devices lie within it. */
bool shard_reshape(const Node *n, bool out, int at, ShardWay *w)
{
	const Shard s = out ? w->out[at] : w->in[at];
	const Type *from = out ? &n->out[0]->type : &n->in[0]->type, *to = out ? &n->in[0]->type : &n->out[0]->type;
	Shard *result = out ? &w->in[0] : &w->out[0];
	int64_t stride = 1, own = 1;

	if (at)
		return false;
	*result = s;
	if (s.kind != SHARD_AXIS)
		return true;
	for (int i = s.axis + 1; i < from->rank; i++)
		stride *= from->dim[i];
	stride *= from->dim[s.axis] / (s.outer * w->degree);
	for (int i = to->rank - 1; i >= 0 && own <= stride; own *= to->dim[i--]) {
		const int64_t end = own * to->dim[i];

		if (stride % own == 0 && end % (stride * w->degree) == 0) {
			*result = along(i, end / (stride * w->degree));
			return true;
		}
	}
	return false;
}

/* Channels: axis `axis` of what has several, the only axis of what has one value per channel. */
bool shard_channels(const Node *n, bool out, int at, int axis, ShardWay *w)
{
	const Shard s = out ? w->out[at] : w->in[at];
	const Type *of = out ? &n->out[at]->type : &n->in[at]->type;
	const bool one = of->rank == 1;

	if (s.kind != SHARD_AXIS || s.axis != (one ? 0 : axis))
		return false;
	for (int i = 0; i < n->nin; i++)
		if (n->in[i] && n->in[i]->type.rank)
			w->in[i] = along(n->in[i]->type.rank == 1 ? 0 : axis, s.outer);
	for (int i = 0; i < n->nout; i++)
		if (n->out[i] && n->out[i]->type.rank)
			w->out[i] = along(n->out[i]->type.rank == 1 ? 0 : axis, s.outer);
	return true;
}
