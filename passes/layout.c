/* layout: physical order of activations. Plain everywhere for now: nothing to do, nothing done. */
#include "plan.h"

bool pass_layout(Module *m, PassCx *cx)
{
	(void)m;
	(void)cx;
	return true;
}
