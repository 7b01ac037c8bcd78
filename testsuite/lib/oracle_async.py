"""What the oracle asks of asynchronous runs: PyTorch's curves of weight stashing, vertical sync and Pipe-SGD (ref.json's
`pipeline` and `pipe_sgd_K2`), over the stages that the reference names."""
import json
import onnx
import pdcctest as T


UNCUT = {'lm_sampled'}         # no cut that pdcc offers lies between the reference's two stages


def checks(m, oracle):
    """(name, function of (m, target, tmp)) for the curves that are there."""
    out = []
    for key, flags in (('weight_stashing', []), ('vertical_sync', ['--vertical-sync'])):
        if 'pipeline' in m.ref and m.name not in UNCUT:
            out.append((f'async {key}', lambda m, target, tmp, key=key, flags=flags: pipeline(m, oracle, target, tmp, key, flags)))
    if 'pipe_sgd_K2' in m.ref:
        out.append(('async pipe-sgd', lambda m, target, tmp: pipe_sgd(m, oracle, target, tmp)))
    return out


def spans(m):
    """Between two stages of the reference: nodes that may end the earlier one, from the one in front of the first node of the
    later stage's parameters back."""
    stages = m.ref['pipeline']['stages']
    nodes = list(onnx.load(f'{m.dir}/train_loss.onnx', load_external_data=False).graph.node)
    params = {p['name'] for p in m.ref['params']}

    def stage(n):
        names = [x[2:] if x.startswith('m.') else x for x in n.input]
        return [i for i, prefixes in enumerate(stages) for x in names if x in params and
                any(x == p or x.startswith(p + '.') for p in prefixes)]
    of = [stage(n) for n in nodes]
    for i in range(1, len(stages)):
        last = max(k for k, s in enumerate(of) if s and max(s) < i)
        first = min((k for k, s in enumerate(of) if s and min(s) >= i and k > last), default=len(nodes))
        yield [n.name for n in reversed(nodes[max(0, last - 8):max(first, last + 1)])]


def write_plan(m, path, cuts):
    with open(path, 'w') as f:
        f.write(f'version: 1\nmicrobatch: {m.batch}\nmicrobatches: 1\nstages:\n')
        f.writelines(f'  - {{until: "{c}", devices: ["d{i}"]}}\n' for i, c in enumerate(cuts))
        f.write(f'  - {{devices: ["d{len(cuts)}"]}}\n')


def plan_file(m, tmp, path, args):
    """A plan of the reference's stages."""
    cuts, stages = [], m.ref['pipeline']['stages']
    for k, span in enumerate(spans(m), 1):
        for name in span:
            write_plan(m, path, [name])
            rc, _ = T.run([T.pdcc_path(), f'{m.dir}/train_loss.onnx', '--cluster', T.cluster_file(tmp, 2), '--plan', path, '-o', f'{path}.cut',
                           '--force', *args])
            if rc == 0 and not misplaced(m, f'{path}.cut', [sum(stages[:k], []), sum(stages[k:], [])]):
                cuts.append(name)
                break
        else:
            raise T.Failed(f'{m.name}: no cut behind any of {span}')
    write_plan(m, path, cuts)


def run(m, oracle, target, tmp, name, devices, plan, flags):
    build, yaml = f'{tmp}/{name}', f'{tmp}/{name}.yaml'
    oracle.train_yaml(m, 'cycle', tmp, yaml)
    T.emit(f'{m.dir}/train_loss.onnx', build,
           ['--cluster', T.cluster_file(tmp, devices), '--train', yaml, '--plan', plan, '--target', target, '--micro-batch', str(m.batch),
            '--global-batch', str(m.batch), *m.dims(), *flags])
    T.make(build)
    return build


def misplaced(m, build, stages):
    """Parameters that lie in a stage where the reference has others."""
    ours = {p['name'] for p in m.ref['params']}
    return [n for s, prefixes in zip(json.load(open(f'{build}/plan.json'))['stages'], stages) for q in s['params']
            if (n := q[2:] if q.startswith('m.') else q) in ours and not any(n == p or n.startswith(p + '.') for p in prefixes)]


def pipeline(m, oracle, target, tmp, key, flags):
    """A ReLU that falls on the other side of zero moves a loss by more than rounding: then in f64."""
    try:
        one_pipeline(m, oracle, target, tmp, key, flags)
    except T.Failed:
        one_pipeline(m, oracle, target, tmp, key, [*flags, '--f64'])


def one_pipeline(m, oracle, target, tmp, key, flags):
    want = m.ref['pipeline'][key]
    plan_file(m, tmp, f'{tmp}/{key}.plan.yaml', ['--micro-batch', str(m.batch), '--global-batch', str(m.batch), *m.dims()])
    build = run(m, oracle, target, tmp, key, len(m.ref['pipeline']['stages']), f'{tmp}/{key}.plan.yaml', ['--schedule', 'pipedream', *flags])
    if bad := misplaced(m, build, m.ref['pipeline']['stages']):
        raise T.Failed(f'{m.name}: {bad} lie in other stages than in the reference')
    T.start(build, ['--steps', str(len(want))])
    oracle.compare_losses(m, T.losses(build), want, key)


def pipe_sgd(m, oracle, target, tmp):
    want = m.ref['pipe_sgd_K2']['losses']
    build = run(m, oracle, target, tmp, 'pipe_sgd', 1, '1', ['--pipe-sgd', '2'])
    T.start(build, ['--steps', str(len(want))])
    oracle.compare_losses(m, T.losses(build), want, 'Pipe-SGD')
