"""A covering array: few rows of factors in which every two values of two factors meet."""
import itertools, random


def pairs_of(factors):
    names = list(factors)
    return {(a, x, b, y) for a, b in itertools.combinations(names, 2) for x in factors[a] for y in factors[b]}


def met(row, names):
    return {(a, row[a], b, row[b]) for a, b in itertools.combinations(names, 2)}


def cover(factors, valid, seed, tries=40):
    """(rows that are valid, rows that are not, pairs that no valid row holds). Every pair that some valid row can hold is in
    one; the others are in rows that are not valid. valid(row): bool."""
    r = random.Random(seed)
    names = list(factors)
    good, bad, left, impossible = [], [], pairs_of(factors), set()

    def candidate(pair, rest, want_valid):
        """A row with the pair; every other factor as what meets most of the rest, in a random order."""
        a, x, b, y = pair
        row = {a: x, b: y}
        for n in r.sample(names, len(names)):
            if n not in row:
                values = r.sample(factors[n], len(factors[n]))
                gain = {v: sum(((m, row[m], n, v) if names.index(m) < names.index(n) else (n, v, m, row[m])) in rest for m in row)
                        for v in values}
                row[n] = max(values, key=gain.get) if r.random() < .7 else values[0]
        return row if bool(valid(row)) == want_valid else None

    def best(pair, rest, want_valid, n):
        rows = [c for c in (candidate(pair, rest, want_valid) for _ in range(n)) if c]
        return max(rows, key=lambda c: len(met(c, names) & rest)) if rows else None

    while left:
        pair = min(left, key=lambda p: (hash_of(p, seed), str(p)))
        row = best(pair, left, True, tries) or best(pair, left, True, 20 * tries)
        if row is None:
            impossible.add(pair)
            left.discard(pair)
            continue
        good.append(row)
        left -= met(row, names)
    rest = set(impossible)
    while rest:
        pair = min(rest, key=lambda p: (hash_of(p, seed), str(p)))
        row = best(pair, rest, False, tries)
        bad.append(row)
        rest -= met(row, names)
    return good, bad, impossible


def hash_of(pair, seed):
    """An order of pairs that hangs on the seed and not on the process."""
    return random.Random(f'{seed} {pair}').random()
