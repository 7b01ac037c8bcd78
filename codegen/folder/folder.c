/* The build folder: the order of its writers, what is told apart by hashes, and what an earlier build left. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "codegen/write/build.h"
#include "emit.h"

/* ---- the plan ---- */

static void count_channels(Build *b, const Graph *g)
{
	for (const Node *n = g->first; n; n = n->next)
		if (n->op == OP_Send && attr_int(n, "channel") >= b->channels)
			b->channels = (int)attr_int(n, "channel") + 1;
}

/* One number for the whole plan; every rank compares it before step 0. */
static void hash_plan(Build *b)
{
	Buf all = { 0 };
	char hex[65];

	for (int i = 0; i < b->nfile; i++)
		buf_printf(&all, "%s %s\n", b->file[i].path, b->file[i].sha256);
	schedule_print_csv(&all, b->m->schedule);
	sha256_hex(buf_str(&all), all.n, hex);
	memcpy(b->hash, hex, 16);
	buf_free(&all);
}

static int by_text(const void *x, const void *y) { return strcmp(*(const char *const *)x, *(const char *const *)y); }

/* What a checkpoint belongs to. Tied weights lie in several stages and count once. */
static void hash_model(Build *b)
{
	const char **line = NULL;
	int n = 0, cap = 0;
	Buf all = { 0 };
	char hex[65];

	for (int s = 0; s < b->m->nstage; s++)
		for (int i = 0; i < b->m->stage[s]->nparam; i++) {
			const Value *v = b->m->stage[s]->param[i];
			const Type whole = shard_stored(v);
			const char *text = arena_printf(b->a, "%s %d",
				v->param->onnx_name ? v->param->onnx_name : v->name, dtype_onnx(v->type.dtype));

			for (int k = 0; k < whole.rank; k++)
				text = arena_printf(b->a, "%s %" PRId64, text, whole.dim[k]);
			if (v->param->kind != PARAM_STATE && !v->param->whole)
				PUSH(b->a, line, n, cap) = text;
		}
	if (n)
		qsort(line, (size_t)n, sizeof *line, by_text);
	for (int i = 0; i < n; i++)
		if (i == 0 || strcmp(line[i - 1], line[i]))
			buf_printf(&all, "%s\n", line[i]);
	sha256_hex(buf_str(&all), all.n, hex);
	memcpy(b->model_hash, hex, 16);
	buf_free(&all);
}

/* The initial weights of a stage that this plan does not have, in a line of the manifest: its path, or NULL. */
static const char *stale_weights(const Build *b, const char *line)
{
	int stage, end = 0;

	sscanf(line, " \"weights/stage%d.safetensors\":%n", &stage, &end);
	for (int s = 0; end && s < b->m->nstage; s++)
		if (b->m->stage[s]->id == stage && stage_of_rank(b, b->first_rank[s]) == s)
			end = 0;
	return end ? arena_printf(b->a, "%s/weights/stage%d.safetensors", b->dir, stage) : NULL;
}

/* Files that an earlier manifest lists and that were not written this time: of a plan with more stages or devices. */
static void remove_stale(const Build *b, const char *manifest)
{
	char path[4096], sum[65];

	for (const char *line = manifest; line && *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *weights = stale_weights(b, line);
		bool again = false;

		if (weights)
			remove(weights);
		if (weights || sscanf(line, " \"%4095[^\"]\": \"%64[0-9a-f]\"", path, sum) != 2 || strlen(sum) != 64 ||
			*path == '/' || strstr(path, ".."))
			continue;
		for (int i = 0; i < b->nfile; i++)
			again |= !strcmp(b->file[i].path, path);
		if (again)
			continue;
		remove(arena_printf(b->a, "%s/%s", b->dir, path));
		if (strchr(path, '/')) { /* and its folder, once that is empty */
			*strrchr(path, '/') = 0;
			remove(arena_printf(b->a, "%s/%s", b->dir, path));
		}
	}
}

/* The kernels of attention in 16 bits are for the tensor cores of sm_80 and newer, products of 8 bits for those of sm_89. False after a
 * diagnostic. */
static bool fits_arch(const Build *b, const Graph *g)
{
	int sm = 0;

	if (!b->gpu || sscanf(b->t->target.arch, "sm_%d", &sm) != 1 || sm >= 89)
		return true;
	for (const Node *n = g->first; n; n = n->next) {
		if (n->op == OP_Product && dtype_f8(n->in[0]->type.dtype))
			return diag_error(b->d, n->loc, 712,
				"Product is of 8 bits, which takes a GPU of sm_89 or newer, and --arch is %s; say --amp bf16 for this one",
				b->t->target.arch);
		if (sm < 80 && (n->op == OP_Attention || n->op == OP_AttentionGrad) &&
			dtype_half(n->out[0]->type.dtype))
			return diag_error(b->d, n->loc, 712,
				"%s is in %s, which takes a GPU of sm_80 or newer, and --arch is %s; leave --amp out for this one",
				optab[n->op]->name, dtype_name(n->out[0]->type.dtype), b->t->target.arch);
	}
	return true;
}

bool codegen_build(const Module *m, const Cluster *c, const Training *t, const char *dir, Diag *d)
{
	static const Training none = { .model.opt = { .kind = OPT_SGD } };
	Build b = { .m = m, .c = c, .t = t ? t : &none, .a = arena_new(), .d = d, .dir = dir };
	char *before;
	bool ok = true;

	if (!m->nstage || !m->schedule || !m->stage[0]->param_at) {
		arena_free(b.a);
		return diag_error(d, FILELOC(m->file), 704, "code is made of a planned module; run memplan first");
	}
	b.gpu = target_cuda(b.t);
	b.split = schedule_has(m->schedule, ACT_W);
	if (b.gpu && b.t->target.f64) {
		arena_free(b.a);
		return diag_error(
			d, FILELOC(m->file), 711, "programs in f64 for GPUs are not written yet; --target c has them");
	}
	before = file_read(arena_printf(b.a, "%s/manifest.json", dir), NULL);
	b.first_rank = NEWN(b.a, int, m->nstage);
	for (int s = 0; s < m->nstage; s++) {
		b.first_rank[s] = m->stage[s]->rank;
		for (int k = 0; k < s; k++)
			b.chunks |= b.first_rank[k] == b.first_rank[s];
		count_channels(&b, m->stage[s]->forward);
		count_channels(&b, m->stage[s]->backward);
	}
	for (int s = 0; ok && s < m->nstage; s++)
		ok = fits_arch(&b, m->stage[s]->forward);
	for (int s = 0; ok && s < m->nstage; s++)
		ok = emit_stage(&b, m->stage[s]);
	if (ok)
		hash_plan(&b);
	hash_model(&b);
	for (int s = 0; ok && s < m->nstage; s++)
		ok = emit_profile(&b, m->stage[s]);
	for (int r = 0; ok && r < tasks_of(&b); r++)
		ok = emit_device(&b, r);
	ok = ok && emit_plan(&b) && emit_certificate(&b) && emit_bundle(&b);
	if (ok)
		remove_stale(&b, before);
	free(before);
	arena_free(b.a);
	return ok;
}
