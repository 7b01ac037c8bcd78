/* The words in the schemas of cluster.yaml and train.yaml: what frontend/settings/NAME.schema.json leaves open. A list
 * ["@LossKind@"] is one of the words of that set of ir/settings.def, @AmpKind|@ its words as a pattern, and @SCHEDULES@,
 * @SCHEDULE_PATTERN@ those of --schedule. */
#include "schema.h"
#include <string.h>
#include "ir/ir.h"
#include "ir/settings.h"

/* Words of --schedule as a schema has them: those that are all there is to say, or patterns of those with a parameter. */
static const char *schedule_words(Arena *a, bool patterns)
{
	const char *text = patterns ? "" : "auto";

	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++) {
		const ScheduleRow *r = &schedule_table[k];
		const bool alone = r->param == PARAM_NONE || r->param == PARAM_POLICY || r->param == PARAM_OPTIONAL;
		const bool more = r->param == PARAM_COUNT || r->param == PARAM_FILE || r->param == PARAM_OPTIONAL;
		if (patterns && more)
			text = arena_printf(a, "%s%s%s:%s", text, *text ? "|" : "", r->name,
				r->param == PARAM_FILE ? ".+" : "[1-9][0-9]*");
		if (!patterns && alone)
			text = arena_printf(a, "%s\", \"%s", text, r->name);
	}
	return text;
}

/* What a hole stands for, its n letters without the @ at both ends. */
static const char *hole(Arena *a, const char *name, size_t n)
{
	const bool pattern = n && name[n - 1] == '|';
	const SettingSet set = setting_set(name, n - pattern);

	if (n == 9 && memcmp(name, "SCHEDULES", n) == 0)
		return schedule_words(a, false);
	if (n == 16 && memcmp(name, "SCHEDULE_PATTERN", n) == 0)
		return schedule_words(a, true);
	if (set == SETTING_SETS)
		bug("a schema names the set %.*s, which ir/settings.def has not", (int)n, name);
	return setting_list(a, set, pattern ? "|" : "\", \"");
}

const char *schema_filled(Arena *a, const char *text)
{
	const char *done = "";

	for (;;) {
		const char *at = strchr(text, '@'), *name = at ? at + 1 : text;
		const size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_|");
		const bool is_hole = at && name[n] == '@' && n;
		if (!at)
			return arena_printf(a, "%s%s", done, text);
		done = arena_printf(
			a, "%s%.*s%s", done, (int)(at - text) + !is_hole, text, is_hole ? hole(a, name, n) : "");
		text = is_hole ? name + n + 1 : name;
	}
}
