/* opsw: operations at the border of devices and servers (Parallax section 5.3.2, Figure 10; Parallax's option
 * boundary_between_workers_and_servers). servers leaves all of them with the devices; one moves to the server where fewer
 * bytes travel then. Servers are CPUs, so only light ones do:
 *
 *     slice          %s = Slice(@w)                    of @w only what its slices read is pulled: Pull {cut, ncut}
 *     slice, back    %d = SliceGrad(%ds)               the slice is summed and pushed; SliceGrad, whose result is the larger
 *                    %g = Accumulate(%d), Push         one, stands behind Collect
 *     cast           with --amp, values become 16-bit floats between servers and devices, and are f32 again in the copy that is
 *                    read and in sums (travel.c says where): what is pulled at the server, what is pushed at the device
 *     gather         its rows are what travels anyway (Pull with %ids); the gather of gradients stays, as its result is smaller
 *
 * Before:  Push(Accumulate(SliceGrad(%ds)))  ->  Collect        bytes of @w
 * After:   Push(Accumulate(%ds))  ->  SliceGrad(Collect)        bytes of the slice
 *
 *          Pull(@w) {cast=bf16}, Push(%g), Collect() {cast=bf16}     f32
 *          Pull(@w) {wire=bf16}, Push(%g) {wire=bf16}, Collect()     16 bits
 *
 * Zeros that SliceGrad puts round a sum are the sums of its zeros, and a cast gives the same on both sides: the bits are the same.
 * Reads the stages' graphs; writes Pull.cut and .ncut, .wire and .cast of Pull, Push and Collect, the graphs that make gradients, update graphs. */
#include <string.h>
#include "servers.h"
#include "ir/analysis.h"

typedef struct Border {
	Module *m;
	PassCx *cx;
	double before, after; /* bytes of a device and step */
} Border;

static void explain(Border *x, const char *what, const Value *w, const char *where, double before, double after)
{
	x->before += before;
	x->after += after;
	if (x->cx->explain)
		buf_printf(x->cx->explain,
			"opsw: %s of %s goes to its %s: %.0f bytes of a device and step before, %.0f after\n", what,
			w->name, where, before, after);
}

/* ---- slices that are pulled ---- */

static void pull_slices(Border *x, const Stage *s, Node *pull)
{
	const Value *w = pull->in[0];
	const int64_t all = type_numel(&w->type);
	int64_t lo, hi;

	for (int i = 0; i < w->nuses; i++)
		if (w->uses[i].node->graph == s->update && update_reads(&w->uses[i]))
			return;
	if (!slices_of(w, &lo, &hi) || hi - lo >= all)
		return;
	attr_set_int(pull, "cut", lo);
	attr_set_int(pull, "ncut", hi - lo);
	explain(x, "the slice", w, "server", (double)value_bytes(w),
		(double)value_bytes(w) / (double)all * (double)(hi - lo));
}

/* ---- gradients of slices ---- */

static Node *collect_of(const Module *m, const Node *push)
{
	for (int t = 0; t < m->nstage; t++)
		for (Node *n = m->stage[t]->update->first; n && m->stage[t]->server; n = n->next)
			if (n->op == OP_Collect && attr_int(n, "key") == attr_int(push, "key") &&
				attr_int(n, "part") == attr_int(push, "part"))
				return n;
	bug("nobody collects what is pushed of %s", push->in[0]->name);
}

/* The parameter whose gradient is pushed. */
static const Value *pulled(const Stage *s, const Node *push)
{
	for (const Node *n = s->forward->first; n; n = n->next)
		if (n->op == OP_Pull && attr_int(n, "key") == attr_int(push, "key"))
			return n->in[0];
	return push->in[0];
}

