/* pdcc verify: the distributed program against one device, on the same batches. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "runtime/state/safetensors.h"
#include "frontend/settings/cluster.h"
#include "frontend/driver/check/verify.h"
#include "frontend/driver/compile/global_batch.h"
#include "frontend/driver/compile/tools.h"

enum {
	LOOSE = 1000, /* parts per million of a tensor's largest value that fast sums may differ by */
	LATER = 2,    /* times the steps: what later ones make of what the first may be off by */
	ROUNDING = 10 /* parts per million of the largest gradient, below which one is no more than roundings */
};

/* Emits, builds and runs one of the two programs in dir; more: options of the run. The second compilation starts from the model
 * again. */
static bool build_and_run(Compile *c, const char *dir, int64_t steps, const char *more)
{
	if (!data_known(c) || !compile_write(c, dir))
		return false;
	return tool_run(c->d, "make",
		       arena_printf(c->a,
			       "make -s -C '%s' >'%s/make.log' 2>&1 || { tail -n 20 '%s/make.log' >&2; exit 1; }", dir,
			       dir, dir)) &&
	       tool_run(c->d, "the run",
		       arena_printf(c->a,
			       "cd '%s' && mkdir -p run && sh run.sh --steps %lld --out run --dump-grads run/grads.safetensors %s "
			       ">run.log 2>&1 || { tail -n 20 run.log >&2; exit 1; }",
			       dir, (long long)steps, more));
}

/* What the runs tell: of the first step, or of an asynchronous plan all that it does, in one flow. */
static const char *telling(const Rule *r)
{
	return !r           ? "--first-step run"
	       : r->servers ? "--each-step run --ckpt-every 0 --eval-every 0 --arrivals run/arrivals"
	                    : "--each-step run --ckpt-every 0 --eval-every 0";
}

typedef struct Curve {
	double v[4096];
	int n;
} Curve;

static bool read_losses(Compile *c, const char *dir, Curve *to)
{
	FILE *f = fopen(arena_printf(c->a, "%s/run/losses.txt", dir), "r");
	long step;

	to->n = 0;
	if (!f)
		return diag_error(c->d, NOLOC, 803, "%s/run/losses.txt is missing", dir);
	while (to->n < 4096 && fscanf(f, "%ld %lf", &step, &to->v[to->n]) == 2)
		to->n++;
	fclose(f);
	return true;
}

static double element(const st_tensor *x, size_t i)
{
	double wide;
	float f;

	if (!strcmp(x->dtype, "F64"))
		return memcpy(&wide, x->data + 8 * i, 8), wide;
	return memcpy(&f, x->data + 4 * i, 4), (double)f;
}

/* Where the gradient of the first step (of: NULL, not told) is at most `noise`, an element may be `stride` apart: optimizers that divide
 * by its size move it by roundings. */
typedef struct Astray {
	const st_tensor *of;
	double noise, stride, steps;
} Astray;

static bool astray(const Astray *g, const st_tensor *x, size_t i)
{
	return g && g->of && g->of->bytes == x->bytes && fabs(element(g->of, i)) <= g->noise;
}

/* Largest difference and largest value of two float tensors. */
static void measure(const st_tensor *x, const st_tensor *y, const Astray *g, double *diff, double *top)
{
	const size_t size = strcmp(x->dtype, "F64") ? 4 : 8;

	*diff = *top = 0;
	for (size_t i = 0; i < x->bytes / size; i++) {
		const double b = element(y, i);
		double e = fabs(element(x, i) - b);

		if (e > *diff && e <= (g ? g->stride : 0) && astray(g, x, i))
			e = 0;
		*diff = e > *diff || isnan(e) ? e : *diff;
		*top = fabs(b) > *top ? fabs(b) : *top;
	}
}

static bool trained(const Module *m, const char *name)
{
	for (int i = 0; i < m->nparam; i++) {
		const Param *p = m->param[i]->param;

		if (p->onnx_name && strcmp(p->onnx_name, name) == 0)
			return p->kind == PARAM_WEIGHT && !p->frozen;
	}
	return false;
}

static double top_of(const st_tensor *x)
{
	double diff, top;

	measure(x, x, NULL, &diff, &top);
	return diff == 0 ? top : INFINITY; /* NaN differs from itself */
}

