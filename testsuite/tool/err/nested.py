"""ONNX models that hold graphs and functions, field by field: control flow that is refused, and equations of Einsum."""
import struct
import tiny
from tiny import attribute, field, value_info


def names(n, xs):
    return b''.join(field(n, x.encode()) for x in xs)


def node(op, inputs, outputs, name='node', domain='', attributes=b''):
    return names(1, inputs) + names(2, outputs) + field(3, name.encode()) + field(4, op.encode()) + \
        b''.join(field(5, a) for a in attributes or ()) + field(7, domain.encode())


def body(name, nodes, outputs, inputs=(), inits=()):
    """An attribute that is a graph."""
    g = b''.join(field(1, n) for n in nodes) + field(2, b'body') + b''.join(field(5, i) for i in inits) + \
        b''.join(field(11, field(1, i.encode())) for i in inputs) + b''.join(field(12, field(1, o.encode())) for o in outputs)
    return field(1, name.encode()) + field(6, g) + field(20, 5)


def function(name, inputs, outputs, nodes, opset=14):
    return field(1, name.encode()) + names(4, inputs) + names(5, outputs) + b''.join(field(7, n) for n in nodes) + \
        (field(9, field(1, b'') + field(2, opset)) if opset else b'') + field(10, b'f')


def model(nodes, inputs, functions=(), outputs=('y',)):
    g = b''.join(field(1, n) for n in nodes) + field(2, b'nested')
    g += b''.join(field(11, value_info(k, v)) for k, v in inputs.items())
    g += b''.join(field(12, value_info(k, ())) for k in outputs)
    return field(1, 8) + field(7, g) + field(8, field(1, b'') + field(2, 14)) + field(8, field(1, b'f') + field(2, 1)) + \
        b''.join(field(25, f) for f in functions)


X = {'x': (8, 4)}


def einsum(equation, *shapes):
    xs = {f'x{i}': s for i, s in enumerate(shapes)}
    return model([node('Einsum', list(xs), ['y'], attributes=[attribute('equation', equation)])], xs)


def run_time_if():
    """The condition is computed from data."""
    then, other = body('then_branch', [node('Relu', ['x'], ['t'])], ['t']), body('else_branch', [node('Neg', ['x'], ['t'])], ['t'])
    return model([node('ReduceSum', ['x'], ['s'], 'sum'), node('Greater', ['s', 's'], ['c'], 'more'),
                  node('If', ['c'], ['y'], 'if', attributes=[then, other])], X)


def unknown_in_branches():
    """What one branch lacks is no fault yet; what both lack is listed with the rest."""
    bad = lambda kind, op: body(kind, [node(op, ['x'], ['t'], op.lower())], ['t'])
    fine = body('else_branch', [node('Neg', ['x'], ['t'])], ['t'])
    return model([node('If', ['x'], ['a'], 'one', attributes=[bad('then_branch', 'Foo'), fine]),
                  node('If', ['x'], ['b'], 'both', attributes=[bad('then_branch', 'Foo'), bad('else_branch', 'Bar')]),
                  node('Baz', ['b'], ['y'], 'baz', domain='com.example')], X)


def taken_branch():
    """The branch that is taken has an operator that is missing."""
    then = body('then_branch', [node('Foo', ['x'], ['t'], 'foo'), node('Foo', ['t'], ['u'], 'foo2')], ['u'])
    other = body('else_branch', [node('Neg', ['x'], ['t'])], ['t'])
    return model([node('Size', ['x'], ['n'], 'size'), node('Equal', ['n', 'n'], ['c'], 'same'),
                  node('If', ['c'], ['y'], 'if', attributes=[then, other])], X)


def batch_if():
    """The condition asks for the batch of the export."""
    then = body('then_branch', [node('Neg', ['x'], ['t'])], ['t'])
    other = body('else_branch', [node('Abs', ['x'], ['t'])], ['t'])
    eight = node('Constant', [], ['eight'], 'eight', attributes=[attribute('value_int', 8)])
    return model([node('Shape', ['x'], ['sh'], 'shape'), node('ReduceMax', ['sh'], ['n'], 'max'), eight,
                  node('Equal', ['n', 'eight'], ['c'], 'same'), node('If', ['c'], ['y'], 'if', attributes=[then, other])], X)


