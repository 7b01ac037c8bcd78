/* The text form, inwards: stages of a plan and the schedule. */
#include <string.h>
#include "parse.h"

/* ---- stages ---- */

static void long_list(Parser *s, int n, int64_t *to)
{
	for (int i = 0; i < n; i++) {
		if (i)
			lex_want(s, ",");
		to[i] = lex_int(s, INT64_MIN, INT64_MAX);
	}
}

/* "params=0 grads=64": numbers by name, in any order; those that are not named are 0. */
static void labelled(Parser *s, int n, const char *const *name, int64_t *to)
{
	int i;

	memset(to, 0, (size_t)n * sizeof *to);
	do {
		for (i = 0; i < n; i++) {
			const size_t len = strlen(name[i]);
			if (!lex_at(s, name[i]) || s->p[len] != '=')
				continue;
			s->p += len + 1;
			to[i] = lex_int(s, INT64_MIN, INT64_MAX);
			break;
		}
	} while (i < n);
}

void parse_stage(Parser *s)
{
	Stage *st = NEW(s->a, Stage);
	int cap = 0;

	st->id = (int)lex_int(s, 0, MOST_DEVICES);
	if (st->id != s->m->nstage)
		fault(s, "stage %d is expected here", s->m->nstage);
	lex_want(s, "on");
	do
		PUSH(s->a, st->device, st->replicas, cap) = (int)lex_int(s, 0, MOST_DEVICES);
	while (lex_eat(s, ","));
	st->server = lex_eat(s, "server");
	for (int i = 0; i < s->m->nstage; i++)
		st->rank += s->m->stage[i]->replicas;
	if (lex_eat(s, "rank"))
		st->rank = (int)lex_int(s, 0, MOST_DEVICES);
	lex_want(s, "inflight");
	st->inflight = st->entries = (int)lex_int(s, 0, 1 << 20);
	if (lex_eat(s, "entries"))
		st->entries = (int)lex_int(s, 0, 1 << 20);
	Stage **all = NEWN(s->a, Stage *, s->m->nstage + 1);
	for (int i = 0; i < s->m->nstage; i++)
		all[i] = s->m->stage[i];
	all[s->m->nstage++] = st;
	s->m->stage = all;
	lex_want(s, "{");
	while (!lex_eat(s, "}")) {
		if (lex_eat(s, "params_at")) {
			st->param_at = NEWN(s->a, int64_t, st->nparam);
			long_list(s, st->nparam, st->param_at);
		} else if (lex_eat(s, "params")) {
			do
				PUSH(s->a, st->param, st->nparam, st->capparam) = parse_value(s, NULL);
			while (lex_eat(s, ","));
		} else if (lex_eat(s, "regions_at")) {
			labelled(s, REGION_COUNT, region_name, st->at);
		} else if (lex_eat(s, "regions_bytes")) {
			labelled(s, REGION_COUNT, region_name, st->bytes);
		} else if (lex_eat(s, "memory")) {
			int64_t v[3];

			labelled(s, 3, memory_name, v);
			st->slot_bytes = v[0];
			st->entry_bytes = v[1];
			st->arena = v[2];
		} else if (lex_eat(s, "versions")) {
			int64_t v[3];

			labelled(s, 3, versions_name, v);
			st->versions = (int)v[0];
			st->version_bytes = v[1];
			st->versions_at = v[2];
		} else if (lex_eat(s, "forward")) {
			if (st->forward)
				fault(s, "a second forward");
			st->forward = stage_graph_new(s->m, st, "forward");
			parse_graph(s, st->forward, PHASE_FWD);
		} else if (lex_eat(s, "backward")) {
			if (st->backward)
				fault(s, "a second backward");
			st->backward = stage_graph_new(s->m, st, "backward");
			parse_graph(s, st->backward, PHASE_BWD);
		} else if (lex_eat(s, "weight")) {
			if (st->weight)
				fault(s, "a second weight");
			st->weight = stage_graph_new(s->m, st, "weight");
			parse_graph(s, st->weight, PHASE_BWD);
		} else if (lex_eat(s, "update")) {
			if (st->update)
				fault(s, "a second update");
			st->update = stage_graph_new(s->m, st, "update");
			parse_graph(s, st->update, PHASE_UPDATE);
		} else if (lex_eat(s, "keep")) {
			Graph *g = st->forward ? st->forward : st->backward;

			do
				PUSH(s->a, st->keep, st->nkeep, st->capkeep) = parse_value(s, g);
			while (lex_eat(s, ","));
		} else {
			fault(s, "params, forward, backward, weight, update, keep or } is expected here");
		}
	}
}

/* ---- the schedule ---- */

static int *int_list(Parser *s, const char *name, int n, int hi)
{
	int *v = NEWN(s->a, int, n);

	lex_want(s, name);
	for (int i = 0; i < n; i++) {
		if (i)
			lex_want(s, ",");
		v[i] = (int)lex_int(s, 0, hi);
	}
	return v;
}

