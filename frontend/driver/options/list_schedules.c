/* pdcc --list-schedules: the table of schedules (ir/schedules.def), a line each, columns apart by two blanks or more. */
#include "ir/schedule_kind.h"
#include "choices.h"

static const char *flow_of(const ScheduleRow *r)
{
	return r->param == PARAM_FLAG    ? "a flag of its own"
	       : !(r->flow & FLOW_ASYNC) ? "flushed"
	       : r->flow & FLOW_EACH     ? "a minibatch a step"
	                                 : "asynchronous";
}

static const char *place_of(const ScheduleRow *r)
{
	static const char *const word[] = { [PLACED_OWN] = "own devices",
		[PLACED_CYCLE] = "in turn",
		[PLACED_VEE] = "down and up",
		[PLACED_LISTED] = "as listed" };

	return word[r->place];
}

static const char *backward_of(const ScheduleRow *r)
{
	static const char *const word[] = {
		[BACKWARD_WHOLE] = "B", [BACKWARD_PARTS] = "B W", [BACKWARD_LISTED] = "as listed"
	};

	return word[r->backward];
}

static const char *flight_of(const ScheduleRow *r)
{
	static const char *const word[] = { [FLIGHT_NOAM] = "NOAM",
		[FLIGHT_WARMUP] = "K_i",
		[FLIGHT_ALL] = "all",
		[FLIGHT_PLAYED] = "what fits",
		[FLIGHT_STAGES] = "S",
		[FLIGHT_LATER] = "S - s",
		[FLIGHT_GROUPS] = "groups",
		[FLIGHT_ONE] = "1",
		[FLIGHT_BOUND] = "N",
		[FLIGHT_LISTED] = "as listed" };

	return word[r->flight];
}

void list_schedules(FILE *f)
{
	fprintf(f, "%-20s%-20s%-9s%-14s%-11s%-11s%-6s%s\n", "schedule", "flow", "stages", "placement", "backward",
		"in flight", "auto", "from");
	for (ScheduleKind k = SCHEDULE_PLAIN; k < SCHEDULES; k++) {
		const ScheduleRow *r = &schedule_table[k];
		const char stages[] = { (char)('0' + r->chunks), 0 };
		fprintf(f, "%-20s%-20s%-9s%-14s%-11s%-11s%-6s%s\n", r->word, flow_of(r), r->chunks ? stages : r->letter,
			place_of(r), backward_of(r), flight_of(r), r->first ? "yes" : "no", r->paper);
	}
}
