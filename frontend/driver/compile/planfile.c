/* Plan files. A plan is stages in order, each with the last call that belongs to it and its devices:
 *
 *     version: 1
 *     model: {name: mlp, hash: 6d2f0c1b9a3e4f58}
 *     cluster: {name: lab, hash: 0f1e2d3c4b5a6978}
 *     schedule: 1f1b
 *     microbatch: 16
 *     microbatches: 12
 *     stages:
 *       - {until: fc2, devices: ["gpu01[0]", "gpu01[1]"]}
 *       - {devices: ["gpu02[0]"]}
 *
 * `tensor: N`: each replica is shared by N devices, which the cluster's names show as one, "gpu01[0]..gpu01[1]". A stage may have its
 * own number, beside `until` and `devices`, and `sequence` too.
 *
 * `zero: 1`: replicas divide the optimizer's state (--zero). A stage has its own number as `shard: 3`, beside `until` and `devices`;
 * what --zero says is said of all stages, in the place of both.
 *
 * `until` is the name of a node as `pdcc inspect` lists cuts; of several nodes of one name NAME#2 is the second. The
 * last stage goes to the end. `order: NAME`: the cuts are prefixes of the nodes in that order (passes/plan/order.c), not in the
 * file's. Hashes guard against a plan for something else: take them out to use it all the same.
 * */
#include "planfile.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include "passes/common/plan.h"
#include "frontend/onnx/onnx.h"
#include "frontend/settings/cluster.h"
#include "frontend/settings/train.h"
#include "frontend/settings/yaml.h"
#include "passes/plan/cuts.h"
#include "passes/schedule/placement.h"

enum { E_DEVICES = 407, E_STALE = 409 };

/* ---- hashes: FNV-1a of 64 bits ---- */

static uint64_t fnv(uint64_t h, const void *p, size_t n)
{
	for (const unsigned char *c = p; n--; c++)
		h = (h ^ *c) * UINT64_C(1099511628211);
	return h;
}

static const uint64_t FNV = UINT64_C(14695981039346656037);

const char *model_hash(const Compile *c)
{
	size_t n = 0;
	const void *bytes = onnx_bytes(c->model, &n);

	return arena_printf(c->a, "%016" PRIx64, fnv(FNV, bytes, bytes ? n : 0));
}

const char *cluster_hash(const Compile *c)
{
	const Cluster *k = &c->cluster;
	Buf b = { 0 };

	for (int i = 0; i < k->ndevice; i++) {
		const Device *d = &k->device[i];
		buf_printf(&b, "%s %d %d %d %d %" PRId64 " %.17g %.17g\n", d->name, d->host, d->index, d->cuda,
			d->cores, c->o->memory_limit ? 0 : d->memory, d->flops, d->mem_bandwidth);
	}
	for (int i = 0; i < k->nlink; i++) {
		const Link *l = &k->link[i];
		buf_printf(&b, "%d %d %d %.17g %.17g\n", (int)l->scope, l->host_a, l->host_b, l->bandwidth, l->latency);
	}
	const char *s = arena_printf(c->a, "%016" PRIx64, fnv(FNV, buf_str(&b), b.n));
	buf_free(&b);
	return s;
}

/* ---- reading ---- */

bool plan_is_file(const char *plan)
{
	static const char *const ends[] = { ".yaml", ".yml", ".json" };
	const size_t n = plan ? strlen(plan) : 0;

	for (int i = 0; i < 3; i++)
		if (n > strlen(ends[i]) && !strcmp(plan + n - strlen(ends[i]), ends[i]))
			return true;
	return false;
}

typedef struct Reader {
	Compile *c;
	GivenPlan *g;
	int stage, cap_device, line, col;
	ScheduleSpec schedule; /* SCHEDULE_AUTO: it says none */
	Recompute recompute;
	int64_t micro;
	bool *taken; /* by device of the cluster */
} Reader;

static void r_version(Yaml *y, const YNode *v, void *to)
{
	(void)to;
	yaml_int(y, v, "version", 1, 1);
}

static bool stale(Yaml *y, const YNode *v, const char *what, const char *now)
{
	const char *was = yaml_text(y, v, "hash");

	if (!was || !strcmp(was, now))
		return was;
	y->ok = false;
	return diag_error(y->d, TEXTLOC(y->file, (int)v->start_mark.line + 1, (int)v->start_mark.column + 1), E_STALE,
		"the plan was made for another %s: its hash is %s, that of this one %s; plan again, or take the hash out",
		what, was, now);
}

