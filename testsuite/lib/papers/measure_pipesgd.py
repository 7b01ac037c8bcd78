"""Runs of Pipe-SGD's section 4 and of its convergence: accuracies, parts of a step on shaped links, rates with stochastic gradients.

Accuracy: four workers of 25 samples train on Fashion-MNIST (MNIST-MLP) and on pictures like CIFAR-100's (CIFAR100-CNN, CIFAR100-Convex: all
but its last layer as one device trained them before, and frozen), in the seven variants and from SEEDS seeds; CNN, for the paper's large
nets, is synchronous for a fifth of its steps, as theirs were at first; the others are pipelined from the beginning.
Parts of a step: hosts in namespaces, MNIST-MLP's bytes; computing is virtual and takes as long beside its exchange as that of the paper's
net does beside its own (pipesgd.py), so the four networks are four ratios.
Rates: least squares in 8 dimensions, 32 at once so that noise is small; every sample is seen once, in order, and a step's loss is
compared with that of the least-squares solution on the same samples (regret)."""
import json
import os
import shutil

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

import netns
import nets
import pdcctest as T
import tasks
import virtual
from pipesgd import VARIANTS, WORKERS

SEEDS, KNOWN, SMALL = 2, 4000, 25
TRAIN = {'MNIST-MLP': 1500, 'CIFAR100-CNN': 1800, 'CIFAR100-Convex': 600}      # steps
RATE, STEPS, PAYLOAD = 400, 10, 1448 / 1514                     # Mb/s; bytes of a frame that are the program's
SUMS, SAMPLES = (1, 2, 4), 2                                   # K; samples of a step
REGRETS = [2 ** k for k in range(7, 14)]


# ---- accuracy ----

