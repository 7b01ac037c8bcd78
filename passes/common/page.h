/* What all pages for browsers have in common: colours for light and dark, width of a phone, keys, focus. */
#ifndef PDCC_PASSES_PAGE_H
#define PDCC_PASSES_PAGE_H

#include "ir/base/buf.h"

/* From <!DOCTYPE on to the heading; `style` is more CSS, or "". Nothing else is loaded by a page. */
void page_begin(Buf *b, const char *title, const char *style);
void page_end(Buf *b);

/* A part that scrolls sideways by itself where the screen is narrow, and can be focused for that. */
void page_wide(Buf *b, const char *label);
void page_wide_end(Buf *b);

/* CSS of pictures of a step, in a page or alone. Of bars: f forward, b backward, w weight gradients, u update, c sent, v received,
 * s AllReduce and other sums, q waiting, z compression. White text is legible on f, b, w. */
extern const char page_svg_style[];
/* A square of the legend and its word; x of the next one. */
double page_key(Buf *b, double x, double y, const char *class, const char *text);
/* Behind the picture, which is the page's first: the mouse or the arrow keys pick one of the elements of class t (data-r: the
 * row), its title stands below, and all with the same data-p are marked. Leaves `svg`, `bars` and `reveal` to a script
 * behind it. */
void page_bars_script(Buf *b);

#endif
