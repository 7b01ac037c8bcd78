"""What the tables share: profiles brought to another device, pdcc asked once per question, cells and what is wrong with them."""
import hashlib
import json
import os
import re
import shlex
import subprocess

import pdcctest as T

DATA = os.path.join(os.path.dirname(T.ROOT), 'shared', 'data', 'planner')
NEAR = 0.10             # a cell without a reason: ours / paper is within 1 / (1 + NEAR) .. 1 + NEAR
BAND = 0.05             # a cell with a reason: within this of the ratio that off.txt has for it; of runs that differ it is said


class Missing(Exception):
    """Data that a table needs are not on this machine."""


class Pdcc:
    """Questions to pdcc, each asked once; `used` holds the command lines since a table began."""

    def __init__(self, folder):
        self.folder, self.answers, self.used = folder, {}, []

    def ask(self, *args):
        args = [str(a) for a in args]
        key = tuple(args)
        self.used.append(key)
        if key not in self.answers:
            r = subprocess.run([T.pdcc_path(), *args], capture_output=True, text=True, timeout=300)
            if r.returncode:
                raise T.Failed('%s: %s' % (self.line(key), r.stderr.strip() or 'exit status %d' % r.returncode))
            self.answers[key] = json.loads(r.stdout[r.stdout.index('{'):])
        return self.answers[key]

    def line(self, key):
        """A command line as a reader would type it."""
        short = [a.replace(self.folder + '/', '').replace(DATA, '../shared/data/planner').replace(T.HERE, 'testsuite') for a in key]
        return 'pdcc ' + ' '.join(shlex.quote(a) for a in short)

    def plan(self, profile, workers, bandwidth, microbatches, plan, schedule='1f1b', *more):
        """pdcc plan-profile --evaluate: {step_s, peak, ends}."""
        return self.ask('plan-profile', profile, '--planner', 'auto', '--json', '--workers', workers, '--bandwidth', bandwidth,
                        '--microbatches', microbatches, '--evaluate', plan, '--schedule', schedule, *more)['evaluate']

    def step(self, *args):
        return self.plan(*args)['step_s']


def path(*parts):
    f = os.path.join(DATA, *parts)
    if not os.path.exists(f):
        raise Missing('no published profiles: %s is absent' % os.path.relpath(f, T.ROOT))
    return f


def layers(file):
    """[[id, name, forward ms, backward ms, activation bytes, parameter bytes]] and the lines of edges."""
    nodes, edges = [], []
    for line in open(file):
        w = line.rstrip('\n').split(' -- ')
        if line[0] in ' \t':
            edges.append(line.rstrip('\n'))
        elif len(w) > 2:
            value = {k: sum(float(x) for x in v.strip('[]').split('; ')) for k, v in re.findall(r'(\w+)=(\[[^]]*\]|[^,]+)', w[2])}
            nodes.append([w[0], w[1], value['forward_compute_time'], value['backward_compute_time'], value['activation_size'],
                          value['parameter_size']])
    return nodes, edges


def write(p, nodes, edges=None):
    """A profile file with these layers, named by what is in it; without edges a chain."""
    if edges is None:
        edges = ['\t%s -- %s' % (a[0], b[0]) for a, b in zip(nodes, nodes[1:])]
    text = ''.join('%s -- %s -- forward_compute_time=%.9g, backward_compute_time=%.9g, activation_size=%.9g, parameter_size=%.9g\n'
                   % tuple(n) for n in nodes) + '\n'.join(edges) + '\n'
    f = os.path.join(p.folder, hashlib.sha1(text.encode()).hexdigest()[:10] + '.txt')
    if not os.path.exists(f):
        with open(f, 'w') as out:
            out.write(text)
    return f


def scaled(p, file, time=1.0, batch=1.0, weights=1.0, again=0.0):
    """The profile of another device (time: of a layer), batch and exchange (weights: bytes sent per byte of parameters);
    again: shares of the forward that the backward repeats."""
    nodes, edges = layers(file)
    return write(p, [[i, n, f * time * batch, (b + again * f) * time * batch, a * batch, w * weights] for i, n, f, b, a, w in nodes], edges)


class Cell:
    """paper, ours: numbers or words; None for ours: not measured here. band: how far it may be from its ratio in off.txt."""

    def __init__(self, row, column, paper, ours, form='%.2f', most=NEAR, band=BAND):
        self.row, self.column, self.paper, self.ours, self.form, self.most, self.band = row, column, paper, ours, form, most, band
        self.reason = self.wrong = None

    def number(self):
        return isinstance(self.paper, (int, float)) and isinstance(self.ours, (int, float))

    def ratio(self):
        return self.ours / self.paper if self.number() and self.paper else None

    def near(self):
        if not self.number():
            return self.ours == self.paper
        return 1 / (1 + self.most) <= self.ours / self.paper <= 1 + self.most

    def said(self, what):
        return '-' if what is None else what if isinstance(what, str) else self.form % what

    def judge(self, off):
        """off: {(row, column): (ratio or words, reason)}; True when the cell counts."""
        if self.ours is None or self.paper is None:
            return False
        want = off.get((self.row, self.column))
        if want:
            self.reason = want[1]
            if not self.number():
                good = self.said(self.ours) == want[0]
            else:
                good = abs(self.ours / self.paper / float(want[0]) - 1) <= self.band
            if not good:
                self.wrong = 'off by another amount than off.txt says (%s)' % want[0]
        elif not self.near():
            self.wrong = 'outside its tolerance, and off.txt has no reason'
        return True


class Table:
    """A table or figure: cells, or curves (name: [(x, y)]) for a picture."""

    def __init__(self, name, title, text, cells=(), notes=(), fitted=(), picture=None, missing=(), recorded=()):
        self.name, self.title, self.text, self.cells = name, title, text, list(cells)
        self.notes, self.fitted, self.picture, self.missing = list(notes), list(fitted), picture, list(missing)
        self.checks = []                # (what must hold, does it)
        self.recorded = list(recorded)  # experiments of measure.py that it stands on
        self.commands = []

    def check(self, what, holds):
        self.checks.append((what, bool(holds)))

    def rows(self):
        return list(dict.fromkeys(c.row for c in self.cells))

    def columns(self):
        return list(dict.fromkeys(c.column for c in self.cells))

    def judge(self, off):
        """(passed, failed, what is wrong)."""
        passed, wrong = 0, []
        seen = {(c.row, c.column) for c in self.cells}
        for c in self.cells:
            if c.judge(off):
                passed += not c.wrong
                if c.wrong:
                    wrong.append('%s, %s, %s: %s, ours %s%s: %s' % (self.name, c.row, c.column, c.said(c.paper), c.said(c.ours),
                                 '' if c.ratio() is None else ', ratio %.3f' % c.ratio(), c.wrong))
        wrong += ['%s: off.txt has %s, %s, which is no cell' % (self.name, *k) for k in off if k not in seen]
        for what, holds in self.checks:
            passed += holds
            if not holds:
                wrong.append('%s: does not hold: %s' % (self.name, what))
        return passed, len(wrong), wrong


def off_list(file):
    """off.txt: a reason in a paragraph of its own, behind it the cells that it explains, `table | row | column | ratio`."""
    found, text = {}, []
    for line in open(file, encoding='utf-8'):
        line = line.rstrip('\n')
        if ' | ' in line:
            table, row, column, ratio = [w.strip() for w in line.split(' | ')]
            found.setdefault(table, {})[row, column] = (ratio, ' '.join(text))
        elif not line or line.startswith('#'):
            text = []
        else:
            text.append(line.strip())
    return found
