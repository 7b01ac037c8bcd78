/* Programs that pdcc calls: make, compilers, mpirun. */
#ifndef PDCC_FRONTEND_TOOLS_H
#define PDCC_FRONTEND_TOOLS_H

#include "ir/base/diag.h"

bool tool_found(const char *name);                             /* in the PATH */
bool tool_needed(Diag *d, const char *name);                   /* false after E0801 */
bool tool_run(Diag *d, const char *what, const char *command); /* by the shell; false after E0802 */

/* The first line that a shell command prints, in arena memory; NULL: it failed and printed none. */
const char *first_line(Arena *a, const char *command);

#endif
