"""GPT-like models on up to 10,000 devices: Megatron-LM's tables of throughput (Narayanan et al. 2021, Efficient large-scale language model
training on GPU clusters), and what limits each point of weak and strong scaling."""
import math

from core import Cell, Table, write

# Fitted: what matrix products reach on its A100s, from 174.6B on 384 of them. The rest is published: memory and links of a DGX A100,
# bytes that a layer's other operations read and write (activations as Korthikanti et al. 2022 count them, each written and read once).
KERNELS = 195e12
MEMORY, INSIDE, HOST, ROOM = 2.039e12, 300e9, 200e9, 80e9
WORDS, SYMBOLS, FREE = 2048, 51200, 1e16

LARGEST = '1934.7B'
# width, layers, heads of a model
MODELS = {'1.7B': (2304, 24, 24), '3.6B': (3072, 30, 32), '7.5B': (4096, 36, 32), '18.4B': (6144, 40, 48), '39.1B': (8192, 48, 64),
          '76.1B': (10240, 60, 80), '145.6B': (12288, 80, 96), '174.6B': (12288, 96, 96), '310.1B': (16384, 96, 128),
          '529.6B': (20480, 105, 128), '1008.0B': (25600, 128, 160), LARGEST: (32768, 150, 256)}
# model, devices of a group, stages, devices, sequences, TFLOP/s of a device
WEAK = [('1.7B', 1, 1, 32, 512, 137), ('3.6B', 2, 1, 64, 512, 138), ('7.5B', 4, 1, 128, 512, 142), ('18.4B', 8, 1, 256, 1024, 135),
        ('39.1B', 8, 2, 512, 1536, 138), ('76.1B', 8, 4, 1024, 1792, 140), ('145.6B', 8, 8, 1536, 2304, 148),
        ('310.1B', 8, 16, 1920, 2160, 155), ('529.6B', 8, 35, 2520, 2520, 163), ('1008.0B', 8, 64, 3072, 3072, 163)]
STRONG = [('174.6B', 8, 12, 384, 1536, 153), ('174.6B', 8, 12, 768, 1536, 149), ('174.6B', 8, 12, 1536, 1536, 141),
          ('529.6B', 8, 35, 560, 2240, 171), ('529.6B', 8, 35, 1120, 2240, 167), ('529.6B', 8, 35, 2240, 2240, 159)]


def parameters(model):
    width, count, _ = MODELS[model]
    return 12 * count * width * width * (1 + 13 / (12 * width) + (SYMBOLS + WORDS) / (12 * count * width))


def layers(model, group):
    """[(forward s, backward s, bytes handed on, bytes of parameters)] of one sequence, as a group of devices shares them: products and
    most of what lies between them an equal part each, but normalisations, dropouts and their sums all of it. Backwards begin with the
    forward again, as the paper trains."""
    width, count, heads = MODELS[model]
    shared = (24 * WORDS * width ** 2 + 4 * WORDS ** 2 * width) / KERNELS + 2 * (24 * WORDS * width + 5 * heads * WORDS ** 2) / MEMORY
    f, head, act = shared + group * 2 * 10 * WORDS * width / MEMORY, 2 * WORDS * width * SYMBOLS / KERNELS, 2 * WORDS * width
    return [(1e-6, 1e-6, act, 2 * SYMBOLS * width), *[(f, 3 * f, act, 24 * width ** 2)] * count, (head, 2 * head, 4, 1)]


def profile(p, model, group):
    return write(p, [['x%d' % i, 'layer%d' % i, 1e3 * f, 1e3 * b, act, par] for i, (f, b, act, par) in enumerate(layers(model, group))])


