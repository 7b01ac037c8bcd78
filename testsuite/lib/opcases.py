"""Random small graphs for every differentiable op: shapes, broadcasts, axes and attributes drawn from a seed.

Each generator gives a Case: ONNX nodes from the named parameters (float, to be differentiated) and constants to the
outputs that matter. The suite multiplies each output by random weights and sums them up to a loss.
"""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

GENERATORS = {}

# differentiable ops that stand in no ONNX file: made by gradients and by the layout pass, and covered through these
THROUGH = {'BatchNorm': 'BatchNormalization', 'SliceGrad': 'Slice', 'GatherGrad': 'Gather', 'Reorder': 'Conv', 'ConvGradData': 'ConvTranspose',
           'ResizeAxisGrad': 'ResizeAxis'}

# operators that are newer than the opset that cases have
SINCE = {'Mish': 18, 'Gelu': 20, 'RMSNormalization': 23, 'Swish': 24}


class Case:
    def __init__(self, rng):
        self.rng, self.nodes, self.params, self.consts, self.out = rng, [], {}, {}, []
        self.opset = 17

    def shape(self, rank=None, lo=1, hi=5):
        return tuple(int(self.rng.integers(lo, hi + 1)) for _ in range(self.rng.integers(1, 5) if rank is None else rank))

    def param(self, shape, lo=-2.0, hi=2.0, gap=0.0, name=None):
        """A parameter with values in [lo, hi], none nearer to 0 than gap (kinks) and none nearer to each other than
        what central differences need when `gap` is set (ties)."""
        shape = shape or (1,)       # scalars are constants to pdcc
        n = int(np.prod(shape))
        v = self.rng.uniform(lo, hi, n)
        if gap:
            v = (self.rng.permutation(n) + 0.5) / max(n, 1) * (hi - lo) + lo
            v += np.where(np.abs(v) < gap, np.where(v < 0, -gap, gap), 0)
        name = name or f'p{len(self.params)}'
        self.params[name] = v.astype('f4').reshape(shape)
        return name

    def const(self, array):
        name = f'c{len(self.consts)}'
        self.consts[name] = np.asarray(array)
        return name

    def add(self, op, inputs, nout=1, **attr):
        self.opset = max(self.opset, SINCE.get(op, 0))
        outs = [f'n{len(self.nodes)}_{i}' for i in range(nout)]
        self.nodes.append(helper.make_node(op, inputs, outs, name=f'n{len(self.nodes)}', **attr))
        return outs[0] if nout == 1 else outs

    def pick(self, *xs):
        return xs[int(self.rng.integers(len(xs)))]

    def chance(self, p=0.5):
        return bool(self.rng.random() < p)


def gen(*ops):
    def put(f):
        for o in ops:
            GENERATORS[o] = f
        return f
    return put


def broadcast_pair(c):
    """Two shapes that broadcast to one."""
    full = c.shape()
    a, b = [tuple(1 if c.chance(0.3) else d for d in full) for _ in 'ab']
    if c.chance(0.3):
        b = b[int(c.rng.integers(0, len(b) + 1)):]
    return (a, b) if c.chance() else (b, a)


@gen('Relu', 'Abs')
def kinked(c, op):
    c.out = [c.add(op, [c.param(c.shape(), gap=0.01)])]


@gen('Sigmoid', 'Tanh', 'Erf', 'Exp', 'Neg', 'Sin', 'Cos')
def smooth(c, op):
    c.out = [c.add(op, [c.param(c.shape())])]


@gen('Floor', 'Ceil', 'Round', 'Sign')
def steps(c, op):
    """Flat between whole numbers: values stay away from where they jump (whole, and half for Round)."""
    s = c.shape()
    n = int(np.prod(s))
    v = c.rng.integers(-3, 3, n) + c.rng.uniform(0.1, 0.4, n)
    x = c.param(s)
    c.params[x] = v.astype('f4').reshape(s)
    c.out = [c.add(op, [x])]


