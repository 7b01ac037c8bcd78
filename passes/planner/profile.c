/* Reads layer profiles (profile.h) and changes them: what planners leave out, branches made short, other devices. */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/buf.h"
#include "ir/base/map.h"
#include "profile.h"

enum { E_READ = 460, E_FORM = 461, E_NAME = 462, E_CYCLE = 463, LAYERS_MAX = 100000, EDGES_MAX = 1000000 };

typedef struct Reader {
	Arena *a;
	Diag *d;
	Profile *p;
	Map id; /* name -> Layer number + 1 */
	int cap, edge_cap, line;
} Reader;

static Loc here(const Reader *r) { return TEXTLOC(r->p->file, r->line, 1); }

/* Cuts s at the first sep: what lies in front stays in s, what follows is returned; NULL when there is none. */
static char *cut(char *s, const char *sep)
{
	char *at = strstr(s, sep);

	if (!at)
		return NULL;
	*at = 0;
	return at + strlen(sep);
}

static bool number(const Reader *r, const char *key, const char *s, char **end, double *v)
{
	*v = strtod(s, end);
	if (*end == s)
		return diag_error(r->d, here(r), E_FORM, "%s is '%s', which is not a number", key, s);
	if (!isfinite(*v) || *v < 0)
		return diag_error(r->d, here(r), E_FORM, "%s is %g: it must be a finite number, not below 0", key, *v);
	return true;
}

/* `KEY=1.5`, `KEY=[1; 2]`: the sum. */
static bool field(const Reader *r, char *s, const char *key, double *sum)
{
	const size_t n = strlen(key);
	double v;
	char *end;

	if (!s || strncmp(s, key, n) != 0 || s[n] != '=')
		return diag_error(r->d, here(r), E_FORM, "%s=NUMBER is missing; found '%s'", key, s ? s : "");
	s += n + 1;
	*sum = 0;
	const bool list = *s == '[';
	s += list;
	for (;;) {
		if (!number(r, key, s, &end, &v))
			return false;
		*sum += v;
		if (!list || *end != ';')
			break;
		s = end + 1;
	}
	if (list && *end++ != ']')
		return diag_error(r->d, here(r), E_FORM, "%s: the list has no ']'", key);
	if (*end)
		return diag_error(r->d, here(r), E_FORM, "%s: '%s' follows the number", key, end);
	return true;
}

static bool read_layer(Reader *r, char *s)
{
	Profile *p = r->p;
	char *desc = cut(s, " -- "), *data = desc ? cut(desc, " -- ") : NULL, *stage = data ? cut(data, " -- ") : NULL;

	if (!data)
		return diag_error(
			r->d, here(r), E_FORM, "a layer is 'ID -- DESC -- forward_compute_time=..', found '%s'", s);
	if (map_has(&r->id, s))
		return diag_error(r->d, here(r), E_NAME, "layer '%s' is there twice", s);
	if (p->n >= LAYERS_MAX)
		return diag_error(r->d, here(r), E_FORM, "more than %d layers", LAYERS_MAX);
	char *back = cut(data, ", "), *act = back ? cut(back, ", ") : NULL, *par = act ? cut(act, ", ") : NULL;
	Layer l = { .id = arena_str(r->a, s), .desc = arena_str(r->a, desc), .stage = -1 };
	if (!field(r, data, "forward_compute_time", &l.forward) ||
		!field(r, back, "backward_compute_time", &l.backward) ||
		!field(r, act, "activation_size", &l.activation) || !field(r, par, "parameter_size", &l.parameters))
		return false;
	l.forward /= 1000;
	l.backward /= 1000;
	if (stage) {
		double v;
		if (!field(r, stage, "stage_id", &v))
			return false;
		if (v > LAYERS_MAX || v != floor(v))
			return diag_error(r->d, here(r), E_FORM,
				"stage_id is %g: it must be a whole number, at most %d", v, LAYERS_MAX);
		l.stage = (int)v;
	}
	PUSH(r->a, p->layer, p->n, r->cap) = l;
	map_put(&r->id, l.id, (void *)(uintptr_t)p->n);
	return true;
}

static bool read_edge(Reader *r, char *s)
{
	Profile *p = r->p;
	char *end[2] = { s, cut(s, " -- ") };
	int at[2];

	if (!end[1])
		return diag_error(r->d, here(r), E_FORM, "an edge is 'SRC -- DST', found '%s'", s);
	for (int i = 0; i < 2; i++) {
		at[i] = (int)(uintptr_t)map_get(&r->id, end[i]) - 1;
		if (at[i] < 0)
			return diag_error(
				r->d, here(r), E_NAME, "edge to or from '%s', which is no layer above", end[i]);
	}
	if (p->nedge >= EDGES_MAX)
		return diag_error(r->d, here(r), E_FORM, "more than %d edges", EDGES_MAX);
	PUSH(r->a, p->edge, p->nedge, r->edge_cap) = (Edge){ at[0], at[1] };
	return true;
}

