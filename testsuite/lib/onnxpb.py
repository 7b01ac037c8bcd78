"""Just enough of protobuf's wire format to read ONNX test data (TensorProto files) without the onnx package."""
import struct
import numpy as np

DTYPES = {1: '<f4', 2: '<u1', 3: '<i1', 4: '<u2', 5: '<i2', 6: '<i4', 7: '<i8', 9: '?', 10: '<f2', 11: '<f8',
          12: '<u4', 13: '<u8', 16: 'bf16'}


def varint(b, i):
    x = s = 0
    while True:
        c = b[i]
        i += 1
        x |= (c & 127) << s
        s += 7
        if c < 128:
            return x, i


def fields(b):
    """(field number, wire type, value) of a message; a value is an int or bytes."""
    i = 0
    while i < len(b):
        key, i = varint(b, i)
        f, w = key >> 3, key & 7
        if w == 0:
            v, i = varint(b, i)
        elif w == 1:
            v, i = b[i:i + 8], i + 8
        elif w == 2:
            n, i = varint(b, i)
            v, i = b[i:i + n], i + n
        elif w == 5:
            v, i = b[i:i + 4], i + 4
        else:
            raise ValueError(f'wire type {w}')
        yield f, w, v


def encode(x):
    out = bytearray()
    while True:
        out.append((x & 127) | (128 if x > 127 else 0))
        x >>= 7
        if not x:
            return bytes(out)


def field(number, value):
    """One field on the wire: an int as varint, bytes with their length."""
    if isinstance(value, int):
        return encode(number << 3) + encode(value)
    return encode(number << 3 | 2) + encode(len(value)) + value


def packed(v, w):
    """The ints of a repeated varint field, packed or not."""
    if w == 0:
        return [v]
    out, i = [], 0
    while i < len(v):
        x, i = varint(v, i)
        out.append(x)
    return out


def signed(x):
    return x - (1 << 64) if x >> 63 else x


def bf16(bits):
    return (bits.astype('<u4') << 16).view('<f4')


def tensor(path):
    """(name, array) of a TensorProto file; bf16 comes as f32. ValueError for strings and other messages."""
    return parse_tensor(open(path, 'rb').read())


def parse_tensor(b):
    dims, dtype, raw, name = [], 0, None, ''
    floats, ints, doubles, uints = [], [], [], []
    for f, w, v in fields(b):
        if f == 1:
            dims += [signed(x) for x in packed(v, w)]
        elif f == 2 and w == 0:
            dtype = v
        elif f == 4:
            floats.append(v)
        elif f in (5, 7):
            ints += [signed(x) for x in packed(v, w)]
        elif f == 8 and w == 2:
            name = v.decode(errors='replace')
        elif f == 9:
            raw = v
        elif f == 10:
            doubles.append(v)
        elif f == 11:
            uints += packed(v, w)
    if dtype not in DTYPES:
        raise ValueError(f'element type {dtype}')
    t = DTYPES[dtype]
    if raw is not None:
        a = bf16(np.frombuffer(raw, '<u2')) if t == 'bf16' else np.frombuffer(raw, t)
    elif floats:
        a = np.frombuffer(b''.join(floats), '<f4').astype(t)
    elif doubles:
        a = np.frombuffer(b''.join(doubles), '<f8').astype(t)
    elif t == '<f2':
        a = np.array(ints, '<u2').view('<f2')
    elif t == 'bf16':
        a = bf16(np.array(ints, '<u2'))
    else:
        a = np.array(uints or ints).astype(t)
    return name, a.reshape(dims)


def elem_type(info):
    """The element type of a ValueInfoProto of a tensor; 0: another kind."""
    for k, _, kind in fields(info):
        for j, _, tensor in fields(kind) if k == 2 else []:
            if j == 1:
                return next((x for i, _, x in fields(tensor) if i == 1), 0)
    return 0


def model_facts(path):
    """{'opset': n, 'ops': [...], 'inputs': [...], 'initializers': [...], 'outputs': [...]} of a ModelProto."""
    out = {'opset': 0, 'ops': [], 'inputs': [], 'initializers': [], 'outputs': [], 'domains': set(), 'values': {}, 'half': False}
    for f, w, v in fields(open(path, 'rb').read()):
        if f == 8 and w == 2:
            d = {k: x for k, _, x in fields(v)}
            if not d.get(1):
                out['opset'] = d.get(2, 0)
        elif f == 7 and w == 2:
            for g, gw, gv in fields(v):
                if gw != 2:
                    continue
                if g == 1:
                    n = {}
                    for k, _, x in fields(gv):
                        n.setdefault(k, x)
                    out['ops'].append(n.get(4, b'').decode())
                    if n.get(7):
                        out['domains'].add(n[7].decode())
                elif g in (11, 12):
                    name = next((x.decode() for k, _, x in fields(gv) if k == 1), '')
                    out['half'] |= elem_type(gv) in (10, 16)
                    out['inputs' if g == 11 else 'outputs'].append(name)
                elif g == 5:
                    name = next((x.decode() for k, _, x in fields(gv) if k == 8), '')
                    out['initializers'].append(name)
                    try:
                        out['values'][name] = parse_tensor(gv)[1]
                    except ValueError:      # strings
                        pass
    return out


def nodes(path):
    """[(op, [inputs], [outputs])] of a ModelProto's graph, in order."""
    out = []
    for f, w, v in fields(open(path, 'rb').read()):
        for g, gw, gv in fields(v) if f == 7 and w == 2 else []:
            if g == 1:
                n = list(fields(gv))
                text = lambda k: [x.decode() for i, _, x in n if i == k]
                out.append(((text(4) or [''])[0], text(1), text(2)))
    return out


def settings(path):
    """Names of what Resize and Upsample read as roi and scales."""
    out = set()
    for f, w, graph in fields(open(path, 'rb').read()):
        for g, x, node in fields(graph) if f == 7 and w == 2 else []:
            if g == 1 and x == 2:
                parts = list(fields(node))
                ins = [v.decode(errors='replace') for k, _, v in parts if k == 1]
                if any(k == 4 and v in (b'Resize', b'Upsample') for k, _, v in parts):
                    out.update(ins[1:])
    return out


def constants(path):
    """{output: array} of the Constant nodes."""
    out = {}
    for f, w, v in fields(open(path, 'rb').read()):
        for g, gw, gv in fields(v) if f == 7 and w == 2 else []:
            n = list(fields(gv)) if g == 1 else []
            if not any(i == 4 and x == b'Constant' for i, _, x in n):
                continue
            for i, _, x in n:
                for a, aw, av in fields(x) if i == 5 else []:
                    if a == 5 and aw == 2:
                        out[next(y.decode() for k, _, y in n if k == 2)] = parse_tensor(av)[1]
    return out
