/* What travels between a stage and the servers of its parameters: the tables of who holds what, and the calls. */
#include <inttypes.h>
#include <string.h>
#include "stage.h"

static const Node *first_pull(const Stage *s, int64_t key)
{
	for (const Node *n = s->forward->first; n; n = n->next)
		if (n->op == OP_Pull && attr_int(n, "key") == key)
			return n;
	bug("stage %d pulls nothing of key %" PRId64, s->id, key);
}

/* The place of what n pulls among the parameters that are pulled, in the order of their first Pulls. */
static int place_of_pull(const Stage *s, const Node *n)
{
	int at = 0;

	for (const Node *k = s->forward->first; k; k = k->next)
		if (k->op == OP_Pull && first_pull(s, attr_int(k, "key")) == k) {
			if (attr_int(k, "key") == attr_int(n, "key"))
				return at;
			at++;
		}
	bug("a parameter that is pushed is never pulled");
}

/* ---- what a device has of servers ---- */

static int64_t rows_of(const Value *v, bool whole) { return whole ? 1 : v->type.dim[0]; }

static int64_t width_of(const Value *v, bool whole)
{
	return whole ? type_numel(&v->type) : type_numel(&v->type) / v->type.dim[0];
}

static int64_t lookups_of(const Stage *s, int64_t key)
{
	int64_t ids = 0;

	for (const Node *n = s->forward->first; n; n = n->next)
		if (n->op == OP_Pull && attr_int(n, "key") == key && n->nin > 1)
			ids += type_numel(&n->in[1]->type);
	return ids;
}

static int64_t longest_lookup(const Stage *s, int64_t key)
{
	int64_t ids = 0;

	for (const Node *n = s->forward->first; n; n = n->next)
		if (n->op == OP_Pull && attr_int(n, "key") == key && n->nin > 1 && type_numel(&n->in[1]->type) > ids)
			ids = type_numel(&n->in[1]->type);
	return ids;
}

/* Who pushes for replica r: the first of its host. */
static int chief_of(const StageCx *x, const Stage *s, int r)
{
	const Cluster *c = x->b->c;

	for (int k = 0; k < r && !x->b->t->comm.no_local_agg && !served_async(x->b->t); k++)
		if (cluster_same_host(c, s->device[k], s->device[r]))
			return k;
	return r;
}

/* What is pushed together at most: by one replica, or by the replicas of one host. */
typedef struct Volume {
	int teams, grains, sums;
} Volume;

static Volume volume_of(const StageCx *x, const Stage *s, bool together)
{
	const Schedule *sched = x->b->m->schedule;
	const bool tree = x->b->t->loop.reproducible;
	int *mine = NEWN(x->b->a, int, sched->nmicro), at_once;
	Volume v = { 0, 0, 1 };

	for (int chief = 0; chief < s->replicas; chief++) {
		int n = 0;
		for (int r = 0; r < s->replicas; r++)
			if (r == chief || (together && chief_of(x, s, r) == chief))
				n += schedule_mine(sched, sched->device[s->id][r], s->id, mine + n);
		if (together && chief_of(x, s, chief) != chief)
			continue;
		const int sums =
			tree ? schedule_subtrees(x->b->a, schedule_grains(sched, s->id), mine, n, &at_once) : 1;
		v.teams++;
		v.grains = n > v.grains ? n : v.grains;
		v.sums = sums > v.sums ? sums : v.sums;
	}
	return v;
}

/* Rows of all of them: of each sum no more than the table has, of all no more than are looked up. */
static int64_t room_of(const Stage *s, int64_t key, int64_t rows, bool whole, Volume v)
{
	const int64_t ids = lookups_of(s, key) * v.grains;

	return whole ? v.sums : ids < v.sums * rows ? ids : v.sums * rows;
}

