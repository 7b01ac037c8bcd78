/* The words of settings.def. */
#include "ir/settings.h"
#include <string.h>

#define SET(type) static const char *const of_##type[] = {
#define WORD(value, word) [value] = word,
#define END(type) \
	} \
	;
#include "ir/settings.def"

static const struct {
	const char *const *word;
	int n;
} table[SETTING_SETS] = {
#define SET(type) [SET_OF_##type] = { of_##type, (int)(sizeof of_##type / sizeof *of_##type) },
#define WORD(value, word)
#define END(type)
#include "ir/settings.def"
};

SettingWords setting_words(SettingSet set)
{
	const int first = !table[set].word[0];

	return (SettingWords){ table[set].word + first, table[set].n - first, first };
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
