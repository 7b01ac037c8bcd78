/* How far apart two right programs may lie: sums that are added in another order, and what rounds them.
 *
 * In f32 that is a thousandth of a tensor's largest value, and of a gradient also what its noise is beside the largest of all: sums
 * that are added in another order differ by roundings of what was added, which may be much more than what is left.
 *
 * In 16 bits there is no such number: a sum that is rounded before a Relu switches elements of it on and off, and what that does to the
 * gradients of layers below depends on the model. So it is measured. The one device trains in f32 too (Step.wide), and each tensor of
 * the 16-bit run lies some way from that: its roundings. Those of the distributed run are others of the same size, so the two are
 * apart by ROUNDINGS times as much at most.
 *
 * Packed sums (--compress; runtime/comm/compress.c) have a bound. Each of the n replicas encodes every element once on its way round
 * the ring, a partial sum of at most A = sum |gradient of a microbatch|; so that a sum is off by at most n u A:
 *     trunc16   u = 2^-7, the bits that are dropped
 *     bf16      u = 2^-8, half of them
 *     q8        u = 1/254, half a step, and A is the largest of the block, of whatever tensors it has parts
 * and u A less for each partial sum that was off itself, hence SECOND_ORDER. */
#include <math.h>
#include <string.h>
#include "frontend/driver/check/verify_told.h"

enum { ROUNDINGS = 3, HALVES_APART = 128 };

static const double SECOND_ORDER = 1.1;

double told_element(const Told *t, int64_t i)
{
	double wide;
	float f;

	if (t->r.size == 8)
		return memcpy(&wide, t->data + 8 * i, 8), wide;
	return memcpy(&f, t->data + 4 * i, 4), (double)f;
}

double told_largest(const Told *t)
{
	double top = 0;

	for (int64_t i = 0; i < t->r.n; i++)
		top = fmax(top, fabs(told_element(t, i)));
	return top;
}

double verify_stride(const Compile *c)
{
	const Optimizer *o = &c->o->t.model.opt;

	switch (o->kind) {
	case OPT_ADAM:
	case OPT_ADAMW:
	case OPT_ADAGRAD: return 2 * opt_get(o, OPT_LR);
	case OPT_RMSPROP: return 2 * opt_get(o, OPT_LR) / sqrt(1 - opt_get(o, OPT_ALPHA));
	default: return 0;
	}
}

double verify_noise(const Compile *c) { return c->o->t.target.amp.kind == AMP_OFF ? 1e-5 : 1e-4; }

static bool is_gradient(const Told *t) { return t->r.kind == FIRST_GRADIENT || strncmp(t->name, "d.", 2) == 0; }

/* The parameter that a told tensor is, or is a state of: "w" of "w:m". */
static bool belongs(const Told *t, const char *parameter)
{
	const size_t n = strlen(parameter);

	return !strncmp(t->name, parameter, n) && (!t->name[n] || t->name[n] == ':');
}

/* Of what was updated: the gradient on the one device, where that is told whole. */
static const Told *gradient_of(const Step *s, const Told *y)
{
	for (int i = 0; i < s->one.n && y->r.kind == FIRST_UPDATED; i++)
		if (s->one.v[i].r.kind == FIRST_GRADIENT && s->one.v[i].micro == y->micro &&
			belongs(y, s->one.v[i].name))
			return &s->one.v[i];
	return NULL;
}

static bool is_state(const Told *y) { return strchr(y->name, ':') != NULL; }

/* ---- 16 bits ---- */

const char *slack_name_in_f32(Arena *a, const char *name)
{
	const char *end = strrchr(name, '.');

	return end && (!strcmp(end, ".f32") || !strcmp(end, ".bf16") || !strcmp(end, ".f16"))
	               ? arena_strn(a, name, (size_t)(end - name))
	               : name;
}

static const Told *in_f32(const Step *s, const Told *y)
{
	const char *name = slack_name_in_f32(s->c->a, y->name);

	for (int i = 0; i < s->wide.n; i++) {
		const Told *w = &s->wide.v[i];
		if (w->r.kind == y->r.kind && w->micro == y->micro && w->r.n == y->r.n && w->r.at == y->r.at &&
			!strcmp(w->name, name))
			return w;
	}
	return NULL;
}

/* Gradients of fp16 are those of a scaled loss: by a power of two. */
static double scale_between(const Told *y, const Told *w)
{
	const double a = told_largest(y), b = told_largest(w);

	return is_gradient(y) && a > 0 && b > 0 && isfinite(a) && isfinite(b) ? exp2(round(log2(a / b))) : 1;
}

/* How far y lies from itself in f32, where an optimizer has not made whole steps of roundings. */
static double apart(const Told *y, const Told *w)
{
	const double scale = scale_between(y, w);
	double far = 0;

	for (int64_t i = 0; i < y->r.n; i++) {
		const double d = fabs(told_element(y, i) - scale * told_element(w, i));
		if (isfinite(d))
			far = fmax(far, d);
	}
	return far;
}

