#!/usr/bin/env python3
"""Writes the small profiles beside it and brute.json, the best plans of them by trying every plan there is.

Usage: testsuite/data/planner/make.py   (the files are committed; the same bytes each time)
Nothing of pdcc is used: states, costs and plans are written down here once more, from the papers' formulas and from the
notes on the published programs (passes/planner/planner.h, dapple.h name both). The file has the form of the golden answers
that testsuite/planner reads, with the section `dapple_equations` beside theirs.
"""
import itertools
import json
import math
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
CHAINS, DAGS, UNIT = 6, 6, 3e7         # UNIT: bytes; 16 GB per device are too few now and then


# ---- profiles and states ----

def profile(r, n, dag):
    """Layers (forward ms, backward ms, activation bytes, parameter bytes) and edges; the first layer feeds all."""
    layers = [(r.randint(1, 40), r.randint(1, 80), r.randint(1, 60) * UNIT,
               r.choice([0, 0, r.randint(1, 20), r.randint(50, 400)]) * UNIT) for _ in range(n)]
    edges = [(r.randrange(i) if dag else i - 1, i) for i in range(1, n)]
    for i in range(2, n):
        if dag and r.random() < 0.4:
            edges.append((r.randrange(i), i))
    return layers, sorted(set(edges))


def write(path, layers, edges):
    with open(path, 'w') as f:
        for i, (fwd, bwd, act, params) in enumerate(layers):
            f.write('n%d -- Layer(%d) -- forward_compute_time=%.3f, backward_compute_time=%.3f, activation_size=%.3f, '
                    'parameter_size=%.3f\n' % (i, i, fwd, bwd, act, params))
        for a, b in edges:
            f.write('\tn%d -- n%d\n' % (a, b))


class States:
    """All antichains of a graph with one source, in an order that respects inclusion of what is up to them."""

    def __init__(self, layers, edges):
        n = len(layers)
        self.layers = layers
        out = [[b for a, b in edges if a == i] for i in range(n)]
        self.above = [set() for _ in range(n)]
        for a, b in sorted(edges, key=lambda e: e[1]):
            self.above[b] |= self.above[a] | {a}
        anti = [c for k in range(1, n + 1) for c in itertools.combinations(range(n), k)
                if not any(x in self.above[y] or y in self.above[x] for x in c for y in c if x != y)]
        under = {c: frozenset(c).union(*(self.above[x] for x in c)) for c in anti}
        anti.sort(key=lambda c: (len(under[c]), c))
        self.under = [under[c] for c in anti]
        self.cut = []
        for c in anti:              # a layer above one of the cut's, read by what is not above that one
            late = {u for v in c for u in self.above[v] for w in out[u] if w != v and w not in self.above[v]}
            self.cut.append(sorted(set(c) | late))
        self.n = len(anti)

    def sums(self, j):
        """Seconds, activation bytes, bytes across the cut, parameter bytes up to state j."""
        up = self.under[j]
        return (math.fsum(self.layers[u][0] + self.layers[u][1] for u in up) / 1000,
                math.fsum(self.layers[u][2] for u in up), math.fsum(self.layers[u][2] for u in self.cut[j]),
                math.fsum(self.layers[u][3] for u in up))

    def forward(self, j):
        return math.fsum(self.layers[u][0] for u in self.under[j]) / 1000

    def before(self, k, j):
        return k < 0 or self.under[k] < self.under[j]

    def record(self, file):
        s = [self.sums(j) for j in range(self.n)]
        return {'file': file, 'num_states': self.n, 'states': [
            [['n%d' % u for u in self.cut[j]], s[j][0], s[j][1], s[j][2], s[j][3],
             j + 1 < self.n and self.before(j, j + 1)] for j in range(self.n)],
            'total_order': all(self.before(j, j + 1) for j in range(self.n - 1))}


def splits(st, first, last):
    """Every chain of states that ends with `last`, from behind state `first`."""
    yield [last]
    for k in range(first + 1, last):
        if (first < 0 or st.before(first, k)) and st.before(k, last):
            for head in splits(st, first, k):
                yield head + [last]


def shares(machines, n, fewer):
    """Replicas of n stages: all that use `machines`, or with `fewer` at most so many."""
    for r in itertools.product(range(1, machines + 1), repeat=n):
        if sum(r) == machines or fewer and sum(r) < machines:
            yield r


# ---- PipeDream ----

def span(st, k, j):
    a, b = (st.sums(k) if k >= 0 else (0, 0, 0, 0)), st.sums(j)
    return b[0] - a[0], b[1] - a[1], b[3] - a[3]