static ActKind action_kind(Parser *s)
{
	int best = -1;

	for (int i = 0; i < ACT_COUNT; i++)
		if (strncmp(s->p, action_name[i], strlen(action_name[i])) == 0 &&
			(best < 0 || strlen(action_name[i]) > strlen(action_name[best])))
			best = i;
	if (best < 0)
		fault(s, "an action is expected here");
	s->p += strlen(action_name[best]);
	return (ActKind)best;
}

/* 0SEND_F3@1+2~5 */
static Action action(Parser *s)
{
	Action x = { .mb = -1 };

	x.stage = (int)lex_int(s, 0, MOST_DEVICES);
	x.kind = action_kind(s);
	if (*s->p >= '0' && *s->p <= '9')
		x.mb = (int)lex_int(s, 0, 1 << 24);
	if (*s->p == '@') {
		s->p++;
		x.slot = (int)lex_int(s, 0, 1 << 20);
	}
	if (*s->p == '+') {
		s->p++;
		x.entry = (int)lex_int(s, 0, 1 << 20);
	}
	if (*s->p == '~') {
		s->p++;
		x.version = (int)lex_int(s, 0, 1 << 20);
	}
	return x;
}

/* B0@1~3: the second of its device's microbatches of a step, three steps ago */
static Turn turn(Parser *s)
{
	Turn t = { .kind = action_kind(s) };

	t.mb = (int)lex_int(s, 0, 1 << 24);
	if (*s->p == '@') {
		s->p++;
		t.nth = (int)lex_int(s, 0, 1 << 20);
	}
	if (*s->p == '~') {
		s->p++;
		t.lag = (int)lex_int(s, -MOST_DEVICES, 1 << 20);
	}
	if (*s->p == '!') {
		s->p++;
		t.once = true;
	}
	return t;
}

static void async(Parser *s, Schedule *x)
{
	const char *rule = lex_word(s);
	int r = VERSION_STASH;

	while (r < VERSION_RULES && strcmp(version_rule_name[r], rule) != 0)
		r++;
	if (r == VERSION_RULES)
		fault(s, "there is no rule of versions '%s'", rule);
	x->async = true;
	x->rule = (VersionRule)r;
	x->robin = lex_eat(s, "robin");
	lex_want(s, "per_step");
	x->per_step = (int)lex_int(s, 1, 1 << 16);
	lex_want(s, "late");
	x->late = (int)lex_int(s, 0, 1 << 16);
	lex_want(s, "lag");
	x->lag = (int)lex_int(s, 0, 1 << 20);
	x->depth = int_list(s, "depth", x->nstage, 1 << 20);
	x->versions = int_list(s, "versions", x->nstage, 1 << 20);
}

void parse_schedule(Parser *s)
{
	Schedule *x = NEW(s->a, Schedule);

	ScheduleSpec asked;
	x->name = lex_word(s);
	if (!schedule_parse_name(x->name, &asked))
		fault(s, "there is no schedule '%s'", x->name);
	x->kind = asked.kind;
	lex_want(s, "stages");
	x->nstage = (int)lex_int(s, 1, 4096);
	lex_want(s, "microbatches");
	x->nmicro = (int)lex_int(s, 1, 1 << 16);
	lex_want(s, "devices");
	x->ndevice = (int)lex_int(s, 1, MOST_DEVICES);
	lex_want(s, "{");
	x->replicas = int_list(s, "replicas", x->nstage, MOST_DEVICES);
	x->inflight = int_list(s, "inflight", x->nstage, 1 << 20);
	x->entries = int_list(s, "entries", x->nstage, 1 << 20);
	if (lex_eat(s, "async"))
		async(s, x);
	x->device = NEWN(s->a, int *, x->nstage);
	x->replica_of = NEWN(s->a, int *, x->nstage);
	for (int i = 0; i < x->nstage; i++)
		x->device[i] = int_list(s, "ranks", x->replicas[i], x->ndevice - 1);
	for (int i = 0; i < x->nstage; i++) {
		x->replica_of[i] = int_list(s, "replica_of", x->nmicro, MOST_DEVICES);
		for (int k = 0; k < x->nmicro; k++)
			if (x->replica_of[i][k] >= x->replicas[i])
				fault(s, "microbatch %d of stage %d belongs to replica %d of %d", k, i,
					x->replica_of[i][k], x->replicas[i]);
	}
	x->dev = NEWN(s->a, DeviceSchedule, x->ndevice);
	for (int r = 0; r < x->ndevice; r++) {
		lex_want(s, "device");
		while (lex_blanks(s), *s->p >= '0' && *s->p <= '9')
			schedule_push(s->a, x, r, action(s));
		if (!x->async)
			continue;
		lex_want(s, "turn");
		DeviceSchedule *d = &x->dev[r];
		while (lex_blanks(s), *s->p >= 'A' && *s->p <= 'Z')
			PUSH(s->a, d->turn, d->nturn, d->capturn) = turn(s);
	}
	lex_want(s, "}");
	s->m->schedule = x;
}
