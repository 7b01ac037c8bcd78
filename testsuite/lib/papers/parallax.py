"""Parallax (2018): Tables 1, 3 and 4, Figures 12 and 13 by simulation: 1 to 8 machines of 6 Titan Xp.

The language model is the one of testsuite/comm/ablation: a 256th of the paper's, its words drawn as the paper's are; what a GPU computes
is taken from the paper's one GPU. One number is fitted, LINK, so that BASE on 8 machines has the words of Table 4. CNNs: published
profiles of a V100, brought to the paper's one GPU (Table 1 over Figure 13)."""
import importlib.machinery
import importlib.util
import os

import pdcctest as T
from core import Cell, Table, path, scaled

LINK = 3.09e9           # bytes/s; fitted: 101 thousand words of BASE with 48 GPUs
FITTED = 'bytes/s between machines of the Titan Xp cluster: 3.09e9, so that BASE has 101 thousand words (Table 4, LM)'
SAID = {'BASE': 101, '+HYB': 112, '+LA': 251, '+OPAU': 259, '+OPSW': 276, 'AllReduce': 39}
FIGURE13 = {'LM': {'Parallax': 9.4, 'TF-PS': 3.4, 'Horovod': 1.3}}
MACHINES = (1, 2, 4, 6, 8)


def ablation():
    loader = importlib.machinery.SourceFileLoader('ablation', os.path.join(T.HERE, 'comm', 'ablation'))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('ablation', loader))
    loader.exec_module(module)
    return module


