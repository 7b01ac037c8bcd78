/* A plan that is tried (plan_model.h): costs of its stages, memory and a bound on its step, from the planning model alone. */
#include <math.h>
#include <string.h>
#include "plan_trial.h"
#include "passes/schedule/sched.h"
#include "passes/comm/comm.h"
#include "passes/schedule/placement.h"

Trial *trial_new(Arena *a, int n, int ndevice, const char *by)
{
	Trial *t = NEW(a, Trial);

	*t = (Trial){ .n = n,
		.end = NEWN(a, int, n),
		.replicas = NEWN(a, int, n),
		.ndevice = ndevice,
		.device = NEWN(a, int, ndevice),
		.by = by,
		.step = INFINITY,
		.score = INFINITY };
	return t;
}

Trial *trial_asked(Arena *a, const PlanModel *p, int n, const int *replicas, int *ndevice, Diag *d)
{
	Placement at;
	int sum = 0;

	if (!plan_place(a, p->schedule, n, replicas, &at, d))
		return NULL;
	for (int i = 0; i < n; i++)
		sum += replicas[i];
	Trial *t = trial_new(a, n, sum, "as asked");
	memcpy(t->replicas, replicas, sizeof *replicas * (size_t)n);
	t->micro = trial_micro(p, n, replicas);
	for (int i = 0, r = 0; i < n; i++)
		for (int k = 0; k < replicas[i]; k++)
			t->device[r++] = at.rank[i] + k;
	*ndevice = at.ndevice;
	return t;
}

bool trial_possible(const PlanModel *p, const Trial *t, Diag *d)
{
	Arena *a = arena_new();
	const bool ok =
		schedule_make(a, p->played, t->n, t->replicas, (int)t->micro, p->blocks, NULL, 0, NULL, d) != NULL;

	arena_free(a);
	return ok;
}

const char *trial_str(Arena *a, const Trial *t)
{
	Buf b = { 0 };

	for (int s = 0; s < t->n; s++)
		buf_printf(&b, "%s%d", s ? "-" : "", t->replicas[s]);
	const char *text = arena_str(a, buf_str(&b));
	buf_free(&b);
	return text;
}

static int largest(const int *v, int n)
{
	int r = 0;

	for (int i = 0; i < n; i++)
		r = v[i] > r ? v[i] : r;
	return r;
}

/* As asked for, or enough to keep a pipeline busy. */
int64_t trial_micro(const PlanModel *p, int n, const int *replicas)
{
	const int most = largest(replicas, n);

	if (trial_each(p))
		return 1;
	if (p->global)
		return p->global;
	return p->per_replica > 0 ? p->per_replica * most : (int64_t)most * (n > 1 ? 2 * n : 1);
}

int *trial_stage_of(Arena *a, const PlanModel *p, const Trial *t)
{
	int *stage = NEWN(a, int, p->nlayer);

	for (int i = 0; i < p->nlayer; i++) {
		const uint64_t *column = p->st->under + i / 64;
		int s = 0;
		while (s < t->n - 1 && !(column[(size_t)t->end[s] * (size_t)p->st->layer_words] >> (i % 64) & 1))
			s++;
		stage[i] = s;
	}
	return stage;
}

/* ---- what stages tell each other ---- */

static void flow_on(Flow *f, bool back, int from, int to, double bytes)
{
	(back ? f->bwd : f->fwd)[from * f->n + to] += bytes;
	f->waits[back][from * f->n + to] = true;
}

static void flow_tensor(Flow *f, const PlanTensor *t, const int *stage, int *seen, int stamp)
{
	const int s = stage[t->from];
	int first = t->kind == PLAN_BOTH ? f->n : s;

	for (int k = 0; k < t->nto; k++)
		first = stage[t->to[k]] < first ? stage[t->to[k]] : first;
	for (int k = 0; k < t->nto; k++) {
		const int to = stage[t->to[k]];
		if (seen[to] == stamp)
			continue;
		seen[to] = stamp;
		if (t->kind != PLAN_BACKWARD && to != s)
			flow_on(f, false, s, to, t->bytes);
		if (t->kind == PLAN_BACKWARD && to != s)
			flow_on(f, true, s, to, t->bytes);
		if (t->kind == PLAN_BOTH && to != first)
			flow_on(f, true, to, first, t->bytes);
	}
	bool sent = false;
	for (int k = 0; k < t->nto && t->kind != PLAN_BACKWARD; k++)
		sent |= stage[t->to[k]] != s;
	if (sent)
		(t->kept ? f->sent_kept : f->sent_only)[s] += t->bytes;
	if (t->kind == PLAN_BOTH && first != s)
		flow_on(f, true, first, s, t->bytes);
}

