#!/usr/bin/python3
"""run.sh --pack FILE [--quick] [--keep DIR] [--no-bench]: what travels to a machine with a GPU.

The suites run with --target cuda on standin/ and keep what passed (lib/pdcctest.py, keep): emitted folders, what they read, what they
gave. The benchmarks are emitted with weights that check.py makes up again where they run. FILE is a .tar.xz; duplicates in
it cost nothing, because the dictionary is larger than the archive. --quick: a few operators and models, small benchmarks
(what the tests do)."""
import argparse, glob, json, lzma, os, shutil, struct, subprocess, sys, tarfile
HERE = os.path.dirname(os.path.abspath(__file__))
SUITES = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(SUITES, 'lib'))
import pdcctest as T

SHARED = os.path.join(os.path.dirname(T.ROOT), 'shared', 'data', 'models')
FULL = os.path.join(SHARED, 'full_graphs')
BACKEND = '/usr/share/libonnx-testdata/data'
OWN = ('run.sh', 'check.py', 'compare.py', 'machine.py', 'bench_torch.py', 'copy.cu', 'README.md', 'mpi')
# name -> (graph, flags, what a step counts, how many of them a sample has, and its floating-point operations)
BENCH = {
    'gpt2': ('gpt2_small.onnx', ['--dim', 'time=1024', '--micro-batch', '8', '--amp', 'bf16'], 'tokens', 8 * 1024, 6 * 124.4e6 + 12 * 12 * 768 * 1024),
    'resnet50': ('resnet50.onnx', ['--micro-batch', '128', '--amp', 'bf16'], 'images', 128, 3 * 8.2e9),
    'mlp': ('mnist_mlp.onnx', ['--micro-batch', '512'], 'samples', 512, 0),
    'lstm_lm': ('', ['--micro-batch', '20'], 'samples', 20, 0),
    'kernels': ('', ['--loss', 'softmax_ce'], 'samples', 16384, 0),
}
# operator of `kernels` -> how often a tensor of its width is read or written
PASSES = {'LayerNormalization': 2, 'Softmax': 2, 'Fused': 2, 'SoftmaxCrossEntropyLossGrad': 2, 'TanhGrad': 3, 'SoftmaxGrad': 3,
          'LayerNormGrad': 3, 'ReduceSum': 1}


def suites(quick):
    """[(label, command)]: what is run to be kept."""
    models = [d for d in sorted(glob.glob(f'{SUITES}/models/*') + glob.glob(f'{SHARED}/*')) if os.path.exists(f'{d}/ref.json')]
    names = [os.path.basename(d) for d in models]
    models = [d for i, d in enumerate(models) if names.index(os.path.basename(d)) == i]
    oracle = [f'{SUITES}/oracle', '--target', 'cuda', '--run', 'sgd']
    mlp = f'{SUITES}/models/mlp'
    if quick:
        return [('ops', [f'{SUITES}/grad', '--target', 'cuda', '--cases', '1', 'Gemm', 'Softmax']),
                ('models', [*oracle, '--only', '2-stages', mlp])]
    out = [('grad', [f'{SUITES}/grad', '--target', 'cuda', '--cases', '3']),
           ('indexing', [f'{SUITES}/indexing', '--target', 'cuda']), ('patterns', [f'{SUITES}/patterns', '--target', 'cuda'])]
    out += [(f'onnx {d}', [f'{SUITES}/onnx-backend', '--target', 'cuda', f'{BACKEND}/{d}'])
            for d in ('node', 'simple', 'pytorch-operator', 'pytorch-converted') if os.path.isdir(f'{BACKEND}/{d}')]
    out += [(f'{os.path.basename(d)} {c}', [*oracle, '--only', c, d]) for d in models for c in ('one', '2-stages', '4-')]
    out += [('bits', [f'{SUITES}/reproducible', '--target', 'cuda', '--quick', mlp, f'{SUITES}/models/gpt2_mini'])]
    return out + [('amp', [f'{SUITES}/amp', '--target', 'cuda', '--no-plans'])]


