/* test.h: what the runtime's tests share: a check that names its line, and joining without a compiled plan. */
#ifndef TEST_H
#define TEST_H

#include "rt.h"
#include <stdio.h>
#include <stdlib.h>

__attribute__((unused)) static int failures;

#define CHECK(cond, ...) \
	do { \
		if (!(cond) && ++failures <= 20) { \
			fprintf(stderr, "%s:%d: ", __FILE__, __LINE__); \
			fprintf(stderr, __VA_ARGS__); \
			fputc('\n', stderr); \
		} \
	} while (0)

static inline int env_int(const char *name, int otherwise)
{
	const char *v = getenv(name);

	return v ? atoi(v) : otherwise;
}

/* Fills rank and world from mpirun's environment. */
static inline void place_me(pd_program *p)
{
	p->rank = env_int("OMPI_COMM_WORLD_RANK", 0);
	p->world = env_int("OMPI_COMM_WORLD_SIZE", 1);
}

/* Numbers that differ everywhere but are the same in every process. */
static inline float number(int a, int b) { return pd_random_unit(7, (uint64_t)a, (uint64_t)b, 3) * 2.0f - 1.0f; }

#endif
