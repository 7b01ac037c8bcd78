"""Mutants of the files beside a model (tool/hostile): each is fed to the command that reads it. What programs read, they read: two are built
once, with AddressSanitizer and UBSan, so that a mutant costs one run of a small program."""
import glob, os, re, shutil, struct, subprocess, threading
import numpy as np
import onnx
import pdcctest as T

MLP = f'{T.ROOT}/samples/mlp/model.onnx'
NUMBERS = ['0', '1', '-1', '7', '8', '2147483647', '2147483648', '4294967296', '4611686018427387904', '9223372036854775807', '-9223372036854775808',
           '18446744073709551616', '99999999999999999999999', '1e400', '-0', 'nan', '0.5', '1e-320']
WORDS = re.compile(rb'"(?:\\.|[^"\\\n])*"|[A-Za-z_][\w.]*|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\s+|.', re.S)
# what a sanitized process may take: as much as the others, which are held by a limit of addresses
SANITIZERS = {'ASAN_OPTIONS': 'detect_leaks=0:hard_rss_limit_mb=1024:max_allocation_size_mb=1024:allocator_may_return_null=1'}
SECONDS = 60        # on a busy machine; what hangs takes no time of a processor


def limited(folder, command, addresses=True):
    """(exit status, what it says) under the limits."""
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1', **SANITIZERS)
    try:
        p = subprocess.run(['sh', '-c', f'ulimit -t 10; ulimit -c 0; {"ulimit -v 1048576; " if addresses else ""}exec "$@"', 'sh', *command], cwd=folder,
                           env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise T.Failed(f'{" ".join(command)}: did not end in {SECONDS} s')
    return p.returncode, p.stdout.decode(errors='replace')


# ---- mutations ----

def mutate_words(r, data):
    """Words of a text, numbers above all, become others; some are lost, doubled, swapped; lines too."""
    for _ in range(r.randrange(1, 4)):
        words = WORDS.findall(data) or [b' ']
        i, what = r.randrange(len(words)), r.random()
        if what < 0.45:         # those inside strings too
            numbers = [m.span() for m in re.finditer(rb'-?\d+(\.\d+)?', data)]
            if numbers:
                a, b = r.choice(numbers)
                words = [data[:a], r.choice(NUMBERS).encode(), data[b:]]
        elif what < 0.6:
            words[i] = r.choice(words)
        elif what < 0.7:
            del words[i]
        elif what < 0.75:
            words.insert(i, words[i])
        elif what < 0.8:
            words[i] = r.choice([b'"', b'\\', b'\x00', b'\xff', b'"' + b'x' * 10000 + b'"', b'{', b']', b'%s', b'(' * 5000, b'[' * 5000])
        elif what < 0.85:
            words = words[:i]
        else:
            lines = b''.join(words).split(b'\n')
            k = r.randrange(len(lines))
            if what < 0.92:
                del lines[k]
            else:
                lines.insert(k, r.choice(lines))
            words = [b'\n'.join(lines)]
        data = b''.join(words)
    return data


def mutate_bytes(r, data, head):
    """Bytes become others, of the first `head` above all; the file is cut, or longer."""
    data = bytearray(data)
    for _ in range(r.randrange(1, 4)):
        i = r.randrange(min(head, len(data)) if r.random() < 0.8 else len(data)) if data else 0
        what = r.random()
        if what < 0.6 and data:
            data[i] = r.choice([0, 1, 0x7f, 0x80, 0xff, r.randrange(256)])
        elif what < 0.8:
            del data[i:]
        elif what < 0.9:
            data[i:i] = bytes(r.randrange(256) for _ in range(r.randrange(1, 9)))
        else:
            del data[i:i + r.randrange(1, 9)]
    return bytes(data)


def mutate_safetensors(r, data):
    """Its JSON, or its bytes; mostly the length in front is again that of the JSON, and the data have their length."""
    if r.random() < 0.25:
        return mutate_bytes(r, data, 64)
    n = struct.unpack('<Q', data[:8])[0]
    text, rest = data[8:8 + n], data[8 + n:]
    text = mutate_words(r, text)
    if r.random() < 0.3:
        names = [m.span() for m in re.finditer(rb'"[^"]*"', text)]
        if names:
            a, b = r.choice(names)
            text = text[:a] + r.choice([b'"\\u"', b'"\\', b'"\\ud800\\u"', b'"a\\u0000b"', b'"\\uD83D\\uDE00"', b'"fc1.weight[0..4)"', b'"__metadata__"',
                                        b'"step"', b'"x:ema"', b'""', b'"%n%s"']) + text[b:]
    return struct.pack('<Q', len(text) if r.random() < 0.95 else r.choice([0, 1, len(data), 2 ** 63, 2 ** 64 - 1])) + text + rest


def mutate_npy(r, data):
    n = 10 + struct.unpack('<H', data[8:10])[0]
    if r.random() < 0.4:
        return mutate_bytes(r, data, n)
    head = mutate_words(r, data[10:n])
    return data[:8] + struct.pack('<H', len(head) & 65535) + head + data[n:]


# ---- seeds ----

def made_once(make):
    """A property that is made when it is first asked for, by one thread."""
    lock, made = threading.RLock(), {}

    def get(self):
        with lock:
            if id(self) not in made:
                made[id(self)] = make(self)
            return made[id(self)]
    return property(get)


class Seeds:
    """What mutants are made from, made when first asked for."""

    def __init__(self, tmp):
        self.tmp = tmp

    def pdcc(self, *args):
        return T.check('pdcc', *T.run([T.pdcc_path(), *args], cwd=self.tmp))

    def sanitized(self, name, model, args):
        """A program of one device; its runtime is compiled once."""
        folder = f'{self.tmp}/{name}'
        self.pdcc(model, '--cluster', 'local:1', '--plan', '1', '--threads', '1', *args, '-o', name, '--emit-only')
        if name != 'mlp':
            shutil.copytree(f'{self.mlp}/obj', f'{folder}/obj', ignore=shutil.ignore_patterns('stage*', 'device*'))
        T.make(folder, '-O1', ['SAN=1', 'bin/d0'])
        return folder

    @made_once
    def mlp(self):
        return self.sanitized('mlp', MLP, ['--optimizer', 'adam', '--micro-batch', '4', '--global-batch', '8'])

    @made_once
    def tokens(self):
        write(f'{self.tmp}/row.bin', (np.arange(200) % 40).astype('<u2').tobytes())
        return self.sanitized('tokens', f'{T.HERE}/models/gpt2_mini/train_loss.onnx',
                              ['--dim', 'time=8', '--micro-batch', '2', '--global-batch', '4', '--data', 'ids=row.bin:tokens', '--data', 'labels=row.bin:tokens'])

    @made_once
    def checkpoint(self):
        """A folder of two checkpoints; trained.safetensors beside it."""
        T.check('mlp', *limited(self.mlp, ['bin/d0', '--steps', '2', '--ckpt', 'ckpt', '--ckpt-every', '1', '--quiet', '--out', 'run'], False))
        return f'{self.mlp}/ckpt'

    @made_once
    def compiled(self):
        """A build folder of two stages, with its schedule and the IR behind every pass; beside it one of unlike stages."""
        self.pdcc(MLP, '--cluster', 'local:3', '--plan', '2-1', '-o', 'compiled', '--emit-only', '--save-plan', 'plan.yaml')
        self.pdcc(MLP, '--cluster', 'local:3', '--plan', '2-1', '-o', 'again', '--emit-only', '--save-plan', 'plan.json')
        self.pdcc(MLP, '--cluster', 'local:3', '--plan', '1-1x2', '-o', 'unlike', '--emit-only', '--save-plan', 'unlike.yaml')
        return f'{self.tmp}/compiled'

    @made_once
    def dumps(self):
        """The IR behind every pass, of four programs: [(file, the pass that follows)]."""
        self.compiled
        self.pdcc(f'{T.ROOT}/samples/lenet/model.onnx', '--cluster', 'local:2', '--plan', '1-1', '--optimizer', 'adam', '--recompute', 'stage',
                  '-o', 'lenet', '--emit-only')
        self.pdcc(f'{T.HERE}/models/gpt2_mini/train_loss.onnx', '--cluster', 'local:2', '--plan', '2', '--dim', 'time=8', '--global-batch', '8',
                  '-o', 'gpt2', '--emit-only')
        found = []
        for name in ('compiled', 'unlike', 'lenet', 'gpt2'):
            files = sorted(glob.glob(f'{self.tmp}/{name}/ir/*.pdir'))
            passes = [re.sub(r'.*/\d+-|\.pdir', '', f) for f in files]
            found += zip(files, [*passes[1:], ''])
        return found

    @made_once
    def profile(self):
        self.pdcc('profile', MLP, '-o', 'profile.json', '--profile-seconds', '1', '--profile-cache', 'none')
        return f'{self.tmp}/profile.json'

    @made_once
    def external(self):
        m = onnx.load(MLP)
        onnx.save(m, f'{self.tmp}/external.onnx', save_as_external_data=True, all_tensors_to_one_file=True, location='weights.bin', size_threshold=0)
        return f'{self.tmp}/external.onnx'


def read(path):
    with open(path, 'rb') as f:
        return f.read()


def write(path, data):
    with open(path, 'wb') as f:
        f.write(data)


# ---- kinds: each writes a mutant into the folder and gives (commands, the file's name) ----

COMPILE = [MLP, '--emit-only', '--force', '-o', 'out']


def plan(r, s, folder):
    name = r.choice(['plan.yaml', 'plan.json', 'unlike.yaml'])
    s.compiled
    text = read(f'{s.tmp}/{name}')
    if name == 'unlike.yaml':
        text = text.replace(b'tensor: 2,', b'tensor: 2, sequence: "on",')
    if r.random() < 0.5:        # stages with numbers of their own
        text = text.replace(b'"devices"', b'"shard": 3, "devices"').replace(b' devices:', b' shard: 3, devices:').replace(b'{devices:', b'{shard: 1, devices:')
    write(f'{folder}/{name}', mutate_words(r, text))
    return [['pdcc', *COMPILE, '--cluster', r.choice(['local:3', 'local:2']), '--plan', name], ['pdcc', 'inspect', name]], name


def profile(r, s, folder):
    write(f'{folder}/profile.json', mutate_words(r, read(s.profile)))
    return [['pdcc', *COMPILE, '--cluster', 'local:2', '--profile', 'profile.json'], ['pdcc', 'inspect', 'profile.json']], 'profile.json'


def layers(r, s, folder):
    write(f'{folder}/graph.txt', mutate_words(r, read(r.choice(sorted(glob.glob(f'{T.HERE}/data/planner/*.txt'))))))
    return [['pdcc', 'plan-profile', 'graph.txt', '--planner', planner, '--workers', '4', '--bandwidth', '1e9']
            for planner in ('pipedream', 'blocks')], 'graph.txt'


def csv(r, s, folder):
    write(f'{folder}/schedule.csv', mutate_words(r, read(f'{s.compiled}/schedule.csv')))
    return [['pdcc', *COMPILE, '--cluster', 'local:3', '--plan', '2-1', '--schedule', 'csv:schedule.csv']], 'schedule.csv'


def pdir(r, s, folder):
    file, following = r.choice(s.dumps)
    write(f'{folder}/m.pdir', mutate_words(r, read(file)))
    more = ['--cluster', 'local:3', '--plan', '1-1x2'] if '/unlike/' in file else []
    return [['pdcc-opt', 'm.pdir', f'--passes={following}', *more], ['pdcc', 'inspect', 'm.pdir']], 'm.pdir|model.onnx|train_loss.onnx'


def external(r, s, folder):
    m = onnx.load(s.external, load_external_data=False)
    data = read(f'{s.tmp}/weights.bin')
    if r.random() < 0.3:
        data = mutate_bytes(r, data, len(data))
    write(f'{folder}/weights.bin', data)
    for _ in range(r.randrange(1, 3)):
        t = r.choice(m.graph.initializer)
        e = r.choice(t.external_data)
        if e.key != 'location' or r.random() < 0.3:
            e.value = r.choice([*NUMBERS, '', 'weights.bin', './weights.bin', 'm.onnx', 'x' * 5000, '../weights.bin', '.', ' 4', '4 ', '0x10'])
        else:
            t.dims[r.randrange(len(t.dims))] = r.choice([0, 1, -1, 2 ** 31, 2 ** 62])
    onnx.save(m, f'{folder}/m.onnx')
    return [['pdcc', 'm.onnx', *COMPILE[1:], '--cluster', 'local:1']], 'm.onnx'


def checkpoint(r, s, folder):
    shutil.copytree(s.checkpoint, f'{folder}/ckpt')
    step = 'step-0000000002'
    if r.random() < 0.7:        # the other is no way out
        shutil.rmtree(f'{folder}/ckpt/step-0000000001')
    part = f'{folder}/ckpt/{step}/part-0-of-1'
    what = r.random()
    if what < 0.6:
        write(f'{part}.json', mutate_words(r, read(f'{part}.json')))
    elif what < 0.9:
        data = mutate_safetensors(r, read(f'{part}.safetensors'))
        write(f'{part}.safetensors', data)
        if r.random() < 0.7:     # and a manifest that agrees
            text = re.sub(rb'"bytes": \d+', b'"bytes": %d' % len(data), read(f'{part}.json'))
            write(f'{part}.json', re.sub(rb'"hash": "\w+"', b'"hash": "%016x"' % checkpoint_hash(data), text, count=1))
    elif what < 0.95:
        to = r.choice(['part-1-of-2', 'part-0-of-2147483647', 'part-0-of-0', 'part--1-of-1'])
        os.rename(f'{part}.json', f'{folder}/ckpt/{step}/{to}.json')
    else:
        os.rename(f'{folder}/ckpt/{step}', f'{folder}/ckpt/step-{r.choice(["9223372036854775807", "-000000001", "99999999999999999999", "0000000003"])}')
    return [['d0', s.mlp, '--resume=ckpt', '--steps', '3', '--ckpt', 'ckpt', '--ckpt-every', '1', '--quiet', '--out', 'run'],
            ['pdcc', 'inspect', 'ckpt'], ['pdcc', 'export', 'ckpt', '--model', MLP, '-o', 'T.onnx']], 'ckpt'


def checkpoint_hash(data):
    """As runtime/state/ckptdir.c has it."""
    odd, mask = 0x9E3779B97F4A7C15, 2 ** 64 - 1

    def stir(x, w):
        x = ((x ^ w) * 0xBF58476D1CE4E5B9) & mask
        return x ^ (x >> 29)
    padded = np.frombuffer(data + bytes(-len(data) % 32), '<u8').reshape(-1, 4)
    lanes = np.array([k * odd & mask for k in (1, 2, 3, 4)], 'u8')
    for row in padded:
        lanes = (lanes ^ row) * np.uint64(0xBF58476D1CE4E5B9)
        lanes ^= lanes >> np.uint64(29)
    x = len(data) * odd & mask
    for lane in lanes:
        x = stir(x * odd & mask, int(lane))
    return x ^ (x >> 32)


def weights(r, s, folder):
    s.checkpoint
    write(f'{folder}/w.safetensors', mutate_safetensors(r, read(f'{s.mlp}/run/trained.safetensors')))
    how = r.choice(['--weights', '--resume'])
    return [['d0', s.mlp, f'{how}=w.safetensors', '--steps', '1', '--quiet', '--out', 'run'], ['pdcc', 'inspect', 'w.safetensors'],
            ['pdcc', *COMPILE, '--cluster', 'local:1', '--init', 'w.safetensors']], 'w.safetensors'


def idx_file(array):
    code = {'u1': 8, 'i1': 9, 'i2': 11, 'i4': 12, 'f4': 13, 'f8': 14}[array.dtype.str[1:]]
    return bytes([0, 0, code, array.ndim]) + b''.join(struct.pack('>I', d) for d in array.shape) + array.astype(array.dtype.newbyteorder('>')).tobytes()


def npy_file(array):
    head = f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}\n".encode()
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head + array.tobytes()


