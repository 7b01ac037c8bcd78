/* The line of a text file that a diagnostic speaks of, with a caret under the column:
 *
 *     5 |   - {default: true, bandwith: 25 Gb/s}
 *       |                     ^
 *
 * Columns count characters from 1. Lines that are long (a plan as JSON on one line) are shown around the place. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "diag.h"

enum {
	WIDTH = 100,
	BEFORE = 60,
	LARGEST = 1 << 28
}; /* characters shown, of them in front of the caret; bytes of a file */

/* A file that ends, and is there at once: no pipe, no device. */
static FILE *open_text(const char *path)
{
	struct stat st;
	const int fd = path ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
	FILE *f =
		fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size < LARGEST ? fdopen(fd, "r") : NULL;

	if (fd >= 0 && !f)
		close(fd);
	return f;
}

/* Line `number` of the file, without its end; on the heap. NULL: it has no such line. */
static char *line_of(const char *path, int number)
{
	FILE *f = open_text(path);
	char *line = NULL;
	size_t room = 0;
	ssize_t n = -1;

	for (int i = 0; f && i < number; i++)
		if ((n = getline(&line, &room, f)) < 0)
			break;
	if (f)
		fclose(f);
	if (n < 0) {
		free(line);
		return NULL;
	}
	line[strcspn(line, "\r\n")] = 0;
	return line;
}

/* Bytes of the character at s; *plain: it can be printed. */
static size_t width_of(const char *s, bool *plain)
{
	const int n = diag_plain_char((const unsigned char *)s);

	*plain = n > 0;
	return n > 0 ? (size_t)n : 1;
}

void diag_excerpt(const Diag *d, const Loc *l)
{
	char *line = l->line > 0 && l->col > 0 ? line_of(l->file, l->line) : NULL;
	const int first = l->col > BEFORE + WIDTH / 4 ? l->col - BEFORE : 1;
	const char *p = line;
	bool plain;
	int col = 1;

	if (!line)
		return;
	for (; *p && col < first; col++)
		p += width_of(p, &plain);
	if (*line && strspn(line, " \t") < strlen(line) && col == first) {
		char pad[WIDTH + 1];
		int n = 0; /* blanks up to the caret; a tab is one of them, as wide as it is above */

		fprintf(d->out, "%5d | %s", l->line, first > 1 ? "..." : "");
		for (; *p && col < first + WIDTH; col++) {
			const size_t bytes = width_of(p, &plain);
			if (col < l->col)
				pad[n++] = *p == '\t' ? '\t' : ' ';
			fprintf(d->out, "%.*s", plain ? (int)bytes : 1, plain ? p : "?");
			p += bytes;
		}
		fprintf(d->out, "%s\n      | %s%.*s", *p ? "..." : "", first > 1 ? "   " : "", n, pad);
		fputs(d->color ? "\033[1;32m^\033[0m\n" : "^\n", d->out);
	}
	free(line);
}
