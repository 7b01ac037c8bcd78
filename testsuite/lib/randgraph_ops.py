"""Ops of randgraph.py, elementwise, products and images: each takes what fits from the pool, or does nothing. Shapes
follow ONNX; the batch axis, where there is one, is axis 0 of what comes and of what goes."""
import numpy as np
from onnx import TensorProto
from randgraph import BATCH, op

SMALL = 600             # elements; larger values are only made smaller


def small(v):
    return int(np.prod(v.shape)) <= SMALL


def unary_guarded(g, v, kind):
    """A value inside the op's domain, and how large the result is."""
    x = v.name
    if kind == 'Exp':
        return g.add('Exp', [g.add('Tanh', [x])]), 2.0
    if kind in ('Sqrt', 'Log'):
        return g.add(kind, [g.add('Add', [g.add('Mul', [x, x]), g.f(0.5)])]), v.scale
    if kind == 'Reciprocal':
        return g.add(kind, [g.add('Add', [g.add('Sigmoid', [x]), g.f(0.6)])]), 1.2
    return g.add('Pow', [g.add('Tanh', [x]), g.f(g.pick(2.0, 3.0))]), 0.7


@op(4)
def unary(g):
    v = g.take()
    kind = g.pick('Tanh', 'Sigmoid', 'Erf', 'Sin', 'Cos', 'Softplus', 'Softsign', 'Atan', 'Asinh', 'Neg',
                  'Identity', 'Elu', 'Selu', 'Relu', 'LeakyRelu', 'Abs', 'HardSigmoid', 'Celu', 'Swish', 'Gelu',
                  'Exp', 'Sqrt', 'Log', 'Reciprocal', 'Pow')
    s = v.scale
    if kind in ('Exp', 'Sqrt', 'Log', 'Reciprocal', 'Pow'):
        y, s = unary_guarded(g, v, kind)
    elif kind == 'Swish':
        y = g.add('Mul', [v.name, g.add('Sigmoid', [v.name])])
    elif kind == 'Gelu':
        h = g.add('Mul', [v.name, g.f(0.5)])
        y = g.add('Mul', [h, g.add('Add', [g.add('Erf', [g.add('Div', [v.name, g.f(2 ** 0.5)])]), g.f(1)])])
    else:
        y = g.add(kind, [v.name])
        s = min(s, 1.0) if kind in ('Tanh', 'Sigmoid', 'Erf', 'Sin', 'Cos', 'Softsign', 'HardSigmoid') else s
    g.put(y, v.shape, v.batched, s)


@op(1)
def clip(g):
    v = g.take()
    g.put(g.add('Clip', [v.name, g.f(-1.1), g.f(0.9)]), v.shape, v.batched, 1.0)


def result(a, b):
    """(shape, batched) of two values under broadcasting, or None: the batch must stay on axis 0."""
    try:
        s = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return None
    batched = a.batched or b.batched
    if a.batched and b.batched and a.rank != b.rank:
        return None
    for v, o in (a, b), (b, a):
        if v.batched and (len(s) != v.rank or (not o.batched and o.rank == len(s) and o.shape[0] != 1)):
            return None
    return tuple(int(d) for d in s), batched


def other_operand(g, v):
    """(name, result shape, batched, scale): what v can be combined with: a value, a parameter or a scalar."""
    how = g.pick('pool', 'pool', 'pool', 'param', 'scalar')
    if how == 'pool':
        w = g.take(lambda w: result(v, w) and int(np.prod(result(v, w)[0])) <= SMALL)
        if w:
            return (w.name, *result(v, w), w.scale)
    if how == 'scalar':
        return g.f(g.pick(0.5, 1.5, -0.7)), v.shape, v.batched, 1.0
    s = [1 if g.chance(0.3) else d for d in v.shape]
    if v.batched:
        s[0] = 1
    if g.chance(0.7):
        s = s[g.whole(1, len(s)):]
    return g.param(s or [1]), v.shape, v.batched, 1.0


