"""A module trained over a dataset on a cluster, and weights back into it."""
import json
import os
import tempfile
import warnings
import torch
from . import program
from .border import Call
from .export import compare, emitted, export, random, step
from .program import need

def optimizer_flags(o, module):
    """torch's optimizer as pdcc's flags say it; what it does not hold stays as it is."""
    need(len(o.param_groups) == 1, 'the optimizer has several groups of parameters; pdcc has one')
    known = {'SGD': 'sgd', 'Adam': 'adam', 'AdamW': 'adamw', 'RMSprop': 'rmsprop', 'Adagrad': 'adagrad'}
    kind, g = known.get(type(o).__name__), o.param_groups[0]
    need(kind, f'no optimizer of pdcc does what {type(o).__name__} does; there are {", ".join(known)}')
    refused = [k for k in ('amsgrad', 'maximize', 'centered', 'nesterov', 'dampening', 'initial_accumulator_value',
                           *['momentum'] * (kind != 'sgd')) if g.get(k)]
    need(not refused, f'{type(o).__name__}: {", ".join(refused)} cannot be said to pdcc from here')
    need(not any(float(x.get('step', 0)) or x.get('momentum_buffer') is not None for x in o.state.values()),
         'the optimizer has taken steps, and what it keeps of them cannot be given to pdcc: make a new one')
    held, own = {id(p) for p in g['params']}, dict(module.named_parameters())
    need(held <= {id(p) for p in own.values()}, 'the optimizer holds parameters that are none of the module')
    kind = 'adamw' if g.get('decoupled_weight_decay') else 'momentum' if g.get('momentum') and kind == 'sgd' else kind
    said = [f'{k}={float(g[k])!r}' for k in ('lr', 'eps', 'alpha', 'weight_decay') if k in g] + [
        f'{k}={float(g[k])!r}' for k in ('momentum', 'lr_decay') if g.get(k)] + [
        f'beta{i + 1}={float(b)!r}' for i, b in enumerate(g.get('betas', ()))]
    left = [n for n, p in own.items() if p.requires_grad and id(p) not in held]
    return ['--optimizer', f'{kind}:{",".join(said)}', *(w for n in left for w in ('--freeze', n))]

def columns(dataset):
    """All samples, one tensor per input, held against each other before anything is compiled."""
    dataset = (dataset,) if isinstance(dataset, torch.Tensor) else dataset
    need(hasattr(dataset, '__len__'), 'the dataset has no length; give tensors, or a Dataset with __len__ and __getitem__')
    if isinstance(dataset, dict) or (isinstance(dataset, (tuple, list)) and dataset and isinstance(dataset[0], torch.Tensor) and dataset[0].dim()):
        cols = dataset
    else:
        rows = [r if isinstance(r, (tuple, list, dict)) else (r,) for r in (dataset[i] for i in range(len(dataset)))]
        need(rows, 'the dataset is empty')
        cols = {k: [torch.as_tensor(r[k]) for r in rows] for k in (rows[0] if isinstance(rows[0], dict) else range(len(rows[0])))}
        for k, c in cols.items():
            for i, t in enumerate(c):
                a, b = (f'{x.dtype}{list(x.shape)}' for x in (t, c[0]))
                need(a == b, f'sample {i}, input {k}: {a}, sample 0 has {b}')
        cols = {k: torch.stack(c) for k, c in cols.items()}
        cols = cols if isinstance(rows[0], dict) else tuple(cols.values())
    sizes = sorted({len(t) for t in (cols.values() if isinstance(cols, dict) else cols)})
    need(len(sizes) == 1, f'the inputs have different numbers of samples: {sizes}')
    return cols

def coupled(call, model, folder):
    """Says where the loss of a step in microbatches is not that of the whole batch, on the first step, in two or more parts."""
    with open(f'{folder}/plan.json') as f:
        many = json.load(f)['microbatches']
    parts = next((d for d in range(2, call.batch + 1) if call.batch % d == 0), 1)
    if many < 2 or parts < 2 or random(model):
        return
    want, got = step(call, torch.float32)[0], emitted(call, model, [], call.batch // parts)[0]
    if abs(got - want) > 1e-4 * abs(want):
        warnings.warn(f'the loss of a step is {want:.6g}, in {parts} microbatches {got:.6g} (counts, pairs or statistics of a batch): {many} '
                      f"microbatches are trained; plan='1', flags=['--micro-batch', '{call.batch}'] has one")

def train(module, dataset, cluster='local:1', plan=None, optimizer=None, epochs=1, loss=None, batch=None, folder=None, flags=(), check=True,
          progress=True):
    """Trains `module` and gives the losses, one per step; the module has the trained weights then.

    dataset: tensors, a dict of them, a Dataset or a DataLoader (whose batch size is taken). batch: samples of a step. plan: as --plan
    says it, auto when None. flags: more of pdcc's. folder: where the program is written and stays.
    """
    more = list(flags)
    if isinstance(dataset, torch.utils.data.DataLoader):
        data, loader = torch.utils.data, dataset
        batch, dataset = batch or loader.batch_size, loader.dataset
        need(type(loader.sampler) in (data.SequentialSampler, data.RandomSampler) and loader.collate_fn is data.default_collate,
             'the DataLoader has a sampler or a collate_fn of its own; give its samples as tensors')
        more += ['--shuffle'] if isinstance(loader.sampler, data.RandomSampler) else []
    batch, cols = batch or 32, columns(dataset)
    count = len(next(iter(cols.values())) if isinstance(cols, dict) else cols[0])
    need(count >= batch, f'the dataset has {count} samples, a step takes {batch}')
    if count % batch:
        warnings.warn(f'{count % batch} of {count} samples fill no step of {batch} and are left out of each epoch')
    first = {k: v[:batch] for k, v in cols.items()} if isinstance(cols, dict) else tuple(t[:batch] for t in cols)
    optimizer = optimizer or torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
    with tempfile.TemporaryDirectory(prefix='pdcc-train-') as tmp:
        folder = os.path.abspath(folder or os.path.join(tmp, 'out'))
        more = ['--cluster', str(cluster), '--global-batch', str(batch), *optimizer_flags(optimizer, module), '--last', 'drop',
                *(['--plan', plan] if plan else []), *program.write_data(Call(module, cols, loss).tensors, tmp), *more]
        model = export(module, first, os.path.join(tmp, 'model.onnx'), loss=loss, check=False)
        program.written(model, folder, more)        # it looks at all of the data before anything is built
        if check:
            compare(Call(module, first, loss), model)
            coupled(Call(module, first, loss), model, folder)
        losses = program.run(folder, epochs * (count // batch), progress)
        load(module, folder)
    return losses

def load(module, folder):
    """Weights and running statistics of the run in `folder` into the module; what does not fit is an Error and changes nothing."""
    got, state = program.trained(folder), module.state_dict(keep_vars=True)
    new = {k: v.detach() for k, v in state.items()}
    for name, t in got.items():
        need(name in state, f"{folder}: '{name}' is no parameter of the module")
        need(state[name].shape == t.shape, f"{folder}: '{name}' is {list(t.shape)}, in the module {list(state[name].shape)}")
        new.update({other: t.to(x) for other, x in state.items() if x is state[name]})
    module.load_state_dict(new)
    return module
