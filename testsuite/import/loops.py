"""Models with Loop, which is written out, and with sequences of a known length. Each gives (model, inputs, outputs)."""
import numpy as np
from onnx import TensorProto, helper
from bodies import F, N, const, graph, model, values

CASES = {}


def case(f):
    CASES[f.__name__] = f
    return f


def body(nodes, outputs, carried=(), inits=(), i='i', go='go'):
    """A body: number and condition come in under these names, then what goes round."""
    ins = [helper.make_tensor_value_info(i, TensorProto.INT64, []), helper.make_tensor_value_info(go, TensorProto.BOOL, [])]
    return graph(nodes, outputs, inits, ins + [helper.make_tensor_value_info(c, TensorProto.FLOAT, None) for c in carried])


def ints(name, *v):
    return const(name, np.array(v, 'i8'))


@case
def loop_count():
    """Three times round: a value that goes round, one that is stacked, a constant of the body, names of the graph around."""
    x = values(2, 3)
    b = body([N('Cast', ['i'], ['k'], to=1), N('Mul', ['a', 'w'], ['t']), N('Add', ['t', 'k'], ['y']), N('Identity', ['go'], ['on'])],
             ['on', 'y', 't'], ['a'], [('w', F(2))])
    nodes = [const('three', np.array(3, 'i8')), N('Neg', ['x'], ['t']), N('Loop', ['three', '', 't'], ['a', 's'], name='L', body=b),
             N('Add', ['a', 't'], ['y'])]
    a, s = -x, []
    for i in range(3):
        s.append(a * F(2))
        a = s[-1] + F(i)
    return model(nodes, {'x': x}, {'y': a - x, 's': np.stack(s)})


@case
def loop_while():
    """Until a condition that follows from numbers; a list that grows by what a branch gives; the empty list as it is first."""
    x = values(4, 3)
    even = graph([N('Neg', ['row'], ['r'])], ['r'])
    odd = graph([N('Mul', ['row', 'row'], ['r'])], ['r'])
    b = body([ints('one', 1), const('two', np.array(2, 'i8')), ints('zero', 0), const('four', np.array(4, 'i8')),
              N('Unsqueeze', ['n', 'zero'], ['from']), N('Add', ['from', 'one'], ['to']), N('Slice', ['x', 'from', 'to', 'zero'], ['row']),
              N('Mod', ['n', 'two'], ['left']), N('Cast', ['left'], ['is_odd'], to=9),
              N('If', ['is_odd'], ['part'], name='if', then_branch=odd, else_branch=even), N('SequenceInsert', ['list', 'part'], ['more']),
              N('Squeeze', ['to', 'zero'], ['next']), N('Less', ['next', 'four'], ['on'])], ['on', 'next', 'more'], ['n', 'list'])
    nodes = [const('yes', np.array(True)), const('n0', np.array(0, 'i8')), N('SequenceEmpty', [], ['none']),
             N('Loop', ['', 'yes', 'n0', 'none'], ['n', 'all'], name='/L', body=b), N('ConcatFromSequence', ['all'], ['y'], axis=0),
             N('SequenceLength', ['all'], ['k']), N('Cast', ['k'], ['kf'], to=1), N('Add', ['kf', 'y'], ['z'])]
    y = np.where(np.arange(4)[:, None] % 2 == 1, x * x, -x)
    return model(nodes, {'x': x}, {'y': y, 'z': y + 4})


@case
def loop_nested():
    """A Loop in a Loop: what both count, and what is stacked twice."""
    x = values(3)
    inner = body([N('Add', ['i', 'j'], ['s']), N('Cast', ['s'], ['f'], to=1), N('Mul', ['x', 'f'], ['p'])], ['in', 'p'], i='j', go='in')
    outer = body([const('two', np.array([2], 'i8')), N('Loop', ['two', ''], ['ps'], name='in', body=inner)], ['go', 'ps'])
    nodes = [const('three', np.array(3, 'i8')), N('Loop', ['three', ''], ['y'], name='out', body=outer)]
    return model(nodes, {'x': x}, {'y': np.stack([np.stack([x * F(i + j) for j in range(2)]) for i in range(3)])})


@case
def loop_none():
    """A count of none, a condition that is false: what goes round comes out as it went in."""
    x = values(2, 2)
    b = lambda: body([N('Neg', ['a'], ['b'])], ['go', 'b'], ['a'])
    nodes = [const('none', np.array(-1, 'i8')), const('no', np.array(False)), const('five', np.array(5, 'i8')),
             N('Loop', ['none', '', 'x'], ['a'], body=b()), N('Loop', ['five', 'no', 'a'], ['b'], body=b()), N('Add', ['a', 'b'], ['y'])]
    return model(nodes, {'x': x}, {'y': 2 * x})


