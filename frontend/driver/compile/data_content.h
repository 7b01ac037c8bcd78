/* What a file of samples is, by its content. */
#ifndef PDCC_DRIVER_DATA_CONTENT_H
#define PDCC_DRIVER_DATA_CONTENT_H

#include "ir/training.h"

/* The kind of x's file: by its content, and where that leaves it open as `said` by name, flag or train.yaml (a row of bare
 * numbers has no marks). A file that pdcc does not read: DATA_UNSAID, *what it is and *turn, the lines that convert it. */
DataKind data_content(Arena *a, const DataInput *x, DataKind said, const char **what, const char **turn);

#endif