@gen('Mod')
def mod(c, op):
    """fmod in the first operand; the quotient stays away from whole numbers."""
    s = c.shape()
    n = int(np.prod(s))
    x, y = c.param(s), c.const(np.full(s, 2.0, 'f4'))
    c.params[x] = (2 * c.rng.integers(0, 3, n) + c.rng.uniform(0.3, 1.7, n)).astype('f4').reshape(s)
    c.out = [c.add(op, [x, y], fmod=1)]


@gen('Identity')
def identity(c, op):
    c.out = [c.add(op, [c.add('Neg', [c.param(c.shape())])])]


@gen('Trilu')
def trilu(c, op):
    s = c.shape(rank=c.pick(2, 3), lo=2)
    c.out = [c.add(op, [c.param(s), c.const(np.array(int(c.rng.integers(-2, 3)), 'i8'))], upper=int(c.chance()))]


@gen('Log', 'Sqrt', 'Reciprocal')
def positive(c, op):
    c.out = [c.add(op, [c.param(c.shape(), 0.3, 3)])]


@gen('Add', 'Sub', 'Mul')
def binary(c, op):
    a, b = broadcast_pair(c)
    x = c.param(a)
    c.out = [c.add(op, [x, x if c.chance(0.1) else c.param(b)])]


@gen('Div')
def division(c, op):
    a, b = broadcast_pair(c)
    c.out = [c.add(op, [c.param(a), c.param(b, 0.5, 2)])]


@gen('Pow')
def power(c, op):
    a, b = broadcast_pair(c)
    if c.chance():
        e = c.const(np.float32(c.pick(2.0, 3.0, 0.5, 0.75, -1.0)))
    else:
        e = c.param(b)
    c.out = [c.add(op, [c.param(a, 0.5, 2), e])]


@gen('Max', 'Min')
def extreme(c, op):
    full = c.shape()
    n = int(np.prod(full))
    k = c.pick(1, 2, 3, 5, 18)
    xs = []
    for row in c.rng.permutation(k * n).reshape(k, n) / n:
        name = c.param(full)
        c.params[name] = row.astype('f4').reshape(full)
        xs.append(name)
    c.out = [c.add(op, xs)]


@gen('LeakyRelu', 'Elu', 'Selu', 'Celu')
def bent(c, op):
    """Alpha above zero and, where it may be, below."""
    at = {}
    if c.chance(0.8):
        at['alpha'] = float(c.rng.uniform(0.05, 2)) * c.pick(1, 1, -1)
    c.out = [c.add(op, [c.param(c.shape(), gap=0.01)], **at)]


@gen('PRelu')
def prelu(c, op):
    s = c.shape()
    b = tuple(1 if c.chance(0.4) else d for d in s)[int(c.rng.integers(len(s))):]
    slope = c.param(b, -1, 1) if c.chance(0.7) else c.const(c.rng.uniform(0.1, 1, b).astype('f4'))
    c.out = [c.add(op, [c.param(s, gap=0.01), slope])]


@gen('ThresholdedRelu', 'Shrink', 'HardSigmoid', 'HardSwish', 'Clip')
def bands(c, op):
    """Bends and jumps at -1 and 1 (HardSwish at -3 and 3): values stay away from them."""
    s = c.shape()
    n = int(np.prod(s))
    x = c.param(s)
    top = 3 if op == 'HardSwish' else 1
    v = c.rng.uniform(0.05, 0.9, n) + c.pick(0, 1.05) * (c.rng.random(n) < 0.5)
    c.params[x] = (v * top * np.where(c.chance() or c.rng.random(n) < 0.5, 1, -1)).astype('f4').reshape(s)
    if op == 'Clip':
        bound = lambda v: c.param((1,), v, v) if c.chance(0.3) else c.const(np.float32(v))
        c.out = [c.add(op, [x, bound(-1), bound(1)][:c.pick(1, 2, 3, 3)])]
        if c.chance(0.2):       # the least above the most: the most
            c.out = [c.add(op, [x, bound(1.5), bound(-1.5)])]
    elif op == 'HardSwish' and c.chance():      # as exports before opset 14 have it
        k = [c.const(np.float32(v)) for v in (0, 3, 6)]
        gate = c.add('Clip', [c.add('Add', [x, k[1]]), k[0], k[2]])
        late = c.chance()
        y = c.add('Mul', [x, gate if late else c.add('Div', [gate, k[2]])])
        c.out = [c.add('Div', [y, k[2]]) if late else y]
    else:
        c.out = [c.add(op, [x], **{'ThresholdedRelu': {}, 'Shrink': {'lambd': 1.0, 'bias': 0.5},
                                   'HardSigmoid': {'alpha': 0.5, 'beta': 0.5}, 'HardSwish': {}}[op])]


