#!/usr/bin/python3
"""run.sh FILE: see there. Each part has its own limit; what fails or takes too long is listed, and the next part runs."""
import argparse, array, concurrent.futures, glob, json, lzma, os, random, shutil, signal, statistics, struct, subprocess, sys, tarfile, time
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compare, machine

PEAK = 989e12       # bf16 products of an H100 or H200 without sparsity, per second: only for the share of it that is reported
LIMIT = {'build': 240, 'ops': 60, 'models': 120, 'bits': 60, 'amp': 60, 'sanitizer': 60, 'bench': 120, 'torch': 150}


class Run:
    def __init__(self, a):
        self.a, self.began = a, time.monotonic()
        self.out = os.path.abspath(a.out)
        os.makedirs(self.out, exist_ok=True)
        self.log = open(f'{self.out}/log.txt', 'w')
        self.rows, self.failed = [], []
        self.standin = bool(a.standin)
        self.limit = {k: v * (10 if a.standin else 1) for k, v in LIMIT.items()}       # many GPUs' work on few cores
        self.speed, self.peer = {}, {}          # benchmark -> ms of a step, here and in PyTorch
        self.env = dict(os.environ, OMP_NUM_THREADS='1')

    def left(self):
        return self.a.seconds - (time.monotonic() - self.began)

    def note(self, text):
        print(text, flush=True)
        self.log.write(text + '\n')
        self.log.flush()

    def row(self, part, name, ok, said):
        self.rows.append((part, name, ok, said))
        if not ok:
            self.failed.append(f'{part} {name}: {said}')
        self.note(f'{"ok  " if ok else "FAIL"} {part} {name}: {said}')

    def sh(self, cmd, timeout, cwd=None):
        """(exit status, output); 124: too late, with everything that it started ended."""
        p = subprocess.Popen(cmd, cwd=cwd, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             start_new_session=True)
        try:
            out, rc = p.communicate(timeout=max(1, min(timeout, self.left() + 30)))[0], p.returncode
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            out, rc = p.communicate()[0], 124
        text = out.decode(errors='replace')
        self.log.write(f'$ {" ".join(cmd)}  # in {cwd or "."}: exit {rc}\n{text}\n')
        return rc, text


def tail(text, n=3):
    return ' | '.join(l for l in text.strip().splitlines()[-n:])


def unpack(r, file):
    where = os.path.join(r.out, 'work')
    shutil.rmtree(where, ignore_errors=True)
    with lzma.open(file) as z, tarfile.open(fileobj=z) as t:
        t.extractall(where)
    return f'{where}/pack'


def jobs_of(pack):
    out = []
    for f in sorted(glob.glob(f'{pack}/*/job.json')):
        with open(f) as g:
            out.append(dict(json.load(g), dir=os.path.dirname(f), name=os.path.basename(os.path.dirname(f))))
    return out


# ---- building ----

def weights(job):
    """Files of weights whose heads alone travelled: numbers of a normal distribution with deviation 0.02."""
    rng = random.Random(1)
    block = array.array('f', [rng.gauss(0, 0.02) for _ in range(1 << 16)]).tobytes()
    for h in glob.glob(f'{job["dir"]}/build/weights/*.head'):
        with open(h, 'rb') as f:
            size, head = struct.unpack('<Q', f.read(8))[0], f.read()
        with open(h[:-5], 'wb') as f:
            f.write(head)
            while f.tell() < size:
                f.write(block[:size - f.tell()])


def build_one(r, job, base, timeout):
    d = f'{job["dir"]}/build'
    weights(job)
    if base and base != d and job['kind'] != 'cases' and os.path.isdir(f'{base}/obj/runtime'):
        shutil.copytree(f'{base}/obj/runtime', f'{d}/obj/runtime', dirs_exist_ok=True)     # the same flags: make takes them; others: it does not
        shutil.copy2(f'{base}/obj/flags', f'{d}/obj/flags')
    target = ['bin/cases'] if job['kind'] == 'cases' else ['all', 'bin/p0'] if job['kind'] == 'bench' else ['all']
    rc, out = r.sh(['make', '-s', '-C', d, '-j2' if base else f'-j{r.a.jobs}', f'CUDA={r.toolkit}', f'ARCH={r.a.arch}', 'OPT=-O2',
                     *([f'CC={os.environ["CC"]}'] if os.environ.get('CC') else []), *target], timeout)
    job['built'] = rc == 0
    return None if rc == 0 else 'took too long' if rc == 124 else tail(out)


