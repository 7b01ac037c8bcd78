/* Numbers as people write them: never 1.71e+03. */
#ifndef PDCC_IR_HUMAN_H
#define PDCC_IR_HUMAN_H

#include <stdint.h>
#include "arena.h"

const char *duration_text(Arena *a, double seconds); /* of a run: "3.1 days", "12.0 h", "2.5 min", else as time_text */
const char *time_text(Arena *a, double seconds);     /* four digits: "1.251 ms", "87.4 us", "1.71 s", "12346 s" */
const char *time_short(Arena *a, double seconds);    /* three digits, and milliseconds down to 0.001: "0.0874 ms" */
const char *str_bytes(Arena *a, int64_t bytes);      /* "704 B", "1.50 MiB" */
/* So many digits, however many zeros that takes: "0.0000111", "4000000". */
const char *number_text(Arena *a, double x, int digits);

#endif
