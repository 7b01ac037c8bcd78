"""What a training run computes, from the papers' formulas: versions and updates here, in NumPy; forward and backward by the
functions that pdcc emits for one device. Shares no schedule with the compiler.

Version v of a stage's weights is what its first v updates made. Stage s of n has R_s replicas; minibatches are dealt to the
replicas in turn, R_s of them (a round) make an update. PipeDream (section 3.3): when the forward of minibatch t begins at
stage s, depth_s - 1 rounds are under way, so the newest version is

    newest(s, t) = max(0, t // R_s - (depth_s - 1)),     depth_s = ceil((R_s + ... + R_n-1) / R_s)      (one replica: n - s)

and when its backward begins all rounds before its own are done: t // R_s.

    vanilla    forward and backward with the weights after all updates before t (one device, or one minibatch in flight)
    stash      forward newest(s, t), backward the same                        w(t+1) = w(t) - v df(w_1(t-n+1) ... w_n(t))
    none       forward newest(s, t), backward t // R_s                        no gradient of anything
    vertical   newest(0, t) everywhere                                        w(t+1) = w(t) - v df(w_1(t-n+1) ... w_n(t-n+1))
    2bw        step t, of M microbatches: t - 1 everywhere (Narayanan et al., section 3.1)

The two policies that PipeDream's section 3.2 rejects, as orders fixed before the run:
    forward    N minibatches before the first backward, in every stage: depth_s = N
    backward   NOAM = depth_0 minibatches for each of the R_0 replicas, then their backwards, and again: of a stage's rounds
               that many, NOAM R_0 / R_s, begin with nothing under way
                   newest(s, t) = t // R_s - min(depth_s - 1, t // R_s mod (NOAM R_0 / R_s))
"""
import ctypes as C
import glob, json, math, os, shutil, tempfile
import numpy as np
import pdcctest as T

FLAGS = '-std=c11 -fopenmp -fno-math-errno -fno-trapping-math -ffp-contract=off -I. -Iruntime -fPIC'.split()
NUMPY = {1: np.float32, 11: np.float64, 6: np.int32, 7: np.int64, 9: np.bool_, 2: np.uint8}


class Param(C.Structure):       # pd_param
    _fields_ = [('name', C.c_char_p), ('kind', C.c_int), ('dtype', C.c_int), ('rank', C.c_int), ('dim', C.c_int64 * 8),
                ('offset', C.c_size_t), ('fill', C.c_double), ('trained', C.c_bool), ('owner', C.c_int), ('row', C.c_int64), ('of', C.c_int64),
                ('axis', C.c_int), ('blocks', C.c_int64), ('pad', C.c_int64), ('part', C.c_int64)]


class Input(C.Structure):       # pd_input_desc
    _fields_ = [('name', C.c_char_p), ('dtype', C.c_int), ('rank', C.c_int), ('dim', C.c_int64 * 8), ('batch_axis', C.c_int),
                ('range', C.c_int64), ('kind', C.c_char_p), ('path', C.c_char_p), ('eval_kind', C.c_char_p), ('eval_path', C.c_char_p),
                ('is_label', C.c_bool), ('ignore', C.c_int64), ('masked', C.c_bool)]


