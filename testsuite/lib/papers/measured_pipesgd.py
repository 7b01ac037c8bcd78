"""Pipe-SGD's section 4 and its rates, from recorded runs (measure_pipesgd.py): accuracies, parts of a step, regret over steps."""
import math
from statistics import mean

import pipesgd
from core import Cell, Missing, Table
from measure_pipesgd import RATIOS, REGRETS, SEEDS, SUMS, TRAIN

# Figure 4; the order of pipesgd.VARIANTS. The large nets ran without Q where there is None.
ACCURACY = {'MNIST-MLP': ('MNIST-MLP', (.9833, .9833, .9834, .9830, .9834, .9836, .9833)),
            'CIFAR100-CNN': ('AlexNet; here CIFAR100-CNN', (.5697, .5697, .5655, .5710, .5683, .5698, .5646)),
            'CIFAR100-Convex': ('CIFAR100-Convex', (.4793, .4793, .4793, None, .4793, .4797, None))}
LEARNT = {'MNIST-MLP': 80, 'CIFAR100-CNN': 50, 'CIFAR100-Convex': 40}          # per cent that every variant knows at least
SAME = {'MNIST-MLP': 0.005, 'CIFAR100-CNN': 0.02, 'CIFAR100-Convex': 0.003}
STEP, PART = 0.15, 0.10


def accuracy(p, results):
    runs, cells, lowest = results.get('pipesgd-accuracy', {}), [], {}
    if len(runs) < len(ACCURACY) * len(pipesgd.VARIANTS) * SEEDS:
        raise Missing('not measured to its end: testsuite/papers --measure --only pipesgd-accuracy')
    for name, (row, paper) in ACCURACY.items():
        ours = {v: mean(runs['%s/%s/%d' % (name, v, i)][-1][1] for i in range(SEEDS)) for v in pipesgd.VARIANTS}
        lowest[name] = min(ours.values())
        cells += [Cell(row, v + ' / D-Sync', None if said is None else said / paper[1], ours[v] / ours['D-Sync'], '%.4f', SAME[name])
                  for v, said in zip(pipesgd.VARIANTS, paper) if v != 'D-Sync']
        cells.append(Cell(row, 'D-Sync top-1 %', None, ours['D-Sync'], '%.1f'))
    curves = {v: [(s, mean(runs['CIFAR100-CNN/%s/%d' % (v, i)][k][1] for i in range(SEEDS))) for k, (s, _) in
                  enumerate(runs['CIFAR100-CNN/%s/0' % v])] for v in pipesgd.VARIANTS}
    t = Table('pipesgd-accuracy', 'Pipe-SGD, Figure 4: accuracies of seven variants, measured',
              'Top-1 accuracy after as many steps, in relation to D-Sync\'s. Here: Fashion-MNIST in place of MNIST; pictures like '
              'CIFAR-100\'s, and its small net for AlexNet too, which is synchronous for its first fifth; means of %d seeds, %s steps of 100 '
              'samples, far from the paper\'s convergence. Picture: the small net.' % (SEEDS, ', '.join(str(n) for n in TRAIN.values())), cells,
              picture=('steps', 'top-1, %', curves, 'log'), recorded=['pipesgd-accuracy'],
              missing=['ResNet-18, and ImageNet: neither trains on a few cores'])
    for name, least in LEARNT.items():
        t.check('%s: every variant knows %d %%' % (name, least), lowest[name] >= least)
    return t