Flow flow_of(Arena *a, const PlanModel *p, const Trial *t, const int *stage)
{
	const int n = t->n;
	Flow f = { .n = n,
		.fwd = NEWN(a, double, n *n),
		.bwd = NEWN(a, double, n *n),
		.waits = { NEWN(a, bool, n *n), NEWN(a, bool, n *n) },
		.sent_only = NEWN(a, double, n),
		.sent_kept = NEWN(a, double, n) };
	int *seen = NEWN(a, int, t->n);

	for (int i = 0; i < p->ntensor; i++)
		flow_tensor(&f, &p->tensor[i], stage, seen, i + 1);
	return f;
}

/* ---- stages ---- */

static void add_layers(const PlanModel *p, TrialStage *s, const int *stage)
{
	for (int i = 0; i < p->nlayer; i++) {
		TrialStage *x = &s[stage[i]];
		for (int c = 0; c < p->nclass; c++) {
			x->fwd[c] += p->fwd[c][i];
			x->bwd[c] += p->bwd[c][i];
			x->update[c] += p->update[c][i];
		}
		x->slot += p->kept[i];
		x->tmp = fmax(x->tmp, p->tmp[i]);
		x->only = fmax(x->only, x->slot - p->kept[i] + p->most[i]);
	}
}

static void add_weights(const PlanModel *p, TrialStage *s, const int *stage, int n, int *seen)
{
	for (int t = 0; t < n; t++)
		seen[t] = 0;
	for (int i = 0; i < p->nweight; i++) {
		const PlanWeight *w = &p->weight[i];
		const double bytes = 64 * ceil(w->bytes / 64);
		for (int k = 0; k < w->n; k++) {
			TrialStage *x = &s[stage[w->layer[k]]];
			if (seen[stage[w->layer[k]]] == i + 1)
				continue;
			seen[stage[w->layer[k]]] = i + 1;
			x->weights += bytes;
			x->trained += w->trained ? bytes : 0;
			x->stashed += w->trained && (w->again || trial_older(p, stage[w->layer[k]])) ? bytes : 0;
			x->grads = w->trained ? fmax(x->grads, bytes) : x->grads;
			if (w->trained && !w->added && added_at_end(p->train, (int64_t)bytes))
				x->small += bytes;
			else if (w->trained && !w->added)
				x->leaf = fmax(x->leaf, bytes);
		}
	}
}

static bool crosses_cut(const PlanModel *p, const PlanAgain *v, const int *stage)
{
	const PlanTensor *x = v->tensor < 0 ? NULL : &p->tensor[v->tensor];

	for (int i = 0; x && i < x->nto; i++)
		if (stage[x->to[i]] != stage[v->layer])
			return true;
	return false;
}

/* Memory of the smallest of a stage's devices, the first of which is r. */
static double limit_of(const PlanModel *p, const Trial *t, int at, int r)
{
	double limit = INFINITY;

	for (int k = r; k < r + t->replicas[at]; k++)
		if (p->c->device[t->device[k]].memory > 0)
			limit = fmin(limit, (double)p->c->device[t->device[k]].memory);
	return limit;
}

/* Computes values of stage `at`, on devices r.., again where that is asked for: all, or as recompute chooses them, until the
 * rest fits. One microbatch's values are there while one backward runs. */
static void again(const PlanModel *p, const Trial *t, TrialStage *s, int at, int r, const int *stage)
{
	const int64_t grains = trial_share(p, t, at);
	const bool all = p->recompute == PLAN_AGAIN;
	const double limit = limit_of(p, t, at, r);

	if (p->recompute == PLAN_KEEP || (!all && s->inflight < 2))
		return;
	for (int i = 0; i < p->nagain && (all || stage_memory(p, s, grains) > limit); i++) {
		const PlanAgain *v = &p->again[i];
		if (stage[v->layer] != at || crosses_cut(p, v, stage))
			continue;
		s->again = true;
		s->slot -= v->bytes;
		s->tmp += v->bytes;
		for (int c = 0; c < p->nclass; c++)
			s->bwd[c] += v->time[c];
	}
}

/* Gradients of every microbatch are summed in parts, and two buckets of them lie in memory (passes/comm/zero.c). */
static bool each_in_parts(const PlanModel *p, int stage)
{
	return plan_zero(p, stage) > 1 && p->train && !p->train->loop.reproducible && !p->train->target.f64;
}

