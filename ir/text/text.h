/* Private to this folder: the words of the text form. */
#ifndef PDCC_IR_TEXT_H
#define PDCC_IR_TEXT_H

#include <stdbool.h>
#include "ir/base/buf.h"
#include "ir/schedule.h"

extern const char *const phase_name[3], *const region_name[REGION_COUNT],
						*const param_kind_name[3],
							*const sync_name[SYNC_KINDS],
								*const action_name[ACT_COUNT],
									*const version_rule_name[VERSION_RULES];
extern const char *const memory_name[3], *const versions_name[3]; /* numbers of a stage */

bool text_bare(unsigned char c); /* may stand in a name without quotes */
void text_quoted(Buf *b, const char *s);
const char *text_facts(Arena *a, unsigned has); /* Module.has as words */
void text_real(Buf *b, double x);               /* the fewest digits that read back as x */

#endif
