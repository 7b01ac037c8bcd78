/* The words of settings.def. */
#include "ir/settings.h"
#include <string.h>

#define SET(type) static const char *const of_##type[] = {
#define WORD(value, word, help) [value] = word,
#define END(type) \
	} \
	;
#include "ir/settings.def"

#define SET(type) static const char *const help_of_##type[] = {
#define WORD(value, word, help) [value] = help,
#define END(type) \
	} \
	;
#include "ir/settings.def"

static const struct {
	const char *type;
	const char *const *word, *const *help;
	int n;
} table[SETTING_SETS] = {
#define SET(type) [SET_OF_##type] = { #type, of_##type, help_of_##type, (int)(sizeof of_##type / sizeof *of_##type) },
#define WORD(value, word, help)
#define END(type)
#include "ir/settings.def"
};

SettingWords setting_words(SettingSet set)
{
	const int first = !table[set].word[0];

	return (SettingWords){ table[set].word + first, table[set].help + first, table[set].n - first, first };
}

SettingSet setting_set(const char *type, size_t n)
{
	for (SettingSet s = 0; s < SETTING_SETS; s++)
		if (strlen(table[s].type) == n && memcmp(table[s].type, type, n) == 0)
			return s;
	return SETTING_SETS;
}

const char *setting_word(SettingSet set, int value) { return table[set].word[value]; }

int setting_value(SettingSet set, const char *word)
{
	const SettingWords w = setting_words(set);

	for (int i = 0; i < w.n; i++)
		if (strcmp(w.word[i], word) == 0)
			return w.first + i;
	return -1;
}

const char *setting_list(Arena *a, SettingSet set, const char *between)
{
	const SettingWords w = setting_words(set);
	const char *text = w.word[0];

	for (int i = 1; i < w.n; i++)
		text = arena_printf(a, "%s%s%s", text, between, w.word[i]);
	return text;
}
