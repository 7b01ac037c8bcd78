/* Planning without compiling (probe.h). */
#include <string.h>
#include "probe.h"

static bool passes(Probe *p, const PassCx *cx, const char *first, const char *behind)
{
	const char *names[64];
	PassCx own = *cx;
	PassOpt po = { 0 };
	int n = 0;
	bool on = !first;

	for (int i = 0; i < npasses && strcmp(pass_table[i].name, behind); i++) {
		on |= first && !strcmp(pass_table[i].name, first);
		if (on)
			names[n++] = pass_table[i].name;
	}
	return run_passes(p->c.m, &own, &po, names, n);
}

bool probe_open(Probe *p, const Compile *c, int64_t micro)
{
	p->c = *c;
	p->mute = *c->d;
	p->o = *c->o;
	p->mute.limit = 0;
	p->mute.errors = 1;
	p->mute.quiet = true;
	p->o.explain = false;
	p->c.a = arena_new();
	p->c.d = &p->mute;
	p->c.o = &p->o;
	p->c.plan = (Plan){ 0 };
	p->c.explain = (Buf){ 0 };
	const PassCx cx = { .scratch = c->scratch,
		.d = &p->mute,
		.cluster = &c->cluster,
		.train = &p->o.t,
		.profile = c->profile,
		.sized = c->sized };
	return (p->c.m = compile_import(&p->c, micro)) && passes(p, &cx, NULL, "partition");
}

void probe_close(Probe *p)
{
	arena_free(p->c.a);
	p->c.a = NULL;
}

bool probe_plan(Probe *p, const Training *t, const Cluster *cluster, bool quick, Plan *plan)
{
	const PassCx cx = { .scratch = p->c.scratch,
		.d = &p->mute,
		.cluster = cluster,
		.train = t,
		.plan = plan,
		.profile = p->c.profile,
		.sized = p->c.sized,
		.memory_scale = p->c.memory_scale,
		.quick = quick };

	*plan = (Plan){ 0 };
	p->c.m->chosen = (ScheduleSpec){ .kind = SCHEDULE_AUTO };
	return passes(p, &cx, "partition", "place");
}
