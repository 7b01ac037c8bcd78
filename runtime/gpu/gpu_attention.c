/* gpu_attention.c: attention of 16-bit floats, and its gradients, by cuDNN's fused kernels (gpu_attention_graph.c); the plan is made once
 * per form before step 0. Where there is none, or the first run is refused, the program's own kernels do it, and one line says so,
 * with the library's first reason; and with --reproducible, as what the library chooses depends on the batch, and its backward
 * adds up the gradients of queries in no fixed order. Dropout is not asked for: its draws have to be ours. */
#include "gpu_dnn.h"
#include <float.h>

typedef struct form form;
struct form {
	form *next;
	pd_attention_desc d;
	cudnnBackendDescriptor_t plan;
	bool off, ran;
};

static form *forms;
static rt_piece workspace, between; /* between: what the backward adds up in f32, and a number of each query */

static const char *name_of(const form *o) { return o->d.backward ? "attention backward" : "attention"; }

static void give_up(form *o, const char *why)
{
	const pd_attention_desc *d = &o->d;

	o->off = true;
	rt_refusal_taken();
	if (rt_log >= RT_LOG_NOTE)
		printf("%s of %lld x %lld heads, %lld queries, %lld keys of %lld: not by cuDNN (%s), by kernels of the program\n",
			name_of(o), (long long)d->b, (long long)d->h, (long long)d->tq, (long long)d->tk,
			(long long)d->d, why);
}

static bool same(const pd_attention_desc *a, const pd_attention_desc *b)
{
	return a->type == b->type && a->causal == b->causal && a->backward == b->backward && a->scale == b->scale &&
	       a->b == b->b && a->h == b->h && a->tq == b->tq && a->tk == b->tk && a->d == b->d && a->dv == b->dv &&
	       !memcmp(a->q, b->q, sizeof a->q) && !memcmp(a->k, b->k, sizeof a->k) &&
	       !memcmp(a->v, b->v, sizeof a->v) && !memcmp(a->y, b->y, sizeof a->y);
}

/* ---- the first run ---- */

enum { PARTS = 10 };

/* Bytes of q, k, v, y, lse, rest, and of the gradients of the first four. */
static size_t workspace_parts(const form *o, size_t bytes[PARTS])
{
	const pd_attention_desc *d = &o->d;
	const int64_t *const of[] = { d->q, d->k, d->v, d->y };
	const int64_t t[] = { d->tq, d->tk, d->tk, d->tq }, wide[] = { d->d, d->d, d->dv, d->dv };
	size_t all = 0;

	for (int i = 0; i < 4; i++) {
		bytes[i] =
			2 * (size_t)((d->b - 1) * of[i][0] + (d->h - 1) * of[i][1] + (t[i] - 1) * of[i][2] + wide[i]);
		bytes[6 + i] = d->backward ? bytes[i] : 0;
	}
	bytes[4] = bytes[5] = sizeof(float) * (size_t)(d->b * d->h * d->tq);
	for (int i = 0; i < PARTS; i++)
		all += rt_part_bytes(bytes[i]);
	return all;
}

static void run_once(void *of, char *scrap)
{
	const pd_attention p = { of };
	size_t bytes[PARTS];
	void *at[PARTS];

	workspace_parts(of, bytes);
	for (int i = 0; i < PARTS; i++)
		at[i] = rt_part(&scrap, bytes[i]);
	if (((form *)of)->d.backward)
		(void)pd_attention_grad_run(&p, at[6], at[7], at[8], at[9], at[0], at[1], at[2], at[3], at[4]);
	else
		(void)pd_attention_run(&p, at[3], at[4], at[5], at[0], at[1], at[2]);
}

/* ---- forms ---- */

/* What the library's notes and its frontend tell of versions; NULL: nothing of this one. */
static const char *known_faults(const pd_attention_desc *d)
{
	const size_t version = cudnnGetVersion();

	if (version == 91000 || version == 91001)
		return "9.10.0 and 9.10.1 have faults there";
	if (!d->backward)
		return NULL;
	if (version < 90600)
		return "before 9.6 sums are not begun at 0";
	if (version <= 91500 && d->tk % 128)
		return "before 9.15.1 keys are whole multiples of 128";
	return d->tq == 1 && d->tk == 1 ? "one query and one key" : NULL;
}