def data(r, s, folder):
    n, which = r.choice([8, 12]), r.choice(['x', 'labels'])
    arrays = {'x': np.full((n, 1, 28, 28), 0.5, r.choice(['<f4', '<f8', '>f4'])), 'labels': np.zeros(n, r.choice(['<i8', '>i4', 'u1']))}
    for name, a in arrays.items():
        kind = r.choice(['npy', 'idx', 'bin'])
        if kind == 'idx':
            blob = idx_file(a.astype('<f4' if name == 'x' else 'u1'))
        else:
            blob = npy_file(a) if kind == 'npy' else a.astype('<f4' if name == 'x' else '<i8').tobytes()
        if name == which:
            blob = mutate_npy(r, blob) if kind == 'npy' else mutate_bytes(r, blob, 20)
        write(f'{folder}/{name}.{kind}', blob)
    said = [f'{k}={f}{":raw" if f.endswith("bin") else ""}' for k in arrays for f in os.listdir(folder) if f.startswith(k + '.')]
    return [['d0', s.mlp, '--data', '.', '--steps', '2', '--quiet', '--out', 'run', *r.choice([[], ['--shuffle'], ['--samples', '8']])],
            ['pdcc', *COMPILE, '--cluster', 'local:1', *[x for w in said for x in ('--data', w)]]], which