static void r_any(Yaml *y, const YNode *v, void *to)
{
	(void)to;
	yaml_text(y, v, "name");
}
static void r_model_hash(Yaml *y, const YNode *v, void *to) { stale(y, v, "model", model_hash(((Reader *)to)->c)); }
static void r_cluster_hash(Yaml *y, const YNode *v, void *to)
{
	stale(y, v, "cluster", cluster_hash(((Reader *)to)->c));
}

static void r_model(Yaml *y, const YNode *v, void *to)
{
	static const YKey keys[] = { { "name", r_any }, { "hash", r_model_hash } };

	yaml_map(y, v, "model", keys, 2, to);
}

static void r_cluster(Yaml *y, const YNode *v, void *to)
{
	static const YKey keys[] = { { "name", r_any }, { "hash", r_cluster_hash } };

	yaml_map(y, v, "cluster", keys, 2, to);
}

static void r_schedule(Yaml *y, const YNode *v, void *to)
{
	const char *s = yaml_text(y, v, "schedule"), *lacks;

	if (s && !schedule_parse(s, &((Reader *)to)->schedule, &lacks))
		yaml_error(y, v, lacks ? "schedule %s" : "there is no schedule '%s'; pdcc help Schedule lists them",
			lacks ? lacks : s);
}

static void r_micro(Yaml *y, const YNode *v, void *to)
{
	((Reader *)to)->micro = yaml_int(y, v, "microbatch", 1, (int64_t)1 << 32);
}

static void r_recompute(Yaml *y, const YNode *v, void *to)
{
	((Reader *)to)->recompute = (Recompute)yaml_setting(y, v, "recompute", SET_OF_Recompute);
}

static void r_count(Yaml *y, const YNode *v, void *to)
{
	((Reader *)to)->g->micro = yaml_int(y, v, "microbatches", 1, (int64_t)1 << 24);
}

static void r_order(Yaml *y, const YNode *v, void *to)
{
	const int i = yaml_choice(y, v, "order", order_name, ORDERS);

	((Reader *)to)->g->order = i > 0 ? i : 0;
}

static void stage_at(const Reader *r, const YNode *v)
{
	r->g->line[r->stage] = (int)v->start_mark.line + 1;
	r->g->col[r->stage] = (int)v->start_mark.column + 1;
}

static void r_until(Yaml *y, const YNode *v, void *to)
{
	const Reader *r = to;

	stage_at(r, v);
	r->g->until[r->stage] = yaml_text(y, v, "until");
}

static bool device_error(Yaml *y, const YNode *at, const char *name, const char *why, const char *near)
{
	y->ok = false;
	return diag_error(y->d, TEXTLOC(y->file, (int)at->start_mark.line + 1, (int)at->start_mark.column + 1),
		E_DEVICES, "device '%s' %s%s%s%s", name, why, near ? "; did you mean '" : "", near ? near : "",
		near ? "'?" : "");
}

static void r_devices(Yaml *y, const YNode *v, void *to)
{
	Reader *r = to;
	const Cluster *k = &r->c->cluster;
	const char **names = NEWN(y->a, const char *, k->ndevice);
	int n;
	const YNode **item = yaml_items(y, v, "devices", &n);

	const ScheduleSpec schedule = r->schedule.kind ? r->schedule : r->c->o->t.plan.schedule;
	const bool chunks = schedule_chunks(schedule) > 1; /* several stages on a device; stands before `stages` */

	for (int d = 0; d < k->ndevice; d++)
		names[d] = k->device[d].name;
	for (int i = 0; i < n; i++) {
		const char *name = yaml_text(y, item[i], "device");
		int d = 0;
		while (name && d < k->ndevice && strcmp(names[d], name) != 0)
			d++;
		if (!name)
			continue;
		if (d == k->ndevice) {
			device_error(y, item[i], name, "is not in the cluster", diag_nearest(name, names, k->ndevice));
		} else if (r->taken[d] && !chunks) {
			device_error(y, item[i], name, "is used twice", NULL);
		} else {
			r->taken[d] = true;
			PUSH(y->a, r->g->device, r->g->ndevice, r->cap_device) = d;
			r->g->replicas[r->stage]++;
		}
	}
}

static void r_shard(Yaml *y, const YNode *v, void *to)
{
	const Reader *r = to;

	r->g->shard[r->stage] = (GivenShard){ .said = true,
		.zero = (int)yaml_int(y, v, "shard", 0, 3),
		.line = (int)v->start_mark.line + 1,
		.col = (int)v->start_mark.column + 1 };
}

static void r_before(Yaml *y, const YNode *v, void *to) /* plan_file_tensor has it */
{
	(void)y;
	(void)v;
	(void)to;
}