static size_t sums_bytes(const pd_attention_desc *d)
{
	return rt_part_bytes(sizeof(float) * (size_t)(d->b * d->h * d->tq));
}

static form *made(const pd_attention_desc *d)
{
	form *o = rt_alloc(sizeof *o);
	attn_graph g = { .d = &o->d };
	const char *fault = known_faults(d);
	size_t bytes = 0;

	o->d = *d;
	o->next = forms;
	forms = o;
	if (rt_program->reproducible)
		o->off = true;
	else if (fault)
		give_up(o, fault);
	else if (!(o->plan = attn_plan(&g, &bytes)))
		give_up(o, *g.why ? g.why : "its heuristics name no engine");
	else
		rt_want(&workspace, bytes, "cuDNN's workspace of attention");
	rt_refusal_taken();
	if (!o->off && d->backward)
		rt_want(&between, sums_bytes(d) + sizeof(float) * (size_t)(d->b * d->h * d->tq * d->d),
			"cuDNN's sums of attention's gradients");
	if (!o->off)
		rt_first_run(run_once, o, workspace_parts(o, (size_t[PARTS]){ 0 }));
	return o;
}

void pd_attention_init(pd_attention *p, const pd_attention_desc *d)
{
	if (rt_virtual)
		return;
	for (form *o = forms; o && !p->impl; o = o->next)
		if (same(&o->d, d))
			p->impl = o;
	if (!p->impl)
		p->impl = made(d);
}

/* ---- runs ---- */

/* Whether it was started. */
static int started(form *o, int n, const int64_t *uid, const void *const *at)
{
	attn_graph g = { .d = &o->d };

	attn_start(&g, o->plan, n, uid, at, workspace.at);
	if (o->ran)
		dnn_check(g.s, name_of(o));
	else if (g.s != CUDNN_STATUS_SUCCESS)
		give_up(o, g.why);
	else if (rt_log >= RT_LOG_DEBUG)
		printf("debug: %s of %lld queries, %lld keys: by cuDNN\n", name_of(o), (long long)o->d.tq,
			(long long)o->d.tk);
	o->ran = true;
	return g.s == CUDNN_STATUS_SUCCESS;
}

int pd_attention_run(
	const pd_attention *p, void *y, float *lse, float *rest, const void *q, const void *k, const void *v)
{
	form *o = p->impl;
	float scale = o->d.scale, hidden = -FLT_MAX;
	const int64_t uid[] = { ATTN_Q, ATTN_K, ATTN_V, ATTN_Y, ATTN_LSE, ATTN_SCALE, ATTN_HIDDEN };
	const void *at[] = { q, k, v, y, lse, &scale, &hidden };

	if (o->off || !started(o, o->d.causal ? 7 : 6, uid, at))
		return 0;
	pd_fill(rest, 0, sizeof(float) * (size_t)(o->d.b * o->d.h * o->d.tq));
	return 1;
}

int pd_attention_grad_run(const pd_attention *p, void *dq, void *dk, void *dv, const void *dy, const void *q,
	const void *k, const void *v, const void *y, const float *lse)
{
	form *o = p->impl;
	float scale = o->d.scale, one = 1, hidden = -FLT_MAX;
	char *room = between.at;
	const int64_t uid[] = { ATTN_Q, ATTN_K, ATTN_V, ATTN_Y, ATTN_LSE, ATTN_DQ, ATTN_DK, ATTN_DV, ATTN_DY,
		ATTN_SCALE, ATTN_ONE, ATTN_SUMS, ATTN_ACCUM, ATTN_HIDDEN };
	const void *at[] = { q, k, v, y, lse, dq, dk, dv, dy, &scale, &one, room,
		room ? room + sums_bytes(&o->d) : NULL, &hidden };

	return !o->off && started(o, o->d.causal ? 14 : 13, uid, at);
}
