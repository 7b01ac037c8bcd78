/* Other forms of the IR than the text: JSON for programs, a drawing for dot. Nothing reads them back. */
#ifndef PDCC_IR_FORMS_H
#define PDCC_IR_FORMS_H

#include "ir/base/buf.h"
#include "ir/ir.h"

typedef enum IrForm { FORM_TEXT, FORM_JSON, FORM_DOT, FORMS } IrForm;

extern const char *const ir_form_name[FORMS]; /* "text", "json", "dot": also the ends of files' names, but for text's */

/* One object: module, params, constants (without their elements), stages, graphs with their nodes in program order. README.md
 * lists the keys. */
void module_json(Buf *b, const Module *m);
/* A box per node, a frame per graph, an edge per operand; dashed ones from Send to Receive. For graphs small enough to look at. */
void module_dot(Buf *b, const Module *m);

#endif
