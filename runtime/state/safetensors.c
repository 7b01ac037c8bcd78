/* safetensors.c: the file format of weights: 8 bytes little-endian length of a JSON header, the
 * header {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ...,
 * "__metadata__": {"key": "text"}}, then the data. Every length, offset and shape is checked
 * before it is used. */
#if !defined _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include "safetensors.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
	int onnx;
	const char *name;
	size_t size;
} types[] = {
	{ 1, "F32", 4 },
	{ 2, "U8", 1 },
	{ 3, "I8", 1 },
	{ 4, "U16", 2 },
	{ 5, "I16", 2 },
	{ 6, "I32", 4 },
	{ 7, "I64", 8 },
	{ 9, "BOOL", 1 },
	{ 10, "F16", 2 },
	{ 11, "F64", 8 },
	{ 12, "U32", 4 },
	{ 13, "U64", 8 },
	{ 16, "BF16", 2 },
};

size_t st_size(const char *dtype)
{
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (!strcmp(types[i].name, dtype))
			return types[i].size;
	return 0;
}

const char *st_dtype(int onnx)
{
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].onnx == onnx)
			return types[i].name;
	return NULL;
}

/* ---- the little JSON that headers are made of ---- */

typedef struct reader {
	const char *p, *end, *error;
} reader;

static void blank(reader *r)
{
	while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\n' || *r->p == '\r'))
		r->p++;
}

static bool accept(reader *r, char c)
{
	blank(r);
	if (r->p < r->end && *r->p == c) {
		r->p++;
		return true;
	}
	return false;
}

static bool expect(reader *r, char c)
{
	if (accept(r, c))
		return true;
	if (!r->error)
		r->error = "its header is not the JSON of a safetensors file";
	return false;
}

/* Four digits in front of `end`. */
static unsigned hex4(reader *r, const char *end)
{
	unsigned v = 0;

	for (int i = 0; i < 4; i++) {
		const char c = r->p < end ? *r->p++ : 0;

		v = v * 16 + (c >= '0' && c <= '9'          ? (unsigned)(c - '0')
				     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
				     : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A' + 10)
							    : (r->error = "its header has a broken \\u escape", 0u));
	}
	return v;
}

static char *utf8(char *to, unsigned c)
{
	if (c < 0x80) {
		*to++ = (char)c;
	} else if (c < 0x800) {
		*to++ = (char)(0xC0 | c >> 6);
		*to++ = (char)(0x80 | (c & 63));
	} else if (c < 0x10000) {
		*to++ = (char)(0xE0 | c >> 12);
		*to++ = (char)(0x80 | (c >> 6 & 63));
		*to++ = (char)(0x80 | (c & 63));
	} else {
		*to++ = (char)(0xF0 | c >> 18);
		*to++ = (char)(0x80 | (c >> 12 & 63));
		*to++ = (char)(0x80 | (c >> 6 & 63));
		*to++ = (char)(0x80 | (c & 63));
	}
	return to;
}

/* A string in memory of its own; NULL on error. */
static char *string(reader *r)
{
	if (!expect(r, '"'))
		return NULL;
	const char *q = r->p;

	while (q < r->end && *q != '"')
		q += *q == '\\' ? 2 : 1;
	if (q >= r->end) {
		r->error = "a string in its header does not end";
		return NULL;
	}
	char *s = malloc((size_t)(q - r->p) + 1), *to = s;

	if (!s) {
		r->error = "out of memory";
		return NULL;
	}
	while (r->p < q) {
		unsigned char c = (unsigned char)*r->p++;

		if (c != '\\') {
			*to++ = (char)c;
			continue;
		}
		c = (unsigned char)*r->p++;
		if (c == 'u') {
			unsigned u = hex4(r, q);

			if (u >= 0xD800 && u < 0xDC00 && q - r->p >= 6 && r->p[0] == '\\' && r->p[1] == 'u') {
				r->p += 2;
				u = 0x10000 + ((u - 0xD800) << 10) + ((hex4(r, q) - 0xDC00) & 0x3FF);
			}
			to = utf8(to, u);
		} else {
			static const char from[] = "bfnrt", as[] = "\b\f\n\r\t";
			const char *k = c ? strchr(from, c) : NULL;

			*to++ = k ? as[k - from] : (char)c;
		}
	}
	*to = 0;
	if (!accept(r, '"'))
		r->error = "a string in its header does not end";
	return s;
}

