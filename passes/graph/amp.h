/* Mixed precision: what products compute in. */
#ifndef PDCC_PASSES_GRAPH_AMP_H
#define PDCC_PASSES_GRAPH_AMP_H

#include "passes/common/pass.h"

DType amp_dtype(const Training *t); /* of --amp; f32: in what they have */

#endif
