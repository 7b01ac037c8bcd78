/* Weights (safetensors) and manifests of checkpoints; the first byte chooses. Of weights that open every byte is read. */
#include "fuzz.h"
#include "runtime/state/ckptdir.h"
#include "runtime/state/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *why;
	ck_manifest m;
	st_file f;
	int fd;

	if (!n)
		return 0;
	const char *path = fuzz_file(data + 1, n - 1, &fd);

	if (fd >= 0 && data[0] & 1) {
		char text[CK_TEXT];

		if (ck_read(&m, path, &why))
			ck_print(text, &m);
	} else if (fd >= 0 && st_open(&f, path, &why)) {
		static volatile char last;
		int64_t first;

		for (int i = 0; i < f.n; i++) {
			for (size_t k = 0; k < f.tensor[i].bytes; k++)
				last = f.tensor[i].data[k];
			(void)last;
			if (!st_find(&f, f.tensor[i].name))
				abort();
			st_find_rows(&f, 1, f.tensor[i].name, 0, &first);
		}
		st_close(&f);
	}
	unlink(path);
	return 0;
}
