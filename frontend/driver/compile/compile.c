/* From model and settings to a build folder. */
#include "compile.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "codegen/folder/emit.h"
#include "ir/text/profile.h"
#include "runtime/pd.h"
#include "passes/common/plan.h"
#include "frontend/settings/cluster.h"
#include "frontend/settings/cluster_run.h"
#include "global_batch.h"
#include "frontend/onnx/onnx.h"
#include "planfile.h"
#include "profile.h"
#include "passes/schedule/schedule.h"
#include "passes/schedule/placement.h"

/* ---- settings that depend on the model and on the machine ---- */

/* Cores divided by the devices of the host, at least one: part of the plan, since results and speed depend on it. */
static void choose_threads(Compile *c)
{
	Training *t = &c->o->t;
	int most = 1;

	if (t->target.threads)
		return;
	for (int h = 0; h < c->cluster.nhost; h++) {
		int n = 0;

		for (int i = 0; i < c->cluster.ndevice; i++)
			if (c->cluster.device[i].host == h) /* programs of a group */
				n += c->cluster.device[i].members > 1 ? c->cluster.device[i].members : 1;
		most = n > most ? n : most;
	}
	const int cores = c->cluster.nhost && c->cluster.host[0].cores ? c->cluster.host[0].cores : pd_cores("");
	if (c->cluster.device[0].cores)
		t->target.threads = c->cluster.device[0].cores;
	else
		t->target.threads = cores / most > 1 ? cores / most : 1;
}

static bool reread_weights(Module *to, const Module *from, Diag *d)
{
	for (int i = 0; i < to->nparam; i++) {
		const Value *v = map_get(&from->names, to->param[i]->name);

		const Value *whole = to->param[i]->param->whole;
		if (to->param[i]->param->kind == PARAM_STATE)
			continue;
		if (whole) { /* it is listed before its pieces */
			const int64_t row = type_bytes(&whole->type) / whole->type.dim[0];
			to->param[i]->param->data =
				whole->param->data ? (const char *)whole->param->data + to->param[i]->param->row * row
						   : NULL;
			continue;
		}
		const Type all = shard_stored(to->param[i]); /* files have the whole of what is divided */
		if (!v || v->kind != VAL_PARAM || !shape_eq(&v->type, &all))
			return diag_error(d, NOLOC, 210, "the model has no parameter '%s' of %s", to->param[i]->name,
				str_type(d->scratch, &all));
		to->param[i]->param->data = v->param->data;
		to->param[i]->param->mapped = v->param->mapped;
	}
	for (int i = 0; i < to->nkonst; i++) {
		const Value *v = map_get(&from->names, to->konst[i]->name);

		if (!to->konst[i]->data && v && v->kind == VAL_CONST && type_eq(&v->type, &to->konst[i]->type))
			to->konst[i]->data = v->data;
	}
	return true;
}

/* What the user says of an optimizer without choosing one. */
static Optimizer with_own(const Optimizer *told, const Optimizer *said)
{
	Optimizer o = *told;

	o.clip_norm = said->clip_norm;
	if (said->given[OPT_EMA])
		opt_put(&o, OPT_EMA, said->value[OPT_EMA], said->at[OPT_EMA]);
	return o;
}

/* What files and flags leave open is as the model's training_info says. */
static void take_training_info(Compile *c, const TrainingTold *told)
{
	Training *t = &c->o->t;

	if (!t->model.opt.chosen)
		t->model.opt = with_own(&told->opt, &t->model.opt);
	if (!t->model.nloss) {
		t->model.loss = NEW(c->a, LossTerm);
		*t->model.loss = (LossTerm){ .output = told->loss, .weight = 1, .ignore_index = INT64_MIN };
		t->model.nloss = 1;
	}
	if (!t->model.ntrainable) {
		t->model.trainable = told->trained;
		t->model.ntrainable = told->ntrained;
	}
	if (!c->o->quiet)
		diag_note(c->d, FILELOC(c->model), "training_info: %s on '%s', %d parameters",
			setting_word(SET_OF_OptKind, opt_kind(&t->model.opt)), told->loss, told->ntrained);
}

/* As nvcc 13 and older ones name them; those behind the last are newer than this list. */
static bool arch_known(const char *arch)
{
	static const int known[] = { 50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110,
		120, 121 };
	const int n = (int)(sizeof known / sizeof *known);
	int sm = 0, end = 0;

	if (sscanf(arch, "sm_%3d%n", &sm, &end) != 1 ||
		(arch[end] && (strchr("af", arch[end]) == NULL || arch[end + 1])))
		return false;
	for (int i = 0; i < n; i++)
		if (known[i] == sm)
			return true;
	return sm > known[n - 1];
}

