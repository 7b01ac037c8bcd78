#!/usr/bin/python3
"""pdcc simulate: word for word, and the pictures it draws.

    testsuite/plan/simulate/run.py PDCC [-u] [NAME...]     -u rewrites what is wanted from what is said; review the diff

A case is a file cases/NAME.txt: a line `run ARGS` (of pdcc; MODELS is testsuite/models, HERE this folder, TMP a folder
that is gone afterwards), a line `exit N`, then what is printed: standard output, then standard error. Pictures are read
with XML and JSON parsers and compared with each other: the same computations at the same times in all three, none of a
device at once with another, every microbatch forward and backward once per stage. Last line: `N passed, N failed`.
"""
import argparse, collections, difflib, glob, json, math, os, re, shlex, subprocess, sys, tempfile
import xml.etree.ElementTree as ET
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), 'lib'))
import onednn

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = os.path.join(os.path.dirname(os.path.dirname(HERE)), 'models')
WIDTH = 100
SVG = '{http://www.w3.org/2000/svg}'


def said(pdcc, args, tmp):
    """Exit status and text, with folders by their names."""
    places = {'MODELS': MODELS, 'HERE': HERE, 'TMP': tmp}
    words = shlex.split(args)
    for name, path in places.items():       # which may hold blanks
        words = [w.replace(name, path) for w in words]
    env = {k: v for k, v in os.environ.items() if k != 'PDCC_FLAGS'}
    p = subprocess.run([os.path.abspath(pdcc), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       stdin=subprocess.DEVNULL, timeout=60, env=env)
    text = (p.stdout + p.stderr).decode(errors='replace')
    for name, path in places.items():
        text = text.replace(path, name)
    return p.returncode, text


def golden(pdcc, path, update, tmp):
    """What is wrong, as text; '' when nothing is."""
    want = open(path).read()
    args = want.split('\n', 1)[0].removeprefix('run ')
    rc, out = said(pdcc, args, tmp)
    got = f'run {args}\nexit {rc}\n{out}'
    if update:
        open(path, 'w').write(got)
        return ''
    wide = [f'wider than {WIDTH}: {l}\n' for l in out.splitlines() if len(l) > WIDTH and ': ' not in l[:60]]
    if onednn.same(pdcc, want, got):
        return ''.join(wide)
    diff = difflib.unified_diff(want.splitlines(True), got.splitlines(True), 'wanted', 'said', n=1)
    return ''.join([*diff, *wide])


def bars(root):
    """Rectangles of a picture that stand for something: class, x, y, width, first line of the title."""
    rows = [g for g in root.iter(f'{SVG}g') if g.get('id') == 'rows'][0]
    return [(r.get('class').split()[1], float(r.get('x')), float(r.get('y')), float(r.get('width')),
             r.find(f'{SVG}title').text.split('\n')[0]) for r in rows.iter(f'{SVG}rect')]


def pictures(pdcc, tmp, plan, schedule, micro, stages):
    """Draws a step in all three forms and compares them."""
    files = [os.path.join(tmp, f't.{e}') for e in ('svg', 'html', 'json')]
    args = f'simulate MODELS/mlp/train.onnx --cluster HERE/two-hosts.yaml --plan {plan} --schedule {schedule} ' \
           f'--micro-batch 16 --global-batch {16 * micro}' + ''.join(f' --timeline {f}' for f in files)
    rc, out = said(pdcc, args, tmp)
    assert rc == 0, out
    svg, page = bars(ET.parse(files[0]).getroot()), bars(ET.parse(files[1]).getroot())
    assert svg == page, 'the page shows other bars than the SVG'
    trace = json.load(open(files[2]))
    step, events = trace['otherData']['step_seconds'], trace['traceEvents']
    runs = [e for e in events if e['ph'] == 'X']
    for cat, cls in (('forward', 'f'), ('backward', 'b')):
        of = collections.Counter((e['args']['stage'], e['args']['microbatch']) for e in runs if e['cat'] == cat)
        assert of == {(s, m): 1 for s in range(stages) for m in range(micro)}, f'{cat}s are {of}'
        drawn = sorted((round(x, 1), round(w, 1)) for c, x, _, w, _ in svg if c == cls)
        px = 1040e-6 / step
        wanted = sorted((round(130 + e['ts'] * px, 1), round(e['dur'] * px, 1)) for e in runs if e['cat'] == cat)
        assert len(drawn) == len(wanted), f'{cat}: {len(drawn)} bars for {len(wanted)}'
        assert all(abs(a - b) <= .11 for d, w in zip(drawn, wanted) for a, b in zip(d, w)), f'{cat}: bars elsewhere'
    last = {}
    for e in sorted(runs, key=lambda e: e['ts']):
        assert e['ts'] >= last.get(e['pid'], 0) - 2e-3, f'device {e["pid"]} does two things at {e["ts"]}'
        last[e['pid']] = e['ts'] + e['dur']
        assert e['ts'] + e['dur'] <= step * 1e6 + 1e-2
    begun = {e['id']: e for e in events if e['ph'] == 'b'}
    ended = {e['id']: e for e in events if e['ph'] == 'e'}
    assert begun.keys() == ended.keys() and all(ended[i]['ts'] >= begun[i]['ts'] for i in begun), 'messages'
    assert len(begun) == 2 * (stages - 1) * micro, f'{len(begun)} messages'
    assert any(e['ph'] == 'C' for e in events), 'no memory'
    page = open(files[1]).read()
    assert not re.search(r'(?:src|href)\s*=', page), 'the page loads something'


FOLDERS = {'stages': '--plan 2-1-1', 'chunks': '--plan 1-1 --schedule interleaved:2', 'servers': '--plan 4 --comm ps', 'compressed': '--plan 4 --compress q8',
           'alone': '--plan 4 --comm ps --no-local-agg',
           'pipe-sgd': '--plan 4 --pipe-sgd 2', 'async': '--plan 1-1-1 --schedule 2bw', 'each': '--plan 2-2 --sync async --staleness 1', 'reproducible': '--plan 2-2 --reproducible', 'zb': '--plan 1-1-1 --schedule zb-h1'}


def folder(pdcc, tmp, name):
    """A build folder is played as the model that it was made from: times, bytes of every pair, memory."""
    flags, out = '--cluster HERE/two-hosts.yaml', f'TMP/{name}'
    model = f'MODELS/mlp/train.onnx {flags} --micro-batch 4 --global-batch 48 {FOLDERS[name]}'
    rc, text = said(pdcc, f'{model} -o {out} --no-check -q', tmp)
    assert rc == 0, text
    want, got = (json.loads(said(pdcc, f'simulate {what} --json -q', tmp)[1]) for what in (model, f'{out} {flags}'))
    for k in want:
        assert k in ('measured', 'estimated') or want[k] == got[k], f'{k}: {want[k]} of the model, {got[k]} of the folder'
    step = json.loads(said(pdcc, f'plan {model} --json -q', tmp)[1])['step_s']
    assert step == want['step_s'], f'a step takes {step} s by pdcc plan, {want["step_s"]} s by pdcc simulate'
    drawn = [f'{tmp}/{name}.{e}' for e in ('svg', 'html', 'json')]
    rc, text = said(pdcc, f'simulate {out} {flags} -q ' + ' '.join(f.replace(tmp, '--timeline TMP') for f in drawn), tmp)
    assert rc == 0, text
    assert bars(ET.parse(drawn[0]).getroot()) == bars(ET.parse(drawn[1]).getroot()), 'the page shows other bars than the SVG'
    events = [e for e in json.load(open(drawn[2]))['traceEvents'] if e['ph'] == 'X' and e['cat'] in ('forward', 'backward')]
    assert got['steps'] == 1 or {e['args']['step'] for e in events} == set(range(got['steps'])), 'steps of the timeline'
    rc, text = said(pdcc, f'simulate {out} --cluster local:4 --json -q', tmp)
    bytes_ = name in ('servers', 'each') or json.loads(text)['sent_bytes'] == got['sent_bytes']     # devices of a host add before they push
    assert rc == 0 and bytes_, f'another cluster changes times, not bytes: {text}'
    assert name in ('chunks', 'async') or json.loads(text)['step_s'] < got['step_s'], 'no network, and no less time'
    rc, text = said(pdcc, f'simulate {out} --cluster local:2', tmp)
    assert name == 'chunks' or (rc == 1 and 'E0407' in text), text
    return ''


def owned(pdcc, tmp):
    """Replicas that own parameters: in a round of minibatches each sends another one the gradients that this owns, what it owns itself,
    and how many labels count; no other sums."""
    flags = f'MODELS/mlp/train.onnx --cluster HERE/two-hosts.yaml --micro-batch 4 --plan 3-1 --comm ps --schedule pipedream'
    rc, text = said(pdcc, f'{flags} -o TMP/own --no-check -q', tmp)
    assert rc == 0, text
    way = re.search(r'gradients  (.*)', open(f'{tmp}/own/plan.txt').read()).group(1)
    assert re.fullmatch(r'[\d.]+ \w+, each pushed to the one of 3 replicas that owns its parameter when .*', way) and 'ring' not in way, way
    holds = collections.Counter()
    for p in json.load(open(f'{tmp}/own/plan.json'))['stages'][0]['params'].values():
        size, part = 4 * math.prod(json.loads(p['type'][3:])), 4 * p.get('part', 0)
        for r in range(3):
            holds[r] += max(0, min(part, size - part * r)) if part else size * (r == p['owner'])
    assert max(holds.values()) < 1.1 * sum(holds.values()) / 3 < 1.21 * min(holds.values()), f'replicas own {holds}'
    rc, text = said(pdcc, f'simulate {flags} --json -q', tmp)
    got = {(x['from'], x['to']): x['sums'] for x in json.loads(text)['sent_bytes'] if x['sums']}
    rounds = json.loads(text)['steps'] // 3
    want = {(a, b): rounds * (holds[a] + holds[b] + 4) for a in range(3) for b in range(3) if a != b}
    assert got == want, f'{got}, by what replicas own {want}'
    flags = 'MODELS/seq2seq_attn/train_loss.onnx --cluster HERE/slower.yaml --plan 2 --schedule pipedream --comm ps --micro-batch 1'
    rc, out = said(pdcc, f'simulate {flags} -q --timeline TMP/early.json', tmp)
    assert rc == 0, out
    runs = [e for e in json.load(open(f'{tmp}/early.json'))['traceEvents'] if e['ph'] == 'X']
    made = {(e['pid'], e['args']['step']): e['ts'] for e in runs if e['cat'] == 'backward'}
    sums = [e for e in runs if e['cat'] == 'communication' and ' 4 bytes' not in e['name']]   # those: how many labels count
    early = [e for e in sums if e['ts'] < made[e['pid'], e['args']['step']]]
    assert sums and not early, f'gradients travel before their backward: {early[:1]}'
    rc, again = said(pdcc, 'simulate TMP/own --cluster HERE/two-hosts.yaml --json -q', tmp)
    assert rc == 0 and json.loads(again)['sums_s'] == json.loads(text)['sums_s'], f'of the folder: {again}'
    return ''


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('-u', action='store_true')
    ap.add_argument('pdcc')
    ap.add_argument('names', nargs='*')
    a = ap.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as tmp:
        tests = [(os.path.basename(p)[:-4], lambda p=p: golden(a.pdcc, p, a.u, tmp))
                 for p in sorted(glob.glob(os.path.join(HERE, 'cases', '*.txt')))]
        tests += [(f'pictures-{p}-{s}', lambda p=p, s=s: pictures(a.pdcc, tmp, p, s, 12, len(p.split('-'))))
                  for p in ('2-1-1', '1-3', '1') for s in ('1f1b', 'gpipe')]
        tests += [(f'folder-{name}', lambda name=name: folder(a.pdcc, tmp, name)) for name in FOLDERS]
        tests += [('owned', lambda: owned(a.pdcc, tmp))]
        for name, run in tests:
            if a.names and name not in a.names:
                continue
            try:
                wrong = run()
            except (AssertionError, ET.ParseError, ValueError, KeyError, IndexError) as e:
                wrong = f'{type(e).__name__}: {e}\n'
            passed += not wrong
            failed += bool(wrong)
            if wrong:
                sys.stdout.write(f'FAIL {name}\n{wrong}')
    print(f'{passed} passed, {failed} failed')
    return int(failed > 0)


if __name__ == '__main__':
    sys.exit(main())
