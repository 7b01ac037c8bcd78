#!/usr/bin/env python3
"""Golden tests of emitted code: run.py PDCC [-u] [NAME...]

CASES names a model of this folder and the flags of pdcc. The emitted stages and devices are compared whole with NAME/,
but for the numbers that oneDNN gives on this machine (and kernels.h, which two cases show for all, one of them --reproducible, and profile/, which one shows); everything that is emitted must compile with gcc and clang under -Wall -Wextra -Werror. Emitting twice, from
another folder, user language and into another place, gives the same bytes. -u rewrites NAME/; review the diff like code."""
import difflib
import filecmp
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = {
    'one': ('mlp', '--cluster local:1 --plan 1 --microbatches 1 --optimizer sgd --lr 0.5'),
    'accumulate': ('mlp', '--cluster local:1 --plan 1 --microbatches 3 --optimizer momentum --lr 0.5'),
    'grid': ('mlp', '--cluster local:4 --plan 2-2 --microbatches 2 --optimizer adamw --lr 0.01'),
    'skip': ('skip', '--cluster local:3 --plan 1-1-1 --microbatches 3 --optimizer sgd --lr 0.5 --schedule gpipe'),
    'replicas': ('conv', '--cluster local:2 --plan 2 --microbatches 2 --optimizer adam --lr 0.01'),
    'tied': ('tied', '--cluster local:2 --plan 1-1 --microbatches 4 --optimizer sgd --lr 0.5 --reproducible'),
    'gpu': ('mlp', '--cluster local:2 --plan 1-1 --microbatches 2 --optimizer adam --lr 0.01 --target cuda'),
    'gpu-conv': ('conv', '--cluster local:2 --plan 2 --microbatches 2 --optimizer momentum --lr 0.01 --target cuda'),
    'gpu-skip': ('skip', '--cluster local:1 --plan 1 --microbatches 3 --optimizer sgd --lr 0.5 --target cuda --reproducible'),
    'gpu-lstm': ('lstm', '--cluster local:1 --plan 1 --microbatches 2 --optimizer sgd --lr 0.5 --target cuda'),
    'names': ('names', '--cluster local:2 --plan 1-1 --microbatches 2 --optimizer sgd --lr 0.5'),
}
LIBRARY = ('replicas',)
OPENED = {'': 'pd_gemm', '--amp bf16': 'pd_gemm_half'}


def sources(folder):
    found = []
    for at, _, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(at, n), folder) for n in names if n.endswith(('.c', '.h', '.cu'))]
    return sorted(f for f in found if not f.startswith('runtime' + os.sep))


def emit(pdcc, name, out, cwd=None, env=None):
    model, flags = CASES[name]
    cmd = [pdcc, os.path.join(HERE, model + '.onnx'), '-o', out, '--threads', '1', '--seed', '1', '-q', *flags.split()]
    r = subprocess.run(cmd, capture_output=True, text=True, timeout=60, cwd=cwd, env=env)
    if r.returncode:
        return f'exit {r.returncode}: {r.stderr}'
    return None


def compiles(folder):
    for cc in ('gcc', 'clang'):
        if not shutil.which(cc):
            continue
        for f in sources(folder):
            if not f.endswith('.c'):
                continue
            r = subprocess.run([cc, '-std=c11', '-Wall', '-Wextra', '-Werror', '-Wno-pass-failed', '-O1', '-fopenmp', '-I.', '-Iruntime',
                                '-c', f, '-o', os.devnull], cwd=folder, capture_output=True, text=True, timeout=120)
            if r.returncode:
                return f'{cc} {f}:\n{r.stderr}'
    return None


def same_tree(a, b):
    c = filecmp.dircmp(a, b, ignore=[])
    todo = [c]
    while todo:
        c = todo.pop()
        _, differ, odd = filecmp.cmpfiles(c.left, c.right, c.common_files, shallow=False)
        if c.left_only or c.right_only or differ or odd:
            return f'two runs differ in {c.left}: {c.left_only + c.right_only + differ + odd}'
        todo += c.subdirs.values()
    return None


def masked(name, path):
    """Text of an emitted file; scratchpads of library calls, and what depends on their size, are left out."""
    text = open(path).read()
    if name in LIBRARY:
        text = re.sub(r'(\.hash = |\.arena = |of library calls, |Arena of )"?[0-9a-f]+', r'\1...', text)
        text = re.sub(r'(pd_check_scratch\("(?:[^;]|\n)*?),\s+[0-9]+\);', r'\1, ...);', text)
    return text