/* auto: GPUs where the cluster has nothing else. What is local, or a host without kinds of devices, is what the target says. */
static bool choose_target(Compile *c)
{
	Training *t = &c->o->t;
	bool gpus = true;

	for (int i = 0; i < c->cluster.ndevice; i++)
		gpus &= c->cluster.device[i].cuda;
	if (t->target.found == TARGET_AUTO)
		t->target.found = gpus ? TARGET_CUDA : TARGET_C;
	if (target_cuda(t) && !arch_known(t->target.arch))
		return diag_error(c->d, NOLOC, 7,
			"--arch: no GPU is '%s'; sm_80 is A100, sm_86 RTX 30, sm_89 RTX 40, sm_90 H100 and H200, sm_100 B200",
			t->target.arch);
	for (int i = 0; target_cuda(t) && i < c->cluster.ndevice; i++) {
		Device *dev = &c->cluster.device[i];
		if (!dev->cuda && !c->cluster.local && !c->cluster.untyped)
			return diag_error(c->d, FILELOC(c->cluster.file), 108,
				"--target cuda: %s is no GPU; name GPUs as `gpus: N` of their host, "
				"or say --target c",
				dev->name);
		dev->cuda = true;
	}
	return true;
}

/* The file, or "2x4-1x8". */
static const char *groups_name(const Compile *c, const int *replicas, int n)
{
	const PlanSettings *p = &c->o->t.plan;
	const char *s = plan_is_file(p->replicas) ? p->replicas : "";

	for (int i = 0; i < n && !plan_is_file(p->replicas); i++)
		s = arena_printf(c->a, "%s%s%dx%d", s, i ? "-" : "", replicas[i], p->tensor_of[i]);
	return s;
}

/* A group for each rank of the plan, where stages have unlike ones. */
static bool group_ranks(Compile *c)
{
	const PlanSettings *p = &c->o->t.plan;
	int *replicas = p->given ? p->given->replicas : c->file_replicas, n = p->ntensor_of, *size = NULL, nsize = 0,
	    cap = 0;

	if (!p->given && !plan_is_file(p->replicas) && !plan_parse(c->a, p->replicas, &replicas, &n, c->d))
		return false;
	for (int i = 0; i < n; i++)
		for (int r = 0; r < replicas[i]; r++)
			PUSH(c->a, size, nsize, cap) = p->tensor_of[i];
	return cluster_groups(c->a, &c->cluster, size, p->group_at, nsize, groups_name(c, replicas, n), c->d);
}

bool compile_groups(Compile *c)
{
	PlanSettings *p = &c->o->t.plan;

	if (plan_is_file(p->replicas) ? !plan_file_tensor(c) : !plan_tensor(c->a, p, c->d))
		return false;
	return p->tensor_of ? group_ranks(c) : cluster_group(c->a, &c->cluster, (int)p->tensor, c->d);
}

bool compile_machine(Compile *c)
{
	const Options *o = c->o;

	if (!cluster_read(c->a, o->cluster ? o->cluster : "local", &c->cluster, c->d))
		return false;
	compile_left_out(c);
	if (!c->cluster.ndevice)
		return diag_error(
			c->d, FILELOC(c->cluster.file), 423, "nothing is left of the cluster without '%s'", c->without);
	if (!cluster_workers(&c->cluster))
		return diag_error(c->d, FILELOC(c->cluster.file), 403,
			"no host of the cluster has the role worker (nodes: roles)");
	if (!compile_groups(c))
		return false;
	compile_first_devices(c);
	if (o->memory_limit)
		for (int i = 0; i < c->cluster.ndevice; i++)
			c->cluster.device[i].memory = o->memory_limit;
	if (!choose_target(c) || (plan_is_file(o->t.plan.replicas) && !plan_load(c)))
		return false;
	choose_threads(c);
	batch_said(c);
	return true;
}

