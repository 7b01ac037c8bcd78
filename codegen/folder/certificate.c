/* certificate.json: the facts from which a reader that knows nothing of the compiler can prove the plan again. What each device
 * does in which order, with which copies and versions; every message, matched with its receive; every value of every stage,
 * where it lies and from which node to which it is needed, with the nodes that make and read it; what a device needs in all. A
 * line per action list, message and value: as large as the plan. docs/certificate.md says what each word means. */
#include <inttypes.h>
#include <string.h>
#include "ir/analysis.h"
#include "codegen/write/build.h"

static const char graph_word[4] = { 'F', 'B', 'W', 'U' };

/* ---- order ---- */

static void write_action(bool split, Buf *out, const Action *x)
{
	buf_printf(out, "%d%s", x->stage, schedule_word(split, x->kind));
	if (x->mb >= 0)
		buf_printf(out, "%d", x->mb);
	buf_printf(out, "/%d/%d/%d", x->slot, x->entry, x->version);
}

static void write_order(const Build *b, Buf *out)
{
	const Schedule *s = b->m->schedule;
	const bool split = schedule_has(s, ACT_W);

	buf_puts(out, "\"order\": [");
	for (int r = 0; r < s->ndevice; r++) {
		buf_puts(out, r ? ",\n \"" : "\n \"");
		for (int i = 0; i < s->dev[r].n; i++) {
			buf_puts(out, i ? " " : "");
			write_action(split, out, &s->dev[r].act[i]);
		}
		buf_puts(out, "\"");
	}
	buf_puts(out, "],\n");
}

/* ---- messages ---- */

/* Where an action of microbatch mb stands, by rank and place: [kind][stage][mb] */
typedef struct Where {
	int rank, place;
} Where;

static Where *find_actions(const Build *b)
{
	const Schedule *s = b->m->schedule;
	Where *at = NEWN(b->a, Where, ACT_COUNT * s->nstage * s->nmicro);

	for (int r = 0; r < s->ndevice; r++)
		for (int i = 0; i < s->dev[r].n; i++) {
			const Action *x = &s->dev[r].act[i];
			if (act_of_micro(x))
				at[(x->kind * s->nstage + x->stage) * s->nmicro + x->mb] = (Where){ r, i };
		}
	return at;
}

static void write_matches(const Build *b, Buf *out, const Where *at, const Stage *s, const Node *send, bool forward)
{
	const Schedule *x = b->m->schedule;
	const int to = (int)attr_int(send, "to"), channel = (int)attr_int(send, "channel");

	for (int mb = 0; mb < x->nmicro; mb++) {
		const Where *p = &at[((forward ? ACT_SEND_F : ACT_SEND_B) * x->nstage + s->id) * x->nmicro + mb];
		const Where *q = &at[((forward ? ACT_RECV_F : ACT_RECV_B) * x->nstage + to) * x->nmicro + mb];
		buf_printf(out, "%s[%d, %d, %d, %d, %d, %d]", mb ? ", " : "", channel, mb, p->rank, p->place, q->rank,
			q->place);
	}
}

static void write_messages(const Build *b, Buf *out)
{
	const Where *at = find_actions(b);

	for (int list = 0; list < 2; list++) {
		const char *comma = "";
		buf_puts(out, list ? "\"matched\": [" : "\"channels\": [");
		for (int t = 0; t < b->m->schedule->nstage; t++)
			for (int pass = 0; pass < 2; pass++) {
				const Stage *s = b->m->stage[t];
				for (const Node *n = (pass ? s->backward : s->forward)->first; n; n = n->next) {
					if (n->op != OP_Send)
						continue;
					buf_printf(out, "%s\n ", comma);
					comma = ",";
					if (list)
						write_matches(b, out, at, s, n, !pass);
					else
						buf_printf(out, "[%d, \"%c\", %d, %d, %" PRId64 ", %s]",
							(int)attr_int(n, "channel"), pass ? 'B' : 'F', t,
							(int)attr_int(n, "to"), message_bytes(b, n->in[0]),
							quoted_json(b->a, n->in[0]->name));
				}
			}
		buf_puts(out, "],\n");
	}
}

