"""What the oracle asks of the other exports of a model: train_dropout.onnx, train_traininginfo_*.onnx, eval.onnx."""
import glob, os, re
import numpy as np
import onnxpb
import pdcctest as T
from pdcctest import Failed


def checks(m, oracle):
    """(name, function of (m, target, tmp)) for the files that are there."""
    out = []
    if os.path.exists(f'{m.dir}/train_dropout.onnx'):
        out.append(('dropout', lambda m, target, tmp: dropout(m, oracle, target, tmp)))
    for path in sorted(glob.glob(f'{m.dir}/train_traininginfo_*.onnx')):
        kind = re.search('traininginfo_(.*).onnx', path).group(1)
        out.append((f'info-{kind}', lambda m, target, tmp, kind=kind: info(m, oracle, target, tmp, kind)))
    if os.path.exists(f'{m.dir}/eval.onnx'):
        out.append(('eval', lambda m, target, tmp: inference(m, oracle, target, tmp)))
    return out


def arguments(m, tmp, yaml, target):
    return ['--cluster', T.cluster_file(tmp, 1), '--train', yaml, '--plan', '1', '--target', target, '--micro-batch', str(m.batch),
            '--global-batch', str(m.batch), *m.dims()]


# ---- dropout: trains, and drops what it should ----

def dropout(m, oracle, target, tmp):
    build, yaml = f'{tmp}/dropout', f'{tmp}/dropout.train.yaml'
    oracle.train_yaml(m, 'sgd', tmp, yaml)
    T.emit(f'{m.dir}/train_dropout.onnx', build, arguments(m, tmp, yaml, target))
    T.make(build)
    T.start(build, ['--steps', '10'])
    losses = T.losses(build)
    if len(losses) < 10 or not np.isfinite(losses).all():
        raise Failed(f'dropout: losses {losses}')
    masks(m, tmp)


def with_outputs(path, names, tmp):
    """The model with more graph outputs, beside its weights."""
    blob = b''
    for f, w, v in onnxpb.fields(open(path, 'rb').read()):
        if f == 7:
            v += b''.join(onnxpb.field(12, onnxpb.field(1, n.encode())) for n in names)
        blob += onnxpb.field(f, v)
    out = f'{tmp}/with_outputs.onnx'
    open(out, 'wb').write(blob)
    for f in glob.glob(f'{os.path.dirname(path)}/*.bin'):
        if not os.path.exists(f'{tmp}/{os.path.basename(f)}'):
            os.link(f, f'{tmp}/{os.path.basename(f)}') if os.stat(f).st_dev == os.stat(tmp).st_dev else \
                open(f'{tmp}/{os.path.basename(f)}', 'wb').write(open(f, 'rb').read())
    return out


def ratio_of(path, node):
    """The ratio of a Dropout: its second operand, made by a Constant."""
    facts = onnxpb.model_facts(path)
    value = facts['values'].get(node[1][1]) if len(node[1]) > 1 else None
    if value is None:
        value = onnxpb.constants(path).get(node[1][1])
    return 0.5 if value is None else float(np.asarray(value).reshape(-1)[0])


def masks(m, tmp):
    """Of every Dropout: kept elements are x / (1 - ratio), others 0; the share that is kept; no two masks alike."""
    path = f'{m.dir}/train_dropout.onnx'
    nodes = [n for n in onnxpb.nodes(path) if n[0] == 'Dropout']
    if not nodes:
        raise Failed('dropout: the graph has none')
    names = [x for n in nodes for x in (n[1][0], n[2][0])]
    inputs = onnxpb.model_facts(path)['inputs']
    names = [n for n in dict.fromkeys(names) if n not in inputs]
    model = with_outputs(path, names, tmp)
    open(f'{tmp}/masks.list', 'w').write(f'masks {model}\n')
    folder = f'{tmp}/masks'
    T.check('pdcc cases', *T.run([T.pdcc_path(), 'cases', f'{tmp}/masks.list', '-o', folder, '--force', *m.dims(),
                                  *(['--dim', f'batch={m.batch}'])]))
    T.check('make', *T.run(['make', '-s', '-C', folder, f'CC={T.cc()}']))
    blob, outs, skip = np.int32(0).tobytes(), [], None
    stored = {i['name']: i for i in m.ref['inputs']}
    params = {p['name']: p for p in m.ref['params']}
    raw = open(f'{m.dir}/params_init.bin', 'rb').read()
    for line in open(f'{folder}/cases.txt'):
        w = line.split()
        if w[0] == 'skip':
            skip = line
        elif w[0] == 'in' and w[1] in stored:
            i = stored[w[1]]
            one = int(np.prod(i['shape'][1:])) * (4 if i['dtype'] == 'f32' else 8)
            blob += open(f"{m.dir}/{i['file']}", 'rb').read()[:one]
        elif w[0] == 'in' and w[1] in params:
            p = params[w[1]]
            blob += raw[p['offset']:p['offset'] + 4 * p['numel']]
        elif w[0] == 'in':
            n = int(np.prod([int(x) for x in w[3:]]))
            blob += np.ones(n, '<f4').tobytes()         # statistics
        elif w[0] == 'out':
            outs.append((w[1], w[2], [int(x) for x in w[3:]]))
    if skip:
        raise Failed(f'masks: {skip}')
    open(f'{folder}/input', 'wb').write(blob)
    T.check('masks', *T.run([f'{folder}/bin/cases', f'{folder}/input', f'{folder}/output'], timeout=300))
    data, at, value = open(f'{folder}/output', 'rb').read(), 0, {}
    for name, dt, shape in outs:
        kind = {'f32': '<f4', 'bool': '?', 'i64': '<i8'}[dt]
        n = int(np.prod(shape)) * np.dtype(kind).itemsize
        value[name] = np.frombuffer(data[at:at + n], kind).reshape(shape)
        at += n
    seen = []
    for n in nodes:
        if n[1][0] not in value or n[2][0] not in value:
            continue
        x, y, r = value[n[1][0]], value[n[2][0]], ratio_of(path, n)
        some = x != 0
        kept = y[some] != 0
        if not np.allclose(y[some][kept], (x[some] / (1 - r))[kept], rtol=1e-5):
            raise Failed(f'masks: {n[2][0]}: what is kept is not x / (1 - {r})')
        sigma = np.sqrt(r * (1 - r) / max(kept.size, 1))
        if abs(kept.mean() - (1 - r)) > 5 * sigma + 1e-9:
            raise Failed(f'masks: {n[2][0]}: {kept.mean():.4f} are kept, the ratio is {r}, {kept.size} elements')
        for shape, other in seen:
            if shape == y.shape and r and (both := some & other[0]).sum() > 64 and ((y[both] != 0) == other[1][both]).all():
                raise Failed(f'masks: {n[2][0]}: the mask is that of another node')
        seen.append((y.shape, (some, y != 0)))
    if not seen:
        raise Failed('masks: no Dropout could be looked at')


