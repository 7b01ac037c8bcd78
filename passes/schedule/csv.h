/* A schedule in PyTorch's action notation, as read from a file: one line per device, actions separated by commas, an empty
 * cell idles. 0F3: stage 0, forward of microbatch 3; B backward, I and W its parts for inputs and weights; SEND_F RECV_F
 * SEND_B RECV_B; SYNC and UPDATE may end a line. A line that runs the same stages as the line before is its replica. */
#ifndef PDCC_PASSES_CSV_H
#define PDCC_PASSES_CSV_H

#include "sched.h"

typedef struct CsvAction {
	ActKind kind;
	int stage, mb, col;
	bool part;
	int version;
} CsvAction; /* part: I, not B; version: only in a flow */
typedef struct CsvLine {
	CsvAction *act;
	int n, cap, number, group;
} CsvLine; /* number: in the file, from 1 */

/* Of a file with versions (0F3v1): which asynchronous schedule lists this. */
typedef struct CsvFlow {
	ScheduleSpec spec;
	VersionRule rule;
	const char *text;
} CsvFlow;

typedef struct Csv {
	const char *file;
	CsvLine *line;
	int nline, capline;
	int nstage, nmicro, ngroup;
	int *group, *replicas; /* by stage */
	bool messages, split;  /* the file has SEND or RECV; it has W (then B is read as I and W) */
	bool in_turn;          /* microbatches are dealt to replicas in turn, not in blocks */
	CsvFlow *flow;         /* NULL: a step that is flushed */
} Csv;

/* Reads and checks all that can be said without the model: actions, stages and lines, every computation once. False after
 * E0513 (unreadable), E0514 (no action), E0515 (a stage on the wrong line), E0516 (missing or double), E0519 (versions that no asynchronous schedule has). */
bool csv_read(Arena *a, const char *file, Csv *x, Diag *d);
const Csv *csv_of(ScheduleSpec s); /* of a schedule that was read (schedule_read) */
/* Fills x->flow with the asynchronous schedule whose computations the file lists (csv_flow.c); false after E0519. */
bool csv_flow(Arena *a, Csv *x, Diag *d);
/* What the schedule lists is the file, byte for byte; false after E0519. */
bool csv_flow_same(const Csv *x, const Schedule *s, Diag *d);

#endif