def ask(p, model, group, depth, devices, sequences, between=HOST, inside=INSIDE, parts=1):
    """Equal replicas of so many stages; 2 + 2 sums among a group, and 2 when the forward is done again: 3 each way."""
    each = min(8, devices)
    a = p.ask('plan-profile', profile(p, model, group), '--planner', 'auto', '--json', '--workers', '%d,%d' % (each, devices // each),
              '--bandwidth', '%g,%g' % (inside, between), '--microbatches', sequences, '--tensor', group, '--tensor-sums', 3, '--state', 6,
              '--zero', int(model == LARGEST), '--schedule', 'interleaved:%d' % parts if parts > 1 else '1f1b',
              '--evaluate', '-'.join([str(devices // group // depth)] * (depth * parts)))
    return a['evaluate']


def step(*args):
    return ask(*args)['step_s']


def flops(model, sequences):
    """The paper's count, equation (3): a forward twice, a backward."""
    width, count, _ = MODELS[model]
    return 96 * sequences * WORDS * count * width ** 2 * (1 + WORDS / (6 * width) + SYMBOLS / (16 * count * width))


def speed(p, point, parts=1):
    return flops(point[0], point[4]) / ask(p, *point[:5], parts=parts)['step_s'] / point[3] / 1e12


def parts_of(point):
    """Parts of the model on a device: the least above one that come out even; one where there is no pipeline."""
    return next(v for v in (2, 3) if MODELS[point[0]][1] % (v * point[2]) == 0) if point[2] > 1 else 1


def fill(point, parts):
    """The share of a step that filling and draining take: (p - 1) / (v m + p - 1)."""
    _, group, depth, devices, sequences, _ = point
    return (depth - 1) / (parts * sequences * group * depth // devices + depth - 1)


def megatron(p):
    cells, plain = [], {x: speed(p, x) for x in WEAK + STRONG}
    got = {x: speed(p, x, parts_of(x)) for x in WEAK} | {x: plain[x] for x in STRONG}
    for x in WEAK + STRONG:
        cells.append(Cell('%s on %d' % (x[0], x[3]), 'TFLOP/s', x[5], got[x], '%.0f'))
    for x in STRONG:
        first = next(y for y in STRONG if y[0] == x[0])
        if x is not first:
            cells.append(Cell('%s on %d' % (x[0], x[3]), 'of that on %d %%' % first[3], 100 * x[5] / first[5], 100 * got[x] / got[first], '%.1f',
                              0.02))
    for x in WEAK:
        cells.append(Cell('%s on %d' % (x[0], x[3]), 'parameters B', float(x[0][:-1]), parameters(x[0]) / 1e9, '%.1f', 0.03))
    deep = [x for x in WEAK if x[2] > 1]
    for x in deep:
        cells.append(Cell('%s on %d' % (x[0], x[3]), 'interleaved / 1F1B', (1 - fill(x, parts_of(x))) / (1 - fill(x, 1)), got[x] / plain[x], '%.3f',
                          0.03))
    return Table('scaling-megatron', 'Megatron-LM: GPT models of 1.7B to 1T parameters on 32 to 3,072 A100s', 'Narayanan et al. 2021, Tables 1 and '
                 '2: TFLOP/s of a device, each model with the plan of the paper, layers computed from their shapes. Table 1 interleaves stages: '
                 'here 2 parts a device or 3, which come out even. Table 2 is strong scaling, at one batch, 1F1B. What interleaving gains, beside '
                 'the formula of its fill.', cells,
                 fitted=['%d TFLOP/s of matrix products, from 174.6B on 384 devices' % (KERNELS / 1e12)])


# ---- what limits a point ----

LIMITS = ('links between hosts', 'links in a host', 'fill and drain', 'what is not divided')


def micros(group, depth, devices, sequences):
    """(replicas, microbatches of the busiest)."""
    replicas = devices // group // depth
    return replicas, math.ceil(sequences / replicas)


def limits(p, model, group, depth, devices, sequences):
    """Shares in % of all devices' time: of computing, then of what limits it, each what a question without it gains; and seconds of the
    step as it is, without links between hosts, without any."""
    real, near, free = (step(p, model, group, depth, devices, sequences, *x) for x in ((), (FREE,), (FREE, FREE)))
    replicas, micro = micros(group, depth, devices, sequences)
    steady = (step(p, model, group, depth, devices, replicas * micro, FREE, FREE)
              - step(p, model, group, depth, devices, replicas * (micro - micro // 2), FREE, FREE)) / (micro // 2) * micro
    work = sum(f + b for f, b, _, _ in layers(model, 1)) * sequences / devices
    return [100 * x / real for x in (work, real - near, near - free, free - steady, steady - work)], (real, near, free)


def stages(p, model, group, depth, devices, sequences, inside):
    """[(forward s, backward s, bytes of parameters)] of a microbatch on a device of each stage, sums in its host counted."""
    ends = ask(p, model, group, depth, devices, sequences, FREE, inside)['ends']
    sums = 3 * 2 * (group - 1) / group / inside
    part = [(f / group + sums * act, b / group + sums * act, par / group) if par else (f, b, 0) for f, b, act, par in layers(model, group)]
    return [tuple(sum(x[k] for x in part[a:b]) for k in range(3)) for a, b in zip([0, *ends], ends)]


def closed(p, point, inside):
    """Seconds of 1F1B without links between hosts: the slowest stage is busy from the first microbatch that reaches it to the last."""
    each, micro = stages(p, *point, inside), micros(*point[1:])[1]
    return max(sum(f + b for f, b, _ in each[:i]) + micro * (x[0] + x[1]) for i, x in enumerate(each))


def exposed(p, point):
    """Least and most seconds that links between hosts may add where groups are hosts: the first stage's ring behind the last backward,
    which hides no more than itself; at most all of it, and each message between stages."""
    replicas, micro = micros(*point[1:])
    first, link = stages(p, *point, INSIDE)[0], HOST / point[1]
    ring = 2 * (replicas - 1) / replicas * first[2] / link
    return ring - first[1], ring + 2 * (micro + point[2] - 1) * layers(point[0], 1)[1][2] / link


def searched(p, devices):
    """Seconds of a step as pdcc plans it, groups of 8 said."""
    return p.ask('plan-profile', profile(p, '174.6B', 8), '--planner', 'auto', '--json', '--workers', '8,%d' % (devices // 8), '--bandwidth',
                 '%g,%g' % (INSIDE, HOST), '--microbatches', 1536, '--tensor', 8, '--tensor-sums', 3, '--state', 6, '--memory',
                 '%.0f' % ROOM)['auto']['step_s']


def strong(p, devices):
    """174.6B and 1,536 sequences: the fastest of groups and stages by hand that fit."""
    found = []
    for group in (2, 4, 8):
        for depth in (6, 12, 24, 48):
            if devices // group >= depth:
                e = ask(p, '174.6B', group, depth, devices, 1536)
                found += [(e['step_s'], ('174.6B', group, depth, devices, 1536))] if e['peak'] < ROOM else []
    return min(found)[1]


def points(p):
    weak = [x[:5] for x in WEAK] + [(LARGEST, 8, 50, 10000, 10000)]
    sized = [strong(p, n) for n in (384, 768, 1536, 3072, 6144, 10000)]
    got, cells, notes = {x: limits(p, *x) for x in weak + sized}, [], []
    for x in weak + sized:
        row, (shares, (_, near, free)) = '%s on %d, %d x %d' % (x[0], x[3], x[2], x[1]), got[x]
        cells += [Cell(row, 'no links s', closed(p, x, FREE), free, '%.3f', 0.002),
                  Cell(row, 'links in hosts alone s', closed(p, x, INSIDE), near, '%.3f', 0.002)]
        notes.append('%-28s %4.1f %% computing; %s' % (row, shares[0], ', '.join(
            '%s %.1f' % y for y in sorted(zip(LIMITS, shares[1:]), key=lambda y: -y[1]))))
    curves = {'weak: computing': [(x[3], got[x][0][0]) for x in weak], 'strong: computing': [(x[3], got[x][0][0]) for x in sized],
              **{'strong: ' + k: [(x[3], max(0.1, got[x][0][i])) for x in sized] for i, k in enumerate(LIMITS, 1)}}
    t = Table('scaling-points', 'Scaling of GPT-like models to 10,000 devices, and what limits each point', 'The same machines. Weak: the '
              'models above, and 1.9T with ZeRO on 10,000; strong: 174.6B and 1,536 sequences, the fastest of 2 to 8 devices a group and 6 to '
              '48 stages that fits into 80 GB. Rows name stages x devices of a group. Formula: the slowest stage is busy from its first '
              'microbatch to its last. Shares of all devices\' time are what the same question gains without links between hosts, without '
              'any, and with ever more microbatches; the rest are unequal stages, what all of a group compute alike, unequal replicas.', cells,
              notes=notes, picture=('devices', '% of the time', curves, 'log'))
    of = {x: dict(zip(('computing', *LIMITS), got[x][0])) for x in got}
    t.check('what the points say adds up to all of the time', all(abs(sum(v[0]) - 100) < 1e-6 for v in got.values()))
    t.check('links between hosts add no less than the first stage\'s ring behind its last backward, and no more than all messages',
            all(low - 1e-3 * got[x][1][0] <= got[x][1][0] - got[x][1][1] <= high for x in weak + sized if x[1] == 8
                for low, high in [exposed(p, x)]))
    t.check('strong scaling: each point computes a smaller share than the one before, and fill and drain take most of what is lost',
            all(of[b]['computing'] < of[a]['computing'] for a, b in zip(sized, sized[1:]))
            and all(max(LIMITS, key=lambda k: of[x][k]) == 'fill and drain' for x in sized))
    t.check('the planner\'s own search among groups of 8 on 1,536 devices is not 1 % slower than the best by hand',
            0.8 < searched(p, 1536) / min(step(p, '174.6B', 8, d, 1536, 1536) for d in (6, 12, 24, 48)) < 1.01)
    t.check('weak scaling keeps four fifths of what 128 devices compute', of[weak[-1]]['computing'] > 0.8 * of[weak[2]]['computing'])
    t.check('all of it fits into 80 GB', all(ask(p, *x)['peak'] < ROOM for x in weak + sized))
    return t


TABLES = [megatron, points]
