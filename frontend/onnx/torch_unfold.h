/* Private to torch_unfold*.c: an optimized export while it is undone. */
#ifndef PDCC_FRONTEND_TORCH_UNFOLD_H
#define PDCC_FRONTEND_TORCH_UNFOLD_H

#include "torch.h"

typedef struct Unfold {
	Arena *a;
	Diag *d;
	const char *path;
	OnnxGraph *g;
	const Map *sig;
	Map have;              /* initializers: name -> OnnxTensor */
	Map from;              /* initializer -> names that it was folded from, ['a', 'b'] */
	bool types_only, told; /* told: what the user should know is said */
	bool blind;            /* a node that reads a parameter does not say where it came from */
	OnnxTensor **init;
	size_t ninit;
	OnnxNode **made;
	size_t nmade, cap; /* new nodes, to stand before all others */
} Unfold;

/* Does the call name this parameter, and where (for order)? */
bool unfold_reads(const Unfold *u, const char *call, const char *param);
const char *unfold_place(const Unfold *u, const char *call, const char *param);

void unfold_add(Unfold *u, OnnxTensor *t); /* an initializer more, or less */
void unfold_drop(Unfold *u, const OnnxTensor *t);
/* A node before all others but those that were made before; its outputs are to be set. */
OnnxNode *unfold_node(Unfold *u, const char *op, const char *name, size_t nin, size_t nout);
OnnxAttr *unfold_attr(Unfold *u, OnnxNode *n, const char *name);
/* param: a tensor as t, with these dimensions and, where there are data, room for them in *data (NULL: none wanted). */
OnnxTensor *unfold_param(
	Unfold *u, const OnnxTensor *t, const char *param, const int64_t *dim, size_t ndim, char **data);

/* torch_recurrent.c: t, which the parameters param[0..n) were folded into, as an operand of LSTM, GRU or RNN: put
 * together from them by nodes again. Sets *done; false after a diagnostic. */
bool unfold_recurrent(Unfold *u, OnnxTensor *t, const char **param, int n, bool *done);

#endif
