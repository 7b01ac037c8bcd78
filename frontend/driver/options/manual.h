/* Completion for shells and the man page, from the option table. */
#ifndef PDCC_FRONTEND_MANUAL_H
#define PDCC_FRONTEND_MANUAL_H

#include "ir/base/diag.h"

/* argv: what follows `pdcc completion`; command: the n subcommands. Returns the exit status. */
int completion_main(int argc, char **argv, const char *const *command, int n, Diag *d);
void manual(const char *version); /* roff on stdout */

#endif
