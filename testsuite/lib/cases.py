"""The program that `pdcc cases` writes: many small graphs, fed from a file."""
import os, re, sys
import numpy as np
import pdcctest as T

INT = {'i64': '<i8', 'i32': '<i4', 'bool': '<u1', 'u8': '<u1'}


class Program:
    """The emitted cases in one folder: run(list of (name, {input: array})) -> list of {output: array}."""
    def __init__(self, tmp, cases, f64, target='c'):
        self.kept = None if f64 or target == 'c' else f'ops-{os.path.basename(sys.argv[0])}'
        self.dir, self.dtype = f'{tmp}/{"f64" if f64 else target}', '<f8' if f64 else '<f4'
        args = [T.pdcc_path(), 'cases', cases, '-o', self.dir, '--force'] + (['--f64'] if f64 else ['--target', target])
        T.check('pdcc cases', *T.run(args, timeout=600))
        T.check('make', *T.run(['make', '-s', '-C', self.dir, '-j2', f'CC={T.cc()}', *(T.cuda() if target == 'cuda' else [])],
                               timeout=1800))
        self.cases, self.skip, current = {}, {}, None
        for line in open(f'{self.dir}/cases.txt'):
            w = line.split()
            if w[0] == 'skip':
                self.skip[w[2].rstrip(':')] = line.strip()
                current = None
            elif w[0] == 'case':
                current = self.cases.setdefault(w[2], (int(w[1]), []))[1]
            elif current is not None:
                current.append((w[0], w[1], w[2], [int(x) for x in w[3:]]))

    def run(self, jobs):
        with open(f'{self.dir}/input', 'wb') as f:
            for name, values in jobs:
                number, io = self.cases[name]
                f.write(np.int32(number).tobytes())
                for kind, vn, dt, shape in io:
                    if kind == 'in':
                        f.write(np.ascontiguousarray(values[vn], INT.get(dt, self.dtype)).tobytes())
        T.check('cases', *T.run([f'{self.dir}/bin/cases', f'{self.dir}/input', f'{self.dir}/output'], timeout=600))
        if self.kept:
            T.keep(self.dir, self.kept, [f'{self.dir}/input', f'{self.dir}/output', f'{self.dir}/cases.txt'], kind='cases')
            self.kept = None
        data, at, out = open(f'{self.dir}/output', 'rb').read(), 0, []
        for name, _ in jobs:
            res = {}
            for kind, vn, dt, shape in self.cases[name][1]:
                if kind == 'out':
                    t = '<f8' if dt == 'f64' else '<f4'
                    n = int(np.prod(shape)) * np.dtype(t).itemsize
                    res[vn] = np.frombuffer(data[at:at + n], t).reshape(shape)
                    at += n
            out.append(res)
        return out


def gradient(res, param):
    """A parameter's gradient: the sum of its parts grad.p, grad.p.1 ... (one per use)."""
    parts = [v for k, v in res.items() if re.fullmatch(rf'grad\.{re.escape(param)}(\.\d+)*', k)]
    return sum(p.astype('f8') for p in parts) if parts else None