class Lm:
    """The paper's LM at a 256th."""

    def __init__(self, p):
        self.p, self.a = p, ablation()
        folder = os.path.join(p.folder, 'words')
        os.makedirs(folder, exist_ok=True)
        self.samples, self.unique, self.data = self.a.lm_words(folder, 96)
        less = self.a.SCALE
        self.model = self.a.language_model(os.path.join(p.folder, 'lm.onnx'), 793000 // less, 512 // less, 1024, 160, 1,
                                           self.a.WORDS // less, self.samples, gates=8)
        self.compute = self.a.WORDS / self.a.ONE_GPU / 1e3
        self.flags = {n: [*x, '--partitions', 'auto'] for n, x, _ in self.a.VARIANTS} | {'AllReduce': ['--comm', 'allreduce']}

    def asked(self, machines, variant, *more):
        file = os.path.join(self.p.folder, 'px%d.yaml' % machines)
        self.a.cluster(file, ['m%d' % i for i in range(machines)], 6, LINK * 8e-6 / self.a.SCALE ** 2, '5 us')
        return self.p.ask('simulate', self.model, '--json', '-q', '--cluster', file, '--plan', 6 * machines, '--microbatches', 1,
                          *self.a.COMMON, *self.data, *self.flags[variant], *more)

    def words(self, machines, variant):
        """Thousand words a second: what all devices exchange, behind what one computes."""
        t = sum(self.asked(machines, variant)['sums_s'].values())
        return 6 * machines * self.a.WORDS / (self.compute + t) / 1e3


def table4(p):
    lm = Lm(p)
    words = {v: lm.words(8, v) for v in SAID}
    cells = [Cell('LM, 48 GPUs', v, SAID[v], words[v], '%.0f', 0.02 if v == 'BASE' else 0.10) for v in SAID]
    cells += [Cell('LM, 48 GPUs', 'elements of the tables, millions', 6.5, lm.unique * 512 * lm.a.SCALE / 1e6, '%.1f'),
              Cell('LM, 48 GPUs', '+OPSW / AllReduce', 276 / 39, words['+OPSW'] / words['AllReduce'])]
    cells += [Cell('LM, 36 GPUs', '+OPSW / BASE', 2.8, lm.words(6, '+OPSW') / lm.words(6, 'BASE')),
              Cell('LM, 36 GPUs', '+OPSW / AllReduce', 6.3, lm.words(6, '+OPSW') / lm.words(6, 'AllReduce'))]
    t = Table('parallax-table4', 'Parallax, Tables 1 and 4: thousand words a second of LM by optimization', 'Each row of variants adds '
              'one to those before. AllReduce: Horovod (Table 1, MPI). 36 GPUs: section 7.2.', cells, fitted=[FITTED],
              picture=('', 'thousand words/s', {'paper': list(SAID.items()), 'ours': list(words.items())}, 'bars'),
              missing=['NMT: no code of the model is published, and nothing here says how often its words come'])
    t.check('each optimization is no loss', all(words[a] <= words[b] * 1.001 for a, b in zip(list(SAID)[:4], list(SAID)[1:5])))
    t.check('servers beat AllReduce for sparse parameters', words['BASE'] > words['AllReduce'])
    return t


def figures12(p):
    lm = Lm(p)
    curves = {n: [(6 * m, lm.words(m, v)) for m in MACHINES] for n, v in (('Parallax', '+OPSW'), ('TF-PS', 'BASE'), ('Horovod', 'AllReduce'))}
    cells = [Cell('LM, 48 GPUs', '%s / one GPU' % n, FIGURE13['LM'][n], curves[n][-1][1] / lm.a.ONE_GPU) for n in curves]
    t = Table('parallax-figures12-13', 'Parallax, Figures 12 and 13: LM on 1 to 8 machines of 6 GPUs', 'Thousand words a second. The '
              'figures have numbers for 48 GPUs only.', cells, picture=('GPUs', 'thousand words/s', curves, 'loglog'), fitted=[FITTED])
    t.check('Parallax is ahead of both on every number of machines above one', all(a[1] >= max(b[1], c[1]) for a, b, c in
            list(zip(*curves.values()))[1:]))
    return t


def cnns(p):
    """ResNet-50 and Inception-v3: images a second with AllReduce, and over one GPU."""
    cells, curves = [], {}
    for model, name, batch, images, over, fix in (('ResNet-50', 'resnet50', 128, 8100, 39.5, []),
                                                  ('Inception-v3', 'inception_v3', 128, 5800, 44.0, ['--compress'])):
        source = path('pipedream/profiler/image_classification/profiles/%s/graph.txt' % name)
        raw = p.step(scaled(p, source), 1, 1e9, 1, '1', '1f1b', *fix) * 64 / batch
        one = 64 / (images / over)
        file = scaled(p, source, time=one / raw, batch=64 / batch)
        curves[model] = [(6 * m, 6 * m * one / p.step(file, '6,%d' % m if m > 1 else 6, '12e9,%g' % LINK if m > 1 else 12e9, 6 * m,
                                                      str(6 * m), '1f1b', *fix)) for m in MACHINES]
        cells.append(Cell(model + ', 48 GPUs', 'AllReduce / one GPU', over, curves[model][-1][1], '%.1f'))
    return Table('parallax-cnns', 'Parallax, Figure 13: ResNet-50 and Inception-v3 with AllReduce', 'Throughput over one GPU; 12 GB/s '
                 'inside a machine.', cells, picture=('GPUs', 'speedup', curves, 'log'), fitted=[FITTED],
                 missing=['TF-PS, 30.2 and 28.4: its servers\' time is not published, only their bytes are'])


def table3(p):
    """Bytes that a GPU sends and receives, halved as the table counts them."""
    import nets
    cells = []
    dense = os.path.join(p.folder, 'dense.onnx')
    nets.mlp(dense, (64, 256, 256, 10))
    b = 4 * (64 * 256 + 256 + 256 * 256 + 256 + 2560 + 10)
    for n in (2, 4, 8):
        file = os.path.join(p.folder, 'flat%d.yaml' % n)
        with open(file, 'w') as f:
            f.write('nodes:\n  - {host: "m[1-%d]", devices: 1}\nnetwork: {bandwidth: 1 Gb/s, latency: 5 us}\n' % n)
        for comm, want, flags in (('PS', 2 * b, ['--comm', 'ps', '--servers', '1']), ('MPI', 2 * (n - 1) * b / n, ['--allreduce', 'ring'])):
            sent = p.ask('simulate', dense, '--json', '-q', '--cluster', file, '--plan', n, '--micro-batch', 1, '--global-batch', n,
                         '--optimizer', 'sgd', '--bucket', 'none', *flags)['sent_bytes']
            mine = sum(sum(v for k, v in x.items() if k not in ('from', 'to')) for x in sent
                       if (1 in (x['from'], x['to']) if comm == 'PS' else x['from'] == 1))
            cells.append(Cell('dense, %d GPUs' % n, comm + ' bytes', want, mine, '%.0f', 0.02))
    lm = Lm(p)
    for m in (2, 8):
        n, counts = 6 * m, {}
        for v in ('AllReduce', 'BASE'):
            sent = lm.asked(m, v, '--allreduce', 'ring')['sent_bytes']
            counts[v] = sum(sum(y for k, y in x.items() if k not in ('from', 'to')) for x in sent if 1 in (x['from'], x['to'])) / 2
        less = lm.a.SCALE
        rows, looked = (k * 4 * (512 // less) for k in (lm.unique, lm.a.WORDS // less + lm.samples))
        whole = 4 * (1024 * 512 // less + 160 * 512 // less + 128 * 512 // less)
        cells += [Cell('LM, %d GPUs' % n, 'MPI bytes', (2 * (n - 1) * looked + 4 * (n - 1) * whole / n) / 2, counts['AllReduce'], '%.0f'),
                  Cell('LM, %d GPUs' % n, 'PS bytes', (2 * rows + 2 * whole) / 2, counts['BASE'], '%.0f')]
    return Table('parallax-table3', 'Parallax, Table 3: bytes of one GPU in a step', 'Paper: the formulas of Table 3, 2b and 2 (N - 1) b / N '
                 'for dense, 2 a b and 2 (N - 1) a b for sparse parameters. With MPI a row that is looked up twice is sent twice; servers get '
                 'it once. LM: a 256th of the paper\'s.', cells)


TABLES = [table3, table4, figures12, cnns]
