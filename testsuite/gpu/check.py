#!/usr/bin/python3
"""run.sh FILE: see there. What is done is written down at once (state.json beside the report): a call that was ended, or whose
time was over, is gone on with by the next one, also on another machine of the kind when OUT was brought there."""
import time
BEGAN = time.monotonic()
import argparse, array, concurrent.futures, filecmp, glob, hashlib, json, math, os, random, re, shutil, signal, statistics, struct, sys, tarfile, threading
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compare, machine, processes, timeline, ways

PEAK = 989e12       # bf16 products of an H100 or H200 without sparsity, per second: only for the share of it that is reported
LIMIT = {'build': 240, 'ops': 60, 'models': 90, 'bits': 60, 'amp': 90, 'sanitizer': 240, 'bench': 120, 'torch': 240}      # seconds of one program
LATE = 6            # so many programs of a part that take longer, and no other one of it is begun
BASES = 3           # so many programs that cannot be built before one can, and no other one is tried
STOPS = 24          # so often a program of cases is started again behind the one that it ended in
PARTS = ('machine', 'ops', 'amp', 'models', 'bits', 'bench', 'torch', 'sanitizer')     # the most telling first
PREFIX = {'ops': 'ops-', 'models': 'model-', 'bench': 'bench-', 'amp': 'amp-', 'bits': 'bits-'}     # of the names of a part's programs
PEERS = [(name, kind) for name in ('gpt2_plain', 'gpt2', 'resnet50', 'mlp', 'lstm_lm') for kind in ('eager', 'compile')]
SANITIZERS = 'memcheck', 'racecheck', 'synccheck', 'initcheck'
# beginnings of names: f32, attention and products in 16 bits with tensor cores, attention of our own in all its forms, cuDNN's LSTM
SANITIZED = 'model-mlp', 'amp-gpt2_mini-bf16', 'amp-attention-bf16-kernels', 'model-gpt2_mini', 'model-dyn_lstm'
AIMS = [('gpt2_plain', 'compile', 1.0), ('gpt2', 'compile', 1.0), ('resnet50', 'compile', 1.0), ('mlp', 'eager', 1.5), ('lstm_lm', 'eager', 1.5)]  # times PyTorch's speed
SHARE = 0.85        # of the bytes per second of a copy: what kernels of little arithmetic are to have
MOST_SAID = 40000   # characters of what a command said that log.txt keeps
TALK = '--log-level', 'debug', '--log-every', '1000000'         # which ways it took, and nothing of its steps
AGAIN = 75          # exit status: call again


class Over(Exception):
    """The time of this call is over; what was being done is for the next one."""


class Skipped(Exception):
    """What is not there, or too slow, and is no fault of ours."""


