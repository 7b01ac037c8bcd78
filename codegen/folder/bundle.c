/* What stands around the programs in a build folder: Makefile, run script, readme, copies of the runtime, manifest. */
#include <inttypes.h>
#include <string.h>
#include "codegen/write/build.h"

static const char *join_numbers(Arena *a, int n)
{
	const char *s = "0";

	for (int i = 1; i < n; i++)
		s = arena_printf(a, "%s %d", s, i);
	return s;
}

/* The model's file name on one line: it stands in comments of Makefile and script. */
static const char *model_file(const Build *b)
{
	const char *slash = b->m->file ? strrchr(b->m->file, '/') : NULL;
	char *name = arena_str(b->a, slash ? slash + 1 : b->m->file ? b->m->file : b->m->name);

	for (char *p = name; *p; p++)
		*p = (unsigned char)*p < ' ' ? '?' : *p;
	return name;
}

const char build_gpu_libraries[] =
	"-fopenmp -L$(CUDA)/lib64 -Wl,-rpath,$(CUDA)/lib64 -lcublasLt -lcublas -lcudnn -lcudart -lstdc++ -lm "
	"-lpthread";

bool runtime_file(const char *name, bool gpu)
{
	return !strncmp(name, "runtime/", 8) && strncmp(name, gpu ? "runtime/cpu" : "runtime/gpu", 11) != 0 &&
	       strcmp(name, "runtime/gpu_alone.h") != 0;
}

static bool copy_runtime(Build *b)
{
	for (int i = 0; i < nembedded; i++)
		if (runtime_file(embedded[i].name, b->gpu) &&
			!build_write(b, embedded[i].name, embedded[i].text, strlen(embedded[i].text)))
			return false;
	return true;
}

/* GPU: the object of a stage's kernels. */
static const char *kernels_of(const Build *b, int stage)
{
	return b->gpu ? arena_printf(b->a, " obj/stage%d/kernels.cu.o", stage) : "";
}

/* A command in a Makefile: $ is its own there. */
static const char *made_word(Arena *a, const char *s)
{
	const char *out = "";

	for (const char *p; (p = strchr(s, '$')); s = p + 1)
		out = arena_printf(a, "%s%.*s$$", out, (int)(p - s), s);
	return arena_printf(a, "%s%s", out, s);
}

