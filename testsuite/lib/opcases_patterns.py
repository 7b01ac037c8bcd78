"""What older exports spell out and the patterns pass makes one op: cases for the grad suite, and for `patterns`, which
compares each with its twin. c.inside names a value within the pattern: where something else reads it too, the pattern
stays as it is."""
import math
import numpy as np
from opcases import gen


def reshape(c, x, shape):
    return c.add('Reshape', [x, c.const(np.array(shape, 'i8'))])


def scaled(c, x, factor):
    if c.chance():
        return c.add('Div', [x, c.const(np.float32(1 / factor))])
    return c.add('Mul', [x, c.const(np.float32(factor))])


def quotient(c, d, v):
    """d / sqrt(v) in one of its forms."""
    form = c.pick('div', 'recip', 'one', 'half', 'minus')
    if form == 'minus':
        return c.add('Mul', [d, c.add('Pow', [v, c.const(np.float32(-0.5))])])
    s = c.add('Pow', [v, c.const(np.float32(0.5))]) if form == 'half' else c.add('Sqrt', [v])
    if form in ('div', 'half'):
        return c.add('Div', [d, s])
    r = c.add('Reciprocal', [s]) if form == 'recip' else c.add('Div', [c.const(np.float32(1)), s])
    return c.add('Mul', [r, d])


@gen('SpeltLayerNormalization', 'SpeltRMSNormalization')
def norm(c, op):
    s = c.shape(rank=c.pick(2, 3, 4), lo=2)
    axis = int(c.rng.integers(1, len(s)))
    axes = list(range(axis, len(s)))
    x = d = c.add('Mul', [c.param(s), c.param(s, 0.5, 2)])
    if op == 'SpeltLayerNormalization':
        d = c.add('Sub', [x, c.add('ReduceMean', [x], axes=axes)])
    p = c.add('Mul', [d, d]) if c.chance() else c.add('Pow', [d, c.const(np.float32(2))])
    c.inside = c.add('ReduceMean', [p], axes=axes)
    if op == 'SpeltLayerNormalization' and c.chance(0.3):       # TensorFlow's order
        inv = quotient(c, c.param(s[axis:]), c.add('Add', [c.inside, c.const(np.float32(0.01))]))
        off = c.add('Sub', [c.param(s[axis:]), c.add('Mul', [c.add('ReduceMean', [x], axes=axes), inv])])
        c.out = [c.add('Add', [c.add('Mul', [x, inv]), off] if c.chance() else [off, c.add('Mul', [inv, x])])]
        return
    y = quotient(c, d, c.add('Add', [c.inside, c.const(np.float32(c.pick(0.01, 1e-5)))]))
    if c.chance(0.8):
        y = c.add('Mul', [y, c.param(s[axis:])])
    if c.chance(0.8):
        y = c.add('Add', [c.param(s[axis:]), y])
    c.out = [y]


@gen('SpeltGelu', 'SpeltGeluTanh')
def gelu(c, op):
    x = c.add('Neg', [c.param(c.shape())])
    if op == 'SpeltGelu':
        c.inside = c.add('Erf', [scaled(c, x, math.sqrt(0.5))])
    else:
        cube = c.add('Pow', [x, c.const(np.float32(3))]) if c.chance() else c.add('Mul', [c.add('Mul', [x, x]), x])
        inner = c.add('Add', [x, c.add('Mul', [c.const(np.float32(0.044715)), cube])])
        c.inside = c.add('Tanh', [c.add('Mul', [inner, c.const(np.float32(math.sqrt(2 / math.pi)))])])
    one = c.add('Add', [c.inside, c.const(np.float32(1))])
    form = c.pick(0, 1, 2)
    if form == 0:
        c.out = [scaled(c, c.add('Mul', [x, one]), 0.5)]
    else:
        c.out = [c.add('Mul', [scaled(c, x, 0.5), one] if form == 1 else [x, scaled(c, one, 0.5)])]


