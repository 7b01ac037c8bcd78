#!/usr/bin/python3
"""bench_torch.py gpt2|gpt2_plain|resnet50|mlp|lstm_lm eager|compile: ms of a training step in PyTorch on the GPU, as the benchmarks of pack.py have
it: the same network, batch, precision and optimizer (SGD; AdamW for GPT-2), f32 without TF32. A line `torch VERSION KIND: N ms a step, ...`."""
import statistics, sys, time
import torch
from torch import nn
import torch.nn.functional as F

WARM, BLOCKS, STEPS = 10, 7, 20


class Block(nn.Module):
    def __init__(self, width, heads, rate):
        super().__init__()
        self.rate = rate
        self.a, self.b, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(rate)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = (y.view(n, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.a(x)).split(w, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.rate)
        x = x + self.drop(self.proj(y.transpose(1, 2).reshape(n, t, w)))
        return x + self.drop(self.out(F.gelu(self.fc(self.b(x)), approximate='tanh')))


class Gpt2(nn.Module):
    def __init__(self, rate=0.1, width=768, heads=12, layers=12, words=50257, most=1024):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(most, width)
        self.body = nn.Sequential(nn.Dropout(rate), *(Block(width, heads, rate) for _ in range(layers)), nn.LayerNorm(width))

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        return self.body(x) @ self.wte.weight.t()


def resnet50():
    class Bottleneck(nn.Module):
        def __init__(self, i, mid, stride):
            super().__init__()
            o, conv, norm = 4 * mid, nn.Conv2d, nn.BatchNorm2d
            self.a = nn.Sequential(conv(i, mid, 1, bias=False), norm(mid), nn.ReLU(True), conv(mid, mid, 3, stride, 1, bias=False),
                                   norm(mid), nn.ReLU(True), conv(mid, o, 1, bias=False), norm(o))
            self.b = nn.Identity() if i == o else nn.Sequential(conv(i, o, 1, stride, bias=False), norm(o))

        def forward(self, x):
            return torch.relu(self.a(x) + self.b(x))
    layers, i = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)], 64
    for k, count in enumerate((3, 4, 6, 3)):
        for j in range(count):
            layers.append(Bottleneck(i, 64 << k, 2 if k and not j else 1))
            i = 256 << k
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000))


def mlp():
    return nn.Sequential(nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 500), nn.ReLU(), nn.Linear(500, 10))


class LstmLm(nn.Module):
    def __init__(self, words=10000, width=650):
        super().__init__()
        self.emb, self.body, self.out = nn.Embedding(words, width), nn.LSTM(width, width, 2), nn.Linear(width, words)

    def forward(self, ids):
        return self.out(self.body(self.emb(ids))[0])


def timed(net, x, y, half, kind, adam):
    """ms of a step: loss (compiled with the network), gradients, update; samples come from pinned memory of the host in every step, as
    ours do. The host waits once in STEPS steps, the first ones (compiling, choosing algorithms) do not count; the median of BLOCKS."""
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=True) if adam else torch.optim.SGD(net.parameters(), lr=0.001, fused=kind == 'compile' or None)

    def loss_of(x, y):
        with torch.autocast('cuda', torch.bfloat16, enabled=half):
            return F.cross_entropy(net(x).flatten(0, -2), y.flatten())
    of = torch.compile(loss_of) if kind == 'compile' else loss_of

    def step():
        opt.zero_grad(set_to_none=True)
        loss = of(x.to('cuda', non_blocking=True), y.to('cuda', non_blocking=True))
        loss.backward()
        opt.step()
        return loss
    ms = []
    for _ in range(WARM):
        step()
    for _ in range(BLOCKS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(STEPS):
            loss = step()
        torch.cuda.synchronize()
        ms.append((time.perf_counter() - start) * 1e3 / STEPS)
    return statistics.median(ms), float(loss)


def main():
    name, kind = sys.argv[1:]
    if not torch.cuda.is_available():
        sys.exit('no GPU for PyTorch')
    torch.manual_seed(1)
    gpt2 = name.startswith('gpt2')
    half = gpt2 or name == 'resnet50'
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False         # f32 is f32, as with us
    net = {'gpt2': Gpt2, 'gpt2_plain': lambda: Gpt2(0.0), 'resnet50': resnet50, 'mlp': mlp, 'lstm_lm': LstmLm}[name]().cuda().train()
    if gpt2:
        x, y, per, unit = torch.randint(0, 50257, (8, 1024)), torch.randint(0, 50257, (8, 1024)), 8192, 'tokens'
    elif name == 'resnet50':
        net = net.to(memory_format=torch.channels_last)
        x, y, per, unit = torch.randn(128, 3, 224, 224).to(memory_format=torch.channels_last), torch.randint(0, 1000, (128,)), 128, 'images'
    elif name == 'lstm_lm':
        x, y, per, unit = torch.randint(0, 10000, (35, 20)), torch.randint(0, 10000, (35, 20)), 700, 'tokens'
    else:
        x, y, per, unit = torch.randn(512, 784), torch.randint(0, 10, (512,)), 512, 'samples'
    ms, loss = timed(net, x.pin_memory(), y.pin_memory(), half, kind, gpt2)
    print(f'torch {torch.__version__} {kind}: {ms:.3f} ms a step, {per / ms * 1e3:.0f} {unit}/s, loss {loss:.4g}', flush=True)


if __name__ == '__main__':
    main()