static bool write_makefile(Build *b)
{
	Arena *a = b->a;
	const Training *train = b->t;
	const char *level = setting_word(SET_OF_OptLevel,
			   (int)(train->target.optimize != OPT_LEVEL_UNSAID ? train->target.optimize : OPT_LEVEL_3)),
		   *debug = train->target.debug ? " -g" : "";
	Buf out = { 0 }, rules = { 0 }, settings = { 0 };
	const int world = tasks_of(b);
	const char *first = "", *smaller = "", *after = b->gpu ? " | obj/toolkit" : "";

	if (b->gpu) {
		build_frame(&settings, "gpu_flags.mk.in",
			(const char *const[]){ "ARCH", train->target.arch, "NVCC",
				train->target.nvcc ? made_word(a, train->target.nvcc) : "$(CUDA)/bin/nvcc", "CONTRACT",
				train->loop.reproducible ? " -fmad=false" : "", "LEVEL", level, "DEBUG", debug, NULL });
		build_frame(&rules, "gpu_rules.mk.in", (const char *const[]){ "ARCHIVE", " obj/runtime.a", NULL });
	}
	for (int i = 0; b->c && i < b->c->nwithout; i++)
		smaller = arena_printf(a, "%s without-%s", smaller, b->c->without[i]);
	for (int t = 0; t < b->m->nstage; t++)
		buf_printf(&rules,
			"obj/stage%d/stage%d.o obj/profile/stage%d.o: stage%d/stage%d.h stage%d/kernels.h%s\n", t, t, t,
			t, t, t, after);
	for (int r = 0; r < world; r++) {
		buf_printf(&rules, "obj/device%d.o:", r);
		const int stage = stage_of_rank(b, rank_of_task(b, r));

		for (int t = stage; t >= 0; t = next_chunk(b, t))
			buf_printf(&rules, " stage%d/stage%d.h", t, t);
		buf_printf(&rules, "%s\nbin/d%d: obj/device%d.o", after, r, r);
		for (int t = stage; t >= 0; t = next_chunk(b, t))
			buf_printf(&rules, " obj/stage%d/stage%d.o%s", t, t, kernels_of(b, t));
		buf_printf(&rules, " obj/runtime.a\nbin/p%d: obj/device%d.o", r, r);
		for (int t = stage; t >= 0; t = next_chunk(b, t))
			buf_printf(&rules, " obj/profile/stage%d.o%s", t, kernels_of(b, t));
		buf_puts(&rules, " obj/runtime.a\n");
	}
	for (int r = 0; r < world; r++)
		if (r == first_task(b->m, b->first_rank[stage_of_rank(b, rank_of_task(b, r))]))
			first = arena_printf(a, "%s%s%d", first, r ? " " : "", r);
	build_frame(&out, "Makefile.in",
		(const char *const[]){ "MODEL", model_file(b), "VERSION", PDCC_VERSION, "DEVICES",
			join_numbers(a, world), "STAGES", join_numbers(a, b->m->nstage), "FIRST", first, "SMALLER",
			smaller, "CONTRACT", train->loop.reproducible ? " -ffp-contract=off" : "", "CC",
			train->target.cc ? made_word(a, train->target.cc) : "gcc", "LEVEL", level, "DEBUG", debug,
			"RULES", buf_str(&rules), "NEEDS", b->gpu ? "CUDA with cuDNN 9" : "oneDNN 2", "LIBRARIES",
			b->gpu ? build_gpu_libraries : "-fopenmp -ldnnl -lm -lpthread", "SETTINGS", buf_str(&settings),
			"HEADERS", b->gpu ? "$(CUDA_HEADERS) $(if $(filter 0,$(NCCL)),,nccl.h)" : "oneapi/dnnl/dnnl.h",
			"VERSIONS", b->gpu ? " $(NVCC) --version; env | grep ^NVCC_ | sort;" : "", "HOST",
			b->gpu ? " -include runtime/gpu_names.h" : "", "WHERE",
			b->gpu ? "CUDA=DIR of the toolkit NVCC ARCH=sm_90" : "DNNL=prefix of oneDNN", NULL });
	buf_free(&rules);
	buf_free(&settings);
	return build_text(b, "Makefile", &out);
}

/* ---- readme, compile_commands.json ---- */

static bool write_readme(Build *b)
{
	Arena *a = b->a;
	Buf out = { 0 };

	build_frame(&out, "README.txt.in",
		(const char *const[]){ "MODEL", model_file(b), "VERSION", PDCC_VERSION, "WORLD",
			arena_printf(a, "%d", tasks_of(b)), "STAGES", arena_printf(a, "%d", module_stages(b->m)),
			"PLAN", plan_text(b), "SCHEDULE", b->m->schedule->name, NULL });
	return build_text(b, "README.txt", &out);
}

static void command(Build *b, Buf *out, const char *file)
{
	buf_printf(out,
		"%s\t%s \"directory\": \".\", \"file\": %s, \"arguments\": [\"cc\", \"-std=c11\", \"-Wall\", "
		"\"-Wextra\", \"-fopenmp\", \"-I.\", \"-Iruntime\", \"-c\", %s] %s",
		out->n > 2 ? ",\n" : "", "{", quoted_json(b->a, file), quoted_json(b->a, file), "}");
}

static bool write_commands(Build *b)
{
	Buf out = { 0 };

	buf_puts(&out, "[\n");
	for (int t = 0; t < b->m->nstage; t++)
		command(b, &out, arena_printf(b->a, "stage%d/stage%d.c", t, t));
	for (int r = 0; r < tasks_of(b); r++)
		command(b, &out, arena_printf(b->a, "device%d.c", r));
	for (int i = 0; i < nembedded; i++) {
		const size_t n = strlen(embedded[i].name);
		if (runtime_file(embedded[i].name, b->gpu) && !strcmp(embedded[i].name + n - 2, ".c"))
			command(b, &out, embedded[i].name);
	}
	buf_puts(&out, "\n]\n");
	return build_text(b, "compile_commands.json", &out);
}

