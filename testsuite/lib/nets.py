"""Small nets as ONNX models with their loss, and data for them: deep enough to be cut into six stages, fast to train."""
import os
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

CLASSES = 5


def mlp(path, widths=(6, 8, 8, 8, 8, 8, CLASSES), bend='Tanh', seed=3, scale=1.0):
    """A chain of Gemm and `bend` with a cross entropy at its end."""
    r = np.random.default_rng(seed)
    nodes, inits, x = [], [], 'x'
    for i, (a, b) in enumerate(zip(widths, widths[1:])):
        w = (r.standard_normal((a, b)) * scale / np.sqrt(a)).astype(np.float32)
        inits += [numpy_helper.from_array(w, f'w{i}'), numpy_helper.from_array((r.standard_normal(b) * .1).astype(np.float32), f'b{i}')]
        nodes.append(helper.make_node('Gemm', [x, f'w{i}', f'b{i}'], [f'z{i}'], name=f'layer{i}'))
        x = f'z{i}'
        if i + 2 < len(widths):
            nodes.append(helper.make_node(bend, [x], [f'a{i}'], name=f'bend{i}'))
            x = f'a{i}'
    return finish(path, nodes, inits, x, widths[0])


def residual(path, width=8, blocks=5, seed=4):
    """Blocks x + tanh(x W + b): every cut is crossed by one tensor, but two blocks' sums skip one block, so some by two."""
    r = np.random.default_rng(seed)
    nodes, inits, x, before = [], [], 'x', None
    for i in range(blocks + 1):
        b = CLASSES if i == blocks else width
        w = (r.standard_normal((width, b)) / np.sqrt(width)).astype(np.float32)
        inits += [numpy_helper.from_array(w, f'w{i}'), numpy_helper.from_array((r.standard_normal(b) * .1).astype(np.float32), f'b{i}')]
        nodes.append(helper.make_node('Gemm', [x, f'w{i}', f'b{i}'], [f'z{i}'], name=f'layer{i}'))
        if i == blocks:
            x = f'z{i}'
            break
        nodes.append(helper.make_node('Tanh', [f'z{i}'], [f'a{i}'], name=f'bend{i}'))
        nodes.append(helper.make_node('Add', [f'a{i}', x], [f's{i}'], name=f'add{i}'))
        if i % 2 and before:
            nodes.append(helper.make_node('Add', [f's{i}', before], [f'u{i}'], name=f'skip{i}'))
        before, x = x, f'u{i}' if i % 2 and before else f's{i}'
    return finish(path, nodes, inits, x, width)


def finish(path, nodes, inits, logits, width):
    nodes.append(helper.make_node('SoftmaxCrossEntropyLoss', [logits, 'labels'], ['loss'], name='loss', reduction='mean'))
    info = helper.make_tensor_value_info
    g = helper.make_graph(nodes, 'net', [info('x', TensorProto.FLOAT, ['batch', width]), info('labels', TensorProto.INT64, ['batch'])],
                          [info('loss', TensorProto.FLOAT, [])], inits)
    m = helper.make_model(g, opset_imports=[helper.make_opsetid('', 14)])
    m.ir_version = 7
    save(m, path)
    return path


def data(folder, width, samples=40, seed=5):
    """({input: samples}, the flags that name their files)."""
    r = np.random.default_rng(seed)
    d = {'x': r.standard_normal((samples, width)).astype(np.float32), 'labels': r.integers(0, CLASSES, samples).astype(np.int64)}
    flags = []
    for n, a in d.items():
        np.save(f'{folder}/{n}.npy', a)
        flags += ['--data', f'{n}={os.path.abspath(folder)}/{n}.npy']
    return d, flags
