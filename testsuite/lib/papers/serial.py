"""The simulator beside a serial one: its rules again in Python, one event after the other, for chains with and without replicas.

A device has a list of forwards and backwards and does them in order. A message leaves when its work is done, as soon as the sender's way
out and the receiver's way in are both free, first ready first gone; nothing else is known to it. Microbatch g of a stage of r replicas
is at replica g mod r."""
import random

from core import Cell, Table, write


def work(schedule, depth, stage, count):
    """A device's list: warm-up forwards, then one backward and one forward in turn, then backwards; GPipe: all forwards first."""
    first = min(count, count if schedule == 'gpipe' else depth - stage)
    out = [('F', k) for k in range(first)]
    for k in range(count):
        out.append(('B', k))
        if first + k < count:
            out.append(('F', first + k))
    return out


class Step:
    def __init__(self, f, b, a, bandwidth, m, replicas, schedule):
        self.f, self.b, self.a, self.bandwidth = f, b, a, bandwidth
        self.depth, self.r = len(f), replicas
        self.lists, self.clock = {}, {}
        for s in range(self.depth):
            for q in range(replicas):
                mine = [g for g in range(m) if g % replicas == q]
                self.lists[s, q] = [(kind, mine[k]) for kind, k in work(schedule, self.depth, s, len(mine))]
                self.clock[s, q] = 0.0
        self.arrived = {('F', 0, g): 0.0 for g in range(m)}
        self.out, self.into = dict.fromkeys(self.clock, 0.0), dict.fromkeys(self.clock, 0.0)
        self.waiting = []           # (ready, kind, microbatch, from, to)

    def ready(self, device):
        """When a device's next work can begin; None while what it needs has not come."""
        if not self.lists[device]:
            return None
        kind, g = self.lists[device][0]
        at = self.done.get((device[0], g)) if kind == 'B' and device[0] == self.depth - 1 else self.arrived.get((kind, device[0], g))
        return None if at is None else max(at, self.clock[device])

    def leaves(self, i):
        ready, _, _, a, b = self.waiting[i]
        return max(ready, self.out[a], self.into[b])

    def finish(self, device, begin):
        kind, g = self.lists[device].pop(0)
        s, q = device
        end = begin + (self.f if kind == 'F' else self.b)[s]
        self.clock[device] = end
        if kind == 'F':
            self.done[s, g] = end
        to = s + 1 if kind == 'F' else s - 1
        if 0 <= to < self.depth:
            self.waiting.append((end, kind, g, device, (to, q)))

    def run(self):
        self.done = {}
        while True:
            begins = [(t, d) for d in self.lists for t in [self.ready(d)] if t is not None]
            leaves = [(self.leaves(i), self.waiting[i][0], i) for i in range(len(self.waiting))]
            if not begins and not leaves:
                return max(self.clock.values())
            if leaves and (not begins or min(leaves)[0] <= min(begins)[0]):
                at, _, i = min(leaves)
                _, kind, g, a, b = self.waiting.pop(i)
                size = self.a[min(a[0], b[0])]
                self.out[a] = self.into[b] = at + size / self.bandwidth
                self.arrived[kind, b[0], g] = at + size / self.bandwidth
            else:
                at, device = min(begins)
                self.finish(device, at)


CASES = [(2, 4, 1, '1f1b'), (2, 16, 1, 'gpipe'), (3, 6, 1, '1f1b'), (3, 12, 1, 'gpipe'), (4, 4, 1, '1f1b'), (4, 16, 1, '1f1b'),
         (4, 8, 1, 'gpipe'), (5, 10, 1, '1f1b'), (6, 24, 1, '1f1b'), (6, 6, 1, 'gpipe'), (8, 8, 1, '1f1b'), (8, 32, 1, '1f1b'),
         (8, 16, 1, 'gpipe'), (12, 24, 1, '1f1b'), (2, 8, 2, '1f1b'), (2, 16, 4, 'gpipe'), (3, 12, 2, '1f1b'), (4, 16, 2, '1f1b'),
         (4, 16, 2, 'gpipe'), (2, 24, 3, '1f1b')]


def cells(p):
    out = []
    for n, (depth, m, r, schedule) in enumerate(CASES):
        draw = random.Random(n)
        f = [draw.uniform(5, 20) for _ in range(depth)]
        b = [x * draw.uniform(1, 2.5) for x in f]
        a = [draw.uniform(1e6, 3e7) for _ in range(depth)]
        file = write(p, [['n%d' % i, 'layer%d' % i, f[i], b[i], a[i], 0] for i in range(depth)])
        plan = '-'.join([str(r)] * depth)
        ours = p.step(file, r * depth, 2e9, m, plan, schedule)
        serial = Step([x / 1e3 for x in f], [x / 1e3 for x in b], a, 2e9, m, r, schedule).run()
        out.append(Cell('%s, %d microbatches' % (plan, m), schedule + ' ms', 1e3 * serial, 1e3 * ours, '%.3f', 0.001))
    return Table('serial', 'The simulator beside a serial one', 'Paper: the serial one, in 90 lines of Python. Chains of random layers on '
                 'links of 2 GB/s, one layer a stage.', out)


TABLES = [cells]
