"""Mutants of models (tool/hostile): types, shapes, attributes, edges, names, initializers, external data, of the graph, of the bodies of
If and Loop and of functions."""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ODD_SIZES = [0, 1, 2, 3, 7, 8, -1, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 62, -2 ** 63]
OPS = ['Relu', 'Gemm', 'Conv', 'Softmax', 'Concat', 'Split', 'If', 'Loop', 'Reshape', 'Sum', 'Slice', 'Dropout', 'LSTM', 'Nothing', 'Twice', 'Dense']


def bodies():
    """Two functions, of which one calls the other, an If with an If in it, a Loop of three turns: all of what has a body."""
    node, value = helper.make_node, lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, None)
    graph = lambda nodes, outs, ins=(), inits=(): helper.make_graph(nodes, 'body', list(ins), outs, list(inits))
    array = numpy_helper.from_array
    alpha = node('LeakyRelu', ['p'], ['q'])
    alpha.attribute.add(name='alpha', ref_attr_name='slope', type=onnx.AttributeProto.FLOAT)
    dense = helper.make_function('own', 'Dense', ['a', 'w'], ['q'], [node('MatMul', ['a', 'w'], ['p']), alpha], [helper.make_opsetid('', 17)], ['slope'])
    inner = node('Dense', ['t', 'w'], ['b'], domain='own', slope=0.2)
    twice = helper.make_function('own', 'Twice', ['a', 'w'], ['b'], [node('Dense', ['a', 'w'], ['t'], domain='own', slope=0.1), inner],
                                 [helper.make_opsetid('', 17), helper.make_opsetid('own', 1)])
    deep = node('If', ['no'], ['r'], then_branch=graph([node('Neg', ['h'], ['r'])], [value('r')]),
                else_branch=graph([node('Mul', ['h', 'scale'], ['r'])], [value('r')], inits=[array(np.full(8, 0.5, 'f4'), 'scale')]))
    branch = node('If', ['yes'], ['k'], name='if', then_branch=graph([deep], [value('r')]), else_branch=graph([node('Tanh', ['h'], ['r'])], [value('r')]))
    turn = graph([node('Identity', ['go'], ['on']), node('Add', ['s', 'bias'], ['next'])], [helper.make_tensor_value_info('on', TensorProto.BOOL, []), value('next')],
                 [helper.make_tensor_value_info('i', TensorProto.INT64, []), helper.make_tensor_value_info('go', TensorProto.BOOL, []), value('s')])
    nodes = [node('Twice', ['x', 'w0'], ['h'], domain='own', name='call'), branch, node('Loop', ['three', 'yes', 'k'], ['l'], body=turn, name='loop'),
             node('Dense', ['l', 'w1'], ['logits'], domain='own', slope=0.3, name='head')]
    draw = np.random.default_rng(5)
    weights = [array((draw.standard_normal((8, 8)) * 0.4).astype('f4'), n) for n in ('w0', 'w1')]
    more = [array(np.array(True), 'yes'), array(np.array(False), 'no'), array(np.array(3, 'i8'), 'three'), array(np.full(8, 0.1, 'f4'), 'bias')]
    shaped = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ['batch', 8])
    g = helper.make_graph(nodes, 'g', [shaped('x')], [shaped('logits')], [*weights, *more])
    return helper.make_model(g, opset_imports=[helper.make_opsetid('', 17), helper.make_opsetid('own', 1)], functions=[dense, twice], ir_version=8)


def rename(g, was, to):
    for n in g.node:
        for i, x in enumerate(n.input):
            if x == was:
                n.input[i] = to
    for t in g.initializer:
        if t.name == was:
            t.name = to


def graphs_of(nodes):
    """Bodies, and bodies in them."""
    for n in nodes:
        for a in n.attribute:
            for g in [a.g] if a.HasField('g') else a.graphs:
                yield g
                yield from graphs_of(g.node)


def mutate_attribute(r, n):
    a = r.choice(n.attribute)
    if a.ints:
        a.ints[r.randrange(len(a.ints))] = r.choice(ODD_SIZES)
    elif a.HasField('g') and r.random() < 0.5:
        a.g.CopyFrom(r.choice([b.g for b in n.attribute if b.HasField('g')]))
    else:
        a.i, a.f = r.choice(ODD_SIZES), r.choice([0.0, -1.0, float('nan'), float('inf'), 1e-45])


