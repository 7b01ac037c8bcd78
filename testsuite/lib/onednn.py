"""Goldens with bytes of memory hold with the oneDNN that they were made with, 2.6: others want more or less room for themselves."""
import functools
import re
import subprocess

NUMBER = re.compile(r'\d+(?:\.\d+)?')
OFF = 0.08          # of the memory of a plan: what is oneDNN's own


@functools.lru_cache(None)
def another(pdcc):
    """pdcc is linked with another one."""
    out = subprocess.run(['ldd', pdcc], stdout=subprocess.PIPE, text=True).stdout
    return 'libdnnl.so' in out and 'libdnnl.so.2' not in out


def near(want, got):
    """The same words, and numbers that differ little."""
    a, b = ([float(n) for n in NUMBER.findall(s)] for s in (want, got))
    return NUMBER.sub('#', want) == NUMBER.sub('#', got) and all(abs(x - y) <= OFF * max(x, y) for x, y in zip(a, b))


def same(pdcc, want, got):
    if want == got or not another(pdcc):
        return want == got
    a, b = want.splitlines(), got.splitlines()
    return len(a) == len(b) and all(x == y or near(x, y) for x, y in zip(a, b))
