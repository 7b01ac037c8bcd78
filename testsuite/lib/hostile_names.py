"""A model of which every name tries to leave its string (tool/hostile), and a real parser for every kind of file that is written of it."""
import csv, glob, html.parser, json, os, re, subprocess
import xml.etree.ElementTree as ET
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import pdcctest as T

MORE = ['#', 'a]]>b', '-->', '<svg onload=x>', '"; touch PWNED; #', '$(shell touch PWNED)', '=1+1', '!tag', '&a', '\u0085nel', '\u2028ls', '\x1b[2J', '\u2066isolate',
        '\ufeffbom', 'csi\x9b2J', 'mark\u061calm', 'ps\u2029ps', 'a\r\nb', '#include "x"', '%:', '??=define', '\\\n', "'''", '${PWNED}', '|', '\U0001f600']


def model(path, names):
    """A chain of products: weights, values, nodes and the graph have these names."""
    nodes, weights, at = [], [], 'x'
    for i, n in enumerate(names):
        weights.append(numpy_helper.from_array((np.random.RandomState(i).randn(8, 8) * 0.3).astype('f4'), n))
        to = f'{n}/y' if i + 1 < len(names) else 'logits'
        nodes += [helper.make_node('MatMul', [at, n], [f'{n}/m'], name=f'{n}/node'), helper.make_node('Relu', [f'{n}/m'], [to], name=n)]
        at = to
    g = helper.make_graph(nodes, 'g"</script>??/\n$(touch PWNED)', [helper.make_tensor_value_info('x', TensorProto.FLOAT, [4, 8])],
                          [helper.make_tensor_value_info('logits', TensorProto.FLOAT, [4, 8])], weights)
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid('', 17)]), path)


class Page(html.parser.HTMLParser):
    def handle_starttag(self, tag, attrs):
        if 'onload' in dict(attrs):      # pages have the tag too
            raise ValueError(f'a name became <{tag} onload>')


def parse_html(data, _):
    Page().feed(data.decode())
    for text in re.findall(rb'<script[^>]*application/json[^>]*>(.*?)</script>', data, re.S):
        json.loads(text)


def parse_yaml(data, path):
    try:
        import yaml
        yaml.safe_load(data)
    except ImportError:         # then pdcc's own reader, which the suite of plans has beside it
        T.check('inspect', *T.run([T.pdcc_path(), 'inspect', path]))


def parse_csv(data, path):
    with open(path, newline='') as f:
        rows = list(csv.reader(f, strict=True))
    if not rows or any(not re.fullmatch(r'\d*[A-Z_]+\d*', c) for row in rows for c in row if c):
        raise ValueError(f'cells of a schedule are others: {rows[:2]}')


def parse_c(data, path):
    root = path.split('/out/')[0] + '/out'
    flags = ['-std=c11', '-Wall', '-Wextra', '-Wtrigraphs', '-Wcomment', '-Werror', '-fopenmp', f'-I{root}', f'-I{root}/runtime']
    T.check(path, *T.run(['gcc', *flags, '-fsyntax-only', '-x', 'c', path]))
    odd = re.search('[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|[?][?][=/\'()!<>-]', data.decode())
    if odd:
        raise ValueError(f'{odd[0]!r} stands in the text')


def parse_dot(data, _):
    """Lines of quoted strings, words and signs."""
    text = data.decode()
    rest = re.sub(r'"(?:[^"\\]|\\.)*"', '', text, flags=re.S)
    if not re.fullmatch(r'[\w\s{}\[\]=;,>.#-]*', rest):
        raise ValueError(f'outside of its strings: {re.search(r"[^ -~]|[^A-Za-z0-9_ ]{9}|PWNED", rest)}')


PARSERS = {'json': lambda data, _: json.loads(data), 'yaml': parse_yaml, 'svg': lambda data, _: ET.fromstring(data), 'html': parse_html, 'csv': parse_csv,
           'sh': lambda _, path: T.check(path, *T.run(['sh', '-n', path])), 'c': parse_c, 'h': parse_c, 'dot': parse_dot,
           'Makefile': lambda _, path: T.check(path, *T.run(['make', '-n', '-C', os.path.dirname(path)]))}


