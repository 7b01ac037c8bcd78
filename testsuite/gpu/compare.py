"""How a run of a packed program is held against what it gave where it was packed. Standard library only."""
import array, hashlib, json, math, os, struct

TYPES = {'F32': 'f', 'F64': 'd', 'I64': 'q', 'I32': 'i', 'U8': 'B', 'BOOL': 'B', 'F16': 'H', 'BF16': 'H'}
CASES = {'f32': 'f', 'f64': 'd', 'i64': 'q', 'i32': 'i', 'i16': 'h', 'u16': 'H', 'i8': 'b', 'u8': 'B', 'u32': 'I', 'u64': 'Q', 'bool': 'B'}
REL, TOP = 2e-4, 2e-5   # of a value, and of the largest of its tensor: two orders of adding in f32
# operator -> how much more: what is zero but for rounding (f32 of the stand-in or of a GPU beside f64)
LOOSE = {'MeanVarianceNormalization': 100, 'ReduceLogSumExp': 200}


class Differs(Exception):
    pass


def tensors(path):
    """{name: array} of a safetensors file."""
    with open(path, 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        head, blob = json.loads(f.read(n)), f.read()
    out = {}
    for k, t in head.items():
        if k != '__metadata__':
            out[k] = array.array(TYPES[t['dtype']])
            out[k].frombytes(blob[t['data_offsets'][0]:t['data_offsets'][1]])
    return out


def losses(path):
    with open(path) as f:
        return [float(l.split()[1]) for l in f if l.strip()]


def worst(got, want):
    """(the largest difference, the largest value of `want`); where one is no number the other has to be none too."""
    if got == want:
        return 0.0, 1.0
    if len(got) != len(want):
        return math.inf, 1.0
    err = top = 0.0
    for g, w in zip(got, want):
        if w - w == 0 and abs(w) > top:
            top = abs(w)
        if g != w and (g == g or w == w):
            d = abs(g - w)
            err = d if d > err else math.inf if d != d else err
    return err, top


def beyond(got, want, loose=1):
    """How far f32 is off by what REL and TOP allow: 1 is the limit. What is no number, or infinite, has to be the same in both."""
    if got == want:
        return 0.0
    if len(got) != len(want):
        return math.inf
    top, most = max([abs(w) for w in want if w - w == 0], default=0.0), 0.0
    for g, w in zip(got, want):
        if g != w and (g == g or w == w):
            x = abs(g - w) / (loose * (REL * abs(w) + TOP * max(top, 1e-3))) if g - g == 0 and w - w == 0 else math.inf
            most = max(most, x)
    return most


def records(want_dir):
    """What a program of cases is fed: [(name, where its record ends in the input, [(type, how many) of its outputs])], in order."""
    table, current = {}, None
    for line in open(f'{want_dir}/cases.txt'):
        w = line.split()
        if w[0] in ('case', 'skip'):
            current = table.setdefault(int(w[1]), (w[2], []))[1] if w[0] == 'case' else None
        elif current is not None:
            k = max(i for i, x in enumerate(w) if x in CASES or x in ('f16', 'bf16'))
            current.append((w[0], w[k], math.prod(int(x) for x in w[k + 1:])))
    with open(f'{want_dir}/input', 'rb') as f:
        fed = f.read()
    at, out = 0, []
    while at < len(fed):
        name, io = table[struct.unpack_from('<i', fed, at)[0]]
        at += 4 + sum(n * array.array(CASES.get(t, 'H')).itemsize for kind, t, n in io if kind == 'in')
        out.append((name, at, [(CASES.get(t, 'H'), n) for kind, t, n in io if kind != 'in']))
    return out


def size_of(outputs):
    return sum(n * array.array(code).itemsize for code, n in outputs)


def check_case(name, outputs, got, want):
    """How far a case is off by what is allowed, and why it is wrong or None."""
    most, why, at = 0.0, None, 0
    for code, n in outputs:
        g, w = array.array(code), array.array(code)
        end = at + n * g.itemsize
        g.frombytes(got[at:end])
        w.frombytes(want[at:end])
        at = end
        off = beyond(g, w, LOOSE.get(name.rsplit('_', 1)[0], 1)) if code in 'fd' else 0.0 if g == w else math.inf
        most = max(most, off)
        if not off <= 1:
            err, top = worst(g, w) if code in 'fd' else (math.inf, 1.0)
            why = f'{name}: {off:.3g} times what is allowed; differs by {err:.3g}, the largest value is {top:.3g}'
    return most, why


def check_cases(cases, got, want_dir):
    """The outputs of all cases; got: the bytes of each, or a text that says why there are none."""
    bad, worst_of, at = [], (0.0, '-'), 0
    with open(f'{want_dir}/output', 'rb') as f:
        want = f.read()
    for (name, _, outputs), g in zip(cases, got):
        end = at + size_of(outputs)
        off, why = (math.inf, f'{name}: {g}') if isinstance(g, str) else check_case(name, outputs, g, want[at:end])
        at = end
        worst_of = max(worst_of, (off, name))
        bad += [why] if why else []
    if bad:
        raise Differs(f'{len(bad)} of {len(cases)}: ' + '; '.join(bad[:12]))
    return f'{len(cases)} cases, the worst has {worst_of[0]:.2g} of what is allowed ({worst_of[1]})'


def smooth(x, k=20):
    k = min(k, len(x))
    return [sum(x[i:i + k]) / k for i in range(len(x) - k + 1)]


def check_losses(job, got, want):
    if len(got) != len(want):
        raise Differs(f'{len(got)} losses, {len(want)} are wanted')
    if 'curve' in job:
        least = job.get('least', 0) * want[0]       # of losses near 0
        far = max(abs(g - w) / max(abs(w), least) for g, w in zip(smooth(got), smooth(want)))
        if not far <= job['curve']:
            raise Differs(f'the curve of losses is up to {far:.2%} from that of f32')
        return f'curve within {far:.2%} of f32 over {len(got)} steps'
    for k, (g, w) in enumerate(zip(got, want)):
        if not abs(g - w) <= job['losses'] * max(1, abs(w)):
            raise Differs(f'loss before step {k + 1} is {g:.7g}, {w:.7g} is wanted')
    return f'{len(got)} losses within {max(abs(g - w) / max(1, abs(w)) for g, w in zip(got, want)):.1e}'


def check_norms(job, got, want):
    """Gradients beside others: the difference of each by its norm, and of all of them together."""
    one, whole = job['norms']
    off, size = {}, {}
    for k, w in want.items():
        if k not in got or len(got[k]) != len(w):
            raise Differs(f'gradients: {k} is missing or of another size')
        off[k], size[k] = math.dist(got[k], w), math.hypot(*w)
        if not math.isfinite(off[k]) or not math.isfinite(size[k]):
            raise Differs(f'the gradient of {k} has something that is no number')
    top = max(size.values())
    most, who = max((off[k] / size[k], k) for k in size if size[k] >= 1e-6 * top)      # others are zero but for rounding
    all_of = math.hypot(*off.values()) / math.hypot(*size.values())
    for what, x, limit in (f'the gradient of {who}', most, one), ('the gradient as a whole', all_of, whole):
        if limit is not None and not x <= limit:
            raise Differs(f'{what} is off by {x:.2g} of its norm, {limit:g} are allowed')
    return f', gradients within {most:.1e} ({who}), as a whole {all_of:.1e}'


def check_train(job, got_dir, want_dir, near_dir):
    said = check_losses(job, losses(f'{got_dir}/losses.txt'), losses(f'{near_dir or want_dir}/losses.txt'))
    if 'norms' in job:
        said += check_norms(job, *(tensors(f'{d}/grads.safetensors') for d in (got_dir, near_dir or want_dir)))
    if 'params' not in job:
        return said
    flipped = 0
    for file, most in ('grads', job['params']), ('trained', job['flip']):
        got, want = tensors(f'{got_dir}/{file}.safetensors'), tensors(f'{want_dir}/{file}.safetensors')
        for k, w in want.items():
            if k in job['skip'] or w.typecode not in 'fd':
                continue
            if k not in got:
                raise Differs(f'{file}: {k} is missing')
            err, top = worst(got[k], w)
            if not err <= most * max(top, 1e-6):
                raise Differs(f'{file}: {k} differs by {err:.3g}, its largest value is {top:.3g}')
            flipped += err > job['params'] * max(top, 1e-6)
    return said + (f', {flipped} trained tensors beyond {job["params"]:g} (a ReLU on its other side)' if flipped else '')


def bits(folder):
    """A digest of all losses and trained parameters of a run."""
    h = hashlib.sha256(repr(losses(f'{folder}/losses.txt')).encode())
    for k, v in sorted(tensors(f'{folder}/trained.safetensors').items()):
        h.update(k.encode() + v.tobytes())
    return h.hexdigest()
