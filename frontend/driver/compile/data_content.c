/* What a file of samples is, by its content; what pdcc does not read is named, with the lines of Python that convert it. */
#include "data_content.h"
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "ir/base/buf.h"

enum { HEAD = 4096 };

typedef struct Head {
	unsigned char b[HEAD];
	size_t n;
	int64_t size;
} Head;

static bool read_head(const char *path, Head *h)
{
	FILE *f = file_is_regular(path) ? fopen(path, "rb") : NULL;

	if (!f)
		return false;
	h->n = fread(h->b, 1, sizeof h->b, f);
	const bool ok = !ferror(f) && fseek(f, 0, SEEK_END) == 0;

	h->size = ok ? ftell(f) : 0;
	fclose(f);
	return ok && h->n > 0;
}

static bool begins(const Head *h, const char *magic, size_t n) { return h->n >= n && !memcmp(h->b, magic, n); }

static bool holds(const Head *h, const char *word)
{
	const size_t n = strlen(word);

	for (size_t i = 0; i + n <= h->n; i++)
		if (!memcmp(h->b + i, word, n))
			return true;
	return false;
}

/* 0 0, a type, a rank, big-endian sizes; and the file is as long as these say. */
static bool is_idx(const Head *h)
{
	static const unsigned char bytes[] = { [8] = 1, [9] = 1, [11] = 2, [12] = 4, [13] = 4, [14] = 8 };
	int64_t want;

	if (h->n < 8 || h->b[0] || h->b[1] || h->b[2] >= sizeof bytes || !bytes[h->b[2]] || h->b[3] < 1 ||
		h->b[3] > MAXRANK || h->n < 4 + 4 * (size_t)h->b[3])
		return false;
	want = bytes[h->b[2]];
	for (int i = 0; i < h->b[3]; i++) {
		const unsigned char *d = h->b + 4 + 4 * i;

		if (__builtin_mul_overflow(want, (int64_t)d[0] << 24 | d[1] << 16 | d[2] << 8 | d[3], &want))
			return false;
	}
	return want + 4 + 4 * h->b[3] == h->size;
}

/* The length of a header in JSON, then that header. */
static bool is_safetensors(const Head *h)
{
	uint64_t n = 0;

	for (int i = 7; i >= 0 && h->n > 8; i--)
		n = n << 8 | h->b[i];
	return n >= 2 && n <= (uint64_t)h->size - 8 && h->b[8] == '{';
}

static bool is_text(const Head *h)
{
	for (size_t i = 0; i < h->n; i++)
		if (h->b[i] < 0x80 && !isprint(h->b[i]) && !isspace(h->b[i]))
			return false;
	return true;
}

/* What pdcc does not read, for certain: no row of numbers begins so but by chance. */
static const char *foreign(Arena *a, const Head *h, const char *path, const char *input, const char **turn)
{
	const char *save = arena_printf(a, "numpy.save('%s.npy', ", input);

	if (begins(h, "PAR1", 4)) {
		*turn = arena_printf(a, "import numpy, pandas\n%spandas.read_parquet('%s').to_numpy())", save, path);
		return "a Parquet file";
	}
	if (begins(h, "PK\3\4", 4) && holds(h, "data.pkl")) {
		*turn = arena_printf(a, "import numpy, torch\n%storch.load('%s').numpy())", save, path);
		return "a file of torch.save";
	}
	if (begins(h, "PK\3\4", 4) && holds(h, ".npy")) {
		*turn = arena_printf(a, "import numpy\n%snumpy.load('%s')['%s'])", save, path, input);
		return "an .npz archive";
	}
	if (begins(h, "\x1f\x8b", 2)) {
		*turn = arena_printf(a, "gunzip '%s'", path);
		return "a gzip file";
	}
	if (begins(h, "\x89HDF\r\n", 6)) {
		*turn = arena_printf(a, "import h5py, numpy\n%sh5py.File('%s')['%s'][:])", save, path, input);
		return "an HDF5 file";
	}
	return NULL;
}

/* What nobody says is a row of bare numbers, and does not look like one. */
static const char *unlike_numbers(Arena *a, const Head *h, const char *path, const char *input, const char **turn)
{
	const char *save = arena_printf(a, "numpy.save('%s.npy', ", input);

	if (h->b[0] == 0x80 && h->n > 1 && h->b[1] >= 2 && h->b[1] <= 5) {
		*turn = arena_printf(
			a, "import numpy, pickle\n%snumpy.asarray(pickle.load(open('%s', 'rb'))))", save, path);
		return "a pickle";
	}
	if (is_text(h)) {
		*turn = arena_printf(a, "import numpy\n%snumpy.loadtxt('%s', delimiter=','))", save, path);
		return "text";
	}
	return NULL;
}

DataKind data_content(Arena *a, const DataInput *x, DataKind said, const char **what, const char **turn)
{
	const bool tokens = said == DATA_TOKENS || said == DATA_TOKENS32;
	Head h = { 0 };

	*what = NULL;
	if (!read_head(x->path, &h))
		return said;
	if (begins(&h, "\x93NUMPY", 6))
		return tokens ? said : DATA_NPY;
	if (is_safetensors(&h))
		return DATA_SAFETENSORS;
	if ((*what = foreign(a, &h, x->path, x->input, turn)))
		return DATA_UNSAID;
	if (tokens || said == DATA_RAW)
		return said;
	if (is_idx(&h))
		return DATA_IDX;
	if ((*what = unlike_numbers(a, &h, x->path, x->input, turn)))
		return DATA_UNSAID;
	return said;
}
