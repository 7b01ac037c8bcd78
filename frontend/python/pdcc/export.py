"""A module as an ONNX file with its contract (frontend/onnx/contract.h says the keys), and one step of it held against PyTorch."""
import ast
import copy
import os
import tempfile
import warnings
import onnx
import torch
import torch.nn as nn
from . import program
from .border import Call, ExportError, Steady

GRID = torch.ops.aten.grid_sampler.default      # taken apart: lookups and weights
CALL = 'pkg.torch.onnx.fx_node'         # metadata of a node: the call that it came from

def stop_node(x):
    from onnxscript import opset18
    return opset18.Identity(x)

def translate(call, dynamic):
    """The ONNX program of the call; the reason if a symbolic batch was wanted and could not be had."""
    example = tuple(call.tensors.values())
    shapes = tuple({0: torch.export.Dim('batch')} if t.dim() and len(t) == call.batch else {} for t in example)
    with call.traced() as module, warnings.catch_warnings():
        warnings.simplefilter('ignore')
        why = None if dynamic and call.batch > 1 else ''
        for tried in ([shapes] if why is None else []) + [None]:
            try:
                prog = torch.export.export(module, example, dynamic_shapes=tried, strict=False)
                if any(n.target is GRID for n in prog.graph.nodes):
                    prog = prog.run_decompositions({GRID: torch._decomp.decomposition_table[torch.ops.aten.grid_sampler_2d.default]})
                made = torch.onnx.export(prog, example, dynamo=True, optimize=False, input_names=list(call.tensors), output_names=['loss'],
                                         custom_translation_table={torch.ops.pdcc.stop.default: stop_node}, verbose=False)
                return made, why
            except ExportError:
                raise
            except Exception as e:
                why = str(e)
    raise ExportError(f'PyTorch does not export this module:\n{why}\nforward must be a graph of fixed length: no branch or loop on values of '
                      'tensors, no data-dependent shapes, no autograd.Function without a decomposition') from None

def untie(model, module):
    """{name of a parameter or buffer: its initializer}; initializers that are one tensor of the module become one."""
    there, first, alias = {i.name for i in model.graph.initializer}, {}, {}
    tensors = list(module.named_parameters(remove_duplicate=False)) + list(module.named_buffers(remove_duplicate=False))
    for name, t in sorted(tensors, key=lambda t: t[0] not in there):
        alias[name] = first.setdefault(id(t), name)
    keep = [i for i in model.graph.initializer if alias.get(i.name, i.name) == i.name]
    del model.graph.initializer[:]
    model.graph.initializer.extend(keep)
    for node in model.graph.node:
        node.input[:] = [alias.get(i, i) for i in node.input]
    return {n: to for n, to in alias.items() if to in there}

def contract(module, model, call):
    """{key: value} of the model's metadata."""
    alias, inputs = untie(model, module), {i.name for i in model.graph.input}
    lines = {k: [] for k in ('parameters', 'frozen', 'buffers', 'statistics', 'padding', 'stops', 'ties', 'modes', 'batch')}
    read = {x for n in model.graph.node if n.op_type == 'BatchNormalization' for x in n.input[3:5]}
    for name, p in module.named_parameters(remove_duplicate=False):
        if alias.get(name) == name:
            lines['parameters' if p.requires_grad else 'frozen'].append(name)
    for name, _ in module.named_buffers(remove_duplicate=False):
        if alias.get(name) == name:
            lines['statistics' if name in read else 'buffers'].append(name)
    lines['ties'] = [f'{n}\t{to}' for n, to in alias.items() if n != to]
    for path, m in module.named_modules():
        lines['modes'].append(f"{path}\t{'train' if m.training else 'eval'}")
        weight = alias.get(f'{path}.weight' if path else 'weight')
        if isinstance(m, nn.Embedding) and m.padding_idx is not None and weight:
            lines['padding'].append(f'{weight}\t{m.padding_idx}')
    for node in model.graph.node:
        if 'pdcc.stop' in told(node).get(CALL, ''):
            lines['stops'] += list(node.output)
    lines['batch'] = [f'{n}\t0' for n, t in call.tensors.items() if t.dim() and len(t) == call.batch and n in inputs]
    return {'pdcc.version': '1', **{'pdcc.' + k: '\n'.join(v) for k, v in lines.items()}}

def told(node):
    return {e.key: e.value for e in node.metadata_props}

