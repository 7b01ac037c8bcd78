/* Conditions that constants decide; fold_tokens.h. */
#include "fold_tokens.h"

bool fold_joined(Fold *f, int i)
{
	long v;

	if (i + 2 >= f->n || !token_int(f, i, &v) || !f->t[i].result)
		return false;
	if (token_is(f, i - 1, "(") && token_is(f, i + 1, v ? "&&" : "||")) {
		f->t[i + 2].gap = f->t[i].gap;
		f->t[i + 2].ngap = f->t[i].ngap;
		tokens_drop(f, i, 2);
		return true;
	}
	const int end = token_is(f, i - 1, "(") ? token_partner(f, i - 1, 1) : -1;
	bool alone = token_is(f, i + 1, v ? "||" : "&&");

	for (int k = i + 1; alone && k > 0 && k < end; k++) {
		k = token_bracket(f, k, token_open) ? token_partner(f, k, 1) : k;
		alone = !token_is(f, k, v ? "&&" : "||") && !token_is(f, k, "?") && !token_is(f, k, ",");
	}
	if (alone && end > i + 1) {
		tokens_drop(f, i + 1, end - i - 1);
		return true;
	}
	if (token_is(f, i - 1, v ? "&&" : "||") && token_is(f, i + 1, ")")) {
		tokens_drop(f, i - 1, 2);
		return true;
	}
	return false;
}

bool fold_decided(Fold *f, int i)
{
	static const char *const in_block[] = { "{", "}", ";", NULL };
	long v;

	if (!token_is(f, i, "if") || !token_int(f, i + 2, &v) || !f->t[i + 2].result || !token_is(f, i + 3, ")") ||
		!token_in(f, i - 1, in_block))
		return false;
	const int end = statement_end(f, i + 4), both = statement_end(f, i);

	if (end < 0 || both < 0 || end >= f->n)
		return false;
	const int first = v ? i + 4 : end < both ? end + 1 : end;
	const int last = v ? end : both;

	if (first < last) {
		f->t[first].gap = f->t[i].gap;
		f->t[first].ngap = f->t[i].ngap;
	}
	tokens_drop(f, last, both - last);
	tokens_drop(f, i, first - i);
	return true;
}
