"""PipeDream's Figures 10 to 13 from recorded runs (measure_pipedream.py): what stale weights cost in epochs, what pipelines spare in time."""
from statistics import mean

from core import Cell, Missing, Table
from measure_pipedream import MINIBATCH, SAMPLES, SEEDS, SMALL, TIMED, WAYS

TARGET = 48             # per cent, the paper's mark for ASP
RUNS = 0.25             # what epochs of two recordings may differ by: two seeds, and ASP's order of gradients is another in every run
FITTED = 'the measured runs of PipeDream: links of 320 Mb/s make BSP 1.47 times as fast as one machine'


def epochs(curve, target=TARGET):
    """Passes until `target` per cent are known, between two evaluations in a line; None: never."""
    before = (0.0, 0.0)
    for at, known in curve:
        if known >= target:
            return before[0] + (at - before[0]) * (target - before[1]) / (known - before[1])
        before = (at, known)
    return None


def accuracy(p, results):
    runs, times = results.get('pipedream-accuracy', {}), results.get('pipedream-times', {})
    if len(runs) < len(WAYS) * SEEDS or len(times) < len(TIMED):
        raise Missing('not measured to its end: testsuite/papers --measure --only pipedream')
    curve = {w: [(at, mean(runs['%s/%d' % (w, i)][k][1] for i in range(SEEDS))) for k, (at, _) in enumerate(runs[w + '/0'])] for w in WAYS}
    need = {w: epochs(c) for w, c in curve.items()}
    one = {'one machine': MINIBATCH, 'ASP': MINIBATCH / 4, **{w: times[w]['minibatch'] for w in ('BSP', 'PipeDream')}}       # ASP: as the paper has it
    hours = {w: need[w] and need[w] * SAMPLES / SMALL * one[w] for w in WAYS}
    cells = [Cell('epochs to %d %%' % TARGET, w + ' / one machine', 1.0, need[w] and need[w] / need['one machine'], '%.2f', 0.4) for w in ('BSP', 'PipeDream')]
    cells += [Cell('epochs to %d %%' % TARGET, 'ASP / one machine', None, need['ASP'] and need['ASP'] / need['one machine']),
              Cell('time to %d %%' % TARGET, 'BSP / PipeDream', 2.13, hours['BSP'] / hours['PipeDream'], '%.2f', 0.25, RUNS),
              Cell('time to %d %%' % TARGET, 'ASP / PipeDream', 7.4, 'never' if hours['ASP'] is None else hours['ASP'] / hours['PipeDream'], '%.2f', band=RUNS)]
    t = Table('pipedream-accuracy', 'PipeDream, Figures 10 to 12: accuracy against time, with BSP and ASP, measured',
              'Epochs are those of a small VGG that trains on pictures like CIFAR-100\'s (with the paper\'s plan, 2-1-1); seconds of a minibatch '
              'those of the next table, where its last layers are wider and computing is virtual. ASP has no communication at all here, as the paper grants it. The mark is the paper\'s, 48 %. Picture: minutes of the shaped links.',
              cells, fitted=[FITTED], recorded=['pipedream-accuracy', 'pipedream-times'], picture=('minutes', 'top-1, %', {w: [(at * SAMPLES / SMALL * one[w] / 60, k) for at, k in c] for w, c in curve.items()}, 'log'))
    t.check('every way but ASP knows %d %% in the end' % TARGET, all(need[w] for w in WAYS if w != 'ASP'))
    t.check('one machine is slowest but for ASP', hours['one machine'] > max(hours['BSP'], hours['PipeDream']))
    return t


def times(p, results):
    runs = results.get('pipedream-times', {})
    if len(runs) < len(TIMED):
        raise Missing('not measured to its end: testsuite/papers --measure --only pipedream-times')
    speed = {w: MINIBATCH / r['minibatch'] for w, r in runs.items()}
    cells = [Cell('4 machines', 'model parallelism', '< 1', '< 1' if speed['model parallelism'] < 1 else '%.2f' % speed['model parallelism'])]
    cells += [Cell('4 machines', w, said, speed[w], '%.2f', band=0.1) for w, said in (('straight', 2.56), ('PipeDream', 3.14), ('BSP', 1.47))]
    cells += [Cell('measured / simulated', w, 1.0, r['minibatch'] / r['simulated'], '%.2f', 0.15) for w, r in runs.items()]
    t = Table('pipedream-times', 'PipeDream, Figure 13 on four machines, measured',
              'Speedup over one machine: a small VGG on shaped links, its last layers as wide as VGG16\'s are beside what crosses cuts; computing is '
              'virtual, last layers have VGG16\'s share of it. Flags: %s.'
              % ', '.join('%s %s' % (w, ' '.join(f)) for w, f in TIMED.items()), cells, fitted=[FITTED],
              picture=('', 'speedup', {w: [('measured', speed[w]), ('simulated', MINIBATCH / runs[w]['simulated'])] for w in runs}, 'bars'),
              recorded=['pipedream-times'])
    t.check('model parallelism < straight < PipeDream', speed['model parallelism'] < speed['straight'] < speed['PipeDream'])
    return t


TABLES = [accuracy, times]
