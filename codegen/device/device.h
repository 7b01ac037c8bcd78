/* What the writers of a device's program share. */
#ifndef PDCC_CODEGEN_DEVICE_DEVICE_H
#define PDCC_CODEGEN_DEVICE_DEVICE_H

#include "codegen/write/build.h"

/* links.c: the tables and the members of a device's program that say with whom a GPU exchanges what. */
void write_links(const Build *b, Cw *w, int rank);
void write_link_members(const Build *b, Cw *w, int rank);

/* device_metrics.c: what the run tells by default. */
void write_watch(const Build *b, Cw *w);

/* device_async.c: the table of turns and what plays it; what pd_program says of steps that are not flushed. */
void write_flow(Build *b, Cw *w, int rank);
void write_flow_fields(const Build *b, Cw *w, int rank);

#endif
