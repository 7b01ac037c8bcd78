/* Model files: mapping, tensors, external data. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ir/base/buf.h"
#include "onnx_file.h"

/* The whole file, mapped and never unmapped: initial weights point into it. Of what is no file of bytes (a pipe, a device)
 * nothing is read, and nobody waits for its other end. */
static const void *map_file(const char *path, size_t *n)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	const void *p = NULL;

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		*n = (size_t)st.st_size;
		p = *n ? mmap(NULL, *n, PROT_READ, MAP_PRIVATE, fd, 0) : "";
		if (p == MAP_FAILED)
			p = NULL;
	} else if (!errno) {
		errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
	}
	int err = errno;
	close(fd);
	errno = err;
	return p;
}

const char *onnx_why(int error) { return error == EINVAL ? "it is no regular file" : strerror(error ? error : EISDIR); }

const void *onnx_bytes(const char *path, size_t *n)
{
	static Buf input;
	char part[1 << 16];

	if (strcmp(path, "-"))
		return map_file(path, n);
	for (size_t k; !feof(stdin) && (k = fread(part, 1, sizeof part, stdin)) > 0;)
		buf_add(&input, part, k);
	*n = input.n;
	return buf_str(&input);
}

/* ---- tensors ---- */

static bool tensor_type(const OnnxTensor *t, Type *out, Loc loc, Diag *d)
{
	const char *name = t->name && *t->name ? t->name : "(no name)";
	DType dt = dtype_from_onnx(t->has_data_type ? t->data_type : 0);

	if (dt == DT_NONE)
		return diag_error(
			d, loc, 202, "tensor '%s' has element type %d, which is not supported", name, t->data_type);
	if (t->n_dims > MAXRANK)
		return diag_error(d, loc, 202, "tensor '%s' has rank %zu, the most is %d", name, t->n_dims, MAXRANK);
	*out = (Type){ .dtype = dt, .rank = (int)t->n_dims };
	int64_t bytes = dtype_bytes(dt);
	for (size_t i = 0; i < t->n_dims; i++) {
		out->dim[i] = t->dims[i];
		if (t->dims[i] < 0 || __builtin_mul_overflow(bytes, t->dims[i], &bytes) || bytes > TENSOR_MOST)
			return diag_error(
				d, loc, 202, "tensor '%s': dimension %zu is %lld", name, i, (long long)t->dims[i]);
	}
	return true;
}

static const char *external(const OnnxTensor *t, const char *key)
{
	for (size_t i = 0; i < t->n_external_data; i++)
		if (t->external_data[i]->key && strcmp(t->external_data[i]->key, key) == 0)
			return t->external_data[i]->value;
	return NULL;
}

static bool number(const char *s, int64_t *out)
{
	char *end;

	errno = 0;
	*out = s ? strtoll(s, &end, 10) : 0;
	return !s || (!errno && end != s && !*end && *out >= 0);
}

/* The resolved path of the folder that `path` lies in; NULL: there is none. */
static const char *folder_of(Arena *a, const char *path)
{
	const char *slash = strrchr(path, '/');
	char *real = realpath(slash == path ? "/"
			      : slash       ? arena_printf(a, "%.*s", (int)(slash - path), path)
					    : ".",
		NULL);
	const char *folder = real ? arena_str(a, real) : NULL;

	free(real);
	return folder;
}

static bool inside(const char *folder, const char *file)
{
	const size_t n = folder ? strlen(folder) : 0;

	return n && (n == 1 || (strncmp(file, folder, n) == 0 && file[n] == '/'));
}

/* Where a file of external data really lies, by links too: in the model's folder, or in that which the model, when it is a
 * link itself, really lies in. NULL after a diagnostic. */
static const char *resolve(Arena *a, const char *model, const OnnxTensor *t, const char *path, Loc loc, Diag *d)
{
	char *real = realpath(path, NULL), *real_model;

	if (!real) {
		diag_error(
			d, loc, 203, "tensor '%s': cannot read external data '%s': %s", t->name, path, onnx_why(errno));
		return NULL;
	}
	const char *file = arena_str(a, real), *folder = folder_of(a, model);
	free(real);
	real_model = realpath(model, NULL);
	const bool fits = inside(folder, file) || (real_model && inside(folder_of(a, real_model), file));
	free(real_model);
	if (!fits)
		diag_error(d, loc, 203,
			"tensor '%s': external data '%s' lies at '%s', outside of the model's folder '%s'", t->name,
			path, file, folder ? folder : "");
	return fits ? file : NULL;
}