@gen('SpeltLRN')
def lrn(c, op):
    s = (c.pick(1, 2), c.pick(2, 5, 7)) + c.shape(rank=c.pick(1, 2), lo=2)
    size = c.pick(3, 5)
    x = c.add('Neg', [c.param(s)])
    seen = (s[0], 1, s[1], s[2]) if len(s) == 3 else (s[0], 1, s[1], s[2], s[3])
    v = reshape(c, c.add('Mul', [x, x]), seen)
    rest = [0] * (len(seen) - 3)
    pads = [0, 0, size // 2] + rest
    v = c.add('Pad', [v, c.const(np.array(pads + pads, 'i8'))])
    v = c.add('AveragePool', [v], kernel_shape=[size] + [1] * len(rest), strides=[1] * (1 + len(rest)))
    v = reshape(c, v, s)
    c.inside = c.add('Add', [c.add('Mul', [v, c.const(np.float32(0.3))]), c.const(np.float32(2))])
    c.out = [c.add('Div', [x, c.add('Pow', [c.inside, c.const(np.float32(c.pick(0.75, 0.6)))])])]


def scores(c, s, lead, tq, tk):
    """Scores as the softmax sees them: masked by Where, a bias added; and the mask's form."""
    form = c.pick('none', 'causal', 'hide', 'where', 'bias', 'future', 'both')
    mask = lambda p: c.rng.random(tuple(1 if c.chance(0.3) else n for n in lead) + (tq, tk)) < p
    fill = c.pick(-np.inf, -1e4, -1e9, -3.4e38)
    if form in ('causal', 'both'):
        s = c.add('Where', [c.const(np.tril(np.ones((tq, tk), bool))), s, c.const(np.float32(fill))])
    if form == 'hide':
        m = mask(0.3)
        m[..., 0] &= fill > -np.inf        # else a row that sees nothing is no number
        s = c.add('Where', [c.const(m), c.const(np.float32(fill)), s])
    if form == 'where':
        m = mask(0.5)
        m[..., -1] |= fill == -np.inf
        s = c.add('Where', [c.const(m), s, c.const(np.float32(fill))])
    if form in ('bias', 'both'):
        b = c.const(c.rng.standard_normal((tk,) if c.chance(0.3) else (tq, tk)).astype('f4'))
        s = c.add('Add', [s, b] if c.chance() else [b, s])
    if form == 'future':
        s = c.add('Add', [s, c.const(np.triu(np.full((tq, tk), -np.inf, 'f4'), 1))])
    return s


@gen('Attention')
def attention(c, op):
    b, h, tq, tk = c.pick(1, 2, 3), c.pick(1, 2, 3), c.pick(1, 3, 5, 70), c.pick(1, 3, 6)
    if c.chance(0.1):       # more than one tile of a GPU's kernels
        b, h, tq, tk = c.pick((1, 1, 2, 2300), (1, 1, 2300, 2))
    d, e = c.pick(1, 2, 5), c.pick(1, 4)
    lead = c.pick((b, h), (b, h), (b,), ())
    rows = len(lead) == 2 and c.chance(0.7)
    if rows:
        q, k, v = [c.param((b, t, h * n)) for t, n in ((tq, d), (tk, d), (tk, e))]
        q, k, v = [reshape(c, x, (b, t, h, n)) for x, t, n in ((q, tq, d), (k, tk, d), (v, tk, e))]
        q, v = [c.add('Transpose', [x], perm=[0, 2, 1, 3]) for x in (q, v)]
        if c.chance():
            kt = c.add('Transpose', [k], perm=[0, 2, 3, 1])
        else:
            kt = c.add('Transpose', [c.add('Transpose', [k], perm=[0, 2, 1, 3])], perm=[0, 1, 3, 2])
    else:
        q, v = c.param(lead + (tq, d)), c.param(lead + (tk, e))
        perm = list(range(len(lead))) + [len(lead) + 1, len(lead)]
        kt = c.add('Transpose', [c.param(lead + (tk, d))], perm=perm) if c.chance() else c.param(lead + (d, tk))
    where = c.pick('none', 'scores', 'both', 'q')
    f = float(c.rng.uniform(0.2, 0.9))
    if where in ('q', 'both'):
        q = scaled(c, q, f)
    if where == 'both':
        kt = scaled(c, kt, f)
    c.inside = c.add('MatMul', [q, kt])
    s = scaled(c, c.inside, f) if where == 'scores' else c.inside
    s = c.add('Softmax', [scores(c, s, lead, tq, tk)], axis=c.pick(-1, len(lead) + 1))
    if len(lead) and c.chance(0.3):
        s = c.add('Dropout', [s, c.const(np.float32(0.4)), c.const(np.array(True))])
    y = c.add('MatMul', [s, v])
    if rows and c.chance(0.8):
        y = reshape(c, c.add('Transpose', [y], perm=[0, 2, 1, 3]), (b, tq, h * e))
    c.out = [y]


@gen('LSTMCell')
def lstm_cell(c, op):
    """One or two steps; the last may leave its state unread, and h may have no gradient."""
    lead, n, steps = c.pick((), (2,), (3,), (2, 2)), c.pick(1, 2, 5), c.pick(1, 2)
    order, flat = [int(x) for x in c.rng.permutation(4)], False
    state, bias, axis, split = c.param(lead + (n,)), c.chance(), c.pick(-1, len(lead)), c.chance()
    for k in range(steps):
        gates = c.add('Tanh', [c.param(lead + (4 * n,))])
        if split:
            part = c.add('Split', [gates], nout=4, axis=axis)
        else:
            at = [[c.const(np.array([x], 'i8')) for x in (s * n, s * n + n, axis)] for s in range(4)]
            part = [c.add('Slice', [gates] + a) for a in at]
        i, f, g, o = [part[s] for s in order]
        if bias:
            f = c.add('Add', [f, c.const(np.float32(1))])
        i, f, o = [c.add('Sigmoid', [x]) for x in (i, f, o)]
        c.inside = c.add('Tanh', [g])
        terms = [c.add('Mul', c.rng.permutation(x).tolist()) for x in ([f, state], [i, c.inside])]
        state = c.add('Add', c.rng.permutation(terms).tolist())
        h = c.add('Mul', [o, c.add('Tanh', [state])])
        flat = c.chance(0.2)
        if flat:                        # no gradient comes from here
            h = c.add('Cast', [c.add('Greater', [h, c.const(np.float32(0))])], to=1)
        c.out.append(h)
    if flat or c.chance():
        c.out.append(c.add('Neg', [state]))
