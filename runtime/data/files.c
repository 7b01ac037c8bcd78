/* files.c: .npy, IDX, safetensors, raw and token files, mapped and checked. */
#if !defined _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include "files.h"
#include "safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t size_of(pd_dtype t) { return st_size(st_dtype((int)t)); }

/* The elements that dim asks for must be what lies behind data. */
static bool check_size(const file_array *a, const char **error)
{
	const size_t have = (a->size - (size_t)(a->data - a->map)) / size_of(a->dtype);
	size_t want = 1;

	for (int i = 0; i < a->rank; i++) {
		if (a->dim[i] < 0 || (a->dim[i] && want > SIZE_MAX / 2 / (size_t)a->dim[i])) {
			*error = "its shape is too large";
			return false;
		}
		want *= (size_t)a->dim[i];
	}
	if (want > have)
		*error = "it is shorter than its shape says (truncated)";
	else if (want < have)
		*error = "it is longer than its shape says";
	return want == have;
}

/* ---- .npy: \x93NUMPY, version, length, then {'descr': '<f4', 'fortran_order': False, 'shape':
 * (3, 4), } ---- */

static const char *behind(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	if (!p)
		return NULL;
	p += strlen(key);
	while (*p == ' ' || *p == ':')
		p++;
	return p;
}

static bool npy_dtype(file_array *a, const char *p, const char **error)
{
	static const struct {
		char text[4];
		pd_dtype t;
	} known[] = {
		{ "f4", PD_F32 },
		{ "f8", PD_F64 },
		{ "i1", PD_I8 },
		{ "i2", PD_I16 },
		{ "i4", PD_I32 },
		{ "i8", PD_I64 },
		{ "u1", PD_U8 },
		{ "u2", PD_U16 },
		{ "u4", PD_U32 },
		{ "u8", PD_U64 },
		{ "b1", PD_BOOL },
	};

	*error = "its element type is none of f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1";
	if (*p != '\'' || !strchr("<>|=", p[1]) || p[1] == 0)
		return false;
	a->swapped = p[1] == '>';
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strncmp(p + 2, known[i].text, 2) && p[4] == '\'') {
			a->dtype = known[i].t;
			return true;
		}
	return false;
}

static bool npy_shape(file_array *a, const char *p, const char **error)
{
	*error = "its shape cannot be read";
	if (*p++ != '(')
		return false;
	for (;;) {
		while (*p == ' ' || *p == ',')
			p++;
		if (*p == ')')
			return true;
		if (*p < '0' || *p > '9')
			return false;
		if (a->rank == PD_MAXRANK) {
			*error = "it has more dimensions than 8";
			return false;
		}
		char *end;

		errno = 0;
		a->dim[a->rank++] = strtoll(p, &end, 10);
		if (errno)
			return false;
		p = end;
	}
}

static bool npy(file_array *a, const char **error)
{
	static char text[65537];
	const unsigned char *m = (const unsigned char *)a->map;
	const char *p;

	*error = "it is no .npy file";
	if (a->size < 12 || memcmp(m, "\x93NUMPY", 6))
		return false;
	const size_t at = m[6] == 1 ? 10 : 12;
	const size_t n = m[6] == 1 ? m[8] | (size_t)m[9] << 8
	                           : m[8] | (size_t)m[9] << 8 | (size_t)m[10] << 16 | (size_t)m[11] << 24;

	if (m[6] < 1 || m[6] > 3) {
		*error = "it is of a .npy version above 3";
		return false;
	}
	if (n > a->size - at || n > sizeof text - 1) {
		*error = "its header is longer than the file";
		return false;
	}
	memcpy(text, a->map + at, n);
	text[n] = 0;
	a->data = a->map + at + n;
	*error = "its header lacks 'fortran_order', 'descr' or 'shape'";
	if (!(p = behind(text, "'fortran_order'")))
		return false;
	if (strncmp(p, "False", 5)) {
		*error = "it is in Fortran order; save it with numpy.ascontiguousarray";
		return false;
	}
	return (p = behind(text, "'descr'")) && npy_dtype(a, p, error) && (p = behind(text, "'shape'")) &&
	       npy_shape(a, p, error) && check_size(a, error);
}

/* ---- IDX: 0 0 type rank, big-endian dimensions, data ---- */