/* ---- values ---- */

/* When a value is needed: graph and place of a node, from 1; 0 is the graph's begin. */
typedef struct Moment {
	int graph, place;
} Moment;

typedef struct Item {
	const Value *v;
	Moment first, last;
} Item;

typedef struct Listing {
	const Build *b;
	const Stage *s;
	Graph *graph[4];
	char word[4];
	int ngraph;
	Item *item;
	int n, cap;
	Map index; /* value -> its number + 1 */
} Listing;

static bool later(Moment x, Moment y) { return x.graph != y.graph ? x.graph > y.graph : x.place > y.place; }

static int number_of(Listing *l, const Value *v)
{
	const intptr_t known = (intptr_t)map_get(&l->index, v);

	if (known)
		return (int)known - 1;
	PUSH(l->b->a, l->item, l->n, l->cap) = (Item){ .v = v };
	map_put(&l->index, v, (void *)(intptr_t)l->n);
	return l->n - 1;
}

/* Accumulate adds its operand right behind the node that makes it, Stack copies its operand when the forward ends. */
static bool reads_elsewhere(const Node *n) { return n->op == OP_Accumulate || n->op == OP_Stack; }

static void make(Listing *l, const Value *v, Moment now)
{
	const int i = number_of(l, v);

	l->item[i].first = l->item[i].last = now;
}

static void walk(Listing *l, int k)
{
	const Graph *g = l->graph[k];
	int place = 0;

	for (int i = 0; i < g->nin; i++)
		make(l, g->in[i], (Moment){ k, 0 });
	for (const Node *n = g->first; n; n = n->next) {
		const Moment now = { k, ++place };
		for (int i = 0; i < n->nin; i++) {
			if (!n->in[i] || n->in[i]->kind == VAL_CONST)
				continue;
			const int at = number_of(l, n->in[i]);
			Item *x = &l->item[at];
			if (!reads_elsewhere(n) && later(now, x->last))
				x->last = now;
			if (n->op == OP_Stack && x->first.graph == 0)
				x->last = (Moment){ 0, l->graph[0]->nnodes + 1 };
		}
		for (int o = 0; o < n->nout; o++)
			if (n->out[o])
				make(l, n->out[o], now);
	}
}

/* The place from which on a bucket's gradients are sent; NULL: behind the end of graph k. */
static Moment begin_of(const Listing *l, int k, const Node *sum)
{
	Moment at = { k, 1 };
	const Node *last = sum ? bucket_node(l->s, sum) : NULL;

	for (const Node *n = l->graph[k]->first; n && n != last; n = n->next)
		at.place++;
	return at;
}

/* Such gradients are needed until the next bucket begins. */
static void send_parts(Listing *l, int k)
{
	const Node *before = NULL;

	for (const Node *n = l->s->update->first;; n = n->next) {
		if (n && (n->op != OP_AllReduce || !attr_int(n, "each")))
			continue;
		for (int i = 0; before && i < before->nin; i++)
			l->item[number_of(l, before->in[i]->def->in[0])].last = begin_of(l, k, n);
		if (!n)
			return;
		before = n;
	}
}

static void write_operands(Listing *l, Buf *out, Value *const *v, int n)
{
	const char *comma = "";

	for (int i = 0; i < n; i++)
		if (v[i] && v[i]->kind != VAL_CONST) {
			buf_printf(out, "%s%d", comma, number_of(l, v[i]));
			comma = ",";
		}
}

