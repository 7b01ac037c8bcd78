"""Small modules, one for each thing that ONNX does not carry (import/exports). Each function gives a module in the modes it is trained
in, its inputs and its labels: name -> function of a generator and a number of samples."""
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, LR, MODELS = 4, 0.2, {}


def model(f):
    MODELS[f.__name__] = f
    return f


def floats(*s):
    return lambda g, n: torch.randn(n, *s, generator=g)


def ints(k, *s):
    return lambda g, n: torch.randint(0, k, (n, *s), generator=g)


def mlp(*widths):
    layers = [m for a, b in zip(widths, widths[1:]) for m in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


@model
def frozen():
    """Distillation: the teacher has requires_grad=False."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher, self.student = mlp(6, 8, 3), mlp(6, 8, 3)
            for p in self.teacher.parameters():
                p.requires_grad_(False)

        def forward(self, x, y):
            return F.cross_entropy(self.student(x), y) + F.mse_loss(self.student(x), self.teacher(x))
    return M(), dict(x=floats(6), y=ints(3)), {}


@model
def buffers():
    """A table of rotary frequencies, a mask and a normaliser are no parameters."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.v, self.o = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)
            self.register_buffer('inv_freq', 10000.0 ** (-torch.arange(4) / 4))
            self.register_buffer('mask', torch.full((6, 6), -1e4).triu(1))
            self.register_buffer('scale', torch.rand(8) + 0.5)

        def forward(self, x, y):
            a = torch.arange(6)[:, None] * self.inv_freq
            q = self.q(x * self.scale) * torch.cat([a.cos(), a.sin()], -1)
            w = torch.softmax(q @ x.transpose(1, 2) + self.mask, -1)
            return F.mse_loss(self.o(w @ self.v(x)), y)
    return M(), dict(x=floats(6, 8), y=floats(6, 1)), {}


@model
def detached():
    """A target under no_grad, and a factor that is detached."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.g = mlp(5, 8, 4), nn.Linear(5, 4)

        def forward(self, s0, a, r, s1):
            with torch.no_grad():
                t = r + 0.9 * self.q(s1).max(1)[0]
            g = torch.sigmoid(self.g(s0))
            q = (self.q(s0) * g.detach() + self.q(s0).detach() * g).gather(1, a).squeeze(1)
            return F.smooth_l1_loss(q, t)
    return M(), dict(s0=floats(5), a=ints(4, 1), r=floats(), s1=floats(5)), {}


@model
def padding():
    """An embedding with padding_idx that is tied to the head."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.l, self.head = nn.Embedding(7, 6, padding_idx=0), nn.Linear(6, 6), nn.Linear(6, 7)
            self.head.weight = self.e.weight

        def forward(self, x, y):
            return F.cross_entropy(self.head(torch.tanh(self.l(self.e(x)))).flatten(0, 1), y.flatten())
    return M(), dict(x=ints(7, 5), y=ints(7, 5)), {}


@model
def statistics():
    """One BatchNorm in mode eval beside one in mode train."""
    m = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = m

        def forward(self, x, y):
            return F.cross_entropy(self.m(x), y)
    net = M().train()
    net.m[1].running_mean.normal_(), net.m[1].running_var.uniform_(0.5, 2)
    net.m[1].eval()
    return net, dict(x=floats(2, 6, 6), y=ints(3)), {}


@model
def smoothed():
    """Labels that are smoothed, in two terms."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.m = mlp(6, 8, 3)

        def forward(self, x, y):
            return F.cross_entropy(self.m(x), y, label_smoothing=0.1) + F.cross_entropy(self.m(x * 2), y, label_smoothing=0.2)
    return M(), dict(x=floats(6), y=ints(3)), {}


@model
def bags():
    """Embeddings of bags of one length, summed and averaged."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.o = nn.EmbeddingBag(9, 4, mode='sum'), nn.EmbeddingBag(9, 4), nn.Linear(8, 1)

        def forward(self, i, k, y):
            return F.mse_loss(self.o(torch.cat([self.a(i), self.b(k)], 1)), y)
    return M(), dict(i=ints(9, 3), k=ints(9, 2), y=floats(1)), {}


@model
def equal_weights():
    """Parameters that begin equal (and that an optimizer of graphs would merge) are trained apart."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.o = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 2)
            self.n, self.k = nn.LayerNorm(5), nn.LayerNorm(5)
            with torch.no_grad():
                self.b.weight.copy_(self.a.weight)

        def forward(self, x, y):
            return F.cross_entropy(self.o(self.n(torch.tanh(self.a(x))) * self.k(self.b(x))), y)
    return M(), dict(x=floats(5), y=ints(2)), {}


@model
def recurrent():
    """An LSTM whose first state is zeros of the batch."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.r, self.o = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 2)

        def forward(self, x, y):
            return F.cross_entropy(self.o(self.r(x)[0][:, -1]), y)
    return M(), dict(x=floats(5, 4), y=ints(2)), {}


@model
def volumes():
    """Conv3d without a bias, for which the exporter writes one of zeros."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.c, self.o = nn.Conv3d(2, 3, 3, bias=False), nn.Linear(3, 2)

        def forward(self, x, y):
            return F.cross_entropy(self.o(torch.tanh(self.c(x)).mean((2, 3, 4))), y)
    return M(), dict(x=floats(2, 4, 4, 4), y=ints(2)), {}


@model
def mixed():
    """Tied weights, a detached branch in eval mode, an embedding whose padding is read, and a loss with ignored labels."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.b, self.o = nn.Embedding(6, 4, padding_idx=2), nn.BatchNorm1d(4), nn.Linear(4, 6, bias=False)
            self.o.weight = self.e.weight

        def forward(self, x, y):
            h = self.e(x)
            with torch.no_grad():
                level = self.b(h.mean(1)).relu()
            return F.cross_entropy(self.o(h * level[:, None] + h).flatten(0, 1), y.flatten(), ignore_index=2)
    m = M()
    m.b.eval()
    m.b.running_var.fill_(0.5)
    return m, dict(x=ints(6, 5), y=ints(6, 5)), {}


@model
def tiny_gpt():
    """A decoder of one block with learnt positions, a mask and a tied head."""
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.p, self.n = nn.Embedding(11, 8), nn.Parameter(torch.randn(6, 8) * 0.1), nn.LayerNorm(8)
            self.qkv, self.o, self.head = nn.Linear(8, 24), nn.Linear(8, 8), nn.Linear(8, 11, bias=False)
            self.head.weight = self.e.weight
            self.register_buffer('mask', torch.ones(6, 6).tril().bool(), persistent=False)

        def forward(self, x, y):
            h = self.e(x) + self.p
            q, k, v = self.qkv(self.n(h)).view(x.shape[0], 6, 3, 2, 4).permute(2, 0, 3, 1, 4)
            w = (q @ k.transpose(-1, -2) / 2).masked_fill(~self.mask, float('-inf')).softmax(-1)
            h = h + self.o((w @ v).transpose(1, 2).flatten(2))
            return F.cross_entropy(self.head(h).flatten(0, 1), y.flatten())
    return M(), dict(x=ints(11, 6), y=ints(11, 6)), {}
