"""PipeDream (2018): Table 1, Figures 1, 10 to 13, from the layer profiles that its authors published.

The profiles are of PyTorch on a V100 at batch 64 to 256. The paper ran Caffe at 32 images a machine: times and activations are scaled by
the batch; by TITAN for a Titan X, which is what the paper's hours of VGG16 on its two clusters (220 and 100) say of the two GPUs.
Messages between stages go at the wire's speed; gradients at SERVER, the one fitted number, on both clusters: what Caffe's parameter
servers move a second through the hosts' memory. A minibatch of a pipeline that never is flushed takes what each further one takes:
(step of 2 N minibatches - step of N) / N."""
import json

from core import NEAR, Cell, Table, path, scaled

TITAN = 2.2
SERVER = 1.0e9          # fitted: BSP of VGG16 on 8 machines of Cluster A
WIRE = {'A': 3.125e9, 'B': 1.25e9}
FITTED = 'bytes/s of gradients through the parameter servers, both clusters: 1.0e9, so that BSP of VGG16 on 8 machines (A) is 2.35x'
TABLE1 = [('VGG16', 4, 'A', 1.47, '2-1-1', 3.14, 2.13, 90), ('VGG16', 8, 'A', 2.35, '7-1', 7.04, 2.99, 95),
          ('VGG16', 16, 'A', 3.28, '9-5-1-1', 9.86, 3.00, 91), ('VGG16', 8, 'B', 1.36, '7-1', 6.98, 5.12, 95),
          ('Inception-v3', 8, 'A', 7.66, '8', 7.66, 1.00, 0), ('Inception-v3', 8, 'B', 4.74, '7-1', 6.88, 1.45, 47),
          ('S2VT', 4, 'A', 1.10, '2-1-1', 3.34, 3.01, 95)]
NAMES = {'VGG16': 'vgg16', 'Inception-v3': 'inception_v3', 'AlexNet': 'alexnet', 'ResNet-50': 'resnet50'}
BATCH = {'AlexNet': 256, 'ResNet-50': 128}     # the paper has no number: those of the profiles; the others 32


class Net:
    """A profile on a cluster."""

    def __init__(self, p, model, cluster, slower=None):
        golden = json.load(open(path('golden.json')))['profiles'][NAMES[model]]
        self.p, self.wire = p, WIRE[cluster]
        share = BATCH.get(model, 32) / golden['minibatch']
        slow = slower if slower is not None else TITAN if cluster == 'A' else 1.0
        self.more = ['--compress'] if model == 'Inception-v3' else []
        self.states = golden.get('states') or []
        self.batch = share
        source = path(golden['file'])
        self.file = scaled(p, source, time=slow, batch=share, weights=self.wire / SERVER)
        self.plain = scaled(p, source, time=slow, batch=share)
        self.one = self.step(1, '1', 1)

    def step(self, workers, plan, n, schedule='1f1b'):
        return self.p.step(self.file, workers, self.wire, n, plan, schedule, *self.more)

    def bsp(self, m):
        return m * self.one / self.step(m, str(m), m) if m > 1 else 1.0

    def overhead(self, m):
        """Share of data parallelism's time that is not computing."""
        return 100 * (1 - self.bsp(m) / m)

    def rate(self, plan, m):
        """Speedup of a pipeline that never is flushed."""
        counts = [int(x) for x in plan.split('-')]
        if len(counts) == 1:
            return self.bsp(m)
        n = 4 * m
        for c in counts:
            n *= c if n % c else 1
        return n * self.one / (self.step(m, plan, 2 * n) - self.step(m, plan, n))

    def planned(self, m):
        """What the 2018 formula plans."""
        a = self.p.ask('plan-profile', self.plain, '--workers', m, '--bandwidth', self.wire, '--cost', 'paper', '--json', *self.more)
        return '-'.join(str(g[2]) for g in a['levels'][-1]['groups'][0])

    def saved(self, plan, m):
        """Per cent of data parallelism's bytes that the plan spares: 4 (r - 1) / r w for each replica's minibatch, activations and their
        gradients at the cuts, sent and received; the cuts that spare most, as the paper does not tell its own. None without a list
        of cuts."""
        if not self.states:
            return None
        counts, w = [int(x) for x in plan.split('-')], [0.0] + [s[4] for s in self.states]

        def sums(r, first, last):
            return 4 * (r - 1) / r * (w[last] - w[first])

        def least(k, first):
            if k + 1 == len(counts):
                return sums(counts[k], first, len(self.states))
            return min(sums(counts[k], first, end) + 4 * self.batch * self.states[end - 1][3] + least(k + 1, end)
                       for end in range(first + 1, len(self.states) - len(counts) + k + 2))
        return 100 * (1 - least(0, 0) / sums(m, 0, len(self.states)))


