/* library: scratchpad bytes of nodes with a library object. */
#include "plan.h"

bool pass_library(Module *m, PassCx *cx)
{
	(void)m;
	(void)cx;
	return true;
}
