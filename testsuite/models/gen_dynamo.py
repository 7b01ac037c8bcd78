#!/usr/bin/env python3
"""Writes the oracle folders dyn_*: small training graphs as PyTorch's newer exporter writes them, with PyTorch's own training.

    gen_dynamo.py [--out DIR] [NAME...]

Needs PyTorch 2.6 or newer, onnx and onnxscript (the folders in the tree: see "torch" in their ref.json); the tests need
none of them. One thread, CPU, fixed seeds. ../README.md says what lies in a folder. Graphs are exported from a model in
training mode with torch.onnx.export(dynamo=True, optimize=False); the exporter's stack traces are taken out of them.
optimized.onnx is one with optimize=True, the default.
"""
import argparse, copy, json, os, warnings
import numpy as np
import onnx
import torch
import torch.nn as nn
import torch.nn.functional as F

warnings.filterwarnings('ignore')
torch.set_num_threads(1)
torch.use_deterministic_algorithms(True)
STORED, STEPS, MICRO, MU = 4, 10, 4, 0.9
ADAM = {'lr': 1e-3, 'betas': [0.9, 0.999], 'eps': 1e-8}
HERE = os.path.dirname(os.path.abspath(__file__))


# ---- models ----

class Mlp(nn.Module):
    """Linear, GELU, LayerNorm; a scalar that is a parameter, a buffer that is none."""
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(24, 40), nn.Linear(40, 40)])
        self.norm = nn.ModuleList([nn.LayerNorm(40), nn.LayerNorm(40)])
        self.out = nn.Linear(40, 10)
        self.gain = nn.Parameter(torch.tensor(1.5))
        self.register_buffer('scale', torch.linspace(0.5, 1.5, 24))

    def forward(self, x):
        x = x * self.scale
        for layer, norm in zip(self.layers, self.norm):
            x = norm(F.gelu(layer(x)))
        return self.gain * self.out(x)


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.drop = nn.Dropout(0.0)
        self.fc = nn.Linear(64 + 16, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.relu(self.bn2(self.conv2(x)))
        x = x + F.silu(self.conv3(x))
        parts = [torch.flatten(F.avg_pool2d(x, 2), 1), torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)]
        return self.fc(self.drop(torch.cat(parts, 1)))


class Gpt(nn.Module):
    """One block of a decoder; the output weights are those of the embedding."""
    def __init__(self, words=60, width=24, heads=3, time=8):
        super().__init__()
        self.heads = heads
        self.tok = nn.Embedding(words, width)
        self.pos = nn.Embedding(time + 4, width)
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.norm3 = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.tok.weight
        nn.init.normal_(self.tok.weight, std=0.3)

    def forward(self, ids):
        n, t = ids.shape
        x = self.tok(ids) + self.pos(torch.arange(t))
        q, k, v = (p.view(n, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(n, t, -1))
        x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate='tanh'))
        return self.head(self.norm3(x))


class Lstm(nn.Module):
    def __init__(self, words=50, width=16):
        super().__init__()
        self.emb = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, tok):
        return self.out(self.lstm(self.emb(tok))[0])


class Reader(nn.Module):
    """Two recurrent nets, one of them in both directions; biases of zeros, which the exporter's optimizer drops."""
    def __init__(self, words=40, width=10):
        super().__init__()
        self.emb = nn.Embedding(words, width)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.lstm = nn.LSTM(2 * width, width, batch_first=True)
        self.mid = nn.Linear(width, width)
        self.out = nn.Linear(width, 10)
        nn.init.zeros_(self.mid.bias)
        nn.init.zeros_(self.out.bias)

    def forward(self, tok):
        y = self.lstm(self.gru(self.emb(tok))[0])[0]
        return self.out(torch.tanh(self.mid(y.mean(1))))


class WithLoss(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, x, labels):
        y = self.m(x)
        return F.cross_entropy(y.reshape(-1, y.size(-1)), labels.reshape(-1))


def vectors(g, n, *shape):
    return 'x', torch.randn(STORED, n, *shape, generator=g), torch.randint(0, 10, (STORED, n), generator=g)


