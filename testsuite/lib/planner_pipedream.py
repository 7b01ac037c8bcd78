"""Checks of testsuite/planner: PipeDream's planners and torchgpipe's block partition."""
from plannercheck import compare, close

MODES = {
    'default': [], 'act1': ['--compression', '1'], 'straight_act1': ['--compression', '1', '--straight'],
    'fewer_act1': ['--compression', '1', '--fewer'],
}


def numbers(v):
    return ','.join(repr(x) for x in v)


def plan_of(ctx, record, got):
    """Both plans with stage ends named by the layers that cross them, since states may be numbered differently."""
    states = ctx.golden['profiles'].get(record['profile'], {}).get('states')
    mine = {int(k): frozenset(v) for k, v in got['ends'].items()}

    def name(end, ours):
        if not states:
            return end
        return mine[end] if ours else frozenset(states[end - 1][0])

    return [[[[(name(s[1], ours), s[2]) for s in g] for g in level['groups']] for level in which]
            for ours, which in ((True, got['levels']), (False, record['levels']))]


def words(plan):
    return ' / '.join(' '.join('-'.join(str(s[2]) for s in g) + ' at ' + ','.join(str(s[0]) for s in g[1:])
                               for g in level['groups']) for level in plan)


def sosp(ctx, r):
    mode = MODES.get(r['mode'])
    if mode is None:
        mode = ['--compression', '1', '--memory', repr(16e9 * ctx.bytes)]
    got = ctx.pdcc(*ctx.profile(r['profile']), *ctx.scale(), *mode, '--workers', numbers(r['all_num_machines']),
                   '--bandwidth', numbers(b * ctx.bandwidth for b in r['network_bandwidths_Bps']))
    wrong = compare((
        ('single_gpu_s', got['single_s'], r['single_gpu_s'] * ctx.time),
        ('pipeline_s', got['pipeline_s'], r['pipeline_s'] * ctx.time),
        ('speedup_vs_1', got['speedup'], r['speedup_vs_1']), ('dp_speedup_vs_1', got['dp_speedup'], r['dp_speedup_vs_1'])))
    if not wrong and got['states'] != r['num_states']:
        wrong = '%d states, wanted %d' % (got['states'], r['num_states'])
    if not wrong and r.get('unique_plan'):
        ours, theirs = plan_of(ctx, r, got)
        if ours != theirs:
            wrong = 'the plan is %s, wanted %s' % (words(got['levels']), words(r['levels']))
    return wrong


def paper(ctx, r):
    got = ctx.pdcc(*ctx.profile(r['profile']), *ctx.scale(), '--cost', 'paper', '--workers', str(r['M']), '--bandwidth',
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
    'table1_variants': table1, 'paper2018_formula': paper, 'torchgpipe_blockpartition': blocks,
}