@gen('Softplus', 'Softsign', 'Mish', 'Swish', 'Atan', 'Sinh', 'Cosh', 'Asinh')
def curves(c, op):
    x = c.param(c.shape(), -3, 3)
    if op == 'Swish' and c.chance():        # as exports before opset 24 have it
        u = c.add('Mul', [x, c.const(np.float32(1.7))]) if c.chance() else x
        c.out = [c.add('Mul', [c.add('Sigmoid', [u]), x])]
    elif op == 'Mish' and c.chance():
        c.out = [c.add('Mul', [x, c.add('Tanh', [c.add('Softplus', [x])])])]
    else:
        c.out = [c.add(op, [x])]


@gen('Gelu', 'GeluTanh')
def gelu(c, op):
    c.out = [c.add('Gelu', [c.param(c.shape(), -4, 4)], approximate='tanh' if op == 'GeluTanh' else 'none')]


@gen('Tan', 'Asin', 'Acos', 'Atanh')
def inner(c, op):
    c.out = [c.add(op, [c.param(c.shape(), -0.9, 0.9)])]


@gen('Acosh')
def outer(c, op):
    c.out = [c.add(op, [c.param(c.shape(), 1.2, 4)])]


@gen('Sum')
def total(c, op):
    a, b = broadcast_pair(c)
    c.out = [c.add(op, [c.param(a), c.param(b)][:c.pick(1, 2)])]


@gen('Where')
def where(c, op):
    a, b = broadcast_pair(c)
    full = np.broadcast_shapes(a, b)
    cond = c.const(c.rng.random(full if c.chance() else full[-1:]) < 0.5)
    c.out = [c.add(op, [cond, c.param(a), c.param(b)])]


@gen('Cast')
def cast(c, op):
    c.out = [c.add(op, [c.param(c.shape())], to=TensorProto.FLOAT)]


@gen('Reshape')
def reshape(c, op):
    s = c.shape()
    n, to = int(np.prod(s)), []
    while n > 1 and len(to) < 3:
        d = c.pick(*[k for k in range(1, n + 1) if n % k == 0])
        to.append(int(d))
        n //= d
    to.append(-1 if c.chance() else int(n))
    c.out = [c.add(op, [c.param(s), c.const(np.array(to, 'i8'))])]


@gen('Flatten')
def flatten(c, op):
    s = c.shape()
    c.out = [c.add(op, [c.param(s)], axis=int(c.rng.integers(-len(s), len(s) + 1)))]


@gen('Squeeze', 'Unsqueeze')
def squeeze(c, op):
    s = c.shape(rank=3)
    ax = int(c.rng.integers(0, 3))
    if op == 'Squeeze':
        s = s[:ax] + (1,) + s[ax + 1:]
    c.out = [c.add(op, [c.param(s), c.const(np.array([ax if c.chance() else ax - (3 if op == 'Squeeze' else 4)], 'i8'))])]


@gen('Transpose')
def transpose(c, op):
    s = c.shape()
    c.out = [c.add(op, [c.param(s)], **({'perm': [int(i) for i in c.rng.permutation(len(s))]} if c.chance(0.8) else {}))]


@gen('Slice')
def slice_(c, op):
    s = c.shape(lo=2, hi=7)
    axes = [int(a) for a in c.rng.permutation(len(s))[:c.pick(1, len(s))]]
    st, en, sp = [], [], []
    for a in axes:
        step = c.pick(1, 1, 2, -1)
        b, e = sorted(int(x) for x in c.rng.integers(0, s[a] + 1, 2))
        e = max(e, b + 1) if b < s[a] else e
        if b == s[a]:
            b, e = 0, s[a]
        st.append(b if step > 0 else e - 1)
        en.append((e if c.chance() else 10 ** 6 if e == s[a] else e) if step > 0 else (b - 1 if b > 0 else -10 ** 6))
        sp.append(step)
    c.out = [c.add(op, [c.param(s)] + [c.const(np.array(v, 'i8')) for v in (st, en, axes, sp)])]