class Run:
    def __init__(self, a, key):
        self.a, self.began, self.lock = a, BEGAN, threading.Lock()
        self.unfinished = False                 # something is left for the next call
        self.broken = set()                     # parts that a fault of this script ended in this call
        self.out = os.path.abspath(a.out)
        self.work = a.work
        self.standin = bool(a.standin)
        self.limit = {k: v * (10 if a.standin else 1) for k, v in LIMIT.items()}       # many GPUs' work on few cores
        self.programs = max(1, min(4, a.jobs // 4))             # at once
        self.gpu = threading.Semaphore(self.programs)
        # where the runtime is compiled, for programs of cases and for those that train; folder -> why it was not built, or None
        self.base, self.built, self.late = {}, {}, {}
        self.first, self.unbuilt = ({kind: of() for kind in (True, False)} for of in (threading.Lock, list))
        self.env = dict(os.environ, OMP_NUM_THREADS='1', CFLAGS=f'-Wno-error {os.environ.get("CFLAGS", "")}'.strip(), **{processes.MARK: self.out})
        self.state = {'key': key, 'rows': {}, 'speed': {}, 'peers': {}, 'bits': {}, 'ways': {}, 'measured': {}, 'calls': [], 'machines': []}
        old, again = f'{self.out}/state.json', a.again.split(',')
        if os.path.exists(old):
            with open(old) as f:
                before = json.load(f)
            if before['key'] == key:
                self.state = {**self.state, **before}
            else:
                os.replace(old, f'{self.out}/state-before.json')
                print(f'state.json is of {before["key"]}, this is {key}: all is done anew; it is state-before.json now', flush=True)
        rows = self.state['rows']
        self.state['rows'] = {k: v for k, v in rows.items() if k.split(' ', 1)[0] not in again + ['pack', 'machine']}
        for part, what in ('bits', 'bits'), ('bench', 'speed'), ('torch', 'peers'):     # what is kept beside rows
            if part in again:
                self.state[what] = {}
        self.log = open(f'{self.out}/log.txt', 'a' if self.state['calls'] else 'w')
        self.state['calls'].append(0)
        self.save()

    def on(self, about):
        """This call is made on this machine."""
        seen = next((m for m in self.state['machines'] if m[0] == [list(x) for x in about]), None)
        if not seen:
            self.state['machines'].append(seen := [[list(x) for x in about], []])
        seen[1].append(len(self.state['calls']))
        self.save()

    def save(self):
        self.state['calls'][-1] = round(time.monotonic() - self.began)
        with open(f'{self.out}/state.json.new', 'w') as f:
            json.dump(self.state, f, indent=1)
        os.replace(f'{self.out}/state.json.new', f'{self.out}/state.json')

    def left(self):
        return self.a.seconds - (time.monotonic() - self.began)

    def note(self, text):
        print(text, flush=True)
        self.log.write(text + '\n')
        self.log.flush()

    def row(self, part, name, ok, said):
        """ok: True, False, or None for what was skipped."""
        with self.lock:
            self.state['rows'][f'{part} {name}'] = [ok, said]
            self.note(f'{"skip" if ok is None else "ok  " if ok else "FAIL"} {part} {name}: {said}')
            self.save()

    def known(self, part, name):
        return f'{part} {name}' in self.state['rows']

    def failed(self):
        return [f'{k}: {v[1]}' for k, v in self.state['rows'].items() if v[0] is False]

    def sh(self, cmd, timeout, cwd=None, env=None):
        """(exit status, output); 124: too late, with everything that it started ended."""
        left = self.left() + 30
        if left < 40:
            raise Over()
        rc, text = processes.run(cmd, min(timeout, left), cwd, env or self.env)
        if rc is None and left < timeout:
            raise Over()
        rc = 124 if rc is None else rc
        with self.lock:
            self.log.write(f'$ {" ".join(cmd)}  # in {cwd or "."}: exit {rc}\n{short(text)}\n')
        return rc, text


def short(text):
    """The beginning and the end of what is long."""
    half = MOST_SAID // 2
    return text if len(text) <= MOST_SAID else f'{text[:half]}\n[{len(text) - MOST_SAID} characters]\n{text[-half:]}'


def tail(text, n=3):
    return ' | '.join(l for l in text.strip().splitlines()[-n:])


def unpack(file, key, work):
    mark = f'{work}/unpacked'
    if not os.path.exists(mark) or open(mark).read() != key:
        shutil.rmtree(f'{work}/pack', ignore_errors=True)
        import lzma     # a Python without it takes a folder
        with lzma.open(file) as z, tarfile.open(fileobj=z) as t:
            t.extractall(work, **({'filter': 'data'} if hasattr(tarfile, 'data_filter') else {}))
        with open(mark, 'w') as f:
            f.write(key)
    return f'{work}/pack'


def copied(folder, key, work):
    """A folder that was unpacked, where its files may be replaced."""
    to, mark = f'{work}/copied', f'{work}/copied-from'
    if not os.path.exists(mark) or open(mark).read() != key:
        for old in to, f'{to}.new':
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(folder, f'{to}.new', symlinks=True)
        os.rename(f'{to}.new', to)
        with open(mark, 'w') as f:
            f.write(key)
    return to


PACKED = 'packed.json', '*/job.json', '*/expected/**', '*/build/*.*', '*/build/Makefile', '*/build/runtime/**', '*/build/stage*/**'


def content(pack, *of):
    """A digest of an archive, or of files of a folder: of what was in it when it was unpacked, not of what is built and run there."""
    h = hashlib.sha256()
    files = [pack] if os.path.isfile(pack) else sorted(
        f for p in of or PACKED
        for f in glob.glob(f'{pack}/{p}', recursive=True) if os.path.isfile(f) and not f.endswith('/profile.json'))
    for f in files:
        with open(f, 'rb') as g:
            h.update(f'{os.path.relpath(f, pack)}\n'.encode() + hashlib.sha256(g.read()).digest())
    return h.hexdigest()[:16]


def renew(pack, runtime):
    """Files of another runtime/, of a build folder or of the sources, in the place of those of every program: what was wrong in them
    is tried again without packing."""
    for f in glob.glob(f'{pack}/*/build/runtime/**', recursive=True):
        name = f.split('/build/runtime/', 1)[1]
        for new in [os.path.join(runtime, name), *glob.glob(os.path.join(runtime, '*', name))][:2]:
            if os.path.isfile(f) and os.path.isfile(new) and not filecmp.cmp(f, new, shallow=False):
                shutil.copyfile(new, f)


def jobs_of(pack):
    out = []
    for f in sorted(glob.glob(f'{pack}/*/job.json')):
        with open(f) as g:
            out.append(dict(json.load(g), dir=os.path.dirname(f), name=os.path.basename(os.path.dirname(f))))
    return out


# ---- building ----

def filled(path, head, size, block):
    with open(path, 'wb') as f:
        f.write(head)
        while f.tell() < size:
            f.write(block[:size - f.tell()])


def weights(job):
    """Files of weights whose heads alone travelled, and samples: numbers of a normal distribution, of weights with deviation 0.02.
    {NAME: [type, shape, how many values an index has]} of the job is data/NAME.npy."""
    rng = random.Random(1)
    some = [rng.gauss(0, 1) for _ in range(1 << 16)]
    small = array.array('f', [0.02 * x for x in some]).tobytes()
    for h in glob.glob(f'{job["dir"]}/build/weights/*.head'):
        with open(h, 'rb') as f:
            size, head = struct.unpack('<Q', f.read(8))[0], f.read()
        filled(h[:-5], head, size, small)
    for name, (kind, shape, values) in job.get('data', {}).items():
        block = array.array('q', [int(x * 1e6) % values for x in some]) if values else array.array('f', some)
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
        head += ' ' * (-(len(head) + 11) % 64) + '\n'
        os.makedirs(f'{job["dir"]}/data', exist_ok=True)
        filled(f'{job["dir"]}/data/{name}.npy', b'\x93NUMPY\1\0' + struct.pack('<H', len(head)) + head.encode(),
               10 + len(head) + math.prod(shape) * block.itemsize, block.tobytes())


def make(r, job):
    """Why a program was not built, or None. One whose building was cut is built anew: half an object is newer than its source."""
    d = f'{job["dir"]}/build'
    mark = f'{d}/building'
    if os.path.exists(mark):
        for old in 'obj', 'bin':
            shutil.rmtree(f'{d}/{old}', ignore_errors=True)
    open(mark, 'w').close()
    if job['kind'] == 'bench':
        weights(job)
    base = r.base.get(job['kind'] == 'cases')
    # the same flags: make takes what they made; others: it does not. Programs have their own way (CACHE)
    if job['kind'] == 'cases' and base and base != d and os.path.isdir(f'{base}/obj/runtime') and not os.path.isdir(f'{d}/obj/runtime'):
        os.makedirs(f'{d}/obj', exist_ok=True)
        shutil.copy2(f'{base}/obj/flags', f'{d}/obj/flags')
        shutil.rmtree(f'{d}/obj/copy', ignore_errors=True)
        shutil.copytree(f'{base}/obj/runtime', f'{d}/obj/copy')
        os.rename(f'{d}/obj/copy', f'{d}/obj/runtime')
    target = ['bin/cases'] if job['kind'] == 'cases' else ['all', 'bin/p0'] if job['kind'] == 'bench' else ['all']
    rc, out = r.sh(['make', '-s', '-C', d, '-j2' if base else f'-j{r.a.jobs}', f'CUDA={r.toolkit}', f'ARCH={r.a.arch}', f'CACHE={r.a.work}/kept', 'OPT=-O2',
                     *([f'CC={os.environ["CC"]}'] if os.environ.get('CC') else []), *target], r.limit['build'])
    if rc != 124:
        os.remove(mark)
    why = [l for l in out.splitlines() if 'error' in l.lower()]         # the first, not make's
    return None if rc == 0 else 'took too long' if rc == 124 else why[0] if why else tail(out)


def build(r, job):
    """Builds a program once; others of its kind take the runtime of the first."""
    d, kind = job['dir'], job['kind'] == 'cases'
    if d not in r.built:
        if not r.base.get(kind):
            with r.first[kind]:
                if len(r.unbuilt[kind]) == BASES:       # what the runtime lacks, all lack
                    r.built[d] = f'nor were {BASES} others: {r.unbuilt[kind][-1]}'
                elif not r.base.get(kind):
                    r.built[d] = make(r, job)
                    r.base[kind] = None if r.built[d] else f'{d}/build'
                    r.unbuilt[kind] += [r.built[d]] * bool(r.built[d])
        if d not in r.built:
            r.built[d] = make(r, job)
    if r.built[d]:
        raise compare.Differs(f'was not built: {r.built[d]}')


# ---- running ----

def run_cases(r, j, timeout):
    """All cases; a program that ends in one is started again with those behind it."""
    d, want = f'{j["dir"]}/build', f'{j["dir"]}/expected'
    cases, got, late = compare.records(want), [], 0
    with open(f'{want}/input', 'rb') as f:
        fed = f.read()
    for stops in range(STOPS):
        with open(f'{d}/input', 'wb') as f:
            f.write(fed[cases[len(got) - 1][1] if got else 0:])
        open(f'{d}/output', 'wb').close()
        rc, out = r.sh([f'{d}/bin/cases', f'{d}/input', f'{d}/output'], timeout)
        with open(f'{d}/output', 'rb') as f:
            given = f.read()
        for _, _, outputs in cases[len(got):]:
            n = compare.size_of(outputs)
            if len(given) < n or (rc and not given):
                break
            got.append(given[:n])
            given = given[n:]
        if len(got) < len(cases):
            got.append('it took too long' if rc == 124 else f'exit {rc}: {tail(out)}')
        late += rc == 124
        if len(got) == len(cases) or late > 2:
            break
    got += ['was not run'] * (len(cases) - len(got))
    return compare.check_cases(cases, got, want)


def took(r, j, out):
    """Notes which ways a program took; `, attention: own 1; refused: not supported` or ''."""
    with r.lock:
        r.state['ways'][j['name']] = ways.taken(out)
    said = '; '.join([ways.said(r.state['ways'][j['name']]), *(f'refused: {w}' for w in ways.why(out))])
    return said and f', {said}'


def run_train(r, j, by_name, timeout):
    d = f'{j["dir"]}/build'
    args = ['--data', f'{j["dir"]}/expected'] if glob.glob(f'{j["dir"]}/expected/*.npy') else []
    rc, out = r.sh(['sh', 'run.sh', *j['args'], *args, *TALK, '--timeout', '40'], timeout, d)
    if rc:
        raise compare.Differs('it took too long: ' * (rc == 124) + f'exit {rc}: {tail(out)}')
    near = by_name.get(j.get('near'))
    return f'{j["ranks"]} rank(s){took(r, j, out)}: ' + compare.check_train(j, f'{d}/run', f'{j["dir"]}/expected', near and f'{near["dir"]}/expected')


def tried(r, part, name, do):
    """A row of what `do` says; none where the time of this call is over."""
    try:
        ok, said = True, do()
    except Over:
        r.unfinished = True
        return
    except Skipped as x:
        ok, said = None, str(x)
    except (compare.Differs, OSError, KeyError, ValueError, struct.error) as x:
        ok, said = False, f'{"" if isinstance(x, compare.Differs) else type(x).__name__ + ": "}{x}'
    r.row(part, name, ok, said)


def some(r, part, jobs, run):
    """Builds and runs jobs side by side: they are small, and most of a run is its start."""
    def one(j):
        def do():
            build(r, j)
            with r.gpu:
                if r.late.get(part, 0) >= LATE:         # a fault that all have, and time for other parts
                    raise compare.Differs(f'was not run: {LATE} others took too long')
                try:
                    return run(j, r.limit[part])
                except compare.Differs as x:
                    if 'took too long' in str(x):
                        with r.lock:
                            r.late[part] = r.late.get(part, 0) + 1
                    raise
        if r.left() > 10:
            tried(r, part, j['name'], do)
        else:
            r.unfinished = True
    todo = [j for j in jobs if not r.known(part, j['name'])]
    todo.sort(key=lambda j: -sum(os.path.getsize(f) for f in glob.glob(f'{j["dir"]}/build/**/*.cu', recursive=True)))    # the longest to compile first
    with concurrent.futures.ThreadPoolExecutor(max(1, r.a.jobs * 3 // 4)) as pool:
        list(pool.map(one, todo))


def bits(r, jobs, by_name):
    def run(j, t):
        said, d = run_train(r, j, by_name, t), f'{j["dir"]}/build/run'
        with r.lock:
            first = r.state['bits'].setdefault(j['same'], [compare.bits(d), j['name']])
        if compare.bits(d) != first[0]:
            raise compare.Differs(f'its bits are not those of {first[1]}')
        return f'{said}, the bits of {first[1]}'
    some(r, 'bits', jobs, run)


def sanitized(jobs):
    """The programs that compute-sanitizer watches: of each name the first for one device."""
    found = [[j for j in jobs if j['name'].startswith(n) and j['kind'] == 'train' and j['ranks'] == 1] for n in SANITIZED]
    return [x[0] for x in found if x]


AT = re.compile(r'=+ .*(?:\bat|\band (?:Read|Write) access at|Device Frame:) (?:0x[0-9a-f]+ in )?(?:void )?(?:\(anonymous namespace\)::)?([A-Za-z_][\w:]*)')


def found_by_sanitizer(out, own):
    """Kernels of programs (`own`: their names) and of libraries that something is said of."""
    names = {m.group(1) for m in map(AT.match, out.splitlines()) if m}
    ours = {n for n in names if n.rsplit('::', 1)[-1] in own}
    return sorted(ours), sorted(names - ours)


def sanitizer(r, jobs):
    """memcheck answers for libraries too: a wrong pointer is ours. What else they do among themselves is theirs."""
    tool = shutil.which('compute-sanitizer') or next((f'{p}/bin/compute-sanitizer' for p in machine.roots()
                                                      if os.path.exists(f'{p}/bin/compute-sanitizer')), None)
    todo = sanitized(jobs)
    if r.standin or not tool or not todo:
        r.row('sanitizer', '-', None, 'not with the stand-in' if r.standin else 'no compute-sanitizer here' if not tool else 'no program')
        return

    def run(j, kind):
        d, own = f'{j["dir"]}/build', set()
        build(r, j)
        for f in glob.glob(f'{d}/**/*.cu', recursive=True):
            with open(f) as g:
                own |= set(re.findall(r'__global__ void (?:__launch_bounds__\(.*?\) )?(\w+)\(', g.read()))
        data = ['--data', f'{j["dir"]}/expected'] if glob.glob(f'{j["dir"]}/expected/*.npy') else []
        # initcheck has to see what libraries write, too
        mine = [x for n in sorted(own) for x in ('--kernel-regex', f'kns={n}')] if kind in ('racecheck', 'synccheck') else []
        with r.gpu:
            rc, out = r.sh([tool, '--tool', kind, '--error-exitcode', '9', '--print-limit', '1000', *mine, 'bin/d0', '--steps', '2', '--quiet',
                            '--timeout', '200', *data], r.limit['sanitizer'], d, dict(r.env, CUDA_MODULE_LOADING='LAZY'))
        if 'Device not supported' in out:
            raise Skipped('compute-sanitizer does not know this machine: Device not supported')
        said = next((l.strip('= ') for l in reversed(out.splitlines()) if 'SUMMARY' in l), '')
        ours, others = found_by_sanitizer(out, own)
        if rc == 9 and kind != 'memcheck' and others and not ours:
            return f'{said}; all of it in kernels of libraries: {", ".join(others[:4])}'
        if rc:
            raise compare.Differs(f'{said or tail(out)}, exit {rc}' + (f', in {", ".join(ours[:8])}' if ours else ''))
        return said or 'nothing found'
    todo = [(j, k) for k in SANITIZERS for j in todo if not r.known('sanitizer', f'{k} {j["name"]}')]
    with concurrent.futures.ThreadPoolExecutor(r.programs) as pool:
        list(pool.map(lambda x: tried(r, 'sanitizer', f'{x[1]} {x[0]["name"]}', lambda: run(*x)), todo))


# ---- speed ----

def copies(r):
    """GB/s of a copy on the device, bytes read and written."""
    program = f'{r.work}/copy'
    rc, out = r.sh([f'{r.toolkit}/bin/nvcc', '-O2', '-o', program, f'{HERE}/copy.cu', f'-L{r.toolkit}/lib64', '-lcudart'], 60)
    rc, out = r.sh([program], 30) if rc == 0 else (rc, out)
    if rc:
        raise compare.Differs(tail(out))
    r.state['speed']['copy'] = float(out)
    return f'{out.strip()} GB/s'


def keep_times(r, name, nodes):
    """Into operators.json: {benchmark: [phase, operator, value, its type, ms]}."""
    file, all_of = f'{r.out}/operators.json', {}
    if os.path.exists(file):
        with open(file) as f:
            all_of = json.load(f)
    all_of[name] = [[n['phase'], n['op'], n['value'], n['type'], round(n['typical'] * 1e3, 6)] for n in nodes]
    with open(file, 'w') as f:
        f.write('{\n' + ',\n'.join(f'{json.dumps(k)}: [\n' + ',\n'.join(map(json.dumps, v)) + '\n]' for k, v in sorted(all_of.items())) + '\n}\n')


def statements(r, j):
    """Where the time of a step goes: every statement alone, waited for, summed by operator; GB/s where the job says bytes."""
    d, copy = f'{j["dir"]}/build', r.state['speed'].get('copy')
    rc, out = r.sh(['./bin/p0', '--profile', 'profile.json', '--profile-seconds', '1' if r.standin else '4'], r.limit['bench'], d)
    if rc:
        raise compare.Differs(f'exit {rc}: {tail(out)}')
    with open(f'{d}/profile.json') as f:
        nodes = json.load(f)['nodes']
    keep_times(r, j['name'], nodes)
    spent = {}
    for n in nodes:
        spent[n['op']] = spent.get(n['op'], 0) + n['typical'] * 1e3
    for op, size in j.get('bytes', {}).items():
        if op not in spent:
            r.row('bench', f'kernel {op}', False, f'{j["name"]} has no {op}, but {", ".join(sorted(spent))}')
            continue
        rate = size / spent[op] / 1e6
        r.state['speed'][f'kernel {op}'] = copy and rate / copy
        r.row('bench', f'kernel {op}', True, f'{rate:.0f} GB/s' + (f', {rate / copy:.0%} of a copy' if copy else ''))
    return f'{sum(spent.values()):.3f} ms: ' + ', '.join(f'{op} {ms:.3f}' for op, ms in sorted(spent.items(), key=lambda x: -x[1])[:8])


def steps(r, j):
    d, ms = f'{j["dir"]}/build', []
    data = ['--data', f'{j["dir"]}/data'] if j.get('data') else []
    rc, out = r.sh(['sh', 'run.sh', '--steps', '4', *data, *TALK, '--timeout', '60'], r.limit['bench'], d)
    if rc:
        raise compare.Differs(f'exit {rc}: {tail(out)}')
    ways_taken = took(r, j, out)
    for _ in range(1 if r.standin else 3):
        rc, out = r.sh(['sh', 'run.sh', '--steps', '4' if r.standin else '60', *data, '--quiet', '--timeout', '60'], r.limit['bench'], d)
        if rc:
            raise compare.Differs(f'exit {rc}: {tail(out)}')
        with open(f'{d}/run/summary.json') as f:
            ms.append(json.load(f)['median_step_ms'])
    last = compare.losses(f'{d}/run/losses.txt')[-1]
    if not math.isfinite(last):
        raise compare.Differs(f'the last loss is {last}')
    m = r.state['speed'][j['name'][6:]] = statistics.median(ms)
    r.state['measured'][j['name'][6:]] = len(r.state['calls'])
    share = f', {j["flop_per_unit"] * j["per_step"] / m * 1e3 / PEAK:.1%} of {PEAK / 1e12:.0f} TFLOP/s ({j["formula"]})' if j['flop_per_unit'] else ''
    return f'{m:.3f} ms a step (medians {", ".join(f"{x:.3f}" for x in ms)}), {j["per_step"] / m * 1e3:.0f} {j["unit"]}/s{share}, loss {last:.4g}{ways_taken}'


def by_kernel(r, j):
    """What ran on the GPU in a step, into timeline.txt."""
    d, to, name = f'{j["dir"]}/build', f'{r.work}/libtimeline.so', j['name'][6:]
    lib, why = timeline.build(r.toolkit, machine.roots(), to, r.sh)
    if not lib:
        raise Skipped(f'no timeline: {tail(why)}')
    data = ['--data', f'{j["dir"]}/data'] if j.get('data') else []
    env = dict(r.env, CUDA_INJECTION64_PATH=lib, TIMELINE=f'{d}/timeline')
    rc, out = r.sh(['sh', 'run.sh', '--steps', f'{timeline.RUN}', *data, '--quiet', '--timeout', '60'], r.limit['bench'], d, env)
    if rc or not os.path.exists(f'{d}/timeline'):
        raise compare.Differs(f'exit {rc}: {tail(out)}')
    by, gaps, ms = timeline.added(f'{d}/timeline')
    with open(f'{r.out}/timeline.txt', 'a') as f:
        f.write(timeline.table(name, by, gaps, ms) + '\n')
    return f'{ms:.3f} ms a step while watched, {sum(n for n, _ in by.values()):.0f} kernels and copies, nothing ran for {sum(gaps.values()):.3f} ms'


def bench_rows(r, j):
    """[(name, what to do)] of a benchmark; the stand-in runs small ones."""
    seen = [(j['name'], steps)] + [(f'{j["name"]} by kernel', by_kernel)] * (not r.standin)
    rows = seen * bool(j['per_step']) + [(f'{j["name"]} by operator', statements)]
    return rows if not r.standin or j.get('small') else [(rows[0][0], lambda r, j: 'built; too large for the stand-in')]


def bench(r, jobs):
    """Built side by side, timed alone."""
    with concurrent.futures.ThreadPoolExecutor(max(1, r.a.jobs // 2)) as pool:
        list(pool.map(lambda j: make_quietly(r, j), [j for j in jobs if not all(r.known('bench', n) for n, _ in bench_rows(r, j))]))
    if not r.known('bench', 'copy') and not r.standin:
        tried(r, 'bench', 'copy', lambda: copies(r))
    rows = [(k, j, name, f) for j in jobs for k, (name, f) in enumerate(bench_rows(r, j))]
    for _, j, name, f in sorted(rows, key=lambda x: x[0]):      # steps of all, then where their time goes
        if not r.known('bench', name):
            tried(r, 'bench', name, lambda: [build(r, j), f(r, j)][1])


def make_quietly(r, j):
    try:
        build(r, j)
    except (Over, compare.Differs):     # said when it is its turn
        pass


def torch(r, jobs):
    """Beside steps of ours on the same machine: where those were timed in an earlier call, they are timed again."""
    if r.standin:
        return r.row('torch', '-', None, 'not with the stand-in')
    rc, out = r.sh(['python3', '-c', 'import torch; assert torch.cuda.is_available()'], 100, env=r.plain)
    if rc:
        return r.row('torch', '-', None, f'no PyTorch for this GPU here: {tail(out, 1)}')
    ours = {j['name'][6:]: j for j in jobs}

    def run(name, kind):
        rc, out = r.sh(['python3', f'{HERE}/bench_torch.py', name, kind], r.limit['torch'], env=r.plain)
        if rc == 124:
            raise Skipped(f'PyTorch took more than {r.limit["torch"]} s')
        lines = [l for l in out.splitlines() if l.startswith('torch ')]
        if rc or not lines:
            raise compare.Differs(f'exit {rc}: {tail(out)}')
        peer = float(lines[0].split()[3])
        if name in ours and r.state['measured'].get(name, len(r.state['calls'])) != len(r.state['calls']):
            build(r, ours[name])
            r.note(f'again bench-{name}: {steps(r, ours[name])}')
        own = r.state['speed'].get(name)
        if own:
            r.state['peers'][f'{name} {kind}'] = peer / own
        return lines[0] + (f'; a step of ours is {peer / own:.2f} times as fast ({own:.3f} ms)' if own else '')
    for name, kind in PEERS:
        if not r.known('torch', f'{name} {kind}'):
            tried(r, 'torch', f'{name} {kind}', lambda: run(name, kind))


# ---- the report ----

def missing(r, of, but=()):
    """How many rows there are to come; a part with a row `-` that says neither passed nor failed was skipped.
    but: parts that do not count."""
    want = {part: [j['name'] for j in of(prefix)] for part, prefix in PREFIX.items()}
    want['bench'] = ['copy'] * (not r.standin) + [n for j in of('bench-') for n, _ in bench_rows(r, j)]
    if not r.standin:
        want['torch'] = [f'{n} {k}' for n, k in PEERS]
        want['sanitizer'] = [f'{k} {j["name"]}' for j in sanitized(of('')) for k in SANITIZERS]
    but = {p for p in want if r.state['rows'].get(f'{p} -', [False])[0] is None}.union(but)
    return sum(not r.known(p, n) for p, names in want.items() if p not in but and (not r.a.only or p in r.a.only.split(',')) for n in names)


def aims(speed, peers):
    """[(what, what is wanted, what was seen)]; peers: {'NAME KIND': PyTorch's ms over ours, both of one call}."""
    out = [(f'{name}: times the speed of PyTorch, {kind}', want, peers[f'{name} {kind}']) for name, kind, want in AIMS if f'{name} {kind}' in peers]
    return out + [(f'{k}: of the bytes per second of a copy', SHARE, x) for k, x in speed.items() if k.startswith('kernel ') and x]


def report(r, packed, left):
    rows, calls = r.state['rows'], r.state['calls']
    with open(f'{r.out}/report.md', 'w') as f:
        f.write('# The GPU target on a machine\n\n')
        for about, on in r.state['machines']:
            f.write(f'- call {", ".join(map(str, on))}:\n' * (len(r.state['machines']) > 1) + ''.join(f'- {k}: {v}\n' for k, v in about))
        f.write(f'- pdcc at {packed["revision"]}; {" + ".join(map(str, calls))} s in {len(calls)} calls; log.txt beside this file\n')
        if r.standin:
            f.write('- **no GPU: the stand-in ran in its place; nothing here says anything about a GPU**\n')
        if r.state['ways']:
            f.write(f'- {len(r.state["ways"])} programs that train took these ways: {ways.said(ways.total(r.state["ways"].values()), True)}\n')
        count = [sum(v[0] is ok for v in rows.values()) for ok in (True, False, None)]
        f.write(f'\n{count[0]} passed, {count[1]} failed, {count[2]} skipped, {left} left for another call\n\n')
        seen = aims(r.state['speed'], r.state['peers'])
        if seen:
            f.write('| speed | wanted | seen |\n| --- | --- | --- |\n' +
                    ''.join(f'| {what} | {want:.2f} | {x:.2f}{"" if x >= want else ", not reached"} |\n' for what, want, x in seen) + '\n')
        f.write(''.join(f'- FAIL {x}\n' for x in r.failed()) + '\n| part | what | result |\n| --- | --- | --- |\n')
        for part in ('pack', *PARTS):
            for k, (ok, said) in rows.items():
                if k.split(' ', 1)[0] == part:
                    what = "" if ok else "skipped: " if ok is None else "**failed** "
                    f.write(f'| {part} | {k.split(" ", 1)[1]} | {what}{said.replace("|", "/")} |\n')
    return f'{count[0]} passed, {count[1]} failed, {count[2]} skipped, {left} left'


def look(r):
    """The toolkit and what stands in for MPI."""
    to = f'{r.work}/cuda'
    shutil.rmtree(to, ignore_errors=True)       # of another machine, perhaps
    r.toolkit, found = (os.path.abspath(r.a.standin), []) if r.standin else machine.toolkit(to)
    for part, where in found:
        r.row('machine', part, bool(where) or (None if part in machine.OPTIONAL else False), where or 'not found')
    if not r.standin:
        r.plain = dict(os.environ, **{processes.MARK: r.out})
        r.env['LD_LIBRARY_PATH'] = ':'.join(filter(None, [f'{to}/lib64', os.environ.get('LD_LIBRARY_PATH')]))
        r.row('machine', 'versions', *machine.mixed(to))
        unknown = machine.knows(to, r.a.arch)
        r.row('machine', 'architecture', not unknown, unknown or r.a.arch)
    r.note(f'{r.a.jobs} compilers, {r.programs} programs at once')
    rc, out = r.sh(['sh', f'{HERE}/mpi/build.sh', f'{r.work}/mpi'], 60)
    r.row('machine', 'messages', rc == 0, tail(out) or 'mpi/ built')
    r.env['PATH'] = f'{r.work}/mpi:' + r.env['PATH']


def options():
    ap = argparse.ArgumentParser()
    ap.add_argument('pack', metavar='FILE')
    ap.add_argument('--out', default='gpu-report')
    ap.add_argument('--work', default='')
    ap.add_argument('--runtime', default='', metavar='DIR')
    ap.add_argument('--only', default='')
    ap.add_argument('--again', default='')
    ap.add_argument('--names', default='', metavar='PATTERN')
    ap.add_argument('--standin', metavar='DIR')
    ap.add_argument('--seconds', type=float, default=540)
    ap.add_argument('--jobs', type=int, default=machine.cores())
    ap.add_argument('--arch', default='')
    a = ap.parse_args()
    for p in filter(None, a.only.split(',') + a.again.split(',')):
        if p not in PARTS:
            ap.error(f'no part is called {p}; there are {" ".join(PARTS)}')
    if not os.path.isfile(a.pack) and not os.path.exists(f'{a.pack}/packed.json'):
        ap.error(f'{a.pack} is neither an archive that run.sh --pack wrote nor a folder with packed.json')
    a.arch = a.arch or machine.arch() or 'sm_90'
    return a


def main():
    a = options()
    a.out = os.path.abspath(a.out)
    os.makedirs(a.out, exist_ok=True)
    a.work = os.path.abspath(a.work or f'{a.out}/work')
    os.makedirs(a.work, exist_ok=True)
    lock = processes.alone(a.out, a.work)
    processes.asked(AGAIN)
    key = content(a.pack)
    if a.runtime:
        key += '-' + content(a.runtime, '**')
    pack = unpack(a.pack, key, a.work) if os.path.isfile(a.pack) else copied(a.pack, key, a.work) if a.runtime else os.path.abspath(a.pack)
    if a.runtime:
        renew(pack, a.runtime)
    about = machine.describe()
    r = Run(a, f'{key} on {"the stand-in" if a.standin else machine.kind()}, {a.arch}')
    r.on(about)
    with open(f'{pack}/packed.json') as f:
        packed = json.load(f)
    for k, v in about:
        r.note(f'{k}: {v}')
    for k, x in enumerate(packed['failed']):
        r.row('pack', f'{k + 1}', False, f'was not packed: it failed on the stand-in: {x}')
    try:
        look(r)
    except Over:        # nothing more is begun
        r.unfinished = True
    jobs = [j for j in jobs_of(pack) if re.search(a.names, j['name'])]
    by_name = {j['name']: j for j in jobs}
    of = lambda prefix: [j for j in jobs if j['name'].startswith(prefix)]
    do = {'ops': lambda: some(r, 'ops', of('ops-'), lambda j, t: run_cases(r, j, t)),
          'models': lambda: some(r, 'models', of('model-'), lambda j, t: run_train(r, j, by_name, t)), 'bench': lambda: bench(r, of('bench-')),
          'torch': lambda: torch(r, of('bench-')), 'amp': lambda: some(r, 'amp', of('amp-'), lambda j, t: run_train(r, j, by_name, t)),
          'bits': lambda: bits(r, of('bits-'), by_name), 'sanitizer': lambda: sanitizer(r, jobs)}
    def too_late():     # something is stuck that no limit ends
        report(r, packed, max(missing(r, of), 1))
        os.kill(os.getpid(), signal.SIGTERM)
    guard = threading.Timer(r.left() + 35, too_late)
    guard.daemon = True
    guard.start()
    for part in PARTS[1:]:
        if a.only and part not in a.only.split(','):
            continue
        start = time.monotonic()
        try:
            if r.left() < 10:
                raise Over()
            r.state['rows'].pop(f'{part} -', None)      # of an earlier call
            do[part]()
        except Over:
            r.unfinished = True
        except Exception as x:  # a fault of this script in one part must not hide the others
            r.broken.add(part)
            r.row(part, '-', False, f'{type(x).__name__}: {x}')
        r.note(f'{part}: {time.monotonic() - start:.1f} s')
        report(r, packed, max(missing(r, of), r.unfinished))
    left, again = max(missing(r, of), r.unfinished), r.unfinished or missing(r, of, r.broken)    # what broke would break in the next call too
    print(f'{report(r, packed, left)}; {r.out}/report.md' + ('; call again to go on' if again else ''))
    return AGAIN if again else 1 if r.failed() else 0


if __name__ == '__main__':
    sys.exit(main())
