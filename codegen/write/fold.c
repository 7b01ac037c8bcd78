/* Constants in filled templates; fold.h says what becomes of them. Works on tokens: a rule looks at a few neighbours
 * and drops or replaces some; rules are tried until none fits. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "fold.h"
#include "fold_tokens.h"

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

bool token_is(const Fold *f, int i, const char *s)
{
	return i >= 0 && i < f->n && f->t[i].kind != TOKEN_OPAQUE && strlen(s) == f->t[i].n &&
	       !strncmp(f->t[i].s, s, f->t[i].n);
}

bool token_in(const Fold *f, int i, const char *const *list)
{
	for (; *list; list++)
		if (token_is(f, i, *list))
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

void tokens_drop(Fold *f, int i, int n)
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

bool token_int(const Fold *f, int i, long *v)
{
	if (i < 0 || i >= f->n || f->t[i].kind != TOKEN_INT)
		return false;
	*v = strtol(f->t[i].s, NULL, 10);
	return true;
}

static const char *const product_ops[] = { "*", "/", "%", NULL };
static const char *const int_types[] = { "int", "int64_t", "size_t", NULL };
static const char *const writes[] = { "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "++", "--", NULL };
static const char *const keywords[] = { "return", "sizeof", "else", "if", "for", "while", "case", NULL };

static bool ends_operand(const Fold *f, int i)
{
	if (i < 0 || token_in(f, i, keywords))
		return false;
	return f->t[i].kind == TOKEN_WORD || f->t[i].kind == TOKEN_INT || f->t[i].kind == TOKEN_NUMBER ||
	       token_is(f, i, ")") || token_is(f, i, "]");
}

const char *const token_open[] = { "(", "[", "{", NULL };
static const char *const token_close[] = { ")", "]", "}", NULL };

int token_bracket(const Fold *f, int i, const char *const *list)
{
	for (int k = 0; list[k]; k++)
		if (token_is(f, i, list[k]))
			return k + 1;
	return 0;
}

int token_partner(const Fold *f, int i, int step)
{
	const char *const *to = step > 0 ? token_close : token_open;
	const int kind = token_bracket(f, i, step > 0 ? token_open : token_close);
	int depth = 0;

	for (; i >= 0 && i < f->n; i += step) {
		depth += token_bracket(f, i, token_open) ? step : token_bracket(f, i, token_close) ? -step : 0;
		if (depth == 0)
			return kind && token_bracket(f, i, to) == kind ? i : -1;
	}
	return -1;
}

/* Where the product that ends at i begins; -1: it has calls. */
static int product_start(const Fold *f, int i)
{
	for (;;) {
		while (token_is(f, i, "]"))
			i = token_partner(f, i, -1) - 1;
		if (token_is(f, i, ")")) {
			i = token_partner(f, i, -1);
			if (i > 0 && f->t[i - 1].kind == TOKEN_WORD && !token_in(f, i - 1, keywords))
				return -1;
		}
		if (i < 0)
			return -1;
		if (token_is(f, i - 1, ")") && token_in(f, i - 2, int_types) && token_is(f, i - 3, "("))
			i -= 3; /* a cast */
		while (token_is(f, i - 1, ".") && i > 1 && f->t[i - 2].kind == TOKEN_WORD)
			i -= 2; /* a member: blockIdx.x */
		if (!token_in(f, i - 1, product_ops) || !ends_operand(f, i - 2))
			return token_is(f, i - 1, ".") || token_is(f, i - 1, "->") ? -1 : i;
		i -= 2;
	}
}

/* Is the word at i a variable that is declared as an integer? */
static bool int_word(const Fold *f, int i)
{
	for (int k = 1; i > 0 && i < f->n && f->t[i].kind == TOKEN_WORD && k < f->n; k++)
		if (token_in(f, k - 1, int_types) && f->t[k].n == f->t[i].n &&
			!strncmp(f->t[k].s, f->t[i].s, f->t[i].n))
			return true;
	return false;
}