bool profile_parse(Arena *a, const char *path, const char *text, Profile *p, Diag *d)
{
	Reader r = { .a = a, .d = d, .p = p };

	*p = (Profile){ .file = path };
	map_init(&r.id, a, true);
	for (const char *s = text; *s;) {
		size_t n = strcspn(s, "\n");
		char *line = arena_strn(a, s, n);
		const bool indented = *line == ' ' || *line == '\t';

		s += n + (s[n] == '\n');
		r.line++;
		while (*line == ' ' || *line == '\t')
			line++;
		for (n = strlen(line); n && strchr(" \t\r", line[n - 1]); n--)
			line[n - 1] = 0;
		if (*line && !(indented ? read_edge : read_layer)(&r, line))
			return false;
	}
	if (!p->n)
		return diag_error(d, FILELOC(path), E_FORM, "the profile has no layer");
	if (!profile_order(a, p, NEWN(a, int, p->n)))
		return diag_error(d, FILELOC(path), E_CYCLE, "the edges of the profile form a cycle");
	return true;
}

bool profile_read(Arena *a, const char *path, Profile *p, Diag *d)
{
	char *text = file_read(path, NULL);

	if (!text)
		return diag_error(d, FILELOC(path), E_READ, "cannot read the profile: %s", strerror(errno));
	const bool ok = profile_parse(a, path, text, p, d);
	free(text);
	return ok;
}

bool profile_order(Arena *a, const Profile *p, int *order)
{
	int *wait = NEWN(a, int, p->n), *first = NEWN(a, int, p->n + 1), *to = NEWN(a, int, p->nedge), n = 0;

	for (int e = 0; e < p->nedge; e++) {
		wait[p->edge[e].to]++;
		first[p->edge[e].from + 1]++;
	}
	for (int i = 0; i < p->n; i++)
		first[i + 1] += first[i];
	int *at = arena_dup(a, first, (size_t)p->n * sizeof *at);
	for (int e = 0; e < p->nedge; e++)
		to[at[p->edge[e].from]++] = p->edge[e].to;
	for (int i = 0; i < p->n; i++)
		if (!wait[i])
			order[n++] = i;
	for (int i = 0; i < n; i++)
		for (int e = first[order[i]]; e < first[order[i] + 1]; e++)
			if (--wait[to[e]] == 0)
				order[n++] = to[e];
	return n == p->n;
}

/* Keeps the layers that are not marked, and the edges between them. */
static void drop(Arena *a, Profile *p, const bool *gone)
{
	int *at = NEWN(a, int, p->n), n = 0, nedge = 0;

	for (int i = 0; i < p->n; i++)
		if (!gone[i]) {
			at[i] = n;
			p->layer[n++] = p->layer[i];
		}
	for (int e = 0; e < p->nedge; e++)
		if (!gone[p->edge[e].from] && !gone[p->edge[e].to])
			p->edge[nedge++] = (Edge){ at[p->edge[e].from], at[p->edge[e].to] };
	p->n = n;
	p->nedge = nedge;
}

void profile_trim(Arena *a, Profile *p)
{
	static const char *const word[2] = { "Input", "__getitem__" };

	for (int side = 0; side < 2; side++) { /* sources, then sinks of what is left */
		bool *has = NEWN(a, bool, p->n), *gone = NEWN(a, bool, p->n);

		for (int e = 0; e < p->nedge; e++)
			has[side ? p->edge[e].from : p->edge[e].to] = true;
		for (int i = 0; i < p->n; i++)
			gone[i] = !has[i] && strncmp(p->layer[i].desc, word[side], strlen(word[side])) == 0;
		drop(a, p, gone);
	}
}

