/* The libclang check against faults put into emitted files: each must be found and named.
 * test_check SOURCE_TREE COMPILER PDCC */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "codegen/folder/emit.h"
#include "ir/base/buf.h"
#include "ir/ir.h"

static const char *tree = ".", *pdcc = "pdcc";
static char dir[] = "/tmp/pdcc-check-XXXXXX";
static Arena *arena;
static Module *plan; /* that the folder was written of */
static bool have_libclang;

/* The module behind the last pass, as the folder's ir/ has it. */
static Module *read_plan(void)
{
	const char *path = arena_printf(arena, "%s/ir/35-memplan.pdir", dir);
	char *text = file_read(path, NULL);
	Diag d;

	assert_non_null(text);
	diag_init(&d, stderr, arena);
	Module *m = module_parse(arena, path, text, &d);
	assert_non_null(m);
	free(text);
	return m;
}

/* What check_emitted says of the folder; *ok: what it gives. */
static char *verdict(bool *ok)
{
	char *said = NULL;
	size_t n;
	Diag d;
	FILE *f = open_memstream(&said, &n);

	diag_init(&d, f, arena);
	*ok = check_emitted(plan, dir, &d);
	fclose(f);
	return said;
}

static int emit(void **state)
{
	bool ok;

	arena = arena_new();
	(void)state;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(system(arena_printf(arena,
				 "'%s' '%s/testsuite/golden/codegen/skip.onnx' --cluster local:3 --plan 1-1-1 "
				 "--microbatches 3 -q -o %s",
				 pdcc, tree, dir)),
		0);
	plan = read_plan();
	char *said = verdict(&ok);
	have_libclang = !strstr(said, "was not checked");
	if (!ok)
		fail_msg("a good folder is refused: %s", said);
	free(said);
	return 0;
}

static int clean(void **state)
{
	(void)state;
	arena_free(arena);
	char cmd[64];
	snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
	return system(cmd);
}

/* Replaces the first `from` in DIR/file, looks whether the check says `want`, and puts the file back. */
static void fault(const char *file, const char *from, const char *to, const char *want)
{
	const char *path = arena_printf(arena, "%s/%s", dir, file);
	size_t n;
	char *text = file_read(path, &n), *at = text ? strstr(text, from) : NULL;
	bool ok;

	if (!at)
		fail_msg("%s has no '%s'", file, from);
	const char *bad = arena_printf(arena, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	assert_true(file_write(path, bad, strlen(bad)));
	char *said = verdict(&ok);
	if (ok || !strstr(said, want))
		fail_msg("%s: '%s' became '%s', the check said: %s", file, from, to, said);
	assert_true(file_write(path, text, n));
	free(said);
	free(text);
}

static void found(void **state)
{
	(void)state;
	if (!have_libclang)
		skip();
	fault("stage1/stage1.c", "void update(void)\n{", "void update(void)\n{\n\tint unused;", "unused variable");
	fault("stage0/stage0.c", "void update(void)\n{", "void update(void)\n{\n\tabort();", "call to undeclared");
	fault("stage0/stage0.c", "#include \"kernels.h\"",
		"#include \"kernels.h\"\n#include <stdlib.h>\nint *leak(void);\n"
		"int *leak(void) { return malloc(4); }",
		"a call to 'malloc'");
	fault("stage0/stage0.c", "struct kept {", "struct kept {\n\tint64_t more[8];", "sizeof");
	fault("stage0/stage0.c", "pd_isend(0, slot, 1, mb, k->h, 8 * sizeof(float));",
		"pd_isend(0, slot, 1, mb, k->h, 7 * sizeof(float));",
		"channel 0 carries 28 bytes here, 32 in the plan");
	fault("stage0/stage0.c", "pd_isend(0, slot, 1, mb, k->h, 8 * sizeof(float));", "", "0 pd_isend, 1 pd_irecv");
	fault("stage0/stage0.c", "pd_isend(0,", "pd_isend(mb,", "must be constants");
	fault("stage1/stage1.c", "pd_irecv(0,", "pd_irecv(9,", "stage 1 has no channel 9");
	fault("device1.c", "{ F, 0, 0, 0 },", "{ F, 0, 0, 1 },", "differs from line 2 of the schedule");
	fault("device1.c", "{ SYNC, 0, 0, -1 },", "", "differs from line 2 of the schedule");
	fault("stage1/stage1.c", "} *P;\n_Static_assert(sizeof(struct params) == 64, \"as planned\");",
		"\t_Alignas(64) char more[64];\n} *P;", "struct params has 128 bytes, 64 in the plan");
}

/* A good folder whose stages keep versions of their weights beside the parameters passes: pdcc looks at what it wrote. */
static void versions(void **state)
{
	(void)state;
	assert_int_equal(system(arena_printf(arena,
				 "'%s' '%s/testsuite/models/mlp/train_loss.onnx' --cluster local:3 --plan 1-1-1 "
				 "--schedule pipedream --microbatches 1 -q -o %s/versions",
				 pdcc, tree, dir)),
		0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(found), cmocka_unit_test(versions) };

	if (argc > 1)
		tree = argv[1];
	if (argc > 3)
		pdcc = argv[3];
	return cmocka_run_group_tests(tests, emit, clean);
}