def mutate_nodes(r, nodes, known):
    """A node of the graph, of a body or of a function."""
    n, kind = r.choice(nodes), r.choice(['attr', 'edge', 'drop', 'twice', 'op', 'output', 'domain'])
    if kind == 'attr' and n.attribute:
        mutate_attribute(r, n)
    elif kind == 'edge' and n.input:
        n.input[r.randrange(len(n.input))] = r.choice([*known, *(x for k in nodes for x in [*k.input, *k.output]), ''])
    elif kind == 'drop':
        nodes.remove(n)
    elif kind == 'twice':
        nodes.add().CopyFrom(n)
    elif kind == 'op':
        n.op_type = r.choice(OPS)
    elif kind == 'output':
        n.output.append(r.choice(['', 'another', n.output[0] if n.output else 'o']))
    elif kind == 'domain':
        n.domain = r.choice(['', 'own', 'ai.onnx.ml', 'com.microsoft', 'x' * 1000])


def mutate_function(r, m):
    f, kind = r.choice(m.functions), r.choice(['name', 'input', 'output', 'twice', 'drop', 'self', 'attribute', 'opset'])
    if kind == 'name':
        f.name, f.domain = r.choice(['Relu', 'Dense', '', 'Twice']), r.choice(['', 'own'])
    elif kind in ('input', 'output'):
        names = getattr(f, kind)
        if names and r.random() < 0.5:
            del names[r.randrange(len(names))]
        else:
            names.append(r.choice(['', 'a', 'nobody', 't']))
    elif kind == 'twice':
        m.functions.add().CopyFrom(f)
    elif kind == 'drop':
        m.functions.remove(f)
    elif kind == 'self' and f.node:
        n = r.choice(f.node)
        n.op_type, n.domain = f.name, f.domain
    elif kind == 'attribute':
        f.attribute.append(r.choice(['slope', 'other', '']))
    elif kind == 'opset' and f.opset_import:
        r.choice(f.opset_import).version = r.choice([0, 1, 9, 17, 99, 2 ** 40])


def mutate_body(r, g):
    kind, where = r.choice(['less', 'more', 'input', 'type', 'init']), g.output
    if kind == 'less' and where:
        del where[r.randrange(len(where))]
    elif kind == 'more':
        where.add().CopyFrom(helper.make_tensor_value_info(r.choice(['r', 'nobody', 'x']), TensorProto.FLOAT, None))
    elif kind == 'input':
        g.input.add().CopyFrom(helper.make_tensor_value_info(r.choice(['h', 'more', 's']), TensorProto.FLOAT, None))
    elif kind == 'type' and where:
        r.choice(where).type.tensor_type.elem_type = r.randrange(0, 24)
    elif kind == 'init' and g.initializer:
        mutate_initializer(r, r.choice(g.initializer))


def mutate_initializer(r, t):
    if r.random() < 0.5 and t.dims:
        t.dims[r.randrange(len(t.dims))] = r.choice(ODD_SIZES)
    else:
        t.raw_data = t.raw_data[:r.randrange(len(t.raw_data) + 1)]


def mutate(r, m, names, texts):
    """Once; names and texts are odd ones."""
    g, inside = m.graph, list(graphs_of(m.graph.node))
    kind = r.choice(['type', 'shape', 'nodes', 'nodes', 'nodes', 'name', 'init', 'external', 'function', 'body', 'within'])
    if kind == 'type':
        r.choice(g.input).type.tensor_type.elem_type = r.randrange(0, 24)
    elif kind == 'shape':
        dims = r.choice(g.input).type.tensor_type.shape.dim
        if dims:
            r.choice(dims).dim_value = r.choice(ODD_SIZES)
    elif kind == 'name':
        rename(g, r.choice(g.initializer).name, r.choice(names))
    elif kind == 'init':
        mutate_initializer(r, r.choice(g.initializer))
    elif kind == 'external':
        t = r.choice(g.initializer)
        t.data_location = TensorProto.EXTERNAL
        t.external_data.add(key='location', value=r.choice(['none.bin', '.', '/dev/zero', '../x', 'm.onnx']))
        t.external_data.add(key=r.choice(['offset', 'length']), value=r.choice(texts))
    elif kind == 'function' and m.functions:
        mutate_function(r, m)
    elif kind == 'body' and inside:
        mutate_body(r, r.choice(inside))
    else:
        places = [g.node, *(b.node for b in inside), *(f.node for f in m.functions)] if kind == 'within' else [g.node]
        nodes = r.choice([p for p in places if p] or [None])
        if nodes is not None:
            mutate_nodes(r, nodes, [x for k in g.node for x in [*k.input, *k.output]])