/* Is what stands at i added and multiplied as integers, or added to a pointer? */
static bool of_integers(const Fold *f, int i)
{
	int depth = 0, k = i;

	if (int_word(f, i - 1) || (f->t[i].kind == TOKEN_INT && int_word(f, i + 2)) ||
		(f->t[i - 1].kind == TOKEN_INT && !token_in(f, i - 2, product_ops)))
		return true;

	for (; k >= 0 && f->t[k].kind != TOKEN_OPAQUE; k--) {
		if (depth == 0 && (token_is(f, k, ";") || token_is(f, k, "{") || token_is(f, k, "}")))
			break;
		depth += token_is(f, k, ")") || token_is(f, k, "]");
		depth -= token_is(f, k, "(") || token_is(f, k, "[");
		if (depth < 0 && token_is(f, k, "["))
			return true;
		if (depth < 0 && k > 0 && f->t[k - 1].kind == TOKEN_WORD) /* a call, or the head of a statement */
			return token_is(f, k - 1, "for") && token_in(f, k + 1, int_types);
		depth = depth < 0 ? 0 : depth;
	}
	k += token_is(f, k + 1, "const") ? 2 : 1;
	if (token_in(f, k, int_types))
		return true;
	k++;
	return token_is(f, k, "*") &&
	       (token_is(f, k + 2, "=") || (token_is(f, k + 1, "restrict") && token_is(f, k + 3, "=")));
}

/* ---- rules: true where one was applied at i ---- */

static bool by_one(Fold *f, int i)
{
	long v;

	if ((token_is(f, i, "*") || token_is(f, i, "/")) && ends_operand(f, i - 1) && token_int(f, i + 1, &v) &&
		v == 1) {
		tokens_drop(f, i, 2);
		return true;
	}
	if (i + 2 < f->n && token_int(f, i, &v) && v == 1 && token_is(f, i + 1, "*") && !ends_operand(f, i - 1) &&
		!token_in(f, i - 1, product_ops) && !token_is(f, i - 1, "-")) {
		f->t[i + 2].gap = f->t[i].gap;
		f->t[i + 2].ngap = f->t[i].ngap;
		tokens_drop(f, i, 2);
		return true;
	}
	return false;
}

/* x % 1, and x * 0 of integers. */
static bool to_zero(Fold *f, int i)
{
	long v;
	const bool rest = token_is(f, i, "%") && token_int(f, i + 1, &v) && v == 1;
	const bool zero =
		token_is(f, i, "*") && ends_operand(f, i - 1) && token_int(f, i + 1, &v) && v == 0 && of_integers(f, i);
	const int from = rest || zero ? product_start(f, i - 1) : -1;

	if (from < 0)
		return false;
	for (int k = from; k < i; k++)
		if (token_in(f, k, writes)) /* (e /= 5) % 1 */
			return false;
	put_int(f, from, 0);
	tokens_drop(f, from + 1, i + 1 - from);
	return true;
}

static bool plus_zero(Fold *f, int i)
{
	static const char *const before[] = { "[", "(", "=", "<", ">", "<=", ">=", ",", "?", ":", NULL };
	long v;

	if ((token_is(f, i, "+") || token_is(f, i, "-")) && ends_operand(f, i - 1) && token_int(f, i + 1, &v) &&
		v == 0 && !token_in(f, i + 2, product_ops) && of_integers(f, i)) {
		tokens_drop(f, i, 2);
		return true;
	}
	if (i + 2 < f->n && token_int(f, i, &v) && v == 0 && token_is(f, i + 1, "+") && token_in(f, i - 1, before) &&
		(f->t[i + 2].kind == TOKEN_INT || of_integers(f, i))) {
		f->t[i + 2].gap = f->t[i].gap;
		f->t[i + 2].ngap = f->t[i].ngap;
		tokens_drop(f, i, 2);
		return true;
	}
	if (token_int(f, i, &v) && v == 0 && token_is(f, i + 1, "*") && token_int(f, i + 2, &v) &&
		!token_in(f, i - 1, product_ops)) {
		tokens_drop(f, i + 1, 2);
		return true;
	}
	if (token_is(f, i, "(") && token_in(f, i + 1, int_types) && token_is(f, i + 2, ")") &&
		token_int(f, i + 3, &v) && v == 0) {
		put_int(f, i, 0);
		tokens_drop(f, i + 1, 3);
		return true;
	}
	return false;
}

static bool compared(Fold *f, int i)
{
	static const char *const before[] = { "(", "=", ",", "?", ":", "&&", "||", "[", "return", NULL };
	static const char *const behind[] = { ")", "?", "&&", "||", NULL };
	long v, w;

	if (!token_int(f, i, &v) || !token_int(f, i + 2, &w) || !token_in(f, i - 1, before) ||
		!token_in(f, i + 3, behind))
		return false;
	const bool less = token_is(f, i + 1, "<"), more = token_is(f, i + 1, ">");
	const bool atmost = token_is(f, i + 1, "<="), atleast = token_is(f, i + 1, ">=");

	if (!less && !more && !atmost && !atleast)
		return false;
	f->t[i].result = true; /* a constant that the model has chooses nothing: what it leaves out would not be used */
	put_int(f, i, less ? v < w : more ? v > w : atmost ? v <= w : v >= w);
	tokens_drop(f, i + 1, 2);
	return true;
}

