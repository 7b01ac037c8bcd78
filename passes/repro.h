/* The reproducer of an internal error: pdcc-repro/ with the command and the IR before the pass that failed. */
#ifndef REPRO_H
#define REPRO_H

/* The first thing that main does. From here on bug() leaves a reproducer, and a signal that a fault of our own raises (SIGSEGV,
 * SIGBUS, SIGFPE, SIGILL, SIGABRT) ends as bug() does: says where, leaves a reproducer, exits 70. */
void repro_watch(int argc, char **argv);

#endif