bool compile_read(Compile *c)
{
	Options *o = c->o;
	TrainingTold told = { 0 };

	if (!mesh_choose(c) || !compile_machine(c))
		return false;
	if (!profile_choose(c))
		return false;
	ImportOpt io = compile_import_opt(c, o->t.loop.micro);
	io.told = o->t.model.opt.chosen && o->t.model.nloss ? NULL : &told;
	if (!io.micro && !o->t.data.nbind)
		io.default_micro = 16;
	c->m = onnx_import(c->a, c->model, &io, c->d);
	if (!c->m)
		return false;
	cluster_pins_idle(&c->cluster, c->m, c->d);
	c->ninput = c->m->graph->nin;
	c->input = NEWN(c->a, const char *, c->ninput);
	for (int i = 0; i < c->ninput; i++)
		c->input[i] = c->m->graph->in[i]->name;
	if (told.present)
		take_training_info(c, &told);
	if (!c->m->batch)
		c->m->batch = 1;
	if (o->start_from) {
		size_t n;
		char *text = file_read(o->start_from, &n);

		if (!text)
			return diag_error(
				c->d, FILELOC(o->start_from), 201, "cannot read the file: %s", strerror(errno));
		if (strlen(text) != n)
			return diag_error(c->d, FILELOC(o->start_from), 201, "not a text file");
		Module *m = module_parse(c->a, o->start_from, text, c->d);
		if (!m || !module_verify(m, c->d) || !reread_weights(m, c->m, c->d))
			return false;
		m->file = c->m->file;
		c->m = m;
	}
	if (!batch_divides(c))
		return false;
	return schedule_read(c->a, &o->t.plan, c->d);
}

/* The pass behind the last one that left its mark. What stands between two marks (simplify, fuse ...) may run again: it
 * finds nothing left to do. */
static int first_pass_of(const Module *m)
{
	int first = 0;

	for (int i = 0; i < npasses; i++)
		if (pass_table[i].gives && (m->has & pass_table[i].gives) == pass_table[i].gives)
			first = i + 1;
	return first;
}

bool compile_passes(Compile *c, const char *dump)
{
	const Options *o = c->o;
	PassCx cx = { .scratch = c->scratch,
		.d = c->d,
		.cluster = &c->cluster,
		.train = &o->t,
		.plan = &c->plan,
		.explain = o->explain ? &c->explain : NULL,
		.profile = c->profile,
		.measured = &c->measured,
		.estimated = &c->estimated,
		.memory_scale = c->memory_scale,
		.corrected = c->corrected,
		.rebatched = c->rebatched,
		.coupled = &c->coupled,
		.uneven = c->uneven.arena ? &c->uneven : NULL,
		.sized = c->sized,
		.quick = c->quick };
	PassOpt po = { .dump_dir = dump,
		.print_before = o->print_before,
		.print_after = o->print_after,
		.print_after_all = o->print_after_all,
		.print_after_change = o->print_after_change,
		.stop_after = o->stop_after,
		.time_passes = o->time_passes,
		.elide = (int)o->elide,
		.form = o->ir_form,
		.changes = c->changes };

	data_kinds(c);
	measure_sparsity(c);
	if (o->start_from) {
		const char *names[64];
		int n = 0;

		for (int i = first_pass_of(c->m); i < npasses; i++)
			names[n++] = pass_table[i].name;
		return run_passes(c->m, &cx, &po, names, n);
	}
	return run_passes(c->m, &cx, &po, NULL, 0);
}

/* ---- the folder ---- */

static bool exists(const char *dir, const char *file)
{
	Buf b = { 0 };
	struct stat st;

	buf_printf(&b, "%s/%s", dir, file);
	bool yes = stat(buf_str(&b), &st) == 0;
	buf_free(&b);
	return yes;
}

/* A folder that pdcc made or began, an empty one, or none yet; another only with --force. */
static bool folder_ok(Compile *c, const char *dir)
{
	DIR *d = opendir(dir);
	bool empty = true, dumps = false;

	if (!d) {
		if (errno == ENOENT)
			return true;
		return diag_error(c->d, NOLOC, 8, "-o %s: %s", dir, strerror(errno));
	}
	for (const struct dirent *e; (e = readdir(d));) {
		const bool ir = strcmp(e->d_name, "ir") == 0;
		dumps |= ir;
		empty &= ir || strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
	}
	closedir(d);
	if (empty && dumps) /* a compile that was refused left them */
		empty = exists(dir, "ir/00-import.pdir");
	if (empty || c->o->force || exists(dir, "manifest.json"))
		return true;
	return diag_error(c->d, NOLOC, 8, "-o %s: the folder holds other things; --force writes into it", dir);
}

bool compile_folder(Compile *c, const char *dir)
{
	char *s = arena_str(c->a, dir);

	for (char *p = s + 1;; p++) {
		if (*p && *p != '/')
			continue;
		char was = *p;

		*p = 0;
		if (mkdir(s, 0777) && errno != EEXIST)
			return diag_error(c->d, NOLOC, 8, "cannot make %s: %s", s, strerror(errno));
		*p = was;
		if (!was)
			return true;
	}
}

