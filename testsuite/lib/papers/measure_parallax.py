"""What is run for Parallax's Figures 11 to 13 and for T(p), its search for the number of a table's pieces.

parallax-convergence trains for real, on this machine's devices, with the same seed in three ways: all parameters at servers, nothing
optimized (TF-PS); AllReduce and AllGatherv (Horovod); sparse parameters at servers, dense ones by AllReduce (Parallax).
parallax-scaling and parallax-partitions run on hosts of their own (network namespaces) behind shaped links, computing virtual: a device
sleeps for the time that the paper's GPU takes, messages are real. All bytes are a 256th of the paper's, and so are the links (LINK of
parallax.py, fitted there); times are the paper's. Words have numbers in no order, so that pieces of a table are asked for equally."""
import hashlib
import os
import shutil
import statistics

import measure_words as words
import nets
import netns
import numpy as np
import parallax
import pdcctest as T
import tasks
import virtual
from core import Missing, Pdcc

ABLATION = parallax.ablation()
SERVED = ['--comm', 'ps', '--no-local-agg', '--no-opau', '--no-opsw']
MODES = {'TF-PS': SERVED, 'Horovod': ['--comm', 'allreduce'], 'Parallax': ['--comm', 'hybrid']}
LESS = 256              # of bytes, and of the links' speed
DEVICES, HOSTS, FAR = 6, (1, 2, 3, 4), (6, 8)
RATE = parallax.LINK * 8e-6 / LESS              # Mb/s of a program's bytes
PAYLOAD, BURST = 1448 / 1514, 10000
STEPS, RUNS = 6, 3       # of each the median
WORKERS = 4
PIECES, PIECES_DEVICES = (1, 2, 4, 8, 16, 64, 128), 2


def mark():
    """Of what is made here: files of another version are not taken for today's."""
    files = [__file__, words.__file__, os.path.join(T.HERE, 'comm', 'ablation'), nets.__file__]
    return hashlib.sha1(b''.join(open(f, 'rb').read() for f in files)).hexdigest()[:8]


def kept(file, make):
    """file, made by make() when it is not there."""
    if not os.path.exists(file):
        os.makedirs(os.path.dirname(file), exist_ok=True)
        make()
    return file


# ---- networks whose computing is virtual ----

class Net:
    """A 256th of one of the paper's, and the time of its GPU: what a step computes is a + b / FLOP/s, which is solved for that time."""

    def __init__(self, p, seconds):
        self.p, self.seconds, self.folder = p, seconds, os.path.join(p.folder, 'parallax-%s-%s' % (self.name, mark()))
        self.model = kept(os.path.join(self.folder, 'model.onnx'), self.make)
        file = self.cluster(['one'], 1, 1e8)
        self.flops, ask = 0, ['--cluster', file, '--plan', 1, '--comm', 'allreduce']
        slow, fast = self.simulate(ask)['pipeline_s'], self.simulate([*ask[:1], self.cluster(['one'], 1, 1e13), *ask[2:]])['pipeline_s']
        b = (slow - fast) / (1 / 1e8 - 1 / 1e13)
        self.flops = b / (seconds - (fast - b / 1e13)) if seconds else 1e13

    def cluster(self, hosts, devices, flops):
        file = os.path.join(self.folder, '%s-%d-%d-%.6g.yaml' % (hosts[0], len(hosts), devices, flops))
        with open(file, 'w') as f:
            f.write('device_types:\n  xp: {backend: c, fp32: %.9g MFLOP/s, mem_bandwidth: 100000 GB/s, memory: 12 GB}\nnodes:\n' % (flops / 1e6))
            f.write(''.join('  - {host: %s, devices: [{type: xp, count: %d}]}\n' % (h, devices) for h in hosts))
            f.write('network: {bandwidth: %.3f Mb/s, latency: 100 us}\n' % RATE)
        return file

    def simulate(self, args):
        return self.p.ask('simulate', self.model, '--json', '-q', '--profile', 'estimate', '--threads', '1', *self.fixed, *args)

    def args(self, hosts, devices, how):
        return ['--cluster', self.cluster(hosts, devices, self.flops), '--plan', str(devices * len(hosts)), *how]

    def predicted(self, hosts, how, devices=DEVICES):
        """(seconds of a step, bytes of the busiest host) by the simulator."""
        x = self.simulate(self.args(['m%d' % i for i in range(hosts)], devices, how))
        return x['step_s'], ABLATION.between(x['sent_bytes'], places(hosts, devices))


