/* The commands of pdcc (commands.def), and what `pdcc help` says of each: 24 lines of 80 columns at most. */
#ifndef PDCC_FRONTEND_COMMANDS_H
#define PDCC_FRONTEND_COMMANDS_H

#include <stdio.h>
#include "ir/base/diag.h"

enum { COMMANDS_MOST = 32 };

typedef struct CommandText {
	const char *name, *args, *what;
} CommandText;

bool command_text(int i, CommandText *c);            /* the i-th of `pdcc help`; false behind the last */
int command_names(const char *names[COMMANDS_MOST]); /* in the order of `pdcc help` */
void commands_help(FILE *f);                         /* all of them, a line each */
bool command_help(FILE *f, const char *name);        /* false: there is none of this name, or it prints its own */
/* E0001: there is no such command; the nearest one. */
void command_unknown(const char *name, Diag *d);

#endif
