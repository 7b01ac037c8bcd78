/* delays.c: stands before MPI (LD_PRELOAD) and sleeps at random in every send, receive and look at what has come, so that
 * messages and threads meet in orders that they seldom have. PD_DELAYS=SEED:MICROSECONDS; most calls sleep less than that,
 * one in a hundred ten times as long. */
#define _GNU_SOURCE 1
#include <mpi.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static _Atomic uint64_t state;
static long most = -1;

static uint64_t next(void)
{
	uint64_t x = atomic_fetch_add(&state, 0x9E3779B97F4A7C15u);

	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
	x = (x ^ x >> 27) * 0x94D049BB133111EBu;
	return x ^ x >> 31;
}

static void setup(void)
{
	const char *said = getenv("PD_DELAYS"), *rank = getenv("OMPI_COMM_WORLD_RANK");
	unsigned long seed = 0;

	most = 0;
	if (said && sscanf(said, "%lu:%ld", &seed, &most) == 2)
		atomic_store(&state, (seed * 1000003 + (rank ? strtoul(rank, NULL, 10) : 0)) * 0xD6E8FEB86659FD93u);
}

static void delay(unsigned of)
{
	const uint64_t r = next();

	if (most <= 0 || r % of)
		return;
	const long us = (long)((r >> 32) % (uint64_t)most) * (r / of % 100 ? 1 : 10);

	nanosleep(&(struct timespec){ us / 1000000, us % 1000000 * 1000 }, NULL);
}

int MPI_Init_thread(int *argc, char ***argv, int want, int *have)
{
	setup();
	return PMPI_Init_thread(argc, argv, want, have);
}

int MPI_Isend(const void *buf, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request *r)
{
	delay(1);
	return PMPI_Isend(buf, n, t, to, tag, c, r);
}

int MPI_Irecv(void *buf, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request *r)
{
	delay(1);
	return PMPI_Irecv(buf, n, t, from, tag, c, r);
}

int MPI_Iallgather(const void *in, int n, MPI_Datatype t, void *out, int m, MPI_Datatype u, MPI_Comm c, MPI_Request *r)
{
	delay(1);
	return PMPI_Iallgather(in, n, t, out, m, u, c, r);
}

int MPI_Testsome(int n, MPI_Request *r, int *done, int *at, MPI_Status *s)
{
	delay(8);
	return PMPI_Testsome(n, r, done, at, s);
}
