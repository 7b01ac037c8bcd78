#!/usr/bin/python3
"""Bad input: every case names files, a command and the exact message with its exit status.

    testsuite/tool/err/run.py PDCC [-u] [NAME...]      -u rewrites what is wanted from what is said; review the diff
    testsuite/tool/err/run.py --models DIR             writes the small models only, as seeds for the fuzzer

A case is a file cases/NAME.txt: lines `file NAME` followed by indented content, `model NAME KIND` (made by KINDS below),
`link NAME TARGET`, `fifo NAME`, one line `run ARGS` (pdcc's arguments), `exit N` and then the wanted standard error, where HERE is the
folder that the case runs in. A message that names a line of a file shows it, and nothing is told twice.
"""
import collections, glob, os, re, subprocess, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), 'lib'))
import activations, indexing, nested, onednn, samples, tiny

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLE = os.path.join(HERE, '..', '..', '..', 'samples', 'mlp', 'model.onnx')
MODELS = os.path.join(HERE, '..', '..', 'models')


def copy(path):
    return lambda: open(path, 'rb').read()


def rename_op(old, new):
    """The sample with an operator's name replaced by one of the same length."""
    assert len(old) == len(new)
    return lambda: open(SAMPLE, 'rb').read().replace(old, new)


KINDS = {
    'sample': copy(SAMPLE),
    'truncated': lambda: open(SAMPLE, 'rb').read()[:200000],
    'garbage': lambda: bytes((i * 7919) % 251 for i in range(4096)),
    'empty': lambda: b'',
    'unknown-op': rename_op(b'Relu', b'Rely'),
    'inference': copy(os.path.join(MODELS, 'gpt2_mini', 'eval.onnx')),
    'lookups': copy(os.path.join(MODELS, 'lm_sampled', 'train.onnx')),
    'inference-bn': copy(os.path.join(MODELS, 'resnet18', 'eval.onnx')),
    'fixed-bn': lambda: open(os.path.join(MODELS, 'resnet18', 'train.onnx'), 'rb').read().replace(b'training_mode', b'training_node'),
    'pairs': lambda: tiny.graph([tiny.node('MatMul', ['x', 'w'], ['z']), tiny.node('Transpose', ['z'], ['t']), tiny.node('MatMul', ['z', 't'], ['s']),
                                tiny.node('ReduceMean', ['s'], ['y'], keepdims=0)], [tiny.weight('w', [6, 3])], [4, 6], []),
    'views': lambda: tiny.graph([tiny.node('MatMul', ['x', 'w'], ['z']), tiny.node('Concat', ['z', 'z'], ['v'], axis=0),
                                tiny.node('Transpose', ['v'], ['t']), tiny.node('MatMul', ['v', 't'], ['s']), tiny.node('Add', ['s', 'm.weight'], ['u']),
                                tiny.node('ReduceMean', ['u'], ['y'], keepdims=0)], [tiny.weight('w', [6, 3]), tiny.weight('m.weight', [8, 8])], [4, 6], []),
    'batchnorm': copy(os.path.join(MODELS, 'resnet18', 'train.onnx')),
    'optimized': copy(os.path.join(MODELS, 'dyn_cnn', 'optimized.onnx')),
    'unsigned': lambda: open(os.path.join(MODELS, 'dyn_folded', 'train.onnx'), 'rb').read().replace(b'graph_signature', b'graph-signature'),
    'gpt2': copy(os.path.join(MODELS, 'gpt2_mini', 'train.onnx')),
    'external': copy(os.path.join(MODELS, 'lenet', 'train_loss.onnx')),
    'two-batches': lambda: tiny.graph([tiny.node('MatMul', ['x', 'w'], ['h']), tiny.node('MatMul', ['t', 'h'], ['y'])],
                                      [tiny.weight('w', (3, 4))], (7, 3), (5, 4), t=(5, 7)),
    'two-outputs': lambda: tiny.graph([tiny.node('MatMul', ['x', 'w'], ['y']), tiny.node('MatMul', ['x', 'v'], ['box'])],
                                      [tiny.weight('w', (16, 4)), tiny.weight('v', (16, 3))], (8, 16), (8, 4), outputs={'box': (8, 3)}),
    'conv-strides': lambda: tiny.model('Conv', (8, 3, 32, 32), (16, 3, 3, 3), (8, 16, 1, 30), strides=[2**62, 1]),
    'external-w': lambda: tiny.model('MatMul', (8, 4), (4, 4), (8, 4), location='w.bin'),
    'attribute-kind': lambda: tiny.model('Softmax', (8, 10), None, (8, 10), axis=1.5),
    'attribute-int': lambda: tiny.model('Gemm', (8, 10), (10, 4), (8, 4), alpha=2),
    'attribute-list': lambda: tiny.model('Conv', (8, 3, 9), (4, 3, 3), (8, 4, 7), strides=1),
    'attribute-nan': lambda: tiny.model('LayerNormalization', (8, 10), (10,), (8, 10), epsilon=float('nan')),
    'attribute-infinite': lambda: tiny.model('LRN', (8, 4, 6, 6), None, (8, 4, 6, 6), size=3, beta=float('-inf')),
    'attribute-layout': lambda: tiny.model('GRU', (8, 4, 6), (1, 12, 6), (8, 1, 4, 4), hidden_size=4, layout=7),
    'attribute-training-mode': lambda: tiny.model('BatchNormalization', (8, 4), (4,), (8, 4), training_mode=-1),
    'attribute-string': lambda: tiny.model('Gemm', (8, 10), (10, 4), (8, 4), alpha='0.1'),
    'pool-kernel': lambda: tiny.model('MaxPool', (8, 3, 32, 32), None, (8, 3, 1, 31), kernel_shape=[2**63 - 1, 2]),
    'conv-pads': lambda: tiny.model('Conv', (8, 3, 32, 32), (16, 3, 3, 3), (8, 16, 30, 30), pads=[0, 0, 2**63 - 1, 0]),
    **activations.KINDS,
    **nested.KINDS,
    **indexing.KINDS,
    **samples.KINDS,
}


