"""Small ONNX models, written field by field: what no exporter would write."""
import struct


def varint(x):
    out = bytearray()
    while x > 127:
        out.append(x & 127 | 128)
        x >>= 7
    return bytes(out) + bytes([x])


def field(n, value):
    """An int as varint, bytes with their length."""
    if isinstance(value, int):
        return varint(n << 3) + varint(value)
    return varint(n << 3 | 2) + varint(len(value)) + value


def number(n, f):
    return bytes([n << 3 | 5]) + struct.pack('<f', f)


def attribute(name, value):
    """AttributeProto: the kind is that of the Python value; a list of ints or floats is INTS or FLOATS."""
    wide = lambda i: i & (1 << 64) - 1
    b = field(1, name.encode())
    if isinstance(value, float):
        return b + number(2, value) + field(20, 1)
    if isinstance(value, int):
        return b + field(3, wide(value)) + field(20, 2)
    if isinstance(value, str):
        return b + field(4, value.encode()) + field(20, 3)
    if value and isinstance(value[0], float):
        return b + b''.join(number(7, f) for f in value) + field(20, 6)
    return b + b''.join(field(8, wide(i)) for i in value) + field(20, 7)


def value_info(name, shape):
    dims = b''.join(field(1, field(1, d)) for d in shape)
    return field(1, name.encode()) + field(2, field(1, field(1, 1) + field(2, dims)))


def weight(name, shape, location=None, value=0.5):
    """A TensorProto of floats, all `value`, or one whose data lies in another file."""
    n = 1
    for d in shape:
        n *= d
    b = b''.join(field(1, d) for d in shape) + field(2, 1) + field(8, name.encode())
    if location is None:
        return b + field(9, struct.pack('<f', value) * n)
    return b + field(13, field(1, b'location') + field(2, location.encode())) + field(14, 1)


def node(op, inputs, outputs, **attributes):
    b = b''.join(field(1, i.encode()) for i in inputs) + b''.join(field(2, o.encode()) for o in outputs)
    return b + field(3, b'node') + field(4, op.encode()) + b''.join(field(5, attribute(k, v)) for k, v in attributes.items())


def in_module(node, *scopes):
    """The node as PyTorch's newer exporter writes it: with the modules that were open, by their whole names, and the call."""
    return node + field(9, field(1, b'pkg.torch.onnx.name_scopes') + field(2, repr(list(scopes)).encode()))


def graph(nodes, weights, x, y, opset=14, outputs=None, **more):
    """A model of these NodeProtos and TensorProtos from input x (and more inputs) to output y, given by their shapes."""
    g = b''.join(field(1, n) for n in nodes) + field(2, b'tiny') + b''.join(field(5, w) for w in weights)
    g += b''.join(field(11, value_info(n, s)) for n, s in {'x': x, **more}.items())
    g += b''.join(field(12, value_info(n, s)) for n, s in {'y': y, **(outputs or {})}.items())
    return field(1, 8) + field(7, g) + field(8, field(1, b'') + field(2, opset))


def model(op, x, w=None, y=(), location=None, **attributes):
    """y = op(x[, w]): shapes of x, of the parameter w and of y."""
    return graph([node(op, ['x', 'w'] if w else ['x'], ['y'], **attributes)], [weight('w', w, location)] if w else [], x, y)