/* ---- manifest ---- */

/* "lr": 0.1, "momentum": 0.9, */
static const char *optimizer_text(Arena *a, const Optimizer *o)
{
	const char *s = "";

	for (int i = 0; i < OPT_SETTINGS; i++)
		if (opt_has(opt_kind(o), (OptSet)i))
			s = arena_printf(
				a, "%s%s\"%s\": %.17g,", s, *s ? " " : "", opt_set_name[i], opt_get(o, (OptSet)i));
	if (rate_varies(&o->rate))
		s = arena_printf(a,
			"%s \"lr_schedule\": { \"kind\": \"%s\", \"warmup\": %" PRId64 ", \"every\": %" PRId64
			", \"steps\": %" PRId64 ", \"gamma\": %.17g, \"min\": %.17g },",
			s, setting_word(SET_OF_RateKind, o->rate.kind), o->rate.warmup, o->rate.every, o->rate.steps,
			o->rate.gamma, o->rate.min);
	if (o->clip_norm > 0)
		s = arena_printf(a, "%s \"clip_norm\": %.17g,", s, o->clip_norm);
	return s;
}

/* A file per device, named after the first stage that it runs. */
static void write_weight_files(const Build *b, Cw *w)
{
	int left = 0;

	for (int i = 0; i < b->m->nstage; i++)
		left += stage_of_rank(b, b->first_rank[i]) == i;
	for (int i = 0; i < b->m->nstage; i++) {
		int n = 0;
		if (stage_of_rank(b, b->first_rank[i]) != i)
			continue;
		for (int t = i; t >= 0; t = next_chunk(b, t))
			n += b->m->stage[t]->nparam;
		cw_line(w, "\"weights/stage%d.safetensors\": %d%s", b->m->stage[i]->id, n, --left ? "," : "");
	}
}

static bool write_manifest(Build *b)
{
	const Training *t = b->t;
	Buf out = { 0 };
	Cw w = { .out = &out };

	cw_brace(&w);
	cw_line(&w, "\"kind\": \"pdcc build folder\", \"version\": \"%s\", \"plan_hash\": \"%s\",", PDCC_VERSION,
		b->hash);
	cw_line(&w, "\"model\": %s,", quoted_json(b->a, model_file(b)));
	cw_open(&w, "\"settings\":");
	cw_line(&w,
		"\"micro\": %" PRId64 ", \"microbatches\": %" PRId64 ", \"steps\": %" PRId64 ", \"seed\": %" PRIu64 ",",
		b->m->batch, b->m->microbatches, t->loop.steps, t->loop.seed);
	cw_line(&w, "\"optimizer\": \"%s\", %s", setting_word(SET_OF_OptKind, opt_kind(&t->model.opt)),
		optimizer_text(b->a, &t->model.opt));
	cw_line(&w, "\"sync\": \"%s\",%s \"local_aggregation\": %s,", served_async(t) ? "async" : "sync",
		t->comm.staleness < 0 ? "" : arena_printf(b->a, " \"staleness\": %lld,", (long long)t->comm.staleness),
		t->comm.no_local_agg ? "false" : "true");
	cw_line(&w, "\"schedule\": \"%s\", \"reproducible\": %s, \"shuffle\": %s", b->m->schedule->name,
		t->loop.reproducible ? "true" : "false", t->data.shuffle ? "true" : "false");
	cw_close(&w, ",");
	cw_open(&w, "\"initial_weights\":"); /* written beside the code; remove_stale knows them again by this list */
	write_weight_files(b, &w);
	cw_close(&w, ",");
	cw_open(&w, "\"sha256\":");
	for (int i = 0; i < b->nfile; i++)
		cw_line(&w, "%s: \"%s\"%s", quoted_json(b->a, b->file[i].path), b->file[i].sha256,
			i + 1 < b->nfile ? "," : "");
	cw_end(&w);
	cw_end(&w);
	return build_text(b, "manifest.json", &out);
}

bool emit_bundle(Build *b)
{
	return copy_runtime(b) && write_makefile(b) && emit_launch(b) && write_readme(b) && write_commands(b) &&
	       write_manifest(b);
}
