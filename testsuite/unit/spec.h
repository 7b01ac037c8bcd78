/* A schedule from its word, for tests. */
#ifndef PDCC_TESTSUITE_SPEC_H
#define PDCC_TESTSUITE_SPEC_H

#include "ir/base/diag.h"
#include "ir/schedule_kind.h"

static inline ScheduleSpec spec_of(const char *word)
{
	ScheduleSpec s;
	const char *lacks;

	if (!schedule_parse(word, &s, &lacks))
		bug("there is no schedule '%s'", word);
	return s;
}

#endif
