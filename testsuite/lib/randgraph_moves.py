"""Ops of randgraph.py, continued: normalisation, reduction, moving data, recurrent layers, values without a
batch."""
import numpy as np
from onnx import helper
from randgraph import BATCH, op
from randgraph_ops import SMALL, image, small


# ---- normalisation, reduction ----
@op(2)
def softmax(g):
    v = g.take(lambda v: v.axes())
    if v:
        ax = g.pick(*v.axes())
        y = g.add(g.pick('Softmax', 'Softmax', 'LogSoftmax'), [v.name], axis=g.pick(ax, ax - v.rank))
        g.put(y, v.shape, v.batched, 1.0)


@op(2)
def layer_norm(g):
    v = g.take(lambda v: v.axes() and v.shape[-1] > 1)
    if not v:
        return
    ax = g.pick(v.axes()[0], v.rank - 1)
    w = v.shape[ax:]
    if g.opset >= 17:
        xs = [v.name, g.param(w)] + ([g.param(w)] if g.chance(0.7) else [])
        y = g.add('LayerNormalization', xs, axis=g.pick(ax, ax - v.rank), epsilon=0.05)
    else:
        axes = list(range(ax, v.rank))
        d = g.add('Sub', [v.name, g.reduce('ReduceMean', v.name, axes, 1)])
        var = g.reduce('ReduceMean', g.add('Pow', [d, g.f(2)]), axes, 1)
        y = g.add('Div', [d, g.add('Sqrt', [g.add('Add', [var, g.f(0.05)])])])
        y = g.add('Add', [g.add('Mul', [y, g.param(w)]), g.param(w)])
    g.put(y, v.shape, v.batched, 1.5)


@op(3)
def reduce(g):
    v = g.take(lambda v: v.rank >= 2)
    if not v:
        return
    axes = sorted(int(a) for a in g.rng.permutation(v.axes())[:g.pick(1, 1, 2)])
    keep = int(g.chance(0.6))
    if not keep and len(axes) == v.rank:
        keep = 1
    kind = g.pick('ReduceMean', 'ReduceMean', 'ReduceSum', 'ReduceMax', 'ReduceMin', 'ReduceLogSumExp', 'ReduceL2')
    x = v.name
    if kind == 'ReduceL2':
        x = g.add('Add', [g.add('Sigmoid', [x]), g.f(0.2)])
    n = int(np.prod([v.shape[a] for a in axes]))
    if kind == 'ReduceLogSumExp' and not keep:
        kind = 'ReduceMean'
    y = g.reduce(kind, x, [g.pick(a, a - v.rank) for a in axes] if kind != 'ReduceSum' else axes, keep)
    shape = [1 if i in axes else d for i, d in enumerate(v.shape) if keep or i not in axes]
    g.put(y, shape, v.batched, v.scale * (n ** 0.5 if kind in ('ReduceSum', 'ReduceL2') else 1))


# ---- moving data ----
@op(3)
def concat(g):
    v = g.take(lambda v: v.axes() and small(v))
    if not v:
        return
    ax = g.pick(*v.axes())
    fit = lambda w: (w.batched == v.batched and w.rank == v.rank and small(w)
                     and all(a == b for i, (a, b) in enumerate(zip(w.shape, v.shape)) if i != ax))
    xs = [v] + [g.take(fit) for _ in range(g.whole(1, 2))]
    names = [w.name for w in xs]
    if not v.batched and g.chance(0.3):
        names[-1] = g.param(xs[-1].shape)
    shape = list(v.shape)
    shape[ax] = sum(w.shape[ax] for w in xs)
    g.put(g.add('Concat', names, axis=g.pick(ax, ax - v.rank)), shape, v.batched, max(w.scale for w in xs))


