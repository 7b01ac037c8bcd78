/* files.h: arrays of samples in files. Uses nothing of the runtime but pd.h's data types. */
#ifndef FILES_H
#define FILES_H

#include "pd.h"

typedef struct file_array {
	pd_dtype dtype;
	int rank;
	int64_t dim[PD_MAXRANK];
	const char *data;
	bool swapped; /* big-endian */
	bool unit;    /* u8 pixels: reading as real numbers scales by 1/255 */
	char *map;
	size_t size;
} file_array;

/* kind: "npy" (versions 1 to 3), "idx", "raw": elements of type `raw`, little-endian, of rank
 * 1; "tokens", "tokens32": a row of unsigned numbers of 16 or 32 bits, or a .npy row of whole numbers; "safetensors": the tensor
 * `name`, or the only one. false: *error says why, in static memory. Every size is checked against the file. */
bool file_open(file_array *a, const char *path, const char *kind, pd_dtype raw, const char *name, const char **error);
void file_close(file_array *a);
/* n elements from element `first` on, converted to `as`. */
void file_values(const file_array *a, size_t first, size_t n, pd_dtype as, void *to);

void file_put_real(void *to, pd_dtype as, size_t i, double v);
void file_put_whole(void *to, pd_dtype as, size_t i, int64_t v);

#endif
