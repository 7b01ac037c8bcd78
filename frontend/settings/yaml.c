/* libyaml's document API behind a table of keys. */
#include "yaml.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/buf.h"

Loc yaml_loc(const Yaml *y, const YNode *at)
{
	return TEXTLOC(y->file, at ? (int)at->start_mark.line + 1 : 1, at ? (int)at->start_mark.column + 1 : 1);
}

bool yaml_error(Yaml *y, const YNode *at, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	const char *s = arena_vprintf(y->a, fmt, ap);
	va_end(ap);
	y->ok = false;
	return diag_error(y->d, yaml_loc(y, at), 104, "%s", s);
}

/* The place of byte `at` of text, as libyaml counts: it has none for bytes that are no UTF-8 or no text. */
static yaml_mark_t mark_of(const char *text, size_t at)
{
	yaml_mark_t m = { .index = at };

	for (size_t i = 0; i < at; i++) {
		const bool end = text[i] == '\n';
		m.line += end;
		m.column = end ? 0 : m.column + ((text[i] & 0xC0) != 0x80);
	}
	return m;
}

/* libyaml's words for what people write most often, in theirs. */
static const char *syntax_words(const char *problem, char at)
{
	if (at == '\t')
		return "there is a tab here; YAML indents with blanks only";
	if (!strcmp(problem, "mapping values are not allowed in this context"))
		return "a second ': ' in one value; quote the value, or begin a line of its own for the key";
	if (!strcmp(problem, "found character that cannot start any token"))
		return "a value cannot begin with this character; quote it";
	return strstr(problem, "UTF-8") ? "the text is not UTF-8 here; save the file as UTF-8" : problem;
}

/* What libyaml does not like, with what it was reading: where the text ends too early, the place is where that began. */
static bool syntax_error(Yaml *y, const yaml_parser_t *p, const char *text, size_t n)
{
	const yaml_mark_t at = p->error == YAML_READER_ERROR && p->problem_offset <= n
	                               ? mark_of(text, p->problem_offset)
	                               : p->problem_mark;
	const yaml_mark_t from = p->context_mark;
	const bool ends = at.index >= n && p->context && from.index < n;
	const char *problem = syntax_words(p->problem ? p->problem : "not YAML", at.index < n ? text[at.index] : 0);
	const yaml_mark_t *place = ends ? &from : &at;
	const Loc loc = TEXTLOC(y->file, (int)place->line + 1, (int)place->column + 1);

	y->ok = false;
	if (ends)
		return diag_error(y->d, loc, 102, "%s, which begins here: %s%s", p->context, problem,
			strstr(problem, "end of stream") ? "" : " before the end of the file");
	if (!p->context || from.line == at.line || problem != p->problem)
		return diag_error(y->d, loc, 102, "%s", problem);
	return diag_error(y->d, loc, 102, "%s, which begins on line %d: %s", p->context, (int)from.line + 1, problem);
}

/* Aliases would let a small file grow without bound; tags and several documents have no meaning here. */
static bool tokens_ok(Yaml *y, const char *text, size_t n)
{
	yaml_parser_t p;
	yaml_event_t e;
	int documents = 0, depth = 0;
	bool done = false;

	if (!yaml_parser_initialize(&p))
		return diag_error(y->d, FILELOC(y->file), 101, "out of memory");
	yaml_parser_set_input_string(&p, (const unsigned char *)text, n);
	while (!done && y->ok) {
		Loc loc;

		if (!yaml_parser_parse(&p, &e)) {
			syntax_error(y, &p, text, n);
			break;
		}
		loc = TEXTLOC(y->file, (int)e.start_mark.line + 1, (int)e.start_mark.column + 1);
		bool opens = e.type == YAML_MAPPING_START_EVENT || e.type == YAML_SEQUENCE_START_EVENT;
		const unsigned char *tag = e.type == YAML_SCALAR_EVENT           ? e.data.scalar.tag
		                           : e.type == YAML_MAPPING_START_EVENT  ? e.data.mapping_start.tag
		                           : e.type == YAML_SEQUENCE_START_EVENT ? e.data.sequence_start.tag
		                                                                 : NULL;
		depth += opens - (e.type == YAML_MAPPING_END_EVENT || e.type == YAML_SEQUENCE_END_EVENT);
		if (e.type == YAML_ALIAS_EVENT)
			y->ok = diag_error(
				y->d, loc, 102, "aliases (*%s) are not supported", (const char *)e.data.alias.anchor);
		else if (tag)
			y->ok = diag_error(y->d, loc, 102, "tags (%s) are not supported", (const char *)tag);
		else if (e.type == YAML_DOCUMENT_START_EVENT && ++documents > 1)
			y->ok = diag_error(y->d, loc, 102, "a second document; one file holds one");
		else if (depth > 32)
			y->ok = diag_error(y->d, loc, 102, "nested more than 32 deep");
		done = e.type == YAML_STREAM_END_EVENT;
		yaml_event_delete(&e);
	}
	yaml_parser_delete(&p);
	return y->ok;
}