def parse(path):
    c = {'files': {}, 'models': {}, 'links': {}, 'fifos': [], 'run': None, 'exit': None, 'want': []}
    name = None
    for line in open(path):
        if c['exit'] is not None:
            c['want'].append(line)
        elif line.startswith('file '):
            name = line.split()[1]
            c['files'][name] = ''
        elif line.startswith('\t'):
            c['files'][name] += line[1:]
        elif line.startswith('model '):
            c['models'][line.split()[1]] = line.split()[2]
        elif line.startswith('fifo '):
            c['fifos'].append(line.split()[1])
        elif line.startswith('link '):
            c['links'][line.split()[1]] = line.split()[2]
        elif line.startswith('run '):
            c['run'] = line.split()[1:]
        elif line.startswith('exit '):
            c['exit'] = int(line.split()[1])
    c['want'] = ''.join(c['want'])
    return c


def write_models(folder):
    for name, make in KINDS.items():
        b = make()
        if len(b) < 1 << 16:
            open(os.path.join(folder, f'err-{name}.onnx'), 'wb').write(b)


def ill_told(want):
    """Messages with the line of a file that do not show it, and those that come twice."""
    lines = [x for x in want.splitlines() if x.strip()]
    bare = [a for a, b in zip(lines, lines[1:] + ['']) if re.match(r'(?!lo[ck]al:)[^ :]+:\d+(:\d+)?: (error|warning): ', a) and not re.match(r' *\d+ \|', b)]
    return bare + [x for x, n in collections.Counter(x for x in lines if not re.match(r' *\d* \|', x)).items() if n > 1]


def main():
    if sys.argv[1:2] == ['--models']:
        return write_models(sys.argv[2])
    args = [a for a in sys.argv[1:] if a != '-u']
    pdcc, names, update = os.path.abspath(args[0]), args[1:], '-u' in sys.argv
    os.environ['PDCC_CORES'] = '2'          # threads, and with them scratch, shall not depend on the machine
    ok = bad = 0
    for path in sorted(glob.glob(os.path.join(HERE, 'cases', '*.txt'))):
        case = os.path.basename(path)[:-4]
        if names and case not in names:
            continue
        c = parse(path)
        with tempfile.TemporaryDirectory() as tmp:
            for f, text in c['files'].items():
                os.makedirs(os.path.dirname(os.path.join(tmp, f)), exist_ok=True)
                open(os.path.join(tmp, f), 'w').write(text)
            for f, kind in c['models'].items():
                os.makedirs(os.path.dirname(os.path.join(tmp, f)), exist_ok=True)
                open(os.path.join(tmp, f), 'wb').write(KINDS[kind]())
            for f in c['fifos']:
                os.mkfifo(os.path.join(tmp, f))
            for f, target in c['links'].items():
                os.symlink(target, os.path.join(tmp, f))
            p = subprocess.run([pdcc] + c['run'], cwd=tmp, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                               stdin=subprocess.DEVNULL)
        said = p.stderr.decode(errors='replace').replace(os.path.realpath(tmp), 'HERE')
        if update:
            head = open(path).read().split('\nexit ')[0]
            open(path, 'w').write(f'{head}\nexit {p.returncode}\n{said}')
        elif p.returncode == c['exit'] and onednn.same(pdcc, c['want'], said):
            ok += 1
        else:
            bad += 1
            print(f'FAIL {case}: exit {p.returncode}, wanted {c["exit"]}\n--- wanted\n{c["want"]}--- said\n{said}')
        if ill_told(said):
            bad += 1
            print(f'FAIL {case}: no source line below it, or told twice: {ill_told(said)}')
    graded = dict(l.split() for l in open(os.path.join(HERE, 'mistakes.txt')) if not l.startswith('#'))
    cases = {os.path.basename(f)[8:-4] for f in glob.glob(os.path.join(HERE, 'cases', 'mistake-*.txt'))}
    if set(graded) != cases or not set(graded.values()) <= {'A', 'B'}:
        bad += 1
        print(f'FAIL mistakes.txt: {sorted(set(graded) ^ cases)} stand on one side only, or a grade is not A or B')
    print(f'{ok} passed, {bad} failed')
    return 1 if bad or not (ok or update) else 0


if __name__ == '__main__':
    sys.exit(main())
