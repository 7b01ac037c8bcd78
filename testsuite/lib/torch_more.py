"""More models of the kinds that users bring (import/exports), small: each function of models() gives a module that returns its loss, or
its logits where the loss is 'ce'."""
import copy
import math
import torch
import torch.nn as nn
import torch.nn.functional as F


def img(px, c=3): return lambda g, n: torch.randn(n, c, px, px, generator=g)
def lab(k, *s): return lambda g, n: torch.randint(0, k, (n, *s), generator=g)
def flt(*s): return lambda g, n: torch.randn(n, *s, generator=g)
def unif(*s): return lambda g, n: torch.rand(n, *s, generator=g)


def models():
    """{name: dict of fn, loss, batch, lr}, as in ../shared/data/exports/export.py"""
    M = {}
    def model(inputs, labels=None, loss=None, batch=4, lr=0.05):
        def reg(make):
            M[make.__name__] = dict(fn=lambda: (make(), inputs, labels or {}), loss=loss, batch=batch, lr=lr)
            return make
        return reg
    class L(nn.Module):     # of these parts; its forward gives the loss
        def __init__(self, **mods):
            super().__init__()
            for k, v in mods.items(): setattr(self, k, v)

    @model(dict(x=img(16, 2), y=lab(3, 16, 16)))
    def unet_up():
        class M(L):
            def forward(self, x, y):
                a = self.d1(x); b = self.d2(F.max_pool2d(a, 2)); c = self.d3(F.avg_pool2d(b, 2))
                b = self.u1(torch.cat([F.interpolate(c, scale_factor=2, mode='bilinear', align_corners=False), b], 1))
                a = self.u2(torch.cat([self.up(b), a], 1))
                p = a.softmax(1)[:, 1:]
                t = F.one_hot(y, 3).permute(0, 3, 1, 2).float()[:, 1:]
                dice = 1 - (2 * (p * t).sum((2, 3)) + 1) / (p.sum((2, 3)) + t.sum((2, 3)) + 1)
                return F.cross_entropy(a, y) + dice.mean()
        def cb(i, o): return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(2, o), nn.SiLU())
        return M(d1=cb(2, 4), d2=cb(4, 8), d3=cb(8, 8), u1=cb(16, 8), up=nn.ConvTranspose2d(8, 4, 2, 2), u2=nn.Conv2d(8, 3, 1))

    @model(dict(x=unif(12), e=flt(3)))
    def vae_reparam():
        class M(L):
            def forward(self, x, e):
                mu, lv = self.enc(x).chunk(2, -1)
                z = mu + e * (0.5 * lv).exp()
                r = F.binary_cross_entropy(torch.sigmoid(self.dec(z)), x, reduction='sum') / len(x)
                return r - 0.5 * (1 + lv - mu.pow(2) - lv.exp()).sum(-1).mean()
        return M(enc=nn.Sequential(nn.Linear(12, 8), nn.GELU(), nn.Linear(8, 6)), dec=nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 12)))

    @model(dict(z=flt(6)))
    def gan_generator_frozen_d():
        class M(L):
            def forward(self, z):
                x = self.g(z)
                return F.binary_cross_entropy_with_logits(self.d(x), torch.ones(z.shape[0], 1))
        g = nn.Sequential(nn.Linear(6, 32), nn.Unflatten(1, (8, 2, 2)), nn.ConvTranspose2d(8, 4, 4, 2, 1), nn.InstanceNorm2d(4, affine=True), nn.ReLU(), nn.ConvTranspose2d(4, 1, 4, 2, 1), nn.Tanh())
        d = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 1))
        for p in d.parameters(): p.requires_grad_(False)
        return M(g=g, d=d)

    @model(dict(x=flt(5, 8), y=lab(3)))
    def moe_topk():
        class M(L):
            def forward(self, x, y):
                s = self.gate(x).softmax(-1)
                w, i = s.topk(2, -1)
                w = w / w.sum(-1, keepdim=True)
                full = torch.zeros_like(s).scatter(-1, i, w)
                out = torch.stack([e(x) for e in self.ex], -1)
                h = (out * full.unsqueeze(-2)).sum(-1)
                load = F.one_hot(i, 4).float().sum(-2).mean((0, 1))
                return F.cross_entropy(self.o(h.mean(1)), y) + 0.01 * 4 * (load * s.mean((0, 1))).sum()
        return M(gate=nn.Linear(8, 4), ex=nn.ModuleList([nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 8)) for _ in range(4)]), o=nn.Linear(8, 3))

    @model(dict(x=flt(5, 8), y=lab(3)))
    def moe_dense_masked():
        class M(L):
            def forward(self, x, y):
                s = self.gate(x).softmax(-1)
                top = s.argmax(-1)
                h = torch.zeros_like(x)
                for k, e in enumerate(self.ex):
                    h = h + e(x) * torch.where(top == k, s[..., k], torch.zeros_like(s[..., k])).unsqueeze(-1)
                return F.cross_entropy(self.o(h.mean(1)), y)
        return M(gate=nn.Linear(8, 4), ex=nn.ModuleList([nn.Linear(8, 8) for _ in range(4)]), o=nn.Linear(8, 3))

    @model(dict(x=flt(12, 8), y=lab(3)))
    def conformer():
        class Conv(L):
            def forward(self, x):
                h = self.n(x).transpose(1, 2)
                h = F.glu(self.p1(h), 1)
                h = F.silu(self.bn(self.dw(h)))
                return self.p2(h).transpose(1, 2)
        class M(L):
            def forward(self, x, y):
                x = x + 0.5 * self.f1(x)
                q = self.na(x); x = x + self.a(q, q, q, need_weights=False)[0]
                x = x + self.c(x)
                x = self.no(x + 0.5 * self.f2(x))
                return F.cross_entropy(self.o(x.mean(1)), y)
        ff = lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.SiLU(), nn.Dropout(0.0), nn.Linear(16, 8))
        return M(f1=ff(), f2=ff(), na=nn.LayerNorm(8), a=nn.MultiheadAttention(8, 2, batch_first=True), no=nn.LayerNorm(8), o=nn.Linear(8, 3),
                 c=Conv(n=nn.LayerNorm(8), p1=nn.Conv1d(8, 16, 1), dw=nn.Conv1d(8, 8, 5, padding=2, groups=8), bn=nn.BatchNorm1d(8), p2=nn.Conv1d(8, 8, 1)))

    @model(dict(x=flt(1, 20), y=lab(5, 20)))
    def wavenet():
        class M(L):
            def forward(self, x, y):
                h, skip = self.i(x), 0
                for k, (f, r) in enumerate(zip(self.f, self.r)):
                    d = 2 ** k
                    a, b = f(F.pad(h, (d, 0))).chunk(2, 1)
                    z = torch.tanh(a) * torch.sigmoid(b)
                    s = r(z); skip = skip + s; h = h + s
                return F.cross_entropy(self.o(F.relu(skip)), y)
        return M(i=nn.Conv1d(1, 6, 1), f=nn.ModuleList([nn.Conv1d(6, 12, 2, dilation=2 ** k) for k in range(3)]), r=nn.ModuleList([nn.Conv1d(6, 6, 1) for k in range(3)]), o=nn.Conv1d(6, 5, 1))

    @model(dict(x=flt(6, 5), y=lab(3, 6)))
    def gat_fixed():
        class M(L):
            def __init__(self, **k):
                super().__init__(**k)
                adj = (torch.rand(6, 6) < 0.4) | torch.eye(6).bool()
                self.register_buffer('adj', adj)
                self.al, self.ar = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(2, 4))
            def forward(self, x, y):
                h = self.w(x).view(-1, 6, 2, 4)
                e = (h * self.al).sum(-1).unsqueeze(2) + (h * self.ar).sum(-1).unsqueeze(1)
                e = F.leaky_relu(e, 0.2).masked_fill(~self.adj[None, :, :, None], float('-inf'))
                a = e.softmax(2)
                h = torch.einsum('bijh,bjhd->bihd', a, h).flatten(2)
                return F.cross_entropy(self.o(F.elu(h)).transpose(1, 2), y)
        return M(w=nn.Linear(5, 8, bias=False), o=nn.Linear(8, 3))

    @model(dict(x=flt(6, 5), y=lab(3, 6)))
    def gnn_edge_index():
        class M(L):
            def __init__(self, **k):
                super().__init__(**k)
                self.register_buffer('src', torch.tensor([0, 1, 2, 3, 4, 5, 0, 2])); self.register_buffer('dst', torch.tensor([1, 2, 3, 4, 5, 0, 3, 5]))
            def forward(self, x, y):
                m = self.m(x[:, self.src])
                h = torch.zeros_like(x).index_add(1, self.dst, m)
                h2 = torch.zeros_like(x).scatter_reduce(1, self.dst[None, :, None].expand(x.shape[0], -1, 5), m, 'amax', include_self=False)
                return F.cross_entropy(self.o(torch.cat([h, h2, x], -1)).transpose(1, 2), y)
        return M(m=nn.Linear(5, 5), o=nn.Linear(15, 3))

    @model(dict(x=flt(10)))
    def tied_autoencoder():
        class M(L):
            def forward(self, x):
                h = torch.relu(self.e(x))
                return F.mse_loss(F.linear(h, self.e.weight.t(), self.b), x) + 1e-3 * h.abs().mean() + 1e-4 * sum(p.pow(2).sum() for p in self.parameters())
        m = M(e=nn.Linear(10, 4)); m.b = nn.Parameter(torch.zeros(10)); return m

    @model(dict(x=img(8), y=lab(4)))
    def weight_norm():
        from torch.nn.utils.parametrizations import weight_norm as wn
        class M(L):
            def forward(self, x, y): return F.cross_entropy(self.m(x), y)
        return M(m=nn.Sequential(wn(nn.Conv2d(3, 4, 3)), nn.ELU(), nn.Flatten(), wn(nn.Linear(144, 4))))

    @model(dict(x=img(8), y=flt(1)))
    def spectral_norm_eval():
        from torch.nn.utils.parametrizations import spectral_norm as sn
        class M(L):
            def forward(self, x, y): return F.relu(1 - y * self.m(x)).mean()
        m = M(m=nn.Sequential(sn(nn.Conv2d(3, 4, 3)), nn.LeakyReLU(0.1), nn.Flatten(), sn(nn.Linear(144, 1))))
        return m

    @model(dict(x=img(8), y=img(16, 1)))
    def pixel_shuffle_sr():
        class M(L):
            def forward(self, x, y):
                h = self.i(x)
                for r in self.r: h = h + r(h)
                o = F.pixel_shuffle(self.o(h), 2)
                return torch.sqrt((o - y) ** 2 + 1e-6).mean() + F.l1_loss(F.pixel_unshuffle(o, 2), F.pixel_unshuffle(y, 2))
        return M(i=nn.Conv2d(3, 6, 3, padding=1, padding_mode='reflect'), r=nn.ModuleList([nn.Sequential(nn.Conv2d(6, 6, 3, padding=1, padding_mode='replicate'), nn.PReLU(6), nn.Conv2d(6, 6, 3, padding=1, padding_mode='circular')) for _ in range(2)]), o=nn.Conv2d(6, 4, 3, padding=1))

    @model(dict(x=lab(11, 7), y=lab(4, 7)))
    def bigru_stacked():
        class M(L):
            def forward(self, x, y):
                h, s = self.r(self.e(x)); g, _ = self.l(h)
                return F.cross_entropy(self.o(g).transpose(1, 2), y) + 0.1 * s.pow(2).mean()
        return M(e=nn.Embedding(11, 6), r=nn.GRU(6, 5, 2, batch_first=True, bidirectional=True), l=nn.LSTM(10, 4, bidirectional=True, batch_first=True), o=nn.Linear(8, 4))

    @model(dict(x=flt(7, 6), y=lab(4)))
    def rnn_cells():
        class M(L):
            def forward(self, x, y):
                h = x.new_zeros(x.shape[0], 5); c = torch.zeros(x.shape[0], 5); g = torch.zeros_like(h)
                for t in range(7):
                    h, c = self.a(x[:, t], (h, c)); g = self.b(h, g)
                return F.nll_loss(F.log_softmax(self.o(g), -1), y)
        return M(a=nn.LSTMCell(6, 5), b=nn.GRUCell(5, 5), o=nn.Linear(5, 4))

    @model(dict(x=flt(7, 6), y=lab(4)))
    def lstm_learnt_h0_time_major():
        class M(L):
            def forward(self, x, y):
                h0 = self.h0.expand(-1, x.shape[0], -1).contiguous(); c0 = self.c0.repeat(1, x.shape[0], 1)
                o, (h, c) = self.l(x.transpose(0, 1), (h0, c0))
                return F.cross_entropy(self.o(torch.cat([h[-1], c[0], o[-1]], -1)), y)
        m = M(l=nn.LSTM(6, 5, 2), o=nn.Linear(15, 4)); m.h0 = nn.Parameter(torch.randn(2, 1, 5)); m.c0 = nn.Parameter(torch.randn(2, 1, 5)); return m

    class RMS(nn.Module):
        def __init__(self, d): super().__init__(); self.w = nn.Parameter(torch.ones(d))
        def forward(self, x): return self.w * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)

    @model(dict(x=lab(17, 8), y=lab(17, 8)))
    def llama_gqa_real_rope():
        class M(L):
            def rope(self, x):
                t = torch.arange(x.shape[1]); f = 10000 ** (-torch.arange(0, 4, 2) / 4); a = torch.outer(t, f); a = torch.cat([a, a], -1)[None, :, None]
                x1, x2 = x.chunk(2, -1)
                return x * a.cos() + torch.cat([-x2, x1], -1) * a.sin()
            def forward(self, x, y):
                h = self.e(x); n = self.n1(h); B, T = x.shape
                q, k, v = self.q(n).unflatten(-1, (4, 4)), self.k(n).unflatten(-1, (2, 4)), self.v(n).unflatten(-1, (2, 4))
                q, k = self.rope(q), self.rope(k)
                a = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True)
                h = h + self.o(a.transpose(1, 2).flatten(2)); n = self.n2(h)
                h = h + self.w2(F.silu(self.w1(n)) * self.w3(n))
                lo = F.linear(h, self.e.weight)
                return F.cross_entropy(lo[:, :-1].reshape(-1, 17), y[:, 1:].reshape(-1)) + 1e-4 * lo.logsumexp(-1).pow(2).mean()
        li = lambda a, b: nn.Linear(a, b, bias=False)
        return M(e=nn.Embedding(17, 16), n1=RMS(16), n2=RMS(16), q=li(16, 16), k=li(16, 8), v=li(16, 8), o=li(16, 16), w1=li(16, 24), w2=li(24, 16), w3=li(16, 24))

    @model(dict(x=lab(13, 8), y=lab(13, 8)))
    def alibi():
        class M(L):
            def forward(self, x, y):
                h = self.e(x); B, T = x.shape
                q, k, v = self.qkv(h).reshape(B, T, 3, 2, 4).permute(2, 0, 3, 1, 4)
                pos = torch.arange(T)
                bias = -(pos[:, None] - pos[None]).abs() * torch.tensor([0.5, 0.25])[:, None, None]
                s = q @ k.mT / math.sqrt(4) + bias
                s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), torch.finfo(s.dtype).min)
                h = h + self.o((s.softmax(-1) @ v).transpose(1, 2).reshape(B, T, 8))
                return F.cross_entropy(self.head(h).permute(0, 2, 1), y, ignore_index=0)
        return M(e=nn.Embedding(13, 8, scale_grad_by_freq=False), qkv=nn.Linear(8, 24), o=nn.Linear(8, 8), head=nn.Linear(8, 13))

    @model(dict(s=lab(13, 6), t=lab(13, 5), y=lab(13, 5)))
    def cross_decoder():
        class M(L):
            def forward(self, s, t, y):
                mem = self.enc(self.e(s), src_key_padding_mask=(s == 0))
                m = nn.Transformer.generate_square_subsequent_mask(5)
                o = self.dec(self.e(t), mem, tgt_mask=m, memory_key_padding_mask=(s == 0), tgt_is_causal=True)
                return F.cross_entropy(self.o(o).flatten(0, 1), y.flatten())
        return M(e=nn.Embedding(13, 8, padding_idx=0), enc=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 1),
                 dec=nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True, activation='gelu'), 2), o=nn.Linear(8, 13))

    @model(dict(a=flt(6), p=flt(6), n=flt(6), s=flt()))
    def metric_losses():
        class M(L):
            def forward(self, a, p, n, s):
                a, p, n = self.m(a), self.m(p), self.m(n)
                return F.triplet_margin_loss(a, p, n) + F.cosine_embedding_loss(a, p, s.sign()) + F.margin_ranking_loss(a.sum(1), n.sum(1), s.sign(), margin=0.1) \
                    + F.hinge_embedding_loss((a - n).norm(dim=1), s.sign()) + (1 - F.cosine_similarity(a, p)).mean() + F.pairwise_distance(a, p).mean()
        return M(m=nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 4)))

    @model(dict(x=flt(5, 6), y=lab(4, 5)))
    def ce_module_weight():
        class M(L):
            def forward(self, x, y): return self.c(self.m(x).transpose(1, 2), y)
        return M(m=nn.Sequential(nn.Linear(6, 8), nn.CELU(), nn.Linear(8, 4)), c=nn.CrossEntropyLoss(weight=torch.tensor([1., 2., .5, .1]), ignore_index=1))

    @model(dict(x=flt(6), y=flt(3)))
    def bce_pos_weight():
        class M(L):
            def forward(self, x, y):
                t = (y > 0).float()
                return self.c(self.m(x), t) + F.multilabel_soft_margin_loss(self.m(x), t)
        return M(m=nn.Sequential(nn.Linear(6, 8), nn.Hardtanh(), nn.Linear(8, 3)), c=nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1., 2., 3.])))

    @model(dict(x=flt(6), y=flt(6)))
    def ema_teacher():
        class M(L):
            def forward(self, x, y):
                s = F.normalize(self.s(x), dim=-1)
                with torch.no_grad(): t = F.normalize(self.t(y), dim=-1)
                return (2 - 2 * (s * t).sum(-1)).mean()
        s = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)); t = copy.deepcopy(s)
        for p in t.parameters(): p.requires_grad_(False)
        with torch.no_grad(): t[0].weight.mul_(0.7)
        return M(s=s, t=t)

    @model(dict(x=lab(11, 5), y=lab(3)))
    def lora():
        class LoRA(nn.Module):
            def __init__(self, base, r=2):
                super().__init__(); self.base = base.requires_grad_(False)
                self.a = nn.Parameter(torch.randn(r, base.in_features) * .3); self.b = nn.Parameter(torch.randn(base.out_features, r) * .1)
            def forward(self, x): return self.base(x) + (x @ self.a.T @ self.b.T) * 2.0
        class M(L):
            def forward(self, x, y): return F.cross_entropy(self.h(torch.tanh(self.l2(torch.tanh(self.l1(self.e(x))))).mean(1)), y)
        e = nn.Embedding(11, 6); e.weight.requires_grad_(False)
        return M(e=e, l1=LoRA(nn.Linear(6, 8)), l2=LoRA(nn.Linear(8, 8)), h=nn.Linear(8, 3))

    @model(dict(x=flt(6), y=flt(2)))
    def ste_detach_qat():
        class M(L):
            def q(self, w):
                s = w.detach().abs().max() / 7
                return w + (torch.clamp((w / s).round(), -8, 7) * s - w).detach()
            def forward(self, x, y): return F.mse_loss(F.linear(torch.tanh(F.linear(x, self.q(self.m.weight), self.m.bias)), self.q(self.o.weight), self.o.bias), y)
        return M(m=nn.Linear(6, 5), o=nn.Linear(5, 2))

    @model(dict(x=img(8, 1), y=lab(3)))
    def stn_grid_sample():
        class M(L):
            def forward(self, x, y):
                th = self.loc(x.flatten(1)).view(-1, 2, 3)
                x = F.grid_sample(x, F.affine_grid(th, list(x.shape), align_corners=False), align_corners=False)
                return F.cross_entropy(self.o(x.flatten(1)), y)
        loc = nn.Linear(64, 6); nn.init.normal_(loc.weight, std=0.01); loc.bias.data.copy_(torch.tensor([1., 0.1, 0, -.1, 1, 0.]))
        return M(loc=loc, o=nn.Linear(64, 3))

    @model(dict(x=flt(3, 4, 5), y=lab(3)))
    def einsum_heavy():
        class M(L):
            def __init__(self, **k):
                super().__init__(**k); self.a = nn.Parameter(torch.randn(3, 4, 6) * .3); self.b = nn.Parameter(torch.randn(5, 6, 2) * .3); self.c = nn.Parameter(torch.randn(6, 6) * .3)
            def forward(self, x, y):
                h = torch.einsum('bijk,ijl->blk', x, self.a); s = torch.einsum('blk,klm,lp->bpm', h, self.b, self.c)
                t = torch.einsum('bii->b', torch.einsum('blk,bmk->blm', h, h)) * 0.1
                return F.cross_entropy(self.o(s.flatten(1)) + t[:, None] * torch.arange(3), y)
        return M(o=nn.Linear(12, 3))

    @model(dict(x=flt(8, 6), y=flt(8, 6)))
    def fnet_fft():
        class M(L):
            def forward(self, x, y):
                h = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
                h = self.n(x + h); return F.mse_loss(h + self.f(h), y)
        return M(n=nn.LayerNorm(6), f=nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6)))

    @model(dict(x=flt(6), y=lab(3)))
    def checkpointed():
        from torch.utils.checkpoint import checkpoint
        class M(L):
            def forward(self, x, y):
                return F.cross_entropy(self.o(checkpoint(self.m, x, use_reentrant=False)), y)
        return M(m=nn.Sequential(nn.Linear(6, 8), nn.Tanh()), o=nn.Linear(8, 3))

    @model(dict(x=img(8), y=lab(3)))
    def se_depthwise_dyn():
        class M(L):
            def forward(self, x, y):
                h = F.hardswish(self.c(x)); h = h * F.hardsigmoid(self.s(h.mean((2, 3), keepdim=True)))
                h = self.dw(h); h = F.dropout(h, 0.0, self.training); h = F.lp_pool2d(h.abs() + .1, 2, 2)
                return F.cross_entropy(self.o(torch.flatten(h, 1)), y, reduction='sum') / x.shape[0]
        return M(c=nn.Conv2d(3, 6, 3, 2, 1, bias=False), s=nn.Conv2d(6, 6, 1), dw=nn.Conv2d(6, 6, 3, padding=1, groups=6), o=nn.Linear(24, 3))

    @model(dict(u=lab(7), i=lab(9), n=lab(9, 3)))
    def bpr_negative():
        class M(L):
            def forward(self, u, i, n):
                a = self.u(u); pos = (a * self.i(i)).sum(-1); neg = torch.bmm(self.i(n), a.unsqueeze(-1)).squeeze(-1)
                return -F.logsigmoid(pos[:, None] - neg).mean() + 1e-3 * (a ** 2).sum() / u.size(0)
        return M(u=nn.Embedding(7, 4), i=nn.Embedding(9, 4, padding_idx=0))

    @model(dict(x=lab(20, 6), y=lab(20)))
    def word2vec_cbow():
        class M(L):
            def forward(self, x, y): return self.ls(self.o(self.e(x)), y)
        return M(e=nn.EmbeddingBag(20, 5, mode='mean'), o=nn.Linear(5, 20), ls=nn.CrossEntropyLoss())

    @model(dict(x=lab(20, 6), y=lab(20)))
    def embedding_bag_padding():
        class M(L):
            def forward(self, x, y): return F.cross_entropy(self.o(self.e(x)), y)
        return M(e=nn.EmbeddingBag(20, 5, mode='sum', padding_idx=0), o=nn.Linear(5, 20))

    @model(dict(x=flt(6, 8), y=lab(3)))
    def perceiver_latents():
        class M(L):
            def __init__(self, **k): super().__init__(**k); self.z = nn.Parameter(torch.randn(1, 3, 8)); self.cls = nn.Parameter(torch.randn(8))
            def forward(self, x, y):
                z = self.z.expand(x.size(0), -1, -1)
                z = z + self.a(z, x, x)[0]
                t = torch.cat([self.cls.expand(len(x), 1, 8), z], 1)
                t, w = self.b(t, t, t, average_attn_weights=False)
                return F.cross_entropy(self.o(t[:, 0]), y) + 0.1 * -(w * (w + 1e-9).log()).sum(-1).mean()
        return M(a=nn.MultiheadAttention(8, 2, batch_first=True, kdim=8, vdim=8), b=nn.MultiheadAttention(8, 4, batch_first=True, bias=False, add_bias_kv=False), o=nn.Linear(8, 3))

    @model(dict(x=img(8, 4), y=lab(3)))
    def window_attention_roll():
        class M(L):
            def __init__(self, **k):
                super().__init__(**k); self.t = nn.Parameter(torch.randn(49, 2) * .1)
                c = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(4), indexing='ij')).flatten(1); r = c[:, :, None] - c[:, None]
                self.register_buffer('idx', ((r[0] + 3) * 7 + r[1] + 3))
            def forward(self, x, y):
                x = torch.roll(x.permute(0, 2, 3, 1), (-2, -2), (1, 2)); B = x.shape[0]
                w = x.view(B, 2, 4, 2, 4, 4).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, 4)
                q, k, v = self.qkv(w).view(-1, 16, 3, 2, 2).permute(2, 0, 3, 1, 4).unbind(0)
                a = (q @ k.transpose(-2, -1) + self.t[self.idx.view(-1)].view(16, 16, 2).permute(2, 0, 1).unsqueeze(0)).softmax(-1)
                o = (a @ v).transpose(1, 2).reshape(B, 64, 4)
                return F.cross_entropy(self.o(o.mean(1)), y)
        return M(qkv=nn.Linear(4, 12), o=nn.Linear(4, 3))

    @model(dict(x=flt(6), t=unif(1)))
    def pinn_like_siren():
        class M(L):
            def forward(self, x, t):
                h = torch.sin(30 * self.a(torch.cat([x, t], 1))); h = torch.sin(self.b(h))
                return (self.o(h) - torch.cos(t) * torch.exp(-x[:, :1] ** 2)).square().mean()
        return M(a=nn.Linear(7, 8), b=nn.Linear(8, 8), o=nn.Linear(8, 1))

    @model(dict(x=img(8, 3)))
    def vqvae():
        class M(L):
            def forward(self, x):
                z = self.e(x).permute(0, 2, 3, 1); f = z.reshape(-1, 4)
                d = f.pow(2).sum(1, keepdim=True) - 2 * f @ self.k.weight.t() + self.k.weight.pow(2).sum(1)
                q = self.k(d.argmin(1)).view(z.shape)
                l = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(q.detach(), z)
                q = z + (q - z).detach()
                return l + F.mse_loss(self.d(q.permute(0, 3, 1, 2)), x)
        return M(e=nn.Sequential(nn.Conv2d(3, 4, 4, 2, 1), nn.ReLU(), nn.Conv2d(4, 4, 3, 1, 1)), k=nn.Embedding(10, 4), d=nn.ConvTranspose2d(4, 3, 4, 2, 1))

    @model(dict(x=flt(5), a=lab(3), adv=flt(), old=unif()))
    def ppo_gauss():
        class M(L):
            def forward(self, x, a, adv, old):
                d = torch.distributions.Categorical(logits=self.pi(x))
                r = (d.log_prob(a) - old.log()).exp()
                s = torch.min(r * adv, r.clamp(0.8, 1.2) * adv)
                n = torch.distributions.Normal(self.mu(x), self.ls.exp())
                return -s.mean() - 0.01 * d.entropy().mean() - 0.01 * n.log_prob(adv[:, None]).mean()
        m = M(pi=nn.Linear(5, 3), mu=nn.Linear(5, 1)); m.ls = nn.Parameter(torch.zeros(1)); return m

    @model(dict(x=flt(1, 12), y=lab(3)))
    def filters_trainable_conv_func():
        class M(L):
            def __init__(self, **k): super().__init__(**k); self.lo = nn.Parameter(torch.linspace(1, 3, 4)); self.register_buffer('n', torch.arange(-2., 3.))
            def forward(self, x, y):
                k = torch.sinc(self.lo[:, None] * self.n / 3)[:, None]
                h = F.conv1d(x, k, stride=2); h = F.max_pool1d(h, 2)
                return F.cross_entropy(self.o(h.flatten(1)), y)
        return M(o=nn.Linear(8, 3))

    @model(dict(x=flt(64), y=lab(3)))
    def spectrogram():
        class M(L):
            def __init__(self, **k): super().__init__(**k); self.register_buffer('w', torch.hann_window(12))
            def forward(self, x, y):
                z = torch.stft(self.a(x), 16, 4, 12, self.w, return_complex=True)
                return F.cross_entropy(self.o((z.real ** 2 + z.imag ** 2 + 1e-3).log().flatten(1)), y)
        return M(a=nn.Linear(64, 64), o=nn.Linear(9 * 17, 3))

    @model(dict(x=flt(12), t=flt(12)))
    def fourier_operator():     # FNO: a spectrum's low part by weights of its own
        class M(L):
            def __init__(self, **k): super().__init__(**k); self.w = nn.Parameter(torch.randn(4, 2) * .3)
            def forward(self, x, t):
                z = torch.fft.rfft(self.a(x))
                low = torch.complex(z.real[:, :4] * self.w[:, 0] - z.imag[:, :4] * self.w[:, 1], z.real[:, :4] * self.w[:, 1] + z.imag[:, :4] * self.w[:, 0])
                return F.mse_loss(torch.fft.irfft(torch.cat([low, z[:, 4:]], 1), 12) + self.b(x), t)
        return M(a=nn.Linear(12, 12), b=nn.Linear(12, 12))

    @model(dict(x=flt(6), y=unif(6)))
    def soft_targets():
        class M(L):
            def forward(self, x, y): return F.cross_entropy(self.a(x), y.softmax(1)) + F.kl_div(self.a(x).log_softmax(1), y.softmax(1), reduction='sum')
        return M(a=nn.Linear(6, 6))

    @model(dict(x=flt(9, 4), m=lab(2, 9), y=lab(3)))
    def masked_mean_pool():
        class M(L):
            def forward(self, x, m, y):
                h = self.l(x) * m.unsqueeze(-1); h = h.sum(1) / m.sum(1, keepdim=True).clamp(min=1)
                b = torch.where(m.bool().unsqueeze(-1), self.l(x), torch.tensor(-1e4)).max(1).values
                return F.cross_entropy(self.o(h) + self.p(b.clamp(min=-3)), y)
        return M(l=nn.Linear(4, 5), o=nn.Linear(5, 3), p=nn.Linear(5, 3))

    @model(dict(x=img(8, 1)), lr=0.01)
    def mae_gather():
        class M(L):
            def __init__(self, **k): super().__init__(**k); self.register_buffer('perm', torch.randperm(16)); self.mask = nn.Parameter(torch.zeros(1, 1, 8)); self.pos = nn.Parameter(torch.randn(16, 8) * .1, requires_grad=False)
            def forward(self, x):
                p = F.unfold(x, 2, stride=2).transpose(1, 2)
                h = (self.e(p) + self.pos)[:, self.perm[:6]]
                h = self.b(h); full = torch.cat([h, self.mask.expand(x.shape[0], 10, 8)], 1)[:, torch.argsort(self.perm)]
                o = self.d(full + self.pos)
                m = torch.ones(16).index_fill(0, self.perm[:6], 0.0)
                return (((o - p) ** 2).mean(-1) * m).sum() / m.sum() / x.shape[0]
        return M(e=nn.Linear(4, 8), b=nn.TransformerEncoderLayer(8, 2, 16, 0., batch_first=True), d=nn.Linear(8, 4))

    @model(dict(x=flt(6)), dict(labels=lab(3)), loss='ce')
    def kan_spline():
        class M(L):
            def __init__(self, **k): super().__init__(**k); self.register_buffer('grid', torch.linspace(-2, 2, 8)); self.c = nn.Parameter(torch.randn(3, 6, 8) * .1)
            def forward(self, x):
                phi = torch.exp(-((x[..., None] - self.grid) / 0.5) ** 2)
                return torch.einsum('bik,oik->bo', phi, self.c) + self.b(F.silu(x))
        return M(b=nn.Linear(6, 3))
    return M
