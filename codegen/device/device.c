/* One device's program: deviceN.c with its constants, the table of its actions in a step and one loop over it. */
#include <inttypes.h>
#include <string.h>
#include "device.h"

/* The function that does an action: with a slot, a buffer at the entry and a microbatch, or (once per step) without. */
static const struct {
	const char *call;
	bool once;
} act_text[ACT_COUNT] = {
	[ACT_RECV_F] = { "recv_forward", false },
	[ACT_F] = { "forward", false },
	[ACT_SEND_F] = { "send_forward", false },
	[ACT_RECV_B] = { "recv_backward", false },
	[ACT_B] = { "backward", false },
	[ACT_SEND_B] = { "send_backward", false },
	[ACT_W] = { "weight_gradients", false },
	[ACT_SYNC] = { "sync", true },
	[ACT_UPDATE] = { "update", true },
};

static const char *word(const Build *b, ActKind k) { return schedule_word(b->split, k); }

static bool has(const DeviceSchedule *s, ActKind k)
{
	for (int i = 0; i < s->n; i++)
		if (s->act[i].kind == k)
			return true;
	return false;
}

static bool stage_does(const DeviceSchedule *s, int stage, ActKind k)
{
	for (int i = 0; i < s->n; i++)
		if (s->act[i].kind == k && s->act[i].stage == stage)
			return true;
	return false;
}

/* A loss without training needs the forwards alone. */
static bool trains(ActKind k, bool server)
{
	return (k == ACT_SYNC && !server) || k == ACT_RECV_B || k == ACT_B || k == ACT_SEND_B || k == ACT_W ||
	       k == ACT_UPDATE;
}

/* What messages call the kinds of actions. */
static void write_names(const Build *b, Cw *w, const DeviceSchedule *s)
{
	CwItems items = { .w = w };

	cw_open(w, "static const char *const names[] =");
	for (int k = 0; k < ACT_COUNT; k++)
		if (has(s, (ActKind)k))
			cw_item(&items, "[%s] = \"%s\"", word(b, (ActKind)k), word(b, (ActKind)k));
	cw_items_end(&items);
	cw_close(w, ";");
}

static void write_actions(Build *b, Cw *w, const DeviceSchedule *s, bool server)
{
	Arena *a = b->a;
	const char *names = "";
	const bool enters = device_enters(b, s->act[0].stage);
	CwItems items = { .w = w };

	for (int k = 0; k < ACT_COUNT; k++) /* forwards before TRAINS */
		if (has(s, (ActKind)k) && !trains((ActKind)k, server))
			names = arena_printf(a, "%s%s, ", names, word(b, (ActKind)k));
	for (int k = 0, first = 1; k < ACT_COUNT; k++)
		if (has(s, (ActKind)k) && trains((ActKind)k, server)) {
			names = arena_printf(a, "%s%s%s", names, first ? "" : ", ", word(b, (ActKind)k));
			first = 0;
		}
	cw_blank(w);
	cw_comment(w,
		"A step: what is done, %sin which slot, %swith which microbatch. Forwards come first in the list of kinds: "
		"they alone are done where nothing is trained.",
		b->chunks ? "for which stage, " : "", enters ? "with which buffer at the entry, " : "");
	cw_line(w, "enum { %s };", names);
	write_names(b, w, s);
	cw_open(w,
		"static const struct action { short kind, %sslot%s; int mb; } actions[] =", b->chunks ? "stage, " : "",
		enters ? ", entry" : "");
	for (int i = 0; i < s->n; i++) {
		const Action *x = &s->act[i];
		cw_item(&items, "{ %s, %s%d, %s%d }", word(b, x->kind),
			b->chunks ? arena_printf(a, "%d, ", x->stage) : "", x->slot,
			enters ? arena_printf(a, "%d, ", x->entry) : "", x->mb);
	}
	cw_items_end(&items);
	cw_close(w, ";");
}

/* ---- several stages on one device ---- */

int squares_of(const Module *m)
{
	for (int t = 0; t < m->nstage; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_ClipNorm)
				return (int)attr_int(n, "of");
	return 0;
}

