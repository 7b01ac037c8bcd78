/* Words, numbers and types of the text form. Nothing here trusts a number of the file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "parse.h"

Loc parse_here(const Parser *s) { return TEXTLOC(s->file, s->line, (int)(s->p - s->line_start) + 1); }

/* ---- words ---- */

void lex_blanks(Parser *s)
{
	for (;; s->p++) {
		if (*s->p == '\n') {
			s->line++;
			s->line_start = s->p + 1;
		} else if (*s->p == '#') {
			while (s->p[1] && s->p[1] != '\n')
				s->p++;
		} else if (*s->p != ' ' && *s->p != '\t' && *s->p != '\r') {
			return;
		}
	}
}

bool lex_at(Parser *s, const char *word)
{
	lex_blanks(s);
	return strncmp(s->p, word, strlen(word)) == 0;
}

bool lex_eat(Parser *s, const char *word)
{
	if (!lex_at(s, word))
		return false;
	s->p += strlen(word);
	return true;
}

void lex_want(Parser *s, const char *word)
{
	if (!lex_eat(s, word))
		fault(s, "'%s' is expected here", word);
}

static const char *quoted(Parser *s)
{
	Buf b = { 0 };

	for (s->p++; *s->p != '"'; s->p++) {
		if (!*s->p || *s->p == '\n') {
			buf_free(&b);
			fault(s, "the quote is not closed on this line");
		}
		if (*s->p != '\\') {
			buf_putc(&b, *s->p);
		} else if (s->p[1] == 'x' && s->p[2] && s->p[3]) {
			char hex[3] = { s->p[2], s->p[3], 0 };
			long c = strtol(hex, NULL, 16);

			if (c > 0)
				buf_putc(&b, (char)c);
			s->p += 3;
		} else if (s->p[1]) {
			buf_putc(&b, *++s->p);
		}
	}
	s->p++;
	const char *w = arena_str(s->a, buf_str(&b));
	buf_free(&b);
	return w;
}

/* A bare or quoted word; never empty when bare. */
const char *lex_word(Parser *s)
{
	lex_blanks(s);
	if (*s->p == '"')
		return quoted(s);
	const char *e = s->p;
	while (text_bare((unsigned char)*e))
		e++;
	if (e == s->p)
		fault(s, "a name is expected here");
	const char *w = arena_strn(s->a, s->p, (size_t)(e - s->p));
	s->p = e;
	return w;
}

int64_t lex_int(Parser *s, int64_t lo, int64_t hi)
{
	char *end;

	lex_blanks(s);
	errno = 0;
	long long v = strtoll(s->p, &end, 10);
	if (end == s->p)
		fault(s, "a number is expected here");
	if (errno || v < lo || v > hi)
		fault(s, "the number must lie in %lld..%lld", (long long)lo, (long long)hi);
	s->p = end;
	return v;
}

double lex_real(Parser *s)
{
	char *end;

	lex_blanks(s);
	double v = strtod(s->p, &end);
	if (end == s->p)
		fault(s, "a number is expected here");
	s->p = end;
	return v;
}

int lex_choice(Parser *s, const char *const *words, int n)
{
	const char *w = lex_word(s);

	for (int i = 0; i < n; i++)
		if (words[i] && strcmp(words[i], w) == 0)
			return i;
	const char *near = diag_nearest(w, words, n);
	fault(s, "'%s' is not known here%s%s%s", w, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
	return 0;
}

Type lex_type(Parser *s)
{
	const char *e;
	Type t = { 0 };

	lex_blanks(s);
	e = s->p;
	while ((*e >= 'a' && *e <= 'z') || (*e >= '0' && *e <= '9'))
		e++;
	t.dtype = dtype_from_name(arena_strn(s->a, s->p, (size_t)(e - s->p)));
	if (!t.dtype)
		fault(s, "an element type is expected here");
	s->p = e;
	lex_want(s, "[");
	int64_t n = dtype_bytes(t.dtype);
	while (!lex_eat(s, "]")) {
		if (t.rank == MAXRANK)
			fault(s, "the rank is above %d", MAXRANK);
		t.dim[t.rank] = lex_int(s, 0, TENSOR_MOST);
		if (__builtin_mul_overflow(n, t.dim[t.rank], &n) || n > TENSOR_MOST)
			fault(s, "the tensor is too large");
		t.rank++;
		if (!lex_at(s, "]"))
			lex_want(s, ",");
	}
	if (strncmp(s->p, "nhwc", 4) == 0) {
		s->p += 4;
		t.layout = LAYOUT_NHWC;
	}
	if (lex_eat(s, "rows<="))
		t.rows = lex_int(s, 1, (int64_t)1 << 40);
	return t;
}

/* ---- {key=value, ...} ---- */

/* The next key of a brace list; NULL at its end. */
const char *lex_key(Parser *s, bool *first)
{
	if (lex_eat(s, "}"))
		return NULL;
	if (!*first)
		lex_want(s, ",");
	*first = false;
	const char *k = lex_word(s);
	lex_want(s, "=");
	return k;
}

void lex_unknown_key(Parser *s, const char *k) { fault(s, "unknown key '%s'", k); }
