/* placement.tolerate: 1 -- beside the plan one for each host that may be missing (on a cluster of one host: for each device).
 *
 * Each lies in a folder of its own, DIR/without-HOST, and is compiled from the same model and settings: the same samples per
 * step in the same microbatches, so that it goes on after any checkpoint of the whole plan. Where the stages lie is looked
 * for anew. pdrun takes it when the host does not answer (DIR/tolerate.txt). */
#include <string.h>
#include "global_batch.h"
#include "compile.h"

/* Hosts that are gone leave devices, links and pins; indices of those behind move up. */
static void remove_hosts(Arena *a, Cluster *k, const bool *gone)
{
	int *now = NEWN(a, int, k->nhost + 1), n = 0;

	for (int i = 0; i < k->nhost; i++) {
		now[i] = gone[i] ? -1 : n;
		if (!gone[i])
			k->host[n++] = k->host[i];
	}
	k->nhost = n;
	n = 0;
	for (int i = 0; i < k->ndevice; i++)
		if (now[k->device[i].host] >= 0) {
			k->device[n] = k->device[i];
			k->device[n].host = now[k->device[n].host];
			n++;
		}
	k->ndevice = n;
	n = 0;
	for (int i = 0; i < k->nlink; i++) {
		Link l = k->link[i];

		if (l.scope == LINK_BETWEEN) {
			l.host_a = now[l.host_a];
			l.host_b = now[l.host_b];
			if (l.host_a < 0 || l.host_b < 0)
				continue;
		}
		k->link[n++] = l;
	}
	k->nlink = n;
	for (int i = 0; i < k->npin; i++) /* what is pinned to a host that is gone goes to any server */
		k->pin[i].host = k->pin[i].host < 0 ? -1 : now[k->pin[i].host];
}

static void remove_devices(Cluster *k, int first, int end)
{
	memmove(&k->device[first], &k->device[end], (size_t)(k->ndevice - end) * sizeof *k->device);
	k->ndevice -= end - first;
}

/* The cluster without host or, where all is one machine, device `name`. */
static void leave_out(Arena *a, Cluster *k, const char *name)
{
	bool *gone = NEWN(a, bool, k->nhost + 1);

	for (int i = 0; i < k->nhost && !k->local; i++)
		gone[i] = !strcmp(k->host[i].name, name);
	for (int i = k->ndevice; i-- > 0;)
		if (k->local && !strcmp(k->device[i].name, name))
			remove_devices(k, i, i + 1);
	remove_hosts(a, k, gone);
}

/* Devices that train are the first ones; behind them are those of servers. */
void compile_first_devices(Compile *c)
{
	Cluster *k = &c->cluster;
	const int workers = cluster_workers(k);
	bool *gone = NEWN(c->a, bool, k->nhost + 1);

	if (!c->devices || c->devices >= workers)
		return;
	remove_devices(k, c->devices, workers);
	for (int i = 0; i < k->nhost; i++)
		gone[i] = true;
	for (int i = 0; i < k->ndevice; i++)
		gone[k->device[i].host] = false;
	remove_hosts(c->a, k, gone);
}

void compile_left_out(Compile *c)
{
	if (c->without)
		leave_out(c->a, &c->cluster, c->without);
}

/* Whether some stage runs there. */
static bool used(const Compile *c, int host, int device)
{
	for (int s = 0; s < c->m->nstage; s++)
		for (int r = 0; r < c->m->stage[s]->replicas; r++) {
			const int d = c->m->stage[s]->device[r];
			if (d == device || (d >= 0 && d < c->cluster.ndevice && c->cluster.device[d].host == host))
				return true;
		}
	return false;
}

/* Data files are named relative to the build folder, which lies one deeper. */
static DataInput *deeper(Compile *c, const DataInput *from, int n)
{
	DataInput *data = NEWN(c->a, DataInput, n + 1);

	for (int i = 0; i < n; i++) {
		data[i] = from[i];
		if (data[i].kind != DATA_SYNTHETIC && *data[i].path != '/')
			data[i].path = arena_printf(c->a, "../%s", data[i].path);
	}
	return data;
}

static bool compile_without(const Compile *whole, const char *dir, const char *name)
{
	Options o = *whole->o;
	Compile c = { .a = whole->a,
		.scratch = whole->scratch,
		.d = whole->d,
		.o = &o,
		.model = whole->model,
		.argc = whole->argc,
		.argv = whole->argv,
		.without = name };
	const Module *m = whole->m;
	const char *folder = arena_printf(c.a, "%s/without-%s", dir, name);

	o.t.loop.micro = m->batch * (m->grains ? m->grains : 1);
	o.t.loop.global = batch_of_step(whole);
	o.t.loop.microbatches = 0;
	o.t.plan.replicas = NULL;
	o.t.plan.zero = most_zero(&o.t.plan, module_stages(m)); /* the file's stages are not those of this plan */
	o.t.plan.given = NULL;
	if (o.t.plan.tensor_of) { /* nor are its groups */
		o.t.plan.tensor_of = o.t.plan.sequence_of = o.t.plan.group_at = NULL;
		o.t.plan.ntensor_of = 0;
		o.t.plan.tensor = 0;
		o.t.plan.choose_tensor = true;
	}
	o.explain = false;
	o.quiet = true;
	o.start_from = NULL;
	if (!compile_read(&c))
		return false;
	o.t.data.input = deeper(&c, o.t.data.input, o.t.data.ninput);
	o.t.data.eval.data = deeper(&c, o.t.data.eval.data, o.t.data.eval.ndata);
	if (!compile_folder(&c, folder) || !compile_plan(&c, arena_printf(c.a, "%s/ir", folder)) ||
		!compile_write(&c, folder))
		return false;
	if (!whole->o->quiet)
		fprintf(c.d->out, "  without %s: plan %s, %s\n", name, plan_name(&c), folder);
	return true;
}

bool compile_tolerant(Compile *c, const char *dir)
{
	const Cluster *k = &c->cluster;
	const bool quiet = c->d->quiet;
	bool ok = true;

	for (int i = 0; i < k->nwithout && ok; i++) {
		c->d->quiet = true; /* all has been said once */
		ok = compile_without(c, dir, k->without[i]);
		c->d->quiet = quiet;
		if (!ok)
			return diag_error(c->d, FILELOC(k->file), 423,
				"placement.tolerate: there is no plan without '%s'", k->without[i]);
	}
	return true;
}

void compile_tolerated(Compile *c)
{
	Cluster *k = &c->cluster;
	int cap = 0;

	for (int i = 0; k->tolerate && !c->without && i < (k->local ? k->ndevice : k->nhost); i++)
		if (used(c, k->local ? -1 : i, k->local ? i : -1))
			PUSH(c->a, k->without, k->nwithout, cap) = k->local ? k->device[i].name : k->host[i].name;
}