def tokens(r, s, folder):
    row = np.arange(200) % 40
    blob = r.choice([row.astype('<u2').tobytes(), npy_file(row.astype(r.choice(['<u2', '<i4', '<i8', '>u4'])))])
    write(f'{folder}/row.bin', mutate_npy(r, blob) if blob[:1] == b'\x93' else mutate_bytes(r, blob, len(blob)))
    return [['d0', s.tokens, '--data', '.', '--steps', '2', '--quiet', '--out', 'run']], 'row.bin'


def folder_files(r, s, folder):
    """What a build folder says of itself, for the commands that read it."""
    shutil.copytree(s.compiled, f'{folder}/b', ignore=shutil.ignore_patterns('ir', 'runtime'))
    name = r.choice(['manifest.json', 'plan.json', 'certificate.json', 'schedule.csv'])
    write(f'{folder}/b/{name}', mutate_words(r, read(f'{folder}/b/{name}')))
    return [['pdcc', 'inspect', 'b'], ['pdcc', 'simulate', 'b', '--cluster', 'local:3']], 'b'


KINDS = {f.__name__: f for f in (plan, profile, layers, csv, pdir, external, checkpoint, weights, data, tokens, folder_files)}


def judge(name, command, rc, said):
    """What is refused names the file, or the node of the model."""
    where = ' '.join(command)[:300]
    wrong = rc < 0 or rc >= 70
    if command[0] == 'd0':
        wrong = rc not in (0, 1, 2, 76, 77, 78)
        name = '' if rc == 76 else name     # values, not files, are no numbers
    if wrong or 'Sanitizer' in said or 'runtime error:' in said:
        raise T.Failed(f'{where}: ends with {rc}\n{said[-3000:]}')
    if rc and not re.search(r'error|^R\d{3}\b', said, re.M):
        raise T.Failed(f'{where}: exit {rc} without a message\n{said[-1500:]}')
    if rc and not any(n in said for n in [*name.split('|'), 'node #']):
        raise T.Failed(f'{where}: exit {rc}, and {name} is not named\n{said[-1500:]}')


def try_mutant(kind, r, seeds, folder, addresses=True):
    """Makes one, and feeds it to all that read it."""
    commands, name = KINDS[kind](r, seeds, folder)
    for c in commands:
        if c[0] == 'd0':
            judge(name, c, *limited(folder, [f'{c[1]}/bin/d0', *c[2:]], False))
        else:
            judge(name, c, *limited(folder, [T.pdcc_path(c[0]), *c[1:]], addresses))
    if os.path.exists(f'{folder}/PWNED') or os.path.exists(f'{folder}/out/PWNED'):
        raise T.Failed('a command inside the file was run')
