/* input.h: a source of samples, shared by input.c and synthetic.c. */
#ifndef INPUT_H
#define INPUT_H

#include "rt.h"
#include "files.h"

typedef struct source {
	const pd_input_desc *d;
	file_array a; /* data NULL: made up on the fly */
	int64_t samples;
	int64_t before, each, after; /* dimensions: in front of the batch axis, per sample on it, behind it */
	size_t elements;             /* per sample */
	size_t shift;                /* token files: elements that a window begins later */
	uint64_t key;                /* of the name */
	int64_t first;               /* made up: number of the first sample */
	bool synthetic;
	bool presence;    /* 1 for a sample, 0 where the data have ended */
	bool eval;        /* of the evaluation set */
	bool ahead;       /* too large to be brought in whole */
	const char *kind; /* of the file */
	char path[4096];
} source;

/* inputs_used.c: of both sets, of all ranks. */
void input_tell(const pd_program *p, const source *const set[2], const int n[2]);

void input_make_all(source *s);                             /* at start, where that is little */
void input_make(const source *s, int64_t sample, char *to); /* a sample, contiguous */
/* As place b of a microbatch of `micro`, whatever axis is the batch. */
void input_make_into(const source *s, int64_t sample, int64_t b, int64_t micro, char *to);

#endif
