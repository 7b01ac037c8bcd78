"""testsuite/planner --tables: PipeDream's Table 1 and DAPPLE's Tables V and VII, the papers' rows beside the published
programs' answers (golden.json) and ours, which are computed here. A row that is not the paper's says why: tables.txt.
Where ours is not what the published program answered, the line ends with `differs`, and the command fails."""
import functools
import os
import re
import textwrap

from plannercheck import close
from planner_dapple import dapple

CLUSTERS = {'A': 3.125e9, 'B': 1.25e9}                  # PipeDream's: bytes/s
PUBLISHED = {'VGG16': 'vgg16', 'Inception-v3': 'inception_v3'}
COSTS = (('2018 formula', 'paper2018_formula', ['--cost', 'paper']),
         ('optimizer.py', 'optimizer_py_16GB', ['--cost', 'old', '--memory', '16e9']),
         ('as shipped', 'optimizer_graph_hierarchical_default', []),
         ('as shipped, transfers', 'optimizer_graph_hierarchical_act1', ['--compression', '1']))
BLOCKS = re.compile(r'Conv2d|FC|Prediction|[Ll]ayer_\d|cell_\d|LSTM|EmuBidir|RecurrentAtt')

FOOT = """ties: equal in what the published search minimises, the slowest block; which of such plans it
scores and prints is up to the order of its hash tables."""


def reasons():
    """tables.txt: (table, model, ..) -> text."""
    found, key = {}, None
    for line in open(os.path.join(os.path.dirname(__file__), 'tables.txt')):
        if ' | ' in line:
            key = tuple(line.strip().split(' | '))
        elif key:
            found[key] = (found.get(key, '') + ' ' + line.strip()).strip()
    return found


class Report:
    def __init__(self):
        self.reasons = reasons()
        self.differ = 0

    def line(self, *cells):
        """(width, text) pairs in columns."""
        print(' '.join(str(t).ljust(w) for w, t in cells).rstrip(), flush=True)

    def title(self, text):
        print('\n%s\n%s' % (text, '-' * len(text)))

    def reason(self, key, differs):
        if not differs:
            return
        text = self.reasons.get(tuple(map(str, key)))
        if not text:
            text, self.differ = 'no reason is known', self.differ + 1
        print(textwrap.fill('why: ' + text, 120, initial_indent='    ', subsequent_indent='         '))

    def same(self, ours, theirs, wrong=None):
        """The mark behind ours; theirs None: nothing was recorded. wrong: asks whether it is more than a tie."""
        if theirs is None or close(ours, theirs):
            return ''
        if wrong and not wrong():
            return 'ties'
        self.differ += 1
        return 'differs'


def times(x):
    return '%.2fx' % x


def flat(levels):
    """Stages of a plan over levels, lowest level: [(begin, end, replicas)], with the replicas of its parents."""
    stages = [(g[0], g[1], 1) for g in [(0, levels[-1]['groups'][-1][-1][1])]]
    for level in levels:
        groups = level['groups']
        stages = [(s[0], s[1], s[2] * whole[2]) for group, whole in zip(groups, stages) for s in group]
    return stages


def config(stages):
    return '-'.join(str(s[2]) for s in stages)


# ---- PipeDream, Table 1 ----

def variants(golden, row):
    """The records that stand for a row: the published profile as it is, and brought to the paper's batch of 32."""
    device = {'A': 'b32_TitanX2.2_25G', 'B': 'b32_V100_10G'}[row['cluster']]
    name = PUBLISHED[row['model']]
    for head in ('', '_without_aux_head'):
        for v in ('raw_b128_25G' if row['cluster'] == 'A' else 'raw_b128_10G', device):
            for r in golden['table1_variants']:
                if (r['profile'], r['variant'], r['M']) == (name + head, v, row['machines']):
                    yield r


def said(r):
    words = 'batch 128, as published' if r['compute_scale'] == 1 else 'batch 32' + (
        ' on a Titan X' if r['compute_scale'] > 0.25 else '')
    return words + (', no head' if 'without' in r['profile'] else '')


