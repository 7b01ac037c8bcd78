"""DAPPLE (2020): Tables I and IV to VIII, Figures 11 to 14, from the profiles beside its authors' planner.

Plans are those of the published score with the published constants (1 GB/s between devices on 25 Gb/s, 3 GB/s for NCCL); times of plans
are the simulator's. Nothing of speeds is fitted. Memory: the profiles have what layers hand on, not what they keep, so that one number
is fitted, KEPT, bytes that a layer of BERT keeps for a microbatch of two; 16 bytes a parameter are the paper's."""
import json
import math
import re

import pdcctest as T
import tables as planner
from core import NEAR, Cell, Table, layers, path, scaled, write
from virtual import Net

KEPT = 130e6            # fitted: Table VI, 12.1 GB of GPipe with two microbatches
USABLE = 15e9           # of a V100's 16 GB
FITTED = 'bytes that a layer of BERT keeps for a microbatch of 2: 130 MB, so that GPipe with M = 2 takes 12.1 GB (Table VI)'
MODELS = {'VGG-19': (2048, 32), 'GNMT-16': (1024, 64), 'BERT-48': (64, 2), 'XLNet-36': (128, 1), 'AmoebaNet-36': (128, 1)}
WIRES = {'A': (25e9, 3.125e9), 'B': (3.125e9,), 'C': (1.25e9,)}
TABLE5 = [('ResNet-50', 'A', 'DP', '-'), ('ResNet-50', 'B', 'DP', '-'), ('ResNet-50', 'C', 'DP', '-'), ('VGG-19', 'A', 'DP', '-'),
          ('VGG-19', 'B', 'DP', '-'), ('VGG-19', 'C', '15:1', '13:6'), ('GNMT-16', 'A', '8:8', '9:7'), ('GNMT-16', 'B', '8:8', '9:7'),
          ('GNMT-16', 'C', 'straight', '-'), ('BERT-48', 'A', '8:8', '23:25'), ('BERT-48', 'B', 'straight', '-'),
          ('BERT-48', 'C', 'straight', '-'), ('XLNet-36', 'A', '8:8', '18:18'), ('XLNet-36', 'B', '8:8', '18:18'),
          ('XLNet-36', 'C', 'straight', '-'), ('AmoebaNet-36', 'A', '8:8', '24:12'), ('AmoebaNet-36', 'B', '11:5', '27:9'),
          ('AmoebaNet-36', 'C', '11:5', '27:9')]


def golden():
    with open(path('golden.json')) as f:
        return json.load(f)


def record(model, cluster='A', table='V'):
    return next(r for r in golden()['dapple'] if (r['table'], r['env'][0]) == (table, cluster) and r['model'].startswith(model))


def profile(r):
    g = golden()['profiles'][r['profile']]
    return path(g['file']), (['--compress'] if 'compress' in g.get('repair', '') else [])


def answer(p, r, *more):
    file, fix = profile(r)
    return p.ask('plan-profile', file, *fix, *planner.servers(r), '--json', *more)


def published(p, r):
    """(type, split of blocks, plan, score of data parallelism with overlap) of the published search and score."""
    a = answer(p, r, '--published', '--memory', '16e9', '--scaling', r['optimizer_memory_scaling'], '--peak',
               repr(r['peak_activation_per_batch']))
    best, dp = a['candidates'][a['best']], a['dp'][1]
    kind = planner.kind(best['stages'])
    if r['model'] == 'AmoebaNet-36':        # data parallelism is not to be had: "reaches OOM even if batch_size = 1"
        dp = 0
    if kind == 'DP' or dp > best['speedup']:
        return 'DP', '-', best, dp
    return kind, '-' if kind == 'straight' else planner.split(profile(r)[0], best['stages']), best, dp


def table5(p):
    cells = []
    for model, cluster, kind, split in TABLE5:
        r = record(model, cluster)
        k, s, _, _ = published(p, r)
        row = '%s, %s' % (model, cluster)
        cells.append(Cell(row, 'plan', kind, k))
        if split != '-' and k == kind:
            cells.append(Cell(row, 'split', split, s))
    return Table('dapple-table5', 'DAPPLE, Table V: plans for 16 devices',
                 'A: 2 servers of 8 on 25 Gb/s; B, C: 16 of one, 25 and 10 Gb/s. Published search and score on the published profiles; '
                 'constants of C are those of B, scaled.', cells)


