"""Pipe-SGD (2018): its timing model and the ratios of section 4, four workers and a server on 10 Gb/s.

A net stands for its bytes and its computing time: a chain of products with as many parameters, simulated with a device whose FLOP/s give
that time; big ones at a sixteenth of the bytes on links of a sixteenth of the speed. AlexNet's and ResNet-18's times are PipeDream's
published ones of a V100, at 64 images, times XP, the two GPUs' peaks (15.7 and 12.1 TFLOP/s). Nobody published times of the two small
nets on that GPU: 1 ms is assumed, which their timing model does not mind, and they are left out of the paper's ratios. Nothing is fitted."""
import hashlib
import os

import nets
from core import Cell, Table, layers, path

WORKERS, LATENCY, WIRE = 4, 50e-6, 1.25e9
XP = 15.7 / 12.1
# parameters, divided by, seconds (or a published profile and its batch)
NETS = {'MNIST-MLP': ((784, 500, 500, 10), 1, 1e-3), 'CIFAR100-Convex': ((64, 100), 1, 1e-3),
        'AlexNet': ((1954, 1954, 10), 16, ('alexnet', 256)), 'ResNet-18': ((854, 854, 10), 16, ('resnet18', 256))}
PS = ['--comm', 'ps', '--servers', '1']
VARIANTS = {'PS-Sync': (PS, 1), 'D-Sync': ([], 1), 'D-Sync+T': (['--compress', 'trunc16'], 2), 'D-Sync+Q': (['--compress', 'q8'], 4),
            'Pipe-SGD': (['--pipe-sgd', '2'], 1), 'Pipe-SGD+T': (['--pipe-sgd', '2', '--compress', 'trunc16'], 2),
            'Pipe-SGD+Q': (['--pipe-sgd', '2', '--compress', 'q8'], 4)}


def cluster(p, rate, flops):
    text = ('device_types:\n  xp: {backend: c, fp32: %.9g MFLOP/s, mem_bandwidth: 100000 GB/s, memory: 12 GB}\nnodes:\n'
            '  - {host: "w[1-4]", devices: [{type: xp, count: 1}], roles: [worker]}\n  - {host: s, devices: 1, roles: [server]}\n'
            'network: {bandwidth: %.9g Gb/s, latency: 50 us}\n' % (flops / 1e6, 8 * rate / 1e9))
    f = os.path.join(p.folder, 'c%s.yaml' % hashlib.sha1(text.encode()).hexdigest()[:8])
    with open(f, 'w') as out:
        out.write(text)
    return f


class Net:
    def __init__(self, p, name):
        widths, self.less, seconds = NETS[name]
        if not isinstance(seconds, float):
            nodes, _ = layers(path('pipedream/profiler/image_classification/profiles/%s/graph.txt' % seconds[0]))
            seconds = sum(n[2] + n[3] for n in nodes if not n[1].startswith('Input')) / 1e3 * 64 / seconds[1] * XP
        self.p, self.seconds, self.model = p, seconds, os.path.join(p.folder, name + '.onnx')
        nets.mlp(self.model, widths)
        self.bytes = 4 * sum(a * b + b for a, b in zip(widths, widths[1:]))
        # what a step computes is a + b / FLOP/s
        fast, slow = (self.simulate([], f)['pipeline_s'] for f in (1e13, 1e8))
        b = (slow - fast) / (1 / 1e8 - 1 / 1e13)
        self.flops = b / (seconds - (fast - b / 1e13))

    def simulate(self, more, flops=None):
        return self.p.ask('simulate', self.model, '--cluster', cluster(self.p, WIRE / self.less, flops or self.flops), '--plan', WORKERS,
                          '--micro-batch', '64', '--global-batch', 64 * WORKERS, '--bucket', 'none', '--allreduce', 'ring', '--profile',
                          'estimate', '--json', '-q', *more)

    def exchange(self, variant):
        """Equation (5) without its sums and waits; the server's: every worker's gradient in, every worker's weights out."""
        n = self.bytes * self.less / VARIANTS[variant][1] / WIRE
        if variant == 'PS-Sync':
            return 2 * (WORKERS * n + LATENCY)
        return 2 * (WORKERS - 1) * LATENCY + 2 * (WORKERS - 1) / WORKERS * n

    def model_s(self, variant):
        c = self.exchange(variant)
        return max(self.seconds, c) if 'Pipe' in variant else self.seconds + c


def timing(p):
    """Equations (2) and (5) beside the simulator."""
    cells, bars = [], {v: [] for v in VARIANTS}
    for name in NETS:
        net = Net(p, name)
        for v, (flags, _) in VARIANTS.items():
            ours = net.simulate(flags)['step_s']
            bars[v].append((name, ours / net.model_s('D-Sync')))
            cells.append(Cell(name, v + ' ms', 1e3 * net.model_s(v), 1e3 * ours, '%.3g'))
    return Table('pipesgd-timing', 'Pipe-SGD: its timing model, four networks, seven variants, 10 Gb/s',
                 'Paper: computing + exchange, or with Pipe-SGD the larger of the two, by equation (5) without the sums\' and waits\' '
                 'constants, which the paper does not tell. Picture: times of a step over the model\'s D-Sync.', cells,
                 picture=('', 'step / D-Sync', bars, 'bars'))


def ratios(p):
    """Section 4: speedups of the best Pipe-SGD, bytes of a server against a ring."""
    over = {'D-Sync': [], 'PS-Sync': []}
    spared = []
    for name in ('AlexNet', 'ResNet-18'):
        net = Net(p, name)
        step = {v: net.simulate(f)['step_s'] for v, (f, _) in VARIANTS.items()}
        best = min(step[v] for v in VARIANTS if 'Pipe' in v)
        for k in over:
            over[k].append(step[k] / best)
        spared.append(100 * (1 - (step['D-Sync'] - net.seconds) / (step['PS-Sync'] - net.seconds)))
    row = 'AlexNet and ResNet-18'
    return Table('pipesgd-ratios', 'Pipe-SGD, section 4: how much faster',
                 'Ratios of steps, simulated; the paper has the least and the most of its four networks.',
                 [Cell(row, 'D-Sync / best Pipe-SGD, least', 2.0, min(over['D-Sync'])),
                  Cell(row, 'D-Sync / best Pipe-SGD, most', 3.2, max(over['D-Sync'])),
                  Cell(row, 'PS-Sync / best Pipe-SGD, least', 4.0, min(over['PS-Sync'])),
                  Cell(row, 'PS-Sync / best Pipe-SGD, most', 5.4, max(over['PS-Sync'])),
                  Cell(row, 'exchange spared by the ring %', 50, sum(spared) / 2, '%.0f')],
                 missing=['MNIST-MLP and CIFAR100-Convex: no times of them are published'])


TABLES = [timing, ratios]
