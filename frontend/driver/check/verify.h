/* What the files of pdcc verify share. */
#ifndef PDCC_CHECK_VERIFY_H
#define PDCC_CHECK_VERIFY_H

#include "frontend/driver/compile/compile.h"

/* verify_first_step.c: which values both programs tell of, from the planned module; then those of the folders' runs compared. */
void verify_tell(Compile *c);
/* How far apart two runs' weights may be behind one update where the gradient is roundings alone: Adam and its like divide it by
 * its own size, so that what is left is a step of full length in any direction. 0: the optimizer does not. */
double verify_stride(const Compile *c);
bool verify_first_step(Compile *c, const char *many, const char *one, bool exact);

#endif