def table1(p):
    cells = []
    for model, cut, grad in (('GNMT-16', 26, 1100), ('BERT-48', 8.8, 2800), ('XLNet-36', 4.2, 2100), ('AmoebaNet-36', 11.2, 3700),
                             ('VGG-19', 6, 550)):
        r = record(model)
        file, _ = profile(r)
        nodes, _ = layers(file)
        size = {n[0]: n[4] for n in nodes}
        best = published(p, r)[2]
        stages = best['stages']
        if len(stages) < 2 or model == 'VGG-19':
            cross = min(n[4] for n in nodes[:-8] if n[4] > 0 and n[5] == 0 and n[1].startswith('M')) if model == 'VGG-19' else None
        else:
            cross = sum(size[i] for i in stages[0]['cut'])
        cells += [Cell(model, 'activations MB', cut, cross and cross / 1e6, '%.1f'),
                  Cell(model, 'gradients MB', grad, sum(n[5] for n in nodes) / 1e6, '%.0f')]
    return Table('dapple-table1', 'DAPPLE, Table I: bytes at the cut and of the gradients',
                 'Activations of the profiled batch at the cut of the plan on configuration A; VGG-19, which has none there, at the last '
                 'pooling layer.', cells)


def sliced(p, model, cluster):
    """A model's profile at its microbatch, microbatches of Table V's global batch, bandwidths of a cluster."""
    r = record(model, cluster)
    gbs, micro = MODELS[model]
    share = min(1.0, gbs / 16 / micro)
    return scaled(p, profile(r)[0], batch=share), int(gbs / micro / share), WIRES[cluster]


def speedup(p, model, cluster, plan, schedule='dapple'):
    file, m, wire = sliced(p, model, cluster)
    workers = '8,2' if len(wire) > 1 else '16'
    one = p.step(file, 1, 1e9, 1, '1') * m
    return one / p.step(file, workers, ','.join('%.4g' % w for w in wire), m, plan, schedule)


STRAIGHT = '-'.join('1' * 16)


def figure12(p):
    """Best hybrid over data parallelism with overlap."""
    cells, bars = [], {'hybrid': [], 'data parallelism': []}
    want = {'A': 1.71, 'B': 1.37, 'C': 1.79}
    for cluster in 'ABC':
        gains = []
        for model in MODELS:
            if model == 'GNMT-16':
                continue
            plans = {'8-8', '15-1', '14-2', '12-4', '11-5'} | ({STRAIGHT} if cluster != 'A' else set())
            dp = speedup(p, model, cluster, '16')
            best = max(max(speedup(p, model, cluster, x) for x in sorted(plans)), dp)
            bars['hybrid'].append((model + ' ' + cluster, best))
            bars['data parallelism'].append((model + ' ' + cluster, dp))
            gains.append(best / dp)
        cells.append(Cell('configuration ' + cluster, 'hybrid / DP, mean', want[cluster], sum(gains) / len(gains)))
    t = Table('dapple-figure12', 'DAPPLE, Figure 12: the best plan against data parallelism with overlap',
              'Speedup over one device; the best of 8:8, 15:1, 14:2, 12:4, 11:5 and straight. The text has the means. Batches are '
              'those of Table V: the text\'s "GBS = 128 for all" contradicts it, and would give VGG-19 eight images a device.', cells,
              picture=('', 'speedup', bars, 'bars'),
              missing=['GNMT-16: the published profile has 1,495 places to cut and unlike layers, see Table V'])
    gain = [a[1] / b[1] for a, b in zip(bars['hybrid'], bars['data parallelism'])]
    t.check('a slower network does more harm to data parallelism', sum(gain[8:]) > sum(gain[4:8]))
    return t


def fixed_batch(p, model, batch, devices, plan):
    """Speedup over one device with `batch` samples a step on the first devices of configuration A, cut into microbatches that all
    replicas of a stage have as many of."""
    r, unit = record(model), math.lcm(*map(int, plan.split('-')))
    count = unit * max(1, round(batch / MODELS[model][1] / unit))
    file = scaled(p, profile(r)[0], batch=batch / MODELS[model][1] / count)
    workers, wire = ('8,2', '25e9,3.125e9') if devices > 8 else (devices, '25e9')
    return p.step(file, 1, 1e9, 1, '1') * count / p.step(file, workers, wire, count, plan, 'dapple')


