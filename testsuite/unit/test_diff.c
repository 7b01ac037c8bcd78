/* Differences of texts: what holds them apart, and that one text and the rows make the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "passes/report/diff.h"

static void becomes(const char *x, const char *y, const char *want)
{
	Arena *a = arena_new();
	Buf b = { 0 };
	const Diff d = diff_texts(a, x, y);

	diff_unified(&b, &d);
	if (strcmp(buf_str(&b), want))
		fail_msg("'%s' to '%s' is '%s', not '%s'", x, y, buf_str(&b), want);
	buf_free(&b);
	arena_free(a);
}

static void by_hand(void **state)
{
	(void)state;
	becomes("a\nb\n", "a\nb\n", "");
	becomes("", "a\n", "@@ -1,0 +1,1 @@\n+a\n");
	becomes("a\nb\np\nc\n", "b\nq\nc\n",
		"@@ -1,1 +1,0 @@\n-a\n@@ -3,1 +2,1 @@\n-p\n+q\n"); /* the first line left is another */
	becomes("b\nq\nc\n", "a\nb\np\nc\n", "@@ -1,0 +1,1 @@\n+a\n@@ -2,1 +3,1 @@\n-q\n+p\n");
	becomes("a\nb\nc\nd\n", "c\nd\na\nb\ne\n",
		"@@ -1,2 +1,0 @@\n-a\n-b\n@@ -5,0 +3,3 @@\n+a\n+b\n+e\n"); /* what moved is there once */
	becomes("%a = Add\n%b = Mul\n", "%b = Mul x\n%c = Add\n",
		"@@ -1,2 +1,2 @@\n-%a = Add\n-%b = Mul\n+%b = Mul x\n+%c = Add\n");
}

/* By names: %b became another line, and is beside itself. */
static void names(void **state)
{
	Arena *a = arena_new();
	const Diff d = diff_texts(a, "%a = Add\n%b = Mul\n", "%b = Mul x\n%c = Add\n");

	(void)state;
	assert_true(d.n == 3 && d.removed == 2 && d.added == 2);
	assert_true(d.row[0].x == 0 && d.row[0].y == -1);
	assert_true(d.row[1].x == 1 && d.row[1].y == 0 && !d.row[1].same);
	assert_true(d.row[2].x == -1 && d.row[2].y == 1);
	arena_free(a);
}

static unsigned seed = 1;

static int draw(int n)
{
	seed = seed * 1103515245u + 12345u;
	return (int)((seed >> 16) % (unsigned)n);
}

static const char *random_text(Arena *a)
{
	const char *text = "";

	for (int n = draw(12), words = 1 + draw(12); n; n--)
		text = arena_printf(a, "%s%c%s\n", text, 'a' + draw(words), draw(3) ? "" : " = x");
	return text;
}

static void random_texts(void **state)
{
	Arena *a = arena_new();

	(void)state;
	for (int i = 0; i < 3000; i++, arena_reset(a)) {
		const char *x = random_text(a), *y = random_text(a);
		const Diff d = diff_texts(a, x, y);
		int at = 0, to = 0, removed = 0, added = 0;

		for (int k = 0; k < d.n; k++) {
			const DiffRow r = d.row[k];

			assert_true(r.x < 0 || r.x == at++);
			assert_true(r.y < 0 || r.y == to++);
			assert_true(r.x >= 0 || r.y >= 0);
			assert_true(r.same == (r.x >= 0 && r.y >= 0 && !strcmp(d.x[r.x], d.y[r.y])));
			removed += r.x >= 0 && !r.same;
			added += r.y >= 0 && !r.same;
		}
		assert_true(at == d.nx && to == d.ny && removed == d.removed && added == d.added);
	}
	arena_free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(by_hand), cmocka_unit_test(names),
		cmocka_unit_test(random_texts) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
