"""The rows of measure/bench as a picture: the time of pdcc's step in that of PyTorch's, a bar for each number of threads."""
import math
from xml.sax.saxutils import escape

STYLE = '''.back { fill: #fff }
text { font: 11px sans-serif; fill: #333 }
.h { font-size: 15px; font-weight: bold }
.r { text-anchor: end }
.x { text-anchor: middle }
.g { stroke: #d5d5d5; stroke-width: 1 }
.one { stroke: #333; stroke-width: 1.5 }
.b0 { fill: #2f6fb0 }
.b1 { fill: #2b7d46 }
.b2 { fill: #8f58a0 }
.e { stroke: #d2691e; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) { .back { fill: #0d1117 } text { fill: #d5dce3 } .g { stroke: #333b44 } .one { stroke: #d5dce3 } }'''
LEFT, WIDE, BAR, TOP = 130, 560, 11, 74


def mean_row(rows, threads):
    logs = [math.log(r['ratio']) for r in rows if r['threads'] == threads]
    return {'model': 'geometric mean', 'threads': threads, 'ratio': math.exp(sum(logs) / len(logs))}


def ms(t):
    return f'{t:.3g}' if t < 100 else f'{t:.0f}'


def draw(results):
    """An SVG: 1 is PyTorch; the line on a bar is the spread of the rounds, the numbers behind it the ratio, and milliseconds of both."""
    machine, rows = results['machine'], list(results['rows'])
    counts = list(dict.fromkeys(r['threads'] for r in rows))
    rows += [mean_row(rows, n) for n in counts]
    names = list(dict.fromkeys(r['model'] for r in rows))
    most = max(1.1, max(r.get('ratios', [0, r['ratio']])[1] for r in rows) + .02)
    each = BAR * len(counts) + 9
    height = TOP + each * len(names) + 30
    x = lambda ratio: LEFT + WIDE * ratio / most
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{height}" viewBox="0 0 900 {height}">', f'<style>\n{STYLE}\n</style>',
           f'<rect class="back" width="900" height="{height}"/>',
           f'<text class="h" x="{LEFT}" y="22">a training step of pdcc, in PyTorch\'s time: shorter is faster</text>',
           f'<text x="{LEFT}" y="42">{escape(machine["cpu"])}, {machine["precision"]}, PyTorch {escape(machine["torch"])}, medians and '
           f'spread of {machine["rounds"]} rounds</text>']
    for i, n in enumerate(counts):
        out.append(f'<rect class="b{i % 3}" x="{LEFT + 110 * i}" y="50" width="10" height="10"/>'
                   f'<text x="{LEFT + 110 * i + 15}" y="59">{n} thread{"s" * (n > 1)}</text>')
    for tick in range(0, int(most * 4) + 1):
        at, kind = x(tick / 4), 'one' if tick == 4 else 'g'
        out.append(f'<line class="{kind}" x1="{at:.1f}" y1="{TOP - 4}" x2="{at:.1f}" y2="{height - 24}"/>'
                   f'<text class="x" x="{at:.1f}" y="{height - 10}">{tick / 4:g}</text>')
    for k, name in enumerate(names):
        y = TOP + each * k
        out.append(f'<text class="r" x="{LEFT - 8}" y="{y + (each - 9) / 2 + 4:.1f}">{escape(name)}</text>')
        for i, n in enumerate(counts):
            for r in (r for r in rows if r['model'] == name and r['threads'] == n):
                mid, told = y + BAR * i + BAR / 2, f'{r["ratio"]:.2f}'
                out.append(f'<rect class="b{i % 3}" x="{LEFT}" y="{y + BAR * i}" width="{x(r["ratio"]) - LEFT:.1f}" height="{BAR - 1}"/>')
                if 'ratios' in r:
                    low, end = r['ratios']
                    out.append(f'<line class="e" x1="{x(low):.1f}" y1="{mid - .5:.1f}" x2="{x(end):.1f}" y2="{mid - .5:.1f}"/>')
                    told += f': {ms(r["pdcc_ms"])} and {ms(r["torch_ms"][r["best"]])} ms'
                out.append(f'<text x="{LEFT + WIDE + 14}" y="{mid + 3.5:.1f}">{told}</text>')
    return '\n'.join(out + ['</svg>', ''])
