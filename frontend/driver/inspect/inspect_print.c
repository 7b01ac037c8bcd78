/* pdcc inspect: the tables, at most 100 columns wide. */
#include <stdlib.h>
#include <string.h>
#include "inspect.h"
#include "ir/base/human.h"

enum { PARAMS_SHOWN = 40, NODES_SHOWN = 10, CUTS_SHOWN = 20, BAR = 20, WIDTH = 100 };

/* ---- cells ---- */

/* At most n columns: the end of a long name tells more than its beginning. */
const char *inspect_name(Arena *a, const char *s, int n)
{
	s = str_shown(a, s);
	const int len = (int)strlen(s);

	if (len <= n)
		return s;
	for (s += len - (n - 3); ((unsigned char)*s & 0xC0) == 0x80; s++) /* no half of a character */
		;
	return arena_printf(a, "...%s", s);
}

static const char *scaled(Arena *a, double x, const char *const *unit, int n)
{
	int k = 0;

	for (; x >= 999.5 && k < n - 1; k++)
		x /= 1000;
	return arena_printf(a, x >= 99.95 || x == 0 ? "%.0f %s" : x >= 9.995 ? "%.1f %s" : "%.2f %s", x, unit[k]);
}

static const char *str_flops(Arena *a, double flops)
{
	static const char *const unit[] = { "FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP" };

	return scaled(a, flops, unit, 6);
}

static const char *str_time(Arena *a, double seconds)
{
	static const char *const unit[] = { "us", "ms", "s" };

	return scaled(a, seconds * 1e6, unit, 3);
}

/* A bar for x of `most`, of whole characters and two blanks in front; what is there at all has one. */
static const char *bar(Arena *a, double x, double most)
{
	const int n = most > 0 ? (int)(x / most * BAR + 0.5) : 0;
	char *s = arena_alloc(a, BAR + 3);

	if (x > 0) {
		memset(s, ' ', 2);
		memset(s + 2, '#', (size_t)(n ? n : 1));
	}
	return s;
}

/* Text in lines of at most WIDTH columns, each behind two blanks. */
static void print_wrapped(const char *s)
{
	int at = 0;

	while (*s) {
		const int n = (int)strcspn(s, " ");

		if (at && at + 1 + n > WIDTH) {
			putchar('\n');
			at = 0;
		}
		at += printf(at ? " %.*s" : "  %.*s", n, s);
		for (s += n; *s == ' '; s++)
			;
	}
	putchar('\n');
}

static double percent(double x, double all) { return all > 0 ? 100 * x / all : 0; }

/* ---- what goes in and out ---- */

static void print_head(const Look *l)
{
	const Module *m = l->m;
	int nodes = 0;

	for (int i = 1; i < OP_COUNT; i++)
		nodes += l->count[i];
	printf("%s: opset %d, %d forward nodes, microbatch %lld%s\n", str_shown(l->c->a, m->name), m->opset, nodes,
		(long long)m->batch, m->export_batch && m->export_batch != m->batch ? " (re-bound)" : "");
	for (int i = 0; i < l->nio; i++) {
		const struct IoRow *x = &l->io[i];

		printf("  %-7s %-40s %s", x->out ? "output" : "input", inspect_name(l->c->a, x->name, 40), x->type);
		if (x->axis >= 0)
			printf(", batch axis %d", x->axis);
		printf("%s\n", x->label ? ", labels" : "");
	}
}

/* ---- parameters ---- */

static const char *const kinds[] = { "dense", "row-sparse", "mixed", "tied", "frozen", "buffer", "unused" };
enum { NKINDS = sizeof kinds / sizeof *kinds };

static int by_size(const void *x, const void *y)
{
	const ParamRow *p = *(const ParamRow *const *)x, *q = *(const ParamRow *const *)y;

	return p->bytes != q->bytes ? (p->bytes < q->bytes) - (p->bytes > q->bytes) : (p > q) - (p < q);
}

/* Which rows are shown where there are many: the largest, and all that are of a kind of their own. */
static bool *shown(const Look *l)
{
	Arena *a = l->c->a;
	bool *show = NEWN(a, bool, l->nparam);
	const ParamRow **order = NEWN(a, const ParamRow *, l->nparam);

	for (int i = 0; i < l->nparam; i++)
		order[i] = &l->param[i];
	qsort(order, (size_t)l->nparam, sizeof *order, by_size);
	for (int i = 0; i < l->nparam; i++)
		show[order[i] - l->param] = i < PARAMS_SHOWN || l->c->o->verbose;
	for (int i = 0; i < l->nparam; i++) {
		const char *k = l->param[i].kind;

		show[i] |= strcmp(k, "row-sparse") == 0 || strcmp(k, "mixed") == 0 || strcmp(k, "tied") == 0;
	}
	return show;
}

