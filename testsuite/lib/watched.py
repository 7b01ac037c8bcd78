"""Suites of operators and some whole programs, run as they are with builds that are watched: what `sanitize` and `races` share."""
import argparse, glob, os, sys, time
import pdcctest as T

BACKEND = '/usr/share/libonnx-testdata/data'


def arguments(doc):
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--quick', action='store_true')
    ap.add_argument('--only', default='')
    ap.add_argument('suite', nargs=argparse.REMAINDER)
    return ap


def suites(target):
    """[[suite, argument, ...]]: all of them."""
    to = ['--target', target]
    mlp, gpt, lenet = (f'{T.HERE}/models/{m}' for m in ('mlp', 'gpt2_mini', 'lenet'))
    out = [['grad', '--cases', '4', *to], ['indexing', *to], ['patterns', '--cases', '4', *to], ['elementwise', *to], ['spatial', *to]]
    out += [['onnx-backend', *to, d] for d in sorted(glob.glob(f'{BACKEND}/*')) if os.path.basename(d) in
            ('node', 'simple', 'pytorch-operator', 'pytorch-converted')]
    out += [['oracle', *to, '--quick', '--only', k, m] for k in ('one-train', '2-stages') for m in (mlp, gpt, lenet)]
    if target == 'cuda':
        out += [['products'], ['products', '--amp', 'fp16'], ['attention', '--amp', 'both'], ['graphs'], ['nccl']]
    return out + [['optimizers'], ['losses']][:0 if target == 'cuda' else 2] + [['amp', *to, '--amp', amp, '--steps', '5', '--no-plans', 'mlp', 'gpt2_mini']
        for amp in ('bf16', 'fp16')]


def run(lines, only, env, found):
    """(passed, failed) of the suites whose line holds `only`; found() tells what the watcher said since it was asked last."""
    bad, good = 0, 0
    for name, *args in lines:
        label = ' '.join([name, *(os.path.relpath(x, T.HERE) if x.startswith(T.HERE) else x for x in args)])
        if only not in label:
            continue
        start = time.monotonic()
        rc, out = T.run([sys.executable, f'{T.HERE}/{name}', *args], timeout=3600, env=env)
        said = found()
        for line in said + ([] if said or not rc else out.splitlines()[-12:]):
            print(f'    {line}')
        ok = not said and rc in (0, 77)
        good, bad = good + ok, bad + (not ok)
        print(f'{"ok  " if ok else "FAIL"} {label}: {(out.strip().splitlines() or ["said nothing"])[-1]}, {time.monotonic() - start:.0f} s', flush=True)
    return good, bad
