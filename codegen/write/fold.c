/* Constants in filled templates; fold.h says what becomes of them. Works on tokens: a rule looks at a few neighbours
 * and drops or replaces some; rules are tried until none fits. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "fold.h"

typedef enum TokenKind { TOKEN_WORD, TOKEN_INT, TOKEN_NUMBER, TOKEN_OP, TOKEN_OPAQUE } TokenKind;

/* Text with the blanks before it. OPAQUE: a comment, a string, a line of the preprocessor. */
typedef struct Token {
	const char *gap, *s;
	size_t ngap, n;
	TokenKind kind;
	bool result; /* of a comparison */
} Token;

typedef struct Fold {
	Arena *a;
	Token *t;
	int n, cap;
} Fold;

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool is(const Fold *f, int i, const char *s)
{
	return i >= 0 && i < f->n && f->t[i].kind != TOKEN_OPAQUE && strlen(s) == f->t[i].n &&
	       !strncmp(f->t[i].s, s, f->t[i].n);
}

static bool one_of(const Fold *f, int i, const char *const *list)
{
	for (; *list; list++)
		if (is(f, i, *list))
			return true;
	return false;
}

/* ---- tokens ---- */

static size_t quoted_length(const char *s)
{
	size_t n = 1;

	while (s[n] && s[n] != *s)
		n += s[n] == '\\' && s[n + 1] ? 2 : 1;
	return n + (s[n] == *s);
}

static size_t number_length(const char *s)
{
	size_t n = 0;

	while (word_char(s[n]) || s[n] == '.' ||
		((s[n] == '+' || s[n] == '-') && n && tolower((unsigned char)s[n - 1]) == 'e'))
		n++;
	return n;
}