@op(2)
def split(g):
    v = g.take(lambda v: any(v.shape[a] >= 2 for a in v.axes()))
    if not v:
        return
    ax = g.pick(*[a for a in v.axes() if v.shape[a] >= 2])
    n = v.shape[ax]
    if n % 2 == 0 and g.chance(0.4):
        parts, xs = [n // 2, n // 2], [v.name]
    else:
        a = g.whole(1, n - 1)
        parts = [a, n - a]
        if n - a > 1 and g.chance(0.3):
            parts = [a, 1, n - a - 1]
        xs = [v.name, g.ints(*parts)]
    for y, p in zip(g.add('Split', xs, nout=len(parts), axis=g.pick(ax, ax - v.rank)), parts):
        g.put(y, [p if i == ax else d for i, d in enumerate(v.shape)], v.batched, v.scale)


@op(2)
def slice_(g):
    v = g.take(lambda v: any(v.shape[a] >= 2 for a in v.axes()))
    if not v:
        return
    ax = g.pick(*[a for a in v.axes() if v.shape[a] >= 2])
    n = v.shape[ax]
    step = g.pick(1, 1, 2, -1)
    b = g.whole(0, n - 1)
    e = g.whole(b + 1, n)
    ids = list(range(n))[b:e]
    if step > 0:
        s, t, cnt = b, g.pick(e, 2 ** 62) if e == n else e, len(ids[::step])
    else:
        s, t, cnt = e - 1, b - 1 if b > 0 else -2 ** 62, len(ids)
    y = g.add('Slice', [v.name, g.ints(s), g.ints(t), g.ints(g.pick(ax, ax - v.rank)), g.ints(step)])
    g.put(y, [cnt if i == ax else d for i, d in enumerate(v.shape)], v.batched, v.scale)


@op(1)
def pad(g):
    v = g.take(lambda v: v.axes() and int(np.prod(v.shape)) <= 200)
    if v:
        lo, hi = [[g.whole(0, 2) if a in v.axes() else 0 for a in range(v.rank)] for _ in 'ab']
        xs = [v.name, g.ints(*lo, *hi)] + ([g.f(0.4)] if g.chance() else [])
        g.put(g.add('Pad', xs), [a + b + c for a, b, c in zip(lo, v.shape, hi)], v.batched, v.scale)


@op(3)
def transpose(g):
    v = g.take(lambda v: len(v.axes()) >= 2)
    if v:
        first = [0] if v.batched else []
        perm = first + [int(a) for a in g.rng.permutation(v.axes())]
        g.put(g.add('Transpose', [v.name], perm=perm), [v.shape[a] for a in perm], v.batched, v.scale)


@op(1)
def batch_inside(g):
    """The batch goes to axis 1 for a while, as in time-major nets."""
    v = g.take(lambda v: v.rank == 3 and v.batched)
    if not v:
        return
    t = g.add('Transpose', [v.name], perm=[1, 0, 2])
    m = g.whole(1, 5)
    y = g.add('Tanh', [g.add('MatMul', [t, g.weight((v.shape[2], m), v.shape[2])])])
    if g.chance():
        y = g.add('Softmax', [y], axis=0)
    g.put(g.add('Transpose', [y], perm=[1, 0, 2]), (BATCH, v.shape[1], m), True)


@op(3)
def reshape(g):
    v = g.take()
    dims, first = list(v.shape[1:] if v.batched else v.shape), [v.shape[0]] if v.batched else []
    n, to = int(np.prod(dims)), []
    while n > 1 and len(to) < 2:
        d = int(g.pick(*[k for k in range(1, n + 1) if n % k == 0]))
        to.append(d)
        n //= d
    to.append(n)
    spec = list(to)
    if g.chance() and not (v.batched and g.chance()):
        spec[g.whole(0, len(spec) - 1)] = -1
    if v.batched and g.chance(0.3):         # a shape that the graph computes
        shape = g.add('Shape', [v.name])
        b = g.add('Gather', [shape, g.ints(0)], axis=0)
        y = g.add('Reshape', [v.name, g.add('Concat', [b, g.ints(*spec)], axis=0)])
    else:
        lead = [] if not v.batched else [0] if -1 in spec else [g.pick(0, -1)]
        y = g.add('Reshape', [v.name, g.ints(*lead, *spec)])
    g.put(y, first + to, v.batched, v.scale)


@op(1)
def squeeze(g):
    v = g.take()
    one = [a for a in v.axes() if v.shape[a] == 1]
    if one and v.rank > 1 and g.chance(0.7):
        ax = g.pick(*one)
        g.put(g.add('Squeeze', [v.name, g.ints(ax)]), v.shape[:ax] + v.shape[ax + 1:], v.batched, v.scale)
    elif v.rank < 4:
        ax = g.whole(1 if v.batched else 0, v.rank)
        y = g.add('Unsqueeze', [v.name, g.ints(g.pick(ax, ax - v.rank - 1))])
        g.put(y, (*v.shape[:ax], 1, *v.shape[ax:]), v.batched, v.scale)


@op(1)
def expand(g):
    v = g.take(lambda v: 1 in [v.shape[a] for a in v.axes()] and small(v))
    if v:
        to = [g.whole(2, 3) if d == 1 and i in v.axes() else d for i, d in enumerate(v.shape)]
        if int(np.prod(to)) <= SMALL:
            y = g.add('Expand', [v.name, g.ints(*[1 if v.batched and i == 0 else d for i, d in enumerate(to)])])
            g.put(y, to, v.batched, v.scale)


@op(1)
def expand_as(g):
    """A parameter or a constant in the shape of a value, which the graph asks for."""
    v = g.take(small)
    if v:
        shape = g.add('Shape', [v.name])
        if g.chance(0.6):
            y = g.add('Expand', [g.param([1 if i == 0 and v.batched else d for i, d in enumerate(v.shape)]), shape])
        else:
            y = g.add('Mul', [g.add('ConstantOfShape', [shape], value=helper.make_tensor('v', 1, [1], [0.5])), v.name])
        g.put(y, v.shape, v.batched)


@op(1)
def tile(g):
    v = g.take(lambda v: int(np.prod(v.shape)) <= 150)
    if v:
        r = [g.whole(1, 2) if a in v.axes() else 1 for a in range(v.rank)]
        g.put(g.add('Tile', [v.name, g.ints(*r)]), [a * b for a, b in zip(r, v.shape)], v.batched, v.scale)


@op(1)
def pick_rows(g):
    """Gather with constant indices along an axis that is not the batch."""
    v = g.take(lambda v: v.axes() and small(v))
    if v:
        ax = g.pick(*v.axes())
        ids = g.rng.integers(-v.shape[ax], v.shape[ax], g.whole(1, 4)).astype('i8')
        y = g.add('Gather', [v.name, g.const(ids)], axis=ax)
        g.put(y, [len(ids) if i == ax else d for i, d in enumerate(v.shape)], v.batched, v.scale)


@op(1)
def lookup(g):
    """One more table read by an input of whole numbers that the graph has."""
    ids = [i for i in g.ins if i[2] == 'i8']
    if ids:
        name, shape, _, rows = g.pick(*ids)
        d = g.whole(1, 6)
        g.put(g.add('Gather', [g.param((rows, d)), name], axis=0), (BATCH, *shape, d), True)


@op(0.7)
def running_sum(g):
    v = g.take(lambda v: v.axes())
    if v:
        ax = g.pick(*v.axes())
        at = {'reverse': int(g.chance()), 'exclusive': int(g.chance(0.3))}
        y = g.add('CumSum', [v.name, g.const(np.array(ax, 'i8'))], **at)
        g.put(y, v.shape, v.batched, v.scale * v.shape[ax] ** 0.5)


@op(0.7)
def top(g):
    """The largest along an axis, and what lies at their places in another value."""
    v = g.take(lambda v: v.axes() and small(v))
    if not v:
        return
    ax = g.pick(*v.axes())
    k = g.whole(1, v.shape[ax])
    y, at = g.add('TopK', [v.name, g.ints(k)], nout=2, axis=ax)
    shape = [k if i == ax else d for i, d in enumerate(v.shape)]
    if g.chance():
        g.put(y, shape, v.batched, v.scale)
    else:
        w = g.take(lambda w: w.shape == v.shape)
        g.put(g.add('GatherElements', [w.name, at], axis=ax), shape, v.batched or w.batched, w.scale)


@op(0.7)
def triangle(g):
    v = g.take(lambda v: v.rank >= (3 if v.batched else 2)) if g.opset >= 14 else None
    if v:
        y = g.add('Trilu', [v.name, g.const(np.array(g.whole(-1, 1), 'i8'))], upper=int(g.chance()))
        g.put(y, v.shape, v.batched, v.scale)


@op(0.7)
def scatter(g):
    """Parameters written or added into rows of a value that has no batch."""
    v = g.take(lambda v: v.rank == 2 and not v.batched)
    if v:
        k = g.whole(1, v.shape[0])
        ids = g.const(g.rng.permutation(v.shape[0])[:k, None].astype('i8'))
        at = {'reduction': 'add'} if g.opset >= 16 and g.chance() else {}
        y = g.add('ScatterND', [v.name, ids, g.param((k, v.shape[1]))], **at)
        g.put(y, v.shape, False, v.scale + 1)


@op(0.7)
def einsum(g):
    v = g.take(lambda v: v.rank == 3)
    if v:
        m = g.whole(1, 5)
        y = g.add('Einsum', [v.name, g.weight((m, v.shape[2]), v.shape[2])], equation='btc,mc->bmt')
        g.put(y, (v.shape[0], m, v.shape[1]), v.batched, 1.5 * v.scale)


@op(1)
def dropout(g):
    v = g.take()
    g.put(g.add('Dropout', [v.name, g.f(0.0), g.const(np.array(True))]), v.shape, v.batched, v.scale)


@op(0.5)
def recurrent(g):
    """LSTM or GRU over [batch, T, C], time first inside."""
    v = g.take(lambda v: v.rank == 3 and v.batched and v.shape[1] <= 6)
    if not v:
        return
    n, t, c = v.shape
    h, kind = g.whole(1, 4), g.pick('LSTM', 'GRU')
    rows = h * (4 if kind == 'LSTM' else 3)
    x = g.add('Transpose', [v.name], perm=[1, 0, 2])
    xs = [x, g.weight((1, rows, c), c), g.weight((1, rows, h), h)]
    if g.chance(0.7):
        xs.append(g.param((1, 2 * rows), 0.5))
    y, last = g.add(kind, xs, nout=2, hidden_size=h)
    if g.chance():
        g.put(g.add('Squeeze', [last, g.ints(0)]), (n, h), True)
    else:
        g.put(g.add('Transpose', [g.add('Squeeze', [y, g.ints(1)])], perm=[1, 0, 2]), (n, t, h), True)


# ---- from parameters alone ----
@op(1.5)
def made_weight(g):
    """A value without a batch: a product of parameters, or one parameter bent."""
    a, b = g.whole(1, 5), g.whole(1, 5)
    if g.chance():
        k = g.whole(1, 4)
        y = g.add('MatMul', [g.weight((a, k), k), g.weight((k, b), k)])
    else:
        y = g.add(g.pick('Tanh', 'Sin', 'Softplus'), [g.param((a, b))])
    g.put(y, (a, b), False)


@op(2)
def by_made_weight(g):
    """A value of the batch times a matrix that the graph makes."""
    w = g.take(lambda w: w.rank == 2 and not w.batched)
    v = w and g.take(lambda v: v.batched and v.rank >= 2 and v.shape[-1] == w.shape[0])
    if v:
        g.put(g.add('MatMul', [v.name, w.name]), (*v.shape[:-1], w.shape[1]), True, 1.5 * v.scale)
