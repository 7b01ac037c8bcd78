/* files.c: .npy, IDX, raw and safetensors files, whole and broken. Usage: files DIR (to write
 * in). */
#include "test.h"
#include "files.h"
#include "safetensors.h"

static char path[4096];

static const char *put(const char *name, const void *data, size_t n)
{
	FILE *f;

	strcpy(strrchr(path, '/') + 1, name);
	f = fopen(path, "wb");
	if (!f || fwrite(data, 1, n, f) != n || fclose(f))
		exit(2);
	return path;
}

/* A .npy file; `cut` bytes are left away (negative: added). */
static const char *npy(int version, const char *dict, const void *data, size_t n, int cut)
{
	static char b[4096];
	const size_t len = strlen(dict), head = version == 1 ? 10 : 12;

	memset(b, 0, sizeof b);
	memcpy(b, "\x93NUMPY", 6);
	b[6] = (char)version;
	b[8] = (char)(len & 255);
	b[9] = (char)(len >> 8);
	memcpy(b + head, dict, len);
	if (n)
		memcpy(b + head + len, data, n);
	return put("a.npy", b, (size_t)((int)(head + len + n) - cut));
}

static void refused(const char *file, const char *kind, pd_dtype t, const char *text)
{
	file_array a;
	const char *why = "";

	CHECK(!file_open(&a, file, kind, t, "x", &why) && strstr(why, text), "%s: '%s', wanted '%s'", file, why, text);
}

static void npy_files(void)
{
	static const float f[6] = { 1, 2, 3, 4, 5, 6.5f };
	static const int64_t l[3] = { -1, 7, 1ll << 40 };
	static const uint8_t big[8] = { 0xFF, 0xFF, 0xFF, 0xFE, 0, 0, 1, 0 };
	file_array a;
	const char *why = "";
	float g[6];
	double d[6];
	int64_t k[3];

	for (int version = 1; version <= 3; version++) {
		CHECK(file_open(&a,
			      npy(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", f, sizeof f,
				      0),
			      "npy", 0, "x", &why),
			"version %d: %s", version, why);
		CHECK(a.rank == 2 && a.dim[0] == 2 && a.dim[1] == 3 && a.dtype == PD_F32, "shape");
		file_values(&a, 0, 6, PD_F32, g);
		file_values(&a, 1, 5, PD_F64, d);
		CHECK(!memcmp(f, g, sizeof f) && d[4] == 6.5, "values");
		file_close(&a);
	}
	CHECK(file_open(&a, npy(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", l, sizeof l, 0), "npy", 0,
		      "x", &why),
		"%s", why);
	file_values(&a, 0, 3, PD_I64, k);
	CHECK(!memcmp(l, k, sizeof l), "i8");
	file_close(&a);
	CHECK(file_open(&a, npy(1, "{'descr': '>i4', 'fortran_order': False, 'shape': (2,)}", big, 8, 0), "npy", 0, "x",
		      &why),
		"%s", why);
	file_values(&a, 0, 2, PD_I64, k);
	CHECK(k[0] == -2 && k[1] == 256, "big-endian: %lld %lld", (long long)k[0], (long long)k[1]);
	file_close(&a);
	CHECK(file_open(&a, npy(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (8,)}", big, 8, 0), "npy", 0, "x",
		      &why),
		"%s", why);
	file_values(&a, 0, 2, PD_F32, g);
	CHECK(g[0] == 255, "u1 of .npy is not scaled");
	file_close(&a);

	refused(npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", f, sizeof f, 0), "npy", 0,
		"Fortran");
	refused(npy(1, "{'descr': '<c8', 'fortran_order': False, 'shape': (3,)}", f, sizeof f, 0), "npy", 0,
		"element type");
	refused(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", f, sizeof f, 1), "npy", 0,
		"truncated");
	refused(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3)}", f, sizeof f, -4), "npy", 0,
		"longer");
	refused(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775807, 9223372036854775807)}",
			f, 0, 0),
		"npy", 0, "too large");
	refused(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", f, 0, 0), "npy", 0,
		"shape");
	refused(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", f, 4, 0), "npy", 0,
		"dimensions");
	refused(npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, x)}", f, 8, 0), "npy", 0, "shape");
	refused(npy(1, "{'descr': '<f4'", f, 0, 0), "npy", 0, "fortran_order");
	refused(npy(9, "{}", f, 0, 0), "npy", 0, "version");
	refused(put("a.npy", "\x93NUMPY\1\0\xff\xff____", 14), "npy", 0, "header");
	refused(put("a.npy", "", 0), "npy", 0, "empty");
	refused(put("a.npy", "hello world, hello", 18), "npy", 0, "no .npy");
	strcpy(strrchr(path, '/') + 1, "missing");
	refused(path, "npy", 0, "No such file");
}

static void other_files(void)
{
	static const uint8_t images[] = { 0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 51, 255, 102 };
	static const float f[3] = { 1, 2, 3 };
	file_array a;
	const char *why = "";
	float g[4];
	int64_t k[4];

	CHECK(file_open(&a, put("a.idx", images, sizeof images), "idx", 0, "x", &why), "%s", why);
	CHECK(a.rank == 3 && a.dim[0] == 2 && a.dim[2] == 2, "shape");
	file_values(&a, 0, 4, PD_F32, g);
	file_values(&a, 0, 4, PD_I64, k);
	CHECK(g[1] == 51 * (1.0f / 255) && g[2] == 1 && k[2] == 255, "pixels are scaled, labels are not");
	file_close(&a);
	for (size_t n = 0; n < sizeof images; n++)
		refused(put("a.idx", images, n), "idx", 0, n < 2 ? "" : n < 16 ? "" : "truncated");
	refused(put("a.idx", "\x1f\x8b\x08\x08", 4), "idx", 0, "gunzip");
	CHECK(file_open(&a, put("a.bin", f, sizeof f), "raw", PD_F32, "x", &why) && a.dim[0] == 3, "%s", why);
	file_close(&a);
	refused(put("a.bin", f, 7), "raw", PD_F32, "multiple");
	refused(put("a.bin", f, 8), "hdf5", PD_F32, "kind");
}

