/* How the gradients of a stage travel, for plan.txt: sums over its replicas with their algorithm, rows that are gathered, what is
 * pulled from servers and pushed to them. */
#include <inttypes.h>
#include <string.h>
#include "codegen/write/build.h"

/* ---- sums ---- */

static int64_t sum_bytes(const Node *n)
{
	int64_t bytes = 0;

	for (int i = 0; i < n->nin; i++)
		bytes += type_bytes(attr_int(n, "each") ? &n->in[i]->def->in[0]->type : &n->in[i]->type);
	return bytes;
}

static const char *algorithm(const Build *b, const Node *n)
{
	const char *by = attr_str(n, "by"), *codec = attr_str(n, "codec");

	if (b->t && b->t->loop.reproducible)
		return "the tree of --reproducible";
	if (attr_int(n, "each"))
		return "every replica its part (ReduceScatter), in every backward; it has that sum and the state of the part";
	if (attr_int(n, "parts"))
		return "every replica its part (ReduceScatter), whose state it has";
	if (strcmp(codec, "none"))
		return arena_printf(b->a, "ring, packed by %s%s%s; a small AllReduce as it is", codec,
			attr_int(n, "feedback") ? " with error feedback" : "",
			attr_int(n, "guard") ? " where the first steps are faster so" : "");
	return !strcmp(by, "auto")    ? "ring, for a small AllReduce everyone to everyone"
	       : !strcmp(by, "hosts") ? "ring within hosts, then between them"
	                              : by;
}

/* Sums of one algorithm as a line. */
static void sums(const Build *b, Buf *out, const Stage *s)
{
	const char *told = NULL;

	for (const Node *n = s->update->first; n; n = n->next) {
		if (n->op != OP_AllReduce || strcmp(attr_str(n, "over"), "replicas"))
			continue;
		const char *by = algorithm(b, n);
		int64_t bytes = 0;
		int k = 0, early = 0, same = 0;
		for (const Node *x = s->update->first; x != n; x = x->next)
			same |= x->op == OP_AllReduce && !strcmp(attr_str(x, "over"), "replicas") &&
			        !strcmp(algorithm(b, x), by);
		if (same)
			continue;
		told = told ? "               " : "    gradients  ";
		for (const Node *x = n; x; x = x->next)
			if (x->op == OP_AllReduce && !strcmp(attr_str(x, "over"), "replicas") &&
				!strcmp(algorithm(b, x), by)) {
				bytes += sum_bytes(x);
				early += attr_int(x, "bucket") >= 0;
				k++;
			}
		if (owned_sums(s))
			buf_printf(out,
				"%s%s, each pushed to the one of %d replicas that owns its parameter when the last backward has made it; the owner "
				"adds and updates, and sends the parameter to the others\n",
				told, size_text(b->a, bytes), s->replicas);
		else
			buf_printf(out, "%s%s summed over %d replicas, %s; algorithm: %s\n", told,
				size_text(b->a, bytes), s->replicas,
				!early || k == 1 ? "when all are made"
						 : arena_printf(b->a,
							   "in %d parts, each when it is made in the last backward", k),
				by);
	}
}

/* ---- tables and servers ---- */

static const char *and_name(const Build *b, const char *list, const Value *v)
{
	return arena_printf(b->a, "%s%s%s", list, *list ? ", " : "", v->name);
}

static void rows(const Build *b, Buf *out, const Stage *s)
{
	const char *names = "";

	for (const Node *n = s->update->first; n; n = n->next)
		if (n->op == OP_SGDRows && value_parts(n->in[1], OP_Stack))
			names = and_name(b, names, n->in[0]);
	if (*names)
		buf_printf(out, "    rows       gathered over %d replicas (AllGatherv): %s\n", s->replicas, names);
}

static bool pulled_before(const Stage *s, const Node *n)
{
	for (const Node *x = s->forward->first; x != n; x = x->next)
		if (x->op == OP_Pull && x->in[0] == n->in[0])
			return true;
	return false;
}

static void servers(const Build *b, Buf *out, const Stage *s)
{
	const char *tables = "", *slices = "", *wire = "";
	int64_t bytes = 0;
	int whole = 0;

	for (const Node *n = s->forward->first; n; n = n->next) {
		if (n->op != OP_Pull || pulled_before(s, n))
			continue;
		wire = *attr_str(n, "wire") ? attr_str(n, "wire") : wire;
		if (n->nin > 1)
			tables = and_name(b, tables, n->in[0]);
		else if (attr_int(n, "ncut"))
			slices = and_name(b, slices, n->in[0]);
		else
			bytes += type_bytes(&n->in[0]->type);
		whole += n->nin == 1 && !attr_int(n, "ncut");
	}
	if (!whole && !*tables && !*slices)
		return;
	buf_puts(out, "    servers   ");
	if (*tables)
		buf_printf(out, " rows of %s", tables);
	if (*slices)
		buf_printf(out, "%s the slice of %s", *tables ? ";" : "", slices);
	if (whole)
		buf_printf(out, "%s %d parameter%s whole (%s)", *tables || *slices ? ";" : "", whole,
			whole == 1 ? "" : "s", size_text(b->a, bytes));
	buf_printf(out, ": pulled and pushed in every step%s%s\n", *wire ? ", as " : "", wire);
}

/* What is gathered of weights that are updated in parts: behind the update, or, with --zero 3, by every forward and backward. */
static void gathered(const Build *b, Buf *out, const Stage *s)
{
	Graph *g[4];
	const int ngraph = stage_graphs(s, g);
	const char *what = "";
	int64_t updated = 0;

	for (const Node *n = s->update->first; n; n = n->next)
		for (int i = 0; n->op == OP_AllGather && i < n->nin; i++)
			updated += type_bytes(&n->in[i]->type);
	if (updated)
		buf_printf(out, "    weights    %s gathered behind the update\n", size_text(b->a, updated));
	for (int k = 0; k < ngraph; k++) {
		int64_t bytes = 0, buckets = 0;
		for (const Node *n = g[k]->first; n; n = n->next)
			if (n->op == OP_GatherWeight) {
				bytes += type_bytes(&n->out[0]->type);
				buckets = attr_int(n, "bucket") + 1;
			}
		if (buckets)
			what = arena_printf(b->a, "%s%s%s in each %s, in %" PRId64 " buckets", what, *what ? "; " : "",
				size_text(b->a, bytes), g[k]->name, buckets);
	}
	if (*what)
		buf_printf(out, "    weights    gathered from %d replicas, each of which has a part: %s\n", s->replicas,
			what);
}

void plan_ways(const Build *b, Buf *out, const Stage *s)
{
	sums(b, out, s);
	gathered(b, out, s);
	rows(b, out, s);
	servers(b, out, s);
}
