/* The template engine against the C preprocessor: for every template of the ops and several bindings of its holes, both
 * must give the same tokens. Then what the preprocessor does not know: faults and their places.
 * test_tmpl SOURCE_TREE "COMPILER -fopenmp" */
#include <ctype.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "codegen/write/tmpl.h"

static const char *tree = ".", *compiler = "cc -fopenmp";

/* Words of capitals are holes: those that an #if reads are integers. */
static bool read_by_if(const char *text, const char *word, size_t n)
{
	for (const char *s = text; *s; s += strcspn(s, "\n"), s += *s == '\n') {
		const char *end = s + strcspn(s, "\n"), *p = s + strspn(s, " \t");
		if (strncmp(p, "#if", 3) != 0 && strncmp(p, "#elif", 5) != 0)
			continue;
		for (; p + n <= end; p++)
			if (!strncmp(p, word, n) && !isalnum((unsigned char)p[n]) && p[n] != '_' &&
				!isalnum((unsigned char)p[-1]) && p[-1] != '_')
				return true;
	}
	return false;
}

static bool bound(const Holes *h, const char *word, size_t n)
{
	for (int i = 0; i < h->n; i++)
		if (!strncmp(h->h[i].name, word, n) && !h->h[i].name[n])
			return true;
	return n == 4 && !strncmp(word, "NAME", n);
}

static void bind_all(Holes *h, const char *text, unsigned seed)
{
	for (const char *s = text; *s;) {
		size_t n = 0;
		bool capitals = isupper((unsigned char)*s);
		while (isalnum((unsigned char)s[n]) || s[n] == '_') {
			capitals &= !islower((unsigned char)s[n]);
			n++;
		}
		if (n && capitals && !bound(h, s, n)) {
			const char *word = arena_strn(h->arena, s, n);
			seed = seed * 1103515245 + 12345;
			if (read_by_if(text, word, n))
				hole_int(h, word, (int[]){ 0, 1, 2, 9 }[seed >> 16 & 3]);
			else
				hole_text(h, word, "x_%s + %u", word, seed >> 20 & 7);
		}
		s += n ? n : 1;
	}
}

/* Blanks do not count: the preprocessor leaves some out within a #pragma. */
static void same_tokens(const char *file, const char *a, const char *b)
{
	for (;; a++, b++) {
		a += strspn(a, " \t\n");
		b += strspn(b, " \t\n");
		if (*a != *b)
			fail_msg("%s: '%.40s' here, the preprocessor has '%.40s'", file, a, b);
		if (!*a)
			return;
	}
}

/* Text through the preprocessor with the holes as macros (h NULL: none). */
static char *through_cpp(Arena *a, const char *text, const Holes *h)
{
	char name[] = "/tmp/pdcc-tmpl-XXXXXX";
	const int fd = mkstemp(name);
	Buf cmd = { 0 }, out = { 0 };
	char part[4096];
	size_t n;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	buf_printf(&cmd, "%s -E -P -x c", compiler);
	if (h)
		buf_printf(&cmd, " -DNAME=%s", h->name);
	for (int i = 0; h && i < h->n; i++)
		if (h->h[i].is_int)
			buf_printf(&cmd, " -D%s=%lld", h->h[i].name, (long long)h->h[i].i);
		else
			buf_printf(&cmd, " '-D%s=%s'", h->h[i].name, h->h[i].s);
	buf_printf(&cmd, " %s", name);
	FILE *p = popen(buf_str(&cmd), "r");
	assert_non_null(p);
	while ((n = fread(part, 1, sizeof part, p)) > 0)
		buf_add(&out, part, n);
	assert_int_equal(pclose(p), 0);
	unlink(name);
	char *copy = arena_str(a, buf_str(&out));
	buf_free(&cmd);
	buf_free(&out);
	return copy;
}