@gen('Concat')
def concat(c, op):
    s = c.shape()
    ax = int(c.rng.integers(len(s)))
    xs = [c.param(s[:ax] + (int(c.rng.integers(1, 4)),) + s[ax + 1:]) for _ in range(c.pick(1, 2, 3))]
    c.out = [c.add(op, xs, axis=ax - (len(s) if c.chance() else 0))]


@gen('Split')
def split(c, op):
    s = c.shape(lo=2, hi=6)
    ax = int(c.rng.integers(len(s)))
    a = int(c.rng.integers(1, s[ax]))
    c.out = c.add(op, [c.param(s), c.const(np.array([a, s[ax] - a], 'i8'))], nout=2, axis=ax)[:c.pick(1, 2)]


@gen('Pad')
def pad(c, op):
    s = c.shape()
    p = [int(x) for x in c.rng.integers(0, 3, 2 * len(s))]
    xs = [c.param(s), c.const(np.array(p, 'i8'))] + ([c.const(np.float32(1.5))] if c.chance() else [])
    c.out = [c.add(op, xs)]


@gen('Expand')
def expand(c, op):
    a, b = broadcast_pair(c)
    c.out = [c.add(op, [c.param(a), c.const(np.array(b, 'i8'))])]


@gen('Tile')
def tile(c, op):
    s = c.shape(hi=3)
    c.out = [c.add(op, [c.param(s), c.const(np.array([int(x) for x in c.rng.integers(1, 4, len(s))], 'i8'))])]


@gen('Gather')
def gather(c, op):
    s = c.shape(lo=2)
    ax = int(c.rng.integers(len(s)))
    ids = c.rng.integers(-s[ax] if c.chance() else 0, s[ax], c.shape(rank=c.pick(0, 1, 2))).astype('i8')
    c.out = [c.add(op, [c.param(s), c.const(ids)], axis=ax)]


@gen('ReduceSum', 'ReduceMean', 'ReduceL2', 'ReduceMax', 'ReduceMin')
def reduce(c, op):
    s = c.shape()
    axes = [int(a) - (len(s) if c.chance() else 0) for a in c.rng.permutation(len(s))[:int(c.rng.integers(1, len(s) + 1))]]
    x = c.param(s, 0.3, 2, gap=0.01) if op in ('ReduceMax', 'ReduceMin') else c.param(s, 0.3, 2)
    keep = int(c.chance())
    if op == 'ReduceSum':
        c.out = [c.add(op, [x] + ([c.const(np.array(axes, 'i8'))] if c.chance(0.8) else []), keepdims=keep)]
    else:
        c.out = [c.add(op, [x], keepdims=keep, **({'axes': axes} if c.chance(0.8) else {}))]


@gen('ReduceProd')
def reduce_prod(c, op):
    """Factors of zero among others: one in the first product, two in the second, where there are two."""
    s = c.shape(lo=3)
    axes = [int(a) for a in c.rng.permutation(len(s))[:int(c.rng.integers(1, max(2, len(s))))]]
    x = c.param(s, 0.3, 2)
    kept = [i for i in range(len(s)) if i not in axes]
    rows = np.moveaxis(c.params[x], kept, range(len(kept))).reshape(int(np.prod([s[i] for i in kept])), -1).copy()
    for row, zeros in zip(rows, (1, 2)):
        row[c.rng.permutation(len(row))[:zeros]] = 0
    c.params[x] = np.moveaxis(rows.reshape([s[i] for i in kept] + [d for i, d in enumerate(s) if i in axes]),
                              range(len(kept)), kept)
    axes = [a - (len(s) if c.chance() else 0) for a in axes]
    if len(s) > 2 and c.chance():       # behind a convolution that leaves all as it is: there the channels lie last
        w = c.param((s[1], s[1]) + (1,) * (len(s) - 2))
        c.params[w] = np.eye(s[1], dtype='f4').reshape(c.params[w].shape)
        x = c.add('Conv', [x, w])
    c.out = [c.add(op, [x], keepdims=int(c.chance()), axes=axes)]


