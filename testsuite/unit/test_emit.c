/* The small parts of code generation: names, the line writer, constants, hashes. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "codegen/write/build.h"

static Arena *arena;

static int set_up(void **state)
{
	(void)state;
	arena = arena_new();
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	arena_free(arena);
	return 0;
}

static void names(void **state)
{
	Names n;
	int a, b, c, d, e, f;

	(void)state;
	names_init(&n, arena);
	assert_string_equal(names_get(&n, &a, "/m/l.0/Gemm_output_0"), "m_l_0_Gemm_output_0");
	assert_string_equal(names_get(&n, &b, "m.l.0.Gemm.output.0"), "m_l_0_Gemm_output_0_2");
	assert_string_equal(names_get(&n, &a, "whatever"), "m_l_0_Gemm_output_0");
	assert_string_equal(names_get(&n, &c, "while"), "while_2");
	assert_string_equal(names_get(&n, &d, "123"), "v123");
	assert_string_equal(names_get(&n, &e, "\xc3\xa4 \xe2\x82\xac"), "v_2");
	assert_string_equal(names_get(&n, &f, "pd_isend"), "v_pd_isend");
	assert_string_equal(names_legal(arena, "a_very.long/path.of.modules/that.goes.on/and.on/and.on/until.the.name"),
		"odules_that_goes_on_and_on_and_on_until_the_name");
}

static void lines(void **state)
{
	Buf b = { 0 };
	Cw w = { .out = &b };

	(void)state;
	cw_blank(&w);
	cw_func(&w, "void f(void)");
	cw_stmt(&w, "ends */ here\nor /* there", "x();");
	cw_blank(&w);
	cw_blank(&w);
	cw_open(&w, "if (a)");
	cw_line(&w, "#pragma omp simd");
	cw_stmts(&w, NULL, "b();\n\tc();");
	cw_blank(&w);
	cw_close(&w, "%s", " else");
	cw_end(&w);
	assert_string_equal(buf_str(&b),
		"void f(void)\n{\n\tx();                                                     "
		"/* ends +/ here or +* there */\n\n\tif (a) {\n#pragma omp simd\n\t\tb();\n\t\tc();\n\t} else\n}\n");
	buf_clear(&b);
	cw_line(&w, "function(%060d, \"a string, with a comma, %030d\", %020d);", 1, 2, 3);
	assert_string_equal(buf_str(&b),
		"function(000000000000000000000000000000000000000000000000000000000001,\n"
		"\t\"a string, with a comma, 000000000000000000000000000002\", 00000000000000000003);\n");
	buf_clear(&b);
	cw_line(&w, "name = other_%0130d;", 1); /* no place to break it */
	assert_int_equal(strcspn(buf_str(&b), "\n"), 144);
	buf_clear(&b);
	w.whole = true;
	cw_line(&w, "function(%060d, %060d);", 1, 2);
	assert_int_equal(strcspn(buf_str(&b), "\n"), 133);
	buf_free(&b);
}

/* The numbers between the braces of an initialiser. */
static void same_floats(const char *text, const float *want, int n)
{
	const char *p = strchr(text, '{');

	assert_non_null(p);
	for (int i = 0; i < n; i++) {
		p += strcspn(p, "-+0123456789NI");
		float got = 0;
		char *end = NULL;
		if (!strncmp(p, "NAN", 3))
			got = NAN, end = (char *)(uintptr_t)p + 3;
		else if (!strncmp(p + (*p == '-'), "INFINITY", 8))
			got = *p == '-' ? -INFINITY : INFINITY, end = (char *)(uintptr_t)p + 8;
		else
			got = strtof(p, &end);
		if (memcmp(&got, &want[i], sizeof got) != 0 && !(isnan(got) && isnan(want[i])))
			fail_msg("element %d: %.9g became %.9g in: %s", i, (double)want[i], (double)got, text);
		p = end + strcspn(end, ",}");
	}
}

static void constants(void **state)
{
	static const float f[20] = {
		0,
		-0.0f,
		1,
		-1,
		0.1f,
		1.0f / 3,
		FLT_MAX,
		-FLT_MAX,
		FLT_MIN,
		1e-42f,
		INFINITY,
		-INFINITY,
		NAN,
		16777215,
		3e9f,
		1e20f,
		123456.789f,
		-7.25f,
		FLT_EPSILON,
		2.5e-8f,
	};
	static const int64_t i[3] = { INT64_MIN, INT64_MAX, -5 };
	Module *m = module_new(arena, "m");
	Value *v = module_const(m, "f", type_make(DT_f32, 1, (int64_t[]){ 20 }), f);
	Buf b = { 0 };
	Cw w = { .out = &b };

	(void)state;
	const_write(&w, v, "f", false);
	same_floats(buf_str(&b), f, 20);
	buf_clear(&b);
	const_write(&w, module_const(m, "i", type_make(DT_i64, 1, (int64_t[]){ 3 }), i), "i", false);
	assert_string_equal(buf_str(&b), "static const int64_t i[] = { INT64_MIN, 9223372036854775807, -5 };\n");
	buf_clear(&b);
	float *same = arena_alloc(arena, 100 * sizeof *same);
	for (int k = 0; k < 100; k++)
		same[k] = -0.5f;
	v = module_const(m, "s", type_make(DT_f32, 2, (int64_t[]){ 10, 10 }), same);
	const_write(&w, v, "s", false);
	const_fill(&w, v, "s", false);
	assert_string_equal(buf_str(&b),
		"static float s[100];                                             /* f32[10,10] */\n"
		"for (int64_t i = 0; i < 100; i++)\n\ts[i] = -0.5f;\n");
	buf_free(&b);
}

static void hashes(void **state)
{
	char hex[65], *million = arena_alloc(arena, 1000000);

	(void)state;
	sha256_hex("", 0, hex);
	assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
	sha256_hex("abc", 3, hex);
	assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	memset(million, 'a', 1000000);
	sha256_hex(million, 1000000, hex);
	assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(names, set_up, tear_down),
		cmocka_unit_test_setup_teardown(lines, set_up, tear_down),
		cmocka_unit_test_setup_teardown(constants, set_up, tear_down),
		cmocka_unit_test_setup_teardown(hashes, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
