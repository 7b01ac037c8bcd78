/* Private to the ONNX front end: bodies (branches of If, local functions) written into the graph around them. A body's
 * nodes are copied with names that are unique in the whole model, and are then nodes like any other. */
#ifndef PDCC_FRONTEND_INLINE_H
#define PDCC_FRONTEND_INLINE_H

#include "frontend/onnx/onnx_file.h"

typedef Onnx__FunctionProto OnnxFunction;

enum { MAXNEST = 32 }; /* graphs in attributes, calls in functions */

/* Names of a body: as it stands there -> as it is in the graph. Names that a body does not define are looked up in the
 * scope around it; where that ends they are the graph's (If captures), or `closed` ones (a function sees nothing outside). */
typedef struct Scope {
	Arena *a;
	const struct Scope *up;
	Map *taken;  /* every name there is */
	Map *origin; /* of nodes; may be NULL */
	const char *prefix;
	const OnnxNode *node; /* the If of a branch: see inline_inner; else NULL */
	bool closed;
	const OnnxNode *call;    /* a function's body: where ref_attr_name looks, */
	const OnnxFunction *fun; /* and then */
	Map names;
} Scope;

void scope_open(Scope *s, const Scope *up, const char *prefix); /* a, taken and the like come from `up` */
const char *scope_define(Scope *s, const char *name);           /* prefix/name, or with .1 .2 ... when taken */
const char *scope_use(const Scope *s, const char *name);
OnnxNode *scope_node(const Scope *s, const OnnxNode *n); /* n with the names and attributes of the scope */

/* All names of values in g and in the graphs of its nodes. */
void inline_names(Map *taken, const OnnxGraph *g);
/* Are graphs in attributes of these nodes nested at most MAXNEST deep? */
bool inline_depth_ok(OnnxNode *const *node, size_t n, int depth);
/* What a body's names begin with: the node's name, its first output, its operator; for a branch of an If that itself
 * stands in a body with `prefix` (or in the graph, "") the whole beginning, NODE/then or NODE/else. */
const char *inline_prefix(const OnnxNode *n);
/* A branch's name without the folder that it shares with its If: /n/x in a branch of /n/If is x. */
const char *inline_inner(const OnnxNode *n, const char *name);
const char *inline_branch(Arena *a, const OnnxNode *n, const char *prefix, bool then);
/* The scope of what stands in n, a node of the model's graph or of a body that is in it already. */
void inline_root(Import *im, Scope *s, const OnnxNode *n);
OnnxGraph *scope_graph(const Scope *up, const OnnxGraph *g); /* g with the names of a scope within `up` */
/* The initializers of g, the graph around it being done, under names of s; the nodes of g, which has its names. */
bool inline_initializers(Import *im, Scope *s, const OnnxGraph *g);
bool inline_nodes(Import *im, const OnnxGraph *g);
/* The default that the function declares for an attribute (IR 9); NULL: none. */
const OnnxAttr *function_default(Arena *a, const OnnxFunction *f, const char *name);

#endif
