"""Random training graphs, drawn from a seed: valid by construction, smooth or bent on sets of measure zero, bounded.

A Graph holds a pool of values. Each op of randgraph_ops.py and randgraph_moves.py takes values of the pool that fit it,
adds its nodes and puts its results back. Values that stem from the inputs have the batch on axis 0; others stem
from parameters alone. `draw(seed)` gives a finished Graph: model(batch) is the ONNX model (a number, or a name for a
symbolic axis), inputs(rng, samples) are random samples, `params` the start values, `frozen` the parameters that are not
to be trained.
"""
import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper

BATCH = 3               # samples in a microbatch; no other dimension has to differ from it
MOST_PARAMS = 36        # a case of `pdcc cases` has 64 inputs and 64 outputs
OPS = []                # (weight, function)

KEYWORDS = ['int', 'for', 'main', 'x', 'loss', 'double', 'register', 'in', 'out', 'n', 'i', 'j', 'memory', 'exp',
            'tanh', 'static', 'a', 'p', 'params', 'grad', 'g', 'step', 'NULL', 'restrict', 'weights', 'rt', 'pd', 'sum',
            'slot', 'mb', 'errno', 'channel', 'world', 'bytes', 'offset']


def op(weight=1.0):
    def put(f):
        OPS.append((weight, f))
        return f
    return put


class Value:
    """A tensor of the pool. scale: about how large its elements are; lo: a lower bound that is certain, or None."""
    def __init__(self, name, shape, batched, scale=1.0):
        self.name, self.shape, self.batched, self.scale, self.uses = name, tuple(shape), batched, scale, 0
        self.rank = len(self.shape)

    def axes(self):
        """Axes that an op may work along: not the batch."""
        return list(range(1 if self.batched else 0, self.rank))


