"""What the measured runs train: Fashion-MNIST, pictures made of it in a hundred classes, and nets small enough for two cores.

CIFAR-like: a piece of clothing of ten, shifted, mirrored and tinted in one of ten hues, over a coloured pattern with noise, 32 x 32 x 3;
its class is the piece and its hue. Nets as ONNX models that end in logits; pdcc adds the loss."""
import colorsys
import gzip
import os

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

import pdcctest as T

FASHION = '/usr/share/datasets/fashion-mnist'


def fashion(part):
    """Images [N, 28, 28] and labels of 'train' or 't10k'."""
    if not os.path.isdir(FASHION):
        raise T.Failed('%s is absent (Debian: dataset-fashion-mnist)' % FASHION)
    with gzip.open('%s/%s-images-idx3-ubyte.gz' % (FASHION, part)) as x, gzip.open('%s/%s-labels-idx1-ubyte.gz' % (FASHION, part)) as y:
        return np.frombuffer(x.read()[16:], np.uint8).reshape(-1, 28, 28), np.frombuffer(y.read()[8:], np.uint8).astype(np.int64)


def mnist_like(count, part, seed):
    """`count` images as rows of 784, in an order of their own."""
    x, y = fashion(part)
    order = np.random.default_rng(seed).permutation(len(x))[:count]
    return ((x[order].reshape(-1, 784) / np.float32(255) - np.float32(0.286)) / np.float32(0.353)), y[order]


def cifar_like(count, part, seed):
    """[count, 3, 32, 32] and labels 0..99."""
    x, y = fashion(part)
    r = np.random.default_rng(seed)
    order, hue = r.permutation(len(x))[:count], r.integers(0, 10, count)
    out = np.empty((count, 3, 32, 32), np.float32)
    across, down = np.meshgrid(np.linspace(-1, 1, 32), np.linspace(-1, 1, 32))
    for i, k in enumerate(order):
        tint = np.array(colorsys.hsv_to_rgb((hue[i] + r.normal(0, 0.2)) / 10 % 1, r.uniform(0.5, 1), 1))
        ground = r.uniform(0, 0.6, 3)[:, None, None] * (1 + 0.5 * np.sin(r.uniform(2, 6) * across + r.uniform(2, 6) * down + r.uniform(0, 6)))
        image = np.pad(x[k] / 255.0, 2)[:, ::r.choice((-1, 1))]
        image = np.roll(image, tuple(r.integers(-2, 3, 2)), (0, 1))
        out[i] = ground * (1 - image) + tint[:, None, None] * image + r.normal(0, 0.1, (3, 32, 32))
    return ((out - 0.5) / 0.4).astype(np.float32), y[order] * 10 + hue


# nets: layers ('conv', channels, kernel, pool or 0), ('fc', width); ReLU between them
MLP = [('fc', 500), ('fc', 500), ('fc', 10)]
CNN = [('conv', 16, 5, 2), ('conv', 16, 5, 2), ('conv', 32, 5, 2), ('fc', 64), ('fc', 100)]             # three and two, as CIFAR100-CNN
VGG = [*(('conv', n, 3, pool) for n in (16, 32, 48) for pool in (0, 2)), ('fc', 384), ('fc', 384), ('fc', 100)]   # most weights at its end


def weights(net, shape, seed):
    """{name: array} by He's rule; what a last layer has is smaller."""
    r, out, (c, h) = np.random.default_rng(seed), {}, (shape[0], shape[-1])
    for i, (kind, n, *rest) in enumerate(net):
        if kind == 'conv':
            size, fan, h, c, flat = (n, c, rest[0], rest[0]), c * rest[0] ** 2, h // (rest[1] or 1), n, None
        else:
            fan = c * h * h if i and net[i - 1][0] == 'conv' else c
            size, c = (fan, n), n
        out['w%d' % i] = (r.standard_normal(size) * np.sqrt((1 if i + 1 == len(net) else 2) / fan)).astype(np.float32)
        out['b%d' % i] = np.zeros(n, np.float32)
    return out


def model(path, net, shape):
    """A net on images of `shape` without the batch, as an ONNX file; shape (784,): rows."""
    given, nodes, x = weights(net, shape, 1), [], 'x'
    for i, (kind, n, *rest) in enumerate(net):
        w, b, z = 'w%d' % i, 'b%d' % i, 'z%d' % i
        if kind == 'conv':
            nodes.append(helper.make_node('Conv', [x, w, b], [z], name='layer%d' % i, pads=[rest[0] // 2] * 4, kernel_shape=[rest[0]] * 2))
        else:
            if i and net[i - 1][0] == 'conv':
                nodes.append(helper.make_node('Flatten', [x], ['flat'], name='flat'))
                x = 'flat'
            nodes.append(helper.make_node('Gemm', [x, w, b], [z], name='layer%d' % i))
        x = z
        if i + 1 < len(net):
            nodes.append(helper.make_node('Relu', [x], ['a%d' % i], name='bend%d' % i))
            x = 'a%d' % i
        if kind == 'conv' and rest[1]:
            nodes.append(helper.make_node('MaxPool', [x], ['p%d' % i], name='pool%d' % i, kernel_shape=[rest[1]] * 2, strides=[rest[1]] * 2))
            x = 'p%d' % i
    info = helper.make_tensor_value_info
    g = helper.make_graph(nodes, 'net', [info('x', TensorProto.FLOAT, ['batch', *shape])], [info(x, TensorProto.FLOAT, ['batch', net[-1][1]])],
                          [numpy_helper.from_array(v, k) for k, v in given.items()])
    save(helper.make_model(g, opset_imports=[helper.make_opsetid('', 17)], ir_version=8), path)
    return path


def evaluations(build):
    """[(step, accuracy in %)] of a run's eval.txt."""
    rows = [line.split() for line in open(os.path.join(T.results(build), 'eval.txt')) if line.strip()]
    return [(int(w[0]), 100 * float(w[3]) / float(w[4])) for w in rows if w[0].isdigit()]
