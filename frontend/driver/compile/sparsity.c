/* Measured sparsity (Parallax section 3.2: the share of a table's rows that a step uses): of tables that are looked up by ids
 * out of the data set, how many different rows so many samples name. Reads .npy files of i32 and i64; of other files
 * passes/comm/travel.c takes evenly drawn ids. Fills Param.touch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "compile.h"

enum { GROUPS = 64, SAMPLES = 1 << 16, SOURCES = 8, POINTS = 20 };

/* Whole numbers, `width` of each sample. */
typedef struct Ids {
	int bytes;
	int64_t samples, width;
	unsigned char *data;
} Ids;

static int64_t number(const char *head, const char *key)
{
	const char *at = strstr(head, key);

	return at ? strtoll(at + strlen(key), NULL, 10) : -1;
}

/* The first SAMPLES samples. False: it is no such file; the program will say so when it reads it. */
static bool read_ids(Arena *a, const char *path, Ids *x)
{
	FILE *f = file_is_regular(path) ? fopen(path, "rb") : NULL;
	unsigned char start[10];
	char head[4096] = "";
	bool ok = f && fread(start, 1, 10, f) == 10 && !memcmp(start, "\x93NUMPY\x01", 7);
	const size_t n = ok ? start[8] + 256u * start[9] : 0;

	ok = ok && n < sizeof head && fread(head, 1, n, f) == n && strstr(head, "'fortran_order': False");
	x->bytes = strstr(head, "'<i8'") ? 8 : strstr(head, "'<i4'") ? 4 : 0;
	x->samples = number(head, "'shape': (");
	x->width = 1;
	const char *shape = strstr(head, "'shape': (");
	for (const char *p = shape ? strchr(shape, ',') : NULL; p && *p == ','; p = strpbrk(p + 1, ",)")) {
		const int64_t dim = strtoll(p + 1, NULL, 10);
		if (dim > 0 && x->width < (1 << 20))
			x->width *= dim;
	}
	x->samples = x->samples < SAMPLES ? x->samples : SAMPLES;
	ok = ok && x->bytes && x->samples > 0 && x->width > 0 && x->width < (1 << 20);
	if (ok) {
		const size_t bytes = (size_t)(x->samples * x->width * x->bytes);
		x->data = arena_alloc(a, bytes);
		ok = fread(x->data, 1, bytes, f) == bytes;
	}
	if (f)
		fclose(f);
	return ok;
}

static const char *path_of(const Training *t, const Value *ids)
{
	while (ids->kind == VAL_NODE && (optab[ids->def->op]->flags & OP_VIEW || ids->def->op == OP_Cast))
		ids = ids->def->in[0];
	for (int i = 0; i < t->data.ninput && ids->kind == VAL_INPUT; i++)
		if (!strcmp(t->data.input[i].input, ids->name) && t->data.input[i].kind == DATA_NPY)
			return t->data.input[i].path;
	return NULL;
}

/* Different rows that `group` samples name, on average over groups; of shuffled data the samples lie far apart. */
static double distinct(
	const Ids *x, int n, int64_t samples, int64_t group, bool shuffle, int64_t rows, int *seen, int *now)
{
	const int64_t groups = samples / group < GROUPS ? samples / group : GROUPS,
		      step = shuffle ? samples / group : 1;
	int64_t all = 0;

	for (int64_t g = 0; g < groups; g++) {
		++*now;
		for (int64_t i = 0; i < group; i++)
			for (int k = 0; k < n; k++) {
				const int64_t s = shuffle ? g + i * step : g * group + i;
				for (int64_t j = 0; j < x[k].width; j++) {
					int64_t id;
					int32_t half;
					memcpy(&half, x[k].data + (s * x[k].width + j) * x[k].bytes, sizeof half);
					id = half;
					if (x[k].bytes == 8)
						memcpy(&id, x[k].data + (s * x[k].width + j) * 8, sizeof id);
					id += id < 0 ? rows : 0;
					if (id >= 0 && id < rows && seen[id] != *now) {
						seen[id] = *now;
						all++;
					}
				}
			}
	}
	return (double)all / (double)groups;
}

static void measure(Compile *c, Value *w, const char *const *path, int n)
{
	Ids x[SOURCES];
	int64_t samples = SAMPLES, lookups = 0;
	Touch *t = NEW(c->a, Touch);
	int now = 0, *seen = NEWN(c->scratch, int, w->type.dim[0]);

	for (int i = 0; i < n; i++) {
		if (!read_ids(c->scratch, path[i], &x[i]))
			return;
		samples = x[i].samples < samples ? x[i].samples : samples;
		lookups += x[i].width;
	}
	t->lookups = NEWN(c->a, double, POINTS);
	t->rows = NEWN(c->a, double, POINTS);
	for (int64_t group = 1; group <= samples && t->n < POINTS; group *= 2) {
		t->lookups[t->n] = (double)(lookups * group);
		t->rows[t->n++] = distinct(x, n, samples, group, c->o->t.data.shuffle, w->type.dim[0], seen, &now);
	}
	w->param->touch = t;
}

void measure_sparsity(Compile *c)
{
	const Training *t = &c->o->t;

	if (!c->m->graph || !t->comm.by || !t->data.ninput)
		return;
	for (int i = 0; i < c->m->nparam; i++) {
		Value *w = c->m->param[i];
		const char *path[SOURCES];
		int n = 0;
		bool known = w->type.rank > 1;

		for (int u = 0; u < w->nuses && known; u++) {
			const Node *g = w->uses[u].node;
			const char *file = g->op == OP_Gather && w->uses[u].index == 0 && attr_int(g, "axis") == 0
			                           ? path_of(t, g->in[1])
			                           : NULL;
			known = file && n < SOURCES;
			if (known)
				path[n++] = file;
		}
		if (known && n)
			measure(c, w, path, n);
	}
}