bool trial_sums_within(const TrialStage *s) { return s->gathered > 1 && s->sums > 1; }

/* What replicas send each other by the microbatch, beside what they compute: with --zero 3 each forward and each backward gathers the
 * weights, and where gradients are summed in parts each backward sums them. Either is half of an AllReduce. */
static void send_parts(const PlanModel *p, const Trial *t, TrialStage *s, int i, int r, const int *stage)
{
	if (s->gathered <= 1 && s->sums <= 1)
		return;
	const StageSums *sums = trial_sums(p, t, i, t->device + r, stage, true);
	double half = 0;

	for (int q = 0; q < sums->n; q++)
		half += sums->sum[q].least / 2;
	for (int c = 0; c < p->nclass; c++) {
		s->fwd[c] = fmax(s->fwd[c], s->gathered > 1 ? half : 0);
		s->bwd[c] = fmax(s->bwd[c], (s->gathered > 1 ? half : 0) + (s->sums > 1 ? half : 0));
	}
}

/* What lies in memory while buckets are summed or gathered (passes/comm/zero.c: zero_bucket): the largest tensor and a bucket beside it,
 * or two buckets. */
static double bucket_memory(const PlanModel *p, const TrialStage *s)
{
	const double bucket = zero_bucket(p->train, s->trained);

	return fmin(s->trained, fmax(s->grads, bucket) + bucket);
}

/* Gradients of a microbatch before they are added to those of the step. */
static double leaf_memory(const PlanModel *p, const TrialStage *s, int64_t grains)
{
	return s->sums > 1 ? bucket_memory(p, s) : grains > 1 ? s->leaf + s->small : 0;
}

/* With --zero 3 a device has its part, and what it gathers; where gradients are summed in parts, in the same memory as those (leaf_memory). */
static double weight_memory(const PlanModel *p, const TrialStage *s)
{
	if (s->gathered <= 1)
		return s->weights;
	return s->weights - s->trained + s->trained / s->gathered + (s->sums > 1 ? 0 : bucket_memory(p, s));
}

double stage_memory(const PlanModel *p, const TrialStage *s, int64_t grains)
{
	/* those of so many steps are under way, or are made */
	const double sums = schedule_row(p->schedule)->flow & FLOW_BESIDE ? p->schedule.n : 1;
	const double leaf = leaf_memory(p, s, grains), all = s->inflight * s->slot + s->tmp;
	const bool over = s->inflight == 1 && !s->again && !schedule_splits(p->schedule);

	return p->memory_scale *
	       (weight_memory(p, s) + sums / s->sums * (s->trained - s->once) + p->state / s->parts * s->trained +
		       s->rows + (s->versions - 1) * s->stashed + leaf + (over ? fmin(s->only, all) : all));
}

/* Of that what is there only while a stage computes: one at a time, where a device has several. */
static double passing_memory(const PlanModel *p, const TrialStage *s, int64_t grains)
{
	return p->memory_scale * (leaf_memory(p, s, grains) + s->tmp);
}

Corrected trial_corrected(const PlanModel *p, ScheduleSpec spec)
{
	const Corrected *x = p->corrected ? &p->corrected[spec.kind ? spec.kind : SCHEDULE_PLAIN] : NULL;

	return (Corrected){ x && x->memory > 0 ? x->memory : 1, x && x->time > 0 ? x->time : 1 };
}

/* Bytes of each device, by its place in the cluster, with as many microbatches as its stages say. */
static double *held_by_devices(Arena *a, const PlanModel *p, const Trial *t, const TrialStage *s)
{
	double *all = NEWN(a, double, p->c->ndevice), *most = NEWN(a, double, p->c->ndevice);

	for (int i = 0, k = 0; i < t->n; i++) {
		const int64_t grains = trial_share(p, t, i);
		const double passing = passing_memory(p, &s[i], grains),
			     stays = stage_memory(p, &s[i], grains) - passing;
		for (const int r = k; k < r + t->replicas[i]; k++) {
			const int d = t->device[k];
			all[d] += stays + fmax(0, passing - most[d]);
			most[d] = fmax(most[d], passing);
		}
	}
	return all;
}

