"""What PyTorch's exporter would lose, seen while the module is traced: where gradients stop, smoothed labels, bags of embeddings."""
import contextlib
import functools
import inspect
from unittest import mock
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

class ExportError(Exception):
    """A module that cannot be exported: PyTorch's own message, then what to change."""

@torch.library.custom_op('pdcc::stop', mutates_args=())
def stop(x: torch.Tensor) -> torch.Tensor:
    return x.clone()

stop.register_fake(torch.empty_like)

def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction='mean', label_smoothing=0.0):
    """The loss in terms of what the exporter keeps: it drops label_smoothing without a word, and takes probabilities for labels."""
    axis = 1 if input.dim() > 1 else 0
    classes, log = input.shape[axis], F.log_softmax(input, axis)
    weighed = log if weight is None else log * weight.view([-1 if i == axis else 1 for i in range(input.dim())])
    if target.is_floating_point():
        each = -(weighed * (target * (1 - label_smoothing) + label_smoothing / classes)).sum(axis)
        return each.sum() / max(each.numel(), 1) if reduction == 'mean' else each.sum() if reduction == 'sum' else each
    there = (target != ignore_index).to(log.dtype)
    each, count = -weighed.sum(axis) * there, there if weight is None else weight[target.clamp(min=0)] * there
    nll = F.nll_loss(log, target, weight, ignore_index=ignore_index, reduction=reduction)
    each = each.sum() / count.sum() if reduction == 'mean' else each.sum() if reduction == 'sum' else each
    return (1 - label_smoothing) * nll + label_smoothing / classes * each

def embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode='mean', sparse=False,
                  per_sample_weights=None, include_last_offset=False, padding_idx=None):
    """Bags of one length, looked up and reduced; the exporter makes a loop of them."""
    if input.dim() != 2 or offsets is not None or max_norm is not None or (padding_idx is not None and mode == 'max'):
        return F.embedding_bag(input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights,
                               include_last_offset, padding_idx)
    rows = F.embedding(input, weight) * (1 if per_sample_weights is None else per_sample_weights.unsqueeze(-1))
    if padding_idx is not None:
        there = (input != padding_idx % len(weight)).to(rows.dtype).unsqueeze(-1)
        return (rows * there).sum(1) / (there.sum(1).clamp(min=1) if mode == 'mean' else 1)
    return rows.sum(1) if mode == 'sum' else rows.mean(1) if mode == 'mean' else rows.amax(1)

def apply(met, cls, *args):
    """The forward of an autograd.Function as operators, which are differentiated; what it keeps for a backward of its own goes nowhere."""
    if cls.__name__ == 'CheckpointFunction':     # what is done twice there is done once here
        return args[0](*args[2:])
    met.update([cls.__name__] * (not cls.__name__.startswith('GeneratedBackward')))
    own = cls.setup_context is not torch.autograd.Function.setup_context
    return cls.forward(*args) if own else cls.forward(mock.MagicMock(), *args)

class Border(TorchFunctionMode):
    """While it traces: a value that was made under no_grad or detached passes pdcc::stop where something with gradients reads it."""
    def __init__(self):
        super().__init__()
        self.still = WeakIdKeyDictionary()      # tensor -> its stopped copy, or None as long as nothing reads it

    def held(self, x):
        if isinstance(x, torch.Tensor) and x in self.still:
            if self.still[x] is None:
                self.still[x] = torch.ops.pdcc.stop(x)
            return self.still[x]
        return type(x)(self.held(i) for i in x) if type(x) in (tuple, list) else x

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, getattr(func, '__name__', '')
        if name in ('detach', 'detach_') or (name == '__get__' and getattr(func, '__self__', None) is torch.Tensor.data):
            return torch.ops.pdcc.stop(args[0]) if args[0].is_floating_point() else args[0]
        if name in ('__get__', '__set__', 'size', 'dim', 'stride', 'numel', '_set_grad_enabled'):
            return func(*args, **kwargs)
        if func is F.cross_entropy and (kwargs.get('label_smoothing') or any(args[7:8]) or [*args[1:2], kwargs.get('target')][0].is_floating_point()):
            return cross_entropy(*args, **kwargs)
        if func in (F.embedding, F.embedding_bag) and ((len(args) > 3 and args[3] is not None) or kwargs.get('max_norm')):
            raise ExportError('max_norm changes an embedding while it is read, which no graph does; leave it out, or divide what is read by its norm')
        if func is F.embedding_bag:
            return embedding_bag(*args, **kwargs)
        if func is torch.Tensor.__rsub__ and not args[0].is_floating_point():   # 1.0 - mask, of which the exporter makes no node
            return -args[0] + args[1]
        if torch.is_grad_enabled():
            args, kwargs = self.held(args), {k: self.held(v) for k, v in kwargs.items()}
        out = func(*args, **kwargs)     # attention: laid out as it is now, whatever it is made of later
        out = out.clone(memory_format=torch.contiguous_format) if func is F.scaled_dot_product_attention else out
        for t in [] if torch.is_grad_enabled() else out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(t, torch.Tensor) and t.is_floating_point():
                self.still[t] = None
        return out

