// What testsuite/pages asks of a page in Chromium. Each function gives a list of what is wrong, empty where all is well.
(() => {
	const number = c => (c.match(/[\d.]+/g) || []).map(Number);
	const light = c => {
		const [r, g, b] = number(c).map(v => v / 255).map(v => v > .03928 ? ((v + .055) / 1.055) ** 2.4 : v / 12.92);
		return .2126 * r + .7152 * g + .0722 * b;
	};
	const contrast = (a, b) => {
		const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
		return (x + .05) / (y + .05);
	};
	const clear = c => !c || c === 'none' || c === 'transparent' || number(c)[3] === 0;
	const centre = el => { const r = el.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; };
	const inside = (r, x, y) => x >= r.left && r.right >= x && y >= r.top && r.bottom >= y;
	const told = el => `${el.tagName} .${el.getAttribute('class') || ''} '${el.textContent.slice(0, 40)}'`;

	// The colour behind an element: in HTML of the next ancestor that has one, in a picture of the rectangle below it.
	function behind(el) {
		const svg = el.closest('svg');
		if (svg && el !== svg) {
			const [x, y] = centre(el);
			const below = [...svg.querySelectorAll('rect')].filter(r => r !== el && (r.compareDocumentPosition(el) & 4)
				&& !r.closest('clipPath') && inside(r.getBoundingClientRect(), x, y));
			if (below.length) return getComputedStyle(below[below.length - 1]).fill;
		}
		for (let e = el; e; e = e.parentElement)
			if (!clear(getComputedStyle(e).backgroundColor)) return getComputedStyle(e).backgroundColor;
		return 'rgb(255, 255, 255)';
	}

	// Text with less than 4.5:1, bars and keys of a legend with less than 3:1.
	function faint() {
		const bad = new Set(), seen = new Set();
		for (const el of document.body.querySelectorAll('*')) {
			const words = [...el.childNodes].some(n => n.nodeType === 3 && n.data.trim());
			if (!words || el.closest('title, script, style') || !el.getClientRects().length) continue;
			const style = getComputedStyle(el), ink = el.closest('svg') ? style.fill : style.color;
			const paper = behind(el), pair = ink + paper;
			if (seen.has(pair) && !el.closest('svg')) continue;
			seen.add(pair);
			if (4.5 > contrast(ink, paper)) bad.add(`${told(el)}: ${ink} on ${paper} is ${contrast(ink, paper).toFixed(2)}:1`);
		}
		for (const el of document.querySelectorAll('rect.t, rect.key, .key i')) {
			const html = el.tagName === 'I', ink = getComputedStyle(el)[html ? 'backgroundColor' : 'fill'];
			const svg = el.closest('svg'), paper = svg ? getComputedStyle(svg.querySelector('.back')).fill : behind(el.parentElement);
			if (3 > contrast(ink, paper)) bad.add(`${told(el)}: ${ink} on ${paper} is ${contrast(ink, paper).toFixed(2)}:1`);
		}
		return [...bad].slice(0, 8);
	}

	// Wider than the screen, but for parts that scroll by themselves.
	const broad = width => document.scrollingElement.scrollWidth > width || document.documentElement.clientWidth !== width
		? [`${document.scrollingElement.scrollWidth} pixels laid out on ${document.documentElement.clientWidth} of ${width}`] : [];

	// Colours of bars, curves and bar lists are those of the legend beside them, and no others stand there.
	function unkeyed() {
		const bad = [];
		const compare = (what, used, keys) => {
			for (const c of used) if (!keys.has(c)) bad.push(`${what}: ${c} is not in the legend`);
			for (const c of keys) if (!used.has(c)) bad.push(`${what}: ${c} is in the legend alone`);
		};
		const of = (list, what) => new Set([...list].map(el => getComputedStyle(el)[what]));
		const svg = document.querySelector('svg:not(.graph)');
		if (svg) {
			compare('bars', of(svg.querySelectorAll('rect.t'), 'fill'), of(svg.querySelectorAll('rect.key'), 'fill'));
			compare('curves', of(svg.querySelectorAll('path.m'), 'stroke'), of(svg.querySelectorAll('line.key'), 'stroke'));
		}
		const parts = of(document.querySelectorAll('.bar i'), 'backgroundColor'), keys = of(document.querySelectorAll('.key i'), 'backgroundColor');
		for (const c of parts) if (!keys.has(c)) bad.push(`memory: ${c} is not in the legend`);
		return bad;
	}

	// What can be clicked, in order of the document, and what has the focus now: its place in that list.
	const stops = () => [...document.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')]
		.filter(el => el.getClientRects().length && el.checkVisibility());
	function focused() {
		const el = document.activeElement, style = getComputedStyle(el);
		return { at: stops().indexOf(el), seen: el !== document.body && style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
			strong: contrast(style.outlineColor, behind(el.tagName === 'svg' ? el.parentElement : el.parentElement || el)) >= 3, is: told(el) };
	}

	// The picked bar, and what is marked with it.
	const marked = () => {
		const row = el => +el.dataset.r, sel = document.querySelector('.t.sel');
		return { sel: sel && { p: sel.dataset.p, r: row(sel), c: sel.classList[1] }, said: document.querySelector('.said').textContent,
			mates: [...document.querySelectorAll('.t.mate')].map(el => ({ p: el.dataset.p, r: row(el), c: el.classList[1] })) };
	};
	const place = (choose, n) => {
		const el = document.querySelectorAll(choose)[n];
		el.scrollIntoView({ block: 'center', inline: 'center' });
		return centre(el);
	};
	window.check = { faint, broad, unkeyed, stops: () => stops().length, focused, marked, place };
	return true;
})();
