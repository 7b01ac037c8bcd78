/* Days of steps on machines that fail: checkpoints, what a failure takes with it, restarts. */
#ifndef PDCC_PASSES_LONG_RUN_H
#define PDCC_PASSES_LONG_RUN_H

#include <stdbool.h>
#include <stdint.h>

/* Seconds, all of them. */
typedef struct LongRun {
	double step;
	double save;    /* of a checkpoint; training stands still */
	double restart; /* from a failure to the next step: found, started, the checkpoint read */
	double mtbf;    /* mean time between failures, of all hosts together */
	double length;  /* of the run */
} LongRun;

/* What became of a run with a checkpoint every `every` steps. Means of the runs that were played, per run. */
typedef struct LongPlayed {
	double steps;                    /* that are not lost */
	double failures;                 /* while steps were made, or saved, or while it was started again */
	double lost, saving, restarting; /* seconds of steps made in vain, of checkpoints, of restarts */
} LongPlayed;

/* Steps between checkpoints, at least 1: Young's sqrt(2 C M) ("A first order approximation to the optimum checkpoint interval",
 * 1974); Daly's higher order ("A higher order estimate of the optimum checkpoint interval for restart dumps", 2006, equation
 * 37), with C what a checkpoint takes and M the mean time between failures. */
int64_t long_run_young(const LongRun *r);
int64_t long_run_daly(const LongRun *r);
/* The share of time that goes into steps that last, by Daly's complete model (equation 20): T of every M e^(R/M)
 * (e^((T+C)/M) - 1) seconds, T of steps between checkpoints, R of a restart. */
double long_run_share(const LongRun *r, int64_t every);
/* Plays runs until so many failures have been seen (at least one run): times between failures are exponential, numbers those
 * of a counter, so the same for every interval. */
LongPlayed long_run_play(const LongRun *r, int64_t every, int64_t failures);
/* The interval whose played runs keep most steps, and what became of them. */
int64_t long_run_best(const LongRun *r, int64_t failures, LongPlayed *played);

#endif
