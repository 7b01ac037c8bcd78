"""Runs of PipeDream's Figures 10 to 13: accuracy by epochs of four ways to train, and what a minibatch takes on shaped links.

Accuracy: a small VGG on pictures like CIFAR-100's, EPOCHS passes over SAMPLES of them, from SEEDS seeds, minibatches of 25: one machine; BSP
on four (four minibatches an update, at four times the rate); PipeDream's plan of Table 1, 2-1-1, with stashed weights; ASP on four, whose
servers update with each worker's gradient when it comes. Constant rates, momentum 0.9.
Time: that net, but with last layers as wide as VGG16's are beside what crosses its cuts, in namespaces: four hosts with links of RATE;
computing is virtual and takes MINIBATCH, shared among convolutions as measured here; last layers have SHARES."""
import json
import os
import shutil

import numpy as np

import netns
import pdcctest as T
import tasks
import virtual

SEEDS, EPOCHS, SAMPLES, KNOWN, SMALL, WORKERS = 2, 10, 10000, 4000, 25, 4
RATE, MINIBATCH, MINIBATCHES, PAYLOAD = 320, 0.4, 60, 1448 / 1514     # Mb/s, fitted: BSP is 1.47 times as fast as one machine
WIDER = [*tasks.VGG[:-3], ('fc', 2048), ('fc', 2048), ('fc', 100)]     # as VGG16's last layers are beside what crosses its cuts
SHARES = {'Gemm': 0.013, 'SGD': 0.005}       # of computing: last layers', by VGG16's published profile; updates'
LR = 0.01
# flags, minibatches of a step
WAYS = {'one machine': (['--plan', '1'], 1, LR), 'BSP': (['--plan', '4'], 4, 4 * LR), 'PipeDream': (['--plan', '2-1-1', '--schedule', 'pipedream'], 1, LR),
        'ASP': (['--plan', '4', '--comm', 'async', '--servers', '1'], 4, LR)}
TIMED = {'BSP': ['--plan', '4'], 'model parallelism': ['--plan', '1-1-1-1', '--schedule', 'mp'], 'straight': ['--plan', '1-1-1-1', '--schedule', 'pipedream'],
         'PipeDream': ['--plan', 'auto', '--schedule', 'pipedream']}


class Training:
    def __init__(self, folder):
        self.folder, self.built = os.path.join(folder, 'task'), None

    def prepare(self):
        os.mkdir(self.folder)
        self.model = tasks.model(f'{self.folder}/model.onnx', tasks.VGG, (3, 32, 32))
        for name, v in zip(('x', 'labels'), tasks.cifar_like(SAMPLES, 'train', 1)):
            np.save(f'{self.folder}/{name}.npy', v)
        for name, v in zip(('ex', 'ey'), tasks.cifar_like(KNOWN, 't10k', 7)):
            np.save(f'{self.folder}/{name}.npy', v)
        for i in range(SEEDS):
            T.write_safetensors(f'{self.folder}/w{i}.safetensors', tasks.weights(tasks.VGG, (3, 32, 32), i))

    def run(self, way, i):
        """[(epochs, accuracy)], twice an epoch."""
        if not os.path.isdir(self.folder):
            self.prepare()
        flags, minibatches, lr = WAYS[way]
        build, d, step = f'{self.folder}/b', self.folder, SMALL * minibatches
        if self.built != way:
            shutil.rmtree(build, ignore_errors=True)
            T.emit(self.model, build, ['--cluster', T.cluster_file(d, WORKERS), '--threads', '1', '--micro-batch', str(SMALL), '--global-batch', str(step), *flags,
                                       '--loss', 'softmax_ce', '--optimizer', f'momentum:lr={lr}', '--eval-every', str(SAMPLES // step // 2), '--data', f'x={d}/x.npy',
                                       '--data', f'labels={d}/labels.npy', '--shuffle', '--eval', f'x={d}/ex.npy', '--eval', f'labels={d}/ey.npy'])
            T.make(build, '-O3 -march=native')
            self.built = way
        T.start(build, ['--steps', str(EPOCHS * SAMPLES // step), '--weights', f'{d}/w{i}.safetensors', '--quiet'], timeout=900)
        return [(s * step / SAMPLES, a) for s, a in tasks.evaluations(build)]


def accuracy(folder):
    task = Training(folder)
    for way in WAYS:
        for i in range(SEEDS):
            yield f'{way}/{i}', lambda way=way, i=i: task.run(way, i)


class Links:
    def __init__(self, folder):
        self.folder, self.net = folder, None

    def prepare(self):
        self.model, self.profile = tasks.model(f'{self.folder}/vgg.onnx', WIDER, (3, 32, 32)), f'{self.folder}/profile.json'
        local = T.cluster_file(self.folder, 1)
        T.check('profile', *T.run([T.pdcc_path(), 'profile', self.model, '--loss', 'softmax_ce', '--cluster', local, '--threads', '1', '--micro-batch', str(SMALL),
                                   '--profile-cache', 'none', '--profile-seconds', '4', '-o', self.profile]))
        measured = json.load(open(self.profile))
        groups = {}
        for r in measured['nodes']:
            groups.setdefault(SHARES.get(r['op'], 1 - sum(SHARES.values())), []).append(r)
        for share, nodes in groups.items():
            slower = share * MINIBATCH / sum(r['mean'] for r in nodes)
            for r in nodes:
                r.update({k: r[k] * slower for k in ('mean', 'typical', 'p50', 'p99')}, cov=0)
        with open(self.profile, 'w') as f:
            json.dump(measured, f)
        self.net = netns.Net(self.folder, WORKERS, RATE)
        self.net.open()
        with open(f'{self.folder}/cluster.yaml', 'w') as f:
            f.write('nodes:\n' + ''.join(f'  - {{host: {h}, devices: 1}}\n' for h in self.net.hosts))
            f.write(f'network: {{bandwidth: {RATE * PAYLOAD:.3f} Mb/s, latency: 100 us}}\n')

    def run(self, way):
        """Seconds of a minibatch, and what the simulator says of it."""
        if not self.net:
            self.prepare()
        many = WORKERS if way == 'BSP' else 1          # minibatches of a step
        flags = ['--cluster', f'{self.folder}/cluster.yaml', '--threads', '1', '--micro-batch', str(SMALL), '--global-batch', str(SMALL * many), '--loss', 'softmax_ce',
                 '--profile', self.profile, *TIMED[way]]
        out = T.check('simulate', *T.run([T.pdcc_path(), 'simulate', self.model, *flags, '--json', '-q']))
        played = json.loads(out[out.index('{"step_s"'):out.rindex('}') + 1])
        build = f'{self.folder}/b'
        T.emit(self.model, build, flags)
        s, = virtual.on_links(self.net, build, MINIBATCHES // many)
        shutil.rmtree(build)
        return {'minibatch': s['seconds'] / MINIBATCHES, 'simulated': played['step_s'] / many, 'one': MINIBATCH}

    def close(self):
        if self.net:
            self.net.close()


def times(folder):
    why = netns.why_not()
    if why:
        raise T.Failed(f'no shaped links here: {why}')
    links = Links(folder)
    try:
        for way in TIMED:
            yield way, lambda way=way: links.run(way)
    finally:
        links.close()


EXPERIMENTS = [('pipedream-accuracy', False, accuracy), ('pipedream-times', True, times)]
