/* The device's program where nothing is flushed: a table of the actions of a turn, and what goes through it once a step.
 * See ir/schedule.h, struct Turn, and runtime/pd.h, "asynchronous pipelines". */
#include <inttypes.h>
#include "device.h"

/* Forwards first: they alone are done where nothing is trained. */
static const struct {
	ActKind kind;
	const char *name, *call;
} act_text[] = {
	{ ACT_RECV_F, "RECV_F", "recv_forward" },
	{ ACT_F, "F", "forward" },
	{ ACT_SEND_F, "SEND_F", "send_forward" },
	{ ACT_RECV_B, "RECV_B", "recv_backward" },
	{ ACT_B, "B", "backward" },
	{ ACT_SEND_B, "SEND_B", "send_backward" },
	{ ACT_SYNC, "SYNC", "sync" },
	{ ACT_UPDATE, "UPDATE", "update" },
};

enum { KINDS = sizeof act_text / sizeof *act_text, TRAINS = 3 };

static const char *name_of(ActKind k)
{
	int i = 0;

	while (act_text[i].kind != k)
		i++;
	return act_text[i].name;
}

static bool turns_have(const DeviceSchedule *s, ActKind k)
{
	for (int i = 0; i < s->nturn; i++)
		if (s->turn[i].kind == k)
			return true;
	return false;
}

static void write_turns(Build *b, Cw *w, const DeviceSchedule *s, bool rounds)
{
	Arena *a = b->a;
	const char *names = "";
	CwItems items = { .w = w };

	for (int k = 0; k < KINDS; k++)
		if (turns_have(s, act_text[k].kind))
			names = arena_printf(a, "%s%s%s", names, *names ? ", " : "", act_text[k].name);
	cw_blank(w);
	cw_comment(w,
		"A turn: what is done, the microbatch in its step and among this device's, how many steps ago that step was, and "
		"whether only the first turn of a flow does it. What belongs to no step of the flow is left out: so it starts and "
		"drains.");
	cw_line(w, "enum { %s };", names);
	CwItems texts = { .w = w };
	cw_open(w, "static const char *const names[] =");
	for (int k = 0; k < KINDS; k++)
		if (turns_have(s, act_text[k].kind))
			cw_item(&texts, "\"%s\"", act_text[k].name);
	cw_items_end(&texts);
	cw_close(w, ";");
	if (rounds)
		cw_comment(w, "The pipeline runs empty after ROUND turns: an action is of those from..to of them.");
	cw_open(w, "static const struct action { short kind, mb, nth, lag, once%s; } turn[] =",
		rounds ? ", from, to" : "");
	for (int i = 0; i < s->nturn; i++)
		cw_item(&items, "{ %s, %d, %d, %d, %d%s }", name_of(s->turn[i].kind), s->turn[i].mb, s->turn[i].nth,
			s->turn[i].lag, s->turn[i].once,
			rounds ? arena_printf(a, ", %d, %d", s->turn[i].from, s->turn[i].to) : "");
	cw_items_end(&items);
	cw_close(w, ";");
}

typedef struct FlowText {
	int every;   /* one step in so many is this device's */
	bool joined; /* a round's gradients come from several replicas */
	bool rounds; /* the pipeline runs empty from time to time */
	bool norm;   /* a norm is over all stages, and no part of it comes from this one */
	bool enters; /* the stage's functions are told which buffer at the entry */
} FlowText;

static void write_turn_case(Cw *w, int k, const FlowText *x)
{
	cw_label(w, "case %s", act_text[k].name);
	if (act_text[k].kind == ACT_SYNC && x->joined) {
		cw_line(w, "if (!pd_flows(step + REPLICA))");
		cw_line(w, "\tabsent(COPY(step));");
	}
	if (act_text[k].kind == ACT_UPDATE)
		cw_line(w, "pd_update_of(a->lag, EVERY);");
	cw_line(w, "%s(%s);", act_text[k].call,
		act_text[k].kind >= ACT_SYNC ? "COPY(step)"
		: x->enters                  ? "slot, entry, mb"
					     : "slot, mb");
	if (act_text[k].kind == ACT_UPDATE && x->norm)
		cw_line(w, "pd_norm_end();");
	if (act_text[k].kind == ACT_B)
		cw_line(w, "pd_count(mb);");
	cw_line(w, "break;");
}