bool profile_without(Arena *a, Profile *p, const char *id, Diag *d)
{
	bool *gone = NEWN(a, bool, p->n), *used = NEWN(a, bool, p->n);
	int *order = NEWN(a, int, p->n), at = 0;

	while (at < p->n && strcmp(p->layer[at].id, id) != 0)
		at++;
	if (at == p->n)
		return diag_error(d, FILELOC(p->file), E_NAME, "there is no layer '%s' to leave out", id);
	gone[at] = true;
	profile_order(a, p, order);
	for (int i = p->n - 1; i >= 0; i--) { /* a layer goes when it has consumers and all of them go */
		const int v = order[i];
		bool some = false, all = true;

		for (int e = 0; e < p->nedge; e++)
			if (p->edge[e].from == v) {
				some = true;
				all &= gone[p->edge[e].to];
			}
		gone[v] |= some && all;
	}
	for (int e = 0; e < p->nedge; e++) /* what comes behind the layer cannot do without it */
		used[p->edge[e].to] |= gone[p->edge[e].from];
	for (int i = 0; i < p->n; i++)
		if (used[i] && !gone[i])
			return diag_error(d, FILELOC(p->file), E_NAME,
				"layer '%s' is needed by '%s'; only a sink and what leads to it "
				"alone can be left out",
				id, p->layer[i].id);
	drop(a, p, gone);
	return true;
}

bool profile_repeat(Arena *a, const Profile *p, const char *id, int copies, Profile *to, Diag *d)
{
	const int more = copies - 1;
	int at = 0;

	while (at < p->n && strcmp(p->layer[at].id, id) != 0)
		at++;
	if (at == p->n)
		return diag_error(d, FILELOC(p->file), E_NAME, "there is no layer '%s' to repeat", id);
	*to = *p;
	to->layer = NEWN(a, Layer, p->n + more);
	to->edge = NEWN(a, Edge, p->nedge + more);
	memcpy(to->layer, p->layer, sizeof *p->layer * (size_t)p->n);
	if (p->nedge)
		memcpy(to->edge, p->edge, sizeof *p->edge * (size_t)p->nedge);
	for (int e = 0; e < p->nedge && more; e++)
		if (p->edge[e].from == at)
			to->edge[e].from = p->n + more - 1;
	for (int i = 0; i < more; i++) {
		to->layer[to->n] = p->layer[at];
		to->layer[to->n].id = arena_printf(a, "%s.%d", id, i + 2);
		to->edge[to->nedge++] = (Edge){ i ? to->n - 1 : at, to->n };
		to->n++;
	}
	return true;
}

void profile_compress(Arena *a, Profile *p)
{
	int *in = NEWN(a, int, p->n), *out = NEWN(a, int, p->n), *from = NEWN(a, int, p->n);
	int *order = NEWN(a, int, p->n), *last = NEWN(a, int, p->n), nedge = 0;
	bool *branch = NEWN(a, bool, p->n), *gone = NEWN(a, bool, p->n);

	for (int e = 0; e < p->nedge; e++) {
		out[p->edge[e].from]++;
		in[p->edge[e].to]++;
		from[p->edge[e].to] = p->edge[e].from;
	}
	profile_order(a, p, order);
	for (int i = 0; i < p->n; i++) { /* a branch goes on with its producer or begins anew */
		const int v = order[i], u = from[v];

		last[v] = v;
		branch[v] = in[v] == 1 && (out[u] > 1 || branch[u]);
		if (!branch[v] || out[u] > 1)
			continue;
		Layer *to = &p->layer[v], *of = &p->layer[u];
		to->forward += of->forward;
		to->backward += of->backward;
		to->parameters += of->parameters;
		gone[u] = true;
	}
	for (int i = p->n - 1; i >= 0; i--) /* a layer that is gone lives on in its consumer */
		for (int e = 0; gone[order[i]] && e < p->nedge; e++)
			if (p->edge[e].from == order[i])
				last[order[i]] = last[p->edge[e].to];
	for (int e = 0; e < p->nedge; e++) {
		const Edge to = { last[p->edge[e].from], last[p->edge[e].to] };

		if (to.from != to.to)
			p->edge[nedge++] = to;
	}
	p->nedge = nedge;
	drop(a, p, gone);
}

void profile_share(
	Arena *a, const Profile *p, int degree, int sums, bool sequence, double bandwidth, double latency, Profile *to)
{
	*to = *p;
	if (degree < 2)
		return;
	to->layer = arena_dup(a, p->layer, sizeof *p->layer * (size_t)p->n);
	for (int i = 0; i < p->n; i++) {
		Layer *l = &to->layer[i];
		const double sum = 2 * latency + 2.0 * (degree - 1) / degree * l->activation / bandwidth;
		if (l->parameters <= 0)
			continue;
		l->forward = l->forward / degree + sums * sum;
		l->backward = l->backward / degree + sums * sum;
		l->parameters /= degree;
		l->activation /= sequence ? degree : 1;
	}
}

void profile_scale(Profile *p, double time, double activation, double parameters)
{
	for (int i = 0; i < p->n; i++) {
		p->layer[i].forward *= time;
		p->layer[i].backward *= time;
		p->layer[i].activation *= activation;
		p->layer[i].parameters *= parameters;
	}
}
