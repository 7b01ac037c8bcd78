/* Constants in filled templates: what becomes of a function's text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include "codegen/write/fold.h"

static void becomes(const char *from, const char *want)
{
	Buf b = { 0 };

	buf_puts(&b, from);
	fold_constants(&b);
	if (strcmp(buf_str(&b), want) || b.n != strlen(want))
		fail_msg("'%s' became '%s', not '%s'", from, buf_str(&b), want);
	buf_free(&b);
}

static void arithmetic(void **state)
{
	(void)state;
	becomes("{ y[i * 144 + j] = c[i * 0 + j * 1]; }", "{ y[i * 144 + j] = c[j]; }");
	becomes("{ const int64_t b = n / 1 / 4, h = n / 1 % 4; }", "{ const int64_t b = n / 4, h = n % 4; }");
	becomes("{ const int first = (int)(n % 1) * 16; }", "{ const int first = 0; }");
	becomes("{ const int64_t at = (int64_t)(blockIdx.x) * 9 + blockIdx.x % 1; }",
		"{ const int64_t at = (int64_t)(blockIdx.x) * 9; }");
	becomes("{ a = 16 < 16 ? b : c; d = (64 > 64 ? f(1, 2) : g); }", "{ a = c; d = (g); }");
	becomes("{ f(0, !0, !1, (3)); }", "{ f(0, 1, 0, 3); }");
	becomes("{ a = b * 1; }\n\n", "{ a = b; }\n\n"); /* nothing is read behind the blanks at the end */
	becomes("{ const float *restrict p = x + (int64_t)o * 10 * 1 + 0; }",
		"{ const float *restrict p = x + (int64_t)o * 10; }");
}

/* What only looks like it. */
static void kept(void **state)
{
	static const char *const same[] = {
		"{ y = x * 0; z = x + 0; }", /* x may be NaN, or -0 */
		"{ y = x * 10 / 16 % 12; z = x * 1.0f; }",
		"{ y = f(i) % 12 * 0x1; }",
		"{ p->x = -1 * y; }",
		"{ s = \"a * 1\"; } /* b * 1 */",
		"{ y = a / 2 * 3; }",
		"{ const int q = (int)((e /= 5) % 1), r = (int)(e % 7); }",
		"{ y[i - 1] = 1 - x; }",
		"{ a = 1 < n ? 1 : n; }",
		"{ for (int i = 0; i < 2; i++) f(i); }",
		"{ for (int i = 0; i < 1; i++) i += g(); }",
		"{ for (int i = 0; i < 1; i++) { if (x) continue; f(); } }",
		"{ y[i] = 1 ? a[i] : b[i]; }",
		"{\n#pragma omp parallel for collapse(2)\n\tfor (int i = 0; i < 1; i++)\n\t\tfor (int j = 0; j < 9; j++)\n\t\t\ty[j] = i;\n}",
	};

	(void)state;
	for (size_t i = 0; i < sizeof same / sizeof *same; i++)
		becomes(same[i], same[i]);
}

static void loops(void **state)
{
	(void)state;
	becomes("{\n\tfor (int i = 0; i < 1; i++)\n\t\ty[i] = x[2 * i];\n}\n", "{\n\ty[0] = x[0];\n}\n");
	becomes("{\n\tfor (int o = 0; o < 4; o++)\n\t\tfor (int i = 0; i < 1; i++) {\n\t\t\tint v = x[o * 1 + i];\n\t\t\ty[o] = v;\n\t\t}\n}\n",
		"{\n\tfor (int o = 0; o < 4; o++) {\n\t\tint v = x[o];\n\t\ty[o] = v;\n\t}\n}\n");
	becomes("{\n\tfor (int t = 0; t < 16; t += 16) {\n\t\tconst int n = 16 < 16 - t ? 16 : 16 - t;\n\t\tf(n);\n\t}\n}\n",
		"{\n\tconst int n = 16;\n\tf(n);\n}\n");
	becomes("{\n\tfor (int d = 0; d < 1; d++)\n\t\tfor (int h = 0; h < 7; h++) {\n\t\t\tif (h == d)\n\t\t\t\tcontinue;\n\t\t\tf(h);\n\t\t}\n}\n",
		"{\n\tfor (int h = 0; h < 7; h++) {\n\t\tif (h == 0)\n\t\t\tcontinue;\n\t\tf(h);\n\t}\n}\n");
	becomes("{\n\tint v = 1;\n\tfor (int i = 0; i < 1; i++) {\n\t\tint v = x[i];\n\t\ty[i] = v;\n\t}\n\tf(v);\n}\n",
		"{\n\tint v = 1;\n\t{\n\t\tint v = x[0];\n\t\ty[0] = v;\n\t}\n\tf(v);\n}\n");
}

