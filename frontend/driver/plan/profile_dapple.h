/* pdcc plan-profile --planner dapple. */
#ifndef PDCC_FRONTEND_PLANDAPPLE_H
#define PDCC_FRONTEND_PLANDAPPLE_H

/* argv holds what follows plan-profile. Returns the exit status. */
int plan_dapple_main(int argc, char **argv);

#endif
