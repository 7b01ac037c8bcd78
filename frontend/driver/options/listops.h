/* pdcc --list-ops: what stands in the program's own tables about operators (listops.c). */
#ifndef PDCC_FRONTEND_LISTOPS_H
#define PDCC_FRONTEND_LISTOPS_H

#include <stdio.h>

/* The canonical ops: a line `NAME  gradient` or `NAME  -` each. */
void list_ops(FILE *f);
/* The operators of ONNX that are read: NAME, opsets, element types, gradient, what they become, code for CPU and CUDA;
 * columns stand apart by two blanks or more, the first line names them. */
void list_onnx(FILE *f);

#endif
