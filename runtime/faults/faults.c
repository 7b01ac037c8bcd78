/* faults.c: what a rank knows and says when something goes wrong.
 *
 * The flight recorder is a ring of the last things done. Under pdrun it lies in a mapped file (PD_FR/rankN.ring), so that
 * those who are left can read what a killed rank did last; on a fault it is written as text (rankN.txt). Ranks of one host
 * look at each other's processes while they wait: one that has ended is noticed in a fraction of a second, one that is
 * stopped when the timeout is over. The first to notice writes PD_FR/verdict.txt, the others repeat it: one verdict.
 *
 * PD_KILL_AT=RANK:STEP:N[:ckpt|:stop|:term] kills (stops, tells to end) a rank for tests, at its N-th action from the beginning of a
 * step on (no later than its end) or at the N-th point of writing the checkpoint after STEP steps; behind commas, what
 * happens after pdrun's restarts. */
#include "rt.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 256, PATH = 4096 };

typedef struct event {
	int64_t step;
	double time;
	int32_t mb, channel, peer; /* -1: none */
	char what[12];
} event;

typedef struct ring {
	char magic[8];
	int64_t count; /* events ever recorded: the last EVENTS of them are here */
	event e[EVENTS];
} ring;

static ring own, *fr = &own;
static char folder[PATH];         /* OUT/fr, or PD_FR; "": none */
static bool launched;             /* by pdrun: it ends the others */
static char action[12] = "start"; /* of the plan, running now */
static int action_mb = -1;
static int64_t action_lag; /* its step is so many back */
static struct {
	int rank, n, mode;
	int64_t step;
} point = { .rank = -1 }; /* mode: 0 kill, 1 ckpt, 2 stop, 3 term */
static int in_step, in_ckpt;

/* ---- tests kill here ---- */

static void read_point(void)
{
	const char *s = getenv("PD_KILL_AT"), *again = getenv("PD_ATTEMPT");
	char word[8] = "";

	for (int k = again ? atoi(again) : 0; s && k > 0; k--)
		s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL;
	if (!s || sscanf(s, "%d:%" SCNd64 ":%d:%7[a-z]", &point.rank, &point.step, &point.n, word) < 3)
		point.rank = -1;
	point.mode = !strcmp(word, "ckpt") ? 1 : !strcmp(word, "stop") ? 2 : !strcmp(word, "term") ? 3 : 0;
}

void rt_point_ckpt(int64_t step)
{
	if (point.mode == 1 && step == point.step && point.rank == rt_task_of(rt_program->rank) && in_ckpt++ == point.n)
		raise(SIGKILL);
}

static void point_step(bool end)
{
	if (point.rank != rt_task_of(rt_program->rank) || point.mode == 1 || rt_step < point.step)
		return;
	if (in_step++ == point.n || (end && in_step <= point.n)) {
		in_step = point.n + 1;
		if (point.mode != 3)
			raise(point.mode == 2 ? SIGSTOP : SIGKILL);
		else
			for (kill(getpid(), SIGTERM); !rt_signal;) /* another thread takes it */
				rt_nap(100);
	}
}

/* ---- the ring ---- */

static void record(int64_t step, const char *what, int mb, int channel, int peer)
{
	event *e = &fr->e[fr->count % EVENTS];

	*e = (event){ .step = step, .time = rt_now(), .mb = mb, .channel = channel, .peer = peer };
	for (size_t i = 0; i + 1 < sizeof e->what && what[i]; i++)
		e->what[i] = what[i];
	fr->count++;
	point_step(false);
}

void rt_record(const char *what, int mb, int channel, int peer) { record(rt_step, what, mb, channel, peer); }

void rt_record_end(void)
{
	rt_trace_action(NULL, 0, -1);
	rt_record("step done", -1, -1, -1);
	point_step(true);
}

void pd_action(const char *what, int mb) { pd_action_of(what, 0, mb); }

void pd_action_of(const char *what, int64_t lag, int mb)
{
	rt_first_settle();
	rt_replay_action(what);
	snprintf(action, sizeof action, "%s", what);
	action_mb = mb;
	action_lag = lag;
	rt_trace_action(what, rt_step - lag, mb);
	record(rt_step - lag, what, mb, -1, -1);
	rt_gpu_advance();
}

