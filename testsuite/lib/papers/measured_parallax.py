"""Parallax (2018), what runs measured: Figures 11 to 13 and T(p). results: what measure_parallax.EXPERIMENTS recorded."""
import math

import measure_parallax as M
import measure_words as words
import numpy as np
import parallax
from core import Cell, Missing, Table

FITTED = parallax.FITTED
SAID11 = {'lm': {'TF-PS': 47.43, 'Horovod': 47.05, 'Parallax': 47.39}, 'cnn': {'TF-PS': 23.85, 'Horovod': 23.88, 'Parallax': 24.03}}
FIGURE13 = {'lm': {'TF-PS': 3.4, 'Horovod': 1.3, 'Parallax': 9.4}, 'dense': {'TF-PS': 30.2, 'Horovod': 39.5, 'Parallax': 39.8}}
NAMES = {'lm': 'LM', 'dense': 'ResNet-50'}
NEAR = {'TF-PS': 0.20, 'Horovod': 0.15, 'Parallax': 0.15}       # of the simulator
LEARNT, SAME = 1.15, 0.01                                       # of the floor; of each other
PICKED = 0.10


def taken(results, name, keys):
    """The values of these runs."""
    have = results.get(name, {})
    lacking = [k for k in keys if k not in have]
    if lacking:
        raise Missing('%s: %d runs are not recorded, %s among them' % (name, len(lacking), lacking[0]))
    return {k: have[k] for k in keys}


def learnt(results, name):
    """{mode: its curve}."""
    runs = taken(results, 'parallax-convergence', ['%s/%s' % (name, m) for m in M.MODES])
    return {m: runs['%s/%s' % (name, m)]['curve'] for m in M.MODES}


def measured_figure11b(p, results):
    """Perplexity: the same whatever the way of the gradients."""
    curves = {m: [(s, math.exp(x)) for s, x, _ in c] for m, c in learnt(results, 'lm').items()}
    floor, plain = words.Process().floor()
    end, said = {m: c[-1][1] for m, c in curves.items()}, SAID11['lm']
    cells = [Cell('LM', m + ' / Parallax, perplexity', said[m] / said['Parallax'], end[m] / end['Parallax'], '%.4f', SAME)
             for m in ('TF-PS', 'Horovod')]
    t = Table('parallax-measured-figure11b', 'Parallax, Figure 11(b), measured: perplexity of a language model',
              'An LSTM over %d made-up words (a process of %d classes, whose perplexity is %.1f; by frequencies alone %.0f), %d steps of %d '
              'sequences on %d devices, sequences never seen before; the same first weights for all.' % (words.WORDS, words.CLASSES, floor,
              plain, curves['Parallax'][-1][0], M.WORKERS * M.LEARNT['lm'][3], M.WORKERS), cells,
              recorded=['parallax-convergence'], picture=('steps', 'perplexity', {'ours, ' + m: c for m, c in curves.items()}, 'log'),
              notes=['At the end %s; the paper, of another model and other words, after 5 epochs %s.' % (
                  ', '.join('%s %.2f' % x for x in end.items()), ', '.join('%s %.2f' % x for x in said.items()))])
    t.check('perplexity ends within %.2f times the floor, in each way' % LEARNT, all(floor * 0.97 < x <= LEARNT * floor for x in end.values()))
    t.check('it falls from point to point, but for 1 %', all(b[1] < 1.01 * a[1] for c in curves.values() for a, b in zip(c, c[1:])))
    return t


def measured_figure11a(p, results):
    """Top-1 accuracy likewise."""
    curves = {m: [(s, 100 * (1 - x)) for s, _, x in c] for m, c in learnt(results, 'cnn').items()}
    end, said = {m: c[-1][1] for m, c in curves.items()}, SAID11['cnn']
    cells = [Cell('CNN', m + ' / Parallax, images recognised', (100 - said[m]) / (100 - said['Parallax']),
                  (100 - end[m]) / (100 - end['Parallax']), '%.4f', SAME) for m in ('TF-PS', 'Horovod')]
    t = Table('parallax-measured-figure11a', 'Parallax, Figure 11(a), measured: top-1 error of a convolutional net',
              'A residual net of seven convolutions with BatchNormalization on 20,000 images of Fashion-MNIST, %d steps of %d, on %d devices; '
              '10,000 other images.' % (curves['Parallax'][-1][0], M.WORKERS * M.LEARNT['cnn'][3], M.WORKERS), cells,
              recorded=['parallax-convergence'], picture=('steps', 'top-1 error %', {'ours, ' + m: c for m, c in curves.items()}, 'log'),
              notes=['Errors at the end: %s %%; the paper, of ResNet-50 on ImageNet, %s.' % (
                  ', '.join('%s %.2f' % x for x in end.items()), ', '.join('%s %.2f' % x for x in said.items()))])
    t.check('the error is below 15 % at the end, in each way', all(x < 15 for x in end.values()))
    return t


