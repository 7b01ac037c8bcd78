/* Pictures of what the simulator played: an SVG, a page that holds it, a trace for Perfetto and Chrome. */
#ifndef PDCC_PASSES_TIMELINE_H
#define PDCC_PASSES_TIMELINE_H

#include "ir/base/human.h"
#include "simulate.h"

/* Rows are devices, the axis is time; below, memory over time by stage. More than 64 devices: one of each stage. */
void timeline_svg(Buf *b, const Sim *s, const char *title);
/* The same picture, to zoom, to drag and to ask with mouse, keys or fingers; nothing else is loaded. */
void timeline_html(Buf *b, const Sim *s, const char *title);
/* What that page consists of, for a page that holds more; its picture must be the first there. */
void timeline_part(Buf *b, const Sim *s, const char *title);
/* Trace Event Format: a process per device, messages as asynchronous slices, memory as a counter. */
void timeline_json(Buf *b, const Sim *s, const char *title);

/* What a span is, in words: "forward of microbatch 3", "message of backward 3 to device 1". */
const char *span_text(Arena *a, const Sim *s, const SimSpan *x);
const char *span_class(const SimSpan *x);        /* "f", "b", "w", "c" (sent), "s" (sums), "u": passes/common/page.h */
const char *device_text(const Sim *s, int rank); /* its name in the cluster file */
int64_t bytes_in_use(const Sim *s, int rank, int64_t held);

#endif