const char *rt_action(void) { return action; }

int64_t rt_action_step(int *mb)
{
	*mb = action_mb;
	return rt_step - action_lag;
}

void rt_faults_open(const pd_program *p, const rt_options *o)
{
	const char *dir = getenv("PD_FR");
	char path[PATH + 32];

	launched = dir && *dir;
	if (launched)
		snprintf(folder, sizeof folder, "%s", dir);
	else
		snprintf(folder, sizeof folder, "%s/fr", o->out);
	read_point();
	if (!launched)
		return;
	snprintf(path, sizeof path, "%s/rank%d.ring", folder, rt_task_of(p->rank));
	const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0666);

	if (fd < 0)
		return;
	if (posix_fallocate(fd, 0, sizeof *fr) == 0) { /* a full disk: memory of our own */
		ring *r = mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (r != MAP_FAILED) {
			fr = r;
			memcpy(fr->magic, "pdcc-fr", 8);
		}
	}
	close(fd);
}

bool rt_launched(void) { return launched; }

/* ---- texts ---- */

void rt_channel_text(char *to, size_t room, int channel)
{
	const char *name = rt_program && rt_program->channel && channel >= 0 && channel < rt_program->channels
	                           ? rt_program->channel[channel]
	                           : NULL;

	*to = 0;
	if (name)
		snprintf(to, room, " (%s)", name);
}

static void event_text(char *to, size_t room, const event *e)
{
	char mb[32] = "", channel[400] = "", text[300], peer[80] = "";

	if (e->mb >= 0)
		snprintf(mb, sizeof mb, " microbatch %d", e->mb);
	if (e->channel >= 0) {
		rt_channel_text(text, sizeof text, e->channel);
		snprintf(channel, sizeof channel, " channel %d%s", e->channel, text);
	}
	if (e->peer >= 0)
		snprintf(peer, sizeof peer, " with %s", rt_name(e->peer));
	snprintf(to, room, "step %" PRId64 ": %s%s%s%s", e->step, e->what, mb, channel, peer);
}

void rt_doing(char *to, size_t room)
{
	if (action_mb >= 0)
		snprintf(to, room, "%s of microbatch %d in step %" PRId64, action, action_mb, rt_step - action_lag);
	else
		snprintf(to, room, "%s in step %" PRId64, action, rt_step);
}

/* What rank did last, from its ring. */
static void last_seen(int rank, char *to, size_t room)
{
	static ring r;
	char path[PATH + 32];

	*to = 0;
	snprintf(path, sizeof path, "%s/rank%d.ring", folder, rank);
	const int fd = launched ? open(path, O_RDONLY) : -1;

	if (fd < 0)
		return;
	if (read(fd, &r, sizeof r) == (ssize_t)sizeof r && !memcmp(r.magic, "pdcc-fr", 8) && r.count > 0) {
		const int k = snprintf(to, room, ", its last action: ");

		event_text(to + k, room - (size_t)k, &r.e[(r.count - 1) % EVENTS]);
	}
	close(fd);
}

void rt_dump(const char *why)
{
	char path[PATH + 32], line[1024];
	int64_t from = fr->count > EVENTS ? fr->count - EVENTS : 0;

	if (!*folder || !rt_program || fr->count == 0) /* before the first step there is nothing to tell */
		return;
	if (!launched) {
		char *slash = strrchr(folder, '/');

		*slash = 0;
		mkdir(folder, 0777);
		*slash = '/';
	}
	mkdir(folder, 0777);
	snprintf(path, sizeof path, "%s/rank%d.txt", folder, rt_task_of(rt_program->rank));
	FILE *f = fopen(path, "w");

	if (!f)
		return;
	rt_doing(line, sizeof line);
	fprintf(f, "%s\n%s, process %ld, in %s\nseconds before the end, what was done:\n", why,
		rt_name(rt_program->rank), (long)getpid(), line);
	for (; from < fr->count; from++) {
		const event *e = &fr->e[from % EVENTS];

		event_text(line, sizeof line, e);
		fprintf(f, "%10.6f  %s\n", rt_now() - e->time, line);
	}
	fclose(f);
}

/* ---- processes ---- */

