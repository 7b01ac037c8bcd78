/* Samples of a step and of a microbatch where nobody says (global_batch.h). */
#include "global_batch.h"
#include <stdlib.h>
#include "ir/plan.h"
#include "passes/schedule/csv.h"
#include "passes/schedule/schedule.h"
#include "planfile.h"

enum { GLOBAL_BATCH = 64, LARGEST = 32, EACH = 4, TRAINED = 16 };

int batch_devices(const Compile *c)
{
	const Training *t = &c->o->t;
	const char *p = t->plan.replicas;
	int devices = 0;

	if (t->plan.given)
		return t->plan.given->ndevice;
	while (p && *p && !plan_is_file(t->plan.replicas)) {
		char *end;
		const long n = strtol(p, &end, 10);
		devices += n > 0 && n < 1 << 20 ? (int)n : 0;
		p = end > p ? end + (*end != 0) : p + 1;
	}
	return devices ? devices : cluster_workers(&c->cluster);
}

static int64_t micro_of(const Compile *c, int64_t global)
{
	int64_t most = global / (EACH * (int64_t)batch_devices(c));

	if (one_per_step(&c->o->t))
		return global;
	most = most < 1 ? 1 : most > LARGEST ? LARGEST : most;
	while (global % most)
		most--;
	return most;
}

/* Whose batch is fixed to `own` (0: it is not) is fed whole batches of it: one, where that is a batch to train with and no
 * exporter's example. */
static int64_t default_global(int64_t own)
{
	const int64_t of = own > 0 ? own : 1;

	if (own >= TRAINED)
		return own;
	return (GLOBAL_BATCH + of - 1) / of * of;
}

void batch_said(Compile *c)
{
	Training *t = &c->o->t;

	c->micro_open = !t->loop.micro && t->loop.global;
	if (c->micro_open)
		t->loop.micro = micro_of(c, t->loop.global);
}

const char *batch_origin(const Compile *c) { return c->global_default ? " (default; --global-batch changes it)" : ""; }

/* Is `global` so many whole parts? If not, which batches are, in words. */
static bool parts(const Compile *c, int64_t global, int64_t of, int code, const char *what)
{
	const Training *t = &c->o->t;
	const int64_t below = global / of * of;
	const char *said = c->global_default ? " (default)" : "";

	if (global % of == 0)
		return true;
	const Loc loc = t->plan.given ? FILELOC(t->plan.given->file) : NOLOC;
	if (below)
		return diag_error(c->d, loc, code,
			"the global batch %lld%s is no multiple of the %s %lld; %lld and %lld are (--global-batch)",
			(long long)global, said, what, (long long)of, (long long)below, (long long)(below + of));
	return diag_error(c->d, loc, code,
		"the global batch %lld%s is no multiple of the %s %lld; %lld is (--global-batch)", (long long)global,
		said, what, (long long)of, (long long)of);
}

bool batch_divides(Compile *c) { return parts(c, c->o->t.loop.global, c->m->batch, 405, "microbatch"); }

/* Microbatches of a step that a file lists; 0: none does. */
static int64_t listed(const Compile *c)
{
	const Training *t = &c->o->t;

	if (t->plan.given)
		return t->plan.given->micro;
	return schedule_row(t->plan.schedule)->place == PLACED_LISTED ? csv_of(t->plan.schedule)->nmicro : 0;
}

/* The model again at this size. One that cannot have it stays as it was exported. */
static void rebatch(Compile *c, int64_t micro)
{
	Diag mute = *c->d;
	Compile s = *c;

	mute.errors = mute.limit + 1; /* nothing is said */
	mute.quiet = true;
	s.d = &mute;
	Module *m = c->m->batch == micro ? c->m : compile_import(&s, micro);
	c->m = m ? m : c->m;
	c->o->t.loop.micro = c->m->batch;
}

bool batch_settle(Compile *c)
{
	Training *t = &c->o->t;
	const bool bound = t->data.nbind && !c->m->export_batch, said = (t->loop.micro && !c->micro_open) || bound;
	const int64_t count = listed(c), own = c->m->batch;

	if (t->loop.microbatches && !t->loop.global)
		return true;
	if (!t->loop.global && c->o->start_from && c->m->microbatches)
		t->loop.global = own * c->m->microbatches;
	else if (!t->loop.global && said && !one_per_step(t) && t->plan.given && t->plan.given->batch)
		t->loop.global = t->plan.given->batch; /* a plan trains as it did, whatever the microbatch */
	else if (!t->loop.global && said && (count || one_per_step(t)))
		t->loop.global = own * (one_per_step(t) ? 1 : count);
	else if (!t->loop.global) {
		c->global_default = true;
		t->loop.global = default_global(c->m->export_batch);
		c->micro_open = !said;
	}
	c->micro_open &= !c->o->start_from;
	if (!c->micro_open)
		return batch_divides(c);
	if (count && !one_per_step(t)) {
		c->micro_open = false;
		if (!parts(c, t->loop.global, count, 518, "number of microbatches in the file,"))
			return false;
		rebatch(c, t->loop.global / count);
	} else if (c->global_default && t->loop.global == own && batch_devices(c) == 1) {
		c->micro_open = false; /* the graph as it was exported */
		t->loop.micro = own;
	} else {
		rebatch(c, micro_of(c, t->loop.global));
	}
	return true;
}

int64_t batch_of_step(const Compile *c)
{
	return c->o->t.loop.global ? c->o->t.loop.global : c->m->batch * c->m->microbatches;
}

bool batch_blame(const Compile *c)
{
	const int code = c->d->last_code;

	if (c->global_default && c->m && (code == 405 || code == 512 || code == 518))
		diag_note(c->d, NOLOC, "the global batch is %lld%s, %lld microbatches of %lld",
			(long long)c->o->t.loop.global, batch_origin(c), (long long)(c->o->t.loop.global / c->m->batch),
			(long long)c->m->batch);
	return false;
}
