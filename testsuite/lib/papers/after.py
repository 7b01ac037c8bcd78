"""Pages after the papers: schedules over depth and microbatches, time against memory, the bandwidth at which each plan overtakes data
parallelism. Papers' formulas are cells; the rest are curves and what must hold of them."""
from core import Cell, Table, path
from virtual import Net

SCHEDULES = {'1f1b': 1, 'dapple': 1, 'gpipe': 1, 'zb-h1': 1, 'interleaved:2': 2, 'zbv': 2, 'breadth-first:2': 2, 'pipedream': 1, '2bw': 1}
LAYERS, MICRO = 16, 16


def schedules(p):
    """Bubble, memory and bytes; 8 layers of each of 2 devices to 2 of 8."""
    net, got = Net(p.folder, 'chain', LAYERS, 8, MICRO), {}
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

    def idle(s, d, m):
        """Of a step; of asynchronous ones at their steady rate, without the start that the picture of them has."""
        if s not in ('pipedream', '2bw'):
            return 100 * got[s, d, m]['bubble']
        return 100 * max(0.0, 1 - 3e-3 * LAYERS / d * (1 if s == 'pipedream' else m) / got[s, d, m]['step_s'])
    curves = {s: [(d, idle(s, d, 8)) for d in (2, 4, 8)] for s in SCHEDULES}
    t = Table('after-schedules', 'Schedules: bubble over depth, eight microbatches', 'Equal layers, links that do not count. Formulas: 1F1B '
              'and GPipe (p - 1) / (m + p - 1), interleaved (p - 1) / (2 m + p - 1), ZB-H1 (p - 1) / (3 m + p - 1), all parts of a '
              'microbatch alike. Asynchronous ones are shown at their steady rate.', cells, picture=('devices', 'idle, %', curves, 'log'))

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


TABLES = [schedules, stragglers, frontier, crossing]
