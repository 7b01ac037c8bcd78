"""Mutants of ONNX's own cases (tool/hostile): operators whose attributes, operands, shapes, types and opsets are others, read by a loss."""
import glob, os
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import pdcctest as T

DATA = '/usr/share/libonnx-testdata/data'
CASES = sorted(os.path.dirname(f) for kind in ('node', 'simple', 'pytorch-operator', 'pytorch-converted') for f in glob.glob(f'{DATA}/{kind}/*/model.onnx'))
SMALL, FAR = [0, 1, 2, 3, 4, 5, 7, 8, -1, -2, -3], [16, 1000, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 62, -2 ** 31, -2 ** 63, 2 ** 63 - 1]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, float('nan'), float('inf'), 1e-45, 3e38]
TEXTS = ['', 'x', 'SAME_UPPER', 'SAME_LOWER', 'VALID', 'NOTSET', 'reflect', 'edge', 'wrap', 'linear', 'cubic', 'nearest', 'mean', 'none', 'add', 'mul', 'bidirectional',
         'reverse', 'tanh', 'CRD', 'ij,jk->ik', '...ij,...jk->...ik', 'ii', 'i->', '->', ',', 'iiii->i', 'z' * 40, '\0']
TYPES = ['f4', 'f8', 'f2', 'i8', 'i4', 'i2', 'i1', 'u1', 'u2', 'u4', 'u8', '?']
with open(f'{T.ROOT}/frontend/import/onnx_ops.def') as table:
    OPS = [line[5:].split(',')[0] for line in table if line.startswith('ONNX(')]


def number(r):
    return r.choice(SMALL if r.random() < 0.6 else FAR)


def put(r, array, value):
    flat = array.flatten()
    flat[r.randrange(flat.size)] = value
    return flat.reshape(array.shape)


def mutate_array(r, a):
    """An element, an axis or the type becomes another."""
    how = r.random()
    if how < 0.3 and a.dtype.kind in 'iu' and a.size:
        ends = np.iinfo(a.dtype)
        return put(r, a, min(max(number(r), ends.min), ends.max))
    if how < 0.3 and a.dtype == np.float32 and a.size:
        return put(r, a, r.choice(FLOATS))
    if how < 0.65:
        shape, what = list(a.shape), r.random()
        if what < 0.3 or not shape:
            shape.insert(r.randrange(len(shape) + 1), r.choice([0, 1, 2, 3]))
        elif what < 0.6:
            del shape[r.randrange(len(shape))]
        else:
            shape[r.randrange(len(shape))] = r.choice([0, 1, 2, 3, 5, 8, 33])
        return a if np.prod(shape, dtype=float) > 1e6 else np.resize(a, shape) if a.size else np.zeros(shape, a.dtype)
    with np.errstate(all='ignore'):
        return a.astype(r.choice(TYPES)) if how < 0.8 else a


def new_attribute(r, n):
    """One that the operator has, of its type."""
    if not onnx.defs.has(n.op_type) or not onnx.defs.get_schema(n.op_type).attributes:
        return
    name, known = r.choice(sorted(onnx.defs.get_schema(n.op_type).attributes.items()))
    makers = {'INT': lambda: number(r), 'INTS': lambda: [number(r) for _ in range(r.randrange(1, 5))], 'FLOAT': lambda: r.choice(FLOATS),
              'FLOATS': lambda: [r.choice(FLOATS) for _ in range(r.randrange(1, 4))], 'STRING': lambda: r.choice(TEXTS)}
    make = makers.get(known.type.name)
    if make:
        for a in [a for a in n.attribute if a.name == name]:
            n.attribute.remove(a)
        n.attribute.append(helper.make_attribute(name, make()))


def mutate_attribute(r, n):
    if not n.attribute or r.random() < 0.3:
        return new_attribute(r, n)
    a, what = r.choice(n.attribute), r.random()
    if what < 0.15:
        n.attribute.remove(a)
    elif a.ints and what < 0.75:
        a.ints[r.randrange(len(a.ints))] = number(r)
    elif a.ints and what < 0.9:
        a.ints.append(number(r))
    elif a.ints:
        del a.ints[r.randrange(len(a.ints))]
    elif a.HasField('t'):
        if r.random() < 0.3 and a.t.dims:
            a.t.dims[0] = number(r)
        else:
            a.t.CopyFrom(numpy_helper.from_array(mutate_array(r, numpy_helper.to_array(a.t)), a.t.name))
    elif a.type == a.STRING:
        at = r.randrange(len(a.s) + 1)
        a.s = r.choice([r.choice(TEXTS).encode(), a.s[:at] + r.choice([b'', b'.', b'...', b',', b'->', b'i', b'A', b' ', b'\xff']) + a.s[at + r.randrange(2):]])
    else:
        a.i, a.f = number(r), r.choice(FLOATS)