def build(r, jobs):
    end = time.monotonic() + r.limit['build']
    train = [j for j in jobs if j['kind'] != 'cases']
    base = f'{train[0]["dir"]}/build' if train else None
    bad = [(train[0], build_one(r, train[0], None, 120))] if train else []
    rest = [j for j in jobs if not train or j is not train[0]]
    rest.sort(key=lambda j: (j['kind'] != 'cases', j['kind'] != 'bench'))      # the longest first
    with concurrent.futures.ThreadPoolExecutor(max(1, r.a.jobs * 3 // 4)) as pool:
        done = pool.map(lambda j: (j, build_one(r, j, base, end - time.monotonic())), rest)
        bad += list(done)
    for j, why in bad:
        if why:
            r.row('build', j['name'], False, why)
    r.row('build', 'all', True, f'{sum(j.get("built", False) for j in jobs)} of {len(jobs)} programs built')


# ---- running ----

def ready(r, part, j):
    if not j.get('built'):
        r.row(part, j['name'], False, 'was not built')
    return j.get('built')


def run_cases(r, j, timeout):
    d = f'{j["dir"]}/build'
    rc, out = r.sh([f'{d}/bin/cases', f'{j["dir"]}/expected/input', f'{d}/output'], timeout)
    if rc:
        raise compare.Differs(f'exit {rc}: {tail(out)}')
    return compare.check_cases(j, d, f'{j["dir"]}/expected')


def run_train(r, j, by_name, timeout):
    d = f'{j["dir"]}/build'
    args = ['--data', f'{j["dir"]}/expected'] if glob.glob(f'{j["dir"]}/expected/*.npy') else []
    rc, out = r.sh(['sh', 'run.sh', *j['args'], *args, '--quiet', '--timeout', '20'], timeout, d)
    if rc:
        raise compare.Differs(f'exit {rc}: {tail(out)}')
    near = by_name.get(j.get('near'))
    return f'{j["ranks"]} rank(s): ' + compare.check_train(j, f'{d}/run', f'{j["dir"]}/expected', near and f'{near["dir"]}/expected')


def some(r, part, jobs, run):
    """Runs jobs side by side: they are small, and most of a run is its start."""
    end = time.monotonic() + r.limit[part]

    def one(j):
        left = end - time.monotonic()
        if left < 1:
            return j, False, 'no time was left'
        try:
            return j, True, run(j, left)
        except (compare.Differs, OSError, KeyError, ValueError) as x:
            return j, False, f'{"" if isinstance(x, compare.Differs) else type(x).__name__ + ": "}{x}'
    with concurrent.futures.ThreadPoolExecutor(max(1, r.a.jobs // 4)) as pool:
        for j, ok, said in pool.map(one, [j for j in jobs if ready(r, part, j)]):
            r.row(part, j['name'], ok, said)


def bits(r, jobs, by_name):
    some(r, 'bits', jobs, lambda j, t: run_train(r, j, by_name, t))
    first = {}
    for j in jobs:
        run = f'{j["dir"]}/build/run'
        if not os.path.exists(f'{run}/losses.txt'):
            continue
        try:
            r.row('bits', j['name'], True, compare.check_same(run, first.setdefault(j['same'], run)))
        except compare.Differs as x:
            r.row('bits', j['name'], False, str(x))


def sanitizer(r, jobs):
    tool = shutil.which('compute-sanitizer') or next((f'{p}/bin/compute-sanitizer' for p in machine.roots()
                                                      if os.path.exists(f'{p}/bin/compute-sanitizer')), None)
    j = next((j for j in jobs if j['kind'] == 'train' and j['ranks'] == 1 and j.get('built')), None)
    if r.standin or not tool or not j:
        r.row('sanitizer', '-', r.standin, 'not with the stand-in' if r.standin else 'no compute-sanitizer' if not tool else 'no program')
        return
    for kind in 'memcheck', 'racecheck', 'initcheck':
        rc, out = r.sh([tool, '--tool', kind, '--error-exitcode', '9', 'bin/d0', '--steps', '2', '--quiet', '--data', f'{j["dir"]}/expected'],
                       r.limit['sanitizer'] / 2, f'{j["dir"]}/build')
        said = [l for l in out.splitlines() if 'SUMMARY' in l]
        r.row('sanitizer', f'{kind} {j["name"]}', rc == 0, said[-1].strip('= ') if said else f'exit {rc}: {tail(out)}')


# ---- speed ----

def copies(r):
    """GB/s of a copy on the device, bytes read and written; None where there is no GPU."""
    program = f'{r.out}/work/copy'
    rc, out = r.sh([f'{r.toolkit}/bin/nvcc', '-O2', '-o', program, f'{HERE}/copy.cu', f'-L{r.toolkit}/lib64', '-lcudart'], 60)
    rc, out = r.sh([program], 30) if rc == 0 else (rc, out)
    r.row('bench', 'copy', rc == 0, f'{out.strip()} GB/s' if rc == 0 else tail(out))
    return float(out) if rc == 0 else None


def statements(r, j, copy):
    """Where the time of a step goes: every statement alone, waited for, summed by operator; GB/s where the job says bytes."""
    d = f'{j["dir"]}/build'
    rc, out = r.sh(['./bin/p0', '--profile', 'profile.json', '--profile-seconds', '1' if r.standin else '4'], r.limit['bench'] / 4, d)
    if rc:
        r.row('bench', f'{j["name"]} profile', False, f'exit {rc}: {tail(out)}')
        return
    with open(f'{d}/profile.json') as f:
        nodes = json.load(f)['nodes']
    shutil.copy(f'{d}/profile.json', f'{r.out}/{j["name"]}.json')
    spent = {}
    for n in nodes:
        spent[n['op']] = spent.get(n['op'], 0) + n['typical'] * 1e3
    total = sum(spent.values())
    r.row('bench', f'{j["name"]} by operator', True, f'{total:.3f} ms: ' + ', '.join(
        f'{op} {ms:.3f}' for op, ms in sorted(spent.items(), key=lambda x: -x[1])[:8]))
    for op, size in j.get('bytes', {}).items():
        if op in spent:
            rate = size / spent[op] / 1e6
            r.row('bench', f'kernel {op}', True, f'{rate:.0f} GB/s' + (f', {rate / copy:.0%} of a copy' if copy else ''))


def bench(r, jobs):
    copy = None if r.standin else copies(r)
    for j in jobs:
        if not ready(r, 'bench', j):
            continue
        if r.standin and not j.get('small'):
            r.row('bench', j['name'], True, 'built; too large for the stand-in')
            continue
        d = f'{j["dir"]}/build'
        ms = []
        for _ in range(1 if r.standin else 3):
            rc, out = r.sh(['sh', 'run.sh', '--steps', '4' if r.standin else '30', '--quiet', '--timeout', '60'], r.limit['bench'] / 3, d)
            if rc:
                r.row('bench', j['name'], False, f'exit {rc}: {tail(out)}')
                break
            with open(f'{d}/run/summary.json') as f:
                ms.append(json.load(f)['median_step_ms'])
        else:
            m = statistics.median(ms)
            r.speed[j['name'][6:]] = m
            share = f', {j["flop_per_unit"] * j["per_step"] / m * 1e3 / PEAK:.1%} of {PEAK / 1e12:.0f} TFLOP/s' if j['flop_per_unit'] else ''
            r.row('bench', j['name'], True, f'{m:.3f} ms a step (medians {", ".join(f"{x:.3f}" for x in ms)}), '
                  f'{j["per_step"] / m * 1e3:.0f} {j["unit"]}/s{share}')
            statements(r, j, copy)


def torch(r):
    for name in 'gpt2', 'resnet50', 'mlp', 'lstm_lm':
        rc, out = r.sh(['python3', f'{HERE}/bench_torch.py', name], r.limit['torch'] / 2)
        lines = [l for l in out.splitlines() if l.startswith('torch ')]
        r.row('torch', name, rc == 0, '; '.join(lines) if lines else f'exit {rc}: {tail(out)}')
        r.peer[name] = {l.split()[2].rstrip(':'): float(l.split()[3]) for l in lines}
    for name, peer in r.peer.items():
        for kind, ms in peer.items():
            if name in r.speed:
                r.row('ratio', f'{name} beside {kind}', True, f'{ms / r.speed[name]:.2f} times the speed of PyTorch ({ms:.3f} ms against {r.speed[name]:.3f})')


# ---- the report ----

def report(r, about, packed):
    with open(f'{r.out}/report.md', 'w') as f:
        f.write('# The GPU target on a machine\n\n' + ''.join(f'- {k}: {v}\n' for k, v in about))
        f.write(f'- pdcc at {packed["revision"]}; {time.monotonic() - r.began:.0f} s in all; log.txt beside this file\n')
        if r.standin:
            f.write('- **no GPU: the stand-in ran in its place; nothing here says anything about a GPU**\n')
        good = sum(ok for _, _, ok, _ in r.rows)
        f.write(f'\n{good} passed, {len(r.failed)} failed\n\n')
        f.write(''.join(f'- FAIL {x}\n' for x in r.failed) + '\n| part | what | result |\n| --- | --- | --- |\n')
        for part, name, ok, said in r.rows:
            f.write(f'| {part} | {name} | {"" if ok else "**failed** "}{said.replace("|", "/")} |\n')


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('pack', metavar='FILE')
    ap.add_argument('--out', default='gpu-report')
    ap.add_argument('--only', default='')
    ap.add_argument('--standin', metavar='DIR')
    ap.add_argument('--seconds', type=float, default=540)
    ap.add_argument('--jobs', type=int, default=os.cpu_count())
    ap.add_argument('--arch', default='sm_90')
    r = Run(ap.parse_args())
    wanted = [p for p in r.a.only.split(',') if p]
    pack = unpack(r, r.a.pack) if os.path.isfile(r.a.pack) else os.path.abspath(r.a.pack)
    about = machine.describe()
    with open(f'{pack}/packed.json') as f:
        packed = json.load(f)
    for k, v in about:
        r.note(f'{k}: {v}')
    for x in packed['failed']:
        r.row('pack', x.split(':', 1)[0], False, f'was not packed: it failed on the stand-in:{x.split(":", 1)[1]}')
    r.toolkit, found = (os.path.abspath(r.a.standin), []) if r.standin else machine.toolkit(f'{r.out}/work/cuda')
    for part, where in found:
        r.row('machine', part, bool(where) or part == 'NCCL', where or 'not found')
    rc, out = r.sh(['sh', f'{HERE}/mpi/build.sh', f'{r.out}/work/mpi'], 60)
    r.row('machine', 'messages', rc == 0, tail(out) or 'mpi/ built')
    r.env['PATH'] = f'{r.out}/work/mpi:' + r.env['PATH']
    jobs = jobs_of(pack)
    by_name = {j['name']: j for j in jobs}
    of = lambda *prefix: [j for j in jobs if j['name'].startswith(prefix)]
    parts = [('build', lambda: build(r, jobs)), ('ops', lambda: some(r, 'ops', of('ops-'), lambda j, t: run_cases(r, j, t))),
             ('models', lambda: some(r, 'models', of('model-'), lambda j, t: run_train(r, j, by_name, t))),
             ('bench', lambda: bench(r, of('bench-'))), ('bits', lambda: bits(r, of('bits-'), by_name)),
             ('amp', lambda: some(r, 'amp', of('amp-'), lambda j, t: run_train(r, j, by_name, t))),
             ('sanitizer', lambda: sanitizer(r, jobs)), ('torch', lambda: torch(r))]
    for part, run in parts:
        if wanted and part not in wanted and part != 'build' or part == 'torch' and r.standin:
            continue
        if r.left() < 5:
            r.row(part, '-', False, 'no time was left')
            continue
        start = time.monotonic()
        try:
            run()
        except Exception as x:  # a fault of this script in one part must not hide the others
            r.row(part, '-', False, f'{type(x).__name__}: {x}')
        r.note(f'{part}: {time.monotonic() - start:.1f} s')
        report(r, about, packed)
    report(r, about, packed)
    print(f'{sum(ok for _, _, ok, _ in r.rows)} passed, {len(r.failed)} failed; {r.out}/report.md')
    return 1 if r.failed else 0


if __name__ == '__main__':
    sys.exit(main())
