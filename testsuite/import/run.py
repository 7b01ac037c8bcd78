#!/usr/bin/python3
"""What the reader of models rewrites, against numpy: Einsum, branches of If, Loops, local functions, half precision.

    testsuite/import/run.py [--count N] [--keep DIR]

Writes each case in the form of ONNX's backend cases and has testsuite/onnx-backend run them; none may be skipped.
"""
import argparse, os, shutil, subprocess, sys, tempfile
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'lib'))
import pdcctest as T
try:
    import onnx
    from onnx import numpy_helper
except ImportError:
    print('python3-onnx is not there')
    sys.exit(77)
import bodies, einsums, halves, loops


def write(folder, model, inputs, outputs):
    os.makedirs(f'{folder}/test_data_set_0')
    onnx.save(model, f'{folder}/model.onnx')
    for kind, values in (('input', inputs), ('output', outputs)):
        for i, (name, a) in enumerate(values.items()):
            open(f'{folder}/test_data_set_0/{kind}_{i}.pb', 'wb').write(numpy_helper.from_array(a, name).SerializeToString())


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--count', type=int, default=150, help='random equations')
    ap.add_argument('--keep', help='write the cases here and leave them')
    a = ap.parse_args()
    tmp = a.keep or T.temp('import')
    made = [(k, f()) for k, f in {**bodies.CASES, **halves.CASES, **loops.CASES}.items()] + list(einsums.cases(a.count))
    for name, c in made:
        write(f'{tmp}/import/{name}', *c)
    rc = subprocess.call([sys.executable, os.path.join(HERE, '..', 'onnx-backend'), '--show', '--least', str(len(made)), tmp])
    if not a.keep:
        shutil.rmtree(tmp)
    return rc


if __name__ == '__main__':
    sys.exit(main())
