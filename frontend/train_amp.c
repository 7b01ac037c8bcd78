/* Mixed precision as train.yaml (amp:) and --amp say it: off, bf16. */
#include <string.h>
#include "train.h"

bool training_amp(Arena *a, Training *t, const char *spec, Diag *d)
{
	(void)a;
	t->amp = strcmp(spec, "off") ? "bf16" : NULL;
	return !t->amp || !strcmp(spec, t->amp) || diag_error(d, NOLOC, 7, "--amp wants off or bf16, not '%s'", spec);
}