# ---- Figures 12 and 13 ----

class Steps:
    """Seconds of steps and bytes: measured where hosts were run, and by the simulator."""

    def __init__(self, p, results):
        keys = ['%s/%s/%d' % (n, m, h) for n in NAMES for m in M.MODES for h in M.HOSTS]
        self.runs = taken(results, 'parallax-scaling', keys)
        self.nets = {n: M.net(p, n) for n in NAMES}

    def run(self, name, mode, hosts):
        return self.runs['%s/%s/%d' % (name, mode, hosts)]

    def said(self, name, mode, hosts):
        n = self.nets[name]
        return n.predicted(hosts, n.how(mode))

    def times(self, name, mode, hosts, simulated=False):
        """Throughput over one GPU."""
        s = self.said(name, mode, hosts)[0] if simulated or hosts not in M.HOSTS else self.run(name, mode, hosts)['step_s']
        return M.DEVICES * hosts * self.nets[name].seconds / s

    def faster(self, name, than, hosts, simulated=False):
        return self.times(name, 'Parallax', hosts, simulated) / self.times(name, than, hosts, simulated)


def measured_figure12(p, results):
    """What was measured beside the simulator."""
    s = Steps(p, results)
    cells, curves = [], {}
    for n, name in NAMES.items():
        for h in M.HOSTS:
            for m in M.MODES:
                said, ours = s.said(n, m, h), s.run(n, m, h)
                cells.append(Cell('%s, %d GPUs' % (name, h * M.DEVICES), m + ' ms', 1e3 * said[0], 1e3 * ours['step_s'], '%.0f', NEAR[m], 0.1))
                if h == M.HOSTS[-1]:
                    cells.append(Cell('%s, %d GPUs' % (name, h * M.DEVICES), m + ' MB', said[1] / 1e6, ours['bytes'] / 1e6, '%.2f', 0.15))
    for m in M.MODES:
        curves[m + ', measured'] = [(h * M.DEVICES, s.times('lm', m, h)) for h in M.HOSTS]
        curves[m + ', simulated'] = [(h * M.DEVICES, s.times('lm', m, h, True)) for h in (*M.HOSTS, *M.FAR)]
    t = Table('parallax-measured-figure12', 'Parallax, Figure 12, measured: steps on 1 to 4 machines beside the simulator',
              'Paper: the simulator. Hosts of %d devices behind links of %.0f Mb/s each way; bytes, of the busiest host each way, and links are a '
              '%dth of the paper\'s, a device computes as long as its GPU. Picture: LM, throughput over one GPU, simulated for 6 and 8 machines.'
              % (M.DEVICES, M.RATE, M.LESS), cells, fitted=[FITTED], recorded=['parallax-scaling'], picture=('GPUs', 'throughput', curves, 'loglog'),
              notes=['TF-PS may differ by %.0f %%: bytes agree, but the simulator has a device begin its next push when the one before has come, '
                     'and in the run it begins when that has left. '
                     'On idle machines the run is the shorter one.' % (100 * NEAR['TF-PS']),
                     'Horovod sends fewer bytes than the simulator counts: a row that one device looks up twice goes once.'])
    for n, name in NAMES.items():
        t.check('%s: with servers for sparse parameters alone no step is longer than in the other ways, from two machines on, but for 10 %%' % name,
                all(s.faster(n, m, h) >= 0.90 for m in ('TF-PS', 'Horovod') for h in M.HOSTS[1:]))
    t.check('LM: measured, Parallax is 2.0 to 3.2 times as fast as TF-PS and 3 to 6 times as Horovod on 24 GPUs',
            2.0 <= s.faster('lm', 'TF-PS', 4) <= 3.2 and 3 <= s.faster('lm', 'Horovod', 4) <= 6)
    return t


