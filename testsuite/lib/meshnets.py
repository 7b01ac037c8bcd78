"""Drawn nets in which ops stand between two products, so that they may work on parts of an axis: [B,T,D] in, a projection, some
segments of ops, a projection back, a residual sum, a loss over classes at every place."""
import random
import numpy as np
from onnx import TensorProto, helper, load, numpy_helper, save

T_, D = 6, 8
# Ops that the drawn nets of the default seed have in parts, forwards or backwards.
DIVIDED = {'MatMul', 'Gemm', 'Reshape', 'Transpose', 'Split', 'Concat', 'Slice', 'Softmax', 'SoftmaxGrad', 'Add', 'Mul', 'Tanh', 'TanhGrad',
           'ReduceSum', 'Conv', 'ConvGradData', 'ConvGradWeights', 'BatchNorm', 'BatchNormGrad', 'AveragePool', 'AveragePoolGrad',
           'MaxPool', 'MaxPoolGrad', 'Attention', 'AttentionGrad', 'Gather', 'GatherGrad', 'Expand', 'LayerNormalization',
           'LayerNormGrad', 'Accumulate', 'SoftmaxCrossEntropyLossGrad'}


class Net:
    def __init__(self, seed):
        self.draw, self.r = random.Random(f'mesh {seed}'), np.random.default_rng([seed, 7])
        self.nodes, self.inits, self.n = [], [], 0

    def weight(self, *shape, less=0):
        name = f'w{len(self.inits)}'
        scale = 1 / np.sqrt(np.prod(shape[1:]) if len(shape) > 2 else shape[0]) if len(shape) > 1 else .3
        self.inits.append(numpy_helper.from_array((self.r.standard_normal(shape) * scale - np.array(less)).astype(np.float32), name))
        return name

    def const(self, *values, dtype=np.int64):
        name = f'c{len(self.inits)}'
        self.inits.append(numpy_helper.from_array(np.array(values[0] if len(values) == 1 else values, dtype), name))
        return name

    def __call__(self, op, *ins, outs=1, **attrs):
        self.n += 1
        names = [f'v{self.n}_{i}' for i in range(outs)]
        self.nodes.append(helper.make_node(op, [i for i in ins], names, name=f'{op}{self.n}', **attrs))
        return names if outs > 1 else names[0]

    def linear(self, x, a, b, bias=True):
        y = self('MatMul', x, self.weight(a, b))
        return self('Add', y, self.weight(b)) if bias else y


# ---- segments: [B,T,width] to [B,T,width] ----

def bend(n, x, width):
    return n(n.draw.choice(['Tanh', 'Sigmoid', 'Softplus', 'Relu']), x)


def gate(n, x, width):
    a, b = n('Split', x, outs=2, axis=2)
    return n('Concat', n('Mul', a, n('Sigmoid', b)), n('Tanh', b), axis=2)