/* State letter of a process and when it began, in ticks; 0: there is none. Allocates nothing. */
static char state_of(int64_t pid, uint64_t *born)
{
	char path[64], text[1024];
	unsigned long long start = 0;
	char state = 0;

	snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
	const int fd = open(path, O_RDONLY);

	if (fd < 0)
		return 0;
	const ssize_t n = read(fd, text, sizeof text - 1);

	close(fd);
	text[n > 0 ? n : 0] = 0;
	const char *s = strrchr(text, ')');

	if (!s || sscanf(s + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
			  &state, &start) != 2)
		return 0;
	*born = start;
	return state;
}

rt_process rt_process_here(void)
{
	rt_process p = { .pid = getpid() };

	state_of(p.pid, &p.born);
	rt_addresses(p.ip);
	gethostname(p.host, sizeof p.host - 1);
	return p;
}

int rt_lost(bool stopped, char *why, size_t room)
{
	const rt_process *me = rt_process_of(rt_task_of(rt_program->rank));
	char seen[600];

	for (int r = 0; me && me->born && r < rt_tasks(); r++) {
		const rt_process *p = rt_process_of(r);
		uint64_t born = 0;

		if (r == rt_task_of(rt_program->rank) || strcmp(p->host, me->host) || !p->born)
			continue;
		const char s = state_of(p->pid, &born);

		if (s && s != 'Z' && s != 'X' && born == p->born && !(stopped && (s == 'T' || s == 't')))
			continue;
		last_seen(r, seen, sizeof seen);
		snprintf(why, room,
			s == 'T' || s == 't' ? "is stopped (process %" PRId64 ")%s"
					     : "is gone (process %" PRId64 " has ended)%s",
			p->pid, seen);
		return r;
	}
	return -1;
}

/* ---- one verdict ---- */

bool rt_verdict_known(int *rank, char *why, size_t room)
{
	char path[PATH + 32];

	snprintf(path, sizeof path, "%s/verdict.txt", folder);
	FILE *f = launched ? fopen(path, "r") : NULL;
	bool ok = f && fscanf(f, "%d ", rank) == 1 && fgets(why, (int)room, f);

	if (f)
		fclose(f);
	if (ok)
		why[strcspn(why, "\n")] = 0;
	return ok && *rank >= 0 && *rank < rt_tasks();
}

bool rt_verdict(int rank, const char *why)
{
	char path[PATH + 32], new[PATH + 48], text[1400];

	if (!launched || rank < 0)
		return false;
	snprintf(path, sizeof path, "%s/verdict.txt", folder);
	snprintf(new, sizeof new, "%s.%d", path, rt_task_of(rt_program->rank));
	const int fd = open(new, O_WRONLY | O_CREAT | O_TRUNC, 0666);
	const int n = snprintf(text, sizeof text, "%d %s\n", rank, why);

	if (fd < 0)
		return false;
	const bool whole = write(fd, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1) > 0;

	close(fd);
	const bool mine = whole && link(new, path) == 0; /* the first one can */

	unlink(new);
	return mine;
}

/* Nobody's process has ended or stands still: the network is asked. */
static int silent_rank(int wanted, char *why, size_t room)
{
	int others, silent, known;
	char seen[600];
	const int rank = rt_unreached(wanted, &others, &silent);

	if (others > 1 && silent == others) { /* it is this host: one that reaches the others says so first */
		for (int k = 0; k < 20 && !rt_verdict_known(&known, why, room); k++)
			nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
		snprintf(why, room, "reaches none of the other hosts");
		return rt_task_of(rt_program->rank);
	}
	if (rank < 0 || others == 1) {
		snprintf(why, room, "did not answer %s", rt_name(rt_program->rank));
		return wanted;
	}
	last_seen(rank, seen, sizeof seen);
	snprintf(why, room, "is on host %s, which does not answer%s", rt_process_of(rank)->host, seen);
	return rank;
}

int rt_missing(int wanted, char *why, size_t room)
{
	int rank = -1;

	if (rt_verdict_known(&rank, why, room))
		return rank;
	rank = rt_lost(true, why, room);
	if (rank < 0)
		rank = silent_rank(wanted, why, room);
	if (!rt_verdict(rank, why)) { /* another one was first */
		int known;

		if (rt_verdict_known(&known, why, room))
			return known;
	}
	return rank;
}
