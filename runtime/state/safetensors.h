/* safetensors.h: reading and laying out safetensors files. Uses nothing else of the runtime. */
#ifndef SAFETENSORS_H
#define SAFETENSORS_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ST_MAXRANK = 8 };

typedef struct st_tensor {
	char *name;    /* UTF-8 */
	char dtype[8]; /* "F32" ... */
	int rank;
	int64_t dim[ST_MAXRANK];
	size_t offset, bytes; /* in the data part */
	const char *data;     /* reading: in the mapped file */
} st_tensor;

typedef struct st_file {
	int n;
	st_tensor *tensor;
	long long step; /* "step" of __metadata__; -1: none */
	char *map;
	size_t size;
} st_file;

/* Maps a file. On failure false, and *error says why in static memory. */
bool st_open(st_file *f, const char *path, const char **error);
void st_close(st_file *f);
const st_tensor *st_find(const st_file *f, const char *name);
/* Rows of a tensor that several ranks have in pieces are tensors of their own, NAME[first:end]. Of n files the tensor `name`, or
 * the piece of it that has this row; *first: the row that it begins with. NULL: there is none. */
/* Behind its name, of a member's part of a tensor: axis, blocks, member, members (pd_param); where the whole is padded, by how many; ]. */
#define ST_PART "[%d:%" PRId64 ":%d/%d"
#define ST_PAD "+%" PRId64
/* Of a replica's part of it: its elements from, to, in one row. */
#define ST_SPAN "[@%" PRId64 ":%" PRId64 "]"
#define ST_PIECE "[%" PRId64 ":%" PRId64 "]"
const st_tensor *st_find_rows(const st_file *f, int n, const char *name, int64_t row, int64_t *first);
/* Bytes of a mapped file were read and will hardly be again: they need no memory until then. */
void st_release(const void *p, size_t bytes);

size_t st_size(const char *dtype); /* bytes per element; 0: unknown */
/* ONNX TensorProto.DataType to a safetensors dtype; NULL: none. */
const char *st_dtype(int onnx);

/* Lays tensors out: 8-byte elements first, then 4, 2, 1; names ascending (strcmp) among equals;
 * packed without holes, as the format demands. Sets offset and bytes, and gives the file's
 * beginning (length, JSON, padded with blanks so that data begin at a multiple of 64) in memory
 * that the caller frees, its size in *size. step -1: no metadata. */
char *st_layout(st_tensor *t, int n, long long step, size_t *size);

#endif
