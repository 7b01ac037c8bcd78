"""Suites of operators and some whole programs, run as they are with builds that are watched: what `sanitize` and `races` share."""
import argparse, os, sys, time
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
    out += [['onnx-backend', *to, f'{BACKEND}/{d}'] for d in ('node', 'pytorch-converted', 'pytorch-operator', 'simple')]
    out += [['oracle', *to, '--quick', '--only', k, m] for k in ('one-train', '2-stages') for m in (mlp, gpt, lenet)]
    if target == 'cuda':
        out += [['products'], ['products', '--amp', 'fp16'], ['attention', '--amp', 'both'], ['graphs'], ['nccl']]
    return out + [['optimizers'], ['losses']][:0 if target == 'cuda' else 2] + [['amp', *to, '--amp', amp, '--steps', '5', '--no-plans', 'mlp', 'gpt2_mini']
        for amp in ('bf16', 'fp16', *(['fp8'] if target == 'cuda' else []))]


def run(lines, only, env, found):
    """[passed, failed, skipped] of the suites whose line holds `only`; found() tells what the watcher said since it was asked last."""
    count = [0, 0, 0]
    for name, *args in lines:
        label = ' '.join([name, *(os.path.relpath(x, T.HERE) if x.startswith(T.HERE) else x for x in args)])
        if only not in label:
            continue
        start, absent = time.monotonic(), [x for x in args if os.path.isabs(x) and not os.path.exists(x)]
        if absent:
            print(f'skip {label}: no {" ".join(absent)} here', flush=True)
            count[2] += 1
            continue
        rc, out = T.run([sys.executable, T.suite(name), *args], timeout=3600, env=env)
        said = found()
        for line in said + ([] if said or not rc else out.splitlines()[-12:]):
            print(f'    {line}')
        k = 1 if said or rc not in (0, 77) else 2 if rc else 0
        count[k] += 1
        print(f'{("ok  ", "FAIL", "skip")[k]} {label}: {(out.strip().splitlines() or ["said nothing"])[-1]}, {time.monotonic() - start:.0f} s', flush=True)
    return count


def ended(passed, failed, skipped):
    """Prints the last line; the exit status: 77 where all was skipped, 1 where nothing was to be run."""
    print(f'{passed} passed, {failed} failed, {skipped} skipped')
    return 1 if failed or not passed + skipped else 0 if passed else 77
