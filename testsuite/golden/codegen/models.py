#!/usr/bin/env python3
"""Makes the models of the golden tests, beside this file. Needs python3-onnx; the tests themselves do not."""
import os
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
rng = np.random.RandomState(1)


def weight(name, *shape):
    return numpy_helper.from_array((rng.randint(-8, 9, shape) / 16).astype('f4'), name)


def save(name, nodes, inputs, weights, opset=17):
    nodes = nodes + [helper.make_node('SoftmaxCrossEntropyLoss', ['logits', 'labels'], ['loss'], name='loss')]
    ins = [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs]
    out = [helper.make_tensor_value_info('loss', TensorProto.FLOAT, [])]
    model = helper.make_model(helper.make_graph(nodes, name, ins, out, weights),
                              opset_imports=[helper.make_opsetid('', opset)], ir_version=8, producer_name='')
    onnx.checker.check_model(model)
    onnx.save(model, os.path.join(HERE, name + '.onnx'))


def node(op, ins, out, **attrs):
    return helper.make_node(op, ins.split(), out.split(), name=out.split()[0], **attrs)


X, L = TensorProto.FLOAT, TensorProto.INT64

save('mlp', [node('Gemm', 'x w1 b1', 'h'), node('Relu', 'h', 'a'), node('Gemm', 'a w2 b2', 'logits')],
     [('x', X, [4, 6]), ('labels', L, [4])], [weight('w1', 6, 5), weight('b1', 5), weight('w2', 5, 3), weight('b2', 3)])

# fc1's result goes to the second and to the third stage
save('skip', [node('Gemm', 'x w1', 'h'), node('Gemm', 'h w2', 'm'), node('Tanh', 'm', 't'), node('Add', 't h', 's'),
              node('Gemm', 's w3', 'n'), node('Mul', 'n h', 'logits')],
     [('x', X, [2, 4]), ('labels', L, [2])], [weight('w1', 4, 4), weight('w2', 4, 4), weight('w3', 4, 4)])

save('conv', [node('Conv', 'x w1', 'c', pads=[1, 1, 1, 1]),
              node('BatchNormalization', 'c scale bias mean var', 'b mean_out var_out', training_mode=1, momentum=0.75),
              node('Relu', 'b', 'r'), node('AveragePool', 'r', 'p', kernel_shape=[2, 2], strides=[2, 2]),
              node('Flatten', 'p', 'f'), node('Gemm', 'f w2 b2', 'logits')],
     [('x', X, [2, 1, 4, 4]), ('labels', L, [2])],
     [weight('w1', 2, 1, 3, 3), weight('scale', 2), weight('bias', 2),
      numpy_helper.from_array(np.zeros(2, 'f4'), 'mean'), numpy_helper.from_array(np.ones(2, 'f4'), 'var'),
      weight('w2', 8, 3), weight('b2', 3)])

# the table is the first layer and, transposed, the last
save('tied', [node('Gather', 'table ids', 'e'), node('Gemm', 'e w1', 'h'), node('Tanh', 'h', 't'),
              node('Gemm', 't table', 'logits', transB=1)],
     [('ids', L, [4]), ('labels', L, [4])], [weight('table', 7, 4), weight('w1', 4, 4)])

# names that C, the emitted files or plan.json have a use for already, or that would end a comment
onnx.save(helper.make_model(helper.make_graph(
    [helper.make_node('Gemm', ['slot', 'mb', 'params'], ['k'], name='while'), helper.make_node('Relu', ['k'], ['g'], name='g'),
     helper.make_node('Gemm', ['g', 'tmp', 'channel'], ['expf'], name='*/ end /*'), helper.make_node('Tanh', ['expf'], ['P'], name='a"b'),
     helper.make_node('SoftmaxCrossEntropyLoss', ['P', 'while'], ['loss'], name='two\nlines')], 'names',
    [helper.make_tensor_value_info('slot', X, [4, 4]), helper.make_tensor_value_info('while', L, [4])],
    [helper.make_tensor_value_info('loss', X, [])], [weight('mb', 4, 4), weight('tmp', 4, 4), weight('params', 4), weight('channel', 4)]),
    opset_imports=[helper.make_opsetid('', 17)], ir_version=8, producer_name=''), os.path.join(HERE, 'names.onnx'))

# two sequences of four steps, from the last to the first
save('lstm', [node('Transpose', 'x', 'steps', perm=[1, 0, 2]), node('LSTM', 'steps W R B', 'y h', direction='reverse', hidden_size=2),
              node('Reshape', 'h rows', 'last'), node('Gemm', 'last w2', 'logits')],
     [('x', X, [2, 4, 3]), ('labels', L, [2])],
     [weight('W', 1, 8, 3), weight('R', 1, 8, 2), weight('B', 1, 16), weight('w2', 2, 3),
      numpy_helper.from_array(np.array([2, 2], 'i8'), 'rows')])

# a term that is no row: GPU programs do not have this product by cuBLASLt
save('term', [node('Gemm', 'x w c', 'logits')], [('x', X, [4, 6]), ('labels', L, [4])], [weight('w', 6, 5), weight('c', 4, 5)])
