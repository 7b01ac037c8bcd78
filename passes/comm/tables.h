/* How long a step takes by the number of pieces of a table: the fit of the pass tables, for its tests too. */
#ifndef PDCC_PASSES_TABLES_H
#define PDCC_PASSES_TABLES_H

#include <stdbool.h>

/* fit: b, a and c of T(p) = b s + a (p - 1) + c, by least squares over n samples, seconds t[k] in p[k] pieces; s is the share of
 * the busiest of the servers, 1 / p where there are p. False: too few different p to tell. */
bool table_fit(const int *p, const double *t, int n, int servers, double fit[3]);
double table_time(const double fit[3], int servers, int p);

#endif
