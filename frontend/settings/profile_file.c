/* profile.json read and checked, and the folder of times that were measured before. */
#include "profile_file.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "ir/base/buf.h"
#include "yaml.h"

enum { MAX_TIME = 1000000 }; /* seconds that a node may take */

/* ---- the file ---- */

static bool wrong(Yaml *y, const YNode *at, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static bool wrong(Yaml *y, const YNode *at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	const char *text = arena_vprintf(y->a, fmt, ap);
	va_end(ap);
	y->ok = false;
	return diag_error(
		y->d, TEXTLOC(y->file, (int)at->start_mark.line + 1, (int)at->start_mark.column + 1), 420, "%s", text);
}

static const char *text_of(Yaml *y, const YNode *n, const char *what, const char *key)
{
	const YNode *v = yaml_get(y, n, key);

	if (v && v->type == YAML_SCALAR_NODE)
		return arena_str(y->a, (const char *)v->data.scalar.value);
	wrong(y, v ? v : n, "%s has no '%s'", what, key);
	return "";
}

static double number_of(Yaml *y, const YNode *n, const char *what, const char *key, double most)
{
	const YNode *v = yaml_get(y, n, key);
	const char *s = v && v->type == YAML_SCALAR_NODE ? (const char *)v->data.scalar.value : NULL;
	char *end = NULL;
	const double x = s ? strtod(s, &end) : 0;

	if (!v)
		return wrong(y, n, "%s has no '%s'", what, key), 0;
	if (!s || end == s || *end || !isfinite(x))
		return wrong(y, v, "%s: '%s' wants a number, not '%s'", what, key, s ? s : "a list"), 0;
	if (x < 0 || x > most)
		return wrong(y, v, "%s: '%s' is %s, which is not within 0 and %.0f", what, key, s, most), 0;
	return x;
}

/* Bytes and counts. */
static int64_t whole_of(Yaml *y, const YNode *n, const char *what, const char *key, double most)
{
	const double x = number_of(y, n, what, key, most);

	if (x == floor(x))
		return (int64_t)x;
	wrong(y, yaml_get(y, n, key), "%s: '%s' is %.17g, which is no whole number", what, key, x);
	return 0;
}

static ProfileNode read_record(Yaml *y, const YNode *n, int i)
{
	const char *where = arena_printf(y->a, "nodes[%d]", i);
	ProfileNode r = { .op = text_of(y, n, where, "op"),
		.value = text_of(y, n, where, "value"),
		.node = text_of(y, n, where, "node"),
		.type = text_of(y, n, where, "type"),
		.device = text_of(y, n, where, "device") };
	const char *phase = text_of(y, n, where, "phase");
	int k = 0;

	where = arena_printf(y->a, "nodes[%d], %s '%s'", i, r.op, r.value);
	while (k < 3 && strcmp(phase, profile_phase[k]))
		k++;
	if (k == 3)
		wrong(y, n, "%s: the phase is forward, backward or update, not '%s'", where, phase);
	r.phase = (Phase)(k % 3);
	r.threads = (int)whole_of(y, n, where, "threads", 65536);
	r.activation = whole_of(y, n, where, "activation", 1e18);
	r.weight = whole_of(y, n, where, "weight", 1e18);
	r.mean = number_of(y, n, where, "mean", MAX_TIME);
	r.p50 = number_of(y, n, where, "p50", MAX_TIME);
	r.typical = yaml_get(y, n, "typical") ? number_of(y, n, where, "typical", MAX_TIME) : r.p50;
	r.p99 = number_of(y, n, where, "p99", MAX_TIME);
	r.cov = number_of(y, n, where, "cov", 1e9);
	r.n = whole_of(y, n, where, "n", 1e15);
	return r;
}

Profile *profile_load(Arena *a, const char *path, Diag *d)
{
	struct stat st;
	Yaml y;

	const int err = stat(path, &st) ? errno : S_ISDIR(st.st_mode) ? EISDIR : 0;

	if (err)
		return diag_error(d, FILELOC(path), 420, "cannot read the profile: %s", strerror(err)), NULL;
	if (!yaml_open(&y, a, path, d))
		return NULL;
	const YNode *top = yaml_document_get_root_node(&y.doc);
	const YNode *kind = yaml_get(&y, top, "kind"), *nodes = yaml_get(&y, top, "nodes");
	Profile *p = NEW(a, Profile);

	if (!kind || kind->type != YAML_SCALAR_NODE || strcmp((const char *)kind->data.scalar.value, "pdcc profile"))
		wrong(&y, top, "this is no profile: its 'kind' is not 'pdcc profile'");
	else if (!nodes || nodes->type != YAML_SEQUENCE_NODE)
		wrong(&y, top, "the profile has no list 'nodes'");
	if (y.ok) {
		*p = (Profile){ .file = path,
			.model = text_of(&y, top, "the profile", "model"),
			.device = text_of(&y, top, "the profile", "device"),
			.threads = (int)whole_of(&y, top, "the profile", "threads", 65536),
			.micro = whole_of(&y, top, "the profile", "micro", 1e15) };
		const yaml_node_item_t *first = nodes->data.sequence.items.start, *end = nodes->data.sequence.items.top;
		for (const yaml_node_item_t *i = first; i < end && d->errors < d->limit; i++) {
			const ProfileNode r = read_record(&y, yaml_document_get_node(&y.doc, *i), (int)(i - first));
			PUSH(a, p->node, p->nnode, p->capnode) = r;
		}
		profile_index(a, p);
	}
	yaml_close(&y);
	return y.ok ? p : NULL;
}

/* ---- what was measured before ---- */

typedef struct Kept {
	ProfileNode r;
	int put;
} Kept; /* put: how often since opening */

static const char *cache_key(Arena *a, const char *kind, const Profile *of)
{
	const char *copies = of->copies > 1 ? arena_printf(a, "x%d", of->copies) : "";

	return arena_printf(a, "%d%s\t%s\t%s", of->threads, copies, of->device, kind);
}

/* mean typical p50 p99 cov n, a tab, the key. */
static void cache_line(TimeCache *t, const char *line, size_t n)
{
	Kept *k = NEW(t->a, Kept);
	int at = 0;

	*k = (Kept){ 0 };
	line = arena_strn(t->a, line, n);
	if (sscanf(line, "%lf %lf %lf %lf %lf %" SCNd64 "%n", &k->r.mean, &k->r.typical, &k->r.p50, &k->r.p99,
		    &k->r.cov, &k->r.n, &at) == 6 &&
		line[at] == '\t')
		map_put(&t->of, line + at + 1, k);
}

void cache_open(TimeCache *t, Arena *a, const char *dir)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	*t = (TimeCache){ .a = a };
	map_init(&t->of, a, true);
	if (!dir && xdg && *xdg)
		dir = arena_printf(a, "%s/pdcc", xdg);
	else if (!dir && home && *home)
		dir = arena_printf(a, "%s/.cache/pdcc", home);
	if (!dir || !strcmp(dir, "none"))
		return;
	t->file = arena_printf(a, "%s/typical-%s.txt", dir, PDCC_VERSION);
	char *text = file_read(t->file, NULL);
	for (const char *s = text; s && *s; s += strcspn(s, "\n"), s += *s == '\n')
		cache_line(t, s, strcspn(s, "\n"));
	free(text);
}

