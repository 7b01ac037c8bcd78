/* pdcc explain CODE: the long text of an error code, from diagnostics.def. */
#include "explain.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/diag.h"

typedef struct Entry {
	char letter;
	int number;
	const char *title, *text;
} Entry;

static const Entry table[] = {
#define DIAG(letter, number, title, text) { letter, number, title, text },
#include "diagnostics.def"
#undef DIAG
};

enum { NTABLE = (int)(sizeof table / sizeof *table) };

const char *explain_title(char letter, int number)
{
	for (int i = 0; i < NTABLE; i++)
		if (table[i].letter == letter && table[i].number == number)
			return table[i].title;
	return NULL;
}

static void print_code(const Entry *e) { printf(e->letter == 'E' ? "%c%04d" : "%c%03d", e->letter, e->number); }

static void list(void)
{
	for (int i = 0; i < NTABLE; i++) {
		print_code(&table[i]);
		printf("  %s\n", table[i].title);
	}
}

/* "E0203", "e203", "[E0203]" and "203" are the same. */
static const Entry *find(const char *word)
{
	char letter = 'E', *end;

	if (*word == '[')
		word++;
	if (isalpha((unsigned char)*word))
		letter = (char)toupper((unsigned char)*word++);
	const long n = strtol(word, &end, 10);
	if (end == word || (*end && strcmp(end, "]")))
		return NULL;
	for (int i = 0; i < NTABLE; i++)
		if (table[i].letter == letter && table[i].number == n)
			return &table[i];
	return NULL;
}

int explain_main(int argc, char **argv, Diag *d)
{
	if (argc == 0) {
		list();
		return 0;
	}
	for (int i = 0; i < argc; i++) {
		const Entry *e = find(argv[i]);

		if (!e) {
			diag_error(d, NOLOC, 1, "explain: there is no code '%s'; `pdcc explain` lists them", argv[i]);
			return 2;
		}
		print_code(e);
		printf(": %s\n\n%s", e->title, e->text);
	}
	return 0;
}
