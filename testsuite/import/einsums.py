"""Einsum against numpy: equations of models and corner cases, and random ones."""
import os, sys
import numpy as np
from onnx import helper
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
import opcases
from bodies import model

FIXED = [
    ('->', [()]), (',->', [(), ()]), ('ij->', [(2, 3)]), ('i', [(3,)]), ('ba', [(2, 3)]), ('ij,jk', [(2, 3), (3, 4)]),
    ('ii', [(3, 3)]), ('ii->i', [(3, 3)]), ('iji->ij', [(2, 3, 2)]), ('iii->i', [(2, 2, 2)]), ('ijij->ji', [(2, 3, 2, 3)]),
    ('i,i->', [(4,), (4,)]), ('i,i->i', [(4,), (4,)]), ('i,j->ij', [(2,), (3,)]), ('i,j->ji', [(2,), (3,)]),
    ('bi,bi->b', [(2, 3), (2, 3)]), ('ib,ib->b', [(2, 3), (2, 3)]), ('ij,kj->ik', [(2, 3), (4, 3)]), ('ji,jk->ki', [(3, 2), (3, 4)]),
    (' i j , j k -> i k ', [(2, 3), (3, 4)]), ('Zz,zA->AZ', [(2, 3), (3, 4)]), ('ibh,hnd->ibnd', [(2, 3, 4), (4, 2, 3)]),
    ('ibnd,jbnd->bnij', [(2, 3, 2, 4), (3, 3, 2, 4)]), ('bnij,jbnd->ibnd', [(3, 2, 2, 4), (4, 3, 2, 3)]),
    ('ibnd,hnd->ibh', [(2, 3, 2, 2), (5, 2, 2)]), ('bhwc,hkc->bhwk', [(2, 3, 4, 2), (3, 5, 2)]),
    ('...ij,...jk->...ik', [(2, 3, 4), (4, 5)]), ('...ij,...jk->...ik', [(3, 1, 2, 4), (2, 4, 5)]),
    ('...ij,...jk->...ik', [(1, 2, 4), (3, 4, 5)]), ('i...,i...->...', [(2, 3, 1), (2, 1, 4)]), ('...ii->...i', [(2, 3, 3)]),
    ('...,...', [(2, 1), (3,)]), ('...i->...', [(2, 3)]), ('...i->i', [(2, 3)]), ('i...j->j...i', [(2, 3, 4)]), ('...', [(2, 3)]),
    ('i...', [(2, 3)]), ('ij,jk,kl->il', [(2, 3), (3, 2), (2, 4)]), ('a,b,c,d->dbca', [(2,), (3,), (2,), (2,)]),
    ('ab,ac,ad->abcd', [(2, 2), (2, 3), (2, 4)]), ('abc,cd,bd->a', [(2, 3, 2), (2, 4), (3, 4)]), ('ij,j->i', [(2, 3), (3,)]),
    ('i,ij->j', [(2,), (2, 3)]), ('ij,ij->', [(2, 3), (2, 3)]), ('i->', [(1,)]), ('ai,bi,ci->abc', [(2, 3), (3, 3), (1, 3)]),
    ('abcdefgh->hgfedcba', [(1, 2, 1, 2, 1, 2, 1, 2)]), ('abcdefg,abcdefh->abcdefgh', [(1, 2, 1, 2, 1, 1, 2), (1, 2, 1, 2, 1, 1, 3)]),
    ('abcdefgi,abcdefhi->gh', [(1, 2, 1, 2, 1, 1, 2, 2), (1, 2, 1, 2, 1, 1, 3, 2)]),
    ('abcdefg,abcdefgh->h', [(1, 2, 1, 2, 1, 1, 2), (1, 2, 1, 2, 1, 1, 2, 3)]),
    ('abcdefgi,abcdefgi->abcdefg', [(1, 2, 1, 2, 1, 1, 2, 2), (1, 2, 1, 2, 1, 1, 2, 2)]),
    ('aibj,cidj->abcd', [(2, 3, 2, 2), (2, 3, 3, 2)]), ('ij,k->ik', [(2, 3), (4,)]), ('ij,kl->', [(2, 3), (4, 2)]),
]


def reference(eq, xs):
    """numpy's einsum after every ellipsis is written out: it would not sum over one."""
    left, arrow, right = eq.replace(' ', '').partition('->')
    terms, free = left.split(','), 'αβγδεζηθ'
    full = []
    for t, x in zip(terms, xs):
        if '...' in t:
            n = x.ndim - (len(t) - 3)
            at = t.index('...')
            full = list(np.broadcast_shapes(tuple(full), x.shape[at:at + n]))
    used = free[len(free) - len(full):]
    if not arrow:
        right = ('...' if '...' in left else '') + ''.join(sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1))
    names = {}
    number = lambda s: [names.setdefault(c, len(names)) for c in s]
    args = []
    for t, x in zip(terms, xs):
        if '...' in t:
            n, at = x.ndim - (len(t) - 3), t.index('...')
            t = t.replace('...', used[len(used) - n:])
            x = np.broadcast_to(x, x.shape[:at] + tuple(full[len(full) - n:]) + x.shape[at + n:])
        args += [x, number(t)]
    return np.einsum(*args, number(right.replace('...', used)))


def build(eq, shapes, rng):
    xs = [rng.integers(-3, 4, s).astype('f4') for s in shapes]
    names = [f'x{i}' for i in range(len(xs))]
    return model([helper.make_node('Einsum', names, ['y'], name='e', equation=eq)], dict(zip(names, xs)),
                 {'y': np.asarray(reference(eq, xs), 'f4')}, opset=12)


def cases(count):
    rng = np.random.default_rng(12)
    for i, (eq, shapes) in enumerate(FIXED):
        yield f'einsum_{i}', build(eq, shapes, rng)
    for i in range(count):
        c = opcases.Case(np.random.default_rng([7, i]))
        terms, out, shapes = opcases.einsum_random(c)
        eq = ','.join(''.join(t) for t in terms) + ('' if out is None else '->' + ''.join(out))
        yield f'einsum_random_{i}', build(eq, shapes, rng)
