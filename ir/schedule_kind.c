/* The table of schedules, and the words that name its rows. */
#include "schedule_kind.h"
#include <stdlib.h>
#include <string.h>
#include "ir/base/buf.h"

#define WORD_NONE(name, letter) name
#define WORD_COUNT(name, letter) name ":" letter
#define WORD_OPTIONAL(name, letter) name "[:" letter "]"
#define WORD_FILE(name, letter) name ":" letter
#define WORD_POLICY(name, letter) name
#define WORD_FLAG(name, letter) name

#define LACKS(name, letter, meaning, example) name ":" letter " wants " meaning " for " letter ": " name ":" example
#define LACKS_NONE(...) NULL
#define LACKS_COUNT(...) LACKS(__VA_ARGS__)
#define LACKS_OPTIONAL(...) LACKS(__VA_ARGS__)
#define LACKS_FILE(...) LACKS(__VA_ARGS__)
#define LACKS_POLICY(...) NULL
#define LACKS_FLAG(...) NULL

#define ROW(n, par, let, mean, ex, ch, pl, back, fl, fli, lo, hi, he, pa) \
	{ .name = n, \
		.word = WORD_##par(n, let), \
		.param = PARAM_##par, \
		.letter = let, \
		.lacks = LACKS_##par(n, let, mean, ex), \
		.chunks = ch, \
		.place = PLACED_##pl, \
		.backward = BACKWARD_##back, \
		.flow = fl, \
		.flight = FLIGHT_##fli, \
		.first = lo, \
		.last = hi, \
		.help = he, \
		.paper = pa }

const ScheduleRow schedule_table[SCHEDULES] = {
#define SCHEDULE(kind, n, par, let, mean, ex, ch, pl, back, fl, fli, lo, hi, fill, he, pa) \
	[SCHEDULE_##kind] = ROW(n, par, let, mean, ex, ch, pl, back, fl, fli, lo, hi, he, pa),
#include "schedules.def"
#undef SCHEDULE
};

#define CHOICE_NONE(name, letter) name,
#define CHOICE_COUNT(name, letter) name ":" letter,
#define CHOICE_OPTIONAL(name, letter) name, name ":" letter,
#define CHOICE_FILE(name, letter) name ":" letter,
#define CHOICE_POLICY(name, letter) name,
#define CHOICE_FLAG(name, letter)

const char *const schedule_choices[] = {
	"auto",
#define SCHEDULE(kind, n, par, let, ...) CHOICE_##par(n, let)
#include "schedules.def"
#undef SCHEDULE
};
const int schedule_nchoice = sizeof schedule_choices / sizeof *schedule_choices;

#define HELP_NONE(word, help) "; " word ": " help
#define HELP_COUNT(word, help) "; " word ": " help
#define HELP_OPTIONAL(word, help) "; " word ": " help
#define HELP_FILE(word, help) "; " word ": " help
#define HELP_POLICY(word, help) "; " word ": " help
#define HELP_FLAG(word, help)

const char schedule_help[] =
	"order of work in a step (--list-schedules); the first of these where nothing is said; auto: the fastest that is not asynchronous, by simulation"
#define SCHEDULE(kind, n, par, let, mean, ex, ch, pl, back, fl, fli, lo, hi, fill, he, pa) \
	HELP_##par(WORD_##par(n, let), he)
#include "schedules.def"
#undef SCHEDULE
	;

/* ---- words ---- */

/* ":2" with 1 <= n <= 1024. */
static bool counted(const char *rest, int *n)
{
	char *end;

	if (*rest != ':' || rest[1] < '1' || rest[1] > '9')
		return false;
	const long v = strtol(rest + 1, &end, 10);
	*n = v <= 1024 ? (int)v : 0;
	return *n && !*end;
}

/* What stands behind the name of row k. */
static bool parse_rest(ScheduleKind k, const char *rest, ScheduleSpec *to, const char **lacks)
{
	const ScheduleRow *row = &schedule_table[k];

	*to = (ScheduleSpec){ .kind = k };
	if (row->lacks && *rest == ':' && (!strcmp(rest + 1, row->letter) || !rest[1])) {
		*lacks = row->lacks;
		return false;
	}
	switch (row->param) {
	case PARAM_NONE: return !*rest;
	case PARAM_COUNT: return counted(rest, &to->n);
	case PARAM_OPTIONAL: return !*rest || counted(rest, &to->n);
	case PARAM_FILE: to->file = rest + 1; return *rest == ':';
	case PARAM_POLICY:
		to->n = *rest ? rest[1] : 0;
		return !*rest || (*rest == '-' && rest[1] && strchr(row->letter, rest[1]) && !rest[2]);
	case PARAM_FLAG: return false;
	}
	return false;
}

bool schedule_parse(const char *word, ScheduleSpec *to, const char **lacks)
{
	*lacks = NULL;
	*to = (ScheduleSpec){ .kind = SCHEDULE_AUTO };
	if (!strcmp(word, "auto"))
		return true;
	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES && !*lacks; k++) {
		const size_t n = strlen(schedule_table[k].name);
		if (!strncmp(word, schedule_table[k].name, n) && parse_rest(k, word + n, to, lacks))
			return true;
	}
	return false;
}

bool schedule_parse_name(const char *name, ScheduleSpec *to)
{
	const char *lacks;

	if (schedule_parse(name, to, &lacks))
		return true;
	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++)
		if (!strcmp(name, schedule_table[k].name)) {
			*to = (ScheduleSpec){ .kind = k };
			return true;
		}
	return false;
}

const char *schedule_str(Arena *a, ScheduleSpec s)
{
	if (s.kind == SCHEDULE_AUTO)
		return "auto";
	const ScheduleRow *row = schedule_row(s);
	switch (row->param) {
	case PARAM_COUNT: return arena_printf(a, "%s:%d", row->name, s.n);
	case PARAM_OPTIONAL: return s.n ? arena_printf(a, "%s:%d", row->name, s.n) : row->name;
	case PARAM_FILE: return arena_printf(a, "%s:%s", row->name, s.file);
	case PARAM_POLICY: return s.n ? arena_printf(a, "%s-%c", row->name, s.n) : row->name;
	default: return row->name;
	}
}

const char *schedule_list(Arena *a, bool (*fits)(const ScheduleRow *))
{
	Buf b = { 0 };
	const char *last = NULL;

	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++) {
		if (schedule_table[k].param == PARAM_FLAG || !fits(&schedule_table[k]))
			continue;
		if (last)
			buf_printf(&b, "%s%s", b.n ? ", " : "", last);
		last = schedule_table[k].word;
	}
	if (last)
		buf_printf(&b, "%s%s", b.n ? " or " : "", last);
	const char *text = arena_str(a, buf_str(&b));
	buf_free(&b);
	return text;
}

int schedule_chunks(ScheduleSpec s)
{
	const int n = schedule_row(s)->chunks;

	return n ? n : s.n;
}

int schedule_chunks_of(ScheduleSpec s, int nstage) { return nstage == 1 ? 1 : schedule_chunks(s); }