/* External data lies in a file beside the model; neither the path nor a link may leave its folder. */
static bool tensor_external(
	Arena *a, const char *model, const OnnxTensor *t, bool types_only, Tensor *out, Loc loc, Diag *d)
{
	const char *where = external(t, "location"), *slash = strrchr(model, '/');
	int64_t offset, length, want = type_bytes(&out->type);
	size_t n = 0;

	if (!where || !*where)
		return diag_error(d, loc, 203, "tensor '%s' is external but names no location", t->name);
	if (*where == '/' || strcmp(where, "..") == 0 || strncmp(where, "../", 3) == 0 || strstr(where, "/../"))
		return diag_error(
			d, loc, 203, "tensor '%s': external data '%s' leaves the model's folder", t->name, where);
	if (!number(external(t, "offset"), &offset) || !number(external(t, "length"), &length))
		return diag_error(d, loc, 203, "tensor '%s': external offset or length is not a number", t->name);
	if (types_only)
		return true;
	if (external(t, "length") && length != want)
		return diag_error(d, loc, 203, "tensor '%s' needs %lld bytes, its external data has length %lld",
			t->name, (long long)want, (long long)length);
	const char *path = slash ? arena_printf(a, "%.*s/%s", (int)(slash - model), model, where) : where;
	const char *real = resolve(a, model, t, path, loc, d);
	if (!real)
		return false;
	errno = 0;
	const char *p = map_file(real, &n);
	if (!p) {
		return diag_error(
			d, loc, 203, "tensor '%s': cannot read external data '%s': %s", t->name, path, onnx_why(errno));
	}
	if (offset > (int64_t)n || want > (int64_t)n - offset)
		return diag_error(d, loc, 203, "tensor '%s' lies at bytes %lld..%llu of '%s', which has %zu", t->name,
			(long long)offset, (unsigned long long)offset + (unsigned long long)want, path, n);
	out->data = (void *)(uintptr_t)(p + offset);
	if (!onnx_mapped(t, out->type.dtype)) /* elements are read where they lie */
		out->data = memcpy(arena_alloc(a, (size_t)want), p + offset, (size_t)want);
	return true;
}

/* Typed fields, where raw_data is not used: small types travel in int32_data. */
static bool tensor_typed(Arena *a, const OnnxTensor *t, Tensor *out, Loc loc, Diag *d)
{
	DType dt = out->type.dtype;
	int64_t want = type_numel(&out->type);
	size_t have = dt == DT_f32                   ? t->n_float_data
	              : dt == DT_f64                 ? t->n_double_data
	              : dt == DT_i64                 ? t->n_int64_data
	              : dt == DT_u32 || dt == DT_u64 ? t->n_uint64_data
	                                             : t->n_int32_data;

	if ((int64_t)have != want)
		return diag_error(d, loc, 202, "tensor '%s' is %s, %lld elements, but holds %zu", t->name,
			str_type(d->scratch, &out->type), (long long)want, have);
	if (dt == DT_f32)
		out->data = t->float_data;
	else if (dt == DT_f64)
		out->data = t->double_data;
	else if (dt == DT_i64)
		out->data = t->int64_data;
	else if (dt == DT_u64)
		out->data = t->uint64_data;
	else {
		int size = dtype_bytes(dt);
		char *p = arena_alloc(a, (size_t)(want * size));

		for (int64_t i = 0; i < want; i++) {
			int64_t v = dt == DT_u32 ? (int64_t)t->uint64_data[i] : t->int32_data[i];

			memcpy(p + i * size, &v, (size_t)size); /* little-endian */
		}
		out->data = p;
	}
	if (!out->data)
		out->data = arena_alloc(a, 16);
	return true;
}

int onnx_external_files(Arena *a, const char *path, const char ***files, Diag *d)
{
	const OnnxModel *m = onnx_open(a, path, d);
	const char *slash = strrchr(path, '/');
	Map seen;
	int n = 0, cap = 0;

	*files = NULL;
	map_init(&seen, a, true);
	for (size_t i = 0; m && i < m->graph->n_initializer; i++) {
		const OnnxTensor *t = m->graph->initializer[i];
		const char *where = onnx_external(t) ? external(t, "location") : NULL;

		if (!where || map_has(&seen, where))
			continue;
		map_put(&seen, where, files);
		PUSH(a, *files, n, cap) = slash ? arena_printf(a, "%.*s/%s", (int)(slash - path), path, where) : where;
	}
	return n;
}

bool onnx_external(const OnnxTensor *t)
{
	return t->has_data_location && t->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

bool onnx_mapped(const OnnxTensor *t, DType dt)
{
	int64_t offset;

	return onnx_external(t) && number(external(t, "offset"), &offset) && offset % dtype_bytes(dt) == 0;
}

bool onnx_tensor(Arena *a, const char *model_path, const OnnxTensor *t, bool types_only, Tensor *out, Loc loc, Diag *d)
{
	*out = (Tensor){ 0 };
	if (!tensor_type(t, &out->type, loc, d))
		return false;
	if (onnx_external(t))
		return tensor_external(a, model_path, t, types_only, out, loc, d);
	if (!t->has_raw_data)
		return tensor_typed(a, t, out, loc, d);
	int64_t want = type_bytes(&out->type);
	if ((int64_t)t->raw_data.len != want)
		return diag_error(d, loc, 202, "tensor '%s' is %s, %lld bytes, but holds %zu", t->name ? t->name : "",
			str_type(d->scratch, &out->type), (long long)want, t->raw_data.len);
	out->data = want ? t->raw_data.data : arena_alloc(a, 16);
	return true;
}

/* ---- what BatchNormalization reads ---- */

static void find_stats(Map *stats, const OnnxGraph *g)
{
	for (size_t i = 0; i < g->n_node; i++) {
		const OnnxNode *n = g->node[i];

		if (n->op_type && strcmp(n->op_type, "BatchNormalization") == 0)
			for (size_t k = 3; k < 5 && k < n->n_input; k++)
				if (!map_has(stats, n->input[k]))
					map_put(stats, n->input[k], (void *)(intptr_t)k);
		for (size_t k = 0; k < n->n_attribute; k++) /* branches see the initializers around them */
			if (n->attribute[k]->g)
				find_stats(stats, n->attribute[k]->g);
	}
}

int onnx_running_stat(Import *im, const OnnxGraph *g, const char *name)
{
	if (im->stats_of != g) {
		map_init(&im->stats, im->a, true);
		find_stats(&im->stats, g);
		im->stats_of = g;
	}
	return (int)(intptr_t)map_get(&im->stats, name);
}
