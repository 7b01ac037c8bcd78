"""A module trained over a dataset on a cluster, and weights back into it."""
import os
import tempfile

import torch

from . import program
from .border import Call
from .export import export


def optimizer_flag(o):
    """torch's optimizer as --optimizer says it."""
    if len(o.param_groups) != 1:
        raise program.Error('the optimizer has several groups of parameters; pdcc has one')
    known = {'SGD': 'sgd', 'Adam': 'adam', 'AdamW': 'adamw', 'RMSprop': 'rmsprop', 'Adagrad': 'adagrad'}
    kind, g = known.get(type(o).__name__), o.param_groups[0]
    if not kind:
        raise program.Error(f'no optimizer of pdcc does what {type(o).__name__} does; there are {", ".join(known)}')
    refused = [k for k in ('amsgrad', 'maximize', 'centered', 'nesterov', 'dampening') if g.get(k)]
    if kind == 'sgd' and g.get('momentum'):
        kind = 'momentum'
    elif g.get('momentum'):
        refused.append('momentum')
    if refused:
        raise program.Error(f'{type(o).__name__}: {", ".join(refused)} cannot be said to pdcc from here')
    said = [f'{k}={float(g[k])!r}' for k in ('lr', 'eps', 'alpha') if k in g] + [
        f'{k}={float(g[k])!r}' for k in ('momentum', 'weight_decay', 'lr_decay') if g.get(k)]
    if 'betas' in g:
        said += [f"beta1={g['betas'][0]!r}", f"beta2={g['betas'][1]!r}"]
    return f'{kind}:{",".join(said)}'


def columns(dataset, names=None):
    """All samples, one tensor per input, held against each other before anything is compiled."""
    dataset = dataset.dataset if isinstance(dataset, torch.utils.data.DataLoader) else dataset
    if isinstance(dataset, dict) or (isinstance(dataset, (tuple, list)) and dataset and isinstance(dataset[0], torch.Tensor) and dataset[0].dim()):
        cols = dataset
    else:
        rows = [dataset[i] for i in range(len(dataset))]
        if not rows:
            raise program.Error('the dataset is empty')
        cols = {k: [torch.as_tensor(r[k]) for r in rows] for k in (rows[0] if isinstance(rows[0], dict) else range(len(rows[0])))}
        for k, c in cols.items():
            for i, t in enumerate(c):
                if t.shape != c[0].shape or t.dtype != c[0].dtype:
                    raise program.Error(f'sample {i}, input {k}: {t.dtype}{list(t.shape)}, sample 0 has {c[0].dtype}{list(c[0].shape)}')
        cols = {k: torch.stack(c) for k, c in cols.items()}
        cols = cols if isinstance(rows[0], dict) else tuple(cols.values())
    sizes = sorted({len(t) for t in (cols.values() if isinstance(cols, dict) else cols)})
    if len(sizes) != 1:
        raise program.Error(f'the inputs have different numbers of samples: {sizes}')
    return cols


def train(module, dataset, cluster='local:1', plan=None, optimizer=None, epochs=1, loss=None, batch=None, folder=None, flags=(), check=True,
          progress=True):
    """Trains `module` and gives the losses, one per step; the module has the trained weights then.

    dataset: tensors, a dict of them, a Dataset or a DataLoader (whose batch size is taken). batch: samples of a step. plan: as --plan
    says it, auto when None. flags: more of pdcc's. folder: where the program is written and stays.
    """
    batch = batch or getattr(dataset, 'batch_size', None) or 32
    cols = columns(dataset)
    count = len(next(iter(cols.values())) if isinstance(cols, dict) else cols[0])
    if count < batch:
        raise program.Error(f'the dataset has {count} samples, a step takes {batch}')
    first = {k: v[:batch] for k, v in cols.items()} if isinstance(cols, dict) else tuple(t[:batch] for t in cols)
    optimizer = optimizer or torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.1)
    with tempfile.TemporaryDirectory(prefix='pdcc-train-') as tmp:
        folder = os.path.abspath(folder or os.path.join(tmp, 'out'))
        model = export(module, first, os.path.join(tmp, 'model.onnx'), loss=loss, check=check)
        program.compiled(model, folder, ['--cluster', str(cluster), '--global-batch', str(batch), '--optimizer', optimizer_flag(optimizer),
                                         '--last', 'drop', *(['--plan', plan] if plan else []),
                                         *program.write_data(Call(module, cols, loss).tensors, tmp), *flags])
        losses = program.run(folder, epochs * (count // batch), progress)
        load(module, folder)
    return losses


def load(module, folder):
    """Weights and running statistics of the run in `folder` into the module; what does not fit is an Error and changes nothing."""
    got, state = program.trained(folder), module.state_dict(keep_vars=True)
    new = {k: v.detach() for k, v in state.items()}
    for name, t in got.items():
        if name not in state:
            raise program.Error(f"{folder}: '{name}' is no parameter of the module")
        if state[name].shape != t.shape:
            raise program.Error(f"{folder}: '{name}' is {list(t.shape)}, in the module {list(state[name].shape)}")
        new.update({other: t.to(x) for other, x in state.items() if x is state[name]})
    module.load_state_dict(new)
    return module
