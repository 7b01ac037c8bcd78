/* standin_graph.h: descriptors of cuDNN's graphs of operations, for the files that stand in for them. */
#ifndef STANDIN_GRAPH_H
#define STANDIN_GRAPH_H

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

enum { ATTRS = 8, OPS = 24, TENSORS = 64 };

typedef struct desc desc;
typedef struct attr {
	int name;
	int64_t n;
	union {
		int64_t i[OPS];
		const void *p[OPS];
		desc *d[OPS];
		bool b[OPS];
		int e[OPS];
	} u;
} attr;
struct desc {
	int type, nattr, fault;
	bool finished;
	attr a[ATTRS];
}; /* fault of a configuration: REFUSES, GREEDY */
enum { REFUSES = 1, GREEDY };

/* standin_graph.c */
const attr *graph_attr(const desc *d, int name); /* NULL: it has none */
desc *graph_part(const desc *d, int name);
int graph_choice(const desc *d, int name);
const int64_t *graph_dims(const desc *t);
const int64_t *graph_strides(const desc *t);
int64_t graph_uid(const desc *t);
int graph_type(const desc *t);
bool graph_hidden(const desc *t); /* never in memory */
bool graph_told(const desc *t);   /* by value */
int graph_mode(const desc *o);    /* of an operation on each element */
desc *graph_result(const desc *o);
int graph_operands(const desc *o, desc **in);
cudnnStatus_t graph_bad(const char *what, int name);
cudnnStatus_t graph_refused(const char *why);

#endif
