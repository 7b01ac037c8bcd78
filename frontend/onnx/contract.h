/* Private to the ONNX front end: the contract, metadata of the model (keys `pdcc.*`) that say what ONNX does not carry. Whoever
 * exports a model can write it; frontend/python does. Values are lines, fields of a line are separated by a tab:
 *     pdcc.version        1
 *     pdcc.parameters     NAME            initializers that are trained
 *     pdcc.frozen         NAME            parameters without gradient (requires_grad=False)
 *     pdcc.buffers        NAME            constants of the model
 *     pdcc.statistics     NAME            running means and variances of BatchNormalization
 *     pdcc.padding        TABLE, ROW      looking up this row gives it no gradient (padding_idx)
 *     pdcc.stops          VALUE           no gradient runs back through this value (detach, no_grad)
 *     pdcc.ties           OTHER, NAME     another name of an initializer
 *     pdcc.modes          PATH, MODE      modules and whether they are in mode train or eval
 *     pdcc.batch          INPUT, AXIS     the axis of the batch; inputs that are not named have none
 * What it says holds; where the graph says otherwise the model is refused (E0214). */
#ifndef PDCC_FRONTEND_CONTRACT_H
#define PDCC_FRONTEND_CONTRACT_H

#include "frontend/onnx/onnx_file.h"

typedef enum Role { ROLE_NONE, ROLE_PARAMETER, ROLE_FROZEN, ROLE_BUFFER, ROLE_STATISTIC } Role;

typedef struct Contract {
	Map role; /* initializer -> Role */
	Map stop; /* value */
	Map mode; /* module -> its mode */
	Binding *padding;
	int npadding; /* table -> row, in value */
	Binding *batch;
	int nbatch;
	bool says_batch;
} Contract;

/* *out NULL: the model has none. False after a diagnostic; g is the model's graph with its functions expanded. */
bool contract_read(Arena *a, const OnnxModel *p, const char *path, const Contract **out, Diag *d);
Role contract_role(const Contract *c, const char *name);

/* The mode of the module whose running statistics a BatchNormalization reads; NULL: not told. */
const char *contract_mode(Arena *a, const Contract *c, const OnnxNode *n);
/* Behind a node: outputs at which gradients stop, as the contract or PyTorch's call (torch_calls.h) says. */
void contract_stop(Import *im, const OnnxNode *n);
/* Behind all nodes: rows of padding. */
bool contract_padding(Import *im);

#endif
