/* What the writers of a build folder share: its files, and the names that one file calls another's things by. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "build.h"
#include "tmpl.h"

const char *quoted(Arena *a, const char *s)
{
	char *q = arena_alloc(a, 4 * strlen(s) + 3), *p = q;
	int escaped = 0; /* bytes that are still to be written as numbers */

	*p++ = '"';
	for (const char *from = s; *s; s++) {
		if (cw_turns(s))
			escaped = cw_turns(s);
		if (escaped || (unsigned char)*s < ' ' || *s == 0x7F) {
			p += sprintf(p, "\\%03o", (unsigned)(unsigned char)*s);
			escaped -= escaped > 0;
			continue;
		}
		if (*s == '"' || *s == '\\' ||
			(*s == '?' && s > from && s[-1] == '?')) /* ??/ is a trigraph, a backslash */
			*p++ = '\\';
		*p++ = *s;
	}
	*p = '"';
	return q;
}

const char *quoted_json(Arena *a, const char *s)
{
	Buf b = { 0 };

	buf_json(&b, s);
	return buf_kept(&b, a);
}

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

const char *origin_text(const Build *b, const Value *v, const Node *n)
{
	const Loc *l = v->def ? &v->def->loc : &n->loc;

	return l->node < 0 ? v->name
	                   : arena_printf(b->a, "%s, node #%d '%s'%s%s%s%s", v->name, l->node, l->name ? l->name : "",
				     l->op ? " " : "", l->op ? l->op : "", l->module ? " in " : "",
				     l->module ? l->module : "");
}

const char *value_wish(Arena *a, const Value *v)
{
	const char *module = v->kind == VAL_NODE ? v->def->loc.module : NULL;
	const size_t grad = strncmp(v->name, "d.", 2) ? 0 : 2;

	return module ? arena_printf(a, "%.*s%s.%s", (int)grad, v->name, module, v->name + grad) : v->name;
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

int tasks_of(const Build *b) { return first_task(b->m, b->m->schedule->ndevice); }

int rank_of_task(const Build *b, int task)
{
	int rank = b->m->tensor_of ? 0 : task / stage_tensor(b->m, 0);

	while (first_task(b->m, rank + 1) <= task)
		rank++;
	return rank;
}

int threads_of(const Build *b, int rank)
{
	const int t = stage_of_rank(b, rank), d = b->m->stage[t]->device[rank - b->first_rank[t]];

	if (b->t->target.threads > 0)
		return b->t->target.threads;
	return b->c && d >= 0 && d < b->c->ndevice && b->c->device[d].cores > 0 ? b->c->device[d].cores : 1;
}

const char *plan_text(const Build *b)
{
	const char *s = "";

	for (int t = 0; t < b->m->nstage && !b->m->stage[t]->server; t++)
		s = arena_printf(b->a, b->m->tensor > 1 ? "%s%s%dx%d" : "%s%s%d", s, t ? "-" : "",
			b->m->stage[t]->replicas, stage_tensor(b->m, t));
	return s;
}

const char *size_text(Arena *a, int64_t n)
{
	if (n < 10 * 1024)
		return arena_printf(a, "%" PRId64 " B", n);
	if (n < 10 * 1024 * 1024)
		return arena_printf(a, "%.1f KiB", (double)n / 1024);
	return arena_printf(a, "%.1f MiB", (double)n / (1024 * 1024));
}

int64_t message_bytes(const Build *b, const Value *v)
{
	const int64_t n = type_numel(&v->type) * dtype_bytes(v->type.dtype);

	return schedule_tagged(b->m) ? (n + ALIGN - 1) / ALIGN * ALIGN + TAG_BYTES : n;
}

const char *share_name(const Build *b, const Stage *s, const Node *broadcast)
{
	return stage_name(b, s->id, arena_printf(b->a, "share%" PRId64, attr_int(broadcast, "number")));
}

const char *ranks_text(Arena *a, Ints v)
{
	const char *text = "";

	for (int i = 0; i < v.n; i++)
		text = arena_printf(a, "%s%s%" PRId64, text, i ? ", " : "", v.v[i]);
	return text;
}

bool stage_has(const Graph *g, OpKind op)
{
	for (const Node *n = g->first; n; n = n->next)
		if (n->op == op)
			return true;
	return false;
}

bool pulls(const Stage *s) { return stage_has(s->forward, OP_Pull); }

double timeout_of(const Build *b) { return b->c && b->c->timeout > 0 ? b->c->timeout : 60; }
