/* The picture in a page of its own: the wheel zooms at the pointer, dragging moves, a double click shows all again; keys and
 * buttons do the same. The
 * script keeps the window of time that is seen (v0 to v1, in pixels of the whole step) and places everything anew. */
#include "passes/common/page.h"
#include "timeline_svg.h"

static const char script[] =
	"const place = (el, set) => { for (const k in set) el.setAttribute(k, set[k]); return el; };\n"
	"const axis = document.getElementById('axis'), curves = document.getElementById('curves');\n"
	"const line = axis.querySelector('line'), top_ = +line.getAttribute('y1'), bottom = +line.getAttribute('y2');\n"
	"const unit = STEP >= 1 ? 1 : STEP >= 1e-3 ? 1e-3 : 1e-6;\n"
	"const numbers = document.createElementNS(NS, 'g');\n"
	"document.getElementById('rows').append(numbers);\n"
	"let v0 = 0, v1 = WIDTH;\n"
	"function ticks() {\n"
	"\tconst from = v0 / WIDTH * STEP / unit, to = v1 / WIDTH * STEP / unit;\n"
	"\tconst ten = 10 ** Math.floor(Math.log10((to - from) / 12));\n"
	"\tconst each = [1, 2, 5, 10].map(k => k * ten).find(k => !((to - from) / 12 * (1 - 1e-9) > k)) || 1;\n"
	"\taxis.replaceChildren();\n"
	"\tfor (let i = Math.ceil(from / each - 1e-9); !(i * each > to * (1 + 1e-9)); i++) {\n"
	"\t\tconst x = LEFT + (i * each - from) / (to - from) * WIDTH;\n"
	"\t\taxis.append(place(document.createElementNS(NS, 'line'), { class: 'g', x1: x, x2: x, y1: top_, y2: bottom }));\n"
	"\t\tconst t = place(document.createElementNS(NS, 'text'), { class: 'x', x, y: top_ - 6 });\n"
	"\t\tt.textContent = +(i * each).toPrecision(9);\n"
	"\t\taxis.append(t);\n"
	"\t}\n"
	"}\n"
	"function show() {\n"
	"\tconst k = WIDTH / (v1 - v0);\n"
	"\tnumbers.replaceChildren();\n"
	"\tfor (const b of bars) {\n"
	"\t\tconst x = (b.x - v0) * k, w = b.w * k;\n"
	"\t\tif (0 > x + w || x > WIDTH) { b.el.style.display = 'none'; continue; }\n"
	"\t\tb.el.style.display = '';\n"
	"\t\tplace(b.el, { x: LEFT + x, width: w });\n"
	"\t\tb.el.classList.toggle('o', w > 3 && b.h > 4);\n"
	"\t\tif (!b.n || 6 * b.n.length + 4 > w || 9 > b.h) continue;\n"
	"\t\tconst t = document.createElementNS(NS, 'text');\n"
	"\t\tplace(t, { class: 'n', x: LEFT + x + w / 2, y: b.y + b.h / 2 + 3.5 });\n"
	"\t\tt.textContent = b.n;\n"
	"\t\tnumbers.append(t);\n"
	"\t}\n"
	"\tfor (const c of curves.children)\n"
	"\t\tc.setAttribute('transform', `translate(${LEFT - (v0 + LEFT) * k} 0) scale(${k} 1)`);\n"
	"\tticks();\n"
	"}\n"
	"function look(a, b) {\n"
	"\tconst w = Math.min(WIDTH, Math.max(b - a, WIDTH * 1e-5));\n"
	"\tv0 = Math.max(0, Math.min(a, WIDTH - w));\n"
	"\tv1 = v0 + w;\n"
	"\tshow();\n"
	"}\n"
	"reveal = b => {\n"
	"\tif (v0 > b.x || b.x + b.w > v1) look(b.x + b.w / 2 - (v1 - v0) / 2, b.x + b.w / 2 + (v1 - v0) / 2);\n"
	"};\n"
	"const zoom = (p, f) => look(p - (p - v0) * f, p + (v1 - p) * f);\n"
	"const centre = () => held ? held.x + held.w / 2 : (v0 + v1) / 2;\n"
	"const move = f => { const d = (v1 - v0) * f; look(v0 + d, v1 + d); };\n"
	"const doing = { in: () => zoom(centre(), .5), out: () => zoom(centre(), 2), before: () => move(-.3), after: () => move(.3),\n"
	"\tall: () => look(0, WIDTH) };\n"
	"for (const b of document.querySelectorAll('.tools button')) b.addEventListener('click', doing[b.dataset.do]);\n"
	"svg.addEventListener('keydown', e => {\n"
	"\tconst to = { '+': 'in', '=': 'in', '-': 'out', '0': 'all' }[e.key];\n"
	"\tif (to && !e.ctrlKey && !e.metaKey) doing[to]();\n"
	"});\n"
	"const at = e => {\n"
	"\tconst r = svg.getBoundingClientRect();\n"
	"\treturn (e.clientX - r.left) * svg.viewBox.baseVal.width / r.width - LEFT;\n"
	"};\n"
	"svg.addEventListener('wheel', e => {\n"
	"\te.preventDefault();\n"
	"\tzoom(v0 + at(e) / WIDTH * (v1 - v0), Math.exp(e.deltaY / 500));\n"
	"}, { passive: false });\n"
	"let drag = null;\n"
	"svg.addEventListener('pointerdown', e => { if (e.pointerType === 'mouse') drag = { x: at(e), v0, v1 }; });\n"
	"addEventListener('pointerup', () => { drag = null; });\n"
	"svg.addEventListener('pointermove', e => {\n"
	"\tif (!drag) return;\n"
	"\tconst d = (at(e) - drag.x) / WIDTH * (drag.v1 - drag.v0);\n"
	"\tlook(drag.v0 - d, drag.v1 - d);\n"
	"});\n"
	"svg.addEventListener('dblclick', () => look(0, WIDTH));\n"
	"show();\n";

void timeline_part(Buf *b, const Sim *s, const char *title)
{
	buf_puts(b, "<div class=\"wide\">\n");
	svg_picture(b, s, title, true);
	buf_puts(b,
		"</div>\n<div class=\"tools\"><button type=\"button\" data-do=\"in\">zoom in</button> "
		"<button type=\"button\" data-do=\"out\">zoom out</button> "
		"<button type=\"button\" data-do=\"before\">earlier</button> "
		"<button type=\"button\" data-do=\"after\">later</button> "
		"<button type=\"button\" data-do=\"all\">all</button></div>\n"
		"<p class=\"said\" role=\"status\">Point at a bar, or go from bar to bar with the arrow keys, and it is "
		"told here; a message is marked with both its ends: sent, below a row, and received, above one. "
		"Wheel, + and -: zoom. Drag: move. Double click, 0: everything.</p>\n");
	buf_printf(
		b, "<script>\n//<![CDATA[\nconst LEFT = %d, WIDTH = %d, STEP = %.17g;\n", SVG_LEFT, SVG_WIDTH, s->step);
	page_bars_script(b);
	buf_printf(b, "%s//]]>\n</script>\n", script);
}

void timeline_html(Buf *b, const Sim *s, const char *title)
{
	page_begin(b, title, "");
	timeline_part(b, s, "a step, simulated");
	page_end(b);
}