/* The largest gradient of any parameter. */
static double largest_gradient(const st_file *grads)
{
	double most = 0;

	for (int i = 0; i < grads->n; i++)
		most = fmax(most, top_of(&grads->tensor[i]));
	return most;
}

/* Is the gradient of a parameter zero? What is zero in theory, as that of a bias in front of a BatchNormalization, is
 * roundings in practice. */
static bool no_gradient(const st_file *grads, const char *name, double most)
{
	const st_tensor *g = st_find(grads, name);

	return g && top_of(g) <= ROUNDING * 1e-6 * most;
}

/* A parameter that stays as it was in the distributed run: it may, if its gradient is zero there and on one device. */
static bool may_stay(Compile *c, const char *name, const st_file *many, const st_file *one)
{
	const double most = largest_gradient(one);

	return (no_gradient(many, name, most) && no_gradient(one, name, most)) ||
	       diag_error(c->d, NOLOC, 804, "parameter '%s' is trained but did not move", name);
}

/* Did every trained parameter move that has a gradient? Compared with the initial weights in the build folder. */
static bool all_moved_from(Compile *c, const char *dir, const st_file *after, const st_file *many, const st_file *one)
{
	bool ok = true;
	const char *why;

	for (int i = 0; i < c->m->nstage; i++) {
		st_file before;
		bool first = true; /* a file has the weights of all stages of a device */

		for (int t = 0; t < i; t++)
			first &= c->m->stage[t]->rank != c->m->stage[i]->rank;
		if (!first)
			continue;
		if (!st_open(&before, arena_printf(c->a, "%s/weights/stage%d.safetensors", dir, i), &why))
			return diag_error(c->d, NOLOC, 803, "initial weights of stage %d: %s", i, why);
		for (int k = 0; k < before.n; k++) {
			const st_tensor *x = &before.tensor[k], *y = st_find(after, x->name);

			if (y && trained(c->m, x->name) && x->bytes == y->bytes &&
				memcmp(x->data, y->data, x->bytes) == 0)
				ok &= may_stay(c, x->name, many, one);
		}
		st_close(&before);
	}
	return ok;
}

static bool all_moved(Compile *c, const char *many, const char *one)
{
	st_file after, x, y;
	const char *why;

	if (!st_open(&after, arena_printf(c->a, "%s/run/trained.safetensors", many), &why))
		return diag_error(c->d, NOLOC, 803, "weights of the distributed run: %s", why);
	bool ok = st_open(&x, arena_printf(c->a, "%s/run/grads.safetensors", many), &why) ||
	          diag_error(c->d, NOLOC, 803, "gradients of the distributed run: %s", why);
	if (ok) {
		ok = st_open(&y, arena_printf(c->a, "%s/run/grads.safetensors", one), &why) ||
		     diag_error(c->d, NOLOC, 803, "gradients of the one-device run: %s", why);
		if (ok) {
			ok = all_moved_from(c, many, &after, &x, &y);
			st_close(&y);
		}
		st_close(&x);
	}
	st_close(&after);
	return ok;
}

/* What fast sums may make of a loss, and of a tensor beside its largest value; in 16 bits each step rounds what they differ by anew. */
static double loose(const Compile *c, double f32) { return c->o->t.target.amp.kind == AMP_OFF ? f32 : 10 * f32; }

static bool same_losses(Compile *c, const Curve *a, const Curve *b, const Slacks *later, bool exact)
{
	bool ok = true;

	for (int i = 0; i < a->n && i < b->n && ok; i++)
		if (exact ? a->v[i] != b->v[i]
			  : !(fabs(a->v[i] - b->v[i]) <=
				    fmax(loose(c, 1e-4) * fmax(1, fabs(b->v[i])), LATER * i * later->loss)))
			ok = diag_error(c->d, NOLOC, 805, "loss of step %d is %.9g distributed, %.9g on one device", i,
				a->v[i], b->v[i]);
	if (a->n != b->n || !a->n)
		ok = diag_error(c->d, NOLOC, 805, "%d losses distributed, %d on one device", a->n, b->n);
	return ok;
}

/* Roundings of a tensor's gradients, of which the largest of any tensor is `most`; in 16 bits those of its own largest too. */
static double noise_of(const Compile *c, double most, const st_tensor *gradient, const Slack *known)
{
	const double all = fmax(verify_noise(c) * most, known ? known->gradient : 0);

	return gradient && c->o->t.target.amp.kind != AMP_OFF ? fmax(all, 5e-2 * top_of(gradient)) : all;
}