@op(6)
def binary(g):
    v = g.take(small)
    if not v:
        return
    x, s, batched, scale = other_operand(g, v)
    kind = g.pick('Add', 'Add', 'Sub', 'Mul', 'Mul', 'Div', 'Max', 'Min')
    ab = [v.name, x] if g.chance() else [x, v.name]
    if kind == 'Div':
        ab[1] = g.add('Add', [g.add('Sigmoid', [ab[1]]), g.f(0.6)])
        y = g.add('Div', ab)
        scale = 1.2 * max(v.scale, scale)
    else:
        y = g.add(kind, ab)
        scale = v.scale + scale if kind in ('Add', 'Sub') else v.scale * scale if kind == 'Mul' else max(v.scale, scale)
    g.put(y, s, batched, scale)


@op(1)
def biases(g):
    """Two parameters of one shape, added one after the other: their gradients are one value."""
    v = g.take(lambda v: v.rank >= 2)
    if v:
        s = v.shape[g.whole(1, v.rank - 1):]
        y = g.add('Add', [v.name, g.param(s)])
        g.put(g.add(g.pick('Add', 'Sub'), [y, g.param(s)]), v.shape, v.batched, v.scale + 1)


@op(2)
def residual(g):
    """A branch of one or two steps, added to where it began."""
    v = g.take()
    y = g.add(g.pick('Tanh', 'Sigmoid', 'Sin'), [v.name])
    if v.rank >= 2 and g.chance():
        y = g.add('MatMul', [y, g.weight((v.shape[-1], v.shape[-1]), v.shape[-1])])
    g.put(g.add('Add', [y, v.name] if g.chance() else [v.name, y]), v.shape, v.batched, v.scale + 1)


@op(1)
def several(g):
    v = g.take()
    ws = [w for w in g.values(lambda w: w.shape == v.shape and w.batched == v.batched)][:3]
    for w in ws:
        w.uses += 1
    names = [w.name for w in ws] + ([g.param(v.shape[1:])] if v.rank > 1 else [])
    kind = g.pick('Sum', 'Mean', 'Max')
    g.put(g.add(kind, names), v.shape, v.batched, 4.0 if kind == 'Sum' else 2.0)


@op(1)
def where(g):
    v = g.take(small)
    if not v:
        return
    c = g.add(g.pick('Greater', 'Less'), [v.name, g.f(0.1)])
    if g.chance(0.3):
        c = g.add('Not', [c])
    x, s, batched, scale = other_operand(g, v)
    g.put(g.add('Where', [c, v.name, x] if g.chance() else [c, x, v.name]), s, batched, max(scale, v.scale))


@op(1)
def mask(g):
    """A comparison as numbers, times a value: no gradient through the first."""
    v = g.take(small)
    if v:
        m = g.add('Cast', [g.add('GreaterOrEqual', [v.name, g.f(-0.3)])], to=TensorProto.FLOAT)
        g.put(g.add('Mul', [g.add('Tanh', [v.name]), m]), v.shape, v.batched)


@op(1)
def prelu(g):
    v = g.take(lambda v: v.rank >= 2)
    if v:
        slope = (v.shape[1],) + (1,) * (v.rank - 2) if g.chance() else (1,)
        g.put(g.add('PRelu', [v.name, g.param(slope)]), v.shape, v.batched, v.scale)


# ---- products ----
@op(4)
def matmul(g):
    v = g.take(lambda v: v.rank >= 2)
    if not v:
        return
    k, m = v.shape[-1], g.whole(1, 7)
    w = g.weight((k, m), k)
    y = g.add('MatMul', [v.name, w])
    if g.chance():
        b = g.param((m,))
        y = g.add('Add', [y, b] if g.chance() else [b, y])
    g.put(y, (*v.shape[:-1], m), v.batched, 1.5 * v.scale)