class Device:
    """Forward and backward of a model on one device, as emitted. data: {input: samples}, `micro` of them a microbatch; adds: so many
    microbatches are added up in the order that the device adds them in."""
    def __init__(self, model, tmp, micro, data, flags=(), opt='-O1', reproducible=True, adds=1):
        self.dir, self.micro, self.data = tempfile.mkdtemp(prefix='one-', dir=tmp), micro, data     # a library is known by its path
        self.reproducible = reproducible
        T.emit(model, self.dir, ['--cluster', T.cluster_file(tmp, 1), '--plan', '1', '--micro-batch', str(micro), '--global-batch',
                                 str(adds * micro), '--threads', '1', '--dense', '*', *(['--reproducible'] if reproducible else []), *flags])
        self.lib = lib = C.CDLL(self.build(opt), mode=os.RTLD_LOCAL | os.RTLD_NOW)
        plan = json.load(open(f'{self.dir}/plan.json'))['stages'][0]
        self.grads = plan['regions']['grads']
        self.arena = self.aligned(plan['arena'])
        self.leaf = self.aligned(plan['arena'])
        self.put('em_leaf', C.c_void_p, self.leaf.ctypes.data)
        head = open(f'{self.dir}/stage0/stage0.h').read()
        count = lambda what: int(head.split(f'{what} = ')[1].split(',')[0].split(' ')[0])
        self.params = list((Param * count('PARAMS')).in_dll(lib, 'stage_params'))
        self.inputs = list((Input * count('INPUTS')).in_dll(lib, 'stage_inputs'))
        self.views = {p.name.decode(): self.view(p) for p in self.params}
        self.trained = {p.name.decode(): i for i, p in enumerate(self.params) if p.kind == 0 and p.trained}
        self.made = {n: np.empty_like(self.views[n]) for n in self.trained}
        for n, i in self.trained.items():
            self.put('em_gradient', C.c_void_p, self.made[n].ctypes.data, i)
            self.put('em_gradient_bytes', C.c_size_t, self.made[n].nbytes, i)
        self.load()
        lib.pd_threads(1)
        lib.init(C.c_void_p(self.begin()), 0, (C.c_int * 1)(0), 1)
        if reproducible:
            self.sums = self.leaf[:C.c_size_t.in_dll(lib, 'em_leaf_bytes').value].view(np.float32)
        else:
            self.sums = self.arena[self.grads["offset"]:self.grads["offset"] + self.grads["bytes"]].view(np.float64 if "--f64" in flags else np.float32)

    def build(self, opt):
        here = os.path.dirname(os.path.abspath(__file__))
        src = [f'{here}/emulate.c', 'stage0/stage0.c'] + sorted(os.path.relpath(f, self.dir) for f in glob.glob(f'{self.dir}/runtime/cpu*.c'))
        for i, f in enumerate(src):
            T.check('cc', *T.run([*T.cc().split(), *FLAGS, *opt.split(), '-c', f, '-o', f'em{i}.o'], cwd=self.dir))
        T.check('cc', *T.run([*T.cc().split(), '-shared', '-Wl,-Bsymbolic', '-o', 'em.so', *(f'em{i}.o' for i in range(len(src))),
                              '-fopenmp', '-ldnnl', '-lm'], cwd=self.dir))
        return f'{self.dir}/em.so'

    def begin(self):
        """The arena, as the stage sees it."""
        return self.arena.ctypes.data

    def aligned(self, n):
        a = np.zeros(n + 4096, np.uint8)
        at = -a.ctypes.data % 4096
        return a[at:at + n]

    def put(self, name, kind, value, i=None):
        if i is None:
            kind.in_dll(self.lib, name).value = value
        else:
            (kind * 256).in_dll(self.lib, name)[i] = value

    def view(self, p):
        t, shape = NUMPY[p.dtype], tuple(p.dim[:p.rank])
        n = int(np.prod(shape, dtype=np.int64)) * np.dtype(t).itemsize
        return self.arena[p.offset:p.offset + n].view(t).reshape(shape)

    def load(self):
        file = T.safetensors(f'{self.dir}/weights/stage0.safetensors')
        for p in self.params:
            n = p.name.decode()
            self.views[n][...] = file[n] if n in file else p.fill

    def weights(self):
        return {n: self.views[n].copy() for n in self.trained}

    def forward(self, w, k):
        """Microbatch k, counted from the run's first: (sum of the loss, what it is divided by)."""
        self.keep = []
        for i, d in enumerate(self.inputs):
            a = self.data[d.name.decode()]
            at = (k * self.micro + np.arange(self.micro)) % len(a)
            x = np.moveaxis(a[at], 0, d.batch_axis)
            x = np.ascontiguousarray(x, NUMPY[d.dtype])
            self.keep.append(x)
            self.put('em_in', C.c_void_p, x.ctypes.data, i)
            self.put('em_bytes', C.c_size_t, x.nbytes, i)
        self.put('em_sample', C.c_int64, k * self.micro)
        self.put('em_loss', C.c_double, 0)
        self.put('em_count', C.c_double, 0)
        self.use(w)
        self.lib.forward(0, 0)
        return C.c_double.in_dll(self.lib, 'em_loss').value, C.c_double.in_dll(self.lib, 'em_count').value

    def use(self, w):
        for n in self.trained:
            self.views[n][...] = w[n]

    def backward(self, w, more=False, last=True):
        """All gradients of the sum of the loss of the forward before it, as they lie in the stage's memory; more: added to what the
        backward before it left there; last: the next one begins anew."""
        self.use(w)
        if not more:
            self.sums[:] = 0
        self.lib.backward(0, 0)
        if last:
            self.lib.sync()
        return self.sums.copy()

    def gradients(self, sums):
        """{parameter: gradient} of a sum of what backward gave: the update says where it lies and adds the parts of weights
        that are used twice; what it makes of the weights is thrown away."""
        self.sums[:] = sums
        self.lib.update()
        return {n: g.copy() for n, g in self.made.items()}


