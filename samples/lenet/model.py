#!/usr/bin/python3
"""Writes model.onnx: LeNet (two 5x5 convolutions with max pooling, three linear layers) for 28x28 images.
Needs python3-onnx and python3-numpy; the file it wrote is beside it."""
import os
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

rng = np.random.default_rng(2)
weights, nodes = [], []


def weight(name, shape, inputs):
    bound = 1 / np.sqrt(inputs)
    weights.append(numpy_helper.from_array(rng.uniform(-bound, bound, shape).astype('f4'), name))
    return name


def node(op, inputs, out, **attr):
    nodes.append(helper.make_node(op, inputs, [out], out, **attr))
    return out


def conv(x, name, ci, co, pad):
    y = node('Conv', [x, weight(f'{name}.weight', (co, ci, 5, 5), ci * 25), weight(f'{name}.bias', (co,), ci * 25)],
             name, kernel_shape=[5, 5], pads=[pad] * 4)
    y = node('Relu', [y], f'{name}.relu')
    return node('MaxPool', [y], f'{name}.pool', kernel_shape=[2, 2], strides=[2, 2])


def linear(x, name, n, m, relu=True, out=None):
    y = node('Gemm', [x, weight(f'{name}.weight', (m, n), n), weight(f'{name}.bias', (m,), n)], out or name, transB=1)
    return node('Relu', [y], f'{name}.relu') if relu else y


x = conv('x', 'c1', 1, 6, 2)
x = conv(x, 'c2', 6, 16, 0)
x = node('Flatten', [x], 'flat', axis=1)
x = linear(x, 'f1', 400, 120)
x = linear(x, 'f2', 120, 84)
linear(x, 'f3', 84, 10, relu=False, out='logits')
graph = helper.make_graph(
    nodes, 'lenet', [helper.make_tensor_value_info('x', TensorProto.FLOAT, ['batch', 1, 28, 28])],
    [helper.make_tensor_value_info('logits', TensorProto.FLOAT, ['batch', 10])], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 17)], producer_name='samples/lenet/model.py')
model.ir_version = 8
save(model, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'model.onnx'))
