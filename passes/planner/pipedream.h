/* What the files of the PipeDream planner share. */
#ifndef PDCC_PASSES_PLANNER_PIPEDREAM_H
#define PDCC_PASSES_PLANNER_PIPEDREAM_H

#include "planner.h"

/* One level: M machines joined by bandwidth B, each made of `inner` of the level below. */
typedef struct Level {
	const States *st;
	const PdOpt *o;
	int M, inner;
	double B;
	/* (n + 1) x n: seconds of a stage that begins at state i and ends with j, on a whole machine; INFINITY: no plan
	 * fits. NULL on the lowest level, where it is the compute time. */
	const double *time;
	const double *costs; /* max(S, X) of every (k, j] on r machines: costs[(j n + k) M + r]; NULL: not kept */
} Level;

/* The last stage of a plan is (k, j] on r machines; `left` machines are what the stages before it use. k < 0: it is the
 * only one. */
typedef struct From {
	int k, r, left;
} From;

/* Sums over the stage that begins at state i and ends with j. */
double span_time(const Level *l, int i, int j);
double span_parameters(const Level *l, int i, int j);
bool span_fits(const Level *l, int i, int j, int replicas, int behind);

/* A stage of t seconds and w bytes of parameters on r machines, by the cost asked for (planner.h); inner: the g of SOSP. */
double stage_cost(const PdOpt *o, double t, double w, double bandwidth, int inner, int r);
static inline double sosp_cost(double t, double w, double bandwidth, int inner, int r)
{
	return (t + 4 * (r - 1) * w / (bandwidth * r) / inner) / r;
}
double single_cost(const Level *l, int i, int j, int m);
/* Seconds of activations and their gradients at the borders of the stage (k, j] on one machine. */
double transfer(const Level *l, int k, int j);
double *transfers(Arena *a, const Level *l); /* of all pairs, n x n, where that fits into memory; else NULL */
static inline double transfer_of(const double *x, const Level *l, int k, int j)
{
	return x ? x[(size_t)k * (size_t)l->st->n + (size_t)j] : transfer(l, k, j);
}
/* max(S, X) of the stage (k, j] on r machines; x: transfer(l, k, j). */
double last_cost(const Level *l, int k, int j, int r, double x);

/* The same for 1..most machines: c[1..most]. */
void last_costs(const Level *l, int k, int j, int most, double *c);

/* All plans of the states i..j, i <= j < end: best[j * (M + 1) + m], INFINITY where none fits, and their last stages. */
void solve_row(const Level *l, int i, int end, double *best, From *from);

/* Chains under SOSP: the best times of all i..j on all machines of the level, time[(n + 1) x n], INFINITY where none fits
 * (pipedream_rows.c). devices: of a machine, all levels below. The values are those of solve_row. */
void solve_chain_rows(const Level *l, int devices, double *time);

/* The same on the lowest level (pipedream_cross.c); false: elsewhere. */
bool cross_chain_rows(const Level *l, double *time);

/* Flat, many machines: the least threshold under which a plan exists (pipedream_wide.c). The answer is that of
 * solve_row; where several plans are best, the one may be another. */
double solve_wide(Arena *a, const Level *l, PdStage **stage, int *n);

/* One level in the table of solve_row beyond this many steps is left to solve_wide. */
enum { WIDE_STEPS = 400000000 };

#endif
