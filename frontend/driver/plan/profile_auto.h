/* pdcc plan-profile --planner auto (profile_auto.c). */
#ifndef PDCC_FRONTEND_PLANAUTO_H
#define PDCC_FRONTEND_PLANAUTO_H

int plan_auto_main(int argc, char **argv); /* the words behind plan-profile; exit status */

#endif