/* The parameters of all stages of s's devices, each once; NULL where an earlier stage of the same devices gave them. */
static Value **device_params(Compile *c, const Stage *s, int *n)
{
	Value **all = NULL;
	int cap = 0;

	*n = 0;
	for (int t = 0; t < c->m->nstage; t++) {
		const Stage *o = c->m->stage[t];
		if (o->rank != s->rank)
			continue;
		if (t < s->id)
			return NULL;
		for (int i = 0; i < o->nparam; i++) {
			bool have = false;
			for (int k = 0; k < *n; k++)
				have |= all[k] == o->param[i];
			if (!have)
				PUSH(c->a, all, *n, cap) = o->param[i];
		}
	}
	return all ? all : NEWN(c->a, Value *, 1);
}

static bool write_weights(Compile *c, const char *dir)
{
	const char *w = arena_printf(c->a, "%s/weights", dir);

	if (!compile_folder(c, w))
		return false;
	for (int i = 0; i < c->m->nstage; i++) {
		const Stage *s = c->m->stage[i];
		int n;
		Value **param = device_params(c, s, &n);

		if (param && !weights_write(arena_printf(c->a, "%s/stage%d.safetensors", w, s->id), param, n, c->d))
			return false;
	}
	return onnx_write_trained(c->model, c->m, "trained.safetensors", arena_printf(c->a, "%s/model.onnx", w), c->d);
}

bool compile_write(Compile *c, const char *dir)
{
	if (!write_weights(c, dir) || !codegen_build(c->m, &c->cluster, &c->o->t, dir, c->d))
		return false;
	return !c->o->check || check_emitted(c->m, dir, c->d);
}

/* No plan fits (E04xx, E06xx) is told apart from faults of the input. */
int compile_status(const Compile *c)
{
	const int code = c->d->last_code, kind = code == 402 ? 0 : code / 100; /* 402: a --plan that cannot be read */

	if ((code >= 407 && code <= 409) || code == 411 || code == 420) /* a plan file, a profile */
		return EXIT_INPUT;
	return kind == 4 || kind == 6 ? EXIT_NO_PLAN : kind == 0 ? EXIT_USAGE : EXIT_INPUT;
}

/* ---- one compilation, whole ---- */

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --time-passes: what is not a pass. */
static void said_time(const Compile *c, const char *part, double since)
{
	if (c->o->time_passes)
		fprintf(c->d->out, "%-12s %9.3f ms\n", part, (seconds() - since) * 1e3);
}

int compile_main(Compile *c)
{
	Options *o = c->o;
	const char *dump = NULL;
	double since = seconds();

	if (!o->stop_after && !o->out)
		return diag_error(c->d, NOLOC, 1, "-o DIR is missing: where the program is written"), EXIT_USAGE;
	if (!o->cluster)
		return diag_error(c->d, NOLOC, 1,
			       "--cluster FILE is missing: what machines there are; --cluster local:4 for four "
			       "devices here"),
		       EXIT_USAGE;
	if (o->out && !folder_ok(c, o->out))
		return EXIT_USAGE;
	if (!compile_read(c))
		return compile_status(c);
	said_time(c, "reading", since);
	if (o->out && !compile_folder(c, o->out))
		return EXIT_INPUT;
	if (o->dump)
		dump = o->dump_ir ? o->dump_ir : o->out ? arena_printf(c->a, "%s/ir", o->out) : "ir";
	else if (o->out && !o->stop_after)
		dump = arena_printf(c->a, "%s/ir", o->out);
	if (!compile_plan(c, dump))
		return compile_status(c);
	if (o->save_plan && c->m->schedule && !plan_save(c, o->save_plan))
		return EXIT_USAGE;
	if (!o->stop_after) {
		if (!compile_data(c, o->out))
			return EXIT_INPUT;
		compile_tolerated(c);
		since = seconds();
		if (!compile_write(c, o->out))
			return EXIT_INPUT;
		said_time(c, "writing", since);
	}
	if (o->deps && o->out && !depfile_write(c, o->out))
		return EXIT_USAGE;
	compile_summary(c, o->stop_after ? NULL : o->out);
	if (!o->stop_after && !compile_tolerant(c, o->out))
		return compile_status(c);
	return c->d->errors ? EXIT_INPUT : 0;
}
