"""Goldens with bytes of memory hold with the oneDNN that they were made with, 2.6 on a processor that has AVX-512: others want more or
less room for themselves. What is sent and how long it takes is theirs nowhere."""
import functools
import re
import subprocess

NUMBER = re.compile(r'(\d+(?:\.\d+)?)(K|M|G)?')
UNIT = {'': 1, 'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}
OFF = 0.08          # of the memory of a plan: what is oneDNN's own
ROOM = 256 << 10    # likewise, of what is told as K, M or G
LINK = re.compile(r'"link": |(between hosts|within a host) +\d')
SAID = re.compile(r'"(?:\w+_s|sends_bytes)": [^,}]*')


@functools.lru_cache(None)
def another(pdcc):
    """pdcc is linked with another one, or that chooses other code here."""
    out = subprocess.run(['ldd', pdcc], stdout=subprocess.PIPE, text=True).stdout
    with open('/proc/cpuinfo') as f:
        return 'libdnnl.so' in out and ('libdnnl.so.2' not in out or ' avx512f ' not in f.read())


def near(want, got):
    """The same words, and numbers that differ little; of links nothing does."""
    if LINK.search(want) or SAID.findall(want) != SAID.findall(got):
        return False
    a, b = ([(float(n) * UNIT[u], u) for n, u in NUMBER.findall(s)] for s in (want, got))
    words = [NUMBER.sub('#', s).split() for s in (want, got)]
    return words[0] == words[1] and all(abs(x - y) <= max(OFF * max(x, y), ROOM * bool(u or v)) for (x, u), (y, v) in zip(a, b))


def same(pdcc, want, got):
    if want == got or not another(pdcc):
        return want == got
    a, b = want.splitlines(), got.splitlines()
    return len(a) == len(b) and all(x == y or near(x, y) for x, y in zip(a, b))