def stage_cost(st, cost, mode, k, j, r, left, only, B, inner, time):
    """One stage (k, j] on r machines with `left` behind it; only: the first of its plan. None: does not fit."""
    t, act, w = span(st, k, j)
    t = time(k, j) if time else t
    if mode == 'mem16_act1' and math.ceil(left / r) * (act + w) > 16e9:
        return None
    sync = 4 * (r - 1) * w / (B * r)
    if cost in ('paper', 'text'):
        seconds = max(t, sync if cost == 'paper' else 2 * (r - 1) * w / B) / r
        return seconds if only else max(seconds, 2 * st.sums(k)[2] / B)
    seconds = (t + (sync / inner if only else sync)) / r
    if not only and mode != 'default':
        cuts = max(st.sums(k)[2], 0 if j == st.n - 1 else st.sums(j)[2])
        seconds = max(seconds, 2 * cuts / (B * r))
    return seconds


def pipedream(st, cost, mode, machines, B, first=-1, last=None, inner=1, time=None):
    """(seconds, plans) of the best plans of the states behind `first` up to `last`; plans: [(begin, end, replicas)]."""
    last = st.n - 1 if last is None else last
    best, plans = math.inf, []
    for ends in splits(st, first, last):
        for r in shares(machines, len(ends), mode == 'fewer_act1'):
            if 'straight' in mode and max(r) > 1:
                continue
            worst = used = 0
            for i, (k, j) in enumerate(zip([first] + ends, ends)):
                used += r[i]
                c = stage_cost(st, cost, mode, k, j, r[i], machines - used, i == 0, B, inner, time)
                worst = math.inf if c is None else max(worst, c)
            plan = [(k + 1, j + 1, m) for k, j, m in zip([first] + ends, ends, r)]
            if worst < best * (1 - 1e-12):
                best, plans = worst, []
            if worst <= best * (1 + 1e-12) and worst < math.inf:
                plans.append(plan)
    return best, plans


def data_parallel(st, cost, machines, bandwidth):
    t, _, w = span(st, -1, st.n - 1)
    inner = 1
    for m, B in zip(machines, bandwidth):
        sync = 4 * (m - 1) * w / (m * B)
        t = (t + sync / inner if cost == 'sosp' else max(t, sync)) / m
        inner = m
    return t


def flat_record(st, name, mode, m, B):
    seconds, plans = pipedream(st, 'sosp', mode, m, B)
    if not plans:
        return None
    total = st.sums(st.n - 1)[0]
    return {'profile': name, 'all_num_machines': [m], 'network_bandwidths_Bps': [B], 'mode': mode, 'num_states': st.n,
            'single_gpu_s': total, 'pipeline_s': seconds, 'speedup_vs_1': total / seconds,
            'dp_speedup_vs_1': total / data_parallel(st, 'sosp', [m], [B]), 'unique_plan': len(plans) == 1,
            'levels': [{'level': 1, 'groups': [[[*s, span(st, s[0] - 1, s[1] - 1)[0]] for s in plans[0]]]}]}


def two_levels(st, name, mode, m, B):
    """Chains only: a stage of the upper level costs what its best plan on one machine costs."""
    below = {}

    def time(k, j):
        if (k, j) not in below:
            below[k, j] = pipedream(st, 'sosp', mode, m[0], B[0], k, j)
        return below[k, j][0]

    seconds, plans = pipedream(st, 'sosp', mode, m[1], B[1], inner=m[0], time=time)
    total = st.sums(st.n - 1)[0]
    plan = plans[0]
    lower = [below[s[0] - 1, s[1] - 1][1] for s in plan]
    tell = [[[*s, span(st, s[0] - 1, s[1] - 1)[0]] for s in p] for p in (plan, *(x[0] for x in lower))]
    return {'profile': name, 'all_num_machines': m, 'network_bandwidths_Bps': B, 'mode': mode, 'num_states': st.n,
            'single_gpu_s': total, 'pipeline_s': seconds, 'speedup_vs_1': total / seconds,
            'dp_speedup_vs_1': total / data_parallel(st, 'sosp', m, B),
            'unique_plan': len(plans) == 1 and all(len(x) == 1 for x in lower),
            'levels': [{'level': 2, 'groups': tell[:1]}, {'level': 1, 'groups': tell[1:]}]}


def paper_record(st, name, straight, m, B, cost='paper'):
    seconds, plans = pipedream(st, cost, 'straight' if straight else 'default', m, B)
    if not plans:
        return None
    return {'profile': name, 'M': m, 'bandwidth_Bps': B, 'straight': straight, 'num_states': st.n,
            'single_gpu_s': st.sums(st.n - 1)[0], 'pipeline_s': seconds, 'stages': plans[0]}


# ---- DAPPLE, equations (1) to (3) with T_E as corrected ----

def latency(fwd, bwd, ar, m):
    q, between = len(fwd) - 1, 0
    for s in range(len(fwd) - 2, -1, -1):
        if (m - 1) * (fwd[s] + bwd[s]) > (m - 1) * (fwd[q] + bwd[q]) + between:
            q, between = s, 0
        else:
            between += fwd[s] + bwd[s]
    end = max(ar[s] + (sum(bwd[s:q + 1]) if s <= q else -sum(bwd[q + 1:s])) for s in range(len(fwd)))
    return sum(fwd[:q + 1]) + (m - 1) * (fwd[q] + bwd[q]) + end


