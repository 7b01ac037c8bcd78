/* Independent pieces of work, on as many threads as there are cores. */
#ifndef PDCC_IR_TASKS_H
#define PDCC_IR_TASKS_H

/* Calls of(x, i) once for every i below n, as many at a time as there are cores, `most` at most, and returns when all are done. Which thread takes which is left to chance, so
 * pieces share nothing that any of them changes: each has an arena and a Diag of its own, and writes what it finds to a place of its own. */
void tasks_run(int n, int most, void (*of)(void *x, int i), void *x);

#endif
