"""What the checks of testsuite/planner share: profiles, random factors, pdcc, comparing."""
import json
import math
import os
import random
import re
import subprocess

PDCC = os.environ.get('PDCC') or os.path.join(os.path.dirname(__file__), '..', '..', 'build', 'pdcc')
TOLERANCE = 1e-9


def close(got, want):
    return math.isclose(got, want, rel_tol=TOLERANCE, abs_tol=1e-300)


class Context:
    """time, bytes, bandwidth: factors that the record at hand is run under; bandwidth is bytes / time, so that every
    second, of compute and of links, is multiplied by `time`."""

    def __init__(self, golden, folder, seed):
        self.golden, self.folder, self.seed = golden, folder, seed
        self.time = self.bytes = self.bandwidth = 1.0
        self.cache = {}
        self.quiet = False      # no notes about ties
        self.ties = 0           # plans that differ from the recorded one and cost the same

    def draw(self, scaled, *name):
        r = random.Random('%d %s' % (self.seed, name))
        self.time = self.bytes = 1.0
        if scaled:
            self.time, self.bytes = 10 ** r.uniform(-2, 2), 10 ** r.uniform(-2, 2)
        self.bandwidth = self.bytes / self.time

    def title(self, r):
        keys = ('profile', 'model', 'mode', 'variant', 'all_num_machines', 'network_bandwidths_Bps', 'M', 'bandwidth_Bps',
                'straight', 'partitions')
        return ' '.join(str(r[k]) for k in keys if k in r)

    def profile(self, name, note=''):
        """The file of a profile and what has to be done to it, as arguments of plan-profile."""
        p = self.golden['profiles'].get(name) or self.golden['profiles'][re.sub('_without_.*', '', name)]
        args = [os.path.join(self.folder, p['file'])]
        sink = re.search(r'sink (\w+)', note)
        if sink:
            args += ['--without', sink.group(1)]
        if 'compress' in p.get('repair', '') + note:
            args += ['--compress']
        return args

    def scale(self, time=1.0, act=1.0, whole=False):
        """The record's own factors times ours; whole: by a whole number of times, where times are rounded."""
        t = time * (float(math.ceil(self.time)) if whole else self.time)
        return ['--scale-time', repr(t), '--scale-activations', repr(act * self.bytes),
                '--scale-parameters', repr(self.bytes)]

    def pdcc(self, *args):
        """The answer of pdcc plan-profile, each asked once."""
        if args not in self.cache:
            r = subprocess.run([PDCC, 'plan-profile', '--json', *args], capture_output=True, text=True, timeout=300)
            if r.returncode:
                raise RuntimeError(r.stderr.strip() or 'exit status %d' % r.returncode)
            self.cache[args] = json.loads(r.stdout)
        return self.cache[args]


def compare(pairs):
    """pairs: (what, got, wanted); the first that differs, in words."""
    for what, got, want in pairs:
        if not close(got, want):
            return '%s is %.17g, wanted %.17g (%.2g off)' % (what, got, want, abs(got / want - 1) if want else got)
    return None