class Lm(Net):
    """The language model of testsuite/comm/ablation, its words in no order."""
    name = 'lm'

    def make(self):
        less = ABLATION.SCALE
        n, _, _ = ABLATION.lm_words(self.folder, 96)
        order = np.random.default_rng(3).permutation(793000 // less)
        for what in ('tok', 'cand'):
            np.save(self.file(what), order[np.load(self.file(what))])
        np.save(self.file('labels'), np.random.default_rng(5).integers(0, n, (96, ABLATION.WORDS // less)))
        ABLATION.language_model(self.folder + '/model.onnx', 793000 // less, 512 // less, 1024, 160, 1, ABLATION.WORDS // less, n, gates=8)

    def file(self, what):
        return os.path.join(self.folder, what + '.npy')

    @property
    def fixed(self):
        data = [w for n in ('tok', 'cand', 'labels') for w in ('--data', '%s=%s' % (n, self.file(n)))]
        return [*ABLATION.COMMON, '--microbatches', '1', *data]

    @staticmethod
    def how(mode):
        return [*MODES[mode], *(['--partitions', 'auto'] if mode != 'Horovod' else [])]


class Dense(Net):
    """As many parameters as ResNet-50 has, in a chain of products; sums in buckets as Horovod's, of 64 MB."""
    name = 'dense'
    fixed = ['--optimizer', 'sgd', '--micro-batch', '64', '--microbatches', '1', '--bucket', '256KiB']

    def make(self):
        nets.mlp(os.path.join(self.folder, 'model.onnx'), (64, *[128] * 6, 80, 10), 'Relu')

    @staticmethod
    def how(mode):
        return MODES[mode]


class Big(Net):
    """One table, 832 of whose rows a device looks up in a step, as in the language model; four times as wide; nothing is computed."""
    name = 'table'
    rows, width, looked = 793000 // 16, 128, 832

    def make(self):
        r = np.random.default_rng(4)
        np.save(self.folder + '/tok.npy', np.stack([r.choice(self.rows, self.looked, replace=False) for _ in range(96)]))
        np.save(self.folder + '/labels.npy', r.integers(0, 16, (96, self.looked)))
        words.one_table(self.folder + '/model.onnx', self.rows, self.width, self.looked)

    @property
    def fixed(self):
        return [*ABLATION.COMMON, '--microbatches', '1', *(w for n in ('tok', 'labels') for w in ('--data', '%s=%s/%s.npy' % (n, self.folder, n)))]

    @staticmethod
    def how(pieces):
        return [*MODES['Parallax'], '--partitions', str(pieces)]


def net(p, name):
    """lm, dense: with the times of the paper's one GPU (Table 1 over Figure 13)."""
    if name == 'table':
        return Big(p, 0)
    return Dense(p, 64 / (8100 / 39.5)) if name == 'dense' else Lm(p, ABLATION.WORDS / ABLATION.ONE_GPU / 1e3)


def places(hosts, devices):
    return [d // devices for d in range(hosts * devices)] + list(range(hosts))


def measured(n, hosts, how, devices=DEVICES):
    """RUNS times STEPS steps on so many hosts: the median of their medians."""
    why = netns.why_not()
    if why:
        raise Missing('no hosts of its own on this machine: ' + why)
    build, links = os.path.join(n.folder, 'build'), netns.Net(n.folder, hosts, RATE / PAYLOAD, burst=BURST)
    try:
        links.open()
        args = n.args(links.hosts, devices, how)
        predicted = n.simulate(args)
        T.emit(n.model, build, ['--profile', 'estimate', '--threads', '1', *n.fixed, *args])
        got = virtual.on_links(links, build, STEPS, RUNS, ['OPT=-O1'])
    finally:
        links.close()
        shutil.rmtree(build, ignore_errors=True)
    steps = [x['median_step_ms'] / 1e3 for x in got]
    return {'step_s': statistics.median(steps), 'steps_s': steps, 'predicted_s': predicted['step_s'],
            'bytes': ABLATION.between(got[-1]['sent_bytes'], places(hosts, devices), STEPS),
            'without_core_s': max(x['spent_s']['without_core'] for x in got) / STEPS}


def scaling(folder):
    p = Pdcc(folder)

    def run(name, mode, hosts):
        n = net(p, name)
        return measured(n, hosts, n.how(mode))
    for name in ('lm', 'dense'):
        for hosts in HOSTS:
            for mode in MODES:
                yield '%s/%s/%d' % (name, mode, hosts), lambda a=(name, mode, hosts): run(*a)


def partitions(folder):
    p = Pdcc(folder)
    for pieces in (*PIECES, 'auto'):
        yield str(pieces), lambda k=pieces: measured(net(p, 'table'), 4, Big.how(k), PIECES_DEVICES)


# ---- networks that learn ----

def fashion(folder):
    """20,000 images to learn from and 10,000 to be asked for: the .npy files."""
    def make():
        for name, most, to in (('train', 20000, ''), ('t10k', 10000, 'e')):
            x, y = (v[:most] for v in tasks.fashion(name))
            np.save('%s/%sx.npy' % (folder, to), (x[:, None] / np.float32(255) - np.float32(0.286)) / np.float32(0.353))     # mean, deviation
            np.save('%s/%slabels.npy' % (folder, to), y)
    kept(folder + '/elabels.npy', make)


def text(folder):
    def make():
        for rows, seed, to in ((48000, 2, ''), (1000, 3, 'e')):
            for name, a in zip(('tok', 'labels'), words.Process().text(rows, seed)):
                np.save('%s/%s%s.npy' % (folder, to, name), a)
    kept(folder + '/elabels.npy', make)


# what is learnt: data, its inputs, model, samples of a worker, steps, flags
LEARNT = {'lm': (text, ('tok', 'labels'), words.recurrent, 16, 1800, ['--optimizer', 'adagrad', '--lr', '0.2', '--clip-norm', '10']),
          'cnn': (fashion, ('x', 'labels'), words.residual, 25, 1200, ['--optimizer', 'momentum', '--lr', '0.1', '--lr-schedule', 'cosine'])}


def learn(folder, name, mode, points=12):
    """[(steps, mean loss of the evaluation set, share of labels that were guessed)]."""
    data, inputs, model, micro, steps, how = LEARNT[name]
    folder = os.path.join(folder, 'parallax-learn-%s-%s' % (name, mark()))
    data(folder)
    file = kept(folder + '/model.onnx', lambda: model(folder + '/model.onnx', 'batch'))
    flags = [w for n in inputs for w in ('--data', '%s=%s/%s.npy' % (n, folder, n), '--eval', '%s=%s/e%s.npy' % (n, folder, n))]
    build = folder + '/build'
    try:
        T.emit(file, build, ['--cluster', T.cluster_file(folder, WORKERS), '--plan', str(WORKERS), '--threads', '1', '--micro-batch', str(micro),
                             '--global-batch', str(micro * WORKERS), *how, *MODES[mode], '--profile', 'estimate', '--seed', '1',
                             '--eval-every', str(steps // points), *flags])
        T.make(build, '-O3 -march=native')
        T.start(build, ['--steps', str(steps), '--quiet'], timeout=400)
        lines = [line.split() for line in open(T.results(build) + '/eval.txt')]
    finally:
        shutil.rmtree(build, ignore_errors=True)
    return {'curve': [[int(x[0]), float(x[1]), float(x[3]) / float(x[4])] for x in lines]}


def convergence(folder):
    for name in LEARNT:
        for mode in MODES:
            yield '%s/%s' % (name, mode), lambda a=(name, mode): learn(folder, *a)


EXPERIMENTS = [('parallax-convergence', False, convergence), ('parallax-scaling', True, scaling), ('parallax-partitions', True, partitions)]
