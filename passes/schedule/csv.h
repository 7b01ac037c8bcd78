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
} CsvAction; /* part: I, not B */
typedef struct CsvLine {
	CsvAction *act;
	int n, cap, number, group;
} CsvLine; /* number: in the file, from 1 */

typedef struct Csv {
	const char *file;
	CsvLine *line;
	int nline, capline;
	int nstage, nmicro, ngroup;
	int *group, *replicas; /* by stage */
	bool messages, split;  /* the file has SEND or RECV; it has W (then B is read as I and W) */
	bool in_turn;          /* microbatches are dealt to replicas in turn, not in blocks */
} Csv;

/* Reads and checks all that can be said without the model: actions, stages and lines, every computation once. False after
 * E0513 (unreadable), E0514 (no action), E0515 (a stage on the wrong line), E0516 (missing or double). */
bool csv_read(Arena *a, const char *file, Csv *x, Diag *d);
const Csv *csv_of(ScheduleSpec s); /* of a schedule that was read (schedule_read) */

#endif