def table1_row(ctx, out, golden, row):
    out.line((15, row['model']), (9, '%d (%s)' % (row['machines'], row['cluster'])), (82, 'the paper'),
             (14, row['config']), (8, times(row['speedup'])), (8, times(row['bsp'])))
    found = agree = total = 0
    for r in variants(golden, row) if row['model'] in PUBLISHED else ():
        common = [*ctx.profile(r['profile'], r.get('note', '')), *ctx.scale(r['compute_scale'], r['activation_scale']),
                  '--workers', str(r['M']), '--bandwidth', repr(r['bandwidth_Bps'])]
        for name, key, flags in (*COSTS, ('tensors counted once', '', ['--cost', 'once'])):
            if key and key not in r or not key and 'inception' not in r['profile']:
                continue
            theirs = r.get(key, {})
            recorded = theirs.get('config', '-')
            if 'speedup_vs_1' in theirs:
                recorded += ' ' + times(theirs['speedup_vs_1'])
            got = ctx.pdcc(*common, *flags)
            ours = config(flat(got['levels']))
            out.line((25, ''), (33, said(r)), (22, name), (25, recorded), (14, ours),
                     (8, times(got['speedup'])), (8, times(got['dp_speedup'])),
                     (0, out.same(got['pipeline_s'], theirs.get('pipeline_s')) or '= paper' * (ours == row['config'])))
            agree += ours == row['config']
            total += 1
    out.reason(('1', row['model'], row['machines'], row['cluster']), not total or agree < total)


def table1(ctx, out, golden):
    out.title('PipeDream (2018), Table 1: plan, speedup over one machine, that of data parallelism (BSP)')
    out.line((25, 'model, machines'), (33, 'profile'), (22, 'cost'), (25, 'published program'),
             (14, 'pdcc'), (8, 'speedup'), (8, 'BSP'))
    for row in golden['published']['pipedream2018_table1']:
        table1_row(ctx, out, golden, row)


# ---- DAPPLE ----

@functools.lru_cache(maxsize=None)
def layers(path):
    """A profile's layer names, and who feeds whom."""
    name, above = {}, {}
    for line in open(path):
        words = line.strip().split(' -- ')
        if line[0] in ' \t' and len(words) == 2:
            above.setdefault(words[1], []).append(words[0])
        elif len(words) > 2:
            name[words[0]] = words[1]
    return name, above


def split(path, stages):
    """How many of the model's blocks each stage has: 23:25."""
    name, above = layers(path)
    seen, counts = set(), []
    for s in stages:
        before = len([v for v in seen if BLOCKS.match(name[v])])
        todo = list(s['cut'])
        while todo:
            v = todo.pop()
            if v not in seen:
                seen.add(v)
                todo += above.get(v, [])
        counts.append(len([v for v in seen if BLOCKS.match(name[v])]) - before)
    return ':'.join(map(str, counts))


def kind(stages):
    n = [len(s['devices']) for s in stages]
    return 'DP' if len(n) == 1 else 'straight' if len(n) == sum(n) else ':'.join(map(str, n))


def servers(r):
    return ['--planner', 'dapple', '--servers', ','.join(map(str, r['seps'])), '--p2p', repr(r['eth_p2p_Bps']),
            '--nccl', repr(r['eth_nccl_Bps']), '--nvlink', repr(r['nvlink_p2p_Bps']), '--profiled', str(r['pbs']),
            '--batch', str(r['gbs']), '--least', str(r['min_micro_batch'])]


def answers(ctx, r):
    """The published program's search and ours by the paper's equations."""
    common = (*ctx.profile(r['profile']), *servers(r))
    theirs = ctx.pdcc(*common, '--published', '--memory', '16e9', '--scaling', str(r['optimizer_memory_scaling']),
                      '--peak', repr(r['peak_activation_per_batch']))
    return theirs, ctx.pdcc(*common)['plan'] if r['num_states'] < 1000 else None


def equations(path, plan):
    if not plan:
        return '-'
    where = '-' if len(plan['stages']) in (1, 16) else short(split(path, plan['stages']))
    return '%s %s %s' % (short(kind(plan['stages'])), where, times(plan['speedup']))