static void r_stages(Yaml *y, const YNode *v, void *to)
{
	static const YKey keys[] = { { "until", r_until }, { "tensor", r_before }, { "sequence", r_before },
		{ "shard", r_shard }, { "devices", r_devices } };
	Reader *r = to;
	int n;
	const YNode **item = yaml_items(y, v, "stages", &n);

	r->g->n = n;
	r->g->until = NEWN(y->a, const char *, n);
	r->g->replicas = NEWN(y->a, int, n);
	r->g->line = NEWN(y->a, int, n);
	r->g->col = NEWN(y->a, int, n);
	r->g->shard = NEWN(y->a, GivenShard, n);
	for (r->stage = 0; r->stage < n; r->stage++) {
		const YNode *at = item[r->stage];
		stage_at(r, at);
		yaml_map(y, at, "stages", keys, (int)(sizeof keys / sizeof *keys), r);
		if (y->ok && !r->g->replicas[r->stage])
			yaml_error(y, at, "stage %d has no devices", r->stage);
		if (y->ok && !r->g->until[r->stage] && r->stage + 1 < n)
			yaml_error(y, at, "stage %d has no 'until': the last call that belongs to it", r->stage);
	}
}

static void r_zero(Yaml *y, const YNode *v, void *to) { ((Reader *)to)->g->zero = (int)yaml_int(y, v, "zero", 0, 3); }

static void r_tensor(Yaml *y, const YNode *v, void *to)
{
	if (((Reader *)to)->c->o->t.plan.tensor_of) /* of stages that say nothing */
		return;
	const int64_t said = ((Reader *)to)->c->o->t.plan.tensor, tensor = yaml_int(y, v, "tensor", 1, GROUP_MOST);

	if (y->ok && tensor != (said ? said : 1))
		yaml_error(y, v, "the plan is of tensor groups of %lld, --tensor says %lld", (long long)tensor,
			(long long)said);
}

static const YNode *value_of(Yaml *y, const YNode *map, const char *name)
{
	for (yaml_node_pair_t *p = map && map->type == YAML_MAPPING_NODE ? map->data.mapping.pairs.start : NULL;
		p && p < map->data.mapping.pairs.top; p++) {
		const YNode *key = yaml_document_get_node(&y->doc, p->key);

		if (key && key->type == YAML_SCALAR_NODE && !strcmp((const char *)key->data.scalar.value, name))
			return yaml_document_get_node(&y->doc, p->value);
	}
	return NULL;
}

/* What the stages of a file say of the graph before it is divided. */
typedef struct Said {
	Compile *c;
	int *at, nat,
		cap; /* by rank: the device of the cluster whose name its group begins with; -1: none has such a name */
	int64_t tensor; /* of all, by the flag or an earlier look; of those that say nothing */
	int *degree, *along;
	bool degrees, sequences; /* some stage says it */
} Said;

/* The groups that the devices of a stage are: "gpu01[0]..gpu01[1]". */
static int groups_said(Yaml *y, const YNode *on, Said *s)
{
	const Cluster *k = &s->c->cluster;
	int n;
	const YNode **item = yaml_items(y, on, "devices", &n);

	for (int i = 0; i < n; i++) {
		const char *name = yaml_text(y, item[i], "device"), *dots = name ? strstr(name, "..") : NULL;
		const char *first = dots ? arena_printf(y->a, "%.*s", (int)(dots - name), name) : name;
		int d = k->ndevice - 1;

		while (d >= 0 && first && strcmp(k->device[d].name, first) != 0)
			d--;
		PUSH(y->a, s->at, s->nat, s->cap) = first ? d : -1;
	}
	return n;
}

static void stage_said(Yaml *y, const YNode *stage, int i, Said *s)
{
	const YNode *tensor = value_of(y, stage, "tensor"), *along = value_of(y, stage, "sequence"),
		    *on = value_of(y, stage, "devices");
	const PlanSettings *p = &s->c->o->t.plan;

	s->degrees |= tensor != NULL;
	s->sequences |= along != NULL;
	s->degree[i] = (int)(tensor ? yaml_int(y, tensor, "tensor", 1, GROUP_MOST) : s->tensor > 1 ? s->tensor : 1);
	s->along[i] = along ? yaml_setting(y, along, "sequence", SET_OF_AlongSequence) : (int)SEQUENCE_UNSAID;
	s->c->file_replicas[i] = on && on->type == YAML_SEQUENCE_NODE ? groups_said(y, on, s) : 1;
	if (y->ok && tensor && p->tensor && !p->tensor_of && s->degree[i] != p->tensor)
		yaml_error(y, tensor, "stage %d is of tensor groups of %d, --tensor says %lld", i, s->degree[i],
			(long long)p->tensor);
}

