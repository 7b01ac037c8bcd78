/* What every folder stands on: vectors of arenas, and pieces of work on several threads. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "ir/base/arena.h"
#include "ir/base/tasks.h"

/* Of 12 bytes, so that what is taken is not what was asked for. */
typedef struct Item {
	int v[3];
} Item;

static void all_there(const Item *x, int n, int cap, int from)
{
	for (int i = 0; i < n; i++)
		assert_true(x[i].v[0] == from + i && x[i].v[1] == 2 * i && x[i].v[2] == -i);
	for (int i = n; i < cap; i++)
		assert_true(!x[i].v[0] && !x[i].v[1] && !x[i].v[2]); /* rooms that are not in use are zero */
}

/* The last thing that was taken grows where it is, as long as its block has room: nothing is copied. */
static void alone(void **state)
{
	Arena *a = arena_new();
	Item *x = NULL, *first = NULL;
	int n = 0, cap = 0;

	(void)state;
	for (int i = 0; i < 100000; i++) {
		PUSH(a, x, n, cap) = (Item){ { 7 + i, 2 * i, -i } };
		first = first ? first : x;
		assert_true(i >= 1000 || x == first);
		if ((i & (i + 1)) == 0)
			all_there(x, n, cap, 7);
	}
	all_there(x, n, cap, 7);
	arena_free(a);
}

/* Two that grow in turns, and a copy that goes on by itself, do not write into each other. */
static void in_turns(void **state)
{
	Arena *a = arena_new();
	Item *x = NULL, *y = NULL, *z;
	int nx = 0, ny = 0, nz, cx = 0, cy = 0, cz;

	(void)state;
	for (int i = 0; i < 5000; i++) {
		PUSH(a, x, nx, cx) = (Item){ { 7 + i, 2 * i, -i } };
		if (i % 3 == 0)
			PUSH(a, y, ny, cy) = (Item){ { 9 + ny - 1, 2 * (ny - 1), -(ny - 1) } };
	}
	all_there(x, nx, cx, 7);
	all_there(y, ny, cy, 9);
	y = NULL;
	for (cy = ny = 0; ny < 8;)
		PUSH(a, y, ny, cy) = (Item){ { 1 + ny - 1, 2 * (ny - 1), -(ny - 1) } };
	z = y;
	nz = ny;
	cz = cy;
	PUSH(a, y, ny, cy) = (Item){ { 9, 16, -8 } };
	PUSH(a, z, nz, cz) = (Item){ { 109, 0, 0 } };
	all_there(y, ny, cy, 1);
	assert_true(z[8].v[0] == 109 && z[7].v[0] == 8 && !z[9].v[0]);
	arena_free(a);
}

enum { PIECES = 200 };

typedef struct Work {
	atomic_int times[PIECES], now, most;
} Work;

static void piece(void *x, int i)
{
	Work *w = x;
	const int now = atomic_fetch_add(&w->now, 1) + 1;
	int most = atomic_load(&w->most);

	while (now > most && !atomic_compare_exchange_weak(&w->most, &most, now))
		;
	for (volatile int k = 0; k < 20000; k++)
		;
	atomic_fetch_add(&w->times[i], 1);
	atomic_fetch_sub(&w->now, 1);
}

/* Every piece once, all done on return, no more at a time than was said. */
static void tasks(void **state)
{
	(void)state;
	for (int most = 1; most <= 3; most++)
		for (int n = 0; n <= PIECES; n += PIECES / 4) {
			Work w = { 0 };

			tasks_run(n, most, piece, &w);
			for (int i = 0; i < PIECES; i++)
				assert_int_equal(w.times[i], i < n);
			assert_int_equal(w.now, 0);
			assert_true(w.most <= most);
			assert_true(!n || w.most >= 1);
		}
}

int main(void)
{
	const struct CMUnitTest all[] = { cmocka_unit_test(alone), cmocka_unit_test(in_turns),
		cmocka_unit_test(tasks) };

	mallopt(M_PERTURB, 0x5a); /* what is taken is not zero by chance */
	return cmocka_run_group_tests(all, NULL, NULL);
}