/* "Relu! 3>4": ! writes over its first operand where both lie at one place, = is the same memory. */
static void write_nodes(Listing *l, Buf *out, int k)
{
	buf_printf(out, "  %s\"%c\": [", k ? "," : "", l->word[k]);
	for (const Node *n = l->graph[k]->first; n; n = n->next) {
		const bool view = (optab[n->op]->flags & OP_VIEW) || n->op == OP_Broadcast;
		buf_printf(out, "%s\"%s%s ", n->prev ? ", " : "", optab[n->op]->name,
			view                               ? "="
			: optab[n->op]->flags & OP_INPLACE ? "!"
							   : "");
		write_operands(l, out, n->in, n->nin);
		buf_puts(out, ">");
		write_operands(l, out, n->out, n->nout);
		if (n->scratch)
			buf_printf(out, " %" PRId64, n->scratch);
		buf_puts(out, "\"");
	}
	buf_puts(out, "]\n");
}

static int64_t param_at(const Stage *s, const Value *v)
{
	for (int i = 0; i < s->nparam; i++)
		if (s->param[i] == v)
			return s->param_at[i];
	return 0;
}

static const char *moment_text(const Listing *l, Moment x)
{
	return arena_printf(l->b->a, "%c%d", l->word[x.graph], x.place);
}

static void write_values(Listing *l, Buf *out)
{
	const char *comma = "";

	buf_puts(out, "  \"values\": [");
	for (int i = 0; i < l->n; i++) {
		const Item *x = &l->item[i];
		const Value *v = x->v;
		buf_printf(out, "%s\n   [%s, ", comma, quoted_json(l->b->a, v->name));
		comma = ",";
		Type held = held_type(v);
		held.rows = 0; /* they are kept dense */
		const char *type = str_type(l->b->a, &held);
		if (v->kind == VAL_PARAM)
			buf_printf(out, "\"%s\", %" PRId64 ", %" PRId64 ", \"always\", \"always\", \"%s\"]",
				v->param->kind == PARAM_STATE ? "state" : "params",
				param_at(l->s, v) -
					l->s->at[v->param->kind == PARAM_STATE ? REGION_STATE : REGION_PARAMS],
				type_bytes(&held), type);
		else
			buf_printf(out, "\"%s\", %" PRId64 ", %" PRId64 ", \"%s\", \"%s\", \"%s\"]",
				region_word[v->region], v->offset, type_bytes(&held), moment_text(l, x->first),
				moment_text(l, x->last), type);
	}
	buf_puts(out, "]\n");
}

/* Sums that begin in the last backward, or W, in front of a SYNC: behind which node, of which values, and whether they do in every one. */
static void write_buckets(Listing *l, Buf *out)
{
	const char *comma = "";
	int k = 0;

	while (k + 1 < l->ngraph && l->graph[k] != (l->s->weight ? l->s->weight : l->s->backward))
		k++;
	buf_puts(out, "  \"buckets\": [");
	for (const Node *n = l->s->update->first; n; n = n->next) {
		if (n->op != OP_AllReduce || attr_int(n, "bucket") < 0)
			continue;
		buf_printf(out, "%s[\"%s\", [", comma, moment_text(l, begin_of(l, k, n)));
		for (int i = 0; i < n->nin; i++)
			buf_printf(out, "%s%d", i ? ", " : "", number_of(l, n->in[i]->def->in[0]));
		buf_puts(out, attr_int(n, "each") ? "], true]" : "], false]");
		comma = ", ";
	}
	buf_puts(out, "],\n");
}

/* ---- versions ---- */

static bool computes(const Action *x) { return x->kind == ACT_F || x->kind == ACT_B || x->kind == ACT_W; }

/* The most versions of stage t's weights that some device still needs at one time: the newest, and those that a later action
 * reads. */
static int alive(const Build *b, int t)
{
	const Schedule *s = b->m->schedule;
	int most = 1;

	for (int r = 0; r < s->replicas[t]; r++) {
		const DeviceSchedule *d = &s->dev[s->device[t][r]];
		int *last = NEWN(b->a, int, d->n + 2), newest = 0, older = 0;
		for (int i = 0; i < d->n; i++)
			if (d->act[i].stage == t && computes(&d->act[i]))
				last[d->act[i].version] = i;
		for (int i = 0; i < d->n; i++) {
			const Action *x = &d->act[i];
			if (x->stage != t)
				continue;
			if (computes(x) && x->version < newest && last[x->version] == i)
				older--;
			if (x->kind == ACT_UPDATE && s->async) {
				older += last[newest] > i;
				newest = x->version;
			}
			most = older + 1 > most ? older + 1 : most;
		}
	}
	return most;
}