static void print_params(const Look *l)
{
	Arena *a = l->c->a;
	const bool *show = shown(l);
	int64_t all = 0, bytes = 0;
	int hidden = 0;

	printf("\nparameters\n  %-41s %-10s %-20s %12s %11s\n", "name", "kind", "type", "elements", "size");
	for (int i = 0; i < l->nparam; i++) {
		const ParamRow *p = &l->param[i];

		all += p->elements;
		bytes += p->bytes;
		hidden += !show[i];
		if (!show[i])
			continue;
		printf("  %-41s %-10s %-20s %12lld %11s\n", inspect_name(a, p->name, 41), p->kind, p->shape,
			(long long)p->elements, str_bytes(a, p->bytes));
		if (strcmp(p->kind, "mixed") == 0 || strcmp(p->kind, "tied") == 0)
			printf("    read by %.86s%s\n", p->readers, strlen(p->readers) > 86 ? ".." : "");
	}
	if (hidden)
		printf("  ... and %d smaller ones (-v lists all)\n", hidden);
	for (int k = 0; k < NKINDS; k++) {
		int64_t n = 0, size = 0;
		int count = 0;

		for (int i = 0; i < l->nparam; i++)
			if (strcmp(l->param[i].kind, kinds[k]) == 0) {
				count++;
				n += l->param[i].elements;
				size += l->param[i].bytes;
			}
		if (count)
			printf("  %5d %-67s %12lld %11s\n", count, kinds[k], (long long)n, str_bytes(a, size));
	}
	printf("  %5d %-67s %12lld %11s\n", l->nparam, "in all", (long long)all, str_bytes(a, bytes));
}

/* ---- operators ---- */

typedef struct OpRow {
	int op, count;
	double flops;
} OpRow;

static int by_flops(const void *x, const void *y)
{
	const OpRow *p = x, *q = y;

	if (p->flops < q->flops || p->flops > q->flops)
		return p->flops < q->flops ? 1 : -1;
	return p->count != q->count ? q->count - p->count : p->op - q->op;
}

static void print_ops(const Look *l)
{
	Arena *a = l->c->a;
	OpRow row[OP_COUNT];
	int n = 0;

	for (int i = 1; i < OP_COUNT; i++)
		if (l->count[i])
			row[n++] = (OpRow){ i, l->count[i], l->op_flops[i] };
	qsort(row, (size_t)n, sizeof *row, by_flops);
	printf("\noperators, forward\n  %-26s %6s %14s %7s\n", "op", "nodes", "arithmetic", "share");
	for (int i = 0; i < n; i++)
		printf("  %-26s %6d %14s %6.1f%%%s\n", optab[row[i].op]->name, row[i].count, str_flops(a, row[i].flops),
			percent(row[i].flops, l->flops[0]), bar(a, row[i].flops, l->flops[0]));
	printf("per microbatch: forward %s", str_flops(a, l->flops[0]));
	if (l->stage)
		printf(", backward %s", str_flops(a, l->flops[1]));
	if (l->flops[2] > 0)
		printf("; the update of a step %s", str_flops(a, l->flops[2]));
	putchar('\n');
	if (l->missing) {
		printf("\nno training graph, so only the forward is shown:\n");
		print_wrapped(l->missing);
	}
}

/* ---- memory ---- */

static void print_memory(const Look *l)
{
	const Stage *s = l->stage;
	Arena *a = l->c->a;

	if (!s)
		return;
	const struct {
		const char *name;
		int64_t bytes;
	} row[] = { { "weights and buffers", s->bytes[REGION_PARAMS] },
		{ arena_printf(
			  a, "optimizer state (%s)", setting_word(SET_OF_OptKind, opt_kind(&l->c->o->t.model.opt))),
			s->bytes[REGION_STATE] },
		{ "gradients", s->bytes[REGION_GRADS] + s->bytes[REGION_LEAF] },
		{ arena_printf(a, "kept from forward to backward%s", s->inflight > 1 ? ", all in flight" : ""),
			s->bytes[REGION_SLOT] + s->bytes[REGION_STACK] },
		{ "temporaries", s->bytes[REGION_TMP] }, { "scratch of the library", s->bytes[REGION_SCRATCH] } };
	int64_t rest = s->arena;

	printf("\nmemory of one device that holds all, at microbatch %lld\n", (long long)l->m->batch);
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		rest -= row[i].bytes;
		printf("  %-46s %12s %6.1f%%%s\n", row[i].name, str_bytes(a, row[i].bytes),
			percent((double)row[i].bytes, (double)s->arena),
			bar(a, (double)row[i].bytes, (double)s->arena));
	}
	if (rest > 0)
		printf("  %-46s %12s %6.1f%%\n", "others", str_bytes(a, rest), percent((double)rest, (double)s->arena));
	printf("  %-46s %12s\n", "in all", str_bytes(a, s->arena));
}

/* ---- the nodes that take most ---- */

static double time_of(const Item *x) { return x->time[PHASE_FWD] + x->time[PHASE_BWD]; }
static int64_t memory_of(const Item *x) { return x->weights + x->kept; }

static int by_time(const void *x, const void *y)
{
	const Item *p = *(const Item *const *)x, *q = *(const Item *const *)y;

	return time_of(p) < time_of(q) ? 1 : time_of(p) > time_of(q) ? -1 : (p > q) - (p < q);
}