/* ---- safetensors ---- */

static const char *with_header(const char *json, size_t data)
{
	static char b[8192];

	memset(b, 0, sizeof b);
	b[0] = (char)(strlen(json) & 255);
	b[1] = (char)(strlen(json) >> 8);
	memcpy(b + 8, json, strlen(json));
	return put("a.safetensors", b, 8 + strlen(json) + data);
}

static void safetensors_refused(const char *file, const char *text)
{
	st_file f;
	const char *why = "";

	CHECK(!st_open(&f, file, &why) && strstr(why, text), "'%s', wanted '%s'", why, text);
}

/* A file of samples: the tensor that is called so, or the only one. */
static void samples_in_safetensors(void)
{
	static const char two[] = "{\"l\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
				  "\"x\":{\"dtype\":\"I32\",\"shape\":[2,1],\"data_offsets\":[2,10]}}";
	static const char one[] = "{\"y\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}";
	static const char half[] = "{\"x\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}";
	file_array a;
	const char *why = "";

	CHECK(file_open(&a, with_header(two, 10), "safetensors", PD_F32, "x", &why), "%s", why);
	CHECK(a.dtype == PD_I32 && a.rank == 2 && a.dim[0] == 2 && a.dim[1] == 1 &&
			a.data == a.map + 8 + strlen(two) + 2,
		"the second tensor");
	file_close(&a);
	CHECK(!file_open(&a, with_header(two, 10), "safetensors", PD_F32, "z", &why) && strstr(why, "none has"), "%s",
		why);
	CHECK(file_open(&a, with_header(one, 12), "safetensors", PD_F32, "x", &why) && a.dim[0] == 3, "%s", why);
	file_close(&a);
	refused(with_header(half, 4), "safetensors", PD_F32, "element type");
	refused(with_header("{}", 0), "safetensors", PD_F32, "no tensor");
	refused(with_header(one, 11), "safetensors", PD_F32, "");
}

static void safetensors(void)
{
	st_tensor t[4] = {
		{ .name = "b\"\\\n\xC3\xA4", .dtype = "F32", .rank = 2, .dim = { 2, 3 } },
		{ .name = "n", .dtype = "I64", .rank = 0 },
		{ .name = "a", .dtype = "F32", .rank = 1, .dim = { 5 } },
		{ .name = "z", .dtype = "U8", .rank = 1, .dim = { 0 } },
	};
	size_t size;
	char *head = st_layout(t, 4, 42, &size), *all = calloc(1, size + 52);
	st_file f;
	const char *why = "";

	CHECK(size % 64 == 0, "data begin at a multiple of 64");
	CHECK(!strcmp(t[0].name, "n") && !strcmp(t[1].name, "a") && t[1].offset == 8 && t[2].offset == 28 &&
			t[3].offset == 52,
		"order");
	memcpy(all, head, size);
	for (int i = 0; i < 52; i++)
		all[size + (size_t)i] = (char)i;
	CHECK(st_open(&f, put("a.safetensors", all, size + 52), &why), "%s", why);
	CHECK(f.n == 4 && f.step == 42, "%d tensors, step %lld", f.n, f.step);
	const st_tensor *b = st_find(&f, "b\"\\\n\xC3\xA4");

	CHECK(b && b->rank == 2 && b->dim[1] == 3 && b->bytes == 24 && b->data[0] == 28,
		"a name with all that needs escapes");
	CHECK(!st_find(&f, "c"), "no such tensor");
	st_close(&f);
	for (size_t n = 0; n < size + 52; n++) /* cut anywhere: refused, never read past the end */
		safetensors_refused(put("a.safetensors", all, n), "");
	for (size_t i = 8; i < size; i++) /* and any byte of the header may be anything */
		for (int v = 0; v < 256; v += 17) {
			char was = all[i];

			all[i] = (char)v;
			if (st_open(&f, put("a.safetensors", all, size + 52), &why))
				st_close(&f);
			all[i] = was;
		}
	safetensors_refused(
		with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4), "another size");
	safetensors_refused(
		with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 4), "outside");
	safetensors_refused(
		with_header("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4), "unknown dtype");
	safetensors_refused(
		with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[9999999999,9999999999],\"data_offsets\":[0,4]}}", 4),
		"another size");
	safetensors_refused(
		with_header("{\"a\":{\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,4]}}", 4),
		"too large");
	safetensors_refused(with_header("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4), "lacks");
	safetensors_refused(with_header("{\"a\":[1]}", 0), "JSON");
	safetensors_refused(with_header("{\"a\\u12", 0), "does not end");
	safetensors_refused(put("a.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "longer");
	free(head);
	free(all);
}

int main(int argc, char **argv)
{
	snprintf(path, sizeof path, "%s/", argc > 1 ? argv[1] : ".");
	npy_files();
	other_files();
	safetensors();
	samples_in_safetensors();
	return failures ? 1 : 0;
}
