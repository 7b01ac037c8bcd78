/* order_host.c: what orders threads of the program's host code, and its messages: calls of pthreads, semaphores and MPI are taken over
 * (this library comes before theirs), done, and told to order.c. Calls by other libraries are theirs alone. */
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "order.h"
#include "standin.h"
#include "watch.h"

#define CALLER __builtin_return_address(0)

/* The function of this name behind this library; version: of glibc, which has older ones too. */
static void *next(const char *name, const char *version)
{
	void *f = version ? dlvsym(RTLD_NEXT, name, version) : dlsym(RTLD_NEXT, name);

	if (!f)
		abort();
	return f;
}

#define NEXT(name, version) \
	static __typeof__(&name) real; \
	if (!real) \
	real = (__typeof__(&name))next(#name, version)

/* ---- threads ---- */

typedef struct begun {
	void *(*run)(void *);
	void *arg, *left;
} begun;

static void *run(void *what)
{
	const begun b = *(begun *)what;

	free(what);
	order_takes(b.left);
	void *result = b.run(b.arg);
	order_tells((const void *)pthread_self());
	return result;
}

API int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *arg)
{
	NEXT(pthread_create, NULL);
	if (!watch_of_program(CALLER))
		return real(t, a, f, arg);
	begun *b = malloc(sizeof *b);

	if (!b)
		return 1;
	*b = (begun){ f, arg, order_leaves() };
	return real(t, a, run, b);
}

API int pthread_join(pthread_t t, void **result)
{
	NEXT(pthread_join, NULL);
	const int r = real(t, result);

	if (!r && watch_of_program(CALLER))
		order_hears((const void *)t);
	return r;
}

API int pthread_mutex_lock(pthread_mutex_t *m)
{
	NEXT(pthread_mutex_lock, NULL);
	const int r = real(m);

	if (watch_of_program(CALLER))
		order_hears(m);
	return r;
}

API int pthread_mutex_trylock(pthread_mutex_t *m)
{
	NEXT(pthread_mutex_trylock, NULL);
	const int r = real(m);

	if (!r && watch_of_program(CALLER))
		order_hears(m);
	return r;
}

API int pthread_mutex_unlock(pthread_mutex_t *m)
{
	NEXT(pthread_mutex_unlock, NULL);
	if (watch_of_program(CALLER))
		order_tells(m);
	return real(m);
}

API int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	NEXT(pthread_cond_wait, "GLIBC_2.3.2");
	const int of_program = watch_of_program(CALLER);

	if (of_program)
		order_tells(m);
	const int r = real(c, m);
	if (of_program)
		order_hears(m);
	return r;
}

API int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
	NEXT(pthread_cond_timedwait, "GLIBC_2.3.2");
	const int of_program = watch_of_program(CALLER);

	if (of_program)
		order_tells(m);
	const int r = real(c, m, t);
	if (of_program)
		order_hears(m);
	return r;
}

API int sem_post(sem_t *s)
{
	NEXT(sem_post, NULL);
	if (watch_of_program(CALLER))
		order_tells(s);
	return real(s);
}

API int sem_wait(sem_t *s)
{
	NEXT(sem_wait, NULL);
	const int r = real(s);

	if (watch_of_program(CALLER))
		order_hears(s);
	return r;
}

/* ---- messages ---- */

#pragma weak MPI_Type_size /* not every program has MPI */
#pragma weak MPI_Comm_size

static size_t bytes_of(int count, MPI_Datatype type)
{
	int each = 0;

	MPI_Type_size(type, &each);
	return (size_t)count * (size_t)each;
}

API int MPI_Isend(const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
	NEXT(MPI_Isend, NULL);
	order_message(request, "MPI_Isend", buf, bytes_of(count, type), NULL, 0);
	return real(buf, count, type, to, tag, comm, request);
}

API int MPI_Irecv(void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
	NEXT(MPI_Irecv, NULL);
	order_message(request, "MPI_Irecv", NULL, 0, buf, bytes_of(count, type));
	return real(buf, count, type, from, tag, comm, request);
}

API int MPI_Iallreduce(
	const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
	NEXT(MPI_Iallreduce, NULL);
	order_message(request, "MPI_Iallreduce", from == MPI_IN_PLACE ? NULL : from, bytes_of(count, type), to,
		bytes_of(count, type));
	return real(from, to, count, type, op, comm, request);
}

API int MPI_Iallgather(const void *from, int count, MPI_Datatype type, void *to, int each, MPI_Datatype kind,
	MPI_Comm comm, MPI_Request *request)
{
	int n = 0;

	NEXT(MPI_Iallgather, NULL);
	MPI_Comm_size(comm, &n);
	order_message(request, "MPI_Iallgather", from, bytes_of(count, type), to, bytes_of(each * n, kind));
	return real(from, count, type, to, each, kind, comm, request);
}

API int MPI_Testsome(int n, MPI_Request *requests, int *over, int *which, MPI_Status *status)
{
	NEXT(MPI_Testsome, NULL);
	const int r = real(n, requests, over, which, status);

	for (int i = 0; r == MPI_SUCCESS && *over != MPI_UNDEFINED && i < *over; i++)
		order_message_over(&requests[which[i]]);
	return r;
}