class Graph:
    def __init__(self, seed):
        self.seed, self.rng = seed, np.random.default_rng([seed, 20])
        self.nodes, self.pool, self.params, self.consts, self.buffers = [], [], {}, {}, {}
        self.inits, self.frozen, self.ins, self.outs, self.names = [], [], [], ['loss'], set()
        self.opset = self.pick(13, 17, 17)
        self.naming = self.pick('plain', 'torch', 'clash')
        self.unused, self.ignored, self.weights = [], None, None

    # ---- drawing ----
    def pick(self, *xs):
        return xs[int(self.rng.integers(len(xs)))]

    def chance(self, p=0.5):
        return bool(self.rng.random() < p)

    def whole(self, lo, hi):
        return int(self.rng.integers(lo, hi + 1))

    def name(self, kind):
        """A name not yet taken. `clash`: words of C and names that differ in nothing but what C cannot write."""
        n = len(self.names)
        if self.naming == 'plain':
            s = f'{kind}{n}'
        elif self.naming == 'torch':
            s = f'/block.{n % 4}/{kind}/{kind}_output_{n}' if kind[0].isupper() else f'block.{n % 4}.{kind}{n}.weight'
        else:
            s = self.pick(*KEYWORDS)
            while s in self.names:
                s = self.pick(s + '_', s + '/', s + '.x', '_' + s, s + '-', s + ':', s + '0', s.swapcase() + '_')
        self.names.add(s)
        return s

    # ---- values ----
    def values(self, fit=lambda v: True):
        return [v for v in self.pool if fit(v)]

    def take(self, fit=lambda v: True):
        """A value that fits, or None: the latest and the unread ones are likelier, values from inputs too."""
        vs = self.values(fit)
        if not vs:
            return None
        w = [(1.0 if v.uses else 3.0) * (2.0 if v.batched else 0.7) * (1 + i / len(vs)) for i, v in enumerate(vs)]
        v = vs[int(self.rng.choice(len(vs), p=np.array(w) / sum(w)))]
        v.uses += 1
        return v

    def put(self, name, shape, batched, scale=1.0):
        """Into the pool, through something that bounds it when it has grown."""
        v = Value(name, shape, batched, scale)
        if scale > 2.5:
            v = Value(self.add(self.pick('Tanh', 'Sigmoid', 'Softsign', 'Tanh'), [v.name]), shape, batched, 1.0)
        assert int(np.prod(v.shape)) <= 20000, v.shape
        self.pool.append(v)
        return v

    def param(self, shape, size=None, lo=None, hi=None):
        """The name of a parameter, new or, now and then, one of this shape that is used already (tied)."""
        shape = tuple(shape)
        same = [k for k, v in self.params.items() if v.shape == shape]
        if (same and self.chance(0.25)) or len(self.params) >= MOST_PARAMS and same:
            if lo is None:
                return self.pick(*same)
        name = self.name('p')
        size = size or 1.0
        lo, hi = (-size, size) if lo is None else (lo, hi)
        self.params[name] = self.rng.uniform(lo, hi, shape).astype('f4')
        if self.chance(0.12) and len(self.params) > 1:
            self.frozen.append(name)
        return name

    def weight(self, shape, fan):
        return self.param(shape, 1.5 / np.sqrt(max(fan, 1)))

    def const(self, array):
        """A constant: a Constant node, or an initializer where that is no parameter (whole numbers, scalars)."""
        name, array = self.name('Constant'), np.asarray(array)
        if (array.dtype.kind == 'i' or array.ndim == 0) and self.chance():
            self.inits.append(numpy_helper.from_array(array, name))
        else:
            self.add('Constant', [], outs=[name], value=numpy_helper.from_array(array, name))
        return name

    def f(self, x):
        return self.const(np.float32(x))

    def ints(self, *x):
        return self.const(np.array(x, 'i8'))

    def label(self, out):
        """A node's own name: often there, sometimes none, sometimes the same twice."""
        clash = self.pick('', 'node', out)
        return {'plain': f'node_{out}', 'torch': out.replace('_output', ''), 'clash': clash}[self.naming]

    def add(self, op, inputs, nout=1, outs=None, **attr):
        outs = outs or [self.name(op) for _ in range(nout)]
        self.nodes.append(helper.make_node(op, inputs, outs, name=self.label(outs[0]), **attr))
        return outs[0] if len(outs) == 1 else outs

    def reduce(self, op, x, axes, keepdims):
        if op == 'ReduceSum':
            return self.add(op, [x, self.ints(*axes)], keepdims=keepdims)
        return self.add(op, [x], axes=list(axes), keepdims=keepdims)

    # ---- the frame ----
    def input(self, name, shape, kind='f4', high=0):
        """A graph input of samples: shape without the batch."""
        self.ins.append((name, tuple(shape), kind, high))
        self.names.add(name)
        return name

    def model(self, batch):
        t = {'f4': TensorProto.FLOAT, 'i8': TensorProto.INT64}
        ins = [helper.make_tensor_value_info(n, t[k], [batch, *s]) for n, s, k, _ in self.ins]
        outs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, s and [batch, *s[1:]])
                for o, s in zip(self.outs, self.out_shapes)]
        arrays = {**self.params, **self.buffers}
        inits = [numpy_helper.from_array(v, k) for k, v in arrays.items()] + self.inits
        g = helper.make_graph(self.nodes, f'random_{self.seed}', ins, outs, inits)
        m = helper.make_model(g, opset_imports=[helper.make_opsetid('', self.opset)])
        m.ir_version = 8
        checker.check_model(m, full_check=True)
        return m

    def inputs(self, rng, samples):
        out = {}
        for n, s, kind, high in self.ins:
            s = (samples, *s)
            out[n] = rng.integers(0, high, s).astype('i8') if kind == 'i8' else rng.standard_normal(s).astype('f4')
        if self.ignored is not None:
            out['labels'][rng.random(out['labels'].shape) < 0.3] = self.ignored
        return out

    def counted(self, labels):
        """What `pdcc cases` leaves to be divided by: of a cross-entropy it has the sum over the labels that count."""
        if self.kind != 'ce':
            return 1
        seen = labels[labels != self.ignored] if self.ignored is not None else labels.ravel()
        return seen.size if self.weights is None else float(self.weights[seen].sum())


def flat(g, v):
    """[batch, D] of a batched value."""
    n = int(np.prod(v.shape[1:]))
    if v.rank == 2:
        return v.name
    if v.rank == 1:
        return g.add('Unsqueeze', [v.name, g.ints(1)])
    if v.rank > 2 and g.chance(0.4):
        return g.reduce(g.pick('ReduceMean', 'ReduceSum'), v.name, range(2, v.rank), 0)
    if g.chance():
        return g.add('Flatten', [v.name], axis=1)
    return g.add('Reshape', [v.name, g.ints(g.pick(0, -1), n)])


def width(v, name, g):
    """Columns of flat()'s answer."""
    node = next(n for n in reversed(g.nodes) if name in n.output) if name != v.name else None
    if node is None:
        return v.shape[1]
    return 1 if v.rank == 1 else v.shape[1] if node.op_type.startswith('Reduce') else int(np.prod(v.shape[1:]))