/* Orders that are played hold what there is room for: the stages of a device share what is left beside everything else. */
static void fill_room(Arena *a, const PlanModel *p, const Trial *t, TrialStage *s)
{
	int *first = NEWN(a, int, t->n), *stage = NEWN(a, int, t->n), *most = NEWN(a, int, t->n);
	double *each = NEWN(a, double, t->n);

	for (int i = 0; i < t->n; i++) {
		first[i] = i ? first[i - 1] + t->replicas[i - 1] : 0;
		s[i].inflight = 0;
	}
	const double *beside = held_by_devices(a, p, t, s);
	for (int i = 0; i < t->n; i++) {
		int n = 0;
		for (int k = i; k < t->n && !most[i]; k++) {
			each[n] = p->memory_scale * s[k].slot;
			if (t->device[first[k]] == t->device[first[i]])
				stage[n++] = k;
		}
		schedule_fill_room(t->n, n, stage, each, limit_of(p, t, i, first[i]) - beside[t->device[first[i]]],
			(int)trial_share(p, t, i), most);
	}
	for (int i = 0; i < t->n; i++)
		s[i].inflight = most[i];
}

TrialStage *flow_stages(Arena *a, const PlanModel *p, const Trial *t, const int *stage, const Flow *f)
{
	TrialStage *s = NEWN(a, TrialStage, t->n);

	for (int i = 0; i < t->n; i++) {
		s[i].fwd = NEWN(a, double, p->nclass);
		s[i].bwd = NEWN(a, double, p->nclass);
		s[i].update = NEWN(a, double, p->nclass);
		s[i].inflight = trial_in_flight(p, t, i);
		s[i].versions = trial_versions(p, t, i);
		s[i].parts = plan_zero(p, i) ? t->replicas[i] : 1;
		/* what replicas tell each other by the microbatch asks for as many of each */
		const int together = t->micro % t->replicas[i] ? 1 : t->replicas[i];
		s[i].sums = each_in_parts(p, i) ? together : 1;
		s[i].gathered = plan_zero(p, i) > 2 ? together : 1;
	}
	add_layers(p, s, stage);
	add_weights(p, s, stage, t->n, NEWN(a, int, t->n));
	for (int i = 0, r = 0; i < t->n; r += t->replicas[i++]) {
		s[i].kept = s[i].slot - f->sent_kept[i];
		s[i].only += f->sent_only[i];
		s[i].slot += f->sent_only[i];
		for (int k = 0; k < t->n; k++) {
			s[i].in += f->fwd[k * t->n + i] + f->bwd[k * t->n + i];
			s[i].out += f->fwd[i * t->n + k] + f->bwd[i * t->n + k];
			const double wire = f->fwd[k * t->n + i] + f->bwd[k * t->n + i] + f->bwd[i * t->n + k];
			s[i].slot += wire;
			s[i].only += wire;
		}
		trial_once(p, t, &s[i], i, stage);
		again(p, t, &s[i], i, r, stage);
		send_parts(p, t, &s[i], i, r, stage);
		const int64_t grains = trial_share(p, t, i);
		const double limit = limit_of(p, t, i, r);
		while (schedule_row(p->schedule)->flight == FLIGHT_WARMUP && s[i].inflight > 1 &&
			stage_memory(p, &s[i], grains) > limit)
			s[i].inflight--; /* K_i falls to what fits */
	}
	if (schedule_row(p->schedule)->flight == FLIGHT_PLAYED)
		fill_room(a, p, t, s);
	return s;
}

TrialStage *trial_stages(Arena *a, const PlanModel *p, const Trial *t)
{
	const int *stage = trial_stage_of(a, p, t);
	const Flow f = flow_of(a, p, t, stage);

	return flow_stages(a, p, t, stage, &f);
}

/* ---- bounds ---- */

/* When a stage's first forward begins at least, behind those of what it reads; and how long a step goes on at least behind a backward
 * of the stage, with those of the same microbatch that wait for it. */
static void begin_and_end(
	const PlanModel *p, const Trial *t, const TrialStage *s, const Flow *f, double *start, double *behind)
{
	for (int i = 0, r = 0; i < t->n; r += t->replicas[i++]) {
		double fwd = INFINITY, bwd = INFINITY;

		for (int k = r; k < r + t->replicas[i]; k++) {
			fwd = fmin(fwd, s[i].fwd[p->class_of[t->device[k]]]);
			bwd = fmin(bwd, s[i].bwd[p->class_of[t->device[k]]]);
		}
		for (int to = i + 1; to < t->n; to++) {
			if (f->waits[0][i * t->n + to])
				start[to] = fmax(start[to], start[i] + fwd);
			if (f->waits[1][to * t->n + i])
				behind[to] = fmax(behind[to], behind[i] + bwd);
		}
	}
}

