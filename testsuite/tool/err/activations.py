"""ONNX models whose activations and bit operators have settings or operands that fit nothing, or an opset without them."""
from indexing import model

KINDS = {
    'celu-zero': lambda: model('Celu', 'x', alpha=0.0),
    'gelu-how': lambda: model('Gelu', 'x', approximate='erf', opset=20),
    'elu-two': lambda: model('Elu', 'x', 'x'),
    'elu-alpha': lambda: model('Elu', 'x', alpha='1'),
    'softplus-integers': lambda: model('Softplus', [1, 2]),
    'prelu-slope': lambda: model('PRelu', 'x', ('w', (3, 8, 4))),
    'prelu-one': lambda: model('PRelu', 'x'),
    'hardmax-axis': lambda: model('Hardmax', 'x', axis=2 ** 63 - 1),
    'bitshift-way': lambda: model('BitShift', [1, 2], [1, 1], direction='UP'),
    'bitshift-signed': lambda: model('BitShift', [1, 2], [1, 1], direction='LEFT'),
    'bitwise-floats': lambda: model('BitwiseAnd', 'x', 'x', opset=18),
    'opset-newer': lambda: model('Gelu', 'x', opset=17),
    'opset-until': lambda: model('Upsample', 'x', [1, 2], opset=10),
    'clip-bounds': lambda: model('Clip', 'x', [0], [1]),
}
