#!/usr/bin/python3
"""Writes model.onnx: 784-128-64-10, ReLU, weights drawn as PyTorch's Linear does (uniform in 1/sqrt(inputs)).
Needs python3-onnx and python3-numpy; the file it wrote is beside it."""
import os
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

rng = np.random.default_rng(1)
sizes = [784, 128, 64, 10]
nodes = [helper.make_node('Flatten', ['x'], ['flat'], 'flatten', axis=1)]
weights, value = [], 'flat'
for i, (n, m) in enumerate(zip(sizes, sizes[1:]), 1):
    bound = 1 / np.sqrt(n)
    for name, shape in ((f'fc{i}.weight', (m, n)), (f'fc{i}.bias', (m,))):
        weights.append(numpy_helper.from_array(rng.uniform(-bound, bound, shape).astype('f4'), name))
    out = 'logits' if m == 10 else f'h{i}'
    nodes.append(helper.make_node('Gemm', [value, f'fc{i}.weight', f'fc{i}.bias'], [out], f'fc{i}', transB=1))
    if m != 10:
        nodes.append(helper.make_node('Relu', [out], [f'a{i}'], f'relu{i}'))
        value = f'a{i}'
graph = helper.make_graph(
    nodes, 'mlp', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['batch', 1, 28, 28])],
    [helper.make_tensor_value_info('logits', TensorProto.FLOAT, ['batch', 10])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], producer_name='samples/mlp/model.py')
model.ir_version = 8
save(model, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'model.onnx'))
