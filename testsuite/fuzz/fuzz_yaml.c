/* The cluster.yaml and train.yaml readers. The first byte chooses which. */
#include "fuzz.h"
#include "frontend/settings/cluster.h"
#include "frontend/settings/train.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	if (!n)
		return 0;
	Arena *a = arena_new();
	Diag d;
	int fd;
	const char *path = fuzz_file(data + 1, n - 1, &fd);

	fuzz_diag(&d, a);
	if (fd >= 0) {
		if (data[0] & 1) {
			Cluster c = { 0 };

			cluster_read(a, path, &c, &d);
		} else {
			Training t = { 0 };

			train_read(a, path, &t, &d);
		}
		unlink(path);
	}
	arena_free(a);
	return 0;
}