class Steady(TorchFunctionMode):
    """No dropout, for a step that is to be compared."""
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout):
            return args[0]
        at = dict(multi_head_attention_forward=10, scaled_dot_product_attention=4, lstm=5, gru=5, rnn_tanh=5, rnn_relu=5).get(func.__name__, len(args))
        args = (*args[:at], *[0.0] * (len(args) > at), *args[at + 1:])
        return func(*args, **{k: 0.0 if k == 'dropout_p' else v for k, v in (kwargs or {}).items()})

def loss_of(out):
    """The loss among what a module returns."""
    out = getattr(out, 'loss', out['loss'] if isinstance(out, dict) and 'loss' in out else out)
    out = out[0] if isinstance(out, (tuple, list)) else out
    if not isinstance(out, torch.Tensor) or out.numel() != 1:
        raise ExportError(f'the module returns no scalar loss ({type(out).__name__}); give loss=, a function of its output and the last argument')
    return out.reshape(())

class Call:
    """A module's forward, then its loss, over named tensors. args: a tuple, or a dict of keywords; with a loss the last is its target."""
    def __init__(self, module, args, loss):
        pos = [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        args = (args,) if isinstance(args, torch.Tensor) else args
        if not isinstance(args, dict):
            names = (pos[:len(args) - 1] + ['target' if 'labels' in pos else 'labels']) if loss else pos[:len(args)]
            if len(names) != len(args):
                raise ExportError(f'{len(args)} arguments, but forward takes {", ".join(pos) or "none"}' + (' and the loss one' if loss else ''))
            args = dict(zip(names, args))
        self.module, self.loss, self.target, self.own = module, loss, list(args)[-1] if loss else None, set()
        self.tensors, self.fixed = ({k: v for k, v in args.items() if isinstance(v, torch.Tensor) is yes} for yes in (True, False))
        self.batch = next((len(t) for t in self.tensors.values() if t.dim()), 0)
        if loss is not None and list(getattr(loss, 'parameters', lambda: [])()):
            raise ExportError('the loss has parameters; make it a part of the module')
        if any(getattr(m, 'proj_size', 0) for m in module.modules()):
            raise ExportError('PyTorch exports an LSTM without its projection (proj_size); put a Linear behind it')

    def run(self, forward, tensors):
        given = dict(self.fixed, **tensors)
        target = given.pop(self.target) if self.loss else None
        out = forward(**given)
        return loss_of(self.loss(out, target) if self.loss else out)

    @contextlib.contextmanager
    def traced(self):
        """The module with a forward of the tensors alone, which gives the loss and marks where gradients stop; recurrent layers stay no loops."""
        whole, names = self.module.forward, list(self.tensors)

        @functools.wraps(whole)
        def forward(*args):
            with Border():
                return self.run(whole, dict(zip(names, args)))
        forward.__signature__ = inspect.Signature([inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names])
        with mock.patch.object(self.module, 'forward', forward), mock.patch.object(torch.autograd.Function, 'apply', classmethod(functools.partial(apply, self.own))), \
                mock.patch('torch.distributions.Distribution._validate_args', False), \
                mock.patch('torch.nn.modules.transformer._detect_is_causal_mask', lambda mask, causal=None, size=None: bool(causal)), \
                mock.patch('torch.onnx._internal.exporter._capture_strategies.patch_dynamic_shape_rnn_decompositions', contextlib.nullcontext, create=True):
            yield self.module
