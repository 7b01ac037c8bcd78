/* What is trained. */
#ifndef PDCC_PASSES_TRAINED_H
#define PDCC_PASSES_TRAINED_H

#include "passes/common/pass.h"

/* Param.frozen of every parameter, as settings and the paths of the gradient have it. False after E0313. */
bool choose_trained(Module *m, PassCx *cx);
/* Rows of padding that the settings name, at what reads them. False after a diagnostic. */
bool set_padding(Module *m, const Training *t, PassCx *cx);

#endif
