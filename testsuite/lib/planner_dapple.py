"""Checks of testsuite/planner: DAPPLE's published program, its scores and its event recursion."""
import itertools

from plannercheck import close, compare


def servers(ctx, r):
    return ['--planner', 'dapple', '--servers', ','.join(map(str, r['seps'])),
            '--p2p', repr(r['eth_p2p_Bps'] * ctx.bandwidth), '--nccl', repr(r['eth_nccl_Bps'] * ctx.bandwidth),
            '--nvlink', repr(r['nvlink_p2p_Bps'] * ctx.bandwidth),
            '--profiled', str(r['pbs']), '--batch', str(r['gbs']), '--least', str(r['min_micro_batch'])]


def stages(starts):
    """[(state, devices)] in order of device numbers as --stages."""
    words, first = [], 0
    for begin, n in starts:
        words.append('%d:%d-%d' % (begin, first, first + n - 1))
        first += n
    return ','.join(words)


def words(plan):
    return ' '.join('%d:%d' % (b, n) for b, n in plan)


def pairs(candidate):
    return [[s['begin'], len(s['devices'])] for s in candidate['stages']]


def scattered(r, single, given, speedup):
    """Records name the devices of the best candidate only. A straight plan over two servers: is there an order of their
    devices with the recorded score? Its slowest block, or None. L = (M-1)/M block + T/M + transfers."""
    plan, seps = given['plan'], r['seps']
    n, m = len(plan['stages']), plan['microbatches']
    if len(seps) != 2 or n != seps[1] or any(len(s['devices']) > 1 for s in plan['stages']):
        return None
    ratio = r['nvlink_p2p_Bps'] / r['eth_p2p_Bps']
    near = [s['transfer'] / (ratio if s['devices'][0] == seps[0] - 1 else 1) for s in plan['stages'][:-1]]
    work = max(s['fwd'] + s['bwd'] for s in plan['stages']) * m
    want = single / speedup
    for first in itertools.combinations(range(n), seps[0]):
        first = set(first)
        moves = [t * (ratio if (i in first) != (i + 1 in first) else 1) for i, t in enumerate(near)]
        block = max(work, 2 * m * max(moves))
        if close((m - 1) / m * block + single / m + sum(moves), want):
            return block
    return None


def candidate(ctx, r, common, ours, theirs, pair):
    """The score of the recorded plan; ours has the same plan, or one that the search cannot tell from it."""
    copies, speedup, plan = theirs
    given = ctx.pdcc(*common, '--copies', str(copies), '--stages', stages(plan))
    block = given['pair_block' if pair else 'block']
    wrong = compare((('the score of %s' % words(plan), given['pair_speedup' if pair else 'speedup'], speedup),))
    if wrong:
        single = r['single_gpu_s_at_gbs'] * ctx.time
        block = scattered(r, single, given, speedup)
        wrong = wrong if block is None else None
    if not wrong and ours['copies'] != copies:
        wrong = '%d copies, wanted %d' % (ours['copies'], copies)
    if not wrong and not close(ours['speedup'], speedup) or pairs(ours) != plan:
        if not close(ours['block'], block):
            wrong = 'the slowest block of %s is %.17g, that of %s is %.17g' % (
                words(pairs(ours)), ours['block'], words(plan), block)
    return wrong


def dapple(ctx, r):
    """Candidates that tie in the slowest block are one to the search: the published program takes the one that its hash
    order meets first, pdcc the one with the earliest cut. Where the best of all is such a plan, both must tie."""
    common = (*ctx.profile(r['profile']), *ctx.scale(), *servers(ctx, r))
    got = ctx.pdcc(*common, '--published', '--memory', repr(16e9 * ctx.bytes), '--scaling', str(r['optimizer_memory_scaling']),
                   '--peak', repr(r['peak_activation_per_batch'] * ctx.bytes))
    wrong = compare((
        ('single_gpu_s', got['single_s'], r['single_gpu_s_at_gbs'] * ctx.time),
        ('dp_speedup_no_overlap', got['dp'][0], r['dp_speedup_no_overlap']),
        ('dp_speedup_overlap', got['dp'][1], r['dp_speedup_overlap']),
        ('dp_speedup_overlap_inter_batch', got['dp'][2], r['dp_speedup_overlap_inter_batch'])))
    if not wrong and (got['states'], len(got['candidates'])) != (r['num_states'], len(r['candidates'])):
        wrong = '%d states and %d candidates, wanted %d and %d' % (
            got['states'], len(got['candidates']), r['num_states'], len(r['candidates']))
    for i, theirs in enumerate(r['candidates']):
        wrong = wrong or candidate(ctx, r, common, got['candidates'][i], theirs, i == len(r['candidates']) - 1)
    if wrong:
        return wrong
    best = got['candidates'][got['best']]
    plan = [[s[0], len(s[2])] for s in r['best_stages']]
    if not close(best['speedup'], r['best_speedup']) or (r['unique_plan'] and pairs(best) != plan):
        at = [t for t in r['candidates'] if close(t[1], r['best_speedup']) and t[2] == plan]
        if not at or r['candidates'].index(at[0]) != got['best']:
            return 'the best plan is %s (%.17g), wanted %s (%.17g)' % (
                words(pairs(best)), best['speedup'], words(plan), r['best_speedup'])
        if not ctx.quiet:
            print('note: %s: ties with the recorded plan in the slowest block; its score is %.6f, the recorded one %.6f' % (
                ctx.title(r), best['speedup'], r['best_speedup']))
    elif [s['devices'] for s in best['stages']] != [s[2] for s in r['best_stages']]:
        return 'devices %s, wanted %s' % ([s['devices'] for s in best['stages']], [s[2] for s in r['best_stages']])
    return None


def simulated(ctx, r):
    """The recursion's answers for DAPPLE's plan and PipeDream's; PipeDream's numbers of stages are by its own column."""
    common = (*ctx.profile(r['profile']), *ctx.scale(), *servers(ctx, r))
    wanted = []
    for who in ('dapple', 'pipedream'):
        plan = [(s[0], s[3] - s[2] + 1) for s in r[who + '_plan']]
        got = ctx.pdcc(*common, '--stages', stages(plan))
        wanted.append((who + '_speedup', got['recursion'], r[who + '_speedup']))
    return compare(wanted)


def equations(ctx, r):
    """Answers by trying every plan: by ours, which tries them too, and by the planner, which must find as good a one."""
    ends = list(itertools.accumulate(r['servers']))
    common = (*ctx.profile(r['profile']), *ctx.scale(), '--planner', 'dapple', '--servers', ','.join(map(str, ends)),
              '--p2p', repr(r['p2p'] * ctx.bandwidth), '--nccl', repr(r['nccl'] * ctx.bandwidth),
              '--nvlink', repr(r['nvlink'] * ctx.bandwidth), '--profiled', '1', '--batch', str(r['gbs']),
              '--microbatches', str(r['microbatches']))
    want = r['latency'] * ctx.time
    wrong = compare((("the planner's latency", ctx.pdcc(*common)['plan']['latency'], want),))
    if r['num_states'] > 12:        # more than pdcc tries them for
        return wrong
    return wrong or compare((('the best latency of all', ctx.pdcc(*common, '--exhaustive')['plan']['latency'], want),))


SECTIONS = {'dapple': dapple, 'dapple_simulated': simulated, 'dapple_equations': equations}
