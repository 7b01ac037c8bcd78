/* Reading a model: once from its file, then of what was kept. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "onnx_file.h"

/* ---- a model that is read several times ----
 * Planning reads a model anew for every size of microbatch. Large bytes of its tensors are unpacked once and shared by all
 * readings; what is left of the message is kept as it is packed. */

enum { LARGE = 1 << 20 };

typedef struct LargeBytes {
	ProtobufCBinaryData of;
	size_t at; /* the tensor's number (each_tensor) */
} LargeBytes;

typedef struct Reading {
	struct Reading *next;
	const char *path;
	void *rest; /* the message, where these bytes are none */
	size_t n;
	LargeBytes *large;
	size_t nlarge;
} Reading;

static Arena *kept; /* as long as the program runs */
static Reading *readings;

/* Strings that are no strings (a 0 byte inside), empty names, bytes of another format are caught here or by the parser. */
static void *pb_alloc(void *arena, size_t n)
{
	if (n > (size_t)1 << 40)
		return NULL;
	if (n >= LARGE && !kept)
		kept = arena_new();
	return arena_raw(n < LARGE ? arena : kept, n);
}

static void pb_free(void *arena, void *p) { (void)arena, (void)p; }

typedef void OfTensor(OnnxTensor *t, size_t at, Reading *r);

/* Tensors of g and of its branches, in order; the number behind the last. */
static size_t each_tensor(const OnnxGraph *g, size_t at, OfTensor *f, Reading *r)
{
	for (size_t i = 0; i < g->n_initializer; i++)
		f(g->initializer[i], at++, r);
	for (size_t i = 0; i < g->n_node; i++) {
		for (size_t k = 0; k < g->node[i]->n_attribute; k++) {
			const OnnxAttr *x = g->node[i]->attribute[k];

			if (x->t)
				f(x->t, at++, r);
			if (x->g)
				at = each_tensor(x->g, at, f, r);
		}
	}
	return at;
}

static void count_large(OnnxTensor *t, size_t at, Reading *r)
{
	(void)at;
	r->nlarge += t->has_raw_data && t->raw_data.len >= LARGE;
}

static void take_large(OnnxTensor *t, size_t at, Reading *r)
{
	if (!t->has_raw_data || t->raw_data.len < LARGE)
		return;
	r->large[r->nlarge++] = (LargeBytes){ t->raw_data, at };
	t->raw_data = (ProtobufCBinaryData){ 0, NULL };
}

static void give_large(OnnxTensor *t, size_t at, Reading *r)
{
	if (r->nlarge && r->large->at == at) {
		t->raw_data = r->large->of;
		r->large++;
		r->nlarge--;
	}
}

static void give_all(const OnnxModel *m, const Reading *r)
{
	Reading left = *r;

	each_tensor(m->graph, 0, give_large, &left);
}

static void keep_reading(OnnxModel *m, const char *path)
{
	Reading r = { .next = readings };

	each_tensor(m->graph, 0, count_large, &r);
	if (!r.nlarge)
		return;
	r.path = arena_str(kept, path);
	r.large = NEWN(kept, LargeBytes, r.nlarge);
	r.nlarge = 0;
	each_tensor(m->graph, 0, take_large, &r);
	r.n = onnx__model_proto__get_packed_size(m);
	r.rest = arena_raw(kept, r.n);
	onnx__model_proto__pack(m, r.rest);
	give_all(m, &r);
	readings = arena_dup(kept, &r, sizeof r);
}

static OnnxModel *read_again(Arena *a, const char *path)
{
	ProtobufCAllocator alloc = { pb_alloc, pb_free, a };
	const Reading *r = readings;

	while (r && strcmp(r->path, path))
		r = r->next;
	OnnxModel *m = r ? onnx__model_proto__unpack(&alloc, r->n, r->rest) : NULL;
	if (m)
		give_all(m, r);
	return m;
}

/* What people give in place of a model; NULL: nothing that is known. */
static const char *known_as(const char *path, const unsigned char *bytes, size_t n)
{
	const char *end = strrchr(path, '.');

	if (n > 3 && !memcmp(bytes, "PK\3\4", 4))
		return "an archive, as torch.save writes";
	if (n > 1 && bytes[0] == 0x80 && bytes[1] < 6)
		return "a pickle";
	return end && !strcmp(end, ".py") ? "a Python program" : NULL;
}

OnnxModel *onnx_open(Arena *a, const char *path, Diag *d)
{
	size_t n = 0;
	OnnxModel *again = read_again(a, path);

	if (again)
		return again;
	errno = 0;
	const void *bytes = onnx_bytes(path, &n);
	if (!bytes) {
		diag_error(d, FILELOC(path), 201, "cannot read the model: %s", onnx_why(errno));
		return NULL;
	}
	if (n == 0) {
		diag_error(d, FILELOC(path), 201, "the file is empty");
		return NULL;
	}
	ProtobufCAllocator alloc = { pb_alloc, pb_free, a };
	OnnxModel *m = onnx__model_proto__unpack(&alloc, n, bytes);
	const char *known = known_as(path, bytes, n);
	if (strcmp(path, "-"))
		munmap((void *)(uintptr_t)bytes, n);
	if ((!m || !m->graph) && known) {
		diag_error(d, FILELOC(path), 201,
			"not an ONNX model, but %s; in Python: torch.onnx.export(model.train(), (example,), 'model.onnx', "
			"dynamo=True, optimize=False), or pdcc.export",
			known);
		return NULL;
	}
	if (!m || !m->graph) {
		diag_error(d, FILELOC(path), 201, "not an ONNX model, or cut short (%zu bytes)", n);
		return NULL;
	}
	keep_reading(m, path);
	return m;
}

OnnxAttr *onnx_attr_unpack(Arena *a, const void *bytes, size_t n)
{
	ProtobufCAllocator alloc = { pb_alloc, pb_free, a };

	return onnx__attribute_proto__unpack(&alloc, n, bytes);
}