/* Microbatches of replica k, in turn (plan_in_turn) or in blocks. */
static double share(const Trial *t, bool in_turn, int stage, int k)
{
	const int64_t n = t->replicas[stage];

	if (in_turn)
		return (double)((t->micro - k + n - 1) / n);
	return (double)((t->micro * (k + 1) + n - 1) / n - (t->micro * k + n - 1) / n);
}

/* When the sums of a stage whose devices begin with r are made at least: a device does its sums one after another, a bucket's
 * not before the last backward has made it. *all: seconds of all of them. */
static double sums_end(const PlanModel *p, Trial *t, const TrialStage *s, bool in_turn, int i, int r, double start,
	const int *stage, double *all)
{
	const StageSums *sums = trial_sums(p, t, i, t->device + r, stage, true);
	double end = 0;

	const int n = trial_sums_within(&s[i]) ? 0 : sums->n;

	*all = 0;
	t->sums += (double)n * t->replicas[i];
	for (int q = 0; q < (n ? n : 1); q++) {
		double ready = 0;
		for (int k = 0; k < t->replicas[i]; k++) {
			const int c = p->class_of[t->device[r + k]];
			const double left = n && sums->buckets ? 1 - sums->sum[q].join.ready : 0;
			ready = fmax(ready,
				start + share(t, in_turn, i, k) * (s[i].fwd[c] + s[i].bwd[c]) - left * s[i].bwd[c]);
		}
		end = fmax(end, ready) + (n ? sums->sum[q].least : 0);
		*all += n ? sums->sum[q].least : 0;
	}
	return end;
}

/* What a device does for its stages. */
typedef struct Held {
	double busy, sums;    /* seconds of forwards and backwards, of sums */
	double start, behind; /* seconds before the first forward and behind the last backward, at least */
} Held;

static void busy(Held *h, double seconds, double sums, double start, double behind)
{
	const bool first = !(h->busy > 0);

	h->busy += seconds;
	h->sums += sums;
	h->start = first ? start : fmin(h->start, start);
	h->behind = first ? behind : fmin(h->behind, behind);
}

void trial_weigh(const PlanModel *p, Trial *t, const TrialStage *s)
{
	Arena *a = arena_new();
	const double *memory = held_by_devices(a, p, t, s);

	t->peak = t->over = 0;
	for (int k = 0; k < t->ndevice; k++) {
		const double limit = (double)p->c->device[t->device[k]].memory, all = memory[t->device[k]];
		if (limit > 0)
			t->over = fmax(t->over, all / limit);
		if (all > t->peak) {
			t->peak = all;
			t->peak_rank = k;
		}
	}
	arena_free(a);
}

/* A device is at work for its share of microbatches, of all of its stages, and takes part in its sums; then all tell the first of
 * their losses, and update. Whatever else they wait for comes on top. */
void trial_judge(const PlanModel *p, Trial *t)
{
	Arena *a = arena_new();
	const int *stage = trial_stage_of(a, p, t);
	const Flow f = flow_of(a, p, t, stage);
	const TrialStage *s = flow_stages(a, p, t, stage, &f);
	const bool parts = schedule_splits(p->played), in_turn = !p->blocks && plan_in_turn(t->replicas, t->n);
	double *start = NEWN(a, double, t->n), *behind = NEWN(a, double, t->n), update = 0, sums;
	Held *held = NEWN(a, Held, p->c->ndevice);

	t->bound = t->likely = 0;
	trial_weigh(p, t, s);
	t->sums = p->servers ? (double)p->nweight * t->ndevice : 0;
	begin_and_end(p, t, s, &f, start, behind);
	for (int i = 0, r = 0; i < t->n; r += t->replicas[i++]) {
		t->bound = fmax(t->bound, sums_end(p, t, s, in_turn, i, r, start[i], stage, &sums));
		for (int k = r; k < r + t->replicas[i]; k++) {
			const int c = p->class_of[t->device[k]];
			busy(&held[t->device[k]], share(t, in_turn, i, k - r) * (s[i].fwd[c] + s[i].bwd[c]), sums,
				start[i], parts ? 0 : behind[i]); /* a W may be behind the last backward */
			update = fmax(update, s[i].update[c]);
		}
	}
	for (int d = 0; d < p->c->ndevice; d++) {
		const double work = held[d].start + held[d].busy + held[d].behind;
		t->bound = fmax(t->bound, work);
		t->likely = fmax(t->likely, work + held[d].sums);
	}
	t->bound += update;
	t->likely += update;
	if (schedule_is_async(p->schedule))
		t->bound = trial_steady(p, t, s, stage);
	t->refused = trial_refused(p, t, stage);
	arena_free(a);
}
