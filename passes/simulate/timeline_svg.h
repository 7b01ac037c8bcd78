/* The picture, shared by the file and the page. Only the files of the timeline read this. */
#ifndef PDCC_PASSES_TIMELINE_SVG_H
#define PDCC_PASSES_TIMELINE_SVG_H

#include "timeline.h"

enum { SVG_LEFT = 130, SVG_WIDTH = 1040, SVG_RIGHT = 30 }; /* pixels; the time axis is WIDTH long */

/* page: microbatches stand in data-n of the rectangles and are written by the page's script. */
void svg_picture(Buf *b, const Sim *s, const char *title, bool page);

#endif
