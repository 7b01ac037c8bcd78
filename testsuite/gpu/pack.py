#!/usr/bin/python3
"""run.sh --pack FILE [--quick] [--keep DIR] [--only WORD] [--kept] [--no-bench]: what travels to a machine with a GPU.

The suites run with --target cuda on standin/ in parts, and what a part that passed kept (lib/pdcctest.py, keep) is packed:
emitted folders, what they read, what they gave. A part that failed gives nothing and stands in packed.json, so that the report
says it. The benchmarks are emitted with weights that check.py makes up again where they run.

DIR (FILE.parts where nothing is said; a temporary one with --quick) holds the parts: what passed there with this very pdcc
and these very suites is not run again, so that packing can be stopped and goes on. FILE is a .tar.xz; duplicates in it cost nothing, because the
dictionary is larger than the archive. --only: parts whose name holds this. --quick: a few operators and models, small
benchmarks (what the tests do)."""
import argparse, concurrent.futures, glob, hashlib, json, lzma, os, re, shutil, struct, sys, tarfile, time
HERE = os.path.dirname(os.path.abspath(__file__))
SUITES = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(SUITES, 'lib'))
import pdcctest as T

SHARED = os.path.join(os.path.dirname(T.ROOT), 'shared', 'data', 'models')
FULL = os.path.join(SHARED, 'full_graphs')
BACKEND = '/usr/share/libonnx-testdata/data'
OWN = ('run.sh', 'check.py', 'compare.py', 'machine.py', 'processes.py', 'ways.py', 'bench_torch.py', 'timeline.py', 'timeline.c', 'copy.cu', 'README.md', 'mpi')
GPT2 = ['--dim', 'time=1024', '--micro-batch', '8', '--global-batch', '8', '--amp', 'bf16', '--optimizer', 'adamw:lr=1e-4']
TOKEN = 6 * 124.4e6 + 12 * 12 * 768 * 1024, 'a token 6 x 124.4e6 parameters + 12 x 12 layers x 768 x 1024'
# name -> (graph, flags, what a step counts, how many of them a step has (0: no steps), operations of one, and how they are counted)
BENCH = {
    'gpt2': ('gpt2_small.onnx', GPT2, 'tokens', 8 * 1024, *TOKEN),
    'gpt2_plain': ('gpt2_small.onnx', GPT2, 'tokens', 8 * 1024, *TOKEN),        # without its Dropout nodes
    'gpt2_fp8': ('gpt2_small.onnx', [*GPT2, '--amp', 'fp8'], 'tokens', 8 * 1024, *TOKEN),
    'resnet50': ('resnet50.onnx', ['--micro-batch', '128', '--global-batch', '128', '--amp', 'bf16'], 'images', 128, 3 * 8.2e9, 'an image 3 x 8.2e9'),
    'mlp': ('mnist_mlp.onnx', ['--micro-batch', '512', '--global-batch', '512'], 'samples', 512, 0, ''),
    'lstm_lm': ('', ['--micro-batch', '20', '--global-batch', '20', '--loss', 'softmax_ce'], 'tokens', 20 * 35, 0, ''),
    'kernels': ('', ['--loss', 'softmax_ce'], 'samples', 0, 0, ''),
}
# programs whose launches roofline --counts counts and whose kernels nvcc --bench compiles: graph, flags
COUNTED = {'gpt2, AdamW': ('gpt2_small.onnx', GPT2),
           'resnet50, Momentum': ('resnet50.onnx', ['--micro-batch', '64', '--global-batch', '64', '--amp', 'bf16', '--optimizer', 'momentum:lr=0.1']),
           'mlp, SGD': ('mnist_mlp.onnx', ['--micro-batch', '512', '--global-batch', '512', '--optimizer', 'sgd:lr=0.001'])}
# samples of two steps that are too many to be made up in memory: name -> type, shape, how many values an index has
DATA = {'resnet50': {'x': ['<f4', [256, 3, 224, 224], 0], 'labels': ['<i8', [256], 1000]}}
# operator of `kernels` -> how often a tensor of its width is read or written, by all of its kind
PASSES = {'Add': 1, 'LayerNormalization': 2, 'Softmax': 2, 'Fused': 2, 'ScoreLossGrad': 2, 'TanhGrad': 3, 'SoftmaxGrad': 3,
          'LayerNormGrad': 3, 'ReduceSum': 2}


KERNELS = 65536, 4096      # of the tensors of `kernels`, 1 GiB: no cache holds it, and no start of a kernel counts
FOUR = 'mlp', 'lenet', 'gpt2_mini', 'lstm_lm', 'resnet18'      # also on 4 stages and 4 replicas
BITS = 'one device,4 stages,4 replicas,2x2,zero bubble replicas'
GRADS = 8           # parts of the suite of gradients


