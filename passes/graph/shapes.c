/* shapes: types every value by its op's rule. Reads and writes types only.
 *
 * Import has typed the graph already; this pass does the same on a module that came from text, and on any graph whose
 * inputs were changed. Outputs that a rule leaves out (optional ones) stay absent. */
#include "passes/common/pass.h"

bool pass_shapes(Module *m, PassCx *cx)
{
	bool ok = true;

	for (Node *n = m->graph ? m->graph->first : NULL; n; n = n->next)
		if (!node_infer(n, cx->d))
			ok = false;
	return ok;
}