/* Texts of users may have brackets that belong to none, or end anywhere: such stay, and nothing outside is read. */
static void broken(void **state)
{
	static const char *const same[] = {
		"{ for (int i = 0; i < 1; i++) f(i; }",
		"{ for (int i = 0; i < 1; i++) { f(i); ",
		"{ for (int i = 0; i < 1; i++) f(i]; y[i); }",
		"{ for (int i = 0; i < 1; i++) { y[i] = 0; ) }",
		"{ for (int i = 0; i < 1; i++) if (x f(i); }",
		"{ for (int i = 0; i < 1; i++) y[i = 2; }",
		"{ for (int i = 0; i < 1; i++) f(i) } g();",
		"{ y = a) % 1; }",
		"{ y = (1 *",
		"{ y[0 +",
		"{ for (int i = 0; i < 1; i++) i /= g(); }",
	};

	(void)state;
	for (size_t i = 0; i < sizeof same / sizeof *same; i++)
		becomes(same[i], same[i]);
	becomes("{ y = 1 < 2 ? (a : b; }", "{ y = 1 ? (a : b; }");
	becomes("{ if (1 < 2 && a", "{ if (a"); /* up to the last word */
	becomes("{ if (1 < 2 &&", "{ if (1 &&");
}

/* Conditions that have become constant. */
static void conditions(void **state)
{
	(void)state;
	becomes("{\n\tif (8 > 16 || key == 0)\n\t\tf();\n}\n", "{\n\tif (key == 0)\n\t\tf();\n}\n");
	becomes("{\n\tif (8 < 16 && key == 0)\n\t\tf();\n}\n", "{\n\tif (key == 0)\n\t\tf();\n}\n");
	becomes("{\n\tif (key == 0 || 8 > 16)\n\t\tf();\n}\n", "{\n\tif (key == 0)\n\t\tf();\n}\n");
	becomes("{\n\tif (8 > 16 || 8 > 16)\n\t\tf();\n\tg();\n}\n", "{\n\tg();\n}\n");
	becomes("{\n\tif (8 > 16 && c == 0)\n\t\tf();\n\telse\n\t\th();\n\tg();\n}\n", "{\n\th();\n\tg();\n}\n");
	becomes("{\n\tif (8 < 16 || c == 0)\n\t\tf();\n\telse\n\t\th();\n\tg();\n}\n", "{\n\tf();\n\tg();\n}\n");
	becomes("{\n\tif (8 > 16) {\n\t\tf();\n\t\tg();\n\t}\n\th();\n}\n", "{\n\th();\n}\n");
	becomes("{\n\tif (8 > 16 && a || b)\n\t\tf();\n}\n", "{\n\tif (0 && a || b)\n\t\tf();\n}\n");
}

/* Functions know nothing of each other's names. */
static void functions(void **state)
{
	(void)state;
	becomes("namespace n {\nvoid f()\n{\n\tint x = g();\n}\nvoid h()\n{\n\tfloat y = x + 0;\n}\n}\n",
		"namespace n {\nvoid f()\n{\n\tint x = g();\n}\nvoid h()\n{\n\tfloat y = x + 0;\n}\n}\n");
	becomes("{\n\tPD_UNROLL\n\tfor (int u = 0; u < 1; u++) {\n\t\ty[u] = 1;\n\t}\n}\n", "{\n\ty[0] = 1;\n}\n");
	becomes("enum { THREADS = 32 * 1 };\nvoid f(int *y\n\t, int n)\n{\n#pragma unroll\n\tfor (int i = 0; i < 1; i++)\n\t\ty[i] = n;\n}\n",
		"enum { THREADS = 32 };\nvoid f(int *y\n\t, int n)\n{\n\ty[0] = n;\n}\n");
}

static void heads(void **state)
{
	(void)state;
	becomes("static void f(float *restrict y\n\t, const float *restrict c\n\t)\n{\n}\n",
		"static void f(float *restrict y, const float *restrict c)\n{\n}\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(arithmetic), cmocka_unit_test(kept),
		cmocka_unit_test(loops), cmocka_unit_test(broken), cmocka_unit_test(conditions),
		cmocka_unit_test(functions), cmocka_unit_test(heads) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
