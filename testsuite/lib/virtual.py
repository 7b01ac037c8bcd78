"""A chain of equal layers whose times are set by hand, for runs with virtual compute: devices sleep, messages are real."""
import glob, json, os
import nets
import pdcctest as T


def on_links(net, build, steps, runs=1, make=()):
    """Summaries of so many runs of an emitted folder's virtual programs on the hosts of a netns.Net."""
    programs = [f'bin/p{r}' for r in range(len(glob.glob(f'{build}/device*.c')))]
    T.check('make', *T.run(['make', '-s', '-j2', '-C', build, f'CC={T.cc()}', *make, *programs], timeout=300))
    env, got = {'PD_PROGRAM': 'p', 'PD_VIRTUAL': '1', 'PD_MPIRUN_FLAGS': ' '.join(f'--mca {k} {v}' for k, v in net.mca().items())}, []
    for _ in range(runs):
        T.check('run', *T.run([net.agent, net.hosts[0], f'cd {build} && exec sh run.sh --steps {steps} --quiet'], env=env, timeout=300))
        with open(f'{build}/run/summary.json') as f:
            got.append(json.load(f))
    return got


class Net:
    """A chain of `layers` equal Gemms between two that take no time: the first one's weights need a gradient that all
    others must hand on. Everything else takes no time either."""
    def __init__(self, tmp, name, layers, width, micro):
        self.folder, self.layers, self.micro = f'{tmp}/{name}', layers, micro
        os.mkdir(self.folder)
        self.path = nets.mlp(f'{self.folder}/model.onnx', (width,) * (layers + 2) + (nets.CLASSES,))
        profile = f'{self.folder}/measured.json'
        T.check('pdcc profile', *T.run([T.pdcc_path(), 'profile', self.path, *self.flags(1), '--profile-cache', 'none',
                                        '--profile-seconds', '1', '-o', profile]))
        self.measured = json.load(open(profile))

    def flags(self, devices):
        path = f'{self.folder}/cluster{devices}.yaml'
        with open(path, 'w') as f:      # links that do not count: cuts are where layers are equal
            f.write(f'devices: {devices}\nlinks:\n  - {{within: node, kind: memory, bandwidth: 10000 GB/s, latency: 1 ns}}\n')
        return ['--cluster', path, '--threads', '1', '--micro-batch', str(self.micro)]

    def profile(self, seconds):
        """A profile in which a layer's forward and each half of its backward take so long."""
        path, slow = f'{self.folder}/{seconds}.json', set()
        rest = 1e-12 if seconds else 0      # with zeros beside them the wide net is not cut in its middle
        for i in range(1, self.layers + 1):
            slow |= {f'z{i}', f'd.a{i - 1}', f'd.w{i}'}
        nodes = [{**r, **{k: seconds if r['value'] in slow and r['op'] == 'Gemm' else rest for k in ('mean', 'typical', 'p50', 'p99')}, 'cov': 0}
                 for r in self.measured['nodes']]
        json.dump({**self.measured, 'nodes': nodes}, open(path, 'w'), indent=0)
        return path
