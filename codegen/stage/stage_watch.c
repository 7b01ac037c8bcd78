/* Calls behind a node that look at what it made and change nothing. */
#include <inttypes.h>
#include "stage.h"

/* --check-numerics: what came out holds no NaN and nothing infinite. */
void write_checks(StageCx *x, Cw *w, const Node *n)
{
	for (int i = 0; i < n->nout; i++) {
		const Value *v = n->out[i];
		if (v && (v->type.dtype == DT_f32 || v->type.dtype == DT_f64))
			cw_line(w, "pd_check(%s, %s, %s, %" PRId64 ");", quoted(x->b->a, origin_text(x->b, v, n)),
				v->type.dtype == DT_f32 ? "PD_F32" : "PD_F64", value_text(x, v), type_numel(&v->type));
	}
}

/* Where an update leaves a weight of which several versions are kept, for pdcc verify. */
void write_updated(StageCx *x, Cw *w, const Node *n)
{
	const bool told = x->b->t && x->b->t->target.told && !on_gpu(x) && (optab[n->op]->flags & OP_UPDATE);

	if (told && is_versioned(x->s, n->in[0]))
		cw_line(w, "pd_updated(%d, %s);", table_base(x->b, x->s->id, true) + param_index(x->s, n->in[0]),
			value_text(x, n->in[0]));
}

/* What pdcc verify compares of the first step, or of each. */
void write_told(StageCx *x, Cw *w, const Node *n)
{
	const Map *told = x->b->t ? x->b->t->target.told : NULL;

	for (int i = 0; told && !on_gpu(x) && n->phase != PHASE_UPDATE && i < n->nout; i++) {
		const Value *v = n->out[i];
		const int64_t channels = v && v->type.layout == LAYOUT_NHWC ? v->type.dim[1] : 0;

		if (v && map_has(told, v->name) && (v->type.dtype == DT_f32 || v->type.dtype == DT_f64))
			cw_line(w, "pd_value(%s, %s, %s, %s, %s, %" PRId64 ", %" PRId64 ", %" PRId64 ");",
				quoted(x->b->a, v->name), n->op == OP_Recv ? "true" : "false", use(x, NAME_MB),
				v->type.dtype == DT_f32 ? "PD_F32" : "PD_F64", value_text(x, v), type_numel(&v->type),
				channels, channels ? type_numel(&v->type) / v->type.dim[0] / channels : 0);
	}
}
