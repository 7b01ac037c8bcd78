#!/usr/bin/env python3
"""Emitted programs are programs: statements.py PDCC

Deletes the statements of an emitted stage one at a time. Without it the program must fail to compile, end with an error,
or come to another result; one that can be left out has no business there. Only (void) casts and pd_check_scratch, which
compares sizes, are let off."""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), 'lib'))
import pdcctest as T
PROGRAMS = {
    'mlp': '--plan 1 --microbatches 3 --optimizer momentum --lr 0.5',
    'conv': '--plan 1 --microbatches 2 --optimizer adam --lr 0.01',
    'tied': '--plan 1 --microbatches 2 --optimizer sgd --lr 0.5 --reproducible',
}
FLAGS = ['-std=c11', '-O0', '-fopenmp', '-I.', '-Iruntime']


def statements(text):
    """(begin, end) of every statement inside of a function; one may go over several lines."""
    found, at = [], 0
    for m in re.finditer(r'^(?:static )?[a-z][\w *]*\([^;]*\)\n\{\n(.*?)^\}', text, re.M | re.S):
        at = m.start(1)
        for s in re.finditer(r'\t(?:[^;{}]|\{[^{};]*\}|"[^"]*")*;', m.group(1)):
            found.append((at + s.start(), at + s.end()))
    return found


def let_off(s):
    s = re.sub(r'/\*.*?\*/', '', s, flags=re.S).strip()
    return s.startswith('(void)') or s.startswith('pd_check_scratch') or s.startswith('#pragma')


def result(folder):
    shutil.rmtree(os.path.join(folder, 'run'), ignore_errors=True)
    try:
        r = subprocess.run(['bin/d0', '--steps', '3', '--quiet', '--dump-grads', 'run/g', '--timeout', '5'], cwd=folder,
                           capture_output=True, timeout=30, env=dict(os.environ, OMP_NUM_THREADS='1'))
    except subprocess.TimeoutExpired:
        return 'hangs'
    if r.returncode:
        return f'ends with {r.returncode}'
    files = ('run/losses.txt', 'run/trained.safetensors', 'run/g')
    return hashlib.sha256(b''.join(open(os.path.join(folder, f), 'rb').read() for f in files)).hexdigest()


def build(folder, objects):
    for cmd in (['gcc', *FLAGS, '-c', 'stage0/stage0.c', '-o', 'obj/stage0/stage0.o'],
                ['mpicc', '-o', 'bin/d0', *objects, '-fopenmp', '-ldnnl', '-lm', '-lpthread', *os.environ.get('LDFLAGS', '').split()]):
        if subprocess.run(cmd, cwd=folder, capture_output=True).returncode:
            return False
    return True


def survivors(pdcc, name, folder):
    subprocess.run([pdcc, os.path.join(HERE, name + '.onnx'), '--cluster', 'local:1', '--threads', '1', '-q', '-o', folder,
                    *PROGRAMS[name].split()], check=True)
    subprocess.run(['make', '-s', '-C', folder, 'OPT=-O0', '-j2'], check=True, capture_output=True)
    objects = ['obj/device0.o', 'obj/stage0/stage0.o', 'obj/runtime.a']
    source = os.path.join(folder, 'stage0', 'stage0.c')
    text = open(source).read()
    if not build(folder, objects):
        return 0, ['the whole program does not build']
    good, n, bad = result(folder), 0, []
    if len(good) != 64:
        return 0, [f'the whole program {good}']
    for begin, end in T.some(statements(text), 3, name):
        if let_off(text[begin:end]):
            continue
        n += 1
        with open(source, 'w') as f:
            f.write(text[:begin] + '\t;' + text[end:])
        if build(folder, objects) and result(folder) == good:
            bad.append(' '.join(text[begin:end].split()))
    return n, bad


def main():
    pdcc, failed, passed = os.path.abspath(sys.argv[1]), 0, 0
    for name in PROGRAMS:
        with tempfile.TemporaryDirectory() as tmp:
            n, bad = survivors(pdcc, name, os.path.join(tmp, 'b'))
        for s in bad:
            print(f'FAIL {name}: the program does the same without: {s}')
        passed, failed = passed + n - len(bad), failed + len(bad)
    print(f'{passed} passed, {failed} failed')
    return failed > 0 or passed < len(T.some(range(150), 3))        # of all: 163


if __name__ == '__main__':
    sys.exit(main())
