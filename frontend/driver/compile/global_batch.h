/* Samples of a step and of a microbatch where nobody says: one rule for every plan, schedule, cluster and command.
 *
 *     global batch  --global-batch; or as --micro-batch (a schedule of one microbatch per step) or a file (a plan, a listed
 *                   schedule) and the microbatch's size say; or --microbatches, which counts per replica. Else 64 samples, or
 *                   the next multiple of the batch that is fixed in the model, or that itself where it is 16 or more.
 *     microbatch    --micro-batch, a plan file, --dim; or the global batch by the number that a listed schedule has. Else, of a
 *                   model whose fixed batch is a step's and on one device, that batch; else the
 *                   largest divisor of the global batch that leaves four microbatches to each device, 32 at the most; where
 *                   the plan is looked for, sizes from there on are tried (auto_microbatch.c). */
#ifndef PDCC_FRONTEND_GLOBAL_BATCH_H
#define PDCC_FRONTEND_GLOBAL_BATCH_H

#include "compile.h"

/* Before the model is read: what flags alone say. */
void batch_said(Compile *c);
/* Is the global batch a multiple of the microbatch? E0405 where not. */
bool batch_divides(Compile *c);
/* The model was read: decides both, and reads it again where its microbatch is another. False after a diagnostic. */
bool batch_settle(Compile *c);
/* Planning failed: the sizes, where it was for them and nobody said them. Always false. */
bool batch_blame(const Compile *c);
/* Samples of a step: as settled, or as counted by the plan. */
int64_t batch_of_step(const Compile *c);
/* " (default; --global-batch changes it)", or nothing. */
const char *batch_origin(const Compile *c);
/* batch_losses.c: the model is read at another batch too, where its loss is one of its own (Compile.rebatched). */
void batch_look(Compile *c);
/* The module is planned: -Wbatch-pairs or -Wbatch-loss where a step of several microbatches has not the loss of its batch. */
void batch_warn(Compile *c);
/* Devices that share a step, as the rule for microbatches reckons. */
int batch_devices(const Compile *c);

#endif