@gen('Gemm')
def gemm(c, op):
    m, n, k = c.shape(rank=3, hi=9)
    ta, tb = int(c.chance()), int(c.chance())
    xs = [c.param((k, m) if ta else (m, k)), c.param((n, k) if tb else (k, n))]
    if c.chance(0.7):
        xs.append(c.param(c.pick((n,), (1, n), (m, 1), (m, n), (1,), ())))
    at = {}
    if c.chance(0.3):
        at = {'alpha': 0.5, 'beta': 1.5}
    c.out = [c.add(op, xs, transA=ta, transB=tb, **at)]


@gen('MatMul')
def matmul(c, op):
    m, n, k = c.shape(rank=3, hi=9)
    batch = c.shape(rank=c.pick(0, 1, 2), hi=3)
    a = tuple(1 if c.chance(0.2) else d for d in batch) + (m, k)
    b = batch + (k, n)
    kind = c.pick('both', 'both', 'shared', 'vec_a', 'vec_b')
    if kind == 'shared':
        b = (k, n)
    elif kind == 'vec_a':
        a = (k,)
    elif kind == 'vec_b':
        b = (k,)
    c.out = [c.add(op, [c.param(a), c.param(b)])]


def einsum_random(c):
    """Random terms over a few labels: (terms, output or None, shapes)."""
    size = {l: int(c.rng.integers(1, 4)) for l in 'abcdeZ'}
    terms = [[str(l) for l in c.rng.permutation(list(size))[:c.pick(0, 1, 2, 3)]] for _ in range(c.pick(1, 2, 2, 2, 3))]
    if c.chance(0.3) and terms[0]:
        terms[0].insert(int(c.rng.integers(len(terms[0]) + 1)), terms[0][0])        # a diagonal
    used = sorted({l for t in terms for l in t})
    out = [str(l) for l in c.rng.permutation(used)[:int(c.rng.integers(0, min(4, len(used)) + 1))]] if used else []
    shapes = [[size[l] for l in t] for t in terms]
    if c.chance(0.4):                                   # an ellipsis, broadcast
        full = list(c.shape(rank=c.pick(0, 1, 2), hi=3))
        for i, t in enumerate(terms):
            mine = [1 if c.chance(0.3) else d for d in full][int(c.rng.integers(len(full) + 1)) if c.chance(0.3) else 0:]
            at = int(c.rng.integers(len(t) + 1))
            t.insert(at, '...')
            shapes[i][at:at] = mine
        if c.chance(0.8):
            out.insert(int(c.rng.integers(len(out) + 1)), '...')
    return terms, None if c.chance(0.2) else out, shapes


@gen('Einsum')
def einsum(c, op):
    """Random equations, and those that models use, whose layouts differ in what must be transposed."""
    known = c.pick(None, None, 'ibh,hnd->ibnd', 'ibnd,jbnd->bnij', 'bnij,jbnd->ibnd', 'ibnd,hnd->ibh', 'bhwc,hkc->bhwk')
    if known:
        left, right = known.split('->')
        size = {l: int(c.rng.integers(1, 5)) for l in left if l.isalpha()}
        terms, out = [list(t) for t in left.split(',')], list(right)
        shapes = [[size[l] for l in t] for t in terms]
    else:
        terms, out, shapes = einsum_random(c)
    space = ' ' if c.chance(0.3) else ''
    eq = f'{space},{space}'.join(space.join(t) for t in terms)
    if out is not None:
        eq += f'{space}->{space}' + space.join(out)
    c.out = [c.add(op, [c.param(tuple(s)) if s else c.add('Squeeze', [c.param(())]) for s in shapes], equation=eq)]