def name(config):
    return 'DP' if ':' not in config else 'straight' if config.count(':') == 15 else config


def short(plan):
    return plan if len(plan) < 18 else plan[:15] + '...'


def table5_row(ctx, out, r, paper, where):
    theirs, ours = answers(ctx, r)
    path = ctx.profile(r['profile'])[0]
    best = theirs['candidates'][theirs['best']]
    dp = theirs['dp'][1]
    type_, where_ = kind(best['stages']), split(path, best['stages'])
    cells = ['%s %s %s' % (type_, '-' if type_ in ('DP', 'straight') else where_, times(best['speedup'])),
             '%s %s' % (name(r['best_config']), times(r['best_speedup']))]
    for i, x in enumerate((dp, r['dp_speedup_overlap'])):
        if x > (best['speedup'], r['best_speedup'])[i]:
            cells[i] = 'DP %s' % times(x) + (', ' + cells[i] if ':' in cells[i] else '')
    if dp > best['speedup'] or type_ == 'DP':
        type_, where_ = 'DP', '-'
    if paper[3] == 'straight' and type_ == 'straight':
        where_ = '-'
    paper_where = paper[4] or '-'
    equal = (type_, where_) == (paper[3], paper_where)
    mine = equations(path, ours)
    out.line((14, r['model']), (26, where), (17, '%s %s' % (paper[3], paper_where)), (22, cells[1]), (30, cells[0]),
             (38, mine), (0, out.same(best['speedup'], r['best_speedup'], lambda: dapple(ctx, r)) or '= paper' * equal))
    return not equal or not mine.startswith('%s %s ' % (paper[3], paper_where))


def table5(ctx, out, golden):
    out.title('DAPPLE (2020), Table V: type of plan, split of the model\'s blocks, speedup over one device')
    out.line((14, 'model'), (26, 'cluster, bytes/s'), (17, 'the paper'), (22, 'published program'),
             (30, 'pdcc, published score'), (38, 'pdcc, equations'))
    for paper in golden['published']['dapple_tableV']:
        differs = False
        for r in golden['dapple']:
            if r['table'] != 'V' or r['model'] != paper[0] or r['env'][0] != paper[2]:
                continue
            shape = r['env'].split('_')[1]
            where = '%s %s %.2g/%.2g' % (paper[2], shape, r['eth_p2p_Bps'], r['eth_nccl_Bps'])
            differs |= table5_row(ctx, out, r, paper, where)
            key = ('V', paper[0], shape, paper[2])
        out.reason(key, differs)


def spans(stages, last):
    """By states: [begin,end)xdevices; long ones begin:devices."""
    if len(stages) > 15:
        return last
    text = ' '.join('[%d,%d)x%d' % s for s in stages)
    return text if len(text) < 100 else ' '.join('%d:%d' % (s[0], s[2]) for s in stages)


def paper_plan(text):
    """'(0,16)@G0-13 (17,25)@G14-15' -> [(0, 16, 14), (16, 25, 2)]: DAPPLE's column has the Input as layer 0 and
    inclusive ends, PipeDream's has ends exclusive; both begin a stage where the one before ends."""
    stages, at = [], 0
    for end, first, last in re.findall(r'\(\d+,(\d+)\)@G(\d+)(?:-(\d+))?', text):
        stages.append((at, int(end), int(last or first) - int(first) + 1))
        at = int(end)
    return stages


def table7_row(ctx, out, golden, r, paper):
    theirs, ours = answers(ctx, r)
    best = theirs['candidates'][theirs['best']]
    model = r['model'].split(' (')[0]
    want = paper_plan(paper['dapple'])
    form = [[(s['begin'], s['end'], len(s['devices'])) for s in p['stages']] for p in (best, ours or best)]
    out.line((0, '%s, batch %d: DAPPLE' % (r['model'], r['gbs'])))
    out.line((16, '    the paper'), (0, spans(want, '')))
    out.line((16, '    published'), (70, spans([(s[0], s[1], len(s[2])) for s in r['best_stages']], '')),
             (0, times(r['best_speedup'])))
    out.line((16, '    pdcc'), (70, spans(form[0], '')), (8, times(best['speedup'])),
             (0, out.same(best['speedup'], r['best_speedup']) or '= paper' * (form[0] == want)))
    out.line((16, '    equations'), (70, spans(form[1], 'straight')), (0, times(ours['speedup'])))
    if 'DAPPLE profile' in r['model']:
        out.reason(('VII', 'BERT Large', 'DAPPLE', 'its own profile'), True)
        return
    out.reason(('VII', model, 'DAPPLE'), form[0] != want)
    pipedream_column(ctx, out, golden, r, model, paper['pipedream'])


