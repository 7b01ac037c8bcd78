/* pdcc plan-profile --planner dapple. */
#ifndef PDCC_FRONTEND_PLANDAPPLE_H
#define PDCC_FRONTEND_PLANDAPPLE_H

#include <stdbool.h>

bool plan_dapple_asked(int argc, char **argv);      /* is `--planner dapple` among the arguments? */
/* argv holds what follows plan-profile. Returns the exit status. */
int plan_dapple_main(int argc, char **argv);

#endif