def table1(p):
    cells, missing = [], []
    for model, m, cluster, bsp, config, speedup, gain, saved in TABLE1:
        row = '%s %d (%s)' % (model, m, cluster)
        if model not in NAMES:
            missing.append(row + ': no profile of it was ever published')
            continue
        net = Net(p, model, cluster)
        ours, piped = net.bsp(m), net.rate(config, m)
        cells += [Cell(row, 'BSP', bsp, ours, most=0.02 if (m, cluster) == (8, 'A') and model == 'VGG16' else NEAR), Cell(row, 'config', config, net.planned(m)), Cell(row, 'PipeDream', speedup, piped),
                  Cell(row, 'PipeDream / BSP', gain, piped / ours)]
        less = net.saved(config, m)
        if less is not None and saved:
            cells.append(Cell(row, 'bytes saved %', saved, less, '%.0f', 0.05))
    for model, gain in (('AlexNet', 6.78), ('ResNet-50', 1.21)):
        net = Net(p, model, 'B')
        best = max(net.rate('7-1', 8), net.rate('6-1-1', 8), net.bsp(8))
        cells.append(Cell('%s 8 (B)' % model, 'PipeDream / BSP', gain, best / net.bsp(8)))
    return Table('pipedream-table1', 'PipeDream, Table 1: speedups over one machine, plan, bytes saved',
                 'Speedup of synchronous data parallelism and of the paper\'s plan run asynchronously; the plan that the 2018 formula '
                 'gives for the published profile; bytes. AlexNet and ResNet-50: section 5.2, throughput.', cells, fitted=[FITTED],
                 missing=missing + ['time to accuracy: epochs are not simulated, the paper\'s speedups of time to accuracy are held '
                                    'against throughput; of a small net they are measured below'])


def figure1(p):
    """Communication overhead: curves; the text of the paper gives three points."""
    curves = {}
    for model in ('AlexNet', 'VGG16', 'ResNet-50', 'Inception-v3'):
        for gpu, slow in (('Titan X', TITAN), ('V100', 1.0)):
            net = Net(p, model, 'A', slow)
            curves['%s, %s' % (model, gpu)] = [(m, net.overhead(m)) for m in (2, 4, 8, 16, 32)]
    t = Table('pipedream-figure1', 'PipeDream, Figure 1: communication overhead of data parallelism, 25 Gb/s',
              'Share of the time that devices wait for gradients. The figure has no numbers; its text has three, and two claims: more '
              'with more workers, more with faster GPUs.',
              [Cell('VGG16 8 (A)', 'overhead %', 72, curves['VGG16, Titan X'][2][1], '%.0f'),
               Cell('Inception-v3 8 (A)', 'overhead %', 5, curves['Inception-v3, Titan X'][2][1], '%.0f')],
              picture=('machines', 'overhead, %', curves, 'log'), fitted=[FITTED],
              missing=['S2VT 4 (A), 70 %: no profile', 'K80: no time of that GPU is published'])
    net = Net(p, 'Inception-v3', 'A')
    at_wire = p.step(net.plain, 8, net.wire, 8, '8', '1f1b', *net.more)
    t.check('at the wire\'s speed Inception-v3 on 8 (A) waits less than the paper\'s 5 %', at_wire < net.one / 0.95)
    t.check('overhead grows with the workers', all(a[1] <= b[1] + 1e-9 for c in curves.values() for a, b in zip(c, c[1:])))
    t.check('overhead grows with the GPU\'s speed', all(b[1] >= a[1] - 1e-9 for m in NAMES for a, b in
            zip(curves[m + ', Titan X'], curves[m + ', V100'])))
    return t


