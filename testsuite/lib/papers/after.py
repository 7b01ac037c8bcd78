"""Pages after the papers: schedules over depth and microbatches, stragglers, failures, time against memory, the bandwidth at which each
plan overtakes data parallelism. Papers' formulas are cells; the rest are curves and what must hold of them."""
import math

import nets
from core import Cell, Table, path
from virtual import Net

SCHEDULES = {'1f1b': 1, 'dapple': 1, 'gpipe': 1, 'zb-h1': 1, 'interleaved:2': 2, 'zbv': 2, 'breadth-first:2': 2, 'pipedream': 1, '2bw': 1}
LAYERS, MICRO, WIDTH = 16, 16, 8
TAG = 24        # bytes that say whose a message of a pipeline is that is never flushed


def in_flight(row, depth, many, few):
    """Microbatches that the first device keeps: of p, whatever their number; many, few: its memory with 32 and 8 of them."""
    unit, weights = (many['gpipe'] - few) / 24, 4 * (WIDTH * WIDTH + WIDTH) * (LAYERS // depth + 1)
    for s, versions in (('1f1b', 1), ('dapple', 1), ('zb-h1', 1), ('pipedream', depth), ('2bw', 2)):
        yield Cell(row, s + ' in flight', depth, 32 - (many['gpipe'] - many[s] + (versions - 1) * weights) / unit, '%.2f', 0.02 if versions == 1 else 0.1)


def pipe_sgd(ask):
    """Replicas: 2 (p - 1) w bytes in all, tensors padded to 64; a buffer of gradients for each K."""
    w = sum(-(-4 * n // 64) * 64 for n in [WIDTH * WIDTH, WIDTH] * (LAYERS + 1) + [WIDTH * nets.CLASSES, nets.CLASSES])
    for depth in (2, 4, 8):
        two, four = ask(depth, '--pipe-sgd', 2), ask(depth, '--pipe-sgd', 4)
        row = '%d devices, 32 microbatches' % depth
        yield Cell(row, 'pipe-sgd KB', 2 * (depth - 1) * w / 1e3, sum(x['sums'] for x in two['sent_bytes']) / two['steps'] / 1e3, '%.1f', 0.005)
        yield Cell(row, 'pipe-sgd buffers, K from 2 to 4', 2, (four['arena_bytes'][0] - two['arena_bytes'][0]) / w, '%.2f', 0.02)
        yield Cell(row, 'pipe-sgd step / computing', 1.0, two['step_s'] / (3e-3 * LAYERS * 32 / depth), '%.3f', 0.01)


def schedules(p):
    """Bubble, memory and bytes; 8 layers of each of 2 devices to 2 of 8."""
    net, got = Net(p.folder, 'chain', LAYERS, WIDTH, MICRO), {}
    times = net.profile(1e-3)

    def ask(depth, m, schedule, chunks):
        return p.ask('simulate', net.path, '--json', '-q', *net.flags(depth), '--plan', '-'.join('1' * depth * chunks),
                     '--global-batch', MICRO * (1 if schedule == 'pipedream' else m), '--schedule', schedule, '--profile', times)
    for depth in (2, 4, 8):
        for m in (8, 32):
            for s, chunks in SCHEDULES.items():
                got[s, depth, m] = ask(depth, m, s, chunks)
    cells = []
    for depth in (2, 4, 8):
        for m in (8, 32):
            fill = depth - 1
            for s, want in (('1f1b', fill / (m + fill)), ('gpipe', fill / (m + fill)), ('interleaved:2', fill / (2 * m + fill)),
                            ('zb-h1', fill / (3 * m + fill))):
                cells.append(Cell('%d devices, %d microbatches' % (depth, m), s + ' bubble %', 100 * want,
                                  100 * got[s, depth, m]['bubble'], '%.1f', 0.12))

    for depth in (2, 4, 8):     # what crosses cuts, there and back; the middle of zbv's vee is on one device
        row = '%d devices, 32 microbatches' % depth
        for s, chunks in SCHEDULES.items():
            a, cuts = got[s, depth, 32], depth * chunks - 1 - (s == 'zbv')
            message = 4 * MICRO * WIDTH + (TAG if s in ('pipedream', '2bw') else 0)
            cells.append(Cell(row, s + ' KB', 2 * cuts * message * (1 if s == 'pipedream' else 32) / 1e3,
                              sum(x['messages'] for x in a['sent_bytes']) / a['steps'] / 1e3, '%.1f', 0.001))
        cells += in_flight(row, depth, {s: a['arena_bytes'][0] for (s, d, m), a in got.items() if d == depth and m == 32},
                           got['gpipe', depth, 8]['arena_bytes'][0])
    cells += pipe_sgd(lambda n, *more: p.ask('simulate', net.path, '--json', '-q', *net.flags(n), '--plan', n, '--global-batch', MICRO * 32,
                                             '--allreduce', 'ring', '--profile', times, *more))

    def idle(s, d, m):
        """Of a step; of asynchronous ones at their steady rate, without the start that the picture of them has."""
        if s not in ('pipedream', '2bw'):
            return 100 * got[s, d, m]['bubble']
        return 100 * max(0.0, 1 - 3e-3 * LAYERS / d * (1 if s == 'pipedream' else m) / got[s, d, m]['step_s'])
    curves = {s: [(d, idle(s, d, 8)) for d in (2, 4, 8)] for s in SCHEDULES}
    t = Table('after-schedules', 'Schedules: bubble, bytes and microbatches in flight', 'Equal layers, links that do not count. Formulas: 1F1B '
              'and GPipe (p - 1) / (m + p - 1), interleaved (p - 1) / (2 m + p - 1), ZB-H1 (p - 1) / (3 m + p - 1), all parts of a '
              'microbatch alike. Asynchronous ones are shown at their steady rate. What crosses cuts in a step, of PipeDream one microbatch; '
              'microbatches that the first device has in flight, p, by the memory that they take, as GPipe\'s grows with each; of '
              'PipeDream and 2BW beside their p and 2 versions of weights. Pipe-SGD: replicas, a ring\'s bytes, K buffers of gradients.', cells,
              picture=('devices', 'idle, %', curves, 'log'))

    def peak(s, d, m):
        return max(got[s, d, m]['arena_bytes'])
    t.notes = ['%-15s 4 devices, 32 microbatches: %5.1f %% idle, %6.2f MB at most, %7.2f MB sent' % (
        s, idle(s, 4, 32), peak(s, 4, 32) / 1e6, sum(sum(v for k, v in x.items() if k not in ('from', 'to'))
                                                                   for x in got[s, 4, 32]['sent_bytes']) / 1e6) for s in SCHEDULES]
    t.check('GPipe\'s memory grows with the microbatches, 1F1B\'s does not', peak('gpipe', 4, 32) > 1.5 * peak('gpipe', 4, 8)
            and peak('1f1b', 4, 32) < 1.05 * peak('1f1b', 4, 8))
    t.check('zero bubble and two stages a device idle less than 1F1B', all(got[s, d, 8]['bubble'] < got['1f1b', d, 8]['bubble']
            for s in ('zb-h1', 'zbv', 'interleaved:2') for d in (2, 4, 8)))
    t.check('asynchronous pipelines are never idle', all(idle(s, d, 8) < 1 for s in ('pipedream', '2bw') for d in (2, 4, 8)))
    return t


def stragglers(p):
    """What devices that are slow now and then do to a step: 16 layers on 8 devices, 8 microbatches."""
    net, got, n = Net(p.folder, 'slow', LAYERS, 8, MICRO), {}, 8
    times, chain = net.profile(1e-3), '-'.join('1' * 8)
    for name, plan, schedule in (('replicas', '8', '1f1b'), ('1F1B', chain, '1f1b'), ('GPipe', chain, 'gpipe'), ('ZB-H1', chain, 'zb-h1'),
                                 ('PipeDream', chain, 'pipedream'), ('2BW', chain, '2bw')):
        batch = MICRO * (1 if schedule == 'pipedream' else 8 * n if name == 'replicas' else 8)
        for factor in (1.5, 2, 4):
            a = p.ask('simulate', net.path, '--json', '-q', *net.flags(n), '--plan', plan, '--global-batch', batch,
                      '--schedule', schedule, '--profile', times, '--stragglers', '0.02:%g' % factor)
            got[name, factor] = 100 * (a['straggling_step_s'] / a['step_s'] - 1)
    cells = [Cell('8 replicas, %g times as long' % f, 'longer %', 100 * (f - 1) * (1 - 0.98 ** n), got['replicas', f], '%.1f', 0.06)
             for f in (1.5, 2, 4)]
    names = list(dict.fromkeys(k[0] for k in got))
    t = Table('after-stragglers', 'Devices that are slow in one step of fifty', 'Each of 8 devices computes 1.5, 2 or 4 times as long in 2 % of '
              'its steps: how much longer the mean step is. Replicas, as a formula has it: (F - 1) (1 - 0.98^n).', cells,
              picture=('times as long', 'longer, %', {k: [(f, got[k, f]) for f in (1.5, 2, 4)] for k in names}, 'log'))
    t.notes = ['%-10s twice as long in 2 %% of the steps of a device: %5.1f %% longer' % (k, got[k, 2]) for k in names]
    t.check('a pipeline that is flushed hides some of it in its bubble', all(got['1F1B', f] < got['replicas', f] for f in (1.5, 2, 4)))
    t.check('one that has less of a bubble hides less', all(got['ZB-H1', f] > got['1F1B', f] for f in (1.5, 2, 4)))
    return t


def lasts(t, save, restart, mtbf):
    """The share of time that lasts with a checkpoint every t seconds (Daly 2006, equation 20)."""
    return t / (mtbf * math.exp(restart / mtbf) * math.expm1((t + save) / mtbf))


def long_run(p):
    """What failures, checkpoints and stragglers leave of a month, on 2 to 1,250 hosts of 8 devices."""
    net, curves, cells, n, hosts = Net(p.folder, 'month', LAYERS, 8, MICRO), {}, [], 8, (2, 16, 128, 384, 1250)
    times, hours, save, restart = net.profile(0.025), 5000, 60, 600

    def ask(count, *more):
        """So many hosts, as one that fails as often as all of them."""
        return p.ask('simulate', net.path, '--json', '-q', *net.flags(n), '--plan', n, '--global-batch', MICRO * n, '--profile', times,
                     '--days', 30, '--mtbf', '%.9g' % (hours / count), '--ckpt-seconds', save, '--restart-seconds', restart, *more)
    step = ask(1)['step_s']
    for count in hosts:
        row, mtbf = '%d hosts' % count, hours * 3600 / count
        for name, seconds in (('ten minutes', 600), ('hour', 3600), ('day', 86400)):
            every = round(seconds / step)
            run = ask(count, '--ckpt', 'ckpt', '--ckpt-every', every)['long_run']
            curves.setdefault('every ' + name, []).append((8 * count, 100 * run['as asked']['goodput']))
            if name != 'day':
                cells.append(Cell(row, 'lost, every %s %%' % name, 100 - 100 * lasts(every * step, save, restart, mtbf),
                                  100 - curves['every ' + name][-1][1], '%.2f', 0.03))
        best = max(100 * lasts(10 ** (k / 200), save, restart, mtbf) for k in range(400, 1300))
        cells.append(Cell(row, 'lost, best interval %', 100 - best, 100 - 100 * run['played']['goodput'], '%.2f', 0.03))
        curves.setdefault('best interval', []).append((8 * count, 100 * run['played']['goodput']))
    slow = ask(hosts[-1], '--stragglers', '0.02:2')['long_run']
    cells.append(Cell('%d hosts, stragglers' % hosts[-1], 'steps of %', best / (1 + 1 - 0.98 ** n), 100 * slow['played']['steps'] * step
                      / slow['length_s'], '%.2f', 0.02))
    t = Table('after-long_run', 'A month on hosts that fail', 'Each host fails every 5,000 hours; a checkpoint takes one minute, a restart ten. '
              'What of a month is lost, played, beside Daly\'s complete model, and at the best interval between checkpoints that '
              'is found. Stragglers: devices of 8 replicas that compute twice as long in 2 % of their steps, which a month has fewer of.',
              cells, picture=('devices', 'lasts, %', curves, 'log'))
    t.notes = ['%d hosts, a failure every %.1f hours: a checkpoint every %.0f minutes is best, %.1f %% lasts' % (
        c, hours / c, ask(c, '--ckpt', 'ckpt', '--ckpt-every', every)['long_run']['played']['every'] * step / 60, v) for c, (_, v) in zip(hosts, curves['best interval'])]
    t.check('no interval that was asked for keeps more than the best', all(v <= b + 0.1 for k, c in curves.items()
            for (_, v), (_, b) in zip(c, curves['best interval'])))
    t.check('an interval that is right for few hosts is wrong for many', curves['every day'][0][1] > 98 and curves['every day'][-1][1] < 10)
    return t


def frontier(p):
    """BERT-48 on 16 devices at 25 Gb/s: step against memory, of plans and schedules."""
    file, points, notes = path('dapple/profiling_results/bert-48-pbs-2.txt'), [], []
    for s in ('1f1b', 'gpipe', 'zb-h1'):
        for depth in (1, 2, 4, 8, 16):
            a = p.plan(file, 16, 3.125e9, 64, '-'.join([str(16 // depth)] * depth), s)
            points.append((a['peak'] / 1e9, a['step_s'], '%d stages, %s' % (depth, s)))
    edge, least = [], float('inf')
    for x in sorted(points):
        if x[1] < least:
            edge.append(x)
            least = x[1]
    notes = ['%5.2f GB, %.3f s: %s' % x for x in edge]
    t = Table('after-frontier', 'BERT-48 on 16 devices, 25 Gb/s: a step against memory', 'Weights, gradients and what layers hand on, of the '
              'fullest device; 64 microbatches of 2. The line joins plans that no other beats in both.', [], notes=notes, picture=(
                  'GB a device', 's', {'all plans': sorted((x[0], x[1]) for x in points), 'not beaten': [(x[0], x[1]) for x in edge]}, 'log'))
    t.check('data parallelism is beaten in both', all(x[2] != '1 stages, 1f1b' for x in edge))
    return t


def crossing(p):
    """The bandwidth below which a plan is faster than data parallelism, 16 devices; by halves."""
    marks = []
    for name, file, plan in (('BERT-48', 'dapple/profiling_results/bert-48-pbs-2.txt', '8-8'),
                             ('BERT-48', 'dapple/profiling_results/bert-48-pbs-2.txt', '4-4-4-4'),
                             ('BERT Large', 'hpgo/profiles/bert_large/graph.txt', '8-8'),
                             ('VGG-19', 'dapple/profiling_results/vgg-19-pbs-32.txt', '15-1'),
                             ('VGG-19', 'dapple/profiling_results/vgg-19-pbs-32.txt', '8-8')):
        low, high = 1e8, 1e12
        while high / low > 1.02:
            middle = '%.6g' % (low * high) ** 0.5
            ahead = p.step(path(file), 16, middle, 64, plan) < p.step(path(file), 16, middle, 64, '16')
            low, high = (float(middle), high) if ahead else (low, float(middle))
        marks.append(('%s %s' % (name, plan), low * 8 / 1e9))
    notes = ['%s is faster than data parallelism below %.3g Gb/s' % x for x in marks]
    t = Table('after-crossing', 'The bandwidth at which data parallelism overtakes a plan', '16 devices on one kind of link, 64 microbatches, '
              'published profiles.', [], notes=notes, picture=('', 'Gb/s', {'below it the plan is faster': marks}, 'bars'))
    by = dict(marks)
    t.check('a plan that keeps fully connected layers on one device stays ahead of 8-8 for VGG-19',
            by['VGG-19 15-1'] > by['VGG-19 8-8'])
    t.check('on the 10 and 25 Gb/s of the paper BERT-48 is better cut', by['BERT-48 8-8'] > 25)
    return t


TABLES = [schedules, stragglers, long_run, frontier, crossing]
