"""Words that can be learnt, and a small language model: what measure_parallax trains.

A word belongs to one of CLASSES classes; the class of the next word is drawn by the class of this one, the word among its class as
1 / rank. So a model that has found the classes has the perplexity of the process, its floor, which is known; words' frequencies alone
have a far greater one."""
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

WORDS, CLASSES, LENGTH = 1000, 40, 16
INFO = helper.make_tensor_value_info


class Process:
    def __init__(self, seed=1):
        r = np.random.default_rng(seed)
        self.of = r.permutation(np.arange(WORDS) % CLASSES)
        self.next = r.dirichlet(np.full(CLASSES, 0.08), CLASSES) * 0.95 + 0.05 / CLASSES
        self.within = np.zeros((CLASSES, WORDS))
        for c in range(CLASSES):
            mine = np.flatnonzero(self.of == c)
            self.within[c, mine] = 1 / np.arange(1, len(mine) + 1)
        self.within /= self.within.sum(1, keepdims=True)

    def share(self):
        """Of the classes, in the long run."""
        x = np.full(CLASSES, 1 / CLASSES)
        for _ in range(2000):
            x = x @ self.next
        return x

    def floor(self):
        """(perplexity of the process, that of the words' frequencies)."""
        p, s = self.next @ self.within, self.share()
        plain = s @ self.within
        return tuple(float(np.exp(-x)) for x in (s @ (p * np.log(np.maximum(p, 1e-300))).sum(1), plain @ np.log(plain)))

    def text(self, rows, seed):
        """(words, the words behind them), each [rows, LENGTH]."""
        r = np.random.default_rng(seed)
        steps, inner = self.next.cumsum(1), self.within.cumsum(1)
        c, out = r.choice(CLASSES, rows, p=self.share()), np.zeros((rows, LENGTH + 1), np.int64)
        for k in range(LENGTH + 1):
            out[:, k] = np.minimum((inner[c] < r.random((rows, 1))).sum(1), WORDS - 1)
            c = np.minimum((steps[c] < r.random((rows, 1))).sum(1), CLASSES - 1)
        return out[:, :-1], out[:, 1:]


def recurrent(path, batch, width=32, hidden=64, seed=7):
    """An embedding, an LSTM, a projection, a softmax over all words."""
    r, inits = np.random.default_rng(seed), []

    def weight(name, *shape, scale=1.0):
        inits.append(numpy_helper.from_array((r.standard_normal(shape) * scale / np.sqrt(shape[-1])).astype(np.float32), name))

    def const(name, *v):
        inits.append(numpy_helper.from_array(np.array(v, np.int64), name))
    weight('emb', WORDS, width)
    weight('W', 1, 4 * hidden, width)
    weight('R', 1, 4 * hidden, hidden)
    weight('B', 1, 8 * hidden, scale=0.1)
    weight('proj', hidden, width)
    weight('out', width, WORDS)
    const('one', 1)
    const('flat', -1, hidden)
    const('all', -1)
    nodes = [helper.make_node(op, ins, [out], name=out, **kw) for op, ins, out, kw in (
        ('Gather', ['emb', 'tok'], 'looked', {}), ('Transpose', ['looked'], 'turned', {'perm': [1, 0, 2]}),
        ('LSTM', ['turned', 'W', 'R', 'B'], 'said', {'hidden_size': hidden}), ('Squeeze', ['said', 'one'], 'states', {}),
        ('Transpose', ['states'], 'back', {'perm': [1, 0, 2]}), ('Reshape', ['back', 'flat'], 'rows', {}),
        ('MatMul', ['rows', 'proj'], 'y', {}), ('MatMul', ['y', 'out'], 'logits', {}), ('Reshape', ['labels', 'all'], 'words', {}),
        ('SoftmaxCrossEntropyLoss', ['logits', 'words'], 'loss', {'reduction': 'mean'}))]
    ins = [INFO(n, TensorProto.INT64, [batch, LENGTH]) for n in ('tok', 'labels')]
    save(helper.make_model(helper.make_graph(nodes, 'lm', ins, [INFO('loss', TensorProto.FLOAT, [])], inits),
                           opset_imports=[helper.make_opsetid('', 13)], ir_version=7), path)
    return path