def figure14(p):
    """Strong scaling on 2 to 16 devices of configuration A, at one global batch."""
    counts, curves = (2, 4, 6, 8, 10, 12, 14, 16), {}
    for model, batch in (('BERT-48', 128), ('XLNet-36', 128), ('AmoebaNet-36', 256)):
        for n in counts:
            dp = fixed_batch(p, model, batch, n, str(n))
            cuts = ['%d-%d' % (n - k, k) for k in range(1, n // 2 + 1)] + (['-'.join('1' * n)] if n > 2 else [])
            found = [fixed_batch(p, model, batch, n, x) for x in cuts]
            if model != 'AmoebaNet-36':
                curves.setdefault(model + ', data parallel', []).append((n, dp))
                found.append(dp)
            curves.setdefault(model, []).append((n, max(found)))
    amoeba = profile(record('AmoebaNet-36'))[0]
    peak = p.plan(scaled(p, amoeba, weights=2), 8, 25e9, 8, '8', 'dapple')['peak']      # weights and gradients twice: 16 bytes each
    t = Table('dapple-figure14', 'DAPPLE, Figure 14: strong scaling on 2 to 16 devices', 'Configuration A, global batches of 128, 128 and 256; '
              'the best of one stage, two stages, and a stage a device. The text says what it looks like, and no numbers.',
              [Cell('AmoebaNet-36', 'data parallelism', 'out of memory', 'out of memory' if peak > USABLE else '%.1f GB' % (peak / 1e9))],
              picture=('devices', 'speedup', curves, 'loglog'), missing=['GNMT-16: see Table V; data parallelism without overlap'])
    of = {k: dict(v) for k, v in curves.items()}
    both = [(of[m], of[m + ', data parallel']) for m in ('BERT-48', 'XLNet-36')]
    t.notes = ['%s, data parallel: %.1f on 8, %.1f on 10, %.1f on 16; the best plan %.1f, %.1f, %.1f' % (
        m, *(x[n] for x in (of[m + ', data parallel'], of[m]) for n in (8, 10, 16))) for m in ('BERT-48', 'XLNet-36')]
    t.check('where the second server joins, from 8 devices to 10, data parallelism gains nothing', all(dp[10] < dp[8] for _, dp in both))
    t.check('the best plan scales smoothly: two devices more always gain a tenth of their share at least, and 16 reach 13 to 15',
            all(x[b] / x[a] > 1 + (b / a - 1) / 10 and 13 < x[16] < 15 for x in (of['BERT-48'], of['XLNet-36'], of['AmoebaNet-36'])
                for a, b in zip(counts, counts[1:])))
    t.check('on 16 devices the best plan is 1.2 to 1.8 times as fast as data parallelism', all(1.2 < x[16] / dp[16] < 1.8 for x, dp in both))
    return t


def table7(p):
    """Plans on two servers of eight, and Figure 13: their time under DAPPLE's runtime over that of PipeDream's plans."""
    g, cells = golden(), []
    for r in g['dapple']:
        if r['table'] != 'VII' or 'DAPPLE profile' in r['model']:
            continue
        model = r['model'].split(' (')[0]
        paper = next(v for k, v in g['published']['dapple_tableVII'].items()
                     if k.split(' (')[0].replace('-', '') == model.replace('-', ''))
        best = published(p, r)[2]
        mine = planner.spans([(s['begin'], s['end'], len(s['devices'])) for s in best['stages']], '')
        cells.append(Cell(model, 'DAPPLE\'s plan', planner.spans(planner.paper_plan(paper['dapple']), ''), mine))
        for s in g['dapple_simulated']:
            if s['profile'] == r['profile']:
                worth = [answer(p, dict(r, **s), '--stages', ','.join('%d:%d-%d' % (x[0], x[2], x[3]) for x in s[k]))['recursion']
                         for k in ('dapple_plan', 'pipedream_plan')]
                cells.append(Cell(model, 'DAPPLE / PipeDream', None, worth[0] / worth[1]))
    most = max(c.ours for c in cells if c.column == 'DAPPLE / PipeDream')
    cells.append(Cell('all', 'most of DAPPLE / PipeDream', 3.23, most))
    return Table('dapple-table7', 'DAPPLE, Table VII and Figure 13: plans on two servers of eight, beside PipeDream\'s',
                 '[first state, end) x devices. Both plans are timed by the published recursion under early backward scheduling.', cells,
                 missing=['4 servers of 8, and the bars of the figure: it has no numbers but "up to 3.23x"'])


def table4(p):
    """P_B against P_A: K_i = 2 (S - i) - 1 forwards first against S - i."""
    cells = []
    for model, want in (('BERT-48', 1.0), ('XLNet-36', 1.02), ('VGG-19', 1.1)):
        r = record(model)
        plan = '0:0-7,%d:8-15' % {'BERT-48': 30, 'XLNet-36': 22, 'VGG-19': 16}[model]
        a, b = (answer(p, r, '--stages', plan, *x)['recursion'] for x in ((), ('--warmup-b',)))
        cells.append(Cell(model, 'P_B / P_A', want, b / a))
    return Table('dapple-table4', 'DAPPLE, Table IV: twice as many forwards first', 'Throughput with policy B over that with policy A, '
                 'two stages of eight on configuration A.', cells,
                 missing=['GNMT-16, 1.31: its table was made from a profile of blocks that is not published'])


def inner(nodes, kept):
    """Each layer of BERT handing `kept` bytes to a part of itself that takes no time: what it keeps until its backward."""
    out = []
    for n in nodes:
        if n[1].startswith('layer_'):
            out += [[n[0] + 'k', n[1] + ' kept', 0, 0, kept, 0]]
        out.append(n)
    return out


def bert(p, count, again=0.0, kept=KEPT):
    """A chain: the embedding and `count` layers, at twice the parameters, so that weights and gradients are 16 bytes each one."""
    nodes, _ = layers(path('dapple/profiling_results/bert-48-pbs-2.txt'))
    one = next(n for n in nodes if n[1] == 'layer_0')
    head = next(n for n in nodes if n[1] == 'embeddings')
    chain = [list(head)] + [['l%d' % i, 'layer_%d' % i, *one[2:]] for i in range(count)]
    chain = [[i, n, f, b + again * f, a, 2 * w] for i, n, f, b, a, w in chain]
    return write(p, inner(chain, kept) if kept else chain)


def same_update(seconds):
    """The optimizer's step, which profiles lack: u from DAPPLE's 8.18 / 5.10 with M = 16, held against its 7.60 / 5.10 with 8."""
    t2, t8, t16 = (seconds['DAPPLE', m] for m in (2, 8, 16))
    gain = 8.18 / 5.10
    u = (gain * t16 / 8 - t2) / (1 - gain / 8)
    return 0 < u < t2 and abs((t2 + u) * 4 / (t8 + u) / (7.60 / 5.10) - 1) < 0.03


def table6(p):
    """GPipe and DAPPLE on BERT-48 in two stages, 25 Gb/s; throughput relative to GPipe with two microbatches."""
    rows = [('GPipe', 2, 5.10, 12.1), ('GPipe', 3, None, None), ('GPipe + RC', 2, 4.00, 9.9), ('GPipe + RC', 5, 5.53, 13.2),
            ('DAPPLE', 2, 5.10, 10.6), ('DAPPLE', 8, 7.60, 10.6), ('DAPPLE', 16, 8.18, 10.6), ('DAPPLE + RC', 2, 4.24, 8.5),
            ('DAPPLE + RC', 8, 6.23, 8.5), ('DAPPLE + RC', 16, 6.77, 8.5)]
    kept, thin, again = bert(p, 48), bert(p, 48, kept=0), bert(p, 48, again=1.0, kept=0)
    cells, first, samples = [], None, {}
    for name, m, rate, memory in rows:
        schedule, rc = ('gpipe' if 'GPipe' in name else 'dapple'), 'RC' in name

        def play(file, n):      # cut behind layer 24
            return p.plan(file, 2, 3.125e9, n, '1-1@%d' % (49 if file == kept else 25), schedule)
        # recomputing, stages keep what comes in, and once all of a microbatch; the last stage has one in flight
        keeps = [play(thin if rc else kept, n)['peak'] + 24 * KEPT * rc for n in (m, 1)]
        t = play(again if rc else thin, m)
        mean = keeps[0] / 1e9 if schedule == 'gpipe' else (keeps[0] + keeps[1]) / 2e9
        speed = 2 * m / t['step_s']
        first = first or speed
        samples[name, m] = 2 * m / speed
        row = '%s, M = %d' % (name, m)
        if rate is None:
            cells.append(Cell(row, 'memory', 'out of memory', 'out of memory' if keeps[0] > USABLE else '%.1f GB' % mean))
            continue
        cells += [Cell(row, 'throughput', rate / 5.10, speed / first),
                  Cell(row, 'memory GB', memory, mean, '%.1f', 0.02 if row == 'GPipe, M = 2' else NEAR)]
    t = Table('dapple-table6', 'DAPPLE, Table VI: DAPPLE and GPipe on BERT-48, two stages, 25 Gb/s',
              'Throughput over that of GPipe with two microbatches; mean over the two devices of the peak of memory. RC: the backward '
              'repeats the forward. Out of memory: above 15 of a V100\'s 16 GB.', cells, fitted=[FITTED],
              missing=['GPipe + RC, M = 8, out of memory: see the reason for M = 5'])
    t.check('one time behind every batch, taken from M = 16, explains M = 8 within 3 %', same_update(samples))
    return t


def table8(p):
    """Layers of BERT on 1, 2, 4, 8 V100: the most whose peak is below 16 GB, recomputing; how busy devices are."""
    cells, curve, uneven = [], [], []
    for n, want in ((1, 48), (2, 106), (4, 215), (8, 428)):
        plan, low, high = '-'.join('1' * n), n, 800
        while high - low > 1:
            middle = (low + high) // 2
            fits = p.plan(bert(p, middle, kept=0), n, 25e9, 4 * n, plan, 'dapple')['peak'] + KEPT <= USABLE
            low, high = (middle, high) if fits else (low, middle)
        curve.append((n, low))
        cells.append(Cell('%d devices' % n, 'layers', want, low, '%.0f'))
        uneven.append((n, p.ask('plan-profile', bert(p, 1, kept=0), '--planner', 'auto', '--json', '--workers', n, '--bandwidth', 25e9,
                                '--microbatches', 4 * n, '--schedule', 'dapple', '--evaluate', plan, '--memory', '%.0f' % (USABLE - KEPT),
                                '--largest', 'l0')['largest']))
    t = Table('dapple-table8', 'DAPPLE, Table VIII: the largest BERT on 1 to 8 V100 of 16 GB, recomputing',
              'The most layers whose peak stays below 15 GB, one being left to CUDA; layers are recomputed one at a time. Stages are as fast as '
              'they can be; --largest cuts where most layers fit.', cells, fitted=[FITTED],
              picture=('devices', 'layers', {'equal stages': curve, '--largest': uneven}, 'log'),
              missing=['utilization of the GPUs: a busy GPU of theirs counts kernels, not bubbles'])
    t.notes = ['--largest: %d layers on %d devices' % x[::-1] for x in uneven]
    t.check('cut where they fit, as many layers as in equal stages do, and at most an eighth more',
            all(b[1] <= u[1] <= 1.125 * b[1] for b, u in zip(curve, uneven)))
    return t


def figure11(p):
    """The order of work that its control edges force, of the programs that pdcc emits: two stages, one to three microbatches."""
    net, cells = Net(p.folder, 'two', 2, 8, 2), []
    orders = {1: ('F0 B0', 'F0 B0'), 2: ('F0 F1 B0 B1', 'F0 B0 F1 B1'), 3: ('F0 F1 B0 F2 B1 B2', 'F0 B0 F1 B1 F2 B2')}
    for m, paper in orders.items():
        build = '%s/two-%d' % (p.folder, m)
        args = [net.path, *net.flags(2), '--plan', '1-1', '--schedule', 'dapple', '--microbatches', str(m), '-o', build, '--emit-only', '--force']
        T.check('pdcc', *T.run([T.pdcc_path(), *args]))
        p.used.append(tuple(args))
        for stage, (line, want) in enumerate(zip(open(build + '/schedule.csv'), paper)):
            ours = ' '.join(w[1:] for w in line.strip().split(',') if re.fullmatch(r'\d[FB]\d+', w))
            cells.append(Cell('%d microbatch%s' % (m, 'es' if m > 1 else ''), 'stage %d' % stage, want, ours))
    return Table('dapple-figure11', 'DAPPLE, Figure 11: control edges of two stages',
                 'The order of forwards and backwards that the edges of the figure force, by its text; ours is that of the emitted '
                 'schedule.csv.', cells)


TABLES = [figure11, table1, table4, table5, table6, table7, figure12, figure14, table8]