/* The first token from i on that ends an expression, at its depth; or what `stop` is. */
static int expression_end(const Fold *f, int i, const char *stop)
{
	static const char *const end[] = { ")", "]", "}", ",", ";", ":", NULL };

	for (int nested = 0; i < f->n; i++) {
		if (token_bracket(f, i, token_open))
			i = token_partner(f, i, 1);
		else if (token_is(f, i, "?"))
			nested++;
		else if (token_is(f, i, ":") && nested)
			nested--;
		else if (token_in(f, i, end))
			return stop && !token_is(f, i, stop) ? -1 : i;
		if (i < 0)
			return -1;
	}
	return -1;
}

static bool chosen(Fold *f, int i)
{
	static const char *const before[] = { "(", "=", ",", "[", "return", ":", "?", NULL };
	long v;

	if (!token_int(f, i, &v) || !f->t[i].result || !token_is(f, i + 1, "?") || !token_in(f, i - 1, before))
		return false;
	const int colon = expression_end(f, i + 2, ":"), end = colon < 0 ? -1 : expression_end(f, colon + 1, NULL);

	if (end < 0)
		return false;
	const int first = v ? i + 2 : colon + 1;
	f->t[first].gap = f->t[i].gap;
	f->t[first].ngap = f->t[i].ngap;
	if (v)
		tokens_drop(f, colon, end - colon);
	tokens_drop(f, i, first - i);
	return true;
}

static bool bare(Fold *f, int i)
{
	const bool cast = token_is(f, i - 1, ")") && token_in(f, i - 2, int_types) && token_is(f, i - 3, "(");
	long v;

	if (token_is(f, i, "!") && token_int(f, i + 1, &v) && !ends_operand(f, i - 1)) {
		put_int(f, i, !v);
		tokens_drop(f, i + 1, 1);
		return true;
	}
	if (token_is(f, i, "(") && token_int(f, i + 1, &v) && token_is(f, i + 2, ")") && f->t[i - 1].kind == TOKEN_OP &&
		(cast || !ends_operand(f, i - 1))) {
		put_int(f, i, v);
		tokens_drop(f, i + 1, 2);
		return true;
	}
	return false;
}

/* ---- loops of one turn ---- */

int statement_end(const Fold *f, int i)
{
	while (i < f->n && f->t[i].kind == TOKEN_OPAQUE)
		i++;
	if (token_is(f, i, "{")) {
		const int end = token_partner(f, i, 1);
		return end < 0 ? -1 : end + 1;
	}
	if (token_is(f, i, "for") || token_is(f, i, "if") || token_is(f, i, "while")) {
		const int head = token_partner(f, i + 1, 1), end = head < 0 ? -1 : statement_end(f, head + 1);
		return end > 0 && token_is(f, end, "else") ? statement_end(f, end + 1) : end;
	}
	for (; i < f->n && !token_is(f, i, ";"); i++) {
		i = token_bracket(f, i, token_open) ? token_partner(f, i, 1) : i;
		if (i < 0 || token_bracket(f, i + 1, token_close))
			return -1;
	}
	return i < f->n ? i + 1 : -1;
}

/* Does what stands at i belong to a loop that begins behind `from`? */
static bool inner(const Fold *f, int from, int i)
{
	for (int k = from; k < i; k++)
		if ((token_is(f, k, "for") || token_is(f, k, "while")) && statement_end(f, k) > i)
			return true;
	return false;
}

/* Does something from `from` to `to` change the variable, declare another of its name, or leave the loop? */
static bool changed(const Fold *f, int from, int to, const char *name)
{
	for (int i = from; i < to; i++)
		if ((token_is(f, i, "continue") || token_is(f, i, "break")) && !inner(f, from, i))
			return true;
		else if (token_is(f, i, name) &&
			 (token_in(f, i + 1, writes) || token_is(f, i - 1, "++") || token_is(f, i - 1, "--") ||
				 token_is(f, i - 1, "&") || token_is(f, i - 1, ".") || token_is(f, i - 1, "->")))
			return true;
	return false;
}

