/* Weights out: the initial values as safetensors, the trained ones back into an ONNX file as external data. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/buf.h"
#include "runtime/state/safetensors.h"
#include "inline.h"
#include "frontend/onnx/torch.h"

static bool listed(Value *const *param, int n, const Value *v)
{
	for (int i = 0; v && i < n; i++)
		if (param[i] == v)
			return true;
	return false;
}

/* Weights and buffers of these params as safetensors entries; *count of them. Pieces of a table are entries of their own
 * where it is not listed itself. */
static st_tensor *entries(Arena *a, Value *const *param, int n, int *count)
{
	st_tensor *t = NEWN(a, st_tensor, n);

	*count = 0;
	for (int i = 0; i < n; i++) {
		const Value *v = param[i];

		if (v->param->kind == PARAM_STATE || listed(param, n, v->param->whole))
			continue;
		st_tensor *x = &t[(*count)++];
		x->name = arena_str(a, v->param->onnx_name ? v->param->onnx_name : v->name);
		if (v->param->whole)
			x->name =
				arena_printf(a, "%s" ST_PIECE, x->name, v->param->row, v->param->row + v->type.dim[0]);
		strncpy(x->dtype, st_dtype(dtype_onnx(v->type.dtype)), sizeof x->dtype - 1);
		const Type whole = shard_stored(v);

		x->rank = whole.rank;
		for (int k = 0; k < x->rank; k++)
			x->dim[k] = whole.dim[k];
		x->data = (const char *)v;
	}
	return t;
}

/* Counter-based numbers in (-1, 1): the same on every machine. */
static double uniform(uint64_t seed, uint64_t tensor, uint64_t i)
{
	uint64_t x = seed * 0x9E3779B97F4A7C15u ^ tensor * 0xD6E8FEB86659FD93u;

	x = (x ^ (x >> 32)) * 0xBF58476D1CE4E5B9u + i;
	x = (x ^ (x >> 30)) * 0x94D049BB133111EBu;
	x = (x ^ (x >> 27)) * 0xBF58476D1CE4E5B9u;
	return (double)((x ^ (x >> 31)) >> 11) * 0x1p-52 - 1;
}

/* FNV-1a: a parameter begins with the same values whatever stage it lies in. */
static uint64_t key_of(const char *name)
{
	uint64_t h = 0xCBF29CE484222325u;

	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * 0x100000001B3u;
	return h;
}

/* Random weights keep the size of activations: uniform in 1 / sqrt(inputs); vectors start small. */
static bool write_filled(FILE *f, const Value *v)
{
	const Type whole = shard_stored(v), *t = &whole;
	const int64_t n = type_numel(t), fan = t->rank > 1 ? n / t->dim[0] : 0;
	const double r = v->param->random && fan > 0 ? 1 / sqrt((double)fan) : v->param->fill;
	const uint64_t key = key_of(v->param->whole ? v->param->whole->name : v->name);
	const uint64_t first = v->param->whole ? (uint64_t)(v->param->row * (n / t->dim[0])) : 0;
	union {
		float f[2048];
		double d[2048];
	} block;
	const size_t size = t->dtype == DT_f64 ? sizeof(double) : sizeof(float);

	for (int64_t at = 0; at < n; at += 2048) {
		const size_t k = n - at < 2048 ? (size_t)(n - at) : 2048;

		for (size_t i = 0; i < k; i++) {
			const double x = v->param->random ? r * uniform((uint64_t)v->param->random, key,
									first + (uint64_t)at + i)
			                                  : r;

			if (t->dtype == DT_f64)
				block.d[i] = x;
			else
				block.f[i] = (float)x;
		}
		if (fwrite(&block, size, k, f) != k)
			return false;
	}
	return true;
}

/* Bytes of a mapped file are not held in memory longer than it takes to write them. */
static bool write_data(FILE *f, const Param *p, size_t bytes)
{
	enum { BLOCK = 4 << 20 };
	const char *data = p->data;

	for (size_t at = 0, k; at < bytes; at += k) {
		k = bytes - at < BLOCK ? bytes - at : BLOCK;
		if (fwrite(data + at, 1, k, f) != k)
			return false;
		if (p->mapped)
			st_release(data + at, k);
	}
	return true;
}

/* Tensor by tensor: nothing is held in memory. */
static bool write_tensors(FILE *f, const char *start, size_t head, const st_tensor *t, int count)
{
	bool ok = fwrite(start, 1, head, f) == head;

	for (int i = 0; i < count && ok; i++) {
		const Value *v = (const Value *)(const void *)t[i].data;

		ok = fseeko(f, (off_t)(head + t[i].offset), SEEK_SET) == 0 &&
		     (v->param->data ? write_data(f, v->param, t[i].bytes) : write_filled(f, v));
	}
	return ok;
}

bool weights_write(const char *path, Value *const *param, int n, Diag *d)
{
	Arena *a = arena_new();
	size_t head;
	int count;
	st_tensor *t = entries(a, param, n, &count);
	char *start = st_layout(t, count, -1, &head);
	const char *part = arena_printf(a, "%s.part", path);
	FILE *f = fopen(part, "wb");
	bool ok = f && write_tensors(f, start, head, t, count);

	ok = (!f || fclose(f) == 0) && ok && rename(part, path) == 0;
	if (!ok) {
		diag_error(d, FILELOC(path), 705, "cannot write the weights: %s", strerror(errno));
		remove(part);
	}
	free(start);
	arena_free(a);
	return ok;
}

