"""What torch.onnx.export writes, without a contract: the older exporter's graph, the newer one's, and the newer one's unoptimized."""
import contextlib
import copy
import io
import os
import re
import warnings
import torch
import torch.nn.functional as F
import pdcctest as T
FORMS = {'older': dict(dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False),
         'newer': dict(dynamo=True, verbose=False), 'unoptimized': dict(dynamo=True, verbose=False, optimize=False)}


def written(job, form):
    """Path of the graph, which ends at logits where the loss is the trainer's; raises what PyTorch raises."""
    args = {n: t[0] for n, t in job.data.items() if n != job.target}
    path = f'{job.folder}/{form}.onnx'
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter('ignore')
        torch.onnx.export(copy.deepcopy(job.module), tuple(args.values()), path, input_names=list(args), output_names=['logits' if job.loss else 'loss'], **FORMS[form])
    return path


class Graph(torch.nn.Module):
    """A module in whose forward pass detach(), no_grad() and smoothing of labels do nothing, as in a graph, which has no word for them."""
    met = set()     # those that were met, by copies too

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **more):
        kept = torch.Tensor.detach, torch.no_grad, F.cross_entropy

        def here(t=None):
            self.met.add('detach()')
            return contextlib.nullcontext() if t is None else t

        def loss(*x, label_smoothing=0.0, **y):
            self.met.update(['label_smoothing'] * bool(label_smoothing))
            return kept[2](*x, **y)
        torch.Tensor.detach, torch.no_grad, F.cross_entropy = here, here, loss
        try:
            return self.module(*args, **more)
        finally:
            torch.Tensor.detach, torch.no_grad, F.cross_entropy = kept


def lost(job, path, plans, flags, trained):
    """What of the module no graph carries, where the program trains as PyTorch does without it; else nothing."""
    other = copy.copy(job)
    inner = copy.deepcopy(job.module)
    other.module, gone = Graph(inner), []
    steps = {'requires_grad=False': lambda: [p.requires_grad_(True) for p in inner.parameters() if not p.requires_grad],
             'eval()': lambda: [m.train() for m in inner.modules() if not m.training],
             'buffers': lambda: [turned(inner, n) for n, b in list(inner.named_buffers()) if n in trained],
             'padding_idx': lambda: [setattr(m, 'padding_idx', None) for m in inner.modules() if getattr(m, 'padding_idx', None) is not None]}
    for word in steps:
        gone += [word] if steps[word]() else []
        if word in gone or word == 'requires_grad=False':
            Graph.met.clear()
            try:
                other.refer()
                said = other.compared(path, plans, flags)
                return f'without {" and ".join([*gone, *sorted(Graph.met)])}: {said}'
            except (T.Failed, RuntimeError):    # PyTorch's, where it has no gradient by what is a parameter now
                pass
    return None


def turned(module, name):
    """A buffer becomes a parameter."""
    *path, last = name.split('.')
    for part in path:
        module = getattr(module, part)
    value = module._buffers.pop(last)
    module.register_parameter(last, torch.nn.Parameter(value.clone()))
    return True


def verdict(job, path, plans):
    """A word and what pdcc said: passed, maybe without what no graph carries; refused with a reason; warned, where losses differ and pdcc said why they may; differs."""
    flags = []
    if job.loss:
        assert job.loss is F.cross_entropy
        flags = ['--loss', 'softmax_ce', '--labels', job.target]
    try:
        return 'passed', job.compared(path, plans, flags)
    except T.Failed as e:
        said = str(e)
    if said.startswith('plan '):
        less = lost(job, path, plans, flags, re.findall(r'\S+', ''.join(re.findall(r'trained: (.*)', said))))
        return ('passed', less) if less else ('warned' if '[-Wparameters]' in said else 'differs', said)
    code = re.search(r'error.*\[(E\d{4})\]', said)
    return (f'refused {code[1]}', said) if code else ('broken', said)


def forms(job):
    """Each form's verdict in words; T.Failed where one trains something else in silence, or breaks. Plans of two devices are those of the
    first form that trains on one, from the last form on: the nearest to the module."""
    words, bad, whole = [], [], False
    for form in reversed(FORMS):
        try:
            path = written(job, form)
        except Exception as e:
            words.append(f'{form} no export ({type(e).__name__})')
            continue
        word, said = verdict(job, path, ('1',) if whole else ('1', '1-1', '2'))
        whole |= word == 'passed'
        words.append(f'{form} {word} {said if word == "passed" else ""}'.strip())
        if not word.startswith(('passed', 'refused', 'warned')):
            bad.append(f'{form} {word}: {said}')
        elif word != 'passed':
            with open(f'{job.folder}/{form}.said', 'w') as f:
                f.write(said)
        for file in (path, path + '.data'):
            if os.path.exists(file):
                os.remove(file)
    if bad:
        raise T.Failed('; '.join([*words, *bad]))
    return '; '.join(words)
