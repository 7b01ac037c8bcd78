/* Private to the ONNX front end: what the calls beside an export of PyTorch's say, and its nodes do not. */
#ifndef PDCC_FRONTEND_TORCH_CALLS_H
#define PDCC_FRONTEND_TORCH_CALLS_H

#include "onnx_file.h"

/* Is the node a detach()? */
bool torch_detached(Arena *a, const OnnxNode *n);
/* Before a node is read: false after E0219, where its call says what changes the training and the node has not. */
bool torch_call_kept(Import *im, const OnnxNode *n);
/* Behind it: a lookup has the row of padding of its call. */
bool torch_padding(Import *im, const OnnxNode *n);

#endif
