/* pdcc run DIR: make, then the programs of a build folder. */
#ifndef PDCC_FRONTEND_RUN_H
#define PDCC_FRONTEND_RUN_H

#include "ir/base/diag.h"

int run_main(int argc, char **argv, Diag *d);

#endif