/* The largest difference of a weight or state, as part of the tensor's largest value, in *worst. */
static bool same_tensors(Compile *c, const Rule *r, const st_file *x, const st_file *y, Astray *g, const st_file *grads,
	const Slacks *later, double *worst)
{
	const bool exact = c->o->t.loop.reproducible;
	const double most = largest_gradient(grads);

	for (int i = 0; i < y->n; i++) {
		const st_tensor *q = &y->tensor[i], *p = st_find(x, q->name);
		double diff, top;

		if (verify_skips(r, c->m, q->name))
			continue;
		if (!p || p->bytes != q->bytes)
			return diag_error(c->d, NOLOC, 805, "tensor '%s' is missing from the distributed run", q->name);
		g->of = st_find(grads, q->name);
		const Slack *known = slack_find(later, q->name);
		g->noise = noise_of(c, most, g->of, known);
		measure(p, q, g, &diff, &top);
		const double rel = top > 0 ? diff / top : diff;
		*worst = rel > *worst ? rel : *worst;
		if (exact ? memcmp(p->data, q->data, p->bytes) != 0
			  : !(rel <= loose(c, LOOSE * 1e-6)) && !(known && diff <= LATER * g->steps * known->far))
			return diag_error(c->d, NOLOC, 805,
				"tensor '%s' differs first: by %.3g, its largest value is %.3g", q->name, diff, top);
	}
	return true;
}

static bool compare(Compile *c, const Rule *r, const char *many, const char *one, const Slacks *later)
{
	st_file x, y, g;
	const char *why;
	const bool exact = c->o->t.loop.reproducible;
	Curve *a = NEW(c->a, Curve), *b = NEW(c->a, Curve);
	double worst = 0;

	if (!read_losses(c, many, a) || !read_losses(c, r && r->servers ? many : one, b)) /* told by microbatch */
		return false;
	bool ok = same_losses(c, a, b, later, exact);
	if (!st_open(&x, arena_printf(c->a, "%s/run/trained.safetensors", many), &why))
		return diag_error(c->d, NOLOC, 803, "weights of the distributed run: %s", why);
	if (!st_open(&y, arena_printf(c->a, "%s/run/trained.safetensors", one), &why))
		return diag_error(c->d, NOLOC, 803, "weights of the one-device run: %s", why);
	if (!st_open(&g, arena_printf(c->a, "%s/run/grads.safetensors", one), &why))
		return diag_error(c->d, NOLOC, 803, "gradients of the one-device run: %s", why);
	ok &= same_tensors(c, r, &x, &y,
		&(Astray){ .stride = 1.01 * (double)a->n * verify_stride(c), .steps = (double)a->n }, &g, later,
		&worst);
	ok &= all_moved(c, many, one);
	if (ok)
		printf("verify: %d losses and %d tensors agree (%s; largest difference %.2g of a tensor's largest value)\n",
			a->n, y.n,
			exact ? "every bit"
			      : arena_printf(c->a, "tolerance %g%s", loose(c, LOOSE * 1e-6),
					later->n && worst > loose(c, LOOSE * 1e-6)
						? ", or what 16 bits or packed sums make of one"
						: ""),
			worst);
	st_close(&x);
	st_close(&y);
	st_close(&g);
	return ok;
}

/* The same microbatches on one device; of an asynchronous plan in a program that flushes every step, and what it reads and updates
 * with is played by the rule. */