static void compare(Arena *a, const char *file, const char *text, Holes *h)
{
	Diag d;
	Buf out = { 0 };

	diag_init(&d, stderr, a);
	h->name = "the_kernel";
	assert_true(tmpl_fill(&out, NULL, file, text, h, NULL, &d));
	same_tokens(file, through_cpp(a, buf_str(&out), NULL), through_cpp(a, text, h));
	buf_free(&out);
}

static void all_templates(void **state)
{
	Arena *a = arena_new();
	glob_t g = { 0 };

	(void)state;
	assert_int_equal(glob(arena_printf(a, "%s/ir/ops/*/*.cpu.c", tree), 0, NULL, &g), 0);
	glob(arena_printf(a, "%s/ir/ops/*/*.ref.c", tree), GLOB_APPEND, NULL, &g);
	for (size_t i = 0; i < g.gl_pathc; i++) {
		const char *text = tmpl_text(a, strrchr(g.gl_pathv[i], '/') + 1);
		assert_non_null(text);
		for (unsigned seed = 1; seed <= 4; seed++) {
			Holes *h = NEW(a, Holes);
			h->arena = a;
			bind_all(h, text, seed * 7919);
			compare(a, g.gl_pathv[i], text, h);
		}
	}
	globfree(&g);
	arena_free(a);
}

static void corners(void **state)
{
	static const char text[] =
		"/* M stays in a\n * comment, M too */ int NAME(void) // M\n{\n\tchar *s = \"M \\\" M\", c = 'M';\n"
		"#if (M + 1) * 2 == 8 && !(N < 0 || N >= 5) && defined(M) && !defined Q\n\tint m = M, n = N, nM = MN, x = 1e-3f + 0xMp;\n"
		"# if M % 2\n\todd();\n# elif 1\n\teven(T);\n# endif\n#elif M\n\tother\n#else\n\tnone\n#endif\n"
		"#pragma omp parallel for collapse(M)\n\tfor (;;) T;\n#if 0\n#if BROKEN\n#endif\n#elif M != 3 || N <= 2 || 7 / 2 > 2\n\tlast;\n"
		"#endif\n}\n";
	Arena *a = arena_new();

	(void)state;
	for (int m = 2; m < 5; m++) {
		Holes *h = NEW(a, Holes);
		h->arena = a;
		hole_int(h, "M", m);
		hole_int(h, "N", m + 1);
		hole_text(h, "T", "T + N"); /* stands for itself once more, and for another hole */
		compare(a, "corners", text, h);
	}
	arena_free(a);
}

static void refused(const char *text, const char *want)
{
	Arena *a = arena_new();
	Holes *h = NEW(a, Holes);
	char *message = NULL;
	size_t n;
	FILE *f = open_memstream(&message, &n);
	Buf out = { 0 };
	Diag d;

	diag_init(&d, f, a);
	h->arena = a;
	h->name = "k";
	hole_int(h, "M", 1);
	hole_text(h, "T", "float");
	assert_false(tmpl_fill(&out, NULL, "x.cpu.c", text, h, NULL, &d));
	fclose(f);
	if (!strstr(message, want))
		fail_msg("'%s' is not in '%s'", want, message);
	free(message);
	buf_free(&out);
	arena_free(a);
}

static void faults(void **state)
{
	(void)state;
	refused("a\n#if M\nb\n", "no #endif");
	refused("a\n#endif\n", "x.cpu.c:2:1: error: template: no #if before 'endif'");
	refused("#else\n", "no #if before");
	refused("#if T\n#endif\n", "this hole is text");
	refused("#if K > 1\n#endif\n", "wants an integer hole, not 'K'");
	refused("#if (M\n#endif\n", "no )");
	refused("#if M M\n#endif\n", "cannot read the rest");
	refused("#if M / (M - 1)\n#endif\n", "division by zero");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_templates),
		cmocka_unit_test(corners),
		cmocka_unit_test(faults),
	};

	if (argc > 1)
		tree = argv[1];
	if (argc > 2)
		compiler = argv[2];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
