/* Words: phases of nodes, and what passes have established of a module: has="types loss grads". */
#include <string.h>
#include "parse.h"
#include "text.h"

const char *const phase_name[3] = { "fwd", "bwd", "update" };

enum { FACTS = 11 };

/* By bit: P_TYPES, P_LOSS ... */
static const char *const fact_name[FACTS] = { "types", "loss", "grads", "costs", "stages", "placed", "split",
	"scheduled", "synced", "planned", "layout" };

const char *text_facts(Arena *a, unsigned has)
{
	const char *text = "";

	for (int i = 0; i < FACTS; i++)
		if (has >> i & 1)
			text = arena_printf(a, "%s%s%s", text, *text ? " " : "", fact_name[i]);
	return text;
}

unsigned lex_facts(Parser *s)
{
	unsigned has = 0;

	for (const char *word = lex_word(s); *word; word += strspn(word, " ")) {
		const size_t n = strcspn(word, " ");
		int i = 0;

		while (i < FACTS && (strlen(fact_name[i]) != n || strncmp(fact_name[i], word, n)))
			i++;
		if (i == FACTS)
			fault(s, "passes establish nothing called '%.*s'", (int)n, word);
		has |= 1u << i;
		word += n;
	}
	return has;
}
