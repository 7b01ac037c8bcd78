"""The tables as one page for a browser: no file beside it, dark and light, fit to be printed; and as JSON."""
import html
import math

STYLE = """
:root{--ink:#1b1f24;--paper:#fff;--faint:#5b6570;--rule:#d5dae0;--good:#176b2c;--off:#8a5300;--bad:#b3261e;--code:#f3f5f7;
--c0:#0b62b5;--c1:#b04a00;--c2:#23772f;--c3:#8b2d8f;--c4:#6b6b00;--c5:#00707a;--c6:#a3123f;--c7:#4a4a4a;--c8:#5a4fcf;--c9:#7a4b2a}
@media (prefers-color-scheme:dark){:root{--ink:#e7eaee;--paper:#14171b;--faint:#a3adb8;--rule:#373e46;--good:#7bd48f;--off:#f0b45c;--bad:#ff8f86;
--code:#1e2329;--c0:#74b4f5;--c1:#ff9d5c;--c2:#7fd68b;--c3:#dd92e0;--c4:#d6d06a;--c5:#62d1da;--c6:#ff8fae;--c7:#bdbdbd;--c8:#aaa2ff;--c9:#d8a57c}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:68rem;padding:1rem;color:var(--ink);background:var(--paper);font:16px/1.45 system-ui,sans-serif}
h1{font-size:1.6rem}h2{font-size:1.2rem;margin:2.2rem 0 .4rem;border-top:1px solid var(--rule);padding-top:1rem}
p,ul,ol{margin:.4rem 0}.faint,figcaption{color:var(--faint)}nav ul{columns:2;padding-left:1.2rem}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.6rem 0;font-variant-numeric:tabular-nums}
th,td{padding:.2rem .6rem;border-bottom:1px solid var(--rule);text-align:right;vertical-align:top}
th:first-child,td:first-child,th:nth-child(2),td:nth-child(2),td:last-child,th:last-child{text-align:left}
td:nth-child(n+3){white-space:nowrap}ol{color:var(--faint);max-width:60rem}td.good{color:var(--good)}td.off{color:var(--off)}td.bad{color:var(--bad);font-weight:600}
pre{background:var(--code);padding:.6rem;white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem;margin:.4rem 0}
summary{cursor:pointer}a{color:inherit}svg{max-width:100%;height:auto;display:block}svg text{fill:var(--ink);font:12px system-ui,sans-serif}
@media (max-width:40rem){nav ul{columns:1}body{padding:.7rem}th,td{padding:.2rem .35rem;font-size:.85rem}}
@media print{body{max-width:none;font-size:11px;background:#fff;color:#000}details.long{display:none}h2{break-after:avoid}
tr,svg,figure{break-inside:avoid}nav{display:none}}
"""
WIDE, HIGH, LEFT, FOOT = 640, 300, 56, 40


def esc(s):
    return html.escape(str(s))


def mark(x):
    return '%.4g' % x


def ticks(low, high, log):
    if log:
        return [10.0 ** k * m for k in range(-12, 15) for m in (1, 2, 5) if low <= 10.0 ** k * m * 1.0001 and 10.0 ** k * m <= high * 1.0001]
    step = 10 ** math.floor(math.log10((high - low) / 4 or 1))
    step *= next(m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= 6)
    return [step * k for k in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]