def loop(nodes=None, count='', go='', inputs=('i', 'go', 'a'), outputs=('go', 'b'), nodes_before=(), carried=('x',)):
    """A Loop that takes x round: Neg, under the condition that came in."""
    b = body('body', nodes or [node('Neg', ['a'], ['b'], 'neg')], outputs, inputs)
    return model([*nodes_before, node('Loop', [count, go, *carried], ['y'], 'loop', attributes=[b])], X)


def number(name, v):
    return node('Constant', [], [name], name, attributes=[attribute('value_int', v)])


def branch_weight():
    """A weight in a branch within a Loop."""
    w = field(1, 2) + field(2, 1) + field(8, b'w') + field(9, struct.pack('<2f', 1, 2))
    then = body('then_branch', [node('Tile', ['w', 'two'], ['t'], 'tile'), node('Mul', ['a', 't'], ['u'], 'mul')], ['u'], inits=[w])
    other = body('else_branch', [node('Neg', ['a'], ['u'])], ['u'])
    return loop([node('Constant', [], ['two'], 'two', attributes=[attribute('value_ints', [2])]),
                 node('If', ['go'], ['b'], 'if', attributes=[then, other])], 'three', nodes_before=[number('three', 3)])


def loop_batch():
    """As many iterations as the batch has samples."""
    zero = node('Constant', [], ['zero'], 'zero', attributes=[attribute('value_ints', [0])])
    return loop(count='n', nodes_before=[node('Shape', ['x'], ['sh'], 'shape'), zero, node('Gather', ['sh', 'zero'], ['n'], 'n')])


def run_time_count():
    return loop(count='k', nodes_before=[node('ReduceSum', ['x'], ['s'], 'sum'), node('Cast', ['s'], ['k'], 'cast', attributes=[attribute('to', 7)])])


def run_time_condition():
    return loop([node('Neg', ['a'], ['b'], 'neg'), node('ReduceSum', ['b'], ['s'], 'sum'), node('Cast', ['s'], ['on'], 'on', attributes=[attribute('to', 9)])],
                outputs=('on', 'b'))


def sequence_position():
    return model([node('SequenceEmpty', [], ['none'], 'none'), node('SequenceInsert', ['none', 'x'], ['one'], 'one'), number('at', 3),
                  node('SequenceInsert', ['one', 'x', 'at'], ['two'], 'two'), node('ConcatFromSequence', ['two'], ['y'], 'cat', attributes=[attribute('axis', 0)])], X)


def no_library():
    """Nothing in it is a product of matrices or the like: two weights, and what lies between them."""
    n = tiny.node
    return tiny.graph([n('Mul', ['x', 'w'], ['a']), n('Sigmoid', ['a'], ['b']), n('Mul', ['b', 'v'], ['c']), n('ReduceMean', ['c'], ['y'], keepdims=0)],
                      [tiny.weight('w', (4,)), tiny.weight('v', (4,))], (8, 4), ())


def control_flow():
    return model([node('Scan', ['a'], ['b'], 'scan', attributes=[attribute('num_scan_inputs', 1), body('body', [], [])]),
                  node('SequenceMap', ['b'], ['c'], 'map', attributes=[body('body', [], [])]),
                  node('Optional', ['c'], ['d'], 'opt'), node('OptionalGetElement', ['d'], ['y'], 'get')], X)


def call(inputs=('x',), outputs=('y',)):
    return [node('F', inputs, outputs, 'call', 'f')]


def recursion():
    return model(call(), X, [function('F', ['x'], ['y'], [node('G', ['x'], ['t'], 'g', 'f'), node('Neg', ['t'], ['y'])]),
                             function('G', ['x'], ['y'], [node('H', ['x'], ['y'], 'h', 'f')]),
                             function('H', ['x'], ['y'], [node('G', ['x'], ['y'], 'g', 'f')])])


def growth():
    """Each function calls the next one twice: 2^30 nodes."""
    twice = lambda k: [node(f'F{k}', ['x'], ['t'], 'a', 'f'), node(f'F{k}', ['t'], ['y'], 'b', 'f')]
    last = function('F30', ['x'], ['y'], [node('Neg', ['x'], ['y'])])
    return model([node('F0', ['x'], ['y'], 'call', 'f')], X,
                 [function(f'F{k}', ['x'], ['y'], twice(k + 1)) for k in range(30)] + [last])


