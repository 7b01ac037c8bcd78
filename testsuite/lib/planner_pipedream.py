"""Checks of testsuite/planner: PipeDream's planners and torchgpipe's block partition."""
import math
import re

from plannercheck import compare, close

def settings(mode):
    """A mode of the golden file, "straight_act1" or "mem16_act1": activations by a ratio (None: not counted), straight, fewer
    machines, bytes of memory (None: no limit)."""
    found = {'ratio': None, 'straight': False, 'fewer': False, 'memory': None}
    for word in mode.split('_'):
        m = re.fullmatch(r'(act|mem)([0-9.]+)', word)
        if m:
            found['ratio' if m[1] == 'act' else 'memory'] = float(m[2]) * (1 if m[1] == 'act' else 1e9)
        elif word in found:
            found[word] = True
        elif word != 'default':
            raise ValueError('mode %s: what is %s?' % (mode, word))
    return found


def flags(ctx, mode):
    m = settings(mode)
    return [*(['--compression', repr(m['ratio'])] if m['ratio'] else []), *(['--straight'] if m['straight'] else []),
            *(['--fewer'] if m['fewer'] else []), *(['--memory', repr(m['memory'] * ctx.bytes)] if m['memory'] else [])]


def numbers(v):
    return ','.join(repr(x) for x in v)


def seconds(states, r, mode, plan, level, first, last):
    """The cost of the published code, of a plan for states first..last at a level, written down once more; plan:
    [(level, first, last, [(start, end, replicas)])]. None: a cut that is not legal."""
    machines, bandwidth = r['all_num_machines'][level - 1], r['network_bandwidths_Bps'][level - 1]
    inner = r['all_num_machines'][level - 2] if level > 1 else 1
    stages = next(p[3] for p in plan if p[:3] == (level, first, last))
    worst, used, m = 0, 0, settings(mode)
    if sum(s[2] for s in stages) != machines and not m['fewer'] or sum(s[2] for s in stages) > machines:
        return None
    for i, (start, end, n) in enumerate(stages):
        used += n
        before = states[start - 1] if start else [None, 0, 0, 0, 0]
        time, act, params = (states[end - 1][c] - before[c] for c in (1, 2, 4))
        if level > 1:
            time = seconds(states, r, mode, plan, level - 1, start, end)
            if time is None:
                return None
        if m['memory'] and math.ceil((machines - used) / n) * (act + params) > m['memory']:
            return None
        sync = 4 * (n - 1) * params / (bandwidth * n)
        worst = max(worst, (time + (sync if i else sync / inner)) / n)
        if i and m['ratio']:
            cut = max(before[3], 0 if end == len(states) else states[end - 1][3])
            worst = max(worst, 2 * cut / (bandwidth * n * m['ratio']))
    return worst


def flat_list(levels, place):
    """A plan of the golden file's form (place: end -> number of the golden file) as `seconds` wants it."""
    return [(level['level'], place(g[0][0]), place(g[-1][1]), [(place(s[0]), place(s[1]), s[2]) for s in g])
            for level in levels for g in level['groups']]


def renumbered(states, record):
    """end -> state of a recorded plan. The published code numbers states anew in each run where the graph branches: what
    a stage computes says which state is meant; among those of one time the cheapest to cut."""
    place = {0: 0}
    for level in record['levels']:
        for g in level['groups']:
            for start, end, _, compute in g:
                at = compute + (states[place[start] - 1][1] if start else 0)
                if math.isclose(states[end - 1][1], at, rel_tol=1e-9):
                    place[end] = end
                    continue
                equal = [i + 1 for i, s in enumerate(states) if math.isclose(s[1], at, rel_tol=1e-9)]
                place[end] = min(equal, key=lambda i: states[i - 1][3])
    return lambda e: place[e]


def plan_fault(ctx, record, got):
    """What is wrong with our plan: it must cost what it says, and be the recorded one where there is only one. Some
    records say so of plans that have equals, to the last digit; those are known by cost and counted."""
    states = ctx.golden['profiles'].get(record['profile'], {}).get('states')
    if not states:
        return None
    number = {frozenset(s[0]): i + 1 for i, s in enumerate(states)}
    ends = {int(k): number.get(frozenset(v)) for k, v in got['ends'].items()}
    if None in ends.values():
        return 'a cut of the plan is none of the states'
    top = len(record['all_num_machines'])
    ours = flat_list(got['levels'], lambda e: ends.get(e, 0))
    theirs = flat_list(record['levels'], renumbered(states, record))
    cost = [seconds(states, record, record['mode'], p, top, 0, len(states)) for p in (ours, theirs)]
    if cost[0] is None or not close(cost[0], record['pipeline_s']):
        return 'the plan %s costs %s, wanted %.17g' % (words(got['levels']), cost[0], record['pipeline_s'])
    if not record.get('unique_plan') or ours == theirs:
        return None
    if cost[1] is not None and close(cost[1], cost[0]):
        ctx.ties += 1
        return None
    return 'the plan is %s, wanted %s' % (words(got['levels']), words(record['levels']))


