"""Models with bodies: If whose condition folds to a constant, local functions. Each gives (model, inputs, outputs)."""
import sys, os
import numpy as np
from onnx import AttributeProto, TensorProto, helper, numpy_helper
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'lib'))
import onnxpb

CASES = {}
N, F = helper.make_node, np.float32


def case(f):
    CASES[f.__name__] = f
    return f


def info(name, a):
    a = np.asarray(a)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype)
                                         if hasattr(helper, 'np_dtype_to_tensor_dtype') else
                                         {'f': 1, 'i': 7, 'b': 9}[a.dtype.kind], a.shape)


def const(name, value):
    return N('Constant', [], [name], name=name, value=numpy_helper.from_array(np.asarray(value), name))


def graph(nodes, outputs, inits=(), inputs=()):
    """A body: outputs by name only."""
    outs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    return helper.make_graph(nodes, 'body', list(inputs), outs, [numpy_helper.from_array(v, k) for k, v in inits])


def model(nodes, inputs, outputs, functions=(), inits=(), opset=17, domains=('f',), ir=8):
    g = helper.make_graph(nodes, 'model', [info(k, v) for k, v in inputs.items()], [info(k, v) for k, v in outputs.items()],
                          [numpy_helper.from_array(v, k) for k, v in inits])
    m = helper.make_model(g, opset_imports=[helper.make_opsetid('', opset)] + [helper.make_opsetid(d, 1) for d in domains])
    m.ir_version = ir
    m.functions.extend(functions)
    return m, inputs, outputs


def function(name, inputs, outputs, nodes, attributes=(), opset=17, domain='f', defaults=()):
    f = helper.make_function(domain, name, list(inputs), list(outputs), nodes,
                             [helper.make_opsetid('', opset), helper.make_opsetid('f', 1)], list(attributes))
    for k, v in defaults:           # FunctionProto.attribute_proto, which this onnx package is too old to write
        raw = onnxpb.field(11, helper.make_attribute(k, v).SerializeToString())
        f.MergeFromString(raw)
    return f


def ref(node, name, to, kind=AttributeProto.FLOAT):
    """The attribute `name` of the node refers to `to` of the function."""
    a = node.attribute.add()
    a.name, a.ref_attr_name, a.type = name, to, kind
    return node


def values(*shape, at=0):
    return (np.arange(np.prod(shape), dtype='f4').reshape(shape) - 3 + at)


# ---- If ----

def squeeze_if(shape):
    """torch's squeeze of an axis whose size it did not know."""
    x = values(*shape)
    squeeze = graph([const('ax', np.array([1], 'i8')), N('Squeeze', ['x', 'ax'], ['s'])], ['s'])
    keep = graph([N('Identity', ['x'], ['s2'])], ['s2'])
    nodes = [N('Shape', ['x'], ['sh']), const('one', np.array([1], 'i8')), N('Gather', ['sh', 'one'], ['d']),
             N('Equal', ['d', 'one'], ['c']), N('If', ['c'], ['r'], name='/If', then_branch=squeeze, else_branch=keep),
             N('Relu', ['r'], ['y'])]
    y = np.maximum(x, 0)
    return model(nodes, {'x': x}, {'y': y.squeeze(1) if shape[1] == 1 else y})


@case
def if_then():
    return squeeze_if((3, 1, 2))


@case
def if_else():
    return squeeze_if((3, 2, 2))


@case
def if_same_names():
    """Two Ifs, four branches, one set of names inside; later nodes have the names that inlining would take."""
    x = values(2, 3)

    def branch(k):
        return graph([const('w', np.full((3,), k, 'f4')), N('Mul', ['x', 'w'], ['t']), N('Add', ['t', 'k'], ['o'])], ['o'],
                     [('k', F(1))])
    nodes = [const('yes', np.array(True)), const('no', np.array([False])),
             N('If', ['yes'], ['a'], name='A', then_branch=branch(2), else_branch=branch(3)),
             N('If', ['no'], ['b'], name='A', then_branch=branch(4), else_branch=branch(5)),
             N('Sub', ['a', 'b'], ['A/then/t']), N('Neg', ['A/then/t'], ['A/else/t']), N('Add', ['A/else/t', 'x'], ['y'])]
    return model(nodes, {'x': x}, {'y': 3 * x + x})


@case
def if_nested():
    """A branch in a branch sees what both have around them; outputs that are constants, outer values, twice one value."""
    x = values(2, 2)
    inner = graph([N('Mul', ['t', 'x'], ['u']), const('k', F(7))], ['u', 'k', 'x', 'u'])
    other = graph([N('NoSuchOperator', ['x'], ['u'])], ['u', 'u', 'u', 'u'])
    outer = graph([N('Add', ['x', 'x'], ['t']),
                   N('If', ['yes'], ['p', 'q', 'r', 's'], then_branch=inner, else_branch=other),
                   N('Add', ['r', 's'], ['rs'])], ['p', 'q', 'rs'])
    nodes = [const('yes', np.array(True)), N('If', ['yes'], ['a', 'b', 'y2'], then_branch=outer, else_branch=other),
             N('Add', ['a', 'b'], ['y'])]
    return model(nodes, {'x': x}, {'y': 2 * x * x + 7, 'y2': x + 2 * x * x})


# ---- functions ----

