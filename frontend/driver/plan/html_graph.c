/* The graph by stages, for --report: a column per stage, in it a box per module (as PyTorch calls them, where the model tells),
 * lines for values that one box gives another. Where a stage has more modules than fit, those of a parent become one box. */
#include <string.h>
#include "passes/common/page.h"
#include "passes/simulate/timeline.h"
#include "why_report.h"
#include "ir/base/human.h"

enum { STAGES = 16, BOXES = 24, DEPTH = 8, WIDE = 210, TALL = 36, APART = 14, COLUMN = 300, TOP = 64, LETTERS = 30 };

typedef struct Box {
	const char *name;
	int nodes, stage, row;
	double time;
	int64_t bytes; /* of weights */
	Map params;    /* that are counted */
} Box;

typedef struct Drawn {
	const Compile *c;
	Buf *b;
	Box *box;
	int n, cap, first[STAGES + 1], stages;
	Map of;         /* node -> index of its box, from 1 on */
	Map made;       /* name of a value -> the same, of the box that makes it */
	int64_t *bytes; /* n x n: from, to; of a microbatch */
} Drawn;

static bool is_step(const Node *n) { return n->op != OP_Send && n->op != OP_Recv; }

/* The module down to a depth; of a node without one what it does. */
static const char *box_name(Arena *a, const Node *n, int depth)
{
	const char *path = loc_module(a, &n->loc), *end = path;

	if (!path || !*path)
		return arena_printf(a, "(%s)", optab[n->op]->name);
	for (int k = 0; k < depth && end; k++)
		end = strchr(end + (k > 0), '.');
	return end ? arena_strn(a, path, (size_t)(end - path)) : path;
}

static int find_box(Drawn *d, int stage, const char *name, Map *at)
{
	const int old = (int)(uintptr_t)map_get(at, name);

	if (old)
		return old - 1;
	if (d->n - d->first[stage] == BOXES)
		name = "and others";
	const int rest = (int)(uintptr_t)map_get(at, name);
	if (rest)
		return rest - 1;
	PUSH(d->c->a, d->box, d->n, d->cap) = (Box){ .name = name, .stage = stage, .row = d->n - d->first[stage] };
	map_init(&d->box[d->n - 1].params, d->c->a, true);
	map_put(at, name, (void *)(uintptr_t)d->n);
	return d->n - 1;
}

static int boxes_of(const Drawn *d, const Graph *g, int depth)
{
	Map seen;
	int n = 0;

	map_init(&seen, d->c->a, true);
	for (const Node *x = g->first; x; x = x->next) {
		const char *name = is_step(x) ? box_name(d->c->a, x, depth) : NULL;

		if (name && !map_has(&seen, name)) {
			map_put(&seen, name, (void *)1);
			n++;
		}
	}
	return n;
}

static void add_node(Drawn *d, int box, const Node *x)
{
	Box *b = &d->box[box];

	b->nodes++;
	b->time += x->time;
	for (int i = 0; i < x->nin; i++) {
		const Value *v = x->in[i];

		if (!v || v->kind != VAL_PARAM || map_has(&b->params, v->name))
			continue;
		map_put(&b->params, v->name, (void *)1);
		b->bytes += type_bytes(&v->type);
	}
	for (int i = 0; i < x->nout; i++)
		if (x->out[i])
			map_put(&d->made, x->out[i]->name, (void *)(uintptr_t)(box + 1));
}

/* Boxes of all stages. */
static void collect(Drawn *d)
{
	map_init(&d->of, d->c->a, false);
	map_init(&d->made, d->c->a, true);
	for (int t = 0; t < d->stages; t++) {
		const Graph *g = d->c->m->stage[t]->forward;
		int depth = DEPTH;
		Map at;

		while (depth > 1 && boxes_of(d, g, depth) > BOXES)
			depth--;
		d->first[t] = d->n;
		map_init(&at, d->c->a, true);
		for (const Node *x = g->first; x; x = x->next) {
			if (!is_step(x))
				continue;
			const int box = find_box(d, t, box_name(d->c->a, x, depth), &at);
			map_put(&d->of, x, (void *)(uintptr_t)(box + 1));
			add_node(d, box, x);
		}
	}
	d->first[d->stages] = d->n;
}

