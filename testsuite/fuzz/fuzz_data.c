/* Files of samples: .npy, IDX, safetensors, raw numbers, tokens. The first byte chooses the kind and the type that is wanted. What opens is read
 * to its last element. */
#include "fuzz.h"
#include "runtime/data/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	static const char *const kinds[] = { "npy", "idx", "raw", "tokens", "tokens32", "safetensors" };
	static const pd_dtype types[] = { PD_F32, PD_F64, PD_I64, PD_I32, PD_U8, PD_BOOL };
	enum { BLOCK = 64 };
	int64_t values[BLOCK];
	file_array a;
	const char *why;
	int fd;

	if (!n)
		return 0;
	const pd_dtype as = types[data[0] / 6 % 6];
	const char *path = fuzz_file(data + 1, n - 1, &fd);

	if (fd >= 0 && file_open(&a, path, kinds[data[0] % 6], as, "x", &why)) {
		size_t count = 1;

		for (int i = 0; i < a.rank; i++)
			count *= (size_t)a.dim[i];
		for (size_t at = 0; at < count; at += BLOCK)
			file_values(&a, at, count - at < BLOCK ? count - at : BLOCK, as, values);
		file_close(&a);
	}
	unlink(path);
	return 0;
}
