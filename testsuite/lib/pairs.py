"""A covering array: few rows of factors in which every two values of two factors meet. All rows there are get looked at, so
that a pair is left out only where no valid row holds it."""
import itertools
import numpy as np


def pairs_of(factors):
    names = list(factors)
    return {(a, x, b, y) for a, b in itertools.combinations(names, 2) for x in factors[a] for y in factors[b]}


def cover(factors, valid, seed):
    """(rows that are valid, rows that are not, pairs that no valid row holds). Every pair that some valid row can hold is in
    one; the others are in rows that are not valid. valid(row): bool."""
    names = list(factors)
    every = np.array(list(itertools.product(*(range(len(factors[n])) for n in names))), np.int16)
    np.random.default_rng(seed).shuffle(every)
    row_of = lambda v: {n: factors[n][i] for n, i in zip(names, v)}
    runs = np.array([bool(valid(row_of(v))) for v in every])
    # a number for every pair, by row and couple of columns
    couples, first = list(itertools.combinations(range(len(names)), 2)), 0
    number = np.empty((len(every), len(couples)), np.int32)
    of_number = []
    for k, (a, b) in enumerate(couples):
        width = len(factors[names[b]])
        number[:, k] = first + every[:, a].astype(np.int32) * width + every[:, b]
        of_number += [(names[a], x, names[b], y) for x in factors[names[a]] for y in factors[names[b]]]
        first = len(of_number)
    possible = np.zeros(first, bool)
    possible[number[runs].ravel()] = True
    good = greedy(number[runs], possible)
    bad = greedy(number[~runs], ~possible)
    return ([row_of(v) for v in every[runs][good]], [row_of(v) for v in every[~runs][bad]],
            {p for p, some in zip(of_number, possible) if not some})


def greedy(number, wanted):
    """Indices of rows that hold all wanted pairs: always the first row with the most that are left."""
    left, out = wanted.copy(), []
    while left.any():
        out.append(int(left[number].sum(axis=1, dtype=np.int8).argmax()))
        left[number[out[-1]]] = False
    return out