def words(g, name, n, t, k):
    w = torch.randint(0, k, (STORED, n, t + 1), generator=g)
    return name, w[:, :, :-1].contiguous(), w[:, :, 1:].contiguous()


def sentences(g, n, t, k):
    return 'tok', torch.randint(0, k, (STORED, n, t), generator=g), torch.randint(0, 10, (STORED, n), generator=g)


def outlined(m):
    """m with calls of a local function in place of Gelu; its body calls another one and takes an attribute."""
    node, attr = onnx.helper.make_node, onnx.helper.make_attribute
    half = onnx.helper.make_node('Constant', [], ['c'])
    half.attribute.add(name='value_float', ref_attr_name='factor', type=onnx.AttributeProto.FLOAT)
    opsets = [onnx.helper.make_opsetid('', 20), onnx.helper.make_opsetid('pdcc.test', 1)]
    m.functions.extend([
        onnx.helper.make_function('pdcc.test', 'Phi', ['x'], ['y'], [
            node('Constant', [], ['root'], value_float=0.5 ** 0.5), node('Constant', [], ['one'], value_float=1.0),
            node('Mul', ['x', 'root'], ['a']), node('Erf', ['a'], ['b']), node('Add', ['b', 'one'], ['y'])], opsets),
        onnx.helper.make_function('pdcc.test', 'GeluOf', ['x'], ['y'], [
            half, node('Phi', ['x'], ['phi'], domain='pdcc.test'), node('Mul', ['x', 'c'], ['h']),
            node('Mul', ['h', 'phi'], ['y'])], opsets, attributes=['factor'])])
    for n in m.graph.node:
        if n.op_type == 'Gelu':
            del n.attribute[:]
            n.op_type, n.domain = 'GeluOf', 'pdcc.test'
            n.attribute.append(attr('factor', 0.5))
    m.opset_import.extend(opsets[1:])
    return m


# name -> model, data, learning rate, opset, symbolic axes of the input, how weights are stored, local functions,
# the exporter's optimizer
MODELS = {
    'dyn_mlp': dict(build=Mlp, data=lambda g: vectors(g, 16, 24), lr=0.1, opset=20, sym={}, store='beside'),
    'dyn_cnn': dict(build=Cnn, data=lambda g: vectors(g, 8, 3, 8, 8), lr=0.02, opset=18, sym={0: 'batch'}, refused=True),
    'dyn_gpt': dict(build=Gpt, data=lambda g: words(g, 'ids', 8, 8, 60), lr=0.1, opset=18, sym={}),
    'dyn_attention': dict(build=Gpt, data=lambda g: words(g, 'ids', 8, 8, 60), lr=0.1, opset=23, sym={0: 'batch', 1: 'time'}),
    'dyn_folded': dict(build=lambda: Gpt(time=2), data=lambda g: words(g, 'ids', 8, 6, 60), lr=0.1, opset=20, sym={0: 'batch'}, optimize=True),
    'dyn_folded_rnn': dict(build=Reader, data=lambda g: sentences(g, 8, 5, 40), lr=0.2, opset=20, sym={0: 'batch'},
                           optimize=True),
    'dyn_function': dict(build=Mlp, data=lambda g: vectors(g, 16, 24), lr=0.1, opset=20, sym={0: 'batch'}, functions=True),
    'dyn_lstm': dict(build=Lstm, data=lambda g: words(g, 'tok', 8, 6, 50), lr=0.5, opset=18, sym={}),
}


# ---- training ----

def batch(t, k, dtype):
    return t[k].to(dtype) if t.is_floating_point() else t[k]