static int64_t number(reader *r)
{
	int64_t v = 0;

	blank(r);
	if (r->p == r->end || *r->p < '0' || *r->p > '9')
		r->error = "a shape or an offset in its header is not a number";
	while (r->p < r->end && *r->p >= '0' && *r->p <= '9') {
		if (v > INT64_MAX / 10 - 1) {
			r->error = "a number in its header is too large";
			return 0;
		}
		v = v * 10 + (*r->p++ - '0');
	}
	return v;
}

static int numbers(reader *r, int64_t *to, int most)
{
	int n = 0;

	if (!expect(r, '['))
		return 0;
	if (accept(r, ']'))
		return 0;
	do {
		if (n == most) {
			r->error = "a tensor in its header has more dimensions than 8";
			return n;
		}
		to[n++] = number(r);
	} while (!r->error && accept(r, ','));
	expect(r, ']');
	return n;
}

static void metadata(reader *r, st_file *f)
{
	if (!expect(r, '{') || accept(r, '}'))
		return;
	do {
		char *key = string(r), *value = r->error || !expect(r, ':') ? NULL : string(r);

		if (key && value && !strcmp(key, "step"))
			f->step = strtoll(value, NULL, 10);
		free(key);
		free(value);
	} while (!r->error && accept(r, ','));
	expect(r, '}');
}

static void tensor(reader *r, st_tensor *t, size_t room)
{
	int64_t at[ST_MAXRANK] = { 0 };
	int nat = 0;
	bool shape = false;

	if (!expect(r, '{'))
		return;
	do {
		char *key = string(r);

		if (!key || !expect(r, ':')) {
			free(key);
			return;
		}
		if (!strcmp(key, "dtype")) {
			char *d = string(r);

			snprintf(t->dtype, sizeof t->dtype, "%s", d ? d : "");
			free(d);
		} else if (!strcmp(key, "shape")) {
			t->rank = numbers(r, t->dim, ST_MAXRANK);
			shape = true;
		} else if (!strcmp(key, "data_offsets")) {
			nat = numbers(r, at, 2);
		} else {
			r->error = "its header has an unknown key";
		}
		free(key);
	} while (!r->error && accept(r, ','));
	if (!expect(r, '}') || r->error)
		return;
	uint64_t bytes = st_size(t->dtype);

	if (!bytes || !shape || nat != 2) {
		r->error = "a tensor in its header lacks dtype, shape or data_offsets, or has an unknown dtype";
		return;
	}
	for (int i = 0; i < t->rank; i++)
		if (t->dim[i] && bytes > room / (uint64_t)t->dim[i])
			bytes = UINT64_MAX; /* stays more than room */
		else
			bytes *= (uint64_t)t->dim[i];
	if (at[0] > at[1] || (uint64_t)at[1] > room || (uint64_t)(at[1] - at[0]) != bytes)
		r->error = "a tensor lies outside the file or has another size than its shape";
	t->offset = (size_t)at[0];
	t->bytes = (size_t)bytes;
}

static void header(reader *r, st_file *f, const char *data, size_t room)
{
	int space = 0;

	if (!expect(r, '{') || accept(r, '}'))
		return;
	do {
		char *name = string(r);

		if (!name || !expect(r, ':')) {
			free(name);
			return;
		}
		if (!strcmp(name, "__metadata__")) {
			free(name);
			metadata(r, f);
			continue;
		}
		if (f->n == space) {
			st_tensor *more = realloc(f->tensor, (size_t)(space = space ? 2 * space : 64) * sizeof *more);

			if (!more) {
				free(name);
				r->error = "out of memory";
				return;
			}
			f->tensor = more;
		}
		st_tensor *t = &f->tensor[f->n++];

		memset(t, 0, sizeof *t);
		t->name = name;
		tensor(r, t, room);
		t->data = data + t->offset;
	} while (!r->error && accept(r, ','));
	expect(r, '}');
}

bool st_open(st_file *f, const char *path, const char **error)
{
	struct stat st;
	const int fd = open(path, O_RDONLY | O_NONBLOCK); /* a FIFO is no file, and none is waited for */
	uint64_t n = 0;

	*f = (st_file){ .step = -1 };
	if (fd < 0 || fstat(fd, &st)) {
		*error = strerror(errno);
		if (fd >= 0)
			close(fd);
		return false;
	}
	if (!S_ISREG(st.st_mode)) {
		*error = "it is no regular file";
		close(fd);
		return false;
	}
	f->size = (size_t)st.st_size;
	f->map = f->size < 8 ? MAP_FAILED : mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (f->map == MAP_FAILED) {
		f->map = NULL;
		*error = f->size < 8 ? "it is shorter than a safetensors header" : "it cannot be mapped";
		return false;
	}
	for (int i = 7; i >= 0; i--)
		n = n << 8 | (unsigned char)f->map[i];
	if (n > f->size - 8) {
		*error = "its header is longer than the file (truncated, or not a safetensors file)";
		st_close(f);
		return false;
	}
	reader r = { f->map + 8, f->map + 8 + n, NULL };

	header(&r, f, f->map + 8 + n, f->size - 8 - (size_t)n);
	if (r.error) {
		*error = r.error;
		st_close(f);
		return false;
	}
	return true;
}

