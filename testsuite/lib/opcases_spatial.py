"""Cases of opcases.py for normalisations, transposed convolution, resizing and attention."""
import numpy as np
from opcases import gen, spatial


def image(c, lo=1, hi=4, channels=None, nd=None):
    return (c.pick(1, 2, 3), channels or c.pick(1, 2, 3, 4), *c.shape(rank=nd or c.pick(1, 2, 2, 3), lo=lo, hi=hi))


@gen('RMSNormalization')
def rms_norm(c, op):
    s = c.shape(lo=2)
    ax = int(c.rng.integers(len(s)))
    w = s[ax:]
    if c.chance(0.3):
        w = c.pick((1,), tuple(1 if c.chance() else d for d in w), w[-1:])
    c.out = [c.add(op, [c.param(s), c.param(w)], axis=ax - (len(s) if c.chance() else 0), epsilon=0.1)]


@gen('LRN')
def lrn(c, op):
    at = {'alpha': 0.5, 'beta': c.pick(0.75, 0.5, 1.0, 1.3)} if c.chance(0.8) else {}
    s = image(c, channels=c.pick(1, 2, 5, 9))
    x = c.param(s)
    if c.chance(0.4):           # behind a convolution the channels lie last
        x = c.add('Conv', [x, c.param((6, s[1]) + (1,) * (len(s) - 2))])
    c.out = [c.add(op, [x], size=c.pick(1, 2, 3, 5, 20), **at)]


@gen('LayerNormalization')
def layernorm(c, op):
    """Its statistics too, and scales that broadcast."""
    s = c.shape(lo=2)
    ax = int(c.rng.integers(len(s)))
    w = s[ax:] if c.chance(0.7) else tuple(1 if c.chance() else d for d in s[ax:])
    xs = [c.param(s), c.param(w)] + ([c.param(w if c.chance(0.7) else (1,))] if c.chance(0.8) else [])
    y = c.add(op, xs, nout=3, axis=ax - (len(s) if c.chance() else 0), epsilon=0.1)
    c.out = y if c.chance(0.3) else y[:1]


@gen('InstanceNormalization')
def instance_norm(c, op):
    s = image(c, lo=2)
    c.out = [c.add(op, [c.param(s), c.param(s[1:2]), c.param(s[1:2])], epsilon=0.1)]


@gen('GroupNormalization')
def group_norm(c, op):
    g = c.pick(1, 2, 3)
    s = image(c, lo=2, channels=g * c.pick(1, 2))
    c.opset = c.pick(18, 21)
    w = (g if c.opset < 21 else s[1],)
    c.out = [c.add(op, [c.param(s), c.param(w), c.param(w)], num_groups=g, epsilon=0.1)]


@gen('MeanVarianceNormalization')
def mvn(c, op):
    s = c.shape(rank=c.pick(3, 4), lo=2)
    if len(s) == 4 and c.chance():
        at = {}
    else:
        at = {'axes': sorted(int(a) for a in c.rng.permutation(len(s))[:c.pick(1, 2)])}
    c.out = [c.add(op, [c.param(s, gap=0.01)], **at)]


@gen('LpNormalization')
def lp_norm(c, op):
    s = c.shape(lo=2)
    c.out = [c.add(op, [c.param(s, gap=0.05)], p=c.pick(1, 2), axis=int(c.rng.integers(-len(s), len(s))))]