def train(model, x, y, kind, lr, dtype=torch.float32, cycle=False, micro=1):
    """(losses before each step and after the last, first gradients, the trained model)."""
    m = WithLoss(copy.deepcopy(model).to(dtype)).train()
    params = list(m.parameters())
    opt = {'sgd': lambda: torch.optim.SGD(params, lr), 'momentum': lambda: torch.optim.SGD(params, lr, MU),
           'adam': lambda: torch.optim.Adam(params, lr, ADAM['betas'], ADAM['eps'])}[kind]()
    losses, first = [], None
    for k in range(STEPS):
        i = k % STORED if cycle else 0
        opt.zero_grad()
        total = 0.0
        for xs, ys in zip(batch(x, i, dtype).chunk(micro), y[i].chunk(micro)):
            loss = m(xs, ys) / micro
            loss.backward()
            total += loss.item()
        losses.append(total)
        first = first or [p.grad.clone() for p in params]
        opt.step()
    with torch.no_grad():
        losses.append(copy.deepcopy(m)(batch(x, STEPS % STORED if cycle else 0, dtype), y[STEPS % STORED if cycle else 0]).item())
    return losses, first, m


# ---- export ----

def export(model, args, names, output, c, path, optimize=False):
    sym = tuple(dict(c['sym']) for _ in args) if c['sym'] else None
    dims = {s: torch.export.Dim(s, min=1, max=1 << 16) for s in c['sym'].values()}
    shapes = tuple({ax: dims[s] for ax, s in d.items()} for d in sym) if sym else None
    program = torch.onnx.export(copy.deepcopy(model).train(), args, dynamo=True,
                                optimize=optimize or c.get('optimize', False), opset_version=c['opset'],
                                input_names=names, output_names=[output], dynamic_shapes=shapes, verbose=False)
    program.save(path)
    m = onnx.load(path)
    for n in [n for g in [m.graph, *m.functions] for n in g.node]:
        keep = [p for p in n.metadata_props if 'stack_trace' not in p.key]
        del n.metadata_props[:]
        n.metadata_props.extend(keep)
    return outlined(m) if c.get('functions') else m


def store(m, path, how, offsets):
    """Weights inside the file, beside it in a file of its own, or in params_init.bin."""
    if how == 'beside':
        onnx.save(m, path, save_as_external_data=True, location=os.path.basename(path) + '.data', size_threshold=64)
        return
    for t in m.graph.initializer:
        p = offsets.get(t.name.removeprefix('m.')) if how == 'params' else None
        if p:
            t.ClearField('raw_data')
            t.data_location = onnx.TensorProto.EXTERNAL
            for key, value in ('location', 'params_init.bin'), ('offset', p['offset']), ('length', 4 * p['numel']):
                t.external_data.add(key=key, value=str(value))
    onnx.save(m, path)


def counts(m):
    ops = [n.op_type for n in m.graph.node]
    return {'ir': m.ir_version, 'opset': next(o.version for o in m.opset_import if not o.domain), 'nodes': len(ops),
            'ops': {o: ops.count(o) for o in sorted(set(ops))}, 'functions': [f.name for f in m.functions]}


# ---- a folder ----

def floats(tensors):
    return b''.join(t.detach().float().numpy().astype('<f4').tobytes() for t in tensors)