static bool idx(file_array *a, const char **error)
{
	static const struct {
		int code;
		pd_dtype t;
	} known[] = {
		{ 8, PD_U8 },
		{ 9, PD_I8 },
		{ 11, PD_I16 },
		{ 12, PD_I32 },
		{ 13, PD_F32 },
		{ 14, PD_F64 },
	};
	const unsigned char *m = (const unsigned char *)a->map;

	*error = "it is no IDX file";
	if (a->size >= 2 && m[0] == 0x1f && m[1] == 0x8b)
		*error = "it is compressed; unpack it with gunzip";
	if (a->size < 4 || m[0] || m[1])
		return false;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].code == m[2])
			a->dtype = known[i].t;
	a->rank = m[3];
	if (!a->dtype || a->rank < 1 || a->rank > PD_MAXRANK || a->size < 4 + 4 * (size_t)a->rank)
		return false;
	for (int i = 0; i < a->rank; i++) {
		const unsigned char *d = m + 4 + 4 * i;

		a->dim[i] = (int64_t)d[0] << 24 | d[1] << 16 | d[2] << 8 | d[3];
	}
	a->data = a->map + 4 + 4 * a->rank;
	a->swapped = true;
	a->unit = a->dtype == PD_U8;
	return check_size(a, error);
}

static bool raw(file_array *a, pd_dtype t, const char **error)
{
	a->dtype = t;
	a->rank = 1;
	a->data = a->map;
	a->dim[0] = (int64_t)(a->size / size_of(t));
	if (a->size % size_of(t))
		*error = "its size is no multiple of its element's";
	return a->size % size_of(t) == 0;
}

/* A row of tokens: a .npy array of whole numbers, or as they are, unsigned, of type t. */
static bool tokens(file_array *a, pd_dtype t, const char **error)
{
	if (a->size < 6 || memcmp(a->map, "\x93NUMPY", 6))
		return raw(a, t, error);
	if (!npy(a, error))
		return false;
	*error = "tokens are a row of whole numbers";
	return a->rank == 1 && a->dtype != PD_F32 && a->dtype != PD_F64;
}

/* ---- safetensors: of several tensors the one that has the input's name ---- */

static pd_dtype tensor_dtype(const char *dtype)
{
	static const pd_dtype known[] = { PD_F32, PD_F64, PD_I8, PD_I16, PD_I32, PD_I64, PD_U8, PD_U16, PD_U32, PD_U64,
		PD_BOOL };

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strcmp(st_dtype((int)known[i]), dtype))
			return known[i];
	return 0;
}

static bool tensor(file_array *a, const st_file *f, const char *name, const char **error)
{
	const st_tensor *t = f->n == 1 ? f->tensor : st_find(f, name);

	*error = f->n ? "of its tensors none has the input's name" : "it has no tensor";
	if (!t)
		return false;
	*error = "its element type is none of F32 F64 I8 I16 I32 I64 U8 U16 U32 U64 BOOL";
	a->dtype = tensor_dtype(t->dtype);
	a->rank = t->rank;
	memcpy(a->dim, t->dim, sizeof a->dim);
	a->data = a->map + (t->data - f->map);
	return a->dtype != 0;
}

static bool safetensors(file_array *a, const char *path, const char *name, const char **error)
{
	st_file f;

	if (!st_open(&f, path, error))
		return false;
	const bool same = f.size == a->size; /* as it was mapped */
	const bool ok = same && tensor(a, &f, name, error);

	if (!same)
		*error = "it is being written";
	st_close(&f);
	return ok;
}