def logits(g, columns):
    """[batch, columns]: values that nobody has read yet, each through a weight, and the last of all."""
    loose = [v for v in g.pool if v.batched and v.uses == 0][-5:]
    last = [v for v in g.pool if v.batched][-1]
    terms = []
    for v in dict.fromkeys(loose + [last]):
        v.uses += 1
        x = flat(g, v)
        w = width(v, x, g)
        if g.chance():
            y = g.add('MatMul', [x, g.weight((w, columns), w)])
        else:
            y = g.add('Gemm', [x, g.weight((columns, w), w)] + ([g.param((columns,))] if g.chance() else []), transB=1)
        terms.append(g.add('Tanh', [y]) if len(loose) > 2 else y)
    while len(terms) > 1:
        terms.append(g.add('Add', [terms.pop(0), terms.pop(0)]))
    return terms[0]


def cross_entropy(g, y, shape, out, alone):
    """Over axis 1 of y; some labels are not counted where the loss is this alone (a mean over none is not a number)."""
    at = {}
    if alone and g.chance(0.3):
        at['ignore_index'] = g.pick(-1, -100, 0)
    g.ignored = at.get('ignore_index')
    labels = [g.input('labels', shape[2:], 'i8', shape[1])]
    if alone and g.chance(0.15):    # of the classes
        g.weights = g.rng.uniform(0.5, 2, shape[1]).astype('f4')
        labels.append(g.const(g.weights))
    if g.chance(0.4):
        g.add('NegativeLogLikelihoodLoss', [g.add('LogSoftmax', [y], axis=1), *labels], outs=[out], **at)
    else:
        g.add('SoftmaxCrossEntropyLoss', [y, *labels], outs=[out], **at)


def finish(g):
    """The loss: a mean cross-entropy or mean square, sometimes with a term from the middle of the graph."""
    c = g.whole(2, 6)
    y, shape = logits(g, c), (BATCH, c)
    g.out_shapes = [[]]
    if g.chance(0.3):
        g.outs.append(y)
        g.out_shapes.append([BATCH, c])
    extra = [v for v in g.pool if v.rank > 0] if g.chance(0.25) else []
    out = 'loss' if not extra else g.name('Loss')
    kind = g.pick('ce', 'ce', 'ce', 'mse', 'mse')
    if g.chance(0.2):               # several labels a sample
        k = g.whole(2, 3)
        y, shape = g.add('Add', [g.add('Unsqueeze', [y, g.ints(2)]), g.param((1, c, k))]), (BATCH, c, k)
    g.kind = kind if not extra else 'sum'
    if kind == 'mse':
        d = g.add('Sub', [y, g.input('labels', shape[1:])])
        sq = g.add('Mul', [d, d]) if g.chance() else g.add('Pow', [d, g.f(2)])
        g.add('ReduceMean', [sq], outs=[out], keepdims=0)
    else:
        cross_entropy(g, y, shape, out, not extra)
    if extra:
        v = extra[g.whole(0, len(extra) - 1)]
        r = g.add('ReduceMean', [g.add('Mul', [v.name, v.name]) if g.chance() else v.name], keepdims=0)
        g.add('Add', [out, g.add('Mul', [r, g.f(0.3)])], outs=['loss'])


def draw(seed):
    g = Graph(seed)
    want = g.whole(2, 32)           # the loss and its logits come on top
    g.names |= {'loss', 'labels'}
    shape = g.pick((g.whole(2, 8),), (g.whole(2, 5), g.whole(2, 6)), (g.pick(1, 2, 3, 4), g.whole(4, 8), g.whole(4, 8)))
    g.pool.append(Value(g.input('x', shape), (BATCH, *shape), True))
    if g.chance(0.2):
        g.pool.append(Value(g.input(g.name('x2'), shape), (BATCH, *shape), True))
    if g.chance(0.3):
        t, rows, d = g.whole(2, 5), g.whole(3, 9), g.whole(2, 6)
        ids = g.input(g.name('ids'), (t,), 'i8', rows)
        g.put(g.add('Gather', [g.param((rows, d)), ids], axis=0), (BATCH, t, d), True)
    w = np.array([x for x, _ in OPS])
    tries = 0
    while sum(n.op_type != 'Constant' for n in g.nodes) < want and tries < 300 and len(g.params) < MOST_PARAMS - 8:
        tries += 1
        OPS[int(g.rng.choice(len(OPS), p=w / w.sum()))][1](g)
    finish(g)
    if g.chance(0.15):
        g.unused = [g.param((g.whole(1, 4),), lo=-1.0, hi=1.0)]
    read = set(g.outs)                      # what the outputs depend on
    for n in reversed(g.nodes):
        if read & set(n.output) and n.op_type != 'Shape':
            read |= set(n.input)
    g.unused = [p for p in g.params if p not in read]
    g.frozen = [p for p in g.frozen if p in read]
    return g


import randgraph_ops       # noqa: E402, F401: fills OPS
import randgraph_moves     # noqa: E402, F401
