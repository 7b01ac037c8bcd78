/* DAPPLE's equations: the latency of a synchronous pipeline with a pivot stage (1 to 3), what a stage costs and keeps, how
 * deep it warms up. */
#include <math.h>
#include <string.h>
#include "dapple_job.h"

double dapple_latency(int n, const double *fwd, const double *bwd, const double *ar, int m, bool literal, int *pivot)
{
	int q = n - 1;
	double between = 0, warm = 0, end = -INFINITY, b = 0;

	for (int s = n - 2; s >= 0; s--) { /* between: of the stages behind s and in front of q */
		if ((m - 1) * (fwd[s] + bwd[s]) > (m - 1) * (fwd[q] + bwd[q]) + between) {
			q = s;
			between = 0;
		} else {
			between += fwd[s] + bwd[s];
		}
	}
	for (int s = 0; s <= q; s++)
		warm += fwd[s];
	for (int s = q; s >= 0; s--) {
		b += bwd[s];
		end = fmax(end, ar[s] + (literal && s == q ? -b : b));
	}
	b = literal ? bwd[q] : 0;
	for (int s = q + 1; s < n; s++) {
		if (literal)
			b += bwd[s];
		end = fmax(end, ar[s] - b);
		if (!literal)
			b += bwd[s];
	}
	if (pivot)
		*pivot = q;
	return warm + (m - 1) * (fwd[q] + bwd[q]) + end;
}

/* ---- stages ---- */

static double behind(const double *sum, int begin, int end) { return sum[end - 1] - (begin ? sum[begin - 1] : 0); }

void job_set(Job *j, int m)
{
	j->m = m;
	j->part = j->o->batch / j->o->profiled / m;
	j->scaling = j->o->scaling > 0 ? j->o->scaling : 1;
}

static double weight_bytes(const Job *j, const DappleStage *s)
{
	return j->scaling * behind(j->p->params, s->begin, s->end);
}

static double slice_bytes(const Job *j, const DappleStage *s)
{
	return behind(j->p->act, s->begin, s->end) * j->part / s->replicas;
}

DappleStage job_stage(const Job *j, int begin, int end, DappleSet devices)
{
	DappleStage s = { .begin = begin, .end = end, .devices = devices, .replicas = __builtin_popcountll(devices) };
	const double time = behind(j->p->time, begin, end) * j->part / s.replicas;

	s.fwd = behind(j->p->fwd, begin, end) * j->part / s.replicas;
	s.bwd = fmax(time - s.fwd, 0);
	s.allreduce = dapple_allreduce(j->c, devices, behind(j->p->params, begin, end));
	s.memory = weight_bytes(j, &s) + slice_bytes(j, &s); /* depth 1; job_finish() knows better */
	return s;
}

void job_link(const Job *j, DappleStage *s, const DappleStage *next)
{
	s->transfer = dapple_transfer(j->c, s->devices, next->devices, j->p->cut[s->end - 1] * j->part);
}

double job_latency(const Job *j, const DappleStage *s, int n, int *pivot)
{
	double f[2 * MOST], b[2 * MOST], ar[2 * MOST];

	for (int i = 0; i < n; i++) {
		f[2 * i] = s[i].fwd;
		b[2 * i] = s[i].bwd;
		ar[2 * i] = s[i].allreduce;
		f[2 * i + 1] = b[2 * i + 1] = s[i].transfer;
		ar[2 * i + 1] = 0;
	}
	return dapple_latency(2 * n - 1, f, b, ar, j->m, j->o->literal, pivot);
}

bool job_fits(Job *j, const DappleStage *s, int n)
{
	double most = 0;

	for (int i = 0; i < n; i++)
		most = fmax(most, s[i].memory);
	if (j->c->memory <= 0 || most <= j->c->memory)
		return true;
	j->needed = fmin(j->needed, most);
	return false;
}

/* Warm-up depths K_i by policy, memory at that depth, the latency. */
void job_finish(const Job *j, DapplePlan *plan)
{
	for (int i = 0; i < plan->n; i++) {
		DappleStage *s = &plan->stage[i];
		const double slice = slice_bytes(j, s), left = j->c->memory - weight_bytes(j, s);
		const int after = plan->n - i, want = j->o->warmup == 'B' ? 2 * after - 1 : after;
		int depth = want < j->m ? want : j->m;
		if (j->c->memory > 0 && slice * depth > left)
			depth = (int)fmax(1, floor(left / slice));
		s->depth = depth;
		s->memory = weight_bytes(j, s) + depth * slice;
	}
	plan->copies = 1;
	plan->microbatches = j->m;
	plan->latency = job_latency(j, plan->stage, plan->n, &plan->pivot);
	plan->speedup = j->p->time[j->p->n - 1] * j->part * j->m / plan->latency;
}