/* The server that holds a parameter, or the piece of it that begins with this row; which piece that is. */
static int server_of(const StageCx *x, const Value *w, int64_t row, const Value **piece)
{
	const Module *m = x->b->m;

	for (int t = 0; t < m->nstage; t++)
		for (int i = 0; i < m->stage[t]->nparam && m->stage[t]->server; i++) {
			const Value *v = m->stage[t]->param[i];
			if (v != w && (v->param->whole != w || v->param->row != row))
				continue;
			*piece = v;
			return x->b->first_rank[t];
		}
	bug("no server has row %" PRId64 " of %s", row, w->name);
}

/* Which ranks have which rows of a parameter, as a constant; how many pieces. */
static const char *pieces_text(const StageCx *x, const Value *w, int64_t rows, int *n)
{
	const char *text = "";
	const Value *piece;

	*n = 0;
	for (int64_t row = 0, here; row < rows; row += here, ++*n) {
		const int server = server_of(x, w, row, &piece);
		here = piece == w ? rows : piece->type.dim[0];
		text = arena_printf(
			x->b->a, "%s%s{ %d, %" PRId64 ", %" PRId64 " }", text, *n ? ", " : "", server, row, here);
	}
	return arena_printf(x->b->a, "(const pd_rows[]){ %s }", text);
}

/* Elements of each part of a gradient, as a constant; how many parts. */
static const char *part_widths(Arena *a, const Stage *s, int64_t key, int *parts)
{
	const char *text = "";
	const Node *n = s->update->first;

	for (*parts = 0; n;) {
		for (n = s->update->first; n; n = n->next)
			if (n->op == OP_Push && attr_int(n, "key") == key && attr_int(n, "part") == *parts)
				break;
		if (n)
			text = arena_printf(
				a, "%s%s%" PRId64, text, (*parts)++ ? ", " : "", type_numel(&n->in[0]->type));
	}
	return arena_printf(a, "(const int64_t[]){ %s }", text);
}

/* The elements that are pulled of a whole parameter: the first, how many. */
static const char *cut_text(Arena *a, const Node *pull)
{
	const int64_t n = attr_int(pull, "ncut");

	return arena_printf(a, "%" PRId64 ", %" PRId64, attr_int(pull, "cut"), n ? n : type_numel(&pull->in[0]->type));
}

/* How values leave at `narrow`, or what they become where they arrive, at `cast`: pd_wire. */
static const char *wire_text(const StageCx *x, const Node *narrow, const Node *cast)
{
	static const char *const name[] = { [DT_f32] = "PD_F32", [DT_bf16] = "PD_BF16", [DT_f16] = "PD_F16" };
	const DType out = attr_dtype(narrow, "wire"), in = attr_dtype(cast, "cast");

	return arena_printf(x->b->a, "{ %s, %s }", name[out != DT_f32 ? out : in], out != DT_f32 ? "true" : "false");
}

/* How a parameter is pulled and pushed. */
static const char *wires_text(const StageCx *x, const Stage *s, const Node *pull)
{
	const Module *m = x->b->m;
	const Node *push = NULL, *collect = NULL;

	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_Push && attr_int(n, "key") == attr_int(pull, "key"))
			push = n;
	for (int t = 0; t < m->nstage; t++)
		for (const Node *n = m->stage[t]->update->first; n; n = n->next)
			if (n->op == OP_Collect && attr_int(n, "key") == attr_int(pull, "key"))
				collect = n;
	if (!push || !collect)
		bug("%s is pulled and not pushed", pull->in[0]->name);
	return arena_printf(x->b->a, "%s, %s", wire_text(x, pull, pull), wire_text(x, push, collect));
}