/* libyaml takes no key above 1024 characters that does not say that it is one; names of parameters are keys of plan.json. In text that
 * begins as JSON such keys get the `? ` that says so. Gives what it was given, or frees it. */
static char *with_long_keys(char *text, size_t *n)
{
	Buf b = { 0 };
	size_t done = 0;
	char before = 0;

	for (size_t i = 0; *text == '{' && i < *n; i++) {
		const size_t from = i;

		if (text[i] == '"')
			for (i++; i < *n && text[i] != '"'; i++)
				i += text[i] == '\\';
		if (i >= *n)
			break;
		if (i - from > 500 && text[i + 1] == ':' && (before == '{' || before == ',')) {
			buf_add(&b, text + done, from - done);
			buf_puts(&b, "? ");
			done = from;
		}
		before = isspace((unsigned char)text[i]) ? before : text[i];
	}
	if (!done)
		return text;
	buf_add(&b, text + done, *n - done);
	free(text);
	*n = b.n;
	return b.s;
}

bool yaml_open(Yaml *y, Arena *a, const char *path, Diag *d)
{
	size_t n;
	char *text = file_read(path, &n);
	const bool number = *path && path[strspn(path, "0123456789")] == 0; /* --cluster 4 */
	yaml_parser_t p;

	*y = (Yaml){ .a = a, .d = d, .file = arena_str(a, path), .ok = true };
	if (!text)
		return diag_error(d, FILELOC(y->file), 101, "cannot read the file: %s%s%s", strerror(errno),
			number ? "; for that many devices of this machine: local:" : "", number ? path : "");
	text = with_long_keys(text, &n);
	if (!tokens_ok(y, text, n)) {
		free(text);
		return false;
	}
	yaml_parser_initialize(&p);
	yaml_parser_set_input_string(&p, (const unsigned char *)text, n);
	if (!yaml_parser_load(&p, &y->doc))
		syntax_error(y, &p, text, n);
	else if (!yaml_document_get_root_node(&y->doc)) {
		yaml_document_delete(&y->doc);
		y->ok = diag_error(d, FILELOC(y->file), 102, "the file holds nothing");
	}
	yaml_parser_delete(&p);
	free(text);
	return y->ok;
}

void yaml_close(Yaml *y) { yaml_document_delete(&y->doc); }

/* ---- structure ---- */

static const char *scalar(const YNode *n)
{
	return n->type == YAML_SCALAR_NODE ? (const char *)n->data.scalar.value : NULL;
}

/* A value in a message: its first line. */
static const char *shown(Yaml *y, const char *s)
{
	const size_t n = strcspn(s, "\n");

	return s[n] ? arena_printf(y->a, "%.*s...", (int)n, s) : s;
}

static bool repeated(Yaml *y, const YNode *n, const yaml_node_pair_t *at)
{
	const YNode *k = yaml_document_get_node(&y->doc, at->key);

	for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < at; p++) {
		const YNode *o = yaml_document_get_node(&y->doc, p->key);

		if (scalar(o) && strcmp(scalar(o), scalar(k)) == 0) {
			yaml_error(y, k, "key '%s' is there twice; first on line %d", scalar(k),
				(int)o->start_mark.line + 1);
			return true;
		}
	}
	return false;
}