def mutate_node(r, m, names):
    """Operands and results are lost, moved, more; the operator or the opset is another."""
    n, what = r.choice(m.graph.node), r.choice(['less', 'more', 'op', 'opset', 'no result', 'result', 'behind'])
    if what == 'less' and n.input:
        del n.input[r.randrange(len(n.input))]
    elif what == 'more':
        n.input.insert(r.randrange(len(n.input) + 1), r.choice(['', *names]))
    elif what == 'op':
        n.op_type = r.choice(OPS)
    elif what == 'opset':
        for o in m.opset_import:
            o.version = r.randrange(6, 25)
    elif what == 'no result' and n.output:
        del n.output[r.randrange(len(n.output))]
    elif what == 'result':
        n.output.append(r.choice(['', 'extra']))
    elif what == 'behind' and n.output:
        m.graph.node.append(helper.make_node(r.choice(OPS), [r.choice(n.output), *(r.choice(names) for _ in range(r.randrange(3)) if names)], ['behind']))


def read_case(folder):
    """The model, and the values of its inputs; None where they are none that a program trains with."""
    m, values = onnx.load(f'{folder}/model.onnx'), {}
    given = {t.name for t in m.graph.initializer}
    for k, v in enumerate(v for v in m.graph.input if v.name not in given):
        file, t = f'{folder}/test_data_set_0/input_{k}.pb', TensorProto()
        if not os.path.exists(file) or v.type.WhichOneof('value') != 'tensor_type':
            return None
        with open(file, 'rb') as f:
            t.ParseFromString(f.read())
        values[v.name] = numpy_helper.to_array(t)
        if values[v.name].dtype == object or values[v.name].size > 200000:
            return None
    return m, values


def finish(r, m, values):
    """One float operand is the input, or the input times a parameter; the mean of a result is the loss. Gives the batch."""
    g, floats = m.graph, [k for k, a in values.items() if a.dtype == np.float32 and a.ndim and a.shape[0]]
    main = r.choice(floats) if floats and r.random() < 0.7 else None
    shape = values[main].shape if main else (4, 2)
    if main and r.random() < 0.5:
        name = main
    else:
        name = 'x__'
        g.initializer.append(numpy_helper.from_array(np.full(shape[-1:], 0.9, 'f4'), 'w__'))
        g.node.insert(0, helper.make_node('Mul', ['x__', 'w__'], [main or 'xw__']))
    del g.input[:], g.output[:], g.value_info[:]
    g.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ['batch' if r.random() < 0.3 else shape[0], *shape[1:]]))
    g.initializer.extend(numpy_helper.from_array(np.asarray(a), k) for k, a in values.items() if k != main)
    results = [o for n in g.node for o in n.output if o]
    last = r.choice(results) if results and r.random() < 0.3 else results[-1] if results else name
    g.node.extend([helper.make_node('Cast', [last], ['c__'], to=TensorProto.FLOAT), helper.make_node('ReduceMean', ['c__'], ['l__'], keepdims=0)])
    g.output.append(helper.make_tensor_value_info('l__', TensorProto.FLOAT, []))
    return shape[0]


def mutant(r):
    """(model, what its arguments are): one of the cases, changed up to three times."""
    made = None
    while not made:
        made = read_case(r.choice(CASES))
    m, values = made
    for _ in range(r.randrange(4)):
        what = r.random()
        if what < 0.35 and values:
            name = r.choice(sorted(values))
            values[name] = mutate_array(r, values[name])
        elif what < 0.7 and m.graph.node:
            mutate_attribute(r, r.choice(m.graph.node))
        elif m.graph.node:
            mutate_node(r, m, [*values, *(t.name for t in m.graph.initializer)])
    batch = str(finish(r, m, values))
    return m, ['--loss', 'l__', '--global-batch', batch, '--micro-batch', batch, '--cluster', 'local:1', '--plan', '1', *r.choice([[], ['--parameters', '*']])]