@op(1)
def tied(g):
    """A matrix that is used already, turned over: as a decoder that shares its embedding."""
    ws = [k for k, p in g.params.items() if p.ndim == 2]
    v = ws and g.take(lambda v: v.rank >= 2 and any(g.params[k].shape[1] == v.shape[-1] for k in ws))
    if not v:
        return
    w = g.pick(*[k for k in ws if g.params[k].shape[1] == v.shape[-1]])
    if v.rank == 2 and g.chance():
        y = g.add('Gemm', [v.name, w], transB=1)
    else:
        y = g.add('MatMul', [v.name, g.add('Transpose', [w], perm=[1, 0])])
    g.put(y, (*v.shape[:-1], g.params[w].shape[0]), v.batched, 1.5 * v.scale)


@op(1)
def matmul_left(g):
    """weight [M, R] x value [.., R, C], or value x vector."""
    v = g.take(lambda v: v.rank >= 3 or (v.rank == 2 and not v.batched))
    if not v:
        return
    if g.chance(0.3):
        g.put(g.add('MatMul', [v.name, g.weight((v.shape[-1],), v.shape[-1])]), v.shape[:-1], v.batched, 1.5 * v.scale)
        return
    m = g.whole(1, 5)
    y = g.add('MatMul', [g.weight((m, v.shape[-2]), v.shape[-2]), v.name])
    g.put(y, (*v.shape[:-2], m, v.shape[-1]), v.batched, 1.5 * v.scale)


@op(2)
def gemm(g):
    v = g.take(lambda v: v.rank == 2)
    if not v:
        return
    k, m, at = v.shape[1], g.whole(1, 7), {}
    if g.chance():
        at['transB'] = 1
    for a in 'alpha', 'beta':
        if g.chance(0.3):
            at[a] = g.pick(0.5, 1.5)
    w = g.weight((m, k) if 'transB' in at else (k, m), k)
    c = [g.param(g.pick((m,), (1, m), (1,)))] if g.chance(0.7) else []
    g.put(g.add('Gemm', [v.name, w, *c], **at), (v.shape[0], m), v.batched, 1.5 * v.scale)


@op(1)
def linear_rows(g):
    """As exports write a Linear over [batch, T, C]: rows of a matrix and back."""
    v = g.take(lambda v: v.rank == 3 and v.batched)
    if not v:
        return
    k, m = v.shape[2], g.whole(1, 6)
    r = g.add('Reshape', [v.name, g.ints(-1, k)])
    y = g.add('Gemm', [r, g.weight((m, k), k), g.param((m,))], transB=1)
    g.put(g.add('Reshape', [y, g.ints(-1, v.shape[1], m)]), (BATCH, v.shape[1], m), True, 1.5 * v.scale)


@op(1.5)
def attention(g):
    v = g.take(lambda v: v.rank == 3 and v.batched and small(v))
    if not v:
        return
    k, d = v.shape[2], g.whole(1, 4)
    q, kk, u = [g.add('MatMul', [v.name, g.weight((k, d), k)]) for _ in range(3)]
    s = g.add('MatMul', [q, g.add('Transpose', [kk], perm=[0, 2, 1])])
    if g.chance():
        s = g.add(g.pick('Mul', 'Div'), [s, g.f(0.8)])
    if g.chance(0.3):
        s = g.add('Add', [s, g.const(np.triu(np.full((v.shape[1],) * 2, -1e4, 'f4'), 1))])
    g.put(g.add('MatMul', [g.add('Softmax', [s], axis=-1), u]), (*v.shape[:2], d), True, 1.5)


