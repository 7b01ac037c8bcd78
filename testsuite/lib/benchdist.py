"""What testsuite/bench --dist times: one device, two replicas and two stages, of pdcc and of PyTorch.

Of PyTorch: DistributedDataParallel over gloo, and torch.distributed.pipelining's Schedule1F1B, each as two processes of one thread. The two
live as long as a model is timed; a line on their standard input is a round, rank 0 answers with a line of JSON. Stages are cut where the
times of the parts, measured at the start, are divided best; a table at both ends is held by both stages, which add up its gradients.
"""
import json, os, statistics, subprocess, sys, time
import pdcctest as T

RATE, MICROBATCHES = 0.01, 8
med = statistics.median
# ways of a row, in the order in which they take turns: (who, plan, microbatches)
WAYS = {'pdcc': ('1', 1), 'pdcc 2': ('2', 1), 'pdcc 1-1': ('1-1', MICROBATCHES), 'torch': 'one', 'DDP': 'replicas', '1F1B': 'stages'}


class Program:
    """What pdcc emits for a plan, one thread a device."""
    def __init__(self, tmp, plan, microbatches, batch):
        n = sum(map(int, plan.split('-')))
        self.folder = f'{tmp}/plan{plan}'
        said = T.emit(f'{tmp}/m.onnx', self.folder,
                      ['--cluster', f'local:{n}', '--plan', plan, '--micro-batch', str(batch // n if microbatches == 1 else batch // microbatches),
                       '--global-batch', str(batch), '--threads', '1', '--optimizer', 'sgd', '--lr', str(RATE), '--loss', 'softmax_ce',
                       '--data', f'x={tmp}/x.npy', '--data', f'labels={tmp}/y.npy'])
        self.cut = next((line.split()[-1] for line in said.splitlines() if line.startswith('  stage 1')), '')
        T.make(self.folder, '-O3 -march=native')

    def round(self, steps):
        """(seconds a step, losses)"""
        T.start(self.folder, ['--steps', str(steps)])
        with open(f'{self.folder}/run/summary.json') as f:
            return json.load(f)['median_step_ms'] / 1e3, T.losses(self.folder)


class Pair:
    """Two processes of PyTorch; see worker()."""
    def __init__(self, tmp, name, batch):
        env = dict(os.environ, OMP_NUM_THREADS='1', MASTER_ADDR='127.0.0.1')
        self.ranks = [subprocess.Popen([sys.executable, os.path.realpath(__file__), str(r), f'{tmp}/store', name, str(batch)], env=env, text=True,
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE if r == 0 else subprocess.DEVNULL) for r in range(2)]
        self.told = self.tell()

    def tell(self):
        line = self.ranks[0].stdout.readline()
        if not line:
            raise T.Failed('the processes of PyTorch have ended')
        return json.loads(line)

    def round(self, way, steps):
        for p in self.ranks:
            p.stdin.write(f'{way} {steps}\n')
            p.stdin.flush()
        return self.tell()

    def __enter__(self):
        return self

    def __exit__(self, failed, *rest):
        for p in self.ranks:
            if failed:
                p.kill()
            p.stdin.close()
        for p in self.ranks:
            p.wait()


def batch_of(shape):
    """Of a model's own batch, what eight microbatches divide."""
    return max(MICROBATCHES, shape[0] // MICROBATCHES * MICROBATCHES)


# ---- a process of PyTorch ----

def parts(net):
    """The modules of a net, one behind the other."""
    import torch
    from torch import nn
    import benchmodels

    class Begin(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = net.words, net.places

        def forward(self, x):
            return self.words(x) + self.places(torch.arange(x.shape[1]))

    class First(nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return self.layer(x)[0].contiguous()
    if isinstance(net, benchmodels.Transformer):
        return [Begin(), *net.layers, nn.Sequential(net.norm, net.scores)]
    return [net.table, First(net.lstm), net.scores] if isinstance(net, benchmodels.Words) else list(net)


def best_cut(torch, modules, x):
    """How many modules go to the first stage: the slower stage is as fast as it can be, by their times here, forward and backward."""
    times = [0.0] * len(modules)
    for turn in range(3):
        at = x
        for k, m in enumerate(modules):
            t = time.perf_counter()
            a = at.detach().requires_grad_(at.is_floating_point())
            at = m(a)
            at.sum().backward()
            if turn:
                times[k] += time.perf_counter() - t
    return min(range(1, len(modules)), key=lambda k: max(sum(times[:k]), sum(times[k:])))


class Worker:
    def __init__(self, rank, store, name, batch):
        import torch
        import torch.distributed as dist
        import benchmodels
        torch.set_num_threads(1)
        dist.init_process_group('gloo', init_method=f'file://{store}', rank=rank, world_size=2)
        self.torch, self.dist, self.rank, self.batch = torch, dist, rank, batch
        self.net, self.x, self.y = benchmodels.build(name, batch)
        self.net.train()
        self.start = {k: v.clone() for k, v in self.net.state_dict().items()}
        modules = parts(self.net)
        cut = [best_cut(torch, modules, self.x[:batch // MICROBATCHES])]
        dist.broadcast_object_list(cut, 0)
        self.stage = torch.nn.Sequential(*(modules[cut[0]:] if rank else modules[:cut[0]]))
        self.told = f'{cut[0]} of {len(modules)}'

    def loss_of(self, out, y):
        return self.torch.nn.functional.cross_entropy(out.flatten(0, -2), y.flatten())

    def tied(self):
        """The parameters that both stages have."""
        scores = getattr(self.net, 'scores', None)
        return [self.net.words.weight] if hasattr(self.net, 'words') and scores.weight is self.net.words.weight else []

    def one(self):
        loss = self.loss_of(self.net(self.x), self.y)
        loss.backward()
        return loss

    def replicas(self):
        half = slice(self.rank * self.batch // 2, (self.rank + 1) * self.batch // 2)
        loss = self.loss_of(self.ddp(self.x[half]), self.y[half])
        loss.backward()
        return loss

    def stages(self):
        losses = []
        if self.rank == 0:
            self.schedule.step(self.x)
        else:
            self.schedule.step(target=self.y, losses=losses)
        for p in self.tied():
            self.dist.all_reduce(p.grad)
        return self.torch.stack(losses).mean() if losses else self.torch.zeros(())

    def prepare(self, way):
        from torch.nn.parallel import DistributedDataParallel
        from torch.distributed.pipelining import PipelineStage, Schedule1F1B
        self.net.load_state_dict(self.start)
        if way == 'replicas':
            self.ddp = DistributedDataParallel(self.net)
        if way == 'stages':
            stage = PipelineStage(self.stage, self.rank, 2, self.torch.device('cpu'))
            self.schedule = Schedule1F1B(stage, MICROBATCHES, loss_fn=self.loss_of)
        return self.stage if way == 'stages' else self.net

    def round(self, way, steps):
        """(seconds a step of the slower process, losses), from the weights of the start"""
        opt = self.torch.optim.SGD(self.prepare(way).parameters(), lr=RATE)
        losses, times = [], []
        for _ in range(steps):
            t = time.perf_counter()
            opt.zero_grad(set_to_none=True)
            loss = getattr(self, way)()
            opt.step()
            losses.append(loss.detach())
            times.append(time.perf_counter() - t)
        took, losses = self.torch.tensor(med(times[max(2, steps // 5):])), self.torch.stack(losses)
        if way != 'one':
            self.dist.all_reduce(took, self.dist.ReduceOp.MAX)
            self.dist.all_reduce(losses)
        return float(took), (losses / (2 if way == 'replicas' else 1)).tolist()


def worker(rank, store, name, batch):
    w = Worker(rank, store, name, batch)
    if rank == 0:
        print(json.dumps(w.told), flush=True)
    for line in sys.stdin:
        way, steps = line.split()
        if rank == 0 or way != 'one':
            got = w.round(way, int(steps))
            if rank == 0:
                print(json.dumps(got), flush=True)
    w.dist.destroy_process_group()


if __name__ == '__main__':
    import warnings
    warnings.filterwarnings('ignore')
    worker(int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