def kernels(path, rows, width):
    """A graph of large tensors and little arithmetic; bytes of one of the tensors."""
    import numpy as np
    import onnx
    from onnx import helper as h, numpy_helper as nh
    weights = [nh.from_array(np.full(width, v, 'f4'), k) for k, v in (('scale', 1), ('shift', 0), ('bias', 0.5))]
    nodes = [h.make_node('LayerNormalization', ['x', 'scale', 'shift'], ['a'], axis=-1), h.make_node('Softmax', ['a'], ['b'], axis=-1),
             h.make_node('Add', ['b', 'bias'], ['c']), h.make_node('Tanh', ['c'], ['logits'])]
    io = [h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [rows, width]) for n in ('x', 'logits')]
    onnx.save(h.make_model(h.make_graph(nodes, 'kernels', io[:1], io[1:], weights), opset_imports=[h.make_opsetid('', 17)], ir_version=8), path)
    return 4 * rows * width


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
    graph, flags, unit, n, work = BENCH[name]
    model, job = f'{FULL}/{graph}', {}
    if name == 'kernels':
        model = f'{keep}/kernels.onnx'
        tensor = kernels(model, *((32, 256) if quick else (16384, 4096)))
        job = {'bytes': {op: n * tensor for op, n in PASSES.items()}}
    elif quick:
        model, flags, n = f'{SUITES}/models/mlp/train_loss.onnx', ['--micro-batch', '8'], 8
    elif name == 'lstm_lm':
        model = f'{SHARED}/lstm_lm/train_loss.onnx'
    if not os.path.exists(model):
        return f'no {model}'
    to = f'{keep}/bench-{name}'
    try:
        T.emit(model, f'{to}/build', ['--cluster', 'local:1', '--target', 'cuda', '--init', 'random:1', '--optimizer', 'sgd:lr=0.001', *flags])
    except T.Failed as x:
        shutil.rmtree(to, ignore_errors=True)
        return str(x)
    shutil.rmtree(f'{to}/build/ir')
    for w in glob.glob(f'{to}/build/weights/*.safetensors'):
        without_weights(w)
    with open(f'{to}/job.json', 'w') as f:
        json.dump({'kind': 'bench', 'ranks': 1, 'unit': unit, 'per_step': n, 'flop_per_unit': work, **job}, f)
    return ''


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument('--pack', required=True, metavar='FILE')
    ap.add_argument('--quick', action='store_true')
    ap.add_argument('--no-bench', action='store_true')
    ap.add_argument('--keep', help='an empty folder for what is packed, left there')
    a = ap.parse_args()
    keep = os.path.abspath(a.keep) if a.keep else T.temp('gpu')
    os.makedirs(keep, exist_ok=True)
    os.environ['PDCC_KEEP'] = keep
    bad = []
    for label, cmd in suites(a.quick):
        rc, out = T.run([sys.executable, *cmd], timeout=3600)
        said = out.strip().splitlines()[-1:] or ['said nothing']
        print(f'{label}: {said[0]}', flush=True)
        if rc:
            bad += [f'{label}: {l}' for l in out.splitlines() if l.startswith('FAIL')] or [f'{label}: exit {rc}']
    for name in [] if a.no_bench else ['kernels'] if a.quick else BENCH:
        why = bench(name, keep, a.quick)
        print(f'bench {name}: {why or "emitted"}', flush=True)
        bad += [f'bench {name}: {why}'] if why else []
    os.makedirs(f'{keep}/gpu')
    for f in OWN:
        (shutil.copytree if os.path.isdir(f'{HERE}/{f}') else shutil.copy)(f'{HERE}/{f}', f'{keep}/gpu/{f}')
    with open(f'{keep}/packed.json', 'w') as f:
        rc, rev = T.run(['git', '-C', T.ROOT, 'rev-parse', 'HEAD'])
        json.dump({'revision': rev.strip() if not rc else 'unknown', 'failed': bad}, f, indent=1)
    window = [{'id': lzma.FILTER_LZMA2, 'preset': 1 if a.quick else 6, 'dict_size': (16 if a.quick else 256) << 20}]
    with lzma.open(a.pack, 'wb', filters=window) as z, tarfile.open(fileobj=z, mode='w') as t:
        t.add(keep, 'pack')
    jobs = len(glob.glob(f'{keep}/*/job.json'))
    print(f'{a.pack}: {jobs} programs, {os.path.getsize(a.pack) / 2**20:.1f} MiB')
    for b in bad:
        print(f'FAIL {b}')
    if not a.keep:
        shutil.rmtree(keep)
    return 1 if bad or not jobs else 0


if __name__ == '__main__':
    sys.exit(main())