@op(1)
def heads(g):
    """Attention of several heads as exports write it: Reshape, Transpose, products, and back."""
    v = g.take(lambda v: v.rank == 3 and v.batched and v.shape[1] <= 6)
    if not v:
        return
    n, t, c = v.shape
    h, d = g.whole(1, 3), g.whole(1, 3)
    q, k, u = [g.add('MatMul', [v.name, g.weight((c, h * d), c)]) for _ in 'qku']
    q, k, u = [g.add('Reshape', [x, g.ints(0, -1, h, d)]) for x in (q, k, u)]
    q, u = [g.add('Transpose', [x], perm=[0, 2, 1, 3]) for x in (q, u)]
    k = g.add('Transpose', [k], perm=[0, 2, 3, 1])
    if g.chance(0.3):
        s = g.add('MatMul', [g.add('Mul', [x, g.f(d ** -0.25)]) for x in (q, k)])
    else:
        s = g.add('Div', [g.add('MatMul', [q, k]), g.f(d ** 0.5)])
    if g.chance(0.4):
        s = g.add('Where', [g.const(np.tril(np.ones((1, 1, t, t), bool))), s, g.f(-1e4)])
    y = g.add('Transpose', [g.add('MatMul', [g.add('Softmax', [s], axis=-1), u])], perm=[0, 2, 1, 3])
    g.put(g.add('Reshape', [y, g.ints(0, 0, h * d)]), (n, t, h * d), True, 1.5)


@op(0.5)
def rms_norm(g):
    v = g.take(lambda v: v.rank >= 2 and v.shape[-1] > 1)
    if v:
        m = g.reduce('ReduceMean', g.add('Pow', [v.name, g.f(2)]), [v.rank - 1], 1)
        y = g.add('Mul', [v.name, g.add('Reciprocal', [g.add('Sqrt', [g.add('Add', [m, g.f(0.05)])])])])
        g.put(g.add('Mul', [g.param((v.shape[-1],)), y]), v.shape, v.batched, 1.5)


@op(1)
def outer(g):
    """A value with itself: [.., R, C] x [.., C, R]."""
    v = g.take(lambda v: v.rank >= 3 and v.shape[-2] <= 8)
    if v:
        perm = [*range(v.rank - 2), v.rank - 1, v.rank - 2]
        y = g.add('MatMul', [v.name, g.add('Transpose', [v.name], perm=perm)])
        g.put(g.add('Mul', [y, g.f(0.5 / v.shape[-1])]), (*v.shape[:-1], v.shape[-2]), v.batched, v.scale ** 2)


# ---- images ----
def image(v):
    return v.rank == 4 and v.batched