def suites(quick):
    """[(label, command)]: what is run to be kept."""
    folders = [d for d in sorted(glob.glob(f'{SUITES}/models/*')) + sorted(glob.glob(f'{SHARED}/*')) if os.path.exists(f'{d}/ref.json')]
    models = {}
    for d in folders:
        models.setdefault(os.path.basename(d), d)
    oracle = [T.suite('oracle'), '--target', 'cuda', '--run', 'sgd', '--jobs', '1']
    mlp = f'{SUITES}/models/mlp'
    if quick:
        return [('ops', [T.suite('grad'), '--target', 'cuda', '--cases', '1', 'Gemm', 'Softmax']),
                ('models', [*oracle, '--only', '2-stages', mlp])]
    own = [m for m in models if not m.startswith('dyn_')]
    out = [(f'model {m}', [*oracle, '--only', 'one-train,2-stages' + ',4-' * (m in FOUR), models[m]]) for m in own]
    out += [(f'model {m}', [*oracle, '--only', 'one-train', models[m]]) for m in models if m not in own]       # other exports of networks that are there
    out += [(f'amp {m}', [T.suite('amp'), '--target', 'cuda', '--no-plans', m]) for m in own]
    out += [('amp fp16 mlp', [T.suite('amp'), '--target', 'cuda', '--no-plans', '--amp', 'fp16', 'mlp'])]
    out += [(f'amp fp8 {m}', [T.suite('amp'), '--target', 'cuda', '--no-plans', '--amp', 'fp8', m]) for m in ('mlp', 'gpt2_mini')]
    out += [('amp attention', [T.suite('attention'), '--amp', 'both'])]
    out += [(f'bits {m}', [T.suite('reproducible'), '--target', 'cuda', '--only', 'adam', '--plans', BITS, f'{SUITES}/models/{m}'])
            for m in ('mlp', 'gpt2_mini')]
    return out + operators()


def operators():
    import opcases
    ops = list(opcases.GENERATORS)
    out = [(f'grad {k + 1}', [T.suite('grad'), '--target', 'cuda', '--cases', '3', *ops[k::GRADS]]) for k in range(GRADS)]
    out += [('indexing', [T.suite('indexing'), '--target', 'cuda', '--cases', '6']), ('spatial', [T.suite('spatial'), '--target', 'cuda']),
            ('elementwise', [T.suite('elementwise'), '--target', 'cuda']), ('patterns', [T.suite('patterns'), '--target', 'cuda', '--cases', '2'])]
    cases = {d: sorted(glob.glob(f'{BACKEND}/{d}/*')) for d in ('node', 'simple', 'pytorch-operator', 'pytorch-converted')}
    return out + [(f'onnx {d} {k // 300 + 1}', [T.suite('onnx-backend'), '--target', 'cuda', *c[k:k + 300]]) for d, c in cases.items()
                  for k in range(0, len(c), 300)]


def digest(path):
    with open(path, 'rb') as f:
        return hashlib.sha256(f.read()).hexdigest()[:16]


def key(quick, what, *paths):
    """Of a part: what was packed for another one is not taken. `what` is run of these files and folders, by this pdcc."""
    h = hashlib.sha256()
    for f in (f for p in paths for f in (sorted(glob.glob(f'{p}/**', recursive=True)) if os.path.isdir(p) else [p])):
        if os.path.isfile(f) and '__pycache__' not in f:
            h.update(f'{os.path.relpath(f, SUITES)} {digest(f)}\n'.encode())
    return f'{digest(T.pdcc_path())} {h.hexdigest()[:16]} {"quick" if quick else "all"} {what}'


def slug(label):
    return re.sub(r'\W+', '-', label)


def judged(keep, label, key, run, kept):
    """Runs a part, unless it passed before for the same key: {'failed': [...], 'said', 'seconds'}; what it kept lies in
    KEEP/LABEL. run(folder) gives ([what failed], what to print)."""
    to, record = f'{keep}/{slug(label)}', f'{keep}/{slug(label)}.json'
    if os.path.exists(record):
        with open(record) as f:
            before = json.load(f)
        if before['key'] == key and not before['failed']:
            return dict(before, said=before['said'] + ' (kept)')
    if kept:
        return {'failed': ['was not run'], 'said': 'not run', 'seconds': 0}
    for old in [to] + [record] * os.path.exists(record):
        shutil.rmtree(old) if os.path.isdir(old) else os.path.exists(old) and os.remove(old)
    os.makedirs(to)
    start = time.monotonic()
    failed, said = run(to)
    if failed:      # nothing of it is known to be right
        shutil.rmtree(to)
    out = {'key': key, 'failed': failed, 'said': said, 'seconds': round(time.monotonic() - start, 1)}
    with open(record + '.new', 'w') as f:
        json.dump(out, f, indent=1)
    os.replace(record + '.new', record)
    return out