static int by_memory(const void *x, const void *y)
{
	const Item *p = *(const Item *const *)x, *q = *(const Item *const *)y;

	return memory_of(p) < memory_of(q) ? 1 : memory_of(p) > memory_of(q) ? -1 : (p > q) - (p < q);
}

static const char *op_name(const Item *x) { return x->op ? optab[x->op]->name : "-"; }

static void print_nodes(const Look *l)
{
	Arena *a = l->c->a;
	const Item **order = NEWN(a, const Item *, l->nitem);
	const double all = l->time[PHASE_FWD] + l->time[PHASE_BWD];

	for (int i = 0; i < l->nitem; i++)
		order[i] = &l->item[i];
	qsort(order, (size_t)l->nitem, sizeof *order, by_time);
	printf("\nwhere time goes, per microbatch (estimate, before loops are fused)\n");
	printf("  %-42s %-24s %9s %9s %6s\n", "node", "op", "forward", "backward", "share");
	for (int i = 0; i < l->nitem && i < NODES_SHOWN && time_of(order[i]) > 0; i++)
		printf("  %-42s %-24.24s %9s %9s %5.1f%%\n", inspect_name(a, order[i]->name, 42), op_name(order[i]),
			str_time(a, order[i]->time[PHASE_FWD]), l->stage ? str_time(a, order[i]->time[PHASE_BWD]) : "-",
			percent(time_of(order[i]), all));
	printf("  %-67s %9s %9s\n", "all", str_time(a, l->time[PHASE_FWD]),
		l->stage ? str_time(a, l->time[PHASE_BWD]) : "-");
	if (l->stage && l->time[PHASE_UPDATE] > 0)
		printf("  %-67s %9s\n", "the update of a step", str_time(a, l->time[PHASE_UPDATE]));
	if (!l->stage)
		return;
	qsort(order, (size_t)l->nitem, sizeof *order, by_memory);
	printf("\nwhere memory goes\n  %-42s %-24s %12s %10s %6s\n", "node", "op", "parameters *", "kept", "share");
	for (int i = 0; i < l->nitem && i < NODES_SHOWN && memory_of(order[i]); i++)
		printf("  %-42s %-24.24s %12s %10s %5.1f%%\n", inspect_name(a, order[i]->name, 42), op_name(order[i]),
			str_bytes(a, order[i]->weights), str_bytes(a, order[i]->kept),
			percent((double)memory_of(order[i]), (double)l->stage->arena));
	printf("  * with gradients and optimizer state; at the node that reads them first\n");
}

/* ---- cuts ---- */

/* Of many cuts one per equal share of time: the cheapest, the later of equals. */
static int choose_cuts(const Look *l, const struct CutRow **pick)
{
	int n = 0;

	if (l->ncut <= CUTS_SHOWN) {
		for (int i = 0; i < l->ncut; i++)
			pick[n++] = &l->cut[i];
		return n;
	}
	for (int k = 0; k < CUTS_SHOWN; k++) {
		const struct CutRow *best = NULL;

		for (int i = 0; i < l->ncut; i++) {
			const struct CutRow *x = &l->cut[i];

			if ((int)(x->before * CUTS_SHOWN) == k && (!best || x->bytes <= best->bytes))
				best = x;
		}
		if (best)
			pick[n++] = best;
	}
	return n;
}

/* How far from the middle. */
static double off(const struct CutRow *x) { return x->before < 0.5 ? 0.5 - x->before : x->before - 0.5; }

static void print_cuts(const Look *l)
{
	Arena *a = l->c->a;
	const struct CutRow *pick[CUTS_SHOWN], *half = NULL;
	const int n = choose_cuts(l, pick);
	int64_t most = 0;

	for (int i = 0; i < l->ncut; i++) {
		const struct CutRow *x = &l->cut[i];

		most = x->bytes > most ? x->bytes : most;
		if (x->before > 0.35 && x->before < 0.65 &&
			(!half || x->bytes < half->bytes || (x->bytes == half->bytes && off(x) < off(half))))
			half = x;
	}
	printf("\nplaces to cut a pipeline: %d", l->ncut);
	if (n < l->ncut)
		printf(", the cheapest of every %d%% of the time", 100 / CUTS_SHOWN);
	printf("\n");
	if (n)
		printf("  %-37s %-19s %6s %10s\n", "in front of", "op", "time", "crosses");
	for (int i = 0; i < n; i++)
		printf("  %-37s %-19.19s %5.1f%% %10s%s\n", inspect_name(a, pick[i]->node, 37),
			optab[pick[i]->op]->name, 100 * pick[i]->before, str_bytes(a, pick[i]->bytes),
			bar(a, (double)pick[i]->bytes, (double)most));
	if (half)
		printf("two stages: in front of '%s', %.0f%% of the time lies before it\n",
			inspect_name(a, half->node, 50), 100 * half->before);
}

void inspect_print(const Look *l)
{
	print_head(l);
	print_params(l);
	print_ops(l);
	print_memory(l);
	print_nodes(l);
	print_cuts(l);
}
