/* The build folder: order of the writers, and what they share. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "codegen/write/build.h"
#include "codegen/emit.h"

const char *quoted(Arena *a, const char *s)
{
	char *q = arena_alloc(a, 4 * strlen(s) + 3), *p = q;

	*p++ = '"';
	for (; *s; s++) {
		if (*s == '"' || *s == '\\')
			*p++ = '\\';
		*p++ = (unsigned char)*s < ' ' ? '?' : *s;
	}
	*p = '"';
	return q;
}

/* ---- files ---- */

/* All folders of DIR/path but the last part. */
static bool make_folders(const char *path)
{
	char copy[4096];

	if (strlen(path) >= sizeof copy)
		return errno = ENAMETOOLONG, false;
	strcpy(copy, path);
	for (char *p = copy + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		if (mkdir(copy, 0777) && errno != EEXIST)
			return false;
		*p = '/';
	}
	return true;
}

bool build_write(Build *b, const char *path, const void *p, size_t n)
{
	const char *full = arena_printf(b->a, "%s/%s", b->dir, path);
	BuiltFile f = { arena_str(b->a, path), "" };

	if (!make_folders(full) || !file_write(full, p, n))
		return diag_error(b->d, FILELOC(full), 703, "cannot write: %s", strerror(errno));
	sha256_hex(p, n, f.sha256);
	PUSH(b->a, b->file, b->nfile, b->capfile) = f;
	return true;
}

bool build_text(Build *b, const char *path, Buf *text)
{
	const bool ok = build_write(b, path, buf_str(text), text->n);

	buf_free(text);
	return ok;
}

void build_frame(Buf *out, const char *frame, const char *const *pair)
{
	char name[64] = "codegen/frames/";
	const char *text;

	strncat(name, frame, sizeof name - strlen(name) - 1);
	text = embedded_text(name);
	if (!text)
		bug("%s is not embedded", name);
	for (const char *s = text; *s; s++) {
		int i = 0;
		for (; *s == '@' && pair[i]; i += 2) {
			const size_t n = strlen(pair[i]);
			if (!strncmp(s + 1, pair[i], n) && s[n + 1] == '@') {
				buf_puts(out, pair[i + 1]);
				s += n + 1;
				break;
			}
		}
		if (*s == '@' && pair[i])
			continue;
		const size_t hole = *s == '@' ? strspn(s + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") : 0;
		if (hole && s[1 + hole] == '@')
			bug("nothing was said for the hole %.*s of %s", (int)hole, s + 1, frame);
		buf_putc(out, *s);
	}
}

/* ---- the plan ---- */

const char *origin_text(const Build *b, const Value *v, const Node *n)
{
	const Loc *l = v->def ? &v->def->loc : &n->loc;

	return l->node < 0 ? v->name : arena_printf(b->a, "%s, node #%d '%s'%s%s", v->name, l->node, l->name ? l->name : "",
		l->op ? " " : "", l->op ? l->op : "");
}

int stage_of_rank(const Build *b, int rank)
{
	int t = 0;

	while (rank < b->first_rank[t] || rank >= b->first_rank[t] + b->m->stage[t]->replicas)
		t++;
	return t;
}

int next_chunk(const Build *b, int stage)
{
	for (int t = stage + 1; t < b->m->nstage; t++)
		if (b->first_rank[t] == b->first_rank[stage])
			return t;
	return -1;
}

bool device_enters(const Build *b, int stage)
{
	for (int t = 0; t < b->m->nstage; t++)
		if (b->first_rank[t] == b->first_rank[stage] && stage_enters(b->m->stage[t]))
			return true;
	return false;
}

const char *stage_name(const Build *b, int stage, const char *name)
{
	return b->chunks ? arena_printf(b->a, "stage%d_%s", stage, name) : name;
}

int table_base(const Build *b, int stage, bool params)
{
	int n = 0;

	for (int t = 0; t < stage; t++)
		if (b->first_rank[t] == b->first_rank[stage])
			n += params ? b->m->stage[t]->nparam : b->m->stage[t]->forward->nin;
	return n;
}

int owner_of(const Build *b, const Value *v)
{
	int owner = -1;

	for (int t = 0; t < b->m->nstage; t++)
		for (int i = 0; i < b->m->stage[t]->nparam; i++)
			if (b->m->stage[t]->param[i] == v && (owner < 0 || b->m->stage[t]->server))
				owner = b->first_rank[t] + owning_replica(b->m->stage[t], v);
	if (owner >= 0)
		return owner;
	bug("no stage has parameter %s", v->name);
}

int threads_of(const Build *b, int rank)
{
	const int t = stage_of_rank(b, rank), d = b->m->stage[t]->device[rank - b->first_rank[t]];

	if (b->t->threads > 0)
		return b->t->threads;
	return b->c && d >= 0 && d < b->c->ndevice && b->c->device[d].cores > 0 ? b->c->device[d].cores : 1;
}

double timeout_of(const Build *b)
{
	return b->c && b->c->timeout > 0 ? b->c->timeout : 60;
}

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

static int by_text(const void *x, const void *y)
{
	return strcmp(*(const char *const *)x, *(const char *const *)y);
}

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
			const char *text = arena_printf(b->a, "%s %d", v->param->onnx_name ? v->param->onnx_name : v->name,
				dtype_onnx(v->type.dtype));

			for (int k = 0; k < v->type.rank; k++)
				text = arena_printf(b->a, "%s %" PRId64, text, v->type.dim[k]);
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
		if (weights || sscanf(line, " \"%4095[^\"]\": \"%64[0-9a-f]\"", path, sum) != 2 || strlen(sum) != 64 || *path == '/' ||
		    strstr(path, ".."))
			continue;
		for (int i = 0; i < b->nfile; i++)
			again |= !strcmp(b->file[i].path, path);
		if (again)
			continue;
		remove(arena_printf(b->a, "%s/%s", b->dir, path));
		if (strchr(path, '/')) {            /* and its folder, once that is empty */
			*strrchr(path, '/') = 0;
			remove(arena_printf(b->a, "%s/%s", b->dir, path));
		}
	}
}