# ---- training_info ----

def info(m, oracle, target, tmp, kind):
    build, yaml = f'{tmp}/info-{kind}', f'{tmp}/info-{kind}.yaml'
    with open(yaml, 'w') as f:
        f.write('data:\n  kind: npy\n  inputs:\n')
        f.writelines(f"    {i['name']}: {tmp}/{i['name']}.fixed.npy\n" for i in m.ref['inputs'])
    T.emit(f'{m.dir}/train_traininginfo_{kind}.onnx', build, arguments(m, tmp, yaml, target))
    T.make(build)
    want = m.ref.get(f'losses_traininginfo_{kind}') or m.ref['losses'][kind]['f32']
    if abs(want[0] - m.ref['losses']['sgd']['f32'][0]) < 1e-5:
        T.start(build, ['--steps', '10', '--then-loss'])
        oracle.compare_losses(m, T.losses(build), want, f'info-{kind}')
        return
    # a reference that was taken with dropout says nothing here: one step of ONNX's formula from the stored gradient
    T.start(build, ['--steps', '1'])
    got = oracle.strip(T.safetensors(f'{build}/run/trained.safetensors'))
    w, g, o = m.array('init'), m.array('grad0'), m.ref['optimizers']['adam']
    for name in w:
        v, h = (1 - o['betas'][0]) * g[name].astype('f8'), (1 - o['betas'][1]) * g[name].astype('f8') ** 2
        new = w[name] - o['lr'] * v / (np.sqrt(h) + o['eps'])
        err = np.where(np.abs(g[name]) > 1e-5 * np.abs(g[name]).max(), np.abs(got[name].reshape(new.shape) - new), 0).max()
        if not err <= 1e-3 * o['lr'] * 4 + 1e-6 * np.abs(new).max():
            raise Failed(f'info-{kind}: {name} differs by {err:.3g} after one step')


# ---- inference exports ----

def marked(path):
    """The marks of an inference export: folded weights, merged ones, BatchNormalization with fixed statistics."""
    init = onnxpb.model_facts(path)['initializers']
    nodes = onnxpb.nodes(path)
    norm = any(n[0] == 'BatchNormalization' for n in nodes)
    return any(re.match('onnx::(Conv|MatMul)_', i) for i in init) or norm or \
        any(n[0] == 'Identity' and n[1][0] in init for n in nodes)


def inference(m, oracle, target, tmp):
    build, yaml, path = f'{tmp}/eval', f'{tmp}/eval.train.yaml', f'{m.dir}/eval.onnx'
    oracle.train_yaml(m, 'sgd', tmp, yaml)
    text = open(yaml).read()
    text = re.sub(r'padding_idx:\n(  .*\n)+', '', text)
    open(yaml, 'w').write(text)
    rc, out = T.run([T.pdcc_path(), path, '-o', build, '--force', *arguments(m, tmp, yaml, target)])
    if marked(path):
        if rc != 1 or 'inference export' not in out or 'torch.onnx.export' not in out:
            raise Failed(f'eval: exit {rc}, it must be refused with the call to use:\n{out}')
        return
    T.check('eval', rc, out)
    if 'note' not in out:
        raise Failed(f'eval: trained without a note:\n{out}')
    T.make(build)
    T.start(build, ['--steps', '10', '--then-loss'])
    losses = T.losses(build)
    if not np.isfinite(losses).all() or losses[-1] >= losses[0]:
        raise Failed(f'eval: losses {losses}')
