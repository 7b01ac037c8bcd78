/* pdcc profile, and --profile of the other commands. */
#ifndef PDCC_FRONTEND_PROFILE_H
#define PDCC_FRONTEND_PROFILE_H

#include "compile.h"
#include "ir/text/profile.h"

int profile_main(Compile *c);
/* --profile FILE | run: Compile.profile; estimate and nothing: NULL. False after a diagnostic. */
bool profile_choose(Compile *c);

#endif