void st_close(st_file *f)
{
	for (int i = 0; i < f->n; i++)
		free(f->tensor[i].name);
	free(f->tensor);
	if (f->map)
		munmap(f->map, f->size);
	*f = (st_file){ .step = -1 };
}

const st_tensor *st_find(const st_file *f, const char *name)
{
	for (int i = 0; i < f->n; i++)
		if (!strcmp(f->tensor[i].name, name))
			return &f->tensor[i];
	return NULL;
}

const st_tensor *st_find_rows(const st_file *f, int n, const char *name, int64_t row, int64_t *first)
{
	const size_t length = strlen(name);

	for (int k = 0; k < n; k++)
		for (int i = 0; i < f[k].n; i++) {
			const st_tensor *t = &f[k].tensor[i];
			int64_t from = 0, to = INT64_MAX;
			int end = 0;

			if (strncmp(t->name, name, length))
				continue;
			if (t->name[length] &&
				(sscanf(t->name + length, ST_PIECE "%n", &from, &to, &end) != 2 || !end ||
					t->name[length + (size_t)end] || t->rank < 1 || to - from != t->dim[0]))
				continue;
			*first = from;
			if (from <= row && row < to)
				return t;
		}
	return NULL;
}

void st_release(const void *p, size_t bytes)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), in_page = (uintptr_t)p % page;

	madvise((char *)(uintptr_t)p - in_page, bytes + in_page, MADV_DONTNEED);
}

/* ---- writing ---- */

static int by_size_and_name(const void *a, const void *b)
{
	const st_tensor *x = a, *y = b;
	const size_t sx = st_size(x->dtype), sy = st_size(y->dtype);

	return sx != sy ? (sx < sy) - (sx > sy) : strcmp(x->name, y->name);
}

/* sprintf that gives where it stopped. */
__attribute__((format(printf, 2, 3))) static char *print(char *to, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	const int n = vsprintf(to, format, ap);
	va_end(ap);
	return n > 0 ? to + n : to;
}

static char *quote(char *to, const char *s)
{
	*to++ = '"';
	for (; *s; s++) {
		const unsigned char c = (unsigned char)*s;

		if (c == '"' || c == '\\')
			*to++ = '\\';
		if (c < 0x20)
			to = print(to, "\\u%04x", c);
		else
			*to++ = (char)c;
	}
	*to++ = '"';
	return to;
}

char *st_layout(st_tensor *t, int n, long long step, size_t *size)
{
	size_t room = 256, offset = 0;

	qsort(t, (size_t)n, sizeof *t, by_size_and_name);
	for (int i = 0; i < n; i++)
		room += 6 * strlen(t[i].name) + 128 + 24 * (size_t)t[i].rank;
	char *text = malloc(room);

	if (!text)
		return NULL;
	char *to = text + 8;

	*to++ = '{';
	if (step >= 0)
		to = print(to, "\"__metadata__\":{\"step\":\"%010lld\"}%s", step, n ? "," : "");
	for (int i = 0; i < n; i++) {
		t[i].bytes = st_size(t[i].dtype);
		for (int d = 0; d < t[i].rank; d++)
			t[i].bytes *= (size_t)t[i].dim[d];
		t[i].offset = offset;
		offset += t[i].bytes;
		to = quote(to, t[i].name);
		to = print(to, ":{\"dtype\":\"%s\",\"shape\":[", t[i].dtype);
		for (int d = 0; d < t[i].rank; d++)
			to = print(to, "%s%lld", d ? "," : "", (long long)t[i].dim[d]);
		to = print(to, "],\"data_offsets\":[%zu,%zu]}%s", t[i].offset, offset, i + 1 < n ? "," : "");
	}
	*to++ = '}';
	while ((to - text) % 64)
		*to++ = ' ';
	*size = (size_t)(to - text);
	for (int i = 0; i < 8; i++)
		text[i] = (char)((uint64_t)(*size - 8) >> 8 * i);
	return text;
}