/* The rank that joins them. */
static int squares_at(const Build *b)
{
	for (int t = 0; t < b->m->nstage; t++)
		for (const Node *n = b->m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_ClipNorm)
				return b->first_rank[attr_int(n, "at")];
	return 0;
}

/* Tables in pieces whose servers tell squares block by block, as members of the program. */
static const char *parted_text(const Build *b)
{
	const char *text = "";
	int n = 0;
	bool seen;

	for (int64_t i = 0; i < squares_of(b->m); i++, n += seen) {
		int64_t at = INT64_MAX, blocks = 0;
		for (int t = 0; t < b->m->nstage; t++)
			for (const Node *k = b->m->stage[t]->update->first; k; k = k->next)
				if (k->op == OP_SquareSum && square_blocks(k) && attr_int(k, "index") == i) {
					at = attr_int(k, "at") < at ? attr_int(k, "at") : at;
					blocks += square_blocks(k);
				}
		seen = blocks > 0;
		if (seen)
			text = arena_printf(b->a, "%s%s{ %" PRId64 ", %" PRId64 ", %" PRId64 " }", text, n ? ", " : "",
				i, at, blocks);
	}
	return n ? arena_printf(b->a, " .nparted = %d, .parted = (const pd_parted[]){ %s },", n, text) : "";
}

/* What the device does for any of its stages: forward(stage, slot, entry, mb) and so on. */
static void write_chunk_call(const Build *b, Cw *w, const DeviceSchedule *s, int first, ActKind k)
{
	int last = -1;
	bool enters = act_text[k].once || !device_enters(b, first); /* or some function takes `entry` */

	for (int t = first; t >= 0; t = next_chunk(b, t)) {
		last = stage_does(s, t, k) ? t : last;
		enters |= stage_does(s, t, k) && stage_enters(b->m->stage[t]);
	}
	if (last < 0)
		return;
	cw_blank(w);
	cw_func(w, "static void %s(int stage%s)", act_text[k].call,
		act_text[k].once          ? ""
		: device_enters(b, first) ? ", int slot, int entry, int mb"
					  : ", int slot, int mb");
	if (!enters)
		cw_line(w, "(void)entry;");
	cw_open(w, "switch (stage)");
	for (int t = first; t >= 0; t = next_chunk(b, t))
		if (stage_does(s, t, k)) {
			cw_label(w, "case %d", t);
			cw_line(w, "%s(%s);", stage_name(b, t, act_text[k].call),
				act_text[k].once               ? ""
				: stage_enters(b->m->stage[t]) ? "slot, entry, mb"
							       : "slot, mb");
			cw_line(w, "break;");
		}
	cw_end(w);
	cw_end(w);
}

static const Node *broadcast_of(const Stage *s, int number)
{
	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_Broadcast && attr_int(n, "number") == number)
			return n;
	return NULL;
}

static int broadcasts(const Build *b)
{
	int n = 0;

	for (int t = 0; t < b->m->nstage; t++)
		for (const Node *k = b->m->stage[t]->update->first; k; k = k->next)
			if (k->op == OP_Broadcast && attr_int(k, "number") >= n)
				n = (int)attr_int(k, "number") + 1;
	return n;
}

/* Gradients of tied parameters, in one order on all devices. The stage that has one goes first, its neighbours copy. */
static bool write_share(const Build *b, Cw *w, int first)
{
	Buf body = { 0 };
	Cw in = { .out = &body, .indent = 1 };

	for (int k = 0; k < broadcasts(b); k++) {
		int from = -1;
		for (int t = first; t >= 0; t = next_chunk(b, t)) {
			const Node *n = broadcast_of(b->m->stage[t], k);
			if (n && (from < 0 || n->nin))
				from = t;
		}
		const char *call =
			from < 0 ? NULL
				 : arena_printf(b->a, "%s(NULL)",
					   share_name(b, b->m->stage[from], broadcast_of(b->m->stage[from], k)));
		for (int t = first; t >= 0; t = next_chunk(b, t)) {
			const Node *n = broadcast_of(b->m->stage[t], k);
			if (n && t != from)
				call = arena_printf(b->a, "%s(%s)", share_name(b, b->m->stage[t], n), call);
		}
		if (call)
			cw_line(&in, "%s;", call);
	}
	const bool any = body.n > 0;
	if (any) {
		cw_blank(w);
		cw_func(w, "static void share(void)");
		buf_puts(w->out, buf_str(&body));
		cw_end(w);
	}
	buf_free(&body);
	return any;
}

