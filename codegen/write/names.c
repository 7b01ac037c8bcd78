/* Names in emitted C; see names.h. */
#include <ctype.h>
#include <string.h>
#include "names.h"

enum { LONGEST = 48 };

static const char *const reserved[] = {
	"auto",
	"break",
	"case",
	"char",
	"const",
	"continue",
	"default",
	"do",
	"double",
	"else",
	"enum",
	"extern",
	"float",
	"for",
	"goto",
	"if",
	"inline",
	"int",
	"long",
	"register",
	"restrict",
	"return",
	"short",
	"signed",
	"sizeof",
	"static",
	"struct",
	"switch",
	"typedef",
	"union",
	"unsigned",
	"void",
	"volatile",
	"while",
	"bool",
	"true",
	"false",
	"NULL",
	"asm",
	"typeof",
	"linux",
	"unix",
	"main",
	"errno",
	"signgam",
	"NAN",
	"INFINITY",
	"HUGE_VAL",
	"EOF",
	"offsetof",
	/* names of the emitted files themselves */
	"P",
	"S",
	"G",
	"L",
	"K",
	"A",
	"k",
	"g",
	"mb",
	"slot",
	"tmp",
	"scratch",
	"rounded",
	"round_weights",
	"params",
	"state",
	"grads",
	"kept",
	"stack",
	"forward",
	"backward",
	"update",
	"init",
	"step",
	"sync",
	"tree",
	"done",
	"arena",
	"mine",
	"nmine",
	"program",
	"group",
	"E",
	"e",
	"entry",
	"recv_forward",
	"send_forward",
	"recv_backward",
	"send_backward",
	"in",
	"out",
	"actions",
	"inputs",
	"i",
	"n",
	"add_gradient",
	"weight_gradients",
	"V",
	"R",
	"v",
	"r",
	"weights",
	"rows",
	"newest",
	"met",
	"meet",
	"settle",
	"absent",
	"copy",
	"row",
	"replica",
	"sums",
	"owned",
};

void names_init(Names *n, Arena *a)
{
	n->arena = a;
	map_init(&n->used, a, true);
	map_init(&n->of, a, false);
	for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
		names_reserve(n, reserved[i]);
}

void names_reserve(Names *n, const char *name) { map_put(&n->used, name, n); }

/* Every run of other characters becomes one underscore; names that begin with pd_ or _ belong to others. */
const char *names_legal(Arena *a, const char *name)
{
	char *s = arena_alloc(a, strlen(name) + 3), *p = s;

	while (*name && !isalnum((unsigned char)*name))
		name++;
	if (!isalpha((unsigned char)*name))
		*p++ = 'v';
	else if (!strncmp(name, "pd_", 3) || !strncmp(name, "PD_", 3))
		*p++ = 'v', *p++ = '_';
	for (; *name; name++)
		if (isalnum((unsigned char)*name))
			*p++ = *name;
		else if (p[-1] != '_')
			*p++ = '_';
	while (p > s + 1 && p[-1] == '_')
		p--;
	*p = 0;
	if (p - s > LONGEST) { /* the end tells more than the beginning, which is a path of modules */
		char *q = p - LONGEST;
		while (*q && (*q == '_' || isdigit((unsigned char)*q)))
			q++;
		s = *q ? q : s;
	}
	return s;
}

const char *names_get(Names *n, const void *key, const char *wish)
{
	const char *name = map_get(&n->of, key);

	if (name)
		return name;
	const char *base = names_legal(n->arena, wish);
	name = base;
	for (int i = 2; map_has(&n->used, name); i++)
		name = arena_printf(n->arena, "%s_%d", base, i);
	map_put(&n->used, name, n);
	map_put(&n->of, key, (void *)(uintptr_t)name);
	return name;
}