def breakdown(p, results):
    runs, cells, bars = results.get('pipesgd-breakdown', {}), [], {v: [] for v in pipesgd.VARIANTS}
    if len(runs) < len(RATIOS) * len(pipesgd.VARIANTS):
        raise Missing('not measured to its end: testsuite/papers --measure --only pipesgd-breakdown')
    adds, computes, notes = [], [], []
    for name, ratio in RATIOS.items():
        for v, (_, less) in pipesgd.VARIANTS.items():
            r = runs['%s/%s' % (name, v)]
            sent = (2 * pipesgd.WORKERS if v == 'PS-Sync' else 2 * (pipesgd.WORKERS - 1) / pipesgd.WORKERS) / less / 1.5
            want = max(ratio, sent) if 'Pipe' in v else ratio + sent
            cells.append(Cell(name, v, want, r['step'] / r['exchange'], '%.3g', STEP))
            bars[v].append((name, r['step'] / r['exchange'] / (1 + ratio)))
            parts = r['spent']
            adds.append(sum(parts[k] for k in ('compute', 'compress', 'communicate')) / r['step'])
            computes.append(parts['compute'] / r['compute'])
            notes.append('%s, %s: computing %.1f, packing %.1f, waiting %.1f ms' % (name, v, *(1e3 * parts[k] for k in ('compute', 'compress', 'communicate'))))
    t = Table('pipesgd-breakdown', 'Pipe-SGD: equations (2) and (5) on shaped links, measured',
              'A step over a ring\'s exchange: by the equations, without their constants, and measured on five hosts; four networks are four '
              'ratios of computing to exchange. Picture: steps over the model\'s D-Sync.', cells, notes=notes, picture=('', 'step / D-Sync', bars, 'bars'),
              recorded=['pipesgd-breakdown'])
    t.check('computing, packing and waiting add up to a step, within 10 %%: %.3f to %.3f' % (min(adds), max(adds)),
            all(abs(a - 1) <= PART for a in adds))
    t.check('computing takes what it should, within 10 %%: %.3f to %.3f' % (min(computes), max(computes)), all(abs(c - 1) <= PART for c in computes))
    for name, ratio in RATIOS.items():
        try:
            net = pipesgd.Net(p, name)
        except Missing:             # no published times on this machine: the ratio is taken as it was measured
            continue
        want = net.seconds / net.exchange('D-Sync')
        t.check('%s computes %.3g times as long as its exchange (%.3g)' % (name, ratio, want), abs(ratio / want - 1) < 0.01)
    return t


def slope(curve):
    """Of the mean regret over steps, both as logarithms, behind the first octave."""
    return math.log(curve[-1] / curve[1]) / math.log(REGRETS[-1] / REGRETS[1])


def growth(curve):
    """Regret that the last three octaves add over what the three before add: 1 where it grows as log T, 2.8 as its root, 8 as T."""
    total = [t * r for t, r in zip(REGRETS, curve)]
    return (total[6] - total[3]) / (total[3] - total[0])


def judged(runs):
    """(what must hold, does it) of regret curves {kind/K: curve}."""
    for K in SUMS:
        yield 'K = %d, rate 1/sqrt(t): regret falls as T to the %.2f; -0.5 is proven' % (K, slope(runs['sqrt/%d' % K])), \
            abs(slope(runs['sqrt/%d' % K]) + 0.5) <= 0.05
        yield 'K = %d, rate 1/t, strongly convex: octaves add %.2f times what the ones before did; log T: 1' % (K, growth(runs['inverse/%d' % K])), \
            0.7 <= growth(runs['inverse/%d' % K]) <= 1.5
        yield 'K = %d, a constant rate: regret stays (T to the %.2f)' % (K, slope(runs['constant/%d' % K])), abs(slope(runs['constant/%d' % K])) <= 0.05
    for kind in ('sqrt', 'inverse'):
        last = [runs['%s/%d' % (kind, K)][-1] for K in SUMS]
        yield '%s: older gradients cost more, at most the root of K: %s' % (kind, ', '.join('%.4f' % v for v in last)), \
            all(a < b <= a * math.sqrt(K) for a, b, K in zip(last, last[1:], (2, 2)))


def rates(p, results):
    runs = results.get('pipesgd-rates', {})
    if len(runs) < 9:
        raise Missing('not measured to its end: testsuite/papers --measure --only pipesgd-rates')
    cells = [Cell('K = %d' % K, 'convex: T to the', -0.5, slope(runs['sqrt/%d' % K]), '%.2f') for K in SUMS]
    cells += [Cell('K = %d' % K, 'strongly convex: growth by octaves', 1.0, growth(runs['inverse/%d' % K]), '%.2f', 0.5) for K in SUMS]
    curves = {'1/sqrt(t)': 'sqrt', '1/t': 'inverse', 'constant': 'constant'}
    t = Table('pipesgd-rates', 'Pipe-SGD, section 3.3: convergence with stochastic gradients, measured',
              'Mean regret of least squares, every sample seen once: the theorem has sqrt(K / T) for rates as 1/sqrt(t), and log T / T for '
              'strongly convex problems with 1/t. Rates that stay are the control.', cells,
              picture=('steps', 'mean regret, K = 2', {n: list(zip(REGRETS, runs[k + '/2'])) for n, k in curves.items()}, 'loglog'),
              recorded=['pipesgd-rates'])
    for what, holds in judged(runs):
        t.check(what, holds)
    return t


TABLES = [accuracy, breakdown, rates]