def nothing():
    """The same with a last function of no nodes: 2^30 calls for nothing."""
    twice = lambda k: [node(f'F{k}', [], [], 'a', 'f'), node(f'F{k}', [], [], 'b', 'f')]
    return model([node('F0', [], [], 'call', 'f'), node('Neg', ['x'], ['y'])], X,
                 [function(f'F{k}', [], [], twice(k + 1)) for k in range(30)] + [function('F30', [], [], [])])


def deep_if():
    b = body('then_branch', [node('Neg', ['x'], ['t'])], ['t'])
    for _ in range(40):
        b = body('then_branch', [node('If', ['x'], ['t'], attributes=[b])], ['t'])
    return model([node('If', ['x'], ['y'], attributes=[b])], X)


NEG = [node('Neg', ['x'], ['y'], 'neg')]
KINDS = {
    'einsum-sizes': lambda: einsum('ij,ijk->k', (8, 4), (8, 5, 6)),
    'einsum-diagonal': lambda: einsum('ii->i', (8, 4)),
    'einsum-output': lambda: einsum('ij->iz', (8, 4)),
    'einsum-twice': lambda: einsum('ij->ii', (8, 4)),
    'einsum-rank': lambda: einsum('ijk,jk->ik', (8, 4), (4, 6)),
    'einsum-ellipsis': lambda: einsum('...ijk->i', (8, 4)),
    'einsum-broadcast': lambda: einsum('...i,...i->...', (8, 2, 4), (8, 3, 4)),
    'einsum-terms': lambda: einsum('ij,jk->ik', (8, 4)),
    'einsum-label': lambda: einsum('i1->i', (8, 4)),
    'einsum-arrow': lambda: einsum('ij->i->j', (8, 4)),
    'einsum-axes': lambda: einsum('abcdef,ghijkl->abcdefghijkl', (8, 1, 1, 1, 1, 1), (1,) * 6),
    'einsum-product': lambda: einsum('abcde,afghi,abf,cg,dh,ei->', *[(8,) * 5] * 2, (8, 8, 8), *[(8, 8)] * 3),
    'einsum-none': lambda: model([node('Einsum', ['x'], ['y'])], X),
    'if-run-time': run_time_if,
    'if-batch': batch_if,
    'if-both-branches': unknown_in_branches,
    'if-taken-branch': taken_branch,
    'if-deep': deep_if,
    'control-flow': control_flow,
    'no-library': no_library,
    'loop-inputs': lambda: loop(inputs=('i', 'go')),
    'loop-outputs': lambda: loop(outputs=('go', 'b', 'b')),
    'loop-long': lambda: loop(count='n', nodes_before=[number('n', 5000)]),
    'loop-endless': loop,
    'loop-run-time': run_time_count,
    'loop-run-time-condition': run_time_condition,
    'loop-branch-weight': branch_weight,
    'loop-batch': loop_batch,
    'loop-nodes': lambda: loop([node('Neg', ['a'], [f'n{i}'], 'neg') for i in range(99)] + [node('Neg', ['a'], ['b'], 'neg')], 'n',
                               nodes_before=[number('n', 4000)]),
    'sequence-position': sequence_position,
    'function-recursion': recursion,
    'function-growth': growth,
    'function-calls': nothing,
    'function-inputs': lambda: model(call(['x', 'x']), X, [function('F', ['x'], ['y'], NEG)]),
    'function-outputs': lambda: model(call(outputs=['a', 'y']), X, [function('F', ['x'], ['y'], NEG)]),
    'function-outside': lambda: model(call(), X, [function('F', ['a'], ['y'], NEG)]),
    'function-no-opset': lambda: model(call(), X, [function('F', ['x'], ['y'], [node('Gelu', ['x'], ['y'])], opset=0)]),
    'function-undefined': lambda: model(call(), X, [function('F', ['x'], ['z'], NEG)]),
    'function-twice': lambda: model(call(), X, [function('F', ['x'], ['y'], NEG)] * 2),
    'function-missing': lambda: model(call(), X),
    'function-opset': lambda: model(call(), X, [function('F', ['x'], ['y'], NEG, opset=99)]),
    'function-newer': lambda: model(call(), X, [function('F', ['x'], ['y'], [node('Celu', ['x'], ['y'])], opset=11)]),
    'function-node': lambda: model(call(), X, [function('F', ['x'], ['y'], [node('Softmax', ['x'], ['y'], 'soft', attributes=[
        attribute('axis', 7)])])]),
}
