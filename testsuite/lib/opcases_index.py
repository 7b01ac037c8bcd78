"""Cases of opcases.py for what reads and writes through indices."""
import numpy as np
from opcases import THROUGH, gen

THROUGH.update({'GatherElementsGrad': 'GatherElements', 'GatherNDGrad': 'GatherND'})


def indices(c, ids):
    """Constant indices, or ones that only run time knows."""
    if c.chance():
        return c.const(ids)
    x = c.param((1,))           # one weight hides the value: its sign, times zero
    none = c.add('Cast', [c.add('Mul', [c.add('Sign', [x]), c.const(np.zeros(1, 'f4'))])], to=7)
    return c.add('Add', [c.const(ids), none])


def behind_conv(c, x, s):
    """x, or a convolution of it: there the channels lie last."""
    if len(s) < 3 or c.chance(0.6):
        return x
    return c.add('Conv', [x, c.param((s[1], s[1]) + (1,) * (len(s) - 2))])


def elements(c, unique):
    """Data shape, axis, indices: along the axis of any length, along the others of at most the data's."""
    s = c.shape(lo=2)
    ax = int(c.rng.integers(len(s)))
    k = s[ax]
    n = int(c.rng.integers(1, k + 1)) if unique else int(c.rng.integers(1, 2 * k + 1))
    t = [n if i == ax else d if c.chance(0.7) else int(c.rng.integers(1, d + 1)) for i, d in enumerate(s)]
    ids = np.zeros(t, 'i8')
    for at in np.ndindex(*[d for i, d in enumerate(t) if i != ax]):
        row = c.rng.permutation(k)[:n] if unique else c.rng.integers(0, k, n)
        ids[at[:ax] + (slice(None),) + at[ax:]] = row
    if c.chance():
        ids -= np.where(c.rng.random(t) < 0.5, k, 0)
    return s, ax, ids


@gen('GatherElements')
def gather_elements(c, op):
    s, ax, ids = elements(c, False)
    c.out = [c.add(op, [behind_conv(c, c.param(s), s), indices(c, ids)], axis=ax - (len(s) if c.chance() else 0))]


def apart(c, *shapes):
    """Parameters whose values all differ by more than central differences need, none near 0."""
    total = sum(int(np.prod(s)) for s in shapes)
    v = np.split(c.rng.permutation(total) / total + 0.5, np.cumsum([int(np.prod(s)) for s in shapes])[:-1])
    names = [c.param(s) for s in shapes]
    for name, x, s in zip(names, v, shapes):
        c.params[name] = x.astype('f4').reshape(s)
    return names


def reduction(c):
    r = c.pick('none', 'none', 'add', 'add', 'mul', 'max', 'min')
    c.opset = 18 if r in ('max', 'min') else 17
    return r


@gen('ScatterElements')
def scatter_elements(c, op):
    r = reduction(c)
    s, ax, ids = elements(c, r == 'none')
    x, u = apart(c, s, ids.shape)
    if r in ('none', 'add'):
        x, u = behind_conv(c, x, s), behind_conv(c, u, ids.shape)
    c.out = [c.add(op, [x, indices(c, ids), u], axis=ax - (len(s) if c.chance() else 0), reduction=r)]


def blocks(c, batch, unique):
    """Data shape and indices of ..ND ops."""
    s = c.shape(rank=c.pick(2, 3, 4), lo=2, hi=4)
    b = int(c.rng.integers(0, len(s))) if batch else 0
    q = int(c.rng.integers(1, len(s) - b + 1))
    table = int(np.prod(s[b:b + q]))
    n = int(c.rng.integers(1, table + 1)) if unique else int(c.rng.integers(1, 2 * table + 1))
    outer = int(np.prod(s[:b]))
    rows = np.stack([c.rng.permutation(table)[:n] if unique else c.rng.integers(0, table, n) for _ in range(outer)])
    ids = np.stack(np.unravel_index(rows, s[b:b + q]), axis=-1)
    if c.chance():
        ids = ids - np.where(c.rng.random(ids.shape) < 0.5, np.array(s[b:b + q]), 0)
    return s, b, q, ids.reshape(*s[:b], *((n, 1) if c.chance(0.2) else (n,)), q).astype('i8')


@gen('GatherND')
def gather_nd(c, op):
    s, b, q, ids = blocks(c, True, False)
    c.out = [c.add(op, [behind_conv(c, c.param(s), s), indices(c, ids)], batch_dims=b)]


@gen('ScatterND')
def scatter_nd(c, op):
    r = reduction(c)
    s, b, q, ids = blocks(c, False, r == 'none')
    x, u = apart(c, s, ids.shape[:-1] + s[q:])
    c.out = [c.add(op, [x, indices(c, ids), u], reduction=r)]


@gen('TopK')
def top_k(c, op):
    s = c.shape(lo=2, hi=9)
    ax = int(c.rng.integers(len(s)))
    k = int(c.rng.integers(1, s[ax] + 1))
    y, _ = c.add(op, [apart(c, s)[0], c.const(np.array([k], 'i8'))], nout=2, axis=ax - (len(s) if c.chance() else 0),
                 largest=int(c.chance()))
    c.out = [y]


@gen('CumSum')
def cumsum(c, op):
    s = c.shape(hi=7)
    ax = int(c.rng.integers(-len(s), len(s)))
    x = behind_conv(c, c.param(s), s)
    c.out = [c.add(op, [x, c.const(np.array(ax, 'i8'))], exclusive=int(c.chance()), reverse=int(c.chance()))]


@gen('ReverseSequence')
def reverse_sequence(c, op):
    s = c.shape(rank=c.pick(2, 3), lo=2)
    t = c.pick(0, 1)
    lens = c.rng.integers(0, s[t] + 1, s[1 - t])
    c.out = [c.add(op, [c.param(s), c.const(lens)], time_axis=t, batch_axis=1 - t)]


@gen('DepthToSpace', 'SpaceToDepth')
def blocks_of_space(c, op):
    b, s = c.pick(2, 3), c.shape(rank=4, hi=2)
    if op == 'DepthToSpace':
        c.out = [c.add(op, [c.param((s[0], s[1] * b * b, s[2], s[3]))], blocksize=b, mode=c.pick('DCR', 'CRD'))]
    else:
        c.out = [c.add(op, [c.param((s[0], s[1], s[2] * b, s[3] * b))], blocksize=b)]


@gen('Compress')
def compress(c, op):
    s = c.shape(lo=2)
    ax = int(c.rng.integers(len(s)))
    take = c.rng.random(s[ax]) < 0.6
    take[0] = True
    c.out = [c.add(op, [c.param(s), c.const(take)], axis=ax)]