def parse_all(folder):
    """All files below the folder, but for the runtime; gives how many of each kind."""
    kinds = {}
    for path in sorted(glob.glob(f'{folder}/**', recursive=True)):
        kind = os.path.basename(path).rsplit('.', 1)[-1]
        if kind not in PARSERS or '/runtime/' in path or not os.path.isfile(path):
            continue
        with open(path, 'rb') as f:
            data = f.read()
        try:
            PARSERS[kind](data, path)
        except (ValueError, ET.ParseError, csv.Error) as x:
            raise T.Failed(f'{path} does not parse: {str(x)[:500]}')
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


def shown(text):
    """What is printed has no character that moves the cursor, breaks a line where none ends, or turns the direction of text."""
    odd = re.search('[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]', text)
    if odd or re.search(r'^x = 1$', text, re.M):
        raise T.Failed(f'{odd and odd[0]!r} is printed:\n{text[max(0, odd.start() - 200):odd.end() + 20] if odd else text[:500]!r}')


def all_names(names):
    """Compiled, drawn, trained for two steps and exported: every file parses, weights come back under their names."""
    def case(folder, target):
        every = [*names, *MORE]
        model(f'{folder}/m.onnx', every)
        plan, pdcc = ['--cluster', 'local:2', '--plan', '1-1', '--loss', 'softmax_ce', *target], T.pdcc_path()
        for args in (['m.onnx', *plan, '-o', 'out', '--emit-only', '--save-plan', 'plan.yaml'], ['plan', 'm.onnx', *plan, '--report', 'r.html'],
                     ['plan', 'm.onnx', *plan, '--save-plan', 'plan.json'], ['simulate', 'm.onnx', *plan, '--timeline', 't.html'],
                     ['simulate', 'm.onnx', *plan, '--timeline', 't.svg'], ['simulate', 'm.onnx', *plan, '--timeline', 't.json'],
                     ['inspect', 'm.onnx'], ['inspect', 'out'], ['inspect', 'plan.yaml'], ['inspect', 'plan.json'],
                     *(['m.onnx', *plan[:2], '--plan', f'plan.{k}', *plan[4:], '-o', 'again/out', '--emit-only', '--force'] for k in ('yaml', 'json'))):
            shown(T.check(' '.join(args), *T.run([pdcc, *args], cwd=folder)))
        planned, = glob.glob(f'{folder}/out/ir/*-memplan.pdir')
        for form in 'dot', 'json':
            with open(f'{folder}/ir.{form}', 'wb') as f:
                p = subprocess.run([T.pdcc_path('pdcc-opt'), planned, '--ir-format', form], cwd=folder, stdout=f, stderr=subprocess.PIPE)
            T.check(f'pdcc-opt --ir-format {form}', p.returncode, p.stderr.decode(errors='replace'))
        found = parse_all(folder)
        if not set(PARSERS) <= set(found):
            raise T.Failed(f'no file of the kinds {set(PARSERS) - set(found)}')
        if not target:
            T.make(f'{folder}/out', '-O0 -Werror')
            T.start(f'{folder}/out', ['--steps', '2', '--quiet', '--ckpt', 'ckpt', '--ckpt-every', '2', '--out', 'run', '--csv', 'run/m.csv', '--trace', 'tr'])
            for args in (['inspect', 'out/ckpt'], ['inspect', 'out/run/trained.safetensors'], ['inspect', 'out/tr'],
                         ['profile', 'm.onnx', '--loss', 'softmax_ce', '-o', 'profile.json', '--profile-seconds', '1', '--profile-cache', 'none'],
                         ['inspect', 'profile.json'], ['plan', 'm.onnx', *plan, '--profile', 'profile.json']):
                shown(T.check(' '.join(args), *T.run([pdcc, *args], cwd=folder)))
            T.check('export', *T.run([pdcc, 'export', 'out/ckpt', '--model', 'm.onnx', '-o', 'T.onnx'], cwd=folder))
            given = {t.name for t in onnx.load(f'{folder}/T.onnx').graph.initializer}
            for where, has in (('trained.safetensors', T.safetensors(f'{folder}/out/run/trained.safetensors')), ('T.onnx', given)):
                if not set(every) <= set(has):
                    raise T.Failed(f'{where} lacks {[n[:40] for n in every if n not in has]}')
            for path in glob.glob(f'{folder}/out/**/*.json', recursive=True):
                with open(path) as f:
                    json.load(f)
        if glob.glob(f'{folder}/**/PWNED', recursive=True) or os.path.exists('PWNED'):
            raise T.Failed('a command inside a name was run')
    return case