void write_held(StageCx *x, Cw *w)
{
	const Stage *s = x->s;

	if (!pulls(s))
		return;
	cw_blank(w);
	cw_comment(w,
		"parameters that servers hold: key, whole or rows, the copy here, rows and floats of one; rows that are pulled at "
		"most, pushed at most, sums; parts of the gradient, and which rank has which rows; the floats that are pulled, those of each "
		"part; how they travel; rows of a pull at most");
	cw_open(w, "static const pd_held held[] =");
	for (const Node *n = s->forward->first; n; n = n->next) {
		if (n->op != OP_Pull || first_pull(s, attr_int(n, "key")) != n)
			continue;
		const Value *v = n->in[0];
		const bool whole = n->nin == 1;
		int parts;
		const char *widths = part_widths(x->b->a, s, attr_int(n, "key"), &parts);
		const Volume one = volume_of(x, s, false);
		int npieces;
		const int64_t key = attr_int(n, "key"), rows = rows_of(v, whole),
			      room = room_of(s, key, rows, whole, one);
		const char *pieces = pieces_text(x, v, rows, &npieces);
		cw_line(w,
			"{ %s, %" PRId64 ", %s, %" PRId64 " + offsetof(struct params, %s), %" PRId64 ", %" PRId64
			", %" PRId64 ", %" PRId64 ", %d, %d, %d, %s, %s, %s, %s, %" PRId64 " },",
			quoted(x->b->a, v->name), attr_int(n, "key"), whole ? "true" : "false", s->at[REGION_PARAMS],
			(const char *)map_get(&x->layout[REGION_PARAMS].names.of, v), rows, width_of(v, whole),
			whole || lookups_of(s, key) * one.grains > rows ? rows : lookups_of(s, key) * one.grains, room,
			one.sums, parts, npieces, pieces, cut_text(x->b->a, n), widths, wires_text(x, s, n),
			longest_lookup(s, key));
	}
	cw_close(w, ";");
	const char *chiefs = "";
	for (int r = 0; r < s->replicas; r++)
		chiefs = arena_printf(x->b->a, "%s%s%d", chiefs, r ? ", " : "", chief_of(x, s, r));
	cw_stmt(w, "who pushes for each replica: the first of its host", "static const int chief[] = { %s };", chiefs);
}

void write_pull(StageCx *x, Cw *w, const Node *n)
{
	const int k = place_of_pull(x->s, n);

	if (n->nin == 1)
		cw_stmt(w, arena_printf(x->b->a, "@%s", n->in[0]->name), "pd_pull(%d);", k);
	else
		cw_stmt(w, arena_printf(x->b->a, "rows of @%s", n->in[0]->name),
			"pd_pull_rows(%d, %s, %" PRId64 ", %d);", k, value_text(x, n->in[1]),
			type_numel(&n->in[1]->type), dtype_bytes(n->in[1]->type.dtype));
}

/* Give, Fetch, Return, Take: what is between a sum and its update is done by devices. */
void write_way(StageCx *x, Cw *w, const Node *n)
{
	static const char *const call[] = { "give", "fetch", "return", "take" };
	const Value *v = n->nout ? n->out[0] : n->in[0];
	const Stage *from = NULL;
	const int64_t key = attr_int(n, "key");

	for (int t = 0; t < x->b->m->nstage && !from; t++)
		for (const Node *k = x->b->m->stage[t]->update->first; k && !from; k = k->next)
			if (k->op == OP_Fetch && attr_int(k, "key") == key)
				from = x->b->m->stage[t];
	const Node *pull = first_pull(from, key);
	const Value *param = pull->in[0], *piece;
	const bool whole = pull->nin == 1, served = x->s->server;
	const int64_t width = width_of(param, whole);

	for (int64_t row = served ? attr_int(n, "row") : 0, end = served ? row + 1 : rows_of(param, whole), here;
		row < end; row += here) {
		const int server = server_of(x, param, row, &piece);
		here = rows_of(piece, whole);
		cw_stmt(w, comment_of(x, n),
			"pd_%s(&(pd_way){ %" PRId64 ", %d, %d, %d, %s, %" PRId64 ", %" PRId64 " }, %s%s);",
			call[n->op - OP_Give], key, server, x->b->first_rank[from->id], from->replicas,
			whole ? "true" : "false", here, width, value_text(x, v),
			row && !served ? arena_printf(x->b->a, " + %" PRId64, row * width) : "");
	}
	if (n->op == OP_Take && amp_scaled(x->b->t)) {
		cw_line(w, "if (pd_overflow())");
		cw_line(w, "\treturn;");
	}
}

