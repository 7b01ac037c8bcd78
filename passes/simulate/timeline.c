/* What all pictures of a simulated step say in words. */
#include "timeline.h"
#include <inttypes.h>

const char *span_text(Arena *a, const Sim *s, const SimSpan *x)
{
	switch (x->kind) {
	case ACT_F: return arena_printf(a, "forward of microbatch %d", x->mb);
	case ACT_B: return arena_printf(a, "backward of microbatch %d", x->mb);
	case ACT_W: return arena_printf(a, "weight gradients of microbatch %d", x->mb);
	case ACT_UPDATE: return "update";
	case ACT_SYNC:
		if (s->model->s->dev[x->rank].act[x->action].kind == ACT_UPDATE)
			return "losses of all devices gathered";
		return arena_printf(a, "gradients joined, %" PRId64 " bytes", x->bytes);
	default:
		return arena_printf(a, "message of %s %d to device %d, %" PRId64 " bytes",
			x->kind == ACT_SEND_F ? "forward" : "backward", x->mb, x->peer, x->bytes);
	}
}

const char *span_class(const SimSpan *x)
{
	return x->kind == ACT_F        ? "f"
	       : x->kind == ACT_B      ? "b"
	       : x->kind == ACT_W      ? "w"
	       : x->kind == ACT_UPDATE ? "u"
	       : x->peer < 0           ? "s"
	                               : "c";
}

const char *device_text(const Sim *s, int rank)
{
	const char *name = s->model->c->device[s->model->device[rank]].name;

	return name ? name : "device";
}

int64_t bytes_in_use(const Sim *s, int rank, int64_t held)
{
	const SimModel *m = s->model;

	if (m->fixed)
		for (int t = 0; t < m->s->nstage; t++) /* of a device of several, the first: their bytes are in it */
			for (int k = 0; k < m->s->replicas[t]; k++)
				if (m->s->device[t][k] == rank)
					return m->fixed[t] + held;
	return held;
}