def suite(label, cmd):
    def run(folder):
        rc, out = T.run([sys.executable, *cmd], timeout=3600, env={'PDCC_KEEP': folder})
        said = (out.strip().splitlines() or ['said nothing'])[-1]
        lines = out.splitlines()
        failed = [' | '.join(x.strip() for x in lines[i:i + 4]) for i, l in enumerate(lines) if l.startswith('FAIL')] or [f'exit {rc}: {said}'] if rc else []
        return ([] if rc == 77 else failed) or ([] if os.listdir(folder) or rc == 77 else [f'kept nothing: {said}']), said
    return label, run, ' '.join(os.path.relpath(c, SUITES) if os.path.isabs(c) else c for c in cmd), cmd[0]


def bench_part(name, quick):
    def run(folder):
        why = bench(name, folder, quick)
        return [why] if why else [], why or 'emitted'
    return f'bench {name}', run, str(BENCH[name]), __file__


def kernels(path, rows, width):
    """A graph of large tensors and little arithmetic; bytes of one of the tensors. The first of them is made on the device: samples of
    the host would take longer than all the rest."""
    import numpy as np
    import onnx
    from onnx import helper as h, numpy_helper as nh
    weights = [nh.from_array(np.full(width, v, 'f4'), k) for k, v in (('place', 0.1), ('scale', 1), ('shift', 0), ('bias', 0.5))]
    nodes = [h.make_node('Add', ['x', 'place'], ['large']), h.make_node('LayerNormalization', ['large', 'scale', 'shift'], ['a'], axis=-1),
             h.make_node('Softmax', ['a'], ['b'], axis=-1), h.make_node('Add', ['b', 'bias'], ['c']), h.make_node('Tanh', ['c'], ['logits'])]
    io = [h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [rows, k]) for n, k in (('x', 1), ('logits', width))]
    onnx.save(h.make_model(h.make_graph(nodes, 'kernels', io[:1], io[1:], weights), opset_imports=[h.make_opsetid('', 17)], ir_version=8), path)
    return 4 * rows * width


def without_dropout(model, path):
    import onnx
    m = onnx.load(model, load_external_data=False)
    for n in m.graph.node:
        if n.op_type == 'Dropout':
            n.op_type = 'Identity'
            del n.input[1:], n.output[1:], n.attribute[:]
    onnx.save(m, path)


def lstm_lm(path, words=10000, width=650, steps=35):
    """A language model of two LSTMs, time-major: PTB's medium one."""
    import numpy as np
    import onnx
    from onnx import helper as h, numpy_helper as nh
    shapes = {'emb': (words, width), 'out': (width, words), 'bias': (words,)}
    shapes.update({f'{k}{i}': s for i in (1, 2) for k, s in (('w', (1, 4 * width, width)), ('r', (1, 4 * width, width)), ('b', (1, 8 * width)))})
    weights = [nh.from_array(np.zeros(s, 'f4'), k) for k, s in shapes.items()] + [nh.from_array(np.array([1], 'i8'), 'one')]
    nodes, x = [h.make_node('Gather', ['emb', 'tok'], ['x0'])], 'x0'
    for i in 1, 2:
        nodes += [h.make_node('LSTM', [x, f'w{i}', f'r{i}', f'b{i}'], [f'y{i}'], hidden_size=width), h.make_node('Squeeze', [f'y{i}', 'one'], [f'x{i}'])]
        x = f'x{i}'
    nodes += [h.make_node('MatMul', [x, 'out'], ['products']), h.make_node('Add', ['products', 'bias'], ['logits'])]
    io = [h.make_tensor_value_info('tok', onnx.TensorProto.INT64, [steps, 'batch']),
          h.make_tensor_value_info('logits', onnx.TensorProto.FLOAT, [steps, 'batch', words])]
    onnx.save(h.make_model(h.make_graph(nodes, 'lstm_lm', io[:1], io[1:], weights), opset_imports=[h.make_opsetid('', 17)], ir_version=8), path)


def without_weights(path):
    """Keeps the head of a safetensors file, and how long the file was: check.py fills it again."""
    size = os.path.getsize(path)
    with open(path, 'rb') as f:
        n = struct.unpack('<Q', f.read(8))[0]
        f.seek(0)
        head = f.read(8 + n)
    with open(path + '.head', 'wb') as f:
        f.write(struct.pack('<Q', size) + head)
    os.remove(path)


