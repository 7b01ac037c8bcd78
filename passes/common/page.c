/* Colours are chosen so that text has a contrast of 4.5:1 in light and dark, bars of 3:1; testsuite/pages computes both in a
 * browser. Pictures say their colours without variables: many viewers of SVG know none. */
#include <string.h>
#include "page.h"

static const char style[] =
	":root { color-scheme: light dark; --bg: #fff; --fg: #1f2328; --dim: #59636e; --line: #d1d9e0; --soft: #f3f4f6; "
	"--link: #0550ae; --del: #b3261e; --ins: #116329; --minus: #ffebe9; --plus: #e6ffec; --minus-word: #ffc1bc; "
	"--plus-word: #a6f2b8; --focus: #0969da }\n"
	"@media (prefers-color-scheme: dark) { :root { --bg: #0d1117; --fg: #e6edf3; --dim: #9198a1; --line: #3d444d; "
	"--soft: #1a2027; --link: #79c0ff; --del: #ff7b72; --ins: #56d364; --minus: #3c1618; --plus: #12311d; "
	"--minus-word: #7a2426; --plus-word: #1b5e2e; --focus: #58a6ff } }\n"
	"body { margin: 0 auto; max-width: 1400px; padding: 12px 16px; font: 14px/1.45 system-ui, sans-serif; "
	"color: var(--fg); background: var(--bg); overflow-wrap: anywhere }\n"
	"h1 { font-size: 20px } h2 { font-size: 16px; margin: 28px 0 8px; border-bottom: 1px solid var(--line) }\n"
	"a { color: var(--link) } :focus-visible { outline: 3px solid var(--focus); outline-offset: 2px }\n"
	".wide { overflow-x: auto; overflow-wrap: normal } summary { cursor: pointer; padding: 4px 0 }\n"
	"table { border-collapse: collapse } th { white-space: nowrap } td, th { padding: 2px 14px 2px 0; text-align: left; vertical-align: top } "
	".v { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }\n"
	"code { background: var(--soft); padding: 2px 5px; overflow-wrap: anywhere } .dim { color: var(--dim) }\n"
	"svg { display: block; width: 100%; min-width: 1000px; max-width: 1200px; height: auto; user-select: none }\n"
	".tools { margin: 6px 0 } button { font: inherit; min-width: 36px; padding: 4px 8px; color: var(--fg); "
	"background: var(--soft); border: 1px solid var(--dim); border-radius: 4px; cursor: pointer }\n"
	".said { min-height: 3em; white-space: pre-line; margin: 6px 0 }\n";

const char page_svg_style[] = ".back { fill: #fff }\n"
			      "text { font: 11px sans-serif; fill: #333 }\n"
			      ".h { font-size: 15px; font-weight: bold }\n"
			      ".n { fill: #fff; font-size: 10px; text-anchor: middle; pointer-events: none }\n"
			      ".r, .y { text-anchor: end }\n"
			      ".x { text-anchor: middle }\n"
			      ".g { stroke: #d5d5d5; stroke-width: 1 }\n"
			      ".k { fill: #f3f4f6 }\n"
			      ".f { fill: #2f6fb0 }\n"
			      ".b { fill: #2b7d46 }\n"
			      ".w { fill: #6b7a1a }\n"
			      ".c { fill: #d2691e }\n"
			      ".v { fill: #008b8b }\n"
			      ".s { fill: #b5475a }\n"
			      ".u { fill: #8f58a0 }\n"
			      ".q { fill: #9c7c52 }\n"
			      ".z { fill: #c2412d }\n"
			      ".o { stroke: #fff; stroke-width: .7 }\n"
			      ".m { fill: none; stroke-width: 1.5; vector-effect: non-scaling-stroke }\n"
			      ".t.sel { stroke: #111; stroke-width: 2.5 } .t.mate { stroke: #111; stroke-width: 2; "
			      "stroke-dasharray: 3 2 }\n"
			      "@media (prefers-color-scheme: dark) { .back { fill: #0d1117 } text { fill: #d5dce3 } "
			      ".n { fill: #fff } .g { stroke: #333b44 } .k { fill: #1a2027 } .o { stroke: #0d1117 } "
			      ".t.sel, .t.mate { stroke: #fff } }\n";