def tidy(graph):
    """Nodes are named by their module; no traces of source files stay."""
    for k, node in enumerate(graph.node):
        said = told(node)
        scopes = ast.literal_eval(said.get('pkg.torch.onnx.name_scopes', '[]'))[:-1]
        node.name = f'{scopes[-1] if scopes else ""}/{node.op_type}_{k}'
        del node.metadata_props[:]
        if node.op_type == 'BatchNormalization':        # the node says inference, its call whether it trains
            onnx.helper.set_model_props(node, {CALL: said.get(CALL, '')})
    for x in [graph, *graph.value_info, *graph.input, *graph.output]:
        del x.metadata_props[:]

def export(module, args, path, loss=None, dynamic_batch=True, check=True):
    """Writes `module` as it is trained (modes, frozen parameters, buffers) to the ONNX file `path`.

    args: example inputs, the batch on axis 0: a tuple, or a dict of keywords (what is no tensor is fixed). loss: a function of the module's
    output and the last of args; None: the module returns its loss. check: one step of pdcc's program beside one of PyTorch.
    """
    call = Call(module, args, loss)
    made, why = translate(call, dynamic_batch)
    if why:
        warnings.warn(f'the batch is fixed in {path}: PyTorch has no symbolic one for this module ({" ".join(why.split(chr(10))[:3])})')
    for name in sorted(call.own):
        warnings.warn(f'{name}: no graph carries a backward of its own, the forward is differentiated; x + (f(x) - x).detach() passes a gradient on')
    model = made.model_proto
    onnx.helper.set_model_props(model, contract(module, model, call))
    tidy(model.graph)
    onnx.save(model, path, save_as_external_data=model.ByteSize() > 1 << 30, location=os.path.basename(path) + '.data')
    if check:
        compare(call, path)
    return path

# ---- one step of both ----

def step(call, dtype):
    """Loss and gradients of a copy of the module, without dropout."""
    ours = copy.copy(call)
    ours.module = copy.deepcopy(call.module).to(dtype)
    ours.module.zero_grad(set_to_none=True)
    with Steady():
        value = ours.run(ours.module, {k: t.to(dtype) if t.is_floating_point() else t for k, t in call.tensors.items()})
    value.backward()
    return float(value.detach()), {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in ours.module.named_parameters()}

def emitted(call, path, flags, micro=None):
    """Loss of pdcc's program, and {name: tensor} after one step of rate 1."""
    with tempfile.TemporaryDirectory(prefix='pdcc-check-') as tmp:
        program.written(path, f'{tmp}/out', program.write_data(call.tensors, tmp) + [
            '--cluster', 'local:1', '--plan', '1', '--micro-batch', str(micro or call.batch), '--global-batch', str(call.batch), '--optimizer', 'sgd:lr=1',
            '--dropout', 'off', '--threads', '1', '-O1', '-q', *flags])
        return program.run(f'{tmp}/out', 1)[0], program.trained(f'{tmp}/out')

def difference(call, grads, after, part):
    """What is said of the first parameter whose gradient is further off than `part` of it; None."""
    held = {id(p): after[n] for n, p in call.module.named_parameters(remove_duplicate=False) if n in after}
    whole = sum(float(g.double().square().sum()) for g in grads.values()) ** 0.5
    for name, p in call.module.named_parameters():
        g, off = grads[name], float(((p.detach() - held[id(p)] if id(p) in held else torch.zeros_like(p)) - grads[name]).norm())
        if not off <= part * float(g.norm()) + part / 100 * whole + 3 * torch.finfo(g.dtype).eps * float(p.detach().norm()):
            return f"{name}: the gradient is {off:.3g} off PyTorch's, whose norm is {float(g.norm()):.3g}"
    return None

def random(path):
    return any(n.op_type in ('Bernoulli', 'Multinomial') or n.op_type.startswith('Random') for n in onnx.load(path, load_external_data=False).graph.node)

def compare(call, path):
    """CheckError names the loss, or the first parameter whose gradient differs. What differs is looked at again in f64: a ReLU whose sign
    rounding decides has one sign there, a fault stays; a tenth is more than rounding does."""
    if random(path):
        return warnings.warn('the module draws random numbers, which are not those of PyTorch: its step was not compared')
    for dtype, flags, part in (torch.float32, [], 2e-3), (torch.float64, ['--f64'], 1e-5):
        want, grads = step(call, dtype)
        got, after = emitted(call, path, flags)
        if not abs(got - want) <= 1e-4 * max(abs(want), 1e-3):
            raise program.CheckError(f'the first loss is {got:.7g}, PyTorch has {want:.7g}: an operator of the export means something else')
        for name, b in call.module.named_buffers():
            if name in after and not name.endswith(('running_mean', 'running_var')) and not torch.equal(after[name].to(b.dtype), b):
                raise program.CheckError(f'{name}: it is a buffer, and was trained')
        bad = difference(call, grads, after, part)
        if not bad or difference(call, grads, after, 0.1):
            break
    if bad:
        raise program.CheckError(bad)