def pipedream_column(ctx, out, golden, r, model, text):
    """PipeDream's planner on the same two machines, links inside one at 25 and at 130 GB/s; and what the plan is worth
    when it runs synchronously, as DAPPLE's event recursion has it."""
    want = [(s[0], s[1], s[2]) for s in paper_plan(text)]
    out.line((0, '  PipeDream on the same machines'))
    out.line((16, '    the paper'), (0, text if not want else spans(want, '')))
    differs, plans = True, []
    for g in golden['pipedream_on_dapple_profiles_2x8']:
        if g['profile'] != r['profile'] or g['mode'] != 'act1':
            continue
        got = ctx.pdcc(*ctx.profile(g['profile']), '--workers', ','.join(map(str, g['all_num_machines'])),
                       '--bandwidth', ','.join(map(repr, g['network_bandwidths_Bps'])), '--compression', '1')
        mine = flat(got['levels'])
        equal = mine == want or (text == 'straight' and len(mine) == 16)
        differs &= not equal
        out.line((0, '  links inside a machine %.0f GB/s' % (g['network_bandwidths_Bps'][0] / 1e9)))
        out.line((16, '    published'), (70, spans(flat(g['levels']), 'straight')), (0, times(g['speedup_vs_1'])))
        out.line((16, '    pdcc'), (70, spans(mine, 'straight')), (8, times(got['speedup'])),
                 (0, out.same(got['pipeline_s'], g['pipeline_s']) or '= paper' * equal))
        plans.append(equal)
    out.reason(('VII', model, 'PipeDream'), not all(plans))
    simulated(ctx, out, golden, r)


def simulated(ctx, out, golden, r):
    for s in golden['dapple_simulated']:
        if s['profile'] != r['profile']:
            continue
        worth = {}
        for who in ('dapple', 'pipedream'):
            plan = ','.join('%d:%d-%d' % (x[0], x[2], x[3]) for x in s[who + '_plan'])
            worth[who] = ctx.pdcc(*ctx.profile(r['profile']), *servers(dict(r, **s)), '--stages', plan)['recursion']
        ratio = worth['dapple'] / worth['pipedream']
        out.line((0, '  run synchronously, DAPPLE / PipeDream'))
        out.line((16, '    published'), (70, '%s / %s' % (times(s['dapple_speedup']), times(s['pipedream_speedup']))),
                 (8, times(s['ratio'])))
        out.line((16, '    pdcc'), (70, '%s / %s' % (times(worth['dapple']), times(worth['pipedream']))),
                 (8, times(ratio)), (0, out.same(ratio, s['ratio'])))


def table7(ctx, out, golden):
    out.title('DAPPLE (2020), Table VII: plans over two servers of eight, [first state, end) x devices')
    rows = golden['published']['dapple_tableVII']
    for r in golden['dapple']:
        if r['table'] != 'VII':
            continue
        paper = next(v for k, v in rows.items() if k.split(' (')[0].replace('-', '') in r['model'].replace('-', ''))
        table7_row(ctx, out, golden, r, paper)


def tables(ctx, golden):
    """True when all of ours is what the published programs answered and every other difference has its reason."""
    out = Report()
    ctx.quiet = True
    if 'published' not in golden:
        print('%s has no papers\' rows' % os.path.basename(ctx.folder))
        return False
    table1(ctx, out, golden)
    table5(ctx, out, golden)
    table7(ctx, out, golden)
    print('\n' + FOOT)
    print('\n%d answers differ from the published programs\', or from the papers\' without a reason' % out.differ)
    return not out.differ
