/* One device's program: deviceN.c with its constants, the table of its actions in a step and one loop over it. */
#include <inttypes.h>
#include <string.h>
#include "build.h"

static const struct { const char *name, *call; } act_text[ACT_COUNT] = {
	[ACT_RECV_F] = { "RECV_F", "recv_forward(a->slot, a->mb);" },
	[ACT_F]      = { "F", "forward(a->slot, a->mb);" },
	[ACT_SEND_F] = { "SEND_F", "send_forward(a->slot, a->mb);" },
	[ACT_RECV_B] = { "RECV_B", "recv_backward(a->slot, a->mb);" },
	[ACT_B]      = { "B", "backward(a->slot, a->mb);" },
	[ACT_SEND_B] = { "SEND_B", "send_backward(a->slot, a->mb);" },
	[ACT_SYNC]   = { "SYNC", "sync();" },
	[ACT_UPDATE] = { "UPDATE", "update();" },
};

static bool has(const DeviceSchedule *s, ActKind k)
{
	for (int i = 0; i < s->n; i++)
		if (s->act[i].kind == k)
			return true;
	return false;
}

/* A loss without training needs the forwards alone. */
static bool trains(ActKind k)
{
	return k == ACT_RECV_B || k == ACT_B || k == ACT_SEND_B || k == ACT_SYNC || k == ACT_UPDATE;
}

static void write_actions(Build *b, Cw *w, const DeviceSchedule *s)
{
	Arena *a = b->a;
	const char *names = "";
	CwItems items = { .w = w };

	for (int k = 0; k < ACT_COUNT; k++)         /* forwards before TRAINS */
		if (has(s, (ActKind)k) && !trains((ActKind)k))
			names = arena_printf(a, "%s%s, ", names, act_text[k].name);
	for (int k = 0, first = 1; k < ACT_COUNT; k++)
		if (has(s, (ActKind)k) && trains((ActKind)k)) {
			names = arena_printf(a, "%s%s%s", names, first ? "" : ", ", act_text[k].name);
			first = 0;
		}
	cw_blank(w);
	cw_comment(w, "A step: what is done, in which slot, with which microbatch. Forwards come first in the list of kinds: "
		"they alone are done where nothing is trained.");
	cw_line(w, "enum { %s };", names);
	cw_open(w, "static const struct action { short kind, slot; int mb; } actions[] =");
	for (int i = 0; i < s->n; i++)
		cw_item(&items, "{ %s, %d, %d }", act_text[s->act[i].kind].name, s->act[i].slot,
			s->act[i].mb < 0 ? 0 : s->act[i].mb);
	cw_items_end(&items);
	cw_close(w, ";");
}

static void write_step(Cw *w, const DeviceSchedule *s)
{
	const char *first = NULL;

	for (int k = 0; k < ACT_COUNT; k++)
		if (!first && has(s, (ActKind)k) && trains((ActKind)k))
			first = act_text[k].name;
	cw_blank(w);
	cw_func(w, "static void step(bool train)");
	cw_line(w, "const struct action *end = actions + sizeof actions / sizeof *actions;");
	cw_blank(w);
	cw_open(w, "for (const struct action *a = actions; a < end; a++)");
	if (first) {
		cw_line(w, "if (!train && a->kind >= %s)", first);
		cw_line(w, "\tcontinue;");
	}
	cw_open(w, "switch (a->kind)");
	for (int k = 0; k < ACT_COUNT; k++) {
		if (!has(s, (ActKind)k))
			continue;
		cw_label(w, "case %s", act_text[k].name);
		if (k == ACT_UPDATE)
			cw_line(w, "pd_totals();");
		cw_line(w, "%s", act_text[k].call);
		cw_line(w, "break;");
	}
	cw_end(w);
	cw_end(w);
	if (!first)
		cw_line(w, "(void)train;");
	cw_end(w);
}

static void write_mine(Cw *w, const DeviceSchedule *s)
{
	CwItems items = { .w = w };

	cw_blank(w);
	cw_comment(w, "its microbatches of a step, in the order in which they are done");
	cw_open(w, "static const int mine[] =");
	for (int i = 0; i < s->n; i++)
		if (s->act[i].kind == ACT_F)
			cw_item(&items, "%d", s->act[i].mb);
	if (!has(s, ACT_F))
		cw_item(&items, "0");
	cw_items_end(&items);
	cw_close(w, ";");
}