static int first_update(const DeviceSchedule *s)
{
	for (int i = 0; i < s->n; i++)
		if (s->act[i].kind == ACT_UPDATE)
			return s->act[i].stage;
	return -1;
}

static const char *call_text(const Build *b, const DeviceSchedule *s, ActKind k)
{
	return arena_printf(b->a, "%s(%s%s);", act_text[k].call,
		b->chunks ? act_text[k].once ? "a->stage" : "a->stage, " : "",
		act_text[k].once                    ? ""
		: device_enters(b, s->act[0].stage) ? "a->slot, a->entry, a->mb"
						    : "a->slot, a->mb");
}

/* Before the first update all stages of the device have their sums. */
static void write_before_update(const Build *b, Cw *w, const DeviceSchedule *s, bool shares)
{
	if (!b->chunks) {
		cw_line(w, "pd_totals();");
		return;
	}
	cw_open(w, "if (a->stage == %d)", first_update(s));
	if (shares)
		cw_line(w, "share();");
	cw_line(w, "pd_totals();");
	for (int t = first_update(s); t >= 0; t = next_chunk(b, t))
		if (stage_has(b->m->stage[t]->update, OP_ClipNorm))
			cw_line(w, "%s();", stage_name(b, t, "squares"));
	cw_end(w);
}

/* ---- the loop over the actions ---- */

static void write_step(const Build *b, Cw *w, const DeviceSchedule *s, bool shares, const Stage *of)
{
	const char *first = NULL;
	const bool server = of->server;

	for (int k = 0; k < ACT_COUNT; k++)
		if (!first && has(s, (ActKind)k) && trains((ActKind)k, server))
			first = word(b, (ActKind)k);
	cw_blank(w);
	cw_func(w, "static void step(bool train)");
	cw_line(w, "const struct action *end = actions + sizeof actions / sizeof *actions;");
	cw_blank(w);
	cw_open(w, "for (const struct action *a = actions; a < end; a++)");
	if (first) {
		cw_line(w, "if (!train && a->kind >= %s)", first);
		cw_line(w, "\tcontinue;");
	}
	cw_line(w, "pd_action(names[a->kind], a->mb);");
	cw_open(w, "switch (a->kind)");
	for (int k = 0; k < ACT_COUNT; k++) {
		if (!has(s, (ActKind)k))
			continue;
		cw_label(w, "case %s", word(b, (ActKind)k));
		if (k == ACT_UPDATE && !served_async(b->t))
			write_before_update(b, w, s, shares);
		const bool section =
			b->gpu && !served_async(b->t) && (k == ACT_F || k == ACT_B || k == ACT_W || k == ACT_UPDATE);
		if (section)
			cw_open(w, "if (pd_section(train, (int)(a - actions), (int)(end - actions), a->mb))");
		if (section)
			cw_line(w, "do");
		cw_line(w, "%s%s", section ? "\t" : "",
			!server || k != ACT_SYNC ? call_text(b, s, (ActKind)k)
			: served_async(b->t)     ? "serve();"
						 : "serve(train);");
		if (section) {
			cw_line(w, "while (pd_section_end());");
			cw_end(w);
		}
		if (served_async(b->t) && k == ACT_B)
			cw_stmt(w, "its labels, for the servers", "pd_count(a->mb);");
		cw_line(w, "break;");
	}
	cw_end(w);
	cw_end(w);
	if (pulls(of))
		cw_stmt(w, "servers shall not wait for gradients", "if (!train) pd_push_end();");
	if (!first)
		cw_line(w, "(void)train;");
	cw_end(w);
}

