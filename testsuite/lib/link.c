/* link.c: stands before MPI (LD_PRELOAD) and makes messages as slow as a link: one of n bytes is there n seconds / BYTES and
 * MICROSECONDS after it came, and behind those before it. PD_LINK=MICROSECONDS:BYTES, of every process. Nobody waits meanwhile: what
 * has come too early is a request of its own until then. */
#define _GNU_SOURCE 1
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 4096 };

typedef struct Message {
	MPI_Request request;
	double due;
} Message;

static double latency, seconds_per_byte, port; /* port: free from then on */
static Message held[MOST];                     /* each was a receive */
static MPI_Request *receive[MOST];             /* where a receive was posted last */
static int nheld, nreceive;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int find(const MPI_Request *r)
{
	int i = 0;

	while (i < nreceive && receive[i] != r)
		i++;
	return i;
}

static int query(void *message, MPI_Status *status)
{
	*status = *(const MPI_Status *)message;
	return MPI_SUCCESS;
}

static int done(void *message)
{
	free(message);
	return MPI_SUCCESS;
}

static int cancel(void *message, int complete)
{
	(void)message;
	(void)complete;
	return MPI_SUCCESS;
}

int MPI_Init_thread(int *argc, char ***argv, int want, int *have)
{
	const char *said = getenv("PD_LINK");
	double rate = 0;

	if (said && sscanf(said, "%lf:%lf", &latency, &rate) == 2) {
		latency *= 1e-6;
		seconds_per_byte = rate > 0 ? 1 / rate : 0;
	}
	return PMPI_Init_thread(argc, argv, want, have);
}

int MPI_Isend(const void *buf, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r)
{
	const int i = find(r);

	if (i < nreceive)
		receive[i] = receive[--nreceive];
	return PMPI_Isend(buf, n, t, to, tag, c, r);
}

int MPI_Irecv(void *buf, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r)
{
	const int i = find(r);

	if (i == MOST) {
		fputs("link.c: too many receives\n", stderr);
		abort();
	}
	receive[i] = r;
	nreceive += i == nreceive;
	return PMPI_Irecv(buf, n, t, from, tag, c, r);
}

static void hold(MPI_Request *r, const MPI_Status *status)
{
	MPI_Status *copy = malloc(sizeof *copy);
	const double t = now();
	int bytes;

	if (!copy)
		abort();
	PMPI_Get_count(status, MPI_BYTE, &bytes);
	*copy = *status;
	port = (port > t ? port : t) + bytes * seconds_per_byte;
	PMPI_Grequest_start(query, done, cancel, copy, r);
	held[nheld++] = (Message){ *r, port + latency };
}

static void deliver(void)
{
	const double t = now();
	int n = 0;

	for (int i = 0; i < nheld; i++)
		if (held[i].due <= t)
			PMPI_Grequest_complete(held[i].request);
		else
			held[n++] = held[i];
	nheld = n;
}

/* A receive that has come is forgotten as one; when it comes again, it is what was held. */
int MPI_Testsome(int n, MPI_Request *r, int *many, int *at, MPI_Status *s)
{
	int kept = 0;

	deliver();
	const int rc = PMPI_Testsome(n, r, many, at, s);
	if (rc != MPI_SUCCESS || *many == MPI_UNDEFINED || latency + seconds_per_byte <= 0)
		return rc;
	for (int k = 0; k < *many; k++) {
		const int i = find(&r[at[k]]);

		if (i < nreceive) {
			receive[i] = receive[--nreceive];
			hold(&r[at[k]], &s[k]);
			continue;
		}
		at[kept] = at[k];
		s[kept++] = s[k];
	}
	*many = kept;
	return rc;
}