static void write_turn(Cw *w, const DeviceSchedule *s, const FlowText *x)
{
	int first = TRAINS;

	while (!turns_have(s, act_text[first].kind))
		first++;
	cw_blank(w);
	cw_func(w, "static void step(bool train)");
	cw_line(w, "const int64_t now = pd_flow();");
	cw_line(w, "const struct action *end = turn + sizeof turn / sizeof *turn;");
	if (x->rounds)
		cw_line(w, "const int place = (int)(now / EVERY %% ROUND);");
	cw_blank(w);
	if (x->every > 1) {
		cw_line(w, "if (now %% EVERY != REPLICA)");
		cw_line(w, "\treturn;");
	}
	cw_open(w, "for (const struct action *a = turn; a < end; a++)");
	cw_line(w, "const int64_t step = now - a->lag;");
	cw_line(w, "const int64_t nth = step / EVERY * OWN + a->nth;");
	cw_line(w, "const int slot = (int)(nth %% SLOTS), %smb = a->mb - a->lag * MICROBATCHES;",
		x->enters ? "entry = (int)(nth % ENTRIES), " : "");
	cw_blank(w);
	cw_line(w, "if (!pd_flows(step) || (a->once && now >= EVERY) || (!train && a->kind >= %s))",
		act_text[first].name);
	cw_line(w, "\tcontinue;");
	if (x->rounds) {
		cw_line(w, "if (place < a->from || place > a->to)");
		cw_line(w, "\tcontinue;");
	}
	cw_line(w, "pd_action_of(names[a->kind], a->lag, %s);",
		turns_have(s, ACT_SYNC) ? "a->kind < SYNC ? a->mb : -1" : "a->mb");
	cw_open(w, "switch (a->kind)");
	for (int k = 0; k < KINDS; k++)
		if (turns_have(s, act_text[k].kind))
			write_turn_case(w, k, x);
	cw_end(w);
	cw_end(w);
	cw_end(w);
}

void write_flow(Build *b, Cw *w, int rank)
{
	const Schedule *s = b->m->schedule;
	const DeviceSchedule *d = &s->dev[rank];
	const int stage = d->act[0].stage, replica = rank - s->device[stage][0];
	const bool robin = s->robin, enters = stage_enters(b->m->stage[stage]);
	const int every = robin ? s->replicas[stage] : 1;
	int own = 0;

	for (int i = 0; i < d->nturn; i++)
		own += d->turn[i].kind == ACT_F;
	write_turns(b, w, d, s->round != NULL);
	cw_blank(w);
	cw_comment(w, "One step in EVERY is this device's, with OWN microbatches.");
	cw_line(w, "enum { EVERY = %d, REPLICA = %d, OWN = %d, SLOTS = %d, %sMICROBATCHES = %" PRId64 " };", every,
		replica, own, s->inflight[stage], enters ? arena_printf(b->a, "ENTRIES = %d, ", s->entries[stage]) : "",
		b->m->microbatches);
	if (s->round)
		cw_line(w, "enum { ROUND = %d };", s->round[stage]);
	cw_line(w, "#define COPY(step) (int)((step) %s)",
		robin ? "/ EVERY % SLOTS" : arena_printf(b->a, "%% %d", s->late ? s->late + 1 : 2));
	write_turn(w, d,
		&(FlowText){ .every = every,
			.joined = robin && every > 1,
			.rounds = s->round != NULL,
			.norm = squares_of(b->m) && !stage_has(b->m->stage[stage]->update, OP_ClipNorm),
			.enters = enters });
}

/* Steps until a device is done with the flow's last one. */
static int lag_of(const DeviceSchedule *s)
{
	int lag = 0;

	for (int i = 0; i < s->nturn; i++)
		lag = s->turn[i].lag > lag ? s->turn[i].lag : lag;
	return lag;
}

void write_flow_fields(const Build *b, Cw *w, int rank)
{
	const Schedule *s = b->m->schedule;

	if (s->async)
		cw_line(w, ".flow = %d, .lag = %d, .settle = settle, .sync_steps = %" PRId64 ",", s->lag + 1,
			lag_of(&s->dev[rank]), b->t->plan.warmup_steps);
	if (s->async && b->t->plan.warmup_epochs)
		cw_line(w, ".sync_epochs = %" PRId64 ",", b->t->plan.warmup_epochs);
	if (served_async(b->t))
		cw_line(w, ".flow = 1, .staleness = %" PRId64 ",", b->t->comm.staleness);
}