void yaml_map(Yaml *y, const YNode *n, const char *what, const YKey *keys, int nkeys, void *to)
{
	if (n->type != YAML_MAPPING_NODE) {
		const char *s = scalar(n), *colon = s ? strchr(s, ':') : NULL;

		yaml_error(y, n, "%s must be a mapping (key: value)%s%s%s%s", what, s ? ", not '" : "",
			s ? shown(y, s) : "", s ? "'" : "",
			colon && colon[1] && colon[1] != ' ' ? "; a blank belongs behind the colon"
			: s && *s                            ? yaml_as_mapping(y, what, shown(y, s))
							     : "");
		return;
	}
	for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++) {
		const YNode *k = yaml_document_get_node(&y->doc, p->key),
			    *v = yaml_document_get_node(&y->doc, p->value);
		int i = 0;

		if (!scalar(k)) {
			yaml_error(y, k, "a key in %s is not a word", what);
			continue;
		}
		while (i < nkeys && strcmp(keys[i].name, scalar(k)))
			i++;
		if (i == nkeys)
			yaml_unknown_key(y, k, what, keys, nkeys);
		else if (!repeated(y, n, p))
			keys[i].read(y, v, to);
	}
}

const YNode **yaml_items(Yaml *y, const YNode *n, const char *what, int *count)
{
	const YNode **v;

	*count = 0;
	if (n->type == YAML_SCALAR_NODE) {
		v = NEWN(y->a, const YNode *, 1);
		v[(*count)++] = n;
		return v;
	}
	if (n->type != YAML_SEQUENCE_NODE) {
		yaml_error(y, n, "%s must be a list", what);
		return NULL;
	}
	v = NEWN(y->a, const YNode *, n->data.sequence.items.top - n->data.sequence.items.start);
	for (const yaml_node_item_t *p = n->data.sequence.items.start; p < n->data.sequence.items.top; p++)
		v[(*count)++] = yaml_document_get_node(&y->doc, *p);
	return v;
}

int yaml_pairs(Yaml *y, const YNode *n, const char *what, const char ***key, const YNode ***value)
{
	int count = 0;

	if (n->type != YAML_MAPPING_NODE) {
		yaml_error(y, n, "%s must be a mapping (name: value)", what);
		return 0;
	}
	size_t most = (size_t)(n->data.mapping.pairs.top - n->data.mapping.pairs.start);
	*key = NEWN(y->a, const char *, most);
	*value = NEWN(y->a, const YNode *, most);
	for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++) {
		const YNode *k = yaml_document_get_node(&y->doc, p->key);

		if (!scalar(k)) {
			yaml_error(y, k, "a key in %s is not a word", what);
			continue;
		}
		if (repeated(y, n, p))
			continue;
		(*key)[count] = arena_str(y->a, scalar(k));
		(*value)[count++] = yaml_document_get_node(&y->doc, p->value);
	}
	return count;
}

void yaml_ignore(Yaml *y, const YNode *v, void *to)
{
	(void)to;
	diag_note(y->d, TEXTLOC(y->file, (int)v->start_mark.line + 1, (int)v->start_mark.column + 1),
		"this setting has no effect yet");
}

/* ---- scalars ---- */

const char *yaml_text(Yaml *y, const YNode *n, const char *what)
{
	if (!scalar(n)) {
		yaml_error(y, n, "%s must be one word or number, not a %s", what,
			n->type == YAML_MAPPING_NODE ? "mapping" : "list");
		return NULL;
	}
	if (n->data.scalar.length != strlen(scalar(n))) {
		yaml_error(y, n, "%s holds a zero byte", what);
		return NULL;
	}
	return arena_str(y->a, scalar(n));
}

bool yaml_is(const YNode *n, const char *word)
{
	return n->type == YAML_SCALAR_NODE && !strcmp((const char *)n->data.scalar.value, word);
}

int64_t yaml_int(Yaml *y, const YNode *n, const char *what, int64_t lo, int64_t hi)
{
	const char *s = yaml_text(y, n, what);
	char *end;

	if (!s)
		return lo;
	errno = 0;
	long long v = strtoll(s, &end, 10);
	if (end == s || *end || errno) {
		yaml_error(y, n, "%s must be a whole number, not '%s'", what, shown(y, s));
		return lo;
	}
	if (v < lo || v > hi) {
		yaml_error(y, n, "%s is %lld; it must lie in %lld..%lld", what, v, (long long)lo, (long long)hi);
		return lo;
	}
	return v;
}