/* The roundings of y: as its own of any microbatch of the step are beside their largest value. */
static double rounding_of(const Step *s, const Told *y)
{
	double most = 0;

	for (int i = 0; i < s->one.n; i++) {
		const Told *t = &s->one.v[i];
		if (t->r.kind == y->r.kind && t->r.step == y->r.step && !strcmp(t->name, y->name))
			most = fmax(most, t->apart);
	}
	return most > 0 ? ROUNDINGS * most * told_largest(y) : 0;
}

/* ---- packed sums ---- */

static double unit_of(Codec c)
{
	switch (c) {
	case CODEC_NONE: return 0;
	case CODEC_TRUNC16: return 0x1p-7;
	case CODEC_BF16: return 0x1p-8;
	case CODEC_Q8: return 1.01 / 254; /* a step is rounded up */
	}
	return 0;
}

/* The gradient of a parameter in a microbatch: d.NAME, or one of several that are added, d.NAME.1. */
static bool part_of_gradient(const char *told, const char *parameter)
{
	const size_t n = strlen(parameter);

	return !strncmp(told, "d.", 2) && !strncmp(told + 2, parameter, n) &&
	       (!told[2 + n] || (told[2 + n] == '.' && told[3 + n] >= '0' && told[3 + n] <= '9'));
}

/* The largest sum of an element's sizes over the microbatches; where they are not told, all of one sign. */
static double largest_partial(const Step *s, const char *name, const Told *sum, int64_t from, int64_t n)
{
	double *all = NEWN(s->c->a, double, n + 1), most = 0;
	bool told = false;

	for (int k = 0; k < s->one.n; k++) {
		const Told *t = &s->one.v[k];
		if (t->r.kind != FIRST_VALUE || t->r.step != sum->r.step || t->r.n != sum->r.n ||
			!part_of_gradient(t->name, name))
			continue;
		told = true;
		for (int64_t i = 0; i < n; i++)
			all[i] += fabs(told_element(t, from + i));
	}
	for (int64_t i = 0; i < n; i++)
		most = fmax(most, all[i]);
	return told ? most : (double)s->one.per_step * told_largest(sum);
}

static const Told *sum_told(const Step *s, const char *name, int64_t step)
{
	for (int i = 0; i < s->one.n; i++)
		if (s->one.v[i].r.kind == FIRST_GRADIENT && s->one.v[i].r.step == step &&
			!strcmp(s->one.v[i].name, name))
			return &s->one.v[i];
	return NULL;
}

static const char *parameter_of(const Value *sum) { return strncmp(sum->name, "g.", 2) ? sum->name : sum->name + 2; }

/* The largest partial sum in a block of q8 that has elements of input x of the AllReduce. */
static double largest_in_blocks(const Step *s, const Node *sum, const Value *x, int64_t step)
{
	const int64_t block = attr_int(sum, "block") > 0 ? attr_int(sum, "block") : 1,
		      begin = attr_int(sum, "bucket") < 0 ? 0 : sum->in[0]->offset / 4, at = x->offset / 4 - begin,
		      low = at / block * block, high = (at + type_numel(&x->type) + block - 1) / block * block;
	double most = 0;

	for (int i = 0; i < sum->nin; i++) {
		const Value *v = sum->in[i];
		const Told *t = sum_told(s, parameter_of(v), step);
		const int64_t first = v->offset / 4 - begin, end = first + type_numel(&v->type);
		const int64_t from = first > low ? first : low, to = end < high ? end : high;

		if (t && from < to)
			most = fmax(most, largest_partial(s, parameter_of(v), t, from - first, to - from));
	}
	return most;
}

/* What packing may make of the sum of a gradient. */
static double packing_of_sum(const Step *s, const Told *y)
{
	const double u = unit_of(s->c->o->t.comm.compress.codec);
	const Module *m = s->c->m;
	double most = 0;

	for (int k = 0; k < m->nstage && u > 0; k++)
		for (const Node *n = m->stage[k]->update->first; n; n = n->next)
			for (int i = 0; n->op == OP_AllReduce && i < n->nin; i++) {
				if (!strcmp(attr_str(n, "codec"), "none") ||
					strcmp(parameter_of(n->in[i]), y->name) != 0)
					continue;
				const double a = strcmp(attr_str(n, "codec"), "q8")
				                         ? largest_partial(s, y->name, y, 0, y->r.n)
				                         : largest_in_blocks(s, n, n->in[i], y->r.step);
				most = fmax(most, SECOND_ORDER * m->stage[k]->replicas * u * a);
			}
	return most;
}

/* The same of what is updated with it, where that is no step of roundings: a weight moves by LR / labels of it; states are of its first
 * or second power. */