@gen('LpPool')
def lp_pool(c, op):
    nd = c.pick(1, 2, 2, 3)
    k, st, dl, p, size = spatial(c, nd)
    size = [max(s, (b - 1) * d + 1) for s, b, d in zip(size, k, dl)]
    p = [min(a, b // 2) for a, b in zip(p, k + k)]
    c.opset = 18
    at = {'ceil_mode': 1} if c.chance(0.3) else {}
    c.out = [c.add(op, [c.param((c.pick(1, 2), c.pick(1, 3), *size), gap=0.05)], kernel_shape=k, strides=st, pads=p,
                   dilations=dl, p=c.pick(1, 2, 3), **at)]


@gen('GlobalLpPool')
def global_lp_pool(c, op):
    c.out = [c.add(op, [c.param(image(c), gap=0.05)], p=c.pick(1, 2, 3))]


@gen('ReduceL1', 'ReduceLogSum', 'ReduceLogSumExp', 'ReduceSumSquare')
def reduce_made(c, op):
    s = c.shape()
    some = c.rng.permutation(len(s))[:int(c.rng.integers(1, len(s) + 1))]
    axes = [int(a) - (len(s) if c.chance() else 0) for a in some]
    at = {'axes': axes} if c.chance(0.8) else {}
    c.out = [c.add(op, [c.param(s, 0.3, 2, gap=0.01)], keepdims=int(c.chance()), **at)]


@gen('ConvTranspose')
def conv_transpose(c, op):
    nd = c.pick(1, 2, 2, 3)
    k, st, dl, p, _ = spatial(c, nd)
    st = [c.pick(1, 2, 3) for _ in st]
    eff = [(a - 1) * d + 1 for a, d in zip(k, dl)]
    size = [int(c.rng.integers(1, 5)) for _ in k]
    extra = [int(c.rng.integers(0, max(s, d))) for s, d in zip(st, dl)] if c.chance() else [0] * nd
    p = [min(a, e - 1) for a, e in zip(p, eff + eff)]
    full = [s * (n - 1) + e + x for s, n, e, x in zip(st, size, eff, extra)]
    p = [a if f - p[i % nd] - p[nd + i % nd] > 0 else 0 for i, (a, f) in enumerate(zip(p, full + full))]
    at = {'pads': p}
    if c.chance(0.3):
        at = {'output_shape': [int(max(1, f + c.rng.integers(-2, 2))) for f in full]}
    elif c.chance(0.2):
        at = {'auto_pad': c.pick('SAME_UPPER', 'SAME_LOWER')}
    if any(extra):
        at['output_padding'] = extra
    g = c.pick(1, 1, 2, 3)
    ci, co, n = c.pick(1, 2, 3) * g, c.pick(1, 2, 4), c.pick(1, 2, 3)
    xs = [c.param((n, ci, *size)), c.param((ci, co, *k))] + ([c.param((co * g,))] if c.chance() else [])
    c.out = [c.add(op, xs, kernel_shape=k, strides=st, dilations=dl, group=g, **at)]


@gen('ResizeAxis', 'Resize')
def resize(c, op):
    s = image(c, nd=c.pick(1, 2, 2, 3))
    c.opset = c.pick(13, 18, 19)
    mode = c.pick('nearest', 'linear', 'linear', 'cubic')
    coord = c.pick('half_pixel', 'pytorch_half_pixel', 'align_corners', 'asymmetric', 'tf_crop_and_resize',
                   *(['half_pixel_symmetric'] if c.opset > 18 else []))
    at = {'mode': mode, 'coordinate_transformation_mode': coord}
    if mode == 'nearest':
        at['nearest_mode'] = c.pick('round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil')
    elif c.opset > 13 and c.chance(0.3):
        at['antialias'] = 1
    if mode == 'cubic' and c.chance(0.3):
        at['exclude_outside'] = 1
    if coord == 'tf_crop_and_resize' and c.chance():
        at['extrapolation_value'] = 1.5
    x = c.param(s)
    if c.chance(0.4):           # behind a convolution the channels lie last
        s = (s[0], 5) + s[2:]
        x = c.add('Conv', [x, c.param((5, c.params['p0'].shape[1]) + (1,) * (len(s) - 2))])
    axes = list(range(len(s)))
    if c.opset > 13 and c.chance():
        axes = [int(a) for a in c.rng.permutation(axes)[:c.pick(1, 2)]]
        at['axes'] = axes
    free = [a >= 2 or c.chance(0.2) for a in axes]
    roi = [float(c.rng.uniform(-0.2, 0.4)) for _ in axes] + [float(c.rng.uniform(0.6, 1.2)) for _ in axes]
    ins = [x, c.const(np.array(roi, 'f4')) if coord == 'tf_crop_and_resize' else '']
    if c.chance():
        scales = [c.pick(0.5, 0.6, 1.5, 2.0, 2.7) if f else 1.0 for f in free]
        scales = [max(k, 1.0 / s[a] + 1e-3) for k, a in zip(scales, axes)]
        ins.append(c.const(np.array(scales, 'f4')))
    else:
        ins += ['', c.const(np.array([c.pick(1, 2, 3, 5, 8) if f else s[a] for f, a in zip(free, axes)], 'i8'))]
    c.out = [c.add('Resize', ins, **at)]


@gen('Upsample')
def upsample(c, op):
    s = image(c)
    c.opset = 9
    scales = [1.0, 1.0] + [c.pick(1.0, 1.5, 2.0, 3.0) for _ in s[2:]]
    c.out = [c.add(op, [c.param(s), c.const(np.array(scales, 'f4'))], mode=c.pick('nearest', 'linear'))]


@gen('RotaryEmbedding')
def rotary(c, op):
    c.opset = 23
    n, h, t, d = c.pick(1, 2), c.pick(1, 3), c.pick(1, 4), c.pick(2, 4, 8)
    part = c.pick(0, 2)
    half = (part or d) // 2
    angle = c.rng.uniform(0, 6, (7, half) if c.chance() else (n, t, half)).astype('f4')
    ins = [c.param((n, h, t, d)), c.const(np.cos(angle)), c.const(np.sin(angle))]
    if angle.ndim == 2:
        ins.append(c.const(c.rng.integers(0, 7, (n, t))))
    at = {'interleaved': int(c.chance())}
    if part:
        at['rotary_embedding_dim'] = part
    if c.chance():
        x = c.add('Transpose', [ins[0]], perm=[0, 2, 1, 3])
        ins[0] = c.add('Reshape', [x, c.const(np.array([n, t, -1], 'i8'))])
        at['num_heads'] = h
    c.out = [c.add(op, ins, **at)]


@gen('Attention')
def attention(c, op):
    c.opset = 23
    n, kv, g, s = c.pick(1, 2), c.pick(1, 2), c.pick(1, 3), c.pick(1, 3)
    t, d, dv = c.pick(1, 4), c.pick(1, 4), c.pick(2, 3)
    flat, past, at = c.chance(), c.pick(0, 0, 2), {}
    shapes = [(n, kv * g, s, d), (n, kv, t, d), (n, kv, t, dv)]
    if flat:
        shapes = [(a, l, h * k) for a, h, l, k in shapes]
        at.update(q_num_heads=kv * g, kv_num_heads=kv)
    ins = [c.param(x) for x in shapes]
    if c.chance():
        at['is_causal'] = 1
    mask = c.pick(None, 'bool', 'float', 'float')
    full = c.pick((s, t + past), (n, 1, s, t + past), (n, kv * g, s, t + past))
    if mask == 'bool':
        keep = c.rng.random(full) < 0.7
        keep[..., 0] = True
        ins.append(c.const(keep))
    elif mask:
        ins.append(c.param(full))
    if past:
        ins += [''] * (4 - len(ins)) + [c.param((n, kv, past, d)), c.param((n, kv, past, dv))]
    if c.chance(0.3):
        at['softcap'] = 1.5
    if c.chance(0.3):
        at['scale'] = 0.3
    if past and c.chance():
        c.out = c.add(op, ins, nout=3, **at)
    else:
        c.out = [c.add(op, ins, **at)]


@gen('MaxUnpool')
def max_unpool(c, op):
    nd = c.pick(1, 2, 2, 3)
    k = [c.pick(1, 2, 3) for _ in range(nd)]
    st = [a + c.pick(0, 0, 1) for a in k]       # where windows overlap, equal indices would share a place
    s = (c.pick(1, 2), c.pick(1, 2), *[(int(c.rng.integers(1, 4)) - 1) * b + a for a, b in zip(k, st)])
    y, i = c.add('MaxPool', [c.param(s, gap=1e-3)], nout=2, kernel_shape=k, strides=st)
    at = [y, i] + ([c.const(np.array(list(s[:2]) + [d + c.pick(0, 2) for d in s[2:]], 'i8'))] if c.chance(0.4) else [])
    c.out = [c.add(op, at, kernel_shape=k, strides=st)]