double yaml_real(Yaml *y, const YNode *n, const char *what, double lo, double hi)
{
	const char *s = yaml_text(y, n, what);
	char *end;

	if (!s)
		return lo;
	double v = strtod(s, &end);
	if (end == s || *end || !isfinite(v)) {
		yaml_error(y, n, "%s must be a number, not '%s'", what, shown(y, s));
		return lo;
	}
	if (v < lo || v > hi) {
		yaml_error(y, n, "%s is %.15g; it must lie in %.15g..%.15g", what, v, lo, hi);
		return lo;
	}
	return v;
}

int yaml_choice(Yaml *y, const YNode *n, const char *what, const char *const *words, int nwords)
{
	const char *s = yaml_text(y, n, what);
	Buf b = { 0 };

	for (int i = 0; s && i < nwords; i++)
		if (strcmp(words[i], s) == 0)
			return i;
	if (!s)
		return 0;
	for (int i = 0; i < nwords; i++)
		buf_printf(&b, "%s%s", i ? ", " : "", words[i]);
	const char *near = diag_nearest(s, words, nwords);
	if (near)
		yaml_error(y, n, "%s is '%s'; did you mean '%s'?", what, shown(y, s), near);
	else
		yaml_error(y, n, "%s is '%s'; it must be one of %s", what, shown(y, s), buf_str(&b));
	buf_free(&b);
	return 0;
}

int yaml_setting(Yaml *y, const YNode *n, const char *what, SettingSet set)
{
	const SettingWords w = setting_words(set);

	return w.first + yaml_choice(y, n, what, w.word, w.n);
}

bool yaml_bool(Yaml *y, const YNode *n, const char *what)
{
	static const char *const words[] = { "false", "true", "no", "yes", "off", "on" };

	return yaml_choice(y, n, what, words, 6) & 1;
}

/* ---- quantities ---- */

typedef struct Unit {
	const char *name;
	double factor;
} Unit;

static const Unit rates[] = {
	{ "b/s", 0.125 },
	{ "kb/s", 125 },
	{ "Kb/s", 125 },
	{ "Mb/s", 125e3 },
	{ "Gb/s", 125e6 },
	{ "Tb/s", 125e9 },
	{ "B/s", 1 },
	{ "kB/s", 1e3 },
	{ "KB/s", 1e3 },
	{ "MB/s", 1e6 },
	{ "GB/s", 1e9 },
	{ "TB/s", 1e12 },
	{ "KiB/s", 1024 },
	{ "MiB/s", 1048576 },
	{ "GiB/s", 1073741824 },
	{ "TiB/s", 1099511627776 },
};
static const Unit flops[] = { { "MFLOP/s", 1e6 }, { "GFLOP/s", 1e9 }, { "TFLOP/s", 1e12 }, { "PFLOP/s", 1e15 } };
static const Unit sizes[] = {
	{ "B", 1 },
	{ "kB", 1e3 },
	{ "KB", 1e3 },
	{ "MB", 1e6 },
	{ "GB", 1e9 },
	{ "TB", 1e12 },
	{ "KiB", 1024 },
	{ "MiB", 1048576 },
	{ "GiB", 1073741824 },
	{ "TiB", 1099511627776 },
};
static const Unit times[] = { { "ns", 1e-9 }, { "us", 1e-6 }, { "ms", 1e-3 }, { "s", 1 }, { "min", 60 }, { "h", 3600 },
	{ "d", 86400 } };
static const Unit powers[] = { { "W", 1 }, { "kW", 1e3 }, { "MW", 1e6 } };

#define COUNT(x) ((int)(sizeof(x) / sizeof *(x)))

/* Number and unit of s; the unit's factor, 0 when the unit is missing, -1 when it is unknown, -2 when no number. */
static double quantity(const char *s, const Unit *u, int n, double *value)
{
	char *end;

	*value = strtod(s, &end);
	if (end == s || !isfinite(*value) || *value < 0)
		return -2;
	while (*end == ' ')
		end++;
	if (!*end)
		return 0;
	for (int i = 0; i < n; i++)
		if (strcmp(u[i].name, end) == 0)
			return u[i].factor;
	return -1;
}