/* The microbatches of a stage in the order in which their gradients are made. */
static int write_mine(const Build *b, Cw *w, const DeviceSchedule *s, int stage)
{
	CwItems items = { .w = w };
	const ActKind kind = stage_does(s, stage, ACT_W) ? ACT_W : stage_does(s, stage, ACT_B) ? ACT_B : ACT_F;
	int n = 0;

	cw_blank(w);
	cw_comment(w,
		b->chunks ? "microbatches of a step that stage %d does, in the order in which they are done"
			  : "its microbatches of a step, in the order in which they are done",
		stage);
	cw_open(w, "static const int %s[] =", b->chunks ? arena_printf(b->a, "mine%d", stage) : "mine");
	if (b->m->schedule->async) {
		int *mine = NEWN(b->a, int, b->m->schedule->nmicro);
		n = schedule_mine(b->m->schedule, (int)(s - b->m->schedule->dev), stage, mine);
		for (int i = 0; i < n; i++)
			cw_item(&items, "%d", mine[i]);
	}
	for (int i = 0; i < s->n && !b->m->schedule->async; i++)
		if (s->act[i].kind == kind && s->act[i].stage == stage) {
			cw_item(&items, "%d", s->act[i].mb);
			n++;
		}
	if (!n)
		cw_item(&items, "0");
	cw_items_end(&items);
	cw_close(w, ";");
	return n;
}

static void write_rate(const Build *b, Cw *w, const Rate *r)
{
	const double lr = opt_get(&b->t->model.opt, OPT_LR);

	cw_line(w,
		".rate = { .kind = %d, .warmup = %" PRId64 ", .every = %" PRId64 ", .steps = %" PRId64
		", .gamma = %.17g, .last = %.17g },",
		r->kind, r->warmup, r->every, r->steps, r->gamma, lr > 0 ? r->min / lr : 0);
}

static bool compresses(const Module *m)
{
	for (int t = 0; t < m->nstage; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_AllReduce && strcmp(attr_str(n, "codec"), "none"))
				return true;
	return false;
}

/* The tensor on each channel and the ONNX node that it stems from, for messages about what did not come. */
static void write_channels(Build *b, Cw *w)
{
	const char **text = NEWN(b->a, const char *, b->channels);
	CwItems items = { .w = w };

	for (int t = 0; t < b->m->nstage; t++)
		for (int pass = 0; pass < 2; pass++)
			for (const Node *n = (pass ? b->m->stage[t]->backward : b->m->stage[t]->forward)->first; n;
				n = n->next) {
				if (n->op == OP_Send)
					text[attr_int(n, "channel")] = origin_text(b, n->in[0], n);
			}
	if (!b->channels)
		return;
	cw_blank(w);
	cw_comment(w, "what each channel carries, for messages");
	cw_open(w, "static const char *const channels[] =");
	for (int i = 0; i < b->channels; i++)
		cw_item(&items, "%s", text[i] ? quoted(b->a, text[i]) : "NULL");
	cw_items_end(&items);
	cw_close(w, ";");
}

/* Where stages have unlike tensor groups. */
static void write_groups(const Build *b, Cw *w)
{
	const Module *m = b->m;
	const char *list = "";

	if (!m->tensor_of)
		return;
	for (int r = 0; r < m->schedule->ndevice; r++)
		list = arena_printf(b->a, "%s%s%d", list, r ? ", " : "", stage_tensor(m, stage_of_rank(b, r)));
	cw_blank(w);
	cw_comment(w, "by rank: the programs that share it");
	cw_line(w, "static const int programs[] = { %s };", list);
}