def make(name, c, out):
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    seed = 100 + sum(map(ord, name))
    torch.manual_seed(seed)
    model = c['build']().float().train()
    feed, x, y = c['data'](torch.Generator().manual_seed(seed + 1))
    rates = {'sgd': c['lr'], 'momentum': c['lr'] / 4, 'adam': ADAM['lr']}
    put = lambda f, data: open(os.path.join(folder, f), 'wb').write(data)
    for n, t in (feed, x), ('labels', y):
        put(f'in_{n}.bin', t.numpy().astype('<f4' if t.is_floating_point() else '<i8').tobytes())

    graphs = {'train.onnx': export(model, (x[0],), [feed], 'logits', c, os.path.join(folder, 'train.onnx')),
              'train_loss.onnx': export(WithLoss(model), (x[0], y[0]), [feed, 'labels'], 'loss', c,
                                        os.path.join(folder, 'train_loss.onnx'))}
    inits = {t.name for t in graphs['train.onnx'].graph.initializer}
    also = {}           # a tied parameter carries the name that the exporter left
    for n, p in model.named_parameters(remove_duplicate=False):
        also.setdefault(id(p), []).append(n)
    names = [next((n for n in also[id(p)] if n in inits), n) for n, p in model.named_parameters()]
    params, at = {}, 0
    for n, p in zip(names, model.parameters()):
        params[n] = {'name': n, 'shape': list(p.shape), 'offset': at, 'numel': p.numel()}
        at += 4 * p.numel()
    missing = set(params) - inits
    assert not missing or c.get('optimize'), missing
    put('params_init.bin', floats(model.parameters()))
    store(graphs['train.onnx'], os.path.join(folder, 'train.onnx'), 'inside', params)
    store(graphs['train_loss.onnx'], os.path.join(folder, 'train_loss.onnx'), c.get('store', 'params'), params)

    if c.get('refused'):        # BatchNormalization was folded into weights: what pdcc must say no to
        path = os.path.join(folder, 'optimized.onnx')
        store(export(model, (x[0],), [feed], 'logits', c, path, optimize=True), path, 'inside', params)

    runs = {k: train(model, x, y, k, lr) for k, lr in rates.items()}
    exact = {k: train(model, x, y, k, lr, torch.float64) for k, lr in rates.items()}
    put('grad0.bin', floats(runs['sgd'][1]))
    put('params_sgd10.bin', floats(runs['sgd'][2].parameters()))
    put('params_adam10.bin', floats(runs['adam'][2].parameters()))
    stat = lambda t: {'l2': t.double().norm().item(), 'absmax': t.abs().max().item()}
    lr = rates['sgd']
    ref = {
        'name': name, 'torch': torch.__version__, 'onnx': onnx.__version__, 'seed': seed,
        'batch_axis': 0,
        'inputs': [{'name': n, 'file': f'in_{n}.bin', 'dtype': 'f32' if t.is_floating_point() else 'i64', 'shape': list(t.shape)}
                   for n, t in ((feed, x), ('labels', y))],
        'loss': {'type': 'softmax cross entropy over the last axis of logits', 'reduction': 'mean', 'ignore_index': None},
        'params': list(params.values()), 'n_params': at // 4, 'files': {f: counts(m) for f, m in graphs.items()},
        'optimizers': {'sgd': {'lr': lr}, 'momentum': {'lr': rates['momentum'], 'mu': MU}, 'adam': ADAM},
        'losses': {k: {'f32': r[0], 'f64': exact[k][0], 'max_abs_dev_f32_f64': max(abs(a - b) for a, b in zip(r[0], exact[k][0]))}
                   for k, r in runs.items()},
        'losses_cycling_batches': {'sgd': train(model, x, y, 'sgd', lr, cycle=True)[0]},
        'losses_microbatch_sgd': {'M': MICRO, 'mean_of_micro_means': train(model, x, y, 'sgd', lr, micro=MICRO)[0]},
        'params_with_zero_true_gradient': [n for n, g in zip(names, exact['sgd'][1]) if g.abs().max() < 1e-9],
        'final': {k: {n: stat(p) for n, p in zip(names, r[2].parameters())} for k, r in runs.items()},
        'binaries': {'init': 'params_init.bin', 'grad0': 'grad0.bin', 'sgd10': 'params_sgd10.bin', 'adam10': 'params_adam10.bin'},
    }
    norms = {n: [b.tolist() for b in (m.running_mean, m.running_var)] for n, m in runs['sgd'][2].m.named_modules()
             if isinstance(m, nn.modules.batchnorm._BatchNorm)}
    if norms:
        ref['batchnorm_after_10_sgd'] = {n: {'running_mean': a, 'running_var_torch_unbiased': b} for n, (a, b) in norms.items()}
    with open(os.path.join(folder, 'ref.json'), 'w') as f:
        json.dump(ref, f, indent=1)
        f.write('\n')
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f"{name}: {at // 4} parameters, {size // 1000} kB, losses " + ', '.join(
        f"{k} {r[0][0]:.4f} -> {r[0][-1]:.4f} (f64 differs by {ref['losses'][k]['max_abs_dev_f32_f64']:.1e})" for k, r in runs.items()))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--out', default=HERE)
    ap.add_argument('names', nargs='*')
    a = ap.parse_args()
    for n in a.names or MODELS:
        make(n, MODELS[n], a.out)


if __name__ == '__main__':
    main()