/* ---- trained weights as an ONNX model ---- */

static void set_external(Arena *a, OnnxTensor *t, const char *file, size_t offset, size_t bytes)
{
	static char *const key[] = { "location", "offset", "length" };
	const char *value[] = { file, arena_printf(a, "%zu", offset), arena_printf(a, "%zu", bytes) };

	t->has_raw_data = 0;
	t->n_float_data = t->n_double_data = t->n_int32_data = t->n_int64_data = t->n_uint64_data = 0;
	t->has_data_location = 1;
	t->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
	t->n_external_data = 3;
	t->external_data = NEWN(a, Onnx__StringStringEntryProto *, 3);
	for (int i = 0; i < 3; i++) {
		t->external_data[i] = NEW(a, Onnx__StringStringEntryProto);
		onnx__string_string_entry_proto__init(t->external_data[i]);
		t->external_data[i]->key = key[i];
		t->external_data[i]->value = arena_str(a, value[i]);
	}
}

/* An initializer in half precision is trained in f32: it is stored so, under another name, and cast to what it was. */
static void store_wide(Arena *a, OnnxGraph *g, OnnxTensor *t)
{
	OnnxNode *n = NEW(a, OnnxNode), **node = NEWN(a, OnnxNode *, g->n_node + 1);
	OnnxAttr *to = NEW(a, OnnxAttr);

	onnx__node_proto__init(n);
	onnx__attribute_proto__init(to);
	to->name = arena_str(a, "to");
	to->has_type = 1;
	to->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
	to->has_i = 1;
	to->i = t->data_type;
	n->op_type = arena_str(a, "Cast");
	n->name = arena_printf(a, "%s/half", t->name);
	n->n_input = n->n_output = n->n_attribute = 1;
	n->input = NEW(a, char *);
	n->output = NEW(a, char *);
	n->attribute = NEW(a, OnnxAttr *);
	n->output[0] = t->name;
	n->input[0] = t->name = arena_printf(a, "%s/f32", t->name);
	n->attribute[0] = to;
	t->data_type = ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT;
	node[0] = n;
	for (size_t i = 0; i < g->n_node; i++)
		node[i + 1] = g->node[i];
	g->node = node;
	g->n_node++;
}

static bool is_half(const OnnxTensor *t)
{
	return t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT16 ||
	       t->data_type == ONNX__TENSOR_PROTO__DATA_TYPE__BFLOAT16;
}

/* Points the initializers of g at the file; then those of branches, which inline.c named. node: the If that g is a branch
 * of, NULL for the model's graph. */
static void place(
	Arena *a, OnnxGraph *g, const OnnxNode *node, const char *prefix, const char *file, size_t head, Map *weights)
{
	for (size_t k = 0; k < g->n_initializer; k++) {
		const char *name = g->initializer[k]->name ? g->initializer[k]->name : "";
		const char *full = node ? arena_printf(a, "%s/%s", prefix, inline_inner(node, name)) : name;
		const st_tensor *t = map_get(weights, full);

		if (!t)
			continue;
		set_external(a, g->initializer[k], file, head + t->offset, t->bytes);
		map_put(weights, full, NULL);
		if (is_half(g->initializer[k]))
			store_wide(a, g, g->initializer[k]);
	}
	for (size_t i = 0; i < g->n_node; i++) {
		const OnnxNode *n = g->node[i];

		for (size_t k = 0; n->op_type && strcmp(n->op_type, "If") == 0 && k < n->n_attribute; k++) {
			const OnnxAttr *x = n->attribute[k];

			if (x->g && x->name)
				place(a, x->g, n, inline_branch(a, n, prefix, strcmp(x->name, "then_branch") == 0),
					file, head, weights);
		}
	}
}

bool onnx_write_trained(const char *model, const Module *m, const char *data, const char *out, Diag *d)
{
	Arena *a = arena_new();
	OnnxModel *p = onnx_open(a, model, d);
	Map weights;
	size_t head;
	int count;
	bool ok = p && torch_unfold(a, p, model, true, NULL, d);

	if (ok) {
		st_tensor *t = entries(a, m->param, m->nparam, &count);
		char *start = st_layout(t, count, -1, &head);

		map_init(&weights, a, true);
		for (int i = 0; i < count; i++)
			map_put(&weights, t[i].name, &t[i]);
		place(a, p->graph, NULL, "", data, head, &weights);
		for (size_t i = 0; i < weights.n; i++)
			if (weights.slot[i].val)
				diag_warn(d, FILELOC(model), "weight-no-place",
					"the trained '%s' has no initializer of its own in the model: it "
					"is not in the trained copy",
					(const char *)weights.slot[i].key);
		free(start);
		size_t n = onnx__model_proto__get_packed_size(p);
		uint8_t *bytes = arena_alloc(a, n);
		ok = file_write(out, bytes, onnx__model_proto__pack(p, bytes)) ||
		     diag_error(d, FILELOC(out), 705, "cannot write the model");
	}
	arena_free(a);
	return ok;
}