static void write_program(Build *b, Cw *w, int rank, int member)
{
	const Module *m = b->m;
	const int t = stage_of_rank(b, rank), replica = rank - b->first_rank[t];
	const Stage *s = m->stage[t];
	const char *base = m->file ? strrchr(m->file, '/') : NULL;
	const Rate *rate = &b->t->model.opt.rate;
	int slots = 1;

	for (int k = t; k >= 0; k = next_chunk(b, k)) {
		const Stage *of = m->stage[k];
		slots = of->inflight > slots ? of->inflight : slots;
		slots = stage_enters(of) && of->entries > slots ? of->entries : slots;
	}
	write_channels(b, w);
	write_links(b, w, rank);
	write_groups(b, w);
	cw_blank(w);
	cw_open(w, "static const pd_program program =");
	cw_line(w, ".abi = PD_ABI, .model = %s, .plan = \"%s\", .schedule = \"%s%s\",",
		quoted(b->a, base      ? base + 1
			     : m->file ? m->file
				       : m->name),
		plan_text(b), m->schedule->name, served_async(b->t) ? ", asynchronous servers" : "");
	cw_line(w, ".hash = \"%s\", .model_hash = \"%s\", .optimizer = \"%s\",", b->hash, b->model_hash,
		setting_word(SET_OF_OptKind, opt_kind(&b->t->model.opt)));
	cw_line(w, ".rank = %d, .world = %d, .stage = %d, .stages = %d, .replica = %d, .replicas = %d,", rank,
		m->schedule->ndevice, t, module_stages(m), replica, s->replicas);
	cw_line(w, ".threads = %d, .reproducible = %s, .shuffle = %s, .seed = %" PRIu64 ",", threads_of(b, rank),
		b->t->loop.reproducible ? "true" : "false", b->t->data.shuffle ? "true" : "false", b->t->loop.seed);
	cw_line(w,
		".micro = %" PRId64 ", .microbatches = %" PRId64 ",%s%s .channels = %d, .slots = %d, .arena = %" PRId64
		",",
		m->batch, m->microbatches, m->grains ? arena_printf(b->a, " .grains = %" PRId64 ",", m->grains) : "",
		!s->server && schedule_in_turn(m->schedule, t) ? " .in_turn = true," : "", b->channels, slots,
		s->arena);
	cw_line(w, ".nparams = PARAMS, .params = %s, .ninputs = INPUTS, .inputs = %s,",
		b->chunks ? "params" : "stage_params", b->chunks ? "inputs" : "stage_inputs");
	if (m->tensor > 1)
		cw_line(w, ".tensor = %d, .member = %d,%s", stage_tensor(m, t), member,
			m->tensor_of ? " .tensor_of = programs," : "");
	if (s->server)
		cw_line(w, ".server = true,");
	if (owned_sums(s))
		cw_line(w, ".owned = %d,", owned_pieces(b->a, s, &(OwnedPiece *){ NULL }));
	if (rate_varies(rate))
		write_rate(b, w, rate);
	if (compresses(m))
		cw_line(w, ".compressed = true,");
	if (b->channels)
		cw_line(w, ".channel = channels,");
	write_link_members(b, w, rank);
	if (squares_of(m))
		cw_line(w, ".squares = %d, .squares_at = %d,%s", squares_of(m), squares_at(b), parted_text(b));
	if (b->t->loop.gnorm || b->t->model.opt.clip_norm > 0)
		cw_line(w, ".gnorm = true,");
	if (amp_scaled(b->t))
		cw_line(w, ".loss_scale = %.17g, .scale_every = %" PRId64 ",",
			b->t->target.amp.scale > 0 ? b->t->target.amp.scale : 65536.0,
			b->t->target.amp.every > 0 ? b->t->target.amp.every : 2000);
	write_watch(b, w);
	if (b->t->loop.ckpt_dir)
		cw_line(w, ".ckpt = { .dir = %s, .every = %" PRId64 ", .keep = %" PRId64 " },",
			quoted(b->a, b->t->loop.ckpt_dir), b->t->loop.ckpt_every, b->t->loop.ckpt_keep);
	cw_line(w, ".weights = \"weights/stage%d.safetensors\", .steps = %" PRId64 ", .timeout = %.17g,", t,
		b->t->loop.steps > 0 ? b->t->loop.steps : 10, timeout_of(b));
	if (b->t->loop.epochs)
		cw_line(w, ".epochs = %" PRId64 ",", b->t->loop.epochs);
	cw_line(w, ".init = start, .step = step, .notes = \"\",");
	write_flow_fields(b, w, rank);
	cw_close(w, ";");
}

/* The tables of all stages of the device, one behind the other; filled by main. */
static void write_tables(const Build *b, Cw *w, int first)
{
	const char *params = "", *inputs = "";

	for (int t = first; t >= 0; t = next_chunk(b, t)) {
		params = arena_printf(b->a, "%s%sSTAGE%d_PARAMS", params, *params ? " + " : "", t);
		inputs = arena_printf(b->a, "%s%sSTAGE%d_INPUTS", inputs, *inputs ? " + " : "", t);
	}
	cw_blank(w);
	cw_comment(w, "of all its stages, one behind the other");
	cw_line(w, "enum { PARAMS = %s, INPUTS = %s };", params, inputs);
	cw_line(w, "static pd_param params[PARAMS + 1];");
	cw_line(w, "static pd_input_desc inputs[INPUTS + 1];");
}

