"""Packages that Debian lacks: onnxruntime, newer onnx, safetensors, tensorboard. testsuite/run.sh puts them into build/pypi, a
Python environment of its own, where there is a network; only tests use it. Their protobuf does not go with Debian's onnx, so
they run in a process of their own: this file is both sides. PDCC_PYPI names another such Python.

    pypi.py run|reference MODEL.onnx INPUT X.npy OUTPUT Y.npy       onnxruntime, or ONNX's reference evaluator
    pypi.py safetensors FILE Y.npz
    pypi.py tensorboard FOLDER              {tag: [[step, value]]} as JSON
"""
import json, os, subprocess, sys

NEEDS = {'run': 'onnxruntime', 'reference': 'onnx.reference', 'safetensors': 'safetensors', 'tensorboard': 'tensorboard'}


def call(what, *args):
    """What that prints, or None where the package is not there, which is said."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    for python in (os.environ.get('PDCC_PYPI'), f'{root}/build/pypi/bin/python3', sys.executable):
        if not python or not os.path.exists(python):
            continue
        if subprocess.run([python, '-c', f'import {NEEDS[what]}'], capture_output=True).returncode == 0:
            p = subprocess.run([python, os.path.abspath(__file__), what, *args], capture_output=True, text=True, timeout=300)
            if p.returncode:
                raise ValueError(f'{what} {" ".join(args)}: {p.stderr[-600:]}')
            return p.stdout
    print(f'     {NEEDS[what]} is not here: not asked', flush=True)
    return None


def main(what, *args):
    import numpy as np
    if what in ('run', 'reference'):
        model, name, x, output, y = args
        if what == 'run':
            import onnxruntime
            session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider'])
        else:
            import onnx
            from onnx.reference import ReferenceEvaluator
            onnx.checker.check_model(model)
            session = ReferenceEvaluator(model)
        np.save(y, session.run([output], {name: np.load(x)})[0])
    elif what == 'safetensors':
        from safetensors.numpy import load_file
        np.savez(args[1], **load_file(args[0]))
    else:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        events = EventAccumulator(args[0])
        events.Reload()
        print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()['scalars']}))


if __name__ == '__main__':
    main(*sys.argv[1:])