/* Sums of gradients to their servers, before what stays is joined. */
void write_pushes(StageCx *x, Cw *w)
{
	for (const Node *n = x->s->update->first; n; n = n->next) {
		if (n->op != OP_Push)
			continue;
		const int k = place_of_pull(x->s, first_pull(x->s, attr_int(n, "key")));
		if (reproducible(x))
			cw_line(w, "pd_push_tree(%d, %d, tree, offsetof(struct grads, %s) / sizeof(float));", k,
				(int)attr_int(n, "part"), member_text(x, n->in[0]));
		else
			cw_line(w, "pd_push(%d, %d, %s);", k, (int)attr_int(n, "part"), value_text(x, n->in[0]));
	}
	if (pulls(x->s))
		cw_line(w, "pd_push_end();");
}

/* Floats of G that stay: sums that are pushed lie behind them. NULL: all of them. */
const char *kept_floats(StageCx *x)
{
	for (const Node *n = x->s->update->first; n; n = n->next)
		if (n->op == OP_Accumulate && value_feeds(n->out[0], OP_Push))
			return arena_printf(
				x->b->a, "offsetof(struct grads, %s) / sizeof(float)", member_text(x, n->out[0]));
	return NULL;
}

/* ---- what a server has ---- */

/* The parameter whose gradient a Collect begins, or its piece. */
static const Value *param_of(const StageCx *x, const Node *collect)
{
	const Value *piece;

	server_of(x, first_pull(x->b->m->stage[attr_int(collect, "from")], attr_int(collect, "key"))->in[0],
		attr_int(collect, "row"), &piece);
	return piece;
}

/* The place of a parameter or piece in the table of shares: that of its first Collect. */
static int share_of(const Stage *s, const Node *collect)
{
	const int64_t key = attr_int(collect, "key"), row = attr_int(collect, "row");
	int at = 0;

	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_Collect && attr_int(n, "part") == 0) {
			if (attr_int(n, "key") == key && attr_int(n, "row") == row)
				return at;
			at++;
		}
	bug("nothing collects the gradient of key %" PRId64, key);
}

static void write_collect(StageCx *x, Cw *w, const Node *n)
{
	cw_stmt(w, comment_of(x, n), "pd_collect(%d, %d, %s);", share_of(x->s, n), (int)attr_int(n, "part"),
		value_text(x, n->out[0]));
}

/* Marks what node n of g is made from, and it. */
static void want(const Graph *g, const Node *n, bool *wanted)
{
	int i = 0;

	for (const Node *k = g->first; k != n; k = k->next)
		i++;
	wanted[i] = true;
	for (int k = 0; k < n->nin; k++)
		if (n->in[k] && n->in[k]->kind == VAL_NODE)
			want(g, n->in[k]->def, wanted);
}

static bool updates_param(const Node *n, const Value *v) { return optab[n->op]->flags & OP_UPDATE && n->in[0] == v; }

static const Node *first_collect(const Node *n)
{
	return n->op == OP_Collect ? n : first_collect(n->in[n->op == OP_SGD]->def);
}

/* Asynchronous updates of a table by the rows that were pushed: plain SGD leaves the others as they are. */
static bool by_rows(const StageCx *x, const Node *n)
{
	if (!served_async(x->b->t) || !x->s->server || !updates_rows(n, OP_Collect))
		return false;
	const Node *c = first_collect(n);
	return first_pull(x->b->m->stage[attr_int(c, "from")], attr_int(c, "key"))->nin > 1;
}

/* Does nothing else update it? */
static bool updated_by_rows(const StageCx *x, const Value *v)
{
	for (const Node *n = x->s->update->first; n; n = n->next)
		if (updates_param(n, v) && by_rows(x, n))
			return true;
	return false;
}

