/* The meaning of error codes. */
#ifndef PDCC_FRONTEND_EXPLAIN_H
#define PDCC_FRONTEND_EXPLAIN_H

#include "ir/base/diag.h"

/* The line of a code, NULL for one that is not in the table. letter: 'E' for pdcc, 'R' for emitted programs. */
const char *explain_title(char letter, int number);
/* argv: the codes that follow `pdcc explain`; none: all are listed. Returns the exit status. */
int explain_main(int argc, char **argv, Diag *d);

#endif
