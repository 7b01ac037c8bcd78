"""Which ways a run took, from what its programs say with --log-level debug: where a library refused something the program's own
kernels did it, and numbers alone do not show that."""
import re

# what -> [(way, the line that says so once)]
WAYS = (('attention', (('cuDNN', r'debug: attention of .*: by cuDNN$'), ('own', r'attention of .*: not by cuDNN'))),
        ('attention backward', (('cuDNN', r'debug: attention backward of .*: by cuDNN$'), ('own', r'attention backward of .*: not by cuDNN'))),
        ('convolutions', (('joined', r'debug: cuDNN joins a convolution'), ('apart', r'debug: cuDNN does not join'))),
        ('epilogues', (('cuBLASLt', r'debug: cuBLASLt has epilogue'), ('apart', r'debug: cuBLASLt has no epilogue'))),
        ('products timed', (('with end', r'debug: product \S+ takes [\d.]+ us$'), ('bare', r'debug: product \S+ takes [\d.]+ us, bare$'))),
        ('inputs', (('ahead', r'debug: .* read (\d+) inputs ahead$'),)),
        ('graphs', (('', r'debug: .* has (\d+) CUDA graphs$'), ('refused', r'R526 '))),
        ('NCCL', (('on', r'messages between GPUs: by NCCL'), ('off', r'messages between GPUs: staged'))))


def taken(text):
    """{'attention own': 2, ...}: how many forms of an operation, graphs, or runs went this way, over all ranks."""
    out, lines = {}, text.splitlines()
    for what, ways in WAYS:
        for way, pattern in ways:
            found = [int(m.group(1)) if m.groups() else 1 for m in (re.match(pattern, l) for l in lines) if m]
            if found:       # graphs: 0 is said too
                out[f'{what} {way}'.strip()] = sum(found)
    return out


def why(text):
    """What the library said of operations that it does not do, each once."""
    return sorted(set(re.findall(r'^[a-z ]+ of .*: not by \w+ \((.*)\), by', text, re.M)))


def total(all_of):
    out = {}
    for one in all_of:
        for k, n in one.items():
            out[k] = out.get(k, 0) + n
    return out


def said(counts, runs=False):
    """`attention: cuDNN 2, own 1; graphs 9; NCCL off`; runs: of several runs, so that NCCL is counted too."""
    out = []
    for what, ways in WAYS:
        have = [(way, counts[k]) for way, _ in ways for k in [f'{what} {way}'.strip()] if k in counts]
        plain = [f'{n}' if not way else way if what == 'NCCL' and not runs else f'{way} {n}' for way, n in have]
        if have:
            out.append(f'{what}{":" if have[0][0] and what != "NCCL" else ""} {", ".join(plain)}')
    return '; '.join(out)
