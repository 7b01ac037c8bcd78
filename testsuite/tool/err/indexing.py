"""ONNX models whose indices, axes and counts fit nothing."""
from tiny import graph, in_module, node, weight

FAR = 2 ** 63 - 1


def model(op, *operands, x=(8, 4), y=(8, 4), k=1, opset=14, scopes=None, **attributes):
    """y = op(operands): 'x' is the input, a list becomes a constant of integers, ('w', shape) a parameter."""
    nodes, weights, names = [], [], []
    for i, o in enumerate(operands):
        if isinstance(o, list):
            nodes.append(node('Constant', [], [f'c{i}'], value_ints=o))
            names.append(f'c{i}')
        elif isinstance(o, tuple):
            weights.append(weight(f'w{i}', o[1]))
            names.append(f'w{i}')
        else:
            names.append(o)
    last = node(op, names, ['y'] + [f'y{i}' for i in range(1, k)], **attributes)
    nodes.append(in_module(last, *scopes) if scopes else last)
    return graph(nodes, weights, x, y, opset)


KINDS = {
    'topk-k': lambda: model('TopK', 'x', [5], k=2),
    'topk-axis': lambda: model('TopK', 'x', [1], k=2, axis=FAR),
    'topk-two': lambda: model('TopK', 'x', [1, 2], k=2),
    'topk-open': lambda: model('TopK', 'x', 'x', k=2),
    'argmax-axis': lambda: model('ArgMax', 'x', axis=-FAR - 1),
    'cumsum-axis': lambda: model('CumSum', 'x', [FAR]),
    'in-module': lambda: model('CumSum', 'x', [FAR], scopes=['', 'blocks', 'blocks.3', 'blocks.3.down', 'cumsum_7']),
    'in-odd-module': lambda: model('CumSum', 'x', [FAR], scopes=['', "it's", 'cumsum']),
    'in-root': lambda: model('CumSum', 'x', [FAR], scopes=['', 'cumsum']),
    'in-no-module': lambda: model('CumSum', 'x', [FAR], scopes=['_empty_nn_module_stack_from_metadata_hook', 'cumsum']),
    'gather-elements-rank': lambda: model('GatherElements', 'x', [0, 1]),
    'gather-elements-float': lambda: model('GatherElements', 'x', 'x'),
    'gather-elements-range': lambda: model('GatherElements', 'x', [0, 4], x=(4,)),
    'gather-nd-batch': lambda: model('GatherND', 'x', [0, 1], batch_dims=FAR),
    'gather-nd-range': lambda: model('GatherND', 'x', [0, -5]),
    'gather-nd-many': lambda: model('GatherND', 'x', [0, 1, 0]),
    'scatter-reduction': lambda: model('ScatterElements', 'x', [0, 1], ('w', (2,)), x=(4,), reduction='median'),
    'scatter-updates': lambda: model('ScatterElements', 'x', [0, 1], ('w', (3,)), x=(4,)),
    'scatter-nd-updates': lambda: model('ScatterND', 'x', [1], ('w', (3,))),
    'one-hot-depth': lambda: model('OneHot', 'x', [FAR], [0, 1]),
    'one-hot-values': lambda: model('OneHot', 'x', [3], [0, 1, 2]),
    'reverse-axes': lambda: model('ReverseSequence', 'x', [1] * 8, batch_axis=FAR, time_axis=1),
    'reverse-lengths': lambda: model('ReverseSequence', 'x', [1, 2]),
    'nonzero-open': lambda: model('NonZero', 'x'),
    'depth-to-space-block': lambda: model('DepthToSpace', 'x', x=(2, 4, 2, 2), blocksize=FAR),
    'depth-to-space-mode': lambda: model('DepthToSpace', 'x', x=(2, 4, 2, 2), blocksize=2, mode='RGB'),
    'space-to-depth-block': lambda: model('SpaceToDepth', 'x', x=(2, 4, 3, 2), blocksize=2),
    'eye-like-dtype': lambda: model('EyeLike', 'x', dtype=FAR),
    'node-no-output': lambda: graph([node('Constant', [], ['c0'], value_ints=[8, 4]), node('Expand', ['x', 'c0'], []), node('Relu', ['x'], ['y'])],
                               [], (8, 4), (8, 4)),
    'div-by-zero': lambda: graph([node('Constant', [], ['c0'], value_ints=[3, 0, 1]), node('Constant', [], ['c1'], value_int=8),
                                 node('Div', ['c1', 'c0'], ['c2']), node('Expand', ['x', 'c2'], ['y'])], [], (8, 4), (8, 4)),
    'mod-by-zero': lambda: graph([node('Constant', [], ['c0'], value_int=0), node('Cast', ['x'], ['i'], to=6), node('Mod', ['x', 'c0'], ['y'])],
                                 [], (8, 4), (8, 4)),
    'tile-wraps': lambda: model('Tile', 'x', [2 ** 61, 1]),
    'split-wraps': lambda: model('Split', 'x', [FAR, FAR, 6], k=3, axis=1),
    'eye-like-rank': lambda: model('EyeLike', 'x', x=(8,)),
}
