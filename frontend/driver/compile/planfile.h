/* Plans as files (planfile.c): written by --save-plan, edited by hand, given back as --plan FILE. */
#ifndef PDCC_FRONTEND_PLANFILE_H
#define PDCC_FRONTEND_PLANFILE_H

#include "compile.h"

/* --plan names a file, not replicas: it ends in .yaml, .yml or .json. */
bool plan_is_file(const char *plan);
/* Reads it; needs the cluster. Sets Training.plan.given, and what flags left open: microbatch, schedule, recompute. False
 * after E01xx (grammar), E0409 (another model or cluster), E0407 (devices). */
/* `tensor` of the plan file, which groups the devices that its stages name. */
bool plan_file_tensor(Compile *c);
bool plan_load(Compile *c);
/* YAML, or JSON where the name ends in .json. False after E0008. */
bool plan_save(const Compile *c, const char *file);

const char *model_hash(const Compile *c);   /* of the model file, 16 hexadecimal digits */
const char *cluster_hash(const Compile *c); /* of devices, hosts and links; --memory-limit does not count */

#endif