def allreduce(c, n, w):
    """n: devices per server. A ring over servers, or inside one over as many links as pairs."""
    d = sum(n)
    if d < 2:
        return 0
    ring = 2 * w * (d - 1) / d
    return ring / c['nccl'] if sum(x > 0 for x in n) > 1 else ring / c['nvlink'] / (d // 2)


def transfer(c, a, b, z):
    if sum(x > 0 for x in b) > 1:
        return z / c['nccl']
    home = next(i for i, x in enumerate(b) if x)
    outside = sum(a) - a[home]
    return z * outside / sum(a) / c['p2p'] if outside else z / c['nvlink']


def placements(free, n):
    """Devices of n stages, as counts per server, all of them used."""
    if n == 1:
        yield [tuple(free)]
        return
    for first in itertools.product(*(range(x + 1) for x in free)):
        left = [x - y for x, y in zip(free, first)]
        if sum(first) and sum(left) >= n - 1:
            for rest in placements(left, n - 1):
                yield [first] + rest


def dapple_record(st, name, servers, c, batch, m):
    best, count = math.inf, 0
    part = batch / m                # of a profiled batch of one sample
    for ends in splits(st, -1, st.n - 1):
        for place in placements(servers, len(ends)) if len(ends) <= sum(servers) else ():
            if any(sum(p) > part for p in place):       # a device has one sample at least
                continue
            fwd, bwd, ar = [], [], []
            for i, (k, j) in enumerate(zip([-1] + ends, ends)):
                t, _, w = span(st, k, j)
                f = st.forward(j) - (st.forward(k) if k >= 0 else 0)
                d = sum(place[i])
                if i:
                    move = transfer(c, place[i - 1], place[i], st.sums(k)[2] * part)
                    fwd, bwd, ar = fwd + [move], bwd + [move], ar + [0]
                fwd, bwd, ar = fwd + [f * part / d], bwd + [(t - f) * part / d], ar + [allreduce(c, place[i], w)]
            x = latency(fwd, bwd, ar, m)
            if x < best * (1 - 1e-12):
                best, count = x, 0
            count += x <= best * (1 + 1e-12)
    return {'profile': name, 'servers': servers, 'gbs': batch, 'microbatches': m, **c, 'num_states': st.n, 'latency': best,
            'unique_plan': count == 1}


# ---- the file ----

def main():
    golden = {'about': {'what': 'best plans of small graphs, by trying all of them (make.py)'}, 'profiles': {},
              'pipedream_flat': [], 'pipedream_hierarchical': [], 'paper2018_formula': {'runs': []}, 'sosp_text_formula': {'runs': []},
              'dapple_equations': []}
    for i in range(CHAINS + DAGS):
        dag = i >= CHAINS
        name = '%s%d' % ('dag' if dag else 'chain', i - CHAINS if dag else i)
        r, s = random.Random(name), random.Random(name + ' text')
        layers, edges = profile(r, r.randint(4, 6), dag)
        write(os.path.join(HERE, name + '.txt'), layers, edges)
        st = States(layers, edges)
        golden['profiles'][name] = st.record(name + '.txt')
        for m in (2, 3, 4):
            b = 10 ** r.uniform(9, 12)
            for mode in ('default', 'act1', 'straight_act1', 'fewer_act1', 'mem16_act1'):
                golden['pipedream_flat'].append(flat_record(st, name, mode, m, b))
        for straight in (False, True):
            golden['paper2018_formula']['runs'].append(paper_record(st, name, straight, 4, 10 ** r.uniform(10, 12)))
        for m in (2, 3, 4):
            golden['sosp_text_formula']['runs'].append(paper_record(st, name, False, m, 10 ** s.uniform(10, 12), 'text'))
        for m in ([2, 2], [3, 2], [2, 3]) if not dag else ():
            b = 10 ** r.uniform(10.5, 12)
            golden['pipedream_hierarchical'].append(two_levels(st, name, r.choice(['default', 'act1']), m, [b * 8, b]))
        for servers, m in (([2, 2], 2), ([2, 2], 4), ([3], 4), ([1, 1, 1], 8)):
            c = {'p2p': 3e10, 'nccl': 10 ** r.uniform(10.5, 11.5), 'nvlink': 10 ** r.uniform(11, 12.5)}
            golden['dapple_equations'].append(dapple_record(st, name, servers, c, 4 * m, m))
    golden['pipedream_flat'] = [x for x in golden['pipedream_flat'] if x]
    golden['paper2018_formula']['runs'] = [x for x in golden['paper2018_formula']['runs'] if x]
    with open(os.path.join(HERE, 'brute.json'), 'w') as f:
        f.write('{\n' + ',\n'.join('%s: %s' % (json.dumps(k), json.dumps(v).replace('}, {', '},\n{'))
                                   for k, v in golden.items()) + '\n}\n')


main()
