"""testsuite/planner --growth: how the planners' time and memory grow with layers and devices, on chains of random layers.
Prints the machine, seconds of CPU and MB of each run, the exponents, and draws them on two logarithmic axes."""
import math
import os
import random
import tempfile

from plannercheck import PDCC

# name, what grows, values, (layers, arguments) of a value
MACHINE = '--compression 1 --bandwidth '
SWEEPS = (
    ('PipeDream, 64 devices', 'layers', (125, 250, 500, 1000, 2000), lambda n: (n, '--workers 64 %s 1e9' % MACHINE)),
    ('PipeDream, 500 layers', 'devices', (16, 32, 64, 128, 256, 512, 1024),
     lambda m: (500, '--workers %d %s 1e9' % (m, MACHINE))),
    ('PipeDream, 16 x 64 devices', 'layers', (125, 250, 500, 1000), lambda n: (n, '--workers 16,64 %s 1e10,1e9' % MACHINE)),
    ('PipeDream, 500 layers, M x 16', 'devices', (4, 8, 16, 32),
     lambda m: (500, '--workers %d,16 %s 1e10,1e9' % (m, MACHINE))),
    ('DAPPLE, 2 servers of 8', 'layers', (50, 100, 200, 400, 800),
     lambda n: (n, '--planner dapple --batch 64 --servers 8,16')),
    ('DAPPLE, 100 layers, 2 servers', 'devices', (4, 8, 16, 32),
     lambda m: (100, '--planner dapple --batch 64 --servers %d,%d' % (m // 2, m))),
    ('DAPPLE as published, 2 servers of 8', 'layers', (50, 100, 200, 400, 800),
     lambda n: (n, '--planner dapple --published --batch 64 --servers 8,16')),
    ('blocks, 16 parts', 'layers', (250, 500, 1000, 2000), lambda n: (n, '--planner blocks --workers 16')),
)
COLOURS = ('#1f5fa8', '#5a9bd8', '#b0503c', '#e08a6c', '#3d7d4e', '#86bf8f', '#8a5aa8', '#7a7a7a')


def machine():
    cpu = [line.split(':')[1].strip() for line in open('/proc/cpuinfo') if line.startswith('model name')]
    return '%s, %d cores, load %.1f' % (cpu[0] if cpu else os.uname().machine, os.cpu_count(), os.getloadavg()[0])


def chain(path, n):
    r = random.Random(n)
    with open(path, 'w') as f:
        for i in range(n):
            f.write('node%d -- Layer%d -- forward_compute_time=%.3f, backward_compute_time=%.3f, activation_size=%d, '
                    'parameter_size=%d\n' % (i, i, 10 ** r.uniform(0, 1), 10 ** r.uniform(0, 1.2), 10 ** r.uniform(4, 7),
                                             10 ** r.uniform(4, 8)))
        for i in range(n - 1):
            f.write('\tnode%d -- node%d\n' % (i, i + 1))


def run(path, flags):
    """CPU seconds and MB of one run; the start of the program is in it."""
    pid = os.fork()
    if not pid:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.execv(PDCC, [PDCC, 'plan-profile', path, *flags.split()])
    _, status, use = os.wait4(pid, 0)
    if status:
        raise RuntimeError('%s: status %d' % (flags, status))
    return use.ru_utime + use.ru_stime, use.ru_maxrss / 1024


def exponent(points, start):
    """Slope of the logarithms by least squares, of what runs take beyond the program's start; None where too few of them
    take long enough to tell."""
    p = [(math.log(x), math.log(t - start)) for x, t, _ in points if t >= 1.5 * start]
    if len(p) < 3:
        return None
    mx, my = (sum(v[i] for v in p) / len(p) for i in (0, 1))
    return sum((x - mx) * (y - my) for x, y in p) / sum((x - mx) ** 2 for x, _ in p)


def measure():
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, 'chain.txt')
        chain(path, 2)
        start, mb = min(run(path, '--planner blocks --workers 1') for _ in range(5))
        print('%-38s %-8s %.3f s %.0f MB' % ('the start of the program', '', start, mb))
        for name, what, values, command in SWEEPS:
            points = []
            for v in values:
                n, flags = command(v)
                chain(path, n)
                t, mb = min(run(path, flags) for _ in range(2))
                points.append((v, t, mb))
            found.append((name, what, points, exponent(points, start)))
            e = found[-1][3]
            print('%-38s %-8s %s' % (name, what, '  '.join('%d: %.3f s %.0f MB' % p for p in points)), flush=True)
            print('%-47s %s' % ('', 'too short to tell' if e is None else 'time grows as the power %.2f' % e))
    return found


def draw(found, path, title):
    """One panel for layers, one for devices."""
    wide, high, left, top = 430, 380, 60, 50
    rows = max(len([f for f in found if f[1] == w]) for w in ('layers', 'devices'))
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">' % (
        2 * (wide + left) + 20, top + high + 50 + 18 * rows),
        '<rect width="100%" height="100%" fill="#fff"/>', '<text x="10" y="20" font-size="15">%s</text>' % title]
    for side, what in enumerate(('layers', 'devices')):
        lines = [f for f in found if f[1] == what]
        xs = [math.log10(p[0]) for f in lines for p in f[2]]
        x0, x1, y0, y1 = min(xs), max(xs), -3, 2
        ox = left + side * (wide + left)
        place = lambda x, t: (ox + (math.log10(x) - x0) / (x1 - x0) * (wide - 20),
                              top + (y1 - math.log10(max(t, 1e-3))) / (y1 - y0) * high)
        for e in range(y0, y1 + 1):
            y = place(10 ** x0, 10.0 ** e)[1]
            out.append('<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g s</text>' % (
                ox, y, wide - 20, ox - 6, y + 4, 10.0 ** e))
        for v in sorted({p[0] for f in lines for p in f[2]}):
            x = place(v, 1)[0]
            out.append('<path d="M%.1f %dv%d" stroke="#eee"/>' % (x, top, high))
            if math.log2(v / min(p[0] for f in lines for p in f[2])) % 1 == 0 or v >= 100:
                out.append('<text x="%.1f" y="%d" text-anchor="middle" font-size="10">%d</text>' % (x, top + high + 14, v))
        out.append('<text x="%d" y="%d" text-anchor="middle">%s</text>' % (ox + wide / 2, top + high + 30, what))
        for i, (name, _, points, e) in enumerate(lines):
            colour = COLOURS[found.index(lines[i]) % len(COLOURS)]
            out.append('<polyline fill="none" stroke-width="2" stroke="%s" points="%s"/>' % (
                colour, ' '.join('%.1f,%.1f' % place(p[0], p[1]) for p in points)))
            out += ['<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>' % (*place(p[0], p[1]), colour) for p in points]
            y = top + high + 50 + 18 * i
            out.append('<path d="M%d %dh24" stroke="%s" stroke-width="2"/><text x="%d" y="%d">%s%s</text>' % (
                ox, y - 4, colour, ox + 30, y, name, '' if e is None else ': power %.2f' % e))
    with open(path, 'w') as f:
        f.write('\n'.join(out) + '\n</svg>\n')


def growth(path):
    title = 'pdcc plan-profile: CPU seconds, %s' % machine()
    print(title)
    draw(measure(), path, title)
    print('drawn in %s' % path)