def measured_figure13(p, results):
    """The paper's ratios, on 36 and 48 GPUs by simulation."""
    s = Steps(p, results)
    cells = [Cell('LM, 36 GPUs', m + ' / Parallax, time of 5 epochs', x, s.faster('lm', m, 6)) for m, x in (('TF-PS', 2.8), ('Horovod', 6.3))]
    cells += [Cell('ResNet-50, 48 GPUs', m + ' / Parallax, time of 90 epochs', x, s.faster('dense', m, 8))
              for m, x in (('TF-PS', 1.4), ('Horovod', 1.1))]
    cells += [Cell(NAMES[n] + ', 48 GPUs', m + ' / one GPU', x, s.times(n, m, 8)) for n in NAMES for m, x in FIGURE13[n].items()]
    curves = {'%s, %s' % (NAMES[n], m): [(h * M.DEVICES, s.times(n, m, h)) for h in (*M.HOSTS, *M.FAR)] for n in NAMES for m in M.MODES}
    t = Table('parallax-measured-figure13', 'Parallax, Figure 13 and section 7.2: throughput over one GPU, measured to 24 GPUs',
              'Measured on 6 to 24 GPUs, simulated on 36 and 48, for which the paper has numbers.', cells, fitted=[FITTED],
              recorded=['parallax-scaling'], picture=('GPUs', 'throughput over one GPU', curves, 'loglog'))
    t.check('LM on 24 GPUs, measured: Parallax before TF-PS before Horovod', s.faster('lm', 'TF-PS', 4) > 1.5 and
            s.faster('lm', 'Horovod', 4) > 1.2 * s.faster('lm', 'TF-PS', 4))
    t.check('ResNet-50 on 24 GPUs, measured: Parallax as Horovod, within 10 %, before TF-PS', abs(s.faster('dense', 'Horovod', 4) - 1) <= 0.10 and
            s.faster('dense', 'TF-PS', 4) > 1.2)
    return t


# ---- T(p) ----

def share(pieces, servers):
    """What the fullest server has of a table in so many pieces."""
    return -(-pieces // servers) / pieces


def measured_partitions(p, results):
    """A table in so many pieces on four servers."""
    runs = taken(results, 'parallax-partitions', [str(k) for k in (*M.PIECES, 'auto')])
    ms = {k: 1e3 * runs[str(k)]['step_s'] for k in (*M.PIECES, 'auto')}
    at = np.array([[share(k, 4), k - 1, 1] for k in M.PIECES])
    fit = np.linalg.lstsq(at, np.array([ms[k] for k in M.PIECES]), rcond=None)[0]
    line = {k: float(x @ fit) for k, x in zip(M.PIECES, at)}
    big = M.net(p, 'table')
    said = {k: 1e3 * big.predicted(4, big.how(k), M.PIECES_DEVICES)[0] for k in M.PIECES}
    best = min(ms[k] for k in M.PIECES)
    plain = np.array([[1 / k, k - 1, 1] for k in M.PIECES])
    plain = plain @ np.linalg.lstsq(plain, np.array([ms[k] for k in M.PIECES]), rcond=None)[0]
    apart = max(abs(x / ms[k] - 1) for k, x in zip(M.PIECES, plain))
    cells = [Cell('%d pieces' % k, 'ms', line[k], ms[k], '%.1f', 0.15) for k in M.PIECES]
    t = Table('parallax-measured-partitions', 'Parallax\'s search for the pieces of a table: T(p), measured',
              'Four hosts of %d devices and a server; one table of %d MB, of which a device looks up %d rows in a step; nothing is computed. '
              'Paper: b s(p) + a (p - 1) + c, fitted to the measured steps, s the share of the fullest server, 1 / p up to four.'
              % (M.PIECES_DEVICES, big.rows * big.width * 4 / 1e6, big.looked), cells,
              recorded=['parallax-partitions'], picture=('pieces', 'ms', {'measured': [(k, ms[k]) for k in M.PIECES], 'fit': list(line.items()), 'simulated':
                                        list(said.items())}, 'log'),
              notes=['b = %.1f ms, a = %.2f ms, c = %.1f ms; --partitions auto takes %.1f ms, the best number %.1f.' % (*fit, ms['auto'], best),
                     'With b / p throughout, as the formula is printed, the fit is up to %.0f %% away from what was measured.' % (100 * apart),
                     'From four pieces on the simulator has all ports full all of the time, and %.1f ms for %.1f.' % (said[4], ms[4])])
    t.check('--partitions auto is within %.0f %% of the best number' % (100 * PICKED), ms['auto'] <= best * (1 + PICKED))
    t.check('one piece takes at least 1.5 times as long as the best number', ms[1] >= 1.5 * best)
    t.check('each piece costs something, and 128 are worse than the best number', fit[1] > 0 and ms[128] > 1.1 * best)
    return t


TABLES = [measured_figure11b, measured_figure11a, measured_figure12, measured_figure13, measured_partitions]
