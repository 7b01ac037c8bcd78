"""What testsuite/bench times: models as PyTorch modules, with a batch of theirs.

MODELS: name -> (module maker, shape of the batch, numbers that an id may have (0: the batch is of floats), classes, labels per
position). Without Dropout, so that losses can be held against each other.
"""
import inspect
import math
import torch
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """Two 3x3 convolutions and what goes past them; a 1x1 convolution where sizes change."""
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside), nn.ReLU(),
                                  nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside))
        self.past = nn.Identity()
        if stride > 1 or inside != outside:
            self.past = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return F.relu(self.body(x) + self.past(x))


class Words(nn.Module):
    """Embedding, LSTM, scores of words."""
    def __init__(self, layers, vocabulary=10000, width=512):
        super().__init__()
        self.table, self.scores = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, x):
        return self.scores(self.lstm(self.table(x))[0])


class Layer(nn.Module):
    """One of a transformer: causal with norms in front (GPT), else with norms behind (BERT)."""
    def __init__(self, width, heads, length, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.back = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.register_buffer('hidden', torch.ones(length, length, dtype=torch.bool).triu(1))

    def attend(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        score = q @ k.transpose(2, 3) / math.sqrt(c // self.heads)
        if self.causal:
            score = score.masked_fill(self.hidden[:t, :t], -math.inf)
        return self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c))

    def spread(self, x):
        return self.back(F.gelu(self.wide(x), approximate='tanh' if self.causal else 'none'))

    def forward(self, x):
        if self.causal:
            x = x + self.attend(self.first(x))
            return x + self.spread(self.second(x))
        x = self.first(x + self.attend(x))
        return self.second(x + self.spread(x))


class Transformer(nn.Module):
    """Words and places, layers, scores by the table of words."""
    def __init__(self, vocabulary, length, layers, heads, width, causal):
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(*[Layer(width, heads, length, causal) for _ in range(layers)])
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=not causal)
        self.scores.weight = self.words.weight
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x):
        return self.scores(self.norm(self.layers(self.words(x) + self.places(torch.arange(x.shape[1])))))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


def cifar100():
    """Of Pipe-SGD."""
    layers, width = [], 3
    for out, pool in (32, nn.MaxPool2d), (32, nn.AvgPool2d), (64, nn.AvgPool2d):
        layers += [nn.Conv2d(width, out, 5, padding=2), nn.ReLU(), pool(3, 2, 1)]
        width = out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 64), nn.Linear(64, 100))


def resnet18():
    """For images of 32 x 32: it begins with a 3x3 convolution."""
    layers, width = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for out in 64, 128, 256, 512:
        layers += [Residual(width, out, 1 if out == 64 else 2), Residual(out, out, 1)]
        width = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def vgg16(side, classes):
    layers, width = [], 3
    for out, times in (64, 2), (128, 2), (256, 3), (512, 3), (512, 3):
        for _ in range(times):
            layers += [nn.Conv2d(width, out, 3, padding=1), nn.ReLU()]
            width = out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * (side // 32) ** 2, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
                         nn.Linear(4096, classes))


MODELS = {
    'mlp': (mlp, (100, 1, 28, 28), 0, 10, False),
    'lenet': (lenet, (64, 1, 28, 28), 0, 10, False),
    'cifar100': (cifar100, (100, 3, 32, 32), 0, 100, False),
    'resnet18': (resnet18, (32, 3, 32, 32), 0, 10, False),
    'vgg16_32': (lambda: vgg16(32, 10), (32, 3, 32, 32), 0, 10, False),
    'vgg16_224': (lambda: vgg16(224, 1000), (4, 3, 224, 224), 0, 1000, False),
    'lstm1': (lambda: Words(1), (20, 35), 10000, 10000, True),
    'lstm2': (lambda: Words(2), (20, 35), 10000, 10000, True),
    'gpt6': (lambda: Transformer(65, 256, 6, 6, 384, True), (8, 256), 65, 65, True),
    'bertmini': (lambda: Transformer(30522, 512, 4, 4, 256, False), (8, 128), 30522, 30522, True),
    'gpt2': (lambda: Transformer(50257, 1024, 12, 12, 768, True), (4, 64), 50257, 50257, True),
}


def build(name, batch=None):
    """(module, batch, labels), the same each time; of so many samples where `batch` says."""
    make, shape, ids, classes, each = MODELS[name]
    shape = (batch or shape[0], *shape[1:])
    torch.manual_seed(1)
    return (make(), torch.randint(ids, shape) if ids else torch.randn(shape),
            torch.randint(classes, shape if each else shape[:1]))


def export(net, x, path):
    """The module as an ONNX file for training, by whichever exporter makes the plainer graph."""
    newer = {'dynamo': False} if 'dynamo' in inspect.signature(torch.onnx.export).parameters else {}
    torch.onnx.export(net, (x,), path, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17, input_names=['x'],
                      output_names=['logits'], **newer)