def bench(name, keep, quick):
    graph, flags, unit, n, work, formula = BENCH[name]
    model, job, to = f'{FULL}/{graph}', {}, f'{keep}/bench-{name}'
    os.makedirs(to)
    if name == 'kernels':
        model = f'{to}/kernels.onnx'
        tensor = kernels(model, *((32, 256) if quick else KERNELS))
        job = {'bytes': {op: n * tensor for op, n in PASSES.items()}}
    elif name == 'lstm_lm':
        model = f'{to}/lstm_lm.onnx'
        lstm_lm(model)
    if not os.path.exists(model):
        return f'no {model}'
    if name == 'gpt2_plain':
        without_dropout(model, model := f'{to}/gpt2_plain.onnx')
    try:
        T.emit(model, f'{to}/build', ['--cluster', 'local:1', '--target', 'cuda', '--init', 'random:1', *(['--optimizer', 'sgd:lr=0.001'] if '--optimizer' not in flags else []), *flags])
    except T.Failed as x:
        return str(x)
    for old in glob.glob(f'{to}/*.onnx'):
        os.remove(old)
    shutil.rmtree(f'{to}/build/ir')
    for w in glob.glob(f'{to}/build/weights/*.safetensors'):
        without_weights(w)
    with open(f'{to}/job.json', 'w') as f:
        json.dump({'kind': 'bench', 'ranks': 1, 'unit': unit, 'per_step': n, 'flop_per_unit': work, 'formula': formula, 'small': quick,
                   'data': DATA.get(name, {}), **job}, f)
    return ''


def archive(file, keep, labels, failed, quick):
    """Packs the programs of the parts that passed; how many."""
    jobs, used = 0, set()
    window = [{'id': lzma.FILTER_LZMA2, 'preset': 1 if quick else 6, 'dict_size': (16 if quick else 256) << 20}]
    with lzma.open(file + '.new', 'wb', filters=window) as z, tarfile.open(fileobj=z, mode='w') as t:
        for label in labels:
            for job in sorted(glob.glob(f'{keep}/{slug(label)}/*/job.json')):
                d = os.path.dirname(job)
                name = next(n for k in range(1, 1000) for n in [os.path.basename(d) + (f'.{k}' if k > 1 else '')] if n not in used)
                used.add(name)
                t.add(d, f'pack/{name}')
                jobs += 1
        for f in OWN:
            t.add(f'{HERE}/{f}', f'pack/gpu/{f}')
        rc, rev = T.run(['git', '-C', T.ROOT, 'rev-parse', 'HEAD'])
        with open(f'{keep}/packed.json', 'w') as f:
            json.dump({'revision': rev.strip() if not rc else 'unknown', 'failed': failed}, f, indent=1)
        t.add(f'{keep}/packed.json', 'pack/packed.json')
    os.replace(file + '.new', file)
    return jobs


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--pack', required=True, metavar='FILE')
    ap.add_argument('--quick', action='store_true')
    ap.add_argument('--no-bench', action='store_true')
    ap.add_argument('--only', default='', metavar='WORD')
    ap.add_argument('--jobs', type=int, default=2, help='parts side by side')
    ap.add_argument('--kept', action='store_true', help='pack what passed before; what did not is said to be missing')
    ap.add_argument('--keep', metavar='DIR', help='where the parts lie')
    a = ap.parse_args()
    keep = os.path.abspath(a.keep) if a.keep else T.temp('gpu') if a.quick else os.path.abspath(a.pack) + '.parts'
    os.makedirs(keep, exist_ok=True)
    os.environ['PDCC_CUDA'] = T.standin()[0].split('=', 1)[1]       # all suites, also where there is a GPU
    parts = [bench_part(name, a.quick) for name in ([] if a.no_bench else ['kernels'] if a.quick else BENCH)]
    shared = [f'{SUITES}/lib', f'{SUITES}/standin', T.suite('oracle'), __file__]       # amp and reproducible take the oracle's data
    parts = [(label, run, key(a.quick, what, file, *shared)) for label, run, what, file in parts + [suite(*x) for x in suites(a.quick)] if a.only in label]
    failed, good, start = [], [], time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for (label, _, _), r in zip(parts, pool.map(lambda x: judged(keep, x[0], x[2], x[1], a.kept), parts)):
            print(f'{"FAIL" if r["failed"] else "ok  "} {label}: {r["said"]}, {r["seconds"]:.0f} s', flush=True)
            failed += [f'{label}: {x}' for x in r['failed']]
            good += [] if r['failed'] else [label]
    jobs = archive(a.pack, keep, good, failed, a.quick)
    for b in failed:
        print(f'FAIL {b}')
    print(f'{a.pack}: {jobs} programs of {len(good)} of {len(parts)} parts, {len(failed)} failed, {os.path.getsize(a.pack) / 2**20:.1f} MiB, '
          f'{time.monotonic() - start:.0f} s')
    if a.quick and not a.keep:
        shutil.rmtree(keep)
    return 1 if failed or not jobs else 0


if __name__ == '__main__':
    sys.exit(main())