void write_shares_table(StageCx *x, Cw *w)
{
	const Stage *s = x->s;

	if (!s->server)
		return;
	cw_blank(w);
	cw_comment(w,
		"what this server holds: key, parts of the gradient, whole or rows, where, which rows and floats of one; who pulls, "
		"leaves of the sum, how many push, rows and sums of one at most; the floats that are pulled, those of each part; how they travel; whether rows "
		"alone are updated");
	cw_open(w, "static const pd_share shares[] =");
	for (const Node *n = s->update->first; n; n = n->next) {
		if (n->op != OP_Collect || attr_int(n, "part"))
			continue;
		const Value *v = param_of(x, n);
		const Stage *from = x->b->m->stage[attr_int(n, "from")];
		const int64_t key = attr_int(n, "key");
		const bool whole = first_pull(from, key)->nin == 1;
		const Volume team = volume_of(x, from, true);
		int parts;
		const char *widths = part_widths(x->b->a, from, key, &parts);
		cw_line(w,
			"{ %s, %" PRId64 ", %d, %s, %" PRId64 " + offsetof(struct params, %s), %" PRId64 ", %" PRId64
			", %" PRId64 ", %d, %d, %d, %d, %" PRId64 ", %d, %s, %s, %s, %s },",
			quoted(x->b->a, v->name), key, parts, whole ? "true" : "false", s->at[REGION_PARAMS],
			(const char *)map_get(&x->layout[REGION_PARAMS].names.of, v), v->param->row, rows_of(v, whole),
			width_of(v, whole), x->b->first_rank[from->id], from->replicas,
			x->b->t->loop.reproducible ? schedule_grains(x->b->m->schedule, from->id) : team.teams,
			team.teams, room_of(from, key, rows_of(v, whole), whole, team), team.sums,
			cut_text(x->b->a, first_pull(from, key)), widths, wires_text(x, from, first_pull(from, key)),
			updated_by_rows(x, v) ? "true" : "false");
	}
	cw_close(w, ";");
}

bool of_rows(const StageCx *x, const Node *n)
{
	if (n->op == OP_SGD)
		return by_rows(x, n);
	if (n->op != OP_Collect && n->op != OP_Add && n->op != OP_Sum)
		return false;
	for (int i = 0; i < n->out[0]->nuses; i++)
		if (n->out[0]->uses[i].node->graph == x->s->update)
			return of_rows(x, n->out[0]->uses[i].node);
	return false;
}

/* Rows that a gradient may have. */
static int64_t most_rows(const StageCx *x, const Node *update)
{
	const Node *c = first_collect(update);
	const Stage *from = x->b->m->stage[attr_int(c, "from")];
	const int64_t key = attr_int(c, "key"), rows = update->in[0]->type.dim[0];
	int parts;

	part_widths(x->b->a, from, key, &parts);
	const int64_t most = room_of(from, key, rows, false, volume_of(x, from, true)) * parts;
	return most < rows ? most : rows;
}

/* The update as of one row, or on a GPU of as many as may come. */
static const Node *row_update(const StageCx *x, const Node *n)
{
	const int64_t wide = width_of(n->in[0], false) * (on_gpu(x) ? most_rows(x, n) : 1);
	Node *one = NEW(x->b->a, Node);

	*one = *n;
	one->in = NEWN(x->b->a, Value *, n->nin);
	for (int i = 0; i < n->nin; i++) {
		one->in[i] = n->in[i];
		if (i == n->nin - 1)
			continue;
		one->in[i] = NEW(x->b->a, Value);
		*one->in[i] = *n->in[i];
		one->in[i]->type = type_make(n->in[i]->type.dtype, 1, (int64_t[]){ wide });
	}
	return one;
}

const NodeKernel *row_kernel(StageCx *x, const Node *n) { return kernel_of(&x->kernels, row_update(x, n)); }