/* ---- all of it ---- */

static void write_stage(const Build *b, Buf *out, const Stage *s)
{
	Listing l = { .b = b, .s = s, .ngraph = stage_graphs(s, l.graph) };

	map_init(&l.index, b->a, false);
	for (int i = 0; i < s->nparam; i++)
		number_of(&l, s->param[i]);
	for (int k = 0; k < l.ngraph; k++) {
		l.word[k] = graph_word[l.graph[k] == s->forward    ? 0
				       : l.graph[k] == s->backward ? 1
				       : l.graph[k] == s->weight   ? 2
								   : 3];
		walk(&l, k);
		if (sums_each(s) && l.graph[k] == (s->weight ? s->weight : s->backward))
			send_parts(&l, k);
	}
	buf_printf(out,
		" {\"stage\": %d, \"server\": %s, \"first_rank\": %d, \"replicas\": %d, \"slots\": %d, \"entries\": %d,\n"
		"  \"slot_bytes\": %" PRId64 ", \"entry_bytes\": %" PRId64 ", \"peak_bytes\": %" PRId64 ",\n"
		"  \"versions_kept\": %d, \"versions_alive\": %d, \"version_bytes\": %" PRId64 ",\n  \"regions\": {",
		s->id, s->server ? "true" : "false", b->first_rank[s->id], s->replicas, s->inflight, s->entries,
		s->slot_bytes, s->entry_bytes, s->arena, s->versions,
		s->id < b->m->schedule->nstage ? alive(b, s->id) : 1, s->version_bytes);
	for (int r = REGION_PARAMS; r < REGION_COUNT; r++)
		buf_printf(out, "%s\"%s\": [%" PRId64 ", %" PRId64 "]", r > REGION_PARAMS ? ", " : "", region_word[r],
			s->at[r], s->bytes[r]);
	buf_puts(out, "},\n  \"nodes\": {\n");
	for (int k = 0; k < l.ngraph; k++)
		write_nodes(&l, out, k);
	buf_puts(out, "  },\n");
	write_buckets(&l, out);
	write_values(&l, out);
	buf_puts(out, " }");
}

bool emit_certificate(Build *b)
{
	static const char *const rule[VERSION_RULES] = { [VERSION_FLUSH] = "flush",
		[VERSION_STASH] = "stash",
		[VERSION_NEWEST] = "newest",
		[VERSION_VERTICAL] = "vertical",
		[VERSION_PREVIOUS] = "previous" };
	const Module *m = b->m;
	const Schedule *s = m->schedule;
	Buf out = { 0 };

	buf_printf(&out,
		"{\"certificate\": 1, \"model\": %s, \"plan\": \"%s\", \"schedule\": \"%s\", \"hash\": \"%s\",\n"
		"\"microbatches\": %d, \"flushed\": %s, \"rule\": \"%s\", \"late\": %d, \"each\": %s, "
		"\"reproducible\": %s,\n",
		quoted_json(b->a, m->name), plan_text(b), s->name, b->hash, s->nmicro, s->async ? "false" : "true",
		rule[s->rule], s->late, schedule_each(m) ? "true" : "false",
		b->t && b->t->loop.reproducible ? "true" : "false");
	write_order(b, &out);
	write_messages(b, &out);
	buf_puts(&out, "\"stages\": [\n");
	for (int t = 0; t < m->nstage; t++) {
		buf_puts(&out, t ? ",\n" : "");
		write_stage(b, &out, m->stage[t]);
	}
	buf_puts(&out, "]}\n");
	return build_text(b, "certificate.json", &out);
}