const ProfileNode *cache_get(const TimeCache *t, const char *kind, const Profile *of)
{
	const Kept *k = map_get(&t->of, cache_key(t->a, kind, of));

	return k ? &k->r : NULL;
}

void cache_put(TimeCache *t, const char *kind, const Profile *of, const ProfileNode *r)
{
	const char *key = cache_key(t->a, kind, of);
	Kept *k = map_get(&t->of, key);

	if (!k || !k->put) {
		k = NEW(t->a, Kept);
		*k = (Kept){ *r, 0 };
		map_put(&t->of, key, k);
	}
	const double old = (double)k->put / (k->put + 1), new = 1.0 / (k->put + 1);
	k->r.mean = old * k->r.mean + new * r->mean;
	k->r.typical = old * k->r.typical + new * r->typical;
	k->r.p50 = old * k->r.p50 + new * r->p50;
	k->r.p99 = old * k->r.p99 + new * r->p99;
	k->r.cov = old * k->r.cov + new * r->cov;
	k->put++;
	t->changed = true;
}

static void make_folders(char *path)
{
	for (char *p = path + 1; *p; p++)
		if (*p == '/') {
			*p = 0;
			mkdir(path, 0777);
			*p = '/';
		}
}

bool cache_close(TimeCache *t, Diag *d)
{
	Buf b = { 0 };

	if (!t->file || !t->changed)
		return true;
	make_folders(arena_str(t->a, t->file));
	for (size_t i = 0; i < t->of.n; i++) {
		const ProfileNode *r = &((const Kept *)t->of.slot[i].val)->r;
		buf_printf(&b, "%.9g %.9g %.9g %.9g %.6g %" PRId64 "\t%s\n", r->mean, r->typical, r->p50, r->p99,
			r->cov, r->n, (const char *)t->of.slot[i].key);
	}
	const bool ok = file_write(t->file, buf_str(&b), b.n);
	if (!ok)
		diag_warn(d, FILELOC(t->file), "profile-cache", "measured times are not kept: %s", strerror(errno));
	buf_free(&b);
	return ok;
}