def golden(name, folder, want, update):
    files = [f for f in sources(folder) if (name in ('one', 'tied') or not f.endswith('kernels.h')) and
             (name == 'accumulate' or not f.startswith('profile'))]
    if update:
        shutil.rmtree(want, ignore_errors=True)
        for f in files:
            os.makedirs(os.path.dirname(os.path.join(want, f)), exist_ok=True)
            with open(os.path.join(want, f), 'w') as to:
                to.write(masked(name, os.path.join(folder, f)))
        return None
    if sources(want) != files:
        return f'emitted {files}, wanted {sources(want)}'
    for f in files:
        old, new = open(os.path.join(want, f)).read(), masked(name, os.path.join(folder, f))
        if old != new:
            return '\n'.join(list(difflib.unified_diff(old.splitlines(), new.splitlines(), f, 'emitted', lineterm=''))[:40])
    return None


def test(pdcc, name, update):
    with tempfile.TemporaryDirectory() as tmp:
        a, b = os.path.join(tmp, 'a'), os.path.join(tmp, 'deep', 'b')
        os.mkdir(os.path.join(tmp, 'deep'))
        return (emit(pdcc, name, a) or
                emit(pdcc, name, os.path.join('deep', 'b'), cwd=tmp, env=dict(os.environ, HOME='/nonexistent', LC_ALL='C', TZ='UTC-5')) or
                same_tree(a, b) or compiles(a) or golden(name, a, os.path.join(HERE, name), update))


def rebuilt(pdcc):
    """A folder rebuilt with fewer stages loses what its manifest listed of the others, and nothing else."""
    def files(folder):
        return {os.path.relpath(os.path.join(at, n), folder) for at, _, names in os.walk(folder) for n in names
                if os.path.basename(at) != 'ir'}

    def build(folder, flags):
        r = subprocess.run([pdcc, os.path.join(HERE, 'mlp.onnx'), '-o', folder, '-q', '--threads', '1', *flags.split()],
                           capture_output=True, text=True, timeout=60)
        return r.stderr if r.returncode else None

    with tempfile.TemporaryDirectory() as tmp:
        a, b = os.path.join(tmp, 'a'), os.path.join(tmp, 'b')
        why = build(a, '--cluster local:2 --plan 1-1')
        if why:
            return why
        own = {'notes.txt', 'weights/mine.safetensors', 'weights/stage7.safetensors', 'stage7/stage7.c'}
        os.mkdir(os.path.join(a, 'stage7'))
        for f in own:
            open(os.path.join(a, f), 'w').close()
        if 'weights/stage1.safetensors' not in files(a):
            return 'no weights of stage 1 to begin with'
        why = build(a, '--cluster local:1 --plan 1') or build(b, '--cluster local:1 --plan 1')
        if why:
            return why
        odd = files(a) ^ (files(b) | own)
        return f'a rebuilt folder differs from a new one in {sorted(odd)}' if odd else None


def opened(pdcc):
    """Whoever calls cuBLAS has it opened before step 0, by whichever of its functions."""
    for amp, call in OPENED.items():
        with tempfile.TemporaryDirectory() as tmp:
            r = subprocess.run([pdcc, os.path.join(HERE, 'term.onnx'), '-o', tmp, '-q', '--cluster', 'local:1', '--target', 'cuda', *amp.split()],
                               capture_output=True, text=True, timeout=60)
            text = ''.join(open(os.path.join(tmp, f)).read() for f in sources(tmp) if f.startswith('stage0')) if not r.returncode else ''
            if r.returncode or not re.search(rf'\b{call}\(', text):
                return f'no {call} is emitted to begin with {r.stderr}'
            if text.count('pd_gemm_open();') != 1:
                return f'{call} is called, and cuBLAS is opened {text.count("pd_gemm_open();")} times before step 0'
    return None


def main():
    args = [a for a in sys.argv[1:] if a != '-u']
    failed = 0
    for name in args[1:] or CASES:
        why = test(os.path.abspath(args[0]), name, '-u' in sys.argv)
        if why:
            print(f'FAIL {name}: {why}')
        failed += why is not None
    more = () if args[1:] else (rebuilt, opened)
    for check in more:
        why = check(os.path.abspath(args[0]))
        if why:
            print(f'FAIL {check.__name__}: {why}')
        failed += why is not None
    print(f'{len(args[1:] or CASES) + len(more) - failed} passed, {failed} failed')
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