@op(4)
def conv(g):
    v = g.take(image)
    if not v:
        return
    n, c, h, w = v.shape
    grp = c if g.chance(0.2) else 1
    m = grp * g.whole(1, 2) if grp > 1 else g.whole(1, 6)
    k = [g.whole(1, min(3, d)) for d in (h, w)]
    p = [g.whole(0, (b - 1) // 2 + (b > 1)) if g.chance(0.7) else 0 for b in k]
    p = [min(a, b - 1) for a, b in zip(p, k)]
    st = [g.pick(1, 1, 2) for _ in 'hw']
    to = [(d + 2 * a - b) // t + 1 for d, a, b, t in zip((h, w), p, k, st)]
    if m * to[0] * to[1] * n > 1500:
        return
    xs = [v.name, g.weight((m, c // grp, *k), c // grp * k[0] * k[1])] + ([g.param((m,))] if g.chance(0.6) else [])
    g.put(g.add('Conv', xs, kernel_shape=k, pads=p + p, strides=st, group=grp), (n, m, *to), True, 1.5 * v.scale)


@op(0.7)
def conv_transpose(g):
    v = g.take(lambda v: image(v) and int(np.prod(v.shape)) <= 300)
    if not v:
        return
    n, c, h, w = v.shape
    m, k, st = g.whole(1, 3), [g.whole(1, 3) for _ in 'hw'], [g.pick(1, 2) for _ in 'hw']
    to = [(d - 1) * t + b for d, t, b in zip((h, w), st, k)]
    y = g.add('ConvTranspose', [v.name, g.weight((c, m, *k), c * k[0] * k[1])], kernel_shape=k, strides=st)
    g.put(y, (n, m, *to), True, 1.5 * v.scale)


@op(1)
def conv_rows(g):
    v = g.take(lambda v: v.rank == 3 and v.batched)
    if v:
        n, c, t = v.shape
        m, k = g.whole(1, 5), g.whole(1, min(3, t))
        y = g.add('Conv', [v.name, g.weight((m, c, k), c * k), g.param((m,))], kernel_shape=[k])
        g.put(y, (n, m, t - k + 1), True, 1.5 * v.scale)


@op(0.7)
def resize(g):
    v = g.take(lambda v: image(v) and int(np.prod(v.shape)) <= 200)
    if v:
        how = {'mode': 'linear', 'coordinate_transformation_mode': g.pick('half_pixel', 'align_corners')}
        if g.chance():
            how = {'mode': 'nearest', 'coordinate_transformation_mode': 'asymmetric', 'nearest_mode': 'floor'}
        y = g.add('Resize', [v.name, '', g.const(np.array([1, 1, 2, 2], 'f4'))], **how)
        g.put(y, (*v.shape[:2], 2 * v.shape[2], 2 * v.shape[3]), True, v.scale)


@op(2)
def pool(g):
    v = g.take(lambda v: image(v) and min(v.shape[2:]) >= 2)
    if not v:
        return
    k, st = [2, g.whole(1, 2)], [g.pick(1, 2), g.pick(1, 2)]
    to = [(d - b) // t + 1 for d, b, t in zip(v.shape[2:], k, st)]
    kind = g.pick('MaxPool', 'AveragePool')
    g.put(g.add(kind, [v.name], kernel_shape=k, strides=st), (*v.shape[:2], *to), True, v.scale)


@op(1)
def global_pool(g):
    v = g.take(image)
    if v:
        y = g.add('GlobalAveragePool', [v.name])
        if g.chance():
            g.put(g.add('Flatten', [y]), v.shape[:2], True, v.scale)
        else:
            g.put(y, (*v.shape[:2], 1, 1), True, v.scale)


@op(1)
def batch_norm(g):
    v = g.take(lambda v: v.rank in (2, 3, 4) and v.batched)
    if not v:
        return
    c = (v.shape[1],)
    xs = [v.name, g.param(c, lo=0.5, hi=1.5), g.param(c, lo=-1, hi=1)]
    if g.opset >= 14 and (v.rank == 2 or g.chance(0.8)):
        mean, var = g.name('mean'), g.name('var')
        g.buffers[mean], g.buffers[var] = np.zeros(c, 'f4'), np.ones(c, 'f4')
        y = g.add('BatchNormalization', [*xs, mean, var], nout=3, epsilon=0.1, momentum=0.9, training_mode=1)[0]
    elif v.rank > 2:
        y = g.add('InstanceNormalization', xs, epsilon=0.1)
    else:
        return
    g.put(y, v.shape, True, 1.5)


@op(0.5)
def lrn(g):
    v = g.take(image)
    if v:
        g.put(g.add('LRN', [v.name], size=3, alpha=0.3), v.shape, True, v.scale)


@op(0.5)
def blocks(g):
    v = g.take(lambda v: image(v) and v.shape[2] % 2 == 0 and v.shape[3] % 2 == 0)
    if v:
        n, c, h, w = v.shape
        g.put(g.add('SpaceToDepth', [v.name], blocksize=2), (n, 4 * c, h // 2, w // 2), True, v.scale)
        return
    v = g.take(lambda v: image(v) and v.shape[1] % 4 == 0)
    if v:
        n, c, h, w = v.shape
        y = g.add('DepthToSpace', [v.name], blocksize=2, mode=g.pick('DCR', 'CRD'))
        g.put(y, (n, c // 4, 2 * h, 2 * w), True, v.scale)
