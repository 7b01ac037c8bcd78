/* Flags whose value is one of few words. */
#ifndef PDCC_FRONTEND_CHOICES_H
#define PDCC_FRONTEND_CHOICES_H

#include <stdbool.h>
#include <stdio.h>
#include "ir/base/buf.h"

/* word: what its parser takes, n of them; more, after the word of n: other values worth completing. */
typedef struct Choices {
	const char *const *word;
	int n;
	const char *more;
	const char *const *help; /* of each word; NULL, "": none */
} Choices;

/* Of --NAME; false: its value is no word. */
bool choices_of(const char *name, Choices *c);
/* The text of --help for --NAME, its words and what is said of each where an @ stands. */
const char *choices_help(Buf *b, const char *name, const char *text);
void list_schedules(FILE *f); /* --list-schedules */

#endif