bool dapple_evaluate(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, DapplePlan *plan)
{
	Job j = { .p = p, .c = c, .o = o, .needed = INFINITY };

	job_set(&j, plan->microbatches);
	for (int i = plan->n; i-- > 0;) {
		plan->stage[i] = job_stage(&j, plan->stage[i].begin, plan->stage[i].end, plan->stage[i].devices);
		if (i + 1 < plan->n)
			job_link(&j, &plan->stage[i], &plan->stage[i + 1]);
	}
	const bool ok = job_fits(&j, plan->stage, plan->n);
	job_finish(&j, plan);
	return ok;
}

void job_keep(Job *j, DapplePlan *best, const DappleStage *stage, int n, double time)
{
	if (time >= best->latency || !job_fits(j, stage, n))
		return;
	memcpy(best->stage, stage, sizeof *stage * (size_t)n);
	best->n = n;
	best->microbatches = j->m;
	best->latency = time;
}

/* The largest divisor of a batch that is at most k; k itself for batches in parts of samples. */
static double divisor(double batch, double k)
{
	double best = batch == floor(batch) ? 1 : k;

	for (double d = 1; batch == floor(batch) && d * d <= batch; d++)
		if (fmod(batch, d) == 0) {
			best = d <= k ? fmax(best, d) : best;
			best = batch / d <= k ? fmax(best, batch / d) : best;
		}
	return best;
}

/* Counts of microbatches worth trying: for r = G..1 devices of a stage the most that gives each of them `least` samples and
 * divides the global batch. */
int job_counts(const DappleCluster *c, const DappleOptions *o, int *m)
{
	int n = 0;

	if (o->microbatches > 0)
		m[n++] = o->microbatches;
	for (int r = o->microbatches > 0 ? 0 : dapple_devices(c); r > 0; r--) {
		const double most = floor(o->batch / o->least / r);
		const int k = most < 1 ? 0 : (int)divisor(o->batch, most);
		if (k && (!n || k != m[n - 1]))
			m[n++] = k;
	}
	if (!n)
		m[n++] = 1;
	return n;
}

bool job_usable(const DappleProfile *p, const DappleCluster *c, const DappleOptions *o, Diag *d)
{
	if (!dapple_cluster_check(c, d))
		return false;
	if (p->n < 1)
		return diag_error(d, NOLOC, 441, "a profile without states");
	if (!(o->profiled > 0) || !(o->least > 0) || !(o->batch >= o->least) || o->batch > 1e9 ||
		o->microbatches > o->batch)
		return diag_error(d, NOLOC, 441,
			"batch sizes: profiled %.15g, global %.15g, least per device %.15g, %d microbatches; they are "
			"positive, the global one is the largest, at most 1e9",
			o->profiled, o->batch, o->least, o->microbatches);
	return true;
}

static void no_plan(const Job *j, Diag *d)
{
	if (isfinite(j->needed))
		diag_error(d, NOLOC, 442,
			"no plan fits: %.15g bytes per device are the limit, the smallest peak of a plan is %.15g bytes",
			j->c->memory, j->needed);
	else
		diag_error(d, NOLOC, 442,
			"no plan: %d microbatches of %g samples leave devices with fewer than %g samples", j->m,
			j->o->batch / j->m, j->o->least);
}

DapplePlan *job_result(Arena *a, Job *j, const DapplePlan *best, Diag *d)
{
	DapplePlan *plan = NEW(a, DapplePlan);

	if (!isfinite(best->latency)) {
		no_plan(j, d);
		return NULL;
	}
	*plan = *best;
	plan->stage = arena_dup(a, best->stage, sizeof *plan->stage * (size_t)plan->n);
	job_set(j, plan->microbatches);
	job_finish(j, plan);
	return plan;
}

const char *dapple_str(Arena *a, const DapplePlan *plan)
{
	const char *s = "";

	for (int i = 0; i < plan->n; i++)
		s = arena_printf(a, "%s%s%d", s, i ? ":" : "", plan->stage[i].replicas);
	return s;
}