/* Does the block from `from` to `to` declare what has a name outside of it? */
static bool collides(const Fold *f, int from, int to)
{
	for (int i = from + 1; i < to; i++) {
		if (f->t[i].kind != TOKEN_WORD || !(token_is(f, i + 1, "=") || token_is(f, i + 1, "[") ||
							  token_is(f, i + 1, ",") || token_is(f, i + 1, ";")))
			continue;
		const bool declared =
			f->t[i - 1].kind == TOKEN_WORD || token_is(f, i - 1, "*") || token_is(f, i - 1, ",");
		const char *name = arena_strn(f->a, f->t[i].s, f->t[i].n);

		for (int k = 0; declared && k < f->n; k++)
			if ((k < from || k > to) && token_is(f, k, name) && f->t[i - 1].kind == TOKEN_WORD)
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

	*lone = t && ((t->kind == TOKEN_OPAQUE && *t->s == '#') || token_is(f, i - 1, "PD_UNROLL"));
	return *lone && *t->s == '#' && strncmp(t->s, "#pragma omp simd", 16) && strncmp(t->s, "#pragma unroll", 14);
}

/* The body of the loop at i that has one turn, and the number that its variable is; -1: it is no such loop. */
static int turn_body(const Fold *f, int i, long *from)
{
	long to, step = 1;

	if (!token_is(f, i, "for") || !token_in(f, i + 2, int_types) || !token_is(f, i + 4, "=") ||
		!token_int(f, i + 5, from) || !token_is(f, i + 6, ";") || !token_is(f, i + 8, "<") ||
		!token_int(f, i + 9, &to) || !token_is(f, i + 10, ";"))
		return -1;
	const bool single = token_is(f, i + 12, "++") && token_is(f, i + 13, ")");

	if (!single && (!token_is(f, i + 12, "+=") || !token_int(f, i + 13, &step) || !token_is(f, i + 14, ")")))
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
	const bool block = token_is(f, body, "{"), alone = token_in(f, i - lone - 1, in_block);
	const bool kept = block && alone && collides(f, body, end - 1);

	if (changed(f, body, end, name))
		return false;
	for (int k = body; k < end; k++)
		if (token_is(f, k, name))
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
		tokens_drop(f, end - 1, 1);
		tokens_drop(f, body, 1);
	}
	tokens_drop(f, i - lone, body - i + lone);
	return true;
}

/* ---- the head of a function ---- */

static void join_head(Fold *f)
{
	int end = 0;

	while (end < f->n && !token_is(f, end, "{"))
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
			t->ngap = token_is(f, i, ",") || token_is(f, i, ")") || token_is(f, i - 1, "(") ? 0 : 1;
		}
		size_t next = t->ngap + t->n;
		for (int k = i + 1; k < end && !token_is(f, k, ",") && token_is(f, i - 1, ","); k++)
			next += f->t[k].ngap ? 1 + f->t[k].n : f->t[k].n;
		if (token_is(f, i - 1, ",") && column + next > 110) {
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
		if (by_one(f, i) || to_zero(f, i) || plus_zero(f, i) || compared(f, i) || chosen(f, i) ||
			fold_joined(f, i) || fold_decided(f, i) || bare(f, i) || (loops && one_turn(f, i)))
			return true;
	return false;
}

static void fold_function(Arena *a, Buf *out, const char *text)
{
	Fold f = { .a = a };

	split(&f, text);
	join_head(&f);
	const bool loops = !strstr(text, "collapse("); /* of which each counts */
	while (fold_once(&f, loops))
		;
	for (int i = 0; i < f.n; i++) {
		buf_add(out, f.t[i].gap, f.t[i].ngap);
		buf_add(out, f.t[i].s, f.t[i].n);
	}
}

/* Behind the line that ends a function or opens a namespace: what names mean is looked up in one function alone. */
static const char *function_end(const char *s)
{
	for (const char *line = s; *line; line += strspn(line, "\n")) {
		const bool last = *line == '}' || !strncmp(line, "namespace", 9);
		line += strcspn(line, "\n");
		if (last)
			return line + (*line == '\n');
	}
	return s + strlen(s);
}

void fold_constants(Buf *text)
{
	Arena *a = arena_new();
	const char *s = arena_str(a, buf_str(text));

	buf_clear(text);
	while (*s) {
		const char *end = function_end(s);
		fold_function(a, text, arena_strn(a, s, (size_t)(end - s)));
		s = end;
	}
	arena_free(a);
}