static void push_slice(Border *x, Stage *s, Node *push)
{
	Node *acc = push->in[0]->def, *grad = acc->in[0]->kind == VAL_NODE ? acc->in[0]->def : NULL;

	if (!grad || grad->op != OP_SliceGrad || grad->out[0]->nuses != 1 || acc->out[0]->nuses != 1 ||
		value_bytes(grad->in[0]) >= value_bytes(grad->out[0]))
		return;
	Node *collect = collect_of(x->m, push);
	Value *part = collect->out[0];
	Stage *server = x->m->stage[collect->stage];
	const double before = (double)value_bytes(grad->out[0]);
	/* the sum's operand must be its own: a copy */
	Builder b = { .m = x->m,
		.g = grad->graph,
		.before = grad,
		.loc = grad->loc,
		.phase = PHASE_BWD,
		.stage = s->id,
		.d = x->cx->d };
	Node *copy = build(&b, OP_Sum, NULL, 1, grad->in, grad->out[0]->name);
	copy->fwd = grad->fwd;
	b = (Builder){ .m = x->m,
		.g = server->update,
		.before = collect->next,
		.loc = grad->loc,
		.phase = PHASE_UPDATE,
		.stage = server->id,
		.d = x->cx->d };
	part->type = acc->out[0]->type = copy->out[0]->type;
	Node *wide = build(&b, OP_SliceGrad, grad->attr, 1, (Value *const[]){ part }, part->name);
	for (int i = part->nuses - 1; i >= 0; i--) {
		const Use u = part->uses[i];
		if (u.node != wide)
			node_set_input(u.node, u.index, wide->out[0]);
	}
	node_set_input(acc, 0, copy->out[0]);
	node_remove(grad);
	explain(x, "the gradient of a slice", pulled(s, push), "server", before, (double)value_bytes(acc->out[0]));
}

/* ---- casts ---- */

/* Bytes of what one device pulls or pushes (n) in f32: all of it, or the rows that it looks up. */
static double travelling(const Border *x, const Stage *s, const Node *n)
{
	double lookups = 0, share = 1;

	for (const Node *k = s->forward->first; k; k = k->next)
		if (k->op == OP_Pull && k->nin > 1 && attr_int(k, "key") == attr_int(n, "key")) {
			lookups += (double)type_numel(&k->in[1]->type) * (double)(x->m->microbatches / s->replicas);
			share = rows_touched(k->in[0], lookups);
		}
	return (double)value_bytes(n->in[0]) * share;
}

static Node *pull_before(const Stage *s, const Node *n)
{
	for (Node *k = s->forward->first; k != n; k = k->next)
		if (k->op == OP_Pull && attr_int(k, "key") == attr_int(n, "key"))
			return k;
	return NULL;
}

static void pull_narrow(Border *x, const Stage *s, Node *pull)
{
	const char *to = attr_str(pull, "cast");
	const int64_t cut = attr_int(pull, "ncut");

	if (attr_dtype(pull, "cast") == DT_f32)
		return;
	attr_set_str(pull, "wire", to);
	attr_set_str(pull, "cast", "");
	if (pull_before(s, pull))
		return;
	const double bytes = cut ? 4 * (double)cut : travelling(x, s, pull);
	explain(x, "the cast", pull->in[0], "server", bytes, bytes / 2);
}

static void push_narrow(Border *x, const Stage *s, Node *push)
{
	bool casts = false;

	for (int t = 0; t < x->m->nstage; t++)
		for (Node *n = x->m->stage[t]->update->first; n && x->m->stage[t]->server; n = n->next) {
			if (n->op != OP_Collect || attr_int(n, "key") != attr_int(push, "key") ||
				attr_int(n, "part") != attr_int(push, "part") || attr_dtype(n, "cast") == DT_f32)
				continue;
			attr_set_str(push, "wire", attr_str(n, "cast"));
			attr_set_str(n, "cast", "");
			casts = true; /* every piece of a table has its own */
		}
	if (!casts)
		return;
	const double bytes = travelling(x, s, push);
	explain(x, "the cast for sums", pulled(s, push), "device", bytes, bytes / 2);
}

bool pass_opsw(Module *m, PassCx *cx)
{
	Border x = { .m = m, .cx = cx };

	if (cx->train && cx->train->comm.no_opsw)
		return true;
	for (int t = 0; t < m->nstage; t++) {
		Stage *s = m->stage[t];
		for (Node *n = s->forward->first; n; n = n->next)
			if (n->op == OP_Pull && n->nin == 1)
				pull_slices(&x, s, n);
		for (Node *n = s->forward->first; n; n = n->next)
			if (n->op == OP_Pull)
				pull_narrow(&x, s, n);
		for (Node *n = s->update->first; n; n = n->next)
			if (n->op == OP_Push) {
				push_slice(&x, s, n);
				push_narrow(&x, s, n);
			}
	}
	if (cx->explain && x.before > 0)
		buf_printf(cx->explain,
			"opsw: bytes of a device and step that moved operations change: %.0f before, %.0f after\n",
			x.before, x.after);
	return true;
}