@case
def function_nested():
    """Calls in calls, the same names in all bodies, a call without a name, values called like the graph's."""
    x = values(2, 3)
    double = function('Double', ['x'], ['y'], [N('Add', ['x', 'x'], ['t']), N('Identity', ['t'], ['y'])])
    quad = function('Quad', ['x'], ['y'], [N('Double', ['x'], ['t'], domain='f', name='d'), N('Double', ['t'], ['y'], domain='f')])
    nodes = [N('Quad', ['x'], ['t'], domain='f', name='q'), N('Quad', ['t'], ['q/d/t'], domain='f', name='q'),
             N('Sub', ['q/d/t', 't'], ['y'])]
    return model(nodes, {'x': x}, {'y': 12 * x}, [quad, double])


@case
def function_attributes():
    """Attributes of the call, through two levels; the function's default; one that nobody gives."""
    x = np.array([[-2, -1, 1, 3]], 'f4')
    leaky = function('Leaky', ['x'], ['y'], [ref(N('LeakyRelu', ['x'], ['y']), 'alpha', 'slope')], ['slope'])
    default = function('Default', ['x'], ['y'], [ref(N('LeakyRelu', ['x'], ['y']), 'alpha', 'slope')], defaults=[('slope', 0.25)])
    call = ref(N('Leaky', ['x'], ['t'], domain='f'), 'slope', 'outer')
    twice = function('Twice', ['x'], ['y'], [call, N('Mul', ['t', 'two'], ['y']), ], ['outer'])
    twice.node.insert(0, ref(N('Constant', [], ['two']), 'value_float', 'factor'))
    nodes = [N('Twice', ['x'], ['a'], domain='f', outer=0.5, factor=2.0), N('Leaky', ['x'], ['b'], domain='f', slope=0.0),
             N('Default', ['x'], ['c'], domain='f'), N('Default', ['x'], ['d'], domain='f', slope=1.0),
             N('Leaky', ['x'], ['e'], domain='f'), N('Sum', ['a', 'b', 'c', 'd', 'e'], ['y'])]
    lr = lambda s: np.where(x < 0, F(s) * x, x)
    return model(nodes, {'x': x}, {'y': 2 * lr(.5) + lr(0) + lr(.25) + lr(1) + lr(.01)}, [leaky, default, twice], ir=9)


@case
def function_optional():
    """Inputs left out, outputs nobody takes, an output that is an input."""
    x = values(2, 3)
    f = function('F', ['x', 'lo', 'hi'], ['same', 'cut', 'neg'], [N('Clip', ['x', 'lo', 'hi'], ['cut']), N('Neg', ['x'], ['neg'])])
    f.output[0] = 'x'
    nodes = [const('hi', F(1)), N('F', ['x', '', 'hi'], ['a', 'b'], domain='f'), N('F', ['x'], ['', '', 'n'], domain='f'),
             N('Sum', ['a', 'b', 'n'], ['y'])]
    return model(nodes, {'x': x}, {'y': x + np.minimum(x, 1) - x}, [f])


@case
def function_opset():
    """A function of an older opset: axes of ReduceSum are an attribute there, and an operand around it."""
    x = values(2, 3)
    f = function('Rows', ['x'], ['y'], [N('ReduceSum', ['x'], ['y'], axes=[1], keepdims=0)], opset=11)
    nodes = [N('Rows', ['x'], ['r'], domain='f'), const('ax', np.array([0], 'i8')), N('ReduceSum', ['x', 'ax'], ['c'], keepdims=0),
             N('ReduceSum', ['c'], ['s'], keepdims=1), N('Add', ['r', 's'], ['y'])]
    return model(nodes, {'x': x}, {'y': x.sum(1) + x.sum()}, [f])


@case
def function_if():
    """An If in a function: its branches see the function's values, refer to its attributes and call functions."""
    x = values(2, 1, 3)
    leaky = function('Leaky', ['x'], ['y'], [ref(N('LeakyRelu', ['x'], ['y']), 'alpha', 'a')], ['a'], opset=16)
    then = graph([ref(N('Leaky', ['t'], ['u'], domain='f'), 'a', 'slope'), N('Squeeze', ['u', 'one'], ['o'])], ['o'])
    other = graph([N('Identity', ['t'], ['o'])], ['o'])
    f = function('F', ['x'], ['y'], [N('Add', ['x', 'x'], ['t']), N('Shape', ['x'], ['sh']), const('one', np.array([1], 'i8')),
                                     N('Gather', ['sh', 'one'], ['d']), N('Equal', ['d', 'one'], ['c']),
                                     N('If', ['c'], ['y'], name='if', then_branch=then, else_branch=other)], ['slope'])
    nodes = [N('F', ['x'], ['t'], domain='f', name='f', slope=0.5), N('F', ['x'], ['o'], domain='f', name='f', slope=0.0),
             N('Sub', ['t', 'o'], ['y'])]
    t = 2 * x.squeeze(1)
    return model(nodes, {'x': x}, {'y': np.where(t < 0, F(.5) * t, t) - np.maximum(t, 0)}, [leaky, f])


@case
def function_overload():
    """Two functions of one name told apart by overload, which this onnx package is too old to write."""
    x = values(2, 2)

    def with_field(m, number):
        m.MergeFromString(onnxpb.field(number, b'b'))
        return m
    a = function('G', ['x'], ['y'], [N('Neg', ['x'], ['y'])])
    b = with_field(function('G', ['x'], ['y'], [N('Mul', ['x', 'x'], ['y'])]), 13)
    nodes = [N('G', ['x'], ['n'], domain='f'), with_field(N('G', ['x'], ['s'], domain='f'), 8), N('Add', ['n', 's'], ['y'])]
    return model(nodes, {'x': x}, {'y': x * x - x}, [a, b], ir=10)
