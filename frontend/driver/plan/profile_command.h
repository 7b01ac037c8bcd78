/* pdcc plan-profile: the published planners on a layer profile. */
#ifndef PDCC_FRONTEND_PLANPROFILE_H
#define PDCC_FRONTEND_PLANPROFILE_H

/* argv holds what follows the subcommand. Returns the exit status. */
int plan_profile_main(int argc, char **argv);

#endif