class GpuDevice(Device):
    """The same of a GPU program on the stand-in: weights and sums are copied there and back."""
    def __init__(self, model, tmp, micro, data, flags=(), adds=1):
        super().__init__(model, tmp, micro, data, ['--target', 'cuda', *flags], reproducible=False, adds=adds)

    def build(self, opt):
        here, kernels = os.path.dirname(os.path.abspath(__file__)), sorted(f for d in ('stage0', 'runtime') for f in glob.glob(f'{self.dir}/{d}/*.cu'))
        device = [f for f in glob.glob(f'{self.dir}/runtime/gpu_*.c') if os.path.basename(f)[4:-2] not in ('host', 'input', 'graph', 'nccl', 'nccl_calls', 'nccl_open', 'parts', 'servers', 'sums', 'tensor', 'timed', 'timed_file', 'way')]
        cuda = T.standin()[0].split('=')[1]
        os.environ['PD_STANDIN_FLAGS'] = '-fPIC'
        try:
            objects = [os.path.relpath(f, self.dir) + '.o' for f in kernels]
            T.check('make', *T.run(['make', '-s', '-C', self.dir, '-j2', f'CUDA={cuda}', 'NCCL=0', *(f'obj/{o}' for o in objects)], timeout=600))
        finally:
            os.environ.pop('PD_STANDIN_FLAGS')
        objects = [f'obj/{o}' for o in objects]
        for f in [f'{here}/emulate.c', f'{here}/emulate_gpu.c', f'{self.dir}/stage0/stage0.c', *device]:
            objects.append(f'em_{os.path.basename(f)}.o')
            T.check('cc', *T.run([*T.cc().split(), *FLAGS, *opt.split(), '-DRT_GPU', *(f'-I{here}/../../runtime/{d}' for d in ('.', 'run', 'comm', 'cpu', 'crossing', 'data', 'gpu', 'servers', 'state', 'timing')), '-isystem', f'{cuda}/include', '-c', f, '-o', objects[-1]], cwd=self.dir))
        shutil.copy(f'{cuda}/lib64/libcudart.so', f'{self.dir}/em_cuda.so')      # each program has a GPU of its own
        T.check('cc', *T.run(['g++', '-shared', '-Wl,-Bsymbolic', '-o', 'em.so', *objects, f'{self.dir}/em_cuda.so', '-fopenmp', '-lm'], cwd=self.dir))
        return f'{self.dir}/em.so'

    def begin(self):
        self.lib.em_memory.restype = C.c_void_p
        self.memory = self.lib.em_memory(C.c_size_t(len(self.arena)))
        return self.memory

    def to_device(self, a):
        self.lib.em_put(C.c_void_p(self.memory + a.ctypes.data - self.arena.ctypes.data), C.c_void_p(a.ctypes.data), C.c_size_t(a.nbytes))

    def use(self, w):
        super().use(w)
        for p in self.params:
            self.to_device(self.view(p))

    def backward(self, w, more=False, last=True):
        self.use(w)
        if not more:
            self.sums[:] = 0
            self.to_device(self.sums)
        self.lib.backward(0, 0)
        if last:
            self.lib.sync()
        self.lib.em_get(C.c_void_p(self.sums.ctypes.data), C.c_void_p(self.memory + self.sums.ctypes.data - self.arena.ctypes.data), C.c_size_t(self.sums.nbytes))
        return self.sums.copy()

    def gradients(self, sums):
        self.sums[:] = sums
        self.to_device(self.sums)
        self.lib.update()
        return {n: g.copy() for n, g in self.made.items()}


