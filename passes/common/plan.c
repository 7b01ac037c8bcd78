/* The notation of plans: replicas per stage joined by '-', as in the PipeDream paper: "7-1", "2-1-1". */
#include <ctype.h>
#include <stdio.h>
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

bool plan_tensor(Arena *a, const char **text, int64_t *tensor, Diag *d)
{
	const char *out = "", *s = *text;
	long long degree = 0;

	if (!s || !isdigit((unsigned char)*s) || !strchr(s, 'x'))
		return true;
	for (int stage = 0;; stage++) {
		int r = 0, t = 1, read = 0;

		if (sscanf(s, "%4dx%4d%n", &r, &t, &read) != 2) {
			t = 1;
			if (sscanf(s, "%5d%n", &r, &read) != 1)
				return diag_error(d, NOLOC, 402,
					"plan '%s': stage %d is replicas x devices of each, as in 2x4-1x4", *text,
					stage);
		}
		if (t < 1 || (degree && t != degree))
			return diag_error(d, NOLOC, 402,
				"plan '%s': stage %d has %d devices a replica, those before have %lld; one number for all stages is supported",
				*text, stage, t, degree);
		degree = t;
		out = arena_printf(a, "%s%s%d", out, stage ? "-" : "", r);
		s += read;
		if (*s != '-')
			break;
		s++;
	}
	if (*s)
		return diag_error(d, NOLOC, 402, "plan '%s': unexpected '%c'; write 2x4-1x4", *text, *s);
	if (*tensor && *tensor != degree)
		return diag_error(d, NOLOC, 402, "plan '%s' has %lld devices a replica, --tensor %lld asks for others",
			*text, degree, (long long)*tensor);
	*text = out;
	*tensor = degree;
	return true;
}

const char *plan_str(Arena *a, const Plan *p)
{
	const char *s = "";

	for (int i = 0; i < p->nstage; i++)
		s = arena_printf(a, "%s%s%d", s, i ? "-" : "", p->stage[i].replicas);
	return s;
}
