/* The page of what every pass changed: a table of passes (lines removed and added, operators more and fewer), behind it the
 * differences side by side. */
#include "changes.h"
#include <stdlib.h>
#include <string.h>
#include "ir/op.h"
#include "passes/common/page.h"
#include "diff.h"

enum { CONTEXT = 2, MOST_ROWS = 3000, OPENED = 60, OPS_SHOWN = 12 };

const char changes_style[] =
	"table.p { margin-bottom: 1em } .p td, .p th { padding-right: 10px; font-weight: normal } "
	".p tr.z td { color: var(--dim) } .idle { display: block; margin: 6px 0 } "
	".idle:not(:has(:checked)) + .wide tr.z { display: none } .del { color: var(--del) } .ins { color: var(--ins) }\n"
	"details { margin: 6px 0 } summary b { font-size: 14px }\n"
	"table.d { table-layout: fixed; width: 100%; font: 12px/1.35 ui-monospace, monospace }\n"
	".d th { width: 42px; padding: 0 6px 0 0; text-align: right; color: var(--dim); font-weight: normal; "
	"user-select: none }\n"
	".d td { white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 2; padding: 0 }\n"
	".d td.m { background: var(--minus) } .d td.p { background: var(--plus) } .d td.e { background: var(--soft) }\n"
	".d td.m b { background: var(--minus-word); font-weight: normal } .d td.p b { background: var(--plus-word); "
	"font-weight: normal }\n"
	".d tr.s td { color: var(--dim); background: var(--soft); padding-left: 52px }\n"
	"@media (max-width: 600px) { .d th { width: 0; padding: 0; font-size: 0 } .d tr.s td { padding-left: 0 } }\n";

/* Nodes by operator, of the graph or of all stages. */
static void count_nodes(const Module *m, int count[OP_COUNT])
{
	memset(count, 0, OP_COUNT * sizeof *count);
	for (const Node *n = m->graph ? m->graph->first : NULL; n; n = n->next)
		count[n->op]++;
	for (int i = 0; i < m->nstage; i++) {
		Graph *g[4];
		const int k = stage_graphs(m->stage[i], g);

		for (int j = 0; j < k; j++)
			for (const Node *n = g[j]->first; n; n = n->next)
				count[n->op]++;
	}
}

static void ops_text(Buf *b, const int *before, const int *after)
{
	int shown = 0, rest = 0;

	for (int i = 0; i < OP_COUNT; i++) {
		const int more = after[i] - before[i];

		if (!more)
			continue;
		if (shown < OPS_SHOWN)
			buf_printf(b, "%s<span class=\"%s\">%s %+d</span>", shown ? ", " : "", more > 0 ? "ins" : "del",
				optab[i]->name, more);
		else
			rest++;
		shown++;
	}
	if (rest)
		buf_printf(b, " and %d other operators", rest);
}

static void remember(Changes *c, const Module *m, const char *text)
{
	free(c->text);
	c->text = strdup(text);
	if (!c->text)
		bug("no memory for the text of the module");
	count_nodes(m, c->count);
}

void changes_begin(Changes *c, const Module *m, const char *text)
{
	buf_clear(&c->table);
	buf_clear(&c->parts);
	c->idle = 0;
	remember(c, m, text);
}

void changes_free(Changes *c)
{
	buf_free(&c->table);
	buf_free(&c->parts);
	free(c->text);
	c->text = NULL;
}

static void table_row(
	Changes *c, int number, const char *name, const char *help, const Diff *d, const int *now, bool dumped)
{
	Buf *b = &c->table;
	const bool same = !d->removed && !d->added;
	int nodes = 0;

	c->idle += same;
	for (int i = 0; i < OP_COUNT; i++)
		nodes += now[i];
	buf_printf(b, "<tr%s><td class=\"v\">%d</td><td>", same ? " class=\"z\"" : "", number);
	if (same)
		buf_xml(b, name);
	else
		buf_printf(b, "<a href=\"#pass-%s\">%s</a>", name, name);
	buf_puts(b, "</td><td>");
	buf_xml(b, help);
	buf_printf(b, "</td><td class=\"v del\">%s%.0d</td><td class=\"v ins\">%s%.0d</td><td class=\"v\">%d</td><td>",
		d->removed ? "&#8722;" : "", d->removed, d->added ? "+" : "", d->added, nodes);
	ops_text(b, c->count, now);
	buf_puts(b, "</td>");
	if (dumped)
		buf_printf(b, "<td><a href=\"%02d-%s.pdir\">text</a></td>", number, name);
	buf_puts(b, "</tr>\n");
}

void changes_add(
	Changes *c, int number, const char *name, const char *help, const Module *m, const char *text, bool dumped)
{
	Arena *a = arena_new();
	const Diff d = diff_texts(a, c->text, text);
	int now[OP_COUNT];

	count_nodes(m, now);
	table_row(c, number, name, help, &d, now, dumped);
	if (d.removed || d.added) {
		buf_printf(&c->parts,
			"<details id=\"pass-%s\"%s><summary><b>%s</b> <span class=\"del\">&#8722;%d</span> <span class=\"ins\">+%d</span>"
			"</summary>\n<table class=\"d\">\n",
			name, d.removed + d.added <= OPENED ? " open=\"open\"" : "", name, d.removed, d.added);
		diff_html(&c->parts, &d, CONTEXT, MOST_ROWS);
		buf_puts(&c->parts, "</table></details>\n");
	}
	arena_free(a);
	remember(c, m, text);
}

void changes_body(Buf *b, const Changes *c)
{
	if (c->idle)
		buf_printf(b,
			"<label class=\"idle\"><input type=\"checkbox\"/> with the %d that changed nothing</label>\n",
			c->idle);
	page_wide(b, "passes");
	buf_puts(b,
		"<table class=\"p\">\n<tr><th></th><th>pass</th><th>what it does</th><th colspan=\"2\">lines</th><th class=\"v\">nodes</th>"
		"<th>operators</th></tr>\n");
	buf_puts(b, buf_str(&c->table));
	buf_puts(b, "</table>\n");
	page_wide_end(b);
	buf_puts(b, buf_str(&c->parts));
	/* a link into a closed part opens it */
	buf_puts(b, "<script>\n//<![CDATA[\naddEventListener('hashchange', () => {\n"
		    "\tconst part = document.getElementById(location.hash.slice(1));\n"
		    "\tif (part) { part.open = true; part.scrollIntoView(); }\n});\n//]]>\n</script>\n");
}

void changes_page(Buf *b, const Changes *c, const char *title)
{
	page_begin(b, title, changes_style);
	changes_body(b, c);
	page_end(b);
}
