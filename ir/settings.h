/* Settings that are one of a few words: an enum each, and the words, of settings.def. */
#ifndef PDCC_SETTINGS_H
#define PDCC_SETTINGS_H

#include <stddef.h>
#include "ir/base/arena.h"

#define SET(type) typedef enum type {
#define WORD(value, word, help) value,
#define END(type) \
	} \
	type;
#include "ir/settings.def"

/* The sets by name: SET_OF_Comm ... */
typedef enum SettingSet {
#define SET(type) SET_OF_##type,
#define WORD(value, word, help)
#define END(type)
#include "ir/settings.def"
	SETTING_SETS
} SettingSet;

typedef struct SettingWords {
	const char *const *word; /* what may be said */
	const char *const *help; /* what --help says of each; "": nothing */
	int n, first;            /* word[0] is the enumerator `first` */
} SettingWords;

SettingWords setting_words(SettingSet set);
SettingSet setting_set(const char *type, size_t n);  /* "LossKind", of n letters; SETTING_SETS: there is none */
const char *setting_word(SettingSet set, int value); /* NULL: nothing said */
int setting_value(SettingSet set, const char *word); /* -1: none of them */
const char *setting_list(Arena *a, SettingSet set, const char *between);

#endif