# ---- optimizers: the order of operations of frontend/onnx/OPS.md, in the type of the weights ----

class Optimizer:
    def __init__(self, kind, lr=0.01, mu=0.9, betas=(0.9, 0.999), eps=1e-8, clip=None):
        self.kind, self.lr, self.mu, self.b, self.eps, self.clip, self.state = kind, lr, mu, betas, eps, clip, {}

    def divisor(self, g, n):
        """What sums g over n labels are divided by: more than n where the norm of all of them is to be limited."""
        if not self.clip:
            return n
        norm = math.sqrt(sum(float(np.sum(np.square(x, dtype=np.float64))) for x in g.values()))
        return norm / self.clip if norm > n * self.clip else n

    def step(self, name, w, g, n, t):
        """Weights after update t = 0, 1 ... with gradient g / n."""
        f = w.dtype.type
        d = g * (f(1) / f(n))
        if self.kind == 'sgd':
            return w - f(self.lr) * d
        if self.kind == 'momentum':
            v = self.state[name] = f(self.mu) * self.state.get(name, np.zeros_like(w)) + d
            return w - f(self.lr) * v
        m, v = self.state.get(name, (np.zeros_like(w), np.zeros_like(w)))
        b1, b2 = self.b
        m = f(b1) * m + f(1 - b1) * d
        v = f(b2) * v + f(1 - b2) * d * d
        self.state[name] = m, v
        rate, root = f(self.lr / (1 - math.pow(b1, t + 1))), f(1 / math.sqrt(1 - math.pow(b2, t + 1)))
        return w - rate * m / (np.sqrt(v) * root + f(self.eps))


def tree(g):
    """Sum of gradients in the order of runtime/pd.h: tree(n) = tree(p) + tree(n - p), p the largest power of two below n."""
    if len(g) == 1:
        return g[0]
    p = 1 << (len(g) - 1).bit_length() - 1
    return tree(g[:p]) + tree(g[p:])


# ---- the runs ----

class Stage:
    """Versions of a stage's weights; rounds of gradients that make the next."""
    def __init__(self, dev, names, w, replicas, depth, optimizer, empties=None, warm=0):
        self.dev, self.names, self.replicas, self.depth, self.optimizer = dev, names, replicas, depth, optimizer
        self.empties = empties          # after so many rounds nothing is under way; None: never
        self.warm = warm // replicas    # rounds that are flushed one by one
        self.version = [{n: w[n] for n in names}]
        self.round = []

    def newest(self, t):
        done = t // self.replicas
        flown = max(0, done - self.warm)
        return done - min(self.depth - 1, flown % self.empties if self.empties else flown)

    def gradient(self, g, count, last=False):
        self.round.append((g, count))
        if len(self.round) == self.replicas or last:
            self.update()

    def update(self):
        w, n, t = self.version[-1], sum(c for _, c in self.round), len(self.version) - 1
        g = self.dev.gradients(tree([g for g, _ in self.round]))
        n = self.optimizer.divisor(g, n)
        self.version.append({p: self.optimizer.step(p, w[p], g[p], n, t) for p in self.names})
        if t > 64:
            self.version[t - 64] = None         # no schedule looks back as far
        self.round = []