/* Who gives whom how many bytes, each value once. What a stage receives has the name that it has where it is made. */
static void connect(Drawn *d)
{
	Map told;

	map_init(&told, d->c->a, true);
	d->bytes = NEWN(d->c->a, int64_t, (int64_t)d->n * d->n);
	for (int t = 0; t < d->stages; t++)
		for (const Node *x = d->c->m->stage[t]->forward->first; x; x = x->next)
			for (int i = 0; is_step(x) && i < x->nin; i++) {
				const Value *v = x->in[i];
				const int to = (int)(uintptr_t)map_get(&d->of, x) - 1;

				if (!v || !v->def)
					continue;
				const int from = (int)(uintptr_t)map_get(&d->made, v->name) - 1;
				const char *key = arena_printf(d->c->a, "%d %d %s", from, to, v->name);
				if (from < 0 || from == to || map_has(&told, key))
					continue;
				map_put(&told, key, (void *)1);
				d->bytes[(int64_t)from * d->n + to] += type_bytes(&v->type);
			}
}

/* ---- the picture ---- */

static double left(const Box *x) { return 20 + x->stage * COLUMN; }

static double top(const Box *x) { return TOP + x->row * (TALL + APART); }

/* To the next box below straight, past others in a bow on the right, to another stage from side to side. */
static void edge(const Drawn *d, int from, int to)
{
	const Box *x = &d->box[from], *y = &d->box[to];
	const double x0 = left(x), y0 = top(x) + TALL / 2.0, x1 = left(y), y1 = top(y) + TALL / 2.0;
	const double bow = 20 + 4 * (y->row - x->row < 10 ? y->row - x->row : 10);

	buf_puts(d->b, "<path class=\"e\" marker-end=\"url(#tip)\" d=\"");
	if (x->stage == y->stage && y->row == x->row + 1)
		buf_printf(d->b, "M%g %gV%g", x0 + WIDE / 2.0, top(x) + TALL, top(y) - 2);
	else if (x->stage == y->stage)
		buf_printf(d->b, "M%g %gC%g %g %g %g %g %g", x0 + WIDE, y0 + 6, x0 + WIDE + bow, y0 + 6,
			x0 + WIDE + bow, y1 - 6, x0 + WIDE + 2, y1 - 6);
	else if (x->stage < y->stage)
		buf_printf(
			d->b, "M%g %gC%g %g %g %g %g %g", x0 + WIDE, y0, x0 + WIDE + 60, y0, x1 - 60, y1, x1 - 2, y1);
	else
		buf_printf(
			d->b, "M%g %gC%g %g %g %g %g %g", x0, y0, x0 - 60, y0, x1 + WIDE + 60, y1, x1 + WIDE + 2, y1);
	buf_puts(d->b, "\"><title>");
	buf_xml(d->b, arena_printf(d->c->a, "%s to %s: %s per microbatch", x->name, y->name,
			      str_bytes(d->c->a, d->bytes[(int64_t)from * d->n + to])));
	buf_puts(d->b, "</title></path>\n");
}

/* The end of a long name tells more than its beginning; cut where a character begins. */
static const char *fitting(Arena *a, const char *name)
{
	const size_t n = strlen(name);

	if (n <= LETTERS)
		return name;
	name += n - LETTERS;
	while (((unsigned char)*name & 0xc0) == 0x80)
		name++;
	return arena_printf(a, "...%s", name);
}

