/* Constants in filled templates: what the numbers of this node make needless is taken out.
 *
 *     x * 1, x / 1, 1 * x            x
 *     x % 1                          0
 *     x * 0, x + 0, x - 0, 0 + x     as integers: in an index, in what an integer or a pointer is made from
 *     64 > 64 ? a : b, !1, (0)       what they are
 *     if (64 > 64 || x), if (1 > 2)  what is left of it
 *     a loop of one turn             its body, with the number in place of the variable
 *
 * and the head of the function stands on as few lines as it needs. */
#ifndef PDCC_CODEGEN_FOLD_H
#define PDCC_CODEGEN_FOLD_H

#include "ir/base/arena.h"
#include "ir/base/buf.h"

/* In place. */
void fold_constants(Buf *text);

#endif
