/* The notation of plans: replicas per stage joined by '-', as in the PipeDream paper: "7-1", "2-1-1". */
#include <ctype.h>
#include <string.h>
#include "plan.h"

enum { MAXREPLICAS = 4096 };

bool plan_parse(Arena *a, const char *text, int **replicas, int *n, Diag *d)
{
	int cap = 0;

	*replicas = NULL;
	*n = 0;
	if (!text || !strcmp(text, "auto"))
		return true;
	for (const char *s = text;; s++) {
		int r = 0;
		if (!isdigit((unsigned char)*s))
			return diag_error(d, NOLOC, 402,
				"plan '%s': expected the number of replicas of stage %d, as in 2-1-1", text, *n);
		while (isdigit((unsigned char)*s) && r <= MAXREPLICAS)
			r = 10 * r + (*s++ - '0');
		if (r < 1 || r > MAXREPLICAS)
			return diag_error(
				d, NOLOC, 402, "plan '%s': stage %d needs 1 to %d replicas", text, *n, MAXREPLICAS);
		PUSH(a, *replicas, *n, cap) = r;
		if (!*s)
			return true;
		if (*s != '-')
			return diag_error(d, NOLOC, 402, "plan '%s': unexpected '%c' after stage %d; write 2-1-1", text,
				*s, *n - 1);
	}
}

const char *plan_str(Arena *a, const Plan *p)
{
	const char *s = "";

	for (int i = 0; i < p->nstage; i++)
		s = arena_printf(a, "%s%s%d", s, i ? "-" : "", p->stage[i].replicas);
	return s;
}