static double packing_of_update(const Step *s, const Told *y)
{
	const Told *g = gradient_of(s, y);
	const double off = g ? packing_of_sum(s, g) : 0, top = g ? told_largest(g) : 0;

	if (!(off > 0) || !(top > 0))
		return 0;
	const double part = off / top + s->norm;
	if (is_state(y))
		return (2 * part + part * part) * told_largest(y);
	return verify_stride(s->c) > 0 ? 0
	                               : opt_get(&s->c->o->t.model.opt, OPT_LR) * part * top / fmax(s->count, 1e-30);
}

static double packing_of(const Step *s, const Told *y)
{
	return y->r.kind == FIRST_GRADIENT  ? packing_of_sum(s, y)
	       : y->r.kind == FIRST_UPDATED ? packing_of_update(s, y)
	                                    : 0;
}

/* ---- both ---- */

static double off_by(const Step *s, const Told *y) { return fmax(rounding_of(s, y), packing_of(s, y)); }

Stride slack_strides(const Step *s, const Told *y)
{
	const Told *g = s->exact || is_state(y) ? NULL : gradient_of(s, y);

	return g ? (Stride){ .gradient = g,
		.noise = fmax(verify_noise(s->c) * s->gradient, off_by(s, g)),
		.far = 1.01 * (double)(g->micro + 1) * verify_stride(s->c) }
	         : (Stride){ 0 };
}

double slack_stride(const Stride *most, int64_t i)
{
	const Told *g = most->gradient;

	return g && i < g->r.n && fabs(told_element(g, i)) <= most->noise ? most->far : 0;
}

/* A value of 16 bits is one rounding of another beside it at least. */
static double least_apart(const Compile *c) { return c->o->t.target.amp.kind == AMP_BF16 ? 1.0 / HALVES_APART : 1e-3; }

double slack_of(const Step *s, const Told *y)
{
	if (s->exact)
		return -1;
	const double least = least_apart(s->c) * told_largest(y);

	if (y->r.kind == FIRST_NORM)
		return fmax(fmax(least, 1e-6), s->norm * told_largest(y));
	return fmax(fmax(least, is_gradient(y) ? verify_noise(s->c) * s->gradient : 1e-6), off_by(s, y));
}

static double measured(const Step *s, Told *y)
{
	const Told *w = in_f32(s, y);
	const double top = told_largest(y);

	/* steps of roundings are no measure, nor is an update that fp16 left out */
	if (!w || !(top > 0) || !isfinite(top) ||
		(y->r.kind == FIRST_UPDATED && (!gradient_of(s, y) || (!is_state(y) && verify_stride(s->c) > 0))))
		return 0;
	return apart(y, w) / top;
}

void slack_measure(Step *s)
{
	double far = 0, all = 0;

	for (int i = 0; i < s->one.n; i++) {
		const Told *y = &s->one.v[i];
		if (y->r.kind == FIRST_GRADIENT)
			s->gradient = fmax(s->gradient, told_largest(y));
		if (y->r.kind == FIRST_LOSS && y->r.step == 0 && y->r.n > 1)
			s->count += told_element(y, 1);
	}
	for (int i = 0; i < s->one.n; i++)
		s->one.v[i].apart = measured(s, &s->one.v[i]);
	for (int i = 0; i < s->one.n; i++) {
		const Told *y = &s->one.v[i];
		if (y->r.kind != FIRST_GRADIENT || y->r.step)
			continue;
		const double off = off_by(s, y);
		far += off * off * (double)y->r.n;
		for (int64_t k = 0; k < y->r.n; k++)
			all += told_element(y, k) * told_element(y, k);
	}
	s->norm = all > 0 ? sqrt(far / all) : 0;
}

void slack_later(const Step *s, Slacks *to)
{
	double slope = 0, way = 0;

	for (int i = 0; i < s->one.n && !s->exact; i++) {
		const Told *y = &s->one.v[i], *g = gradient_of(s, y);
		if (!g || y->r.step)
			continue;
		Slack one = { .name = y->name, .gradient = off_by(s, g), .far = off_by(s, y) };
		if (packing_of_sum(s, g) > 0 && !is_state(y))
			one.far = fmax(one.far, 1.01 * verify_stride(s->c));
		PUSH(s->c->a, to->v, to->n, to->cap) = one;
		way += is_state(y) ? 0 : one.far * one.far * (double)y->r.n;
		for (int64_t k = 0; !is_state(y) && k < g->r.n; k++)
			slope += told_element(g, k) * told_element(g, k);
	}
	to->loss = sqrt(slope * way) / fmax(s->count, 1e-30);
}

const Slack *slack_find(const Slacks *s, const char *name)
{
	for (int i = 0; i < s->n; i++)
		if (!strcmp(s->v[i].name, name))
			return &s->v[i];
	return NULL;
}
