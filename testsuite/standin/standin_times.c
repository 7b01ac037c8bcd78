/* standin_times.c: the algorithms of cuBLASLt's products, by number: how long they take by the device's clock, and which are refused.
 *
 * STANDIN_TIMES=END=US,US...;END=... says of an epilogue (its number; 1: none; 0: of any that is not named) how many algorithms there are,
 * best first by the heuristic, and how many microseconds each takes, 10,000 and more on every clock. Else there is one, of 1,000, bare of
 * 2,500. STANDIN_TIMES_RANK is that of one rank of the job alone. STANDIN_REFUSED=N: algorithm N is refused when it is checked or run, N:run
 * when it is run. STANDIN_PRODUCTS=FILE: every run adds a line: rank, epilogue, number of the algorithm, extents. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "standin.h"

static const char *rank_here(void)
{
	const char *rank = getenv("OMPI_COMM_WORLD_RANK");

	return rank ? rank : "0";
}

/* The list of an epilogue; NULL: none is said. */
static const char *times(unsigned end)
{
	char name[64];

	snprintf(name, sizeof name, "STANDIN_TIMES_%s", rank_here());
	const char *all = getenv(name), *any = NULL;

	for (const char *s = all ? all : getenv("STANDIN_TIMES"); s && *s;
		s = strchr(s, ';') ? strchr(s, ';') + 1 : "") {
		const char *list = strchr(s, '=');

		if (!list)
			abort();
		if (strtoul(s, NULL, 10) == end)
			return list + 1;
		any = strtoul(s, NULL, 10) ? any : list + 1;
	}
	return any;
}

int standin_algorithms(unsigned end)
{
	const char *s = times(end);
	int n = 1;

	for (; s && *s && *s != ';'; s++)
		n += *s == ',';
	return n;
}

double standin_time(unsigned end, int algorithm)
{
	const char *s = times(end);

	for (int i = 0; s && i < algorithm; i++)
		s = strchr(s, ',') ? strchr(s, ',') + 1 : s;
	return s ? strtod(s, NULL) : end == 1 ? 2500 : 1000;
}

int standin_refused(int algorithm, int runs)
{
	const char *s = getenv("STANDIN_REFUSED");

	return s && atoi(s) == algorithm && (runs || !strchr(s, ':'));
}

void standin_product(unsigned end, int algorithm, int m, int n, int k)
{
	const char *path = getenv("STANDIN_PRODUCTS");
	FILE *f = path ? fopen(path, "a") : NULL;

	if (!f)
		return;
	fprintf(f, "%s %u %d %dx%dx%d\n", rank_here(), end, algorithm, m, n, k);
	fclose(f);
}
