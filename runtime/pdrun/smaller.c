/* smaller.c: when a host is gone, the job goes on with the plan that was compiled for the others.
 *
 * DIR/tolerate.txt is written by pdcc where the cluster file says `placement: {tolerate: 1}`: a line for each host (on a
 * cluster of one host: for each device) with its ranks and the folder of the plan without it, `pdn2 4,5 without-pdn2`. A host
 * is gone when the launcher cannot start `true` on it, or when its ranks were the first to fail twice in a row. */
#include "pdrun.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOSTS = 1024, NAME = 256 };

typedef struct spare {
	char host[NAME], ranks[2 * PATH], folder[NAME];
	pid_t probe;
	bool gone;
} spare;

static spare spares[HOSTS];

static int read_spares(const char *dir)
{
	char path[PATH + 16];
	int n = 0;
	FILE *f;

	snprintf(path, sizeof path, "%s/tolerate.txt", dir);
	f = fopen(path, "r");
	while (f && n < HOSTS &&
		fscanf(f, "%255s %8191s %255s", spares[n].host, spares[n].ranks, spares[n].folder) == 3)
		n++;
	if (f)
		fclose(f);
	return n;
}

static bool has_rank(const spare *s, int rank)
{
	for (const char *p = s->ranks; p && rank >= 0; p = strchr(p, ','), p = p ? p + 1 : NULL)
		if (atoi(p) == rank)
			return true;
	return false;
}

bool same_host(const job *j, int rank, int other)
{
	const int n = read_spares(j->plan);

	for (int i = 0; i < n; i++)
		if (has_rank(&spares[i], rank) && has_rank(&spares[i], other))
			return true;
	return rank >= 0 && rank == other;
}

/* `true` on the host, by the launcher's own means. */
static pid_t probe(const job *j, const char *host)
{
	char script[PATH + 8];
	const pid_t p = fork();

	if (p)
		return p;
	snprintf(script, sizeof script, "%s/run.sh", j->plan);
	setenv("PD_PROBE", host, 1);
	if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
		_exit(1);
	setpgid(0, 0);
	execlp("sh", "sh", script, (char *)NULL);
	_exit(127);
}

/* How many hosts do not answer within ten seconds. */
static int probe_all(const job *j, int n)
{
	const double from = now(CLOCK_MONOTONIC);
	int left = n, gone = 0, status;

	for (int i = 0; i < n; i++)
		spares[i].probe = probe(j, spares[i].host);
	while (left > 0 && now(CLOCK_MONOTONIC) - from < 10 && !told) {
		nap(50);
		for (int i = 0; i < n; i++)
			if (spares[i].probe > 0 && waitpid(spares[i].probe, &status, WNOHANG) > 0) {
				spares[i].gone = !WIFEXITED(status) || WEXITSTATUS(status);
				spares[i].probe = 0;
				left--;
			}
	}
	for (int i = 0; i < n; i++) {
		if (spares[i].probe > 0) {
			kill(-spares[i].probe, SIGKILL);
			waitpid(spares[i].probe, NULL, 0);
			spares[i].gone = true;
		}
		gone += spares[i].gone;
	}
	return gone;
}

static bool take(job *j, const spare *s, const char *why)
{
	int n = 0;

	if (strlen(j->dir) + strlen(s->folder) + 2 > sizeof j->plan)
		return false;
	for (const char *p = s->ranks; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
		n++;
	snprintf(j->plan, sizeof j->plan, "%.*s/%s", PATH - NAME - 2, j->dir, s->folder);
	setenv("PD_BASE", j->base, 1);
	fprintf(stderr, "pdrun: %s %s; the plan without it goes on: %s\n", s->host + (*s->host == '@'), why, j->plan);
	return n > 0;
}

bool smaller_plan(job *j, int lost, bool again)
{
	const int n = strcmp(j->plan, j->dir) ? 0 : read_spares(j->dir);
	int gone = 0;
	bool hosts = false;

	if (n == 0)
		return false;
	for (int i = 0; i < n; i++)
		hosts |= spares[i].host[0] != '@';
	if (hosts)
		gone = probe_all(j, n);
	if (gone > 1)
		fprintf(stderr, "pdrun: %d hosts do not answer, and there are plans for one host less only\n", gone);
	for (int i = 0; i < n && gone == 1; i++)
		if (spares[i].gone)
			return take(j, &spares[i], "does not answer");
	for (int i = 0; i < n && gone == 0 && again; i++)
		if (has_rank(&spares[i], lost))
			return take(j, &spares[i], "failed first twice in a row");
	return false;
}
