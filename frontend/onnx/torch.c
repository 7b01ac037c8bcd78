/* What PyTorch's newer exporter (torch.onnx.export with dynamo=True) writes beside a graph, as metadata_props: the
 * signature of the exported program says which initializers were parameters of the model, and the call that a node came
 * from says whether a BatchNormalization was in training mode (the node itself says inference in either case). */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "torch.h"

/* field numbers of metadata_props in ONNX 1.16 and later */
enum { GRAPH_META = 16, NODE_META = 9, VALUE_META = 4 };

/* ---- metadata: a field of its own, or unknown to the ONNX that pdcc was built with ---- */

/* One length-delimited field at *p of a message that ends at end: its number and contents; false at the end or at
 * anything else. */
static bool next_field(const uint8_t **p, const uint8_t *end, unsigned *number, const char **s, size_t *n)
{
	uint64_t v[2] = { 0, 0 };

	for (int k = 0; k < 2; k++)
		for (int shift = 0;; shift += 7) {
			if (*p >= end || shift > 56)
				return false;
			uint8_t c = *(*p)++;
			v[k] |= (uint64_t)(c & 127) << shift;
			if (c < 128)
				break;
		}
	if ((v[0] & 7) != 2 || v[1] > (uint64_t)(end - *p))
		return false;
	*number = (unsigned)(v[0] >> 3);
	*s = (const char *)*p;
	*n = (size_t)v[1];
	*p += v[1];
	return true;
}

static const char *unknown_entry(Arena *a, const ProtobufCMessageUnknownField *f, const char *key)
{
	const uint8_t *p = f->data, *end = p + f->len;
	const char *s, *k = NULL, *v = NULL;
	size_t n, kn = 0, vn = 0;
	unsigned number;

	while (p < end && *p++ & 128) /* the length of the entry */
		continue;
	while (next_field(&p, end, &number, &s, &n)) {
		if (number == 1)
			k = s, kn = n;
		else if (number == 2)
			v = s, vn = n;
	}
	return k && v && kn == strlen(key) && memcmp(k, key, kn) == 0 ? arena_strn(a, v, vn) : NULL;
}

/* Value of metadata `key` of a message whose metadata_props has this number; NULL: none. */
static const char *metadata(Arena *a, const ProtobufCMessage *m, unsigned field, const char *key)
{
	const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(m->descriptor, field);

	if (f) {
		const char *base = (const char *)m;
		size_t n = *(const size_t *)(const void *)(base + f->quantifier_offset);
		const void *list = base + f->offset;
		Onnx__StringStringEntryProto *const *e = *(Onnx__StringStringEntryProto *const *const *)list;

		for (size_t i = 0; i < n; i++)
			if (e[i]->key && strcmp(e[i]->key, key) == 0)
				return e[i]->value;
	}
	for (unsigned i = 0; i < m->n_unknown_fields; i++) {
		const ProtobufCMessageUnknownField *u = &m->unknown_fields[i];
		bool entry = u->tag == field && u->wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
		const char *v = entry ? unknown_entry(a, u, key) : NULL;

		if (v)
			return v;
	}
	return NULL;
}

const char *torch_folded_from(Arena *a, const Onnx__ValueInfoProto *v)
{
	return metadata(a, &v->base, VALUE_META, "pkg.onnxscript.optimizer.folded_from");
}

const char *torch_call(Arena *a, const OnnxNode *n)
{
	return metadata(a, &n->base, NODE_META, "pkg.torch.onnx.fx_node");
}

/* The string of Python at s, without its quotes; *end: behind it. */
static const char *python_string(Arena *a, const char *s, const char **end)
{
	const char quote = *s++;
	char *text = arena_strn(a, s, strlen(s)), *to = text;

	for (; *s && *s != quote; s++) {
		s += *s == '\\' && s[1];
		*to++ = *s;
	}
	*to = 0;
	*end = s + (*s == quote);
	return text;
}

/* "['', 'blocks.3', 'blocks.3.down', 'linear_7']": the modules that are open, by their whole names, then the call. */
const char *torch_module(Arena *a, const OnnxNode *n)
{
	const char *s = metadata(a, &n->base, NODE_META, "pkg.torch.onnx.name_scopes"), *last = "", *module = "";

	while (s && (s = strpbrk(s, "'\"")) != NULL) {
		module = last;
		last = python_string(a, s, &s);
	}
	return *module && *module != '_' ? module : NULL; /* _empty_nn_module_stack...: a node of the exporter's own */
}

/* ---- the signature: lines  PLACE: PARAMETER target='NAME',  PLACE: BUFFER target='NAME' ...; before PyTorch 2.7
 * (kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='PLACE'), target='NAME') ... ---- */

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool word_at(const char *s, const char *start, const char *word)
{
	size_t n = strlen(word);

	return strncmp(s, word, n) == 0 && !word_char(s[n]) && (s == start || !word_char(s[-1]));
}

/* The word before the colon that begins the line of `at`, else the name before it; not before start. */
static const char *place_of(Arena *a, const char *at, const char *start)
{
	static const char name[] = "name='";
	const char *line = at, *p = at;

	while (line > start && line[-1] != '\n')
		line--;
	line += strspn(line, " \t");
	const char *end = line;
	while (word_char(*end))
		end++;
	if (end > line && *end == ':')
		return arena_strn(a, line, (size_t)(end - line));
	while (p > start && strncmp(p, name, sizeof name - 1))
		p--;
	p += sizeof name - 1;
	return p < at && strncmp(p - (sizeof name - 1), name, sizeof name - 1) == 0 ? arena_strn(a, p, strcspn(p, "'"))
	                                                                            : NULL;
}

Map *torch_signature(Arena *a, const OnnxGraph *g)
{
	static const char mark[] = "target='";
	const char *s = metadata(a, &g->base, GRAPH_META, "pkg.torch.export.ExportedProgram.graph_signature");
	Map *sig = NEW(a, Map);
	const char *last = s;
	bool known = false, param = false;

	if (!s)
		return NULL;
	map_init(sig, a, true);
	for (const char *p = s; *p; p++) {
		if (word_at(p, s, "PARAMETER"))
			known = param = true;
		else if (word_at(p, s, "BUFFER") || word_at(p, s, "CONSTANT_TENSOR"))
			known = true, param = false;
		if (strncmp(p, mark, sizeof mark - 1))
			continue;
		const char *name = p + sizeof mark - 1, *end = strchr(name, '\'');
		if (!end)
			break;
		TorchTarget t = { param, place_of(a, p, last) };
		const char *key = arena_strn(a, name, (size_t)(end - name));
		if (known && !map_has(sig, key)) /* outputs name their targets again */
			map_put(sig, key, arena_dup(a, &t, sizeof t));
		known = false;
		last = p = end;
	}
	for (size_t i = 0; i < g->n_initializer; i++)
		if (g->initializer[i]->name && map_has(sig, g->initializer[i]->name))
			return sig;
	return NULL; /* everything was renamed since */
}

bool torch_is_param(const Map *sig, const char *name)
{
	const TorchTarget *t = map_get(sig, name);

	return t && t->param;
}

/* ---- nodes ---- */

bool torch_bn_training(Arena *a, const OnnxNode *n)
{
	const char *call = torch_call(a, n), *args = call ? strstr(call, "_batch_norm_legit") : NULL;

	return args && !strstr(args, "no_training") && strstr(args, ", True, ");
}
