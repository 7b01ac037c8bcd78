/* Private to the ONNX front end: what PyTorch's newer exporter (torch.onnx.export, dynamo=True) writes beside a graph. */
#ifndef PDCC_FRONTEND_TORCH_H
#define PDCC_FRONTEND_TORCH_H

#include "onnx_file.h"

/* Metadata that says what a value was folded from, and the call that a node came from; NULL: none. */
const char *torch_folded_from(Arena *a, const Onnx__ValueInfoProto *v);
const char *torch_call(Arena *a, const OnnxNode *n);

/* The module that called for the node, as PyTorch has it: blocks.3.down; NULL: not told, or the model itself. */
const char *torch_module(Arena *a, const OnnxNode *n);

/* The signature of the exported program: name of a parameter or buffer -> what it was. NULL: none, or none of the
 * names is among the initializers. */
typedef struct TorchTarget {
	bool param;
	const char *place; /* what calls name it, without the %; NULL: not told */
} TorchTarget;

Map *torch_signature(Arena *a, const OnnxGraph *g);
bool torch_is_param(const Map *sig, const char *name);

/* torch_unfold.c: an optimized export as it was before: parameters that were merged because they were equal are several
 * again, weights that were transposed in the file are transposed by a node. False after E0208: what cannot be undone
 * (BatchNormalization folded into weights, values computed from parameters). Graphs without a signature are left alone.
 * With types_only the data need not exist. New nodes get an entry in origin (NULL: none wanted). */
bool torch_unfold(Arena *a, OnnxModel *p, const char *path, bool types_only, Map *origin, Diag *d);

/* Whether the call behind a BatchNormalization was in training mode. */
bool torch_bn_training(Arena *a, const OnnxNode *n);

#endif
