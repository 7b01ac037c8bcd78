/* Names in emitted C: legal, unique within one file, stable (the first who asks gets the plain name), and readable:
 * made from the name in the model. */
#ifndef PDCC_CODEGEN_NAMES_H
#define PDCC_CODEGEN_NAMES_H

#include "ir/ir.h"

typedef struct Names {
	Arena *arena;
	Map used; /* C name -> itself */
	Map of;   /* Value, Node ... -> C name */
} Names;

/* Names that the emitted file itself uses are taken from the start. */
void names_init(Names *n, Arena *a);
void names_reserve(Names *n, const char *name);
/* "/features/0/Conv_output" -> "features_0_Conv_output"; not unique. */
const char *names_legal(Arena *a, const char *name);
/* The name of key, made from wish at the first call. */
const char *names_get(Names *n, const void *key, const char *wish);

#endif
