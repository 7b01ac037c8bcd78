/* Settings that are one of a few words: an enum each, and the words, of settings.def. */
#ifndef PDCC_SETTINGS_H
#define PDCC_SETTINGS_H

#define SET(type) typedef enum type {
#define WORD(value, word) value,
#define END(type) \
	} \
	type;
#include "ir/settings.def"

/* The sets by name: SET_OF_Comm ... */
typedef enum SettingSet {
#define SET(type) SET_OF_##type,
#define WORD(value, word)
#define END(type)
#include "ir/settings.def"
	SETTING_SETS
} SettingSet;

typedef struct SettingWords {
	const char *const *word; /* what may be said */
	int n, first;            /* word[0] is the enumerator `first` */
} SettingWords;

SettingWords setting_words(SettingSet set);
const char *setting_word(SettingSet set, int value); /* NULL: nothing said */
int setting_value(SettingSet set, const char *word); /* -1: none of them */

#endif