class Task:
    """A net, its data for every seed, and programs for its variants."""

    def __init__(self, folder, name):
        self.name, self.folder, self.steps = name, os.path.join(folder, name), TRAIN[name]
        mlp = name == 'MNIST-MLP'
        self.net, self.shape, self.draw = (tasks.MLP, (784,), tasks.mnist_like) if mlp else (tasks.CNN, (3, 32, 32), tasks.cifar_like)
        self.rule = {'MNIST-MLP': 'sgd:lr=0.1', 'CIFAR100-CNN': 'sgd:lr=0.15', 'CIFAR100-Convex': 'sgd:lr=0.1'}[name]
        self.built = None

    def prepare(self):
        os.mkdir(self.folder)
        for i in range(SEEDS):
            os.mkdir(f'{self.folder}/{i}')
            for name, v in zip(('x', 'labels'), self.draw(20000, 'train', 100 + i)):
                np.save(f'{self.folder}/{i}/{name}.npy', v)
        for name, v in zip(('ex', 'ey'), self.draw(KNOWN, 't10k', 7)):
            np.save(f'{self.folder}/{name}.npy', v)
        self.model = tasks.model(f'{self.folder}/model.onnx', self.net, self.shape)
        for i in range(SEEDS):
            first = tasks.weights(self.net, self.shape, i)
            if self.name == 'CIFAR100-Convex':
                first = {**self.features(i), **{k: v for k, v in first.items() if k[1:] == str(len(self.net) - 1)}}
            T.write_safetensors(f'{self.folder}/{i}/w.safetensors', first)

    def features(self, i):
        """What one device trains in as many steps, but for the last layer."""
        build = f'{self.folder}/features'
        if not os.path.isdir(build):
            self.emit(build, ['--cluster', 'local:1', '--threads', '1', '--micro-batch', '100', '--global-batch', '100'], 'momentum:lr=0.05')
        self.at(i)
        T.write_safetensors(f'{self.folder}/raw.safetensors', tasks.weights(self.net, self.shape, 50 + i))
        T.start(build, ['--steps', str(self.steps), '--weights', f'{self.folder}/raw.safetensors', '--quiet'], timeout=900)
        return {k: v for k, v in T.safetensors(os.path.join(T.results(build), 'trained.safetensors')).items() if k[1:] != str(len(self.net) - 1)}

    def at(self, i):
        """Programs find the data of seed i."""
        now = f'{self.folder}/now'
        if os.path.lexists(now):
            os.remove(now)
        os.symlink(str(i), now)

    def emit(self, build, more, rule=None):
        self.at(0)
        T.emit(self.model, build, [*more, '--loss', 'softmax_ce', '--optimizer', rule or self.rule, '--lr-schedule', 'cosine', '--data', f'x={self.folder}/now/x.npy', '--data',
                                   f'labels={self.folder}/now/labels.npy', '--eval', f'x={self.folder}/ex.npy', '--eval', f'labels={self.folder}/ey.npy'])
        T.make(build, '-O3 -march=native')

    def run(self, variant, i):
        """[(step, accuracy)] of a seed."""
        if not os.path.isdir(self.folder):
            self.prepare()
        build = f'{self.folder}/b'
        if self.built != variant:
            shutil.rmtree(build, ignore_errors=True)
            flags, _ = VARIANTS[variant]
            warm = ['--warmup-steps', str(self.steps // 5)] if 'Pipe' in variant and self.name == 'CIFAR100-CNN' else []
            last = str(len(self.net) - 1)
            frozen = ['--trainable', f'w{last}', '--trainable', f'b{last}'] if self.name == 'CIFAR100-Convex' else []
            self.emit(build, ['--cluster', T.cluster_file(self.folder, WORKERS), '--plan', str(WORKERS), '--threads', '1', '--micro-batch', str(SMALL),
                              '--global-batch', str(SMALL * WORKERS), '--bucket', 'none', '--eval-every', str(self.steps // 6), *flags,
                              *warm, *frozen])
            self.built = variant
        self.at(i)
        T.start(build, ['--steps', str(self.steps), '--weights', f'{self.folder}/{i}/w.safetensors', '--quiet'], timeout=900)
        return tasks.evaluations(build)


def accuracy(folder):
    for name in ('MNIST-MLP', 'CIFAR100-CNN', 'CIFAR100-Convex'):
        task = Task(folder, name)
        for variant in VARIANTS:
            for i in range(SEEDS):
                yield f'{name}/{variant}/{i}', lambda task=task, variant=variant, i=i: task.run(variant, i)


# ---- parts of a step ----

class Links:
    """Five hosts; a program per ratio and variant."""

    def __init__(self, folder):
        self.folder, self.net = folder, None

    def prepare(self):
        nets.CLASSES = 10
        self.model = nets.mlp(f'{self.folder}/mlp.onnx', (784, 500, 500, 10), 'Relu')
        local, profile = T.cluster_file(self.folder, 1), f'{self.folder}/profile.json'
        T.check('profile', *T.run([T.pdcc_path(), 'profile', self.model, '--cluster', local, '--threads', '1', '--micro-batch', '100', '--profile-cache', 'none',
                                   '--profile-seconds', '2', '-o', profile]))
        self.measured = json.load(open(profile))
        self.own = sum(r['mean'] for r in self.measured['nodes'])
        self.bytes = 4 * sum(a * b + b for a, b in ((784, 500), (500, 500), (500, 10)))
        self.net = netns.Net(self.folder, WORKERS + 1, RATE)
        self.net.open()
        with open(f'{self.folder}/cluster.yaml', 'w') as f:
            f.write('nodes:\n' + ''.join(f'  - {{host: {h}, devices: 1, roles: [{"worker" if i < WORKERS else "server"}]}}\n' for i, h in enumerate(self.net.hosts)))
            f.write(f'network: {{bandwidth: {RATE * PAYLOAD:.3f} Mb/s, latency: 100 us}}\n')

    def exchange(self):
        """Equation (5) of a ring, without its constants."""
        return 2 * (WORKERS - 1) / WORKERS * self.bytes / (RATE * PAYLOAD * 1e6 / 8)

    def run(self, ratio, variant):
        """Seconds of a step and of its parts (worker 0), where computing takes `ratio` times a ring's exchange."""
        if not self.net:
            self.prepare()
        compute = ratio * self.exchange()
        times = [{**r, **{k: r[k] * compute / self.own for k in ('mean', 'typical', 'p50', 'p99')}, 'cov': 0} for r in self.measured['nodes']]
        with open(f'{self.folder}/slow.json', 'w') as f:
            json.dump({**self.measured, 'nodes': times}, f)
        build = f'{self.folder}/b'
        T.emit(self.model, build, ['--cluster', f'{self.folder}/cluster.yaml', '--plan', str(WORKERS), '--threads', '1', '--micro-batch', '100', '--global-batch',
                                   str(100 * WORKERS), '--bucket', 'none', '--allreduce', 'ring', *VARIANTS[variant][0], '--profile', f'{self.folder}/slow.json'])
        s, = virtual.on_links(self.net, build, STEPS)
        shutil.rmtree(build)
        return {'step': s['median_step_ms'] / 1e3, 'compute': compute, 'exchange': self.exchange(), 'spent': {k: v / s['steps'] for k, v in s['spent_s'].items()}}

    def close(self):
        if self.net:
            self.net.close()


RATIOS = {'MNIST-MLP': 0.293, 'CIFAR100-Convex': 3.02, 'AlexNet': 0.0938, 'ResNet-18': 1.477}      # pipesgd.py's; measured_pipesgd.py holds them against it


def breakdown(folder):
    why = netns.why_not()
    if why:
        raise T.Failed(f'no shaped links here: {why}')
    links = Links(folder)
    try:
        for name, ratio in RATIOS.items():
            for variant in VARIANTS:
                yield f'{name}/{variant}', lambda ratio=ratio, variant=variant: links.run(ratio, variant)
    finally:
        links.close()


# ---- rates ----

DEEP, WIDE, NOISE, START = 8, 32, 1.0, 0.1     # START: how far off zeros are, so that noise is what is left to learn against
# lr of the first step; the mean over WIDE outputs makes gradients as many times smaller
STEPPED = {'sqrt': ('1', 'inverse_sqrt:every=4'), 'inverse': ('2', 'inverse:every=16'), 'constant': ('0.5', 'constant')}


def regression(folder):
    """Samples, and the mean loss of the least-squares solution on the first T steps' samples, for T of REGRETS."""
    n, r = REGRETS[-1] * SAMPLES, np.random.default_rng(7)
    a, true = r.standard_normal((n, DEEP)), START * r.standard_normal((DEEP, WIDE))
    y = (a @ true + NOISE * r.standard_normal((n, WIDE))).astype('f4')
    a = a.astype('f4')
    np.save(f'{folder}/a.npy', a)
    np.save(f'{folder}/y.npy', y)
    best = np.linalg.lstsq(a.astype('f8'), y.astype('f8'), rcond=None)[0]
    least = np.mean((a @ best - y) ** 2, axis=1)
    info = helper.make_tensor_value_info
    g = helper.make_graph([helper.make_node('MatMul', ['x', 'w'], ['z'], name='z')], 'net', [info('x', TensorProto.FLOAT, ['batch', DEEP])],
                          [info('z', TensorProto.FLOAT, ['batch', WIDE])], [numpy_helper.from_array(np.zeros((DEEP, WIDE), 'f4'), 'w')])
    save(helper.make_model(g, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), f'{folder}/squares.onnx')
    return [float(np.mean(least[:t * SAMPLES])) for t in REGRETS]


def regret(folder, K, kind):
    """Mean regret after T steps, for T of REGRETS."""
    if not os.path.exists(f'{folder}/least.json'):
        with open(f'{folder}/least.json', 'w') as f:
            json.dump(regression(folder), f)
    with open(f'{folder}/least.json') as f:
        least = json.load(f)
    lr, schedule = STEPPED[kind]
    build = f'{folder}/b'
    T.emit(f'{folder}/squares.onnx', build, ['--cluster', T.cluster_file(folder, 2), '--plan', '2', '--threads', '1', '--loss', 'mse', '--data', f'x={folder}/a.npy',
                                             '--data', f'labels={folder}/y.npy', '--micro-batch', str(SAMPLES // 2), '--global-batch', str(SAMPLES), '--lr', lr,
                                             '--lr-schedule', schedule, *(['--pipe-sgd', str(K)] if K > 1 else [])])
    T.make(build)
    T.start(build, ['--steps', str(REGRETS[-1]), '--quiet'])
    losses = np.cumsum([float(v) for v in T.losses(build)])
    shutil.rmtree(build)
    return [float(losses[t - 1] / t - f) for t, f in zip(REGRETS, least)]


def rates(folder):
    for kind in STEPPED:
        for K in SUMS:
            yield f'{kind}/{K}', lambda K=K, kind=kind: regret(folder, K, kind)


EXPERIMENTS = [('pipesgd-accuracy', False, accuracy), ('pipesgd-breakdown', True, breakdown), ('pipesgd-rates', False, rates)]
