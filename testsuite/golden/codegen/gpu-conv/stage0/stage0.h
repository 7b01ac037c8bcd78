/* conv, stage 0 of 1: what its devices call. Written by pdcc 0.1, edits are lost. Comments name the value as
 * in ir/, its type and the node of the model. */
#ifndef STAGE_H
#define STAGE_H

#include "pd.h"

enum { PARAMS = 12, INPUTS = 2 };
extern const pd_param stage_params[];
extern const pd_input_desc stage_inputs[];

/* Arena of 4544 bytes, aligned to 64; which replica of the stage; its microbatches in order. */
void init(char *arena, int which, const int *mine, int nmine);
void forward(int slot, int mb);
void backward(int slot, int mb);
void sync(void);
void update(void);

#endif