bool file_open(file_array *a, const char *path, const char *kind, pd_dtype t, const char *name, const char **error)
{
	struct stat st;
	const int fd = open(path, O_RDONLY | O_NONBLOCK); /* a pipe has no writer to wait for: it is not mapped */
	bool ok = false;

	memset(a, 0, sizeof *a);
	*error = "unknown kind of file; there are npy, idx, raw, tokens, tokens32 and safetensors";
	if (fd < 0 || fstat(fd, &st)) {
		*error = strerror(errno);
		if (fd >= 0)
			close(fd);
		return false;
	}
	if (!S_ISREG(st.st_mode)) {
		*error = "it is no file";
		close(fd);
		return false;
	}
	a->size = (size_t)st.st_size;
	a->map = a->size ? mmap(NULL, a->size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
	close(fd);
	if (a->map == MAP_FAILED) {
		a->map = NULL;
		*error = a->size ? "it cannot be mapped" : "it is empty";
		return false;
	}
	if (!strcmp(kind, "npy"))
		ok = npy(a, error);
	else if (!strcmp(kind, "idx"))
		ok = idx(a, error);
	else if (!strcmp(kind, "raw"))
		ok = raw(a, t, error);
	else if (!strcmp(kind, "tokens") || !strcmp(kind, "tokens32"))
		ok = tokens(a, kind[6] ? PD_U32 : PD_U16, error);
	else if (!strcmp(kind, "safetensors"))
		ok = safetensors(a, path, name, error);
	if (!ok)
		file_close(a);
	return ok;
}

void file_close(file_array *a)
{
	if (a->map)
		munmap(a->map, a->size);
	memset(a, 0, sizeof *a);
}

/* ---- elements ---- */

static uint64_t bits_at(const file_array *a, size_t i, size_t n)
{
	const unsigned char *p = (const unsigned char *)a->data + i * n;
	uint64_t v = 0;

	for (size_t k = 0; k < n; k++)
		v = v << 8 | p[a->swapped ? k : n - 1 - k];
	return v;
}

static double real_at(const file_array *a, size_t i)
{
	const size_t n = size_of(a->dtype);
	const uint64_t v = bits_at(a, i, n);
	float f;
	double d;

	if (a->dtype == PD_F32) {
		const uint32_t w = (uint32_t)v;

		memcpy(&f, &w, sizeof f);
		return (double)f;
	}
	memcpy(&d, &v, sizeof d);
	return d;
}

static int64_t whole_at(const file_array *a, size_t i)
{
	const size_t n = size_of(a->dtype);
	const uint64_t v = bits_at(a, i, n);
	const bool sign = a->dtype == PD_I8 || a->dtype == PD_I16 || a->dtype == PD_I32;

	return sign && v >> (8 * n - 1) ? (int64_t)(v | ~(uint64_t)0 << 8 * n) : (int64_t)v;
}

void file_put_real(void *to, pd_dtype as, size_t i, double v)
{
	if (as == PD_F64)
		((double *)to)[i] = v;
	else
		((float *)to)[i] = (float)v;
}

void file_put_whole(void *to, pd_dtype as, size_t i, int64_t v)
{
	switch (as) {
	case PD_F32:
	case PD_F64: file_put_real(to, as, i, (double)v); return;
	case PD_I64:
	case PD_U64: ((int64_t *)to)[i] = v; return;
	case PD_I32: /* what does not fit stays outside of any range */
		((int32_t *)to)[i] = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
		return;
	case PD_U32: ((uint32_t *)to)[i] = (uint32_t)v; return;
	case PD_I16:
	case PD_U16: ((int16_t *)to)[i] = (int16_t)v; return;
	case PD_BOOL: ((char *)to)[i] = v != 0; return;
	default: ((signed char *)to)[i] = (signed char)v; return;
	}
}

/* Pairs of types that samples have often, in loops of their own: values of `from`, stored as `as`. They may lie at any byte. */
#define CONVERT(FROM, AS) \
	do { \
		const char *in = (const char *)a->data + first * sizeof(FROM); \
		AS *out = to; \
		_Pragma("omp simd") for (size_t i = 0; i < n; i++) \
		{ \
			FROM v; \
			memcpy(&v, in + i * sizeof v, sizeof v); \
			out[i] = (AS)v; \
		} \
		return true; \
	} while (0)

static bool read_fast(const file_array *a, size_t first, size_t n, pd_dtype as, void *to)
{
	if (as == PD_I64 && a->dtype == PD_U8)
		CONVERT(uint8_t, int64_t);
	if (as == PD_I64 && a->dtype == PD_U16)
		CONVERT(uint16_t, int64_t);
	if (as == PD_I64 && a->dtype == PD_U32)
		CONVERT(uint32_t, int64_t);
	if (as == PD_I64 && a->dtype == PD_I32)
		CONVERT(int32_t, int64_t);
	if (as == PD_I32 && a->dtype == PD_U16)
		CONVERT(uint16_t, int32_t);
	if (as == PD_F32 && a->dtype == PD_F64)
		CONVERT(double, float);
	return false;
}

void file_values(const file_array *a, size_t first, size_t n, pd_dtype as, void *to)
{
	const bool real = a->dtype == PD_F32 || a->dtype == PD_F64, to_real = as == PD_F32 || as == PD_F64;
	const size_t size = size_of(as);

	if (a->dtype == as && (!a->swapped || size == 1))
		memcpy(to, a->data + first * size, n * size);
	else if (a->dtype == PD_U8 && as == PD_F32 && a->unit)
		for (size_t i = 0; i < n; i++)
			((float *)to)[i] = (float)(unsigned char)a->data[first + i] * (1.0f / 255.0f);
	else if (a->dtype == PD_U8 && as == PD_F32)
		for (size_t i = 0; i < n; i++)
			((float *)to)[i] = (float)(unsigned char)a->data[first + i];
	else if ((!a->swapped || size_of(a->dtype) == 1) && read_fast(a, first, n, as, to))
		return;
	else if (real)
		for (size_t i = 0; i < n; i++)
			file_put_real(to, as, i, real_at(a, first + i));
	else
		for (size_t i = 0; i < n; i++)
			if (to_real)
				file_put_real(
					to, as, i, (double)whole_at(a, first + i) * (a->unit ? 1.0 / 255.0 : 1.0));
			else
				file_put_whole(to, as, i, whole_at(a, first + i));
}