/* Every row that was pushed, as a parameter of its own. */
static void write_row_update(StageCx *x, Cw *w, const Node *n)
{
	const int64_t width = width_of(n->in[0], false);
	const NodeKernel *nk = row_kernel(x, n);
	const char *at = width > 1 ? arena_printf(x->b->a, " * %" PRId64, width) : "";

	if (!nk)
		return;
	cw_line(w, "const int64_t count = pd_collect_rows(%d, &ids, &rows);", share_of(x->s, first_collect(n)));
	cw_line(w, "pd_gradient_rows(%d, ids, rows, count, %" PRId64 ", 0);",
		table_base(x->b, x->s->id, true) + param_index(x->s, n->in[0]), width);
	clock_node(x, w, n);
	if (on_gpu(x)) {
		cw_line(w, "const pd_many all = { .n = %" PRId64 ", .at = { pd_collected(), rows } };",
			width * most_rows(x, n));
		cw_line(w, "%s(&all, 1, %s);", nk->name, value_text(x, n->in[n->nin - 1]));
		cw_line(w, "pd_put_collected(%d);", share_of(x->s, first_collect(n)));
	} else {
		cw_line(w, "for (int64_t i = 0; i < count; i++)");
		cw_line(w, "\t%s(%s + ids[i]%s, rows + i%s, %s, %" PRId64 ");", nk->name, value_text(x, n->in[0]), at,
			at, value_text(x, n->in[n->nin - 1]), width);
	}
	clock_end(x, w);
}

/* Asynchronous: a function for each parameter, with what its update is made from. */
static void write_one_update(StageCx *x, Cw *w, const Value *v, const char *name)
{
	const Graph *g = x->s->update;
	int n = 0, i = 0;
	Buf body = { 0 };
	Cw in = function_body(x, &body);

	for (const Node *k = g->first; k; k = k->next)
		n++;
	bool *wanted = NEWN(x->b->a, bool, n);
	const Node *rows = NULL;
	for (const Node *k = g->first; k; k = k->next)
		if (updates_param(k, v)) {
			want(g, k, wanted);
			rows = by_rows(x, k) ? k : NULL;
		}
	for (const Node *k = g->first; k; k = k->next, i++) {
		wanted[i] &= !of_rows(x, k);
		if (wanted[i] && k->op == OP_Collect)
			write_collect(x, &in, k);
	}
	if (rows) {
		cw_line(&in, "const int32_t *ids;");
		cw_line(&in, "const float *rows;");
	}
	write_some_nodes(x, &in, g, wanted);
	if (rows)
		write_row_update(x, &in, rows);
	write_function(x, w, arena_printf(x->b->a, "static void %s(void)", name), &body, FUNCTION_PLAIN);
}

static void write_serving_each(StageCx *x, Cw *w)
{
	const char *table = "";
	Buf body = { 0 };

	for (const Node *n = x->s->update->first; n; n = n->next) {
		if (n->op != OP_Collect || attr_int(n, "part"))
			continue;
		const Value *v = param_of(x, n);
		const char *name = arena_printf(
			x->b->a, "update_%s", (const char *)map_get(&x->layout[REGION_PARAMS].names.of, v));
		write_one_update(x, w, v, name);
		table = arena_printf(x->b->a, "%s%s%s", table, *table ? ", " : "", name);
	}
	Cw in = function_body(x, &body);
	cw_stmt(&in, "as its gradient comes from a device", "static void (*const updates[])(void) = { %s };", table);
	cw_line(&in, "pd_serve_each(updates);");
	write_function(x, w, function_head(x, "void %s(void)", "serve"), &body, FUNCTION_PLAIN);
}

void write_serving(StageCx *x, Cw *w)
{
	if (served_async(x->b->t)) {
		write_serving_each(x, w);
		return;
	}
	Buf body = { 0 };
	Cw in = function_body(x, &body);

	cw_line(&in, "pd_serve();");
	cw_line(&in, "if (!train)");
	cw_line(&in, "\treturn;");
	for (const Node *n = x->s->update->first; n; n = n->next)
		if (n->op == OP_Collect)
			write_collect(x, &in, n);
	write_function(x, w, function_head(x, "void %s(bool train)", "serve"), &body, FUNCTION_PLAIN);
}

void open_servers(StageCx *x, Cw *w)
{
	if (pulls(x->s))
		cw_line(w, "pd_held_open(held, sizeof held / sizeof *held, %s, %s, chief, REPLICAS);",
			use(x, NAME_ARENA), use(x, NAME_WHICH));
	if (x->s->server)
		cw_line(w, "pd_shares_open(shares, sizeof shares / sizeof *shares, %s);", use(x, NAME_ARENA));
}