def heads(n, x, width):
    """There and back by way of [B, H, T, width / H], with an op that sees heads."""
    h = n.draw.choice([4, 8])
    y = n('Transpose', n('Reshape', x, n.const(0, 0, h, width // h)), perm=[0, 2, 1, 3])
    y = n.draw.choice([lambda: n('Softmax', y, axis=2), lambda: n('Tanh', y),
                       lambda: n('LayerNormalization', y, n.weight(width // h), n.weight(width // h), axis=-1)])()
    return n('Reshape', n('Transpose', y, perm=[0, 2, 1, 3]), n.const(0, 0, width))


def turn(n, x, width):
    """Rotates the halves of each head, as rotary embeddings do."""
    y = n('Reshape', x, n.const(0, 0, 4, width // 4))
    half = width // 8
    a = n('Slice', y, n.const([0]), n.const([half]), n.const([3]))
    b = n('Slice', y, n.const([half]), n.const([2 * half]), n.const([3]))
    angle = n.const(np.cos(np.arange(T_ * half)).reshape(T_, 1, half), dtype=np.float32)
    y = n('Add', n('Mul', n('Concat', n('Neg', b), a, axis=3), n.const(.5, dtype=np.float32)),
          n('Concat', n('Mul', a, angle), b, axis=3))
    return n('Reshape', y, n.const(0, 0, width))


def means(n, x, width):
    m = n('ReduceMean', x, axes=[1], keepdims=1)
    return n('Sub', x, n('Expand', m, n.const(1, T_, 1)))


def sums(n, x, width):
    s = n('ReduceSum', n('Mul', x, x), n.const([1]), keepdims=1)
    return n('Div', x, n('Sqrt', n('Add', s, n.const(1., dtype=np.float32))))


def attention(n, x, width):
    h = 4
    q, k, v = n('Split', n.linear(x, width, 3 * width), outs=3, axis=2)

    def split(y):
        return n('Transpose', n('Reshape', y, n.const(0, 0, h, width // h)), perm=[0, 2, 1, 3])

    s = n('MatMul', split(q), n('Transpose', split(k), perm=[0, 1, 3, 2]))
    p = n('Softmax', n('Mul', s, n.const(.5, dtype=np.float32)), axis=3)
    y = n('Reshape', n('Transpose', n('MatMul', p, split(v)), perm=[0, 2, 1, 3]), n.const(0, 0, width))
    return n.linear(y, width, width)


def grouped(n, x, width):
    """Attention's keys for groups of queries: expanded over a new axis."""
    kv = n('Reshape', n.linear(x, width, 4 * 2, bias=False), n.const(0, 0, 4, 1, 2))
    kv = n('Reshape', n('Expand', kv, n.const(1, 1, 1, width // 8, 2)), n.const(0, 0, width))
    return n('Add', x, kv)


def images(n, x, width):
    """[B, width, T] through channels: convolution, normalisation, pooling."""
    y = n('Transpose', x, perm=[0, 2, 1])
    y = n('Conv', y, n.weight(width, width, 3), *([n.weight(width)] if n.draw.random() < .5 else []), pads=[1, 1])
    kind = n.draw.choice(['norm', 'max', 'average'])
    if kind == 'norm':
        y = n('Relu', n('BatchNormalization', y, *(n.weight(width) for _ in range(2)), n.const(np.zeros(width), dtype=np.float32),
                        n.const(np.ones(width), dtype=np.float32), outs=3, training_mode=1)[0])
    else:
        y = n('MaxPool' if kind == 'max' else 'AveragePool', y, kernel_shape=[3], pads=[1, 1], strides=[1])
    y = n('Conv', y, n.weight(width, width, 1))
    return n('Transpose', y, perm=[0, 2, 1])


def looked_up(n, x, width):
    return n('Add', x, n('Gather', n.weight(16, width), 'ids'))


def places(n, x, width):
    return n('Gather', x, n.const([*range(1, T_), 0]), axis=1)


def product(n, x, width):
    return n.linear(x, width, width, bias=n.draw.random() < .7)


SEGMENTS = [bend, gate, heads, turn, means, sums, attention, grouped, images, looked_up, places, product]


def write(path, seed, classes=None):
    """(path, names of the segments); classes: so many, whose scores are a product and a bias, and less than 0, which padded ones are not; the last one's,
    which lie beside those, are the greatest."""
    n, width = Net(seed), 4 * D
    first = SEGMENTS[seed % len(SEGMENTS)]
    chain = [first, *n.draw.sample(SEGMENTS, 2)]
    rows = 16 if seed % 3 else 13       # of which a group's members have no equal parts
    table = n.weight(rows, D)
    x = y = n('Add', 'x', n('Gather', table, 'ids'))
    y = n.linear(y, D, width, bias=n.draw.random() < .8)
    for s in chain:
        y = s(n, y, width)
    y = n('Add', x, n.linear(y, width, D))
    tied = n.draw.random() < .4 and not classes         # classes are the rows of the table that is looked up
    asked, biased = classes, classes or n.draw.random() < .5
    classes = classes or (rows if tied else n.draw.choice([4, 7, 10]))
    scores = n('MatMul', y, n('Transpose', table, perm=[1, 0]) if tied else n.weight(D, classes))
    if not tied and biased:
        scores = n('Tanh', n('Add', scores, n.weight(classes, less=[1.5] * (asked - 1) + [.9] if asked else 0)))
    logits = n('Reshape', scores, n.const(-1, classes))
    n.nodes.append(helper.make_node('Reshape', ['labels', n.const([-1])], ['flat']))
    n.nodes.append(helper.make_node('SoftmaxCrossEntropyLoss', [logits, 'flat'], ['loss'], reduction='mean', name='loss',
                                  **({'ignore_index': 3} if n.draw.random() < .5 else {})))
    info = helper.make_tensor_value_info
    g = helper.make_graph(n.nodes, 'net', [info('x', TensorProto.FLOAT, ['batch', T_, D]), info('ids', TensorProto.INT64, ['batch', T_]),
                                           info('labels', TensorProto.INT64, ['batch', T_])], [info('loss', TensorProto.FLOAT, [])], n.inits)
    m = helper.make_model(g, opset_imports=[helper.make_opsetid('', 17)])
    m.ir_version = 8
    save(m, path)
    return path, [s.__name__ for s in chain]


def cut(path, to, table, rows, also=None):
    """The model with so many rows of that table; also: scores: its loss reads them a second time; ids: they are computed."""
    m = load(path)
    g = m.graph
    for x in g.initializer:
        if x.name == table:
            x.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(x)[:rows].copy(), table))
    if also == 'ids':
        look = next(n for n in g.node if n.op_type == 'Gather' and n.input[0] == table)
        g.initializer.append(numpy_helper.from_array(np.array(0, np.int64), 'nothing'))
        g.node.insert(0, helper.make_node('Sub', [look.input[1], 'nothing'], ['moved']))
        look.input[1] = 'moved'
    if also == 'scores':
        loss = next(n for n in g.node if n.op_type == 'SoftmaxCrossEntropyLoss')
        was, loss.output[0] = loss.output[0], 'entropy'
        g.node.extend([helper.make_node('ReduceMean', [loss.input[0]], ['mean'], keepdims=0), helper.make_node('Add', ['entropy', 'mean'], [was])])
    save(m, to)
    return to