def stages_of(plan, dev):
    """[names of the trained parameters] by stage of a plan.json."""
    return [[n for n in s['params'] if n in dev.trained] for s in plan['stages']]


def depth(replicas, s):
    """Rounds between the forward and the backward of stage s."""
    return -(-sum(replicas[s:]) // replicas[s])


def pipeline(dev, names, replicas, rule, steps, optimizer, saw=None, bound=None, warm=0):
    """PipeDream: (losses by minibatch, weights after the last update). optimizer(): a new one; saw(t, weights): what the
    forward of minibatch t reads; bound: N of forward, None is NOAM; the first `warm` minibatches are flushed."""
    noam = depth(replicas, 0)
    deep = [1 if rule == 'vanilla' else bound or noam if rule == 'forward' else depth(replicas, s) for s in range(len(replicas))]
    w = dev.weights()
    st = [Stage(dev, n, w, r, d, optimizer(), noam * replicas[0] // r if rule == 'backward' else None, warm)
          for n, r, d in zip(names, replicas, deep)]
    losses = []
    for t in range(steps):
        at = [st[0].newest(t) if rule == 'vertical' else s.newest(t) for s in st]
        met = {n: s.version[v][n] for s, v in zip(st, at) for n in s.names}
        if saw:
            saw(t, met)
        loss, count = dev.forward(met, t)
        losses.append(loss / count)
        if rule == 'none':
            met = {n: s.version[t // s.replicas][n] for s in st for n in s.names}
        g = dev.backward(met)
        for s in st:
            s.gradient(g, count, t == steps - 1)
    return losses, {n: s.version[-1][n] for s in st for n in s.names}


def delayed(dev, micro, delay, steps, optimizer, warm=0):
    """Steps of `micro` microbatches whose gradient is of the weights `delay` updates ago: 0 is synchronous, 1 is 2BW. The first `warm`
    steps are synchronous, and nothing before them is looked at by those behind."""
    st = Stage(dev, list(dev.trained), dev.weights(), micro, 1, optimizer())
    losses = []
    for t in range(steps):
        w, done = st.version[t if t < warm else max(warm, t - delay)], []
        for k in range(micro):
            loss, count = dev.forward(w, t * micro + k)
            done.append((loss, count))
            st.gradient(dev.backward(w), count)
        total = sum(c for _, c in done)
        losses.append(sum(x for x, _ in done) / total)
    return losses, st.version[-1]


def pipe_sgd(dev, micro, K, steps, optimizer, warm=0):
    """Pipe-SGD, Algorithm 1: iteration t = 1 .. first updates with the gradient of iteration t - K, which is zero up to 0. The first
    `warm` iterations update with their own."""
    w, opt, losses, sums = dev.weights(), optimizer(), [], {}

    def update(t):
        g, n = sums.pop(t)
        n = opt.divisor(g, n)
        return {p: opt.step(p, w[p], g[p], n, t - 1) for p in w}
    for t in range(1, steps + 1):
        if t - K > warm:
            w = update(t - K)
        done, gs = [], []
        for k in range(micro):
            done.append(dev.forward(w, (t - 1) * micro + k))
            gs.append(dev.backward(w))
        n = sum(c for _, c in done)
        losses.append(sum(x for x, _ in done) / n)
        sums[t] = dev.gradients(tree(gs)), n
        if t <= warm:
            w = update(t)
    for t in sorted(sums):
        w = update(t)
    return losses, w