static const char bars_script[] =
	"'use strict';\n"
	"const svg = document.querySelector('svg'), NS = svg.namespaceURI;\n"
	"const bars = [...svg.querySelectorAll('.t[data-r]')].map(el => ({ el, n: el.dataset.n, r: +el.dataset.r,\n"
	"\tx: +el.getAttribute('x') - LEFT, w: +el.getAttribute('width'),\n"
	"\ty: +el.getAttribute('y'), h: +el.getAttribute('height') }));\n"
	"const said = document.querySelector('.said'), hint = said.textContent;\n"
	"const order = [...bars].sort((a, b) => a.r - b.r || a.x - b.x || a.y - b.y);\n"
	"let reveal = () => {}, held = null;\n"
	"function mark(b) {\n"
	"\tfor (const o of bars) {\n"
	"\t\to.el.classList.toggle('sel', o === b);\n"
	"\t\to.el.classList.toggle('mate', !!b && o !== b && o.el.dataset.p !== undefined && o.el.dataset.p === b.el.dataset.p);\n"
	"\t}\n"
	"\tsaid.textContent = b ? b.el.querySelector('title').textContent : hint;\n"
	"}\n"
	"function hold(b) { held = b; if (b) reveal(b); mark(b); }\n"
	"const barOf = e => bars.find(b => b.el === e.target.closest('.t'));\n"
	"svg.addEventListener('pointerover', e => mark(barOf(e) || held));\n"
	"svg.addEventListener('pointerleave', () => mark(held));\n"
	"svg.addEventListener('click', e => hold(barOf(e) || null));\n"
	"svg.addEventListener('focus', () => { if (!held && svg.matches(':focus-visible')) hold(order[0] || null); });\n"
	"svg.addEventListener('keydown', e => {\n"
	"\tconst i = order.indexOf(held), now = held || order[0];\n"
	"\tif (!now) return;\n"
	"\tconst middle = now.x + now.w / 2, far = b => Math.abs(b.x + b.w / 2 - middle);\n"
	"\tconst rows = [...new Set(order.map(b => b.r))], row = rows.indexOf(now.r);\n"
	"\tconst near = r => order.filter(b => b.r === rows[r] && b.h >= 5)\n"
	"\t\t.reduce((a, b) => !a || far(a) > far(b) ? b : a, null) || now;\n"
	"\tconst to = { ArrowRight: () => order[Math.min(i + 1, order.length - 1)], ArrowLeft: () => order[Math.max(i - 1, 0)],\n"
	"\t\tArrowDown: () => near(Math.min(row + 1, rows.length - 1)), ArrowUp: () => near(Math.max(row - 1, 0)),\n"
	"\t\tHome: () => order[0], End: () => order[order.length - 1], Escape: () => null }[e.key];\n"
	"\tif (!to) return;\n"
	"\te.preventDefault();\n"
	"\thold(to());\n"
	"});\n";

void page_begin(Buf *b, const char *title, const char *more)
{
	buf_puts(b,
		"<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>");
	buf_xml(b, title);
	buf_printf(b, "</title>\n<style>\n%s%s</style>\n</head>\n<body>\n<h1>", style, more);
	buf_xml(b, title);
	buf_puts(b, "</h1>\n");
}

void page_end(Buf *b) { buf_puts(b, "</body>\n</html>\n"); }

void page_wide(Buf *b, const char *label)
{
	buf_puts(b, "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"");
	buf_xml(b, label);
	buf_puts(b, "\">\n");
}

void page_wide_end(Buf *b) { buf_puts(b, "</div>\n"); }

double page_key(Buf *b, double x, double y, const char *class, const char *text)
{
	buf_printf(b,
		"<rect class=\"key %s\" x=\"%g\" y=\"%g\" width=\"12\" height=\"12\"/>"
		"<text x=\"%g\" y=\"%g\">%s</text>\n",
		class, x, y, x + 17, y + 10, text);
	return x + 40 + 6 * (double)strlen(text);
}

void page_bars_script(Buf *b) { buf_puts(b, bars_script); }
