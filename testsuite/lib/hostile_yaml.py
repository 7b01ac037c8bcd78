"""cluster.yaml and train.yaml drawn from their schemas (tool/hostile): most keys with values that fit, some with odd ones."""
import functools, json
import pdcctest as T

SCALARS = ['8 Gb/s', '0 Gb/s', '-1 Gb/s', '1e30 GB/s', '1 GiB', '0 B', '1e20 TB', '1 us', '0 s', '1e-30 s', '3 TFLOP/s', '0 TFLOP/s', '700 W', '29500-29599', '1-0', '1', '2', 'auto',
           '1f1b', 'gpipe', 'interleaved:2', 'adam', '[0, 1]', '{cpu: 2}', '[{type: cpu, count: 2}]', '{type: h100, count: 4}', 'x', 'labels', 'logits', 'fc1.weight', '"*"', '"["',
           '"h[0-3]"', '"h[3-0]"', '"h[0-99999999]"', '"h[1,2,5-7]"', '"h[a-b]"', 'server@h', 'stage0', 'stage99999999999', 'none.npy', '/dev/null', '.']
NAMES = ['x', 'labels', 'fc1.weight', '*', 'h', 'h[0-3]', 'cpu', 'h100', 'server@h', 'batch', '']


@functools.lru_cache(maxsize=None)
def schema(kind):
    return json.loads(T.check('schema', *T.run([T.pdcc_path(), 'schema', kind])))


def scalar(r, s, odd):
    if r.random() < 0.1:
        return r.choice(odd) or '""'
    if 'enum' in s or 'const' in s:
        return json.dumps(r.choice(s.get('enum') or [s['const']]))
    if s.get('type') in ('integer', 'number'):
        least, most = s.get('minimum', s.get('exclusiveMinimum', 0)), s.get('maximum', 10)
        return str(r.choice([least, least, least + 1, 1, 2, 4, min(most, 64), most, most, least - 1]))
    return r.choice(['true', 'false']) if s.get('type') == 'boolean' else r.choice(SCALARS)


def value(r, s, odd, depth=0):
    """In flow style, so that a line is a key of the file."""
    for either in ('oneOf', 'anyOf'):
        if either in s:
            return value(r, r.choice(s[either]), odd, depth)
    if s.get('type') == 'array' or 'items' in s:
        return '[' + ', '.join(value(r, s.get('items', {}), odd, depth + 1) for _ in range(r.choice([0, 1, 1, 2, 3]))) + ']'
    if 'properties' not in s and s.get('type') != 'object':
        return scalar(r, s, odd)
    keys = s.get('properties', {})
    parts = [f'{k}: {value(r, keys[k], odd, depth + 1)}' for k in r.sample(sorted(keys), r.randrange(min(len(keys), 5) + 1))]
    if isinstance(s.get('additionalProperties'), dict):
        parts += [f'{json.dumps(r.choice(NAMES))}: {value(r, s["additionalProperties"], odd, depth + 1)}' for _ in range(r.randrange(3))]
    return '{' + ', '.join(parts) + '}'


def drawn(r, kind, odd):
    """A file of a few keys; one of hosts has some whose devices are said."""
    keys = schema(kind)['properties']
    lines = [f'{k}: {value(r, keys[k], odd)}' for k in r.sample(sorted(keys), r.randrange(1, 5))]
    if kind == 'cluster':
        lines = [line for line in lines if not line.startswith(('nodes:', 'devices:'))]
        hosts = ['{host: %s, devices: %s}' % (r.choice(['h', '"h[0-3]"', 'b', 'localhost']), r.choice(['1', '2', '{type: cpu, count: 2}', '4'])) for _ in range(r.randrange(1, 3))]
        lines.insert(r.randrange(len(lines) + 1), r.choice(['devices: 4', f'nodes: [{", ".join(hosts)}]']))
    return '\n'.join(lines) + '\n'