/* By rank: where its group begins; NULL: they are no groups of neighbours. */
static int *groups_at(const Compile *c, const Said *s, int n)
{
	int *size = NULL, ranks = 0, cap = 0;

	for (int i = 0; i < n; i++)
		for (int r = 0; r < c->file_replicas[i]; r++)
			PUSH(c->a, size, ranks, cap) = s->degree[i];
	return ranks == s->nat && cluster_groups_fit(c->a, &c->cluster, size, s->at, ranks) ? s->at : NULL;
}

/* `tensor` and `sequence` of the stages, where one says it; those that do not are as all are. Where stages are unlike in either the
 * graph is divided stage by stage. */
static void stages_said(Compile *c, Yaml *y, const YNode *stages, int64_t tensor, AlongSequence sequence)
{
	PlanSettings *p = &c->o->t.plan;
	Said s = { .c = c, .tensor = tensor };
	int n;

	if (!stages || stages->type != YAML_SEQUENCE_NODE)
		return;
	const YNode **item = yaml_items(y, stages, "stages", &n);
	s.degree = NEWN(c->a, int, n);
	s.along = NEWN(c->a, int, n);
	c->file_replicas = NEWN(c->a, int, n);
	for (int i = 0; i < n; i++) {
		stage_said(y, item[i], i, &s);
		if (s.along[i] == SEQUENCE_UNSAID)
			s.along[i] = sequence;
	}
	if (!y->ok)
		return;
	if (s.degrees || s.sequences)
		plan_degrees(p, s.degree, n);
	if (s.sequences && p->sequence == SEQUENCE_UNSAID && p->tensor > 1) {
		p->tensor_of = s.degree;
		p->ntensor_of = n;
		p->sequence_of = s.along;
	}
	if (p->tensor_of)
		p->group_at = groups_at(c, &s, n);
}

bool plan_file_tensor(Compile *c)
{
	Yaml y;

	if (!yaml_open(&y, c->a, c->o->t.plan.replicas, c->d))
		return false;
	PlanSettings *p = &c->o->t.plan;
	const YNode *root = yaml_document_get_root_node(&y.doc), *tensor = value_of(&y, root, "tensor"),
		    *sequence = value_of(&y, root, "sequence");
	const int64_t all = tensor ? yaml_int(&y, tensor, "tensor", 1, GROUP_MOST) : 0;

	const AlongSequence along =
		sequence ? (AlongSequence)yaml_setting(&y, sequence, "sequence", SET_OF_AlongSequence)
			 : SEQUENCE_UNSAID;

	stages_said(c, &y, value_of(&y, root, "stages"), all ? all : p->tensor, along);
	if (!p->tensor)
		p->tensor = all;
	if (p->sequence == SEQUENCE_UNSAID && !p->sequence_of)
		p->sequence = along;
	yaml_close(&y);
	return y.ok;
}

bool plan_load(Compile *c)
{
	static const YKey keys[] = { { "version", r_version }, { "model", r_model }, { "cluster", r_cluster },
		{ "schedule", r_schedule }, { "recompute", r_recompute }, { "microbatch", r_micro },
		{ "microbatches", r_count }, { "tensor", r_tensor }, { "sequence", r_before }, { "zero", r_zero },
		{ "order", r_order }, { "stages", r_stages } };
	Training *t = &c->o->t;
	GivenPlan *g = NEW(c->a, GivenPlan);
	Reader r = { .c = c, .g = g, .taken = NEWN(c->a, bool, c->cluster.ndevice) };
	Yaml y;

	g->file = t->plan.replicas;
	if (!yaml_open(&y, c->a, t->plan.replicas, c->d))
		return false;
	const YNode *root = yaml_document_get_root_node(&y.doc);
	yaml_map(&y, root, "the plan", keys, (int)(sizeof keys / sizeof *keys), &r);
	if (y.ok && !g->n)
		yaml_error(&y, root, "the plan has no stages");
	yaml_close(&y);
	if (!y.ok)
		return false;
	t->plan.given = g;
	g->batch = r.micro * g->micro;
	t->loop.micro = t->loop.micro ? t->loop.micro : r.micro;
	if (!t->plan.schedule.kind)
		t->plan.schedule = r.schedule;
	if (t->plan.recompute == RECOMPUTE_NONE)
		t->plan.recompute = r.recompute;
	return true;
}

/* ---- writing ---- */