static void write_rate(const Build *b, Cw *w, const Rate *r)
{
	const double lr = opt_get(&b->t->opt, OPT_LR);

	cw_line(w, ".rate = { .kind = %d, .warmup = %" PRId64 ", .every = %" PRId64 ", .steps = %" PRId64
		", .gamma = %.17g, .last = %.17g },", r->kind, r->warmup, r->every, r->steps,
		r->gamma, lr > 0 ? r->min / lr : 0);
}

/* Parameters whose norm is limited, of all stages; 0: none is. */
static int squares_of(const Module *m)
{
	for (int t = 0; t < m->nstage; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_ClipNorm)
				return (int)attr_int(n, "of");
	return 0;
}

static void write_program(Build *b, Cw *w, int rank)
{
	const Module *m = b->m;
	const int t = stage_of_rank(b, rank), replica = rank - b->first_rank[t];
	const Stage *s = m->stage[t];
	const char *base = m->file ? strrchr(m->file, '/') : NULL;
	const Rate *rate = &b->t->opt.rate;

	cw_blank(w);
	cw_open(w, "static const pd_program program =");
	cw_line(w, ".abi = PD_ABI, .model = %s, .plan = \"%s\", .schedule = \"%s\",",
		quoted(b->a, base ? base + 1 : m->file ? m->file : m->name), plan_text(b), m->schedule->name);
	cw_line(w, ".hash = \"%s\", .model_hash = \"%s\", .optimizer = \"%s\",", b->hash, b->model_hash,
		opt_kind_name[opt_kind(&b->t->opt)]);
	cw_line(w, ".rank = %d, .world = %d, .stage = %d, .stages = %d, .replica = %d, .replicas = %d,", rank,
		m->schedule->ndevice, t, m->nstage, replica, s->replicas);
	cw_line(w, ".threads = %d, .reproducible = %s, .shuffle = %s, .seed = %" PRIu64 ",", threads_of(b, rank),
		b->t->reproducible ? "true" : "false", b->t->shuffle ? "true" : "false", b->t->seed);
	cw_line(w, ".micro = %" PRId64 ", .microbatches = %" PRId64 ", .channels = %d, .slots = %d, .arena = %" PRId64 ",",
		m->batch, m->microbatches, b->channels, s->inflight, s->arena);
	cw_line(w, ".nparams = PARAMS, .params = stage_params, .ninputs = INPUTS, .inputs = stage_inputs,");
	if (rate_varies(rate))
		write_rate(b, w, rate);
	if (squares_of(m))
		cw_line(w, ".squares = %d,", squares_of(m));
	if (b->t->ckpt_dir)
		cw_line(w, ".ckpt = { .dir = %s, .every = %" PRId64 ", .keep = %" PRId64 " },", quoted(b->a, b->t->ckpt_dir),
			b->t->ckpt_every, b->t->ckpt_keep);
	cw_line(w, ".weights = \"weights/stage%d.safetensors\", .steps = %" PRId64 ", .timeout = %.17g,", t,
		b->t->steps > 0 ? b->t->steps : 10, b->c && b->c->timeout > 0 ? b->c->timeout : 60.0);
	cw_line(w, ".init = start, .step = step, .notes = \"\",");
	cw_close(w, ";");
}

bool emit_device(Build *b, int rank)
{
	const Module *m = b->m;
	const int t = stage_of_rank(b, rank), replica = rank - b->first_rank[t];
	const DeviceSchedule *s = &m->schedule->dev[rank];
	const int d = m->stage[t]->device[replica];
	Buf text = { 0 };
	Cw w = { .out = &text };
	int grains = 0;

	for (int i = 0; i < s->n; i++)
		grains += s->act[i].kind == ACT_F;
	cw_comment(&w, "%s, device %d of %d (%s): replica %d of %d of stage %d. Written by pdcc %s, edits are lost.", m->name,
		rank, m->schedule->ndevice, b->c && d >= 0 && d < b->c->ndevice && b->c->device[d].name ? b->c->device[d].name :
		"any", replica, m->stage[t]->replicas, t, PDCC_VERSION);
	cw_line(&w, "#include \"stage%d/stage%d.h\"", t, t);
	write_mine(&w, s);
	write_actions(b, &w, s);
	write_step(&w, s);
	cw_blank(&w);
	cw_func(&w, "static void start(char *arena)");
	cw_line(&w, "init(arena, %d, mine, %d);", replica, grains);
	cw_end(&w);
	write_program(b, &w, rank);
	cw_blank(&w);
	cw_func(&w, "int main(int argc, char **argv)");
	cw_line(&w, "return pd_main(&program, argc, argv);");
	cw_end(&w);
	return build_text(b, arena_printf(b->a, "device%d.c", rank), &text);
}