static size_t operator_length(const char *s)
{
	static const char *const two[] = { "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
		"+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "::" };

	for (size_t i = 0; i < sizeof two / sizeof *two; i++)
		if (!strncmp(s, two[i], 2))
			return 2;
	return 1;
}

static Token next_token(const char *s, bool line_start)
{
	Token t = { .s = s, .kind = TOKEN_OP };

	if (*s == '#' && line_start) {
		t.kind = TOKEN_OPAQUE;
		t.n = strcspn(s, "\n");
	} else if (!strncmp(s, "/*", 2)) {
		const char *end = strstr(s, "*/");
		t.kind = TOKEN_OPAQUE;
		t.n = end ? (size_t)(end - s) + 2 : strlen(s);
	} else if (!strncmp(s, "//", 2)) {
		t.kind = TOKEN_OPAQUE;
		t.n = strcspn(s, "\n");
	} else if (*s == '"' || *s == '\'') {
		t.kind = TOKEN_OPAQUE;
		t.n = quoted_length(s);
	} else if (isdigit((unsigned char)*s) || (*s == '.' && isdigit((unsigned char)s[1]))) {
		t.n = number_length(s);
		t.kind = strspn(s, "0123456789") == t.n && t.n < 10 ? TOKEN_INT : TOKEN_NUMBER;
	} else if (word_char(*s)) {
		t.kind = TOKEN_WORD;
		while (word_char(s[t.n]))
			t.n++;
	} else {
		t.n = operator_length(s);
	}
	return t;
}

static void split(Fold *f, const char *s)
{
	while (*s) {
		const size_t gap = strspn(s, " \t\n");
		bool start = f->n == 0;

		for (size_t i = 0; i < gap; i++)
			start |= s[i] == '\n';
		Token t = { .s = s + gap, .kind = TOKEN_OPAQUE }; /* blanks at the end: before no text */
		if (s[gap])
			t = next_token(s + gap, start);
		t.gap = s;
		t.ngap = gap;
		PUSH(f->a, f->t, f->n, f->cap) = t;
		s += gap + t.n;
	}
}

static void drop(Fold *f, int i, int n)
{
	memmove(f->t + i, f->t + i + n, (size_t)(f->n - i - n) * sizeof *f->t);
	f->n -= n;
}

static void put_int(Fold *f, int i, long v)
{
	f->t[i].s = arena_printf(f->a, "%ld", v);
	f->t[i].n = strlen(f->t[i].s);
	f->t[i].kind = TOKEN_INT;
}

static bool int_at(const Fold *f, int i, long *v)
{
	if (i < 0 || i >= f->n || f->t[i].kind != TOKEN_INT)
		return false;
	*v = strtol(f->t[i].s, NULL, 10);
	return true;
}

static const char *const product_ops[] = { "*", "/", "%", NULL };
static const char *const int_types[] = { "int", "int64_t", "size_t", NULL };
static const char *const keywords[] = { "return", "sizeof", "else", "if", "for", "while", "case", NULL };

static bool ends_operand(const Fold *f, int i)
{
	if (i < 0 || one_of(f, i, keywords))
		return false;
	return f->t[i].kind == TOKEN_WORD || f->t[i].kind == TOKEN_INT || f->t[i].kind == TOKEN_NUMBER ||
	       is(f, i, ")") || is(f, i, "]");
}

/* The bracket that belongs to the one at i; step: 1 or -1; -1: there is none. */
static int partner(const Fold *f, int i, int step)
{
	static const char *const open[] = { "(", "[", "{", NULL }, *const close[] = { ")", "]", "}", NULL };
	int depth = 0;

	for (; i >= 0 && i < f->n; i += step) {
		depth += one_of(f, i, open) ? step : one_of(f, i, close) ? -step : 0;
		if (depth == 0)
			return i;
	}
	return -1;
}

/* Where the product that ends at i begins; -1: it has calls. */
static int product_start(const Fold *f, int i)
{
	for (;;) {
		while (is(f, i, "]"))
			i = partner(f, i, -1) - 1;
		if (is(f, i, ")")) {
			i = partner(f, i, -1);
			if (i > 0 && f->t[i - 1].kind == TOKEN_WORD && !one_of(f, i - 1, keywords))
				return -1;
		}
		if (i < 0)
			return -1;
		if (is(f, i - 1, ")") && one_of(f, i - 2, int_types) && is(f, i - 3, "("))
			i -= 3; /* a cast */
		if (!one_of(f, i - 1, product_ops) || !ends_operand(f, i - 2))
			return is(f, i - 1, ".") || is(f, i - 1, "->") ? -1 : i;
		i -= 2;
	}
}

/* Is the word at i a variable that is declared as an integer? */
static bool int_word(const Fold *f, int i)
{
	for (int k = 1; i > 0 && i < f->n && f->t[i].kind == TOKEN_WORD && k < f->n; k++)
		if (one_of(f, k - 1, int_types) && f->t[k].n == f->t[i].n && !strncmp(f->t[k].s, f->t[i].s, f->t[i].n))
			return true;
	return false;
}

/* Is what stands at i added and multiplied as integers, or added to a pointer? */
static bool of_integers(const Fold *f, int i)
{
	int depth = 0, k = i;

	if (int_word(f, i - 1) || (f->t[i].kind == TOKEN_INT && int_word(f, i + 2)) ||
		(f->t[i - 1].kind == TOKEN_INT && !one_of(f, i - 2, product_ops)))
		return true;

	for (; k >= 0 && f->t[k].kind != TOKEN_OPAQUE; k--) {
		if (depth == 0 && (is(f, k, ";") || is(f, k, "{") || is(f, k, "}")))
			break;
		depth += is(f, k, ")") || is(f, k, "]");
		depth -= is(f, k, "(") || is(f, k, "[");
		if (depth < 0 && is(f, k, "["))
			return true;
		if (depth < 0 && k > 0 && f->t[k - 1].kind == TOKEN_WORD) /* a call, or the head of a statement */
			return is(f, k - 1, "for") && one_of(f, k + 1, int_types);
		depth = depth < 0 ? 0 : depth;
	}
	k += is(f, k + 1, "const") ? 2 : 1;
	if (one_of(f, k, int_types))
		return true;
	k++;
	return is(f, k, "*") && (is(f, k + 2, "=") || (is(f, k + 1, "restrict") && is(f, k + 3, "=")));
}

/* ---- rules: true where one was applied at i ---- */

static bool by_one(Fold *f, int i)
{
	long v;

	if ((is(f, i, "*") || is(f, i, "/")) && ends_operand(f, i - 1) && int_at(f, i + 1, &v) && v == 1) {
		drop(f, i, 2);
		return true;
	}
	if (int_at(f, i, &v) && v == 1 && is(f, i + 1, "*") && !ends_operand(f, i - 1) &&
		!one_of(f, i - 1, product_ops) && !is(f, i - 1, "-")) {
		f->t[i + 2].gap = f->t[i].gap;
		f->t[i + 2].ngap = f->t[i].ngap;
		drop(f, i, 2);
		return true;
	}
	return false;
}

/* x % 1, and x * 0 of integers. */
static bool to_zero(Fold *f, int i)
{
	long v;
	const bool rest = is(f, i, "%") && int_at(f, i + 1, &v) && v == 1;
	const bool zero =
		is(f, i, "*") && ends_operand(f, i - 1) && int_at(f, i + 1, &v) && v == 0 && of_integers(f, i);
	const int from = rest || zero ? product_start(f, i - 1) : -1;

	if (from < 0)
		return false;
	put_int(f, from, 0);
	drop(f, from + 1, i + 1 - from);
	return true;
}

static bool plus_zero(Fold *f, int i)
{
	static const char *const before[] = { "[", "(", "=", "<", ">", "<=", ">=", ",", "?", ":", NULL };
	long v;

	if ((is(f, i, "+") || is(f, i, "-")) && ends_operand(f, i - 1) && int_at(f, i + 1, &v) && v == 0 &&
		!one_of(f, i + 2, product_ops) && of_integers(f, i)) {
		drop(f, i, 2);
		return true;
	}
	if (int_at(f, i, &v) && v == 0 && is(f, i + 1, "+") && one_of(f, i - 1, before) &&
		(f->t[i + 2].kind == TOKEN_INT || of_integers(f, i))) {
		f->t[i + 2].gap = f->t[i].gap;
		f->t[i + 2].ngap = f->t[i].ngap;
		drop(f, i, 2);
		return true;
	}
	if (int_at(f, i, &v) && v == 0 && is(f, i + 1, "*") && int_at(f, i + 2, &v) && !one_of(f, i - 1, product_ops)) {
		drop(f, i + 1, 2);
		return true;
	}
	if (is(f, i, "(") && one_of(f, i + 1, int_types) && is(f, i + 2, ")") && int_at(f, i + 3, &v) && v == 0) {
		put_int(f, i, 0);
		drop(f, i + 1, 3);
		return true;
	}
	return false;
}

static bool compared(Fold *f, int i)
{
	static const char *const before[] = { "(", "=", ",", "?", ":", "&&", "||", "[", "return", NULL };
	static const char *const behind[] = { ")", "?", "&&", "||", NULL };
	long v, w;

	if (!int_at(f, i, &v) || !int_at(f, i + 2, &w) || !one_of(f, i - 1, before) || !one_of(f, i + 3, behind))
		return false;
	const bool less = is(f, i + 1, "<"), more = is(f, i + 1, ">");
	const bool atmost = is(f, i + 1, "<="), atleast = is(f, i + 1, ">=");

	if (!less && !more && !atmost && !atleast)
		return false;
	f->t[i].result = true; /* a constant that the model has chooses nothing: what it leaves out would not be used */
	put_int(f, i, less ? v < w : more ? v > w : atmost ? v <= w : v >= w);
	drop(f, i + 1, 2);
	return true;
}

/* The first token from i on that ends an expression, at its depth; or what `stop` is. */
static int expression_end(const Fold *f, int i, const char *stop)
{
	static const char *const open[] = { "(", "[", "{", NULL }, *const end[] = { ")", "]", "}", ",", ";", ":",
		NULL };

	for (int nested = 0; i < f->n; i++) {
		if (one_of(f, i, open))
			i = partner(f, i, 1);
		else if (is(f, i, "?"))
			nested++;
		else if (is(f, i, ":") && nested)
			nested--;
		else if (one_of(f, i, end))
			return stop && !is(f, i, stop) ? -1 : i;
		if (i < 0)
			return -1;
	}
	return -1;
}

static bool chosen(Fold *f, int i)
{
	static const char *const before[] = { "(", "=", ",", "[", "return", ":", "?", NULL };
	long v;

	if (!int_at(f, i, &v) || !f->t[i].result || !is(f, i + 1, "?") || !one_of(f, i - 1, before))
		return false;
	const int colon = expression_end(f, i + 2, ":"), end = colon < 0 ? -1 : expression_end(f, colon + 1, NULL);

	if (end < 0)
		return false;
	const int first = v ? i + 2 : colon + 1;
	f->t[first].gap = f->t[i].gap;
	f->t[first].ngap = f->t[i].ngap;
	if (v)
		drop(f, colon, end - colon);
	drop(f, i, first - i);
	return true;
}

static bool bare(Fold *f, int i)
{
	const bool cast = is(f, i - 1, ")") && one_of(f, i - 2, int_types) && is(f, i - 3, "(");
	long v;

	if (is(f, i, "!") && int_at(f, i + 1, &v) && !ends_operand(f, i - 1)) {
		put_int(f, i, !v);
		drop(f, i + 1, 1);
		return true;
	}
	if (is(f, i, "(") && int_at(f, i + 1, &v) && is(f, i + 2, ")") && f->t[i - 1].kind == TOKEN_OP &&
		(cast || !ends_operand(f, i - 1))) {
		put_int(f, i, v);
		drop(f, i + 1, 2);
		return true;
	}
	return false;
}

/* ---- loops of one turn ---- */

/* Behind the statement at i; -1: it is not understood. */
static int statement_end(const Fold *f, int i)
{
	while (i < f->n && f->t[i].kind == TOKEN_OPAQUE)
		i++;
	if (is(f, i, "{"))
		return partner(f, i, 1) + 1;
	if (is(f, i, "for") || is(f, i, "if") || is(f, i, "while")) {
		const int head = partner(f, i + 1, 1), end = head < 0 ? -1 : statement_end(f, head + 1);
		return end > 0 && is(f, end, "else") ? statement_end(f, end + 1) : end;
	}
	for (; i < f->n && !is(f, i, ";"); i++)
		if (is(f, i, "(") || is(f, i, "[") || is(f, i, "{"))
			i = partner(f, i, 1);
	return i < f->n ? i + 1 : -1;
}

/* Does what stands at i belong to a loop that begins behind `from`? */
static bool inner(const Fold *f, int from, int i)
{
	for (int k = from; k < i; k++)
		if ((is(f, k, "for") || is(f, k, "while")) && statement_end(f, k) > i)
			return true;
	return false;
}

/* Does something from `from` to `to` change the variable, declare another of its name, or leave the loop? */
static bool changed(const Fold *f, int from, int to, const char *name)
{
	static const char *const writes[] = { "=", "+=", "-=", "*=", "++", "--", NULL };

	for (int i = from; i < to; i++)
		if ((is(f, i, "continue") || is(f, i, "break")) && !inner(f, from, i))
			return true;
		else if (is(f, i, name) && (one_of(f, i + 1, writes) || is(f, i - 1, "++") || is(f, i - 1, "--") ||
						   is(f, i - 1, "&") || is(f, i - 1, ".") || is(f, i - 1, "->")))
			return true;
	return false;
}

/* Does the block from `from` to `to` declare what has a name outside of it? */
static bool collides(const Fold *f, int from, int to)
{
	for (int i = from + 1; i < to; i++) {
		if (f->t[i].kind != TOKEN_WORD ||
			!(is(f, i + 1, "=") || is(f, i + 1, "[") || is(f, i + 1, ",") || is(f, i + 1, ";")))
			continue;
		const bool declared = f->t[i - 1].kind == TOKEN_WORD || is(f, i - 1, "*") || is(f, i - 1, ",");
		const char *name = arena_strn(f->a, f->t[i].s, f->t[i].n);

		for (int k = 0; declared && k < f->n; k++)
			if ((k < from || k > to) && is(f, k, name) && f->t[i - 1].kind == TOKEN_WORD)
				return true;
	}
	return false;
}

static int tabs(const Token *t)
{
	int n = 0;

	for (size_t k = t->ngap; k > 0 && t->gap[k - 1] == '\t'; k--)
		n++;
	return n;
}

/* One tab less before the lines of some tokens. */
static void dedent(Fold *f, int from, int to)
{
	for (int i = from; i < to; i++) {
		const Token *t = &f->t[i];
		if (t->ngap > 1 && t->gap[t->ngap - 1] == '\t' && memchr(t->gap, '\n', t->ngap))
			f->t[i].ngap--;
	}
}

/* Is a loop at i one that a line `#pragma omp` speaks of that must stay? *lone: a line that goes with the loop. */
static bool bound(const Fold *f, int i, bool *lone)
{
	const Token *t = i > 0 ? &f->t[i - 1] : NULL;

	*lone = t && t->kind == TOKEN_OPAQUE && *t->s == '#';
	return *lone && strncmp(t->s, "#pragma omp simd", 16) != 0;
}

/* The body of the loop at i that has one turn, and the number that its variable is; -1: it is no such loop. */
static int turn_body(const Fold *f, int i, long *from)
{
	long to, step = 1;

	if (!is(f, i, "for") || !one_of(f, i + 2, int_types) || !is(f, i + 4, "=") || !int_at(f, i + 5, from) ||
		!is(f, i + 6, ";") || !is(f, i + 8, "<") || !int_at(f, i + 9, &to) || !is(f, i + 10, ";"))
		return -1;
	const bool single = is(f, i + 12, "++") && is(f, i + 13, ")");

	if (!single && (!is(f, i + 12, "+=") || !int_at(f, i + 13, &step) || !is(f, i + 14, ")")))
		return -1;
	return to > *from && to - *from <= step ? i + 14 + !single : -1;
}

static bool one_turn(Fold *f, int i)
{
	static const char *const in_block[] = { "{", "}", ";", NULL };
	long from;
	bool lone;
	const int body = turn_body(f, i, &from), end = body < 0 ? -1 : statement_end(f, body);

	if (end < 0 || bound(f, i, &lone))
		return false;
	const char *name = arena_strn(f->a, f->t[i + 3].s, f->t[i + 3].n);
	const bool block = is(f, body, "{"), alone = one_of(f, i - lone - 1, in_block);
	const bool kept = block && alone && collides(f, body, end - 1);

	if (changed(f, body, end, name))
		return false;
	for (int k = body; k < end; k++)
		if (is(f, k, name))
			put_int(f, k, from);
	if (!kept && tabs(&f->t[body + block]) > tabs(&f->t[i]))
		dedent(f, body, end);
	if (!block || (alone && !kept)) {
		f->t[body + block].gap = f->t[i].gap;
		f->t[body + block].ngap = f->t[i].ngap;
	} else if (kept) {
		f->t[body].gap = f->t[i].gap;
		f->t[body].ngap = f->t[i].ngap;
	}
	if (block && alone && !kept) {
		drop(f, end - 1, 1);
		drop(f, body, 1);
	}
	drop(f, i - lone, body - i + lone);
	return true;
}

/* ---- the head of a function ---- */

static void join_head(Fold *f)
{
	int end = 0;

	while (end < f->n && !is(f, end, "{"))
		end++;
	for (int i = 0; i < end; i++)
		if (f->t[i].kind == TOKEN_OPAQUE)
			end = 0;
	size_t column = 0;
	for (int i = 1; i < end; i++) {
		Token *t = &f->t[i];
		const bool line = memchr(t->gap, '\n', t->ngap) != NULL;
		if (line || t->ngap) {
			t->gap = " ";
			t->ngap = is(f, i, ",") || is(f, i, ")") || is(f, i - 1, "(") ? 0 : 1;
		}
		size_t next = t->ngap + t->n;
		for (int k = i + 1; k < end && !is(f, k, ",") && is(f, i - 1, ","); k++)
			next += f->t[k].ngap ? 1 + f->t[k].n : f->t[k].n;
		if (is(f, i - 1, ",") && column + next > 110) {
			t->gap = "\n\t";
			t->ngap = 2;
			column = 8;
		}
		column += t->ngap + t->n;
	}
}

/* ---- all of it ---- */

static bool fold_once(Fold *f, bool loops)
{
	for (int i = 1; i < f->n; i++)
		if (by_one(f, i) || to_zero(f, i) || plus_zero(f, i) || compared(f, i) || chosen(f, i) || bare(f, i) ||
			(loops && one_turn(f, i)))
			return true;
	return false;
}

void fold_constants(Buf *text)
{
	Fold f = { .a = arena_new() };
	const char *copy = arena_str(f.a, buf_str(text));

	split(&f, copy);
	join_head(&f);
	const bool loops = !strstr(copy, "collapse("); /* of which each counts */
	while (fold_once(&f, loops))
		;
	buf_clear(text);
	for (int i = 0; i < f.n; i++) {
		buf_add(text, f.t[i].gap, f.t[i].ngap);
		buf_add(text, f.t[i].s, f.t[i].n);
	}
	arena_free(f.a);
}
