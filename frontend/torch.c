/* What PyTorch's newer exporter (torch.onnx.export with dynamo=True) writes beside a graph, as metadata_props: the
 * signature of the exported program says which initializers were parameters of the model, and the call that a node came
 * from says whether a BatchNormalization was in training mode (the node itself says inference in either case).
 * An optimized export (the default) has weights folded into new initializers and equal ones merged; it is refused. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "onnx_file.h"

enum { GRAPH_META = 16, NODE_META = 9, VALUE_META = 4 };       /* field numbers of metadata_props in ONNX 1.16 and later */
enum { KIND_PARAM = 1, KIND_OTHER };

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

	while (p < end && *p++ & 128)   /* the length of the entry */
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
		Onnx__StringStringEntryProto *const *e = *(Onnx__StringStringEntryProto *const *const *)(const void *)(base + f->offset);

		for (size_t i = 0; i < n; i++)
			if (e[i]->key && strcmp(e[i]->key, key) == 0)
				return e[i]->value;
	}
	for (unsigned i = 0; i < m->n_unknown_fields; i++) {
		const ProtobufCMessageUnknownField *u = &m->unknown_fields[i];
		const char *v = u->tag == field && u->wire_type == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED ? unknown_entry(a, u, key) : NULL;

		if (v)
			return v;
	}
	return NULL;
}

/* ---- the signature: PARAMETER ... target='NAME', BUFFER ... target='NAME', ... ---- */

static bool word_at(const char *s, const char *start, const char *word)
{
	size_t n = strlen(word);

	return strncmp(s, word, n) == 0 && !isalpha((unsigned char)s[n]) && s[n] != '_' &&
		(s == start || (!isalpha((unsigned char)s[-1]) && s[-1] != '_'));
}

Map *torch_signature(Arena *a, const OnnxGraph *g)
{
	static const char mark[] = "target='";
	const char *s = metadata(a, &g->base, GRAPH_META, "pkg.torch.export.ExportedProgram.graph_signature");
	Map *sig = NEW(a, Map);
	uintptr_t kind = 0;

	if (!s)
		return NULL;
	map_init(sig, a, true);
	for (const char *p = s; *p; p++) {
		if (word_at(p, s, "PARAMETER"))
			kind = KIND_PARAM;
		else if (word_at(p, s, "BUFFER") || word_at(p, s, "CONSTANT_TENSOR"))
			kind = KIND_OTHER;
		if (strncmp(p, mark, sizeof mark - 1))
			continue;
		p += sizeof mark - 1;
		const char *end = strchr(p, '\'');
		if (!end)
			break;
		const char *name = arena_strn(a, p, (size_t)(end - p));
		if (kind && !map_has(sig, name))        /* outputs name their targets again */
			map_put(sig, name, (void *)kind);
		kind = 0;
		p = end;
	}
	for (size_t i = 0; i < g->n_initializer; i++)
		if (g->initializer[i]->name && map_has(sig, g->initializer[i]->name))
			return sig;
	return NULL;    /* everything was renamed since */
}

bool torch_is_param(const Map *sig, const char *name)
{
	return (uintptr_t)map_get(sig, name) == KIND_PARAM;
}

/* ---- optimized exports ---- */

/* The first parameter among the names that `list` (['a', 'b']) quotes. */
static const char *param_in(Arena *a, const Map *sig, const char *list)
{
	for (const char *p = strchr(list, '\''), *end; p && (end = strchr(p + 1, '\'')); p = strchr(end + 1, '\'')) {
		const char *name = arena_strn(a, p + 1, (size_t)(end - p - 1));

		if (torch_is_param(sig, name))
			return name;
	}
	return NULL;
}

bool torch_refuse(Import *im, const OnnxGraph *g)
{
	const Map *sig = im->torch;
	const char *from = NULL, *into = NULL, *gone = NULL;
	bool added = false;
	Map have;

	if (!sig)
		return true;
	map_init(&have, im->a, true);
	for (size_t i = 0; i < g->n_initializer; i++)
		if (g->initializer[i]->name) {
			map_put(&have, g->initializer[i]->name, im);
			added |= !map_has(sig, g->initializer[i]->name);
		}
	for (size_t i = 0; i < g->n_value_info && !from; i++) {
		const char *list = metadata(im->a, &g->value_info[i]->base, VALUE_META, "pkg.onnxscript.optimizer.folded_from");

		into = g->value_info[i]->name;
		from = list && into && map_has(&have, into) ? param_in(im->a, sig, list) : NULL;
	}
	for (size_t i = 0; i < sig->n && added && !gone; i++)   /* without added ones the exporter did not optimize: it is tied */
		if ((uintptr_t)sig->slot[i].val == KIND_PARAM && !map_has(&have, sig->slot[i].key))
			gone = sig->slot[i].key;
	if (!from && !gone)
		return true;
	if (from)
		diag_error(im->d, FILELOC(im->path), 208, "this is an optimized export: parameter '%s' was folded into '%s'", from, into);
	else
		diag_error(im->d, FILELOC(im->path), 208, "this is an optimized export: parameter '%s' was folded or merged away", gone);
	diag_note(im->d, FILELOC(im->path), "export for training: torch.onnx.export(model.train(), args, path, dynamo=True, optimize=False)");
	return false;
}

/* ---- nodes ---- */

bool torch_bn_training(Arena *a, const OnnxNode *n)
{
	const char *call = metadata(a, &n->base, NODE_META, "pkg.torch.onnx.fx_node");
	const char *args = call ? strstr(call, "_batch_norm_legit") : NULL;

	return args && !strstr(args, "no_training") && strstr(args, ", True, ");
}