static double measured(Yaml *y, const YNode *n, const char *what, const Unit *u, int count, const char *example)
{
	const char *s = yaml_text(y, n, what);
	double v = 0, f = s ? quantity(s, u, count, &v) : 0;

	if (!s)
		return 0;
	if (f == 0)
		yaml_error(y, n, "%s is the bare number '%s'; say the unit, for example '%s %s'", what, s, s, example);
	else if (f == -2)
		yaml_error(y, n, "%s must be a number with a unit, not '%s'; for example '10 %s'", what, s, example);
	else if (f == -1) {
		Buf b = { 0 };

		for (int i = 0; i < count; i++)
			buf_printf(&b, "%s%s", i ? ", " : "", u[i].name);
		yaml_error(y, n, "%s is '%s'; known units are %s", what, s, buf_str(&b));
		buf_free(&b);
	}
	return f > 0 ? v * f : 0;
}

double yaml_rate(Yaml *y, const YNode *n, const char *what)
{
	double v = measured(y, n, what, rates, COUNT(rates), "Gb/s");

	if (y->ok && v <= 0)
		yaml_error(y, n, "%s must be above 0", what);
	return v;
}

double yaml_flops(Yaml *y, const YNode *n, const char *what)
{
	return measured(y, n, what, flops, COUNT(flops), "TFLOP/s");
}

int64_t yaml_bytes(Yaml *y, const YNode *n, const char *what)
{
	double v = measured(y, n, what, sizes, COUNT(sizes), "GiB");

	if (v > 1e18) {
		yaml_error(y, n, "%s is too large", what);
		v = 0;
	}
	return (int64_t)v;
}

double yaml_seconds(Yaml *y, const YNode *n, const char *what)
{
	return measured(y, n, what, times, COUNT(times), "us");
}

double yaml_watts(Yaml *y, const YNode *n, const char *what)
{
	return measured(y, n, what, powers, COUNT(powers), "W");
}

bool parse_seconds(const char *s, double *out)
{
	const double f = quantity(s, times, COUNT(times), out);

	*out *= f;
	return f > 0;
}

bool parse_bytes(const char *s, int64_t *out)
{
	double v, f = quantity(s, sizes, COUNT(sizes), &v);

	*out = f > 0 && v * f < 1e18 ? (int64_t)(v * f) : 0;
	return *out > 0;
}

/* ---- gpu[01-02,7] ---- */

int expand_brackets(Arena *a, const char *s, const char ***out)
{
	const char *open = strchr(s, '['), *close = open ? strchr(open, ']') : NULL;
	int n = 0, cap = 0;

	*out = NULL;
	if (!close) {
		PUSH(a, *out, n, cap) = arena_str(a, s);
		return n;
	}
	for (const char *p = open + 1; p < close;) {
		char *end;
		long lo = strtol(p, &end, 10), hi = lo;
		int width = (int)(end - p);

		if (end == p || lo < 0)
			return 0;
		if (*end == '-') {
			const char *q = end + 1;

			hi = strtol(q, &end, 10);
			if (end == q)
				return 0;
		}
		if (hi < lo || hi > INT32_MAX || width > 10 || hi - lo > 4096 || n > 4096)
			return 0;
		for (long k = lo; k <= hi; k++)
			PUSH(a, *out, n, cap) = arena_printf(a, "%.*s%0*ld%s", (int)(open - s), s, width, k, close + 1);
		if (end < close && *end != ',')
			return 0;
		p = end + 1;
	}
	return n;
}

const YNode *yaml_get(Yaml *y, const YNode *n, const char *key)
{
	if (!n || n->type != YAML_MAPPING_NODE)
		return NULL;
	for (const yaml_node_pair_t *p = n->data.mapping.pairs.start; p < n->data.mapping.pairs.top; p++) {
		const YNode *k = yaml_document_get_node(&y->doc, p->key);
		if (k->type == YAML_SCALAR_NODE && strcmp((const char *)k->data.scalar.value, key) == 0)
			return yaml_document_get_node(&y->doc, p->value);
	}
	return NULL;
}
