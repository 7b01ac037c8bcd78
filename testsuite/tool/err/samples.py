"""Files of samples, whole and of kinds that pdcc does not read."""
import gzip, io, json, pickle, struct, zipfile


def npy(shape, descr='<f4', fortran=False):
    head = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': ({', '.join(map(str, shape))},), }}\n".encode()
    n = int(descr[2:])
    for d in shape:
        n *= d
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(head)) + head + bytes(n)


def with_value(data, at, code, value):
    """The file with its element number `at` replaced."""
    size = struct.calcsize(code)
    start = len(data) - 64 * size if code == '<q' else len(data) - 64 * 784 * size
    return data[:start + at * size] + struct.pack(code, value) + data[start + (at + 1) * size:]


def idx(shape):
    n = 1
    for d in shape:
        n *= d
    return bytes([0, 0, 8, len(shape)]) + b''.join(struct.pack('>I', d) for d in shape) + bytes(n)


def archive(name):
    out = io.BytesIO()
    with zipfile.ZipFile(out, 'w') as z:
        z.writestr(name, b'x' * 100)
    return out.getvalue()


def safetensors():
    """Two tensors, none of them an input."""
    head = json.dumps({n: {'dtype': 'F32', 'shape': [2], 'data_offsets': [8 * i, 8 * i + 8]} for i, n in enumerate(('pixels', 'y'))}).encode()
    return struct.pack('<Q', len(head)) + head + bytes(16)


KINDS = {
    'images-idx': lambda: idx((64, 28, 28)),
    'images-npy': lambda: npy((64, 1, 28, 28)),
    'images-flat': lambda: npy((64, 784)),
    'images-other': lambda: npy((64, 14, 56)),
    'images-cut': lambda: npy((64, 1, 28, 28))[:-4],
    'images-fortran': lambda: npy((64, 1, 28, 28), fortran=True),
    'images-392': lambda: npy((64, 392)),
    'images-double': lambda: npy((64, 1, 28, 28), '<f8'),
    'images-nhwc': lambda: npy((16, 48, 48, 3)),
    'labels-64': lambda: npy((64,), '<i8'),
    'labels-outside': lambda: with_value(npy((64,), '<i8'), 37, '<q', 10),
    'labels-negative': lambda: with_value(npy((64,), '<i8'), 5, '<q', -1),
    'labels-least': lambda: with_value(npy((64,), '<i8'), 5, '<q', -2 ** 63),
    'labels-last': lambda: with_value(npy((64,), '<i8'), 63, '<q', 9),
    'images-nan': lambda: with_value(npy((64, 1, 28, 28)), 3 * 784 + 5, '<f', float('nan')),
    'images-infinite': lambda: with_value(npy((64, 1, 28, 28)), 3 * 784 + 5, '<f', float('inf')),
    'images-none': lambda: npy((0, 1, 28, 28)),
    'labels-60': lambda: npy((60,), '<i8'),
    'labels-16': lambda: npy((16,), '<i8'),
    'labels-real': lambda: npy((64,), '<f4'),
    'numbers': lambda: bytes((i * 7919) % 251 for i in range(784 * 4)),
    'parquet': lambda: b'PAR1' + bytes(100) + b'PAR1',
    'npz': lambda: archive('x.npy'),
    'torch': lambda: archive('archive/data.pkl'),
    'pickle': lambda: pickle.dumps([1.0] * 9, 4),
    'gzip': lambda: gzip.compress(idx((64, 28, 28)), mtime=0),
    'hdf5': lambda: b'\x89HDF\r\n\x1a\n' + bytes(100),
    'safetensors-others': safetensors,
}