def frame(curves, across, up, body, legend_names):
    """The picture's axes' names and its legend around body."""
    rows = (len(legend_names) + 2) // 3
    high = HIGH + 18 * rows
    out = ['<svg viewBox="0 0 %d %d" role="img" aria-label="%s over %s">' % (WIDE, high, esc(up), esc(across))]
    out += body
    out.append('<text x="%d" y="%d" text-anchor="middle">%s</text>' % ((LEFT + WIDE) // 2, HIGH - 4, esc(across)))
    out.append('<text x="4" y="12">%s</text>' % esc(up))
    for i, name in enumerate(legend_names):
        x, y = LEFT + (i % 3) * 195, HIGH + 14 + 18 * (i // 3)
        out.append('<rect x="%d" y="%d" width="12" height="10" fill="var(--c%d)"/><text x="%d" y="%d">%s</text>'
                   % (x, y - 9, i % 10, x + 17, y, esc(name)))
    return ''.join(out) + '</svg>'


def axis_y(low, high, log):
    """(pixel of a value, lines of the grid)."""
    f = math.log if log else float

    def at(v):
        return HIGH - FOOT - (f(v) - f(low)) / (f(high) - f(low)) * (HIGH - FOOT - 22)
    return at, ['<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="var(--rule)"/><text x="%d" y="%.1f" text-anchor="end">%s</text>'
                % (LEFT, WIDE - 8, at(v), at(v), LEFT - 5, at(v) + 4, mark(v)) for v in ticks(low, high, log)]


def lines(across, up, curves, log_y=False):
    points = [p for c in curves.values() for p in c]
    x0, x1 = min(p[0] for p in points), max(p[0] for p in points)
    ys = [p[1] for p in points if not log_y or p[1] > 0]
    y0, y1 = (min(ys) / 1.1, max(ys) * 1.1) if log_y else (min(0, min(ys)), max(ys) * 1.05 or 1)
    at, out = axis_y(y0, y1, log_y)

    def right(v):
        return LEFT + (math.log(v / x0) / (math.log(x1 / x0) or 1)) * (WIDE - LEFT - 20)
    shown = sorted({p[0] for p in points})
    for v in shown if len(shown) < 13 else ticks(x0, x1, True):
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%s</text>' % (right(v), HIGH - FOOT + 16, mark(v)))
    for i, c in enumerate(curves.values()):
        xy = ['%.1f,%.1f' % (right(x), at(y)) for x, y in c if not log_y or y > 0]
        out.append('<polyline points="%s" fill="none" stroke="var(--c%d)" stroke-width="2"%s/>'
                   % (' '.join(xy), i % 10, ' stroke-dasharray="6 3"' if i % 2 else ''))
        out += ['<circle cx="%s" cy="%s" r="3" fill="var(--c%d)"/>' % (*q.split(','), i % 10) for q in xy]
    return frame(curves, across, up, out, list(curves))


def bars(across, up, curves):
    groups = list(dict.fromkeys(p[0] for c in curves.values() for p in c))
    at, out = axis_y(0, max(p[1] for c in curves.values() for p in c) * 1.05, False)
    room = (WIDE - LEFT - 16) / len(groups)
    each = room * 0.8 / len(curves)
    for i, c in enumerate(curves.values()):
        for x, y in c:
            left = LEFT + 8 + groups.index(x) * room + i * each
            out.append('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="var(--c%d)"/>' % (left, at(y), each * 0.92, at(0) - at(y), i % 10))
    slant = len(groups) > 8
    for k, g in enumerate(groups):
        x, y = LEFT + 8 + (k + 0.4) * room, HIGH - FOOT + 14
        short = str(g) if not slant else str(g).replace('AmoebaNet', 'Amoeba')
        turn = ' transform="rotate(-20 %.1f %d)"' % (x, y) if slant else ''
        out.append('<text x="%.1f" y="%d" text-anchor="middle"%s%s>%s</text>' % (x, y, ' style="font-size:9px"' if slant else '', turn, esc(short)))
    return frame(curves, across, up, out, list(curves))


def picture(t):
    across, up, curves, kind = t.picture
    return bars(across, up, curves) if kind == 'bars' else lines(across, up, curves, kind == 'loglog')


def row(c, reasons):
    """A line of the table; reasons are numbered, each said once below it."""
    ratio = '' if c.ratio() is None else '%.2f' % c.ratio()
    if c.paper is None:
        kind, said = '', 'no number in the paper'
    elif c.wrong:
        kind, said = 'bad', esc(c.wrong)
    elif c.reason:
        reasons.setdefault(c.reason, len(reasons) + 1)
        kind, said = 'off', 'reason %d' % reasons[c.reason]
    else:
        kind, said = 'good', 'within %g %%' % (100 * c.most) if c.number() else 'equal'
    return '<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td class="%s">%s</td></tr>' % (
        esc(c.row), esc(c.column), esc(c.said(c.paper)), esc(c.said(c.ours)), ratio, kind, said)


def section(t):
    out = ['<section id="%s"><h2>%s</h2><p>%s</p>' % (t.name, esc(t.title), esc(t.text))]
    if t.cells:
        reasons = {}
        out.append('<div class="wide"><table><tr><th>row</th><th>what</th><th>paper</th><th>ours</th><th>ratio</th><th></th></tr>')
        out += [row(c, reasons) for c in t.cells]
        out.append('</table></div>')
        if reasons:
            out.append('<ol>%s</ol>' % ''.join('<li>%s</li>' % esc(r) for r in reasons))
    if t.picture:
        out.append('<figure style="margin:0">%s</figure>' % picture(t))
    for words, items in (('Fitted', t.fitted), ('Not measured here', t.missing), ('What is seen', t.notes),
                         ('Checked', ['%s: %s' % (w, 'holds' if h else 'does not hold') for w, h in t.checks])):
        if items:
            out.append('<p><b>%s:</b></p><ul>%s</ul>' % (words, ''.join('<li>%s</li>' % esc(i) for i in items)))
    if t.commands:
        out.append('<pre>%s</pre>' % esc(t.commands[0]))
        if len(t.commands) > 1:
            out.append('<details class="long"><summary class="faint">and %d more</summary><pre>%s</pre></details>'
                       % (len(t.commands) - 1, esc('\n'.join(t.commands[1:]))))
    out.append('<pre>testsuite/papers --only %s</pre></section>' % esc(t.name))
    return ''.join(out)


def page(tables, passed, failed, absent):
    fitted = list(dict.fromkeys(f for t in tables for f in t.fitted))
    counts = [sum(1 for t in tables for c in t.cells if c.number() and not c.reason), sum(1 for t in tables for c in t.cells if c.reason)]
    return ''.join([
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">',
        '<title>Five papers beside pdcc</title><style>%s</style></head><body><h1>Five papers beside pdcc</h1>' % STYLE,
        '<p>Numbers of PipeDream, DAPPLE, Pipe-SGD and Parallax, each beside what pdcc computes from published profiles and times. '
        'A cell is within its tolerance, both ways, or has a reason and the ratio that it must keep. %d checks hold, %d do not; %d numbers '
        'agree, %d cells are off for a reason. What only a measurement can tell is listed as not measured here. '
        'Profiles that are scaled are written into a folder, which PDCC_KEEP_TEMP=1 keeps.</p>'
        % (passed, failed, *counts),
        '<p><b>Fitted numbers</b>, at most one per cluster:</p><ul>%s</ul>' % ''.join('<li>%s</li>' % esc(f) for f in fitted) if fitted else '',
        '<p><b>Left out:</b> %s</p>' % esc('; '.join(absent)) if absent else '',
        '<nav><ul>%s</ul></nav>' % ''.join('<li><a href="#%s">%s</a></li>' % (t.name, esc(t.title)) for t in tables),
        ''.join(section(t) for t in tables), '</body></html>\n'])


def numbers(t):
    """A table as JSON has it."""
    cells = [{'row': c.row, 'column': c.column, 'paper': c.paper, 'ours': c.ours, 'ratio': c.ratio(), 'tolerance': c.most, 'reason': c.reason,
              'wrong': c.wrong} for c in t.cells]
    return {'name': t.name, 'title': t.title, 'cells': cells, 'curves': t.picture[2] if t.picture else None, 'notes': t.notes,
            'fitted': t.fitted, 'not_measured': t.missing, 'checks': [{'what': w, 'holds': h} for w, h in t.checks], 'commands': t.commands}
