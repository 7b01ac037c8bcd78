"""Graphs that store half precision: read, and computed with, as f32."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(5)


def graph(nodes, inputs, outputs, init=()):
    kind = {np.dtype('f4'): TensorProto.FLOAT, np.dtype('f2'): TensorProto.FLOAT16}
    info = lambda vs: [helper.make_tensor_value_info(n, kind[a.dtype], a.shape) for n, a in vs.items()]
    g = helper.make_graph(nodes, 'halves', info(inputs), info(outputs), list(init))
    return helper.make_model(g, opset_imports=[helper.make_opsetid('', 13)], ir_version=8), inputs, outputs


def weights():
    """Weights and data in f16; what comes out is close to what f32 gives of the same numbers."""
    x, w, b = (RNG.standard_normal(s).astype('f2') for s in ((4, 6), (6, 5), (5,)))
    y = np.maximum(x.astype('f4') @ w.astype('f4') + b.astype('f4'), 0).astype('f2')
    nodes = [helper.make_node('Gemm', ['x', 'w', 'b'], ['g']), helper.make_node('Relu', ['g'], ['y'])]
    return graph(nodes, {'x': x}, {'y': y}, [numpy_helper.from_array(w, 'w'), numpy_helper.from_array(b, 'b')])


def brain():
    """A bf16 constant, subnormal, infinite and negative numbers among it, cast to f32."""
    bits = np.array([0x3F80, 0xC049, 0x0001, 0x7F80, 0xFF80, 0x8000], 'u2')
    y = (bits.astype('u4') << 16).view('f4')
    t = helper.make_tensor('c', TensorProto.BFLOAT16, [6], bits.tobytes(), raw=True)
    x = np.zeros(6, 'f4')
    nodes = [helper.make_node('Constant', [], ['c'], value=t), helper.make_node('Cast', ['c'], ['f'], to=TensorProto.FLOAT),
             helper.make_node('Max', ['f', 'f'], ['m']), helper.make_node('Where', ['t', 'm', 'x'], ['y'])]
    init = [numpy_helper.from_array(np.ones(6, bool), 't')]
    return graph(nodes, {'x': x}, {'y': y}, init)


def extremes():
    """f16 numbers at the ends of the type: subnormals, the largest, infinities, through a Concat."""
    a = np.array([6e-8, -6e-8, 65504, -65504, np.inf, -np.inf, 1e-4, 0.333], 'f2')
    x = RNG.standard_normal(3).astype('f2')
    nodes = [helper.make_node('Concat', ['x', 'a'], ['y'], axis=0)]
    return graph(nodes, {'x': x}, {'y': np.concatenate([x, a])}, [numpy_helper.from_array(a, 'a')])


def mixed():
    """Half weights, f32 activations: a Cast between them."""
    x, w = RNG.standard_normal((3, 4)).astype('f4'), RNG.standard_normal((4, 2)).astype('f2')
    nodes = [helper.make_node('Cast', ['w'], ['w32'], to=TensorProto.FLOAT), helper.make_node('MatMul', ['x', 'w32'], ['y'])]
    return graph(nodes, {'x': x}, {'y': x @ w.astype('f4')}, [numpy_helper.from_array(w, 'w')])


CASES = {'half_weights': weights, 'half_brain': brain, 'half_extremes': extremes, 'half_mixed': mixed}