def words(plan):
    return ' / '.join(' '.join('-'.join(str(s[2]) for s in g) + ' at ' + ','.join(str(s[0]) for s in g[1:])
                               for g in level['groups']) for level in plan)


def sosp(ctx, r):
    got = ctx.pdcc(*ctx.profile(r['profile']), *ctx.scale(), *flags(ctx, r['mode']), '--workers', numbers(r['all_num_machines']),
                   '--bandwidth', numbers(b * ctx.bandwidth for b in r['network_bandwidths_Bps']))
    wrong = compare((
        ('single_gpu_s', got['single_s'], r['single_gpu_s'] * ctx.time),
        ('pipeline_s', got['pipeline_s'], r['pipeline_s'] * ctx.time),
        ('speedup_vs_1', got['speedup'], r['speedup_vs_1']), ('dp_speedup_vs_1', got['dp_speedup'], r['dp_speedup_vs_1'])))
    if not wrong and got['states'] != r['num_states']:
        wrong = '%d states, wanted %d' % (got['states'], r['num_states'])
    return wrong or plan_fault(ctx, r, got)


def paper(ctx, r, cost='paper'):
    got = ctx.pdcc(*ctx.profile(r['profile']), *ctx.scale(), '--cost', cost, '--workers', str(r['M']), '--bandwidth',
                   repr(r['bandwidth_Bps'] * ctx.bandwidth), *(['--straight'] if r['straight'] else []))
    wrong = compare((('single_gpu_s', got['single_s'], r['single_gpu_s'] * ctx.time),
                     ('pipeline_s', got['pipeline_s'], r['pipeline_s'] * ctx.time)))
    if not wrong and got['states'] != r['num_states']:
        wrong = '%d states, wanted %d' % (got['states'], r['num_states'])
    return wrong


TABLE1 = {
    'paper2018_formula': ['--cost', 'paper'],
    'optimizer_py_16GB': ['--cost', 'old'],
    'optimizer_graph_hierarchical_default': [],
    'optimizer_graph_hierarchical_act1': ['--compression', '1'],
}


def table1(ctx, r):
    """One profile under a batch, a device and a bandwidth, by every cost the record has."""
    common = [*ctx.profile(r['profile'], r.get('note', '')), *ctx.scale(r['compute_scale'], r['activation_scale']),
              '--workers', str(r['M']), '--bandwidth', repr(r['bandwidth_Bps'] * ctx.bandwidth)]
    for name, args in TABLE1.items():
        if name not in r:
            continue
        want = r[name]
        if name == 'optimizer_py_16GB':
            args = args + ['--memory', repr(16e9 * ctx.bytes)]
        got = ctx.pdcc(*common, *args)
        pairs = [('pipeline_s', got['pipeline_s'], want['pipeline_s'] * ctx.time)]
        if 'speedup_vs_1' in want:
            pairs.append(('speedup_vs_1', got['speedup'], want['speedup_vs_1']))
        if 'dp_speedup_vs_1' in want:
            pairs.append(('dp_speedup_vs_1', got['dp_speedup'], want['dp_speedup_vs_1']))
        if 'dp_s' in want:
            pairs.append(('dp_s', got['dp_s'], want['dp_s'] * ctx.time))
        if 'straight_pipeline_s' in want:
            straight = ctx.pdcc(*common, *args, '--straight')
            pairs.append(('straight_pipeline_s', straight['pipeline_s'], want['straight_pipeline_s'] * ctx.time))
        wrong = compare(pairs)
        if wrong:
            return '%s: %s' % (name, wrong)
    return None


def blocks(ctx, r):
    """Costs are whole microseconds, so they are scaled by a whole number."""
    got = ctx.pdcc(*ctx.profile(r['profile']), *ctx.scale(whole=True), '--planner', 'blocks', '--workers',
                   str(r['partitions']))
    factor = float(ctx.scale(whole=True)[1])
    wrong = compare((('max_block_us', got['max_block_us'], r['max_block_us'] * factor),
                     ('optimal_max_block_us', got['optimal_max_block_us'], r['optimal_max_block_us'] * factor)))
    if not wrong and r['costs_us'] and not all(close(a, b * factor) for a, b in zip(got['costs_us'], r['costs_us'])):
        wrong = 'costs are %s, wanted %s' % (got['costs_us'], r['costs_us'])
    if not wrong and got['balance'] != r['balance']:
        wrong = 'the blocks are %s, wanted %s' % (got['balance'], r['balance'])
    return wrong


SECTIONS = {
    'pipedream_flat': sosp, 'pipedream_hierarchical': sosp, 'pipedream_on_dapple_profiles_2x8': sosp,
    'table1_variants': table1, 'paper2018_formula': paper,
    'sosp_text_formula': lambda ctx, r: paper(ctx, r, 'text'), 'torchgpipe_blockpartition': blocks,
}