static void draw_box(const Drawn *d, const Box *x)
{
	Arena *a = d->c->a;
	const char *facts = arena_printf(a, "%d node%s, %s%s%s", x->nodes, x->nodes == 1 ? "" : "s",
		time_text(a, x->time), x->bytes ? ", " : "", x->bytes ? str_bytes(a, x->bytes) : "");

	buf_printf(d->b, "<rect class=\"k box\" x=\"%g\" y=\"%g\" width=\"%d\" height=\"%d\" rx=\"4\"><title>", left(x),
		top(x), WIDE, TALL);
	buf_xml(d->b, x->name);
	buf_printf(d->b, "</title></rect><text class=\"name\" x=\"%g\" y=\"%g\">", left(x) + 8, top(x) + 15);
	buf_xml(d->b, fitting(a, x->name));
	buf_printf(d->b, "</text><text x=\"%g\" y=\"%g\">%s</text>\n", left(x) + 8, top(x) + 29, facts);
}

static void column(const Drawn *d, int t)
{
	Arena *a = d->c->a;
	const Stage *s = d->c->m->stage[t];
	const double x = 20 + t * COLUMN;
	int64_t out = 0;

	for (int i = d->first[t]; i < d->first[t + 1]; i++)
		for (int k = d->first[t + 1]; k < d->n; k++)
			out += d->bytes[(int64_t)i * d->n + k];
	buf_printf(d->b, "<text class=\"h\" x=\"%g\" y=\"20\">stage %d</text>\n<text x=\"%g\" y=\"36\">", x, t, x);
	buf_xml(d->b, devices_text(d->c, s, 34));
	buf_printf(d->b, "</text>\n<text x=\"%g\" y=\"52\">%s</text>\n", x,
		out ? arena_printf(a, "gives on %s per microbatch", str_bytes(a, out)) : "");
}

static const char style[] =
	".k.box { stroke: #59636e } .name { font-weight: bold }\n"
	".e { fill: none; stroke: #59636e; stroke-width: 1.3 } .e:hover { stroke-width: 4 }\n"
	".tip { fill: #59636e }\n"
	"@media (prefers-color-scheme: dark) { .k.box, .e { stroke: #9198a1 } .tip { fill: #9198a1 } }\n"
	"svg.graph { width: auto; min-width: 0; max-width: none }\n";

void graph_picture(const Compile *c, Buf *b)
{
	const int all = module_stages(c->m);
	Drawn d = { .c = c, .b = b, .stages = all < STAGES ? all : STAGES };
	int rows = 0;

	collect(&d);
	connect(&d);
	for (int i = 0; i < d.n; i++)
		rows = d.box[i].row >= rows ? d.box[i].row + 1 : rows;
	const int wide = d.stages * COLUMN + 20, tall = TOP + rows * (TALL + APART) + 10;
	page_wide(b, "the graph by stages");
	buf_printf(b,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"graph\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n"
		"<style>\n%s</style>\n<defs><marker id=\"tip\" markerWidth=\"7\" markerHeight=\"7\" refX=\"5\" refY=\"3.5\" "
		"orient=\"auto\"><path class=\"tip\" d=\"M0 0L7 3.5L0 7z\"/></marker></defs>\n"
		"<rect class=\"back\" width=\"%d\" height=\"%d\"/>\n",
		wide, tall, wide, tall, style, wide, tall);
	for (int t = 0; t < d.stages; t++)
		column(&d, t);
	for (int i = 0; i < d.n; i++)
		for (int k = 0; k < d.n; k++)
			if (d.bytes[(int64_t)i * d.n + k])
				edge(&d, i, k);
	for (int i = 0; i < d.n; i++)
		draw_box(&d, &d.box[i]);
	buf_puts(b, "</svg>\n");
	page_wide_end(b);
	buf_puts(b,
		"<p>A box is a module of the model, or what nodes without one do; in it how many nodes, the time of "
		"their forward and the bytes of their weights. A line is what one gives another.");
	if (d.stages < all)
		buf_printf(b, " Of %d stages the first %d are drawn.", all, d.stages);
	buf_puts(b, "</p>\n");
}
