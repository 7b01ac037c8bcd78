/* The words of a command: from files and the environment, and back to a file. */
#include "command_words.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "ir/base/buf.h"

void words_split(Arena *a, Words *to, const char *s)
{
	for (;;) {
		Buf b = { 0 };

		while (isspace((unsigned char)*s))
			s++;
		if (!*s)
			return;
		if (*s == '#') {
			s += strcspn(s, "\n");
			continue;
		}
		while (*s && !isspace((unsigned char)*s)) {
			const char quote = *s == '\'' || *s == '"' ? *s++ : 0;
			const size_t n = quote ? strcspn(s, (char[]){ quote, 0 }) : 1;

			buf_add(&b, s, n);
			s += n;
			s += quote && *s;
		}
		PUSH(a, to->w, to->n, to->cap) = arena_strn(a, buf_str(&b), b.n);
		buf_free(&b);
	}
}

bool words_add(Arena *a, Words *to, const char *w, Diag *d)
{
	if (*w != '@' || !w[1]) {
		PUSH(a, to->w, to->n, to->cap) = w;
		return true;
	}
	char *text = file_read(w + 1, NULL);
	if (!text)
		return diag_error(d, NOLOC, 1, "cannot read %s: %s", w + 1, strerror(errno));
	words_split(a, to, text);
	free(text);
	return true;
}

bool words_save(const Words *w, const char *path, Diag *d)
{
	FILE *f = fopen(path, "w");

	if (!f)
		return diag_error(d, NOLOC, 8, "cannot write %s: %s", path, strerror(errno));
	for (int i = 0; i < w->n; i++) {
		const char *s = w->w[i];
		const char quote = strchr(s, '"') ? '\'' : '"';

		if (strncmp(s, "--save-config", 13) == 0) {
			i += s[13] == 0;
			continue;
		}
		const bool plain = *s && !strpbrk(s, " \t\n'\"#");
		const bool value = i + 1 < w->n && s[0] == '-' && !strchr(s, '=') && w->w[i + 1][0] != '-';

		fprintf(f,
			plain          ? "%s%c"
			: quote == '"' ? "\"%s\"%c"
				       : "'%s'%c",
			s, value && i + 1 < w->n ? ' ' : '\n');
	}
	if (fclose(f))
		return diag_error(d, NOLOC, 8, "cannot write %s: %s", path, strerror(errno));
	return true;
}