def residual(path, batch, seed=3):
    """A small residual net for 28 x 28 images, with BatchNormalization behind each convolution."""
    r, inits, nodes = np.random.default_rng(seed), [], []

    def put(name, a):
        inits.append(numpy_helper.from_array(np.asarray(a, np.float32), name))
        return name

    def node(op, ins, out, **kw):
        nodes.append(helper.make_node(op, ins, [out] if isinstance(out, str) else out, name=out if isinstance(out, str) else out[0], **kw))
        return out if isinstance(out, str) else out[0]

    def conv(x, name, a, b, k, stride, bend=True):
        put(name + '.w', r.standard_normal((b, a, k, k)) * np.sqrt(2 / (a * k * k)))
        y = node('Conv', [x, name + '.w'], name + '.z', kernel_shape=[k, k], pads=[k // 2] * 4, strides=[stride, stride])
        for what, v in (('scale', 1), ('bias', 0), ('mean', 0), ('var', 1)):
            put('%s.%s' % (name, what), np.full(b, v))
        y = node('BatchNormalization', [y, *('%s.%s' % (name, w) for w in ('scale', 'bias', 'mean', 'var'))],
                 [name + '.n', name + '.m', name + '.v'], training_mode=1, momentum=0.9)
        return node('Relu', [y], name + '.r') if bend else y
    x = conv('x', 'in', 1, 16, 3, 2)
    for name, width in (('a', 16), ('b', 32)):
        if width > 16:
            x = conv(x, name + '0', 16, width, 3, 2)
        x = node('Relu', [node('Add', [conv(conv(x, name + '1', width, width, 3, 1), name + '2', width, width, 3, 1, bend=False), x],
                               name + '.sum')], name + '.end')
    x = node('Flatten', [node('GlobalAveragePool', [x], 'pooled')], 'features')
    put('fc.w', r.standard_normal((32, 10)) / np.sqrt(32))
    put('fc.b', np.zeros(10))
    node('Gemm', [x, 'fc.w', 'fc.b'], 'scores')
    node('SoftmaxCrossEntropyLoss', ['scores', 'labels'], 'loss', reduction='mean')
    ins = [INFO('x', TensorProto.FLOAT, [batch, 1, 28, 28]), INFO('labels', TensorProto.INT64, [batch])]
    save(helper.make_model(helper.make_graph(nodes, 'cnn', ins, [INFO('loss', TensorProto.FLOAT, [])], inits),
                           opset_imports=[helper.make_opsetid('', 14)], ir_version=7), path)
    return path


def one_table(path, rows, width, looked, seed=5):
    """A table of which a sample looks so many rows up, and little behind it."""
    r = np.random.default_rng(seed)
    inits = [numpy_helper.from_array((r.standard_normal(s) / np.sqrt(width)).astype(np.float32), n) for n, s in
             (('table', (rows, width)), ('out', (width, 16)))]
    inits += [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in (('flat', (-1, width)), ('all', (-1,)))]
    nodes = [helper.make_node(op, ins, [out], name=out, **kw) for op, ins, out, kw in (
        ('Gather', ['table', 'tok'], 'looked', {}), ('Reshape', ['looked', 'flat'], 'x', {}), ('MatMul', ['x', 'out'], 'scores', {}),
        ('Reshape', ['labels', 'all'], 'classes', {}), ('SoftmaxCrossEntropyLoss', ['scores', 'classes'], 'loss', {'reduction': 'mean'}))]
    ins = [INFO(n, TensorProto.INT64, [1, looked]) for n in ('tok', 'labels')]
    save(helper.make_model(helper.make_graph(nodes, 'table', ins, [INFO('loss', TensorProto.FLOAT, [])], inits),
                           opset_imports=[helper.make_opsetid('', 13)], ir_version=7), path)
    return path