def bags(op, offsets, rows, keep=1, order=None, tables=1, by_row=True):
    """What PyTorch makes of nn.EmbeddingBag: a Slice per bag, of rows that were gathered or of the indices of a table."""
    x = values(rows, 2)
    w = values(7, 2, at=2)
    idx = (np.arange(rows) * 3 % 7).astype('i8')
    table = np.stack([w, -w])
    n = len(offsets) - 1
    order = np.arange(n) if order is None else np.array(order)
    cut = [N('Gather', ['order', 'i'], ['at']), N('Gather', ['offsets', 'at'], ['from0']), N('Add', ['at', 'one'], ['next']),
           N('Gather', ['offsets', 'next'], ['to0']), N('Unsqueeze', ['from0', 'zero'], ['from']), N('Unsqueeze', ['to0', 'zero'], ['to'])]
    pick = [N('Slice', ['x', 'from', 'to', 'zero'], ['rows'])] if by_row else \
        [N('Slice', ['idx', 'from', 'to', 'zero'], ['part']), N('Mod', ['i', 'tables'], ['t']),
         N('Gather', ['table', 't'], ['one_table']), N('Gather', ['one_table' if tables > 1 else 'w', 'part'], ['rows'])]
    b = body(cut + pick + [N(op, ['rows', 'zero'] if op == 'ReduceSum' else ['rows'], ['r'], keepdims=keep,
                             **({} if op == 'ReduceSum' else {'axes': [0]}))], ['go', 'r'])
    nodes = [const('n', np.array(n, 'i8')), ints('offsets', *offsets), ints('order', *order), const('one', np.array(1, 'i8')), ints('zero', 0),
             const('tables', np.array(tables, 'i8')), N('Reshape', ['x', 'all'], ['flat']), N('Slice', ['flat', 'zero', 'fourteen'], ['w0']),
             N('Reshape', ['w0', 'shape'], ['w']), N('Neg', ['w'], ['minus']), N('Unsqueeze', ['w', 'zero'], ['w1']),
             N('Unsqueeze', ['minus', 'zero'], ['w2']), N('Concat', ['w1', 'w2'], ['table'], axis=0),
             N('Loop', ['n', ''], ['y'], name='bag', body=b)]
    nodes[:0] = [ints('all', -1), ints('fourteen', 14), ints('shape', 7, 2)]
    w = x.reshape(-1)[:14].reshape(7, 2)
    reduce = {'ReduceSum': lambda r: r.sum(0), 'ReduceMean': lambda r: r.mean(0), 'ReduceMax': lambda r: r.max(0)}[op]
    y = []
    for i, at in enumerate(order):
        r = slice(offsets[at], offsets[at + 1])
        rows_i = x[r] if by_row else (w if i % tables == 0 else -w)[idx[r]]
        y.append(reduce(rows_i)[None] if keep else reduce(rows_i))
    return model(nodes, {'x': x} if by_row else {'x': x, 'idx': idx}, {'y': np.stack(y).astype('f4')})


CASES['loop_bags_sum'] = lambda: bags('ReduceSum', [0, 3, 6, 9, 12], 12)
CASES['loop_bags_mean_of_table'] = lambda: bags('ReduceMean', [0, 3, 6, 9, 12], 12, keep=0, by_row=False)
CASES['loop_bags_max'] = lambda: bags('ReduceMax', [0, 2, 4, 6, 8], 8, keep=0)
CASES['loop_bags_unequal'] = lambda: bags('ReduceSum', [0, 2, 2, 5, 9], 9)
CASES['loop_bags_in_disorder'] = lambda: bags('ReduceMean', [0, 3, 6, 9, 12], 12, order=[0, 2, 1, 3], by_row=False)
CASES['loop_bags_some'] = lambda: bags('ReduceSum', [0, 3, 6, 9], 12, keep=0)
CASES['loop_bags_two_tables'] = lambda: bags('ReduceSum', [0, 3, 6, 9, 12], 12, tables=2, by_row=False)


@case
def reduced_of_none():
    """What ONNX says of no elements: the sum is 0, the product 1, the largest -infinity; a result without elements has none."""
    x = values(2, 3)
    nodes = [ints('zero', 0), ints('axes', 1), ints('one', 1), N('Slice', ['x', 'zero', 'zero', 'one'], ['none'])]
    want = {'ReduceSum': 0, 'ReduceL1': 0, 'ReduceL2': 0, 'ReduceSumSquare': 0, 'ReduceProd': 1, 'ReduceLogSum': -np.inf, 'ReduceLogSumExp': -np.inf,
            'ReduceMax': -np.inf, 'ReduceMin': np.inf}
    for op in want:
        nodes.append(N(op, ['none', 'axes'], [op], keepdims=0) if op == 'ReduceSum' else N(op, ['none'], [op], axes=[1], keepdims=0))
    nodes.append(N('ReduceLogSumExp', ['none'], ['all'], keepdims=1))
    nodes.append(N('ReduceLogSumExp', ['x'], ['some'], axes=[1]))
    return model(nodes, {'x': x}, {**{op: np.full(2, v, 'f4') for op, v in want.items()}, 'all': np.full((1, 1), -np.inf, 'f4'),
                                   'some': np.log(np.exp(x).sum(1, keepdims=True))})


@case
def sequence_edits():
    """Inserted at the end, in front and before the last; taken out; read from both ends; a list is not changed by the next."""
    x = values(2, 3)
    nodes = [const('p', np.array(0, 'i8')), const('m', np.array(-1, 'i8')), N('Neg', ['x'], ['a']), N('Mul', ['x', 'x'], ['b']),
             N('SequenceEmpty', [], ['s0']), N('SequenceInsert', ['s0', 'x'], ['s1']), N('SequenceInsert', ['s1', 'a', 'p'], ['s2']),
             N('SequenceInsert', ['s2', 'b', 'm'], ['s3']), N('SequenceErase', ['s3'], ['s4']), N('SequenceErase', ['s3', 'p'], ['s5']),
             N('ConcatFromSequence', ['s3'], ['y'], axis=-1, new_axis=1), N('ConcatFromSequence', ['s4'], ['z'], axis=1),
             N('SequenceAt', ['s5', 'm'], ['u']), N('SequenceAt', ['s5', 'p'], ['v']), N('Sub', ['u', 'v'], ['w']),
             N('ConcatFromSequence', ['s1'], ['q'], axis=0)]
    return model(nodes, {'x': x}, {'y': np.stack([-x, x * x, x], -1), 'z': np.concatenate([-x, x * x], 1), 'w': x - x * x, 'q': x})