def figure13(p):
    cells, curves = [], {'model parallelism': [], 'straight': [], 'PipeDream': [], 'BSP': []}
    net = Net(p, 'VGG16', 'A')
    for m, straight, plan, piped, bsp in ((4, 2.56, '2-1-1', 3.14, 1.47), (8, 3.49, '7-1', 7.04, 2.35)):
        line = '-'.join('1' * m)
        row = '%d machines' % m
        ours = (net.one / net.step(m, line, 1), net.rate(line, m), net.rate(plan, m), net.bsp(m))
        for name, v in zip(curves, ours):
            curves[name].append((m, v))
        cells += [Cell(row, 'model parallelism', '< 1', '< 1' if ours[0] < 1 else '%.2f' % ours[0]),
                  Cell(row, 'straight', straight, ours[1]), Cell(row, 'PipeDream', piped, ours[2]), Cell(row, 'BSP', bsp, ours[3])]
    t = Table('pipedream-figure13', 'PipeDream, Figure 13: model parallelism, straight pipelines, PipeDream; VGG16 on Cluster A',
              'Speedup over one machine. Model parallelism: one minibatch in flight.', cells,
              picture=('machines', 'speedup', curves, 'bars'), fitted=[FITTED])
    t.check('model parallelism < straight < PipeDream', all(a[1] < b[1] < c[1] for a, b, c in
            zip(curves['model parallelism'], curves['straight'], curves['PipeDream'])))
    return t


def figures10(p):
    """Figures 10 to 12: hours to accuracy, of which throughput is simulated."""
    a, b, inception = Net(p, 'VGG16', 'A'), Net(p, 'VGG16', 'B'), Net(p, 'Inception-v3', 'A')
    cells = [Cell('VGG16, 8 machines', 'PipeDream\'s hours, A / B', 2.2, a.one / a.rate('7-1', 8) / (b.one / b.rate('7-1', 8))),
             Cell('VGG16', 'PipeDream on 4 / BSP on 16 (A)', 3.14 / 3.28, a.rate('2-1-1', 4) / a.bsp(16)),
             Cell('Inception-v3, 8 (A)', 'PipeDream / BSP', 1.0, inception.rate(inception.planned(8), 8) / inception.bsp(8))]
    curves = {'BSP, A': [(m, a.bsp(m)) for m in (1, 2, 4, 8, 16)], 'BSP, B': [(m, b.bsp(m)) for m in (1, 2, 4, 8, 16)],
              'PipeDream, A': [(1, 1), (4, a.rate('2-1-1', 4)), (8, a.rate('7-1', 8)), (16, a.rate('9-5-1-1', 16))],
              'PipeDream, B': [(1, 1), (4, b.rate('2-1-1', 4)), (8, b.rate('7-1', 8)), (16, b.rate('9-5-1-1', 16))]}
    return Table('pipedream-figures10-12', 'PipeDream, Figures 10 to 12: VGG16 over machines, both clusters',
                 'Speedup over one machine of the same cluster. The figures show accuracy over hours: the next table but one has that of runs.', cells,
                 picture=('machines', 'speedup', curves, 'log'), fitted=[FITTED])


TABLES = [table1, figure1, figures10, figure13]