/* The kernels of attention in 16 bits are for the tensor cores of sm_80 and newer. False after a diagnostic. */
static bool fits_arch(const Build *b, const Graph *g)
{
	int sm = 0;

	if (!b->gpu || sscanf(b->t->arch, "sm_%d", &sm) != 1 || sm >= 80)
		return true;
	for (const Node *n = g->first; n; n = n->next)
		if ((n->op == OP_Attention || n->op == OP_AttentionGrad) && dtype_half(n->out[0]->type.dtype))
			return diag_error(b->d, n->loc, 712, "%s is in %s, which takes a GPU of sm_80 or newer, and --arch is %s; leave --amp out for this one",
				optab[n->op]->name, dtype_name(n->out[0]->type.dtype), b->t->arch);
	return true;
}

bool codegen_build(const Module *m, const Cluster *c, const Training *t, const char *dir, Diag *d)
{
	static const Training none = { .opt = { .kind = OPT_SGD } };
	Build b = { .m = m, .c = c, .t = t ? t : &none, .a = arena_new(), .d = d, .dir = dir };
	char *before;
	bool ok = true;

	if (!m->nstage || !m->schedule || !m->stage[0]->param_at) {
		arena_free(b.a);
		return diag_error(d, FILELOC(m->file), 704, "code is made of a planned module; run memplan first");
	}
	b.gpu = target_cuda(b.t);
	if (b.gpu && b.t->f64) {
		arena_free(b.a);
		return diag_error(d, FILELOC(m->file), 711, "programs in f64 for GPUs are not written yet; --target c has them");
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
	for (int r = 0; ok && r < m->schedule->ndevice; r++)
		ok = emit_device(&b, r);
	ok = ok && emit_plan(&b) && emit_bundle(&b);
	if (ok)
		remove_stale(&b, before);
	free(before);
	arena_free(b.a);
	return ok;
}
