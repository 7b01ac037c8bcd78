/* Schedules in PyTorch's notation: any bytes give a table or a diagnostic. */
#include "fuzz.h"
#include "passes/schedule/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	Arena *a = arena_new();
	Diag d;
	Csv x = { 0 };
	int fd;
	const char *path = fuzz_file(data, n, &fd);

	fuzz_diag(&d, a);
	if (fd >= 0) {
		csv_read(a, path, &x, &d);
		unlink(path);
	}
	arena_free(a);
	return 0;
}
