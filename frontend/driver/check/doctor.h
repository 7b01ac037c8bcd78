/* Private to pdcc doctor. */
#ifndef PDCC_FRONTEND_DOCTOR_H
#define PDCC_FRONTEND_DOCTOR_H

#include "frontend/driver/compile/compile.h"

const char *doctor_address(const Host *h); /* where it is reached */
bool doctor_plain(const char *name);       /* a shell and mpirun take it as it is */
/* Whether the cluster's hosts can be reached, and are as its file says; prints, E0809 and warnings. */
void doctor_hosts(const Compile *c);
/* This machine; warnings of shared and locked memory. gpu: it has an NVIDIA driver. */
void doctor_machine(const Compile *c, bool gpu);

#endif
