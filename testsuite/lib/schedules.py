"""The table of schedules, as `pdcc --list-schedules` prints it: suites go through it and need no list of their own."""
import collections, re
import pdcctest as T

# said: the word with a parameter put in; param: '' none, 'needed', 'may' be left out, 'flag' of its own; stages: of a device
Row = collections.namedtuple('Row', 'word name said param letter flow stages placement backward flight auto paper')
EXAMPLE = {'V': '2', 'N': '2', 'FILE': 'schedule.csv'}


def rows():
    out = []
    for line in T.check('--list-schedules', *T.run([T.pdcc_path(), '--list-schedules'])).splitlines()[1:]:
        word, flow, stages, placement, backward, flight, auto, paper = re.split(r' {2,}', line.strip())
        m = re.fullmatch(r'([^:\[]+)(?:\[?:(\w+)\]?)?', word)
        name, letter = m.group(1), m.group(2) or ''
        param = '' if not letter else 'may' if '[' in word else 'needed'
        if flow == 'a flag of its own':
            param = 'flag'
        said = f'{name}:{EXAMPLE[letter]}' if param == 'needed' else name
        n = int(EXAMPLE[stages] if stages in EXAMPLE else stages)
        out.append(Row(word, name, said, param, letter, flow, n, placement, backward, flight, auto == 'yes', paper))
    return out


def flushed(listed=False):
    """Those that compute what one device would; listed: also files."""
    return [r for r in rows() if r.flow == 'flushed' and (listed or r.letter != 'FILE')]
