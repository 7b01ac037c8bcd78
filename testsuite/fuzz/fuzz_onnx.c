/* The ONNX importer: any bytes give a module or a diagnostic. Weights are small, so external data is never found. */
#include "fuzz.h"
#include "frontend/onnx/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	Arena *a = arena_new();
	Diag d;
	int fd;
	const char *path = fuzz_file(data, n, &fd);

	fuzz_diag(&d, a);
	if (fd >= 0) {
		ImportOpt o = { .micro = 2, .init_random = 1 };

		onnx_import(a, path, &o, &d);
		o = (ImportOpt){ .keep_eval = true };
		onnx_import(a, path, &o, &d);
		unlink(path);
	}
	arena_free(a);
	return 0;
}