static bool single(Compile *c, const Rule *r, const char *many, const char *dir, int threads, bool wide)
{
	const int64_t share = r && r->servers ? r->replicas[0] : 1, steps = verify_steps(c, r);
	const char *more = telling(r);
	Compile s = *c;
	Options o = *c->o;

	o.cluster = "local:1";
	o.t.plan.replicas = "1";
	o.t.plan.given = NULL;
	o.t.plan.tensor = 0;
	o.t.plan.tensor_of = o.t.plan.sequence_of = o.t.plan.group_at = NULL;
	o.t.plan.sequence = SEQUENCE_OFF;
	o.t.plan.zero = 0;
	o.t.comm.by = COMM_UNSAID;
	if (r || !schedule_is_async(o.t.plan.schedule)) /* its order makes no difference to what is computed */
		o.t.plan.schedule = (ScheduleSpec){ .kind = SCHEDULE_PLAIN };
	if (r) {
		o.t.plan.pipe_sgd = o.t.plan.warmup_steps = 0;
		o.t.plan.stash = STASH_AUTO;
		o.t.plan.vertical_sync = false;
		o.t.comm.dense = "*";
		o.t.comm.sync = o.t.comm.by_sync = SERVERS_UNSAID;
		o.t.comm.staleness = -1;
		o.t.target.replayed = true;
	}
	o.t.plan.choose_schedule = false;
	if (wide)
		o.t.target.amp.kind = AMP_OFF;
	o.t.loop.micro = c->m->batch;
	o.t.loop.global = batch_of_step(c) / share;
	o.t.target.threads = threads;
	s.o = &o;
	s.plan = (Plan){ 0 };
	if (r) {
		const char *script = arena_printf(c->a, "%s.replay", dir);
		if (!(r->servers ? verify_arrivals(c, r, many, script, steps) : verify_script(c, r, script, steps)))
			return false;
		more = arena_printf(c->a, "%s --replay '../%s'", more, strrchr(script, '/') + 1);
	}
	return compile_read(&s) && compile_plan(&s, NULL) && build_and_run(&s, dir, steps * share, more);
}

/* Errors alone are told of it: it is the same model, of which the plan's own compilation has said the rest. */
static bool single_quiet(Compile *c, const Rule *r, const char *many, const char *dir, bool wide)
{
	Diag *d = c->d;
	const bool quiet = d->quiet, werror = d->werror;

	d->quiet = true;
	d->werror = false;
	const bool ok = single(c, r, many, dir, c->o->t.target.threads, wide);
	d->quiet = quiet;
	d->werror = werror;
	return ok;
}

int verify_main(Compile *c)
{
	const char *base = c->o->out;
	char made[] = "/tmp/pdcc-verify-XXXXXX";

	if (!c->o->cluster)
		return diag_error(c->d, NOLOC, 1,
			       "--cluster FILE is missing: what machines there are; --cluster local:4 for four "
			       "devices here"),
		       EXIT_USAGE;
	if (!tool_needed(c->d, "make") || !tool_needed(c->d, "mpicc") || !tool_needed(c->d, "mpirun"))
		return EXIT_NO_TOOL;
	if (!base && !(base = mkdtemp(made)))
		return diag_error(c->d, NOLOC, 8, "cannot make a temporary folder: %s", strerror(errno)), EXIT_INPUT;
	if (c->o->t.comm.sum_dense || c->o->t.comm.sum_sparse)
		return diag_error(c->d, NOLOC, 520,
			       "pdcc verify compares with one device, which is one worker; with --average-%s 0 an "
			       "update grows with the number of workers",
			       c->o->t.comm.sum_dense ? "dense" : "sparse"),
		       EXIT_USAGE;
	const char *many = arena_printf(c->a, "%s/distributed", base), *one = arena_printf(c->a, "%s/single", base),
		   *wide = arena_printf(c->a, "%s/single-f32", base);
	const bool exact = c->o->t.loop.reproducible, halves = !exact && c->o->t.target.amp.kind != AMP_OFF;
	Slacks later = { 0 };
	const Rule *rule = NULL;
	int status = 0;
	c->o->t.target.apart = true;
	if (!compile_read(c) || !compile_plan(c, NULL) || !verify_rule(c, &rule) ||
		(verify_tell(c, rule), !build_and_run(c, many, verify_steps(c, rule), telling(rule))) ||
		!single_quiet(c, rule, many, one, false) || (halves && !single_quiet(c, rule, many, wide, true)))
		status = c->d->last_code == 805            ? EXIT_DIFFERS
		         : compile_status(c) == EXIT_USAGE ? EXIT_INPUT
		                                           : compile_status(c);
	else if (!verify_first_step(c, rule, many, one, halves ? wide : NULL, exact, &later)) {
		all_moved(c, many, one);
		status = EXIT_DIFFERS;
	} else if (!compare(c, rule, many, one, &later))
		status = EXIT_DIFFERS;
	if (!c->o->out && !c->o->keep)
		tool_run(c->d, "cleaning", arena_printf(c->a, "rm -rf '%s'", base));
	else
		printf("verify: the folders are %s and %s\n", many, one);
	return status;
}
