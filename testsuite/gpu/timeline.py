"""What the GPU does in a step: timeline.c, loaded into a benchmark, writes down every kernel and copy; here they are added up by
name over some steps in the middle of a run, and where nothing ran."""
import glob, os, re, shutil, subprocess

FIRST, STEPS, RUN = 25, 20, 50       # the first step that counts, how many do, of how many that are run


def build(toolkit, roots, to, sh):
    """(path of the library, '') or ('', why there is none)."""
    places = [(f'{r}{part}/include', f'{r}{part}/{lib}') for r in roots for part in ('', '/extras/CUPTI') for lib in ('lib64', 'lib')]
    for inc, lib in places:
        found = sorted(glob.glob(f'{lib}/libcupti.so*'))
        if os.path.exists(f'{inc}/cupti.h') and found:
            rc, out = sh(['gcc', '-O2', '-shared', '-fPIC', '-o', to, f'{os.path.dirname(os.path.abspath(__file__))}/timeline.c', f'-I{inc}',
                          f'-I{toolkit}/include', found[0], f'-Wl,-rpath,{lib}'], 60)
            return ('', out) if rc else (to, '')
    return '', 'no CUPTI here'


def plain(names):
    """{name: what it is called in C++, enough of it to know it by}."""
    names = list(names)
    text = '\n'.join(names)
    if shutil.which('c++filt'):
        text = subprocess.run(['c++filt', '-p'], input=text, stdout=subprocess.PIPE, text=True).stdout
    return {n: re.sub(r'\s+', ' ', t)[:110] for n, t in zip(names, text.splitlines())}


def window(rows):
    """(begin, end) of STEPS steps in ns: of a kernel that every step has, once if there is one."""
    begins = {}
    for a, _, name in rows:
        begins.setdefault(name, []).append(a)
    marks = min((x for x in begins.values() if len(x) % RUN == 0), key=len)
    each = len(marks) // RUN
    return marks[FIRST * each], marks[(FIRST + STEPS) * each]


def added(path):
    """({name: (launches of a step, ms of a step)}, {(name, next): ms of a step in which nothing ran between them}, ms of a step)."""
    rows = []
    with open(path) as f:
        for line in f:
            w = line.rstrip('\n').split(' ', 3)
            rows.append((int(w[0]), int(w[1]), w[3]))
    rows.sort()
    begin, end = window(rows)
    rows = [r for r in rows if begin <= r[0] < end]
    called, by, gaps, until, last = plain({r[2] for r in rows}), {}, {}, rows[0][0], rows[0][2]
    for a, b, name in [*rows, (end, end, None)]:        # the window ends where the next step's first of all begins
        if name:
            n, t = by.get(called[name], (0, 0))
            by[called[name]] = n + 1 / STEPS, t + (b - a) / STEPS / 1e6
        if a > until:
            k = called[last], called[name or rows[0][2]]
            gaps[k] = gaps.get(k, 0) + (a - until) / STEPS / 1e6
        if b > until:
            until, last = b, name
    return by, gaps, (end - begin) / STEPS / 1e6


def table(name, by, gaps, ms):
    """Kernels and copies by time, and the longest waits."""
    idle = sum(gaps.values())
    head = f'{name}: {ms:.3f} ms a step, {sum(n for n, _ in by.values()):.0f} kernels and copies; nothing ran for {idle:.3f} ms\n'
    return (head + ''.join(f'{t:9.4f} ms {n:6.1f} x {1e3 * t / n:9.2f} us  {k}\n' for k, (n, t) in sorted(by.items(), key=lambda x: -x[1][1])) +
            ''.join(f'{t:9.4f} ms nothing between {a[:60]} and {b[:60]}\n' for (a, b), t in sorted(gaps.items(), key=lambda x: -x[1])[:12]))
