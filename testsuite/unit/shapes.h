/* Shared by the tests of shape rules: a module to build nodes in, operands, and what a rule gives or says. */
#ifndef PDCC_TESTSUITE_UNIT_SHAPES_H
#define PDCC_TESTSUITE_UNIT_SHAPES_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ir/ops/common/common.h"

static Arena *arena;
static Diag diag;
static char *said; /* what diag printed */
static size_t nsaid;
static Module *mod;
static Builder at;

static int set_up(void **state)
{
	(void)state;
	arena = arena_new();
	diag_init(&diag, open_memstream(&said, &nsaid), arena);
	mod = module_new(arena, "t");
	mod->graph = graph_new(mod, "t");
	at = (Builder){ .m = mod, .g = mod->graph, .loc = NOLOC, .stage = -1, .d = &diag };
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fclose(diag.out);
	free(said);
	arena_free(arena);
	return 0;
}

/* Operands are named x, x.1 ... in an order that C leaves open: no expected text has their names. */
static Value *operand(DType t, int rank, const int64_t *dim)
{
	return graph_input(mod->graph, unique_name(mod->graph, "x"), type_make(t, rank, dim));
}

#define DIMS(...) \
	(int)(sizeof(int64_t[]){ __VA_ARGS__ } / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#define F32(...) operand(DT_f32, DIMS(__VA_ARGS__))

static void gives(const Node *n, int i, const char *type)
{
	assert_false(at.failed);
	assert_string_equal(str_type(arena, &n->out[i]->type), type);
}

static void refused(const char *text)
{
	fflush(diag.out);
	assert_true(at.failed);
	if (!strstr(said, text))
		fail_msg("wanted '%s', got '%s'", text, said);
	at.failed = false;
	rewind(diag.out);
}

#endif
