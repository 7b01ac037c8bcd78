/* Shared by the fuzz harnesses: one input = one arena, diagnostics thrown away. */
#ifndef PDCC_FUZZ_H
#define PDCC_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ir/base/arena.h"
#include "ir/base/diag.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static FILE *fuzz_null;

static inline void fuzz_diag(Diag *d, Arena *a)
{
	if (!fuzz_null)
		fuzz_null = fopen("/dev/null", "w");
	diag_init(d, fuzz_null, a);
}

/* The readers take paths; a memory file keeps the disk out of it. Gives the path, -1 in *fd on failure. */
static inline const char *fuzz_file(const uint8_t *data, size_t n, int *fd)
{
	static char path[] = "/tmp/pdcc-fuzz-XXXXXX"; /* no name that another user can guess */

	memcpy(strrchr(path, '-') + 1, "XXXXXX", 6);
	const int made = mkstemp(path);
	FILE *f = made < 0 ? NULL : fdopen(made, "wb");
	*fd = f ? 0 : -1;
	if (f) {
		fwrite(data, 1, n, f);
		fclose(f);
	}
	return path;
}

#endif
