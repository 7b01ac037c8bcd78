/* pdrun.h: what the parts of pdrun share. POSIX, /proc and prctl alone; nothing of the runtime. */
#ifndef PDRUN_H
#define PDRUN_H

#if !defined _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

enum { LOST = 75, USAGE = 2, MOST = 4096, PATH = PATH_MAX };

/* How a rank ended; ended: by its parent, since all others had. */
typedef struct end {
	bool known, failed;
	int signal, code;
	double time;
	bool ended;
} end;

typedef struct job {
	const char *dir; /* the build folder that was asked for */
	char plan[PATH]; /* the one whose programs run: dir, or one for a smaller cluster in it */
	char **args;
	int nargs, world, restarts;
	double timeout;                                               /* seconds that a rank waits for another one */
	char out[PATH], fr[PATH], self[PATH], base[PATH], logs[PATH]; /* logs: empty without --log-dir */
	bool numbered;                                                /* out is run-N, made for this run */
} job;

/* How the launcher ended; late, hung: it had to be ended; well: though all ranks had ended without a fault. */
typedef struct launch {
	pid_t pid;
	int code, signal;
	bool late, hung, well;
} launch;

extern volatile sig_atomic_t told; /* a signal for all */
extern pid_t child;                /* it is passed on to this one */

void catch_signals(bool file); /* file: of pdrun itself, which tells the parents by stop_write */
double now(clockid_t c);
void nap(int ms);
end read_end(const char *fr, int rank);
void write_end(const char *fr, int rank, const char *word, int n);
bool has_begun(const char *fr, int rank); /* its parent lives or lived */

/* guard.c: a process that tells the ranks to stop if pdrun dies. open: before the launcher is forked; knows: called by the launcher's
 * process, which it is to look after, false: there is no guard; close: the launcher has ended. */
void guard_open(const job *j);
bool guard_knows(void);
void guard_close(void);

/* parent.c: a signal for all ranks, in a file that their parents look for, on all hosts. */
void stop_write(const char *fr, int signal);
/* parent.c: `pdrun --exec N PROGRAM ARGS...`, the parent of rank N. */
int exec_main(int argc, char **argv);

/* logs.c: what a rank prints, into DIR/rankN.log and on with its name. open: by its parent, before the fork; child and parent:
 * each side behind it. wait passes lines on for so long; tail prints the last ones. */
bool logs_open(const char *dir, int rank, const char *program);
void logs_child(void);
void logs_parent(void);
void logs_wait(int ms);
void logs_close(void);
void logs_tail(const char *dir, int rank, int lines);

/* said.c: the launcher's stderr. open: before the fork; child and parent: each side behind it. wait passes lines on for so
 * long, false: nobody is left who could say something; close: all that is left. said_fault: a rank has said this; said_launcher: prints what Open MPI said of a rank. */
void said_open(void);
void said_child(void);
void said_parent(void);
bool said_wait(int ms);
void said_close(void);
bool said_fault(const char *code, const char *text);
void said_launcher(void);

/* plan.c: what DIR/plan.json says: "stage1.r0", "server2.r0", false: it has no such rank; seconds that a rank waits for another. */
bool plan_name(const char *dir, int rank, char *name, size_t room);
double plan_timeout(const char *dir);

/* folder.c: the folder of results of this run, this process' alone until it ends. take: exit status, 0: it is ours; leave: what
 * pdrun wrote there goes, and the folder when nothing else lies in it. told_of: what the run was told with flag, else by the
 * environment, else otherwise; no_folder: says errno of a folder, and ends. */
int folder_take(job *j);
void folder_leave(const job *j);
const char *told_of(const job *j, const char *flag, const char *env, const char *otherwise);
_Noreturn void no_folder(const char *path);

/* launcher.c: run.sh as a child: until it has ended, and nobody is left whom it started. */
launch launcher_run(const job *j, int attempt);
bool all_begun(const job *j);     /* the parents of all ranks live or lived */
void clean_records(const job *j); /* what a start left in the folder of flight recorders */

/* smaller.c: plans for one host less. lost: the rank that failed first, -1: none; again: its host's did so twice in a row.
 * True: the job goes on with another plan from here. */
bool smaller_plan(job *j, int lost, bool again);
bool same_host(const job *j, int rank, int other);

#endif
