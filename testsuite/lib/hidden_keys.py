"""Attention whose rows see few keys or none, in f32 kernels of CPUs and GPUs, against numpy in f64.

Numbers are small multiples of 1/4, so that scores are exact in f32, also beside a fill, and what is left is the kernels' own error.
"""
import os
import numpy as np
import onnx
import opcases
from cases import Program, gradient
from pdcctest import Failed

H, D, E = 2, 4, 3               # heads, columns of a key, of a value
FILLS = -1e4, -1e9, float(np.finfo('f4').min), -np.inf
LOSSLESS = 2                    # rows from here on go into the loss
BOUND = 2e-5
# name -> (queries, keys, what hides, fill, shift of rows' scores)
NETS = {f'{form}_{n}': (9, 70, form, fill, {}) for form in ('where', 'bias') for n, fill in enumerate(FILLS)}
# later keys hidden by a score that rows 3 and 40 are near, and 20, 66 far below; fewer queries than keys, and more
NETS.update({f'causal_{n}': (tq, tk, 'causal', -1024., {3: -1024., 20: -4096., 40: -1024., 66: -2048.})
             for n, (tq, tk) in enumerate(((70, 70), (69, 130), (130, 69)))})
NETS['causal_deep'] = 70, 70, 'causal', -1e4, {3: -1e4 - 16, 66: -2e4}


def net(name):
    """The case, its operands, which keys each row sees, its fill."""
    tq, tk, form, fill, shifts = NETS[name]
    c = opcases.Case(np.random.default_rng([7, *name.encode()]))
    dims = {'q': (H, tq, D), 'k': (H, tk, D), 'v': (H, tk, E)}
    x = {s: c.rng.integers(-4, 5, dim).astype('f4') / 4 for s, dim in dims.items()}
    x['q'][..., -1], x['k'][..., -1] = 0, 1
    for row, shift in shifts.items():
        x['q'][0, row, -1] = 2 * shift
    seen = c.rng.random((tq, tk)) < .4
    seen[1], seen[5], seen[6] = False, True, np.arange(tk) == 3
    seen[4] &= np.isinf(fill)
    if form == 'causal':
        seen = np.tril(np.ones((tq, tk), bool))
    for s in x:
        c.param(dims[s], name=s)
        c.params[s] = x[s]
    s = c.add('Mul', [c.add('MatMul', ['q', c.add('Transpose', ['k'], perm=[0, 2, 1])]), c.const(np.float32(.5))])
    if form == 'bias':
        s = c.add('Add', [s, c.const(np.where(seen, 0, fill).astype('f4'))])
    else:
        s = c.add('Where', [c.const(seen), s, c.const(np.float32(fill))])
    y = c.add('MatMul', [c.add('Softmax', [s], axis=-1), 'v'])
    if np.isinf(fill):              # row 1 is no number, and so would the loss be
        y = c.add('Slice', [y, *(c.const(np.array([n])) for n in (LOSSLESS, tq, 1))])
    c.out = [y]
    return c, x, seen


def reference(name, x, seen):
    """Gradients of q, k, v in f64."""
    tq, tk, form, fill, _ = NETS[name]
    q, k, v = (x[s].astype('f8') for s in 'qkv')
    z = q @ k.transpose(0, 2, 1) / 2
    z = (z.astype('f4') + np.where(seen, 0, fill).astype('f4')).astype('f8') if form == 'bias' else np.where(seen, z, np.float32(fill))
    with np.errstate(invalid='ignore', over='ignore'):
        p = np.exp(z - z.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        y = p @ v
        dy = 2 * y + np.float32(.7)
        if np.isinf(fill):
            dy[:, :LOSSLESS] = 0
        dp = dy @ v.transpose(0, 2, 1)
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) / 2
        if form != 'bias':
            ds = np.where(seen, ds, 0)
        return {'q': ds @ k, 'k': ds.transpose(0, 2, 1) @ q, 'v': p.transpose(0, 2, 1) @ dy}


def check(tmp, targets=('c', 'cuda')):
    want, operands = {}, {}
    with open(f'{tmp}/hidden', 'w') as f:
        for name in NETS:
            c, x, seen = net(name)
            onnx.save(opcases.finish('Attention', 0, c, c.params, c.out), f'{tmp}/{name}.onnx')
            f.write(f'{name} {tmp}/{name}.onnx grad\n')
            want[name], operands[name] = reference(name, x, seen), x
    for target in targets:
        prog, worst = Program(tmp, f'{tmp}/hidden', False, target), 0
        if prog.skip:
            raise Failed(f'hidden keys: {prog.skip}')
        text = ''.join(open(f'{prog.dir}/{f}').read() for f in sorted(os.listdir(prog.dir)) if f.startswith('cases_'))
        if text.count('_filled') < 4 or 'softmax_' in text:
            raise Failed(f'{target}: not all of it is attention, or later keys with a fill go as a mask')
        for name, got in zip(NETS, prog.run([(n, operands[n]) for n in NETS])):
            for s, w in want[name].items():
                g = gradient(got, s)
                off = np.abs(np.where(np.isnan(w), 0, g - w)).max() / np.nanmax(np.abs(w), initial=1)
                if (np.isnan(g) != np.isnan(w)).any() or not off <= BOUND:
                    raise Failed(f'{target}, {name}: the gradient of {s} differs by {off:.1e}, {np.isnan(g).sum()} are no numbers, '
                                 f'{np.isnan(w).sum()} should be none')
                worst = max(worst, off)
        print(f'ok {len(NETS)} nets with hidden keys, {target}: gradients {worst:.1e}')
