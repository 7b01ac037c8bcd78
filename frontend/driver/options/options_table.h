/* Private to options.c and options_table.c: a flag, and what it does. */
#ifndef PDCC_FRONTEND_OPTIONS_TABLE_H
#define PDCC_FRONTEND_OPTIONS_TABLE_H

#include "options.h"

typedef struct Cx {
	Arena *a;
	Options *o;
	Diag *d;
} Cx;

typedef enum Kind { FLAG, TEXT, INT, REAL, CALL } Kind;

typedef struct Opt {
	const char *group, *name, *arg, *help; /* @ in help: the words that the flag takes (choices.c) */
	Kind kind;
	size_t offset; /* in Options; FLAG bool, TEXT const char *, INT int64_t, REAL double */
	bool (*call)(Cx *, const char *value);
	bool optional; /* --x and --x=VALUE both */
	int64_t lo, hi;
} Opt;

extern const Opt opt_table[];
extern const int nopt;

#endif
