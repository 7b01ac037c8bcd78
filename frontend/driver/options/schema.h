/* The schemas that `pdcc schema` prints. */
#ifndef PDCC_FRONTEND_SCHEMA_H
#define PDCC_FRONTEND_SCHEMA_H

#include "ir/base/arena.h"

/* The text of a schema file, with the words of the sets that it names. */
const char *schema_filled(Arena *a, const char *text);

#endif