static void write_stages(Buf *b, const Compile *c, bool json)
{
	const PlanSettings *p = &c->o->t.plan;
	const int stages = module_stages(c->m);
	const bool shard = zero_differs(p, stages);
	const int *tensor = c->m->tensor_of;

	for (int t = 0; t < stages; t++) {
		const Stage *s = c->m->stage[t];
		buf_puts(b, json ? "    {" : "  - {");
		if (t + 1 < stages && c->plan.stage[t].until) {
			buf_puts(b, json ? "\"until\": " : "until: ");
			buf_json(b, c->plan.stage[t].until);
			buf_puts(b, ", ");
		}
		if (tensor)
			buf_printf(b, json ? "\"tensor\": %d, " : "tensor: %d, ", tensor[t]);
		if (p->sequence_of && p->sequence == SEQUENCE_UNSAID)
			buf_printf(b, json ? "\"sequence\": \"%s\", " : "sequence: %s, ",
				p->sequence_of[t] == SEQUENCE_ON ? "on" : "off");
		if (shard)
			buf_printf(b, json ? "\"shard\": %d, " : "shard: %d, ", stage_zero(p, t));
		buf_puts(b, json ? "\"devices\": [" : "devices: [");
		for (int k = 0; k < s->replicas; k++) {
			buf_puts(b, k ? ", " : "");
			buf_json(b, c->cluster.device[s->device[k]].name);
		}
		buf_printf(b, "]}%s\n", json && t + 1 < stages ? "," : "");
	}
}

static void write_owner(Buf *b, bool json, const char *key, const char *name, const char *hash)
{
	buf_printf(b, json ? "  \"%s\": {\"name\": " : "%s: {name: ", key);
	buf_json(b, name);
	buf_printf(b, json ? ", \"hash\": \"%s\"},\n" : ", hash: \"%s\"}\n", hash);
}

/* As --schedule takes it: a schedule of a file is named by it, Pipe-SGD is a flag of its own. */
static const char *schedule_word_of(const Compile *c)
{
	const Schedule *s = c->m->schedule;

	return s->kind == SCHEDULE_PIPE_SGD                  ? schedule_name(SCHEDULE_PLAIN)
	       : schedule_table[s->kind].param == PARAM_FILE ? schedule_str(c->a, c->o->t.plan.schedule)
	                                                     : s->name;
}

bool plan_save(const Compile *c, const char *file)
{
	const char *end = strrchr(file, '.');
	const bool json = end && !strcmp(end, ".json");
	const char *name = c->cluster.name ? c->cluster.name : c->o->cluster ? c->o->cluster : "local";
	const PlanSettings *p = &c->o->t.plan;
	Buf b = { 0 };

	buf_puts(&b, json ? "{\n  \"version\": 1,\n" : "version: 1\n");
	write_owner(&b, json, "model", c->m->name, model_hash(c));
	write_owner(&b, json, "cluster", name, cluster_hash(c));
	if (c->m->tensor > 1 && !c->m->tensor_of)
		buf_printf(&b, json ? "  \"tensor\": %d,\n" : "tensor: %d\n", c->m->tensor);
	if (p->sequence == SEQUENCE_ON)
		buf_puts(&b, json ? "  \"sequence\": \"on\",\n" : "sequence: on\n");
	if (stage_zero(p, 0) && !zero_differs(p, module_stages(c->m)))
		buf_printf(&b, json ? "  \"zero\": %d,\n" : "zero: %d\n", stage_zero(p, 0));
	const int64_t slices = c->m->grains ? c->m->grains : 1; /* of what the user calls a microbatch */
	buf_puts(&b, json ? "  \"schedule\": " : "schedule: ");
	if (json || schedule_table[c->m->schedule->kind].param == PARAM_FILE)
		buf_json(&b, schedule_word_of(c));
	else
		buf_puts(&b, schedule_word_of(c));
	buf_printf(&b,
		json ? ",\n  \"recompute\": \"%s\",\n  \"microbatch\": %" PRId64 ",\n  \"microbatches\": %" PRId64 ",\n"
		     : "\nrecompute: %s\nmicrobatch: %" PRId64 "\nmicrobatches: %" PRId64 "\n",
		setting_word(SET_OF_Recompute, (int)p->recompute), c->m->batch * slices, c->m->microbatches / slices);
	if (c->plan.order)
		buf_printf(&b, json ? "  \"order\": \"%s\",\n" : "order: %s\n", order_name[c->plan.order]);
	buf_puts(&b, json ? "  \"stages\": [\n" : "stages:\n");
	write_stages(&b, c, json);
	buf_puts(&b, json ? "  ]\n}\n" : "");
	const bool ok =
		file_write(file, b.s, b.n) || diag_error(c->d, NOLOC, 8, "cannot write %s: %s", file, strerror(errno));
	buf_free(&b);
	return ok;
}