def spatial(c, nd):
    k = [int(x) for x in c.rng.integers(1, 4, nd)]
    st = [int(x) for x in c.rng.integers(1, 3, nd)]
    dl = [int(c.pick(1, 1, 2)) for _ in range(nd)]
    eff = [(a - 1) * d + 1 for a, d in zip(k, dl)]
    p = [int(c.rng.integers(0, max(1, (e + 1) // 2))) for e in eff + eff]
    size = [int(max(1, e - p[i] - p[nd + i]) + c.rng.integers(0, 5)) for i, e in enumerate(eff)]
    return k, st, dl, p, size


@gen('Conv')
def conv(c, op):
    nd = c.pick(1, 2, 2, 2, 3)
    k, st, dl, p, size = spatial(c, nd)
    g = c.pick(1, 1, 2, 3)
    ci, co, n = c.pick(1, 2, 3) * g, c.pick(1, 2, 4) * g, c.pick(1, 2, 3)
    xs = [c.param((n, ci, *size)), c.param((co, ci // g, *k))] + ([c.param((co,))] if c.chance() else [])
    c.out = [c.add(op, xs, kernel_shape=k, strides=st, dilations=dl, pads=p, group=g)]


@gen('MaxPool', 'AveragePool')
def pool(c, op):
    nd = c.pick(1, 2, 2, 3)
    k, st, dl, p, size = spatial(c, nd)
    dl = [1] * nd
    p = [min(a, (b - 1)) for a, b in zip(p, k + k)]
    p = [min(a, b // 2) for a, b in zip(p, k + k)]
    p = [b // 2 for b in k] * 2 if c.chance() else p        # as cuDNN pads, or not
    size = [max(s, b) for s, b in zip(size, k)]
    at = {'ceil_mode': 1} if c.chance(0.3) else {}
    if op == 'AveragePool' and c.chance():
        at['count_include_pad'] = 1
    c.out = [c.add(op, [c.param((c.pick(1, 2), c.pick(1, 3), *size), gap=1e-3)], kernel_shape=k, strides=st, pads=p, **at)]


@gen('GlobalAveragePool')
def global_pool(c, op):
    c.out = [c.add(op, [c.param((c.pick(1, 2), c.pick(1, 3), *c.shape(rank=c.pick(1, 2, 3))))])]


@gen('BatchNormalization')
def batchnorm(c, op):
    s = (c.pick(2, 4), c.pick(1, 3), *c.shape(rank=c.pick(0, 1, 2), lo=2))
    ch = s[1]
    xs = [c.param(s), c.param((ch,)), c.param((ch,)), c.const(np.zeros(ch, 'f4')), c.const(np.ones(ch, 'f4'))]
    c.out = [c.add(op, xs, nout=3, training_mode=1, epsilon=0.1)[0]]


@gen('Softmax', 'LogSoftmax')
def softmax(c, op):
    s = c.shape(lo=2)
    c.out = [c.add(op, [c.param(s)], axis=int(c.rng.integers(-len(s), len(s))))]


@gen('SoftmaxCrossEntropyLoss', 'NegativeLogLikelihoodLoss')
def loss(c, op):
    n, k = c.pick(1, 3, 5), c.pick(2, 4, 7)
    rest = c.shape(rank=c.pick(0, 0, 1, 2), hi=3)
    y = c.rng.integers(0, k, (n, *rest)).astype('i8')
    at = {'reduction': c.pick('mean', 'sum', 'none')}
    if c.chance():
        at['ignore_index'] = int(c.pick(0, -100))
        y.flat[int(c.rng.integers(y.size))] = at['ignore_index']
        if (y == at['ignore_index']).all():
            y.flat[0] = 1
    xs = [c.param((n, k, *rest)), c.const(y)]
    if c.chance(0.4):
        xs.append(c.const(c.rng.uniform(0.5, 2, k).astype('f4')))
    c.out = [c.add(op, xs, **at)]


@gen('LSTM', 'GRU', 'RNN')
def recurrent(c, op):
    t, b, i, h = c.pick(1, 2, 4), c.pick(1, 3), c.pick(1, 2), c.pick(1, 3)
    wide = 2.0
    if c.chance(0.25):      # the weights are transposed first (ir/ops/recurrent)
        (t, b), wide = c.pick((12, 16), (24, 8)), 0.4
    g, dirs = {'LSTM': 4, 'GRU': 3, 'RNN': 1}[op], c.pick('forward', 'reverse', 'bidirectional')
    d, at = 2 if dirs == 'bidirectional' else 1, {'direction': dirs, 'hidden_size': h}
    xs = [c.param((t, b, i)), c.param((d, g * h, i)), c.param((d, g * h, h), -wide, wide), c.param((d, 2 * g * h)) if c.chance(0.8) else '']
    xs.append(c.const(c.rng.integers(1, t + 1, b).astype('i4')) if c.chance(0.4) else '')
    xs.append(c.param((d, b, h)) if c.chance() else '')
    if op == 'LSTM':
        xs += [c.param((d, b, h)) if c.chance() else '', c.param((d, 3 * h)) if c.chance(0.3) else '']
    if op == 'GRU' and c.chance(0.7):
        at['linear_before_reset'] = 1
    if op == 'RNN' and c.chance():
        at['activations'] = ['Tanh'] * d
    while not xs[-1]:
        xs.pop()
    outs = c.add(op, xs, nout=3 if op == 'LSTM' else 2, **at)
    keep = [o for o in outs if c.chance(0.6)]
    c.out = keep or outs[:1]


@gen('RandomNormalLike', 'RandomUniformLike', 'Bernoulli')
def noise(c, op):
    """What is drawn does not depend on the values, and has no gradient."""
    x, s = c.param(c.shape(), lo=0.1, hi=0.9), c.param(c.shape(rank=1))
    n = c.add(op, [x if op != 'Bernoulli' else c.const(np.full(c.shape(rank=2), 0.5, 'f4'))])
    c.out = [c.add('Mul', [n, c.add('ReduceSum', [s], keepdims=0)])] + ([c.add('Mul', [x, n])] if op != 'Bernoulli' else [])


@gen('Dropout')
def dropout(c, op):
    s = c.shape()
    c.out = [c.add(op, [c.param(s), c.const(np.float32(0.0)), c.const(np.array(True))])]


def make(op, seed):
    """An ONNX model of one case; its float initializers are the parameters, its only output the loss."""
    rng = np.random.default_rng([seed, *op.encode()])
    c = Case(rng)
    GENERATORS[op](c, op)
    params = dict(c.params)
    terms = []
    for o in c.out:
        terms.append(o)
    return finish(op, seed, c, params, terms)


def finish(op, seed, c, params, outs):
    """Weights on the outputs by Mul with a ramp that every shape broadcasts to, then the sum of all."""
    nodes = list(c.nodes)
    total = []
    for i, o in enumerate(outs):
        nodes.append(helper.make_node('Mul', [o, o], [f'sq{i}'], name=f'sq{i}'))
        nodes.append(helper.make_node('Mul', [o, 'alpha'], [f'lin{i}'], name=f'lin{i}'))
        nodes.append(helper.make_node('Add', [f'sq{i}', f'lin{i}'], [f'w{i}'], name=f'w{i}'))
        nodes.append(helper.make_node('ReduceSum', [f'w{i}'], [f's{i}'], name=f's{i}', keepdims=0))
        total.append(f's{i}')
    nodes.append(helper.make_node('Sum', total, ['loss'], name='total'))
    consts = dict(c.consts, alpha=np.float32(0.7))
    cnodes = [helper.make_node('Constant', [], [k], name=k, value=numpy_helper.from_array(v, k)) for k, v in consts.items()]
    init = [numpy_helper.from_array(v, k) for k, v in params.items()]
    g = helper.make_graph(cnodes + nodes, f'{op}_{seed}', [], [helper.make_tensor_value_info('loss', TensorProto.FLOAT, [])], init)
    m = helper.make_model(g, opset_imports=[helper.make_opsetid('', c.opset)])
    m.ir_version = 8
    return m


import opcases_spatial     # noqa: E402, F401: more of them
import opcases_index       # noqa: E402, F401
import opcases_patterns    # noqa: E402, F401