static void fill_tables(const Build *b, Cw *w, int first)
{
	static const char *const what[] = { "params", "inputs" };

	for (int t = first; t >= 0; t = next_chunk(b, t))
		for (int k = 0; k < 2; k++) {
			const int n = k ? b->m->stage[t]->forward->nin : b->m->stage[t]->nparam;
			if (n)
				cw_line(w, "memcpy(%s + %d, %s, %d * sizeof *%s);", what[k], table_base(b, t, !k),
					stage_name(b, t, what[k]), n, what[k]);
		}
}

static const char *stages_text(const Build *b, int first)
{
	const char *s = arena_printf(b->a, "%d", first);

	for (int t = first; (t = next_chunk(b, t)) >= 0;)
		s = arena_printf(b->a, "%s%s %d", s, next_chunk(b, t) < 0 ? " and" : ",", t);
	return s;
}

static void write_start(const Build *b, Cw *w, int first, int replica, const int *grains)
{
	cw_blank(w);
	cw_func(w, "static void start(char *arena)");
	if (!b->chunks)
		cw_line(w, "init(arena, %d, mine, %d);", replica, grains[first]);
	for (int t = first; t >= 0 && b->chunks; t = next_chunk(b, t))
		cw_line(w, "%s(arena, %d, mine%d, %d);", stage_name(b, t, "init"), replica, t, grains[t]);
	cw_end(w);
}

bool emit_device(Build *b, int task)
{
	const Module *m = b->m;
	const int rank = rank_of_task(b, task);
	const int first = stage_of_rank(b, rank), replica = rank - b->first_rank[first];
	const DeviceSchedule *s = &m->schedule->dev[rank];
	const int d = m->stage[first]->device[replica];
	Buf text = { 0 };
	Cw w = { .out = &text };
	int *grains = NEWN(b->a, int, m->nstage);
	bool shares = false;

	if (m->stage[first]->server)
		cw_comment(&w, "%s, rank %d of %d: server %d of parameters. Written by pdcc %s, edits are lost.",
			m->name, task, tasks_of(b), first, PDCC_VERSION);
	else
		cw_comment(&w,
			"%s, device %d of %d (%s): replica %d of %d of stage%s %s. Written by pdcc %s, edits are lost.",
			m->name, task, tasks_of(b),
			b->c && d >= 0 && d < b->c->ndevice && b->c->device[d].name ? b->c->device[d].name : "any",
			replica, m->stage[first]->replicas, next_chunk(b, first) < 0 ? "" : "s", stages_text(b, first),
			PDCC_VERSION);
	for (int t = first; t >= 0; t = next_chunk(b, t))
		cw_line(&w, "#include \"stage%d/stage%d.h\"", t, t);
	for (int t = first; t >= 0; t = next_chunk(b, t))
		grains[t] = write_mine(b, &w, s, t);
	if (m->schedule->async)
		write_flow(b, &w, rank);
	else
		write_actions(b, &w, s, m->stage[first]->server);
	if (b->chunks) {
		write_tables(b, &w, first);
		for (int k = 0; k < ACT_COUNT; k++)
			write_chunk_call(b, &w, s, first, (ActKind)k);
		shares = write_share(b, &w, first);
	}
	if (!m->schedule->async)
		write_step(b, &w, s, shares, m->stage[first]);
	write_start(b, &w, first, replica, grains);
	write_program(b, &w, rank, task - first_task(m, rank));
	cw_blank(&w);
	cw_func(&w, "const pd_program *pd_device(void)");
	if (b->chunks)
		fill_tables(b, &w, first);
	cw_line(&w, "return &program;");
	cw_end(&w);
	cw_blank(&w);
	cw_line(&w, "#if !defined PD_LOOP        /* make LOOP=FILE.c: main is there */");
	cw_func(&w, "int main(int argc, char **argv)");
	cw_line(&w, "return pd_main(pd_device(), argc, argv);");
	cw_end(&w);
	cw_line(&w, "#endif");
	return build_text(b, arena_printf(b->a, "device%d.c", task), &text);
}
